//! When a certificate ends: the one field of X.509 that a monitor needs.
//!
//! Invariants
//! - Nothing relies on it: clients judge certificates by themselves.
//! - Any bytes may be given; those that are no certificate have no end.
//!
//! Leaves to others: reading the file (`tls.rs`), and telling monitors (`http/status.rs`).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which an old one lacks.
const VERSION: u8 = 0xa0;

/// `notAfter` of a certificate in DER (RFC 5280, 4.1), in microseconds since the Unix epoch.
pub fn end_us(certificate: &[u8]) -> Option<i64> {
    let (signed, _) = inside(certificate)?;
    let (mut fields, _) = inside(signed)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // The serial number, the algorithm and the issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (validity, _) = inside(fields)?;
    let (_, _, after) = element(validity)?;
    let (kind, text, _) = element(after)?;
    moment_us(kind, str::from_utf8(text).ok()?)
}

/// The content of a sequence, and the bytes after it.
fn inside(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (kind, content, rest) = element(bytes)?;
    (kind == SEQUENCE).then_some((content, rest))
}

/// The kind and the content of the first element, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let len = digits
                .iter()
                .fold(0, |len, byte| len << 8 | usize::from(*byte));
            (len, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((kind, content, rest))
}

/// `YYMMDDHHMMSSZ`, of the years 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn moment_us(kind: u8, text: &str) -> Option<i64> {
    let text = match kind {
        UTC_TIME => {
            let century = if text.get(..2)? < "50" { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let moment = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    let moment = moment.to_zoned(TimeZone::UTC).ok()?;
    Some(moment.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(year: i32) -> Vec<u8> {
        let names = ["localhost".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 3, 4);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// Goal: both forms of a time are read, on both sides of the year that separates them.
    #[test]
    fn the_end_of_a_certificate_is_what_its_maker_wrote() {
        for (year, seconds) in [
            (2001, 983_664_000),
            (2027, 1_804_118_400),
            (2049, 2_498_428_800),
            (2050, 2_529_964_800),
            (4000, 64_066_032_000),
        ] {
            assert_eq!(end_us(&ends(year)), Some(seconds * 1_000_000), "{year}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_end() {
        let whole = ends(2027);
        let end = whole.windows(13).position(|w| w == b"270304000000Z");
        let end = end.unwrap() + 13;
        for len in 0..end {
            assert_eq!(end_us(&whole[..len]), None, "{len}");
        }
        for at in 0..end {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _any = end_us(&damaged);
            }
        }
    }
}
