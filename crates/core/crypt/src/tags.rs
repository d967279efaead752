//! Tags by which hosts compare the WAL that they archive with WAL that they cannot read.
//!
//! Invariants
//! - Only who has the cluster's secret can make a tag, so a reader of the archive cannot try what was in a block.
//! - A tag depends on the file and on the block's number: equal blocks in different places have different tags.
//!
//! Leaves to others: the cluster's secret (`longshore-pg`), and where tags are (`longshore-wal`).

use ring::hmac;

use crate::gcm::Tag;
use crate::hash::HashKey;
use crate::hkdf;
use crate::roots::TAG_LEN;

/// Bytes that say of which key a file's tags are.
pub const TAGS_ID_LEN: usize = 8;

/// The key of all tags of one cluster.
pub struct TagKey {
    id: [u8; TAGS_ID_LEN],
    mac: hmac::Key,
    hash: HashKey,
}

impl std::fmt::Debug for TagKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TagKey")
    }
}

impl TagKey {
    /// `secret`: random bytes that all servers of the cluster have, and nobody else. `system`: its identifier.
    pub fn of_cluster(secret: &[u8; 32], system: u64) -> TagKey {
        let salt = system.to_le_bytes();
        let key = |label: &[u8]| hkdf(&secret[..], &salt, &[b"longshore/1/wal/", label]);
        let mut id = [0; TAGS_ID_LEN];
        id.copy_from_slice(&key(b"id")[..TAGS_ID_LEN]);
        TagKey {
            id,
            mac: hmac::Key::new(hmac::HMAC_SHA256, &key(b"tag")[..]),
            hash: HashKey::new(&key(b"hash")),
        }
    }

    /// The same for equal keys, and for others different; it tells nothing of the key.
    pub fn id(&self) -> [u8; TAGS_ID_LEN] {
        self.id
    }

    /// The tag of the plain bytes of a block in the file `name`.
    pub fn tag(&self, name: &str, number: u32, plain: &[u8]) -> Tag {
        let mut hmac = hmac::Context::with_key(&self.mac);
        hmac.update(&(name.len() as u32).to_le_bytes());
        hmac.update(name.as_bytes());
        hmac.update(&number.to_le_bytes());
        hmac.update(&(plain.len() as u64).to_le_bytes());
        hmac.update(&self.hash.hash(plain)[..]);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&hmac.sign().as_ref()[..TAG_LEN]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_cluster_one_file_one_place_and_its_bytes() {
        let key = |byte, system| TagKey::of_cluster(&[byte; 32], system);
        let (one, same) = (key(1, 5), key(1, 5));
        assert_eq!(one.id(), same.id());
        let tag = one.tag("a", 1, b"bytes");
        assert_eq!(tag, same.tag("a", 1, b"bytes"));
        let others = [
            one.tag("b", 1, b"bytes"),
            one.tag("a", 2, b"bytes"),
            one.tag("a", 1, b"byte"),
            key(2, 5).tag("a", 1, b"bytes"),
            key(1, 6).tag("a", 1, b"bytes"),
        ];
        assert!(others.iter().all(|other| *other != tag));
        assert!(one.id() != key(2, 5).id() && one.id() != key(1, 6).id());
        assert_eq!(format!("{one:?}"), "TagKey");
    }
}
