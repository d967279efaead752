//! What is mounted below a restore's target: a restore neither empties another file system nor moves names into one.
//!
//! Invariants
//! - A bind mount counts, also one of a single file or of the same file system.
//! - Where the system tells nothing of mounts, the removal of a tree still stops at them (`tree.rs`).
//!
//! Leaves to others: which names a restore replaces (`place`, `survey.rs`).

use std::path::{Path, PathBuf};

use longshore_io::Storage;

use crate::error::Error;
use crate::locked_target::STAGING;

/// The mount points below `path`, relative to it; without those of the restore's own directory.
pub fn mounts_below(storage: &dyn Storage, path: &Path) -> Vec<PathBuf> {
    let Ok(real) = storage.canonical(path) else {
        return Vec::new();
    };
    let mounts = longshore_source::mount_points(storage);
    let below = mounts
        .iter()
        .filter_map(|mount| mount.strip_prefix(&real).ok());
    below
        .filter(|name| !name.as_os_str().is_empty() && !name.starts_with(STAGING))
        .map(Path::to_path_buf)
        .collect()
}

/// Refuses a place of the target at `path` that is on another file system, or if it is replaced, one that has another file
/// system at or below it. Errors: [`Error::Mounted`].
pub fn refuse_mounted(
    mounts: &[PathBuf],
    path: &Path,
    place: &Path,
    is_replaced: bool,
) -> Result<(), Error> {
    let is_in_the_way = |mount: &&PathBuf| {
        let is_above = place.starts_with(mount) && place != mount.as_path();
        is_above || is_replaced && mount.starts_with(place)
    };
    match mounts.iter().find(is_in_the_way) {
        Some(mount) => Err(Error::Mounted {
            path: path.join(mount),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_at_below_or_above_a_place_is_in_its_way() {
        let mounts = [PathBuf::from("a/mount")];
        for (place, is_replaced, is_refused) in [
            ("a", true, true),
            ("a", false, false),
            ("a/mount", true, true),
            ("a/mount", false, false),
            ("a/mount/x", true, true),
            ("a/mount/x", false, true),
            ("a/mounted", true, false),
            ("b", true, false),
        ] {
            let found = refuse_mounted(&mounts, Path::new("/to"), Path::new(place), is_replaced);
            assert_eq!(found.is_err(), is_refused, "{place} {is_replaced}");
        }
    }
}
