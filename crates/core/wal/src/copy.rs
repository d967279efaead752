//! Copies the WAL of one archive to another, which is an archive of its own from then on.
//!
//! A file is decoded and pushed, so the second archive refuses what it refuses from a server: another cluster, another
//! branch, a gap that two histories would fill differently. How it is compressed there is the second archive's matter.
//!
//! Invariants
//! - Histories come before the segments of their timelines, and segments in the order of LSNs, so that an interruption
//!   leaves no gap.
//! - Before anything is copied, the last segment that both have of a timeline is compared: two branches of a cluster have
//!   the same names, and a border between two segments can agree by chance.
//! - What lies before the floor, or before the last unbroken run of the second archive, is not copied again: an expire has
//!   removed it there.
//!
//! Leaves to others: what a push refuses (`archive.rs`), and from where on WAL is needed (`longshore-repository`).

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, File, Via};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, Timeline};

use super::memory::MemoryFile;
use super::place::Wanted;
use super::{Error, Outgoing, PushResult, Run, StorageForm, WalArchive};

/// The WAL that the second archive lacks, in the order in which it is copied.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WalToCopy {
    pub names: Vec<WalName>,
    /// The last segments that both have, of the newest timeline and of each that goes on: they must be the same.
    pub compared: Vec<WalName>,
    /// As the first archive stores the segments.
    pub stored_bytes: u64,
}

impl WalArchive {
    /// The histories and full segments that `to` lacks. `floor`: a backup there needs the WAL from here on.
    ///
    /// Partial segments and backup marks are not copied: no recovery asks for them.
    ///
    /// Errors: `NothingYet`, `Io`; `CopyUnknown` if there is a timeline in both of which they have no segment to compare.
    pub fn lacking(&self, to: Option<&WalArchive>, floor: Option<Lsn>) -> Result<WalToCopy, Error> {
        let size = self.identified()?.segment_size;
        let to = to.filter(|to| to.identity().is_some());
        let there = to.map_or(Ok(Vec::new()), WalArchive::runs)?;
        let last_run = there.iter().max_by_key(|run| run.span.last.start(size));
        let last_run = last_run.map(|run| run.span.first.start(size));
        let Some(from) = floor.into_iter().chain(last_run).min() else {
            return Ok(WalToCopy::default());
        };
        let mut segments: Vec<SegmentName> = Vec::new();
        let mut stored_bytes = 0;
        // The segment that holds the first byte is needed, too.
        let from = Lsn(from.0 / size.bytes() * size.bytes());
        let here = self.runs()?;
        for run in &here {
            let mut name = run.span.first;
            for _ in 0..run.span.segments {
                if name.start(size) >= from && !has(&there, name) {
                    segments.push(name);
                    stored_bytes += run.stored_bytes / run.span.segments.max(1);
                }
                name = name.next(size);
            }
        }
        segments.sort_by_key(|name| (name.start(size), name.timeline));
        let compared = match to {
            Some(to) => self.last_of_both((&there, to.path()), &here, &segments)?,
            None => Vec::new(),
        };
        let known = to.map_or(Ok(Vec::new()), WalArchive::histories)?;
        let histories = self.histories()?.into_iter().filter(|h| !known.contains(h));
        let mut names: Vec<WalName> = histories.map(WalName::History).collect();
        names.extend(segments.into_iter().map(WalName::Segment));
        Ok(WalToCopy {
            names,
            compared: compared.into_iter().map(WalName::Segment).collect(),
            stored_bytes,
        })
    }

    /// The last segment that both have of the newest timeline here, and of each of `segments`.
    fn last_of_both(
        &self,
        (there, to): (&[Run], &Path),
        here: &[Run],
        segments: &[SegmentName],
    ) -> Result<Vec<SegmentName>, Error> {
        let last = |runs: &[Run], timeline: Timeline| {
            let of_timeline = runs.iter().filter(|run| run.span.last.timeline == timeline);
            of_timeline.map(|run| run.span.last).max()
        };
        let newest = here.iter().map(|run| run.span.last.timeline).max();
        let timelines: BTreeSet<Timeline> = segments
            .iter()
            .map(|name| name.timeline)
            .chain(newest)
            .collect();
        let mut compared = Vec::new();
        for timeline in timelines {
            let (Some(ours), Some(theirs)) = (last(here, timeline), last(there, timeline)) else {
                continue;
            };
            let name = ours.min(theirs);
            if !has(here, name) || !has(there, name) {
                return Err(Error::CopyUnknown {
                    archive: self.path().to_owned(),
                    to: to.to_owned(),
                    name,
                });
            }
            compared.push(name);
        }
        Ok(compared)
    }

    /// A file of this archive, decoded and checked, in memory.
    fn outgoing(&self, name: WalName) -> Result<Outgoing, Error> {
        let path = self.path().join(name.to_string());
        let object = self.object_for(name, Wanted::All)?;
        let file: Arc<dyn File> = Arc::new(MemoryFile::zeros(object.head.plain_len as usize));
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

fn has(runs: &[Run], name: SegmentName) -> bool {
    runs.iter().any(|run| {
        let (first, last) = (run.span.first, run.span.last);
        first.timeline == name.timeline && first <= name && name <= last
    })
}

/// Pushes files of `from` to `to`, in order. `each` is told of every file that was copied, and ends the copy with `false`.
///
/// Errors: those of [`WalArchive::fetch`] for a file of `from`, and of [`WalArchive::push`] at `to`. Files that were copied
/// before stay.
pub fn copy_wal(
    from: &WalArchive,
    to: &WalArchive,
    todo: &WalToCopy,
    form: &StorageForm,
    clock: &dyn Clock,
    each: &mut dyn FnMut(WalName, PushResult) -> bool,
) -> Result<(), Error> {
    let known = from.histories()?;
    let mut histories: HashMap<Timeline, Outgoing> = HashMap::new();
    for name in todo.compared.iter().chain(&todo.names) {
        let mut out = from.outgoing(*name)?;
        if let WalName::Segment(segment) = name
            && known.contains(&segment.timeline)
        {
            let history = match histories.get(&segment.timeline) {
                Some(history) => history.clone(),
                None => from.outgoing(WalName::History(segment.timeline))?,
            };
            histories.insert(segment.timeline, history.clone());
            out.history = Some(Box::new(history));
        }
        let pushed = to.push(&out, form, clock)?;
        if !each(*name, pushed) {
            return Ok(());
        }
    }
    Ok(())
}
