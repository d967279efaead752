//! Numbers and content that a seed repeats.

/// Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, 2014). Any seed is as good as any other.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    #[expect(clippy::should_implement_trait, reason = "the numbers never end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `end` - 1; `end` is not 0.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, end: N) -> N {
        let end: u64 = end.try_into().ok().unwrap();
        (self.next() % end).try_into().ok().unwrap()
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Bytes without a pattern.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.next().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i + 1));
        }
    }
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    Random(seed).bytes(len)
}

/// Bytes that compress about twofold, the same for the same seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(len + 32);
    while out.len() < len {
        let n = random.next();
        out.extend_from_slice(&n.to_le_bytes());
        out.extend_from_slice(b"customer");
        out.extend_from_slice(&[(n % 7) as u8; 8]);
    }
    out.truncate(len);
    out
}

/// A number from the environment, so that a soak can ask for more than `make test`.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation's first numbers for seed 1234567.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.next()).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_seed_repeats_its_content_and_another_has_its_own() {
        assert_eq!(content(1, 1000), content(1, 1000));
        assert_ne!(noise(1, 1000), noise(2, 1000));
        assert_eq!(noise(1, 13).len(), 13);
    }
}
