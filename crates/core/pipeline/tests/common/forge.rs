//! Goal: tests restore and verify sets that no backup would make: full and differential ones of any kind of source,
//! with any claims about themselves.
//! Method: blocks, headers and trailers are written by the format's own encoders, with wrong checksums or counts if
//! asked.
//! Not covered: this file has no tests.

use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_io::{Storage, Via, crc32c};
use longshore_media::block::{head_len, put_head};
use longshore_media::{
    BackupType, BlockHeader, BlockOut, DeviceSpec, Disposition, Item, LogStart, SetHeader, SetPlan,
    SetWriter, Totals,
};
use uuid::Uuid;

/// One block: its items, and the plain bytes of their extents.
pub type Block = (Vec<Item>, Vec<u8>);

/// The claims of a set about itself.
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
    /// The value in the trailer; `None`: the actual number.
    pub plain_bytes: Option<u64>,
    /// Bits that are wrong in the checksums of each block's plain and stored bytes.
    pub crcs_off: (u32, u32),
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
            plain_bytes: None,
            crcs_off: (0, 0),
        }
    }
}

/// Writes a set; `family` chooses the stripe of each block.
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
        attributes: false,
        encrypted: false,
        keys_detached: false,
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
        lineage: Vec::new(),
        identity: longshore_media::SourceIdentity::default(),
        tree_root: Default::default(),
        sum_key: None,
        server_started_us: None,
    };
    let plan = SetPlan {
        disposition: claims.disposition,
        media_name: String::new(),
        media_description: String::new(),
        header,
        via: Via::Cache,
        expected_bytes: None,
        encryption: None,
        parity: Default::default(),
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
            plain_crc: crc32c(plain) ^ claims.crcs_off.0,
            stored_crc: crc32c(&payload) ^ claims.crcs_off.1,
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm,
            salt: Default::default(),
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
            digest: None,
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
    totals.plain_bytes = claims.plain_bytes.unwrap_or(totals.plain_bytes);
    writer.seal(&totals).unwrap();
}
