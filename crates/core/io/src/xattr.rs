//! Extended attributes: which are kept, and how they are accessed.
//!
//! Before 6.13, Linux has no call for them that takes a directory descriptor and a name, and none that takes a
//! descriptor opened without the right to read. So a name is reached through `/proc/self/fd`: the directory's
//! descriptor leads to the directory itself, and the last component is not followed. Without `/proc`, attributes can
//! be neither read nor set, which is an error.

/// The most bytes of one file's attributes: names, values and [`XATTR_HEAD`] for each. They must fit in one block's
/// manifest together with the file's path.
pub const XATTRS_BYTES_MAX: usize = 48 << 10;
/// Bytes that an attribute takes in addition to its name and value.
pub const XATTR_HEAD: usize = 6;
/// The longest name, in bytes (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;

/// Access rights of a file in addition to its mode.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Access rights that new files in a directory get.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Privileges that a program gets although its user lacks them.
pub const CAPABILITY: &[u8] = b"security.capability";
/// The label of SELinux.
pub const LABEL: &[u8] = b"security.selinux";
/// The namespace of attributes that users set.
pub const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
/// Signatures over an inode: they would be wrong elsewhere.
const SIGNATURES: [&[u8]; 2] = [b"security.ima", b"security.evm"];
/// The beginning of the names of SMACK's labels.
const SMACK: &[u8] = b"security.SMACK64";

/// An extended attribute of a file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// The name with its namespace: `user.comment`.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

impl Xattr {
    /// Whether attributes of this name are kept: those of users and of privileged programs, the system's access control lists, and
    /// what programs and the system keep about security, such as capabilities, labels and Samba's lists. Signatures over an
    /// inode (IMA, EVM) would be wrong elsewhere, and all others belong to the file system.
    pub fn is_kept(name: &[u8]) -> bool {
        let free = [USER, TRUSTED, SECURITY]
            .iter()
            .any(|space| name.len() > space.len() && name.starts_with(space));
        (free || [ACL_ACCESS, ACL_DEFAULT].contains(&name))
            && !Xattr::is_signature(name)
            && name.len() <= XATTR_NAME_MAX
            && !name.contains(&0)
    }

    /// Whether it is a signature over the inode, which is another one's in every copy.
    pub fn is_signature(name: &[u8]) -> bool {
        SIGNATURES.contains(&name)
    }

    /// Whether it is a label that the system itself gives to new files.
    pub fn is_label(name: &[u8]) -> bool {
        name == LABEL || name.starts_with(SMACK)
    }

    /// Bytes of [`XATTRS_BYTES_MAX`] that this attribute uses.
    pub fn bytes(&self) -> usize {
        XATTR_HEAD + self.name.len() + self.value.len()
    }
}

/// The kept attributes of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xattrs {
    pub read: Vec<Xattr>,
    /// The number of attributes that this user may not read.
    pub refused: u64,
    /// The names of those that are not kept, but for signatures over the inode.
    pub unkept: Vec<Vec<u8>>,
}
