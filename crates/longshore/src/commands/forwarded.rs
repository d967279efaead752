//! Commands that `longshore-lab` has: this program becomes that one, with the same arguments.

use std::os::unix::process::CommandExt;

use longshore_io::child::{self, NotStarted};

use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::program::MEASURED;

const LAB: &str = "longshore-lab";

/// Where a package may have put it, from this program's directory.
const PLACES: [&str; 1] = ["../libexec/longshore"];

/// Starts the other program with the words of this command line. Returns only where it cannot be started.
pub fn run() -> Result<Exit, Failure> {
    let program = child::companion(LAB, &PLACES).map_err(|why| {
        let hint = match &why {
            NotStarted::NotFound { .. } => {
                return Failure::usage(
                    "this command needs the program longshore-lab, which is not installed",
                    "run `make install`, or run `make build` and put longshore-lab next to longshore",
                )
                .numbered(numbers::PROGRAM_MISSING);
            }
            NotStarted::NotExecutable { .. } => "install it again: `make install`",
            why if why.is_relative() => {
                "write its directory into PATH as an absolute path, or install it: `make install`"
            }
            NotStarted::Distrust(_) => "install it where only root can write: `make install`",
        };
        Failure::usage(format!("longshore-lab is not started: {why}"), hint)
            .numbered(numbers::PROGRAM_MISSING)
    })?;
    let mut lab = child::again_at(&program);
    lab.args(std::env::args_os().skip(1));
    // A study that measures `longshore` measures the one that was called.
    if let Ok(own) = std::env::current_exe() {
        lab.env(MEASURED, own);
    }
    let error = lab.exec();
    let what = format!("cannot start {}", program.display());
    let failure = Failure::usage(what, "install it again: `make install`");
    Err(failure.numbered(numbers::PROGRAM_MISSING).because(error))
}
