//! Clients' requests, recorded for the simulator while a program fetches them.
//!
//! Invariants
//! - Without a recording nothing is kept, and almost nothing done.
//! - One recording at a time: a new one replaces the one before.
//! - Memory is bounded by [`RECORDS_MAX`]. A recording that nobody fetches is given up when it is full or after
//!   [`PATIENCE`], whichever is first; a later fetch gets an error. No recording has gaps.
//!
//! Leaves to others: fetching (`control.rs`), and what a trace is used for (`longshore-simulator`).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

/// Requests that wait to be fetched: about 12 MiB.
const RECORDS_MAX: usize = 1 << 18;
/// Requests that one fetch returns.
const TAKEN_MAX: usize = 1 << 15;
/// How long a recording continues after the last fetch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first line of such a trace.
pub const HEAD: &str = "t_us,op,offset,len,host_lat_us\n";

/// The kind of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Flush,
    Trim,
    Zero,
}

impl Op {
    fn letter(self) -> char {
        match self {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
            Op::Trim => 'T',
            Op::Zero => 'Z',
        }
    }
}

#[derive(Debug)]
struct Record {
    /// Time since the recording began.
    at: Duration,
    op: Op,
    offset: u64,
    len_bytes: u64,
    took: Duration,
}

#[derive(Debug)]
struct Recording {
    number: u64,
    begun: Duration,
    /// The time of the last fetch.
    came: Duration,
    records: Vec<Record>,
}

/// The requests recorded since the last fetch.
#[derive(Debug, PartialEq, Eq)]
pub struct TapeExtract {
    /// Lines of a trace, in the order in which the requests ended.
    pub lines: String,
    pub requests: usize,
    /// More requests are available.
    pub more: bool,
}

/// See the module. Times are by the cached backend's clock.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    running: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

impl Tape {
    /// Begins a recording; returns its number.
    pub(crate) fn begin(&self, now: Duration) -> u64 {
        let mut recording = self.recording.lock();
        // The time distinguishes the recordings of one cached backend.
        let before = recording.as_ref().map_or(0, |r| r.number);
        let number = (now.as_nanos() as u64).max(before + 1);
        *recording = Some(Recording {
            number,
            begun: now,
            came: now,
            records: Vec::new(),
        });
        self.running.store(true, Relaxed);
        number
    }

    /// Records a request that succeeded.
    pub(crate) fn note(&self, op: Op, offset: u64, len_bytes: u64, begun: Duration, now: Duration) {
        if !self.running.load(Relaxed) {
            return;
        }
        let mut kept = self.recording.lock();
        let Some(recording) = kept.as_mut() else {
            return;
        };
        if recording.records.len() == RECORDS_MAX || now.saturating_sub(recording.came) > PATIENCE {
            self.running.store(false, Relaxed);
            *kept = None;
            return;
        }
        // Requests already in flight when it began are not part of this recording.
        if let Some(at) = begun.checked_sub(recording.begun) {
            recording.records.push(Record {
                at,
                op,
                offset,
                len_bytes,
                took: now.saturating_sub(begun),
            });
        }
    }

    /// The oldest requests that were not fetched yet; `None`: that recording is over.
    pub(crate) fn take(&self, number: u64, now: Duration) -> Option<TapeExtract> {
        let taken: Vec<Record> = {
            let mut kept = self.recording.lock();
            let recording = kept.as_mut().filter(|r| r.number == number)?;
            recording.came = now;
            match recording.records.len() <= TAKEN_MAX {
                true => std::mem::take(&mut recording.records),
                false => recording.records.drain(..TAKEN_MAX).collect(),
            }
        };
        let mut lines = String::new();
        for record in &taken {
            let (at, took) = (record.at.as_micros(), record.took.as_micros());
            let (op, offset, len_bytes) = (record.op.letter(), record.offset, record.len_bytes);
            // Writing to a string cannot fail.
            let _written = writeln!(lines, "{at},{op},{offset},{len_bytes},{took}");
        }
        Some(TapeExtract {
            lines,
            requests: taken.len(),
            more: taken.len() == TAKEN_MAX,
        })
    }

    /// Ends a recording, if it is that one.
    pub(crate) fn end(&self, number: u64) {
        let mut kept = self.recording.lock();
        if kept.as_ref().is_some_and(|r| r.number == number) {
            self.running.store(false, Relaxed);
            *kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_begun_after_a_recording_starts_become_trace_lines_once() {
        let tape = Tape::default();
        tape.note(Op::Read, 0, 4096, ms(1), ms(2));
        let number = tape.begin(ms(10));
        tape.note(Op::Read, 0, 4096, ms(9), ms(11));
        tape.note(Op::Write, 8192, 512, ms(12), ms(13));
        tape.note(Op::Flush, 0, 0, ms(13), ms(20));
        let taken = tape.take(number, ms(21)).unwrap();
        assert_eq!(taken.lines, "2000,W,8192,512,1000\n3000,F,0,0,7000\n");
        assert_eq!((taken.requests, taken.more), (2, false));
        assert_eq!(tape.take(number, ms(22)).unwrap().lines, "");
        tape.end(number);
        assert_eq!(tape.take(number, ms(23)), None);
    }

    #[test]
    fn a_recording_ends_with_the_next_one_with_room_and_with_patience() {
        let tape = Tape::default();
        let first = tape.begin(ms(0));
        let second = tape.begin(ms(0));
        assert_eq!(tape.take(first, ms(0)), None);
        tape.end(first);
        tape.note(Op::Trim, 0, 1, ms(9_000), ms(9_999));
        assert_eq!(tape.take(second, ms(10_000)).unwrap().requests, 1);
        tape.note(Op::Zero, 0, 1, ms(10_001), ms(20_001));
        assert_eq!(tape.take(second, ms(20_002)), None, "nobody came");

        let third = tape.begin(ms(0));
        (0..RECORDS_MAX).for_each(|_| tape.note(Op::Read, 0, 1, ms(1), ms(2)));
        let taken = tape.take(third, ms(3)).unwrap();
        assert_eq!((taken.requests, taken.more), (TAKEN_MAX, true));
        (0..TAKEN_MAX).for_each(|_| tape.note(Op::Read, 0, 1, ms(1), ms(2)));
        tape.note(Op::Read, 0, 1, ms(1), ms(2));
        assert_eq!(tape.take(third, ms(3)), None, "there was no room");
    }
}
