//! What runs do, readable by other processes: `running/` next to the catalog has the counters of backups that use
//! accelerators, and how far each run is.
//!
//! Invariants
//! - A run keeps one or two small files there, replaces each as a whole about once a second and removes it at the end. A
//!   run of less than a second leaves no trace but for accelerators' counters.
//! - A file whose process no longer exists (by process number and start time) is stale: readers ignore and remove it.
//! - The counters are expendable: no error here fails a run, and nothing is synced.
//!
//! Leaves to others: counting (`longshore-accel`, `pipeline`), and showing the counters (`accelerator`, the status page).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_accel::dispatch::{EngineUse, Mode};
use longshore_facts as facts;
use longshore_io::{Clock, Dir, Machine, OpenHow, Storage, Via};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::mode::state_text;

const DIRECTORY: &str = "running";
const LEN_MAX: u64 = 256 << 10;
const EVERY: Duration = Duration::from_secs(1);

/// A backup of this or another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningBackup {
    pub pid: u32,
    /// When the process started, in clock ticks since boot.
    pub process_started: u64,
    /// Microseconds since the Unix epoch.
    pub since_us: i64,
    pub updated_us: i64,
    /// `hardware` or `hybrid`.
    pub mode: String,
    pub engines: Vec<EngineCounters>,
}

/// The counters of one accelerator in a run so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineCounters {
    pub name: String,
    pub state: String,
    /// Why it is not ready; empty if it is.
    pub reason: String,
    pub in_flight_bytes: u64,
    pub queued_bytes: u64,
    pub blocks: u64,
    pub plain_bytes: u64,
    pub calls: u64,
    pub service_us_mean: u64,
    pub service_us_p99: Option<u64>,
    /// Blocks that were given to it and then done by software.
    pub recomputed: u64,
    /// The share of those among the blocks given to it, 0 to 1.
    pub fallback_share: f64,
    #[serde(alias = "verified")]
    pub verified_count: u64,
    pub verify_failures: u64,
    pub faults: BTreeMap<String, u64>,
}

impl From<&EngineUse> for EngineCounters {
    fn from(used: &EngineUse) -> EngineCounters {
        let given = (used.blocks + used.recomputed).max(1);
        EngineCounters {
            name: used.name.to_owned(),
            state: state_text(used.state).to_owned(),
            reason: used.reason.clone(),
            in_flight_bytes: used.in_flight_bytes,
            queued_bytes: used.queued_bytes,
            blocks: used.blocks,
            plain_bytes: used.plain_bytes,
            calls: used.calls,
            service_us_mean: used.service_us_mean,
            service_us_p99: used.service_us_p99,
            recomputed: used.recomputed,
            fallback_share: used.recomputed as f64 / given as f64,
            verified_count: used.verified,
            verify_failures: used.verify_failures,
            faults: used
                .faults
                .iter()
                .map(|(kind, n)| ((*kind).to_owned(), *n))
                .collect(),
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningWork {
    pub pid: u32,
    /// When the process started, in clock ticks since boot.
    pub process_started: u64,
    /// Microseconds since the Unix epoch.
    pub since_us: i64,
    pub updated_us: i64,
    /// `backup`, `restore` or `verify`.
    pub action: String,
    pub database: String,
    pub done_bytes: u64,
    /// `None`: not known.
    pub expected_bytes: Option<u64>,
}

/// A file of either kind.
trait Published: Serialize + serde::de::DeserializeOwned {
    /// The end of its name.
    const EXTENSION: &str;

    fn since(&self) -> (i64, u32);
}

impl Published for RunningBackup {
    const EXTENSION: &str = "json";

    fn since(&self) -> (i64, u32) {
        (self.since_us, self.pid)
    }
}

impl Published for RunningWork {
    const EXTENSION: &str = "work";

    fn since(&self) -> (i64, u32) {
        (self.since_us, self.pid)
    }
}

/// A name of this process for a file of this kind.
fn own_name<P: Published>() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}.{}", std::process::id(), P::EXTENSION).into()
}

fn new_name(name: &Path) -> PathBuf {
    name.with_extension("new")
}

/// Replaces a file as a whole.
fn write<P: Published>(dir: &dyn Dir, name: &Path, run: &P) -> io::Result<()> {
    let text = serde_json::to_vec(run)?;
    let new = new_name(name);
    // A leftover of a write that failed.
    let _not_there = dir.remove_file(&new);
    let file = dir.open(&new, OpenHow::CreateNew)?;
    file.write_all_at(&text, 0, Via::Cache)?;
    dir.rename(&new, name)
}

/// The file that says how far this run is. Dropping it removes it.
pub struct ProgressFile {
    machine: Machine,
    path: PathBuf,
    name: PathBuf,
    work: RunningWork,
    inner: Mutex<Written>,
}

/// When the file was last written, and its directory once it was.
struct Written {
    last: Duration,
    dir: Option<Arc<dyn Dir>>,
}

impl ProgressFile {
    /// Writes nothing yet. `None` if there is no catalog.
    pub fn begin(
        machine: Machine,
        catalog: Option<&Path>,
        action: &str,
        database: &str,
    ) -> Option<ProgressFile> {
        let pid = std::process::id();
        let now_us = machine.clock.wall_ns() / 1000;
        Some(ProgressFile {
            path: directory(catalog?)?,
            name: own_name::<RunningWork>(),
            work: RunningWork {
                pid,
                process_started: facts::process_started(pid)?,
                since_us: now_us,
                updated_us: now_us,
                action: action.to_owned(),
                database: database.to_owned(),
                done_bytes: 0,
                expected_bytes: None,
            },
            inner: Mutex::new(Written {
                last: machine.clock.now(),
                dir: None,
            }),
            machine,
        })
    }

    /// Says how far the run is, unless it did so less than a second ago.
    pub fn update(&self, done_bytes: u64, expected_bytes: Option<u64>) {
        let mut inner = self.inner.lock();
        let now = self.machine.clock.now();
        if now.saturating_sub(inner.last) < EVERY {
            return;
        }
        inner.last = now;
        let work = RunningWork {
            updated_us: self.machine.clock.wall_ns() / 1000,
            done_bytes,
            expected_bytes,
            ..self.work.clone()
        };
        let dir = match inner.dir.take() {
            Some(dir) => Ok(dir),
            None => self.machine.storage.create_dir_all(&self.path),
        };
        let written = dir.and_then(|dir| {
            let written = write(&*dir, &self.name, &work);
            inner.dir = Some(dir);
            written
        });
        if let Err(error) = written {
            tracing::debug!(%error, "progress not published");
        }
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        for name in [&self.name, &new_name(&self.name)] {
            let _not_there = inner.dir.as_ref().map(|dir| dir.remove_file(name));
        }
    }
}

/// This run's file. Dropping it removes it.
pub struct StatusFile {
    dir: Arc<dyn Dir>,
    clock: Arc<dyn Clock>,
    name: PathBuf,
    process_started: u64,
    since_us: i64,
    mode: Mode,
    last: Mutex<Option<Duration>>,
}

impl StatusFile {
    /// `None` if there is no catalog, or its directory is not writable.
    pub fn begin(machine: &Machine, catalog: Option<&Path>, mode: Mode) -> Option<StatusFile> {
        let pid = std::process::id();
        let dir = directory(catalog?)?;
        Some(StatusFile {
            dir: machine.storage.create_dir_all(&dir).ok()?,
            clock: machine.clock.clone(),
            name: own_name::<RunningBackup>(),
            process_started: facts::process_started(pid)?,
            since_us: machine.clock.wall_ns() / 1000,
            mode,
            last: Mutex::new(None),
        })
    }

    /// Writes the counters unless they were written less than a second ago.
    pub fn update(&self, counters: impl FnOnce() -> Vec<EngineUse>) {
        let mut last = self.last.lock();
        let now = self.clock.now();
        if last.is_some_and(|last| now - last < EVERY) {
            return;
        }
        *last = Some(now);
        let run = RunningBackup {
            pid: std::process::id(),
            process_started: self.process_started,
            since_us: self.since_us,
            updated_us: self.clock.wall_ns() / 1000,
            mode: mode_text(self.mode).to_owned(),
            engines: counters().iter().map(EngineCounters::from).collect(),
        };
        if let Err(error) = write(&*self.dir, &self.name, &run) {
            tracing::debug!(%error, "counters not published");
        }
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        for name in [&self.name, &new_name(&self.name)] {
            let _not_there = self.dir.remove_file(name);
        }
    }
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Hardware => "hardware",
        Mode::Hybrid => "hybrid",
    }
}

fn directory(catalog: &Path) -> Option<PathBuf> {
    let parent = catalog.parent()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    Some(parent.join(DIRECTORY))
}

/// Runs that use accelerators now, of all processes that share this catalog.
pub fn running(storage: &dyn Storage, catalog: Option<&Path>) -> Vec<RunningBackup> {
    published(storage, catalog)
}

/// All runs that have lasted a second, of all processes that share this catalog.
pub fn running_work(storage: &dyn Storage, catalog: Option<&Path>) -> Vec<RunningWork> {
    published(storage, catalog)
}

fn published<P: Published>(storage: &dyn Storage, catalog: Option<&Path>) -> Vec<P> {
    let dir = catalog.and_then(directory).map(|path| storage.dir(&path));
    let Some(Ok(dir)) = dir else {
        return Vec::new();
    };
    let Ok(names) = dir.list() else {
        return Vec::new();
    };
    let mut runs: Vec<P> = names
        .filter_map(Result::ok)
        .map(PathBuf::from)
        .filter_map(|name| live(&*dir, &name))
        .collect();
    runs.sort_by_key(P::since);
    runs
}

/// The writer of a file of either kind.
#[derive(Deserialize)]
struct Writer {
    pid: u32,
    process_started: u64,
}

/// The run of a file of this kind. A file of a dead process is removed, whatever its kind is.
fn live<P: Published>(dir: &dyn Dir, name: &Path) -> Option<P> {
    let extension = name.extension()?.to_str()?;
    if ![RunningBackup::EXTENSION, RunningWork::EXTENSION].contains(&extension) {
        return None;
    }
    let file = dir.open(name, OpenHow::Read).ok()?;
    let len = file.stat().ok()?.len;
    let mut text = vec![0; usize::try_from(len.min(LEN_MAX)).ok()?];
    file.read_exact_at(&mut text, 0, Via::Cache).ok()?;
    let writer: Writer = serde_json::from_slice(&text).ok()?;
    if facts::is_gone(writer.pid, writer.process_started) {
        // A file of another user stays for that user.
        let _not_ours = dir.remove_file(name);
        return None;
    }
    (extension == P::EXTENSION).then(|| serde_json::from_slice(&text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_accel::EngineState;
    use longshore_io::{Host, SimClock};

    fn used() -> EngineUse {
        EngineUse {
            name: "qatzip",
            state: EngineState::Ready,
            reason: String::new(),
            blocks: 30,
            plain_bytes: 30 << 20,
            payload_bytes: 9 << 20,
            calls: 40,
            service_us_mean: 700,
            service_us_p99: Some(2000),
            rate_bytes_per_s: None,
            queued_bytes: 0,
            in_flight_bytes: 4 << 20,
            in_flight_bytes_max: 8 << 20,
            verified: 5,
            verify_failures: 1,
            recomputed: 10,
            hedged: 0,
            stolen: 0,
            faults: BTreeMap::from([("device", 9)]),
            alarms: Vec::new(),
        }
    }

    #[test]
    fn a_run_is_seen_while_it_lives_and_refreshed_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = dir.path().join("catalog.db");
        let clock = Arc::new(SimClock::new(0));
        let machine = Machine {
            storage: Arc::new(Host::new()),
            clock: clock.clone(),
        };
        let seen = || running(&*machine.storage, Some(&catalog));
        assert_eq!(seen(), []);
        let published = StatusFile::begin(&machine, Some(&catalog), Mode::Hybrid).unwrap();
        published.update(|| vec![used()]);
        let runs = seen();
        let engine = &runs[0].engines[0];
        assert_eq!(runs[0].pid, std::process::id());
        assert_eq!(runs[0].mode, "hybrid");
        assert_eq!((engine.blocks, engine.fallback_share), (30, 0.25));
        assert_eq!(engine.faults["device"], 9);
        published.update(|| panic!("too early"));
        clock.advance(EVERY);
        published.update(Vec::new);
        assert_eq!(seen()[0].engines, []);
        drop(published);
        assert_eq!(seen(), []);
    }

    #[test]
    fn a_run_says_how_far_it_is_once_it_has_lasted_a_second_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = dir.path().join("catalog.db");
        let clock = Arc::new(SimClock::new(0));
        let machine = || Machine {
            storage: Arc::new(Host::new()),
            clock: clock.clone(),
        };
        let seen = || running_work(&Host::new(), Some(&catalog));
        let begin = || ProgressFile::begin(machine(), Some(&catalog), "backup", "shop").unwrap();
        let file = begin();
        file.update(1, Some(10));
        assert!(!dir.path().join(DIRECTORY).exists(), "a short run");
        drop(file);
        let (file, other) = (begin(), begin());
        clock.advance(EVERY);
        file.update(4, Some(10));
        let [run] = &seen()[..] else {
            panic!("one run");
        };
        assert_eq!(
            (run.action.as_str(), run.database.as_str()),
            ("backup", "shop")
        );
        assert_eq!((run.done_bytes, run.expected_bytes), (4, Some(10)));
        file.update(5, Some(10));
        assert_eq!(seen()[0].done_bytes, 4, "too early");
        clock.advance(EVERY);
        file.update(5, None);
        other.update(7, None);
        assert_eq!(seen().len(), 2);
        // Accelerators' counters are others.
        assert_eq!(running(&Host::new(), Some(&catalog)), []);
        drop((file, other));
        let left = std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap();
        assert_eq!(left.count(), 0);
        assert!(ProgressFile::begin(machine(), None, "backup", "shop").is_none());
    }

    #[test]
    fn counters_of_a_dead_process_are_removed_and_rubbish_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = dir.path().join("catalog.db");
        let place = dir.path().join(DIRECTORY);
        std::fs::create_dir(&place).unwrap();
        let mut run = RunningBackup {
            pid: std::process::id(),
            process_started: facts::process_started(std::process::id()).unwrap() + 1,
            since_us: 0,
            updated_us: 0,
            mode: "hardware".into(),
            engines: Vec::new(),
        };
        let put = |name: &str, run: &RunningBackup| {
            std::fs::write(place.join(name), serde_json::to_vec(run).unwrap()).unwrap();
        };
        put("1-0.json", &run);
        run.process_started -= 1;
        put("2-0.json", &run);
        std::fs::write(place.join("3-0.json"), b"{").unwrap();
        assert_eq!(running(&Host::new(), Some(&catalog)), [run]);
        assert!(!place.join("1-0.json").exists() && place.join("3-0.json").exists());
    }
}
