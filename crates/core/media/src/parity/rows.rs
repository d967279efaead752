//! The rows of a set being written: bytes of data stripes are added to the parity of the open row as they are written.
//!
//! Invariants
//! - A row ends when one stripe has given `row_bytes`; the others give what they have, down to nothing. So no stripe
//!   waits for another.
//! - Each byte that a stripe was given is in exactly one row, in order.
//! - Memory is three rows of parity: one is open, and two may wait for their devices. A data stripe waits only if a
//!   parity stripe's device is behind by that much.
//!
//! Leaves to others: the code (`longshore-parity`), and writing parity stripes (`stripe.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_io::{Buffer, Pool, crc32c_append};
use longshore_parity::{Outputs, coefficient, combine};
use uuid::Uuid;

use crate::Error;
use crate::device::{FamilyWrite, LastLook, Settle};

use super::row::{ROW_BYTES, RowRecord, Span};
use super::stripe::{Cut, ParityStripe, ParityWriter};

/// Rows in memory.
const ROWS: usize = 3;
/// Bytes that are added while other stripes wait.
const PIECE: usize = 64 << 10;

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
    fn add(&self, stripe: usize, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let mut open = self.open();
            while open.sums.len() < self.parity {
                match self.pool.take() {
                    Some(buffer) => open.sums.push(buffer),
                    None => break,
                }
            }
            if self.failure.has_failed.load(Ordering::Acquire) {
                return self.failure.take().map_or(Ok(()), Err);
            }
            let there = open.spans[stripe].len as usize;
            let room = self.row_bytes as usize - there;
            let (piece, rest) = bytes.split_at(bytes.len().min(room).min(PIECE));
            bytes = rest;
            open.fold(stripe, there, piece);
            if open.spans[stripe].len == self.row_bytes {
                self.cut(open);
            }
        }
        Ok(())
    }

    /// Ends the row and hands it over. Others may add to the next one meanwhile.
    fn cut(&self, mut open: MutexGuard<'_, OpenRow>) {
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
        let crc = |sum: &Buffer| longshore_io::crc32c(&sum[..chunk_len as usize]);
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
    /// Adds bytes of one stripe at offset `there` of the row.
    fn fold(&mut self, stripe: usize, there: usize, piece: &[u8]) {
        let end = there + piece.len();
        // Bytes that no stripe has given yet are not cleared, but written.
        let known = (self.longest as usize).clamp(there, end);
        let factors: Vec<u8> = (0..self.sums.len())
            .map(|parity| coefficient(parity, stripe))
            .collect();
        for (range, start) in [
            (there..known, Outputs::Present),
            (known..end, Outputs::Zeros),
        ] {
            let source = &piece[range.start - there..range.end - there];
            let mut outs: Vec<&mut [u8]> = self
                .sums
                .iter_mut()
                .map(|sum| &mut sum[range.clone()])
                .collect();
            combine(&mut outs, &factors, &[source], start);
        }
        let span = &mut self.spans[stripe];
        span.crc = crc32c_append(span.crc, piece);
        span.len = end as u32;
        self.longest = self.longest.max(span.len);
    }
}

/// A data stripe whose bytes are added to the rows as they are written.
pub(crate) struct Tap {
    pub write: Box<dyn FamilyWrite>,
    pub rows: Arc<Rows>,
    /// The number of the data stripe, from 0.
    pub stripe: usize,
}

impl FamilyWrite for Tap {
    fn offset(&self) -> u64 {
        self.write.offset()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write.write(bytes)?;
        self.rows.add(self.stripe, bytes)
    }

    fn room(&self) -> u64 {
        // A parity stripe is as long as the longest data stripe, or longer.
        let parity = self.rows.room.load(Ordering::Relaxed);
        self.write.room().min(parity)
    }

    fn settle(&mut self, how: Settle) -> Result<(), Error> {
        self.write.settle(how)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.write.sync()
    }

    fn keep(&mut self) {
        self.write.keep();
    }

    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error> {
        self.write.complete()
    }
}
