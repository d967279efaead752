//! A parity stripe made once more from the others: for a repair, and for a copy.
//!
//! Invariants
//! - Where the rows are known, the new stripe has the same rows; otherwise all parity stripes are made with new rows.
//! - A chunk is written only if its checksum is that in the row's record, or if the record is new, too.
//!
//! Leaves to others: which stripes are made (`repair.rs`, `copy.rs`), and when they get their trailers.

use longshore_io::{crc32c, crc32c_append};
use longshore_parity::{Outputs, coefficient, combine};

use crate::Error;
use crate::device::{FamilyRead, FamilyWrite};
use crate::header::{MediaHeader, SetHeader, SetTrailer};
use crate::record::RecordKind;

use super::group::{Group, own};
use super::row::{CHUNK_HEAD_LEN, CONTAINER, ROW_BYTES, RowRecord, Span, chunk_head, record_len};
use super::stripe::ParityStripe;
use super::table::{RowTable, record_at, trailer_of};

/// Called with the number of bytes that were read or written; an error ends the work.
type Moved<'a> = &'a (dyn Fn(u64) -> Result<(), Error> + Sync);

/// The header of a parity family's stripe, by the header of any other stripe.
pub(crate) fn header_of(other: &MediaHeader, member: usize) -> MediaHeader {
    let family = member as u16 + 1;
    MediaHeader {
        family,
        family_uuid: MediaHeader::parity_uuid(other.media_set, other.generation, family),
        container: CONTAINER,
        ..other.clone()
    }
}

/// A data stripe's trailer without what only its family has.
pub(crate) fn whole_of(trailer: &SetTrailer) -> SetTrailer {
    SetTrailer {
        previous_trailer: 0,
        blocks_here: 0,
        ..trailer.clone()
    }
}

/// Writes a parity stripe with the rows that there are, without its trailer.
pub(crate) fn write_known(
    group: &Group,
    member: usize,
    (write, device): (Box<dyn FamilyWrite>, String),
    (media, set): (&MediaHeader, &SetHeader),
    moved: Moved<'_>,
) -> Result<ParityStripe, Error> {
    let table = group.table(member)?;
    let reads = group.handles(member);
    let own_read = group.places[member].read.as_deref();
    let mut stripe = ParityStripe::begin(write, device, media, set)?;
    for entry in 0..table.len() {
        let bytes = match own_read {
            Some(read) => own(table, entry, member, read)?,
            None => None,
        };
        let chunk = match bytes {
            Some(bytes) => bytes,
            None => group.rebuilt(table, entry, member, &reads)?,
        };
        stripe.put_row(&table.record(entry), &chunk)?;
        moved(chunk.len() as u64)?;
    }
    stripe.end_rows()?;
    Ok(stripe)
}

/// Writes all parity stripes with new rows, without their trailers. `data` are all data stripes, with the names of their devices.
///
/// Errors: those of the devices, also where a stripe gives fewer bytes than it has; those of `moved`.
pub(crate) fn write_new(
    data: &[(&str, &dyn FamilyRead)],
    targets: Vec<(Box<dyn FamilyWrite>, String)>,
    (media, set): (&MediaHeader, &SetHeader),
    moved: Moved<'_>,
) -> Result<Vec<ParityStripe>, Error> {
    const PIECE: usize = 256 << 10;
    let count = data.len();
    let mut stripes = Vec::new();
    for (j, (write, device)) in targets.into_iter().enumerate() {
        let header = header_of(media, count + j);
        stripes.push(ParityStripe::begin(write, device, &header, set)?);
    }
    let lens: Result<Vec<u64>, Error> = data
        .iter()
        .map(|(_, read)| Ok(read.len_bytes()?.unwrap_or(0)))
        .collect();
    let lens = lens?;
    let longest = lens.iter().copied().max().unwrap_or(0);
    let mut chunks = vec![vec![0; ROW_BYTES as usize]; stripes.len()];
    let mut bytes = vec![0; PIECE];
    for row in 0..longest.div_ceil(u64::from(ROW_BYTES)) {
        let start = row * u64::from(ROW_BYTES);
        let chunk_len = (longest - start).min(u64::from(ROW_BYTES)) as usize;
        let mut spans = Vec::with_capacity(count);
        chunks.iter_mut().for_each(|chunk| chunk.fill(0));
        for (i, (device, read)) in data.iter().enumerate() {
            let offset = start.min(lens[i]);
            let len = (lens[i] - offset).min(u64::from(ROW_BYTES)) as usize;
            let factors: Vec<u8> = (0..chunks.len()).map(|j| coefficient(j, i)).collect();
            let mut crc = 0;
            for at in (0..len).step_by(PIECE) {
                let n = PIECE.min(len - at);
                let offset = offset + at as u64;
                if read.read_at(&mut bytes[..n], offset)? != n {
                    return Err(Error::Io {
                        action: "read",
                        device: (*device).to_owned(),
                        offset,
                        source: std::io::ErrorKind::UnexpectedEof.into(),
                    });
                }
                crc = crc32c_append(crc, &bytes[..n]);
                let outs = chunks.iter_mut().map(|chunk| &mut chunk[at..at + n]);
                let mut outs: Vec<&mut [u8]> = outs.collect();
                combine(&mut outs, &factors, &[&bytes[..n]], Outputs::Present);
            }
            moved(len as u64)?;
            spans.push(Span {
                offset,
                len: len as u32,
                crc,
            });
        }
        let record = RowRecord {
            set: set.set,
            row,
            at: 0,
            row_bytes: ROW_BYTES,
            chunk_len: chunk_len as u32,
            spans,
            chunk_crcs: chunks.iter().map(|c| crc32c(&c[..chunk_len])).collect(),
        };
        for (stripe, chunk) in stripes.iter_mut().zip(&chunks) {
            stripe.put_row(&record, &chunk[..chunk_len])?;
        }
    }
    for stripe in &mut stripes {
        stripe.end_rows()?;
    }
    Ok(stripes)
}

/// What is wrong with a parity stripe, all of which is read; `None`: nothing.
///
/// Errors: [`Error::Cancelled`], and those of `moved`.
pub(crate) fn examined(
    table: &RowTable,
    member: usize,
    read: &dyn FamilyRead,
    (set, trailer): (&SetHeader, &SetTrailer),
    moved: Moved<'_>,
) -> Result<Option<String>, Error> {
    for entry in 0..table.len() {
        let record = table.record(entry);
        let span = table.member(entry, member);
        let framed_len = record_len(record.spans.len(), record.chunk_crcs.len()) as usize;
        let mut framed = Vec::with_capacity(framed_len + CHUNK_HEAD_LEN);
        CONTAINER.append(RecordKind::Parity, &record.encode(), &mut framed);
        framed.extend_from_slice(&chunk_head(record.chunk_len));
        let mut found = vec![0; framed.len()];
        let got = read.read_at(&mut found, record.at);
        if !matches!(got, Ok(n) if n == found.len()) || found != framed {
            return Ok(Some(format!("the record at byte {} is damaged", record.at)));
        }
        if own(table, entry, member, read)?.is_none() {
            return Ok(Some(format!("bytes from {} on are damaged", span.offset)));
        }
        moved(u64::from(span.len))?;
    }
    let Some((own, _)) = trailer_of(read) else {
        return Ok(Some("its end is damaged or missing".to_owned()));
    };
    let header = record_at(read, own.set_offset);
    let is_set = matches!(&header, Some((RecordKind::Set, body, _)) if *body == set.encode());
    let first = table.record(0).at;
    let is_first = header.is_some_and(|(_, _, end)| end == first);
    let has_index = RowTable::of_index(read).is_some_and(|found| found.is_like(table));
    if !is_set || !is_first {
        return Ok(Some("the header of its set is damaged".to_owned()));
    }
    let chain = table.chain(member - table.data());
    match own.agrees_with(trailer) && own.chain_crc == chain && has_index {
        true => Ok(None),
        false => Ok(Some("its index or its end is damaged".to_owned())),
    }
}
