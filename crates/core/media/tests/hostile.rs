//! Goal: no media, however they were made, can make a reader loop, crash or exhaust memory.
//! Method: stripes with correct checksums and wrong contents; the allocator counts what reading them costs.

mod support;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_codec::Algorithm;
use longshore_kit::alloc::{self, Counting};
use longshore_media::header::{PLAIN_MAX, SETS_MAX, stored_max};
use longshore_media::parity::{RowRecord, Span};
use longshore_media::record::{Container, RecordKind};
use longshore_media::{
    BackupDevice, Disposition, Error, Examined, MediaHeader, MediaSet, ParityPlan, SetHeader,
    SetTrailer, index,
};
use support::forge::*;
use support::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: the allocator's counters are the process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const MIB: usize = 1 << 20;
const ZSTD: Container = Container::Zstd;

fn stripe() -> Vec<u8> {
    let shape = Shape::new(Disposition::New, Algorithm::Zstd, 50);
    media(1, &[(shape, small_tree())]).remove(0)
}

/// Runs `check`; no single allocation may exceed `largest` bytes, all together `total`.
fn within(largest: usize, total: usize, check: impl FnOnce()) {
    alloc::reset();
    let before = alloc::live();
    check();
    assert!(
        alloc::largest() <= largest,
        "{} bytes at once",
        alloc::largest()
    );
    let peak = alloc::peak() - before;
    assert!(peak <= total, "{peak} bytes together");
}

fn open(stripe: &[u8]) -> MediaSet {
    MediaSet::open(&devices(&[stripe.to_vec()])).unwrap()
}

/// Runs everything that a reader may ask of media, within fixed bounds on memory. The results do not matter.
fn use_it(stripe: &[u8]) {
    let devices = devices(&[stripe.to_vec()]);
    within(2 * MIB, 4 * MIB, || ask_all(&devices));
}

fn ask_all(devices: &[Arc<dyn BackupDevice>]) {
    let Ok(media) = MediaSet::open(devices) else {
        return;
    };
    let _ = media.sets();
    let _ = media.unreadable();
    for position in 0..3 {
        let _ = media.set(position);
        let _ = media.items(position, |_| {});
        let mut payload = vec![0; stored_max(50)];
        if let Ok(mut stream) = media.stream(0, position) {
            while let Ok(Some(_)) = stream.next(&mut payload) {}
        }
    }
}

#[test]
fn chains_of_trailers_that_do_not_lead_back_end() {
    let _alone = alone();
    let good = stripe();
    let len = good.len() as u64;
    for offset in [0, 1, len - 216, len - 217, len, len + 1, u64::MAX, 1 << 62] {
        let changed = [
            with_trailer(ZSTD, &good, |t| t.set_offset = offset),
            with_trailer(ZSTD, &good, |t| t.previous_trailer = offset),
        ];
        for (n, stripe) in changed.iter().enumerate() {
            if stripe == &good {
                continue;
            }
            use_it(stripe);
            let sets = open(stripe).sets().unwrap();
            assert!(sets.iter().all(|s| s.trailer.is_none()), "{n}: {offset}");
        }
    }
    for position in [0, 2, SETS_MAX, SETS_MAX + 1, u32::MAX] {
        let stripe = with_trailer(ZSTD, &good, |t| t.position = position);
        use_it(&stripe);
        assert!(read_all(&devices(&[stripe])).is_err());
    }
}

#[test]
fn chains_of_index_chunks_that_do_not_lead_back_end() {
    let _alone = alone();
    let good = stripe();
    let at = {
        let pieces = take_apart(ZSTD, &good);
        let trailer = SetTrailer::decode(&pieces.last().unwrap().body).unwrap();
        (trailer.index_offset, trailer.index_len)
    };
    assert_eq!(good[at.0 as usize + 8 + 4], RecordKind::Index as u8);
    let hostile = [
        (at.0, 0),
        (at.0, 1),
        (at.0, at.1 - 1),
        (at.0, at.1 + 1),
        (at.0, u32::MAX),
        (at.0 + 1, at.1),
        (0, at.1),
        (0, 1),
        (1, 0),
        (u64::MAX, at.1),
        (u64::MAX, u32::MAX),
        (u64::MAX - u64::from(at.1), at.1),
        (1 << 40, at.1),
    ];
    for (offset, len) in hostile {
        let stripe = with_trailer(ZSTD, &good, |t| {
            (t.index_offset, t.index_len) = (offset, len)
        });
        use_it(&stripe);
        let media = open(&stripe);
        assert!(media.items(1, |_| {}).is_err(), "{offset} {len}");
        assert!(read_set(&media, 1).is_err(), "{offset} {len}");
        // Here the chunk itself has the wrong pointer.
        let mut pieces = take_apart(ZSTD, &good);
        let chunk = pieces
            .iter_mut()
            .find(|p| p.kind == RecordKind::Index)
            .unwrap();
        put(&mut chunk.body, 0, offset.to_le_bytes());
        put(&mut chunk.body, 8, len.to_le_bytes());
        let stripe = put_together(ZSTD, &pieces);
        use_it(&stripe);
        let media = open(&stripe);
        assert!(media.items(1, |_| {}).is_err(), "{offset} {len}");
        assert!(read_set(&media, 1).is_err(), "{offset} {len}");
    }
}

#[test]
fn index_chunks_that_claim_more_than_they_are_cost_nothing() {
    let _alone = alone();
    let good = stripe();
    let place = |p: &&mut Piece| p.kind == RecordKind::Index;
    for (at, value) in [
        (12, u32::MAX),
        (12, index::CHUNK_RAW_MAX as u32 + 1),
        (12, index::CHUNK_RAW_MAX as u32),
        (12, 0),
        // Part 0 of 65,535, and of one more than allowed.
        (16, 0xffff_0000),
        (16, (index::PARTS_MAX as u32 + 1) << 16),
        (16, 0),
        (20, 1),
    ] {
        let mut pieces = take_apart(ZSTD, &good);
        let chunk = pieces.iter_mut().find(place).unwrap();
        put(&mut chunk.body, at, value.to_le_bytes());
        let stripe = put_together(ZSTD, &pieces);
        use_it(&stripe);
        assert!(read_all(&devices(&[stripe])).is_err(), "{at} {value:#x}");
    }
    // A deflate bomb: a gigabyte of zeros in a few records.
    let mut pieces = take_apart(ZSTD, &good);
    let chunk = pieces.iter_mut().find(place).unwrap();
    let zeros = miniz_oxide::deflate::compress_to_vec(&vec![0; 14 << 20], 9);
    assert!(zeros.len() < 15_876);
    chunk.body.truncate(24);
    put(
        &mut chunk.body,
        12,
        (index::CHUNK_RAW_MAX as u32).to_le_bytes(),
    );
    chunk.body.extend_from_slice(&zeros);
    let len = ZSTD.framed_len(chunk.body.len()) as u32;
    let trailer = pieces.last_mut().unwrap();
    put(&mut trailer.body, 104, len.to_le_bytes());
    let stripe = put_together(ZSTD, &pieces);
    use_it(&stripe);
    assert!(read_all(&devices(&[stripe])).is_err());
}

#[test]
fn floods_of_manifest_records_are_refused() {
    let _alone = alone();
    let good = stripe();
    let pieces = take_apart(ZSTD, &good);
    let at = pieces
        .iter()
        .position(|p| p.kind == RecordKind::Block)
        .unwrap();
    let part = |n: u16, len: usize| {
        let mut body = pieces[at].body[..24].to_vec();
        body.extend_from_slice(&n.to_le_bytes());
        body.extend_from_slice(&[0; 2]);
        body.resize(28 + len, 0);
        Piece {
            kind: RecordKind::Manifest,
            body,
            payload: Vec::new(),
        }
    };
    for (count, len) in [(70_000, 0), (70_000, 1), (5, 15_872), (200, 15_872)] {
        let mut flood = pieces.clone();
        let parts = (0..count).map(|n| part(n as u16, len));
        flood.splice(at..at, parts);
        mend(ZSTD, &mut flood);
        let stripe = put_together(ZSTD, &flood);
        use_it(&stripe);
        assert!(read_all(&devices(&[stripe])).is_err(), "{count} of {len}");
    }
}

#[test]
fn blocks_that_claim_more_than_there_is_cost_nothing() {
    let _alone = alone();
    let good = stripe();
    let fields: [(usize, u32); 9] = [
        (24, u32::MAX),
        (24, PLAIN_MAX as u32),
        (24, PLAIN_MAX as u32 + 1),
        (24, 51),
        (24, 0),
        (28, u32::MAX),
        (28, stored_max(PLAIN_MAX) as u32),
        (44, u32::MAX),
        (48, u32::MAX),
    ];
    for (at, value) in fields {
        let mut pieces = take_apart(ZSTD, &good);
        let block = pieces
            .iter_mut()
            .find(|p| p.kind == RecordKind::Block)
            .unwrap();
        put(&mut block.body, at, value.to_le_bytes());
        let stripe = put_together(ZSTD, &pieces);
        use_it(&stripe);
        assert!(read_all(&devices(&[stripe])).is_err(), "{at} {value}");
    }
}

#[test]
fn more_sets_than_allowed_are_not_listed_and_not_added_to() {
    let _alone = alone();
    let good = stripe();
    let mut pieces = take_apart(ZSTD, &good);
    pieces.retain(|p| {
        matches!(
            p.kind,
            RecordKind::Media | RecordKind::Set | RecordKind::Trailer
        )
    });
    let mut header = SetHeader::decode(&pieces[1].body).unwrap();
    let mut trailer = SetTrailer::decode(&pieces[2].body).unwrap();
    header.origin.clear();
    (
        trailer.index_offset,
        trailer.index_len,
        trailer.blocks_total,
    ) = (0, 0, 0);
    trailer.stored_bytes_total = ZSTD.framed_len(header.encode().len()) as u64;
    let mut all = vec![pieces[0].clone()];
    for position in 1..=SETS_MAX + 1 {
        header.position = position;
        trailer.position = position;
        for (kind, body) in [
            (RecordKind::Set, header.encode()),
            (RecordKind::Trailer, trailer.encode().to_vec()),
        ] {
            let payload = Vec::new();
            all.push(Piece {
                kind,
                body,
                payload,
            });
        }
    }
    // The last header and trailer cannot give a position above the limit, so they repeat the limit.
    for piece in all.iter_mut().rev().take(2) {
        put(&mut piece.body, 16, SETS_MAX.to_le_bytes());
    }
    mend(ZSTD, &mut all);
    let too_many = put_together(ZSTD, &all);
    let exactly = put_together(ZSTD, &all[..all.len() - 2]);
    drop((pieces, all));

    for stripe in [&exactly, &too_many] {
        let media = open(stripe);
        within(64 * MIB, 192 * MIB, || {
            assert_eq!(media.sets().unwrap().len(), SETS_MAX as usize);
        });
    }
    let slot = Slot::default();
    slot.set(exactly);
    let devices: [Arc<dyn BackupDevice>; 1] = [Arc::new(slot)];
    let shape = Shape::new(Disposition::Append, Algorithm::Zstd, 50);
    let error = write_set(&devices, &shape, &small_tree()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_stripe_of_set_headers_alone_is_one_incomplete_set() {
    let _alone = alone();
    let pieces = take_apart(ZSTD, &stripe());
    let mut flood = pieces[..2].to_vec();
    for position in 2..20_000u32 {
        let mut header = pieces[1].clone();
        put(&mut header.body, 16, position.to_le_bytes());
        flood.push(header);
    }
    let stripe = put_together(ZSTD, &flood);
    use_it(&stripe);
    let sets = open(&stripe).sets().unwrap();
    assert_eq!(sets.len(), 1);
    assert!(sets[0].trailer.is_none());
}

#[test]
fn an_append_to_hostile_media_is_refused_or_leaves_a_good_set() {
    let _alone = alone();
    let good = stripe();
    let container = ZSTD;
    for at in (container.prefix_len()..good.len()).step_by(3) {
        let slot = Slot::default();
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        slot.set(bytes);
        let devices: [Arc<dyn BackupDevice>; 1] = [Arc::new(slot)];
        let shape = Shape::new(Disposition::Append, Algorithm::Zstd, 50);
        if write_set(&devices, &shape, &small_tree()).is_ok() {
            let media = MediaSet::open(&devices).unwrap();
            let last = media.set(0).unwrap().header.position;
            assert_eq!(
                read_set(&media, last).unwrap(),
                expected(&small_tree()),
                "byte {at}"
            );
        }
    }
}

/// A set appended according to the first stripe could not be read from the second.
#[test]
fn stripes_that_disagree_about_their_format_are_no_media_set() {
    let _alone = alone();
    let shape = Shape::new(Disposition::New, Algorithm::Zstd, 50);
    let mut stripes = media(2, &[(shape, small_tree())]);
    let mut pieces = take_apart(ZSTD, &stripes[1]);
    let mut header = MediaHeader::decode(&pieces[0].body).unwrap();
    header.compressed = !header.compressed;
    pieces[0].body = header.encode();
    stripes[1] = put_together(ZSTD, &pieces);
    let refused = MediaSet::open(&devices(&stripes)).err().unwrap();
    assert!(
        matches!(&refused, Error::Damaged { device, .. } if *device == devices(&stripes)[1].name()),
        "{refused}"
    );
}

#[test]
fn a_set_that_asks_for_larger_buffers_than_any_codec_takes_is_refused() {
    let _alone = alone();
    assert_eq!(PLAIN_MAX, 4 << 20, "docs/format.md says so");
    for (buffer_bytes, fits) in [
        (PLAIN_MAX as u32, true),
        (PLAIN_MAX as u32 + 1, false),
        (32 << 20, false),
    ] {
        let mut pieces = take_apart(ZSTD, &stripe());
        let set = pieces
            .iter_mut()
            .find(|p| p.kind == RecordKind::Set)
            .unwrap();
        put(&mut set.body, 36, buffer_bytes.to_le_bytes());
        assert_eq!(SetHeader::decode(&set.body).is_ok(), fits, "{buffer_bytes}");
        let stripe = put_together(ZSTD, &pieces);
        assert_eq!(
            read_all(&devices(&[stripe])).is_ok(),
            fits,
            "{buffer_bytes}"
        );
    }
}

/// A parity stripe whose index has `count` rows of one place, and a trailer that agrees with the others.
fn with_rows(stripe: &[u8], count: u64) -> Vec<u8> {
    let trailer_len = ZSTD.framed_len(longshore_media::header::TRAILER_LEN);
    let (head, end) = stripe.split_at(stripe.len() - trailer_len);
    let (_, body) = ZSTD.parse(end).unwrap();
    let mut trailer = SetTrailer::decode(body).unwrap();
    let first = head.windows(5).position(|w| w == b"LSHR\x0a").unwrap() - 8;
    let mut out = head.to_vec();
    let mut index = index::Builder::default();
    for row in 0..count {
        let span = |n: u64| Span {
            offset: n * 4096,
            len: 4096,
            crc: 0,
        };
        let record = RowRecord {
            set: trailer.set,
            row,
            at: first as u64,
            row_bytes: 4096,
            chunk_len: 4096,
            spans: vec![span(row), span(row)],
            chunk_crcs: vec![0],
        };
        index.add(index::RowRef {
            sequence: row,
            offset: record.at,
            len: 4200,
            plain_len: 4096,
            digest: None,
            manifest: &record.encode(),
        });
        if index.is_full() {
            let at = out.len() as u64;
            out.extend(index.flush(ZSTD, at));
        }
    }
    (trailer.index_offset, trailer.index_len) = index.last();
    ZSTD.append(RecordKind::Trailer, &trailer.encode(), &mut out);
    out
}

#[test]
fn rows_that_a_parity_stripe_claims_and_cannot_have_cost_little() {
    let _alone = alone();
    let shape = Shape {
        parity: ParityPlan {
            count: 1,
            row_bytes: 4096,
            ..ParityPlan::default()
        },
        ..Shape::new(Disposition::New, Algorithm::Zstd, 50)
    };
    let all = media(3, &[(shape, small_tree())]);
    for count in [2, 5_000, 300_000] {
        let forged = with_rows(&all[2], count);
        assert!(forged.len() < 20 * MIB, "{} bytes", forged.len());
        let lost = devices(&[all[1].clone(), forged.clone()]);
        let whole = devices(&[all[0].clone(), all[1].clone(), forged]);
        within(2 * MIB, 6 * MIB, || {
            // Its own records still tell the one row that it has.
            if let Ok(media) = MediaSet::open(&lost) {
                let _ = media.sets();
            }
            ask_all(&whole);
            let _ = Examined::of(&whole, &|_| Ok(()));
        });
    }
}
