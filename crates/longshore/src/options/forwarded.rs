//! Commands that another program has.
//!
//! Invariants
//! - The names and first lines are those of the other program's own help; its tests compare them.
//! - Nothing of such a command is parsed here: all that follows it is handed on.
//!
//! Leaves to others: starting the program (`commands`).

use std::ffi::OsString;

use clap::{Args, Command};

/// The constructor of the table's commands: nothing is started here.
type Subcommand = Command;

/// The studies that `lab` has, with the first lines of their help: what completions offer after `lab`.
const STUDIES: [(&str, &str); 12] = [
    (
        "sample",
        "Builds a SQLite database with realistic content, the same bytes on every run",
    ),
    (
        "sweep",
        "Repeats the published study: 37 backups over algorithms and stripes, or a grid of buffers",
    ),
    (
        "compare",
        "Compares algorithms and levels: time, CPU, size, ratio and speed-up over MS_XPRESS",
    ),
    (
        "network",
        "Measures whether the CPUs or the way to an object store limit a backup",
    ),
    (
        "bench",
        "Measures how close Longshore comes to this machine's limit",
    ),
    (
        "device-check",
        "Checks whether GPU compression works on this machine, and measures it",
    ),
    (
        "offload",
        "Measures software, the accelerator and both together, side by side",
    ),
    (
        "cache-figures",
        "Draws the published study of device-aware caching from the model: latencies, queries, policies",
    ),
    (
        "figure",
        "Makes one published figure or table again: ours, the published values, and whether they agree",
    ),
    (
        "figures",
        "Makes all 22 published figures and tables again, with an index page",
    ),
    (
        "oltp",
        "Measures what backups cost a database under load: transactions, latencies, and how long each backup takes",
    ),
    (
        "load",
        "Puts transactions on a database that has the tables of the sample tprocc or stae",
    ),
];

/// How the one line about such a command ends.
pub const MARK: &str = "(needs longshore-lab)";

/// Everything that follows the command, `--help` too, is the other program's.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct ForwardedArgs {
    /// Commands and options of longshore-lab.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// Whether another program has this command.
pub fn is_elsewhere(command: &Command) -> bool {
    let about = command.get_about().map(ToString::to_string);
    about.is_some_and(|about| about.ends_with(MARK))
}

/// The table of options as completions need it: with the names of the other program's studies.
pub fn with_studies(command: Command) -> Command {
    command.mut_subcommand("lab", |lab| {
        let study = |(name, about)| Subcommand::new(name).about(about).disable_help_flag(true);
        lab.subcommands(STUDIES.map(study))
    })
}

/// Whether `words`, those after the program's name, ask for help about a command that another program has:
/// `help lab bench`, `cache help grid`.
pub fn is_help(command: &Command, words: impl Iterator<Item = OsString>) -> bool {
    let mut at = command;
    let mut is_asked = false;
    for word in words {
        match at.find_subcommand(&word) {
            Some(next) => at = next,
            None if word == "help" && !is_asked => is_asked = true,
            None => return false,
        }
        if is_elsewhere(at) {
            return is_asked;
        }
    }
    false
}
