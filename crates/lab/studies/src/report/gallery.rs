//! A page of several reports: for each a small picture, its headline and the links to its files.
//!
//! Invariants
//! - Pictures are SVG in the page: it loads nothing.
//! - A picture shows the shape alone: bars and lines without numbers, which the report's own page has.
//! - A value that was not measured is left out of a picture.
//! - Colours and cut bars are those of the page.
//!
//! Leaves to others: the reports, and their own pages (`html.rs`).

use super::colours::Coloured;
use super::cut::Cut;
use super::data::{At, Chart, ReportFormat, step};
use super::html::{STYLE, escape};

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 150.0;
const EDGE: f64 = 8.0;
/// As many colours as the style has.
const COLOURS: usize = 7;

/// One entry of the page.
pub struct Thumbnail<'a> {
    /// Entries of one group stand together, below its name.
    pub group: &'a str,
    pub title: String,
    pub text: String,
    /// The name of its files without their endings; `None`: it has none.
    pub page: Option<&'a str>,
    pub chart: Option<&'a Chart>,
}

/// The page.
pub fn gallery(title: &str, entries: &[Thumbnail]) -> String {
    let mut groups: Vec<&str> = entries.iter().map(|entry| entry.group).collect();
    groups.dedup();
    let sections: String = groups
        .iter()
        .map(|group| {
            let own = entries.iter().filter(|entry| entry.group == *group);
            let cards: String = own.map(card).collect();
            format!(
                "<h2>{}</h2>\n<div class=\"cards\">\n{cards}</div>\n",
                escape(group)
            )
        })
        .collect();
    let title = escape(title);
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
</header>
<main>
{sections}</main>
<footer>Made by longshore {version}. The pictures show shapes alone; each page has the numbers.</footer>
</body>
</html>
",
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn card(entry: &Thumbnail) -> String {
    let (title, text) = (escape(&entry.title), escape(&entry.text));
    let picture = entry.chart.map(picture).unwrap_or_default();
    let (title, picture, links) = match entry.page {
        Some(page) => {
            let page = escape(page);
            let link =
                |ending: &str, inside: &str| format!("<a href=\"{page}.{ending}\">{inside}</a>");
            (
                link("html", &title),
                match picture.is_empty() {
                    true => picture,
                    false => link("html", &picture),
                },
                format!(
                    "<p class=\"forms\">{} · {}</p>\n",
                    link("md", "Markdown"),
                    link("json", "JSON")
                ),
            )
        }
        None => (title.into_owned(), picture, String::new()),
    };
    format!("<article>\n{picture}<h3>{title}</h3>\n<p>{text}</p>\n{links}</article>\n")
}

/// The shape of a chart; empty if it has no value.
fn picture(chart: &Chart) -> String {
    let values = |n: usize| {
        chart
            .series
            .iter()
            .filter_map(move |s| s.values.get(n).copied().flatten())
    };
    let count = chart
        .series
        .iter()
        .map(|s| s.values.len())
        .max()
        .unwrap_or(0);
    let cut = Cut::of(chart).map_or(f64::INFINITY, |cut| cut.at);
    let all = (0..count).flat_map(values).filter(|v| v.is_finite());
    let all = all.map(|value| value.min(cut));
    let (low, high) = all.fold((0.0_f64, 0.0_f64), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if high - low <= 0.0 {
        return String::new();
    }
    let y =
        |value: f64| HEIGHT - EDGE - (value.min(cut) - low) / (high - low) * (HEIGHT - 2.0 * EDGE);
    let shapes = match chart.form {
        ReportFormat::Bar => bars(chart, count, &y),
        ReportFormat::Line | ReportFormat::Scatter => lines(chart, count, &y),
        ReportFormat::Map => return map(chart, count),
    };
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\
         <path class=\"axis\" d=\"M{EDGE} {1:.1}H{2}\"/>{shapes}</svg>\n",
        escape(&chart.title),
        y(0.0),
        WIDTH - EDGE,
    )
}

/// A field for each value, coloured as on the page.
fn map(chart: &Chart, count: usize) -> String {
    let width = (WIDTH - 2.0 * EDGE) / count.max(1) as f64;
    let height = (HEIGHT - 2.0 * EDGE) / chart.series.len().max(1) as f64;
    let mut fields = String::new();
    for (row, series) in chart.series.iter().enumerate() {
        for (column, value) in series.values.iter().enumerate() {
            let Some(value) = value.filter(|v| v.is_finite()) else {
                continue;
            };
            fields.push_str(&format!(
                "<rect class=\"m{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
                step(value),
                EDGE + column as f64 * width,
                EDGE + row as f64 * height,
            ));
        }
    }
    let title = escape(&chart.title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">{fields}</svg>\n"
    )
}

/// The style's class for a value.
fn class(colours: &Coloured, series: usize, place: usize) -> String {
    match colours.class(series, place) {
        Some(family) => format!("f-{family}"),
        None => format!("c{}", series % COLOURS),
    }
}

fn bars(chart: &Chart, count: usize, y: &dyn Fn(f64) -> f64) -> String {
    let colours = Coloured::of(chart);
    let slot = (WIDTH - 2.0 * EDGE) / count.max(1) as f64;
    let width = 0.8 * slot / chart.series.len().max(1) as f64;
    let mut out = String::new();
    for (series, own) in chart.series.iter().enumerate() {
        for (n, value) in own.values.iter().enumerate() {
            let Some(value) = value.filter(|v| v.is_finite()) else {
                continue;
            };
            let x = EDGE + n as f64 * slot + 0.1 * slot + series as f64 * width;
            let (top, bottom) = (y(value).min(y(0.0)), y(value).max(y(0.0)));
            out.push_str(&format!(
                "<rect class=\"{}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                class(&colours, series, n),
                (bottom - top).max(0.5)
            ));
        }
    }
    out
}

fn lines(chart: &Chart, count: usize, y: &dyn Fn(f64) -> f64) -> String {
    let places: Vec<f64> = match &chart.x.at {
        At::Numbers(numbers) => numbers.clone(),
        At::Names(_) => (0..count).map(|n| n as f64).collect(),
    };
    let first = places.first().copied().unwrap_or(0.0);
    let span = places.last().copied().unwrap_or(0.0) - first;
    let x = |place: f64| match span > 0.0 {
        true => EDGE + (place - first) / span * (WIDTH - 2.0 * EDGE),
        false => WIDTH / 2.0,
    };
    let colours = Coloured::of(chart);
    let mut out = String::new();
    for (series, own) in chart.series.iter().enumerate() {
        let points: Vec<String> = places
            .iter()
            .zip(&own.values)
            .filter_map(|(place, value)| {
                let value = value.filter(|v| v.is_finite())?;
                Some(format!("{:.1},{:.1}", x(*place), y(value)))
            })
            .collect();
        let class = class(&colours, series, 0);
        if points.len() > 1 && chart.form == ReportFormat::Line {
            out.push_str(&format!(
                "<polyline class=\"{class}\" points=\"{}\"/>",
                points.join(" ")
            ));
        } else {
            let dot = |point: &String| {
                let (x, y) = point.split_once(',').unwrap_or(("0", "0"));
                format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>")
            };
            out.extend(points.iter().map(dot));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::data::{Axis, Positions, Series};
    use super::*;

    fn chart(form: ReportFormat, values: Vec<Option<f64>>) -> Chart {
        Chart {
            title: "a <b>".into(),
            form,
            x: Positions {
                label: String::new(),
                unit: String::new(),
                at: At::Names(vec!["one".into(), "two".into(), "three".into()]),
            },
            y: Axis::new("", ""),
            y_right: None,
            series: vec![Series::new("s", values)],
        }
    }

    #[test]
    fn a_picture_has_what_was_measured_and_nothing_else() {
        let bars = picture(&chart(ReportFormat::Bar, vec![Some(2.0), None, Some(-1.0)]));
        assert_eq!(bars.matches("<rect").count(), 2, "{bars}");
        assert!(bars.contains("a &lt;b&gt;") && !bars.contains("NaN"));
        let line = picture(&chart(ReportFormat::Line, vec![Some(2.0), None, Some(1.0)]));
        assert_eq!(line.matches("<polyline").count(), 1, "{line}");
        for nothing in [None, Some(0.0), Some(f64::NAN)] {
            assert_eq!(picture(&chart(ReportFormat::Line, vec![nothing])), "");
        }
    }

    #[test]
    fn an_entry_without_files_has_no_link() {
        let entry = |page| Thumbnail {
            group: "Group & more",
            title: "S0.F3".into(),
            text: "text".into(),
            page,
            chart: None,
        };
        let html = gallery("All", &[entry(Some("S0.F3")), entry(None)]);
        assert_eq!(html.matches("href=\"S0.F3.html\"").count(), 1);
        assert_eq!(html.matches("<h2>Group &amp; more</h2>").count(), 1);
        assert_eq!(html.matches("<article>").count(), 2);
    }
}
