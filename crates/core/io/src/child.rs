//! Starts other programs: only programs that no other user can change, and without this process's environment.
//!
//! Every child process is started through this module. Otherwise a variable such as `LD_PRELOAD` or `PGOPTIONS`, or a
//! file named `nbdkit` in the working directory, could steer a program that runs with our rights.
//!
//! Invariants
//! - A program that is looked for passes [`trusted`]; so does one that a caller names. An entry of `PATH` that fails is
//!   skipped, and its reason is told only if no other entry has the program.
//! - A child gets a fixed `PATH` and the variables in `KEPT`, and no others. The one exception is a second copy of this
//!   program or a companion ([`again`]), whose configuration includes the environment.
//!
//! Leaves to others: the rule of trust (`trust.rs`), waiting for a child and reading its output (`child/answer.rs`).

mod answer;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use answer::{Said, TOLD_MAX, Unanswered, ask, tell};

use crate::trust::{Distrust, trusted};

/// The search path that a child gets.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of our environment that a child keeps: they change how it prints, not what it does.
const KEPT: [&str; 5] = ["HOME", "LANG", "LC_ALL", "TERM", "TZ"];

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error("{name} is in no directory of PATH")]
    NotFound { name: String },
    #[error("{} is not an executable file: make it one with `chmod a+x`, or remove it", path.display())]
    NotExecutable { path: PathBuf },
    #[error(transparent)]
    Distrust(#[from] Distrust),
}

impl NotStarted {
    /// Whether the program was found only by a path that depends on the working directory.
    pub fn is_relative(&self) -> bool {
        matches!(self, NotStarted::Distrust(Distrust::Relative { .. }))
    }
}

/// The program at `path`, to be started by [`again_at`], if no other user can change it.
pub fn named(path: &Path) -> Result<PathBuf, NotStarted> {
    let path = trusted(path, &[])?;
    match path.is_file() && is_executable(&path) {
        true => Ok(path),
        false => Err(NotStarted::NotExecutable { path }),
    }
}

/// A program of the search path, with a clean environment. Entries of `PATH` that are empty, relative, or writable by
/// other users are skipped.
pub fn installed(name: &str) -> Result<Command, NotStarted> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    search(name, std::env::split_paths(&path)).map(|program| clean(&program))
}

/// Another program that comes with this one, to be started by [`again_at`]: it lies next to this program, in one of
/// `places` (from this program's directory), or in a directory of `PATH`, under the rules of [`installed`].
pub fn companion(name: &str, places: &[&str]) -> Result<PathBuf, NotStarted> {
    let own = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    search(name, near(&own, places).chain(std::env::split_paths(&path)))
}

/// The directory of a program, and others from there.
fn near<'a>(program: &'a Path, places: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    let dir = program.parent().into_iter();
    dir.flat_map(|dir| {
        let others = places.iter().map(|place| dir.join(place));
        std::iter::once(dir.to_owned()).chain(others)
    })
}

fn search(name: &str, dirs: impl Iterator<Item = PathBuf>) -> Result<PathBuf, NotStarted> {
    let mut why = None;
    for dir in dirs {
        let path = dir.join(name);
        let skipped = match trusted(&path, &[]) {
            Ok(program) if !program.is_file() => continue,
            Ok(program) if is_executable(&program) => return Ok(program),
            Ok(path) => NotStarted::NotExecutable { path },
            // Nothing that could be meant is there, so this does not explain the failure.
            Err(distrust) if distrust.is_missing() || !path.is_file() => continue,
            Err(distrust) => distrust.into(),
        };
        // The first reason is told. A relative entry of `PATH` is the reason only where there is no other one.
        if why.as_ref().is_none_or(NotStarted::is_relative) {
            why = Some(skipped);
        }
    }
    Err(why.unwrap_or(NotStarted::NotFound { name: name.into() }))
}

fn is_executable(program: &Path) -> bool {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The program at `path`, with a clean environment. `owners` may own it in addition to root and us: the user it runs
/// as.
pub fn program(path: &Path, owners: &[u32]) -> Result<Command, Distrust> {
    Ok(clean(&trusted(path, owners)?))
}

/// This program, to be started a second time. The child keeps the environment because that is part of the
/// configuration: `LONGSHORE_` variables, variables named by `password_env`, libpq's. They have already had their
/// effect on this process.
pub fn again() -> io::Result<Command> {
    Ok(again_at(&std::env::current_exe()?))
}

/// [`again`] where the caller knows this program's file, or that of a [`companion`].
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
        let path = |dirs: &[&Path]| dirs.iter().map(|dir| dir.to_path_buf()).collect::<Vec<_>>();
        let dots = [Path::new(""), Path::new("."), &open, &good];
        let found = search("tool", path(&dots).into_iter()).unwrap();
        assert_eq!(found, good.join("tool").canonicalize().unwrap());
        let refused = search("tool", path(&dots[..3]).into_iter()).unwrap_err();
        assert!(
            matches!(refused, NotStarted::Distrust(Distrust::Writable { .. })),
            "{refused}"
        );
        let missing = search("no-such-tool", path(&dots).into_iter()).unwrap_err();
        assert!(matches!(missing, NotStarted::NotFound { .. }), "{missing}");
        // Cargo runs tests in the package's directory, so `Cargo.toml` exists there. It must still not be found.
        assert!(search("Cargo.toml", path(&dots[..2]).into_iter()).is_err());
    }

    #[test]
    fn a_companion_is_looked_for_next_to_the_program_first() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, other) = (dir.path().join("bin"), dir.path().join("libexec/ours"));
        let put = |place: &Path, mode| {
            fs::create_dir_all(place).unwrap();
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(place.join("tool"), "").unwrap();
            fs::set_permissions(place.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        };
        let own = bin.join("program");
        let found = || search("tool", near(&own, &["../libexec/ours"]));
        fs::create_dir(&bin).unwrap();
        assert!(matches!(found(), Err(NotStarted::NotFound { .. })));
        fs::create_dir(dir.path().join("libexec")).unwrap();
        fs::set_permissions(
            dir.path().join("libexec"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        put(&other, 0o755);
        let real = |place: &Path| place.join("tool").canonicalize().unwrap();
        assert_eq!(found().unwrap(), real(&other));
        put(&bin, 0o777);
        // Others can write to the program's own directory, through which the way to the other place leads.
        assert!(matches!(found(), Err(NotStarted::Distrust(_))));
        put(&bin, 0o755);
        assert_eq!(found().unwrap(), real(&bin));
    }

    #[test]
    fn a_file_that_cannot_be_executed_hides_no_program_and_is_named_where_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let put = |place: &str, mode| {
            let place = dir.path().join(place);
            fs::create_dir(&place).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
            let tool = place.join("tool");
            fs::write(&tool, "").unwrap();
            fs::set_permissions(&tool, fs::Permissions::from_mode(mode)).unwrap();
            place
        };
        let (plain, good) = (put("plain", 0o644), put("good", 0o755));
        let real = |place: &Path| place.join("tool").canonicalize().unwrap();
        let found = search("tool", [plain.clone(), good.clone()].into_iter());
        assert_eq!(found.unwrap(), real(&good));
        for alone in [
            search("tool", [plain.clone()].into_iter()),
            named(&plain.join("tool")),
        ] {
            let refused = alone.unwrap_err();
            assert!(
                matches!(&refused, NotStarted::NotExecutable { path } if *path == real(&plain)),
                "{refused}"
            );
        }
        assert_eq!(named(&good.join("tool")).unwrap(), real(&good));
        assert!(named(Path::new("good/tool")).is_err());
    }

    #[test]
    fn a_relative_entry_of_path_is_the_reason_only_where_a_program_lies_there_and_no_other_reason_is()
     {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        let search = |name: &str, dirs: &[&Path]| {
            search(name, dirs.iter().map(|dir| dir.to_path_buf())).unwrap_err()
        };
        // Cargo runs tests in the package's directory.
        let refused = search("Cargo.toml", &[Path::new(".")]);
        assert!(refused.is_relative(), "{refused}");
        let refused = search("Cargo.toml", &[Path::new("."), dir.path()]);
        assert!(
            matches!(refused, NotStarted::Distrust(Distrust::Writable { .. })),
            "{refused}"
        );
        let refused = search("src", &[Path::new("."), Path::new("")]);
        assert!(matches!(refused, NotStarted::NotFound { .. }), "{refused}");
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
