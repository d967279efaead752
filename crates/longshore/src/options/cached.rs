//! `longshore cache`: a cache at work.

use std::path::PathBuf;

use clap::Args;

use super::values;

const SERVE: &str = "\
Example:
  longshore cache create /fast/shop.cache --size 20G
  longshore cache serve /slow/shop.img --cache /fast/shop.cache --socket /run/shop.sock
  longshore cache serve /slow/shop.img --cache /fast/shop.cache --socket /run/shop.sock \\
    --fast-model fast.model --slow-model slow.model

Clients reach it as nbd+unix:///?socket=/run/shop.sock: nbdfuse, nbd-client, qemu. It runs until it
is ended with SIGTERM or Ctrl-C, and is warm again the next time. Needs nbdkit.

Not for: a backend that others write to meanwhile. Nobody would notice.";

const CREATE: &str = "\
Example:
  longshore cache create /fast/shop.cache --size 20G

Not for: a device with a file system that you still need. What is not empty is refused without
--force.";

const STATUS: &str = "\
Example:
  longshore cache status /run/shop.sock
  longshore cache status /run/shop.sock --prometheus

Not for: what single requests met: that is `longshore cache why`.";

const WHY: &str = "\
Example:
  longshore cache why /run/shop.sock --last 50

Not for: sums over a longer time: `longshore cache status` has them.";

const TRACE: &str = "\
Examples:
  longshore cache trace /run/shop.sock --to shop.trace --seconds 600
  longshore cache simulate --trace shop.trace --pace closed --resident 20 --policy none,aware

One recording at a time: another one takes its place. Ctrl-C ends it early, and what was recorded
is there. Exit code 7 when it ended before its time.

Not for: what a cache does with the requests: that is `longshore cache why`.";

const POLICY: &str = "\
Example:
  longshore cache policy /run/shop.sock balance

Not for: trying policies out: `longshore cache simulate` risks nothing.";

const ATTACH: &str = "\
Example:
  longshore cache attach /run/shop.sock /fast/shop.cache

Not for: a cache with content: it begins empty here. `longshore cache serve --cache` comes back to
one.";

const DETACH: &str = "\
Example:
  longshore cache detach /run/shop.sock

Not for: a pause: what the cache held is not used again.";

const VERIFY: &str = "\
Example:
  longshore cache verify /run/shop.sock --repair

Not for: every day: it reads all that is held from both devices.";

const RESIZE: &str = "\
Example:
  longshore cache resize /run/shop.sock 40G

What it holds stays; when it shrinks, but for what has no room. Clients notice nothing.

Not for: a backend that has grown. Serve it anew.";

const SHADOW: &str = "\
Examples:
  longshore cache shadow /run/shop.sock aware+s3-fifo
  longshore cache shadow /run/shop.sock
  longshore cache shadow /run/shop.sock --off

The shadow sees the same requests and decides what it would keep and serve; it reads and writes
nothing. It begins with what is held, so ask again after a while. It cannot see how loaded the
devices would be under it.

Not for: devices that you do not have yet: that is `longshore cache simulate`.";

/// Makes an empty cache in a file or on a block device.
#[derive(Debug, Args)]
#[command(after_long_help = CREATE)]
pub struct CreateCache {
    /// File (made if it is not there) or block device; best on the faster device.
    pub path: PathBuf,

    /// Bytes, where a file is made. A block device is used whole.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Bytes cached as one: 4K to 64K, a power of two.
    ///
    /// Larger slots need less memory (5 to 9 MiB for each GiB of cache with 64K, 48 to 100 MiB with 4K) and waste room
    /// where only parts of them are used. Within a slot, lines of 4 KiB are held one by one.
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = values::positive_size)]
    pub slot: u64,

    /// Overwrite what is there.
    #[arg(long)]
    pub force: bool,
}

/// Serves a backend through a cache, over NBD, until it is ended.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE)]
pub struct ServeCache {
    /// What is served: a file or block device.
    pub backend: PathBuf,

    /// The cache, made by `longshore cache create`. Without it the backend is served as it is.
    #[arg(long, value_name = "PATH")]
    pub cache: Option<PathBuf>,

    /// Where clients connect; a control socket is made beside it, with `.control` behind its name.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,

    /// Where hits are served and what is kept, as `longshore cache simulate` names it.
    ///
    /// Default: `aware` where both devices are known, by --pair or by models, else `balance`, which needs to know
    /// nothing of them.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// What the cache device and the backend are like, by the names of their profiles.
    #[arg(long, value_name = "FAST/SLOW")]
    pub pair: Option<String>,

    /// A model of the cache device that `longshore cache calibrate` made, in place of the pair's.
    ///
    /// Both devices must be known, or none: by two models, or by one and --pair.
    #[arg(long, value_name = "FILE")]
    pub fast_model: Option<PathBuf>,

    /// The same of the backend.
    #[arg(long, value_name = "FILE")]
    pub slow_model: Option<PathBuf>,

    /// Where the word about the cache is kept; it must not lie on the cache's device.
    ///
    /// Default: beside the backend, `BACKEND.longshore-guard`. Name one for a block device.
    #[arg(long, value_name = "PATH")]
    pub guard: Option<PathBuf>,

    /// Go through the page cache instead of past it.
    #[arg(long)]
    pub buffered: bool,

    /// Requests served at once, for each connection.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// The plugin for nbdkit, where it is not beside this program or in ../lib/longshore.
    #[arg(long, value_name = "PATH", env = "LONGSHORE_NBD_PLUGIN")]
    pub plugin: Option<PathBuf>,
}

/// Shows what a cache at work holds and does.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS)]
pub struct CacheStatus {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// In the text format of Prometheus.
    #[arg(long)]
    pub prometheus: bool,
}

/// Shows the last requests, and why they went where they went.
#[derive(Debug, Args)]
#[command(after_long_help = WHY)]
pub struct CacheWhy {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// How many; 4096 are remembered.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub last: usize,
}

/// Records what clients ask of a cache at work, for `longshore cache simulate --trace`.
///
/// Reads, writes, flushes, trims and zeroes, with their times, places, lengths and latencies; no content. Each costs a
/// microsecond or two while it is recorded, nothing otherwise.
#[derive(Debug, Args)]
#[command(after_long_help = TRACE)]
pub struct CacheTrace {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// Where the trace goes: a new file.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// How many seconds are recorded
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = values::long_seconds)]
    pub seconds: f64,
}

/// Changes the policy of a cache at work.
#[derive(Debug, Args)]
#[command(after_long_help = POLICY)]
pub struct CachePolicy {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// As `longshore cache simulate` names it.
    pub name: String,
}

/// Puts an empty cache in front of a backend at work.
#[derive(Debug, Args)]
#[command(after_long_help = ATTACH)]
pub struct CacheAttach {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// Made by `longshore cache create`.
    pub cache: PathBuf,
}

/// Goes on without the cache. What it held is not used again.
#[derive(Debug, Args)]
#[command(after_long_help = DETACH)]
pub struct CacheDetach {
    /// The socket that it serves.
    pub socket: PathBuf,
}

/// Gives a cache at work more or less of its device.
#[derive(Debug, Args)]
#[command(after_long_help = RESIZE)]
pub struct CacheResize {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// Bytes of the cache's file, table and all, or of its block device that are used.
    #[arg(value_name = "SIZE", value_parser = values::positive_size)]
    pub size: u64,
}

/// Lets another policy watch, and shows what it would have kept and served.
#[derive(Debug, Args)]
#[command(after_long_help = SHADOW)]
pub struct CacheShadow {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// The policy that watches from now on; without it, says what the one that watches would have done.
    pub name: Option<String>,

    /// Watch no more.
    #[arg(long, conflicts_with = "name")]
    pub off: bool,
}

/// Compares what a cache at work holds with the backend. Exit code 1 when something differs.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY)]
pub struct CacheVerify {
    /// The socket that it serves.
    pub socket: PathBuf,

    /// Drop what differs.
    #[arg(long)]
    pub repair: bool,
}
