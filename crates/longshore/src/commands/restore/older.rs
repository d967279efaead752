//! The alternative if a database's backup cannot be read: the command that restores an older one, ready to copy.

use longshore_repository::{Label, Shelf};

use crate::commands::devices;
use crate::commands::labelled::with_label;
use crate::context::Context;
use crate::options::Restore;
use longshore_terminal::failure::Failure;
use longshore_terminal::text::command_line;

/// The failure; its hint names the newest backup that looks intact among those before `label` or the latest.
pub fn advised(failure: Failure, shelf: &Shelf, label: Option<&str>) -> Failure {
    match shelf.sound_before(label) {
        Ok(Some(older)) => Failure {
            hint: hint(&older),
            ..failure
        },
        // For anything else, the failure's own hint tells how to find it.
        _ => failure,
    }
}

/// The same for the backup with this label, which a restore has started to read.
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
    format!("restore the newest earlier backup that looks complete with: {command}")
}
