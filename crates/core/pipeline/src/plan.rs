//! Sizes and threads: everything decided before the first byte moves.
//!
//! Defaults follow SQL Server's rules (5 buffers per device and 2 per volume, 1 MiB each) and rise to the number that
//! this machine's workers need to stay busy. Why 1 MiB: it fits one core's L2 cache; measured throughput is flat from
//! 256 KiB to 2 MiB and lower at 4 MiB.
//!
//! Invariants
//! - An explicit BUFFERCOUNT is kept; if it is too small for all workers, fewer run.
//!
//! Leaves to others: allocating the buffers (`longshore-io`), and the values that a request may have (`request.rs`).

use longshore_codec::{Algorithm, pages};
use longshore_io::HUGE_BYTES;
use longshore_media::block::head_len_max;
use longshore_media::header::payload_max;
use longshore_media::{MediaSet, SetHeader};
use longshore_source::LayoutCount;
use serde::Serialize;

use crate::request::{Limits, Tuning};

/// Buffer alignment, as direct I/O requires.
pub const ALIGN: usize = 4096;
const DEFAULT_BUFFER_BYTES: usize = 1 << 20;
/// Memory of one worker's codec: the largest, but for PAGES, is an ISA-L or zstd context with its tables.
pub const WORKER_SCRATCH_BYTES: usize = 2 << 20;

/// Memory of one codec of this algorithm beyond [`WORKER_SCRATCH_BYTES`], for buffers of `buffer_bytes`.
pub fn codec_bytes(algorithm: Algorithm, buffer_bytes: usize) -> usize {
    match algorithm {
        Algorithm::Pages => pages::worker_memory(buffer_bytes),
        Algorithm::None
        | Algorithm::MsXpress
        | Algorithm::QatDeflate
        | Algorithm::Zstd
        | Algorithm::Lz4 => 0,
    }
}

/// The program itself, its thread stacks and SQLite's caches.
const BASE_BYTES: usize = 24 << 20;

/// Finished blocks that may wait for an earlier one still being read, in addition to one for each buffer. One stripe
/// takes blocks in order, so an uncached read delays cached ones: measured with 30 % of a database not cached
/// (docs/benchmarks-postgres.md), backups take 9 to 18 % less time than with none.
const FINISHED_MAX: usize = 22;

/// The fewest workers that wait for devices.
const WAITING_MIN: usize = 6;
/// Reads in flight over all stripes, if there are few stripes.
const READS: usize = 4;
const READ_AHEAD_MAX: usize = 2;

/// The plan of a run. Shown by `--verbose`, and in every report.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub action: &'static str,
    pub database: String,
    pub devices: Vec<String>,
    /// How many of the media set's stripes hold parity. Those of a backup are the last of its devices.
    pub parity_stripes: u16,
    pub volumes: Vec<String>,
    pub algorithm: String,
    pub level: String,
    /// Whether the set is encrypted.
    pub encrypted: bool,
    /// The library that compresses or decompresses.
    pub engine: String,
    pub buffer_count: usize,
    pub buffer_bytes: usize,
    /// Threads that read and compress, or decode and write.
    pub workers: usize,
    /// How many of them may compute at a time.
    pub cpus: usize,
    /// CPUs that they may keep busy together, if limited.
    pub cpu_ceiling: Option<f64>,
    pub rate_bytes_per_s: Option<u64>,
    /// Resident memory stays below this many bytes.
    pub memory_bytes: u64,
    pub expected_bytes: Option<u64>,
    /// Of a backup with PAGES from a local cluster: what the server said of its tables.
    pub layouts: Option<LayoutsKnown>,
    /// Notices for the operator before the run starts.
    pub notices: Vec<String>,
    /// Options that were given and have no effect in this run.
    pub without_effect: Vec<String>,
}

impl Plan {
    /// The plan of a restore or a verification.
    pub(crate) fn for_reading(
        action: &'static str,
        media: &MediaSet,
        header: &SetHeader,
        sizes: &Sizes,
        limits: &Limits,
        tuning: &Tuning,
    ) -> Plan {
        let others = tuning
            .buffer_bytes
            .filter(|bytes| *bytes != sizes.buffer_bytes);
        let without_effect = others.map(|_| {
            format!(
                "MAXTRANSFERSIZE has no effect here: the set has blocks of {} bytes, and each block is read whole",
                sizes.buffer_bytes
            )
        });
        Plan {
            action,
            database: header.database.clone(),
            devices: (0..media.family_count())
                .map(|i| media.device(i).to_owned())
                .collect(),
            parity_stripes: media.parity_count() as u16,
            volumes: Vec::new(),
            algorithm: header.algorithm.to_string(),
            level: header.level.to_string(),
            encrypted: header.encrypted,
            engine: "software".to_owned(),
            buffer_count: sizes.buffer_count,
            buffer_bytes: sizes.buffer_bytes,
            workers: sizes.workers,
            cpus: sizes.cpus,
            cpu_ceiling: sizes.cpu_ceiling,
            rate_bytes_per_s: limits.rate_bytes_per_s,
            memory_bytes: sizes.memory_bytes,
            expected_bytes: None,
            layouts: None,
            notices: Vec::new(),
            without_effect: without_effect.into_iter().collect(),
        }
    }
}

/// How much is known of the layouts of a cluster's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LayoutsKnown {
    /// Relations whose layout is known.
    pub relations: u64,
    /// Databases that answered.
    pub databases_asked: u64,
    /// Databases that nobody may connect to, that refused, or that did not answer in time.
    pub databases_not_asked: u64,
}

impl From<LayoutCount> for LayoutsKnown {
    fn from(count: LayoutCount) -> LayoutsKnown {
        let LayoutCount {
            relations,
            databases,
            databases_not_asked,
        } = count;
        LayoutsKnown {
            relations,
            databases_asked: databases,
            databases_not_asked,
        }
    }
}

/// The numbers of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub buffer_count: usize,
    /// How many of them accelerators may hold.
    pub lent: usize,
    pub buffer_bytes: usize,
    /// The most compressed blocks waiting to be written.
    pub output_count: usize,
    pub output_bytes: usize,
    /// Decoded blocks of a restore that may wait for a writer.
    waiting: usize,
    pub workers: usize,
    pub cpus: usize,
    pub cpu_ceiling: Option<f64>,
    /// Reads of 1 MiB that each stripe may have in flight ahead of its reader.
    pub read_ahead: usize,
    pub memory_bytes: u64,
}

/// The inputs of the decision.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    pub tuning: &'a Tuning,
    pub limits: &'a Limits,
    pub devices: usize,
    /// Volumes of the source; 1 for a restore.
    pub volumes: usize,
    /// The buffer size that the media require (restore, verification), or `None`.
    pub buffer_bytes_of_media: Option<usize>,
    /// Each stream has 2 MiB of its own when written; when read, 1 MiB and one more for each read ahead.
    pub streams: usize,
    /// The algorithm whose codec needs the most memory, if several sets are read.
    pub algorithm: Algorithm,
}

impl Sizes {
    pub fn decide(demand: &Demand) -> Sizes {
        let Demand {
            tuning,
            limits,
            devices,
            volumes,
            buffer_bytes_of_media,
            streams,
            algorithm,
        } = *demand;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let cpu_ceiling = limits.cpu_percent.map(|p| cores as f64 * p / 100.0);
        let cpus = cpu_ceiling.map_or(cores, |c| (c.ceil() as usize).clamp(1, cores));
        // At least as many workers as compute wait for slow reads or writes at the same time. With few CPUs there are
        // more: measured with two, cold backups and restores are a tenth faster with six waiting workers than with
        // two.
        let wanted = cpus + cpus.max(WAITING_MIN).max(2 * volumes);
        let default_count = (5 * devices + 2 * volumes).max(wanted + 2 * devices);
        let buffer_count = tuning.buffer_count.unwrap_or(default_count);
        let workers = wanted.min(buffer_count);
        let buffer_bytes = buffer_bytes_of_media
            .or(tuning.buffer_bytes)
            .unwrap_or(DEFAULT_BUFFER_BYTES);
        // One more alignment unit, so that NONE can place its payload on a boundary.
        let output_bytes =
            (head_len_max() + payload_max(buffer_bytes) + ALIGN).next_multiple_of(ALIGN);
        // One for each writer: with only as many buffers as threads, decoders wait whenever all writers do.
        let waiting = match (buffer_bytes_of_media, tuning.buffer_count) {
            (Some(_), None) => workers - workers.min(cpus),
            _ => 0,
        };
        let finished = match (buffer_bytes_of_media, tuning.buffer_count, devices) {
            (None, None, 1) => FINISHED_MAX,
            _ => 0,
        };
        let output_count = buffer_count + finished;
        let pool = |count: usize, bytes: usize| {
            let bytes = count.saturating_mul(bytes);
            bytes.checked_next_multiple_of(HUGE_BYTES).unwrap_or(bytes)
        };
        let plain_count = buffer_count.max(workers + waiting);
        let pools =
            pool(plain_count, buffer_bytes).saturating_add(pool(output_count, output_bytes));
        // Several stripes already cause several reads.
        let read_ahead = match (buffer_bytes_of_media, streams) {
            (Some(_), 1..=READS) => (READS / streams).min(READ_AHEAD_MAX),
            _ => 0,
        };
        // Buffers in which workers decode, which no device reads.
        let hots = buffer_bytes_of_media.map_or(0, |bytes| pool(workers.min(cpus), bytes));
        // Every worker of a backup compresses; of those of a restore only some decode.
        let codecs = match buffer_bytes_of_media {
            Some(_) => workers.min(cpus),
            None => workers,
        };
        let own = streams * pool(1 + read_ahead, 1 << 20)
            + workers * WORKER_SCRATCH_BYTES
            + codecs * codec_bytes(algorithm, buffer_bytes)
            + hots
            + BASE_BYTES;
        let memory = pools.saturating_add(own);
        Sizes {
            buffer_count,
            lent: 0,
            buffer_bytes,
            output_count,
            output_bytes,
            waiting,
            workers,
            cpus,
            cpu_ceiling,
            read_ahead,
            memory_bytes: memory as u64,
        }
    }

    /// The workers of a restore that decode: no more than can compute, so that none waits for its turn.
    pub fn decoders(&self) -> usize {
        self.workers.min(self.cpus)
    }

    /// Buffers for decoded blocks: being decoded, waiting, being written, or lent.
    pub fn plains(&self) -> usize {
        self.workers + self.waiting + self.lent
    }

    /// The workers that wait for devices.
    pub fn writers(&self) -> usize {
        (self.workers - self.decoders()).max(1)
    }

    /// The same sizes with `wanted` more buffers, for accelerators to hold. An explicit BUFFERCOUNT is kept and
    /// shared: at most half of it is lent.
    pub fn with_staging(mut self, wanted: usize, tuning: &Tuning) -> Sizes {
        match tuning.buffer_count {
            Some(count) => self.lent = wanted.min(count / 2),
            None => {
                let more = wanted.saturating_mul(self.buffer_bytes + self.output_bytes);
                self.lent = wanted;
                self.buffer_count += wanted;
                self.output_count += wanted;
                self.memory_bytes = self.memory_bytes.saturating_add(more as u64);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        tuning: &Tuning,
        devices: usize,
        volumes: usize,
        buffer_bytes_of_media: Option<usize>,
        streams: usize,
    ) -> Sizes {
        Sizes::decide(&Demand {
            tuning,
            limits: &Limits::default(),
            devices,
            volumes,
            buffer_bytes_of_media,
            streams,
            algorithm: Algorithm::Zstd,
        })
    }

    fn backup_to(devices: usize, buffer_count: Option<usize>) -> Sizes {
        let tuning = Tuning {
            buffer_count,
            buffer_bytes: None,
        };
        decide(&tuning, devices, 1, None, devices)
    }

    fn restore(buffer_count: Option<usize>) -> Sizes {
        let tuning = Tuning {
            buffer_count,
            buffer_bytes: None,
        };
        decide(&tuning, 1, 0, Some(1 << 20), 1)
    }

    #[test]
    fn the_codecs_of_pages_are_part_of_the_memory() {
        for buffer_bytes_of_media in [None, Some(1 << 20), Some(4 << 20)] {
            let of = |algorithm| {
                Sizes::decide(&Demand {
                    tuning: &Tuning::default(),
                    limits: &Limits::default(),
                    devices: 1,
                    volumes: 1,
                    buffer_bytes_of_media,
                    streams: 1,
                    algorithm,
                })
            };
            let (other, pages_plan) = (of(Algorithm::Zstd), of(Algorithm::Pages));
            let codecs = match buffer_bytes_of_media {
                None => pages_plan.workers,
                Some(_) => pages_plan.decoders(),
            };
            let each = pages::worker_memory(pages_plan.buffer_bytes);
            let more = (codecs * each) as u64;
            assert_eq!(pages_plan.memory_bytes, other.memory_bytes + more);
        }
    }

    #[test]
    fn each_writer_of_a_restore_has_a_block_in_hand_and_one_that_waits() {
        let free = restore(None);
        assert_eq!(free.plains(), free.decoders() + 2 * free.writers());
        let asked = restore(Some(free.buffer_count));
        assert_eq!(asked.plains(), asked.workers);
        let more = free.plains().saturating_sub(free.buffer_count) << 20;
        let found = (free.memory_bytes - asked.memory_bytes) as usize;
        assert!(
            found.abs_diff(more) <= HUGE_BYTES,
            "{found} bytes, not {more}"
        );
    }

    #[test]
    fn finished_blocks_may_wait_for_one_stripe_unless_a_count_was_asked_for() {
        let free = backup_to(1, None);
        let asked = backup_to(1, Some(free.buffer_count));
        assert_eq!(asked.output_count, asked.buffer_count);
        assert_eq!(free.output_count, free.buffer_count + FINISHED_MAX);
        let more = (FINISHED_MAX * free.output_bytes) as u64;
        // Both pools are rounded up to huge pages.
        let found = free.memory_bytes - asked.memory_bytes;
        assert!(
            found.abs_diff(more) <= HUGE_BYTES as u64,
            "{found} bytes, not {more}"
        );
        let two = backup_to(2, None);
        assert_eq!(two.output_count, two.buffer_count);
    }
}
