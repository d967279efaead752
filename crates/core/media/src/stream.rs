//! One family's blocks of one backup set, in stripe order.
//!
//! Invariants
//! - Every record is checked before it is believed: lengths against the format's bounds, checksums, and at the end
//!   counts and index against the set's trailer. So a stream that ends without an error has every block exactly once,
//!   and none from elsewhere.
//!
//! Leaves to others: reading bytes (`window.rs`), decoding payloads (`codec`), and joining families (`set_reader.rs`).

use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{KeyContext, Keyring, Keys, Root, Signers};
use longshore_io::{crc32c, crc32c_append};

use crate::Error;
use crate::block::{ENCRYPTED_MANIFEST_EXTRA, Encrypted, HeadReader, stored_seal};
use crate::device::FamilyRead;
use crate::encrypted::{StripeCheck, check_plain, stored_keys};
use crate::header::{BlockHeader, MediaHeader, SetHeader, SetTrailer};
use crate::index::{self, ChunkOwner};
use crate::record::{Container, RecordError, RecordKind};
use crate::window::Window;

/// A block of the stripe; its payload was read into the caller's buffer.
#[derive(Debug, Clone)]
pub struct Block {
    pub header: BlockHeader,
    /// Decode it with [`crate::manifest::decode`].
    pub manifest: Vec<u8>,
    /// Offset of the payload in the stripe.
    pub payload_offset: u64,
    /// Decrypts the payload, in an encrypted set whose keys are at hand.
    pub encrypted: Option<Encrypted>,
}

/// Reads blocks up to the set's trailer, and checks what only the whole stream can show: that no block was removed,
/// added or exchanged.
#[derive(Debug)]
pub struct BlockStream {
    window: Window,
    container: Container,
    header: SetHeader,
    /// Offset of the set header.
    set_offset: u64,
    framed: Vec<u8>,
    head: HeadReader,
    blocks: u64,
    chain_crc: u32,
    /// Rows that the index must list; compared chunk by chunk.
    rows: Vec<index::Row>,
    rows_len: usize,
    /// Offset and length of the last index chunk; zeros before the first.
    last_chunk: (u64, u32),
    trailer: Option<SetTrailer>,
    /// If present, only these blocks are read, by the index.
    picked: Option<PickedBlock>,
    /// Of an encrypted set.
    check: Option<StripeCheck>,
    /// The trailer that the stripe was listed with, and its offset.
    expected: Option<(SetTrailer, u64)>,
    /// Whether parity stripes stand for the stripe.
    has_parity: bool,
}

/// A block to be read individually.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub sequence: u64,
    pub offset: u64,
    pub len_bytes: u32,
    pub content: PickedContent,
}

/// The index's word about the content of a picked block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickedContent {
    /// CRC-32C of its manifest.
    Manifest(u32),
    /// Its digest, in an encrypted set.
    Digest(Root),
}

/// Reads bytes of a stripe once more.
#[derive(Debug, Clone)]
pub struct SecondLook(Arc<dyn FamilyRead>);

impl SecondLook {
    /// Reads a payload again that does not match its checksum, if the stripe may have better bytes: false if it has not.
    pub fn read(&self, payload: &mut [u8], offset: u64) -> Result<bool, Error> {
        let range = offset..offset.saturating_add(payload.len() as u64);
        Ok(self.0.doubt(range)? && self.0.read_at(payload, offset)? == payload.len())
    }
}

#[derive(Debug)]
struct PickedBlock {
    /// Sorted by offset; each with the end of the contiguous run of blocks that contains it.
    picks: std::vec::IntoIter<(Pick, u64)>,
    trailer: SetTrailer,
    /// Bytes of the picks read so far.
    bytes: u64,
}

impl PickedBlock {
    fn new(mut picks: Vec<Pick>, trailer: SetTrailer) -> PickedBlock {
        picks.sort_by_key(|p| std::cmp::Reverse(p.offset));
        let mut run = (0, 0);
        let with_run = |pick: Pick| {
            let end = pick.offset.saturating_add(u64::from(pick.len_bytes));
            run = (pick.offset, if end == run.0 { run.1 } else { end });
            (pick, run.1)
        };
        let mut picks: Vec<_> = picks.into_iter().map(with_run).collect();
        picks.reverse();
        PickedBlock {
            picks: picks.into_iter(),
            trailer,
            bytes: 0,
        }
    }
}

/// The purpose for which a set is read.
#[derive(Clone, Copy)]
pub(crate) enum Reading<'a> {
    /// A copy, which takes the set as it is.
    Copy,
    /// Checks of its stored bytes, and of its signature if it must have one.
    Stored(&'a Keyring),
    /// Its contents.
    Contents(&'a Keyring),
}

impl Reading<'_> {
    fn signers(&self) -> Arc<Signers> {
        match self {
            Reading::Copy => Arc::default(),
            Reading::Stored(keyring) | Reading::Contents(keyring) => keyring.signers().clone(),
        }
    }
}

impl BlockStream {
    /// `window` is at the set header of position `position` or, in a pipe, before it.
    pub(crate) fn begin(
        mut window: Window,
        media: &MediaHeader,
        position: u32,
        reading: Reading<'_>,
    ) -> Result<BlockStream, Error> {
        let container = media.container;
        let mut framed = Vec::new();
        let mut skipped = 0;
        let mut scratch = vec![0; 64 << 10];
        loop {
            let offset = window.offset();
            match window.record(container, &mut framed)? {
                None => {
                    let device = window.device().to_owned();
                    return Err(Error::NoSuchSet {
                        device,
                        position,
                        count: skipped,
                    });
                }
                Some((RecordKind::Set, body)) => {
                    let header = SetHeader::decode(body).map_err(|e| bad(&window, offset, e))?;
                    if header.position == position {
                        let compressed = header.algorithm != Algorithm::None;
                        if Container::of_set(header.algorithm, header.encrypted) != container
                            || compressed != media.compressed
                            || header.encrypted != media.encrypted
                        {
                            return Err(bad(&window, offset, RecordError::Field));
                        }
                        let body = body.to_vec();
                        let check = match (header.encrypted, reading) {
                            (true, _) => {
                                Some(check_of(&mut window, media, position, &body, reading)?)
                            }
                            (false, Reading::Copy) => None,
                            (false, Reading::Stored(keyring) | Reading::Contents(keyring)) => {
                                check_plain(keyring, window.device(), position)?;
                                None
                            }
                        };
                        return Ok(BlockStream {
                            window,
                            container,
                            header,
                            set_offset: offset,
                            framed,
                            head: HeadReader::default(),
                            blocks: 0,
                            chain_crc: 0,
                            rows: Vec::new(),
                            rows_len: 0,
                            last_chunk: (0, 0),
                            trailer: None,
                            picked: None,
                            check,
                            expected: None,
                            has_parity: media.parity_count > 0,
                        });
                    }
                    skipped += 1;
                }
                Some((RecordKind::Block, body)) => {
                    let (block, _) =
                        BlockHeader::decode(body).map_err(|e| bad(&window, offset, e))?;
                    let mut left = block.stored_len as usize;
                    while left > 0 {
                        let n = left.min(scratch.len());
                        if window.read(&mut scratch[..n])? < n {
                            return Err(Error::Incomplete {
                                device: window.device().to_owned(),
                                position: skipped,
                            });
                        }
                        left -= n;
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// From now on, keeps up to `count` reads of 1 MiB in flight ahead of the consumer, for ranges that are not in the
    /// page cache. Needs as many buffers.
    pub fn read_ahead(&mut self, count: usize) -> Result<(), Error> {
        // The bytes that follow a picked block are not the ones needed next.
        if self.is_picked() {
            return Ok(());
        }
        self.window.read_ahead(count)
    }

    /// The set must end with this trailer at this offset, with which it was listed.
    pub(crate) fn expect(mut self, trailer: &SetTrailer, offset: u64) -> BlockStream {
        self.expected = Some((trailer.clone(), offset));
        self
    }

    /// Reads only these blocks from now on; `trailer` is the set's trailer on this stripe. `context`: what the key of the index
    /// was made for. Digests are of tags, and whoever chooses a key can make blocks of any tag: so it must be this stream's.
    ///
    /// Errors: [`Error::SetDamaged`].
    pub(crate) fn pick(
        mut self,
        (picks, context): (Vec<Pick>, Option<KeyContext>),
        trailer: SetTrailer,
    ) -> Result<BlockStream, Error> {
        if self.check.as_ref().map(StripeCheck::context) != context {
            return Err(
                self.set_damaged("its header or its keys have changed since its index was read")
            );
        }
        self.picked = Some(PickedBlock::new(picks, trailer));
        Ok(self)
    }

    /// Whether only some of the set's blocks are read.
    pub fn is_picked(&self) -> bool {
        self.picked.is_some()
    }

    /// Total bytes of the picked blocks.
    pub fn picked_bytes(&self) -> u64 {
        let picks = self.picked.iter().flat_map(|p| p.picks.as_slice());
        picks.map(|(pick, _)| u64::from(pick.len_bytes)).sum()
    }

    pub fn header(&self) -> &SetHeader {
        &self.header
    }

    pub fn device(&self) -> &str {
        self.window.device()
    }

    /// For payloads that do not match their checksum.
    pub fn second_look(&self) -> SecondLook {
        SecondLook(self.window.stripe())
    }

    /// Bytes of the stripe read so far.
    pub fn offset(&self) -> u64 {
        match &self.picked {
            Some(picked) => picked.bytes,
            None => self.window.offset(),
        }
    }

    /// The trailer, after [`BlockStream::next`] has returned `None`.
    pub fn trailer(&self) -> Option<&SetTrailer> {
        self.trailer.as_ref()
    }

    fn incomplete(&self) -> Error {
        Error::Incomplete {
            device: self.device().to_owned(),
            position: self.header.position,
        }
    }

    fn set_damaged(&self, what: &str) -> Error {
        Error::SetDamaged {
            device: self.device().to_owned(),
            position: self.header.position,
            what: what.to_owned(),
        }
    }

    /// The next block, with its payload at the start of `payload`; `None` after the trailer.
    ///
    /// Errors: [`Error::Incomplete`] if the stripe ends first, [`Error::Damaged`] and [`Error::SetDamaged`]. The
    /// caller must check the payload's checksum, in the thread that decodes it.
    pub fn next(&mut self, payload: &mut [u8]) -> Result<Option<Block>, Error> {
        if self.trailer.is_some() {
            return Ok(None);
        }
        if self.picked.is_some() {
            return self.next_picked(payload);
        }
        loop {
            let offset = self.window.offset();
            let Some((kind, body)) = self.window.record(self.container, &mut self.framed)? else {
                return Err(self.incomplete());
            };
            match kind {
                RecordKind::Manifest => self
                    .head
                    .manifest(body)
                    .map_err(|e| bad(&self.window, offset, e))?,
                RecordKind::Block => {
                    let (header, manifest) = self
                        .head
                        .block(body)
                        .map_err(|e| bad(&self.window, offset, e))?;
                    if self.rows_len >= index::CHUNK_RAW {
                        return Err(self.set_damaged("a chunk of its index is missing"));
                    }
                    if self.check.as_ref().is_some_and(StripeCheck::has_roots) {
                        return Err(self.set_damaged("a block follows its roots"));
                    }
                    let (block, digest) = self.payload(offset, header, manifest, payload)?;
                    self.account(&block, digest);
                    return Ok(Some(block));
                }
                RecordKind::Index | RecordKind::Roots if self.head.is_open() => {
                    return Err(self.set_damaged("the header of one of its blocks is cut off"));
                }
                RecordKind::Roots => {
                    let what = match &mut self.check {
                        Some(check) if !check.has_roots() => check.roots(body),
                        _ => Err(RecordError::Kind(kind as u8)),
                    };
                    what.map_err(|e| bad(&self.window, offset, e))?;
                }
                RecordKind::Index => {
                    let body = body.to_vec();
                    self.check_index(offset, &body)?;
                }
                RecordKind::Trailer => {
                    let trailer =
                        SetTrailer::decode(body).map_err(|e| bad(&self.window, offset, e))?;
                    self.check_trailer(&trailer)?;
                    let found = (&trailer, offset);
                    let expected = self.expected.as_ref().map(|(t, at)| (t, *at));
                    if expected.is_some_and(|expected| expected != found) {
                        return Err(
                            self.set_damaged("its trailer is not the one that it is listed with")
                        );
                    }
                    self.trailer = Some(trailer);
                    return Ok(None);
                }
                RecordKind::Media
                | RecordKind::Set
                | RecordKind::Keys
                | RecordKind::Wal
                | RecordKind::WalEnd
                | RecordKind::Parity => {
                    return Err(bad(&self.window, offset, RecordError::Kind(kind as u8)));
                }
            }
        }
    }

    /// The next picked block. The record at its offset must be that block.
    fn next_picked(&mut self, payload: &mut [u8]) -> Result<Option<Block>, Error> {
        let Some(picked) = &mut self.picked else {
            return Ok(None);
        };
        let Some((pick, run_end)) = picked.picks.next() else {
            self.trailer = Some(picked.trailer.clone());
            return Ok(None);
        };
        picked.bytes += u64::from(pick.len_bytes);
        self.window.go_to(pick.offset, run_end)?;
        loop {
            let offset = self.window.offset();
            let Some((kind, body)) = self.window.record(self.container, &mut self.framed)? else {
                return Err(self.incomplete());
            };
            match kind {
                RecordKind::Manifest => self
                    .head
                    .manifest(body)
                    .map_err(|e| bad(&self.window, offset, e))?,
                RecordKind::Block => {
                    let (header, manifest) = self
                        .head
                        .block(body)
                        .map_err(|e| bad(&self.window, offset, e))?;
                    let (block, digest) = self.payload(offset, header, manifest, payload)?;
                    let end = pick.offset.checked_add(u64::from(pick.len_bytes));
                    let content = match digest {
                        Some(digest) => PickedContent::Digest(digest),
                        None => PickedContent::Manifest(block.header.manifest_crc),
                    };
                    if block.header.sequence != pick.sequence
                        || content != pick.content
                        || Some(self.window.offset()) != end
                    {
                        return Err(self.set_damaged("its index does not match its blocks"));
                    }
                    return Ok(Some(block));
                }
                kind => return Err(bad(&self.window, offset, RecordError::Kind(kind as u8))),
            }
        }
    }

    /// Checks a block's header, which is at `offset`, and reads the payload after it.
    fn payload(
        &mut self,
        offset: u64,
        mut header: BlockHeader,
        mut manifest: Vec<u8>,
        payload: &mut [u8],
    ) -> Result<(Block, Option<Root>), Error> {
        if header.set != self.header.set {
            return Err(self.set_damaged("it contains a block of another set"));
        }
        let stored = header.stored_len as usize;
        let fits = header.plain_len <= self.header.buffer_bytes && stored <= payload.len();
        let like_its_set = header.algorithm == self.header.algorithm
            && header.is_encrypted() == self.header.encrypted
            && (header.plain_crc == 0 || !self.header.encrypted);
        if !fits || !like_its_set {
            return Err(bad(&self.window, offset, RecordError::Field));
        }
        let payload_offset = self.window.offset();
        if self.window.read(&mut payload[..stored])? < stored {
            return Err(self.incomplete());
        }
        // The digest is taken of these bytes, so damage that parity can stand for must be found before.
        if self.has_parity
            && self.check.is_some()
            && crc32c(&payload[..stored]) != header.stored_crc
        {
            self.second_look()
                .read(&mut payload[..stored], payload_offset)?;
        }
        let mut digest = None;
        let mut encrypted = None;
        if let Some(check) = &self.check {
            let bad = |what| bad(&self.window, offset, what);
            let seal = stored_seal(&header, &manifest, &payload[..stored]).map_err(bad)?;
            digest = Some(seal.digest(header.sequence));
            if let Some(keys) = &check.keys {
                let opened = Encrypted::open(keys, &mut header, &mut manifest, &seal);
                encrypted = Some(opened.map_err(bad)?);
            }
        }
        let block = Block {
            header,
            manifest,
            payload_offset,
            encrypted,
        };
        Ok((block, digest))
    }

    fn account(&mut self, block: &Block, digest: Option<Root>) {
        let header = &block.header;
        self.blocks += 1;
        let mut link = [0; 12];
        link[..8].copy_from_slice(&header.sequence.to_le_bytes());
        link[8..].copy_from_slice(&header.stored_crc.to_le_bytes());
        self.chain_crc = crc32c_append(self.chain_crc, &link);
        let mut row_len = index::BLOCK_ROW_LEN + header.manifest_len as usize;
        if let (Some(check), Some(digest)) = (&mut self.check, &digest) {
            check.root.block(digest);
            row_len = (row_len + index::DIGEST_LEN).saturating_sub(ENCRYPTED_MANIFEST_EXTRA);
        }
        self.rows_len += row_len;
        let head = crate::block::head_len(self.container, header.manifest_len as usize) as u64;
        self.rows.push(index::Row {
            sequence: header.sequence,
            offset: block.payload_offset.saturating_sub(head),
            len: header.stored_len.saturating_add(head as u32),
            plain_len: header.plain_len,
            digest,
            manifest: block.manifest.clone(),
        });
    }

    /// The index must repeat exactly the blocks of the stream since the previous chunk.
    fn check_index(&mut self, offset: u64, first: &[u8]) -> Result<(), Error> {
        let mut chunk = Vec::new();
        self.container.append(RecordKind::Index, first, &mut chunk);
        let count = index::part_count(first).map_err(|e| bad(&self.window, offset, e))?;
        for _ in 1..count {
            let at = self.window.offset();
            match self.window.record(self.container, &mut self.framed)? {
                None => return Err(self.incomplete()),
                Some((RecordKind::Index, _)) => chunk.extend_from_slice(&self.framed),
                Some((kind, _)) => {
                    return Err(bad(&self.window, at, RecordError::Kind(kind as u8)));
                }
            }
        }
        let bad = |e| bad(&self.window, offset, e);
        let stored = index::stored_chunk(self.container, &chunk).map_err(bad)?;
        self.rows_len = 0;
        let seen = std::mem::take(&mut self.rows);
        let rows = match &mut self.check {
            None => Some(stored.rows().map_err(bad)?),
            Some(check) => {
                let number = check.chunks;
                check.chunks += 1;
                check.root.chunk(&chunk);
                let owner = ChunkOwner {
                    set: *self.header.set.as_bytes(),
                    family: check.family(),
                };
                match &check.index {
                    // Its rows cannot be read; the root says whether the chunk is the one that was written.
                    None => None,
                    Some(keys) => {
                        let rows = stored.decrypted(keys, owner, (number, offset));
                        Some(rows.map_err(bad)?)
                    }
                }
            }
        };
        if rows.is_some_and(|rows| rows != seen) || stored.previous != self.last_chunk {
            return Err(self.set_damaged("its index does not match its blocks"));
        }
        self.last_chunk = (offset, (self.window.offset() - offset) as u32);
        Ok(())
    }

    fn check_trailer(&self, trailer: &SetTrailer) -> Result<(), Error> {
        if trailer.set != self.header.set || trailer.position != self.header.position {
            return Err(self.set_damaged("its trailer belongs to another set"));
        }
        if trailer.blocks_here != self.blocks || trailer.chain_crc != self.chain_crc {
            return Err(self.set_damaged("blocks are missing, repeated or exchanged"));
        }
        if trailer.set_offset != self.set_offset
            || (trailer.index_offset, trailer.index_len) != self.last_chunk
        {
            return Err(self.set_damaged("its trailer does not match its position"));
        }
        if self.head.is_open() || !self.rows.is_empty() {
            return Err(self.set_damaged("its index or its last block is missing"));
        }
        match (&self.check, &trailer.proof) {
            (Some(check), _) => check
                .end(trailer)
                .map_err(|refused| refused.of(self.window.device(), self.header.position)),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(self.set_damaged("its trailer is that of an encrypted set")),
        }
    }
}

/// Reads the Keys records that follow the set header with this body.
fn check_of(
    window: &mut Window,
    media: &MediaHeader,
    position: u32,
    header: &[u8],
    reading: Reading<'_>,
) -> Result<StripeCheck, Error> {
    let device = window.device().to_owned();
    let key = |source| Error::Key {
        device: device.clone(),
        position,
        source,
    };
    let mut framed = Vec::new();
    let mut records: Vec<Vec<u8>> = Vec::new();
    let mut count = 1;
    while records.len() < count {
        let offset = window.offset();
        let body = match window.record(media.container, &mut framed)? {
            Some((RecordKind::Keys, body)) => body.to_vec(),
            Some((kind, _)) => return Err(bad(window, offset, RecordError::Kind(kind as u8))),
            None => return Err(Error::Incomplete { device, position }),
        };
        if records.is_empty() {
            count = Keys::count(&body).map_err(key)?;
        }
        records.push(body);
    }
    stored_keys(header, &records).map_err(key)?;
    let keys = match reading {
        Reading::Contents(keyring) => Some(keyring.open(header, &records).map_err(key)?),
        Reading::Copy | Reading::Stored(_) => None,
    };
    let signers = reading.signers();
    Ok(StripeCheck::new(media, header, &records, keys, &signers))
}

fn bad(window: &Window, offset: u64, what: RecordError) -> Error {
    let device = window.device().to_owned();
    match what {
        RecordError::Feature(bits) => Error::Newer { device, bits },
        what => Error::Damaged {
            device,
            offset,
            what,
        },
    }
}
