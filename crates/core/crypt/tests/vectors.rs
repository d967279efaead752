//! Goal: every byte that is encrypted is what the specification says, by a program that was written from it alone.
//! Method: `tests/reader/vectors.py` made `tests/golden/encryption.json` with other libraries. Each message is opened, and made
//! again from the same inputs: salts depend on messages, so nothing of it is random.
//! Not covered: that the file is what that program makes (`cli/reader.rs` of the program runs it), and hybrid recipients (`src/age.rs` has published vectors).

use std::sync::Arc;

use longshore_crypt::{
    Chunk, FamilyRoot, FoundObjects, Identities, Identity, KeyObject, Keyring, Keys, ObjectName,
    Passphrase, Recipients, SALT_LEN, SetKeys, Signed, SigningKey, TAG_LEN, TagKey,
};
use serde_json::Value;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/golden/encryption.json"
);

fn vectors() -> Value {
    serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs.map(|[a, b]| (a << 4 | b) as u8).collect()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    bytes(value).try_into().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn records(vectors: &Value) -> Vec<Vec<u8>> {
    list(&vectors["records"]).iter().map(bytes).collect()
}

/// The keys of the set, by its age file.
fn opened(vectors: &Value) -> SetKeys {
    let identity = Identities::parse(vectors["identity"].as_str().unwrap()).unwrap();
    SetKeys::open(&bytes(&vectors["header"]), &records(vectors), &identity).unwrap()
}

#[test]
fn each_slot_opens_the_set_and_the_commitment_is_the_specified_one() {
    let vectors = vectors();
    let (header, records) = (bytes(&vectors["header"]), records(&vectors));
    let keys = Keys::decode(&records).unwrap();
    assert_eq!(keys.parent_root, array(&vectors["parent_root"]));
    assert_eq!(keys.commitment, array(&vectors["keys"]["commit"]));
    assert_eq!(keys.slots.len(), 3);
    assert_eq!(keys.encode().unwrap(), records);
    let text = vectors["passphrase"].as_str().unwrap();
    let passphrase = Passphrase::new(zeroize::Zeroizing::new(text.into()));
    let by_passphrase = Identities::new(vec![Identity::Passphrase(passphrase)]);
    let other = SetKeys::open(&header, &records, &by_passphrase).unwrap();
    let keys = opened(&vectors);
    assert_eq!(keys.context(), other.context());
    let mask: [u8; 32] = array(&vectors["sums_mask"]);
    assert_eq!(keys.index().sums_mask(), &mask);
    assert_eq!(other.index().sums_mask(), &mask);
    // A set that was changed anywhere is another set.
    for at in [0, header.len() - 1] {
        let mut changed = header.clone();
        changed[at] ^= 1;
        assert!(SetKeys::open(&changed, &records, &by_passphrase).is_err());
    }
}

#[test]
fn a_key_object_is_the_specified_one_and_opens_the_set() {
    const OBJECT: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/golden/key-object.json"
    );
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(OBJECT).unwrap()).unwrap();
    let (header, records) = (bytes(&vectors["header"]), records(&vectors));
    let stored = bytes(&vectors["object"]);
    let object = KeyObject::decode(&stored).unwrap();
    assert_eq!(object.encode().unwrap(), stored);
    assert_eq!(object.made_us, vectors["made_us"].as_i64().unwrap());
    assert_eq!(object.commitment, array(&vectors["keys"]["commit"]));
    let name = ObjectName::parse(vectors["name"].as_str().unwrap()).unwrap();
    assert_eq!(object.name().unwrap(), name);
    let further = Identities::parse(vectors["identity"].as_str().unwrap()).unwrap();
    let text = vectors["passphrase"].as_str().unwrap();
    let passphrase = Passphrase::new(zeroize::Zeroizing::new(text.into()));
    for identities in [
        further,
        Identities::new(vec![Identity::Passphrase(passphrase)]),
    ] {
        let alone = Keyring::new(identities.clone(), false);
        let is_of_the_object = matches!(identities.list()[0], Identity::X25519(_));
        assert_eq!(alone.open(&header, &records).is_err(), is_of_the_object);
        let found = stored.clone();
        let next = alone.with_objects(Arc::new(move |_: &[u8; 16]| FoundObjects {
            objects: vec![found.clone()],
            ..FoundObjects::default()
        }));
        let opened = next.open_again(&header, &records).unwrap();
        assert!(opened.proves(&object));
        let recipient = vectors["recipient"].as_str().unwrap().parse().unwrap();
        let recipients = Recipients::new(vec![recipient], false).unwrap();
        assert!(opened.covers(&object, &recipients, &Identities::default()));
        let mark = object.encode().unwrap()[66..82].to_vec();
        assert_eq!(mark, bytes(&vectors["mark"]));
    }
}

#[test]
fn blocks_are_sealed_and_opened_as_specified() {
    let vectors = vectors();
    let keys = opened(&vectors);
    for block in list(&vectors["blocks"]) {
        let fixed = array(&block["fixed"]);
        let (plain, payload) = (bytes(&block["manifest"]), bytes(&block["payload"]));
        let (mut manifest, mut sealed) = (plain.clone(), payload.clone());
        let seal = keys.seal_block(&fixed, &mut manifest, &mut sealed);
        assert_eq!(seal.salt, array(&block["salt"]));
        manifest.extend_from_slice(&seal.manifest_tag);
        if !sealed.is_empty() {
            sealed.extend_from_slice(&seal.payload_tag);
        }
        assert_eq!(manifest, bytes(&block["sealed_manifest"]));
        assert_eq!(sealed, bytes(&block["sealed_payload"]));
        let sequence = number(&block["sequence"]);
        assert_eq!(seal.digest(sequence), array(&block["digest"]));
        keys.open_manifest(&fixed, &seal.salt, &mut manifest)
            .unwrap();
        assert_eq!(manifest, plain);
        if !sealed.is_empty() {
            let tag = &seal.manifest_tag;
            let len = keys.open_payload(&fixed, &seal.salt, tag, &mut sealed);
            assert_eq!(sealed[..len.unwrap()], payload);
        }
    }
}

#[test]
fn the_index_and_the_roots_are_the_specified_ones() {
    let vectors = vectors();
    let keys = opened(&vectors);
    let set = bytes(&vectors["header"])[..16].try_into().unwrap();
    for chunk in list(&vectors["chunks"]) {
        let at = Chunk {
            set,
            family: number(&chunk["family"]) as u16,
            number: number(&chunk["number"]) as u32,
            offset: number(&chunk["offset"]),
            previous: (
                number(&chunk["previous"][0]),
                number(&chunk["previous"][1]) as u32,
            ),
            raw_len: number(&chunk["raw_len"]) as u32,
        };
        let (packed, sealed) = (bytes(&chunk["packed"]), bytes(&chunk["sealed"]));
        assert_eq!(keys.seal_chunk(&at, &packed), sealed);
        assert_eq!(keys.index().open_chunk(&at, &sealed).unwrap(), packed);
    }
    let family = &vectors["family"];
    let mut root = FamilyRoot::new(&bytes(&family["known"]));
    for (block, chunk) in list(&vectors["blocks"]).iter().zip(list(&family["chunks"])) {
        root.block(&array(&block["digest"]));
        root.chunk(&bytes(chunk));
    }
    assert_eq!(root.finish(), array(&family["root"]));
    let trailer = &vectors["trailer"];
    let families: Vec<_> = list(&trailer["families"]).iter().map(array).collect();
    let root = keys.set_root(&bytes(&trailer["whole"]), &families);
    assert_eq!(root, array(&trailer["root"]));
    let (start, mac) = (bytes(&trailer["start"]), array(&trailer["mac"]));
    assert_eq!(keys.trailer_mac(&start, &root), mac);
    assert!(keys.index().check_trailer(&start, &root, &mac).is_ok());
}

#[test]
fn wal_and_its_tags_are_the_specified_ones() {
    let vectors = vectors();
    let keys = opened(&vectors);
    let wal = &vectors["wal"];
    for piece in list(&wal["pieces"]) {
        let (message, sealed) = (bytes(&piece["message"]), bytes(&piece["sealed"]));
        let at = number(&piece["number"]) as u32;
        let mut made = [vec![0; SALT_LEN], message.clone(), vec![0; TAG_LEN]].concat();
        keys.seal_piece(at, &mut made);
        assert_eq!(made, sealed);
        assert_eq!(keys.open_piece(at, &mut made).unwrap(), message);
    }
    let (end, mac) = (bytes(&wal["end"]), array(&wal["mac"]));
    assert_eq!(keys.end_mac(&end), mac);
    assert!(keys.check_end(&end, &mac).is_ok());
    let tags = &vectors["tags"];
    let key = TagKey::of_cluster(&array(&tags["secret"]), number(&tags["system"]));
    assert_eq!(key.id(), array(&tags["id"]));
    let (name, at) = (
        tags["name"].as_str().unwrap(),
        number(&tags["number"]) as u32,
    );
    assert_eq!(
        key.tag(name, at, &bytes(&tags["plain"])),
        array(&tags["tag"])
    );
}

#[test]
fn signatures_are_the_specified_ones() {
    let vectors = vectors();
    let given = &vectors["signatures"];
    let key = SigningKey::parse(given["key"].as_str().unwrap()).unwrap();
    assert_eq!(key.signer().to_string(), given["signer"].as_str().unwrap());
    assert_eq!(&**key.line(), given["key"].as_str().unwrap());
    let (header, records) = (bytes(&vectors["header"]), records(&vectors).concat());
    let root = array(&vectors["trailer"]["root"]);
    let end = bytes(&vectors["wal"]["end"]);
    for (name, what) in [
        ("set", Signed::set(&header, &root)),
        ("wal", Signed::wal(&header, &records, &end)),
    ] {
        let signature = key.sign(&what);
        assert_eq!(signature.bytes, array::<64>(&given[name]), "{name}");
        assert!(signature.is_of(&what));
    }
}
