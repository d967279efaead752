//! A place reserved for one writer, where locks may not reach all of them ([`Dir::keeps_locks`]): by a file that only one
//! of them can make.
//!
//! Its text names the machine's boot, the mount and the process, and a number of its own; its holder locks it and touches
//! it once a minute. Somebody else who finds it judges it by that:
//!
//! - Locked: the holder lives.
//! - Not locked, and made through this mount since this machine started: the lock would be seen, so the holder is dead.
//! - Else: alive as long as it was touched within [`STALE`], by the file system's own clock.
//!
//! A holder that was stopped or cut off for longer than that finds out by [`Reservation::is_ours`] before it tells anybody
//! that its work is done. Not covered: file systems that make one name twice, or show others' names late.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::facts;
use crate::storage::{Dir, File, OpenHow, Via};

/// How often a holder touches its file.
const TOUCH: Duration = Duration::from_secs(60);
/// What was not touched for so long, and was made elsewhere, is nobody's.
const STALE: Duration = Duration::from_secs(15 * 60);
/// Longest text that is read.
const LEN_MAX: usize = 512;
/// Tries for a name that others take and give back.
const TRIES_MAX: usize = 3;

/// The thread that keeps it alive, and what ends that.
type Toucher = (Sender<()>, JoinHandle<()>);

/// A reservation of ours; dropping it gives the place back.
#[derive(Debug)]
pub struct Reservation {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    text: String,
    /// Carries the lock.
    _file: Arc<dyn File>,
    toucher: Option<Toucher>,
}

impl Reservation {
    /// Makes the file `name`; `None` where somebody else holds the reservation. Never blocks.
    pub fn take(dir: &Arc<dyn Dir>, name: &Path) -> io::Result<Option<Reservation>> {
        for _ in 0..TRIES_MAX {
            match dir.open(name, OpenHow::CreateNew) {
                Ok(file) => return Self::hold(dir, name, file).map(Some),
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                Err(_) => {}
            }
            match dead(&**dir, name) {
                Ok(Some(text)) if remove(&**dir, name, &text)? => {}
                Ok(_) => return Ok(None),
                // Given back at this moment.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                // Some file systems show nobody what another one has locked.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    fn hold(dir: &Arc<dyn Dir>, name: &Path, file: Arc<dyn File>) -> io::Result<Reservation> {
        let made = || -> io::Result<(String, Toucher)> {
            // Somebody who looks at it holds the lock for a moment; without ours, the touching tells as well.
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
                toucher: Some(toucher),
            }),
            Err(e) => {
                let _left = dir.remove_file(name);
                Err(e)
            }
        }
    }

    /// Whether nobody has taken the place from us meanwhile, as from somebody who died.
    pub fn is_ours(&self) -> io::Result<bool> {
        // Opened anew, so that no cache answers for another mount.
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
        // One that cannot be removed is nobody's after a while, and at once through this mount.
        if self.is_ours().unwrap_or(false)
            && let Err(error) = self.dir.remove_file(&self.name)
        {
            tracing::warn!(name = %self.name.display(), %error, "a reservation could not be removed");
        }
    }
}

/// Where locks are seen: the same boot of the same machine, and the same mount.
fn mark(dev: u64) -> String {
    format!("{} {dev}", facts::boot_id().unwrap_or_default())
}

fn text(file: &dyn File) -> io::Result<String> {
    let mut bytes = vec![0; LEN_MAX];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// The text of a reservation whose holder is dead; `None`: it lives.
fn dead(dir: &dyn Dir, name: &Path) -> io::Result<Option<String>> {
    let file = dir.open_to_lock(name)?;
    if !file.try_lock()? {
        return Ok(None);
    }
    let (text, stat) = (text(&*file)?, file.stat()?);
    let here = facts::boot_id().is_some() && text.starts_with(&format!("{} ", mark(stat.dev)));
    let stale = i64::try_from(STALE.as_nanos()).unwrap_or(i64::MAX);
    let is_dead = here || now_ns(dir, name)?.saturating_sub(stat.mtime_ns) > stale;
    Ok(is_dead.then_some(text))
}

/// Takes a dead holder's file away: by another name first, since somebody else may have done so and made a new one.
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
    fn a_dead_holder_of_this_mount_keeps_nobody_out_and_one_elsewhere_until_it_is_old() {
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
            assert_eq!(take(&dir).is_some(), is_here, "{who}");
            if !is_here {
                let old = crate::Attributes {
                    mtime_ns: Some(disk.stat(&path).unwrap().mtime_ns - 16 * 60 * 1_000_000_000),
                    ..Default::default()
                };
                dir.set_attributes(Path::new(NAME), &old).unwrap();
                assert!(take(&dir).is_some(), "{who}");
            }
        }
    }

    #[test]
    fn who_was_taken_for_dead_finds_out_and_leaves_the_others_file() {
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
