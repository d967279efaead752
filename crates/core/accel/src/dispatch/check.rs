//! The checks that an accelerator's result must pass before it is used.
//!
//! Invariants
//! - Every result has the right lengths and framing, and the CRC-32 in its footers equals ours, which was computed
//!   before the engine saw the bytes.
//! - These checks find failed transfers and mixed-up buffers, but not a damaged deflate body. So our own decoder also
//!   decodes a sample of the results, or all of them, and always the first ones after each start.
//! - Containers without a checksum of the plain bytes are always decoded.
//!
//! Leaves to others: finishing a block in software (`finisher.rs`), and what a failed check costs the device
//! (`standing.rs`).

use longshore_codec::gzext::Member;
use longshore_codec::{Algorithm, Decompressor, PayloadError, payload_bound};

/// How much of an accelerator's results is decoded again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// Lengths, framing and checksums only.
    None,
    /// One in 64, and the first 256 after each start.
    #[default]
    Sample,
    Full,
}

/// One in this many is decoded.
const SAMPLE: u64 = 64;

impl Verify {
    /// Whether this result must be decoded. `fresh`: it is among the first after a start.
    pub fn takes(self, sequence: u64, fresh: bool) -> bool {
        match self {
            Verify::None => false,
            // Multiplied, so that a period in the data cannot coincide with the period of the sample.
            Verify::Sample => {
                fresh || (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(SAMPLE)
            }
            Verify::Full => true,
        }
    }
}

/// A checksum of the plain bytes, from a source other than the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// A compression's input: the checksum that gzip footers carry.
    Crc32(u32),
    /// A decompression's result: the checksum that was stored with the block.
    Crc32c(u32),
    Unknown,
}

impl Before {
    /// For bytes that will be compressed.
    pub fn of(plain: &[u8]) -> Before {
        Before::Crc32(crc_fast::crc32_iso_hdlc(plain))
    }

    /// Whether the checksum allows these bytes.
    pub fn is_of(self, plain: &[u8]) -> bool {
        match self {
            Before::Crc32(_) => self == Before::of(plain),
            Before::Crc32c(crc) => longshore_io::crc32c(plain) == crc,
            Before::Unknown => true,
        }
    }
}

/// Checks that a payload holds `plain`. `decode`: also decodes it, into `scratch`.
pub fn check_payload(
    algorithm: Algorithm,
    payload: &[u8],
    (plain, before): (&[u8], Before),
    decode: bool,
    (decompressor, scratch): (&mut Decompressor, &mut Vec<u8>),
) -> Result<(), PayloadError> {
    if payload.is_empty() || payload.len() > payload_bound(algorithm, plain.len()) {
        return Err(PayloadError::at(
            payload.len(),
            "the payload's length is impossible",
        ));
    }
    let summed = match (algorithm, before) {
        (Algorithm::QatDeflate, Before::Crc32(crc32)) => {
            check_members(payload, plain.len(), crc32)?;
            true
        }
        _ => false,
    };
    if decode || !summed {
        scratch.resize(plain.len(), 0);
        decompressor.decompress(algorithm, payload, scratch)?;
        if scratch != plain {
            return Err(PayloadError::at(0, "it decodes to other bytes"));
        }
    }
    Ok(())
}

fn check_members(payload: &[u8], plain_len: usize, expected: u32) -> Result<(), PayloadError> {
    let (mut at, mut left, mut crc32) = (0, plain_len, 0);
    let mut shift = Shift::by(0);
    while left > 0 {
        let member = Member::parse(&payload[at..], left).map_err(|d| d.shifted(at))?;
        if shift.len != member.plain_len {
            shift = Shift::by(member.plain_len);
        }
        crc32 = shift.of(crc32) ^ member.crc32;
        at += member.len;
        left -= member.plain_len;
    }
    if at != payload.len() {
        return Err(PayloadError::at(at, "bytes after the last member"));
    }
    if crc32 != expected {
        return Err(PayloadError::at(
            0,
            "its members' CRC-32 does not match the bytes",
        ));
    }
    Ok(())
}

/// The effect on a CRC-32 of appending that many bytes: the joined CRC-32 is `shift.of(a) ^ b`. Nearly all members
/// have one length, so the shift is computed once for a payload; `crc_fast` would compute it for each member, 50 times
/// more slowly.
///
/// Source: zlib 1.3.1, `crc32.c`: polynomials over GF(2), the bit of x^0 on top.
struct Shift {
    len: usize,
    /// x^(8 × len), modulo the CRC's polynomial.
    factor: u32,
}

impl Shift {
    fn by(len: usize) -> Shift {
        const ONE: u32 = 1 << 31;
        const BYTE: u32 = ONE >> 8;
        let (mut factor, mut power, mut left) = (ONE, BYTE, len);
        while left > 0 {
            if left & 1 == 1 {
                factor = times(factor, power);
            }
            power = times(power, power);
            left >>= 1;
        }
        Shift { len, factor }
    }

    fn of(&self, crc32: u32) -> u32 {
        times(self.factor, crc32)
    }
}

fn times(a: u32, mut b: u32) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut product = 0;
    for bit in (0..32).rev() {
        product ^= b & 0_u32.wrapping_sub(a >> bit & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(b & 1));
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{gunzip, pages};
    use longshore_codec::{Compressor, Level};

    #[test]
    fn a_joined_checksum_is_that_of_the_joined_bytes() {
        let bytes: Vec<u8> = (0..200_000_u32)
            .map(|i| (i.wrapping_mul(i) >> 5) as u8)
            .collect();
        let crc = crc_fast::crc32_iso_hdlc;
        for (at, end) in [
            (0, 0),
            (0, 9),
            (9, 9),
            (1, 2),
            (65_536, 131_072),
            (70_001, 200_000),
        ] {
            let (a, b) = (&bytes[..at], &bytes[at..end]);
            assert_eq!(
                Shift::by(b.len()).of(crc(a)) ^ crc(b),
                crc(&bytes[..end]),
                "{at}, {end}"
            );
        }
    }

    fn payload(algorithm: Algorithm, plain: &[u8]) -> Vec<u8> {
        let mut out = vec![0; payload_bound(algorithm, plain.len())];
        let mut compressor = Compressor::new(algorithm, Level::Low).unwrap();
        let len = compressor.compress(plain, &mut out).len;
        out.truncate(len);
        out
    }

    fn check(algorithm: Algorithm, payload: &[u8], plain: &[u8], decode: bool) -> bool {
        let mut tools = (Decompressor::new(), Vec::new());
        let before = (plain, Before::of(plain));
        check_payload(
            algorithm,
            payload,
            before,
            decode,
            (&mut tools.0, &mut tools.1),
        )
        .is_ok()
    }

    #[test]
    fn results_of_software_pass_the_check() {
        for algorithm in Algorithm::ALL {
            for len in [1, 70_000, 1_000_000] {
                let plain = pages(3, len);
                let payload = payload(algorithm, &plain);
                assert!(
                    check(algorithm, &payload, &plain, false),
                    "{algorithm} {len}"
                );
                assert!(
                    check(algorithm, &payload, &plain, true),
                    "{algorithm} {len}"
                );
            }
        }
    }

    #[test]
    fn another_buffers_result_is_refused_without_decoding() {
        let (one, two) = (pages(1, 600_000), pages(2, 600_000));
        let other = payload(Algorithm::QatDeflate, &two);
        assert!(!check(Algorithm::QatDeflate, &other, &one, false));
        // Also members in the wrong order.
        let halves = (pages(5, 100_000), pages(6, 100_000));
        let (a, b) = (
            payload(Algorithm::QatDeflate, &halves.0),
            payload(Algorithm::QatDeflate, &halves.1),
        );
        let plain = [&halves.0[..], &halves.1].concat();
        assert!(check(
            Algorithm::QatDeflate,
            &[&a[..], &b].concat(),
            &plain,
            false
        ));
        assert!(!check(
            Algorithm::QatDeflate,
            &[&b[..], &a].concat(),
            &plain,
            false
        ));
    }

    #[test]
    fn a_damaged_body_is_found_by_decoding_alone_and_every_other_byte_without() {
        let plain = pages(9, 5_000);
        let good = payload(Algorithm::QatDeflate, &plain);
        let body = 24..good.len() - 8;
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // Padding may change, and a match may come from another position with the same bytes.
            let found = !check(Algorithm::QatDeflate, &bad, &plain, true);
            let harmless = gunzip(&bad, plain.len()).as_ref() == Some(&plain);
            assert!(found || harmless, "byte {at} of {body:?}");
            let passes = check(Algorithm::QatDeflate, &bad, &plain, false);
            assert_eq!(passes, body.contains(&at), "byte {at}");
        }
        assert!(!check(
            Algorithm::QatDeflate,
            &good[..good.len() - 1],
            &plain,
            false
        ));
        let longer = [&good[..], &[0]].concat();
        assert!(!check(Algorithm::QatDeflate, &longer, &plain, false));
        assert!(!check(Algorithm::QatDeflate, &[], &plain, false));
    }

    #[test]
    fn containers_without_a_checksum_are_always_decoded() {
        for algorithm in [Algorithm::Zstd, Algorithm::Lz4, Algorithm::MsXpress] {
            let (one, two) = (pages(1, 100_000), pages(2, 100_000));
            assert!(
                !check(algorithm, &payload(algorithm, &two), &one, false),
                "{algorithm}"
            );
        }
    }

    #[test]
    fn a_sample_is_one_in_64_and_all_fresh_ones() {
        let taken = (0..64_000)
            .filter(|n| Verify::Sample.takes(*n, false))
            .count();
        assert!((900..1100).contains(&taken), "{taken}");
        assert!(Verify::Sample.takes(1, true));
        assert!(!Verify::None.takes(0, true) && Verify::Full.takes(1, false));
    }
}
