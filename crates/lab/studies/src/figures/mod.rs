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

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::platform;
use crate::report::{Column, Report, Section, Table};
use crate::volumes::{self, TargetVolumes};
pub use index::{Made, index};
pub use papers::PAPERS;
pub use published::{Figure, Paper};
pub use workbench::{FigureTakes, FiguresMade, Workbench, emulates, takes};

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
        Some(devices) => made(&bench.over(devices), (paper, figure)),
        None => made(bench, (paper, figure)),
    }
}

/// The directories of a figure's stripes and of its samples, each once. They are made if they are missing: before they
/// exist, nobody knows their file systems.
fn places(bench: &Workbench, figure: &Figure) -> Result<Vec<PathBuf>> {
    if !takes(figure.id).dirs {
        return Ok(Vec::new());
    }
    let mut all = bench.spec.dirs.clone();
    all.push(bench.spec.work.clone());
    for dir in &all {
        let made = bench.context.storage.create_dir_all(dir);
        made.with_context(|| format!("cannot open directory {}", dir.display()))?;
    }
    Ok(platform::places(&all, []))
}

fn made(bench: &Workbench, (paper, figure): (&Paper, &Figure)) -> Result<Report> {
    let machine = platform::record(bench.context, &places(bench, figure)?);
    // The doubts of an earlier figure that failed are not this one's.
    bench.doubt();
    let mut measured = (figure.make)(bench)?;
    let volumes = measured.volumes.take();
    let caption = volumes.as_ref().and_then(TargetVolumes::caption);
    let told = volumes.as_ref().and_then(TargetVolumes::sentence);
    measured.cautions.splice(0..0, told);
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
    use std::num::NonZeroU64;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use longshore_io::{Clock, Host, HostClock};
    use longshore_pipeline::RunContext;

    use super::measured::Ours;
    use super::published::{Stance, Stated, Sureness};
    use super::*;
    use crate::paced::{DeviceRate, EmulatedVolumes};

    /// Small and quick figures on emulated devices of this rate and latency, with stripes in `root/to`.
    fn small(root: &Path, (bytes_per_s, latency): (u64, Duration)) -> FiguresMade {
        let target = DeviceRate {
            bytes_per_s: NonZeroU64::new(bytes_per_s).unwrap(),
            latency,
        };
        FiguresMade {
            work: root.join("work"),
            dirs: vec![root.join("to")],
            sample_bytes: 3_000_000,
            rounds: 1,
            quick: true,
            program: "none".into(),
            phase: Duration::ZERO,
            emulated: Some(EmulatedVolumes {
                target,
                source: None,
            }),
        }
    }

    /// Goal: a doubt stands on every page that shows the backups that it is about, and on no other; the page knows the file
    /// system of directories that were made for it.
    /// Method: devices faster than any memory, and ones that answer later than any, of which one was late before the figure.
    #[test]
    fn a_doubt_about_devices_is_that_of_the_study_and_stays_with_it() {
        let root = longshore_kit::place::dir("figures");
        let context = RunContext {
            keyring: Default::default(),
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            catalog: None,
            accelerators: Vec::new(),
            cancel: Default::default(),
        };
        let slow = Duration::from_millis(100);
        for (n, (rate, is_doubted)) in
            [((1 << 50, Duration::ZERO), true), ((64 << 20, slow), false)]
                .into_iter()
                .enumerate()
        {
            let spec = small(&root.path().join(n.to_string()), rate);
            let bench = Workbench::new(&context, &spec, &|_| {});
            let (_, paced) = bench.with_devices().unwrap().unwrap();
            let late = || {
                HostClock.sleep(2 * slow);
                Ok(1)
            };
            paced.devices().next().unwrap().pass(late).unwrap();
            // Both show one study, which runs once.
            for id in ["S3.T1", "S3.F1"] {
                let report = make(&bench, find(id).unwrap()).unwrap();
                let told = &report.summary;
                assert_eq!(
                    told.contains("The real storage was slower"),
                    is_doubted,
                    "{id}: {told}"
                );
                for dir in [&spec.dirs[0], &spec.work] {
                    let name = format!("Storage of {}", dir.display());
                    let row = platform::row(&report.platform, &name);
                    assert!(
                        row.is_some_and(|row| row.contains(" on ")),
                        "{:?}",
                        report.platform
                    );
                }
            }
        }
    }

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

    #[test]
    fn what_a_figure_takes_is_what_it_is_made_of() {
        let of = |option: fn(FigureTakes) -> bool| -> Vec<&str> {
            let others = all().map(|(_, figure)| figure.id);
            others.filter(|id| !option(takes(id))).collect()
        };
        assert_eq!(of(|takes| takes.size), ["S0.T2", "S4.F1", "S4.F2"]);
        let none = ["S0.T2", "S0.T3", "S4.F1", "S4.F2"];
        assert_eq!(of(|takes| takes.rounds), none);
        assert_eq!(of(|takes| takes.dirs), ["S4.F1", "S4.F2"]);
        assert_eq!(of(|takes| takes.phase).len(), 20);
        assert!(takes("S0.F6").phase && takes("S0.F7").phase);
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
