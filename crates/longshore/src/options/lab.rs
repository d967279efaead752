//! `longshore lab`: sample databases and the studies made with them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use longshore_codec::Algorithm;
use longshore_lab::sample::{FILES_MAX, SampleKind};

use super::values;

/// Builds sample databases and measures: stripes, buffers, algorithms, and how near the machine's limit.
///
/// Studies go through the same door as `longshore backup`, keep no history, and remove what they write.
/// Their answer is a table, with --json the whole report, with --html a page with plots that needs no
/// network.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    pub study: Study,
}

#[derive(Debug, Subcommand)]
pub enum Study {
    Sample(Sample),
    Sweep(Sweep),
    Compare(Compare),
    Bench(Bench),
    DeviceCheck(DeviceCheck),
    Offload(OffloadStudy),
    CacheFigures(CacheFigures),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Kind {
    /// Order entry in the manner of TPC-C: mostly random strings.
    Tprocc,
    /// Stock trading in the manner of TPC-E: names, prices, times.
    Stae,
}

impl From<Kind> for SampleKind {
    fn from(kind: Kind) -> SampleKind {
        match kind {
            Kind::Tprocc => SampleKind::Tprocc,
            Kind::Stae => SampleKind::Stae,
        }
    }
}

const TEACH_SAMPLE: &str = "\
Examples:
  longshore lab sample stae --size 800M trades.db
  longshore lab sample tprocc --size 8G --files 4 --dir /disk1 --dir /disk2

Not for: benchmarks under the names TPC-C or TPC-E; only their kinds of content are borrowed.";

/// Builds a SQLite database with realistic content, the same bytes on every run.
///
/// Names and sizes can be repeated anywhere: equal options give equal files, with the same version of SQLite.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_SAMPLE,
    override_usage = "longshore lab sample [OPTIONS] --size <SIZE> <KIND> <FILE|--dir <DIR>>",
    group = ArgGroup::new("place").required(true).args(["file", "dir"]))]
pub struct Sample {
    /// What the database holds.
    #[arg(value_enum)]
    pub kind: Kind,

    /// The file to build; with --dir, files are named tprocc-1.db, tprocc-2.db and so on.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Size of all files together, met within 2 %.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: u64,

    /// Split the sample over so many files, each a database of its own.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dir",
        value_parser = clap::value_parser!(u16).range(1..=FILES_MAX as i64))]
    pub files: u16,

    /// Directories that take the files in turn; made where missing.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Another seed gives other content of the same kind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Leave the files in WAL mode.
    #[arg(long)]
    pub wal: bool,

    /// Replace files that exist.
    #[arg(long)]
    pub replace: bool,
}

/// Where a study's answer goes besides the terminal.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub struct Written {
    /// Write the report as one HTML file with plots; it needs no network and is replaced if it exists.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the report as Markdown, for a repository; replaced if it exists.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// What a study backs up.
#[derive(Debug, Clone, Args)]
pub struct Stocked {
    /// What is backed up: a database or directory, as `longshore backup` takes it.
    ///
    /// The default is a stock-trading sample of --size bytes, built in --work and kept there for the next
    /// study.
    #[arg(long, value_name = "SOURCE", num_args = 1..)]
    pub source: Vec<OsString>,

    /// Size of the sample where no --source is given [default: 1G, with --quick 24M].
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Directory that keeps samples between studies.
    #[arg(long, value_name = "DIR", default_value = ".work/bench")]
    pub work: PathBuf,

    /// A look only: a small sample, few points, no pauses. The numbers mean little.
    #[arg(long)]
    pub quick: bool,
}

const TEACH_SWEEP: &str = "\
Examples:
  longshore lab sweep --dir /disk1 --dir /disk2 --html sweep.html
  longshore lab sweep --buffers --source trades.db

Not for: a busy machine: the numbers would be those of its other work.";

/// Repeats the published study: 37 backups over algorithms and stripes, or a grid of buffers.
///
/// One backup to NUL, then NONE, MS_XPRESS and QAT_DEFLATE, each with 1, 2, 4, 6, 8, 10, 12, 14 and 16 stripes
/// spread over the directories, MAXTRANSFERSIZE 4 MB. QAT_DEFLATE in hardware is skipped where there is none,
/// and said to be. With --buffers: BUFFERCOUNT times MAXTRANSFERSIZE to NUL instead.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_SWEEP,
    group = ArgGroup::new("what").required(true).args(["dir", "buffers"]))]
pub struct Sweep {
    /// Directories for the stripes, in turn; repeat for several disks.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Sweep BUFFERCOUNT and MAXTRANSFERSIZE instead, to NUL.
    #[arg(long)]
    pub buffers: bool,

    /// With --buffers: the algorithm.
    #[arg(long, value_name = "NAME", value_parser = values::algorithm, requires = "buffers",
        default_value = "QAT_DEFLATE")]
    pub algorithm: Algorithm,

    /// Seconds between two backups, to cool down.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16))]
    pub pause: Option<u16>,

    #[command(flatten)]
    pub stocked: Stocked,

    #[command(flatten)]
    pub written: Written,
}

const TEACH_COMPARE: &str = "\
Example:
  longshore lab compare --dir /disk1 --dir /disk2 --size 4G --html compare.html

Not for: choosing an algorithm for your own data; give it as --source.";

/// Compares algorithms and levels: time, CPU, ratio and speed-up over MS_XPRESS.
///
/// On both sample databases, or on --source. Without --dir backups go to NUL.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_COMPARE)]
pub struct Compare {
    /// Directories for the stripes, in turn; without any, backups go to NUL.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Stripes of each backup.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// Backups of each kind, alternating; the median counts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: Stocked,

    #[command(flatten)]
    pub written: Written,
}

const TEACH_BENCH: &str = "\
Examples:
  longshore lab bench --html bench.html --markdown bench.md
  longshore lab bench --source /var/lib/postgresql/15/main/base

Not for: a busy machine, or a source that changes meanwhile: parts and pipeline must do the same
work.";

/// Measures how near Longshore comes to what this machine can do.
///
/// Codec, page-cache read and checksums are timed bare on one core; from them follows the limit of all cores. In
/// the same interleaved rounds the pipeline does the whole work: to NUL, to disk, from a cold cache, and
/// back. Memory and ceilings are measured from outside. The source should fit the page cache.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_BENCH)]
pub struct Bench {
    /// Directory for stripes and restored files; twice the source's size must be free [default: --work].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Measure memory also with a 10 GB database and a tree of a million files; takes many minutes.
    ///
    /// Both are built in --work and kept there; 40 GB must be free.
    #[arg(long)]
    pub large: bool,

    /// Interleaved rounds; the medians count [default: 5, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: Stocked,

    #[command(flatten)]
    pub written: Written,
}

const TEACH_DEVICE_CHECK: &str = "\
Examples:
  longshore lab device-check --markdown gpu.md --json > gpu.json
  LONGSHORE_NVCOMP=/opt/nvcomp/lib/libnvcomp.so.5 longshore lab device-check --quick

Not for: a GPU that others need meanwhile: the check takes nearly all of its memory for a moment.";

/// Checks whether GPU compression works on this machine, and how fast it is.
///
/// Correctness, faults, copies, compression by algorithm, batch and content, and software beside it, in one run of
/// limited time. Ends with exit code 1 when there is no GPU, when a library is missing (the report says which), or
/// when anything is not right.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_DEVICE_CHECK)]
pub struct DeviceCheck {
    /// Directory that keeps the sample between runs.
    #[arg(long, value_name = "DIR", default_value = ".work/device-check")]
    pub work: PathBuf,

    /// Leave a backup there that the GPU made: one stripe, which stock tools can decompress.
    #[arg(long, value_name = "FILE")]
    pub stripe: Option<PathBuf>,

    /// Time for everything; what does not fit is left out and shown as a dash.
    #[arg(long, value_name = "SECONDS", default_value_t = 360,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,

    /// A look only: little content, few points. The numbers mean little.
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub written: Written,
}

const TEACH_OFFLOAD: &str = "\
Examples:
  longshore lab offload --source /var/lib/shop.db --rounds 7
  scripts/offload-study.sh

Not for: machines without an accelerator; the second example has a double of a library stand in for
one.";

/// Measures software, the accelerator and both together, side by side.
///
/// Backups in the three modes, alternating; the answer says what hybrid mode gains over the better of the other
/// two on this machine, and what CPU time each mode takes.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_OFFLOAD)]
pub struct OffloadStudy {
    /// Directories for the stripes, in turn; without any, backups go to NUL.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Stripes of each backup; with one, blocks are written in sequence and wait for one another.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// Counted backups of each mode; the medians count [default: 5, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: Stocked,

    #[command(flatten)]
    pub written: Written,
}

const TEACH_FIGURES: &str = "\
Example:
  longshore lab cache-figures --html cache.html

Not for: facts about a device that you have. All of it is simulated; `longshore cache calibrate`
measures one.";

/// Draws the published study of device-aware caching from the model: latencies, queries, policies.
///
/// The same figures come out on any machine.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_FIGURES)]
pub struct CacheFigures {
    /// What decides all that is random; one seed is one report.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// A look only: short runs. The numbers mean little.
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub written: Written,
}
