//! The findings of a study as data, in no form yet.
//!
//! Invariants
//! - A value that was not measured is `None` or [`Cell::Absent`]; it is never 0.
//! - Every row of a table has an entry for each column, and every series a value for each position.
//!
//! Leaves to others: each form (`html.rs`, `markdown.rs`, `text.rs`).

use serde::{Deserialize, Serialize};

use crate::platform;

/// The findings of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub title: String,
    /// One or two sentences: the result first.
    pub summary: String,
    /// Where it was measured: name and value.
    pub platform: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

impl Report {
    /// Names the program's release, with the commit that it was built of: only the program knows that.
    pub fn name_release(&mut self, release: String) {
        let own = |row: &&mut (String, String)| row.0 == platform::RELEASE;
        if let Some(row) = self.platform.iter_mut().find(own) {
            row.1 = release;
        }
    }

    /// Reads the form that a report has as JSON.
    pub fn from_json(text: &str) -> anyhow::Result<Report> {
        Ok(serde_json::from_str(text)?)
    }

    /// Puts another report's title, summary, facts and sections first.
    pub fn begin_with(&mut self, first: Report) {
        self.title = first.title;
        self.summary = [first.summary, std::mem::take(&mut self.summary)].join(" ");
        self.platform.splice(0..0, first.platform);
        self.sections.splice(0..0, first.sections);
    }

    /// Moves the machine's parts from the head into a table at the end: one line stands for them there.
    pub fn tell_parts_last(&mut self) {
        let (parts, head) = std::mem::take(&mut self.platform)
            .into_iter()
            .partition::<Vec<_>, _>(|(name, _)| platform::is_part(name));
        self.platform = head;
        if parts.is_empty() {
            return;
        }
        let rows = parts
            .into_iter()
            .map(|(name, value)| vec![name.into(), value.into()]);
        self.sections.push(Section {
            heading: "The machine".into(),
            prose: vec!["What the machine does not tell this user is left out.".into()],
            table: Some(Table {
                columns: vec![Column::text("Part"), Column::text("Here")],
                row_values: rows.collect(),
            }),
            charts: Vec::new(),
        });
    }

    /// Puts the reasons against quoting the figures before the headline, so that nobody quotes one without the other:
    /// a `quick` run, a machine busy with other work, libraries or devices that are not the machine's own.
    pub fn caution(&mut self, quick: bool) {
        let mut cautions = Vec::new();
        if quick {
            cautions.push("Quick run, too short and too small to quote.".to_owned());
        }
        if let Some(busy) = platform::busy_percent(&self.platform) {
            cautions.push(format!(
                "Other programs kept the machine {busy:.0} % busy before the run, so its times mean little."
            ));
        }
        if let Some(overridden) = platform::row(&self.platform, platform::OVERRIDDEN) {
            cautions.push(format!(
                "Not this machine's own libraries or devices: {overridden}."
            ));
        }
        cautions.push(std::mem::take(&mut self.summary));
        cautions.retain(|caution| !caution.is_empty());
        self.summary = cautions.join(" ");
    }
}

/// One question of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    pub heading: String,
    /// Paragraphs.
    pub prose: Vec<String>,
    pub table: Option<Table>,
    pub charts: Vec<Chart>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Each as long as `columns`. Reports of earlier versions call them `rows`.
    #[serde(alias = "rows")]
    pub row_values: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    /// Empty for text and for bare numbers.
    pub unit: String,
    /// Digits after the point, 0 to 9.
    pub decimals: u8,
}

impl Column {
    pub fn text(name: &str) -> Column {
        Column::number(name, "", 0)
    }

    pub fn number(name: &str, unit: &str, decimals: u8) -> Column {
        Column {
            name: name.into(),
            unit: unit.into(),
            decimals,
        }
    }
}

/// One entry of a table. `null` in JSON is a value that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Number(f64),
    Text(String),
    Absent,
}

impl Cell {
    /// The entry in its printed form, with the column's decimals.
    pub(super) fn shown(&self, column: &Column) -> String {
        match self {
            // JSON has no infinity and no NaN, and they are of no use to a reader.
            Cell::Number(number) if number.is_finite() => {
                format!("{number:.*}", usize::from(column.decimals.min(9)))
            }
            Cell::Text(text) => text.clone(),
            Cell::Number(_) | Cell::Absent => "–".into(),
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Absent, Into::into)
    }
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// One plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub title: String,
    pub form: ReportFormat,
    pub x: Positions,
    pub y: Axis,
    /// The axis of the series on [`Side::Right`].
    pub y_right: Option<Axis>,
    pub series: Vec<Series>,
}

/// Which values of bars are the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Best {
    Least,
    Most,
}

impl Chart {
    /// Bars of all series over places with names, in the order in which they are given. `places` says what they are.
    pub fn bars(
        title: &str,
        places: &str,
        names: Vec<String>,
        y: Axis,
        series: Vec<Series>,
    ) -> Chart {
        Chart {
            title: title.into(),
            form: ReportFormat::Bar,
            x: Positions {
                label: places.into(),
                unit: String::new(),
                at: At::Names(names),
            },
            y,
            y_right: None,
            series,
        }
    }

    /// The same with its bars in the order of the first series' values, where the places have no order of their own. The
    /// axis says so. Values that were not measured come last.
    pub fn sorted(mut self, best: Best) -> Chart {
        let At::Names(names) = &self.x.at else {
            return self;
        };
        let Some(first) = self.series.first() else {
            return self;
        };
        let worth = |n: &usize| {
            let value = first.values.get(*n).copied().flatten();
            let value = value.filter(|v| v.is_finite()).unwrap_or(match best {
                Best::Least => f64::INFINITY,
                Best::Most => f64::NEG_INFINITY,
            });
            match best {
                Best::Least => value,
                Best::Most => -value,
            }
        };
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
        let names = order
            .iter()
            .filter_map(|&n| names.get(n).cloned())
            .collect();
        for series in &mut self.series {
            let own = order.iter().map(|&n| series.values.get(n).copied());
            series.values = own.map(Option::flatten).collect();
        }
        self.x.at = At::Names(names);
        self.x.label = match self.x.label.as_str() {
            "" => "best first".to_owned(),
            label => format!("{label}, best first"),
        };
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    Line,
    /// Bars of all series side by side.
    Bar,
    /// Points with their series' names next to them.
    Scatter,
    /// A row for each series and a column for each position. The values are ratios: 1 is in the middle of the colours.
    Map,
}

/// How far a ratio is from 1, in steps of a map's colours: -3 to 3.
pub(super) fn step(ratio: f64) -> i32 {
    let steps = STEPS.iter().filter(|step| ratio >= **step).count() as i32;
    let below = STEPS.iter().filter(|step| ratio <= 1.0 / **step);
    steps - below.count() as i32
}

/// Ratios at which a colour of a map begins.
const STEPS: [f64; 3] = [1.1, 2.0, 4.0];

/// A vertical axis. It begins at 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    pub label: String,
    pub unit: String,
    /// The least upper end, for scales with a natural end such as 100 %.
    pub max: Option<f64>,
}

impl Axis {
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis {
            label: label.into(),
            unit: unit.into(),
            max: None,
        }
    }
}

/// The horizontal axis and the places on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Positions {
    pub label: String,
    pub unit: String,
    #[serde(rename = "positions")]
    pub at: At,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// Evenly spaced.
    Names(Vec<String>),
    /// Spaced by value; ascending.
    Numbers(Vec<f64>),
}

/// One line, or one colour of bars. A name looks alike in all charts of a section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub axis: Side,
    /// For references and limits next to the measured series.
    pub dashed: bool,
    /// Its line passes places at which it has no value, because other series have points there.
    #[serde(default)]
    pub is_joined: bool,
    /// The series whose colour it has, of which it shows a part or another state.
    #[serde(default)]
    pub like: Option<String>,
    /// One for each position.
    pub values: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Left,
    Right,
}

impl Series {
    pub fn new(name: &str, values: Vec<Option<f64>>) -> Series {
        Series {
            name: name.into(),
            axis: Side::Left,
            dashed: false,
            is_joined: false,
            like: None,
            values,
        }
    }

    /// The same, with a line that passes places at which it has no value.
    pub fn joined(self) -> Series {
        Series {
            is_joined: true,
            ..self
        }
    }

    /// The same in the colour of another series of its chart.
    pub fn like(self, name: &str) -> Series {
        Series {
            like: Some(name.into()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_bars_keep_their_names_and_what_was_not_measured_is_last() {
        let chart = |best| {
            let names = ["a", "b", "c", "d"].map(str::to_owned);
            let series = vec![
                Series::new("first", vec![Some(3.0), None, Some(1.0), Some(2.0)]),
                Series::new("second", vec![Some(30.0), Some(5.0), Some(10.0), None]),
            ];
            let elapsed = Axis::new("Elapsed", "s");
            Chart::bars("Time", "Algorithm", names.into(), elapsed, series).sorted(best)
        };
        let least = chart(Best::Least);
        assert_eq!(
            least.x.at,
            At::Names(["c", "d", "a", "b"].map(str::to_owned).into())
        );
        assert_eq!(least.x.label, "Algorithm, best first");
        assert_eq!(
            least.series[1].values,
            [Some(10.0), None, Some(30.0), Some(5.0)]
        );
        assert_eq!(
            chart(Best::Most).x.at,
            At::Names(["a", "d", "c", "b"].map(str::to_owned).into())
        );
    }
}
