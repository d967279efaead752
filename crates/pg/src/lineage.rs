//! Whether two things belong to one branch of one cluster's life: two backups, a server and a backup, a server and a
//! WAL archive.
//!
//! A number, a name and a time never answer this. Two restores of one backup both open on timeline 2. A copy of a data
//! directory, and a cluster that a disk snapshot sets back, stay on their timeline. All of them keep the system
//! identifier, and their LSNs go on from the same value. Only content tells them apart: the text of the timeline history
//! with the remark of the restore ([`crate::wal::restored_from`]), and the WAL itself ([`Witness`]).
//!
//! A [`Lineage`] is what one server was when something was taken from it. Each comparison has one of three answers
//! ([`Relation`]): *proved*, with the evidence; *refuted*, with the contradiction; *unknown*, with what is missing.
//! A caller refuses what is unknown, or says that it is unproved. It never takes unknown for proved.
//!
//! Invariants
//! - [`Relation::Proved`] rests on WAL bytes that were compared, at some moment, byte for byte by their digest.
//! - [`Relation::Refuted`] rests on a contradiction that no delay and no clock explains.
//! - What [`Lineage::encode`] writes has at most [`LINEAGE_MAX`] bytes, whatever was gathered.

use std::fmt;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::wal::{
    History, NotHistory, NotRecords, Records, SegmentHeader, fork_of, is_page_at, restored,
};
use crate::{Lsn, SegmentSize, Timeline};

/// Longest form of a stored [`Lineage`], bytes.
pub const LINEAGE_MAX: usize = 4096;
/// Ancestors of a timeline that are kept, the newest.
const FORKS_MAX: usize = 64;
/// Earlier backups whose relation is kept, the newest.
pub const KNOWN_MAX: usize = 64;
/// The most WAL before a checkpoint record that a witness covers, bytes: some commits, whose times no other branch has.
const WITNESS_MAX: u64 = 64 << 10;

const HISTORY_KNOWN: u32 = 1;
const HISTORY_CUT: u32 = 1 << 1;
const HOME_KNOWN: u32 = 1 << 2;
const IN_RECOVERY: u32 = 1 << 3;
const RUN_KNOWN: u32 = 1 << 4;
const BEFORE_KNOWN: u32 = 1 << 5;
const FLAGS_ALL: u32 =
    HISTORY_KNOWN | HISTORY_CUT | HOME_KNOWN | IN_RECOVERY | RUN_KNOWN | BEFORE_KNOWN;
/// Longer segments before a witness's own are not read.
const BEFORE_MAX: u64 = 64 << 20;
/// Of a segment, read at a time.
const PART: usize = 1 << 20;

/// The first half of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Of the parts in their order; where one ends and the next begins counts.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let mut sum = Sha256::new();
        for part in parts {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        let full = sum.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        Digest(half)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An ancestor of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    pub timeline: Timeline,
    /// The first byte that is not of this timeline any more.
    pub end: Lsn,
    /// Of the history that leads to it: two timelines of one number have different ones.
    pub way: Digest,
}

/// How a cluster came to its timeline, told by content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Oldest first.
    ancestors: Vec<Ancestor>,
    /// Of the history that leads to the timeline itself.
    way: Digest,
    /// Older ancestors are not kept.
    cut: bool,
}

impl Line {
    /// Of timeline 1, which has no ancestors.
    pub fn first() -> Line {
        Line {
            ancestors: Vec::new(),
            way: Digest::of([]),
            cut: false,
        }
    }

    /// From the text of the history file of `timeline`.
    pub fn parse(timeline: Timeline, text: &[u8]) -> Result<Line, NotHistory> {
        History::parse(timeline, text)?;
        let mut lines: Vec<&[u8]> = Vec::new();
        let mut ancestors = Vec::new();
        for line in text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
            if line.is_empty() {
                continue;
            }
            if line[0] != b'#'
                && let Some(fork) = fork_of(line)
            {
                ancestors.push(Ancestor {
                    timeline: fork.timeline,
                    end: fork.end,
                    way: way(fork.timeline, &lines),
                });
            }
            lines.push(line);
        }
        let cut = ancestors.len() > FORKS_MAX;
        ancestors.drain(..ancestors.len().saturating_sub(FORKS_MAX));
        Ok(Line {
            ancestors,
            way: way(timeline, &lines),
            cut,
        })
    }

    /// Oldest first.
    pub fn ancestors(&self) -> &[Ancestor] {
        &self.ancestors
    }
}

/// Remarks of restores that go on from the timeline are about those that come after it.
fn way(timeline: Timeline, lines: &[&[u8]]) -> Digest {
    let own = lines.iter().copied();
    Digest::of(own.filter(|line| restored(line) != Some(timeline)))
}

/// A digest of some WAL, by which a later reader of the same place tells whether it reads the same branch.
///
/// It ends with a checkpoint record and begins at a page up to 64 KiB before, in the same segment. A server begins a segment
/// for a backup: then there is little but the checkpoint's time in seconds. So the whole segment before counts, too, where
/// the reader has it: a branch that left earlier has the same bytes there only if all its transactions committed in the same
/// microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Its WAL segment is named after this timeline.
    pub timeline: Timeline,
    /// The start of a WAL page.
    pub start: Lsn,
    /// At most 64 KiB and one record.
    pub len: u32,
    /// Bytes of a WAL page.
    pub page_bytes: u32,
    pub digest: Digest,
    /// Of the segment before that of `start`; `None` where it was not there, or is longer than 64 MiB.
    pub before: Option<Before>,
}

/// A whole segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Bytes of a segment: at most 64 MiB.
    pub len: u32,
    pub digest: Digest,
}

/// What a reader found at a witness's place.
#[derive(Debug)]
pub enum Found {
    Same,
    Other,
    /// The WAL is not there, or not any more.
    Gone,
    /// It cannot be read now.
    Unreadable(io::Error),
}

impl Witness {
    /// Takes one before the end of the checkpoint record at `checkpoint`. `read` reads the timeline's WAL.
    ///
    /// Errors: [`NotRecords`] where there is no whole record.
    pub fn take(
        mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
        timeline: Timeline,
        checkpoint: Lsn,
        size: SegmentSize,
    ) -> Result<Witness, NotRecords> {
        let segment = Lsn(checkpoint.0 / size.bytes() * size.bytes());
        let (end, page_bytes) = {
            let mut records = Records::new(&mut read, checkpoint, segment)?;
            let record = records.next(Lsn(u64::MAX), |_, _| true)?;
            let found = record.is_some_and(|record| record.at == checkpoint);
            if !found {
                return Err(NotRecords::Broken {
                    at: checkpoint,
                    what: "checkpoint record",
                });
            }
            (records.place(), records.page_bytes())
        };
        let page = u64::from(page_bytes);
        let from = checkpoint.0.saturating_sub(WITNESS_MAX).max(segment.0);
        let start = Lsn(from.next_multiple_of(page).min(checkpoint.0 / page * page));
        let mut bytes = vec![0; (end.0 - start.0) as usize];
        read(start, &mut bytes).map_err(|source| NotRecords::Read { at: start, source })?;
        let len = size.bytes();
        let before = match segment.0.checked_sub(len) {
            Some(from) if len <= BEFORE_MAX => segment_digest(&mut read, Lsn(from), len),
            _ => None,
        };
        Ok(Witness {
            timeline,
            start,
            len: bytes.len() as u32,
            page_bytes,
            digest: Digest::of([bytes.as_slice()]),
            before: before.map(|digest| Before {
                len: len as u32,
                digest,
            }),
        })
    }

    /// Takes one of the end of a segment's log, and the whole segment before: of a log set. `segment` is its first byte.
    /// `None` where nothing of it is there.
    pub fn of_end(
        mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
        timeline: Timeline,
        segment: Lsn,
        size: SegmentSize,
    ) -> Option<Witness> {
        let mut bytes = vec![0; usize::try_from(size.bytes()).ok()?];
        read(segment, &mut bytes).ok()?;
        let page_bytes = SegmentHeader::parse(&bytes).ok()?.page_bytes;
        let page = page_bytes as usize;
        let is_written = |page: &[u8]| page.iter().any(|byte| *byte != 0);
        let pages = bytes.chunks(page).rposition(is_written)? + 1;
        let from = pages.saturating_sub(WITNESS_MAX as usize / page);
        let own = &bytes[from * page..pages * page];
        let len = size.bytes();
        let before = match segment.0.checked_sub(len) {
            Some(from) if len <= BEFORE_MAX => segment_digest(read, Lsn(from), len),
            _ => None,
        };
        Some(Witness {
            timeline,
            start: Lsn(segment.0 + (from * page) as u64),
            len: own.len() as u32,
            page_bytes,
            digest: Digest::of([own]),
            before: before.map(|digest| Before {
                len: len as u32,
                digest,
            }),
        })
    }

    /// Whether both are of the same place, where they can be compared.
    fn is_at(&self, other: &Witness) -> bool {
        let place = |w: &Witness| (w.timeline, w.start, w.len);
        place(self) == place(other)
    }

    /// Of two at the same place.
    fn differs(&self, other: &Witness) -> bool {
        let before = self.before.zip(other.before);
        self.digest != other.digest || before.is_some_and(|(one, other)| one != other)
    }

    /// Behind its last byte.
    pub fn end(&self) -> Lsn {
        Lsn(self.start.0.saturating_add(u64::from(self.len)))
    }

    /// Compares the WAL that `read` gives. A segment file that a server has kept for later use has another place's
    /// pages: that is [`Found::Gone`].
    pub fn check(&self, mut read: impl FnMut(Timeline, Lsn, &mut [u8]) -> io::Result<()>) -> Found {
        let mut bytes = vec![0; self.len as usize];
        match read(self.timeline, self.start, &mut bytes) {
            Ok(()) => {}
            Err(e) => {
                return match e.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Found::Gone,
                    _ => Found::Unreadable(e),
                };
            }
        }
        let pages = bytes.chunks(self.page_bytes.max(1) as usize).zip(0u64..);
        for (page, number) in pages {
            let at = Lsn(self.start.0 + number * u64::from(self.page_bytes));
            let Some((magic, _)) = page.split_first_chunk::<2>() else {
                return Found::Gone;
            };
            let written = page.iter().any(|byte| *byte != 0);
            // The page's first 16 bytes say its place; a witness may end within a page, never within a header.
            if !written || !is_page_at(page, u16::from_le_bytes(*magic), at) {
                return Found::Gone;
            }
        }
        let is_before = |before: Before| {
            let len = u64::from(before.len);
            let from = (self.start.0 / len).checked_sub(1)? * len;
            let found = segment_digest(|at, buf| read(self.timeline, at, buf), Lsn(from), len)?;
            Some(found == before.digest)
        };
        let is_same = Digest::of([bytes.as_slice()]) == self.digest
            && self.before.and_then(is_before).unwrap_or(true);
        match is_same {
            true => Found::Same,
            false => Found::Other,
        }
    }
}

/// Of the segment at `start`; `None` where it is not there: a file that a server has kept for later use has another
/// place's pages.
fn segment_digest(
    mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
    start: Lsn,
    len: u64,
) -> Option<Digest> {
    let mut sum = Sha256::new();
    sum.update(len.to_le_bytes());
    let mut part = vec![0; PART.min(len as usize)];
    for offset in (0..len).step_by(part.len()) {
        let at = Lsn(start.0 + offset);
        read(at, &mut part).ok()?;
        if offset == 0 {
            let (magic, _) = part.split_first_chunk::<2>()?;
            let is_here = is_page_at(&part, u16::from_le_bytes(*magic), at);
            is_here.then_some(())?;
        }
        sum.update(&part);
    }
    let full = sum.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    Some(Digest(half))
}

/// What a backup knew of an earlier one at its target, because it had the server at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The WAL of the earlier one was found in the server's.
    Follows,
    /// The server is of another branch.
    Apart,
    /// The earlier one was there, and is therefore older whatever the clocks say. Its relation was not known.
    Seen,
}

/// An earlier backup, as a later one knew it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The set's UUID.
    pub set: [u8; 16],
    pub verdict: Verdict,
}

/// What a server was when something was taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    pub system: u64,
    pub timeline: Timeline,
    /// `None`: its history file could not be read.
    pub line: Option<Line>,
    /// How far its WAL had come.
    pub reached: Lsn,
    /// Of the checkpoint record that the taking began with.
    pub checkpoint: Lsn,
    /// As the checkpoint knew it. It never goes back on one branch.
    pub next_xid: u64,
    /// It replayed the WAL of another server.
    pub in_recovery: bool,
    /// Of where the server's files lie. It proves nothing: a copy of a machine has the same. Another one is a doubt.
    pub home: Option<Digest>,
    /// Of the server's process: while it runs, no file of its can be set back unnoticed. Only a machine that is set back
    /// together with its memory has the same one on two branches, so it proves nothing either.
    pub run: Option<Digest>,
    pub witness: Option<Witness>,
    /// Newest last.
    pub known: Vec<Known>,
}

/// Whether one thing comes from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relation {
    Proved(Proof),
    Refuted(Contradiction),
    Unknown(Doubt),
}

impl Relation {
    pub fn is_proved(&self) -> bool {
        matches!(self, Relation::Proved(_))
    }

    pub fn is_refuted(&self) -> bool {
        matches!(self, Relation::Refuted(_))
    }
}

/// Why two things are of one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Both have the same WAL before this LSN.
    Log { timeline: Timeline, at: Lsn },
    /// The later backup found the WAL of the earlier one in its server's.
    Recorded,
}

/// Why two things cannot be of one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    System {
        one: u64,
        other: u64,
    },
    /// The earlier one is on a timeline that the later one has not come to.
    NotReached {
        timeline: Timeline,
        own: Timeline,
    },
    /// The later one's history does not lead through the earlier one's timeline.
    NotOnWay {
        timeline: Timeline,
        own: Timeline,
    },
    /// The later one left the timeline before the earlier one's end.
    Left {
        timeline: Timeline,
        at: Lsn,
        end: Lsn,
    },
    /// Two timelines of one number: their histories have different content.
    Ways {
        timeline: Timeline,
    },
    /// The WAL at the same place has different content.
    Log {
        timeline: Timeline,
        at: Lsn,
    },
    /// The server's WAL ends before that of a backup that was complete before.
    Behind {
        reached: Lsn,
        end: Lsn,
    },
    /// A later checkpoint has an earlier transaction number.
    Xids {
        earlier: u64,
        later: u64,
    },
    /// The later backup found that its server is of another branch.
    Recorded,
}

/// Why it is not known whether two things are of one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// One was written by a version that stored no identity, or over a connection that tells none.
    NotRecorded,
    /// The WAL that would tell is not there any more.
    LogGone { timeline: Timeline, at: Lsn },
    /// A history file is missing.
    NoHistory { timeline: Timeline },
    /// A standby has not replayed as far yet.
    NotReplayed { reached: Lsn, end: Lsn },
    /// Nobody had both at hand.
    NotCompared,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proof::Log { timeline, at } => {
                write!(
                    f,
                    "both have the same WAL before {at} on timeline {timeline}"
                )
            }
            Proof::Recorded => {
                f.write_str("the later backup found the WAL of the earlier one in its server's")
            }
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contradiction::System { one, other } => {
                write!(f, "their system identifiers are {one} and {other}")
            }
            Contradiction::NotReached { timeline, own } => write!(
                f,
                "it is on timeline {timeline}, and the server is still on timeline {own}"
            ),
            Contradiction::NotOnWay { timeline, own } => write!(
                f,
                "the history of timeline {own} does not lead through timeline {timeline}"
            ),
            Contradiction::Left { timeline, at, end } => write!(
                f,
                "the server left timeline {timeline} at {at}, before the backup's end at {end}"
            ),
            Contradiction::Ways { timeline } => write!(
                f,
                "there are two timelines {timeline}: their histories have different content"
            ),
            Contradiction::Log { timeline, at } => write!(
                f,
                "the WAL before {at} on timeline {timeline} has different content"
            ),
            Contradiction::Behind { reached, end } => write!(
                f,
                "the server's WAL ends at {reached}, before the end {end} of a backup that was complete: the server \
                 was set back, or is a copy"
            ),
            Contradiction::Xids { earlier, later } => write!(
                f,
                "the later checkpoint has next transaction {later}, the earlier one {earlier}"
            ),
            Contradiction::Recorded => f.write_str(
                "the later backup found that its server does not come from the earlier one",
            ),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NotRecorded => f.write_str("the branch is not recorded in the earlier backup"),
            Doubt::LogGone { timeline, at } => write!(
                f,
                "the server no longer has the WAL before {at} on timeline {timeline}, which would tell"
            ),
            Doubt::NoHistory { timeline } => {
                write!(f, "the history file of timeline {timeline} is missing")
            }
            Doubt::NotReplayed { reached, end } => write!(
                f,
                "the standby has replayed to {reached}, and the backup ends at {end}"
            ),
            Doubt::NotCompared => {
                f.write_str("no backup was made while the WAL of both was at hand")
            }
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Relation::Proved(proof) => write!(f, "proved: {proof}"),
            Relation::Refuted(contradiction) => write!(f, "refuted: {contradiction}"),
            Relation::Unknown(doubt) => write!(f, "unknown: {doubt}"),
        }
    }
}

/// A backup that a lineage is compared with.
#[derive(Debug, Clone)]
pub struct Earlier {
    /// The set's UUID.
    pub set: [u8; 16],
    pub lineage: Lineage,
    /// Where the backup is consistent.
    pub end: (Timeline, Lsn),
}

impl Lineage {
    /// Of something that stores no identity beyond these numbers.
    pub fn unrecorded(system: u64, timeline: Timeline, reached: Lsn) -> Lineage {
        Lineage {
            system,
            timeline,
            line: None,
            reached,
            checkpoint: Lsn(0),
            next_xid: 0,
            in_recovery: false,
            home: None,
            run: None,
            witness: None,
            known: Vec::new(),
        }
    }

    /// Whether what this lineage was taken from comes from an earlier backup. Nothing is read: only what both recorded is
    /// compared. The caller names the one with the higher LSN second.
    pub fn comes_from(&self, earlier: &Earlier) -> Relation {
        let recorded = self.known.iter().find(|known| known.set == earlier.set);
        match recorded.map(|known| known.verdict) {
            Some(Verdict::Follows) => return Relation::Proved(Proof::Recorded),
            Some(Verdict::Apart) => return Relation::Refuted(Contradiction::Recorded),
            Some(Verdict::Seen) | None => {}
        }
        if let Some(contradiction) = self.contradicts(earlier) {
            return Relation::Refuted(contradiction);
        }
        let (one, other) = (self.witness, earlier.lineage.witness);
        if let (Some(one), Some(other)) = (one, other)
            && one.is_at(&other)
        {
            // Different content is a contradiction, and was found above.
            return Relation::Proved(Proof::Log {
                timeline: one.timeline,
                at: one.end(),
            });
        }
        Relation::Unknown(match (&earlier.lineage.witness, &self.line) {
            (None, _) => Doubt::NotRecorded,
            (_, None) if self.timeline.number() > 1 => Doubt::NoHistory {
                timeline: self.timeline,
            },
            _ => Doubt::NotCompared,
        })
    }

    /// As [`Lineage::comes_from`], of a running server whose WAL `read` gives. `earlier` was complete before.
    ///
    /// WAL that is there is compared before numbers are: it alone can prove.
    pub fn follows(
        &self,
        earlier: &Earlier,
        read: impl FnMut(Timeline, Lsn, &mut [u8]) -> io::Result<()>,
    ) -> Relation {
        if let Some(contradiction) = self.contradicts(earlier) {
            return Relation::Refuted(contradiction);
        }
        let end = earlier.end.1;
        if self.reached < end {
            return match self.in_recovery {
                true => Relation::Unknown(Doubt::NotReplayed {
                    reached: self.reached,
                    end,
                }),
                false => Relation::Refuted(Contradiction::Behind {
                    reached: self.reached,
                    end,
                }),
            };
        }
        let Some(witness) = earlier.lineage.witness else {
            return Relation::Unknown(Doubt::NotRecorded);
        };
        let (timeline, at) = (witness.timeline, witness.end());
        match witness.check(read) {
            Found::Same => Relation::Proved(Proof::Log { timeline, at }),
            Found::Other => Relation::Refuted(Contradiction::Log { timeline, at }),
            Found::Gone | Found::Unreadable(_) => {
                Relation::Unknown(Doubt::LogGone { timeline, at })
            }
        }
    }

    /// What of the recorded facts excludes that this comes from the earlier one.
    fn contradicts(&self, earlier: &Earlier) -> Option<Contradiction> {
        let other = &earlier.lineage;
        if self.system != other.system {
            return Some(Contradiction::System {
                one: other.system,
                other: self.system,
            });
        }
        let (timeline, end) = earlier.end;
        if timeline > self.timeline {
            let own = self.timeline;
            return Some(Contradiction::NotReached { timeline, own });
        }
        if let Some(contradiction) = self.left(other, timeline, end) {
            return Some(contradiction);
        }
        if let (Some(one), Some(witness)) = (self.witness, other.witness)
            && one.is_at(&witness)
            && one.differs(&witness)
        {
            return Some(Contradiction::Log {
                timeline: one.timeline,
                at: one.end(),
            });
        }
        let is_later = other.checkpoint != Lsn(0) && self.checkpoint >= other.checkpoint;
        (is_later && self.next_xid < other.next_xid).then_some(Contradiction::Xids {
            earlier: other.next_xid,
            later: self.next_xid,
        })
    }

    /// What of the histories excludes it.
    fn left(&self, other: &Lineage, timeline: Timeline, end: Lsn) -> Option<Contradiction> {
        let line = self.line.as_ref()?;
        let theirs = other.line.as_ref().filter(|_| other.timeline == timeline);
        let way = if timeline == self.timeline {
            line.way
        } else {
            match line.ancestors.iter().find(|a| a.timeline == timeline) {
                Some(ancestor) if ancestor.end < end => {
                    return Some(Contradiction::Left {
                        timeline,
                        at: ancestor.end,
                        end,
                    });
                }
                Some(ancestor) => ancestor.way,
                None => {
                    let oldest = line.ancestors.first().map(|a| a.timeline);
                    let forgotten = line.cut && oldest.is_some_and(|oldest| timeline < oldest);
                    let own = self.timeline;
                    return (!forgotten).then_some(Contradiction::NotOnWay { timeline, own });
                }
            }
        };
        theirs
            .is_some_and(|theirs| theirs.way != way)
            .then_some(Contradiction::Ways { timeline })
    }

    /// Takes note of an earlier backup, the newest last.
    pub fn note(&mut self, set: [u8; 16], relation: &Relation) {
        let verdict = match relation {
            Relation::Proved(_) => Verdict::Follows,
            Relation::Refuted(_) => Verdict::Apart,
            Relation::Unknown(_) => Verdict::Seen,
        };
        self.known.retain(|known| known.set != set);
        self.known.push(Known { set, verdict });
        let surplus = self.known.len().saturating_sub(KNOWN_MAX);
        self.known.drain(..surplus);
    }

    /// Whether a backup had this one before it at its target.
    pub fn has_seen(&self, set: [u8; 16]) -> bool {
        self.known.iter().any(|known| known.set == set)
    }

    /// As it is stored: see docs/format.md, "Lineage".
    pub fn encode(&self) -> Vec<u8> {
        let line = self.line.as_ref();
        let flag = |is: bool, bit: u32| if is { bit } else { 0 };
        let flags = flag(line.is_some(), HISTORY_KNOWN)
            | flag(line.is_some_and(|line| line.cut), HISTORY_CUT)
            | flag(self.home.is_some(), HOME_KNOWN)
            | flag(self.in_recovery, IN_RECOVERY)
            | flag(self.run.is_some(), RUN_KNOWN)
            | flag(
                self.witness.is_some_and(|w| w.before.is_some()),
                BEFORE_KNOWN,
            );
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.system.to_le_bytes());
        out.extend_from_slice(&self.timeline.number().to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.reached.0.to_le_bytes());
        out.extend_from_slice(&self.checkpoint.0.to_le_bytes());
        out.extend_from_slice(&self.next_xid.to_le_bytes());
        out.extend_from_slice(&self.home.map_or([0; 16], |home| home.0));
        out.extend_from_slice(&self.run.map_or([0; 16], |run| run.0));
        let witness = self.witness;
        let timeline = witness.map_or(0, |w| w.timeline.number());
        out.extend_from_slice(&timeline.to_le_bytes());
        out.extend_from_slice(&witness.map_or(0, |w| w.len).to_le_bytes());
        out.extend_from_slice(&witness.map_or(0, |w| w.start.0).to_le_bytes());
        out.extend_from_slice(&witness.map_or(0, |w| w.page_bytes).to_le_bytes());
        out.extend_from_slice(&witness.map_or([0; 16], |w| w.digest.0));
        out.extend_from_slice(&line.map_or([0; 16], |line| line.way.0));
        let ancestors = line.map_or(&[][..], |line| &line.ancestors);
        let known = &self.known[self.known.len().saturating_sub(KNOWN_MAX)..];
        out.extend_from_slice(&(ancestors.len() as u16).to_le_bytes());
        out.extend_from_slice(&(known.len() as u16).to_le_bytes());
        for ancestor in ancestors {
            out.extend_from_slice(&ancestor.timeline.number().to_le_bytes());
            out.extend_from_slice(&ancestor.end.0.to_le_bytes());
            out.extend_from_slice(&ancestor.way.0);
        }
        for known in known {
            out.extend_from_slice(&known.set);
            out.push(match known.verdict {
                Verdict::Follows => 1,
                Verdict::Apart => 2,
                Verdict::Seen => 3,
            });
        }
        if let Some(before) = witness.and_then(|w| w.before) {
            out.extend_from_slice(&before.len.to_le_bytes());
            out.extend_from_slice(&before.digest.0);
        }
        out
    }

    /// Reads what [`Lineage::encode`] wrote. `None` for other bytes: what they say is not known.
    pub fn decode(bytes: &[u8]) -> Option<Lineage> {
        let mut rest = bytes;
        let system = u64::from_le_bytes(take(&mut rest)?);
        let timeline = Timeline::new(u32::from_le_bytes(take(&mut rest)?))?;
        let flags = u32::from_le_bytes(take(&mut rest)?);
        if flags & !FLAGS_ALL != 0 || bytes.len() > LINEAGE_MAX {
            return None;
        }
        let reached = Lsn(u64::from_le_bytes(take(&mut rest)?));
        let checkpoint = Lsn(u64::from_le_bytes(take(&mut rest)?));
        let next_xid = u64::from_le_bytes(take(&mut rest)?);
        let home = Digest(take(&mut rest)?);
        let run = Digest(take(&mut rest)?);
        let witness_timeline = u32::from_le_bytes(take(&mut rest)?);
        let len = u32::from_le_bytes(take(&mut rest)?);
        let start = Lsn(u64::from_le_bytes(take(&mut rest)?));
        let page_bytes = u32::from_le_bytes(take(&mut rest)?);
        let digest = Digest(take(&mut rest)?);
        let way = Digest(take(&mut rest)?);
        let ancestors_len = u16::from_le_bytes(take(&mut rest)?);
        let known_len = u16::from_le_bytes(take(&mut rest)?);
        let witness = match len {
            0 => None,
            // What a hostile set says must not cost memory.
            1..=WITNESS_LEN_MAX if page_bytes.is_power_of_two() && page_bytes >= 1 << 10 => {
                Some(Witness {
                    timeline: Timeline::new(witness_timeline)?,
                    start,
                    len,
                    page_bytes,
                    digest,
                    before: None,
                })
            }
            _ => return None,
        };
        let mut ancestors = Vec::new();
        for _ in 0..ancestors_len {
            ancestors.push(Ancestor {
                timeline: Timeline::new(u32::from_le_bytes(take(&mut rest)?))?,
                end: Lsn(u64::from_le_bytes(take(&mut rest)?)),
                way: Digest(take(&mut rest)?),
            });
        }
        let mut known = Vec::new();
        for _ in 0..known_len {
            let set = take(&mut rest)?;
            let verdict = match take::<1>(&mut rest)? {
                [1] => Verdict::Follows,
                [2] => Verdict::Apart,
                [3] => Verdict::Seen,
                _ => return None,
            };
            known.push(Known { set, verdict });
        }
        let before = match flags & BEFORE_KNOWN {
            0 => None,
            _ => Some(Before {
                len: u32::from_le_bytes(take(&mut rest)?),
                digest: Digest(take(&mut rest)?),
            }),
        };
        let is_segment = |len: u64| len <= BEFORE_MAX && SegmentSize::new(len).is_some();
        if before.is_some_and(|before| len == 0 || !is_segment(before.len.into())) {
            return None;
        }
        let witness = witness.map(|witness| Witness { before, ..witness });
        let line = (flags & HISTORY_KNOWN != 0).then_some(Line {
            ancestors,
            way,
            cut: flags & HISTORY_CUT != 0,
        });
        rest.is_empty().then_some(Lineage {
            system,
            timeline,
            line,
            reached,
            checkpoint,
            next_xid,
            in_recovery: flags & IN_RECOVERY != 0,
            home: (flags & HOME_KNOWN != 0).then_some(home),
            run: (flags & RUN_KNOWN != 0).then_some(run),
            witness,
            known,
        })
    }
}

/// Longest witness that is read: its span, and a checkpoint record with page headers.
const WITNESS_LEN_MAX: u32 = (WITNESS_MAX + (64 << 10) + 4096) as u32;

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wal::restored_from;

    fn timeline(n: u32) -> Timeline {
        Timeline::new(n).unwrap()
    }

    fn line(n: u32, text: &str) -> Line {
        Line::parse(timeline(n), text.as_bytes()).unwrap()
    }

    fn digest(n: u8) -> Digest {
        Digest::of([&[n][..]])
    }

    fn witness(at: u64, n: u8) -> Witness {
        Witness {
            timeline: timeline(1),
            start: Lsn(at),
            len: 100,
            page_bytes: 8192,
            digest: digest(n),
            before: None,
        }
    }

    fn lineage(n: u32, history: Option<&str>, at: u64) -> Lineage {
        Lineage {
            line: match (n, history) {
                (1, _) => Some(Line::first()),
                (_, Some(text)) => Some(line(n, text)),
                (_, None) => None,
            },
            checkpoint: Lsn(at),
            next_xid: at,
            ..Lineage::unrecorded(7, timeline(n), Lsn(at + 50))
        }
    }

    fn earlier(lineage: Lineage) -> Earlier {
        Earlier {
            set: [9; 16],
            end: (lineage.timeline, lineage.reached),
            lineage,
        }
    }

    fn gone(_: Timeline, _: Lsn, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    /// Goal: two restores of one backup open on a timeline of the same number, and are told apart.
    #[test]
    fn two_timelines_of_one_number_are_two() {
        let text = "1\t0/5000110\tno recovery target specified\n";
        let restored = |n| format!("{}\n{text}", restored_from("00000001.history", n));
        let a = lineage(2, Some(&restored(1)), 0x600_0000);
        let b = lineage(2, Some(&restored(2)), 0x700_0000);
        let ways = Relation::Refuted(Contradiction::Ways {
            timeline: timeline(2),
        });
        assert_eq!(b.comes_from(&earlier(a.clone())), ways);
        // The same on the timelines that come after.
        let third = format!("{}2\t0/7100000\tx\n", restored(2));
        let c = lineage(3, Some(&third), 0x720_0000);
        assert_eq!(c.comes_from(&earlier(a)), ways);
        assert!(!c.comes_from(&earlier(b)).is_refuted());
    }

    /// Goal: a restore's remark about the timeline itself does not make it another one.
    #[test]
    fn a_remark_about_what_comes_after_changes_nothing() {
        let text = "1\t0/5000110\tx\n".to_owned();
        let restored = format!("{text}\n{}\n", restored_from("00000002.history", 5));
        let (a, b) = (line(2, &text), line(2, &restored));
        assert_eq!(a, b);
        let third = line(3, &format!("{restored}2\t0/7000000\ty\n"));
        assert_eq!(third.ancestors()[1].way, a.way);
        assert_ne!(line(3, &format!("{text}2\t0/7000000\ty\n")).way, third.way);
    }

    #[test]
    fn a_timeline_that_was_left_before_a_backups_end_is_another_branch() {
        let a = earlier(lineage(1, None, 0x600_0000));
        let left = lineage(2, Some("1\t0/6000000\tx\n"), 0x700_0000);
        let kept = lineage(2, Some("1\t0/6000032\tx\n"), 0x700_0000);
        assert!(matches!(
            left.comes_from(&a),
            Relation::Refuted(Contradiction::Left { .. })
        ));
        assert_eq!(kept.comes_from(&a), Relation::Unknown(Doubt::NotRecorded));
        let beside = lineage(3, Some("2\t0/6000032\tx\n"), 0x700_0000);
        assert!(matches!(
            beside.comes_from(&a),
            Relation::Refuted(Contradiction::NotOnWay { .. })
        ));
        assert!(matches!(
            lineage(1, None, 0x700_0000).comes_from(&earlier(kept)),
            Relation::Refuted(Contradiction::NotReached { .. })
        ));
    }

    /// Goal: of a cluster that stayed on its timeline only the WAL tells; without it nothing is proved.
    #[test]
    fn only_the_log_proves() {
        let mut a = lineage(1, None, 8192);
        let bytes = {
            let mut page = vec![1; 100];
            page[8..16].copy_from_slice(&8192u64.to_le_bytes());
            page
        };
        a.witness = Some(Witness {
            digest: Digest::of([bytes.as_slice()]),
            ..witness(8192, 0)
        });
        let a = earlier(a);
        let server = lineage(1, None, 20_000);
        assert!(matches!(
            server.follows(&a, gone),
            Relation::Unknown(Doubt::LogGone { .. })
        ));
        let read = |change: u8, place: u64| {
            let mut bytes = bytes.clone();
            bytes[99] ^= change;
            bytes[8..16].copy_from_slice(&place.to_le_bytes());
            move |_: Timeline, at: Lsn, buf: &mut [u8]| {
                assert_eq!(at, Lsn(8192));
                buf.copy_from_slice(&bytes);
                Ok(())
            }
        };
        assert!(server.follows(&a, read(0, 8192)).is_proved());
        assert!(matches!(
            server.follows(&a, read(1, 8192)),
            Relation::Refuted(Contradiction::Log { .. })
        ));
        // A segment file that was kept for later use.
        assert!(matches!(
            server.follows(&a, read(1, 4096)),
            Relation::Unknown(Doubt::LogGone { .. })
        ));
        // The other system, whatever its WAL has.
        let mut foreign = server.clone();
        foreign.system = 8;
        assert!(foreign.follows(&a, read(0, 8192)).is_refuted());
    }

    /// Goal: two clones whose backups begin with the same checkpoint in the same second are told apart by the segment before.
    #[test]
    fn the_segment_before_counts_too_where_it_is_there() {
        const SEGMENT: u64 = 1 << 20;
        let log = |at: u64, seed: u8| {
            let mut bytes = vec![seed; SEGMENT as usize];
            for (page, place) in bytes.chunks_mut(8192).zip((at..).step_by(8192)) {
                page[8..16].copy_from_slice(&place.to_le_bytes());
            }
            bytes
        };
        let (before, own) = (log(SEGMENT, 1), log(2 * SEGMENT, 2));
        let reader = |before: Option<Vec<u8>>| {
            let own = own.clone();
            move |_: Timeline, at: Lsn, buf: &mut [u8]| {
                let bytes = match at.0 < 2 * SEGMENT {
                    true => before.as_ref().ok_or(io::ErrorKind::NotFound)?,
                    false => &own,
                };
                let from = (at.0 % SEGMENT) as usize;
                buf.copy_from_slice(&bytes[from..from + buf.len()]);
                Ok(())
            }
        };
        let place = Witness {
            len: 8192,
            digest: Digest::of([&own[..8192]]),
            before: Some(Before {
                len: SEGMENT as u32,
                digest: Digest::of([before.as_slice()]),
            }),
            ..witness(2 * SEGMENT, 0)
        };
        let mut other = before.clone();
        other[9000] ^= 1;
        assert!(matches!(place.check(reader(Some(before))), Found::Same));
        assert!(matches!(place.check(reader(Some(other))), Found::Other));
        // Gone, or kept for later use under its name: nothing is refuted.
        assert!(matches!(place.check(reader(None)), Found::Same));
        assert!(matches!(
            place.check(reader(Some(log(9 * SEGMENT, 1)))),
            Found::Same
        ));
        // Of two backups at one place, too, where both know it.
        let at_place = |before: Option<u8>| Lineage {
            witness: Some(Witness {
                before: before.map(|n| Before {
                    len: SEGMENT as u32,
                    digest: digest(n),
                }),
                ..place
            }),
            ..lineage(1, None, 3 * SEGMENT)
        };
        let related = |one, other| at_place(one).comes_from(&earlier(at_place(other)));
        assert!(related(Some(1), Some(1)).is_proved());
        assert!(related(Some(1), Some(2)).is_refuted());
        assert!(related(None, Some(2)).is_proved() && related(Some(1), None).is_proved());
    }

    #[test]
    fn a_server_that_is_behind_a_backup_was_set_back() {
        let a = earlier(lineage(1, None, 8192));
        let mut server = lineage(1, None, 8000);
        assert!(matches!(
            server.follows(&a, gone),
            Relation::Refuted(Contradiction::Behind { .. })
        ));
        server.in_recovery = true;
        assert!(matches!(
            server.follows(&a, gone),
            Relation::Unknown(Doubt::NotReplayed { .. })
        ));
        // A checkpoint behind another, with fewer transactions.
        let mut fewer = lineage(1, None, 9000);
        fewer.next_xid = 8191;
        assert!(matches!(
            fewer.comes_from(&a),
            Relation::Refuted(Contradiction::Xids { .. })
        ));
    }

    #[test]
    fn what_a_backup_found_out_is_kept() {
        let a = earlier(lineage(1, None, 8192));
        for (relation, expected) in [
            (
                Relation::Proved(Proof::Recorded),
                Relation::Proved(Proof::Recorded),
            ),
            (
                Relation::Refuted(Contradiction::Recorded),
                Relation::Refuted(Contradiction::Recorded),
            ),
            (
                Relation::Unknown(Doubt::NotCompared),
                Relation::Unknown(Doubt::NotRecorded),
            ),
        ] {
            let mut b = lineage(1, None, 9000);
            b.note(a.set, &relation);
            assert!(b.has_seen(a.set));
            let b = Lineage::decode(&b.encode()).unwrap();
            assert_eq!(b.comes_from(&a), expected);
        }
    }

    #[test]
    fn what_is_stored_is_bounded() {
        let mut text = String::new();
        for n in 1..3000 {
            text += &format!("{n}\t0/{:X}\tx\n", n * 64);
        }
        let mut big = lineage(3000, Some(&text), 1 << 40);
        for n in 0..1000u32 {
            let mut set = [0; 16];
            set[..4].copy_from_slice(&n.to_le_bytes());
            big.note(set, &Relation::Proved(Proof::Recorded));
        }
        let bytes = big.encode();
        assert!(bytes.len() <= LINEAGE_MAX, "{}", bytes.len());
        assert_eq!(Lineage::decode(&bytes), Some(big.clone()));
        // What was forgotten is not refuted.
        let old = earlier(lineage(1, None, 8));
        assert!(!big.comes_from(&old).is_refuted());
    }

    fn any_lineage() -> impl Strategy<Value = Lineage> {
        let ancestors = prop::collection::vec((1u32..9, 1u64..1 << 40), 0..FORKS_MAX);
        let known = prop::collection::vec((any::<[u8; 16]>(), 0..3u8), 0..KNOWN_MAX);
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let rest = (any::<[bool; 4]>(), any::<[u8; 16]>(), 1..WITNESS_LEN_MAX);
        (ancestors, known, numbers, rest).prop_map(
            |(steps, known, (system, a, b, c), ([recovery, home, seen, cut], bytes, len))| {
                let (mut number, mut end) = (1, 0);
                let mut ancestors = Vec::new();
                for (up, on) in steps {
                    ancestors.push(Ancestor {
                        timeline: timeline(number),
                        end: Lsn(end),
                        way: Digest(bytes),
                    });
                    (number, end) = (number + up, end + on);
                }
                Lineage {
                    system,
                    timeline: timeline(number),
                    line: Some(Line {
                        ancestors,
                        way: Digest(bytes),
                        cut,
                    }),
                    reached: Lsn(a),
                    checkpoint: Lsn(b),
                    next_xid: c,
                    in_recovery: recovery,
                    home: home.then_some(Digest(bytes)),
                    run: cut.then_some(Digest(bytes)),
                    witness: seen.then_some(Witness {
                        len,
                        digest: Digest(bytes),
                        before: recovery.then_some(Before {
                            len: 16 << 20,
                            digest: Digest(bytes),
                        }),
                        ..witness(a, 0)
                    }),
                    known: known
                        .into_iter()
                        .map(|(set, n)| Known {
                            set,
                            verdict: [Verdict::Follows, Verdict::Apart, Verdict::Seen]
                                [usize::from(n)],
                        })
                        .collect(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(lineage in any_lineage()) {
            let bytes = lineage.encode();
            prop_assert!(bytes.len() <= LINEAGE_MAX);
            prop_assert_eq!(Lineage::decode(&bytes), Some(lineage));
            prop_assert_eq!(Lineage::decode(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn no_bytes_panic_and_none_take_memory(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(lineage) = Lineage::decode(&bytes) {
                prop_assert!(lineage.witness.is_none_or(|w| w.len <= WITNESS_LEN_MAX));
            }
        }

        /// Goal: no recorded facts alone prove anything of another set; that takes WAL that was compared.
        #[test]
        fn nothing_is_proved_without_the_log(one in any_lineage(), other in any_lineage()) {
            let other = earlier(Lineage { witness: None, ..other });
            let one = Lineage { known: Vec::new(), ..one };
            prop_assert!(!one.comes_from(&other).is_proved());
            prop_assert!(!one.follows(&other, gone).is_proved());
        }
    }
}
