//! Devices that a backup must not write to, because of what it reads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use longshore_media::{DeviceSpec, Disposition};
use longshore_source::SourceSpec;

use crate::context::House;
use crate::error::Error;
use crate::request::BackupRequest;

/// FORMAT must not overwrite what is backed up.
pub fn refuse_own_files(house: &House, request: &BackupRequest) -> Result<(), Error> {
    let roots = match &request.source {
        SourceSpec::Sqlite(file) => std::slice::from_ref(file),
        SourceSpec::Files(roots) => roots.as_slice(),
        SourceSpec::Postgres(_) => &[],
    };
    let same_file = |a: &PathBuf, b: &PathBuf| {
        let id = |path| house.storage.stat(path).map(|s| (s.dev, s.ino));
        matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
    };
    for device in &request.devices {
        if let DeviceSpec::File(path) = device
            && request.disposition == Disposition::Format
            && roots.iter().any(|root| same_file(root, path))
        {
            let what = "it is what is to be backed up";
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
    house: &House,
    devices: &[DeviceSpec],
    trees: &[PathBuf],
) -> Result<(), Error> {
    for device in devices {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let absolute = std::path::absolute(path).unwrap_or_default();
        // What cannot be found is told when the device is opened.
        let parent = absolute.parent().unwrap_or(Path::new("/"));
        let Ok(dir) = house.storage.canonical(parent) else {
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

/// The lock of a device that is named twice would tell of another backup.
pub fn refuse_twice(devices: &[DeviceSpec]) -> Result<(), Error> {
    let mut families = HashMap::new();
    for (device, family) in devices.iter().zip(1..) {
        if let DeviceSpec::File(path) = device
            && let Some(family) = families.insert(path, family)
        {
            let device = path.display().to_string();
            return Err(longshore_media::Error::DeviceTwice { device, family }.into());
        }
    }
    Ok(())
}
