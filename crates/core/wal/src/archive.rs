//! The archive as a directory: where each file is, whose WAL it holds, and how a file gets in.
//!
//! Invariants
//! - A file appears under its name only when it is complete and synced, and no file is ever replaced: pushing the same
//!   bytes again succeeds, other bytes under the same name are refused.
//! - The archive belongs to one cluster. A directory without the identity file is refused and never filled, because it
//!   may be the mount point of a file system that is not mounted.
//! - Below a target no symbolic link is followed: a user who can write there must not decide where WAL goes.
//!
//! Leaves to others: writing a file's bytes (`written.rs`), the form of an archived file (`form.rs`, `stored.rs`), reading
//! ahead (`ahead.rs`), the needs of targets (`needs.rs`), and whether a recovery gets through (`proof.rs`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore_codec::Algorithm;
use longshore_crypt::{Keyring, Root, Signers, TagKey};
use longshore_io::{Clock, Dir, File, OpenHow, Stat, Storage, Via};
use longshore_pg::wal::{
    History, PAGE_HEADER_LEN, Records, SegmentHeader, WalName, is_page_at, is_same_history,
};
use longshore_pg::{Lsn, SegmentName, Timeline};
use parking_lot::Mutex;

use super::border::broken;
use super::ends::{ArchiveKeys, Ends};
use super::form::StorageForm;
use super::identity::Mark;
use super::object::Head;
use super::order::Naming;
use super::place::{self, Draft, Place, Published, Wanted, directory_of};
use super::press::Presses;
use super::sealed::history_digest;
use super::stored::{Block, Object};
use super::waiting::{WAIT_MAX, wait};
use super::{Error, Ground, Identity};

/// Longest history or backup mark that is accepted, in bytes.
pub(super) const TEXT_MAX: u64 = 1 << 20;

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
    Begun(Box<dyn Draft>),
}

/// The WAL archive of one cluster.
#[derive(Debug)]
pub struct WalArchive {
    path: PathBuf,
    ground: Ground,
    pub(super) place: Arc<dyn Place>,
    identity: OnceLock<Identity>,
    pub(super) keys: ArchiveKeys,
    has_seen_sealed: AtomicBool,
    /// Digests of histories, which never change.
    histories: Mutex<HashMap<Timeline, Root>>,
    /// Kept from file to file.
    pub(super) presses: Presses,
    /// The file that was archived last, in a bucket: the next one is compared with it, without a request.
    last: Mutex<Option<Ends>>,
}

/// The facts that a file's bytes show.
pub(super) struct FileFacts {
    pub(super) len: u32,
    pub(super) system: u64,
    pub(super) segment_bytes: u32,
    pub(super) magic: u16,
    pub(super) unfinished: bool,
}

impl WalArchive {
    /// Opens the archive at `path`, which may still be empty. A text like `s3://BUCKET/PREFIX` is an address.
    ///
    /// A directory without the identity file may be a mount point without its file system; a missing directory may be
    /// below one. Nothing is created here: WAL would be accepted, with success, and be gone with the next mount.
    ///
    /// Errors: `NotAnArchive`, `IdentityDamaged`, `Store`, `Io`.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<WalArchive, Error> {
        WalArchive::open_below(storage, path, Path::new(""))
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
        let archive = WalArchive::on(Ground::find(storage, base, below)?, base, below);
        let none = || Error::NotAnArchive {
            path: archive.path.clone(),
        };
        if let Some(identity) = archive.read_mark()?.ok_or_else(none)?.identity() {
            archive.identity.get_or_init(|| identity);
        }
        Ok(archive)
    }

    fn on(ground: Ground, base: &Path, below: &Path) -> WalArchive {
        let path = match below.as_os_str().is_empty() {
            true => base.to_owned(),
            false => base.join(below),
        };
        WalArchive {
            place: ground.place(&path),
            ground,
            path,
            identity: OnceLock::new(),
            keys: ArchiveKeys::default(),
            has_seen_sealed: AtomicBool::new(false),
            histories: Mutex::default(),
            presses: Presses::default(),
            last: Mutex::default(),
        }
    }

    /// Makes the directories `below` in `base` an archive, if they are not one yet, and opens it. `base` must exist;
    /// symbolic links below it are not followed. A bucket must exist, and its store must not replace what is there.
    ///
    /// Errors: `LinkBelow`, `OthersDirectory`, `IdentityDamaged`, `Replaces`, `Store`, `Io`.
    pub fn create(
        storage: &dyn Storage,
        base: &Path,
        below: &Path,
        clock: &dyn Clock,
    ) -> Result<WalArchive, Error> {
        let archive = WalArchive::on(Ground::make(storage, base, below)?, base, below);
        // Versions that record no needs in an archive have never used a new one.
        if archive.read_mark()?.is_none() && archive.is_bare()? {
            archive.know_all()?;
        }
        let found = archive.place.mark(Mark::Unclaimed, clock, &|found| found)?;
        if let Some(found) = found {
            archive.place.settle(Path::new(""), false)?;
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

    /// Reads encrypted files with these identities.
    pub fn with_keyring(mut self, keyring: &Arc<Keyring>) -> WalArchive {
        self.keys.keyring = keyring.clone();
        self
    }

    /// Whose signatures count for who reads it.
    pub fn signers(&self) -> &Signers {
        self.keys.keyring.signers()
    }

    pub(super) fn has_identities(&self) -> bool {
        self.keys.keyring.has_identities()
    }

    /// Compares encrypted files by the cluster's tags, and gives such tags to new ones.
    pub fn with_tags(mut self, tags: Option<Arc<TagKey>>) -> WalArchive {
        self.keys.tags = tags;
        self
    }

    /// Whether any segment at the ends of its runs is encrypted.
    ///
    /// Errors: those of [`WalArchive::runs`]; `Store`, `Io`.
    pub fn is_sealed(&self) -> Result<bool, Error> {
        Ok(self.end_that(|head| head.sealed.is_some())?.is_some())
    }

    /// A segment at an end of its run that is not encrypted.
    ///
    /// Errors: those of [`WalArchive::is_sealed`].
    pub fn unsealed(&self) -> Result<Option<SegmentName>, Error> {
        self.end_that(|head| head.sealed.is_none())
    }

    /// A segment at an end of its run that is refused for its signature, and why.
    ///
    /// Errors: those of [`WalArchive::is_sealed`].
    pub fn unsigned(&self) -> Result<Option<(SegmentName, Error)>, Error> {
        for run in self.runs()?.iter().rev() {
            for name in [run.span.last, run.span.first] {
                let found = self.find(WalName::Segment(name));
                match found.and_then(|found| found.map_or(Ok(()), |file| file.check_signature())) {
                    Err(e @ Error::Unsigned { .. }) => return Ok(Some((name, e))),
                    Err(e @ (Error::Io { .. } | Error::Store(_))) => return Err(e),
                    // A damaged segment is told where it is needed, or by a verification.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(None)
    }

    /// Whether the archive has a segment of this timeline.
    ///
    /// Errors: those of [`WalArchive::runs`].
    pub fn has_segments_of(&self, timeline: Timeline) -> Result<bool, Error> {
        let runs = self.runs()?;
        Ok(runs.iter().any(|run| run.span.last.timeline == timeline))
    }

    /// Whether this value has seen an encrypted file, whatever it was asked for.
    pub fn has_seen_sealed(&self) -> bool {
        self.has_seen_sealed.load(Ordering::Relaxed)
    }

    fn end_that(&self, is_meant: impl Fn(&Head) -> bool) -> Result<Option<SegmentName>, Error> {
        for run in self.runs()?.iter().rev() {
            for name in [run.span.last, run.span.first] {
                match self.find(WalName::Segment(name)) {
                    Ok(Some(object)) if is_meant(object.head()) => return Ok(Some(name)),
                    Err(e @ (Error::Io { .. } | Error::Store(_))) => return Err(e),
                    // A damaged segment is told where it is needed, or by a verification.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(None)
    }

    /// Whether the bytes of this file can be read here: it is not encrypted, or an identity opens it.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`; `Unopened` if somebody changed it.
    pub fn is_readable(&self, name: WalName) -> Result<bool, Error> {
        self.object(name)?.opens()
    }

    fn opens(&self, object: Option<&Object>) -> Result<bool, Error> {
        object.map_or(Ok(true), Object::opens)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes of the archive's own directory.
    pub fn stat(&self) -> io::Result<Stat> {
        match &self.ground {
            Ground::Directory(dir) => dir.stat(Path::new("")),
            Ground::Bucket(bucket, key) => Ok(place::buckets::stat(bucket, key)),
        }
    }

    /// The directory or the prefix under it, for leases.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The directory in which a receiver fills its segment.
    pub(super) fn directory(&self) -> Option<&Arc<dyn Dir>> {
        match &self.ground {
            Ground::Directory(dir) => Some(dir),
            Ground::Bucket(..) => None,
        }
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
        place::read_mark(&*self.place, &self.path)
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
        self.push_within(WAIT_MAX, out, form, &|| Naming::InOrder, clock)
    }

    /// Like [`WalArchive::push`], but skips a file that another process writes: `None`. When everything is written,
    /// `turn` decides whether the file may have its name; if not, nothing is stored: also `None`.
    pub(super) fn push_unless_busy(
        &self,
        out: &Outgoing,
        form: &StorageForm,
        turn: &dyn Fn() -> Naming,
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
        turn: &dyn Fn() -> Naming,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        let pushed = self.attempt(patience, out, form, turn, clock);
        if let Err(
            Error::OtherContent { .. } | Error::OtherBranch { .. } | Error::TwoContents { .. },
        ) = pushed
        {
            // A push outlives the archiver that started it, if that was killed. Then the server may have recycled the file
            // after another push of it, and these bytes are no longer those of the name.
            self.judge(out)?;
            self.note_refusal(out.name, clock);
        }
        pushed
    }

    fn attempt(
        &self,
        patience: Duration,
        out: &Outgoing,
        form: &StorageForm,
        turn: &dyn Fn() -> Naming,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        let judged = self.judge(out)?;
        if judged.segment_bytes != 0 {
            self.identify(out, &judged, clock)?;
        }
        if let Some(history) = &out.history {
            self.agree(patience, history, form, clock)?;
        }
        let below = directory_of(out.name);
        let there = |same| {
            // The process that wrote it may have been killed before its name was durable.
            self.place.settle(&below, false)?;
            Ok(match same {
                Same::Whole => PushResult::Already,
                Same::UpTo(fork) => PushResult::LeftAt(fork),
            })
        };
        let mut draft = match self.stage(patience, out, &judged, &below, clock)? {
            PushDecision::Begun(draft) => draft,
            PushDecision::There(same) => return there(same),
        };
        // In a bucket this is asked once, right before the name is given: each look is a request.
        if !self.ground.has_one_name() {
            self.check_before(out, &judged)?;
        }
        let (written, stored_bytes) = self.write(out, &judged, form, &mut *draft)?;
        let synced = draft.sync();
        synced.map_err(Error::io("store", self.path.join(&below)))?;
        match turn() {
            Naming::Never => {
                let (name, waited_s) = (out.name, 0);
                return Err(Error::Busy { name, waited_s });
            }
            // The previous segment may have been archived meanwhile.
            Naming::InOrder => {
                self.check_before(out, &judged)?;
                self.check_after(out)?;
            }
            // The previous segment is on its way.
            Naming::AmongOwn => self.check_beside(out, &judged)?,
        }
        // So may the file itself, by a writer whose lock is not visible.
        if !self.ground.has_one_name()
            && let Some(object) = self.find(out.name)?
        {
            return there(self.compare(&object, out, &judged)?);
        }
        match self.publish(out, &judged, draft, form)? {
            Some(same) => there(same),
            None => {
                let is_kept = self.ground.has_one_name() && self.keys.compares(&written);
                *self.last.lock() = Some(written).filter(|_| is_kept);
                Ok(PushResult::Stored {
                    stored_bytes,
                    unfinished: judged.unfinished,
                })
            }
        }
    }

    /// Gives the written file its name. Returns how the content relates to another file's that had the name first.
    fn publish(
        &self,
        out: &Outgoing,
        judged: &FileFacts,
        draft: Box<dyn Draft>,
        form: &StorageForm,
    ) -> Result<Option<Same>, Error> {
        let ending = self.ground.ending(ending(out.name, form));
        let published = draft.publish(&format!("{}.{ending}", out.name))?;
        if published == (Published::Ours { surely: true }) {
            return Ok(None);
        }
        // Another file may have been archived in between, under another ending: the writer that checks last sees both.
        // Neither is removed, because a server that archived the same bytes may rely on either.
        let Some(object) = self.find(out.name)? else {
            let gone = io::Error::from(io::ErrorKind::NotFound);
            let path = self.path.join(directory_of(out.name));
            return Err(Error::io("find", path.join(out.name.to_string()))(gone));
        };
        let same = self.compare(&object, out, judged)?;
        Ok((published == Published::Theirs).then_some(same))
    }

    /// Begins the file in the directory `below`, or waits for the process that is writing it; the file may then be there.
    fn stage(
        &self,
        patience: Duration,
        out: &Outgoing,
        judged: &FileFacts,
        below: &Path,
        clock: &dyn Clock,
    ) -> Result<PushDecision, Error> {
        let name = out.name.to_string();
        wait(patience, out.name, clock, || {
            if let Some(object) = self.find(out.name)? {
                let same = self.compare(&object, out, judged)?;
                return Ok(Some(PushDecision::There(same)));
            }
            match self.place.begin(below, &name)? {
                // Another process may have finished it between the check and the lock.
                Some(draft) if self.ground.has_one_name() || self.find(out.name)?.is_none() => {
                    Ok(Some(PushDecision::Begun(draft)))
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
        let before_name = WalName::Segment(before);
        let remembered = self.last.lock().clone();
        let (ends, object) = match remembered.filter(|last| last.head.name == before_name) {
            Some(last) => (last, None),
            None => match self.find(before_name) {
                Ok(Some(object)) => (object.ends.clone(), Some(object)),
                _ => return Ok(()),
            },
        };
        if ends.head.unfinished || judged.unfinished {
            return Ok(());
        }
        let file_name = PathBuf::from(before.to_string());
        let opened = beside.open(&file_name, OpenHow::Read);
        let same = match opened {
            Ok(file) if file.stat().is_ok_and(|stat| stat.len == size.bytes()) => {
                let theirs = Outgoing {
                    name: before_name,
                    path: out.path.with_file_name(&file_name),
                    file,
                    system: None,
                    history: None,
                    beside: None,
                };
                let from = ends.last_written(&self.keys);
                match self.is_content(&ends, object.as_ref(), (&theirs, from)) {
                    // It has no tags, or others.
                    Err(Error::Unopened { .. }) if !self.opens(object.as_ref())? => true,
                    compared => compared?,
                }
            }
            // The end of the archive's segment is closed here; a reader with an identity finds the break.
            _ if !self.opens(object.as_ref())? => true,
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

    /// Refuses to fill a hole that another branch's look-ahead has left: names in a bucket are given side by side, so a
    /// killed one leaves holes. A server that fills its own has the segment after it, since that was named from there.
    fn check_after(&self, out: &Outgoing) -> Result<(), Error> {
        let (WalName::Segment(name), Some(beside), Some(identity)) =
            (out.name, &out.beside, self.identity())
        else {
            return Ok(());
        };
        if !self.ground.has_one_name() {
            return Ok(());
        }
        let after = name.next(identity.segment_size);
        let Some(object) = self.find(WalName::Segment(after))? else {
            return Ok(());
        };
        let file_name = PathBuf::from(after.to_string());
        let path = out.path.with_file_name(&file_name);
        let same = match beside.open(&file_name, OpenHow::Read) {
            Ok(file) => {
                let next = Outgoing {
                    name: WalName::Segment(after),
                    path: path.clone(),
                    file,
                    system: out.system,
                    history: None,
                    beside: None,
                };
                self.is_same(&object, &next)?
            }
            // A standby may not have it yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::HoleBefore {
                    archive: self.path.clone(),
                    name,
                    after,
                });
            }
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        match same {
            true => Ok(()),
            false => Err(Error::OtherBranch {
                archive: self.path.clone(),
                name: after,
                path,
            }),
        }
    }

    /// Like [`WalArchive::check_before`], by the server's own previous segment alone: the caller is archiving that, too.
    fn check_beside(&self, out: &Outgoing, judged: &FileFacts) -> Result<(), Error> {
        let (WalName::Segment(name), Some(beside), Some(identity)) =
            (out.name, &out.beside, self.identity())
        else {
            return self.check_before(out, judged);
        };
        let size = identity.segment_size;
        let start = name.start(size);
        let border = Lsn(start.0.saturating_sub(size.bytes()));
        let before = SegmentName::holding(name.timeline, border, size);
        let file_name = PathBuf::from(before.to_string());
        let Ok(file) = beside.open(&file_name, OpenHow::Read) else {
            return self.check_before(out, judged);
        };
        let read = |at: Lsn, buf: &mut [u8]| match at < start {
            true => file.read_exact_at(buf, at.0.saturating_sub(border.0), Via::Cache),
            false if at.0 - start.0 < size.bytes() => {
                out.file.read_exact_at(buf, at.0 - start.0, Via::Cache)
            }
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        match broken(read, border, start, size) {
            None => Ok(()),
            Some(_) if judged.unfinished => Ok(()),
            Some(_) => Err(Error::OtherBranch {
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
                .push_within(patience, history, form, &|| Naming::InOrder, clock)
                .map(drop),
        }
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
        let size = longshore_pg::SegmentSize::new(judged.segment_bytes.into());
        let Some(segment_size) = size.filter(|_| self.identity().is_none()) else {
            return Ok(());
        };
        let identity = Identity {
            system: judged.system,
            segment_size,
        };
        match self.claim(identity, clock)? {
            None => Ok(()),
            // Another process was first; judge again by what it wrote.
            Some(_) => self.judge(out).map(drop),
        }
    }

    /// Assigns an archive that is nobody's yet to a cluster; the identity that another process gave it, if that was first.
    pub(super) fn claim(
        &self,
        identity: Identity,
        clock: &dyn Clock,
    ) -> Result<Option<Identity>, Error> {
        let claimed = |found: Option<Mark>| found.filter(|mark| mark.identity().is_some());
        let marked = self.place.mark(Mark::Of(identity), clock, &claimed)?;
        let first = marked.and_then(Mark::identity);
        self.identity.get_or_init(|| first.unwrap_or(identity));
        Ok(first)
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

    /// The digest of a timeline's history, if the archive has that.
    ///
    /// Errors: `Damaged`, `Newer`, `Io`.
    pub(super) fn known_history(&self, timeline: Timeline) -> Result<Option<Root>, Error> {
        if let Some(known) = self.histories.lock().get(&timeline) {
            return Ok(Some(*known));
        }
        let Some(object) = self.find_for(WalName::History(timeline), Wanted::All)? else {
            return Ok(None);
        };
        let digest = history_digest(timeline, &object.text()?);
        self.histories.lock().insert(timeline, digest);
        Ok(Some(digest))
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
        // A file that nobody here would be given back is not there already.
        object.check_signature()?;
        let is_same = object.head().plain_len == judged.len
            && self.is_content(&object.ends, Some(object), (out, 0))?;
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
        if u64::from(object.head().plain_len) != size.bytes() {
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

    /// Whether a file of the same length has an archived file's bytes, from the block `first` on. `object`: the archived
    /// file, if its blocks can be read where they cannot be compared otherwise.
    ///
    /// Errors: `Unopened`, `Damaged`, `Io`.
    fn is_content(
        &self,
        ends: &Ends,
        object: Option<&Object>,
        (out, first): (&Outgoing, usize),
    ) -> Result<bool, Error> {
        let mut plain = vec![0; ends.head.block_bytes as usize];
        let mut own = Block::default();
        let mut stored_at = ends.head.len_before() as u64;
        for (number, row) in ends.end.rows.iter().enumerate() {
            let at = stored_at;
            stored_at += u64::from(row.stored_len);
            if number < first {
                continue;
            }
            let offset = number as u64 * u64::from(ends.head.block_bytes);
            let plain = &mut plain[..ends.head.block_len(number)];
            let read = out.file.read_exact_at(plain, offset, Via::Cache);
            read.map_err(Error::io("read", &out.path))?;
            let is_same = match (self.keys.is_block(ends, number, plain), object) {
                (Some(is_same), _) => is_same,
                (None, Some(object)) => object.decode_block(number, at, &mut own)? == plain,
                (None, None) => false,
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_same_up_to(&self, name: SegmentName, out: &Outgoing, len: u64) -> Result<bool, Error> {
        let mut comparison = self.comparison(name, len)?;
        // Where only whole blocks can be compared, bytes after the fork are, too; and those may differ.
        if comparison.len() > len {
            return Err(comparison.unopened());
        }
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

    /// The attributes of the archive's file with this name; `None` if it has none.
    ///
    /// Errors: `Damaged`, `Newer`, `Store`, `Io`.
    pub(super) fn stat_of(&self, name: WalName) -> Result<Option<Stat>, Error> {
        let found = self.find(name)?;
        found.map(|object| object.file.stat()).transpose()
    }

    /// Whether the directory of this segment has no later one. In a bucket this is a request for each 1,000 names.
    ///
    /// Errors: `Store`, `Io`.
    pub(super) fn has_nothing_after(&self, name: WalName) -> Result<bool, Error> {
        let Some(segment) = name.segment() else {
            return Ok(false);
        };
        let names = self.place.list(&directory_of(name), false)?;
        let is_later = |entry: &place::Entry| {
            let stem = entry.name.to_str().and_then(|text| text.split('.').next());
            let found = stem.and_then(|stem| stem.parse::<WalName>().ok());
            found.and_then(|found| found.segment()) > Some(segment)
        };
        Ok(!names.iter().any(is_later))
    }

    /// Whether these are the bytes of the archive's file with this name; `false` if it has none.
    ///
    /// Errors: `Damaged`, `Newer`, `Io`.
    pub(super) fn is_content_of(&self, out: &Outgoing) -> Result<bool, Error> {
        match self.find(out.name)? {
            Some(object) => {
                object.check_rules()?;
                self.check_history_of(&object)?;
                self.is_same(&object, out)
            }
            None => Ok(false),
        }
    }

    /// Whether these are the bytes of the archive's file.
    fn is_same(&self, object: &Object, out: &Outgoing) -> Result<bool, Error> {
        match self
            .judge(out)
            .and_then(|judged| self.compare(object, out, &judged))
        {
            Ok(Same::Whole) => Ok(true),
            Err(
                e @ (Error::Io { .. }
                | Error::Store(_)
                | Error::Damaged { .. }
                | Error::Unopened { .. }
                | Error::NotSealed { .. }
                | Error::Unsigned { .. }),
            ) => Err(e),
            Ok(Same::UpTo(_)) | Err(_) => Ok(false),
        }
    }

    /// The file with this name, under any ending; `None` if there is none.
    ///
    /// Errors: `TwoContents`, `Damaged`, `Newer`, `Store`, `Io`.
    pub(super) fn find(&self, name: WalName) -> Result<Option<Object>, Error> {
        self.find_for(name, Wanted::Parts)
    }

    /// Like [`WalArchive::find`], and says how the file will be read.
    pub(super) fn find_for(&self, name: WalName, wanted: Wanted) -> Result<Option<Object>, Error> {
        let mut found: Option<Object> = None;
        let below = directory_of(name);
        for ending in self.ground.endings() {
            let file = below.join(format!("{name}.{ending}"));
            let Some(stored) = self.place.open(&file, wanted)? else {
                continue;
            };
            let path = self.path.join(file);
            let object = Object::open(stored, path, name, &self.keys.keyring)?;
            if object.head().sealed.is_some() {
                self.has_seen_sealed.store(true, Ordering::Relaxed);
            }
            match &found {
                None => found = Some(object),
                Some(first) if first.is_same_as(&object)? => {}
                Some(first) => {
                    let (path, other) = (first.path.clone(), object.path);
                    return Err(Error::TwoContents { name, path, other });
                }
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

/// Encrypted files are in a zstd container, whatever is in them.
fn ending(name: WalName, form: &StorageForm) -> &'static str {
    match form.algorithm {
        _ if form.recipients.is_some() && !matches!(name, WalName::History(_)) => "zst",
        Algorithm::QatDeflate => "gz",
        Algorithm::Zstd => "zst",
        Algorithm::None | Algorithm::Lz4 => "lz4",
        // No stock tool knows these formats.
        Algorithm::MsXpress => "xpress",
        Algorithm::Pages => "pages",
    }
}
