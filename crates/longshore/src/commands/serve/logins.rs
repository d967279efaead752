//! Who may log in: a file of names and hashed passwords.
//!
//! ```text
//! nightly:$argon2id$v=19$m=19456,t=2,p=1$…
//! ```
//!
//! The file is read at each login, so that a change counts at once. A password that was right is remembered while the
//! program runs, as a digest under a random key: a hash that is slow to guess is slow to check, too.
//!
//! Invariants
//! - No password is written anywhere, and none is on a command line.
//! - A wrong password and a name that nobody has take the same time, one after another for all.

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use longshore_io::{OpenHow, Storage, Via};
use longshore_tds::Secret;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::failure::Failure;

const LEN_MAX: usize = 1 << 20;
const NAME_LEN_MAX: usize = 128;
const PASSWORD_VARIABLE: &str = "LONGSHORE_LOGIN_PASSWORD";
/// Right passwords that are remembered.
const REMEMBERED_MAX: usize = 1024;

/// A hash of no password: names that nobody has are checked against it.
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

    /// Where a changed file is made before it takes the place of the one that counts.
    pub fn beside(path: &Path) -> PathBuf {
        path.with_extension("new")
    }

    pub fn is_empty(&self, storage: &dyn Storage) -> Result<bool, Failure> {
        Ok(self.entries(storage)?.is_empty())
    }

    /// The name as it is written in the file, if the password is that login's.
    pub fn check(&self, storage: &dyn Storage, name: &str, password: &Secret) -> Option<String> {
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
        let _turn = self.turn.lock();
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

    /// Another password for a login that is there.
    pub fn add(&self, storage: &dyn Storage, name: &str, password: &Secret) -> Result<(), Failure> {
        let plain = |c: char| !c.is_control() && c != ':';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(plain) {
            return Err(Failure::usage(
                "this name cannot be a login's",
                "1 to 128 bytes, without colons",
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
        let mut entries = self.entries(storage)?;
        entries.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        entries.push((name.to_owned(), hash.to_string()));
        self.write(storage, &entries)
    }

    pub fn remove(&self, storage: &dyn Storage, name: &str) -> Result<(), Failure> {
        let mut entries = self.entries(storage)?;
        let before = entries.len();
        entries.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if entries.len() == before {
            return Err(Failure::usage(
                format!("{} has no login {name}", self.path.display()),
                "names are those given to --add-login",
            ));
        }
        self.write(storage, &entries)
    }

    /// Names and hashes; none where there is no file.
    fn entries(&self, storage: &dyn Storage) -> Result<Vec<(String, String)>, Failure> {
        let read = || -> io::Result<String> {
            let (parent, name) = self.place()?;
            let file = storage.dir(parent)?.open(name, OpenHow::Read)?;
            let mut bytes = vec![0; (file.stat()?.len as usize).min(LEN_MAX)];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            String::from_utf8(bytes).map_err(io::Error::other)
        };
        let text = match read() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|e| self.failure("read", &e))?,
        };
        let entry = |line: &str| {
            let (name, hash) = line.split_once(':')?;
            Some((name.to_owned(), hash.trim().to_owned()))
        };
        Ok(text.lines().filter_map(entry).collect())
    }

    /// Whole or not at all; readable by its owner alone.
    fn write(&self, storage: &dyn Storage, entries: &[(String, String)]) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let (parent, name) = self.place()?;
            let dir = storage.create_dir_all(parent)?;
            let new = Logins::beside(name);
            match dir.remove_file(&new) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = dir.open(&new, OpenHow::CreateNew)?;
            let lines = entries
                .iter()
                .map(|(name, hash)| format!("{name}:{hash}\n"));
            let text: String = lines.collect();
            file.write_all_at(text.as_bytes(), 0, Via::Cache)?;
            file.sync()?;
            dir.rename(&new, name)?;
            dir.sync(Path::new(""))
        };
        write().map_err(|e| self.failure("write", &e))
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
        let mut failure = Failure::usage(
            format!("cannot {what} the logins in {}", self.path.display()),
            "name another file with --logins, or look at its owner",
        );
        failure.causes.push(error.to_string());
        failure
    }
}

/// From the environment, from a person, or the first line of standard input.
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

/// A line of the terminal that it does not show.
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
    use longshore_io::Host;

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
        logins.add(&storage, "Ada", &secret("first")).unwrap();
        logins.add(&storage, "bob", &secret("other")).unwrap();
        let check = |name: &str, password: &str| logins.check(&storage, name, &secret(password));
        assert_eq!(check("ada", "first").as_deref(), Some("Ada"));
        assert_eq!(check("ADA", "first").as_deref(), Some("Ada"), "remembered");
        for (name, password) in [("ada", "other"), ("ada", ""), ("eve", "first"), ("", "")] {
            assert_eq!(check(name, password), None, "{name} {password}");
        }
        logins.add(&storage, "ada", &secret("second")).unwrap();
        assert_eq!(check("ada", "first"), None, "the memory is of the hash");
        assert!(check("ada", "second").is_some());
        logins.remove(&storage, "ada").unwrap();
        assert_eq!(check("ada", "second"), None);
        assert!(logins.remove(&storage, "ada").is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("bob:$argon2id$") && !text.contains("other"));
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn names_that_would_break_the_file_are_refused_and_nobody_has_a_hash() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::new(dir.path().join("logins"));
        for name in ["", "a:b", "a\nb", &"n".repeat(129)] {
            assert!(logins.add(&Host::new(), name, &secret("x")).is_err());
        }
        assert!(logins.add(&Host::new(), "ada", &secret("")).is_err());
        assert!(PasswordHash::new(NOBODY).is_ok());
    }
}
