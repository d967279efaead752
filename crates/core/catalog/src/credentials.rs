//! Credentials of a T-SQL server: keys of object stores, whose secrets are in the catalog only sealed.
//!
//! The key that seals them, the *service key*, is a file next to the catalog, `CATALOG.key`, which the first credential
//! or the first encrypted backup makes. So a copy of the catalog alone opens none.
//!
//! Invariants
//! - A secret is in the catalog only under the service key, bound to the credential's name and identity: one that is moved
//!   to another row does not open.
//! - The service key's file belongs to this user, to root or, where root runs, to the catalog's owner, and nobody else can
//!   read it, or it is refused. Root makes it the catalog's owner's.
//! - While sealed secrets of credentials are there, no new key takes the place of a missing one, and none is sealed under another key
//!   than theirs.
//! - No message, and no `Debug`, has a secret in it.
//!
//! Leaves to others: what a credential is for (`longshore-tsql`), and the seal (`longshore-crypt`).

use std::fmt;
use std::path::{Path, PathBuf};

use longshore_crypt::ServiceKey;
use longshore_io::{Attributes, Clock, SmallFile, Storage};
use rusqlite::{OptionalExtension, Row, params};
use zeroize::Zeroizing;

use crate::{Catalog, Error};

/// The service key's file is not longer than this.
const FILE_MAX: usize = 1 << 10;

/// A credential as the catalog has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub id: i64,
    pub name: String,
    pub identity: String,
    /// Local time, as the catalog's other dates.
    pub created: String,
    pub changed: String,
    sealed: Option<Vec<u8>>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Credential({:?})", self.name)
    }
}

impl Credential {
    /// Whether it was made with a secret.
    pub fn has_secret(&self) -> bool {
        self.sealed.is_some()
    }

    /// The secret, by the service key of the catalog at `path`; `None` if there is none.
    ///
    /// Errors: [`Error::ServiceKey`].
    pub fn secret(&self, path: &Path, storage: &dyn Storage) -> Result<Option<String>, Error> {
        let Some(sealed) = &self.sealed else {
            return Ok(None);
        };
        let file = ServiceFile::of(path, storage)?;
        let key = file.read()?.ok_or_else(|| file.wrong("it is missing"))?;
        match key.open(&[&self.name, &self.identity], sealed) {
            Ok(secret) => Ok(Some((*secret).clone())),
            Err(_) => Err(file.wrong("it is not the key that sealed this credential")),
        }
    }
}

/// The path of a catalog's service key.
pub fn service_key_path(catalog: &Path) -> PathBuf {
    let mut path = catalog.as_os_str().to_owned();
    path.push(".key");
    path.into()
}

/// The file of the service key.
pub(crate) struct ServiceFile<'a> {
    storage: &'a dyn Storage,
    catalog: PathBuf,
    path: PathBuf,
    file: SmallFile,
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

    pub fn wrong(&self, why: impl Into<String>) -> Error {
        Error::ServiceKey {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// The key; `None` if there is no file.
    pub fn read(&self) -> Result<Option<ServiceKey>, Error> {
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
        let key = std::str::from_utf8(&bytes).ok();
        match key.and_then(ServiceKey::of_line) {
            Some(key) => Ok(Some(key)),
            None => Err(self.wrong("it is no service key")),
        }
    }

    /// The owner and the group of the catalog, if it is there.
    fn owner(&self) -> Option<(u32, u32)> {
        let stat = self.storage.stat(&self.catalog).ok()?;
        Some((stat.uid, stat.gid))
    }

    /// The catalog's own user must be able to read what root makes.
    fn hand_over(&self) -> std::io::Result<()> {
        let (Some(owner), Some(parent), Some(name)) =
            (self.owner(), self.path.parent(), self.path.file_name())
        else {
            return Ok(());
        };
        if rustix::process::geteuid().as_raw() != 0 || owner.0 == 0 {
            return Ok(());
        }
        let attributes = Attributes {
            owner: Some(owner),
            ..Attributes::default()
        };
        let dir = self.storage.dir(parent)?;
        dir.set_attributes(Path::new(name), &attributes)
    }

    /// The key, which is made if there is none. `may_make`: no secret needs one that is missing.
    pub fn read_or_make(&self, may_make: bool, clock: &dyn Clock) -> Result<ServiceKey, Error> {
        if let Some(key) = self.read()? {
            return Ok(key);
        }
        if !may_make {
            return Err(self.wrong("it is missing, and credentials are sealed under it"));
        }
        let new = ServiceKey::new().map_err(|e| self.wrong(e.to_string()))?;
        let line = new.line();
        let made = self.file.change(clock, 0o600, |before| {
            // Another program may have made it meanwhile.
            let after = before.is_none().then(|| line.as_bytes().to_vec());
            Ok::<_, std::io::Error>((after, ()))
        });
        made.map_err(|e| self.wrong(format!("it cannot be made: {e}")))?;
        self.hand_over()
            .map_err(|e| self.wrong(format!("it cannot be given to the catalog's owner: {e}")))?;
        self.read()?.ok_or_else(|| self.wrong("it is missing"))
    }
}

impl Catalog {
    /// All credentials, by name.
    pub fn credentials(&self) -> Result<Vec<Credential>, Error> {
        self.read(|db| {
            let sql = "SELECT credential_id, name, credential_identity, create_date, modify_date, secret \
                       FROM longshore_credential ORDER BY name";
            db.prepare_cached(sql)?.query_map([], credential)?.collect()
        })
    }

    /// The sealed secret. A key is made if no secret is sealed yet; one that does not open another credential seals none.
    fn sealed(
        &self,
        (name, identity): (&str, &str),
        secret: Option<&str>,
        (storage, clock): (&dyn Storage, &dyn Clock),
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(secret) = secret else {
            return Ok(None);
        };
        let all = self.credentials()?;
        let file = ServiceFile::of(self.path(), storage)?;
        let key = file.read_or_make(!all.iter().any(Credential::has_secret), clock)?;
        let mut others = all
            .iter()
            .filter(|one| !one.name.eq_ignore_ascii_case(name));
        if let Some((other, sealed)) = others.find_map(|one| Some((one, one.sealed.as_deref()?)))
            && key.open(&[&other.name, &other.identity], sealed).is_err()
        {
            let why = format!(
                "it is not the key that sealed the credential '{}'",
                other.name
            );
            return Err(file.wrong(why));
        }
        let sealed = key.seal(&[name, identity], secret);
        sealed.map(Some).map_err(|e| file.wrong(e.to_string()))
    }

    /// Adds a credential; returns whether the name was new, ignoring case.
    ///
    /// Errors: [`Error::ServiceKey`], and those of a change.
    pub fn add_credential(
        &self,
        credential: (&str, &str),
        secret: Option<&str>,
        now: &str,
        tools: (&dyn Storage, &dyn Clock),
    ) -> Result<bool, Error> {
        let sealed = self.sealed(credential, secret, tools)?;
        let (name, identity) = credential;
        self.write(|tx| {
            let sql = "INSERT INTO longshore_credential (name, credential_identity, create_date, modify_date, secret) \
                       SELECT ?1, ?2, ?3, ?3, ?4 \
                       WHERE NOT EXISTS (SELECT 1 FROM longshore_credential WHERE name = ?1)";
            Ok(tx.execute(sql, params![name, identity, now, sealed])? > 0)
        })
    }

    /// Replaces identity and secret of a credential; returns whether it was there. Its name keeps its spelling.
    ///
    /// Errors: [`Error::ServiceKey`], and those of a change.
    pub fn change_credential(
        &self,
        (name, identity): (&str, &str),
        secret: Option<&str>,
        now: &str,
        tools: (&dyn Storage, &dyn Clock),
    ) -> Result<bool, Error> {
        // The seal is bound to the spelling.
        let known: Option<String> = self.read(|db| {
            let sql = "SELECT name FROM longshore_credential WHERE name = ?1";
            db.query_row(sql, [name], |row| row.get(0)).optional()
        })?;
        let Some(known) = known else {
            return Ok(false);
        };
        let sealed = self.sealed((&known, identity), secret, tools)?;
        self.write(|tx| {
            let sql = "UPDATE longshore_credential SET credential_identity = ?2, modify_date = ?3, secret = ?4 \
                       WHERE name = ?1";
            Ok(tx.execute(sql, params![known, identity, now, sealed])? > 0)
        })
    }

    /// Removes a credential; returns whether it was there.
    pub fn drop_credential(&self, name: &str) -> Result<bool, Error> {
        self.write(|tx| {
            Ok(tx.execute("DELETE FROM longshore_credential WHERE name = ?1", [name])? > 0)
        })
    }
}

fn credential(row: &Row) -> rusqlite::Result<Credential> {
    Ok(Credential {
        id: row.get(0)?,
        name: row.get(1)?,
        identity: row.get(2)?,
        created: row.get(3)?,
        changed: row.get(4)?,
        sealed: row.get(5)?,
    })
}
