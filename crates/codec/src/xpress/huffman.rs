//! Canonical Huffman codes of at most 15 bits over the 512 symbols of a chunk.
//!
//! A code is known by its lengths alone: codes are given out in order of length, then of symbol
//! ([MS-XCA] 2.1.4.2), so a chunk stores one length per symbol, in four bits.

use super::{CODE_BITS_MAX, SYMBOLS};

/// The code length of every symbol in bits; 0 marks a symbol that does not occur.
pub(super) type Lengths = [u8; SYMBOLS];

/// Computes code lengths for `counts`, of which at least two must not be zero.
///
/// Optimal unless the optimum needs codes beyond 15 bits; then a few symbols are moved, at a cost
/// of less than a per mille.
pub(super) fn lengths(counts: &[u32; SYMBOLS]) -> Lengths {
    let mut order = [0u32; SYMBOLS];
    let used = sort_by_count(counts, &mut order);
    let order = &order[..used];
    debug_assert!(order.len() >= 2);

    let mut lengths = [0u8; SYMBOLS];
    let mut left = length_histogram(counts, order);
    // The rarest symbols come first and get the longest codes.
    let mut length = CODE_BITS_MAX;
    for &symbol in order {
        while left[length] == 0 {
            length -= 1;
        }
        left[length] -= 1;
        lengths[symbol as usize] = length as u8;
    }
    lengths
}

/// Fills `order` with the symbols that occur, rarest first; returns how many there are.
fn sort_by_count(counts: &[u32; SYMBOLS], order: &mut [u32; SYMBOLS]) -> usize {
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        if count != 0 {
            order[used] = count << 9 | symbol as u32;
            used += 1;
        }
    }
    order[..used].sort_unstable();
    for entry in &mut order[..used] {
        *entry &= SYMBOLS as u32 - 1;
    }
    used
}

/// How many codes of each length a Huffman code of at most 15 bits has, for the symbols of
/// `order`, which is sorted by count.
fn length_histogram(counts: &[u32; SYMBOLS], order: &[u32]) -> [u32; CODE_BITS_MAX + 1] {
    // Two queues, both sorted by weight: leaves yet to be joined (`order`), and nodes made so far.
    // A node is made from the two lightest heads and remembered by its parent's index.
    let leaves = order.len();
    let nodes = leaves - 1;
    let mut weight = [0u32; SYMBOLS];
    let mut parent = [0u16; SYMBOLS];
    let mut leaf_parent_count = [0u8; SYMBOLS];
    let (mut leaf, mut joined) = (0, 0);
    for node in 0..nodes {
        let mut sum = 0;
        for _ in 0..2 {
            let take_leaf =
                joined >= node || leaf < leaves && counts[order[leaf] as usize] <= weight[joined];
            if take_leaf {
                sum += counts[order[leaf] as usize];
                leaf_parent_count[node] += 1;
                leaf += 1;
            } else {
                sum += weight[joined];
                parent[joined] = node as u16;
                joined += 1;
            }
        }
        weight[node] = sum;
    }

    // The last node is the root; every node's depth follows from its parent's, made later.
    let mut depth = [0u8; SYMBOLS];
    let mut histogram = [0u32; CODE_BITS_MAX + 1];
    let mut overlong_units = 0i64;
    let unit = |length: usize| 1i64 << (CODE_BITS_MAX - length);
    for node in (0..nodes).rev() {
        if node + 1 < nodes {
            depth[node] = depth[parent[node] as usize].saturating_add(1);
        }
        let length = (depth[node] as usize + 1).min(CODE_BITS_MAX);
        histogram[length] += u32::from(leaf_parent_count[node]);
        overlong_units += i64::from(leaf_parent_count[node]) * unit(length);
    }

    // Cutting codes to 15 bits used up more than the whole code space. Lengthening a code of
    // length n < 15 and hanging one of the cut codes beside it frees one unit, 2^-15, of it.
    overlong_units -= 1 << CODE_BITS_MAX;
    while overlong_units > 0 {
        let mut length = CODE_BITS_MAX - 1;
        while histogram[length] == 0 {
            length -= 1;
        }
        histogram[length] -= 1;
        histogram[length + 1] += 2;
        histogram[CODE_BITS_MAX] -= 1;
        overlong_units -= 1;
    }
    histogram
}

/// The codes that belong to `lengths`, each as `code << 4 | length`.
pub(super) fn codes(lengths: &Lengths) -> [u32; SYMBOLS] {
    let mut next = [0u32; CODE_BITS_MAX + 1];
    let mut histogram = [0u32; CODE_BITS_MAX + 1];
    for &length in lengths {
        histogram[length as usize & 15] += 1;
    }
    for length in 2..=CODE_BITS_MAX {
        next[length] = (next[length - 1] + histogram[length - 1]) << 1;
    }
    let mut codes = [0; SYMBOLS];
    for (code, &length) in codes.iter_mut().zip(lengths) {
        let length = length as usize & 15;
        if length != 0 {
            *code = next[length] << 4 | length as u32;
            next[length] += 1;
        }
    }
    codes
}
