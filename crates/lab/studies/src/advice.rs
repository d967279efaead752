//! Which candidate of a comparison to take.
//!
//! Invariants
//! - The rule can be checked in the report's table: of those that store at most [`LARGER_PERCENT`] more than the
//!   smallest, the quickest. NONE takes part: data that nothing makes smaller need no compression.
//! - A difference within the spread does not decide: of those that are as quick, the smallest is taken.
//! - The advice says what weakens it: few rounds, a busy machine, a target to which nothing is written.
//!
//! Leaves to others: measuring, and where the sentences stand (`compare.rs`).

use crate::spread::{ENOUGH_ROUNDS, RoundResults};

/// How much more than the smallest a candidate can store and still be taken. ZSTD LOW stores 5 and 8 % more than the
/// smallest on the two samples, in less than half the time: a limit of 5 % would decide by chance.
const LARGER_PERCENT: f64 = 10.0;

/// The results of one candidate.
#[derive(Debug, Clone)]
pub struct Measured {
    pub name: String,
    pub compresses: bool,
    pub time: RoundResults,
    pub stored_bytes: u64,
}

impl Measured {
    fn figures(&self) -> String {
        let megabytes = self.stored_bytes as f64 / 1e6;
        format!(
            "{} ({:.2} s, {megabytes:.1} MB)",
            self.name, self.time.median
        )
    }

    /// Whether the difference of their times is within the spread: each median is within the other's range. So one
    /// disturbed round alone makes no two alike.
    fn is_as_quick_as(&self, quickest: &Measured) -> bool {
        self.time.median <= quickest.time.max && self.time.min <= quickest.time.median
    }
}

/// How the times were measured.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    pub rounds: usize,
    /// Other programs used the CPUs.
    pub is_busy: bool,
    /// Nothing was written, so a small backup was no quicker for it.
    pub is_nul: bool,
}

/// The candidate to take, and the others that a reader may prefer.
#[derive(Debug)]
pub struct Advice<'a> {
    taken: &'a Measured,
    /// As quick, and not smaller.
    as_quick: Vec<&'a Measured>,
    /// The quickest that compresses, if that is another.
    for_time: Option<&'a Measured>,
}

impl<'a> Advice<'a> {
    /// `None` if nothing was measured.
    pub fn of(measured: &'a [Measured]) -> Option<Advice<'a>> {
        let smallest = measured.iter().map(|one| one.stored_bytes).min()?;
        let most = smallest as f64 * (1.0 + LARGER_PERCENT / 100.0);
        let small = measured
            .iter()
            .filter(|one| one.stored_bytes as f64 <= most);
        let quickest = quickest_of(small.clone())?;
        let mut as_quick: Vec<_> = small.filter(|one| one.is_as_quick_as(quickest)).collect();
        as_quick.sort_by(|a, b| {
            let by_time = a.time.median.total_cmp(&b.time.median);
            a.stored_bytes.cmp(&b.stored_bytes).then(by_time)
        });
        let taken = as_quick.remove(0);
        let for_time = quickest_of(measured.iter().filter(|one| one.compresses))
            .filter(|one| one.time.median < taken.time.median && !taken.is_as_quick_as(one));
        Some(Advice {
            taken,
            as_quick,
            for_time,
        })
    }

    /// For the headline of a report.
    pub fn headline(&self, conditions: Conditions) -> String {
        let few = match conditions.rounds {
            ENOUGH_ROUNDS.. => "",
            1 => ", by a single round",
            _ => ", by few rounds",
        };
        format!("take {}{few}", self.taken.figures())
    }

    /// The advice with its rule and with what weakens it.
    pub fn paragraph(&self, conditions: Conditions) -> String {
        let mut said = vec![format!(
            "Take {}: of those that store at most {LARGER_PERCENT} % more than the smallest, it is the quickest.",
            self.taken.figures()
        )];
        if !self.as_quick.is_empty() {
            let names: Vec<_> = self.as_quick.iter().map(|one| one.name.as_str()).collect();
            said.push(format!(
                "As quick within the spread, but not smaller: {}.",
                names.join(", ")
            ));
        }
        if let Some(one) = self.for_time {
            said.push(format!(
                "If time counts more than size, take {}, the quickest that compresses.",
                one.figures()
            ));
        }
        if conditions.rounds < ENOUGH_ROUNDS {
            said.push(format!(
                "So few rounds say little about the spread: repeat it with --rounds {ENOUGH_ROUNDS} before you decide."
            ));
        }
        if conditions.is_busy {
            said.push(
                "The machine had other work: repeat it on a quiet one before you decide.".into(),
            );
        }
        if conditions.is_nul {
            said.push(
                "Nothing was written: the slower the target, the more the smaller ones gain."
                    .into(),
            );
        }
        said.join(" ")
    }
}

fn quickest_of<'a>(some: impl Iterator<Item = &'a Measured>) -> Option<&'a Measured> {
    some.min_by(|a, b| a.time.median.total_cmp(&b.time.median))
}

/// Those than which no other is both quicker and smaller.
pub fn unbeaten(measured: &[Measured]) -> Option<String> {
    let is_beaten = |one: &Measured| {
        let beats = |other: &Measured| {
            other.time.median < one.time.median && other.stored_bytes < one.stored_bytes
        };
        measured.iter().any(beats)
    };
    let mut best: Vec<_> = measured.iter().filter(|one| !is_beaten(one)).collect();
    best.sort_by(|a, b| a.time.median.total_cmp(&b.time.median));
    let names: Vec<_> = best.iter().map(|one| one.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "No other is both quicker and smaller than these, by their medians, the quickest first: {}.",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Conditions = Conditions {
        rounds: 3,
        is_busy: false,
        is_nul: false,
    };

    fn one(name: &str, times: [f64; 3], megabytes: f64) -> Measured {
        Measured {
            name: name.into(),
            compresses: name != "NONE",
            time: RoundResults::of(times).unwrap(),
            stored_bytes: (megabytes * 1e6) as u64,
        }
    }

    /// A run of `make demo`.
    fn demo() -> Vec<Measured> {
        vec![
            one("NONE", [0.08, 0.10, 0.24], 208.9),
            one("MS_XPRESS LOW", [2.92, 3.10, 3.38], 129.0),
            one("QAT_DEFLATE LOW", [1.09, 1.43, 1.46], 131.6),
            one("QAT_DEFLATE MEDIUM", [2.00, 2.12, 2.46], 130.8),
            one("QAT_DEFLATE 4", [2.40, 2.67, 2.71], 128.7),
            one("QAT_DEFLATE HIGH", [3.99, 5.36, 5.63], 126.4),
            one("ZSTD LOW", [0.81, 1.25, 1.38], 132.8),
            one("ZSTD MEDIUM", [2.68, 3.00, 4.97], 129.5),
            one("LZ4 LOW", [0.46, 0.49, 0.79], 169.5),
        ]
    }

    fn taken(measured: &[Measured]) -> &str {
        &Advice::of(measured).unwrap().taken.name
    }

    #[test]
    fn the_quickest_of_the_small_ones_is_advised_with_its_rule_and_with_what_weakens_it() {
        let demo = demo();
        let advice = Advice::of(&demo).unwrap();
        assert_eq!(
            advice.paragraph(QUIET),
            "Take ZSTD LOW (1.25 s, 132.8 MB): of those that store at most 10 % more than the smallest, it is the \
             quickest. If time counts more than size, take LZ4 LOW (0.49 s, 169.5 MB), the quickest that compresses."
        );
        assert_eq!(advice.headline(QUIET), "take ZSTD LOW (1.25 s, 132.8 MB)");
        let weak = Conditions {
            rounds: 1,
            is_busy: true,
            is_nul: true,
        };
        let said = advice.paragraph(weak);
        for weakness in ["So few rounds", "other work", "Nothing was written"] {
            assert!(said.contains(weakness), "{said}");
        }
        assert!(advice.headline(weak).ends_with(", by a single round"));
        assert!(Advice::of(&[]).is_none());
    }

    #[test]
    fn a_difference_within_the_spread_does_not_decide_and_one_disturbed_round_makes_no_two_alike() {
        let mut demo = demo();
        demo[6] = one("ZSTD LOW", [0.81, 1.25, 1.50], 132.8);
        let advice = Advice::of(&demo).unwrap();
        assert_eq!(advice.taken.name, "QAT_DEFLATE LOW");
        let said = advice.paragraph(QUIET);
        assert!(
            said.contains("As quick within the spread, but not smaller: ZSTD LOW."),
            "{said}"
        );
        demo[6] = one("ZSTD LOW", [1.20, 1.25, 9.00], 132.8);
        demo[2] = one("QAT_DEFLATE LOW", [1.40, 1.43, 1.46], 131.6);
        assert_eq!(taken(&demo), "ZSTD LOW");
    }

    #[test]
    fn data_that_nothing_makes_smaller_are_not_compressed() {
        let measured = [
            one("ZSTD LOW", [0.9, 1.0, 1.1], 99.0),
            one("NONE", [0.1, 0.1, 0.1], 100.0),
            one("LZ4 LOW", [0.2, 0.2, 0.3], 100.0),
        ];
        let advice = Advice::of(&measured).unwrap();
        assert_eq!(advice.taken.name, "NONE");
        assert!(advice.for_time.is_none());
    }

    #[test]
    fn only_what_another_beats_in_both_is_missing_among_the_unbeaten() {
        let said = unbeaten(&demo()).unwrap();
        let (_, names) = said.split_once(": ").unwrap();
        assert_eq!(
            names,
            "NONE, LZ4 LOW, ZSTD LOW, QAT_DEFLATE LOW, QAT_DEFLATE MEDIUM, QAT_DEFLATE 4, QAT_DEFLATE HIGH."
        );
    }
}
