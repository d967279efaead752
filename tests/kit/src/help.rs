//! The help of a program's options, judged for every command in the same way.

use clap::{Arg, Command};

/// Calls `each` for a command and all below it, with the words that lead to each.
pub fn walk(command: &Command, path: &str, each: &mut impl FnMut(&str, &Command)) {
    each(path, command);
    for sub in command.get_subcommands() {
        walk(sub, &format!("{path} {}", sub.get_name()), each);
    }
}

/// The options and arguments with a value that may be left out, by command and name, and those of them whose help does not
/// say what happens then. Commands that `skip` names are another program's.
pub fn without_a_word_of_leaving_out(
    command: &Command,
    path: &str,
    skip: impl Fn(&Command) -> bool,
) -> (usize, Vec<String>) {
    let may_be_left_out = |arg: &&Arg| {
        let is_given_anyway = arg.is_required_set() || !arg.get_default_values().is_empty();
        arg.get_action().takes_values() && !is_given_anyway
    };
    let (mut seen, mut silent) = (0, Vec::new());
    walk(command, path, &mut |path, command| {
        if skip(command) {
            return;
        }
        for arg in command.get_arguments().filter(may_be_left_out) {
            let help = arg.get_long_help().or_else(|| arg.get_help());
            let help = help.map(ToString::to_string).unwrap_or_default();
            let help = help.to_lowercase();
            if !help.contains("default") && !help.contains("without") {
                silent.push(format!("{path} {}", arg.get_id()));
            }
            seen += 1;
        }
    });
    (seen, silent)
}
