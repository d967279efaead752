//! The loops that take most of the time, in the widest instructions of the processor.
//!
//! Invariants
//! - Every kernel gives the bytes that the scalar one gives.
//!
//! Leaves to others: what is computed with them (`huffman.rs`, `planes.rs`, `heap.rs`).

use super::coding::{CodeBook, encode_one};
use super::decoding::{Lane, decode_eight, decode_four};
use super::loops::Loops;
use super::page::between;

/// Instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// AVX-512 with VBMI: tables of 256 bytes are looked up for 64 bytes at a time. It has all of AVX2's, too.
    Avx512,
    /// AVX2, BMI and LZCNT, for decoding alone.
    Avx2,
    Scalar,
}

impl Kernel {
    pub(crate) const ALL: [Kernel; 3] = [Kernel::Avx512, Kernel::Avx2, Kernel::Scalar];

    /// Whether this processor has the instructions.
    pub(crate) fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => super::avx2::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx512 | Kernel::Avx2 => false,
            Kernel::Scalar => true,
        }
    }

    /// The fastest kernel of this processor.
    pub(crate) fn best() -> Kernel {
        let mut all = Kernel::ALL.into_iter();
        all.find(|k| k.is_available()).unwrap_or(Kernel::Scalar)
    }

    /// The highest byte of `bytes`; 0 if there is none.
    pub(super) fn highest(self, bytes: &[u8]) -> u8 {
        let (pieces, rest) = bytes.as_chunks::<32>();
        let mut most = [0; 32];
        for piece in pieces {
            for (most, byte) in most.iter_mut().zip(piece) {
                *most = (*most).max(*byte);
            }
        }
        most.iter()
            .chain(rest)
            .fold(0, |most, byte| most.max(*byte))
    }

    /// Reads a value of four bytes for each offset, aligned, and moves the offset behind it. `None` if one lies outside the
    /// page, or bytes before it, back to its offset, are not zeros.
    pub(super) fn fixed_four(
        self,
        page: &[u8],
        offsets: &mut [u32],
        align: usize,
        out: &mut [u8],
    ) -> Option<()> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 if align < 4 => {
                super::avx512::fixed_four(page, offsets, align as u32, out)
            }
            _ => fixed::<4>(page, offsets, align, out),
        }
    }

    /// Where all headers are one byte with a length: writes the lengths, moves the offsets behind the headers, and returns
    /// the highest length. `None` otherwise, or where the kernel has no such function; the offsets are then as they were.
    pub(super) fn short_lengths(
        self,
        page: &[u8],
        offsets: &mut [u32],
        lengths: &mut [u8],
    ) -> Option<usize> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::avx512::short_lengths(page, offsets, lengths),
            _ => None,
        }
    }

    /// Sets the byte of `known` of each byte that `bytes` have to 255; `known` has no other values than 0 and 255.
    pub(super) fn complete(self, known: &mut [u8; 256], bytes: &[u8]) {
        let (pieces, rest) = bytes.as_chunks::<64>();
        let mut from = 0;
        let next = |known: &[u8; 256], from| match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::avx512::unknown(known, pieces, from),
            _ => (from < pieces.len()).then_some(from),
        };
        while let Some(piece) = next(known, from) {
            pieces[piece]
                .iter()
                .for_each(|byte| known[usize::from(*byte)] = 255);
            from = piece + 1;
        }
        rest.iter().for_each(|byte| known[usize::from(*byte)] = 255);
    }

    /// Splits values at the start of `values`, and perhaps none; returns their number.
    pub(super) fn split(self, values: &[u8], width: usize, planes: &mut [u8]) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::avx512::split(values, width, planes),
            _ => 0,
        }
    }

    /// Joins values at the start of `values`, and perhaps none; returns their number.
    pub(super) fn join(self, planes: &[u8], width: usize, values: &mut [u8]) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::avx512::join(planes, width, values),
            _ => 0,
        }
    }

    /// Runs loops with the kernel's instructions.
    #[inline(always)]
    pub(super) fn run<L: Loops>(self, loops: L) -> L::Result {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 | Kernel::Avx2 => super::avx2::run(loops),
            _ => loops.run(),
        }
    }

    /// Reads all but the ends of four bit streams of one stream.
    pub(super) fn decode_four(self, lanes: &mut [Lane<'_, '_, '_>; 4]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 | Kernel::Avx2 => super::avx2::decode_four(lanes),
            _ => decode_four(lanes),
        }
    }

    /// The same of two streams, of which each has four.
    pub(super) fn decode_eight(self, lanes: &mut [Lane<'_, '_, '_>; 8]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 | Kernel::Avx2 => super::avx2::decode_eight(lanes),
            _ => decode_eight(lanes),
        }
    }

    /// Writes four bit streams; returns their lengths.
    pub(super) fn encode_four(
        self,
        codes: &CodeBook,
        plain: [&[u8]; 4],
        mut out: [&mut [u8]; 4],
    ) -> [usize; 4] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 if plain[3].len() >= super::avx512::PIECE => {
                super::avx512::encode_four(codes, plain, &mut out)
            }
            _ => std::array::from_fn(|i| encode_one(codes, plain[i], out[i])),
        }
    }
}

/// As [`Kernel::fixed_four`], for values of `N` bytes.
pub(super) fn fixed<const N: usize>(
    page: &[u8],
    offsets: &mut [u32],
    align: usize,
    out: &mut [u8],
) -> Option<()> {
    let mut filling = 0;
    for (offset, value) in offsets.iter_mut().zip(out.as_chunks_mut::<N>().0) {
        let at = (*offset as usize + align) & !align;
        *value = page.get(at..at + N)?.try_into().ok()?;
        filling |= between(page, *offset as usize, at);
        *offset = (at + N) as u32;
    }
    (filling == 0).then_some(())
}
