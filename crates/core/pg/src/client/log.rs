//! Streams a range of the server's WAL without a slot: to compare it, not to keep it.

use super::{Connection, Error, Reply};
use crate::{Lsn, Timeline};

/// Bytes of a message before the WAL in it.
const LOG_AT: usize = 25;
/// Offset of the server's clock in a message with WAL and in one without. Source: PostgreSQL 18 documentation,
/// "Streaming Replication Protocol".
const CLOCK_AT: [(u8, usize); 2] = [(b'w', 17), (b'k', 9)];
/// Microseconds from the Unix epoch to 2000-01-01, the server's epoch.
const EPOCH_US: i64 = 946_684_800_000_000;

impl Connection {
    /// Makes the server send its WAL from `from` to `to`, which must already be written, and passes it to `sink` in
    /// order. Ends early if `sink` has enough or the timeline ends. Returns the LSN after the last byte received. For
    /// connections of [`super::Mode::Replication`], which can run other commands afterwards.
    ///
    /// Errors: the server's 58P01 if it no longer has that WAL.
    pub fn stream_log(
        &mut self,
        timeline: Timeline,
        (from, to): (Lsn, Lsn),
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Lsn, Error> {
        self.start(&format!(
            "START_REPLICATION PHYSICAL {from} TIMELINE {timeline}"
        ))?;
        let mut at = from;
        let mut has_enough = false;
        while let Some(reply) = self.reply()? {
            let wants_end = match reply {
                Reply::Data(bytes) if !has_enough && bytes.first() == Some(&b'w') => {
                    let start = bytes.get(1..).and_then(|b| b.first_chunk::<8>());
                    let start = start.map(|b| Lsn(u64::from_be_bytes(*b)));
                    let log = bytes.get(LOG_AT..).unwrap_or_default();
                    if start != Some(at) {
                        return Err(Error::protocol(format!(
                            "WAL came that does not begin at {at}"
                        )));
                    }
                    let wanted = to.0.saturating_sub(at.0).min(log.len() as u64);
                    at = Lsn(at.0 + wanted);
                    !sink(&log[..wanted as usize]) || at >= to
                }
                // The timeline ends here.
                Reply::CopyDone => !has_enough,
                Reply::CopyBoth | Reply::Data(_) | Reply::Rows(_) | Reply::Complete(_) => false,
                other @ (Reply::CopyOut | Reply::CopyIn) => return Err(other.unexpected()),
            };
            if wants_end && !has_enough {
                has_enough = true;
                self.put_copy_done()?;
            }
        }
        Ok(at)
    }

    /// The server's clock, in microseconds since the Unix epoch, from a message with WAL. `at` must be an LSN that the
    /// server has written. `None` if the timeline ends there. For connections of [`super::Mode::Replication`].
    ///
    /// Errors: as for [`Connection::stream_log`].
    pub fn clock_us(&mut self, timeline: Timeline, at: Lsn) -> Result<Option<i64>, Error> {
        self.start(&format!(
            "START_REPLICATION PHYSICAL {at} TIMELINE {timeline}"
        ))?;
        let mut clock = None;
        while let Some(reply) = self.reply()? {
            match reply {
                Reply::Data(bytes) if clock.is_none() => {
                    let place = CLOCK_AT.iter().find(|(tag, _)| bytes.first() == Some(tag));
                    let value = place
                        .and_then(|(_, at)| bytes.get(*at..))
                        .and_then(|rest| rest.first_chunk::<8>());
                    clock = value.map(|value| i64::from_be_bytes(*value).saturating_add(EPOCH_US));
                    if clock.is_some() {
                        self.put_copy_done()?;
                    }
                }
                Reply::CopyDone if clock.is_none() => {
                    self.put_copy_done()?;
                    // No more messages will come, and none had the clock.
                    clock = Some(i64::MIN);
                }
                Reply::CopyDone
                | Reply::CopyBoth
                | Reply::Data(_)
                | Reply::Rows(_)
                | Reply::Complete(_) => {}
                other @ (Reply::CopyOut | Reply::CopyIn) => return Err(other.unexpected()),
            }
        }
        Ok(clock.filter(|clock| *clock != i64::MIN))
    }
}
