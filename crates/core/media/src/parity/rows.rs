//! The rows of a set being written: bytes of data stripes are added to the parity of the open row as they are written.
//!
//! Invariants
//! - A row ends when one stripe has given `row_bytes`; the others give what they have, down to nothing. So no stripe
//!   waits for another.
//! - Each byte that a stripe was given is in exactly one row, in order.
//! - Memory is three rows of parity: one is open, and two may wait for their devices. A data stripe waits only if a
//!   parity stripe's device is behind by that much.
//! - Bytes that are shared may be held until a few stripes have given the same part of the row: the sums, which no cache
//!   of a core holds, are then read and written once for all of them. Nobody waits for that. At most [`HELD_BLOCKS`] are
//!   held.
//!
//! Leaves to others: the code (`longshore-parity`), and writing parity stripes (`stripe.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_io::{Buffer, Pool, crc32c, crc32c_append, crc32c_join};
use longshore_parity::{Outputs, coefficient, combine};
use uuid::Uuid;

use crate::Error;
use crate::device::SharedBytes;

use super::row::{ROW_BYTES, RowRecord, Span};
use super::stripe::{Cut, ParityStripe, ParityWriter};

/// Rows in memory.
const ROWS: usize = 3;
/// Bytes that are added while other stripes wait, unless they are shared.
const PIECE: usize = 64 << 10;
/// The most parts of shared buffers that wait for others. With twice as many the sums take a tenth less time, and three
/// are a small part of the pool from which they come.
pub const HELD_BLOCKS: usize = 3;

/// The memory of a set's rows, with `parity` parity stripes.
pub(crate) fn memory_bytes(parity: u16) -> u64 {
    ROWS as u64 * u64::from(parity) * u64::from(ROW_BYTES)
}

/// The rows of a set being written.
pub(crate) struct Rows {
    row_bytes: u32,
    parity: usize,
    pool: Pool,
    /// The first parity stripe's, for messages.
    device: String,
    open: Mutex<OpenRow>,
    /// Locked before a row that has ended is left, so that rows are handed over in their order.
    writers: Mutex<Vec<ParityWriter>>,
    failure: Arc<Failure>,
    /// The bytes that the parity stripes may still have.
    room: Arc<AtomicU64>,
}

/// Why a parity stripe cannot be written.
#[derive(Default)]
struct Failure {
    has_failed: AtomicBool,
    /// Until somebody has taken it.
    error: Mutex<Option<Error>>,
}

impl Failure {
    fn put(&self, error: Error) {
        let mut place = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Error> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

struct OpenRow {
    set: Uuid,
    row: u64,
    spans: Vec<Span>,
    longest: u32,
    /// The chunks so far; none before the first byte of the row.
    sums: Vec<Buffer>,
    /// Bytes of each chunk that are sums; the others are of no meaning.
    summed: usize,
    /// Parts of the row that are in the spans and not in the sums.
    held: Vec<Held>,
}

/// Bytes of a data stripe that wait for others.
struct Held {
    stripe: usize,
    /// Offset in the row.
    there: usize,
    bytes: SharedBytes,
}

/// Bytes that a data stripe was given.
#[derive(Clone, Copy)]
enum Given<'a> {
    Lent(&'a [u8]),
    Shared(&'a SharedBytes),
}

impl Rows {
    /// Starts a thread for each of `stripes`, which have their headers.
    pub fn begin(
        stripes: Vec<ParityStripe>,
        data: usize,
        set: Uuid,
        row_bytes: u32,
    ) -> Result<Rows, Error> {
        let device = stripes[0].device().to_owned();
        let parity = stripes.len();
        let pool = Pool::new(ROWS * parity, row_bytes as usize);
        let pool = pool.map_err(|source| Error::Io {
            action: "get memory for",
            device: device.clone(),
            offset: 0,
            source,
        })?;
        let failure = Arc::new(Failure::default());
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let start = |stripe| {
            let (failure, pool) = (failure.clone(), pool.clone());
            ParityWriter::start(stripe, room.clone(), move |error| {
                failure.put(error);
                // Nobody waits for a buffer that does not come back.
                pool.close();
            })
        };
        let writers = stripes.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Rows {
            row_bytes,
            parity,
            pool,
            device,
            open: Mutex::new(OpenRow {
                set,
                row: 0,
                spans: vec![Span::default(); data],
                longest: 0,
                sums: Vec::new(),
                summed: 0,
                held: Vec::new(),
            }),
            writers: Mutex::new(writers),
            failure,
            room,
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenRow> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next bytes of a data stripe.
    ///
    /// Errors: that of a parity stripe that cannot be written, once. Afterwards nothing is added, and [`Rows::end`] fails.
    fn add(&self, stripe: usize, given: Given) -> Result<(), Error> {
        // A checksum of many bytes is made while others may add theirs.
        let (bytes, whole_crc) = match given {
            Given::Lent(bytes) => (bytes, None),
            Given::Shared(shared) => (&**shared, Some(crc32c(shared))),
        };
        let mut at = 0;
        while at < bytes.len() {
            let mut open = self.open();
            while open.sums.len() < self.parity {
                match self.pool.take() {
                    Some(buffer) => open.sums.push(buffer),
                    None => break,
                }
            }
            if self.failure.has_failed.load(Ordering::Acquire) {
                open.held.clear();
                return self.failure.take().map_or(Ok(()), Err);
            }
            let room = self.row_bytes as usize - open.spans[stripe].len as usize;
            let end = bytes.len().min(at + room);
            at = match given {
                Given::Lent(_) => {
                    let end = end.min(at + PIECE);
                    open.add(stripe, &bytes[at..end]);
                    end
                }
                Given::Shared(shared) => {
                    let crc = whole_crc.filter(|_| end - at == bytes.len());
                    open.hold(stripe, shared.part(at..end), crc);
                    end
                }
            };
            if open.spans[stripe].len == self.row_bytes {
                self.cut(open);
            }
        }
        Ok(())
    }

    /// Ends the row and hands it over. Others may add to the next one meanwhile.
    fn cut(&self, mut open: MutexGuard<'_, OpenRow>) {
        open.fold_held();
        open.summed = 0;
        let chunk_len = open.longest;
        let sums = std::mem::take(&mut open.sums);
        let mut record = RowRecord {
            set: open.set,
            row: open.row,
            at: 0,
            row_bytes: self.row_bytes,
            chunk_len,
            spans: open.spans.clone(),
            chunk_crcs: Vec::new(),
        };
        open.row += 1;
        open.longest = 0;
        for span in &mut open.spans {
            *span = Span {
                offset: span.offset + u64::from(span.len),
                ..Span::default()
            };
        }
        let writers = self.writers();
        drop(open);
        let crc = |sum: &Buffer| crc32c(&sum[..chunk_len as usize]);
        record.chunk_crcs = sums.iter().map(crc).collect();
        let record = Arc::new(record);
        for (writer, chunk) in writers.iter().zip(sums) {
            let record = record.clone();
            // If a thread has failed, its end tells why.
            let _taken = writer.put(Cut { record, chunk });
        }
    }

    fn writers(&self) -> MutexGuard<'_, Vec<ParityWriter>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the last row, and waits until every parity stripe has all rows and its index.
    pub fn end(&self) -> Result<Vec<ParityStripe>, Error> {
        let open = self.open();
        if open.longest > 0 {
            self.cut(open);
        }
        let writers = std::mem::take(&mut *self.writers());
        // All threads end, whichever of them failed.
        let ended: Vec<_> = writers.into_iter().map(ParityWriter::end).collect();
        let stripes: Option<Vec<_>> = ended.into_iter().collect();
        let gone = || Error::Io {
            action: "write",
            device: self.device.clone(),
            offset: 0,
            source: std::io::Error::other("a parity stripe could not be written"),
        };
        let failed = || self.failure.take().unwrap_or_else(gone);
        stripes
            .filter(|_| !self.failure.has_failed.load(Ordering::Acquire))
            .ok_or_else(failed)
    }
}

impl OpenRow {
    /// Adds the next bytes of one stripe.
    fn add(&mut self, stripe: usize, bytes: &[u8]) {
        self.fold_held();
        let there = self.note(stripe, bytes.len(), |crc| crc32c_append(crc, bytes));
        self.fold(&[(stripe, there, bytes)]);
    }

    /// Adds the next bytes of one stripe, or keeps them until others come. `crc` is theirs, where it is known.
    fn hold(&mut self, stripe: usize, bytes: SharedBytes, crc: Option<u32>) {
        let crc = crc.unwrap_or_else(|| crc32c(&bytes));
        let len = bytes.len();
        let there = self.note(stripe, len, |before| crc32c_join(before, crc, len as u64));
        self.held.push(Held {
            stripe,
            there,
            bytes,
        });
        if self.held.len() > HELD_BLOCKS {
            self.fold_held();
        }
    }

    /// Adds the next `len` bytes of a stripe to its span; returns their offset in the row.
    fn note(&mut self, stripe: usize, len: usize, crc: impl FnOnce(u32) -> u32) -> usize {
        let span = &mut self.spans[stripe];
        let there = span.len as usize;
        span.crc = crc(span.crc);
        span.len += len as u32;
        self.longest = self.longest.max(span.len);
        there
    }

    /// Adds all bytes that are held to the sums, and gives their buffers back.
    fn fold_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        let parts: Vec<(usize, usize, &[u8])> = held
            .iter()
            .map(|part| (part.stripe, part.there, &*part.bytes))
            .collect();
        self.fold(&parts);
    }

    /// Adds parts of stripes, with their offsets in the row, to the sums. Together with the sums they leave no gap.
    fn fold(&mut self, parts: &[(usize, usize, &[u8])]) {
        let end = |(_, there, bytes): &(usize, usize, &[u8])| there + bytes.len();
        let ends = parts.iter().flat_map(|part| [part.1, end(part)]);
        let mut cuts: Vec<usize> = ends.chain([self.summed]).collect();
        cuts.sort_unstable();
        for cut in cuts.windows(2) {
            let range = cut[0]..cut[1];
            // Each of these parts has all bytes of the range, since none begins or ends within it.
            let parts = parts
                .iter()
                .filter(|part| part.1 <= range.start && range.end <= end(part));
            let (stripes, sources): (Vec<usize>, Vec<&[u8]>) = parts
                .map(|(stripe, there, bytes)| {
                    (*stripe, &bytes[range.start - there..range.end - there])
                })
                .unzip();
            if range.is_empty() || sources.is_empty() {
                continue;
            }
            // Bytes that no stripe has given yet are not cleared, but written.
            let start = match range.start < self.summed {
                true => Outputs::Present,
                false => Outputs::Zeros,
            };
            let factors: Vec<u8> = (0..self.sums.len())
                .flat_map(|parity| {
                    stripes
                        .iter()
                        .map(move |stripe| coefficient(parity, *stripe))
                })
                .collect();
            let sums = self.sums.iter_mut();
            let mut outs: Vec<&mut [u8]> = sums.map(|sum| &mut sum[range.clone()]).collect();
            combine(&mut outs, &factors, &sources, start);
        }
        self.summed = self.summed.max(parts.iter().map(end).max().unwrap_or(0));
    }
}

/// The way from a data stripe to the rows: all bytes of the stripe, in order.
pub(crate) struct Tap {
    pub rows: Arc<Rows>,
    /// The number of the data stripe, from 0.
    pub stripe: usize,
}

impl Tap {
    /// Adds the next bytes.
    ///
    /// Errors: that of a parity stripe, once.
    pub fn lend(&self, bytes: &[u8]) -> Result<(), Error> {
        self.rows.add(self.stripe, Given::Lent(bytes))
    }

    /// [`Tap::lend`] of bytes that may be kept.
    pub fn share(&self, bytes: &SharedBytes) -> Result<(), Error> {
        self.rows.add(self.stripe, Given::Shared(bytes))
    }

    /// How many more bytes each parity stripe may have.
    pub fn room(&self) -> u64 {
        self.rows.room.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use longshore_kit::Random;
    use longshore_parity::product;

    use super::*;

    const ROW: usize = 5000;

    fn row(data: usize, parity: usize) -> OpenRow {
        let pool = Pool::new(parity, ROW).unwrap();
        let mut sums: Vec<Buffer> = std::iter::from_fn(|| pool.try_take()).collect();
        // Bytes of an earlier row.
        sums.iter_mut().for_each(|sum| sum.fill(0x5a));
        OpenRow {
            set: Uuid::nil(),
            row: 0,
            spans: vec![Span::default(); data],
            longest: 0,
            sums,
            summed: 0,
            held: Vec::new(),
        }
    }

    /// Goal: whichever bytes are lent or shared, and wherever each stripe is, a row's sums are what the definition says, its spans
    /// are those of the bytes, and no more buffers stay away than promised.
    #[test]
    fn a_row_is_the_same_whatever_was_held() {
        let mut numbers = Random(11);
        for round in 0..400 {
            let (data, parity) = (1 + numbers.below(9), 1 + numbers.below(4));
            let mut row = row(data, parity);
            let pool = Pool::new(HELD_BLOCKS + 1, 4096).unwrap();
            let mut stripes = vec![Vec::new(); data];
            for _ in 0..numbers.below(60) {
                let stripe = numbers.below(data);
                let len = 1 + numbers.below(900);
                let bytes = numbers.bytes(len);
                if stripes[stripe].len() + bytes.len() > ROW {
                    continue;
                }
                stripes[stripe].extend_from_slice(&bytes);
                if numbers.below(5) == 0 {
                    row.add(stripe, &bytes);
                    continue;
                }
                let mut buffer = pool.try_take().expect("a buffer that came back");
                let at = numbers.below(70);
                buffer[at..][..bytes.len()].copy_from_slice(&bytes);
                let shared = SharedBytes::new(buffer, at..at + bytes.len());
                let crc = (numbers.below(2) == 0).then(|| crc32c(&bytes));
                row.hold(stripe, shared, crc);
                assert!(row.held.len() <= HELD_BLOCKS);
            }
            row.fold_held();
            assert_eq!(pool.free(), HELD_BLOCKS + 1);
            let longest = stripes.iter().map(Vec::len).max().unwrap();
            assert_eq!((row.longest as usize, row.summed), (longest, longest));
            for (span, bytes) in row.spans.iter().zip(&stripes) {
                assert_eq!((span.len as usize, span.crc), (bytes.len(), crc32c(bytes)));
            }
            for (j, sum) in row.sums.iter().enumerate() {
                for (at, byte) in sum[..longest].iter().enumerate() {
                    let term = |(i, bytes): (usize, &Vec<u8>)| {
                        let byte = bytes.get(at).copied().unwrap_or(0);
                        product(coefficient(j, i), byte)
                    };
                    let terms = stripes.iter().enumerate().map(term);
                    let wanted = terms.fold(0, |a, b| a ^ b);
                    assert_eq!(*byte, wanted, "round {round}, parity {j}, byte {at}");
                }
            }
        }
    }
}
