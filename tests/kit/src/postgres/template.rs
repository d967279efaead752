//! New clusters as copies of one that `initdb` made: a copy takes a tenth of the time.
//!
//! Each copy gets a system identifier of its own, where PostgreSQL keeps it: in `pg_control`, and in the first page of
//! each WAL segment. So it is a different cluster for everything that compares clusters.
//!
//! Invariants
//! - Clusters of one shape are equal except for their identifier; the shape is everything that `initdb` is told.
//! - `initdb` runs once for each shape in a process, however many tests ask at once.
//!
//! Leaves to others: the call of `initdb`, the configuration and the owner of a cluster (`server.rs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::place;

/// Position of the identifier in the long header of a segment's first page (`XLogLongPageHeaderData`).
const IN_SEGMENT: u64 = 24;
/// The longest `ControlFileData`, and the shortest.
const CONTROL_LEN: std::ops::Range<usize> = 200..500;

/// Everything that `initdb` is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub bin_dir: PathBuf,
    pub checksums: bool,
    pub wal_segment_mib: u32,
    pub group_access: bool,
}

type Made = Arc<OnceLock<PathBuf>>;

/// Makes the cluster `to`. Only the first one of a shape in this process is made by `make`, which gets a directory for
/// it; that directory lives as long as the process.
pub(super) fn cluster(shape: Shape, to: &Path, make: impl FnOnce(&Path) -> PathBuf) {
    static MADE: Mutex<BTreeMap<Shape, Made>> = Mutex::new(BTreeMap::new());
    let made = {
        let mut all = MADE.lock().unwrap_or_else(|held| held.into_inner());
        all.entry(shape).or_default().clone()
    };
    // Others that want the same shape wait for it.
    let template = made.get_or_init(|| make(&place::dir("lsnew").keep()));
    copy(template, to);
    identify(to);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
    let mode = fs::metadata(from).unwrap().permissions();
    fs::set_permissions(to, mode).unwrap();
}

/// A number that no other cluster of this machine has: the time, as PostgreSQL itself does it, the process, a count.
fn new_identifier() -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let count = COUNT.fetch_add(1, Relaxed) & 0x3ff;
    let process = std::process::id() & 0x3f_ffff;
    seconds.as_secs() << 32 | u64::from(process) << 10 | u64::from(count)
}

/// Gives a cluster that was never started another system identifier.
#[expect(
    clippy::host_endian_bytes,
    reason = "PostgreSQL writes in the order of its machine"
)]
fn identify(data: &Path) {
    let identifier = new_identifier().to_ne_bytes();
    let path = data.join("global/pg_control");
    let mut control = fs::read(&path).unwrap();
    let old = control[..8].to_vec();
    // The checksum follows what it is of; the length differs between major versions.
    let is_sum = |len: &usize| control[*len..len + 4] == crc32c(&control[..*len]).to_ne_bytes();
    let len = CONTROL_LEN.step_by(4).find(is_sum).unwrap();
    control[..8].copy_from_slice(&identifier);
    let sum = crc32c(&control[..len]).to_ne_bytes();
    control[len..len + 4].copy_from_slice(&sum);
    fs::write(path, control).unwrap();
    let mut segments = 0;
    for entry in fs::read_dir(data.join("pg_wal")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().len() != 24 {
            continue;
        }
        let mut found = vec![0; old.len()];
        let segment = File::options().read(true).write(true).open(entry.path());
        let segment = segment.unwrap();
        segment.read_exact_at(&mut found, IN_SEGMENT).unwrap();
        // A segment made in advance is empty.
        if found == old {
            segment.write_all_at(&identifier, IN_SEGMENT).unwrap();
            segments += 1;
        }
    }
    assert!(segments > 0, "no segment of {} is its own", data.display());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 * (crc & 1))
        })
    })
}
