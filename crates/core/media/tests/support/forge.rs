//! Goal: tests give hostile bytes to the readers of media behind right checksums, so that the bytes get past the first
//! checks.
//! Method: a valid stripe is taken apart into records, changed, and assembled again with the format's own framing.
//! Not covered: this file has no tests; the tests that include it do the judging.

use longshore_io::{crc32c, crc32c_append};
use longshore_media::parity::RowRecord;
use longshore_media::record::{Container, RecordKind};
use longshore_media::{BlockHeader, MediaHeader, SetTrailer};

/// One record and, for a block or a row of parity, the bytes after it.
#[derive(Debug, Clone)]
pub struct Piece {
    pub kind: RecordKind,
    pub body: Vec<u8>,
    pub payload: Vec<u8>,
}

/// Takes a valid stripe apart; one of parity, if its container is that of zstd.
pub fn take_apart(container: Container, stripe: &[u8]) -> Vec<Piece> {
    let mut at = container.preamble().len();
    let mut pieces = Vec::new();
    while at < stripe.len() {
        let len = container.framed_len_at(&stripe[at..]).unwrap();
        let (kind, body) = container.parse(&stripe[at..at + len]).unwrap();
        at += len;
        let payload_len = match kind {
            RecordKind::Block => BlockHeader::decode(body).unwrap().0.stored_len as usize,
            // With the head of the frame around a chunk.
            RecordKind::Parity => 8 + RowRecord::decode(body).unwrap().chunk_len as usize,
            _ => 0,
        };
        pieces.push(Piece {
            kind,
            body: body.to_vec(),
            payload: stripe[at..at + payload_len].to_vec(),
        });
        at += payload_len;
    }
    pieces
}

/// Assembles pieces; every record gets its correct checksum.
pub fn put_together(container: Container, pieces: &[Piece]) -> Vec<u8> {
    let mut stripe = container.preamble().to_vec();
    for piece in pieces {
        container.append(piece.kind, &piece.body, &mut stripe);
        stripe.extend_from_slice(&piece.payload);
    }
    stripe
}

/// Corrects the blocks' checksums and the trailers' offsets, counts and chain, in records that still have these
/// fields.
pub fn mend(container: Container, pieces: &mut [Piece]) {
    let mut at = container.preamble().len() as u64;
    let (mut set_offset, mut previous_trailer) = (0, 0);
    let (mut manifest, mut blocks, mut chain) = (Vec::new(), 0u64, 0);
    for piece in pieces {
        match piece.kind {
            RecordKind::Set => (set_offset, blocks, chain) = (at, 0, 0),
            RecordKind::Manifest => {
                manifest.extend_from_slice(piece.body.get(28..).unwrap_or_default())
            }
            RecordKind::Block if piece.body.len() >= 72 => {
                manifest.extend_from_slice(&piece.body[72..]);
                let stored_crc = crc32c(&piece.payload);
                put(
                    &mut piece.body,
                    28,
                    (piece.payload.len() as u32).to_le_bytes(),
                );
                put(&mut piece.body, 36, stored_crc.to_le_bytes());
                put(&mut piece.body, 40, crc32c(&manifest).to_le_bytes());
                put(&mut piece.body, 44, (manifest.len() as u32).to_le_bytes());
                chain = crc32c_append(chain, &piece.body[16..24]);
                chain = crc32c_append(chain, &stored_crc.to_le_bytes());
                blocks += 1;
                manifest.clear();
            }
            RecordKind::Trailer if piece.body.len() >= 112 => {
                put(&mut piece.body, 32, u64::to_le_bytes(set_offset));
                put(&mut piece.body, 40, u64::to_le_bytes(previous_trailer));
                put(&mut piece.body, 48, blocks.to_le_bytes());
                put(&mut piece.body, 108, u32::to_le_bytes(chain));
                previous_trailer = at;
            }
            _ => {}
        }
        at += (container.framed_len(piece.body.len()) + piece.payload.len()) as u64;
    }
}

pub fn put<const N: usize>(body: &mut [u8], at: usize, value: [u8; N]) {
    body[at..at + N].copy_from_slice(&value);
}

/// Changes one stripe's media header and returns the stripe.
pub fn with_media(
    container: Container,
    stripe: &[u8],
    change: impl FnOnce(&mut MediaHeader),
) -> Vec<u8> {
    let mut pieces = take_apart(container, stripe);
    let mut header = MediaHeader::decode(&pieces[0].body).unwrap();
    change(&mut header);
    pieces[0].body = header.encode();
    mend(container, &mut pieces);
    put_together(container, &pieces)
}

/// Changes the last trailer and returns the stripe.
pub fn with_trailer(
    container: Container,
    stripe: &[u8],
    change: impl FnOnce(&mut SetTrailer),
) -> Vec<u8> {
    let mut pieces = take_apart(container, stripe);
    let last = pieces.last_mut().unwrap();
    let mut trailer = SetTrailer::decode(&last.body).unwrap();
    change(&mut trailer);
    last.body = trailer.encode().to_vec();
    put_together(container, &pieces)
}
