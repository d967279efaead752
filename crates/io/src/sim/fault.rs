//! Which calls of a simulated disk go wrong, and how.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::random::Random;

/// What a caller asked of the disk. The `steps` are those that change something or make it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Opening a file or directory that exists.
    Open,
    Read,
    Stat,
    List,
    ReadLink,
    /// Reserving space ([`crate::File::allocate`]).
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
    /// Whether calls of this kind are counted, and the power can be cut in one.
    pub fn is_step(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::Read | Self::Stat | Self::List | Self::ReadLink | Self::Allocate
        )
    }
}

/// A rule by which calls go wrong: which ones, and what happens to them.
///
/// Without further words it hits every call of every kind, everywhere, from the start.
#[derive(Debug, Clone)]
pub struct Fault {
    effect: Effect,
    op: Option<Op>,
    below: PathBuf,
    bytes: Option<Range<u64>>,
    from_step: u64,
    sometimes: bool,
    /// Matching calls that still pass.
    passes: u64,
    /// Calls that are still hit.
    hits: u64,
}

#[derive(Debug, Clone)]
enum Effect {
    Errno(i32),
    Short,
    Delay(Duration),
    Meanwhile(Deed),
}

/// What somebody else does while a call is under way.
#[derive(Clone)]
pub(super) struct Deed(Arc<dyn Fn() + Send + Sync>);

impl Deed {
    pub(super) fn run(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Deed")
    }
}

/// What the faults do to one call.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) errno: Option<i32>,
    pub(super) delay: Duration,
    pub(super) meanwhile: Vec<Deed>,
    /// Transfer no more than this many bytes.
    pub(super) len_max: Option<u64>,
}

/// One call, as the faults see it.
pub(super) struct Call<'a> {
    pub(super) op: Op,
    pub(super) path: &'a Path,
    /// Of a read or write.
    pub(super) bytes: Option<Range<u64>>,
    pub(super) step: u64,
}

impl Fault {
    /// The call does nothing and answers `errno` (of `libc`). A sync that fails loses what it should
    /// have made durable, or not, by chance; the next sync succeeds without it, as on Linux.
    pub fn errno(errno: i32) -> Self {
        Self::new(Effect::Errno(errno))
    }

    /// A write goes only in part, at least one byte of it.
    pub fn short_write() -> Self {
        Self::new(Effect::Short).on(Op::Write)
    }

    /// The calling thread really sleeps first.
    pub fn delay(how_long: Duration) -> Self {
        Self::new(Effect::Delay(how_long))
    }

    /// The calling thread does this first, as if somebody else did it during the call. It may use the disk, and may
    /// wait.
    pub fn meanwhile(deed: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(Effect::Meanwhile(Deed(Arc::new(deed))))
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

    /// Only calls of this kind.
    pub fn on(self, op: Op) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    /// Only at this absolute path and below it. What counts is the name a file or directory was
    /// opened by; of a rename or link, the new name.
    pub fn below(self, path: impl Into<PathBuf>) -> Self {
        Self {
            below: path.into(),
            ..self
        }
    }

    /// Only reads and writes that touch this range of the file; those that begin before it go up to
    /// its start.
    pub fn at_bytes(self, bytes: Range<u64>) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    /// Only from this step of the disk on.
    pub fn from_step(self, step: u64) -> Self {
        Self {
            from_step: step,
            ..self
        }
    }

    /// The first call hit is the `nth` (from 1) that matches.
    pub fn nth(self, nth: u64) -> Self {
        Self {
            passes: nth.saturating_sub(1),
            ..self
        }
    }

    /// No more calls than this are hit.
    pub fn times(self, hits: u64) -> Self {
        Self { hits, ..self }
    }

    /// Each matching call is hit with a chance of one half, by the disk's seed.
    pub fn sometimes(self) -> Self {
        Self {
            sometimes: true,
            ..self
        }
    }

    /// Adds to `verdict` what this fault does to `call`.
    pub(super) fn judge(&mut self, call: &Call<'_>, random: &mut Random, verdict: &mut Verdict) {
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

impl Verdict {
    fn limit(&mut self, len: u64) {
        self.len_max = Some(self.len_max.map_or(len, |max| max.min(len)));
    }
}
