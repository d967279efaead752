//! The page that shows all figures: each with a small picture, its headline, and links to its forms.
//!
//! Invariants
//! - The page needs no other file to be read; links lead to the files next to it.
//!
//! Leaves to others: the figures' own pages, and drawing (`crate::report`).

use crate::report::{Report, Thumbnail};

/// A figure that was made, or why not.
#[derive(Debug)]
pub struct Made {
    pub id: &'static str,
    pub paper: &'static str,
    pub report: Result<Report, String>,
}

/// The index of all figures.
pub fn index(made: &[Made]) -> String {
    let thumbnails: Vec<Thumbnail> = made
        .iter()
        .map(|one| match &one.report {
            Ok(report) => Thumbnail {
                group: one.paper,
                title: report.title.clone(),
                text: report.summary.clone(),
                page: Some(one.id),
                chart: report.sections.iter().flat_map(|s| &s.charts).next(),
            },
            Err(why) => Thumbnail {
                group: one.paper,
                title: one.id.to_owned(),
                text: format!("Not made: {why}"),
                page: None,
                chart: None,
            },
        })
        .collect();
    crate::report::gallery("Published figures and ours", &thumbnails)
}
