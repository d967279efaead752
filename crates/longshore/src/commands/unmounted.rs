//! Refuses a target whose directories have nothing of a database, not even its directory, although this machine's history knows of its
//! backups there: their file systems may not be mounted, and the disk below would be filled.
//!
//! Invariants
//! - The database's own directory is the mark. An operator who makes it by hand says that an empty disk is meant.
//! - Without a history, a target is taken for a new one.
//!
//! Leaves to others: directories of which only some are bare (`longshore-repository`), and the history (`longshore-catalog`).

use std::path::Path;

use longshore_catalog::{RunOutcome, RunRow, RunTask};
use longshore_repository::{Error, Shelf};

use super::remembered::{history, runs_of};
use crate::context::Context;
use longshore_terminal::failure::Failure;

/// `task`: what has filled the target, backups or copies.
///
/// Errors: [`Error::NotMounted`]; a directory that cannot be read.
pub fn refuse(shelf: &Shelf, task: RunTask, context: &Context) -> Result<(), Failure> {
    let Some(home) = shelf.bare_home()? else {
        return Ok(());
    };
    let Some(history) = history(context) else {
        return Ok(());
    };
    let places = shelf.target.texts();
    // Another configuration may have a target of the same name elsewhere. Of copies, the history does not know where they lie.
    let is_here = |run: &RunRow| {
        let made = run
            .set
            .and_then(|set| history.backup_of(set).ok().flatten());
        made.is_none_or(|made| {
            let mut devices = made.devices.iter();
            devices.any(|device| {
                places
                    .iter()
                    .any(|place| Path::new(device).starts_with(place))
            })
        })
    };
    let done = [RunOutcome::Good.word(), RunOutcome::Warnings.word()];
    let has_filled = |run: &RunRow| {
        run.task == task.word()
            && run.target.as_deref() == Some(shelf.target.name.as_str())
            && (run.label.is_some() || run.bytes.is_some_and(|bytes| bytes > 0))
            && done.contains(&run.outcome.as_str())
            && is_here(run)
    };
    match runs_of(&shelf.database, context).iter().any(has_filled) {
        true => Err(Error::NotMounted {
            target: shelf.target.name.clone(),
            home,
        }
        .into()),
        false => Ok(()),
    }
}
