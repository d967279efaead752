//! `wal list`: shows the contents of an archive: unbroken runs of segments, and timeline histories.
//!
//! Invariants
//! - Nothing is changed.
//! - A gap is shown as a second run of the same timeline, with exit code 5; an archive that refuses another branch's
//!   WAL is code 5, too.
//! - --verify reads everything. Damage is exit code 1, as is a segment that a look shows to be of no use, without
//!   --verify, too: it is in no run. A segment that retention removed meanwhile is no damage.
//!
//! Leaves to others: finding runs and checking (`longshore-wal`).

use longshore_pg::wal::WalName;
use longshore_wal::{Error, Lost, Run, WalArchive};
use serde::Serialize;

use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::keys::keyring;
use crate::options::WalList;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, bytes};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    system: String,
    segment_bytes: u64,
    runs: Vec<RunFacts>,
    histories: Vec<u32>,
    gap_count: usize,
    damaged_segments: Vec<String>,
    /// The archive refuses another branch's WAL.
    refused: Option<String>,
    /// With --verify: segments that do not continue the previous one.
    broken: Vec<ChainBreak>,
}

#[derive(Serialize)]
struct ChainBreak {
    name: String,
    before: String,
    what: String,
}

#[derive(Serialize)]
struct RunFacts {
    timeline: u32,
    first: String,
    last: String,
    start_lsn: String,
    end_lsn: String,
    segments: u64,
    stored_bytes: u64,
}

pub fn run(options: &WalList, context: &Context) -> Result<Exit, Failure> {
    let archive = ArchiveLocation::of(&options.archive, context)?.existing(context)?;
    let archive = match options.verify {
        true => archive.with_keyring(&keyring(context, &options.keys)?),
        false => archive,
    };
    let unusable = archive.unusable()?;
    let mut lost = Lost::default();
    for segment in &unusable {
        let what = format!("{} {}", segment.path.display(), segment.what);
        context.output.warn(&format!(
            "{what}: no recovery crosses it; take the file from a copy of the archive, or make a full backup"
        ));
        lost.add(segment.name, segment.name);
    }
    let runs = archive.runs_without(&lost)?;
    let histories = archive.histories()?;
    let gaps = gaps(&runs);
    let (damaged, broken) = match options.verify {
        true => (
            damaged(&archive, &runs, context)?,
            broken(&archive, &runs, context)?,
        ),
        false => (Vec::new(), Vec::new()),
    };
    let looked = unusable.iter().map(|segment| segment.name.to_string());
    let damaged: Vec<String> = looked.chain(damaged).collect();
    let refused = archive.refused_now();
    let refused = refused.map(|refused| refused.warning(archive.path()));
    let exit = match damaged.is_empty() && broken.is_empty() {
        false => Exit::No,
        true if gaps == 0 && refused.is_none() => Exit::Done,
        true => Exit::Warnings,
    };
    let Some(identity) = archive.identity() else {
        return Ok(exit);
    };
    let size = identity.segment_size;
    let facts: Vec<RunFacts> = runs
        .iter()
        .map(|run| RunFacts {
            timeline: run.span.first.timeline.number(),
            first: run.span.first.to_string(),
            last: run.span.last.to_string(),
            start_lsn: run.span.first.start(size).to_string(),
            end_lsn: run.span.last.next(size).start(size).to_string(),
            segments: run.span.segments,
            stored_bytes: run.stored_bytes,
        })
        .collect();
    let mut table = Table::new(&["timeline", "first", "last", "segments", "stored"]);
    for run in &facts {
        table.row(vec![
            run.timeline.to_string(),
            run.first.clone(),
            run.last.clone(),
            run.segments.to_string(),
            bytes(run.stored_bytes),
        ]);
    }
    let head = format!(
        "system {}  segments of {}\n",
        identity.system,
        bytes(size.bytes())
    );
    context.output.say(&format!("{head}{table}"));
    if gaps > 0 {
        context.output.warn(&format!(
            "{gaps} gaps: segments are missing before each run except the first of a timeline"
        ));
    }
    if let Some(refused) = &refused {
        context.output.warn(refused);
    }
    context.output.json(
        exit,
        Answer {
            action: "wal_list",
            archive: archive.path().display().to_string(),
            system: identity.system.to_string(),
            segment_bytes: size.bytes(),
            runs: facts,
            histories: histories.iter().map(|t| t.number()).collect(),
            gap_count: gaps,
            damaged_segments: damaged,
            refused,
            broken,
        },
    );
    Ok(exit)
}

/// The number of runs that continue a timeline after a break.
fn gaps(runs: &[Run]) -> usize {
    let broken = |pair: &&[Run]| pair[0].span.last.timeline == pair[1].span.first.timeline;
    runs.windows(2).filter(broken).count()
}

/// The names of segments that do not decode to the pushed content.
fn damaged(archive: &WalArchive, runs: &[Run], context: &Context) -> Result<Vec<String>, Failure> {
    let size = match archive.identity() {
        Some(identity) => identity.segment_size,
        None => return Ok(Vec::new()),
    };
    let mut damaged = Vec::new();
    for run in runs {
        let mut name = run.span.first;
        for _ in 0..run.span.segments {
            match archive.verify(WalName::Segment(name)) {
                // Retention has removed it meanwhile.
                Ok(_) | Err(Error::Missing { .. }) => {}
                Err(
                    e @ (Error::Damaged { .. } | Error::Newer { .. } | Error::OtherHistory { .. }),
                ) => {
                    context.output.warn(&e.to_string());
                    damaged.push(name.to_string());
                }
                Err(e @ Error::Unopened { .. }) if e.is_tampering() => {
                    context.output.warn(&e.to_string());
                    damaged.push(name.to_string());
                }
                Err(e) => return Err(e.into()),
            }
            name = name.next(size);
        }
    }
    Ok(damaged)
}

/// The segments that do not continue the previous one.
fn broken(
    archive: &WalArchive,
    runs: &[Run],
    context: &Context,
) -> Result<Vec<ChainBreak>, Failure> {
    let mut broken = Vec::new();
    for run in runs {
        for error in archive.broken_links(&run.span)? {
            let hint = error.hint();
            context.output.warn(&format!("{error}\n  {hint}"));
            if let Error::BrokenLink {
                before,
                name,
                source,
                ..
            } = error
            {
                broken.push(ChainBreak {
                    name: name.to_string(),
                    before: before.to_string(),
                    what: source.to_string(),
                });
            }
        }
    }
    Ok(broken)
}
