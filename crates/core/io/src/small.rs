//! Small files that are read, changed and replaced as a whole, by one program at a time.
//!
//! ```text
//! lock NAME.lock → read NAME → write NAME.new-PID-N → sync → rename to NAME → sync the directory → unlock
//! ```
//!
//! Invariants
//! - Changes are serialized: no change is based on content that another program is replacing.
//! - A reader, and a power cut, finds the file as it was before or after a change, never in between.
//! - When a change returns, the file is durable as it then is, whoever made it.
//! - The lock file is never removed, so that all programs lock the same file.
//! - A file of its directory ([`SmallFile::of_its_directory`]) belongs to the directory's owner, whoever changes it with the right
//!   to give files away. Owner and mode are set by the open file: who may change names there cannot have another file changed.
//!
//! Leaves to others: the meaning of a file's content (the callers).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, Dir, File, OpenHow, Stat, Via};

/// How long a change waits for changes by other programs.
const WAIT: Duration = Duration::from_secs(10);
/// The interval between tries.
const STEP: Duration = Duration::from_millis(5);
/// The infix of temporary names.
const NEW: &str = ".new-";

/// One such file in an open directory.
#[derive(Debug, Clone)]
pub struct SmallFile {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    len_max: usize,
    is_of_directory: bool,
}

impl SmallFile {
    /// `name` is one component. Files of more than `len_max` bytes are refused.
    pub fn new(dir: Arc<dyn Dir>, name: impl Into<PathBuf>, len_max: usize) -> SmallFile {
        SmallFile {
            dir,
            name: name.into(),
            len_max,
            is_of_directory: false,
        }
    }

    /// The same, where the directory's owner has to read and to change what root writes. The owner can read the content then.
    pub fn of_its_directory(self) -> SmallFile {
        SmallFile {
            is_of_directory: true,
            ..self
        }
    }

    /// The name of the file that is locked during a change. That file is never removed.
    pub fn lock_name(name: &Path) -> PathBuf {
        with_ending(name, ".lock")
    }

    /// The file's content; `None` if there is no file.
    ///
    /// Errors: also `FileTooLarge`, and those of [`DirRead::open`].
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match self.dir.open(&self.name, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // Sized by the file, not by `len_max`: the allocator keeps a pool for each thread, even after the thread has
        // ended.
        let told = usize::try_from(file.stat()?.len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; told.min(self.len_max) + 1];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        if told.max(len) > self.len_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// Replaces the file with the result of `change`; writes nothing if that is `None`. The new file has `mode`.
    /// Blocks for up to 10 seconds while other programs change the file.
    ///
    /// Errors: those of `change`; also `WouldBlock` if other programs keep changing the file.
    pub fn change<T, E: From<io::Error>>(
        &self,
        clock: &dyn Clock,
        mode: u32,
        change: impl FnOnce(Option<&[u8]>) -> Result<(Option<Vec<u8>>, T), E>,
    ) -> Result<T, E> {
        let _held = self.lock(clock)?;
        let before = self.read()?;
        let (after, answer) = change(before.as_deref())?;
        match after {
            Some(after) => self.replace(&after, mode)?,
            // The process that made it may have been killed before its name was durable, and the caller relies on it
            // from now on.
            None if before.is_some() => self.dir.sync(Path::new(""))?,
            None => {}
        }
        Ok(answer)
    }

    fn lock(&self, clock: &dyn Clock) -> io::Result<Arc<dyn File>> {
        let name = SmallFile::lock_name(&self.name);
        let until = clock.now() + WAIT;
        loop {
            let file = match self.make(&name) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    let file = self.dir.open_to_lock(&name)?;
                    // An earlier change may have been killed before it could.
                    if self.is_of_directory {
                        self.dir.give_to_its_owner(&*file)?;
                    }
                    file
                }
                made => made?,
            };
            let own = file.stat()?;
            let same = |now: Stat| (now.dev, now.ino) == (own.dev, own.ino);
            // If the lock file was removed before we had the lock, other programs lock a different file.
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

    /// A new file, with the owner that it is to have.
    fn make(&self, name: &Path) -> io::Result<Arc<dyn File>> {
        match self.is_of_directory {
            true => self.dir.create_for_its_owner(name),
            false => self.dir.open(name, OpenHow::CreateNew),
        }
    }

    /// Replaces the file. The caller must hold the lock.
    fn replace(&self, bytes: &[u8], mode: u32) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if bytes.len() > self.len_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.remove_leftovers()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = with_ending(&self.name, &format!("{NEW}{}-{number}", std::process::id()));
        let write = || {
            let file = self.make(&new)?;
            file.write_all_at(bytes, 0, Via::Cache)?;
            file.set_mode(mode)?;
            file.sync()?;
            self.dir.rename(&new, &self.name)
        };
        write().inspect_err(|_| {
            // If this cannot be removed now, the next change removes it.
            let _left = self.dir.remove_file(&new);
        })?;
        self.dir.sync(Path::new(""))
    }

    /// Removes the temporary files of changes that a crash ended. Only the holder of the lock writes such files.
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
    use crate::{Attributes, Fault, Host, HostClock, Op, SimClock, SimDisk, Storage};

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
                        // Each opens the directory itself, as separate processes would.
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

    /// A disk with the file, or none yet.
    fn disk(seed: u64, before: Option<&[u8]>) -> (SimDisk, SmallFile) {
        let disk = SimDisk::new(seed);
        disk.write_file("/d/other", b"").unwrap();
        if let Some(before) = before {
            disk.write_file("/d/list", before).unwrap();
        }
        let dir = disk.dir(Path::new("/d")).unwrap();
        (disk, SmallFile::new(dir, "list", 100))
    }

    fn put(file: &SmallFile, after: Option<&[u8]>) -> io::Result<()> {
        let after = after.map(<[u8]>::to_vec);
        file.change(&SimClock::new(0), 0o600, |_| Ok((after, ())))
    }

    /// Whether some image is neither the file before nor after, or not after though that was told.
    fn is_lost(disk: &SimDisk, told: bool, before: Option<&[u8]>, after: &[u8]) -> bool {
        disk.images(9).iter().any(|image| {
            let found = image.read_file("/d/list").ok();
            let is_after = found.as_deref() == Some(after);
            !is_after && (told || found.as_deref() != before)
        })
    }

    /// Goal: a power cut leaves the file as it was before or after a change, and after it once that was told. Without
    /// any of the syncs this test fails.
    #[test]
    fn a_power_cut_at_any_step_of_a_change_leaves_all_of_it_or_nothing() {
        for before in [None, Some(&b"before"[..])] {
            let after = &[7; 2000][..100];
            let (whole, file) = disk(0, before);
            put(&file, Some(after)).unwrap();
            let lost_with = |fault: Option<Fault>| {
                (0..=whole.steps()).any(|step| {
                    let (disk, file) = disk(step, before);
                    disk.cut_power_at(step);
                    fault
                        .iter()
                        .for_each(|fault| drop(disk.inject(fault.clone())));
                    let told = put(&file, Some(after)).is_ok();
                    is_lost(&disk, told, before, after)
                })
            };
            assert!(!lost_with(None));
            for op in [Op::Sync, Op::SyncDir] {
                assert!(lost_with(Some(Fault::forgotten_sync().on(op))), "{op:?}");
            }
        }
    }

    /// Goal: who finds the file as it should be relies on it. So it is durable, also if its writer was killed before.
    #[test]
    fn a_file_that_is_left_as_it_is_outlives_a_power_cut_though_its_writer_was_killed() {
        let (whole, file) = disk(0, None);
        put(&file, Some(b"after")).unwrap();
        for is_forgotten in [false, true] {
            // For each step at which a writer was killed: was its file found, and lost again?
            let lost = (0..whole.steps()).filter_map(|step| {
                let (disk, file) = disk(step, None);
                disk.inject(Fault::errno(libc::EIO).from_step(step));
                put(&file, Some(b"after")).unwrap_err();
                disk.heal();
                file.read().unwrap()?;
                if is_forgotten {
                    disk.inject(Fault::forgotten_sync().on(Op::SyncDir));
                }
                put(&file, None).unwrap();
                Some(is_lost(&disk, true, None, b"after"))
            });
            let lost: Vec<bool> = lost.collect();
            assert_eq!(lost, [is_forgotten], "one step is between name and sync");
        }
    }

    /// The owner of the directory, who may change names in it.
    const OWNER: (u32, u32) = (26, 26);

    /// A directory of the owner's, in which root has two files, one of them without content.
    struct Owned {
        disk: SimDisk,
        dir: Arc<dyn Dir>,
        file: SmallFile,
        roots: [Arc<dyn File>; 2],
    }

    impl Owned {
        fn new() -> Owned {
            let (disk, file) = disk(0, None);
            disk.write_file("/d/empty", b"").unwrap();
            disk.write_file("/d/full", b"secret").unwrap();
            let dir = disk.dir(Path::new("/d")).unwrap();
            own(&*dir, "", OWNER);
            let open = |name| dir.open(Path::new(name), OpenHow::Read).unwrap();
            let roots = ["empty", "full"].map(open);
            let file = file.of_its_directory();
            Owned {
                disk,
                dir,
                file,
                roots,
            }
        }

        fn put(&self) -> io::Result<()> {
            put(&self.file, Some(b"after"))
        }

        fn owner_of(&self, name: &str) -> (u32, u32) {
            let stat = self.dir.stat(Path::new(name)).unwrap();
            (stat.uid, stat.gid)
        }

        /// Fails if root has lost one of its files, or the mode of one was changed.
        fn root_has_its_files(&self, at: &str) {
            for file in &self.roots {
                let stat = file.stat().unwrap();
                assert_eq!((stat.uid, stat.gid, stat.mode), (0, 0, 0o644), "{at}");
            }
        }
    }

    fn own(dir: &dyn Dir, name: &str, owner: (u32, u32)) {
        let attributes = Attributes {
            owner: Some(owner),
            ..Attributes::default()
        };
        dir.set_attributes(Path::new(name), &attributes).unwrap();
    }

    /// Has a file of root's take all names of the small file: by a hard link, or as its only name.
    fn take_the_names(dir: &dyn Dir, by_link: bool) {
        for name in dir.list().unwrap().map(Result::unwrap) {
            if !name.as_encoded_bytes().starts_with(b"list") {
                continue;
            }
            let name = Path::new(&name);
            dir.remove_file(name).unwrap();
            match by_link {
                true => dir.hard_link(Path::new("empty"), name).unwrap(),
                // Only the first one finds it.
                false => drop(dir.rename(Path::new("full"), name)),
            }
        }
    }

    /// Goal: the owner of the directory gets no file of root's by exchanging names, at whatever call.
    #[test]
    fn a_file_that_takes_the_name_during_any_call_is_not_given_away() {
        let whole = Owned::new();
        whole.put().unwrap();
        for name in ["list", "list.lock"] {
            assert_eq!(whole.owner_of(name), OWNER, "{name}");
        }
        for by_link in [true, false] {
            let mut exchanged = 0;
            for call in 1.. {
                let owned = Owned::new();
                let dir = owned.dir.clone();
                let is_done = Arc::new(AtomicU64::new(0));
                let done = is_done.clone();
                let exchange = Fault::meanwhile(move || {
                    done.store(1, Ordering::Relaxed);
                    take_the_names(&*dir, by_link);
                });
                owned.disk.inject(exchange.nth(call).times(1));
                // Some are refused, and some are not the file's any longer.
                let _refused = owned.put();
                if is_done.load(Ordering::Relaxed) == 0 {
                    break;
                }
                owned.root_has_its_files(&format!("call {call}, by a link: {by_link}"));
                exchanged += 1;
            }
            assert!(exchanged > 10, "{exchanged}");
        }
    }

    #[test]
    fn a_lock_that_is_a_link_or_has_content_is_refused_and_a_third_users_is_left() {
        type Lock = fn(&dyn Dir) -> io::Result<()>;
        let lock = Path::new("list.lock");
        let locks: [(&str, Lock); 3] = [
            ("a hard link", |dir| {
                dir.hard_link(Path::new("empty"), Path::new("list.lock"))
            }),
            ("a symbolic link", |dir| {
                dir.symlink(Path::new("empty"), Path::new("list.lock"))
            }),
            ("a file with content", |dir| {
                dir.rename(Path::new("full"), Path::new("list.lock"))
            }),
        ];
        for (of, put_there) in locks {
            let owned = Owned::new();
            put_there(&*owned.dir).unwrap();
            owned.put().expect_err(of);
            owned.root_has_its_files(of);
        }
        let owned = Owned::new();
        drop(owned.dir.open(lock, OpenHow::CreateNew).unwrap());
        own(&*owned.dir, "list.lock", (7, 7));
        owned.put().unwrap();
        assert_eq!(owned.owner_of("list.lock"), (7, 7));
        assert_eq!(owned.owner_of("list"), OWNER);
    }

    #[test]
    fn a_lock_that_a_killed_change_left_to_root_is_given() {
        let owned = Owned::new();
        let lock = Path::new("list.lock");
        drop(owned.dir.open(lock, OpenHow::CreateNew).unwrap());
        owned.put().unwrap();
        assert_eq!(owned.owner_of("list.lock"), OWNER);
    }

    /// The owner could not open a lock that stays another user's, and would never change anything again.
    #[test]
    fn without_the_right_to_give_a_change_fails_and_leaves_no_lock() {
        let owned = Owned::new();
        let without = Fault::errno(libc::EPERM).on(Op::SetAttributes);
        owned.disk.inject(without);
        let refused = owned.put().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(owned.dir.stat(Path::new("list.lock")).is_err());
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
