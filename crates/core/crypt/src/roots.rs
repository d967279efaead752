//! What binds the parts of an encrypted set to one another: digests of blocks, roots of families, the root of the set.
//!
//! None of it needs a key, so a copy and a scrub can compare roots. That the root is the writer's own is shown by the MAC in
//! the trailers, which needs one.
//!
//! Invariants
//! - A family's root depends on every block and every chunk of its index, in the order of the stripe.
//! - Every length that varies is hashed before its bytes, so no two sets of parts give the same bytes to the hash.
//!
//! Leaves to others: which bytes of a trailer concern all families (`longshore-media`), and the MAC (`set.rs`).

use ring::digest;

/// Bytes of a salt.
pub const SALT_LEN: usize = 16;
/// Bytes that encryption adds to a message.
pub const TAG_LEN: usize = 16;

/// A digest of SHA-256.
pub type Root = [u8; 32];

/// SHA-256 of these bytes.
pub fn digest_of(bytes: &[u8]) -> Root {
    sha256(&[bytes])
}

fn sha256(parts: &[&[u8]]) -> Root {
    let mut hash = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| hash.update(part));
    finished(hash)
}

fn finished(hash: digest::Context) -> Root {
    let mut out = [0; 32];
    out.copy_from_slice(hash.finish().as_ref());
    out
}

/// What a set's key was made for: the bodies of its header and of its Keys records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyContext(pub(crate) Root);

impl KeyContext {
    /// Bytes of a Keys record's commitment, which is derived from the context and therefore not part of it.
    const COMMITMENT: std::ops::Range<usize> = 40..72;

    /// `header`: the body of the set header; `keys`: those of the Keys records.
    pub fn of(header: &[u8], keys: &[impl AsRef<[u8]>]) -> KeyContext {
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut put = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u32).to_le_bytes());
            hash.update(bytes);
        };
        put(b"longshore/1/context");
        put(header);
        for body in keys {
            let mut body = body.as_ref().to_vec();
            if let Some(commitment) = body.get_mut(KeyContext::COMMITMENT) {
                commitment.fill(0);
            }
            put(&body);
        }
        KeyContext(finished(hash))
    }

    /// The root of the set. `commitment`: that of its Keys records, so that the root names the key, too; `whole`: the bytes of
    /// a trailer that concern all families; `families`: their roots, in order.
    pub fn set_root(&self, commitment: &Root, whole: &[u8], families: &[Root]) -> Root {
        let count = (families.len() as u32).to_le_bytes();
        let len = (whole.len() as u32).to_le_bytes();
        let roots = families.concat();
        sha256(&[
            b"longshore/1/root",
            &self.0,
            commitment,
            &len,
            whole,
            &count,
            &roots,
        ])
    }
}

/// The digest of a block: of its number, its salt, and the tags of its manifest and its payload. A block without plain bytes
/// has zeros in place of the latter.
pub fn block_digest(
    sequence: u64,
    salt: &[u8; SALT_LEN],
    manifest_tag: &[u8; TAG_LEN],
    payload_tag: &[u8; TAG_LEN],
) -> Root {
    let sequence = sequence.to_le_bytes();
    sha256(&[
        b"longshore/1/block",
        &sequence,
        salt,
        manifest_tag,
        payload_tag,
    ])
}

/// The root of one family's part of a set, while its stripe is written or read.
#[derive(Clone)]
pub struct FamilyRoot {
    hash: digest::Context,
    blocks: u64,
}

impl std::fmt::Debug for FamilyRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FamilyRoot")
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl FamilyRoot {
    /// `media`: the body of the stripe's media header, which says which family it is.
    pub fn new(media: &[u8]) -> FamilyRoot {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"longshore/1/family");
        hash.update(&(media.len() as u32).to_le_bytes());
        hash.update(media);
        FamilyRoot { hash, blocks: 0 }
    }

    /// The next block of the stripe.
    pub fn block(&mut self, digest: &Root) {
        self.blocks += 1;
        self.hash.update(b"b");
        self.hash.update(digest);
    }

    /// The next chunk of the index: all of its bytes in the stripe, with their frames.
    pub fn chunk(&mut self, framed: &[u8]) {
        self.hash.update(b"i");
        self.hash.update(&sha256(&[framed]));
    }

    /// The root, after the last chunk.
    pub fn finish(mut self) -> Root {
        self.hash.update(b"e");
        self.hash.update(&self.blocks.to_le_bytes());
        finished(self.hash)
    }
}
