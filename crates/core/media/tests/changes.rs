//! Goal: media change as `docs/format.md` says under "How media change". A refusal has its number and changes nothing,
//! a crash between any two steps leaves the old or the new state, and two writers never undo each other's work.
//! Method: real files in a temporary directory; a crash is simulated by restoring the files' state of that moment.

#[path = "../../io/tests/contract/suite/mod.rs"]
mod storage_suite;
mod support;

use std::path::PathBuf;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_io::{Host, OpenHow, Storage};
use longshore_kit::random::noise;
use longshore_media::{BackupDevice, DeviceSpec, Disposition, Error, MediaSet};
use support::interposed::Interposed;
use support::*;

#[test]
fn a_host_with_an_action_in_between_is_a_storage_like_any_other() {
    storage_suite::keeps_its_contract(&|| {
        let storage = Interposed::after_opening("no such name", OpenHow::Read, || {});
        storage_suite::Place::in_a(tempfile::tempdir().unwrap(), storage)
    });
}

const NEW: Disposition = Disposition::New;
const APPEND: Disposition = Disposition::Append;
const INIT: Disposition = Disposition::Init { skip: false };
const FORMAT: Disposition = Disposition::Format;

/// Stripes `0`, `1`, ... in a separate directory.
struct Place {
    dir: tempfile::TempDir,
    count: usize,
}

impl Place {
    fn new(count: usize) -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place { dir, count }
    }

    fn path(&self, stripe: usize) -> PathBuf {
        self.dir.path().join(stripe.to_string())
    }

    fn temporary(&self, stripe: usize) -> PathBuf {
        self.dir.path().join(format!("{stripe}.longshore-new"))
    }

    fn devices_on(&self, storage: &Arc<dyn Storage>) -> Vec<Arc<dyn BackupDevice>> {
        (0..self.count)
            .map(|i| DeviceSpec::File(self.path(i)).open(storage))
            .collect()
    }

    fn devices(&self) -> Vec<Arc<dyn BackupDevice>> {
        self.devices_on(&(Arc::new(Host::new()) as _))
    }

    /// Writes a set with one file that holds `text`.
    fn write(&self, disposition: Disposition, text: &str) -> Result<(), Error> {
        let shape = Shape::new(disposition, Algorithm::Zstd, 30);
        write_set(&self.devices(), &shape, &content(text)).map(|_| ())
    }

    /// The content of each set on the media; everything is checked.
    fn texts(&self) -> Result<Vec<String>, String> {
        let sets = read_all(&self.devices())?;
        Ok(sets
            .iter()
            .map(|c| c.values().next().unwrap())
            .map(text_of)
            .collect())
    }

    fn stripes(&self) -> Vec<Vec<u8>> {
        (0..self.count)
            .map(|i| std::fs::read(self.path(i)).unwrap())
            .collect()
    }

    fn put(&self, stripes: &[Vec<u8>]) {
        for (i, bytes) in stripes.iter().enumerate() {
            std::fs::write(self.path(i), bytes).unwrap();
        }
    }

    /// Every name in the directory, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn content(text: &str) -> Vec<Input> {
    // Long enough for one block on each of three stripes.
    vec![file("f", text.repeat(100 / text.len() + 1).as_bytes())]
}

fn text_of(restored: &Restored) -> String {
    let data = &restored.data;
    let unit = (1..=data.len()).find(|n| data.chunks(*n).all(|c| data.starts_with(c)));
    String::from_utf8(data[..unit.unwrap()].to_vec()).unwrap()
}

fn number(result: Result<(), Error>) -> Option<u32> {
    let error = result.expect_err("it was not refused");
    assert!(!error.hint().is_empty());
    error.number()
}

/// Goal: a copy of the stripes made of hard links keeps its bytes when a set is appended, even if the append fails or
/// copying the stripe was interrupted; the media are the same as without hard links.
#[test]
fn appending_changes_no_other_name_of_a_stripe() {
    let place = Place::new(2);
    place.write(NEW, "abc").unwrap();
    let before = place.stripes();
    let copies = [0, 1].map(|i| place.dir.path().join(format!("copy{i}")));
    for (i, copy) in copies.iter().enumerate() {
        std::fs::hard_link(place.path(i), copy).unwrap();
    }
    // A leftover of a writer that was killed while it copied.
    std::fs::write(place.temporary(0), &before[0][..40]).unwrap();
    place.write(APPEND, "def").unwrap();
    for (copy, before) in copies.iter().zip(&before) {
        assert_eq!(&std::fs::read(copy).unwrap(), before);
    }
    assert_eq!(place.texts().unwrap(), ["abc", "def"]);
    assert_eq!(place.names(), ["0", "1", "copy0", "copy1"]);
    // The stripes now have one name each and are appended to in place.
    let ino = |i| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(place.path(i)).unwrap());
    let own = [ino(0), ino(1)];
    place.write(APPEND, "ghi").unwrap();
    assert_eq!([ino(0), ino(1)], own);
    assert_eq!(place.texts().unwrap(), ["abc", "def", "ghi"]);
}

#[test]
fn a_new_media_set_never_replaces_anything() {
    let place = Place::new(2);
    std::fs::write(place.path(1), "precious").unwrap();
    let error = place.write(NEW, "abc").unwrap_err();
    assert!(
        error.to_string().contains("data that is not a media set"),
        "{error}"
    );
    assert_eq!(std::fs::read(place.path(1)).unwrap(), b"precious");
    assert_eq!(place.names(), ["1"]);

    // An empty file counts as no stripe.
    std::fs::write(place.path(1), "").unwrap();
    place.write(NEW, "abc").unwrap();
    let before = place.stripes();
    let error = place.write(NEW, "def").unwrap_err();
    assert!(
        error.to_string().contains("already holds a media set"),
        "{error}"
    );
    assert_eq!(
        (place.stripes(), place.names()),
        (before, vec!["0".into(), "1".into()])
    );
}

#[test]
fn an_append_leaves_every_older_byte_alone_in_whatever_order_devices_are_named() {
    let place = Place::new(3);
    place.write(APPEND, "abc").unwrap();
    let before = place.stripes();
    let mut devices = place.devices();
    devices.rotate_left(1);
    let shape = Shape::new(APPEND, Algorithm::Zstd, 30);
    write_set(&devices, &shape, &content("def")).unwrap();
    for (old, new) in before.iter().zip(place.stripes()) {
        assert!(new.starts_with(old) && new.len() > old.len());
    }
    place.write(APPEND, "ghi").unwrap();
    assert_eq!(place.texts().unwrap(), ["abc", "def", "ghi"]);
    let media = MediaSet::open(&devices).unwrap();
    let sets = media.sets().unwrap();
    assert_eq!(
        sets.iter().map(|s| s.header.position).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(media.set(0).unwrap().header, sets[2].header);
}

#[test]
fn sets_of_another_container_or_kind_are_not_appended() {
    for (first, second, allowed) in [
        (Algorithm::Zstd, Algorithm::QatDeflate, false),
        (Algorithm::None, Algorithm::Lz4, false),
        (Algorithm::MsXpress, Algorithm::None, false),
        (Algorithm::Lz4, Algorithm::MsXpress, true),
    ] {
        let place = Place::new(2);
        let shape = |disposition, algorithm| Shape::new(disposition, algorithm, 30);
        write_set(&place.devices(), &shape(NEW, first), &content("abc")).unwrap();
        let before = place.stripes();
        let done = write_set(&place.devices(), &shape(APPEND, second), &content("def"));
        match allowed {
            true => assert_eq!(place.texts().unwrap(), ["abc", "def"]),
            false => {
                assert_eq!(number(done.map(|_| ())), Some(3098));
                assert_eq!(place.stripes(), before);
                // INIT may change the container: no old set remains to mix with.
                write_set(&place.devices(), &shape(INIT, second), &content("def")).unwrap();
                assert_eq!(place.texts().unwrap(), ["def"]);
            }
        }
    }
}

#[test]
fn init_drops_all_sets_and_keeps_the_media() {
    let place = Place::new(3);
    let mut shape = Shape::new(NEW, Algorithm::Zstd, 30);
    shape.media_name = "weekly".into();
    write_set(&place.devices(), &shape, &content("abc")).unwrap();
    place.write(APPEND, "def").unwrap();
    let label = |i: usize| MediaSet::label(&*place.devices()[i]).unwrap();
    let before = label(0);
    place.write(INIT, "ghi").unwrap();
    place.write(INIT, "jkl").unwrap();
    assert_eq!(place.texts().unwrap(), ["jkl"]);
    let after = label(0);
    assert_eq!(
        (after.media_set, &*after.name),
        (before.media_set, "weekly")
    );
    assert_eq!((before.generation, after.generation), (0, 2));
    assert_eq!(place.names(), ["0", "1", "2"]);

    shape.disposition = INIT;
    shape.media_name = "daily".into();
    let refused = write_set(&place.devices(), &shape, &content("mno")).map(|_| ());
    assert_eq!(number(refused), Some(4037));
    shape.disposition = Disposition::Init { skip: true };
    write_set(&place.devices(), &shape, &content("mno")).unwrap();
    assert_eq!(place.texts().unwrap(), ["mno"]);
}

#[test]
fn init_refuses_unexpired_sets_unless_the_check_is_skipped() {
    let place = Place::new(2);
    let mut shape = Shape::new(NEW, Algorithm::Zstd, 30);
    shape.expires_us = Some(i64::MAX);
    write_set(&place.devices(), &shape, &content("abc")).unwrap();
    place.write(APPEND, "def").unwrap();
    let before = place.stripes();
    assert_eq!(number(place.write(INIT, "ghi")), Some(4030));
    assert_eq!((place.stripes(), place.names().len()), (before, 2));
    place
        .write(Disposition::Init { skip: true }, "ghi")
        .unwrap();
    assert_eq!(place.texts().unwrap(), ["ghi"]);
    // Any set of several counts.
    shape.disposition = APPEND;
    write_set(&place.devices(), &shape, &content("jkl")).unwrap();
    assert_eq!(number(place.write(INIT, "mno")), Some(4030));
}

#[test]
fn format_overwrites_anything_with_new_media() {
    let place = Place::new(2);
    place.write(NEW, "abc").unwrap();
    let old = MediaSet::label(&*place.devices()[0]).unwrap().media_set;
    std::fs::write(place.path(1), "rubbish").unwrap();
    assert_eq!(number(place.write(APPEND, "def")), Some(3241));
    assert_eq!(number(place.write(INIT, "def")), Some(3241));
    place.write(FORMAT, "ghi").unwrap();
    assert_eq!(place.texts().unwrap(), ["ghi"]);
    assert_ne!(
        MediaSet::label(&*place.devices()[0]).unwrap().media_set,
        old
    );
    assert_eq!(place.names(), ["0", "1"]);
}

#[test]
fn an_unsealed_set_leaves_the_media_unchanged() {
    for disposition in [NEW, APPEND, INIT, FORMAT] {
        let place = Place::new(3);
        if disposition != NEW {
            place.write(NEW, "abc").unwrap();
        }
        let (names, before) = (place.names(), disposition != NEW);
        let before = before.then(|| place.stripes());
        let shape = Shape::new(disposition, Algorithm::Zstd, 30);
        let (writer, _) = write_data(&place.devices(), &shape, &content("def")).unwrap();
        drop(writer);
        assert_eq!(place.names(), names, "{disposition:?}");
        if let Some(before) = before {
            assert_eq!(place.stripes(), before, "{disposition:?}");
        }
    }
}

/// Files as a crash left them: for each stripe the file under its name and the temporary one.
fn crashed(old: Option<&[Vec<u8>]>, new: &[Vec<u8>], renamed: &[bool]) -> Place {
    let place = Place::new(new.len());
    for i in 0..new.len() {
        if renamed[i] {
            std::fs::write(place.path(i), &new[i]).unwrap();
            continue;
        }
        if let Some(old) = old {
            std::fs::write(place.path(i), &old[i]).unwrap();
        }
        std::fs::write(place.temporary(i), &new[i]).unwrap();
    }
    place
}

/// Stripes of a set, and of the same media after `disposition`.
fn two_states(disposition: Disposition) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let place = Place::new(3);
    place.write(NEW, "old").unwrap();
    let old = place.stripes();
    place.write(disposition, "new").unwrap();
    (old, place.stripes())
}

fn subsets() -> impl Iterator<Item = [bool; 3]> {
    (0..8u8).map(|n| [n & 1 != 0, n & 2 != 0, n & 4 != 0])
}

#[test]
fn renames_that_a_crash_interrupted_are_read_as_done_and_finished_by_the_next_writer() {
    for disposition in [INIT, FORMAT] {
        let (old, new) = two_states(disposition);
        for renamed in subsets() {
            let any = renamed.contains(&true);
            let place = crashed(Some(&old), &new, &renamed);
            let wanted = if any { "new" } else { "old" };
            assert_eq!(
                place.texts().unwrap(),
                [wanted],
                "{disposition:?} {renamed:?}"
            );
            // Reading changes nothing; appending finishes the interrupted renames.
            assert_eq!(place.texts().unwrap(), [wanted]);
            place.write(APPEND, "more").unwrap();
            assert_eq!(place.texts().unwrap(), [wanted, "more"]);
            if any {
                assert_eq!(place.names(), ["0", "1", "2"]);
            }
        }
    }
}

#[test]
fn a_new_media_set_whose_renames_a_crash_interrupted_is_there() {
    let (new, _) = two_states(NEW_AGAIN);
    for renamed in subsets() {
        let place = crashed(None, &new, &renamed);
        assert_eq!(place.texts().unwrap(), ["old"], "{renamed:?}");
        // The set was never reported as complete, so a new media set may replace it while no stripe has its final
        // name.
        let again = place.write(NEW, "again");
        assert_eq!(again.is_ok(), renamed == [false; 3]);
        let wanted = if again.is_ok() { "again" } else { "old" };
        assert_eq!(place.texts().unwrap(), [wanted]);
        place.write(INIT, "init").unwrap();
        assert_eq!(place.texts().unwrap(), ["init"]);
        assert_eq!(place.names(), ["0", "1", "2"]);
    }
}

/// The second state is not used.
const NEW_AGAIN: Disposition = FORMAT;

#[test]
fn temporaries_without_all_their_trailers_never_count() {
    let (old, new) = two_states(INIT);
    for cut in 0..3 {
        let mut unsealed = new.clone();
        let len = unsealed[cut].len();
        unsealed[cut].truncate(len - 1);
        let place = crashed(Some(&old), &unsealed, &[false; 3]);
        assert_eq!(place.texts().unwrap(), ["old"]);
        let place = crashed(None, &unsealed, &[false; 3]);
        assert_eq!(
            number(MediaSet::open(&place.devices()).map(|_| ())),
            Some(3201)
        );
        place.write(NEW, "again").unwrap();
        assert_eq!(place.texts().unwrap(), ["again"]);
    }
}

#[test]
fn temporaries_of_an_old_attempt_never_replace_a_lost_stripe() {
    // A crash came before the first rename and left complete temporary files; later a set was appended to the old
    // media.
    let (old, new) = two_states(INIT);
    let place = crashed(Some(&old), &new, &[false; 3]);
    place.write(APPEND, "more").unwrap();
    std::fs::remove_file(place.path(1)).unwrap();
    let error = MediaSet::open(&place.devices()).unwrap_err();
    assert!(
        matches!(&error, Error::Missing { device } if device.ends_with("/1")),
        "{error}"
    );
}

#[test]
fn the_right_temporaries_are_found_among_others() {
    let (_, stale) = two_states(INIT);
    let (old, new) = two_states(INIT);
    let place = crashed(Some(&old), &new, &[true, false, false]);
    // Stripe 0 was renamed already, and an older temporary file is next to it.
    std::fs::write(place.temporary(0), &stale[0]).unwrap();
    assert_eq!(place.texts().unwrap(), ["new"]);
    place.write(INIT, "init").unwrap();
    assert_eq!(
        (place.texts().unwrap(), place.names().len()),
        (vec!["init".into()], 3)
    );
}

#[test]
fn a_format_that_fails_leaves_an_interrupted_init_to_be_found() {
    let (old, new) = two_states(INIT);
    let place = crashed(Some(&old), &new, &[true, false, false]);
    let shape = Shape::new(FORMAT, Algorithm::Zstd, 30);
    drop(write_data(&place.devices(), &shape, &content("xyz")).unwrap());
    assert_eq!(place.texts().unwrap(), ["new"]);
    assert_eq!(place.names(), ["0", "1", "2"]);
}

#[test]
fn every_end_that_a_crashed_append_can_leave_is_recognised_and_cut_by_the_next_append() {
    let place = Place::new(1);
    place.write(NEW, "first").unwrap();
    let one = place.stripes().remove(0);
    place.write(APPEND, "second").unwrap();
    let two = place.stripes().remove(0);
    let noise: Vec<u8> = (0..600u32).map(|n| ((n * 37) >> 3) as u8).collect();
    for len in one.len() + 1..two.len() {
        // Truncated; unwritten bytes are zeros; unwritten bytes are the disk's previous content.
        let zeros = [&two[..len], &vec![0; two.len() - len]].concat();
        let torn = [&two[..len], &noise[..]].concat();
        for (n, bytes) in [two[..len].to_vec(), zeros, torn].into_iter().enumerate() {
            if n == 1 && two[len..].iter().all(|b| *b == 0) {
                continue;
            }
            place.put(&[bytes]);
            let media = MediaSet::open(&place.devices()).unwrap();
            let error = media.set(0).unwrap_err();
            assert!(
                matches!(error, Error::Incomplete { .. }) && error.number() == Some(3256),
                "{len} {n}: {error}"
            );
            assert_eq!(read_set(&media, 1).unwrap(), expected(&content("first")));
            assert!(place.texts().is_err());
            if len % 40 == n {
                place.write(APPEND, "third").unwrap();
                assert_eq!(place.texts().unwrap(), ["first", "third"]);
            }
        }
    }
}

#[test]
fn a_set_whose_trailer_was_damaged_is_not_taken_for_a_crash_and_cut() {
    let place = Place::new(2);
    place.write(NEW, "first").unwrap();
    let one = place.stripes();
    place.write(APPEND, "second").unwrap();
    let two = place.stripes();
    for family in 0..2 {
        let end = two[family].len();
        for at in end - 216..end {
            let mut stripes = two.clone();
            stripes[family][at] ^= 0x20;
            place.put(&stripes);
            let error = place.write(APPEND, "third").unwrap_err();
            assert_eq!(error.number(), Some(3189), "{at}: {error}");
            assert!(
                error.to_string().contains("trailer of backup set 2"),
                "{error}"
            );
            assert_eq!(place.stripes(), stripes);
        }
    }
    // The first set is no exception.
    let mut stripes = one.clone();
    let end = one[1].len();
    stripes[1][end - 100] ^= 1;
    place.put(&stripes);
    assert!(place.write(APPEND, "second").is_err());
    assert_eq!(place.stripes(), stripes);
}

/// A power cut may lose the sector that a trailer begins in and keep the one that it ends in.
#[test]
fn a_trailer_that_lacks_its_first_sector_is_what_a_crash_left_and_cut_by_the_next_append() {
    let noise = noise(1, 8000);
    for lost in 1..16 {
        let place = Place::new(1);
        place.write(NEW, "first").unwrap();
        let one = place.stripes();
        let second = |len: usize| {
            place.put(&one);
            let shape = Shape::new(APPEND, Algorithm::Zstd, 8000);
            write_set(&place.devices(), &shape, &[file("f", &noise[..len])]).unwrap();
            let stripe = place.stripes().remove(0);
            let at = stripe.len() - TRAILER_LEN;
            (stripe, at)
        };
        // The text length that makes the trailer begin `lost` bytes before a sector boundary.
        let mut len = 2000;
        let (mut stripe, at) = loop {
            let made = second(len);
            match (1024 - lost - made.1 % 512) % 512 {
                0 => break made,
                short => len += short,
            }
        };
        stripe[at..at + lost].fill(0);
        place.put(&[stripe]);
        place.write(APPEND, "third").unwrap();
        assert_eq!(place.texts().unwrap(), ["first", "third"], "{lost}");
    }
}

#[test]
fn a_set_that_lacks_the_trailer_of_one_stripe_is_incomplete_and_named_after_it() {
    let place = Place::new(3);
    place.write(NEW, "first").unwrap();
    place.write(APPEND, "second").unwrap();
    let whole = place.stripes();
    for cut in 0..3 {
        let mut stripes = whole.clone();
        let len = stripes[cut].len();
        stripes[cut].truncate(len - 20);
        place.put(&stripes);
        let error = MediaSet::open(&place.devices())
            .unwrap()
            .set(2)
            .unwrap_err();
        assert_eq!(error.number(), Some(3256));
        assert!(error.to_string().contains(&format!("/{cut} ")), "{error}");
        assert!(place.texts().is_err());
        place.write(APPEND, "third").unwrap();
        assert_eq!(place.texts().unwrap(), ["first", "third"]);
    }
}

const TRAILER_LEN: usize = 216;

/// The stripe with zeros in place of the trailers that end at these offsets.
fn unsealed(stripe: &[u8], ends: &[usize]) -> Vec<u8> {
    let mut stripe = stripe.to_vec();
    for end in ends {
        stripe[end - TRAILER_LEN..*end].fill(0);
    }
    stripe
}

/// A crash leaves one unfinished set, at the very end. A set that lost its trailer before another one, or two stripes that
/// end with different sets, are damage: an append would cut off what is whole.
#[test]
fn more_than_one_unfinished_set_is_not_taken_for_a_crash_and_cut() {
    let place = Place::new(2);
    let mut states = Vec::new();
    for text in ["first", "second", "third", "fourth"] {
        place.write(APPEND, text).unwrap();
        states.push(place.stripes());
    }
    let end = |set: usize, family: usize| states[set - 1][family].len();
    let [_, two, three, four] = &states[..] else {
        panic!("four sets were written");
    };
    let lost = |stripes: &[Vec<u8>], sets: &[usize]| -> Vec<Vec<u8>> {
        let one = |(family, stripe): (usize, &Vec<u8>)| {
            let ends: Vec<usize> = sets.iter().map(|set| end(*set, family)).collect();
            unsealed(stripe, &ends)
        };
        stripes.iter().enumerate().map(one).collect()
    };
    let torn = |family: usize| four[family][..end(3, family) + 90].to_vec();
    let mut first_header_too = lost(three, &[1, 2]);
    let media = MediaSet::open(&place.devices()).unwrap();
    for (family, stripe) in first_header_too.iter_mut().enumerate() {
        let header = media.stream(family, 1).unwrap().offset() as usize;
        stripe[header + 60] ^= 1;
    }
    for (n, (stripes, number)) in [
        (lost(three, &[2]), 3189),
        (vec![lost(three, &[2]).remove(0), three[1].clone()], 3189),
        (vec![lost(two, &[2]).remove(0), three[1].clone()], 3256),
        (
            vec![lost(two, &[2]).remove(0), lost(three, &[3]).remove(1)],
            3256,
        ),
        // The unfinished end of a fourth set hides neither the third nor that the second was sealed.
        (lost(&[torn(0), torn(1)], &[2]), 3189),
        // The last two trailers, and the last three.
        (lost(three, &[2, 3]), 3189),
        (lost(four, &[2, 3, 4]), 3189),
        // All but the last one, and a first header that cannot be read.
        (lost(four, &[1, 2, 3]), 3189),
        (first_header_too, 3189),
    ]
    .into_iter()
    .enumerate()
    {
        place.put(&stripes);
        match place.write(APPEND, "fifth") {
            Ok(()) => panic!("{n}: an append has cut a set"),
            Err(error) => assert_eq!(error.number(), Some(number), "{n}: {error}"),
        }
        assert!(place.stripes() == stripes, "{n}");
    }
    // The first set, with two whole ones after it.
    place.put(&lost(three, &[1]));
    let error = place.write(APPEND, "fourth").unwrap_err();
    let told = format!(
        "trailer of backup set 1 at byte {}",
        end(1, 0) - TRAILER_LEN
    );
    assert!(error.to_string().contains(&told), "{error}");
}

/// Goal: a lost trailer hides no set but its own, and a damaged block before it changes nothing.
#[test]
fn a_lost_trailer_hides_no_other_set() {
    let place = Place::new(1);
    let mut ends = vec![0];
    for text in ["first", "second", "third", "fourth"] {
        place.write(APPEND, text).unwrap();
        ends.push(place.stripes()[0].len());
    }
    let whole = place.stripes().remove(0);
    let read = |bytes: Vec<u8>, text: [Option<&str>; 4]| {
        place.put(&[bytes]);
        let media = MediaSet::open(&place.devices()).unwrap();
        for (position, text) in (1..).zip(text) {
            match text {
                Some(text) => {
                    assert_eq!(
                        read_set(&media, position).unwrap(),
                        expected(&content(text))
                    );
                }
                None => assert_eq!(media.set(position).unwrap_err().number(), Some(3189)),
            }
        }
    };
    let [first, third, fourth] = ["first", "third", "fourth"].map(Some);
    let second_lost = unsealed(&whole, &[ends[2]]);
    read(second_lost.clone(), [first, None, third, fourth]);
    // Every byte of the second set and of its lost trailer.
    for at in ends[1]..ends[2] {
        let mut bytes = second_lost.clone();
        bytes[at] ^= 0x10;
        read(bytes, [first, None, third, fourth]);
    }
    // The third header is found although the third trailer is lost too; without the header only the fourth set is left.
    let two_lost = unsealed(&whole, &[ends[2], ends[3]]);
    read(two_lost.clone(), [first, None, None, fourth]);
    let mut bytes = two_lost;
    bytes[ends[2] + 60] ^= 1;
    read(bytes, [first, None, None, fourth]);
}

/// Goal: what a crash left is recognised and cut although its blocks hold, byte for byte, media with later sets.
#[test]
fn media_inside_a_torn_set_are_not_taken_for_later_sets() {
    let inner = Place::new(1);
    for text in ["one", "two", "three", "four"] {
        inner.write(APPEND, text).unwrap();
    }
    let inner = inner.stripes().remove(0);
    let place = Place::new(1);
    let write = |disposition: Disposition, data: &[u8]| {
        let shape = Shape::new(disposition, Algorithm::None, 8000);
        write_set(&place.devices(), &shape, &[file("f", data)]).unwrap();
        place.stripes().remove(0)
    };
    let one = write(NEW, b"first").len();
    let two = write(APPEND, &inner);
    let start = two.windows(64).position(|bytes| *bytes == inner[..64]);
    let start = start.expect("the media are stored as they are");
    let damaged = |len: usize, at: usize| {
        let mut bytes = two[..len].to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let torn = (one + 1..two.len())
        .step_by(13)
        .map(|len| two[..len].to_vec());
    // A block whose header was not written, behind which the inner media lie open.
    let opened = (start..=two.len() - TRAILER_LEN)
        .step_by(13)
        .map(|len| damaged(len, start - 30));
    for bytes in torn.chain(opened) {
        let len = bytes.len();
        place.put(&[bytes]);
        write(APPEND, b"second");
        let media = MediaSet::open(&place.devices()).unwrap();
        assert_eq!(
            read_set(&media, 2).unwrap(),
            expected(&[file("f", b"second")]),
            "{len}"
        );
    }
}

#[test]
fn damage_inside_a_set_never_makes_an_append_cut_later_sets() {
    let place = Place::new(1);
    place.write(NEW, "first").unwrap();
    let one = place.stripes()[0].len();
    place.write(APPEND, "second").unwrap();
    let two = place.stripes().remove(0);
    let first_set = {
        let media = MediaSet::open(&place.devices()).unwrap();
        media.stream(0, 1).unwrap().offset() as usize
    };
    // Any byte of the first set except its trailer, with the torn end of a third set after the second.
    for at in (first_set - 40..one - 216).step_by(7) {
        let mut bytes = [&two[..], &two[one..one + 90]].concat();
        bytes[at] ^= 0x10;
        place.put(&[bytes]);
        place.write(APPEND, "third").unwrap();
        let media = MediaSet::open(&place.devices()).unwrap();
        assert_eq!(
            read_set(&media, 2).unwrap(),
            expected(&content("second")),
            "byte {at}"
        );
        assert_eq!(
            read_set(&media, 3).unwrap(),
            expected(&content("third")),
            "byte {at}"
        );
        assert!(read_all(&place.devices()).is_err(), "byte {at}");
    }
}

#[test]
fn an_unreadable_set_header_is_reported_and_hides_no_other_set() {
    let place = Place::new(1);
    let mut starts = vec![0];
    for text in ["first", "second", "third"] {
        place.write(APPEND, text).unwrap();
        starts.push(place.stripes()[0].len());
    }
    let whole = place.stripes().remove(0);
    for (position, start) in [(2, starts[1]), (3, starts[2])] {
        let mut bytes = whole.clone();
        bytes[start + 60] ^= 1;
        place.put(&[bytes]);
        let media = MediaSet::open(&place.devices()).unwrap();
        assert_eq!(media.sets().unwrap().len(), 2);
        let errors = media.unreadable().unwrap();
        assert_eq!(errors.len(), 1);
        assert!(matches!(&errors[0], Error::Damaged { offset, .. } if *offset == start as u64));
        for readable in [1, 2, 3].into_iter().filter(|p| *p != position) {
            assert!(read_set(&media, readable).is_ok());
        }
        assert_eq!(media.set(position).unwrap_err().number(), Some(3189));
        // Position 0 (the last one) never silently means an older one.
        assert_eq!(media.set(0).is_err(), position == 3);
        place.write(APPEND, "fourth").unwrap();
        let media = MediaSet::open(&place.devices()).unwrap();
        assert_eq!(read_set(&media, 4).unwrap(), expected(&content("fourth")));
    }
}

#[test]
fn of_two_writers_the_second_is_refused_and_the_first_is_not_harmed() {
    for first in [NEW, APPEND, INIT, FORMAT] {
        for second in [NEW, APPEND, INIT, FORMAT] {
            let place = Place::new(2);
            let exists = first != NEW;
            if exists {
                place.write(NEW, "old").unwrap();
            }
            let shape = Shape::new(first, Algorithm::Zstd, 30);
            let (writer, totals) = write_data(&place.devices(), &shape, &content("one")).unwrap();
            let refused = number(place.write(second, "two"));
            let expected = (!(exists && second == NEW)).then_some(3023);
            assert_eq!(refused, expected, "{first:?} against {second:?}");
            writer.seal(&totals).unwrap();
            let left = if first == APPEND {
                vec!["old", "one"]
            } else {
                vec!["one"]
            };
            assert_eq!(place.texts().unwrap(), left, "{first:?} against {second:?}");
            assert_eq!(place.names(), ["0", "1"]);
        }
    }
}

#[test]
fn a_backup_that_finishes_between_look_and_lock_is_never_undone() {
    // The second writer has read the media; the first one finishes before the second gets its locks.
    let cases = [
        (APPEND, "0", OpenHow::ReadWrite),
        (INIT, "0.longshore-new", OpenHow::CreateNew),
        (NEW, "0.longshore-new", OpenHow::CreateNew),
        (NEW, "0", OpenHow::Read),
    ];
    for (disposition, name, how) in cases {
        for finishing in [APPEND, INIT, NEW] {
            if (disposition == NEW) != (finishing == NEW) {
                continue;
            }
            let place = Arc::new(Place::new(2));
            if disposition != NEW {
                place.write(NEW, "old").unwrap();
            }
            let other = place.clone();
            // While the second holds a temporary file, the first cannot write to it and is refused.
            let done = Arc::new(std::sync::Mutex::new(false));
            let told = done.clone();
            let storage = Interposed::after_opening(name, how, move || {
                *told.lock().unwrap() = other.write(finishing, "finished").is_ok();
            });
            let shape = Shape::new(disposition, Algorithm::Zstd, 30);
            let devices = place.devices_on(&storage);
            let second = write_set(&devices, &shape, &content("second")).map(|_| ());
            let finished = *done.lock().unwrap();
            let texts = place.texts().unwrap();
            assert!(
                !finished || texts.contains(&"finished".to_owned()),
                "{disposition:?} against {finishing:?}: a reported backup is gone: {texts:?}"
            );
            match second {
                Ok(()) => assert!(texts.contains(&"second".to_owned()) && !finished),
                Err(e) => assert!(
                    matches!(e, Error::Busy { .. } | Error::Exists { .. }),
                    "{e}"
                ),
            }
        }
    }
}

#[test]
fn a_lock_on_a_replaced_file_is_no_lock() {
    let place = Arc::new(Place::new(1));
    place.write(NEW, "old").unwrap();
    let (path, aside) = (place.path(0), place.dir.path().join("aside"));
    let storage = Interposed::after_opening("0", OpenHow::ReadWrite, move || {
        std::fs::copy(&path, &aside).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    });
    let shape = Shape::new(APPEND, Algorithm::Zstd, 30);
    let refused = write_set(&place.devices_on(&storage), &shape, &content("lost")).map(|_| ());
    assert_eq!(number(refused), Some(3023));
    assert_eq!(place.texts().unwrap(), ["old"]);
}

#[test]
fn one_file_given_twice_is_refused() {
    let place = Place::new(1);
    let twice = [place.devices(), place.devices()].concat();
    let write = |disposition| {
        let shape = Shape::new(disposition, Algorithm::Zstd, 30);
        write_set(&twice, &shape, &content("abc")).map(|_| ())
    };
    assert_eq!(number(write(NEW)), Some(3023));
    assert!(place.names().is_empty());
    place.write(NEW, "abc").unwrap();
    assert_eq!(number(write(APPEND)), Some(3227));
    assert_eq!(number(write(FORMAT)), Some(3023));
    assert_eq!(place.texts().unwrap(), ["abc"]);
}

#[test]
fn the_index_lists_what_the_blocks_hold() {
    let place = Place::new(3);
    let shape = Shape::new(NEW, Algorithm::QatDeflate, 90);
    write_set(&place.devices(), &shape, &small_tree()).unwrap();
    let media = MediaSet::open(&place.devices()).unwrap();
    let mut names = Vec::new();
    media
        .items(1, |item| {
            if let longshore_media::Item::Entry(entry) = item
                && entry.first
            {
                names.push(entry.path);
            }
        })
        .unwrap();
    names.sort();
    let wanted: Vec<_> = expected(&small_tree()).into_keys().collect();
    assert_eq!(names, wanted);
}

#[test]
fn stripes_are_written_where_only_files_open_for_writing_can_be_locked() {
    let disk = longshore_io::SimDisk::new(1).set_locks_need_writing(true);
    disk.write_file("/d/a.bak", b"older").unwrap();
    disk.write_file("/d/a.bak.longshore-new", b"left behind")
        .unwrap();
    let storage: std::sync::Arc<dyn longshore_io::Storage> = std::sync::Arc::new(disk);
    let device = longshore_media::DeviceSpec::File("/d/a.bak".into()).open(&storage);
    device.create(longshore_io::Via::Cache).unwrap();
}

/// Goal: where a lock does not reach the other writer, a file next to the stripe does; a writer that lost its
/// reservation says so and harms nothing.
/// Method: the other writer is on another machine whose locks are invisible; only its file is seen.
#[test]
fn a_writer_with_invisible_locks_excludes_others_by_a_file_next_to_the_stripe() {
    let disk = longshore_io::SimDisk::new(1).set_keeps_locks(false);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = [DeviceSpec::File("/share/x.bak".into()).open(&storage)];
    let beside = "/share/x.bak.longshore-writing";
    let elsewhere = b"another-boot 1 7 x\n";
    disk.create_dir_all(std::path::Path::new("/share")).unwrap();
    let shape = |disposition| Shape::new(disposition, Algorithm::Zstd, 30);
    let write = |disposition| write_set(&device, &shape(disposition), &content("x")).map(|_| ());
    write(NEW).unwrap();
    assert!(
        disk.stat(std::path::Path::new(beside)).is_err(),
        "it stays behind"
    );
    // Once such a file exists, writers that could rely on locks respect it, too.
    for keeps_locks in [false, true] {
        disk.set_keeps_locks(keeps_locks);
        disk.write_file(beside, elsewhere).unwrap();
        for disposition in [APPEND, INIT, FORMAT] {
            assert_eq!(number(write(disposition)), Some(3023), "{disposition:?}");
        }
        let dir = disk.dir(std::path::Path::new("/share")).unwrap();
        dir.remove_file(std::path::Path::new("x.bak.longshore-writing"))
            .unwrap();
    }
    disk.set_keeps_locks(false);
    write(APPEND).unwrap();
    assert!(MediaSet::open(&device).unwrap().set(2).is_ok());
    // The writer was taken for dead, and the other one has written its set meanwhile.
    let (writer, totals) = write_data(&device, &shape(APPEND), &content("late")).unwrap();
    disk.write_file(beside, elsewhere).unwrap();
    disk.write_file("/share/x.bak", b"the other's").unwrap();
    assert_eq!(number(writer.seal(&totals).map(|_| ())), Some(3023));
    assert_eq!(disk.read_file("/share/x.bak").unwrap(), b"the other's");
    assert_eq!(disk.read_file(beside).unwrap(), elsewhere);
}

/// Goal: a set that was appended after another machine's writer was taken for dead, because it was silent for long, stays
/// whole when that writer wakes and writes on.
/// Method: the silent writer has the file open, and its lock is not visible; its reservation is old and of another machine.
#[test]
fn a_writer_that_wakes_after_it_was_taken_for_dead_harms_no_set() {
    let disk = longshore_io::SimDisk::new(1).set_keeps_locks(false);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = [DeviceSpec::File("/share/x.bak".into()).open(&storage)];
    disk.create_dir_all(std::path::Path::new("/share")).unwrap();
    let shape = |disposition| Shape::new(disposition, Algorithm::Zstd, 30);
    write_set(&device, &shape(NEW), &content("first")).unwrap();
    let name = std::path::Path::new("x.bak");
    let beside = "x.bak.longshore-writing";
    disk.write_file(format!("/share/{beside}"), b"another-boot 1 7 x\n")
        .unwrap();
    let dir = disk.dir(std::path::Path::new("/share")).unwrap();
    let silent = dir.open(name, longshore_io::OpenHow::ReadWrite).unwrap();
    let begin = silent.stat().unwrap().len;
    let now = dir.stat(std::path::Path::new(beside));
    let old = longshore_io::Attributes {
        mtime_ns: Some(now.unwrap().mtime_ns - 16 * 60 * 1_000_000_000),
        ..Default::default()
    };
    dir.set_attributes(std::path::Path::new(beside), &old)
        .unwrap();
    let appended = write_set(&device, &shape(APPEND), &content("second"));
    appended.map(drop).unwrap();
    let whole = disk.read_file("/share/x.bak").unwrap();
    assert!(whole.len() as u64 > begin);
    // It wakes in the middle of its first write.
    silent.set_len(begin).unwrap();
    silent
        .write_all_at(&[7; 4096], begin, longshore_io::Via::Cache)
        .unwrap();
    assert!(disk.read_file("/share/x.bak").unwrap() == whole);
    assert!(MediaSet::open(&device).unwrap().set(2).is_ok());
    // Nor is anything left of it, whoever comes next.
    let left = |disk: &longshore_io::SimDisk| {
        let names = disk.paths().into_iter();
        names
            .filter(|path| path.to_string_lossy().contains("longshore-"))
            .count()
    };
    assert_eq!(left(&disk), 0, "{:?}", disk.paths());
    disk.write_file(format!("/share/{beside}"), b"another-boot 1 7 x\n")
        .unwrap();
    dir.set_attributes(std::path::Path::new(beside), &old)
        .unwrap();
    write_set(&device, &shape(FORMAT), &content("third"))
        .map(drop)
        .unwrap();
    assert_eq!(left(&disk), 0, "{:?}", disk.paths());
}

/// Goal: who lists a stripe to which somebody appends at that time comes to an end.
#[test]
fn a_stripe_that_grows_while_it_is_listed_does_not_hold_its_reader() {
    let place = Place::new(1);
    let shape = Shape::new(NEW, Algorithm::Zstd, 1 << 16);
    let mut stripe = media(1, &[(shape, small_tree())]).remove(0);
    // A set has begun behind it.
    stripe.extend(noise(1 << 16, 3));
    std::fs::write(place.path(0), &stripe).unwrap();
    let path = place.path(0);
    let (told, ended) = std::sync::mpsc::channel();
    let devices = place.devices();
    std::thread::spawn(move || {
        let listed = MediaSet::open(&devices).and_then(|media| media.sets());
        told.send(listed.map(|sets| sets.len())).ok();
    });
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let answer = loop {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(&noise(1 << 12, 4)).unwrap();
        match ended.try_recv() {
            Ok(answer) => break answer,
            Err(_) if std::time::Instant::now() < until => {}
            Err(_) => panic!("it reads again and again"),
        }
    };
    assert!(answer.unwrap() >= 1);
}
