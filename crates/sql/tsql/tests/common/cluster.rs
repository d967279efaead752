//! Goal: tests have sets of a PostgreSQL cluster, made of little: they have what restores check, and nothing that a
//! server could run.
//! Method: headers, blocks and trailers by the format's own encoders, and a control file by hand.
//! Not covered: this file has no tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_io::{Host, Storage, Via, crc32c};
use longshore_media::{
    BackupType, BlockHeader, BlockOut, DeviceSpec, Disposition, Entry, EntryKind, Extent, Item,
    LogEnd, LogStart, SetHeader, SetPlan, SetWriter, Totals, block,
};
use uuid::Uuid;

pub const SYSTEM: u64 = 7_575_086_021_411_873_849;
/// 2026-01-01 00:00:00 UTC, when the full set begins; it ends a second later.
pub const NEW_YEAR_US: i64 = 1_767_225_600_000_000;
const SECOND_US: i64 = 1_000_000;
const ALGORITHM: Algorithm = Algorithm::Lz4;
const CONTROL_CRC_AT: usize = 288;

/// `global/pg_control` of version 13 to 17.
pub fn control() -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[..8].copy_from_slice(&SYSTEM.to_le_bytes());
    for (at, value) in [
        (8, 1300u32),
        (48, 1),
        (216, 8192),
        (220, 131_072),
        (228, 16 << 20),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = crc32c(&bytes[..CONTROL_CRC_AT]);
    bytes[CONTROL_CRC_AT..CONTROL_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn header(kind: BackupType, start_us: i64, first_lsn: u64) -> SetHeader {
    SetHeader {
        set: Uuid::from_u128(first_lsn.into()),
        position: 1,
        start_us,
        source_kind: 3,
        backup_type: kind,
        algorithm: ALGORITHM,
        level: Level::default(),
        buffer_bytes: 1 << 20,
        page_bytes: 8192,
        copy_only: false,
        attributes: false,
        encrypted: false,
        keys_detached: false,
        parent: None,
        log: LogStart {
            system: SYSTEM,
            timeline: 1,
            first_lsn,
        },
        expires_us: None,
        time_zone: 0,
        database: "main".into(),
        name: String::new(),
        description: String::new(),
        machine: longshore_facts::host_name(),
        user: "ada".into(),
        origin: "postgres:main".into(),
        lineage: Vec::new(),
        identity: longshore_media::SourceIdentity::default(),
        tree_root: Default::default(),
        sum_key: None,
        server_started_us: None,
    }
}

/// A full set whose WAL goes from 100 to 200.
pub fn full(device: &Path) {
    full_from(device, 100);
}

/// A full set whose WAL goes from `first_lsn` 100 bytes on.
pub fn full_from(device: &Path, first_lsn: u64) {
    let control = control();
    let label = b"START WAL LOCATION: 0/64 (file 000000010000000000000000)\n\
        CHECKPOINT LOCATION: 0/64\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
        START TIME: 2026-01-01 00:00:00 UTC\nLABEL: longshore\nSTART TIMELINE: 1\n";
    let files: [(&str, &[u8]); 3] = [
        ("backup_label", label),
        ("postgresql.auto.conf", b"work_mem = '4MB'\n"),
        ("global/pg_control", &control),
    ];
    let header = header(BackupType::Database, NEW_YEAR_US, first_lsn);
    write(
        device,
        header,
        first_lsn + 100,
        &["global", "pg_wal"],
        &files,
    );
}

/// A log set from 100 to 300, begun an hour after the full set.
pub fn log(device: &Path) {
    let start_us = NEW_YEAR_US + 3600 * SECOND_US;
    let header = header(BackupType::Log, start_us, 101);
    let files: [(&str, &[u8]); 1] = [("pg_wal/000000010000000000000001", b"log")];
    write(device, header, 300, &["pg_wal"], &files);
}

/// A set of a directory, made on `machine` from `origin`, in which the file `note` holds `text`.
pub fn docs(device: &Path, machine: &str, origin: &str, text: &str) {
    let header = SetHeader {
        source_kind: 1,
        log: LogStart::default(),
        database: "docs".into(),
        machine: machine.to_owned(),
        origin: origin.to_owned(),
        ..header(BackupType::Database, NEW_YEAR_US, 1)
    };
    write(device, header, 0, &["more"], &[("note", text.as_bytes())]);
}

fn write(
    device: &Path,
    header: SetHeader,
    last_lsn: u64,
    directories: &[&str],
    files: &[(&str, &[u8])],
) {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let device = DeviceSpec::File(device.to_owned()).open(&storage);
    let finish_us = header.start_us + SECOND_US;
    let timeline = header.log.timeline;
    let plan = SetPlan {
        disposition: Disposition::Format,
        media_name: String::new(),
        media_description: String::new(),
        header,
        via: Via::Cache,
        expected_bytes: None,
        encryption: None,
        parity: Default::default(),
    };
    let mut writer = SetWriter::begin(&[device], plan, NEW_YEAR_US).unwrap();
    let entry = |path: &str, kind, len| {
        Item::Entry(Entry {
            path: PathBuf::from(path),
            kind,
            first: true,
            based: false,
            xattrs: Vec::new(),
            mode: 0o700,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len,
        })
    };
    for (i, (path, content)) in files.iter().enumerate() {
        let mut manifest = Vec::new();
        if i == 0 {
            for directory in directories {
                entry(directory, EntryKind::Dir, 0).encode(&mut manifest);
            }
        }
        let len = content.len() as u32;
        entry(path, EntryKind::File, len.into()).encode(&mut manifest);
        Item::Extent(Extent { offset: 0, len }).encode(&mut manifest);
        let mut payload = vec![0; payload_bound(ALGORITHM, content.len())];
        let mut compressor = Compressor::new(ALGORITHM, Level::default()).unwrap();
        let stored_len = compressor.compress(content, &mut payload).len;
        payload.truncate(stored_len);
        let block = BlockHeader {
            set: writer.header.set,
            sequence: i as u64,
            plain_len: len,
            stored_len: stored_len as u32,
            plain_crc: crc32c(content),
            stored_crc: crc32c(&payload),
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm: ALGORITHM,
            salt: Default::default(),
        };
        let mut bytes = vec![0; block::head_len(writer.container, manifest.len())];
        let stored_crc = block.stored_crc;
        block::put_head(writer.container, block, &manifest, &mut bytes);
        bytes.extend_from_slice(&payload);
        let out = BlockOut {
            bytes: &bytes,
            sequence: i as u64,
            plain_len: len,
            stored_crc,
            manifest: &manifest,
            digest: None,
        };
        writer.families[0].put_block(&out).unwrap();
    }
    writer.families[0].finish_data().unwrap();
    let plain_bytes = files.iter().map(|(_, content)| content.len() as u64).sum();
    let totals = Totals {
        log: LogEnd {
            timeline,
            last_lsn,
            included: timeline > 0,
        },
        damaged: false,
        finish_us,
        plain_bytes,
        entries: (directories.len() + files.len()) as u64,
        files: files.len() as u64,
    };
    writer.seal(&totals).unwrap();
}
