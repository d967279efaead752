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
mod decode;
mod fetch;
mod shared;
mod sink;
mod way;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use longshore_accel::dispatch::EngineUse;
use longshore_codec::Algorithm;
use longshore_io::{Gate, Pool};
use longshore_media::{BlockStream, Error as MediaError, SetHeader, SetTrailer};

use self::shared::{DecodedBlock, Offloading, Read, Tally, UnloadShared};
pub use self::sink::Sink;
use self::way::Ways;
use crate::choice::EngineChoice;
use crate::crew::{Crew, join_all};
use crate::measure::{Counters, Sample, Sampler, lap};
use crate::plan::Sizes;
use crate::request::Limits;
use crate::{Error, Observer, RunContext};

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

/// The inputs that reading sets needs.
pub struct UnloadJob<'a> {
    pub context: &'a RunContext,
    pub sizes: &'a Sizes,
    pub limits: &'a Limits,
    /// Accelerators that may help.
    pub choice: &'a EngineChoice,
    pub counters: &'a Counters,
    pub observer: &'a dyn Observer,
    /// Only the checksums of what is stored are compared; the sink gets no block.
    pub stored_only: bool,
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
            stored_only: what.stored_only,
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
        let again = stream.second_look();
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
                    self.tallies[set].block(block.header.sequence);
                    let read = Read {
                        place: 0..block.header.stored_len as usize,
                        block,
                        payload,
                        device: device.clone(),
                        set,
                        again: again.clone(),
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
        } else if !tally.picks && !tally.has_each_once(blocks) {
            self.sink
                .damage(damaged("blocks have one number, or a number is missing"))?;
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
