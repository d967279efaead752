//! The numbers of charts as tables, for forms that draw nothing, and for whoever cannot see a drawing.
//!
//! Invariants
//! - A chart whose numbers all stand in its section's table has no second one.
//! - A table has a row for each place of the chart that has a value, and a column for each series.
//!
//! Leaves to others: the tables of studies (`data.rs`), and writing tables (each form).

use std::collections::HashSet;

use super::data::{At, Cell, Chart, Column, Section, Table};

/// The charts of a section whose numbers its table has not, each with a table of them.
pub fn untold(section: &Section) -> Vec<(&Chart, Table)> {
    let told: HashSet<u64> = section
        .table
        .iter()
        .flat_map(|table| table.row_values.iter().flatten())
        .filter_map(|cell| match cell {
            Cell::Number(number) => Some(number.to_bits()),
            _ => None,
        })
        .collect();
    let is_told = |chart: &&Chart| {
        let values = chart.series.iter().flat_map(|s| s.values.iter().flatten());
        let mut values = values.filter(|v| v.is_finite());
        values.all(|value| told.contains(&value.to_bits()))
    };
    let untold = section.charts.iter().filter(|chart| !is_told(chart));
    untold.map(|chart| (chart, table(chart))).collect()
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
    use super::super::data::{Axis, Positions, ReportFormat, Series};
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

    #[test]
    fn a_chart_whose_numbers_stand_in_the_table_has_no_second_one() {
        let has = |second: f64| Table {
            columns: vec![Column::number("x", "", 0)],
            row_values: vec![vec![12.345.into()], vec![second.into()]],
        };
        assert!(untold(&section(Some(has(1000.0)))).is_empty());
        assert_eq!(untold(&section(Some(has(1001.0)))).len(), 1);
    }
}
