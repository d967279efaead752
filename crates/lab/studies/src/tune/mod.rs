//! Finds the settings of backups that suit a source, its places and a purpose, by backups that end early.
//!
//! Invariants
//! - Advice was measured here, on this source and these places. A prediction for the whole source is called one.
//! - Nothing that was measured is left at the places.
//! - A backup without options stays where nothing is better by more than chance.
//! - Measurements encrypt nothing and know nothing of a configuration.
//! - All measurements together keep to the time: each has a limit, and what is measured last has its time kept.
//!
//! Leaves to others: the order of the steps (`search.rs`), their time (`time.rs`), the measurement (`measured.rs`), the report
//! (`told.rs`).

mod door;
mod measured;
#[cfg(test)]
mod pretended;
mod search;
mod time;
mod told;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{OffloadMode, RunContext};
use uuid::Uuid;

use door::{CpuCeiling, Machine, Most, Setting, TrialEnd};
pub use door::{Objective, TuneSpec};
use measured::{ThisMachine, TrialPlaces};
use search::{Choices, Found, HOPELESS, TriedCodec};
use time::TimePlan;

use crate::platform;
use crate::report::Report;
use crate::scratch::Scratch;

/// The report, and the settings as a configuration file.
#[derive(Debug)]
pub struct Tuned {
    pub report: Report,
    pub configuration: String,
}

/// The most stripes below each address of an object store.
const STRIPES_EACH: usize = 8;
const STRIPES_MAX: usize = 64;
/// MAXTRANSFERSIZE besides the default of 1 MiB.
const BUFFER_BYTES: [usize; 3] = [256 << 10, 2 << 20, 4 << 20];
/// Factors of the BUFFERCOUNT that a backup takes by itself.
const BUFFERS: [usize; 1] = [2];
/// Ceilings of CPU time, in percent of the machine.
const CEILINGS: [f64; 4] = [10.0, 25.0, 50.0, 75.0];
/// Without a window, half of the machine is the workload's.
const CEILING: f64 = 50.0;
/// The part of the window that a prediction may take.
const SURE: f64 = 0.9;
/// The part of the time in which a ceiling is looked for.
const CEILING_PART: u32 = 4;

/// Makes all measurements. Calls `on_step` with one line for each.
///
/// Errors: places of two kinds, and a backup that fails.
pub fn tune(context: &RunContext, spec: &TuneSpec, on_step: &dyn Fn(&str)) -> Result<Tuned> {
    let places = places(context, spec)?;
    // The directories exist from here on: before, their file systems would not be known.
    let platform = platform::record(
        context,
        &platform::places(&directories(spec), [&spec.source]),
    );
    let plan = TimePlan::of(spec.time);
    let mut machine = ThisMachine::new(context, &spec.source, &places, plan, on_step);
    if spec.objective == Objective::Workload {
        machine.reserve = plan.whole / CEILING_PART;
    }
    let mut choices = choices(context, spec);
    if spec.within.is_some() {
        // The size of the source is known from a backup that has begun.
        let left_s = machine.left_s();
        machine.measure_below(&choices.start, &Most::ANYTHING, (None, left_s))?;
        choices.most_pace = most_pace(spec, machine.source_bytes);
        ensure!(
            choices.most_pace.is_some(),
            "the size of this source is not known before its end, so no window can be kept: leave --within out, or give \
             --time more than a whole backup takes"
        );
    }
    let found = search::search(&choices, &mut machine)?;
    machine.reserve = Duration::ZERO;
    let ceiling = match spec.objective {
        Objective::Workload => ceiling(&mut machine, &choices, &found)?,
        _ => None,
    };
    let told = told::Told {
        spec,
        choices: &choices,
        found: &found,
        ceiling,
        source_bytes: machine.source_bytes,
        limit: machine.limit,
    };
    Ok(Tuned {
        report: told.report(platform),
        configuration: told.configuration(),
    })
}

fn directories(spec: &TuneSpec) -> Vec<PathBuf> {
    let is_path = |to: &&String| !to.contains("://");
    spec.to.iter().filter(is_path).map(PathBuf::from).collect()
}

fn places(context: &RunContext, spec: &TuneSpec) -> Result<TrialPlaces> {
    let directories = directories(spec);
    ensure!(
        !spec.to.is_empty() && (directories.is_empty() || directories.len() == spec.to.len()),
        "the places must be directories, or addresses of object stores, and not both"
    );
    match directories.is_empty() {
        true => Ok(TrialPlaces::Prefixes(spec.to.clone())),
        false => {
            // A killed search leaves its directory, and a container has one number for all its processes.
            let name = format!("tune-{}", Uuid::new_v4());
            let scratch = Scratch::named(&*context.storage, &directories, &name)?;
            Ok(TrialPlaces::Directories(scratch))
        }
    }
}

/// A backup without options, to one stripe in each place.
fn defaults(places: usize) -> Setting {
    Setting {
        algorithm: Algorithm::QatDeflate,
        level: Level::Low,
        engine: OffloadMode::Software,
        stripes: places,
        buffer_bytes: None,
        buffer_count: None,
    }
}

fn choices(context: &RunContext, spec: &TuneSpec) -> Choices {
    let serves = |algorithm: Algorithm| context.accelerators.iter().any(|a| a.serves(algorithm));
    let codecs = codecs_for(spec.objective, &spec.algorithms, &serves);
    let mut start = defaults(spec.to.len());
    let has_start = |codec: &&TriedCodec| (codec.0, codec.1) == (start.algorithm, start.level);
    if !codecs.iter().any(|codec| has_start(&codec))
        && let Some(&(algorithm, level, _)) = codecs.first()
    {
        (start.algorithm, start.level) = (algorithm, level);
    }
    choices_from(spec.objective, start, codecs, stripes_of(spec))
}

/// With the buffers that are tried on every machine.
fn choices_from(
    objective: Objective,
    start: Setting,
    codecs: Vec<TriedCodec>,
    stripes: Vec<usize>,
) -> Choices {
    Choices {
        objective,
        most_pace: None,
        start,
        codecs,
        stripes,
        buffer_bytes: BUFFER_BYTES.to_vec(),
        buffers: BUFFERS.to_vec(),
    }
}

/// Powers of two, and all places: in directories up to one in each, as a target has them.
fn stripes_of(spec: &TuneSpec) -> Vec<usize> {
    let places = spec.to.len();
    let most = match directories(spec).is_empty() {
        true => (places * STRIPES_EACH).min(STRIPES_MAX),
        false => places,
    };
    let powers = (0..).map(|n| 1 << n).take_while(|n| *n <= most);
    let mut stripes: Vec<usize> = powers.chain([places]).collect();
    stripes.sort_unstable();
    stripes.dedup();
    stripes
}

/// Algorithms with the levels that may suit the objective, the quick ones first, so that slow ones end early; each in
/// software and, where it is served, by accelerators.
fn codecs_for(
    objective: Objective,
    allowed: &[Algorithm],
    serves: &dyn Fn(Algorithm) -> bool,
) -> Vec<TriedCodec> {
    use Algorithm::{Lz4, MsXpress, None, Pages, QatDeflate, Zstd};
    use Level::{High, Low, Medium};
    const ALL: [(Algorithm, Level); 13] = [
        (QatDeflate, Low),
        (Zstd, Low),
        (Lz4, Low),
        (Pages, Low),
        (None, Low),
        (MsXpress, Low),
        (Zstd, Medium),
        (QatDeflate, Medium),
        (Pages, Medium),
        (Lz4, High),
        (Pages, High),
        (Zstd, High),
        (QatDeflate, High),
    ];
    // No stock tool reads PAGES and MS_XPRESS, and NONE takes the most space: these must be asked for.
    let allowed = match allowed {
        [] => &[QatDeflate, Zstd, Lz4],
        allowed => allowed,
    };
    let suits = |level: Level| match objective {
        Objective::Window | Objective::Size => true,
        Objective::Cpu | Objective::Workload => level == Low,
    };
    let all = ALL.into_iter();
    let all = all.filter(|(algorithm, level)| allowed.contains(algorithm) && suits(*level));
    let mut codecs = Vec::new();
    for (algorithm, level) in all {
        codecs.push((algorithm, level, OffloadMode::Software));
        if serves(algorithm) {
            codecs.push((algorithm, level, OffloadMode::Hardware));
            codecs.push((algorithm, level, OffloadMode::Hybrid));
        }
    }
    codecs
}

fn most_pace(spec: &TuneSpec, source_bytes: Option<u64>) -> Option<f64> {
    let bytes = source_bytes.filter(|bytes| *bytes > 0)?;
    Some(SURE * spec.within?.as_secs_f64() / bytes as f64)
}

/// The lowest ceiling that leaves a backup enough time, measured; `None`: none does, or there was no time to find out.
fn ceiling(
    machine: &mut ThisMachine<'_>,
    choices: &Choices,
    found: &Found,
) -> Result<Option<CpuCeiling>> {
    let cores = longshore_facts::cores() as f64;
    let least = |percent: f64| found.cost.cpu_pace() / (cores * percent / 100.0);
    let percents = CEILINGS
        .into_iter()
        .filter(|percent| match choices.most_pace {
            Some(most) => least(*percent) <= most,
            None => *percent >= CEILING,
        });
    for percent in percents {
        let left_s = machine.left_s();
        if left_s < found.cost.wall_s {
            return Ok(None);
        }
        let most = Most {
            pace: choices
                .most_pace
                .map_or(f64::INFINITY, |most| HOPELESS * most),
            ..Most::ANYTHING
        };
        let trial = machine.measure_below(&found.setting, &most, (Some(percent), left_s))?;
        let keeps = choices
            .most_pace
            .is_none_or(|most| trial.cost.pace() <= most);
        if keeps && trial.end == TrialEnd::Measured {
            let cost = trial.cost;
            return Ok(Some(CpuCeiling { percent, cost }));
        }
    }
    Ok(None)
}
