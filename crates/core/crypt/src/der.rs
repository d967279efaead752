//! The few forms of DER (X.690) that certificates and keys are made of.
//!
//! Invariants
//! - Only the one encoding that DER allows for a length is read, and no length is believed beyond the bytes that are there.
//! - Nothing is read by recursion: no input is too deep.
//!
//! Leaves to others: what the values mean (`certificate.rs`, `pkcs8.rs`).

use zeroize::Zeroizing;

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const NULL: u8 = 0x05;
pub const OID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const TELETEX_STRING: u8 = 0x14;
pub const IA5_STRING: u8 = 0x16;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const BMP_STRING: u8 = 0x1e;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
/// `[0]`, with a value inside.
pub const CONTEXT_0: u8 = 0xa0;

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// One value.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// Tag and length, too.
    pub whole: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next value, whatever it is.
    pub fn any(&mut self) -> Option<Element<'a>> {
        let (&tag, after) = self.rest.split_first()?;
        // Tags of several bytes occur in no structure that is read here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, after) = after.split_first()?;
        let (len, after) = match first {
            0..=0x7f => (usize::from(first), after),
            0x81..=0x84 => {
                let (digits, after) = after.split_at_checked(usize::from(first & 0x7f))?;
                let len = digits.iter().fold(0_usize, |n, d| n << 8 | usize::from(*d));
                let is_shortest = digits[0] != 0 && len > 0x7f;
                (is_shortest.then_some(len)?, after)
            }
            _ => return None,
        };
        let (content, rest) = after.split_at_checked(len)?;
        let whole = &self.rest[..self.rest.len() - rest.len()];
        self.rest = rest;
        Some(Element {
            tag,
            content,
            whole,
        })
    }

    /// The next value, which has this tag.
    pub fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let found = self.any()?;
        (found.tag == tag).then_some(found.content)
    }

    /// The next value if it has this tag.
    pub fn take_if(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        match self.rest.first() == Some(&tag) {
            true => self.take(tag).map(Some),
            false => Some(None),
        }
    }

    /// The values inside the next one.
    pub fn inside(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.take(tag).map(Reader::new)
    }

    /// A small number that is not negative.
    pub fn small(&mut self) -> Option<u32> {
        let digits = self.take(INTEGER)?;
        let (&first, more) = digits.split_first()?;
        let is_shortest = first != 0 || more.first().is_none_or(|next| next & 0x80 != 0);
        if first & 0x80 != 0 || !is_shortest || digits.len() > 5 {
            return None;
        }
        let n = digits.iter().fold(0_u64, |n, d| n << 8 | u64::from(*d));
        u32::try_from(n).ok()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may follow.
    pub fn end(&self) -> Option<()> {
        self.is_empty().then_some(())
    }
}

/// A value of these parts, one after the other. They may be secret.
pub fn value(tag: u8, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Zeroizing::new(Vec::with_capacity(len + 6));
    out.push(tag);
    match len {
        0..=0x7f => out.push(len as u8),
        _ => {
            let digits = (len as u32).to_be_bytes();
            let skipped = digits.iter().take_while(|d| **d == 0).count();
            out.push(0x80 | (4 - skipped) as u8);
            out.extend_from_slice(&digits[skipped..]);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// A number, from its big-endian bytes.
pub fn number(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let skipped = bytes.iter().take_while(|b| **b == 0).count();
    let digits = &bytes[skipped..];
    match digits.first() {
        Some(first) if first & 0x80 == 0 => value(INTEGER, &[digits]),
        _ => value(INTEGER, &[&[0], digits]),
    }
}

/// Bits, all of whole bytes.
pub fn bits(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    value(BIT_STRING, &[&[0], bytes])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(tag in 0_u8..0x1f, content in prop::collection::vec(any::<u8>(), 0..700)) {
            let written = value(tag, &[&content]);
            let mut reader = Reader::new(&written);
            prop_assert_eq!(reader.take(tag), Some(&content[..]));
            prop_assert!(reader.end().is_some());
            for short in 0..written.len().min(20) {
                prop_assert!(Reader::new(&written[..short]).any().is_none() || short == written.len());
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader::new(&bytes);
            while reader.any().is_some() {}
            let _ = Reader::new(&bytes).small();
            let _ = Reader::new(&bytes).inside(SEQUENCE);
        }
    }

    #[test]
    fn a_length_has_one_form_alone() {
        for wrong in [
            &[4, 0x80, 0, 0][..],
            &[4, 0x81, 1, 7],
            &[4, 0x82, 0, 0x80, 0],
            &[4, 0x85, 0, 0, 0, 0, 1, 7],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x1f, 1, 1],
        ] {
            assert!(Reader::new(wrong).any().is_none(), "{wrong:x?}");
        }
        for (bytes, expected) in [
            (&[2, 1, 0][..], Some(0)),
            (&[2, 2, 0, 0x80], Some(128)),
            (&[2, 2, 0, 1], None),
            (&[2, 1, 0x80], None),
            (&[2, 0], None),
            (&[2, 5, 0, 0xff, 0xff, 0xff, 0xff], Some(u32::MAX)),
            (&[2, 5, 1, 0, 0, 0, 0], None),
        ] {
            assert_eq!(Reader::new(bytes).small(), expected, "{bytes:x?}");
        }
        assert_eq!(&number(&[0, 0, 0x80])[..], [2, 2, 0, 0x80]);
        assert_eq!(&number(&[0])[..], [2, 1, 0]);
    }
}
