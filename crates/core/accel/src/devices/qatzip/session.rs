//! One session with the library: the state for one call at a time.
//!
//! Bytes go through staging buffers of the session, pinned if the library has such memory: a device reads and writes
//! there, never in a job. QATzip would make the same copies itself for any other memory.
//!
//! Invariants
//! - A session returns only whole members that cover exactly the requested bytes.
//! - Memory that a device may still write to is never freed: see [`Trust`].
//!
//! Leaves to others: loading the library (`library.rs`), and which jobs to take (`mod.rs`).

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::ptr::NonNull;

use longshore_codec::gzext::{FOOTER_LEN, HEADER_LEN, Member};

use super::abi::{self, CHUNK_LEN, code};
use super::library::Library;
use crate::Fault;

/// Plain bytes of one call: 16 requests fill the pipeline of an instance, and more than 32 would make QATzip start a
/// thread for each call.
pub const CALL_LEN: usize = 16 * CHUNK_LEN;

/// A remainder after a call that is too short for a call of its own goes with that call: the library would not give it
/// to the hardware.
const CALL_LEN_MAX: usize = CALL_LEN + abi::INPUT_LEN_MIN - 1;

/// The most that the library's allocator gives in one piece.
const PINNED_MAX: usize = (2 << 20) - (5 << 10);

/// The use that a session allows after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It can be used again.
    Good,
    /// It must be set up again; nobody else uses its memory.
    Spent,
    /// A device may still write into its memory.
    Doubtful,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallError {
    pub fault: Fault,
    pub trust: Trust,
    /// The library's return code; 0 if it reported success.
    pub code: c_int,
}

pub struct Session {
    library: &'static Library,
    /// The library keeps its address.
    raw: Box<abi::Session>,
    level: u32,
    input: Staging,
    output: Staging,
}

// SAFETY: `Send` demands that another thread may use and drop the value. qatzip.h ties no session to a thread; it demands
// that no two calls use one session at a time: every call here takes `&mut self`, and so does `drop`.
unsafe impl Send for Session {}

impl Session {
    /// Bytes of memory for staging.
    pub const STAGING_LEN: usize = abi::bound(CALL_LEN_MAX) + PINNED_MAX;

    /// Errors: the library's return code.
    pub fn open(library: &'static Library, level: u32) -> Result<Session, c_int> {
        // Before the session: one that was set up must be torn down again.
        let input = Staging::new(library, abi::bound(CALL_LEN_MAX)).ok_or(code::LOW_MEM)?;
        let output = Staging::new(library, PINNED_MAX).ok_or(code::LOW_MEM)?;
        let mut raw = Box::new(abi::Session::EMPTY);
        let mut params = library.defaults.for_session(level);
        // SAFETY: qatzip.h demands an empty session that stays where it is until it is torn down: it is boxed, and only
        // `drop` gives the box up, after the teardown. The parameters are copied; `Params::read_by` checked their layout.
        let answer = unsafe { (library.setup)(&raw mut *raw, &raw mut params) };
        if answer != code::OK {
            return Err(answer);
        }
        Ok(Session {
            library,
            raw,
            level,
            input,
            output,
        })
    }

    pub fn level(&self) -> u32 {
        self.level
    }

    /// Compresses `plain` to members at the start of `out`; returns their length.
    pub fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, CallError> {
        let (mut rest, mut len) = (plain, 0);
        while !rest.is_empty() {
            let whole = rest.len() <= CALL_LEN_MAX;
            let (part, after) = rest.split_at(if whole { rest.len() } else { CALL_LEN });
            rest = after;
            let made = self.compress_call(part)?;
            let place = out.get_mut(len..len + made).ok_or(NO_ROOM)?;
            place.copy_from_slice(&self.output.bytes()[..made]);
            len += made;
        }
        Ok(len)
    }

    fn compress_call(&mut self, plain: &[u8]) -> Result<usize, CallError> {
        self.input.bytes_mut()[..plain.len()].copy_from_slice(plain);
        let room = abi::bound(plain.len());
        let made = match self.call(Direction::Compress, plain.len(), room) {
            // A result longer than 9/8 of its input may still fit in the whole buffer.
            Err(failed) if failed.fault == Fault::NoRoom => {
                self.call(Direction::Compress, plain.len(), PINNED_MAX)?
            }
            made => made?,
        };
        check_members(&self.output.bytes()[..made], plain.len())?;
        Ok(made)
    }

    /// Restores members that fill `stored` and give exactly `plain.len()` bytes. Members that the hardware does not
    /// take are refused with [`Fault::Busy`].
    pub fn decompress(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<(), CallError> {
        let (mut rest, mut at) = (stored, 0);
        while !rest.is_empty() {
            let (stored_len, plain_len) = next_call(rest, plain.len() - at)?;
            let (members, after) = rest.split_at(stored_len);
            self.input.bytes_mut()[..stored_len].copy_from_slice(members);
            let made = self.call(Direction::Decompress, stored_len, PINNED_MAX)?;
            if made != plain_len {
                return Err(SHORT);
            }
            plain[at..at + made].copy_from_slice(&self.output.bytes()[..made]);
            (rest, at) = (after, at + made);
        }
        if at == plain.len() {
            Ok(())
        } else {
            Err(SHORT)
        }
    }

    /// Submits the first `len` staged bytes; returns the length of the result. Blocks, possibly for ever.
    fn call(&mut self, direction: Direction, len: usize, room: usize) -> Result<usize, CallError> {
        assert!(len <= self.input.len && room <= self.output.len);
        let (mut taken, mut made) = (len as u32, room as u32);
        let session = &raw mut *self.raw;
        let (from, to) = (self.input.start.as_ptr(), self.output.start.as_ptr());
        const LAST: u32 = 1;
        // SAFETY: qatzip.h demands a session that is set up, as `open` does, and used by one call at a time, as `&mut self`
        // ensures. Both buffers are at least as long as `taken` and `made` say, and nobody else has them while this session
        // is borrowed, nor ever, if the call does not return. A session whose device may write later is never used again
        // nor dropped (`Trust::Doubtful`).
        let answer = unsafe {
            match direction {
                Direction::Compress => {
                    (self.library.compress)(session, from, &raw mut taken, to, &raw mut made, LAST)
                }
                Direction::Decompress => {
                    (self.library.decompress)(session, from, &raw mut taken, to, &raw mut made)
                }
            }
        };
        if let Some(fault) = abi::fault_of(answer) {
            let trust = match fault {
                Fault::Busy | Fault::NoRoom => Trust::Good,
                _ if abi::is_clean(answer) => Trust::Spent,
                _ => Trust::Doubtful,
            };
            return Err(CallError {
                fault,
                trust,
                code: answer,
            });
        }
        if taken as usize != len {
            return Err(SHORT);
        }
        if made as usize > room {
            return Err(CORRUPT);
        }
        Ok(made as usize)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: qatzip.h demands a session that is set up: `open` makes no other. `&mut self` says that no call is in
        // flight, and nothing uses the session after this.
        unsafe { (self.library.teardown)(&raw mut *self.raw) };
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Compress,
    Decompress,
}

const NO_ROOM: CallError = said_well(Fault::NoRoom, Trust::Good);
const SHORT: CallError = said_well(Fault::Short, Trust::Spent);
const CORRUPT: CallError = said_well(Fault::Corrupt, Trust::Spent);
const LEFT: CallError = said_well(Fault::Busy, Trust::Good);

const fn said_well(fault: Fault, trust: Trust) -> CallError {
    CallError {
        fault,
        trust,
        code: code::OK,
    }
}

/// Whether `members` are whole members in QATzip's layout for exactly `plain_len` bytes. Nothing is inflated.
fn check_members(members: &[u8], plain_len: usize) -> Result<(), CallError> {
    let (mut rest, mut left) = (members, plain_len);
    while left > 0 {
        let Ok(member) = Member::parse(rest, left) else {
            let ended = rest.len() < HEADER_LEN + FOOTER_LEN;
            return Err(if ended { SHORT } else { CORRUPT });
        };
        rest = &rest[member.len..];
        left -= member.plain_len;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(CORRUPT)
    }
}

/// As many members from the start of `stored` as one call takes: their stored and plain bytes. Hardware takes members
/// of at most [`CHUNK_LEN`]; without its software the library refuses longer ones, and small ones too.
fn next_call(stored: &[u8], plain_left: usize) -> Result<(usize, usize), CallError> {
    let (mut stored_len, mut plain_len) = (0, 0);
    while stored_len < stored.len() {
        // Software reports the damage.
        let Ok(member) = Member::parse(&stored[stored_len..], plain_left - plain_len) else {
            return Err(LEFT);
        };
        // A small member is only refused at the start of a call.
        let begins = stored_len == 0;
        let hardware = member.plain_len <= CHUNK_LEN
            && (!begins || member.plain_len >= abi::INPUT_LEN_MIN)
            && member.len <= abi::bound(member.plain_len);
        if !hardware {
            return Err(LEFT);
        }
        let stored_after = stored_len + member.len;
        let plain_after = plain_len + member.plain_len;
        if stored_after > abi::bound(CALL_LEN_MAX) || plain_after > CALL_LEN_MAX {
            break;
        }
        (stored_len, plain_len) = (stored_after, plain_after);
    }
    Ok((stored_len, plain_len))
}

/// Memory that a device reads or writes.
struct Staging {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Library(abi::Free),
    Us(Layout),
}

impl Staging {
    /// Pinned memory of the library, otherwise our own; `None` if both fail.
    fn new(library: &Library, len: usize) -> Option<Staging> {
        const ANY_NODE: c_int = -1;
        const PINNED: c_int = 1;
        let pinned = library.pinned.and_then(|(malloc, free)| {
            // SAFETY: qatzip.h demands that the process was initialised: no session is opened before that. The type was
            // checked when the library was loaded; the numbers may have any value.
            let start = unsafe { malloc(len, ANY_NODE, PINNED) };
            NonNull::new(start.cast()).map(|start| (start, Owner::Library(free)))
        });
        let own = || {
            let layout = Layout::from_size_align(len, 64).ok()?;
            // SAFETY: `alloc_zeroed` demands a size above 0: `len` is one of the two constants of `Session::open`.
            let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
            Some((start, Owner::Us(layout)))
        };
        let (start, owner) = pinned.or_else(own)?;
        // SAFETY: `write_bytes` demands `len` bytes that may be written: either allocator gave as many, and nobody else
        // knows of them. The library's are not zero, and the slices of `bytes` must only have bytes that were written.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Some(Staging { start, len, owner })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a slice demands bytes that were written and that nobody changes while it lives: `new` wrote all `len`, and
        // only this value owns them. `Session::call` takes the whole session exclusively, so no device works on them
        // while they are borrowed from it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: such a slice demands bytes that were written and that nobody else uses while it lives: `new` wrote all
        // `len`, and only this value owns them. The exclusive borrow makes this the only slice, and no device works on
        // the bytes: `Session::call` takes the whole session exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: `qzFree` demands memory of `qzMalloc` that was not freed: `new` got it there, nothing else frees it,
            // and sessions on which a device may still work are never dropped.
            Owner::Library(free) => unsafe { free(self.start.as_ptr().cast()) },
            // SAFETY: `dealloc` demands memory of this layout that is no longer used: `new` allocated it, nothing
            // else frees it, and sessions on which a device may still work are never dropped.
            Owner::Us(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}
