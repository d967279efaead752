//! One family's blocks of one backup set, in stripe order.
//!
//! Invariants
//! - Every record is checked before it is believed: lengths against the format's bounds, checksums, and at the end
//!   counts and index against the set's trailer. So a stream that ends without an error has every block exactly once,
//!   and none from elsewhere.
//!
//! Leaves to others: reading bytes (`window.rs`), decoding payloads (`codec`), and joining families (`set_reader.rs`).

use longshore_codec::Algorithm;
use longshore_io::crc32c_append;

use crate::Error;
use crate::block::HeadReader;
use crate::header::{BlockHeader, MediaHeader, SetHeader, SetTrailer};
use crate::index;
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
}

/// A block to be read individually.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub sequence: u64,
    pub offset: u64,
    pub len_bytes: u32,
    pub manifest_crc: u32,
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

impl BlockStream {
    /// `window` is at the set header of position `position` or, in a pipe, before it.
    pub(crate) fn begin(
        mut window: Window,
        media: &MediaHeader,
        position: u32,
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
                        if Container::of(header.algorithm) != container
                            || compressed != media.compressed
                        {
                            return Err(bad(&window, offset, RecordError::Field));
                        }
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

    /// Reads only these blocks from now on; `trailer` is the set's trailer on this stripe.
    pub(crate) fn pick(mut self, picks: Vec<Pick>, trailer: SetTrailer) -> BlockStream {
        self.picked = Some(PickedBlock::new(picks, trailer));
        self
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
                    let block = self.payload(offset, header, manifest, payload)?;
                    self.account(&block.header, block.payload_offset, &block.manifest);
                    return Ok(Some(block));
                }
                RecordKind::Index if self.head.is_open() => {
                    return Err(self.set_damaged("the header of one of its blocks is cut off"));
                }
                RecordKind::Index => {
                    let body = body.to_vec();
                    self.check_index(offset, &body)?;
                }
                RecordKind::Trailer => {
                    let trailer =
                        SetTrailer::decode(body).map_err(|e| bad(&self.window, offset, e))?;
                    self.check_trailer(&trailer)?;
                    self.trailer = Some(trailer);
                    return Ok(None);
                }
                RecordKind::Media | RecordKind::Set | RecordKind::Wal | RecordKind::WalEnd => {
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
                    let block = self.payload(offset, header, manifest, payload)?;
                    let end = pick.offset.checked_add(u64::from(pick.len_bytes));
                    if block.header.sequence != pick.sequence
                        || block.header.manifest_crc != pick.manifest_crc
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
        header: BlockHeader,
        manifest: Vec<u8>,
        payload: &mut [u8],
    ) -> Result<Block, Error> {
        if header.set != self.header.set {
            return Err(self.set_damaged("it contains a block of another set"));
        }
        let stored = header.stored_len as usize;
        let fits = header.plain_len <= self.header.buffer_bytes && stored <= payload.len();
        if !fits || header.algorithm != self.header.algorithm {
            return Err(bad(&self.window, offset, RecordError::Field));
        }
        let payload_offset = self.window.offset();
        if self.window.read(&mut payload[..stored])? < stored {
            return Err(self.incomplete());
        }
        Ok(Block {
            header,
            manifest,
            payload_offset,
        })
    }

    fn account(&mut self, header: &BlockHeader, payload_offset: u64, manifest: &[u8]) {
        self.blocks += 1;
        let mut link = [0; 12];
        link[..8].copy_from_slice(&header.sequence.to_le_bytes());
        link[8..].copy_from_slice(&header.stored_crc.to_le_bytes());
        self.chain_crc = crc32c_append(self.chain_crc, &link);
        let head = crate::block::head_len(self.container, manifest.len()) as u64;
        self.rows_len += index::BLOCK_ROW_LEN + manifest.len();
        self.rows.push(index::Row {
            sequence: header.sequence,
            offset: payload_offset.saturating_sub(head),
            len: header.stored_len.saturating_add(head as u32),
            plain_len: header.plain_len,
            manifest: manifest.to_vec(),
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
        let chunk = index::decode_chunk(self.container, &chunk)
            .map_err(|e| bad(&self.window, offset, e))?;
        self.rows_len = 0;
        if chunk.rows != std::mem::take(&mut self.rows) || chunk.previous != self.last_chunk {
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
        Ok(())
    }
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
