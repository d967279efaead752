//! Goal: tests of the PostgreSQL source have a small data directory and the server that would run on it, both of which
//! they can change at any step.
//! Method: control file, pages and WAL segments are written by hand in the layout of PostgreSQL 18; a double answers
//! each command.
//! Not covered: this file has no tests. The checksum function is shared with the code under test; real servers verify
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longshore_io::{Storage, Via};
use longshore_pg::Page;
use longshore_source::{EntryKind, Error, Source, SourceOptions, SourceSpec, SourceSummary, open};

use crate::double::{Double, below, done, ready, refusal, row};

pub const PAGE: usize = 8192;
/// Pages of a relation segment: few, so that relations have several.
pub const SEGMENT_PAGES: u32 = 4;
pub const SYSTEM: u64 = 0xfedc_ba98_7654_3210;
/// The LSNs at which the backup begins and the WAL ends.
pub const START: u64 = 0x200_0028;
pub const END: u64 = 0x300_0000;

/// The directory of a database.
pub const BASE: &str = "base/5";

pub struct Cluster {
    pub dir: tempfile::TempDir,
    pub double: Double,
    /// Every command that the server received.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_owned();
        for name in ["base/5", "global", "pg_tblspc", "pg_wal", "pg_xact"] {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        fs::write(data.join("PG_VERSION"), "18\n").unwrap();
        fs::write(data.join("postmaster.pid"), "1\nx\n1000\n").unwrap();
        fs::write(data.join("global/pg_control"), control()).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let double = Double::new(move |sql| {
            log.lock().unwrap().push(sql.to_owned());
            answer(&data, sql)
        });
        Cluster { dir, double, asked }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        below(self.dir.path(), name)
    }

    /// Writes pages with right checksums as the relation `name` of the database.
    pub fn relation(&self, name: &str, first_block: u32, pages: u32) -> PathBuf {
        let path = self.path(&format!("{BASE}/{name}"));
        let pages = (0..pages).flat_map(|i| page(first_block + i, 0x100));
        fs::write(&path, pages.collect::<Vec<u8>>()).unwrap();
        path
    }

    /// A backup of everything, without the WAL.
    pub fn back_up(&self, storage: &Arc<dyn Storage>) -> Result<Copy, Error> {
        self.back_up_from(&self.double, storage)
    }

    /// The same with another server for this directory.
    pub fn back_up_from(&self, double: &Double, storage: &Arc<dyn Storage>) -> Result<Copy, Error> {
        let mut options = SourceOptions::default();
        options.postgres.with_wal = false;
        read(connect(double, storage, &options)?)
    }

    /// A backup including the WAL: 16 segments.
    pub fn back_up_with_log(&self, storage: &Arc<dyn Storage>) -> Result<Copy, Error> {
        read(connect(&self.double, storage, &SourceOptions::default())?)
    }

    /// Writes the segments from [`START`] to [`END`].
    pub fn write_log(&self) {
        for number in START >> 20..END >> 20 {
            let path = self.path(&format!("pg_wal/00000001000000000000{number:04X}"));
            fs::write(path, segment(number)).unwrap();
        }
    }
}

/// A segment that was closed directly after its start; the same byte fills the rest after its only record.
pub fn segment(number: u64) -> Vec<u8> {
    segment_with(number, (number - 1) << 20 | 40, &[]).0
}

/// The same with these records (resource manager, kind, data) before the switch record; also returns the LSN of its
/// last record. The record before its first one is at `before`.
///
/// Source: PostgreSQL 18, `access/xlog_internal.h` and `access/xlogrecord.h`.
pub fn segment_with(number: u64, before: u64, records: &[(u8, u8, Vec<u8>)]) -> (Vec<u8>, u64) {
    let start = number << 20;
    let mut bytes = vec![number as u8; 1 << 20];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &[0x18, 0xd1, 2, 0, 1, 0, 0, 0]);
    put(8, &start.to_le_bytes());
    put(16, &[0; 8]);
    put(24, &SYSTEM.to_le_bytes());
    put(32, &(1u32 << 20).to_le_bytes());
    put(36, &(PAGE as u32).to_le_bytes());
    let (mut at, mut before) = (40, before);
    let switch = (0, 0x40, Vec::new());
    for (manager, kind, data) in records.iter().chain([&switch]) {
        let mut record = vec![0; 24];
        if !data.is_empty() {
            record.extend([255, data.len() as u8]);
            record.extend(data);
        }
        let len = record.len();
        record[..4].copy_from_slice(&(len as u32).to_le_bytes());
        record[8..16].copy_from_slice(&before.to_le_bytes());
        record[16..18].copy_from_slice(&[*kind, *manager]);
        let crc = longshore_io::crc32c(&[&record[24..], &record[..20]].concat());
        record[20..24].copy_from_slice(&crc.to_le_bytes());
        put(at, &record);
        before = start + at as u64;
        at = (at + len).next_multiple_of(8);
    }
    (bytes, before)
}

/// Begins a backup of the scripted server.
pub fn connect(
    double: &Double,
    storage: &Arc<dyn Storage>,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, Error> {
    let spec = SourceSpec::parse(&**storage, &[double.address().into()])?;
    open(storage.clone(), &spec, options)
}

/// The answer of the server of a cluster in `data` to a command.
pub fn answer(data: &Path, sql: &str) -> Vec<u8> {
    let has = |part: &str| sql.contains(part);
    let (start, end) = (place(START), place(END));
    if has("pg_is_in_recovery()") {
        row(&["f", "replica", &SYSTEM.to_string(), "1000000000", ""])
    } else if has("data_directory") {
        row(&[data.to_str().unwrap()])
    } else if has("pg_backup_start") {
        row(&[&start])
    } else if has("pg_backup_stop") {
        row(&[&end, &label(&start), ""])
    } else if has("insert_lsn") || has("replay_lsn") {
        row(&[&end])
    } else if has("RowExclusiveLock") {
        row(&["f"])
    } else if has("pg_locks") {
        // A database unknown to this backup.
        row(&["6"])
    } else if has("pg_database") {
        row(&["5", "postgres", "1663", "2"])
    } else if has("select") {
        row(&["1"])
    } else {
        [done("SET"), ready()].concat()
    }
}

fn label(start: &str) -> String {
    format!(
        "START WAL LOCATION: {start} (file 000000010000000000000020)\nCHECKPOINT LOCATION: {start}\n\
         BACKUP METHOD: streamed\nBACKUP FROM: primary\nSTART TIME: 2026-11-21 09:40:10 UTC\nLABEL: x\n\
         START TIMELINE: 1\n"
    )
}

/// A wrong answer to the end of the backup.
pub fn wrong_end(what: &str) -> Vec<u8> {
    let (start, end) = (place(START), place(END));
    match what {
        "stop refused" => refusal("55000"),
        "another start" => row(&[&end, &label(&place(START + 8)), ""]),
        "before start" => row(&[&place(START - 1), &label(&start), ""]),
        _ => row(&[&end, "", ""]),
    }
}

fn place(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn as u32)
}

/// The control file of PostgreSQL 18, as in `pg_control.h`.
pub fn control() -> Vec<u8> {
    control_with(&[])
}

/// The same with other values at some offsets.
pub fn control_with(more: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[..8].copy_from_slice(&SYSTEM.to_le_bytes());
    bytes[40..48].copy_from_slice(&START.to_le_bytes());
    for (at, value) in [
        (8, 1800u32),
        (12, 202_506_291),
        (16, 6),
        (48, 1),
        (216, PAGE as u32),
        (220, SEGMENT_PAGES),
        (228, 1 << 20),
        (252, 1),
    ]
    .iter()
    .chain(more)
    .copied()
    {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = longshore_io::crc32c(&bytes[..292]);
    bytes[292..296].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A page as block `block` of its relation, last changed at `lsn`.
pub fn page(block: u32, lsn: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    bytes[..4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(lsn as u32).to_le_bytes());
    bytes[14..16].copy_from_slice(&(PAGE as u16).to_le_bytes());
    for (i, byte) in bytes[64..].iter_mut().enumerate() {
        *byte = (i as u32).wrapping_mul(block + 7) as u8;
    }
    // Tests with real servers verify the checksum function itself.
    let sum = Page::new(&bytes).unwrap().checksum(block);
    bytes[8..10].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The contents of a backup.
pub struct Copy {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// In the order in which the source provided them.
    pub order: Vec<PathBuf>,
    pub summary: SourceSummary,
}

impl Copy {
    pub fn file(&self, name: &str) -> Option<&Vec<u8>> {
        self.files.get(Path::new(name))
    }
}

/// Reads all of a source as the pipeline does.
pub fn read(source: Box<dyn Source>) -> Result<Copy, Error> {
    let (mut files, mut links, mut order) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    loop {
        for volume in 0..source.description().volumes.len() {
            while let Some(entry) = source.next(volume)? {
                order.push(entry.path.clone());
                if let EntryKind::Symlink { target } = &entry.kind {
                    links.insert(entry.path.clone(), target.clone());
                }
                if entry.kind != EntryKind::File {
                    continue;
                }
                // Bounded, so that an announced length cannot exhaust the test.
                assert!(entry.len < 1 << 30, "{:?}", entry.path);
                let mut bytes = vec![0; entry.len as usize];
                if let Some(content) = &entry.content {
                    let mut at = 0;
                    while let Some(range) = content.next_data(at)? {
                        let part = range.start as usize..range.end.min(entry.len) as usize;
                        // The buffer's previous content must not reach the backup.
                        bytes[part.clone()].fill(0xaa);
                        content.read_at(&mut bytes[part], range.start, Via::Cache)?;
                        at = range.end;
                        if at >= entry.len {
                            break;
                        }
                    }
                    content.settle()?;
                }
                let twice = files.insert(entry.path.clone(), bytes);
                assert!(twice.is_none(), "{:?} comes twice", entry.path);
            }
        }
        if !source.epilogue()? {
            break;
        }
    }
    Ok(Copy {
        files,
        links,
        order,
        summary: source.finish()?,
    })
}
