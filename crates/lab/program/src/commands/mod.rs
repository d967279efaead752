//! The run of each study with its options.

mod grid;
mod lab;
mod project;
mod simulate;

use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::Output;

use crate::options::{CacheAction, Command};

/// The state that every study works with.
pub struct Context {
    pub output: Output,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
}

impl Context {
    pub fn new(output: Output) -> Context {
        Context {
            output,
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
        }
    }
}

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Lab(options) => lab::run(options, context),
        Command::Cache(cache) => match &cache.action {
            CacheAction::Simulate(options) => simulate::run(options, context),
            CacheAction::Grid(options) => grid::run(options, context),
        },
        Command::Completions(options) => project::completions(options, context),
        Command::Man(options) => project::man(options),
    }
}
