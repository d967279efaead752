//! Limits that the system sets for this process: open files, memory, address space.
//!
//! Invariants
//! - Only the soft limit on open files is ever changed, once, at most to the hard limit. If a sandbox refuses, it stays
//!   as it was.
//! - A limit on memory is the lowest of all control groups above the process; a limit that cannot be read counts as
//!   none.
//! - An absent limit is `None`, never a large number.
//!
//! Leaves to others: deciding how much memory a run takes (`plan.rs` of the pipeline), and how many files it opens.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::machine::kib_of;

/// Enough open files for any run: a restore keeps up to 4096 open, but at most a quarter of what is left.
const DESCRIPTORS_WANTED: u64 = 20_000;

/// Open files: the limit and the present count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// `None`: no limit.
    pub allowed: Option<u64>,
    pub open: u64,
}

/// Raises the soft limit on open files to what a run may need, at most to the hard limit. The usual soft limit is
/// meant for programs that use `select`.
pub fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS_WANTED, |hard| hard.min(DESCRIPTORS_WANTED));
    if current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum,
        };
        // If a sandbox refuses, the limit stays as it was.
        let _as_before = setrlimit(Resource::Nofile, raised);
    }
}

/// The limit on open files and how many are open now.
pub fn descriptors() -> Descriptors {
    let allowed = getrlimit(Resource::Nofile).current;
    // The listing's own descriptor is subtracted.
    let open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count().saturating_sub(1));
    Descriptors {
        allowed,
        open: open as u64,
    }
}

/// Resident bytes at which the kernel kills a process: the lowest memory limit of this process's control groups.
/// `None`: no limit, or none that can be read.
pub fn memory_allowed() -> Option<u64> {
    group_limit(
        Path::new("/sys/fs/cgroup"),
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )
}

/// Bytes of address space left below its limit (`ulimit -v`); `None`: no limit.
pub fn address_space_left() -> Option<u64> {
    let allowed = getrlimit(Resource::As).current?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(allowed.saturating_sub(kib_of(&status, "VmSize").unwrap_or(0)))
}

/// The lowest limit below `mount`; `groups` has the format of `/proc/self/cgroup`.
fn group_limit(mount: &Path, groups: &str) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (place, file) = match controllers {
            "" => (mount.to_path_buf(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let inner: PathBuf = path.trim_start_matches('/').into();
        // A group's limit also applies to the groups below it.
        for above in inner.ancestors() {
            let text = fs::read_to_string(place.join(above).join(file)).unwrap_or_default();
            // `max`, or a number larger than any machine's memory, is no limit.
            if let Ok(bytes) = text.trim().parse::<u64>()
                && bytes < 1 << 60
            {
                lowest = Some(lowest.map_or(bytes, |lowest| lowest.min(bytes)));
            }
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| group_limit(dir.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "41943040\n");
        write("memory.max", "99999999\n");
        assert_eq!(limit("0::/a/b\n"), Some(41_943_040));
        assert_eq!(limit("0::/\n"), Some(99_999_999));
        write("memory/x/memory.limit_in_bytes", "1048576\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:cpu,memory:/x\n4:cpu:/y\nodd"), Some(1_048_576));
        assert_eq!(limit("5:memory:/\n"), None);
    }

    #[test]
    fn open_files_are_counted() {
        let before = descriptors();
        let held: Vec<_> = (0..20)
            .map(|_| fs::File::open("/proc/self/status").unwrap())
            .collect();
        let now = descriptors();
        // Other tests of this process open and close files at the same time.
        assert!(
            now.open + 10 > before.open + held.len() as u64,
            "{before:?} {now:?}"
        );
        assert!(now.allowed.is_none_or(|allowed| allowed > now.open));
    }
}
