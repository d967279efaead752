//! Goal: what the tests of media share: a backup device in memory, a small writer, and a reader that checks everything.
//! Method: the writer makes blocks and stripes from the crate's own parts, one after another and without threads.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod everything;
pub mod forge;
pub mod interposed;
pub mod rows;
pub mod seeds;
pub mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_io::{Pool, SumKey, Via, crc32c};
use longshore_kit::Random;
use longshore_media::device::DeviceClass;
use longshore_media::header::{ENCRYPTED_EXTRA, payload_max};
use longshore_media::{
    BackupDevice, BackupType, BlockHeader, BlockOut, Disposition, EncryptTo, Entry, EntryKind,
    Error, Extent, FamilyRead, FamilyWrite, Item, Keyring, LastLook, Mark, MediaSet, ParityPlan,
    PendingStripe, Root, SetHeader, SetPlan, SetWriter, SharedBytes, Sums, Surroundings, Totals,
    block, manifest,
};
use uuid::Uuid;

/// A finished stripe in memory. It can be read but not written: tests change its bytes themselves.
#[derive(Debug, Clone)]
pub struct Stripe {
    pub name: String,
    pub bytes: Arc<Vec<u8>>,
}

impl Stripe {
    pub fn device(name: &str, bytes: Vec<u8>) -> Arc<dyn BackupDevice> {
        Arc::new(Stripe {
            name: name.into(),
            bytes: Arc::new(bytes),
        })
    }

    fn refuse(&self, action: &'static str) -> Error {
        Error::Unsupported {
            device: self.name.clone(),
            action,
        }
    }
}

impl PendingStripe for Stripe {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn complete_pending(&self) -> Result<(), Error> {
        Err(self.refuse("be completed"))
    }
}

impl Surroundings for Stripe {}

impl BackupDevice for Stripe {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::File
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(Some(Arc::new(self.clone())))
    }

    fn create(&self, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Err(self.refuse("be written"))
    }

    fn append(&self, _offset: u64, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Err(self.refuse("be written"))
    }
}

impl FamilyRead for Stripe {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(Some(self.bytes.len() as u64))
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|at| self.bytes.get(at..))
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A stripe in memory that can be written and appended to, like a file.
#[derive(Debug, Clone, Default)]
pub struct Slot(Arc<Mutex<Place>>);

#[derive(Debug, Default)]
struct Place {
    stripe: Option<Vec<u8>>,
    pending: Option<Vec<u8>>,
    is_written: bool,
}

impl Slot {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().stripe.clone().unwrap_or_default()
    }

    pub fn set(&self, bytes: Vec<u8>) {
        self.0.lock().unwrap().stripe = Some(bytes);
    }

    fn reader(&self, bytes: &Option<Vec<u8>>) -> Option<Arc<dyn FamilyRead>> {
        let stripe = |bytes: &Vec<u8>| Stripe {
            name: self.name(),
            bytes: Arc::new(bytes.clone()),
        };
        bytes.as_ref().map(|bytes| Arc::new(stripe(bytes)) as _)
    }

    fn busy(&self) -> Error {
        let device = self.name();
        Error::Busy { device }
    }

    fn writer(&self, bytes: Vec<u8>, is_new: bool) -> Result<Box<dyn FamilyWrite>, Error> {
        let mut place = self.0.lock().unwrap();
        if std::mem::replace(&mut place.is_written, true) {
            return Err(self.busy());
        }
        Ok(Box::new(SlotWrite {
            slot: self.clone(),
            bytes,
            is_new,
            is_kept: false,
        }))
    }
}

impl PendingStripe for Slot {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(self.reader(&self.0.lock().unwrap().pending))
    }

    fn complete_pending(&self) -> Result<(), Error> {
        let mut place = self.0.lock().unwrap();
        match place.pending.take() {
            Some(bytes) if !place.is_written => place.stripe = Some(bytes),
            pending => {
                place.pending = pending;
                return Err(self.busy());
            }
        }
        Ok(())
    }
}

impl Surroundings for Slot {}

impl BackupDevice for Slot {
    fn name(&self) -> String {
        "memory".into()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::File
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(self.reader(&self.0.lock().unwrap().stripe))
    }

    fn create(&self, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let writer = self.writer(Vec::new(), true)?;
        self.0.lock().unwrap().pending = None;
        Ok(writer)
    }

    fn append(&self, offset: u64, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let found = self.0.lock().unwrap().stripe.clone();
        let device = self.name();
        let mut bytes = found.ok_or(Error::Missing { device })?;
        bytes.truncate(offset as usize);
        self.writer(bytes, false)
    }
}

struct SlotWrite {
    slot: Slot,
    bytes: Vec<u8>,
    is_new: bool,
    is_kept: bool,
}

impl FamilyWrite for SlotWrite {
    fn offset(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> Result<(), Error> {
        if self.is_new {
            self.slot.0.lock().unwrap().pending = Some(self.bytes.clone());
        }
        Ok(())
    }
    fn keep(&mut self) {
        self.is_kept = true;
    }
    fn complete(mut self: Box<Self>) -> Result<Option<LastLook>, Error> {
        self.is_kept = true;
        let mut place = self.slot.0.lock().unwrap();
        place.stripe = Some(self.bytes.clone());
        place.pending = None;
        Ok(None)
    }
}

impl Drop for SlotWrite {
    fn drop(&mut self) {
        let mut place = self.slot.0.lock().unwrap();
        place.is_written = false;
        match (self.is_kept, self.is_new) {
            (false, true) => place.pending = None,
            // In place, as in a file.
            (true, false) => place.stripe = Some(std::mem::take(&mut self.bytes)),
            _ => {}
        }
    }
}

/// One name to back up, with runs of data; the rest are holes.
#[derive(Debug, Clone)]
pub struct Input {
    pub entry: Entry,
    pub runs: Vec<(u64, Vec<u8>)>,
    /// Sums of its pages of 512 bytes, from the first page on.
    pub sums: Vec<u64>,
}

pub fn named(path: &str, kind: EntryKind) -> Input {
    Input {
        entry: Entry {
            path: path.into(),
            kind,
            first: true,
            based: false,
            xattrs: Vec::new(),
            mode: 0o640,
            uid: 1000,
            gid: 100,
            mtime_ns: 1_700_000_000_123_456_789,
            len: 0,
        },
        runs: Vec::new(),
        sums: Vec::new(),
    }
}

pub fn file(path: &str, data: &[u8]) -> Input {
    let mut input = named(path, EntryKind::File);
    input.entry.len = data.len() as u64;
    if !data.is_empty() {
        input.runs.push((0, data.to_vec()));
    }
    input
}

/// How a set is to be written.
#[derive(Debug, Clone)]
pub struct Shape {
    pub disposition: Disposition,
    pub algorithm: Algorithm,
    pub buffer_bytes: usize,
    pub set: Uuid,
    pub media_name: String,
    pub expires_us: Option<i64>,
    pub marks: Vec<Mark>,
    pub encryption: Option<EncryptTo>,
    pub parity: ParityPlan,
}

impl Shape {
    pub fn new(disposition: Disposition, algorithm: Algorithm, buffer_bytes: usize) -> Shape {
        Shape {
            disposition,
            algorithm,
            buffer_bytes,
            set: Uuid::new_v4(),
            media_name: String::new(),
            expires_us: None,
            marks: Vec::new(),
            encryption: None,
            parity: ParityPlan::default(),
        }
    }

    pub fn plan(&self) -> SetPlan {
        SetPlan {
            disposition: self.disposition,
            media_name: self.media_name.clone(),
            media_description: String::new(),
            header: SetHeader {
                set: self.set,
                position: 0,
                start_us: 1_700_000_000_000_000,
                source_kind: 1,
                backup_type: BackupType::Database,
                algorithm: self.algorithm,
                level: Level::Low,
                buffer_bytes: self.buffer_bytes as u32,
                page_bytes: 0,
                copy_only: false,
                attributes: true,
                encrypted: false,
                keys_detached: false,
                parent: None,
                log: Default::default(),
                expires_us: self.expires_us,
                time_zone: 4,
                database: "db".into(),
                name: String::new(),
                description: String::new(),
                machine: "m".into(),
                user: "u".into(),
                origin: "o".into(),
                lineage: Vec::new(),
                identity: longshore_media::SourceIdentity::default(),
                tree_root: Default::default(),
                sum_key: Some(SUM_KEY),
                server_started_us: None,
            },
            via: Via::Cache,
            expected_bytes: None,
            encryption: self.encryption.clone(),
            parity: self.parity,
        }
    }
}

/// One block's manifest and plain bytes.
type Piece = (Vec<u8>, Vec<u8>);

/// Cuts inputs into blocks of at most `buffer_bytes`, several small files in one.
pub fn cut(inputs: &[Input], buffer_bytes: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut piece = Piece::default();
    for input in inputs {
        let mut entry = input.entry.clone();
        entry.encode(&mut piece.0);
        entry.first = false;
        for (offset, data) in &input.runs {
            let mut done = 0;
            while done < data.len() {
                if piece.1.len() == buffer_bytes {
                    pieces.push(std::mem::take(&mut piece));
                    entry.encode(&mut piece.0);
                }
                let n = (data.len() - done).min(buffer_bytes - piece.1.len());
                let extent = Extent {
                    offset: offset + done as u64,
                    len: n as u32,
                };
                Item::Extent(extent).encode(&mut piece.0);
                piece.1.extend_from_slice(&data[done..done + n]);
                done += n;
            }
        }
        if !input.sums.is_empty() {
            Item::Sums(Sums {
                offset: 0,
                page_bytes: 512,
                sums: input.sums.clone(),
            })
            .encode(&mut piece.0);
        }
    }
    pieces.push(piece);
    pieces
}

/// Header and payload of a block as in a stripe, the CRC of the payload, and the digest of an encrypted one.
pub fn build_block(
    writer: &SetWriter,
    compressor: &mut Compressor,
    sequence: u64,
    (manifest, plain): &Piece,
) -> (Vec<u8>, u32, Option<Root>) {
    let algorithm = writer.header.algorithm;
    let head = match &writer.keys {
        Some(_) => block::encrypted_payload(writer.container, manifest.len()),
        None => block::head_len(writer.container, manifest.len()),
    };
    let mut bytes = vec![0; head + payload_bound(algorithm, plain.len())];
    let stored = match plain.is_empty() {
        true => 0,
        false => compressor.compress(plain, &mut bytes[head..]).len,
    };
    bytes.truncate(head + stored);
    let header = BlockHeader {
        set: writer.header.set,
        sequence,
        plain_len: plain.len() as u32,
        stored_len: stored as u32,
        plain_crc: crc32c(plain),
        stored_crc: crc32c(&bytes[head..]),
        manifest_crc: 0,
        manifest_len: 0,
        manifest_parts: 0,
        algorithm,
        salt: Default::default(),
    };
    let Some(keys) = &writer.keys else {
        let stored_crc = header.stored_crc;
        block::put_head(writer.container, header, manifest, &mut bytes);
        return (bytes, stored_crc, None);
    };
    bytes.resize(bytes.len() + ENCRYPTED_EXTRA, 0);
    let (header, digest) =
        block::put_encrypted(writer.container, header, manifest, keys, &mut bytes);
    let head = block::head_len(writer.container, header.manifest_len as usize);
    bytes.truncate(head + header.stored_len as usize);
    (bytes, header.stored_crc, Some(digest))
}

/// Begins a set and writes all its data, block n to family n modulo the number of families. Nothing is sealed.
pub fn write_data(
    devices: &[Arc<dyn BackupDevice>],
    shape: &Shape,
    inputs: &[Input],
) -> Result<(SetWriter, Totals), Error> {
    let writer = SetWriter::begin(devices, shape.plan(), 1_700_000_000_000_000)?;
    write_blocks(writer, shape, inputs)
}

/// The rest of [`write_data`], for a set that was begun.
pub fn write_blocks(
    mut writer: SetWriter,
    shape: &Shape,
    inputs: &[Input],
) -> Result<(SetWriter, Totals), Error> {
    let mut compressor = Compressor::new(shape.algorithm, Level::Low).unwrap();
    let mut pieces = cut(inputs, shape.buffer_bytes);
    if !shape.marks.is_empty() {
        let mut manifest = Vec::new();
        for mark in &shape.marks {
            Item::Mark(mark.clone()).encode(&mut manifest);
        }
        pieces.push((manifest, Vec::new()));
    }
    let mut plain_bytes = 0;
    for (n, piece) in pieces.iter().enumerate() {
        let (bytes, stored_crc, digest) = build_block(&writer, &mut compressor, n as u64, piece);
        plain_bytes += piece.1.len() as u64;
        let family = n % writer.families.len();
        // Of three blocks two are shared, so rows of parity take both kinds by turns.
        let mut buffer = Pool::new(1, bytes.len()).unwrap().take().unwrap();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let shared = SharedBytes::new(buffer, 0..bytes.len());
        let block = BlockOut {
            bytes: &shared,
            sequence: n as u64,
            plain_len: piece.1.len() as u32,
            stored_crc,
            manifest: &piece.0,
            digest,
        };
        match n % 3 {
            0 => writer.families[family].put_block(&block)?,
            _ => writer.families[family].put_shared_block(&block, &shared)?,
        }
    }
    for family in &mut writer.families {
        family.finish_data()?;
    }
    let is_file = |i: &&Input| i.entry.kind == EntryKind::File;
    let totals = Totals {
        log: Default::default(),
        damaged: !shape.marks.is_empty(),
        finish_us: 1_700_000_001_000_000,
        plain_bytes,
        entries: inputs.len() as u64,
        files: inputs.iter().filter(is_file).count() as u64,
    };
    Ok((writer, totals))
}

/// Writes a whole set and returns its UUID.
pub fn write_set(
    devices: &[Arc<dyn BackupDevice>],
    shape: &Shape,
    inputs: &[Input],
) -> Result<Uuid, Error> {
    let (writer, totals) = write_data(devices, shape, inputs)?;
    let set = writer.header.set;
    writer.seal(&totals)?;
    Ok(set)
}

/// Media in memory: sets of these shapes, one after another, over `families` stripes.
pub fn media(families: usize, sets: &[(Shape, Vec<Input>)]) -> Vec<Vec<u8>> {
    let slots: Vec<Slot> = (0..families).map(|_| Slot::default()).collect();
    let devices: Vec<Arc<dyn BackupDevice>> =
        slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
    for (shape, inputs) in sets {
        write_set(&devices, shape, inputs).unwrap();
    }
    slots.iter().map(Slot::bytes).collect()
}

pub fn devices(stripes: &[Vec<u8>]) -> Vec<Arc<dyn BackupDevice>> {
    let stripes = stripes.iter().enumerate();
    stripes
        .map(|(i, bytes)| Stripe::device(&format!("stripe-{i}"), bytes.clone()))
        .collect()
}

/// A restored name with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub entry: Entry,
    pub data: Vec<u8>,
}

pub type Content = BTreeMap<PathBuf, Restored>;

/// The content that a restore of a set of these inputs must return.
pub fn expected(inputs: &[Input]) -> Content {
    let restored = |input: &Input| {
        let mut data = vec![0; input.entry.len as usize];
        for (offset, run) in &input.runs {
            data[*offset as usize..*offset as usize + run.len()].copy_from_slice(run);
        }
        let entry = input.entry.clone();
        (entry.path.clone(), Restored { entry, data })
    };
    inputs.iter().map(restored).collect()
}

/// Reads everything on the media and checks everything that can be checked, like a verify. Returns the content of each
/// set.
pub fn read_all(devices: &[Arc<dyn BackupDevice>]) -> Result<Vec<Content>, String> {
    read_all_with(devices, &Arc::default())
}

/// [`read_all`] of media that may be encrypted.
pub fn read_all_with(
    devices: &[Arc<dyn BackupDevice>],
    keyring: &Arc<Keyring>,
) -> Result<Vec<Content>, String> {
    let media = MediaSet::open(devices).map_err(|e| e.to_string())?;
    let media = media.with_keyring(keyring);
    let unreadable = media.unreadable().map_err(|e| e.to_string())?;
    if let Some(error) = unreadable.first() {
        return Err(error.to_string());
    }
    let sets = media.sets().map_err(|e| e.to_string())?;
    let mut contents = Vec::new();
    for set in &sets {
        contents.push(read_set(&media, set.header.position)?);
    }
    Ok(contents)
}

/// Reads one set completely, whatever the state of the others.
pub fn read_set(media: &MediaSet, position: u32) -> Result<Content, String> {
    let text = |e: Error| e.to_string();
    let set = media.set(position).map_err(text)?;
    let trailer = set.trailer.ok_or("the set is incomplete")?;
    let mut content = Content::new();
    let mut sequences = Vec::new();
    let (mut plain_bytes, mut firsts) = (0, 0);
    let mut decompressor = Decompressor::new();
    let mut payload = vec![0; payload_max(set.header.buffer_bytes as usize)];
    for family in 0..media.family_count() {
        let mut stream = media.stream(family, position).map_err(text)?;
        while let Some(block) = stream.next(&mut payload).map_err(text)? {
            let header = &block.header;
            let stored = &mut payload[..header.stored_len as usize];
            if crc32c(stored) != header.stored_crc {
                let look = stream.second_look();
                let again = look.read(stored, block.payload_offset).map_err(text)?;
                if !again || crc32c(stored) != header.stored_crc {
                    return Err("stored CRC".into());
                }
            }
            let payload = match &block.encrypted {
                None => &*stored,
                Some(encrypted) => {
                    let place = encrypted.payload(stored).map_err(|e| e.to_string())?;
                    &stored[place]
                }
            };
            let mut plain = vec![0; header.plain_len as usize];
            if !plain.is_empty() {
                decompressor
                    .decompress(header.algorithm, payload, &mut plain)
                    .map_err(|e| e.to_string())?;
            }
            if crc32c(&plain) != header.plain_crc {
                return Err("plain CRC".into());
            }
            sequences.push(header.sequence);
            plain_bytes += u64::from(header.plain_len);
            let items =
                manifest::decode(&block.manifest, header.plain_len).map_err(|e| e.to_string())?;
            firsts += place(&mut content, items, &plain);
        }
        let end = stream.trailer().ok_or("no trailer")?;
        if end.blocks_total != trailer.blocks_total {
            return Err("trailers differ".into());
        }
    }
    sequences.sort_unstable();
    if !sequences.iter().copied().eq(0..trailer.blocks_total)
        || plain_bytes != trailer.plain_bytes_total
        || firsts != trailer.entries_total
    {
        return Err("the content does not add up".into());
    }
    Ok(content)
}

/// Puts a block's items and bytes into `content`; returns how many entries were first.
fn place(content: &mut Content, items: Vec<Item>, plain: &[u8]) -> u64 {
    let (mut at, mut firsts) = (0, 0);
    let mut current = PathBuf::new();
    for item in items {
        match item {
            Item::Entry(entry) => {
                current.clone_from(&entry.path);
                firsts += u64::from(entry.first);
                let data = vec![0; entry.len as usize];
                let known = content
                    .entry(entry.path.clone())
                    .or_insert_with(|| Restored {
                        entry: entry.clone(),
                        data,
                    });
                known.entry.first |= entry.first;
            }
            Item::Extent(extent) => {
                let (start, len) = (extent.offset as usize, extent.len as usize);
                if let Some(restored) = content.get_mut(&current) {
                    restored.data[start..start + len].copy_from_slice(&plain[at..at + len]);
                }
                at += len;
            }
            Item::Mark(_) | Item::Sums(_) => {}
        }
    }
    firsts
}

/// The key of the small tree's sums.
pub const SUM_KEY: SumKey = SumKey::from_bytes([7; 32]);

/// A small tree that uses everything a manifest can express.
pub fn small_tree() -> Vec<Input> {
    let mut sparse = file("d/sparse", b"");
    sparse.entry.len = 200;
    sparse.runs = vec![(10, b"first run".to_vec()), (150, vec![7; 50])];
    let target = "../anywhere".into();
    let mut paged = file("d/paged", &[b'p'; 1024]);
    paged.sums = [0, 512]
        .map(|at| SUM_KEY.sum(&paged.runs[0].1[at..at + 512]))
        .to_vec();
    vec![
        named("d", EntryKind::Dir),
        file("d/a", &b"the quick brown fox ".repeat(6)),
        paged,
        file("empty", b""),
        named("link", EntryKind::Symlink { target }),
        sparse,
        named(
            "hard",
            EntryKind::HardLink {
                target: "d/a".into(),
            },
        ),
    ]
}

/// Bytes that compress, but not to nothing.
pub fn text_like(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let words = [
        "harbour", "crane", "ship", "ballast", "quay", "manifest", " ", "\n", "17", "0x2a",
    ];
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        out.extend_from_slice(words[random.below(words.len())].as_bytes());
        out.push(b' ' + random.below(64_u8));
    }
    out.truncate(len);
    out
}
