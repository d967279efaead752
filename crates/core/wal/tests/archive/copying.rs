//! Goal: a second archive gets every segment that is needed there and that it lacks, and none of another branch.
//! Method: two archives on two simulated disks, with segments written here; branches have the same names and other bytes.
//! Not covered: which segments are needed (`copying.rs` of the repository), and real servers (`wal/copies.rs` of the program).

use longshore_codec::Algorithm;
use longshore_io::SimDisk;
use longshore_pg::Lsn;
use longshore_wal::{Error, WalCopied, copy_wal};

use crate::support::*;

/// An archive with these segments of timelines; a history comes before its timeline's first segment.
fn archived(segments: &[(u32, u64, u64)], histories: &[(u32, &str)]) -> SimDisk {
    let disk = disk(1);
    for (timeline, number, seed) in segments {
        if let Some((_, text)) = histories.iter().find(|(t, _)| t == timeline) {
            let name = format!("{timeline:08X}.history").parse().unwrap();
            push(&disk, name, text.as_bytes()).unwrap();
        }
        let bytes = segment(*timeline, *number, *seed);
        push(&disk, name(*timeline, *number), &bytes).unwrap();
    }
    disk
}

fn of_one_timeline(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u32, u64, u64)> {
    numbers.map(|n| (1, n, n)).collect()
}

/// The segments that an archive has.
fn held(disk: &SimDisk) -> Vec<(u32, u64)> {
    let mut held = Vec::new();
    for timeline in 1..5 {
        held.extend(
            (1..20)
                .filter(|n| fetch(disk, name(timeline, *n)).is_ok())
                .map(|n| (timeline, n)),
        );
    }
    held
}

fn copied(from: &SimDisk, to: &SimDisk, since: u64) -> Result<WalCopied, Error> {
    let (from, to) = (archive(from)?, archive(to)?);
    let since = Lsn(since * SEGMENT as u64);
    let todo = from.lacking(Some(&to), &|_, start, _| start >= since)?;
    copy_wal(&from, &to, &todo, &form(Algorithm::Lz4), &*clock(), &|| {
        true
    })
}

fn numbers(numbers: &[u64]) -> Vec<(u32, u64)> {
    numbers.iter().map(|n| (1, *n)).collect()
}

#[test]
fn what_is_needed_and_lacking_is_copied_wherever_it_is() {
    let from = archived(&of_one_timeline(1..=6), &[]);
    for (there, since, expected) in [
        (vec![], 0, vec![1, 2, 3, 4, 5, 6]),
        (vec![], 4, vec![4, 5, 6]),
        (vec![2, 3], 1, vec![1, 2, 3, 4, 5, 6]),
        (vec![1, 2, 5], 2, vec![1, 2, 3, 4, 5, 6]),
        (vec![1, 5], 4, vec![1, 4, 5, 6]),
    ] {
        let there: Vec<_> = there.into_iter().map(|n| (1, n, n)).collect();
        let to = archived(&there, &[]);
        let done = copied(&from, &to, since).unwrap();
        assert_eq!(held(&to), numbers(&expected));
        assert_eq!(done.files as usize, expected.len() - there.len());
        for n in expected {
            assert_eq!(fetch(&to, name(1, n)).unwrap(), segment(1, n, n));
        }
    }
}

#[test]
fn another_branch_is_refused_wherever_it_parted() {
    // Segment 4 is another server's; all borders agree.
    let of_other = [(1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 99)];
    let fork = format!("1\t{}\tleft\n", Lsn(5 * SEGMENT as u64));
    let history = [(2, fork.as_str())];
    let mut promoted = of_one_timeline(1..=4);
    promoted.push((2, 5, 5));
    for from in [
        archived(&of_one_timeline(1..=6), &[]),
        // The branch shows on an earlier timeline than the one that is copied.
        archived(&promoted, &history),
        archived(&of_one_timeline(4..=6), &[]),
    ] {
        let to = archived(&of_other, &[]);
        let before = held(&to);
        let error = copied(&from, &to, 0).unwrap_err();
        assert!(matches!(error, Error::OtherContent { .. }), "{error}");
        assert_eq!(held(&to), before);
    }
}

#[test]
fn where_nothing_can_be_compared_nothing_is_copied() {
    let unknown = |from: &SimDisk, to: &SimDisk| {
        let before = held(to);
        let error = copied(from, to, 0).unwrap_err();
        assert!(matches!(error, Error::CopyUnknown { .. }), "{error}");
        assert_eq!(held(to), before);
    };
    // The first archive has lost what the second ends with.
    unknown(
        &archived(&of_one_timeline(5..=6), &[]),
        &archived(&of_one_timeline(1..=3), &[]),
    );
    // The number of a timeline names no ancestor: its history does, and of the nearest one there nothing is here.
    let at = |n: u64| Lsn(n * SEGMENT as u64);
    let second = format!("1\t{}\tleft\n", at(2));
    let third = format!("1\t{}\tleft\n2\t{}\tleft\n", at(2), at(4));
    let to = archived(&[(1, 1, 1), (2, 2, 2), (2, 3, 3)], &[(2, &second)]);
    let from = archived(&[(1, 1, 1), (3, 4, 4)], &[(3, &third)]);
    unknown(&from, &to);
    let from = archived(
        &[(1, 1, 1), (2, 3, 3), (3, 4, 4)],
        &[(2, &second), (3, &third)],
    );
    copied(&from, &to, 0).unwrap();
    assert_eq!(held(&to), [(1, 1), (2, 2), (2, 3), (3, 4)]);
}

#[test]
fn a_damaged_file_is_told_and_left_out_unless_it_is_what_is_compared() {
    let from = archived(&of_one_timeline(1..=5), &[]);
    let path = stored(&from, name(1, 3));
    let mut bytes = from.read_file(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    from.write_file(&path, &bytes).unwrap();
    let to = archived(&of_one_timeline(1..=1), &[]);
    let done = copied(&from, &to, 0).unwrap();
    assert!(matches!(done.unreadable[..], [Error::Damaged { .. }]));
    assert_eq!(held(&to), numbers(&[1, 2, 4, 5]));
    let to = archived(&of_one_timeline(1..=3), &[]);
    let error = copied(&from, &to, 0).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(held(&to), numbers(&[1, 2, 3]));
}

#[test]
fn a_copy_that_is_ended_leaves_no_gap() {
    let from = archived(&of_one_timeline(1..=5), &[]);
    for count in 0..=5u64 {
        let to = archived(&[], &[]);
        let left = std::cell::Cell::new(count);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        let (source, there) = (archive(&from).unwrap(), archive(&to).unwrap());
        let todo = source.lacking(Some(&there), &|_, _, _| true).unwrap();
        copy_wal(
            &source,
            &there,
            &todo,
            &form(Algorithm::Lz4),
            &*clock(),
            &goes_on,
        )
        .unwrap();
        assert_eq!(held(&to).len(), count as usize);
        assert_eq!(held(&to), numbers(&(1..=count).collect::<Vec<u64>>()));
    }
}
