//! The CPUs' part and the device's part at the same time, without a pipeline.
//!
//! The limits assume that a transfer costs only the CPU time of its system calls. Interrupts cost more, and so does a
//! virtual machine's host if it moves the bytes with the CPUs on which the guest computes. These programs have no
//! pipeline: their distance from the limit is a loss that no pipeline on this machine can avoid.
//!
//! Invariants
//! - Blocks are in memory, more of them than caches hold, and no thread waits for another.
//! - As many bytes are computed as the source has, on all cores, while as many are moved.
//!
//! Leaves to others: each part by itself (`bare.rs`).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;

use anyhow::{Context, Result, anyhow, ensure};
use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_facts as facts;
use longshore_io::{Clock, Storage, crc32c, side_by_side};

use super::bare::write;
use super::corpus::{BLOCK_BYTES, Corpus};
use super::part::Part;

/// Enough to exceed the caches, as a pipeline's blocks do.
const BLOCKS: u64 = 64;
const READERS: usize = 4;
const WRITERS: u64 = 2;

/// Whole blocks from all parts of the source, with their compressed forms.
pub struct Blocks {
    algorithm: Algorithm,
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// How many such blocks the source holds.
    count: u64,
}

impl Blocks {
    pub fn take(clock: &dyn Clock, corpus: &Corpus, algorithm: Algorithm) -> Result<Blocks> {
        let count = corpus.bytes.div_ceil(BLOCK_BYTES as u64);
        let step = (count / BLOCKS).max(1);
        let mut compressor = Compressor::new(algorithm, Level::Low)?;
        let mut payload = vec![0; payload_bound(algorithm, BLOCK_BYTES)];
        let (mut blocks, mut number) = (Vec::new(), 0);
        let mut buffer = vec![0; BLOCK_BYTES];
        corpus.each_block(clock, &mut buffer, &mut Part::default(), |plain| {
            if number % step == 0 {
                let len = compressor.compress(plain, &mut payload).len;
                blocks.push((plain.to_vec(), payload[..len].to_vec()));
            }
            number += 1;
            Ok(())
        })?;
        ensure!(!blocks.is_empty(), "the source has no bytes");
        Ok(Blocks {
            algorithm,
            blocks,
            count,
        })
    }

    /// Decodes and checks as many bytes as the source has, on all cores, while as many bytes are written past the
    /// cache to `target`, durably.
    pub fn decode_beside_writing(
        &self,
        storage: &dyn Storage,
        clock: &dyn Clock,
        target: &Path,
    ) -> Result<Part> {
        let work = || {
            let mut decompressor = Decompressor::new();
            let mut back = vec![0; BLOCK_BYTES];
            move |plain: &[u8], payload: &[u8]| {
                std::hint::black_box(crc32c(payload));
                let back = &mut back[..plain.len()];
                decompressor.decompress(self.algorithm, payload, back)?;
                std::hint::black_box(crc32c(back));
                anyhow::Ok(())
            }
        };
        let bytes = self.count * BLOCK_BYTES as u64;
        self.run(clock, work, || {
            write(storage, clock, bytes, target, WRITERS).map(drop)
        })
    }

    /// Checks and compresses as many bytes as the source has, on all cores, while the source is read past the cache.
    pub fn encode_beside_reading(&self, clock: &dyn Clock, corpus: &Corpus) -> Result<Part> {
        let work = || {
            let compressor = Compressor::new(self.algorithm, Level::Low);
            let mut compressor = compressor.map_err(|e| e.to_string());
            let mut payload = vec![0; payload_bound(self.algorithm, BLOCK_BYTES)];
            move |plain: &[u8], _: &[u8]| {
                let compressor = compressor.as_mut().map_err(|e| anyhow!("{e}"))?;
                std::hint::black_box(crc32c(plain));
                let len = compressor.compress(plain, &mut payload).len;
                std::hint::black_box(crc32c(&payload[..len]));
                anyhow::Ok(())
            }
        };
        corpus.chill()?;
        self.run(clock, work, || corpus.read_direct(clock, READERS).map(drop))
    }

    /// `work` makes the function that one thread runs for each block.
    fn run<W>(
        &self,
        clock: &dyn Clock,
        work: impl Fn() -> W + Sync,
        beside: impl FnOnce() -> Result<()> + Send,
    ) -> Result<Part>
    where
        W: FnMut(&[u8], &[u8]) -> Result<()>,
    {
        let next = AtomicU64::new(0);
        let compute = || -> Result<()> {
            let mut work = work();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.count {
                    return Ok(());
                }
                let (plain, payload) = &self.blocks[(number % self.blocks.len() as u64) as usize];
                work(plain, payload)?;
            }
        };
        let cpu = facts::process_usage()?.cpu();
        let start = clock.now();
        std::thread::scope(|scope| {
            let beside = Builder::new().spawn_scoped(scope, beside)?;
            let computed = side_by_side(facts::cores(), |_| compute());
            beside.join().ok().context("a thread panicked")??;
            computed?.into_iter().collect::<Result<()>>()
        })?;
        Ok(Part {
            bytes: self.count * BLOCK_BYTES as u64,
            wall_s: (clock.now() - start).as_secs_f64(),
            cpu_s: facts::process_usage()?
                .cpu()
                .saturating_sub(cpu)
                .as_secs_f64(),
        })
    }
}
