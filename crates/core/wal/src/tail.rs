//! WAL of a data directory that the archive lacks.
//!
//! A server that crashed, or whose archiving failed, has committed transactions in its own `pg_wal` alone. A restore that replaces
//! the directory removes them.
//!
//! Invariants
//! - Only WAL in which a transaction ended is told: after a clean stop, what is not archived has none.
//! - A segment that the server keeps for later use, with older content, is no WAL.
//! - A timeline that the archive has and does not follow is not told: the database went on elsewhere. Equal numbers do not make two
//!   timelines one.
//! - Nothing is written.
//!
//! Leaves to others: refusing, and removing the directory (`longshore-pipeline`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow, Storage, Via, crc32c};
use longshore_pg::recovery::time;
use longshore_pg::wal::{History, Records, WalName, ends_from};
use longshore_pg::{Control, Lsn, SegmentName, SegmentSize, Timeline};

use super::{Run, WalArchive};

/// The longest history or control file that is read, in bytes.
const FILE_MAX: usize = 1 << 20;

/// WAL with transactions that only a data directory has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The data directory's `pg_wal`.
    pub path: PathBuf,
    pub archive: PathBuf,
    /// The files that the archive lacks, in the order in which they are archived.
    pub names: Vec<WalName>,
    /// When the first of its transactions ended; microseconds since 1970.
    pub first_us: i64,
    /// Whether the archive has the WAL of another server under these names: they cannot be archived there.
    pub is_other: bool,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} has transactions that the archive {} lacks, from {} on",
            self.path.display(),
            self.archive.display(),
            time(self.first_us)
        )
    }
}

/// The WAL of a data directory.
struct OwnWal {
    dir: Arc<dyn Dir>,
    size: SegmentSize,
    timeline: Timeline,
}

impl OwnWal {
    /// The newest timeline that has a segment: a promotion shows there at once, and in the control file at the next checkpoint.
    fn of(dir: Arc<dyn Dir>, size: SegmentSize, noted: Timeline) -> Option<OwnWal> {
        let own = OwnWal {
            dir,
            size,
            timeline: noted,
        };
        let newest = own.segments()?.map(|name| name.timeline).max();
        Some(OwnWal {
            timeline: newest.map_or(noted, |newest| newest.max(noted)),
            ..own
        })
    }

    fn segments(&self) -> Option<impl Iterator<Item = SegmentName>> {
        let names = self.dir.list().ok()?.flatten();
        Some(names.filter_map(|name| name.to_str()?.parse().ok()))
    }

    fn open(&self, name: SegmentName) -> io::Result<Arc<dyn File>> {
        self.dir.open(Path::new(&name.to_string()), OpenHow::Read)
    }

    fn history(&self) -> Option<History> {
        match self.timeline.number() {
            1 => Some(History::first(self.timeline)),
            _ => {
                let name = WalName::History(self.timeline).to_string();
                History::parse(self.timeline, &read(&*self.dir, Path::new(&name))?).ok()
            }
        }
    }

    /// The CRC-32C of a segment's first bytes.
    fn crc(&self, name: SegmentName, len: u64) -> io::Result<u32> {
        let file = self.open(name)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0, Via::Cache)?;
        Ok(crc32c(&bytes))
    }
}

impl WalArchive {
    /// The WAL with transactions that the data directory `data` has after `end`, the archive's end on `followed`. `None`: there is
    /// none, it cannot be read, or another cluster is there. `data` may be missing.
    pub fn tail_of(
        &self,
        storage: &dyn Storage,
        data: &Path,
        followed: Timeline,
        end: Lsn,
    ) -> Option<Tail> {
        let identity = self.identity()?;
        let size = identity.segment_size;
        let dir = storage.dir(data).ok()?;
        let control = Control::parse(&read(&*dir, Path::new("global/pg_control"))?).ok()?;
        if control.system != identity.system || control.wal_segment != size {
            return None;
        }
        let path = data.join("pg_wal");
        // It may be a link to another disk.
        let own = OwnWal::of(storage.dir(&path).ok()?, size, control.timeline)?;
        let history = own.history()?;
        let is_known = self.histories().ok()?.contains(&own.timeline) || history.forks().is_empty();
        let is_other = is_known && !self.has_same(&own, &history);
        let mut names = Vec::new();
        let from = match own.timeline == followed {
            true if is_known && !is_other => self.end_of_part(followed, end, size),
            false if is_known && !is_other => return None,
            _ => match history.forks().last() {
                Some(fork) => {
                    names.push(WalName::History(own.timeline));
                    fork.end
                }
                None => own.segments()?.min()?.start(size),
            },
        };
        let begin = SegmentName::holding(own.timeline, from, size);
        let ends = ends_from(records(|name| own.open(name), begin, size)?, from)?;
        let last = SegmentName::holding(own.timeline, ends.last, size);
        let after = std::iter::successors(Some(begin), |name| Some(name.next(size)));
        names.extend(after.take_while(|name| *name <= last).map(WalName::Segment));
        Some(Tail {
            path,
            archive: self.path().to_owned(),
            names,
            first_us: ends.first_us,
            is_other,
        })
    }

    /// Whether the archive's timeline of the same number is this one: two copies of a cluster each call their new timeline 2, and may
    /// leave the old one at the same place. The last segment that both have tells, as far as the directory's goes. An unreadable
    /// one contradicts nothing.
    fn has_same(&self, own: &OwnWal, history: &History) -> bool {
        let is_like = |known: History| known.forks() == history.forks();
        self.history(own.timeline).map_or(true, is_like) && self.has_same_bytes(own).unwrap_or(true)
    }

    fn has_same_bytes(&self, own: &OwnWal) -> Option<bool> {
        let archived = self.runs().ok()?;
        let is_archived = |name: &SegmentName| {
            let holds = |run: &Run| run.span.first <= *name && *name <= run.span.last;
            name.timeline == own.timeline && archived.iter().any(holds)
        };
        let mut both: Vec<SegmentName> = own.segments()?.filter(is_archived).collect();
        both.sort_unstable();
        for name in both.into_iter().rev() {
            let start = name.start(own.size);
            // A segment that is kept for later use has another one's content.
            let Some(found) = records(|asked| own.open(asked), name, own.size) else {
                continue;
            };
            let next = name.next(own.size).start(own.size);
            let Some(written) = end_before(found, next).filter(|end| *end > start) else {
                continue;
            };
            let len = written.0 - start.0;
            return Some(self.crc_of(name, len).ok()? == own.crc(name, len).ok()?);
        }
        None
    }

    /// The LSN after the last transaction that the archive has on a timeline: a receiver may have a part of the segment after its end.
    fn end_of_part(&self, timeline: Timeline, end: Lsn, size: SegmentSize) -> Lsn {
        let found = self.partial_after(timeline, end).and_then(|name| {
            let part = |asked: SegmentName| match asked == name {
                true => self.partial(name),
                false => Err(io::ErrorKind::NotFound.into()),
            };
            ends_from(records(part, name, size)?, end)
        });
        found.map_or(end, |ends| Lsn(ends.last.0 + 1))
    }
}

/// The LSN after the last whole record that begins before `to`; `None`: there is none.
fn end_before(mut records: Records<WalBytes>, to: Lsn) -> Option<Lsn> {
    let mut end = None;
    while let Ok(Some(_)) = records.next(to, |_, _| false) {
        end = Some(records.place().min(to));
    }
    end
}

fn read(dir: &dyn Dir, path: &Path) -> Option<Vec<u8>> {
    let file = dir.open(path, OpenHow::Read).ok()?;
    let mut bytes = vec![0; FILE_MAX];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

/// Reads WAL from an LSN on, over the ends of segments.
type WalBytes<'a> = Box<dyn FnMut(Lsn, &mut [u8]) -> io::Result<()> + 'a>;

/// The records from the begin of a segment on; `None`: its file is missing, or has older content.
fn records<'a>(
    open: impl Fn(SegmentName) -> io::Result<Arc<dyn File>> + 'a,
    first: SegmentName,
    size: SegmentSize,
) -> Option<Records<WalBytes<'a>>> {
    let mut opened: Option<(SegmentName, Arc<dyn File>)> = None;
    let read = move |lsn: Lsn, buf: &mut [u8]| {
        let name = SegmentName::holding(first.timeline, lsn, size);
        let file = match opened.take() {
            Some((known, file)) if known == name => file,
            _ => open(name)?,
        };
        let offset = lsn.0 - name.start(size).0;
        let len = file.read_full_at(buf, offset, Via::Cache)?;
        opened = Some((name, file));
        match len == buf.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let read: WalBytes<'a> = Box::new(read);
    let records = Records::of_segment(read, first.start(size)).ok()?;
    Some(records.verifying())
}
