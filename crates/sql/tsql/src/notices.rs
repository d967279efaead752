//! Facts about the rows of a statement that its client is told afterwards, and the failures that SET lets pass.
//!
//! Invariants
//! - A notice is told once for each statement, before its end (`flow.rs`).
//! - A failure passes only while ANSI_WARNINGS and ARITHABORT are both off, as SQL Server has it: its value is NULL, and
//!   the client is told unless ARITHIGNORE is on.
//!
//! Leaves to others: who notices (`function.rs`), and what SET says (`syntax/set.rs`).

use std::sync::atomic::{AtomicU8, Ordering};

use crate::message::{self, Message};
use crate::syntax::Heed;

/// An aggregate skipped a NULL.
const NULL_LEFT_OUT: u8 = 1;
const DIVIDED: u8 = 2;
const OVERFLOWN: u8 = 4;

/// The failures that are overflows.
const OVERFLOWS: [u32; 3] = [
    message::OUT_OF_RANGE.number,
    message::TYPE_OVERFLOW.number,
    message::OVERFLOW.number,
];

/// Shared by a session and the functions that its queries call.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    seen: AtomicU8,
    heed: AtomicU8,
}

impl Notices {
    /// The queries that follow heed what the options say.
    pub fn begin(&self, heed: Heed) {
        self.heed.store(heed as u8, Ordering::Relaxed);
    }

    pub fn null_left_out(&self) {
        if self.heed.load(Ordering::Relaxed) == Heed::Warnings as u8 {
            self.seen.fetch_or(NULL_LEFT_OUT, Ordering::Relaxed);
        }
    }

    /// Whether this failure of a function is only a NULL.
    pub fn lets_pass(&self, failure: &Message) -> bool {
        let notice = match failure.number {
            number if number == message::DIVIDED_BY_ZERO.number => DIVIDED,
            number if OVERFLOWS.contains(&number) => OVERFLOWN,
            _ => return false,
        };
        let heed = self.heed.load(Ordering::Relaxed);
        if heed == Heed::Tells as u8 {
            self.seen.fetch_or(notice, Ordering::Relaxed);
        }
        heed == Heed::Tells as u8 || heed == Heed::Ignores as u8
    }

    /// The messages that are due, each once.
    pub fn take(&self) -> Vec<Message> {
        let seen = self.seen.swap(0, Ordering::Relaxed);
        [
            (NULL_LEFT_OUT, &message::NULL_LEFT_OUT),
            (DIVIDED, &message::DIVISION_PASSED),
            (OVERFLOWN, &message::OVERFLOW_PASSED),
        ]
        .into_iter()
        .filter(|(notice, _)| seen & notice != 0)
        .map(|(_, template)| template.plain())
        .collect()
    }
}
