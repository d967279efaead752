//! The bytes of a snapshot: the database file, with pages from its log or journal replacing the file's own.

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Via;

use super::snapshot::Snapshot;
use crate::{Change, Content, Error};

/// The snapshot owns the descriptors: closing one would end its locks.
pub(super) struct SnapshotContent {
    snapshot: Arc<Snapshot>,
}

impl SnapshotContent {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot }
    }
}

impl Content for SnapshotContent {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error> {
        let snapshot = &*self.snapshot;
        snapshot.check_log_growth()?;
        let read = |source| Error::Read {
            path: snapshot.path().into(),
            offset,
            source,
        };
        // The last pages may exist only in the log or journal.
        let len = snapshot.db().read_full_at(buf, offset, via).map_err(read)?;
        buf[len..].fill(0);
        if let Some((file, path)) = snapshot.beside() {
            snapshot.overlay().apply(file, path, buf, offset, via)?;
        }
        snapshot.check_alive()
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        let snapshot = &*self.snapshot;
        snapshot.db().is_cached(range.clone())
            && snapshot
                .beside()
                .is_none_or(|(file, _)| snapshot.overlay().is_cached(file, range))
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let snapshot = &*self.snapshot;
        let read = |source| Error::Read {
            path: snapshot.path().into(),
            offset,
            source,
        };
        let in_file = snapshot.db().next_data(offset).map_err(read)?;
        let beside = snapshot.overlay().next_run(offset);
        let first = match (in_file, beside) {
            (Some(a), Some(b)) if b.start < a.start => Some(b),
            (Some(a), _) => Some(a),
            (None, b) => b,
        };
        Ok(first
            .map(|data| data.start..data.end.min(snapshot.len()))
            .filter(|data| data.start < data.end))
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        self.snapshot.check_still().map(|()| None)
    }
}
