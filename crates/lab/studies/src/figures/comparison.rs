//! A figure's page: ours, the published values, and whether they agree.
//!
//! Invariants
//! - The verdict follows from the rounds: they agree or contradict only if all of them are on one side.
//! - Nothing is judged that was measured on another machine only, and nothing that was not measured here.
//! - A statement that cannot fail here is shown and not counted.
//! - Few rounds and a model are named before the insight in the headline.
//!
//! Leaves to others: the values (`measured.rs`), and the forms of a report (`report`).

use super::measured::{OurValues, Ours};
use super::published::{Figure, Paper, Published, Stance, Stated};
use crate::report::{Axis, Cell, Chart, Column, Report, Section, Series, Table, counted};
use crate::spread::{ENOUGH_ROUNDS, RoundResults, caution};

/// How ours and the published statement compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Agrees,
    Contradicts,
    /// Rounds are on both sides.
    Undecided,
    /// Cannot fail here.
    Implied,
    /// Of another machine.
    Open,
    NotMeasured,
}

impl Verdict {
    pub fn of(row: &Published, results: Option<RoundResults>) -> Verdict {
        let Some(results) = results else {
            return Verdict::NotMeasured;
        };
        let Some((low, high)) = row.side.limits() else {
            return match row.side {
                Stance::Implied => Verdict::Implied,
                _ => Verdict::Open,
            };
        };
        if low < results.min && results.max < high {
            Verdict::Agrees
        } else if results.max <= low || high <= results.min {
            Verdict::Contradicts
        } else {
            Verdict::Undecided
        }
    }

    fn text(self, row: &Published) -> &'static str {
        match self {
            Verdict::Open if row.stated == Stated::Picture => "no number published",
            Verdict::Agrees => "agrees",
            Verdict::Contradicts => "CONTRADICTS",
            Verdict::Undecided => "undecided: rounds on both sides",
            Verdict::Implied => "implied, not counted",
            Verdict::Open => "another machine",
            Verdict::NotMeasured => "not measured here",
        }
    }
}

/// A row with what was found for it.
struct Judged<'a> {
    row: &'a Published,
    results: Option<RoundResults>,
    /// That have the row's quantity.
    rounds: usize,
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
            rounds: measured.rounds_of(row.ours),
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

    fn is_compared(&self) -> bool {
        use Verdict::{Agrees, Contradicts, Undecided};
        matches!(self.verdict, Agrees | Contradicts | Undecided)
    }

    fn cells(&self) -> Vec<Cell> {
        let row = self.row;
        let range = self.results.filter(|_| self.rounds > 1);
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
        row_values: judged.iter().map(Judged::cells).collect(),
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
        heading: match measured.is_modelled {
            true => "Ours (modelled) and the published".into(),
            false => "Ours and the published".into(),
        },
        prose,
        charts: chart(&judged, measured.is_modelled).into_iter().collect(),
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
    } else {
        told.extend(caution(measured.rounds));
    }
    told.extend(measured.cautions.iter().cloned());
    let fewest = judged.iter().filter(|j| j.is_compared()).map(|j| j.rounds);
    // A backup that did not count leaves a gap in its round.
    if let Some(rounds) = fewest
        .min()
        .filter(|n| *n < ENOUGH_ROUNDS.min(measured.rounds))
    {
        told.push(format!(
            "Only {} for some statements, so chance may decide them.",
            counted(rounds, "round")
        ));
    }
    let (agrees, undecided) = (count(Verdict::Agrees), count(Verdict::Undecided));
    let wrong: Vec<String> = judged.iter().filter_map(Judged::contradiction).collect();
    let compared = judged.iter().filter(|j| j.is_compared()).count();
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
fn chart(judged: &[Judged], is_modelled: bool) -> Option<Chart> {
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
    let title = match is_modelled {
        true => "Published and ours (modelled)",
        false => "Published and ours",
    };
    let names = rows.iter().map(|j| j.row.what.to_owned()).collect();
    let series = vec![
        Series::new("published", some(published)),
        Series::new("ours", some(ours)),
    ];
    let value = Axis::new("Value", unit);
    Some(Chart::bars(title, "", names, value, series))
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
        let slightly = Stance::Between(1.0, 1.25);
        assert_eq!(verdict(slightly, 1.1, 1.2), Verdict::Agrees);
        assert_eq!(verdict(slightly, 0.9, 1.3), Verdict::Undecided);
        assert_eq!(verdict(slightly, 1.3, 9.0), Verdict::Contradicts);
        assert_eq!(verdict(slightly, 0.8, 0.9), Verdict::Contradicts);
        assert_eq!(verdict(Stance::Open, 1.5, 1.6), Verdict::Open);
        assert_eq!(verdict(Stance::Implied, -1.0, 1.6), Verdict::Implied);
    }

    const MADE_UP: &[Published] = &[
        Published::order(
            "faster",
            ("×", 2),
            "faster",
            Ours::Value("fast"),
            Stance::Above(1.0),
        ),
        Published::order(
            "slower",
            ("×", 2),
            "slower",
            Ours::Value("fast"),
            Stance::Below(1.0),
        ),
        Published::order(
            "equal",
            ("×", 2),
            "equal",
            Ours::Value("both"),
            Stance::NearOne(0.1),
        ),
        Published::order(
            "smaller",
            ("%", 1),
            "smaller",
            Ours::Value("none"),
            Stance::Above(0.0),
        ),
        Published::order(
            "not here",
            ("", 0),
            "any",
            Ours::Nothing,
            Stance::Above(0.0),
        ),
        Published::order(
            "by its make",
            ("×", 2),
            "more",
            Ours::Value("fast"),
            Stance::Implied,
        ),
        Published::number(
            "theirs",
            ("s", 1),
            (Stated::Number(40.0), Sureness::Exact),
            Ours::Value("fast"),
            Stance::Open,
        ),
        Published::picture("in a picture", ("s", 1), Ours::Value("fast")),
        Published::fact("a fact", "theirs", "word"),
    ];

    /// Made-up numbers of three rounds: one above 1 in all of them, one on both sides, and one that was not measured.
    #[test]
    fn each_verdict_has_its_word_and_what_was_not_measured_has_none() {
        let mut measured = OurValues::of_rounds(3);
        for (round, both) in [0.8, 1.0, 1.3].into_iter().enumerate() {
            measured.add_in(round, "fast", 2.0 + both);
            measured.add_in(round, "both", both);
            measured.add_in(round, "none", f64::NAN);
        }
        measured.tell("word", "ours");
        let figure = Figure {
            id: "S9.F9",
            title: "Made up",
            shows: "",
            rows: MADE_UP,
            claim: "",
            doubts: &[],
            made_by: "",
            not_shown: "",
            make: |_| Ok(OurValues::default()),
        };
        let paper = Paper {
            name: "Nobody's",
            machine: "none",
            figures: &[],
        };
        let report = report(&paper, &figure, measured, Vec::new());
        let rows = &report.sections[0].table.as_ref().unwrap().row_values;
        let verdicts: Vec<&Cell> = rows.iter().map(|row| &row[3]).collect();
        let expected = [
            "agrees",
            "CONTRADICTS",
            "undecided: rounds on both sides",
            "not measured here",
            "not measured here",
            "implied, not counted",
            "another machine",
            "no number published",
            "another machine",
        ];
        assert_eq!(
            verdicts,
            expected.map(Cell::from).iter().collect::<Vec<_>>()
        );
        // A row of which nothing was measured has neither a number nor a range nor a share of the published one.
        for row in &rows[3..5] {
            assert_eq!([&row[2], &row[4], &row[5]], [&Cell::Absent; 3], "{row:?}");
        }
        assert_eq!(
            report.summary,
            "Of 3 published statements that can be compared, 1 agrees, 1 contradicts, 1 undecided. Contradicted: slower: \
             published slower, here 3.00 ×."
        );
    }

    #[test]
    fn what_cannot_fail_is_not_counted_and_gaps_are_told() {
        let row = |what, ours, side| Published::order(what, ("×", 2), "more", ours, side);
        let rows = [
            row("size", Ours::Ratio("none", "xpress"), Stance::Implied),
            row("time", Ours::Ratio("xpress", "hard"), Stance::Above(1.0)),
        ];
        let mut measured = OurValues::of_rounds(3);
        for round in 0..3 {
            measured.add_in(round, "none", 3.0);
            measured.add_in(round, "xpress", 2.0);
        }
        measured.add_in(2, "hard", 1.0);
        let judged: Vec<Judged> = rows.iter().map(|r| Judged::of(r, &measured)).collect();
        assert_eq!(
            headline(&judged, &measured),
            "Only 1 round for some statements, so chance may decide them. Of 1 published statement that can be compared, \
             1 agrees, 0 contradict."
        );
        let (size, time) = (judged[0].cells(), judged[1].cells());
        assert_eq!(size[3], Cell::from("implied, not counted"));
        assert_eq!(size[4], Cell::from("1.50–1.50"));
        assert_eq!(time[4], Cell::from(None::<String>));
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
        let cells = judged[0].cells();
        assert_eq!(cells[2], Cell::from("-7.6 %"));
        assert_eq!(cells[3], Cell::from("CONTRADICTS"));
    }
}
