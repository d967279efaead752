//! Other processes: whether a process that left something behind still runs, and the working directories of all.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// When a process started, in clock ticks since boot; `None` if there is no such process. Process number and start
/// time together identify a process until the next boot.
pub fn process_started(pid: u32) -> Option<u64> {
    started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of proc(5). The second field is a name in parentheses that may contain any bytes.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The working directory of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// The path by which this process reaches the directory, whatever the other's mounts are.
    pub here: PathBuf,
    /// The other process's root, from which absolute links resolve.
    pub root: PathBuf,
    /// The path as the other process sees it.
    pub path: PathBuf,
}

/// The working directories of other processes, each once. Root sees those of all processes, other users those of their
/// own.
pub fn working_directories() -> Vec<WorkingDirectory> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let own = std::process::id();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        if number.is_none_or(|number| number == own) {
            continue;
        }
        let here = process.path().join("cwd");
        let (Ok(path), Ok(stat)) = (fs::read_link(&here), fs::metadata(&here)) else {
            continue;
        };
        if seen.insert((stat.dev(), stat.ino())) {
            found.push(WorkingDirectory {
                root: process.path().join("root"),
                here,
                path,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_where_it_works() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").current_dir(dir.path()).spawn().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let found = working_directories();
        let is_seen = found.iter().filter(|found| found.path == real).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(is_seen, 1, "{found:?}");
    }

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=30).map(|n| n.to_string()).collect();
        let stat = format!("17 (a) b) S {}", fields.join(" "));
        assert_eq!(started(&stat), Some(22));
        assert_eq!(started("17 (a"), None);
    }

    #[test]
    fn this_process_has_a_start_and_an_impossible_one_none() {
        assert_eq!(
            process_started(std::process::id()),
            process_started(std::process::id())
        );
        assert!(process_started(std::process::id()).is_some());
        assert_eq!(process_started(u32::MAX), None);
    }
}
