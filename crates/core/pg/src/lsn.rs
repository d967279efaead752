//! Log sequence numbers: positions in the WAL.

use std::fmt;
use std::str::FromStr;

/// A byte position in the WAL of one cluster. Printed as PostgreSQL prints it: `16/B374D848`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

impl FromStr for Lsn {
    type Err = String;

    /// Accepts `16/B374D848` and the zero-filled form of later major versions.
    fn from_str(s: &str) -> Result<Lsn, String> {
        let half = |t: &str| {
            let digits = (1..=8).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_hexdigit());
            digits.then(|| u64::from_str_radix(t, 16).ok()).flatten()
        };
        s.split_once('/')
            .and_then(|(high, low)| Some(Lsn(half(high)? << 32 | half(low)?)))
            .ok_or_else(|| format!("{s:?} is not an LSN; one looks like 16/B374D848"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_can_be_read() {
        for n in [0, 1, 0xffff_ffff, 1 << 32, 0x16_b374_d848, u64::MAX] {
            assert_eq!(Lsn(n).to_string().parse(), Ok(Lsn(n)));
        }
        assert_eq!("16/B374D848".parse(), Ok(Lsn(0x16_b374_d848)));
        assert_eq!("0/03000028".parse(), Ok(Lsn(0x300_0028)));
    }

    #[test]
    fn an_invalid_lsn_is_refused() {
        for text in [
            "",
            "/",
            "1",
            "1/",
            "/1",
            "+1/2",
            "1/2/3",
            "100000000/0",
            "x/1",
        ] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }
}
