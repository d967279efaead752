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
//!   compared is refused. Where certain contents are asked for, and a file of that name is damaged or cannot be read here, in
//!   either archive, an earlier segment is compared in its place.
//! - A file that is damaged, or whose signature is refused, is told and left out, as the first archive lacks it; nothing else
//!   is. Where certain contents are asked for, so is a file that the first archive cannot give for another reason, until its store
//!   has failed for several in a row; and one in whose place the second archive has a damaged file, or one that cannot be read
//!   here: that file stays as it is.
//! - An error says at which archive it arose: one that cannot be read says nothing about the other.
//!
//! Leaves to others: what a push refuses (`archive.rs`), and from where on WAL is needed (`longshore-repository`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, File, Via};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::content::ContentSum;
use super::memory::MemoryFile;
use super::place::Wanted;
use super::stored::Object;
use super::{Error, Outgoing, PushResult, Run, StorageForm, WalArchive};

/// The most earlier segments of a timeline that are looked at until one can be compared: where none of so many can be, the
/// others cannot be, either.
const EARLIER_MAX: usize = 8;
/// Files in a row that the store of the first archive does not give: it fails for the others, too.
const FAILURES_MAX: usize = 8;
/// A failure that may pass took the time of several attempts.
const FAILURE_THAT_PASSES: usize = FAILURES_MAX / 2;

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
    /// For segments in `compared`, earlier ones that both archives have, in the order in which they are tried.
    earlier: BTreeMap<WalName, Vec<WalName>>,
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
        self.todo(to, needed, &BTreeMap::new()).map_err(Error::from)
    }

    /// [`WalArchive::lacking`] that asks for certain contents, and also tells at which archive an error arose.
    pub(super) fn todo(
        &self,
        to: Option<&WalArchive>,
        needed: &dyn Fn(Timeline, Lsn, Lsn) -> bool,
        sums: &BTreeMap<WalName, ContentSum>,
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
        let earlier = compared.iter().filter(|_| !sums.is_empty()).map(|name| {
            let earlier = earlier_common((&here, &there), *name, size, sums);
            (WalName::Segment(*name), earlier)
        });
        Ok(WalToCopy {
            names,
            earlier: earlier.collect(),
            compared: compared.into_iter().map(WalName::Segment).collect(),
            stored_bytes,
            sums: sums.clone(),
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
                    None => {
                        let history = self.outgoing(WalName::History(timeline));
                        history.map_err(|error| match sum {
                            // Files of other timelines come without it.
                            Some(_) => here(error),
                            None => CopyError::Here(error),
                        })?
                    }
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
    common(one, other, timeline).map(|(_, last)| last).max()
}

/// The first and the last segment of each run of a timeline that is in both.
fn common<'a>(
    one: &'a [Run],
    other: &'a [Run],
    timeline: Timeline,
) -> impl Iterator<Item = (SegmentName, SegmentName)> + 'a {
    let of_timeline = move |run: &&Run| run.span.last.timeline == timeline;
    let overlap = |a: &Run, b: &Run| {
        let (first, last) = (a.span.first.max(b.span.first), a.span.last.min(b.span.last));
        (first <= last).then_some((first, last))
    };
    let one = one.iter().filter(of_timeline);
    one.flat_map(move |a| {
        let other = other.iter().filter(of_timeline);
        other.filter_map(move |b| overlap(a, b))
    })
}

/// Segments of a timeline before `last` that are in both: first those of which no certain content is asked for, the latest of
/// each first.
fn earlier_common(
    (one, other): (&[Run], &[Run]),
    last: SegmentName,
    size: SegmentSize,
    sums: &BTreeMap<WalName, ContentSum>,
) -> Vec<WalName> {
    let mut runs: Vec<_> = common(one, other, last.timeline).collect();
    runs.sort_unstable_by_key(|(_, last)| std::cmp::Reverse(*last));
    let before = |name: &SegmentName| {
        let end = name.start(size).0.checked_sub(1)?;
        Some(SegmentName::holding(name.timeline, Lsn(end), size))
    };
    let of_run = |(first, last): (SegmentName, SegmentName)| {
        std::iter::successors(Some(last), before).take_while(move |name| *name >= first)
    };
    let names = runs.into_iter().flat_map(of_run);
    let names = names.filter(|name| *name < last).map(WalName::Segment);
    let (asked, others): (Vec<_>, Vec<_>) = names.partition(|name| sums.contains_key(name));
    others.into_iter().chain(asked).take(EARLIER_MAX).collect()
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
    /// The files that were to be copied, and that the second archive took, or has already with the same bytes.
    pub(super) held: Vec<WalName>,
    /// Those in whose place the second archive has a file that cannot be compared, and why.
    pub(super) in_the_way: Vec<(WalName, Error)>,
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
    let mut copying = Copying {
        known: from.histories().map_err(CopyError::Here)?,
        histories: HashMap::new(),
        archives: (from, to),
        todo,
        failures: 0,
        form,
        clock,
    };
    for name in &todo.compared {
        if !goes_on() {
            return Ok(());
        }
        copying.compare(*name)?;
    }
    for name in &todo.names {
        if !goes_on() {
            break;
        }
        match copying.copy_whole(*name) {
            Ok(pushed) => {
                if let PushResult::Stored { stored_bytes, .. } = pushed {
                    copied.files += 1;
                    copied.stored_bytes += stored_bytes;
                }
                copied.held.push(*name);
            }
            Err(CopyError::File(error)) if copying.leaves_out(&error) => {
                copied.unreadable.push(error);
                copied.left_out.push(*name);
            }
            Err(CopyError::There(error))
                if todo.sums.contains_key(name) && error.is_fault_of_file() =>
            {
                copied.in_the_way.push((*name, error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A copy of WAL that goes on.
struct Copying<'a> {
    archives: (&'a WalArchive, &'a WalArchive),
    todo: &'a WalToCopy,
    /// The timelines of which the first archive has the history.
    known: Vec<Timeline>,
    histories: HashMap<Timeline, Outgoing>,
    /// Files in a row that the first archive's store did not give.
    failures: usize,
    form: &'a StorageForm,
    clock: &'a dyn Clock,
}

impl Copying<'_> {
    fn copy(&mut self, name: WalName) -> Result<PushResult, CopyError> {
        let (from, to) = self.archives;
        let asked = (name, self.todo.sums.get(&name));
        let known = (&*self.known, &mut self.histories);
        from.copied(to, asked, known, self.form, self.clock)
    }

    /// Where a certain content is asked for, also reads the second archive's file if it was there already: the sums at its end
    /// do not show that the bytes before are whole.
    fn copy_whole(&mut self, name: WalName) -> Result<PushResult, CopyError> {
        let pushed = self.copy(name)?;
        self.failures = 0;
        if pushed == PushResult::Already && self.todo.sums.contains_key(&name) {
            let read = self.archives.1.check_whole(name);
            read.map_err(CopyError::There)?;
        }
        Ok(pushed)
    }

    /// Whether the others can be copied without this file of the first archive.
    fn leaves_out(&mut self, error: &Error) -> bool {
        match error {
            Error::Damaged { .. }
            | Error::Missing { .. }
            | Error::Newer { .. }
            | Error::Unsigned { .. } => true,
            _ if self.todo.sums.is_empty() => false,
            Error::Io { .. } | Error::Store(_) => {
                self.failures += match error.may_pass() {
                    true => FAILURE_THAT_PASSES,
                    false => 1,
                };
                self.failures < FAILURES_MAX
            }
            // It is about this file, since its archive is open.
            _ => true,
        }
    }

    /// Compares the last segment that both have of a timeline, or where that cannot be compared, an earlier one.
    fn compare(&mut self, last: WalName) -> Result<(), CopyError> {
        let (from, to) = self.archives;
        let mut fault = None;
        let earlier = self.todo.earlier.get(&last).into_iter().flatten();
        for name in std::iter::once(&last).chain(earlier) {
            match (self.copy(*name), name) {
                // It was there, and is gone: nothing was compared.
                (Ok(PushResult::Stored { .. }), WalName::Segment(segment)) => {
                    return Err(CopyError::There(Error::CopyUnknown {
                        archive: from.path().to_owned(),
                        to: to.path().to_owned(),
                        name: *segment,
                    }));
                }
                (Ok(_), _) => {
                    self.failures = 0;
                    return Ok(());
                }
                (Err(CopyError::File(error)), _)
                    if !self.todo.sums.is_empty() && self.leaves_out(&error) =>
                {
                    fault = fault.or(Some(CopyError::Here(error)));
                }
                // Without it nothing is known of the rest.
                (Err(CopyError::File(error)), _) => return Err(CopyError::Here(error)),
                (Err(CopyError::There(error)), _)
                    if !self.todo.sums.is_empty() && error.is_fault_of_file() =>
                {
                    fault = fault.or(Some(CopyError::There(error)));
                }
                (Err(error), _) => return Err(error),
            }
        }
        fault.map_or(Ok(()), Err)
    }
}
