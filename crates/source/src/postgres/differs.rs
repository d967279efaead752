//! Which pages a differential backup stores.
//!
//! Where the server sums up its log (17 and later) those that the summaries name ([`super::changes`]). Else, or where there
//! is a hole in the summaries, those that say so themselves:
//!
//! A page is left to the base when it is certain that the base's copy serves as well: replay from this backup's start
//! must make the same of both. Every change that is logged gives its page a new place in the log, and a backup begins
//! with a checkpoint, after which everything logged before it is in the files. So a page of the main fork whose place
//! is before the *start* of the base has not changed since the base was begun. (Not its end: the base may have read a
//! page before a change that came while it ran.) A page caught while it is being written is written for a change after
//! this backup's start, and replay brings it whole.
//!
//! What can change without a new place in the log, and what is done about it:
//!
//! | what | |
//! |---|---|
//! | free space maps, visibility maps, init forks, everything that is no relation | whole files |
//! | pages that were never written, or whose head or checksum is wrong | stored: their place says nothing |
//! | pages that lie beyond the end of the base's file | stored |
//! | relations filled under `wal_level = minimal`, GiST indexes built there | such pages have no place (0 or 1): stored |
//! | `ALTER TABLE ... SET LOGGED`, `SET TABLESPACE`, `VACUUM FULL`, `TRUNCATE` | a new file, not in the base: whole |
//! | a file's number used again after DROP | its pages are logged, so they are new; files of a database made by copying are not, see next |
//! | a database dropped and made again under its OID, moved away and back | its PG_VERSION has another time than in the base: all of it is whole |
//! | hint bits, checksums and `wal_log_hints` off | harmless: they only repeat what the transaction log says |
//! | "all visible" in a heap page, without checksums, `wal_log_hints` off or perhaps off for a while ([`is_one_run`]) | the same bit in the visibility map would be believed: the map's newer pages are left empty, see [`Differing::empties`] |
//! | the same before a base that is differential itself | what its own base holds is not known here: all of the map's pages are left empty, see [`believed_before`] |
//! | checksums enabled since the base | refused: the base's pages have none |
//! | `pg_rewind`, promotion, recovery to an earlier moment | the history of timelines must lead through the base's end, else refused |
//! | two recoveries without an archive, which give their timelines the same number | the base must be younger than the history file that a primary wrote when it opened, else refused |
//! | `pg_resetwal`, a standby that lags | refused where this backup would begin before the base's end |
//! | `pg_upgrade`, `initdb` | another system identifier: refused |
//!
//! Not noticed, so that a full backup must follow: a cluster that was set back without a new timeline, by a snapshot of
//! its file system or by an older backup that was started without `recovery.signal`, and that went on from there until
//! its log was longer than at a base of the future it left; checksums that were disabled, and enabled again, since the
//! base ("all visible", as above).

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_io::{Clock, Dir, OpenHow, Storage, Via};
use longshore_pg::wal::summary::Summary;
use longshore_pg::wal::{HISTORY_LEN_MAX, History, WalName};
use longshore_pg::{Control, Fork, Lsn, Page, Timeline};

use super::base::{Base, Segment};
use super::changes::Changes;
use super::rules;
use super::session::Session;
use crate::files::is_missing;
use crate::{BaseRefusal, Error};

/// Pages made while a cluster is made have the place of the first record's head; nothing logged is before it.
const PLACE_MIN: Lsn = Lsn(40);
/// The first major that sums up its log.
const SUMMARIES_SINCE: u32 = 17;

/// How a backup differs from its base.
pub(super) struct Differing {
    base: Arc<Base>,
    /// OIDs of the databases that are the base's.
    databases: HashSet<u32>,
    /// Pages of visibility maps with an earlier place in the log say no more than the base's pages do; `None`: all do.
    believed_before: Option<Lsn>,
    /// What the log names; `None`: pages are asked.
    changes: Option<Changes>,
    emptied: AtomicU64,
}

/// What both backups are of, and where this one begins.
pub(super) struct Now<'a> {
    pub(super) storage: &'a dyn Storage,
    /// The data directory.
    pub(super) path: &'a Path,
    pub(super) wal_dir: &'a dyn Dir,
    pub(super) session: &'a Session,
    pub(super) clock: &'a dyn Clock,
    pub(super) control: &'a Control,
    pub(super) start: Lsn,
}

/// What the base holds of a segment that can differ from it page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Based {
    segment: Segment,
    pages: u32,
}

impl Differing {
    /// Also gives what the operator should know. Errors: [`Error::Base`] when the set cannot be this backup's base.
    pub(super) fn begin(base: Arc<Base>, now: &Now) -> Result<(Differing, Option<String>), Error> {
        let history = check(&base, now)?;
        let (changes, notice) = match now.session.about.major {
            SUMMARIES_SINCE.. => {
                let stretches = stretches(&base, now, &history);
                match Changes::read(now.session, now.clock, now.wal_dir, &stretches)? {
                    Ok(changes) => (Some(changes), None),
                    Err(why) => {
                        let text = format!("every page is read to find those that changed: {why}");
                        (None, Some(text))
                    }
                }
            }
            _ => (None, None),
        };
        let differing = Differing {
            databases: same_databases(&base, now),
            believed_before: believed_before(
                &base,
                now.control,
                is_one_run(&base, now),
                changes.is_some(),
            ),
            base,
            changes,
            emptied: AtomicU64::new(0),
        };
        Ok((differing, notice))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let changes = self.changes.as_ref().map_or(0, Changes::memory_bytes);
        self.base.memory_bytes() + changes
    }

    /// How changed pages are found.
    pub(super) fn method(&self) -> &'static str {
        match self.changes {
            Some(_) => "WAL summaries",
            None => "page LSNs",
        }
    }

    /// What the base holds of the file at `path`, of `len` bytes now. `None`: the file is stored whole.
    pub(super) fn based(&self, path: &Path, len: u64) -> Option<Based> {
        let (segment, fork) = Segment::of(path)?;
        let page = u64::from(self.base.control.page_bytes);
        if fork != Fork::Main || len == 0 || !len.is_multiple_of(page) || !self.is_same(segment) {
            return None;
        }
        let pages = self.base.pages(segment)?;
        Some(Based { segment, pages })
    }

    /// Whether the file's directory was there when the base was made.
    fn is_same(&self, segment: Segment) -> bool {
        match &self.changes {
            Some(changes) => !changes.has_database(segment),
            None => segment.database == 0 || self.databases.contains(&segment.database),
        }
    }

    /// The first range from `offset` on that has to be looked at, in a based file of `len` bytes.
    pub(super) fn next(&self, based: &Based, offset: u64, len: u64) -> Option<Range<u64>> {
        let page_bytes = u64::from(self.base.control.page_bytes);
        let Some(changes) = &self.changes else {
            return (offset < len).then_some(offset..len);
        };
        let page = |offset: u64| u32::try_from(offset / page_bytes).unwrap_or(u32::MAX);
        let (at, end) = (page(offset), page(len));
        // What lies beyond the base's file the base cannot give.
        let grown = based.pages.max(at)..end;
        let segment_pages = self.base.control.segment_pages;
        let named = changes.next(based.segment, segment_pages, at..end.min(based.pages));
        let run = named.unwrap_or(grown);
        let bytes = u64::from(run.start) * page_bytes..u64::from(run.end) * page_bytes;
        (bytes.start < bytes.end).then_some(bytes)
    }

    /// Whether the base's copy of a page that was looked at cannot be relied on. `number` is the page's in its file.
    pub(super) fn is_changed(&self, based: &Based, page: Page, number: u64) -> bool {
        let place = page.lsn();
        self.changes.is_some()
            || number >= u64::from(based.pages)
            || page.is_new()
            || !page.is_plausible()
            || place < PLACE_MIN
            || place >= self.base.start.first
    }

    /// Leaves pages of a visibility map empty that may say more of their heap's pages than those in the base say of
    /// themselves. Nobody is misled by an empty one; VACUUM fills it again.
    pub(super) fn empty_map(&self, bytes: &mut [u8]) {
        let Some(limit) = self.believed_before else {
            return;
        };
        let page_bytes = self.base.control.page_bytes as usize;
        for bytes in bytes.chunks_exact_mut(page_bytes) {
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            if !is_empty && Page::new(bytes).is_some_and(|page| page.lsn() >= limit) {
                bytes.fill(0);
                self.emptied.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the file at `path` is a visibility map that may say too much.
    ///
    /// A map's bit is set together with "all visible" in the heap's page, which has no new place in the log where
    /// hints are not logged; so the base may hold that page without it. A change of such a page would not clear the
    /// map's bit, and queries would trust it.
    pub(super) fn empties(&self, path: &Path) -> bool {
        let Some((map, Fork::VisibilityMap)) = Segment::of(path) else {
            return false;
        };
        let heap = Segment { number: 0, ..map };
        self.believed_before.is_some() && self.is_same(map) && self.base.pages(heap).is_some()
    }

    /// Pages of visibility maps that were left empty.
    pub(super) fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }
}

/// Whether all log since the base was begun is of one run of this very server, so that what needs a restart to be
/// changed was what it is. A standby does not know when its primary was restarted, and one that was promoted did not.
fn is_one_run(base: &Base, now: &Now) -> bool {
    let about = &now.session.about;
    let started_us = about.started_s.saturating_mul(1_000_000);
    !about.in_recovery && base.end.0 == now.control.timeline && started_us <= base.begun_us
}

/// Where in the log a page of a visibility map must have its place before, to be believed beside the base's pages;
/// `None`: it always is.
///
/// That a map's page was left empty is not a state of the cluster: the map goes on saying what it said. So a
/// differential base, however it was made, does not tell which pages its own base holds without "all visible".
fn believed_before(base: &Base, control: &Control, one_run: bool, summarized: bool) -> Option<Lsn> {
    let has_checksums = |control: &Control| control.data_checksum_version != 0;
    if has_checksums(&base.control) && has_checksums(control) {
        return None;
    }
    if base.is_differential {
        return Some(Lsn(0));
    }
    // `wal_log_hints` needs a restart to be changed.
    let hints_logged = base.control.logs_hints() && control.logs_hints() && one_run;
    // Summaries name such a page together with the map's.
    (!summarized && !hints_logged).then_some(base.start.first)
}

/// The databases whose directories were neither made anew nor moved since the base.
fn same_databases(base: &Base, now: &Now) -> HashSet<u32> {
    let version = format!(
        "PG_{}_{}",
        now.session.about.major, now.control.catalog_version
    );
    let is_same = |(place, made_ns): ((u32, u32), i64)| {
        let file = rules::directory(place, &version).join("PG_VERSION");
        let stat = now.storage.stat(&now.path.join(file));
        let same = stat.is_ok_and(|stat| stat.mtime_ns == made_ns);
        same.then_some(place.1)
    };
    base.databases().filter_map(is_same).collect()
}

/// The log from the base's start to this backup's, timeline by timeline.
fn stretches(base: &Base, now: &Now, history: &History) -> Vec<Summary> {
    let mut stretches = Vec::new();
    let mut from = base.start.first;
    for fork in history.forks() {
        if fork.timeline >= base.start.timeline && fork.end > from {
            stretches.push(Summary {
                timeline: fork.timeline,
                start: from,
                end: fork.end,
            });
            from = fork.end;
        }
    }
    if now.start > from {
        stretches.push(Summary {
            timeline: now.control.timeline,
            start: from,
            end: now.start,
        });
    }
    stretches
}

/// Whether what the base holds is an earlier state of this very cluster. Gives how the cluster came to its timeline.
fn check(base: &Base, now: &Now) -> Result<History, Error> {
    let refuse = |source| Err(Error::Base { source });
    if base.start.system != now.control.system {
        return refuse(BaseRefusal::OtherCluster);
    }
    let (timeline, end) = base.end;
    let history = match timeline == now.control.timeline {
        true if was_opened_after(now, base.begun_us) => {
            return refuse(BaseRefusal::OtherTimeline {
                now: timeline.number(),
            });
        }
        true => History::first(timeline),
        false => history(now)?,
    };
    if !history.passes(timeline, end) {
        return refuse(BaseRefusal::NotAncestor {
            timeline: timeline.number(),
            end,
            now: now.control.timeline.number(),
        });
    }
    if now.start < end {
        return refuse(BaseRefusal::Behind {
            start: now.start,
            end,
        });
    }
    if base.control.data_checksum_version == 0 && now.control.data_checksum_version != 0 {
        return refuse(BaseRefusal::ChecksumsEnabled);
    }
    Ok(history)
}

/// Whether the server opened on its timeline after this moment: it wrote the timeline's history then. A standby got
/// the file from its primary, at any time; the first timeline has none.
fn was_opened_after(now: &Now, us: i64) -> bool {
    let stat = now.wal_dir.stat(&history_name(now.control.timeline));
    let opened = stat.is_ok_and(|stat| stat.mtime_ns / 1000 > us);
    opened && !now.session.about.in_recovery
}

fn history_name(timeline: Timeline) -> PathBuf {
    WalName::History(timeline).to_string().into()
}

/// How the cluster came to its timeline. The server needs the file itself and keeps it in `pg_wal`.
fn history(now: &Now) -> Result<History, Error> {
    let timeline = now.control.timeline;
    let name = history_name(timeline);
    let path = now.path.join("pg_wal").join(&name);
    let read = || {
        let file = now.wal_dir.open(&name, OpenHow::Read)?;
        let mut bytes = vec![0; HISTORY_LEN_MAX];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        Ok(bytes)
    };
    let bytes: Vec<u8> = match read() {
        Ok(bytes) => bytes,
        Err(e) if is_missing(&e) => {
            return Err(Error::Base {
                source: BaseRefusal::NoHistory { path },
            });
        }
        Err(source) => {
            return Err(Error::Io {
                action: "read",
                path,
                source,
            });
        }
    };
    History::parse(timeline, &bytes).map_err(|source| Error::Base {
        source: BaseRefusal::BadHistory { path, source },
    })
}

#[cfg(test)]
mod tests {
    use super::super::base::tests::base;
    use super::*;

    fn differing(files: &[(&str, u64)]) -> Differing {
        let mut base = base();
        for (path, pages) in files {
            base.add(Path::new(path), pages * 8192, 0);
        }
        base.complete();
        Differing {
            base: Arc::new(base),
            databases: HashSet::from([5]),
            believed_before: Some(Lsn(1000)),
            changes: None,
            emptied: AtomicU64::new(0),
        }
    }

    fn page(lsn: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        bytes[..4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(lsn as u32).to_le_bytes());
        for (at, value) in [(12, 24u16), (14, 8000), (16, 8192)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn only_what_is_surely_the_base_s_is_left_to_it() {
        let differing = differing(&[("base/5/7", 3)]);
        let based = differing.based(Path::new("base/5/7"), 4 * 8192).unwrap();
        let changed = |bytes: &[u8], number| {
            let page = Page::new(bytes).unwrap();
            differing.is_changed(&based, page, number)
        };
        // The base begins at 1000.
        assert!(!changed(&page(999), 2));
        assert!(!changed(&page(40), 0));
        for lsn in [0, 1, 39, 1000, 2000, u64::MAX] {
            assert!(changed(&page(lsn), 0), "{lsn}");
        }
        assert!(changed(&page(999), 3), "behind the base's end");
        assert!(changed(&[0; 8192], 0), "never written");
        let mut odd = page(999);
        odd[10] = 0xff;
        assert!(changed(&odd, 0), "no head of a page");
    }

    #[test]
    fn only_main_forks_of_the_same_databases_are_based() {
        let files = [("base/5/7", 3), ("base/6/7", 3), ("global/8", 1)];
        let differing = differing(&files);
        let is_based = |path: &str, len| differing.based(Path::new(path), len).is_some();
        assert!(is_based("base/5/7", 8192));
        assert!(is_based("global/8", 8192));
        for (path, len) in [
            ("base/6/7", 8192),
            ("base/5/7", 0),
            ("base/5/7", 8193),
            ("base/5/7_vm", 8192),
            ("base/5/7.1", 8192),
            ("base/5/9", 8192),
            ("pg_xact/0000", 8192),
        ] {
            assert!(!is_based(path, len), "{path}");
        }
        let empties = |path: &str| differing.empties(Path::new(path));
        assert!(empties("base/5/7_vm") && !empties("base/5/9_vm"));
        assert!(!empties("base/6/7_vm") && !empties("base/5/7_fsm"));
        let mut map = [page(999), page(1000)].concat();
        differing.empty_map(&mut map);
        assert_eq!(
            (&map[..8192], &map[8192..]),
            (&page(999)[..], &[0; 8192][..])
        );
        assert_eq!(differing.emptied(), 1);
    }

    /// The newest differential knows only the one before it: what that one left empty is in the map as before.
    #[test]
    fn maps_are_not_believed_beside_a_base_that_is_differential_itself() {
        let mut differing = differing(&[("base/5/7", 3)]);
        let full = base();
        let mut chained = base();
        chained.is_differential = true;
        let now = full.control;
        for summarized in [false, true] {
            assert_eq!(
                believed_before(&chained, &now, true, summarized),
                Some(Lsn(0))
            );
        }
        // Hints are logged now and were at the base; perhaps not before.
        let (mut logging, mut logged) = (now, chained.clone());
        logging.wal_log_hints = true;
        logged.control = logging;
        assert_eq!(
            believed_before(&logged, &logging, true, false),
            Some(Lsn(0))
        );
        let (mut checked, mut verified) = (now, chained);
        checked.data_checksum_version = 1;
        verified.control = checked;
        assert_eq!(believed_before(&verified, &checked, false, false), None);
        assert_eq!(believed_before(&verified, &now, false, false), Some(Lsn(0)));

        differing.believed_before = Some(Lsn(0));
        assert!(differing.empties(Path::new("base/5/7_vm")));
        let mut map = [page(999), page(0), vec![0; 8192]].concat();
        differing.empty_map(&mut map);
        assert!(map.iter().all(|byte| *byte == 0));
        assert_eq!(differing.emptied(), 2, "one was empty");
    }

    #[test]
    fn maps_are_believed_beside_a_full_base_where_hints_are_logged_or_summarized() {
        let mut full = base();
        let now = full.control;
        let start = Some(full.start.first);
        assert_eq!(believed_before(&full, &now, true, false), start);
        assert_eq!(believed_before(&full, &now, false, true), None);
        let mut logging = now;
        logging.wal_log_hints = true;
        assert_eq!(believed_before(&full, &logging, true, false), start);
        full.control = logging;
        assert_eq!(believed_before(&full, &logging, true, false), None);
        assert_eq!(
            believed_before(&full, &logging, false, false),
            start,
            "restarted, or a standby"
        );
    }
}
