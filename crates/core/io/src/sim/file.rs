//! An open file of a simulated disk.
//!
//! Invariants
//! - Every call on the file's bytes goes through the disk's rules for faults and power.
//! - Written bytes are durable only after a sync that succeeded.
//! - A handle keeps its file after the name is gone, as a descriptor does. A lock belongs to its handle and ends with
//!   it.
//! - A write to a full disk is short by whole pages, and fails only if nothing fits.
//!
//! Leaves to others: bytes and their durability (`state.rs`, `content.rs`), and names (`dir.rs`). Locks on ranges are
//! not simulated: no other program exists.

use crate::{FileAttributes, FileLock, FileRead, FileWrite};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::content::{Change, PIECE};
use super::fault::Op;
use super::shared::SharedState;
use super::state::{Power, State, errno};
use super::tree::Ino;
use crate::storage::{Attributes, OpenHow, Stat, Via, ZeroedSpace};

pub(super) struct SimFile {
    disk: SharedState,
    ino: Ino,
    how: OpenHow,
    /// The number of this handle, which identifies the holder of a lock.
    handle: u64,
    /// The path at the time it was opened.
    path: PathBuf,
}

impl SimFile {
    pub(super) fn new(
        disk: SharedState,
        ino: Ino,
        how: OpenHow,
        handle: u64,
        path: PathBuf,
    ) -> Self {
        Self {
            disk,
            ino,
            how,
            handle,
            path,
        }
    }

    fn call<T>(
        &self,
        op: Op,
        bytes: Option<Range<u64>>,
        body: impl FnOnce(&mut State, Power, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.call(op, &self.path, bytes, body)
    }
}

/// The range of a transfer; offsets beyond `i64` are refused, as by the system.
fn range(offset: u64, len: usize) -> io::Result<Range<u64>> {
    match offset.checked_add(len as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(offset..end),
        _ => Err(errno(libc::EINVAL)),
    }
}

impl FileRead for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _via: Via) -> io::Result<usize> {
        self.call(
            Op::Read,
            Some(range(offset, buf.len())?),
            |state, _, len_max| {
                let len = len_max.min(buf.len() as u64) as usize;
                Ok(state.data(self.ino)?.live.read(&mut buf[..len], offset))
            },
        )
    }

    fn stat(&self) -> io::Result<Stat> {
        self.call(Op::Stat, None, |state, _, _| state.stat(self.ino))
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        let state = self.disk.lock();
        let rule = state
            .cached
            .iter()
            .rev()
            .find(|(path, _)| self.path.starts_with(path));
        rule.is_some_and(|(_, cached)| *cached)
    }

    fn drop_cached(&self) {
        if let Ok(data) = self.disk.lock().data(self.ino) {
            data.drop_cached();
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.call(Op::Stat, None, |state, _, _| {
            let tells = state.tells_holes;
            let content = &state.data(self.ino)?.live;
            Ok(match tells {
                true => content.next_data(offset),
                false => (offset < content.len()).then_some(offset..content.len()),
            })
        })
    }
}

impl FileWrite for SimFile {
    fn write_at(&self, buf: &[u8], offset: u64, _via: Via) -> io::Result<usize> {
        if self.how == OpenHow::Read {
            return Err(errno(libc::EBADF));
        }
        self.call(
            Op::Write,
            Some(range(offset, buf.len())?),
            |state, _, len_max| {
                let mut len = len_max.min(buf.len() as u64);
                let free = state.free_bytes(state.node(self.ino)?.dev);
                let data = state.data(self.ino)?;
                if let Some(free) = free {
                    while data.live.growth_bytes(offset, len) > free {
                        // Drop the last page, in part or as a whole, until the rest fits.
                        let end = offset + len;
                        len -= ((end - 1) % PIECE + 1).min(len);
                    }
                    if len == 0 && !buf.is_empty() {
                        return Err(errno(libc::ENOSPC));
                    }
                }
                if len > 0 {
                    let bytes: Arc<[u8]> = buf[..len as usize].into();
                    data.change(Change::Write { offset, bytes });
                    state.touch(self.ino);
                }
                Ok(len as usize)
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.how == OpenHow::Read || i64::try_from(len).is_err() {
            return Err(errno(libc::EINVAL));
        }
        self.call(Op::SetLen, None, |state, _, _| {
            state.data(self.ino)?.change(Change::SetLen(len));
            state.touch(self.ino);
            Ok(())
        })
    }

    fn allocate(&self, wanted: Range<u64>) -> io::Result<()> {
        if self.how == OpenHow::Read {
            return Err(errno(libc::EBADF));
        }
        let len = wanted.end.saturating_sub(wanted.start);
        range(wanted.start, usize::try_from(len).unwrap_or(usize::MAX))?;
        self.call(Op::Allocate, None, |state, _, _| {
            let free = state.free_bytes(state.node(self.ino)?.dev);
            let needed = state.data(self.ino)?.live.growth_bytes(wanted.start, len);
            if free.is_some_and(|free| needed > free) {
                Err(errno(libc::ENOSPC))
            } else {
                Ok(())
            }
        })
    }

    /// The simulated disk has no reservations, so there is nothing to give back.
    fn free_unwritten(&self) -> io::Result<()> {
        match self.how {
            OpenHow::Read => Err(errno(libc::EBADF)),
            _ => Ok(()),
        }
    }

    /// A step: a write of zeros, which can be torn like any write.
    fn zero(&self, wanted: Range<u64>, _space: ZeroedSpace) -> io::Result<bool> {
        if self.how == OpenHow::Read {
            return Err(errno(libc::EBADF));
        }
        let len = usize::try_from(wanted.end.saturating_sub(wanted.start)).unwrap_or(usize::MAX);
        let bytes = range(wanted.start, len)?;
        self.call(Op::Write, Some(bytes), |state, _, _| {
            let data = state.data(self.ino)?;
            let end = wanted.end.min(data.live.len());
            if wanted.start < end {
                let bytes: Arc<[u8]> = vec![0; (end - wanted.start) as usize].into();
                let offset = wanted.start;
                data.change(Change::Write { offset, bytes });
                state.touch(self.ino);
            }
            Ok(true)
        })
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.call(Op::Sync, None, |state, power, _| {
            let data = state.data(self.ino)?;
            if power == Power::On {
                data.sync();
            }
            Ok(())
        });
        if synced.is_err() && !self.disk.lock().power_is_off {
            self.disk.lock().sync_failed(self.ino);
        }
        synced
    }

    fn sync_with_times(&self) -> io::Result<()> {
        self.sync()?;
        self.disk.lock().keep_times(self.ino);
        Ok(())
    }
}

impl FileAttributes for SimFile {
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.call(Op::SetAttributes, None, |state, _, _| {
            let attributes = Attributes {
                mode: Some(mode),
                ..Attributes::default()
            };
            state.set(self.ino, attributes)
        })
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        self.call(Op::SetAttributes, None, |state, _, _| {
            let node = state.node(self.ino)?;
            match node.uid == 0 && node.links > 1 {
                true => Err(errno(libc::EINVAL)),
                false => state.give(self.ino, owner),
            }
        })
    }
}

impl FileLock for SimFile {
    fn try_lock(&self) -> io::Result<bool> {
        self.call(Op::Stat, None, |state, _, _| {
            if state.locks_need_writing && self.how == OpenHow::Read {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(*state.locks.entry(self.ino).or_insert(self.handle) == self.handle)
        })
    }

    /// No other program is simulated, so nothing conflicts.
    fn try_lock_range(&self, _range: Range<u64>, _exclusive: bool) -> io::Result<bool> {
        Ok(true)
    }

    fn unlock_range(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn is_open_elsewhere(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn is_written_elsewhere(&self) -> io::Result<bool> {
        Ok(false)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.locks.get(&self.ino) == Some(&self.handle) {
            state.locks.remove(&self.ino);
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({:?})", self.path)
    }
}
