//! Commands about the program itself: `config`, `completions`, `man`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// Checks the configuration.
#[derive(Debug, Args)]
pub struct Config {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Reads the configuration and shows what it holds.
    ///
    /// Unknown keys, unreadable values and names that are not defined are refused with file and line, as by a backup;
    /// exit code 2.
    #[command(after_long_help = "\
Example:
  longshore config check --config longshore.toml

Not for: finding out whether disks are mounted or databases exist; `longshore backup NAME --to nul:`
tries that.")]
    Check,
}

/// Prints a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_long_help = "\
Examples:
  longshore completions bash > /etc/bash_completion.d/longshore
  longshore completions fish > ~/.config/fish/completions/longshore.fish

Not for: an installation by `make install`, which installs completions, too."
)]
pub struct Completions {
    /// bash, elvish, fish, powershell or zsh.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Writes the manual pages to a directory.
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_long_help = "\
Example:
  longshore man target/man

Not for: reading them: `longshore COMMAND --help` has the same text."
)]
pub struct Man {
    /// An existing directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
