//! A report as Markdown with pipe tables (GitHub's). A chart is a table of its numbers, unless its section has them.

use super::data::{Report, Table};
use super::numbers;
use super::text::is_numeric;

pub fn render(report: &Report) -> String {
    let mut out = format!("# {}\n\n", escape(&report.title));
    let mut paragraph = |text: &str| {
        if !text.is_empty() {
            out.push_str(&escape(text));
            out.push_str("\n\n");
        }
    };
    paragraph(&report.summary);
    if !report.platform.is_empty() {
        out.push_str("| | |\n|---|---|\n");
        for (name, value) in &report.platform {
            out.push_str(&format!("| {} | {} |\n", escape(name), escape(value)));
        }
        out.push('\n');
    }
    for section in &report.sections {
        out.push_str(&format!("## {}\n\n", escape(&section.heading)));
        for text in &section.prose {
            out.push_str(&format!("{}\n\n", escape(text)));
        }
        if let Some(table) = &section.table {
            self::table(&mut out, table);
            out.push('\n');
        }
        for (chart, numbers) in numbers::untold(section) {
            out.push_str(&format!("### {}\n\n", escape(&chart.title)));
            table(&mut out, &numbers);
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn table(out: &mut String, table: &Table) {
    out.push('|');
    for column in &table.columns {
        let name = escape(&column.name);
        match column.unit.as_str() {
            "" => out.push_str(&format!(" {name} |")),
            unit => out.push_str(&format!(" {name} ({}) |", escape(unit))),
        }
    }
    out.push_str("\n|");
    for n in 0..table.columns.len() {
        out.push_str(if is_numeric(table, n) {
            "---:|"
        } else {
            "---|"
        });
    }
    out.push('\n');
    for row in &table.row_values {
        out.push('|');
        for (cell, column) in row.iter().zip(&table.columns) {
            out.push_str(&format!(" {} |", escape(&cell.shown(column))));
        }
        out.push('\n');
    }
}

/// Escapes text that Markdown would read as markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '*' | '_' | '`' | '<' | '[' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
