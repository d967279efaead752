//! The command line: options, configuration, progress, exit codes.
//!
//! Invariants
//! - A panic has an exit code of its own, and so has an answer that could not be printed, unless the caller reads only
//!   the code.
//! - If the caller is PostgreSQL's recovery, every code but a certain "not found" tells it to stop.
//! - Limits of the process are set before the first thread starts.
//!
//! Leaves to others: `longshore_pipeline::run` moves all bytes; this crate states the request and shows the result.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod commands;
mod config;
mod context;
mod core_dumps;
mod key_command;
mod key_places;
mod keys;
mod options;
mod progress;
mod verbose;

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::CommandFactory;
use longshore_terminal::failure::Exit;
use longshore_terminal::interrupt;
use longshore_terminal::journal;
use longshore_terminal::output::{self, Output};
use longshore_terminal::program::{refuse, start_log};

use context::Context;
use options::Cli;

fn main() -> ExitCode {
    interrupt::outlive_file_limits();
    // SAFETY: the call demands that no other thread runs: the program has started none yet.
    unsafe { interrupt::save_address_space() };
    longshore_facts::raise_descriptors();
    // The message of a panic is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or(Exit::Internal);
    let exit = told(exit);
    journal::settle();
    interrupt::leave_if_hung(exit);
    ExitCode::from(exit.code())
}

fn run() -> Exit {
    let cli = match Cli::read() {
        Ok(cli) => {
            RECOVERING.get_or_init(|| commands::answers_a_recovery(&cli.command));
            cli
        }
        Err(_) if options::is_help(&Cli::command(), std::env::args_os().skip(1)) => {
            return commands::help_elsewhere();
        }
        Err(error) => {
            let error = options::with_tip_for_help(error);
            return refuse(&error, Cli::command(), told(Exit::Usage));
        }
    };
    start_log();
    let global = &cli.global;
    let output = Output {
        json: global.json || commands::passes_json_on(&cli.command),
        quiet: global.quiet || commands::is_quiet(&cli.command),
        verbose: global.verbose,
        stdout_taken: commands::takes_stdout(&cli.command),
    };
    let result =
        Context::new(global, output).and_then(|context| commands::run(&cli.command, &context));
    let exit = result.unwrap_or_else(|mut failure| {
        failure.exit = told(failure.exit);
        output.fail(&failure);
        failure.exit
    });
    let requests = longshore_repository::store_requests();
    if global.verbose && !requests.is_empty() {
        output.remark(&verbose::requests(&requests));
    }
    match output::lost() {
        // Another failure is more important.
        Some(failure) if matches!(exit, Exit::Done | Exit::Warnings) => {
            output::to_stderr(&failure.lines());
            match commands::answers_by_its_exit_code(&cli.command) {
                true => exit,
                false => failure.exit,
            }
        }
        _ => exit,
    }
}

/// The exit code as the caller sees it. PostgreSQL's recovery takes codes up to 125 from its restore_command as the
/// end of the WAL, so `wal get` uses one of those only if it is certain that a file does not exist.
fn told(exit: Exit) -> Exit {
    match exit {
        Exit::Done | Exit::No => exit,
        _ if *RECOVERING.get_or_init(is_misspelt_get) => Exit::NoAnswer,
        _ => exit,
    }
}

/// Whether the running command is `wal get`. Set once the command line is parsed.
static RECOVERING: OnceLock<bool> = OnceLock::new();

/// Whether an invalid command line is one of `wal get`: a misspelt option must not end a recovery either. The parser
/// decides, because it knows which words are commands and which are values of options.
fn is_misspelt_get() -> bool {
    let parsed = Cli::command().ignore_errors(true).try_get_matches();
    let Ok(matches) = parsed else {
        return false;
    };
    match matches.subcommand() {
        Some(("wal", wal)) => wal.subcommand_name() == Some("get"),
        _ => false,
    }
}
