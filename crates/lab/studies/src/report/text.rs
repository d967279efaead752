//! A report as plain text: aligned tables, wrapped prose, no charts.
//!
//! Invariants
//! - Prose is wrapped at 100 columns; a table is as wide as its cells.
//! - Numbers are rounded by their column, the same as in the other forms.
//!
//! Leaves to others: what a report says (`mod.rs`), and charts (`html.rs`).

use super::data::{Cell, Report, Table};

const WIDTH: usize = 100;

pub fn render(report: &Report) -> String {
    let mut out = String::new();
    heading(&mut out, &report.title, '=');
    paragraph(&mut out, &report.summary);
    let names = report
        .platform
        .iter()
        .map(|(name, _)| width(name))
        .max()
        .unwrap_or(0);
    for (name, value) in &report.platform {
        let gap = " ".repeat(names - width(name));
        out.push_str(&format!("  {name}{gap}  {value}\n"));
    }
    for section in &report.sections {
        out.push('\n');
        heading(&mut out, &section.heading, '-');
        section
            .prose
            .iter()
            .for_each(|text| paragraph(&mut out, text));
        if let Some(table) = &section.table {
            self::table(&mut out, table);
        }
    }
    out
}

fn heading(out: &mut String, text: &str, underline: char) {
    out.push_str(&format!(
        "{text}\n{}\n",
        underline.to_string().repeat(width(text))
    ));
}

fn paragraph(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + width(word) > WIDTH {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width(word);
    }
    if column > 0 {
        out.push_str("\n\n");
    }
}

fn table(out: &mut String, table: &Table) {
    let columns = &table.columns;
    let names = columns.iter().map(|c| c.name.clone()).collect();
    let units = columns.iter().map(|c| c.unit.clone()).collect();
    let mut lines: Vec<Vec<String>> = vec![names];
    if columns.iter().any(|c| !c.unit.is_empty()) {
        lines.push(units);
    }
    let heads = lines.len();
    for row in &table.row_values {
        lines.push(
            row.iter()
                .zip(columns)
                .map(|(cell, column)| cell.shown(column))
                .collect(),
        );
    }
    let widths: Vec<usize> = (0..columns.len())
        .map(|n| {
            lines
                .iter()
                .filter_map(|line| line.get(n))
                .map(|text| width(text))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let right: Vec<bool> = (0..columns.len()).map(|n| is_numeric(table, n)).collect();
    for (n, line) in lines.iter().enumerate() {
        if n == heads {
            let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            out.push_str(&format!("{}\n", rule.join("  ")));
        }
        let mut shown = String::new();
        for ((text, &room), &right) in line.iter().zip(&widths).zip(&right) {
            let gap = " ".repeat(room - width(text));
            let (before, after) = if right {
                (gap.as_str(), "")
            } else {
                ("", gap.as_str())
            };
            shown.push_str(&format!("{before}{text}{after}  "));
        }
        out.push_str(shown.trim_end());
        out.push('\n');
    }
}

/// Whether column `n` holds numbers (or nothing) only.
pub fn is_numeric(table: &Table, n: usize) -> bool {
    let mut cells = table
        .row_values
        .iter()
        .filter_map(|row| row.get(n))
        .peekable();
    cells.peek().is_some() && cells.all(|cell| !matches!(cell, Cell::Text(_)))
}

fn width(text: &str) -> usize {
    text.chars().count()
}
