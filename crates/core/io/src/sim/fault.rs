//! Faults of a simulated disk: which calls fail, and how.
//!
//! Calls are counted by kind, so a test can fail each of them in turn. A *step* is a call that changes something or
//! makes it durable; crashes are tried between steps.
//!
//! Invariants
//! - A fault hits a call only if all its limits match: kind, path, range, step, and the number of matches before it.
//! - A call that begins before a bad range is cut short at the range's start, and does not count as hit.
//! - Chance comes from the disk's seed alone, so a failing run can be repeated.
//!
//! Leaves to others: carrying the calls out (`dir.rs`, `file.rs`), and power cuts (`state.rs`).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::random::Random;

/// Kinds of calls. A *step* is a call that changes something or makes it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Opening a file or directory that exists.
    Open,
    Read,
    Stat,
    List,
    ReadLink,
    /// Reserving space ([`crate::FileWrite::allocate`]).
    Allocate,
    /// A step: opening a file that must not exist.
    Create,
    /// A step.
    Write,
    /// A step.
    SetLen,
    /// A step: making a file's bytes durable.
    Sync,
    /// A step.
    CreateDir,
    /// A step.
    Symlink,
    /// A step: a further name for a file.
    Link,
    /// A step.
    Rename,
    /// A step.
    RemoveFile,
    /// A step.
    RemoveDir,
    /// A step.
    SetAttributes,
    /// A step: making the names in a directory durable.
    SyncDir,
    /// A step: making a whole file system durable.
    SyncAll,
}

impl Op {
    /// Whether calls of this kind are counted, and the power can be cut in them.
    pub fn is_step(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::Read | Self::Stat | Self::List | Self::ReadLink | Self::Allocate
        )
    }
}

/// A rule by which calls fail: which calls, and what happens to them.
///
/// Without further limits it hits every call of every kind, everywhere, from the start.
#[derive(Debug, Clone)]
pub struct Fault {
    effect: Effect,
    op: Option<Op>,
    below: PathBuf,
    bytes: Option<Range<u64>>,
    from_step: u64,
    sometimes: bool,
    /// Matching calls that still pass unharmed.
    passes: u64,
    /// Calls that are still hit.
    hits: u64,
}

#[derive(Debug, Clone)]
enum Effect {
    Errno(i32),
    Short,
    Forgotten,
    Delay(Duration),
    Meanwhile(Interference),
}

/// An action by another process during a call.
#[derive(Clone)]
pub(super) struct Interference(Arc<dyn Fn() + Send + Sync>);

impl Interference {
    pub(super) fn run(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Interference {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Deed")
    }
}

/// The effect of the faults on one call.
#[derive(Debug, Default)]
pub(super) struct FaultEffect {
    pub(super) errno: Option<i32>,
    /// A sync does nothing.
    pub(super) forgotten: bool,
    pub(super) delay: Duration,
    pub(super) meanwhile: Vec<Interference>,
    /// The most bytes that the call may transfer.
    pub(super) len_max: Option<u64>,
}

/// One call, as seen by the faults.
pub(super) struct Call<'a> {
    pub(super) op: Op,
    pub(super) path: &'a Path,
    /// The range, for a read or write.
    pub(super) bytes: Option<Range<u64>>,
    pub(super) step: u64,
}

impl Fault {
    /// The call does nothing and fails with `errno` (of `libc`). A sync that fails makes each unsynced change durable
    /// or loses it, by chance; the next sync succeeds without the lost ones, as on Linux.
    pub fn errno(errno: i32) -> Self {
        Self::new(Effect::Errno(errno))
    }

    /// A write is short: at least one byte is written, but not all.
    pub fn short_write() -> Self {
        Self::new(Effect::Short).on(Op::Write)
    }

    /// A sync does nothing and says that it is done: the program as it would be without that line. A test of power cuts
    /// that does not fail with it proves nothing about that sync.
    pub fn forgotten_sync() -> Self {
        Self::new(Effect::Forgotten)
    }

    /// The calling thread first sleeps in real time.
    pub fn delay(how_long: Duration) -> Self {
        Self::new(Effect::Delay(how_long))
    }

    /// The calling thread runs this first, as if another process acted during the call. It may use the disk and may
    /// wait.
    pub fn meanwhile(deed: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(Effect::Meanwhile(Interference(Arc::new(deed))))
    }

    fn new(effect: Effect) -> Self {
        Self {
            effect,
            op: None,
            below: PathBuf::from("/"),
            bytes: None,
            from_step: 0,
            sometimes: false,
            passes: 0,
            hits: u64::MAX,
        }
    }

    /// Hits only calls of this kind.
    pub fn on(self, op: Op) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    /// Hits only calls at or below this absolute path. The path is the one by which a file or directory was opened;
    /// for a rename or link, the new name.
    pub fn below(self, path: impl Into<PathBuf>) -> Self {
        Self {
            below: path.into(),
            ..self
        }
    }

    /// Hits only reads and writes that touch this range of the file. Those that begin before the range are cut short
    /// at its start.
    pub fn at_bytes(self, bytes: Range<u64>) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    /// Hits only calls from this step of the disk on.
    pub fn from_step(self, step: u64) -> Self {
        Self {
            from_step: step,
            ..self
        }
    }

    /// The first call that is hit is the `nth` match (from 1).
    pub fn nth(self, nth: u64) -> Self {
        Self {
            passes: nth.saturating_sub(1),
            ..self
        }
    }

    /// Hits at most this many calls.
    pub fn times(self, hits: u64) -> Self {
        Self { hits, ..self }
    }

    /// Hits each matching call with a probability of one half, by the disk's seed.
    pub fn sometimes(self) -> Self {
        Self {
            sometimes: true,
            ..self
        }
    }

    /// Adds this fault's effect on `call` to `verdict`.
    pub(super) fn judge(
        &mut self,
        call: &Call<'_>,
        random: &mut Random,
        verdict: &mut FaultEffect,
    ) {
        let first_bad = match (&self.bytes, &call.bytes) {
            (None, _) => None,
            (Some(bad), Some(bytes)) if bad.start < bytes.end && bytes.start < bad.end => {
                Some(bad.start)
            }
            _ => return,
        };
        let matches = self.op.is_none_or(|op| op == call.op)
            && call.path.starts_with(&self.below)
            && call.step >= self.from_step;
        if !matches || self.hits == 0 {
            return;
        }
        let start = call.bytes.as_ref().map_or(0, |bytes| bytes.start);
        if let Some(bad) = first_bad.filter(|bad| *bad > start) {
            verdict.limit(bad - start);
            return;
        }
        if self.passes > 0 {
            self.passes -= 1;
            return;
        }
        if self.sometimes && random.below(2) == 0 {
            return;
        }
        self.hits -= 1;
        match &self.effect {
            Effect::Errno(errno) => verdict.errno = verdict.errno.or(Some(*errno)),
            Effect::Forgotten => verdict.forgotten = true,
            Effect::Delay(how_long) => verdict.delay += *how_long,
            Effect::Meanwhile(deed) => verdict.meanwhile.push(deed.clone()),
            Effect::Short => {
                let len = call
                    .bytes
                    .as_ref()
                    .map_or(0, |bytes| bytes.end - bytes.start);
                verdict.limit(1 + random.below(len.max(2) - 1));
            }
        }
    }
}

impl FaultEffect {
    fn limit(&mut self, len: u64) {
        self.len_max = Some(self.len_max.map_or(len, |max| max.min(len)));
    }
}
