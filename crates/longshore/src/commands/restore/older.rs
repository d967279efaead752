//! What to restore instead where a database's backup cannot be read: the command, to be copied.

use std::ffi::{OsStr, OsString};

use longshore_repository::{Error, Label, Shelf};

use super::beginning::Beginning;
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

/// The same of what a restore has begun with.
pub fn advised_of(
    failure: Failure,
    beginning: &Beginning,
    options: &Restore,
    context: &Context,
) -> Failure {
    let (Some(database), Some(told)) = (&options.media.database, &beginning.told) else {
        return failure;
    };
    let target = devices::target_of(context, options.media.target.as_deref(), database);
    let shelf = target.and_then(|target| devices::shelf(context, &target, database));
    match shelf {
        Ok(shelf) => advised(failure, &shelf, Some(told.label())),
        Err(_) => failure,
    }
}

/// The failure; where several branches could be meant, with the command for each in its hint.
pub fn of_branch(error: Error) -> Failure {
    let commands: Vec<String> = match &error {
        Error::Branches { branches, .. } => branches
            .iter()
            .filter_map(|branch| branch.split(':').next())
            .map(|label| command_line(with_label(std::env::args_os().skip(1), label)))
            .collect(),
        _ => Vec::new(),
    };
    let failure = Failure::from(error);
    match commands.is_empty() {
        true => failure,
        false => Failure {
            hint: Some(format!(
                "name the one that you mean: {}",
                commands.join(" or ")
            )),
            ..failure
        },
    }
}

fn hint(older: &Label) -> String {
    let command = command_line(with_label(std::env::args_os().skip(1), older.as_str()));
    format!("the newest one before it that looks whole: {command}")
}

/// The same arguments with this label.
fn with_label(args: impl Iterator<Item = OsString>, label: &str) -> Vec<OsString> {
    let (mut kept, mut is_value) = (Vec::new(), false);
    for arg in args {
        let is_own = is_value || arg.to_string_lossy().starts_with("--label=");
        is_value = !is_own && arg == OsStr::new("--label");
        if !is_own && !is_value {
            kept.push(arg);
        }
    }
    kept.extend(["--label".into(), label.into()]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_takes_the_place_of_another() {
        for line in [
            "restore --database main --to d",
            "restore --label old --database main --to d",
            "restore --database main --label=old --to d",
        ] {
            let args = with_label(line.split(' ').map(OsString::from), "new");
            let line = command_line(args);
            assert_eq!(line, "longshore restore --database main --to d --label new");
        }
    }

    #[test]
    fn what_a_shell_would_change_is_quoted() {
        let args = ["a b", "it's", "$HOME", "", "/plain/p%a-th_1.bak"];
        let line = command_line(args.map(OsString::from));
        assert_eq!(
            line,
            "longshore 'a b' 'it'\\''s' '$HOME' '' /plain/p%a-th_1.bak"
        );
    }
}
