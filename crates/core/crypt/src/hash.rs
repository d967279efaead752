//! The keyed hash that comes before every HMAC over a whole message.
//!
//! HighwayHash is fast and is no MAC by itself, so nobody sees its result: it goes into HMAC-SHA256.

use highway::{HighwayHash, HighwayHasher, Key};
use zeroize::{Zeroize, Zeroizing};

use crate::Secret;

/// A key of HighwayHash, erased when it is dropped.
pub(crate) struct HashKey([u64; 4]);

impl Drop for HashKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl HashKey {
    pub(crate) fn new(bytes: &Secret) -> HashKey {
        let mut key = HashKey([0; 4]);
        for (word, bytes) in key.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        key
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> Zeroizing<[u8; 32]> {
        let words = HighwayHasher::new(Key(self.0)).hash256(bytes);
        let mut out = Zeroizing::new([0; 32]);
        for (to, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        out
    }
}
