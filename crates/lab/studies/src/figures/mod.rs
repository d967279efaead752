//! The 22 figures and tables of five publications, made again with the published values next to ours.
//!
//! A [`Figure`] is data (`published.rs`, `papers`) and one function over the studies. One renderer compares both
//! (`comparison.rs`) and gives a [`Report`]; the index shows all of them (`index.rs`).
//!
//! Invariants
//! - Published values are those of the publications, with how sure each is; nothing is published here that was derived.
//! - A figure can be made on every machine, or says by name what this one lacks.
//!
//! Leaves to others: the load (`crate::oltp`), and the forms of a report (`crate::report`).

mod comparison;
mod index;
mod measured;
mod papers;
mod published;
mod trials;
mod workbench;

use anyhow::Result;

use crate::platform;
use crate::report::{Column, Report, Section, Table};
use crate::volumes::{self, TargetVolumes};
pub use index::{Made, index};
pub use papers::PAPERS;
pub use published::{Figure, Paper};
pub use workbench::{FiguresMade, Workbench, emulates};

/// All figures in their order, each with its paper.
pub fn all() -> impl Iterator<Item = (&'static Paper, &'static Figure)> {
    let figures = |paper: &'static Paper| paper.figures.iter().map(move |figure| (paper, figure));
    PAPERS.iter().flat_map(figures)
}

/// The figure of this name, in any case.
pub fn find(id: &str) -> Option<(&'static Paper, &'static Figure)> {
    all().find(|(_, figure)| figure.id.eq_ignore_ascii_case(id))
}

/// Makes a figure.
pub fn make(bench: &Workbench, (paper, figure): (&Paper, &Figure)) -> Result<Report> {
    let devices = match emulates(figure.id) {
        true => bench.with_devices()?,
        false => None,
    };
    match devices {
        Some((context, paced)) => made(&bench.over(context), (paper, figure), &|| paced.doubt()),
        None => made(bench, (paper, figure), &|| None),
    }
}

/// `doubt` answers after the backups.
fn made(
    bench: &Workbench,
    (paper, figure): (&Paper, &Figure),
    doubt: &dyn Fn() -> Option<String>,
) -> Result<Report> {
    let machine = platform::record(bench.context, &bench.spec.dirs);
    let mut measured = (figure.make)(bench)?;
    let volumes = measured.volumes.take();
    let caption = volumes.as_ref().and_then(TargetVolumes::caption);
    let told = volumes.as_ref().and_then(TargetVolumes::sentence);
    measured.cautions.extend(told);
    measured.cautions.extend(doubt());
    if let Some(rates) = volumes.as_ref().and_then(|v| v.emulated) {
        let told = format!("{rates}; each directory of --dir is one");
        measured.conditions.push(("Devices".into(), told));
    }
    let mut report = comparison::report(paper, figure, measured, machine);
    if let Some(caption) = caption {
        volumes::mark(&mut report, &caption);
    }
    report
        .platform
        .insert(0, ("Publication".into(), paper.name.into()));
    Ok(report)
}

/// The table of all figures.
pub fn list() -> Report {
    let row = |(paper, figure): (&Paper, &Figure)| {
        vec![
            figure.id.into(),
            figure.title.into(),
            figure.kinds().into(),
            format!("longshore lab figure {}", figure.id).into(),
            paper.name.into(),
        ]
    };
    Report {
        title: "Published figures and tables".into(),
        summary: "Each can be made again with the published values next to ours.".into(),
        platform: Vec::new(),
        sections: vec![Section {
            heading: "Figures".into(),
            prose: Vec::new(),
            table: Some(Table {
                columns: ["Figure", "Title", "Published", "Command", "Publication"]
                    .map(Column::text)
                    .into(),
                row_values: all().map(row).collect(),
            }),
            charts: Vec::new(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::measured::Ours;
    use super::published::{Stance, Stated, Sureness};
    use super::*;

    #[test]
    fn a_value_is_written_as_sure_as_it_is() {
        let names: BTreeSet<&str> = all().map(|(_, figure)| figure.id).collect();
        assert_eq!((names.len(), all().count()), (22, 22));
        for (_, figure) in all() {
            for row in figure.rows {
                let what = format!("{}: {}", figure.id, row.what);
                let fits = match row.sureness {
                    Sureness::Exact | Sureness::Prose => row.stated != Stated::Picture,
                    Sureness::Approximate => row.stated.number().is_some(),
                    Sureness::Order => matches!(row.stated, Stated::Words(_)),
                    Sureness::Picture => row.stated == Stated::Picture,
                };
                assert!(fits, "{what}");
                // An order that is not compared would be a decoration.
                let is_open = matches!(row.side, Stance::Open);
                assert!(!is_open || row.sureness != Sureness::Order, "{what}");
                assert!(!matches!(row.ours, Ours::Fact(_)) || is_open, "{what}");
            }
        }
    }

    /// The white paper measured hardware only.
    #[test]
    fn a_number_published_for_hardware_is_not_judged_for_software() {
        let mut marked = 0;
        for (_, figure) in all().filter(|(_, figure)| figure.id.starts_with("S0.")) {
            for row in figure.rows {
                let ours = format!("{:?}", row.ours);
                let is_software = ["/qat/", "/high/"].iter().any(|key| ours.contains(key));
                if is_software && row.sureness != Sureness::Picture {
                    let what = format!("{}: {}", figure.id, row.what);
                    let told = format!("{} {}", row.what, row.stated.shown(0));
                    assert!(told.contains("(published for hardware)"), "{what}");
                    let is_judged = row.side.limits().is_some();
                    assert!(row.stated.number().is_none() || !is_judged, "{what}");
                    marked += 1;
                }
            }
        }
        assert!(marked >= 8, "{marked}");
    }
}
