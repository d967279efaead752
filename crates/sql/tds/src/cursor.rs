//! Reads little-endian fields from a message; every length is checked against the bytes present.

use crate::error::Error;
use crate::text;

#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// `what` names the message part in errors.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Cursor<'a> {
        Cursor { rest: bytes, what }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn malformed(&self) -> Error {
        Error::Malformed { what: self.what }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Error::Truncated { what: self.what })?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length that precedes its content.
    pub fn len32(&mut self) -> Result<usize, Error> {
        let len = self.u32()?;
        usize::try_from(len).map_err(|_| self.malformed())
    }

    /// B_VARCHAR: one byte that counts UTF-16 units, then the text.
    pub fn short_text(&mut self) -> Result<String, Error> {
        let units = usize::from(self.u8()?);
        Ok(text::from_utf16(self.take(units * 2)?))
    }

    /// An unsigned number of up to 16 bytes.
    pub fn unsigned(&mut self, len: usize) -> Result<u128, Error> {
        let bytes = self.take(len)?;
        if len > 16 {
            return Err(self.malformed());
        }
        let mut wide = [0; 16];
        wide[..len].copy_from_slice(bytes);
        Ok(u128::from_le_bytes(wide))
    }

    /// A signed number of 1 to 8 bytes.
    pub fn signed(&mut self, len: usize) -> Result<i64, Error> {
        if !(1..=8).contains(&len) {
            return Err(self.malformed());
        }
        let unsigned = self.unsigned(len)? as u64;
        let unused = 64 - 8 * len as u32;
        Ok(((unsigned << unused) as i64) >> unused)
    }
}
