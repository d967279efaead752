//! Keys that open the index of an encrypted set, and none of its contents.
//!
//! A differential backup compares the database with the page sums in the index of its base. A machine that has recipients
//! alone keeps this much of its own sets, so that it can make one without an identity.
//!
//! Invariants
//! - No key of a payload can be derived from it.
//! - A set that is opened with a kept secret is proved by its root, which was noted when the set was written: another set
//!   of its identifier, and the same set with another index, are refused. So no MAC is needed, and its key is not kept.
//!
//! Leaves to others: keeping the secret (`longshore-catalog`), and which sets it is kept of (`longshore-pipeline`).

use ring::{hkdf, hmac};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::gcm::{Salt, cipher, open};
use crate::roots::{Root, SALT_LEN};
use crate::{Error, KEY_LEN, Secret, expand};

/// Where a chunk of the index is, and what its record says of it. The chunk opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    /// The set's UUID.
    pub set: [u8; 16],
    /// Number of the family, from 1.
    pub family: u16,
    /// Number of the chunk in its family, from 0.
    pub number: u32,
    /// Where the chunk's first record begins in the stripe.
    pub offset: u64,
    /// Offset and bytes of the chunk before; zeros in the first.
    pub previous: (u64, u32),
    /// Bytes of the chunk after inflating.
    pub raw_len: u32,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> [u8; 47] {
        let mut out = [0; 47];
        out[0] = b'i';
        out[1..17].copy_from_slice(&self.set);
        out[17..19].copy_from_slice(&self.family.to_le_bytes());
        out[19..23].copy_from_slice(&self.number.to_le_bytes());
        out[23..31].copy_from_slice(&self.offset.to_le_bytes());
        out[31..39].copy_from_slice(&self.previous.0.to_le_bytes());
        out[39..43].copy_from_slice(&self.previous.1.to_le_bytes());
        out[43..47].copy_from_slice(&self.raw_len.to_le_bytes());
        out
    }
}

/// The keys of one set's index.
pub struct IndexKeys {
    secret: Secret,
    meta: hkdf::Prk,
    sums: Secret,
    proof: Proof,
}

/// The key that shows that a trailer is the writer's.
enum Proof {
    Mac(hmac::Key),
    Root(Root),
}

impl std::fmt::Debug for IndexKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IndexKeys")
    }
}

/// The part of a set's secrets that its writer may keep.
pub struct IndexSecret {
    /// The root of the set.
    pub root: Root,
    meta: Secret,
    sums: Secret,
}

impl std::fmt::Debug for IndexSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IndexSecret")
    }
}

impl IndexSecret {
    /// Text from which [`IndexSecret::of_text`] makes it again; a secret, without the root.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(4 * KEY_LEN));
        for byte in self.meta.iter().chain(self.sums.iter()) {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(half.into(), 16).unwrap_or_default());
            }
        }
        text
    }

    /// `None` if this is no such text.
    pub fn of_text(root: Root, text: &str) -> Option<IndexSecret> {
        if text.len() != 4 * KEY_LEN {
            return None;
        }
        let mut both = Zeroizing::new([0; 2 * KEY_LEN]);
        for (to, pair) in both.iter_mut().zip(text.as_bytes().chunks(2)) {
            let half = |at: usize| char::from(*pair.get(at)?).to_digit(16);
            *to = u8::try_from(half(0)? << 4 | half(1)?).ok()?;
        }
        let part = |at: usize| {
            let mut part = Secret::default();
            part.copy_from_slice(&both[at..at + KEY_LEN]);
            part
        };
        Some(IndexSecret {
            root,
            meta: part(0),
            sums: part(KEY_LEN),
        })
    }

    /// The keys with which the set's index is read.
    pub fn keys(&self) -> IndexKeys {
        IndexKeys::new(self.meta.clone(), self.sums.clone(), Proof::Root(self.root))
    }
}

impl IndexKeys {
    fn new(secret: Secret, sums: Secret, proof: Proof) -> IndexKeys {
        IndexKeys {
            meta: hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &secret[..]),
            secret,
            sums,
            proof,
        }
    }

    /// Those of a set whose key is known.
    pub(crate) fn of_set(secret: Secret, sums: Secret, mac: hmac::Key) -> IndexKeys {
        IndexKeys::new(secret, sums, Proof::Mac(mac))
    }

    /// The part of a set's keys that may be kept, for a set with this root.
    pub(crate) fn secret(&self, root: Root) -> IndexSecret {
        IndexSecret {
            root,
            meta: self.secret.clone(),
            sums: self.sums.clone(),
        }
    }

    /// The secret from which the keys of manifests and index come.
    pub(crate) fn meta(&self) -> &hkdf::Prk {
        &self.meta
    }

    /// The mask over the key of page sums in the set's header.
    pub fn sums_mask(&self) -> &[u8; KEY_LEN] {
        &self.sums
    }

    pub(crate) fn chunk_key(&self, at: &Chunk, salt: &Salt) -> ring::aead::LessSafeKey {
        let (family, number) = (at.family.to_le_bytes(), at.number.to_le_bytes());
        cipher(&expand(&self.meta, &[b"i", &family, &number, salt]))
    }

    /// The compressed chunk in what [`crate::SetKeys::seal_chunk`] made.
    ///
    /// Errors: [`Error::Tag`].
    pub fn open_chunk(&self, at: &Chunk, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        const WHAT: &str = "a chunk of the index";
        let (salt, rest) = sealed
            .split_first_chunk::<SALT_LEN>()
            .ok_or(Error::Tag { what: WHAT })?;
        let aad = [&at.bytes()[..], salt].concat();
        let mut bytes = rest.to_vec();
        let len = open(&self.chunk_key(at, salt), &aad, &mut bytes, WHAT)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Errors: [`Error::Tag`] if the MAC is not that of a trailer's bytes before it and of the set's root, or if the root is
    /// not the one that was kept.
    pub fn check_trailer(&self, start: &[u8], root: &Root, mac: &Root) -> Result<(), Error> {
        let is_right = match &self.proof {
            Proof::Root(kept) => kept.ct_eq(root),
            Proof::Mac(key) => trailer_mac(key, start, root).ct_eq(mac),
        };
        match bool::from(is_right) {
            true => Ok(()),
            false => Err(Error::Tag { what: "a trailer" }),
        }
    }
}

/// The MAC of a trailer: over its bytes before the MAC, and the set's root.
pub(crate) fn trailer_mac(key: &hmac::Key, start: &[u8], root: &Root) -> Root {
    let mut mac = hmac::Context::with_key(key);
    mac.update(start);
    mac.update(root);
    let mut out = [0; 32];
    out.copy_from_slice(mac.sign().as_ref());
    out
}
