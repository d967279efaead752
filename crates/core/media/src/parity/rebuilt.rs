//! A data stripe of a media set with parity, as its readers see it: its own bytes, and rebuilt ones at places that its
//! readers refuse.
//!
//! The checks of the format decide what is bad, never the parity stripes: a place is rebuilt only after a reader doubts
//! it, or the device does not give it. So a parity stripe that somebody changed replaces nothing that passes those checks.
//!
//! Invariants
//! - Rebuilt bytes are given only if the checksum of their row agrees.
//! - A stripe's own bytes are given wherever nobody doubted them.
//! - Of rebuilt bytes, one row is kept in memory.
//!
//! Leaves to others: rebuilding a row (`group.rs`), and the format's own checks, which judge rebuilt bytes as any others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_io::crc32c;

use crate::Error;
use crate::device::FamilyRead;

use super::group::{Group, own as own_bytes};
use super::table::{RowTable, is_of_reading};

/// Bytes of a stripe whose first record cannot be read that its reader cannot doubt by itself: what tells the container.
const START_BYTES: u64 = 64;

#[derive(Debug)]
pub(crate) struct RebuiltStripe {
    group: Arc<Group>,
    /// The number of the data family, from 0.
    member: usize,
    /// The stripe itself; `None` if it is lost.
    own: Option<Arc<dyn FamilyRead>>,
    /// Whether the rows say where the stripe ends: it is lost, or has another length.
    ends_by_rows: AtomicBool,
    /// Whether `state` has doubted places.
    has_doubts: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Places that are rebuilt: each start, and the offset after it. They do not overlap.
    doubted: BTreeMap<u64, u64>,
    /// The row that was rebuilt last.
    last: Option<(usize, Vec<u8>)>,
    /// Handles of its own, so that others who read in order are not disturbed.
    reads: Vec<Option<Arc<dyn FamilyRead>>>,
}

impl State {
    fn add(&mut self, place: &Range<u64>) {
        let mut place = place.clone();
        let before = self.doubted.range(..=place.end).rev();
        let touching: Vec<(u64, u64)> = before
            .map(|(start, end)| (*start, *end))
            .take_while(|(_, end)| *end >= place.start)
            .collect();
        for (start, end) in touching {
            self.doubted.remove(&start);
            place = place.start.min(start)..place.end.max(end);
        }
        self.doubted.insert(place.start, place.end);
    }

    /// Whether all of a place is rebuilt.
    fn has(&self, place: &Range<u64>) -> bool {
        let before = self.doubted.range(..=place.start).next_back();
        before.is_some_and(|(_, end)| *end >= place.end)
    }

    /// Whether the byte at `offset` is rebuilt, and the offset up to which the same is so.
    fn at(&self, offset: u64) -> (bool, u64) {
        let before = self.doubted.range(..=offset).next_back();
        match before.filter(|(_, end)| **end > offset) {
            Some((_, end)) => (true, *end),
            None => {
                let next = self.doubted.range(offset..).next();
                (false, next.map_or(u64::MAX, |(start, _)| *start))
            }
        }
    }
}

impl RebuiltStripe {
    /// `has_start`: whether the stripe's first record can be read.
    ///
    /// Errors: [`Error::Cancelled`].
    pub fn new(group: Arc<Group>, member: usize, has_start: bool) -> Result<RebuiltStripe, Error> {
        let own = group.places[member].read.clone();
        let stripe = RebuiltStripe {
            ends_by_rows: AtomicBool::new(own.is_none()),
            group,
            member,
            own,
            has_doubts: AtomicBool::new(false),
            state: Mutex::default(),
        };
        if !has_start {
            stripe.doubt(0..START_BYTES)?;
        }
        Ok(stripe)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends_by_rows(&self) -> bool {
        self.ends_by_rows.load(Ordering::Acquire)
    }

    /// The stripe itself, while nothing is known against it.
    fn trusted(&self) -> Option<&Arc<dyn FamilyRead>> {
        let is_trusted = !self.ends_by_rows() && !self.has_doubts.load(Ordering::Acquire);
        self.own.as_ref().filter(|_| is_trusted)
    }

    /// The first byte of a row that is not as the row's record says, although it is read as this stripe is; `None`: all
    /// rows that are noted as bad are bad by the checks of the format, too.
    ///
    /// Errors: those of reading.
    pub fn contradiction(&self) -> Result<Option<u64>, Error> {
        let table = self.group.table(self.member)?;
        for entry in self.group.bad_rows(self.member) {
            let span = table.member(entry, self.member);
            let mut bytes = vec![0; span.len as usize];
            let n = self.read_at(&mut bytes, span.offset)?;
            if n < bytes.len() || crc32c(&bytes) != span.crc {
                return Ok(Some(span.offset));
            }
        }
        Ok(None)
    }

    /// Copies bytes of the row at `offset` into `buf`; returns how many, 0 after the end.
    fn read_row(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let table = self.group.table(self.member)?;
        let Some((entry, range)) = table.entry_of(self.member, offset) else {
            return match &self.own {
                // The rows do not say where the stripe ends.
                Some(own) if !table.is_whole || !self.ends_by_rows() => own.read_at(buf, offset),
                None if !table.is_whole => {
                    let what = "the records of the last rows are lost on all parity stripes";
                    Err(self.group.beyond(self.member, offset, what.to_owned()))
                }
                _ => Ok(0),
            };
        };
        let until = |n: usize, end: u64| n.min((end - offset).min(usize::MAX as u64) as usize);
        let mut n = until(buf.len(), range.end);
        let mut state = self.state();
        if let Some(own) = &self.own {
            let (is_doubted, end) = state.at(offset);
            n = until(n, end);
            if !is_doubted {
                match own.read_at(&mut buf[..n], offset) {
                    // The stripe was cut, and the rows know of more.
                    Ok(0) if self.ends_by_rows() => {}
                    Err(e) if is_of_reading(&e) && table.is_known(entry) => {
                        self.add(&mut state, table, entry, &(offset..offset + n as u64));
                    }
                    done => return done,
                }
            }
        }
        if state.last.as_ref().is_none_or(|(last, _)| *last != entry) {
            state.last = None;
            if state.reads.is_empty() {
                state.reads = self.group.handles(self.member);
            }
            let bytes = self
                .group
                .rebuilt(table, entry, self.member, &state.reads)?;
            state.last = Some((entry, bytes));
        }
        if let Some((_, bytes)) = &state.last {
            let skip = (offset - range.start) as usize;
            buf[..n].copy_from_slice(&bytes[skip..][..n]);
        }
        Ok(n)
    }

    /// From now on, a place in a row is rebuilt.
    fn add(&self, state: &mut State, table: &RowTable, entry: usize, place: &Range<u64>) {
        self.group.note_row(table, entry, self.member);
        state.add(place);
        self.has_doubts.store(true, Ordering::Release);
    }
}

impl FamilyRead for RebuiltStripe {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        match &self.own {
            Some(own) if !self.ends_by_rows() => own.len_bytes(),
            own => {
                let table = self.group.table(self.member)?;
                match own {
                    Some(own) if !table.is_whole => own.len_bytes(),
                    _ => Ok(Some(table.stripe_len(self.member))),
                }
            }
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if let Some(own) = self.trusted() {
            match own.read_at(buf, offset) {
                Err(e) if is_of_reading(&e) => {
                    // Without rows, the device's own error is what there is to say.
                    self.group.table(self.member).map_err(|_| e)?;
                }
                done => return done,
            }
        }
        let mut done = 0;
        while done < buf.len() {
            match self.read_row(&mut buf[done..], offset + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn reading_bytes(&self) -> u64 {
        let own = self.own.as_ref().map_or(0, |own| own.reading_bytes());
        // The first one counts what all of them share.
        match self.member {
            0 => own + self.group.memory_bytes(),
            _ => own,
        }
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        // Rows are rebuilt in order: reads ahead would only do it twice.
        self.trusted().is_none_or(|own| own.is_at_hand(range))
    }

    fn doubt(&self, range: Range<u64>) -> Result<bool, Error> {
        let Some(own) = &self.own else {
            return Ok(false);
        };
        let Ok(table) = self.group.table(self.member) else {
            return Ok(false);
        };
        if table.is_whole
            && !self.ends_by_rows()
            && own.len_bytes()? != Some(table.stripe_len(self.member))
        {
            self.group
                .note(self.member, "it does not have the length that was written");
            self.ends_by_rows.store(true, Ordering::Release);
            return Ok(true);
        }
        let mut state = self.state();
        let mut at = range.start;
        let mut any = false;
        while let Some((entry, there)) = table.entry_of(self.member, at).filter(|_| at < range.end)
        {
            let place = at..there.end.min(range.end);
            at = there.end;
            let is_rebuilt = state.has(&place);
            let is_bad = is_rebuilt
                || (table.is_known(entry)
                    && own_bytes(table, entry, self.member, &**own)?.is_none());
            if is_bad && !is_rebuilt {
                self.add(&mut state, table, entry, &place);
            }
            any |= is_bad;
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use longshore_codec::{Algorithm, Level};
    use longshore_io::{SimDisk, Storage, Via};
    use longshore_kit::random::noise;
    use uuid::Uuid;

    use crate::device::{BackupDevice, DeviceSpec};
    use crate::parity::ROW_BYTES_MIN;
    use crate::{
        BackupType, BlockOut, Disposition, MediaSet, ParityPlan, SetHeader, SetPlan, SetWriter,
        SourceIdentity, Totals,
    };
    use std::sync::Arc;

    fn plan() -> SetPlan {
        SetPlan {
            disposition: Disposition::New,
            media_name: String::new(),
            media_description: String::new(),
            header: SetHeader {
                set: Uuid::new_v4(),
                position: 0,
                start_us: 1,
                source_kind: 1,
                backup_type: BackupType::Database,
                algorithm: Algorithm::Zstd,
                level: Level::Low,
                buffer_bytes: 1 << 20,
                page_bytes: 0,
                copy_only: false,
                encrypted: false,
                keys_detached: false,
                attributes: true,
                parent: None,
                log: Default::default(),
                expires_us: None,
                time_zone: 0,
                database: "db".into(),
                name: String::new(),
                description: String::new(),
                machine: String::new(),
                user: String::new(),
                origin: String::new(),
                lineage: Vec::new(),
                identity: SourceIdentity::default(),
                tree_root: Default::default(),
                sum_key: None,
                server_started_us: None,
            },
            via: Via::Cache,
            expected_bytes: None,
            parity: ParityPlan {
                count: 1,
                row_bytes: ROW_BYTES_MIN,
                ..ParityPlan::default()
            },
            encryption: None,
        }
    }

    /// Goal: a stripe is read the same whether it is there, was damaged, or is lost.
    #[test]
    fn a_stripe_keeps_the_contract_whether_it_is_there_damaged_or_lost() {
        let disk = SimDisk::new(3);
        disk.write_file("/d/x", b"").unwrap();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let devices: Vec<Arc<dyn BackupDevice>> = ["/d/a", "/d/b", "/d/p"]
            .iter()
            .map(|path| DeviceSpec::File(path.into()).open(&storage))
            .collect();
        let mut writer = SetWriter::begin(&devices, plan(), 1).unwrap();
        for (n, family) in writer.families.iter_mut().enumerate() {
            // The content of a block does not matter here.
            let bytes = noise(n as u64, 9_000 + 700 * n);
            let block = BlockOut {
                bytes: &bytes,
                sequence: n as u64,
                plain_len: 1,
                stored_crc: 0,
                manifest: &[],
                digest: None,
            };
            family.put_block(&block).unwrap();
            family.finish_data().unwrap();
        }
        writer.seal(&Totals::default()).unwrap();
        let bytes = disk.read_file("/d/a").unwrap();
        let check = || {
            let media = MediaSet::open(&devices).unwrap();
            crate::reading::keeps_its_contract(&*media.member(0).read, &bytes);
            media.faults().len()
        };
        assert_eq!(check(), 0);
        let mut damaged = bytes.clone();
        damaged[5_000..5_100].fill(0);
        disk.write_file("/d/a", &damaged).unwrap();
        let media = MediaSet::open(&devices).unwrap();
        let read = &media.member(0).read;
        let mut own = vec![0; bytes.len()];
        read.read_at(&mut own, 0).unwrap();
        assert!(own == damaged, "nobody has doubted anything yet");
        assert!(read.doubt(5_000..5_050).unwrap());
        read.read_at(&mut own, 0).unwrap();
        assert!(own[5_000..5_050] == bytes[5_000..5_050]);
        assert!(
            own[5_050..] == damaged[5_050..],
            "what nobody doubted is its own"
        );
        assert!(read.doubt(4_900..5_200).unwrap());
        crate::reading::keeps_its_contract(&**read, &bytes);
        assert!(!read.doubt(8_500..8_600).unwrap());
        assert_eq!(media.faults().len(), 1);
        let dir = storage.dir("/d".as_ref()).unwrap();
        dir.remove_file("a".as_ref()).unwrap();
        assert_eq!(check(), 1);
    }
}
