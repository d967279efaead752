//! Reads backup sets: one reader per stripe, workers that decode, and a sink that takes the plain bytes. A sink that
//! writes is called from separate threads, so that no worker waits for its turn.
//!
//! Restore and verify differ only in their [`Sink`]. Usually there is one set; the sets of a chain are read together,
//! and each block carries the index of its set.
//!
//! Invariants
//! - Every block is checked twice: the payload's CRC-32C before decoding, and that of the plain bytes afterwards.
//! - At the end, the trailers show whether everything was read.
//!
//! Leaves to others: the use of the plain bytes (`restore`, `verify.rs`), and which set has the last word (`chain`).

#[cfg(test)]
pub mod contract;
mod fetch;
mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use longshore_accel::dispatch::EngineUse;
use longshore_codec::{Algorithm, Decompressor};
use longshore_io::{Buffer, Gate, Pool, Turn, copy_nontemporal, crc32c};
use longshore_media::{
    Block, BlockStream, Error as MediaError, Item, SetHeader, SetTrailer, manifest,
};
use parking_lot::Mutex;

use self::fetch::Offloading;
use self::way::{Way, Ways};
use crate::choice::EngineChoice;
use crate::crew::{Crew, join_all};
use crate::measure::{Counters, Sample, Sampler, lap};
use crate::plan::Sizes;
use crate::request::Limits;
use crate::{Error, Observer, RunContext};

/// Takes the contents of a set. Called from several threads at once, with the blocks in any order. `contract.rs` checks each
/// sink.
pub trait Sink: Sync {
    /// Whether a block of the set with this index is wanted; other blocks are not decoded.
    fn wants(&self, set: usize, items: &[Item]) -> bool;

    /// Whether [`Sink::block`] writes the bytes to devices and waits for them.
    fn writes(&self) -> bool;

    /// Takes the checked plain bytes of a block of the set with this index.
    fn block(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error>;

    /// Reports damage: an error ends the run; `Ok` continues with what can still be read.
    fn damage(&self, error: MediaError) -> Result<(), Error>;
}

/// The result of an unloading.
#[derive(Default)]
pub struct UnloadResult {
    /// In the order in which the sets were given.
    pub sets: Vec<UnloadedSet>,
    pub samples: Vec<Sample>,
    /// The accelerators' part.
    pub used: Vec<EngineUse>,
}

/// The facts about one set after it was read.
pub struct UnloadedSet {
    pub header: SetHeader,
    /// The first family's; `None` if its stream was damaged and the sink continued.
    pub trailer: Option<SetTrailer>,
    pub plain_bytes: u64,
}

/// A block that was read, with or without its payload.
pub struct Read<P = Buffer> {
    pub block: Block,
    payload: P,
    device: Arc<str>,
    set: usize,
}

impl Read {
    /// The payload's buffer, and the rest.
    pub fn split(self) -> (Buffer, Read<()>) {
        let read = Read {
            block: self.block,
            payload: (),
            device: self.device,
            set: self.set,
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

/// A block that was looked at, and a buffer to decode it into.
struct CheckedBlock {
    read: Read,
    /// `None` when the sink does not want it.
    items: Result<Option<Vec<Item>>, MediaError>,
    plain: Buffer,
}

/// A sound block that the sink wants.
pub struct WantedBlock {
    read: Read,
    items: Vec<Item>,
    plain: Buffer,
}

/// A block's checked plain bytes, to be passed to the sink.
struct DecodedBlock {
    set: usize,
    items: Vec<Item>,
    plain: Buffer,
    plain_len: usize,
}

pub struct UnloadShared<'a> {
    pub context: &'a RunContext,
    pub crew: Crew,
    pub algorithm: Algorithm,
    /// Accelerators in use; `None`: workers decode everything.
    fetching: Option<Offloading>,
    limited: bool,
    read_ahead: usize,
    payloads: Pool,
    /// Buffers whose bytes sinks, and so devices, receive.
    pub plains: Pool,
    /// One for each worker to decode into, if it does not decode directly into a buffer that is written.
    hots: Pool,
    ways: Ways,
    pub counters: &'a Counters,
    pub sink: &'a dyn Sink,
    pub tallies: Vec<Tally>,
}

/// The counts that must match the totals of one set.
pub struct Tally {
    header: SetHeader,
    /// The first stripe's name.
    device: String,
    families: usize,
    trailers: Mutex<Vec<SetTrailer>>,
    pub plain_bytes: AtomicU64,
    entries: AtomicU64,
    /// Skipped blocks; if there are any, the totals cannot be compared.
    skipped: AtomicU64,
}

impl Tally {
    fn of(streams: &[BlockStream]) -> Result<Tally, Error> {
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
            plain_bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            skipped: AtomicU64::new(u64::from(streams.iter().any(BlockStream::is_picked))),
        })
    }
}

/// The inputs that reading sets needs.
pub struct UnloadJob<'a> {
    pub context: &'a RunContext,
    pub sizes: &'a Sizes,
    pub limits: &'a Limits,
    /// Accelerators that may help.
    pub choice: &'a EngineChoice,
    pub counters: &'a Counters,
    pub observer: &'a dyn Observer,
}

/// Reads the sets at the positions of `sets`, each from all of its families, into `sink`, all at the same time. There
/// must be at least one; accelerators help with sets of the last set's algorithm.
pub fn unload(
    what: &UnloadJob,
    sets: Vec<Vec<BlockStream>>,
    sink: &dyn Sink,
) -> Result<UnloadResult, Error> {
    let shared = UnloadShared::prepare(what, &sets, sink)?;
    let samples = shared.run(what, sets);
    shared.crew.verdict()?;
    what.context.check_cancel()?;
    for tally in &shared.tallies {
        shared.check_totals(tally)?;
    }
    let used = shared.fetching.as_ref().map(Offloading::uses);
    Ok(UnloadResult {
        sets: shared.tallies.into_iter().map(UnloadedSet::from).collect(),
        samples,
        used: used.unwrap_or_default(),
    })
}

impl From<Tally> for UnloadedSet {
    fn from(tally: Tally) -> UnloadedSet {
        UnloadedSet {
            header: tally.header,
            trailer: tally.trailers.into_inner().into_iter().next(),
            plain_bytes: tally.plain_bytes.into_inner(),
        }
    }
}

impl<'a> UnloadShared<'a> {
    /// Allocates all buffers and starts the accelerators.
    fn prepare(
        what: &UnloadJob<'a>,
        sets: &[Vec<BlockStream>],
        sink: &'a dyn Sink,
    ) -> Result<UnloadShared<'a>, Error> {
        let (context, sizes) = (what.context, what.sizes);
        let tallies = sets
            .iter()
            .map(|streams| Tally::of(streams))
            .collect::<Result<Vec<_>, _>>()?;
        let algorithm = tallies.last().map(|tally| tally.header.algorithm);
        let pool = |count: usize, bytes: usize| {
            Pool::new(count, bytes).map_err(|source| Error::Memory {
                bytes: (count as u64).saturating_mul(bytes as u64),
                source,
            })
        };
        let payloads = pool(sizes.buffer_count, sizes.output_bytes)?;
        let plains = pool(sizes.plains(), sizes.buffer_bytes)?;
        let hots = pool(sizes.decoders(), sizes.buffer_bytes)?;
        let fetching = what
            .choice
            .start(context, sizes, sizes.buffer_bytes, false)?;
        Ok(UnloadShared {
            context,
            crew: Crew::new(
                vec![payloads.clone(), plains.clone(), hots.clone()],
                Gate::new(context.clock.clone(), sizes.cpus, sizes.cpu_ceiling),
                what.limits.throttle(&context.clock, sizes.buffer_bytes),
            ),
            algorithm: algorithm.unwrap_or(Algorithm::None),
            fetching: fetching.map(Offloading::new),
            limited: sizes.cpu_ceiling.is_some(),
            read_ahead: sizes.read_ahead,
            payloads,
            plains,
            hots,
            ways: Ways::default(),
            counters: what.counters,
            sink,
            tallies,
        })
    }

    /// Runs all threads until the last block is with the sink, or one of them has failed.
    fn run(&self, what: &UnloadJob, sets: Vec<Vec<BlockStream>>) -> Vec<Sample> {
        let (sizes, crew) = (what.sizes, &self.crew);
        let sampler = Sampler::new();
        std::thread::scope(|scope| {
            let samples = crew.start(scope, || {
                let each_time = || {
                    crew.heed(self.context);
                    if let Some(fetching) = &self.fetching {
                        fetching.tick(self);
                    }
                };
                sampler.watch(
                    &*self.context.clock,
                    self.counters,
                    what.observer,
                    each_time,
                )
            });
            let (send, receive) = bounded(sizes.buffer_count);
            // Each block that waits here holds one of the buffers, so nobody waits to put one in.
            let (put, get) = bounded(self.plains.count());
            let workers: Vec<_> = (0..sizes.decoders())
                .map_while(|_| {
                    let (receive, put) = (receive.clone(), put.clone());
                    crew.hire(scope, "worker", move || self.decode_all(receive, put))
                })
                .collect();
            let writers: Vec<_> = (0..sizes.writers())
                .filter(|_| self.sink.writes())
                .map_while(|_| {
                    let get = get.clone();
                    crew.hire(scope, "writer", move || self.write_all(get))
                })
                .collect();
            // Only writers hold these, and only workers the others.
            drop((get, put));
            let fetching = self.fetching.iter();
            let finishers: Vec<_> = fetching
                .flat_map(|fetching| std::iter::repeat_n(fetching, sizes.cpus))
                .map_while(|fetching| {
                    crew.hire(scope, "finisher", move || fetching.finish_all(self))
                })
                .collect();
            // Only workers hold receivers: when they are gone, readers notice.
            drop(receive);
            let streams = sets.into_iter().enumerate();
            let readers: Vec<_> = streams
                .flat_map(|(set, streams)| streams.into_iter().map(move |stream| (set, stream)))
                .map_while(|(set, stream)| {
                    let send = send.clone();
                    crew.hire(scope, "reader", move || self.read_all(set, stream, send))
                })
                .collect();
            drop(send);
            join_all(readers.into_iter().chain(workers).chain(writers));
            if let Some(fetching) = &self.fetching {
                fetching.end();
            }
            join_all(finishers);
            sampler.end();
            samples.and_then(|t| t.join().ok()).unwrap_or_default()
        })
    }
}

impl UnloadShared<'_> {
    /// One stripe's reader: its blocks, in order, to the workers.
    fn read_all(
        &self,
        set: usize,
        mut stream: BlockStream,
        send: Sender<Read>,
    ) -> Result<(), Error> {
        stream.read_ahead(self.read_ahead)?;
        let clock = &*self.context.clock;
        let device: Arc<str> = stream.device().into();
        let mut before = stream.offset();
        while !self.crew.has_failed() {
            self.context.check_cancel()?;
            let at = clock.now();
            let Some(mut payload) = self.payloads.take() else {
                return Ok(());
            };
            let at = lap(clock, at, &self.counters.buffer_wait_us);
            let next = stream.next(&mut payload);
            lap(clock, at, &self.counters.read_us);
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            let offset = stream.offset();
            self.counters
                .stored_bytes
                .fetch_add(offset - before, Ordering::Relaxed);
            before = offset;
            match next {
                Ok(Some(block)) => {
                    let read = Read {
                        block,
                        payload,
                        device: device.clone(),
                        set,
                    };
                    if send.send(read).is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => {
                    let trailers = &self.tallies[set].trailers;
                    trailers.lock().extend(stream.trailer().cloned());
                    return Ok(());
                }
                // After a damaged record nothing more can be found on this stripe.
                Err(e) => return self.sink.damage(e),
            }
        }
        Ok(())
    }

    /// One worker. A block to be written is decoded into a buffer that devices read, or into the worker's own and
    /// copied, as [`Ways`] decides. Other blocks are always decoded into the worker's own buffer, which stays in the
    /// core's cache.
    fn decode_all(&self, receive: Receiver<Read>, send: Sender<DecodedBlock>) -> Result<(), Error> {
        let clock = &*self.context.clock;
        let Some(mut hot) = self.hots.take() else {
            return Ok(());
        };
        let mut decompressor = Decompressor::new();
        let mut turn: Option<Turn> = None;
        while let Some(read) = Self::next_read(&receive, &mut turn) {
            if self.crew.has_failed() {
                return Ok(());
            }
            self.throttle(&read, &mut turn);
            let Some(plain) = self.take_plain(&mut turn) else {
                return Ok(());
            };
            let Some(CheckedBlock {
                read,
                items,
                mut plain,
            }) = self.look_or_offer(read, plain, &mut turn)
            else {
                continue;
            };
            let at = clock.now();
            self.enter(&mut turn);
            let plain_len = read.block.header.plain_len as usize;
            let decoded = items.and_then(|items| {
                match items {
                    None => {}
                    Some(_) if self.sink.writes() => {
                        self.land(&read, &mut decompressor, &mut hot, &mut plain)?;
                    }
                    Some(_) => self.decode(&read, &mut decompressor, &mut hot)?,
                }
                Ok(items)
            });
            let ended = lap(clock, at, &self.counters.compute_us);
            let set = read.set;
            drop(read);
            match decoded {
                Ok(None) => {}
                Ok(Some(items)) => {
                    if let Some(fetching) = &self.fetching {
                        fetching.software_did(plain_len, ended - at);
                    }
                    if !self.sink.writes() {
                        self.deliver(set, items, &hot[..plain_len])?;
                    } else if send
                        .send(DecodedBlock {
                            set,
                            items,
                            plain,
                            plain_len,
                        })
                        .is_err()
                    {
                        return Ok(());
                    }
                }
                Err(e) => self.sink.damage(e)?,
            }
            if self.limited {
                turn = None;
            }
        }
        Ok(())
    }

    /// The next block that was read; `None` when all were. Waits for it without a turn.
    fn next_read(receive: &Receiver<Read>, turn: &mut Option<Turn>) -> Option<Read> {
        receive.try_recv().ok().or_else(|| {
            *turn = None;
            receive.recv().ok()
        })
    }

    /// Waits for `--max-rate` without a turn.
    fn throttle(&self, read: &Read, turn: &mut Option<Turn>) {
        if let Some(throttle) = &self.crew.throttle {
            *turn = None;
            let clock = &*self.context.clock;
            let at = clock.now();
            throttle.take(u64::from(read.block.header.plain_len));
            lap(clock, at, &self.counters.rate_wait_us);
        }
    }

    /// Whoever waits for a buffer lets others compute: it may be they who give one back.
    fn take_plain(&self, turn: &mut Option<Turn>) -> Option<Buffer> {
        self.plains.try_take().or_else(|| {
            *turn = None;
            self.plains.take()
        })
    }

    fn enter<'a>(&'a self, turn: &mut Option<Turn<'a>>) {
        if turn.is_none() {
            *turn = Some(self.crew.gate.enter());
        }
    }

    /// Looks at a block in the worker's turn; `None`: an accelerator has taken it.
    fn look_or_offer<'a>(
        &'a self,
        read: Read,
        plain: Buffer,
        turn: &mut Option<Turn<'a>>,
    ) -> Option<CheckedBlock> {
        let clock = &*self.context.clock;
        let at = clock.now();
        self.enter(turn);
        let at = lap(clock, at, &self.counters.cpu_wait_us);
        match (&self.fetching, self.look(&read)) {
            (Some(fetching), Ok(Some(items))) if read.block.header.algorithm == self.algorithm => {
                let at = lap(clock, at, &self.counters.compute_us);
                let wanted = WantedBlock { read, items, plain };
                let WantedBlock { read, items, plain } = fetching.offer(self, wanted, turn)?;
                lap(clock, at, &self.counters.device_wait_us);
                Some(CheckedBlock {
                    read,
                    items: Ok(Some(items)),
                    plain,
                })
            }
            (_, items) => Some(CheckedBlock { read, items, plain }),
        }
    }

    /// Passes decoded blocks to the sink, which waits for devices without using a CPU.
    fn write_all(&self, receive: Receiver<DecodedBlock>) -> Result<(), Error> {
        for decoded in receive {
            if self.crew.has_failed() {
                break;
            }
            let plain = &decoded.plain[..decoded.plain_len];
            self.deliver(decoded.set, decoded.items, plain)?;
        }
        Ok(())
    }

    /// A block's plain bytes, checked, go to the sink.
    fn deliver(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let len = plain.len() as u64;
        let tally = &self.tallies[set];
        tally.plain_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.plain_bytes.fetch_add(len, Ordering::Relaxed);
        let data = u64::from(len > 0);
        self.counters.blocks.fetch_add(data, Ordering::Relaxed);
        self.sink.block(set, items, plain)
    }

    /// Decodes the block's manifest and checks its stored bytes; `None` if the sink does not want it.
    fn look(&self, read: &Read) -> Result<Option<Vec<Item>>, MediaError> {
        let header = &read.block.header;
        let damaged = |what: String| read.damaged(what);
        let attributes = self.tallies[read.set].header.attributes;
        let items = manifest::decode_with(attributes, &read.block.manifest, header.plain_len)
            .map_err(|e| damaged(e.to_string()))?;
        let named = items
            .iter()
            .filter(|i| matches!(i, Item::Entry(e) if e.first))
            .count() as u64;
        let tally = &self.tallies[read.set];
        tally.entries.fetch_add(named, Ordering::Relaxed);
        self.counters.entries.fetch_add(named, Ordering::Relaxed);
        if !self.sink.wants(read.set, &items) {
            tally.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let payload = &read.payload[..header.stored_len as usize];
        let found = crc32c(payload);
        if found != header.stored_crc {
            return Err(damaged(format!(
                "stored bytes have CRC-32C {found:#010x}, not {:#010x}",
                header.stored_crc
            )));
        }
        Ok(Some(items))
    }

    /// Decodes one block into `plain`, which devices read next.
    fn land(
        &self,
        read: &Read,
        decompressor: &mut Decompressor,
        hot: &mut [u8],
        plain: &mut [u8],
    ) -> Result<(), MediaError> {
        let clock = &*self.context.clock;
        let len = read.block.header.plain_len as usize;
        let way = self.ways.choose();
        let before = clock.thread_cpu();
        match way {
            Way::Straight => self.decode(read, decompressor, plain)?,
            Way::Copied => {
                self.decode(read, decompressor, hot)?;
                copy_nontemporal(&hot[..len], &mut plain[..len]);
            }
        }
        let cpu = clock.thread_cpu().saturating_sub(before);
        self.ways.took(way, cpu, len);
        Ok(())
    }

    /// Decodes one block and checks the result.
    fn decode(
        &self,
        read: &Read,
        decompressor: &mut Decompressor,
        plain: &mut [u8],
    ) -> Result<(), MediaError> {
        let header = &read.block.header;
        let payload = &read.payload[..header.stored_len as usize];
        let damaged = |what: String| read.damaged(what);
        let plain = plain
            .get_mut(..header.plain_len as usize)
            .ok_or_else(|| damaged("too long".into()))?;
        if !plain.is_empty() {
            decompressor
                .decompress(header.algorithm, payload, plain)
                .map_err(|e| damaged(format!("it does not decode: {e}")))?;
        }
        let found = crc32c(plain);
        if found != header.plain_crc {
            return Err(damaged(format!(
                "plain bytes have CRC-32C {found:#010x}, not {:#010x}",
                header.plain_crc
            )));
        }
        Ok(())
    }

    /// Checks that only all stripes of a set together allow.
    fn check_totals(&self, tally: &Tally) -> Result<(), Error> {
        let trailers = tally.trailers.lock();
        if trailers.len() < tally.families {
            // The reason was reported to the sink.
            return Ok(());
        }
        let damaged = |what: &str| MediaError::SetDamaged {
            device: tally.device.clone(),
            position: tally.header.position,
            what: what.to_owned(),
        };
        let blocks: u64 = trailers.iter().map(|t| t.blocks_here).sum();
        let first = &trailers[0];
        if !trailers.iter().all(|t| t.agrees_with(first)) {
            self.sink
                .damage(damaged("its trailers contradict each other"))?;
        } else if blocks != first.blocks_total {
            self.sink.damage(damaged("blocks are missing"))?;
        } else if tally.skipped.load(Ordering::Relaxed) == 0
            && (tally.plain_bytes.load(Ordering::Relaxed) != first.plain_bytes_total
                || tally.entries.load(Ordering::Relaxed) != first.entries_total)
        {
            self.sink
                .damage(damaged("its content does not match its trailer"))?;
        }
        Ok(())
    }
}
