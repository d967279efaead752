//! The yardstick: every part of the work by itself, single-threaded, and the limit that several cores could reach.
//!
//! *limit* = cores ÷ (1/codec + 1/page-cache read + 1/each checksum that the format requires). A buffer is 1 MiB as in
//! the pipeline and is compressed right after it was read; checksums are timed on bytes in a core's L2 cache.
//!
//! Invariants
//! - Wall time determines the limit, CPU time the sum with which a pipeline's CPU time is compared.
//! - What a codec encodes is decoded and compared: a wrong codec has no speed.
//! - The file that is written is removed, also after an error.
//!
//! Leaves to others: the corpus (`corpus.rs`), the rounds of the pipeline (`rounds.rs`), and the report (`goals.rs`).

use anyhow::{Result, ensure};
use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_io::{Clock, HUGE_BYTES, OpenHow, Pool, Storage, Via, crc32c, side_by_side};

use super::corpus::{BLOCK_BYTES, Corpus};
use super::part::{Part, Price};

/// Fits any core's L2 cache together with the code's own data.
const HOT_BYTES: usize = 256 << 10;

/// A codec over the whole source.
#[derive(Debug, Clone, Copy)]
pub struct Codec {
    pub algorithm: Algorithm,
    /// Measured in plain bytes.
    pub encode: Part,
    pub decode: Part,
    pub stored_bytes: u64,
}

impl Codec {
    pub fn ratio(&self) -> f64 {
        self.encode.bytes as f64 / self.stored_bytes.max(1) as f64
    }
}

/// One pass of everything.
#[derive(Debug, Clone)]
pub struct Bare {
    pub read: Part,
    pub checksum: Part,
    /// Memory to memory, L2 to L2.
    pub copy: Part,
    /// Bypassing the page cache into one file from one thread, made durable at the end.
    pub write: Part,
    /// The same from two threads, for the wall time.
    pub write_twofold: Part,
    pub codecs: Vec<Codec>,
}

impl Bare {
    /// Times all parts over the corpus, which must be warm. Writes a file of up to `write_bytes` to `target` and
    /// removes it again.
    pub fn measure(
        storage: &dyn Storage,
        clock: &dyn Clock,
        corpus: &Corpus,
        algorithms: &[Algorithm],
        target: &std::path::Path,
    ) -> Result<Bare> {
        let mut buffer = vec![0; BLOCK_BYTES];
        let (mut read, mut checksum, mut copy) =
            (Part::default(), Part::default(), Part::default());
        let mut other = vec![0; HOT_BYTES];
        corpus.each_block(clock, &mut buffer, &mut read, |plain| {
            let hot = &plain[..plain.len().min(HOT_BYTES)];
            std::hint::black_box(crc32c(hot));
            checksum.time(clock, || {
                for _ in 0..4 {
                    std::hint::black_box(crc32c(std::hint::black_box(hot)));
                }
            });
            checksum.bytes += 4 * hot.len() as u64;
            copy.time(clock, || {
                for _ in 0..4 {
                    other[..hot.len()].copy_from_slice(std::hint::black_box(hot));
                    std::hint::black_box(&mut other);
                }
            });
            copy.bytes += 4 * hot.len() as u64;
            Ok(())
        })?;
        let codecs = algorithms.iter().filter(|a| **a != Algorithm::None);
        let codecs = codecs.map(|&a| codec(clock, corpus, a));
        Ok(Bare {
            read,
            checksum,
            copy,
            codecs: codecs.collect::<Result<_>>()?,
            write: write(storage, clock, corpus.bytes, target, 1)?,
            write_twofold: write(storage, clock, corpus.bytes, target, 2)?,
        })
    }

    pub fn codec(&self, algorithm: Algorithm) -> Option<&Codec> {
        self.codecs.iter().find(|c| c.algorithm == algorithm)
    }

    /// Both checksums of a block: of the plain bytes and of the stored ones.
    fn checksums(&self, codec: Option<&Codec>) -> Price {
        let stored = codec.map_or(1.0, |c| 1.0 / c.ratio());
        let one = self.checksum.price();
        one.plus_times(one, stored)
    }

    /// The device's highest write rate, from one thread or two.
    pub fn write_gb_per_s(&self) -> f64 {
        self.write.gb_per_s().max(self.write_twofold.gb_per_s())
    }

    /// The lowest cost of a backup of 10^9 bytes.
    pub fn backup(&self, algorithm: Algorithm) -> Price {
        let codec = self.codec(algorithm);
        let encode = codec.map_or(Price::default(), |c| c.encode.price());
        encode.plus(self.read.price()).plus(self.checksums(codec))
    }

    /// The lowest cost of a restore: decoding, both checksums, one copy of the stored bytes, and the CPU time of
    /// writing past the cache.
    pub fn restore(&self, algorithm: Algorithm) -> Price {
        let codec = self.codec(algorithm);
        let decode = codec.map_or(Price::default(), |c| c.decode.price());
        let stored = codec.map_or(1.0, |c| 1.0 / c.ratio());
        let write_cpu = Price {
            wall_s: self.write.cpu_s_per_gb(),
            cpu_s: self.write.cpu_s_per_gb(),
        };
        decode
            .plus(self.checksums(codec))
            .plus_times(self.copy.price(), stored)
            .plus(write_cpu)
    }
}

fn codec(clock: &dyn Clock, corpus: &Corpus, algorithm: Algorithm) -> Result<Codec> {
    let mut compressor = Compressor::new(algorithm, Level::Low)?;
    let mut decompressor = Decompressor::new();
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut payload = vec![0; payload_bound(algorithm, BLOCK_BYTES)];
    let mut back = vec![0; BLOCK_BYTES];
    let (mut encode, mut decode, mut stored_bytes) = (Part::default(), Part::default(), 0);
    corpus.each_block(clock, &mut buffer, &mut Part::default(), |plain| {
        let len = encode.time(clock, || compressor.compress(plain, &mut payload).len);
        encode.bytes += plain.len() as u64;
        stored_bytes += len as u64;
        let back = &mut back[..plain.len()];
        decode.time(clock, || {
            decompressor.decompress(algorithm, &payload[..len], back)
        })?;
        decode.bytes += plain.len() as u64;
        ensure!(
            back == plain,
            "{algorithm} does not decode to what it encoded"
        );
        Ok(())
    })?;
    Ok(Codec {
        algorithm,
        encode,
        decode,
        stored_bytes,
    })
}

/// The device's write rate while it is read: writes as many bytes as [`Bare::write`], durably, while all of `stripe`,
/// which is first dropped from the page cache, is read past it, each from two threads. The wall time ends when both
/// have ended.
pub fn write_beside_reading(
    storage: &dyn Storage,
    clock: &dyn Clock,
    bytes: u64,
    target: &std::path::Path,
    stripe: &Corpus,
) -> Result<Part> {
    stripe.chill()?;
    let start = clock.now();
    let both = side_by_side(2, |n| match n {
        0 => stripe.read_direct(clock, 2),
        _ => write(storage, clock, bytes, target, 2),
    });
    let wall_s = (clock.now() - start).as_secs_f64();
    let both: Vec<Part> = both?.into_iter().collect::<Result<_>>()?;
    Ok(Part { wall_s, ..both[1] })
}

pub fn write(
    storage: &dyn Storage,
    clock: &dyn Clock,
    bytes: u64,
    target: &std::path::Path,
    threads: u64,
) -> Result<Part> {
    let parent = target.parent().unwrap_or(std::path::Path::new("."));
    let name = std::path::Path::new(target.file_name().unwrap_or_default());
    let dir = storage.dir(parent)?;
    // In a large page, as the pipeline's buffers are: from small pages the device takes two fifths less.
    let pool = Pool::new(HUGE_BYTES / BLOCK_BYTES, BLOCK_BYTES)?;
    let mut buffer = pool.take().ok_or_else(|| anyhow::anyhow!("no buffer"))?;
    // Not zeros: some disks do not write zeros.
    let mut x = 1u64;
    for word in buffer.chunks_exact_mut(8) {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.copy_from_slice(&x.to_le_bytes());
    }
    let file = dir.open(name, OpenHow::CreateNew)?;
    // Earlier removals and writes must not be part of the measurement.
    dir.sync_all()?;
    let mut part = Part::default();
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
    let written: std::io::Result<()> = part.time(clock, || {
        // Full length, reserved in advance: then two threads' writes do not wait for each other.
        file.set_len(blocks * BLOCK_BYTES as u64)?;
        file.allocate(0..blocks * BLOCK_BYTES as u64)?;
        let write = |first: usize| {
            (first as u64..blocks)
                .step_by(threads as usize)
                .try_for_each(|n| file.write_all_at(&buffer, n * BLOCK_BYTES as u64, Via::Direct))
        };
        side_by_side(threads as usize, write)?
            .into_iter()
            .collect::<std::io::Result<()>>()?;
        file.sync()
    });
    part.bytes = blocks * BLOCK_BYTES as u64;
    drop(file);
    dir.remove_file(name)?;
    written?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(gb_per_s: f64) -> Part {
        Part {
            bytes: 1_000_000_000,
            wall_s: 1.0 / gb_per_s,
            cpu_s: 0.5 / gb_per_s,
        }
    }

    #[test]
    fn the_limit_adds_the_costs_of_all_parts_and_divides_the_cores_by_them() {
        let codec = Codec {
            algorithm: Algorithm::Lz4,
            encode: part(1.0),
            decode: part(2.0),
            stored_bytes: 500_000_000,
        };
        let bare = Bare {
            read: part(10.0),
            checksum: part(20.0),
            copy: part(10.0),
            write: part(1.0),
            write_twofold: part(1.5),
            codecs: vec![codec],
        };
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        // 1/1 + 1/10 + 1/20 + half of 1/20
        close(bare.backup(Algorithm::Lz4).wall_s, 1.175);
        close(bare.backup(Algorithm::Lz4).limit_gb_per_s(2), 2.0 / 1.175);
        close(bare.backup(Algorithm::Lz4).cpu_s, 0.5875);
        // No encoding, and the same number of stored bytes: 1/10 + 2/20.
        close(bare.backup(Algorithm::None).wall_s, 0.2);
        // 1/2 + 0.075 + half of 1/10 + the write's CPU
        close(
            bare.restore(Algorithm::Lz4).wall_s,
            0.5 + 0.075 + 0.05 + 0.5,
        );
    }
}
