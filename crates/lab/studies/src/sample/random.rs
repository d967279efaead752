//! Random numbers and strings that are the same on every machine, for ever.
//!
//! A library's generator may change between releases; a sample must not, or published figures could no longer be
//! compared. So this is xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
//!
//! Invariants
//! - Everything is integer arithmetic: no floating-point function whose last bit depends on the platform.
//! - Every table draws from its own stream, so that a change to one table leaves the others unchanged, and a value can
//!   be drawn again when another table needs it.
//!
//! Leaves to others: what is drawn (`tprocc`, `stae`).

/// Letters and digits in the order a draw of 0 to 61 picks them.
const ALPHANUMERIC: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

pub struct Rng([u64; 4]);

impl Rng {
    /// The stream `label` number `index` of a sample. Streams do not overlap in practice.
    pub fn stream(seed: u64, label: &str, index: u64) -> Rng {
        // FNV-1a: the label must only spread well; it need not resist attacks.
        let label = label.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut state = mix(seed ^ mix(label ^ mix(index)));
        Rng(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        }))
    }

    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in 0..`n`; 0 when `n` is 0. The bias is below `n` / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A bell-shaped number around 0 with a standard deviation of about 1.15 × `width`.
    pub fn bell(&mut self, width: i64) -> i64 {
        (0..4).map(|_| self.between(-width, width)).sum()
    }

    /// TPC-C's non-uniform number in `low..=high` (clause 2.1.6); `c` is its constant.
    pub fn nurand(&mut self, a: i64, low: i64, high: i64, c: i64) -> i64 {
        let drawn = self.between(0, a) | self.between(low, high);
        (drawn + c) % (high - low + 1) + low
    }

    /// Replaces `out` by a random a-string of `low..=high` letters and digits (clause 4.3.2.2).
    pub fn a_string(&mut self, out: &mut String, low: usize, high: usize) {
        out.clear();
        let len = self.between(low as i64, high as i64) as usize;
        loop {
            // Six bits a character; 62 and 63 are drawn again, so that all are equally likely.
            let mut bits = self.next_u64();
            for _ in 0..10 {
                if out.len() == len {
                    return;
                }
                if let Some(&byte) = ALPHANUMERIC.get((bits & 63) as usize) {
                    out.push(char::from(byte));
                }
                bits >>= 6;
            }
        }
    }

    /// Replaces `out` by a random n-string of exactly `len` digits.
    pub fn n_string(&mut self, out: &mut String, len: usize) {
        out.clear();
        for _ in 0..len {
            out.push(char::from(b'0' + self.below(10) as u8));
        }
    }
}

/// SplitMix64's finalizer: every input bit changes half of the output bits.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        // The first values from state 1, 2, 3, 4, by the authors' C code.
        let mut rng = Rng([1, 2, 3, 4]);
        let values = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
        ];
        assert_eq!(values.map(|_| rng.next_u64()), values);
    }

    #[test]
    fn streams_differ_by_seed_label_and_index() {
        let first = |seed, label, index| Rng::stream(seed, label, index).next_u64();
        let base = first(1, "item", 0);
        assert_eq!(base, first(1, "item", 0));
        assert_ne!(base, first(2, "item", 0));
        assert_ne!(base, first(1, "stock", 0));
        assert_ne!(base, first(1, "item", 1));
    }

    #[test]
    fn strings_use_every_character_equally_often_and_every_length() {
        let mut rng = Rng::stream(7, "test", 0);
        let mut seen = [0_u32; 128];
        let mut lengths = [0_u32; 51];
        let mut text = String::new();
        for _ in 0..20_000 {
            rng.a_string(&mut text, 26, 50);
            lengths[text.len()] += 1;
            text.bytes().for_each(|byte| seen[usize::from(byte)] += 1);
        }
        let counts: Vec<u32> = seen.into_iter().filter(|&n| n > 0).collect();
        assert_eq!(counts.len(), 62);
        // 12,258 each on average; five standard deviations are 550.
        assert!(
            counts.iter().all(|n| (11_700..12_800).contains(n)),
            "{counts:?}"
        );
        assert_eq!(lengths[..26].iter().sum::<u32>(), 0);
        assert!(
            lengths[26..].iter().all(|n| (650..950).contains(n)),
            "{lengths:?}"
        );
    }

    #[test]
    fn uniform_draws_reach_both_ends() {
        let mut rng = Rng::stream(3, "test", 0);
        let draws: Vec<i64> = (0..2_000).map(|_| rng.between(-2, 2)).collect();
        for value in -2..=2 {
            assert!((320..480).contains(&draws.iter().filter(|&&d| d == value).count()));
        }
        assert_eq!(rng.below(0), 0);
    }
}
