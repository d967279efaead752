//! The kernels of AVX-512.
//!
//! Invariants
//! - A function here asks [`is_available`] before it uses an instruction.
//!
//! Leaves to others: what the results are for (`kernel.rs` has the same in plain Rust).

use std::arch::x86_64::*;

use super::coding::{CodeBook, CodeWriter};

/// Bytes that one register holds.
pub(super) const PIECE: usize = 64;

pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vbmi")
        && super::avx2::is_available()
}

/// As the scalar kernel's.
pub(super) fn encode_four(
    codes: &CodeBook,
    plain: [&[u8]; 4],
    out: &mut [&mut [u8]; 4],
) -> [usize; 4] {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { encode_four_wide(codes, plain, out) }
}

/// A table of 256 bytes in four registers.
struct Lookup([__m512i; 4]);

impl Lookup {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new(bytes: &[u8; 256]) -> Lookup {
        let (pieces, _) = bytes.as_chunks::<PIECE>();
        Lookup([
            load(&pieces[0]),
            load(&pieces[1]),
            load(&pieces[2]),
            load(&pieces[3]),
        ])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn look_up(&self, index: __m512i) -> __m512i {
        let [a, b, c, d] = self.0;
        let low = _mm512_permutex2var_epi8(a, index, b);
        let high = _mm512_permutex2var_epi8(c, index, d);
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn load(piece: &[u8; PIECE]) -> __m512i {
    // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of 64.
    unsafe { _mm512_loadu_si512(piece.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn words(value: __m512i) -> [u64; 8] {
    let mut words = [0u64; 8];
    // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of eight words.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), value) };
    words
}

/// Joins 32 codes of 16 bits to eight of 64 bits, four codes each, with their lengths.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn merge(codes: __m512i, lengths: __m512i) -> (__m512i, __m512i) {
    let low = _mm512_set1_epi32(0xffff);
    let second = _mm512_srli_epi32(lengths, 16);
    let first = _mm512_sllv_epi32(_mm512_and_si512(codes, low), second);
    let pairs = _mm512_or_si512(_mm512_srli_epi32(codes, 16), first);
    let lengths = _mm512_add_epi32(second, _mm512_and_si512(lengths, low));
    let low = _mm512_set1_epi64(0xffff_ffff);
    let second = _mm512_srli_epi64(lengths, 32);
    let first = _mm512_sllv_epi64(_mm512_and_si512(pairs, low), second);
    let fours = _mm512_or_si512(_mm512_srli_epi64(pairs, 32), first);
    let lengths = _mm512_add_epi64(second, _mm512_and_si512(lengths, low));
    (fours, lengths)
}

struct Wide {
    lengths: Lookup,
    low: Lookup,
    high: Lookup,
}

/// Codes of 64 symbols: eight words of eight symbols, or if one has more than 56 bits, 16 words of four.
enum Joined {
    Eights([u64; 8], [u64; 8]),
    Fours([[u64; 8]; 2], [[u64; 8]; 2]),
}

impl Wide {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn joined(&self, symbols: &[u8; PIECE]) -> Joined {
        let symbols = load(symbols);
        let zero = _mm512_setzero_si512();
        let lengths = self.lengths.look_up(symbols);
        let (low, high) = (self.low.look_up(symbols), self.high.look_up(symbols));
        let (a, a_len) = merge(
            _mm512_unpacklo_epi8(low, high),
            _mm512_unpacklo_epi8(lengths, zero),
        );
        let (b, b_len) = merge(
            _mm512_unpackhi_epi8(low, high),
            _mm512_unpackhi_epi8(lengths, zero),
        );
        let second = _mm512_unpackhi_epi64(a_len, b_len);
        let len = _mm512_add_epi64(second, _mm512_unpacklo_epi64(a_len, b_len));
        if _mm512_cmpgt_epi64_mask(len, _mm512_set1_epi64(56)) != 0 {
            return Joined::Fours([words(a), words(b)], [words(a_len), words(b_len)]);
        }
        let first = _mm512_sllv_epi64(_mm512_unpacklo_epi64(a, b), second);
        let eights = _mm512_or_si512(_mm512_unpackhi_epi64(a, b), first);
        Joined::Eights(words(eights), words(len))
    }
}

/// Within 16 symbols the first eight are in one half and the others in the other one.
fn put(writer: &mut CodeWriter, joined: &Joined, out: &mut [u8]) {
    match joined {
        Joined::Eights(bits, lengths) => {
            for (bits, len) in bits.iter().zip(lengths) {
                writer.put(out, *bits, *len as u32);
            }
        }
        Joined::Fours(bits, lengths) => {
            for at in 0..4 {
                for half in 0..2 {
                    for word in [2 * at, 2 * at + 1] {
                        writer.put(out, bits[half][word], lengths[half][word] as u32);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn encode_four_wide(codes: &CodeBook, plain: [&[u8]; 4], out: &mut [&mut [u8]; 4]) -> [usize; 4] {
    let wide = Wide {
        lengths: Lookup::new(&codes.lengths),
        low: Lookup::new(&codes.codes.map(|code| code as u8)),
        high: Lookup::new(&codes.codes.map(|code| (code >> 8) as u8)),
    };
    let mut writers = [CodeWriter::default(); 4];
    let pieces = plain.map(|plain| plain.as_chunks::<PIECE>().0);
    let common = pieces[3].len();
    let [oa, ob, oc, od] = out;
    let [mut wa, mut wb, mut wc, mut wd] = writers;
    let [pa, pb, pc, pd] = pieces;
    for (((a, b), c), d) in pa.iter().zip(pb).zip(pc).zip(pd) {
        let joined: [Joined; 4] = [
            wide.joined(a),
            wide.joined(b),
            wide.joined(c),
            wide.joined(d),
        ];
        if let [
            Joined::Eights(ba, la),
            Joined::Eights(bb, lb),
            Joined::Eights(bc, lc),
            Joined::Eights(bd, ld),
        ] = &joined
        {
            for k in 0..8 {
                wa.put(oa, ba[k], la[k] as u32);
                wb.put(ob, bb[k], lb[k] as u32);
                wc.put(oc, bc[k], lc[k] as u32);
                wd.put(od, bd[k], ld[k] as u32);
            }
            continue;
        }
        put(&mut wa, &joined[0], oa);
        put(&mut wb, &joined[1], ob);
        put(&mut wc, &joined[2], oc);
        put(&mut wd, &joined[3], od);
    }
    writers = [wa, wb, wc, wd];
    for ((writer, plain), out) in writers.iter_mut().zip(plain).zip(out) {
        rest(codes, &plain[common * PIECE..], writer, out);
    }
    writers.map(CodeWriter::end)
}

fn rest(codes: &CodeBook, plain: &[u8], writer: &mut CodeWriter, out: &mut [u8]) {
    for symbol in plain {
        let symbol = usize::from(*symbol);
        writer.put(
            out,
            u64::from(codes.codes[symbol]),
            u32::from(codes.lengths[symbol]),
        );
    }
}

/// Whether a byte of `known` is not set that `bytes` have as an index: the first such piece of 64 bytes, from piece `from`
/// on.
pub(super) fn unknown(known: &[u8; 256], pieces: &[[u8; PIECE]], from: usize) -> Option<usize> {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { unknown_wide(known, pieces, from) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn unknown_wide(known: &[u8; 256], pieces: &[[u8; PIECE]], from: usize) -> Option<usize> {
    let known = Lookup::new(known);
    let is_unknown =
        |piece: &[u8; PIECE]| _mm512_movepi8_mask(known.look_up(load(piece))) != u64::MAX;
    (from..pieces.len()).find(|i| is_unknown(&pieces[*i]))
}

/// Rows that are read at a time.
const ROWS: usize = 16;

/// As `fixed` of `kernel.rs`, for four bytes. `align` is at most 3: up to four bytes before a value are looked at.
pub(super) fn fixed_four(
    page: &[u8],
    offsets: &mut [u32],
    align: u32,
    out: &mut [u8],
) -> Option<()> {
    assert!(is_available() && align < 4 && page.len() >= 8 && page.len() <= 1 << 20);
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { fixed_four_wide(page, offsets, align, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn fixed_four_wide(page: &[u8], offsets: &mut [u32], align: u32, out: &mut [u8]) -> Option<()> {
    let (add, mask) = (splat(align), splat(!align));
    let last = splat(page.len() as u32 - 4);
    let mut filling = _mm512_setzero_si512();
    for (offsets, out) in offsets.chunks_mut(ROWS).zip(out.chunks_mut(4 * ROWS)) {
        let rows = rows_mask(offsets.len());
        let offset = load_rows(offsets);
        let at = _mm512_and_si512(_mm512_add_epi32(offset, add), mask);
        if _mm512_mask_cmpgt_epu32_mask(rows, at, last) != 0 {
            return None;
        }
        // SAFETY: each place that is read, four bytes from `at` on and four before it, must lie in the page: `at` is at most
        // its length less four, and at least four, since a page's head comes first. Rows outside the mask are not read.
        let (value, before) = unsafe {
            let zero = _mm512_setzero_si512();
            let base = page.as_ptr().cast();
            let at_least = _mm512_max_epu32(at, splat(4));
            let before = _mm512_sub_epi32(at_least, splat(4));
            (
                _mm512_mask_i32gather_epi32::<1>(zero, rows, at, base),
                _mm512_mask_i32gather_epi32::<1>(zero, rows, before, base),
            )
        };
        let bits = _mm512_slli_epi32(_mm512_sub_epi32(at, offset), 3);
        let before = _mm512_srlv_epi32(before, _mm512_sub_epi32(splat(32), bits));
        filling = _mm512_or_si512(filling, before);
        store_rows(&bytes(value), out);
        let next = _mm512_add_epi32(at, splat(4));
        offsets.copy_from_slice(&lanes(next)[..offsets.len()]);
    }
    (_mm512_test_epi32_mask(filling, filling) == 0).then_some(())
}

/// Lengths of values whose headers are one byte each: writes them to `lengths`, moves the offsets behind the headers, and
/// returns the highest one. `None` if some header is another one.
pub(super) fn short_lengths(page: &[u8], offsets: &mut [u32], lengths: &mut [u8]) -> Option<usize> {
    assert!(is_available() && page.len() >= 8 && page.len() <= 1 << 20);
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { short_lengths_wide(page, offsets, lengths) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn short_lengths_wide(page: &[u8], offsets: &mut [u32], lengths: &mut [u8]) -> Option<usize> {
    let one = splat(1);
    let last = splat(page.len() as u32 - 4);
    let mut highest = _mm512_setzero_si512();
    // Nothing is moved before all headers were seen.
    for (offsets, lengths) in offsets.chunks(ROWS).zip(lengths.chunks_mut(ROWS)) {
        let rows = rows_mask(offsets.len());
        let offset = load_rows(offsets);
        let at = _mm512_min_epu32(offset, last);
        // SAFETY: the four bytes from `at` on must lie in the page: `at` is at most its length less four. Rows outside the
        // mask are not read.
        let header = unsafe {
            let zero = _mm512_setzero_si512();
            _mm512_mask_i32gather_epi32::<1>(zero, rows, at, page.as_ptr().cast())
        };
        // The last three bytes of the page are read with what is before them; an offset beyond the page shifts all away.
        let bits = _mm512_slli_epi32(_mm512_sub_epi32(offset, at), 3);
        let header = _mm512_and_si512(_mm512_srlv_epi32(header, bits), splat(0xff));
        let other = _mm512_mask_testn_epi32_mask(rows, header, one)
            | _mm512_mask_cmpeq_epi32_mask(rows, header, one);
        if other != 0 {
            return None;
        }
        let len = _mm512_maskz_sub_epi32(rows, _mm512_srli_epi32(header, 1), one);
        highest = _mm512_max_epu32(highest, len);
        for (length, lane) in lengths.iter_mut().zip(lanes(len)) {
            *length = lane as u8;
        }
    }
    for offset in offsets {
        *offset += 1;
    }
    Some(_mm512_reduce_max_epu32(highest) as usize)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn splat(value: u32) -> __m512i {
    _mm512_set1_epi32(value as i32)
}

#[inline]
fn rows_mask(rows: usize) -> u16 {
    if rows >= ROWS {
        u16::MAX
    } else {
        (1 << rows) - 1
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn load_rows(rows: &[u32]) -> __m512i {
    if let Some(rows) = rows.first_chunk::<ROWS>() {
        // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of 16 numbers.
        return unsafe { _mm512_loadu_si512(rows.as_ptr().cast()) };
    }
    let mut all = [0; ROWS];
    all[..rows.len()].copy_from_slice(rows);
    // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of 16 numbers.
    unsafe { _mm512_loadu_si512(all.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn lanes(value: __m512i) -> [u32; ROWS] {
    let mut lanes = [0; ROWS];
    // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of 16 numbers.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), value) };
    lanes
}

#[inline(always)]
fn store_rows(bytes: &[u8; PIECE], out: &mut [u8]) {
    match out.first_chunk_mut::<PIECE>() {
        Some(out) => *out = *bytes,
        None => out.copy_from_slice(&bytes[..out.len()]),
    }
}

/// Byte i of `rows` values of `width` bytes goes to place i % width × rows + i / width of a group of 64 bytes.
const fn transposition(width: usize) -> [u8; PIECE] {
    let rows = PIECE / width;
    let mut index = [0; PIECE];
    let mut i = 0;
    while i < PIECE {
        index[i] = (i % rows * width + i / rows) as u8;
        i += 1;
    }
    index
}

static OF_FOUR: [u8; PIECE] = transposition(4);
static OF_EIGHT: [u8; PIECE] = transposition(8);

/// Splits as many values of four or eight bytes as whole pieces hold; returns their number.
pub(super) fn split(values: &[u8], width: usize, planes: &mut [u8]) -> usize {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe {
        match width {
            4 => split_wide::<4, 16>(&OF_FOUR, values, planes),
            8 => split_wide::<8, 8>(&OF_EIGHT, values, planes),
            16.. if width.is_multiple_of(8) => split_wider(width, values, planes),
            _ => 0,
        }
    }
}

/// Eight rows and eight columns at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn split_wider(width: usize, values: &[u8], planes: &mut [u8]) -> usize {
    let rows = values.len() / width;
    let index = load(&OF_EIGHT);
    let eights = values.chunks_exact(8 * width).enumerate();
    for (i, values) in eights {
        for column in (0..width).step_by(8) {
            let mut block = [0; PIECE];
            for (row, part) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                part.copy_from_slice(&values[row * width + column..][..8]);
            }
            let block = bytes(_mm512_permutexvar_epi8(index, load(&block)));
            for (k, part) in block.as_chunks::<8>().0.iter().enumerate() {
                planes[(column + k) * rows + 8 * i..][..8].copy_from_slice(part);
            }
        }
    }
    rows / 8 * 8
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn split_wide<const WIDTH: usize, const ROWS: usize>(
    index: &[u8; PIECE],
    values: &[u8],
    planes: &mut [u8],
) -> usize {
    let rows = values.len() / WIDTH;
    let index = load(index);
    let pieces = values.as_chunks::<PIECE>().0;
    let mut plane = planes.chunks_exact_mut(rows.max(1));
    let mut planes: [&mut [u8]; WIDTH] = std::array::from_fn(|_| plane.next().unwrap_or_default());
    for (i, piece) in pieces.iter().enumerate() {
        let piece = bytes(_mm512_permutexvar_epi8(index, load(piece)));
        for (plane, part) in planes.iter_mut().zip(piece.as_chunks::<ROWS>().0) {
            plane[i * ROWS..(i + 1) * ROWS].copy_from_slice(part);
        }
    }
    pieces.len() * ROWS
}

/// Joins as many values of four or eight bytes as whole pieces hold; returns their number.
pub(super) fn join(planes: &[u8], width: usize, values: &mut [u8]) -> usize {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe {
        match width {
            4 => join_wide::<4, 16>(&transposition(16), planes, values),
            8 => join_wide::<8, 8>(&OF_EIGHT, planes, values),
            16.. if width.is_multiple_of(8) => join_wider(width, planes, values),
            _ => 0,
        }
    }
}

/// Eight rows and eight columns at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn join_wider(width: usize, planes: &[u8], values: &mut [u8]) -> usize {
    let rows = values.len() / width;
    let index = load(&OF_EIGHT);
    for (i, values) in values.chunks_exact_mut(8 * width).enumerate() {
        for column in (0..width).step_by(8) {
            let mut block = [0; PIECE];
            for (k, part) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                part.copy_from_slice(&planes[(column + k) * rows + 8 * i..][..8]);
            }
            let block = bytes(_mm512_permutexvar_epi8(index, load(&block)));
            for (row, part) in block.as_chunks::<8>().0.iter().enumerate() {
                values[row * width + column..][..8].copy_from_slice(part);
            }
        }
    }
    rows / 8 * 8
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn join_wide<const WIDTH: usize, const ROWS: usize>(
    index: &[u8; PIECE],
    planes: &[u8],
    values: &mut [u8],
) -> usize {
    let rows = values.len() / WIDTH;
    let index = load(index);
    let mut plane = planes.chunks_exact(rows.max(1));
    let planes: [&[u8]; WIDTH] = std::array::from_fn(|_| plane.next().unwrap_or_default());
    let pieces = values.as_chunks_mut::<PIECE>().0;
    let count = pieces.len();
    for (i, piece) in pieces.iter_mut().enumerate() {
        let mut parts = [0; PIECE];
        for (plane, part) in planes.iter().zip(parts.as_chunks_mut::<ROWS>().0) {
            part.copy_from_slice(&plane[i * ROWS..(i + 1) * ROWS]);
        }
        *piece = bytes(_mm512_permutexvar_epi8(index, load(&parts)));
    }
    count * ROWS
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn bytes(value: __m512i) -> [u8; PIECE] {
    let mut bytes = [0; PIECE];
    // SAFETY: the pointer must be valid for 64 bytes: it is that of an array of 64.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) };
    bytes
}
