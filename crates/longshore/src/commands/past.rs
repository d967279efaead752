//! `--as-of`: buckets as they were at an earlier time.
//!
//! A directory has no earlier state, so with this option every place that backups or WAL are read from is in a bucket. The
//! archive of a database is refused where it is opened (`longshore-repository`).

use longshore_media::DeviceSpec;
use longshore_repository::{as_of, past_ns};

use crate::options::{CatalogAction, Command, WalAction};
use longshore_terminal::failure::Failure;

/// From now on buckets are read as they were at the command's `--as-of`.
pub fn begin(command: &Command) {
    let past = match command {
        Command::Restore(restore) => restore.media.past,
        Command::Verify(verify) => verify.media.past,
        Command::List(list) => list.media.past,
        Command::Info(info) => info.past,
        Command::Catalog(catalog) => match &catalog.action {
            CatalogAction::Rebuild(rebuild) => rebuild.media.past,
            CatalogAction::Settings(_) => return,
        },
        Command::Wal(wal) => match &wal.action {
            WalAction::Get(get) => get.past,
            WalAction::List(list) => list.past,
            _ => return,
        },
        _ => return,
    };
    if let Some(us) = past.as_of {
        as_of(us.saturating_mul(1000));
    }
}

/// Errors: with `--as-of`, this place is not in a bucket.
pub fn refuse_present(place: &str, is_in_bucket: bool) -> Result<(), Failure> {
    match past_ns() {
        Some(_) if !is_in_bucket => Err(Failure::usage(
            format!("--as-of reads the versions that a bucket keeps, and {place} is no bucket"),
            "leave out --as-of, or name a target or addresses in buckets",
        )),
        _ => Ok(()),
    }
}

/// Errors: with `--as-of`, one of the devices is not in a bucket.
pub fn refuse_present_devices(devices: &[DeviceSpec]) -> Result<(), Failure> {
    devices.iter().try_for_each(|device| match device {
        DeviceSpec::Bucket(_) => Ok(()),
        DeviceSpec::File(path) => refuse_present(&path.display().to_string(), false),
        DeviceSpec::Nul => refuse_present("nul:", false),
        DeviceSpec::Pipe => refuse_present("standard input", false),
    })
}
