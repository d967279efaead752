//! Reports: the findings of a study, as text, Markdown, JSON and one HTML file with plots.
//!
//! A [`Report`] is data: sections with prose, a table and charts. The HTML file contains its style, its script, a
//! charting library and the report's own JSON: it opens without a network, today and in years, and the numbers can be
//! read back from it.
//!
//! Invariants
//! - A study builds one report; all forms are made from it and cannot disagree.
//! - The numbers of a chart stand in a table, too, in the page and in Markdown.
//! - A value that was not measured is `None`, shown as a dash and left out of a line; it is never 0.
//! - Reasons against quoting the figures stand before the headline.
//!
//! Leaves to others: measuring (the studies), each form (`html.rs`, `markdown.rs`, `text.rs`, and
//! `gallery.rs` for several), and what all drawings share (`colours.rs`, `cut.rs`, `numbers.rs`).

mod colours;
mod cut;
mod data;
mod gallery;
mod html;
mod markdown;
mod numbers;
mod text;

pub(crate) use data::counted;
pub use data::{
    At, Axis, Best, Cell, Chart, Column, Positions, Report, ReportFormat, Section, Series, Side,
    Table,
};
pub(crate) use gallery::{Thumbnail, gallery};

impl Report {
    /// The report for a terminal or a log: everything but the charts.
    pub fn to_text(&self) -> String {
        text::render(self)
    }

    /// The report for a repository: everything, with the charts as tables of their numbers.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// The report for programs, with the charts' data.
    pub fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The report as one self-contained HTML file.
    pub fn to_html(&self) -> anyhow::Result<String> {
        html::render(self)
    }
}
