//! Goal: listings of existing, missing and removable segments agree with a list in memory.
//! Method: archives of made-up names on a simulated disk, in cases chosen by hand and in random ones.

use std::collections::BTreeSet;
use std::path::Path;

use longshore_io::{Attributes, SimDisk, Storage};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use longshore_wal::{LogRange, Lost, Span};
use proptest::prelude::*;

use super::support::*;

fn timeline(n: u32) -> Timeline {
    Timeline::new(n).unwrap()
}

fn segment_name(line: u32, number: u64) -> SegmentName {
    name(line, number).segment().unwrap()
}

/// An archive with files of these names; only names are used.
fn with(names: impl IntoIterator<Item = WalName>) -> SimDisk {
    let disk = disk(1);
    push(&disk, name(9, 0), &segment(9, 0, 1)).unwrap();
    let real = disk.read_file(stored(&disk, name(9, 0))).unwrap();
    for name in names {
        let path = match name.segment() {
            Some(s) => format!("{:08X}{:08X}/{name}.gz", s.timeline.number(), s.high),
            None => format!("{name}.gz"),
        };
        disk.write_file(Path::new(ARCHIVE).join(path), &real)
            .unwrap();
    }
    disk
}

fn spans(spans: &[Span]) -> Vec<(String, String, u64)> {
    let text = |s: &Span| (s.first.to_string(), s.last.to_string(), s.segments);
    spans.iter().map(text).collect()
}

#[test]
fn runs_are_unbroken_stretches_over_directories() {
    let partial = WalName::Partial(segment_name(1, 4098));
    let names = [4094, 4095, 4096, 4099].map(|n| name(1, n));
    let disk = with(names.into_iter().chain([partial, name(2, 4096)]));
    disk.write_file(Path::new(ARCHIVE).join("0000000100000001/other.gz"), b"x")
        .unwrap();
    disk.write_file(
        Path::new(ARCHIVE).join("0000000100000001/000000010000000100000004.gz.tmp"),
        b"x",
    )
    .unwrap();
    let runs = archive(&disk).unwrap().runs().unwrap();
    let found: Vec<_> = runs.iter().map(|r| r.span).collect();
    let expected = [(1, 4094, 4096), (1, 4099, 4099), (2, 4096, 4096), (9, 0, 0)];
    let expected = expected.map(|(line, first, last)| Span {
        first: segment_name(line, first),
        last: segment_name(line, last),
        segments: last - first + 1,
    });
    assert_eq!(found, expected);
    assert_eq!(runs[0].stored_bytes, 3 * runs[1].stored_bytes);
}

/// Goal: an imprint counts for the very file: one that has its name and its bytes has another.
#[test]
fn an_imprint_is_of_the_very_segment() {
    let disk = with(
        [4094, 4095, 4096]
            .map(|n| name(1, n))
            .into_iter()
            .chain([name(2, 4095)]),
    );
    let archive = archive(&disk).unwrap();
    let span = |first, last| Span {
        first: segment_name(1, first),
        last: segment_name(1, last),
        segments: last - first + 1,
    };
    let all = || archive.imprints(&span(4094, 4096)).unwrap();
    let before = all();
    let names: Vec<_> = before.iter().map(|own| own.name).collect();
    assert_eq!(names, [4094, 4095, 4096].map(|n| segment_name(1, n)));
    assert_eq!(all(), before);
    assert_eq!(archive.imprints(&span(4095, 4095)).unwrap(), before[1..2]);
    assert_eq!(archive.imprints(&span(1, 9)).unwrap(), []);
    let path = stored(&disk, name(1, 4095));
    let bytes = disk.read_file(&path).unwrap();
    disk.write_file(&path, &bytes).unwrap();
    let after = all();
    assert_ne!(after[1].imprint, before[1].imprint);
    assert_eq!((after[0], after[2]), (before[0], before[2]));
}

#[test]
fn a_replay_over_a_promotion_needs_each_segment_on_the_timeline_that_covers_it() {
    // Timeline 1 was left in the middle of segment 5.
    let text = format!("1\t{}\tx\n", Lsn(5 * SEGMENT as u64 + 1000));
    let history = History::parse(timeline(2), text.as_bytes()).unwrap();
    let end = Lsn(8 * SEGMENT as u64);
    let start = Lsn(3 * SEGMENT as u64 + 40);
    let disk = with([name(1, 3), name(1, 4), name(2, 5), name(2, 6), name(2, 7)]);
    assert_eq!(
        archive(&disk)
            .unwrap()
            .missing(&history, start, end)
            .unwrap(),
        []
    );
    // Segment 5 of timeline 1 does not contain what was written after the promotion.
    let disk = with([name(1, 3), name(1, 5), name(2, 6), name(1, 7)]);
    let missing = archive(&disk)
        .unwrap()
        .missing(&history, start, end)
        .unwrap();
    let text = |n: WalName| n.to_string();
    assert_eq!(
        spans(&missing),
        [
            (text(name(1, 4)), text(name(1, 4)), 1),
            (text(name(2, 5)), text(name(2, 5)), 1),
            (text(name(2, 7)), text(name(2, 7)), 1),
        ]
    );
    // A replay that ends before the promotion does not need timeline 2.
    let before = Lsn(5 * SEGMENT as u64 + 900);
    let missing = archive(&disk)
        .unwrap()
        .missing(&history, Lsn(5 * SEGMENT as u64), before)
        .unwrap();
    assert_eq!(missing, []);
}

/// Goal: a file that is there by its name alone is told with what is wrong, and a replay does not count on it.
#[test]
fn segments_that_are_empty_cut_off_or_unreadable_are_no_help() {
    let disk = with((3..10).map(|n| name(1, n)));
    let damage = |n: u64, change: &dyn Fn(&Path, Vec<u8>)| {
        let path = stored(&disk, name(1, n));
        let bytes = disk.read_file(&path).unwrap();
        change(&path, bytes);
    };
    damage(4, &|path, _| disk.write_file(path, b"").unwrap());
    damage(5, &|path, bytes| {
        disk.write_file(path, &bytes[..60]).unwrap()
    });
    // A full disk cuts a copy off at such a border.
    damage(7, &|path, bytes| {
        disk.write_file(path, &bytes[..1024]).unwrap();
    });
    damage(8, &|path, _| {
        let unreadable = Attributes {
            mode: Some(0),
            ..Attributes::default()
        };
        let dir = disk.dir(path.parent().unwrap()).unwrap();
        let file = Path::new(path.file_name().unwrap());
        dir.set_attributes(file, &unreadable).unwrap();
    });
    let archive = archive(&disk).unwrap();
    let unusable = archive.unusable().unwrap();
    let told: Vec<(String, &str)> = unusable
        .iter()
        .map(|found| (found.name.to_string(), &*found.what))
        .collect();
    let expected = [
        (4, "is empty"),
        (5, "is only 60 bytes long"),
        (7, "is damaged: "),
        (8, "has a mode that lets nobody read it"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((found, what), (number, begin)) in told.iter().zip(expected) {
        assert_eq!(*found, name(1, number).to_string());
        assert!(what.starts_with(begin), "{what}");
    }
    let mut lost = Lost::default();
    for found in &unusable {
        lost.add(found.name, found.name);
    }
    let runs = archive.runs_without(&lost).unwrap();
    let found: Vec<_> = runs
        .iter()
        .map(|run| (run.span.first, run.span.last))
        .collect();
    let expected = [(1, 3, 3), (1, 6, 6), (1, 9, 9), (9, 0, 0)];
    let expected =
        expected.map(|(line, first, last)| (segment_name(line, first), segment_name(line, last)));
    assert_eq!(found, expected);
    let log = LogRange {
        system: SYSTEM,
        first_timeline: 1,
        first_lsn: 3 * SEGMENT as u64 + 40,
        last_timeline: 1,
        last_lsn: 3 * SEGMENT as u64 + 400,
    };
    let replay = archive.replay_without(&log, false, &lost).unwrap().unwrap();
    assert_eq!(replay.missing_to_consistency, []);
    let text = |n| name(1, n).to_string();
    assert_eq!(
        spans(&replay.missing_to_end),
        [(text(4), text(5), 2), (text(7), text(8), 2)]
    );
    assert_eq!(
        archive.replay(&log, false).unwrap().unwrap().missing_to_end,
        [],
        "their names are there"
    );
}

/// A hostile header may claim that a backup reaches from the first byte of WAL to the last.
#[test]
fn a_segment_missing_from_all_wal_is_reported_at_once() {
    let disk = with([name(1, 3), name(1, 4), name(2, 5), name(2, 9000)]);
    let text = format!("1\t{}\tx\n", Lsn(5 * SEGMENT as u64 + 1000));
    let history = History::parse(timeline(2), text.as_bytes()).unwrap();
    let archive = archive(&disk).unwrap();
    let missing = archive.missing(&history, Lsn(0), Lsn(u64::MAX)).unwrap();
    let found: Vec<(WalName, u64)> = missing
        .iter()
        .map(|span| (WalName::Segment(span.first), span.segments))
        .collect();
    let all = (1u64 << 44) - 9001;
    assert_eq!(
        found,
        [(name(1, 0), 3), (name(2, 6), 8994), (name(2, 9001), all)]
    );
    assert_eq!(missing[2].last.to_string(), "00000002FFFFFFFF00000FFF");
    assert_eq!(archive.missing(&history, Lsn(9), Lsn(0)).unwrap(), []);
}

#[test]
fn later_segments_distinguish_a_gap_from_the_end() {
    let disk = with([name(1, 3), name(1, 5), name(1, 9000), name(2, 4)]);
    let later = |line, number| {
        let name = WalName::Segment(segment_name(line, number));
        archive(&disk).unwrap().absent(name).unwrap()
    };
    assert_eq!(later(1, 4), Some(segment_name(1, 5)));
    assert_eq!(later(1, 6), Some(segment_name(1, 9000)));
    assert_eq!(later(1, 9001), None);
    assert_eq!(later(2, 5), None);
    assert_eq!(later(3, 0), None);
}

#[test]
fn removing_keeps_the_segment_with_the_lsn_all_later_ones_and_histories() {
    let history: WalName = "00000002.history".parse().unwrap();
    let mark = WalName::Backup(segment_name(1, 3), 0x28);
    let partial = WalName::Partial(segment_name(1, 4));
    let names = (3..4100).map(|n| name(1, n));
    let disk = with(names.chain([history, mark, partial, name(2, 4), name(2, 4097)]));
    let archive = archive(&disk).unwrap();
    let keep = Lsn(4097 * SEGMENT as u64 + 5);
    let removed = archive
        .remove_unneeded(keep, false, |_, _, _| false)
        .unwrap();
    // Timeline 9 had segment 0.
    assert_eq!(removed.files, 4094 + 2 + 1 + 1);
    let left: Vec<_> = archive
        .runs()
        .unwrap()
        .iter()
        .map(|r| (r.span.first, r.span.last))
        .collect();
    let one = segment_name;
    assert_eq!(
        left,
        [(one(1, 4097), one(1, 4099)), (one(2, 4097), one(2, 4097))]
    );
    assert_eq!(archive.histories().unwrap(), [timeline(2)]);
    let gone = Path::new(ARCHIVE).join("0000000100000000");
    assert!(
        !disk.paths().contains(&gone),
        "an empty directory goes, too"
    );
    assert_eq!(
        archive
            .remove_unneeded(keep, false, |_, _, _| false)
            .unwrap()
            .files,
        0
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn gaps_agree_with_a_list(
        numbers in prop::collection::btree_set(4070u64..4130, 0..60),
        start in 4070 * SEGMENT as u64..4130 * SEGMENT as u64,
        len in 1u64..70 * SEGMENT as u64,
    ) {
        let disk = with(numbers.iter().map(|n| name(1, *n)));
        let archive = archive(&disk).unwrap();
        let end = start + len;
        let missing = archive.missing(&History::first(timeline(1)), Lsn(start), Lsn(end)).unwrap();
        let needed: BTreeSet<u64> = (start / SEGMENT as u64..=(end - 1) / SEGMENT as u64).collect();
        let expected: Vec<u64> = needed.difference(&numbers).copied().collect();
        let size = SegmentSize::new(SEGMENT as u64).unwrap();
        let mut found = Vec::new();
        for span in &missing {
            let mut at = span.first;
            for _ in 0..span.segments {
                found.push(at.start(size).0 / SEGMENT as u64);
                at = at.next(size);
            }
            prop_assert_eq!(found.last().copied(), Some(span.last.start(size).0 / SEGMENT as u64));
        }
        prop_assert_eq!(&found, &expected);
        // The spans are as long as possible.
        for pair in missing.windows(2) {
            prop_assert!(pair[0].last.next(size) != pair[1].first);
        }
    }
}

#[test]
fn the_segments_of_a_replay_are_those_that_a_server_takes() {
    let size = SegmentSize::new(SEGMENT as u64).unwrap();
    let byte = |number: u64, inside: u64| Lsn(number * size.bytes() + inside);
    // Timeline 1 was left in its segment 5; a server that did not know continued on it.
    let line = format!("1\t{}\tno recovery target specified\n", byte(5, 4096));
    let history = History::parse(timeline(2), line.as_bytes()).unwrap();
    let disk = with([
        name(1, 3),
        name(1, 4),
        name(1, 5),
        name(1, 6),
        name(2, 5),
        name(2, 6),
    ]);
    let archive = archive(&disk).unwrap();
    let found = archive.segments(&history, byte(3, 7), byte(7, 0)).unwrap();
    let expected = [(1, 3), (1, 4), (2, 5), (2, 6)];
    assert_eq!(found, expected.map(|(line, n)| segment_name(line, n)));
    // Segments after the fork on the old timeline are not part of this history.
    let refused = archive.segments(&history, byte(3, 0), byte(8, 0));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("000000020000000000000007")
    );
    let none = archive.segments(&history, byte(7, 0), byte(7, 0)).unwrap();
    assert!(none.is_empty());
}

#[test]
fn a_file_is_read_from_any_place_on() {
    let disk = disk(1);
    let bytes = segment(1, 3, 5);
    push(&disk, name(1, 3), &bytes).unwrap();
    let file = archive(&disk).unwrap().open_file(name(1, 3)).unwrap();
    assert_eq!(file.plain_len(), SEGMENT as u64);
    let mut random = Random(11);
    for _ in 0..50 {
        let at = random.below(SEGMENT as u64) as usize;
        let len = random.below((SEGMENT - at) as u64 + 1) as usize;
        let mut read = vec![0; len];
        file.read_at(&mut read, at as u64).unwrap();
        assert!(read == bytes[at..at + len], "{len} bytes at {at}");
    }
    let behind = file.read_at(&mut [0; 2], SEGMENT as u64 - 1);
    assert!(behind.unwrap_err().to_string().contains("is damaged"));
    let missing = archive(&disk).unwrap().open_file(name(1, 4));
    assert!(missing.is_err());
}
