//! `longshore cache grid`: runs a policy over all loads and judges the results.
//!
//! Invariants
//! - Goals are judged only by cells that ran.
//! - Everything is modelled, and the output begins with that word.
//! - With --again, a cell below the bound gets new seeds, and both results are reported: the second never replaces the
//!   first.
//!
//! Leaves to others: the cells, their runs and the goals (`longshore-simulator`).

use longshore_policy::policy::UnknownPolicy;
use longshore_simulator::Choice;
use longshore_simulator::grid::{
    self, CellRun, Extent, Figures, GoalVerdict, Study, Wrong, against_better, is_core, is_pure,
    verdicts,
};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::Table;
use serde::Serialize;

use super::simulate;
use crate::context::Context;
use crate::options::{CacheGrid, WhoShares};

#[derive(Serialize)]
struct Goal {
    goal: &'static str,
    cell_count: usize,
    missed_count: usize,
    reached: f64,
    wanted: f64,
}

/// Throughput in MB/s; mean latency of small reads in µs.
#[derive(Serialize)]
struct Result {
    throughput_mb_s: f64,
    small_read_mean_us: f64,
    hit_ratio: f64,
    warm_up_s: f64,
    unsteady_runs: usize,
}

#[derive(Serialize)]
struct CellResult {
    cell: String,
    against_better: f64,
    /// The same with other seeds, of a cell that is below.
    #[serde(skip_serializing_if = "Option::is_none")]
    against_better_again: Option<f64>,
    ours: Result,
    slow: Result,
    classic: Result,
    classic_that_waits: Option<Result>,
    orthus: Option<Result>,
    orthus_kernel: Option<Result>,
    best_split: Option<Result>,
}

#[derive(Serialize)]
struct Report<'a> {
    action: &'static str,
    simulated: bool,
    policy: &'a str,
    seeds: Vec<u64>,
    sharing: WhoShares,
    told_wrong_percent: u32,
    goals: Vec<Goal>,
    cells: Vec<CellResult>,
}

fn result(figures: Figures) -> Result {
    Result {
        throughput_mb_s: figures.throughput_mb_s,
        small_read_mean_us: figures.small_us,
        hit_ratio: figures.hit_ratio,
        warm_up_s: figures.warm_up_s,
        unsteady_runs: figures.unsteady,
    }
}

fn cell_result(measured: &CellRun, again: &[CellRun]) -> CellResult {
    CellResult {
        cell: measured.cell.to_string(),
        against_better: against_better(measured),
        against_better_again: of(again, measured).map(against_better),
        ours: result(measured.ours),
        slow: result(measured.slow),
        classic: result(measured.classic),
        classic_that_waits: measured.waiting.map(result),
        orthus: measured.orthus.map(result),
        orthus_kernel: measured.orthus_kernel.map(result),
        best_split: measured.split.map(result),
    }
}

fn is_below(measured: &CellRun) -> bool {
    against_better(measured) < 0.97
}

/// The result of the same cell in another run.
fn of<'a>(all: &'a [CellRun], measured: &CellRun) -> Option<&'a CellRun> {
    let name = measured.cell.to_string();
    all.iter().find(|other| other.cell.to_string() == name)
}

pub fn run(options: &CacheGrid, context: &Context) -> std::result::Result<Exit, Failure> {
    let choice: Choice = options.policy.parse().map_err(|e: UnknownPolicy| {
        Failure::usage(
            e.to_string(),
            "`longshore cache simulate --help` names them",
        )
    })?;
    let mut cells = grid::cells(Extent::Whole);
    if let Some(pair) = &options.pair {
        cells.retain(|cell| format!("{}/{}", cell.pair.fast, cell.pair.slow) == *pair);
    }
    cells.retain(|cell| !options.core || is_core(cell));
    cells.retain(|cell| !options.pure || is_pure(cell));
    let cells: Vec<_> = cells.into_iter().step_by(options.every as usize).collect();
    if cells.is_empty() {
        return Err(Failure::usage(
            "no cell of the grid matches",
            "pairs are in docs/cache.md",
        ));
    }
    let seeds = options.first_seed..options.first_seed.saturating_add(options.seeds);
    let study = Study {
        choice,
        sharing: simulate::sharing(options.sharing),
        seeds: seeds.clone().collect(),
        wrong: match options.wrong {
            0 => Wrong::NOT,
            percent => Wrong::by(f64::from(percent) / 100.0, options.wrong_signs),
        },
        split: options.rivals,
        orthus: options.orthus || options.rivals,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let all = grid::measure_all(&cells, &study, threads);
    let below: Vec<_> = all.iter().filter(|m| is_below(m)).map(|m| m.cell).collect();
    let once_more = Study {
        seeds: (seeds.end..seeds.end.saturating_add(options.again)).collect(),
        split: false,
        orthus: false,
        ..study
    };
    let again = match options.again {
        0 => Vec::new(),
        _ => grid::measure_all(&below, &once_more, threads),
    };
    let goals = verdicts(&all);
    context.output.say(&text(options, &all, &again, &goals));
    let report = Report {
        action: "cache_grid",
        simulated: true,
        policy: &options.policy,
        seeds: seeds.collect(),
        sharing: options.sharing,
        told_wrong_percent: options.wrong,
        goals: goals.iter().map(goal).collect(),
        cells: all.iter().map(|m| cell_result(m, &again)).collect(),
    };
    context.output.json(Exit::Done, &report);
    Ok(Exit::Done)
}

fn goal(verdict: &GoalVerdict) -> Goal {
    Goal {
        goal: verdict.goal,
        cell_count: verdict.cells,
        missed_count: verdict.missed,
        reached: verdict.found,
        wanted: verdict.wanted,
    }
}

/// The goals, and every cell that is more than 3 % below the better of no cache and classic, the worst first.
fn text(options: &CacheGrid, all: &[CellRun], again: &[CellRun], goals: &[GoalVerdict]) -> String {
    let mut text = format!(
        "Modelled: policy {}, {} cells, {} seeds from {}, models wrong by {} %{}\n\n",
        options.policy,
        all.len(),
        options.seeds,
        options.first_seed,
        options.wrong,
        options.sharing.words()
    );
    let mut table = Table::new(&["Goal", "Cells", "Missed", "Found", "Wanted"]);
    for verdict in goals {
        table.row(vec![
            verdict.goal.to_owned(),
            verdict.cells.to_string(),
            verdict.missed.to_string(),
            format!("{:.3}", verdict.found),
            format!("{:.2}", verdict.wanted),
        ]);
    }
    text += &table.to_string();
    text += &format!("\n{}\n", steadiness(all));
    let mut below: Vec<&CellRun> = all.iter().filter(|m| is_below(m)).collect();
    below.sort_by(|a, b| against_better(a).total_cmp(&against_better(b)));
    if below.is_empty() {
        return text;
    }
    text += "\nBelow 0.97 of the better of no cache and classic (MB/s, modelled):\n\n";
    let mut heads = vec!["Cell", "Ratio", "Ours", "No cache", "Classic"];
    if options.again > 0 {
        heads.push("Again");
    }
    let mut table = Table::new(&heads);
    for measured in below {
        let mut row = vec![
            measured.cell.to_string(),
            format!("{:.3}", against_better(measured)),
            format!("{:.0}", measured.ours.throughput_mb_s),
            format!("{:.0}", measured.slow.throughput_mb_s),
            format!("{:.0}", measured.classic.throughput_mb_s),
        ];
        if options.again > 0 {
            let ratio = of(again, measured).map(against_better);
            row.push(ratio.map_or("–".into(), |ratio| format!("{ratio:.3}")));
        }
        table.row(row);
    }
    text += &table.to_string();
    text
}

/// The number of runs of each policy that were not steady when they were measured.
fn steadiness(all: &[CellRun]) -> String {
    type Of = fn(&CellRun) -> Option<Figures>;
    let policies: [(&str, Of); 6] = [
        ("the policy", |m| Some(m.ours)),
        ("no cache", |m| Some(m.slow)),
        ("classic", |m| Some(m.classic)),
        ("classic that waits", |m| m.waiting),
        ("Orthus", |m| m.orthus),
        ("Orthus, kernel interval", |m| m.orthus_kernel),
    ];
    let mut told = Vec::new();
    for (name, of) in policies {
        let figures: Vec<Figures> = all.iter().filter_map(of).collect();
        if figures.is_empty() {
            continue;
        }
        let longest = figures.iter().map(|f| f.warm_up_s).fold(0.0, f64::max);
        let mean = figures.iter().map(|f| f.warm_up_s).sum::<f64>() / figures.len() as f64;
        let unsteady: usize = figures.iter().map(|f| f.unsteady).sum();
        told.push(format!(
            "{name}: {mean:.2} s, at most {longest:.2} s, {unsteady} runs not steady"
        ));
    }
    format!(
        "Modelled warm-up in virtual time, until three consecutive windows agree within 1 to 2 %: {}.",
        told.join("; ")
    )
}
