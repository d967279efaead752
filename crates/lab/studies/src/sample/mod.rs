//! Sample databases: realistic content of any size, the same bytes on every run.
//!
//! Studies need databases that anybody can build again. [`sample`] makes SQLite databases of two kinds, order entry in
//! the manner of TPC-C and stock trading in the manner of TPC-E, from a seed and a size. A sample may be split over
//! several files and directories, each a separate database with its share of warehouses or customers, so that several
//! readers have work.
//!
//! The size is reached in two steps: the number of rows is estimated, and if the file misses the size by more than 1 %
//! (small files do) it is loaded again with a corrected number. Whole warehouses are loaded once: they are what was asked
//! for, and a further load would begin another one.
//!
//! Invariants
//! - Equal specs give byte-identical files, with the same version of SQLite. Nothing reads a clock or the environment.
//! - A name is taken only by a complete, synced database; see [`store`].
//!
//! Leaves to others: the rows (`tprocc`, `stae`), and a file while it is loaded (`store.rs`).

mod calendar;
mod ddl;
mod part;
pub(crate) mod random;
mod stae;
mod store;
mod tprocc;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use part::SamplePart;
use store::{LoadResult, SampleLocation};

/// The smallest file: below this size, a few half-empty pages exceed the tolerance.
pub const FILE_BYTES_MIN: u64 = 1_000_000;

/// The most files of a sample; one for each stripe of the largest media set is enough.
pub const FILES_MAX: usize = 64;

/// A file is loaded again until its size is within 1 / this of the requested one.
const TOLERANCE: u64 = 100;

/// The most loads of one file.
const LOADS_MAX: u32 = 6;

/// The content of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleKind {
    /// Order entry: TPC-C's tables and population rules. Mostly random strings, 1.6 : 1 with gzip.
    Tprocc,
    /// Stock trading in the manner of TPC-E: names, prices, timestamps, as people's data look.
    Stae,
}

impl SampleKind {
    /// The name on the command line and in file names.
    pub fn name(self) -> &'static str {
        match self {
            SampleKind::Tprocc => "tprocc",
            SampleKind::Stae => "stae",
        }
    }

    /// Warehouses or customers that fill about `bytes`.
    pub(crate) fn units(self, bytes: f64) -> f64 {
        match self {
            SampleKind::Tprocc => tprocc::units(bytes),
            SampleKind::Stae => stae::units(bytes),
        }
    }

    fn bytes_per_unit(self, units: f64) -> f64 {
        match self {
            SampleKind::Tprocc => tprocc::bytes_per_unit(units),
            SampleKind::Stae => stae::TRADES_BYTES,
        }
    }
}

impl fmt::Display for SampleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings of a sample.
#[derive(Debug, Clone)]
pub struct SampleSpec {
    pub kind: SampleKind,
    /// Bytes of all files together, met within 2 %.
    pub size_bytes: u64,
    pub seed: u64,
    /// 1 to [`FILES_MAX`].
    pub files: usize,
    /// Directories that take the files in turn; created if missing. Not with `path`.
    pub dirs: Vec<PathBuf>,
    /// The one file to build. Without it, files are named `tprocc-1.db`, `tprocc-2.db`, ...
    pub path: Option<PathBuf>,
    /// Leave the files in WAL mode (checkpointed, without a -wal file) instead of rollback mode.
    pub wal: bool,
    /// Replace files that exist.
    pub replace: bool,
}

/// The result of building a sample.
#[derive(Debug, Clone, Serialize)]
pub struct SampleReport {
    pub kind: SampleKind,
    pub seed: u64,
    pub files: Vec<SampleFile>,
}

impl SampleReport {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn row_count(&self) -> u64 {
        self.files.iter().map(|file| file.row_count).sum()
    }
}

/// One database of a sample.
#[derive(Debug, Clone, Serialize)]
pub struct SampleFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub row_count: u64,
}

/// The progress of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The file that is being loaded.
    pub path: &'a Path,
    /// The table that is being loaded, or `indexes`.
    pub step: &'static str,
    /// Bytes of all files so far; falls back when a file is loaded again.
    pub bytes_done: u64,
    pub bytes_total: u64,
}

/// A table's name, and the statement that creates it in PostgreSQL.
pub(crate) type PostgresTable = (&'static str, String);

/// The tables of a sample for PostgreSQL, and the statements that create its indexes there, once the rows are in.
pub(crate) fn for_postgres(kind: SampleKind) -> (Vec<PostgresTable>, &'static [&'static str]) {
    match kind {
        SampleKind::Tprocc => (ddl::tables(tprocc::SCHEMA), &tprocc::INDEXES),
        SampleKind::Stae => (ddl::tables(stae::TABLES), &stae::INDEXES),
    }
}

/// The ticker symbol of a security of the sample `stae`, by its number.
pub(crate) fn stae_symbol(number: u64) -> String {
    stae::symbol(number)
}

/// The size of a sample `tprocc` of so many whole warehouses, in bytes.
pub fn warehouse_bytes(warehouses: u32) -> u64 {
    tprocc::bytes(warehouses)
}

/// Builds a sample on this machine's file systems. `on_progress` is called a few times a second.
///
/// Fails if the spec is impossible, a name is taken, space is short or SQLite reports an error; nothing is left under
/// the requested names then. Files completed before the failing one stay.
pub fn sample(spec: &SampleSpec, on_progress: &dyn Fn(Progress)) -> Result<SampleReport> {
    let places = places(spec)?;
    let file_bytes = spec.size_bytes / places.len() as u64;
    ensure!(
        file_bytes >= FILE_BYTES_MIN,
        "{} bytes in {} file(s) is too small: a file needs at least {FILE_BYTES_MIN} bytes",
        spec.size_bytes,
        places.len(),
    );
    let mut report = SampleReport {
        kind: spec.kind,
        seed: spec.seed,
        files: Vec::new(),
    };
    let mut first_id = 1;
    for place in &places {
        let done = report.bytes();
        let on_step = |step, bytes| {
            on_progress(Progress {
                path: place.path(),
                step,
                bytes_done: done + bytes,
                bytes_total: spec.size_bytes,
            });
        };
        let built = build(spec, place, file_bytes, first_id, &on_step);
        if built.is_err() {
            // The first error is reported; a file that cannot be removed is replaced next time.
            let _ = place.discard();
        }
        let (loaded, ids) =
            built.with_context(|| format!("cannot build {}", place.path().display()))?;
        first_id += ids;
        let path = place.path().to_owned();
        report.files.push(SampleFile {
            path,
            bytes: loaded.bytes,
            row_count: loaded.rows,
        });
    }
    Ok(report)
}

/// The files of a sample, none of them taken.
fn places(spec: &SampleSpec) -> Result<Vec<SampleLocation>> {
    ensure!(
        (1..=FILES_MAX).contains(&spec.files),
        "a sample has 1 to {FILES_MAX} files, not {}",
        spec.files
    );
    if let Some(path) = &spec.path {
        ensure!(
            spec.files == 1 && spec.dirs.is_empty(),
            "a file name goes with one file; for several, give directories instead"
        );
        return Ok(vec![SampleLocation::claim(path, spec.replace)?]);
    }
    ensure!(
        !spec.dirs.is_empty(),
        "a sample needs a file name or directories"
    );
    let names = (1..=spec.files).map(|n| format!("{}-{n}.db", spec.kind));
    let dirs = spec.dirs.iter().cycle();
    dirs.zip(names)
        .map(|(dir, name)| SampleLocation::claim(&dir.join(name), spec.replace))
        .collect()
}

/// Loads one file to its size; returns its content and how many ids it used.
fn build(
    spec: &SampleSpec,
    place: &SampleLocation,
    want_bytes: u64,
    first_id: i64,
    on_step: &dyn Fn(&'static str, u64),
) -> Result<(LoadResult, i64)> {
    let free = place.free_bytes()?;
    ensure!(
        free > want_bytes,
        "{want_bytes} bytes are needed and {free} are free"
    );
    let mut units = spec.kind.units(want_bytes as f64);
    let is_whole = spec.kind == SampleKind::Tprocc && tprocc::whole(want_bytes).is_some();
    for _ in 0..LOADS_MAX {
        let part = SamplePart {
            seed: spec.seed,
            first_id,
            want_bytes,
            units,
            wal: spec.wal,
        };
        let (loaded, ids) = match spec.kind {
            SampleKind::Tprocc => tprocc::load(place, &part, on_step)?,
            SampleKind::Stae => stae::load(place, &part, on_step)?,
        };
        if is_whole || loaded.bytes.abs_diff(want_bytes) <= want_bytes / TOLERANCE {
            place.publish()?;
            return Ok((loaded, ids));
        }
        tracing::debug!(
            units,
            bytes = loaded.bytes,
            want_bytes,
            "sample is loaded again"
        );
        units += (want_bytes as f64 - loaded.bytes as f64) / spec.kind.bytes_per_unit(units);
    }
    anyhow::bail!("{LOADS_MAX} loads did not reach {want_bytes} bytes");
}
