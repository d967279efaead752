//! A report as one self-contained HTML file.
//!
//! Invariants
//! - Every text from the report is escaped here; the script reads its data from a JSON block, in which `<` is written
//!   as `\u003c` so that no text can end the block.
//! - A content security policy in the file forbids loading any other resource.
//! - Charts are counted in the order in which the script draws them. Maps are drawn here, and are not counted.
//!
//! Leaves to others: style, script and charting library (`assets`), and the report's content (the studies).

use std::borrow::Cow;

use anyhow::Result;

use super::colours::Coloured;
use super::cut::Cut;
use super::data::{At, Cell, Chart, Report, ReportFormat, Section, Table, step};
use super::numbers;
use super::text::is_numeric;

pub const STYLE: &str = include_str!("../../assets/report.css");
const NAMES: &str = include_str!("../../assets/names.js");
const SCRIPT: &str = include_str!("../../assets/report.js");
/// Chart.js, see `assets/README.md`.
const LIBRARY: &str = include_str!("../../assets/chart-4.6.1.umd.min.js");

const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

pub fn render(report: &Report) -> Result<String> {
    let title = escape(&report.title);
    let summary = escape(&report.summary);
    let platform: String = report
        .platform
        .iter()
        .map(|(name, value)| {
            format!(
                "<div><dt>{}</dt><dd>{}</dd></div>\n",
                escape(name),
                escape(value)
            )
        })
        .collect();
    let platform = if platform.is_empty() {
        platform
    } else {
        format!("<dl>\n{platform}</dl>\n")
    };
    let mut charts = 0;
    let sections: String = report
        .sections
        .iter()
        .map(|s| section(s, &mut charts))
        .collect();
    let data = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class=\"summary\">{summary}</p>
{platform}</header>
<main>
{sections}</main>
<footer>Made by longshore {version}. The numbers are in this page as JSON, in the element “report”.</footer>
<script type=\"application/json\" id=\"report\">{data}</script>
<script>
{LIBRARY}</script>
<script>
{NAMES}{SCRIPT}</script>
</body>
</html>
",
        version = env!("CARGO_PKG_VERSION"),
    ))
}

/// `charts` counts the charts of the file, as the script does.
fn section(section: &Section, charts: &mut usize) -> String {
    let mut out = format!("<section>\n<h2>{}</h2>\n", escape(&section.heading));
    for paragraph in &section.prose {
        out.push_str(&format!("<p>{}</p>\n", escape(paragraph)));
    }
    if !section.charts.is_empty() {
        out.push_str("<div class=\"charts\">\n");
        for chart in &section.charts {
            if chart.form == ReportFormat::Map {
                out.push_str(&map(chart));
                continue;
            }
            out.push_str(&drawing(chart, *charts));
            *charts += 1;
        }
        out.push_str("</div>\n");
    }
    if let Some(table) = &section.table {
        out.push_str(&self::table(table));
    }
    // Maps are tables already.
    let untold = numbers::untold(section);
    for (chart, numbers) in untold
        .iter()
        .filter(|(chart, _)| chart.form != ReportFormat::Map)
    {
        out.push_str(&format!(
            "<details><summary>Numbers: {}</summary>\n{}</details>\n",
            escape(&chart.title),
            table(numbers)
        ));
    }
    out.push_str("</section>\n");
    out
}

/// The place of a chart that the script draws: it reads the colours and the cut from attributes.
fn drawing(chart: &Chart, number: usize) -> String {
    let title = escape(&chart.title);
    let colours = Coloured::of(chart).attributes();
    let (cut, told) = match Cut::of(chart) {
        Some(cut) => (
            format!(" data-cut=\"{}\"", cut.at),
            format!("<p class=\"cut\">{}</p>", escape(&cut.told(&chart.y.unit))),
        ),
        None => (String::new(), String::new()),
    };
    format!(
        "<figure><figcaption>{title}</figcaption><div class=\"plot\">\
         <canvas id=\"chart-{number}\" role=\"img\" aria-label=\"{title}\"{colours}{cut}></canvas></div>{told}</figure>\n"
    )
}

/// A map is a table with coloured cells, which needs no script.
fn map(chart: &Chart) -> String {
    let columns: Vec<String> = match &chart.x.at {
        At::Names(names) => names.clone(),
        At::Numbers(numbers) => numbers.iter().map(f64::to_string).collect(),
    };
    let head = columns.iter().map(|name| {
        let name = escape(name);
        format!("<th class=\"number\">{name}</th>")
    });
    let rows = chart.series.iter().map(|series| {
        let cells = series.values.iter().map(|value| match value {
            Some(value) => {
                let digits = match *value {
                    ..0.0995 => 3,
                    ..1.995 => 2,
                    ..9.95 => 1,
                    _ => 0,
                };
                let step = step(*value);
                format!("<td class=\"number m{step}\">{value:.digits$}</td>")
            }
            None => "<td></td>".to_owned(),
        });
        let (name, cells) = (escape(&series.name), cells.collect::<String>());
        format!("<tr><th>{name}</th>{cells}</tr>\n")
    });
    format!(
        "<figure class=\"map\"><figcaption>{}</figcaption><div class=\"table\"><table>\n<thead><tr><th>{}</th>{}</tr></thead>\n\
         <tbody>\n{}</tbody>\n</table></div></figure>\n",
        escape(&chart.title),
        escape(&chart.x.label),
        head.collect::<String>(),
        rows.collect::<String>(),
    )
}

fn table(table: &Table) -> String {
    let class: Vec<&str> = (0..table.columns.len())
        .map(|n| {
            if is_numeric(table, n) {
                " class=\"number\""
            } else {
                ""
            }
        })
        .collect();
    let mut out = String::from("<div class=\"table\"><table>\n<thead><tr>");
    for (column, class) in table.columns.iter().zip(&class) {
        let (name, unit) = (escape(&column.name), escape(&column.unit));
        out.push_str(&format!("<th{class}>{name}<small>{unit}</small></th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.row_values {
        out.push_str("<tr>");
        for ((cell, column), class) in row.iter().zip(&table.columns).zip(&class) {
            let shown = cell.shown(column);
            match cell {
                Cell::Absent => out.push_str(&format!(
                    "<td{class}><span class=\"absent\" title=\"not measured\">{shown}</span></td>"
                )),
                _ => out.push_str(&format!("<td{class}>{}</td>", escape(&shown))),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    out
}

/// Text for element content and for attributes in double quotes.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"']) {
        return Cow::Borrowed(text);
    }
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    Cow::Owned(escaped.replace('"', "&quot;"))
}
