//! Tablespaces that a restored server would create in another server's files when it replays the restored WAL.
//!
//! Invariants
//! - Exactly the WAL that replay reads is examined: from the LSN in `backup_label` on and, of a segment that exists twice,
//!   the file that the server uses.
//!
//! Leaves to others: the records (`longshore-pg`), and what is done about such a tablespace (the callers).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, OpenHow, Storage, Via};
use longshore_pg::wal::{MadeTablespace, Records, segments};
use longshore_pg::{
    BACKUP_LABEL, BackupLabel, CONTROL_FILE_LEN, Control, SegmentName, SegmentSize,
};

use super::names::WAL_DIR;
use super::outline::CONTROL;

/// Longest `backup_label` that is read, in bytes.
const LABEL_MAX: usize = 64 << 10;

/// Those of the cluster in `data`, which was restored and never started, by the WAL in its `pg_wal`.
pub fn taken_tablespaces(storage: &dyn Storage, data: &Path) -> Vec<MadeTablespace> {
    let taken = || {
        let dir = storage.dir(data)?;
        let mut bytes = [0; CONTROL_FILE_LEN];
        let file = dir.open(Path::new(CONTROL), OpenHow::Read)?;
        file.read_exact_at(&mut bytes, 0, Via::Cache)?;
        let control = Control::parse(&bytes).map_err(io::Error::other)?;
        taken_by(storage, &*dir, control.wal_segment, &[WAL_DIR.into()])
    };
    taken().unwrap_or_default()
}

/// The warning about a restored cluster with empty databases whose WAL does not log every first change of a page.
pub fn told_of_unlogged_hints(storage: &dyn Storage, data: &Path) -> Option<String> {
    let control = || -> io::Result<Control> {
        let mut bytes = [0; CONTROL_FILE_LEN];
        let file = storage.dir(data)?.open(Path::new(CONTROL), OpenHow::Read)?;
        file.read_exact_at(&mut bytes, 0, Via::Cache)?;
        Control::parse(&bytes).map_err(io::Error::other)
    };
    let control = control().ok()?;
    let text = "the cluster has neither page checksums nor wal_log_hints: if a VACUUM ran after the backup began, replay may \
        end at a page of an empty database (`WAL contains references to invalid pages`); restore all databases then";
    (control.data_checksum_version == 0 && !control.wal_log_hints).then(|| text.to_owned())
}

/// Those of the cluster in `data`, by the WAL in these directories below it; the first directory that has a segment
/// counts.
pub(super) fn taken_by(
    storage: &dyn Storage,
    data: &dyn Dir,
    size: SegmentSize,
    logs: &[PathBuf],
) -> io::Result<Vec<MadeTablespace>> {
    let start = label(data)?.start;
    let mut places: BTreeMap<SegmentName, &Path> = BTreeMap::new();
    for log in logs {
        for name in data.dir(log)?.list()? {
            let name = name?;
            let name = name.to_str().and_then(|n| n.parse::<SegmentName>().ok());
            let begun = |name: &SegmentName| start.0 < name.start(size).0 + size.bytes();
            if let Some(name) = name.filter(begun) {
                places.entry(name).or_insert(log);
            }
        }
    }
    let mut taken: Vec<MadeTablespace> = Vec::new();
    let mut follows = None;
    for name in places.keys() {
        // One reader processes all consecutive segments.
        let is_first = follows != Some(*name);
        follows = Some(name.next(size));
        if !is_first {
            continue;
        }
        let read = segments(name.timeline, size, |name| {
            let place = places.get(&name).ok_or(io::ErrorKind::NotFound)?;
            data.open(&place.join(name.to_string()), OpenHow::Read)
        });
        let segment = name.start(size);
        let records = match segment < start {
            true => Records::new(read, start, segment),
            false => Records::of_segment(read, segment),
        };
        let Ok(records) = records else { continue };
        for made in MadeTablespace::taken(records, storage, Some(data)) {
            // The segment in which a promotion happened exists on both timelines.
            if !taken.contains(&made) {
                taken.push(made);
            }
        }
    }
    Ok(taken)
}

fn label(data: &dyn Dir) -> io::Result<BackupLabel> {
    let file = data.open(Path::new(BACKUP_LABEL), OpenHow::Read)?;
    let mut text = vec![0; LABEL_MAX];
    let len = file.read_full_at(&mut text, 0, Via::Cache)?;
    BackupLabel::parse(&text[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The notice to the operator before the server is started.
pub fn told(made: &MadeTablespace) -> String {
    format!(
        "the WAL creates the tablespace {} in {}, where a server has files: a server started here would write into them. \
         Start it on another machine, or move the files away if no server uses them",
        made.oid,
        made.place.display()
    )
}
