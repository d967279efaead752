//! Page checksums, verified while the bytes are in the core's cache.
//!
//! A page that is written while it is read may be torn. That is not damage: it was changed after the backup began, so
//! the WAL holds a full image of it. Such a page shows this by its LSN.
//!
//! Invariants
//! - A page is damaged only if its checksum fails in every one of a few readings, and its LSN is never between the
//!   backup's start and the end of the WAL. A write takes microseconds.
//! - A page that was truncated meanwhile is not damaged: replay truncates it again.
//! - Every damaged page is counted; the first ones are named. If the request says so, the first one fails the backup.
//!
//! Leaves to others: the checksum itself (`longshore-pg`), and marking the set (the pipeline).
//!
//! Source: PostgreSQL 18, `basebackup.c` (verify_page_checksum); the upper bound is ours: a damaged header can contain
//! any LSN.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use longshore_io::{Clock, File, Via};
use longshore_pg::{Control, Lsn, Page};
use parking_lot::Mutex;

use super::session::Session;
use crate::Error;

/// How many times a page is read before it is reported as damaged.
pub(super) const READINGS_MAX: usize = 4;
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// The most damaged pages that are named.
const NAMED_MAX: usize = 100;

/// A page that is damaged in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadPage {
    pub(super) path: PathBuf,
    /// Block number in this file.
    pub(super) block: u64,
    pub(super) expected: u16,
    pub(super) found: u16,
}

/// The findings of the whole backup.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) bad: Vec<BadPage>,
    pub(super) bad_count: u64,
    pub(super) odd_lengths: crate::tally::Tally,
}

/// The parameters for verifying pages.
pub(super) struct Verifier {
    pub(super) page_bytes: usize,
    pub(super) relation_segment_pages: u32,
    /// Set when the backup has begun.
    pub(super) start: OnceLock<Lsn>,
    pub(super) fail_on_bad_page: bool,
    pub(super) findings: Mutex<Findings>,
}

/// A relation's segment, open.
pub(super) struct SegmentFile<'a> {
    pub(super) file: &'a dyn File,
    pub(super) path: &'a Path,
    pub(super) number: u32,
}

impl Verifier {
    /// For a backup that began at `start`; `None`: the cluster's pages carry no checksums.
    pub(super) fn of(control: &Control, start: Lsn, fail_on_bad_page: bool) -> Option<Verifier> {
        (control.data_checksum_version != 0).then(|| Verifier {
            page_bytes: control.page_bytes as usize,
            relation_segment_pages: control.relation_segment_pages,
            start: OnceLock::from(start),
            fail_on_bad_page,
            findings: Mutex::default(),
        })
    }

    /// Verifies the whole pages in `bytes`, which `segment_file` holds from `offset` on; `offset` is a multiple of the page
    /// size.
    pub(super) fn verify(
        &self,
        session: &Session,
        clock: &dyn Clock,
        segment_file: &SegmentFile,
        (bytes, offset): (&[u8], u64),
    ) -> Result<(), Error> {
        let first = offset / self.page_bytes as u64;
        for (i, bytes) in bytes.chunks_exact(self.page_bytes).enumerate() {
            let Some(page) = Page::new(bytes) else {
                return Ok(());
            };
            let block = first + i as u64;
            if self.is_intact(page, segment_file.number, block) {
                continue;
            }
            if let Some(bad) = self.look_again(session, clock, segment_file, page, block)? {
                self.note(bad)?;
            }
        }
        Ok(())
    }

    /// Whether the page at `offset` of the relation's segment `number` has the right checksum.
    pub(super) fn is_page_intact(&self, page: &[u8], number: u32, offset: u64) -> bool {
        let block = offset / self.page_bytes as u64;
        Page::new(page).is_some_and(|page| self.is_intact(page, number, block))
    }

    fn is_intact(&self, page: Page, number: u32, block: u64) -> bool {
        if page.is_new() {
            return page.is_zero();
        }
        page.is_intact(self.block_in_relation(number, block))
    }

    fn block_in_relation(&self, number: u32, block: u64) -> u32 {
        let before = number.wrapping_mul(self.relation_segment_pages);
        before.wrapping_add(block as u32)
    }

    /// Examines a page whose checksum failed: changed since the start, torn for a moment, or damaged.
    fn look_again(
        &self,
        session: &Session,
        clock: &dyn Clock,
        segment_file: &SegmentFile,
        page: Page,
        block: u64,
    ) -> Result<Option<BadPage>, Error> {
        if self.was_changed(session, page)? {
            return Ok(None);
        }
        let mut again = vec![0; self.page_bytes];
        for _ in 1..READINGS_MAX {
            clock.sleep(PAUSE);
            let offset = block * self.page_bytes as u64;
            let len = segment_file
                .file
                .read_full_at(&mut again, offset, Via::Cache)
                .map_err(|source| Error::Read {
                    path: segment_file.path.into(),
                    offset,
                    source,
                })?;
            if len < self.page_bytes {
                // The page was truncated meanwhile; replay truncates it again.
                return Ok(None);
            }
            let Some(page) = Page::new(&again) else {
                return Ok(None);
            };
            if self.is_intact(page, segment_file.number, block)
                || self.was_changed(session, page)?
            {
                return Ok(None);
            }
        }
        let page = Page::new(&again).unwrap_or(page);
        Ok(Some(BadPage {
            path: segment_file.path.into(),
            block,
            expected: page.checksum(self.block_in_relation(segment_file.number, block)),
            found: page.stored_checksum(),
        }))
    }

    /// Whether the page's LSN lies between the backup's start and the present end of the WAL.
    fn was_changed(&self, session: &Session, page: Page) -> Result<bool, Error> {
        let lsn = page.lsn();
        match self.start.get() {
            Some(start) if lsn >= *start && !page.is_new() => Ok(lsn <= session.log_end()?),
            _ => Ok(false),
        }
    }

    fn note(&self, bad: BadPage) -> Result<(), Error> {
        if self.fail_on_bad_page {
            return Err(Error::BadPage {
                path: bad.path,
                block: bad.block,
                expected: bad.expected,
                found: bad.found,
            });
        }
        let mut findings = self.findings.lock();
        findings.bad_count += 1;
        if findings.bad.len() < NAMED_MAX {
            findings.bad.push(bad);
        }
        Ok(())
    }
}
