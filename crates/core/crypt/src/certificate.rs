//! Certificates (X.509): the public key of a recipient, with a name and a time.
//!
//! Invariants
//! - A certificate is taken for what its bytes say; nobody's signature on it is asked for. The person who
//!   stores one vouches for it.
//! - Bytes behind a certificate are refused.
//!
//! Leaves to others: where certificates are kept and what binds them (`longshore-catalog`), and whether one has expired
//! (the callers).

use jiff::SignedDuration;
use jiff::civil::DateTime;
use zeroize::Zeroizing;

use crate::der::{self, Element, Reader};
use crate::pkcs8::{FILE_MAX, armored};
use crate::rsa::CertificateKey;
use crate::text::Thumbprint;
use crate::{Error, PrivateKey, random};

/// Bytes of a new serial number.
const SERIAL_LEN: usize = 16;
/// The most bytes of one that is read.
const SERIAL_MAX: usize = 32;
/// The most characters of a new certificate's subject.
pub const SUBJECT_MAX: usize = 128;
/// Parts of a name that are read.
const NAME_PARTS_MAX: usize = 32;

const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The last byte of the identifier of other parts of a name, and how they are written.
const NAME_PARTS: &[(u8, &str)] = &[
    (3, "CN"),
    (5, "SERIALNUMBER"),
    (6, "C"),
    (7, "L"),
    (8, "S"),
    (9, "STREET"),
    (10, "O"),
    (11, "OU"),
    (12, "T"),
];
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A certificate with an RSA key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    public: CertificateKey,
    /// As numbers are written: the first byte is the highest.
    pub serial: Vec<u8>,
    pub issuer: String,
    pub subject: String,
    /// Seconds since 1970, like the next one.
    pub start_s: i64,
    pub expiry_s: i64,
}

fn wrong(what: &'static str) -> Error {
    Error::Certificate { what }
}

impl Certificate {
    /// A new certificate that `key` signs for itself.
    ///
    /// `subject`: 1 to [`SUBJECT_MAX`] characters; `CN=` before it may be left out. Times are seconds since 1970.
    ///
    /// Errors: [`Error::Certificate`] for another subject, and for a time before 1950 or after 9999; [`Error::Random`].
    pub fn new(
        key: &PrivateKey,
        subject: &str,
        (start_s, expiry_s): (i64, i64),
    ) -> Result<Certificate, Error> {
        let name = match subject.split_at_checked(3) {
            Some((prefix, name)) if prefix.eq_ignore_ascii_case("CN=") => name,
            _ => subject,
        };
        let len = name.chars().count();
        if len == 0 || len > SUBJECT_MAX || name.contains('\0') {
            return Err(wrong("its subject has not 1 to 128 characters"));
        }
        let mut serial = random::<SERIAL_LEN>()?;
        serial[0] = serial[0] & 0x7f | 0x40;
        let sequence = |parts: &[&[u8]]| der::value(der::SEQUENCE, parts);
        let oid = |oid| der::value(der::OID, &[oid]);
        let way = sequence(&[&oid(SHA256_WITH_RSA), &der::value(der::NULL, &[])]);
        let text = der::value(der::UTF8_STRING, &[name.as_bytes()]);
        let part = sequence(&[&oid(COMMON_NAME), &text]);
        let name = sequence(&[&der::value(der::SET, &[&part])]);
        let times = sequence(&[&time(start_s)?, &time(expiry_s)?]);
        let parts: &[&[u8]] = &[
            &der::number(&serial[..]),
            &way,
            &name,
            &times,
            &name,
            key.public().der(),
        ];
        let signed = sequence(parts);
        let signature = der::bits(&key.sign(&signed)?);
        Certificate::of_der(&sequence(&[&signed, &way, &signature]))
    }

    /// Reads a certificate's file: PEM or DER.
    ///
    /// Errors: [`Error::Certificate`].
    pub fn of_file(file: &[u8]) -> Result<Certificate, Error> {
        if file.len() > FILE_MAX {
            return Err(wrong("its file is longer than 64 KiB"));
        }
        let content = armored(file, "CERTIFICATE");
        Certificate::of_der(content.as_deref().map_or(file, Vec::as_slice))
    }

    /// Errors: [`Error::Certificate`].
    pub fn of_der(der: &[u8]) -> Result<Certificate, Error> {
        let read = Parts::of(der).ok_or(wrong("it is no X.509 certificate, or is damaged"))?;
        Ok(Certificate {
            der: der.to_vec(),
            public: CertificateKey::of_spki(read.key).map_err(wrong)?,
            serial: read.serial.to_vec(),
            issuer: read.issuer,
            subject: read.subject,
            start_s: read.start_s,
            expiry_s: read.expiry_s,
        })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn public(&self) -> &CertificateKey {
        &self.public
    }

    /// The SHA-1 of the whole certificate: what SQL Server calls its thumbprint.
    pub fn thumbprint(&self) -> Thumbprint {
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &self.der);
        let mut out = Thumbprint::default();
        out.copy_from_slice(digest.as_ref());
        out
    }
}

/// Whether a file may be one of a certificate, rather than one of recipients.
pub fn is_certificate(file: &[u8]) -> bool {
    file.first() == Some(&der::SEQUENCE) || armored(file, "CERTIFICATE").is_some()
}

/// The parts of a certificate that are used.
struct Parts<'a> {
    serial: &'a [u8],
    issuer: String,
    subject: String,
    start_s: i64,
    expiry_s: i64,
    key: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(der: &'a [u8]) -> Option<Parts<'a>> {
        let mut outer = Reader::new(der);
        let mut whole = outer.inside(der::SEQUENCE)?;
        let mut signed = whole.inside(der::SEQUENCE)?;
        whole.take(der::SEQUENCE)?;
        whole.take(der::BIT_STRING)?;
        outer.end().and(whole.end())?;
        if let Some(version) = signed.take_if(der::CONTEXT_0)? {
            (Reader::new(version).small()? <= 2).then_some(())?;
        }
        let serial = signed.take(der::INTEGER)?;
        (!serial.is_empty() && serial.len() <= SERIAL_MAX).then_some(())?;
        signed.take(der::SEQUENCE)?;
        let issuer = name_text(signed.inside(der::SEQUENCE)?)?;
        let mut times = signed.inside(der::SEQUENCE)?;
        let start_s = seconds_of(times.any()?)?;
        let expiry_s = seconds_of(times.any()?)?;
        let subject = name_text(signed.inside(der::SEQUENCE)?)?;
        let key = signed.any()?;
        (key.tag == der::SEQUENCE).then_some(())?;
        times.end()?;
        Some(Parts {
            serial,
            issuer,
            subject,
            start_s,
            expiry_s,
            key: key.whole,
        })
    }
}

/// A name as a text: the common name alone, if there is nothing else.
fn name_text(mut name: Reader) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let mut set = name.inside(der::SET)?;
        while !set.is_empty() {
            let mut part = set.inside(der::SEQUENCE)?;
            let oid = part.take(der::OID)?;
            let value = text_of(part.any()?)?;
            part.end()?;
            let known = oid.strip_prefix(&[0x55, 0x04]);
            let known = known.and_then(|last| NAME_PARTS.iter().find(|(n, _)| [*n] == *last));
            parts.push((known.map_or("OID", |(_, word)| *word), value));
            (parts.len() <= NAME_PARTS_MAX).then_some(())?;
        }
    }
    match parts.as_slice() {
        [("CN", name)] => Some(name.clone()),
        parts => {
            let parts = parts.iter().map(|(word, value)| format!("{word}={value}"));
            Some(parts.collect::<Vec<_>>().join(", "))
        }
    }
}

fn text_of(value: Element) -> Option<String> {
    match value.tag {
        der::UTF8_STRING | der::PRINTABLE_STRING | der::IA5_STRING => {
            std::str::from_utf8(value.content).ok().map(str::to_owned)
        }
        // Latin-1, as everybody uses it.
        der::TELETEX_STRING => Some(value.content.iter().map(|b| char::from(*b)).collect()),
        der::BMP_STRING => {
            let (pairs, rest) = value.content.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            rest.is_empty().then(|| String::from_utf16(&units).ok())?
        }
        _ => None,
    }
}

/// Seconds since 1970 of a time in UTC.
fn seconds_of(value: Element) -> Option<i64> {
    let text = std::str::from_utf8(value.content).ok()?;
    let digits = text.strip_suffix('Z')?;
    // Only after this, every place is the beginning of a character.
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    let (year, rest) = match (value.tag, digits.len()) {
        (der::UTC_TIME, 12) => (2, &digits[2..]),
        (der::GENERALIZED_TIME, 14) => (4, &digits[4..]),
        _ => return None,
    };
    let number = |text: &str| text.parse::<i64>().ok();
    let year = match (year, number(&digits[..year])?) {
        (2, short @ 0..50) => short + 2000,
        (2, short) => short + 1900,
        (_, year) => year,
    };
    let two = |at: usize| number(&rest[at..at + 2]).and_then(|n| i8::try_from(n).ok());
    let year = i16::try_from(year).ok()?;
    let at = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, two(8)?, 0).ok()?;
    Some(at.duration_since(EPOCH).as_secs())
}

fn time(at_s: i64) -> Result<Zeroizing<Vec<u8>>, Error> {
    let at = EPOCH.checked_add(SignedDuration::from_secs(at_s)).ok();
    let (tag, form) = match at.map(DateTime::year) {
        Some(1950..2050) => (der::UTC_TIME, "%y%m%d%H%M%SZ"),
        Some(2050..=9999) => (der::GENERALIZED_TIME, "%Y%m%d%H%M%SZ"),
        _ => return Err(wrong("its times are not between the years 1950 and 9999")),
    };
    let text = at.map_or_else(String::new, |at| at.strftime(form).to_string());
    Ok(der::value(tag, &[text.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_certificate_says_what_it_was_made_of() {
        let key = PrivateKey::generate().unwrap();
        let times = (1_790_000_000, 2_600_000_000);
        for (subject, said) in [("Käse 1", "Käse 1"), ("cn=x", "x"), ("O=x", "O=x")] {
            let made = Certificate::new(&key, subject, times).unwrap();
            assert_eq!((made.start_s, made.expiry_s), times);
            assert_eq!((&*made.subject, &*made.issuer), (said, said));
            assert_eq!(made.public(), key.public());
            assert_eq!(Certificate::of_file(made.der()).unwrap(), made);
        }
        let long = "x".repeat(SUBJECT_MAX + 1);
        for wrong in ["", "CN=", &long, "a\0b"] {
            assert!(Certificate::new(&key, wrong, times).is_err(), "{wrong}");
        }
        assert!(Certificate::new(&key, "x", (0, i64::MAX / 86_400)).is_err());
    }

    #[test]
    fn no_change_of_a_certificate_makes_a_panic_or_a_longer_one() {
        let key = PrivateKey::generate().unwrap();
        let made = Certificate::new(&key, "x", (0, 1)).unwrap();
        for at in 0..made.der().len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = made.der().to_vec();
                changed[at] ^= mask;
                if let Ok(read) = Certificate::of_der(&changed) {
                    assert_ne!(read.thumbprint(), made.thumbprint(), "byte {at}");
                }
            }
            assert!(Certificate::of_der(&made.der()[..at]).is_err(), "byte {at}");
        }
        assert!(Certificate::of_der(&[made.der(), &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_was_written(at_s in -631_152_000_i64..253_402_300_800) {
            let written = time(at_s).unwrap();
            prop_assert_eq!(seconds_of(Reader::new(&written).any().unwrap()), Some(at_s));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Certificate::of_file(&bytes);
        }
    }

    #[test]
    fn a_time_of_other_characters_is_none() {
        for (tag, text) in [
            (der::UTC_TIME, "261127120000Z"),
            (der::GENERALIZED_TIME, "20261127120000Z"),
        ] {
            let of = |text: &str| {
                let written = der::value(tag, &[text.as_bytes()]);
                seconds_of(Reader::new(&written).any().unwrap())
            };
            assert_eq!(of(text), Some(20_784 * 86_400 + 43_200));
            for at in 0..text.len() - 2 {
                let odd = format!("{}\u{e9}{}", &text[..at], &text[at + 2..]);
                assert_eq!(of(&odd), None, "{odd}");
            }
        }
    }
}
