//! Copies the WAL of one archive to another, which is an archive of its own from then on.
//!
//! A file is decoded and pushed, so the second archive refuses what it refuses from a server: another cluster, another
//! branch, a gap that two histories would fill differently. How it is compressed there is the second archive's matter. An
//! encrypted file is copied as it is, which needs no key (`verbatim.rs`).
//!
//! Invariants
//! - Histories come before the segments of their timelines, and segments in the order of LSNs, so that an interruption
//!   leaves no gap.
//! - Before anything is copied, the last segment that both have of each timeline is compared: two branches of a cluster
//!   have the same names, and a border between two segments can agree by chance. A timeline of which nothing can be
//!   compared is refused.
//! - A file that cannot be read, or whose signature is refused, is told and left out, as the first archive lacks it; nothing
//!   else is. Where a certain content is asked for, so is a file of which nobody here can tell whether it has that.
//! - An error says at which archive it arose: one that cannot be read says nothing about the other.
//!
//! Leaves to others: what a push refuses (`archive.rs`), and from where on WAL is needed (`longshore-repository`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, File, Via};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, Timeline};

use super::content::ContentSum;
use super::memory::MemoryFile;
use super::place::Wanted;
use super::stored::Object;
use super::{Error, Outgoing, PushResult, Run, StorageForm, WalArchive};

/// The WAL that the second archive lacks, in the order in which it is copied.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WalToCopy {
    pub names: Vec<WalName>,
    /// The last segment that both have of each timeline: it must be the same.
    pub compared: Vec<WalName>,
    /// As the first archive stores the segments.
    pub stored_bytes: u64,
    /// The content that files of these names must have: another one is left out.
    pub(super) sums: BTreeMap<WalName, ContentSum>,
}

impl WalToCopy {
    /// Whether there is nothing to copy and nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.compared.is_empty()
    }
}

impl WalArchive {
    /// The histories, and the segments from `start` to `end` that are `needed` and that `to` lacks.
    ///
    /// Partial segments and backup marks are not copied: no recovery asks for them.
    ///
    /// Errors: `NothingYet`, `Io`; `CopyUnknown` if nothing shows that a timeline goes on with the WAL that is there.
    pub fn lacking(
        &self,
        to: Option<&WalArchive>,
        needed: &dyn Fn(Timeline, Lsn, Lsn) -> bool,
    ) -> Result<WalToCopy, Error> {
        self.todo(to, needed).map_err(Error::from)
    }

    /// [`WalArchive::lacking`] that also tells at which archive an error arose.
    pub(super) fn todo(
        &self,
        to: Option<&WalArchive>,
        needed: &dyn Fn(Timeline, Lsn, Lsn) -> bool,
    ) -> Result<WalToCopy, CopyError> {
        let size = self.identified().map_err(CopyError::Here)?.segment_size;
        let to = to.filter(|to| to.identity().is_some());
        let there = to.map_or(Ok(Vec::new()), WalArchive::runs);
        let there = there.map_err(CopyError::There)?;
        let here = self.runs().map_err(CopyError::Here)?;
        let mut segments: Vec<SegmentName> = Vec::new();
        let mut stored_bytes = 0;
        for run in &here {
            let mut name = run.span.first;
            for _ in 0..run.span.segments {
                let start = name.start(size);
                let end = Lsn(start.0.saturating_add(size.bytes()));
                if !has(&there, name) && needed(name.timeline, start, end) {
                    segments.push(name);
                    stored_bytes += run.stored_bytes / run.span.segments.max(1);
                }
                name = name.next(size);
            }
        }
        segments.sort_by_key(|name| (name.start(size), name.timeline));
        let compared = match to {
            Some(to) => self
                .last_of_both((&there, to.path()), &here, &segments)
                .map_err(CopyError::Here)?,
            None => Vec::new(),
        };
        let known = to.map_or(Ok(Vec::new()), WalArchive::histories);
        let known = known.map_err(CopyError::There)?;
        let histories = self.histories().map_err(CopyError::Here)?.into_iter();
        let histories = histories.filter(|h| !known.contains(h));
        let mut names: Vec<WalName> = match segments.is_empty() {
            true => Vec::new(),
            false => histories.map(WalName::History).collect(),
        };
        names.extend(segments.into_iter().map(WalName::Segment));
        Ok(WalToCopy {
            names,
            compared: compared.into_iter().map(WalName::Segment).collect(),
            stored_bytes,
            sums: BTreeMap::new(),
        })
    }

    /// The last segment that both have of each timeline.
    fn last_of_both(
        &self,
        (there, to): (&[Run], &Path),
        here: &[Run],
        segments: &[SegmentName],
    ) -> Result<Vec<SegmentName>, Error> {
        let of = |runs: &[Run]| -> BTreeSet<Timeline> {
            runs.iter().map(|run| run.span.last.timeline).collect()
        };
        let theirs = of(there);
        let mut compared = BTreeMap::new();
        for timeline in of(here).intersection(&theirs) {
            if let Some(name) = last_common(here, there, *timeline) {
                compared.insert(*timeline, name);
            }
        }
        let mut judged = BTreeSet::new();
        for name in segments {
            if judged.insert(name.timeline) && !self.goes_on(name.timeline, &theirs, &compared)? {
                return Err(Error::CopyUnknown {
                    archive: self.path().to_owned(),
                    to: to.to_owned(),
                    name: *name,
                });
            }
        }
        Ok(compared.into_values().collect())
    }

    /// Whether a timeline goes on with the WAL of an archive that has the timelines `theirs`, of which those in `compared`
    /// have a segment in common with this one. Numbers of timelines prove nothing: its own history names its ancestors.
    fn goes_on(
        &self,
        timeline: Timeline,
        theirs: &BTreeSet<Timeline>,
        compared: &BTreeMap<Timeline, SegmentName>,
    ) -> Result<bool, Error> {
        if theirs.is_empty() || compared.contains_key(&timeline) {
            return Ok(true);
        }
        if theirs.contains(&timeline) {
            return Ok(false);
        }
        let history = match self.history(timeline) {
            Ok(history) => history,
            Err(Error::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let ancestors = history.forks().iter().rev().map(|fork| fork.timeline);
        let nearest = ancestors.into_iter().find(|t| theirs.contains(t));
        Ok(nearest.is_some_and(|nearest| compared.contains_key(&nearest)))
    }

    /// Copies one file: encrypted ones as they are.
    fn copied(
        &self,
        to: &WalArchive,
        (name, sum): (WalName, Option<&ContentSum>),
        (known, histories): (&[Timeline], &mut HashMap<Timeline, Outgoing>),
        form: &StorageForm,
        clock: &dyn Clock,
    ) -> Result<PushResult, CopyError> {
        let here = CopyError::File;
        let object = self.object_for(name, Wanted::All).map_err(here)?;
        object.check_signature().map_err(here)?;
        let is_same = sum.map(|sum| self.is_of_sum(&object, sum)).transpose();
        match is_same.map_err(here)? {
            Some(Some(true)) | None => {}
            Some(Some(false)) => {
                let path = object.path;
                return Err(here(Error::NotOwed { path, name }));
            }
            Some(None) => return Err(here(Error::Uncompared { path: object.path })),
        }
        let history = match name.segment().map(|segment| segment.timeline) {
            Some(timeline) if known.contains(&timeline) => {
                let history = match histories.get(&timeline) {
                    Some(history) => history.clone(),
                    None => self
                        .outgoing(WalName::History(timeline))
                        .map_err(CopyError::Here)?,
                };
                histories.insert(timeline, history.clone());
                Some(history)
            }
            _ => None,
        };
        if object.head().sealed.is_some() {
            if let Some(history) = history {
                to.push(&history, form, clock).map_err(CopyError::There)?;
            }
            let identity = self.identified().map_err(here)?;
            // A fault of the file itself is found before anything is written.
            let adopted = to.adopt(&object, identity, clock);
            return adopted.map_err(|error| match error {
                CopyError::There(error) if is_fault_of(&object.path, &error) => here(error),
                error => error,
            });
        }
        let mut out = self.decoded(name, &object).map_err(here)?;
        out.history = history.map(Box::new);
        to.push(&out, form, clock).map_err(CopyError::There)
    }

    /// A file of this archive, decoded and checked, in memory.
    fn outgoing(&self, name: WalName) -> Result<Outgoing, Error> {
        self.decoded(name, &self.object_for(name, Wanted::All)?)
    }

    pub(super) fn decoded(&self, name: WalName, object: &Object) -> Result<Outgoing, Error> {
        let path = self.path().join(name.to_string());
        let file: Arc<dyn File> = Arc::new(MemoryFile::zeros(object.head().plain_len as usize));
        object.decode(|plain, offset| {
            file.write_all_at(plain, offset, Via::Cache)
                .map_err(Error::io_at("copy", &path, offset))
        })?;
        Ok(Outgoing {
            name,
            path,
            file,
            system: self.identity().map(|identity| identity.system),
            history: None,
            beside: None,
        })
    }
}

/// Whether a segment is in one of these runs.
pub(super) fn has(runs: &[Run], name: SegmentName) -> bool {
    runs.iter().any(|run| {
        let (first, last) = (run.span.first, run.span.last);
        first.timeline == name.timeline && first <= name && name <= last
    })
}

/// The last segment of a timeline that is in both.
fn last_common(one: &[Run], other: &[Run], timeline: Timeline) -> Option<SegmentName> {
    let of_timeline = |run: &&Run| run.span.last.timeline == timeline;
    let overlap = |a: &Run, b: &Run| {
        let last = a.span.last.min(b.span.last);
        (a.span.first.max(b.span.first) <= last).then_some(last)
    };
    let one = one.iter().filter(of_timeline);
    one.flat_map(|a| {
        let other = other.iter().filter(of_timeline);
        other.filter_map(move |b| overlap(a, b))
    })
    .max()
}

/// Whether this file is what cannot be read.
fn is_fault_of(file: &Path, error: &Error) -> bool {
    match error {
        Error::Damaged { path, .. } | Error::Io { path, .. } => path == file,
        _ => false,
    }
}

/// The place where a copy failed.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The first archive cannot read one file.
    File(Error),
    /// The first archive, in what concerns more than one file.
    Here(Error),
    /// The second archive, which may refuse the file.
    There(Error),
}

/// Of [`WalArchive::adopt`], where all but the reading concerns the second archive.
impl From<Error> for CopyError {
    fn from(error: Error) -> CopyError {
        CopyError::There(error)
    }
}

impl From<CopyError> for Error {
    fn from(error: CopyError) -> Error {
        match error {
            CopyError::File(error) | CopyError::Here(error) | CopyError::There(error) => error,
        }
    }
}

/// The result of a copy of WAL.
#[derive(Debug, Default)]
pub struct WalCopied {
    pub files: u64,
    /// As the second archive stores them.
    pub stored_bytes: u64,
    /// Files of the first archive that cannot be read.
    pub unreadable: Vec<Error>,
    /// Their names, in the same order.
    pub(super) left_out: Vec<WalName>,
    /// The files that the second archive took, or has already with the same bytes.
    pub(super) held: Vec<WalName>,
}

/// Pushes files of `from` to `to`, in order, as long as `goes_on`.
///
/// Errors: those of [`WalArchive::push`] at `to`. Files that were copied before stay.
pub fn copy_wal(
    from: &WalArchive,
    to: &WalArchive,
    todo: &WalToCopy,
    form: &StorageForm,
    clock: &dyn Clock,
    goes_on: &dyn Fn() -> bool,
) -> Result<WalCopied, Error> {
    let mut copied = WalCopied::default();
    let done = copy_on((from, to), todo, form, clock, goes_on, &mut copied);
    done.map_err(Error::from)?;
    Ok(copied)
}

/// [`copy_wal`] that also tells what was copied before an error.
pub(super) fn copy_on(
    (from, to): (&WalArchive, &WalArchive),
    todo: &WalToCopy,
    form: &StorageForm,
    clock: &dyn Clock,
    goes_on: &dyn Fn() -> bool,
    copied: &mut WalCopied,
) -> Result<(), CopyError> {
    let known = from.histories().map_err(CopyError::Here)?;
    let mut histories: HashMap<Timeline, Outgoing> = HashMap::new();
    for name in todo.compared.iter().chain(&todo.names) {
        if !goes_on() {
            break;
        }
        let asked = (*name, todo.sums.get(name));
        let pushed = match from.copied(to, asked, (&known, &mut histories), form, clock) {
            Ok(pushed) => pushed,
            // Without it nothing is known of the rest.
            Err(CopyError::File(error)) if todo.compared.contains(name) => {
                return Err(CopyError::Here(error));
            }
            Err(CopyError::File(
                error @ (Error::Damaged { .. }
                | Error::Missing { .. }
                | Error::Newer { .. }
                | Error::Unsigned { .. }
                | Error::NotOwed { .. }
                | Error::Uncompared { .. }),
            )) => {
                copied.unreadable.push(error);
                copied.left_out.push(*name);
                continue;
            }
            Err(error) => return Err(error),
        };
        if let PushResult::Stored { stored_bytes, .. } = pushed {
            if let WalName::Segment(segment) = name
                && todo.compared.contains(name)
            {
                // It was there, and is gone: nothing was compared.
                return Err(CopyError::There(Error::CopyUnknown {
                    archive: from.path().to_owned(),
                    to: to.path().to_owned(),
                    name: *segment,
                }));
            }
            copied.files += 1;
            copied.stored_bytes += stored_bytes;
        }
        copied.held.push(*name);
    }
    Ok(())
}
