//! The directory whose content a set of files is, as the set header has it.
//!
//! Invariants
//! - A field that is longer than its content is refused.
//! - The field fits into the header next to all others at their longest.
//! - A directory without its access control list gives nobody more rights: a list that does not fit takes the rights of
//!   group and others with it.
//!
//! Leaves to others: everything below the directory (`manifest.rs`), and what a restore does with it (`landing`).

use std::path::PathBuf;

use longshore_io::{ACL_ACCESS, ACL_DEFAULT, Xattr};

use crate::manifest::{Entry, EntryKind};
use crate::record::{Fields, RecordError};

/// Longest form of it in a header, in bytes.
pub const TREE_ROOT_MAX: usize = 2048;
/// Bytes before the attributes.
const FIXED_LEN: usize = 21;
/// The bits of a mode that are not the owner's.
const NOT_OWNERS: u32 = 0o077;

/// The directory whose content a set is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TreeRoot {
    /// Nothing is known: the set is of a version that stored nothing, or of another kind of source.
    #[default]
    Unknown,
    /// The set is not the content of one directory, but of single files or several paths.
    None,
    /// A directory with these attributes. Its path is empty.
    Dir(Box<Entry>),
}

impl TreeRoot {
    /// The root with these attributes.
    pub fn dir(mode: u32, owner: (u32, u32), mtime_ns: i64, xattrs: Vec<Xattr>) -> TreeRoot {
        TreeRoot::Dir(Box::new(Entry {
            path: PathBuf::new(),
            kind: EntryKind::Dir,
            first: true,
            based: false,
            mode,
            uid: owner.0,
            gid: owner.1,
            mtime_ns,
            len: 0,
            xattrs,
        }))
    }

    /// Removes attributes for which a header has no room, and of an encrypted set those that are contents: headers can be
    /// read without a key. Returns whether any was removed.
    pub fn fit(&mut self, encrypted: bool) -> bool {
        let TreeRoot::Dir(entry) = self else {
            return false;
        };
        let before = entry.xattrs.len();
        let is_list = |xattr: &Xattr| xattr.name == ACL_ACCESS || xattr.name == ACL_DEFAULT;
        let is_content =
            |xattr: &Xattr| xattr.name.starts_with(b"user.") || xattr.name.starts_with(b"trusted.");
        let had_list = entry.xattrs.iter().any(|xattr| xattr.name == ACL_ACCESS);
        entry
            .xattrs
            .retain(|xattr| !encrypted || !is_content(xattr));
        // Lists decide who may enter.
        entry
            .xattrs
            .sort_by_key(|xattr| (!is_list(xattr), xattr.bytes()));
        let mut room = TREE_ROOT_MAX - FIXED_LEN;
        entry.xattrs.retain(|xattr| {
            let fits = xattr.bytes() <= room;
            room -= if fits { xattr.bytes() } else { 0 };
            fits
        });
        entry.xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        if had_list && !entry.xattrs.iter().any(|xattr| xattr.name == ACL_ACCESS) {
            entry.mode &= !NOT_OWNERS;
        }
        entry.xattrs.len() < before
    }

    /// The field; `None` if nothing is known.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut whole = self.clone();
        whole.fit(false);
        let mut out = Vec::new();
        match whole {
            TreeRoot::Unknown => return None,
            TreeRoot::None => out.push(0),
            TreeRoot::Dir(entry) => {
                out.push(1);
                out.extend_from_slice(&entry.mode.to_le_bytes());
                out.extend_from_slice(&entry.uid.to_le_bytes());
                out.extend_from_slice(&entry.gid.to_le_bytes());
                out.extend_from_slice(&entry.mtime_ns.to_le_bytes());
                entry.encode_attributes(&mut out);
            }
        }
        Some(out)
    }

    pub(crate) fn decode(body: &[u8]) -> Result<TreeRoot, RecordError> {
        if body.len() > TREE_ROOT_MAX {
            return Err(RecordError::Length);
        }
        let mut f = Fields(body);
        match f.u8()? {
            0 => f.end().map(|()| TreeRoot::None),
            1 => {
                let (mode, uid, gid, mtime_ns) = (f.u32()?, f.u32()?, f.u32()?, f.i64()?);
                let mut root = TreeRoot::dir(mode, (uid, gid), mtime_ns, Vec::new());
                if let TreeRoot::Dir(entry) = &mut root {
                    entry.decode_attributes(&mut f)?;
                }
                match mode > 0o7777 {
                    true => Err(RecordError::Field),
                    false => Ok(root),
                }
            }
            _ => Err(RecordError::Field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, bytes: usize) -> Xattr {
        Xattr {
            name: name.into(),
            value: vec![7; bytes],
        }
    }

    fn fitted(xattrs: Vec<Xattr>, encrypted: bool) -> (Vec<String>, u32, bool) {
        let mut root = TreeRoot::dir(0o2775, (1, 2), 3, xattrs);
        let is_less = root.fit(encrypted);
        let field = root.encode().unwrap();
        assert!(field.len() <= TREE_ROOT_MAX);
        assert_eq!(TreeRoot::decode(&field).unwrap(), root);
        let TreeRoot::Dir(entry) = root else {
            unreachable!()
        };
        let names = entry.xattrs.iter();
        let names = names.map(|x| String::from_utf8(x.name.clone()).unwrap());
        (names.collect(), entry.mode, is_less)
    }

    /// Goal: a header never overflows and never shows what is encrypted, and a list that is left out widens no rights.
    #[test]
    fn what_does_not_fit_or_would_be_shown_is_left_out_and_gives_nobody_more() {
        let list = || xattr("system.posix_acl_access", 100);
        let user = || xattr("user.a", 1000);
        let all = fitted(vec![list(), user()], false);
        assert_eq!((all.0.len(), all.1, all.2), (2, 0o2775, false));
        let shown = fitted(vec![list(), user(), xattr("trusted.b", 1)], true);
        assert_eq!(
            shown,
            (vec!["system.posix_acl_access".into()], 0o2775, true)
        );
        let full = fitted(vec![list(), user(), xattr("user.b", 1500)], false);
        assert_eq!(full.0, ["system.posix_acl_access", "user.a"]);
        assert_eq!((full.1, full.2), (0o2775, true));
        let large = fitted(vec![xattr("system.posix_acl_access", 3000)], false);
        assert_eq!(large, (Vec::new(), 0o2700, true));
    }

    #[test]
    fn a_root_that_is_cut_or_longer_than_its_content_is_refused() {
        let root = TreeRoot::dir(0o700, (1, 2), -3, vec![xattr("user.a", 3)]);
        let field = root.encode().unwrap();
        assert_eq!(TreeRoot::decode(&field), Ok(root));
        let whole = [field.len(), FIXED_LEN];
        for len in (0..field.len()).filter(|len| !whole.contains(len)) {
            assert!(TreeRoot::decode(&field[..len]).is_err(), "{len}");
        }
        for wrong in [&[0, 0][..], &[2], &[&field[..], &[0]].concat()] {
            assert!(TreeRoot::decode(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(TreeRoot::decode(&[0]), Ok(TreeRoot::None));
        assert_eq!(TreeRoot::Unknown.encode(), None);
    }
}
