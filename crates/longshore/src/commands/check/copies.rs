//! Whether the backups of a database are at the targets of its copies, too.
//!
//! Invariants
//! - A backup, or WAL, that was made a moment ago may lack its copy: only what is older than the newest backup may be is told.
//! - A target that cannot be reached is something to look at: the backups themselves are where they should be.
//!
//! Leaves to others: which backups belong there (`longshore-repository`), and gaps in WAL (`info.rs`).

use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;
use longshore_repository::copying::{CopyStep, needs_archive, plan};
use longshore_repository::{BackupEntry, BackupState, Error, Listing, Shelf};
use longshore_wal::{Identity, WalArchive};

use super::super::info;
use super::super::results::age_text;
use super::super::{devices, shelves};
use super::depth::CheckDepth;
use super::keys;
use super::notes::{Notes, told};
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};

pub(super) fn look(
    shelf: &Shelf,
    listing: &Listing,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    for copy in context.config.copies_of(&shelf.database) {
        let there = devices::target(context, copy)
            .and_then(|target| {
                shelves::refuse_same(&shelf.target, &target, &shelf.database, context)?;
                Ok(devices::shelf(context, &target, &shelf.database)?.heeding(shelf))
            })
            .and_then(|there| Ok((there.list()?, there)));
        match there {
            Ok((found, there)) => {
                match shelf.told_apart(listing, (&there, &found)) {
                    Ok(None) => {}
                    Ok(Some(doubt)) => {
                        notes.look("copies", shelves::doubt_text(&doubt, (shelf, &there)));
                    }
                    Err(same @ Error::SamePlace { .. }) => {
                        notes.bad("copies", told(&Failure::from(same)));
                        continue;
                    }
                    Err(error) => notes.look("copies", told(&Failure::from(error))),
                }
                compare(copy, (shelf, listing), &found, depth, context, notes);
                bad(&there, (listing, &found), notes);
                keys::of_copies(&found, (copy, context), notes);
                wal(&there, &found, context, notes);
                behind(shelf, &there, depth, context, notes);
            }
            Err(failure) if failure.exit == Exit::Usage => notes.bad("copies", told(&failure)),
            Err(failure) => notes.look("copies", format!("{copy}: {}", told(&failure))),
        }
    }
}

fn compare(
    copy: &str,
    (shelf, listing): (&Shelf, &Listing),
    there: &Listing,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    let now_us = context.clock.wall_ns() / 1000;
    let database = &shelf.database;
    let policy = context.config.policy_of(database, Some(copy));
    let policy = policy.unwrap_or_default();
    let steps = plan(listing, there, &[], &policy, now_us).steps;
    let facts = listing.facts();
    let is_old = |i: &usize| {
        now_us.saturating_sub(facts[*i].finish_us) > i64::from(depth.max_age) * 3_600_000_000
    };
    let lacking = |step: &CopyStep| matches!(step, CopyStep::Copy { .. });
    let late: Vec<usize> = (0..steps.len())
        .filter(|i| lacking(&steps[*i]))
        .filter(is_old)
        .collect();
    if let Some(first) = late.first() {
        let age = age_text(now_us.saturating_sub(facts[*first].finish_us) / 1_000_000);
        notes.look(
            "copies",
            format!(
                "{copy} lacks {} backups, the oldest {}, complete {age} ago; run `longshore copy {database} --to {copy}`",
                late.len(),
                facts[*first].label
            ),
        );
    }
    for (i, step) in steps.iter().enumerate() {
        if let CopyStep::Blocked(why) = step {
            let label = &facts[i].label;
            notes.look("copies", format!("{label} is not copied to {copy}: {why}"));
        }
    }
    let broken = there.sets.iter().filter(|set| {
        let state = &set.state;
        matches!(
            state,
            BackupState::Missing { .. } | BackupState::Lost { .. } | BackupState::Damaged { .. }
        )
    });
    for set in broken {
        let what = set.state.text();
        notes.bad("copies", format!("{copy}: {}: {what}", set.label));
    }
    if late.is_empty() {
        let copied = |step: &&CopyStep| matches!(step, CopyStep::There(_));
        let count = steps.iter().filter(copied).count();
        let all = facts.iter().filter(|set| set.is_whole()).count();
        notes.good("copies", format!("{copy}: {count} of {all} backups"));
    }
}

/// Copies that a verification or a drill found not to be good. The next copy takes them for there.
fn bad(there: &Shelf, (listing, found): (&Listing, &Listing), notes: &mut Notes) {
    let (copy, database) = (&there.target.name, &there.database);
    let set_of = |set: &BackupEntry| set.complete().map(|complete| complete.header.set);
    let is_bad_here = |other: &BackupEntry| {
        let mut here = listing.sets.iter().filter(|set| set.found_bad.is_some());
        here.any(|set| set_of(set) == set_of(other))
    };
    for set in &found.sets {
        let Some(what) = &set.found_bad else { continue };
        let label = &set.label;
        let is_content = there.is_content_bad(set);
        // The finding on the backup itself says it all.
        if is_content && is_bad_here(set) {
            continue;
        }
        let text = match is_content {
            true => format!(
                "{copy}: {label} {what}, and each copy of it has the same content, so no rule counts it. Make a full backup (`longshore backup \
                 {database}`)"
            ),
            false => format!(
                "{copy}: {label} {what}. Verify it again (`longshore verify --database {database} --target {copy} --label {label}`); \
                 if it stays damaged, remove what is under this label there by hand, and run `longshore copy {database} --to {copy}`"
            ),
        };
        notes.bad("copies", text);
    }
}

/// Whether the second target's WAL ends long before the first one's: what came since would be lost with the first.
fn behind(shelf: &Shelf, there: &Shelf, depth: &CheckDepth, context: &Context, notes: &mut Notes) {
    // An archive that cannot be read is told where it is looked at by itself.
    let (Ok(Some(here)), Ok(Some(copied))) = (shelf.wal(), there.wal()) else {
        return;
    };
    let copy = &there.target.name;
    let identities = (here.identity(), copied.identity());
    if let Some(text) = of_another_cluster(copy, identities, &shelf.database) {
        return notes.bad("copies", text);
    }
    let lacking = match first_lacking(&here, &copied) {
        Ok(lacking) => lacking,
        Err(e) => return notes.look("copies", format!("{copy}: {}", told(&Failure::from(e)))),
    };
    let now_us = context.clock.wall_ns() / 1000;
    let age_us = |at_us: i64| now_us.saturating_sub(at_us);
    let is_late = |at_us: &i64| age_us(*at_us) > i64::from(depth.max_age) * 3_600_000_000;
    if let Some((name, at_us)) = lacking.filter(|(_, at_us)| is_late(at_us)) {
        let age = age_text(age_us(at_us) / 1_000_000);
        let database = &shelf.database;
        notes.look(
            "copies",
            format!(
                "{copy} lacks the WAL from {name} on, which was archived {age} ago: with target {} all since would be lost; run \
                 `longshore copy {database} --to {copy}`",
                shelf.target.name
            ),
        );
    }
}

/// The finding on a copy's archive that is another cluster's: segments of one name in both are no copies then, and one that only the
/// other has is not lacking. An archive that is nobody's yet is no finding.
fn of_another_cluster(
    copy: &str,
    (own, other): (Option<Identity>, Option<Identity>),
    database: &str,
) -> Option<String> {
    let (own, other) = (own?.system, other?.system);
    (own != other).then(|| {
        format!(
            "{copy} has the WAL of cluster {other}, and this is cluster {own}: none of it is a copy; run `longshore info \
             {database}` for each target"
        )
    })
}

/// The oldest segment of an archive that comes after the end of its copy, and when it was archived. Of timelines before the
/// copy's newest one, an archive may have what no backup at the copy needs.
fn first_lacking(
    here: &WalArchive,
    copied: &WalArchive,
) -> Result<Option<(SegmentName, i64)>, Error> {
    let (Some(identity), there) = (here.identity(), copied.runs()?) else {
        return Ok(None);
    };
    let Some(newest) = there.iter().map(|run| run.span.last.timeline).max() else {
        return Ok(None);
    };
    let mut lacking: Vec<SegmentName> = Vec::new();
    for run in here.runs()? {
        let timeline = run.span.last.timeline;
        let of_it = there
            .iter()
            .filter(|run| run.span.last.timeline == timeline);
        let next = of_it
            .map(|run| run.span.last.next(identity.segment_size))
            .max();
        let from = next.map_or(run.span.first, |next| next.max(run.span.first));
        if timeline >= newest && from <= run.span.last {
            lacking.push(from);
        }
    }
    let at_us = |name: SegmentName| -> Result<_, Error> {
        let file = here.open_file(WalName::Segment(name))?;
        Ok((name, file.stat().mtime_ns / 1000))
    };
    lacking.into_iter().min().map(at_us).transpose()
}

/// Whether the second target has the WAL that its backups need, and of one branch.
fn wal(there: &Shelf, found: &Listing, context: &Context, notes: &mut Notes) {
    let copy = &there.target.name;
    let (texts, both) = shelves::mixed(found);
    for text in texts {
        let text = format!("{copy}: {text}");
        match both {
            true => notes.bad("copies", text),
            false => notes.look("copies", text),
        }
    }
    let known = match info::database(there, found, context) {
        Ok(known) => known,
        Err(failure) => {
            notes.bad("copies", format!("{copy}: {}", told(&failure)));
            return;
        }
    };
    if let Some(word) = &known.stopped {
        let text = format!(
            "{copy}: no copy or expire begins there: stopped {word}; `longshore start {} --target {copy}` allows them again",
            known.database
        );
        notes.look("copies", text);
    }
    match &known.wal {
        None if found.sets.iter().any(needs_archive) => notes.bad(
            "copies",
            format!("{copy} has backups that need WAL, and no archive of it"),
        ),
        None => {}
        Some(wal) => {
            for gap in &wal.gaps {
                notes.bad("copies", format!("{copy} lacks WAL: {gap}"));
            }
            for lost in &wal.lost {
                let text = format!("{copy}: {}: no recovery from there crosses it", lost.told);
                notes.bad("copies", text);
            }
            for label in &wal.inconsistent {
                notes.bad("copies", format!("{copy} lacks WAL that {label} needs"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_pg::SegmentSize;

    use super::*;

    /// Goal: WAL of another cluster is never counted as a copy, however its segments are called.
    #[test]
    fn the_wal_of_two_clusters_is_told_with_both_and_compared_no_further() {
        let of = |system| {
            let segment_size = SegmentSize::new(16 << 20).unwrap();
            Some(Identity {
                system,
                segment_size,
            })
        };
        let told = |own, other| of_another_cluster("far", (own, other), "main");
        let text = told(of(7), of(9)).unwrap();
        for part in [
            "far has the WAL of cluster 9",
            "this is cluster 7",
            "longshore info main",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(told(of(7), of(7)), None);
        assert_eq!(told(of(7), None), None, "nobody's yet");
        assert_eq!(told(None, of(7)), None, "nobody's yet");
    }
}
