//! The alternative if a database's backup cannot be read: the command that restores an older one, ready to copy.

use longshore_repository::{Label, Shelf};

use crate::commands::labelled::{with_label, with_target};
use crate::commands::{devices, elsewhere};
use crate::context::Context;
use crate::options::Restore;
use longshore_terminal::failure::Failure;
use longshore_terminal::text::command_line;

/// The failure; its hint names a whole copy of the backup `label`, else the newest backup that looks intact among those
/// before it, or before the latest.
pub fn advised(failure: Failure, shelf: &Shelf, label: Option<&str>, context: &Context) -> Failure {
    if let Some(label) = label
        && let Some(target) = elsewhere::copy_of(shelf, label, context)
    {
        let args = std::env::args_os().skip(1);
        let command = with_target(with_label(args, label).into_iter(), &target);
        let hint =
            format!("target {target} has a copy of it that nothing found damaged: {command}");
        return Failure { hint, ..failure };
    }
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
        Ok(shelf) => advised(failure, &shelf, Some(label), context),
        Err(_) => failure,
    }
}

/// The command that restores an older backup.
pub fn hint(older: &Label) -> String {
    let command = command_line(with_label(std::env::args_os().skip(1), older.as_str()));
    format!("restore the newest earlier backup that looks complete with: {command}")
}
