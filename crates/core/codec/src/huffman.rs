//! Canonical Huffman codes of limited length, for MS_XPRESS and deflate.
//!
//! Invariants
//! - The lengths alone determine a code: codes are assigned in order of length, then of symbol ([MS-XCA] 2.1.4.2, RFC
//!   1951 3.2.2).
//! - The lengths fill the code space exactly, also after codes were cut to the limit; the rarest symbols have the
//!   longest codes.
//! - A symbol has a code if and only if it occurs.
//!
//! Leaves to others: codes for fewer than two symbols, and how lengths are written (the two formats). Both have at most
//! 15 bits and 512 symbols.

/// Both formats' longest code; a caller may ask for less.
pub(crate) const CODE_BITS_MAX: usize = 15;

/// How many low bits of an entry in a list of symbols are the symbol.
const SYMBOL_BITS: u32 = 9;

/// Computes code lengths of at most `BITS_MAX` for `counts`, of which at least two must not be
/// zero, and none 2^23 or more. A symbol that does not occur has length 0.
///
/// Optimal unless the optimum needs longer codes; then a few symbols are moved, which with 15 bits costs less than 0.1
/// %.
pub(crate) fn lengths<const SYMBOLS: usize, const BITS_MAX: usize>(
    counts: &[u32; SYMBOLS],
) -> [u8; SYMBOLS] {
    const { assert!(SYMBOLS <= 1 << SYMBOL_BITS && BITS_MAX <= CODE_BITS_MAX) };
    let mut order = [0u32; SYMBOLS];
    let used = sort_by_count(counts, &mut order);
    let order = &order[..used];
    debug_assert!(order.len() >= 2);

    let mut lengths = [0u8; SYMBOLS];
    let mut left = length_histogram::<SYMBOLS, BITS_MAX>(counts, order);
    // The rarest symbols come first and get the longest codes.
    let mut length = BITS_MAX;
    for &symbol in order {
        while left[length] == 0 {
            length -= 1;
        }
        left[length] -= 1;
        lengths[symbol as usize] = length as u8;
    }
    lengths
}

/// Sorts entries whose symbols rise already. For many of them with counts below 2^16 it takes two passes over the bytes of
/// the counts: half the time of a sort by comparisons.
fn sort<const SYMBOLS: usize>(order: &mut [u32; SYMBOLS], used: usize) {
    let most = order[..used]
        .iter()
        .fold(0, |most, entry| most.max(*entry >> SYMBOL_BITS));
    if used < 64 || most >= 1 << 16 {
        order[..used].sort_unstable();
        return;
    }
    let mut other = [0u32; SYMBOLS];
    pass(&order[..used], &mut other, SYMBOL_BITS);
    pass(&other[..used], order, SYMBOL_BITS + 8);
}

/// Writes `from` to `to` in the order of the eight bits from `shift` on; equal ones keep their order.
fn pass(from: &[u32], to: &mut [u32], shift: u32) {
    let digit = |entry: &u32| (*entry >> shift) as usize & 0xff;
    let mut starts = [0usize; 256];
    from.iter().for_each(|entry| starts[digit(entry)] += 1);
    let mut start = 0;
    for place in &mut starts {
        start += std::mem::replace(place, start);
    }
    for entry in from {
        let place = &mut starts[digit(entry)];
        to[*place] = *entry;
        *place += 1;
    }
}

/// Fills `order` with the symbols that occur, rarest first; returns their number.
fn sort_by_count<const SYMBOLS: usize>(
    counts: &[u32; SYMBOLS],
    order: &mut [u32; SYMBOLS],
) -> usize {
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        if count != 0 {
            order[used] = count << SYMBOL_BITS | symbol as u32;
            used += 1;
        }
    }
    sort(order, used);
    for entry in &mut order[..used] {
        *entry &= (1 << SYMBOL_BITS) - 1;
    }
    used
}

/// How many codes of each length a Huffman code of at most `BITS_MAX` bits has, for the symbols of
/// `order`, which is sorted by count.
fn length_histogram<const SYMBOLS: usize, const BITS_MAX: usize>(
    counts: &[u32; SYMBOLS],
    order: &[u32],
) -> [u32; CODE_BITS_MAX + 1] {
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
    let unit = |length: usize| 1i64 << (BITS_MAX - length);
    for node in (0..nodes).rev() {
        if node + 1 < nodes {
            depth[node] = depth[parent[node] as usize].saturating_add(1);
        }
        let length = (depth[node] as usize + 1).min(BITS_MAX);
        histogram[length] += u32::from(leaf_parent_count[node]);
        overlong_units += i64::from(leaf_parent_count[node]) * unit(length);
    }

    // Cutting codes used up more than the whole code space. Lengthening a code of length n < `BITS_MAX` and attaching
    // one of the cut codes next to it frees one unit of it, 2^-`BITS_MAX`.
    overlong_units -= 1 << BITS_MAX;
    while overlong_units > 0 {
        let mut length = BITS_MAX - 1;
        while histogram[length] == 0 {
            length -= 1;
        }
        histogram[length] -= 1;
        histogram[length + 1] += 2;
        histogram[BITS_MAX] -= 1;
        overlong_units -= 1;
    }
    histogram
}

/// The codes that belong to `lengths`, each as `code << 4 | length`.
pub(crate) fn codes<const SYMBOLS: usize>(lengths: &[u8; SYMBOLS]) -> [u32; SYMBOLS] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const SYMBOLS: usize = 512;

    /// The bits of an optimal code without a length limit, by Huffman's own procedure: the sum of all joint weights.
    fn optimal_bits(counts: &[u32; SYMBOLS]) -> u64 {
        let used = counts.iter().filter(|n| **n > 0);
        let mut heap: BinaryHeap<_> = used.map(|n| Reverse(u64::from(*n))).collect();
        let mut bits = 0;
        while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
            bits += a + b;
            heap.push(Reverse(a + b));
        }
        bits
    }

    fn bits(counts: &[u32; SYMBOLS], lengths: &[u8; SYMBOLS]) -> u64 {
        counts
            .iter()
            .zip(lengths)
            .map(|(n, l)| u64::from(*n) * u64::from(*l))
            .sum()
    }

    fn uses_the_code_space(lengths: &[u8; SYMBOLS]) -> bool {
        let used = lengths.iter().filter(|l| **l > 0);
        used.map(|l| 1 << (CODE_BITS_MAX - *l as usize))
            .sum::<u32>()
            == 1 << CODE_BITS_MAX
    }

    #[test]
    fn codes_are_optimal_where_none_needs_more_than_15_bits() {
        let mut state = 1u32;
        for used in [2, 3, 4, 5, 17, 100, 300, SYMBOLS] {
            let mut counts = [0; SYMBOLS];
            for count in &mut counts[..used] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *count = 1 + (state >> 24) % (1 + (state >> 12) % 250);
            }
            counts.rotate_right(used / 2);
            let lengths = lengths::<SYMBOLS, CODE_BITS_MAX>(&counts);
            assert!(uses_the_code_space(&lengths), "{used} symbols");
            assert_eq!(
                bits(&counts, &lengths),
                optimal_bits(&counts),
                "{used} symbols"
            );
        }
    }

    #[test]
    fn longer_codes_are_cut_to_15_bits_at_little_cost() {
        // With Fibonacci numbers as counts, each symbol needs a code one bit longer than the next.
        let mut counts = [0; SYMBOLS];
        (counts[0], counts[1]) = (1, 1);
        for i in 2..22 {
            counts[i] = counts[i - 1] + counts[i - 2];
        }
        let lengths = lengths::<SYMBOLS, CODE_BITS_MAX>(&counts);
        assert!(uses_the_code_space(&lengths));
        let (cut, uncut) = (bits(&counts, &lengths), optimal_bits(&counts));
        assert!(
            cut > uncut && cut < uncut + uncut / 100,
            "{cut} bits, {uncut} without limit"
        );
    }

    #[test]
    fn codes_are_given_out_by_length_and_then_by_symbol() {
        let mut lengths = [0; SYMBOLS];
        (lengths[7], lengths[300], lengths[9], lengths[8]) = (2, 1, 3, 3);
        let codes = codes(&lengths);
        let code = |symbol: usize| (codes[symbol] >> 4, codes[symbol] & 15);
        assert_eq!([code(300), code(7)], [(0b0, 1), (0b10, 2)]);
        assert_eq!([code(8), code(9)], [(0b110, 3), (0b111, 3)]);
        assert_eq!(codes.iter().filter(|code| **code != 0).count(), 4);
    }
}
