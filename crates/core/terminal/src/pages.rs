//! Manual pages from the table of options.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::numbers;

/// Writes a page for each command and subcommand of which `has_page` says so. Hidden ones have none.
pub fn write(
    command: Command,
    dir: &Path,
    has_page: &dyn Fn(&Command) -> bool,
) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    all(&command, dir, has_page).map_err(|e| {
        Failure::usage(
            format!("cannot write manual pages to {}", dir.display()),
            "name an existing directory that you can write to",
        )
        .numbered(numbers::FILE_UNUSABLE)
        .because(e)
    })
}

fn all(command: &Command, dir: &Path, has_page: &dyn Fn(&Command) -> bool) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        all(sub, dir, has_page)?;
    }
    if has_page(command) {
        Man::new(command.clone()).generate_to(dir)?;
    }
    Ok(())
}
