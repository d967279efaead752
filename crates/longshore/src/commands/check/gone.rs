//! The finding about a newest backup that was made here and is not at its target any longer.
//!
//! A target tells nothing of a backup whose directory or objects somebody removed: the older one is simply the newest. This machine's
//! history knows better.
//!
//! Invariants
//! - The newest complete backup of the history is looked for by its set, not by its label.
//! - A backup of which no history is at hand is not missed here.
//! - Where a good backup of later is at the target, another machine goes on with the database, and its retention may have removed this one.
//!
//! Leaves to others: backups whose stripes are missing under a label that is there (`check.rs`), and the history (`longshore-catalog`).

use longshore_catalog::{RunOutcome, RunRow, RunTask};
use longshore_repository::{BackupEntry, BackupState, Listing};
use longshore_terminal::output::moment;
use uuid::Uuid;

use super::notes::Notes;

/// `runs`: those of this machine's history about the database. `at`: the database, where the listing is from, and when its last good backup
/// ended, in microseconds since the Unix epoch.
pub fn look(runs: &[RunRow], listing: &Listing, at: (&str, &str, Option<i64>), notes: &mut Notes) {
    let (database, target, last_good_us) = at;
    let Some((run, set)) = newest(runs, target) else {
        return;
    };
    if last_good_us > Some(run.finish_us) {
        return;
    }
    let may_be = |entry: &BackupEntry| match &entry.state {
        BackupState::Complete(complete) => complete.header.set == set,
        BackupState::Foreign {
            shown: Some(shown), ..
        } => shown.header.set == set,
        // It cannot be told what it is, and other findings tell of it.
        _ => run.label.as_deref() == Some(entry.label.as_str()),
    };
    if listing.sets.iter().any(may_be) {
        return;
    }
    let label = run.label.as_deref().unwrap_or_default();
    let there = listing
        .sets
        .iter()
        .any(|entry| entry.label.as_str() == label);
    let what = match there {
        true => "is not under this label any longer: another backup is",
        false => "is not at the target any longer",
    };
    let text = format!(
        "{label}: the newest backup that this machine made, {} UTC, {what}. A restore would take an older one: find out who removed it, \
         and run `longshore backup {database} --target {target}`",
        moment(run.finish_us)
    );
    notes.bad("backup", text);
}

/// The newest run that completed a backup at this target, and its set.
fn newest<'a>(runs: &'a [RunRow], target: &str) -> Option<(&'a RunRow, Uuid)> {
    let is_good = |run: &RunRow| {
        let good = [RunOutcome::Good.word(), RunOutcome::Warnings.word()];
        good.contains(&run.outcome.as_str())
    };
    let is_here = |run: &&RunRow| {
        run.task == RunTask::Backup.word() && run.target.as_deref() == Some(target) && is_good(run)
    };
    let newest = runs
        .iter()
        .filter(is_here)
        .max_by_key(|run| run.finish_us)?;
    Some((newest, newest.set?))
}
