//! Reads the extended attributes of backed-up files.

use std::path::Path;

use longshore_io::{Dir, XATTRS_BYTES_MAX, Xattr};

use crate::tally::Tally;

/// Attributes that could not be backed up, counted for the final warnings.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    refused: Tally,
    large: Tally,
}

impl Attributes {
    /// Reads the attributes of `name` in `dir`; `host_path` is its path for messages. A name that no longer exists has
    /// none: reading its content reports that.
    pub(crate) fn read(&mut self, dir: &dyn Dir, name: &Path, host_path: &Path) -> Vec<Xattr> {
        let Ok(found) = dir.xattrs(name) else {
            if dir.stat(name).is_ok() {
                self.refused.add(host_path);
            }
            return Vec::new();
        };
        if found.refused > 0 {
            self.refused.add(host_path);
        }
        let mut xattrs = found.read;
        if xattrs.iter().map(Xattr::bytes).sum::<usize>() > XATTRS_BYTES_MAX {
            self.large.add(host_path);
            // Attributes that grant access are small, and precede the users' own.
            let mut room = XATTRS_BYTES_MAX;
            xattrs.sort_by_key(|xattr| (xattr.name.starts_with(b"user."), xattr.bytes()));
            xattrs.retain(|xattr| {
                let fits = xattr.bytes() <= room;
                room -= if fits { xattr.bytes() } else { 0 };
                fits
            });
            xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        xattrs
    }

    pub(crate) fn merge(&mut self, other: Attributes) {
        self.refused.merge(other.refused);
        self.large.merge(other.large);
    }

    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let refused = self.refused.warning(
            "names have extended attributes that could not be read; they are not in the backup",
        );
        let large = self
            .large
            .warning("names have more extended attributes than a backup can keep; the largest are not in the backup");
        refused.into_iter().chain(large)
    }
}
