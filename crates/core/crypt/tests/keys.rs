//! Goal: a set's key reaches its recipients and nobody else, each message opens at its own place and unchanged alone, and a
//! machine that repeats its random numbers gives no key away.
//! Method: every byte of what is bound to a message is changed; two writers share one key, as a cloned machine's do; age's
//! own program opens slots, and makes some.
//! Not covered: sets as a whole (`longshore-media`), and how slow a guess at a passphrase is.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use longshore_crypt::{
    Chunk, Error, FIXED_LEN, Identities, Identity, IndexSecret, Keyring, Keys, NewKey, Recipient,
    Recipients, SetKeys, SlotKind,
};
use proptest::prelude::*;

const HEADER: &[u8] = b"the body of a set header";

fn recipients(of: &[&Identity]) -> Recipients {
    Recipients::new(of.iter().map(|i| i.recipient()).collect(), true).unwrap()
}

fn made(of: &[&Identity]) -> (SetKeys, Vec<Vec<u8>>) {
    let key = NewKey::wrapped(&recipients(of)).unwrap();
    SetKeys::create(HEADER, &key, [0; 32]).unwrap()
}

fn only(identity: &Identity) -> Identities {
    Identities::new(vec![identity.clone()])
}

#[test]
fn each_recipient_opens_the_set_and_a_stranger_does_not() {
    let classic = Identity::new_x25519().unwrap();
    let hybrid = Identity::new_hybrid().unwrap();
    let stranger = Identity::new_hybrid().unwrap();
    let (keys, records) = made(&[&classic, &hybrid]);
    for identity in [&classic, &hybrid] {
        let opened = SetKeys::open(HEADER, &records, &only(identity)).unwrap();
        assert_eq!(
            opened.trailer_mac(b"t", &[1; 32]),
            keys.trailer_mac(b"t", &[1; 32])
        );
    }
    let refused = SetKeys::open(HEADER, &records, &only(&stranger)).unwrap_err();
    assert_eq!(
        refused,
        Error::NoIdentity {
            identities: 1,
            slots: 2,
            objects: Box::default(),
            certificate: None,
            command: None,
        }
    );
    let nobody = Identities::new(Vec::new());
    let refused = SetKeys::open(HEADER, &records, &nobody).unwrap_err();
    let said = "it is encrypted for 2 recipients, and no identity was given";
    assert_eq!(refused.to_string(), said);
}

/// Goal: the key is bound to the header, to the parent and to all recipients: one comparison shows any change.
#[test]
fn a_key_is_right_for_its_own_header_and_records_alone() {
    let identity = Identity::new_x25519().unwrap();
    let other = Identity::new_x25519().unwrap();
    let (_, records) = made(&[&identity, &other]);
    let opens = |header: &[u8], records: &[Vec<u8>]| {
        SetKeys::open(header, records, &only(&identity)).is_ok()
    };
    assert!(opens(HEADER, &records));
    for at in 0..HEADER.len() {
        let mut changed = HEADER.to_vec();
        changed[at] ^= 1;
        assert!(!opens(&changed, &records), "header byte {at}");
    }
    for at in 0..records[0].len() {
        let mut changed = records.clone();
        changed[0][at] ^= 1;
        assert!(!opens(HEADER, &changed), "record byte {at}");
    }
    // A recipient less, or one whose slot holds the key of another set.
    let mut keys = Keys::decode(&records).unwrap();
    keys.slots.pop();
    assert!(!opens(HEADER, &keys.encode().unwrap()));
    let (_, foreign) = made(&[&identity]);
    keys.slots = Keys::decode(&foreign).unwrap().slots;
    assert!(!opens(HEADER, &keys.encode().unwrap()));
}

fn fixed(n: u8) -> [u8; FIXED_LEN] {
    let mut fixed = [7; FIXED_LEN];
    fixed[16] = n;
    fixed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_block_opens_at_its_place_and_unchanged_alone(
        manifest in prop::collection::vec(any::<u8>(), 0..300),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        change in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let (keys, _) = made(&[&Identity::new_x25519().unwrap()]);
        let (mut sealed, mut stored) = (manifest.clone(), payload.clone());
        let seal = keys.seal_block(&fixed(1), &mut sealed, &mut stored);
        sealed.extend_from_slice(&seal.manifest_tag);
        if !payload.is_empty() {
            stored.extend_from_slice(&seal.payload_tag);
            prop_assert_ne!(&stored[..payload.len()], &payload[..]);
        }
        let open = |fixed: &[u8; FIXED_LEN], salt: &[u8; 16], manifest: &[u8], payload: &[u8]| {
            let mut m = manifest.to_vec();
            let tag = *m.last_chunk::<16>().unwrap();
            keys.open_manifest(fixed, salt, &mut m)?;
            let mut p = payload.to_vec();
            if !p.is_empty() {
                let len = keys.open_payload(fixed, salt, &tag, &mut p)?;
                p.truncate(len);
            }
            Ok::<_, Error>((m, p))
        };
        let opened = open(&fixed(1), &seal.salt, &sealed, &stored);
        prop_assert_eq!(opened, Ok((manifest.clone(), payload.clone())));
        // One bit of anything.
        let mut all = [&fixed(1)[..], &seal.salt, &sealed, &stored].concat();
        let at = change.index(all.len());
        all[at] ^= 1 << bit;
        let (f, rest) = all.split_first_chunk::<FIXED_LEN>().unwrap();
        let (s, rest) = rest.split_first_chunk::<16>().unwrap();
        let (m, p) = rest.split_at(sealed.len());
        prop_assert!(open(f, s, m, p).is_err(), "byte {}", at);
        // The payload of another block with the same manifest.
        let mut twin = (manifest.clone(), vec![1; payload.len().max(1)]);
        let other = keys.seal_block(&fixed(1), &mut twin.0, &mut twin.1);
        if twin.1 != stored {
            prop_assert_ne!(other.salt, seal.salt);
        }
    }

    /// Goal: two machines with one key, as after a clone: equal messages are equal bytes, others have other keys.
    #[test]
    fn writers_with_one_key_never_use_it_for_two_messages(
        one in prop::collection::vec(any::<u8>(), 1..200),
        at in any::<prop::sample::Index>(),
        in_manifest in any::<bool>(),
    ) {
        let key = NewKey::wrapped(&recipients(&[&Identity::new_x25519().unwrap()])).unwrap();
        let (a, _) = SetKeys::create(HEADER, &key, [0; 32]).unwrap();
        let (b, _) = SetKeys::create(HEADER, &key, [0; 32]).unwrap();
        let mut two = one.clone();
        two[at.index(one.len())] ^= 0x10;
        let seal = |keys: &SetKeys, changing: &[u8]| {
            let (mut m, mut p) = match in_manifest {
                true => (changing.to_vec(), one.clone()),
                false => (one.clone(), changing.to_vec()),
            };
            let seal = keys.seal_block(&fixed(3), &mut m, &mut p);
            (seal, m, p)
        };
        prop_assert_eq!(seal(&a, &one), seal(&b, &one));
        prop_assert_ne!(seal(&a, &one).0.salt, seal(&b, &two).0.salt);
        let at = chunk(0);
        prop_assert_eq!(a.seal_chunk(&at, &one), b.seal_chunk(&at, &one));
        prop_assert_ne!(&a.seal_chunk(&at, &one)[..16], &b.seal_chunk(&at, &two)[..16]);
    }
}

fn chunk(number: u32) -> Chunk {
    Chunk {
        set: [1; 16],
        family: 2,
        number,
        offset: 4,
        previous: (5, 6),
        raw_len: 7,
    }
}

#[test]
fn a_chunk_of_the_index_opens_at_its_place_alone() {
    let (keys, _) = made(&[&Identity::new_x25519().unwrap()]);
    let sealed = keys.seal_chunk(&chunk(3), b"packed rows");
    assert_eq!(
        keys.index().open_chunk(&chunk(3), &sealed).unwrap(),
        b"packed rows"
    );
    let here = chunk(3);
    for other in [
        chunk(4),
        Chunk {
            set: [2; 16],
            ..here
        },
        Chunk { family: 3, ..here },
        Chunk { offset: 5, ..here },
        Chunk {
            previous: (5, 7),
            ..here
        },
        Chunk {
            previous: (0, 6),
            ..here
        },
        Chunk { raw_len: 8, ..here },
    ] {
        assert!(
            keys.index().open_chunk(&other, &sealed).is_err(),
            "{other:?}"
        );
    }
    for len in 0..sealed.len() {
        assert!(
            keys.index().open_chunk(&here, &sealed[..len]).is_err(),
            "{len}"
        );
    }
}

#[test]
fn what_is_kept_of_a_set_opens_its_index_alone_and_knows_its_root() {
    let (keys, records) = made(&[&Identity::new_x25519().unwrap()]);
    let sealed = keys.seal_chunk(&chunk(3), b"packed rows");
    let root = [5; 32];
    let text = keys.index_secret(root).text();
    let kept = IndexSecret::of_text(root, &text).unwrap();
    let index = kept.keys();
    assert_eq!(
        index.open_chunk(&chunk(3), &sealed).unwrap(),
        b"packed rows"
    );
    assert_eq!(index.sums_mask(), keys.index().sums_mask());
    assert!(index.check_trailer(b"trailer", &root, &[0; 32]).is_ok());
    let mac = keys.trailer_mac(b"trailer", &[6; 32]);
    assert!(index.check_trailer(b"trailer", &[6; 32], &mac).is_err());
    let whole = keys.index();
    assert!(whole.check_trailer(b"trailer", &[6; 32], &mac).is_ok());
    assert!(whole.check_trailer(b"trailed", &[6; 32], &mac).is_err());
    // A keyring that knows it opens the index, and still not the set.
    let keyring = Keyring::default();
    assert!(keyring.open_index(HEADER, &records).is_err());
    keyring.know_index(*HEADER.first_chunk().unwrap(), &kept);
    let known = keyring.open_index(HEADER, &records).unwrap();
    assert_eq!(
        known.open_chunk(&chunk(3), &sealed).unwrap(),
        b"packed rows"
    );
    assert!(keyring.open(HEADER, &records).is_err());
    let other = [b'x'; 40];
    assert!(keyring.open_index(&other, &records).is_err());
    for wrong in [&text[1..], &format!("{}g", &text[1..]), ""] {
        assert!(IndexSecret::of_text(root, wrong).is_none());
    }
    assert_eq!(format!("{kept:?} {index:?}"), "IndexSecret IndexKeys");
}

#[test]
fn recipients_are_read_and_what_is_none_is_refused_without_repeating_it() {
    for identity in [
        Identity::new_x25519().unwrap(),
        Identity::new_hybrid().unwrap(),
    ] {
        let name = identity.recipient().name();
        assert_eq!(name.parse::<Recipient>().unwrap().name(), name);
        let line = identity.line().unwrap();
        let again = Identities::parse(&format!("# a remark\n\n{}\n", &*line)).unwrap();
        assert_eq!(again.list()[0].recipient().name(), name);
        let secret = line.parse::<Recipient>().unwrap_err().to_string();
        assert!(
            secret.contains("secret") && !secret.contains(&line[..40]),
            "{secret}"
        );
        let shown = format!("{identity:?} {:?}", Identities::new(vec![identity.clone()]));
        assert!(!shown.contains(&line[20..40]), "{shown}");
        let mut broken = line.to_string();
        broken.pop();
        let refused = Identities::parse(&broken).unwrap_err();
        assert!(
            matches!(refused, Error::Identity { line: 1, .. }),
            "{refused}"
        );
        assert!(!refused.to_string().contains(&line[20..40]), "{refused}");
    }
    // A key of small order, in age's own form.
    let zero = "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";
    for text in ["", "age1", "ssh-ed25519 AAAA", zero, "äöü", "age1pq1qqqq"] {
        assert!(text.parse::<Recipient>().is_err(), "{text}");
    }
    let both = [
        Identity::new_x25519().unwrap().recipient(),
        Identity::new_hybrid().unwrap().recipient(),
    ];
    let mixed = Recipients::new(both.to_vec(), false).unwrap_err();
    assert_eq!(mixed, Error::Mixed);
    assert!(Recipients::new(Vec::new(), true).is_err());
}

#[test]
fn a_keyring_opens_a_set_once_and_has_the_keys_of_what_it_wrote() {
    let identity = Identity::new_x25519().unwrap();
    let (keys, records) = made(&[&identity]);
    let keyring = Keyring::new(only(&identity), false);
    let opened = keyring.open(HEADER, &records).unwrap();
    assert!(Arc::ptr_eq(
        &opened,
        &keyring.open(HEADER, &records).unwrap()
    ));
    let writer = Keyring::default();
    assert!(writer.open(HEADER, &records).is_err());
    writer.remember(&Arc::new(keys));
    assert!(writer.open(HEADER, &records).is_ok());
    assert!(writer.open(b"another header", &records).is_err());
    // Another commitment on another stripe, although the keys are at hand.
    let mut changed = records.clone();
    changed[0][40] ^= 1;
    assert!(writer.open(HEADER, &changed).is_err());
}

/// The program `age` 1.3 or later, which knows both kinds of recipients. Fails under LONGSHORE_REQUIRE_TOOLS if it is missing.
fn age(arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    // Where `scripts/setup.sh` puts it.
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.work/tools/age");
    let program = if std::path::Path::new(own).exists() {
        own
    } else {
        "age"
    };
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("age: {e}");
            return None;
        }
        Err(e) => panic!("age: {e}"),
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "age {arguments:?}: {why}");
    Some(output.stdout)
}

/// Goal: `age -d` opens a slot of ours in thirty years, and our reader opens what age wrote.
#[test]
fn slots_are_files_of_age_and_files_of_age_are_slots() {
    let dir = std::env::temp_dir().join(format!("longshore-age-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for identity in [
        Identity::new_x25519().unwrap(),
        Identity::new_hybrid().unwrap(),
    ] {
        let file = dir.join("identity");
        std::fs::write(&file, identity.line().unwrap().as_bytes()).unwrap();
        let file = file.to_str().unwrap();
        let (_, records) = made(&[&identity]);
        let mut keys = Keys::decode(&records).unwrap();
        assert_eq!(keys.slots[0].kind, SlotKind::Age as u16);
        let Some(secret) = age(&["-d", "-i", file], &keys.slots[0].bytes) else {
            return;
        };
        assert_eq!(secret.len(), 32);
        // The same secret, wrapped by age. The commitment is over the slots, so the set does not open with it, but only
        // because of that: the keys that were read are compared below.
        let theirs = age(&["-r", &identity.recipient().name()], &secret).unwrap();
        keys.slots[0].bytes = theirs;
        let changed = keys.encode().unwrap();
        assert!(SetKeys::open(HEADER, &changed, &only(&identity)).is_err());
        let opened = identity.open(&keys.slots[0]).unwrap();
        assert_eq!(opened[..], secret[..]);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
