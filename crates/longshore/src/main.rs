//! The command line: options, configuration, progress, exit codes.
//!
//! Everything that moves bytes lies behind `longshore_pipeline::run`; this crate says what is wanted and
//! shows what happened.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod commands;
mod config;
mod failure;
mod interrupt;
mod options;
mod output;
mod progress;
mod text;
mod verbose;

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use tracing_subscriber::EnvFilter;

use commands::Context;
use failure::{Exit, Failure};
use options::Cli;
use output::Output;

fn main() -> ExitCode {
    interrupt::outlive_file_limits();
    longshore_io::facts::raise_descriptors();
    // The message of a panic is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or(Exit::Internal);
    let exit = told(exit);
    interrupt::leave_if_hung(exit);
    ExitCode::from(exit.code())
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => {
            RECOVERING.get_or_init(|| commands::answers_a_recovery(&cli.command));
            cli
        }
        Err(error) => return refuse(&error),
    };
    start_log();
    let global = &cli.global;
    let output = Output {
        json: global.json,
        quiet: global.quiet,
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
    match output::lost() {
        // What else went wrong weighs more.
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

/// The exit code as the caller is told. PostgreSQL's recovery takes codes up to 125 from its restore_command for the
/// end of the log, so `wal get` ends with one of those only when it knows that a file is not there.
fn told(exit: Exit) -> Exit {
    match exit {
        Exit::Done | Exit::No => exit,
        _ if *RECOVERING.get_or_init(is_misspelt_get) => Exit::NoAnswer,
        _ => exit,
    }
}

/// Whether the command that runs is `wal get`. Set once the command line is understood.
static RECOVERING: OnceLock<bool> = OnceLock::new();

/// Whether a command line that was not understood is one of `wal get`: a misspelt option must not end a recovery
/// either. The parser says so, which knows which words are commands and which are options' values.
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

/// Answers what was not understood, or a request for help.
fn refuse(error: &clap::Error) -> Exit {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    // The command line could not be read, so only the bare word tells what the caller reads.
    let json = std::env::args_os().any(|a| a == "--json");
    if json && !asked {
        let text = error.to_string();
        let text = text.trim_start_matches("error: ").trim_end();
        let output = Output {
            json: true,
            quiet: false,
            verbose: false,
            stdout_taken: false,
        };
        let mut failure = Failure::usage(text, "`longshore --help` explains the options");
        failure.exit = told(failure.exit);
        output.fail(&failure);
    } else {
        // Standard output or error may be closed; nothing is left to tell then.
        let _gone = error.print();
    }
    if asked { Exit::Done } else { Exit::Usage }
}

/// `LONGSHORE_LOG` filters as tracing does: `debug`, `longshore_pipeline=trace`.
fn start_log() {
    let filter =
        EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}
