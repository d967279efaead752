//! Goal: the page of the format and the code say the same of encrypted sets.
//! Method: as in `format_page.rs`.
//! Not covered: keys and ciphers, which the independent reader computes from the page.

use longshore_crypt::{
    Identities, Identity, Keyring, NewKey, Passphrase, Recipients, SetKeys, Signature, Signer,
    StoredSignature,
};
use longshore_media::header::ENCRYPTED_EXTRA;
use longshore_media::{block, manifest, record};
use uuid::Uuid;

#[path = "support/page.rs"]
mod page;
use page::{check_fields, says};

#[test]
fn records_of_encrypted_sets_are_laid_out_as_in_their_tables() {
    let keys = longshore_crypt::Keys {
        parent_root: [4; 32],
        commitment: [5; 32],
        slots: vec![longshore_crypt::Slot {
            kind: 1,
            bytes: vec![7; 3],
        }],
    };
    let bodies = keys.encode().unwrap();
    let (fixed, open) = check_fields(
        "keys record",
        &bodies[0],
        &[
            ("scheme", &1u16.to_le_bytes()),
            ("digest", &[1]),
            ("part", &[0; 2]),
            ("count", &1u16.to_le_bytes()),
            ("parent_root", &[4; 32]),
            ("commitment", &[5; 32]),
        ],
    );
    assert_eq!((fixed, open), (72, vec!["slots"]));
    let slot = &bodies[0][fixed..];
    let (fixed, open) = check_fields(
        "slot",
        slot,
        &[("kind", &1u16.to_le_bytes()), ("len", &3u16.to_le_bytes())],
    );
    assert_eq!(
        (fixed, open, &slot[fixed..]),
        (4, vec!["bytes"], &[7; 3][..])
    );
    let roots = longshore_media::encrypted::Roots {
        set: Uuid::from_bytes([1; 16]),
        families: vec![[8; 32], [9; 32]],
        claim: StoredSignature::None,
    };
    let body = roots.encode();
    let (fixed, open) = check_fields(
        "roots record",
        &body,
        &[
            ("set", &[1; 16]),
            ("families", &2u16.to_le_bytes()),
            ("signature", &[0]),
        ],
    );
    assert_eq!((fixed, open), (60, vec!["roots"]));
    assert_eq!(body[fixed..], [[8; 32], [9; 32]].concat());
    let signature = Signature {
        signer: Signer::from_bytes([2; 32]),
        bytes: [3; 64],
    };
    let signed = longshore_media::encrypted::Roots {
        claim: StoredSignature::Ed25519(signature),
        ..roots
    };
    let body = signed.encode();
    let (fixed, open) = check_fields(
        "signed roots record",
        &body,
        &[
            ("set", &[1; 16]),
            ("families", &2u16.to_le_bytes()),
            ("signature", &[1]),
            ("signer", &[2; 32]),
        ],
    );
    assert_eq!((fixed, open), (60, vec!["roots", "bytes"]));
    assert_eq!(body[fixed + 64..], [3; 64]);
    assert_eq!(longshore_media::encrypted::Roots::decode(&body), Ok(signed));
    let mut check = Vec::new();
    manifest::put_check(6, &mut check);
    let (fixed, open) = check_fields(
        "check",
        &check,
        &[("tag", &[4]), ("plain_crc", &6u32.to_le_bytes())],
    );
    assert_eq!((fixed, open.len()), (manifest::CHECK_LEN, 0));
    assert_eq!(block::MANIFEST_PLAIN_MAX + manifest::CHECK_LEN, 65_520);
    assert!(says("A manifest has at most 65,515 bytes before."));
    assert_eq!(ENCRYPTED_EXTRA, 24);
    assert!(says(
        "`stored_len` may be 24 bytes longer than in other sets"
    ));
    assert_eq!(
        record::ENCRYPTED_MAGIC.to_le_bytes(),
        [0x5c, 0x2a, 0x4d, 0x18]
    );
}

/// Goal: a guess at a passphrase costs what the page says: by the slot that is written, and by the limits of a reader.
#[test]
fn a_guess_at_a_passphrase_costs_what_the_page_says() {
    let passphrase = Passphrase::new(b"six words or some more".to_vec().into());
    let secret = [7; 32].into();
    let slot = passphrase.wrap(&secret).unwrap();
    assert_eq!(slot.len(), 108);
    let number = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().unwrap());
    assert_eq!([number(0), number(4), number(8)], [262_144, 3, 4]);
    assert!(says(
        "Longshore writes 262,144 KiB, 3 passes and 4 lanes. A reader refuses more than 524,288 KiB, 6 passes or 16 lanes"
    ));
    // With this cost the key is the one of the page's function, and one pass less is another slot.
    assert_eq!(passphrase.open(&slot), Some(secret));
    let mut cheaper = slot.clone();
    cheaper[4..8].copy_from_slice(&2_u32.to_le_bytes());
    assert_eq!(passphrase.open(&cheaper), None);
}

#[test]
fn key_objects_are_the_specified_ones() {
    let identity = Identity::new_x25519().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let key = NewKey::wrapped(&recipients).unwrap();
    let header = [6; 40];
    let (_, records) = SetKeys::create(&header, &key, [4; 32]).unwrap();
    let keyring = Keyring::new(Identities::new(vec![identity]), false);
    let opened = keyring.open_again(&header, &records).unwrap();
    let object = opened.object(&recipients, 7).unwrap();
    let bytes = object.encode().unwrap();
    let (fixed, open) = check_fields(
        "key object",
        &bytes,
        &[
            ("magic", b"LSKEYS"),
            ("version", &1u16.to_le_bytes()),
            ("set", &[6; 16]),
            ("commitment", &object.commitment),
            ("made_us", &7i64.to_le_bytes()),
            ("count", &1u16.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (66, vec!["marks", "slots", "mac"]));
    let slot = &object.slots[0];
    assert_eq!(bytes.len(), 66 + 16 + 4 + slot.bytes.len() + 32);
    assert_eq!(bytes[86..bytes.len() - 32], slot.bytes);
    let name = object.name().unwrap().to_string();
    assert!(name.starts_with("keys-06060606060606060606060606060606-"));
    assert!(name.ends_with(".lsk") && name.len() == 5 + 32 + 1 + 16 + 4);
    assert!(says("It has at most 65,536 bytes."));
    assert!(says(
        "In each place it looks at 64 of those whose bytes are those of their ID, of the first 256 names, and at 512 in all. It says so if there are more."
    ));
    assert!(says(
        "of all objects together the first eight slots of a passphrase, and the first eight of programs' keys that it has"
    ));
}
