//! Closes the current WAL segment, so that everything committed so far is in complete segments.

use std::sync::Arc;

use longshore_io::{HostClock, Storage};
use longshore_pg::client::Options;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::session::Session;
use crate::Error;

/// A cluster's WAL up to a segment boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedLog {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: Timeline,
    /// The start of the next segment.
    pub end: Lsn,
    /// By the server's clock, in microseconds since the Unix epoch. Everything committed before this time is before
    /// `end`, and so is one later commit.
    pub at_us: i64,
    /// The number of a transaction that was committed after `at_us`: WAL before `end` contains it, other branches do
    /// not.
    pub transaction: u32,
    /// The transaction was committed before this time, by the server's clock.
    pub by_us: i64,
    /// The server's history file of the timeline; `None` on timeline 1, and if the role may not read it.
    pub history: Option<Vec<u8>>,
}

/// Connects, writes an empty transaction and makes the server switch to the next WAL segment.
///
/// Errors: the server cannot be reached or does not allow it; [`Error::LogOfStandby`].
pub fn close_log(storage: &dyn Storage, server: &Options) -> Result<ClosedLog, Error> {
    let session = Session::open(storage, server, Arc::new(HostClock))?;
    if session.about.in_recovery {
        return Err(Error::LogOfStandby);
    }
    let closed = session.close_segment()?;
    let said = |what| Error::ServerSaid {
        what,
        text: format!("{} {}", closed.segment, closed.segment_bytes),
    };
    let name: SegmentName = closed
        .segment
        .parse()
        .map_err(|_| said("the name of its WAL segment"))?;
    let size = SegmentSize::new(closed.segment_bytes);
    let size = size.ok_or_else(|| said("the size of its WAL segments"))?;
    let end = closed
        .end
        .0
        .div_ceil(size.bytes())
        .checked_mul(size.bytes());
    Ok(ClosedLog {
        system: session.about.system,
        timeline: name.timeline,
        end: Lsn(end.ok_or_else(|| said("the end of its WAL"))?),
        at_us: closed.at_us,
        transaction: closed.transaction,
        by_us: closed.by_us,
        history: session.history(name.timeline)?,
    })
}
