//! Commands about the program itself: `completions`, `man`. Package scripts start the program by its own name.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Prints a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_long_help = "\
Examples:
  longshore-lab completions bash > /etc/bash_completion.d/longshore-lab
  longshore-lab completions fish > ~/.config/fish/completions/longshore-lab.fish

Not for: an installation by `make install`, which puts them in place."
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
  longshore-lab man target/man

Not for: reading them: `longshore COMMAND --help` has the same text."
)]
pub struct Man {
    /// An existing directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
