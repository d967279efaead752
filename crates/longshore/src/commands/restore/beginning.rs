//! What a restore begins with: devices that were named, or the right backup of a database and the log behind it.

use longshore_media::DeviceSpec;
use longshore_pg::recovery::NO_ARCHIVE;
use longshore_pipeline::{ClusterOptions, Recovery, RecoveryTarget};
use longshore_repository::chain::LogRange;
use longshore_repository::recover::{Proven, target_text};
use longshore_repository::wal::WalArchive;
use longshore_repository::{Error, Loan, Shelf};
use serde::Serialize;

use super::older;
use crate::commands::{Context, devices, labelled};
use crate::failure::Failure;
use crate::options::{Restore, archive_command};
use crate::output::moment;

pub struct Beginning {
    pub devices: Vec<DeviceSpec>,
    /// The stripes of the sets that it differs from.
    pub bases: Vec<DeviceSpec>,
    pub cluster: ClusterOptions,
    pub told: Option<Told>,
    /// Held until the reading ends: no expire takes the backup away meanwhile.
    _loan: Option<Loan>,
    _chosen: Option<devices::Chosen>,
}

impl Beginning {
    /// Of the backup that was chosen for a database.
    pub fn label(&self) -> Option<&str> {
        self.told.as_ref().map(Told::label)
    }
}

/// What was chosen for a database.
#[derive(Debug, Serialize)]
pub struct Told {
    label: String,
    /// Newer ones that could not be taken.
    passed_over: Vec<Passed>,
    /// Where the server will fetch its log.
    archive: Option<String>,
    /// Where that ends on the timeline that is followed.
    archive_end_lsn: Option<String>,
    timeline: Option<u32>,
    /// What may keep recovery from its target.
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
struct Passed {
    label: String,
    why: String,
}

pub fn of(options: &Restore, context: &Context) -> Result<Beginning, Failure> {
    if let Some(recovery) = options.cluster.recovery() {
        refuse_future(&recovery, context)?;
    }
    let parts = !options.only.is_empty() || !options.moves.is_empty();
    match &options.media.database {
        Some(database) if !parts => of_database(database, options, context),
        _ => {
            let chosen = devices::of(context, &options.media)?;
            Ok(Beginning {
                devices: chosen.devices.clone(),
                bases: chosen.bases(&options.bases),
                cluster: options.cluster.lower(),
                told: None,
                _loan: None,
                _chosen: Some(chosen),
            })
        }
    }
}

fn of_database(database: &str, options: &Restore, context: &Context) -> Result<Beginning, Failure> {
    let (media, args) = (&options.media, &options.cluster);
    let target = devices::target_of(context, media.target.as_deref(), database)?;
    let shelf = devices::shelf(context, &target, database)?;
    let archive = match (&args.wal_archive, &args.restore_command) {
        (Some(path), _) => Some(WalArchive::existing(&*context.storage, path)?),
        (None, Some(_)) => None,
        (None, None) => shelf.wal()?,
    };
    let asked = args.recovery();
    let label = media.label.as_deref().filter(|l| *l != "latest");
    let loan = match &asked {
        Some(recovery) => shelf
            .borrow_for(label, recovery, archive.as_ref())
            .map_err(labelled::of_branch)?,
        None => shelf.borrow(label).map_err(|e| match e {
            Error::NotWhole { .. } | Error::Chain(_) => older::advised(e.into(), &shelf, label),
            e => labelled::of_branch(e),
        })?,
    };
    devices::remark(&loan, context);
    for passed in &loan.passed {
        let (label, why) = (&passed.label, &passed.why);
        context
            .output
            .warn(&format!("{label} is passed over: {why}"));
    }
    let mut cluster = args.lower();
    let mut proven = None;
    if let Some(log) = &loan.facts.log {
        let (recovery, found) = recovery(asked, log, &loan, &shelf, archive.as_ref(), context)?;
        cluster.recovery = recovery;
        // It was proved just now, with what the other backups tell.
        cluster.proof = None;
        proven = found;
    }
    let told = told(&loan, archive.as_ref(), proven.as_ref());
    context.output.remark(&told.text(&loan));
    Ok(Beginning {
        devices: loan.devices.clone(),
        bases: devices::bases(&loan),
        cluster,
        told: Some(told),
        _loan: Some(loan),
        _chosen: None,
    })
}

/// How the server recovers, and what its archive was proved to have.
fn recovery(
    asked: Option<Recovery>,
    log: &LogRange,
    loan: &Loan,
    shelf: &Shelf,
    archive: Option<&WalArchive>,
    context: &Context,
) -> Result<(Option<Recovery>, Option<Proven>), Failure> {
    let no_log = |recovery: Option<&Recovery>| Error::NoLog {
        database: shelf.database.clone(),
        wish: target_text(recovery.and_then(|r| r.target.as_ref())),
        path: shelf.wal_path(),
    };
    let is_of = |archive: &WalArchive| archive.identity().is_some_and(|i| i.system == log.system);
    if let (None, Some(archive)) = (&asked, archive)
        && !is_of(archive)
    {
        let path = archive.path().display();
        context.output.warn(&format!(
            "{path} holds the log of another cluster: only the backup's own is replayed"
        ));
        return Ok((None, None));
    }
    // Without a word about recovery: to the end of the log that there is.
    match (asked, archive) {
        (asked, Some(archive)) => {
            let mut recovery = asked.unwrap_or_default();
            archive.check_witness(loan.facts.witness())?;
            let proven = archive.prove(log, loan.log_included, &recovery, loan.reach)?;
            if let Some(warning) = proven.warning() {
                context.output.warn(&warning);
            }
            recovery.restore_command = Some(archive_command(archive.path()));
            recovery.not_ahead = proven.not_ahead;
            Ok((Some(recovery), Some(proven)))
        }
        (Some(recovery), None) if recovery.restore_command.is_some() || recovery.standby => {
            Ok((Some(recovery), None))
        }
        (Some(mut recovery), None)
            if recovery.target == Some(RecoveryTarget::Immediate) && loan.log_included =>
        {
            recovery.restore_command = Some(NO_ARCHIVE.to_owned());
            Ok((Some(recovery), None))
        }
        (Some(recovery), None) => Err(no_log(Some(&recovery)).into()),
        // There is an archive, but it is not to be seen.
        (None, None) if context.config.wal_of(&shelf.database).is_some() => {
            Err(no_log(None).into())
        }
        (None, None) => Ok((None, None)),
    }
}

/// A server never gets to a moment that has not come; it would end without opening.
fn refuse_future(recovery: &Recovery, context: &Context) -> Result<(), Failure> {
    let now_us = context.clock.wall_ns() / 1000;
    match recovery.target {
        Some(RecoveryTarget::Time(us)) if us > now_us && !recovery.standby => Err(Failure::usage(
            format!(
                "the target {} has not come yet",
                target_text(recovery.target.as_ref())
            ),
            "choose a moment that has passed, or leave the target out to replay all the log that there is",
        )),
        _ => Ok(()),
    }
}

fn told(loan: &Loan, archive: Option<&WalArchive>, proven: Option<&Proven>) -> Told {
    let passed = |p: &longshore_repository::recover::Passed| Passed {
        label: p.label.to_string(),
        why: p.why.clone(),
    };
    let archive = archive.filter(|_| proven.is_some());
    Told {
        label: loan.label.to_string(),
        passed_over: loan.passed.iter().map(passed).collect(),
        archive: archive.map(|a| a.path().display().to_string()),
        archive_end_lsn: proven.map(|p| p.end.to_string()),
        timeline: proven.map(|p| p.timeline.number()),
        warning: proven.and_then(Proven::warning),
    }
}

impl Told {
    pub fn label(&self) -> &str {
        &self.label
    }

    fn text(&self, loan: &Loan) -> String {
        let finished = moment(loan.facts.finish_us);
        let mut text = format!(
            "longshore: backup {}, complete at {finished} UTC\n",
            self.label
        );
        if let (Some(archive), Some(end), Some(timeline)) =
            (&self.archive, &self.archive_end_lsn, self.timeline)
        {
            text += &format!(
                "longshore: log from {archive}, which ends at {end} on timeline {timeline}\n"
            );
        }
        text
    }
}
