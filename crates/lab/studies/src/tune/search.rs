//! The search: one choice after the other, by measured steps, each with an early end.
//!
//! Invariants
//! - A setting is taken in place of another only if it is better by more than chance: by the margin, which is at least
//!   [`MARGIN`] and as wide as two equal measurements differed. So the start stays where nothing is better.
//! - Of stripes the fewest are taken that are as good within the margin, and as quick whatever is compared: each is one more
//!   file that must not be lost.
//! - A setting that keeps the window comes before all that do not.
//! - The best is measured once more next to the start, and the start stays where it is as good then. A difference counts then from
//!   twice as much as measurements of the best, or of the start, differed among themselves.
//! - The time for that is kept: no setting is measured for so long that it would be lacking.
//! - Nothing here reads a clock: the machine says how much time is left.
//!
//! Leaves to others: measuring (`measured.rs`), and the words of the report (`told.rs`).

use anyhow::{Result, ensure};
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::OffloadMode;

use super::door::{Cost, Machine, MachineTrial, Most, Objective, Setting, TrialEnd};
use super::time::{again_limit_s, limit_s};

/// A difference that counts, at least: rounds of one backup on a quiet machine differ by one or two percent.
const MARGIN: f64 = 0.02;
/// The most that may count where a setting is called as good as another.
const ALIKE: f64 = 0.1;
/// Two or three equal measurements show about half of what chance can do.
const DOUBT: f64 = 2.0;
/// A measurement ends where it has cost this many times what the best one has.
pub(super) const HOPELESS: f64 = 1.3;
/// The same in time where something else is compared: four times as long is no backup that anybody wants.
const TOO_LONG: f64 = 4.0;
/// Choices are gone through at most so often: a later choice may change an earlier one.
const PASSES: usize = 2;

/// An algorithm with its level, and who compresses.
pub type TriedCodec = (Algorithm, Level, OffloadMode);

/// The choices.
#[derive(Debug, Clone)]
pub struct Choices {
    pub objective: Objective,
    /// The longest time for each byte of the source.
    pub most_pace: Option<f64>,
    pub start: Setting,
    /// With who compresses: an accelerator may make the best of an algorithm that is not the best in software.
    pub codecs: Vec<TriedCodec>,
    /// Ascending.
    pub stripes: Vec<usize>,
    /// MAXTRANSFERSIZE besides the default.
    pub buffer_bytes: Vec<usize>,
    /// Factors of BUFFERCOUNT besides 1.
    pub buffers: Vec<usize>,
}

/// The fate of a measured setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepVerdict {
    /// Where the search begins, measured first.
    Start,
    /// Better than all before it.
    Taken,
    /// As good within the margin, with fewer stripes.
    Simpler,
    NotBetter,
    /// Ended early.
    GivenUp,
    /// Memory held all that was measured.
    InMemory,
    /// The backup would take longer than the window.
    TooLong,
    /// Ended because the time of the search was over.
    OutOfTime,
    /// Measured once more at the end.
    Again,
}

#[derive(Debug, Clone, Copy)]
pub struct SearchStep {
    pub setting: Setting,
    pub cost: Cost,
    /// The number of buffers that it took.
    pub buffers: usize,
    /// The measurement, with all that begins and ends it.
    pub took_s: f64,
    pub verdict: StepVerdict,
}

/// The end of a search.
#[derive(Debug, Clone)]
pub struct Found {
    pub setting: Setting,
    /// Its cost, measured next to that of the start.
    pub cost: Cost,
    pub start: Cost,
    pub steps: Vec<SearchStep>,
    /// The difference that counted.
    pub margin: f64,
    /// The time was over before everything was tried.
    pub is_cut: bool,
}

/// Finds the best of the choices on a machine.
///
/// Errors: those of the machine; nothing of the places was seen in the time.
pub(super) fn search(choices: &Choices, machine: &mut dyn Machine) -> Result<Found> {
    let mut steps = Vec::new();
    for _ in 0..2 {
        let left_s = machine.left_s();
        let trial = machine.measure(&choices.start, &Most::ANYTHING, left_s)?;
        ensure!(
            trial.end != TrialEnd::InMemory,
            "memory held all that was backed up in the time, so nothing is known of the places: give --time more"
        );
        steps.push(SearchStep {
            setting: choices.start,
            cost: trial.cost,
            buffers: machine.buffers(),
            took_s: trial.took_s,
            verdict: match trial.end {
                TrialEnd::Measured => StepVerdict::Start,
                _ => StepVerdict::OutOfTime,
            },
        });
    }
    if steps[1].verdict == StepVerdict::OutOfTime {
        // The same was so much slower that there is time for nothing else.
        return Ok(Found {
            setting: choices.start,
            cost: steps[0].cost,
            start: steps[0].cost,
            steps,
            margin: MARGIN,
            is_cut: true,
        });
    }
    // The first one may have gone on for longer than what it counts, so the second is the one that tells.
    let took_s = steps[1].took_s;
    let (first, second) = (steps[0].cost, steps[1].cost);
    let (a, b) = (choices.objective.of(&first), choices.objective.of(&second));
    let noise = (a - b).abs() / a.min(b).max(f64::MIN_POSITIVE);
    let mut search = Search {
        choices,
        machine,
        best: (choices.start, better_of(choices.objective, first, second)),
        took_s: (took_s, took_s),
        // Both are of one setting: their difference is chance.
        margin: noise.max(MARGIN),
        steps,
        is_cut: false,
    };
    for _ in 0..PASSES {
        let before = search.best.0;
        search.codecs()?;
        search.stripes()?;
        search.buffers()?;
        if search.best.0 == before {
            break;
        }
    }
    search.settled()
}

fn better_of(objective: Objective, a: Cost, b: Cost) -> Cost {
    if objective.of(&b) < objective.of(&a) {
        b
    } else {
        a
    }
}

struct Search<'a> {
    choices: &'a Choices,
    machine: &'a mut dyn Machine,
    best: (Setting, Cost),
    /// Of a measurement of the start, and of the best.
    took_s: (f64, f64),
    margin: f64,
    steps: Vec<SearchStep>,
    is_cut: bool,
}

impl Search<'_> {
    fn codecs(&mut self) -> Result<()> {
        for &(algorithm, level, engine) in &self.choices.codecs {
            let (now, _) = self.best;
            self.attempt(Setting {
                algorithm,
                level,
                engine,
                ..now
            })?;
        }
        Ok(())
    }

    /// From the fewest on. More are tried only while they help: two numbers in a row that do not help end it.
    fn stripes(&mut self) -> Result<()> {
        let mut useless = 0;
        for &stripes in &self.choices.stripes {
            let (now, cost) = self.best;
            if stripes == now.stripes {
                useless = 0;
                continue;
            }
            let Some(tried) = self.attempt(Setting { stripes, ..now })? else {
                continue;
            };
            let is_taken = self.best.0.stripes == stripes;
            if !is_taken && stripes < now.stripes && self.is_as_good(&tried.cost, &cost) {
                self.best = (Setting { stripes, ..now }, tried.cost);
                self.took_s.1 = tried.took_s;
                let mut steps = self.steps.iter_mut();
                if let Some(step) = steps.find(|step| step.setting == self.best.0) {
                    step.verdict = StepVerdict::Simpler;
                }
            } else if !is_taken && stripes > now.stripes {
                useless += 1;
            }
            if useless == 2 {
                break;
            }
        }
        Ok(())
    }

    fn buffers(&mut self) -> Result<()> {
        for &bytes in &self.choices.buffer_bytes {
            let (now, _) = self.best;
            self.attempt(Setting {
                buffer_bytes: Some(bytes),
                ..now
            })?;
        }
        // Without a number of its own a backup takes what the plan says for its setting.
        let alike = |step: &&SearchStep| {
            let by_itself = Setting {
                buffer_count: None,
                ..self.best.0
            };
            step.setting == by_itself
        };
        let Some(by_itself) = self.steps.iter().find(alike).map(|step| step.buffers) else {
            return Ok(());
        };
        for &factor in &self.choices.buffers {
            let (now, _) = self.best;
            self.attempt(Setting {
                buffer_count: Some(by_itself * factor),
                ..now
            })?;
        }
        Ok(())
    }

    /// Measures a setting that was not measured yet, and takes it if it is better. Returns its step, if it reached the end.
    fn attempt(&mut self, setting: Setting) -> Result<Option<SearchStep>> {
        if let Some(known) = self.steps.iter().find(|step| step.setting == setting) {
            use StepVerdict::{GivenUp, InMemory, OutOfTime};
            let is_known = !matches!(known.verdict, GivenUp | InMemory | OutOfTime);
            return Ok(is_known.then_some(*known));
        }
        let Some(limit_s) = limit_s(self.machine.left_s(), self.took_s) else {
            self.is_cut = true;
            return Ok(None);
        };
        let trial = self.machine.measure(&setting, &self.most(), limit_s)?;
        let verdict = self.judge(&trial);
        self.push(setting, &trial, verdict);
        match verdict {
            StepVerdict::Taken => {
                self.best = (setting, trial.cost);
                self.took_s.1 = trial.took_s;
            }
            StepVerdict::OutOfTime => self.is_cut = true,
            _ => {}
        }
        let step = self.steps.last().copied();
        Ok(step.filter(|_| trial.end == TrialEnd::Measured))
    }

    /// Called right after the setting was measured.
    fn push(&mut self, setting: Setting, trial: &MachineTrial, verdict: StepVerdict) {
        self.steps.push(SearchStep {
            setting,
            cost: trial.cost,
            buffers: self.machine.buffers(),
            took_s: trial.took_s,
            verdict,
        });
    }

    fn judge(&self, trial: &MachineTrial) -> StepVerdict {
        let (_, best) = self.best;
        match (self.keeps_window(&trial.cost), self.keeps_window(&best)) {
            _ if trial.end == TrialEnd::GivenUp => StepVerdict::GivenUp,
            _ if trial.end == TrialEnd::InMemory => StepVerdict::InMemory,
            _ if trial.end == TrialEnd::OutOfTime => StepVerdict::OutOfTime,
            (false, true) => StepVerdict::TooLong,
            (true, false) => StepVerdict::Taken,
            // Before the window is kept, time is what matters.
            (false, false) if trial.cost.pace() < best.pace() * (1.0 - self.margin) => {
                StepVerdict::Taken
            }
            (false, false) => StepVerdict::TooLong,
            (true, true) if self.is_better(&trial.cost, &best) => StepVerdict::Taken,
            (true, true) => StepVerdict::NotBetter,
        }
    }

    fn keeps_window(&self, cost: &Cost) -> bool {
        self.choices
            .most_pace
            .is_none_or(|most| cost.pace() <= most)
    }

    fn is_better(&self, one: &Cost, other: &Cost) -> bool {
        let of = |cost| self.choices.objective.of(cost);
        of(one) < of(other) * (1.0 - self.margin)
    }

    fn is_as_good(&self, one: &Cost, other: &Cost) -> bool {
        let of = |cost| self.choices.objective.of(cost);
        let most = 1.0 + self.margin;
        of(one) <= of(other) * most
            && one.pace() <= other.pace() * most
            && (self.keeps_window(one) || !self.keeps_window(other))
    }

    /// From where on a measurement tells nothing more.
    fn most(&self) -> Most {
        let (_, best) = self.best;
        let is_time = self.choices.objective == Objective::Window || !self.keeps_window(&best);
        let window = self.choices.most_pace.unwrap_or(f64::INFINITY);
        match self.choices.objective {
            _ if is_time => Most {
                pace: best.pace() * HOPELESS,
                ..Most::ANYTHING
            },
            Objective::Size => Most {
                pace: (best.pace() * TOO_LONG).min(window.max(best.pace()) * HOPELESS),
                ..Most::ANYTHING
            },
            _ => Most {
                pace: best.pace() * TOO_LONG,
                cpu_pace: best.cpu_pace() * HOPELESS,
            },
        }
    }

    /// Measures the best next to the start once more: the best of many measurements looks better than it is.
    fn settled(mut self) -> Result<Found> {
        let (start, best) = (self.choices.start, self.best.0);
        let of_start = self.steps.iter().filter(|step| step.setting == start);
        let mut of_start: Vec<Cost> = of_start.map(|step| step.cost).collect();
        let mut of_best = vec![self.best.1];
        if best != start {
            for (setting, costs) in [(best, &mut of_best), (start, &mut of_start)] {
                let left_s = self.machine.left_s();
                let limit_s = match setting == best {
                    true => again_limit_s(left_s, self.took_s.0),
                    false => left_s,
                };
                let again = self.machine.measure(&setting, &Most::ANYTHING, limit_s)?;
                match again.end {
                    TrialEnd::Measured => {
                        self.push(setting, &again, StepVerdict::Again);
                        costs.push(again.cost);
                    }
                    // Much slower than before: what was found is not confirmed.
                    _ => {
                        self.push(setting, &again, StepVerdict::OutOfTime);
                        self.is_cut = true;
                    }
                }
            }
        }
        let objective = self.choices.objective;
        let of_equal = [&of_start, &of_best].map(|costs| DOUBT * apart(objective, costs));
        self.margin = of_equal.into_iter().fold(self.margin, f64::max);
        let quickest_start = least(objective, &of_start);
        let (of_start, of_best) = (middle(objective, of_start), middle(objective, of_best));
        let stays = best == start
            || match (self.keeps_window(&of_best), self.keeps_window(&of_start)) {
                (true, false) => false,
                (false, true) => true,
                (false, false) => of_start.pace() <= of_best.pace(),
                (true, true) => {
                    // Where equal measurements differ much, nobody knows what is as good.
                    let is_simpler = best.stripes < start.stripes && self.margin <= ALIKE;
                    let is_as_good = is_simpler && self.is_as_good(&of_best, &of_start);
                    // The worst of the best against the best of the start: the one was chosen for being lucky once.
                    !(is_as_good || self.is_better(&of_best, &quickest_start))
                }
            };
        let (setting, cost) = match stays {
            true => (start, of_start),
            false => (best, of_best),
        };
        Ok(Found {
            setting,
            cost,
            start: of_start,
            steps: self.steps,
            margin: self.margin,
            is_cut: self.is_cut,
        })
    }
}

/// The distance of equal measurements, as a part of the least.
fn apart(objective: Objective, costs: &[Cost]) -> f64 {
    let costs = costs.iter().map(|cost| objective.of(cost));
    let least = costs.clone().fold(f64::INFINITY, f64::min);
    let most = costs.fold(0.0, f64::max);
    (most - least) / least.max(f64::MIN_POSITIVE)
}

/// The least by what is compared, of at least one.
fn least(objective: Objective, costs: &[Cost]) -> Cost {
    let all = costs.iter().copied();
    all.reduce(|a, b| better_of(objective, a, b))
        .unwrap_or(costs[0])
}

/// The one in the middle by what is compared; of an even number, the worse one of the two.
fn middle(objective: Objective, mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| objective.of(a).total_cmp(&objective.of(b)));
    costs[costs.len() / 2]
}
