//! Compares algorithms, in software and with each accelerator that is here: time, CPU, size and speed-up for each
//! database.
//!
//! Invariants
//! - Backups of all kinds alternate, and the median counts, so that a disturbance spreads over all of them.
//! - Each backup is removed before the next, and so is a cluster that was made for the comparison.
//!
//! Leaves to others: timing one backup (`timing.rs`), contenders and their names (`contenders.rs`), what to take
//! (`advice.rs`), and the forms of a report.

mod contenders;
mod databases;
mod shown;
mod spec;

use std::path::Path;

use anyhow::{Context, Result};
use longshore_pipeline::{DeviceSpec, RunContext};

use crate::advice::Conditions;
use crate::oltp::LoadCluster;
use crate::platform;
use crate::report::Report;
use crate::sample::SampleKind;
use crate::scratch::Scratch;
use crate::stock;
use contenders::{Contender, try_accelerators};
use databases::Compared;
pub use spec::{ClusterMade, CompareSpec};

/// A cluster with its place; they end in the order of the fields.
struct Cluster {
    server: LoadCluster,
    _place: Scratch,
}

impl Cluster {
    fn make(context: &RunContext, made: &ClusterMade) -> Result<Cluster> {
        let storage = &*context.storage;
        let work = std::slice::from_ref(&made.work);
        let base = Scratch::named(storage, work, "cluster")?;
        let inside = base.path("data");
        let place = storage.canonical(inside.parent().unwrap_or(Path::new(".")))?;
        let sample =
            stock::sample_in(storage, &made.work, SampleKind::Tprocc, made.bytes, &|_| {})?;
        let server = LoadCluster::start(storage, &*context.clock, &place)?;
        server
            .fill(storage, &sample, SampleKind::Tprocc)
            .context("cannot fill the comparison's cluster")?;
        Ok(Cluster {
            server,
            _place: base,
        })
    }
}

/// Makes all backups, and removes each before the next. Calls `on_step` with one line for each. Accelerators of `context`
/// get rows of their own.
///
/// # Errors
/// A backup that fails, a directory that cannot be used, and a cluster that cannot be made.
pub fn compare(context: &RunContext, spec: &CompareSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let scratch = match spec.dirs.as_slice() {
        [] => None,
        dirs => Some(Scratch::new(&*context.storage, dirs)?),
    };
    let mut databases = spec.databases.clone();
    let cluster = match &spec.cluster {
        None => None,
        Some(made) => {
            on_step("a PostgreSQL cluster with the sample tprocc");
            let cluster = Cluster::make(context, made)?;
            let name = format!("{} in PostgreSQL", SampleKind::Tprocc);
            databases.push((name, cluster.server.source()));
            Some(cluster)
        }
    };
    if let Some((_, source)) = databases.first() {
        try_accelerators(context, source)?;
    }
    let mut dirs = platform::places(&spec.dirs, databases.iter().map(|(_, source)| source));
    dirs.extend(spec.cluster.iter().map(|made| made.work.clone()));
    let mut platform = platform::record(context, &dirs);
    let conditions = Conditions {
        rounds: spec.rounds.max(1),
        is_busy: platform::busy_percent(&platform).is_some(),
        is_nul: spec.dirs.is_empty(),
    };
    let (mut sections, mut summary, mut compared) = (Vec::new(), Vec::new(), Vec::new());
    for (name, source) in &databases {
        let mut all = Contender::all(context);
        for round in 1..=spec.rounds.max(1) {
            for one in &mut all {
                let devices = match &scratch {
                    Some(scratch) => scratch.stripes(spec.stripes),
                    None => vec![DeviceSpec::Nul; spec.stripes],
                };
                let taken = one.make(context, source, devices)?;
                let (wall_s, ratio) = (taken.wall_s, taken.ratio());
                on_step(&format!(
                    "{name}, round {round}: {} {wall_s:.2} s, ratio {ratio:.2}",
                    one.name(),
                ));
                if let Some(scratch) = &scratch {
                    scratch.clear()?;
                }
            }
        }
        let taken = all.first().and_then(|one| one.taken.first());
        platform.extend(taken.map(|t| {
            let megabytes = t.plain_bytes as f64 / 1e6;
            let told = format!("{}, {megabytes:.1} MB (10^6)", platform::name_of(source));
            (format!("Database {name}"), told)
        }));
        compared.extend(taken.map(|t| Compared::of(&*context.storage, name, source, t)));
        summary.extend(shown::finding(name, &all, conditions));
        sections.extend(shown::sections(name, spec, &all, conditions));
    }
    drop(cluster);
    sections.push(databases::section(&compared));
    Ok(Report {
        title: "Algorithms compared".into(),
        summary: summary.join(" "),
        platform,
        sections,
    })
}
