//! Extended attributes: which of them are kept, and how they are reached.
//!
//! Linux takes no descriptor of a directory and a name for them (before 6.13), and none that was opened without the right
//! to read. So a name is reached by way of `/proc/self/fd`, where the directory's descriptor leads to the directory
//! itself and the last component is not followed. Without `/proc` attributes can be neither read nor set, which is an
//! error.

/// Bytes of the names and values of one file's attributes, at most, with [`XATTR_HEAD`] for each: what is kept of a file
/// has to fit in one block's manifest beside its path.
pub const XATTRS_BYTES_MAX: usize = 48 << 10;
/// Bytes that an attribute takes beside its name and value.
pub const XATTR_HEAD: usize = 6;
/// Bytes of a name, at most (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;

/// Who may do what with a file, beyond its mode.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// What new files in a directory get.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// What a program may do though its user may not.
pub const CAPABILITY: &[u8] = b"security.capability";
/// The label of SELinux.
pub const LABEL: &[u8] = b"security.selinux";
/// What users keep.
pub const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";

/// An extended attribute of a file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// With its namespace: `user.comment`.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

impl Xattr {
    /// Whether attributes of this name are kept: those of users and of programs with privileges, and of the system's own
    /// access control lists, capabilities and labels. Signatures over an inode (IMA, EVM) would be wrong elsewhere, and
    /// what else file systems show there is theirs.
    pub fn is_kept(name: &[u8]) -> bool {
        let free = [USER, TRUSTED]
            .iter()
            .any(|space| name.len() > space.len() && name.starts_with(space));
        (free || [ACL_ACCESS, ACL_DEFAULT, CAPABILITY, LABEL].contains(&name))
            && name.len() <= XATTR_NAME_MAX
            && !name.contains(&0)
    }

    /// What it takes of [`XATTRS_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        XATTR_HEAD + self.name.len() + self.value.len()
    }
}

/// The attributes of a name, as far as they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xattrs {
    pub read: Vec<Xattr>,
    /// Those that are there and that this user may not read.
    pub refused: u64,
}
