//! The stripes of a media set with parity, and what has become of them.
//!
//! Invariants
//! - A member's bytes are used for another one only if their checksum is that in the row's record, and so are the bytes
//!   that come out.
//! - Each fault that was seen is kept, for reports: which stripe, and what of it.
//! - One row is rebuilt at a time, with buffers that are allocated once.
//!
//! Leaves to others: reading a stripe in order (`rebuilt.rs`), and which stripes belong together (`set_reader.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longshore_io::{crc32c, crc32c_append, side_by_side};
use longshore_parity::{Outputs, Recipe, combine};
use uuid::Uuid;

use crate::Error;
use crate::device::FamilyRead;
use crate::header::{MediaHeader, SetTrailer};

use super::row::{ROW_BYTES, Span};
use super::table::{RowTable, trailer_of};

/// The most bytes of buffers for the members of a row.
const MEMBERS_BYTES: usize = 64 << 20;
/// Shorter members are read one after the other.
const SHORT_BYTES: usize = 64 << 10;

/// A family of the media set, and the stripe that was given for it.
#[derive(Debug)]
pub(crate) struct Place {
    /// Index into the devices in the caller's order; `None`: no device was given for it, or it is not known which.
    pub device_index: Option<usize>,
    /// The device's name, or the family's number where there is none.
    pub name: String,
    /// `None` if the stripe is lost.
    pub read: Option<Arc<dyn FamilyRead>>,
    /// `None` if it cannot be read.
    pub header: Option<MediaHeader>,
    /// Why a repair must not write here; `None`: it may.
    pub kept: Option<String>,
}

/// The fault of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeFault {
    pub family: u16,
    pub is_parity: bool,
    pub device: String,
    /// Whether nothing of it can be used.
    pub is_lost: bool,
    pub what: String,
}

impl fmt::Display for StripeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_parity {
            "parity stripe"
        } else {
            "stripe"
        };
        let state = if self.is_lost { "lost" } else { "damaged" };
        let (device, what) = (&self.device, &self.what);
        // A stripe of which no device is known has its family as its name.
        let family = match device.starts_with("family ") {
            true => String::new(),
            false => format!(" (family {})", self.family),
        };
        write!(f, "{kind} {device}{family} is {state}: {what}")
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// Why the stripe cannot be used, or what is wrong with its ends.
    what: Option<String>,
    is_lost: bool,
    /// Which of the table's entries are bad, and the offset of the first that was noted.
    bad: Vec<bool>,
    first: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub data: usize,
    pub parity: usize,
    /// Data families first.
    pub places: Vec<Place>,
    table: OnceLock<Option<RowTable>>,
    /// The set, where a data stripe tells it.
    set: Option<Uuid>,
    seen: Mutex<BTreeMap<usize, Seen>>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Group {
    /// `set`: the set's UUID, as far as a data stripe tells it.
    pub fn new(data: usize, places: Vec<Place>, set: Option<Uuid>) -> Group {
        Group {
            data,
            parity: places.len() - data,
            places,
            table: OnceLock::new(),
            set,
            seen: Mutex::default(),
            buffers: Mutex::default(),
        }
    }

    /// The rows; read from the parity stripes when they are first asked for.
    ///
    /// Errors: [`Error::BeyondParity`] if no parity stripe tells them.
    pub fn table(&self, member: usize) -> Result<&RowTable, Error> {
        let load = || {
            let parity = self.places[self.data..].iter();
            let reads: Vec<&dyn FamilyRead> =
                parity.filter_map(|place| place.read.as_deref()).collect();
            RowTable::load(&reads, (self.data, self.parity), self.set)
        };
        let table = self.table.get_or_init(load).as_ref();
        table.ok_or_else(|| self.beyond(member, 0, "no parity stripe tells its rows".to_owned()))
    }

    /// Uses a table that was found before all places were known.
    pub fn with_table(self, table: Option<RowTable>) -> Group {
        if let Some(table) = table {
            let _ = self.table.set(Some(table));
        }
        self
    }

    pub fn beyond(&self, member: usize, offset: u64, what: String) -> Error {
        Error::BeyondParity {
            device: self.places[member].name.clone(),
            offset,
            what,
        }
    }

    fn with_seen<T>(&self, member: usize, of: impl FnOnce(&mut Seen) -> T) -> T {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        of(seen.entry(member).or_default())
    }

    /// Notes that a stripe is lost.
    pub fn note_lost(&self, member: usize, why: String) {
        self.with_seen(member, |seen| {
            seen.is_lost = true;
            seen.what.get_or_insert(why);
        });
    }

    /// Notes what is wrong with a stripe as a whole.
    pub fn note(&self, member: usize, what: &str) {
        self.with_seen(member, |seen| {
            seen.what.get_or_insert_with(|| what.to_owned());
        });
    }

    /// Notes that a stripe's bytes of a row are bad.
    pub fn note_row(&self, table: &RowTable, entry: usize, member: usize) {
        let offset = table.member(entry, member).offset;
        self.with_seen(member, |seen| {
            seen.bad.resize(table.len(), false);
            seen.bad[entry] = true;
            seen.first.get_or_insert(offset);
        });
    }

    /// The rows of which a stripe's bytes are not those in the row's record, as far as that was seen.
    pub fn bad_rows(&self, member: usize) -> Vec<usize> {
        self.with_seen_if(member, |seen| {
            let rows = seen.bad.iter().enumerate().filter(|(_, bad)| **bad);
            rows.map(|(entry, _)| entry).collect()
        })
    }

    fn with_seen_if<T: Default>(&self, member: usize, of: impl FnOnce(&Seen) -> T) -> T {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&member).map_or_else(T::default, of)
    }

    /// Handles to all other families' stripes, for one who reads them in order.
    pub fn handles(&self, member: usize) -> Vec<Option<Arc<dyn FamilyRead>>> {
        let handle = |(m, place): (usize, &Place)| {
            let read = place.read.as_ref().filter(|_| m != member)?;
            Some(read.again().unwrap_or_else(|| read.clone()))
        };
        self.places.iter().enumerate().map(handle).collect()
    }

    /// Whether something is wrong with a stripe, as far as it was looked at.
    pub fn is_bad(&self, member: usize) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.contains_key(&member)
    }

    /// The faults of the stripes, as far as they were looked at.
    pub fn faults(&self) -> Vec<StripeFault> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = |(member, seen): (&usize, &Seen)| {
            let rows = seen.bad.iter().filter(|bad| **bad).count();
            let first = seen.first.unwrap_or(0);
            let of_rows = match rows {
                0 => None,
                1 => Some(format!("bytes from {first} on are damaged")),
                _ => Some(format!(
                    "it is damaged in {rows} places, one of them at byte {first}"
                )),
            };
            let whats = [seen.what.clone(), of_rows.filter(|_| !seen.is_lost)];
            StripeFault {
                family: *member as u16 + 1,
                is_parity: *member >= self.data,
                device: self.places[*member].name.clone(),
                is_lost: seen.is_lost,
                what: whats.into_iter().flatten().collect::<Vec<_>>().join("; "),
            }
        };
        seen.iter().map(fault).collect()
    }

    /// Looks whether the parity stripes that are there end as they must.
    pub fn check_ends(&self, trailer: &SetTrailer) {
        for (member, place) in self.places.iter().enumerate().skip(self.data) {
            let Some(read) = &place.read else { continue };
            match trailer_of(&**read) {
                Some((own, _)) if own.agrees_with(trailer) => {}
                _ => self.note(member, "its end is damaged or missing"),
            }
        }
    }

    /// Whether `read` has a member's bytes, by a few of the rows.
    ///
    /// Errors: [`Error::Cancelled`].
    pub fn is_member(
        table: &RowTable,
        member: usize,
        read: &dyn FamilyRead,
    ) -> Result<bool, Error> {
        const TRIED: usize = 8;
        let count = table.len();
        let has_bytes =
            |entry: &usize| table.is_known(*entry) && table.member(*entry, member).len > 0;
        let first = (0..count).filter(has_bytes).take(TRIED / 2);
        let last = (0..count).rev().filter(has_bytes).take(TRIED / 2);
        for entry in first.chain(last) {
            // Zeros are what a file has that was never written.
            let bytes = own(table, entry, member, read)?.unwrap_or_default();
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A member's bytes of a row, from the others. `reads` are handles to all families' stripes.
    ///
    /// Errors: [`Error::BeyondParity`] if too many of the others are lost or bad in this row.
    pub fn rebuilt(
        &self,
        table: &RowTable,
        entry: usize,
        member: usize,
        reads: &[Option<Arc<dyn FamilyRead>>],
    ) -> Result<Vec<u8>, Error> {
        let wanted = table.member(entry, member);
        if !table.is_known(entry) {
            let what = "the records of these rows are lost on all parity stripes".to_owned();
            return Err(self.beyond(member, wanted.offset, what));
        }
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bad: Vec<bool> = reads.iter().map(Option::is_none).collect();
        loop {
            let usable = |m: usize| m < bad.len() && !bad[m];
            let recipe = Recipe::among(self.data, self.parity, member, usable);
            let Some(recipe) = recipe else {
                return Err(self.too_many(member, wanted, &bad));
            };
            let mut job = Job {
                spans: recipe
                    .sources
                    .iter()
                    .map(|m| table.member(entry, *m))
                    .collect(),
                recipe: &recipe,
                out: vec![0; wanted.len as usize],
            };
            let found = job.run(reads, &mut buffers)?;
            let is_good = |(crc, span): (&Option<u32>, &Span)| *crc == Some(span.crc);
            let wrong: Vec<usize> = found
                .iter()
                .zip(&job.spans)
                .zip(&recipe.sources)
                .filter(|(pair, _)| !is_good(*pair))
                .map(|(_, source)| *source)
                .collect();
            for source in &wrong {
                bad[*source] = true;
                self.note_row(table, entry, *source);
            }
            if !wrong.is_empty() {
                continue;
            }
            return match crc32c(&job.out) == wanted.crc {
                true => Ok(job.out),
                false => {
                    let what = "its row does not give the bytes that were written".to_owned();
                    Err(self.beyond(member, wanted.offset, what))
                }
            };
        }
    }

    fn too_many(&self, member: usize, wanted: Span, bad: &[bool]) -> Error {
        let others = (0..bad.len()).filter(|m| *m != member && bad[*m]);
        let others: Vec<&str> = others.map(|m| &*self.places[m].name).collect();
        let what = format!(
            "{} parity stripes are not enough, since other stripes are lost or damaged there, too: {}",
            self.parity,
            others.join(", ")
        );
        self.beyond(member, wanted.offset, what)
    }

    /// The memory for reading with all data stripes at once.
    pub fn memory_bytes(&self) -> u64 {
        let strips = self.data * strip_bytes(self.data);
        (strips + self.data * ROW_BYTES as usize) as u64
    }
}

/// Bytes that are read of each member at a time.
fn strip_bytes(members: usize) -> usize {
    (MEMBERS_BYTES / members).min(ROW_BYTES as usize)
}

/// A stripe's own bytes of a row, if their checksum agrees.
///
/// Errors: [`Error::Cancelled`].
pub(crate) fn own(
    table: &RowTable,
    entry: usize,
    member: usize,
    read: &dyn FamilyRead,
) -> Result<Option<Vec<u8>>, Error> {
    let span = table.member(entry, member);
    let mut bytes = vec![0; span.len as usize];
    let is_whole = read_span(read, &mut bytes, span.offset)? && crc32c(&bytes) == span.crc;
    Ok(is_whole.then_some(bytes))
}

/// Fills `buf`, or says that the stripe does not give these bytes.
///
/// Errors: [`Error::Cancelled`] only.
fn read_span(read: &dyn FamilyRead, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
    if buf.is_empty() {
        return Ok(true);
    }
    match read.read_at(buf, offset) {
        Ok(n) => Ok(n == buf.len()),
        Err(error @ Error::Cancelled { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

/// One row being rebuilt.
struct Job<'a> {
    recipe: &'a Recipe,
    spans: Vec<Span>,
    out: Vec<u8>,
}

impl Job<'_> {
    /// Reads the sources side by side, strip by strip, and adds them up. Returns their checksums; `None` for one that
    /// could not be read.
    fn run(
        &mut self,
        reads: &[Option<Arc<dyn FamilyRead>>],
        buffers: &mut Vec<Vec<u8>>,
    ) -> Result<Vec<Option<u32>>, Error> {
        let count = self.spans.len();
        let strip = strip_bytes(count);
        buffers.resize_with(count, Vec::new);
        let longest = self.spans.iter().map(|span| span.len).max().unwrap_or(0) as usize;
        let mut crcs = vec![Some(0); count];
        for at in (0..longest).step_by(strip) {
            let len = strip.min(longest - at);
            let slots: Vec<Mutex<&mut Vec<u8>>> = buffers.iter_mut().map(Mutex::new).collect();
            let read_one = |i: usize| {
                let mut buffer = slots[i].lock().unwrap_or_else(PoisonError::into_inner);
                buffer.resize(len, 0);
                let span = self.spans[i];
                let here = (span.len as usize).saturating_sub(at).min(len);
                // Bytes that a member lacks count as zeros.
                buffer[here..].fill(0);
                let read = reads.get(self.recipe.sources[i]).and_then(Option::as_ref);
                let (Some(read), Some(before)) = (read, crcs[i]) else {
                    return Ok(None);
                };
                let is_read = read_span(&**read, &mut buffer[..here], span.offset + at as u64)?;
                Ok(is_read.then(|| crc32c_append(before, &buffer[..here])))
            };
            let at_once = (len >= SHORT_BYTES).then(|| side_by_side(count, read_one));
            let found: Result<Vec<_>, Error> = match at_once {
                Some(Ok(found)) => found.into_iter().collect(),
                // A system that refuses threads lets them be read in turn.
                _ => (0..count).map(read_one).collect(),
            };
            drop(slots);
            crcs = found?;
            let here = self.out.len().saturating_sub(at).min(len);
            if here > 0 {
                let sources: Vec<&[u8]> = buffers.iter().map(|b| &b[..here]).collect();
                let out = &mut self.out[at..at + here];
                combine(&mut [out], &self.recipe.factors, &sources, Outputs::Zeros);
            }
        }
        Ok(crcs)
    }
}
