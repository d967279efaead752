//! `wal`: what PostgreSQL's archive_command and restore_command run.
//!
//! Speed of starting matters: the server runs one process for each file.

mod create;
mod get;
mod list;
mod needs;
mod push;
mod receive;

use std::process::Stdio;

use longshore_codec::{Algorithm, Level};
use longshore_io::child;
use longshore_repository::wal::{Form, Reach};

pub use needs::Need;

use super::Context;
use super::archive::Place;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::options::{Ahead, Wal, WalAction};

pub fn run(options: &Wal, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        WalAction::Create(options) => create::run(options, context),
        WalAction::Push(options) => push::run(options, context),
        WalAction::Get(options) => get::run(options, context),
        WalAction::Receive(options) => receive::run(options, context),
        WalAction::List(options) => list::run(options, context),
        WalAction::Needs(options) => needs::run(options, context),
    }
}

/// Bytes that are worked on ahead when nobody says otherwise.
pub const QUEUE_MAX: u64 = 1 << 30;

/// How a command works ahead: its own options, then those of the database.
struct Working {
    ahead: bool,
    reach: Reach,
}

impl Working {
    /// `configured`: the bytes that the database's settings allow for this command.
    fn of(options: &Ahead, wal: Option<&config::Wal>, configured: Option<u64>) -> Working {
        // Each waits for the disk, three times for a file, for about as long as it computes.
        let twice = || 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let own = wal
            .and_then(|wal| wal.workers)
            .map(|n| usize::from(n.get()));
        Working {
            ahead: options.ahead.unwrap_or(wal.is_some_and(|wal| wal.ahead)),
            reach: Reach {
                bytes_max: options.queue_max.or(configured).unwrap_or(QUEUE_MAX),
                workers: options
                    .workers
                    .map(|n| n as usize)
                    .or(own)
                    .unwrap_or_else(twice),
            },
        }
    }
}

/// How files are stored: by the command's options, then the settings of the database's log, of the database, and of all.
fn form(
    (algorithm, level): (Option<Algorithm>, Option<Level>),
    database: Option<&str>,
    context: &Context,
) -> Form {
    let config = &context.config;
    let known = database.and_then(|name| config.database.get(name));
    let wal = known.and_then(|d| d.wal.as_ref());
    // A level belongs to an algorithm: it is taken from the place that names either.
    let places = [
        (algorithm, level),
        wal.map_or((None, None), |w| (w.algorithm, w.level)),
        known.map_or((None, None), |d| (d.algorithm, d.level)),
        (config.defaults.algorithm, config.defaults.level),
    ];
    let level = places.iter().find(|(a, l)| a.is_some() || l.is_some());
    Form {
        algorithm: places
            .iter()
            .find_map(|(algorithm, _)| *algorithm)
            .unwrap_or(Algorithm::QatDeflate),
        level: level.and_then(|(_, level)| *level).unwrap_or(Level::Low),
        verify: false,
    }
}

/// Runs this very command once more in the background, to work ahead. It is on its own: not in the server's process
/// group, and with none of its files open. That it could not be started makes later calls slower, nothing else.
fn start_ahead(context: &Context) {
    use std::os::unix::process::CommandExt;
    let started = child::again().and_then(|mut command| {
        command
            .args(std::env::args_os().skip(1))
            .arg("--only-ahead")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    if let Err(e) = started {
        context.output.warn(&format!("cannot work ahead: {e}"));
    }
}
