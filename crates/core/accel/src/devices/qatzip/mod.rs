//! Intel QAT through QATzip (`libqatzip.so.3`), loaded at run time.
//!
//! Only the hardware's work is requested of the library: whole gzip-ext members of 64 KiB, with `last = 1` in every
//! call. Its own software fallback is off (it is zlib, and it breaks the stream when a device returns in the middle).
//! Any error becomes a [`Fault`] of one job, and software does that job.
//!
//! Invariants
//! - sysfs is read before the library is loaded. A process in which QATzip once saw no device never sees one; such an
//!   engine is [`EngineState::Off`], and only a new process helps.
//! - No job is taken before the self-test has passed: structures, both directions, members in the required format,
//!   judged by another implementation of deflate.
//! - A session serves one call at a time. A call that does not return keeps its session and its staging memory; no
//!   memory of a job is within a device's reach.
//! - The library is never unloaded, and nothing here needs a destructor at exit. A process that ends while calls are
//!   in flight must not run QATzip's destructors: see [`super::holds_exit`].
//!
//! Leaves to others: one session's calls (`session.rs`), which blocks come here, and checking the results (`dispatch`).
//!
//! `LONGSHORE_QATZIP` names another file to load, or `off` disables it; `LONGSHORE_SYSFS` names the mount point of
//! sysfs.
//!
//! Source: QATzip 1.3.1, `qatzip.h` and `qatzip.c`.

mod abi;
pub mod device;
mod library;
mod session;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::{OsString, c_int};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_codec::deflate::{isal, miniz};
use longshore_codec::gzext::Member;
use longshore_codec::{Algorithm, PLAIN_LEN_MAX};
use parking_lot::Mutex;

use self::abi::code;
use self::device::Devices;
use self::library::Library;
use self::session::{CallError, Session, Trust};
use super::door::{Accelerator, AcceleratorFacts, Refusal, Trouble};
use super::messages::log_test;
use super::under_way::{self, UnderWay};
use crate::engine::HUNG_MAX;
use crate::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Task};

/// The engine gives up after this many sessions whose memory a device may still write to. About 3 MiB each.
const DOUBTFUL_MAX: usize = 8;

/// Where to look for device and library.
#[derive(Debug, Clone)]
pub struct Places {
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// A file, a name for the loader's search, or `off`.
    pub library: OsString,
}

impl Places {
    /// The places of this machine, unless the environment names others.
    pub fn host() -> Places {
        let var = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Places {
            sys: var("LONGSHORE_SYSFS").map_or_else(|| "/sys".into(), PathBuf::from),
            library: var("LONGSHORE_QATZIP").unwrap_or_else(|| "libqatzip.so.3".into()),
        }
    }
}

/// QAT as an engine.
pub struct Qatzip {
    places: Places,
    caps: Caps,
    deepest_level: u32,
    condition: Mutex<Condition>,
    /// Held by the thread that loads, initialises and tests.
    bringing_up: Mutex<BroughtUp>,
    idle: Mutex<Vec<Session>>,
    doubtful: AtomicUsize,
}

/// The data of [`Engine::health`]. Never locked during a call of the library.
struct Condition {
    state: EngineState,
    refusal: Option<Refusal>,
    hardware: Option<String>,
    library_version: Option<String>,
    driver_version: Option<String>,
    firmware_version: Option<String>,
}

#[derive(Default)]
struct BroughtUp {
    library: Option<&'static Library>,
    initialised: bool,
}

impl Qatzip {
    /// Reads sysfs only; the first [`Engine::self_test`] loads the library. At most one engine for each library in a
    /// process: QATzip's state belongs to the process.
    pub fn new(places: Places) -> Qatzip {
        let devices = Devices::read(&places.sys).unwrap_or_default();
        let calls_max = devices.instances();
        let mut condition = Condition {
            state: EngineState::Probing,
            refusal: Some(Refusal::new(
                Trouble::NotTested,
                "not tested yet in this process",
            )),
            hardware: None,
            library_version: None,
            driver_version: None,
            firmware_version: None,
        };
        condition.look(&devices);
        if let Err(refusal) = allowed(&places, &devices) {
            condition.refuse(refusal);
        }
        Qatzip {
            caps: Caps {
                name: "qatzip",
                algorithm: Algorithm::QatDeflate,
                accelerator: true,
                decompresses: true,
                input_bytes_max: PLAIN_LEN_MAX,
                calls_max,
                batch_bytes: 256 << 10..session::CALL_LEN,
                // Each hung call keeps a session, and so does each call whose end is in doubt.
                staging_bytes: (calls_max + HUNG_MAX as usize + DOUBTFUL_MAX)
                    * Session::STAGING_LEN,
            },
            deepest_level: devices.deepest_level(),
            condition: Mutex::new(condition),
            bringing_up: Mutex::default(),
            idle: Mutex::default(),
            doubtful: AtomicUsize::new(0),
            places,
        }
    }

    fn bring_up(&self) -> Result<(), Refusal> {
        let mut brought_up = self.bringing_up.lock();
        let devices = Devices::read(&self.places.sys).unwrap_or_default();
        self.condition.lock().look(&devices);
        allowed(&self.places, &devices)?;
        if self.doubtful.load(Ordering::Relaxed) >= DOUBTFUL_MAX {
            return Err(exhausted());
        }
        let library = match brought_up.library {
            Some(library) => library,
            None => {
                let library = Library::load(&self.places.library)?;
                *brought_up.library.insert(Box::leak(Box::new(library)))
            }
        };
        self.condition.lock().library_version = Some(library.version.clone());
        let _under_way = UnderWay::begin();
        if !brought_up.initialised {
            initialise(library)?;
            brought_up.initialised = true;
        }
        let level = abi::level_number(longshore_codec::Level::Low, self.deepest_level);
        let mut session = Session::open(library, level).map_err(no_session)?;
        let tested = self_test(&mut session);
        match tested {
            Ok(()) => self.idle.lock().push(session),
            Err(_) => self.set_aside(session, Trust::Doubtful),
        }
        tested
    }

    /// A session for this level. `None` if the engine is not in service.
    fn session(&self, level: u32) -> Option<Result<Session, c_int>> {
        if self.condition.lock().state != EngineState::Ready {
            return None;
        }
        let mut idle = self.idle.lock();
        // Levels do not change in a backup; a session of another level is discarded.
        let fitting = idle.iter().position(|s| s.level() == level);
        let other = (idle.len() >= self.caps.calls_max).then_some(0);
        let found = fitting.map(|at| idle.swap_remove(at));
        let spare = match found {
            Some(session) => return Some(Ok(session)),
            None => other.map(|at| idle.swap_remove(at)),
        };
        drop(idle);
        drop(spare);
        let library = self.bringing_up.try_lock()?.library?;
        Some(Session::open(library, level))
    }

    fn set_aside(&self, session: Session, trust: Trust) {
        match trust {
            Trust::Good => self.idle.lock().push(session),
            Trust::Spent => drop(session),
            Trust::Doubtful => {
                // Never freed: a device may still write there.
                std::mem::forget(session);
                if self.doubtful.fetch_add(1, Ordering::Relaxed) + 1 >= DOUBTFUL_MAX {
                    self.condition.lock().refuse(exhausted());
                }
            }
        }
    }

    fn run_one(&self, job: &mut Job) -> Outcome {
        let _under_way = UnderWay::begin();
        let level = match job.task {
            Task::Compress { level } => level,
            // Any session restores.
            Task::Decompress { .. } => longshore_codec::Level::Low,
        };
        let level = abi::level_number(level, self.deepest_level);
        let mut session = match self.session(level) {
            None => return Outcome::Recompute(Fault::Down),
            Some(Err(code)) => {
                return Outcome::Recompute(abi::fault_of(code).unwrap_or(Fault::Down));
            }
            Some(Ok(session)) => session,
        };
        let input = job.input.clone();
        let input = &input[job.input_range.clone()];
        let done = match job.task {
            Task::Compress { .. } => session.compress(input, job.output_mut()),
            Task::Decompress { plain_len } => match job.output_mut().get_mut(..plain_len) {
                Some(plain) => session.decompress(input, plain).map(|()| plain_len),
                None => Err(CallError {
                    fault: Fault::NoRoom,
                    trust: Trust::Good,
                    code: code::OK,
                }),
            },
        };
        match done {
            Ok(len) => {
                self.set_aside(session, Trust::Good);
                Outcome::Done { len }
            }
            Err(failed) => {
                tracing::debug!(
                    engine = self.caps.name,
                    sequence = job.sequence,
                    code = %code::text(failed.code),
                    fault = ?failed.fault,
                    "job left to software"
                );
                self.set_aside(session, failed.trust);
                if failed.code == code::PARAMS {
                    let text = format!(
                        "the library refused the parameters: {}",
                        code::text(failed.code)
                    );
                    self.condition
                        .lock()
                        .refuse(Refusal::new(Trouble::VersionNotCompatible, text));
                }
                Outcome::Recompute(failed.fault)
            }
        }
    }
}

impl Engine for Qatzip {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn health(&self) -> Health {
        let condition = self.condition.lock();
        let text = condition.refusal.as_ref().map(|r| r.text.clone());
        Health {
            state: condition.state,
            reason: text.unwrap_or_default(),
            hardware: condition.hardware.clone(),
            library_version: condition.library_version.clone(),
            driver_version: condition.driver_version.clone(),
            firmware_version: condition.firmware_version.clone(),
        }
    }

    fn run(&self, mut batch: Vec<Job>) -> Vec<Job> {
        for job in &mut batch {
            job.outcome = self.run_one(job);
        }
        batch
    }

    fn self_test(&self) -> Health {
        let tested = self.bring_up();
        let mut condition = self.condition.lock();
        let before = condition.refusal.clone();
        match tested {
            Ok(()) => {
                condition.state = EngineState::Ready;
                condition.refusal = None;
            }
            Err(refusal) => condition.refuse(refusal),
        }
        drop(condition);
        log_test(self, before.as_ref());
        self.health()
    }
}

impl Accelerator for Qatzip {
    fn found(&self) -> AcceleratorFacts {
        let condition = self.condition.lock();
        AcceleratorFacts {
            accelerator: "QAT",
            description: "Intel(R) QuickAssist Technology",
            library: "QATzip",
            hardware_detected: condition.hardware.is_some(),
            refusal: condition.refusal.clone(),
        }
    }
}

impl Condition {
    fn look(&mut self, devices: &Devices) {
        self.hardware = devices.summary();
        // The kernel's own driver has no version of its own.
        let in_tree = |f: &&device::Function| f.kind.in_tree && f.pci.driver.is_some();
        let kernel = devices.functions.iter().find(in_tree);
        let kernel = kernel.map(|_| format!("Linux {}", longshore_facts::kernel()));
        self.driver_version = devices.driver_version.clone().or(kernel);
        self.firmware_version = devices.firmware();
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.state = refusal.trouble.state();
        self.refusal = Some(refusal);
    }
}

/// Whether the library may be loaded.
fn allowed(places: &Places, devices: &Devices) -> Result<(), Refusal> {
    if places.library == "off" {
        let text = "switched off by LONGSHORE_QATZIP=off";
        return Err(Refusal::new(Trouble::SwitchedOff, text));
    }
    devices.usable().map(drop).map_err(|why| {
        let trouble = match why {
            device::Unusable::NoDevice => Trouble::HardwareNotFound,
            _ => Trouble::HardwareNotServing,
        };
        Refusal::new(trouble, why.to_string())
    })
}

fn exhausted() -> Refusal {
    let text = format!(
        "after {DOUBTFUL_MAX} calls the device did not release its memory; restart the program"
    );
    Refusal::new(Trouble::MemoryLost, text)
}

/// Attaches the process to the hardware, once.
fn initialise(library: &Library) -> Result<(), Refusal> {
    let mut session = abi::Session::EMPTY;
    const SW_BACKUP: u8 = 0;
    // From here on QATzip has a thread, which its destructor joins.
    under_way::hold_exit();
    // SAFETY: qatzip.h demands a session, which the call does not keep: it is a local variable. 0 asks for no software.
    let answer = unsafe { (library.init)(&raw mut session, SW_BACKUP) };
    match answer {
        code::OK => Ok(()),
        // Another part of the process initialised it before us, when it found no device.
        code::DUPLICATE => Err(Refusal::new(
            Trouble::ProcessWithoutDevice,
            "QATzip found no device when this process first asked, and does not look again; restart the program",
        )),
        answer => {
            let text = format!(
                "QATzip does not start: {}; check that the qat service runs, that you are in the group qat and that `ulimit \
                 -l` allows 16 MB for each virtual function (`longshore doctor` checks all three)",
                code::text(answer)
            );
            Err(Refusal::new(Trouble::InitializationFailed, text))
        }
    }
}

fn no_session(answer: c_int) -> Refusal {
    let text = format!("QATzip opens no session: {}", code::text(answer));
    Refusal::new(Trouble::SessionFailed, text)
}

/// Both directions with a built-in pattern of two members, judged by miniz_oxide.
fn self_test(session: &mut Session) -> Result<(), Refusal> {
    let failed = |what: &str, failed: Option<CallError>| {
        let code = failed.map_or(String::new(), |f| match f.code {
            code::OK => format!(" ({:?})", f.fault),
            answer => format!(" ({})", code::text(answer)),
        });
        let text = format!("the device failed its self-test: {what}{code}; software is used");
        Refusal::new(Trouble::SelfTestFailed, text)
    };
    let mut plain = isal::test_pattern();
    plain.extend_from_within(..plain.len() / 2);
    let mut out = vec![0; abi::bound(plain.len())];
    let len = session
        .compress(&plain, &mut out)
        .map_err(|f| failed("it does not compress", Some(f)))?;
    let (mut rest, mut left) = (&out[..len], &plain[..]);
    while !rest.is_empty() {
        let member = Member::parse(rest, left.len())
            .map_err(|_| failed("its output is not members of the format", None))?;
        if member.plain_len > abi::CHUNK_LEN {
            return Err(failed("the library compresses in software instead", None));
        }
        let (expected, after) = left.split_at(member.plain_len);
        let mut inflated = vec![0; member.plain_len];
        let whole = miniz::Inflater::new().inflate(member.deflate, &mut inflated);
        if !whole || inflated != expected {
            return Err(failed(
                "its compressed output does not inflate to the original",
                None,
            ));
        }
        if crc_fast::crc32_iso_hdlc(expected) != member.crc32 {
            return Err(failed("its CRC-32 does not match the original", None));
        }
        (rest, left) = (&rest[member.len..], after);
    }
    let mut restored = vec![0; plain.len()];
    session
        .decompress(&out[..len], &mut restored)
        .map_err(|f| failed("it does not decompress", Some(f)))?;
    if restored != plain {
        return Err(failed("its decompressed output is not the original", None));
    }
    Ok(())
}
