//! Which devices are meant: named one by one, or by a target of the configuration.

use std::path::{Path, PathBuf};

use longshore_io::Dir;
use longshore_media::DeviceSpec;

use super::Context;
use crate::config::{Target, bad_name};
use crate::failure::{Exit, Failure};
use crate::options::Media;

const EXTENSION: &str = ".bak";

pub fn target<'a>(context: &'a Context, name: &str) -> Result<&'a Target, Failure> {
    context.config.target.get(name).ok_or_else(|| {
        let known: Vec<_> = context.config.target.keys().map(String::as_str).collect();
        Failure::usage(
            format!("there is no [target.{name}] in the configuration"),
            match known.as_slice() {
                [] => "no configuration names a target; use --config or --to".to_owned(),
                _ => format!("known targets are: {}", known.join(", ")),
            },
        )
    })
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    Failure {
        exit: Exit::Media,
        number: Some(3201),
        text: format!("cannot open the directory {}", path.display()),
        causes: vec![error.to_string()],
        hint: Some("is the disk mounted? Targets' directories must exist".to_owned()),
    }
}

/// New devices for a backup to a target: DIRECTORY/DATABASE/LABEL.bak. Creates the database's directories.
pub fn for_backup(
    context: &Context,
    name: &str,
    database: &str,
) -> Result<Vec<DeviceSpec>, Failure> {
    if let Some(what) = bad_name(database) {
        return Err(Failure::usage(
            format!("{database:?} cannot be a directory of a target: {what}"),
            "give another name with --database",
        ));
    }
    let label = label(context.clock.wall_ns());
    let mut devices = Vec::new();
    for dir in &target(context, name)?.directories {
        // Not created: an unmounted disk's mount point would be filled instead of it.
        context.storage.dir(dir).map_err(|e| unreachable(dir, &e))?;
        let below = dir.join(database);
        context
            .storage
            .create_dir_all(&below)
            .map_err(|e| unreachable(&below, &e))?;
        devices.push(DeviceSpec::File(below.join(format!("{label}{EXTENSION}"))));
    }
    Ok(devices)
}

/// UTC to the second; sorts by time.
fn label(wall_ns: i64) -> String {
    jiff::Timestamp::from_microsecond(wall_ns / 1000).map_or_else(
        |_| wall_ns.to_string(),
        |t| t.strftime("%Y%m%dT%H%M%SZ").to_string(),
    )
}

/// The devices a reading command means.
pub fn of(context: &Context, media: &Media) -> Result<Vec<DeviceSpec>, Failure> {
    let (Some(name), Some(database)) = (&media.target, &media.database) else {
        return Ok(media.devices.clone());
    };
    let target = target(context, name)?;
    let below: Vec<PathBuf> = target
        .directories
        .iter()
        .map(|d| d.join(database))
        .collect();
    let label = match &media.backup_label {
        Some(label) => label.clone(),
        None => latest(context, &below)?.ok_or_else(|| Failure {
            exit: Exit::Media,
            number: Some(3201),
            text: format!("target {name} holds no backup of {database}"),
            causes: Vec::new(),
            hint: Some("check the name; DATABASE is a directory below the target's".to_owned()),
        })?,
    };
    let file = |dir: &PathBuf| DeviceSpec::File(dir.join(format!("{label}{EXTENSION}")));
    Ok(below.iter().map(file).collect())
}

/// The latest label in any of the directories: when a stripe of it is missing, that is said, not passed over.
fn latest(context: &Context, dirs: &[PathBuf]) -> Result<Option<String>, Failure> {
    let mut latest: Option<String> = None;
    for path in dirs {
        let dir = context
            .storage
            .dir(path)
            .map_err(|e| unreachable(path, &e))?;
        let found = latest_in(&*dir).map_err(|e| unreachable(path, &e))?;
        latest = latest.max(found);
    }
    Ok(latest)
}

fn latest_in(dir: &dyn Dir) -> std::io::Result<Option<String>> {
    let mut latest: Option<String> = None;
    for name in dir.list()? {
        if let Some(label) = name?.to_str().and_then(|n| n.strip_suffix(EXTENSION)) {
            latest = latest.max(Some(label.to_owned()));
        }
    }
    Ok(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_utc_and_sort_by_time() {
        assert_eq!(label(0), "19700101T000000Z");
        assert!(label(1_900_000_000_000_000_000) > label(1_800_000_000_000_000_000));
    }
}
