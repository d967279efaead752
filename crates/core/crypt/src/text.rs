//! The texts of keys: Bech32 (BIP 173) without a limit of length, as age writes recipients and identities, and thumbprints.

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Checksum, Hrp};
use zeroize::Zeroizing;

/// Bech32's checksum over texts of any length: a post-quantum recipient has 1,959 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Long {}

impl Checksum for Long {
    type MidstateRepr = <Bech32 as Checksum>::MidstateRepr;
    type CorrectionField = <Bech32 as Checksum>::CorrectionField;
    const ROOT_GENERATOR: Self::CorrectionField = Bech32::ROOT_GENERATOR;
    const ROOT_EXPONENTS: std::ops::RangeInclusive<usize> = Bech32::ROOT_EXPONENTS;
    const CODE_LENGTH: usize = 4096;
    const CHECKSUM_LENGTH: usize = Bech32::CHECKSUM_LENGTH;
    const GENERATOR_SH: [Self::MidstateRepr; 5] = Bech32::GENERATOR_SH;
    const TARGET_RESIDUE: Self::MidstateRepr = Bech32::TARGET_RESIDUE;
}

/// Bytes of a certificate's thumbprint: SHA-1, as SQL Server's.
pub const THUMBPRINT_LEN: usize = 20;

/// The SHA-1 of a whole certificate. For people and views: no decision rests on it.
pub type Thumbprint = [u8; THUMBPRINT_LEN];

/// Bytes as people compare them: `0x` and two digits for each.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02X}"));
    format!("0x{}", digits.collect::<String>())
}

/// The prefix of a signing key.
pub const SIGNING_KEY: &str = "longshore-signing-key-";

/// The beginnings of every age identity and every signing key, in either case.
const SECRETS: [&str; 2] = ["age-", SIGNING_KEY];

/// Whether a word may be an identity or a signing key, which no message repeats.
pub fn is_secret(word: &str) -> bool {
    SECRETS.iter().any(|secret| {
        let begin = word.get(..secret.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(secret))
    })
}

/// A parser's message, which may repeat what was read, without the identities and the signing keys in it.
pub fn without_secrets(message: &str) -> String {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut shown = String::new();
    for part in message.split_inclusive(|c| !is_inside(c)) {
        let word = part.trim_end_matches(|c| !is_inside(c));
        match is_secret(word) {
            true => shown.extend(["…", &part[word.len()..]]),
            false => shown.push_str(part),
        }
    }
    shown
}

/// `data` under a prefix of lower-case letters.
pub fn encode(prefix: &str, data: &[u8]) -> String {
    let prefix = Hrp::parse(prefix).expect("prefixes are constants");
    bech32::encode_lower::<Long>(prefix, data).expect("keys are shorter than the limit")
}

/// The lower-case prefix and the data; `None` if the text is no Bech32 or its checksum does not agree.
pub fn decode(text: &str) -> Option<(String, Zeroizing<Vec<u8>>)> {
    let checked = CheckedHrpstring::new::<Long>(text).ok()?;
    let data = Zeroizing::new(checked.byte_iter().collect());
    Some((checked.hrp().to_lowercase(), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_all_but_secrets() {
        let message = "invalid type: string \"age-secret-key-1qq\", expected a list; AGE-SECRET-KEY-PQ-1x, LONGSHORE-SIGNING-KEY-1qq";
        assert_eq!(
            without_secrets(message),
            "invalid type: string \"…\", expected a list; …, …"
        );
        for plain in ["", "the age of a backup, age1qq", "é-AGE, ä"] {
            assert_eq!(without_secrets(plain), plain);
        }
    }
}
