//! How a program begins: its log, and its answer to a command line that was not understood.

use std::io::IsTerminal;

use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use crate::failure::{Exit, Failure};
use crate::output::{self, Output};
use crate::version;

/// The variable in which `longshore` tells `longshore-lab` its own path, for studies that measure `longshore`.
pub const MEASURED: &str = "LONGSHORE_PROGRAM";

/// Answers a request for help, or refuses a command line that was not understood: that ends with `refusal`.
pub fn refuse(error: &clap::Error, refusal: Exit) -> Exit {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if error.kind() == ErrorKind::DisplayVersion {
        // The parser's own text: the program's name, then the release.
        let text = error.to_string();
        let program = text.split_whitespace().next().unwrap_or_default();
        // Standard output may be closed; nothing is left to tell then.
        let _gone = output::to_stdout(version::text(program).as_bytes());
        return Exit::Done;
    }
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
        failure.exit = refusal;
        output.fail(&failure);
    } else {
        // Standard output or error may be closed; nothing is left to tell then.
        let _gone = error.print();
    }
    if asked { Exit::Done } else { refusal }
}

/// The filter without `LONGSHORE_LOG`. The libraries' own words about a failure stay out: the error says it.
const USUAL_LOG: &str =
    "warn,rustls=off,rustls_platform_verifier=off,hyper_util=off,object_store=off";

/// `LONGSHORE_LOG` filters as tracing does: `debug`, `longshore_pipeline=trace`.
pub fn start_log() {
    let filter =
        EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new(USUAL_LOG));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
