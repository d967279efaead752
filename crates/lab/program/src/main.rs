//! The studies of `longshore`: sample databases, measurements, simulations of caches.
//!
//! `longshore lab`, `longshore tune` and the studies of `longshore cache` become this program, with the same arguments. Machines that
//! only make backups do not need it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod commands;
mod context;
mod options;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::output::{self, Output};
use longshore_terminal::program::{refuse, start_log};
use longshore_terminal::values;

use context::Context;
use options::Cli;

fn main() -> ExitCode {
    interrupt::outlive_file_limits();
    // SAFETY: the call demands that no other thread runs: the program has started none yet.
    unsafe { interrupt::save_address_space() };
    longshore_facts::raise_descriptors();
    // The message of a panic is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or(Exit::Internal);
    interrupt::leave_if_hung(exit);
    ExitCode::from(exit.code())
}

fn run() -> Exit {
    let read = values::with_paths_only(Cli::command()).try_get_matches();
    let read = read.and_then(|read| Ok((Cli::from_arg_matches(&read)?, is_typed(&read, "config"))));
    let (cli, has_config) = match read {
        Ok(read) => read,
        Err(error) => return refuse(&error, Cli::command(), Exit::Usage),
    };
    start_log();
    let output = Output {
        json: cli.global.json,
        quiet: cli.global.quiet,
        verbose: cli.global.verbose,
        stdout_taken: false,
    };
    let done = match has_config {
        true => Err(Failure::usage(
            "studies read no configuration file, so --config has no effect here",
            "leave --config out; `lab bench` measures longshore with the file that LONGSHORE_CONFIG names",
        )),
        false => commands::run(&cli.command, &Context::new(output)),
    };
    let exit = done.unwrap_or_else(|failure| {
        output.fail(&failure);
        failure.exit
    });
    match output::lost() {
        // Any other failure weighs more.
        Some(failure) if matches!(exit, Exit::Done | Exit::Warnings) => {
            output::to_stderr(&failure.lines());
            failure.exit
        }
        _ => exit,
    }
}

/// Whether the command line has this option, before or after a command. The environment may have it for `longshore`.
fn is_typed(read: &ArgMatches, option: &str) -> bool {
    let is_here = read.value_source(option) == Some(ValueSource::CommandLine);
    is_here
        || read
            .subcommand()
            .is_some_and(|(_, below)| is_typed(below, option))
}
