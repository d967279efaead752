//! The server's own copy of its WAL, to compare an archive with: an archive may hold another branch's segment under the
//! same name.
//!
//! WAL is read from pg_wal or asked from the server.
//!
//! Invariants
//! - A segment that the server has recycled is gone, which is an answer and no error. The same holds if its file was
//!   renamed while it was read.
//! - Only WAL that was certainly written is requested from a server: a request for more would block.
//!
//! Leaves to others: the comparison and its meaning (`branch.rs`, and `archived.rs` of the pipeline).

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, OpenHow, Storage, Via};
use longshore_pg::client::{Connection, Mode, Options};
use longshore_pg::wal::{Records, WalName, segments_in};
use longshore_pg::{ClusterSecret, Lsn, SegmentName, SegmentSize, Timeline};

use crate::Error;
use crate::reading::is_gone;

/// How much WAL is followed, in bytes, to find out how far it is written.
const WRITTEN_MAX: u64 = 1 << 20;
/// The smallest amount requested from the server, in bytes.
const PAGE: u64 = 8192;
/// Bytes read at a time.
const PART: usize = 1 << 20;
/// The server has no file of this name.
const NO_SUCH_FILE: &str = "58P01";
/// The server's directory of marks for files that wait to be archived.
const STATUS: &str = "archive_status";
const READY: &str = ".ready";

/// Where a server's own WAL is read.
#[derive(Clone)]
pub struct OwnLog {
    place: SegmentLocation,
    size: SegmentSize,
    secret: Option<Arc<ClusterSecret>>,
}

#[derive(Clone)]
enum SegmentLocation {
    /// In its `pg_wal`.
    Files { dir: Arc<dyn Dir>, path: PathBuf },
    /// From the server, which sends its WAL.
    Sent {
        storage: Arc<dyn Storage>,
        server: Box<Options>,
    },
}

impl fmt::Debug for OwnLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            SegmentLocation::Files { path, .. } => write!(f, "OwnLog({})", path.display()),
            SegmentLocation::Sent { server, .. } => write!(f, "OwnLog({})", server.for_people()),
        }
    }
}

impl OwnLog {
    pub(super) fn files(dir: Arc<dyn Dir>, path: PathBuf, size: SegmentSize) -> OwnLog {
        OwnLog {
            place: SegmentLocation::Files { dir, path },
            size,
            secret: None,
        }
    }

    /// Also with the cluster's secret, if it could be read.
    pub(super) fn with_secret(mut self, secret: Option<ClusterSecret>) -> OwnLog {
        self.secret = secret.map(Arc::new);
        self
    }

    /// The secret of all servers of the cluster. `None`: its files are not at hand.
    pub fn secret(&self) -> Option<&ClusterSecret> {
        self.secret.as_deref()
    }

    pub(super) fn sent(storage: Arc<dyn Storage>, server: &Options, size: SegmentSize) -> OwnLog {
        let server = Box::new(server.clone());
        OwnLog {
            place: SegmentLocation::Sent { storage, server },
            size,
            secret: None,
        }
    }

    pub fn segment_size(&self) -> SegmentSize {
        self.size
    }

    /// How many bytes of a segment have certainly been written; a record begins at `from`.
    pub fn written(&self, name: SegmentName, from: Lsn) -> Result<u64, Error> {
        let start = name.start(self.size);
        let end = match &self.place {
            SegmentLocation::Files { dir, .. } => {
                let read = segments_in(&**dir, name.timeline, self.size);
                let mut end = from;
                if let Ok(records) = Records::new(read, from, start) {
                    let mut records = records.verifying();
                    let limit = Lsn(from.0.saturating_add(WRITTEN_MAX));
                    while let Ok(Some(_)) = records.next(limit, |_, _| false) {
                        end = records.place();
                    }
                }
                end
            }
            SegmentLocation::Sent { storage, server } => {
                let refused = |e| Error::Server {
                    action: "ask for the end of the WAL of",
                    source: Box::new(e),
                };
                let mut connection =
                    Connection::open(&**storage, server, Mode::Replication).map_err(refused)?;
                let rows = connection.query("IDENTIFY_SYSTEM").map_err(refused)?;
                rows.value(0, 2).map_err(refused)?
            }
        };
        Ok(end.0.saturating_sub(start.0).min(self.size.bytes()))
    }

    /// The location of a segment, for messages.
    pub fn path_of(&self, name: SegmentName) -> PathBuf {
        match &self.place {
            SegmentLocation::Files { path, .. } => path.join(name.to_string()),
            SegmentLocation::Sent { server, .. } => server.for_people().into(),
        }
    }

    /// Whether reading costs the server nothing. If it does, callers compare only the first and last segments, which
    /// show nearly as much as all of them.
    pub fn is_at_hand(&self) -> bool {
        matches!(self.place, SegmentLocation::Files { .. })
    }

    /// The clock of a server that sends its WAL, in microseconds since the Unix epoch; `None` if it cannot be asked.
    /// The WAL before `end` must be written.
    pub(super) fn clock_us(&self, timeline: Timeline, end: Lsn) -> Option<i64> {
        let SegmentLocation::Sent { storage, server } = &self.place else {
            return None;
        };
        let mut connection = Connection::open(&**storage, server, Mode::Replication).ok()?;
        // A page that is certainly written: a request for unwritten WAL would block.
        let written = Lsn(end.0.checked_sub(1)? / PAGE * PAGE);
        connection.clock_us(timeline, written).ok()?
    }

    /// The segments that wait to be archived, oldest first; empty if they cannot be listed.
    pub fn waiting(&self) -> Vec<SegmentName> {
        let SegmentLocation::Files { dir, .. } = &self.place else {
            return Vec::new();
        };
        let names = dir.dir(Path::new(STATUS)).and_then(|dir| dir.list());
        let mut waiting: Vec<SegmentName> = names
            .into_iter()
            .flatten()
            .filter_map(
                |name| match name.ok()?.to_str()?.strip_suffix(READY)?.parse() {
                    Ok(WalName::Segment(name)) => Some(name),
                    _ => None,
                },
            )
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// Passes the first `len` bytes of a segment to `sink`, in order, until `sink` has enough. False: the server no
    /// longer has the segment, and the bytes passed may be another segment's.
    pub fn read(
        &self,
        name: SegmentName,
        len: u64,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        self.read_range(name, (0, len), sink)
    }

    /// [`read`](Self::read), from the `within`-th byte of the segment on.
    pub(super) fn read_range(
        &self,
        name: SegmentName,
        (within, len): (u64, u64),
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let size = self.size;
        match &self.place {
            SegmentLocation::Files { dir, path } => {
                let file = PathBuf::from(name.to_string());
                let read = read_file(&**dir, &file, size, (within, len), sink);
                match read {
                    Ok(is_own) => Ok(is_own),
                    Err(e) if is_gone(&e) => Ok(false),
                    Err(source) => Err(Error::Read {
                        path: path.join(name.to_string()),
                        offset: 0,
                        source,
                    }),
                }
            }
            SegmentLocation::Sent { storage, server } => {
                let refused = |e| Error::Server {
                    action: "read the WAL of",
                    source: Box::new(e),
                };
                let mut connection =
                    Connection::open(&**storage, server, Mode::Replication).map_err(refused)?;
                let from = Lsn(name.start(size).0.saturating_add(within));
                let to = Lsn(from.0.saturating_add(len));
                let mut go_on = |bytes: &[u8]| sink(bytes).is_continue();
                match connection.stream_log(name.timeline, (from, to), &mut go_on) {
                    Ok(_) => Ok(true),
                    Err(e) if e.sqlstate() == Some(NO_SUCH_FILE) => Ok(false),
                    Err(e) => Err(refused(e)),
                }
            }
        }
    }
}

fn read_file(
    dir: &dyn Dir,
    name: &Path,
    size: SegmentSize,
    (within, len): (u64, u64),
    sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> std::io::Result<bool> {
    let file = dir.open(name, OpenHow::Read)?;
    let stat = file.stat()?;
    if stat.len != size.bytes() {
        return Ok(false);
    }
    let mut part = vec![0; PART];
    let mut at = 0;
    while at < len {
        let now = (len - at).min(PART as u64) as usize;
        file.read_exact_at(&mut part[..now], within + at, Via::Cache)?;
        at += now as u64;
        if sink(&part[..now]).is_break() {
            break;
        }
    }
    // A server renames the file of a segment that it no longer needs, and then writes to it.
    let named = dir.stat(name)?;
    Ok((named.dev, named.ino) == (stat.dev, stat.ino))
}

#[cfg(test)]
mod tests {
    use longshore_io::{Fault, Op, SimDisk};

    use super::*;

    /// Goal: bytes that were read while the server recycled their segment count for nothing: it renames the file, and
    /// writes another segment to it.
    /// Method: the segment is read in two parts. Before the second one, its file gets a later name, and perhaps its name
    /// another file.
    #[test]
    fn a_segment_that_is_recycled_while_it_is_read_is_gone() {
        let size = SegmentSize::new(2 * PART as u64).unwrap();
        let timeline = Timeline::new(1).unwrap();
        let name = SegmentName::holding(timeline, Lsn(size.bytes()), size);
        let later = SegmentName::holding(timeline, Lsn(9 * size.bytes()), size);
        let place = PathBuf::from("/pg_wal");
        for (is_recycled, is_replaced) in [(false, false), (true, false), (true, true)] {
            let disk = SimDisk::new(1);
            let path = place.join(name.to_string());
            let bytes = vec![7; size.bytes() as usize];
            disk.write_file(&path, &bytes).unwrap();
            let dir = disk.dir(&place).unwrap();
            let (server, new) = (disk.clone(), place.clone());
            let recycle = Fault::meanwhile(move || {
                let dir = server.dir(&new).unwrap();
                let (from, to) = (name.to_string(), later.to_string());
                if is_recycled {
                    dir.rename(from.as_ref(), to.as_ref()).unwrap();
                }
                if is_replaced {
                    let other = vec![8; size.bytes() as usize];
                    server.write_file(new.join(from), &other).unwrap();
                }
            });
            let second = PART as u64..2 * PART as u64;
            disk.inject(recycle.on(Op::Read).at_bytes(second).times(1));
            let own = OwnLog::files(dir, place.clone(), size);
            let mut read = 0;
            let mut sink = |part: &[u8]| {
                read += part.len() as u64;
                ControlFlow::Continue(())
            };
            let is_own = own.read(name, size.bytes(), &mut sink).unwrap();
            assert_eq!((is_own, read), (!is_recycled, size.bytes()));
        }
    }
}
