//! The simulated device: instances, service times, and the faults of the script.
//!
//! Invariants
//! - The device serves at most as many calls at a time as the script has instances; it refuses one more.
//! - Calls are numbered from 1 over all threads, so a fault meets the call that the script names.
//! - The script is read once; the double panics if it does not understand all of it.
//!
//! Leaves to others: the C entry points (`exports.rs`), the members' bytes (`members.rs`), and the script's text
//! (`script.rs`).

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::members;
use crate::script::{Defaults, Fault, Init, Script};

/// The values of `QZ_OK`, `QZ_DUPLICATE`, … in `qatzip.h`.
pub mod code {
    pub const OK: i32 = 0;
    pub const DUPLICATE: i32 = 1;
    pub const PARAMS: i32 = -1;
    pub const FAIL: i32 = -2;
    pub const BUF_ERROR: i32 = -3;
    pub const DATA_ERROR: i32 = -4;
    pub const NOSW_NO_HW: i32 = -101;
    pub const NOSW_NO_INST_ATTACH: i32 = -103;
}

pub struct Device {
    script: Script,
    /// The answer of the first `qzInit`.
    init: Mutex<Option<i32>>,
    /// Calls that have begun; the condition wakes threads that wait for more of them.
    calls: Mutex<u64>,
    begun: Condvar,
    /// Prepared members by the look of their plain bytes.
    prepared: Mutex<HashMap<Look, Arc<[u8]>>>,
    pinned: Mutex<HashMap<usize, Layout>>,
}

/// Instances that are serving a call.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Length and two sums over samples: enough to recognise a test's own data without reading all of it.
type Look = (usize, u64, u64);

/// The result of a call. `written` may be more than `reported`.
pub struct Answer {
    pub code: i32,
    pub taken: u32,
    pub reported: u32,
}

impl Answer {
    fn refused(code: i32) -> Answer {
        Answer {
            code,
            taken: 0,
            reported: 0,
        }
    }
}

static DEVICE: OnceLock<Device> = OnceLock::new();

/// Whether the end of the process must wait for calls in flight.
pub fn holds_exit() -> bool {
    let waits = DEVICE.get().is_some_and(|device| device.script.exit_waits);
    waits && BUSY.load(Ordering::SeqCst) > 0
}

/// The one device of this copy of the library.
pub fn device() -> &'static Device {
    DEVICE.get_or_init(|| Device {
        script: script(),
        init: Mutex::new(None),
        calls: Mutex::new(0),
        begun: Condvar::new(),
        prepared: Mutex::default(),
        pinned: Mutex::default(),
    })
}

fn script() -> Script {
    let text = std::env::var("LONGSHORE_DOUBLE_QATZIP").ok().or_else(|| {
        let path = own_path()?.into_os_string();
        let script = [path, ".script".into()].join(std::ffi::OsStr::new(""));
        std::fs::read_to_string(script).ok()
    });
    let text = text.unwrap_or_default();
    // If the double ignored a part of the script, the test would show nothing.
    text.parse()
        .unwrap_or_else(|error| panic!("libqatzip double: {error}"))
}

/// The file this library was loaded from.
fn own_path() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: `zeroed` demands a type for which zeros are valid: `Dl_info` is plain pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr demands room for one `Dl_info`, which outlives the call; it only looks the address up.
    let found = unsafe { libc::dladdr(own_path as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `from_ptr` demands a C string that lives: dladdr gave one that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hang() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

impl Device {
    pub fn init(&self) -> i32 {
        let mut answered = lock(&self.init);
        // A process that once had no device gets "duplicate", like one that already has it.
        if let Some(code::OK | code::NOSW_NO_HW) = *answered {
            return code::DUPLICATE;
        }
        let code = match self.script.init {
            Init::Returns(code) => code,
            Init::Dies => std::process::abort(),
            Init::Hangs => hang(),
        };
        *answered = Some(code);
        code
    }

    pub fn setup(&self) -> i32 {
        match *lock(&self.init) {
            Some(code::OK) => self.script.setup,
            _ => code::NOSW_NO_HW,
        }
    }

    pub fn defaults(&self) -> Defaults {
        self.script.defaults
    }

    pub fn compress(&self, plain: &[u8], level: u32, chunk_len: usize, out: &mut [u8]) -> Answer {
        self.serve(plain.len(), plain.len(), out, || {
            Ok(self.members(plain, level, chunk_len))
        })
    }

    /// The library's own work for callers that allow it, when its device fails.
    pub fn in_software(
        &self,
        plain: &[u8],
        level: u32,
        chunk_len: usize,
        out: &mut [u8],
    ) -> Answer {
        let made = members::software(plain, chunk_len, level);
        let Some(place) = out.get_mut(..made.len()) else {
            return Answer::refused(code::BUF_ERROR);
        };
        place.copy_from_slice(&made);
        Answer {
            code: code::OK,
            taken: plain.len() as u32,
            reported: made.len() as u32,
        }
    }

    pub fn decompress(&self, stored: &[u8], out: &mut [u8]) -> Answer {
        let room = out.len();
        self.serve(stored.len(), room, out, || {
            members::read_all(stored)
                .map(Into::into)
                .ok_or(code::DATA_ERROR)
        })
    }

    /// Counts a call; returns its number.
    fn begin(&self) -> u64 {
        let mut calls = lock(&self.calls);
        *calls += 1;
        self.begun.notify_all();
        *calls
    }

    /// Waits until that many calls have begun.
    pub fn wait_until_begun(&self, calls: u64) {
        let fewer = |begun: &mut u64| *begun < calls;
        let waited = self.begun.wait_while(lock(&self.calls), fewer);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// One call: an instance, its service time, and its faults.
    fn serve(
        &self,
        input_len: usize,
        plain_len: usize,
        out: &mut [u8],
        work: impl FnOnce() -> Result<Arc<[u8]>, i32>,
    ) -> Answer {
        let call = self.begin();
        let faults: Vec<Fault> = self.script.faults(call).collect();
        let Some(_instance) = Instance::grab(self.script.instances) else {
            return Answer::refused(code::NOSW_NO_INST_ATTACH);
        };
        let began = Instant::now();
        for fault in &faults {
            match *fault {
                Fault::Hang => hang(),
                Fault::Code(code) => return Answer::refused(code),
                Fault::Delay(time) => thread::sleep(time),
                _ => {}
            }
        }
        let mut bytes = match work() {
            Ok(bytes) => bytes,
            Err(code) => return Answer::refused(code),
        };
        thread::sleep(self.service_time(plain_len).saturating_sub(began.elapsed()));
        if bytes.len() > out.len() {
            return Answer::refused(code::BUF_ERROR);
        }
        let (mut taken, mut reported) = (input_len as u32, bytes.len() as u32);
        let mut tail = 0;
        for fault in &faults {
            match *fault {
                Fault::Late(calls) => self.wait_until_begun(calls),
                Fault::Flip(at) => {
                    if let Some(byte) = Arc::make_mut(&mut bytes).get_mut(at) {
                        *byte ^= 0x10;
                    }
                }
                Fault::Lie(by) => lie(Arc::make_mut(&mut bytes), by),
                Fault::ShortInput(by) => taken = taken.saturating_sub(by),
                Fault::ShortOutput(by) => reported = reported.saturating_sub(by),
                Fault::Tail(len) => tail = len,
                Fault::Hang | Fault::Code(_) | Fault::Delay(_) => {}
            }
        }
        out[..bytes.len()].copy_from_slice(&bytes);
        let end = (bytes.len() + tail).min(out.len());
        out[bytes.len()..end].fill(0xdb);
        Answer {
            code: code::OK,
            taken,
            reported,
        }
    }

    fn service_time(&self, plain_len: usize) -> Duration {
        let moving = self.script.rate.map_or(0, |rate| plain_len as u64 / rate);
        self.script.latency + Duration::from_micros(moving)
    }

    fn members(&self, plain: &[u8], level: u32, chunk_len: usize) -> Arc<[u8]> {
        let make = || -> Arc<[u8]> {
            if self.script.software {
                return members::software(plain, chunk_len, level).into();
            }
            let chunks = plain.chunks(chunk_len);
            chunks
                .flat_map(|chunk| members::hardware(chunk, level))
                .collect()
        };
        if !self.script.prepared {
            return make();
        }
        let look = look(plain);
        if let Some(known) = lock(&self.prepared).get(&look) {
            return known.clone();
        }
        let made = make();
        lock(&self.prepared).insert(look, made.clone());
        made
    }

    /// Memory as `qzMalloc` returns it; null if there is none.
    pub fn allocate(&self, len: usize) -> *mut c_void {
        let layout = Layout::from_size_align(len.max(1), 64);
        let Some(layout) = layout.ok().filter(|_| !self.script.unpinned) else {
            return std::ptr::null_mut();
        };
        // SAFETY: `alloc_zeroed` demands a layout of a size above 0, which this one has.
        let place = unsafe { alloc::alloc_zeroed(layout) };
        if !place.is_null() {
            lock(&self.pinned).insert(place as usize, layout);
        }
        place.cast()
    }

    pub fn free(&self, place: *mut c_void) {
        if let Some(layout) = lock(&self.pinned).remove(&(place as usize)) {
            // SAFETY: `dealloc` demands memory of this layout that is no longer used: it was allocated above, and is
            // in the table no more.
            unsafe { alloc::dealloc(place.cast(), layout) };
        }
    }

    pub fn is_pinned(&self, place: *const c_void) -> bool {
        lock(&self.pinned)
            .iter()
            .any(|(start, layout)| (*start..start + layout.size()).contains(&(place as usize)))
    }
}

struct Instance;

impl Instance {
    fn grab(count: usize) -> Option<Instance> {
        let free = |now: usize| (now < count).then_some(now + 1);
        let grabbed = BUSY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free);
        grabbed.ok().map(|_| Instance)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes the first member's header claim `by` more deflate bytes than there are.
fn lie(members: &mut [u8], by: u32) {
    if let Some(field) = members.get_mut(20..24) {
        let said = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        field.copy_from_slice(&said.wrapping_add(by).to_le_bytes());
    }
}

/// Samples are at all positions within a page: the heads of two pages of a database are often the same.
fn look(plain: &[u8]) -> Look {
    const SAMPLES: usize = 1024;
    const LEN: usize = 16;
    let step = (plain.len() / SAMPLES).max(LEN);
    let (mut a, mut b) = (0xcbf2_9ce4_8422_2325_u64, 0);
    for (i, part) in plain.chunks(step).enumerate() {
        let at = (i * 331) % (part.len().saturating_sub(LEN) + 1);
        for byte in part.iter().skip(at).take(LEN) {
            a = (a ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
        b = u64::rotate_left(b, 7) ^ a;
    }
    (plain.len(), a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_equal_heads_look_different() {
        let pages = |seed: u8| -> Vec<u8> {
            let mut pages = vec![0; 1 << 20];
            for page in pages.chunks_mut(4096) {
                page[100..].fill(seed);
            }
            pages
        };
        assert_eq!(look(&pages(1)), look(&pages(1)));
        assert_ne!(look(&pages(1)), look(&pages(2)));
    }
}
