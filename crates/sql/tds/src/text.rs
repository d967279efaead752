//! Texts on the wire: UTF-16, and code page 1252, the one of this server's collation.
//!
//! Invariants
//! - Bytes that are no text of their encoding become a replacement as the protocol's clients expect; nothing panics.
//! - A text is cut only between characters, and lengths are in UTF-16 units.
//! - Passwords are not printed, and are wiped when they are dropped.
//!
//! Leaves to others: where texts are in messages (`login.rs`, `value.rs`).

use std::fmt;

/// A password. It is never printed, and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// For the code that checks it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // Keeps the compiler from removing the fill, since nobody reads the bytes.
        std::hint::black_box(&bytes);
    }
}

/// Unpaired surrogates become U+FFFD; an odd last byte is dropped.
pub fn from_utf16(bytes: &[u8]) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// The text, cut between characters to at most `units_max` UTF-16 units.
pub fn cut(text: &str, units_max: usize) -> &str {
    // A text has no more units than bytes of UTF-8.
    if text.len() <= units_max {
        return text;
    }
    let mut units = 0;
    for (at, c) in text.char_indices() {
        units += c.len_utf16();
        if units > units_max {
            return &text[..at];
        }
    }
    text
}

pub fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

pub fn put_utf16(out: &mut Vec<u8>, text: &str) {
    out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
}

/// Code page 1252 from 0x80 to 0x9f; its unassigned bytes are read as Windows does.
const HIGH: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

pub fn from_1252(bytes: &[u8]) -> String {
    let one = |b: &u8| match b {
        0x80..=0x9f => HIGH[usize::from(b - 0x80)],
        b => char::from(*b),
    };
    bytes.iter().map(one).collect()
}

/// Characters outside the code page become a question mark, as in SQL Server.
pub fn to_1252(text: &str) -> Vec<u8> {
    let one = |c: char| match u8::try_from(u32::from(c)) {
        Ok(b) if !(0x80..=0x9f).contains(&b) => b,
        _ => match HIGH.iter().position(|h| *h == c) {
            Some(at) => 0x80 + at as u8,
            None => b'?',
        },
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("a\u{1f6a2}b", 2), "a");
        assert_eq!(cut("a\u{1f6a2}b", 3), "a\u{1f6a2}");
        assert_eq!(cut("éééé", 4), "éééé");
        assert_eq!(cut("x", 0), "");
    }

    #[test]
    fn every_byte_of_the_code_page_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(to_1252(&from_1252(&all)), all);
        assert_eq!(to_1252("€Ω"), [0x80, b'?']);
    }

    #[test]
    fn half_pairs_are_marked_and_secrets_hidden() {
        assert_eq!(from_utf16(&[0x41, 0, 0x00, 0xd8, 0x42]), "A\u{fffd}");
        assert_eq!(format!("{:?}", Secret::new("x".into())), "***");
    }
}
