//! Facts about the backend that are made durable before the writes they announce, so that a start after a crash can
//! tell this session's writes from another program's.
//!
//! Invariants
//! - While the log holds a fingerprint of the watched places, they have it, and no client's write to one of them is in
//!   flight.
//! - Nothing is written to the backend later than the time that the log gives for this session, by the clock that gives
//!   the file's times: that of this machine. Files of another one's clock are not believed after a crash (`open.rs`).
//! - The time that the log gives is no further ahead than the lease, once a write has begun. It may be lowered: each
//!   write announces itself here before it reaches the backend, and the file's time of change is set when it does. A
//!   crash between the two leaves a time of change after the lowered end, so the cache begins empty.
//! - The lock is never held during I/O, nor together with the directory's.
//!
//! Leaves to others: making the journal durable before the write (the caller), taking fingerprints, and comparing them
//! at a start (`content.rs`, `open.rs`).

use std::ops::Range;

use parking_lot::Mutex;

use crate::format::{Fingerprint, JournalRecord, ServedBackend};
use crate::journal::Journal;

/// How long this session may write after it has recorded so. After a crash, the file's time of change does not reveal
/// another program's write within that time.
const LEASE_NS: i64 = 30_000_000_000;
/// A longer lease than this is one of a clock that was set back. Threads read the clock before they hold the lock, so
/// one may see a time that is a little earlier than that of the last renewal.
pub(crate) const LEASE_MAX_NS: i64 = LEASE_NS + 1_000_000_000;

pub(crate) struct BackendWatch {
    ranges: Vec<Range<u64>>,
    state: Mutex<State>,
}

struct State {
    served: ServedBackend,
    /// The journal's number of the last facts appended.
    noted: u64,
    /// Writes to watched places: all that began, and those in flight.
    begun: u64,
    under_way: u32,
}

/// A moment at which no write to a watched place was in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quiet(u64);

impl BackendWatch {
    /// With the facts at the beginning of the session's log.
    pub(crate) fn new(ranges: Vec<Range<u64>>, served: ServedBackend) -> BackendWatch {
        BackendWatch {
            ranges,
            state: Mutex::new(State {
                served,
                noted: 0,
                begun: 0,
                under_way: 0,
            }),
        }
    }

    /// The end of the first lease of a session that begins while clients may write.
    pub(crate) fn lease(now_ns: i64) -> i64 {
        now_ns.saturating_add(LEASE_NS)
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn touches(&self, offset: u64, len_bytes: u64) -> bool {
        let end = offset + len_bytes;
        let mut ranges = self.ranges.iter();
        ranges.any(|range| offset < range.end && range.start < end)
    }

    /// Announces a write: the backend may be written once the journal is durable up to the returned number.
    pub(crate) fn begin(&self, offset: u64, len_bytes: u64, now_ns: i64, journal: &Journal) -> u64 {
        let touches = self.touches(offset, len_bytes);
        let mut state = self.state.lock();
        let mut news = false;
        if touches {
            state.begun += 1;
            state.under_way += 1;
            news = state.served.watched.take().is_some();
        }
        // A write may take a while after this. A lease of a clock that was ahead ends as early as any other.
        let left = state.served.until_ns.saturating_sub(now_ns);
        if !(LEASE_NS / 2..=LEASE_MAX_NS).contains(&left) {
            state.served.until_ns = BackendWatch::lease(now_ns);
            news = true;
        }
        if news {
            state.noted = journal.append(JournalRecord::Backend(state.served));
        }
        state.noted
    }

    /// Ends a write that began, whether it succeeded or not.
    pub(crate) fn end(&self, offset: u64, len_bytes: u64) {
        if self.touches(offset, len_bytes) {
            self.state.lock().under_way -= 1;
        }
    }

    /// Must be called before the backend is synced.
    pub(crate) fn quiet(&self) -> Option<Quiet> {
        let state = self.state.lock();
        (state.under_way == 0).then_some(Quiet(state.begun))
    }

    /// Whether the log has no fingerprint of the watched places.
    pub(crate) fn is_unknown(&self) -> bool {
        self.state.lock().served.watched.is_none()
    }

    /// Records a sync of the backend after `quiet`: its time of change was `changed_ns` before the sync, and the
    /// watched places have this fingerprint now.
    pub(crate) fn settle(
        &self,
        quiet: Option<Quiet>,
        changed_ns: i64,
        found: Option<Fingerprint>,
        journal: &Journal,
    ) {
        let mut state = self.state.lock();
        let before = state.served;
        let still = quiet.is_some_and(|quiet| quiet.0 == state.begun) && state.under_way == 0;
        if still && state.served.watched.is_none() {
            state.served.watched = found;
        }
        state.served.changed_ns = changed_ns;
        if state.served != before {
            state.noted = journal.append(JournalRecord::Backend(state.served));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::{SimDisk, Storage};

    use super::*;
    use crate::format::{BackendContent, BackendMark, Superblock};
    use crate::geometry::Geometry;
    use crate::journal::Table;

    fn journal() -> Journal {
        let disk = SimDisk::new(1);
        disk.mount("/fast").unwrap();
        disk.write_file("/fast/cache", &vec![0; 4 << 20]).unwrap();
        let superblock = Superblock {
            geometry: Geometry::fit(4 << 20, 64 << 10).unwrap(),
            clean: false,
            sequence: 0,
            generation: 0,
            session: 1,
            backend: BackendMark::default(),
            tie: [7; 16],
            log_pages: 0,
            content: BackendContent::default(),
            boot: 0,
        };
        let table = Table::empty(superblock.geometry).unwrap();
        let file = disk.disk(Path::new("/fast/cache")).unwrap();
        Journal::begin(file, superblock, table).unwrap()
    }

    /// Goal: a clock that was ahead and is set right leaves no hour in which another program's write goes unnoticed.
    #[test]
    fn a_lease_of_a_clock_that_was_ahead_is_lowered_and_recorded() {
        let journal = journal();
        let watch = BackendWatch::new(Vec::new(), ServedBackend::default());
        let until = || watch.state.lock().served.until_ns;
        let hour = 3_600_000_000_000;
        let ahead = watch.begin(0, 1, hour, &journal);
        assert_eq!(until(), hour + LEASE_NS);
        let right = watch.begin(0, 1, 0, &journal);
        assert_eq!(until(), LEASE_NS);
        assert!(right > ahead, "the write waits for the record");
        // A thread that read the clock a little earlier costs no record.
        assert_eq!(watch.begin(0, 1, -1000, &journal), right);
        assert_eq!(watch.begin(0, 1, LEASE_NS / 4, &journal), right);
    }

    /// Goal: a fingerprint counts only if no watched place was being written while it was taken: else a start after a
    /// crash would take this session's own write for another program's.
    #[test]
    fn a_watched_place_that_is_written_while_it_is_looked_at_stays_unknown() {
        let journal = journal();
        let place = 4096..8192;
        // Whether the place is unknown after a look: writes before, in and after it, each at these offsets.
        let is_unknown = |before: Option<u64>, amid: Option<u64>, ends_amid: bool| {
            let served = ServedBackend {
                watched: Some([1; 16]),
                changed_ns: 0,
                until_ns: 0,
            };
            let watch = BackendWatch::new(vec![place.clone()], served);
            let begin = |at| {
                watch.begin(at, 100, 0, &journal);
            };
            begin(place.start);
            watch.end(place.start, 100);
            assert!(watch.is_unknown());
            before.into_iter().for_each(begin);
            let quiet = watch.quiet();
            amid.into_iter().for_each(begin);
            if ends_amid {
                before
                    .into_iter()
                    .chain(amid)
                    .for_each(|at| watch.end(at, 100));
            }
            watch.settle(quiet, 5, Some([9; 16]), &journal);
            watch.is_unknown()
        };
        let (there, edge, elsewhere) = (5000, 4096 - 50, 8192);
        assert!(!is_unknown(None, None, true));
        assert!(!is_unknown(Some(elsewhere), Some(elsewhere), false));
        for at in [there, edge] {
            for ends_amid in [false, true] {
                assert!(is_unknown(Some(at), None, ends_amid));
                assert!(is_unknown(None, Some(at), ends_amid));
            }
        }
    }
}
