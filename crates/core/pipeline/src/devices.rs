//! Devices that no backup may write to, whatever its disposition.

use longshore_landing::{KnownFiles, SET, directory, real};
use longshore_media::{DeviceSpec, Disposition};
use longshore_repository::target::kept_object;

use crate::{BackupRequest, Error, RunContext};

/// Refuses devices in an archive, and devices that would change a set at a target. A backup to a target begins with
/// new stripes below a label of its own, the place that it has taken. Errors: [`Error::DeviceKept`].
pub fn check(context: &RunContext, request: &BackupRequest) -> Result<(), Error> {
    let storage = &*context.storage;
    let kept = KnownFiles::own(storage, &request.own, context.catalog.as_deref());
    for device in request.all_devices() {
        let place = request.place.as_ref();
        let is_new = request.disposition == Disposition::New
            && place.is_some_and(|place| place.devices.contains(device));
        let (path, name) = match device {
            DeviceSpec::File(path) => (path, path.display().to_string()),
            DeviceSpec::Bucket(address) => match kept_object(address) {
                Some(what) if !is_new => {
                    let device = address.to_string();
                    return Err(Error::DeviceKept { device, what });
                }
                _ => continue,
            },
            DeviceSpec::Nul | DeviceSpec::Pipe => continue,
        };
        let refused = |what| Error::DeviceKept {
            device: name.clone(),
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
            Some(SET) if is_new => {}
            Some(what) => return Err(refused(what)),
            None => {}
        }
    }
    Ok(())
}
