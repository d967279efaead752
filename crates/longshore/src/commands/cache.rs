//! `longshore cache simulate`: the table of what each policy made of one load.

use longshore_cache::model::Profile;
use longshore_cache::policy::{Choice, Outlook, Policy, UnknownPolicy};
use longshore_cache::sim::{self, Closed, Latencies, Mix, Outcome, Scenario};
use serde::Serialize;

use super::{Context, cached};
use crate::failure::{Exit, Failure};
use crate::options::{Cache, CacheAction, Simulate};
use crate::output::Table;

/// Bytes that the clients touch: far more than is in flight, and still quick to fill.
const REGION_BYTES: u64 = 1 << 30;
const SLOT_BYTES: u64 = 64 << 10;

#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    throughput_mb_s: f64,
    small_read_mean_us: f64,
    small_read_p50_us: f64,
    small_read_p99_us: f64,
    small_read_p999_us: f64,
    bulk_read_mean_us: f64,
    write_mean_us: f64,
    hit_ratio: f64,
    hit_ratio_bytes: f64,
    fast_share: f64,
    fill_ratio: f64,
    /// How much less throughput than the better of classic cache and no cache, as a share; below 0: more.
    regret: f64,
}

#[derive(Serialize)]
struct Study<'a> {
    fast: &'a str,
    slow: &'a str,
    simulated: bool,
    mix: &'a str,
    resident_percent: u32,
    seconds: u32,
    seed: u64,
    policies: Vec<Row<'a>>,
}

pub fn run(options: &Cache, context: &Context) -> Result<Exit, Failure> {
    let simulate = match &options.action {
        CacheAction::Create(create) => return cached::create(create, context),
        CacheAction::Serve(serve) => return cached::serve(serve, context),
        CacheAction::Status(status) => return cached::status(status, context),
        CacheAction::Why(why) => return cached::why(why, context),
        CacheAction::Policy(policy) => return cached::policy(policy, context),
        CacheAction::Attach(attach) => return cached::attach(attach, context),
        CacheAction::Detach(detach) => return cached::detach(detach, context),
        CacheAction::Verify(verify) => return cached::verify(verify, context),
        CacheAction::Simulate(simulate) => simulate,
    };
    let study = study(simulate)?;
    context.output.say(&table(&study));
    context.output.json(Exit::Done, &study);
    Ok(Exit::Done)
}

fn profile(name: &str) -> Result<&'static Profile, Failure> {
    Profile::named(name).ok_or_else(|| {
        Failure::usage(
            format!("there is no profile {name:?}"),
            "`longshore cache simulate --help` names them",
        )
    })
}

fn study(options: &Simulate) -> Result<Study<'_>, Failure> {
    let (fast, slow) = options.pair.split_once('/').ok_or_else(|| {
        Failure::usage(
            format!("{:?} is no pair", options.pair),
            "name two profiles: FAST/SLOW",
        )
    })?;
    let (fast, slow) = (profile(fast)?, profile(slow)?);
    let mix: Mix = options.mix.parse().map_err(|e: String| {
        Failure::usage(e, "`longshore cache simulate --help` explains mixes")
    })?;
    let measured = u64::from(options.seconds) * 1_000_000_000;
    let cache_bytes = REGION_BYTES * u64::from(options.resident) / 100;
    let scenario = Scenario {
        fast,
        slow,
        slot_bytes: SLOT_BYTES,
        warm_bytes: REGION_BYTES,
        warm_up: measured / 4,
        measured,
        seed: options.seed,
    };
    let simulate = |name: &str| {
        let choice: Choice = name.parse().map_err(|e: UnknownPolicy| {
            Failure::usage(
                e.to_string(),
                "`longshore cache simulate --help` names them",
            )
        })?;
        let slots = (cache_bytes / SLOT_BYTES) as usize;
        let (fast, slow) = (Outlook::of(fast), Outlook::of(slow));
        let mut policy = Policy::new(choice, fast, slow, slots, SLOT_BYTES);
        let mut load = Closed::new(&mix, REGION_BYTES, options.seed);
        Ok::<_, Failure>(sim::run(&scenario, &mut load, &mut policy))
    };
    let rate = |outcome: Outcome| outcome.throughput_mb_s;
    let better = rate(simulate("none")?).max(rate(simulate("slow")?));
    let mut rows = Vec::new();
    for name in &options.policy {
        rows.push(row(name, &simulate(name)?, better));
    }
    Ok(Study {
        fast: fast.name,
        slow: slow.name,
        simulated: true,
        mix: &options.mix,
        resident_percent: options.resident,
        seconds: options.seconds,
        seed: options.seed,
        policies: rows,
    })
}

fn row<'a>(policy: &'a str, outcome: &Outcome, better: f64) -> Row<'a> {
    let Latencies {
        mean,
        p50,
        p99,
        p999,
        ..
    } = outcome.small_reads;
    Row {
        policy,
        throughput_mb_s: outcome.throughput_mb_s,
        small_read_mean_us: mean,
        small_read_p50_us: p50,
        small_read_p99_us: p99,
        small_read_p999_us: p999,
        bulk_read_mean_us: outcome.bulk_reads.mean,
        write_mean_us: outcome.writes.mean,
        hit_ratio: outcome.hit_ratio,
        hit_ratio_bytes: outcome.hit_ratio_bytes,
        fast_share: outcome.fast_share,
        fill_ratio: outcome.fill_ratio,
        regret: 1.0 - outcome.throughput_mb_s / better.max(f64::MIN_POSITIVE),
    }
}

fn table(study: &Study) -> String {
    let mut text = format!(
        "Simulated: {} in front of {}, load {}, {} % resident, {} s, seed {}\n\n",
        study.fast, study.slow, study.mix, study.resident_percent, study.seconds, study.seed
    );
    let mut table = Table::new(&[
        "Policy", "MB/s", "Small us", "p99 us", "Bulk us", "Write us", "Hits %", "Fast %",
        "Regret %",
    ]);
    for row in &study.policies {
        table.row(vec![
            row.policy.to_owned(),
            format!("{:.0}", row.throughput_mb_s),
            format!("{:.1}", row.small_read_mean_us),
            format!("{:.1}", row.small_read_p99_us),
            format!("{:.0}", row.bulk_read_mean_us),
            format!("{:.1}", row.write_mean_us),
            format!("{:.1}", 100.0 * row.hit_ratio),
            format!("{:.1}", 100.0 * row.fast_share),
            format!("{:.1}", 100.0 * row.regret),
        ]);
    }
    text += &table.to_string();
    text
}
