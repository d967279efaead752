//! The run of each study with its options.

mod answers;
mod figures;
mod grid;
mod lab;
mod loads;
mod project;
mod refusals;
mod simulate;
mod tune;

use longshore_terminal::failure::{Exit, Failure};

use crate::context::Context;
use crate::options::{CacheAction, Command};

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Lab(options) => lab::run(options, context),
        Command::Cache(cache) => match &cache.action {
            CacheAction::Simulate(options) => simulate::run(options, context),
            CacheAction::Grid(options) => grid::run(options, context),
        },
        Command::Tune(options) => tune::run(options, context),
        Command::Completions(options) => project::completions(options, context),
        Command::Man(options) => project::man(options),
    }
}
