//! Leases: which program uses a directory of a target, and whether it is still alive.
//!
//! A lease is a small file in the directory that is used, `.longshore-lease-USE.BOOT.PID.ID.DEV`. Its name has
//! everything needed to judge it; its content is only the host, for people. Its holder keeps an exclusive `flock` on
//! it, touches it once a minute, and removes it at an orderly end.
//!
//! Invariants: the rules by which other programs judge a lease
//! - Locked: the holder is alive.
//! - Not locked, and written through this same file system of the running kernel: the holder is dead. BOOT identifies
//!   the kernel's run, and DEV is the directory's device number. A device number is not reused while a file is open
//!   there, so both together prove that the holder's lock would be visible. BOOT alone does not: two mounts of one
//!   FUSE file system, or two containers with a mount each, share no locks.
//! - The lock cannot be tested, because the file belongs to another user or cannot be locked: alive if it was touched
//!   within [`STALE`].
//! - Not locked, and written elsewhere, through another mount, or without a DEV by an earlier version: alive if it was
//!   touched within [`STALE`], by the file system's own clock. Where locks reach other hosts (NFS version 4, most
//!   cluster file systems) this errs on the safe side only; where they do not, it is the only protection.
//!
//! Not detected: a holder on another host or mount, on a file system whose locks are local, that is stopped or cut off
//! for longer than [`STALE`] and then continues; and directories that two hosts reach through file systems that show
//! each other's new names later than that.
//!
//! Leaves to others: leases in buckets (`place/object_lease.rs`), and what a live lease forbids (the callers).
//!
//! [`STALE`]: longshore_io::STALE

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_facts as facts;
use longshore_io::{Clock, Dir, File, FileKind, OpenHow, Via, boot_id, is_stale};
use uuid::Uuid;

/// How often a holder touches its lease.
const TOUCH: Duration = Duration::from_secs(60);

pub(crate) const PREFIX: &str = ".longshore-lease-";

/// Longest content of a lease that is read, in bytes.
const LEN_MAX: usize = 1024;

/// The purpose of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The directory's backup is being written.
    Backup,
    /// The backup is being read: a restore, a verification, the parent of a differential.
    Read,
    /// Backups of the database are being removed.
    Expire,
}

impl Use {
    pub fn text(self) -> &'static str {
        match self {
            Use::Backup => "backup",
            Use::Read => "read",
            Use::Expire => "expire",
        }
    }

    fn parse(text: &str) -> Option<Use> {
        [Use::Backup, Use::Read, Use::Expire]
            .into_iter()
            .find(|u| u.text() == text)
    }
}

/// The holder of a lease, according to the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `None` if the lease's name is not one of ours.
    pub what: Option<Use>,
    pub host: String,
    pub pid: u32,
    /// What tells the process from others of its number ([`facts::process_mark`]); empty: not known, as where a lock tells
    /// who is alive.
    process: String,
    boot: String,
    /// The directory's device number, as seen by the holder.
    dev: Option<u64>,
}

impl Holder {
    /// For messages: `backup by process 4711 on host db1`.
    pub fn text(&self) -> String {
        let what = self.what.map_or("something", Use::text);
        match self.host.as_str() {
            "" => format!("{what} by process {} on an unknown host", self.pid),
            host => format!("{what} by process {} on host {host}", self.pid),
        }
    }

    fn us(what: Use, dir: &dyn Dir) -> io::Result<Holder> {
        Ok(Holder {
            dev: Some(file_system(dir)?),
            process: String::new(),
            ..Holder::anywhere(what)
        })
    }

    /// This process, where there are no locks.
    pub(crate) fn anywhere(what: Use) -> Holder {
        Holder {
            what: Some(what),
            host: facts::host_name(),
            pid: std::process::id(),
            process: facts::process_mark().unwrap_or_default(),
            boot: boot_id().unwrap_or_default(),
            dev: None,
        }
    }

    /// Whether both are of one process. Containers share host names and numbers of processes, and what tells them apart is
    /// not known of every lease.
    pub(crate) fn is_same_process(&self, other: &Holder) -> bool {
        let marks = [&self.process, &other.process];
        let is_same_mark = marks[0] == marks[1] || marks.iter().any(|mark| mark.is_empty());
        let of = |holder: &Holder| (holder.host.clone(), holder.pid, holder.boot.clone());
        of(self) == of(other) && is_same_mark
    }

    /// The name of a new lease.
    pub(crate) fn name(&self) -> PathBuf {
        let (what, id) = (self.what.map_or("", Use::text), Uuid::new_v4().simple());
        let dev = self.dev.map_or(String::new(), |dev| format!(".{dev:x}"));
        format!("{PREFIX}{what}.{}.{}.{id}{dev}", self.boot, self.pid).into()
    }

    /// Parses a lease's name and content, as far as possible.
    pub(crate) fn read(name: &str, content: &str) -> Holder {
        let rest = name.strip_prefix(PREFIX).unwrap_or("");
        let mut parts = rest.split('.');
        let mut part = || parts.next().unwrap_or("");
        Holder {
            what: Use::parse(part()),
            boot: part().to_owned(),
            pid: part().parse().unwrap_or(0),
            dev: {
                let _id = part();
                u64::from_str_radix(part(), 16).ok()
            },
            host: line(content, "host "),
            process: line(content, "process "),
        }
    }

    /// The content of its lease, where there are no locks.
    pub(crate) fn content(&self) -> String {
        let (host, process) = (&self.host, &self.process);
        match process.as_str() {
            "" => format!("host {host}\n"),
            process => format!("host {host}\nprocess {process}\n"),
        }
    }

    /// Whether its process ran on this machine since the machine was started, and has ended for certain.
    pub(crate) fn has_ended(&self) -> bool {
        let is_here = boot_id().is_some_and(|boot| boot == self.boot);
        // A machine that was cloned while it ran has the same boot, and perhaps another name.
        is_here && self.host == facts::host_name() && facts::has_ended(self.pid, &self.process)
    }
}

/// The rest of the line of a lease's content that begins with `start`.
fn line(content: &str, start: &str) -> String {
    let mut lines = content.lines();
    let found = lines.find_map(|line| line.strip_prefix(start));
    found.unwrap_or_default().to_owned()
}

/// A lease that this process holds; dropping it releases the directory.
#[derive(Debug)]
pub struct Lease {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    file: Arc<dyn File>,
    toucher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Lease {
    /// Takes a lease on a directory. Blocks for a moment if another program is inspecting the new file.
    pub fn take(dir: Arc<dyn Dir>, what: Use, clock: &dyn Clock) -> io::Result<Lease> {
        let us = Holder::us(what, &*dir)?;
        let name = us.name();
        let file = dir.open(&name, OpenHow::CreateNew)?;
        let mut lease = Lease {
            dir,
            name,
            file,
            toucher: None,
        };
        let mut tries = 0;
        while !lease.file.try_lock()? {
            tries += 1;
            if tries > 100 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            clock.sleep(Duration::from_millis(10));
        }
        let text = format!("host {}\n", us.host);
        touch(&*lease.file, &text)?;
        lease.toucher = Some(toucher(lease.file.clone(), text)?);
        Ok(lease)
    }

    /// Touches the lease and returns the time of that by the file system's clock, in nanoseconds since the Unix epoch.
    pub(crate) fn touch(&self) -> io::Result<i64> {
        touch(&*self.file, "host")?;
        Ok(self.file.stat()?.mtime_ns)
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.toucher.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::warn!("the thread that kept a lease alive panicked");
            }
        }
        // An expire may have removed the whole directory; otherwise the lease ends with its lock.
        match self.dir.remove_file(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(name = %self.name.display(), %error, "a lease could not be removed");
            }
            _ => {}
        }
    }
}

/// Writes the text, which also sets the time. A full file system has no block for it: a new length needs none and sets
/// the time as well, and only messages lack the host's name then. So backups can be read and removed from a full disk.
fn touch(file: &dyn File, text: &str) -> io::Result<()> {
    let written = file.write_all_at(text.as_bytes(), 0, Via::Cache);
    match written.and_then(|()| file.sync()) {
        Err(e) if is_full(&e) => {
            file.set_len(text.len() as u64 + 1)?;
            file.set_len(0)?;
            file.sync()
        }
        touched => touched,
    }
}

/// Whether the file system, or the user's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn toucher(file: Arc<dyn File>, text: String) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel::<()>();
    let work = move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TOUCH) {
            if let Err(error) = touch(&*file, &text) {
                tracing::warn!(%error, "a lease could not be kept alive");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("lease".into())
        .spawn(work)?;
    Ok((stop, thread))
}

/// All live holders of leases in `dir`, except of the lease named `own`. `now_ns` is the file system's time.
pub fn holders(dir: &dyn Dir, own: Option<&Path>, now_ns: i64) -> io::Result<Vec<Holder>> {
    let mut holders = Vec::new();
    for name in dir.list()? {
        let name = PathBuf::from(name?);
        let is_lease = name.to_str().is_some_and(|n| n.starts_with(PREFIX));
        if !is_lease || own == Some(name.as_path()) {
            continue;
        }
        // A lease is a regular file. A directory, link or pipe with such a name has no holder and never becomes stale.
        match dir.stat(&name) {
            Ok(stat) if stat.kind != FileKind::File => continue,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        }
        match living(dir, &name, now_ns) {
            Ok(holder) => holders.extend(holder),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(holders)
}

/// Removes leases for this use, but the one named `own`, that no living program has and nobody has touched within [`STALE`]: a killed
/// program leaves one. One that is younger may be a program's that has not locked it yet. Those that cannot be removed stay.
///
/// [`STALE`]: longshore_io::STALE
pub fn remove_left(dir: &dyn Dir, what: Use, own: &Path, now_ns: i64) -> io::Result<()> {
    let start = format!("{PREFIX}{}.", what.text());
    for name in dir.list()? {
        let name = PathBuf::from(name?);
        if name == own || !name.to_str().is_some_and(|n| n.starts_with(&start)) {
            continue;
        }
        let is_left = dir
            .stat(&name)
            .is_ok_and(|stat| stat.kind == FileKind::File && is_stale(stat.mtime_ns, now_ns));
        if is_left && matches!(living(dir, &name, now_ns), Ok(None)) {
            let removed = dir.remove_file(&name);
            tracing::info!(name = %name.display(), ?removed, "a killed program left a lease");
        }
    }
    Ok(())
}

fn living(dir: &dyn Dir, name: &Path, now_ns: i64) -> io::Result<Option<Holder>> {
    let file = match dir.open_to_lock(name) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
        opened => Some(opened?),
    };
    let mut bytes = vec![0; LEN_MAX];
    let len = match &file {
        Some(file) => file.read_full_at(&mut bytes, 0, Via::Cache)?,
        None => 0,
    };
    let content = String::from_utf8_lossy(&bytes[..len]);
    let holder = Holder::read(&name.to_string_lossy(), &content);
    // Whether the lock shows who is alive.
    let asked = match file.map(|file| file.try_lock()) {
        Some(Ok(true)) => true,
        Some(Ok(false)) => return Ok(Some(holder)),
        Some(Err(e)) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
        Some(Err(_)) | None => false,
    };
    let here =
        boot_id().is_some_and(|boot| boot == holder.boot) && holder.dev == Some(file_system(dir)?);
    let dead = (asked && here) || is_stale(dir.stat(name)?.mtime_ns, now_ns);
    Ok((!dead).then_some(holder))
}

fn file_system(dir: &dyn Dir) -> io::Result<u64> {
    Ok(dir.stat(Path::new(""))?.dev)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Fault, Host, HostClock, Op, STALE, SimDisk, Storage};

    fn now_ns(dir: &Path) -> i64 {
        let lease = Lease::take(Host::new().dir(dir).unwrap(), Use::Read, &HostClock).unwrap();
        lease.touch().unwrap()
    }

    #[test]
    fn containers_with_one_name_and_one_number_of_process_are_two() {
        let own = Holder::anywhere(Use::Read);
        assert!(own.is_same_process(&Holder::anywhere(Use::Read)));
        let of = |change: fn(&mut Holder)| {
            let mut other = Holder::anywhere(Use::Read);
            change(&mut other);
            other
        };
        let changes: [fn(&mut Holder); 4] = [
            |other| other.host += "x",
            |other| other.pid += 1,
            |other| other.boot += "x",
            |other| other.process = "another".to_owned(),
        ];
        for change in changes {
            assert!(!own.is_same_process(&of(change)));
        }
        // A lease that a lock tells alive has no mark.
        assert!(own.is_same_process(&of(|other| other.process.clear())));
    }

    #[test]
    fn a_lease_is_seen_while_it_is_held_and_not_by_its_holder() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Host::new().dir(temp.path()).unwrap();
        let lease = Lease::take(dir.clone(), Use::Backup, &HostClock).unwrap();
        let now = lease.touch().unwrap();
        let seen = holders(&*dir, None, now).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].what, Some(Use::Backup));
        assert_eq!(seen[0].pid, std::process::id());
        assert!(holders(&*dir, Some(lease.name()), now).unwrap().is_empty());
        drop(lease);
        assert!(holders(&*dir, None, now).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    /// Goal: from a full disk backups can be read, and removed, which is what makes room.
    #[test]
    fn a_lease_needs_no_block_of_a_full_file_system_and_is_kept_alive_there() {
        for errno in [28, 122] {
            let full = Fault::errno(errno).on(Op::Write);
            let disk = SimDisk::new(1);
            let dir = disk.create_dir_all(Path::new("/d")).unwrap();
            let _full = disk.inject(full);
            let lease = Lease::take(dir.clone(), Use::Expire, &HostClock).unwrap();
            let before = lease.touch().unwrap();
            assert!(lease.touch().unwrap() > before, "its time stands still");
            let seen = holders(&*dir, None, before).unwrap();
            assert_eq!(seen[0].what, Some(Use::Expire));
            assert!(seen[0].text().contains("an unknown host"));
        }
        let broken = SimDisk::new(1);
        let dir = broken.create_dir_all(Path::new("/d")).unwrap();
        let _broken = broken.inject(Fault::errno(5).on(Op::Write));
        assert!(Lease::take(dir, Use::Expire, &HostClock).is_err());
    }

    /// Goal: killed expires leave nothing for ever, and no lease is taken from a program that lives or has just begun.
    #[test]
    fn leases_that_killed_programs_left_are_removed_once_they_are_old() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Host::new().dir(temp.path()).unwrap();
        let held = Lease::take(dir.clone(), Use::Expire, &HostClock).unwrap();
        let own = Lease::take(dir.clone(), Use::Expire, &HostClock).unwrap();
        let write = |what| {
            let name = Holder::us(what, &*dir).unwrap().name();
            std::fs::write(temp.path().join(&name), "host x\n").unwrap();
            name
        };
        let (left, other) = (write(Use::Expire), write(Use::Read));
        let now = now_ns(temp.path());
        let remove = |now| {
            remove_left(&*dir, Use::Expire, own.name(), now).unwrap();
            temp.path().join(&left).exists()
        };
        assert!(remove(now), "it may have begun just now");
        assert!(!remove(now + STALE.as_nanos() as i64 + 60_000_000_000));
        for name in [held.name(), own.name(), &other] {
            assert!(temp.path().join(name).exists(), "{}", name.display());
        }
    }

    #[test]
    fn a_dead_holder_on_this_machine_holds_nothing_and_one_elsewhere_only_while_it_is_touched() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Host::new().dir(temp.path()).unwrap();
        let now = now_ns(temp.path());
        let write = |holder: &Holder| {
            let path = temp.path().join(holder.name());
            std::fs::write(path, format!("host {}\n", holder.host)).unwrap();
        };
        write(&Holder::us(Use::Read, &*dir).unwrap());
        assert!(holders(&*dir, None, now).unwrap().is_empty());
        let us = Holder::us(Use::Read, &*dir).unwrap();
        let mut elsewhere = us.clone();
        elsewhere.boot = "another-boot".into();
        elsewhere.host = "db2".into();
        write(&elsewhere);
        let seen = holders(&*dir, None, now).unwrap();
        assert_eq!(seen, [elsewhere.clone()]);
        assert!(seen[0].text().contains("host db2"));
        let late = now + STALE.as_nanos() as i64 + 60_000_000_000;
        assert!(holders(&*dir, None, late).unwrap().is_empty());
        // A clock that is ahead elsewhere does no harm.
        assert_eq!(holders(&*dir, None, now - 10_i64.pow(15)).unwrap().len(), 1);
    }

    /// Goal: two mounts of one machine may share no locks, as with FUSE. So a lock that can be taken through one mount
    /// proves nothing about a holder that uses the other, or about one whose version did not record its mount.
    #[test]
    fn a_lease_that_came_by_another_mount_of_this_machine_is_judged_by_its_age() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Host::new().dir(temp.path()).unwrap();
        let now = now_ns(temp.path());
        let us = Holder::us(Use::Backup, &*dir).unwrap();
        let late = now + STALE.as_nanos() as i64 + 60_000_000_000;
        for dev in [us.dev.map(|dev| dev + 1), None] {
            let holder = Holder { dev, ..us.clone() };
            let path = temp.path().join(holder.name());
            std::fs::write(&path, format!("host {}\n", holder.host)).unwrap();
            assert_eq!(holders(&*dir, None, now).unwrap(), [holder]);
            assert!(holders(&*dir, None, late).unwrap().is_empty());
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_lease_that_cannot_be_read_is_somebodys_until_it_is_old() {
        let disk = SimDisk::new(1);
        let name = format!("/d/{PREFIX}x");
        disk.write_file(&name, b"\xff\x00garbage").unwrap();
        let dir = disk.dir(Path::new("/d")).unwrap();
        let now = dir.stat(Path::new(&name[3..])).unwrap().mtime_ns;
        let seen = holders(&*dir, None, now).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].what, None);
        let late = now + STALE.as_nanos() as i64 + 1;
        assert!(holders(&*dir, None, late).unwrap().is_empty());
    }

    #[test]
    fn a_name_like_a_lease_that_is_not_a_file_has_no_holder() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Host::new().dir(temp.path()).unwrap();
        let name = |what: &str| temp.path().join(format!("{PREFIX}{what}"));
        std::fs::create_dir(name("read.boot.1.dir")).unwrap();
        std::os::unix::fs::symlink("/dev/null", name("backup.boot.1.link")).unwrap();
        std::os::unix::fs::symlink("nowhere", name("backup.boot.1.nowhere")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(name("expire.boot.1.s")).unwrap();
        assert!(
            holders(&*dir, None, now_ns(temp.path()))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn leases_show_live_holders_if_only_files_open_for_writing_can_be_locked() {
        let disk = SimDisk::new(1).set_locks_need_writing(true);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let dir = disk.dir(Path::new("/d")).unwrap();
        let lease = Lease::take(dir.clone(), Use::Backup, &HostClock).unwrap();
        let now = lease.touch().unwrap();
        let late = now + STALE.as_nanos() as i64 + 1;
        assert_eq!(holders(&*dir, None, late).unwrap().len(), 1);
        drop(lease);
        let name = Holder::us(Use::Read, &*dir).unwrap().name();
        disk.write_file(Path::new("/d").join(&name), b"host db1")
            .unwrap();
        assert!(holders(&*dir, None, now).unwrap().is_empty());
    }

    #[test]
    fn a_lease_of_another_user_is_judged_by_its_age_alone() {
        let disk = SimDisk::new(1);
        // From this machine: a program that could open it would know.
        disk.create_dir_all(Path::new("/d")).unwrap();
        let dir = disk.dir(Path::new("/d")).unwrap();
        let name = Holder::us(Use::Read, &*dir).unwrap().name();
        disk.write_file(Path::new("/d").join(&name), b"host db1")
            .unwrap();
        let now = dir.stat(&name).unwrap().mtime_ns;
        const EACCES: i32 = 13;
        disk.inject(
            Fault::errno(EACCES)
                .on(Op::Open)
                .below(Path::new("/d").join(&name)),
        );
        let seen = holders(&*dir, None, now).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].what, Some(Use::Read));
        let late = now + STALE.as_nanos() as i64 + 1;
        assert!(holders(&*dir, None, late).unwrap().is_empty());
    }
}
