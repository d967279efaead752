//! The state that all threads share while sets are read, the accelerators at work for them, and a block on its way from
//! one thread to the next.
//!
//! Invariants
//! - Each set's counts are those of the blocks that its sink took, or would have taken, for the comparison with its
//!   trailer.
//!
//! Leaves to others: what the threads do with it (`mod.rs`, `decode.rs`, `fetch.rs`).

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_accel::dispatch::Dispatcher;
use longshore_codec::Algorithm;
use longshore_io::{Buffer, Pool};
use longshore_media::{
    Block, BlockStream, Error as MediaError, Item, SecondLook, SetHeader, SetTrailer,
};
use parking_lot::Mutex;

use super::sink::Sink;
use super::way::Ways;
use crate::crew::Crew;
use crate::measure::Counters;
use crate::{Error, RunContext};

/// A block that was read, with or without its payload.
pub struct Read<P = Buffer> {
    pub block: Block,
    pub(super) payload: P,
    /// Where the payload is in its buffer; of an encrypted block, where it is when it was decrypted.
    pub(super) place: Range<usize>,
    pub(super) device: Arc<str>,
    pub(super) set: usize,
    /// For a payload that is damaged.
    pub(super) again: SecondLook,
}

impl Read {
    /// The payload's buffer, and the rest.
    pub fn split(self) -> (Buffer, Read<()>) {
        let read = Read {
            block: self.block,
            payload: (),
            place: self.place,
            device: self.device,
            set: self.set,
            again: self.again,
        };
        (self.payload, read)
    }
}

impl<P> Read<P> {
    /// The index of its set.
    pub fn set(&self) -> usize {
        self.set
    }

    pub fn damaged(&self, what: String) -> MediaError {
        MediaError::BlockDamaged {
            device: self.device.to_string(),
            offset: self.block.payload_offset,
            sequence: self.block.header.sequence,
            what,
        }
    }
}

/// A sound block that the sink wants.
pub struct WantedBlock {
    pub(super) read: Read,
    pub(super) items: Vec<Item>,
    pub(super) plain: Buffer,
}

/// A block's checked plain bytes, to be passed to the sink.
pub(super) struct DecodedBlock {
    pub(super) set: usize,
    pub(super) items: Vec<Item>,
    pub(super) plain: Buffer,
    pub(super) plain_len: usize,
}

/// A run's accelerators at work.
pub struct Offloading {
    pub(super) dispatcher: Dispatcher<PendingBlock>,
    pub(super) spare: Pool,
    /// New numbers for blocks: the sequence in a damaged block's header may not be unique.
    pub(super) next: AtomicU64,
}

/// The data that a block still needs when it comes back.
pub struct PendingBlock {
    /// Its payload is with the dispatcher.
    pub(super) read: Read<()>,
    pub(super) items: Vec<Item>,
}

pub struct UnloadShared<'a> {
    pub context: &'a RunContext,
    pub crew: Crew,
    pub algorithm: Algorithm,
    /// Accelerators in use; `None`: workers decode everything.
    pub(super) fetching: Option<Offloading>,
    pub(super) limited: bool,
    pub(super) stored_only: bool,
    pub(super) read_ahead: usize,
    pub(super) payloads: Pool,
    /// Buffers whose bytes sinks, and so devices, receive.
    pub plains: Pool,
    /// One for each worker to decode into, if it does not decode directly into a buffer that is written.
    pub(super) hots: Pool,
    pub(super) ways: Ways,
    pub counters: &'a Counters,
    pub sink: &'a dyn Sink,
    pub tallies: Vec<Tally>,
}

/// The counts that must match the totals of one set.
pub struct Tally {
    pub(super) header: SetHeader,
    /// The first stripe's name.
    pub(super) device: String,
    pub(super) families: usize,
    pub(super) trailers: Mutex<Vec<SetTrailer>>,
    /// A sum over the numbers of all blocks: see [`Tally::block`].
    sequences: AtomicU64,
    secret: RandomState,
    pub plain_bytes: AtomicU64,
    pub(super) entries: AtomicU64,
    /// Whether only some blocks are read.
    pub(super) picks: bool,
    /// Skipped blocks; if there are any, the totals cannot be compared.
    pub(super) skipped: AtomicU64,
}

impl Tally {
    pub(super) fn of(streams: &[BlockStream]) -> Result<Tally, Error> {
        let header = streams[0].header().clone();
        if let Some(odd) = streams.iter().find(|s| s.header().set != header.set) {
            return Err(Error::Media(MediaError::SetDamaged {
                device: odd.device().to_owned(),
                position: header.position,
                what: "its stripes hold different sets at this position".into(),
            }));
        }
        Ok(Tally {
            header,
            device: streams[0].device().to_owned(),
            families: streams.len(),
            trailers: Mutex::default(),
            sequences: AtomicU64::new(0),
            secret: RandomState::new(),
            plain_bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            picks: streams.iter().any(BlockStream::is_picked),
            skipped: AtomicU64::new(u64::from(streams.iter().any(BlockStream::is_picked))),
        })
    }
}

impl Tally {
    /// Counts a block's number in: the sum of numbers, each hashed under a key of this run. So nobody can choose numbers
    /// whose sum is that of others, and no list of them is kept.
    pub(super) fn block(&self, sequence: u64) {
        let part = self.secret.hash_one(sequence);
        self.sequences.fetch_add(part, Ordering::Relaxed);
    }

    /// Whether each number below `blocks` was counted once, and no other.
    pub(super) fn has_each_once(&self, blocks: u64) -> bool {
        let parts = (0..blocks).map(|n| self.secret.hash_one(n));
        parts.fold(0, u64::wrapping_add) == self.sequences.load(Ordering::Relaxed)
    }
}

impl UnloadShared<'_> {
    /// A block's plain bytes, checked, go to the sink.
    pub(super) fn deliver(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let len = plain.len() as u64;
        let tally = &self.tallies[set];
        tally.plain_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.plain_bytes.fetch_add(len, Ordering::Relaxed);
        let data = u64::from(len > 0);
        self.counters.blocks.fetch_add(data, Ordering::Relaxed);
        self.sink.block(set, items, plain)
    }
}
