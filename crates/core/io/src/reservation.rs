//! Reserves a name for one writer where locks may not reach all writers ([`DirRead::keeps_locks`]), by a file that only
//! one of them can create.
//!
//! The file's text names the machine's boot, the mount, the process and a unique number. Its holder locks the file and
//! touches it once a minute. Another writer that finds the file judges it by these rules:
//!
//! - Locked: the holder is alive.
//! - Not locked, and made through this mount since this machine booted: the lock would be visible, so the holder is
//!   dead.
//! - Otherwise: alive if the file was touched within [`STALE`], by the file system's own clock.
//!
//! Invariants
//! - A name has one holder at a time, among all who can see the file.
//! - Nobody removes a file whose text is not the one that was judged.
//!
//! A holder that was stopped or cut off for longer than that learns so from [`Reservation::is_ours`], which it must
//! call before it reports its work as done. Until then it may still write to files that it has open: whoever was given
//! the name by the last rule ([`Reservation::may_have_company`]) must not write to those. Not covered: file systems that
//! let two clients create one name, or that show other clients' names late.
//!
//! Leaves to others: what is written under the name (the callers), and whether locks reach all writers (`host`).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::identity::boot_id;
use crate::storage::{Dir, File, OpenHow, Via};

/// How often the holder touches its file.
const TOUCH: Duration = Duration::from_secs(60);
/// A file made elsewhere and not touched for this long has no living holder.
pub const STALE: Duration = Duration::from_secs(15 * 60);
/// The ending of the mark that an earlier holder may wake, after the reservation's name.
pub const SILENT: &str = ".silent";
/// Longest text that is read, in bytes.
const LEN_MAX: usize = 512;
/// Tries for a name that other writers take and release.
const TRIES_MAX: usize = 3;

/// The thread that touches the file, and the channel that ends it.
type Toucher = (Sender<()>, JoinHandle<()>);

/// A reservation that this process holds; dropping it releases the name.
#[derive(Debug)]
pub struct Reservation {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    text: String,
    /// Held open because it carries the lock.
    _file: Arc<dyn File>,
    /// Whether the holder before it was taken for dead because of a time alone.
    by_time: bool,
    toucher: Option<Toucher>,
}

impl Reservation {
    /// Creates the file `name`; `None` if another writer holds the reservation. Never blocks.
    pub fn take(dir: &Arc<dyn Dir>, name: &Path) -> io::Result<Option<Reservation>> {
        Reservation::take_by(dir, name, &|| Ok(()))
    }

    /// As [`Reservation::take`], for files that the holder before may have open: a mark next to the reservation says that
    /// it may wake, until [`Reservation::settle`], whoever dies meanwhile.
    pub fn take_marking(dir: &Arc<dyn Dir>, name: &Path) -> io::Result<Option<Reservation>> {
        let mark = mark_of(name);
        let make = || match dir.open(&mark, OpenHow::CreateNew).map(drop) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| dir.sync(Path::new(""))),
        };
        let taken = Reservation::take_by(dir, name, &make)?;
        Ok(taken.map(|mut ours| {
            ours.by_time = dir.stat(&mark).is_ok();
            ours
        }))
    }

    /// `before` is called before the reservation of a holder that was taken for dead because of a time is removed.
    fn take_by(
        dir: &Arc<dyn Dir>,
        name: &Path,
        before: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<Option<Reservation>> {
        let mut by_time = false;
        for _ in 0..TRIES_MAX {
            match dir.open(name, OpenHow::CreateNew) {
                Ok(file) => {
                    let mut ours = Self::hold(dir, name, file)?;
                    ours.by_time = by_time;
                    return Ok(Some(ours));
                }
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                Err(_) => {}
            }
            let found = dead(&**dir, name);
            if let Ok(Some(DeadHolder { by_time: true, .. })) = &found {
                before()?;
            }
            match found {
                Ok(Some(holder)) if remove(&**dir, name, &holder.text)? => {
                    by_time |= holder.by_time;
                }
                Ok(_) => return Ok(None),
                // Its holder released it just now.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                // Some file systems refuse to open a file that another client has locked.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    fn hold(dir: &Arc<dyn Dir>, name: &Path, file: Arc<dyn File>) -> io::Result<Reservation> {
        let made = || -> io::Result<(String, Toucher)> {
            // A writer that inspects the file holds the lock for a moment. Without our lock, the touches still show
            // that we live.
            let _locked = file.try_lock()?;
            let (pid, own) = (std::process::id(), uuid::Uuid::new_v4().simple());
            let text = format!("{} {pid} {own}\n", mark(file.stat()?.dev));
            file.write_all_at(text.as_bytes(), 0, Via::Cache)?;
            file.sync()?;
            let toucher = toucher(file.clone(), text.clone())?;
            Ok((text, toucher))
        };
        match made() {
            Ok((text, toucher)) => Ok(Reservation {
                dir: dir.clone(),
                name: name.to_owned(),
                text,
                _file: file,
                by_time: false,
                toucher: Some(toucher),
            }),
            Err(e) => {
                let _left = dir.remove_file(name);
                Err(e)
            }
        }
    }

    /// Whether a holder before may still write: nothing but the time of its last touch said that it is dead.
    pub fn may_have_company(&self) -> bool {
        self.by_time
    }

    /// No name leads any longer to files that a holder before may have open: removes the mark of it.
    pub fn settle(&mut self) -> io::Result<()> {
        self.by_time = false;
        match self.dir.remove_file(&mark_of(&self.name)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Whether this process still holds the reservation: another writer may have taken us for dead.
    pub fn is_ours(&self) -> io::Result<bool> {
        // Opened again, so that no cache answers for another mount.
        match self.dir.open(&self.name, OpenHow::Read) {
            Ok(file) => Ok(text(&*file)? == self.text),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.toucher.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::warn!("the thread that kept a reservation alive panicked");
            }
        }
        // If the file cannot be removed, others ignore it when it is stale; writers on this mount ignore it at once.
        if self.is_ours().unwrap_or(false)
            && let Err(error) = self.dir.remove_file(&self.name)
        {
            tracing::warn!(name = %self.name.display(), %error, "a reservation could not be removed");
        }
    }
}

/// The domain in which locks are visible: one boot of one machine, and one mount.
fn mark(dev: u64) -> String {
    format!("{} {dev}", boot_id().unwrap_or_default())
}

fn text(file: &dyn File) -> io::Result<String> {
    let mut bytes = vec![0; LEN_MAX];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Whether what was touched last at `mtime_ns` has no owner left. Both times are the file system's own.
pub fn is_stale(mtime_ns: i64, now_ns: i64) -> bool {
    let stale = i64::try_from(STALE.as_nanos()).unwrap_or(i64::MAX);
    now_ns.saturating_sub(mtime_ns) > stale
}

/// A reservation whose holder is taken for dead.
struct DeadHolder {
    text: String,
    /// Because it did not touch the file for long; a lock would not be visible.
    by_time: bool,
}

/// The holder if it is dead; `None` if it is alive.
fn dead(dir: &dyn Dir, name: &Path) -> io::Result<Option<DeadHolder>> {
    let file = dir.open_to_lock(name)?;
    if !file.try_lock()? {
        return Ok(None);
    }
    let (text, stat) = (text(&*file)?, file.stat()?);
    let here = boot_id().is_some() && text.starts_with(&format!("{} ", mark(stat.dev)));
    let is_dead = here || is_stale(stat.mtime_ns, now_ns(dir, name)?);
    let by_time = !here;
    Ok(is_dead.then_some(DeadHolder { text, by_time }))
}

/// Removes a dead holder's file. Renames it first, because another writer may have removed it and created a new one.
fn remove(dir: &dyn Dir, name: &Path, dead: &str) -> io::Result<bool> {
    let aside = beside(name);
    dir.rename(name, &aside)?;
    if text(&*dir.open(&aside, OpenHow::Read)?)? != dead {
        dir.rename(&aside, name)?;
        return Ok(false);
    }
    dir.remove_file(&aside)?;
    Ok(true)
}

/// The file system's time, in nanoseconds since the Unix epoch.
fn now_ns(dir: &dyn Dir, name: &Path) -> io::Result<i64> {
    let probe = beside(name);
    let file = dir.open(&probe, OpenHow::CreateNew)?;
    let now = file
        .write_all_at(b"\n", 0, Via::Cache)
        .and_then(|()| file.sync())
        .and_then(|()| file.stat());
    dir.remove_file(&probe)?;
    Ok(now?.mtime_ns)
}

/// The mark of a reservation whose holder may wake.
fn mark_of(name: &Path) -> PathBuf {
    let mut mark = name.as_os_str().to_owned();
    mark.push(SILENT);
    mark.into()
}

fn beside(name: &Path) -> PathBuf {
    let mut beside = name.as_os_str().to_owned();
    beside.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    beside.into()
}

fn toucher(file: Arc<dyn File>, text: String) -> io::Result<Toucher> {
    let (stop, stopped) = mpsc::channel::<()>();
    let work = move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TOUCH) {
            let touched = file.write_all_at(text.as_bytes(), 0, Via::Cache);
            if let Err(error) = touched.and_then(|()| file.sync()) {
                tracing::warn!(%error, "a reservation could not be kept alive");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("reservation".into())
        .spawn(work)?;
    Ok((stop, thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimDisk, Storage};

    const NAME: &str = "x.bak.longshore-writing";

    fn stage() -> (SimDisk, Arc<dyn Dir>) {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir_all(Path::new("/d")).unwrap();
        (disk, dir)
    }

    fn take(dir: &Arc<dyn Dir>) -> Option<Reservation> {
        Reservation::take(dir, Path::new(NAME)).unwrap()
    }

    #[test]
    fn a_place_has_one_holder_at_a_time_and_nothing_is_left() {
        let (disk, dir) = stage();
        let first = take(&dir).unwrap();
        assert!(take(&dir).is_none());
        assert!(first.is_ours().unwrap());
        drop(first);
        let second = take(&dir).unwrap();
        drop(second);
        let left = disk.paths();
        assert!(
            left.iter().all(|path| path != &Path::new("/d").join(NAME)),
            "{left:?}"
        );
    }

    #[test]
    fn a_dead_holder_blocks_nobody_on_its_mount_and_others_until_it_is_old() {
        let (disk, dir) = stage();
        let path = Path::new("/d").join(NAME);
        disk.write_file(&path, b"").unwrap();
        let dev = disk.stat(&path).unwrap().dev;
        for (who, is_here) in [
            (mark(dev), true),
            (mark(dev + 1), false),
            (format!("another-boot {dev}"), false),
            (String::new(), false),
        ] {
            disk.write_file(&path, format!("{who} 7 x\n").as_bytes())
                .unwrap();
            let taken = take(&dir);
            assert_eq!(taken.is_some(), is_here, "{who}");
            assert!(taken.is_none_or(|taken| !taken.may_have_company()), "{who}");
            if !is_here {
                let old = crate::Attributes {
                    mtime_ns: Some(disk.stat(&path).unwrap().mtime_ns - 16 * 60 * 1_000_000_000),
                    ..Default::default()
                };
                dir.set_attributes(Path::new(NAME), &old).unwrap();
                let taken = take(&dir).unwrap();
                assert!(taken.may_have_company(), "{who}");
            }
        }
    }

    /// Goal: that a holder may wake is known until it was settled, also if whoever took its place died at any step.
    #[test]
    fn a_silent_holder_is_remembered_until_it_was_settled() {
        let (disk, dir) = stage();
        let path = Path::new("/d").join(NAME);
        let age = |disk: &SimDisk| {
            let old = crate::Attributes {
                mtime_ns: Some(disk.stat(&path).unwrap().mtime_ns - 16 * 60 * 1_000_000_000),
                ..Default::default()
            };
            dir.set_attributes(Path::new(NAME), &old).unwrap();
        };
        let old = |disk: &SimDisk| {
            disk.write_file(&path, b"another-boot 1 7 x\n").unwrap();
            age(disk);
        };
        let take = || Reservation::take_marking(&dir, Path::new(NAME));
        old(&disk);
        let steps = {
            let before = disk.steps();
            let mut taken = take().unwrap().unwrap();
            assert!(taken.may_have_company());
            taken.settle().unwrap();
            assert!(!taken.may_have_company());
            drop(taken);
            assert!(!take().unwrap().unwrap().may_have_company());
            disk.steps() - before
        };
        for step in 0..steps {
            old(&disk);
            let from = disk.steps() + step;
            let _broken = disk.inject(crate::Fault::errno(5).from_step(from));
            let killed = take();
            let was_whole = killed.is_ok();
            drop(killed);
            let _mended = disk.heal();
            // A reservation without a text may be anybody's until it is old.
            let next = take().unwrap().or_else(|| {
                age(&disk);
                take().unwrap()
            });
            let mut next = next.unwrap();
            assert!(next.may_have_company(), "step {step}, {was_whole}");
            next.settle().unwrap();
        }
    }

    #[test]
    fn a_holder_taken_for_dead_notices_and_leaves_the_new_holders_file() {
        let (disk, dir) = stage();
        let path = Path::new("/d").join(NAME);
        let first = take(&dir).unwrap();
        disk.write_file(&path, b"other 1 7 y\n").unwrap();
        assert!(!first.is_ours().unwrap());
        drop(first);
        assert_eq!(disk.read_file(&path).unwrap(), b"other 1 7 y\n");
        dir.remove_file(Path::new(NAME)).unwrap();
        let gone = take(&dir).unwrap();
        dir.remove_file(Path::new(NAME)).unwrap();
        assert!(!gone.is_ours().unwrap());
    }
}
