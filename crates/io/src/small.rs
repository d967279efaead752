//! Small files that are read, changed and replaced: whole or not at all, by one program at a time.
//!
//! ```text
//! lock NAME.lock → read NAME → write NAME.new-PID-N → sync → rename to NAME → sync the directory → unlock
//! ```
//!
//! Invariants
//! - Changes follow one another: none is made of what another program was just replacing.
//! - A reader, and a power cut, finds the file as it was before or after a change, never between.
//! - When a change returns, it is durable.
//! - The lock file stays where it is, so that all lock the same one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Attributes, Clock, Dir, File, OpenHow, Stat, Via};

/// How long a change waits for those of other programs.
const WAIT: Duration = Duration::from_secs(10);
/// Between two looks.
const STEP: Duration = Duration::from_millis(5);
/// What a temporary name goes on with.
const NEW: &str = ".new-";

/// The name of such a file in an open directory.
#[derive(Debug, Clone)]
pub struct SmallFile {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    len_max: usize,
}

impl SmallFile {
    /// `name`: one component. A file of more than `len_max` bytes is refused.
    pub fn new(dir: Arc<dyn Dir>, name: impl Into<PathBuf>, len_max: usize) -> SmallFile {
        SmallFile {
            dir,
            name: name.into(),
            len_max,
        }
    }

    /// What is locked while the file is changed. It stays where it is.
    pub fn lock_name(name: &Path) -> PathBuf {
        with_ending(name, ".lock")
    }

    /// What the file holds; `None`: there is none.
    ///
    /// Errors: also `FileTooLarge`, and what [`Dir::open`] refuses.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match self.dir.open(&self.name, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // No larger than it is: memory of threads that end is kept in pools of their own.
        let told = usize::try_from(file.stat()?.len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; told.min(self.len_max) + 1];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        if told.max(len) > self.len_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// Replaces the file by what `change` makes of it; nothing is written where that is `None`. Blocks while others
    /// change the file, up to 10 seconds. The new file has `mode`.
    ///
    /// Errors: those of `change`; also `WouldBlock`: others went on changing it.
    pub fn change<T, E: From<io::Error>>(
        &self,
        clock: &dyn Clock,
        mode: u32,
        change: impl FnOnce(Option<&[u8]>) -> Result<(Option<Vec<u8>>, T), E>,
    ) -> Result<T, E> {
        let _held = self.lock(clock)?;
        let before = self.read()?;
        let (after, answer) = change(before.as_deref())?;
        if let Some(after) = after {
            self.replace(&after, mode)?;
        }
        Ok(answer)
    }

    fn lock(&self, clock: &dyn Clock) -> io::Result<Arc<dyn File>> {
        let name = SmallFile::lock_name(&self.name);
        let until = clock.now() + WAIT;
        loop {
            let file = match self.dir.open(&name, OpenHow::CreateNew) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    self.dir.open_to_lock(&name)?
                }
                opened => opened?,
            };
            let own = file.stat()?;
            let same = |now: Stat| (now.dev, now.ino) == (own.dev, own.ino);
            // Somebody may have removed it before the lock was ours: others lock another file then.
            if file.try_lock()? && self.dir.stat(&name).is_ok_and(same) {
                return Ok(file);
            }
            if clock.now() >= until {
                let text = format!("{} is locked by another program", name.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
            clock.sleep(STEP);
        }
    }

    /// Under the lock.
    fn replace(&self, bytes: &[u8], mode: u32) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if bytes.len() > self.len_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.remove_leftovers()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = with_ending(&self.name, &format!("{NEW}{}-{number}", std::process::id()));
        let write = || {
            let file = self.dir.open(&new, OpenHow::CreateNew)?;
            file.write_all_at(bytes, 0, Via::Cache)?;
            let attributes = Attributes {
                mode: Some(mode),
                ..Attributes::default()
            };
            self.dir.set_attributes(&new, &attributes)?;
            file.sync()?;
            self.dir.rename(&new, &self.name)
        };
        write().inspect_err(|_| {
            // What cannot be removed now, the next change removes.
            let _left = self.dir.remove_file(&new);
        })?;
        self.dir.sync(Path::new(""))
    }

    /// Of changes that a crash ended: whoever has the lock is the only one that writes such files.
    fn remove_leftovers(&self) -> io::Result<()> {
        let prefix = with_ending(&self.name, NEW);
        let prefix = prefix.as_os_str().as_encoded_bytes();
        for name in self.dir.list()? {
            let name = name?;
            if name.as_encoded_bytes().starts_with(prefix) {
                match self.dir.remove_file(Path::new(&name)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn with_ending(name: &Path, ending: &str) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, HostClock, Storage};

    fn add(file: &SmallFile, line: &str) -> io::Result<()> {
        file.change(&HostClock, 0o600, |before| {
            let mut after = before.unwrap_or_default().to_vec();
            after.extend(line.as_bytes());
            Ok((Some(after), ()))
        })
    }

    #[test]
    fn no_change_of_many_at_once_is_lost() {
        const WRITERS: usize = 8;
        const TIMES: usize = 20;
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = dir.path();
                scope.spawn(move || {
                    for n in 0..TIMES {
                        // Like processes: each opens the directory for itself.
                        let dir = Host::new().dir(path).unwrap();
                        let file = SmallFile::new(dir, "list", 1 << 20);
                        add(&file, &format!("{writer}-{n}\n")).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(dir.path().join("list")).unwrap();
        assert_eq!(text.lines().count(), WRITERS * TIMES);
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "the file and its lock");
    }

    #[test]
    fn a_change_that_fails_leaves_the_file_and_one_that_crashed_leaves_nothing_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let open = Host::new().dir(dir.path()).unwrap();
        let file = SmallFile::new(open, "list", 10);
        assert_eq!(file.read().unwrap(), None);
        add(&file, "one").unwrap();
        let too_long = add(&file, "0123456789").unwrap_err();
        assert_eq!(too_long.kind(), io::ErrorKind::FileTooLarge);
        let refused = file.change(&HostClock, 0o600, |_| -> io::Result<(_, ())> {
            Err(io::ErrorKind::InvalidData.into())
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::write(dir.path().join("list.new-1-1"), "half").unwrap();
        add(&file, "two").unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"onetwo");
        assert!(!dir.path().join("list.new-1-1").exists());
        std::fs::write(dir.path().join("list"), "longer than ten").unwrap();
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_waited_for_and_then_named() {
        let dir = tempfile::tempdir().unwrap();
        let open = Host::new().dir(dir.path()).unwrap();
        let kept = open
            .open(Path::new("list.lock"), OpenHow::CreateNew)
            .unwrap();
        assert!(kept.try_lock().unwrap());
        let file = SmallFile::new(open, "list", 10);
        let clock = crate::SimClock::new(0);
        let refused = file.change(&clock, 0o600, |_| Ok::<_, io::Error>((None, ())));
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("list.lock"), "{refused}");
    }
}
