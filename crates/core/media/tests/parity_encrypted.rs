//! Goal: parity stands for encrypted stripes as for others and needs no key; and whoever can write a parity stripe neither
//! gets wrong bytes restored nor good ones replaced.
//! Method: encrypted sets in memory with rows of 4 KiB are cut down and damaged; parity stripes are forged so that all
//! checksums fit.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{
    Identities, Identity, Keyring, NewKey, Recipients, SignatureState, Signers, SigningKey,
};
use longshore_io::crc32c;
use longshore_kit::Random;
use longshore_kit::random::from_env;
use longshore_media::parity::RowRecord;
use longshore_media::record::{Container, RecordKind};
use longshore_media::{Disposition, EncryptTo, Error, Examined, MediaSet, ParityPlan, copy_set};
use support::forge::{mend, put_together, take_apart};
use support::rows::{ROW, damage, devices_of, forged, moved, repaired, rows, slots, spots, tree};
use support::{
    Content, Input, Shape, Slot, devices, expected, media, read_all, read_all_with, small_tree,
};

fn encryption(identity: &Identity, sign: &Arc<SigningKey>) -> EncryptTo {
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    EncryptTo {
        key: Arc::new(NewKey::wrapped(&recipients).unwrap()),
        parent_root: [0; 32],
        sign: Some(sign.clone()),
        places: Vec::new(),
    }
}

/// Media of `data` and `parity` stripes with one encrypted set, and what opens it, if its signature is there.
fn set(data: usize, parity: u16, inputs: &[Input]) -> (Vec<Vec<u8>>, Arc<Keyring>) {
    let identity = Identity::new_hybrid().unwrap();
    let sign = Arc::new(SigningKey::new().unwrap());
    let shape = Shape {
        parity: ParityPlan {
            count: parity,
            row_bytes: ROW,
            ..ParityPlan::default()
        },
        encryption: Some(encryption(&identity, &sign)),
        ..Shape::new(Disposition::New, Algorithm::Zstd, 3000)
    };
    let all = data + usize::from(parity);
    let identities = Identities::new(vec![identity]);
    let signers = Arc::new(Signers::new(vec![sign.signer()], true).unwrap());
    let keyring = Arc::new(Keyring::new(identities, true).with_signers(signers));
    (media(all, &[(shape, inputs.to_vec())]), keyring)
}

fn all_there(stripes: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    stripes.iter().cloned().map(Some).collect()
}

fn read(stripes: &[Option<Vec<u8>>], keyring: &Arc<Keyring>) -> Result<Vec<Content>, String> {
    read_all_with(&devices_of(&slots(stripes)), keyring)
}

/// Goal: any lost stripes are read with the key and repaired without it, byte for byte.
#[test]
fn an_encrypted_set_is_read_and_repaired_without_any_stripes_that_parity_stands_for() {
    for (data, parity) in [(1, 1), (3, 2)] {
        let inputs = tree(40_000);
        let (all, keyring) = set(data, parity, &inputs);
        assert_eq!(Examined::of(&devices(&all), &moved).unwrap().faults(), []);
        for lost in 0u32..1 << all.len() {
            let gone = |i: usize| lost >> i & 1 == 1;
            let left = (0..all.len()).map(|i| (!gone(i)).then(|| all[i].clone()));
            let left: Vec<Option<Vec<u8>>> = left.collect();
            let what = format!("{data}+{parity}, lost {lost:b}");
            if lost.count_ones() > u32::from(parity) {
                assert!(read(&left, &keyring).is_err(), "{what}");
                continue;
            }
            assert_eq!(
                read(&left, &keyring).unwrap(),
                [expected(&inputs)],
                "{what}"
            );
            let refused = read_all(&devices_of(&slots(&left))).unwrap_err();
            assert!(refused.contains("encrypted"), "{what}: {refused}");
            let again = repaired(&left).unwrap();
            // Where all parity stripes are lost, new ones have other rows.
            let is_new = (data..all.len()).all(gone);
            let compared = if is_new { data } else { all.len() };
            assert!(again[..compared] == all[..compared], "{what}");
            assert_eq!(
                read(&all_there(&again), &keyring).unwrap(),
                [expected(&inputs)]
            );
            let opened = MediaSet::open(&devices(&again)).unwrap();
            let signature = opened.with_keyring(&keyring).signature(1).unwrap();
            assert!(matches!(signature, SignatureState::Trusted(_)), "{what}");
        }
    }
}

/// Goal: the records that only encrypted sets have are protected, too.
#[test]
fn keys_and_roots_and_trailers_lie_in_rows() {
    let (all, _) = set(2, 1, &small_tree());
    let rows = rows(&all[2]);
    for (i, stripe) in all[..2].iter().enumerate() {
        let end: u64 = rows.iter().map(|row| u64::from(row.spans[i].len)).sum();
        assert_eq!(end, stripe.len() as u64);
        let pieces = take_apart(Container::Zstd, stripe);
        let kinds: Vec<RecordKind> = pieces.iter().map(|piece| piece.kind).collect();
        assert_eq!(
            kinds[..3],
            [RecordKind::Media, RecordKind::Set, RecordKind::Keys]
        );
        assert!(kinds.ends_with(&[RecordKind::Roots, RecordKind::Trailer]));
    }
}

/// Goal: damage in many places, in ciphertext and in tags as well, is read around and repaired without a key.
#[test]
fn damage_in_many_places_of_an_encrypted_set_is_read_around_and_repaired() {
    let seed = from_env("LONGSHORE_SEED", 0);
    let rounds = from_env("LONGSHORE_PARITY_ROUNDS", 400);
    for (data, parity) in [(3, 1), (4, 2)] {
        let inputs = tree(40_000);
        let (all, keyring) = set(data, parity, &inputs);
        let spots = spots(&all, data);
        for round in 0..rounds {
            let mut random = Random(seed + round * 13 + data as u64);
            let mut damaged = all.clone();
            let mut bad: BTreeSet<(usize, usize)> = BTreeSet::new();
            for _ in 0..1 + random.below(8) {
                let spot = &spots[random.below(spots.len())];
                // Headers stay: without one, a stripe may be anybody's.
                let (Some(row), true) = (spot.row, spot.range.start > 0) else {
                    continue;
                };
                let others = bad.iter().filter(|(r, s)| *r == row && *s != spot.stripe);
                if others.count() < usize::from(parity) {
                    bad.insert((row, spot.stripe));
                    damage(&mut random, &mut damaged[spot.stripe][spot.range.clone()]);
                }
            }
            let what = format!("{data}+{parity} round {round}: {bad:?}");
            let found = read(&all_there(&damaged), &keyring);
            let is_right = found.as_deref() == Ok(&[expected(&inputs)]);
            assert!(is_right, "{what}: {:?}", found.err());
            let again = repaired(&all_there(&damaged)).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(again == all, "{what}");
        }
    }
}

/// Goal: if more members of one row are bad than there are parity stripes, nothing of an encrypted set is read, and nothing is written in
/// their place.
#[test]
fn more_damage_in_a_row_of_an_encrypted_set_than_parity_can_stand_for_is_refused() {
    let seed = from_env("LONGSHORE_SEED", 0);
    let rounds = from_env("LONGSHORE_PARITY_ROUNDS", 400);
    for (data, parity) in [(3, 1), (4, 2)] {
        let (all, keyring) = set(data, parity, &tree(40_000));
        let spots = spots(&all, data);
        let count = rows(&all[data]).len();
        let mut tried = 0;
        for round in 0..rounds {
            let mut random = Random(seed + round * 17 + 5);
            let row = random.below(count);
            let mut members: Vec<_> = spots.iter().filter(|s| s.row == Some(row)).collect();
            random.shuffle(&mut members);
            // At least one of them is data.
            members.sort_by_key(|spot| spot.stripe >= data && random.below(2_u8) == 0);
            members.truncate(usize::from(parity) + 1);
            if members.len() <= usize::from(parity) || members.iter().all(|s| s.stripe >= data) {
                continue;
            }
            tried += 1;
            let mut damaged = all.clone();
            for spot in &members {
                let bytes = &mut damaged[spot.stripe][spot.range.clone()];
                // A record and its chunk are one member: the chunk is hit.
                let at = match spot.stripe < data {
                    true => random.below(bytes.len()),
                    false => bytes.len() - 1,
                };
                bytes[at] ^= 1 << random.below(8);
            }
            let hit: Vec<usize> = members.iter().map(|s| s.stripe).collect();
            let what = format!("{data}+{parity} round {round}, row {row}: {hit:?}");
            let damaged = all_there(&damaged);
            assert!(read(&damaged, &keyring).is_err(), "{what}");
            assert!(repaired(&damaged).is_err(), "{what}");
        }
        assert!(tried > rounds / 2, "{tried} of {rounds}");
    }
}

/// The stripe with other ciphertext in each block, behind checksums, counts and a trailer that fit.
fn changed(stripe: &[u8]) -> Vec<u8> {
    let mut pieces = take_apart(Container::Zstd, stripe);
    for piece in &mut pieces {
        let middle = piece.payload.len() / 2;
        if let Some(byte) = piece.payload.get_mut(middle) {
            *byte ^= 1;
        }
    }
    mend(Container::Zstd, &mut pieces);
    let changed = put_together(Container::Zstd, &pieces);
    assert!(changed != stripe && changed.len() == stripe.len());
    changed
}

/// Goal: a parity stripe that somebody wrote replaces nothing that is there, changes no restore of what is there, and
/// what a reader rebuilds with it is refused.
#[test]
fn a_forged_parity_stripe_gets_nothing_wrong_restored_and_nothing_good_replaced() {
    let inputs = tree(40_000);
    let (all, keyring) = set(2, 1, &inputs);
    let evil = changed(&all[0]);
    let whole = [
        all[0].clone(),
        all[1].clone(),
        forged(&all[2], (0, &all[0], &evil), |_| true),
    ];
    // It is sound by itself, and gives what its writer wanted.
    let rows = rows(&whole[2]);
    assert!(rows.iter().all(|row| row.spans.len() == 2));
    let lost = [None, Some(all[1].clone()), Some(whole[2].clone())];
    let made = repaired(&lost).unwrap();
    assert!(made[0] == evil, "the forged rows give the changed stripe");
    assert!(made[1] == all[1]);
    let refused = read(&lost, &keyring).unwrap_err();
    assert!(
        refused.contains("tag") || refused.contains("root"),
        "{refused}"
    );
    let refused = read(&all_there(&made), &keyring).unwrap_err();
    assert!(
        refused.contains("tag") || refused.contains("root"),
        "{refused}"
    );
    // Nobody asks it while the stripes are whole.
    assert_eq!(
        read(&all_there(&whole), &keyring).unwrap(),
        [expected(&inputs)]
    );
    let place = slots(&all_there(&whole));
    let refused = Examined::of(&devices_of(&place), &moved).unwrap_err();
    assert!(matches!(refused, Error::Contradiction { .. }), "{refused}");
    let to: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
    let copied = copy_set(&devices_of(&place), &devices_of(&to), &moved).unwrap();
    assert_eq!(copied.complete().unwrap().faults, []);
    assert!(to[0].bytes() == all[0] && to[1].bytes() == all[1]);
    // Without it, the repair makes another.
    place[2].set(Vec::new());
    let examined = Examined::of(&devices_of(&place), &moved).unwrap();
    examined.repair(&devices_of(&place), &moved).unwrap();
    assert!(place[0].bytes() == all[0] && place[1].bytes() == all[1]);
    assert_eq!(
        read_all_with(&devices_of(&place), &keyring).unwrap(),
        [expected(&inputs)]
    );
}

/// Where the payloads of a stripe are that have some bytes.
fn payloads(stripe: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut payloads = Vec::new();
    let mut at = 0;
    for piece in take_apart(Container::Zstd, stripe) {
        let start = at + Container::Zstd.framed_len(piece.body.len());
        at = start + piece.payload.len();
        if piece.payload.len() > 100 {
            payloads.push(start..at);
        }
    }
    assert_eq!(at, stripe.len());
    payloads
}

/// Goal: while a stripe is damaged in one place, a forged parity stripe has a say in that place alone.
#[test]
fn a_forged_parity_stripe_replaces_no_good_byte_of_a_damaged_stripe() {
    let inputs = tree(40_000);
    let (all, keyring) = set(2, 1, &inputs);
    let evil = changed(&all[0]);
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut damaged = all[0].clone();
        let at = 2000 + random.below(damaged.len() - 2000);
        damaged[at] ^= 1;
        // All rows, or the damaged one alone.
        let wants = |row: &RowRecord| seed % 2 == 0 || has(row, at);
        let parity = forged(&all[2], (0, &all[0], &evil), wants);
        let left = [Some(damaged.clone()), Some(all[1].clone()), Some(parity)];
        let place = slots(&left);
        let repaired = Examined::of(&devices_of(&place), &moved)
            .and_then(|examined| examined.repair(&devices_of(&place), &moved));
        let what = format!("seed {seed}, byte {at}: {repaired:?}");
        // The record of a block is good, and its checksum is not that of the forged payload. The other places of a row
        // that is forged elsewhere alone are as they were.
        let is_right = match repaired {
            Ok(_) => place[0].bytes() == all[0],
            Err(_) => place[0].bytes() == damaged,
        };
        assert!(is_right && place[1].bytes() == all[1], "{what}");
        if let Ok(found) = read_all_with(&devices_of(&place), &keyring) {
            assert_eq!(found, [expected(&inputs)], "{what}");
        }
    }
}

/// Whether a row has this byte of the first stripe.
fn has(row: &RowRecord, at: usize) -> bool {
    let span = row.spans[0];
    (span.offset..span.offset + u64::from(span.len)).contains(&(at as u64))
}

/// Goal: a forged payload that has the checksum of the damaged one gets into its place and no other, and is not read.
#[test]
fn forged_bytes_with_a_fitting_checksum_replace_a_damaged_payload_alone_and_are_refused() {
    let inputs = tree(40_000);
    let (all, keyring) = set(2, 1, &inputs);
    let mut repairs = 0;
    for place in payloads(&all[0]) {
        // A multiple of the polynomial, lowest bit first, changes no CRC-32C.
        let at = place.start + 20;
        let mut evil = all[0].clone();
        let pattern = (1 | 0x82f6_3b78_u64 << 1).to_le_bytes();
        for (byte, change) in evil[at..].iter_mut().zip(&pattern[..5]) {
            *byte ^= change;
        }
        assert_eq!(crc32c(&evil[place.clone()]), crc32c(&all[0][place.clone()]));
        let wants = |row: &RowRecord| has(row, at) && has(row, at + 4);
        let parity = forged(&all[2], (0, &all[0], &evil), wants);
        let mut damaged = all[0].clone();
        damaged[at] ^= 1;
        for first in [all[0].clone(), damaged] {
            let is_damaged = first != all[0];
            let left = [Some(first), Some(all[1].clone()), Some(parity.clone())];
            let slots = slots(&left);
            let devices = devices_of(&slots);
            let examined = Examined::of(&devices, &moved).unwrap();
            examined.repair(&devices, &moved).unwrap();
            let now = slots[0].bytes();
            let mut differ = (0..now.len()).filter(|i| now[*i] != all[0][*i]);
            assert!(differ.all(|i| place.contains(&i)), "{place:?}");
            match read_all_with(&devices, &keyring) {
                Ok(found) => assert_eq!(found, [expected(&inputs)], "{place:?}"),
                Err(error) => {
                    assert!(is_damaged && error.contains("tag"), "{place:?}: {error}");
                    repairs += 1;
                }
            }
        }
    }
    assert!(repairs > 5, "{repairs}");
}

/// Goal: a parity stripe tells of the set no more than its data stripes tell.
#[test]
fn a_parity_stripe_has_the_root_of_its_set_and_no_mac() {
    let (all, _) = set(2, 1, &small_tree());
    let trailers: Vec<longshore_media::SetTrailer> = all
        .iter()
        .map(|stripe| {
            let at =
                stripe.len() - Container::Zstd.framed_len(longshore_media::header::TRAILER_LEN);
            let (_, body) = Container::Zstd.parse(&stripe[at..]).unwrap();
            longshore_media::SetTrailer::decode(body).unwrap()
        })
        .collect();
    let (data, parity) = (trailers[0].proof.unwrap(), trailers[2].proof.unwrap());
    assert_eq!(parity.root, data.root);
    assert_eq!(parity.mac, [0; 32]);
    assert!(data.mac != [0; 32]);
    let media = MediaSet::open(&devices(&all)).unwrap();
    assert!(media.header(0).encrypted && media.parity_count() == 1);
}
