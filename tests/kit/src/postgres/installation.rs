//! The PostgreSQL installations of this machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::User;

/// Majors that `scripts/setup.sh` installs.
const MAJORS: std::ops::RangeInclusive<u32> = 14..=18;

/// One major's programs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Installation {
    pub major: u32,
    /// Holds at least `initdb` and `postgres`.
    pub bin_dir: PathBuf,
}

/// Every major version found, ascending: the distribution's, or the one that setup fetched into `.work/pg`.
///
/// `LONGSHORE_TEST_MAJORS=15,18` limits them. If `LONGSHORE_REQUIRE_TOOLS` is set a missing major is a failure;
/// otherwise it is named on standard error.
///
/// From here on the servers' user may read the files that this process makes, whatever the umask was.
pub fn installations() -> Vec<Installation> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let asked = std::env::var("LONGSHORE_TEST_MAJORS").ok();
    let wanted = |major: &u32| {
        let Some(asked) = &asked else { return true };
        asked.split(',').any(|m| m.trim() == major.to_string())
    };
    let mut found = Vec::new();
    for major in MAJORS.filter(wanted) {
        match find(major) {
            Some(installation) => found.push(installation),
            None if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some() => {
                panic!("PostgreSQL {major} is missing: run scripts/setup.sh")
            }
            None => eprintln!("skipped: PostgreSQL {major} is not installed"),
        }
    }
    found
}

/// The oldest and the newest major found: for tests that do not depend on the major. With `LONGSHORE_ALL_MAJORS` set
/// all of them, which `make soak` does.
pub fn representatives() -> Vec<Installation> {
    let mut found = installations();
    if found.len() > 2 && std::env::var_os("LONGSHORE_ALL_MAJORS").is_none() {
        found.drain(1..found.len() - 1);
    }
    found
}

fn find(major: u32) -> Option<Installation> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    [
        PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")),
        root.join(format!(".work/pg/{major}/bin")),
    ]
    .into_iter()
    .find(|bin_dir| runs(bin_dir))
    .map(|bin_dir| Installation {
        major,
        bin_dir: bin_dir.canonicalize().unwrap_or(bin_dir),
    })
}

/// Whether the servers' user can run the programs: it may not be able to enter another user's home.
fn runs(bin_dir: &Path) -> bool {
    let postgres = bin_dir.join("postgres");
    let run = || {
        let mut command = User::of_servers().command(&postgres);
        command.arg("--version").current_dir("/");
        command.stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    bin_dir.join("initdb").exists() && postgres.exists() && {
        let ran = run().is_ok_and(|status| status.success());
        if !ran {
            eprintln!("{} does not run as the servers' user", postgres.display());
        }
        ran
    }
}

impl Installation {
    /// A program of this major, or of the next newer one that has it: clients understand older servers. For programs
    /// that read `pg_control` or WAL only the same major is reliable, with one exception: 15's `pg_checksums` for 14.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let own = self.bin_dir.join(name);
        if own.exists() {
            return Some(own);
        }
        (self.major + 1..=*MAJORS.end())
            .filter_map(find)
            .map(|newer| newer.bin_dir.join(name))
            .find(|path| path.exists())
    }
}
