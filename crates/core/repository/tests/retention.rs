//! Goal: retention keeps every backup that the rules cover, and all that those need.
//! Method: a model judges generated sets: sets as a plain list, restorability by walking parents, WAL by segments of 16
//! bytes. The model says what must hold after a removal; it shares nothing with the code except the facts that it
//! judges.
//! Not covered: the division of sets into branches.

use longshore_pg::Lsn;
use longshore_repository::chain::{Health, SetFacts};
use longshore_repository::identity::Identity;
use longshore_repository::retention::{Policy, decide};
use longshore_repository::{BackupKind, Label};
use longshore_wal::LogRange;
use proptest::prelude::*;
use uuid::Uuid;

const DAY_US: i64 = 86_400_000_000;
const NOW_US: i64 = 100 * DAY_US;
const SEGMENT: u64 = 16;

#[derive(Debug, Clone)]
struct Sketch {
    day: i64,
    hours: i64,
    health: u8,
    /// Index of the earlier set that it is compared with; `None`: a full backup.
    parent: Option<usize>,
    copy_only: bool,
    unexpired: bool,
    in_use: bool,
    system: u64,
    timeline: u32,
    /// How many times its timeline changed while it was made.
    promotions: u32,
    log: (u64, u64),
}

/// Sets are from the clusters with smaller numbers.
const SYSTEMS: u64 = 3;

fn sketch() -> impl Strategy<Value = Sketch> {
    (
        // Some begin in the future: a clock was wrong.
        (60i64..103, 0i64..30, 0u8..24),
        prop::option::weighted(0.45, 0usize..12),
        (
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.06),
            prop::bool::weighted(0.06),
        ),
        (1..SYSTEMS, 1u32..4, 0u64..40, 0u64..6, 0u32..3),
    )
        .prop_map(
            |((day, hours, health), parent, (copy_only, unexpired, in_use), log)| Sketch {
                day,
                hours,
                health,
                parent,
                copy_only,
                unexpired,
                in_use,
                system: log.0,
                timeline: log.1,
                promotions: log.4,
                log: (log.2 * 7, log.3 * 7),
            },
        )
}

fn sets(sketches: &[Sketch]) -> Vec<SetFacts> {
    let mut sets: Vec<SetFacts> = Vec::new();
    for (i, s) in sketches.iter().enumerate() {
        let parent = s.parent.filter(|_| i > 0).map(|p| sets[p % i].clone());
        let kind = if parent.is_some() {
            BackupKind::Differential
        } else {
            BackupKind::Full
        };
        let start_us = s.day * DAY_US;
        let id = Uuid::new_v4();
        sets.push(SetFacts {
            label: Label::new(start_us, kind),
            health: match s.health {
                0 => Health::Broken,
                1 => Health::Abandoned,
                2 => Health::Writing,
                3 => Health::Unknown,
                4 => Health::Removing,
                5 => Health::Foreign,
                10 => Health::Missing,
                6..=8 => Health::Whole { clean: false },
                _ => Health::Whole { clean: true },
            },
            kind,
            id: Some(id),
            // Sometimes a parent that does not exist.
            parent: parent.map(|p| p.id.filter(|_| s.health != 9).unwrap_or(id)),
            copy_only: s.copy_only,
            start_us,
            finish_us: start_us + s.hours * DAY_US / 24,
            plain_bytes: 0,
            expires_us: s.unexpired.then_some(NOW_US + 1),
            log: Some(LogRange {
                system: s.system,
                first_timeline: s.timeline,
                first_lsn: s.log.0,
                last_timeline: s.timeline + s.promotions,
                last_lsn: s.log.0 + s.log.1,
            }),
            identity: Identity::default(),
            in_use: s.in_use,
            is_degraded: matches!(s.health, 11..=14),
            found_bad: false,
            leads: false,
        });
    }
    settle(&mut sets);
    sets
}

/// Gives the sets of each cluster LSNs and timelines in the order of their times: one branch for each. Other tests
/// cover the division of sets into branches.
fn settle(sets: &mut [SetFacts]) {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    for (rank, i) in order.into_iter().enumerate() {
        let log = sets[i].log.as_mut().unwrap();
        let len = log.last_lsn - log.first_lsn;
        log.first_lsn = rank as u64 * 37;
        log.last_lsn = log.first_lsn + len;
        log.first_timeline = 1 + rank as u32 / 4;
        log.last_timeline = log.first_timeline;
    }
}

fn restorable(sets: &[SetFacts], set: &SetFacts) -> bool {
    let mut at = set;
    for _ in 0..=sets.len() {
        if !at.is_whole() {
            return false;
        }
        let Some(parent) = at.parent else {
            return true;
        };
        let system = at.log.map(|l| l.system);
        let next = sets.iter().find(|s| s.id == Some(parent));
        match next {
            Some(next) if next.log.map(|l| l.system) == system => at = next,
            _ => return false,
        }
    }
    false
}

/// All sets from this one down, restorable or not.
fn down(sets: &[SetFacts], set: &SetFacts) -> Vec<Uuid> {
    let mut ids = Vec::new();
    let mut next = Some(set);
    while let Some(at) = next {
        if ids.contains(&at.id.unwrap()) {
            break;
        }
        ids.push(at.id.unwrap());
        next = sets.iter().find(|s| s.id == at.parent && s.id.is_some());
    }
    ids
}

fn is_counted(sets: &[SetFacts], s: &SetFacts) -> bool {
    s.kind == BackupKind::Full && !s.copy_only && restorable(sets, s) && !is_ahead(s)
}

fn is_ahead(s: &SetFacts) -> bool {
    s.start_us > NOW_US
}

fn is_of(s: &SetFacts, system: u64) -> bool {
    s.log.is_some_and(|log| log.system == system)
}

/// Full backups of a cluster that count, newest first.
fn counted(sets: &[SetFacts], system: u64) -> Vec<&SetFacts> {
    let mut all: Vec<_> = sets
        .iter()
        .filter(|s| is_counted(sets, s) && is_of(s, system))
        .collect();
    all.sort_by(|a, b| (b.start_us, &b.label).cmp(&(a.start_us, &a.label)));
    all
}

/// The full backup from which a database at that moment is restored.
fn base_at(sets: &[SetFacts], system: u64, at_us: i64) -> Option<Uuid> {
    let before = counted(sets, system)
        .into_iter()
        .filter(|s| s.finish_us <= at_us);
    before.max_by_key(|s| (s.finish_us, s.label.clone()))?.id
}

fn is_protected(s: &SetFacts) -> bool {
    s.in_use
        || matches!(
            s.health,
            Health::Writing | Health::Missing | Health::Unknown | Health::Foreign
        )
        || (s.is_whole() && (is_ahead(s) || s.expires_us.is_some_and(|e| e > NOW_US)))
}

fn clean_chain(sets: &[SetFacts], s: &SetFacts) -> bool {
    let ids = down(sets, s);
    let clean = |id: &Uuid| sets.iter().any(|s| s.id == Some(*id) && s.is_clean());
    restorable(sets, s) && ids.iter().all(clean) && !is_ahead(s)
}

/// Whether parity holds neither it nor what it needs together.
fn safe_chain(sets: &[SetFacts], s: &SetFacts) -> bool {
    let ids = down(sets, s);
    let safe = |id: &Uuid| sets.iter().any(|s| s.id == Some(*id) && !s.is_degraded);
    clean_chain(sets, s) && ids.iter().all(safe)
}

/// The newest good set of a cluster, and the newest that parity does not hold together.
fn last(sets: &[SetFacts], system: u64) -> impl Iterator<Item = &SetFacts> {
    let newest = move |good: fn(&[SetFacts], &SetFacts) -> bool| {
        let good = sets
            .iter()
            .filter(move |s| good(sets, s) && is_of(s, system));
        good.max_by_key(|s| (s.start_us, s.label.clone()))
    };
    [newest(clean_chain), newest(safe_chain)]
        .into_iter()
        .flatten()
}

fn policies() -> impl Strategy<Value = Policy> {
    let some = |max| prop::option::of(1u32..max);
    (some(5), some(40), some(3)).prop_map(|(keep_full, keep_days, keep_wal)| Policy {
        keep_full,
        keep_days,
        keep_wal,
        counts_emptied: false,
    })
}

fn check(sets: &[SetFacts], policy: &Policy) -> Result<(), TestCaseError> {
    let decision = decide(sets, policy, NOW_US);
    let after: Vec<SetFacts> = (0..sets.len())
        .filter(|i| decision.is_kept(*i))
        .map(|i| sets[i].clone())
        .collect();
    let survives = |id: Uuid| after.iter().any(|s| s.id == Some(id));
    let was_restorable = |s: &SetFacts| restorable(sets, s);

    for s in &after {
        prop_assert!(
            !was_restorable(s) || restorable(&after, s),
            "lost what it needs: {}",
            s.label
        );
    }
    for s in sets.iter().filter(|s| is_protected(s)) {
        for id in down(sets, s) {
            let Some(other) = sets.iter().find(|o| o.id == Some(id)) else {
                continue;
            };
            // A backup that is being removed can no longer be used, except by a program that already uses it.
            let gone = other.health == Health::Removing && !other.in_use && other.id != s.id;
            prop_assert!(
                survives(id) || gone,
                "{} is needed by {}",
                other.label,
                s.label
            );
        }
    }
    let is_idle = (1..SYSTEMS).all(|system| counted(sets, system).is_empty());
    if is_idle || policy.is_empty() {
        let stay = sets
            .iter()
            .filter(|s| s.health != Health::Removing || s.in_use)
            .count();
        prop_assert!(after.len() >= stay);
        return Ok(());
    }
    for system in 1..SYSTEMS {
        check_rules(sets, &after, policy, system)?;
    }
    // At no moment of the removal does a backup exist without those that it needs.
    let mut standing = sets.to_vec();
    for i in decision.removals(sets) {
        standing.retain(|s| s.id != sets[i].id);
        for s in &standing {
            prop_assert!(
                !was_restorable(s) || restorable(&standing, s),
                "{} too early",
                sets[i].label
            );
        }
    }
    prop_assert_eq!(standing.len(), after.len());
    let again = decide(&after, policy, NOW_US);
    prop_assert!(
        (0..after.len()).all(|i| again.is_kept(i)),
        "a second run removes more"
    );
    check_log(sets, &after, policy)
}

/// Checks which backups the rules keep from one cluster.
fn check_rules(
    sets: &[SetFacts],
    after: &[SetFacts],
    policy: &Policy,
    system: u64,
) -> Result<(), TestCaseError> {
    let survives = |id: Uuid| after.iter().any(|s| s.id == Some(id));
    for last in last(sets, system) {
        prop_assert!(survives(last.id.unwrap()), "the last good one is gone");
    }
    let counted = counted(sets, system);
    if counted.is_empty() {
        for s in sets.iter().filter(|s| is_of(s, system) && s.is_whole()) {
            prop_assert!(
                survives(s.id.unwrap()),
                "of {system} no full backup is whole"
            );
        }
        return Ok(());
    }
    // Rules keep exactly what they promise.
    let by_count = policy.keep_full.unwrap_or(0) as usize;
    let newest = counted.iter().map(|s| s.finish_us).max();
    let cut = policy.keep_days.map(|d| {
        let span = i64::from(d) * DAY_US;
        // If nothing was finished in these days, the days before the newest backup count.
        let end = newest.filter(|newest| *newest <= NOW_US - span);
        let end = end.unwrap_or(NOW_US);
        end - span - not_counted(&counted, end, span)
    });
    let bases: Vec<Uuid> = cut
        .map(|cut| {
            let moments = sets
                .iter()
                .map(|s| s.finish_us)
                .filter(|t| *t > cut)
                .chain([cut]);
            moments.filter_map(|t| base_at(sets, system, t)).collect()
        })
        .unwrap_or_default();
    let needed: Vec<Uuid> = sets
        .iter()
        .filter(|s| is_protected(s))
        .chain(last(sets, system))
        .flat_map(|s| down(sets, s))
        .collect();
    for (n, s) in counted.iter().enumerate() {
        let id = s.id.unwrap();
        let recent = cut.is_some_and(|cut| s.finish_us > cut);
        let wanted = n < by_count || recent || bases.contains(&id);
        if wanted {
            prop_assert!(survives(id), "a rule keeps {}", s.label);
        } else if survives(id) {
            // A restorable or unfinished backup that depends on it may keep it.
            let hung = after
                .iter()
                .any(|o| o.id != s.id && o.parent.is_some() && down(sets, o).contains(&id));
            prop_assert!(
                needed.contains(&id) || hung,
                "{} stays for no reason",
                s.label
            );
        }
    }
    if let Some(cut) = cut {
        for t in sets
            .iter()
            .map(|s| s.finish_us)
            .filter(|t| *t >= cut)
            .chain([cut, NOW_US])
        {
            prop_assert_eq!(base_at(sets, system, t), base_at(after, system, t));
        }
    }
    Ok(())
}

/// By definition: the newest stretch without backups that is more than four times any other among the days that are
/// kept if it is removed from the calendar.
fn not_counted(counted: &[&SetFacts], end: i64, span: i64) -> i64 {
    let mut moments: Vec<i64> = counted.iter().map(|s| s.finish_us.min(end)).collect();
    moments.sort();
    moments.push(end);
    for newer in (1..moments.len()).rev() {
        let stretch = moments[newer] - moments[newer - 1];
        // The calendar without it.
        let taken_out = moments.iter().enumerate().map(|(i, at)| match i < newer {
            true => at + stretch,
            false => *at,
        });
        let days: Vec<i64> = taken_out.filter(|at| *at > end - span).collect();
        let begins_within = moments[newer] > end - span;
        let rest: Vec<i64> = days.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // One of them is the stretch itself, now 0, and one the time since the newest.
        let is_known = rest.len() > if newer + 1 == moments.len() { 1 } else { 2 };
        let longest = rest.iter().copied().max().unwrap_or(0);
        if begins_within && is_known && stretch > 4 * longest {
            return stretch;
        }
    }
    0
}

/// Where the WAL of the newest good full backups begins, and that of the newest good ones of any kind.
fn good_firsts(sets: &[SetFacts], system: u64) -> Vec<u64> {
    let counted = counted(sets, system);
    let full = [
        counted.iter().find(|s| clean_chain(sets, s)),
        counted.iter().find(|s| safe_chain(sets, s)),
    ];
    let full = full.into_iter().flatten().copied();
    let all = full.chain(last(sets, system));
    all.map(|s| s.log.unwrap().first_lsn).collect()
}

fn check_log(sets: &[SetFacts], after: &[SetFacts], policy: &Policy) -> Result<(), TestCaseError> {
    let need = decide(sets, policy, NOW_US).log;
    let knows_no_need = |s: &SetFacts| {
        let never_complete = matches!(s.health, Health::Abandoned | Health::Removing);
        // The headers of a foreign one are read here, so its need is one of `own`.
        let is_known = s.is_whole() || s.health == Health::Foreign;
        !is_known && (s.in_use || !never_complete)
    };
    let frozen = after.iter().any(knows_no_need);
    for system in 1..=SYSTEMS {
        let own: Vec<_> = after
            .iter()
            .filter(|s| s.log.unwrap().system == system)
            .collect();
        let shows_cluster = own.iter().any(|s| s.health != Health::Foreign);
        let firsts = || own.iter().map(|s| s.log.unwrap().first_lsn);
        let newest: Vec<u64> = counted(after, system)
            .iter()
            .map(|s| s.log.unwrap().first_lsn)
            .collect();
        let from = match policy.keep_wal {
            _ if !shows_cluster => None,
            Some(n) if !newest.is_empty() => {
                let newest = newest.iter().take(n as usize).copied();
                newest.chain(good_firsts(after, system)).min()
            }
            _ => firsts().min(),
        };
        for timeline in 1..7 {
            for start in (0..480).step_by(SEGMENT as usize) {
                let end = start + SEGMENT;
                let wanted = own.iter().any(|s| {
                    let log = s.log.unwrap();
                    // Replay reads every byte from the first to the last.
                    (log.first_timeline..=log.last_timeline).contains(&timeline)
                        && (log.first_lsn..=log.last_lsn).any(|b| (start..end).contains(&b))
                }) || from.is_none_or(|from| end > from);
                let got = need.needs(system, timeline, Lsn(start), Lsn(end));
                prop_assert!(
                    got || !(wanted || frozen),
                    "{system} {timeline} {start} is lost"
                );
                prop_assert!(
                    !got || wanted || frozen,
                    "{system} {timeline} {start} stays for nothing"
                );
            }
        }
    }
    Ok(())
}

/// A full backup of a database without WAL.
fn full(at_us: i64) -> SetFacts {
    SetFacts {
        label: Label::new(at_us, BackupKind::Full),
        health: Health::Whole { clean: true },
        kind: BackupKind::Full,
        id: Some(Uuid::new_v4()),
        parent: None,
        copy_only: false,
        start_us: at_us,
        finish_us: at_us,
        plain_bytes: 0,
        expires_us: None,
        log: None,
        identity: Identity::default(),
        in_use: false,
        is_degraded: false,
        found_bad: false,
        leads: false,
    }
}

fn cases() -> u32 {
    std::env::var("LONGSHORE_CASES").map_or(6000, |n| n.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn kept_backups_can_be_restored_and_removed_ones_are_not_needed(
        sketches in prop::collection::vec(sketch(), 0..12),
        policy in policies(),
    ) {
        check(&sets(&sketches), &policy)?;
    }

    /// A night with a clock that is ahead, with its backup and its expire, costs nothing that the rules otherwise
    /// keep; if the clock is ahead by little more than the usual interval of backups, it costs at most that much.
    #[test]
    fn a_clock_that_is_ahead_for_a_night_costs_no_backup(
        hours in prop::collection::vec(24i64..=72, 1..45),
        keep_days in 10u32..40,
        ahead in 0i64..20_000,
    ) {
        const HOUR_US: i64 = DAY_US / 24;
        let policy = Policy { keep_days: Some(keep_days), ..Policy::default() };
        let moments = hours.iter().scan(0, |at, gap| {
            *at += gap * HOUR_US;
            Some(*at)
        });
        let mut sets: Vec<SetFacts> = moments.map(full).collect();
        let now = sets.last().unwrap().finish_us + HOUR_US;
        let before = decide(&sets, &policy, now);
        let count = sets.len();
        let then = now + ahead * HOUR_US;
        sets.push(full(then));
        let after = decide(&sets, &policy, then + HOUR_US);
        let longest = hours.iter().skip(1).max().copied().unwrap_or(0);
        let cost = if ahead >= 4 * longest { 0 } else { (ahead + 1) * HOUR_US };
        let first_day = now - i64::from(keep_days) * DAY_US + cost;
        for i in (0..count).filter(|i| before.is_kept(*i)) {
            let spent = cost > 0 && sets[i].finish_us <= first_day;
            prop_assert!(spent || after.is_kept(i), "{} of {count}", i);
        }
        // The clock is right again: backups from the future do not count.
        let found = decide(&sets, &policy, now);
        prop_assert!((0..count).all(|i| before.is_kept(i) == found.is_kept(i)) || ahead == 0);
    }
}
