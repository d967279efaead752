//! Credentials of a T-SQL server: keys of object stores, whose secrets are in the catalog only sealed.
//!
//! Invariants
//! - A secret is in the catalog only under the service key, bound to the credential's name and identity: one that is moved
//!   to another row does not open.
//! - While secrets or keys are sealed under it, no new key takes the place of a missing one, and nothing is sealed under another key
//!   than theirs.
//! - No message, and no `Debug`, has a secret in it.
//!
//! Leaves to others: the file of the service key (`service_file.rs`), what a credential is for (`longshore-tsql`), and the
//! seal (`longshore-crypt`).

use std::fmt;
use std::path::Path;

use longshore_io::{Clock, Storage};
use rusqlite::{OptionalExtension, Row, params};

use crate::service_file::ServiceFile;
use crate::{Catalog, Error};

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
        let opened = key.open(&[&self.name, &self.identity], sealed).ok();
        match opened.and_then(|secret| String::from_utf8(secret.to_vec()).ok()) {
            Some(secret) => Ok(Some(secret)),
            None => Err(file.wrong("it is not the key that sealed this credential")),
        }
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

    /// Whether nothing is lost if the service key is: no credential's secret, no master key and no certificate is sealed.
    pub(crate) fn needs_no_service_key(&self) -> Result<bool, Error> {
        let has_secrets = self.credentials()?.iter().any(Credential::has_secret);
        Ok(!has_secrets && self.server_keys()?.is_empty())
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
        let keys = self.server_keys()?;
        let key = file.read_or_make(self.needs_no_service_key()?, clock)?;
        keys.check_seals(&key).map_err(|name| {
            file.wrong(format!(
                "it is not the key that sealed the certificate '{name}'"
            ))
        })?;
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
        let sealed = key.seal(&[name, identity], secret.as_bytes());
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
