//! Runs the cells of a grid: each policy on each load, until it is steady.
//!
//! Invariants
//! - A cell's result depends on its parameters and its seeds only, so cells can run in any order; results come in the
//!   cells' order.
//! - A run that never becomes steady is counted and reported as unsteady.
//! - Errors in the view of the devices are given to the policy under test alone, not to those it is compared with.
//!
//! Leaves to others: which cells there are (`cell.rs`), and judging the results (`verdict.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use super::cell::{Cell, Loop, REGION_BYTES};
use crate::sim::{ClosedLoop, OpenLoop, Outcome, Scenario, WarmUp, run};
use crate::{Choice, FilterChoice, OrthusPace, SharedReads};
use longshore_policy::model::{Nanos, Profile};
use longshore_policy::policy::{self, Outlook};

/// Every policy runs until it is steady, and is counted from then on. The compared windows last at least this long.
const WINDOW: Nanos = 50_000_000;
/// A run that is not steady after this virtual time is counted nevertheless, and reported as unsteady.
const STEADY_WITHIN: Nanos = 60_000_000_000;
const SLOT_BYTES: u64 = 64 << 10;

/// The settings of a study.
#[derive(Debug, Clone)]
pub struct Study {
    pub choice: Choice,
    /// For the policy under test and its rivals.
    pub sharing: SharedReads,
    pub seeds: Vec<u64>,
    /// The errors in the policy's view of the devices: factors on times of the fast side and on rates of the slow
    /// side.
    pub wrong: Wrong,
    /// Whether to look for the best fixed split.
    pub split: bool,
    /// Whether to run Orthus, with both sets of constants, and a classic cache that waits for others' reads.
    pub orthus: bool,
}

/// Factors on the policy's view; 1 is correct.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wrong {
    pub fast_times: f64,
    pub fast_rates: f64,
    pub slow_times: f64,
    pub slow_rates: f64,
}

impl Wrong {
    pub const NOT: Wrong = Wrong {
        fast_times: 1.0,
        fast_rates: 1.0,
        slow_times: 1.0,
        slow_rates: 1.0,
    };

    /// Every parameter wrong by `share`, up or down as the bits of `signs` say.
    pub fn by(share: f64, signs: u8) -> Wrong {
        let factor = |bit: u8| match signs >> bit & 1 {
            0 => 1.0 + share,
            _ => 1.0 - share,
        };
        Wrong {
            fast_times: factor(0),
            fast_rates: factor(1),
            slow_times: factor(2),
            slow_rates: factor(3),
        }
    }
}

/// Means over the seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    pub throughput_mb_s: f64,
    /// 0: there were no small reads.
    pub small_us: f64,
    /// Of all reads.
    pub read_us: f64,
    pub hit_ratio: f64,
    /// Virtual seconds until it was steady.
    pub warm_up_s: f64,
    /// Runs that were not steady within the limit.
    pub unsteady: usize,
}

/// A cell's results.
#[derive(Debug, Clone)]
pub struct CellRun {
    pub cell: Cell,
    pub ours: Figures,
    pub slow: Figures,
    pub classic: Figures,
    /// A classic cache whose misses wait for another client's read of the same bytes, as Open CAS does.
    pub waiting: Option<Figures>,
    /// With the paper's constants.
    pub orthus: Option<Figures>,
    /// With its kernel version's interval.
    pub orthus_kernel: Option<Figures>,
    pub split: Option<Figures>,
    /// The lowest ratio, over the seeds, of our throughput to the better of slow and classic.
    pub worst: f64,
}

fn outlook(profile: &Profile, times: f64, rates: f64) -> Outlook {
    let told = Profile {
        read_us: profile.read_us * times,
        write_us: profile.write_us * times,
        fixed_us: profile.fixed_us * times,
        command_us: profile.command_us * times,
        read_link: profile.read_link * rates,
        write_link: profile.write_link * rates,
        ..profile.clone()
    };
    told.outlook()
}

struct Setting<'a> {
    cell: &'a Cell,
    fast: &'static Profile,
    slow: &'static Profile,
    wrong: Wrong,
    seed: u64,
    /// Offered bytes per µs, in an open loop.
    offered: f64,
}

fn simulate(setting: &Setting, choice: Choice) -> Outcome {
    let Setting {
        cell, fast, slow, ..
    } = setting;
    let wrong = setting.wrong;
    let told_fast = outlook(fast, wrong.fast_times, wrong.fast_rates);
    let told_slow = outlook(slow, wrong.slow_times, wrong.slow_rates);
    let cache_bytes = REGION_BYTES * u64::from(cell.resident_percent) / 100;
    let slots = (cache_bytes / SLOT_BYTES) as usize;
    let mut policy = choice.build(told_fast, told_slow, slots, SLOT_BYTES);
    let measured = cell.measured();
    let scenario = Scenario {
        fast,
        slow,
        slot_bytes: SLOT_BYTES,
        warm_bytes: REGION_BYTES,
        warm_up: WarmUp::UntilSteady {
            window: WINDOW.max(measured / 2),
            most: STEADY_WITHIN,
        },
        measured,
        seed: setting.seed,
    };
    let mix = cell.mix();
    match cell.arrivals {
        Loop::Closed => {
            let mut load = ClosedLoop::new(&mix, REGION_BYTES, setting.seed);
            run(&scenario, &mut load, &mut policy)
        }
        Loop::Open(_) => {
            let bytes: Vec<f64> = mix
                .groups
                .iter()
                .map(|g| if g.scans { 3.0 } else { 1.0 })
                .collect();
            let sum: f64 = bytes.iter().sum();
            let shares: Vec<f64> = bytes.iter().map(|b| b / sum).collect();
            let mut load =
                OpenLoop::new(&mix, &shares, setting.offered, REGION_BYTES, setting.seed);
            run(&scenario, &mut load, &mut policy)
        }
    }
}

fn figures(outcomes: &[Outcome]) -> Figures {
    let mean = |of: fn(&Outcome) -> f64| {
        outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64
    };
    Figures {
        throughput_mb_s: mean(|o| o.throughput_mb_s),
        small_us: mean(|o| o.small_reads.mean),
        read_us: mean(|o| {
            let (small, bulk) = (&o.small_reads, &o.bulk_reads);
            let sum = small.mean * small.count as f64 + bulk.mean * bulk.count as f64;
            sum / (small.count + bulk.count).max(1) as f64
        }),
        hit_ratio: mean(|o| o.hit_ratio),
        warm_up_s: mean(|o| o.warmed_up as f64 / 1e9),
        unsteady: outcomes.iter().filter(|o| !o.steady).count(),
    }
}

/// Runs one cell; `None` if a profile is missing.
pub fn measure(cell: &Cell, study: &Study) -> Option<CellRun> {
    measure_views(cell, study, &[study.wrong])?.pop()
}

/// As [`measure`], once for each view of the devices: the views mislead the policy under test alone, so those that it
/// is compared with run once for all views. The study's own view is not used.
pub fn measure_views(cell: &Cell, study: &Study, views: &[Wrong]) -> Option<Vec<CellRun>> {
    let (fast, slow) = cell.profiles()?;
    let choice = |filter| study.sharing.under(Choice::of(filter));
    let (none, slow_alone) = (
        FilterChoice::Own(policy::FilterChoice::None),
        FilterChoice::Own(policy::FilterChoice::Slow),
    );
    let mut ours = vec![(Vec::new(), f64::INFINITY); views.len()];
    let mut all: [Vec<Outcome>; 2] = Default::default();
    let (mut rivals, mut splits): ([Vec<Outcome>; 3], _) =
        (Default::default(), vec![Vec::new(); SPLITS.len()]);
    for seed in &study.seeds {
        let mut setting = Setting {
            cell,
            fast,
            slow,
            wrong: Wrong::NOT,
            seed: *seed,
            offered: 0.0,
        };
        if let Loop::Open(load) = cell.arrivals {
            let closed = Cell {
                arrivals: Loop::Closed,
                ..*cell
            };
            let closed = Setting {
                cell: &closed,
                ..setting
            };
            let rate = |filter| simulate(&closed, choice(filter)).throughput_mb_s;
            setting.offered = load * rate(none).max(rate(slow_alone));
        }
        let without = simulate(&setting, choice(slow_alone));
        let classic = simulate(&setting, choice(none));
        let better = without.throughput_mb_s.max(classic.throughput_mb_s);
        for (wrong, (outcomes, worst)) in views.iter().zip(&mut ours) {
            let told = Setting {
                wrong: *wrong,
                ..setting
            };
            let outcome = simulate(&told, study.sharing.under(study.choice));
            *worst = worst.min(outcome.throughput_mb_s / better.max(f64::MIN_POSITIVE));
            outcomes.push(outcome);
        }
        [without, classic]
            .into_iter()
            .zip(&mut all)
            .for_each(|(outcome, all)| all.push(outcome));
        if study.orthus {
            let waiting = SharedReads::All.under(choice(none));
            let orthus = |pace| choice(FilterChoice::Orthus(pace));
            let choices = [
                waiting,
                orthus(OrthusPace::Paper),
                orthus(OrthusPace::Kernel),
            ];
            choices
                .into_iter()
                .zip(&mut rivals)
                .for_each(|(choice, all)| all.push(simulate(&setting, choice)));
        }
        if study.split {
            for (share, all) in SPLITS.iter().zip(&mut splits) {
                all.push(simulate(&setting, choice(FilterChoice::Split(*share))));
            }
        }
    }
    let best = splits
        .iter()
        .filter(|all| !all.is_empty())
        .map(|all| figures(all));
    let best = best.max_by(|a, b| a.throughput_mb_s.total_cmp(&b.throughput_mb_s));
    let run = |(outcomes, worst): (Vec<Outcome>, f64)| CellRun {
        cell: *cell,
        ours: figures(&outcomes),
        slow: figures(&all[0]),
        classic: figures(&all[1]),
        waiting: study.orthus.then(|| figures(&rivals[0])),
        orthus: study.orthus.then(|| figures(&rivals[1])),
        orthus_kernel: study.orthus.then(|| figures(&rivals[2])),
        split: best,
        worst,
    };
    Some(ours.into_iter().map(run).collect())
}

/// Shares that are tried to find the best fixed split.
const SPLITS: [f64; 14] = [
    0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95,
];

/// Runs many cells on `threads` threads; results in the cells' order.
pub fn measure_all(cells: &[Cell], study: &Study, threads: usize) -> Vec<CellRun> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, cell)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            cells.get(at).map(|cell| (at, cell))
        } {
            done.extend(measure(cell, study).map(|measured| (at, measured)));
        }
        done
    };
    let mut all: Vec<(usize, CellRun)> = std::thread::scope(|scope| {
        // If the system has no thread to give, the existing ones do all the work.
        let start = |_| Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let ours = work();
        let theirs = others.into_iter().filter_map(|thread| thread.join().ok());
        theirs.flatten().chain(ours).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, measured)| measured).collect()
}
