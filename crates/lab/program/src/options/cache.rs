//! `longshore cache simulate` and `longshore cache grid`: what a cache would do.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`simulate.rs`, `grid.rs` in `commands`).

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

/// Caches the blocks of a large slow device on a small fast one, and studies the gain.
#[derive(Debug, Args)]
pub struct Cache {
    #[command(subcommand)]
    pub action: CacheAction,
}

#[derive(Debug, Subcommand)]
pub enum CacheAction {
    Simulate(Simulate),
    Grid(CacheGrid),
}

const TEACH: &str = "\
Example:
  longshore cache simulate --pair optane-905p/samsung-970pro --mix 8x4k+6x512k

Not for: caching. This command simulates a cache; `longshore cache serve` runs one.";

const TEACH_GRID: &str = "\
Examples:
  longshore cache grid --pair optane-905p/samsung-970pro --seeds 1
  longshore cache grid --seeds 3 --first-seed 101 --rivals --json > grid.json

The whole grid with all rivals takes tens of minutes of CPU time. docs/cache-results.md has the
results of one run.

Not for: your own load. `longshore cache simulate --trace` replays a recorded one.";

/// Runs a policy over a grid of pairs, loads, depths, resident shares and writes, and judges the results.
///
/// Each cell is compared with no cache and with a classic cache, and with --rivals also with Orthus and the best of
/// fourteen fixed splits. Everything is simulated.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_GRID)]
pub struct CacheGrid {
    /// The policy under test.
    ///
    /// The default is `aware`, the default of `longshore cache serve` if both devices are known.
    #[arg(long, default_value = "aware")]
    pub policy: String,

    /// Only this pair of profiles.
    ///
    /// The names are those of the profiles in docs/cache.md. The default is all pairs of the grid, because a policy
    /// that is good on one pair may fail on another.
    #[arg(long, value_name = "FAST/SLOW")]
    pub pair: Option<String>,

    /// Runs of each cell, with N consecutive seeds.
    ///
    /// The default is 3: results of a cell differ from seed to seed by up to a tenth, so one run proves little. 1 is enough
    /// for a first look.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,

    /// Run each cell that falls below the bound again, with the N seeds that follow.
    ///
    /// The bound is 3 % below the better of no cache and a classic cache. Results of a cell differ from seed to seed by up
    /// to a tenth, so three runs of a thousand cells have a few below the bound by chance. The default
    /// is 0, which reports these cells as they are.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub again: u64,

    /// The first seed.
    ///
    /// Judge a policy with seeds that it was not developed with; `aware` was developed with 1 to 3, the default's.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_seed: u64,

    /// Only every N-th cell, evenly spread over the grid.
    ///
    /// The default is 1, the whole grid. For a look at a change use 10; a judgement needs all cells.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,

    /// Only the cells with small reads and scans together, which most goals are about.
    ///
    /// The published pair and the reversed one, at least 95 % resident, at most 5 % writes, depth 8 or more. The
    /// default is the whole grid, whose other cells show where a policy loses; do not judge by these alone.
    #[arg(long)]
    pub core: bool,

    /// Only the cells with one kind of read, all resident, on the published pair and the reversed one.
    ///
    /// These cells show whether a policy finds the better device for one kind of read. The default is the whole grid;
    /// for both kinds together use --core.
    #[arg(long, conflicts_with = "core")]
    pub pure: bool,

    /// Also run Orthus with both sets of constants, and a classic cache whose misses share reads.
    ///
    /// They are published rivals, and some goals compare with them. Three more simulations of each cell and seed make
    /// the run longer, so they are left out by default.
    #[arg(long)]
    pub orthus: bool,

    /// Also run the rivals of --orthus, and fixed splits.
    ///
    /// The best of fourteen fixed splits of the load is an oracle, since it is chosen after the run. The default
    /// leaves them out, because seventeen more simulations of each cell and seed take most of the time. Those of --orthus are among
    /// them, so the two together are refused.
    #[arg(long, conflicts_with = "orthus")]
    pub rivals: bool,

    /// Which policies let a miss wait for another client's read of the same bytes.
    ///
    /// `own` (the default): each policy's own way; only `aware` shares. `all` and `nobody` compare the policies without that
    /// difference.
    #[arg(long, value_enum, default_value_t = WhoShares::Own)]
    pub sharing: WhoShares,

    /// Give the policy wrong models: every parameter of a device is off by this many percent.
    ///
    /// Real models are wrong, too: calibration accepts 15 % in nine tenths of the cells. The default is 0, true models.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=90))]
    pub wrong: u32,

    /// Which parameters are too low, as a sum of bits; the others are too high.
    ///
    /// 1: the fast side's times, 2: its rates, 4 and 8: the slow side's. The default is 0: with --wrong all are too high.
    #[arg(long, value_name = "BITS", default_value_t = 0, requires = "wrong", value_parser = clap::value_parser!(u8).range(0..16))]
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

/// Measured models in place of profiles.
#[derive(Debug, Args)]
pub struct ModelOptions {
    /// A model that `longshore cache calibrate` made, instead of the pair's fast device.
    ///
    /// For a device of your own. By default the device is the named profile of --pair. A model is as good as its
    /// calibration: do not use one that was measured while other programs used the device.
    #[arg(long, value_name = "FILE")]
    pub fast_model: Option<PathBuf>,

    /// The same instead of the slow device.
    ///
    /// For a device of your own. By default the device is the named profile of --pair. Calibrate both devices on the
    /// machine that will use them.
    #[arg(long, value_name = "FILE")]
    pub slow_model: Option<PathBuf>,
}

impl ModelOptions {
    /// Of the fast device, and of the slow one.
    pub fn paths(&self) -> [Option<&Path>; 2] {
        [self.fast_model.as_deref(), self.slow_model.as_deref()]
    }
}

/// The devices of the published study.
pub const PUBLISHED_PAIR: &str = "optane-905p/samsung-970pro";

/// Runs a load against a modelled pair of devices, under one policy after another.
///
/// Devices are models in virtual time (docs/cache.md), not measurements of this machine. Provisional profiles come
/// from data sheets: they are for what-if studies and say nothing about a product.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Simulate {
    /// The profiles of the fast and the slow device, by name.
    ///
    /// Profiles: optane-905p, optane-p4800x, samsung-970pro (calibrated); nvme-pcie5, sata-ssd, ebs-gp3-base,
    /// ebs-gp3-max, ec2-local-nvme, cxl-memory, dram (provisional). The default is the pair of the published study.
    #[arg(
        long,
        value_name = "FAST/SLOW",
        default_value = PUBLISHED_PAIR
    )]
    pub pair: String,

    #[command(flatten)]
    pub models: ModelOptions,

    /// Clients, and the size of their requests.
    ///
    /// CLIENTSxSIZE, joined by +; each client keeps one request in flight. `:wP` makes P percent of a group's
    /// requests writes, `:zE` uses some offsets far more often, by Zipf's law with exponent E. A group with requests
    /// below 128k reads at random; others scan. The default has both kinds, because a cache that serves one of them well
    /// may slow down the other.
    #[arg(long, default_value = "8x4k+6x512k")]
    pub mix: String,

    /// A recorded trace instead of a mix; it is replayed once, with an empty cache at first.
    ///
    /// Formats, recognised by their first line: plain (t_us,op,offset,len,latency_us), cloudphysics, tencent, systor,
    /// msr, disksim, fio (iolog 2 and 3), blkparse. --resident is then a share of the bytes that the trace touches. By
    /// default the load is --mix.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "seconds"])]
    pub trace: Option<PathBuf>,

    /// The trace's format, if its first line does not show it; `numbers` are 32-bit block numbers.
    ///
    /// The names are those of --trace: plain, cloudphysics, tencent, systor, msr, disksim, fio, blkparse. By default
    /// the first line decides. Give a name for a trace without a header that looks like another format.
    #[arg(long, value_name = "FORM", requires = "trace")]
    pub trace_form: Option<String>,

    /// N times as fast as recorded, or `closed`: as many requests in flight as when recorded.
    ///
    /// The default is 1, the recorded times. Use `closed` for a trace of programs that wait for each answer: they would have
    /// asked sooner on faster devices.
    #[arg(long, value_name = "N|closed", requires = "trace", default_value = "1")]
    pub pace: String,

    /// Policies, as FILTER or FILTER+BASE.
    ///
    /// Filters: none (classic cache), none-waits (the same, and a miss waits for another client's read of the same
    /// bytes), slow (no cache), bcache, throttle=IOPS/MBPS, split=P, profile, balance, orthus (its paper's constants),
    /// orthus-kernel (the interval of its kernel version), aware. Bases: lru, clock, 2q, arc, larc, s3-fifo, sieve. The
    /// default compares `aware` with a classic cache, no cache and Orthus.
    #[arg(long, value_delimiter = ',', default_value = "none,slow,orthus,aware")]
    pub policy: Vec<String>,

    /// Which policies let a miss wait for another client's read of the same bytes.
    ///
    /// `own` (the default): each policy's own way; `aware` and `none-waits` share. `all` and `nobody` compare the policies without that
    /// difference.
    #[arg(long, value_enum, default_value_t = WhoShares::Own)]
    pub sharing: WhoShares,

    /// Size of the cache, in percent of the touched bytes.
    ///
    /// The default is 100: everything is cached, and only the choice of the device counts. Give less to compare
    /// replacement policies.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub resident: u32,

    /// Virtual seconds to measure, after the mix has become steady (60 s at most).
    ///
    /// The default is 2: long enough for tens of thousands of requests of an SSD.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// The seed of the random numbers; equal seeds give equal runs.
    ///
    /// The default is 1. Try a few seeds before you believe a difference of less than a tenth.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
