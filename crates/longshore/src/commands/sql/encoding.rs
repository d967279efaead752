//! The encodings of scripts and results that `-f` and `-u` name.
//!
//! Invariants
//! - A character that an encoding lacks is written as `?`; bytes that are no text of it are refused when they are read.
//!
//! Leaves to others: byte order marks of files with scripts, which go before (`mod.rs`), and the files (`show.rs`).

use std::io::{self, BufRead, Read};

/// An encoding of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    #[default]
    Utf8,
    /// Windows-1252, of western Europe.
    Windows1252,
    /// UTF-16, the lower byte first.
    Utf16,
}

/// The characters of Windows-1252 from 0x80 to 0x9f; those that it lacks are control characters.
const HIGH: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

impl Encoding {
    /// The encoding of a code page's number. `None`: another one.
    fn of(number: &str) -> Option<Encoding> {
        Some(match number {
            "65001" => Encoding::Utf8,
            "1252" => Encoding::Windows1252,
            "1200" => Encoding::Utf16,
            _ => return None,
        })
    }

    /// Those of scripts and of results: `N`, `i:N`, `o:N` or `i:N,o:N`. Errors: the piece that names none.
    pub fn of_both(text: &str) -> Result<(Encoding, Encoding), String> {
        let (mut input, mut output) = (Encoding::Utf8, Encoding::Utf8);
        for piece in text.split(',') {
            let (which, number) = match piece.trim().split_once(':') {
                Some((which, number)) => (which.to_ascii_lowercase(), number.trim()),
                None => (String::new(), piece.trim()),
            };
            let found = Encoding::of(number).ok_or_else(|| piece.to_owned())?;
            match which.as_str() {
                "" => (input, output) = (found, found),
                "i" => input = found,
                "o" => output = found,
                _ => return Err(piece.to_owned()),
            }
        }
        Ok((input, output))
    }

    /// Errors: bytes that are no text of this encoding.
    pub fn decoded(self, bytes: Vec<u8>) -> io::Result<String> {
        match self {
            Encoding::Utf8 => String::from_utf8(bytes).map_err(io::Error::other),
            Encoding::Windows1252 => Ok(bytes.into_iter().map(wide).collect()),
            Encoding::Utf16 => {
                let pairs = bytes.chunks_exact(2);
                if !pairs.remainder().is_empty() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let units: Vec<u16> = pairs.map(|p| u16::from_le_bytes([p[0], p[1]])).collect();
                String::from_utf16(&units).map_err(io::Error::other)
            }
        }
    }

    /// The bytes of a text.
    pub fn encoded(self, text: &str) -> Vec<u8> {
        match self {
            Encoding::Utf8 => text.as_bytes().to_vec(),
            Encoding::Windows1252 => text.chars().map(narrow).collect(),
            Encoding::Utf16 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        }
    }
}

/// The lines of a script as they arrive, without their ends. A line that is not of the encoding is an error.
pub struct Lines<R> {
    reader: R,
    encoding: Encoding,
    is_begun: bool,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, encoding: Encoding) -> Lines<R> {
        Lines {
            reader,
            encoding,
            is_begun: false,
        }
    }

    /// The bytes up to the end of a line, and with it.
    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let had = bytes.len();
            self.reader.read_until(b'\n', &mut bytes)?;
            if self.encoding != Encoding::Utf16 {
                return Ok(bytes);
            }
            // The byte may be the lower or the upper half of a unit.
            if bytes.len() == had {
                return Ok(bytes);
            }
            if bytes.len() % 2 == 1 {
                self.reader.by_ref().take(1).read_to_end(&mut bytes)?;
            }
            if bytes.ends_with(&[b'\n', 0]) {
                return Ok(bytes);
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        let bytes = match self.bytes() {
            Ok(bytes) if bytes.is_empty() => return None,
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        Some(self.encoding.decoded(bytes).map(|line| {
            let line = match is_first {
                true => line.strip_prefix('\u{feff}').unwrap_or(&line),
                false => &line,
            };
            let line = line.strip_suffix('\n').unwrap_or(line);
            line.strip_suffix('\r').unwrap_or(line).to_owned()
        }))
    }
}

fn wide(byte: u8) -> char {
    match byte {
        0x80..=0x9f => HIGH[usize::from(byte - 0x80)],
        byte => char::from(byte),
    }
}

fn narrow(c: char) -> u8 {
    let high = || HIGH.iter().position(|known| *known == c);
    match u8::try_from(u32::from(c)) {
        Ok(byte) if !(0x80..=0x9f).contains(&byte) => byte,
        _ => high().map_or(b'?', |i| 0x80 + i as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_an_encoding_has_comes_back() {
        let text = "a\u{20ac}\u{e9}\u{178}\r\n";
        for encoding in [Encoding::Utf8, Encoding::Windows1252, Encoding::Utf16] {
            let bytes = encoding.encoded(text);
            assert_eq!(encoding.decoded(bytes).unwrap(), text, "{encoding:?}");
        }
        assert_eq!(
            Encoding::Windows1252.encoded("\u{20ac}\u{3b1}"),
            [0x80, b'?']
        );
        assert!(Encoding::Utf16.decoded(vec![0x61]).is_err());
        assert!(Encoding::Utf8.decoded(vec![0xe9]).is_err());
    }

    #[test]
    fn lines_arrive_in_each_encoding() {
        // U+0A0A and U+010A have the byte of a line's end in their units.
        let text = "\u{feff}SELECT '\u{a0a}\u{10a}'\r\n\nGO";
        for encoding in [Encoding::Utf8, Encoding::Utf16] {
            let bytes = encoding.encoded(text);
            let lines = Lines::new(&bytes[..], encoding).map(Result::unwrap);
            let lines: Vec<String> = lines.collect();
            assert_eq!(lines, ["SELECT '\u{a0a}\u{10a}'", "", "GO"], "{encoding:?}");
        }
        let mut lines = Lines::new(&[0xe9, b'\n'][..], Encoding::Windows1252);
        assert_eq!(lines.next().unwrap().unwrap(), "\u{e9}");
        assert!(lines.next().is_none());
        let mut lines = Lines::new(&[0xe9, b'\n'][..], Encoding::Utf8);
        assert!(lines.next().unwrap().is_err());
    }

    #[test]
    fn code_pages_are_read_for_scripts_and_results() {
        use Encoding::*;
        assert_eq!(Encoding::of_both("1252"), Ok((Windows1252, Windows1252)));
        assert_eq!(Encoding::of_both("i:1252"), Ok((Windows1252, Utf8)));
        assert_eq!(Encoding::of_both("o:1200, i:65001"), Ok((Utf8, Utf16)));
        for wrong in ["437", "x:1252", "", "i:"] {
            assert!(Encoding::of_both(wrong).is_err(), "{wrong}");
        }
    }
}
