//! The interleaved rounds: every round measures the bare parts and the pipeline, one after another, so that a
//! disturbance affects both.
//!
//! Invariants
//! - A warm measurement reads the source into the page cache first; a cold one drops it.
//! - The directory of stripes is emptied after each algorithm, so that all find the same free space.
//!
//! Leaves to others: the bare parts (`bare.rs`), medians and the report (`mod.rs`).

use anyhow::{Result, bail};
use longshore_codec::Algorithm;
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Disposition, Request, RestoreRequest, RunContext, SourceSpec,
};

use super::bare::{Bare, write_beside_reading};
use super::beside::Blocks;
use super::corpus::Corpus;
use super::part::Part;
use crate::scratch::Scratch;
use crate::timing::{Timing, take};

/// In the order of the tables.
pub const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::QatDeflate,
    Algorithm::Zstd,
    Algorithm::Lz4,
    Algorithm::Pages,
    Algorithm::None,
];

/// Those that compress, of [`ALGORITHMS`].
pub const COMPRESSING: &[Algorithm] = ALGORITHMS.split_at(4).0;

pub const NUL_STRIPES: [usize; 2] = [1, 8];

/// Everything measured in one round.
pub struct Round {
    pub bare: Bare,
    /// Algorithm and stripes.
    pub nul: Vec<(Algorithm, usize, Timing)>,
    /// To one stripe on disk.
    pub disk: Vec<(Algorithm, Timing)>,
    /// From a stripe in the page cache.
    pub restore_warm: Vec<(Algorithm, Timing)>,
    /// From a stripe that is not in the page cache.
    pub restore: Vec<(Algorithm, Timing)>,
    /// Writing of the restored bytes, without a pipeline, while the stripe is read past the cache.
    pub both: Vec<(Algorithm, Part)>,
    /// Decoding on all cores, without a pipeline, while as many bytes are written.
    pub decode_beside: Vec<(Algorithm, Part)>,
    pub cold: ColdBackup,
}

/// A backup to NUL of files that are not in the page cache.
pub struct ColdBackup {
    /// Reading past the cache, without a pipeline; the faster of one and several threads.
    pub read: Part,
    /// Compression on all cores, without a pipeline, while as many bytes are read past the cache.
    pub encode_beside: Part,
    pub taken: Timing,
    /// The share of the source that was cached before and after, 0 to 1.
    pub cached_before: f64,
    pub cached_after: f64,
}

/// The objects that the rounds use.
pub struct Bench<'a> {
    pub context: &'a RunContext,
    pub source: &'a SourceSpec,
    pub corpus: &'a Corpus,
    pub scratch: &'a Scratch,
}

impl Bench<'_> {
    pub fn round(&self, on_step: &dyn Fn(&str)) -> Result<Round> {
        let (clock, storage) = (&*self.context.clock, &*self.context.storage);
        on_step("bare parts");
        self.corpus.warm(clock)?;
        let target = self.scratch.path("bare");
        let bare = Bare::measure(storage, clock, self.corpus, &ALGORITHMS, &target)?;
        let mut nul = Vec::new();
        for algorithm in ALGORITHMS {
            on_step(&format!("{algorithm} to NUL"));
            for stripes in NUL_STRIPES {
                let taken = self.backup_warm(algorithm, vec![DeviceSpec::Nul; stripes])?;
                nul.push((algorithm, stripes, taken));
            }
        }
        let (mut disk, mut restore_warm) = (Vec::new(), Vec::new());
        let (mut restore, mut both, mut decode_beside) = (Vec::new(), Vec::new(), Vec::new());
        for algorithm in ALGORITHMS {
            on_step(&format!("{algorithm} to disk and back"));
            let stripe = self.scratch.stripes(1);
            disk.push((algorithm, self.backup_warm(algorithm, stripe.clone())?));
            let written = self.scratch.written(&stripe);
            let written = Corpus::open(storage, &SourceSpec::Files(written))?;
            if algorithm != Algorithm::None {
                let blocks = Blocks::take(clock, self.corpus, algorithm)?;
                let part = blocks.decode_beside_writing(storage, clock, &target)?;
                decode_beside.push((algorithm, part));
            }
            written.warm(clock)?;
            restore_warm.push((algorithm, self.restore(stripe.clone())?));
            let bytes = self.corpus.bytes;
            let part = write_beside_reading(storage, clock, bytes, &target, &written)?;
            both.push((algorithm, part));
            written.chill()?;
            restore.push((algorithm, self.restore(stripe)?));
            self.scratch.clear()?;
        }
        on_step("cold");
        Ok(Round {
            bare,
            nul,
            disk,
            restore_warm,
            restore,
            both,
            decode_beside,
            cold: self.cold()?,
        })
    }

    /// A backup of the source after it was read into the page cache. Some machines lose parts of the cache from one
    /// second to the next.
    pub fn backup_warm(&self, algorithm: Algorithm, devices: Vec<DeviceSpec>) -> Result<Timing> {
        self.corpus.warm(&*self.context.clock)?;
        self.backup(algorithm, devices)
    }

    fn backup(&self, algorithm: Algorithm, devices: Vec<DeviceSpec>) -> Result<Timing> {
        let mut request = BackupRequest::new(self.source.clone(), devices);
        request.algorithm = algorithm;
        request.disposition = Disposition::New;
        self.scratch.settle()?;
        take(self.context, &Request::Backup(request))
    }

    fn restore(&self, devices: Vec<DeviceSpec>) -> Result<Timing> {
        let request = RestoreRequest::new(devices, self.scratch.path("restored"));
        self.scratch.settle()?;
        let taken = take(self.context, &Request::Restore(request))?;
        self.scratch.remove("restored")?;
        Ok(taken)
    }

    fn cold(&self) -> Result<ColdBackup> {
        let clock = &*self.context.clock;
        let threads = 2 * longshore_facts::cores().max(2);
        let mut read: Option<Part> = None;
        for threads in [1, threads] {
            self.corpus.chill()?;
            let part = self.corpus.read_direct(clock, threads)?;
            read = match read {
                Some(best) if best.gb_per_s() >= part.gb_per_s() => Some(best),
                _ => Some(part),
            };
        }
        let blocks = Blocks::take(clock, self.corpus, Algorithm::QatDeflate)?;
        let encode_beside = blocks.encode_beside_reading(clock, self.corpus)?;
        self.corpus.chill()?;
        let cached_before = self.corpus.cached_share()?;
        let taken = self.backup(Algorithm::QatDeflate, vec![DeviceSpec::Nul])?;
        let Some(read) = read else {
            bail!("nothing was read");
        };
        Ok(ColdBackup {
            read,
            encode_beside,
            taken,
            cached_before,
            cached_after: self.corpus.cached_share()?,
        })
    }
}
