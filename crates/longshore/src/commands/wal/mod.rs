//! `wal`: the commands that PostgreSQL's archive_command and restore_command run.
//!
//! Invariants
//! - Startup time matters: the server runs one process per file, so nothing is opened that the command does not need.
//! - A level and an algorithm come from one place: the first that names either of them has both.
//! - A look-ahead that does not start only makes later calls slower.
//!
//! Leaves to others: each command (`push.rs`, `get.rs` and the others), and the archive (`longshore-wal`).

mod create;
mod follow;
mod get;
mod list;
mod needs;
mod push;
mod receive;

use std::path::Path;
use std::process::Stdio;

use longshore_codec::{Algorithm, Level};
use longshore_io::child;
use longshore_wal::{AheadLimits, StorageForm, is_in_bucket};

pub use needs::Need;

use super::archive::ArchiveLocation;
use crate::config;
use crate::context::Context;
use crate::options::{LookAheadOptions, Wal, WalAction};
use longshore_terminal::failure::{Exit, Failure};

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

/// The workers that serve a store 10 ms away at 190 segments of 1 MiB a second, where four reach 110 and sixteen 220
/// (two cores, 1,000 segments). Each holds a stored segment in memory.
const IN_BUCKETS: usize = 8;

/// The default limit of bytes that are worked on ahead.
pub const QUEUE_MAX: u64 = 1 << 30;

/// The settings for working ahead: the command's own options, then those of the database.
struct LookAheadSettings {
    ahead: bool,
    reach: AheadLimits,
}

impl LookAheadSettings {
    /// `configured`: the bytes that the database's settings allow for this command. `archive`: where the archive is.
    fn of(
        options: &LookAheadOptions,
        wal: Option<&config::Wal>,
        configured: Option<u64>,
        archive: &Path,
    ) -> LookAheadSettings {
        // A worker waits for the disk, three times per file, for about as long as it computes; and for a store longer.
        let least = if is_in_bucket(archive) { IN_BUCKETS } else { 1 };
        let twice = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            least.max(2 * cores)
        };
        let own = wal
            .and_then(|wal| wal.workers)
            .map(|n| usize::from(n.get()));
        LookAheadSettings {
            ahead: options.ahead.unwrap_or(wal.is_some_and(|wal| wal.ahead)),
            reach: AheadLimits {
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

/// How files are stored: the command's options, then the settings of the database's WAL, of the database, and the
/// defaults.
pub(super) fn form(
    (algorithm, level): (Option<Algorithm>, Option<Level>),
    database: Option<&str>,
    context: &Context,
) -> StorageForm {
    let config = &context.config;
    let known = database.and_then(|name| config.database.get(name));
    let wal = known.and_then(|d| d.wal.as_ref());
    // A level belongs to an algorithm: both come from the first place that names either.
    let places = [
        (algorithm, level),
        wal.map_or((None, None), |w| (w.algorithm, w.level)),
        known.map_or((None, None), |d| (d.algorithm, d.level)),
        (config.defaults.algorithm, config.defaults.level),
    ];
    let level = places.iter().find(|(a, l)| a.is_some() || l.is_some());
    StorageForm {
        algorithm: places
            .iter()
            .find_map(|(algorithm, _)| *algorithm)
            .unwrap_or(Algorithm::QatDeflate),
        level: level.and_then(|(_, level)| *level).unwrap_or(Level::Low),
        verify: false,
    }
}

/// Runs this same command once more in the background, to work ahead. The process is independent: it is not in the
/// server's process group and holds none of its files open. A failure to start it only makes later calls slower.
fn start_ahead(context: &Context) {
    start_again(context, "--only-ahead");
}

fn start_again(context: &Context, option: &str) {
    use std::os::unix::process::CommandExt;
    let started = child::again().and_then(|mut command| {
        command
            .args(std::env::args_os().skip(1))
            .arg(option)
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
