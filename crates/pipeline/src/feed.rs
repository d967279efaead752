//! Cutting a source into jobs: which bytes go into the next buffer.
//!
//! A file of a buffer's size or more gets blocks of its own, so that its reads are aligned; smaller files
//! share a block whole. Each volume is walked on its own, and the next job comes from the volume with
//! the fewest jobs under way, so that every volume's reader has work.
//!
//! Invariants
//! - Jobs are numbered without gaps from 0, in the order they are handed out.
//! - A job's pieces fill its plain bytes from the front, in the order of its manifest's extents.
//! - Every file's content is settled exactly once, after its last piece was read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_media::header::MANIFEST_MAX;
use longshore_media::manifest::{EXTENT_LEN, PATH_MAX};
use longshore_media::{Entry, EntryKind, Extent, Item};
use longshore_source::{self as source, Change, Content, Source};

use crate::Error;

/// Room a manifest must have left for one more entry and extent.
const ITEM_MAX: usize = 2 * PATH_MAX + 128;
/// Holes are looked for in files of this size or more: asking costs an open.
const SPARSE_FROM: u64 = 64 << 10;

/// A file being read, possibly by several workers.
pub struct OpenFile {
    pub path: PathBuf,
    pub content: Arc<dyn Content>,
    /// Pieces under way, and one more while the feed may still cut others.
    unsettled: AtomicUsize,
}

impl OpenFile {
    /// One piece less to read. Whoever ends the last one settles the file.
    pub fn piece_done(&self) -> Result<Option<Change>, source::Error> {
        match self.unsettled.fetch_sub(1, Ordering::AcqRel) {
            1 => self.content.settle(),
            _ => Ok(None),
        }
    }
}

/// A run of one file's bytes within a buffer.
pub struct Piece {
    pub file: Arc<OpenFile>,
    pub offset: u64,
    pub len: usize,
    /// Where in the buffer they go.
    pub at: usize,
}

/// What one buffer is to hold.
pub struct Job {
    pub sequence: u64,
    /// Index into the source's volumes.
    pub volume: usize,
    pub manifest: Vec<u8>,
    pub pieces: Vec<Piece>,
    pub plain_len: usize,
}

/// The file a volume's walk is in.
struct Cursor {
    entry: Entry,
    file: Arc<OpenFile>,
    /// Where the next piece starts.
    next: u64,
    /// End of the data range that `next` lies in; `next` when it must be asked for.
    data_end: u64,
}

struct Walk {
    cursor: Option<Cursor>,
    ended: bool,
    under_way: usize,
}

/// Hands out jobs until the source ends. Lives under one lock.
pub struct Feed<'a> {
    source: &'a dyn Source,
    walks: Vec<Walk>,
    buffer_bytes: usize,
    sequence: u64,
    /// Jobs that were handed out and not begun.
    back: BTreeMap<u64, Job>,
    pub entries: u64,
    pub files: u64,
    /// Files that ended without data pieces but changed, for the caller to collect.
    pub changes: Vec<(PathBuf, Change)>,
}

impl<'a> Feed<'a> {
    pub fn new(source: &'a dyn Source, buffer_bytes: usize) -> Feed<'a> {
        let walk = |_| Walk {
            cursor: None,
            ended: false,
            under_way: 0,
        };
        let walks = (0..source.description().volumes.len()).map(walk).collect();
        Feed {
            source,
            walks,
            buffer_bytes,
            sequence: 0,
            back: BTreeMap::new(),
            entries: 0,
            files: 0,
            changes: Vec::new(),
        }
    }

    /// The next job, `None` when every volume has ended.
    pub fn next(&mut self) -> Result<Option<Job>, Error> {
        if let Some((_, job)) = self.back.pop_first() {
            return Ok(Some(job));
        }
        loop {
            let open = self.walks.iter().enumerate().filter(|(_, w)| !w.ended);
            let Some((volume, _)) = open.min_by_key(|(_, w)| w.under_way) else {
                return Ok(None);
            };
            if let Some(job) = self.cut(volume)? {
                self.walks[volume].under_way += 1;
                return Ok(Some(job));
            }
            self.walks[volume].ended = true;
        }
    }

    /// Every volume has ended and all was read: lets the source add what it knows only now. Says whether
    /// there is more.
    pub fn reopen(&mut self) -> Result<bool, Error> {
        let more = self.source.epilogue()?;
        self.walks[0].ended &= !more;
        Ok(more)
    }

    /// Takes back a job that its worker cannot begin now: whoever can comes first.
    pub fn put_back(&mut self, job: Job) {
        self.back.insert(job.sequence, job);
    }

    /// A job of this volume has been read.
    pub fn done(&mut self, volume: usize) {
        self.walks[volume].under_way -= 1;
    }

    /// A sequence number for a block the caller makes itself, after the last job.
    pub fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    fn cut(&mut self, volume: usize) -> Result<Option<Job>, Error> {
        let mut job = Job {
            sequence: 0,
            volume,
            manifest: Vec::new(),
            pieces: Vec::new(),
            plain_len: 0,
        };
        while job.manifest.len() + ITEM_MAX <= MANIFEST_MAX {
            if self.walks[volume].cursor.is_none() && !self.advance(volume, &mut job)? {
                break;
            }
            let Some(cursor) = self.walks[volume].cursor.as_mut() else {
                continue;
            };
            let whole = cursor.entry.len < self.buffer_bytes as u64;
            let room = (self.buffer_bytes - job.plain_len) as u64;
            // A small file is not split, a large one does not start in the middle of a block.
            if job.plain_len > 0 && (!whole || cursor.entry.len > room) {
                break;
            }
            let ended = cursor.fill(&mut job, self.buffer_bytes)?;
            if ended {
                let file = self.walks[volume].cursor.take().map(|c| c.file);
                if let Some(file) = file
                    && let Some(change) = file.piece_done()?
                {
                    self.changes.push((file.path.clone(), change));
                }
            }
            if !whole {
                break;
            }
        }
        if job.manifest.is_empty() {
            return Ok(None);
        }
        job.sequence = self.number();
        Ok(Some(job))
    }

    /// Takes the volume's next entry: names go straight into the manifest, a file with data becomes the cursor.
    fn advance(&mut self, volume: usize, job: &mut Job) -> Result<bool, Error> {
        let Some(found) = self.source.next(volume)? else {
            return Ok(false);
        };
        self.entries += 1;
        if found.path.as_os_str().len() > PATH_MAX {
            return Err(Error::PathTooLong {
                path: found.path,
                bytes_max: PATH_MAX,
            });
        }
        let kind = match found.kind {
            source::EntryKind::File => EntryKind::File,
            source::EntryKind::Dir => EntryKind::Dir,
            source::EntryKind::Symlink { target } => EntryKind::Symlink { target },
            source::EntryKind::HardLink { target } => EntryKind::HardLink { target },
        };
        self.files += u64::from(kind == EntryKind::File);
        let entry = Entry {
            path: found.path,
            kind,
            first: true,
            based: false,
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            mtime_ns: found.mtime_ns,
            len: found.len,
        };
        match found.content {
            Some(content) => {
                let path = entry.path.clone();
                let file = Arc::new(OpenFile {
                    path,
                    content,
                    unsettled: AtomicUsize::new(1),
                });
                let data_end = if entry.len < SPARSE_FROM {
                    entry.len
                } else {
                    0
                };
                self.walks[volume].cursor = Some(Cursor {
                    entry,
                    file,
                    next: 0,
                    data_end,
                });
            }
            None => entry.encode(&mut job.manifest),
        }
        Ok(true)
    }
}

impl Cursor {
    /// Moves to the next data at or after `next`; false when only a hole follows.
    fn seek_data(&mut self) -> Result<bool, source::Error> {
        if self.next < self.data_end {
            return Ok(true);
        }
        if self.next >= self.entry.len {
            return Ok(false);
        }
        match self.file.content.next_data(self.next)? {
            Some(range) => {
                self.next = range.start;
                self.data_end = range.end;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Adds pieces until the block is full or the file has ended; says whether it has.
    fn fill(&mut self, job: &mut Job, buffer_bytes: usize) -> Result<bool, source::Error> {
        self.entry.encode(&mut job.manifest);
        self.entry.first = false;
        loop {
            if !self.seek_data()? {
                return Ok(true);
            }
            let room = buffer_bytes - job.plain_len;
            // The caller left room for the entry and one extent: both always stand together.
            if room == 0 || job.manifest.len() + EXTENT_LEN > MANIFEST_MAX {
                return Ok(false);
            }
            let len = (self.data_end - self.next).min(room as u64) as usize;
            Item::Extent(Extent {
                offset: self.next,
                len: len as u32,
            })
            .encode(&mut job.manifest);
            self.file.unsettled.fetch_add(1, Ordering::AcqRel);
            job.pieces.push(Piece {
                file: self.file.clone(),
                offset: self.next,
                len,
                at: job.plain_len,
            });
            job.plain_len += len;
            self.next += len as u64;
        }
    }
}
