//! The state of a standby's replay: whether its data is still its primary's, and of when it is.
//!
//! Invariants
//! - An idle primary is no doubt: a standby to which somebody streams, and that has replayed what it received, has everything.
//! - A standby that connects again, or is about to replay what it has received, gets some seconds for it.
//!
//! Leaves to others: the archive that may feed it (`longshore-wal`), and the words and grades of a check.

use std::time::Duration;

use longshore_io::Clock;
use longshore_pg::client::{Connection, Error};
use longshore_pg::recovery::time;
use longshore_pg::{Lsn, Timeline};

/// How long a standby without its primary may take to connect again. By default it tries every 5 s.
const PATIENCE: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The age in seconds of the last replayed transaction from which received WAL that is not replayed counts.
const BEHIND_S: i64 = 300;
/// The same where only an archive feeds the standby: without transactions at the primary, nothing comes for long.
const QUIET_S: i64 = 3600;

/// The times are in microseconds since the Unix epoch, by the standby's clock, but those of transactions by the primary's.
const SQL: &str = "select pg_is_in_recovery(), \
    case when pg_is_in_recovery() then pg_is_wal_replay_paused() else false end, \
    (select setting::bigint from pg_settings where name = 'recovery_min_apply_delay'), \
    r.pid is not null and coalesce(r.status, 'streaming') = 'streaming', \
    coalesce(current_setting('restore_command', true), '') <> '', \
    pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), \
    greatest(r.received_tli, (select timeline_id from pg_control_checkpoint()), \
        (select min_recovery_end_timeline from pg_control_recovery())), \
    floor(extract(epoch from pg_last_xact_replay_timestamp()) * 1000000)::bigint, \
    floor(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, \
    floor(extract(epoch from clock_timestamp()) * 1000000)::bigint \
    from (select) as one left join pg_stat_get_wal_receiver() as r on r.pid is not null";

/// A standby's own statements about its replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandbyState {
    pub is_paused: bool,
    /// `recovery_min_apply_delay`, in milliseconds.
    pub delay_ms: i64,
    /// Whether a receiver streams; one of which the role may not see the state counts.
    pub streams: bool,
    /// Whether it has a `restore_command`.
    pub restores: bool,
    /// The end of the WAL that was streamed to it; `None`: none was since it was started.
    pub received: Option<Lsn>,
    /// The end of the WAL that it has replayed.
    pub replayed: Option<Lsn>,
    pub timeline: Option<Timeline>,
    /// When the last transaction ended that it has replayed; `None`: none since it was started.
    pub last_us: Option<i64>,
    pub started_us: i64,
    pub now_us: i64,
}

/// A reason why a standby's data is not, or may not be, what its primary has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyDoubt {
    /// Whether nothing will come: nobody streams, and there is no `restore_command`.
    pub is_cut_off: bool,
    /// For people; ends with the next command to type.
    pub text: String,
}

impl StandbyState {
    /// Asks a server; `None`: it is no standby. While there is a doubt that may pass, it is asked again for some seconds if
    /// `waits`.
    ///
    /// Errors: the server's.
    pub fn ask(
        connection: &mut Connection,
        clock: &dyn Clock,
        waits: bool,
    ) -> Result<Option<StandbyState>, Error> {
        let until = clock.now() + if waits { PATIENCE } else { Duration::ZERO };
        let mut received = None;
        loop {
            let Some(mut state) = StandbyState::asked(connection)? else {
                return Ok(None);
            };
            // A busy primary streams more meanwhile.
            received = received.or(state.received);
            state.received = received;
            if state.is_paused || state.doubt(None).is_none() || clock.now() >= until {
                return Ok(Some(state));
            }
            clock.sleep(LOOK_EVERY);
        }
    }

    fn asked(connection: &mut Connection) -> Result<Option<StandbyState>, Error> {
        let rows = connection.query(SQL)?;
        if !rows.is_true(0, 0)? {
            return Ok(None);
        }
        let is_there = |column| rows.bytes(0, column).is_some();
        let lsn = |column| is_there(column).then(|| rows.value(0, column)).transpose();
        let timeline = is_there(7).then(|| rows.value(0, 7)).transpose()?;
        Ok(Some(StandbyState {
            is_paused: rows.is_true(0, 1)?,
            delay_ms: rows.value(0, 2)?,
            streams: rows.is_true(0, 3)?,
            restores: rows.is_true(0, 4)?,
            received: lsn(5)?,
            replayed: lsn(6)?,
            timeline: timeline.and_then(Timeline::new),
            last_us: is_there(8).then(|| rows.value(0, 8)).transpose()?,
            started_us: rows.value(0, 9)?,
            now_us: rows.value(0, 10)?,
        }))
    }

    /// The end of all the WAL that it has.
    pub fn reached(&self) -> Option<Lsn> {
        self.received.max(self.replayed)
    }

    /// The age of the last replayed transaction in seconds; without one, the time since the standby was started.
    pub fn quiet_s(&self) -> i64 {
        let since_us = self.last_us.unwrap_or(self.started_us);
        (self.now_us.saturating_sub(since_us) / 1_000_000).max(0)
    }

    /// Whether its data is of before what its primary has now, or may be. `archived`: what it must have replayed if it is
    /// fed by the archive; `None`: there is no archive to compare it with.
    pub fn doubt(&self, archived: Option<Lsn>) -> Option<StandbyDoubt> {
        let of = self.of();
        let (is_cut_off, text) = if self.is_paused {
            let text = format!(
                "replay is paused on this standby: {of}. Run `select pg_wal_replay_resume()` there"
            );
            (false, text)
        } else if self.streams {
            let is_behind = self.received > self.replayed;
            if !is_behind || self.last_us.is_some() && self.quiet_s() < BEHIND_S {
                return None;
            }
            let delay = match self.delay_ms {
                0 => String::new(),
                ms => format!(", recovery_min_apply_delay = {} s", ms / 1000),
            };
            let text = format!(
                "this standby has not replayed what it received ({} of {}{delay}): {of}. Run `longshore backup` when it has, or \
                 against the primary",
                shown(self.replayed),
                shown(self.received)
            );
            (false, text)
        } else if self.restores {
            let is_quiet = match archived {
                Some(archived) => self.replayed < Some(archived),
                None => self.quiet_s() >= QUIET_S,
            };
            if !is_quiet {
                return None;
            }
            let text = format!(
                "nobody streams to this standby, and its restore_command brings nothing new: {of}. Run \
                 `select * from pg_stat_wal_receiver` there, and see its log"
            );
            (false, text)
        } else {
            let text = format!(
                "nobody streams to this standby, and it has no restore_command: {of}. Run \
                 `select * from pg_stat_wal_receiver` there, and see its log"
            );
            (true, text)
        };
        Some(StandbyDoubt { is_cut_off, text })
    }

    /// The moment of its data, as far as it tells.
    fn of(&self) -> String {
        match self.last_us {
            Some(us) => format!("the last transaction in its data ended {}", time(us)),
            None => "it has replayed no transaction since it was started, so nobody knows of when its data is".to_owned(),
        }
    }
}

/// For the operator: a standby that could not be asked how it is.
pub(super) fn not_asked(error: &dyn std::error::Error) -> String {
    format!(
        "whether this standby still follows its primary was not looked at: {}",
        crate::error::with_cause(error)
    )
}

fn shown(lsn: Option<Lsn>) -> String {
    lsn.map_or_else(|| "nothing".to_owned(), |lsn| lsn.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: i64 = 1_795_253_650_000_000;

    /// A standby that streams and has replayed everything, of a primary that is idle for a day.
    fn good() -> StandbyState {
        StandbyState {
            streams: true,
            received: Some(Lsn(0x300_0060)),
            replayed: Some(Lsn(0x300_0060)),
            last_us: Some(NOW_US - 86_400_000_000),
            started_us: NOW_US - 864_000_000_000,
            now_us: NOW_US,
            ..StandbyState::default()
        }
    }

    #[test]
    fn an_idle_primary_is_no_doubt() {
        assert_eq!(good().doubt(None), None);
        let just_started = StandbyState {
            received: None,
            last_us: None,
            ..good()
        };
        assert_eq!(just_started.doubt(None), None);
        // It restarts its receiver, and the archive has no more.
        let fed = StandbyState {
            streams: false,
            restores: true,
            ..good()
        };
        assert_eq!(fed.doubt(Some(Lsn(0x300_0000))), None);
        assert!(fed.doubt(Some(Lsn(0x400_0000))).is_some());
        assert!(fed.doubt(None).is_some());
        let started = StandbyState {
            last_us: None,
            started_us: NOW_US - 60_000_000,
            ..fed
        };
        assert_eq!(started.doubt(None), None);
    }

    #[test]
    fn a_standby_that_replays_nothing_is_a_doubt() {
        let paused = StandbyState {
            is_paused: true,
            ..good()
        };
        let text = paused.doubt(None).unwrap().text;
        assert!(text.contains("pg_wal_replay_resume"), "{text}");
        assert!(text.contains("ended 2026-11-20 09:34:10"), "{text}");
        let cut_off = StandbyState {
            streams: false,
            last_us: Some(NOW_US),
            ..good()
        };
        assert!(cut_off.doubt(None).unwrap().is_cut_off);
        let delayed = |ago_s: i64| StandbyState {
            delay_ms: 600_000,
            received: Some(Lsn(0x300_0200)),
            last_us: Some(NOW_US - ago_s * 1_000_000),
            ..good()
        };
        assert_eq!(delayed(BEHIND_S - 1).doubt(None), None);
        let text = delayed(BEHIND_S).doubt(None).unwrap().text;
        assert!(text.contains("delay = 600 s"), "{text}");
        assert!(text.contains("0/3000060 of 0/3000200"), "{text}");
        let never = StandbyState {
            last_us: None,
            ..delayed(0)
        };
        assert!(never.doubt(None).is_some());
    }
}
