//! `completions`, `man`: about the program itself.

use clap::CommandFactory;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::pages;

use crate::context::Context;
use crate::options::{Cli, Completions, Man};

pub fn completions(options: &Completions, context: &Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        options.shell,
        &mut Cli::command(),
        "longshore-lab",
        &mut script,
    );
    context.output.raw(&script);
    Ok(Exit::Done)
}

/// Pages of the commands as people type them: `longshore-lab-bench` is that of `longshore lab bench`.
pub fn man(options: &Man) -> Result<Exit, Failure> {
    let command = Cli::command().display_name("longshore");
    pages::write(command, &options.dir, &|command| {
        // `longshore` writes its own page and that of `longshore cache`.
        let page = command.get_display_name().unwrap_or_default();
        !matches!(page, "longshore" | "longshore-cache")
    })?;
    Ok(Exit::Done)
}
