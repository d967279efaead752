//! A restore without its writes: the sets it would read, and the changes it would make in its target.
//!
//! The way is that of the restore itself up to its first write, so a restore that would be refused is refused here. Locks
//! are not taken, and programs that use a database are not noticed.
//!
//! Leaves to others: the decisions (`prepared.rs`, `target.rs`), and how long it would take, which the history knows.

use std::path::Path;

use longshore_landing::{ClusterError, Error as LandingError};

use super::databases::EmptiedDatabases;
use super::opened::OpenedMedia;
use super::prepared::PreparedRestore;
use super::report::set_of;
use crate::report::{RestorePreview, RestoredSet};
use crate::request::RestoreRequest;
use crate::{Error, Observer, RunContext};

pub fn of(
    context: &RunContext,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestorePreview, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let opened = OpenedMedia::open(context, request)?;
    let Some(summary) = &opened.summary else {
        let what = "a dry run";
        return Err(ClusterError::NeedsIndex { what }.into());
    };
    let emptied = EmptiedDatabases::of(context, request, &opened)?;
    let prepared = PreparedRestore::of(context, request, &opened, emptied.as_ref())?;
    check_rights(context, &request.target)?;
    let options = prepared.options(observer)?;
    let survey = prepared.needs(&options).survey(context)?;
    let trailer = summary.trailer.as_ref();
    let plain_bytes = trailer.map_or(0, |trailer| trailer.plain_bytes_total);
    let families = 0..opened.media.family_count();
    let requested = RestoredSet {
        set: prepared.header.set,
        root: trailer.and_then(|trailer| trailer.root_text()),
        position: opened.position,
        is_differential: prepared.header.parent.is_some(),
        devices: families
            .map(|i| opened.media.device(i).to_owned())
            .collect(),
        plain_bytes,
    };
    let mut sets = vec![requested];
    let others = prepared.reading.links().iter().skip(1);
    sets.extend(others.map(|link| set_of(link, link.trailer.plain_bytes_total)));
    let texts = |paths: &[std::path::PathBuf]| {
        let shown = paths.iter().map(|path| path.display().to_string());
        shown.collect::<Vec<_>>()
    };
    Ok(RestorePreview {
        database: prepared.header.database.clone(),
        target: request.target.display().to_string(),
        plain_bytes: sets.iter().map(|set| set.plain_bytes).sum(),
        sets,
        replaced_names: survey.replaced.count,
        replaced: texts(&survey.replaced.first),
        swept_file_count: survey.swept.files,
        swept_bytes: survey.swept.bytes,
        removed_names: survey.removed.count,
        removed: texts(&survey.removed.first),
        tablespaces: survey
            .spaces
            .iter()
            .map(|(oid, path)| (*oid, path.display().to_string()))
            .collect(),
        emptied: emptied
            .as_ref()
            .map_or_else(Vec::new, EmptiedDatabases::report),
        plan: prepared.plan,
    })
}

/// Refuses a target in which this user can make nothing: the directory itself, or the nearest one above it that exists.
fn check_rights(context: &RunContext, target: &Path) -> Result<(), Error> {
    let whole = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let existing = whole
        .ancestors()
        .find(|path| context.storage.dir(path).is_ok());
    match existing.map(longshore_facts::may_write) {
        Some(Err(source)) => Err(LandingError::Target {
            action: "write in",
            path: target.to_owned(),
            source,
        }
        .into()),
        _ => Ok(()),
    }
}
