//! Goal: tests of parity stripes damage sets, read their rows and repair them in one way.
//! Method: stripes in memory; a place that may be damaged counts for the row that needs it.
//! Not covered: this file has no tests; the tests that include it do the judging.

use std::sync::Arc;

use longshore_io::{crc32c, crc32c_append};
use longshore_kit::Random;
use longshore_kit::random::noise;
use longshore_media::parity::RowRecord;
use longshore_media::record::RecordKind;
use longshore_media::{BackupDevice, Container, Error, Examined, SetTrailer, index};

use super::{Input, Slot, file, small_tree, text_like};

/// The most bytes that a row takes from a stripe in these tests.
pub const ROW: u32 = 4096;

/// A tree with some files that take several rows.
pub fn tree(bytes: usize) -> Vec<Input> {
    let mut inputs = small_tree();
    for i in 0..4 {
        let data = match i % 2 {
            0 => noise(i, bytes / 4),
            _ => text_like(bytes / 4, i),
        };
        inputs.push(file(&format!("file{i}"), &data));
    }
    inputs
}

pub fn moved(_: u64) -> Result<(), Error> {
    Ok(())
}

/// Devices that can be written; `None`: nothing is there.
pub fn slots(stripes: &[Option<Vec<u8>>]) -> Vec<Slot> {
    let slot = |bytes: &Option<Vec<u8>>| {
        let slot = Slot::default();
        if let Some(bytes) = bytes {
            slot.set(bytes.clone());
        }
        slot
    };
    stripes.iter().map(slot).collect()
}

pub fn devices_of(slots: &[Slot]) -> Vec<Arc<dyn BackupDevice>> {
    slots.iter().map(|s| Arc::new(s.clone()) as _).collect()
}

pub fn repaired(damaged: &[Option<Vec<u8>>]) -> Result<Vec<Vec<u8>>, Error> {
    let slots = slots(damaged);
    let devices = devices_of(&slots);
    let examined = Examined::of(&devices, &moved)?;
    examined.repair(&devices, &moved)?;
    let faults = Examined::of(&devices, &moved)?.faults().to_vec();
    assert_eq!(faults, [], "after the repair");
    Ok(slots.iter().map(Slot::bytes).collect())
}

/// The rows of a parity stripe.
pub fn rows(stripe: &[u8]) -> Vec<RowRecord> {
    let container = Container::Zstd;
    let (mut at, mut rows) = (0, Vec::new());
    while at < stripe.len() {
        let len = container.framed_len_at(&stripe[at..]).unwrap();
        let (kind, body) = container.parse(&stripe[at..at + len]).unwrap();
        at += len;
        if kind == RecordKind::Parity {
            let row = RowRecord::decode(body).unwrap();
            assert_eq!(row.at as usize + len, at);
            assert_eq!(stripe[at..at + 4], [0x5b, 0x2a, 0x4d, 0x18]);
            at += 8 + row.chunk_len as usize;
            rows.push(row);
        }
    }
    rows
}

/// A place in a stripe that may be damaged, and the row that it counts for; `None`: no row needs it.
pub struct Spot {
    pub stripe: usize,
    pub range: std::ops::Range<usize>,
    pub row: Option<usize>,
}

/// Everything in all stripes: members of rows, and what parity stripes have apart from their chunks.
pub fn spots(all: &[Vec<u8>], data: usize) -> Vec<Spot> {
    let rows = rows(&all[data]);
    let mut spots = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        for (stripe, span) in row.spans.iter().enumerate().filter(|(_, s)| s.len > 0) {
            let start = span.offset as usize;
            spots.push(Spot {
                stripe,
                range: start..start + span.len as usize,
                row: Some(n),
            });
        }
    }
    for (stripe, bytes) in all.iter().enumerate().skip(data) {
        let mut at = 0;
        for (n, row) in rows.iter().enumerate() {
            let record = row.at as usize;
            let chunk = Container::Zstd.framed_len(48 + 16 * data + 4 * (all.len() - data));
            let end = record + chunk + 8 + row.chunk_len as usize;
            if at < record {
                spots.push(Spot {
                    stripe,
                    range: at..record,
                    row: None,
                });
            }
            spots.push(Spot {
                stripe,
                range: record..end,
                row: Some(n),
            });
            at = end;
        }
        spots.push(Spot {
            stripe,
            range: at..bytes.len(),
            row: None,
        });
    }
    spots
}

/// Changes some bytes of a range.
pub fn damage(random: &mut Random, bytes: &mut [u8]) {
    let len = 1 + random.below(bytes.len().min(400));
    let start = random.below(bytes.len() - len + 1);
    match random.below(3) {
        0 => bytes[start..start + len].fill(0),
        1 => bytes[start] ^= 1 << random.below(8),
        _ => {
            for byte in &mut bytes[start..start + len] {
                *byte ^= random.below(255_u8) + 1;
            }
        }
    }
}

/// A parity stripe whose rows have other bytes of one data stripe, and whose checksums, index and trailer fit: what a
/// person writes who wants a repair to make `wanted` of `stripe`. Rows that `wants` does not take stay as they are.
pub fn forged(
    parity: &[u8],
    (member, stripe, wanted): (usize, &[u8], &[u8]),
    wants: impl Fn(&RowRecord) -> bool,
) -> Vec<u8> {
    assert_eq!(stripe.len(), wanted.len());
    let zstd = Container::Zstd;
    let record = |at: usize| {
        let len = zstd.framed_len_at(&parity[at..]).unwrap();
        let (kind, body) = zstd.parse(&parity[at..at + len]).unwrap();
        (kind, body.to_vec(), at + len)
    };
    let (mut out, mut at) = (Vec::new(), 0);
    let mut index = index::Builder::default();
    let mut chain = 0;
    loop {
        let (kind, body, end) = record(at);
        match kind {
            RecordKind::Parity => {
                let mut row = RowRecord::decode(&body).unwrap();
                let chunk_at = end + 8;
                let mut chunk = parity[chunk_at..chunk_at + row.chunk_len as usize].to_vec();
                if wants(&row) {
                    let span = &mut row.spans[member];
                    let place = span.offset as usize..span.offset as usize + span.len as usize;
                    for ((byte, own), other) in chunk
                        .iter_mut()
                        .zip(&stripe[place.clone()])
                        .zip(&wanted[place.clone()])
                    {
                        *byte ^= own ^ other;
                    }
                    span.crc = crc32c(&wanted[place]);
                    // The first parity family is the exclusive or of the members.
                    row.chunk_crcs[0] = crc32c(&chunk);
                }
                assert_eq!(row.at as usize, out.len());
                let body = row.encode();
                zstd.append(RecordKind::Parity, &body, &mut out);
                out.extend_from_slice(&parity[end..chunk_at]);
                out.extend_from_slice(&chunk);
                let mut link = [0; 12];
                link[..8].copy_from_slice(&row.row.to_le_bytes());
                link[8..].copy_from_slice(&row.chunk_crcs[0].to_le_bytes());
                chain = crc32c_append(chain, &link);
                index.add(index::RowRef {
                    sequence: row.row,
                    offset: row.at,
                    len: (out.len() as u64 - row.at) as u32,
                    plain_len: row.chunk_len,
                    digest: None,
                    manifest: &body,
                });
                at = chunk_at + chunk.len();
            }
            RecordKind::Index => at = end,
            RecordKind::Trailer => {
                let mut trailer = SetTrailer::decode(&body).unwrap();
                out.extend(index.flush(zstd, out.len() as u64));
                (trailer.index_offset, trailer.index_len) = index.last();
                trailer.chain_crc = chain;
                zstd.append(RecordKind::Trailer, &trailer.encode(), &mut out);
                return out;
            }
            _ => {
                out.extend_from_slice(&parity[at..end]);
                at = end;
            }
        }
    }
}
