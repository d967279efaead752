//! Goal: a recovery begins with the best backup, and the archive's WAL for it is proved or its gap named.
//! Method: generated backups are judged by a model; the archive has timelines 1, 2 and 3: 1 was left at segment 20 for
//! 2, 2 at segment 40 for 3.
//! Not covered: replay by a server.

use longshore_io::SimDisk;
use longshore_pg::lineage::{Digest, Witness};
use longshore_pg::{Lineage, Lsn, Recovery, RecoveryTarget, Timeline, TimelineChoice};
use longshore_repository::chain::{Health, SetFacts};
use longshore_repository::identity::Identity;
use longshore_repository::recover::choose;
use longshore_repository::{BackupKind, Label};
use longshore_wal::LogRange;
use longshore_wal::proof::Reach;
use longshore_wal::{Error, WalArchive};
use proptest::prelude::*;
use uuid::Uuid;

use support::*;

#[path = "../../wal/tests/archive/support.rs"]
#[allow(dead_code, reason = "the tests of the archive use the rest")]
mod support;

const FORKS: [u64; 2] = [20, 40];

fn place(segment: u64) -> Lsn {
    Lsn(segment * SEGMENT as u64)
}

/// Histories, and these segments of these timelines.
fn stage(segments: &[(u32, std::ops::Range<u64>)]) -> SimDisk {
    let disk = disk(1);
    for (timeline, numbers) in segments {
        for n in numbers.clone() {
            push(&disk, name(*timeline, n), &segment(*timeline, n, n)).unwrap();
        }
    }
    let line = |n: usize| format!("{}\t{}\tpromoted\n", n + 1, place(FORKS[n]));
    for (file, text) in [
        ("00000002.history", line(0)),
        ("00000003.history", line(0) + &line(1)),
    ] {
        push(&disk, file.parse().unwrap(), text.as_bytes()).unwrap();
    }
    disk
}

fn log(timeline: u32, first: u64, last: u64) -> LogRange {
    LogRange {
        system: SYSTEM,
        first_timeline: timeline,
        first_lsn: place(first).0,
        last_timeline: timeline,
        last_lsn: place(last).0,
    }
}

fn to(target: Option<RecoveryTarget>, timeline: TimelineChoice) -> Recovery {
    Recovery {
        target,
        timeline,
        ..Recovery::default()
    }
}

#[derive(Debug, Clone)]
struct Sketch {
    health: u8,
    parent: Option<usize>,
    /// Time from begin to end, which is before the next one's begin or after.
    took: i64,
    timeline: u32,
    at: u64,
    stranger: bool,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    (
        (0u8..9, prop::option::weighted(0.4, 0usize..8), 0i64..25),
        (1u32..4, 0u64..60, prop::bool::weighted(0.1)),
    )
        .prop_map(
            |((health, parent, took), (timeline, at, stranger))| Sketch {
                health,
                parent,
                took,
                timeline,
                at,
                stranger,
            },
        )
}

/// A backup is begun every ten microseconds. LSNs and timelines increase with time: one branch.
fn sets(sketches: &[Sketch]) -> Vec<SetFacts> {
    let mut sketches = sketches.to_vec();
    let (mut places, mut timelines): (Vec<u64>, Vec<u32>) =
        sketches.iter().map(|s| (s.at, s.timeline)).unzip();
    places.sort_unstable();
    timelines.sort_unstable();
    for (sketch, (at, timeline)) in sketches.iter_mut().zip(places.into_iter().zip(timelines)) {
        (sketch.at, sketch.timeline) = (at, timeline);
    }
    let mut sets: Vec<SetFacts> = Vec::new();
    for (i, s) in sketches.iter().enumerate() {
        let parent = s.parent.filter(|_| i > 0).map(|p| sets[p % i].id.unwrap());
        let mut log = log(s.timeline, s.at, s.at + 2);
        if s.stranger {
            log.system = 1;
        }
        let start_us = 10 * i as i64;
        sets.push(SetFacts {
            label: Label::new(i as i64 * 1_000_000, BackupKind::Full),
            health: match s.health {
                0 => Health::Broken,
                1 => Health::Abandoned,
                2 => Health::Whole { clean: false },
                _ => Health::Whole { clean: true },
            },
            kind: parent.map_or(BackupKind::Full, |_| BackupKind::Differential),
            id: Some(Uuid::from_u128(i as u128 + 1)),
            parent,
            copy_only: false,
            start_us,
            finish_us: start_us + s.took,
            plain_bytes: 0,
            expires_us: None,
            log: Some(log),
            identity: Identity::default(),
            in_use: false,
            is_degraded: false,
            found_bad: false,
            leads: false,
        });
    }
    sets
}

/// Where each timeline is left on the way to `followed`.
fn end_on_the_way(timeline: u32, followed: u32) -> u64 {
    match timeline {
        t if t == followed => u64::MAX,
        t if t < followed => place(FORKS[t as usize - 1]).0,
        _ => 0,
    }
}

fn is_on_the_way(set: &SetFacts, followed: u32) -> bool {
    let log = set.log.unwrap();
    log.system == SYSTEM && log.last_lsn <= end_on_the_way(log.last_timeline, followed)
}

fn is_whole_below(sets: &[SetFacts], set: &SetFacts) -> bool {
    let parent = set.parent.map(|id| sets.iter().find(|s| s.id == Some(id)));
    let system = |s: &SetFacts| s.log.unwrap().system;
    set.is_whole()
        && match parent {
            None => true,
            Some(Some(parent)) => system(parent) == system(set) && is_whole_below(sets, parent),
            Some(None) => false,
        }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_newest_that_leads_to_the_target_is_chosen(
        sketches in prop::collection::vec(sketch(), 0..8),
        by_time in any::<bool>(),
        time in 0i64..100,
        at in 0u64..64,
        choice in 0u32..4,
    ) {
        let disk = stage(&[(1, 0..1)]);
        let archive = archive(&disk).unwrap();
        let sets = sets(&sketches);
        let followed = if choice == 0 { 3 } else { choice };
        let target = match by_time {
            true => RecoveryTarget::Time(time),
            false => RecoveryTarget::Lsn(place(at)),
        };
        let timeline = match choice {
            0 => TimelineChoice::Latest,
            n => TimelineChoice::Number(Timeline::new(n).unwrap()),
        };
        let before = |s: &SetFacts| match by_time {
            true => s.finish_us <= time,
            false => s.log.unwrap().last_lsn <= place(at).0,
        };
        let fits = |s: &&SetFacts| before(s) && is_whole_below(&sets, s) && is_on_the_way(s, followed);
        let expected = sets.iter().rposition(|s| fits(&s));
        let chosen = choose(&sets, |_| "x".into(), None, &to(Some(target), timeline), Some(&archive), None);
        prop_assert_eq!(chosen.as_ref().ok().map(|c| c.index), expected);
        let from = expected.map_or(0, |i| i + 1);
        let passed: Vec<_> = match &chosen {
            Ok(chosen) => chosen.passed.iter().map(|p| &p.label).collect(),
            Err(none) => none.passed.iter().map(|p| &p.label).collect(),
        };
        let named: Vec<_> = sets[from..]
            .iter()
            .rev()
            .filter(|s| match s.is_whole() {
                true => before(s),
                false => !by_time || s.start_us <= time,
            })
            .map(|s| &s.label)
            .collect();
        prop_assert_eq!(passed, named);
        if let (Ok(chosen), true) = (&chosen, by_time) {
            let known = sets.iter().filter(|s| s.is_whole() && before(s) && is_on_the_way(s, followed));
            let certain = known.map(|s| s.log.unwrap().last_lsn).max();
            prop_assert_eq!(Some(chosen.reach.certain.0), certain);
            // Backups that were begun after that time begin after its LSN.
            let begins_on_the_way = |s: &&SetFacts| {
                let log = s.log.unwrap();
                log.system == SYSTEM && log.first_lsn <= end_on_the_way(log.first_timeline, followed)
            };
            let later = sets.iter().filter(|s| s.is_whole() && s.start_us > time).filter(begins_on_the_way);
            let possible = later.map(|s| s.log.unwrap().first_lsn).min().unwrap_or(u64::MAX);
            prop_assert_eq!(chosen.reach.possible.0, possible.max(chosen.reach.certain.0));
        }
    }
}

/// A backup of a server at `home`, and the WAL page at the start of the segment in which the backup begins.
fn of_server(at: i64, number: u64, home: u8, page: Option<&[u8]>) -> SetFacts {
    let timeline = Timeline::new(1).unwrap();
    let mut lineage = Lineage::unrecorded(SYSTEM, timeline, place(number));
    lineage.home = Some(Digest::of([&[home][..]]));
    lineage.witness = page.map(|page| Witness {
        timeline,
        start: place(number),
        len_bytes: page.len() as u32,
        page_bytes: PAGE as u32,
        before: None,
        digest: Digest::of([page]),
    });
    SetFacts {
        log: Some(log(1, number, number + 1)),
        identity: Identity {
            lineage: Some(Box::new(lineage)),
            whence: format!("host\0{home}"),
            ..Identity::default()
        },
        start_us: at,
        finish_us: at + 1,
        label: Label::new(at * 1_000_000, BackupKind::Full),
        id: Some(Uuid::from_u128(at as u128)),
        ..sets(&[Sketch {
            health: 9,
            parent: None,
            took: 0,
            timeline: 1,
            at: 0,
            stranger: false,
        }])
        .remove(0)
    }
}

/// Goal: the branch whose WAL the archive holds is chosen, and the newer backup of another branch is named with the
/// reason.
#[test]
fn a_backup_of_a_branch_whose_wal_the_archive_does_not_hold_is_skipped_and_named() {
    let disk = stage(&[(1, 0..8)]);
    let archive = archive(&disk).unwrap();
    let page = |n: u64, seed: u64| segment(1, n, seed)[..PAGE].to_vec();
    let held = of_server(1, 2, 1, Some(&page(2, 2)));
    let to_end = to(None, TimelineChoice::Current);
    for (newer, why) in [
        (
            Some(page(4, 99)),
            "the archive holds the WAL of another branch instead",
        ),
        (
            None,
            "nothing proves that the archive's WAL is of its branch",
        ),
    ] {
        let sets = [held.clone(), of_server(2, 4, 2, newer.as_deref())];
        let chosen = choose(&sets, |_| "x".into(), None, &to_end, Some(&archive), None).unwrap();
        let passed: Vec<_> = chosen.passed.iter().map(|p| (&p.label, &*p.why)).collect();
        assert_eq!((chosen.index, passed), (0, vec![(&sets[1].label, why)]));
        // Nor is it chosen by its label.
        let named = choose(
            &sets,
            |_| "x".into(),
            Some(sets[1].label.as_str()),
            &to_end,
            Some(&archive),
            None,
        );
        assert_eq!(named.unwrap_err().passed[0].why, why);
    }
    // Both are the archive's own.
    let sets = [held, of_server(2, 4, 2, Some(&page(4, 4)))];
    let chosen = choose(&sets, |_| "x".into(), None, &to_end, Some(&archive), None).unwrap();
    assert_eq!((chosen.index, chosen.passed), (1, vec![]));
}

/// Goal: where nothing shows which of two branches is meant, none is chosen; a label says it.
#[test]
fn of_two_branches_of_which_nothing_is_known_none_is_chosen() {
    let disk = stage(&[(1, 0..8)]);
    let archive = archive(&disk).unwrap();
    let to_end = to(None, TimelineChoice::Current);
    let sets = [of_server(1, 2, 1, None), of_server(2, 4, 2, None)];
    for archive in [None, Some(&archive)] {
        let none = choose(&sets, |_| "x".into(), None, &to_end, archive, None).unwrap_err();
        assert!(none.several && none.passed.is_empty(), "{none:?}");
        let label = sets[0].label.as_str();
        let named = choose(&sets, |_| "x".into(), Some(label), &to_end, archive, None).unwrap();
        assert_eq!(named.index, 0);
    }
    let one = [of_server(1, 2, 1, None), of_server(2, 4, 1, None)];
    let chosen = choose(&one, |_| "x".into(), None, &to_end, Some(&archive), None).unwrap();
    assert_eq!(chosen.index, 1);
}

/// Goal: without an archive, no clock decides between two clusters of one name; what is known of the cluster, a label and
/// the target do.
#[test]
fn of_two_clusters_none_is_chosen_by_the_clock() {
    let to_end = to(None, TimelineChoice::Current);
    let mut other = of_server(2, 4, 2, None);
    other.log.as_mut().unwrap().system = 1;
    other.identity.lineage.as_mut().unwrap().system = 1;
    let sets = [of_server(1, 2, 1, None), other];
    let chosen = |only: Option<&str>, recovery: &Recovery, cluster: Option<u64>| {
        choose(&sets, |_| "x".into(), only, recovery, None, cluster).map(|start| start.index)
    };
    let none = chosen(None, &to_end, None).unwrap_err();
    assert!(none.several && none.passed.is_empty(), "{none:?}");
    assert_eq!(chosen(None, &to_end, Some(SYSTEM)), Ok(0));
    assert_eq!(chosen(None, &to_end, Some(1)), Ok(1));
    assert_eq!(chosen(Some(sets[0].label.as_str()), &to_end, None), Ok(0));
    // The other one was not there yet.
    let before = to(Some(RecoveryTarget::Time(2)), TimelineChoice::Current);
    assert_eq!(chosen(None, &before, None), Ok(0));
}

fn prove(
    archive: &WalArchive,
    log: &LogRange,
    included: bool,
    recovery: &Recovery,
) -> Result<(u64, String), Error> {
    let reach = Reach::of(recovery.target.as_ref(), Lsn(log.last_lsn));
    let proven = archive.prove(log, included, recovery, reach)?;
    Ok((proven.end.0 / SEGMENT as u64, proven.doubtful))
}

#[test]
fn the_wal_between_a_backup_and_its_target_is_proved_or_the_gap_named() {
    let disk = stage(&[(1, 0..8), (1, 9..21), (2, 20..30), (3, 40..44)]);
    let archive = archive(&disk).unwrap();
    let one = TimelineChoice::Number(Timeline::new(1).unwrap());
    let lsn = |n: u64| Some(RecoveryTarget::Lsn(Lsn(place(n).0 + 5)));
    let set = log(1, 2, 4);
    let gap = name(1, 8).to_string();

    // To an LSN: all WAL before it, and the segment that contains it.
    assert_eq!(
        prove(&archive, &set, false, &to(lsn(7), one)).unwrap().0,
        21
    );
    let error = prove(&archive, &set, false, &to(lsn(8), one)).unwrap_err();
    assert!(error.to_string().contains(&gap), "{error}");
    let error = prove(&archive, &set, false, &to(lsn(15), one)).unwrap_err();
    assert!(
        matches!(&error, Error::ReplayGap { missing, .. } if *missing == gap),
        "{error}"
    );
    let error = prove(&archive, &set, false, &to(lsn(21), one)).unwrap_err();
    assert!(
        matches!(error, Error::EndsBefore { end, .. } if end == place(21)),
        "{error}"
    );
    // A record that begins exactly there ends replay.
    let exact = Some(RecoveryTarget::Lsn(place(8)));
    assert!(prove(&archive, &set, false, &to(exact, one)).is_err());

    // The LSN of a name is unknown; the end is known.
    let name_of = Some(RecoveryTarget::Name("x".into()));
    let (_, doubtful) = prove(&archive, &set, false, &to(name_of.clone(), one)).unwrap();
    assert_eq!(doubtful, gap);
    assert!(prove(&archive, &set, false, &to(None, one)).is_err());
    let immediate = Some(RecoveryTarget::Immediate);
    assert_eq!(
        prove(&archive, &set, false, &to(immediate.clone(), one))
            .unwrap()
            .1,
        ""
    );
    assert!(prove(&archive, &log(1, 7, 9), false, &to(immediate.clone(), one)).is_err());
    assert!(prove(&archive, &log(1, 7, 9), true, &to(immediate.clone(), one)).is_ok());

    // A backup that holds its WAL ends in segment 8, which it may have in part: a recovery that continues gets a
    // warning.
    let mut own = log(1, 5, 8);
    own.last_lsn += 100;
    let in_part = |log: &LogRange, target: Option<RecoveryTarget>| {
        let reach = Reach::of(target.as_ref(), Lsn(log.last_lsn));
        archive
            .prove(log, true, &to(target, one), reach)
            .unwrap()
            .in_part
    };
    assert_eq!(in_part(&own, immediate), "");
    for target in [lsn(9), None, name_of.clone()] {
        assert_eq!(in_part(&own, target), gap);
    }
    // The archive does not reach that far, or the backup ends with a segment: no warning.
    let mut behind = log(1, 20, 30);
    behind.last_lsn += 100;
    assert_eq!(in_part(&behind, None), "");
    assert_eq!(in_part(&log(1, 5, 9), None), "");

    // A server that reads ahead meets the gap after a target, and neither the end of the archive nor what follows.
    let not_ahead = |log: &LogRange, target: Option<RecoveryTarget>| {
        let reach = Reach::of(target.as_ref(), Lsn(log.last_lsn));
        let proven = archive.prove(log, false, &to(target, one), reach);
        proven.unwrap().not_ahead
    };
    let immediate = Some(RecoveryTarget::Immediate);
    for target in [immediate.clone(), lsn(5), lsn(7), name_of.clone()] {
        assert!(not_ahead(&set, target));
    }
    let last = log(1, 10, 12);
    for target in [immediate, lsn(15), lsn(20), name_of.clone(), None] {
        assert!(!not_ahead(&last, target));
    }

    // The latest timeline is followed from each; 2 is interrupted between 30 and 40.
    let latest = TimelineChoice::Latest;
    let later = log(1, 9, 12);
    let error = prove(&archive, &later, false, &to(None, latest)).unwrap_err();
    let lost = format!("{} to {} (10)", name(2, 30), name(2, 39));
    assert!(error.to_string().contains(&lost), "{error}");
    assert!(prove(&archive, &log(3, 40, 41), false, &to(None, latest)).is_ok());
    // It ended after the LSN at which its timeline was left.
    let behind = prove(&archive, &log(1, 19, 21), false, &to(name_of, latest)).unwrap_err();
    assert!(matches!(behind, Error::OtherWay { followed, .. } if followed.number() == 3));
    let current = TimelineChoice::Current;
    assert!(prove(&archive, &log(1, 19, 21), false, &to(None, current)).is_ok());
    let mut other = set;
    other.system = 1;
    let error = prove(&archive, &other, false, &to(None, one)).unwrap_err();
    assert!(matches!(error, Error::OtherCluster { .. }));
    // A standby waits for WAL that is not there yet.
    let standby = Recovery {
        standby: true,
        ..to(lsn(90), current)
    };
    assert!(prove(&archive, &log(3, 40, 41), false, &standby).is_ok());
}

#[test]
fn the_latest_timeline_is_found_as_a_server_finds_it() {
    let disk = stage(&[(1, 0..1)]);
    let text = format!("1\t{}\tpromoted\n", place(10));
    // There is no history of 4: a server on 3 never reaches 5.
    push(&disk, "00000005.history".parse().unwrap(), text.as_bytes()).unwrap();
    let archive = archive(&disk).unwrap();
    let latest = |from| {
        let from = Timeline::new(from).unwrap();
        let way = archive.way(TimelineChoice::Latest, from).unwrap();
        way.timeline().number()
    };
    assert_eq!((latest(1), latest(2), latest(3), latest(5)), (3, 3, 3, 5));
}
