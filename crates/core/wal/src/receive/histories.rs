//! Fetches the histories of the server's timelines into the archive.
//!
//! Invariants
//! - The archive's timelines are compared with the server's own histories before anything is streamed: a restored copy
//!   of the cluster may be on another timeline with the same number.

use longshore_io::Clock;
use longshore_pg::Timeline;
use longshore_pg::client::Connection;
use longshore_pg::wal::{History, WalName};

use super::error::{ReceiveError, stream};
use super::{Event, ReceivePlan, Receiver};
use crate::{Error, Outgoing, PushResult};

/// The server has no file of this name.
pub(super) const NO_SUCH_FILE: &str = "58P01";

impl Receiver<'_> {
    /// Fetches the histories of the timelines before the server's. A server may lack them, because it does not need
    /// them; those in the archive must then lead the same way.
    pub(super) fn fetch_earlier(
        &self,
        connection: &mut Connection,
        plan: &ReceivePlan,
        history: &History,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        let forks = history.forks().iter().enumerate();
        for (before, fork) in forks.filter(|(_, fork)| fork.timeline.number() > 1) {
            match self.fetch_history(connection, plan, fork.timeline, clock, watch) {
                Err(ReceiveError::Server(e)) if e.sqlstate() == Some(NO_SUCH_FILE) => {}
                fetched => {
                    fetched?;
                    continue;
                }
            }
            match self.archive.history(fork.timeline) {
                Err(Error::Missing { .. }) => {}
                found => {
                    if found?.forks() != &history.forks()[..before] {
                        return Err(ReceiveError::Elsewhere {
                            archive: self.archive.path().to_owned(),
                            ours: fork.timeline,
                            theirs: history.timeline(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Archives the server's history of a timeline; the archive must not have a different one.
    ///
    /// Errors: the archive's `OtherContent` if it has another.
    pub(super) fn fetch_history(
        &self,
        connection: &mut Connection,
        plan: &ReceivePlan,
        timeline: Timeline,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<History, ReceiveError> {
        let rows = connection.query(&format!("TIMELINE_HISTORY {timeline}"))?;
        let content = rows.bytes(0, 1).ok_or_else(|| stream("an empty history"))?;
        let name = WalName::History(timeline);
        let short = self.workplace.short(name, content)?;
        let out = Outgoing {
            name,
            path: short.path.clone(),
            file: short.file.clone(),
            system: None,
            history: None,
            beside: None,
        };
        if let PushResult::Stored { .. } = self.archive.push(&out, &plan.form, clock)? {
            watch(Event::History(timeline));
        }
        Ok(self.archive.history(timeline)?)
    }
}
