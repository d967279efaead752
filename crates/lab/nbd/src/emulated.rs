//! Files that answer as slowly as devices of a profile would, for measurements with only one disk.
//!
//! The device's model is told of a transfer when it begins; the transfer is done on the file, and answers when the
//! model has finished it, but not sooner than the file. All times of the model are stretched by a factor, so that the
//! host's own time is small compared with them; the cached backend must use a clock that is slower by the same factor
//! ([`SlowClock`]).
//!
//! The host's part is counted: how much later than the model requests were answered, because the file was slower or
//! because the waiting thread woke up late.
//!
//! Invariants
//! - The bytes are those of the file.
//! - Syncs are the file's own.
//!
//! Leaves to others: the models of devices (`longshore-policy`).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use longshore_io::{
    Clock, Dir, File, FileAttributes, FileLock, FileRead, FileWrite, Host, HostClock, Stat,
    Storage, Via, ZeroedSpace,
};
use longshore_policy::model::{Device, Nanos, Op, Profile, Request};
use parking_lot::{Condvar, Mutex};

/// The emulated devices, and the factor by which they are slower.
#[derive(Debug, Clone)]
pub struct Emulation {
    /// `None`: as fast as the host.
    pub fast: Option<&'static Profile>,
    pub slow: Option<&'static Profile>,
    pub stretch: u32,
}

impl Emulation {
    /// `FAST/SLOW@STRETCH`, where `-` is a device that is not emulated.
    pub fn parse(text: &str) -> Result<Emulation, String> {
        let wrong = || format!("emulate: {text:?} is not FAST/SLOW@STRETCH");
        let (pair, stretch) = text.split_once('@').ok_or_else(wrong)?;
        let (fast, slow) = pair.split_once('/').ok_or_else(wrong)?;
        let profile = |name: &str| match name {
            "-" => Ok(None),
            _ => Profile::named(name)
                .map(Some)
                .ok_or_else(|| format!("emulate: unknown profile {name:?}")),
        };
        let stretch = stretch.parse().ok().filter(|s| (1..=1000).contains(s));
        Ok(Emulation {
            fast: profile(fast)?,
            slow: profile(slow)?,
            stretch: stretch.ok_or_else(wrong)?,
        })
    }
}

/// The host's clock, slowed down.
#[derive(Debug)]
pub struct SlowClock {
    pub stretch: u32,
}

impl Clock for SlowClock {
    fn now(&self) -> Duration {
        HostClock.now() / self.stretch
    }

    fn wall_ns(&self) -> i64 {
        HostClock.wall_ns()
    }

    fn thread_cpu(&self) -> Duration {
        HostClock.thread_cpu()
    }

    fn sleep(&self, how_long: Duration) {
        HostClock.sleep(how_long * self.stretch);
    }
}

/// The host's files, two of them on emulated devices.
#[derive(Debug)]
pub struct EmulatedHost {
    host: Host,
    devices: Vec<(PathBuf, &'static Profile)>,
    stretch: u32,
    late: Arc<Late>,
}

/// The host's part, summed over all requests.
#[derive(Debug, Default)]
pub struct Late {
    requests: AtomicU64,
    served_ns: AtomicU64,
    late_ns: AtomicU64,
}

impl Late {
    /// Counts a request that was answered after `served`, `late` later than in the model.
    fn add(&self, served: Duration, late: Duration) {
        let add = |counter: &AtomicU64, time: Duration| {
            counter.fetch_add(time.as_nanos() as u64, Relaxed);
        };
        self.requests.fetch_add(1, Relaxed);
        add(&self.served_ns, served);
        add(&self.late_ns, late);
    }

    /// The host's share of the requests' time.
    fn percent(&self) -> f64 {
        let (served, late) = (self.served_ns.load(Relaxed), self.late_ns.load(Relaxed));
        100.0 * late as f64 / served.max(1) as f64
    }

    /// Logs it.
    pub fn report(&self) {
        tracing::info!(
            requests = self.requests.load(Relaxed),
            host_percent = format!("{:.1}", self.percent()),
            "emulated devices: time added by the host"
        );
    }
}

impl EmulatedHost {
    pub fn new(emulation: &Emulation, cache: Option<&Path>, backend: &Path) -> EmulatedHost {
        let fast = cache.zip(emulation.fast);
        let slow = emulation.slow.map(|profile| (backend, profile));
        let both = fast.into_iter().chain(slow);
        EmulatedHost {
            host: Host::new(),
            devices: both.map(|(path, p)| (path.to_owned(), p)).collect(),
            stretch: emulation.stretch,
            late: Arc::default(),
        }
    }

    pub fn late(&self) -> Arc<Late> {
        Arc::clone(&self.late)
    }
}

impl Storage for EmulatedHost {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.host.dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.host.create_dir_all(path)
    }

    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.host.disk(path)?;
        let profile = self.devices.iter().find(|(device, _)| device == path);
        Ok(match profile {
            None => file,
            Some((_, profile)) => Arc::new(EmulatedDevice {
                file,
                begun: Instant::now(),
                stretch: self.stretch,
                state: Mutex::new(State {
                    device: Device::new(profile, 1),
                    open: BTreeMap::new(),
                    free: Vec::new(),
                    last: 0,
                }),
                stepped: Condvar::new(),
                late: Arc::clone(&self.late),
            }),
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.host.stat(path)
    }

    fn birth_ns(&self, path: &Path) -> io::Result<Option<i64>> {
        self.host.birth_ns(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.host.canonical(path)
    }
}

struct EmulatedDevice {
    file: Arc<dyn File>,
    begun: Instant,
    stretch: u32,
    state: Mutex<State>,
    /// A request has begun or ended.
    stepped: Condvar,
    late: Arc<Late>,
}

struct State {
    device: Device,
    /// When the device finishes a request in flight; `None`: not known yet.
    open: BTreeMap<u64, Option<Nanos>>,
    /// Free numbers of requests.
    free: Vec<u64>,
    last: u64,
}

impl EmulatedDevice {
    /// The device's time.
    fn now(&self) -> Nanos {
        self.begun.elapsed().as_nanos() as Nanos / u64::from(self.stretch)
    }

    fn step(&self, state: &mut State) -> Nanos {
        let now = self.now();
        let done = state.device.advance(now);
        for completion in &done {
            state.open.insert(completion.id, Some(completion.at));
        }
        if !done.is_empty() {
            self.stepped.notify_all();
        }
        now
    }

    fn pass<T>(
        &self,
        op: Op,
        offset: u64,
        len_bytes: usize,
        transfer: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let len_bytes = len_bytes.max(1) as u64;
        // Where no file can reach, the file refuses the transfer, and no device would begin it.
        let end = offset.checked_add(len_bytes);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return transfer();
        }
        let begun = Instant::now();
        let id = {
            let mut state = self.state.lock();
            let now = self.step(&mut state);
            let id = state.free.pop().unwrap_or_else(|| {
                state.last += 1;
                state.last - 1
            });
            state.device.submit(
                now,
                id,
                Request {
                    op,
                    offset,
                    len_bytes,
                },
            );
            state.open.insert(id, None);
            // Waiting threads must compute their next step again.
            self.stepped.notify_all();
            id
        };
        let done = transfer();
        let mut state = self.state.lock();
        self.step(&mut state);
        let ended = loop {
            if let Some(at) = state.open.get(&id).copied().flatten() {
                break self.begun + Duration::from_nanos(at * u64::from(self.stretch));
            }
            let next = state.device.next_step().unwrap_or(0) + 1;
            let at = self.begun + Duration::from_nanos(next * u64::from(self.stretch));
            self.stepped.wait_until(&mut state, at);
            self.step(&mut state);
        };
        state.open.remove(&id);
        state.free.push(id);
        drop(state);
        let now = Instant::now();
        self.late
            .add(now - begun, now.saturating_duration_since(ended));
        done
    }
}

impl fmt::Debug for EmulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulated")
            .field("file", &self.file)
            .field("stretch", &self.stretch)
            .finish_non_exhaustive()
    }
}

impl FileRead for EmulatedDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        let len = buf.len();
        self.pass(Op::Read, offset, len, || {
            self.file.read_full_at(buf, offset, via)
        })
    }

    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn identity(&self) -> Option<String> {
        self.file.identity()
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.file.is_cached(range)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.file.next_data(offset)
    }
}

impl FileWrite for EmulatedDevice {
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize> {
        self.pass(Op::Write, offset, buf.len(), || {
            self.file.write_all_at(buf, offset, via).map(|()| buf.len())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.file.allocate(range)
    }

    fn free_unwritten(&self) -> io::Result<()> {
        self.file.free_unwritten()
    }

    fn zero(&self, range: Range<u64>, space: ZeroedSpace) -> io::Result<bool> {
        self.file.zero(range, space)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn sync_with_times(&self) -> io::Result<()> {
        self.file.sync_with_times()
    }
}

impl FileAttributes for EmulatedDevice {}

impl FileLock for EmulatedDevice {
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
