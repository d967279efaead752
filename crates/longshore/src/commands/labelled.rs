//! The same command with a label or a target added: printed when the user has to choose a backup.

use std::ffi::{OsStr, OsString};

use longshore_repository::Error;

use longshore_terminal::failure::Failure;
use longshore_terminal::text::command_line;

/// The failure; if several branches could be meant, its hint has the command for each.
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
            hint: format!("name one of them: {}", commands.join(" or ")),
            ..failure
        },
    }
}

/// The same arguments with this label.
pub fn with_label(args: impl Iterator<Item = OsString>, label: &str) -> Vec<OsString> {
    with(args, "--label", label)
}

/// The same command line with this target.
pub fn with_target(args: impl Iterator<Item = OsString>, target: &str) -> String {
    command_line(with(args, "--target", target))
}

fn with(args: impl Iterator<Item = OsString>, option: &str, value: &str) -> Vec<OsString> {
    let assigned = format!("{option}=");
    let (mut kept, mut is_value) = (Vec::new(), false);
    for arg in args {
        let is_own = is_value || arg.to_string_lossy().starts_with(&assigned);
        is_value = !is_own && arg == OsStr::new(option);
        if !is_own && !is_value {
            kept.push(arg);
        }
    }
    kept.extend([option.into(), value.into()]);
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
    fn arguments_that_a_shell_would_change_are_quoted() {
        let args = ["a b", "it's", "$HOME", "", "/plain/p%a-th_1.bak"];
        let line = command_line(args.map(OsString::from));
        assert_eq!(
            line,
            "longshore 'a b' 'it'\\''s' '$HOME' '' /plain/p%a-th_1.bak"
        );
    }
}
