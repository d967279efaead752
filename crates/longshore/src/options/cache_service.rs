//! `longshore cache`: a cache in use.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`cache/daemon.rs` in `commands`).

use std::path::PathBuf;

use clap::Args;

use super::values;

const SERVE: &str = "\
Example:
  longshore cache create /fast/shop.cache --size 20G
  longshore cache serve /slow/shop.img --cache /fast/shop.cache --socket /run/shop.sock
  longshore cache serve /slow/shop.img --cache /fast/shop.cache --socket /run/shop.sock \\
    --fast-model fast.model --slow-model slow.model

Clients (nbdfuse, nbd-client, qemu) connect to nbd+unix:///?socket=/run/shop.sock. It runs until
SIGTERM or Ctrl-C ends it, and keeps its content for the next start. Needs nbdkit. A start may
compare cached bytes for a minute; the unit longshore-cache@NAME has started when that is done.

Not for: a backend that other programs write to meanwhile: the cache would serve old data.";

const CREATE: &str = "\
Example:
  longshore cache create /fast/shop.cache --size 20G

Not for: a device with a file system that you still need. Without --force, a device or file that is
not empty is refused.";

const STATUS: &str = "\
Example:
  longshore cache status /run/shop.sock
  longshore cache status /run/shop.sock --prometheus

Not for: single requests: `longshore cache why` shows them.";

const WHY: &str = "\
Example:
  longshore cache why /run/shop.sock --last 50

Not for: totals over a longer time: `longshore cache status` shows them.";

const TRACE: &str = "\
Examples:
  longshore cache trace /run/shop.sock --to shop.trace --seconds 600
  longshore cache simulate --trace shop.trace --pace closed --resident 20 --policy none,aware

A cache has one recording at a time: a second one replaces the first. Ctrl-C ends a recording early
and keeps it. Exit code 7 if it ended early.

Not for: where the cache sent the requests: `longshore cache why` shows that.";

const POLICY: &str = "\
Example:
  longshore cache policy /run/shop.sock balance

Not for: trying policies out: `longshore cache simulate` does that without risk.";

const ATTACH: &str = "\
Example:
  longshore cache attach /run/shop.sock /fast/shop.cache

Not for: a cache with content: it is emptied. `longshore cache serve --cache` keeps the content.";

const DETACH: &str = "\
Example:
  longshore cache detach /run/shop.sock

Not for: a pause: the cache's content is not used again.";

const VERIFY: &str = "\
Example:
  longshore cache verify /run/shop.sock --repair

Not for: every day: it reads all cached blocks from both devices.";

const RESIZE: &str = "\
Example:
  longshore cache resize /run/shop.sock 40G

The cache keeps its content; a smaller cache drops what no longer fits. Clients are not interrupted.

Not for: a backend that has grown. Restart `longshore cache serve` for that.";

const SHADOW: &str = "\
Examples:
  longshore cache shadow /run/shop.sock aware+s3-fifo
  longshore cache shadow /run/shop.sock
  longshore cache shadow /run/shop.sock --off

The shadow sees the same requests and decides what it would keep and serve; it reads and writes
nothing. It begins with the cache's content, so ask again after a while. It cannot see how loaded
the devices would be under it.

Not for: devices that you do not have yet: use `longshore cache simulate`.";

/// Makes an empty cache in a file or on a block device.
#[derive(Debug, Args)]
#[command(after_long_help = CREATE)]
pub struct CreateCache {
    /// A file (created if missing) or a block device, on the faster device.
    pub path: PathBuf,

    /// Size of the file to create, or of the part of a block device to use.
    ///
    /// Without it a block device is used whole; a size beyond its end is refused. The size includes the cache's table. A cache as large as the data that is read again and again is large enough;
    /// `longshore cache simulate --trace` shows the gain by size for a recorded load. Without this option a file that
    /// does not exist is refused, and an existing file keeps its size.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Bytes of a slot: 4K to 64K, a power of two.
    ///
    /// Larger slots need less memory (5 to 9 MiB for each GiB of cache with 64K, 48 to 100 MiB with 4K) and waste space
    /// if only parts of them are used. Within a slot, each line of 4 KiB is cached by itself. The default is 64K because it
    /// needs the least memory; choose less for a load of small random reads, and only if the memory is there.
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = values::positive_size)]
    pub slot: u64,

    /// Overwrite a file or device that is not empty.
    ///
    /// Its content is lost, also a file system. Do not put it into a script that runs at each start: a restart would empty
    /// the cache.
    #[arg(long)]
    pub force: bool,
}

/// Serves a backend through a cache, over NBD, until it is stopped.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE)]
pub struct ServeCache {
    /// The file or block device to serve.
    pub backend: PathBuf,

    /// The cache, made by `longshore cache create`. Without it the backend is served without a cache.
    ///
    /// `longshore cache attach` adds an empty one later, without a restart.
    #[arg(long, value_name = "PATH")]
    pub cache: Option<PathBuf>,

    /// The socket for clients; the control socket has the same name with `.control` appended.
    ///
    /// Whoever can open the socket can read and write the backend: put it into a directory that only its clients can enter.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,

    /// Where hits are served: `aware`, `balance`, `none` (a classic cache) or `slow` (no cache).
    ///
    /// `+BASE` chooses the replacement policy: lru, clock, 2q, arc, larc, s3-fifo, sieve. Other projects' policies can
    /// be simulated (`longshore cache simulate`), not served. Default: `aware` if both devices are known, by --pair or
    /// by models, else `balance`, which needs no knowledge of them.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// The profiles of the cache device and the backend, by name.
    ///
    /// `longshore cache simulate --help` lists the profiles. Use it only if the devices are of these models; models
    /// that `longshore cache calibrate` measured describe your devices better. Without --pair and without models,
    /// --policy is `balance` by default.
    #[arg(long, value_name = "FAST/SLOW")]
    pub pair: Option<String>,

    /// A model of the cache device that `longshore cache calibrate` made, instead of the pair's.
    ///
    /// Describe both devices or neither: with two models, or with one model and --pair. Without this option the first
    /// profile of --pair describes the cache device.
    #[arg(long, value_name = "FILE")]
    pub fast_model: Option<PathBuf>,

    /// The same for the backend.
    ///
    /// A model is true for one device, its size and its file system: calibrate again after a change of hardware.
    /// Without this option the second profile of --pair describes the backend.
    #[arg(long, value_name = "FILE")]
    pub slow_model: Option<PathBuf>,

    /// The guard file, which says whether the cache is valid; not on the cache's device.
    ///
    /// Default: `BACKEND.longshore-guard`, next to the backend. For a block device give this option.
    #[arg(long, value_name = "PATH")]
    pub guard: Option<PathBuf>,

    /// Go through the page cache instead of past it.
    ///
    /// For file systems that refuse direct access, such as tmpfs. Otherwise the kernel keeps a second copy of the same
    /// bytes in memory, and a latency that the policy measures is not the device's.
    #[arg(long)]
    pub buffered: bool,

    /// Requests served at a time, for each connection.
    ///
    /// The default is 16, nbdkit's own. Each thread needs 2 MiB of memory. Raise it for devices that get faster with more
    /// requests in flight; fewer do not save CPU time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// The plugin for nbdkit, if it is not next to this program or in ../lib/longshore.
    ///
    /// Or the environment's LONGSHORE_NBD_PLUGIN. Without either the command looks for the plugin next to this
    /// program, then in ../lib/longshore, where `make install` puts it. Give this option for a build that was not
    /// installed, or for one under trial.
    #[arg(long, value_name = "PATH", env = "LONGSHORE_NBD_PLUGIN")]
    pub plugin: Option<PathBuf>,
}

/// Shows the content and the counters of a running cache.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS)]
pub struct CacheStatus {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// Print metrics in Prometheus' text format.
    ///
    /// For a collector of text files, such as node_exporter's: write to another name and rename the file, so that the
    /// collector never reads half of it. The default is a table for people; scripts read --json.
    #[arg(long)]
    pub prometheus: bool,
}

/// Shows the last requests, which device served each, and why.
#[derive(Debug, Args)]
#[command(after_long_help = WHY)]
pub struct CacheWhy {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// Number of requests; the cache remembers 4096.
    ///
    /// The default is 20: they fit a screen.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub last: usize,
}

/// Records the requests to a running cache, for `longshore cache simulate --trace`.
///
/// Reads, writes, flushes, trims and zeroes, with their times, offsets, lengths and latencies; no content. Recording
/// costs a microsecond or two for each request, and nothing while it is off.
#[derive(Debug, Args)]
#[command(after_long_help = TRACE)]
pub struct CacheTrace {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// The file for the trace; it must not exist.
    ///
    /// An existing file is refused because a recording cannot be repeated. Choose a file on neither of the cache's
    /// devices: writing it there would slow the requests that are recorded.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// Seconds to record.
    ///
    /// The default is 60: enough to see the mix of a steady load. A trace for `longshore cache simulate` must be longer than
    /// the time in which the load reads the same data again.
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = values::long_seconds)]
    pub seconds: f64,
}

/// Changes the policy of a running cache.
#[derive(Debug, Args)]
#[command(after_long_help = POLICY)]
pub struct CachePolicy {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// `aware`, `balance`, `none` (classic) or `slow` (no cache), or one of them with `+BASE`.
    ///
    /// The content stays. `aware` decides by the models of both devices that `longshore cache serve` was given; without
    /// models `balance` is the better choice. The change lasts until the cache stops.
    pub name: String,
}

/// Attaches an empty cache to a backend that is being served.
#[derive(Debug, Args)]
#[command(after_long_help = ATTACH)]
pub struct CacheAttach {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// The cache, made by `longshore cache create`.
    pub cache: PathBuf,
}

/// Detaches the cache and goes on without it. The cache's content is not used again.
#[derive(Debug, Args)]
#[command(after_long_help = DETACH)]
pub struct CacheDetach {
    /// The socket that the cache serves.
    pub socket: PathBuf,
}

/// Grows or shrinks a running cache.
#[derive(Debug, Args)]
#[command(after_long_help = RESIZE)]
pub struct CacheResize {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// Bytes of the cache's file (with its table), or the part of its block device to use.
    #[arg(value_name = "SIZE", value_parser = values::positive_size)]
    pub size: u64,
}

/// Runs another policy as a shadow, and shows what it would have kept and served.
#[derive(Debug, Args)]
#[command(after_long_help = SHADOW)]
pub struct CacheShadow {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// The policy to start as shadow; without it, the command shows the running shadow's result.
    pub name: Option<String>,

    /// Stop the shadow.
    ///
    /// The shadow's counters are lost, so look at the result first. A shadow takes memory and some CPU time for each
    /// request, so do not leave one running that nobody looks at.
    #[arg(long, conflicts_with = "name")]
    pub off: bool,
}

/// Compares the content of a running cache with the backend. Exit code 1 if anything differs.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY)]
pub struct CacheVerify {
    /// The socket that the cache serves.
    pub socket: PathBuf,

    /// Drop the blocks that differ from the cache.
    ///
    /// The backend has the truth, so dropping a block loses nothing; the next read takes it from there. First save the
    /// output: it shows which device is at fault.
    #[arg(long)]
    pub repair: bool,
}
