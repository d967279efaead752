//! `longshore cache`: a small fast device in front of a big one.
//!
//! Invariants
//! - Parsing opens no file.
//!
//! Leaves to others: the daemon's options (`cache_service.rs`), and the studies, which are another program's.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::cache_service::{
    CacheAttach, CacheDetach, CachePolicy, CacheResize, CacheShadow, CacheStatus, CacheTrace,
    CacheVerify, CacheWhy, CreateCache, ServeCache,
};
use super::forwarded::ForwardedArgs;
use super::values;

/// Caches the blocks of a large slow device on a small fast one, and studies the gain.
#[derive(Debug, Args)]
pub struct Cache {
    #[command(subcommand)]
    pub action: CacheAction,
}

#[derive(Debug, Subcommand)]
pub enum CacheAction {
    Create(CreateCache),
    Serve(ServeCache),
    Status(CacheStatus),
    Why(CacheWhy),
    Trace(CacheTrace),
    Policy(CachePolicy),
    Attach(CacheAttach),
    Detach(CacheDetach),
    Resize(CacheResize),
    Shadow(CacheShadow),
    Verify(CacheVerify),
    /// Runs a load against a modelled pair of devices (needs longshore-lab).
    Simulate(ForwardedArgs),
    /// Runs a policy over a grid of pairs and loads, and judges it (needs longshore-lab).
    Grid(ForwardedArgs),
    Calibrate(CacheCalibrate),
}

const TEACH_CALIBRATE: &str = "\
Examples:
  longshore cache calibrate /dev/nvme1n1 --model fast.model
  longshore cache calibrate /mnt/slow --model slow.model
  longshore cache simulate --fast-model fast.model --slow-model slow.model

A device or a file is only read. In a directory a scratch file is made, read, written and removed.
Exit code 1 if no model fits; then no model is written.

Not for: a device that other programs use meanwhile, or a small file, which covers only a small part
of its device.";

/// Measures a device with random requests, and fits a model to it for `longshore cache simulate`.
///
/// Sizes from 4 KiB to 2 MiB, up to 64 requests at a time, past the page cache. A model is refused unless it is within
/// 15 % of the measured latency in nine tenths of the cells. Volumes of clouds are faster for a while than for long: such
/// limits are found first, and are in the model.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_CALIBRATE)]
pub struct CacheCalibrate {
    /// A block device, a file of 128 MiB or more, or a directory.
    ///
    /// Only in a directory are writes measured: in a scratch file that is removed as soon as it is open. Elsewhere a write
    /// takes as long as a read in the model. An SSD wears by what is written, as fast as it can for more than a minute: some
    /// hundred gigabytes. The end tells how much it was.
    pub path: PathBuf,

    /// The file for the model; replaced if it exists.
    ///
    /// `longshore cache serve` and `longshore cache simulate` read it with --fast-model and --slow-model. If no model
    /// fits, nothing is written and an older model stays. Do not use the model of another device, even of the same
    /// kind: measure each.
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,

    /// Seconds for each size and depth.
    ///
    /// The default is 2: long enough for thousands of requests of an SSD. Raise it for hard disks, and for SSDs that clean
    /// up in the background, whose latency differs from second to second.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = values::seconds)]
    pub seconds: f64,

    /// Seconds in which the device is asked for all that it gives, to see whether its rate falls.
    ///
    /// The default is 20, once for bytes and once for commands, and once for writes in a directory. A burst that lasts longer
    /// is not seen: some volumes of clouds have one of 30 minutes. If the rate falls it is asked again after a rest: only a
    /// limit is as fast again for as long as the rest has earned, and then falls again. Leave the device alone for a while
    /// before, so that it has credit. 0 leaves this out; 2 is the least.
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = values::course_seconds)]
    pub course: f64,

    /// Size of the scratch file in a directory.
    ///
    /// The default is 1G. A larger one is spread over more of the device. Twice as much must be free.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::positive_size)]
    pub size: u64,

    /// The largest request that the device takes.
    ///
    /// Larger requests are split by the kernel. /sys/block/DEVICE/queue/max_sectors_kb shows the size. The default is 1M;
    /// it is not fitted, so give the size for a device that takes less or more.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub largest: Option<u64>,
}
