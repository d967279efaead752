//! Which pages a differential backup need not read.
//!
//! Whether a page is stored depends on its content alone: the base's set holds a keyed sum of each page, and a page is
//! stored if its own sum differs. Timelines, clocks, file numbers, hint bits, visibility maps and LSNs have no effect.
//! So the base can be any set of a cluster with this system identifier, and the chain restores exactly what a full
//! backup of the same moment would have stored.
//!
//! The server's WAL summaries (17 and later, [`super::changes`]) only save reading. They are used only if they
//! certainly name every page that was changed since the base was begun:
//!
//! | what | why |
//! |---|---|
//! | this run of the server is the base's: both have the same start time, to the microsecond | no restart in between: `wal_level`, `wal_log_hints` and checksums are unchanged, no other program wrote to the files, and there is one WAL |
//! | the server is on the base's timeline, after the base's end | a promotion within one run changes the timeline |
//! | hint bits are logged: checksums; on a primary, also `wal_log_hints` | otherwise hint bits change pages without a WAL record. A standby's control file has its primary's `wal_log_hints`, but the standby's own setting counts |
//! | the summaries cover the WAL from the base's start to this backup's without a gap | |
//! | main forks only | free space maps are not logged, and the other forks are small |
//! | the database's directory was neither created nor moved meanwhile | its files came from elsewhere |
//!
//! Invariants
//! - If any condition fails, every page is read, and a notice says why.
//! - If all hold, a random sample of the skipped pages is read anyway. A sampled page that differs from the base, and
//!   whose own LSN precedes the start of this backup, ends the backup ([`BaseRefusal::NotNamed`]).
//!
//! Leaves to others: reading summaries (`changes.rs`), sums and the sample (the pipeline), and one case that only the
//! sample notices: a machine that was reset to a snapshot including its memory, so that the server's run continues from
//! a state before the base.

use std::ops::Range;

use longshore_io::{Clock, Dir};
use longshore_pg::wal::summary::Summary;
use longshore_pg::{Control, Lsn, Page};

use super::base::RelationSegment;
use super::changes::Changes;
use super::session::Session;
use crate::base::Base;
use crate::{BaseRefusal, Error};

/// The method of a backup that reads only the pages that the server names.
pub(super) const BY_SUMMARIES: &str = "WAL summaries";

/// The first major version that summarizes its WAL.
const SUMMARIES_SINCE: u32 = 17;

/// Decides which pages of a cluster need not be read.
pub(super) struct PageSelection {
    /// The LSN at which this backup begins.
    start: Lsn,
    page_bytes: u32,
    relation_segment_pages: u32,
    /// The pages named by the WAL summaries; `None`: every page is read.
    changes: Option<Changes>,
}

/// The start of this backup, and the server it is taken from.
pub(super) struct Now<'a> {
    pub(super) wal_dir: &'a dyn Dir,
    pub(super) session: &'a Session,
    pub(super) clock: &'a dyn Clock,
    pub(super) control: &'a Control,
    pub(super) start: Lsn,
}

impl PageSelection {
    /// Also returns a notice for the operator. Errors: [`Error::Base`] if the set cannot be this backup's base.
    pub(super) fn begin(base: &Base, now: &Now) -> Result<(PageSelection, Option<String>), Error> {
        if base.start.system != now.control.system {
            return Err(Error::Base {
                source: BaseRefusal::OtherCluster,
            });
        }
        let mut notice = None;
        let mut changes = None;
        if now.session.about.major >= SUMMARIES_SINCE {
            match changes_since(base, now)? {
                Ok(found) => changes = Some(found),
                Err(why) => {
                    let text = format!("every page is read to find the changed ones: {why}");
                    notice = Some(text);
                }
            }
        }
        let differing = PageSelection {
            start: now.start,
            page_bytes: now.control.page_bytes,
            relation_segment_pages: now.control.relation_segment_pages,
            changes,
        };
        Ok((differing, notice))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.changes.as_ref().map_or(0, Changes::memory_bytes)
    }

    /// How the pages that need not be read are found.
    pub(super) fn method(&self) -> &'static str {
        match self.changes {
            Some(_) => BY_SUMMARIES,
            None => "page sums",
        }
    }

    /// The first range from `offset` on that must be read to know whether it differs from the base, in a file of `len`
    /// bytes; `relation` is `None` for files that summaries do not cover.
    pub(super) fn next(
        &self,
        relation: Option<RelationSegment>,
        offset: u64,
        len: u64,
    ) -> Option<Range<u64>> {
        let told = self.changes.as_ref().zip(relation);
        let Some((changes, relation)) = told.filter(|(c, s)| !c.has_database(*s)) else {
            return (offset < len).then_some(offset..len);
        };
        let page_bytes = u64::from(self.page_bytes);
        let page = |offset: u64| u32::try_from(offset / page_bytes).unwrap_or(u32::MAX);
        let run = changes.next(
            relation,
            self.relation_segment_pages,
            page(offset)..page(len),
        )?;
        Some(u64::from(run.start) * page_bytes..u64::from(run.end) * page_bytes)
    }

    /// Whether a skipped page that differs from the base was changed after this backup began: replay repeats that
    /// change. A page of zeros was truncated since.
    pub(super) fn is_explained(&self, page: &[u8]) -> bool {
        Page::new(page).is_none_or(|page| page.is_new() || page.lsn() >= self.start)
    }
}

/// `Err` holds the reason, for people, why every page is read.
fn changes_since(base: &Base, now: &Now) -> Result<Result<Changes, String>, Error> {
    let about = &now.session.about;
    if let Err(why) = names_all(
        base,
        about.started_us,
        about.in_recovery,
        now.control,
        now.start,
    ) {
        return Ok(Err(why.into()));
    }
    let stretch = Summary {
        timeline: base.end.0,
        start: base.start.first,
        end: now.start,
    };
    Changes::read(now.session, now.clock, now.wal_dir, &[stretch])
}

/// Whether the WAL summaries name every page that changed since the base was begun; `Err` holds the reason why not.
fn names_all(
    base: &Base,
    started_us: i64,
    in_recovery: bool,
    control: &Control,
    start: Lsn,
) -> Result<(), &'static str> {
    let has_checksums = control.data_checksum_version != 0;
    if base.server_started_us != Some(started_us) {
        Err("the server was restarted after the base, or is another server")
    } else if base.start.timeline != control.timeline || base.end.0 != control.timeline {
        Err("the base is of another timeline")
    } else if start < base.end.1 {
        Err("this backup begins before the base ends")
    } else if !has_checksums && (in_recovery || !control.wal_log_hints) {
        Err(
            "the WAL does not name pages of which only hint bits changed (no checksums, no wal_log_hints)",
        )
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longshore_pg::{CONTROL_FILE_LEN, Timeline};

    use super::*;
    use crate::LogStart;

    fn control(checksums: u32, log_hints: bool) -> Control {
        let mut bytes = vec![0; CONTROL_FILE_LEN];
        for (at, value) in [
            (8, 1300u32),
            (48, 1),
            (216, 8192),
            (220, 131_072),
            (228, 16 << 20),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc = longshore_io::crc32c(&bytes[..288]);
        bytes[288..292].copy_from_slice(&crc.to_le_bytes());
        Control {
            data_checksum_version: checksums,
            wal_log_hints: log_hints,
            ..Control::parse(&bytes).unwrap()
        }
    }

    fn base() -> Base {
        let timeline = Timeline::new(1).unwrap();
        let start = LogStart {
            system: 1,
            timeline,
            first: Lsn(1000),
        };
        Base {
            start,
            end: (timeline, Lsn(2000)),
            server_started_us: Some(77),
            identity: None,
        }
    }

    #[test]
    fn summaries_are_used_where_they_name_every_changed_page_alone() {
        let (base, checked) = (base(), control(1, false));
        let judge = |base: &Base, started, recovers, control: &Control, start| {
            names_all(base, started, recovers, control, Lsn(start)).is_ok()
        };
        assert!(judge(&base, 77, false, &checked, 2000));
        assert!(judge(&base, 77, true, &checked, 2000), "a standby");
        assert!(!judge(&base, 78, false, &checked, 2000), "another run");
        assert!(!judge(&base, 77, false, &checked, 1999), "it lags");
        let unknown = Base {
            server_started_us: None,
            ..base.clone()
        };
        assert!(!judge(&unknown, 77, false, &checked, 2000));
        let hints = control(0, true);
        assert!(judge(&base, 77, false, &hints, 2000));
        assert!(!judge(&base, 77, true, &hints, 2000), "its primary's");
        assert!(!judge(&base, 77, false, &control(0, false), 2000));
        let mut promoted = checked;
        promoted.timeline = Timeline::new(2).unwrap();
        assert!(!judge(&base, 77, false, &promoted, 2000));
        let mut early = base;
        early.end.0 = promoted.timeline;
        assert!(!judge(&early, 77, false, &promoted, 2000), "over two");
    }

    #[test]
    fn only_pages_of_after_the_start_are_explained() {
        let differing = PageSelection {
            start: Lsn(1000),
            page_bytes: 8192,
            relation_segment_pages: 131_072,
            changes: None,
        };
        let page = |lsn: u32| {
            let mut bytes = vec![0; 8192];
            bytes[4..8].copy_from_slice(&lsn.to_le_bytes());
            bytes[14..16].copy_from_slice(&8000u16.to_le_bytes());
            bytes
        };
        assert!(!differing.is_explained(&page(999)));
        assert!(differing.is_explained(&page(1000)));
        assert!(differing.is_explained(&[0; 8192]), "cut off");
        assert_eq!(differing.next(None, 8192, 16384), Some(8192..16384));
        assert_eq!(differing.next(None, 16384, 16384), None);
    }
}
