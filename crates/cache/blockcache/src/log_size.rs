//! The sizes of log pages and records, in bytes.

/// Bytes of a log page before its records.
pub(crate) const PAGE_HEAD: usize = 44;
pub(crate) const SET_HEAD: usize = 15;

/// Bytes of a record that names `lines` lines.
pub(crate) fn set_len(lines: u32) -> usize {
    SET_HEAD + 4 * lines as usize
}
