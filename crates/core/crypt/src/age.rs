//! A secret of 32 bytes as an age v1 file with one recipient (C2SP's age.md), so that `age -d` opens it, too.
//!
//! Invariants
//! - A file is written with one stanza and read with any number; what is written is canonical.
//! - A file that does not open is not told apart from one that is for somebody else: the set's commitment decides.
//!
//! Leaves to others: recipients as texts (`recipient.rs`), identities as texts (`identity.rs`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::XWing;
use hpke::{
    Deserializable, Kem, OpModeR, OpModeS, Serializable, single_shot_open, single_shot_seal,
};
use ring::{aead, hmac};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::{Error, KEY_LEN, Secret, hkdf, random};

const INTRO: &str = "age-encryption.org/v1\n";
const X25519: &str = "X25519";
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const HYBRID: &str = "mlkem768x25519";
const HYBRID_INFO: &[u8] = b"age-encryption.org/mlkem768x25519";
const COLUMNS: usize = 64;
const FILE_KEY_LEN: usize = 16;
const PAYLOAD_NONCE_LEN: usize = 16;
const MAC_LEN: usize = 32;
/// A nonce of the payload's only chunk: the first, and the last.
const ONLY_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Encapsulation key of X-Wing, which HPKE calls MLKEM768-X25519.
pub type HybridKey = <XWing as Kem>::PublicKey;

type FileKey = Zeroizing<[u8; FILE_KEY_LEN]>;

struct Stanza<'a> {
    kind: &'a str,
    arguments: Vec<&'a str>,
    body: Vec<u8>,
}

/// `secret`, for the owner of an X25519 key.
pub fn for_x25519(secret: &Secret, recipient: &[u8; 32]) -> Result<Vec<u8>, Error> {
    let file_key = random::<FILE_KEY_LEN>()?;
    let ephemeral = StaticSecret::from(*random::<32>()?);
    let share = PublicKey::from(&ephemeral);
    let shared = ephemeral.diffie_hellman(&PublicKey::from(*recipient));
    if !shared.was_contributory() {
        return Err(Error::Recipient {
            what: "its key gives the same secret to everybody",
        });
    }
    let salt = [share.as_bytes(), &recipient[..]].concat();
    let key = hkdf(shared.as_bytes(), &salt, &[X25519_INFO]);
    let body = chacha_seal(&key, &[0; 12], &file_key[..]);
    file(secret, &file_key, X25519, share.as_bytes(), &body)
}

/// `secret`, for the owner of a key of X25519 and ML-KEM-768.
pub fn for_hybrid(secret: &Secret, recipient: &HybridKey) -> Result<Vec<u8>, Error> {
    let file_key = random::<FILE_KEY_LEN>()?;
    let sealed = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, XWing>(
        &OpModeS::Base,
        recipient,
        HYBRID_INFO,
        &file_key[..],
        &[],
    );
    let (share, body) = sealed.map_err(|_| Error::Recipient {
        what: "nothing can be encrypted for it",
    })?;
    file(secret, &file_key, HYBRID, &share.to_bytes(), &body)
}

/// The whole file.
fn file(
    secret: &Secret,
    file_key: &FileKey,
    kind: &str,
    argument: &[u8],
    body: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut header = format!("{INTRO}-> {kind} {}\n", BASE64.encode(argument));
    let encoded = BASE64.encode(body);
    let mut rest = encoded.as_str();
    // The last line is shorter than the others, and empty where the body fills its lines.
    while rest.len() >= COLUMNS {
        let (line, later) = rest.split_at(COLUMNS);
        header += &format!("{line}\n");
        rest = later;
    }
    header += &format!("{rest}\n---");
    let key = header_key(file_key);
    let mac = hmac::sign(&key, header.as_bytes());
    header += &format!(" {}\n", BASE64.encode(mac.as_ref()));
    let nonce = random::<PAYLOAD_NONCE_LEN>()?;
    let key = hkdf(&file_key[..], &nonce[..], &[b"payload"]);
    let mut out = header.into_bytes();
    out.extend_from_slice(&nonce[..]);
    out.extend_from_slice(&chacha_seal(&key, &ONLY_CHUNK, &secret[..]));
    Ok(out)
}

fn header_key(file_key: &FileKey) -> hmac::Key {
    hmac::Key::new(
        hmac::HMAC_SHA256,
        &hkdf(&file_key[..], &[], &[b"header"])[..],
    )
}

/// The secret in a file that is for this X25519 identity.
pub fn open_x25519(file: &[u8], identity: &StaticSecret) -> Option<Secret> {
    let own = PublicKey::from(identity);
    open(file, X25519, |stanza| {
        let [share] = stanza.arguments[..] else {
            return None;
        };
        let share = <[u8; 32]>::try_from(BASE64.decode(share).ok()?).ok()?;
        let shared = identity.diffie_hellman(&PublicKey::from(share));
        if !shared.was_contributory() {
            return None;
        }
        let salt = [&share[..], own.as_bytes()].concat();
        let key = hkdf(shared.as_bytes(), &salt, &[X25519_INFO]);
        file_key(&chacha_open(&key, &[0; 12], &stanza.body)?)
    })
}

/// The secret in a file that is for this identity of X25519 and ML-KEM-768.
pub fn open_hybrid(file: &[u8], identity: &<XWing as Kem>::PrivateKey) -> Option<Secret> {
    open(file, HYBRID, |stanza| hybrid_file_key(stanza, identity))
}

fn hybrid_file_key(stanza: &Stanza<'_>, identity: &<XWing as Kem>::PrivateKey) -> Option<FileKey> {
    let [share] = stanza.arguments[..] else {
        return None;
    };
    let share = BASE64.decode(share).ok()?;
    // As age does: a half that gives one secret to everybody is no key, although the other half keeps it.
    let half = <[u8; 32]>::try_from(&share[share.len().checked_sub(32)?..]).ok()?;
    let any = StaticSecret::from([1; 32]);
    if !any
        .diffie_hellman(&PublicKey::from(half))
        .was_contributory()
    {
        return None;
    }
    let share = <XWing as Kem>::EncappedKey::from_bytes(&share).ok()?;
    let opened = single_shot_open::<ChaCha20Poly1305, HkdfSha256, XWing>(
        &OpModeR::Base,
        identity,
        &share,
        HYBRID_INFO,
        &stanza.body,
        &[],
    );
    file_key(&Zeroizing::new(opened.ok()?))
}

/// The kind of the first stanza of a file, if this module writes such ones.
pub fn kind_of(file: &[u8]) -> Option<&'static str> {
    let (header, ..) = split(file)?;
    let kind = stanzas(header)?.first()?.kind;
    [X25519, HYBRID].into_iter().find(|known| *known == kind)
}

/// Whether a file is for a recipient that is meant to withstand a quantum computer.
pub fn is_hybrid(file: &[u8]) -> bool {
    kind_of(file) == Some(HYBRID)
}

fn file_key(bytes: &[u8]) -> Option<FileKey> {
    let mut key = FileKey::default();
    (bytes.len() == FILE_KEY_LEN).then(|| key.copy_from_slice(bytes))?;
    Some(key)
}

/// The secret in a file, by the first stanza of a kind from which `unwrap` gets the file's key.
fn open(
    file: &[u8],
    kind: &str,
    unwrap: impl Fn(&Stanza<'_>) -> Option<FileKey>,
) -> Option<Secret> {
    let plain = open_any(file, kind, unwrap)?;
    let mut secret = Secret::default();
    (plain.len() == KEY_LEN).then(|| secret.copy_from_slice(&plain))?;
    Some(secret)
}

/// The content of a file of any length that fits one chunk.
fn open_any(
    file: &[u8],
    kind: &str,
    unwrap: impl Fn(&Stanza<'_>) -> Option<FileKey>,
) -> Option<Zeroizing<Vec<u8>>> {
    let (header, mac, payload) = split(file)?;
    let stanzas = stanzas(header)?;
    let of_kind = stanzas.iter().filter(|stanza| stanza.kind == kind);
    let file_key = of_kind.filter_map(unwrap).next()?;
    let signed = header.len() + 3;
    let key = header_key(&file_key);
    hmac::verify(&key, &file[..signed], &mac).ok()?;
    let (nonce, chunk) = payload.split_at_checked(PAYLOAD_NONCE_LEN)?;
    let key = hkdf(&file_key[..], nonce, &[b"payload"]);
    chacha_open(&key, &ONLY_CHUNK, chunk)
}

/// The header's lines before its `---`, its MAC, and the payload.
fn split(file: &[u8]) -> Option<(&str, [u8; MAC_LEN], &[u8])> {
    let end = file.windows(5).position(|w| w == b"\n--- ")? + 1;
    let header = std::str::from_utf8(&file[..end]).ok()?;
    let rest = &file[end + 4..];
    let line = rest.iter().position(|b| *b == b'\n')?;
    let mac = BASE64.decode(&rest[..line]).ok()?;
    Some((header, mac.try_into().ok()?, &rest[line + 1..]))
}

fn stanzas(header: &str) -> Option<Vec<Stanza<'_>>> {
    let mut lines = header
        .strip_prefix(INTRO)?
        .split_terminator('\n')
        .peekable();
    let mut all = Vec::new();
    while let Some(line) = lines.next() {
        let mut words = line.strip_prefix("-> ")?.split(' ');
        let kind = words.next()?;
        let mut body = Vec::new();
        loop {
            let line = lines.next()?;
            if line.len() > COLUMNS {
                return None;
            }
            body.extend_from_slice(&BASE64.decode(line).ok()?);
            if line.len() < COLUMNS {
                break;
            }
        }
        all.push(Stanza {
            kind,
            arguments: words.collect(),
            body,
        });
    }
    Some(all)
}

fn chacha(key: &Secret) -> aead::LessSafeKey {
    let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, &key[..]);
    aead::LessSafeKey::new(key.expect("the key has 32 bytes"))
}

fn chacha_seal(key: &Secret, nonce: &[u8; 12], plain: &[u8]) -> Vec<u8> {
    let mut out = plain.to_vec();
    let nonce = aead::Nonce::assume_unique_for_key(*nonce);
    chacha(key)
        .seal_in_place_append_tag(nonce, aead::Aad::empty(), &mut out)
        .expect("a message of some bytes is not too long");
    out
}

fn chacha_open(key: &Secret, nonce: &[u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let nonce = aead::Nonce::assume_unique_for_key(*nonce);
    let opened = chacha(key).open_in_place(nonce, aead::Aad::empty(), &mut bytes);
    let len = opened.ok()?.len();
    bytes.truncate(len);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{digest_of, text};

    /// Test vectors of age's hybrid recipients: those of C2SP's CCTV (`age/testdata`, 2025-12-08), whose licence allows it
    /// to copy them without more words. Left out are an armored and a compressed one, and one whose flaw is in the stanza of
    /// another kind, at which nobody looks here.
    const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cctv");

    /// A vector: its facts by name, and the file.
    struct Vector {
        facts: String,
        file: Vec<u8>,
    }

    impl Vector {
        fn of(bytes: &[u8]) -> Vector {
            let end = bytes.windows(2).position(|w| w == b"\n\n").unwrap();
            Vector {
                facts: String::from_utf8(bytes[..end].to_vec()).unwrap(),
                file: bytes[end + 2..].to_vec(),
            }
        }

        fn fact(&self, name: &str) -> &str {
            let mut facts = self.facts.lines().filter_map(|line| line.split_once(": "));
            facts.find(|(of, _)| *of == name).unwrap().1
        }

        fn identity(&self) -> <XWing as Kem>::PrivateKey {
            let (prefix, data) = text::decode(self.fact("identity")).unwrap();
            assert_eq!(prefix, "age-secret-key-pq-");
            <XWing as Kem>::PrivateKey::from_bytes(&data).unwrap()
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Goal: what others publish for X25519 with ML-KEM-768 opens, and what they say is wrong does not.
    #[test]
    fn published_vectors_of_hybrid_recipients_open_or_are_refused_as_they_say() {
        let (mut opened, mut refused) = (0, 0);
        for entry in std::fs::read_dir(VECTORS).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display();
            let vector = Vector::of(&std::fs::read(&path).unwrap());
            let identity = vector.identity();
            let keys = std::cell::RefCell::new(Vec::new());
            let content = open_any(&vector.file, HYBRID, |stanza| {
                let key = hybrid_file_key(stanza, &identity)?;
                keys.borrow_mut().push(hex(&key[..]));
                Some(key)
            });
            match (vector.fact("expect"), content) {
                ("success", Some(content)) => {
                    assert_eq!(keys.into_inner(), [vector.fact("file key")], "{name}");
                    assert_eq!(hex(&digest_of(&content)), vector.fact("payload"), "{name}");
                    opened += 1;
                }
                ("no match" | "header failure", None) => refused += 1,
                (expected, content) => {
                    panic!("{name}: {expected}, and it opened: {}", content.is_some())
                }
            }
        }
        assert_eq!((opened, refused), (3, 13));
    }
}
