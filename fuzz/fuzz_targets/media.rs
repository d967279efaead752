//! Media of up to three stripes, made of records whose checksums are right. The input is a sequence of
//! records: kind and stripe (1 byte), lengths of body (2) and payload (2), then both.
#![no_main]

#[path = "../../crates/core/media/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use longshore_media::record::{BODY_MAX, Container, RecordKind};
use support::everything::read_everything;
use support::forge::{Piece, mend, put_together};

const KINDS: [RecordKind; 9] = [
    RecordKind::Media,
    RecordKind::Set,
    RecordKind::Manifest,
    RecordKind::Block,
    RecordKind::Index,
    RecordKind::Trailer,
    RecordKind::Keys,
    RecordKind::Parity,
    RecordKind::Roots,
];

fn piece<'a>(bytes: &'a [u8]) -> Option<(usize, Piece, &'a [u8])> {
    let (head, rest) = bytes.split_first_chunk::<5>()?;
    let body_len = usize::from(u16::from_le_bytes([head[1], head[2]])).min(BODY_MAX);
    let payload_len = usize::from(u16::from_le_bytes([head[3], head[4]]));
    let (body, rest) = rest.split_at_checked(body_len)?;
    let (payload, rest) = rest.split_at_checked(payload_len)?;
    let piece = Piece {
        kind: KINDS[usize::from(head[0] & 7 | head[0] >> 7 << 3) % KINDS.len()],
        body: body.to_vec(),
        payload: payload.to_vec(),
    };
    Some((usize::from(head[0] >> 3 & 15) % 3, piece, rest))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, mut rest)) = bytes.split_first() else {
        return;
    };
    let container = [Container::Gzip, Container::Zstd, Container::Lz4][usize::from(first % 3)];
    let mut stripes = vec![Vec::new(); 1 + usize::from(first >> 2) % 3];
    while let Some((stripe, piece, after)) = piece(rest) {
        let count = stripes.len();
        stripes[stripe % count].push(piece);
        rest = after;
    }
    let finish = |mut pieces: Vec<Piece>| {
        if first & 0x80 == 0 {
            mend(container, &mut pieces);
        }
        put_together(container, &pieces)
    };
    let stripes: Vec<_> = stripes.into_iter().map(finish).collect();
    read_everything(&support::devices(&stripes));
});
