//! Directories that the servers' user can enter too, in memory if the machine has the room.
//!
//! A cluster is a thousand files, and a test makes several: backups, restores, servers on them. Some file systems need
//! a millisecond of CPU time to create a file soon after others were deleted. Tests end processes and never the
//! machine, so they lose nothing in memory. Behaviour that depends on the file system itself is tested on the disk, in
//! `target/tmp`.
//!
//! `LONGSHORE_TEST_DIR` names another place; `make soak` stays on the disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{StatVfsMountFlags, statvfs};
use tempfile::TempDir;

use crate::User;

const MEMORY: &str = "/dev/shm";
/// Room that the largest tests need, several at a time.
const ROOM: u64 = 8 << 30;

/// A new directory that everybody may enter. Its path is short: sockets are in it.
pub fn dir(prefix: &str) -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(root())
        .unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A new directory that a user owns.
pub fn of(user: User, prefix: &str) -> TempDir {
    let dir = dir(prefix);
    user.own(dir.path());
    dir
}

/// This process's own directory, which it removes at its end with all that is in it.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let parent = match std::env::var_os("LONGSHORE_TEST_DIR") {
            Some(dir) => PathBuf::from(dir),
            None if has_room(Path::new(MEMORY)) => PathBuf::from(MEMORY),
            None => PathBuf::from("/tmp"),
        };
        remove_left(&parent);
        let root = parent.join(format!("ls{}", std::process::id()));
        // A process with this number has ended, and its tests were killed.
        let _none_usually = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        // SAFETY: `atexit` demands a function that lives as long as the program, which code that is linked does, and that
        // does not unwind: a panic in an `extern "C"` function aborts.
        unsafe { libc::atexit(remove_root) };
        root
    })
}

extern "C" fn remove_root() {
    let _may_be_in_use = fs::remove_dir_all(root());
}

fn has_room(dir: &Path) -> bool {
    let Ok(found) = statvfs(dir) else {
        return false;
    };
    let free = found.f_bavail * found.f_frsize;
    // Tests start copies of programs.
    let runs = !found.f_flag.contains(StatVfsMountFlags::NOEXEC);
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    runs && free >= ROOM && kib.unwrap_or(0) * 1024 >= ROOM
}

/// Removes what killed tests left: nothing else would ever free that memory.
fn remove_left(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("ls"));
        let number = process.and_then(|number| number.parse::<u32>().ok());
        if number.is_some_and(|n| !Path::new("/proc").join(n.to_string()).exists()) {
            let _others_may_own_it = fs::remove_dir_all(entry.path());
        }
    }
}
