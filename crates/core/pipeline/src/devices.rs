//! Devices that no backup may write to, whatever its disposition.

use std::path::PathBuf;

use longshore_landing::{KnownFiles, SET, directory, real};
use longshore_media::{DeviceSpec, Disposition};

use crate::{Error, RunContext};

/// Refuses devices in an archive, and devices that would change a set at a target. A backup to a target begins with
/// new files in a directory of its own. Errors: [`Error::DeviceKept`].
pub fn check(
    context: &RunContext,
    devices: &[DeviceSpec],
    disposition: Disposition,
    own: &[PathBuf],
) -> Result<(), Error> {
    let storage = &*context.storage;
    let kept = KnownFiles::own(storage, own, context.catalog.as_deref());
    for device in devices {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let refused = |what| Error::DeviceKept {
            device: path.display().to_string(),
            what,
        };
        if let Ok(stat) = storage.stat(path)
            && let Some(what) = kept.find(&stat)
        {
            return Err(refused(what));
        }
        let real = real(storage, path);
        if let (Some(parent), Some(name)) = (real.parent(), real.file_name())
            && let Some(what) = kept.find_name(parent, storage.stat(parent).ok().as_ref(), name)
        {
            return Err(refused(what));
        }
        let around = real.ancestors().skip(1);
        let found = around.filter_map(|dir| directory(storage, dir)).next();
        match found {
            Some(SET) if disposition == Disposition::New => {}
            Some(what) => return Err(refused(what)),
            None => {}
        }
    }
    Ok(())
}
