//! One stream of bytes in Huffman codes: histogram, codes, and the two directions.
//!
//! | part | bytes |
//! |---|---|
//! | last symbol that has a code | 1 |
//! | code lengths of symbols 0 to the last, in nibbles, the low nibble first | until all have a length |
//! | lengths of the first three bit streams, if there are four | numbers |
//! | the bit streams | |
//!
//! A nibble of 1 to 11 is a length. 0 and a nibble n are n + 1 symbols without a code. 12 and a nibble n repeat the last
//! length n + 3 times. A last nibble that is not needed is 0.
//!
//! Plain bytes below [`FOUR_FROM`] are one bit stream. Others are four: each has a quarter of the plain bytes, rounded up,
//! the last has what is left. A bit stream begins with the highest bit of its first byte; codes are canonical, in order of
//! length and then of symbol; what is left of the last byte is zero bits.
//!
//! Invariants
//! - Lengths fill the code space exactly, also on decoding, so every bit pattern is a code.
//! - Decoding accepts a stream only if its codes end in the last byte.
//!
//! Leaves to others: whether a stream is worth it (`stream.rs`).

use std::sync::LazyLock;

use super::coding::{BITS_MAX, CodeBook, STREAM_SLACK, encode_one};
use super::decoding::{Lane, Lengths, Tables};
use super::kernel::Kernel;
use crate::PayloadError;

use super::cursor::Cursor;
use super::out::{Out, number_len};

/// From this length on there are four bit streams, which a processor codes at the same time.
const FOUR_FROM: usize = 256;

/// How often each byte occurs.
pub(super) type Counts = [u32; 256];

/// Counts one in `every` pieces of 64 bytes, and with 1 all bytes.
pub(super) fn count(bytes: &[u8], every: usize) -> Counts {
    let mut sum = [0; 256];
    if bytes.len() < 512 {
        bytes.iter().for_each(|byte| sum[usize::from(*byte)] += 1);
        return sum;
    }
    // Equal bytes that follow one another are counted in different tables: each table waits for its last store.
    let mut tables = [[0u32; 256]; 4];
    let mut pieces = bytes.chunks_exact(64);
    for piece in pieces.by_ref().step_by(every) {
        for word in piece.as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            for (byte, table) in (0..8).zip([0, 1, 2, 3, 0, 1, 2, 3]) {
                tables[table][(word >> (8 * byte)) as usize & 0xff] += 1;
            }
        }
    }
    let [a, b, c, d] = &tables;
    for (i, sum) in sum.iter_mut().enumerate() {
        *sum = a[i] + b[i] + c[i] + d[i];
    }
    if every == 1 {
        for byte in pieces.remainder() {
            sum[usize::from(*byte)] += 1;
        }
    }
    sum
}

/// The entropy in bits for each byte, 0 to 8.
pub(super) fn entropy(counts: &Counts) -> f32 {
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let weighed = &**WEIGHED;
    // Sums that do not wait for one another.
    let mut sums = [0.0; 8];
    for counts in counts.as_chunks::<8>().0 {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += match weighed.get(*count as usize) {
                Some(value) => *value,
                None => *count as f32 * (*count as f32).log2(),
            };
        }
    }
    let sum: f32 = sums.iter().sum();
    let total = total as f32;
    ((total * total.log2() - sum) / total).max(0.0)
}

/// The entropy of a few bytes.
pub(super) fn entropy_of<'a>(bytes: impl Iterator<Item = &'a u8> + Clone) -> f32 {
    let weighed = &**WEIGHED;
    let mut counts = [0u16; 256];
    let mut total = 0;
    for byte in bytes.clone() {
        counts[usize::from(*byte)] += 1;
        total += 1;
    }
    let mut sum = 0.0;
    for byte in bytes {
        let count = std::mem::take(&mut counts[usize::from(*byte)]);
        sum += weighed[usize::from(count)];
    }
    let whole = total as f32;
    ((whole * whole.log2() - sum) / whole).max(0.0)
}

/// x · log2 x.
static WEIGHED: LazyLock<Box<[f32]>> = LazyLock::new(|| {
    let weighed = |x: u16| f32::from(x) * f32::from(x.max(1)).log2();
    (0..4096).map(weighed).collect()
});

/// A stream in Huffman codes that is not written yet.
pub(super) struct Coded<'a> {
    lengths: Vec<u8>,
    streams: [&'a [u8]; 4],
    /// How many of the streams there are: one or four.
    count: usize,
}

impl<'a> Coded<'a> {
    /// `plain` (at least two different bytes) in codes for `counts`, which may come from a sample. `room` is memory to work
    /// in; it grows as needed.
    pub(super) fn new(
        kernel: Kernel,
        plain: &[u8],
        counts: &Counts,
        sampled: bool,
        room: &'a mut Vec<u8>,
    ) -> Coded<'a> {
        let mut counts = *counts;
        if sampled {
            let mut known = counts.map(|count| if count > 0 { 255 } else { 0 });
            kernel.complete(&mut known, plain);
            for (count, known) in counts.iter_mut().zip(known) {
                *count = 4 * *count + u32::from(known & 1);
            }
        }
        let highest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let codes = CodeBook::new(&counts, plain.len());
        let lengths = written_lengths(&codes.lengths, highest);
        let segment = segment_len(plain.len());
        let each = segment * BITS_MAX / 8 + STREAM_SLACK;
        if room.len() < 4 * each {
            room.resize(4 * each, 0);
        }
        let mut streams = [&[][..]; 4];
        if plain.len() < FOUR_FROM {
            let len = encode_one(&codes, plain, room);
            streams[0] = &room[..len];
            return Coded {
                lengths,
                streams,
                count: 1,
            };
        }
        let (a, rest) = plain.split_at(segment);
        let (b, rest) = rest.split_at(segment);
        let (c, d) = rest.split_at(segment);
        let (ra, rest) = room.split_at_mut(each);
        let (rb, rest) = rest.split_at_mut(each);
        let (rc, rd) = rest.split_at_mut(each);
        let lens = kernel.encode_four(&codes, [a, b, c, d], [ra, rb, rc, rd]);
        for ((stream, room), len) in streams.iter_mut().zip(room.chunks(each)).zip(lens) {
            *stream = &room[..len];
        }
        Coded {
            lengths,
            streams,
            count: 4,
        }
    }

    /// The lengths of the bit streams but the last.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.streams[..self.count - 1]
            .iter()
            .map(|stream| stream.len())
    }

    /// Bytes that [`Coded::put`] appends.
    pub(super) fn len(&self) -> usize {
        let streams: usize = self.streams.iter().map(|stream| stream.len()).sum();
        self.lengths.len() + self.sizes().map(number_len).sum::<usize>() + streams
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.extend(&self.lengths);
        self.sizes().for_each(|size| out.number(size));
        self.streams.iter().for_each(|stream| out.extend(stream));
    }
}

/// Plain bytes of each bit stream but the last.
fn segment_len(len: usize) -> usize {
    if len < FOUR_FROM {
        len
    } else {
        len.div_ceil(4)
    }
}

/// The code lengths as they are written.
fn written_lengths(lengths: &[u8; 256], highest: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    out.push(highest as u8);
    let lengths = &lengths[..=highest];
    let mut nibbles = Nibbles { out, half: None };
    let mut at = 0;
    let mut last = None;
    while at < lengths.len() {
        let length = lengths[at];
        let run = lengths[at..].iter().take_while(|l| **l == length).count();
        at += match length {
            0 => {
                let run = run.min(16);
                nibbles.put(0);
                nibbles.put(run as u8 - 1);
                run
            }
            _ if last == Some(length) && run >= 3 => {
                let run = run.min(18);
                nibbles.put(12);
                nibbles.put(run as u8 - 3);
                run
            }
            _ => {
                nibbles.put(length);
                last = Some(length);
                1
            }
        };
    }
    nibbles.out.extend(nibbles.half);
    nibbles.out
}

struct Nibbles {
    out: Vec<u8>,
    half: Option<u8>,
}

impl Nibbles {
    fn put(&mut self, nibble: u8) {
        match self.half.take() {
            None => self.half = Some(nibble),
            Some(low) => self.out.push(low | nibble << 4),
        }
    }
}

fn get_lengths(cursor: &mut Cursor<'_>) -> Result<Lengths, PayloadError> {
    let count = usize::from(cursor.byte()?) + 1;
    let mut lengths = Lengths::new(count);
    let (mut at, mut last) = (0, 0);
    let mut half = None;
    let mut nibble = |cursor: &mut Cursor<'_>| match half.take() {
        Some(high) => Ok::<u8, PayloadError>(high),
        None => {
            let byte = cursor.byte()?;
            half = Some(byte >> 4);
            Ok(byte & 15)
        }
    };
    while at < count {
        let (length, run) = match nibble(cursor)? {
            0 => (0, usize::from(nibble(cursor)?) + 1),
            12 if last != 0 => (last, usize::from(nibble(cursor)?) + 3),
            length @ 1..=11 => {
                last = length;
                (length, 1)
            }
            _ => return Err(cursor.error("a code length is impossible")),
        };
        if run > count - at {
            return Err(cursor.error("more code lengths than symbols"));
        }
        lengths.put(at, run, length);
        at += run;
    }
    if half.is_some_and(|nibble| nibble != 0) {
        return Err(cursor.error("a nibble after the code lengths is not zero"));
    }
    if !lengths.fill_the_space() {
        return Err(cursor.error("code lengths do not fill the code space"));
    }
    Ok(lengths)
}

/// A stream in Huffman codes, and where its bytes go.
pub(super) struct CodedStream<'a, 'p> {
    coded: &'a [u8],
    /// Where it begins in the payload.
    at: usize,
    plain: &'p mut [u8],
}

impl<'a, 'p> CodedStream<'a, 'p> {
    pub(super) fn new(coded: &'a [u8], at: usize, plain: &'p mut [u8]) -> CodedStream<'a, 'p> {
        CodedStream { coded, at, plain }
    }

    /// Fills `tables` and begins the four bit streams. `None`: there was one only, and it is decoded.
    fn begin<'t>(
        self,
        tables: &'t mut Tables,
    ) -> Result<Option<[Lane<'t, 'a, 'p>; 4]>, PayloadError> {
        let CodedStream { coded, at, plain } = self;
        begin(Cursor::new(coded, 0, 0), tables, plain).map_err(|e| e.shifted(at))
    }
}

const DAMAGED: &str = "codes do not end where their stream ends";

fn begin<'t, 'a, 'p>(
    mut cursor: Cursor<'a>,
    tables: &'t mut Tables,
    plain: &'p mut [u8],
) -> Result<Option<[Lane<'t, 'a, 'p>; 4]>, PayloadError> {
    let lengths = get_lengths(&mut cursor)?;
    tables.fill(&lengths);
    let segment = segment_len(plain.len());
    if plain.len() < FOUR_FROM {
        let at = cursor.at();
        let ended = tables.decode_one(cursor.take(cursor.rest())?, plain);
        return match ended {
            true => Ok(None),
            false => Err(PayloadError::at(at, DAMAGED)),
        };
    }
    let sizes = [cursor.number()?, cursor.number()?, cursor.number()?];
    let mut streams = [&[][..]; 4];
    for (stream, size) in streams.iter_mut().zip(sizes) {
        *stream = cursor.take(size)?;
    }
    streams[3] = cursor.take(cursor.rest())?;
    let mut plain = plain.chunks_mut(segment);
    let tables = &*tables;
    Ok(Some(streams.map(|stream| {
        Lane::new(tables, stream, plain.next().unwrap_or_default())
    })))
}

/// Decodes one stream.
pub(super) fn decode(
    kernel: Kernel,
    tables: &mut Tables,
    job: CodedStream<'_, '_>,
) -> Result<(), PayloadError> {
    let at = job.at;
    let Some(mut lanes) = job.begin(tables)? else {
        return Ok(());
    };
    kernel.decode_four(&mut lanes);
    end(lanes, at)
}

/// Decodes two streams together, for which a processor takes less time than for one after the other.
pub(super) fn decode_two(
    kernel: Kernel,
    [first, second]: &mut [Tables; 2],
    a: CodedStream<'_, '_>,
    b: CodedStream<'_, '_>,
) -> Result<(), PayloadError> {
    let (at_a, at_b) = (a.at, b.at);
    let (mut one, at) = match (a.begin(first)?, b.begin(second)?) {
        (Some(a), Some(b)) => {
            let swapped = b[0].is_short() && !a[0].is_short();
            let (first, second) = match swapped {
                true => ((b, at_b), (a, at_a)),
                false => ((a, at_a), (b, at_b)),
            };
            let (([a, b, c, d], at_first), ([e, f, g, h], at_second)) = (first, second);
            let mut lanes = [a, b, c, d, e, f, g, h];
            kernel.decode_eight(&mut lanes);
            let [a, b, c, d, e, f, g, h] = lanes;
            end([a, b, c, d], at_first)?;
            return end([e, f, g, h], at_second);
        }
        (Some(a), None) => (a, at_a),
        (None, Some(b)) => (b, at_b),
        (None, None) => return Ok(()),
    };
    kernel.decode_four(&mut one);
    end(one, at)
}

/// Decodes the last symbols of the stream at `at`.
fn end(lanes: [Lane<'_, '_, '_>; 4], at: usize) -> Result<(), PayloadError> {
    match lanes.into_iter().all(Lane::end) {
        true => Ok(()),
        false => Err(PayloadError::at(at, DAMAGED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of any length, whose longest codes have few bits or many.
    fn streams() -> Vec<Vec<u8>> {
        let lens = [16, 255, 256, 257, 300, 1023, 4096, 9001, 40_000];
        let spread = |len: usize, symbols: u32| {
            let mut state = 7 + len as u64;
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 40) as u32
            };
            // Low symbols are the most frequent.
            (0..len)
                .map(|_| ((next() % symbols) & (next() % symbols)) as u8)
                .collect()
        };
        lens.iter()
            .flat_map(|len| [2, 9, 60, 256].map(|symbols| spread(*len, symbols)))
            .collect()
    }

    fn coded(plain: &[u8]) -> Vec<u8> {
        let (mut room, mut memory) = (Vec::new(), vec![0; 2 * plain.len() + 400]);
        let counts = count(plain, 1);
        let coded = Coded::new(Kernel::Scalar, plain, &counts, false, &mut room);
        let mut out = Out::new(&mut memory);
        coded.put(&mut out);
        let len = out.len();
        memory.truncate(len);
        memory
    }

    /// Goal: two streams that are decoded together are those that they are alone, with every kernel, and a fault in one of them
    /// is found where that one is.
    #[test]
    fn streams_that_are_decoded_together_come_back() {
        let all: Vec<(Vec<u8>, Vec<u8>)> = streams()
            .into_iter()
            .map(|plain| (coded(&plain), plain))
            .collect();
        // Where the two begin in their payload: no stream is longer than what is between.
        const PLACES: [usize; 2] = [5, 100_000];
        let mut tables = [Tables::new(), Tables::new()];
        let mut both = |kernel, a: (&[u8], usize), b: (&[u8], usize)| {
            let (mut first, mut second) = (vec![0xee; a.1], vec![0xee; b.1]);
            let jobs = (
                CodedStream::new(a.0, PLACES[0], &mut first),
                CodedStream::new(b.0, PLACES[1], &mut second),
            );
            decode_two(kernel, &mut tables, jobs.0, jobs.1).map(|()| (first, second))
        };
        for kernel in Kernel::ALL.into_iter().filter(|k| k.is_available()) {
            for (a, plain_a) in &all {
                let mut alone = vec![0xee; plain_a.len()];
                let mut own = Tables::new();
                assert_eq!(
                    decode(kernel, &mut own, CodedStream::new(a, 0, &mut alone)),
                    Ok(())
                );
                assert!(alone == *plain_a, "{kernel:?} {}", plain_a.len());
                for (b, plain_b) in &all {
                    let (len_a, len_b) = (plain_a.len(), plain_b.len());
                    let (first, second) = both(kernel, (a, len_a), (b, len_b)).unwrap();
                    let same = first == *plain_a && second == *plain_b;
                    assert!(same, "{kernel:?} {len_a} {len_b}");
                    let (cut_a, cut_b) = (&a[..a.len() - 1], &b[..b.len() - 1]);
                    for (fault, cut_a, cut_b) in [(0, cut_a, &b[..]), (1, a, cut_b)] {
                        let got = both(kernel, (cut_a, len_a), (cut_b, len_b)).unwrap_err();
                        // One bit stream has its codes behind their lengths.
                        let is_its_own = match [len_a, len_b][fault] < FOUR_FROM {
                            true => {
                                (PLACES[fault]..PLACES[fault] + FOUR_FROM).contains(&got.offset)
                            }
                            false => got.offset == PLACES[fault],
                        };
                        assert!(is_its_own, "{kernel:?} {len_a} {len_b} {fault}: {got:?}");
                    }
                }
            }
        }
    }
}
