//! The effect of replay on database directories that were removed during the backup.
//!
//! **Lost databases.** Moving a database to another tablespace, or creating it with the strategy FILE_COPY, copies a
//! directory. The WAL record of that copy holds only the two names, and replay copies the directory again from its
//! origin as the backup found it. If the origin was removed during the backup, recovery creates an empty or partial
//! database and reports nothing. No base backup can repair that, so the backup reports it; the cluster's other
//! databases are sound.
//!
//! The server removes a directory's files first and writes the record afterwards. So an origin may have been
//! incomplete when it was read, although its removal is logged after the backup's end or is still in progress. The WAL
//! is therefore read beyond the backup's end, up to its end at that moment, and databases being removed or moved then
//! count as removed.
//!
//! **Missing directories.** Replay creates the directory that a record about a relation needs, but not the directory
//! into which a relation map (`pg_filenode.map`) is written. There it stops, and the restored server never starts. The
//! record of the map may follow the backup's start while the record of the directory precedes it: the database was
//! just being created by WAL, or its mapped catalogs were being rewritten. If that database is dropped or moved before
//! its directory is listed, the backup stores the directory empty. Observed with PostgreSQL 15 under `CREATE
//! DATABASE`, `ALTER DATABASE … SET TABLESPACE` and `DROP DATABASE`.
//!
//! All WAL of the backup is read only if a database may have been created or removed: the lists of databases before
//! the backup, directly after its start and at its end differ, or a database was being created at its start or is
//! being removed at its end. Otherwise, a database that has a map in the WAL and was removed before its directory
//! could be listed was removed before the second list was read, and the WAL is read up to that point only.
//!
//! With `BASE_BACKUP` the server also sends its WAL, if requested, and all of it is scanned in transit. Databases that
//! are being removed when the backup ends are then unknown.
//! Sources: PostgreSQL 14 to 18, `commands/dbcommands.c`, `commands/dbcommands_xlog.h`, `utils/cache/relmapper.c`;
//! documentation, "Continuous Archiving and Point-in-Time Recovery", caveats.
//!
//! Invariants
//! - Nothing is changed, and nothing here fails a backup: if the WAL cannot be read, only databases that were moved are
//!   reported.
//! - A copied database is reported if its origin was itself lost, or if the origin was removed and no record that holds
//!   all of its content created it.
//! - A directory is needed if a map is written into it before a record creates it.
//!
//! Leaves to others: decoding records (`longshore_pg::wal`); the lists of databases (`session.rs`); adding needed
//! directories to the set (`mod.rs`); the streamed WAL (`remote/log.rs`).

use std::collections::BTreeSet;

use longshore_io::Dir;
use longshore_pg::wal::{NotRecords, Records, WalRecord, segments_in};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::session::Database;

/// The resource managers of databases and of relation maps.
const RM_DBASE: u8 = 4;
const RM_RELMAP: u8 = 7;

/// A database's directory in one tablespace: OIDs of the database and of the tablespace.
pub(super) type DatabaseDirectory = (u32, u32);

/// Events in the WAL about database directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Created by records that hold all of its content.
    Made(DatabaseDirectory),
    Copied {
        from: DatabaseDirectory,
        to: DatabaseDirectory,
    },
    Dropped(DatabaseDirectory),
    /// The database's relation map is written.
    Mapped(DatabaseDirectory),
}

/// The result of reading the WAL.
#[derive(Debug, Default)]
pub(super) struct CopyFindings {
    /// Data that a restore may lack, for the operator; empty if all is well.
    pub(super) lost: Vec<String>,
    /// Directories that replay needs and does not create.
    pub(super) needed: BTreeSet<DatabaseDirectory>,
}

/// The WAL that the backup needs, in the server's own directory.
pub(super) struct Log<'a> {
    pub(super) dir: &'a dyn Dir,
    pub(super) timeline: Timeline,
    pub(super) size: SegmentSize,
    pub(super) major: u32,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
}

/// The server's state before the backup and at its start.
pub(super) struct Before {
    pub(super) databases: Vec<Database>,
    /// The databases at the start.
    pub(super) begun: Vec<Database>,
    /// Whether databases may have existed then that `begun` does not list yet.
    pub(super) are_made: bool,
    /// The end of the WAL at that time.
    pub(super) log_end: Lsn,
}

/// The server's state after the backup has ended.
pub(super) struct Since {
    /// OIDs of the databases that are being removed or moved; asked first.
    pub(super) going: Vec<u32>,
    /// The end of the WAL.
    pub(super) log_end: Lsn,
    pub(super) databases: Vec<Database>,
}

pub(super) fn look(log: &Log<'_>, before: &Before, since: &Since) -> CopyFindings {
    let now = &since.databases;
    let is_quiet = !before.are_made && since.going.is_empty();
    if is_quiet && before.databases == *now && before.begun == *now {
        let end = log.end.min(before.log_end);
        let beginning = Log { end, ..*log }.events(end);
        return CopyFindings {
            lost: Vec::new(),
            needed: beginning.map_or_else(|_| BTreeSet::new(), |(events, _)| needed(&events)),
        };
    }
    match log.events(since.log_end) {
        Ok((events, later)) => {
            let is_going = |place: &DatabaseDirectory| {
                since.going.contains(&place.0) || later.contains(&Event::Dropped(*place))
            };
            let lost = judge(&events, is_going).into_iter().map(|(oid, _)| oid);
            // A database that was dropped directly after the end is in the backup, too.
            let known = now.iter().chain(&before.databases).chain(&before.begun);
            let name = |oid: u32| known.clone().find(|d| d.oid == oid).map(|d| d.name.clone());
            CopyFindings {
                lost: told_of_copied(lost, name),
                needed: needed(&events),
            }
        }
        Err(reason) => {
            tracing::info!(%reason, "the WAL cannot be searched for copied databases");
            let moved = now.iter().filter(|database| {
                before
                    .databases
                    .iter()
                    .any(|b| b.oid == database.oid && b.tablespace != database.tablespace)
            });
            CopyFindings {
                lost: moved
                    .map(|database| told(&database.name, "it was moved to another tablespace"))
                    .collect(),
                needed: BTreeSet::new(),
            }
        }
    }
}

/// The findings from the WAL alone, if all of it was seen.
pub(super) fn look_at(events: &[Event]) -> CopyFindings {
    let lost = judge(events, |_| false).into_iter().map(|(oid, _)| oid);
    CopyFindings {
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
        "database {name} may be incomplete in this backup: {what} while the backup ran, and replay cannot repeat that \
         because the original is gone; back up again"
    )
}

/// The message about a database whose directory cannot be added to the backup.
pub(super) fn told_of_missing((database, space): DatabaseDirectory) -> String {
    format!(
        "a server restored from this backup may not start: its replay needs the database with OID {database} in tablespace \
         {space}, which was removed while the backup began; back up again"
    )
}

impl Log<'_> {
    /// The events up to the backup's end, and those from there to `log_end` or as far as the WAL can be read: its last
    /// record may not be on disk yet.
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

/// Whether records of this resource manager concern database directories.
pub(super) fn is_wanted(manager: u8, _kind: u8) -> bool {
    matches!(manager, RM_DBASE | RM_RELMAP)
}

pub(super) fn events_of(record: &WalRecord, major: u32) -> Result<Vec<Event>, NotRecords> {
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

/// The database whose map is written; none for the shared map, whose directory always exists.
fn mapped(record: &WalRecord) -> Option<Option<Event>> {
    let (database, rest) = record.data()?.split_first_chunk()?;
    let place = (
        u32::from_le_bytes(*database),
        u32::from_le_bytes(*rest.first_chunk()?),
    );
    Some((place.0 != 0).then_some(Event::Mapped(place)))
}

fn of_databases(record: &WalRecord, major: u32) -> Option<Vec<Event>> {
    let numbers: Vec<u32> = record
        .data()?
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    // Version 14 has only copies and drops, with other numbers.
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

/// The directories into which replay writes a map before it has created them.
fn needed(events: &[Event]) -> BTreeSet<DatabaseDirectory> {
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

/// The directories that replay copies from an origin that the backup may lack. `is_going`: whether a directory was
/// removed after these events, or is being removed.
fn judge(
    events: &[Event],
    is_going: impl Fn(&DatabaseDirectory) -> bool,
) -> BTreeSet<DatabaseDirectory> {
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

    const A: DatabaseDirectory = (16400, 1663);
    const B: DatabaseDirectory = (16400, 16384);
    const C: DatabaseDirectory = (16401, 1663);

    fn copied(from: DatabaseDirectory, to: DatabaseDirectory) -> Event {
        Event::Copied { from, to }
    }

    #[test]
    fn a_copy_is_sound_while_its_origin_is_there_or_replayed_itself() {
        let whole: [&[Event]; 7] = [
            &[],
            &[copied(A, C)],
            // The template is removed before anything is copied.
            &[Event::Dropped(A), Event::Made(A), copied(A, C)],
            &[Event::Made(A), copied(A, B), Event::Dropped(A)],
            &[copied(C, A), copied(A, B), Event::Dropped(A)],
            // The lost copy is dropped, or created again.
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
        let lost: [(&[Event], DatabaseDirectory); 4] = [
            (&[copied(A, B), Event::Dropped(A)], B),
            // Moved there and back.
            (
                &[
                    copied(A, B),
                    Event::Dropped(A),
                    copied(B, A),
                    Event::Dropped(B),
                ],
                A,
            ),
            // Copied from a lost copy.
            (
                &[
                    copied(A, B),
                    Event::Dropped(A),
                    copied(B, C),
                    Event::Dropped(B),
                ],
                C,
            ),
            // The template was moved after the copy.
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

    /// The files are removed before the record is written: the backup may have ended in between.
    #[test]
    fn an_origin_that_is_removed_at_the_end_may_be_incomplete_already() {
        let going = |place: &DatabaseDirectory| *place == A;
        assert_eq!(judge(&[copied(A, B)], going), BTreeSet::from([B]));
        assert!(judge(&[copied(C, B)], going).is_empty());
        // A directory whose content is in the WAL needs no origin.
        assert!(judge(&[Event::Made(A), copied(A, B)], going).is_empty());
        // Only databases that exist at the end count.
        assert!(judge(&[copied(A, B), Event::Dropped(B)], going).is_empty());
    }
}
