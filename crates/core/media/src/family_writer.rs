//! Writes one family's part of a set: its blocks, the index over them, and the trailer.
//!
//! Invariants
//! - A block is in the index and in the chain of checksums exactly if all of its bytes were given to the device.
//! - A stripe says that it is full while an index chunk and a trailer still fit.
//! - Each mirror of the stripe gets the same bytes as the stripe, from the same memory, and fails as it does.
//! - Where the set has parity, its rows get all bytes of the stripe, in order, each after the device has it.
//!
//! Leaves to others: the order over all families, which makes a trailer a promise (`set_writer.rs`), and the device
//! (`device.rs`).

use longshore_crypt::{FamilyRoot, Root};
use longshore_io::crc32c_append;

use crate::Error;
use crate::device::{FamilyWrite, NamedStripe, Settle, SharedBytes};
use crate::encrypted::Roots;
use crate::header::{MediaHeader, RootProof, SetTrailer};
use crate::index::{self, ChunkKeys, RowRef};
use crate::parity::Tap;
use crate::record::{Container, RecordKind};

/// Room for a block of the largest size, a chunk of the index and a trailer, several times over.
const ROOM_MIN: u64 = 16 << 20;

/// One family's part of a set being written.
pub struct FamilyWriter {
    write: Box<dyn FamilyWrite>,
    /// Further stripes with the same bytes.
    mirrors: Vec<NamedStripe>,
    /// `None` in a set without parity.
    tap: Option<Tap>,
    device: String,
    container: Container,
    family: u16,
    set_offset: u64,
    previous_trailer: u64,
    blocks: u64,
    chain_crc: u32,
    index: index::Builder,
    encryption: Option<Encryption>,
}

/// The additional state of one family of an encrypted set.
struct Encryption {
    keys: ChunkKeys,
    root: FamilyRoot,
}

/// A finished block to be written to a stripe.
pub struct BlockOut<'a> {
    /// Header and payload, as they will be in the stripe.
    pub bytes: &'a [u8],
    pub sequence: u64,
    pub plain_len: u32,
    pub stored_crc: u32,
    /// As it was before it was encrypted.
    pub manifest: &'a [u8],
    /// The digest of an encrypted block; `None` in other sets.
    pub digest: Option<Root>,
}

impl FamilyWriter {
    /// A stripe at whose present end the set begins. `previous_trailer`: the offset of the trailer before it; 0 if there
    /// is none.
    pub(crate) fn new(
        write: Box<dyn FamilyWrite>,
        device: String,
        container: Container,
        family: u16,
        previous_trailer: u64,
    ) -> FamilyWriter {
        FamilyWriter {
            set_offset: write.offset(),
            write,
            mirrors: Vec::new(),
            tap: None,
            device,
            container,
            family,
            previous_trailer,
            blocks: 0,
            chain_crc: 0,
            index: index::Builder::default(),
            encryption: None,
        }
    }

    /// From here on, these stripes, which are as long, get what is written.
    pub(crate) fn mirrored(self, mirrors: Vec<NamedStripe>) -> FamilyWriter {
        FamilyWriter { mirrors, ..self }
    }

    /// Does to the stripe, and then to each mirror, what `each` does.
    fn all(
        &mut self,
        each: impl Fn(&mut dyn FamilyWrite) -> Result<(), Error>,
    ) -> Result<(), Error> {
        each(&mut *self.write)?;
        let mut mirrors = self.mirrors.iter_mut();
        mirrors.try_for_each(|(_, mirror)| each(&mut **mirror))
    }

    /// From here on, rows of parity get what is written.
    pub(crate) fn tapped(self, tap: Tap) -> FamilyWriter {
        FamilyWriter {
            tap: Some(tap),
            ..self
        }
    }

    /// From here on, the index is encrypted. `media`: the stripe's media header.
    pub(crate) fn encrypt(&mut self, keys: ChunkKeys, media: &MediaHeader) {
        self.index = index::Builder::encrypted(keys.clone());
        self.encryption = Some(Encryption {
            keys,
            root: FamilyRoot::new(&media.known()),
        });
    }

    /// 1-based number of this family.
    pub fn family(&self) -> u16 {
        self.family
    }

    /// The device's name, as messages say it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Blocks of the set in this stripe so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of the set in this stripe so far, without its trailer.
    pub fn stored_bytes(&self) -> u64 {
        self.write.offset() - self.set_offset
    }

    /// Whether the stripe may not have room for another block, its index and its trailer.
    pub fn is_full(&self) -> bool {
        // A parity stripe is as long as the longest data stripe, or longer.
        let parity = self.tap.as_ref().map_or(u64::MAX, Tap::room);
        let mirrors = self.mirrors.iter().map(|(_, mirror)| mirror.room());
        let least = mirrors.fold(self.write.room(), u64::min);
        least.min(parity) < ROOM_MIN
    }

    /// The error of a set whose stripes are all full.
    pub fn full(&self) -> Error {
        Error::Full {
            device: self.device.clone(),
            bytes: self.write.offset(),
        }
    }

    /// Writes a block after the last one, adds it to the index and to the chain of checksums, and writes a chunk of the
    /// index when that is full. Blocks may come in any order of their sequence.
    ///
    /// The call blocks while the device does: a file's staging buffer is written to the disk when it is full, and an
    /// upload takes a part only when an earlier one has left. The bytes are durable only after
    /// [`FamilyWriter::finish_data`].
    ///
    /// Errors: the device's, with its name and offset. The stripe then has a part of the block, and the set must not be
    /// sealed.
    pub fn put_block(&mut self, block: &BlockOut) -> Result<(), Error> {
        let offset = self.write.offset();
        self.put(block.bytes)?;
        self.note_block(block, offset)
    }

    /// [`FamilyWriter::put_block`] of a block whose bytes lie in `shared`. Rows of parity keep up to [`HELD_BLOCKS`] of
    /// them after the call, over all families, until others come or the set ends.
    ///
    /// [`HELD_BLOCKS`]: crate::HELD_BLOCKS
    pub fn put_shared_block(
        &mut self,
        block: &BlockOut,
        shared: &SharedBytes,
    ) -> Result<(), Error> {
        debug_assert!(std::ptr::eq(block.bytes, &**shared), "other bytes");
        let offset = self.write.offset();
        self.all(|stripe| stripe.write(shared))?;
        if let Some(tap) = &self.tap {
            tap.share(shared)?;
        }
        self.note_block(block, offset)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.all(|stripe| stripe.write(bytes))?;
        self.tap.as_ref().map_or(Ok(()), |tap| tap.lend(bytes))
    }

    fn note_block(&mut self, block: &BlockOut, offset: u64) -> Result<(), Error> {
        self.blocks += 1;
        let mut link = [0; 12];
        link[..8].copy_from_slice(&block.sequence.to_le_bytes());
        link[8..].copy_from_slice(&block.stored_crc.to_le_bytes());
        self.chain_crc = crc32c_append(self.chain_crc, &link);
        if let (Some(encryption), Some(digest)) = (&mut self.encryption, &block.digest) {
            encryption.root.block(digest);
        }
        self.index.add(RowRef {
            sequence: block.sequence,
            offset,
            len: block.bytes.len() as u32,
            plain_len: block.plain_len,
            digest: block.digest.as_ref(),
            manifest: block.manifest,
        });
        if self.index.is_full() {
            self.flush_index()
        } else {
            Ok(())
        }
    }

    fn flush_index(&mut self) -> Result<(), Error> {
        let chunk = self.index.flush(self.container, self.write.offset());
        if let Some(encryption) = &mut self.encryption {
            encryption.root.chunk(&chunk);
        }
        self.put(&chunk)
    }

    /// Writes the rest of the index. The trailer, which follows, is found only with everything before it.
    pub fn finish_data(&mut self) -> Result<(), Error> {
        if !self.index.is_empty() {
            self.flush_index()?;
        }
        self.all(|stripe| stripe.settle(Settle::Ordered))
    }

    /// Writes the records that begin the set: its header, and in an encrypted set who can open it.
    pub(crate) fn put_start(&mut self, header: &[u8], keys: &[Vec<u8>]) -> Result<(), Error> {
        self.put_record(RecordKind::Set, header)?;
        keys.iter()
            .try_for_each(|body| self.put_record(RecordKind::Keys, body))
    }

    /// The root of this family's part of an encrypted set, when all of its blocks and its index are written.
    pub(crate) fn root(&self) -> Option<Root> {
        let encryption = self.encryption.as_ref()?;
        Some(encryption.root.clone().finish())
    }

    /// Writes the roots of all families of an encrypted set, before everything that follows.
    pub(crate) fn put_roots(&mut self, roots: &Roots) -> Result<(), Error> {
        self.put_record(RecordKind::Roots, &roots.encode())?;
        self.all(|stripe| stripe.settle(Settle::Ordered))
    }

    /// Writes the record that ends the set: `whole` says what concerns all families, and this family adds its own.
    /// The data must be finished on *all* families ([`FamilyWriter::finish_data`]). `root` is that of an encrypted set.
    pub(crate) fn put_trailer(
        &mut self,
        whole: &SetTrailer,
        root: Option<Root>,
    ) -> Result<(), Error> {
        let (index_offset, index_len) = self.index.last();
        let mut trailer = SetTrailer {
            set_offset: self.set_offset,
            previous_trailer: self.previous_trailer,
            blocks_here: self.blocks,
            index_offset,
            index_len,
            chain_crc: self.chain_crc,
            ..whole.clone()
        };
        if let (Some(encryption), Some(root)) = (&self.encryption, root) {
            let mac = encryption.keys.keys.trailer_mac(&trailer.start(), &root);
            trailer.proof = Some(RootProof { mac, root });
        }
        self.put_record(RecordKind::Trailer, &trailer.encode())
    }

    fn put_record(&mut self, kind: RecordKind, body: &[u8]) -> Result<(), Error> {
        let mut record = Vec::new();
        self.container.append(kind, body, &mut record);
        self.put(&record)
    }

    /// Starts what [`FamilyWriter::sync`] waits for.
    pub(crate) fn begin_sync(&mut self) -> Result<(), Error> {
        self.all(|stripe| stripe.settle(Settle::Begun))
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.all(|stripe| stripe.sync())
    }

    /// From here on, a dropped writer leaves its stripe, which is whole.
    pub(crate) fn keep(&mut self) {
        self.write.keep();
        for (_, mirror) in &mut self.mirrors {
            mirror.keep();
        }
    }

    /// The stripe itself and its mirrors, when all of the set is written and kept.
    pub(crate) fn into_stripes(self) -> Vec<NamedStripe> {
        let mut stripes = self.mirrors;
        stripes.push((self.device, self.write));
        stripes
    }
}
