//! The promises of a backup device and of its stripes.
//!
//! They also suit object stores: they require neither rename nor append, and completing a stripe is the device's task.
//!
//! Invariants
//! - A stripe is written once, from start to end, and appears under its device's name only when complete.
//! - Dropping a stripe before `keep` leaves the device as it was found, except for bytes after the offset that was
//!   appended at.
//! - A device does what it promises or fails with [`Error::Unsupported`] and changes nothing.
//! - A stripe is read by ranges, or sequentially if the device is a pipe.
//!
//! Leaves to others: the devices (`device/`), and the order of syncs and completions over several stripes
//! (`set_writer.rs`).

use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

use longshore_bucket::Standing;
use longshore_io::{Buffer, Pool, Via};

use super::folder::Folder;
use crate::Error;

/// The first bytes of a stripe, which are read when it is opened. The headers of nearly all sets lie in them, and all of
/// a short stripe.
pub(crate) const FIRST_BYTES: usize = 16 << 10;

/// The class of a device; all devices of one media set have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceClass {
    File,
    Nul,
    Pipe,
    Bucket,
}

/// The facts about a stripe that a device gets before it begins.
#[derive(Debug, Clone)]
pub struct Stripe {
    /// Only a preference.
    pub via: Via,
    /// Tells this stripe from all others, also from earlier ones of its name.
    pub label: String,
    /// About how long it will be, if that is known.
    pub expected_bytes: Option<u64>,
    /// Its bytes are known before, and so is its label: an interrupted writer of the same stripe may have left some of it that
    /// this one need not write again, and what this one leaves after [`FamilyWrite::keep`] serves the next.
    pub is_repeatable: bool,
}

/// How a writer goes on after so many bytes of what was left.
type GoOn = Box<dyn FnOnce(u64) -> Result<Box<dyn FamilyWrite>, Error>>;

/// A stripe that an interrupted writer left, held so that no other writer has it.
pub struct Remains {
    read: Arc<dyn FamilyRead>,
    go_on: GoOn,
}

impl Remains {
    pub(super) fn new(read: Arc<dyn FamilyRead>, go_on: GoOn) -> Remains {
        Remains { read, go_on }
    }

    /// The bytes that are there. Nothing of them is known to be right.
    pub fn read(&self) -> Arc<dyn FamilyRead> {
        self.read.clone()
    }

    /// Goes on after the first `offset` bytes, which are right; all others are dropped.
    pub fn write_from(self, offset: u64) -> Result<Box<dyn FamilyWrite>, Error> {
        (self.go_on)(offset)
    }
}

/// A stripe that waits to be completed under the name of its device.
pub trait PendingStripe {
    /// Opens a stripe that waits to be completed, if there is one. Whether it is finished only its bytes tell: it may be
    /// one that is being written.
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error>;

    /// Completes that stripe, durably: it replaces what stands under the name.
    /// Errors: [`Error::Busy`] where there is none, or another backup writes it.
    fn complete_pending(&self) -> Result<(), Error>;

    /// What an interrupted writer of a stripe that is repeatable has left, as far as it can be read; `None`: nothing.
    /// Errors: [`Error::Busy`] while another backup writes to the device.
    fn remains(&self, _via: Via) -> Result<Option<Remains>, Error> {
        Ok(None)
    }

    /// What the stripe that was begun last has become, where its writer's error does not say that: an object store may
    /// have completed it, or keep its upload.
    fn left(&self) -> Option<LeftStripe> {
        None
    }
}

/// The state in which a stripe of a set was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftStripe {
    pub device: String,
    pub standing: Standing,
    /// The identifier of an upload that the store keeps.
    pub upload: Option<String>,
    /// The server that keeps it, where the environment does not name that.
    pub server: Option<String>,
}

/// Looks whether a stripe still stands under its name as it was completed.
pub type LastLook = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// The surroundings of a stripe.
pub trait Surroundings {
    /// The place of small files next to the stripe; `None`: there is no such place. Opens nothing, and asks no store.
    fn folder(&self) -> Option<Folder> {
        None
    }
}

/// The place of one media family. The tests in `tests/contract.rs` check the text of these traits for each device.
///
/// What a device cannot do is [`Error::Unsupported`] and changes nothing: only files are appended to and completed later.
pub trait BackupDevice: PendingStripe + Surroundings + Send + Sync + Debug {
    /// The name as the user wrote it, for messages and history.
    fn name(&self) -> String;

    /// The kind of device, which decides how a set is laid out on it. Constant for a device; touches no medium.
    fn class(&self) -> DeviceClass;

    /// Opens the stripe under the device's name; `None` if there is none.
    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error>;

    /// Starts a stripe that appears at completion and then replaces an existing one. `via` is only a preference.
    /// Errors: [`Error::Busy`] while another backup writes to the device.
    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error>;

    /// [`BackupDevice::create`], for a device that uses what is known of the stripe.
    fn create_stripe(&self, stripe: &Stripe) -> Result<Box<dyn FamilyWrite>, Error> {
        self.create(stripe.via)
    }

    /// The memory that a stripe of about `stripe_bytes` needs while it is written, if that is more than a file's.
    fn writing_bytes(&self, _stripe_bytes: Option<u64>) -> u64 {
        0
    }

    /// Continues the stripe at `offset`; the first write cuts off what stands behind it. Keeps other
    /// writers away from now on, so the caller can still make sure that `offset` is the right place.
    /// Errors: [`Error::Missing`] where nothing stands; [`Error::Busy`] while another backup writes to the device.
    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error>;
}

/// A stripe open for reading.
pub trait FamilyRead: Send + Sync + Debug {
    /// Length of the stripe in bytes; `None` if only reading can tell.
    fn len_bytes(&self) -> Result<Option<u64>, Error>;

    /// Fills `buf` unless the stripe ends first; returns the number of bytes read. A pipe accepts only the offset at
    /// which the last read ended.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// The memory that reading needs, if that is more than a file's.
    fn reading_bytes(&self) -> u64 {
        0
    }

    /// Whether the range can be read without waiting for a device, or need not be read ahead by the caller.
    fn is_at_hand(&self, _range: Range<u64>) -> bool {
        true
    }

    /// Bytes that were read from this range do not match their checksum. Returns whether other bytes may come if it is
    /// read again: a stripe with parity looks for its own damage and rebuilds what is bad.
    fn doubt(&self, _range: Range<u64>) -> Result<bool, Error> {
        Ok(false)
    }

    /// Another handle to the same bytes, for a second reader that reads in order, too; `None`: this one serves both.
    fn again(&self) -> Option<Arc<dyn FamilyRead>> {
        None
    }
}

/// The aim of [`FamilyWrite::settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// After a crash, nothing of what follows is found without the bytes so far. A stripe that appears as a whole, or not
    /// at all, has nothing to do.
    Ordered,
    /// All is started that the next [`FamilyWrite::sync`] waits for, so that several stripes can wait at the same time.
    Begun,
}

/// A stripe being written. Dropping it before `keep` or `complete` leaves the device as it was found, but for what stood
/// behind the place that is appended at.
pub trait FamilyWrite: Send {
    /// The stripe offset of the next byte.
    fn offset(&self) -> u64;

    /// Appends `bytes` at [`FamilyWrite::offset`]; the call may keep them in memory until [`FamilyWrite::sync`]. After an
    /// error the stripe can only be dropped: how much was written is unknown.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// How many more bytes the stripe may have.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// Brings the bytes so far nearer to being durable, without more waiting than that takes.
    fn settle(&mut self, how: Settle) -> Result<(), Error> {
        match how {
            Settle::Ordered => self.sync(),
            Settle::Begun => Ok(()),
        }
    }

    /// Makes all bytes so far durable, and visible to [`PendingStripe::open_pending`].
    fn sync(&mut self) -> Result<(), Error>;

    /// Records that the whole set is durable: from now on, dropping leaves the stripe to be completed later.
    fn keep(&mut self);

    /// Makes the stripe appear under the device's name, durably. The caller must first call `sync` and `keep` on all
    /// stripes of the set. Where others could have written there all the same, the caller gets a look to take when all
    /// stripes of the set are complete.
    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error>;
}

/// Bytes of a buffer that goes back to its pool when nobody needs them. Clones are the same bytes.
#[derive(Debug, Clone)]
pub struct SharedBytes {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl SharedBytes {
    /// The bytes of `buffer` in `range`.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn new(buffer: Buffer, range: Range<usize>) -> SharedBytes {
        assert!(range.start <= range.end && range.end <= buffer.len());
        let buffer = Arc::new(buffer);
        SharedBytes { buffer, range }
    }

    /// A part of them, by its offsets in them.
    pub(crate) fn part(&self, part: Range<usize>) -> SharedBytes {
        let start = self.range.start;
        SharedBytes {
            buffer: self.buffer.clone(),
            range: start + part.start..start + part.end,
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// One aligned buffer.
pub(crate) fn buffer(device: &str, len_bytes: usize) -> Result<Buffer, Error> {
    let mut buffers = buffers(device, 1, len_bytes)?;
    Ok(buffers.remove(0))
}

/// `count` aligned buffers in one allocation: devices prefer large pages, which small buffers then share.
pub(crate) fn buffers(device: &str, count: usize, len_bytes: usize) -> Result<Vec<Buffer>, Error> {
    let io = |source| Error::Io {
        action: "get memory for",
        device: device.to_owned(),
        offset: 0,
        source,
    };
    let pool = Pool::new(count, len_bytes).map_err(io)?;
    let taken = std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>();
    debug_assert_eq!(taken.len(), count);
    Ok(taken)
}
