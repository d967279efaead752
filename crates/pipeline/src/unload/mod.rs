//! Reading backup sets: one reader per stripe, workers that decode, and a sink that takes the plain bytes. A sink that
//! writes gets them from threads that do nothing else, so that no worker ever waits for its turn.
//!
//! Restore and verify differ only in their [`Sink`]. Every block is checked twice: the payload's CRC-32C
//! before decoding, the plain bytes' after. At the end, the trailers say whether all of it was there.
//! Usually it is one set; the sets of a chain are read together, and a block says which one it is of by its number.

mod fetch;
mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use longshore_codec::dispatch::EngineUse;
use longshore_codec::{Algorithm, Decompressor};
use longshore_io::{Buffer, Gate, Pass, Pool, copy_nontemporal, crc32c};
use longshore_media::{
    Block, BlockStream, Error as MediaError, Item, SetHeader, SetTrailer, manifest,
};
use parking_lot::Mutex;

use self::fetch::Fetching;
use self::way::{Way, Ways};
use crate::choice::Choice;
use crate::crew::{Crew, join};
use crate::measure::{Counters, Sample, Sampler, lap};
use crate::plan::Sizes;
use crate::request::Limits;
use crate::{Error, House, Observer};

/// Takes what comes out of a set. Called from many threads at once.
pub trait Sink: Sync {
    /// Whether a block of the set with this index is wanted; what is not wanted is not decoded.
    fn wants(&self, set: usize, items: &[Item]) -> bool;

    /// Whether [`Sink::block`] has devices write the bytes, and waits for them.
    fn writes(&self) -> bool;

    /// The plain bytes, checked, of a block of the set with this index.
    fn block(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error>;

    /// Something is damaged: an error ends the run, `Ok` goes on with what can still be read.
    fn damage(&self, error: MediaError) -> Result<(), Error>;
}

/// What a finished unloading knows.
#[derive(Default)]
pub struct Unloaded {
    /// In the order in which they were given.
    pub sets: Vec<UnloadedSet>,
    pub samples: Vec<Sample>,
    /// What accelerators did.
    pub used: Vec<EngineUse>,
}

/// What is known of one set when it was read.
pub struct UnloadedSet {
    pub header: SetHeader,
    /// The first family's; `None` when its stream was damaged and the sink went on.
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
    /// Index of the set it is of.
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

/// A block's plain bytes, checked, on their way to the sink.
struct Decoded {
    set: usize,
    items: Vec<Item>,
    plain: Buffer,
    plain_len: usize,
}

pub struct Shared<'a> {
    pub house: &'a House,
    pub crew: Crew,
    pub algorithm: Algorithm,
    /// Accelerators that help; `None`: workers decode everything.
    fetching: Option<Fetching>,
    limited: bool,
    read_ahead: usize,
    payloads: Pool,
    /// What sinks get, and with it devices.
    pub plains: Pool,
    /// One for each worker to decode into, where that is not done straight into what is written.
    hots: Pool,
    ways: Ways,
    pub counters: &'a Counters,
    pub sink: &'a dyn Sink,
    pub tallies: Vec<Tally>,
}

/// What adds up to the totals of one set.
pub struct Tally {
    header: SetHeader,
    /// The first stripe's.
    device: String,
    families: usize,
    trailers: Mutex<Vec<SetTrailer>>,
    pub plain_bytes: AtomicU64,
    entries: AtomicU64,
    /// Blocks whose content was not looked at make the totals incomparable.
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

/// Sets to be read, and what with.
pub struct Unloading<'a> {
    pub house: &'a House,
    pub sizes: &'a Sizes,
    pub limits: &'a Limits,
    /// Accelerators that may help.
    pub choice: &'a Choice,
    pub counters: &'a Counters,
    pub observer: &'a dyn Observer,
}

/// Reads the sets that `sets` stand at, each over all of its families, into `sink`. All are read at once. One at
/// least; accelerators help with those of the last one's algorithm.
pub fn unload(
    what: &Unloading,
    sets: Vec<Vec<BlockStream>>,
    sink: &dyn Sink,
) -> Result<Unloaded, Error> {
    let Unloading {
        house,
        sizes,
        limits,
        choice,
        counters,
        observer,
    } = *what;
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
    let workers = sizes.decoders();
    let hots = pool(workers, sizes.buffer_bytes)?;
    let fetching = choice.start(house, sizes, sizes.buffer_bytes, false)?;
    let shared = Shared {
        house,
        crew: Crew::new(
            vec![payloads.clone(), plains.clone(), hots.clone()],
            Gate::new(house.clock.clone(), sizes.cpus, sizes.cpu_ceiling),
            limits.throttle(&house.clock, sizes.buffer_bytes),
        ),
        algorithm: algorithm.unwrap_or(Algorithm::None),
        fetching: fetching.map(Fetching::new),
        limited: sizes.cpu_ceiling.is_some(),
        read_ahead: sizes.read_ahead,
        payloads,
        plains,
        hots,
        ways: Ways::default(),
        counters,
        sink,
        tallies,
    };
    let sampler = Sampler::new();
    let samples = std::thread::scope(|scope| {
        let samples = shared.crew.start(scope, || {
            let each_time = || {
                shared.crew.heed(house);
                if let Some(fetching) = &shared.fetching {
                    fetching.tick(&shared);
                }
            };
            sampler.watch(&*house.clock, counters, observer, each_time)
        });
        let (send, receive) = bounded(sizes.buffer_count);
        // Each block that waits here holds one of the buffers, so nobody waits to put one in.
        let (put, get) = bounded(shared.plains.count());
        let workers: Vec<_> = (0..workers)
            .map_while(|_| {
                let (receive, put) = (receive.clone(), put.clone());
                let shared = &shared;
                let decode = move || shared.decode_all(receive, put);
                shared
                    .crew
                    .start(scope, move || shared.crew.work("worker", decode))
            })
            .collect();
        let writers: Vec<_> = (0..sizes.writers())
            .filter(|_| sink.writes())
            .map_while(|_| {
                let get = get.clone();
                let shared = &shared;
                let write = move || shared.write_all(get);
                shared
                    .crew
                    .start(scope, move || shared.crew.work("writer", write))
            })
            .collect();
        // Only writers hold these, and only workers the others.
        drop((get, put));
        let finishers: Vec<_> = shared
            .fetching
            .iter()
            .flat_map(|fetching| std::iter::repeat_n(fetching, sizes.cpus))
            .map_while(|fetching| {
                let shared = &shared;
                let finish = move || fetching.finish_all(shared);
                shared
                    .crew
                    .start(scope, move || shared.crew.work("finisher", finish))
            })
            .collect();
        // Only workers hold receivers: when they are gone, readers notice.
        drop(receive);
        let streams = sets.into_iter().enumerate();
        let readers: Vec<_> = streams
            .flat_map(|(set, streams)| streams.into_iter().map(move |stream| (set, stream)))
            .map_while(|(set, stream)| {
                let send = send.clone();
                let shared = &shared;
                let read = move || shared.read_all(set, stream, send);
                shared
                    .crew
                    .start(scope, move || shared.crew.work("reader", read))
            })
            .collect();
        drop(send);
        readers.into_iter().for_each(|t| {
            join(t);
        });
        workers.into_iter().chain(writers).for_each(|t| {
            join(t);
        });
        if let Some(fetching) = &shared.fetching {
            fetching.end();
        }
        finishers.into_iter().for_each(|t| {
            join(t);
        });
        sampler.end();
        samples.and_then(|t| t.join().ok()).unwrap_or_default()
    });
    shared.crew.verdict()?;
    house.check_cancel()?;
    for tally in &shared.tallies {
        shared.check_totals(tally)?;
    }
    let used = shared.fetching.as_ref().map(Fetching::uses);
    let set = |tally: Tally| UnloadedSet {
        header: tally.header,
        trailer: tally.trailers.into_inner().into_iter().next(),
        plain_bytes: tally.plain_bytes.into_inner(),
    };
    Ok(Unloaded {
        sets: shared.tallies.into_iter().map(set).collect(),
        samples,
        used: used.unwrap_or_default(),
    })
}

impl Shared<'_> {
    fn read_all(
        &self,
        set: usize,
        mut stream: BlockStream,
        send: Sender<Read>,
    ) -> Result<(), Error> {
        stream.read_ahead(self.read_ahead)?;
        let clock = &*self.house.clock;
        let device: Arc<str> = stream.device().into();
        let mut before = stream.offset();
        while !self.crew.has_failed() {
            self.house.check_cancel()?;
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
                // Behind a damaged record nothing of this stripe can be found.
                Err(e) => return self.sink.damage(e),
            }
        }
        Ok(())
    }

    /// One worker: decodes what is to be written into a buffer that devices read, or into its own and copies it, as
    /// [`Ways`] says; what is not to be written always into its own, which stays in the core's cache.
    fn decode_all(&self, receive: Receiver<Read>, send: Sender<Decoded>) -> Result<(), Error> {
        let clock = &*self.house.clock;
        let Some(mut hot) = self.hots.take() else {
            return Ok(());
        };
        let mut decompressor = Decompressor::new();
        let mut turn: Option<Pass> = None;
        loop {
            let read = match receive.try_recv() {
                Ok(read) => read,
                Err(_) => {
                    turn = None;
                    match receive.recv() {
                        Ok(read) => read,
                        Err(_) => return Ok(()),
                    }
                }
            };
            if self.crew.has_failed() {
                return Ok(());
            }
            if let Some(throttle) = &self.crew.throttle {
                turn = None;
                let at = clock.now();
                throttle.take(u64::from(read.block.header.plain_len));
                lap(clock, at, &self.counters.rate_wait_us);
            }
            // Whoever waits for a buffer lets others compute: it may be they who give one back.
            let plain = self.plains.try_take().or_else(|| {
                turn = None;
                self.plains.take()
            });
            let Some(mut plain) = plain else {
                return Ok(());
            };
            let at = clock.now();
            if turn.is_none() {
                turn = Some(self.crew.gate.enter());
            }
            let at = lap(clock, at, &self.counters.cpu_wait_us);
            let looked = self.look(&read);
            let (read, looked) = match (&self.fetching, looked) {
                (Some(fetching), Ok(Some(items)))
                    if read.block.header.algorithm == self.algorithm =>
                {
                    let at = lap(clock, at, &self.counters.compute_us);
                    let offered = (read, items, plain);
                    let Some(back) = fetching.offer(self, offered, &mut turn) else {
                        continue;
                    };
                    lap(clock, at, &self.counters.device_wait_us);
                    plain = back.2;
                    (back.0, Ok(Some(back.1)))
                }
                (_, looked) => (read, looked),
            };
            let at = clock.now();
            if turn.is_none() {
                turn = Some(self.crew.gate.enter());
            }
            let plain_len = read.block.header.plain_len as usize;
            let decoded = looked.and_then(|items| match items {
                None => Ok(None),
                Some(items) => {
                    if self.sink.writes() {
                        self.land(&read, &mut decompressor, &mut hot, &mut plain)?;
                    } else {
                        self.decode(&read, &mut decompressor, &mut hot)?;
                    }
                    Ok(Some(items))
                }
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
                        .send(Decoded {
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
    }

    /// Hands what is decoded to the sink, which waits for devices: no CPU waits along.
    fn write_all(&self, receive: Receiver<Decoded>) -> Result<(), Error> {
        for decoded in receive {
            if self.crew.has_failed() {
                break;
            }
            let plain = &decoded.plain[..decoded.plain_len];
            self.deliver(decoded.set, decoded.items, plain)?;
        }
        Ok(())
    }

    /// Reads the block's manifest and checks its stored bytes; `None` when the sink does not want it.
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
        let clock = &*self.house.clock;
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

    /// Decodes one block and checks what came of it.
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

    /// What only all stripes of a set together show.
    fn check_totals(&self, tally: &Tally) -> Result<(), Error> {
        let trailers = tally.trailers.lock();
        if trailers.len() < tally.families {
            // The sink heard why.
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
            self.sink.damage(damaged(
                "its content does not add up to what its trailer says",
            ))?;
        }
        Ok(())
    }
}
