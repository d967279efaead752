//! AES-256-GCM with a key for each message, and the nonce 0.
//!
//! Invariants
//! - Each key that is handed in encrypts one message: who calls derives it from the message's salt.
//! - Nothing is given out of a message whose tag does not agree.
//!
//! Leaves to others: where keys and salts come from (`set.rs`, `index.rs`, `pieces.rs`).

use ring::aead;

use crate::roots::{SALT_LEN, TAG_LEN};
use crate::{Error, Secret};

pub(crate) type Tag = [u8; TAG_LEN];
pub(crate) type Salt = [u8; SALT_LEN];

pub(crate) fn cipher(key: &Secret) -> aead::LessSafeKey {
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, &key[..]);
    aead::LessSafeKey::new(key.expect("the key has 32 bytes"))
}

/// Each key encrypts one message.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

pub(crate) fn seal(key: &aead::LessSafeKey, aad: &[u8], bytes: &mut [u8]) -> Tag {
    let tag = key
        .seal_in_place_separate_tag(nonce(), aead::Aad::from(aad), bytes)
        .expect("a message of 4 MiB is not too long");
    let mut out = [0; TAG_LEN];
    out.copy_from_slice(tag.as_ref());
    out
}

pub(crate) fn open(
    key: &aead::LessSafeKey,
    aad: &[u8],
    sealed: &mut [u8],
    what: &'static str,
) -> Result<usize, Error> {
    let opened = key.open_in_place(nonce(), aead::Aad::from(aad), sealed);
    opened
        .map(|plain| plain.len())
        .map_err(|_| Error::Tag { what })
}
