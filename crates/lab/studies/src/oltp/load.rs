//! Clients that put transactions on a database, and a log of each transaction in the form of pgbench's.
//!
//! Invariants
//! - A line is `client transaction time_us kind seconds microseconds`, the last two of the transaction's end by the wall
//!   clock, as pgbench writes it: one reader reads both.
//! - Failed transactions are counted and have no line.
//! - Clients end when the time is over or the run is cancelled.
//!
//! Leaves to others: transactions (`terminals.rs`), and what the log says (`transactions.rs`).

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use longshore_io::{File, OpenHow, Storage, Via};
use longshore_pipeline::{RunContext, SourceSpec};

use super::session::ClientSession;
use super::terminals::LoadTables;

/// Lines that a client gathers before it writes them.
const GATHERED: usize = 4 << 10;
/// A client that fails so many times in a row gives up.
const FAILURES_MAX: u32 = 20;

/// The settings of a load.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    /// A database with the content of the sample `tprocc` or `stae`: its tables say which transactions it gets.
    pub source: SourceSpec,
    pub clients: usize,
    pub time: Duration,
    /// A pause of each client after each transaction.
    pub think: Duration,
    pub seed: u64,
    /// For the log; it must not exist.
    pub log: Option<PathBuf>,
}

/// The result of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadDone {
    pub transactions: u64,
    pub failed: u64,
    pub elapsed_s: f64,
}

/// The log, at whose end all clients write.
struct Log(Mutex<(std::sync::Arc<dyn File>, u64)>);

impl Log {
    fn create(storage: &dyn Storage, path: &Path) -> Result<Log> {
        let name = path.file_name().context("the log has no name")?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let dir = storage.dir(parent.unwrap_or(Path::new(".")))?;
        let file = dir
            .open(Path::new(name), OpenHow::CreateNew)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Log(Mutex::new((file, 0))))
    }

    fn append(&self, lines: &mut String) -> Result<()> {
        let mut held = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        held.0.write_all_at(lines.as_bytes(), held.1, Via::Cache)?;
        held.1 += lines.len() as u64;
        lines.clear();
        Ok(())
    }
}

/// Runs all clients.
pub fn load(context: &RunContext, spec: &LoadSpec) -> Result<LoadDone> {
    let clock = &*context.clock;
    let storage = &*context.storage;
    let log = spec
        .log
        .as_deref()
        .map(|path| Log::create(storage, path))
        .transpose()?;
    let tables = LoadTables::of(&spec.source)?;
    let clients = spec.clients.max(1);
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = clock.now();
    let stop = AtomicBool::new(false);
    let client = |number: usize| -> Result<()> {
        let mut session = ClientSession::open(&spec.source)?;
        let mut terminal = tables.terminal(spec.seed, (number, clients));
        let (mut lines, mut count, mut in_a_row) = (String::new(), 0u64, 0);
        let is_over = || {
            clock.now() - begun >= spec.time
                || context.cancel.load(Ordering::Relaxed)
                || stop.load(Ordering::Relaxed)
        };
        while !is_over() {
            let from = clock.now();
            match terminal.next(&mut session) {
                Ok(kind) => {
                    in_a_row = 0;
                    let us = (clock.now() - from).as_micros();
                    let wall_us = clock.wall_ns() / 1000;
                    let (s, rest) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
                    lines.push_str(&format!("{number} {count} {us} {kind} {s} {rest}\n"));
                    count += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    in_a_row += 1;
                    if in_a_row > FAILURES_MAX {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error.context("too many transactions failed in a row"));
                    }
                }
            }
            if let (Some(log), true) = (&log, lines.len() >= GATHERED) {
                log.append(&mut lines)?;
            }
            if !spec.think.is_zero() {
                clock.sleep(spec.think);
            }
        }
        match &log {
            Some(log) => log.append(&mut lines),
            None => Ok(()),
        }
    };
    let ended = longshore_io::side_by_side(clients, client)?;
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    let done = LoadDone {
        transactions: done.into_inner(),
        failed: failed.into_inner(),
        elapsed_s: (clock.now() - begun).as_secs_f64(),
    };
    ensure!(done.transactions > 0, "no transaction was completed");
    Ok(done)
}
