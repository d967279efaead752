//! The double's device: memory, streams, events, and the work that is queued and not done yet.
//!
//! Invariants
//! - A stream's work is done in order, and only when a caller waits for it, for an event after it, or for another
//!   stream that waits for it.
//! - Every byte that work touches lies in one allocation; otherwise the device is lost (`sticky`).
//!
//! Leaves to others: the C functions (`cuda.rs`, `nvcomp.rs`), the execution of kernels (`ptx.rs`), and the text of the
//! faults (`script.rs`).

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::ptx::{Kernel, Memory};
use crate::script::{Ptx, Script, is_nth};

pub const ILLEGAL_ADDRESS: i32 = 700;
const OUT_OF_MEMORY: i32 = 2;
const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
const INVALID_CONTEXT: i32 = 201;
const INVALID_VALUE: i32 = 1;

/// Fills memory that was not written yet.
const RUBBISH: u8 = 0xdb;
const ALIGN: usize = 256;

/// Work in a stream.
#[derive(Debug, Clone)]
pub enum Work {
    Copy {
        to: u64,
        from: u64,
        len: usize,
    },
    Fill {
        at: u64,
        byte: u8,
        len: usize,
    },
    /// Waits until the other stream has done this many pieces.
    Wait {
        stream: usize,
        done: u64,
    },
    /// The event has been reached.
    Mark {
        event: usize,
    },
    Kernel {
        kernel: Arc<Kernel>,
        grid: (u32, u32),
        arguments: Vec<u64>,
    },
    Compress(Compress),
    Checksum {
        inputs: u64,
        sizes: u64,
        chunks: u64,
        crcs: u64,
    },
}

#[derive(Debug, Clone)]
pub struct Compress {
    pub inputs: u64,
    pub sizes: u64,
    pub chunks: u64,
    pub scratch: (u64, usize),
    pub outputs: u64,
    pub output_sizes: u64,
    pub statuses: u64,
    pub algorithm: i32,
    pub slot: usize,
}

#[derive(Debug, Default)]
struct Stream {
    queue: VecDeque<Work>,
    queued: u64,
    done: u64,
    gone: bool,
}

#[derive(Debug, Default, Clone)]
struct Event {
    /// Where it was recorded last.
    at: Option<(usize, u64)>,
    /// When it was reached, in pieces of work done by the whole device.
    reached: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Device,
    Pinned,
}

#[derive(Debug)]
pub struct World {
    pub script: Script,
    calls: HashMap<String, u64>,
    allocations: BTreeMap<u64, (usize, Kind)>,
    /// The allocation that was looked up last: a kernel touches the same few word by word.
    last: Cell<Option<(u64, usize, Kind)>>,
    streams: Vec<Stream>,
    events: Vec<Event>,
    sticky: Option<i32>,
    work_done: u64,
    chunks: u64,
    checksums: u64,
    released: bool,
    kernel: Option<Arc<Kernel>>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

pub struct Guard(MutexGuard<'static, Option<World>>);

impl std::ops::Deref for Guard {
    type Target = World;
    fn deref(&self) -> &World {
        self.0.as_ref().expect("made when locked")
    }
}

impl std::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut World {
        self.0.as_mut().expect("made when locked")
    }
}

pub fn lock() -> Guard {
    let mut world = WORLD.lock().unwrap_or_else(|broken| broken.into_inner());
    world.get_or_insert_with(|| {
        let text = std::env::var("LONGSHORE_DOUBLE_NVCOMP").unwrap_or_default();
        World::new(Script::parse(&text).unwrap_or_else(|why| panic!("{why}")))
    });
    Guard(world)
}

std::thread_local! {
    static CURRENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

pub fn set_current(current: bool) {
    CURRENT.set(current);
}

/// Begins a call: applies the script's faults, then locks the world. `Err` is the call's answer.
pub fn enter(call: &str) -> Result<Guard, i32> {
    let mut world = lock();
    let n = world.calls.entry(call.to_owned()).or_default();
    *n += 1;
    let n = *n;
    if let Some(ms) = world.script.delays.get(call).copied() {
        drop(world);
        std::thread::sleep(Duration::from_millis(ms));
        world = lock();
    }
    if world.script.hangs.contains(&(call.to_owned(), n)) {
        while !world.released {
            let guard = RELEASED.wait(world.0);
            world = Guard(guard.unwrap_or_else(|broken| broken.into_inner()));
        }
    }
    if let Some(code) = world.sticky {
        return Err(code);
    }
    let failure = world.script.failures.iter().find(|f| f.hits(call, n));
    if let Some(code) = failure.map(|f| f.code) {
        // These end the context.
        if (700..800).contains(&code) || code == 214 {
            world.sticky = Some(code);
        }
        return Err(code);
    }
    Ok(world)
}

/// As [`enter`], for calls that need the context on this thread.
pub fn enter_current(call: &str) -> Result<Guard, i32> {
    let world = enter(call)?;
    if CURRENT.get() {
        Ok(world)
    } else {
        Err(INVALID_CONTEXT)
    }
}

/// Ends all hanging calls.
pub fn release() {
    lock().released = true;
    RELEASED.notify_all();
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), ALIGN).expect("a sane length")
}

impl World {
    fn new(script: Script) -> World {
        World {
            script,
            calls: HashMap::new(),
            allocations: BTreeMap::new(),
            last: Cell::new(None),
            streams: Vec::new(),
            events: Vec::new(),
            sticky: None,
            work_done: 0,
            chunks: 0,
            checksums: 0,
            released: false,
            kernel: None,
        }
    }

    pub fn calls(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or(0)
    }

    pub fn used(&self, kind: Kind) -> usize {
        let of_kind = self.allocations.values().filter(|(_, k)| *k == kind);
        of_kind.map(|(len, _)| len).sum()
    }

    pub fn memory(&self) -> (usize, usize) {
        let all = self.script.memory_mib << 20;
        (all.saturating_sub(self.used(Kind::Device)), all)
    }

    pub fn allocate(&mut self, len: usize, kind: Kind) -> Result<u64, i32> {
        let taken = self.script.taken_mib << 20;
        if kind == Kind::Device && len > self.memory().0.saturating_sub(taken) {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: `alloc` demands a layout of at least one byte, which this one has.
        let start = unsafe { alloc(layout(len)) };
        if start.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: `write_bytes` demands bytes that are ours: they were just allocated with this length.
        unsafe { start.write_bytes(RUBBISH, len) };
        self.allocations.insert(start as u64, (len, kind));
        Ok(start as u64)
    }

    /// Freeing memory waits for all work, as the real driver does.
    pub fn free(&mut self, start: u64, kind: Kind) -> Result<(), i32> {
        for stream in 0..self.streams.len() {
            self.run(stream, u64::MAX)?;
        }
        self.last.set(None);
        match self.allocations.remove(&start) {
            Some((len, k)) if k == kind => {
                // SAFETY: `dealloc` demands memory of this layout that is no longer used: it was allocated with it,
                // and is forgotten now.
                unsafe { dealloc(start as *mut u8, layout(len)) };
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn holds(&self, at: u64, len: usize, kind: Kind) -> bool {
        let within = |(start, held, _): &(u64, usize, Kind)| {
            at >= *start && at - start + len as u64 <= *held as u64
        };
        let found = self.last.get().filter(within).or_else(|| {
            let (start, (held, kind)) = self.allocations.range(..=at).next_back()?;
            Some((*start, *held, *kind)).filter(within)
        });
        self.last.set(found.or(self.last.get()));
        found.is_some_and(|(_, _, its)| its == kind)
    }

    /// Checks the addresses when a copy is queued.
    pub fn copy(
        &mut self,
        stream: usize,
        to: u64,
        from: u64,
        len: usize,
        inwards: bool,
    ) -> Result<(), i32> {
        let (to_kind, from_kind) = if inwards {
            (Kind::Device, Kind::Pinned)
        } else {
            (Kind::Pinned, Kind::Device)
        };
        if !self.holds(to, len, to_kind) || !self.holds(from, len, from_kind) {
            return Err(INVALID_VALUE);
        }
        self.queue(stream, Work::Copy { to, from, len })
    }

    pub fn queue(&mut self, stream: usize, work: Work) -> Result<(), i32> {
        let stream = self.streams.get_mut(stream).filter(|s| !s.gone);
        let stream = stream.ok_or(INVALID_HANDLE)?;
        stream.queue.push_back(work);
        stream.queued += 1;
        Ok(())
    }

    pub fn new_stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    pub fn end_stream(&mut self, stream: usize) -> Result<(), i32> {
        self.run(stream, u64::MAX)?;
        self.streams[stream].gone = true;
        Ok(())
    }

    pub fn new_event(&mut self) -> usize {
        self.events.push(Event::default());
        self.events.len() - 1
    }

    pub fn record(&mut self, event: usize, stream: usize) -> Result<(), i32> {
        self.queue(stream, Work::Mark { event })?;
        let queued = self.streams[stream].queued;
        let event = self.events.get_mut(event).ok_or(INVALID_HANDLE)?;
        *event = Event {
            at: Some((stream, queued)),
            reached: None,
        };
        Ok(())
    }

    pub fn wait(&mut self, stream: usize, event: usize) -> Result<(), i32> {
        match self.events.get(event).ok_or(INVALID_HANDLE)?.at {
            Some((other, done)) => {
                let work = Work::Wait {
                    stream: other,
                    done,
                };
                self.queue(stream, work)
            }
            // As in the real driver: an event that was never recorded is not waited for.
            None => Ok(()),
        }
    }

    pub fn reach(&mut self, event: usize) -> Result<(), i32> {
        match self.events.get(event).ok_or(INVALID_HANDLE)?.at {
            Some((stream, done)) => self.run(stream, done),
            None => Ok(()),
        }
    }

    /// Pieces of work between two events that were reached.
    pub fn between(&self, start: usize, end: usize) -> Result<u64, i32> {
        let reached = |event: usize| {
            let event = self.events.get(event).ok_or(INVALID_HANDLE)?;
            event.reached.ok_or(NOT_READY)
        };
        Ok(reached(end)?.saturating_sub(reached(start)?))
    }

    /// Does a stream's work until this many pieces are done.
    pub fn run(&mut self, stream: usize, until: u64) -> Result<(), i32> {
        loop {
            if let Some(code) = self.sticky {
                return Err(code);
            }
            let this = self.streams.get_mut(stream).ok_or(INVALID_HANDLE)?;
            if this.done >= until {
                return Ok(());
            }
            let Some(work) = this.queue.pop_front() else {
                return Ok(());
            };
            this.done += 1;
            if let Work::Wait { stream, done } = work {
                self.run(stream, done)?;
            } else if self.perform(work).is_none() {
                self.sticky = Some(ILLEGAL_ADDRESS);
            }
            self.work_done += 1;
        }
    }

    /// `None` if it touches memory that is not allocated.
    fn perform(&mut self, work: Work) -> Option<()> {
        match work {
            Work::Wait { .. } => {}
            Work::Mark { event } => self.events[event].reached = Some(self.work_done),
            Work::Copy { to, from, len } => {
                let bytes = self.bytes(from, len)?.to_vec();
                self.bytes_mut(to, len)?.copy_from_slice(&bytes);
            }
            Work::Fill { at, byte, len } => self.bytes_mut(at, len)?.fill(byte),
            Work::Kernel {
                kernel,
                grid,
                arguments,
            } => kernel.run(grid, &arguments, self)?,
            Work::Compress(compress) => self.compress(&compress)?,
            Work::Checksum {
                inputs,
                sizes,
                chunks,
                crcs,
            } => {
                for i in 0..chunks {
                    self.checksums += 1;
                    let input = self.u64(inputs + 8 * i)?;
                    let len = self.u64(sizes + 8 * i)? as usize;
                    let wrong = u32::from(is_nth(self.script.crc, self.checksums));
                    let crc = crc_fast::crc32_iso_hdlc(self.bytes(input, len)?) ^ wrong;
                    self.write(crcs + 4 * i, &crc.to_le_bytes())?;
                }
            }
        }
        Some(())
    }

    fn compress(&mut self, batch: &Compress) -> Option<()> {
        // Data that another batch left in scratch is overwritten.
        let mark = (self.work_done % 251) as u8;
        self.bytes_mut(batch.scratch.0, batch.scratch.1)?.fill(mark);
        let level = [1, 1, 3, 3, 6, 9][batch.algorithm.clamp(0, 5) as usize];
        for i in 0..batch.chunks {
            self.chunks += 1;
            let n = self.chunks;
            let input = self.u64(batch.inputs + 8 * i)?;
            let len = self.u64(batch.sizes + 8 * i)? as usize;
            let output = self.u64(batch.outputs + 8 * i)?;
            let (at_size, at_status) = (batch.output_sizes + 8 * i, batch.statuses + 4 * i);
            let mut data = miniz_oxide::deflate::compress_to_vec(self.bytes(input, len)?, level);
            if is_nth(self.script.flip, n) {
                let middle = data.len() / 2;
                data[middle] ^= 0x10;
            }
            self.bytes_mut(output, batch.slot)?[..data.len()].copy_from_slice(&data);
            if is_nth(self.script.silent, n) {
                continue;
            }
            let mut size = data.len() as u64;
            if is_nth(self.script.long, n) {
                size = batch.slot as u64 + 1;
            }
            if is_nth(self.script.short, n) {
                size -= 1;
            }
            let failed = self
                .script
                .status
                .filter(|(_, every)| n.is_multiple_of(*every));
            let status = failed.map_or(0, |(code, _)| code);
            self.write(at_size, &size.to_le_bytes())?;
            self.write(at_status, &status.to_le_bytes())?;
        }
        Some(())
    }

    pub fn load_kernel(&mut self, text: &str) -> Option<()> {
        let kernel = match self.script.ptx {
            Ptx::Refuse => return None,
            Ptx::Right => Kernel::parse(text)?,
            // The step from one 16-byte unit to the next.
            Ptx::Wrong => Kernel::parse(&text.replace("%at, 16;", "%at, 32;"))?,
        };
        self.kernel = Some(Arc::new(kernel));
        Some(())
    }

    /// The kernel that was loaded last.
    pub fn kernel(&self) -> Option<Arc<Kernel>> {
        self.kernel.clone()
    }

    fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let held = self.holds(at, len, Kind::Device) || self.holds(at, len, Kind::Pinned);
        // SAFETY: `from_raw_parts` demands bytes that are initialised, live and not written: the range is within one
        // allocation of ours, which was filled when it was made and which only `&mut self` frees.
        held.then(|| unsafe { std::slice::from_raw_parts(at as *const u8, len) })
    }

    fn bytes_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let held = self.holds(at, len, Kind::Device) || self.holds(at, len, Kind::Pinned);
        // SAFETY: the range is within one allocation of ours, which was filled when it was made. `&mut self` excludes
        // other slices of the world's; cuda.h obliges users of pinned memory to wait for the work before they touch it.
        held.then(|| unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) })
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        self.bytes_mut(at, bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    fn u64(&self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(at, 8)?.try_into().ok()?))
    }

    fn u32(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(at, 4)?.try_into().ok()?))
    }
}

/// Kernels may touch the device's memory only.
impl Memory for World {
    fn load(&self, at: u64) -> Option<u32> {
        self.holds(at, 4, Kind::Device).then(|| self.u32(at))?
    }

    fn store(&mut self, at: u64, value: u32) -> Option<()> {
        let held = self.holds(at, 4, Kind::Device);
        held.then(|| self.write(at, &value.to_le_bytes()))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::contract::keeps_its_contract;

    #[test]
    fn the_device_keeps_the_contract_of_memory() {
        let mut world = World::new(Script::parse("").unwrap());
        let start = world.allocate(64, Kind::Device).unwrap();
        let pinned = world.allocate(64, Kind::Pinned).unwrap();
        let outside = [start - 4, start + 61, start + 64, pinned];
        keeps_its_contract(&mut world, start, 16, &outside);
        world.free(start, Kind::Device).unwrap();
        assert_eq!(world.load(start), None, "freed");
        world.free(pinned, Kind::Pinned).unwrap();
    }
}
