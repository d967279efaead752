//! Keys of certificates: RSA, and a set's key wrapped for one.
//!
//! Invariants
//! - No key of fewer than 2048 bits is made, read or used, and none of more than 8192.
//! - A public key has one encoding, and with it one key id.
//! - Whether a wrapped key was malformed shows in no answer and in no time: the library decides in constant time, and every
//!   failure is the same `None`.
//! - `Debug` shows nothing secret.
//!
//! Leaves to others: files of keys (`pkcs8.rs`), certificates (`certificate.rs`), and whether an unwrapped key is right
//! (`set.rs`).

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, OaepPublicEncryptingKey,
    PrivateDecryptingKey, PublicEncryptingKey,
};
use aws_lc_rs::{rand, signature};
use zeroize::Zeroizing;

use crate::text::{THUMBPRINT_LEN, Thumbprint};
use crate::{Error, KEY_LEN, Secret};

/// The shortest and the longest key, in bits.
const BITS_MIN: usize = 2048;
const BITS_MAX: usize = 8192;
/// Bytes of a key id.
pub const KEY_ID_LEN: usize = 20;
/// The number of RSA-OAEP with SHA-256 in a slot.
const OAEP: u16 = 1;
/// Bytes of a slot before the wrapped key.
const HEAD_LEN: usize = 2 + KEY_ID_LEN + THUMBPRINT_LEN;

/// The first 20 bytes of the SHA-256 of a public key, as a certificate has it (SubjectPublicKeyInfo).
pub type KeyId = [u8; KEY_ID_LEN];

/// A public key of a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateKey {
    /// SubjectPublicKeyInfo.
    der: Vec<u8>,
    bits: usize,
}

impl std::fmt::Debug for CertificateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CertificateKey({} bits)", self.bits)
    }
}

impl CertificateKey {
    /// Reads a SubjectPublicKeyInfo. The error says what is wrong.
    pub(crate) fn of_spki(der: &[u8]) -> Result<CertificateKey, &'static str> {
        let key = PublicEncryptingKey::from_der(der)
            .map_err(|_| "its key is no RSA key of 2048 to 8192 bits")?;
        let bits = check_bits(key.key_size_bits())?;
        match AsDer::<PublicKeyX509Der>::as_der(&key) {
            Ok(again) if again.as_ref() == der => Ok(CertificateKey {
                der: der.to_vec(),
                bits,
            }),
            _ => Err("its key is not encoded as DER asks"),
        }
    }

    /// The SubjectPublicKeyInfo.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn bits(&self) -> usize {
        self.bits
    }

    pub fn id(&self) -> KeyId {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.der);
        let mut id = [0; KEY_ID_LEN];
        id.copy_from_slice(&digest.as_ref()[..KEY_ID_LEN]);
        id
    }

    /// The bytes of a slot. `thumbprint`: of the certificate that the key is from.
    pub(crate) fn wrap(&self, secret: &Secret, thumbprint: &Thumbprint) -> Result<Vec<u8>, Error> {
        let unusable = Error::Certificate {
            what: "its key cannot encrypt",
        };
        let key = PublicEncryptingKey::from_der(&self.der)
            .ok()
            .and_then(|key| OaepPublicEncryptingKey::new(key).ok());
        let Some(key) = key else {
            return Err(unusable);
        };
        let mut out = Vec::with_capacity(HEAD_LEN + key.ciphertext_size());
        out.extend_from_slice(&OAEP.to_le_bytes());
        out.extend_from_slice(&self.id());
        out.extend_from_slice(thumbprint);
        let mut wrapped = vec![0; key.ciphertext_size()];
        let wrapped = key
            .encrypt(&OAEP_SHA256_MGF1SHA256, &secret[..], &mut wrapped, None)
            .map_err(|_| unusable)?;
        out.extend_from_slice(wrapped);
        Ok(out)
    }
}

fn check_bits(bits: usize) -> Result<usize, &'static str> {
    match bits {
        BITS_MIN..=BITS_MAX => Ok(bits),
        _ => Err("its RSA key has not 2048 to 8192 bits"),
    }
}

/// A slot of a certificate, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateSlot<'a> {
    pub key_id: KeyId,
    pub thumbprint: Thumbprint,
    wrapped: &'a [u8],
}

impl<'a> CertificateSlot<'a> {
    /// `None`: it is malformed, or wrapped in another way.
    pub fn of(bytes: &'a [u8]) -> Option<CertificateSlot<'a>> {
        let (head, wrapped) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let (way, ids) = head.split_first_chunk::<2>()?;
        let (key_id, thumbprint) = ids.split_first_chunk::<KEY_ID_LEN>()?;
        let is_of_a_key = wrapped.len() >= BITS_MIN / 8 && wrapped.len() <= BITS_MAX / 8;
        (u16::from_le_bytes(*way) == OAEP && is_of_a_key).then_some(CertificateSlot {
            key_id: *key_id,
            thumbprint: thumbprint.try_into().ok()?,
            wrapped,
        })
    }
}

/// A private key.
#[derive(Clone)]
pub struct PrivateKey {
    /// PKCS#8, in the one encoding that the library writes.
    der: Arc<Zeroizing<Vec<u8>>>,
    public: CertificateKey,
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PrivateKey {
    /// A new key of 3072 bits, which takes a second or so.
    ///
    /// Errors: [`Error::Random`].
    pub fn generate() -> Result<PrivateKey, Error> {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa3072).map_err(|_| Error::Random)?;
        PrivateKey::of(&key).map_err(|_| Error::Random)
    }

    /// Reads a PKCS#8 PrivateKeyInfo that is not encrypted.
    ///
    /// Errors: [`Error::PrivateKey`].
    pub fn of_pkcs8(der: &[u8]) -> Result<PrivateKey, Error> {
        let key = PrivateDecryptingKey::from_pkcs8(der).map_err(|_| Error::PrivateKey {
            what: "it is no RSA key of 2048 to 8192 bits in PKCS#8",
        })?;
        PrivateKey::of(&key).map_err(|what| Error::PrivateKey { what })
    }

    /// The shortest key, which is made in less time.
    #[cfg(test)]
    pub(crate) fn short() -> PrivateKey {
        PrivateKey::of(&PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap()).unwrap()
    }

    fn of(key: &PrivateDecryptingKey) -> Result<PrivateKey, &'static str> {
        check_bits(key.key_size_bits())?;
        let public = AsDer::<PublicKeyX509Der>::as_der(&key.public_key());
        let der = AsDer::<Pkcs8V1Der>::as_der(key);
        let (Ok(public), Ok(der)) = (public, der) else {
            return Err("it cannot be encoded");
        };
        Ok(PrivateKey {
            der: Arc::new(Zeroizing::new(der.as_ref().to_vec())),
            public: CertificateKey::of_spki(public.as_ref())?,
        })
    }

    pub fn public(&self) -> &CertificateKey {
        &self.public
    }

    /// PKCS#8, not encrypted: a secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.der
    }

    /// The secret of a slot's bytes, if they are for this key.
    pub(crate) fn open(&self, slot: &[u8]) -> Option<Secret> {
        let slot = CertificateSlot::of(slot).filter(|slot| slot.key_id == self.public.id())?;
        let key = PrivateDecryptingKey::from_pkcs8(&self.der).ok()?;
        let key = OaepPrivateDecryptingKey::new(key).ok()?;
        let mut plain = Zeroizing::new(vec![0; key.min_output_size()]);
        let plain = key
            .decrypt(&OAEP_SHA256_MGF1SHA256, slot.wrapped, &mut plain, None)
            .ok()?;
        let plain = <&[u8; KEY_LEN]>::try_from(&*plain).ok()?;
        Some(Zeroizing::new(*plain))
    }

    /// RSASSA-PKCS1-v1_5 with SHA-256, as certificates are signed.
    ///
    /// Errors: [`Error::Random`].
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let key = signature::RsaKeyPair::from_pkcs8(&self.der).map_err(|_| Error::PrivateKey {
            what: "it cannot sign",
        })?;
        let mut out = vec![0; key.public_modulus_len()];
        let random = rand::SystemRandom::new();
        key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out)
            .map_err(|_| Error::Random)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn a_slot_opens_for_its_key_and_for_no_other_byte_of_it() {
        let key = PrivateKey::short();
        let other = PrivateKey::generate().unwrap();
        assert_eq!((key.public().bits(), other.public().bits()), (2048, 3072));
        let secret = random::<32>().unwrap();
        let slot = key.public().wrap(&secret, &[7; 20]).unwrap();
        assert_eq!(slot.len(), HEAD_LEN + 256);
        assert_eq!(key.open(&slot).as_ref(), Some(&secret));
        assert_eq!(other.open(&slot), None);
        let read = CertificateSlot::of(&slot).unwrap();
        assert_eq!((read.key_id, read.thumbprint), (key.public().id(), [7; 20]));
        for at in 0..slot.len() {
            let mut changed = slot.clone();
            changed[at] ^= 1;
            // The thumbprint is for people; the commitment of the set binds it.
            let expected = (22..HEAD_LEN).contains(&at).then_some(&secret);
            assert_eq!(key.open(&changed).as_ref(), expected, "byte {at}");
        }
        for len in [0, 1, 41, HEAD_LEN, slot.len() - 1] {
            assert_eq!(key.open(&slot[..len]), None, "{len} bytes");
        }
        let longer = [&slot[..], &[0]].concat();
        assert_eq!(key.open(&longer), None);
    }

    #[test]
    fn another_secret_than_a_sets_key_is_refused() {
        let key = PrivateKey::short();
        let public = PublicEncryptingKey::from_der(key.public().der()).unwrap();
        let public = OaepPublicEncryptingKey::new(public).unwrap();
        let slot = key
            .public()
            .wrap(&random::<32>().unwrap(), &[0; 20])
            .unwrap();
        for len in [0, 31, 33] {
            let mut wrapped = vec![0; 256];
            public
                .encrypt(&OAEP_SHA256_MGF1SHA256, &vec![1; len], &mut wrapped, None)
                .unwrap();
            let slot = [&slot[..HEAD_LEN], &wrapped].concat();
            assert_eq!(key.open(&slot), None, "{len} bytes");
        }
    }

    #[test]
    fn nothing_shows_a_key() {
        let key = PrivateKey::short();
        assert_eq!(format!("{key:?}"), "PrivateKey");
    }
}
