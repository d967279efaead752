//! What replay makes of databases' directories that went while the backup ran.
//!
//! **Lost databases.**
//! A database that is moved to another tablespace, or made with the strategy FILE_COPY, is a directory's copy, and of the
//! log's record about it nothing but the two names is replayed. A copy is made again from its origin as the backup
//! found it: where that was removed while the backup ran, recovery makes an empty or partial database and reports
//! nothing. No base backup can repair that, so it is told; the cluster's other databases are sound.
//!
//! The server removes a directory's files first and writes the record about it then. So an origin may have been incomplete
//! when it was read although its removal is logged behind the backup's end, or is still under way: the log is looked
//! through up to where it is when the backup has ended, and databases that somebody removes or moves then count, too.
//!
//! **Missing directories.** Replay makes the directory that a record about a relation needs, but not the one that a map of
//! relations is written to: there it stops, and the restored server never starts. The map's record may come behind the
//! backup's start and that of the directory before: of a database that was just being made by its log, or whose mapped
//! catalogs were being rewritten. When the database is dropped or moved before its directory is listed, the backup holds it
//! empty. Seen with PostgreSQL 15 under `CREATE DATABASE`, `ALTER DATABASE … SET TABLESPACE` and `DROP DATABASE`.
//!
//! All the log is looked through only when a database may have come or gone: when the lists of them before the backup's
//! beginning, right after it and at the end differ, or somebody was making one when it had begun or is removing one at its
//! end. Otherwise whatever has a map in the log and was removed before its directory could be listed was removed before the
//! second list was asked for, and the log is looked through up to there.
//!
//! Where the server sends its files, so it does its log, if that is wanted, and all of it is looked through on its way. Who
//! is removing a database when the backup ends cannot be asked there.
//! Sources: PostgreSQL 14 to 18, `commands/dbcommands.c`, `commands/dbcommands_xlog.h`, `utils/cache/relmapper.c`;
//! documentation, "Continuous Archiving and Point-in-Time Recovery", caveats.

use std::collections::BTreeSet;

use longshore_io::Dir;
use longshore_pg::wal::{NotRecords, Record, Records, segments_in};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::session::Database;

/// The resource managers of databases, and of the maps of relations.
const RM_DBASE: u8 = 4;
const RM_RELMAP: u8 = 7;

/// The part of a database in one tablespace: their OIDs.
pub(super) type Place = (u32, u32);

/// What the log says of databases' directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Made by records that hold all of it.
    Made(Place),
    Copied {
        from: Place,
        to: Place,
    },
    Dropped(Place),
    /// Its map of relations is written.
    Mapped(Place),
}

/// What the log was looked through for.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What a restore may not have, for the operator: nothing when all is well.
    pub(super) lost: Vec<String>,
    /// The directories that replay needs and does not make.
    pub(super) needed: BTreeSet<Place>,
}

/// The log that the backup needs, in the server's own directory.
pub(super) struct Log<'a> {
    pub(super) dir: &'a dyn Dir,
    pub(super) timeline: Timeline,
    pub(super) size: SegmentSize,
    pub(super) major: u32,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
}

/// What the server says before the backup and when it has begun.
pub(super) struct Before {
    pub(super) databases: Vec<Database>,
    /// The same when it has begun.
    pub(super) begun: Vec<Database>,
    /// Whether there may have been databases then that were not in that list yet.
    pub(super) are_made: bool,
    /// How far the log had come then.
    pub(super) log_end: Lsn,
}

/// What the server says once the backup has ended.
pub(super) struct Since {
    /// OIDs of the databases that somebody removes or moves at this moment; asked for first.
    pub(super) going: Vec<u32>,
    /// How far the log has come.
    pub(super) log_end: Lsn,
    pub(super) databases: Vec<Database>,
}

pub(super) fn look(log: &Log<'_>, before: &Before, since: &Since) -> Found {
    let now = &since.databases;
    let is_quiet = !before.are_made && since.going.is_empty();
    if is_quiet && before.databases == *now && before.begun == *now {
        let end = log.end.min(before.log_end);
        let beginning = Log { end, ..*log }.events(end);
        return Found {
            lost: Vec::new(),
            needed: beginning.map_or_else(|_| BTreeSet::new(), |(events, _)| needed(&events)),
        };
    }
    match log.events(since.log_end) {
        Ok((events, later)) => {
            let is_going = |place: &Place| {
                since.going.contains(&place.0) || later.contains(&Event::Dropped(*place))
            };
            let lost = judge(&events, is_going).into_iter().map(|(oid, _)| oid);
            // One that was dropped right after the end is in the backup, too.
            let known = now.iter().chain(&before.databases).chain(&before.begun);
            let name = |oid: u32| known.clone().find(|d| d.oid == oid).map(|d| d.name.clone());
            Found {
                lost: told_of_copied(lost, name),
                needed: needed(&events),
            }
        }
        Err(reason) => {
            tracing::info!(%reason, "the log cannot be looked through for copied databases");
            let moved = now.iter().filter(|database| {
                before
                    .databases
                    .iter()
                    .any(|b| b.oid == database.oid && b.tablespace != database.tablespace)
            });
            Found {
                lost: moved
                    .map(|database| told(&database.name, "it was moved to another tablespace"))
                    .collect(),
                needed: BTreeSet::new(),
            }
        }
    }
}

/// What the log of a backup says by itself, all of which was seen.
pub(super) fn look_at(events: &[Event]) -> Found {
    let lost = judge(events, |_| false).into_iter().map(|(oid, _)| oid);
    Found {
        lost: told_of_copied(lost, |_| None),
        needed: needed(events),
    }
}

fn told_of_copied(
    lost: impl Iterator<Item = u32>,
    name: impl Fn(u32) -> Option<String>,
) -> Vec<String> {
    let lost: BTreeSet<u32> = lost.collect();
    let name = |oid| name(oid).unwrap_or_else(|| format!("with OID {oid}"));
    let lost = lost.into_iter();
    lost.map(|oid| told(&name(oid), "its files were copied"))
        .collect()
}

fn told(name: &str, what: &str) -> String {
    format!(
        "database {name} may not be whole in this backup: {what} while the backup ran, and replay cannot repeat that \
         from an origin which is gone; back up again"
    )
}

/// Of a database whose directory cannot be put into the backup.
pub(super) fn told_of_missing((database, space): Place) -> String {
    format!(
        "a server restored from this backup may not start: its replay needs the database with OID {database} in tablespace \
         {space}, which was removed while the backup began; back up again"
    )
}

impl Log<'_> {
    /// What happened up to the backup's end, and from there on up to `log_end` or as far as the log can be read: its
    /// last record may not be on disk yet.
    fn events(&self, log_end: Lsn) -> Result<(Vec<Event>, Vec<Event>), NotRecords> {
        let read = segments_in(self.dir, self.timeline, self.size);
        let segment = SegmentName::holding(self.timeline, self.start, self.size).start(self.size);
        let mut records = Records::new(read, self.start, segment)?;
        let (mut events, mut later) = (Vec::new(), Vec::new());
        while let Some(record) = records.next(self.end, is_wanted)? {
            events.extend(events_of(&record, self.major)?);
        }
        while let Ok(Some(record)) = records.next(log_end, is_wanted) {
            later.extend(events_of(&record, self.major)?);
        }
        Ok((events, later))
    }
}

/// Whether records of this resource manager tell of databases' directories.
pub(super) fn is_wanted(manager: u8, _kind: u8) -> bool {
    matches!(manager, RM_DBASE | RM_RELMAP)
}

pub(super) fn events_of(record: &Record, major: u32) -> Result<Vec<Event>, NotRecords> {
    let events = match record.manager {
        RM_DBASE => of_databases(record, major),
        RM_RELMAP => mapped(record).map(Vec::from_iter),
        _ => Some(Vec::new()),
    };
    events.ok_or(NotRecords::Broken {
        at: record.at,
        what: "record about a database that can be read",
    })
}

/// The database whose map is written; nothing of the one that all share, whose directory is always there.
fn mapped(record: &Record) -> Option<Option<Event>> {
    let (database, rest) = record.data()?.split_first_chunk()?;
    let place = (
        u32::from_le_bytes(*database),
        u32::from_le_bytes(*rest.first_chunk()?),
    );
    Some((place.0 != 0).then_some(Event::Mapped(place)))
}

fn of_databases(record: &Record, major: u32) -> Option<Vec<Event>> {
    let numbers: Vec<u32> = record
        .data()?
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    // 14 knows copies and drops alone, and numbers them so.
    let kind = match (record.kind, major) {
        (0x10, ..=14) => 0x20,
        (kind, _) => kind,
    };
    Some(match (kind, numbers.as_slice()) {
        (0x00, [to, to_space, from, from_space, ..]) => vec![Event::Copied {
            from: (*from, *from_space),
            to: (*to, *to_space),
        }],
        (0x10, [made, space, ..]) => vec![Event::Made((*made, *space))],
        (0x20, [dropped, count, spaces @ ..]) => spaces
            .get(..*count as usize)?
            .iter()
            .map(|space| Event::Dropped((*dropped, *space)))
            .collect(),
        _ => return None,
    })
}

/// The places whose map replay writes before it has made their directory.
fn needed(events: &[Event]) -> BTreeSet<Place> {
    let (mut made, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            Event::Made(place) | Event::Copied { to: place, .. } => {
                made.insert(*place);
            }
            Event::Mapped(place) if !made.contains(place) => {
                needed.insert(*place);
            }
            Event::Mapped(_) | Event::Dropped(_) => {}
        }
    }
    needed
}

/// The places whose content replay makes from an origin that the backup need not have. `is_going`: whether a place was or is
/// being removed behind these events.
fn judge(events: &[Event], is_going: impl Fn(&Place) -> bool) -> BTreeSet<Place> {
    let (mut made, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for (i, event) in events.iter().enumerate() {
        match event {
            Event::Made(place) => {
                made.insert(*place);
                lost.remove(place);
            }
            Event::Copied { from, to } => {
                let goes = || events[i..].contains(&Event::Dropped(*from)) || is_going(from);
                if lost.contains(from) || (!made.contains(from) && goes()) {
                    made.remove(to);
                    lost.insert(*to);
                } else {
                    made.insert(*to);
                    lost.remove(to);
                }
            }
            Event::Dropped(place) => {
                made.remove(place);
                lost.remove(place);
            }
            Event::Mapped(_) => {}
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Place = (16400, 1663);
    const B: Place = (16400, 16384);
    const C: Place = (16401, 1663);

    fn copied(from: Place, to: Place) -> Event {
        Event::Copied { from, to }
    }

    #[test]
    fn a_copy_is_sound_while_its_origin_is_there_or_replayed_itself() {
        let whole: [&[Event]; 7] = [
            &[],
            &[copied(A, C)],
            // The template goes before anything is copied.
            &[Event::Dropped(A), Event::Made(A), copied(A, C)],
            &[Event::Made(A), copied(A, B), Event::Dropped(A)],
            &[copied(C, A), copied(A, B), Event::Dropped(A)],
            // What was lost is dropped, or made anew.
            &[copied(A, B), Event::Dropped(A), Event::Dropped(B)],
            &[
                copied(A, B),
                Event::Dropped(A),
                Event::Dropped(B),
                Event::Made(B),
            ],
        ];
        for events in whole {
            assert!(judge(events, |_| false).is_empty(), "{events:?}");
        }
        let lost: [(&[Event], Place); 4] = [
            (&[copied(A, B), Event::Dropped(A)], B),
            // There and back again.
            (
                &[
                    copied(A, B),
                    Event::Dropped(A),
                    copied(B, A),
                    Event::Dropped(B),
                ],
                A,
            ),
            // From a copy that is lost.
            (
                &[
                    copied(A, B),
                    Event::Dropped(A),
                    copied(B, C),
                    Event::Dropped(B),
                ],
                C,
            ),
            // The template was moved behind the copy.
            (&[copied(C, A), Event::Dropped(C)], A),
        ];
        for (events, place) in lost {
            assert_eq!(
                judge(events, |_| false),
                BTreeSet::from([place]),
                "{events:?}"
            );
        }
    }

    #[test]
    fn a_map_needs_the_directory_unless_replay_has_made_it() {
        let needs = |events: &[Event]| needed(events).contains(&A);
        assert!(needs(&[Event::Mapped(A)]));
        assert!(needs(&[Event::Mapped(A), copied(A, B), Event::Dropped(A)]));
        assert!(needs(&[Event::Made(B), Event::Mapped(A), Event::Made(A)]));
        assert!(!needs(&[Event::Made(A), Event::Mapped(A)]));
        assert!(!needs(&[copied(B, A), Event::Mapped(A), Event::Dropped(A)]));
        assert!(!needs(&[]));
    }

    /// The files go before their record: the backup may have ended in between.
    #[test]
    fn an_origin_that_is_removed_at_the_end_may_be_incomplete_already() {
        let going = |place: &Place| *place == A;
        assert_eq!(judge(&[copied(A, B)], going), BTreeSet::from([B]));
        assert!(judge(&[copied(C, B)], going).is_empty());
        // What the log holds itself needs no origin.
        assert!(judge(&[Event::Made(A), copied(A, B)], going).is_empty());
        // Only what is there at the end counts.
        assert!(judge(&[copied(A, B), Event::Dropped(B)], going).is_empty());
    }
}
