//! Writes parity stripes: each on a thread of its own, which takes the chunks of rows.
//!
//! Invariants
//! - A parity stripe has its trailer only after the last row, the data and the trailers of all data stripes are durable.
//! - Chunks that wait for a device are bounded by the pool of their buffers.
//! - The record of a row is the same on all parity stripes, and so is the place of everything in them.
//!
//! Leaves to others: making the rows (`rows.rs`), and the order of syncs (`set_writer.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use longshore_crypt::Root;
use longshore_io::{Buffer, crc32c_append};

use crate::Error;
use crate::device::{FamilyWrite, NamedStripe, Settle};
use crate::header::{MediaHeader, RootProof, SetHeader, SetTrailer};
use crate::index::{self, RowRef};
use crate::record::RecordKind;

use super::row::{CONTAINER, RowRecord, chunk_head};

/// One parity stripe being written.
pub(crate) struct ParityStripe {
    write: Box<dyn FamilyWrite>,
    device: String,
    /// The number of the parity family among those, from 0.
    number: usize,
    set_offset: u64,
    chain_crc: u32,
    index: index::Builder,
}

impl ParityStripe {
    /// Writes the two headers.
    pub fn begin(
        mut write: Box<dyn FamilyWrite>,
        device: String,
        media: &MediaHeader,
        set: &SetHeader,
    ) -> Result<ParityStripe, Error> {
        let mut start = CONTAINER.preamble().to_vec();
        CONTAINER.append(RecordKind::Media, &media.encode(), &mut start);
        write.write(&start)?;
        let set_offset = write.offset();
        let mut header = Vec::new();
        CONTAINER.append(RecordKind::Set, &set.encode(), &mut header);
        write.write(&header)?;
        Ok(ParityStripe {
            write,
            device,
            number: usize::from(media.family - media.family_count) - 1,
            set_offset,
            chain_crc: 0,
            index: index::Builder::default(),
        })
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    /// Writes the next row: its record, whose place is here, and this stripe's chunk.
    pub fn put_row(&mut self, record: &RowRecord, chunk: &[u8]) -> Result<(), Error> {
        let record = RowRecord {
            at: self.write.offset(),
            ..record.clone()
        };
        let body = record.encode();
        let mut framed = Vec::new();
        CONTAINER.append(RecordKind::Parity, &body, &mut framed);
        framed.extend_from_slice(&chunk_head(record.chunk_len));
        self.write.write(&framed)?;
        self.write.write(chunk)?;
        let mut link = [0; 12];
        link[..8].copy_from_slice(&record.row.to_le_bytes());
        link[8..].copy_from_slice(&record.chunk_crcs[self.number].to_le_bytes());
        self.chain_crc = crc32c_append(self.chain_crc, &link);
        let len = record.stored_len() as u32;
        self.index.add(RowRef {
            sequence: record.row,
            offset: record.at,
            len,
            plain_len: record.chunk_len,
            digest: None,
            manifest: &body,
        });
        match self.index.is_full() {
            true => self.put_index(),
            false => Ok(()),
        }
    }

    fn put_index(&mut self) -> Result<(), Error> {
        let chunk = self.index.flush(CONTAINER, self.write.offset());
        self.write.write(&chunk)
    }

    /// Writes the rest of the index, after the last row.
    pub fn end_rows(&mut self) -> Result<(), Error> {
        match self.index.is_empty() {
            true => Ok(()),
            false => self.put_index(),
        }
    }

    /// Writes the record that ends the set: everything before it must be durable, on all stripes. `root` is that of an
    /// encrypted set; there is no MAC, since a repair has no key.
    pub fn put_trailer(&mut self, whole: &SetTrailer, root: Option<Root>) -> Result<(), Error> {
        let (index_offset, index_len) = self.index.last();
        let trailer = SetTrailer {
            set_offset: self.set_offset,
            index_offset,
            index_len,
            chain_crc: self.chain_crc,
            proof: root.map(|root| RootProof { mac: [0; 32], root }),
            ..whole.clone()
        };
        let mut record = Vec::new();
        CONTAINER.append(RecordKind::Trailer, &trailer.encode(), &mut record);
        self.write.write(&record)
    }

    /// [`FamilyWrite::settle`].
    pub fn settle(&mut self, how: Settle) -> Result<(), Error> {
        self.write.settle(how)
    }

    /// Makes everything written so far durable.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.write.sync()
    }

    pub fn keep(&mut self) {
        self.write.keep();
    }

    pub fn into_stripe(self) -> NamedStripe {
        (self.device, self.write)
    }
}

/// A row on its way to one parity stripe.
pub(crate) struct Cut {
    pub record: Arc<RowRecord>,
    pub chunk: Buffer,
}

/// Rows that may wait for one parity stripe. The pool of their buffers allows no more.
const WAITING: usize = 2;

/// A parity stripe and the thread that writes it.
pub(crate) struct ParityWriter {
    /// `None` when no more rows will come.
    orders: Option<SyncSender<Cut>>,
    thread: Option<JoinHandle<Option<ParityStripe>>>,
}

impl ParityWriter {
    /// Starts the thread. `room` falls with the bytes that the stripe may still have. `failed` gets the error if the
    /// stripe cannot be written: rows that come later are dropped.
    pub fn start(
        stripe: ParityStripe,
        room: Arc<AtomicU64>,
        failed: impl FnOnce(Error) + Send + 'static,
    ) -> Result<ParityWriter, Error> {
        let device = stripe.device.clone();
        let (orders, ordered) = sync_channel(WAITING);
        let work = move || match write_all(stripe, &room, &ordered) {
            Ok(stripe) => Some(stripe),
            Err(error) => {
                failed(error);
                None
            }
        };
        let spawned = std::thread::Builder::new()
            .name("parity".into())
            .spawn(work);
        let thread = spawned.map_err(|source| Error::Io {
            action: "start a thread for",
            device,
            offset: 0,
            source,
        })?;
        Ok(ParityWriter {
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Hands over a row; false: the thread has failed.
    pub fn put(&self, cut: Cut) -> bool {
        let orders = self.orders.as_ref();
        orders.is_some_and(|orders| orders.send(cut).is_ok())
    }

    /// The stripe, when it has all rows and the index; `None` if it has failed.
    pub fn end(mut self) -> Option<ParityStripe> {
        self.orders = None;
        self.thread.take()?.join().ok()?
    }
}

impl Drop for ParityWriter {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The set is given up, and so is the stripe.
            let _ = thread.join();
        }
    }
}

fn write_all(
    mut stripe: ParityStripe,
    room: &AtomicU64,
    ordered: &Receiver<Cut>,
) -> Result<ParityStripe, Error> {
    room.fetch_min(stripe.write.room(), Ordering::Relaxed);
    for cut in ordered {
        let len = cut.record.chunk_len as usize;
        stripe.put_row(&cut.record, &cut.chunk[..len])?;
        room.fetch_min(stripe.write.room(), Ordering::Relaxed);
    }
    stripe.end_rows()?;
    Ok(stripe)
}
