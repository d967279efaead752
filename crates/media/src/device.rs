//! Backup devices: where a stripe is stored.
//!
//! A device is written once, from front to back, and appears under its name only when complete. It
//! is read by ranges, or in sequence where it is a pipe. Object stores fit behind the same traits: no
//! rename, no append, completion is theirs.

mod file;
mod nul;
mod pipe;

use std::fmt::Debug;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_io::{Buffer, Pool, Storage, Via};

use crate::Error;

/// A device as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    File(PathBuf),
    /// Takes everything and keeps nothing: measures how fast a backup could be.
    Nul,
    /// Standard output when backing up, standard input when restoring.
    Pipe,
}

impl DeviceSpec {
    /// `nul:` or `NUL`, `-`, `file:PATH`, or a path.
    pub fn parse(text: &str) -> DeviceSpec {
        if text.eq_ignore_ascii_case("nul:") || text.eq_ignore_ascii_case("nul") {
            DeviceSpec::Nul
        } else if text == "-" {
            DeviceSpec::Pipe
        } else {
            DeviceSpec::File(text.strip_prefix("file:").unwrap_or(text).into())
        }
    }

    /// Where a pipe's other end is silent, reading waits for ever.
    pub fn open(&self, storage: &Arc<dyn Storage>) -> Arc<dyn BackupDevice> {
        self.open_until(storage, &Arc::default())
    }

    /// Waits for a pipe's other end are [`Error::Cancelled`] once `cancel` is set.
    pub fn open_until(
        &self,
        storage: &Arc<dyn Storage>,
        cancel: &Arc<AtomicBool>,
    ) -> Arc<dyn BackupDevice> {
        match self {
            DeviceSpec::File(path) => {
                Arc::new(file::FileDevice::new(storage.clone(), path.clone()))
            }
            DeviceSpec::Nul => Arc::new(nul::NulDevice),
            DeviceSpec::Pipe => Arc::new(pipe::PipeDevice::new(cancel.clone())),
        }
    }
}

/// What kind of thing a device is; one media set uses one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceClass {
    File,
    Nul,
    Pipe,
}

/// The place of one media family.
pub trait BackupDevice: Send + Sync + Debug {
    /// As the user named it, for messages and history.
    fn name(&self) -> String;

    fn class(&self) -> DeviceClass;

    /// Opens what stands under the device's name; `None` when nothing does.
    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error>;

    /// Opens a finished stripe whose completion was interrupted, if there is one.
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error>;

    /// Completes that stripe: it replaces what stands under the name.
    fn complete_pending(&self) -> Result<(), Error>;

    /// Starts a stripe that will appear, or replace what is there, at completion. `via` is a wish.
    /// Errors: [`Error::Busy`] while another backup writes to the device.
    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error>;

    /// Continues the stripe at `offset`; the first write cuts off what stands behind it. Keeps other
    /// writers away from now on, so the caller can still make sure that `offset` is the right place.
    /// Errors: [`Error::Busy`] while another backup writes to the device.
    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error>;
}

/// A stripe open for reading.
pub trait FamilyRead: Send + Sync + Debug {
    /// Bytes of the stripe; `None` where only reading will tell.
    fn len_bytes(&self) -> Result<Option<u64>, Error>;

    /// Fills `buf` unless the stripe ends first; says how many bytes were read. A pipe accepts only
    /// the offset where the last read ended.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// Whether reading the range means no waiting for a device.
    fn is_at_hand(&self, _range: Range<u64>) -> bool {
        true
    }
}

/// A stripe being written. Dropping it before `keep` or `complete` leaves the device as it was found.
pub trait FamilyWrite: Send {
    /// Where the next byte goes.
    fn offset(&self) -> u64;

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// Makes all bytes so far durable, and findable by [`BackupDevice::open_pending`].
    fn sync(&mut self) -> Result<(), Error>;

    /// The whole set is durable: from here on dropping leaves the stripe to be rolled forward.
    fn keep(&mut self);

    /// Makes the stripe appear under the device's name, durably. Call `sync` and `keep` on all
    /// stripes of the set first.
    fn complete(self: Box<Self>) -> Result<(), Error>;
}

/// One aligned buffer.
pub(crate) fn buffer(device: &str, len: usize) -> Result<Buffer, Error> {
    let mut buffers = buffers(device, 1, len)?;
    Ok(buffers.remove(0))
}

/// So many aligned buffers, side by side: devices like large pages, which small buffers share.
pub(crate) fn buffers(device: &str, count: usize, len: usize) -> Result<Vec<Buffer>, Error> {
    let io = |source| Error::Io {
        action: "get memory for",
        device: device.to_owned(),
        offset: 0,
        source,
    };
    let pool = Pool::new(count, len).map_err(io)?;
    let taken = std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>();
    debug_assert_eq!(taken.len(), count);
    Ok(taken)
}
