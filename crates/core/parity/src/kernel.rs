//! Sums of products over long runs of bytes.
//!
//! CPU seconds for each GB of data are in `docs/decisions/media.md`; `examples/speed.rs` measures them.
//!
//! Invariants
//! - Every kernel gives the bytes that the scalar one gives, at any alignment and any length.
//!
//! Leaves to others: the factors (`matrix.rs`), and tables for them (`field.rs`).

use crate::field::FACTORS;

/// Instructions that compute products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Affine transformations of 64 bytes at a time: GFNI with AVX-512.
    Gfni,
    /// Two table look-ups for 32 bytes at a time.
    Avx2,
    Scalar,
}

impl Kernel {
    pub const ALL: [Kernel; 3] = [Kernel::Gfni, Kernel::Avx2, Kernel::Scalar];

    /// Whether this processor has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => {
                std::arch::is_x86_feature_detected!("gfni")
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Gfni | Kernel::Avx2 => false,
            Kernel::Scalar => true,
        }
    }

    /// The fastest kernel of this processor.
    pub fn best() -> Kernel {
        let mut all = Kernel::ALL.into_iter();
        all.find(|k| k.is_available()).unwrap_or(Kernel::Scalar)
    }
}

/// The value of an output before the first product is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Zeros, whatever it holds.
    Zeros,
    /// The bytes that it holds.
    Present,
}

/// Outputs that one pass computes: as many as the registers hold.
const OUTS: usize = crate::PARITY_MAX;

/// Adds to each output the sum of all sources, each times its factor: `factors` has those of the first output, then those
/// of the second one, and so on.
///
/// # Panics
/// If lengths differ, or there are not `outs` × `sources` factors.
pub fn combine(outs: &mut [&mut [u8]], factors: &[u8], sources: &[&[u8]], start: Outputs) {
    combine_with(Kernel::best(), outs, factors, sources, start);
}

/// [`combine`] with this kernel, or with the scalar one where the processor lacks it.
///
/// # Panics
/// As [`combine`].
pub fn combine_with(
    kernel: Kernel,
    outs: &mut [&mut [u8]],
    factors: &[u8],
    sources: &[&[u8]],
    start: Outputs,
) {
    let Some(len) = outs.first().map(|out| out.len()) else {
        return;
    };
    assert_eq!(factors.len(), outs.len() * sources.len(), "factors");
    assert!(outs.iter().all(|out| out.len() == len), "outputs differ");
    assert!(sources.iter().all(|s| s.len() == len), "sources differ");
    if sources.is_empty() {
        if start == Outputs::Zeros {
            outs.iter_mut().for_each(|out| out.fill(0));
        }
        return;
    }
    let kernel = match kernel.is_available() {
        true => kernel,
        false => Kernel::Scalar,
    };
    let groups = factors.chunks(OUTS * sources.len());
    for (outs, factors) in outs.chunks_mut(OUTS).zip(groups) {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => x86_64::gfni(outs, factors, sources, start),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => x86_64::avx2(outs, factors, sources, start),
            _ => scalar(outs, factors, sources, start, 0),
        }
    }
}

/// From byte `from` on: a vector kernel's rest.
fn scalar(outs: &mut [&mut [u8]], factors: &[u8], sources: &[&[u8]], start: Outputs, from: usize) {
    for (out, factors) in outs.iter_mut().zip(factors.chunks(sources.len())) {
        let out = &mut out[from..];
        if start == Outputs::Zeros {
            out.fill(0);
        }
        for (source, factor) in sources.iter().zip(factors) {
            let factor = &FACTORS[usize::from(*factor)];
            for (out, byte) in out.iter_mut().zip(&source[from..]) {
                let (low, high) = (usize::from(byte & 15), usize::from(byte >> 4));
                *out ^= factor.low[low] ^ factor.high[high];
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8,
        _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64,
        _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{FACTORS, OUTS, Outputs, scalar};

    const WIDE: usize = size_of::<__m512i>();
    const PAIR: usize = 2 * WIDE;
    const NARROW: usize = size_of::<__m256i>();

    /// Calls a kernel for as many outputs as there are.
    macro_rules! for_outs {
        ($kernel:ident, $outs:expr, $factors:expr, $sources:expr, $start:expr) => {
            match $outs.len() {
                1 => $kernel::<1>($outs, $factors, $sources, $start),
                2 => $kernel::<2>($outs, $factors, $sources, $start),
                3 => $kernel::<3>($outs, $factors, $sources, $start),
                4 => $kernel::<4>($outs, $factors, $sources, $start),
                5 => $kernel::<5>($outs, $factors, $sources, $start),
                6 => $kernel::<6>($outs, $factors, $sources, $start),
                7 => $kernel::<7>($outs, $factors, $sources, $start),
                _ => $kernel::<OUTS>($outs, $factors, $sources, $start),
            }
        };
    }

    pub fn gfni(outs: &mut [&mut [u8]], factors: &[u8], sources: &[&[u8]], start: Outputs) {
        // SAFETY: the processor must have GFNI, AVX-512F and AVX-512BW; the caller asks `is_available` before. There is no
        // safe form: a program for every x86-64 may only call such a function after it has asked the processor.
        unsafe { for_outs!(gfni_of, outs, factors, sources, start) }
    }

    pub fn avx2(outs: &mut [&mut [u8]], factors: &[u8], sources: &[&[u8]], start: Outputs) {
        // SAFETY: the processor must have AVX2; the caller asks `is_available` before. There is no safe form, as above.
        let done = unsafe { for_outs!(avx2_of, outs, factors, sources, start) };
        scalar(outs, factors, sources, start, done);
    }

    /// The bytes of `of` at `at`, zeros after its end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_wide(of: &[u8], at: usize) -> __m512i {
        let rest = &of[at..];
        let mask = mask(rest.len());
        // SAFETY: the load demands that the bytes of the mask can be read: they are those of `rest`, at most 64.
        unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store_wide(to: &mut [u8], at: usize, what: __m512i) {
        let rest = &mut to[at..];
        let mask = mask(rest.len());
        // SAFETY: the store demands that the bytes of the mask can be written: they are those of `rest`, at most 64.
        unsafe { _mm512_mask_storeu_epi8(rest.as_mut_ptr().cast(), mask, what) }
    }

    /// A bit for each of up to 64 bytes.
    #[inline]
    fn mask(len: usize) -> u64 {
        match len {
            WIDE.. => u64::MAX,
            len => (1 << len) - 1,
        }
    }

    /// For `P` outputs.
    #[target_feature(enable = "gfni,avx512f,avx512bw")]
    fn gfni_of<const P: usize>(
        outs: &mut [&mut [u8]],
        factors: &[u8],
        sources: &[&[u8]],
        start: Outputs,
    ) {
        let bits = |factor: &u8| FACTORS[usize::from(*factor)].bits.cast_signed();
        let matrices: Vec<i64> = factors.iter().map(bits).collect();
        let Some(outs) = outs.first_chunk_mut::<P>() else {
            return;
        };
        let len = outs[0].len();
        let count = sources.len();
        let mut at = 0;
        while at < len {
            // Two registers at a time keep both ports busy; the last bytes take one, or a part of one.
            at += match len - at {
                PAIR.. => {
                    let mut sums = [[_mm512_setzero_si512(); 2]; P];
                    if start == Outputs::Present {
                        for (sum, out) in sums.iter_mut().zip(outs.iter()) {
                            *sum = load_pair(out, at);
                        }
                    }
                    for (i, source) in sources.iter().enumerate() {
                        let bytes = load_pair(source, at);
                        for (j, sum) in sums.iter_mut().enumerate() {
                            let matrix = _mm512_set1_epi64(matrices[j * count + i]);
                            for (sum, bytes) in sum.iter_mut().zip(bytes) {
                                let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
                                *sum = _mm512_xor_si512(*sum, product);
                            }
                        }
                    }
                    for (sum, out) in sums.iter().zip(outs.iter_mut()) {
                        store_pair(out, at, *sum);
                    }
                    PAIR
                }
                _ => {
                    for (j, out) in outs.iter_mut().enumerate() {
                        let mut sum = match start {
                            Outputs::Zeros => _mm512_setzero_si512(),
                            Outputs::Present => load_wide(out, at),
                        };
                        for (i, source) in sources.iter().enumerate() {
                            let matrix = _mm512_set1_epi64(matrices[j * count + i]);
                            let bytes = load_wide(source, at);
                            let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
                            sum = _mm512_xor_si512(sum, product);
                        }
                        store_wide(out, at, sum);
                    }
                    WIDE
                }
            }
        }
    }

    /// 128 bytes of `of` at `at`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_pair(of: &[u8], at: usize) -> [__m512i; 2] {
        let bytes: &[u8; PAIR] = of[at..].first_chunk().unwrap_or(&[0; PAIR]);
        let (first, second) = bytes.split_at(WIDE);
        // SAFETY: each load demands 64 readable bytes at any address: those of the two halves.
        unsafe {
            [
                _mm512_loadu_si512(first.as_ptr().cast()),
                _mm512_loadu_si512(second.as_ptr().cast()),
            ]
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store_pair(to: &mut [u8], at: usize, what: [__m512i; 2]) {
        let Some(place) = to[at..].first_chunk_mut::<PAIR>() else {
            return;
        };
        let (first, second) = place.split_at_mut(WIDE);
        // SAFETY: each store demands 64 writable bytes at any address: those of the two halves.
        unsafe {
            _mm512_storeu_si512(first.as_mut_ptr().cast(), what[0]);
            _mm512_storeu_si512(second.as_mut_ptr().cast(), what[1]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(of: &[u8], at: usize) -> __m256i {
        let bytes: &[u8; NARROW] = of[at..].first_chunk().unwrap_or(&[0; NARROW]);
        // SAFETY: the load demands 32 readable bytes at any address: those of `bytes`.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn table(of: &[u8; 16]) -> __m256i {
        // SAFETY: the load demands 16 readable bytes at any address: those of `of`.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(of.as_ptr().cast()) })
    }

    /// For `P` outputs; returns how many bytes of each are done: all but the last ones, fewer than 32.
    #[target_feature(enable = "avx2")]
    fn avx2_of<const P: usize>(
        outs: &mut [&mut [u8]],
        factors: &[u8],
        sources: &[&[u8]],
        start: Outputs,
    ) -> usize {
        let Some(outs) = outs.first_chunk_mut::<P>() else {
            return 0;
        };
        let count = sources.len();
        let len = outs[0].len() - outs[0].len() % NARROW;
        let low_bits = _mm256_set1_epi8(15);
        for at in (0..len).step_by(NARROW) {
            let mut sums = [_mm256_setzero_si256(); P];
            if start == Outputs::Present {
                for (sum, out) in sums.iter_mut().zip(outs.iter()) {
                    *sum = load(out, at);
                }
            }
            for (i, source) in sources.iter().enumerate() {
                let bytes = load(source, at);
                let low = _mm256_and_si256(bytes, low_bits);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), low_bits);
                for (j, sum) in sums.iter_mut().enumerate() {
                    let factor = &FACTORS[usize::from(factors[j * count + i])];
                    let low = _mm256_shuffle_epi8(table(&factor.low), low);
                    let high = _mm256_shuffle_epi8(table(&factor.high), high);
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(low, high));
                }
            }
            for (sum, out) in sums.iter().zip(outs.iter_mut()) {
                let Some(place) = out[at..].first_chunk_mut::<NARROW>() else {
                    continue;
                };
                // SAFETY: the store demands 32 writable bytes at any address: those of `place`.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), *sum) };
            }
        }
        len
    }
}
