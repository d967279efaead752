//! The workers: each checks a block's stored bytes, decodes it, and checks the plain bytes.
//!
//! Invariants
//! - A worker computes only while it holds its turn, and waits for anything else without it.
//! - A block that the sink does not want is not decoded.
//!
//! Leaves to others: where to decode to (`way.rs`), accelerators (`fetch.rs`), and passing blocks to the sink
//! (`shared.rs`, and the writers of `mod.rs`).

use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use longshore_codec::Decompressor;
use longshore_io::{Buffer, Turn, copy_nontemporal, crc32c};
use longshore_media::{Error as MediaError, Item, manifest};

use super::shared::{DecodedBlock, Read, UnloadShared, WantedBlock};
use super::way::Way;
use crate::Error;
use crate::measure::lap;

/// A block that was looked at, and a buffer to decode it into.
struct CheckedBlock {
    read: Read,
    /// `None` when the sink does not want it.
    items: Result<Option<Vec<Item>>, MediaError>,
    plain: Buffer,
}

/// The things that only one worker uses.
struct Worker<'a> {
    shared: &'a UnloadShared<'a>,
    decompressor: Decompressor,
    /// Stays in the core's cache.
    hot: Buffer,
    turn: Option<Turn<'a>>,
}

impl UnloadShared<'_> {
    /// One worker. A block to be written is decoded into a buffer that devices read, or into the worker's own and
    /// copied, as [`Ways`](super::way::Ways) decides. Other blocks are always decoded into the worker's own buffer, which
    /// stays in the core's cache.
    pub(super) fn decode_all(
        &self,
        receive: Receiver<Read>,
        send: Sender<DecodedBlock>,
    ) -> Result<(), Error> {
        let Some(hot) = self.hots.take() else {
            return Ok(());
        };
        let mut worker = Worker {
            shared: self,
            decompressor: Decompressor::new(),
            hot,
            turn: None,
        };
        while let Some(read) = worker.next_read(&receive) {
            if self.crew.has_failed() {
                return Ok(());
            }
            worker.throttle(&read);
            let Some(plain) = worker.take_plain() else {
                return Ok(());
            };
            let Some(checked) = worker.look_or_offer(read, plain) else {
                continue;
            };
            if !worker.pass_on(checked, &send)? {
                return Ok(());
            }
            if self.limited {
                worker.turn = None;
            }
        }
        Ok(())
    }

    /// Decodes the block's manifest, checks its stored bytes, and decrypts them if they are encrypted; `None` if the sink
    /// does not want it.
    fn look(&self, read: &mut Read) -> Result<Option<Vec<Item>>, MediaError> {
        if self.stored_only {
            check_stored(read)?;
            self.count_closed(read);
            return Ok(None);
        }
        let header = &read.block.header;
        let damaged = |what: String| read.damaged(what);
        let attributes = self.tallies[read.set].header.attributes;
        let items = manifest::decode_with(attributes, &read.block.manifest, header.plain_len)
            .map_err(|e| damaged(e.to_string()))?;
        let named = items
            .iter()
            .filter(|i| matches!(i, Item::Entry(e) if e.first))
            .count() as u64;
        let tally = &self.tallies[read.set];
        tally.entries.fetch_add(named, Ordering::Relaxed);
        self.counters.entries.fetch_add(named, Ordering::Relaxed);
        if !self.sink.wants(read.set, &items) {
            tally.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let stored_len = header.stored_len as usize;
        check_stored(read)?;
        if let Some(encrypted) = &read.block.encrypted {
            let place = encrypted.payload(&mut read.payload[..stored_len]);
            read.place = place.map_err(|e| read.damaged(e.to_string()))?;
        }
        Ok(Some(items))
    }

    /// Counts a block whose content nobody looked at.
    fn count_closed(&self, read: &Read) {
        let len = u64::from(read.block.header.plain_len);
        let tally = &self.tallies[read.set];
        tally.skipped.fetch_add(1, Ordering::Relaxed);
        tally.plain_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.plain_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.blocks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Compares the stored bytes with their checksum, and reads them a second time if they differ.
fn check_stored(read: &mut Read) -> Result<(), MediaError> {
    let header = &read.block.header;
    let (stored_len, stored_crc) = (header.stored_len as usize, header.stored_crc);
    let payload = &mut read.payload[..stored_len];
    let found = crc32c(payload);
    if found == stored_crc {
        return Ok(());
    }
    let is_better = read.again.read(payload, read.block.payload_offset)?;
    match is_better && crc32c(payload) == stored_crc {
        true => Ok(()),
        false => Err(read.damaged(format!(
            "stored bytes have CRC-32C {found:#010x}, not {stored_crc:#010x}"
        ))),
    }
}

impl Worker<'_> {
    /// The next block that was read; `None` when all were. Waits for it without a turn.
    fn next_read(&mut self, receive: &Receiver<Read>) -> Option<Read> {
        receive.try_recv().ok().or_else(|| {
            self.turn = None;
            receive.recv().ok()
        })
    }

    /// Waits for `--max-rate` without a turn.
    fn throttle(&mut self, read: &Read) {
        if let Some(throttle) = &self.shared.crew.throttle {
            self.turn = None;
            let clock = &*self.shared.context.clock;
            let at = clock.now();
            throttle.take(u64::from(read.block.header.plain_len));
            lap(clock, at, &self.shared.counters.rate_wait_us);
        }
    }

    /// Whoever waits for a buffer lets others compute: it may be they who give one back.
    fn take_plain(&mut self) -> Option<Buffer> {
        self.shared.plains.try_take().or_else(|| {
            self.turn = None;
            self.shared.plains.take()
        })
    }

    fn enter(&mut self) {
        if self.turn.is_none() {
            self.turn = Some(self.shared.crew.gate.enter());
        }
    }

    /// Looks at a block in the worker's turn; `None`: an accelerator has taken it.
    fn look_or_offer(&mut self, mut read: Read, plain: Buffer) -> Option<CheckedBlock> {
        let shared = self.shared;
        let clock = &*shared.context.clock;
        let at = clock.now();
        self.enter();
        let at = lap(clock, at, &shared.counters.cpu_wait_us);
        match (&shared.fetching, shared.look(&mut read)) {
            (Some(fetching), Ok(Some(items)))
                if read.block.header.algorithm == shared.algorithm =>
            {
                let at = lap(clock, at, &shared.counters.compute_us);
                let wanted = WantedBlock { read, items, plain };
                let left = fetching.offer(shared, wanted, &mut self.turn)?;
                lap(clock, at, &shared.counters.device_wait_us);
                Some(CheckedBlock {
                    read: left.read,
                    items: Ok(Some(left.items)),
                    plain: left.plain,
                })
            }
            (_, items) => Some(CheckedBlock { read, items, plain }),
        }
    }

    /// Decodes a block and passes it on, or reports its damage. False: nobody takes blocks now.
    fn pass_on(
        &mut self,
        checked: CheckedBlock,
        send: &Sender<DecodedBlock>,
    ) -> Result<bool, Error> {
        let CheckedBlock {
            read,
            items,
            mut plain,
        } = checked;
        let shared = self.shared;
        let clock = &*shared.context.clock;
        let at = clock.now();
        self.enter();
        let plain_len = read.block.header.plain_len as usize;
        let decoded = items.and_then(|items| {
            match items {
                None => {}
                Some(_) if shared.sink.writes() => self.land(&read, &mut plain)?,
                Some(_) => decode(&read, &mut self.decompressor, &mut self.hot)?,
            }
            Ok(items)
        });
        let ended = lap(clock, at, &shared.counters.compute_us);
        let set = read.set;
        drop(read);
        let items = match decoded {
            Ok(Some(items)) => items,
            Ok(None) => return Ok(true),
            Err(damage) => return shared.sink.damage(damage).map(|()| true),
        };
        if let Some(fetching) = &shared.fetching {
            fetching.software_did(plain_len, ended - at);
        }
        if !shared.sink.writes() {
            shared.deliver(set, items, &self.hot[..plain_len])?;
            return Ok(true);
        }
        let decoded = DecodedBlock {
            set,
            items,
            plain,
            plain_len,
        };
        Ok(send.send(decoded).is_ok())
    }

    /// Decodes one block into `plain`, which devices read next.
    fn land(&mut self, read: &Read, plain: &mut [u8]) -> Result<(), MediaError> {
        let (clock, ways) = (&*self.shared.context.clock, &self.shared.ways);
        let len = read.block.header.plain_len as usize;
        let way = ways.choose();
        let before = clock.thread_cpu();
        match way {
            Way::Straight => decode(read, &mut self.decompressor, plain)?,
            Way::Copied => {
                decode(read, &mut self.decompressor, &mut self.hot)?;
                copy_nontemporal(&self.hot[..len], &mut plain[..len]);
            }
        }
        let cpu = clock.thread_cpu().saturating_sub(before);
        ways.took(way, cpu, len);
        Ok(())
    }
}

/// Decodes one block and checks the result.
fn decode(
    read: &Read,
    decompressor: &mut Decompressor,
    plain: &mut [u8],
) -> Result<(), MediaError> {
    let header = &read.block.header;
    let payload = &read.payload[read.place.clone()];
    let damaged = |what: String| read.damaged(what);
    let plain = plain
        .get_mut(..header.plain_len as usize)
        .ok_or_else(|| damaged("too long".into()))?;
    if !plain.is_empty() {
        decompressor
            .decompress(header.algorithm, payload, plain)
            .map_err(|e| damaged(format!("it does not decode: {e}")))?;
    }
    let found = crc32c(plain);
    if found != header.plain_crc {
        return Err(damaged(format!(
            "plain bytes have CRC-32C {found:#010x}, not {:#010x}",
            header.plain_crc
        )));
    }
    Ok(())
}
