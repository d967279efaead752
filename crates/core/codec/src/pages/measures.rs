//! Integers and real numbers of one column of SQLite's records.
//!
//! Integers:
//!
//! | width | bytes after it | content |
//! |---|---|---|
//! | 0 | | no integers |
//! | 1, 2, 4, 8 | column of so many bytes | two's complement, the lowest byte first |
//!
//! Real numbers:
//!
//! | form | bytes after it | content |
//! |---|---|---|
//! | 0 | | none |
//! | 1 | column of 8 bytes | the bits of each, the lowest byte first |
//! | 2 + e | stream, integers, column of 8 bytes | a byte for each: 0, it is the next of the integers divided by 10^e; 1, it is the next of the column |
//!
//! Measured values have few decimal places most often. As a number of hundredths, for example, they are short, and near to each
//! other if they were before.
//!
//! Invariants
//! - A division rounds as IEEE 754 says, to the nearest even, so that every processor gives the same bits.
//!
//! Leaves to others: columns of values of one width (`column.rs`).

use super::column::{Decoded, Room, get_fixed, get_fixed_now, put_fixed};
use super::cursor::{Bytes, Cursor};
use super::heap::Taken;
use super::out::Out;
use super::store::Store;
use super::stream::{Coder, Decoder, Pending};
use crate::PayloadError;

const NOTHING: u8 = 0;
const WHOLE: u8 = 1;
const DECIMAL: u8 = 2;

/// 10 to the power of each number of decimal places.
const POWERS: [f64; 9] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// Integers up to here are real numbers without rounding.
const EXACT: f64 = (1_u64 << 53) as f64;

/// Memory for the work on one column.
#[derive(Default)]
pub(super) struct Scratch {
    narrow: Vec<u8>,
    flags: Store,
    decimals: Store,
    others: Store,
}

impl Scratch {
    pub(super) fn memory(&self) -> usize {
        let stores = [&self.flags, &self.decimals, &self.others].map(Store::memory);
        self.narrow.capacity() + stores.iter().sum::<usize>()
    }

    pub(super) fn narrow(&mut self) -> &mut Vec<u8> {
        &mut self.narrow
    }
}

/// Bytes that hold all integers of these magnitudes and a sign.
pub(super) fn width_of(magnitudes: u64) -> usize {
    match 65 - magnitudes.leading_zeros() {
        ..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

/// Appends integers of eight bytes each.
pub(super) fn put_integers(
    coder: &mut Coder,
    room: &mut Room,
    narrow: &mut Vec<u8>,
    integers: &[u8],
    magnitudes: u64,
    out: &mut Out<'_>,
) {
    if integers.is_empty() {
        coder.begin_next();
        return out.push(NOTHING);
    }
    let width = width_of(magnitudes);
    out.push(width as u8);
    let integers = match width {
        1 => narrowed::<1>(integers, narrow),
        2 => narrowed::<2>(integers, narrow),
        4 => narrowed::<4>(integers, narrow),
        _ => integers,
    };
    put_fixed(coder, room, integers, width, out);
}

/// The lowest `N` bytes of each.
fn narrowed<'a, const N: usize>(integers: &[u8], narrow: &'a mut Vec<u8>) -> &'a [u8] {
    let integers = integers.as_chunks::<8>().0;
    let len = integers.len() * N;
    if narrow.len() < len {
        narrow.resize(len, 0);
    }
    let narrow = &mut narrow[..len];
    for (out, integer) in narrow.as_chunks_mut::<N>().0.iter_mut().zip(integers) {
        out.copy_from_slice(&integer[..N]);
    }
    narrow
}

/// The integer that gives `real` when it is divided by `power`.
#[inline(always)]
fn decimal(real: f64, power: f64) -> Option<i64> {
    let scaled = real * power;
    if !(-EXACT..=EXACT).contains(&scaled) {
        return None;
    }
    let integer = scaled.round_ties_even() as i64;
    ((integer as f64 / power).to_bits() == real.to_bits()).then_some(integer)
}

/// The number of decimal places that most of these reals have.
fn places(reals: &[[u8; 8]]) -> Option<usize> {
    const LOOKED_AT: usize = 64;
    let step = reals.len().div_ceil(LOOKED_AT).max(1);
    let sample = reals
        .iter()
        .step_by(step)
        .map(|real| f64::from_le_bytes(*real));
    let looked_at = sample.len();
    let exact = |power: f64| {
        sample
            .clone()
            .filter(|real| decimal(*real, power).is_some())
            .count()
    };
    let mut best = (0, 0);
    for (places, power) in POWERS.iter().enumerate() {
        let count = exact(*power);
        if count > best.0 + looked_at / 16 {
            best = (count, places);
        }
    }
    (best.0 * 4 > looked_at * 3).then_some(best.1)
}

/// Appends real numbers, eight bytes each.
pub(super) fn put_reals(
    coder: &mut Coder,
    room: &mut Room,
    scratch: &mut Scratch,
    reals: &[u8],
    out: &mut Out<'_>,
) {
    let reals_each = reals.as_chunks::<8>().0;
    let places = places(reals_each);
    let (true, Some(places)) = (!reals.is_empty(), places) else {
        out.push(if reals.is_empty() { NOTHING } else { WHOLE });
        match reals.is_empty() {
            true => coder.begin_next(),
            false => put_fixed(coder, room, reals, 8, out),
        }
        return coder.begin_next();
    };
    let Scratch {
        narrow,
        flags,
        decimals,
        others,
    } = scratch;
    for store in [&mut *flags, decimals, others] {
        store.clear();
    }
    let mut magnitudes = 0;
    let count = reals_each.len();
    let power = POWERS[places];
    for (real, flag) in reals_each.iter().zip(&mut flags.room(count)[..count]) {
        match decimal(f64::from_le_bytes(*real), power) {
            Some(integer) => {
                *flag = 0;
                magnitudes |= (integer ^ (integer >> 63)) as u64;
                decimals.push(integer.to_le_bytes());
            }
            None => {
                *flag = 1;
                others.push(*real);
            }
        }
    }
    flags.advance(count);
    out.push(DECIMAL + places as u8);
    coder.put(flags.used(), out);
    put_integers(coder, room, narrow, decimals.used(), magnitudes, out);
    put_fixed(coder, room, others.used(), 8, out);
}

/// Integers of a column, and how far they are used.
#[derive(Default)]
pub(super) struct Integers {
    width: usize,
    taken: Taken,
}

impl Integers {
    pub(super) fn memory(&self) -> usize {
        self.taken.memory()
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.taken.is_used_up()
    }

    /// Reads the next integers. Codes may be decoded later, with what is pending.
    pub(super) fn read<'a, 'p>(
        &'p mut self,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'a>,
        room: &mut Decoded,
        most: usize,
        pending: &mut Pending<'a, 'p>,
    ) -> Result<(), PayloadError> {
        self.taken.rewind();
        let bytes = &mut self.taken.bytes;
        let width = usize::from(cursor.byte()?);
        self.width = width;
        match width {
            0 => bytes.clear(),
            1 | 2 | 4 | 8 => get_fixed(decoder, cursor, room, width, most, bytes, pending)?,
            _ => return Err(cursor.error("integers have an impossible width")),
        }
        Ok(())
    }

    /// Bytes of each.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The next `count` of them.
    pub(super) fn take(&mut self, count: usize) -> Option<&[u8]> {
        self.taken.take(count * self.width)
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<i64> {
        // Without a width there are no bytes.
        Some(match self.width {
            1 => i64::from(self.taken.take(1)?[0] as i8),
            2 => i64::from(i16::from_le_bytes(self.taken.take(2)?.try_into().ok()?)),
            4 => i64::from(i32::from_le_bytes(self.taken.take(4)?.try_into().ok()?)),
            8 => i64::from_le_bytes(self.taken.take(8)?.try_into().ok()?),
            _ => return None,
        })
    }
}

/// Reads the next real numbers into `reals`, eight bytes each and at most `most`.
pub(super) fn get_reals(
    decoder: &mut Decoder,
    cursor: &mut Cursor<'_>,
    room: &mut Decoded,
    read: &mut RealsRead,
    most: usize,
    reals: &mut Bytes,
) -> Result<(), PayloadError> {
    let at = cursor.at();
    let places = match cursor.byte()? {
        NOTHING => {
            reals.clear();
            return Ok(());
        }
        WHOLE => return get_fixed_now(decoder, cursor, room, 8, most, reals),
        form => usize::from(form - DECIMAL),
    };
    let Some(power) = POWERS.get(places) else {
        return Err(PayloadError::at(
            at,
            "real numbers have a form that is not known",
        ));
    };
    let RealsRead {
        flags,
        decimals,
        others,
    } = read;
    decoder.get(cursor, flags)?;
    if flags.len() > most {
        return Err(PayloadError::at(
            at,
            "more real numbers than their pages hold",
        ));
    }
    decoder.together(|decoder, pending| {
        decimals.read(decoder, cursor, room, most, pending)?;
        get_fixed(decoder, cursor, room, 8, most, others, pending)
    })?;
    cursor.sized(reals, 8 * flags.len())?;
    let mut others = others.as_chunks::<8>().0.iter();
    for (flag, place) in flags.iter().zip(reals.as_chunks_mut::<8>().0) {
        let real = match flag {
            0 => decimals
                .next()
                .map(|integer| (integer as f64 / power).to_le_bytes()),
            1 => others.next().copied(),
            _ => None,
        };
        *place = real.ok_or(PayloadError::at(at, "a real number is missing"))?;
    }
    match decimals.is_used_up() && others.len() == 0 {
        true => Ok(()),
        false => Err(PayloadError::at(at, "more real numbers than their flags")),
    }
}

/// Memory for reading real numbers.
#[derive(Default)]
pub(super) struct RealsRead {
    flags: Bytes,
    decimals: Integers,
    others: Bytes,
}

impl RealsRead {
    pub(super) fn memory(&self) -> usize {
        self.flags.memory() + self.decimals.memory() + self.others.memory()
    }
}
