//! Reads a chunk back.
//!
//! Two loops share one state. The fast one takes up to four words at a time into a 64-bit buffer and runs while that
//! many words are left. The careful one reads the rest word by word and checks each, so it knows where the chunk ends.
//! To find bytes between the words (see `bits`), a loop gives back the words that a reader of 16 to 31 bits would not
//! have read yet.
//!
//! Invariants
//! - `decompress` succeeds only if the chunk is well formed, fills the output exactly, and nothing follows its content.
//! - No chunk causes a panic or an access outside the two slices: the Huffman code is checked to be complete before it
//!   is used.
//! - A match copies only bytes of the same chunk that are already written.
//!
//! Leaves to others: the chunk's format and its parts (`symbol.rs`, `bits.rs`); writing chunks (`stream.rs`, `matcher.rs`,
//! `optimal.rs`); the payload around the chunks (`chunks.rs`).

use super::symbol::{
    CHUNK_BYTES_MAX, CODE_BITS_MAX, END_OF_STREAM, LONG_LEN, MATCH_LEN_MIN, SYMBOLS, TABLE_BYTES,
};

/// Why a chunk cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    #[error("a chunk holds 1 to {CHUNK_BYTES_MAX} bytes")]
    Size,
    #[error("the chunk's code lengths do not make a complete Huffman code")]
    Code,
    #[error("the chunk ends before its content")]
    Truncated,
    #[error("a match refers to bytes before the chunk's first")]
    Offset,
    #[error("the length of a match is encoded wrongly")]
    Length,
    #[error("the chunk holds more than the content expected")]
    Overlong,
    #[error("the chunk continues after its content")]
    Trailing,
}

/// Restores one chunk: succeeds only if `stored` is well formed and fills `plain`, of 1 to 65536 bytes, exactly. After
/// an error the content of `plain` is undefined.
pub fn decompress(stored: &[u8], plain: &mut [u8]) -> Result<(), ChunkError> {
    if plain.is_empty() || plain.len() > CHUNK_BYTES_MAX {
        return Err(ChunkError::Size);
    }
    let (table, stream) = stored.split_first_chunk().ok_or(ChunkError::Truncated)?;
    let code = Code::read(table)?;
    let mut reader = Reader {
        stream,
        at: 0,
        bits: 0,
        held: 0,
    };
    let filled = decode_fast(&code, &mut reader, plain)?;
    decode_carefully(&code, &mut reader, plain, filled)
}

/// Decodes while input and output are far from their ends; returns how many bytes of `plain` are filled.
fn decode_fast(code: &Code, reader: &mut Reader, plain: &mut [u8]) -> Result<usize, ChunkError> {
    let mut filled = 0;
    while filled + 2 < plain.len() && reader.refill() {
        let mut item = code.item(reader.bits);
        reader.drop_bits(item.code_bits());
        if item.is_literal() {
            plain[filled] = item.byte();
            filled += 1;
            item = code.item(reader.bits);
            reader.drop_bits(item.code_bits());
            if item.is_literal() {
                plain[filled] = item.byte();
                filled += 1;
                continue;
            }
        }
        // At least 18 of 48 bits are left: enough for an offset.
        filled = copy_match(item, reader, plain, filled)?;
    }
    reader.give_back();
    Ok(filled)
}

/// Decodes the rest, and checks that nothing follows.
fn decode_carefully(
    code: &Code,
    reader: &mut Reader,
    plain: &mut [u8],
    mut filled: usize,
) -> Result<(), ChunkError> {
    reader.hold_16()?;
    while filled < plain.len() {
        let item = code.item(reader.bits);
        reader.drop_bits(item.code_bits());
        reader.hold_16()?;
        if item.is_literal() {
            plain[filled] = item.byte();
            filled += 1;
        } else {
            filled = copy_match(item, reader, plain, filled)?;
            reader.hold_16()?;
        }
    }
    if !reader.is_at_end() {
        let item = code.item(reader.bits);
        reader.drop_bits(item.code_bits());
        reader.hold_16()?;
        if item != Item::of(END_OF_STREAM, item.code_bits()) || !reader.is_at_end() {
            return Err(ChunkError::Trailing);
        }
    }
    Ok(())
}

/// Reads the rest of a match and copies it to `filled`; returns where it ends.
#[inline(always)]
fn copy_match(
    item: Item,
    reader: &mut Reader,
    plain: &mut [u8],
    filled: usize,
) -> Result<usize, ChunkError> {
    let mut len = item.match_len();
    if len == LONG_LEN {
        len = reader.long_len()?;
    }
    let offset_bits = item.offset_bits();
    // Shifts in two steps, because a shift by 64 bits is not allowed.
    let offset = 1 << offset_bits | (reader.bits >> 1 >> (63 - offset_bits)) as usize;
    reader.drop_bits(offset_bits);

    if offset > filled {
        return Err(ChunkError::Offset);
    }
    let end = filled + len;
    if end > plain.len() {
        return Err(ChunkError::Overlong);
    }
    copy_within(plain, filled - offset, filled, end);
    Ok(end)
}

const STEP: usize = 16;

/// Fills `plain[to..end]` with the bytes from `from` on, which is less than `to`. Works as if byte by byte, so bytes
/// written early may be read again.
#[inline(always)]
fn copy_within(plain: &mut [u8], from: usize, to: usize, end: usize) {
    if to - from >= STEP && end + STEP <= plain.len() {
        // May write beyond `end`, but only into bytes that are still to be filled.
        let distance = to - from;
        let mut to = to;
        while {
            plain.copy_within(to - distance..to - distance + STEP, to);
            to += STEP;
            to < end
        } {}
    } else {
        copy_overlapping(plain, from, to, end);
    }
}

/// The same for any distance, and not beyond `end`.
fn copy_overlapping(plain: &mut [u8], from: usize, mut to: usize, end: usize) {
    if to - from == 1 {
        let byte = plain[from];
        plain[to..end].fill(byte);
        return;
    }
    // The bytes between repeat, so each copy may be as long as all bytes copied so far: it doubles.
    while to < end {
        let len = (to - from).min(end - to);
        plain.copy_within(from..from + len, to);
        to += len;
    }
}

/// A symbol, unpacked, and the length of its code.
///
/// Bits 0 to 3 the length, bit 7 whether it is a literal, bits 8 to 15 the byte or the number of
/// offset bits, bits 16 to 23 the match length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item(u32);

impl Item {
    /// The entry of a code longer than the table's codes.
    const UNKNOWN: Item = Item(0);

    fn of(symbol: usize, code_bits: u32) -> Item {
        let symbol = symbol as u32;
        if symbol < 256 {
            Item(code_bits | 1 << 7 | symbol << 8)
        } else {
            let len = (symbol - 256) % 16 + MATCH_LEN_MIN as u32;
            let offset_bits = (symbol - 256) / 16;
            Item(code_bits | offset_bits << 8 | len << 16)
        }
    }

    #[inline(always)]
    fn code_bits(self) -> u32 {
        self.0 & 15
    }

    #[inline(always)]
    fn is_literal(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    #[inline(always)]
    fn byte(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline(always)]
    fn offset_bits(self) -> u32 {
        self.0 >> 8 & 15
    }

    #[inline(always)]
    fn match_len(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// Codes of up to this many bits are looked up directly; the few longer ones are searched for.
const LOOKUP_BITS: u32 = 11;

struct Code {
    lookup: [Item; 1 << LOOKUP_BITS],
    /// All symbols that occur, in the order of their codes.
    symbols: [u16; SYMBOLS],
    by_length: [Codes; CODE_BITS_MAX + 1],
}

/// The codes of one length.
#[derive(Clone, Copy, Default)]
struct Codes {
    first: u32,
    count: u32,
    /// Where their symbols start in `Code::symbols`.
    symbols_from: u32,
}

impl Code {
    fn read(table: &[u8; TABLE_BYTES]) -> Result<Code, ChunkError> {
        let mut by_length = [Codes::default(); CODE_BITS_MAX + 1];
        for &pair in table {
            by_length[pair as usize & 15].count += 1;
            by_length[pair as usize >> 4].count += 1;
        }
        by_length[0].count = 0;
        for length in 1..=CODE_BITS_MAX {
            let shorter = by_length[length - 1];
            by_length[length].first = (shorter.first + shorter.count) << 1;
            by_length[length].symbols_from = shorter.symbols_from + shorter.count;
        }
        let last = by_length[CODE_BITS_MAX];
        if last.first + last.count != 1 << CODE_BITS_MAX {
            return Err(ChunkError::Code);
        }

        let mut symbols = [0; SYMBOLS];
        let mut next = by_length.map(|codes| codes.symbols_from);
        for (index, &pair) in table.iter().enumerate() {
            for (symbol, length) in [(2 * index, pair & 15), (2 * index + 1, pair >> 4)] {
                if length != 0 {
                    let place = &mut next[length as usize];
                    symbols[*place as usize] = symbol as u16;
                    *place += 1;
                }
            }
        }

        let mut lookup = [Item::UNKNOWN; 1 << LOOKUP_BITS];
        let mut rest = lookup.as_mut_slice();
        for length in 1..=LOOKUP_BITS {
            let codes = by_length[length as usize];
            let from = codes.symbols_from as usize;
            for &symbol in &symbols[from..from + codes.count as usize] {
                let entries;
                (entries, rest) = rest.split_at_mut(1 << (LOOKUP_BITS - length));
                entries.fill(Item::of(symbol as usize, length));
            }
        }
        Ok(Code {
            lookup,
            symbols,
            by_length,
        })
    }

    /// The symbol whose code is at the top of `bits`.
    #[inline(always)]
    fn item(&self, bits: u64) -> Item {
        let item = self.lookup[(bits >> (64 - LOOKUP_BITS)) as usize];
        if item == Item::UNKNOWN {
            self.long_item(bits)
        } else {
            item
        }
    }

    #[cold]
    fn long_item(&self, bits: u64) -> Item {
        for length in LOOKUP_BITS + 1..=CODE_BITS_MAX as u32 {
            let codes = self.by_length[length as usize];
            // Shorter codes were tried, and all are smaller than the first of this length.
            let index = (bits >> (64 - length)) as u32 - codes.first;
            if index < codes.count {
                let symbol = self.symbols[(codes.symbols_from + index) as usize];
                return Item::of(symbol as usize, length);
            }
        }
        unreachable!("a complete code has no other bits")
    }
}

/// The bit stream of a chunk.
struct Reader<'a> {
    stream: &'a [u8],
    /// Where the next word is.
    at: usize,
    /// The next bits, the first at the top. Below the `held` ones may be bits of words to come.
    bits: u64,
    held: u32,
}

impl Reader<'_> {
    /// Takes in words until at least 48 bits are held. False, and nothing done, near the end.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Some(words) = self
            .stream
            .get(self.at..)
            .and_then(|rest| rest.first_chunk())
        else {
            return false;
        };
        let words = u64::from_le_bytes(*words).rotate_left(32);
        let even = 0x0000_FFFF_0000_FFFF;
        let words = (words & even) << 16 | words >> 16 & even;
        // All four at once; words that do not fit will be taken in again, to the same effect.
        self.bits |= words >> self.held;
        let taken = (63 - self.held) / 16;
        self.at += 2 * taken as usize;
        self.held += 16 * taken;
        true
    }

    #[inline(always)]
    fn drop_bits(&mut self, count: u32) {
        self.bits <<= count;
        self.held -= count;
    }

    /// Gives back the words that a reader of 16 to 31 bits would not have read yet, if any.
    #[inline(always)]
    fn give_back(&mut self) {
        let keep = self.held.min(16 + self.held % 16);
        self.at -= ((self.held - keep) / 8) as usize;
        self.held = keep;
        self.bits &= !(u64::MAX >> keep);
    }

    /// Makes sure that at least 16 bits are held, 31 at most.
    #[inline(always)]
    fn hold_16(&mut self) -> Result<(), ChunkError> {
        while self.held < 16 {
            let word = u16::from_le_bytes(self.strewn()?);
            self.bits |= u64::from(word) << (48 - self.held);
            self.held += 16;
        }
        Ok(())
    }

    /// Reads bytes that stand between the words.
    #[inline(always)]
    fn strewn<const LEN: usize>(&mut self) -> Result<[u8; LEN], ChunkError> {
        let rest = self.stream.get(self.at..).unwrap_or_default();
        let bytes = rest.first_chunk().ok_or(ChunkError::Truncated)?;
        self.at += LEN;
        Ok(*bytes)
    }

    /// Reads the length of a match whose symbol does not contain it.
    #[inline(always)]
    fn long_len(&mut self) -> Result<usize, ChunkError> {
        self.give_back();
        let [beyond] = self.strewn()?;
        if beyond < 255 {
            return Ok(LONG_LEN + beyond as usize);
        }
        let len = MATCH_LEN_MIN + u16::from_le_bytes(self.strewn()?) as usize;
        if len < LONG_LEN {
            Err(ChunkError::Length)
        } else {
            Ok(len)
        }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.stream.len()
    }
}
