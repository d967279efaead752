//! Goal: every wrong stripe is named, with SQL Server's number and a hint.
//! Method: stripes of two media sets are mixed, left out, repeated, emptied, damaged and renumbered.

mod support;

use longshore_codec::Algorithm;
use longshore_io::Host;
use longshore_media::record::Container;
use longshore_media::{BackupDevice, DeviceSpec, Disposition, Error, MediaSet};
use std::sync::Arc;
use support::forge::{put, put_together, take_apart, with_media};
use support::*;

fn stripes() -> Vec<Vec<u8>> {
    let shape = Shape::new(Disposition::New, Algorithm::Zstd, 50);
    media(3, &[(shape, small_tree())])
}

fn refused(devices: &[Arc<dyn BackupDevice>]) -> (u32, String) {
    let error = MediaSet::open(devices).expect_err("it was not refused");
    assert!(!error.hint().is_empty());
    (error.number().unwrap(), error.to_string())
}

#[test]
fn any_order_of_the_right_stripes_is_right() {
    let stripes = stripes();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let given: Vec<_> = order.iter().map(|i| stripes[*i].clone()).collect();
        assert_eq!(
            read_all(&devices(&given)).unwrap(),
            [expected(&small_tree())]
        );
    }
}

#[test]
fn missing_stripes_are_counted_and_numbered() {
    let stripes = stripes();
    let (number, text) = refused(&devices(&stripes[1..2]));
    assert_eq!(number, 3132);
    assert!(text.contains("has 3 media families but only 1"), "{text}");
    // The stripe that was given is named.
    let (_, of) = text.split_once("the media set of ").unwrap();
    assert!(!of.starts_with(" has"), "{text}");
    assert!(text.ends_with("missing: family 1, family 3"), "{text}");
}

#[test]
fn a_stripe_given_twice_is_named_with_its_copy() {
    let stripes = stripes();
    let given = [stripes[0].clone(), stripes[1].clone(), stripes[1].clone()];
    let (number, text) = refused(&devices(&given));
    assert_eq!(number, 3227);
    assert!(
        text.contains("stripe-1 and stripe-2 both hold media family 2"),
        "{text}"
    );
}

#[test]
fn a_foreign_stripe_is_named_with_what_it_belongs_to() {
    let (mine, other) = (stripes(), stripes());
    let given = [mine[0].clone(), other[1].clone(), mine[2].clone()];
    let (number, text) = refused(&devices(&given));
    assert_eq!(number, 3258);
    let foreign = MediaSet::label(&*devices(&other)[1]).unwrap().media_set;
    assert!(text.starts_with("device stripe-1 belongs"), "{text}");
    assert!(text.contains(&foreign.to_string()), "{text}");
}

#[test]
fn a_stripe_of_an_older_generation_is_foreign() {
    let mine = stripes();
    let older = with_media(Container::Zstd, &mine[1], |h| h.generation = 7);
    let (number, text) = refused(&devices(&[mine[0].clone(), older, mine[2].clone()]));
    assert_eq!(number, 3258);
    assert!(text.contains("(generation 7)"), "{text}");
}

#[test]
fn empty_damaged_and_newer_stripes_are_distinguished() {
    let whole = stripes();
    let exchange = |bytes: Vec<u8>| {
        let given = [whole[0].clone(), bytes, whole[2].clone()];
        refused(&devices(&given))
    };
    let (number, text) = exchange(Vec::new());
    assert_eq!(
        (number, &*text),
        (3254, "the volume on device stripe-1 is empty")
    );
    let (number, text) = exchange(b"PK\x03\x04 something else entirely".to_vec());
    assert_eq!(number, 3241);
    assert!(
        text.contains("stripe-1 is incorrectly formed: at byte 0"),
        "{text}"
    );
    let mut damaged = whole[1].clone();
    damaged[50] ^= 4;
    let (number, text) = exchange(damaged);
    assert_eq!(number, 3241);
    assert!(text.contains("record checksum"), "{text}");

    let mut pieces = take_apart(Container::Zstd, &whole[1]);
    put(&mut pieces[0].body, 56, 0x12u64.to_le_bytes());
    // Other fields of a newer version are not judged.
    put(&mut pieces[0].body, 32, [0xff; 8]);
    let (number, text) = exchange(put_together(Container::Zstd, &pieces));
    assert_eq!(number, 3169);
    assert!(text.contains("feature bits 0x12"), "{text}");
}

#[test]
fn a_set_of_a_newer_version_is_named_and_the_older_sets_stay_readable() {
    let tree = small_tree();
    let shape = |disposition| Shape::new(disposition, Algorithm::Zstd, 50);
    let sets = [
        (shape(Disposition::New), tree.clone()),
        (shape(Disposition::Append), tree.clone()),
    ];
    let newer: Vec<_> = media(2, &sets)
        .iter()
        .map(|stripe| {
            let mut pieces = take_apart(Container::Zstd, stripe);
            let sets = pieces
                .iter_mut()
                .filter(|p| p.kind == longshore_media::record::RecordKind::Set);
            put(
                &mut sets.last().unwrap().body,
                56,
                (1u64 << 63).to_le_bytes(),
            );
            put_together(Container::Zstd, &pieces)
        })
        .collect();
    let media = MediaSet::open(&devices(&newer)).unwrap();
    assert_eq!(read_set(&media, 1).unwrap(), expected(&tree));
    for error in [media.set(2).unwrap_err(), media.set(0).unwrap_err()] {
        assert_eq!(error.number(), Some(3169), "{error}");
    }
    assert_eq!(media.unreadable().unwrap().len(), 1);
}

#[test]
fn positions_that_are_not_there_are_refused() {
    let media = MediaSet::open(&devices(&stripes())).unwrap();
    for position in [2, 65_536, 65_537, u32::MAX] {
        let error = media.set(position).unwrap_err();
        assert_eq!(error.number(), Some(3287));
        assert!(error.to_string().contains("it holds 1"), "{error}");
        assert!(media.stream(0, position).is_err());
        assert!(media.items(position, |_| {}).is_err());
    }
    assert!(media.stream(0, 0).is_err());
}

#[test]
fn a_backup_is_refused_the_wrong_number_or_class_of_devices() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(Host::new()) as _;
    let spec = |name: &str| DeviceSpec::parse(dir.path().join(name).to_str().unwrap());
    let files = |n: usize| -> Vec<_> {
        (0..n)
            .map(|i| spec(&i.to_string()).open(&storage))
            .collect()
    };
    let begin = |devices: &[Arc<dyn BackupDevice>], disposition| {
        let shape = Shape::new(disposition, Algorithm::Lz4, 50);
        let refused = write_set(devices, &shape, &small_tree());
        refused
            .map(|_| ())
            .expect_err("it was not refused")
            .number()
    };
    assert_eq!(begin(&[], Disposition::New), Some(3205));
    assert_eq!(begin(&files(65), Disposition::New), Some(3205));
    let nul = DeviceSpec::parse("nul:").open(&storage);
    let pipe = DeviceSpec::parse("-").open(&storage);
    assert_eq!(
        begin(&[files(1), vec![nul]].concat(), Disposition::New),
        Some(3011)
    );
    assert_eq!(begin(&[pipe.clone(), pipe], Disposition::New), Some(3011));

    let shape = Shape::new(Disposition::New, Algorithm::Lz4, 50);
    write_set(&files(3), &shape, &small_tree()).unwrap();
    for n in [1, 2, 4, 5] {
        for disposition in [Disposition::Append, Disposition::Init { skip: false }] {
            assert_eq!(
                begin(&files(n), disposition),
                Some(3231),
                "{n} {disposition:?}"
            );
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    // A directory that does not exist.
    let lost = vec![spec("gone/stripe").open(&storage)];
    assert_eq!(begin(&lost, Disposition::New), Some(3201));
    assert!(matches!(MediaSet::open(&lost), Err(Error::Missing { .. })));
}

#[test]
fn the_nul_device_takes_everything_and_gives_nothing_back() {
    let storage = Arc::new(Host::new()) as _;
    let devices = [
        DeviceSpec::parse("NUL").open(&storage),
        DeviceSpec::parse("nul:").open(&storage),
    ];
    let shape = Shape::new(Disposition::Append, Algorithm::QatDeflate, 50);
    write_set(&devices, &shape, &small_tree()).unwrap();
    assert_eq!(refused(&devices).0, 3201);
}

#[test]
fn headers_of_one_set_that_contradict_each_other_make_no_set() {
    let whole = stripes();
    let mut pieces = take_apart(Container::Zstd, &whole[1]);
    // Other buffer sizes on one family would be decoded into buffers of the wrong size.
    put(&mut pieces[1].body, 36, (1u32 << 20).to_le_bytes());
    let changed = put_together(Container::Zstd, &pieces);
    let given = [whole[0].clone(), changed, whole[2].clone()];
    let error = MediaSet::open(&devices(&given))
        .unwrap()
        .set(1)
        .unwrap_err();
    assert_eq!(error.number(), Some(3256));
    assert!(error.to_string().contains("device stripe-1 "), "{error}");
}

#[test]
fn one_stripe_of_several_describes_all_sets_and_is_no_backup() {
    let shape = |disposition| Shape::new(disposition, Algorithm::Zstd, 50);
    let stripes = media(
        3,
        &[
            (shape(Disposition::New), small_tree()),
            (shape(Disposition::Append), small_tree()),
        ],
    );
    let whole = MediaSet::open(&devices(&stripes)).unwrap();
    assert!(whole.absent().is_empty());
    let facts = |media: &MediaSet| -> Vec<_> {
        let sets = media.sets().unwrap().into_iter();
        let fact = |s: longshore_media::SetSummary| {
            let trailer = s.trailer.unwrap();
            (s.header, trailer.plain_bytes_total, trailer.files_total)
        };
        sets.map(fact).collect()
    };
    for only in 0..3 {
        let given = devices(&stripes[only..=only]);
        let part = MediaSet::open_any(&given).unwrap();
        let others: Vec<u16> = (1..=3).filter(|f| usize::from(*f) != only + 1).collect();
        assert_eq!(part.absent(), others);
        assert_eq!(facts(&part), facts(&whole));
        let mut items = 0;
        part.items(1, |_| items += 1).unwrap();
        assert!(items > 0);
        // A part is no backup: it is neither read nor added to.
        let error = part.stream(0, 1).err().unwrap();
        assert_eq!(error.number(), Some(3132), "{error}");
        assert_eq!(refused(&given).0, 3132);
    }
    let two = MediaSet::open_any(&devices(&stripes[1..])).unwrap();
    assert_eq!(two.absent(), [1]);
}

#[test]
fn stripes_that_do_not_fit_together_describe_nothing() {
    let (stripes, others) = (stripes(), stripes());
    let refused = |given: &[&Vec<u8>]| {
        let given: Vec<_> = given.iter().map(|s| (*s).clone()).collect();
        MediaSet::open_any(&devices(&given)).err().unwrap().number()
    };
    assert_eq!(refused(&[&stripes[0], &others[1]]), Some(3258));
    assert_eq!(refused(&[&stripes[0], &stripes[0]]), Some(3227));
    assert_eq!(refused(&[&stripes[0], &Vec::new()]), Some(3254));
    assert_eq!(refused(&[&stripes[0], &vec![7; 400]]), Some(3241));
    let mut cut = stripes[1].clone();
    cut.truncate(cut.len() - 10);
    let media = MediaSet::open_any(&devices(&[cut])).unwrap();
    assert!(media.sets().unwrap()[0].trailer.is_none());
    assert_eq!(media.set(1).unwrap_err().number(), Some(3256));
}
