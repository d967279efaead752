//! Tablespaces that a restored server makes when it replays the log in its `pg_wal`, where another server has files.

use std::io;
use std::path::Path;

use longshore_io::{Dir, OpenHow, Storage, Via};
use longshore_pg::wal::{MadeTablespace, Records, segments_in};
use longshore_pg::{CONTROL_FILE_LEN, Control, Lsn, SegmentName, Timeline};

use super::WAL_DIR;
use super::outline::CONTROL;

/// Those of the cluster in `data`, whose log of `timeline` is there from `first` on.
pub fn taken_tablespaces(
    storage: &dyn Storage,
    data: &Path,
    timeline: Timeline,
    first: Lsn,
) -> Vec<MadeTablespace> {
    let Ok((dir, log, control)) = open(storage, data) else {
        return Vec::new();
    };
    let size = control.wal_segment;
    let read = segments_in(&*log, timeline, size);
    let segment = SegmentName::holding(timeline, first, size).start(size);
    match Records::new(read, first, segment) {
        Ok(records) => MadeTablespace::taken(records, storage, Some(&*dir)),
        Err(_) => Vec::new(),
    }
}

type Opened = (std::sync::Arc<dyn Dir>, std::sync::Arc<dyn Dir>, Control);

fn open(storage: &dyn Storage, data: &Path) -> io::Result<Opened> {
    let dir = storage.dir(data)?;
    let mut bytes = [0; CONTROL_FILE_LEN];
    let file = dir.open(Path::new(CONTROL), OpenHow::Read)?;
    file.read_exact_at(&mut bytes, 0, Via::Cache)?;
    let control = Control::parse(&bytes).map_err(io::Error::other)?;
    let log = dir.dir(Path::new(WAL_DIR))?;
    Ok((dir, log, control))
}

/// What the operator should know before the server is started.
pub fn told(made: &MadeTablespace) -> String {
    format!(
        "the log makes the tablespace {} in {}, where a server has files: a server that is started here would write into \
         them. Start it on another machine, or move them away if no server uses them",
        made.oid,
        made.place.display()
    )
}
