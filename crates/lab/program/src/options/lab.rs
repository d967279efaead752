//! `longshore lab`: sample databases and the studies made with them.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`lab.rs` in `commands`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use longshore_codec::Algorithm;
use longshore_studies::sample::{FILES_MAX, SampleKind};
use longshore_terminal::values;

use super::cache::ModelOptions;
use super::emulated::EmulateOptions;
use super::figures::{FigureOfPaper, FiguresOfPapers};
use super::loads::{Load, Oltp};
use super::written::{OutputOptions, WORK};

/// Builds sample databases and measures stripes, buffers, algorithms, and the distance to the machine's limit.
///
/// Studies run the same code as `longshore backup`, record no history, and remove the files that they write.
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
    Network(Network),
    Bench(Bench),
    DeviceCheck(DeviceCheck),
    Offload(OffloadStudy),
    CacheFigures(CacheFigures),
    Figure(FigureOfPaper),
    Figures(FiguresOfPapers),
    Oltp(Oltp),
    Load(Load),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Kind {
    /// Order entry as in TPC-C: mostly random strings.
    Tprocc,
    /// Stock trading as in TPC-E: names, prices, times.
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

Not for: benchmarks under the names TPC-C or TPC-E; the samples only have similar content.";

/// Builds a SQLite database with realistic content, the same bytes on every run.
///
/// Equal options give equal files on any machine with the same version of SQLite.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_SAMPLE,
    override_usage = "longshore lab sample [OPTIONS] --size <SIZE> <KIND> <FILE|--dir <DIR>>",
    group = ArgGroup::new("place").required(true).args(["file", "dir"]))]
pub struct Sample {
    /// The kind of content.
    #[arg(value_enum)]
    pub kind: Kind,

    /// The file to build; with --dir, files are named tprocc-1.db, tprocc-2.db and so on.
    ///
    /// Without FILE, --dir must say where the files go.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Size of all files together, met within 2 %.
    ///
    /// There is no default, because a sample fills a disk. To measure disks make it larger than the memory, or the
    /// page cache is measured.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: u64,

    /// Split the sample over this many files, each a database of its own.
    ///
    /// The default is 1. Use as many as there are disks to measure a source that is read from several volumes.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dir",
        value_parser = clap::value_parser!(u16).range(1..=FILES_MAX as i64))]
    pub files: u16,

    /// Directories that take the files in turn; created if missing.
    ///
    /// With --files, one file goes into each directory in turn; give directories on different disks. Without
    /// this option FILE must name the single file to build.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Another seed gives other content of the same kind.
    ///
    /// The default is 1, so that every machine builds the same sample. Use another to see whether a result depends on the content.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Leave the files in WAL mode.
    ///
    /// By default they use a rollback journal, SQLite's own default. WAL mode lets a backup read while other programs
    /// write; use it for samples that are changed during backups.
    #[arg(long)]
    pub wal: bool,

    /// Replace files that exist.
    ///
    /// By default an existing file is refused, because it may be a database that somebody needs. The old file stays
    /// until the new one is complete.
    #[arg(long)]
    pub replace: bool,
}

/// The source of a study.
#[derive(Debug, Clone, Args)]
pub struct SampleOptions {
    /// The source to back up: a database or directory, as for `longshore backup`.
    ///
    /// The default is a stock-trading sample of --size bytes, built in --work and kept there for the next
    /// study.
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = values::source())]
    pub source: Vec<OsString>,

    /// Size of the sample if no --source is given [default: 1G, with --quick 24M].
    ///
    /// 1G is the default because it fits into the page cache of most machines and a backup of it takes seconds. To
    /// measure disks give more than the memory. With --source no sample is made, so the two together are refused.
    #[arg(long, value_name = "SIZE", conflicts_with = "source", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Directory that keeps samples between studies [default: .work/bench].
    ///
    /// The default is in the working directory, because a sample is as large as --size and must be on the disk to measure. Where
    /// --source leaves nothing to keep, the two together are refused.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,

    /// A trial run: a small sample, few points, no pauses. The numbers mean little.
    ///
    /// For trying out the command and its outputs; the report says that it was a trial. Do not keep or compare its
    /// numbers.
    #[arg(long)]
    pub quick: bool,
}

impl SampleOptions {
    /// The directory that keeps samples.
    pub fn place(&self) -> PathBuf {
        self.work.clone().unwrap_or_else(|| WORK.into())
    }
}

const TEACH_SWEEP: &str = "\
Examples:
  longshore lab sweep --dir /disk1 --dir /disk2 --html sweep.html
  longshore lab sweep --dir /disk1 --dir /disk2 --rounds 3 --cool 50
  longshore lab sweep --buffers --source trades.db
  longshore lab sweep --layouts --dir a --dir b --dir c --dir d --emulate 200M

Not for: a busy machine: its other work would distort the numbers.";

/// Repeats the published study: 37 backups over algorithms and stripes, or a grid of buffers.
///
/// One backup to NUL, then NONE, MS_XPRESS and QAT_DEFLATE, each with 1, 2, 4, 6, 8, 10, 12, 14 and 16 stripes
/// spread over the directories, MAXTRANSFERSIZE 4 MB. The source leaves the page cache before each, and the report says
/// how much came from the disk. Without hardware, QAT_DEFLATE in hardware is reported as skipped. With --buffers: a grid
/// of BUFFERCOUNT and MAXTRANSFERSIZE, to NUL and to a file. With --layouts: that grid over numbers of devices and volumes.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_SWEEP,
    group = ArgGroup::new("what").required(true).multiple(true).args(["dir", "buffers", "layouts"]))]
pub struct Sweep {
    /// Directories for the stripes, in turn. Repeatable.
    ///
    /// Stripe 1 goes into the first directory, stripe 2 into the next, and so on. Give one directory for each disk:
    /// two on the same disk measure that disk twice. The study removes its stripes. Without this option only the sweep
    /// of --buffers is possible, which writes to NUL and to a file in --work; with it the file is in the first directory.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Instead sweep BUFFERCOUNT and MAXTRANSFERSIZE, to NUL and to a file.
    ///
    /// NUL shows the effect of the buffers alone, the file what a device leaves of it. Without it the study is that of
    /// stripes, which needs --dir.
    #[arg(long)]
    pub buffers: bool,

    /// Instead sweep devices and volumes, each with BUFFERCOUNT and MAXTRANSFERSIZE.
    ///
    /// 1, 2, 4 and more devices on 1, 2, 4 and more of the directories. Directories of one drive are called that in every
    /// caption; --emulate makes a device of each.
    #[arg(long, requires = "dir", conflicts_with = "buffers")]
    pub layouts: bool,

    /// With --buffers or --layouts: the algorithm [default: QAT_DEFLATE].
    ///
    /// The default is the one that backups use by default. The study of stripes has all of its own.
    #[arg(long, value_name = "NAME", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    #[command(flatten)]
    pub devices: EmulateOptions,

    /// Seconds between two backups, for cooling down.
    ///
    /// A CPU that was just busy may run slower, and a disk may still write what it has cached. The default is 5, with
    /// --quick 0. The other two sweeps do not pause: their backups alternate.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["buffers", "layouts"],
        value_parser = clap::value_parser!(u16))]
    pub pause: Option<u16>,

    /// Cool the CPU and the drives of --dir to so many degrees Celsius before each backup.
    ///
    /// By default nothing is waited for but --pause. It waits ten minutes at most, and the report says how long it waited
    /// and what stayed warmer. Without a temperature sensor, as in virtual machines, it is an error.
    #[arg(long, value_name = "CELSIUS", conflicts_with_all = ["buffers", "layouts"],
        value_parser = clap::value_parser!(u8).range(20..=100))]
    pub cool: Option<u8>,

    /// Rounds of all backups of the study, in their order; the medians count.
    ///
    /// The default is 1, as in the published study, so chance may decide, and the headline says so. With 3 the tables
    /// have ranges, too. The sweep of --buffers has 3 of its own.
    #[arg(long, value_name = "N", conflicts_with_all = ["buffers", "layouts"],
        value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1)]
    pub rounds: u16,

    #[command(flatten)]
    pub stocked: SampleOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComparedDatabase {
    /// The samples tprocc and stae in SQLite.
    Samples,
    /// The sample tprocc in a PostgreSQL cluster made for the comparison.
    Postgres,
}

const TEACH_COMPARE: &str = "\
Examples:
  longshore lab compare --dir /disk1 --dir /disk2 --size 4G --html compare.html
  longshore lab compare --database postgres

Not for: your own data, unless you give it as --source.";

/// Compares algorithms and levels: time, CPU, size, ratio and speed-up over MS_XPRESS.
///
/// Uses both sample databases, or --source, or a PostgreSQL cluster made for it. Each accelerator that is here gets rows
/// in hardware and hybrid. Without --dir, backups go to NUL.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_COMPARE)]
pub struct Compare {
    /// The databases: both samples, each in one file, or a PostgreSQL cluster, which is many files.
    ///
    /// The default is the samples. The cluster has the content of the sample tprocc, is made in --work and removed. As root,
    /// user postgres must be able to enter --work.
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value = "samples",
        conflicts_with = "source"
    )]
    pub database: ComparedDatabase,

    /// Directories for the stripes, in turn; without one, backups go to NUL.
    ///
    /// NUL is the default because it shows the algorithms alone. Give the directories of real targets to see what a
    /// slower device makes of the differences.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Stripes of each backup.
    ///
    /// The default is 8, the middle of the published study's 1 to 16.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// Backups of each kind, alternating; the median counts [default: 3, with --quick 1].
    ///
    /// Alternating rounds spread a disturbance over all kinds, and by default the median leaves out one disturbed round of
    /// three. More rounds take proportionally longer; on a machine without other work they show nothing more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    /// A file with what the report begins with: title, summary and sections, in the form of a report's JSON.
    ///
    /// For a script that tells what it did before, such as that of `make demo`. By default the report has the comparison
    /// alone.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub after: Option<PathBuf>,

    #[command(flatten)]
    pub stocked: SampleOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_NETWORK: &str = "\
Examples:
  longshore lab network --to s3://my-bucket/lab --stripes 4
  longshore lab network --to s3://my-bucket/lab --source /var/lib/shop.db --algorithm ZSTD

Not for: a bucket where these credentials may not remove objects, or that keeps old versions for
long.";

/// Measures whether the CPUs or the way to an object store limit a backup.
///
/// Backups to NUL, to the store, and to the store without compression alternate. The answer is what this machine produces,
/// what the way bears, and which of the two is the limit. The objects are removed; a bucket with versions keeps what it
/// hides.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_NETWORK)]
pub struct Network {
    /// Addresses below which objects are written, in turn: s3://BUCKET/PREFIX, az:// or gs://.
    ///
    /// There is no default. Server and credentials come from the environment, as for `longshore backup`. Objects of the study
    /// have names with longshore-lab and a number; nothing else below the addresses is touched.
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub to: Vec<String>,

    /// Stripes of each backup.
    ///
    /// The default is 4. More stripes have more requests on their way; compare a few numbers.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// The algorithm that is compared with none.
    ///
    /// The default is QAT_DEFLATE, the one that backups use by default.
    #[arg(long, value_name = "NAME", value_parser = values::algorithm, default_value = "QAT_DEFLATE")]
    pub algorithm: Algorithm,

    /// Backups of each kind, alternating; the median counts [default: 3, with --quick 1].
    ///
    /// The way to a store changes from minute to minute: more rounds show how much.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: SampleOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_BENCH: &str = "\
Examples:
  longshore lab bench --html bench.html --markdown bench.md
  longshore lab bench --source /var/lib/postgresql/15/main/base

Not for: a busy machine, or a source that changes meanwhile: the single steps and the whole pipeline
must do the same work.";

/// Measures how close Longshore comes to this machine's limit.
///
/// Codec, page-cache read and checksums are timed alone on one core; the limit of all cores is computed from them. The
/// same interleaved rounds run the whole pipeline: to NUL, to disk, from a cold cache, and a restore. Memory and
/// the limits of --max-rate and --max-cpu are measured from outside. The source should fit into the page cache.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_BENCH)]
pub struct Bench {
    /// Directory for stripes and restored files; twice the source's size must be free [default: --work].
    ///
    /// Give a directory on the disk that backups go to, if that is another one than --work's. The files are removed
    /// at the end.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Also measure memory with a 10 GB database and a tree of a million files; takes many minutes.
    ///
    /// Both are built in --work and kept there; 40 GB must be free.
    #[arg(long)]
    pub large: bool,

    /// Interleaved rounds; the medians count [default: 5, with --quick 1].
    ///
    /// With five rounds the median leaves out two disturbed ones. On a machine with other work use more, and look at the
    /// spread that the report prints.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: SampleOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_DEVICE_CHECK: &str = "\
Examples:
  longshore lab device-check --markdown gpu.md --json > gpu.json
  LONGSHORE_NVCOMP=/opt/nvcomp/lib/libnvcomp.so.5 longshore lab device-check --quick

Not for: a GPU that other programs use: the check takes nearly all of its memory for a moment.";

/// Checks whether GPU compression works on this machine, and measures it.
///
/// One run of limited time covers correctness, faults, copies, compression by algorithm, batch and content, and
/// software for comparison. Exit code 1 if there is no GPU, if a library is missing (the report names it), or if
/// any check fails.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_DEVICE_CHECK)]
pub struct DeviceCheck {
    /// Directory that keeps the sample between runs.
    ///
    /// The default is in the working directory, so that a bundle copied to a machine leaves nothing elsewhere.
    #[arg(long, value_name = "DIR", default_value = ".work/device-check")]
    pub work: PathBuf,

    /// Leave a backup that the GPU made in this file: one stripe, which stock tools can decompress.
    ///
    /// `gzip -dc` of it must give the content back, on any machine. An existing file is replaced. By default no
    /// backup is left, because its content is only a sample.
    #[arg(long, value_name = "FILE")]
    pub stripe: Option<PathBuf>,

    /// Time for the whole run; measurements that do not fit are left out and shown as a dash.
    ///
    /// The default is 360, for hardware that is lent for minutes.
    #[arg(long, value_name = "SECONDS", default_value_t = 360,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,

    /// A trial run: little content, few points. The numbers mean little.
    ///
    /// For trying out a bundle before a machine with a GPU is borrowed. Do not keep or compare its numbers.
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_OFFLOAD: &str = "\
Examples:
  longshore lab offload --source /var/lib/shop.db --rounds 7
  scripts/offload-study.sh

Not for: machines without an accelerator; the second example uses a double of the accelerator's
library.";

/// Measures software, the accelerator and both together, side by side.
///
/// Makes backups in the three modes, alternating; the answer is the gain of hybrid mode over the better of the other
/// two on this machine, and the CPU time of each mode.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_OFFLOAD)]
pub struct OffloadStudy {
    /// Directories for the stripes, in turn; without one, backups go to NUL.
    ///
    /// NUL is the default because it shows the compression alone. With a slow device all three modes take the same
    /// time, and the study says nothing about the accelerator.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Stripes of each backup; with one stripe, each block waits until the one before is written.
    ///
    /// The default is 1, as for a backup with one --to. Use several if the stripes are on several disks.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// Counted backups of each mode; the medians count [default: 5, with --quick 1].
    ///
    /// With five rounds the median leaves out two disturbed ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    #[command(flatten)]
    pub stocked: SampleOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_FIGURES: &str = "\
Examples:
  longshore lab cache-figures --html cache.html
  longshore lab cache-figures --fast-model fast.model --slow-model slow.model --html pair.html

Not for: facts about a device that was not measured. Times are modelled; `longshore cache
calibrate` measures a device.";

/// Draws the published study of device-aware caching from the model: latencies, queries, policies. Or the same of any two
/// devices: a map of where each answers sooner, and TPC-H's recorded queries on each.
///
/// The same figures come out on any machine.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_FIGURES)]
pub struct CacheFigures {
    /// The seed of the random numbers; equal seeds give equal reports.
    ///
    /// The default is 1, so that every run draws the same figures. Another seed shows how much of a figure is chance.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// A trial run: short runs. The numbers mean little.
    ///
    /// For trying out the command and its outputs; the report says that it was a trial. Do not keep or compare its
    /// numbers.
    #[arg(long)]
    pub quick: bool,

    /// Two profiles instead of the published study: a map of where each answers sooner.
    ///
    /// With it come how long TPC-H's recorded queries take on each, and what policies make of both. By default the study's own figures are drawn; with a model alone the other
    /// device is the study's. `longshore cache simulate --help` names the profiles.
    #[arg(long, value_name = "FAST/SLOW")]
    pub pair: Option<String>,

    #[command(flatten)]
    pub models: ModelOptions,

    #[command(flatten)]
    pub written: OutputOptions,
}
