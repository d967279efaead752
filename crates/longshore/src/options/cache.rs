//! `longshore cache`: a small fast device in front of a big one, at work and in studies.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::cached::{
    CacheAttach, CacheDetach, CachePolicy, CacheResize, CacheShadow, CacheStatus, CacheTrace,
    CacheVerify, CacheWhy, CreateCache, ServeCache,
};
use super::values;

const TEACH: &str = "\
Example:
  longshore cache simulate --pair optane-905p/samsung-970pro --mix 8x4k+6x512k

Not for: caching. This command computes what a cache would do; `longshore cache serve` is one.";

/// Puts a small fast device in front of a big one, and studies what that is worth.
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
    Simulate(Simulate),
    Grid(CacheGrid),
    Calibrate(CacheCalibrate),
}

const TEACH_CALIBRATE: &str = "\
Examples:
  longshore cache calibrate /dev/nvme1n1 --model fast.model
  longshore cache simulate --fast-model fast.model --slow-model slow.model

Nothing is written to what is measured. Exit code 1 when no model fits; nothing is written then.

Not for: a device that others use meanwhile, nor a small file, which lies in one corner of its
device.";

/// Measures a device with random reads, and fits a model to it for `longshore cache simulate`.
///
/// Sizes from 4 KiB to 2 MiB, up to 64 at a time, past the page cache. A model is refused unless it is within 15 % of
/// what was measured in nine tenths of the cells.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_CALIBRATE)]
pub struct CacheCalibrate {
    /// A block device, or a file of 128 MiB or more.
    pub path: PathBuf,

    /// Where the model goes; replaced if it exists.
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,

    /// Seconds for each size and depth.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = values::seconds)]
    pub seconds: f64,

    /// The largest request that the device takes, if it is known; else it is part of what is fitted.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub largest: Option<u64>,
}

const TEACH_GRID: &str = "\
Examples:
  longshore cache grid --pair optane-905p/samsung-970pro --seeds 1
  longshore cache grid --seeds 3 --first-seed 101 --rivals --json > grid.json

The whole grid with all rivals takes tens of minutes of CPU time. docs/cache-results.md holds one
run.

Not for: a load of your own. `longshore cache simulate --trace` replays one.";

/// Runs a policy over a grid of pairs, loads, depths, resident shares and writes, and judges what came of it.
///
/// Each cell is compared with no cache, with a classic cache, and with --rivals with Orthus and the best of
/// fourteen fixed splits. All of it is simulated.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_GRID)]
pub struct CacheGrid {
    /// The policy under test.
    #[arg(long, default_value = "aware")]
    pub policy: String,

    /// Only this pair of profiles.
    #[arg(long, value_name = "FAST/SLOW")]
    pub pair: Option<String>,

    /// Runs of each cell, with N seeds in a row.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,

    /// Run each cell that falls below the bound again, with the N seeds that follow.
    ///
    /// The bound: 3 % below the better of no cache and classic. Cells differ from seed to seed by up to a tenth: three runs of a thousand cells have a few below by chance.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub again: u64,

    /// The first of the seeds.
    ///
    /// A policy is judged with others than it was made with; 1 to 3 were looked at.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_seed: u64,

    /// Only so many cells, evenly spread over the grid: every N-th.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,

    /// Only the cells of small reads and scans together that most goals are about.
    #[arg(long)]
    pub core: bool,

    /// Only the cells of one kind of read, all resident, on the published pair and the reversed one.
    #[arg(long, conflicts_with = "core")]
    pub pure: bool,

    /// Run Orthus with both sets of constants and a classic cache that waits for others' reads, too.
    #[arg(long)]
    pub orthus: bool,

    /// Run the rivals of --orthus and fixed splits, too.
    #[arg(long)]
    pub rivals: bool,

    /// Whose readers wait for another client's read of what they miss, instead of reading it again.
    ///
    /// `own`: as each policy does, which is `aware` alone. `all` and `nobody` compare the policies without that.
    #[arg(long, value_enum, default_value_t = WhoShares::Own)]
    pub sharing: WhoShares,

    /// Tell the policy wrong: every parameter of a device is off by so many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=90))]
    pub wrong: u32,

    /// Which parameters are told too low, as a sum of bits; the others are told too high.
    ///
    /// 1: the fast side's times, 2: its rates, 4 and 8: the slow side's.
    #[arg(long, value_name = "BITS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..16))]
    pub wrong_signs: u8,
}

/// Whose readers wait for each other's reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhoShares {
    Own,
    All,
    Nobody,
}

impl WhoShares {
    /// For a table's head; empty where nothing is out of the ordinary.
    pub fn words(self) -> &'static str {
        match self {
            WhoShares::Own => "",
            WhoShares::All => ", all share reads",
            WhoShares::Nobody => ", nobody shares reads",
        }
    }
}

/// Runs a load against a modelled pair of devices, under one policy after the other.
///
/// Devices are models in virtual time (docs/cache.md), not measurements of this machine. Profiles that are marked
/// provisional come from data sheets: they are for what-if studies and say nothing about a product.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Simulate {
    /// Fast and slow device, by the names of their profiles.
    ///
    /// Profiles: optane-905p, optane-p4800x, samsung-970pro (calibrated); nvme-pcie5, sata-ssd, ebs-gp3-base,
    /// ebs-gp3-max, ec2-local-nvme, cxl-memory, dram (provisional).
    #[arg(
        long,
        value_name = "FAST/SLOW",
        default_value = "optane-905p/samsung-970pro"
    )]
    pub pair: String,

    /// A model that `longshore cache calibrate` made, in place of the pair's fast device.
    #[arg(long, value_name = "FILE")]
    pub fast_model: Option<PathBuf>,

    /// The same in place of the slow one.
    #[arg(long, value_name = "FILE")]
    pub slow_model: Option<PathBuf>,

    /// Clients, and the size of their requests.
    ///
    /// CLIENTSxSIZE, joined by +; each client keeps one request under way. `:wP` makes P percent of a group's
    /// requests writes, `:zE` uses some places far more often, by Zipf's law with exponent E. Below 128k a group reads
    /// anywhere, from there on it scans.
    #[arg(long, default_value = "8x4k+6x512k")]
    pub mix: String,

    /// A recorded trace instead of a mix; it is replayed once, the cache is empty at first.
    ///
    /// Forms, told apart by their first line: plain (t_us,op,offset,len,latency_us), cloudphysics, tencent, systor, msr,
    /// disksim, fio (iolog 2 and 3), blkparse. --resident is then of the bytes that the trace touches.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "seconds"])]
    pub trace: Option<PathBuf>,

    /// The trace's form, if its first line does not tell; numbers are 32-bit block numbers.
    #[arg(long, value_name = "FORM", requires = "trace")]
    pub trace_form: Option<String>,

    /// How the trace comes: N times as fast as recorded, or `closed`: as many requests at once as then.
    #[arg(long, value_name = "N|closed", requires = "trace", default_value = "1")]
    pub pace: String,

    /// Policies, as FILTER or FILTER+BASE.
    ///
    /// Filters: none (classic cache), none-waits (the same, and a miss waits for another client's read of the same
    /// bytes), slow (no cache), bcache, throttle=IOPS/MBPS, split=P, profile, balance, orthus (its paper's constants),
    /// orthus-kernel (the interval of its kernel version), aware. Bases: lru, clock, 2q, arc, larc, s3-fifo, sieve.
    #[arg(long, value_delimiter = ',', default_value = "none,slow,orthus,aware")]
    pub policy: Vec<String>,

    /// Whose readers wait for another client's read of what they miss.
    ///
    /// `own`: as each policy does, which is `aware` and `none-waits`. `all` and `nobody` compare the policies without that.
    #[arg(long, value_enum, default_value_t = WhoShares::Own)]
    pub sharing: WhoShares,

    /// Percent of the touched bytes that the cache has room for.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub resident: u32,

    /// Virtual seconds that are measured, after the mix has become steady (60 s at most).
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// What decides all that is random; one seed is one run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
