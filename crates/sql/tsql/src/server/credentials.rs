//! Credentials of this server: keys of object stores, by name.
//!
//! Invariants
//! - With a catalog, a secret is in memory only while a statement uses it; the catalog has it sealed. Without one it lasts as
//!   long as the program.
//! - Names count without regard to case.
//! - `Debug` shows no secret.
//!
//! Leaves to others: changes (`persistent.rs`), the seal and the table (`longshore-catalog`), and which credential fits an address
//! (`statement/object.rs`).

use std::path::Path;

use longshore_catalog::{Credential, Error};
use longshore_io::Storage;

use crate::convert::parse_moment;
use crate::value::{DateTime, date_time_text};

/// The number of the first credential, as in SQL Server.
const FIRST_ID: i64 = 65_536;

/// A credential without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialRow {
    pub id: i64,
    pub name: String,
    pub identity: String,
    pub created: DateTime,
    pub changed: DateTime,
}

/// A credential, and where its secret is.
#[derive(Clone)]
pub(super) struct KeptCredential {
    row: CredentialRow,
    secret: KeptSecret,
}

#[derive(Clone)]
enum KeptSecret {
    Sealed(Credential),
    Plain(Option<String>),
}

impl KeptCredential {
    pub(super) fn of(credential: Credential) -> KeptCredential {
        let date = |text: &str| parse_moment(text).map_or(DateTime::default(), |found| found.0);
        KeptCredential {
            row: CredentialRow {
                id: credential.id,
                name: credential.name.clone(),
                identity: credential.identity.clone(),
                created: date(&credential.created),
                changed: date(&credential.changed),
            },
            secret: KeptSecret::Sealed(credential),
        }
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.row.name.eq_ignore_ascii_case(name)
    }

    pub(super) fn row(&self) -> &CredentialRow {
        &self.row
    }

    /// The secret, by the service key of the catalog at `path`; `None` if it has none.
    pub(super) fn secret(
        &self,
        path: Option<&Path>,
        storage: &dyn Storage,
    ) -> Result<Option<String>, Error> {
        match (&self.secret, path) {
            (KeptSecret::Plain(secret), _) => Ok(secret.clone()),
            (KeptSecret::Sealed(sealed), Some(path)) => sealed.secret(path, storage),
            (KeptSecret::Sealed(_), None) => Ok(None),
        }
    }
}

/// Adds a credential to those of a server without a catalog, or replaces the one of its name.
pub(super) fn put_plain(
    all: &mut Vec<KeptCredential>,
    (name, identity): (&str, &str),
    secret: Option<&str>,
    now: DateTime,
) {
    let before = all.iter().find(|one| one.is(name));
    let before = before.map(|one| one.row.clone());
    let highest = all.iter().map(|one| one.row.id).max();
    let row = CredentialRow {
        id: match &before {
            Some(before) => before.id,
            None => highest.map_or(FIRST_ID, |id| id + 1),
        },
        name: before
            .as_ref()
            .map_or(name.to_owned(), |one| one.name.clone()),
        identity: identity.to_owned(),
        created: before.map_or(now, |one| one.created),
        changed: now,
    };
    all.retain(|one| !one.is(name));
    let secret = KeptSecret::Plain(secret.map(str::to_owned));
    all.push(KeptCredential { row, secret });
}

/// A moment as the catalog's dates are.
pub(super) fn text_of(at: DateTime) -> String {
    date_time_text(&at).replace(' ', "T")
}
