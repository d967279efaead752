//! The sets that a restore reads: one set, or a differential one with all sets it needs.
//!
//! Invariants
//! - Sets are ordered by depth, and the requested one is 0.
//! - A pipe can only hold the requested set, since it cannot be searched.
//! - An index that cannot be read costs time, not data: a single set is then read completely.
//!
//! Leaves to others: finding and merging sets (`chain`), and decoding (`unload`).

use std::ops::Range;
use std::path::{Path, PathBuf};

use longshore_landing::chosen;
use longshore_media::{BlockStream, Item, MediaSet, SetSummary};
use longshore_source::SourceKind;

use super::databases::EmptiedDatabases;
use super::further_names::FurtherNames;
use super::wanted::wants;
use crate::chain::{Chain, Link, Merge};
use crate::{Error, RunContext};

/// The sets of a restore, by depth: 0 is the requested one.
pub struct Reading<'a> {
    media: &'a MediaSet,
    position: u32,
    only: &'a [PathBuf],
    further: FurtherNames<'a>,
    emptied: Option<&'a EmptiedDatabases>,
    seekable: bool,
    merged: Option<(Chain<'a>, Merge)>,
}

impl<'a> Reading<'a> {
    /// `summary` describes the set at `position`; `None` if the media are a pipe. The other sets are searched for on
    /// `media` and `bases`.
    pub fn new(
        context: &RunContext,
        (only, emptied): (&'a [PathBuf], Option<&'a EmptiedDatabases>),
        media: &'a MediaSet,
        (position, summary): (u32, Option<&SetSummary>),
        bases: &'a [MediaSet],
    ) -> Result<Reading<'a>, Error> {
        let mut reading = Reading {
            media,
            position,
            only,
            further: match summary {
                Some(_) => FurtherNames::of(media, position, only),
                None => FurtherNames::unknown(only),
            },
            emptied,
            seekable: summary.is_some(),
            merged: None,
        };
        if let Some(summary) = summary.filter(|set| set.header.parent.is_some()) {
            let chain = Chain::collect(context, media, summary.clone(), bases)?;
            let with_sums = summary.header.source_kind == SourceKind::Postgres as u8;
            let merge = Merge::read(&chain, &|path| reading.is_wanted(path), with_sums)?;
            reading.merged = Some((chain, merge));
        }
        Ok(reading)
    }

    fn is_wanted(&self, path: &Path) -> bool {
        let is_empty = self.emptied.is_some_and(|emptied| emptied.empties(path));
        !is_empty && (chosen(self.only, path) || self.further.takes(path))
    }

    /// The files that come back under another of their names.
    pub fn further(&self) -> &FurtherNames<'a> {
        &self.further
    }

    pub fn merge(&self) -> Option<&Merge> {
        self.merged.as_ref().map(|(_, merge)| merge)
    }

    /// The sets of a chain, newest first; empty if there is only one set.
    pub fn links(&self) -> &[Link<'a>] {
        self.merged.as_ref().map_or(&[], |(chain, _)| &chain.links)
    }

    /// Sets that are read together, by their depths.
    pub fn waves(&self) -> Vec<Range<usize>> {
        match &self.merged {
            Some((chain, _)) => chain.waves(),
            None => std::iter::once(0..1).collect(),
        }
    }

    /// The most streams open at once.
    pub fn streams_max(&self) -> usize {
        let links = self.links();
        let streams = |wave: Range<usize>| -> usize {
            let links = links.get(wave).unwrap_or_default();
            links.iter().map(|link| link.media.family_count()).sum()
        };
        let of_waves = self.waves().into_iter().map(streams).max();
        of_waves.unwrap_or(0).max(self.media.family_count())
    }

    /// The streams of a wave, set by set.
    pub fn streams(&self, wave: Range<usize>) -> Result<Vec<Vec<BlockStream>>, Error> {
        match &self.merged {
            Some((chain, merge)) => wave.map(|depth| merge.streams(chain, depth)).collect(),
            None => Ok(vec![self.streams_of_one()?]),
        }
    }

    fn streams_of_one(&self) -> Result<Vec<BlockStream>, Error> {
        if let (true, Some(streams)) = (self.seekable, self.picked_streams()) {
            return Ok(streams);
        }
        let families = 0..self.media.family_count();
        let streams = families.map(|i| self.media.stream(i, self.position));
        Ok(streams.collect::<Result<_, _>>()?)
    }

    /// Streams of only the blocks that contain wanted files. `None` if everything is wanted, or if the index cannot be
    /// read: then the stripes are read completely.
    fn picked_streams(&self) -> Option<Vec<BlockStream>> {
        if self.only.is_empty() && self.emptied.is_none() {
            return None;
        }
        let wants = |items: &[Item]| match self.emptied {
            Some(emptied) => emptied.wants(items),
            None => wants(items, |path| self.is_wanted(path)),
        };
        let stream = |i| match self.media.stream_of(i, self.position, &wants) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "the index cannot be read, so the stripes are read whole");
                None
            }
        };
        (0..self.media.family_count()).map(stream).collect()
    }
}
