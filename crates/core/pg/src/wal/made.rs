//! Tablespaces that replay creates outside the data directory, where the WAL says.
//!
//! A server that replays the creation of a tablespace links to the directory named in the WAL, even if another server
//! has files there, and then replays into those files. So a copy that recovers on its origin's machine writes into the
//! origin's tablespace: observed with PostgreSQL 14 and 15, whose origin had different rows afterwards.
//!
//! Invariants
//! - Nothing is created and nothing is refused; the answer is a list of dangers.
//! - A directory counts as another server's if it has files of the same major version and this cluster's link does not
//!   lead there already.
//! - WAL that cannot be followed ends the search without an error: the server checks the rest itself.
//!
//! Leaves to others: reading segments, and telling the operator (`longshore-landing`, and the program's `wal get`).
//!
//! Source: PostgreSQL 14 to 18, `commands/tablespace.c` and `commands/tablespace.h`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longshore_io::{Dir, Storage};

use super::page::continued;
use super::{PAGE_HEADER_LEN, Records, SegmentHeader, WalRecord};
use crate::Lsn;

/// The resource manager of tablespaces, and its record that creates one.
const RM_TABLESPACE: u8 = 5;
const CREATE: u8 = 0x00;

/// A tablespace that a record creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeTablespace {
    pub oid: u32,
    /// Its directory, an absolute path.
    pub place: PathBuf,
}

impl MadeTablespace {
    /// The tablespaces that replay of these records would create in files of a server other than that of the cluster
    /// in `data`. Reads as far as the WAL is valid: the server checks the rest itself.
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

    /// Like [`MadeTablespace::taken`], for the one record that begins in the segment before `segment` and ends in the
    /// first page of `segment`: a reader of one segment at a time sees this record in neither. `read` reads both
    /// segments.
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
            // Longer than any of these records.
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

    /// Whether records of this kind create tablespaces.
    fn wanted(manager: u8, kind: u8) -> bool {
        (manager, kind) == (RM_TABLESPACE, CREATE)
    }

    /// `None` for other records, and for tablespaces inside the data directory.
    fn of(record: &WalRecord) -> Option<MadeTablespace> {
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

    /// Whether replay would write into files of a server of this major version that do not belong to the cluster in
    /// `data`. The directory belongs to that cluster if its link already leads there.
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
