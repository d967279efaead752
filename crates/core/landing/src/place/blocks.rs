//! Shared by the blocks of a file: its descriptor, its space, and its completion.
//!
//! Invariants
//! - Blocks arrive in any order and from several threads; a file is complete when all its bytes and its first entry
//!   have come.
//! - The length of a file is set once, before its bytes or by the worker that creates it.
//! - The number of open files is bounded as far as their users allow: an idle descriptor is closed when there are too
//!   many.
//! - Reserving space is only an attempt, within a bound over all files: the writes show whether it fits.
//!
//! Leaves to others: names (`names.rs`), attributes (`attributes.rs`), and durability (`durable.rs`).

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_io::{File, OpenHow, Via};
use longshore_media::{Entry, Extent};

use super::Target;
use super::partial_file::{DIRECT_FROM, PartialFile};
use crate::error::Error;

impl Target {
    pub(super) fn reserve(
        &self,
        name: &Path,
        file: &dyn File,
        parts: &[(Extent, &[u8])],
    ) -> Result<(), Error> {
        let end = |(extent, bytes): &(Extent, &[u8])| extent.offset + bytes.len() as u64;
        let start = parts.iter().map(|(extent, _)| extent.offset).min();
        let (Some(start), Some(end)) = (start, parts.iter().map(end).max()) else {
            return Ok(());
        };
        let (range, len) = {
            let mut growing = self.growing.lock();
            let Some(grown) = growing.get_mut(name) else {
                return Ok(());
            };
            let Some(range) = grown.reservation(start, end) else {
                return Ok(());
            };
            let bytes = range.end.saturating_sub(range.start);
            let within =
                |used: u64| (used + bytes <= self.reserved_bytes_max).then_some(used + bytes);
            if self
                .reserved
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
                .is_err()
            {
                return Ok(());
            }
            // The length is set first, and once.
            let len = (grown.reserved_to == 0).then_some(grown.entry.len);
            grown.reserved_to = range.end;
            grown.reserved += bytes;
            (range, len)
        };
        if let Some(len) = len {
            file.set_len(len).map_err(self.at("extend", name))?;
        }
        // Only an attempt: the writes show whether it fits.
        if let Err(error) = file.allocate(range) {
            tracing::debug!(?name, %error, "no space was reserved");
        }
        Ok(())
    }

    /// Records the bytes that a block wrote to a file, and completes the file with its last block.
    pub(super) fn grown(&self, name: &Path, entry: &Entry, bytes: u64) -> Result<(), Error> {
        let mut growing = self.growing.lock();
        let mut last = entry.clone();
        let whole = growing.get_mut(name).is_some_and(|g| {
            g.written_bytes += bytes;
            g.introduced |= entry.first;
            // Only the first entry of a name has all its attributes.
            if entry.first {
                g.entry.xattrs.clone_from(&entry.xattrs);
            }
            let whole = g.is_whole();
            let used = if whole {
                g.reserved
            } else {
                g.reserved.min(bytes)
            };
            g.reserved -= used;
            self.reserved.fetch_sub(used, Ordering::Relaxed);
            if whole {
                last.xattrs = std::mem::take(&mut g.entry.xattrs);
            }
            whole
        });
        if whole {
            growing.remove(name);
        }
        drop(growing);
        match whole {
            true => self.set_attributes(name, &last),
            false => Ok(()),
        }
    }

    pub(super) fn write(
        &self,
        name: &Path,
        file: &dyn File,
        parts: &[(Extent, &[u8])],
    ) -> Result<(), Error> {
        for (extent, bytes) in parts {
            let via = if bytes.len() >= DIRECT_FROM {
                Via::Direct
            } else {
                Via::Cache
            };
            file.write_all_at(bytes, extent.offset, via)
                .map_err(self.at("write", name))?;
        }
        Ok(())
    }

    /// Opens a file that receives pieces. The worker that creates it sets its length, which no piece changes.
    pub(super) fn sized(&self, name: &Path, len: u64) -> Result<Arc<dyn File>, Error> {
        let open = |how| self.dir.open(name, how);
        match open(OpenHow::ReadWrite) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            found => return found.map_err(self.at("open", name)),
        }
        self.ensure_parents(name)?;
        match open(OpenHow::CreateNew) {
            Ok(file) => {
                self.watch.add(&*self.dir, name);
                file.set_len(len).map_err(self.at("extend", name))?;
                Ok(file)
            }
            // Another worker was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                open(OpenHow::ReadWrite).map_err(self.at("open", name))
            }
            Err(e) => Err(self.at("create", name)(e)),
        }
    }

    pub(super) fn growing(&self, name: &Path, entry: &Entry) -> Result<Arc<dyn File>, Error> {
        let mut growing = self.growing.lock();
        if let Some(file) = growing.get(name).and_then(|g| g.file.clone()) {
            return Ok(file);
        }
        if growing.values().filter(|g| g.file.is_some()).count() >= self.open_max {
            for idle in growing.values_mut() {
                if idle
                    .file
                    .as_ref()
                    .is_some_and(|f| Arc::strong_count(f) == 1)
                {
                    idle.file = None;
                }
            }
        }
        match growing.get_mut(name) {
            Some(known) => {
                let file = self
                    .dir
                    .open(name, OpenHow::ReadWrite)
                    .map_err(self.at("open", name))?;
                known.file = Some(file.clone());
                Ok(file)
            }
            None => {
                let file = self.create(name)?;
                let known = PartialFile {
                    file: Some(file.clone()),
                    written_bytes: 0,
                    introduced: false,
                    entry: entry.clone(),
                    reserved_to: 0,
                    reserved: 0,
                };
                growing.insert(name.into(), known);
                Ok(file)
            }
        }
    }
}
