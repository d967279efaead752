//! Files of private keys: PKCS#8, as PEM or DER, also encrypted with a password (PBES2, RFC 8018).
//!
//! Invariants
//! - A password's cost is compared with limits before time is spent on it.
//! - A wrong password and damaged ciphertext are one error: neither is told from the other.
//! - A file that is written has PBKDF2 with HMAC-SHA-256 and 600,000 rounds, and AES-256-CBC.
//!
//! Leaves to others: which files may be read or written (the callers), and the key inside (`rsa.rs`).

use std::num::NonZeroU32;

use aws_lc_rs::cipher;
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::pbkdf2;
use zeroize::Zeroizing;

use crate::der::{self, Reader};
use crate::{Error, PrivateKey, random};

/// The most bytes of a file of a key or a certificate.
pub const FILE_MAX: usize = 64 << 10;
const PLAIN: &str = "PRIVATE KEY";
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// Rounds that are written, and the most that are computed for a file.
const ROUNDS: u32 = 600_000;
const ROUNDS_MAX: u32 = 5_000_000;
const SALT_LEN: usize = 16;
const SALT_MAX: usize = 256;
/// Characters of a line of PEM.
const LINE: usize = 64;

/// Object identifiers, without tag and length.
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const SCRYPT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
const HMAC_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x09];
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];
const AES_256_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x2a];

fn wrong(what: &'static str) -> Error {
    Error::PrivateKey { what }
}

/// The content of the first PEM block with this label; `None` if the file has none.
pub(crate) fn armored(file: &[u8], label: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(file).ok()?;
    let (_, after) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = after.split_once(&format!("-----END {label}-----"))?;
    let mut letters = Zeroizing::new(Vec::with_capacity(body.len()));
    letters.extend(body.bytes().filter(|b| !b.is_ascii_whitespace()));
    STANDARD.decode(&letters[..]).ok().map(Zeroizing::new)
}

fn armor(label: &str, der: &[u8]) -> Zeroizing<Vec<u8>> {
    let letters = Zeroizing::new(STANDARD.encode(der));
    let mut out = Zeroizing::new(Vec::with_capacity(letters.len() * 2 + 100));
    out.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
    for line in letters.as_bytes().chunks(LINE) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    out
}

/// Whether a file may be one of a private key, rather than one of age's identities.
pub fn is_private_key(file: &[u8]) -> bool {
    let is_pem = |label: &str| {
        let begin = format!("-----BEGIN {label}-----");
        file.windows(begin.len())
            .any(|part| part == begin.as_bytes())
    };
    file.first() == Some(&der::SEQUENCE) || [PLAIN, ENCRYPTED].into_iter().any(is_pem)
}

impl PrivateKey {
    /// Reads the file of a key: PKCS#8 in PEM or DER. `password`: the one that it is encrypted with.
    ///
    /// Errors: [`Error::PrivateKey`]; [`Error::KeyPassword`] if the password is a wrong one, is missing, or there is none.
    pub fn of_file(file: &[u8], password: Option<&[u8]>) -> Result<PrivateKey, Error> {
        if file.len() > FILE_MAX {
            return Err(wrong("its file is longer than 64 KiB"));
        }
        let (content, may_be_plain, may_be_encrypted) = match armored(file, ENCRYPTED) {
            Some(content) => (content, false, true),
            None => match armored(file, PLAIN) {
                Some(content) => (content, true, false),
                None => (Zeroizing::new(file.to_vec()), true, true),
            },
        };
        let encrypted = may_be_encrypted.then(|| Encrypted::of(&content)).flatten();
        match (encrypted, password) {
            (Some(encrypted), Some(password)) => encrypted.open(password),
            (Some(_), None) => Err(Error::KeyPassword {
                what: "the private key is encrypted, and no password was given",
            }),
            (None, Some(_)) if may_be_plain && PrivateKey::of_pkcs8(&content).is_ok() => {
                Err(Error::KeyPassword {
                    what: "the private key is not encrypted, and a password was given",
                })
            }
            (None, _) if may_be_plain => PrivateKey::of_pkcs8(&content),
            (None, _) => Err(wrong(
                "it is not encrypted in a form of PKCS#8 that is known",
            )),
        }
    }

    /// The key's file, encrypted with a password: PKCS#8 in PEM.
    ///
    /// Errors: [`Error::Random`].
    pub fn encrypted_file(&self, password: &[u8]) -> Result<Vec<u8>, Error> {
        let salt = random::<SALT_LEN>()?;
        let mut key = Zeroizing::new([0; 32]);
        let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &salt[..],
            password,
            &mut key[..],
        );
        let mut sealed = Zeroizing::new(self.pkcs8().to_vec());
        let cipher = UnboundCipherKey::new(&AES_256, &key[..])
            .and_then(PaddedBlockEncryptingKey::cbc_pkcs7)
            .and_then(|cipher| cipher.encrypt(&mut *sealed))
            .map_err(|_| Error::Random)?;
        let iv = <&[u8]>::try_from(&cipher).map_err(|_| Error::Random)?;
        let oid = |oid| der::value(der::OID, &[oid]);
        let sequence = |parts: &[&[u8]]| der::value(der::SEQUENCE, parts);
        let prf = sequence(&[&oid(HMAC_SHA256), &der::value(der::NULL, &[])]);
        let salt = der::value(der::OCTET_STRING, &[&salt[..]]);
        let costs = sequence(&[&salt, &der::number(&ROUNDS.to_be_bytes()), &prf]);
        let derivation = sequence(&[&oid(PBKDF2), &costs]);
        let iv = der::value(der::OCTET_STRING, &[iv]);
        let scheme = sequence(&[&oid(AES_256_CBC), &iv]);
        let way = sequence(&[&oid(PBES2), &sequence(&[&derivation, &scheme])]);
        let sealed = der::value(der::OCTET_STRING, &[&sealed]);
        Ok(armor(ENCRYPTED, &sequence(&[&way, &sealed])).to_vec())
    }
}

/// An EncryptedPrivateKeyInfo.
struct Encrypted<'a> {
    /// The parameters of PBES2; `None`: it is encrypted in another way.
    parameters: Option<Reader<'a>>,
    sealed: &'a [u8],
}

impl<'a> Encrypted<'a> {
    /// `None`: it is no EncryptedPrivateKeyInfo.
    fn of(der: &'a [u8]) -> Option<Encrypted<'a>> {
        let mut outer = Reader::new(der);
        let mut whole = outer.inside(der::SEQUENCE)?;
        let mut way = whole.inside(der::SEQUENCE)?;
        let is_pbes2 = way.take(der::OID)? == PBES2;
        let sealed = whole.take(der::OCTET_STRING)?;
        outer.end().and(whole.end())?;
        Some(Encrypted {
            parameters: is_pbes2.then(|| way.inside(der::SEQUENCE)).flatten(),
            sealed,
        })
    }

    fn open(&self, password: &[u8]) -> Result<PrivateKey, Error> {
        let plain = self.parameters()?.open(password, self.sealed);
        let key = plain.and_then(|plain| PrivateKey::of_pkcs8(&plain).ok());
        key.ok_or(Error::KeyPassword {
            what: "the password does not open the private key, or the file is damaged",
        })
    }

    fn parameters(&self) -> Result<Parameters<'a>, Error> {
        const OTHER: &str = "it is encrypted in another way than PBES2 with PBKDF2 and AES-CBC; write it again with \
             `openssl pkcs8 -topk8 -v2 aes-256-cbc`";
        let mut parameters = self.parameters.ok_or(wrong(OTHER))?;
        let damaged = || wrong("the parameters of its encryption are damaged");
        let mut derivation = parameters.inside(der::SEQUENCE).ok_or_else(damaged)?;
        let mut scheme = parameters.inside(der::SEQUENCE).ok_or_else(damaged)?;
        let by = derivation.take(der::OID).ok_or_else(damaged)?;
        if by != PBKDF2 {
            return Err(match by == SCRYPT {
                true => wrong(
                    "its password is protected by scrypt; write it again with `openssl pkcs8 -topk8 -v2 aes-256-cbc`",
                ),
                false => wrong(OTHER),
            });
        }
        let mut costs = derivation.inside(der::SEQUENCE).ok_or_else(damaged)?;
        let salt = costs.take(der::OCTET_STRING).ok_or_else(damaged)?;
        let rounds = costs.small().ok_or_else(damaged)?;
        if rounds > ROUNDS_MAX || salt.len() > SALT_MAX {
            return Err(wrong("its password asks for too much work"));
        }
        let key_len = match costs.clone().any().map(|next| next.tag) {
            Some(der::INTEGER) => Some(costs.small().ok_or_else(damaged)?),
            _ => None,
        };
        let prf = match costs.take_if(der::SEQUENCE).ok_or_else(damaged)? {
            // The default of RFC 8018.
            None => 7,
            Some(prf) => {
                let oid = Reader::new(prf).take(der::OID).ok_or_else(damaged)?;
                let number = oid.strip_prefix(HMAC).filter(|last| last.len() == 1);
                number.ok_or(wrong(OTHER))?[0]
            }
        };
        let prf = match prf {
            7 => pbkdf2::PBKDF2_HMAC_SHA1,
            9 => pbkdf2::PBKDF2_HMAC_SHA256,
            10 => pbkdf2::PBKDF2_HMAC_SHA384,
            11 => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return Err(wrong(OTHER)),
        };
        let by = scheme.take(der::OID).ok_or_else(damaged)?;
        let cipher = match by.strip_prefix(AES) {
            Some([2]) => &AES_128,
            Some([22]) => &AES_192,
            Some([42]) => &AES_256,
            _ => return Err(wrong(OTHER)),
        };
        let iv = scheme.take(der::OCTET_STRING).ok_or_else(damaged)?;
        if key_len.is_some_and(|len| len as usize != key_len_of(cipher)) {
            return Err(damaged());
        }
        Ok(Parameters {
            prf,
            salt,
            rounds: NonZeroU32::new(rounds).ok_or_else(damaged)?,
            cipher,
            iv: iv.try_into().map_err(|_| damaged())?,
        })
    }
}

fn key_len_of(cipher: &cipher::Algorithm) -> usize {
    match *cipher == AES_128 {
        true => 16,
        false if *cipher == AES_192 => 24,
        false => 32,
    }
}

/// How a file is encrypted.
struct Parameters<'a> {
    prf: pbkdf2::Algorithm,
    salt: &'a [u8],
    rounds: NonZeroU32,
    cipher: &'static cipher::Algorithm,
    iv: [u8; 16],
}

impl Parameters<'_> {
    fn open(&self, password: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..key_len_of(self.cipher)];
        pbkdf2::derive(self.prf, self.rounds, self.salt, password, key);
        let cipher = UnboundCipherKey::new(self.cipher, key).ok()?;
        let cipher = PaddedBlockDecryptingKey::cbc_pkcs7(cipher).ok()?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let iv = DecryptionContext::Iv128(FixedLength::from(self.iv));
        let plain = cipher.decrypt(&mut bytes[..], iv).ok()?;
        Some(Zeroizing::new(plain.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_change_of_an_encrypted_file_is_taken_for_the_key() {
        let key = PrivateKey::short();
        let file = key.encrypted_file(b"a password").unwrap();
        let opened = PrivateKey::of_file(&file, Some(b"a password")).unwrap();
        assert_eq!(opened.pkcs8(), key.pkcs8());
        let content = armored(&file, ENCRYPTED).unwrap();
        // The head, where all lengths, names and costs are.
        for at in 0..110 {
            let mut changed = content.to_vec();
            changed[at] ^= 1;
            if let Ok(read) = PrivateKey::of_file(&changed, Some(b"a password")) {
                assert_eq!(read.pkcs8(), key.pkcs8(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_password_that_asks_for_too_much_is_refused_before_it_costs_anything() {
        let file = PrivateKey::short().encrypted_file(b"x").unwrap();
        let content = armored(&file, ENCRYPTED).unwrap();
        let rounds = der::number(&ROUNDS.to_be_bytes());
        let at = content.windows(rounds.len()).position(|w| *w == rounds[..]);
        let mut greedy = content.to_vec();
        greedy[at.unwrap() + 2] = 0x7f;
        // The other error would say that the work was done, and the password did not fit.
        let refused = PrivateKey::of_file(&greedy, Some(b"x")).unwrap_err();
        assert!(matches!(refused, Error::PrivateKey { .. }), "{refused}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = PrivateKey::of_file(&bytes, Some(b"x"));
            let _ = PrivateKey::of_file(&bytes, None);
            let _ = is_private_key(&bytes);
        }
    }
}
