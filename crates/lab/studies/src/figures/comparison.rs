//! A figure's page: ours, the published values, and whether they agree.
//!
//! Invariants
//! - The verdict follows from the rounds: they agree or contradict only if all of them are on one side.
//! - Nothing is judged that was measured on another machine only, and nothing that was not measured here.
//! - Few rounds and a model are named before the insight in the headline.
//!
//! Leaves to others: the values (`measured.rs`), and the forms of a report (`report`).

use super::measured::{OurValues, Ours};
use super::published::{Figure, Paper, Published, Stance, Stated};
use crate::report::{
    At, Axis, Cell, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table, counted,
};
use crate::spread::RoundResults;

/// Fewer rounds say little about a spread.
const ENOUGH_ROUNDS: usize = 3;

/// How ours and the published statement compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Agrees,
    Contradicts,
    /// Rounds are on both sides.
    Undecided,
    /// Of another machine.
    Open,
    NotMeasured,
}

impl Verdict {
    pub fn of(row: &Published, results: Option<RoundResults>) -> Verdict {
        let Some(results) = results else {
            return Verdict::NotMeasured;
        };
        let on_side = |value: f64| match row.side {
            Stance::Above(bound) => value > bound,
            Stance::Below(bound) => value < bound,
            Stance::NearOne(most) => (value - 1.0).abs() <= most,
            Stance::Open => false,
        };
        match (row.side, on_side(results.min), on_side(results.max)) {
            (Stance::Open, ..) => Verdict::Open,
            // Both ends may be on either side of a narrow strip.
            (Stance::NearOne(_), false, false) if results.min < 1.0 && results.max > 1.0 => {
                Verdict::Undecided
            }
            (_, true, true) => Verdict::Agrees,
            (_, false, false) => Verdict::Contradicts,
            _ => Verdict::Undecided,
        }
    }

    fn text(self, row: &Published) -> &'static str {
        match self {
            Verdict::Open if row.stated == Stated::Picture => "no number published",
            Verdict::Agrees => "agrees",
            Verdict::Contradicts => "CONTRADICTS",
            Verdict::Undecided => "undecided: rounds on both sides",
            Verdict::Open => "another machine",
            Verdict::NotMeasured => "not measured here",
        }
    }
}

/// A row with what was found for it.
struct Judged<'a> {
    row: &'a Published,
    results: Option<RoundResults>,
    words: Option<&'a str>,
    verdict: Verdict,
}

impl Judged<'_> {
    fn of<'a>(row: &'a Published, measured: &'a OurValues) -> Judged<'a> {
        let results = measured.results(row.ours);
        let words = match row.ours {
            Ours::Fact(name) => measured.fact(name),
            _ => None,
        };
        let verdict = match words {
            Some(_) => Verdict::Open,
            None => Verdict::of(row, results),
        };
        Judged {
            row,
            results,
            words,
            verdict,
        }
    }

    fn ours(&self) -> Option<String> {
        let decimals = usize::from(self.row.decimals);
        match (self.results, self.words) {
            (Some(results), _) => Some(format!("{:.decimals$}", results.median)),
            (None, words) => words.map(str::to_owned),
        }
    }

    fn cells(&self, rounds: usize) -> Vec<Cell> {
        let row = self.row;
        let range = self.results.filter(|_| rounds > 1);
        let shown = match (row.stated.number(), row.unit) {
            (Some(_), unit) if !unit.is_empty() => {
                format!("{} {unit}", row.stated.shown(row.decimals))
            }
            _ => row.stated.shown(row.decimals),
        };
        let unit = |text: String| match row.unit {
            "" => text,
            unit if self.words.is_none() => format!("{text} {unit}"),
            _ => text,
        };
        let by = match (self.results, row.stated.number()) {
            (Some(ours), Some(published)) if published != 0.0 => Some(ours.median / published),
            _ => None,
        };
        vec![
            row.what.into(),
            shown.into(),
            self.ours().map(unit).into(),
            self.verdict.text(row).into(),
            range.map(|r| r.range(row.decimals.into())).into(),
            by.into(),
            row.sureness.word().into(),
        ]
    }

    /// A contradiction as the headline has it.
    fn contradiction(&self) -> Option<String> {
        if self.verdict != Verdict::Contradicts {
            return None;
        }
        let (row, ours) = (self.row, self.ours()?);
        let unit = match row.unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        Some(format!(
            "{}: published {}{}, here {ours}{unit}",
            row.what,
            row.stated.shown(row.decimals),
            if row.stated.number().is_some() {
                &unit
            } else {
                ""
            },
        ))
    }
}

/// The report of a figure.
pub fn report(
    paper: &Paper,
    figure: &Figure,
    measured: OurValues,
    machine: Vec<(String, String)>,
) -> Report {
    let judged: Vec<Judged> = figure
        .rows
        .iter()
        .map(|r| Judged::of(r, &measured))
        .collect();
    let summary = headline(&judged, &measured);
    let table = Table {
        columns: vec![
            Column::text("What"),
            Column::text("Published"),
            Column::text(match measured.is_modelled {
                true => "Ours, modelled",
                false => "Ours",
            }),
            Column::text("Verdict"),
            Column::text("min–max"),
            Column::number("Ours / published", "", 2),
            Column::text("Kind"),
        ],
        row_values: judged.iter().map(|j| j.cells(measured.rounds)).collect(),
    };
    let mut prose = vec![
        format!("The figure: {}", figure.shows),
        format!("The publication's claim: {}", figure.claim),
        format!("How ours was made: {}", figure.made_by),
        format!("What it cannot show: {}", figure.not_shown),
    ];
    let doubts = figure.doubts.iter();
    prose.extend(doubts.map(|doubt| format!("Doubt about the publication: {doubt}")));
    let first = Section {
        heading: "Ours and the published".into(),
        prose,
        charts: chart(&judged).into_iter().collect(),
        table: Some(table),
    };
    let mut platform = machine;
    platform.push(("Published on".into(), paper.machine.to_owned()));
    platform.push((
        "Rounds".into(),
        match (measured.rounds, measured.is_modelled) {
            (0, true) => "none: modelled".to_owned(),
            (0, false) => "none: facts of this machine".to_owned(),
            (rounds, _) => rounds.to_string(),
        },
    ));
    platform.extend(measured.conditions);
    let mut sections = vec![first];
    sections.extend(measured.sections);
    Report {
        title: format!("{}: {}", figure.id, figure.title),
        summary,
        platform,
        sections,
    }
}

/// Caveats, then the insight.
fn headline(judged: &[Judged], measured: &OurValues) -> String {
    let count = |verdict| judged.iter().filter(|j| j.verdict == verdict).count();
    let mut told = Vec::new();
    if measured.is_modelled {
        told.push("Modelled, not measured.".to_owned());
    } else if (1..ENOUGH_ROUNDS).contains(&measured.rounds) {
        told.push(format!(
            "Only {}, so chance may decide.",
            counted(measured.rounds, "round")
        ));
    }
    let (agrees, undecided) = (count(Verdict::Agrees), count(Verdict::Undecided));
    let wrong: Vec<String> = judged.iter().filter_map(Judged::contradiction).collect();
    let compared = agrees + undecided + wrong.len();
    if compared > 0 {
        told.push(format!(
            "Of {} that can be compared, {agrees} agree{}, {} contradict{}{}.",
            counted(compared, "published statement"),
            if agrees == 1 { "s" } else { "" },
            wrong.len(),
            if wrong.len() == 1 { "s" } else { "" },
            match undecided {
                0 => String::new(),
                n => format!(", {n} undecided"),
            }
        ));
    }
    if !wrong.is_empty() {
        told.push(format!("Contradicted: {}.", wrong.join("; ")));
    }
    told.extend(measured.findings.iter().cloned());
    if !measured.missing.is_empty() {
        told.push(format!("Not here: {}.", measured.missing.join("; ")));
    }
    told.join(" ")
}

/// Bars of what has a number on both sides, if all have one unit and none would flatten the others.
fn chart(judged: &[Judged]) -> Option<Chart> {
    const FLAT: f64 = 20.0;
    let both = |j: &&Judged| j.row.stated.number().is_some() && j.results.is_some();
    let rows: Vec<&Judged> = judged.iter().filter(both).collect();
    let unit = rows.first()?.row.unit;
    let published: Vec<f64> = rows.iter().filter_map(|j| j.row.stated.number()).collect();
    let ours: Vec<f64> = rows
        .iter()
        .filter_map(|j| Some(j.results?.median))
        .collect();
    let sizes = || published.iter().chain(&ours).map(|value| value.abs());
    let (least, most) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(0.0, f64::max),
    );
    if rows.iter().any(|j| j.row.unit != unit) || most > FLAT * least.max(1e-9) {
        return None;
    }
    let some = |values: Vec<f64>| values.into_iter().map(Some).collect();
    Some(Chart {
        title: "Published and ours".into(),
        form: ReportFormat::Bar,
        x: Positions {
            label: String::new(),
            unit: String::new(),
            at: At::Names(rows.iter().map(|j| j.row.what.to_owned()).collect()),
        },
        y: Axis::new("Value", unit),
        y_right: None,
        series: vec![
            Series::new("published", some(published)),
            Series::new("ours", some(ours)),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::published::Sureness;
    use super::*;

    fn verdict(side: Stance, min: f64, max: f64) -> Verdict {
        let stated = (Stated::UpTo(13.0), Sureness::Approximate);
        let row = Published::number("smaller", ("%", 1), stated, Ours::Nothing, side);
        Verdict::of(&row, RoundResults::of([min, max]))
    }

    #[test]
    fn only_rounds_on_one_side_decide() {
        assert_eq!(
            verdict(Stance::Above(0.0), -7.6, -7.5),
            Verdict::Contradicts
        );
        assert_eq!(verdict(Stance::Above(0.0), 1.0, 2.0), Verdict::Agrees);
        assert_eq!(verdict(Stance::Above(0.0), -1.0, 2.0), Verdict::Undecided);
        assert_eq!(verdict(Stance::Below(1.0), 0.5, 0.9), Verdict::Agrees);
        assert_eq!(verdict(Stance::NearOne(0.1), 0.95, 1.05), Verdict::Agrees);
        assert_eq!(verdict(Stance::NearOne(0.1), 0.5, 1.5), Verdict::Undecided);
        assert_eq!(
            verdict(Stance::NearOne(0.1), 1.5, 1.6),
            Verdict::Contradicts
        );
        assert_eq!(verdict(Stance::Open, 1.5, 1.6), Verdict::Open);
    }

    #[test]
    fn a_contradiction_and_its_sign_are_in_the_headline_after_the_caveats() {
        let stated = (Stated::About(13.0), Sureness::Approximate);
        let rows = [Published::number(
            "QAT_DEFLATE smaller than MS_XPRESS",
            ("%", 1),
            stated,
            Ours::Saving("qat", "xpress"),
            Stance::Above(0.0),
        )];
        let mut measured = OurValues::of_rounds(1);
        measured.add("qat", 107.6);
        measured.add("xpress", 100.0);
        let judged: Vec<Judged> = rows.iter().map(|r| Judged::of(r, &measured)).collect();
        assert_eq!(
            headline(&judged, &measured),
            "Only 1 round, so chance may decide. Of 1 published statement that can be compared, 0 agree, 1 contradicts. \
             Contradicted: QAT_DEFLATE smaller than MS_XPRESS: published about 13.0 %, here -7.6 %."
        );
        let cells = judged[0].cells(1);
        assert_eq!(cells[2], Cell::from("-7.6 %"));
        assert_eq!(cells[3], Cell::from("CONTRADICTS"));
    }
}
