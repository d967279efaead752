//! The archived WAL after a backup: fetched for the drill's server, as far as it is whole, and compared with what the
//! server has replayed.
//!
//! Invariants
//! - What is wrong after the backup is no fault of the backup: it has a proof of its own.
//! - Every segment is decoded and must continue the one before; nothing after a fault is fetched.
//! - The file system of the scratch directory keeps half of its free space.
//!
//! Leaves to others: the WAL that makes the backup consistent (`log.rs`), and the server (`postgres.rs`).

use std::path::{Path, PathBuf};

use longshore_io::{Attributes, OpenHow, Via};
use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lsn, Recovery, SegmentName, SegmentSize, Timeline, recovery};
use longshore_repository::Shelf;
use longshore_wal::proof::LastEnd;
use longshore_wal::{Error, WalArchive};

use super::log::range;
use super::proof::Proof;
use crate::context::Context;

/// The longest history that a server writes, in bytes.
const HISTORY_MAX: usize = 1 << 20;

/// The WAL after a backup, as far as the server has it.
pub struct LaterLog {
    /// The timeline that recovery follows.
    pub timeline: Timeline,
    segment_bytes: u64,
    segments: u64,
    /// The end of what was fetched.
    end: Lsn,
    /// When the last transaction of it ended, in microseconds since 1970.
    last_us: Option<i64>,
    /// Why there is no more, although the archive has later WAL.
    broken: Option<String>,
    /// Why a restore that names no timeline is refused.
    doubt: Option<String>,
    /// Whether the scratch directory has no room for the rest.
    is_full: bool,
}

/// `None`: the archive has no WAL of this cluster, or the backup's own WAL is not proved.
pub fn fetch(
    context: &Context,
    shelf: &Shelf,
    (header, trailer): (&SetHeader, &SetTrailer),
    data: &Path,
) -> Option<LaterLog> {
    let archive = shelf.wal().ok()??;
    let log = range(header, trailer)?;
    let identity = archive.identity().filter(|own| own.system == log.system)?;
    let (size, last) = (identity.segment_size, Lsn(log.last_lsn));
    let replay = archive.replay(&log, trailer.log.included).ok()??;
    let history = archive.history(replay.timeline).ok()?;
    let gap = replay.missing_to_end.first();
    let to = gap.map_or(replay.end, |gap| gap.first.start(size));
    let mut later = LaterLog {
        timeline: replay.timeline,
        segment_bytes: size.bytes(),
        segments: 0,
        end: last,
        last_us: None,
        broken: match (gap, &replay.cut) {
            (Some(gap), _) => Some(format!("{gap} is missing")),
            (None, cut) => cut.map(|cut| cut.to_string()),
        },
        doubt: match archive.check_plain(&log, trailer.finish_us, &Recovery::default()) {
            Err(doubt @ Error::Parted { .. }) => Some(doubt.to_string()),
            _ => None,
        },
        is_full: false,
    };
    let begin = Lsn(last.0.saturating_sub(1) / size.bytes() * size.bytes());
    if to <= last {
        return Some(later);
    }
    match archive.segments(&history, begin, to) {
        Ok(names) => later.take(context, (&archive, &history, size), &names, data),
        Err(e) => later.broken = Some(e.to_string()),
    }
    if let Some(LastEnd::At(us)) = archive.last_end(&history, last, later.end) {
        later.last_us = Some(us);
    }
    Some(later)
}

impl LaterLog {
    /// Fetches these segments, of which the server may have the first from the backup.
    fn take(
        &mut self,
        context: &Context,
        (archive, history, size): (&WalArchive, &History, SegmentSize),
        names: &[SegmentName],
        data: &Path,
    ) {
        let path = data.join("pg_wal");
        let fetch = |name: WalName| -> Result<(), Error> {
            let io = |source| Error::Io {
                action: "open",
                path: path.clone(),
                offset: None,
                source,
            };
            let dir = context.storage.dir(&path).map_err(io)?;
            let stat = dir.stat(Path::new("")).map_err(io)?;
            let ours = Attributes {
                owner: Some((stat.uid, stat.gid)),
                ..Attributes::default()
            };
            let to = name.to_string();
            archive.fetch(name, &dir, &path, &to, &*context.clock)?;
            dir.set_attributes(Path::new(&to), &ours).map_err(io)
        };
        let free = || {
            let free = context.storage.dir(&path).and_then(|dir| dir.free_bytes());
            free.unwrap_or(0)
        };
        let room = free() / 2;
        if self.timeline.number() > 1
            && let Err(e) = fetch(WalName::History(self.timeline))
        {
            self.broken = Some(e.to_string());
            return;
        }
        let mut before: Option<SegmentName> = None;
        for name in names {
            if (self.segments + 1) * self.segment_bytes > room {
                self.is_full = true;
                return;
            }
            let start = name.start(size);
            let end = Lsn(start.0 + self.segment_bytes);
            let fits = match before {
                Some(_) => archive.check_links(history, Lsn(start.0 - 1), Lsn(start.0 + 1)),
                None => Ok(()),
            };
            if let Err(e) = fits.and_then(|()| fetch(WalName::Segment(*name))) {
                self.broken = Some(e.to_string());
                return;
            }
            self.segments += u64::from(before.is_some());
            self.end = end;
            before = Some(*name);
        }
    }

    /// Whether the server has segments after the backup's last one.
    pub fn has_segments(&self) -> bool {
        self.segments > 0
    }

    /// The proof, after the server at `data` has recovered, or has failed after the backup's end: `broken_off` says why.
    pub fn proof(&self, context: &Context, data: &Path, broken_off: Option<&str>) -> Proof {
        let count = self.segments;
        let mut text = match count {
            0 if self.broken.is_none() => "the archive has none after this backup".to_owned(),
            _ => format!(
                "{count} segments after the backup, to {} on timeline {}",
                self.end, self.timeline
            ),
        };
        if let Some(us) = self.last_us {
            text += &format!(", with the transactions up to {}", recovery::time(us));
        }
        if self.is_full {
            text += "; the scratch directory has no room for the rest (--work names another)";
        }
        let mut sound = true;
        if let Some(broken) = &self.broken {
            sound = false;
            text += &format!(
                "; then no recovery goes on: {broken}. Make a full backup, so that later moments can be recovered; `longshore check` says \
                 where a whole copy is"
            );
        }
        if let Some(doubt) = &self.doubt {
            sound = false;
            text += &format!(
                "; a restore that does not name a timeline (--target-timeline) is refused: {doubt}"
            );
        }
        if let Some(why) = broken_off {
            let text = format!(
                "{text}; the backup was replayed to its end, and then {why}. No recovery gets over this place, and the tables were not \
                 checked: make a full backup, and drill that"
            );
            return Proof::of_place(LATER, false, text);
        }
        if let Some(stopped) = self.stopped_early(context, data) {
            sound = false;
            text += &format!("; the server stopped replaying at {stopped}, before that");
        }
        Proof::of_place(LATER, sound, text)
    }

    /// Where the server ended its recovery, if that is before the last segment that it had.
    fn stopped_early(&self, context: &Context, data: &Path) -> Option<Lsn> {
        let next = Timeline::new(self.timeline.number() + 1)?;
        let path = PathBuf::from("pg_wal").join(WalName::History(next).to_string());
        let file = context
            .storage
            .dir(data)
            .and_then(|dir| dir.open(&path, OpenHow::Read));
        let mut text = vec![0; HISTORY_MAX];
        let len = file
            .and_then(|file| file.read_full_at(&mut text, 0, Via::Cache))
            .ok()?;
        let history = History::parse(next, &text[..len]).ok()?;
        let end = history.forks().last()?.end;
        (end.0 + self.segment_bytes <= self.end.0).then_some(end)
    }
}

/// The proof about WAL after the backup: the only one that is not about the backup.
pub const LATER: &str = "later WAL";
