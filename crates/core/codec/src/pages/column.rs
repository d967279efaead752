//! Values of one kind: of one attribute, or of one field of headers, items and pointers.
//!
//! Values of one width:
//!
//! | form | bytes after it | content |
//! |---|---|---|
//! | 0 | | no values |
//! | 1 | stream | the values, one after the other |
//! | 2 | number, `width` streams | planes (`planes.rs`); the number's bits are the lanes that are differences |
//! | 3 | count n, n values, two streams | one byte for each value: its number in the list, or 255 and it is the next of the second stream |
//!
//! Values that each have a length are the two streams of their lengths (`heap.rs` says what is in them), and then:
//!
//! | form | bytes after it | content |
//! |---|---|---|
//! | 0 | | no value has a byte |
//! | 1 | stream | the values, one after the other |
//! | 2 | w, w streams | planes of values filled up with zeros to w bytes, 1 to 8 |
//! | 3 | count n, n lengths, n values, two streams | as form 3 above |
//!
//! Invariants
//! - A value of form 3 has the length that the low bytes of lengths say.
//!
//! Leaves to others: how a stream is coded (`stream.rs`).

use super::cursor::{Bytes, Cursor};
use super::huffman::entropy_of;
use super::out::Out;
use super::page::word_at;
use super::planes::{LANE, differences, join, split, sum};
use super::store::Store;
use super::stream::{Coder, Decoder, Pending, StreamHead};
use crate::PayloadError;

const NOTHING: u8 = 0;
const WHOLE: u8 = 1;
const PLANES: u8 = 2;
const LISTED: u8 = 3;

/// A list's number of a value that is not in it.
const OTHER: u8 = 255;
/// Values that are looked at to see whether a list is worth trying, and the most different ones among them.
const LOOKED_AT: usize = 128;
const DIFFERENT: usize = 40;
/// Slots of the table that finds a value in its list.
const SLOTS: usize = 4096;
/// The longest value in a list.
const LISTED_MAX: usize = 64;
/// The widest values that become planes.
pub(super) const PLANES_MAX: usize = 64;
/// The longest values with lengths of their own that become planes.
const SHORT: usize = 8;

/// Memory for the work on one column.
#[derive(Default)]
pub(super) struct Room {
    differences: Vec<u8>,
    planes: Vec<u8>,
    numbers: Vec<u8>,
    others: Store,
}

impl Room {
    pub(super) fn memory(&self) -> usize {
        let room = [&self.differences, &self.planes, &self.numbers];
        room.map(Vec::capacity).iter().sum::<usize>() + self.others.memory()
    }
}

/// Lengths and bytes of values that each have a length.
#[derive(Default)]
pub(super) struct Values {
    pub(super) bytes: Store,
    /// The low byte of each length.
    pub(super) low: Store,
    /// The rest of it, and how its header was.
    pub(super) high: Store,
}

impl Values {
    pub(super) fn memory(&self) -> usize {
        self.bytes.memory() + self.low.memory() + self.high.memory()
    }
}

fn enough(memory: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if memory.len() < len {
        memory.resize(len, 0);
    }
    &mut memory[..len]
}

/// Appends `values`, each of `width` bytes.
pub(super) fn put_fixed(
    coder: &mut Coder,
    room: &mut Room,
    values: &[u8],
    width: usize,
    out: &mut Out<'_>,
) {
    coder.begin_next();
    if values.is_empty() {
        return out.push(NOTHING);
    }
    if width == 1 {
        out.push(WHOLE);
        return coder.put(values, out);
    }
    if width > PLANES_MAX {
        out.push(WHOLE);
        return coder.put_text(values, out);
    }
    if (8..=16).contains(&width) && put_list(coder, room, values, Lengths::Same(width), out) {
        return;
    }
    let rows = values.len() / width;
    let (lanes, cost) = lanes_and_cost(values, width);
    if width > 8 && values.len() >= 16384 {
        let sample = &values[rows / 2 * width..];
        let sample = &sample[..sample.len().min(8192)];
        if coder.matched(cost, sample) * 8.0 * (width as f32) < 0.9 * cost {
            out.push(WHOLE);
            return coder.put_text(values, out);
        }
    }
    let values = if lanes == 0 {
        values
    } else {
        let room = enough(&mut room.differences, values.len());
        differences(values, width, lanes, room);
        room
    };
    let planes = enough(&mut room.planes, values.len());
    split(coder.kernel, values, width, planes);
    out.push(PLANES);
    out.number(lanes as usize);
    for plane in planes.chunks(rows) {
        coder.put(plane, out);
    }
}

/// Which lanes are better as differences, and about how many bits a value then has, by values in the middle.
fn lanes_and_cost(values: &[u8], width: usize) -> (u32, f32) {
    const SAMPLE: usize = 128;
    /// Bits of a value that differences have to save.
    const GAIN: f32 = 0.5;
    let rows = values.len() / width;
    let from = if rows > 600 { rows / 2 } else { 0 };
    let sample = &values[from * width..rows.min(from + SAMPLE) * width];
    if sample.is_empty() {
        return (0, 0.0);
    }
    let plane = |values: &[u8], at: usize| entropy_of(values[at..].iter().step_by(width));
    if !width.is_multiple_of(LANE) {
        return (0, (0..width).map(|at| plane(sample, at)).sum());
    }
    let mut different = vec![0; sample.len()];
    differences(sample, width, u32::MAX, &mut different);
    let different = if rows > 64 {
        &different[width..]
    } else {
        sample
    };
    let (mut lanes, mut cost) = (0, 0.0);
    for lane in 0..width / LANE {
        let bytes = lane * LANE..(lane + 1) * LANE;
        let as_is: f32 = bytes.clone().map(|at| plane(sample, at)).sum();
        let mut best = as_is;
        if rows > 64 && as_is > GAIN {
            let changed: f32 = bytes.map(|at| plane(different, at)).sum();
            if changed < as_is - GAIN {
                lanes |= 1 << lane;
                best = changed;
            }
        }
        cost += best;
    }
    (lanes, cost)
}

/// Appends values with their lengths.
pub(super) fn put_values(coder: &mut Coder, room: &mut Room, values: &Values, out: &mut Out<'_>) {
    let (bytes, low, high) = (values.bytes.used(), values.low.used(), values.high.used());
    coder.begin_next();
    coder.put(low, out);
    coder.put(high, out);
    if bytes.is_empty() {
        return out.push(NOTHING);
    }
    let short = high.iter().all(|high| *high == 0);
    let longest = usize::from(coder.kernel.highest(low));
    let rows = low.len();
    if short && (1..=SHORT).contains(&longest) && bytes.len() == rows * longest && longest < 3 {
        // All have the same length, and a list would cost more than the one or two planes.
        out.push(PLANES);
        out.push(longest as u8);
        let planes = enough(&mut room.planes, bytes.len());
        split(coder.kernel, bytes, longest, planes);
        planes.chunks(rows).for_each(|plane| coder.put(plane, out));
        return;
    }
    if short && longest <= LISTED_MAX && put_list(coder, room, bytes, Lengths::Each(low), out) {
        return;
    }
    // Filled up they must not be so long that a decoder refuses them (`EXPANSION_MAX`).
    if short && longest <= SHORT && longest * rows <= 4 * (bytes.len() + rows) {
        let filled = enough(&mut room.differences, 8 * rows);
        let mut at = 0;
        for (value, len) in filled.as_chunks_mut::<8>().0.iter_mut().zip(low) {
            let len = usize::from(*len);
            *value = match bytes.get(at..at + 8) {
                Some(word) => {
                    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    (word & lowest_bytes(len)).to_le_bytes()
                }
                None => {
                    let mut value = [0; 8];
                    value[..len].copy_from_slice(&bytes[at..at + len]);
                    value
                }
            };
            at += len;
        }
        let planes = enough(&mut room.planes, 8 * rows);
        split(coder.kernel, filled, 8, planes);
        out.push(PLANES);
        out.push(longest as u8);
        for plane in planes.chunks(rows).take(longest) {
            coder.put(plane, out);
        }
        return;
    }
    out.push(WHOLE);
    coder.put_text(bytes, out);
}

/// The lengths of the values of a column.
#[derive(Clone, Copy)]
enum Lengths<'a> {
    Same(usize),
    Each(&'a [u8]),
}

impl Lengths<'_> {
    fn rows(self, bytes: usize) -> usize {
        match self {
            Lengths::Same(width) => bytes / width,
            Lengths::Each(lengths) => lengths.len(),
        }
    }

    fn of(self, row: usize) -> usize {
        match self {
            Lengths::Same(width) => width,
            Lengths::Each(lengths) => usize::from(lengths[row]),
        }
    }
}

/// A value of a list: its length and its first and last 16 bytes in words, which is the whole of one of up to 32 bytes. Of
/// one of up to 16, the two in the middle are zeros.
#[derive(Clone, Copy)]
struct Key {
    words: [u64; 4],
    len: usize,
}

impl Key {
    const WHOLE: usize = 32;

    /// The key of `len` bytes from `at` on.
    #[inline(always)]
    fn of(bytes: &[u8], at: usize, len: usize) -> Key {
        let first = match bytes.get(at..at + 8) {
            Some(word) => word_at(word, 0) & lowest_bytes(len),
            None => lowest(&bytes[at..at + len]),
        };
        let mut words = [first, 0, 0, first];
        if len > 8 {
            words[3] = word_at(bytes, at + len - 8);
        }
        if len > 16 {
            words[1] = word_at(bytes, at + 8);
            words[2] = word_at(bytes, at + len - 16);
        }
        Key { words, len }
    }

    /// Word by word: an array is compared in memory, where it was just written.
    #[inline(always)]
    fn is(&self, other: &Key) -> bool {
        let [a, b, c, d] = self.words;
        let [e, f, g, h] = other.words;
        (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) | (self.len ^ other.len) as u64 == 0
    }

    fn slot(self) -> usize {
        let [first, second, _, last] = self.words;
        let mixed = (first ^ second ^ self.len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ last.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (mixed >> 52) as usize
    }
}

/// A mask of the lowest `len` bytes of a word, at most eight.
#[inline(always)]
fn lowest_bytes(len: usize) -> u64 {
    !u64::MAX.checked_shl(8 * len as u32).unwrap_or(0)
}

fn lowest(value: &[u8]) -> u64 {
    match value.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => value
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Appends the values as numbers in a list of different ones, if there are few. Nothing is appended otherwise.
fn put_list(
    coder: &mut Coder,
    room: &mut Room,
    bytes: &[u8],
    lengths: Lengths<'_>,
    out: &mut Out<'_>,
) -> bool {
    let rows = lengths.rows(bytes.len());
    if rows < 256 || !repeats(bytes, lengths, rows) {
        return false;
    }
    let mut slots = [OTHER; SLOTS];
    let mut list: Vec<&[u8]> = Vec::with_capacity(usize::from(OTHER));
    let mut keys: Vec<Key> = Vec::with_capacity(usize::from(OTHER));
    let numbers = enough(&mut room.numbers, rows);
    room.others.clear();
    let mut at = 0;
    for (row, number) in numbers.iter_mut().enumerate() {
        let len = lengths.of(row);
        let value = &bytes[at..at + len];
        let key = Key::of(bytes, at, len);
        at += len;
        let slot = &mut slots[key.slot()];
        let known = keys.get(usize::from(*slot)).is_some_and(|k| k.is(&key));
        if known && (len <= Key::WHOLE || list[usize::from(*slot)] == value) {
            *number = *slot;
        } else if *slot == OTHER && list.len() < usize::from(OTHER) {
            *slot = list.len() as u8;
            *number = *slot;
            list.push(value);
            keys.push(key);
        } else {
            *number = OTHER;
            room.others.extend(value);
            if room.others.len() * 8 > at + 65536 {
                return false;
            }
        }
    }
    out.push(LISTED);
    out.push(list.len() as u8);
    if let Lengths::Each(_) = lengths {
        list.iter().for_each(|value| out.push(value.len() as u8));
    }
    for value in &list {
        out.extend(value);
    }
    coder.put(numbers, out);
    coder.put(room.others.used(), out);
    true
}

/// Whether values that are spread over the column have few different ones among them.
fn repeats(bytes: &[u8], lengths: Lengths<'_>, rows: usize) -> bool {
    let mut seen: Vec<u64> = Vec::with_capacity(DIFFERENT);
    let step = match lengths {
        Lengths::Same(_) => rows / LOOKED_AT,
        Lengths::Each(_) => 1,
    };
    let mut at = 0;
    for row in 0..LOOKED_AT {
        let len = lengths.of(row * step);
        if let Lengths::Same(width) = lengths {
            at = row * step * width;
        }
        let value = &bytes[at..at + len];
        at += len;
        let last = lowest(&value[value.len().saturating_sub(8)..]);
        let mixed = lowest(value).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ last ^ len as u64;
        if !seen.contains(&mixed) {
            if seen.len() == DIFFERENT {
                return false;
            }
            seen.push(mixed);
        }
    }
    true
}

/// Memory for decoding one column.
#[derive(Default)]
pub(super) struct Decoded {
    stream: Bytes,
    planes: Bytes,
    numbers: Bytes,
}

impl Decoded {
    pub(super) fn memory(&self) -> usize {
        let room = [&self.stream, &self.planes, &self.numbers];
        room.map(Bytes::memory).iter().sum()
    }
}

/// [`get_fixed`] that puts nothing off.
pub(super) fn get_fixed_now(
    decoder: &mut Decoder,
    cursor: &mut Cursor<'_>,
    room: &mut Decoded,
    width: usize,
    most: usize,
    values: &mut Bytes,
) -> Result<(), PayloadError> {
    decoder
        .together(|decoder, pending| get_fixed(decoder, cursor, room, width, most, values, pending))
}

/// Replaces `values` by the next column of values of `width` bytes, which are no more than `most`. Those that are one stream may
/// be decoded later, with what is pending.
pub(super) fn get_fixed<'a, 'p>(
    decoder: &mut Decoder,
    cursor: &mut Cursor<'a>,
    room: &mut Decoded,
    width: usize,
    most: usize,
    values: &'p mut Bytes,
    pending: &mut Pending<'a, 'p>,
) -> Result<(), PayloadError> {
    const MORE: &str = "a column has more values than its pages hold";
    let at = cursor.at();
    match cursor.byte()? {
        NOTHING => values.clear(),
        WHOLE => {
            let head = StreamHead::read(cursor)?;
            if head.len / width > most {
                return Err(PayloadError::at(at, MORE));
            }
            if !head.len.is_multiple_of(width) {
                return Err(PayloadError::at(at, "a column ends within a value"));
            }
            cursor.sized(values, head.len)?;
            decoder.body(head, cursor, values, pending)?;
        }
        PLANES if width <= PLANES_MAX => {
            let lanes = cursor.number()? as u32;
            let rows = get_planes(decoder, cursor, room, (width, width), most, pending)?;
            cursor.sized(values, rows * width)?;
            join(decoder.kernel, &room.planes, width, values);
            sum(values, width, lanes);
        }
        LISTED => {
            let count = usize::from(cursor.byte()?);
            let list = cursor.take(count * width)?;
            decoder.get_two(cursor, &mut room.numbers, &mut room.stream, pending)?;
            if room.numbers.len() > most {
                return Err(PayloadError::at(at, MORE));
            }
            let list: Vec<&[u8]> = list.chunks(width).collect();
            let total = room.numbers.len() * width;
            cursor.charge(total)?;
            cursor.sized(values, total + LISTED_ROOM)?;
            let (numbers, others) = (&room.numbers[..], &room.stream[..]);
            let same = std::iter::repeat(width);
            match width {
                0..=16 => unlist::<16>(&list, numbers, same, others, total, values),
                17..=32 => unlist::<32>(&list, numbers, same, others, total, values),
                _ => unlist::<256>(&list, numbers, same, others, total, values),
            }
            .ok_or(PayloadError::at(at, "a value is not in its list"))?;
        }
        _ => {
            return Err(PayloadError::at(
                at,
                "a column has a form that is not known",
            ));
        }
    }
    Ok(())
}

/// Reads `count` planes, after which there is room for further ones, up to `places` in all; returns the bytes of each, which
/// are no more than `most`.
fn get_planes(
    decoder: &mut Decoder,
    cursor: &mut Cursor<'_>,
    room: &mut Decoded,
    (count, places): (usize, usize),
    most: usize,
    other: &mut Pending<'_, '_>,
) -> Result<usize, PayloadError> {
    let at = cursor.at();
    let first = StreamHead::read(cursor)?;
    let rows = first.len;
    if rows > most {
        return Err(PayloadError::at(
            at,
            "planes have more values than their pages hold",
        ));
    }
    cursor.sized(&mut room.planes, rows * places)?;
    let planes = &mut room.planes[..];
    decoder.together_with(other, |decoder, pending| {
        let mut rest = planes;
        for i in 0..count {
            let at = cursor.at();
            let head = match i {
                0 => first,
                _ => StreamHead::read(cursor)?,
            };
            if head.len != rows {
                return Err(PayloadError::at(at, "planes have different lengths"));
            }
            let (plane, after) = rest.split_at_mut(rows);
            decoder.body(head, cursor, plane, pending)?;
            rest = after;
        }
        rest.fill(0);
        Ok(())
    })?;
    Ok(rows)
}

/// The next column of values that each have a length.
#[derive(Default)]
pub(super) struct Read {
    pub(super) bytes: Bytes,
    pub(super) low: Bytes,
    pub(super) high: Bytes,
}

impl Read {
    pub(super) fn memory(&self) -> usize {
        self.bytes.memory() + self.low.memory() + self.high.memory()
    }
}

/// Replaces `values` by the next column of values with lengths, which are no more than `most`. Bytes that are one stream may
/// be decoded later, with what is pending.
pub(super) fn get_values<'a, 'p>(
    decoder: &mut Decoder,
    cursor: &mut Cursor<'a>,
    room: &mut Decoded,
    most: usize,
    values: &'p mut Read,
    pending: &mut Pending<'a, 'p>,
) -> Result<(), PayloadError> {
    decoder.get_two(cursor, &mut values.low, &mut values.high, pending)?;
    let at = cursor.at();
    let wrong = |what| PayloadError::at(at, what);
    if values.low.len() != values.high.len() {
        return Err(wrong("lengths have lost a half"));
    }
    if values.low.len() > most {
        return Err(wrong("a column has more values than there are tuples"));
    }
    match cursor.byte()? {
        NOTHING => values.bytes.clear(),
        WHOLE => decoder.put_off(cursor, &mut values.bytes, pending)?,
        PLANES => {
            let width = usize::from(cursor.byte()?);
            if !(1..=SHORT).contains(&width) {
                return Err(wrong("values in planes have an impossible width"));
            }
            let rows = get_planes(decoder, cursor, room, (width, SHORT), most, pending)?;
            if rows != values.low.len() || values.low.iter().any(|len| usize::from(*len) > width) {
                return Err(wrong("planes and lengths do not belong together"));
            }
            cursor.sized(&mut room.numbers, rows * SHORT)?;
            join(decoder.kernel, &room.planes, SHORT, &mut room.numbers);
            let total = values.low.iter().map(|len| usize::from(*len)).sum();
            cursor.sized(&mut values.bytes, total + SHORT)?;
            let (mut at, out) = (0, &mut values.bytes[..]);
            for (value, len) in room.numbers.as_chunks::<SHORT>().0.iter().zip(&*values.low) {
                out[at..at + SHORT].copy_from_slice(value);
                at += usize::from(*len);
            }
            values.bytes.truncate(total);
        }
        LISTED => {
            let count = usize::from(cursor.byte()?);
            let lengths = cursor.take(count)?;
            let mut list = Vec::with_capacity(count);
            for len in lengths {
                list.push(cursor.take(usize::from(*len))?);
            }
            decoder.get_two(cursor, &mut room.numbers, &mut room.stream, pending)?;
            if room.numbers.len() != values.low.len() {
                return Err(wrong("a list and its lengths do not belong together"));
            }
            let total = values.low.iter().map(|len| usize::from(*len)).sum();
            cursor.charge(total)?;
            cursor.sized(&mut values.bytes, total + LISTED_ROOM)?;
            let longest = list.iter().map(|value| value.len()).max().unwrap_or(0);
            let out = &mut values.bytes;
            let (numbers, others) = (&room.numbers[..], &room.stream[..]);
            let low = values.low.iter().map(|len| usize::from(*len));
            match longest {
                0..=8 => unlist::<8>(&list, numbers, low, others, total, out),
                9..=32 => unlist::<32>(&list, numbers, low, others, total, out),
                _ => unlist::<256>(&list, numbers, low, others, total, out),
            }
            .ok_or(wrong("a value is not in its list"))?;
        }
        _ => return Err(wrong("a column has a form that is not known")),
    }
    Ok(())
}

/// The longest value of a list that is copied as a piece.
const LISTED_ROOM: usize = 256;

/// Writes `total` bytes of values to `out`, each by its number in `list` or from `others`. A value of the list that is no
/// longer than `N` is copied as `N` bytes. `out` has room for [`LISTED_ROOM`] more.
fn unlist<const N: usize>(
    list: &[&[u8]],
    numbers: &[u8],
    lengths: impl Iterator<Item = usize>,
    mut others: &[u8],
    total: usize,
    out: &mut Bytes,
) -> Option<()> {
    let mut padded = vec![[0; N]; list.len()];
    for (padded, value) in padded.iter_mut().zip(list) {
        let len = value.len().min(N);
        padded[..len].copy_from_slice(&value[..len]);
    }
    let (mut at, bytes) = (0, &mut out[..]);
    for (number, len) in numbers.iter().zip(lengths) {
        let number = usize::from(*number);
        match padded.get(number) {
            Some(value) if list[number].len() == len && len <= N => {
                bytes[at..at + N].copy_from_slice(value);
            }
            Some(_) if list[number].len() == len => {
                bytes[at..at + len].copy_from_slice(list[number]);
            }
            None if number == usize::from(OTHER) => {
                let (value, rest) = others.split_at_checked(len)?;
                bytes[at..at + len].copy_from_slice(value);
                others = rest;
            }
            _ => return None,
        }
        at += len;
    }
    out.truncate(total);
    others.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use longshore_kit::Random;

    use super::super::stream::HUFFMAN;
    use super::*;
    use crate::Level;

    /// Addresses as an index of texts has them: `width` bytes each, cut or filled with zeros.
    fn addresses(random: &mut Random, width: usize, count: usize) -> Vec<u8> {
        let streets = [
            "Restore", "Archive", "Harbour", "Segment", "Quay", "Timeline",
        ];
        let kinds = ["Street", "Road", "Lane", "Square"];
        let mut values = Vec::new();
        for _ in 0..count {
            let mut pick = |all: &[&str]| all[random.below(all.len() as u64) as usize].to_owned();
            let (street, kind, town) = (pick(&streets), pick(&kinds), pick(&streets));
            let number = random.below(1000);
            let text = format!("{number} {street} {kind}, {town}");
            values.extend(text.bytes().chain(std::iter::repeat(0)).take(width));
        }
        values
    }

    /// Goal: a column is what was written, also where it is one stream of codes, and whatever the memory held before.
    #[test]
    fn a_column_that_is_one_stream_is_decoded_when_it_is_asked_for() {
        let mut is_of_codes = 0;
        for seed in 0..30 {
            let mut random = Random(seed);
            let width = [16, 24, 32, 40, 64][seed as usize % 5];
            let values = match seed % 3 {
                // Codes gain, and nothing repeats.
                0 => (0..width * 2000)
                    .map(|_| b'a' + (random.next() & random.next() & 15) as u8)
                    .collect(),
                _ => addresses(&mut random, width, 2000),
            };
            let mut memory = vec![0; 2 * values.len() + 1000];
            for is_by_hand in [false, true] {
                let mut out = Out::new(&mut memory);
                let (mut coder, mut room) = (Coder::new(Level::Low), Room::default());
                match is_by_hand {
                    false => put_fixed(&mut coder, &mut room, &values, width, &mut out),
                    true => {
                        coder.begin_next();
                        out.push(WHOLE);
                        coder.put(&values, &mut out);
                    }
                }
                let len = out.len();
                is_of_codes += usize::from(memory[..2] == [WHOLE, HUFFMAN]);
                let mut cursor = Cursor::new(&memory[..len], 8 * values.len(), 1 << 30);
                let mut read = Bytes::default();
                cursor.sized(&mut read, values.len()).unwrap();
                read.fill(0xee);
                let (mut decoder, mut decoded) = (Decoder::new(), Decoded::default());
                let most = values.len() / width;
                let got = get_fixed_now(
                    &mut decoder,
                    &mut cursor,
                    &mut decoded,
                    width,
                    most,
                    &mut read,
                );
                assert_eq!(got, Ok(()), "{seed} {is_by_hand}");
                assert!(read[..] == values[..], "{seed} {is_by_hand}");
            }
        }
        assert!(is_of_codes >= 10, "{is_of_codes}");
    }
}
