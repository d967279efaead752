//! The window in which matches are searched for, and the sequences that a search finds in it.

use crate::window;

/// Plain bytes that are searched together: all of a member, as the writer makes them.
pub(super) const WINDOW_BYTES: usize = crate::gzext::MEMBER_PLAIN_MAX;
pub(super) type Window = window::Window<WINDOW_BYTES, { WINDOW_BYTES + window::READ_BEYOND }>;

/// The greatest distance of a match.
pub(super) const DISTANCE_MAX: usize = 1 << 15;
pub(super) const MATCH_LEN_MIN: usize = 3;
pub(super) const MATCH_LEN_MAX: usize = 258;

/// Some literals and a match after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) literals: u32,
    pub(super) match_len: u16,
    pub(super) distance: u16,
}

impl Sequence {
    pub(super) fn bytes(&self) -> usize {
        self.literals as usize + usize::from(self.match_len)
    }
}
