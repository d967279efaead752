//! Closing the log's current segment, so that everything that was committed lies in whole segments.

use std::sync::Arc;

use longshore_io::{HostClock, Storage};
use longshore_pg::client::Options;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::session::Session;
use crate::Error;

/// A cluster's log up to a boundary of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedLog {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: Timeline,
    /// Where the next segment begins.
    pub end: Lsn,
    /// By the server's clock, in microseconds since the Unix epoch: what was committed before lies before `end`, and
    /// another commit behind it, too.
    pub at_us: i64,
    /// What the log before `end` has and no other branch's: the number of a transaction that was committed after `at_us`.
    pub transaction: u32,
    /// By the server's clock, it was committed before.
    pub by_us: i64,
    /// The server's history of the timeline; `None` on the first one, and where the role may not read it.
    pub history: Option<Vec<u8>>,
}

/// Connects, writes an empty transaction and has the server hand over the segment it writes to.
///
/// Errors: a server that cannot be reached or does not allow it; [`Error::LogOfStandby`].
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
        .map_err(|_| said("the name of its log's segment"))?;
    let size = SegmentSize::new(closed.segment_bytes);
    let size = size.ok_or_else(|| said("the size of its log's segments"))?;
    let end = closed
        .end
        .0
        .div_ceil(size.bytes())
        .checked_mul(size.bytes());
    Ok(ClosedLog {
        system: session.about.system,
        timeline: name.timeline,
        end: Lsn(end.ok_or_else(|| said("the end of its log"))?),
        at_us: closed.at_us,
        transaction: closed.transaction,
        by_us: closed.by_us,
        history: session.history(name.timeline)?,
    })
}
