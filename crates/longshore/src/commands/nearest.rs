//! The nearest whole copy of a backup, for readers, while the database's own target is away.
//!
//! Invariants
//! - Only a target that cannot be reached is skipped. One that answers decides itself what it has.
//! - Of all copies in reach the newest backup is taken; of equal ones, that of the copy that `copies` names first.
//! - The choice, its place and the reason are said, and that the target alone knows whether there is a newer backup.
//! - A copy that does not know which of several clusters is meant ends the search: no other copy answers that.
//!
//! Leaves to others: copies of a backup of which the target has lost something (`restore/beginning.rs`).

use longshore_repository::{BackupLease, Error, Shelf};

use super::{devices, labelled};
use crate::context::Context;
use longshore_terminal::failure::Failure;

/// A backup at a copy, and what was found with it.
pub struct Nearest<T> {
    pub shelf: Shelf,
    pub lease: BackupLease,
    pub more: T,
}

/// Whether the target could not be reached.
pub fn is_away(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. } | Error::Io { .. } | Error::Store(_)
    )
}

/// The find of `take` at a target without the places that do not answer, for which parity may stand; `None` if that is not why it gave
/// `error`, or if what is left gives nothing. `take` gives
/// `None` for what is not what was asked for: an older backup, because the newest one's stripes are not in reach.
pub fn in_reach<T>(
    own: &Shelf,
    error: &Error,
    context: &Context,
    take: impl Fn(&Shelf) -> Result<Option<T>, Error>,
) -> Option<(Shelf, T)> {
    let (mut shelf, mut silent) = own.without_silent(error)?;
    let found = loop {
        match take(&shelf) {
            Ok(found) => break found?,
            Err(next) => {
                let (fewer, more) = shelf.without_silent(&next)?;
                silent.extend(more);
                shelf = fewer;
            }
        }
    };
    context.output.warn(&format!(
        "target {}: {} cannot be reached ({error}): the stripes elsewhere are read, as far as parity stands for the others",
        own.target.name,
        silent.join(", ")
    ));
    Some((shelf, found))
}

/// The lease, unless it passes over a newer backup and nobody has named its label.
pub fn newest(lease: BackupLease, label: Option<&str>) -> Option<BackupLease> {
    (label.is_some() || lease.passed.is_empty()).then_some(lease)
}

/// The backup that `take` finds at a copy, in place of the target that gave `error`; `None` if that was no target that is
/// away, or if no copy has one.
///
/// Errors: [`Error::Branches`] if a copy has backups of several branches or clusters; what other copies have is said.
pub fn instead_of<T>(
    own: &Shelf,
    error: &Error,
    context: &Context,
    take: impl Fn(&Shelf) -> Result<(BackupLease, T), Error>,
) -> Result<Option<Nearest<T>>, Error> {
    if !is_away(error) {
        return Ok(None);
    }
    let mut nearest: Option<Nearest<T>> = None;
    let mut unknown = None;
    for copy in context.config.copies_of(&own.database) {
        let shelf = devices::target(context, copy)
            .and_then(|target| devices::shelf(context, &target, &own.database));
        let Ok(mut shelf) = shelf else { continue };
        shelf.keyring = own.keyring.clone();
        match take(&shelf) {
            Ok((lease, more)) => {
                // Their times say nothing about which one is meant.
                if let Some(other) = nearest
                    .as_ref()
                    .filter(|other| !is_like(&lease, &other.lease))
                {
                    context.output.note(&format!(
                        "targets {copy} and {} have backups of two databases under the name {}: name one of them with --target",
                        other.shelf.target.name, own.database
                    ));
                    return Ok(None);
                }
                let is_newer =
                    |other: &Nearest<T>| lease.facts.finish_us > other.lease.facts.finish_us;
                if nearest.as_ref().is_none_or(is_newer) {
                    nearest = Some(Nearest { shelf, lease, more });
                }
            }
            Err(error @ Error::Branches { .. }) if unknown.is_none() => unknown = Some(error),
            Err(error) => context
                .output
                .note(&format!("target {copy} gives no backup instead: {error}")),
        }
    }
    if let Some(unknown) = unknown {
        context
            .output
            .note(&format!("target {} is away: {error}", own.target.name));
        if let Some(other) = &nearest {
            context.output.note(&format!(
                "target {} has {}: name one of the targets with --target if you know which database is meant",
                other.shelf.target.name, other.lease.label
            ));
        }
        return Err(unknown);
    }
    let Some(found) = &nearest else {
        return Ok(None);
    };
    context.output.warn(&format!(
        "target {} is away ({error}): {} is read from its copy at target {}, the newest that a copy has; a newer backup may be at \
         target {0} alone",
        own.target.name, found.lease.label, found.shelf.target.name
    ));
    Ok(nearest)
}

/// Whether two backups are of one cluster, or of one file or tree.
fn is_like(one: &BackupLease, other: &BackupLease) -> bool {
    let system = |lease: &BackupLease| lease.facts.log.map(|log| log.system);
    match (system(one), system(other)) {
        (None, None) => {
            let (one, other) = (&one.facts.identity.origin, &other.facts.identity.origin);
            one.is_same(other)
        }
        (one, other) => one == other,
    }
}

/// [`Shelf::lease`], at the nearest copy while the target is away and none is `named`.
pub fn lease(
    own: Shelf,
    label: Option<&str>,
    named: Option<&str>,
    context: &Context,
) -> Result<(Shelf, BackupLease), Failure> {
    let error = match own.lease(label) {
        Ok(lease) => return Ok((own, lease)),
        Err(error) => error,
    };
    if let Some(found) = in_reach(&own, &error, context, |shelf| {
        shelf.lease(label).map(|lease| newest(lease, label))
    }) {
        return Ok(found);
    }
    let take = |shelf: &Shelf| Ok((shelf.lease(label)?, ()));
    let nearest = match named {
        Some(_) => None,
        None => instead_of(&own, &error, context, take).map_err(labelled::of_branch)?,
    };
    match nearest {
        Some(nearest) => Ok((nearest.shelf, nearest.lease)),
        None => Err(labelled::of_branch(error)),
    }
}
