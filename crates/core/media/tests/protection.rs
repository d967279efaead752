//! Goal: no byte of a stripe is unprotected.
//! Method: small but complete media (three stripes, two sets, every algorithm) are read completely after
//! each single bit was flipped, and after each stripe was cut at each length. Every one must be refused.

mod support;

use std::sync::Arc;
use std::thread;

use longshore_codec::Algorithm;
use longshore_media::{BackupDevice, Disposition, Error};
use support::*;

/// Two sets over three stripes, including a block with names only and a manifest with every kind of item.
fn small_media(first: Algorithm, second: Algorithm) -> Vec<Vec<u8>> {
    let appended = vec![file("b", &text_like(100, 3)), file("c", &[0; 64])];
    let sets = [
        (Shape::new(Disposition::New, first, 90), small_tree()),
        (Shape::new(Disposition::Append, second, 90), appended),
    ];
    media(3, &sets)
}

const MEDIA: [(Algorithm, Algorithm); 4] = [
    (Algorithm::QatDeflate, Algorithm::QatDeflate),
    (Algorithm::Zstd, Algorithm::Zstd),
    (Algorithm::Lz4, Algorithm::MsXpress),
    (Algorithm::None, Algorithm::None),
];

/// The media with the bytes of one stripe replaced.
fn with(
    stripes: &[Arc<dyn BackupDevice>],
    at: usize,
    bytes: Vec<u8>,
) -> Vec<Arc<dyn BackupDevice>> {
    let mut devices = stripes.to_vec();
    devices[at] = Stripe::device("changed", bytes);
    devices
}

#[test]
fn every_flipped_bit_is_noticed() {
    thread::scope(|scope| {
        for (first, second) in MEDIA {
            scope.spawn(move || {
                let stripes = small_media(first, second);
                let whole = devices(&stripes);
                assert_eq!(read_all(&whole).unwrap()[0], expected(&small_tree()));
                for (n, stripe) in stripes.iter().enumerate() {
                    for bit in 0..8 * stripe.len() {
                        let mut bytes = stripe.clone();
                        bytes[bit / 8] ^= 1 << (bit % 8);
                        let found = read_all(&with(&whole, n, bytes));
                        assert!(
                            found.is_err(),
                            "{first}: stripe {n}, byte {}, bit {}",
                            bit / 8,
                            bit % 8
                        );
                    }
                }
            });
        }
    });
}

#[test]
fn every_truncation_is_noticed() {
    for (first, second) in MEDIA {
        let stripes = small_media(first, second);
        let whole = devices(&stripes);
        for (n, stripe) in stripes.iter().enumerate() {
            for len in 0..stripe.len() {
                let found = read_all(&with(&whole, n, stripe[..len].to_vec()));
                assert!(found.is_err(), "{first}: stripe {n} cut to {len} bytes");
            }
        }
    }
}

#[test]
fn bytes_after_the_last_trailer_are_noticed() {
    for (first, second) in MEDIA {
        let stripes = small_media(first, second);
        let whole = devices(&stripes);
        for (n, stripe) in stripes.iter().enumerate() {
            for extra in [
                &[0][..],
                &[0; 512],
                b"LSHR",
                &stripes[n][..40],
                &[0x5a, 0x2a, 0x4d, 0x18],
            ] {
                let bytes = [stripe, extra].concat();
                assert!(
                    read_all(&with(&whole, n, bytes)).is_err(),
                    "{first}: {extra:?}"
                );
            }
        }
    }
}

#[test]
fn removed_repeated_and_exchanged_runs_are_noticed() {
    // All records are complete and well-formed here: only order and number reveal the change.
    for (first, second) in MEDIA {
        let stripes = small_media(first, second);
        let whole = devices(&stripes);
        for (n, stripe) in stripes.iter().enumerate() {
            let cuts = record_offsets(stripe, &whole[n]);
            for window in cuts.windows(3) {
                let (a, b, c) = (window[0], window[1], window[2]);
                let removed = [&stripe[..a], &stripe[b..]].concat();
                let repeated = [&stripe[..b], &stripe[a..]].concat();
                let exchanged = [&stripe[..a], &stripe[b..c], &stripe[a..b], &stripe[c..]].concat();
                for bytes in [removed, repeated, exchanged] {
                    assert!(
                        read_all(&with(&whole, n, bytes)).is_err(),
                        "{first}: stripe {n} at {a}"
                    );
                }
            }
        }
    }
}

/// Offsets of blocks (header and payload as one), index chunks, headers and trailers, and of the end.
fn record_offsets(stripe: &[u8], device: &Arc<dyn BackupDevice>) -> Vec<usize> {
    use longshore_media::record::RecordKind;
    use longshore_media::{BlockHeader, MediaSet};
    let container = MediaSet::label(&**device).unwrap().container;
    let mut at = container.preamble().len();
    let mut cuts = vec![at];
    while at < stripe.len() {
        let len = container.framed_len_at(&stripe[at..]).unwrap();
        let (kind, body) = container.parse(&stripe[at..at + len]).unwrap();
        at += len;
        if kind == RecordKind::Block {
            at += BlockHeader::decode(body).unwrap().0.stored_len as usize;
        }
        if kind != RecordKind::Manifest {
            cuts.push(at);
        }
    }
    cuts
}

#[test]
fn a_stripe_of_another_backup_of_the_same_files_is_noticed() {
    let mine = small_media(Algorithm::Zstd, Algorithm::Zstd);
    let other = small_media(Algorithm::Zstd, Algorithm::Zstd);
    for (n, foreign) in other.iter().enumerate() {
        let error = read_all(&with(&devices(&mine), n, foreign.clone())).unwrap_err();
        assert!(error.contains("belongs to media set"), "{error}");
    }
}

#[test]
fn stripes_that_were_appended_to_apart_do_not_make_a_set() {
    // Two copies of the same media, each appended to, then mixed: every record is valid.
    let slots: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
    let original: Vec<Arc<dyn BackupDevice>> =
        slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
    let tree = small_tree();
    write_set(
        &original,
        &Shape::new(Disposition::New, Algorithm::Zstd, 90),
        &tree,
    )
    .unwrap();
    let before: Vec<Vec<u8>> = slots.iter().map(Slot::bytes).collect();
    let shape = Shape::new(Disposition::Append, Algorithm::Zstd, 90);
    write_set(&original, &shape, &tree).unwrap();
    let one: Vec<Vec<u8>> = slots.iter().map(Slot::bytes).collect();
    // Back to the first state, then another second set.
    for (slot, bytes) in slots.iter().zip(&before) {
        slot.set(bytes.clone());
    }
    let mut shape = Shape::new(Disposition::Append, Algorithm::Zstd, 90);
    shape.expires_us = Some(i64::MAX);
    write_set(&original, &shape, &tree).unwrap();
    let two: Vec<Vec<u8>> = slots.iter().map(Slot::bytes).collect();
    let write = |devices: &[Arc<dyn BackupDevice>], disposition| {
        let shape = Shape::new(disposition, Algorithm::Zstd, 90);
        write_set(devices, &shape, &tree).unwrap_err()
    };

    for n in 0..3 {
        assert!(read_all(&with(&devices(&one), n, two[n].clone())).is_err());
        // An old copy of one stripe: its first set is present, its second is missing.
        let old = with(&devices(&one), n, before[n].clone());
        assert!(read_all(&old).unwrap_err().contains("incomplete"));
        let media = longshore_media::MediaSet::open(&old).unwrap();
        assert_eq!(read_set(&media, 1).unwrap(), expected(&tree));
        assert_eq!(media.sets().unwrap().len(), 2);
        // An append would cut off what is whole with the other stripes.
        let mixed = with(&devices(&one), n, two[n].clone());
        let error = write(&mixed, Disposition::Append);
        assert!(matches!(error, Error::WrittenApart { .. }), "{n}: {error}");
        let error = write(&old, Disposition::Append);
        assert!(matches!(error, Error::Incomplete { .. }), "{n}: {error}");
        // Any of the two may have to be kept.
        let error = write(&mixed, Disposition::Init { skip: false });
        assert!(matches!(error, Error::NotExpired { .. }), "{n}: {error}");
    }
}
