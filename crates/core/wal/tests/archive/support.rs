//! Goal: the archive's tests share segments in the layout of `access/xlog_internal.h`, and archives on simulated disks.
//! Method: the segments are written here byte by byte, from a seed; equal arguments give equal bytes.
//! Not covered: this file has no tests, and no server has replayed these segments.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::{Algorithm, Level};
use longshore_io::{Clock, HostClock, OpenHow, SimClock, SimDisk, Storage};
pub use longshore_kit::Random;
use longshore_pg::wal::WalName;
use longshore_wal::{Error, IDENTITY_NAME, Outgoing, PushResult, StorageForm, WalArchive};

pub const SYSTEM: u64 = 7_575_086_021_411_873_849;
pub const SEGMENT: usize = 1 << 20;
pub const PAGE: usize = 8192;
pub const ARCHIVE: &str = "/archive";
pub const WAL: &str = "/data/pg_wal";
/// PostgreSQL 15.
const MAGIC: u16 = 0xd110;

/// The record that ends a segment early: without data.
const SWITCH_LEN: usize = 24;

/// The record before the first one of a segment, if the previous segment has `pages` pages too: a switch at their end.
fn switch_before(number: u64, pages: usize) -> u64 {
    let start = number.saturating_sub(1) * SEGMENT as u64;
    start + (pages * PAGE - SWITCH_LEN) as u64
}

/// Writes a record's header to its place; its body must already follow.
fn record(bytes: &mut [u8], before: u64, (manager, kind): (u8, u8)) {
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].fill(0);
    bytes[8..16].copy_from_slice(&before.to_le_bytes());
    bytes[16..20].copy_from_slice(&[kind, manager, 0, 0]);
    let crc = longshore_io::crc32c_append(longshore_io::crc32c(&bytes[24..]), &bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// The segment `timeline`/`number` of a cluster: `pages` pages with a record of text and noise in each, then a switch
/// and zeros. It continues any other segment with the previous number and as many pages.
pub fn segment_of(system: u64, timeline: u32, number: u64, pages: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = vec![0; SEGMENT];
    for page in 0..pages {
        let at = page * PAGE;
        let body = &mut bytes[at..at + PAGE];
        for piece in body.chunks_mut(64) {
            if random.below(4) == 0 {
                piece.iter_mut().for_each(|b| *b = random.next() as u8);
            } else {
                piece.fill(b'a' + random.below(20) as u8);
            }
        }
        body[..2].copy_from_slice(&MAGIC.to_le_bytes());
        body[2..4].copy_from_slice(&(if page == 0 { 2u16 } else { 0 }).to_le_bytes());
        body[4..8].copy_from_slice(&timeline.to_le_bytes());
        let place = number * SEGMENT as u64 + at as u64;
        body[8..16].copy_from_slice(&place.to_le_bytes());
        if page == 0 {
            body[24..32].copy_from_slice(&system.to_le_bytes());
            body[32..36].copy_from_slice(&(SEGMENT as u32).to_le_bytes());
            body[36..40].copy_from_slice(&(PAGE as u32).to_le_bytes());
        }
        body[16..24].fill(0);
        let (header, last) = (if page == 0 { 40 } else { 24 }, page + 1 == pages);
        let before = match page {
            0 => switch_before(number, pages),
            1 => number * SEGMENT as u64 + 40,
            _ => place - PAGE as u64 + 24,
        };
        let end = if last { PAGE - SWITCH_LEN } else { PAGE };
        record(&mut body[header..end], before, (10, 0));
        if last {
            record(&mut body[end..], place + header as u64, (0, 0x40));
        }
    }
    bytes
}

pub fn segment(timeline: u32, number: u64, seed: u64) -> Vec<u8> {
    segment_of(SYSTEM, timeline, number, 20, seed)
}

pub fn name(timeline: u32, number: u64) -> WalName {
    let (high, low) = (number / 4096, number % 4096);
    let text = format!("{timeline:08X}{high:08X}{low:08X}");
    text.parse().unwrap()
}

pub fn form(algorithm: Algorithm) -> StorageForm {
    StorageForm {
        algorithm,
        level: Level::Low,
        verify: false,
        recipients: None,
    }
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SimClock::new(0))
}

/// A disk with a new archive.
pub fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    mark(&disk);
    disk
}

/// Makes the archive's directory an empty archive.
pub fn mark(disk: &SimDisk) {
    mark_at(disk, Path::new(ARCHIVE));
}

/// Like [`mark`], for another directory.
pub fn mark_at(disk: &SimDisk, archive: &Path) {
    let lines = "longshore wal archive 1\nof no cluster yet\n";
    let mark = format!(
        "{lines}crc32c {:08x}\n",
        longshore_io::crc32c(lines.as_bytes())
    );
    disk.write_file(archive.join(IDENTITY_NAME), mark.as_bytes())
        .unwrap();
}

/// Puts a file where the server would have it.
pub fn outgoing(disk: &SimDisk, name: WalName, bytes: &[u8]) -> Outgoing {
    let path = PathBuf::from(WAL).join(name.to_string());
    disk.write_file(&path, bytes).unwrap();
    opened(disk, name).unwrap()
}

/// The file as the server has it.
pub fn opened(storage: &dyn Storage, name: WalName) -> std::io::Result<Outgoing> {
    let file = storage
        .dir(Path::new(WAL))?
        .open(Path::new(&name.to_string()), OpenHow::Read)?;
    Ok(Outgoing {
        name,
        path: Path::new(WAL).join(name.to_string()),
        file,
        system: None,
        history: None,
        beside: None,
    })
}

pub fn archive(storage: &dyn Storage) -> Result<WalArchive, Error> {
    WalArchive::open(storage, Path::new(ARCHIVE))
}

pub fn push(disk: &SimDisk, name: WalName, bytes: &[u8]) -> Result<PushResult, Error> {
    let out = outgoing(disk, name, bytes);
    archive(disk)?.push(&out, &form(Algorithm::QatDeflate), &*clock())
}

/// The file as the archive returns it.
pub fn fetch(disk: &SimDisk, name: WalName) -> Result<Vec<u8>, Error> {
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = disk.dir(to).unwrap();
    archive(disk)?.fetch(name, &dir, to, "RECOVERYXLOG", &*clock())?;
    Ok(disk.read_file(to.join("RECOVERYXLOG")).unwrap())
}

/// The path of a file in the archive.
pub fn stored(disk: &SimDisk, name: WalName) -> PathBuf {
    let stem = format!("{name}.");
    let found = disk.paths().into_iter().find(|p| {
        let file = p.file_name().and_then(|f| f.to_str()).unwrap_or_default();
        p.starts_with(ARCHIVE) && file.starts_with(&stem) && !file.ends_with(".tmp")
    });
    found.unwrap_or_else(|| panic!("{name} is not in the archive"))
}

/// Every regular file of the archive that is neither a finished one nor the identity.
pub fn leftovers(disk: &SimDisk) -> Vec<PathBuf> {
    let mut paths = disk.paths();
    paths.retain(|p| p.starts_with(ARCHIVE) && p.to_string_lossy().ends_with(".tmp"));
    paths
}

pub fn host_clock() -> HostClock {
    HostClock
}
