//! Chooses the set with which a recovery begins: the newest that is consistent before the target.
//!
//! Only a time and an LSN can be compared with sets beforehand. For a transaction or a named restore point, the last
//! set is used unless one was requested; a server that cannot reach its target reports that and does not open.
//!
//! Invariants
//! - A set that is not consistent before the target is never chosen, and a chosen one is refused before it is read.
//! - A recovery that cannot get the WAL of the set is refused.
//!
//! Leaves to others: backups at a target (`longshore-repository`), and the proof of an archive's WAL (`archived.rs`).

use longshore_landing::{ClusterError, ClusterOptions, RecoverySettings};
use longshore_media::{BackupType, MediaSet, SetHeader, SetSummary, SetTrailer};
use longshore_pg::{Lineage, Lsn, Recovery, RecoveryTarget, recovery};
use longshore_source::SourceKind;

use crate::Error;

/// Whether the target precedes the point at which the set is consistent; if so, returns both as text.
fn too_early(target: &RecoveryTarget, trailer: &SetTrailer) -> Option<(String, String)> {
    let last = trailer.log.last_lsn;
    match target {
        RecoveryTarget::Time(us) if *us < trailer.finish_us => {
            Some((recovery::time(*us), recovery::time(trailer.finish_us)))
        }
        RecoveryTarget::Lsn(lsn) if lsn.0 < last => Some((lsn.to_string(), Lsn(last).to_string())),
        RecoveryTarget::Immediate
        | RecoveryTarget::Time(_)
        | RecoveryTarget::Lsn(_)
        | RecoveryTarget::Xid(_)
        | RecoveryTarget::Name(_) => None,
    }
}

/// The last set on the media that holds more than WAL. Returns 0, the last of all, if that is it or there is none.
fn last_database(media: &MediaSet) -> Result<u32, Error> {
    let sets = media.sets()?;
    let is_log = |set: &&SetSummary| set.header.backup_type == BackupType::Log;
    if sets.last().filter(is_log).is_none() {
        return Ok(0);
    }
    let found = sets.iter().rev().find(|set| !is_log(set));
    Ok(found.map_or(0, |set| set.header.position))
}

/// The position to restore; `asked` is 0 if the operator did not choose.
pub fn position(media: &MediaSet, asked: u32, recovery: Option<&Recovery>) -> Result<u32, Error> {
    if asked == 0 && recovery.is_none() {
        return last_database(media);
    }
    let target = match recovery.and_then(|recovery| recovery.target.as_ref()) {
        Some(target) if asked == 0 => target,
        _ => return Ok(asked),
    };
    if !matches!(target, RecoveryTarget::Time(_) | RecoveryTarget::Lsn(_)) {
        return Ok(asked);
    }
    let mut clusters = 0;
    for set in media.sets()?.iter().rev() {
        let Some(trailer) = &set.trailer else {
            continue;
        };
        let is_log = set.header.backup_type == BackupType::Log;
        if set.header.source_kind != SourceKind::Postgres as u8 || is_log {
            continue;
        }
        clusters += 1;
        if too_early(target, trailer).is_none() {
            return Ok(set.header.position);
        }
    }
    let target = match target {
        RecoveryTarget::Time(us) => recovery::time(*us),
        RecoveryTarget::Lsn(lsn) => lsn.to_string(),
        RecoveryTarget::Immediate | RecoveryTarget::Xid(_) | RecoveryTarget::Name(_) => {
            return Ok(0);
        }
    };
    match clusters {
        0 => Err(ClusterError::NotACluster.into()),
        _ => Err(ClusterError::NoSetBefore { target }.into()),
    }
}

/// Whether the set was made from a standby.
fn is_of_standby(header: &SetHeader) -> bool {
    Lineage::decode(&header.lineage).is_some_and(|lineage| lineage.in_recovery)
}

/// Refuses targets that the server would refuse only after the whole restore.
pub fn check(
    header: &SetHeader,
    trailer: &SetTrailer,
    options: &ClusterOptions,
) -> Result<(), ClusterError> {
    let recovery = options.recovery.as_ref();
    let is_fetched = recovery.is_some_and(|recovery| recovery.restore_command.is_some());
    let last = Lsn(trailer.log.last_lsn);
    match options.settings {
        RecoverySettings::None if !trailer.log.included => {
            return Err(ClusterError::OwnLogOnly { last });
        }
        RecoverySettings::None if is_of_standby(header) => {
            return Err(ClusterError::OwnLogOfStandby);
        }
        // The stored settings say where the WAL is.
        RecoverySettings::Keep => return Ok(()),
        RecoverySettings::Write | RecoverySettings::None => {}
    }
    let is_there = trailer.log.included || is_fetched || options.log_follows || options.hold;
    if header.log.first_lsn > 0 && !is_there {
        return Err(ClusterError::LogNotIncluded { last });
    }
    let target = recovery.and_then(|recovery| recovery.target.as_ref());
    match target.and_then(|target| too_early(target, trailer)) {
        Some((target, reached)) => Err(ClusterError::TargetTooEarly { target, reached }),
        None => Ok(()),
    }
}
