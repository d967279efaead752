//! Tablespaces that replay makes: where the log says, outside of the data directory.
//!
//! A server that replays the making of a tablespace links to the directory that the log names, whoever else has files of
//! his there, and then replays into those files. A copy that recovers on its origin's machine so writes into the
//! origin's tablespace: seen with PostgreSQL 14 and 15, whose origin had other rows afterwards.
//!
//! Source: PostgreSQL 14 to 18, `commands/tablespace.c` and `commands/tablespace.h`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longshore_io::{Dir, Storage};

use super::page::continued;
use super::{PAGE_HEADER_LEN, Record, Records, SegmentHeader};
use crate::Lsn;

/// The resource manager of tablespaces, and its record that makes one.
const RM_TABLESPACE: u8 = 5;
const CREATE: u8 = 0x00;

/// A tablespace that a record makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeTablespace {
    pub oid: u32,
    /// Its directory, absolute.
    pub place: PathBuf,
}

impl MadeTablespace {
    /// Those that replay of these records would make in files of another server than that of the cluster in `data`. As far
    /// as the log can be read: the server judges it itself.
    pub fn taken<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
        mut records: Records<R>,
        storage: &dyn Storage,
        data: Option<&dyn Dir>,
    ) -> Vec<MadeTablespace> {
        let mut taken = Vec::new();
        while let Ok(Some(record)) = records.next(Lsn(u64::MAX), MadeTablespace::wanted) {
            let made = MadeTablespace::of(&record);
            taken.extend(made.filter(|made| made.is_taken(storage, data, records.major())));
        }
        taken
    }

    /// The same of the one record that begins in the segment before the one at `segment` and ends in that one's first
    /// page: whoever sees one segment at a time sees it in neither. `read` reads both segments.
    pub fn taken_across(
        mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
        segment: Lsn,
        storage: &dyn Storage,
        data: Option<&dyn Dir>,
    ) -> Option<MadeTablespace> {
        let mut header = [0; PAGE_HEADER_LEN];
        read(segment, &mut header).ok()?;
        let left = u64::from(continued(&header)?);
        let header = SegmentHeader::parse(&header).ok()?;
        let page_bytes = u64::from(header.page_bytes);
        if left > page_bytes - PAGE_HEADER_LEN as u64 {
            // Longer than any of these.
            return None;
        }
        let (from, size) = (
            segment.0.checked_sub(page_bytes)?,
            header.segment_size.bytes(),
        );
        let before = Lsn(segment.0.checked_sub(size)?);
        let mut page = vec![0; header.page_bytes as usize];
        read(Lsn(from), &mut page).ok()?;
        (0..page.len()).step_by(8).find_map(|at| {
            let part = page.len() - at;
            let fits =
                |total: &[u8; 4]| u64::from(u32::from_le_bytes(*total)) == part as u64 + left;
            if !page[at..].first_chunk().is_some_and(fits) {
                return None;
            }
            let place = Lsn(from + at as u64);
            let mut records = Records::new(&mut read, place, before).ok()?;
            let next = records.next(Lsn(place.0 + 1), MadeTablespace::wanted);
            let made = MadeTablespace::of(&next.ok()??)?;
            made.is_taken(storage, data, header.major).then_some(made)
        })
    }

    /// Whether records like this one make tablespaces.
    fn wanted(manager: u8, kind: u8) -> bool {
        (manager, kind) == (RM_TABLESPACE, CREATE)
    }

    /// `None` for other records, and for tablespaces inside of the data directory.
    fn of(record: &Record) -> Option<MadeTablespace> {
        if !MadeTablespace::wanted(record.manager, record.kind) {
            return None;
        }
        let (oid, place) = record.data()?.split_first_chunk()?;
        let place = place.split(|byte| *byte == 0).next()?;
        (!place.is_empty()).then(|| MadeTablespace {
            oid: u32::from_le_bytes(*oid),
            place: OsStr::from_bytes(place).into(),
        })
    }

    /// Whether replay would write into files of a server of this major that are not those of the cluster in `data`: its
    /// own are where its link leads already.
    fn is_taken(&self, storage: &dyn Storage, data: Option<&dyn Dir>, major: u16) -> bool {
        let link = PathBuf::from(format!("pg_tblspc/{}", self.oid));
        let own = data.and_then(|data| data.read_link(&link).ok());
        let prefix = format!("PG_{major}_");
        let is_servers = |name: &OsStr| name.as_bytes().starts_with(prefix.as_bytes());
        let names = storage.dir(&self.place).and_then(|dir| dir.list());
        own.as_ref() != Some(&self.place)
            && names.is_ok_and(|names| names.flatten().any(|name| is_servers(&name)))
    }
}
