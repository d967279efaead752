//! The file of the service key, `CATALOG.key`, next to the catalog: a copy of the catalog alone opens no secret.
//!
//! Its first line is the key. The second, if there is one, has a proof of the master key and the certificates that the catalog
//! must have: whoever writes to the catalog alone can bring back no older ones. While they change there are two proofs.
//!
//! Invariants
//! - The file belongs to this user, to root or, where root runs, to the catalog's owner, and nobody else can read it, or it is
//!   refused. Root makes it the catalog's owner's.
//! - No key takes the place of one that is missing while something is sealed under it.
//!
//! Leaves to others: what is sealed (`credentials.rs`, `keys.rs`, `indexes.rs`).

use std::path::{Path, PathBuf};

use longshore_crypt::ServiceKey;
use longshore_io::{Clock, OpenHow, SmallFile, Storage};
use zeroize::Zeroizing;

use crate::Error;

/// The file is not longer than this.
const FILE_MAX: usize = 1 << 10;
/// The first word of the second line.
const PROOFS: &str = "keys";

/// The path of a catalog's service key.
pub fn service_key_path(catalog: &Path) -> PathBuf {
    let mut path = catalog.as_os_str().to_owned();
    path.push(".key");
    path.into()
}

pub(crate) struct ServiceFile<'a> {
    storage: &'a dyn Storage,
    catalog: PathBuf,
    path: PathBuf,
    file: SmallFile,
}

/// The lines of the file.
struct Content {
    key: ServiceKey,
    /// `None`: there is no second line.
    proofs: Option<Vec<String>>,
}

impl Content {
    fn of(bytes: &[u8]) -> Option<Content> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        let key = ServiceKey::of_line(lines.next()?)?;
        let proofs = match lines.next() {
            None => None,
            Some(line) => {
                let mut words = line.split(' ');
                (words.next() == Some(PROOFS)).then_some(())?;
                Some(words.map(str::to_owned).collect())
            }
        };
        lines.next().is_none().then_some(Content { key, proofs })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = self.key.line().to_string();
        if let Some(proofs) = &self.proofs {
            text += &format!("{PROOFS} {}\n", proofs.join(" "));
        }
        text.into_bytes()
    }
}

fn digits(proof: &[u8]) -> String {
    proof.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ServiceFile<'_> {
    pub fn of<'a>(catalog: &Path, storage: &'a dyn Storage) -> Result<ServiceFile<'a>, Error> {
        let path = service_key_path(catalog);
        let failed = |why: std::io::Error| Error::ServiceKey {
            path: path.clone(),
            why: format!("its directory cannot be opened: {why}"),
        };
        let absolute = std::path::absolute(&path).map_err(failed)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(failed(std::io::ErrorKind::InvalidFilename.into()));
        };
        let dir = storage.create_dir_all(parent).map_err(failed)?;
        let file = SmallFile::new(dir, name, FILE_MAX);
        Ok(ServiceFile {
            storage,
            catalog: catalog.to_owned(),
            path,
            file,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn wrong(&self, why: impl Into<String>) -> Error {
        Error::ServiceKey {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// The key; `None` if there is no file.
    pub fn read(&self) -> Result<Option<ServiceKey>, Error> {
        Ok(self.content()?.map(|content| content.key))
    }

    fn content(&self) -> Result<Option<Content>, Error> {
        let failed = |e: std::io::Error| self.wrong(format!("it cannot be read: {e}"));
        let Some(bytes) = self.file.read().map_err(failed)? else {
            return Ok(None);
        };
        let bytes = Zeroizing::new(bytes);
        let stat = self.storage.stat(&self.path).map_err(failed)?;
        if stat.mode & 0o077 != 0 {
            let mode = stat.mode & 0o777;
            return Err(self.wrong(format!("others may read it: its mode is {mode:04o}")));
        }
        let own = rustix::process::geteuid().as_raw();
        let is_catalogs = || {
            self.owner()
                .is_some_and(|(uid, _)| own == 0 && uid == stat.uid)
        };
        if stat.uid != 0 && stat.uid != own && !is_catalogs() {
            return Err(self.wrong("it belongs to another user, who can exchange it"));
        }
        match Content::of(&bytes) {
            Some(content) => Ok(Some(content)),
            None => Err(self.wrong("it is no service key")),
        }
    }

    /// The owner and the group of the catalog, if it is there.
    fn owner(&self) -> Option<(u32, u32)> {
        let stat = self.storage.stat(&self.catalog).ok()?;
        Some((stat.uid, stat.gid))
    }

    /// The catalog's own user must be able to read what root makes.
    fn hand_over(&self) -> Result<(), Error> {
        let (Some(owner), Some(parent), Some(name)) =
            (self.owner(), self.path.parent(), self.path.file_name())
        else {
            return Ok(());
        };
        if rustix::process::geteuid().as_raw() != 0 || owner.0 == 0 {
            return Ok(());
        }
        // By the open file: the catalog's user may own the directory, and exchange names in it.
        let given = self
            .storage
            .dir(parent)
            .and_then(|dir| dir.open(Path::new(name), OpenHow::Read)?.give(owner));
        given
            .map(drop)
            .map_err(|e| self.wrong(format!("it cannot be given to the catalog's owner: {e}")))
    }

    /// The key, which is made if there is none. `may_make`: no secret needs one that is missing.
    pub fn read_or_make(&self, may_make: bool, clock: &dyn Clock) -> Result<ServiceKey, Error> {
        if let Some(key) = self.read()? {
            return Ok(key);
        }
        if !may_make {
            return Err(self.wrong("it is missing, and secrets are sealed under it"));
        }
        let new = ServiceKey::new().map_err(|e| self.wrong(e.to_string()))?;
        let line = new.line();
        let made = self.file.change(clock, 0o600, |before| {
            // Another program may have made it meanwhile.
            let after = before.is_none().then(|| line.as_bytes().to_vec());
            Ok::<_, std::io::Error>((after, ()))
        });
        made.map_err(|e| self.wrong(format!("it cannot be made: {e}")))?;
        self.hand_over()?;
        self.read()?.ok_or_else(|| self.wrong("it is missing"))
    }

    /// Whether the file knows this state of the keys; it knows any if it has no proof.
    pub fn knows(&self, proof: &[u8]) -> Result<bool, Error> {
        let proofs = self.content()?.and_then(|content| content.proofs);
        Ok(proofs.is_none_or(|proofs| proofs.contains(&digits(proof))))
    }

    /// Makes these the states that the file knows.
    pub fn set_known(&self, proofs: &[&[u8]], clock: &dyn Clock) -> Result<(), Error> {
        let proofs = proofs.iter().map(|proof| digits(proof)).collect();
        self.change(clock, |content| {
            content.proofs = Some(proofs);
            true
        })
    }

    /// Forgets all states but `now`, unless another program has changed them since `expected` were set.
    pub fn settle(&self, expected: &[&[u8]], now: &[u8], clock: &dyn Clock) -> Result<(), Error> {
        let expected: Vec<String> = expected.iter().map(|proof| digits(proof)).collect();
        self.change(clock, |content| {
            let is_mine = content.proofs.as_ref() == Some(&expected);
            if is_mine {
                content.proofs = Some(vec![digits(now)]);
            }
            is_mine
        })
    }

    fn change(
        &self,
        clock: &dyn Clock,
        change: impl FnOnce(&mut Content) -> bool,
    ) -> Result<(), Error> {
        let changed = self.file.change(clock, 0o600, |before| {
            let content = before.and_then(Content::of);
            let mut content = content.ok_or(std::io::ErrorKind::InvalidData)?;
            let after = change(&mut content).then(|| content.bytes());
            Ok::<_, std::io::Error>((after, ()))
        });
        changed.map_err(|e| self.wrong(format!("it cannot be changed: {e}")))?;
        self.hand_over()
    }
}
