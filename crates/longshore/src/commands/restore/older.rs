//! What to restore instead where a database's backup cannot be read: the command, to be copied.

use longshore_repository::{Label, Shelf};

use crate::commands::labelled::with_label;
use crate::commands::{Context, command_line, devices};
use crate::failure::Failure;
use crate::options::Restore;

/// The failure with the newest backup that looks whole, of those before `label` or the latest, in its hint.
pub fn advised(failure: Failure, shelf: &Shelf, label: Option<&str>) -> Failure {
    match shelf.sound_before(label) {
        Ok(Some(older)) => Failure {
            hint: Some(hint(&older)),
            ..failure
        },
        // What else there is, the failure's own hint tells how to find.
        _ => failure,
    }
}

/// The same of the backup with this label, which a restore has begun with.
pub fn advised_of(
    failure: Failure,
    label: Option<&str>,
    options: &Restore,
    context: &Context,
) -> Failure {
    let (Some(database), Some(label)) = (&options.media.database, label) else {
        return failure;
    };
    let target = devices::target_of(context, options.media.target.as_deref(), database);
    let shelf = target.and_then(|target| devices::shelf(context, &target, database));
    match shelf {
        Ok(shelf) => advised(failure, &shelf, Some(label)),
        Err(_) => failure,
    }
}

fn hint(older: &Label) -> String {
    let command = command_line(with_label(std::env::args_os().skip(1), older.as_str()));
    format!("the newest one before it that looks whole: {command}")
}
