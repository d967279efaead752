//! Devices that no backup writes onto, whatever its disposition says.

use std::path::PathBuf;

use longshore_landing::{KeptFiles, SET, directory, real};
use longshore_media::{DeviceSpec, Disposition};

use crate::{Error, House};

/// Refuses devices in an archive, and those that would change a set at a target. A backup to a target begins with new
/// files in a directory of its own. Errors: [`Error::DeviceKept`].
pub fn check(
    house: &House,
    devices: &[DeviceSpec],
    disposition: Disposition,
    own: &[PathBuf],
) -> Result<(), Error> {
    let storage = &*house.storage;
    let kept = KeptFiles::own(storage, own, house.catalog.as_deref());
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
