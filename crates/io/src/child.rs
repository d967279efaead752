//! Starting other programs: only those that nobody else can change, and without our environment.
//!
//! Every program is started through here. A variable such as `LD_PRELOAD` or `PGOPTIONS`, and a file named `nbdkit` in
//! the working directory, would otherwise run or steer a program with our rights.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::trust::{Distrust, trusted};

/// Where the programs that a child starts are found.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What may stay of our environment: it changes how a child writes, not what it does.
const KEPT: [&str; 5] = ["HOME", "LANG", "LC_ALL", "TERM", "TZ"];

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error("{name} is in no directory of PATH")]
    NotFound { name: String },
    #[error(transparent)]
    Distrust(#[from] Distrust),
}

/// A program of the search path, with a clean environment. Entries of `PATH` that are empty, relative, or writable by
/// other users are passed over.
pub fn installed(name: &str) -> Result<Command, NotStarted> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    search(name, &path).map(|program| clean(&program))
}

fn search(name: &str, path: &OsString) -> Result<PathBuf, NotStarted> {
    let mut why = None;
    for dir in std::env::split_paths(path) {
        match trusted(&dir.join(name), &[]) {
            Ok(program) if program.is_file() => return Ok(program),
            Ok(_) => {}
            Err(distrust) => {
                // What is not there, and what is relative and not there, explains nothing.
                if !distrust.is_missing() && dir.join(name).exists() {
                    why.get_or_insert(distrust);
                }
            }
        }
    }
    Err(match why {
        Some(distrust) => distrust.into(),
        None => NotStarted::NotFound { name: name.into() },
    })
}

/// The program at `path`, with a clean environment. Besides root and us, `owners` may own it: the user it is run as.
pub fn program(path: &Path, owners: &[u32]) -> Result<Command, Distrust> {
    Ok(clean(&trusted(path, owners)?))
}

/// This program once more. It keeps the environment, which is part of its configuration: `LONGSHORE_` variables, the
/// variables that `password_env` names, libpq's. What they could do to the child they have done to us.
pub fn again() -> io::Result<Command> {
    Ok(again_at(&std::env::current_exe()?))
}

/// [`again`] where the caller knows this program's file.
pub fn again_at(own: &Path) -> Command {
    Command::new(own)
}

fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH);
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_absolute_entries_that_others_cannot_write_to_are_searched() {
        let dir = tempfile::tempdir().unwrap();
        let (open, good) = (dir.path().join("open"), dir.path().join("good"));
        for (place, mode) in [(&open, 0o777), (&good, 0o755)] {
            fs::create_dir(place).unwrap();
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(place.join("tool"), "").unwrap();
            fs::set_permissions(place.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = |dirs: &[&Path]| std::env::join_paths(dirs).unwrap();
        let dots = [Path::new(""), Path::new("."), &open, &good];
        let found = search("tool", &path(&dots)).unwrap();
        assert_eq!(found, good.join("tool").canonicalize().unwrap());
        let refused = search("tool", &path(&dots[..3])).unwrap_err();
        assert!(
            matches!(refused, NotStarted::Distrust(Distrust::Writable { .. })),
            "{refused}"
        );
        let missing = search("no-such-tool", &path(&dots)).unwrap_err();
        assert!(matches!(missing, NotStarted::NotFound { .. }), "{missing}");
        // Cargo runs tests in the package's directory: a file is there, and is not run.
        assert!(search("Cargo.toml", &path(&[Path::new(""), Path::new(".")])).is_err());
    }

    #[test]
    fn a_child_has_nothing_of_our_environment() {
        let mut env = installed("env").unwrap();
        let said = env.output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let names: Vec<_> = said.lines().filter_map(|l| l.split_once('=')).collect();
        assert!(names.contains(&("PATH", PATH)), "{said}");
        let allowed = |name: &str| name == "PATH" || KEPT.contains(&name);
        // Cargo gives a test many variables.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(names.iter().all(|(name, _)| allowed(name)), "{said}");
    }
}
