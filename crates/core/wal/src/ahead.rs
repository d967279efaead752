//! Look-ahead: pushes or fetches the segments that will be requested next, several at once.
//!
//! Nothing is decided here. The call for each segment finds it there or does the work itself; a look-ahead that dies,
//! is late or fails changes only how long the call takes. It leaves a note about each file it has pushed; the note is
//! valid only for that unchanged file and the archive's own copy ([`super::note`]).
//!
//! Invariants
//! - A file that is pushed ahead gets its name after all files that the server wants archived before it, or among new
//!   ones of its own run (`order.rs`): a server that was set back to an older copy of its files is refused at the first
//!   segment that differs, and none of its later segments gets in.
//! - A file that was fetched ahead is given to the server only with the bytes of the archive from which it is
//!   requested.
//! - A look-ahead handles no more bytes than its limit, and ends at the first error: after a segment that cannot be
//!   archived, the server keeps the others anyway.
//! - Pushing copies only into the archive. Fetching fills one directory, with no more than the limit plus what one
//!   worker is writing.
//!
//! Leaves to others: checking and storing a file (`archive.rs`); notes (`note.rs`); links between segments
//! (`links.rs`); when a look-ahead starts, in a process of its own (`longshore`, `commands/wal`).

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_crypt::TagKey;
use longshore_io::{Clock, Dir, File, OpenHow, Stat, Storage, Via};
use longshore_pg::wal::{
    MadeTablespace, NotRecords, PAGE_HEADER_LEN, Records, SegmentHeader, WalName, restored_from,
    segments, segments_in,
};
use longshore_pg::{CONTROL_FILE_LEN, Control, Lsn, SegmentName, SegmentSize, cluster_secret};
use parking_lot::Mutex;

use super::border::broken;
use super::note::{self, PushedNote};
use super::order::{Naming, Order};
use super::staged::{self, remove_abandoned};
use super::waiting::{WAIT_MAX, WAIT_STEP, wait};
use super::{Error, Identity, Outgoing, PushResult, StorageForm, WalArchive, place};

/// Below pg_wal: the directory for the locks and fetched segments of look-aheads.
pub(super) const PLACE: &str = "longshore";
const PUSH_LOCK: &str = "push.lock";
const FETCH_LOCK: &str = "get.lock";
/// The server's directory of marks for files that wait to be archived.
const STATUS: &str = "archive_status";
const READY: &str = ".ready";
/// Exists in the data directory while the server is a standby.
const STANDBY: &str = "standby.signal";
/// In the data directory; its first eight bytes are the system identifier in every major version.
const CONTROL: &str = "global/pg_control";

/// How often the control file is read while its checksum is wrong.
const READINGS_MAX: usize = 8;

/// A look-ahead that leaves no note for so long is not waited for.
const STALLED: Duration = Duration::from_secs(5);

/// A server's pg_wal directory, as seen by archive_command and restore_command.
#[derive(Debug)]
pub struct PgWal {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) path: PathBuf,
    /// The cluster's system identifier, if the data directory around pg_wal can be read.
    system: Option<u64>,
    standby: bool,
    /// The data directory around it.
    data: Option<Arc<dyn Dir>>,
}

/// Only one look-ahead of a kind works at a time. Ends with this value, or its process.
#[derive(Debug)]
pub struct AheadLock {
    _lock: Arc<dyn File>,
}

/// The limits of a look-ahead.
#[derive(Debug, Clone, Copy)]
pub struct AheadLimits {
    /// Bytes of segments, before compression.
    pub bytes_max: u64,
    /// Files at a time; 1 or more.
    pub workers: usize,
}

/// The result of one look-ahead.
#[derive(Debug, Default)]
pub struct PrefetchResult {
    /// Files that it pushed or fetched; those already done do not count.
    pub files: usize,
    /// Why it ended early.
    pub error: Option<Error>,
}

impl PgWal {
    /// Errors: `Io`.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<PgWal, Error> {
        let here = or_here(path);
        // From the text of the path: pg_wal itself may be a symbolic link out of the data directory.
        let data = path.parent().map(or_here);
        let data = data.and_then(|data| storage.dir(data).ok());
        Ok(PgWal {
            dir: storage.dir(here).map_err(Error::io("open", here))?,
            path: here.to_owned(),
            system: data.as_deref().and_then(system),
            standby: data
                .as_ref()
                .is_some_and(|d| d.stat(Path::new(STANDBY)).is_ok()),
            data,
        })
    }

    /// The key of the cluster's tags, from the control file of the data directory around pg_wal; `None` if that cannot be read.
    pub fn tag_key(&self) -> Option<Arc<TagKey>> {
        let data = self.data.as_deref()?;
        let mut bytes = vec![0; CONTROL_FILE_LEN];
        // A file that is being written has a wrong checksum for a moment.
        (0..READINGS_MAX).find_map(|_| {
            let file = data.open(Path::new(CONTROL), OpenHow::Read).ok()?;
            file.read_exact_at(&mut bytes, 0, Via::Cache).ok()?;
            let secret = cluster_secret(&bytes).ok()?;
            let system = Control::parse(&bytes).ok()?.system;
            Some(Arc::new(TagKey::of_cluster(&secret, system)))
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the server follows another one, and so asks again for files that it does not get.
    pub fn is_standby(&self) -> bool {
        self.standby
    }

    /// The file with this name in pg_wal.
    pub fn outgoing(&self, name: WalName, file: &Path) -> Result<Outgoing, Error> {
        let path = self.path.join(file);
        let open = self.dir.open(file, OpenHow::Read);
        Ok(Outgoing {
            name,
            file: open.map_err(Error::io("open", &path))?,
            path,
            system: self.system,
            history: self.history_of(name)?,
            beside: Some(self.dir.clone()),
        })
    }

    /// The history of the timeline of a WAL file. A server that has opened does not need the history file.
    fn history_of(&self, name: WalName) -> Result<Option<Box<Outgoing>>, Error> {
        let Some(timeline) = name.segment().map(|segment| segment.timeline) else {
            return Ok(None);
        };
        if timeline.number() == 1 {
            return Ok(None);
        }
        let name = WalName::History(timeline);
        match self.outgoing(name, Path::new(&name.to_string())) {
            Ok(out) => Ok(Some(Box::new(out))),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The files that wait to be archived: histories first, then by LSN. Empty if the server keeps no marks.
    pub fn ready(&self) -> Result<Vec<WalName>, Error> {
        let path = self.path.join(STATUS);
        let io = |e| Error::io("list", &path)(e);
        let dir = match self.dir.dir(Path::new(STATUS)) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(io(e)),
        };
        let mut names = Vec::new();
        for mark in dir.list().map_err(io)? {
            let mark = mark.map_err(io)?;
            let name = mark.to_str().and_then(|m| m.strip_suffix(READY));
            names.extend(name.and_then(|n| n.parse::<WalName>().ok()));
        }
        names.sort_by_key(|n| (n.segment(), *n));
        Ok(names)
    }

    /// The turn to push ahead; `None` while another process has it.
    pub fn turn_to_push(&self) -> Result<Option<AheadLock>, Error> {
        self.turn(PUSH_LOCK)
    }

    /// The turn to fetch ahead; `None` while another process has it.
    pub fn turn_to_fetch(&self) -> Result<Option<AheadLock>, Error> {
        self.turn(FETCH_LOCK)
    }

    pub(super) fn turn(&self, lock: &str) -> Result<Option<AheadLock>, Error> {
        let name = Path::new(PLACE).join(lock);
        let io = |e| Error::io("lock", self.path.join(&name))(e);
        self.make_place()?;
        // The server has to lock what root has made.
        let file = match self.dir.create_for_its_owner(&name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.dir.open(&name, OpenHow::ReadWrite).map_err(io)?;
                // An earlier call may have been killed before it could.
                self.dir.give_to_its_owner(&*file).map_err(io)?;
                file
            }
            made => made.map_err(io)?,
        };
        let ours = file.try_lock().map_err(io)?;
        Ok(ours.then_some(AheadLock { _lock: file }))
    }

    pub(super) fn make_place(&self) -> Result<(), Error> {
        let io = |e| Error::io("create", self.path.join(PLACE))(e);
        let made = self.dir.create_dir(Path::new(PLACE));
        let is_there = matches!(&made, Err(e) if e.kind() == io::ErrorKind::AlreadyExists);
        if !is_there {
            made.map_err(io)?;
        }
        // The server has to make files in what root has made.
        self.dir
            .give_dir_to_its_owner(Path::new(PLACE))
            .map_err(io)?;
        match is_there {
            true => Ok(()),
            // Files in it are durable only with its own name.
            false => self.dir.sync(Path::new("")).map_err(io),
        }
    }

    /// The directory of notes, which is made if need be, and whose own name is durable: the process that made it may have been
    /// killed before. `first`: a file that is written there only after this.
    pub(super) fn durable_place(&self, first: &str) -> Result<Arc<dyn Dir>, Error> {
        let opened = || {
            match self.dir.create_dir(Path::new(PLACE)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            self.dir.give_dir_to_its_owner(Path::new(PLACE))?;
            let place = self.dir.dir(Path::new(PLACE))?;
            if place.stat(Path::new(first)).is_err() {
                self.dir.sync(Path::new(""))?;
            }
            Ok(place)
        };
        opened().map_err(Error::io("create", self.path.join(PLACE)))
    }

    /// Whether a look-ahead would find work: a waiting file other than `own`, which the call itself pushes, without a
    /// note. `segment_bytes`: the size of the server's segments; 0 if it is not known.
    pub fn has_work_ahead(
        &self,
        segment_bytes: u64,
        ready: &[WalName],
        own: WalName,
        reach: AheadLimits,
    ) -> bool {
        let place = self.dir.dir(Path::new(PLACE)).ok();
        let mut within = ready.iter().take(count_within(segment_bytes, reach));
        within.any(|name| {
            let noted = place
                .as_ref()
                .is_some_and(|place| note::is_there(&**place, name));
            *name != own && !noted
        })
    }

    /// Pushes waiting files, several at once; the caller holds `_turn`. Skips files that another process pushes, and
    /// files that were pushed before.
    pub fn push_ahead(
        &self,
        _turn: &AheadLock,
        archive: &WalArchive,
        form: &StorageForm,
        reach: AheadLimits,
        clock: &dyn Clock,
    ) -> Result<PrefetchResult, Error> {
        let mut names = self.ready()?;
        self.clear_notes(&names)?;
        let size = archive.identity().map(|identity| identity.segment_size);
        // A new archive does not know the size of its cluster's segments yet.
        let first = || {
            names
                .iter()
                .find(|name| matches!(name, WalName::Segment(_)))
        };
        let len = |name: &WalName| self.dir.stat(Path::new(&name.to_string())).ok();
        let bytes = match size {
            Some(size) => size.bytes(),
            None => first().and_then(len).map_or(0, |stat| stat.len),
        };
        names.truncate(count_within(bytes, reach));
        let order = Order::of(&names, size);
        Ok(side_by_side(reach.workers, &names, |number, name| {
            let place = order.place(number);
            let text = name.to_string();
            let out = self.outgoing(*name, Path::new(&text))?;
            let look = || out.file.stat().map_err(Error::io("look at", &out.path));
            // As it is before it is read: what changes meanwhile gets no note.
            let before = look()?;
            let noted = self.note(*name, &before, archive, clock)?;
            if noted.is_some_and(|note| note.is_left(&*self.dir, Path::new(PLACE), &text)) {
                place.is_archived();
                return Ok(false);
            }
            let pushed = archive.push_unless_busy(&out, form, &|| place.wait(), clock)?;
            let Some(pushed) = pushed else {
                // Another process writes it, most likely the call for which this look-ahead works.
                let came = wait(WAIT_MAX, *name, clock, || match order.is_over() {
                    true => Ok(Some(false)),
                    false => Ok(archive.find(*name)?.map(|_| true)),
                });
                if matches!(came, Ok(true)) {
                    place.is_archived();
                }
                return Ok(false);
            };
            place.is_archived();
            let is_unchanged = note::is_same_file(&look()?, &before);
            let note = self.note(*name, &before, archive, clock)?;
            if let Some(note) = note.filter(|_| is_unchanged) {
                note.leave(&*self.dir, Path::new(PLACE), &text)
                    .map_err(Error::io("note", self.path.join(PLACE).join(&text)))?;
            }
            if let PushResult::Stored { .. } = pushed
                && archive.ground().has_one_name()
            {
                place.open_behind(|| archive.has_nothing_after(*name))?;
            }
            Ok(true)
        }))
    }

    /// Pushes a file that a look-ahead may have pushed, or is pushing now: its note saves comparing the bytes.
    ///
    /// Errors: those of [`WalArchive::push`].
    pub fn push(
        &self,
        out: &Outgoing,
        archive: &WalArchive,
        form: &StorageForm,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        wait(WAIT_MAX, out.name, clock, || {
            match self.was_pushed(out, archive, clock)? {
                true => Ok(Some(PushResult::Already)),
                false => archive.push_unless_busy(out, form, &|| Naming::InOrder, clock),
            }
        })
    }

    /// Whether a look-ahead has pushed this same file to this archive, and neither has changed since. Removes the
    /// note.
    pub fn was_pushed(
        &self,
        out: &Outgoing,
        archive: &WalArchive,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let file = out.file.stat().map_err(Error::io("look at", &out.path))?;
        let note = self.note(out.name, &file, archive, clock)?;
        let name = out.name.to_string();
        Ok(note.is_some_and(|note| note.was_left(&*self.dir, Path::new(PLACE), &name)))
    }

    /// Whether the store has acknowledged this same file to a look-ahead, within the last five minutes, for the archive
    /// in a bucket at `location`. Waits while a look-ahead is at work that may be about to push it, unless that leaves no
    /// note for five seconds: a store may take a request and not answer it. Makes no request, and removes the note. `false`
    /// for a directory.
    ///
    /// Errors: `Io`; `Store` for settings that are wrong.
    pub fn was_acknowledged(
        &self,
        name: WalName,
        location: &Path,
        storage: &dyn Storage,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let Some(origin) = place::origin(location, storage)? else {
            return Ok(false);
        };
        let text = name.to_string();
        let path = self.path.join(&text);
        let start = clock.now();
        let (mut seen, mut seen_at) = (self.notes(), start);
        loop {
            // Asked before: a look-ahead that ends meanwhile has left its note before it ended. One that cannot be asked
            // about, as in a directory that is read-only, has left none.
            let is_alone = self.turn_to_push().map_or(true, |turn| turn.is_some());
            let file = self.dir.stat(Path::new(&text));
            let file = file.map_err(Error::io("look at", &path))?;
            let note = PushedNote::acknowledged(&file, &origin, clock);
            if note.was_left(&*self.dir, Path::new(PLACE), &text) {
                return Ok(true);
            }
            let now = clock.now();
            if is_alone || now.saturating_sub(start) >= WAIT_MAX {
                return Ok(false);
            }
            if now.saturating_sub(seen_at) >= STALLED {
                let notes = self.notes();
                if notes == seen {
                    return Ok(false);
                }
                (seen, seen_at) = (notes, now);
            }
            clock.sleep(WAIT_STEP);
        }
    }

    /// The names of all notes.
    fn notes(&self) -> HashSet<OsString> {
        let list = self
            .dir
            .dir(Path::new(PLACE))
            .and_then(|place| place.list());
        list.map_or_else(|_| HashSet::new(), |names| names.flatten().collect())
    }

    /// The note for the file of this name as it would be now; `None` if the archive is a directory that does not have the
    /// file.
    fn note(
        &self,
        name: WalName,
        file: &Stat,
        archive: &WalArchive,
        clock: &dyn Clock,
    ) -> Result<Option<PushedNote>, Error> {
        if let Some(origin) = archive.ground().origin() {
            return Ok(Some(PushedNote::acknowledged(file, &origin, clock)));
        }
        let archived = archive.stat_of(name)?;
        Ok(archived.map(|archived| PushedNote::new(file, &archived)))
    }

    /// Removes notes that will no longer be needed.
    fn clear_notes(&self, ready: &[WalName]) -> Result<(), Error> {
        let path = self.path.join(PLACE);
        let io = |e| Error::io("clear", &path)(e);
        let ready: HashSet<WalName> = ready.iter().copied().collect();
        let dir = self.dir.dir(Path::new(PLACE)).map_err(io)?;
        for file in dir.list().map_err(io)? {
            let file = file.map_err(io)?;
            let name = file.to_str().and_then(|f| f.strip_suffix(note::ENDING));
            let name = name.and_then(|n| n.parse::<WalName>().ok());
            if name.is_some_and(|n| !ready.contains(&n)) {
                // The call that it was for may be removing it now.
                let _gone = dir.remove_file(Path::new(&file));
            }
        }
        Ok(())
    }

    /// Gives the file to the server as `to`: one that was fetched ahead, if there is one, otherwise from the archive.
    /// A history gets the remark of the restore that requests it ([`restored_from`]).
    ///
    /// Errors: those of [`WalArchive::fetch`].
    pub fn take(
        &self,
        archive: &WalArchive,
        name: WalName,
        to: &str,
        restore: Option<&str>,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        if let (WalName::History(_), Some(restore)) = (name, restore) {
            archive.fetch(name, &self.dir, &self.path, to, clock)?;
            return self
                .remark(to, &restored_from(name, restore))
                .map_err(Error::io("write", self.path.join(to)));
        }
        let segment = match name {
            WalName::Segment(segment) => Some(segment),
            WalName::History(_) | WalName::Partial(_) | WalName::Backup(..) => None,
        };
        let spooled = Path::new(PLACE).join(name.to_string());
        let fetched = wait(WAIT_MAX, name, clock, || {
            if segment.is_some() && self.is_spooled(archive, name, &spooled)? {
                return Ok(Some(true));
            }
            let busy = staged::is_being_written(&*self.dir, &spooled)
                .map_err(Error::io("look at", self.path.join(&spooled)))?;
            Ok((!busy).then_some(false))
        })?;
        if !fetched {
            archive.fetch(name, &self.dir, &self.path, to, clock)?;
            return Ok(());
        }
        self.dir
            .rename(&spooled, Path::new(to))
            .and_then(|()| self.dir.sync(Path::new("")))
            .map_err(Error::io("store", self.path.join(to)))
    }

    /// Whether the file that was fetched ahead is the archive's: it may be left over from another archive, with
    /// another branch's WAL.
    fn is_spooled(
        &self,
        archive: &WalArchive,
        name: WalName,
        spooled: &Path,
    ) -> Result<bool, Error> {
        let file = match self.dir.open(spooled, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::io("open", self.path.join(spooled)))?,
        };
        let out = Outgoing {
            name,
            path: self.path.join(spooled),
            file,
            system: None,
            history: None,
            beside: None,
        };
        archive.is_content_of(&out)
    }

    /// Appends a line to a history. If success was not reported, the server asks again.
    fn remark(&self, to: &str, line: &str) -> io::Result<()> {
        let file = self.dir.open(Path::new(to), OpenHow::ReadWrite)?;
        let end = file.stat()?.len;
        file.write_all_at(format!("\n{line}\n").as_bytes(), end, Via::Cache)?;
        file.sync()
    }

    /// Gives the server the segment that a receiver is still filling; `false` if there is none.
    pub fn take_partial(
        &self,
        archive: &WalArchive,
        name: SegmentName,
        to: &str,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        archive.fetch_partial(name, &self.dir, &self.path, to, clock)
    }

    /// Whether the server itself has this segment completely: its records lead to its end.
    pub fn holds(&self, archive: &WalArchive, name: SegmentName) -> bool {
        let path = PathBuf::from(name.to_string());
        let Some(identity) = archive.identity() else {
            return false;
        };
        let size = identity.segment_size;
        let end = Lsn(name.start(size).0.saturating_add(size.bytes()));
        let walk = || {
            let read = segments_in(&*self.dir, name.timeline, size);
            Records::of_segment(read, name.start(size))?.verify_to(end)
        };
        self.is_of(archive, name, &path)
            && match walk() {
                Ok(()) => true,
                // The last record continues in the next segment.
                Err(NotRecords::Read { at, .. }) => at >= end,
                Err(NotRecords::Segment { .. } | NotRecords::Broken { .. }) => false,
            }
    }

    /// Refuses a segment, in the file `file`, whose replay would create a tablespace where another server has files.
    /// If the server has created it before, it already links there. For a record that begins in the previous segment,
    /// that segment is read from pg_wal, where the server has put it.
    ///
    /// Errors: `TablespaceTaken`.
    pub fn check_tablespaces(
        &self,
        archive: &WalArchive,
        storage: &dyn Storage,
        name: SegmentName,
        file: &str,
    ) -> Result<(), Error> {
        let Ok(file) = self.dir.open(Path::new(file), OpenHow::Read) else {
            return Ok(());
        };
        let Some(size) = file.stat().ok().and_then(|stat| SegmentSize::new(stat.len)) else {
            return Ok(());
        };
        let start = name.start(size);
        let data = self.data.as_deref();
        let read = || {
            segments(name.timeline, size, |asked| match asked == name {
                true => Ok(file.clone()),
                false if asked.start(size) < start => self.before(archive, name, start),
                false => Err(io::ErrorKind::NotFound.into()),
            })
        };
        let across = MadeTablespace::taken_across(read(), start, storage, data);
        let within = || {
            let records = Records::of_segment(read(), start).ok()?;
            MadeTablespace::taken(records, storage, data)
                .into_iter()
                .next()
        };
        match across.or_else(within) {
            None => Ok(()),
            Some(made) => Err(Error::TablespaceTaken {
                name: WalName::Segment(name),
                oid: made.oid,
                place: made.place,
            }),
        }
    }

    /// Refuses a segment, in the file `file`, that does not continue the previous one, which the server has put into
    /// pg_wal: the server would take it for the end of the WAL. If the previous segment is missing or incomplete, the
    /// server decides.
    ///
    /// Errors: `BrokenLink`.
    pub fn check_link(
        &self,
        archive: &WalArchive,
        name: SegmentName,
        file: &str,
    ) -> Result<(), Error> {
        let Some(size) = archive.identity().map(|identity| identity.segment_size) else {
            return Ok(());
        };
        let start = name.start(size);
        let Some(last) = start.0.checked_sub(1) else {
            return Ok(());
        };
        let (Ok(file), Ok(before)) = (
            self.dir.open(Path::new(file), OpenHow::Read),
            self.before(archive, name, start),
        ) else {
            return Ok(());
        };
        let border = start.0.saturating_sub(size.bytes());
        let read = |at: Lsn, buf: &mut [u8]| match at < start {
            true => before.read_exact_at(buf, at.0.saturating_sub(border), Via::Cache),
            false if at.0 - start.0 < size.bytes() => {
                file.read_exact_at(buf, at.0 - start.0, Via::Cache)
            }
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        match broken(read, Lsn(border), start, size) {
            None => Ok(()),
            Some(source) => Err(Error::BrokenLink {
                archive: archive.path().to_owned(),
                before: SegmentName::holding(name.timeline, Lsn(last), size),
                name,
                source,
            }),
        }
    }

    /// Refuses to give this server another cluster's WAL, which it would take for the end of its own.
    ///
    /// Errors: `OtherCluster`.
    pub fn check_system(&self, archive: &WalArchive) -> Result<(), Error> {
        match (self.system, archive.identity()) {
            (Some(system), Some(identity)) => {
                archive.check(Identity { system, ..identity }, &self.path)
            }
            _ => Ok(()),
        }
    }

    /// The segment before `name`, which begins at `start`, in pg_wal; it may be from an earlier timeline.
    fn before(
        &self,
        archive: &WalArchive,
        name: SegmentName,
        start: Lsn,
    ) -> io::Result<Arc<dyn File>> {
        let size = archive.identity().map(|identity| identity.segment_size);
        let (Some(size), Some(last)) = (size, start.0.checked_sub(1)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let open = |timeline| {
            let name = SegmentName::holding(timeline, Lsn(last), size);
            self.dir.open(Path::new(&name.to_string()), OpenHow::Read)
        };
        open(name.timeline).or_else(|e| match archive.history(name.timeline) {
            Ok(history) => open(history.timeline_at(Lsn(last))),
            Err(_) => Err(e),
        })
    }

    /// Whether the file has a segment's length and is this segment of the archive's cluster: a directory that was
    /// copied together with its pg_wal may contain another cluster's.
    fn is_of(&self, archive: &WalArchive, name: SegmentName, file: &Path) -> bool {
        let Ok(file) = self.dir.open(file, OpenHow::Read) else {
            return false;
        };
        let mut header = [0; PAGE_HEADER_LEN];
        let read = file.read_exact_at(&mut header, 0, Via::Cache);
        let (Ok(()), Ok(stat), Ok(header), Some(identity)) = (
            read,
            file.stat(),
            SegmentHeader::parse(&header),
            archive.identity(),
        ) else {
            return false;
        };
        let size = identity.segment_size;
        (header.system, header.segment_size) == (identity.system, size)
            && (header.start, stat.len) == (name.start(size), size.bytes())
    }

    /// Whether fewer segments after `name` have been fetched than half of the limit.
    pub fn runs_short(&self, name: SegmentName, size: SegmentSize, reach: AheadLimits) -> bool {
        let half = (reach.bytes_max / size.bytes() / 2).max(1);
        let far = (0..half).fold(name, |at, _| at.next(size));
        let path = Path::new(PLACE).join(far.to_string());
        self.dir.stat(&path).is_err()
    }

    /// Fetches the segments after `name`, several at once; the caller holds `_turn`. Removes those that the server no
    /// longer needs. Ends without an error where the archive ends.
    pub fn fetch_ahead(
        &self,
        _turn: &AheadLock,
        archive: &WalArchive,
        name: SegmentName,
        reach: AheadLimits,
        clock: &dyn Clock,
    ) -> Result<PrefetchResult, Error> {
        let size = archive.identified()?.segment_size;
        let path = self.path.join(PLACE);
        let dir = self.dir.dir(Path::new(PLACE));
        let dir = dir.map_err(Error::io("open", &path))?;
        let count = usize::try_from(reach.bytes_max / size.bytes()).unwrap_or(usize::MAX);
        let names: Vec<WalName> =
            std::iter::successors(Some(name.next(size)), |n| Some(n.next(size)))
                .take(count.clamp(1, FETCHED_MAX))
                .map(WalName::Segment)
                .collect();
        clear(&dir, &names).map_err(Error::io("clear", &path))?;
        let mut ahead = side_by_side(reach.workers, &names, |_, name| {
            let text = name.to_string();
            if dir.stat(Path::new(&text)).is_ok() {
                return Ok(false);
            }
            archive.fetch(*name, &dir, &path, &text, clock)?;
            Ok(true)
        });
        if let Some(Error::Missing { .. }) = ahead.error {
            ahead.error = None;
        }
        Ok(ahead)
    }
}

/// How many of the first waiting files are within the limit.
fn count_within(segment_bytes: u64, reach: AheadLimits) -> usize {
    let count = usize::try_from(reach.bytes_max / segment_bytes.max(1));
    count.unwrap_or(usize::MAX).max(1)
}

fn or_here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

fn system(data: &dyn Dir) -> Option<u64> {
    let file = data.open(Path::new(CONTROL), OpenHow::Read).ok()?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0, Via::Cache).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The most segments fetched ahead, whatever their size.
const FETCHED_MAX: usize = 4096;

/// Removes everything except the `names` and the locks.
fn clear(dir: &Arc<dyn Dir>, names: &[WalName]) -> io::Result<()> {
    for file in dir.list()? {
        let file = file?;
        let Some(text) = file.to_str() else { continue };
        let stem = text.strip_suffix(staged::ENDING);
        let name: Option<WalName> = stem.unwrap_or(text).parse().ok();
        if name.is_none_or(|n| names.contains(&n)) {
            continue;
        }
        match stem {
            Some(_) => remove_abandoned(&**dir, Path::new(text))?,
            None => dir
                .remove_file(Path::new(text))
                .or_else(|e| match e.kind() {
                    // The server has just taken it.
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(e),
                })?,
        }
    }
    Ok(())
}

/// Does the work for each name, started in order, until all are done or one fails. `work` receives the name's number
/// and returns whether there was any work.
fn side_by_side(
    workers: usize,
    names: &[WalName],
    work: impl Fn(usize, &WalName) -> Result<bool, Error> + Sync,
) -> PrefetchResult {
    let (next, done, stop) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicBool::new(false),
    );
    let error = Mutex::new(None);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(number) else {
                return;
            };
            match work(number, name) {
                Ok(worked) => {
                    done.fetch_add(usize::from(worked), Ordering::Relaxed);
                }
                Err(e) => {
                    stop.store(true, Ordering::Relaxed);
                    error.lock().get_or_insert(e);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.clamp(1, names.len().max(1)) {
            // If the system has no thread to give, the existing ones do all the work.
            let _helps = std::thread::Builder::new().spawn_scoped(scope, worker);
        }
        worker();
    });
    PrefetchResult {
        files: done.into_inner(),
        error: error.into_inner(),
    }
}
