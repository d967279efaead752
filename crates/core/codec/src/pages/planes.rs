//! Values of one width as planes: all first bytes, then all second bytes, and so on. Bytes that vary
//! little are then together, and random ones do not spoil the rest.
//!
//! A *lane* is four bytes of each value, read as a little-endian number.
//!
//! Invariants
//! - `join` undoes `split`, and `sum` undoes `differences`.
//!
//! Leaves to others: which values become planes, and which lanes differences (`column.rs`).

use super::kernel::Kernel;

/// Bytes of a lane.
pub(super) const LANE: usize = 4;

/// Writes the planes of `values` (a multiple of `width` bytes) to `planes`, which is as long.
pub(super) fn split(kernel: Kernel, values: &[u8], width: usize, planes: &mut [u8]) {
    let rows = values.len() / width;
    let eights = rows / 8 * 8;
    let first = kernel.split(values, width, planes);
    for column in (0..width).step_by(8) {
        let columns = (width - column).min(8);
        for row in (first..eights).step_by(8) {
            let block =
                std::array::from_fn(|i| word(&values[(row + i) * width + column..], columns));
            let block = transposed(block);
            for (i, word) in block.iter().enumerate().take(columns) {
                let at = (column + i) * rows + row;
                planes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        for row in eights.max(first)..rows {
            for i in column..column + columns {
                planes[i * rows + row] = values[row * width + i];
            }
        }
    }
}

/// Writes the values whose planes are `planes` to `values`, which is as long.
pub(super) fn join(kernel: Kernel, planes: &[u8], width: usize, values: &mut [u8]) {
    let rows = values.len() / width;
    if width == 2 {
        let (low, high) = planes.split_at(rows);
        for (value, (low, high)) in values
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(low.iter().zip(high))
        {
            *value = [*low, *high];
        }
        return;
    }
    let eights = rows / 8 * 8;
    let first = kernel.join(planes, width, values);
    for column in (0..width).step_by(8) {
        let columns = (width - column).min(8);
        for row in (first..eights).step_by(8) {
            let block = std::array::from_fn(|i| match i < columns {
                true => word(&planes[(column + i) * rows + row..], 8),
                false => 0,
            });
            let block = transposed(block);
            for (i, word) in block.iter().enumerate() {
                let at = (row + i) * width + column;
                match columns {
                    8 => values[at..at + 8].copy_from_slice(&word.to_le_bytes()),
                    4 => values[at..at + 4].copy_from_slice(&(*word as u32).to_le_bytes()),
                    _ => values[at..at + columns].copy_from_slice(&word.to_le_bytes()[..columns]),
                }
            }
        }
        for row in eights.max(first)..rows {
            for i in column..column + columns {
                values[row * width + i] = planes[i * rows + row];
            }
        }
    }
}

/// The first `len` (1 to 8) bytes, lowest first.
#[inline(always)]
fn word(bytes: &[u8], len: usize) -> u64 {
    if let Some(word) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        return word & (u64::MAX >> (64 - 8 * len));
    }
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

/// Rows and columns of eight by eight bytes exchanged.
#[inline(always)]
fn transposed(mut rows: [u64; 8]) -> [u64; 8] {
    for (distance, mask) in [
        (1, 0x00ff_00ff_00ff_00ff_u64),
        (2, 0x0000_ffff_0000_ffff),
        (4, 0x0000_0000_ffff_ffff),
    ] {
        let shift = 8 * distance;
        for i in 0..8 {
            if i & distance == 0 {
                let (low, high) = (rows[i], rows[i + distance]);
                rows[i] = low & mask | (high & mask) << shift;
                rows[i + distance] = low >> shift & mask | high & !mask;
            }
        }
    }
    rows
}

/// Replaces each lane in `lanes` (bit 0 is the first) of each value but the first by its difference to the value before.
pub(super) fn differences(values: &[u8], width: usize, lanes: u32, out: &mut [u8]) {
    out.copy_from_slice(values);
    if width == LANE {
        let values = values.as_chunks::<LANE>().0;
        let out = out.as_chunks_mut::<LANE>().0;
        for (pair, out) in values.windows(2).zip(out.iter_mut().skip(1)) {
            *out = less(pair[1], pair[0]);
        }
        return;
    }
    for lane in (0..width / LANE).filter(|lane| lanes >> lane & 1 == 1) {
        for at in (width + lane * LANE..values.len()).step_by(width) {
            let difference = less(lane_at(values, at), lane_at(values, at - width));
            out[at..at + LANE].copy_from_slice(&difference);
        }
    }
}

fn lane_at(values: &[u8], at: usize) -> [u8; LANE] {
    values[at..at + LANE].try_into().expect("a lane")
}

#[inline(always)]
fn less(a: [u8; LANE], b: [u8; LANE]) -> [u8; LANE] {
    let (a, b) = (u32::from_le_bytes(a), u32::from_le_bytes(b));
    a.wrapping_sub(b).to_le_bytes()
}

/// Undoes [`differences`] in place.
pub(super) fn sum(values: &mut [u8], width: usize, lanes: u32) {
    for lane in (0..width / LANE).filter(|lane| lanes >> lane & 1 == 1) {
        let mut sum = 0u32;
        for value in values.chunks_exact_mut(width) {
            let value = &mut value[lane * LANE..][..LANE];
            sum = sum.wrapping_add(u32::from_le_bytes(lane_at(value, 0)));
            value.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_and_differences_are_undone() {
        for width in [1, 2, 3, 4, 6, 8, 12, 16, 24, 56, 64] {
            for rows in [0, 1, 7, 8, 9, 100] {
                let values: Vec<u8> = (0..rows * width).map(|i| (i * i / 7 + i) as u8).collect();
                let (mut planes, mut back) = (vec![0; values.len()], vec![0; values.len()]);
                for kernel in Kernel::ALL.into_iter().filter(|k| k.is_available()) {
                    planes.fill(0);
                    split(kernel, &values, width, &mut planes);
                    for (i, byte) in values.iter().enumerate() {
                        assert_eq!(planes[i % width * rows + i / width], *byte);
                    }
                    back.fill(0);
                    join(kernel, &planes, width, &mut back);
                    assert_eq!(back, values, "{width} {rows}");
                }
                for lanes in [0, 1, 2, u32::MAX] {
                    if width == LANE && lanes & 1 == 0 || !width.is_multiple_of(LANE) {
                        continue;
                    }
                    differences(&values, width, lanes, &mut back);
                    sum(&mut back, width, lanes);
                    assert_eq!(back, values, "{width} {rows} {lanes}");
                }
            }
        }
    }
}
