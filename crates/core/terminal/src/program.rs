//! How a program begins: its log, and its answer to a command line that was not understood.
//!
//! Invariants
//! - A refused command line has the form of every other failure, and its next step names the help of its own command.
//!
//! Leaves to others: the table of options (the programs), and the form of a failure (`failure.rs`).

use std::io::{self, IsTerminal, Write};

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::{Exit, Failure};
use crate::journal::{self, Priority};
use crate::numbers;
use crate::output::{self, Output};
use crate::version;

/// The variable in which `longshore` tells `longshore-lab` its own path, for studies that measure `longshore`.
pub const MEASURED: &str = "LONGSHORE_PROGRAM";

/// Answers a request for help, or refuses a command line that was not understood: that ends with `refusal`. `parser` is
/// the one that refused.
pub fn refuse(error: &clap::Error, parser: clap::Command, refusal: Exit) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp => {
            // Standard output may be closed; nothing is left to tell then.
            let _gone = error.print();
            return Exit::Done;
        }
        ErrorKind::DisplayVersion => {
            // The parser's own text: the program's name, then the release.
            let text = error.to_string();
            let program = text.split_whitespace().next().unwrap_or_default();
            // Standard output may be closed; nothing is left to tell then.
            let _gone = output::to_stdout(version::text(program).as_bytes());
            return Exit::Done;
        }
        _ => {}
    }
    let output = Output {
        // The command line could not be read, so only the bare word tells what the caller reads.
        json: std::env::args_os().any(|a| a == "--json"),
        quiet: false,
        verbose: false,
        stdout_taken: false,
    };
    let mut failure = refusal_of(error, &command_of(parser));
    failure.exit = refusal;
    output.fail(&failure);
    refusal
}

/// The failure for a command line that was not understood; `command` is its beginning that was.
fn refusal_of(error: &clap::Error, command: &str) -> Failure {
    let text = error.to_string();
    // The rest repeats the command's usage, which the hint leads to.
    let said = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let (tips, lines): (Vec<&str>, Vec<&str>) = said.partition(|line| line.starts_with("tip: "));
    let lines = lines.join(" ");
    let tips = tips.iter().map(|tip| tip.trim_start_matches("tip: "));
    let help = format!("`{command} --help` explains the options");
    let steps: Vec<&str> = tips.chain([help.as_str()]).collect();
    Failure::usage(lines.trim_start_matches("error: "), steps.join("; ")).numbered(number_of(error))
}

fn number_of(error: &clap::Error) -> u32 {
    let is_empty = matches!(
        error.get(ContextKind::InvalidValue),
        Some(ContextValue::String(value)) if value.is_empty()
    );
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => numbers::NOT_RECOGNIZED,
        ErrorKind::InvalidValue if is_empty => numbers::ARGUMENT_MISSING,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
            numbers::VALUE_INVALID
        }
        ErrorKind::ArgumentConflict => numbers::OPTIONS_CONFLICT,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::TooFewValues
        | ErrorKind::NoEquals
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => numbers::ARGUMENT_MISSING,
        _ => numbers::REQUEST,
    }
}

/// The program and the command that this process was asked for, as far as the parser knows their words.
fn command_of(parser: clap::Command) -> String {
    let program = parser.get_bin_name().unwrap_or(parser.get_name());
    let mut words = vec![program.to_owned()];
    let parsed = parser.ignore_errors(true).try_get_matches();
    let mut level = parsed.as_ref().ok().and_then(ArgMatches::subcommand);
    while let Some((name, matches)) = level {
        words.push(name.to_owned());
        level = matches.subcommand();
    }
    words.join(" ")
}

/// The filter without `LONGSHORE_LOG`. The libraries' own words about a failure stay out: the error says it.
const USUAL_LOG: &str =
    "warn,rustls=off,rustls_platform_verifier=off,hyper_util=off,object_store=off";

/// The variable that names a filter instead.
const LOG: &str = "LONGSHORE_LOG";

/// `LONGSHORE_LOG` filters as tracing does: `debug`, `longshore_pipeline=trace`. A filter that was chosen
/// shows the targets, too.
pub fn start_log() {
    let chosen = EnvFilter::try_from_env(LOG).ok();
    tracing_subscriber::fmt()
        .with_target(chosen.is_some())
        .with_env_filter(chosen.unwrap_or_else(|| EnvFilter::new(USUAL_LOG)))
        .with_writer(LogStream)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Standard error, or the journal.
struct LogStream;

/// One message of the log, which is written at once.
struct LogLine(Priority);

impl MakeWriter<'_> for LogStream {
    type Writer = LogLine;

    fn make_writer(&self) -> LogLine {
        LogLine(Priority::Info)
    }

    fn make_writer_for(&self, about: &Metadata<'_>) -> LogLine {
        LogLine(match *about.level() {
            Level::ERROR => Priority::Error,
            Level::WARN => Priority::Warning,
            Level::INFO => Priority::Info,
            _ => Priority::Debug,
        })
    }
}

impl Write for LogLine {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        journal::tell(self.0, &String::from_utf8_lossy(message), None);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
