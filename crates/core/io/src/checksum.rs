//! CRC-32C, and a test for the one content that is recognised before compression: zeros.
//!
//! The polynomial is Castagnoli's, as in iSCSI (RFC 3720). The instructions are chosen at run time: carry-less
//! multiplication on 512-bit registers where the processor has it.
//!
//! Invariants
//! - A checksum depends on the bytes alone: whole, appended in pieces, or joined from the sums of two runs, it is the
//!   same.
//! - Joining and the sum of zeros read no data; their cost depends on the bits of the length.
//!
//! Leaves to others: which bytes a stored sum covers (the formats of media, catalog and cache), and what a mismatch
//! means.

use crc_fast::{CrcAlgorithm, Digest};

/// Castagnoli's polynomial without its highest power; the lowest power of x is in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x to the power of 8 · 2^i, modulo the polynomial.
const BYTES: [u32; 64] = byte_powers();

/// The CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of `a` followed by `bytes`, where `crc` is that of `a`: `crc32c_append(0, b)` is `crc32c(b)`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The CRC-32C of two joined runs of bytes, computed from the CRC of each without reading the bytes again. `b_len` is
/// the length of the second run. Costs 50 ns for each bit set in `b_len`.
///
/// In polynomials over GF(2), appending `b_len` bytes to `a` multiplies `a` by x to the power of 8 · `b_len`.
pub fn crc32c_join(a: u32, b: u32, b_len: u64) -> u32 {
    let powers = BYTES.iter().enumerate();
    let shifted = powers
        .filter(|(i, _)| b_len >> i & 1 == 1)
        .fold(a, |crc, (_, power)| product(*power, crc));
    shifted ^ b
}

/// The CRC-32C of `len` zeros.
pub fn crc32c_zeros(len: u64) -> u32 {
    let mut crc = 0;
    let mut power = crc32c(&[0]);
    let (mut power_len, mut rest) = (1u64, len);
    while rest > 0 {
        if rest & 1 == 1 {
            crc = crc32c_join(crc, power, power_len);
        }
        rest >>= 1;
        if rest > 0 {
            power = crc32c_join(power, power, power_len);
            power_len <<= 1;
        }
    }
    crc
}

/// The product of two polynomials, modulo the CRC's.
const fn product(a: u32, mut b: u32) -> u32 {
    let (mut sum, mut power) = (0, 1 << 31);
    while power != 0 {
        if a & power != 0 {
            sum ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        power >>= 1;
    }
    sum
}

const fn byte_powers() -> [u32; 64] {
    // x^8.
    let mut power = 1 << (31 - 8);
    let mut all = [0; 64];
    let mut i = 0;
    while i < all.len() {
        all[i] = power;
        power = product(power, power);
        i += 1;
    }
    all
}

/// Whether all of `bytes` are zero. Stops at the first page that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Comparing slices is `memcmp`, which beats a loop of ours at every optimisation level.
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use longshore_kit::random::noise;

    use super::*;

    /// The CRC-32C by its definition, one bit at a time.
    fn slow(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                (crc >> 1) ^ (0x82f6_3b78 * (crc & 1))
            })
        })
    }

    #[test]
    fn the_vectors_of_rfc_3720_come_out() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn every_length_and_alignment_agrees_with_the_definition() {
        let bytes = noise(1, 5000);
        for len in (0..600).chain([1023, 1024, 1025, 4096, 4999]) {
            for start in [0, 1] {
                let part = &bytes[start..start + len];
                assert_eq!(crc32c(part), slow(part), "{len} bytes from {start}");
            }
        }
    }

    #[test]
    fn appending_equals_the_whole_wherever_it_is_cut() {
        let bytes = noise(1, 3000);
        for cut in (0..3000).step_by(7) {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(a), b), crc32c(&bytes), "cut at {cut}");
        }
        assert_eq!(crc32c_append(0, &bytes), crc32c(&bytes));
    }

    #[test]
    fn joining_equals_the_whole_wherever_it_is_cut() {
        let bytes = noise(1, 3000);
        for cut in (0..=3000).step_by(7).chain([2999, 3000]) {
            let (a, b) = bytes.split_at(cut);
            let joined = crc32c_join(crc32c(a), crc32c(b), b.len() as u64);
            assert_eq!(joined, crc32c(&bytes), "cut at {cut}");
        }
        assert_eq!(crc32c_join(0, crc32c(&bytes), 3000), crc32c(&bytes));
    }

    #[test]
    fn joining_long_runs_agrees_with_an_independent_implementation() {
        let lens = (0..64).flat_map(|i| [1u64 << i, (1 << i) - 1, 0x5555_5555_5555_5555 >> i]);
        for (n, len) in lens.enumerate() {
            let [a, b] = [n as u32, !(n as u32)].map(|n| n.wrapping_mul(0x9e37_79b9));
            let other =
                crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, a.into(), b.into(), len);
            assert_eq!(u64::from(crc32c_join(a, b, len)), other, "{len} bytes");
        }
    }

    #[test]
    fn one_set_bit_anywhere_is_not_zero() {
        let mut bytes = vec![0; 10_000];
        assert!(is_zero(&bytes) && is_zero(&[]) && is_zero(&[0]));
        for at in [0, 1, 4095, 4096, 8191, 9999] {
            bytes[at] = 0x80;
            assert!(!is_zero(&bytes), "byte {at}");
            bytes[at] = 0;
        }
    }
}
