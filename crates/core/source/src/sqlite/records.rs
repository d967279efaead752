//! Records of a rollback journal: their offsets, and whether they are complete.
//!
//! Source: SQLite file format, section 3; `pager.c` (`pager_cksum`). All numbers are big-endian.

use super::frames::be;

/// A record is a page number, a page and a checksum.
pub(super) const BEFORE_PAGE: usize = 4;
pub(super) const AFTER_PAGE: usize = 4;

/// The records that follow one header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordRun {
    /// The number of its first record, counted through all runs from 0.
    pub(super) first: u32,
    /// The offset of that record.
    pub(super) offset: u64,
    /// The start value of the checksums.
    pub(super) nonce: u32,
}

pub(super) fn record_offset(runs: &[RecordRun], page_bytes: u64, record: u32) -> u64 {
    let record_bytes = (BEFORE_PAGE + AFTER_PAGE) as u64 + page_bytes;
    match run_of(runs, record) {
        Some(run) => run.offset + u64::from(record - run.first) * record_bytes,
        None => 0,
    }
}

/// The page in a record; `None` if the bytes are no longer that record.
pub(super) fn page_of(runs: &[RecordRun], record: u32, bytes: &[u8]) -> Option<u32> {
    let nonce = run_of(runs, record)?.nonce;
    (checksum(nonce, bytes) == stored_checksum(bytes)).then(|| be(bytes, 0))
}

fn run_of(runs: &[RecordRun], record: u32) -> Option<&RecordRun> {
    let behind = runs.partition_point(|run| run.first <= record);
    runs.get(behind.checked_sub(1)?)
}

/// Sums every 200th byte of the page, counted from its end; detects records that were never complete.
pub(super) fn checksum(nonce: u32, record: &[u8]) -> u32 {
    let page = &record[BEFORE_PAGE..record.len() - AFTER_PAGE];
    // The first byte never counts.
    let counted = (1..=(page.len() - 1) / 200).map(|i| page[page.len() - 200 * i]);
    counted.fold(nonce, |sum, byte| sum.wrapping_add(byte.into()))
}

pub(super) fn stored_checksum(record: &[u8]) -> u32 {
    be(record, record.len() - AFTER_PAGE)
}
