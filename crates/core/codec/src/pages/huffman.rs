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

use super::coding::{BITS_MAX, CodeBook, STREAM_SLACK, encode_one, first_codes};
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

fn get_lengths(cursor: &mut Cursor<'_>) -> Result<[u8; 256], PayloadError> {
    let count = usize::from(cursor.byte()?) + 1;
    let mut lengths = [0; 256];
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
        lengths[at..at + run].fill(length);
        at += run;
    }
    if half.is_some_and(|nibble| nibble != 0) {
        return Err(cursor.error("a nibble after the code lengths is not zero"));
    }
    let space: usize = lengths
        .iter()
        .filter(|l| **l > 0)
        .map(|l| 1 << (BITS_MAX - usize::from(*l)))
        .sum();
    if space != 1 << BITS_MAX {
        return Err(cursor.error("code lengths do not fill the code space"));
    }
    Ok(lengths)
}

/// For each [`BITS_MAX`] bits: the length of the code, and eight bits above it the symbol.
pub(super) type Singles = [u16; 1 << BITS_MAX];

/// Memory for decoding.
pub(super) struct Tables {
    table: Box<Singles>,
    pairs: Box<Pairs>,
}

impl Tables {
    pub(super) fn new() -> Tables {
        Tables {
            table: Box::new([0; 1 << BITS_MAX]),
            pairs: Box::new([0; 1 << BITS_MAX]),
        }
    }
}

/// Fills the table; returns the number of bits that choose an entry: those of the longest code, or `all`.
fn fill(lengths: &[u8; 256], all: bool, table: &mut Singles) -> u32 {
    let longest = lengths
        .iter()
        .fold(0, |longest, length| longest.max(*length));
    let bits = if all { BITS_MAX } else { usize::from(longest) };
    let mut next = first_codes(lengths);
    for (symbol, length) in lengths.iter().enumerate() {
        let length = usize::from(*length);
        if length == 0 {
            continue;
        }
        let span = 1 << (bits - length);
        let start = usize::from(next[length]) * span;
        next[length] += 1;
        table[start..start + span].fill(length as u16 | (symbol as u16) << 8);
    }
    bits as u32
}

/// Decodes `plain.len()` bytes from what is left of `cursor`, to its end.
pub(super) fn decode(
    mut cursor: Cursor<'_>,
    tables: &mut Tables,
    plain: &mut [u8],
) -> Result<(), PayloadError> {
    let Tables { table, pairs } = tables;
    let lengths = get_lengths(&mut cursor)?;
    let paired = plain.len() >= PAIRED_FROM;
    let bits = fill(&lengths, paired, table);
    let segment = segment_len(plain.len());
    let damaged = |at| PayloadError::at(at, "codes do not end where their stream ends");
    if plain.len() < FOUR_FROM {
        let at = cursor.at();
        let stream = cursor.take(cursor.rest())?;
        let mut reader = Bits::new(stream);
        reader.decode(table, bits, plain);
        return reader.ended().then_some(()).ok_or(damaged(at));
    }
    let sizes = [cursor.number()?, cursor.number()?, cursor.number()?];
    let at = cursor.at();
    let mut streams = [&[][..]; 4];
    for (stream, size) in streams.iter_mut().zip(sizes) {
        *stream = cursor.take(size)?;
    }
    streams[3] = cursor.take(cursor.rest())?;
    let (a, rest) = plain.split_at_mut(segment);
    let (b, rest) = rest.split_at_mut(segment);
    let (c, d) = rest.split_at_mut(segment);
    let mut readers = streams.map(Bits::new);
    if paired {
        fill_pairs(table, pairs);
        decode_four_by_pairs(&mut readers, table, pairs, [a, b, c, d]);
    } else {
        decode_four(&mut readers, table, bits, [a, b, c, d]);
    }
    match readers.iter().all(Bits::ended) {
        true => Ok(()),
        false => Err(damaged(at)),
    }
}

/// Symbols, or pairs of them, between two refills: their codes fit the bits that a refill leaves.
const STEP: usize = 5;

fn decode_four(readers: &mut [Bits<'_>; 4], table: &Singles, bits: u32, plain: [&mut [u8]; 4]) {
    let [a, b, c, d] = plain;
    let mut done = 0;
    {
        let [ra, rb, rc, rd] = readers;
        let steps = a.as_chunks_mut::<STEP>().0.iter_mut();
        let steps = steps.zip(b.as_chunks_mut::<STEP>().0);
        let steps = steps.zip(c.as_chunks_mut::<STEP>().0);
        let steps = steps.zip(d.as_chunks_mut::<STEP>().0);
        for (((a, b), c), d) in steps {
            if !(ra.refill() && rb.refill() && rc.refill() && rd.refill()) {
                break;
            }
            for i in 0..STEP {
                a[i] = ra.symbol(table, bits);
                b[i] = rb.symbol(table, bits);
                c[i] = rc.symbol(table, bits);
                d[i] = rd.symbol(table, bits);
            }
            done += STEP;
        }
    }
    for (reader, plain) in readers.iter_mut().zip([a, b, c, d]) {
        reader.decode(table, bits, &mut plain[done..]);
    }
}

/// For each [`BITS_MAX`] bits, from the low byte to the high one: the bits of one code or two, the one or two symbols, and
/// how many they are.
pub(super) type Pairs = [u32; 1 << BITS_MAX];

/// Streams from this length on are worth a table of pairs.
const PAIRED_FROM: usize = 16 << 10;

/// `table` is filled for [`BITS_MAX`] bits.
fn fill_pairs(table: &Singles, pairs: &mut Pairs) {
    for (index, pair) in pairs.iter_mut().enumerate() {
        let [first_len, first] = table[index].to_le_bytes();
        let second = index << first_len & ((1 << BITS_MAX) - 1);
        let [second_len, second] = table[second].to_le_bytes();
        let len = first_len + second_len;
        *pair = u32::from_le_bytes(match usize::from(len) <= BITS_MAX {
            true => [len, first, second, 2],
            false => [first_len, first, 0, 1],
        });
    }
}

fn decode_four_by_pairs(
    readers: &mut [Bits<'_>; 4],
    table: &Singles,
    pairs: &Pairs,
    mut plain: [&mut [u8]; 4],
) {
    const ROOM: usize = 2 * STEP;
    let mut at = [0; 4];
    {
        let [a, b, c, d] = &mut plain;
        let [ra, rb, rc, rd] = readers;
        let [ia, ib, ic, id] = &mut at;
        while let (Some(a), Some(b), Some(c), Some(d)) = (
            a.get_mut(*ia..*ia + ROOM),
            b.get_mut(*ib..*ib + ROOM),
            c.get_mut(*ic..*ic + ROOM),
            d.get_mut(*id..*id + ROOM),
        ) {
            if !(ra.refill() && rb.refill() && rc.refill() && rd.refill()) {
                break;
            }
            let mut used = [0; 4];
            for _ in 0..STEP {
                ra.pair(pairs, a, &mut used[0]);
                rb.pair(pairs, b, &mut used[1]);
                rc.pair(pairs, c, &mut used[2]);
                rd.pair(pairs, d, &mut used[3]);
            }
            *ia += used[0];
            *ib += used[1];
            *ic += used[2];
            *id += used[3];
        }
    }
    for ((reader, plain), mut at) in readers.iter_mut().zip(plain).zip(at) {
        while let Some(room) = plain.get_mut(at..at + ROOM)
            && reader.refill()
        {
            let mut used = 0;
            for _ in 0..STEP {
                reader.pair(pairs, room, &mut used);
            }
            at += used;
        }
        reader.decode(table, BITS_MAX as u32, &mut plain[at..]);
    }
}

/// Bits of one stream, the highest bit of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    /// The byte that the next refill reads first. Beyond the end, zeros are read.
    at: usize,
    /// The next bits, from the top.
    word: u64,
    /// How many bits of `word` are known.
    known: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits {
            bytes,
            at: 0,
            word: 0,
            known: 0,
        }
    }

    /// Makes at least 56 bits known. False within the last eight bytes, where nothing is done.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Some(next) = self.bytes.get(self.at..self.at + 8) else {
            return false;
        };
        let next: [u8; 8] = next.try_into().expect("eight bytes");
        self.word |= u64::from_be_bytes(next) >> self.known;
        self.at += (63 - self.known as usize) >> 3;
        self.known |= 56;
        true
    }

    #[inline(always)]
    fn symbol(&mut self, table: &Singles, bits: u32) -> u8 {
        let entry = table[(self.word >> (64 - bits)) as usize & ((1 << BITS_MAX) - 1)];
        self.word <<= entry & 63;
        self.known = self.known.wrapping_sub(u32::from(entry & 63));
        (entry >> 8) as u8
    }

    #[inline(always)]
    fn pair(&mut self, pairs: &Pairs, room: &mut [u8], used: &mut usize) {
        let pair = pairs[(self.word >> (64 - BITS_MAX)) as usize & ((1 << BITS_MAX) - 1)];
        self.word <<= pair & 63;
        self.known = self.known.wrapping_sub(pair & 63);
        let [_, first, second, count] = pair.to_le_bytes();
        room[*used..*used + 2].copy_from_slice(&[first, second]);
        *used += usize::from(count);
    }

    fn decode(&mut self, table: &Singles, bits: u32, plain: &mut [u8]) {
        for symbol in plain {
            while self.known < BITS_MAX as u32 {
                let byte = self.bytes.get(self.at).copied().unwrap_or(0);
                self.word |= u64::from(byte) << (56 - self.known);
                self.at += 1;
                self.known += 8;
            }
            *symbol = self.symbol(table, bits);
        }
    }

    /// Whether what was read ends in the last byte, and the bits after it are zeros.
    fn ended(&self) -> bool {
        let read = 8 * self.at - self.known as usize;
        read.div_ceil(8) == self.bytes.len() && self.word == 0
    }
}
