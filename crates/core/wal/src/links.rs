//! Whether segments continue one another, and whether they are a server's own.
//!
//! A segment's name and checksum prove that it is complete, but not which server wrote it: a server that was reset to
//! a copy of its files, and a copy of it, continue under the same names. Two things decide:
//!
//! - The server's own files, byte for byte ([`Comparison`]).
//! - The WAL itself. Every record names the LSN of the previous record, and a record that crosses a border has one
//!   checksum for both parts. So the last record of a segment and the first of the next show whether one server wrote
//!   both. A single segment comes from one server, because it is archived as a whole.
//!
//! Invariants
//! - For a link only the blocks at the border are decoded.
//! - A link can refute. It proves only together with compared bytes: after a switch two branches may agree by chance.
//!
//! Leaves to others: decoding records (`longshore_pg::wal`); opening and checking segments (`read.rs`); refusing a push
//! (`archive.rs`), a received segment (`receive/proof.rs`) or a restore (`proof.rs`); reporting an archive's broken
//! links (`longshore wal list`).

use std::io;

use longshore_io::crc32c_append;
use longshore_media::record::RecordError;
use longshore_pg::wal::{
    History, NotRecords, PAGE_HEADER_LEN, Records, SegmentHeader, WalName, WalRecord,
    end_of_transaction,
};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::border::{broken, link};
use super::ends::ArchiveKeys;
use super::object::PlainMark;
use super::{ArchiveReader, Error, Identity, Span, WalArchive};

/// The most segments open at a time: both sides of a border, and the end of a long record.
const OPEN_MAX: usize = 3;

/// The most segments that are searched for a transaction that was committed just before their end.
const LOOK_MAX: usize = 16;

/// Consecutive segments of an archive, read by LSN.
struct Stretch<'a> {
    archive: &'a WalArchive,
    size: SegmentSize,
    names: &'a [SegmentName],
    open: Vec<(SegmentName, ArchiveReader)>,
}

impl<'a> Stretch<'a> {
    fn new(archive: &'a WalArchive, size: SegmentSize, names: &'a [SegmentName]) -> Stretch<'a> {
        Stretch {
            archive,
            size,
            names,
            open: Vec::new(),
        }
    }

    /// Beyond the segments the error is `UnexpectedEof`; an error of the archive is inside the `io::Error`.
    fn read(&mut self, at: Lsn, buf: &mut [u8]) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let first = self.names.first().ok_or_else(beyond)?.start(self.size);
        let number = at.0.checked_sub(first.0).ok_or_else(beyond)? / self.size.bytes();
        let name = usize::try_from(number).ok().and_then(|n| self.names.get(n));
        let name = *name.ok_or_else(beyond)?;
        let i = match self.open.iter().position(|(open, _)| *open == name) {
            Some(i) => i,
            None => {
                let file = self.archive.open_file(WalName::Segment(name));
                if self.open.len() == OPEN_MAX {
                    self.open.remove(0);
                }
                self.open.push((name, file.map_err(io::Error::other)?));
                self.open.len() - 1
            }
        };
        let offset = at.0 % self.size.bytes();
        let read = self.open[i].1.read_at(buf, offset);
        read.map_err(io::Error::other)
    }

    /// Why `name` does not continue `before`, which are both among the segments; `None` if it does, as far as the
    /// segments go. `expected`: the timeline on which it must begin.
    fn broken(
        &mut self,
        (before, name): (SegmentName, SegmentName),
        expected: Option<Timeline>,
    ) -> Result<Option<Error>, Error> {
        let source = match self.link(before, name, expected) {
            Ok(()) => return Ok(None),
            Err(NotRecords::Read { source, .. })
                if source.kind() == io::ErrorKind::UnexpectedEof =>
            {
                return Ok(None);
            }
            Err(NotRecords::Read { at, source }) => match source.downcast::<Error>() {
                Ok(refused) => return Err(refused),
                Err(source) => NotRecords::Read { at, source },
            },
            Err(source) => source,
        };
        // A segment that was archived early may end within its first record.
        if self.archive.is_unfinished(WalName::Segment(name))? {
            return Ok(None);
        }
        Ok(Some(Error::BrokenLink {
            archive: self.archive.path().to_owned(),
            before,
            name,
            source,
        }))
    }

    /// Reads the records from the last page of `before` to the first that begins in `name`.
    fn link(
        &mut self,
        before: SegmentName,
        name: SegmentName,
        expected: Option<Timeline>,
    ) -> Result<(), NotRecords> {
        let size = self.size;
        let border = name.start(size);
        let mut header = [0; PAGE_HEADER_LEN];
        let read = self.read(border, &mut header);
        read.map_err(|source| NotRecords::Read { at: border, source })?;
        let header = SegmentHeader::parse(&header)
            .map_err(|source| NotRecords::Segment { at: border, source })?;
        if expected.is_some_and(|expected| expected != header.timeline) {
            return Err(NotRecords::Broken {
                at: border,
                what: "page of the timeline that the history names",
            });
        }
        let read = |at: Lsn, buf: &mut [u8]| self.read(at, buf);
        link(read, before.start(size), border, size).map(drop)
    }
}

impl WalArchive {
    /// Proves that the segments that a replay from `from` to `to` along `history` uses continue one another.
    ///
    /// Errors: `BrokenLink` with the first that does not; `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn check_links(&self, history: &History, from: Lsn, to: Lsn) -> Result<(), Error> {
        let size = self.identified()?.segment_size;
        let names = self.segments(history, from, to)?;
        let mut stretch = Stretch::new(self, size, &names);
        for pair in names.windows(2) {
            let expected = history.timeline_at(pair[1].start(size));
            if let Some(broken) = stretch.broken((pair[0], pair[1]), Some(expected))? {
                return Err(broken);
            }
        }
        Ok(())
    }

    /// The segments of a run that do not continue the one before; the first segment of a timeline is compared with the
    /// timeline from which it descends. Segments that cannot be read are skipped.
    ///
    /// Errors: `NothingYet`, `NotHistory`, `Io`.
    pub fn broken_links(&self, run: &Span) -> Result<Vec<Error>, Error> {
        let size = self.identified()?.segment_size;
        let history = match self.history(run.first.timeline) {
            Ok(history) => Some(history),
            Err(Error::Missing { .. } | Error::Damaged { .. } | Error::Newer { .. }) => None,
            Err(e) => return Err(e),
        };
        let parent = history
            .as_ref()
            .and_then(|history| self.parent_of(history, run.first, size));
        let next = |name: &SegmentName| (*name != run.last).then(|| name.next(size));
        let names: Vec<SegmentName> = parent
            .into_iter()
            .chain(std::iter::successors(Some(run.first), next))
            .collect();
        let mut stretch = Stretch::new(self, size, &names);
        let mut found = Vec::new();
        for pair in names.windows(2) {
            let border = pair[1].start(size);
            let expected = history.as_ref().map(|history| history.timeline_at(border));
            match stretch.broken((pair[0], pair[1]), expected) {
                Ok(broken) => found.extend(broken),
                // Removed by retention meanwhile, or reported by a full verification.
                Err(
                    Error::Missing { .. }
                    | Error::Damaged { .. }
                    | Error::Newer { .. }
                    | Error::Unopened { .. }
                    | Error::NotSealed { .. }
                    | Error::Unsigned { .. }
                    | Error::OtherHistory { .. },
                ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    /// The segment before the first of a timeline, on the timeline from which it descends, if the archive has it.
    fn parent_of(
        &self,
        history: &History,
        name: SegmentName,
        size: SegmentSize,
    ) -> Option<SegmentName> {
        let last = Lsn(name.start(size).0.checked_sub(1)?);
        let parent = SegmentName::holding(history.timeline_at(last), last, size);
        let is_there = matches!(self.find(WalName::Segment(parent)), Ok(Some(_)));
        (parent.timeline != name.timeline && is_there).then_some(parent)
    }

    /// Whether the WAL before `end` ends with the end record of a primary's backup that began at `start`, along
    /// `history`.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn ends_backup(&self, history: &History, start: Lsn, end: Lsn) -> Result<bool, Error> {
        let found = self.last_mark(history, start, end)?;
        Ok(found.is_some_and(|(record, place)| record.backup_end() == Some(start) && place == end))
    }

    /// Whether the WAL before `end` ends with the restore point of this name, in the segment `name`.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn ends_with_point(
        &self,
        name: SegmentName,
        point: &[u8],
        end: Lsn,
    ) -> Result<bool, Error> {
        let history = History::first(name.timeline);
        let size = self.identified()?.segment_size;
        let start = name.start(size);
        let last = start.0.checked_sub(1);
        let before = last.map(|last| SegmentName::holding(name.timeline, Lsn(last), size));
        // The record may begin there.
        let before =
            before.filter(|before| matches!(self.find(WalName::Segment(*before)), Ok(Some(_))));
        let from = before.map_or(start, |before| before.start(size));
        let found = self.last_mark(&history, from, end)?;
        Ok(found
            .is_some_and(|(record, place)| record.restore_point() == Some(point) && place == end))
    }

    /// The last record before `end` and the LSN after it, with its data if it is a mark ([`NeedRecord::is_mark`]). `None`
    /// if the WAL does not lead there.
    fn last_mark(
        &self,
        history: &History,
        start: Lsn,
        end: Lsn,
    ) -> Result<Option<(WalRecord, Lsn)>, Error> {
        let size = self.identified()?.segment_size;
        let names = self.segments(history, start, end)?;
        let mut stretch = Stretch::new(self, size, &names);
        let mut before = end;
        // A record may fill whole segments.
        for name in names.iter().rev() {
            let segment = name.start(size);
            let read = |at: Lsn, buf: &mut [u8]| stretch.read(at, buf);
            let walk = || {
                let records = Records::last_page_before(read, segment, before)?;
                let Some(records) = records else {
                    return Ok(None);
                };
                let mut records = records.verifying();
                let mut last = None;
                while let Some(record) = records.next(end, WalRecord::is_mark)? {
                    last = Some((record, records.place()));
                }
                Ok(last)
            };
            match walk() {
                Ok(Some(last)) => return Ok(Some(last)),
                Ok(None) => before = segment,
                Err(NotRecords::Read { source, .. }) => match source.downcast::<Error>() {
                    Ok(refused) => return Err(refused),
                    Err(_) => return Ok(None),
                },
                Err(NotRecords::Segment { .. } | NotRecords::Broken { .. }) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// When a transaction ended, by its record in one of the last segments before `end` along `history`; microseconds
    /// since 1970. `None` if none of them has it.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn end_of_transaction(
        &self,
        history: &History,
        end: Lsn,
        transaction: u32,
    ) -> Result<Option<i64>, Error> {
        let size = self.identified()?.segment_size;
        let mut at = Lsn(end.0.saturating_sub(1) / size.bytes() * size.bytes());
        for _ in 0..LOOK_MAX {
            let names = match self.segments(history, at, end) {
                Ok(names) => names,
                Err(Error::Missing { .. }) => return Ok(None),
                Err(e) => return Err(e),
            };
            let mut stretch = Stretch::new(self, size, &names);
            let read = |lsn: Lsn, buf: &mut [u8]| stretch.read(lsn, buf);
            let found = match Records::of_segment(read, at) {
                Ok(records) => end_of_transaction(records, transaction),
                Err(_) => None,
            };
            if found.is_some() || at.0 == 0 {
                return Ok(found);
            }
            at = Lsn(at.0.saturating_sub(size.bytes()));
        }
        Ok(None)
    }

    /// Whether the WAL at `border`, whose segment `read` provides, certainly does not continue the archive's segment
    /// `before`.
    pub(super) fn is_broken(
        &self,
        before: SegmentName,
        border: Lsn,
        mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
    ) -> bool {
        let Ok(Identity {
            segment_size: size, ..
        }) = self.identified()
        else {
            return false;
        };
        let names = [before];
        let mut stretch = Stretch::new(self, size, &names);
        let both = |at: Lsn, buf: &mut [u8]| match at < border {
            true => stretch.read(at, buf),
            false => read(at, buf),
        };
        broken(both, before.start(size), border, size).is_some()
    }

    /// Whether the archive's segment `before` leads to the WAL at `border`, whose segment `read` provides.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub(super) fn leads_to(
        &self,
        before: SegmentName,
        border: Lsn,
        mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
    ) -> Result<bool, Error> {
        let size = self.identified()?.segment_size;
        let names = [before];
        let mut stretch = Stretch::new(self, size, &names);
        let both = |at: Lsn, buf: &mut [u8]| match at < border {
            true => stretch.read(at, buf),
            false => read(at, buf),
        };
        match link(both, before.start(size), border, size) {
            Ok(found) => Ok(found),
            Err(NotRecords::Read { source, .. }) => match source.downcast::<Error>() {
                Ok(refused) => Err(refused),
                Err(_) => Ok(false),
            },
            Err(NotRecords::Segment { .. } | NotRecords::Broken { .. }) => Ok(false),
        }
    }

    /// The LSN after the last record of a segment: the segment's end if it was archived when it was full.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub(super) fn written_to(&self, name: SegmentName) -> Result<Lsn, Error> {
        let size = self.identified()?.segment_size;
        let (start, end) = (name.start(size), name.next(size).start(size));
        if !self.is_unfinished(WalName::Segment(name))? {
            return Ok(end);
        }
        let names = [name];
        let mut stretch = Stretch::new(self, size, &names);
        let read = |at: Lsn, buf: &mut [u8]| stretch.read(at, buf);
        let Ok(records) = Records::of_segment(read, start) else {
            return Ok(start);
        };
        let mut records = records.verifying();
        let mut written = start;
        while let Ok(Some(_)) = records.next(end, |_, _| false) {
            written = records.place();
        }
        Ok(written.min(end))
    }

    /// CRC-32C of the first `len` bytes of a segment.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn crc_of(&self, name: SegmentName, len: u64) -> Result<u32, Error> {
        let file = self.open_file(WalName::Segment(name))?;
        let mut part = vec![0; file.block_bytes().min(len) as usize];
        let (mut at, mut crc) = (0, 0);
        while at < len {
            let now = (len - at).min(part.len() as u64) as usize;
            file.read_at(&mut part[..now], at)?;
            crc = crc32c_append(crc, &part[..now]);
            at += now as u64;
        }
        Ok(crc)
    }

    /// Compares the first `len` bytes of a segment with those of another copy, or somewhat more of them: see
    /// [`Comparison::len`].
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`; `Unopened` if an encrypted segment can neither be read nor be compared.
    pub fn comparison(&self, name: SegmentName, len: u64) -> Result<Comparison, Error> {
        let file = self.open_file(WalName::Segment(name))?;
        let (block_bytes, plain_len) = (file.block_bytes(), file.plain_len());
        let by = match file.ends().head.sealed {
            None => By::Crc(0),
            Some(_) if file.opens()? => By::Bytes,
            Some(_) if self.keys.compares(file.ends()) => By::Tag(Vec::new()),
            // Tells why.
            Some(_) => {
                file.read_at(&mut [0], 0)?;
                By::Bytes
            }
        };
        let len = match by {
            By::Tag(_) => len.div_ceil(block_bytes).saturating_mul(block_bytes),
            By::Crc(_) | By::Bytes => len,
        };
        Ok(Comparison {
            len: len.min(plain_len),
            file,
            keys: self.keys.clone(),
            at: 0,
            by,
            own: Vec::new(),
        })
    }
}

/// A comparison of an archived segment with bytes that arrive in order. Whole blocks are compared without decoding, by
/// checksum, or by tag where the segment is encrypted and cannot be read.
pub struct Comparison {
    file: ArchiveReader,
    keys: ArchiveKeys,
    len: u64,
    /// Offset of the next byte.
    at: u64,
    by: By,
    /// The archive's bytes of a block that is compared in part.
    own: Vec<u8>,
}

/// How a block is compared.
enum By {
    /// The checksum of the bytes of the present block so far.
    Crc(u32),
    /// The bytes of the present block so far: a tag is of the whole block.
    Tag(Vec<u8>),
    /// Each byte.
    Bytes,
}

impl Comparison {
    /// The bytes that must be taken for a whole comparison. They may be more than were asked for: of an encrypted segment
    /// that cannot be read only whole blocks can be compared.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The end of the block that is compared now, in bytes from the segment's start.
    pub fn block_end(&self) -> u64 {
        let block_bytes = self.file.block_bytes();
        ((self.at / block_bytes + 1) * block_bytes).min(self.file.plain_len())
    }

    /// Whether nothing is to be compared.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Why less than whole blocks cannot be compared.
    pub(super) fn unopened(&self) -> Error {
        match self.file.read_at(&mut [0], 0) {
            Err(error) => error,
            Ok(()) => Error::malformed(self.file.path().to_owned(), RecordError::Length),
        }
    }

    /// Takes the next bytes; returns whether they equal the archive's. Bytes after the compared part count as equal.
    ///
    /// Errors: `Damaged`, `Unopened`, `Io`.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Error> {
        let block_bytes = self.file.block_bytes();
        while self.at < self.len && !bytes.is_empty() {
            let number = self.at / block_bytes;
            let end = ((number + 1) * block_bytes).min(self.file.plain_len());
            let stop = end.min(self.len);
            let part = bytes.len().min((stop - self.at) as usize);
            let (now, later) = bytes.split_at(part);
            let is_end = self.at + part as u64 == end;
            let is_same = match &mut self.by {
                By::Crc(crc) if stop == end => {
                    *crc = crc32c_append(*crc, now);
                    let is_other =
                        is_end && self.file.plain_mark(number) != Some(PlainMark::Crc(*crc));
                    if is_end {
                        *crc = 0;
                    }
                    !is_other
                }
                By::Tag(block) => {
                    block.extend_from_slice(now);
                    let ends = self.file.ends();
                    let is_other =
                        is_end && self.keys.is_block(ends, number as usize, block) != Some(true);
                    if is_end {
                        block.clear();
                    }
                    !is_other
                }
                By::Crc(_) | By::Bytes => {
                    self.own.resize(part, 0);
                    self.file.read_at(&mut self.own, self.at)?;
                    self.own == now
                }
            };
            if !is_same {
                return Ok(false);
            }
            self.at += part as u64;
            bytes = later;
        }
        Ok(true)
    }

    /// Whether everything was compared.
    pub fn is_whole(&self) -> bool {
        self.at >= self.len
    }
}
