//! Goal: two servers that share an ancestor are told apart by their histories, and by samples of WAL where histories
//! are equal.
//! Method: oracles are histories written by hand as PostgreSQL writes them; properties run over generated ones.
//! Not covered: real servers (`longshore/tests/postgres_backup/branches.rs`).

use proptest::prelude::*;

use super::*;
use crate::wal::restored_from;

fn timeline(n: u32) -> Timeline {
    Timeline::new(n).unwrap()
}

fn line(n: u32, text: &str) -> TimelineHistory {
    TimelineHistory::parse(timeline(n), text.as_bytes()).unwrap()
}

fn digest(n: u8) -> Digest {
    Digest::of([&[n][..]])
}

fn witness(at: u64, n: u8) -> Witness {
    Witness {
        timeline: timeline(1),
        start: Lsn(at),
        len_bytes: 100,
        page_bytes: 8192,
        digest: digest(n),
        before: None,
    }
}

fn lineage(n: u32, history: Option<&str>, at: u64) -> Lineage {
    Lineage {
        line: match (n, history) {
            (1, _) => Some(TimelineHistory::first()),
            (_, Some(text)) => Some(line(n, text)),
            (_, None) => None,
        },
        checkpoint: Lsn(at),
        next_xid: at,
        ..Lineage::unrecorded(7, timeline(n), Lsn(at + 50))
    }
}

fn earlier(lineage: Lineage) -> Earlier {
    Earlier {
        set: [9; 16],
        end: (lineage.timeline, lineage.reached),
        lineage,
    }
}

fn gone(_: Timeline, _: Lsn, _: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::NotFound.into())
}

/// Goal: two restores of one backup open on timelines with the same number, and are distinguished.
#[test]
fn two_timelines_of_one_number_are_two() {
    let text = "1\t0/5000110\tno recovery target specified\n";
    let restored = |n| format!("{}\n{text}", restored_from("00000001.history", n));
    let a = lineage(2, Some(&restored(1)), 0x600_0000);
    let b = lineage(2, Some(&restored(2)), 0x700_0000);
    let ways = Relation::Refuted(Contradiction::Ways {
        timeline: timeline(2),
    });
    assert_eq!(b.comes_from(&earlier(a.clone())), ways);
    // The same on the timelines that follow.
    let third = format!("{}2\t0/7100000\tx\n", restored(2));
    let c = lineage(3, Some(&third), 0x720_0000);
    assert_eq!(c.comes_from(&earlier(a)), ways);
    assert!(!c.comes_from(&earlier(b)).is_refuted());
}

/// Goal: a restore's remark that goes on from a timeline does not change that timeline's identity.
#[test]
fn a_remark_about_what_comes_after_changes_nothing() {
    let text = "1\t0/5000110\tx\n".to_owned();
    let restored = format!("{text}\n{}\n", restored_from("00000002.history", 5));
    let (a, b) = (line(2, &text), line(2, &restored));
    assert_eq!(a, b);
    let third = line(3, &format!("{restored}2\t0/7000000\ty\n"));
    assert_eq!(third.ancestors()[1].way, a.way);
    assert_ne!(line(3, &format!("{text}2\t0/7000000\ty\n")).way, third.way);
}

#[test]
fn a_timeline_that_was_left_before_a_backups_end_is_another_branch() {
    let a = earlier(lineage(1, None, 0x600_0000));
    let left = lineage(2, Some("1\t0/6000000\tx\n"), 0x700_0000);
    let kept = lineage(2, Some("1\t0/6000032\tx\n"), 0x700_0000);
    assert!(matches!(
        left.comes_from(&a),
        Relation::Refuted(Contradiction::Left { .. })
    ));
    assert_eq!(kept.comes_from(&a), Relation::Unknown(Doubt::NotRecorded));
    let beside = lineage(3, Some("2\t0/6000032\tx\n"), 0x700_0000);
    assert!(matches!(
        beside.comes_from(&a),
        Relation::Refuted(Contradiction::NotOnWay { .. })
    ));
    assert!(matches!(
        lineage(1, None, 0x700_0000).comes_from(&earlier(kept)),
        Relation::Refuted(Contradiction::NotReached { .. })
    ));
}

/// Goal: for a cluster that stayed on its timeline only WAL decides; without it nothing is proved.
#[test]
fn only_the_log_proves() {
    let mut a = lineage(1, None, 8192);
    let bytes = {
        let mut page = vec![1; 100];
        page[8..16].copy_from_slice(&8192u64.to_le_bytes());
        page
    };
    a.witness = Some(Witness {
        digest: Digest::of([bytes.as_slice()]),
        ..witness(8192, 0)
    });
    let a = earlier(a);
    let server = lineage(1, None, 20_000);
    assert!(matches!(
        server.follows(&a, gone),
        Relation::Unknown(Doubt::LogGone { .. })
    ));
    let read = |change: u8, place: u64| {
        let mut bytes = bytes.clone();
        bytes[99] ^= change;
        bytes[8..16].copy_from_slice(&place.to_le_bytes());
        move |_: Timeline, at: Lsn, buf: &mut [u8]| {
            assert_eq!(at, Lsn(8192));
            buf.copy_from_slice(&bytes);
            Ok(())
        }
    };
    assert!(server.follows(&a, read(0, 8192)).is_proved());
    assert!(matches!(
        server.follows(&a, read(1, 8192)),
        Relation::Refuted(Contradiction::Log { .. })
    ));
    // A segment file kept for reuse.
    assert!(matches!(
        server.follows(&a, read(1, 4096)),
        Relation::Unknown(Doubt::LogGone { .. })
    ));
    // Another system is refuted, whatever its WAL contains.
    let mut foreign = server.clone();
    foreign.system = 8;
    assert!(foreign.follows(&a, read(0, 8192)).is_refuted());
}

/// Goal: two clones whose backups begin with the same checkpoint in the same second are distinguished by the
/// segment before.
#[test]
fn the_segment_before_counts_too_where_it_is_there() {
    const SEGMENT: u64 = 1 << 20;
    let log = |at: u64, seed: u8| {
        let mut bytes = vec![seed; SEGMENT as usize];
        for (page, place) in bytes.chunks_mut(8192).zip((at..).step_by(8192)) {
            page[8..16].copy_from_slice(&place.to_le_bytes());
        }
        bytes
    };
    let (before, own) = (log(SEGMENT, 1), log(2 * SEGMENT, 2));
    let reader = |before: Option<Vec<u8>>| {
        let own = own.clone();
        move |_: Timeline, at: Lsn, buf: &mut [u8]| {
            let bytes = match at.0 < 2 * SEGMENT {
                true => before.as_ref().ok_or(io::ErrorKind::NotFound)?,
                false => &own,
            };
            let from = (at.0 % SEGMENT) as usize;
            buf.copy_from_slice(&bytes[from..from + buf.len()]);
            Ok(())
        }
    };
    let place = Witness {
        len_bytes: 8192,
        digest: Digest::of([&own[..8192]]),
        before: Some(Before {
            len_bytes: SEGMENT as u32,
            digest: Digest::of([before.as_slice()]),
        }),
        ..witness(2 * SEGMENT, 0)
    };
    let mut other = before.clone();
    other[9000] ^= 1;
    assert!(matches!(
        place.check(reader(Some(before))),
        WitnessResult::Same
    ));
    assert!(matches!(
        place.check(reader(Some(other))),
        WitnessResult::Other
    ));
    // Missing, or kept for reuse under its name: nothing is refuted.
    assert!(matches!(place.check(reader(None)), WitnessResult::Same));
    assert!(matches!(
        place.check(reader(Some(log(9 * SEGMENT, 1)))),
        WitnessResult::Same
    ));
    // The same for two backups with the same LSNs, if both know the segment.
    let at_place = |before: Option<u8>| Lineage {
        witness: Some(Witness {
            before: before.map(|n| Before {
                len_bytes: SEGMENT as u32,
                digest: digest(n),
            }),
            ..place
        }),
        ..lineage(1, None, 3 * SEGMENT)
    };
    let related = |one, other| at_place(one).comes_from(&earlier(at_place(other)));
    assert!(related(Some(1), Some(1)).is_proved());
    assert!(related(Some(1), Some(2)).is_refuted());
    assert!(related(None, Some(2)).is_proved() && related(Some(1), None).is_proved());
}

#[test]
fn a_server_that_is_behind_a_backup_was_set_back() {
    let a = earlier(lineage(1, None, 8192));
    let mut server = lineage(1, None, 8000);
    assert!(matches!(
        server.follows(&a, gone),
        Relation::Refuted(Contradiction::Behind { .. })
    ));
    server.in_recovery = true;
    assert!(matches!(
        server.follows(&a, gone),
        Relation::Unknown(Doubt::NotReplayed { .. })
    ));
    // A later checkpoint with a smaller transaction number.
    let mut fewer = lineage(1, None, 9000);
    fewer.next_xid = 8191;
    assert!(matches!(
        fewer.comes_from(&a),
        Relation::Refuted(Contradiction::Xids { .. })
    ));
}

#[test]
fn findings_of_a_backup_are_kept() {
    let a = earlier(lineage(1, None, 8192));
    for (relation, expected) in [
        (
            Relation::Proved(Proof::Recorded),
            Relation::Proved(Proof::Recorded),
        ),
        (
            Relation::Refuted(Contradiction::Recorded),
            Relation::Refuted(Contradiction::Recorded),
        ),
        (
            Relation::Unknown(Doubt::NotCompared),
            Relation::Unknown(Doubt::NotRecorded),
        ),
    ] {
        let mut b = lineage(1, None, 9000);
        b.note(a.set, &relation);
        assert!(b.has_seen(a.set));
        let b = Lineage::decode(&b.encode()).unwrap();
        assert_eq!(b.comes_from(&a), expected);
    }
}

#[test]
fn the_stored_lineage_is_bounded() {
    let mut text = String::new();
    for n in 1..3000 {
        text += &format!("{n}\t0/{:X}\tx\n", n * 64);
    }
    let mut big = lineage(3000, Some(&text), 1 << 40);
    for n in 0..1000u32 {
        let mut set = [0; 16];
        set[..4].copy_from_slice(&n.to_le_bytes());
        big.note(set, &Relation::Proved(Proof::Recorded));
    }
    let bytes = big.encode();
    assert!(bytes.len() <= LINEAGE_MAX, "{}", bytes.len());
    assert_eq!(Lineage::decode(&bytes), Some(big.clone()));
    // Dropped ancestors are not refuted.
    let old = earlier(lineage(1, None, 8));
    assert!(!big.comes_from(&old).is_refuted());
}

fn any_lineage() -> impl Strategy<Value = Lineage> {
    let ancestors = prop::collection::vec((1u32..9, 1u64..1 << 40), 0..FORKS_MAX);
    let known = prop::collection::vec((any::<[u8; 16]>(), 0..3u8), 0..KNOWN_MAX);
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let rest = (any::<[bool; 4]>(), any::<[u8; 16]>(), 1..WITNESS_LEN_MAX);
    (ancestors, known, numbers, rest).prop_map(
        |(steps, known, (system, a, b, c), ([recovery, home, seen, cut], bytes, len))| {
            let (mut number, mut end) = (1, 0);
            let mut ancestors = Vec::new();
            for (up, on) in steps {
                ancestors.push(Ancestor {
                    timeline: timeline(number),
                    end: Lsn(end),
                    way: Digest(bytes),
                });
                (number, end) = (number + up, end + on);
            }
            Lineage {
                system,
                timeline: timeline(number),
                line: Some(TimelineHistory {
                    ancestors,
                    way: Digest(bytes),
                    cut,
                }),
                reached: Lsn(a),
                checkpoint: Lsn(b),
                next_xid: c,
                in_recovery: recovery,
                home: home.then_some(Digest(bytes)),
                run: cut.then_some(Digest(bytes)),
                witness: seen.then_some(Witness {
                    len_bytes: len,
                    digest: Digest(bytes),
                    before: recovery.then_some(Before {
                        len_bytes: 16 << 20,
                        digest: Digest(bytes),
                    }),
                    ..witness(a, 0)
                }),
                known: known
                    .into_iter()
                    .map(|(set, n)| EarlierBackup {
                        set,
                        verdict: [
                            LineageVerdict::Follows,
                            LineageVerdict::Apart,
                            LineageVerdict::Seen,
                        ][usize::from(n)],
                    })
                    .collect(),
            }
        },
    )
}

proptest! {
    #[test]
    fn written_values_can_be_read(lineage in any_lineage()) {
        let bytes = lineage.encode();
        prop_assert!(bytes.len() <= LINEAGE_MAX);
        prop_assert_eq!(Lineage::decode(&bytes), Some(lineage));
        prop_assert_eq!(Lineage::decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn no_bytes_panic_and_none_take_memory(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Some(lineage) = Lineage::decode(&bytes) {
            prop_assert!(lineage.witness.is_none_or(|w| w.len_bytes <= WITNESS_LEN_MAX));
        }
    }

    /// Goal: recorded facts alone prove nothing about another set; a proof requires WAL that was compared.
    #[test]
    fn nothing_is_proved_without_the_log(one in any_lineage(), other in any_lineage()) {
        let other = earlier(Lineage { witness: None, ..other });
        let one = Lineage { known: Vec::new(), ..one };
        prop_assert!(!one.comes_from(&other).is_proved());
        prop_assert!(!one.follows(&other, gone).is_proved());
    }
}
