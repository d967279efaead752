//! Goal: slots of certificates, files of private keys and certificates are those of the standards.
//! Method: openssl unwraps slots of ours, makes slots that we unwrap, reads our files, and writes the ones that we read.
//! Not covered: what statements do with them (`sql/tsql/tests/keys.rs`).

use std::path::Path;
use std::process::Command;

use longshore_crypt::{
    Certificate, CertificateSlot, Error, Identities, Identity, Keys, NewKey, PrivateKey, Recipient,
    Recipients, SetKeys, Slot, SlotKind,
};

const HEADER: &[u8] = b"the body of a set header";

/// The output of `openssl`, run in this directory. Fails under LONGSHORE_REQUIRE_TOOLS if it is missing.
fn openssl(dir: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(dir)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("openssl: {e}");
            return None;
        }
        Err(e) => panic!("openssl: {e}"),
    };
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {why}");
    Some(output.stdout)
}

/// A directory with `key.pem`, a key of openssl's with so many bits.
fn with_key(bits: u32) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let bits = format!("rsa_keygen_bits:{bits}");
    let arguments = [
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        &bits,
        "-out",
        "key.pem",
    ];
    openssl(dir.path(), &arguments)?;
    Some(dir)
}

fn key_in(dir: &Path, name: &str, password: Option<&[u8]>) -> Result<PrivateKey, Error> {
    PrivateKey::of_file(&std::fs::read(dir.join(name)).unwrap(), password)
}

fn recipient(key: &PrivateKey) -> (Certificate, Recipient) {
    let certificate = Certificate::new(key, "test", (0, 4_000_000_000)).unwrap();
    let recipient = Recipient::from(&certificate);
    (certificate, recipient)
}

const OAEP: [&str; 6] = [
    "-pkeyopt",
    "rsa_padding_mode:oaep",
    "-pkeyopt",
    "rsa_oaep_md:sha256",
    "-pkeyopt",
    "rsa_mgf1_md:sha256",
];

#[test]
fn openssl_unwraps_our_slots_and_we_unwrap_openssls() {
    let Some(dir) = with_key(2048) else { return };
    let key = key_in(dir.path(), "key.pem", None).unwrap();
    let (certificate, recipient) = recipient(&key);
    let new = NewKey::wrapped(&Recipients::new(vec![recipient], false).unwrap()).unwrap();
    let (_, records) = SetKeys::create(HEADER, &new, [0; 32]).unwrap();
    let keys = Keys::decode(&records).unwrap();
    let slot = &keys.slots[0];
    assert_eq!(
        (slot.kind, slot.bytes.len()),
        (SlotKind::Certificate as u16, 42 + 256)
    );
    let read = CertificateSlot::of(&slot.bytes).unwrap();
    assert_eq!(read.key_id, key.public().id());
    assert_eq!(read.thumbprint, certificate.thumbprint());
    assert_eq!(keys.thumbprint(), Some(certificate.thumbprint()));
    std::fs::write(dir.path().join("wrapped"), &slot.bytes[42..]).unwrap();
    let unwrap = [
        "pkeyutl", "-decrypt", "-inkey", "key.pem", "-in", "wrapped", "-out", "plain",
    ];
    openssl(dir.path(), &[&unwrap[..], &OAEP].concat()).unwrap();
    let plain = std::fs::read(dir.path().join("plain")).unwrap();
    assert_eq!(plain.len(), 32);
    // Key id, as format.md has it: of the SubjectPublicKeyInfo.
    openssl(
        dir.path(),
        &[
            "pkey", "-in", "key.pem", "-pubout", "-outform", "DER", "-out", "spki",
        ],
    )
    .unwrap();
    let digest = openssl(dir.path(), &["dgst", "-sha256", "-binary", "spki"]).unwrap();
    assert_eq!(digest[..20], read.key_id);
    // The same key, wrapped by openssl.
    let wrap = [
        "pkeyutl", "-encrypt", "-inkey", "key.pem", "-in", "plain", "-out", "theirs",
    ];
    openssl(dir.path(), &[&wrap[..], &OAEP].concat()).unwrap();
    let theirs = std::fs::read(dir.path().join("theirs")).unwrap();
    let identity = Identity::Certificate(key);
    let slot = Slot {
        kind: SlotKind::Certificate as u16,
        bytes: [&slot.bytes[..42], &theirs].concat(),
    };
    assert_eq!(identity.open(&slot).unwrap()[..], plain);
    // Another padding, and another digest, are other slots.
    for other in [&OAEP[..2], &["-pkeyopt", "rsa_padding_mode:pkcs1"]] {
        openssl(dir.path(), &[&wrap[..], other].concat()).unwrap();
        let theirs = std::fs::read(dir.path().join("theirs")).unwrap();
        let slot = Slot {
            kind: SlotKind::Certificate as u16,
            bytes: [&slot.bytes[..42], &theirs].concat(),
        };
        assert!(identity.open(&slot).is_none(), "{other:?}");
    }
}

#[test]
fn a_set_opens_for_its_certificate_and_a_changed_slot_for_nobody() {
    let keys = [
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    ];
    let recipients = vec![recipient(&keys[0]).1];
    let new = NewKey::wrapped(&Recipients::new(recipients, false).unwrap()).unwrap();
    let (_, records) = SetKeys::create(HEADER, &new, [0; 32]).unwrap();
    let only = |key: &PrivateKey| Identities::new(vec![Identity::Certificate(key.clone())]);
    SetKeys::open(HEADER, &records, &only(&keys[0])).unwrap();
    let refused = SetKeys::open(HEADER, &records, &only(&keys[1])).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a certificate with the thumbprint 0x"),
        "{refused}"
    );
    // A key that is looked up, and nothing else.
    let known = keys.clone();
    let finder = move |id: &longshore_crypt::KeyId| {
        known.iter().find(|key| key.public().id() == *id).cloned()
    };
    let found = Identities::default().with_finder(std::sync::Arc::new(finder));
    SetKeys::open(HEADER, &records, &found).unwrap();
    for at in 72..records[0].len() {
        let mut changed = records.clone();
        changed[0][at] ^= 1;
        assert!(
            SetKeys::open(HEADER, &changed, &found).is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn weak_recipients_are_not_mixed_with_others_unknowingly() {
    let key = PrivateKey::generate().unwrap();
    let list = || {
        vec![
            recipient(&key).1,
            Identity::new_hybrid().unwrap().recipient(),
        ]
    };
    assert_eq!(Recipients::new(list(), false).unwrap_err(), Error::Mixed);
    Recipients::new(list(), true).unwrap();
}

#[test]
fn files_of_keys_are_openssls() {
    let Some(dir) = with_key(2048) else { return };
    let dir = dir.path();
    let key = key_in(dir, "key.pem", None).unwrap();
    openssl(
        dir,
        &[
            "pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-outform", "DER", "-out", "key.der",
        ],
    )
    .unwrap();
    assert_eq!(key_in(dir, "key.der", None).unwrap().pkcs8(), key.pkcs8());
    std::fs::write(
        dir.join("ours"),
        key.encrypted_file("Pass wörd".as_bytes()).unwrap(),
    )
    .unwrap();
    let back = [
        "pkcs8",
        "-in",
        "ours",
        "-passin",
        "pass:Pass wörd",
        "-topk8",
        "-nocrypt",
        "-outform",
        "DER",
    ];
    assert_eq!(openssl(dir, &back).unwrap(), key.pkcs8());
    for (cipher, prf) in [
        ("aes-128-cbc", "hmacWithSHA1"),
        ("aes-192-cbc", "hmacWithSHA256"),
        ("aes-256-cbc", "hmacWithSHA384"),
        ("aes-256-cbc", "hmacWithSHA512"),
    ] {
        for form in ["PEM", "DER"] {
            let write = [
                "pkcs8", "-topk8", "-in", "key.pem", "-v2", cipher, "-v2prf", prf, "-passout",
                "pass:x", "-outform", form, "-out", "theirs",
            ];
            openssl(dir, &write).unwrap();
            assert_eq!(
                key_in(dir, "theirs", Some(b"x")).unwrap().pkcs8(),
                key.pkcs8(),
                "{cipher} {form}"
            );
            for wrong in [Some(&b"y"[..]), None] {
                let refused = key_in(dir, "theirs", wrong).unwrap_err();
                assert!(
                    matches!(refused, Error::KeyPassword { .. }),
                    "{cipher}: {refused}"
                );
            }
        }
    }
    for other in [&["-scrypt"][..], &["-v2", "des3"]] {
        let write = [
            "pkcs8", "-topk8", "-in", "key.pem", "-passout", "pass:x", "-out", "theirs",
        ];
        openssl(dir, &[&write[..], other].concat()).unwrap();
        let refused = key_in(dir, "theirs", Some(b"x")).unwrap_err().to_string();
        assert!(refused.contains("openssl pkcs8"), "{refused}");
    }
    openssl(
        dir,
        &["rsa", "-in", "key.pem", "-traditional", "-out", "old.pem"],
    )
    .unwrap();
    assert!(key_in(dir, "old.pem", None).is_err());
}

#[test]
fn short_keys_are_refused_wherever_they_come_from() {
    let Some(dir) = with_key(1024) else { return };
    let dir = dir.path();
    assert!(key_in(dir, "key.pem", None).is_err());
    openssl(
        dir,
        &[
            "req", "-x509", "-key", "key.pem", "-subj", "/CN=x", "-out", "x.pem",
        ],
    )
    .unwrap();
    let refused = Certificate::of_file(&std::fs::read(dir.join("x.pem")).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("2048"), "{refused}");
}

#[test]
fn openssl_verifies_our_certificates_and_we_read_openssls() {
    let Some(dir) = with_key(3072) else { return };
    let dir = dir.path();
    let key = key_in(dir, "key.pem", None).unwrap();
    let ours = Certificate::new(&key, "Käse, 1", (1_790_000_000, 4_102_444_800)).unwrap();
    std::fs::write(dir.join("ours.der"), ours.der()).unwrap();
    let read = ["x509", "-inform", "DER", "-in", "ours.der"];
    openssl(dir, &[&read[..], &["-out", "ours.pem"]].concat()).unwrap();
    openssl(
        dir,
        &["verify", "-check_ss_sig", "-CAfile", "ours.pem", "ours.pem"],
    )
    .unwrap();
    let shown = openssl(
        dir,
        &[
            &read[..],
            &[
                "-noout", "-dates", "-serial", "-nameopt", "utf8", "-subject",
            ],
        ]
        .concat(),
    );
    let shown = String::from_utf8(shown.unwrap()).unwrap();
    for line in [
        "notBefore=Sep 21 14:13:20 2026 GMT",
        "notAfter=Jan  1 00:00:00 2100 GMT",
        "Käse, 1",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(
        Certificate::of_file(&std::fs::read(dir.join("ours.pem")).unwrap()).unwrap(),
        ours
    );
    let make = [
        "req",
        "-x509",
        "-key",
        "key.pem",
        "-subj",
        "/C=DE/O=A B/CN=c",
        "-days",
        "30000",
        "-out",
        "theirs.pem",
    ];
    openssl(dir, &make).unwrap();
    let theirs = Certificate::of_file(&std::fs::read(dir.join("theirs.pem")).unwrap()).unwrap();
    assert_eq!(theirs.subject, "C=DE, O=A B, CN=c");
    assert_eq!(theirs.public(), key.public());
    assert!(theirs.expiry_s > 4_000_000_000);
}
