//! One file of an archive: its head, its end and its blocks, each checked when it is read.
//!
//! Invariants
//! - Bytes that are not a complete file of this name are `Damaged`, with the block and its offset; a file of a later
//!   version is `Newer`.
//! - No length in the file is believed before it was checked.
//! - Stored bytes reach a decoder only if their checksum is right, and plain bytes reach the caller only if theirs is.
//! - Nothing of an encrypted file reaches the caller before its key was proved by its head, its slots and its end; and
//!   nothing of one that is not encrypted, or not signed, where all must be.
//!
//! Leaves to others: the layout (`object.rs`), encrypting (`sealed.rs`), and finding files (`archive.rs`).

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use longshore_codec::Decompressor;
use longshore_crypt::{Keyring, SetKeys, SignatureState, Signed, StoredSignature};
use longshore_io::crc32c;
use longshore_media::record::{ENCRYPTED_MAGIC, RecordError, RecordKind};
use longshore_pg::wal::{WalName, is_same_history};

use super::Error;
use super::ends::Ends;
use super::object::{End, FRAME_LEN, Head, PlainMark, WholeMark};
use super::place::Stored;

/// Enough bytes for any head.
const HEAD_MAX: u64 = 4096;

/// One file of the archive, its head and end read and checked.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) file: Arc<dyn Stored>,
    pub(super) path: PathBuf,
    pub(super) ends: Ends,
    keyring: Arc<Keyring>,
    /// Of an encrypted file, from the first block that is read.
    keys: OnceLock<SetKeys>,
}

impl Object {
    /// Errors: `Damaged` for any bytes that are not a complete file of this name, `Newer`, `Io`.
    pub(super) fn open(
        file: Arc<dyn Stored>,
        path: PathBuf,
        name: WalName,
        keyring: &Arc<Keyring>,
    ) -> Result<Object, Error> {
        let damaged = |what| Error::malformed(path.clone(), what);
        let len = file.len()?;
        let mut bytes = vec![0; len.min(HEAD_MAX) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let head = Head::parse(&bytes).map_err(damaged)?;
        if head.name != name {
            return Err(damaged(RecordError::Field));
        }
        let after = head.len_after() as u64;
        if len < head.len_before() as u64 + after {
            return Err(damaged(RecordError::Length));
        }
        let mut framed = vec![0; after as usize];
        file.read_exact_at(&mut framed, len - after)?;
        let end = End::parse(&head, &framed, len).map_err(damaged)?;
        Ok(Object {
            file,
            path,
            ends: Ends { head, end },
            keyring: keyring.clone(),
            keys: OnceLock::new(),
        })
    }

    pub(super) fn head(&self) -> &Head {
        &self.ends.head
    }

    /// Refuses a file that is not encrypted, or that no trusted signer signed, where all must be.
    ///
    /// Errors: `NotSealed`, `Unsigned`; `Damaged`, `Io`.
    pub(super) fn check_rules(&self) -> Result<(), Error> {
        let head = self.head();
        if self.keyring.requires_encryption() && head.sealed.is_none() && head.holds_more() {
            return Err(Error::NotSealed {
                path: self.path.clone(),
            });
        }
        self.check_signature()
    }

    /// Refuses a wrong signature, and where one is required a file without a trusted one. Histories have none: they are read
    /// where there is no key, and a file's head has the digest of its own.
    ///
    /// Errors: `Unsigned`; `Damaged`, `Io`.
    pub(super) fn check_signature(&self) -> Result<(), Error> {
        if !self.head().holds_more() {
            return Ok(());
        }
        let found = self.signature()?;
        match self.keyring.signers().refuse(&found) {
            false => Ok(()),
            true => Err(Error::Unsigned {
                path: self.path.clone(),
                what: found,
            }),
        }
    }

    /// Whose the file is. None of its blocks is read for that: the key that its slots commit to proves them.
    ///
    /// Errors: `Damaged`, `Io`.
    pub(super) fn signature(&self) -> Result<SignatureState, Error> {
        let (head, end) = (&self.ends.head, &self.ends.end);
        let claim = end.claim(head);
        if claim == StoredSignature::None {
            return Ok(SignatureState::Unsigned);
        }
        let signed = Signed::wal(&head.encode(), &self.framed_records()?, &end.signed());
        Ok(self.keyring.signers().judge(&signed, &claim))
    }

    /// Whether its blocks can be read here: it is not encrypted, or an identity opens it.
    ///
    /// Errors: `Unopened` if somebody changed it; `Damaged`, `Io`.
    pub(super) fn opens(&self) -> Result<bool, Error> {
        if self.head().sealed.is_none() {
            return Ok(true);
        }
        match self.keys() {
            Ok(_) => Ok(true),
            Err(Error::Unopened {
                source: longshore_crypt::Error::NoIdentity { .. },
                ..
            }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether both hold the same bytes, or histories of the same timeline.
    ///
    /// Errors, for histories and for encrypted files whose marks cannot be compared: `Damaged`, `Unopened`, `Io`.
    pub(super) fn is_same_as(&self, other: &Object) -> Result<bool, Error> {
        let (own, theirs) = (&self.ends, &other.ends);
        if let WalName::History(timeline) = own.head.name {
            return Ok(is_same_history(timeline, &self.text()?, &other.text()?));
        }
        if own.head.plain_len != theirs.head.plain_len {
            return Ok(false);
        }
        let marks =
            |ends: &Ends| -> Vec<PlainMark> { ends.end.rows.iter().map(|row| row.plain).collect() };
        let is_cut_alike = own.head.block_bytes == theirs.head.block_bytes;
        match (own.end.whole, theirs.end.whole) {
            (WholeMark::Crc(one), WholeMark::Crc(other)) => {
                Ok(one == other && (!is_cut_alike || marks(own) == marks(theirs)))
            }
            // One file and its copy, whoever can read them: the MAC is over everything.
            _ if own.head == theirs.head && own.end == theirs.end => Ok(true),
            _ if is_cut_alike && own.has_tags_as(theirs) => Ok(marks(own) == marks(theirs)),
            _ if is_cut_alike => self.has_blocks_of(other),
            _ => Ok(self.text()? == other.text()?),
        }
    }

    /// Whether the blocks of both, which are cut alike, have the same bytes.
    fn has_blocks_of(&self, other: &Object) -> Result<bool, Error> {
        let (mut own, mut theirs) = (Block::default(), Block::default());
        let mut at = (
            self.head().len_before() as u64,
            other.head().len_before() as u64,
        );
        let rows = self.ends.end.rows.iter().zip(&other.ends.end.rows);
        for (number, (row, other_row)) in rows.enumerate() {
            let own = self.decode_block(number, at.0, &mut own)?;
            if own != other.decode_block(number, at.1, &mut theirs)? {
                return Ok(false);
            }
            at.0 += u64::from(row.stored_len);
            at.1 += u64::from(other_row.stored_len);
        }
        Ok(true)
    }

    /// The keys of an encrypted file, proved by its head, its slots and its end.
    ///
    /// Errors: `Unopened`, `NotSealed`, `Unsigned`, `Damaged`, `Io`.
    fn keys(&self) -> Result<Option<&SetKeys>, Error> {
        let WholeMark::Sealed { mac, .. } = &self.ends.end.whole else {
            self.check_rules()?;
            return Ok(None);
        };
        if let Some(keys) = self.keys.get() {
            return Ok(Some(keys));
        }
        self.check_rules()?;
        let unopened = |source| Error::Unopened {
            path: self.path.clone(),
            source,
        };
        let records = self.records()?;
        let opened = self.keyring.open_once(&self.head().encode(), &records);
        let keys = opened.map_err(unopened)?;
        keys.check_end(&self.ends.end.authenticated(), mac)
            .map_err(unopened)?;
        Ok(Some(self.keys.get_or_init(|| keys)))
    }

    /// The Keys records as they are in the file.
    fn framed_records(&self) -> Result<Vec<u8>, Error> {
        let from = self.head().len_of_head();
        let mut bytes = vec![0; self.head().len_before() - from];
        self.file.read_exact_at(&mut bytes, from as u64)?;
        Ok(bytes)
    }

    /// The bodies of the Keys records.
    ///
    /// Errors: `Damaged`, `Io`.
    pub(super) fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        let damaged = |what| Error::malformed(self.path.clone(), what);
        let bytes = self.framed_records()?;
        let container = self.head().container();
        let (mut rest, mut bodies) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let len = container.framed_len_at(rest).map_err(damaged)?;
            let framed = rest
                .get(..len)
                .ok_or_else(|| damaged(RecordError::Length))?;
            match container.parse(framed).map_err(damaged)? {
                (RecordKind::Keys, body) => bodies.push(body.to_vec()),
                (kind, _) => return Err(damaged(RecordError::Kind(kind as u8))),
            }
            rest = &rest[len..];
        }
        Ok(bodies)
    }

    /// Decodes and checks every block, in order.
    pub(super) fn decode(
        &self,
        mut sink: impl FnMut(&[u8], u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut block = Block::default();
        let mut at = self.head().len_before() as u64;
        for (number, row) in self.ends.end.rows.iter().enumerate() {
            let plain = self.decode_block(number, at, &mut block)?;
            sink(plain, number as u64 * u64::from(self.head().block_bytes))?;
            at += u64::from(row.stored_len);
        }
        // A file without blocks has an end all the same.
        self.keys().map(drop)
    }

    /// All of its bytes, checked; for histories, which are short, and where nothing else compares two files.
    pub(super) fn text(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.decode(|plain, _| {
            bytes.extend_from_slice(plain);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Decodes and checks one block, whose payload is at `at`.
    pub(super) fn decode_block<'b>(
        &self,
        number: usize,
        at: u64,
        block: &'b mut Block,
    ) -> Result<&'b [u8], Error> {
        let row = &self.ends.end.rows[number];
        let damaged = |what: String| Error::Damaged {
            path: self.path.clone(),
            what: format!("block {number} at byte {at}: {what}"),
        };
        let keys = self.keys()?;
        let head = self.head();
        block.payload.resize(row.stored_len as usize, 0);
        block.plain.resize(head.block_bytes as usize, 0);
        let stored = &mut block.payload[..];
        let plain = &mut block.plain[..head.block_len(number)];
        self.file.read_exact_at(stored, at)?;
        let same = |what: &str, found: u32, expected: u32| match found == expected {
            true => Ok(()),
            false => Err(damaged(format!(
                "CRC-32C of its {what} bytes is {found:#010x}, not {expected:#010x}"
            ))),
        };
        same("stored", crc32c(stored), row.stored_crc)?;
        let (payload, plain_crc) = match (keys, row.plain) {
            (None, PlainMark::Crc(crc)) => (&stored[..], crc),
            (Some(keys), _) => opened(keys, number, stored).map_err(damaged)?,
            (None, PlainMark::Tag(_)) => return Err(damaged("it has no key".to_owned())),
        };
        block
            .decompressor
            .decompress(head.algorithm, payload, plain)
            .map_err(|e| damaged(e.to_string()))?;
        same("plain", crc32c(plain), plain_crc)?;
        Ok(plain)
    }
}

/// The payload in the frame of an encrypted block, and the checksum of its plain bytes.
fn opened<'s>(
    keys: &SetKeys,
    number: usize,
    stored: &'s mut [u8],
) -> Result<(&'s [u8], u32), String> {
    let (frame, piece) = stored
        .split_first_chunk_mut::<FRAME_LEN>()
        .ok_or("it is too short")?;
    let expected = (piece.len() as u32).to_le_bytes();
    if frame[..4] != ENCRYPTED_MAGIC.to_le_bytes() || frame[4..] != expected {
        return Err(RecordError::Framing.to_string());
    }
    let message = keys.open_piece(number as u32, piece);
    let message = message.map_err(|e| e.to_string())?;
    let (crc, payload) = message.split_first_chunk().ok_or("it is too short")?;
    Ok((payload, u32::from_le_bytes(*crc)))
}

/// A block being decoded.
#[derive(Default)]
pub(super) struct Block {
    decompressor: Decompressor,
    payload: Vec<u8>,
    pub(super) plain: Vec<u8>,
}
