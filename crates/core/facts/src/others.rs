//! Other processes: whether a process that left something behind still runs, and the working directories of all.
//!
//! Invariant: a process is said to have ended only where that is certain; its number alone never shows it.
//!
//! Leaves to others: whether a mark was made on this machine since it was started (the callers).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// When a process started, in clock ticks since boot; `None` if there is no such process. Process number and start
/// time together identify a process until the next boot.
pub fn process_started(pid: u32) -> Option<u64> {
    started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of proc(5). The second field is a name in parentheses that may contain any bytes.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// What tells this process from all others that have its number on this machine until the next boot: when it started, and
/// the namespaces in which its number and that time are meant. `None` if the system does not say.
pub fn process_mark() -> Option<String> {
    let started = process_started(std::process::id())?;
    Some(format!("{started} {}", namespaces()?))
}

/// The namespaces of this process's numbers and of its times. No two that live at one time have the same name.
fn namespaces() -> Option<String> {
    let name = |of: &str| fs::read_link(format!("/proc/self/ns/{of}")).ok();
    // Older kernels have one time for all.
    let time = name("time").unwrap_or_default();
    Some(format!("{} {}", name("pid")?.display(), time.display()))
}

/// Whether the process that had this number and [`process_mark`] since this machine was started has ended for certain. The
/// caller knows that the mark was made since then, on this machine.
pub fn has_ended(pid: u32, mark: &str) -> bool {
    let Some((started, theirs)) = mark.split_once(' ') else {
        return false;
    };
    // A number means something in its own namespace only. One of another namespace may be a living process's.
    if namespaces().is_none_or(|ours| ours != theirs) {
        return false;
    }
    started.parse().is_ok_and(|started| is_gone(pid, started))
}

/// Whether the process of this number and this start, as [`process_started`] tells it, has ended for certain, where its number
/// is one of this process's namespace. A process that the
/// system hides from this user, as it hides those of others and those that leave no core file, is not taken for one that has ended.
fn is_gone(pid: u32, started: u64) -> bool {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    is_judged_gone(test_kill_process(number), process_started(pid), started)
}

/// By what a signal would find, and by the start that is shown now.
fn is_judged_gone(found: Result<(), Errno>, now: Option<u64>, started: u64) -> bool {
    match found {
        Err(Errno::SRCH) => true,
        // Another process has the number now; what is hidden shows no time.
        _ => now.is_some_and(|now| now != started),
    }
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
    fn a_process_that_is_hidden_is_not_taken_for_one_that_has_ended() {
        assert!(is_judged_gone(Err(Errno::SRCH), None, 7));
        assert!(is_judged_gone(Ok(()), Some(8), 7));
        for (found, now) in [(Ok(()), None), (Err(Errno::PERM), None), (Ok(()), Some(7))] {
            assert!(!is_judged_gone(found, now, 7), "{found:?} {now:?}");
        }
    }

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
    fn a_process_has_ended_when_its_number_is_free_or_anothers_in_the_same_namespace() {
        let mark = process_mark().unwrap();
        let own = std::process::id();
        assert!(!has_ended(own, &mark));
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().unwrap();
        let started = |pid| process_started(pid).unwrap();
        let theirs = mark.replacen(
            &started(own).to_string(),
            &started(child.id()).to_string(),
            1,
        );
        let pid = child.id();
        assert!(!has_ended(pid, &theirs));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(pid, &theirs));
        // The number of this process, which another one had before.
        let earlier = mark.replacen(&started(own).to_string(), "1", 1);
        assert!(has_ended(own, &earlier));
        // Numbers of another container, and marks that say nothing.
        for unknown in [
            theirs.replace("pid:[", "pid:[1"),
            theirs.replace("time:[", "time:[1"),
            String::new(),
            "1".to_owned(),
            "1 ".to_owned(),
        ] {
            assert!(!has_ended(pid, &unknown), "{unknown}");
        }
        for none in [0, u32::MAX] {
            assert!(!has_ended(none, &theirs));
        }
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
