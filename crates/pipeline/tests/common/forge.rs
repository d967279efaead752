//! Backup sets put together by hand, with the format's own encoders: differential ones of any kind of source.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_io::{Storage, Via, crc32c};
use longshore_media::block::{head_len, put_head};
use longshore_media::{
    BackupType, BlockHeader, BlockOut, DeviceSpec, Disposition, Entry, EntryKind, Extent, Item,
    LogStart, SetHeader, SetPlan, SetWriter, Totals,
};
use uuid::Uuid;

/// One block: its items, and the plain bytes of their extents.
pub type Block = (Vec<Item>, Vec<u8>);

/// What a set says of itself.
#[derive(Debug, Clone)]
pub struct Claims {
    pub set: Uuid,
    pub parent: Option<Uuid>,
    pub source_kind: u8,
    pub system: u64,
    pub algorithm: Algorithm,
    pub buffer_bytes: u32,
    pub disposition: Disposition,
    pub start_us: i64,
    pub damaged: bool,
}

impl Claims {
    pub fn new(parent: Option<Uuid>) -> Claims {
        Claims {
            set: Uuid::new_v4(),
            parent,
            source_kind: 1,
            system: 0,
            algorithm: Algorithm::Lz4,
            buffer_bytes: 64 << 10,
            disposition: Disposition::Append,
            start_us: 1_700_000_000_000_000,
            damaged: false,
        }
    }
}

/// Writes a set; `family` says for each block which stripe it goes to.
pub fn write(
    storage: &Arc<dyn Storage>,
    devices: &[DeviceSpec],
    claims: &Claims,
    blocks: &[Block],
    mut family: impl FnMut(usize) -> usize,
) {
    let devices: Vec<_> = devices.iter().map(|d| d.open(storage)).collect();
    let algorithm = claims.algorithm;
    let header = SetHeader {
        set: claims.set,
        position: 0,
        start_us: claims.start_us,
        source_kind: claims.source_kind,
        backup_type: match claims.parent {
            Some(_) => BackupType::Differential,
            None => BackupType::Database,
        },
        algorithm,
        level: Level::Low,
        buffer_bytes: claims.buffer_bytes,
        page_bytes: 0,
        copy_only: false,
        parent: claims.parent,
        log: LogStart {
            system: claims.system,
            ..LogStart::default()
        },
        expires_us: None,
        time_zone: 0,
        database: "forged".into(),
        name: String::new(),
        description: String::new(),
        machine: String::new(),
        user: String::new(),
        origin: String::new(),
    };
    let plan = SetPlan {
        disposition: claims.disposition,
        media_name: String::new(),
        media_description: String::new(),
        header,
        via: Via::Cache,
    };
    let mut writer = SetWriter::begin(&devices, plan, 0).unwrap();
    let mut compressor = Compressor::new(algorithm, Level::Low).unwrap();
    let mut totals = Totals {
        damaged: claims.damaged,
        ..Totals::default()
    };
    for (sequence, (items, plain)) in blocks.iter().enumerate() {
        let mut manifest = Vec::new();
        items.iter().for_each(|item| item.encode(&mut manifest));
        let mut payload = vec![0; payload_bound(algorithm, plain.len())];
        let len = match plain.is_empty() {
            true => 0,
            false => compressor.compress(plain, &mut payload).len,
        };
        payload.truncate(len);
        let header = BlockHeader {
            set: writer.header.set,
            sequence: sequence as u64,
            plain_len: plain.len() as u32,
            stored_len: len as u32,
            plain_crc: crc32c(plain),
            stored_crc: crc32c(&payload),
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm,
        };
        let mut bytes = vec![0; head_len(writer.container, manifest.len())];
        put_head(writer.container, header.clone(), &manifest, &mut bytes);
        bytes.extend_from_slice(&payload);
        let block = BlockOut {
            bytes: &bytes,
            sequence: sequence as u64,
            plain_len: plain.len() as u32,
            stored_crc: header.stored_crc,
            manifest: &manifest,
        };
        let family = family(sequence) % writer.families.len();
        writer.families[family].put_block(&block).unwrap();
        totals.plain_bytes += plain.len() as u64;
        let first = |item: &&Item| matches!(item, Item::Entry(entry) if entry.first);
        totals.entries += items.iter().filter(first).count() as u64;
    }
    for family in &mut writer.families {
        family.finish_data().unwrap();
    }
    writer.seal(&totals).unwrap();
}

/// A block with parts of one file.
pub fn file(path: &str, len: u64, based: bool, first: bool, parts: &[(usize, Vec<u8>)]) -> Block {
    let mut block = Block::default();
    block.0.push(Item::Entry(Entry {
        path: path.into(),
        kind: EntryKind::File,
        first,
        based,
        mode: 0o640,
        uid: 0,
        gid: 0,
        mtime_ns: 5,
        len,
    }));
    for (at, bytes) in parts {
        block.0.push(Item::Extent(Extent {
            offset: *at as u64,
            len: bytes.len() as u32,
        }));
        block.1.extend_from_slice(bytes);
    }
    block
}

/// A tree of files as blocks: what `base` does not have, and of what it has the parts that differ.
pub fn differing(
    tree: &BTreeMap<PathBuf, Vec<u8>>,
    base: &BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<Block> {
    const PART: usize = 50_000;
    let mut blocks = Vec::new();
    for (path, bytes) in tree {
        let old = base.get(path);
        let path = path.to_str().unwrap();
        let len = bytes.len() as u64;
        blocks.push(file(path, len, old.is_some(), true, &[]));
        for (i, part) in bytes.chunks(PART).enumerate() {
            let at = i * PART;
            if old.is_none_or(|old| old.get(at..at + part.len()) != Some(part)) {
                let parts = [(at, part.to_vec())];
                blocks.push(file(path, len, old.is_some(), false, &parts));
            }
        }
    }
    blocks
}
