//! The archive as a directory: where each file is, whose WAL it holds, and how a file gets in.
//!
//! Invariants
//! - A file appears under its name only when it is complete and synced, and no file is ever replaced: pushing the same
//!   bytes again succeeds, other bytes under the same name are refused.
//! - The archive belongs to one cluster. A directory without the identity file is refused and never filled, because it
//!   may be the mount point of a file system that is not mounted.
//! - Below a target no symbolic link is followed: a user who can write there must not decide where WAL goes.
//!
//! Leaves to others: the form of an archived file (`form.rs`, `stored.rs`), reading ahead (`ahead.rs`), the needs of
//! targets (`needs.rs`), and whether a recovery gets through (`proof.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore_codec::{Algorithm, payload_bound};
use longshore_io::{Clock, Dir, File, FileKind, OpenHow, Stat, Storage, Via, crc32c, crc32c_join};
use longshore_pg::wal::{
    History, PAGE_HEADER_LEN, Records, SegmentHeader, WalName, is_page_at, is_same_history,
};
use longshore_pg::{Lsn, SegmentName, Timeline};

use super::form::{IDENTITY_NAME, StorageForm};
use super::identity::Mark;
use super::object::{End, Head, Row};
use super::outflow::Outflow;
use super::press::{BLOCK_BYTES, Press, Presses};
use super::staged::StagedFile;
use super::stored::Object;
use super::waiting::{WAIT_MAX, WAIT_STEP, wait};
use super::{Error, Identity};

/// File name endings of archived files, by algorithm.
pub(super) const ENDINGS: [&str; 4] = ["gz", "zst", "lz4", "xpress"];

/// Claims the archive for a cluster until [`IDENTITY_NAME`] does; used only where locks may not reach all writers.
const CLAIM_NAME: &str = "longshore-wal.claim";

/// Longest history or backup mark that is accepted, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// A file to be archived.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub name: WalName,
    /// For messages.
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// The system identifier of the cluster that archives it, if known. Histories and backup marks do not contain it.
    pub system: Option<u64>,
    /// The history of its timeline, if the cluster has one: it must equal the archive's, or be archived first. Two
    /// restores of one backup differ in nothing else.
    pub history: Option<Box<Outgoing>>,
    /// The directory it comes from, if it holds the server's other segments.
    pub beside: Option<Arc<dyn Dir>>,
}

/// The result of pushing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    Stored {
        stored_bytes: u64,
        /// Whether the segment's last page is not its own: it was archived before it was full.
        unfinished: bool,
    },
    /// The archive already had it, with the same bytes.
    Already,
    /// The archive has the segment from the server that continued writing in it. This server left the timeline at this
    /// LSN, and up to there both are the same.
    LeftAt(Lsn),
}

/// How a file matches the archive's file of the same name.
enum Same {
    Whole,
    UpTo(Lsn),
}

/// The decision about a file.
enum PushDecision {
    There(Same),
    Begun(StagedFile),
}

/// The WAL archive of one cluster.
#[derive(Debug)]
pub struct WalArchive {
    path: PathBuf,
    pub(super) dir: Arc<dyn Dir>,
    identity: OnceLock<Identity>,
    /// Kept from file to file.
    presses: Presses,
}

/// The facts that a file's bytes show.
struct FileFacts {
    len: u32,
    system: u64,
    segment_bytes: u32,
    magic: u16,
    unfinished: bool,
}

impl WalArchive {
    /// Opens the archive at `path`, which may still be empty.
    ///
    /// A directory without the identity file may be a mount point without its file system; a missing directory may be
    /// below one. Nothing is created here: WAL would be accepted, with success, and be gone with the next mount.
    ///
    /// Errors: `NotAnArchive`, `IdentityDamaged`, `Io`.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<WalArchive, Error> {
        WalArchive::opened(path.to_owned(), storage.dir(path))
    }

    /// Like [`WalArchive::open`], for the directory `below` in `base`. Symbolic links are followed up to `base` only:
    /// a user who can write to a target must not decide where else its WAL goes.
    ///
    /// Errors: also `LinkBelow`.
    pub fn open_below(
        storage: &dyn Storage,
        base: &Path,
        below: &Path,
    ) -> Result<WalArchive, Error> {
        let path = base.join(below);
        let dir = storage.dir(base).and_then(|base| base.dir(below));
        match dir {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                match link_below(storage, base, below) {
                    Some(link) => Err(Error::LinkBelow { path: link }),
                    None => Err(Error::io("open", path)(e)),
                }
            }
            dir => WalArchive::opened(path, dir),
        }
    }

    fn opened(path: PathBuf, dir: io::Result<Arc<dyn Dir>>) -> Result<WalArchive, Error> {
        let none = || Error::NotAnArchive { path: path.clone() };
        let dir = match dir {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(none()),
            opened => opened.map_err(Error::io("open", &path))?,
        };
        let archive = WalArchive {
            path: path.clone(),
            dir,
            identity: OnceLock::new(),
            presses: Presses::default(),
        };
        if let Some(identity) = archive.read_mark()?.ok_or_else(none)?.identity() {
            archive.identity.get_or_init(|| identity);
        }
        Ok(archive)
    }

    /// Makes the directories `below` in `base` an archive, if they are not one yet, and opens it. `base` must exist;
    /// symbolic links below it are not followed.
    ///
    /// Errors: `LinkBelow`, `IdentityDamaged`, `Io`.
    pub fn create(
        storage: &dyn Storage,
        base: &Path,
        below: &Path,
        clock: &dyn Clock,
    ) -> Result<WalArchive, Error> {
        let dir = storage.dir(base).map_err(Error::io("open", base))?;
        if let Some(path) = link_below(storage, base, below) {
            return Err(Error::LinkBelow { path });
        }
        let mut at = PathBuf::new();
        for part in below.components() {
            let parent = at.clone();
            at.push(part);
            // The process that created it, or its identity file below, may have been killed before the name was
            // durable.
            match dir.create_dir(&at) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
            .and_then(|()| dir.sync(&parent))
            .map_err(Error::io("create", base.join(&at)))?;
        }
        let path = base.join(below);
        let made = match below.as_os_str().is_empty() {
            true => Ok(dir),
            false => dir.dir(below),
        };
        let archive = WalArchive {
            dir: made.map_err(Error::io("open", &path))?,
            path,
            identity: OnceLock::new(),
            presses: Presses::default(),
        };
        // Versions that record no needs in an archive have never used a new one.
        if archive.read_mark()?.is_none() && archive.is_bare()? {
            archive.know_all()?;
        }
        if let Some(found) = archive.mark(Mark::Unclaimed, clock, |found| found)? {
            archive.sync_names(&*archive.dir)?;
            if let Some(identity) = found.identity() {
                archive.identity.get_or_init(|| identity);
            }
        }
        Ok(archive)
    }

    /// Opens an archive that already holds a cluster's WAL.
    ///
    /// Errors: also `NothingYet`.
    pub fn existing(storage: &dyn Storage, path: &Path) -> Result<WalArchive, Error> {
        let archive = WalArchive::open(storage, path)?;
        archive.identified()?;
        Ok(archive)
    }

    /// Like [`WalArchive::existing`], for the directory `below` in `base` as in [`WalArchive::open_below`].
    pub fn existing_below(
        storage: &dyn Storage,
        base: &Path,
        below: &Path,
    ) -> Result<WalArchive, Error> {
        let archive = WalArchive::open_below(storage, base, below)?;
        archive.identified()?;
        Ok(archive)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes of the archive's own directory.
    pub fn stat(&self) -> io::Result<Stat> {
        self.dir.stat(Path::new(""))
    }

    /// The cluster of its WAL; `None` before the first segment.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.get().copied()
    }

    /// Whose log it holds.
    ///
    /// Errors: `NothingYet`.
    pub fn identified(&self) -> Result<Identity, Error> {
        self.identity().ok_or_else(|| Error::NothingYet {
            path: self.path.clone(),
        })
    }

    fn read_mark(&self) -> Result<Option<Mark>, Error> {
        self.read_mark_at(IDENTITY_NAME)
    }

    fn read_mark_at(&self, name: &str) -> Result<Option<Mark>, Error> {
        let path = self.path.join(name);
        let file = match self.dir.open(Path::new(name), OpenHow::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        let mut bytes = [0; Mark::LEN_MAX];
        let len = file
            .read_full_at(&mut bytes, 0, Via::Cache)
            .map_err(Error::io("read", &path))?;
        match Mark::decode(&bytes[..len]) {
            Some(mark) => Ok(Some(mark)),
            None => Err(Error::IdentityDamaged { path }),
        }
    }

    /// Writes the identity file, unless `keep` accepts the existing one, which is then returned.
    fn mark(
        &self,
        mark: Mark,
        clock: &dyn Clock,
        keep: impl Fn(Option<Mark>) -> Option<Mark>,
    ) -> Result<Option<Mark>, Error> {
        let path = self.path.join(IDENTITY_NAME);
        let began = clock.now();
        let staged = loop {
            if let Some(found) = keep(self.read_mark()?) {
                return Ok(Some(found));
            }
            let begun = StagedFile::begin(self.dir.clone(), IDENTITY_NAME);
            match begun.map_err(Error::io("create", &path))? {
                // Another process may have finished between the check and the lock.
                Some(staged) if keep(self.read_mark()?).is_none() => break staged,
                _ if clock.now().saturating_sub(began) < WAIT_MAX => clock.sleep(WAIT_STEP),
                _ => {
                    let busy = io::Error::from(io::ErrorKind::ResourceBusy);
                    return Err(Error::io("write", path)(busy));
                }
            }
        };
        let written = staged
            .file
            .write_all_at(mark.encode().as_bytes(), 0, Via::Cache);
        let keeps_locks = self.dir.keeps_locks(Path::new(""));
        let stored = match (written.and(keeps_locks), mark) {
            (Ok(true), _) => staged.publish(Path::new(IDENTITY_NAME)),
            (Ok(false), Mark::Unclaimed) => exclusively(staged, IDENTITY_NAME),
            (Ok(false), Mark::Of(_)) => {
                exclusively(staged, CLAIM_NAME).map_err(Error::io("store", &path))?;
                self.settle_claim()?;
                Ok(())
            }
            (Err(e), _) => Err(e),
        };
        stored.map_err(Error::io("store", path))?;
        Ok(self.read_mark()?.filter(|found| *found != mark))
    }

    /// Assigns the archive to the cluster in the claim, which only one of several first writers got. That may be
    /// another writer, which may have been killed.
    ///
    /// A claim is removed only once the identity file exists. So if the identity file, read after the claim, does not
    /// exist yet, the claim that was read is the only one there ever was.
    fn settle_claim(&self) -> Result<(), Error> {
        let path = self.path.join(IDENTITY_NAME);
        let claimed = self.read_mark_at(CLAIM_NAME)?;
        if self.read_mark()?.and_then(Mark::identity).is_none() {
            let (Some(claimed), Some(staged)) = (
                claimed,
                StagedFile::begin(self.dir.clone(), IDENTITY_NAME)
                    .map_err(Error::io("create", &path))?,
            ) else {
                let busy = io::Error::from(io::ErrorKind::ResourceBusy);
                return Err(Error::io("write", path)(busy));
            };
            staged
                .file
                .write_all_at(claimed.encode().as_bytes(), 0, Via::Cache)
                .and_then(|()| staged.publish(Path::new(IDENTITY_NAME)))
                .map_err(Error::io("store", path))?;
        }
        // A claim that is left no longer has a meaning.
        let _left = self.dir.remove_file(Path::new(CLAIM_NAME));
        Ok(())
    }

    /// Puts a file into the archive, durably. The same file again is no error, and costs two short reads of the
    /// archive and one of the file.
    ///
    /// Waits while another process writes the same file; all other calls may run at the same time.
    ///
    /// Errors: `NotWal`, `OtherSegment`, `NotHistory`, `OtherCluster`, `OtherSegmentSize` if the file does not match
    /// its name or belongs to another cluster; `OtherContent`, `TwoContents`, `Busy`, `Io`, `Codec`; `Damaged` and
    /// `Newer` for the archive's file of that name.
    pub fn push(
        &self,
        out: &Outgoing,
        form: &StorageForm,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        self.push_within(WAIT_MAX, out, form, &|| true, clock)
    }

    /// Like [`WalArchive::push`], but skips a file that another process writes: `None`. When everything is written,
    /// `turn` decides whether the file may have its name; if not, nothing is stored: also `None`.
    pub(super) fn push_unless_busy(
        &self,
        out: &Outgoing,
        form: &StorageForm,
        turn: &dyn Fn() -> bool,
        clock: &dyn Clock,
    ) -> Result<Option<PushResult>, Error> {
        match self.push_within(Duration::ZERO, out, form, turn, clock) {
            Err(Error::Busy { .. }) => Ok(None),
            done => done.map(Some),
        }
    }

    fn push_within(
        &self,
        patience: Duration,
        out: &Outgoing,
        form: &StorageForm,
        turn: &dyn Fn() -> bool,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        let pushed = self.attempt(patience, out, form, turn, clock);
        if let Err(
            Error::OtherContent { .. } | Error::OtherBranch { .. } | Error::TwoContents { .. },
        ) = pushed
        {
            self.note_refusal(out.name, clock);
        }
        pushed
    }

    fn attempt(
        &self,
        patience: Duration,
        out: &Outgoing,
        form: &StorageForm,
        turn: &dyn Fn() -> bool,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        let judged = self.judge(out)?;
        if judged.segment_bytes != 0 {
            self.identify(out, &judged, clock)?;
        }
        if let Some(history) = &out.history {
            self.agree(patience, history, form, clock)?;
        }
        let (directory, parent) = self.place(out.name, true)?;
        let there = |same| {
            // The process that wrote it may have been killed before its name was durable.
            self.sync_names(&*parent)?;
            Ok(match same {
                Same::Whole => PushResult::Already,
                Same::UpTo(fork) => PushResult::LeftAt(fork),
            })
        };
        let path = self.path.join(directory);
        let staged = match self.stage(patience, out, &judged, &path, &parent, clock)? {
            PushDecision::Begun(staged) => staged,
            PushDecision::There(same) => return there(same),
        };
        self.check_before(out, &judged)?;
        let stored_bytes = self.write(out, &judged, form, &staged)?;
        let synced = staged.file.sync();
        synced.map_err(Error::io("store", path.clone()))?;
        if !turn() {
            let (name, waited_s) = (out.name, 0);
            return Err(Error::Busy { name, waited_s });
        }
        // The previous segment may have been archived meanwhile.
        self.check_before(out, &judged)?;
        // So may the file itself, by a writer whose lock is not visible.
        if let Some(object) = self.find(out.name)? {
            return there(self.compare(&object, out, &judged)?);
        }
        let name = out.name.to_string();
        let file = format!("{name}.{}", ending(form.algorithm));
        let published = staged
            .publish_new(Path::new(&file))
            .and_then(|()| self.dir.sync(Path::new("")));
        let is_ours = match published {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            published => {
                published.map_err(Error::io("store", path.clone()))?;
                true
            }
        };
        // Another file may have been archived in between, under another ending: the writer that checks last sees both.
        // Neither is removed, because a server that archived the same bytes may rely on either.
        let found = self.find(out.name)?;
        if !is_ours || !parent.keeps_locks(Path::new("")).unwrap_or(false) {
            let Some(object) = found else {
                let gone = io::Error::from(io::ErrorKind::NotFound);
                return Err(Error::io("find", path.join(name))(gone));
            };
            let same = self.compare(&object, out, &judged)?;
            if !is_ours {
                return there(same);
            }
        }
        Ok(PushResult::Stored {
            stored_bytes,
            unfinished: judged.unfinished,
        })
    }

    /// Begins the file in `parent`, the directory at `path`, or waits for the process that is writing it; the file may then be there.
    fn stage(
        &self,
        patience: Duration,
        out: &Outgoing,
        judged: &FileFacts,
        path: &Path,
        parent: &Arc<dyn Dir>,
        clock: &dyn Clock,
    ) -> Result<PushDecision, Error> {
        let name = out.name.to_string();
        wait(patience, out.name, clock, || {
            if let Some(object) = self.find(out.name)? {
                let same = self.compare(&object, out, judged)?;
                return Ok(Some(PushDecision::There(same)));
            }
            let begun =
                StagedFile::begin(parent.clone(), &name).map_err(Error::io("create", path))?;
            match begun {
                // Another process may have finished it between the check and the lock.
                Some(staged) if self.find(out.name)?.is_none() => {
                    Ok(Some(PushDecision::Begun(staged)))
                }
                _ => Ok(None),
            }
        })
    }

    /// Refuses a segment that does not continue the previous one in the archive: the server was set back to an older
    /// copy of its files, and its LSN has passed the archive's end since. If the server still has the previous
    /// segment, its end is compared, from the last block that is not all zeros: zeros after a switch are the same on
    /// every branch. Otherwise the records at the border are checked.
    fn check_before(&self, out: &Outgoing, judged: &FileFacts) -> Result<(), Error> {
        let (WalName::Segment(name), Some(beside), Some(identity)) =
            (out.name, &out.beside, self.identity())
        else {
            return Ok(());
        };
        let size = identity.segment_size;
        let start = name.start(size);
        let Some(last) = start.0.checked_sub(1) else {
            return Ok(());
        };
        let before = SegmentName::holding(name.timeline, Lsn(last), size);
        // Readers of that file report its damage.
        let Ok(Some(object)) = self.find(WalName::Segment(before)) else {
            return Ok(());
        };
        if object.head.unfinished || judged.unfinished {
            return Ok(());
        }
        let file_name = PathBuf::from(before.to_string());
        let opened = beside.open(&file_name, OpenHow::Read);
        let same = match opened {
            Ok(file) if file.stat().is_ok_and(|stat| stat.len == size.bytes()) => {
                let from = object.last_written();
                is_content(&object, &*file, from).map_err(Error::io("read", &out.path))?
            }
            _ => {
                let read = |at: Lsn, buf: &mut [u8]| match at.0.checked_sub(start.0) {
                    Some(offset) if offset < size.bytes() => {
                        out.file.read_exact_at(buf, offset, Via::Cache)
                    }
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
                !self.is_broken(before, start, read)
            }
        };
        match same {
            true => Ok(()),
            false => Err(Error::OtherBranch {
                archive: self.path.clone(),
                name: before,
                path: out.path.with_file_name(file_name),
            }),
        }
    }

    /// Compares this history with the archive's, or archives it. An existing one needs no sync: the file that follows
    /// syncs the directory.
    fn agree(
        &self,
        patience: Duration,
        history: &Outgoing,
        form: &StorageForm,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        match self.find(history.name)? {
            Some(object) => self
                .compare(&object, history, &self.judge(history)?)
                .map(drop),
            None => self
                .push_within(patience, history, form, &|| true, clock)
                .map(drop),
        }
    }

    fn sync_names(&self, parent: &dyn Dir) -> Result<(), Error> {
        parent
            .sync(Path::new(""))
            .and_then(|()| self.dir.sync(Path::new("")))
            .map_err(Error::io("sync", &self.path))
    }

    /// Checks that a server's WAL belongs here; `from` is the server, for messages.
    ///
    /// Errors: `OtherCluster`, `OtherSegmentSize`.
    pub(super) fn check(&self, theirs: Identity, from: &Path) -> Result<(), Error> {
        let Some(ours) = self.identity() else {
            return Ok(());
        };
        let (path, archive) = (from.to_owned(), self.path.clone());
        if theirs.system != ours.system {
            let (expected, found) = (ours.system, theirs.system);
            return Err(Error::OtherCluster {
                path,
                archive,
                expected,
                found,
            });
        }
        if theirs.segment_size != ours.segment_size {
            return Err(Error::OtherSegmentSize {
                path,
                archive,
                expected: ours.segment_size.bytes(),
                found: theirs.segment_size.bytes(),
            });
        }
        Ok(())
    }

    /// Reads enough of a file to check that it matches its name and this cluster.
    fn judge(&self, out: &Outgoing) -> Result<FileFacts, Error> {
        let io = |e| Error::io("read", &out.path)(e);
        let len = out.file.stat().map_err(io)?.len;
        if let (Some(system), Some(identity)) = (out.system, self.identity()) {
            self.check(Identity { system, ..identity }, &out.path)?;
        }
        match out.name {
            WalName::Segment(name) | WalName::Partial(name) => self.judge_segment(out, name, len),
            WalName::History(_) | WalName::Backup(..) => {
                let other = |what| Error::OtherSegment {
                    path: out.path.clone(),
                    what,
                };
                if len > TEXT_MAX {
                    return Err(other("length"));
                }
                if let WalName::History(timeline) = out.name {
                    let mut bytes = vec![0; len as usize];
                    out.file
                        .read_exact_at(&mut bytes, 0, Via::Cache)
                        .map_err(io)?;
                    History::parse(timeline, &bytes).map_err(|source| Error::NotHistory {
                        path: out.path.clone(),
                        source,
                    })?;
                }
                Ok(FileFacts {
                    len: len as u32,
                    system: out.system.unwrap_or(0),
                    segment_bytes: 0,
                    magic: 0,
                    unfinished: false,
                })
            }
        }
    }

    fn judge_segment(
        &self,
        out: &Outgoing,
        name: SegmentName,
        len: u64,
    ) -> Result<FileFacts, Error> {
        let io = |e| Error::io("read", &out.path)(e);
        let mut bytes = [0; PAGE_HEADER_LEN];
        let got = out
            .file
            .read_full_at(&mut bytes, 0, Via::Cache)
            .map_err(io)?;
        let header = SegmentHeader::parse(&bytes[..got]).map_err(|source| Error::NotWal {
            path: out.path.clone(),
            source,
        })?;
        let identity = Identity {
            system: header.system,
            segment_size: header.segment_size,
        };
        self.check(identity, &out.path)?;
        let other = if len != header.segment_size.bytes() {
            Some("length")
        } else if header.start != name.start(header.segment_size) {
            Some("LSN")
        } else if header.timeline > name.timeline {
            // The segment in which a promotion happened begins with pages of the older timeline.
            Some("timeline")
        } else {
            None
        };
        if let Some(what) = other {
            return Err(Error::OtherSegment {
                path: out.path.clone(),
                what,
            });
        }
        let mut page = vec![0; header.page_bytes as usize];
        let offset = len - u64::from(header.page_bytes);
        out.file
            .read_exact_at(&mut page, offset, Via::Cache)
            .map_err(io)?;
        let place = Lsn(header.start.0 + offset);
        Ok(FileFacts {
            len: len as u32,
            system: header.system,
            segment_bytes: header.segment_size.bytes() as u32,
            magic: header.magic,
            unfinished: !is_page_at(&page, header.magic, place),
        })
    }

    /// Assigns the archive to the cluster of its first segment.
    fn identify(&self, out: &Outgoing, judged: &FileFacts, clock: &dyn Clock) -> Result<(), Error> {
        if self.identity().is_some() {
            return Ok(());
        }
        let size = longshore_pg::SegmentSize::new(judged.segment_bytes.into());
        let Some(segment_size) = size else {
            return Ok(());
        };
        let identity = Identity {
            system: judged.system,
            segment_size,
        };
        let claimed = |found: Option<Mark>| found.filter(|mark| mark.identity().is_some());
        match self
            .mark(Mark::Of(identity), clock, claimed)?
            .and_then(Mark::identity)
        {
            None => {
                self.identity.get_or_init(|| identity);
                Ok(())
            }
            // Another process was first; judge again by what it wrote.
            Some(found) => {
                self.identity.get_or_init(|| found);
                self.judge(out).map(drop)
            }
        }
    }

    /// Compresses the file into its temporary name; returns the stored bytes.
    fn write(
        &self,
        out: &Outgoing,
        judged: &FileFacts,
        form: &StorageForm,
        staged: &StagedFile,
    ) -> Result<u64, Error> {
        let head = Head {
            system: judged.system,
            plain_len: judged.len,
            block_bytes: BLOCK_BYTES.min(judged.len.max(1)),
            segment_bytes: judged.segment_bytes,
            magic: judged.magic,
            algorithm: form.algorithm,
            unfinished: judged.unfinished,
            name: out.name,
        };
        let target = self.path.join(out.name.to_string());
        let full = |e| Error::io("write", &target)(e);
        let mut press = self.presses.take(form, &target)?;
        let Press {
            compressor,
            decompressor,
            plain,
            check,
            out: buffer,
            ..
        } = &mut press;
        let mut outflow = Outflow::new(&*staged.file, buffer);
        outflow.put(&head.framed()).map_err(full)?;
        let bound = payload_bound(form.algorithm, head.block_bytes as usize);
        let mut end = End {
            head_crc: crc32c(&head.encode()),
            plain_crc: 0,
            rows: Vec::with_capacity(head.blocks()),
        };
        for number in 0..head.blocks() {
            let offset = number as u64 * u64::from(head.block_bytes);
            let plain = &mut plain[..head.block_len(number)];
            out.file
                .read_exact_at(plain, offset, Via::Cache)
                .map_err(Error::io_at("read", &out.path, offset))?;
            let plain_crc = crc32c(plain);
            let space = outflow.space(bound).map_err(full)?;
            let stored = compressor.compress(plain, space).len;
            let payload = &space[..stored];
            if form.verify {
                check.resize(plain.len(), 0);
                let decoded = decompressor.decompress(form.algorithm, payload, check);
                if decoded.is_err() || *check != plain {
                    return Err(Error::Damaged {
                        path: target.clone(),
                        what: format!(
                            "{} does not decode to the bytes that it compressed",
                            compressor.engine()
                        ),
                    });
                }
            }
            end.plain_crc = crc32c_join(end.plain_crc, plain_crc, plain.len() as u64);
            end.rows.push(Row {
                stored_len: stored as u32,
                plain_crc,
                stored_crc: crc32c(payload),
            });
            outflow.taken(stored);
        }
        outflow.put(&end.framed(&head)).map_err(full)?;
        let stored_bytes = outflow.finish().map_err(full)?;
        self.presses.give_back(press);
        Ok(stored_bytes)
    }

    /// Compares a server's history of a timeline with the archive's; `from` is the server, for messages.
    ///
    /// Errors: `OtherContent` if they differ; `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn check_history(
        &self,
        timeline: Timeline,
        theirs: &[u8],
        from: &Path,
    ) -> Result<(), Error> {
        let ours = self.object(WalName::History(timeline))?.text()?;
        match is_same_history(timeline, &ours, theirs) {
            true => Ok(()),
            false => Err(Error::OtherContent {
                name: WalName::History(timeline),
                path: from.to_owned(),
            }),
        }
    }

    /// Refuses a file whose bytes differ from those in the archive under its name, and a history of another timeline.
    fn compare(&self, object: &Object, out: &Outgoing, judged: &FileFacts) -> Result<Same, Error> {
        let other = || Error::OtherContent {
            name: out.name,
            path: out.path.clone(),
        };
        if let WalName::History(timeline) = out.name {
            let mut theirs = vec![0; judged.len as usize];
            out.file
                .read_exact_at(&mut theirs, 0, Via::Cache)
                .map_err(Error::io("read", &out.path))?;
            return match is_same_history(timeline, &object.text()?, &theirs) {
                true => Ok(Same::Whole),
                false => Err(other()),
            };
        }
        let is_same = object.head.plain_len == judged.len
            && is_content(object, &*out.file, 0).map_err(Error::io("read", &out.path))?;
        match is_same {
            true => Ok(Same::Whole),
            false => match self.left_at(object, out)? {
                Some(fork) => Ok(Same::UpTo(fork)),
                None => Err(other()),
            },
        }
    }

    /// The LSN at which the server of a segment left the timeline inside the segment, although its bytes differ from
    /// the archive's. A standby that follows a promotion archives what it has of the timeline's last segment, and the
    /// old primary may have archived the whole segment.
    ///
    /// Three things together prove this: a history in the server's `pg_wal` that leaves the timeline there, and that
    /// equals the archive's if the archive has one; no record of the server's after the fork; the same bytes up to the
    /// fork.
    fn left_at(&self, object: &Object, out: &Outgoing) -> Result<Option<Lsn>, Error> {
        let (WalName::Segment(name), Some(beside), Some(identity)) =
            (out.name, &out.beside, self.identity())
        else {
            return Ok(None);
        };
        let size = identity.segment_size;
        let (start, end) = (name.start(size), name.next(size).start(size));
        if u64::from(object.head.plain_len) != size.bytes() {
            return Ok(None);
        }
        let cannot = |e| Error::io("list", out.path.with_file_name(""))(e);
        let mut forks = Vec::new();
        for file in beside.list().map_err(cannot)? {
            let file = file.map_err(cannot)?;
            let Some(WalName::History(timeline)) = file.to_str().and_then(|f| f.parse().ok())
            else {
                continue;
            };
            if timeline <= name.timeline {
                continue;
            }
            let Some(text) = short_text(&**beside, Path::new(&file)) else {
                continue;
            };
            let fork = History::parse(timeline, &text)
                .ok()
                .and_then(|history| history.end_of(name.timeline));
            let Some(fork) = fork.filter(|fork| start < *fork && *fork < end) else {
                continue;
            };
            match self.check_history(timeline, &text, &out.path) {
                Ok(()) | Err(Error::Missing { .. }) => forks.push(fork),
                Err(Error::OtherContent { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        forks.sort_unstable();
        forks.dedup();
        for fork in forks {
            let len = fork.0 - start.0;
            if ends_by(&*out.file, start, fork, end) && self.is_same_up_to(name, out, len)? {
                return Ok(Some(fork));
            }
        }
        Ok(None)
    }

    fn is_same_up_to(&self, name: SegmentName, out: &Outgoing, len: u64) -> Result<bool, Error> {
        let mut comparison = self.comparison(name, len)?;
        let mut part = vec![0; 1 << 16];
        let mut at = 0;
        while at < len {
            let part = &mut part[..(len - at).min(1 << 16) as usize];
            let read = out.file.read_exact_at(part, at, Via::Cache);
            read.map_err(Error::io_at("read", &out.path, at))?;
            if !comparison.take(part)? {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(comparison.is_whole())
    }

    /// Whether these are the bytes of the archive's file with this name; `false` if it has none.
    ///
    /// Errors: `Damaged`, `Newer`, `Io`.
    pub(super) fn is_content_of(&self, out: &Outgoing) -> Result<bool, Error> {
        let Some(object) = self.find(out.name)? else {
            return Ok(false);
        };
        match self
            .judge(out)
            .and_then(|judged| self.compare(&object, out, &judged))
        {
            Ok(Same::Whole) => Ok(true),
            Err(e @ (Error::Io { .. } | Error::Damaged { .. })) => Err(e),
            Ok(Same::UpTo(_)) | Err(_) => Ok(false),
        }
    }

    /// The directory of a file, relative and open; created if missing and `make` is set.
    fn place(&self, name: WalName, make: bool) -> Result<(PathBuf, Arc<dyn Dir>), Error> {
        let Some(segment) = name.segment() else {
            return Ok((PathBuf::new(), self.dir.clone()));
        };
        let place = PathBuf::from(directory(segment.timeline, segment.high));
        let path = self.path.join(&place);
        if make {
            match self.dir.create_dir(&place) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(Error::io("create", &path))?,
            }
        }
        let dir = self.dir.dir(&place).map_err(Error::io("open", path))?;
        Ok((place, dir))
    }

    /// The file with this name, under any ending; `None` if there is none.
    ///
    /// Errors: `TwoContents`, `Damaged`, `Newer`, `Io`.
    pub(super) fn find(&self, name: WalName) -> Result<Option<Object>, Error> {
        let mut found: Option<Object> = None;
        let mut path = PathBuf::new();
        if let Some(segment) = name.segment() {
            path.push(directory(segment.timeline, segment.high));
        }
        for ending in ENDINGS {
            let path = path.join(format!("{name}.{ending}"));
            match self.dir.open(&path, OpenHow::Read) {
                Ok(file) => {
                    let object = Object::open(file, self.path.join(path), name)?;
                    match &found {
                        None => found = Some(object),
                        Some(first) if first.is_same_as(&object)? => {}
                        Some(first) => {
                            let (path, other) = (first.path.clone(), object.path);
                            return Err(Error::TwoContents { name, path, other });
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("open", self.path.join(path))(e)),
            }
        }
        Ok(found)
    }
}

/// Whether the records of a segment from `start` to `end` lead to `fork` at most. A segment after which a server
/// continues ends with a record at its end, or with a switch, which leads there.
fn ends_by(file: &dyn File, start: Lsn, fork: Lsn, end: Lsn) -> bool {
    let read = |at: Lsn, buf: &mut [u8]| match at.0.checked_sub(start.0) {
        Some(offset) if at < end => file.read_exact_at(buf, offset, Via::Cache),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let Ok(records) = Records::of_segment(read, start) else {
        return false;
    };
    let mut records = records.verifying();
    let mut written = start;
    while let Ok(Some(_)) = records.next(end, |_, _| false) {
        written = records.place();
    }
    written <= fork
}

/// A short file's bytes; `None` if it cannot be read, or is longer than a history may be.
fn short_text(dir: &dyn Dir, name: &Path) -> Option<Vec<u8>> {
    let file = dir.open(name, OpenHow::Read).ok()?;
    let len = file.stat().ok()?.len;
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= TEXT_MAX)?];
    file.read_exact_at(&mut bytes, 0, Via::Cache).ok()?;
    Some(bytes)
}

/// Whether a file of the same length has an archived file's bytes, from the block `first` on.
fn is_content(object: &Object, file: &dyn File, first: usize) -> io::Result<bool> {
    let head = &object.head;
    let mut plain = vec![0; head.block_bytes as usize];
    for (number, row) in object.end.rows.iter().enumerate().skip(first) {
        let offset = number as u64 * u64::from(head.block_bytes);
        let plain = &mut plain[..head.block_len(number)];
        file.read_exact_at(plain, offset, Via::Cache)?;
        if crc32c(plain) != row.plain_crc {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives the file its name unless another file has it.
fn exclusively(staged: StagedFile, name: &str) -> io::Result<()> {
    match staged.publish_new(Path::new(name)) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        published => published,
    }
}

/// The first part of `below` in `base` that is a symbolic link.
fn link_below(storage: &dyn Storage, base: &Path, below: &Path) -> Option<PathBuf> {
    let dir = storage.dir(base).ok()?;
    let mut at = PathBuf::new();
    for part in below.components() {
        at.push(part);
        if dir
            .stat(&at)
            .is_ok_and(|stat| stat.kind == FileKind::Symlink)
        {
            return Some(base.join(at));
        }
    }
    None
}

/// The directory of 2^32 bytes of WAL: 256 segments of 16 MiB.
pub(super) fn directory(timeline: Timeline, high: u32) -> String {
    format!("{:08X}{high:08X}", timeline.number())
}

fn ending(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::QatDeflate => "gz",
        Algorithm::Zstd => "zst",
        Algorithm::None | Algorithm::Lz4 => "lz4",
        // No stock tool knows this format.
        Algorithm::MsXpress => "xpress",
    }
}
