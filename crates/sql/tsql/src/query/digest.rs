//! Hashes by the names that HASHBYTES has for them.
//!
//! Invariants
//! - No key is involved, and nothing here protects a backup.
//!
//! Leaves to others: a value as bytes (`function.rs`), and all hashes of media (`longshore-crypt`).

use md5::{Digest, Md5};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};

/// The hash of some bytes; `None`: no hash of this name is known here.
pub(super) fn hash_named(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match name {
        "MD5" => return Some(Md5::digest(bytes).to_vec()),
        "SHA" | "SHA1" => &SHA1_FOR_LEGACY_USE_ONLY,
        "SHA2_256" => &SHA256,
        "SHA2_512" => &SHA512,
        _ => return None,
    };
    Some(digest(algorithm, bytes).as_ref().to_vec())
}
