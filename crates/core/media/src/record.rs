//! Records: Longshore's own headers, carried in the extension points of standard containers.
//!
//! See `docs/format.md`, section "Records".
//!
//! Invariants
//! - A record is a 16-byte head and a body of at most [`BODY_MAX`] bytes.
//! - In a gzip stripe a record is the extra field of an empty member; in zstd and LZ4 stripes it is the payload of a
//!   skippable frame. So stock tools skip it.
//!
//! Leaves to others: the fields of a record's body (`header.rs`, `manifest.rs`).

use longshore_codec::Algorithm;
use longshore_io::{crc32c, crc32c_append};

/// First bytes of every record.
pub const MAGIC: [u8; 4] = *b"LSHR";
/// Bytes before a record's body.
pub const HEAD_LEN: usize = 16;
/// Longest body. Keeps a gzip extra field below the 16,000 bytes that busybox accepts.
pub const BODY_MAX: usize = 15_900;
/// Longest framing before a record in any container.
pub const PREFIX_MAX: usize = 16;
/// Longest framing after a record in any container.
pub const SUFFIX_MAX: usize = 10;

/// The magic of the skippable frames that hold records (payloads may use others of that range).
pub const SKIPPABLE_MAGIC: u32 = 0x184D_2A5A;
/// The magic of the skippable frame around an encrypted payload.
pub const ENCRYPTED_MAGIC: u32 = 0x184D_2A5C;
pub const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff];
/// An empty final deflate block, then the CRC-32 and the length of no bytes.
pub const GZIP_TAIL: [u8; SUFFIX_MAX] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Without it, some readers take an LZ4 stripe that starts with a skippable frame for a zstd one.
pub const LZ4_PREAMBLE: [u8; 11] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0];

/// The standard container of all stripes of a media set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Container {
    Gzip = 1,
    Zstd = 2,
    Lz4 = 3,
}

/// The kind of a record. The number is on media and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    Media = 1,
    Set = 2,
    Manifest = 3,
    Block = 4,
    Index = 5,
    Trailer = 6,
    /// Start of a file in the WAL archive; never in a stripe (`docs/postgres-wal.md`).
    Wal = 7,
    /// End of such a file.
    WalEnd = 8,
    /// The slots of an encrypted set, after its header.
    Keys = 9,
    /// Before a chunk of parity; only in parity stripes.
    Parity = 10,
    /// The roots of all families of an encrypted set; before its trailer.
    Roots = 11,
}

impl RecordKind {
    fn from_number(n: u8) -> Option<RecordKind> {
        [
            RecordKind::Media,
            RecordKind::Set,
            RecordKind::Manifest,
            RecordKind::Block,
            RecordKind::Index,
            RecordKind::Trailer,
            RecordKind::Wal,
            RecordKind::WalEnd,
            RecordKind::Keys,
            RecordKind::Parity,
            RecordKind::Roots,
        ]
        .into_iter()
        .find(|k| *k as u8 == n)
    }
}

/// Why bytes are not a valid record. The caller knows the file and the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the container framing is not that of a record")]
    Framing,
    #[error("no record magic")]
    Magic,
    #[error("record kind {0} is unknown to this version")]
    Kind(u8),
    #[error("a length is out of range")]
    Length,
    #[error("record checksum is {found:#010x}, not {expected:#010x}")]
    Checksum { expected: u32, found: u32 },
    #[error("a field has a value that is not allowed")]
    Field,
    #[error("it was changed, or is of another place: its tag does not agree")]
    Tag,
    #[error("it needs a feature that this version does not know (bits {0:#x})")]
    Feature(u64),
}

impl Container {
    pub fn from_number(n: u8) -> Option<Container> {
        [Container::Gzip, Container::Zstd, Container::Lz4]
            .into_iter()
            .find(|c| *c as u8 == n)
    }

    /// The container that holds an algorithm's payloads.
    pub fn of(algorithm: Algorithm) -> Container {
        match algorithm {
            Algorithm::QatDeflate => Container::Gzip,
            Algorithm::Zstd => Container::Zstd,
            Algorithm::None | Algorithm::MsXpress | Algorithm::Lz4 | Algorithm::Pages => {
                Container::Lz4
            }
        }
    }

    /// The container of a set with this algorithm: that of its payloads, or, if they are encrypted, of what hides them.
    pub fn of_set(algorithm: Algorithm, encrypted: bool) -> Container {
        match encrypted {
            true => Container::Zstd,
            false => Container::of(algorithm),
        }
    }

    /// The container of a stripe that starts with these bytes.
    pub fn detect(start: &[u8]) -> Option<Container> {
        if start.starts_with(&GZIP_HEAD) {
            Some(Container::Gzip)
        } else if start.starts_with(&SKIPPABLE_MAGIC.to_le_bytes()) {
            Some(Container::Zstd)
        } else if start.starts_with(&LZ4_PREAMBLE) {
            Some(Container::Lz4)
        } else {
            None
        }
    }

    /// Bytes before the first record of a stripe.
    pub fn preamble(self) -> &'static [u8] {
        match self {
            Container::Lz4 => &LZ4_PREAMBLE,
            Container::Gzip | Container::Zstd => &[],
        }
    }

    /// Framing bytes before a record.
    pub fn prefix_len(self) -> usize {
        match self {
            Container::Gzip => 16,
            Container::Zstd | Container::Lz4 => 8,
        }
    }

    /// Framing bytes after a record.
    pub fn suffix_len(self) -> usize {
        match self {
            Container::Gzip => GZIP_TAIL.len(),
            Container::Zstd | Container::Lz4 => 0,
        }
    }

    /// Bytes a record with this body takes in a stripe.
    pub fn framed_len(self, body_len: usize) -> usize {
        self.prefix_len() + HEAD_LEN + body_len + self.suffix_len()
    }

    /// Writes a framed record to the start of `out`; returns its length.
    ///
    /// # Panics
    /// If the body exceeds [`BODY_MAX`] or `out` is shorter than [`Container::framed_len`]: both are our bugs.
    pub fn put(self, kind: RecordKind, body: &[&[u8]], out: &mut [u8]) -> usize {
        let body_len: usize = body.iter().map(|b| b.len()).sum();
        assert!(body_len <= BODY_MAX, "record body of {body_len} bytes");
        let record_len = HEAD_LEN + body_len;
        let prefix = self.prefix_len();
        match self {
            Container::Gzip => {
                out[..10].copy_from_slice(&GZIP_HEAD);
                // Bounded by the assert above: 15,900 + 20 < 65,536.
                out[10..12].copy_from_slice(&(4 + record_len as u16).to_le_bytes());
                out[12..14].copy_from_slice(b"LS");
                out[14..16].copy_from_slice(&(record_len as u16).to_le_bytes());
            }
            Container::Zstd | Container::Lz4 => {
                out[..4].copy_from_slice(&SKIPPABLE_MAGIC.to_le_bytes());
                out[4..8].copy_from_slice(&(record_len as u32).to_le_bytes());
            }
        }
        let record = &mut out[prefix..prefix + record_len];
        record[..4].copy_from_slice(&MAGIC);
        record[4] = kind as u8;
        record[5..8].fill(0);
        record[8..12].copy_from_slice(&(body_len as u32).to_le_bytes());
        let mut at = HEAD_LEN;
        for part in body {
            record[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let crc = crc32c_append(crc32c(&record[..12]), &record[HEAD_LEN..]);
        record[12..16].copy_from_slice(&crc.to_le_bytes());
        let end = prefix + record_len;
        if self == Container::Gzip {
            out[end..end + GZIP_TAIL.len()].copy_from_slice(&GZIP_TAIL);
        }
        end + self.suffix_len()
    }

    /// Appends a framed record to `out`.
    pub fn append(self, kind: RecordKind, body: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + self.framed_len(body.len()), 0);
        self.put(kind, &[body], &mut out[at..]);
    }

    /// Reads the framing at the start of `bytes` (at least [`Container::prefix_len`]) and returns the length of the
    /// whole framed record.
    pub fn framed_len_at(self, bytes: &[u8]) -> Result<usize, RecordError> {
        let prefix = bytes.get(..self.prefix_len()).ok_or(RecordError::Length)?;
        let record_len = match self {
            Container::Gzip => {
                let xlen = u16::from_le_bytes([prefix[10], prefix[11]]) as usize;
                let len = u16::from_le_bytes([prefix[14], prefix[15]]) as usize;
                if prefix[..10] != GZIP_HEAD || &prefix[12..14] != b"LS" || xlen != len + 4 {
                    return Err(RecordError::Framing);
                }
                len
            }
            Container::Zstd | Container::Lz4 => {
                if prefix[..4] != SKIPPABLE_MAGIC.to_le_bytes() {
                    return Err(RecordError::Framing);
                }
                u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize
            }
        };
        if !(HEAD_LEN..=HEAD_LEN + BODY_MAX).contains(&record_len) {
            return Err(RecordError::Length);
        }
        Ok(self.prefix_len() + record_len + self.suffix_len())
    }

    /// Checks a whole framed record and returns its kind and body.
    pub fn parse(self, framed: &[u8]) -> Result<(RecordKind, &[u8]), RecordError> {
        if self.framed_len_at(framed)? != framed.len() {
            return Err(RecordError::Length);
        }
        let end = framed.len() - self.suffix_len();
        if self == Container::Gzip && framed[end..] != GZIP_TAIL {
            return Err(RecordError::Framing);
        }
        let record = &framed[self.prefix_len()..end];
        if record[..4] != MAGIC {
            return Err(RecordError::Magic);
        }
        let body = &record[HEAD_LEN..];
        if u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize != body.len()
        {
            return Err(RecordError::Length);
        }
        let expected = u32::from_le_bytes([record[12], record[13], record[14], record[15]]);
        let found = crc32c_append(crc32c(&record[..12]), body);
        if expected != found {
            return Err(RecordError::Checksum { expected, found });
        }
        if record[5..8] != [0; 3] {
            return Err(RecordError::Field);
        }
        let kind = RecordKind::from_number(record[4]).ok_or(RecordError::Kind(record[4]))?;
        Ok((kind, body))
    }
}

/// Reads the fields of a record's body in order. Every read is checked: missing bytes are [`RecordError::Length`].
/// Numbers are little-endian.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], RecordError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(RecordError::Length)?;
        self.0 = rest;
        Ok(head)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let mut a = [0; N];
        a.copy_from_slice(self.bytes(N)?);
        Ok(a)
    }
    pub fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u16(&mut self) -> Result<u16, RecordError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32, RecordError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64, RecordError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn i64(&mut self) -> Result<i64, RecordError> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    /// Reserved bytes: this version writes zeros, so a later version can give them a meaning together with an
    /// incompatible feature bit.
    pub fn zeros(&mut self, n: usize) -> Result<(), RecordError> {
        if self.bytes(n)?.iter().any(|b| *b != 0) {
            Err(RecordError::Field)
        } else {
            Ok(())
        }
    }
    /// A u16 length and as many bytes.
    pub fn run(&mut self) -> Result<&'a [u8], RecordError> {
        let n = self.u16()? as usize;
        self.bytes(n)
    }
    /// A text of at most `max` bytes.
    pub fn text(&mut self, max: usize) -> Result<String, RecordError> {
        let bytes = self.run()?;
        if bytes.len() > max {
            return Err(RecordError::Length);
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| RecordError::Field)
    }
    pub fn end(self) -> Result<(), RecordError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RecordError::Length)
        }
    }
}

/// Appends a u16 length and the text, truncated to at most `max` bytes at a character boundary.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.extend_from_slice(&(end as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}
