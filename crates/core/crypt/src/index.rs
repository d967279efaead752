//! What opens the index of an encrypted set, and none of its contents.
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

use crate::roots::{Root, SALT_LEN};
use crate::set::{Chunk, Salt, cipher, open};
use crate::{Error, KEY_LEN, Secret, expand};

/// The keys of one set's index.
pub struct IndexKeys {
    secret: Secret,
    meta: hkdf::Prk,
    sums: Secret,
    proof: Proof,
}

/// What shows that a trailer is the writer's.
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

    /// What may be kept of a set with this root.
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
