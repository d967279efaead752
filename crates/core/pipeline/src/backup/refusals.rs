//! Devices that a backup must not write to because they are part of its source.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use longshore_media::{DeviceSpec, Disposition};
use longshore_source::SourceSpec;

use crate::context::RunContext;
use crate::error::Error;
use crate::request::BackupRequest;

/// FORMAT must not overwrite the source.
pub fn refuse_own_files(context: &RunContext, request: &BackupRequest) -> Result<(), Error> {
    let roots = match &request.source {
        SourceSpec::Sqlite(file) => std::slice::from_ref(file),
        SourceSpec::Files(roots) => roots.as_slice(),
        SourceSpec::Postgres(_) => &[],
    };
    let same_file = |a: &PathBuf, b: &PathBuf| {
        let id = |path| context.storage.stat(path).map(|s| (s.dev, s.ino));
        matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
    };
    for device in request.all_devices() {
        if let DeviceSpec::File(path) = device
            && request.disposition == Disposition::Format
            && roots.iter().any(|root| same_file(root, path))
        {
            let what = "it is the source of this backup";
            return Err(longshore_media::Error::Io {
                action: "open",
                device: path.display().to_string(),
                offset: 0,
                source: std::io::Error::new(std::io::ErrorKind::ResourceBusy, what),
            }
            .into());
        }
    }
    Ok(())
}

/// Errors: [`Error::DeviceInside`].
pub fn refuse_inside(
    context: &RunContext,
    request: &BackupRequest,
    trees: &[PathBuf],
) -> Result<(), Error> {
    for device in request.all_devices() {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let absolute = std::path::absolute(path).unwrap_or_default();
        // A directory that does not exist is reported when the device is opened.
        let parent = absolute.parent().unwrap_or(Path::new("/"));
        let Ok(dir) = context.storage.canonical(parent) else {
            continue;
        };
        if let Some(tree) = trees.iter().find(|tree| dir.starts_with(tree)) {
            return Err(Error::DeviceInside {
                device: path.clone(),
                tree: tree.clone(),
            });
        }
    }
    Ok(())
}

/// Without this check, the lock of a device named twice would be reported as another backup.
pub fn refuse_twice(request: &BackupRequest) -> Result<(), Error> {
    let mut families = HashMap::new();
    let lists = std::iter::once(&request.devices).chain(&request.mirrors);
    for (device, family) in lists.flat_map(|devices| devices.iter().zip(1..)) {
        let name = match device {
            DeviceSpec::File(path) => path.clone(),
            DeviceSpec::Bucket(address) => address.to_string().into(),
            DeviceSpec::Nul | DeviceSpec::Pipe => continue,
        };
        let device = name.display().to_string();
        if let Some(family) = families.insert(name, family) {
            return Err(longshore_media::Error::DeviceTwice { device, family }.into());
        }
    }
    Ok(())
}
