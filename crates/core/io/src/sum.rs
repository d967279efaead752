//! Keyed sums of pages: they show whether a page equals the one in an earlier backup, without that backup's bytes.
//!
//! The function is HighwayHash with a 64-bit result. Without the key nobody can construct two pages with the same sum,
//! even if they control both pages. Two different pages have the same sum once in 2^64 comparisons. With AVX2 it takes
//! about 0.1 CPU seconds per GB.

use std::io;

use highway::{HighwayHash, HighwayHasher, Key};

/// The key of the sums: 32 random bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SumKey([u8; SumKey::LEN]);

/// Keeps the bytes out of logs: with the key, pages with the same sum can be constructed.
impl std::fmt::Debug for SumKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SumKey")
    }
}

impl SumKey {
    pub const LEN: usize = 32;

    /// A key that nobody can guess.
    pub fn random() -> io::Result<SumKey> {
        let mut bytes = [0; SumKey::LEN];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(SumKey(bytes))
    }

    pub const fn from_bytes(bytes: [u8; SumKey::LEN]) -> SumKey {
        SumKey(bytes)
    }

    /// The key exclusive-or `mask`: hidden, or shown again.
    pub fn masked(&self, mask: &[u8; SumKey::LEN]) -> SumKey {
        let mut bytes = self.0;
        bytes.iter_mut().zip(mask).for_each(|(b, m)| *b ^= m);
        SumKey(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; SumKey::LEN] {
        &self.0
    }

    /// The sum of a page, never 0: 0 stands for a page whose sum is not known.
    pub fn sum(&self, page: &[u8]) -> u64 {
        let (words, _) = self.0.as_chunks();
        let mut key = [0; 4];
        for (part, word) in key.iter_mut().zip(words) {
            *part = u64::from_le_bytes(*word);
        }
        HighwayHasher::new(Key(key)).hash64(page).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vectors of the authors' own test: bytes 0, 1, 2 ... under the key 00 01 02 ... 1f.
    #[test]
    fn sums_are_those_of_the_published_vectors() {
        let key = SumKey::from_bytes(std::array::from_fn(|i| i as u8));
        let bytes: Vec<u8> = (0..64).collect();
        for (len, sum) in [
            (0, 0x907A_56DE_22C2_6E53),
            (1, 0x7EAB_43AA_C7CD_DD78),
            (2, 0xB8D0_569A_B0B5_3D62),
            (32, 0xA0C9_64D9_ECD5_80FC),
            (64, 0x7554_2C5D_4CD2_A6FF),
        ] {
            assert_eq!(key.sum(&bytes[..len]), sum, "{len}");
        }
    }

    #[test]
    fn another_key_or_another_byte_is_another_sum() {
        let keys = [SumKey::random().unwrap(), SumKey::random().unwrap()];
        let page = vec![0; 8192];
        assert_ne!(keys[0].sum(&page), keys[1].sum(&page));
        assert_ne!(keys[0].sum(&page), 0);
        for at in [0, 4095, 8191] {
            let mut other = page.clone();
            other[at] ^= 1;
            assert_ne!(keys[0].sum(&page), keys[0].sum(&other), "{at}");
        }
        assert_eq!(format!("{:?}", keys[0]), "SumKey");
    }
}
