//! The command line: options, configuration, progress, exit codes.
//!
//! Everything that moves bytes lies behind `longshore_pipeline::run`; this crate says what is wanted and
//! shows what happened.

mod commands;
mod config;
mod failure;
mod interrupt;
mod options;
mod output;
mod progress;
mod verbose;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use commands::Context;
use failure::{Exit, Failure};
use options::Cli;
use output::Output;

fn main() -> ExitCode {
    // The message of a panic is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or(Exit::Internal);
    let exit = told(exit);
    interrupt::leave_if_hung(exit);
    ExitCode::from(exit.code())
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
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
/// end of the log, so `wal get` ends with one of those only when it knows that a file is not there. Judged by the bare
/// words, because a misspelt option must not end a recovery either.
fn told(exit: Exit) -> Exit {
    let mut words = std::env::args_os().skip_while(|word| word != "wal");
    let action = words.find(|word| ["push", "get", "receive", "list"].iter().any(|a| word == a));
    let recovering = action.is_some_and(|action| action == "get");
    match exit {
        Exit::Done | Exit::No => exit,
        _ if recovering => Exit::NoAnswer,
        _ => exit,
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
