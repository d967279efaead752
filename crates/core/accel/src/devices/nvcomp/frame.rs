//! Frames a device's chunks as a payload: gzip-ext members around compressed chunks, stored members around the rest.
//!
//! Invariants
//! - A payload never exceeds [`payload_bound`](crate::payload_bound), which is computed for software's members:
//!   neighbouring chunks that are stored share members as software would make them, and a compressed chunk saves more
//!   than its own member costs.
//! - The members cover the plain bytes in order, without a gap.
//! - An output that is too small is refused, never overrun.
//!
//! Leaves to others: compressing chunks and their CRC-32 (the device, `batch_memory.rs`), and a member's layout (`gzext` of
//! `longshore-codec`).

use std::ops::Range;

use longshore_codec::gzext::{self, HEADER_LEN};

/// The result for one chunk of a job.
pub(super) enum ChunkResult<'a> {
    /// Raw deflate data, at most [`worth`](longshore_codec::worth) the chunk's length, and the CRC-32 of its plain bytes.
    Deflated { data: &'a [u8], crc32: u32 },
    /// Not worth compressing.
    Stored,
}

/// Writes the payload for `plain` at the start of `out` and returns its length. `pieces` are the plain ranges of the
/// chunks, in order and without a gap. `None` if `out` is too small.
pub(super) fn frame<'a>(
    plain: &[u8],
    pieces: impl IntoIterator<Item = (Range<usize>, ChunkResult<'a>)>,
    out: &mut [u8],
) -> Option<usize> {
    let mut len = 0;
    let mut stored = 0..0;
    for (range, piece) in pieces {
        match piece {
            ChunkResult::Stored => stored.end = range.end,
            ChunkResult::Deflated { data, crc32 } => {
                len += store(&plain[stored], out.get_mut(len..)?)?;
                stored = range.end..range.end;
                let member = out.get_mut(len..)?;
                let body = HEADER_LEN..HEADER_LEN + data.len() + gzext::FOOTER_LEN;
                member.get_mut(body)?[..data.len()].copy_from_slice(data);
                len += gzext::seal(member, range.len(), data.len(), crc32);
            }
        }
    }
    len += store(&plain[stored], out.get_mut(len..)?)?;
    Some(len)
}

/// Stored members for `plain`, which may be empty.
fn store(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for range in gzext::members(plain.len()) {
        let plain = &plain[range];
        let member = out.get_mut(len..len + gzext::stored_len(plain.len()))?;
        let deflate_len = gzext::store(plain, member);
        let crc32 = crc_fast::crc32_iso_hdlc(plain);
        len += gzext::seal(member, plain.len(), deflate_len, crc32);
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{gunzip, pages};
    use longshore_codec::deflate::miniz;
    use longshore_codec::worth;
    use longshore_codec::{Algorithm, payload_bound};
    use proptest::prelude::*;

    const CHUNK: usize = 65_536;

    fn ranges(len: usize) -> impl Iterator<Item = Range<usize>> {
        (0..len.div_ceil(CHUNK)).map(move |i| i * CHUNK..len.min((i + 1) * CHUNK))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_payload_is_complete_and_fits_with_any_chunks_stored(
            len in prop_oneof![Just(1), Just(CHUNK - 1), Just(CHUNK), 1..20 * CHUNK],
            stored in prop::collection::vec(any::<bool>(), 20),
        ) {
            let plain = pages(7, len);
            let deflated: Vec<Option<Vec<u8>>> = ranges(len)
                .zip(&stored)
                .map(|(range, stored)| {
                    let mut out = vec![0; worth(range.len())];
                    let len = miniz::Deflater::new(1).deflate(&plain[range], &mut out)?;
                    out.truncate(len);
                    (!stored).then_some(out)
                })
                .collect();
            let pieces = ranges(len).zip(&deflated).map(|(range, deflated)| {
                let crc32 = crc_fast::crc32_iso_hdlc(&plain[range.clone()]);
                let piece = deflated
                    .as_deref()
                    .map_or(ChunkResult::Stored, |data| ChunkResult::Deflated { data, crc32 });
                (range, piece)
            });
            let mut out = vec![0; payload_bound(Algorithm::QatDeflate, len)];
            let found = frame(&plain, pieces, &mut out).unwrap();
            prop_assert!(gunzip(&out[..found], len).as_deref() == Some(&plain[..]));
        }
    }

    #[test]
    fn data_that_is_barely_worth_its_member_fits_however_it_alternates() {
        let len = 16 * CHUNK + 1;
        let plain = vec![0; len];
        let barely = vec![0; worth(CHUNK)];
        for odd in [0, 1] {
            let pieces = ranges(len).enumerate().map(|(i, range)| {
                let deflated = i % 2 == odd && range.len() == CHUNK;
                let piece = if deflated {
                    ChunkResult::Deflated {
                        data: &barely,
                        crc32: 0,
                    }
                } else {
                    ChunkResult::Stored
                };
                (range, piece)
            });
            let mut out = vec![0; payload_bound(Algorithm::QatDeflate, len)];
            assert!(frame(&plain, pieces, &mut out).is_some());
        }
    }

    #[test]
    fn an_output_that_is_too_small_is_refused_at_any_length() {
        let plain = pages(3, 3 * CHUNK);
        let data = pages(4, 900);
        let pieces = || {
            ranges(plain.len()).enumerate().map(|(i, range)| {
                let deflated = ChunkResult::Deflated {
                    data: &data,
                    crc32: 0,
                };
                (
                    range,
                    if i == 1 {
                        deflated
                    } else {
                        ChunkResult::Stored
                    },
                )
            })
        };
        let mut out = vec![0; payload_bound(Algorithm::QatDeflate, plain.len())];
        let len = frame(&plain, pieces(), &mut out).unwrap();
        for room in (0..len).step_by(997).chain([0, 23, 24, len - 1]) {
            assert_eq!(frame(&plain, pieces(), &mut out[..room]), None, "{room}");
        }
    }
}
