//! Signatures: they show who wrote a set or a file of WAL.
//!
//! Recipients are public, so everybody can encrypt for them. A signature (Ed25519) is made with a key that the writer's
//! machine alone has, and each reader knows its other half.
//!
//! Invariants
//! - A message that is signed names its kind, so a signature of a set is none of a file of WAL.
//! - One text of a signer is one key: other encodings of its point, and points of small order, are no signers.
//! - A signature by a signer who is not trusted counts as none where signatures are required.
//! - The secret half is in no message and no `Debug`.
//!
//! Leaves to others: where signatures stand (`longshore-media`, `longshore-wal`), and who is trusted (configuration).

use std::str::FromStr;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use zeroize::Zeroizing;

use crate::roots::{Root, digest_of};
use crate::{Error, KEY_LEN, Secret, random, text};

/// Bytes of a signer's public key.
pub const SIGNER_LEN: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// The most signers that a reader trusts.
pub const SIGNERS_MAX: usize = 32;
/// The number of Ed25519 where a set says how it is signed.
pub const SIGNATURE_KIND: u8 = 1;

const PUBLIC: &str = "lssigner";
const SECRET: &str = text::SIGNING_KEY;

/// What is signed: digests of everything that it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    Set { header: Root, root: Root },
    Wal(Root),
}

impl Signed {
    /// A set whose header has this body.
    pub fn set(header: &[u8], root: &Root) -> Signed {
        Signed::Set {
            header: digest_of(header),
            root: *root,
        }
    }

    /// An encrypted file of WAL: its head's body, its Keys records as they are framed, and its end's body before the
    /// signature. The key that the records commit to proves the blocks between them.
    pub fn wal(head: &[u8], keys: &[u8], end: &[u8]) -> Signed {
        let mut all = Vec::with_capacity(head.len() + keys.len() + end.len() + 12);
        for part in [head, keys, end] {
            all.extend_from_slice(&(part.len() as u32).to_le_bytes());
            all.extend_from_slice(part);
        }
        Signed::Wal(digest_of(&all))
    }

    fn message(&self) -> Vec<u8> {
        match self {
            Signed::Set { header, root } => [b"longshore/1/signature", &header[..], root].concat(),
            Signed::Wal(digest) => [b"longshore/1/wal-signature", &digest[..]].concat(),
        }
    }
}

/// The public half of a signing key: `lssigner1…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signer([u8; SIGNER_LEN]);

impl Signer {
    pub fn from_bytes(bytes: [u8; SIGNER_LEN]) -> Signer {
        Signer(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; SIGNER_LEN] {
        &self.0
    }

    /// Whether it is the one encoding of its point, and the point is none of the eight of small order, under which a
    /// signature may hold for any message.
    fn is_sound(&self) -> bool {
        let mut y = self.0;
        y[SIGNER_LEN - 1] &= 0x7f;
        let is_below_prime = y[SIGNER_LEN - 1] != 0x7f
            || y[0] < 0xed
            || y[1..SIGNER_LEN - 1].iter().any(|b| *b != 0xff);
        is_below_prime && !SMALL_ORDER.contains(&y)
    }
}

/// The second coordinates of the points of small order.
const SMALL_ORDER: [[u8; SIGNER_LEN]; 5] = {
    let mut one = [0; SIGNER_LEN];
    one[0] = 1;
    let mut minus_one = [0xff; SIGNER_LEN];
    minus_one[0] = 0xec;
    minus_one[SIGNER_LEN - 1] = 0x7f;
    let eighth = [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ];
    let minus_eighth = [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ];
    [[0; SIGNER_LEN], one, minus_one, eighth, minus_eighth]
};

impl std::fmt::Display for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text::encode(PUBLIC, &self.0))
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Signer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Signer, Error> {
        let bad = |what| Error::Signer { what };
        if text::is_secret(text) {
            return Err(bad(
                "this is a secret key; name the signer that `longshore key recipient FILE` prints",
            ));
        }
        let none =
            || bad("a signer begins with lssigner1, and its last characters are its checksum");
        let (prefix, data) = text::decode(text).ok_or_else(none)?;
        let key = <[u8; SIGNER_LEN]>::try_from(&data[..]).map_err(|_| none())?;
        match prefix == PUBLIC {
            true if Signer(key).is_sound() => Ok(Signer(key)),
            true => Err(bad("everybody could sign for this one")),
            false => Err(none()),
        }
    }
}

/// A signature, and by whom it claims to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    pub signer: Signer,
    pub bytes: [u8; SIGNATURE_LEN],
}

impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a signature of {}", self.signer)
    }
}

impl Signature {
    /// Whether its signer made it for this. `ring` takes one encoding of a signature alone.
    pub fn is_of(&self, what: &Signed) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.signer.0);
        self.signer.is_sound() && key.verify(&what.message(), &self.bytes).is_ok()
    }
}

/// The secret half.
pub struct SigningKey {
    seed: Secret,
    pair: Ed25519KeyPair,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the signing key of {}", self.signer())
    }
}

impl SigningKey {
    /// Errors: [`Error::Random`].
    pub fn new() -> Result<SigningKey, Error> {
        SigningKey::of_seed(random::<KEY_LEN>()?).ok_or(Error::Random)
    }

    fn of_seed(seed: Secret) -> Option<SigningKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed[..]).ok()?;
        Some(SigningKey { seed, pair })
    }

    /// The line of its file, a secret.
    pub fn line(&self) -> Zeroizing<String> {
        let lower = Zeroizing::new(text::encode(SECRET, &self.seed[..]));
        Zeroizing::new(lower.to_uppercase())
    }

    /// Reads a file of one signing key; lines that begin with `#` mean nothing.
    ///
    /// Errors: [`Error::Identity`].
    pub fn parse(file: &str) -> Result<SigningKey, Error> {
        let bad = |line, what| Error::Identity { line, what };
        let mut found = None;
        for (n, line) in file.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if found.is_some() {
                return Err(bad(n + 1, "a file has one signing key"));
            }
            let none = || bad(n + 1, "it is no signing key (LONGSHORE-SIGNING-KEY-1…)");
            let (prefix, data) = text::decode(line).ok_or_else(none)?;
            let mut seed = Secret::default();
            if prefix != SECRET || data.len() != seed.len() {
                return Err(none());
            }
            seed.copy_from_slice(&data);
            found = Some(SigningKey::of_seed(seed).ok_or_else(none)?);
        }
        found.ok_or(bad(1, "the file has no signing key"))
    }

    /// Whether the first line that means something begins like a signing key.
    pub fn is_in(file: &str) -> bool {
        let lines = file.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.next().is_some_and(|line| {
            let begin = line.get(..SECRET.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(SECRET))
        })
    }

    pub fn signer(&self) -> Signer {
        let mut name = [0; SIGNER_LEN];
        name.copy_from_slice(self.pair.public_key().as_ref());
        Signer(name)
    }

    pub fn sign(&self, what: &Signed) -> Signature {
        let mut bytes = [0; SIGNATURE_LEN];
        bytes.copy_from_slice(self.pair.sign(&what.message()).as_ref());
        Signature {
            signer: self.signer(),
            bytes,
        }
    }
}

/// The signature that a set or a file of WAL says that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoredSignature {
    #[default]
    None,
    Ed25519(Signature),
    /// Of a kind that this version does not know.
    Unknown(u8),
}

/// Whose a set or a file of WAL is, as far as its signature tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureState {
    #[error("it is not signed")]
    Unsigned,
    #[error("its signature is of kind {0}, which this version does not know")]
    Unknown(u8),
    #[error("its signature is not of what it holds, or not by {0}")]
    Wrong(Signer),
    #[error("it is signed by {0}, who is not trusted here")]
    Stranger(Signer),
    #[error("it is signed by {0}")]
    Trusted(Signer),
}

impl SignatureState {
    /// Its signer, trusted or not.
    pub fn signer(&self) -> Option<Signer> {
        match self {
            SignatureState::Stranger(signer) | SignatureState::Trusted(signer) => Some(*signer),
            SignatureState::Unsigned | SignatureState::Unknown(_) | SignatureState::Wrong(_) => {
                None
            }
        }
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            SignatureState::Unsigned => "unsigned",
            SignatureState::Unknown(_) => "unknown kind",
            SignatureState::Wrong(_) => "wrong",
            SignatureState::Stranger(_) => "not trusted",
            SignatureState::Trusted(_) => "trusted",
        }
    }
}

/// Whom a reader trusts.
#[derive(Debug, Clone, Default)]
pub struct Signers {
    trusted: Vec<Signer>,
    required: bool,
}

impl Signers {
    /// `required`: what is not signed by one of them is refused.
    ///
    /// Errors: [`Error::Signer`] for more than [`SIGNERS_MAX`], and for none where one is required.
    pub fn new(trusted: Vec<Signer>, required: bool) -> Result<Signers, Error> {
        if trusted.len() > SIGNERS_MAX {
            let what = "a reader trusts at most 32 signers";
            return Err(Error::Signer { what });
        }
        if trusted.is_empty() && required {
            let what = "signatures are required, and nobody is trusted";
            return Err(Error::Signer { what });
        }
        Ok(Signers { trusted, required })
    }

    /// Whether what is not signed by one of them is refused.
    pub fn required(&self) -> bool {
        self.required
    }

    /// All who are trusted.
    pub fn list(&self) -> &[Signer] {
        &self.trusted
    }

    /// Whether anybody is trusted, so that signatures are worth a look.
    pub fn any(&self) -> bool {
        !self.trusted.is_empty()
    }

    pub fn trusts(&self, signer: &Signer) -> bool {
        self.trusted.contains(signer)
    }

    pub fn judge(&self, what: &Signed, claim: &StoredSignature) -> SignatureState {
        match claim {
            StoredSignature::None => SignatureState::Unsigned,
            StoredSignature::Unknown(kind) => SignatureState::Unknown(*kind),
            StoredSignature::Ed25519(signature) if !signature.is_of(what) => {
                SignatureState::Wrong(signature.signer)
            }
            StoredSignature::Ed25519(signature) if self.trusts(&signature.signer) => {
                SignatureState::Trusted(signature.signer)
            }
            StoredSignature::Ed25519(signature) => SignatureState::Stranger(signature.signer),
        }
    }

    /// Whether this is refused here. A wrong signature always is: no fault of a medium makes one, as checksums find those.
    pub fn refuse(&self, standing: &SignatureState) -> bool {
        match standing {
            SignatureState::Trusted(_) => false,
            SignatureState::Wrong(_) => true,
            SignatureState::Unsigned | SignatureState::Unknown(_) | SignatureState::Stranger(_) => {
                self.required
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusting(key: &SigningKey, required: bool) -> Signers {
        Signers::new(vec![key.signer()], required).unwrap()
    }

    #[test]
    fn a_signature_is_of_one_signer_one_kind_and_one_content() {
        let (own, other) = (SigningKey::new().unwrap(), SigningKey::new().unwrap());
        let what = Signed::set(b"header", &[7; 32]);
        let signature = own.sign(&what);
        assert_eq!(signature, own.sign(&what), "it depends on nothing else");
        let signers = trusting(&own, true);
        let judged =
            |what: &Signed, signature| signers.judge(what, &StoredSignature::Ed25519(signature));
        assert_eq!(
            judged(&what, signature),
            SignatureState::Trusted(own.signer())
        );
        let wrong = SignatureState::Wrong(own.signer());
        for another in [
            Signed::set(b"header", &[8; 32]),
            Signed::set(b"Header", &[7; 32]),
            Signed::wal(b"header", &[], &[7; 32]),
            Signed::Wal([7; 32]),
        ] {
            assert_eq!(judged(&another, signature), wrong);
        }
        for bit in 0..SIGNATURE_LEN * 8 {
            let mut changed = signature;
            changed.bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(judged(&what, changed), wrong, "bit {bit}");
        }
        let strange = other.sign(&what);
        assert_eq!(
            judged(&what, strange),
            SignatureState::Stranger(other.signer())
        );
        // The stranger's signature under the trusted name.
        let forged = Signature {
            signer: own.signer(),
            ..strange
        };
        assert_eq!(judged(&what, forged), wrong);
        assert_eq!(
            signers.judge(&what, &StoredSignature::None),
            SignatureState::Unsigned
        );
        assert_eq!(
            signers.judge(&what, &StoredSignature::Unknown(9)),
            SignatureState::Unknown(9)
        );
    }

    #[test]
    fn only_a_trusted_signature_passes_where_one_is_required_and_a_wrong_one_nowhere() {
        let key = SigningKey::new().unwrap();
        let (strict, open) = (trusting(&key, true), Signers::default());
        let signer = key.signer();
        for (standing, refused) in [
            (SignatureState::Trusted(signer), (false, false)),
            (SignatureState::Stranger(signer), (true, false)),
            (SignatureState::Unsigned, (true, false)),
            (SignatureState::Unknown(2), (true, false)),
            (SignatureState::Wrong(signer), (true, true)),
        ] {
            let found = (strict.refuse(&standing), open.refuse(&standing));
            assert_eq!(found, refused, "{standing:?}");
        }
        assert!(Signers::new(Vec::new(), true).is_err());
        assert!(Signers::new(vec![signer; SIGNERS_MAX + 1], false).is_err());
    }

    /// The order of the group, little-endian: a signature's second half is below it.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];

    #[test]
    fn a_signature_has_one_encoding() {
        let key = SigningKey::new().unwrap();
        let what = Signed::Wal([1; 32]);
        let mut second = key.sign(&what);
        let mut carry = 0;
        for (byte, order) in second.bytes[32..].iter_mut().zip(ORDER) {
            let sum = u16::from(*byte) + u16::from(order) + carry;
            (*byte, carry) = (sum as u8, sum >> 8);
        }
        assert!(key.sign(&what).is_of(&what) && !second.is_of(&what));
    }

    #[test]
    fn a_point_of_small_order_and_a_second_encoding_are_no_signers() {
        for y in SMALL_ORDER {
            for sign in [0, 0x80] {
                let mut weak = y;
                weak[SIGNER_LEN - 1] |= sign;
                let text = Signer(weak).to_string();
                assert!(text.parse::<Signer>().is_err(), "{text}");
                // The neutral point as signer and as nonce, and the scalar 0, hold for every message.
                let mut bytes = [0; SIGNATURE_LEN];
                bytes[0] = 1;
                let signature = Signature {
                    signer: Signer(weak),
                    bytes,
                };
                assert!(!signature.is_of(&Signed::Wal([0; 32])));
            }
        }
        for low in 0xed..=0xff {
            let mut above = [0xff; SIGNER_LEN];
            (above[0], above[SIGNER_LEN - 1]) = (low, 0x7f);
            assert!(!Signer(above).is_sound());
        }
    }

    /// RFC 8032, section 7.1, test 3.
    #[test]
    fn it_is_the_ed25519_of_the_standard() {
        let seed = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7";
        let name = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
        let signature = "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
                         18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a";
        let bytes = |hex: &str| -> Vec<u8> {
            let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(digit).collect()
        };
        let mut secret = Secret::default();
        secret.copy_from_slice(&bytes(seed));
        let key = SigningKey::of_seed(secret).unwrap();
        assert_eq!(key.signer().as_bytes()[..], bytes(name));
        assert_eq!(key.pair.sign(&[0xaf, 0x82]).as_ref(), bytes(signature));
    }

    #[test]
    fn keys_are_texts_and_a_secret_one_is_shown_nowhere() {
        let key = SigningKey::new().unwrap();
        let line = key.line();
        assert!(
            line.starts_with("LONGSHORE-SIGNING-KEY-1"),
            "{}",
            &line[..24]
        );
        let file = format!("# a comment\n\n{}\n", &*line);
        let read = SigningKey::parse(&file).unwrap();
        assert_eq!(read.signer(), key.signer());
        let name = key.signer().to_string();
        assert!(name.starts_with("lssigner1"), "{name}");
        assert_eq!(name.parse::<Signer>(), Ok(key.signer()));
        assert!(text::is_secret(&line) && !format!("{key:?}").contains(&**line));
        for wrong in ["", "# nothing\n", &name, &format!("{file}{file}"), "x"] {
            let error = SigningKey::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains(&**line), "{error}");
        }
        let error = line.parse::<Signer>().unwrap_err().to_string();
        assert!(error.contains("secret") && !error.contains(&**line));
        assert!("age1qq".parse::<Signer>().is_err());
        // One character changed, as by a hand.
        for at in "lssigner1".len()..name.len() {
            let mut other = name.clone().into_bytes();
            other[at] = if other[at] == b'q' { b'p' } else { b'q' };
            let other = String::from_utf8(other).unwrap();
            assert!(other.parse::<Signer>().is_err(), "{other}");
        }
    }
}
