//! The sink of a restore: writes the wanted parts of each block to the destination.
//!
//! Invariants
//! - Blocks arrive in any order and from several threads; each byte of a file is written once, by the set that has the
//!   last word about it.
//! - A path that was requested and not found fails the restore before anything gets its final name.
//!
//! Leaves to others: decoding (`unload`), which set has the last word (`chain/merge.rs`), and staging and names
//! (`landing`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_io::crc32c_zeros;
use longshore_landing::{
    DeltaResult, Destination, Error as LandingError, FilePiece, chosen, chosen_entry, may_be_log,
};
use longshore_media::{Entry, EntryKind, Error as MediaError, Extent, Item, Mark, MediaSet};
use parking_lot::Mutex;

use super::databases::EmptiedDatabases;
use super::further_names::FurtherNames;
use super::wanted::wants;
use crate::chain::{FileRow, Merge};
use crate::measure::{Counters, lap};
use crate::report::{CHANGED_MAX, FileTotals};
use crate::request::RestoreRequest;
use crate::unload::Sink;
use crate::{ChainError, Error, RunContext};

/// The result of a restore.
pub struct RestoreResult {
    pub totals: FileTotals,
    /// The first marks of the set.
    pub marks: Vec<Mark>,
    /// Changes of an existing directory, if only differences were written.
    pub delta: Option<DeltaResult>,
    /// Extended attributes that could not be restored.
    pub attributes_lost: u64,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
}

/// Writes the wanted parts of each block.
pub struct Writer<'a> {
    context: &'a RunContext,
    target: Box<dyn Destination>,
    /// Which parts of which set count; `None` if there is one set.
    merge: Option<&'a Merge>,
    /// Databases whose files are made empty.
    emptied: Option<&'a EmptiedDatabases>,
    /// Files that come back under another of their names.
    further: Option<&'a FurtherNames<'a>>,
    only: &'a [PathBuf],
    /// Which of `only` were found.
    found: Vec<AtomicBool>,
    moves: &'a [(PathBuf, PathBuf)],
    /// Which of `moves` were found.
    moved: Vec<AtomicBool>,
    counters: &'a Counters,
    entries: AtomicU64,
    files: AtomicU64,
    /// The first marks, for the report.
    marks: Mutex<Vec<Mark>>,
}

impl<'a> Writer<'a> {
    pub fn new(
        context: &'a RunContext,
        target: Box<dyn Destination>,
        merge: Option<&'a Merge>,
        request: &'a RestoreRequest,
        counters: &'a Counters,
    ) -> Writer<'a> {
        let (only, moves) = (&*request.only, &*request.moves);
        let unseen = |count| {
            std::iter::repeat_with(AtomicBool::default)
                .take(count)
                .collect()
        };
        Writer {
            context,
            target,
            merge,
            emptied: None,
            further: None,
            only,
            found: unseen(only.len()),
            moves,
            moved: unseen(moves.len()),
            counters,
            entries: AtomicU64::new(0),
            files: AtomicU64::new(0),
            marks: Mutex::default(),
        }
    }

    /// The same writer, which makes the files of these databases empty.
    pub fn emptying(mut self, emptied: Option<&'a EmptiedDatabases>) -> Writer<'a> {
        self.emptied = emptied;
        self
    }

    /// The same writer, which gives these files their new names.
    pub fn renaming(mut self, further: &'a FurtherNames<'a>) -> Writer<'a> {
        self.further = Some(further);
        self
    }

    /// The entry as the destination gets it; `None`: it came with another one.
    fn placed<'e>(&self, entry: &'e Entry) -> Result<Option<Cow<'e, Entry>>, Error> {
        match self.further {
            Some(further) => further.placed(entry),
            None => Ok(Some(Cow::Borrowed(entry))),
        }
    }

    /// Whether the path was not requested, and has the bytes of a name that was.
    fn is_further(&self, path: &Path) -> bool {
        self.further.is_some_and(|further| further.takes(path))
    }

    /// Makes a file of its length, without a byte.
    fn put_empty(&self, entry: &Entry) -> Result<(), Error> {
        let whole = Entry {
            based: false,
            ..entry.clone()
        };
        Ok(self.target.complete(&whole, crc32c_zeros(entry.len))?)
    }

    /// Whether a path was requested.
    fn is_wanted(&self, path: &Path) -> bool {
        for (only, found) in self.only.iter().zip(&self.found) {
            if path.starts_with(only) {
                found.store(true, Ordering::Relaxed);
            }
        }
        chosen(self.only, path) || self.is_further(path)
    }

    fn put(&self, set: usize, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        let is_emptied = self
            .emptied
            .is_some_and(|emptied| emptied.empties(&entry.path));
        if is_emptied && entry.kind == EntryKind::File {
            // Its entry in the requested set has its length.
            if set == 0 && entry.first {
                self.count(entry);
                self.put_empty(entry)?;
            }
            return Ok(());
        }
        if set > 0 {
            return self.put_pieces(set, entry, parts);
        }
        let may_be_log = may_be_log(&entry.kind);
        let is_chosen = chosen_entry(self.only, &entry.path, may_be_log)
            || (entry.kind == EntryKind::File && self.is_further(&entry.path));
        if !self.is_wanted(&entry.path) || !is_chosen {
            return Ok(());
        }
        let Some(placed) = self.placed(entry)? else {
            return Ok(());
        };
        for ((from, _), moved) in self.moves.iter().zip(&self.moved) {
            if placed.path.starts_with(from) {
                moved.store(true, Ordering::Relaxed);
            }
        }
        if entry.first {
            self.count(entry);
        }
        if entry.based {
            // Only the index lists a file's parts in other sets, and the index did not list this file as based.
            if self.merged(&entry.path).is_none() {
                return Err(ChainError::Contradiction {
                    set: "the set".into(),
                    path: entry.path.clone(),
                }
                .into());
            }
            self.put_pieces(set, entry, parts)
        } else if !parts.is_empty() {
            Ok(self.target.put_data(&placed, parts)?)
        } else if entry.first {
            Ok(self.target.put_name(&placed)?)
        } else {
            Ok(())
        }
    }

    fn count(&self, entry: &Entry) {
        let is_file = u64::from(entry.kind == EntryKind::File);
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.files.fetch_add(is_file, Ordering::Relaxed);
    }

    /// Writes the parts that count of the bytes that one set of a chain has of a file.
    fn put_pieces(
        &self,
        set: usize,
        entry: &Entry,
        parts: &[(Extent, &[u8])],
    ) -> Result<(), Error> {
        if entry.kind != EntryKind::File || parts.is_empty() {
            return Ok(());
        }
        let Some((merge, file)) = self.merged(&entry.path) else {
            return Ok(());
        };
        let mut pieces = Vec::with_capacity(parts.len());
        for (extent, bytes) in parts {
            merge.pieces(set, file, *extent, &mut |piece| {
                let at = (piece.start - extent.offset) as usize;
                let len = (piece.end - piece.start) as usize;
                let extent = Extent {
                    offset: piece.start,
                    len: len as u32,
                };
                pieces.push((extent, &bytes[at..at + len]));
            });
        }
        if pieces.is_empty() {
            return Ok(());
        }
        merge.note(file, &pieces);
        let path = &*entry.path;
        Ok(self.target.put_piece(&FilePiece {
            path: self.further.map_or(path, |further| further.name_of(path)),
            len_bytes: merge.len(file),
            parts: &pieces,
        })?)
    }

    fn merged(&self, path: &Path) -> Option<(&Merge, FileRow)> {
        let merge = self.merge?;
        Some((merge, merge.file(path)?))
    }

    /// Fails if a path that was wanted, or to be moved, is not in the set.
    pub fn check_found(&self) -> Result<(), Error> {
        let missing = |found: &[AtomicBool]| found.iter().position(|f| !f.load(Ordering::Relaxed));
        if let Some(i) = missing(&self.found) {
            let path = self.only[i].clone();
            return Err(Error::NotInSet { path });
        }
        if let Some(i) = missing(&self.moved) {
            let (from, to) = self.moves[i].clone();
            let what = "the restore has nothing with that name";
            return Err(LandingError::BadMove { from, to, what }.into());
        }
        self.further.map_or(Ok(()), FurtherNames::check_came)
    }

    /// Called when everything was put.
    pub fn finish(self) -> Result<RestoreResult, Error> {
        let totals = FileTotals {
            entry_count: self.entries.into_inner(),
            file_count: self.files.into_inner(),
        };
        let lost = self.target.lost();
        // Where a signature is required, everything that was read has one.
        let is_told =
            longshore_facts::own_ids().0 == 0 && !self.context.keyring.signers().required();
        let powerful = lost.iter().filter_map(|lost| lost.powerful());
        let powerful: Vec<String> = powerful.filter(|_| is_told).collect();
        let delta = self.target.finish()?;
        Ok(RestoreResult {
            totals,
            marks: self.marks.into_inner(),
            delta,
            attributes_lost: lost.iter().map(|lost| lost.count()).sum(),
            warnings: lost.iter().flat_map(|lost| lost.warnings()).collect(),
            notes: lost
                .iter()
                .flat_map(|lost| lost.notes())
                .chain(powerful)
                .collect(),
        })
    }

    /// Completes every file of several sets with the attributes in its newest set. Called when all blocks were put.
    pub fn complete(&self, media: &MediaSet, position: u32) -> Result<(), Error> {
        let mut verdict = Ok(());
        media.items(position, |item| {
            if let Item::Entry(entry) = item
                && entry.first
                && verdict.is_ok()
                && let Some((merge, file)) = self.merged(&entry.path)
            {
                let complete = || match self.placed(&entry)? {
                    Some(placed) => Ok(self.target.complete(&placed, merge.sum(file))?),
                    None => Ok(()),
                };
                verdict = self.context.check_cancel().and_then(|()| complete());
            }
        })?;
        verdict
    }
}

impl Sink for Writer<'_> {
    fn wants(&self, set: usize, items: &[Item]) -> bool {
        match self.merge {
            Some(merge) if set > 0 => merge.wants(set, items),
            _ if self.emptied.is_some_and(|emptied| !emptied.wants(items)) => false,
            _ => wants(items, |path| self.is_wanted(path)),
        }
    }

    fn writes(&self) -> bool {
        true
    }

    fn block(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let clock = &*self.context.clock;
        let at = clock.now();
        let mut rest = plain;
        let mut current: Option<Entry> = None;
        let mut parts = Vec::new();
        for item in items {
            match item {
                Item::Entry(entry) => {
                    if let Some(before) = current.replace(entry) {
                        self.put(set, &before, &parts)?;
                    }
                    parts.clear();
                }
                Item::Extent(extent) => {
                    // The manifest was checked: its extents add up to the plain bytes.
                    let (bytes, later) = rest.split_at(extent.len as usize);
                    rest = later;
                    parts.push((extent, bytes));
                }
                Item::Mark(mut mark) => {
                    let mut marks = self.marks.lock();
                    if marks.len() < CHANGED_MAX && self.is_wanted(&mark.path) {
                        if let Some(further) = self.further {
                            mark.path = further.name_of(&mark.path).into();
                        }
                        marks.push(mark);
                    }
                }
                Item::Sums(_) => {}
            }
        }
        if let Some(last) = current {
            self.put(set, &last, &parts)?;
        }
        lap(clock, at, &self.counters.write_us);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn damage(&self, error: MediaError) -> Result<(), Error> {
        Err(error.into())
    }
}

/// The sets of a chain from one on, which are read together.
pub struct Wave<'a> {
    pub writer: &'a Writer<'a>,
    pub first: usize,
}

impl Sink for Wave<'_> {
    fn wants(&self, set: usize, items: &[Item]) -> bool {
        self.writer.wants(self.first + set, items)
    }

    fn writes(&self) -> bool {
        self.writer.writes()
    }

    fn block(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        self.writer.block(self.first + set, items, plain)
    }

    fn damage(&self, error: MediaError) -> Result<(), Error> {
        self.writer.damage(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use longshore_io::{HostClock, SimDisk};
    use longshore_landing::{ReplacePolicy, Scope, Target};

    use super::*;
    use crate::unload::contract::{content, keeps_its_contract};

    /// The files that a restore of `only` makes. `first`: the sink is a wave from that set on; `None`: the writer itself.
    fn restored(
        only: &[&str],
        first: Option<usize>,
    ) -> (Vec<&'static str>, BTreeMap<String, Vec<u8>>) {
        let disk = SimDisk::new(1);
        disk.write_file("/d/other", b"").unwrap();
        let context = RunContext {
            keyring: Default::default(),
            storage: Arc::new(disk.clone()),
            clock: Arc::new(HostClock),
            catalog: None,
            accelerators: Vec::new(),
            cancel: Arc::default(),
        };
        let to = Path::new("/d/to");
        let scope = Scope::Names { side_files: false };
        let target = Target::open(&context.machine(), to, ReplacePolicy::No, scope, &[]).unwrap();
        let mut request = RestoreRequest::new(Vec::new(), to.into());
        request.only = only.iter().map(PathBuf::from).collect();
        let counters = Counters::default();
        let writer = Writer::new(&context, Box::new(target), None, &request, &counters);
        let wanted = match first {
            Some(first) => keeps_its_contract(
                &Wave {
                    writer: &writer,
                    first,
                },
                0,
            ),
            None => keeps_its_contract(&writer, 0),
        };
        writer.check_found().unwrap();
        writer.finish().unwrap();
        let mut files = BTreeMap::new();
        for path in ["a/0", "a/1", "b/0", "b/1"] {
            if let Ok(bytes) = disk.read_file(to.join(path)) {
                files.insert(path.to_owned(), bytes);
            }
        }
        (wanted, files)
    }

    #[test]
    fn a_restore_keeps_the_contract_of_sinks_and_writes_what_it_wanted() {
        for (only, count) in [(&[][..], 4), (&["b"], 2), (&["a/1", "b/0"], 2)] {
            for first in [None, Some(0)] {
                let (wanted, files) = restored(only, first);
                let expected = wanted
                    .iter()
                    .map(|path| ((*path).to_owned(), content(path)));
                assert!(files == expected.collect(), "{only:?}");
                assert_eq!(files.len(), count, "{only:?}");
            }
        }
    }

    /// A later set of a chain has a say only where there is a chain: a wave counts its sets from its first one on.
    #[test]
    fn a_wave_keeps_the_contract_and_tells_which_set_a_block_is_of() {
        let (wanted, files) = restored(&[], Some(1));
        assert_eq!((wanted.len(), files), (4, BTreeMap::new()));
    }
}
