//! One stream of bytes, in the form that makes it smallest for its time.
//!
//! | mode | bytes after it | content |
//! |---|---|---|
//! | 0 | | nothing |
//! | 1 | n, n bytes | the bytes |
//! | 2 | n, one byte | the byte, n times |
//! | 3 | n, c, c bytes | Huffman codes (`huffman.rs`) |
//! | 4 | n, c, c bytes | one byte and its exceptions |
//! | 5 | n, five streams | LZ4's sequences: tokens, further lengths, literals, low and high bytes of offsets (`lz.rs`) |
//! | 6 | n, c, c bytes | a zstd frame |
//! | 7 | n, c, c bytes | an LZ4 block |
//!
//! n and c are numbers (`cursor.rs`); n is the stream's plain length.
//!
//! Exceptions: the byte that most of the stream is, then for each other byte how far it is from the one before, or
//! from the start, as bytes of 255 and a lower one that are added up, and the byte.
//!
//! Invariants
//! - Decoding gives n bytes or an error, and takes no more memory than the cursor's allowance.
//! - The streams within mode 5 are of modes 0 to 4.
//!
//! Leaves to others: which streams there are (`group.rs`).

use super::cursor::{Bytes, Cursor};
use super::decoding::Tables;
use super::huffman::{self, CodedStream, Counts, count, entropy};
use super::kernel::Kernel;
use super::lz::{self, Sequences};
use super::out::Out;
use crate::{Level, PayloadError, lz4, zstd};

const NOTHING: u8 = 0;
const STORED: u8 = 1;
const CONSTANT: u8 = 2;
pub(super) const HUFFMAN: u8 = 3;
const EXCEPTIONS: u8 = 4;
const SEQUENCES: u8 = 5;
const ZSTD: u8 = 6;
const LZ4: u8 = 7;

/// Above this entropy, in bits for each byte, a stream is stored.
const STORED_ABOVE: f32 = 7.8;
/// Below this entropy, codes of at least one bit waste space.
const SHORT_CODES: f32 = 0.35;
/// Fewer bytes are not searched for matches.
const SEARCHED_FROM: usize = 2048;
/// By matches a text shrinks to this share of its Huffman codes: above the first, a search is pointless; below the
/// second, worth its time; below the third, zstd is about as fast as LZ4 with all that follows, and finds more.
const POINTLESS: f32 = 0.97;
const WORTHWHILE: f32 = 0.55;
const REPETITIVE: f32 = 0.35;
/// Where nothing was found for a while, one position in this many is looked at. On whole databases 8 instead of 1 costs 0
/// to 2 % of the size and saves 8 to 19 % of the time (docs/decisions/pages.md).
const STEP: i32 = 8;
/// Fewer bytes are searched as a whole, more by a sample first.
const SAMPLED_FROM: usize = 32768;

/// Appends streams to a payload. One for each worker.
pub(super) struct Coder {
    pub(super) kernel: Kernel,
    level: Level,
    /// Bytes that may be spent on speed.
    spare: f32,
    /// Plain bytes that zstd was given.
    zstd_bytes: usize,
    /// The last search in each of the group's columns and texts, and which of them is next.
    searches: Vec<Search>,
    next: usize,
    lz4: lz4::Fast,
    zstd: zstd::Compressor,
    sequences: Sequences,
    room: Vec<u8>,
    block: Vec<u8>,
}

/// The finding of a search for matches in a sample.
#[derive(Default, Clone, Copy)]
struct Search {
    /// A figure of the bytes that was known without a search. If it changes by more than a share, a search is due.
    before: f32,
    /// Bytes as sequences, for each byte.
    matched: f32,
    /// Groups that may still do without a search.
    left: usize,
}

/// Groups of a layout that one search is for, and by how much what is known of their bytes may differ.
const SEARCHED_FOR: usize = 7;
const ALIKE: f32 = 0.03;

/// How text is written.
enum Choice {
    Codes,
    Sequences,
    Zstd,
}

impl Coder {
    pub(super) fn new(level: Level) -> Coder {
        Coder {
            kernel: Kernel::best(),
            level,
            spare: 0.0,
            zstd_bytes: 0,
            searches: Vec::new(),
            next: 0,
            lz4: lz4::Fast::new(),
            zstd: zstd::Compressor::new(level),
            sequences: Sequences::default(),
            room: Vec::new(),
            block: Vec::new(),
        }
    }

    /// Appends a stream whose bytes resemble each other by how often they occur, as planes do.
    pub(super) fn put(&mut self, plain: &[u8], out: &mut Out<'_>) {
        let Some((first, _)) = plain.split_first() else {
            return out.push(NOTHING);
        };
        if is_constant(plain, *first) {
            out.push(CONSTANT);
            out.number(plain.len());
            return out.push(*first);
        }
        let every = match plain.len() {
            16384.. => 8,
            4096.. => 4,
            _ => 1,
        };
        let counts = count(plain, every);
        let bits = entropy(&counts);
        if bits > STORED_ABOVE {
            return put_stored(plain, out);
        }
        if self.put_exceptions(plain, &counts, out) {
            return;
        }
        if bits < SHORT_CODES && plain.len() >= SEARCHED_FROM && self.put_lz4(plain, out) {
            return;
        }
        self.put_huffman(plain, &counts, every > 1, out);
    }

    fn put_huffman(&mut self, plain: &[u8], counts: &Counts, sampled: bool, out: &mut Out<'_>) {
        let symbols = counts.iter().filter(|count| **count > 0).count();
        if !sampled && symbols < 2 || plain.len() < 16 {
            return put_stored(plain, out);
        }
        let codes = huffman::Coded::new(self.kernel, plain, counts, sampled, &mut self.room);
        if codes.len() >= plain.len() {
            return put_stored(plain, out);
        }
        out.push(HUFFMAN);
        out.number(plain.len());
        out.number(codes.len());
        codes.put(out);
    }

    /// Appends the stream as one byte and exceptions, if nearly all bytes are that one.
    fn put_exceptions(&mut self, plain: &[u8], counts: &Counts, out: &mut Out<'_>) -> bool {
        let total: u32 = counts.iter().sum();
        let highest = counts.iter().fold(0, |highest, count| highest.max(*count));
        if highest < total - total / 32 || plain.len() < 64 {
            return false;
        }
        let most = counts
            .iter()
            .position(|count| *count == highest)
            .unwrap_or(0) as u8;
        let limit = plain.len() / 2;
        self.block.clear();
        self.block.push(most);
        let mut last = 0;
        for (i, piece) in plain.chunks(64).enumerate() {
            if is_constant(piece, most) {
                continue;
            }
            for (k, byte) in piece.iter().enumerate().filter(|(_, byte)| **byte != most) {
                let at = 64 * i + k;
                let mut gap = at - last;
                while gap >= 255 {
                    self.block.push(255);
                    gap -= 255;
                }
                self.block.extend([gap as u8, *byte]);
                last = at;
            }
            if self.block.len() > limit {
                return false;
            }
        }
        out.push(EXCEPTIONS);
        out.number(plain.len());
        out.number(self.block.len());
        out.extend(&self.block);
        true
    }

    fn put_lz4(&mut self, plain: &[u8], out: &mut Out<'_>) -> bool {
        let Some(len) = self.lz4.encode(plain, plain.len() - 1, 1, &mut self.block) else {
            return false;
        };
        out.push(LZ4);
        out.number(plain.len());
        out.number(len);
        out.extend(&self.block[..len]);
        true
    }

    /// Begins a group, of the same layout as the last one or another. About `spare` bytes were saved against zstd: so many
    /// may be spent on speed.
    pub(super) fn begin(&mut self, is_known: bool, spare: usize) {
        self.spare = match self.level {
            Level::Low => spare as f32,
            _ => 0.0,
        };
        self.next = 0;
        if !is_known {
            self.searches.clear();
        }
    }

    /// Begins the next column or text of the group.
    pub(super) fn begin_next(&mut self) {
        self.next += 1;
    }

    /// About how many bytes these take as sequences, for each byte: from a search, or from that of an earlier group. `before`
    /// is known of them without one.
    pub(super) fn matched(&mut self, before: f32, sample: &[u8]) -> f32 {
        if self.searches.len() <= self.next {
            self.searches.resize(self.next + 1, Search::default());
        }
        let search = &mut self.searches[self.next];
        if search.left > 0 && (search.before - before).abs() <= ALIKE * before {
            search.left -= 1;
            return search.matched;
        }
        let matched = self.search(sample) / sample.len() as f32;
        self.searches[self.next] = Search {
            before,
            matched,
            left: SEARCHED_FOR,
        };
        matched
    }

    /// Plain bytes that zstd was given so far.
    pub(super) fn zstd_bytes(&self) -> usize {
        self.zstd_bytes
    }

    /// Appends a stream that may repeat itself, as text does.
    pub(super) fn put_text(&mut self, plain: &[u8], out: &mut Out<'_>) {
        if plain.len() < SEARCHED_FROM {
            return self.put(plain, out);
        }
        // A short text is searched as a whole, and its sequences are there then.
        let short = plain.len() < SAMPLED_FROM;
        let window = match short {
            true => plain.len(),
            false => (plain.len() / 16).clamp(8192, 65536),
        };
        let sample = &plain[(plain.len() - window) / 2..][..window];
        let coded = estimate(sample, if window > 16384 { 4 } else { 1 });
        let matched = match short {
            true => self.search(sample),
            false => self.matched(coded / window as f32, sample) * window as f32,
        };
        match self.choice(coded, matched, plain.len() as f32 / window as f32) {
            Choice::Codes => self.put(plain, out),
            Choice::Sequences if short => self.put_split(plain.len(), out),
            Choice::Sequences if self.put_sequences(plain, out) => {}
            Choice::Zstd if self.put_zstd(plain, out) => {}
            Choice::Sequences | Choice::Zstd => self.put(plain, out),
        }
    }

    /// The fastest form that costs no more than what is spare, of so many bytes as Huffman codes and as sequences. These are
    /// for one in `scale` bytes.
    fn choice(&mut self, coded: f32, matched: f32, scale: f32) -> Choice {
        // zstd finds more than LZ4 does: prose, 5 to 9 %.
        let best = 0.93 * matched;
        let (codes, sequences) = ((coded - best) * scale, (matched - best) * scale);
        if matched > POINTLESS * coded || matched > WORTHWHILE * coded && codes <= self.spare {
            self.spare -= codes.max(0.0);
            return Choice::Codes;
        }
        if matched > REPETITIVE * coded && sequences <= self.spare {
            self.spare -= sequences;
            return Choice::Sequences;
        }
        Choice::Zstd
    }

    /// Searches `sample`; returns about how many bytes its sequences take.
    fn search(&mut self, sample: &[u8]) -> f32 {
        let Some(len) = self
            .lz4
            .encode(sample, sample.len() - 1, 1, &mut self.block)
        else {
            return f32::INFINITY;
        };
        self.sequences.split(&self.block[..len]);
        let parts = self.sequences.parts().map(|part| estimate(part, 1));
        parts.iter().sum()
    }

    fn put_sequences(&mut self, plain: &[u8], out: &mut Out<'_>) -> bool {
        let Some(len) = self
            .lz4
            .encode(plain, plain.len() - 1, STEP, &mut self.block)
        else {
            return false;
        };
        self.sequences.split(&self.block[..len]);
        self.put_split(plain.len(), out);
        true
    }

    /// Appends the sequences that were split last, of `len` plain bytes.
    fn put_split(&mut self, len: usize, out: &mut Out<'_>) {
        let sequences = std::mem::take(&mut self.sequences);
        out.push(SEQUENCES);
        out.number(len);
        for part in sequences.parts() {
            self.put_inner(part, out);
        }
        self.sequences = sequences;
    }

    /// As [`Coder::put`], without matches.
    fn put_inner(&mut self, plain: &[u8], out: &mut Out<'_>) {
        let Some((first, _)) = plain.split_first() else {
            return out.push(NOTHING);
        };
        if is_constant(plain, *first) {
            out.push(CONSTANT);
            out.number(plain.len());
            return out.push(*first);
        }
        let every = if plain.len() >= 32768 { 4 } else { 1 };
        let counts = count(plain, every);
        if entropy(&counts) > STORED_ABOVE {
            return put_stored(plain, out);
        }
        self.put_huffman(plain, &counts, every > 1, out);
    }

    /// Appends bytes of which nothing is known.
    pub(super) fn put_any(&mut self, plain: &[u8], out: &mut Out<'_>) {
        if plain.len() < 64 || !self.put_zstd(plain, out) {
            put_stored(plain, out);
        }
    }

    fn put_zstd(&mut self, plain: &[u8], out: &mut Out<'_>) -> bool {
        let bound = zstd::stored_len(plain.len());
        if self.block.len() < bound {
            self.block.resize(bound, 0);
        }
        self.zstd_bytes += plain.len();
        let frame = self.zstd.compress(plain, &mut self.block[..bound]);
        if frame.stored {
            return false;
        }
        out.push(ZSTD);
        out.number(plain.len());
        out.number(frame.len);
        out.extend(&self.block[..frame.len]);
        true
    }
}

/// Bytes that Huffman codes would take, by the entropy, with their lengths.
fn estimate(bytes: &[u8], every: usize) -> f32 {
    entropy(&count(bytes, every)) / 8.0 * bytes.len() as f32
}

pub(super) fn is_constant(bytes: &[u8], value: u8) -> bool {
    let (pieces, rest) = bytes.as_chunks::<64>();
    rest.iter().all(|byte| *byte == value)
        && pieces
            .iter()
            .all(|piece| piece.iter().fold(0, |other, byte| other | (byte ^ value)) == 0)
}

fn put_stored(plain: &[u8], out: &mut Out<'_>) {
    out.push(STORED);
    out.number(plain.len());
    out.extend(plain);
}

/// Takes streams from a payload. One for each worker.
pub(super) struct Decoder {
    pub(super) kernel: Kernel,
    tables: [Tables; 2],
    zstd: zstd::Decompressor,
    parts: [Bytes; 5],
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder {
            kernel: Kernel::best(),
            tables: [Tables::new(), Tables::new()],
            zstd: zstd::Decompressor::new(),
            parts: Default::default(),
        }
    }

    /// Reads the next stream, of at least one byte, into the start of `plain`; returns its length. Only the two modes that
    /// are written for bytes of which nothing is known.
    pub(super) fn get_other(
        &mut self,
        cursor: &mut Cursor<'_>,
        plain: &mut [u8],
    ) -> Result<usize, PayloadError> {
        let mode = cursor.byte()?;
        let len = cursor.promised()?;
        let Some(plain) = plain.get_mut(..len).filter(|plain| !plain.is_empty()) else {
            return Err(cursor.error("groups are longer than the buffer, or empty"));
        };
        match mode {
            STORED => plain.copy_from_slice(cursor.take(len)?),
            ZSTD => {
                let coded = cursor.number()?;
                let frame = cursor.take(coded)?;
                let start = cursor.at() - coded;
                self.zstd
                    .decompress(frame, plain)
                    .map_err(|e| e.shifted(start))?;
            }
            _ => return Err(cursor.error("other bytes are neither stored nor a zstd frame")),
        }
        Ok(len)
    }

    /// Bytes of memory that streams of sequences left.
    pub(super) fn memory(&self) -> usize {
        self.parts.iter().map(Bytes::memory).sum()
    }

    pub(super) fn forget(&mut self) {
        self.parts = Default::default();
    }

    /// Replaces `plain` by the next stream.
    pub(super) fn get(
        &mut self,
        cursor: &mut Cursor<'_>,
        plain: &mut Bytes,
    ) -> Result<(), PayloadError> {
        self.together(|decoder, pending| decoder.put_off(cursor, plain, pending))
    }

    /// Replaces `a` and `b` by the next two streams. A stream that is pending elsewhere is perhaps decoded with one of them.
    pub(super) fn get_two(
        &mut self,
        cursor: &mut Cursor<'_>,
        a: &mut Bytes,
        b: &mut Bytes,
        other: &mut Pending<'_, '_>,
    ) -> Result<(), PayloadError> {
        self.together_with(other, |decoder, pending| {
            decoder.put_off(cursor, a, pending)?;
            decoder.put_off(cursor, b, pending)
        })
    }

    /// As [`Decoder::get`], but codes may be decoded later, together with those of another stream.
    pub(super) fn put_off<'a, 'p>(
        &mut self,
        cursor: &mut Cursor<'a>,
        plain: &'p mut Bytes,
        pending: &mut Pending<'a, 'p>,
    ) -> Result<(), PayloadError> {
        let head = StreamHead::read(cursor)?;
        cursor.sized(plain, head.len)?;
        self.body(head, cursor, plain, pending)
    }

    /// Decodes a stream whose head was read into `plain`, which has its length, or adds it to what is pending.
    pub(super) fn body<'a, 'p>(
        &mut self,
        head: StreamHead,
        cursor: &mut Cursor<'a>,
        plain: &'p mut [u8],
        pending: &mut Pending<'a, 'p>,
    ) -> Result<(), PayloadError> {
        let wrong = |what| PayloadError::at(head.at, what);
        match head.mode {
            NOTHING => {}
            STORED => plain.copy_from_slice(cursor.take(head.len)?),
            CONSTANT => plain.fill(cursor.byte()?),
            HUFFMAN => {
                let coded = framed(head, cursor)?;
                let job = CodedStream::new(coded, cursor.at() - coded.len(), plain);
                match pending.0.take() {
                    None => pending.0 = Some(job),
                    Some(first) => {
                        huffman::decode_two(self.kernel, &mut self.tables, first, job)?;
                    }
                }
            }
            EXCEPTIONS => {
                let Some((most, gaps)) = framed(head, cursor)?.split_first() else {
                    return Err(cursor.error("exceptions without their byte"));
                };
                plain.fill(*most);
                if !excepted(gaps, plain) {
                    return Err(cursor.error("an exception is outside of its stream"));
                }
            }
            SEQUENCES => {
                let mut parts = std::mem::take(&mut self.parts);
                let read = self.sequences(cursor, &mut parts);
                let [a, b, c, d, e] = &parts;
                let joined = read.map(|()| lz::join([a, b, c, d, e], plain));
                self.parts = parts;
                joined?.ok_or(wrong("sequences do not give their length"))?;
            }
            ZSTD => {
                let frame = framed(head, cursor)?;
                let start = cursor.at() - frame.len();
                self.zstd
                    .decompress(frame, plain)
                    .map_err(|e| e.shifted(start))?;
            }
            LZ4 => match lz4::decode_block(framed(head, cursor)?, plain) {
                Some(decoded) if decoded == head.len => {}
                _ => return Err(wrong("LZ4 block does not give its length")),
            },
            _ => return Err(cursor.error("a stream has a mode that is not known")),
        }
        Ok(())
    }

    /// Reads the five parts of sequences.
    fn sequences(
        &mut self,
        cursor: &mut Cursor<'_>,
        parts: &mut [Bytes; 5],
    ) -> Result<(), PayloadError> {
        self.together(|decoder, pending| {
            for part in parts {
                let head = StreamHead::read(cursor)?;
                if head.mode > EXCEPTIONS {
                    return Err(cursor.error("a stream has a mode that is not known"));
                }
                cursor.sized(part, head.len)?;
                decoder.body(head, cursor, part, pending)?;
            }
            Ok(())
        })
    }

    /// Reads streams, and decodes what `read` leaves pending.
    pub(super) fn together<'a, 'p>(
        &mut self,
        read: impl FnOnce(&mut Decoder, &mut Pending<'a, 'p>) -> Result<(), PayloadError>,
    ) -> Result<(), PayloadError> {
        let mut pending = Pending(None);
        read(self, &mut pending)?;
        match pending.0 {
            Some(job) => huffman::decode(self.kernel, &mut self.tables[0], job),
            None => Ok(()),
        }
    }

    /// As [`Decoder::together`], but what `read` leaves pending is decoded with what is pending elsewhere.
    pub(super) fn together_with<'a, 'p>(
        &mut self,
        other: &mut Pending<'_, '_>,
        read: impl FnOnce(&mut Decoder, &mut Pending<'a, 'p>) -> Result<(), PayloadError>,
    ) -> Result<(), PayloadError> {
        let mut pending = Pending(None);
        read(self, &mut pending)?;
        let Some(job) = pending.0 else {
            return Ok(());
        };
        match other.0.take() {
            Some(other) => huffman::decode_two(self.kernel, &mut self.tables, other, job),
            None => huffman::decode(self.kernel, &mut self.tables[0], job),
        }
    }
}

/// A stream in codes that waits for another one, as two are decoded faster together. Made by [`Decoder::together`] alone, which
/// leaves none undone.
pub(super) struct Pending<'a, 'p>(Option<CodedStream<'a, 'p>>);

/// How a stream is coded, and its plain length.
#[derive(Clone, Copy)]
pub(super) struct StreamHead {
    mode: u8,
    pub(super) len: usize,
    /// Where it begins.
    at: usize,
}

impl StreamHead {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<StreamHead, PayloadError> {
        let at = cursor.at();
        let mode = cursor.byte()?;
        let len = match mode {
            NOTHING => 0,
            _ => cursor.promised()?,
        };
        Ok(StreamHead { mode, len, at })
    }
}

/// The coded bytes.
fn framed<'a>(head: StreamHead, cursor: &mut Cursor<'a>) -> Result<&'a [u8], PayloadError> {
    let coded = cursor.number()?;
    if head.len == 0 {
        return Err(cursor.error("a coded stream is empty"));
    }
    cursor.take(coded)
}

fn excepted(mut gaps: &[u8], plain: &mut [u8]) -> bool {
    let mut at = 0;
    while let [gap, rest @ ..] = gaps {
        at += usize::from(*gap);
        gaps = rest;
        if *gap == 255 {
            continue;
        }
        let ([byte, rest @ ..], Some(place)) = (gaps, plain.get_mut(at)) else {
            return false;
        };
        *place = *byte;
        gaps = rest;
    }
    true
}
