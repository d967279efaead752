//! Block traces: which requests were made, and when.
//!
//! Text in several forms, recognised by their first lines, and one form of bare numbers.
//!
//! | form | line |
//! |---|---|
//! | [`TraceFormat::Plain`] | `t_us,op,offset,len,host_lat_us`, op R, W, F, T or Z |
//! | [`TraceFormat::CloudPhysics`] | `version,time_s,scsi_op_hex,bytes,lbn512` |
//! | [`TraceFormat::Tencent`] | `time_s,offset_512,len_512,op,volume`, op 0 or 1 |
//! | [`TraceFormat::Systor`] | `time_s,response_s,op,lun,offset,bytes` |
//! | [`TraceFormat::Msr`] | `filetime_100ns,host,disk,type,offset,bytes,response_100ns` |
//! | [`TraceFormat::DiskSim`] | `time_ns device lba512 sectors op`, op 0 or 1 |
//! | [`TraceFormat::FioLog`] | fio's iolog, versions 2 and 3: `[ms] file action offset length` |
//! | [`TraceFormat::BlkParse`] | blkparse's text: queued requests, action Q |
//! | [`TraceFormat::Numbers`] | little-endian 32-bit block numbers, nothing else |
//!
//! Invariants
//! - A reader accepts any bytes without a panic and keeps one line at a time; the memory for records is bounded by
//!   [`RECORDS_MAX`].
//! - A line that is not a record of its form is refused with its number: numbers from a half-understood trace could not
//!   be trusted.
//!
//! Leaves to others: the lines of each format (`forms.rs`), and the simulation of a trace (`sim`).

mod forms;
mod line;
mod replay;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::{BufRead, Read};

use crate::sim::Ask;
use line::Line;
pub use line::TraceFormat;
use longshore_policy::model::{Nanos, Op, Request};
pub use replay::{Pace, Replay};

/// More are refused: 40 bytes each in memory.
pub const RECORDS_MAX: usize = 20_000_000;
/// A longer line is not part of a trace.
const LINE_MAX: usize = 4096;
/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRequest {
    /// Time since the first record; never goes back.
    pub at: Nanos,
    pub ask: Ask,
    /// How many requests were in flight on the host when this one arrived, if the trace says how long they took.
    pub depth: Option<u32>,
}

/// A trace, in the order of its times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub records: Vec<TraceRequest>,
    /// Lines that are not replayed: other commands, requests without bytes.
    pub skipped: u64,
}

impl Trace {
    /// Bytes of all slots that any request touches.
    pub fn touched_bytes(&self, slot_bytes: u64) -> u64 {
        let slots = self.records.iter().flat_map(|record| match record.ask {
            Ask::Io(Request {
                offset,
                len_bytes: len,
                ..
            }) => offset / slot_bytes..(offset + len).div_ceil(slot_bytes),
            Ask::Flush | Ask::Discard { .. } => 0..0,
        });
        slots.collect::<HashSet<u64>>().len() as u64 * slot_bytes
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("the trace cannot be read")]
    Io(#[from] std::io::Error),
    /// No form has such a first line.
    #[error("line {line:?} has no known trace format")]
    UnknownForm { line: String },
    /// A line does not match its form.
    #[error("line {number} is not a record of a {form} trace: {line:?}")]
    NoRecord {
        form: &'static str,
        number: u64,
        line: String,
    },
    #[error("the trace has more than {RECORDS_MAX} records")]
    TooLong,
    #[error("the trace has no record")]
    Empty,
}

impl TraceError {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            TraceError::Io(_) => "check that the file exists and is readable",
            TraceError::UnknownForm { .. } => {
                "name its format; decompress a compressed trace first, for example with zcat"
            }
            TraceError::NoRecord { .. } => "remove the line, or name another format",
            TraceError::TooLong => "shorten the trace",
            TraceError::Empty => "check that this is the right file",
        }
    }
}

/// Reads a trace of this form, or of the form that its first lines indicate.
pub fn read(mut input: impl BufRead, form: Option<TraceFormat>) -> Result<Trace, TraceError> {
    if form == Some(TraceFormat::Numbers) {
        return numbers(input);
    }
    let mut reader = Lines::default();
    let mut form = form;
    let mut parsed: Vec<(f64, TraceRequest, Option<f64>)> = Vec::new();
    let mut skipped = 0;
    while let Some((number, line)) = reader.next(&mut input)? {
        let known = match form {
            Some(form) => form,
            None => match forms::recognise(line) {
                Some(found) => *form.insert(found),
                None => {
                    let line = shown(line);
                    return Err(TraceError::UnknownForm { line });
                }
            },
        };
        match forms::parse(known, line) {
            Some(Line::Request { at, ask, took }) => {
                if parsed.len() >= RECORDS_MAX {
                    return Err(TraceError::TooLong);
                }
                let record = TraceRequest {
                    at: 0,
                    ask,
                    depth: None,
                };
                parsed.push((at, record, took));
            }
            Some(Line::Skipped) => skipped += 1,
            Some(Line::Nothing) => {}
            None => {
                return Err(TraceError::NoRecord {
                    form: known.name(),
                    number,
                    line: shown(line),
                });
            }
        }
    }
    ordered(parsed, skipped)
}

/// Sorts by time, counts from the first record, and computes how many were in flight.
fn ordered(
    mut parsed: Vec<(f64, TraceRequest, Option<f64>)>,
    skipped: u64,
) -> Result<Trace, TraceError> {
    // Stable: equal times keep the file's order.
    parsed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = parsed.first().ok_or(TraceError::Empty)?.0;
    let timed = parsed.iter().all(|(_, _, took)| took.is_some());
    let mut ends = std::collections::BinaryHeap::new();
    let mut records = Vec::with_capacity(parsed.len());
    for (at, record, took) in parsed {
        let at = (at - first).min(1e18) as Nanos;
        let depth = timed.then(|| {
            while ends.peek().is_some_and(|std::cmp::Reverse(end)| *end <= at) {
                ends.pop();
            }
            let depth = ends.len() as u32;
            let end = at.saturating_add(took.unwrap_or(0.0).min(1e18) as Nanos);
            ends.push(std::cmp::Reverse(end));
            depth
        });
        records.push(TraceRequest {
            at,
            depth,
            ..record
        });
    }
    Ok(Trace { records, skipped })
}

/// Block numbers of 4 KiB, read sequentially.
fn numbers(mut input: impl Read) -> Result<Trace, TraceError> {
    let mut records = Vec::new();
    let mut number = [0; 4];
    loop {
        match input.read_exact(&mut number) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e.into()),
        }
        if records.len() >= RECORDS_MAX {
            return Err(TraceError::TooLong);
        }
        records.push(TraceRequest {
            at: 0,
            ask: Ask::Io(Request {
                op: Op::Read,
                offset: u64::from(u32::from_le_bytes(number)) * 4096,
                len_bytes: 4096,
            }),
            depth: None,
        });
    }
    if records.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(Trace {
        records,
        skipped: 0,
    })
}

/// Lines of bounded length, one at a time.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    number: u64,
}

impl Lines {
    /// The next line that is not empty; a line that is too long is cut, so that it is not a record.
    fn next(&mut self, input: &mut impl BufRead) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            self.buffer.clear();
            let mut limited = Read::take(&mut *input, LINE_MAX as u64);
            if limited.read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.iter().any(|byte| !byte.is_ascii_whitespace()) {
                break;
            }
        }
        // Bytes that are not text are no record either.
        let text = std::str::from_utf8(&self.buffer).unwrap_or("(not text)");
        Ok(Some((self.number, text.trim())))
    }
}

/// The beginning of a line, for a message.
fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}
