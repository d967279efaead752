//! Our own values for a figure: numbers by round, words, and what could not be had here.
//!
//! Invariants
//! - A value that was not measured is absent, never 0.
//! - A quantity of two values is taken within a round, so that a drift in the machine's speed affects it little. A round
//!   that lacks one of them has no such quantity.
//! - A value of a model is marked, and the mark reaches the headline.
//!
//! Leaves to others: measuring (`trials.rs` and the studies), and judging (`comparison.rs`).

use std::collections::BTreeMap;

use longshore_pipeline::pages;

use crate::report::Section;
use crate::spread::RoundResults;
use crate::timing::Timing;
use crate::volumes::TargetVolumes;

/// Which of our quantities a row compares with. The names are keys of [`OurValues`]; a quantity of two is taken within each
/// round.
#[derive(Debug, Clone, Copy)]
pub enum Ours {
    Value(&'static str),
    /// The first divided by the second.
    Ratio(&'static str, &'static str),
    /// By how many percent the first is smaller than the second; below 0 it is larger.
    Saving(&'static str, &'static str),
    /// By how many percent the first is larger than the second.
    Gain(&'static str, &'static str),
    /// The first without the second.
    Difference(&'static str, &'static str),
    /// The larger of two quantities.
    Larger(&'static Ours, &'static Ours),
    /// The first quantity divided by the second.
    Quotient(&'static Ours, &'static Ours),
    /// Words, such as a processor's name.
    Fact(&'static str),
    /// No study here can have it.
    Nothing,
}

/// Values by their round; a round without one was not measured.
type ByRound = BTreeMap<usize, f64>;

/// The findings of a study for a figure.
#[derive(Debug, Clone, Default)]
pub struct OurValues {
    values: BTreeMap<String, ByRound>,
    facts: BTreeMap<String, String>,
    /// Tables and charts of the study.
    pub sections: Vec<Section>,
    /// Name and value, for the head of the report.
    pub conditions: Vec<(String, String)>,
    /// How often each was measured; 0 for a model and for facts, which have no rounds.
    pub rounds: usize,
    /// Nothing was measured: a model made the values.
    pub is_modelled: bool,
    /// By name, what this machine does not have.
    pub missing: Vec<String>,
    /// Further sentences for the headline.
    pub findings: Vec<String>,
    /// Sentences that the headline has before the findings.
    pub cautions: Vec<String>,
    /// The volumes of backups to several, or to emulated ones.
    pub volumes: Option<TargetVolumes>,
}

impl OurValues {
    pub fn of_rounds(rounds: usize) -> OurValues {
        OurValues {
            rounds,
            ..OurValues::default()
        }
    }

    /// Adds the value of a study that has one round or none.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.add_in(0, name, value);
    }

    /// Adds the value of a round. One that is no number was not measured.
    pub fn add_in(&mut self, round: usize, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            let values = self.values.entry(name.into()).or_default();
            values.insert(round, value);
        }
    }

    pub fn tell(&mut self, name: impl Into<String>, words: impl Into<String>) {
        self.facts.insert(name.into(), words.into());
    }

    /// The figures of one backup, each under `TRIAL/FIGURE`.
    pub fn add_backup(&mut self, round: usize, trial: &str, taken: &Timing) {
        let rate = |bytes: u64| bytes as f64 / f64::from(1 << 20) / taken.wall_s.max(1e-9);
        for (figure, value) in [
            ("s", Some(taken.wall_s)),
            ("mb_s", Some(taken.mb_per_s())),
            ("write_mb_s", Some(rate(taken.stored_bytes))),
            ("cpu", taken.system_cpu_percent),
            ("cpu_s_gb", Some(taken.cpu_s_per_gb())),
            ("bytes", Some(taken.stored_bytes as f64)),
            ("mib", Some(taken.stored_bytes as f64 / f64::from(1 << 20))),
            (
                "plain_mib",
                Some(taken.plain_bytes as f64 / f64::from(1 << 20)),
            ),
            ("pages", Some(pages(taken.plain_bytes) as f64)),
            ("ratio", Some(taken.ratio())),
            ("buffers", Some(taken.buffers.0 as f64)),
            ("cpu_c", taken.cpu_c),
            ("drive_c", taken.drive_c),
            ("read_us", taken.read_latency_us()),
        ] {
            if let Some(value) = value {
                self.add_in(round, format!("{trial}/{figure}"), value);
            }
        }
    }

    /// Gives the figures of a trial a second name.
    pub fn alias(&mut self, trial: &str, name: &str) {
        let own = format!("{trial}/");
        let found: Vec<(String, ByRound)> = self
            .values
            .iter()
            .filter_map(|(key, values)| {
                let figure = key.strip_prefix(&own).filter(|f| !f.contains('/'))?;
                Some((format!("{name}/{figure}"), values.clone()))
            })
            .collect();
        self.values.extend(found);
    }

    /// Puts the chart of this title first in its section: the one that the figure is about.
    pub fn led_by(mut self, title: &str) -> OurValues {
        for section in &mut self.sections {
            section.charts.sort_by_key(|chart| chart.title != title);
        }
        self
    }

    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// The results of a quantity over the rounds; `None` if it was not measured.
    pub fn results(&self, ours: Ours) -> Option<RoundResults> {
        RoundResults::of(self.by_round(ours).into_values())
    }

    /// How many rounds have this quantity.
    pub fn rounds_of(&self, ours: Ours) -> usize {
        self.by_round(ours).len()
    }

    fn by_round(&self, ours: Ours) -> ByRound {
        let of = |name: &str| self.values.get(name).cloned().unwrap_or_default();
        match ours {
            Ours::Value(name) => of(name),
            Ours::Ratio(a, b) => both(&of(a), &of(b), |a, b| a / b),
            Ours::Saving(a, b) => both(&of(a), &of(b), |a, b| 100.0 * (1.0 - a / b)),
            Ours::Gain(a, b) => both(&of(a), &of(b), |a, b| 100.0 * (a / b - 1.0)),
            Ours::Difference(a, b) => both(&of(a), &of(b), |a, b| a - b),
            Ours::Larger(a, b) => both(&self.by_round(*a), &self.by_round(*b), f64::max),
            Ours::Quotient(a, b) => both(&self.by_round(*a), &self.by_round(*b), |a, b| a / b),
            Ours::Fact(_) | Ours::Nothing => ByRound::new(),
        }
    }

    pub fn median(&self, name: &str) -> Option<f64> {
        let values = self.values.get(name)?;
        crate::spread::median(values.values().copied())
    }
}

/// A quantity of two in each round that has both.
fn both(a: &ByRound, b: &ByRound, value: fn(f64, f64) -> f64) -> ByRound {
    let pairs = a
        .iter()
        .filter_map(|(round, a)| Some((round, a, b.get(round)?)));
    let values = pairs.map(|(round, a, b)| (*round, value(*a, *b)));
    values.filter(|(_, value)| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_of_two_is_taken_within_each_round() {
        let mut measured = OurValues::default();
        for (round, (a, b)) in [(2.0, 1.0), (30.0, 10.0)].into_iter().enumerate() {
            measured.add_in(round, "a", a);
            measured.add_in(round, "b", b);
        }
        let ratio = measured.results(Ours::Ratio("a", "b")).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.5, 3.0));
        let saving = measured.results(Ours::Saving("a", "b")).unwrap();
        assert_eq!(saving.median, -150.0, "larger, so below 0");
        assert_eq!(measured.results(Ours::Value("c")), None);
        measured.add("zero", 0.0);
        assert_eq!(measured.results(Ours::Ratio("a", "zero")), None);
        let larger = Ours::Larger(&Ours::Ratio("a", "b"), &Ours::Value("b"));
        let larger = measured.results(larger).unwrap();
        assert_eq!((larger.min, larger.max), (2.0, 10.0));
    }

    /// The first round of one trial did not count: its second must not meet the first of the other.
    #[test]
    fn a_round_that_lacks_one_of_two_has_no_quantity_of_both() {
        let mut measured = OurValues::of_rounds(3);
        for (round, xpress) in [10.0, 20.0, 40.0].into_iter().enumerate() {
            measured.add_in(round, "xpress", xpress);
        }
        measured.add_in(1, "hard", 10.0);
        measured.add_in(2, "hard", 20.0);
        const SPEED_UP: Ours = Ours::Ratio("xpress", "hard");
        let results = measured.results(SPEED_UP).unwrap();
        assert_eq!((results.min, results.max), (2.0, 2.0));
        assert_eq!(measured.rounds_of(SPEED_UP), 2);
        assert_eq!(measured.rounds_of(Ours::Value("xpress")), 3);
        let apart = Ours::Quotient(&SPEED_UP, &Ours::Value("none"));
        assert_eq!(
            (measured.results(apart), measured.rounds_of(apart)),
            (None, 0)
        );
    }
}
