//! Goal: with parity stripes, a set is read and repaired byte for byte as long as no row has more lost or damaged members
//! than there are parity stripes; otherwise it is refused, and nothing wrong is ever read.
//! Method: sets in memory with rows of 4 KiB, whose stripes are removed, cut, exchanged and damaged.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_io::Via;
use longshore_kit::Random;
use longshore_kit::random::from_env;
use longshore_media::device::DeviceClass;
use longshore_media::record::Container;
use longshore_media::{
    BackupDevice, Disposition, Error, Examined, FamilyRead, FamilyWrite, MediaSet, ParityPlan,
    PendingStripe, Surroundings, copy_set,
};
use support::forge::with_media;
use support::rows::{ROW, Spot, damage, devices_of, moved, repaired, rows, slots, spots, tree};
use support::*;

fn shape(algorithm: Algorithm, parity: u16) -> Shape {
    Shape {
        parity: ParityPlan {
            count: parity,
            row_bytes: ROW,
            ..ParityPlan::default()
        },
        ..Shape::new(Disposition::New, algorithm, 3000)
    }
}

/// `data` data stripes and then `parity` parity stripes.
fn stripes(algorithm: Algorithm, data: usize, parity: u16, inputs: &[Input]) -> Vec<Vec<u8>> {
    let all = data + usize::from(parity);
    media(all, &[(shape(algorithm, parity), inputs.to_vec())])
}

#[test]
fn without_damage_the_set_is_whole_and_the_data_stripes_are_those_without_parity() {
    for algorithm in [Algorithm::QatDeflate, Algorithm::Zstd, Algorithm::None] {
        let inputs = tree(100_000);
        let all = stripes(algorithm, 3, 2, &inputs);
        let opened = devices(&all);
        assert_eq!(read_all(&opened).unwrap(), [expected(&inputs)]);
        let media = MediaSet::open(&opened).unwrap();
        assert_eq!((media.family_count(), media.parity_count()), (3, 2));
        assert_eq!(media.faults(), []);
        let rows = rows(&all[3]);
        assert!(rows.len() > 4, "{}", rows.len());
        let ends: Vec<u64> = (0..3)
            .map(|i| rows.iter().map(|row| u64::from(row.spans[i].len)).sum())
            .collect();
        let lens: Vec<u64> = all[..3].iter().map(|s| s.len() as u64).collect();
        assert_eq!(ends, lens, "the rows cover the stripes");
        assert_eq!(Examined::of(&opened, &moved).unwrap().faults(), []);
    }
}

#[test]
fn any_lost_stripes_are_read_and_repaired_byte_for_byte() {
    for (algorithm, data, parity) in [
        (Algorithm::Zstd, 1, 1),
        (Algorithm::QatDeflate, 2, 1),
        (Algorithm::None, 3, 2),
        (Algorithm::MsXpress, 2, 3),
        (Algorithm::Lz4, 5, 1),
    ] {
        let inputs = tree(60_000);
        let all = stripes(algorithm, data, parity, &inputs);
        for lost in 0u32..1 << all.len() {
            let here = |i: usize| lost >> i & 1 == 0;
            let left: Vec<Option<Vec<u8>>> = (0..all.len())
                .map(|i| here(i).then(|| all[i].clone()))
                .collect();
            let devices = devices_of(&slots(&left));
            let what = format!("{algorithm} {data}+{parity}, lost {lost:b}");
            if lost.count_ones() > u32::from(parity) {
                let error = read_all(&devices).unwrap_err();
                let none = lost.count_ones() as usize == all.len();
                assert!(none || error.contains("media families"), "{what}: {error}");
                assert!(repaired(&left).is_err(), "{what}");
                continue;
            }
            assert_eq!(read_all(&devices).unwrap(), [expected(&inputs)], "{what}");
            let media = MediaSet::open(&devices).unwrap();
            let faults: BTreeSet<u16> = media.faults().iter().map(|f| f.family - 1).collect();
            let gone: BTreeSet<u16> = (0..all.len() as u16)
                .filter(|i| !here((*i).into()))
                .collect();
            assert_eq!(faults, gone, "{what}");
            let again = repaired(&left).unwrap();
            for (i, stripe) in again.iter().enumerate() {
                // Where all parity stripes are lost, new ones have other rows.
                let is_new = i >= data && (data..all.len()).all(|j| !here(j));
                assert!(is_new || *stripe == all[i], "{what}: stripe {i}");
            }
        }
    }
}

/// Whether the beginning of some stripe and all its rows are bad.
fn is_unknown(
    spots: &[Spot],
    bad: &BTreeSet<(usize, usize)>,
    hit: &BTreeSet<(usize, usize)>,
) -> bool {
    let has_good = |stripe: usize| {
        let of_it = spots.iter().filter(|spot| spot.stripe == stripe);
        let mut rows = of_it.filter_map(|spot| spot.row);
        rows.any(|row| !bad.contains(&(row, stripe)))
    };
    let mut begun = hit.iter().filter(|(_, start)| *start == 0);
    begun.any(|(stripe, _)| !has_good(*stripe))
}

/// Goal: whatever is damaged in many places, a set is read and repaired if no row has more bad members than there are
/// parity stripes.
#[test]
fn damage_in_many_places_is_read_around_and_repaired() {
    let seed = from_env("LONGSHORE_SEED", 0);
    let rounds = from_env("LONGSHORE_PARITY_ROUNDS", 1500);
    for (algorithm, data, parity) in [
        (Algorithm::Zstd, 3, 1),
        (Algorithm::QatDeflate, 4, 2),
        (Algorithm::None, 2, 3),
    ] {
        let inputs = tree(40_000);
        let all = stripes(algorithm, data, parity, &inputs);
        let spots = spots(&all, data);
        let expected = [expected(&inputs)];
        for round in 0..rounds {
            let mut random = Random(seed + round * 7 + data as u64);
            let mut damaged = all.clone();
            let mut bad: BTreeSet<(usize, usize)> = BTreeSet::new();
            let mut hit = BTreeSet::new();
            for _ in 0..1 + random.below(8) {
                let n = random.below(spots.len());
                let spot = &spots[n];
                if let Some(row) = spot.row {
                    let others = bad.iter().filter(|(r, s)| *r == row && *s != spot.stripe);
                    if others.count() >= usize::from(parity) {
                        continue;
                    }
                    bad.insert((row, spot.stripe));
                }
                hit.insert((spot.stripe, spot.range.start));
                damage(&mut random, &mut damaged[spot.stripe][spot.range.clone()]);
            }
            // One stripe must say what the media set is.
            let heads = (0..all.len()).filter(|i| damaged[*i][..200] == all[*i][..200]);
            if heads.count() == 0 {
                continue;
            }
            let what = format!("{algorithm} {data}+{parity} round {round}: {hit:?}");
            let found = read_all(&devices(&damaged));
            assert!(
                found.as_deref() == Ok(&expected),
                "{what}: {:?}",
                found.err()
            );
            let damaged: Vec<_> = damaged.into_iter().map(Some).collect();
            match repaired(&damaged) {
                Ok(again) => {
                    let data_is = again[..data] == all[..data];
                    assert!(data_is, "{what}: the data stripes differ after the repair");
                }
                // Nothing in such a stripe says that it is one of the set's.
                Err(Error::Occupied { .. }) if is_unknown(&spots, &bad, &hit) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

/// Goal: if more members of one row are bad than there are parity stripes, and data is among them, nothing is read.
#[test]
fn more_damage_in_a_row_than_parity_can_stand_for_is_refused() {
    let seed = from_env("LONGSHORE_SEED", 0);
    let rounds = from_env("LONGSHORE_PARITY_ROUNDS", 600);
    for (data, parity) in [(3, 1), (4, 2)] {
        let inputs = tree(40_000);
        let all = stripes(Algorithm::Zstd, data, parity, &inputs);
        let spots = spots(&all, data);
        let count = rows(&all[data]).len();
        for round in 0..rounds {
            let mut random = Random(seed + round * 11 + 3);
            let row = random.below(count);
            let mut members: Vec<&Spot> = spots.iter().filter(|s| s.row == Some(row)).collect();
            random.shuffle(&mut members);
            // At least one of them is data.
            members.sort_by_key(|spot| spot.stripe >= data && random.below(2_u8) == 0);
            members.truncate(usize::from(parity) + 1);
            if members.len() <= usize::from(parity) || members.iter().all(|s| s.stripe >= data) {
                continue;
            }
            let mut damaged = all.clone();
            for spot in &members {
                let bytes = &mut damaged[spot.stripe][spot.range.clone()];
                // A record and its chunk are one member: the chunk is hit.
                let at = match spot.stripe < data {
                    true => random.below(bytes.len()),
                    false => bytes.len() - 1,
                };
                bytes[at] ^= 1 << random.below(8);
            }
            let found = read_all(&devices(&damaged));
            let hit: Vec<usize> = members.iter().map(|s| s.stripe).collect();
            assert!(
                found.is_err(),
                "{data}+{parity} round {round}, row {row}: {hit:?}"
            );
            let damaged: Vec<_> = damaged.into_iter().map(Some).collect();
            assert!(repaired(&damaged).is_err(), "{data}+{parity} round {round}");
        }
    }
}

#[test]
fn a_stale_stripe_is_rebuilt_and_replaced_and_one_of_another_media_set_is_kept() {
    let inputs = tree(30_000);
    let place: Vec<Slot> = (0..4).map(|_| Slot::default()).collect();
    let devices = devices_of(&place);
    let old = Shape {
        media_name: "m".into(),
        ..shape(Algorithm::Zstd, 1)
    };
    write_set(&devices, &old, &tree(5_000)).unwrap();
    let stale: Vec<Vec<u8>> = place.iter().map(Slot::bytes).collect();
    let new = Shape {
        disposition: Disposition::Init { skip: true },
        ..shape(Algorithm::Zstd, 1)
    };
    write_set(&devices, &new, &inputs).unwrap();
    let all: Vec<Vec<u8>> = place.iter().map(Slot::bytes).collect();
    let other = stripes(Algorithm::Zstd, 3, 1, &inputs);
    for stripe in 0..4 {
        let mut left: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        left[stripe] = Some(stale[stripe].clone());
        let found = read_all(&devices_of(&slots(&left)));
        assert_eq!(found.unwrap(), [expected(&inputs)], "stale stripe {stripe}");
        let again = repaired(&left).unwrap();
        // The only parity stripe gets other rows.
        let compared = if stripe == 3 { 3 } else { 4 };
        assert!(
            again[..compared] == all[..compared],
            "stale stripe {stripe}"
        );
        // A newer stripe may be all that is left of a newer backup.
        let mut older: Vec<Option<Vec<u8>>> = stale.iter().cloned().map(Some).collect();
        older[stripe] = Some(all[stripe].clone());
        let refused = repaired(&older);
        let is_kept = matches!(refused, Err(Error::Occupied { .. }));
        assert!(is_kept, "newer stripe {stripe}: {refused:?}");
        // A stripe of another media set may be somebody's only copy.
        left[stripe] = Some(other[stripe].clone());
        let found = read_all(&devices_of(&slots(&left)));
        assert_eq!(
            found.unwrap(),
            [expected(&inputs)],
            "foreign stripe {stripe}"
        );
        let refused = repaired(&left);
        assert!(
            matches!(refused, Err(Error::Occupied { .. })),
            "{refused:?}"
        );
    }
    // One device more than stripes is something that was named by mistake.
    let mut more = all.clone();
    more.push(other[0].clone());
    for lost in [None, Some(1)] {
        let mut more = more.clone();
        if let Some(lost) = lost {
            more[lost] = other[1].clone();
        }
        let refused = MediaSet::open(&support::devices(&more)).unwrap_err();
        let is_counted = matches!(refused, Error::FamilyCount { expected: 5, .. });
        assert!(is_counted, "{refused}");
    }
    // Which of two halves is the right one, nobody can say.
    let mirror = stripes(Algorithm::Zstd, 1, 1, &inputs);
    let newer = stripes(Algorithm::Zstd, 1, 1, &inputs);
    let halves = support::devices(&[mirror[0].clone(), newer[1].clone()]);
    let refused = MediaSet::open(&halves).unwrap_err();
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    let twice = support::devices(&[
        all[0].clone(),
        all[0].clone(),
        all[1].clone(),
        all[2].clone(),
    ]);
    let refused = MediaSet::open(&twice).unwrap_err();
    assert!(matches!(refused, Error::FamilyTwice { .. }), "{refused}");
}

/// Goal: one device, whoever can write to it, does not outvote the others by a newer generation of other numbers of stripes.
#[test]
fn a_newer_generation_of_another_shape_is_not_taken_for_the_set() {
    let inputs = tree(30_000);
    let all = stripes(Algorithm::Zstd, 2, 1, &inputs);
    let honest = MediaSet::open(&support::devices(&all)).unwrap();
    let header = honest.header(0).clone();
    let other = media(
        1,
        &[(
            Shape::new(Disposition::New, Algorithm::Zstd, 3000),
            tree(9000),
        )],
    );
    let forged = with_media(Container::Zstd, &other[0], |media| {
        media.media_set = header.media_set;
        media.generation = header.generation + 1;
        (media.family, media.family_count, media.parity_count) = (1, 1, 2);
    });
    for stripe in 0..3 {
        let mut left: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        left[stripe] = Some(forged.clone());
        let refused = MediaSet::open(&devices_of(&slots(&left))).map(drop);
        let is_foreign = matches!(refused, Err(Error::Foreign { .. }));
        assert!(is_foreign, "{stripe}: {refused:?}");
        assert!(repaired(&left).is_err(), "{stripe}");
        // Without it the set is read as any that lacks a stripe.
        left[stripe] = None;
        let found = read_all(&devices_of(&slots(&left)));
        assert_eq!(found.unwrap(), [expected(&inputs)], "{stripe}");
    }
}

/// Goal: media that were copied and then written at both places agree in media set and generation, and are never mixed, read
/// or repaired.
#[test]
fn stripes_of_copies_that_were_written_apart_are_not_mixed() {
    for parity in [1, 2] {
        copies_written_apart(parity);
    }
}

fn copies_written_apart(parity: u16) {
    let first: Vec<Slot> = (0..4).map(|_| Slot::default()).collect();
    write_set(
        &devices_of(&first),
        &shape(Algorithm::Zstd, parity),
        &tree(5_000),
    )
    .unwrap();
    let copied: Vec<Option<Vec<u8>>> = first.iter().map(|slot| Some(slot.bytes())).collect();
    let second = slots(&copied);
    let written = |place: &[Slot], inputs: &[Input]| -> Vec<Vec<u8>> {
        let init = Shape {
            disposition: Disposition::Init { skip: true },
            ..shape(Algorithm::Zstd, parity)
        };
        write_set(&devices_of(place), &init, inputs).unwrap();
        place.iter().map(Slot::bytes).collect()
    };
    let (here, there) = (tree(30_000), tree(31_000));
    let own = written(&first, &here);
    let strange = written(&second, &there);
    for stripe in 0..4 {
        let mut left: Vec<Option<Vec<u8>>> = own.iter().cloned().map(Some).collect();
        left[stripe] = Some(strange[stripe].clone());
        let found = read_all(&devices_of(&slots(&left)));
        assert_eq!(found.unwrap(), [expected(&here)], "{stripe}");
        let refused = repaired(&left);
        let is_kept = matches!(refused, Err(Error::Occupied { .. }));
        assert!(is_kept, "{stripe}: {refused:?}");
        // Half of each is neither, also where either half would be enough.
        left[(stripe + 1) % 4] = Some(strange[(stripe + 1) % 4].clone());
        let refused = MediaSet::open(&devices_of(&slots(&left))).map(drop);
        let is_apart = matches!(refused, Err(Error::WrittenApart { .. }));
        assert!(is_apart, "{stripe}: {refused:?}");
    }
}

#[test]
fn a_cut_stripe_is_read_to_its_end_and_a_longer_one_without_what_follows() {
    let inputs = tree(50_000);
    let all = stripes(Algorithm::QatDeflate, 3, 1, &inputs);
    let mut random = Random(4);
    for stripe in 0..4 {
        for len in (0..all[stripe].len()).step_by(all[stripe].len() / 40) {
            let mut cut = all.clone();
            cut[stripe].truncate(len);
            let found = read_all(&devices(&cut));
            assert!(
                found.as_deref() == Ok(&[expected(&inputs)]),
                "{stripe} cut at {len}: {:?}",
                found.err()
            );
            let media = MediaSet::open(&devices(&cut)).unwrap();
            assert_eq!(media.faults().len(), 1, "{stripe} cut at {len}");
        }
        let mut longer = all.clone();
        let more = random.bytes(3000);
        longer[stripe].extend_from_slice(&more);
        let found = read_all(&devices(&longer));
        assert!(
            found.as_deref() == Ok(&[expected(&inputs)]),
            "{stripe} longer"
        );
        let left: Vec<_> = longer.into_iter().map(Some).collect();
        assert!(repaired(&left).unwrap() == all, "{stripe} longer");
    }
}

#[test]
fn a_copy_of_a_degraded_set_is_whole() {
    let inputs = tree(50_000);
    for algorithm in [Algorithm::QatDeflate, Algorithm::None] {
        let all = stripes(algorithm, 3, 2, &inputs);
        for lost in [None, Some(0), Some(3)] {
            let mut left: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
            if let Some(lost) = lost {
                left[lost] = None;
                let bytes = left[1].as_mut().unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            let from = devices_of(&slots(&left));
            let to: Vec<Slot> = (0..5).map(|_| Slot::default()).collect();
            let copied = copy_set(&from, &devices_of(&to), &moved).unwrap();
            let copied = copied.complete().unwrap();
            assert_eq!(
                copied.faults.is_empty(),
                lost.is_none(),
                "{:?}",
                copied.faults
            );
            let copy: Vec<Vec<u8>> = to.iter().map(Slot::bytes).collect();
            assert!(copy == all, "{algorithm} {lost:?}");
        }
        let few: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
        let refused = copy_set(&devices(&all), &devices_of(&few), &moved);
        assert!(matches!(
            refused.err(),
            Some(Error::DeviceCount { given: 3 })
        ));
    }
}

#[test]
fn media_with_parity_are_not_appended_to_and_keep_their_number_of_parity_stripes() {
    let inputs = tree(5_000);
    let place: Vec<Slot> = (0..4).map(|_| Slot::default()).collect();
    let devices = devices_of(&place);
    write_set(&devices, &shape(Algorithm::Zstd, 1), &inputs).unwrap();
    let before: Vec<Vec<u8>> = place.iter().map(Slot::bytes).collect();
    let with = |disposition, parity| {
        let shape = Shape {
            disposition,
            ..shape(Algorithm::Zstd, parity)
        };
        write_set(&devices, &shape, &inputs).unwrap_err()
    };
    let append = with(Disposition::Append, 1);
    assert!(matches!(append, Error::OneSet { .. }), "{append}");
    let init = Disposition::Init { skip: true };
    for parity in [0, 2] {
        let refused = with(init, parity);
        assert!(
            matches!(refused, Error::ParityCount { found: 1, .. }),
            "{refused}"
        );
    }
    for parity in [4, 5, 9] {
        let refused = with(Disposition::Format, parity);
        assert!(matches!(refused, Error::TooMuchParity { .. }), "{refused}");
    }
    // Nothing is replaced while a stripe is missing: it may be another's.
    place[2].set(stripes(Algorithm::Zstd, 3, 1, &inputs)[2].clone());
    let refused = with(init, 1);
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    place[2].set(before[2].clone());
    assert!(place.iter().map(Slot::bytes).eq(before));
    let init = Shape {
        disposition: init,
        ..shape(Algorithm::Zstd, 1)
    };
    write_set(&devices, &init, &inputs).unwrap();
    assert_eq!(read_all(&devices).unwrap(), [expected(&inputs)]);
}

/// Goal: stock tools accept parity stripes, too.
#[test]
fn zstd_accepts_parity_stripes() {
    if !support::tools::has("zstd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let all = stripes(Algorithm::QatDeflate, 2, 2, &tree(30_000));
    for stripe in &all[2..] {
        let path = dir.path().join("stripe.zst");
        std::fs::write(&path, stripe).unwrap();
        for option in ["-t", "-dc"] {
            let run =
                support::tools::run(std::process::Command::new("zstd").arg(option).arg(&path));
            assert!(run.status.success(), "{option}: {run:?}");
            assert!(run.stdout.is_empty());
        }
    }
}

/// Goal: a reader that knows only the format's page rebuilds lost and damaged stripes, too.
#[test]
fn the_independent_reader_rebuilds_stripes_from_the_page_alone() {
    use support::tools::{has, python, reader, run};
    if !has("python3") {
        return;
    }
    let inputs = tree(30_000);
    let all = stripes(Algorithm::QatDeflate, 3, 2, &inputs);
    let dir = tempfile::tempdir().unwrap();
    let middle = all[1].len() / 2;
    for (n, lost) in [vec![0], vec![0, 3], vec![2], vec![3, 4], vec![0, 1, 4]]
        .iter()
        .enumerate()
    {
        let mut paths = Vec::new();
        for (i, stripe) in all.iter().enumerate().filter(|(i, _)| !lost.contains(i)) {
            let mut bytes = stripe.clone();
            // With one parity stripe left over, a header and a row may be damaged, too.
            if lost.len() == 1 && i == 1 {
                bytes[20] ^= 1;
                bytes[middle] ^= 1;
            }
            let path = dir.path().join(format!("{n}-{i}"));
            std::fs::write(&path, bytes).unwrap();
            paths.push(path);
        }
        let to = dir.path().join(format!("out{n}"));
        let output = run(python(&reader("longshore_reader.py"))
            .args(["restore", "--to"])
            .arg(&to)
            .args(&paths));
        assert_eq!(
            output.status.success(),
            lost.len() < 3,
            "{lost:?}: {output:?}"
        );
        if lost.len() < 3 {
            for input in inputs.iter().filter(|i| i.entry.path.starts_with("file0")) {
                let found = std::fs::read(to.join(&input.entry.path)).unwrap();
                assert!(found == input.runs[0].1, "{lost:?}");
            }
            let files = std::fs::read_dir(&to).unwrap().count();
            assert!(files > 5, "{lost:?}: {files} names");
        }
    }
}

/// A device of which bytes from one to another cannot be read, with this error.
#[derive(Debug)]
struct Unwell {
    device: Arc<dyn BackupDevice>,
    bad: Range<u64>,
    errno: i32,
}

#[derive(Debug)]
struct UnwellRead {
    read: Arc<dyn FamilyRead>,
    bad: Range<u64>,
    errno: i32,
}

impl FamilyRead for UnwellRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        self.read.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.bad.start < offset + buf.len() as u64 && offset < self.bad.end {
            return Err(Error::Io {
                action: "read",
                device: "unwell".to_owned(),
                offset,
                source: std::io::Error::from_raw_os_error(self.errno),
            });
        }
        self.read.read_at(buf, offset)
    }
}

impl PendingStripe for Unwell {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        self.device.open_pending()
    }

    fn complete_pending(&self) -> Result<(), Error> {
        self.device.complete_pending()
    }
}

impl Surroundings for Unwell {}

impl BackupDevice for Unwell {
    fn name(&self) -> String {
        self.device.name()
    }

    fn class(&self) -> DeviceClass {
        self.device.class()
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        let unwell = |read| {
            let (bad, errno) = (self.bad.clone(), self.errno);
            Arc::new(UnwellRead { read, bad, errno }) as _
        };
        Ok(self.device.open()?.map(unwell))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.device.create(via)
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.device.append(offset, via)
    }
}

/// Goal: a bad sector in the first bytes of a stripe costs these bytes, and not the stripe: another one may be lost.
#[test]
fn a_parity_stripe_alone_describes_its_set_and_names_no_file() {
    let inputs = tree(100_000);
    let all = stripes(Algorithm::Zstd, 3, 2, &inputs);
    let whole = MediaSet::open(&devices(&all)).unwrap();
    for only in [0, 4] {
        let given = devices(&all[only..=only]);
        let part = MediaSet::open_any(&given).unwrap();
        assert_eq!(part.absent().len(), 4);
        let (found, meant) = (part.set(1).unwrap(), whole.set(1).unwrap());
        assert_eq!(found.header, meant.header);
        let trailer = found.trailer.unwrap();
        assert!(trailer.agrees_with(&meant.trailer.unwrap()));
        let mut items = 0;
        part.items(1, |_| items += 1).unwrap();
        assert_eq!(items > 0, only == 0, "{only}");
        assert_eq!(part.stripes()[0].is_parity, only == 4);
    }
    // Data stripes go before parity stripes, and what parity can stand for is whole.
    let given = devices(&[all[4].clone(), all[1].clone()]);
    assert_eq!(MediaSet::open_any(&given).unwrap().header(0).family, 2);
    let enough = MediaSet::open_any(&devices(&all[2..])).unwrap();
    assert!(enough.absent().is_empty());
}

#[test]
fn a_bad_sector_below_the_header_costs_no_stripe() {
    const EIO: i32 = 5;
    let inputs = tree(400_000);
    let all = stripes(Algorithm::None, 3, 1, &inputs);
    for member in 0..4 {
        // Of another stripe, a place in another row is damaged, too.
        let other = (member + 1) % 4;
        let mut given = all.clone();
        let middle = given[other].len() / 2;
        given[other][middle..middle + 100].fill(0x5a);
        let slots = slots(&given.into_iter().map(Some).collect::<Vec<_>>());
        let mut devices = devices_of(&slots);
        let device = devices[member].clone();
        let bad = 0..15_000;
        let errno = EIO;
        devices[member] = Arc::new(Unwell { device, bad, errno });
        let read = read_all(&devices).unwrap_or_else(|e| panic!("stripe {member}: {e}"));
        assert_eq!(read, [expected(&inputs)], "stripe {member}");
        let faults = Examined::of(&devices, &moved).unwrap().faults().to_vec();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults.iter().all(|fault| !fault.is_lost), "{faults:?}");
    }
}

/// Goal: a disk that gives nothing counts as a lost stripe, and is not read again and again.
#[test]
fn a_disk_that_gives_nothing_is_a_lost_stripe() {
    const EIO: i32 = 5;
    let inputs = tree(40_000);
    let new = stripes(Algorithm::Zstd, 2, 2, &inputs);
    let old = stripes(Algorithm::Zstd, 2, 2, &tree(20_000));
    for member in 0..4 {
        // The next stripe is of an older media set: both together are what parity can stand for.
        let mut given = new.clone();
        let next = (member + 1) % 4;
        given[next].clone_from(&old[next]);
        let slots = slots(&given.into_iter().map(Some).collect::<Vec<_>>());
        let mut devices = devices_of(&slots);
        let device = devices[member].clone();
        let (bad, errno) = (0..u64::MAX, EIO);
        devices[member] = Arc::new(Unwell { device, bad, errno });
        let media = MediaSet::open(&devices).unwrap_or_else(|e| panic!("stripe {member}: {e}"));
        let lost = media.faults().iter().filter(|fault| fault.is_lost).count();
        assert_eq!(lost, 2, "{:?}", media.faults());
        assert_eq!(read_all(&devices).unwrap(), [expected(&inputs)]);
    }
}

/// Goal: bad sectors cost the records that they hit, in a parity stripe without an index, too.
#[test]
fn rows_are_found_between_bad_sectors() {
    const EIO: i32 = 5;
    let inputs = tree(400_000);
    let all = stripes(Algorithm::None, 2, 1, &inputs);
    let rows = rows(&all[2]);
    let hit = &rows[1];
    let mut given = all.clone();
    let at = hit.spans[0].offset as usize + 100;
    given[0][at..at + 100].fill(0x5a);
    let slots = slots(&given.into_iter().map(Some).collect::<Vec<_>>());
    // The parity stripe lost its header, its end, and a place in another row.
    let len = all[2].len() as u64;
    let other = rows[6].at + 2_000;
    for bad in [0..512, len - 512..len, other..other + 512] {
        let mut devices = devices_of(&slots);
        for bad in [len - 512..len, bad] {
            let (device, errno) = (devices[2].clone(), EIO);
            devices[2] = Arc::new(Unwell { device, bad, errno });
        }
        assert_eq!(read_all(&devices).unwrap(), [expected(&inputs)]);
    }
}

/// Goal: a stripe that only did not answer is not taken for damaged by a repair; a bad sector is damage.
#[test]
fn a_stripe_that_does_not_answer_is_not_replaced() {
    const EIO: i32 = 5;
    const ETIMEDOUT: i32 = 110;
    let inputs = tree(400_000);
    let all = stripes(Algorithm::None, 3, 1, &inputs);
    for member in 0..4 {
        let judged = |errno| {
            let slots = slots(&all.iter().cloned().map(Some).collect::<Vec<_>>());
            let mut devices = devices_of(&slots);
            // Beyond the headers.
            let bad = all[member].len() as u64 / 2;
            let bad = bad..bad + 1;
            let device = devices[member].clone();
            devices[member] = Arc::new(Unwell { device, bad, errno });
            Examined::of(&devices, &moved).map(|examined| examined.faults().len())
        };
        assert_eq!(judged(EIO).unwrap(), 1, "stripe {member}");
        let refused = judged(ETIMEDOUT).expect_err(&format!("stripe {member}"));
        assert!(
            matches!(refused, Error::Io { offset: 1.., .. }),
            "{refused:?}"
        );
    }
}
