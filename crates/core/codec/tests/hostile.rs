//! Goal: decoders accept any bytes: no panic, no access outside their buffers, and `Damaged` for anything but a payload
//! of exactly this length.
//! Method: valid payloads of every algorithm are cut, extended, relabelled and damaged bit by bit, and noise is
//! decoded. Margins around the buffers, or a page that must not be touched, show an access outside. All of it runs with
//! ISA-L and without.

mod common;

use common::{Random, decode, encode, pages};
use longshore_codec::{Algorithm, Decompressor, Level};

/// Payloads of every algorithm, small enough to try every byte of them.
fn small_payloads() -> Vec<(Algorithm, Vec<u8>, Vec<u8>)> {
    let plain = pages(3_000);
    let noise = Random(9).bytes(200);
    Algorithm::ALL
        .into_iter()
        .flat_map(|algorithm| {
            [&plain, &noise].map(|plain| {
                let (payload, _) = encode(algorithm, Level::Low, plain);
                (algorithm, payload, plain.clone())
            })
        })
        .collect()
}

#[test]
fn truncated_and_extended_payloads_are_refused() {
    for (algorithm, payload, plain) in small_payloads() {
        assert!(decode(algorithm, &payload, plain.len()).is_ok());
        for len in 0..payload.len() {
            assert!(
                decode(algorithm, &payload[..len], plain.len()).is_err(),
                "{algorithm} {len}"
            );
        }
        for tail in [&[0][..], &[0; 512], b"\x1f\x8b", &payload] {
            let longer = [&payload, tail].concat();
            assert!(
                decode(algorithm, &longer, plain.len()).is_err(),
                "{algorithm}"
            );
        }
    }
}

#[test]
fn a_payload_of_another_plain_length_is_refused() {
    for (algorithm, payload, plain) in small_payloads() {
        for len in [
            0,
            1,
            plain.len() - 1,
            plain.len() + 1,
            2 * plain.len(),
            1 << 20,
        ] {
            assert!(
                decode(algorithm, &payload, len).is_err(),
                "{algorithm} {len}"
            );
        }
    }
}

#[test]
fn payloads_of_another_algorithm_are_refused() {
    for (algorithm, payload, plain) in small_payloads() {
        for other in Algorithm::ALL {
            // A stored LZ4 payload is a NONE payload, and LZ4 reads NONE.
            let same =
                other == algorithm || other == Algorithm::Lz4 && algorithm == Algorithm::None;
            let stored = algorithm == Algorithm::Lz4 && payload.len() > plain.len();
            if !(same || stored && other == Algorithm::None) {
                assert!(
                    decode(other, &payload, plain.len()).is_err(),
                    "{algorithm} as {other}"
                );
            }
        }
    }
}

/// Bits of a member's XFL that name its writer's effort; readers accept every value that QATzip writes.
const GZIP_HINTS: [usize; 2] = [65, 66];

#[test]
fn no_flipped_bit_of_a_gzip_payload_gives_other_bytes_and_next_to_none_is_taken() {
    for (algorithm, payload, plain) in small_payloads() {
        if algorithm != Algorithm::QatDeflate {
            continue;
        }
        let deflate = 24..payload.len() - 8;
        let mut taken = 0;
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // Deflate has bits without meaning (padding, lengths of unused codes) and more than one encoding of the
            // same content (a run copied from one byte back, or from two).
            if let Ok(found) = decode(algorithm, &damaged, plain.len()) {
                let meaningless = deflate.contains(&(bit / 8)) || GZIP_HINTS.contains(&bit);
                assert!(meaningless && found == plain, "bit {bit}");
                taken += 1;
            }
        }
        assert!(
            taken * 200 < payload.len() * 8,
            "{taken} of {} bytes",
            payload.len()
        );
    }
}

#[test]
fn every_flipped_bit_of_a_frame_header_is_refused() {
    for (algorithm, payload, plain) in small_payloads() {
        // Up to the first block's own bytes; zstd has no header checksum, its fields bind it.
        let header_len = match algorithm {
            Algorithm::None | Algorithm::Lz4 => 15,
            Algorithm::MsXpress => 12,
            Algorithm::Pages => 8,
            Algorithm::Zstd => 4,
            Algorithm::QatDeflate => 24,
        };
        for bit in 0..header_len * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let refused = decode(algorithm, &damaged, plain.len()).is_err();
            let hint = algorithm == Algorithm::QatDeflate && GZIP_HINTS.contains(&bit);
            assert!(refused != hint, "{algorithm} bit {bit}");
        }
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(77);
    for algorithm in Algorithm::ALL {
        let mut starts: Vec<Vec<u8>> = vec![vec![]];
        // After a valid header, the noise reaches the decoders themselves.
        let (payload, _) = encode(algorithm, Level::Low, &pages(5_000));
        starts.extend([4, 12, 15, 24].map(|len| payload[..len].to_vec()));
        for start in starts {
            for _ in 0..300 {
                let len = random.below(3_000);
                let payload = [start.as_slice(), &random.bytes(len)].concat();
                assert!(decode(algorithm, &payload, 5_000).is_err(), "{algorithm}");
            }
        }
    }
}

/// Memory whose last byte is followed by a page that must not be touched.
struct Guarded {
    base: *mut libc::c_void,
    mapped: usize,
    len_max: usize,
}

impl Guarded {
    const PAGE: usize = 4096;

    fn new(len_max: usize) -> Guarded {
        let len_max = len_max.next_multiple_of(Self::PAGE);
        let mapped = len_max + Self::PAGE;
        // SAFETY: `mmap` demands an address range that is free: the system chooses it, and nothing else knows the
        // private mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: `mprotect` demands a range that nobody uses: it is the last page of the mapping above.
        let code = unsafe { libc::mprotect(base.byte_add(len_max), Self::PAGE, libc::PROT_NONE) };
        assert_eq!(code, 0);
        Guarded {
            base,
            mapped,
            len_max,
        }
    }

    /// The `len` bytes that end at the guard.
    fn last(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len_max);
        // SAFETY: `from_raw_parts_mut` demands bytes that are ours alone: they are in the readable part of the mapping,
        // borrowed as long as `self`.
        unsafe {
            std::slice::from_raw_parts_mut(self.base.cast::<u8>().add(self.len_max - len), len)
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `munmap` demands a mapping that is no longer used: it is the one made in `new`.
        unsafe { libc::munmap(self.base, self.mapped) };
    }
}

/// Goal: no decoder reads beyond its payload or writes beyond its buffer, for any input.
/// Method: both end at a page that must not be touched; the payloads are valid ones, damaged in places.
#[test]
fn damaged_payloads_never_reach_beyond_their_buffers() {
    const PLAIN_LEN: usize = 70_000;
    let mut random = Random(3);
    let (mut input, mut output) = (Guarded::new(PLAIN_LEN + 4096), Guarded::new(PLAIN_LEN));
    let mut decompressor = Decompressor::new();
    let plain = pages(PLAIN_LEN);
    for algorithm in Algorithm::ALL {
        let (good, _) = encode(algorithm, Level::Low, &plain);
        let mut refused = 0;
        for round in 0..600 {
            let mut payload = good.clone();
            for _ in 0..round % 4 {
                let at = random.below(payload.len());
                match random.below(4) {
                    0 => payload[at] ^= 1 << random.below(8),
                    1 => payload[at] = random.next() as u8,
                    2 => payload.truncate(at + 1),
                    _ => {
                        let end = (at + 1 + random.below(40)).min(payload.len());
                        let to = random.below(payload.len() - (end - at) + 1);
                        payload.copy_within(at..end, to);
                    }
                }
            }
            let place = input.last(payload.len());
            place.copy_from_slice(&payload);
            let plain_len = if round % 7 == 0 {
                random.below(PLAIN_LEN) + 1
            } else {
                PLAIN_LEN
            };
            let result = decompressor.decompress(algorithm, place, output.last(plain_len));
            refused += usize::from(result.is_err());
        }
        assert!(
            refused > 100,
            "{algorithm}: the damage was not damage, {refused} refused"
        );
    }
}

#[test]
fn all_of_this_holds_without_isa_l_too() {
    common::again_without_isal("all_of_this_holds_without_isa_l_too");
}
