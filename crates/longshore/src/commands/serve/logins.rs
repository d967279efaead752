//! Who may log in: a file of names and hashed passwords.
//!
//! ```text
//! nightly:$argon2id$v=19$m=19456,t=2,p=1$…
//! ```
//!
//! The file is read at each login, so a change takes effect at once. It is changed under a lock, so no concurrent
//! change is lost. The listener (`mod.rs`) ends the sessions of a login that is removed. A correct password is
//! remembered while the program runs, as a digest under a random key: a hash that is slow to guess is also slow to
//! check.
//!
//! Invariants
//! - No password is written anywhere, and none is on a command line.
//! - A wrong password and an unknown name take the same time, and all checks run one after another.
//!
//! Leaves to others: how long a failed login waits, and its line in the log (`strikes.rs`).

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use longshore_io::{Clock, SmallFile, Storage};
use longshore_tds::Secret;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;

const LEN_MAX: usize = 1 << 20;
const NAME_LEN_MAX: usize = 128;
const PASSWORD_VARIABLE: &str = "LONGSHORE_LOGIN_PASSWORD";
/// The interval at which a waiting check asks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// The number of correct passwords that are remembered.
const REMEMBERED_MAX: usize = 1024;

/// A hash of no password: unknown names are checked against it.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGlzIGhlcmU$6pOAs8Pvcs+pHp2NXPsUOmoSuhmgUg6UP8kRMWvDSGc";

pub struct Logins {
    path: PathBuf,
    key: [u8; 32],
    /// Hash → digest of the password that fits it.
    right: Mutex<HashMap<String, [u8; 32]>>,
    /// One check at a time: each takes 19 MiB.
    turn: Mutex<()>,
}

impl Logins {
    pub fn new(path: PathBuf) -> Logins {
        let mut key = [0; 32];
        key[..16].copy_from_slice(Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(Uuid::new_v4().as_bytes());
        Logins {
            path,
            key,
            right: Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// The lock file next to `path`; it is held during a change and is never removed.
    pub fn lock(path: &Path) -> PathBuf {
        SmallFile::lock_name(path)
    }

    pub fn is_empty(&self, storage: &dyn Storage) -> Result<bool, Failure> {
        Ok(self.entries(storage)?.is_empty())
    }

    /// The name as written in the file, if the password is that login's. Blocks while others are checked, as long as
    /// `is_wanted` returns true.
    pub fn check(
        &self,
        storage: &dyn Storage,
        name: &str,
        password: &Secret,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<String> {
        let entries = self.entries(storage).unwrap_or_else(|failure| {
            tracing::error!(text = failure.text, "the logins cannot be read");
            Vec::new()
        });
        let found = entries
            .into_iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        let (known, hash) = found.unzip();
        let hash = hash.unwrap_or_else(|| NOBODY.to_owned());
        let digest = self.digest(&hash, password);
        let remembered = || self.right.lock().get(&hash).is_some_and(|d| *d == digest);
        if remembered() {
            return known;
        }
        // A client that was closed meanwhile takes no time from the next ones.
        let _turn = loop {
            if !is_wanted() {
                return None;
            }
            if let Some(turn) = self.turn.try_lock_for(LOOK) {
                break turn;
            }
        };
        if remembered() {
            return known;
        }
        let hashed = PasswordHash::new(&hash).ok()?;
        Argon2::default()
            .verify_password(password.reveal().as_bytes(), &hashed)
            .ok()?;
        let mut right = self.right.lock();
        if right.len() >= REMEMBERED_MAX {
            right.clear();
        }
        right.insert(hash, digest);
        known
    }

    fn digest(&self, hash: &str, password: &Secret) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.key);
        digest.update((hash.len() as u64).to_le_bytes());
        digest.update(hash);
        digest.update(password.reveal());
        digest.finalize().into()
    }

    /// Replaces the password of an existing login.
    pub fn add(
        &self,
        storage: &dyn Storage,
        clock: &dyn Clock,
        name: &str,
        password: &Secret,
    ) -> Result<(), Failure> {
        let plain = |c: char| !c.is_control() && c != ':';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(plain) {
            return Err(Failure::usage(
                "this name cannot be a login's",
                "give 1 to 128 bytes, without colons",
            ));
        }
        if password.reveal().is_empty() {
            return Err(Failure::usage(
                "the password is empty",
                "a login needs a password",
            ));
        }
        let hash = Argon2::default().hash_password(password.reveal().as_bytes());
        let hash = hash.map_err(|e| {
            Failure::usage(format!("the password cannot be hashed: {e}"), "try again")
        })?;
        let line = format!("{name}:{hash}\n");
        self.change(storage, clock, |before| {
            Ok(without(before, name).collect::<String>() + &line)
        })
    }

    pub fn remove(
        &self,
        storage: &dyn Storage,
        clock: &dyn Clock,
        name: &str,
    ) -> Result<(), Failure> {
        self.change(storage, clock, |before| {
            let after: String = without(before, name).collect();
            match after.lines().count() == before.lines().count() {
                true => Err(Failure::usage(
                    format!("{} has no login {name}", self.path.display()),
                    "`longshore serve --add-login NAME` adds a login",
                )),
                false => Ok(after),
            }
        })
    }

    /// The names of all logins, in lower case; `None`: there is no file. Errors: the file cannot be read.
    pub fn names(&self, storage: &dyn Storage) -> Result<Option<BTreeSet<String>>, Failure> {
        let text = self.text(storage)?;
        let names = |text: String| {
            entries(&text)
                .map(|(name, _)| name.to_ascii_lowercase())
                .collect()
        };
        Ok(text.map(names))
    }

    /// Names and hashes; none where there is no file.
    fn entries(&self, storage: &dyn Storage) -> Result<Vec<(String, String)>, Failure> {
        let text = self.text(storage)?.unwrap_or_default();
        let owned = |(name, hash): (&str, &str)| (name.to_owned(), hash.to_owned());
        Ok(entries(&text).map(owned).collect())
    }

    /// `None`: there is no file.
    fn text(&self, storage: &dyn Storage) -> Result<Option<String>, Failure> {
        let read = || -> io::Result<Option<String>> {
            let (parent, name) = self.place()?;
            let dir = match storage.dir(parent) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let bytes = SmallFile::new(dir, name, LEN_MAX).read()?;
            bytes
                .map(|b| String::from_utf8(b).map_err(io::Error::other))
                .transpose()
        };
        read().map_err(|e| self.failure("read", &e))
    }

    /// Changes the file atomically, after all concurrent changes; only its owner can read it.
    fn change(
        &self,
        storage: &dyn Storage,
        clock: &dyn Clock,
        change: impl FnOnce(&str) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        /// The reason why the change was refused, or the file system's error.
        enum Wrong {
            Refused(Failure),
            Io(io::Error),
        }
        impl From<io::Error> for Wrong {
            fn from(error: io::Error) -> Wrong {
                Wrong::Io(error)
            }
        }
        let open = || -> io::Result<SmallFile> {
            let (parent, name) = self.place()?;
            let dir = storage.create_dir_all(parent)?;
            Ok(SmallFile::new(dir, name, LEN_MAX))
        };
        let changed = open().map_err(Wrong::Io).and_then(|file| {
            file.change(clock, 0o600, |before| {
                let before =
                    str::from_utf8(before.unwrap_or_default()).map_err(io::Error::other)?;
                let after = change(before).map_err(Wrong::Refused)?;
                Ok((Some(after.into_bytes()), ()))
            })
        });
        changed.map_err(|wrong| match wrong {
            Wrong::Refused(failure) => failure,
            Wrong::Io(error) => self.failure("write", &error),
        })
    }

    fn place(&self) -> io::Result<(&Path, &Path)> {
        let (parent, name) = (self.path.parent(), self.path.file_name());
        let missing = || io::Error::from(io::ErrorKind::InvalidFilename);
        Ok((
            parent.ok_or_else(missing)?,
            Path::new(name.ok_or_else(missing)?),
        ))
    }

    fn failure(&self, what: &str, error: &io::Error) -> Failure {
        Failure::usage(
            format!("cannot {what} the logins in {}", self.path.display()),
            "name another file with --logins, or check its owner",
        )
        .numbered(numbers::FILE_UNUSABLE)
        .because(error)
    }
}

/// The names and hashes in a file's lines.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let entry = |line| str::split_once(line, ':').map(|(name, hash)| (name, hash.trim()));
    text.lines().filter_map(entry)
}

/// A file's lines except those of one login; lines that are no logins stay as they are.
fn without<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let is_other = move |line: &&str| {
        let known = line.split_once(':').map(|(known, _)| known);
        !known.is_some_and(|known| known.eq_ignore_ascii_case(name))
    };
    text.lines()
        .filter(is_other)
        .map(|line| format!("{line}\n"))
}

/// Takes the password from the environment, from the user, or from the first line of standard input.
pub fn ask_password() -> Result<Secret, Failure> {
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(Secret::new(password));
    }
    let stdin = io::stdin();
    let mut line = String::new();
    let read = match stdin.is_terminal() {
        true => unseen(&mut line),
        false => stdin.lock().read_line(&mut line).map(drop),
    };
    read.map_err(|e| Failure::usage(format!("no password was read: {e}"), "write it again"))?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    let _wiped = Secret::new(line);
    Ok(Secret::new(password))
}

/// Reads a line from the terminal without echo.
fn unseen(line: &mut String) -> io::Result<()> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    eprint!("Password: ");
    io::stderr().flush()?;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let read = stdin.lock().read_line(line).map(drop);
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    eprintln!();
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Host, HostClock};

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }

    #[test]
    fn a_login_needs_its_password_and_changes_count_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/logins");
        let storage = Host::new();
        let logins = Logins::new(path.clone());
        assert!(logins.is_empty(&storage).unwrap());
        logins
            .add(&storage, &HostClock, "Ada", &secret("first"))
            .unwrap();
        logins
            .add(&storage, &HostClock, "bob", &secret("other"))
            .unwrap();
        let check =
            |name: &str, password: &str| logins.check(&storage, name, &secret(password), &|| true);
        assert_eq!(check("ada", "first").as_deref(), Some("Ada"));
        assert_eq!(check("ADA", "first").as_deref(), Some("Ada"), "remembered");
        for (name, password) in [("ada", "other"), ("ada", ""), ("eve", "first"), ("", "")] {
            assert_eq!(check(name, password), None, "{name} {password}");
        }
        logins
            .add(&storage, &HostClock, "ada", &secret("second"))
            .unwrap();
        assert_eq!(check("ada", "first"), None, "the memory is of the hash");
        assert!(check("ada", "second").is_some());
        logins.remove(&storage, &HostClock, "ada").unwrap();
        assert_eq!(check("ada", "second"), None);
        assert!(logins.remove(&storage, &HostClock, "ada").is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("bob:$argon2id$") && !text.contains("other"));
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Goal: how long a refusal takes does not tell whether there is such a login.
    /// Method: the shortest of several refusals, in CPU time. Without a hash a refusal takes less than a hundredth.
    #[test]
    fn an_unknown_login_is_refused_no_sooner_than_a_wrong_password() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::new(dir.path().join("logins"));
        let storage = Host::new();
        logins
            .add(&storage, &HostClock, "ada", &secret("first"))
            .unwrap();
        let shortest = |name: &str| {
            let refusal = |n: usize| {
                let begun = HostClock.thread_cpu();
                let password = secret(&format!("wrong {n}"));
                assert_eq!(logins.check(&storage, name, &password, &|| true), None);
                HostClock.thread_cpu() - begun
            };
            (0..5).map(refusal).min().unwrap()
        };
        let (known, unknown) = (shortest("ada"), shortest("eve"));
        assert!(unknown > known / 2, "{unknown:?} and {known:?}");
        assert!(known > unknown / 2, "{unknown:?} and {known:?}");
    }

    #[test]
    fn names_that_would_break_the_file_are_refused_and_no_login_shows_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::new(dir.path().join("logins"));
        for name in ["", "a:b", "a\nb", &"n".repeat(129)] {
            assert!(
                logins
                    .add(&Host::new(), &HostClock, name, &secret("x"))
                    .is_err()
            );
        }
        assert!(
            logins
                .add(&Host::new(), &HostClock, "ada", &secret(""))
                .is_err()
        );
        assert!(PasswordHash::new(NOBODY).is_ok());
    }
}
