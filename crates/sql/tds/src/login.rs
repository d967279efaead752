//! LOGIN7: the client's identity and its requests (MS-TDS 2.2.6.4).
//!
//! Invariants
//! - Every offset and length in the message is checked before it is used, and the message itself is bounded.
//! - The password is a `Secret` that no message shows; the copy of its bytes that is made here is wiped.
//! - A version that is not spoken is refused; a newer client is answered with the newest version.
//!
//! Leaves to others: checking the password and the wishes (the server).

use crate::cursor::Cursor;
use crate::error::Error;
use crate::text::{Secret, from_utf16};

/// A version of the protocol that this server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V7_2,
    /// Stands for two revisions; from here on rows may omit NULLs.
    V7_3,
    V7_4,
    /// The same tokens as 7.4, in a connection that begins with TLS.
    V8_0,
}

impl Version {
    /// Clients newer than 7.4 are answered with 7.4.
    fn of(number: u32) -> Result<Version, Error> {
        match number {
            0x7209_0002 => Ok(Version::V7_2),
            0x730a_0003 | 0x730b_0003 => Ok(Version::V7_3),
            0x7400_0004.. => Ok(Version::V7_4),
            0x0800_0000 => Ok(Version::V8_0),
            other => Err(Error::VersionUnsupported(other)),
        }
    }

    /// Whether a version that is not spoken is TDS 7.0 or 7.1, whose clients are told so in their own form.
    pub fn is_older(number: u32) -> bool {
        (0x70..=0x71).contains(&(number >> 24))
    }

    /// As in LOGINACK, the most significant byte first.
    pub(crate) fn number(self) -> u32 {
        match self {
            Version::V7_2 => 0x7209_0002,
            Version::V7_3 => 0x730b_0003,
            Version::V7_4 => 0x7400_0004,
            Version::V8_0 => 0x0800_0000,
        }
    }
}

/// A client's request to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub version: Version,
    /// The packet length that the client requests, in bytes; 0 leaves it to the server.
    pub packet_len: u32,
    pub host: String,
    pub user: String,
    pub password: Secret,
    pub program: String,
    /// Empty: the login's default database.
    pub database: String,
    pub language: String,
    /// Authentication by the operating system instead of a password.
    pub integrated: bool,
    /// Authentication by a token of an identity provider.
    pub federated: bool,
    /// The client asks which of its features the server supports.
    pub has_features: bool,
    /// A new password must replace the old one.
    pub changes_password: bool,
}

const WHAT: &str = "LOGIN7";
/// The most characters of each text.
const TEXT_MAX: usize = 128;
const INTEGRATED: u8 = 0x80;
const CHANGES_PASSWORD: u8 = 0x01;
const HAS_EXTENSION: u8 = 0x10;
const FEATURE_FEDERATED: u8 = 0x02;
const FEATURE_END: u8 = 0xff;

impl Login {
    /// The longest message of this kind.
    pub const LEN_MAX: usize = 128 * 1024 - 1;

    pub fn parse(body: &[u8]) -> Result<Login, Error> {
        let malformed = Error::Malformed { what: WHAT };
        let mut cursor = Cursor::new(body, WHAT);
        let len = cursor.len32()?;
        if len != body.len() {
            return Err(malformed);
        }
        let version = Version::of(cursor.u32()?)?;
        let packet_len = cursor.u32()?;
        // Program version, process, connection.
        cursor.take(12)?;
        let _options1 = cursor.u8()?;
        let options2 = cursor.u8()?;
        let _type_flags = cursor.u8()?;
        let options3 = cursor.u8()?;
        // Time zone and locale.
        cursor.take(8)?;
        let host = text(body, &mut cursor)?;
        let user = text(body, &mut cursor)?;
        let password = password(field(body, &mut cursor, 2)?);
        let program = text(body, &mut cursor)?;
        let _server = text(body, &mut cursor)?;
        let extension = place(&mut cursor)?;
        let _library = text(body, &mut cursor)?;
        let language = text(body, &mut cursor)?;
        let database = text(body, &mut cursor)?;
        let mut login = Login {
            version,
            packet_len,
            host,
            user,
            password,
            program,
            database,
            language,
            integrated: options2 & INTEGRATED != 0,
            federated: false,
            has_features: false,
            changes_password: options3 & CHANGES_PASSWORD != 0,
        };
        if options3 & HAS_EXTENSION != 0 && extension.1 > 0 {
            login.has_features = true;
            login.federated = asks_federated(body, extension.0)?;
        }
        Ok(login)
    }
}

/// Offset and length of a field after the fixed part.
fn place(cursor: &mut Cursor) -> Result<(usize, usize), Error> {
    Ok((cursor.u16()?.into(), cursor.u16()?.into()))
}

/// `unit`: bytes for each unit of the length.
fn field<'a>(body: &'a [u8], cursor: &mut Cursor, unit: usize) -> Result<&'a [u8], Error> {
    let (at, len) = place(cursor)?;
    if len > TEXT_MAX {
        return Err(Error::Malformed { what: WHAT });
    }
    // Some clients send any offset with a length of 0.
    if len == 0 {
        return Ok(&[]);
    }
    let found = body.get(at..at + len * unit);
    found.ok_or(Error::Truncated { what: WHAT })
}

fn text(body: &[u8], cursor: &mut Cursor) -> Result<String, Error> {
    Ok(from_utf16(field(body, cursor, 2)?))
}

/// The protocol swaps the halves of each byte and XORs it with 0xa5, which protects nothing.
fn password(bytes: &[u8]) -> Secret {
    let mut plain: Vec<u8> = bytes.iter().map(|b| (b ^ 0xa5).rotate_left(4)).collect();
    let secret = Secret::new(from_utf16(&plain));
    plain.fill(0);
    std::hint::black_box(&plain);
    secret
}

fn asks_federated(body: &[u8], at: usize) -> Result<bool, Error> {
    let truncated = Error::Truncated { what: WHAT };
    let mut pointer = Cursor::new(body.get(at..).ok_or(truncated)?, WHAT);
    let list = pointer.len32()?;
    let mut features = Cursor::new(body.get(list..).ok_or(truncated)?, WHAT);
    let mut federated = false;
    loop {
        let feature = features.u8()?;
        if feature == FEATURE_END {
            return Ok(federated);
        }
        let len = features.len32()?;
        features.take(len)?;
        federated |= feature == FEATURE_FEDERATED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_of_7_0_and_7_1_are_told_that_they_are_too_old() {
        for number in [0x7000_0000, 0x7100_0000, 0x7100_0001] {
            assert!(Version::is_older(number), "{number:08x}");
        }
        for number in [0, 0x0402_0000, 0x0800_0001, 0x6fff_ffff, 0x7200_0000] {
            assert!(!Version::is_older(number), "{number:08x}");
        }
    }
}
