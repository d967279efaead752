//! The same command again with a label: what is printed where a backup has to be chosen.

use std::ffi::{OsStr, OsString};

use longshore_repository::Error;

use super::command_line;
use crate::failure::Failure;

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

/// The same arguments with this label.
pub fn with_label(args: impl Iterator<Item = OsString>, label: &str) -> Vec<OsString> {
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
