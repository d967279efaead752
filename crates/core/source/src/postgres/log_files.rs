//! The WAL files of a backup: segments and timeline histories.
//!
//! Segments before the last are complete if they are the right ones, because a server syncs each before it begins the
//! next. Only the records of the last segment show how far it is filled: no switch ended a standby's last segment, and
//! it may hold anything after the LSN that its primary has reached.
//!
//! Invariants
//! - Each file comes with a mark that says it is archived: a restored server must not archive again what its origin has
//!   archived.
//! - A segment has the full length of a segment, or it counts as missing.
//! - No history of a timeline after the backup's is included: a restored server would follow it beyond the WAL it has.
//!
//! Leaves to others: which segments a backup needs, and whether a segment's bytes are the right ones (`content.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, OpenHow, Stat, Storage, Via};
use longshore_pg::wal::{HISTORY_LEN_MAX, NotRecords, Records, WalName, segments_in};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use parking_lot::Mutex;

use super::cluster::{Cluster, open_link};
use super::content::{FileClass, OnDisk, ReadState};
use super::tree::held;
use crate::reading::Reading;
use crate::reading::{is_gone, is_missing};
use crate::{Content, Entry, EntryKind, Error};

pub(super) const WAL_DIR: &str = "pg_wal";

pub(super) struct LogFiles {
    pub(super) dir: Arc<dyn Dir>,
    /// The path for messages.
    pub(super) path: PathBuf,
}

impl LogFiles {
    /// Those of the data directory at `path`.
    pub(super) fn below(storage: &dyn Storage, path: &Path) -> Result<LogFiles, Error> {
        let (dir, path) = open_link(storage, &path.join(WAL_DIR))?;
        Ok(LogFiles { dir, path })
    }

    /// Proves that the segment holds the WAL up to `stop`, which is inside the segment or its end: every record up to
    /// there has a valid checksum and leads to the next one.
    ///
    /// Errors: [`Error::SegmentMissing`], [`Error::SegmentNotWhole`].
    pub(super) fn prove(
        &self,
        name: SegmentName,
        size: SegmentSize,
        stop: Lsn,
    ) -> Result<(), Error> {
        let path = || self.path.join(name.to_string());
        match self.dir.stat(Path::new(&name.to_string())) {
            Ok(stat) if stat.len == size.bytes() => {}
            Err(source) if !is_missing(&source) => {
                return Err(Error::Io {
                    action: "look at",
                    path: path(),
                    source,
                });
            }
            _ => return Err(Error::SegmentMissing { path: path() }),
        }
        let walk = || {
            let read = segments_in(&*self.dir, name.timeline, size);
            Records::of_segment(read, name.start(size))?.verify_to(stop)
        };
        walk().map_err(|e| match e {
            NotRecords::Read { source, .. } if is_gone(&source) => {
                Error::SegmentMissing { path: path() }
            }
            source => Error::SegmentNotWhole {
                path: path(),
                source,
            },
        })
    }

    /// A segment, which must exist, and its mark. The read checks whether it is the right one.
    pub(super) fn segment(
        &self,
        cluster: &Arc<Cluster>,
        name: SegmentName,
    ) -> Result<[Entry; 2], Error> {
        let file_name = PathBuf::from(name.to_string());
        let host_path = self.path.join(&file_name);
        let missing = || Error::SegmentMissing {
            path: host_path.clone(),
        };
        let stat = match self.dir.stat(&file_name) {
            Ok(stat) => stat,
            Err(e) if is_missing(&e) => return Err(missing()),
            Err(source) => {
                return Err(Error::Io {
                    action: "look at",
                    path: host_path,
                    source,
                });
            }
        };
        let size = cluster.control.wal_segment;
        if stat.len != size.bytes() {
            return Err(missing());
        }
        let content = OnDisk {
            cluster: cluster.clone(),
            dir: self.dir.clone(),
            name: file_name.clone(),
            host_path,
            len: stat.len,
            kind: FileClass::Log {
                start: name.start(size),
            },
            state: Mutex::new(ReadState::Unopened),
        };
        let segment = Entry {
            len: stat.len,
            content: Some(Arc::new(content) as Arc<dyn Content>),
            ..Entry::named(Path::new(WAL_DIR).join(file_name), EntryKind::File, &stat)
        };
        Ok([segment, mark(&name.to_string(), &stat)])
    }

    /// The timeline histories up to `last` and their marks; none on timeline 1.
    ///
    /// A standby has histories of later timelines before it reaches them; a restored server would follow them beyond
    /// the WAL it has.
    pub(super) fn histories(&self, last: Timeline) -> Result<Vec<Entry>, Error> {
        let list = |source| Error::Io {
            action: "list",
            path: self.path.clone(),
            source,
        };
        let mut found = Vec::new();
        for name in self.dir.list().map_err(list)? {
            let name = PathBuf::from(name.map_err(list)?);
            let text = name.to_str().unwrap_or_default();
            if !matches!(text.parse(), Ok(WalName::History(timeline)) if timeline <= last) {
                continue;
            }
            let host_path = self.path.join(&name);
            let reading = Reading::open(&*self.dir, &name, &host_path)?;
            let stat = reading.stat();
            let mut bytes = vec![0; stat.len.min(HISTORY_LEN_MAX as u64) as usize];
            reading
                .file()
                .read_exact_at(&mut bytes, 0, Via::Cache)
                .map_err(|source| Error::Read {
                    path: host_path,
                    offset: 0,
                    source,
                })?;
            found.push(mark(text, stat));
            found.push(held(Path::new(WAL_DIR).join(&name), bytes, stat));
        }
        Ok(found)
    }
}

/// The server's history file of its timeline; `None` on timeline 1, and if the file no longer exists: a running server
/// does not need it.
pub(super) fn history(dir: &dyn Dir, timeline: Timeline) -> Option<Vec<u8>> {
    if timeline.number() == 1 {
        return None;
    }
    let name = WalName::History(timeline).to_string();
    let file = dir.open(Path::new(&name), OpenHow::Read).ok()?;
    let len = file.stat().ok()?.len.min(HISTORY_LEN_MAX as u64);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0, Via::Cache).ok()?;
    Some(bytes)
}

/// The mark that says the file `name` is archived.
fn mark(name: &str, stat: &Stat) -> Entry {
    let path = format!("{WAL_DIR}/archive_status/{name}.done");
    Entry::named(path.into(), EntryKind::File, stat)
}
