//! Notes about the backend that are durable before what they speak of happens, so that a start after a crash can tell
//! this session's writes from a stranger's.
//!
//! Invariants
//! - While the log says that the watched places have a fingerprint, they have it, and no write of a client to one of them
//!   is under way.
//! - Nothing is written to the backend later than the log says that this session writes.
//! - The lock is never held during I/O, nor together with the directory's.

use std::ops::Range;

use parking_lot::Mutex;

use crate::format::{Fingerprint, Record, Served};
use crate::journal::Journal;

/// How long this session may write after it has said so. After a crash, a stranger's write within that time is not
/// noticed by the file's time of change.
const LEASE_NS: i64 = 30_000_000_000;

pub(crate) struct Watch {
    ranges: Vec<Range<u64>>,
    state: Mutex<State>,
}

struct State {
    served: Served,
    /// The journal's number of what was noted last.
    noted: u64,
    /// Writes to watched places: all that began, and those under way.
    begun: u64,
    under_way: u32,
}

/// A moment at which no write to a watched place was under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quiet(u64);

impl Watch {
    /// As the session's log begins.
    pub(crate) fn new(ranges: Vec<Range<u64>>, served: Served) -> Watch {
        Watch {
            ranges,
            state: Mutex::new(State {
                served,
                noted: 0,
                begun: 0,
                under_way: 0,
            }),
        }
    }

    /// Of a session that begins now while clients may write.
    pub(crate) fn lease(now_ns: i64) -> i64 {
        now_ns.saturating_add(LEASE_NS)
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn touches(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut ranges = self.ranges.iter();
        ranges.any(|range| offset < range.end && range.start < end)
    }

    /// A write is about to begin: the backend may be written when the journal is durable up to the number given.
    pub(crate) fn begin(&self, offset: u64, len: u64, now_ns: i64, journal: &Journal) -> u64 {
        let touches = self.touches(offset, len);
        let mut state = self.state.lock();
        let mut news = false;
        if touches {
            state.begun += 1;
            state.under_way += 1;
            news = state.served.watched.take().is_some();
        }
        // A write may take a while after this; and a clock that was put back makes no lease longer.
        let left = state.served.until_ns.saturating_sub(now_ns);
        if !(LEASE_NS / 2..=LEASE_NS).contains(&left) {
            state.served.until_ns = state.served.until_ns.max(Watch::lease(now_ns));
            news |= left < LEASE_NS / 2;
        }
        if news {
            state.noted = journal.append(Record::Backend(state.served));
        }
        state.noted
    }

    /// A write that began has ended, well or not.
    pub(crate) fn end(&self, offset: u64, len: u64) {
        if self.touches(offset, len) {
            self.state.lock().under_way -= 1;
        }
    }

    /// Asked before the backend is synced.
    pub(crate) fn quiet(&self) -> Option<Quiet> {
        let state = self.state.lock();
        (state.under_way == 0).then_some(Quiet(state.begun))
    }

    /// Whether the log does not know the watched places.
    pub(crate) fn is_unknown(&self) -> bool {
        self.state.lock().served.watched.is_none()
    }

    /// The backend was synced since `quiet`; its time of change was `changed_ns` before that, and the watched places
    /// have this fingerprint now.
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
            state.noted = journal.append(Record::Backend(state.served));
        }
    }
}
