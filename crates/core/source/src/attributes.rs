//! Reads the extended attributes of backed-up files, and counts what of them cannot be in a backup.
//!
//! Invariants
//! - An attribute that is left out is told: in a warning if it was to be kept, else in a note, but for signatures over an inode.
//! - Few names are held in memory, however many files there are.
//!
//! Leaves to others: which attributes are kept (`longshore-io`), and setting them again (`longshore-landing`).

use std::collections::BTreeSet;
use std::path::Path;

use longshore_io::{Dir, XATTRS_BYTES_MAX, Xattr};

use crate::tally::Tally;

/// Attributes that could not be backed up, counted for the final warnings.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    refused: Tally,
    large: Tally,
    unkept: Tally,
    /// Names of those, each once.
    unkept_names: BTreeSet<Vec<u8>>,
}

/// The most names of attributes that are told.
const NAMES_MAX: usize = 8;

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
        if !found.unkept.is_empty() {
            self.unkept.add(host_path);
            self.name_unkept(found.unkept);
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
        self.unkept.merge(other.unkept);
        self.name_unkept(other.unkept_names);
    }

    fn name_unkept(&mut self, names: impl IntoIterator<Item = Vec<u8>>) {
        for name in names {
            if self.unkept_names.len() < NAMES_MAX {
                self.unkept_names.insert(name);
            }
        }
    }

    /// The note about attributes that belong to the file system, and are no part of a backup.
    pub(crate) fn notes(&self) -> Option<String> {
        let names = self.unkept_names.iter();
        let names: Vec<_> = names.map(|name| String::from_utf8_lossy(name)).collect();
        self.unkept.warning(&format!(
            "names have extended attributes of the file system, which are not in the backup ({})",
            names.join(", ")
        ))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a note names the file system's attributes, each once and a few of many, and is not there without any.
    #[test]
    fn attributes_of_the_file_system_are_named_in_one_note() {
        let mut all = Attributes::default();
        assert_eq!(all.notes(), None);
        for n in 0..20 {
            let mut one = Attributes::default();
            one.unkept.add(Path::new("/f"));
            one.name_unkept([
                b"system.nfs4_acl".to_vec(),
                format!("ceph.{n}").into_bytes(),
            ]);
            all.merge(one);
        }
        let note = all.notes().unwrap();
        assert!(note.starts_with("20 names have extended"), "{note}");
        assert_eq!(note.matches("system.nfs4_acl").count(), 1, "{note}");
        assert_eq!(note.matches("ceph.").count(), NAMES_MAX - 1, "{note}");
    }
}
