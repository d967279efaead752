//! Goal: while a file is claimed, this process drops no lock that it holds on the file, no matter which code opens and
//! closes it, and by which name.
//! Method: the lock is taken as SQLite takes it; the witness tests for it with a lock that belongs to the witness's
//! own handle.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use longshore_io::{Claim, Dir, Host, Hush, InUse, OpenHow, Storage};

/// A lock of this process, and a handle that tests for it. Neither handle is closed: that would drop the lock itself.
struct Locked {
    witness: fs::File,
}

impl Locked {
    fn take(path: &Path) -> Locked {
        let open = || {
            fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap()
        };
        let (owner, witness) = (open(), open());
        assert_eq!(fcntl(&owner, libc::F_SETLK), Some(()));
        std::mem::forget(owner);
        Locked { witness }
    }

    fn holds(&self) -> bool {
        match fcntl(&self.witness, libc::F_OFD_SETLK) {
            Some(()) => false,
            None => true,
        }
    }

    fn end(self) {
        std::mem::forget(self.witness);
    }
}

fn fcntl(file: &fs::File, command: libc::c_int) -> Option<()> {
    // SAFETY: `zeroed` demands a type for which zeros are valid: a structure of integers; 0 to 0 is the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: fcntl demands an open descriptor and a lock to read: the structure outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) };
    (done == 0).then_some(())
}

fn staged() -> (tempfile::TempDir, std::sync::Arc<dyn Dir>) {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("sub")).unwrap();
    fs::write(temp.path().join("file"), "content").unwrap();
    fs::hard_link(temp.path().join("file"), temp.path().join("sub/alias")).unwrap();
    let dir = Host::new().dir(temp.path()).unwrap();
    (temp, dir)
}

#[test]
fn a_claimed_file_is_opened_by_no_name_and_its_locks_stay() {
    for host in [Host::new(), Host::without_openat2()] {
        let (temp, _) = staged();
        let dir = host.dir(temp.path()).unwrap();
        let path = temp.path().join("file");
        std::os::unix::fs::symlink(&path, temp.path().join("link")).unwrap();
        let before = dir.open(Path::new("file"), OpenHow::ReadWrite).unwrap();
        let claim = Claim::of_snapshot(&before.stat().unwrap()).unwrap();
        let locked = Locked::take(&path);
        assert!(Claim::of_snapshot(&before.stat().unwrap()).is_err());
        for name in ["file", "sub/alias"] {
            for how in [OpenHow::Read, OpenHow::ReadWrite] {
                let refused = dir.open(Path::new(name), how).unwrap_err();
                assert!(InUse::is(&refused), "{name}: {refused}");
            }
        }
        for name in ["file", "sub/alias", "link"] {
            let refused = host.disk(&temp.path().join(name)).unwrap_err();
            assert!(InUse::is(&refused), "{name}: {refused}");
        }
        drop(before);
        assert!(locked.holds(), "what was open before is closed later");
        drop(claim);
        assert!(!locked.holds(), "then the test could not fail");
        dir.open(Path::new("file"), OpenHow::Read).unwrap();
        locked.end();
    }
}

#[test]
fn a_connection_of_our_own_keeps_its_locks_while_others_read() {
    let (temp, dir) = staged();
    let stat = dir.stat(Path::new("file")).unwrap();
    let (first, second) = (Claim::of_connection(&stat), Claim::of_connection(&stat));
    let locked = Locked::take(&temp.path().join("file"));
    for name in ["file", "sub/alias"] {
        drop(dir.open(Path::new(name), OpenHow::Read).unwrap());
        assert!(locked.holds());
    }
    // A snapshot of such a file is possible, too.
    let snapshot = Claim::of_snapshot(&stat).unwrap();
    drop(first);
    drop(snapshot);
    assert!(locked.holds());
    drop(second);
    assert!(!locked.holds());
    locked.end();
}

#[test]
fn in_a_hush_nothing_is_closed_and_a_claim_made_in_it_holds() {
    let (temp, dir) = staged();
    let path = temp.path().join("file");
    let (one, two) = (
        dir.open(Path::new("file"), OpenHow::Read).unwrap(),
        dir.open(Path::new("file"), OpenHow::Read).unwrap(),
    );
    let hush = Hush::begin();
    let locked = Locked::take(&path);
    drop(one);
    assert!(locked.holds());
    let claim = Claim::of_snapshot(&two.stat().unwrap()).unwrap();
    drop(hush);
    drop(two);
    assert!(locked.holds());
    drop(claim);
    assert!(!locked.holds());
    locked.end();
}

#[test]
fn a_lock_of_a_file_ends_with_its_handle_though_the_file_is_claimed() {
    let (_temp, dir) = staged();
    let one = dir.open(Path::new("file"), OpenHow::ReadWrite).unwrap();
    let two = dir.open(Path::new("file"), OpenHow::ReadWrite).unwrap();
    assert!(one.try_lock().unwrap() && one.try_lock_range(0..9, true).unwrap());
    assert!(!two.try_lock().unwrap() && !two.try_lock_range(0..9, true).unwrap());
    let claim = Claim::of_connection(&one.stat().unwrap());
    drop(one);
    assert!(two.try_lock().unwrap() && two.try_lock_range(0..9, true).unwrap());
    drop(claim);
}

#[test]
fn another_handle_that_can_write_is_seen_and_a_reader_is_none() {
    let (temp, dir) = staged();
    let path = temp.path().join("sub/alias");
    let file = dir.open(Path::new("file"), OpenHow::Read).unwrap();
    let reader = fs::File::open(&path).unwrap();
    assert!(!file.is_written_elsewhere().unwrap());
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert!(file.is_written_elsewhere().unwrap());
    drop((reader, writer));
    assert!(!file.is_written_elsewhere().unwrap());
}

#[test]
fn another_handle_of_a_file_is_seen() {
    let (temp, dir) = staged();
    let file = dir.open(Path::new("file"), OpenHow::ReadWrite).unwrap();
    assert!(!file.is_open_elsewhere().unwrap());
    let other = fs::File::open(temp.path().join("sub/alias")).unwrap();
    assert!(file.is_open_elsewhere().unwrap());
    drop(other);
    assert!(!file.is_open_elsewhere().unwrap());
}
