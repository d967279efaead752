//! Gives a restored name its mode, owner, times and extended attributes.
//!
//! Invariants
//! - At no moment does a name grant more rights than it had, even if its access control list cannot be restored. If
//!   there is a list, a mode's group bits are the list's mask: without the list they would widen the rights of the
//!   owning group. And a user whom the list names may have had fewer rights than all others.
//! - An extended attribute that is refused is recorded and counted, and does not fail the restore. A label of SELinux
//!   does not count: it belongs to the machine. So it is with an owner, a group and set-id bits of a plain name, if root restored: whoever
//!   else restores expects to own the files.
//!
//! Leaves to others: the system calls and their order for mode and owner (`longshore-io`), and when a directory gets
//! its attributes (`place/mod.rs`).

use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{ACL_ACCESS, ACL_DEFAULT, Attributes, CAPABILITY, Dir, FileKind, USER, Xattr};
use longshore_media::{Entry, EntryKind};
use parking_lot::Mutex;

/// Attributes that could not be restored.
#[derive(Debug, Default)]
pub struct LostAttributes(Mutex<PresentAttributes>);

#[derive(Debug, Default)]
struct PresentAttributes {
    count: u64,
    lists: Losses,
    others: Losses,
    owners: Losses,
    bits: Losses,
    /// Names that belong to the user who restored.
    owned: Losses,
    /// Files that run with the rights of others, which were made as they were.
    powerful: Losses,
    /// Further texts for the operator.
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// How many were lost, and the first of them.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
    first: Option<(PathBuf, String)>,
}

impl Losses {
    fn add(&mut self, path: &Path, what: impl Fn() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| (path.to_owned(), what()));
    }

    /// `one`: the words for a single loss.
    fn warning(&self, one: &str, many: &str) -> Option<String> {
        let (path, why) = self.first.as_ref()?;
        let path = path.display();
        Some(match self.count {
            1 => format!("1 {one}: {path}, {why}"),
            count => format!("{count} {many}: first {path}, {why}"),
        })
    }
}

impl LostAttributes {
    /// Warnings for the operator.
    pub fn warnings(&self) -> Vec<String> {
        let found = self.0.lock();
        let lists = found.lists.warning(
            "access control list could not be restored; the mode of this file gives nobody more rights than before",
            "access control lists could not be restored; the modes of these files give nobody more rights than before",
        );
        let others = found.others.warning(
            "extended attribute could not be restored",
            "extended attributes could not be restored",
        );
        let owners = found.owners.warning(
            "name could not be given its owner and group",
            "names could not be given their owner and group",
        );
        let bits = found.bits.warning(
            "name could not be given its set-user-ID or set-group-ID bit",
            "names could not be given their set-user-ID or set-group-ID bits",
        );
        let all = [lists, others, owners, bits];
        let all = all.into_iter().flatten();
        all.chain(found.warnings.iter().cloned()).collect()
    }

    /// Remarks for the operator: only root can give files away, and another user expects to own them.
    pub fn notes(&self) -> Vec<String> {
        let found = self.0.lock();
        let owned = found.owned.warning(
            "name belongs to the user who restored, since only root could give it its owner, group and set-id bits",
            "names belong to the user who restored, since only root could give them their owner, group and set-id bits",
        );
        let remarks = found.remarks.iter().cloned();
        owned.into_iter().chain(remarks).collect()
    }

    /// Adds a warning.
    pub(super) fn warn(&self, text: String) {
        self.0.lock().warnings.push(text);
    }

    /// Adds a remark.
    pub(super) fn remark(&self, text: String) {
        self.0.lock().remarks.push(text);
    }

    /// A remark for root on files that run with the rights of others: whoever wrote the media has said that they do.
    pub fn powerful(&self) -> Option<String> {
        self.0.lock().powerful.warning(
            "file runs with the rights of its owner, of its group or of a capability, as a backup said that needed no signature",
            "files run with the rights of their owners, of their groups or of capabilities, as a backup said that needed no signature",
        )
    }

    /// How many losses affect a file's users or their rights; labels do not count, because they belong to the machine.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    fn note(&self, path: &Path, xattr: &[u8], error: &io::Error) {
        let mut found = self.0.lock();
        found.count += u64::from(!Xattr::is_label(xattr));
        let what = || format!("{}: {error}", String::from_utf8_lossy(xattr));
        match xattr == ACL_ACCESS || xattr == ACL_DEFAULT {
            true => found.lists.add(path, what),
            false => found.others.add(path, what),
        }
    }

    /// Notes an owner that could not be given to a file that belongs to `by` now.
    fn note_owner(&self, path: &Path, (uid, gid): (u32, u32), by: u32) {
        let mut found = self.0.lock();
        let what = || format!("{uid}:{gid}");
        if by == ROOT {
            found.count += 1;
            found.owners.add(path, what);
        } else {
            found.owned.add(path, what);
        }
    }

    fn note_bits(&self, path: &Path, mode: u32) {
        let mut found = self.0.lock();
        found.count += 1;
        found.bits.add(path, || format!("mode {mode:04o}"));
    }
}

/// The user who may give files away: a namespace or a file system has refused it.
const ROOT: u32 = 0;

/// The bits of a mode with which a program gets the rights of its file's owner or group.
const SET_ID: u32 = 0o6000;

/// Everything that a name must have in addition to its bytes.
#[derive(Debug, Clone)]
pub struct WantedAttributes {
    /// The path in the set, for messages.
    pub path: PathBuf,
    pub plain: Attributes,
    pub xattrs: Vec<Xattr>,
}

impl WantedAttributes {
    pub fn of(entry: &Entry) -> WantedAttributes {
        WantedAttributes {
            path: entry.path.clone(),
            plain: Attributes {
                mode: (!matches!(entry.kind, EntryKind::Symlink { .. })).then_some(entry.mode),
                owner: Some((entry.uid, entry.gid)),
                mtime_ns: Some(entry.mtime_ns),
            },
            xattrs: entry.xattrs.clone(),
        }
    }

    /// Applies everything to `name`. Extended attributes that are refused are recorded. Returns the mode that the name
    /// may have: a narrower one if its access control list was refused.
    pub fn give(
        &self,
        dir: &dyn Dir,
        name: &Path,
        lost: &LostAttributes,
    ) -> io::Result<Option<u32>> {
        let list = self.xattrs.iter().find(|x| x.name == ACL_ACCESS);
        let Some(mode) = self.plain.mode.filter(|_| !self.xattrs.is_empty()) else {
            dir.set_attributes(name, &self.plain)?;
            self.set(dir, name, lost, |_| true);
            return Ok(self.plain.mode);
        };
        // User attributes require the right to write, which the mode may take from us.
        self.set(dir, name, lost, |xattr| xattr.name.starts_with(USER));
        let narrow = list.map_or(mode, |list| narrowed(mode, &list.value));
        let plain = Attributes {
            mode: Some(narrow),
            ..self.plain
        };
        dir.set_attributes(name, &plain)?;
        // The list determines the group bits; every change of the owner removes a capability.
        let refused = self.set(dir, name, lost, |xattr| !xattr.name.starts_with(USER));
        Ok(Some(if refused { narrow } else { mode }))
    }

    /// Records an owner, a group or set-id bits that `name` was to get and does not have.
    pub fn compare(&self, dir: &dyn Dir, name: &Path, lost: &LostAttributes) -> io::Result<()> {
        let Some(owner) = self.plain.owner else {
            return Ok(());
        };
        let found = dir.stat(name)?;
        if (found.uid, found.gid) != owner {
            lost.note_owner(&self.path, owner, found.uid);
        }
        // Such a bit for another owner than its own would be a gift to everybody.
        let is_own = found.uid == ROOT || (found.uid, found.gid) == owner;
        match self.plain.mode {
            Some(mode) if is_own && mode & !found.mode & SET_ID != 0 => {
                lost.note_bits(&self.path, mode);
            }
            _ => {}
        }
        if found.kind == FileKind::File {
            self.note_power(dir, name, found.mode, lost);
        }
        Ok(())
    }

    /// Records a file with set-id bits or a capability.
    fn note_power(&self, dir: &dyn Dir, name: &Path, mode: u32, lost: &LostAttributes) {
        let is_capability = |xattr: &Xattr| xattr.name == CAPABILITY;
        let is_capable = self.xattrs.iter().any(is_capability)
            && dir
                .xattrs(name)
                .is_ok_and(|found| found.read.iter().any(is_capability));
        if mode & SET_ID != 0 || is_capable {
            let what = || match is_capable {
                true => "which has a capability".to_owned(),
                false => format!("mode {mode:04o}"),
            };
            lost.0.lock().powerful.add(&self.path, what);
        }
    }

    /// Whether the access control list was refused.
    fn set(
        &self,
        dir: &dyn Dir,
        name: &Path,
        lost: &LostAttributes,
        which: impl Fn(&Xattr) -> bool,
    ) -> bool {
        let mut refused = false;
        for xattr in self.xattrs.iter().filter(|xattr| which(xattr)) {
            if let Err(error) = dir.set_xattr(name, xattr) {
                // The system may already have set the same label.
                let has_it = |dir: &dyn Dir| dir.xattrs(name).is_ok_and(|x| x.read.contains(xattr));
                if Xattr::is_label(&xattr.name) && has_it(dir) {
                    continue;
                }
                refused |= xattr.name == ACL_ACCESS;
                lost.note(&self.path, &xattr.name, &error);
            }
        }
        refused
    }

    /// Removes attributes from an existing `name` that it must not have.
    pub fn take_others(&self, dir: &dyn Dir, name: &Path) -> io::Result<()> {
        // Without `/proc` the attributes cannot be read.
        let found = dir.xattrs(name).unwrap_or_default();
        for found in found.read {
            let is_wanted = self.xattrs.iter().any(|xattr| xattr.name == found.name);
            if !is_wanted && !Xattr::is_label(&found.name) {
                dir.remove_xattr(name, &found.name)?;
            }
        }
        Ok(())
    }
}

/// Version of the kernel's format of access control lists.
const LIST_VERSION: u32 = 2;
const USER_NAMED: u16 = 0x02;
const GROUP_OWNING: u16 = 0x04;
const GROUP_NAMED: u16 = 0x08;
const MASK: u16 = 0x10;

/// The widest mode that grants nobody more than `mode` with this access control list (`system.posix_acl_access`).
/// Without the list, a user whom it names counts as the owning group or as other.
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
    fn a_single_loss_is_told_as_one() {
        let lost = LostAttributes::default();
        lost.note_owner(Path::new("a"), (7, 8), ROOT);
        lost.note_owner(Path::new("a"), (7, 8), 5);
        let one = [
            "1 name could not be given its owner and group: a, 7:8",
            "1 name belongs to the user who restored, since only root could give it its owner, group and set-id bits: a, 7:8",
        ];
        assert_eq!([lost.warnings(), lost.notes()].concat(), one);
        lost.note_owner(Path::new("b"), (7, 8), ROOT);
        let two = "2 names could not be given their owner and group: first a, 7:8";
        assert_eq!(lost.warnings(), [two]);
    }

    #[test]
    fn a_name_without_its_access_list_gives_nobody_more_rights() {
        // The owning group may read, a named user may write: the mode shows the mask.
        let writer = list(&[
            (1, 7),
            (USER_NAMED, 6),
            (GROUP_OWNING, 4),
            (MASK, 6),
            (0x20, 0),
        ]);
        assert_eq!(narrowed(0o760, &writer), 0o740);
        // A user excluded from what all others may read.
        let outsider = list(&[
            (1, 6),
            (USER_NAMED, 0),
            (GROUP_OWNING, 4),
            (MASK, 4),
            (0x20, 4),
        ]);
        assert_eq!(narrowed(0o644, &outsider), 0o600);
        // A group excluded in the same way.
        let outsiders = list(&[
            (1, 6),
            (GROUP_OWNING, 4),
            (GROUP_NAMED, 0),
            (MASK, 4),
            (0x20, 4),
        ]);
        assert_eq!(narrowed(0o4644, &outsiders), 0o4640);
        // A list equivalent to the mode.
        let plain = list(&[(1, 6), (GROUP_OWNING, 4), (0x20, 4)]);
        assert_eq!(narrowed(0o644, &plain), 0o644);
        // A list that cannot be parsed grants nobody anything.
        for odd in [&b""[..], b"\x03\0\0\0", b"\x02\0\0\0\x01"] {
            assert_eq!(narrowed(0o777, odd), 0o700);
        }
    }
}
