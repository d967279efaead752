//! Whether two things belong to one branch of one cluster's life: two backups, a server and a backup, a server and a
//! WAL archive.
//!
//! A number, a name and a time never answer this. Two restores of one backup both open on timeline 2. A copy of a data
//! directory, and a cluster that a disk snapshot sets back, stay on their timeline. All of them keep the system
//! identifier, and their LSNs go on from the same value. Only content tells them apart: the text of the timeline history
//! with the remark of the restore ([`crate::wal::restored_from`]), and the WAL itself ([`Witness`]).
//!
//! A [`Lineage`] describes one server at the moment when a backup or WAL was taken from it. Each comparison has one of
//! three answers ([`Relation`]): *proved*, with the evidence; *refuted*, with the contradiction; *unknown*, with what
//! is missing. A caller refuses what is unknown, or reports it as unproved. It never takes unknown for proved.
//!
//! Invariants
//! - [`Relation::Proved`] rests on WAL bytes that were compared, at some time, by their digest, or on the remark that a
//!   restore of that very set left in the server's own history.
//! - [`Relation::Refuted`] rests on a contradiction that neither delay nor clocks can explain.
//! - [`Lineage::encode`] writes at most [`LINEAGE_MAX`] bytes, however much is known.
//!
//! Leaves to others: reading timeline histories (`wal/history.rs`), and what follows from an answer (the callers).

use std::fmt;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::wal::{
    History, NotHistory, NotRecords, Records, SegmentHeader, fork_of, is_page_at, restored,
};
use crate::{Lsn, SegmentSize, Timeline};

/// Longest encoded [`Lineage`], in bytes.
pub const LINEAGE_MAX: usize = 4096;
/// How many ancestors of a timeline are kept, the newest ones.
const FORKS_MAX: usize = 64;
/// How many earlier backups are kept with their relation, the newest ones.
pub const KNOWN_MAX: usize = 64;
/// The most WAL before a checkpoint record that a witness covers, in bytes: some commits, with times that no other
/// branch has.
const WITNESS_MAX: u64 = 64 << 10;

const HISTORY_KNOWN: u32 = 1;
const HISTORY_CUT: u32 = 1 << 1;
const HOME_KNOWN: u32 = 1 << 2;
const IN_RECOVERY: u32 = 1 << 3;
const RUN_KNOWN: u32 = 1 << 4;
const BEFORE_KNOWN: u32 = 1 << 5;
const FLAGS_ALL: u32 =
    HISTORY_KNOWN | HISTORY_CUT | HOME_KNOWN | IN_RECOVERY | RUN_KNOWN | BEFORE_KNOWN;
/// A segment before the witness's own is read only up to this size.
const BEFORE_MAX: u64 = 64 << 20;
/// Bytes of a segment that are read at a time.
const PART: usize = 1 << 20;

/// The first half of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of the parts in their order; the boundaries between parts count.
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
    /// The first LSN that is no longer on this timeline.
    pub end: Lsn,
    /// Digest of the history that leads to it: two timelines with the same number have different ones.
    pub way: Digest,
}

/// How a cluster came to its timeline, identified by content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineHistory {
    /// Oldest first.
    ancestors: Vec<Ancestor>,
    /// Digest of the history that leads to the timeline itself.
    way: Digest,
    /// Whether older ancestors were dropped.
    cut: bool,
}

impl TimelineHistory {
    /// The line of timeline 1, which has no ancestors.
    pub fn first() -> TimelineHistory {
        TimelineHistory {
            ancestors: Vec::new(),
            way: Digest::of([]),
            cut: false,
        }
    }

    /// Parses the history file of `timeline`.
    pub fn parse(timeline: Timeline, text: &[u8]) -> Result<TimelineHistory, NotHistory> {
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
        Ok(TimelineHistory {
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

/// The digest of a history. Remarks of restores that go on from the timeline concern later timelines and do not count.
fn way(timeline: Timeline, lines: &[&[u8]]) -> Digest {
    let own = lines.iter().copied();
    Digest::of(own.filter(|line| restored(line) != Some(timeline)))
}

/// A digest of some WAL. A later reader of the same LSNs compares it to find out whether it reads the same branch.
///
/// It ends with a checkpoint record and begins at a page up to 64 KiB earlier, in the same segment. When a backup
/// starts, the server begins a new segment, which then contains little except the checkpoint's time in seconds. So the
/// whole segment before counts too, if the reader has it: another branch has the same bytes there only if all its
/// transactions committed in the same microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// The timeline in the name of its WAL segment.
    pub timeline: Timeline,
    /// The start of a WAL page.
    pub start: Lsn,
    /// At most 64 KiB and one record.
    pub len_bytes: u32,
    /// Bytes of a WAL page.
    pub page_bytes: u32,
    pub digest: Digest,
    /// Digest of the segment before that of `start`; `None` if it did not exist or is longer than 64 MiB.
    pub before: Option<Before>,
}

/// A whole segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// All bytes of the segment: at most 64 MiB.
    pub len_bytes: u32,
    pub digest: Digest,
}

/// A reader's finding at a witness's LSN.
#[derive(Debug)]
pub enum WitnessResult {
    Same,
    Other,
    /// The WAL does not exist, or no longer exists.
    Gone,
    /// The WAL cannot be read now.
    Unreadable(io::Error),
}

impl Witness {
    /// Takes the witness that ends with the checkpoint record at `checkpoint`. `read` reads the timeline's WAL.
    ///
    /// Errors: [`NotRecords`] if there is no complete record.
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
            len_bytes: bytes.len() as u32,
            page_bytes,
            digest: Digest::of([bytes.as_slice()]),
            before: before.map(|digest| Before {
                len_bytes: len as u32,
                digest,
            }),
        })
    }

    /// Takes the witness of a log set: the end of a segment's WAL, and the whole segment before. `segment` is the LSN
    /// of the segment's first byte. `None` if nothing of it exists.
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
            len_bytes: own.len() as u32,
            page_bytes,
            digest: Digest::of([own]),
            before: before.map(|digest| Before {
                len_bytes: len as u32,
                digest,
            }),
        })
    }

    /// Whether both cover the same LSNs, so that they can be compared.
    fn is_at(&self, other: &Witness) -> bool {
        let place = |w: &Witness| (w.timeline, w.start, w.len_bytes);
        place(self) == place(other)
    }

    /// Whether the digests differ; both must cover the same LSNs.
    fn differs(&self, other: &Witness) -> bool {
        let before = self.before.zip(other.before);
        self.digest != other.digest || before.is_some_and(|(one, other)| one != other)
    }

    /// The LSN after its last byte.
    pub fn end(&self) -> Lsn {
        Lsn(self.start.0.saturating_add(u64::from(self.len_bytes)))
    }

    /// Compares the WAL that `read` provides. A segment file that a server keeps for reuse has pages with other LSNs:
    /// that is [`WitnessResult::Gone`].
    pub fn check(
        &self,
        mut read: impl FnMut(Timeline, Lsn, &mut [u8]) -> io::Result<()>,
    ) -> WitnessResult {
        let mut bytes = vec![0; self.len_bytes as usize];
        match read(self.timeline, self.start, &mut bytes) {
            Ok(()) => {}
            Err(e) => {
                return match e.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => WitnessResult::Gone,
                    _ => WitnessResult::Unreadable(e),
                };
            }
        }
        let pages = bytes.chunks(self.page_bytes.max(1) as usize).zip(0u64..);
        for (page, number) in pages {
            let at = Lsn(self.start.0 + number * u64::from(self.page_bytes));
            let Some((magic, _)) = page.split_first_chunk::<2>() else {
                return WitnessResult::Gone;
            };
            let written = page.iter().any(|byte| *byte != 0);
            // The page's first 16 bytes contain its LSN; a witness may end within a page, but never within a header.
            if !written || !is_page_at(page, u16::from_le_bytes(*magic), at) {
                return WitnessResult::Gone;
            }
        }
        let is_before = |before: Before| {
            let len = u64::from(before.len_bytes);
            let from = (self.start.0 / len).checked_sub(1)? * len;
            let found = segment_digest(|at, buf| read(self.timeline, at, buf), Lsn(from), len)?;
            Some(found == before.digest)
        };
        let is_same = Digest::of([bytes.as_slice()]) == self.digest
            && self.before.and_then(is_before).unwrap_or(true);
        match is_same {
            true => WitnessResult::Same,
            false => WitnessResult::Other,
        }
    }
}

/// The digest of the segment at `start`; `None` if it does not exist: a file that a server keeps for reuse has pages
/// with other LSNs.
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

/// A backup's finding about an earlier one at its target, made while it could read the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineageVerdict {
    /// The server comes from the earlier backup: its WAL was in the server's, or the server was restored from it.
    Follows,
    /// The server is on another branch.
    Apart,
    /// The earlier backup existed, and is therefore older whatever the clocks say. Its relation was not known.
    Seen,
}

/// An earlier backup, as seen by a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierBackup {
    /// The set's UUID.
    pub set: [u8; 16],
    pub verdict: LineageVerdict,
}

/// The state of a server when a backup or WAL was taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    pub system: u64,
    pub timeline: Timeline,
    /// `None` if its history file could not be read.
    pub line: Option<TimelineHistory>,
    /// The end of its WAL.
    pub reached: Lsn,
    /// The LSN of the checkpoint record at the start.
    pub checkpoint: Lsn,
    /// The next transaction number at the checkpoint. It never goes back on one branch.
    pub next_xid: u64,
    /// Whether the server was replaying the WAL of another server.
    pub in_recovery: bool,
    /// Digest of the location of the server's files. It proves nothing: a copy of a machine has the same. A different
    /// one raises a doubt.
    pub home: Option<Digest>,
    /// Digest of the server's process: while it runs, its files cannot be reset unnoticed. Only a machine that is
    /// reset together with its memory has the same one on two branches, so it proves nothing either.
    pub run: Option<Digest>,
    pub witness: Option<Witness>,
    /// Newest last.
    pub known: Vec<EarlierBackup>,
}

/// Whether one backup or server descends from another.
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

    /// Whether WAL proves it. Such a proof ends when the WAL is gone: where an old backup has one, a newer backup of the
    /// same branch has one, too. That a server was restored from a backup stays true for ever and says nothing of newer
    /// ones.
    pub fn is_proved_by_log(&self) -> bool {
        matches!(self, Relation::Proved(Proof::Log { .. } | Proof::Recorded))
    }

    /// The relation of a server to an earlier backup, if the server `is_restored` from it according to its own history.
    /// That proves what WAL no longer can. A contradiction stays one.
    pub fn or_restored(self, is_restored: bool) -> Relation {
        match self {
            Relation::Unknown(Doubt::LogGone { .. } | Doubt::NotRecorded | Doubt::NotCompared)
                if is_restored =>
            {
                Relation::Proved(Proof::Restored)
            }
            relation => relation,
        }
    }
}

/// Why two backups or servers are on one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Both have the same WAL before this LSN.
    Log { timeline: Timeline, at: Lsn },
    /// The server was restored from the earlier backup: the remark of that restore is in the history of the server's
    /// timeline ([`crate::wal::restored_sets`]).
    Restored,
    /// The later backup found that its server comes from the earlier one.
    Recorded,
}

/// Why two backups or servers cannot be on one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    System {
        one: u64,
        other: u64,
    },
    /// The earlier one is on a timeline that the later one has not reached.
    NotReached {
        timeline: Timeline,
        own: Timeline,
    },
    /// The later one's history does not include the earlier one's timeline.
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
    /// Two timelines with the same number have different histories.
    Ways {
        timeline: Timeline,
    },
    /// The WAL at the same LSN has different content.
    Log {
        timeline: Timeline,
        at: Lsn,
    },
    /// The server's WAL ends before that of a backup that was completed earlier.
    Behind {
        reached: Lsn,
        end: Lsn,
    },
    /// A later checkpoint has a smaller transaction number.
    Xids {
        earlier: u64,
        later: u64,
    },
    /// The later backup found that its server is on another branch.
    Recorded,
}

/// Why it is unknown whether two backups or servers are on one branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// One of them was written by a version that stored no identity, or over a connection that provides none.
    NotRecorded,
    /// The WAL that would decide no longer exists.
    LogGone { timeline: Timeline, at: Lsn },
    /// A history file is missing.
    NoHistory { timeline: Timeline },
    /// A standby has not replayed that far yet.
    NotReplayed { reached: Lsn, end: Lsn },
    /// No program could read both.
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
                f.write_str("the later backup found that its server comes from the earlier one")
            }
            Proof::Restored => f.write_str(
                "the history of the server's timeline says that it was restored from this backup",
            ),
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
                "the server's WAL ends at {reached}, before the end {end} of a complete backup: the server was \
                 set back, or is a copy"
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
                "the server no longer has the WAL before {at} on timeline {timeline}, which is needed to decide"
            ),
            Doubt::NoHistory { timeline } => {
                write!(f, "the history file of timeline {timeline} is missing")
            }
            Doubt::NotReplayed { reached, end } => write!(
                f,
                "the standby has replayed to {reached}, and the backup ends at {end}"
            ),
            Doubt::NotCompared => {
                f.write_str("no backup was made while the WAL of both was available")
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
    /// The point at which the backup is consistent.
    pub end: (Timeline, Lsn),
}

impl Lineage {
    /// The lineage of a backup that stores no identity except these numbers.
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

    /// Whether the backup of this lineage descends from an earlier backup. Reads nothing: only the recorded facts are
    /// compared. The caller must pass the backup with the lower LSN as `earlier`.
    pub fn comes_from(&self, earlier: &Earlier) -> Relation {
        let recorded = self.known.iter().find(|known| known.set == earlier.set);
        match recorded.map(|known| known.verdict) {
            Some(LineageVerdict::Follows) => return Relation::Proved(Proof::Recorded),
            Some(LineageVerdict::Apart) => return Relation::Refuted(Contradiction::Recorded),
            Some(LineageVerdict::Seen) | None => {}
        }
        if let Some(contradiction) = self.contradicts(earlier) {
            return Relation::Refuted(contradiction);
        }
        let (one, other) = (self.witness, earlier.lineage.witness);
        if let (Some(one), Some(other)) = (one, other)
            && one.is_at(&other)
        {
            // Different content is a contradiction, which was found above.
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

    /// Like [`Lineage::comes_from`], for a running server whose WAL `read` provides. `earlier` must have been complete
    /// before.
    ///
    /// Existing WAL is compared before numbers are: only WAL can prove.
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
            WitnessResult::Same => Relation::Proved(Proof::Log { timeline, at }),
            WitnessResult::Other => Relation::Refuted(Contradiction::Log { timeline, at }),
            WitnessResult::Gone | WitnessResult::Unreadable(_) => {
                Relation::Unknown(Doubt::LogGone { timeline, at })
            }
        }
    }

    /// The recorded fact, if any, that excludes a descent from the earlier one.
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

    /// The part of the histories, if any, that excludes it.
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

    /// Records an earlier backup, the newest last.
    pub fn note(&mut self, set: [u8; 16], relation: &Relation) {
        let verdict = match relation {
            Relation::Proved(_) => LineageVerdict::Follows,
            Relation::Refuted(_) => LineageVerdict::Apart,
            Relation::Unknown(_) => LineageVerdict::Seen,
        };
        self.known.retain(|known| known.set != set);
        self.known.push(EarlierBackup { set, verdict });
        let surplus = self.known.len().saturating_sub(KNOWN_MAX);
        self.known.drain(..surplus);
    }

    /// Whether this backup found that set at its target.
    pub fn has_seen(&self, set: [u8; 16]) -> bool {
        self.known.iter().any(|known| known.set == set)
    }

    /// The stored form: see docs/format.md, "Lineage".
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
        out.extend_from_slice(&witness.map_or(0, |w| w.len_bytes).to_le_bytes());
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
                LineageVerdict::Follows => 1,
                LineageVerdict::Apart => 2,
                LineageVerdict::Seen => 3,
            });
        }
        if let Some(before) = witness.and_then(|w| w.before) {
            out.extend_from_slice(&before.len_bytes.to_le_bytes());
            out.extend_from_slice(&before.digest.0);
        }
        out
    }

    /// Decodes the output of [`Lineage::encode`]. `None` for other bytes, whose meaning is unknown.
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
            // A hostile set must not make a reader allocate much memory.
            1..=WITNESS_LEN_MAX if page_bytes.is_power_of_two() && page_bytes >= 1 << 10 => {
                Some(Witness {
                    timeline: Timeline::new(witness_timeline)?,
                    start,
                    len_bytes: len,
                    page_bytes,
                    digest,
                    before: None,
                })
            }
            _ => return None,
        };
        let mut ancestors = Vec::new();
        for _ in 0..ancestors_len {
            ancestors.push(Ancestor::decode(&mut rest)?);
        }
        let mut known = Vec::new();
        for _ in 0..known_len {
            known.push(EarlierBackup::decode(&mut rest)?);
        }
        let before = match flags & BEFORE_KNOWN {
            0 => None,
            _ => Some(Before {
                len_bytes: u32::from_le_bytes(take(&mut rest)?),
                digest: Digest(take(&mut rest)?),
            }),
        };
        let is_segment = |len: u64| len <= BEFORE_MAX && SegmentSize::new(len).is_some();
        if before.is_some_and(|before| len == 0 || !is_segment(before.len_bytes.into())) {
            return None;
        }
        let witness = witness.map(|witness| Witness { before, ..witness });
        let line = (flags & HISTORY_KNOWN != 0).then_some(TimelineHistory {
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

impl Ancestor {
    fn decode(rest: &mut &[u8]) -> Option<Ancestor> {
        Some(Ancestor {
            timeline: Timeline::new(u32::from_le_bytes(take(rest)?))?,
            end: Lsn(u64::from_le_bytes(take(rest)?)),
            way: Digest(take(rest)?),
        })
    }
}

impl EarlierBackup {
    fn decode(rest: &mut &[u8]) -> Option<EarlierBackup> {
        let set = take(rest)?;
        let verdict = match take::<1>(rest)? {
            [1] => LineageVerdict::Follows,
            [2] => LineageVerdict::Apart,
            [3] => LineageVerdict::Seen,
            _ => return None,
        };
        Some(EarlierBackup { set, verdict })
    }
}

/// The longest witness that is accepted: its span, and a checkpoint record with page headers.
const WITNESS_LEN_MAX: u32 = (WITNESS_MAX + (64 << 10) + 4096) as u32;

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests;
