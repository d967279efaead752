//! The numbers of charts as tables, for forms that draw nothing, and for whoever cannot see a drawing.
//!
//! Invariants
//! - A chart whose numbers all stand in its section's table has no second one. A number stands there only in the row of its
//!   place and the column of its quantity, or in the row of its series and the column of its place: the same number anywhere
//!   else is another's. Rows that cannot be told apart must all have it.
//! - A table has a row for each place of the chart that has a value, and a column for each series.
//!
//! Leaves to others: the tables of studies (`data.rs`), and writing tables (each form).

use super::data::{At, Axis, Cell, Chart, Column, Section, Series, Side, Table};

/// The charts of a section whose numbers its table has not, each with a table of them.
pub fn untold(section: &Section) -> Vec<(&Chart, Table)> {
    let is_told = |chart: &&Chart| {
        let mut drawn = chart.series.iter().filter(|s| points(s).next().is_some());
        let is_in =
            |table: &Table, s: &Series| is_column(chart, s, table) || is_row(chart, s, table);
        drawn.all(|series| {
            section
                .table
                .as_ref()
                .is_some_and(|table| is_in(table, series))
        })
    };
    let untold = section.charts.iter().filter(|chart| !is_told(chart));
    untold.map(|chart| (chart, table(chart))).collect()
}

/// The places of a series that have a value.
fn points(series: &Series) -> impl Iterator<Item = (usize, f64)> {
    let values = series.values.iter().enumerate();
    values.filter_map(|(n, value)| Some((n, value.filter(|v| v.is_finite())?)))
}

fn axis_of<'a>(chart: &'a Chart, series: &Series) -> &'a Axis {
    match (series.axis, &chart.y_right) {
        (Side::Right, Some(right)) => right,
        _ => &chart.y,
    }
}

/// One column has the series: it is named after the series or its axis, and the row of each place has the value.
fn is_column(chart: &Chart, series: &Series, table: &Table) -> bool {
    let axis = axis_of(chart, series);
    let mut columns = table.columns.iter().enumerate();
    columns.any(|(at, column)| {
        let is_named_after = |name: &str| column.name.eq_ignore_ascii_case(name);
        let is_own = is_named_after(&series.name);
        if column.unit != axis.unit || !(is_own || is_named_after(&axis.label)) {
            return false;
        }
        // The column of an axis is that of all its series, so the row must be the series'.
        let is_alone = is_own || chart.series.len() == 1;
        points(series).all(|(n, value)| {
            let rows = table.row_values.iter();
            let rows = rows.filter(|row| is_of_place(chart, n, table, row));
            all_have(
                rows.filter(|row| is_alone || is_called(row, &series.name)),
                at,
                value,
            )
        })
    })
}

/// The rows of the series' name have each value in the column of its place.
fn is_row(chart: &Chart, series: &Series, table: &Table) -> bool {
    let At::Names(places) = &chart.x.at else {
        return false;
    };
    let axis = axis_of(chart, series);
    points(series).all(|(n, value)| {
        let place = places.get(n).map_or("", String::as_str);
        let numbered = format!("{} {place}", axis.label);
        let is_place = |c: &Column| c.unit == axis.unit && (c.name == place || c.name == numbered);
        let at = table.columns.iter().position(is_place);
        let rows = table.row_values.iter();
        let rows = rows.filter(|row| is_called(row, &series.name));
        at.is_some_and(|at| all_have(rows, at, value))
    })
}

/// The row is that of the chart's place: by its name, or by its number in the column of the horizontal axis.
fn is_of_place(chart: &Chart, n: usize, table: &Table, row: &[Cell]) -> bool {
    match &chart.x.at {
        At::Names(places) => places.get(n).is_some_and(|place| is_called(row, place)),
        At::Numbers(places) => {
            let is_axis = |c: &Column| c.name == chart.x.label && c.unit == chart.x.unit;
            let mut own = table.columns.iter().zip(row).filter(|(c, _)| is_axis(c));
            let place = places.get(n);
            own.any(|(_, cell)| place.is_some_and(|place| is_number(cell, *place)))
        }
    }
}

fn is_called(row: &[Cell], name: &str) -> bool {
    let mut cells = row.iter();
    cells.any(|cell| matches!(cell, Cell::Text(text) if text == name))
}

fn is_number(cell: &Cell, value: f64) -> bool {
    matches!(cell, Cell::Number(number) if number.to_bits() == value.to_bits())
}

/// There are rows, and all of them have the value in this column.
fn all_have<'a>(rows: impl Iterator<Item = &'a Vec<Cell>>, at: usize, value: f64) -> bool {
    let mut rows = rows.peekable();
    let has = |row: &Vec<Cell>| row.get(at).is_some_and(|cell| is_number(cell, value));
    rows.peek().is_some() && rows.all(has)
}

fn table(chart: &Chart) -> Table {
    let place = |n: usize| match &chart.x.at {
        At::Names(names) => names.get(n).cloned().map_or(Cell::Absent, Cell::Text),
        At::Numbers(numbers) => numbers.get(n).copied().map_or(Cell::Absent, Cell::Number),
    };
    let count = match &chart.x.at {
        At::Names(names) => names.len(),
        At::Numbers(numbers) => numbers.len(),
    };
    let first = match &chart.x.at {
        At::Names(_) => Vec::new(),
        At::Numbers(numbers) => numbers.iter().copied().map(Some).collect(),
    };
    let mut columns = vec![Column::number(
        &chart.x.label,
        &chart.x.unit,
        decimals(&first),
    )];
    columns.extend(
        chart
            .series
            .iter()
            .map(|s| Column::number(&s.name, &chart.y.unit, decimals(&s.values))),
    );
    let values = |n: usize| {
        let own = chart.series.iter().map(move |s| s.values.get(n).copied());
        own.map(|value| value.flatten().filter(|v| v.is_finite()))
    };
    let has_value = |n: &usize| values(*n).any(|value| value.is_some());
    let row = |n: usize| {
        let mut cells = vec![place(n)];
        cells.extend(values(n).map(Cell::from));
        cells
    };
    Table {
        columns,
        row_values: (0..count).filter(has_value).map(row).collect(),
    }
}

/// So many digits after the point that the largest value has four digits that count; none of whole numbers.
fn decimals(values: &[Option<f64>]) -> u8 {
    let values = || values.iter().flatten().filter(|v| v.is_finite());
    let largest = values().map(|v| v.abs()).fold(0.0, f64::max);
    if largest == 0.0 || values().all(|v| v.fract() == 0.0) {
        return 0;
    }
    (3.0 - largest.log10().floor()).clamp(0.0, 9.0) as u8
}

#[cfg(test)]
mod tests {
    use super::super::data::{Positions, ReportFormat};
    use super::*;

    fn section(table: Option<Table>) -> Section {
        let chart = Chart {
            title: "Rate".into(),
            form: ReportFormat::Line,
            x: Positions {
                label: "Time".into(),
                unit: "s".into(),
                at: At::Numbers(vec![0.5, 1.5, 2.5]),
            },
            y: Axis::new("Rate", "MB/s"),
            y_right: None,
            series: vec![
                Series::new("a", vec![Some(12.345), None, Some(f64::NAN)]),
                Series::new("b", vec![None, Some(1000.0), None]),
            ],
        };
        Section {
            heading: String::new(),
            prose: Vec::new(),
            table,
            charts: vec![chart],
        }
    }

    #[test]
    fn a_chart_whose_numbers_no_table_has_gets_one() {
        let without = section(None);
        let found = untold(&without);
        let [(chart, table)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(chart.title, "Rate");
        let heads: Vec<_> = table
            .columns
            .iter()
            .map(|c| (c.name.as_str(), c.unit.as_str(), c.decimals))
            .collect();
        assert_eq!(
            heads,
            [("Time", "s", 3), ("a", "MB/s", 2), ("b", "MB/s", 0)]
        );
        let none = || Cell::from(None::<f64>);
        assert_eq!(
            table.row_values,
            [
                vec![0.5.into(), 12.345.into(), none()],
                vec![1.5.into(), none(), 1000.0.into()],
            ]
        );
    }

    /// Bars of elapsed times over two backups.
    fn bars(values: [f64; 2]) -> Chart {
        Chart::bars(
            "Time",
            "Backup",
            vec!["first".into(), "second".into()],
            Axis::new("Elapsed", "s"),
            vec![Series::new("Time", values.map(Some).into())],
        )
    }

    /// The chart needs no table of its own next to the section's.
    fn is_told(chart: Chart, table: Table) -> bool {
        let section = Section {
            charts: vec![chart],
            ..section(Some(table))
        };
        untold(&section).is_empty()
    }

    fn times(rows: &[(&str, f64, f64)]) -> Table {
        let row = |(name, elapsed, cpu): &(&str, f64, f64)| {
            vec![(*name).into(), (*elapsed).into(), (*cpu).into()]
        };
        Table {
            columns: vec![
                Column::text("Backup"),
                Column::number("Elapsed", "s", 2),
                Column::number("CPU time", "s", 2),
            ],
            row_values: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn a_number_is_told_only_in_the_row_and_the_column_that_it_is_said_of() {
        let both = || times(&[("first", 1.5, 7.0), ("second", 2.5, 8.0)]);
        assert!(is_told(bars([1.5, 2.5]), both()));
        // Each of these numbers stands in the table, and is another's.
        for wrong in [[2.5, 1.5], [1.5, 1.5], [7.0, 8.0], [1.5, 8.0]] {
            assert!(!is_told(bars(wrong), both()), "{wrong:?}");
        }
        // Of two rows of one name nobody knows which is meant.
        let twice = times(&[
            ("first", 1.5, 7.0),
            ("second", 2.5, 8.0),
            ("second", 9.0, 8.0),
        ]);
        assert!(!is_told(bars([1.5, 2.5]), twice));
        let mut milliseconds = both();
        milliseconds.columns[1].unit = "ms".into();
        assert!(!is_told(bars([1.5, 2.5]), milliseconds));
    }

    #[test]
    fn lines_are_told_by_rows_of_their_series_and_their_place_on_the_axis() {
        let mut chart = section(None).charts.remove(0);
        chart.series[0].values = vec![Some(12.5), None, Some(14.5)];
        chart.series[1].values = vec![None, Some(1000.0), None];
        let table = |rows: &[(&str, f64, f64)]| {
            let mut table = times(rows);
            table.columns[1] = Column::number("Time", "s", 1);
            table.columns[2] = Column::number("Rate", "MB/s", 1);
            table
        };
        let right = [("a", 0.5, 12.5), ("b", 1.5, 1000.0), ("a", 2.5, 14.5)];
        assert!(is_told(chart.clone(), table(&right)));
        for wrong in [
            [("a", 0.5, 14.5), ("b", 1.5, 1000.0), ("a", 2.5, 12.5)],
            [("b", 0.5, 12.5), ("a", 1.5, 1000.0), ("a", 2.5, 14.5)],
            [("a", 0.5, 12.5), ("b", 1.5, 1000.0), ("a", 3.5, 14.5)],
        ] {
            assert!(!is_told(chart.clone(), table(&wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn a_series_may_be_a_row_whose_columns_are_the_places() {
        let chart = |series: &str, values: [f64; 2]| {
            Chart::bars(
                "CPU of each processor",
                "Processor",
                vec!["0".into(), "1".into()],
                Axis::new("CPU", "%"),
                vec![Series::new(series, values.map(Some).into())],
            )
        };
        let table = || Table {
            columns: vec![
                Column::text("Configuration"),
                Column::number("CPU 0", "%", 1),
                Column::number("CPU 1", "%", 1),
            ],
            row_values: vec![
                vec!["1 device".into(), 40.0.into(), 50.0.into()],
                vec!["4 devices".into(), 90.0.into(), 95.0.into()],
            ],
        };
        assert!(is_told(chart("1 device", [40.0, 50.0]), table()));
        for (series, values) in [
            ("1 device", [50.0, 40.0]),
            ("4 devices", [40.0, 50.0]),
            ("8 devices", [90.0, 95.0]),
        ] {
            assert!(
                !is_told(chart(series, values), table()),
                "{series} {values:?}"
            );
        }
    }
}
