//! `longshore cache simulate`: the table of what each policy made of one load.
//!
//! Invariants
//! - All policies see the same load with the same seed, and are measured only once they are steady; a run that never
//!   becomes steady is shown as such.
//! - Everything is modelled, and the output begins with that word.
//!
//! Leaves to others: the simulation (`longshore-simulator`) and policies (`longshore-policy`).

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use longshore_io::{File, Via};
use longshore_policy::calibrate::model_at;
use longshore_policy::model::Profile;
use longshore_policy::policy::UnknownPolicy;
use longshore_simulator::sim::{
    self, ClosedLoop, Latencies, Mix, Outcome, Scenario, Source, WarmUp,
};
use longshore_simulator::trace::{self, Pace, Replay, Trace, TraceError, TraceFormat};
use longshore_simulator::{Choice, SharedReads};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::files::open;
use longshore_terminal::numbers;
use longshore_terminal::output::Table;
use serde::Serialize;

use super::refusals;
use crate::context::Context;
use crate::options::{Simulate, WhoShares};

/// Progress is compared over windows of this virtual time or more, until a mix is steady.
const WINDOW_NS: u64 = 100_000_000;
/// A mix that is not steady after this virtual time is measured all the same, and told.
const STEADY_WITHIN_NS: u64 = 60_000_000_000;
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
    flush_mean_us: f64,
    hit_ratio: f64,
    hit_ratio_bytes: f64,
    fast_share: f64,
    fill_ratio: f64,
    /// Virtual seconds until three windows in a row did the same, and whether they did within the limit.
    warm_up_s: f64,
    steady: bool,
    /// How much less throughput than the better of classic cache and no cache, as a share; below 0: more.
    regret: f64,
}

#[derive(Serialize)]
struct Study<'a> {
    action: &'static str,
    fast_model: &'a str,
    slow_model: &'a str,
    simulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a Path>,
    sharing: WhoShares,
    resident_percent: u32,
    virtual_s: u32,
    seed: u64,
    policies: Vec<Row<'a>>,
}

pub fn run(options: &Simulate, context: &Context) -> Result<Exit, Failure> {
    let study = study(options, context)?;
    context.output.say(&table(&study));
    context.output.json(Exit::Done, &study);
    Ok(Exit::Done)
}

fn profile(name: &str) -> Result<Profile, Failure> {
    Profile::named(name).cloned().ok_or_else(|| {
        Failure::usage(
            format!("unknown profile {name:?}"),
            "`longshore cache simulate --help` names them",
        )
    })
}

/// The load to simulate.
enum Load {
    Mix(Mix),
    Trace(Trace, Pace),
}

fn load(options: &Simulate, context: &Context) -> Result<Load, Failure> {
    let Some(path) = &options.trace else {
        let mix = options.mix.parse().map_err(|e: String| {
            Failure::usage(e, "`longshore cache simulate --help` explains mixes")
        })?;
        return Ok(Load::Mix(mix));
    };
    let form = options.trace_form.as_deref().map(|name| {
        TraceFormat::named(name).ok_or_else(|| {
            Failure::usage(
                format!("unknown format {name:?}"),
                "`longshore cache simulate --help` names them",
            )
        })
    });
    let pace = match options.pace.as_str() {
        "closed" => Some(Pace::Depth(1)),
        times => times
            .parse()
            .ok()
            .filter(|times| (1e-3..=1e6).contains(times))
            .map(Pace::Times),
    };
    let pace = pace.ok_or_else(|| {
        Failure::usage(
            format!("{:?} is not a pace", options.pace),
            "give a factor from 0.001 to 1000000, or `closed`",
        )
    })?;
    let failed = |e: TraceError| {
        let hint = e.hint();
        Failure::usage(format!("{}: {e}", path.display()), hint).numbered(numbers::FILE_UNUSABLE)
    };
    let file = open(&*context.storage, path).map_err(|e| failed(TraceError::Io(e)))?;
    let trace = trace::read(BufReader::new(Bytes { file, at: 0 }), form.transpose()?);
    Ok(Load::Trace(trace.map_err(failed)?, pace))
}

pub(super) fn sharing(options: WhoShares) -> SharedReads {
    match options {
        WhoShares::Own => SharedReads::Own,
        WhoShares::All => SharedReads::All,
        WhoShares::Nobody => SharedReads::Nobody,
    }
}

/// A file's bytes in order.
struct Bytes {
    file: Arc<dyn File>,
    at: u64,
}

impl Read for Bytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at, Via::Cache)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The devices of a pair, FAST/SLOW, with models in place of their profiles.
pub(super) fn devices(
    pair: &str,
    [fast_model, slow_model]: [Option<&Path>; 2],
    context: &Context,
) -> Result<(Profile, Profile), Failure> {
    refusals::pair(
        Some(pair),
        [fast_model, slow_model].map(|path| path.is_some()),
    )?;
    let (fast, slow) = pair.split_once('/').ok_or_else(|| {
        Failure::usage(
            format!("{pair:?} is not a pair"),
            "name two profiles: FAST/SLOW",
        )
    })?;
    let side = |name: &str, model: Option<&Path>| match model {
        Some(path) => model_at(path, &*context.storage)
            .map_err(|e| Failure::of(Exit::Usage, &e, numbers::FILE_UNUSABLE, e.hint())),
        None => profile(name),
    };
    Ok((side(fast, fast_model)?, side(slow, slow_model)?))
}

fn study<'a>(options: &'a Simulate, context: &Context) -> Result<Study<'a>, Failure> {
    let models = options.models.paths();
    let (fast, slow) = devices(&options.pair, models, context)?;
    let load = load(options, context)?;
    let measured = u64::from(options.seconds) * 1_000_000_000;
    let (touched_bytes, warm_bytes, warm_up, measured) = match &load {
        Load::Mix(_) => {
            let warm_up = WarmUp::UntilSteady {
                window: WINDOW_NS,
                most: STEADY_WITHIN_NS,
            };
            (REGION_BYTES, REGION_BYTES, warm_up, measured)
        }
        // A trace ends by itself.
        Load::Trace(trace, _) => {
            let touched = trace.touched_bytes(SLOT_BYTES);
            (touched, 0, WarmUp::For(0), u64::MAX)
        }
    };
    let slots = touched_bytes / SLOT_BYTES * u64::from(options.resident) / 100;
    let scenario = Scenario {
        fast: &fast,
        slow: &slow,
        slot_bytes: SLOT_BYTES,
        warm_bytes,
        warm_up,
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
        let (fast, slow) = (fast.outlook(), slow.outlook());
        let choice = sharing(options.sharing).under(choice);
        let mut policy = choice.build(fast, slow, slots as usize, SLOT_BYTES);
        let mut source: Box<dyn Source> = match &load {
            Load::Mix(mix) => Box::new(ClosedLoop::new(mix, REGION_BYTES, options.seed)),
            Load::Trace(trace, pace) => Box::new(Replay::new(trace, *pace)),
        };
        Ok::<_, Failure>(sim::run(&scenario, &mut *source, &mut policy))
    };
    let rate = |outcome: Outcome| outcome.throughput_mb_s;
    let better = rate(simulate("none")?).max(rate(simulate("slow")?));
    let mut rows = Vec::new();
    for name in &options.policy {
        rows.push(row(name, &simulate(name)?, better));
    }
    Ok(Study {
        action: "cache_simulate",
        fast_model: fast.name,
        slow_model: slow.name,
        simulated: true,
        mix: options.trace.is_none().then_some(options.mix.as_str()),
        trace: options.trace.as_deref(),
        sharing: options.sharing,
        resident_percent: options.resident,
        virtual_s: options.seconds,
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
        flush_mean_us: outcome.flushes.mean,
        hit_ratio: outcome.hit_ratio,
        hit_ratio_bytes: outcome.hit_ratio_bytes,
        fast_share: outcome.fast_share,
        fill_ratio: outcome.fill_ratio,
        warm_up_s: outcome.warmed_up as f64 / 1e9,
        steady: outcome.steady,
        regret: 1.0 - outcome.throughput_mb_s / better.max(f64::MIN_POSITIVE),
    }
}

fn table(study: &Study) -> String {
    let load = match (study.trace, study.mix) {
        (Some(trace), _) => format!("trace {}", trace.display()),
        (None, mix) => format!("load {}, {} s", mix.unwrap_or_default(), study.virtual_s),
    };
    let mut text = format!(
        "Modelled: {} in front of {}, {load}, {} % resident, seed {}{}\n\n",
        study.fast_model,
        study.slow_model,
        study.resident_percent,
        study.seed,
        study.sharing.words()
    );
    let mut table = Table::new(&[
        "Policy",
        "MB/s",
        "Small us",
        "p99 us",
        "Bulk us",
        "Write us",
        "Hits %",
        "Fast %",
        "Regret %",
        "Warm-up s",
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
            match row.steady {
                true => format!("{:.2}", row.warm_up_s),
                false => format!("{:.2}, not steady", row.warm_up_s),
            },
        ]);
    }
    text += &table.to_string();
    text
}
