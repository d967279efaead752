//! The register of claimed files: files whose descriptors this process must not close now.
//!
//! SQLite's locks are POSIX record locks. When the process that holds them closes any descriptor of the file, for
//! whatever purpose that descriptor was opened, the kernel silently drops all of them. A writer then commits in the
//! middle of a backup (20 of 20 copies were damaged in our trial). So every regular file of this crate is closed by
//! [`close`], and every owner of such locks claims its files before it takes them.
//!
//! Invariants
//! - A descriptor of a claimed file is parked with the claim and closed when the last claim on the file ends.
//! - A new claim waits for closes in progress, and no close overlaps the start of a claim: a lock taken after the claim
//!   cannot be dropped by a close that was decided before it.
//! - A file claimed by a snapshot is not opened for anybody else. The register is asked by device and inode before the
//!   open, so that another name (hard link, bind mount, `/proc/self/fd`) makes no difference. It is asked again after
//!   the open, because the name may have changed in between; a descriptor opened by then is parked.
//!
//! Leaves to others: descriptors that SQLite's library itself closes (the library has such a register of its own), and
//! the order in which an owner releases them: the connection first, the claim last.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rustix::fs::FlockOperation;

use crate::storage::{FileKind, Stat};

/// The identity of a file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    dev: u64,
    ino: u64,
}

impl Id {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
        }
    }

    // The widths of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn of_raw(stat: &rustix::fs::Stat) -> Self {
        Self {
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
        }
    }
}

/// The descriptors of one open file.
pub(super) type Descriptors = [Option<OwnedFd>; 2];

/// Locks that belong to a handle end with the handle, even while its descriptors stay parked.
fn unlock(descriptors: &Descriptors) {
    for fd in descriptors.iter().flatten() {
        let _ended = rustix::fs::flock(fd, FlockOperation::Unlock);
        // SAFETY: `zeroed` demands a type for which zeros are valid: a structure of integers; 0 to 0 is the whole file.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_UNLCK as libc::c_short;
        // SAFETY: fcntl demands an open descriptor and a lock to read: the structure outlives the call.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    }
}

/// The claims on a file, and the descriptors parked until they end.
#[derive(Default)]
struct ClaimedFile {
    snapshot: bool,
    connections: usize,
    parked: Vec<Descriptors>,
}

#[derive(Default)]
struct Register {
    files: HashMap<Id, ClaimedFile>,
    /// While this is not 0, no descriptor at all is closed.
    hushes: usize,
    hushed: Vec<(Id, Descriptors)>,
}

static REGISTER: LazyLock<RwLock<Register>> = LazyLock::new(RwLock::default);

/// The number of files that snapshots claim. While it is 0, an open need not ask.
static SNAPSHOTS: AtomicUsize = AtomicUsize::new(0);

impl Register {
    fn may_close(&self, id: Id) -> bool {
        self.hushes == 0 && !self.files.contains_key(&id)
    }

    /// Closes the descriptors or parks them. Called with the register locked, so that no claim begins during the call.
    fn close(&mut self, id: Id, descriptors: Descriptors) {
        match self.files.get_mut(&id) {
            Some(claimed) => {
                unlock(&descriptors);
                claimed.parked.push(descriptors);
            }
            None if self.hushes > 0 => {
                unlock(&descriptors);
                self.hushed.push((id, descriptors));
            }
            None => drop(descriptors),
        }
    }
}

/// Closes a file's descriptors as soon as no claim forbids it.
pub(super) fn close(id: Id, descriptors: Descriptors) {
    // The descriptors are closed under the read lock: a new claim waits, other closes do not.
    let register = REGISTER.read();
    if register.may_close(id) {
        drop(descriptors);
        return;
    }
    drop(register);
    REGISTER.write().close(id, descriptors);
}

/// Whether a snapshot claims any file.
pub(super) fn any() -> bool {
    SNAPSHOTS.load(Ordering::Acquire) > 0
}

/// Errors: [`InUse`] when a snapshot of this process has the file.
pub(super) fn check(id: Id) -> Result<(), InUse> {
    match any() && REGISTER.read().files.get(&id).is_some_and(|c| c.snapshot) {
        true => Err(InUse),
        false => Ok(()),
    }
}

/// A backup in this process holds SQLite's locks on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a backup in this process holds SQLite's locks on it")]
pub struct InUse;

impl InUse {
    /// Whether an open failed because of this.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|e| e.is::<InUse>())
    }
}

impl From<InUse> for io::Error {
    fn from(refused: InUse) -> Self {
        io::Error::new(io::ErrorKind::ResourceBusy, refused)
    }
}

/// The right to hold SQLite's locks on a file. Ends when dropped; drop the connection first.
#[derive(Debug)]
pub struct Claim {
    id: Id,
    snapshot: bool,
}

impl Claim {
    /// Claims a file for a snapshot that reads the file's bytes itself: nothing else in this process can open the file
    /// until the claim ends. The snapshot must open the file first.
    ///
    /// Errors: another snapshot has claimed it.
    pub fn of_snapshot(stat: &Stat) -> Result<Self, InUse> {
        let id = Id::of(stat);
        let mut register = REGISTER.write();
        let claimed = register.files.entry(id).or_default();
        if claimed.snapshot {
            return Err(InUse);
        }
        claimed.snapshot = true;
        SNAPSHOTS.fetch_add(1, Ordering::AcqRel);
        Ok(Self { id, snapshot: true })
    }

    /// Claims a file for a connection of SQLite's library. Others can still open and read the file.
    pub fn of_connection(stat: &Stat) -> Self {
        let id = Id::of(stat);
        let mut register = REGISTER.write();
        register.files.entry(id).or_default().connections += 1;
        Self {
            id,
            snapshot: false,
        }
    }

    /// Whether this is a claim on that file.
    pub fn is_of(&self, stat: &Stat) -> bool {
        self.id == Id::of(stat)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut register = REGISTER.write();
        let Some(claimed) = register.files.get_mut(&self.id) else {
            return;
        };
        if self.snapshot {
            claimed.snapshot = false;
            SNAPSHOTS.fetch_sub(1, Ordering::AcqRel);
        } else {
            claimed.connections -= 1;
        }
        if claimed.snapshot || claimed.connections > 0 {
            return;
        }
        let ended = register.files.remove(&self.id);
        // Closed before the file can be claimed again.
        for descriptors in ended.into_iter().flat_map(|claimed| claimed.parked) {
            register.close(self.id, descriptors);
        }
    }
}

/// While one exists, this process closes no file. It covers the moment between the creation of a file that carries
/// locks and the claim on that file. Keep it short, because descriptors pile up.
#[derive(Debug)]
pub struct Hush(());

impl Hush {
    pub fn begin() -> Self {
        REGISTER.write().hushes += 1;
        Self(())
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        let mut register = REGISTER.write();
        register.hushes -= 1;
        if register.hushes == 0 {
            for (id, descriptors) in std::mem::take(&mut register.hushed) {
                register.close(id, descriptors);
            }
        }
    }
}

/// The claims of one connection of SQLite's library: on the database file, and on the shared-memory file that carries
/// the WAL's locks.
#[derive(Debug)]
pub struct ConnectionClaims {
    paths: [PathBuf; 2],
    claims: Vec<Claim>,
}

impl ConnectionClaims {
    /// Opens a connection to the database at `path` with `open`. `open` should also read once without waiting, because
    /// the first read creates the WAL's shared-memory file. Drop the connection before the claims.
    pub fn around<T>(path: &Path, open: impl FnOnce() -> T) -> (Self, T) {
        let mut shared_memory = path.as_os_str().to_owned();
        shared_memory.push("-shm");
        let mut claims = Self {
            paths: [path.into(), shared_memory.into()],
            claims: Vec::new(),
        };
        let _hush = Hush::begin();
        let opened = open();
        claims.renew();
        (claims, opened)
    }

    /// Also claims files that the connection has created since.
    pub fn renew(&mut self) {
        for path in &self.paths {
            if let Ok(stat) = super::stat::at(path)
                && stat.kind == FileKind::File
                && !self.claims.iter().any(|claim| claim.is_of(&stat))
            {
                self.claims.push(Claim::of_connection(&stat));
            }
        }
    }
}
