//! Reads files from the archive: finds, checks and decodes them.
//!
//! Invariants
//! - Every byte that is returned was compared with its checksums; damage is an error with the file and the offset,
//!   never other bytes.
//! - A fetched file gets its name only when it is complete and durable; it replaces an older file of that name.
//! - Verifying a segment also proves that its pages are of this cluster and of timelines that lead to its own.
//!
//! Leaves to others: where files are (`archive.rs`), and their form (`stored.rs`).

use std::path::Path;
use std::sync::Arc;

use longshore_crypt::Root;
use longshore_io::{Clock, Dir, Stat, Via};
use longshore_media::record::RecordError;
use longshore_pg::wal::{History, SegmentHeader, WalName, page_timeline};
use longshore_pg::{Lsn, SegmentName, Timeline};
use parking_lot::Mutex;

use super::ends::Ends;
use super::object::PlainMark;
use super::place::Wanted;
use super::staged::StagedFile;
use super::stored::{Block, Object};
use super::waiting::{WAIT_MAX, wait};
use super::{Error, WalArchive};

/// A file of the archive that can be read from any offset. Sequential reads decode nothing twice.
pub struct ArchiveReader {
    object: Object,
    stat: Stat,
    last: Mutex<Last>,
}

/// The block that was decoded last.
#[derive(Default)]
struct Last {
    number: Option<usize>,
    block: Block,
}

impl ArchiveReader {
    /// Bytes of the file before it was archived.
    pub fn plain_len(&self) -> u64 {
        self.object.head().plain_len.into()
    }

    /// Plain bytes of each block except the last.
    pub(super) fn block_bytes(&self) -> u64 {
        self.object.head().block_bytes.into()
    }

    /// The mark of the plain bytes of a block.
    pub(super) fn plain_mark(&self, number: u64) -> Option<PlainMark> {
        let row = self.object.ends.end.rows.get(usize::try_from(number).ok()?);
        row.map(|row| row.plain)
    }

    /// Whether its bytes can be read here.
    ///
    /// Errors: `Unopened` if somebody changed it; `Damaged`, `Io`.
    pub(super) fn opens(&self) -> Result<bool, Error> {
        self.object.opens()
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.object.ends
    }

    pub(super) fn path(&self) -> &Path {
        &self.object.path
    }

    /// The attributes of the archive's own file: its owner, and when it was archived.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Fills `buf` from `offset`; every block used is checked. The range must be inside the file.
    ///
    /// Errors: `Damaged`, `Io`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let block_bytes = u64::from(self.object.head().block_bytes);
        let mut last = self.last.lock();
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            let number = (at / block_bytes) as usize;
            if number >= self.object.ends.end.rows.len() {
                return Err(Error::malformed(
                    self.object.path.clone(),
                    RecordError::Length,
                ));
            }
            if last.number != Some(number) {
                last.number = None;
                let before = &self.object.ends.end.rows[..number];
                let before: u64 = before.iter().map(|row| u64::from(row.stored_len)).sum();
                let payload_at = self.object.head().len_before() as u64 + before;
                self.object
                    .decode_block(number, payload_at, &mut last.block)?;
                last.number = Some(number);
            }
            let plain = &last.block.plain[..self.object.head().block_len(number)];
            let from = (at % block_bytes) as usize;
            let len = (buf.len() - filled).min(plain.len().saturating_sub(from));
            if len == 0 {
                return Err(Error::malformed(
                    self.object.path.clone(),
                    RecordError::Length,
                ));
            }
            buf[filled..filled + len].copy_from_slice(&plain[from..from + len]);
            filled += len;
        }
        Ok(())
    }
}

/// Checks the headers of a segment's pages, block by block.
struct Pages {
    name: SegmentName,
    system: Option<u64>,
    header: Option<SegmentHeader>,
    /// The timeline of the last page that belonged to the segment.
    timeline: Timeline,
}

impl Pages {
    fn new(name: SegmentName, system: Option<u64>) -> Pages {
        Pages {
            name,
            system,
            header: None,
            timeline: name.timeline,
        }
    }

    /// A block begins with a page: its length is a multiple of every page size.
    fn take(&mut self, plain: &[u8], offset: u64) -> Result<(), String> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let header = SegmentHeader::parse(plain).map_err(|e| e.to_string())?;
                if self.system.is_some_and(|system| system != header.system) {
                    return Err(format!("its first page is of system {}", header.system));
                }
                self.timeline = header.timeline;
                *self.header.insert(header)
            }
        };
        let page_bytes = header.page_bytes as usize;
        for (number, page) in plain.chunks(page_bytes).enumerate() {
            let place = Lsn(header.start.0 + offset + (number * page_bytes) as u64);
            // A page that was never written, or is left over from an earlier use of the file, has no timeline.
            let Some(timeline) = page_timeline(page, header.magic, place) else {
                continue;
            };
            if !(self.timeline..=self.name.timeline).contains(&timeline) {
                return Err(format!(
                    "its page at {place} is of timeline {timeline}, which does not lead from timeline {} to {}",
                    self.timeline, self.name.timeline
                ));
            }
            self.timeline = timeline;
        }
        Ok(())
    }
}

impl WalArchive {
    pub(super) fn object(&self, name: WalName) -> Result<Object, Error> {
        self.object_for(name, Wanted::Parts)
    }

    pub(super) fn object_for(&self, name: WalName, wanted: Wanted) -> Result<Object, Error> {
        match self.find_for(name, wanted)? {
            Some(object) => Ok(object),
            None => Err(Error::Missing {
                name,
                archive: self.path().to_owned(),
            }),
        }
    }

    /// Writes a file of the archive to `to` in `dir`, replacing an existing file: checked, complete and durable before
    /// it has that name. Returns its length. `path` is the directory, for messages.
    ///
    /// Waits while another process writes the same file.
    ///
    /// Errors: `Missing`; `Damaged`, `Newer`, `Busy`, `Io`.
    pub fn fetch(
        &self,
        name: WalName,
        dir: &Arc<dyn Dir>,
        path: &Path,
        to: &str,
        clock: &dyn Clock,
    ) -> Result<u64, Error> {
        let object = self.object_for(name, Wanted::All)?;
        self.check_history_of(&object)?;
        let target = path.join(to);
        let staged = wait(WAIT_MAX, name, clock, || {
            StagedFile::begin(dir.clone(), to).map_err(Error::io("create", &target))
        })?;
        object.decode(|plain, offset| {
            staged
                .file
                .write_all_at(plain, offset, Via::Cache)
                .map_err(Error::io_at("write", &target, offset))
        })?;
        staged
            .publish(Path::new(to))
            .map_err(Error::io("store", target))?;
        Ok(object.head().plain_len.into())
    }

    /// Opens a file of the archive for reading.
    ///
    /// Errors: `Missing`; `Unsigned`, `Damaged`, `Newer`, `Io`.
    pub fn open_file(&self, name: WalName) -> Result<ArchiveReader, Error> {
        let object = self.object(name)?;
        object.check_signature()?;
        if self.keys.keyring.has_identities() {
            self.check_history_of(&object)?;
        }
        let stat = object.file.stat()?;
        Ok(ArchiveReader {
            object,
            stat,
            last: Mutex::default(),
        })
    }

    /// Decodes a file and compares every checksum; for a segment also checks that its pages are of this cluster and of
    /// timelines that lead to its own. Returns its length.
    ///
    /// Errors: those of [`WalArchive::fetch`].
    pub fn verify(&self, name: WalName) -> Result<u64, Error> {
        let object = self.object_for(name, Wanted::All)?;
        self.check_history_of(&object)?;
        let system = self.identity().map(|identity| identity.system);
        let mut pages = match name {
            WalName::Segment(segment) => Some(Pages::new(segment, system)),
            WalName::History(_) | WalName::Partial(_) | WalName::Backup(..) => None,
        };
        object.decode(|plain, offset| match &mut pages {
            None => Ok(()),
            Some(pages) => pages.take(plain, offset).map_err(|what| Error::Damaged {
                path: object.path.clone(),
                what,
            }),
        })?;
        Ok(object.head().plain_len.into())
    }

    /// Refuses an encrypted file that was written for another history of its timeline than the archive's. Histories are not
    /// encrypted, so somebody could have exchanged one.
    ///
    /// Errors: `OtherHistory`, `Damaged`, `Newer`, `Io`.
    pub(super) fn check_history_of(&self, object: &Object) -> Result<(), Error> {
        let timeline = object.head().name.segment().map(|name| name.timeline);
        let (Some(sealed), Some(timeline)) = (object.head().sealed, timeline) else {
            return Ok(());
        };
        if sealed.history == Root::default() {
            return Ok(());
        }
        let known = self.known_history(timeline)?;
        match known.is_none_or(|known| known == sealed.history) {
            true => Ok(()),
            false => Err(Error::OtherHistory {
                archive: self.path().to_owned(),
                name: object.head().name,
                timeline,
            }),
        }
    }

    /// Whether a file was archived before it was full.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn is_unfinished(&self, name: WalName) -> Result<bool, Error> {
        Ok(self.object(name)?.head().unfinished)
    }

    /// The history that leads to `timeline`.
    ///
    /// Errors: `Missing` if there is no history file (timeline 1 has none); `NotHistory`, and those of
    /// [`WalArchive::fetch`].
    pub fn history(&self, timeline: Timeline) -> Result<History, Error> {
        let name = WalName::History(timeline);
        if timeline.number() == 1 {
            return Ok(History::first(timeline));
        }
        let object = self.object_for(name, Wanted::All)?;
        History::parse(timeline, &object.text()?).map_err(|source| Error::NotHistory {
            path: object.path.clone(),
            source,
        })
    }
}
