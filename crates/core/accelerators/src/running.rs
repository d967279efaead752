//! What runs do, readable by other processes: `running/` next to the catalog has the counters of backups that use
//! accelerators, and how far each run is.
//!
//! Invariants
//! - A run keeps one or two small files there, replaces each as a whole about once a second and removes it at the end. A
//!   run of less than a second leaves no trace but for accelerators' counters.
//! - A file whose process has ended is stale: readers ignore and remove it. A process's number and start say so only to readers that
//!   mean the same by them: of this machine, since it was started, and in the same namespaces. A file of another container,
//!   of another machine or from before a start counts by its age: it is not shown after a minute, and removed after a day.
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
use longshore_io::{Clock, Dir, Machine, OpenHow, Via, boot_id, crc32c};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::mode::state_text;

const DIRECTORY: &str = "running";
const LEN_MAX: u64 = 256 << 10;
const EVERY: Duration = Duration::from_secs(1);
/// A process that cannot be asked for is not taken for one that runs after so long without a word.
const SILENT: Duration = Duration::from_secs(60);
/// The age of a file that nobody will continue.
const LEFT: Duration = Duration::from_secs(24 * 3600);

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
    /// True of a run of this process.
    #[serde(skip)]
    pub is_own: bool,
}

/// The marks that tell the process that writes a file from all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Writer {
    host: String,
    boot: String,
    /// [`facts::process_mark`]; empty: not known.
    process: String,
}

impl Writer {
    fn this() -> Writer {
        Writer {
            host: facts::host_name(),
            boot: boot_id().unwrap_or_default(),
            process: facts::process_mark().unwrap_or_default(),
        }
    }

    /// The part of a process's mark that says in which namespaces it is meant.
    fn namespaces(&self) -> Option<&str> {
        Some(self.process.split_once(' ')?.1)
    }

    /// True if a process's number means the same to both.
    fn is_beside(&self, other: &Writer) -> bool {
        let is_known = !self.boot.is_empty() && self.namespaces().is_some();
        // A machine that was cloned while it ran has the same boot, and perhaps another name.
        is_known
            && (&self.host, &self.boot) == (&other.host, &other.boot)
            && self.namespaces() == other.namespaces()
    }
}

/// The content of a file of either kind.
#[derive(Serialize)]
struct Sheet<'a, P> {
    #[serde(flatten)]
    run: &'a P,
    writer: Writer,
}

/// A file of either kind.
trait Published: Serialize + serde::de::DeserializeOwned {
    /// The end of its name.
    const EXTENSION: &str;

    fn since(&self) -> (i64, u32);

    /// Notes whether it is of this process.
    fn noted(self, is_own: bool) -> Self;
}

impl Published for RunningBackup {
    const EXTENSION: &str = "json";

    fn since(&self) -> (i64, u32) {
        (self.since_us, self.pid)
    }

    fn noted(self, _is_own: bool) -> Self {
        self
    }
}

impl Published for RunningWork {
    const EXTENSION: &str = "work";

    fn since(&self) -> (i64, u32) {
        (self.since_us, self.pid)
    }

    fn noted(self, is_own: bool) -> Self {
        RunningWork { is_own, ..self }
    }
}

/// A name of this process for a file of this kind. Processes of several containers may have one number.
fn own_name<P: Published>() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let Writer {
        host,
        boot,
        process,
    } = Writer::this();
    let mark = crc32c(format!("{host} {boot} {process}").as_bytes());
    let pid = std::process::id();
    format!("{pid}-{mark:08x}-{number}.{}", P::EXTENSION).into()
}

fn new_name(name: &Path) -> PathBuf {
    name.with_extension("new")
}

/// Replaces a file as a whole.
fn write<P: Published>(dir: &dyn Dir, name: &Path, run: &P) -> io::Result<()> {
    let writer = Writer::this();
    let text = serde_json::to_vec(&Sheet { run, writer })?;
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
                is_own: true,
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
pub fn running(machine: &Machine, catalog: Option<&Path>) -> Vec<RunningBackup> {
    published(machine, catalog)
}

/// All runs that have lasted a second, of all processes that share this catalog.
pub fn running_work(machine: &Machine, catalog: Option<&Path>) -> Vec<RunningWork> {
    published(machine, catalog)
}

fn published<P: Published>(machine: &Machine, catalog: Option<&Path>) -> Vec<P> {
    let dir = catalog
        .and_then(directory)
        .map(|path| machine.storage.dir(&path));
    let Some(Ok(dir)) = dir else {
        return Vec::new();
    };
    let Ok(names) = dir.list() else {
        return Vec::new();
    };
    let now_us = machine.clock.wall_ns() / 1000;
    let mut runs: Vec<P> = names
        .filter_map(Result::ok)
        .map(PathBuf::from)
        .filter_map(|name| live(&*dir, &name, now_us))
        .collect();
    runs.sort_by_key(P::since);
    runs
}

/// The part of a file of either kind that is about the process that writes it.
#[derive(Deserialize)]
struct Told {
    pid: u32,
    updated_us: i64,
    #[serde(default)]
    writer: Writer,
}

/// The fate of a file.
#[derive(Debug, PartialEq)]
enum Judged {
    Shown,
    Hidden,
    Removed,
}

impl Told {
    fn judged(&self, ours: &Writer, now_us: i64) -> Judged {
        if ours.is_beside(&self.writer) {
            return match facts::has_ended(self.pid, &self.writer.process) {
                true => Judged::Removed,
                false => Judged::Shown,
            };
        }
        let age_us = u64::try_from(now_us.saturating_sub(self.updated_us)).unwrap_or(0);
        match Duration::from_micros(age_us) {
            age if age > LEFT => Judged::Removed,
            age if age > SILENT => Judged::Hidden,
            _ => Judged::Shown,
        }
    }
}

/// The run of a file of this kind. A file that nobody will continue is removed, whatever its kind is.
fn live<P: Published>(dir: &dyn Dir, name: &Path, now_us: i64) -> Option<P> {
    let extension = name.extension()?.to_str()?;
    if ![RunningBackup::EXTENSION, RunningWork::EXTENSION].contains(&extension) {
        return None;
    }
    let file = dir.open(name, OpenHow::Read).ok()?;
    let len = file.stat().ok()?.len;
    let mut text = vec![0; usize::try_from(len.min(LEN_MAX)).ok()?];
    file.read_exact_at(&mut text, 0, Via::Cache).ok()?;
    let told: Told = serde_json::from_slice(&text).ok()?;
    let ours = Writer::this();
    match told.judged(&ours, now_us) {
        Judged::Shown => {}
        Judged::Hidden => return None,
        Judged::Removed => {
            // A file of another user stays for that user.
            let _not_ours = dir.remove_file(name);
            return None;
        }
    }
    let is_own = told.pid == std::process::id() && told.writer == ours;
    let run: Option<P> = (extension == P::EXTENSION).then(|| serde_json::from_slice(&text).ok())?;
    run.map(|run| run.noted(is_own))
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
        let seen = || running(&machine, Some(&catalog));
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
        let seen = || running_work(&machine(), Some(&catalog));
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
        assert_eq!(running(&machine(), Some(&catalog)), []);
        drop((file, other));
        let left = std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap();
        assert_eq!(left.count(), 0);
        assert!(ProgressFile::begin(machine(), None, "backup", "shop").is_none());
    }

    /// A file that a process of this number wrote at a moment.
    fn told(pid: u32, writer: &Writer, updated_us: i64) -> Told {
        let writer = writer.clone();
        Told {
            pid,
            updated_us,
            writer,
        }
    }

    /// Goal: numbers and starts are compared only where they mean the same: a container's process has the number of another one's.
    #[test]
    fn a_process_of_another_namespace_boot_or_machine_counts_by_its_age() {
        let (ours, own) = (Writer::this(), std::process::id());
        let (began, rest) = ours.process.split_once(' ').unwrap();
        let mark = |process: String| Writer {
            process,
            ..ours.clone()
        };
        // The number of this process, which another one had before.
        let earlier = mark(format!("{} {rest}", began.parse::<u64>().unwrap() - 1));
        assert_eq!(told(own, &ours, 0).judged(&ours, i64::MAX), Judged::Shown);
        assert_eq!(told(own, &earlier, 0).judged(&ours, 0), Judged::Removed);
        let others = [
            mark(format!("{began} pid:[1] time:[1]")),
            mark(String::new()),
            Writer {
                boot: "another".into(),
                ..earlier.clone()
            },
            Writer {
                host: "another".into(),
                ..earlier.clone()
            },
        ];
        for other in others {
            // No process has this number here.
            let judged = |age: Duration| {
                let age_us = i64::try_from(age.as_micros()).unwrap();
                told(u32::MAX, &other, 0).judged(&ours, age_us)
            };
            let moment = Duration::from_micros(1);
            assert_eq!(judged(SILENT), Judged::Shown, "{other:?}");
            assert_eq!(judged(SILENT + moment), Judged::Hidden, "{other:?}");
            assert_eq!(judged(LEFT + moment), Judged::Removed, "{other:?}");
        }
        // A clock that went back.
        assert_eq!(
            told(1, &mark(String::new()), 9).judged(&ours, 0),
            Judged::Shown
        );
    }

    #[test]
    fn counters_of_a_dead_process_are_removed_and_rubbish_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = dir.path().join("catalog.db");
        let place = dir.path().join(DIRECTORY);
        std::fs::create_dir(&place).unwrap();
        let machine = Machine {
            storage: Arc::new(Host::new()),
            clock: Arc::new(SimClock::new(0)),
        };
        let run = RunningBackup {
            pid: std::process::id(),
            process_started: facts::process_started(std::process::id()).unwrap(),
            since_us: 0,
            updated_us: 0,
            mode: "hardware".into(),
            engines: Vec::new(),
        };
        let put = |name: &str, writer: Writer| {
            let text = serde_json::to_vec(&Sheet { run: &run, writer });
            std::fs::write(place.join(name), text.unwrap()).unwrap();
        };
        let ours = Writer::this();
        let (_, rest) = ours.process.split_once(' ').unwrap();
        let dead = Writer {
            process: format!("1 {rest}"),
            ..ours.clone()
        };
        put("1-0.json", dead);
        put("2-0.json", ours);
        std::fs::write(place.join("3-0.json"), b"{").unwrap();
        assert_eq!(
            running(&machine, Some(&catalog)),
            std::slice::from_ref(&run)
        );
        assert!(!place.join("1-0.json").exists() && place.join("3-0.json").exists());
    }

    #[test]
    fn a_run_of_this_process_is_known_as_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = dir.path().join("catalog.db");
        let clock = Arc::new(SimClock::new(0));
        let machine = Machine {
            storage: Arc::new(Host::new()),
            clock: clock.clone(),
        };
        let file = ProgressFile::begin(machine.clone(), Some(&catalog), "verify", "").unwrap();
        clock.advance(EVERY);
        file.update(1, None);
        let place = dir.path().join(DIRECTORY);
        let name = std::fs::read_dir(&place).unwrap().next().unwrap().unwrap();
        let text = std::fs::read_to_string(name.path()).unwrap();
        // The first process of another container, as this one may be.
        let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
        other["writer"]["process"] = "7 pid:[1] time:[1]".into();
        std::fs::write(place.join("1-0-0.work"), other.to_string()).unwrap();
        let runs = running_work(&machine, Some(&catalog));
        let own: Vec<bool> = runs.iter().map(|run| run.is_own).collect();
        assert_eq!(own.iter().filter(|own| **own).count(), 1, "{runs:?}");
        assert_eq!(own.len(), 2);
    }
}
