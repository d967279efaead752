//! Goal: a key object opens its set for further recipients, and no object that somebody without the set key made or changed does.
//! Method: every byte of an object is changed; objects of other sets, and some made of slots of the media, are put next to a
//! set; programs and passphrases count how often they are asked.
//! Not covered: where objects are (`longshore-media`), and the program's command (`cli/rewrap.rs` of the program).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_crypt::{
    CommandKey, Error, FOUND_MAX, FoundObjects, Identities, Identity, KeyObject, Keyring, Keys,
    NewKey, OpenedSet, Passphrase, Recipient, Recipients, SetKeys, Slot, first_object,
};

const HEADER: &[u8] = b"0123456789abcdef, and more of a set header";

struct Set {
    keys: SetKeys,
    records: Vec<Vec<u8>>,
}

fn recipients(of: &[&Identity]) -> Recipients {
    Recipients::new(of.iter().map(|i| i.recipient()).collect(), true).unwrap()
}

fn set(header: &[u8], of: &[&Identity]) -> Set {
    let key = NewKey::wrapped(&recipients(of)).unwrap();
    let (keys, records) = SetKeys::create(header, &key, [0; 32]).unwrap();
    Set { keys, records }
}

fn ring(identity: &Identity) -> Keyring {
    Keyring::new(Identities::new(vec![identity.clone()]), false)
}

fn next_to(keyring: Keyring, objects: Vec<Vec<u8>>) -> Keyring {
    keyring.with_objects(Arc::new(move |_: &[u8; 16]| FoundObjects {
        objects: objects.clone(),
        ..FoundObjects::default()
    }))
}

fn opened(set: &Set, identity: &Identity) -> OpenedSet {
    ring(identity).open_again(HEADER, &set.records).unwrap()
}

/// The same object with other slots, as somebody without the set key can make it.
fn with_slots(object: &KeyObject, slots: Vec<Slot>) -> KeyObject {
    let mut other = object.clone();
    other.slots = slots;
    other
}

#[test]
fn a_further_recipient_opens_the_set_by_its_object_and_by_no_other() {
    let [old, new, stranger] = [(); 3].map(|()| Identity::new_x25519().unwrap());
    let ours = set(HEADER, &[&old]);
    let object = opened(&ours, &old).object(&recipients(&[&new]), 5).unwrap();
    let bytes = object.encode().unwrap();
    let keys = |identity: &Identity, objects: Vec<Vec<u8>>| {
        next_to(ring(identity), objects).open(HEADER, &ours.records)
    };
    let read = keys(&new, vec![bytes.clone()]).unwrap();
    assert_eq!(
        read.trailer_mac(b"t", &[1; 32]),
        ours.keys.trailer_mac(b"t", &[1; 32])
    );
    assert!(keys(&old, Vec::new()).is_ok(), "the media are as they were");
    assert!(keys(&new, Vec::new()).is_err());
    let refused = keys(&stranger, vec![bytes.clone()]).unwrap_err();
    let told = "it is encrypted for one recipient, and not for the identity that was given; the key object next to it is for others, too";
    assert_eq!(refused.to_string(), told);
    // An object of a set that was opened by an object: a rotation goes on from there.
    let again = next_to(ring(&new), vec![bytes.clone()]);
    let again = again.open_again(HEADER, &ours.records).unwrap();
    let third = again.object(&recipients(&[&stranger]), 6).unwrap();
    assert!(keys(&stranger, vec![bytes, third.encode().unwrap()]).is_ok());
    // Of another set, also of one with this very header, as anybody can make it.
    for other in [&b"another set, and more of a set header"[..], HEADER] {
        let theirs = set(other, &[&old]);
        let theirs = ring(&old).open_again(other, &theirs.records).unwrap();
        let object = theirs.object(&recipients(&[&new]), 5).unwrap();
        assert!(keys(&new, vec![object.encode().unwrap()]).is_err());
    }
}

/// Goal: a set with detached keys is opened by its first object and by nothing else, and what its recipients withstand is remembered
/// where no slot is on the media.
#[test]
fn a_set_with_detached_keys_is_opened_by_its_object_alone() {
    let [own, stranger] = [(); 2].map(|()| Identity::new_x25519().unwrap());
    let hybrid = Identity::new_hybrid().unwrap();
    let made = |of: &[&Identity]| {
        let key = NewKey::detached(&recipients(of)).unwrap();
        assert!(key.is_detached());
        let (keys, records) = SetKeys::create(HEADER, &key, [0; 32]).unwrap();
        let object = first_object(HEADER, &records, (&key, 5)).unwrap().unwrap();
        (Set { keys, records }, object)
    };
    let (ours, object) = made(&[&own]);
    assert_eq!(ours.records.len(), 1);
    assert!(Keys::decode(&ours.records).unwrap().slots.is_empty());
    let bytes = object.encode().unwrap();
    let keys = |identity: &Identity, objects: Vec<Vec<u8>>| {
        next_to(ring(identity), objects).open(HEADER, &ours.records)
    };
    let read = keys(&own, vec![bytes.clone()]).unwrap();
    assert_eq!(
        read.trailer_mac(b"t", &[1; 32]),
        ours.keys.trailer_mac(b"t", &[1; 32])
    );
    let refused = keys(&own, Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("its keys are detached"), "{refused}");
    assert!(refused.contains("were looked for in nowhere"), "{refused}");
    assert!(keys(&stranger, vec![bytes.clone()]).is_err());
    // The object of another set of this very header, and one with a byte changed.
    let (_, theirs) = made(&[&own]);
    assert!(keys(&own, vec![theirs.encode().unwrap()]).is_err());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        // The time is for people, and under the MAC like all else.
        assert!(keys(&own, vec![changed]).is_err(), "{at}");
    }
    let (strong, object) = made(&[&hybrid]);
    let opened = next_to(ring(&hybrid), vec![object.encode().unwrap()]);
    let opened = opened.open_again(HEADER, &strong.records).unwrap();
    assert_eq!(opened.object(&recipients(&[&own]), 6), Err(Error::Mixed));
    assert!(opened.object(&recipients(&[&hybrid]), 6).is_ok());
    // Of a set whose slots are on its media there is none.
    let key = NewKey::wrapped(&recipients(&[&own])).unwrap();
    let (_, records) = SetKeys::create(HEADER, &key, [0; 32]).unwrap();
    assert_eq!(first_object(HEADER, &records, (&key, 5)), Ok(None));
}

/// Goal: whoever has no set key makes no object that counts. A slot of the media is public, and opens: the MAC alone refuses it.
#[test]
fn no_byte_of_an_object_can_be_changed_and_no_slot_moved() {
    let [old, new] = [(); 2].map(|()| Identity::new_x25519().unwrap());
    let ours = set(HEADER, &[&old]);
    let unlocked = opened(&ours, &old);
    let object = unlocked.object(&recipients(&[&new]), 5).unwrap();
    let bytes = object.encode().unwrap();
    let opens = |identity: &Identity, object: Vec<u8>| {
        next_to(ring(identity), vec![object])
            .open(HEADER, &ours.records)
            .is_ok()
    };
    assert!(opens(&new, bytes.clone()));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(!opens(&new, changed), "byte {at}");
        assert!(!opens(&new, bytes[..at].to_vec()), "cut at {at}");
    }
    assert!(!opens(&new, [&bytes[..], &[0]].concat()));
    // The slot of the media in an object, for which the media's own slots were taken away.
    let mut keys = Keys::decode(&ours.records).unwrap();
    let stolen = with_slots(&object, keys.slots.clone());
    assert!(!unlocked.proves(&stolen) && unlocked.proves(&object));
    let stolen = stolen.encode().unwrap();
    assert!(!opens(&new, stolen.clone()));
    keys.slots = vec![Slot {
        kind: 9,
        bytes: Vec::new(),
    }];
    let stripped = keys.encode().unwrap();
    let found = next_to(ring(&old), vec![stolen]).open(HEADER, &stripped);
    assert!(found.is_err());
    // Two slots for the same, exchanged.
    let both = unlocked.object(&recipients(&[&new, &old]), 5).unwrap();
    let exchanged = with_slots(&both, both.slots.iter().rev().cloned().collect());
    assert!(opens(&new, both.encode().unwrap()));
    assert!(!opens(&new, exchanged.encode().unwrap()));
}

#[test]
fn marks_tell_whoever_opens_the_set_for_whom_an_object_is_and_nobody_else() {
    let [old, new, other] = [(); 3].map(|()| Identity::new_x25519().unwrap());
    let phrase = Passphrase::new(zeroize::Zeroizing::new(
        b"six words of some length".to_vec(),
    ));
    let ours = set(HEADER, &[&old]);
    let unlocked = opened(&ours, &old);
    let object = unlocked.object(&recipients(&[&new]), 5).unwrap();
    let none = Identities::default();
    assert!(unlocked.covers(&object, &recipients(&[&new]), &none));
    assert!(!unlocked.covers(&object, &recipients(&[&other]), &none));
    assert!(!unlocked.covers(&object, &recipients(&[&new, &other]), &none));
    let more = unlocked.object(&recipients(&[&other]), 5).unwrap();
    // A mark that somebody copied into an object of their own counts for nothing.
    let forged = with_slots(&object, more.slots);
    assert!(!unlocked.covers(&forged, &recipients(&[&new]), &none));
    // The same recipient has another mark in another set.
    let theirs = set(HEADER, &[&old]);
    let theirs = ring(&old).open_again(HEADER, &theirs.records).unwrap();
    let theirs = theirs.object(&recipients(&[&new]), 5).unwrap();
    let mark = |object: &KeyObject| object.encode().unwrap()[66..82].to_vec();
    assert_ne!(mark(&object), mark(&theirs));
    let phrases = Recipients::new(vec![Recipient::Passphrase(phrase)], true).unwrap();
    let kept = unlocked.object(&phrases, 5).unwrap();
    assert_eq!(mark(&kept), [0; 16], "nothing to try a passphrase at");
    assert!(
        unlocked.covers(&kept, &phrases, &none),
        "a passphrase is tried"
    );
    assert!(!unlocked.covers(&object, &phrases, &none));
    assert_eq!(unlocked.opens(&kept, &none), 0);
    let own = Identities::new(vec![new.clone(), old.clone()]);
    assert_eq!(unlocked.opens(&object, &own), 1);
    assert!(unlocked.covers(&object, &recipients(&[&new]), &own));
}

#[test]
fn a_set_that_withstands_a_quantum_computer_gets_no_weaker_recipient() {
    let strong = Identity::new_hybrid().unwrap();
    let [weak, other] = [(); 2].map(|()| Identity::new_x25519().unwrap());
    let ours = set(HEADER, &[&strong]);
    let refused = opened(&ours, &strong).object(&recipients(&[&weak]), 5);
    assert_eq!(refused.unwrap_err(), Error::Mixed);
    let next = Identity::new_hybrid().unwrap();
    assert!(
        opened(&ours, &strong)
            .object(&recipients(&[&next]), 5)
            .is_ok()
    );
    // The other way round nothing gets weaker than it was.
    let ours = set(HEADER, &[&weak]);
    assert!(
        opened(&ours, &weak)
            .object(&recipients(&[&strong]), 5)
            .is_ok()
    );
    assert!(
        opened(&ours, &weak)
            .object(&recipients(&[&other]), 5)
            .is_ok()
    );
}

/// Goal: whoever can add files next to a set costs its reader little.
#[test]
fn thousands_of_objects_are_looked_at_for_a_while_only() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let old = Identity::new_x25519().unwrap();
    let program = |ask: &longshore_crypt::Ask| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Ok(zeroize::Zeroizing::new(
            ask.input.iter().rev().copied().collect(),
        ))
    };
    let program = Identity::Command(CommandKey::new("k", Arc::new(program)).unwrap());
    let ours = set(HEADER, &[&old]);
    let unlocked = opened(&ours, &old);
    let good = unlocked.object(&recipients(&[&program]), 5).unwrap();
    let forged = |n: u64| {
        let mut slots = vec![good.slots[0].clone(); 3];
        for slot in &mut slots {
            slot.bytes.truncate(40);
        }
        let three = recipients(&[&program, &program, &program]);
        let mut forged = with_slots(&unlocked.object(&three, 5).unwrap(), slots);
        forged.made_us = n as i64;
        forged.encode().unwrap()
    };
    ASKED.store(0, Ordering::Relaxed);
    let many: Vec<Vec<u8>> = (0..FOUND_MAX as u64 + 9).map(forged).collect();
    ASKED.store(0, Ordering::Relaxed);
    let refused = next_to(ring(&program), many.clone())
        .open(HEADER, &ours.records)
        .unwrap_err();
    assert!(matches!(
        refused,
        Error::NoIdentity { .. } | Error::Command { .. }
    ));
    assert!(ASKED.load(Ordering::Relaxed) <= 8, "{ASKED:?}");
    // A named object comes first, whatever lies next to the set.
    let named = next_to(next_to(ring(&program), vec![good.encode().unwrap()]), many);
    assert!(named.open(HEADER, &ours.records).is_ok());
}

/// Goal: an object that its own recipient's reader would not try is not told as made.
#[test]
fn an_object_counts_only_if_readers_try_it() {
    let old = Identity::new_x25519().unwrap();
    let phrase = || {
        let bytes = b"six words of some length".to_vec();
        Passphrase::new(zeroize::Zeroizing::new(bytes))
    };
    let phrases = Recipients::new(vec![Recipient::Passphrase(phrase())], true).unwrap();
    let ours = set(HEADER, &[&old]);
    let unlocked = opened(&ours, &old);
    let last = unlocked.object(&phrases, 5).unwrap();
    // Anybody can put these there.
    let slot = Slot {
        kind: last.slots[0].kind,
        bytes: Vec::new(),
    };
    let others: Vec<KeyObject> = (0..8)
        .map(|made_us| {
            let mut other = with_slots(&last, vec![slot.clone()]);
            other.made_us = made_us;
            other
        })
        .collect();
    let found = |first: &[KeyObject]| FoundObjects {
        objects: first
            .iter()
            .chain([&last])
            .map(|o| o.encode().unwrap())
            .collect(),
        ..FoundObjects::default()
    };
    let is_read = |first: &[KeyObject]| unlocked.check_read(&found(first), &last, &phrases).is_ok();
    assert!(is_read(&others[..1]));
    assert!(!is_read(&others));
    let many: Vec<KeyObject> = (0..FOUND_MAX as i64)
        .map(|n| unlocked.object(&recipients(&[&old]), n).unwrap())
        .collect();
    assert!(!is_read(&many) && is_read(&many[1..]));
    // And the reader says that it did not try all.
    let reader = ring(&Identity::Passphrase(phrase()));
    let reader = next_to(reader, found(&others).objects);
    let refused = reader.open(HEADER, &ours.records).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("1 slots of these were not tried"),
        "{refused}"
    );
}
