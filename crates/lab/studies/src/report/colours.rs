//! The colours of charts: one for each family of algorithms, the same everywhere.
//!
//! Invariants
//! - A family is known by its name in that of a series or a place; other programs for backups are grey.
//! - A chart that shows families has no other bright colours: what belongs to none is neutral.
//! - Every form of a report asks here, so that no picture disagrees with another.
//!
//! Leaves to others: the colours themselves (`assets/report.css`), and drawing (`report.js`, `gallery.rs`).

use super::data::{At, Chart, ReportFormat};

/// Names of the families, as they stand in names of series, with the class that the style knows.
const FAMILIES: [(&str, &str); 6] = [
    ("NONE", "none"),
    ("MS_XPRESS", "xpress"),
    ("QAT_DEFLATE", "qat"),
    ("ZSTD", "zstd"),
    ("LZ4", "lz4"),
    ("PAGES", "pages"),
];
/// Other programs, each with a grey of its own.
const PEERS: [(&str, &str); 7] = [
    ("pgbackrest", "peer0"),
    ("wal-g", "peer1"),
    ("pg_basebackup", "peer2"),
    ("pg-basebackup", "peer2"),
    ("pg_dump", "peer2"),
    // Values of a publication, next to our own.
    ("published", "peer1"),
    ("ours", OTHER),
];
/// The class of a name without a family, in a chart with families.
const OTHER: &str = "other";

/// The family in a name; `None` if there is none, or more than one.
fn family(name: &str) -> Option<&'static str> {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut found = None;
    for word in name.split(|c| !is_inner(c)) {
        let known = FAMILIES.iter().find(|(own, _)| *own == word);
        let known = known.or_else(|| {
            let mut peers = PEERS.iter();
            peers.find(|(own, _)| own.eq_ignore_ascii_case(word))
        });
        match (known, found) {
            (Some((_, class)), None) => found = Some(*class),
            (Some((_, class)), Some(before)) if before != *class => return None,
            _ => {}
        }
    }
    found
}

/// The things that the colours of a chart tell apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Coloured {
    /// One class for each place: bars of one series.
    Places(Vec<&'static str>),
    /// One class for each series.
    Series(Vec<&'static str>),
    /// No families: the colours in their order.
    InOrder,
}

impl Coloured {
    pub fn of(chart: &Chart) -> Coloured {
        let is_bar = chart.form == ReportFormat::Bar;
        if let (true, [_], At::Names(names)) = (is_bar, chart.series.as_slice(), &chart.x.at) {
            let own: Vec<_> = names.iter().map(|name| family(name)).collect();
            // One series without families tells nothing by a colour.
            return Coloured::Places(own.into_iter().map(|f| f.unwrap_or(OTHER)).collect());
        }
        let own: Vec<_> = chart.series.iter().map(|s| family(&s.name)).collect();
        match own.iter().any(Option::is_some) {
            true => Coloured::Series(own.into_iter().map(|f| f.unwrap_or(OTHER)).collect()),
            false => Coloured::InOrder,
        }
    }

    /// The style's class for a value.
    pub fn class(&self, series: usize, place: usize) -> Option<&'static str> {
        match self {
            Coloured::Places(classes) => classes.get(place).copied(),
            Coloured::Series(classes) => classes.get(series).copied(),
            Coloured::InOrder => None,
        }
    }

    /// Attributes of a canvas, which the script reads.
    pub fn attributes(&self) -> String {
        match self {
            Coloured::Places(classes) => format!(" data-places=\"{}\"", classes.join(" ")),
            Coloured::Series(classes) => format!(" data-series=\"{}\"", classes.join(" ")),
            Coloured::InOrder => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{Axis, Positions, Series};
    use super::*;

    #[test]
    fn a_family_is_known_by_its_name_and_two_are_none() {
        for (name, expected) in [
            ("QAT_DEFLATE LOW", Some("qat")),
            ("QAT_DEFLATE software, 4", Some("qat")),
            ("stae, MS_XPRESS", Some("xpress")),
            ("NONE to NUL", Some("none")),
            ("uncompressed (NONE)", Some("none")),
            ("ZSTD, --max-cpu 25", Some("zstd")),
            ("pgBackRest", Some("peer0")),
            ("WAL-G", Some("peer1")),
            ("MS_XPRESS : QAT_DEFLATE", None),
            ("NONESUCH", None),
            ("quiet, before", None),
            ("published 3.27 ×", Some("peer1")),
            ("ours", Some("other")),
        ] {
            assert_eq!(family(name), expected, "{name}");
        }
    }

    fn chart(form: ReportFormat, places: &[&str], series: &[&str]) -> Chart {
        let values = |name: &&str| Series::new(name, vec![Some(1.0); places.len()]);
        Chart {
            title: String::new(),
            form,
            x: Positions {
                label: String::new(),
                unit: String::new(),
                at: At::Names(places.iter().map(|&p| p.to_owned()).collect()),
            },
            y: Axis::new("", ""),
            y_right: None,
            series: series.iter().map(values).collect(),
        }
    }

    #[test]
    fn bars_of_one_series_have_the_colours_of_their_places() {
        let one = chart(ReportFormat::Bar, &["quiet", "ZSTD", "LZ4"], &["Elapsed"]);
        let places = Coloured::Places(vec!["other", "zstd", "lz4"]);
        assert_eq!(Coloured::of(&one), places);
        assert_eq!(places.class(0, 2), Some("lz4"));
        let lines = chart(ReportFormat::Line, &["1", "2"], &["NONE", "ZSTD", "limit"]);
        let series = Coloured::Series(vec!["none", "zstd", "other"]);
        assert_eq!(Coloured::of(&lines), series);
        assert_eq!(series.attributes(), " data-series=\"none zstd other\"");
        let sizes = chart(ReportFormat::Line, &["1", "2"], &["1 MiB", "4 MiB"]);
        assert_eq!(Coloured::of(&sizes), Coloured::InOrder);
    }
}
