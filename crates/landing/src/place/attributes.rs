//! Gives a restored name its mode, owner, times and extended attributes.
//!
//! Invariant: at no moment, and not without its access control list either, does a name give anybody more rights than
//! it had. A mode's group bits are the list's mask where there is one, so without the list they would widen what the
//! owning group may do; and somebody whom the list names may have had less than all others.

use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{ACL_ACCESS, ACL_DEFAULT, Attributes, Dir, LABEL, USER, Xattr};
use longshore_media::{Entry, EntryKind};
use parking_lot::Mutex;

/// Extended attributes that could not be restored.
#[derive(Debug, Default)]
pub struct Lost(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    count: u64,
    lists: Losses,
    others: Losses,
}

/// How many were lost, and the first of them.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
    first: Option<(PathBuf, String)>,
}

impl Losses {
    fn add(&mut self, path: &Path, xattr: &[u8], error: &io::Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| {
            let what = format!("{}: {error}", String::from_utf8_lossy(xattr));
            (path.to_owned(), what)
        });
    }

    fn warning(&self, what: &str) -> Option<String> {
        let (path, why) = self.first.as_ref()?;
        Some(format!(
            "{} {what}: first {}, {why}",
            self.count,
            path.display()
        ))
    }
}

impl Lost {
    /// For the operator.
    pub fn warnings(&self) -> Vec<String> {
        let found = self.0.lock();
        let lists = found.lists.warning(
            "access control lists could not be restored; the modes of their files give nobody more than they did",
        );
        let others = found
            .others
            .warning("extended attributes could not be restored");
        lists.into_iter().chain(others).collect()
    }

    /// How often something was lost that matters to a file's users or their rights: labels are the machine's.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    fn note(&self, path: &Path, xattr: &[u8], error: &io::Error) {
        let mut found = self.0.lock();
        found.count += u64::from(xattr != LABEL);
        match xattr == ACL_ACCESS || xattr == ACL_DEFAULT {
            true => found.lists.add(path, xattr, error),
            false => found.others.add(path, xattr, error),
        }
    }
}

/// Everything that a name is to have beside its bytes.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its path in the set, for messages.
    pub path: PathBuf,
    pub plain: Attributes,
    pub xattrs: Vec<Xattr>,
}

impl Wanted {
    pub fn of(entry: &Entry) -> Wanted {
        Wanted {
            path: entry.path.clone(),
            plain: Attributes {
                mode: (!matches!(entry.kind, EntryKind::Symlink { .. })).then_some(entry.mode),
                owner: Some((entry.uid, entry.gid)),
                mtime_ns: Some(entry.mtime_ns),
            },
            xattrs: entry.xattrs.clone(),
        }
    }

    /// Gives all of it to `name`. What of the extended attributes is refused is noted. Returns the mode that the name
    /// may have: a narrower one where its access control list was refused.
    pub fn give(&self, dir: &dyn Dir, name: &Path, lost: &Lost) -> io::Result<Option<u32>> {
        let list = self.xattrs.iter().find(|x| x.name == ACL_ACCESS);
        let Some(mode) = self.plain.mode.filter(|_| !self.xattrs.is_empty()) else {
            dir.set_attributes(name, &self.plain)?;
            self.set(dir, name, lost, |_| true);
            return Ok(self.plain.mode);
        };
        // Those of users want the right to write, which the mode may take from us.
        self.set(dir, name, lost, |xattr| xattr.name.starts_with(USER));
        let narrow = list.map_or(mode, |list| narrowed(mode, &list.value));
        let plain = Attributes {
            mode: Some(narrow),
            ..self.plain
        };
        dir.set_attributes(name, &plain)?;
        // The list brings the group bits along; a capability is lost with every change of the owner.
        let refused = self.set(dir, name, lost, |xattr| !xattr.name.starts_with(USER));
        Ok(Some(if refused { narrow } else { mode }))
    }

    /// Whether the access control list was refused.
    fn set(&self, dir: &dyn Dir, name: &Path, lost: &Lost, which: impl Fn(&Xattr) -> bool) -> bool {
        let mut refused = false;
        for xattr in self.xattrs.iter().filter(|xattr| which(xattr)) {
            if let Err(error) = dir.set_xattr(name, xattr) {
                // The system may have given it the same label already.
                let has_it = |dir: &dyn Dir| dir.xattrs(name).is_ok_and(|x| x.read.contains(xattr));
                if xattr.name == LABEL && has_it(dir) {
                    continue;
                }
                refused |= xattr.name == ACL_ACCESS;
                lost.note(&self.path, &xattr.name, &error);
            }
        }
        refused
    }

    /// Takes from `name`, which stood there before, what it is not to have.
    pub fn take_others(&self, dir: &dyn Dir, name: &Path) -> io::Result<()> {
        // Without `/proc` nobody can tell.
        let found = dir.xattrs(name).unwrap_or_default();
        for found in found.read {
            let is_wanted = self.xattrs.iter().any(|xattr| xattr.name == found.name);
            if !is_wanted && found.name != LABEL {
                dir.remove_xattr(name, &found.name)?;
            }
        }
        Ok(())
    }
}

/// Version of the system's form of an access control list.
const LIST_VERSION: u32 = 2;
const USER_NAMED: u16 = 0x02;
const GROUP_OWNING: u16 = 0x04;
const GROUP_NAMED: u16 = 0x08;
const MASK: u16 = 0x10;

/// The widest mode that gives nobody more than `mode` does with this access control list (`system.posix_acl_access`).
/// Somebody whom the list names is, without it, one of the owning group or one of all others.
fn narrowed(mode: u32, list: &[u8]) -> u32 {
    let own = mode & !0o077;
    let Some((version, entries)) = list.split_first_chunk::<4>() else {
        return own;
    };
    if u32::from_le_bytes(*version) != LIST_VERSION || !entries.len().is_multiple_of(8) {
        return own;
    }
    let entry = |bytes: &[u8]| {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (number(0), u32::from(number(2)) & 7)
    };
    let entries: Vec<(u16, u32)> = entries.chunks(8).map(entry).collect();
    let mask = entries.iter().find(|(tag, _)| *tag == MASK);
    let mask = mask.map_or(7, |(_, rights)| *rights);
    let (mut group, mut others) = ((mode >> 3) & 7 & mask, mode & 7);
    for (tag, rights) in entries {
        match tag {
            USER_NAMED => {
                group &= rights & mask;
                others &= rights & mask;
            }
            GROUP_OWNING => group &= rights,
            GROUP_NAMED => others &= rights & mask,
            _ => {}
        }
    }
    own | group << 3 | others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = LIST_VERSION.to_le_bytes().to_vec();
        for (tag, rights) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&7u32.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn without_its_list_a_name_gives_nobody_more() {
        // The owning group may read, a named user write: the mode shows the mask.
        let writer = list(&[
            (1, 7),
            (USER_NAMED, 6),
            (GROUP_OWNING, 4),
            (MASK, 6),
            (0x20, 0),
        ]);
        assert_eq!(narrowed(0o760, &writer), 0o740);
        // A user who is kept out of what all others may read.
        let outsider = list(&[
            (1, 6),
            (USER_NAMED, 0),
            (GROUP_OWNING, 4),
            (MASK, 4),
            (0x20, 4),
        ]);
        assert_eq!(narrowed(0o644, &outsider), 0o600);
        // A group that is.
        let outsiders = list(&[
            (1, 6),
            (GROUP_OWNING, 4),
            (GROUP_NAMED, 0),
            (MASK, 4),
            (0x20, 4),
        ]);
        assert_eq!(narrowed(0o4644, &outsiders), 0o4640);
        // A list that says what the mode does.
        let plain = list(&[(1, 6), (GROUP_OWNING, 4), (0x20, 4)]);
        assert_eq!(narrowed(0o644, &plain), 0o644);
        // What nobody can read gives nobody anything.
        for odd in [&b""[..], b"\x03\0\0\0", b"\x02\0\0\0\x01"] {
            assert_eq!(narrowed(0o777, odd), 0o700);
        }
    }
}
