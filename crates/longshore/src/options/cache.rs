//! `longshore cache`: a small fast device in front of a big one, at work and in studies.

use clap::{Args, Subcommand};

use super::cached::{
    CacheAttach, CacheDetach, CachePolicy, CacheStatus, CacheVerify, CacheWhy, CreateCache,
    ServeCache,
};

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
    Policy(CachePolicy),
    Attach(CacheAttach),
    Detach(CacheDetach),
    Verify(CacheVerify),
    Simulate(Simulate),
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

    /// Clients, and the size of their requests.
    ///
    /// CLIENTSxSIZE, joined by +; each client keeps one request under way. `:wP` makes P percent of a group's
    /// requests writes. Below 128k a group reads anywhere, from there on it scans.
    #[arg(long, default_value = "8x4k+6x512k")]
    pub mix: String,

    /// Policies: none (classic cache), slow (no cache), split=P, balance, orthus, aware.
    #[arg(long, value_delimiter = ',', default_value = "none,slow,orthus,aware")]
    pub policy: Vec<String>,

    /// Percent of the touched bytes that the cache has room for.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub resident: u32,

    /// Virtual seconds that are measured, after a warm-up of a quarter of that.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// What decides all that is random; one seed is one run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
