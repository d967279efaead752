//! Goal: the archive tells segments that follow one another from segments of two branches under the same names, by
//! their content, and refuses a push that would mix them.
//! Method: hand-made segments on a simulated disk; those of two branches differ in where they end, and single bytes and
//! pages are changed.

use longshore_io::SimDisk;
use longshore_pg::wal::History;
use longshore_pg::{Lsn, Recovery, RecoveryTarget, SegmentName, Timeline};
use longshore_wal::LogRange;
use longshore_wal::proof::Reach;
use longshore_wal::{Error, Outgoing, PushResult, Span};

use crate::support::*;

const MIB: u64 = SEGMENT as u64;

fn timeline(number: u32) -> Timeline {
    Timeline::new(number).unwrap()
}

fn segment_name(timeline: u32, number: u64) -> SegmentName {
    name(timeline, number).segment().unwrap()
}

/// A segment of a branch whose segments end after another number of pages.
fn of_branch(number: u64, pages: usize) -> Vec<u8> {
    segment_of(SYSTEM, 1, number, pages, number)
}

fn span(first: u64, last: u64) -> Span {
    Span {
        first: segment_name(1, first),
        last: segment_name(1, last),
        segments: last - first + 1,
    }
}

/// Segments 3 to 5 of one branch, 6 and 7 of another.
fn mixed() -> SimDisk {
    let disk = disk(1);
    for n in 3..6 {
        push(&disk, name(1, n), &of_branch(n, 20)).unwrap();
    }
    for n in 6..8 {
        push(&disk, name(1, n), &of_branch(n, 30)).unwrap();
    }
    disk
}

#[test]
fn a_segment_of_another_branch_does_not_follow() {
    let disk = mixed();
    let archive = archive(&disk).unwrap();
    let history = History::first(timeline(1));
    let check = |from: u64, to: u64| archive.check_links(&history, Lsn(from * MIB), Lsn(to * MIB));
    assert!(check(3, 6).is_ok());
    assert!(check(6, 8).is_ok());
    for (from, to) in [(3, 7), (5, 8)] {
        match check(from, to).unwrap_err() {
            Error::BrokenLink { before, name, .. } => {
                assert_eq!((before, name), (segment_name(1, 5), segment_name(1, 6)));
            }
            e => panic!("{e}"),
        }
    }
    let broken = archive.broken_links(&span(3, 7)).unwrap();
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].to_string().contains(&name(1, 6).to_string()));
    assert!(archive.broken_links(&span(6, 7)).unwrap().is_empty());
}

/// Goal: it is known whether a server may read ahead, beyond a backup's own last LSN, to the WAL that follows in the
/// archive.
#[test]
fn a_prefetching_server_meets_another_branch_and_damage_after_the_target() {
    let not_ahead = |disk: &SimDisk, last: u64| {
        let log = LogRange {
            system: SYSTEM,
            first_timeline: 1,
            first_lsn: 3 * MIB,
            last_timeline: 1,
            last_lsn: last,
        };
        let recovery = Recovery {
            target: Some(RecoveryTarget::Immediate),
            ..Recovery::default()
        };
        let reach = Reach::of(recovery.target.as_ref(), Lsn(last));
        let proven = archive(disk).unwrap().prove(&log, false, &recovery, reach);
        proven.unwrap().not_ahead
    };
    let disk = mixed();
    // The other branch begins at segment 6.
    for (last, expected) in [
        (5 * MIB, false),
        (5 * MIB + 40, true),
        (6 * MIB, true),
        (4 * MIB + 40, false),
    ] {
        assert_eq!(not_ahead(&disk, last), expected, "{last}");
    }
    let next = stored(&disk, name(1, 5));
    let mut bytes = disk.read_file(&next).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    disk.write_file(&next, &bytes).unwrap();
    assert!(not_ahead(&disk, 4 * MIB + 40));
    assert!(!not_ahead(&disk, 3 * MIB + 40));
}

#[test]
fn a_page_of_another_timeline_or_cluster_is_damage() {
    for (at, what) in [(PAGE + 4, "timeline"), (9 * PAGE + 4, "timeline")] {
        let disk = disk(1);
        let mut bytes = segment_of(SYSTEM, 2, 3, 20, 1);
        bytes[at] = 3;
        push(&disk, name(2, 3), &bytes).unwrap();
        let error = archive(&disk).unwrap().verify(name(2, 3)).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        // It may continue an earlier one, but not the other way round.
        let disk = self::disk(1);
        let mut bytes = segment_of(SYSTEM, 2, 3, 20, 1);
        for page in 0..at / PAGE {
            bytes[page * PAGE + 4] = 1;
        }
        push(&disk, name(2, 3), &bytes).unwrap();
        archive(&disk).unwrap().verify(name(2, 3)).unwrap();
    }
}

#[test]
fn a_comparison_finds_every_other_byte_before_its_end() {
    let disk = disk(1);
    let bytes = of_branch(3, SEGMENT / PAGE);
    push(&disk, name(1, 3), &bytes).unwrap();
    let archive = archive(&disk).unwrap();
    let same = |bytes: &[u8], len: u64, part: usize| {
        let mut comparison = archive.comparison(segment_name(1, 3), len).unwrap();
        let same = bytes
            .chunks(part)
            .all(|part| comparison.take(part).unwrap());
        (same, comparison.is_whole())
    };
    for len in [0, 1, 5000, MIB / 2, MIB - 1, MIB] {
        for part in [4096, 100_000, SEGMENT] {
            assert_eq!(same(&bytes, len, part), (true, true), "{len} {part}");
            for at in [0, 1, 4999, 5000, SEGMENT / 2, SEGMENT - 1] {
                let mut other = bytes.clone();
                other[at] ^= 1;
                let (found, _) = same(&other, len, part);
                assert_eq!(found, at as u64 >= len, "{len} {part} {at}");
            }
        }
    }
    // A segment that ends early was not compared completely.
    assert_eq!(same(&bytes[..SEGMENT - 1], MIB, SEGMENT), (true, false));
}

/// Goal: the end of a switched segment is zeros on every branch: the bytes before the zeros decide.
#[test]
fn a_push_after_a_switch_of_another_branch_is_refused() {
    // Two blocks, of which the second is zeros.
    let segment = |number: u64, seed| {
        let mut bytes = segment(1, 2 * number, seed);
        bytes[32..36].copy_from_slice(&(2 * SEGMENT as u32).to_le_bytes());
        bytes.resize(2 * SEGMENT, 0);
        bytes
    };
    let disk = disk(1);
    push(&disk, name(1, 3), &segment(3, 3)).unwrap();
    let wal = std::path::Path::new(WAL);
    // As many records, ended by a switch at the same LSN: the next segment continues both.
    disk.write_file(wal.join(name(1, 3).to_string()), &segment(3, 30))
        .unwrap();
    let out = Outgoing {
        beside: Some(longshore_io::Storage::dir(&disk, wal).unwrap()),
        ..outgoing(&disk, name(1, 4), &segment(4, 4))
    };
    let form = form(longshore_codec::Algorithm::QatDeflate);
    let pushed = archive(&disk).unwrap().push(&out, &form, &*clock());
    assert!(
        matches!(pushed, Err(Error::OtherBranch { .. })),
        "{pushed:?}"
    );
}

/// Goal: a segment that a server writes after it was set back to older files, beyond the archive's end, does not get
/// in, whether or not the server still has the previous segment.
#[test]
fn a_push_after_the_end_of_another_branch_is_refused() {
    for (is_there, pages, fits) in [
        (true, 20, true),
        (true, 30, false),
        (false, 20, true),
        (false, 30, false),
    ] {
        let disk = disk(1);
        push(&disk, name(1, 3), &of_branch(3, 20)).unwrap();
        let wal = std::path::Path::new(WAL);
        let own = wal.join(name(1, 3).to_string());
        match is_there {
            true => disk.write_file(&own, &of_branch(3, pages)).unwrap(),
            false => {
                let dir = longshore_io::Storage::dir(&disk, wal).unwrap();
                dir.remove_file(std::path::Path::new(&name(1, 3).to_string()))
                    .unwrap();
            }
        }
        let out = Outgoing {
            beside: Some(longshore_io::Storage::dir(&disk, wal).unwrap()),
            ..outgoing(&disk, name(1, 4), &of_branch(4, pages))
        };
        let form = form(longshore_codec::Algorithm::QatDeflate);
        let archive = archive(&disk).unwrap();
        match archive.push(&out, &form, &*clock()) {
            Ok(PushResult::Stored { .. }) => {
                assert!(fits, "{is_there} {pages}");
                assert_eq!(archive.refused(), None);
            }
            Err(Error::OtherBranch { name, .. }) => {
                assert!(!fits && name == segment_name(1, 3), "{is_there} {pages}");
                let refused = archive.refused().unwrap();
                assert_eq!(refused.name, super::support::name(1, 4));
                assert_eq!(archive.runs().unwrap()[0].span.segments, 1);
            }
            other => panic!("{other:?}"),
        }
    }
}
