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

    /// Goal: the page says rightly what the holder of a cluster's secret finds out: whether a guess at a whole block is right, and no more.
    #[test]
    fn with_the_secret_a_guess_at_a_whole_block_is_confirmed_and_none_at_a_part_of_it() {
        let (server, thief) = (
            TagKey::of_cluster(&[9; 32], 5),
            TagKey::of_cluster(&[9; 32], 5),
        );
        let stranger = TagKey::of_cluster(&[8; 32], 5);
        let block = [&b"COMMIT of 4711 "[..], &[0; 1 << 12]].concat();
        let stored = server.tag("segment", 3, &block);
        assert_eq!(thief.tag("segment", 3, &block), stored);
        assert_ne!(stranger.tag("segment", 3, &block), stored);
        // All but the last byte, or with one bit wrong: no part of the tag says that the guess was near.
        let mut near = block.clone();
        near[0] ^= 1;
        for guess in [&block[..block.len() - 1], &near] {
            let tag = thief.tag("segment", 3, guess);
            let equal = tag.iter().zip(&stored).filter(|(a, b)| a == b).count();
            assert!(equal < 4, "{equal} bytes are the same");
        }
    }

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
