//! A server's description of itself, asked over a replication connection.

use std::path::Path;

use longshore_pg::client::{self, Connection};
use longshore_pg::{Lsn, SegmentSize, Timeline};

use super::super::session::misread;
use crate::Error;
use crate::majors::{MAJOR_MAX, MAJOR_MIN};

/// The server's own description.
pub(super) struct ReplicationFacts {
    pub(super) major: u32,
    pub(super) system: u64,
    pub(super) timeline: Option<Timeline>,
    /// 0 where that is not known.
    pub(super) page_bytes: u32,
    pub(super) segment: Option<SegmentSize>,
    /// The end of its WAL.
    pub(super) reached: Lsn,
    pub(super) is_standby: bool,
    pub(super) cluster_name: String,
    /// Configuration files outside the data directory, which the server does not send; empty where the role may not know.
    pub(super) outside: Vec<String>,
}

impl ReplicationFacts {
    pub(super) fn ask(connection: &mut Connection) -> Result<ReplicationFacts, Error> {
        let major = connection.major().map_err(misread)?;
        if !(MAJOR_MIN..=MAJOR_MAX).contains(&major) {
            return Err(Error::ServerMajor { major });
        }
        let rows = connection
            .query("IDENTIFY_SYSTEM")
            .map_err(refused("identify"))?;
        let system = rows.value(0, 0).map_err(misread)?;
        let reached = rows.value(0, 2).map_err(misread)?;
        let mut show = |name: &str| -> Result<String, Error> {
            let rows = connection
                .query(&format!("SHOW {name}"))
                .map_err(refused("ask"))?;
            rows.text(0, 0).map(str::to_owned).map_err(misread)
        };
        let (page_bytes, segment) = (show("block_size")?, show("wal_segment_size")?);
        let (is_standby, cluster_name) = (show("in_hot_standby")? == "on", show("cluster_name")?);
        let shown = |connection: &mut Connection, name: &str| -> Option<String> {
            let rows = connection.query(&format!("SHOW {name}")).ok()?;
            rows.text(0, 0).ok().map(str::to_owned)
        };
        let data = shown(connection, "data_directory");
        let mut outside = Vec::new();
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let files = ["config_file", "hba_file", "ident_file"];
            outside.extend(files.iter().filter_map(|name| shown(connection, name)));
            outside.retain(|file| !file.is_empty() && !Path::new(file).starts_with(&data));
        }
        Ok(ReplicationFacts {
            major,
            system,
            timeline: rows.value(0, 1).ok().and_then(Timeline::new),
            page_bytes: page_bytes.parse().unwrap_or(0),
            // Bytes and a unit, as the server shows it.
            segment: shown_bytes(&segment).and_then(SegmentSize::new),
            reached,
            is_standby,
            cluster_name,
            outside,
        })
    }
}

pub(super) fn refused(action: &'static str) -> impl Fn(client::Error) -> Error {
    move |e| Error::Server {
        action,
        source: Box::new(e),
    }
}

/// How the server came to its timeline; `None` on the first one, and where it does not say.
pub(super) fn history(connection: &mut Connection, timeline: Timeline) -> Option<Vec<u8>> {
    if timeline.number() == 1 {
        return None;
    }
    let command = format!("TIMELINE_HISTORY {timeline}");
    let rows = connection.query(&command).ok()?;
    rows.bytes(0, 1).map(<[u8]>::to_vec)
}

/// Parses a memory setting: `16MB`, `1GB`.
fn shown_bytes(text: &str) -> Option<u64> {
    let units = [("kB", 10), ("MB", 20), ("GB", 30), ("B", 0)];
    units.iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(1 << shift)
    })
}
