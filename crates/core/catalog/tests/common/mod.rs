//! Goal: the catalog's tests share artificial records, small media, and access to the file with plain SQLite.
//! Method: sets are written by the format's own encoders; rows are read by SQLite and not by the catalog's code.
//! Not covered: this file has no tests. Nothing decodes the blocks' payloads.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_catalog::{
    BackupRecord, Catalog, FamilyRecord, FileList, HistoryQuery, MediaRecord, RestoreKind,
    RestoreRecord, RestoredFile, RunOutcome, RunRecord, RunTask,
};
use longshore_codec::{Algorithm, Level};
use longshore_io::{Host, Storage, Via, crc32c};
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, BackupType, BlockHeader, BlockOut, DeviceSpec, Disposition, Entry, EntryKind,
    Extent, Item, SetHeader, SetPlan, SetWriter, Totals, block,
};
use rusqlite::Connection;
use uuid::Uuid;

/// 2026-01-01 00:00:00 UTC.
pub const NEW_YEAR_US: i64 = 1_767_225_600_000_000;

pub fn open(path: &Path) -> Catalog {
    Catalog::open(path).unwrap()
}

/// An empty catalog in a directory of its own.
pub fn new() -> (tempfile::TempDir, PathBuf, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    (dir, path, catalog)
}

/// Asks for everything.
pub fn all() -> HistoryQuery {
    HistoryQuery::default()
}

pub fn header(n: u64) -> SetHeader {
    SetHeader {
        set: Uuid::from_u128(u128::from(n) << 64 | 5),
        position: 1,
        start_us: NEW_YEAR_US + n as i64 * 60_000_000,
        source_kind: 2,
        backup_type: BackupType::Database,
        algorithm: Algorithm::QatDeflate,
        level: Level::Low,
        buffer_bytes: 1 << 20,
        page_bytes: 4096,
        copy_only: false,
        attributes: false,
        encrypted: false,
        keys_detached: false,
        parent: None,
        log: Default::default(),
        expires_us: None,
        time_zone: 0,
        database: "app".into(),
        name: format!("backup {n}"),
        description: String::new(),
        machine: "dock".into(),
        user: "ada".into(),
        origin: "sqlite:/data/app.db".into(),
        lineage: Vec::new(),
        identity: longshore_media::SourceIdentity::default(),
        tree_root: Default::default(),
        sum_key: None,
        server_started_us: None,
    }
}

/// A backup of three files on two stripes, on separate media.
pub fn backup(n: u64) -> BackupRecord {
    let family = |i| FamilyRecord {
        uuid: Some(Uuid::from_u128(u128::from(n) << 64 | i)),
        device: format!("/backups/{n}-{i}.bak"),
        class: DeviceClass::File,
    };
    let mut files = FileList::default();
    for name in ["a.db", "b.db", "c/d.db"] {
        files.add(Path::new(name), 10_000, 9_000);
    }
    BackupRecord {
        media: MediaRecord {
            uuid: Uuid::from_u128(u128::from(n) << 64),
            name: String::new(),
            description: String::new(),
            software: "Longshore 1".into(),
            compressed: true,
            mirrors: Vec::new(),
            families: vec![family(1), family(2)],
        },
        header: header(n),
        totals: Totals {
            log: Default::default(),
            damaged: false,
            finish_us: header(n).start_us + 2_000_000,
            plain_bytes: 27_000,
            entries: 4,
            files: 3,
        },
        stored_bytes: 9_000,
        files,
        engines: Vec::new(),
        limit: None,
        thumbprint: None,
    }
}

pub fn restore(backup: BackupRecord) -> RestoreRecord {
    let file = |name: &str| RestoredFile {
        path: name.into(),
        destination: Path::new("/restored").join(name),
    };
    RestoreRecord {
        recovery: true,
        stop_at_us: None,
        start_us: backup.totals.finish_us + 1_000_000,
        finish_us: backup.totals.finish_us + 3_000_000,
        backup,
        database: "copy".into(),
        target: "/restored".into(),
        user: "bob".into(),
        kind: RestoreKind::Database,
        replace: true,
        time_zone: 4,
        plain_bytes: 4 << 20,
        files: vec![file("c/d.db"), file("a.db")],
    }
}

/// A good drill that begins at the n-th minute of the year.
pub fn run(n: u64) -> RunRecord {
    let start_us = header(n).start_us;
    RunRecord {
        task: RunTask::Drill,
        database: Some("app".into()),
        target: Some("nightly".into()),
        label: None,
        set: None,
        devices: Vec::new(),
        start_us,
        finish_us: start_us + 1_500_000,
        time_zone: 4,
        outcome: RunOutcome::Good,
        exit_code: 0,
        number: None,
        bytes: None,
        message: None,
    }
}

pub fn stripes(dir: &Path, count: usize) -> Vec<Arc<dyn BackupDevice>> {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let path = |i| DeviceSpec::File(dir.join(format!("s{i}.bak")));
    (1..=count).map(|i| path(i).open(&storage)).collect()
}

/// Begins a set on media and writes one block per file, from its name and `len` made-up bytes.
pub fn begin_set(
    devices: &[Arc<dyn BackupDevice>],
    disposition: Disposition,
    header: SetHeader,
    files: &[(&str, u32)],
) -> SetWriter {
    let plan = SetPlan {
        disposition,
        media_name: "the media".into(),
        media_description: String::new(),
        header,
        via: Via::Cache,
        expected_bytes: None,
        encryption: None,
        parity: Default::default(),
    };
    let mut writer = SetWriter::begin(devices, plan, NEW_YEAR_US).unwrap();
    let families = writer.families.len();
    for (i, (path, len)) in files.iter().enumerate() {
        let mut manifest = Vec::new();
        let entry = Entry {
            path: PathBuf::from(path),
            kind: EntryKind::File,
            first: true,
            based: false,
            xattrs: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len: u64::from(*len) + 100,
        };
        Item::Entry(entry).encode(&mut manifest);
        if *len > 0 {
            let extent = Extent {
                offset: 100,
                len: *len,
            };
            Item::Extent(extent).encode(&mut manifest);
        }
        // Nothing decodes it here.
        let payload = vec![7; *len as usize];
        let block = BlockHeader {
            set: writer.header.set,
            sequence: i as u64,
            plain_len: *len,
            stored_len: *len,
            plain_crc: crc32c(&payload),
            stored_crc: crc32c(&payload),
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm: writer.header.algorithm,
            salt: Default::default(),
        };
        let mut bytes = vec![0; block::head_len(writer.container, manifest.len())];
        let stored_crc = block.stored_crc;
        block::put_head(writer.container, block, &manifest, &mut bytes);
        bytes.extend_from_slice(&payload);
        let out = BlockOut {
            bytes: &bytes,
            sequence: i as u64,
            plain_len: *len,
            stored_crc,
            manifest: &manifest,
            digest: None,
        };
        writer.families[i % families].put_block(&out).unwrap();
    }
    writer
}

/// Writes a whole set of `files` and returns its stored bytes.
pub fn write_set(
    devices: &[Arc<dyn BackupDevice>],
    disposition: Disposition,
    header: SetHeader,
    files: &[(&str, u32)],
) -> u64 {
    let finish_us = header.start_us + 1_500_000;
    let mut writer = begin_set(devices, disposition, header, files);
    for family in &mut writer.families {
        family.finish_data().unwrap();
    }
    let totals = Totals {
        log: Default::default(),
        damaged: false,
        finish_us,
        plain_bytes: files.iter().map(|f| u64::from(f.1)).sum(),
        entries: files.len() as u64,
        files: files.len() as u64,
    };
    writer.seal(&totals).unwrap()
}

/// The catalog as plain SQLite sees it.
pub fn sqlite(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// Rows as text, columns separated by `|`, NULL as empty text.
pub fn rows(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(sql).unwrap();
    let columns = statement.column_count();
    let text = |value: rusqlite::types::Value| match value {
        rusqlite::types::Value::Null => String::new(),
        rusqlite::types::Value::Integer(n) => n.to_string(),
        rusqlite::types::Value::Real(x) => x.to_string(),
        rusqlite::types::Value::Text(s) => s,
        rusqlite::types::Value::Blob(b) => format!("{b:?}"),
    };
    let found = statement.query_map([], |row| {
        let all: Result<Vec<_>, _> = (0..columns).map(|i| row.get(i).map(text)).collect();
        Ok(all?.join("|"))
    });
    found.unwrap().collect::<Result<_, _>>().unwrap()
}

pub fn count(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap() as u64
}

/// Asserts that every recorded backup and restore is complete. Only for records of [`backup`] and [`restore`].
pub fn assert_whole(path: &Path) {
    let db = sqlite(path);
    assert_eq!(rows(&db, "PRAGMA integrity_check"), ["ok"]);
    assert_eq!(rows(&db, "PRAGMA foreign_key_check"), [""; 0]);
    let torn = [
        "SELECT * FROM backupset s WHERE 3 <> (SELECT count(*) FROM backupfile f WHERE f.backup_set_id = s.backup_set_id)",
        "SELECT * FROM backupmediaset m WHERE 2 <> (SELECT count(*) FROM backupmediafamily f WHERE f.media_set_id = m.media_set_id)",
        "SELECT * FROM backupmediaset m WHERE 1 <> (SELECT count(*) FROM backupset s WHERE s.media_set_id = m.media_set_id)",
        "SELECT * FROM restorehistory r WHERE 2 <> (SELECT count(*) FROM restorefile f WHERE f.restore_history_id = r.restore_history_id)",
    ];
    for sql in torn {
        assert_eq!(rows(&db, sql), [""; 0], "{sql}");
    }
}
