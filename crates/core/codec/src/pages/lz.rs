//! Text: LZ4's matches, with what describes them taken apart.
//!
//! An LZ4 block is a row of sequences. Its tokens, further lengths, literals and offsets become streams of their own; each
//! of them is then coded by what its bytes occur like.
//!
//! Invariants
//! - `join` refuses what does not end exactly where the plain bytes and all streams end.
//!
//! Leaves to others: how each part is coded (`stream.rs`).
//!
//! Source: LZ4 block format, lz4_Block_format.md of LZ4 1.9.4.

use super::store::Store;

/// The parts of an LZ4 block.
#[derive(Default)]
pub(super) struct Sequences {
    tokens: Store,
    /// Bytes of lengths that a token has no room for: of its literals, and then of its match.
    lengths: Store,
    literals: Store,
    offsets_low: Store,
    offsets_high: Store,
}

impl Sequences {
    /// Takes a block apart that LZ4 has made.
    pub(super) fn split(&mut self, mut block: &[u8]) {
        let Sequences {
            tokens,
            lengths,
            literals,
            offsets_low,
            offsets_high,
        } = self;
        for part in [&mut *tokens, lengths, literals, offsets_low, offsets_high] {
            part.clear();
        }
        while let [token, rest @ ..] = block {
            tokens.push([*token]);
            block = rest;
            let mut run = usize::from(token >> 4);
            if run == 15 {
                run += further(lengths, &mut block);
            }
            if run <= PIECE
                && let Some(piece) = block.first_chunk::<PIECE>()
            {
                literals.room(PIECE)[..PIECE].copy_from_slice(piece);
                literals.advance(run);
            } else {
                literals.extend(&block[..run]);
            }
            block = &block[run..];
            if let [low, high, rest @ ..] = block {
                offsets_low.push([*low]);
                offsets_high.push([*high]);
                block = rest;
                if token & 15 == 15 {
                    further(lengths, &mut block);
                }
            }
        }
    }

    pub(super) fn parts(&self) -> [&[u8]; 5] {
        let Sequences {
            tokens,
            lengths,
            literals,
            offsets_low,
            offsets_high,
        } = self;
        [tokens, lengths, literals, offsets_low, offsets_high].map(Store::used)
    }
}

/// Short runs are copied as so many bytes.
const PIECE: usize = 16;

fn further(lengths: &mut Store, block: &mut &[u8]) -> usize {
    let mut sum = 0;
    while let [byte, rest @ ..] = *block {
        *block = rest;
        lengths.push([*byte]);
        sum += usize::from(*byte);
        if *byte != 255 {
            break;
        }
    }
    sum
}

const MATCH_MIN: usize = 4;

/// Puts the parts together again. `None` if they do not give exactly `plain.len()` bytes.
pub(super) fn join(parts: [&[u8]; 5], plain: &mut [u8]) -> Option<()> {
    let [tokens, mut lengths, mut literals, low, high] = parts;
    let (last, matches) = tokens.split_last()?;
    if low.len() != matches.len() || high.len() != matches.len() {
        return None;
    }
    let mut at = 0;
    for ((token, low), high) in matches.iter().zip(low).zip(high) {
        at = copy_literals(*token, &mut lengths, &mut literals, plain, at)?;
        let offset = usize::from(u16::from_le_bytes([*low, *high]));
        let mut len = usize::from(token & 15);
        if len == 15 {
            len += length(&mut lengths)?;
        }
        len += MATCH_MIN;
        let from = at.checked_sub(offset)?;
        if offset == 0 || len > plain.len() - at {
            return None;
        }
        if offset >= 16 && len <= 16 && plain.len() - at >= 16 {
            let piece: [u8; 16] = plain[from..from + 16].try_into().expect("16 bytes");
            plain[at..at + 16].copy_from_slice(&piece);
        } else if offset >= len {
            plain.copy_within(from..from + len, at);
        } else {
            for i in 0..len {
                plain[at + i] = plain[from + i];
            }
        }
        at += len;
    }
    let at = copy_literals(*last, &mut lengths, &mut literals, plain, at)?;
    let ended = at == plain.len() && literals.is_empty() && lengths.is_empty() && last & 15 == 0;
    ended.then_some(())
}

#[inline(always)]
fn copy_literals(
    token: u8,
    lengths: &mut &[u8],
    literals: &mut &[u8],
    plain: &mut [u8],
    at: usize,
) -> Option<usize> {
    let mut len = usize::from(token >> 4);
    if len < 15
        && let Some(piece) = literals.first_chunk::<16>()
        && let Some(out) = plain.get_mut(at..at + 16)
    {
        out.copy_from_slice(piece);
        *literals = &literals[len..];
        return Some(at + len);
    }
    if len == 15 {
        len += length(lengths)?;
    }
    let (run, rest) = literals.split_at_checked(len)?;
    plain.get_mut(at..at + len)?.copy_from_slice(run);
    *literals = rest;
    Some(at + len)
}

fn length(lengths: &mut &[u8]) -> Option<usize> {
    let mut sum = 0;
    loop {
        let (byte, rest) = lengths.split_first()?;
        *lengths = rest;
        sum += usize::from(*byte);
        if *byte != 255 {
            return Some(sum);
        }
    }
}
