//! Goal: the fuzz target of media and the tests of its seeds read the same inputs.
//! Method: an input is a first byte, and then records: kind and stripe (1 byte), lengths of body (2) and payload (2), then both. The
//! first byte says the container, how many stripes there are, and, in its highest bit, that checksums are left as they are.
//! Not covered: this file has no tests; `tests/seeds.rs` has them.

use longshore_media::record::{BODY_MAX, Container, RecordKind};

use super::forge::{Piece, mend, put_together};

/// The kinds by the number that an input has for them.
pub const KINDS: [RecordKind; 9] = [
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
const CONTAINERS: [Container; 3] = [Container::Gzip, Container::Zstd, Container::Lz4];
const STRIPES_MAX: usize = 3;
const AS_THEY_ARE: u8 = 0x80;

/// The records of each stripe, and the container; `None` without a first byte.
pub fn pieces_of(input: &[u8]) -> Option<(Container, Vec<Vec<Piece>>)> {
    let (first, mut rest) = input.split_first()?;
    let mut stripes = vec![Vec::new(); count(*first)];
    while let Some((stripe, piece, after)) = piece(rest) {
        let count = stripes.len();
        stripes[stripe % count].push(piece);
        rest = after;
    }
    Some((container(*first), stripes))
}

/// The stripes of an input.
pub fn stripes_of(input: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (container, stripes) = pieces_of(input)?;
    let finish = |mut pieces: Vec<Piece>| {
        if input[0] & AS_THEY_ARE == 0 {
            mend(container, &mut pieces);
        }
        put_together(container, &pieces)
    };
    Some(stripes.into_iter().map(finish).collect())
}

/// The input of these stripes, which are put together as they are.
///
/// # Panics
/// If an input cannot have them.
pub fn input_of(of: Container, stripes: &[Vec<Piece>]) -> Vec<u8> {
    let is_it = |first: &u8| container(*first) == of && count(*first) == stripes.len();
    let mut input = vec![(AS_THEY_ARE..=u8::MAX).find(is_it).unwrap()];
    for (stripe, pieces) in stripes.iter().enumerate() {
        for piece in pieces {
            let kind = KINDS.iter().position(|kind| *kind == piece.kind).unwrap();
            let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_le_bytes();
            input.push(((kind & 7) | (stripe << 3) | ((kind >> 3) << 7)) as u8);
            input.extend(len(&piece.body));
            input.extend(len(&piece.payload));
            input.extend(&piece.body);
            input.extend(&piece.payload);
        }
    }
    input
}

fn container(first: u8) -> Container {
    CONTAINERS[usize::from(first % 3)]
}

fn count(first: u8) -> usize {
    1 + usize::from(first >> 2) % STRIPES_MAX
}

fn piece(bytes: &[u8]) -> Option<(usize, Piece, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<5>()?;
    let body_len = usize::from(u16::from_le_bytes([head[1], head[2]])).min(BODY_MAX);
    let payload_len = usize::from(u16::from_le_bytes([head[3], head[4]]));
    let (body, rest) = rest.split_at_checked(body_len)?;
    let (payload, rest) = rest.split_at_checked(payload_len)?;
    let piece = Piece {
        kind: KINDS[usize::from((head[0] & 7) | ((head[0] >> 7) << 3)) % KINDS.len()],
        body: body.to_vec(),
        payload: payload.to_vec(),
    };
    Some((usize::from((head[0] >> 3) & 15) % STRIPES_MAX, piece, rest))
}
