//! The devices that a reading command means: named one by one, or those of a backup at a target.
//!
//! Invariants
//! - Devices of a target come with a lease, which is held until the command has ended: no expire removes what is read.
//! - While the database's own target is away, its nearest copy is read, and that is said.
//!
//! Leaves to others: targets (`devices.rs`), the nearest copy (`nearest.rs`), and opening stripes (`media`).

use longshore_media::DeviceSpec;
use longshore_repository::{BackupLease, SetIdentity, Shelf};

use super::{devices, nearest, past};
use crate::context::Context;
use crate::options::{Bases, Media};
use longshore_terminal::failure::Failure;

/// Devices to read from. Held until reading ends, so that no expire removes them.
pub struct ReadDevices {
    pub devices: Vec<DeviceSpec>,
    lease: Option<BackupLease>,
    /// Where the backup is read.
    shelf: Option<Shelf>,
}

impl ReadDevices {
    /// The sets that were leased, as they were then; the chosen one first. Empty for named devices.
    pub fn identities(&self) -> &[SetIdentity] {
        let lease = self.lease.as_ref();
        lease.map_or(&[], |lease| &lease.identities)
    }

    /// Where the backup is read, which is at a copy while the target is away; `None` for named devices.
    pub fn shelf(&self) -> Option<&Shelf> {
        self.shelf.as_ref()
    }

    /// The locations of the sets that a differential set needs: as named, or all sets at the target.
    pub fn bases(&self, named: &Bases) -> Vec<DeviceSpec> {
        match &self.lease {
            Some(lease) => devices::bases(lease),
            None => named.bases.clone(),
        }
    }
}

/// The devices that a reading command means.
pub fn of(context: &Context, media: &Media) -> Result<ReadDevices, Failure> {
    let Some(database) = &media.database else {
        if let Some(target) = &media.target {
            return Err(Failure::usage(
                format!("no database of target {target} is named"),
                format!("name one with --database; `longshore info --target {target}` lists them"),
            ));
        }
        refuse_database(context, media)?;
        past::refuse_present_devices(&media.devices)?;
        return Ok(ReadDevices {
            devices: media.devices.clone(),
            lease: None,
            shelf: None,
        });
    };
    let target = devices::target_of(context, media.target.as_deref(), database)?;
    let label = media.label.as_deref().filter(|l| *l != "latest");
    let own = devices::shelf(context, &target, database)?;
    let (shelf, lease) = nearest::lease(own, label, media.target.as_deref(), context)?;
    devices::remark(&lease, context);
    Ok(ReadDevices {
        devices: lease.devices.clone(),
        lease: Some(lease),
        shelf: Some(shelf),
    })
}

/// A backup may be made by its database's name, so users may look for its media by that name, too.
fn refuse_database(context: &Context, media: &Media) -> Result<(), Failure> {
    let [DeviceSpec::File(path)] = media.devices.as_slice() else {
        return Ok(());
    };
    let Some(name) = path
        .to_str()
        .filter(|_| context.storage.stat(path).is_err())
    else {
        return Ok(());
    };
    match context.config.database.contains_key(name) {
        true => Err(Failure::usage(
            format!("{name} is not a file here, but a configured database"),
            format!("for the newest backup at its target use --database {name}"),
        )),
        false => Ok(()),
    }
}
