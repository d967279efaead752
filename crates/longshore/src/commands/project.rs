//! `config check`, `completions`, `man`: about the program, not about backups.

use clap::CommandFactory;
use serde::Serialize;

use super::Context;
use crate::config::Facts;
use crate::failure::{Exit, Failure};
use crate::options::{Cli, Completions, Config, ConfigAction, Man};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    #[serde(flatten)]
    config: Facts,
    catalog: Option<String>,
}

/// Loading the configuration was the check.
pub fn config(options: &Config, context: &Context) -> Result<Exit, Failure> {
    let ConfigAction::Check = options.action;
    let facts = context.config.facts();
    let catalog = context.catalog.as_ref().map(|p| p.display().to_string());
    let named = |names: &[String]| match names {
        [] => "none".to_owned(),
        _ => names.join(", "),
    };
    context.output.say(&format!(
        "configuration  {}\ndatabases      {}\ntargets        {}\ncatalog        {}\n",
        facts.path.as_deref().unwrap_or("none found"),
        named(&facts.databases),
        named(&facts.targets),
        catalog.as_deref().unwrap_or("none"),
    ));
    context.output.json(
        Exit::Done,
        Answer {
            action: "config_check",
            config: facts,
            catalog,
        },
    );
    Ok(Exit::Done)
}

pub fn completions(options: &Completions, context: &Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "longshore", &mut script);
    context.output.raw(&script);
    Ok(Exit::Done)
}

pub fn man(options: &Man) -> Result<Exit, Failure> {
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &options.dir).map_err(|e| {
        let mut failure = Failure::usage(
            format!("cannot write manual pages to {}", options.dir.display()),
            "name an existing directory that you may write to",
        );
        failure.causes.push(e.to_string());
        failure
    })?;
    Ok(Exit::Done)
}
