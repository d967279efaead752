//! Cuts a source into jobs: decides which bytes go into the next buffer.
//!
//! A file of at least a buffer's size gets separate blocks, so that its reads are aligned; smaller files share a block
//! without being split. Each volume is walked separately, and the next job comes from the volume with the fewest jobs
//! in flight, so that every volume's reader has work.
//!
//! A file of pages that the base has is *based*: which of its pages must be stored is known only after reading. It is
//! named in the next job, without extents, and then handed out in runs to be compared ([`Scan`]). A worker gathers the
//! differences into separate blocks ([`crate::gather`]). Pages that are certain to equal the base's are not read,
//! except for a sample; their sums are copied from the base.
//!
//! Invariants, each with a test below
//! - Jobs are numbered without gaps from 0, in the order in which they are handed out; gathered blocks get their
//!   number when they are full.
//! - A small file is not split, and a large one begins a block: its reads are aligned.
//! - A based file is compared only after the job that names it was handed out; its runs cover it from 0 to its length,
//!   in order, each byte once.
//! - Files waiting to be compared are those of one job: no further job is cut before they are handed out.
//! - A job's pieces fill its plain bytes from the start, in the order of its manifest's extents, and so do its parts; in a file of pages,
//!   each extent is followed by room for the sums of its pages.
//! - Every file's content is settled exactly once, after its last piece was read.
//!
//! Leaves to others: reading the bytes (`load/read.rs`), and gathering differences (`gather.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_codec::Layout;
use longshore_io::Xattr;
use longshore_media::block::MANIFEST_PLAIN_MAX;
use longshore_media::manifest::{
    EXTENT_LEN, PATH_MAX, SUM_LEN, SUM_PAGE_MAX, SUMS_HEAD_LEN, safe_path, sums_len,
};
use longshore_media::{Entry, EntryKind, Extent, Item, Sums};
use longshore_source::{self as source, Change, Content, Source};

use crate::Error;
use crate::page_sums::{HeldFile, PageSums};
use crate::parts::Parts;

/// Room that a manifest must have left for one more entry and extent.
pub const ITEM_MAX: usize = 2 * PATH_MAX + 128;
/// The most pages whose sums are copied in one run.
pub const CARRIED_PAGES: usize = 2048;
/// One in this many of the unread pages is read as a sample; in large clusters fewer, about [`SAMPLES`] in total.
const SAMPLE_EVERY: u64 = 64;
const SAMPLES: u64 = 16_384;
/// Holes are searched for in files of at least this size: the search costs an open.
const SPARSE_FROM: u64 = 64 << 10;

/// A file being read, possibly by several workers.
pub struct OpenFile {
    pub path: PathBuf,
    pub content: Arc<dyn Content>,
    /// How the rows in its pages are probably laid out.
    pub layout: Option<Arc<Layout>>,
    /// Pieces in flight, plus one while the feed may still cut more.
    unsettled: AtomicUsize,
}

impl OpenFile {
    pub fn new(entry: &Entry, content: Arc<dyn Content>, layout: Option<Arc<Layout>>) -> OpenFile {
        OpenFile {
            path: entry.path.clone(),
            content,
            layout,
            unsettled: AtomicUsize::new(1),
        }
    }

    /// Records that a piece was read. The last piece settles the file.
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
    pub len_bytes: usize,
    /// Offset in the buffer.
    pub at: usize,
    /// Where the sums of its pages go.
    pub sums: Option<SumsPlace>,
}

/// Room in a job's manifest for the sums of a piece's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumsPlace {
    pub at: usize,
    pub page_bytes: u32,
}

/// The planned contents of one buffer.
pub struct Job {
    pub sequence: u64,
    /// Index into the source's volumes.
    pub volume: usize,
    pub manifest: Vec<u8>,
    pub pieces: Vec<Piece>,
    /// Whose its plain bytes are.
    pub parts: Parts,
    pub plain_len: usize,
}

impl Piece {
    pub fn is_cached(&self) -> bool {
        let range = self.offset..self.offset + self.len_bytes as u64;
        self.file.content.is_cached(range)
    }
}

impl Job {
    /// Whether its bytes are in the page cache, judged by its first and last piece: each query opens a file, and a job
    /// may have thousands of small files.
    pub fn is_cached(&self) -> bool {
        match &self.pieces[..] {
            [] => true,
            [piece] => piece.is_cached(),
            [first, .., last] => first.is_cached() && last.is_cached(),
        }
    }
}

/// The treatment of a run of a based file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Read it and compare it with the base.
    Compare,
    /// The same, although the run is said to equal the base's.
    Sample,
    /// Copy the base's sums without reading.
    Carry,
}

/// A run of a based file to be compared.
pub struct Scan {
    pub volume: usize,
    pub based: Arc<BasedFile>,
    pub offset: u64,
    pub len_bytes: usize,
    pub look: Look,
}

impl Scan {
    /// Bytes that must be read for it.
    pub fn read_len(&self) -> usize {
        match self.look {
            Look::Compare | Look::Sample => self.len_bytes,
            Look::Carry => 0,
        }
    }

    /// The number of its pages.
    pub fn pages(&self) -> usize {
        self.len_bytes.div_ceil(self.based.page_bytes as usize)
    }
}

/// A file of which only the differences from the base are stored.
pub struct BasedFile {
    pub file: OpenFile,
    /// The entry as written in blocks after the first.
    pub entry: Entry,
    pub page_bytes: u32,
    /// The file in the base.
    pub held: HeldFile,
}

/// The next task of a worker.
pub enum Work {
    Job(Job),
    Scan(Scan),
}

/// What a feed hands out: any [`Work`], or to a worker that fills a block with differences only a [`Scan`].
pub trait Handed: Sized {
    /// Takes the next one; `None` if there is none now.
    fn next_of(feed: &mut Feed) -> Result<Option<Self>, Error>;

    /// Gives it back, because the worker cannot begin it now; the next worker that can gets it first.
    fn put_back_to(self, feed: &mut Feed);

    /// Whether its bytes are in the page cache.
    fn is_cached(&self) -> bool;
}

impl Handed for Work {
    fn next_of(feed: &mut Feed) -> Result<Option<Work>, Error> {
        feed.next()
    }

    fn put_back_to(self, feed: &mut Feed) {
        feed.put_back(self);
    }

    fn is_cached(&self) -> bool {
        match self {
            Work::Job(job) => job.is_cached(),
            Work::Scan(scan) => scan.is_cached(),
        }
    }
}

impl Handed for Scan {
    fn next_of(feed: &mut Feed) -> Result<Option<Scan>, Error> {
        feed.next_scan()
    }

    fn put_back_to(self, feed: &mut Feed) {
        feed.put_scan_back(self);
    }

    fn is_cached(&self) -> bool {
        let range = self.offset..self.offset + self.len_bytes as u64;
        self.look == Look::Carry || self.based.file.content.is_cached(range)
    }
}

/// A based file whose runs are being handed out.
struct BasedScan {
    based: Arc<BasedFile>,
    next: u64,
    /// The first range from `next` on that must be compared; if it ends at `next`, it must be queried again.
    doubtful: Range<u64>,
    /// Offset of the next sample, unless it is read anyway.
    sample: u64,
}

/// The file that a volume's walk has reached.
struct Cursor {
    entry: Entry,
    file: Arc<OpenFile>,
    /// Start of the next piece.
    next: u64,
    /// End of the data range around `next`; equals `next` if it must be queried.
    data_end: u64,
    /// Present if the file's pages get sums.
    page_bytes: Option<u32>,
}

struct Walk {
    /// An entry that did not fit the last job.
    waiting: Option<source::Entry>,
    cursor: Option<Cursor>,
    scans: VecDeque<BasedScan>,
    ended: bool,
    under_way: usize,
}

/// Hands out jobs until the source ends. Used under one lock.
pub struct Feed<'a> {
    source: &'a dyn Source,
    /// Whether pages get sums.
    with_sums: bool,
    base: Option<&'a PageSums>,
    samples: Samples,
    walks: Vec<Walk>,
    buffer_bytes: usize,
    scan_bytes: usize,
    sequence: u64,
    /// Runs that were handed out and returned unread.
    scans_back: Vec<Scan>,
    /// Jobs that were handed out and returned unread.
    back: BTreeMap<u64, Job>,
    pub entries: u64,
    pub files: u64,
    pub based: u64,
    /// Bytes of the files of which only the differences are stored, holes included.
    pub based_bytes: u64,
    /// Files that ended without data pieces but changed, for the caller to collect.
    pub changes: Vec<(PathBuf, Change)>,
}

impl<'a> Feed<'a> {
    /// `base`: the page sums of the base, if any; with a base, pages always get sums.
    pub fn new(
        source: &'a dyn Source,
        buffer_bytes: usize,
        with_sums: bool,
        base: Option<&'a PageSums>,
    ) -> Feed<'a> {
        let walk = |_| Walk {
            waiting: None,
            cursor: None,
            scans: VecDeque::new(),
            ended: false,
            under_way: 0,
        };
        let walks = (0..source.description().volumes.len()).map(walk).collect();
        Feed {
            source,
            with_sums: with_sums || base.is_some(),
            base,
            samples: Samples::new(base.map_or(0, PageSums::pages)),
            walks,
            buffer_bytes,
            scan_bytes: scan_bytes(buffer_bytes),
            sequence: 0,
            scans_back: Vec::new(),
            back: BTreeMap::new(),
            entries: 0,
            files: 0,
            based: 0,
            based_bytes: 0,
            changes: Vec::new(),
        }
    }

    /// The next task; `None` when every volume has ended.
    fn next(&mut self) -> Result<Option<Work>, Error> {
        if let Some((_, job)) = self.back.pop_first() {
            return Ok(Some(Work::Job(job)));
        }
        loop {
            if let Some(scan) = self.next_scan()? {
                return Ok(Some(Work::Scan(scan)));
            }
            let open = self.walks.iter().enumerate().filter(|(_, w)| !w.ended);
            let Some((volume, _)) = open.min_by_key(|(_, w)| w.under_way) else {
                return Ok(None);
            };
            if let Some(job) = self.cut(volume)? {
                self.walks[volume].under_way += 1;
                return Ok(Some(Work::Job(job)));
            }
            self.walks[volume].ended = true;
        }
    }

    /// The next run to compare, from the volume with the fewest in flight; `None` if none waits now.
    fn next_scan(&mut self) -> Result<Option<Scan>, Error> {
        if let Some(scan) = self.scans_back.pop() {
            return Ok(Some(scan));
        }
        loop {
            let waiting = self.walks.iter_mut().enumerate();
            let waiting = waiting.filter(|(_, w)| !w.scans.is_empty());
            let Some((volume, walk)) = waiting.min_by_key(|(_, w)| w.under_way) else {
                return Ok(None);
            };
            let Some(scanned) = walk.scans.front_mut() else {
                return Ok(None);
            };
            if let Some((offset, len, look)) = scanned.run(self.scan_bytes, &mut self.samples)? {
                scanned.based.file.unsettled.fetch_add(1, Ordering::AcqRel);
                walk.under_way += 1;
                return Ok(Some(Scan {
                    volume,
                    based: scanned.based.clone(),
                    offset,
                    len_bytes: len,
                    look,
                }));
            }
            if let Some(ended) = walk.scans.pop_front() {
                let file = &ended.based.file;
                if let Some(change) = file.piece_done()? {
                    self.changes.push((file.path.clone(), change));
                }
            }
        }
    }

    /// Called when every volume has ended and everything was read: lets the source add entries that it knows only now.
    /// Returns whether there are more.
    pub fn reopen(&mut self) -> Result<bool, Error> {
        let more = self.source.epilogue()?;
        self.walks[0].ended &= !more;
        Ok(more)
    }

    /// Takes back a task that its worker cannot begin now; the next worker that can gets it first.
    fn put_back(&mut self, work: Work) {
        match work {
            Work::Job(job) => drop(self.back.insert(job.sequence, job)),
            Work::Scan(scan) => self.put_scan_back(scan),
        }
    }

    /// Takes back a run that its worker cannot begin now.
    fn put_scan_back(&mut self, scan: Scan) {
        self.scans_back.push(scan);
    }

    /// A job or run of this volume has been read.
    pub fn done(&mut self, volume: usize) {
        self.walks[volume].under_way -= 1;
    }

    /// A sequence number for a block that the caller makes itself, after the last job.
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
            parts: Parts::default(),
            plain_len: 0,
        };
        while job.manifest.len() + ITEM_MAX <= MANIFEST_PLAIN_MAX {
            if self.walks[volume].cursor.is_none() && !self.advance(volume, &mut job)? {
                break;
            }
            let Some(cursor) = self.walks[volume].cursor.as_mut() else {
                continue;
            };
            let whole = cursor.entry.len < self.buffer_bytes as u64;
            let room = (self.buffer_bytes - job.plain_len) as u64;
            // A small file is not split, and a large one, which never fits, does not start in the middle of a block.
            if job.plain_len > 0 && cursor.entry.len > room {
                break;
            }
            let sums = cursor.sums_len(cursor.entry.len.min(room));
            if job.manifest.len() + ITEM_MAX + sums > MANIFEST_PLAIN_MAX && !job.manifest.is_empty()
            {
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

    /// From now on runs of the file are handed out.
    fn scan(&mut self, volume: usize, based: BasedFile) {
        self.based += 1;
        let sample = self.samples.next(0, based.page_bytes);
        self.walks[volume].scans.push_back(BasedScan {
            based: Arc::new(based),
            next: 0,
            doubtful: 0..0,
            sample,
        });
    }

    /// The volume's next entry, if the manifest has room for its attributes; it waits if it has not.
    fn next_fitting(&mut self, volume: usize, job: &Job) -> Result<Option<source::Entry>, Error> {
        let found = match self.walks[volume].waiting.take() {
            Some(waiting) => waiting,
            None => match self.source.next(volume)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        // The caller left room for an entry without attributes.
        let xattrs: usize = found.xattrs.iter().map(Xattr::bytes).sum();
        if xattrs > 0
            && !job.manifest.is_empty()
            && job.manifest.len() + ITEM_MAX + xattrs > MANIFEST_PLAIN_MAX
        {
            self.walks[volume].waiting = Some(found);
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Takes the volume's next entry: a name goes directly into the manifest, a file with data becomes the cursor.
    fn advance(&mut self, volume: usize, job: &mut Job) -> Result<bool, Error> {
        let Some(found) = self.next_fitting(volume, job)? else {
            return Ok(false);
        };
        self.entries += 1;
        if found.path.as_os_str().len() > PATH_MAX {
            return Err(Error::PathTooLong {
                path: found.path,
                bytes_max: PATH_MAX,
            });
        }
        check_name(&found.path)?;
        let kind = kind_of(found.kind)?;
        self.files += u64::from(kind == EntryKind::File);
        let page_bytes = found.page_bytes.filter(|_| self.with_sums);
        let held = match (page_bytes, self.base, &found.content) {
            (Some(page_bytes), Some(base), Some(_)) => base
                .file(&found.path, page_bytes)
                .map(|held| (page_bytes, held)),
            _ => None,
        };
        if held.is_some() {
            self.based_bytes = self.based_bytes.saturating_add(found.len);
        }
        let entry = Entry {
            path: found.path,
            kind,
            first: true,
            based: held.is_some(),
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            mtime_ns: found.mtime_ns,
            len: found.len,
            xattrs: found.xattrs,
        };
        match (found.content, held) {
            (Some(content), Some((page_bytes, held))) => {
                entry.encode(&mut job.manifest);
                let file = OpenFile::new(&entry, content, found.layout);
                let entry = Entry {
                    first: false,
                    xattrs: Vec::new(),
                    ..entry
                };
                let based = BasedFile {
                    file,
                    entry,
                    page_bytes,
                    held,
                };
                self.scan(volume, based);
            }
            (Some(content), None) => {
                let file = Arc::new(OpenFile::new(&entry, content, found.layout));
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
                    page_bytes,
                });
            }
            (None, _) => entry.encode(&mut job.manifest),
        }
        Ok(true)
    }
}

fn kind_of(found: source::EntryKind) -> Result<EntryKind, Error> {
    Ok(match found {
        source::EntryKind::File => EntryKind::File,
        source::EntryKind::Dir => EntryKind::Dir,
        source::EntryKind::Symlink { target } => EntryKind::Symlink { target },
        source::EntryKind::HardLink { target } => {
            check_name(&target)?;
            EntryKind::HardLink { target }
        }
    })
}

/// The most bytes in a run: several runs fit in a buffer, and whole pages of any size fit in a run.
pub fn scan_bytes(buffer_bytes: usize) -> usize {
    const UNIT: usize = SUM_PAGE_MAX as usize;
    (buffer_bytes / 4 / UNIT * UNIT).max(UNIT)
}

/// Chooses the unread pages that are read as samples: at random, so that nobody can predict them.
struct Samples {
    /// The average distance between two samples, in pages.
    every: u64,
    random: RandomState,
    taken: u64,
}

impl Samples {
    /// For a base with `pages` pages.
    fn new(pages: u64) -> Samples {
        Samples {
            every: (pages / SAMPLES).max(SAMPLE_EVERY),
            random: RandomState::new(),
            taken: 0,
        }
    }

    /// The offset of the next sample after `offset`.
    fn next(&mut self, offset: u64, page_bytes: u32) -> u64 {
        self.taken += 1;
        let pages = self.random.hash_one(self.taken) % (2 * self.every - 1) + 1;
        offset + pages * u64::from(page_bytes)
    }
}

impl BasedScan {
    /// The next run; `None` at the file's end.
    fn run(
        &mut self,
        bytes_max: usize,
        samples: &mut Samples,
    ) -> Result<Option<(u64, usize, Look)>, source::Error> {
        let BasedFile {
            file,
            entry,
            page_bytes,
            held,
        } = &*self.based;
        let (offset, page) = (self.next, u64::from(*page_bytes));
        if offset >= entry.len {
            return Ok(None);
        }
        if offset >= self.doubtful.end {
            // The part beyond the end of the base's file must be read in any case, and so must a page that is not whole.
            let whole = held.len_bytes().min(entry.len) / page * page;
            let grown = whole.clamp(offset, entry.len)..entry.len;
            let told = match grown.start > offset {
                true => file.content.next_doubtful(offset)?,
                false => None,
            };
            self.doubtful = match told {
                Some(told) if told.start < grown.start => {
                    let end = told.end.min(entry.len);
                    told.start.max(offset)..end.max(told.start.max(offset))
                }
                _ => grown,
            };
        }
        if self.sample < offset {
            self.sample = samples.next(offset, *page_bytes);
        }
        let (len, look) = if offset >= self.doubtful.start {
            let left = self.doubtful.end - offset;
            (left.min(bytes_max as u64), Look::Compare)
        } else if offset == self.sample {
            (page, Look::Sample)
        } else {
            let end = self.doubtful.start.min(self.sample);
            let most = CARRIED_PAGES as u64 * page;
            ((end - offset).min(most), Look::Carry)
        };
        self.next += len;
        Ok(Some((offset, len as usize, look)))
    }
}

impl Cursor {
    /// Moves to the next data at or after `next`; false if only a hole follows.
    fn seek_data(&mut self) -> Result<bool, source::Error> {
        if self.next < self.data_end {
            return Ok(true);
        }
        if self.next >= self.entry.len {
            return Ok(false);
        }
        match self.file.content.next_data(self.next)? {
            Some(range) => {
                // Sums cover whole pages.
                let page = u64::from(self.page_bytes.unwrap_or(1));
                self.next = (range.start / page * page).max(self.next);
                self.data_end = range.end.next_multiple_of(page).min(self.entry.len);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Bytes that the sums for `bytes` bytes take in a manifest.
    fn sums_len(&self, bytes: u64) -> usize {
        self.page_bytes
            .map_or(0, |page| sums_len(bytes.div_ceil(page.into()) as usize))
    }

    /// Adds pieces until the block is full or the file has ended; returns whether the file has ended.
    fn fill(&mut self, job: &mut Job, buffer_bytes: usize) -> Result<bool, source::Error> {
        self.entry.encode(&mut job.manifest);
        job.parts.begin(self.file.layout.clone(), self.entry.len);
        self.entry.first = false;
        self.entry.xattrs.clear();
        loop {
            if !self.seek_data()? {
                return Ok(true);
            }
            let room = buffer_bytes - job.plain_len;
            // The caller left room for the entry and one extent, which must be in the same manifest.
            let manifest_room = MANIFEST_PLAIN_MAX.saturating_sub(job.manifest.len());
            if room == 0 || EXTENT_LEN + self.sums_len(1) > manifest_room {
                return Ok(false);
            }
            let mut len = (self.data_end - self.next).min(room as u64) as usize;
            if let Some(page_bytes) = self.page_bytes {
                let pages = manifest_room.saturating_sub(EXTENT_LEN + SUMS_HEAD_LEN) / SUM_LEN;
                len = len.min(pages * page_bytes as usize);
                // Only the file's last page may be short.
                if self.next + (len as u64) < self.entry.len {
                    len = len / page_bytes as usize * page_bytes as usize;
                }
                if len == 0 {
                    return Ok(false);
                }
            }
            Item::Extent(Extent {
                offset: self.next,
                len: len as u32,
            })
            .encode(&mut job.manifest);
            let sums = self.page_bytes.map(|page_bytes| {
                let at = job.manifest.len() + SUMS_HEAD_LEN;
                Sums {
                    offset: self.next,
                    page_bytes,
                    sums: vec![0; len.div_ceil(page_bytes as usize)],
                }
                .encode(&mut job.manifest);
                SumsPlace { at, page_bytes }
            });
            self.file.unsettled.fetch_add(1, Ordering::AcqRel);
            job.pieces.push(Piece {
                file: self.file.clone(),
                offset: self.next,
                len_bytes: len,
                at: job.plain_len,
                sums,
            });
            job.parts.add(len);
            job.plain_len += len;
            self.next += len as u64;
        }
    }
}

/// A set with a name that readers refuse could not be read at all: failing is better.
fn check_name(path: &Path) -> Result<(), Error> {
    match safe_path(path.as_os_str().as_encoded_bytes()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::EntryName {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
