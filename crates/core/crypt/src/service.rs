//! The keys under which a server keeps small secrets: its service key for keys of object stores and its master key, and the
//! master key for private keys of certificates.
//!
//! Invariants
//! - Each message has a key of its own, which depends on random bytes and on the message: a machine that was cloned, and
//!   repeats its random numbers, encrypts no two messages under one key.
//! - A sealed message opens only in the context that it was sealed in.
//! - `Debug` shows nothing.
//!
//! Leaves to others: where the keys and the sealed messages are (`longshore-catalog`).

use ring::{aead, hmac};
use zeroize::Zeroizing;

use crate::{Error, KEY_LEN, Secret, hkdf, random};

/// The first byte of a sealed text.
const VERSION: u8 = 1;
/// The part of a sealed text that its key depends on.
const SALT_LEN: usize = 32;
const LABEL: &[u8] = b"longshore/1/service/";
/// The first word of the key's file.
const WORD: &str = "longshore-service-key-1";

/// A server's key, or its master key.
pub struct ServiceKey(Secret);

impl std::fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServiceKey")
    }
}

impl ServiceKey {
    /// Errors: [`Error::Random`].
    pub fn new() -> Result<ServiceKey, Error> {
        Ok(ServiceKey(random::<KEY_LEN>()?))
    }

    /// The line of its file, which is a secret.
    pub fn line(&self) -> Zeroizing<String> {
        let mut line = Zeroizing::new(String::with_capacity(WORD.len() + 2 + 2 * KEY_LEN));
        line.push_str(WORD);
        line.push(' ');
        for byte in &self.0[..] {
            for half in [byte >> 4, byte & 15] {
                line.push(char::from_digit(half.into(), 16).unwrap_or_default());
            }
        }
        line.push('\n');
        line
    }

    /// `None` if this is no such line.
    pub fn of_line(line: &str) -> Option<ServiceKey> {
        let digits = line.trim_end().strip_prefix(WORD)?.strip_prefix(' ')?;
        let mut key = Secret::default();
        if digits.len() != 2 * KEY_LEN {
            return None;
        }
        for (to, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let half = |at: usize| char::from(*pair.get(at)?).to_digit(16);
            *to = u8::try_from(half(0)? << 4 | half(1)?).ok()?;
        }
        Some(ServiceKey(key))
    }

    /// The key itself, which is a secret.
    pub fn bytes(&self) -> &Zeroizing<[u8; KEY_LEN]> {
        &self.0
    }

    pub fn of_bytes(bytes: Zeroizing<[u8; KEY_LEN]>) -> ServiceKey {
        ServiceKey(bytes)
    }

    /// A number that nobody without the key can compute for these parts; each part counts by itself.
    pub fn proof(&self, parts: &[&[u8]]) -> [u8; KEY_LEN] {
        let mac = hmac::Key::new(
            hmac::HMAC_SHA256,
            &hkdf(&self.0[..], &[], &[LABEL, b"proof"])[..],
        );
        let mut message = hmac::Context::with_key(&mac);
        for part in parts {
            message.update(&(part.len() as u64).to_le_bytes());
            message.update(part);
        }
        let mut out = [0; KEY_LEN];
        out.copy_from_slice(message.sign().as_ref());
        out
    }

    /// `context`: what the message belongs to; each part counts by itself.
    ///
    /// Errors: [`Error::Random`].
    pub fn seal(&self, context: &[&str], text: &[u8]) -> Result<Vec<u8>, Error> {
        let context = framed(context);
        let fresh = random::<SALT_LEN>()?;
        let mac = hmac::Key::new(
            hmac::HMAC_SHA256,
            &hkdf(&self.0[..], &[], &[LABEL, b"salt"])[..],
        );
        let mut message = hmac::Context::with_key(&mac);
        for part in [&fresh[..], &context, text] {
            message.update(&(part.len() as u64).to_le_bytes());
            message.update(part);
        }
        let salt = message.sign();
        let mut sealed = Zeroizing::new(text.to_vec());
        self.message_key(salt.as_ref())
            .seal_in_place_append_tag(nonce(), aead::Aad::from(&context), &mut *sealed)
            .map_err(|_| Error::Random)?;
        let mut out = vec![VERSION];
        out.extend_from_slice(salt.as_ref());
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Errors: [`Error::Tag`] if the key or the context is another one, or the sealed message was changed.
    pub fn open(&self, context: &[&str], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let wrong = || Error::Tag {
            what: "the sealed secret",
        };
        let rest = sealed.strip_prefix(&[VERSION]).ok_or_else(wrong)?;
        let (salt, sealed) = rest.split_at_checked(SALT_LEN).ok_or_else(wrong)?;
        let context = framed(context);
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let plain = self
            .message_key(salt)
            .open_in_place(nonce(), aead::Aad::from(&context), &mut bytes)
            .map_err(|_| wrong())?;
        Ok(Zeroizing::new(plain.to_vec()))
    }

    fn message_key(&self, salt: &[u8]) -> aead::LessSafeKey {
        let key = hkdf(&self.0[..], salt, &[LABEL, b"message"]);
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, &key[..]);
        aead::LessSafeKey::new(key.expect("the key has 32 bytes"))
    }
}

/// Each key encrypts one message.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; 12])
}

/// The parts with their lengths: no two lists of parts have the same bytes.
fn framed(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_in_its_context_alone() {
        let key = ServiceKey::new().unwrap();
        let sealed = key.seal(&["ab", "c"], b"verysecret").unwrap();
        assert_eq!(&**key.open(&["ab", "c"], &sealed).unwrap(), b"verysecret");
        for context in [&["a", "bc"][..], &["ab"], &["ab", "c", ""], &["AB", "c"]] {
            assert!(key.open(context, &sealed).is_err(), "{context:?}");
        }
        let other = ServiceKey::new().unwrap();
        assert!(other.open(&["ab", "c"], &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open(&["ab", "c"], &changed).is_err(), "{at}");
            assert!(key.open(&["ab", "c"], &sealed[..at]).is_err(), "{at}");
        }
        assert_ne!(sealed, key.seal(&["ab", "c"], b"verysecret").unwrap());
        assert!(!sealed.windows(6).any(|six| six == b"secret"));
        assert_eq!(format!("{key:?}"), "ServiceKey");
    }

    #[test]
    fn the_key_is_read_from_its_line_and_from_no_other() {
        let key = ServiceKey::new().unwrap();
        let sealed = key.seal(&[], b"x").unwrap();
        let again = ServiceKey::of_line(&key.line()).unwrap();
        assert_eq!(&**again.open(&[], &sealed).unwrap(), b"x");
        let line = key.line();
        let (word, digits) = line.trim_end().split_once(' ').unwrap();
        for wrong in [
            "",
            word,
            &digits[1..],
            &line[..line.len() - 2],
            &format!("{word}  {digits}"),
            &format!("{word} {digits}0"),
            &format!(
                "{word} {}",
                digits.replace(|c: char| c.is_ascii_digit(), "x")
            ),
            &format!("{word} {}", "é".repeat(32)),
        ] {
            assert!(ServiceKey::of_line(wrong).is_none(), "{wrong}");
        }
    }
}
