//! Keys of encrypted backup sets: who can open one, and what is computed with its key.
//!
//! Every set has a key of its own, 32 random bytes that are nowhere stored as they are. [`Recipients`] wrap it into *slots*,
//! [`Identities`] take it out of one again. From it and from the set's header [`SetKeys`] derives one key for each block,
//! one for each chunk of the index, and one for the trailers; [`IndexKeys`] are the second kind alone. A [`KeyObject`] has the set key
//! for further recipients. A [`SigningKey`] shows who wrote a set. `docs/format.md` specifies every byte.
//!
//! Invariants
//! - One derived key encrypts one message. Which key it is depends on the message itself, so a machine that was cloned or
//!   resumed, and repeats its random numbers, does not encrypt two messages under one key.
//! - Nothing that was decrypted is given out before its tag agreed; the buffer holds no plain bytes then.
//! - A key of a set is taken for right by the set's commitment alone, in constant time, whatever slot it came from.
//! - Keys that this room holds are erased when they are dropped, as far as the libraries below it do the same, and `Debug`
//!   shows none.
//! - No input makes it panic, and no length is trusted before memory is taken for it.
//!
//! Leaves to others: records and their order on a stripe (`longshore-media`), files that hold identities (the programs),
//! and which sets must be encrypted (configuration).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod age;
mod certificate;
mod command;
mod der;
mod error;
mod further;
mod gcm;
mod hash;
mod identity;
mod index;
mod keyring;
mod keys;
mod object;
mod passphrase;
mod pieces;
mod pkcs8;
mod recipient;
mod roots;
mod rsa;
mod service;
mod set;
mod sign;
mod tags;
mod text;

pub use certificate::{Certificate, SUBJECT_MAX, is_certificate};
pub use command::{Ask, CommandKey, CommandSlot, Errand, KeyProgram, WRAPPED_MAX};
pub use error::{Error, ObjectsTold};
pub use further::{COSTLY_MAX, FoundObjects, ObjectFinder, OpenedSet, first_object};
pub use identity::{Identities, Identity, KeyFinder};
pub use index::{Chunk, IndexKeys, IndexSecret};
pub use keyring::Keyring;
pub use keys::{Keys, SLOTS_MAX, Slot, SlotKind};
pub use object::{FOUND_MAX, KeyObject, OBJECT_MAX, OBJECTS_MAX, ObjectName};
pub use passphrase::Passphrase;
pub use pieces::{PIECE_MORE, is_same_tag};
pub use pkcs8::{FILE_MAX as KEY_FILE_MAX, is_private_key};
pub use recipient::{Recipient, Recipients};
pub use roots::{FamilyRoot, KeyContext, Root, SALT_LEN, TAG_LEN, block_digest, digest_of};
pub use rsa::{CertificateKey, CertificateSlot, KeyId, PrivateKey};
pub use service::ServiceKey;
pub use set::{BlockSeal, FIXED_LEN, NewKey, SetKeys};
pub use sign::{
    SIGNATURE_KIND, SIGNATURE_LEN, SIGNER_LEN, Signature, SignatureState, Signed, Signer, Signers,
    SigningKey, StoredSignature,
};
pub use tags::{TAGS_ID_LEN, TagKey};
pub use text::{Thumbprint, hexadecimal, is_secret, without_secrets};

/// Bytes of a set's key.
pub const KEY_LEN: usize = 32;

/// A set's key, or another secret of that size.
pub(crate) type Secret = zeroize::Zeroizing<[u8; KEY_LEN]>;

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<zeroize::Zeroizing<[u8; N]>, Error> {
    use ring::rand::SecureRandom;
    let mut bytes = zeroize::Zeroizing::new([0; N]);
    ring::rand::SystemRandom::new()
        .fill(&mut *bytes)
        .map_err(|_| Error::Random)?;
    Ok(bytes)
}

/// HKDF-SHA256 (RFC 5869) of `secret`, with a result of 32 bytes.
pub(crate) fn hkdf(secret: &[u8], salt: &[u8], info: &[&[u8]]) -> Secret {
    let prk = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, salt).extract(secret);
    expand(&prk, info)
}

/// The expanding half of [`hkdf`].
pub(crate) fn expand(prk: &ring::hkdf::Prk, info: &[&[u8]]) -> Secret {
    let mut out = Secret::default();
    let okm = prk.expand(info, ring::hkdf::HKDF_SHA256);
    // 32 bytes are one block of the hash: the length that `expand` was asked for.
    okm.and_then(|okm| okm.fill(&mut *out))
        .expect("HKDF-SHA256 gives 32 bytes");
    out
}
