//! Checks a standby: whether it has its primary's data, and whether the WAL that it has arrives in the archive. The
//! primary, which archives, is not asked.
//!
//! Invariants
//! - A finding is good only if something was compared. Anything that a standby cannot show is something to look at.
//! - Only names in the archive are read, and the time of its newest file, so an encrypted archive needs no key.
//!
//! Leaves to others: what a doubt about a standby is (`longshore-source`), gaps in the archive (`check.rs`), and a primary
//! (`postgres.rs`).

use std::time::Duration;

use longshore_io::Clock;
use longshore_pg::client::Connection;
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use longshore_source::StandbyState;
use longshore_wal::{ArchiveReader, Error as WalError, Run, WalArchive};

use super::depth::CheckDepth;
use super::notes::{Grade, Notes};
use crate::commands::results::age_text;

/// The interval between two looks at the archive while a segment may still arrive.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The age in seconds of a transaction that only the archive can have brought, below which archiving counts as at work.
const FRESH_S: i64 = 3600;
/// The age in seconds of the newest archived segment below which the next ones count as on their way.
const ON_ITS_WAY_S: i64 = 300;

/// An archive that is looked at again and again; its answer is `None` while nothing is in it.
pub type Opened<'a> = &'a dyn Fn() -> Result<Option<WalArchive>, WalError>;

/// `archive`: the configured one; `None`: there is none.
pub fn look(
    connection: &mut Connection,
    archive: Option<Opened<'_>>,
    depth: &CheckDepth,
    clock: &dyn Clock,
    notes: &mut Notes,
) {
    let state = match StandbyState::ask(connection, clock, !depth.only_looks) {
        Ok(Some(state)) => state,
        Ok(None) => {
            return notes.look(
                "standby",
                "it was promoted just now: run `longshore check` again",
            );
        }
        Err(e) => {
            return notes.look(
                "standby",
                format!("whether it follows its primary was not looked at: {e}"),
            );
        }
    };
    // The archive's own findings say why it cannot be opened.
    let opened = archive.and_then(|open| open().ok().flatten());
    replay(&state, opened.as_ref(), depth, notes);
    match (archive, &opened) {
        (Some(open), Some(_)) => arrival(&state, open, depth, clock, notes),
        _ => notes.look(
            "archive",
            format!("{NOT_LOOKED_AT}; there is no WAL here to compare it with. {ASK}"),
        ),
    }
}

const NOT_LOOKED_AT: &str = "a standby: whether its primary archives was not looked at";
const ASK: &str = "Run `longshore check` with the primary's `url`, or on its host";

/// Whether it has the data that its primary has.
fn replay(
    state: &StandbyState,
    archive: Option<&WalArchive>,
    depth: &CheckDepth,
    notes: &mut Notes,
) {
    let fed_until = archive.and_then(|archive| {
        let newest = archive.newest(state.timeline).ok()??;
        Some(newest.start(archive.identity()?.segment_size))
    });
    let quiet_s = state.quiet_s();
    let Some(doubt) = state.doubt(fed_until) else {
        let from = match state.streams {
            true => "replays what is streamed to it",
            false => "replays what its restore_command brings",
        };
        return notes.good("standby", from);
    };
    let is_old = quiet_s > i64::from(depth.max_age) * 3600;
    let grade = match doubt.is_cut_off || is_old {
        true => Grade::Bad,
        false => Grade::Look,
    };
    let text = format!(
        "{}. A backup of it is as old as that, and `age` does not count it",
        doubt.text
    );
    notes.note("standby", grade, text);
}

/// Whether the segments that it has arrive in the archive.
fn arrival(
    state: &StandbyState,
    open: Opened<'_>,
    depth: &CheckDepth,
    clock: &dyn Clock,
    notes: &mut Notes,
) {
    let what = "archive";
    let quiet_s = state.quiet_s();
    if !state.streams {
        // Everything that it gets was archived, so a comparison shows nothing.
        return match state.restores && state.last_us.is_some() && quiet_s < FRESH_S {
            true => notes.good(
                what,
                format!(
                    "a standby that its archive feeds: the last transaction that it brought ended {} ago",
                    age_text(quiet_s)
                ),
            ),
            false => notes.look(what, format!("{NOT_LOOKED_AT}: nobody streams to it. {ASK}")),
        };
    }
    let Some(reached) = state.reached() else {
        return notes.look(what, format!("{NOT_LOOKED_AT}. {ASK}"));
    };
    let at = (state.timeline, reached);
    let wait_s = if depth.only_looks {
        0
    } else {
        depth.archive_wait
    };
    let until = clock.now() + Duration::from_secs(wait_s.into());
    loop {
        let found = open().and_then(|archive| match archive {
            Some(archive) => {
                let (size, runs) = (archive.identified()?.segment_size, archive.runs()?);
                Ok(Some((archive, size, runs)))
            }
            None => Ok(None),
        });
        // The archive's own findings say why it cannot be listed.
        let Ok(Some((archive, size, runs))) = found else {
            return;
        };
        let missing = missing(&runs, at, size);
        if missing > 0 && clock.now() < until {
            clock.sleep(LOOK_EVERY);
            continue;
        }
        later(state.timeline, &runs, notes);
        let text = match missing {
            0 => {
                let text = format!(
                    "a standby: its primary archives, and all whole segments up to {reached} have arrived"
                );
                return notes.good(what, text);
            }
            missing => format!(
                "this standby has WAL up to {reached}, and the last {missing} whole segments before that are not in the archive"
            ),
        };
        // Without a wait, the last one may be on its way.
        if wait_s == 0 && missing == 1 && is_fresh(&archive, state.timeline, clock) {
            return notes.good(what, format!("{text}, to which others came just now"));
        }
        let grade = match wait_s == 0 && missing == 1 {
            true => Grade::Look,
            false => Grade::Bad,
        };
        let text = format!(
            "{text} after {wait_s} s: its primary does not archive them. Run `select * from pg_stat_archiver` there, and \
             `longshore check` with its `url`"
        );
        return notes.note(what, grade, text);
    }
}

/// Whether the newest segment came a short time ago, by the clock of the archive's files.
fn is_fresh(archive: &WalArchive, own: Option<Timeline>, clock: &dyn Clock) -> bool {
    let newest = archive.newest(own).ok().flatten();
    let file = newest.and_then(|name| archive.open_file(WalName::Segment(name)).ok());
    let age_s = |file: &ArchiveReader| (clock.wall_ns() - file.stat().mtime_ns) / 1_000_000_000;
    file.is_some_and(|file| age_s(&file) < ON_ITS_WAY_S)
}

/// Whether the archive has a later timeline than the standby's.
fn later(own: Option<Timeline>, runs: &[Run], notes: &mut Notes) {
    let latest = runs.iter().map(|run| run.span.last.timeline).max();
    let (Some(own), Some(latest)) = (own, latest) else {
        return;
    };
    if latest > own {
        let text = format!(
            "this standby is on timeline {own}, and the archive has timeline {latest}, which a restore follows: run \
             `select * from pg_stat_wal_receiver` there, and follow the new primary; or that timeline is a copy's"
        );
        notes.look("timeline", text);
    }
}

/// How many of the whole segments before `reached` follow the last one that is archived.
fn missing(runs: &[Run], at: (Option<Timeline>, Lsn), size: SegmentSize) -> u64 {
    let (own, reached) = at;
    let whole = reached.0 / size.bytes();
    let end = |name: SegmentName| name.start(size).0 / size.bytes() + 1;
    let of = |run: &&Run| own.is_none_or(|own| run.span.last.timeline <= own);
    // Another branch may have gone on below the first segment of its own timeline.
    let is_own = |run: &&Run| Some(run.span.last.timeline) == own;
    let first_own = runs
        .iter()
        .filter(is_own)
        .map(|run| end(run.span.first))
        .min();
    let archived = match first_own {
        Some(first) if first <= whole => runs
            .iter()
            .filter(is_own)
            .map(|run| end(run.span.last))
            .max(),
        _ => runs.iter().filter(of).map(|run| end(run.span.last)).max(),
    };
    whole.saturating_sub(archived.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use longshore_wal::Span;

    use super::*;

    const SIZE: u64 = 16 << 20;

    fn run(timeline: u32, first: u64, last: u64) -> Run {
        let size = SegmentSize::new(SIZE).unwrap();
        let name = |number: u64| {
            SegmentName::holding(Timeline::new(timeline).unwrap(), Lsn(number * SIZE), size)
        };
        let span = Span {
            first: name(first),
            last: name(last),
            segments: last - first + 1,
        };
        Run {
            span,
            stored_bytes: 0,
        }
    }

    /// The standby is in the middle of segment 9: the segments up to 8 are whole.
    #[test]
    fn a_standby_shows_which_whole_segments_the_archive_lacks() {
        let size = SegmentSize::new(SIZE).unwrap();
        let missing = |runs: &[Run], timeline: u32| {
            missing(runs, (Timeline::new(timeline), Lsn(9 * SIZE + 5)), size)
        };
        assert_eq!(missing(&[run(1, 2, 8)], 1), 0);
        assert_eq!(missing(&[run(1, 2, 9)], 1), 0);
        assert_eq!(missing(&[run(1, 2, 7)], 1), 1);
        assert_eq!(missing(&[run(1, 2, 3)], 1), 5);
        // A promotion within segment 9, and one before.
        assert_eq!(missing(&[run(1, 2, 8)], 2), 0);
        assert_eq!(missing(&[run(1, 2, 6), run(2, 6, 8)], 2), 0);
        // The left timeline's server goes on, and the new primary archives nothing.
        assert_eq!(missing(&[run(1, 2, 12), run(2, 5, 6)], 2), 2);
        // A copy's later timeline says nothing.
        assert_eq!(missing(&[run(1, 2, 6), run(3, 6, 8)], 1), 2);
    }
}
