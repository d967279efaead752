//! The master key and the certificates of a T-SQL server.
//!
//! All of them together are one state. The file of the service key has a proof of the state that was stored last, so neither
//! rows that were swapped nor older ones that were put back are used.
//!
//! Invariants
//! - A private key is in the catalog only sealed by the master key or encrypted by a password, and the master key only sealed
//!   by the service key or by passwords.
//! - Each row is bound to its name, its certificate and its private key by the service key.
//! - A change is made by one transaction, which holds the catalog from reading the state to storing it. The file knows the new
//!   state before the catalog has it, and forgets the old one after: a kill between leaves both states good.
//! - A state that the file does not know is never made good by another change.
//! - `Debug` shows no key.
//!
//! Leaves to others: what statements make of keys (`longshore-tsql`), and the seals (`longshore-crypt`).

use std::fmt;

use longshore_crypt::{Certificate, ServiceKey, hexadecimal};
use longshore_io::{Clock, Storage};
use rusqlite::{Connection, Row, Transaction, params};

use crate::service_file::ServiceFile;
use crate::{Catalog, Error};

/// How often a state is read again that another program may be changing.
const TRIES: usize = 100;
/// Bytes of the master key under one password.
const BY_PASSWORD_LEN: usize = longshore_crypt::Passphrase::SLOT_LEN;

/// The master key, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    pub guid: String,
    /// Local time, as the catalog's other dates.
    pub created: String,
    pub changed: String,
    /// Under the service key; `None`: statements must open it with a password.
    pub by_service: Option<Vec<u8>>,
    /// Under each of its passwords.
    pub by_passwords: Vec<Vec<u8>>,
}

/// The keeper of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBy {
    /// There is none.
    Nobody,
    MasterKey,
    Password,
}

impl KeptBy {
    /// SQL Server's `pvt_key_encryption_type`.
    pub fn code(self) -> &'static str {
        match self {
            KeptBy::Nobody => "NA",
            KeptBy::MasterKey => "MK",
            KeptBy::Password => "PW",
        }
    }

    fn of_code(code: &str) -> Option<KeptBy> {
        let all = [KeptBy::Nobody, KeptBy::MasterKey, KeptBy::Password];
        all.into_iter().find(|kept| kept.code() == code)
    }
}

/// A certificate, and its private key if it is here.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptCertificate {
    /// `None` before it is stored.
    pub id: Option<i64>,
    pub name: String,
    pub certificate: Certificate,
    kept_by: KeptBy,
    private_key: Vec<u8>,
    /// When the private key was last backed up: local time.
    pub backed_up: Option<String>,
    seal: Vec<u8>,
}

impl fmt::Debug for KeptCertificate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "KeptCertificate({:?})", self.name)
    }
}

impl KeptCertificate {
    /// `private_key`: as it is kept; empty if there is none.
    ///
    /// Errors: [`longshore_crypt::Error::Random`].
    pub fn new(
        name: &str,
        certificate: Certificate,
        (kept_by, private_key): (KeptBy, Vec<u8>),
        service: &ServiceKey,
    ) -> Result<KeptCertificate, longshore_crypt::Error> {
        let mut row = KeptCertificate {
            id: None,
            name: name.to_owned(),
            certificate,
            kept_by,
            private_key,
            backed_up: None,
            seal: Vec::new(),
        };
        row.seal = row.sealed(service)?;
        Ok(row)
    }

    /// Replaces the private key by the same one, kept in another way.
    ///
    /// Errors: [`longshore_crypt::Error::Random`].
    pub fn keep(
        &mut self,
        private_key: Vec<u8>,
        service: &ServiceKey,
    ) -> Result<(), longshore_crypt::Error> {
        self.private_key = private_key;
        self.seal = self.sealed(service)?;
        Ok(())
    }

    pub fn kept_by(&self) -> KeptBy {
        self.kept_by
    }

    /// The private key, as it is kept.
    pub fn private_key(&self) -> &[u8] {
        &self.private_key
    }

    /// `0x` and the digits of the thumbprint.
    pub fn thumbprint(&self) -> String {
        hexadecimal(&self.certificate.thumbprint())
    }

    /// The facts that the seal of the row binds to its private key.
    fn context(&self) -> [String; 4] {
        [
            "certificate".to_owned(),
            self.name.clone(),
            hexadecimal(self.certificate.der()),
            self.kept_by.code().to_owned(),
        ]
    }

    fn sealed(&self, service: &ServiceKey) -> Result<Vec<u8>, longshore_crypt::Error> {
        let context = self.context();
        service.seal(&context.each_ref().map(String::as_str), &self.private_key)
    }

    fn is_sealed_by(&self, service: &ServiceKey) -> bool {
        let context = self.context();
        let opened = service.open(&context.each_ref().map(String::as_str), &self.seal);
        opened.is_ok_and(|whole| *whole == self.private_key)
    }
}

/// The master key and all certificates.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ServerKeys {
    pub master: Option<MasterKey>,
    /// By name.
    pub certificates: Vec<KeptCertificate>,
}

impl ServerKeys {
    pub fn is_empty(&self) -> bool {
        self.master.is_none() && self.certificates.is_empty()
    }

    /// The certificate of this name, in any case.
    pub fn certificate(&self, name: &str) -> Option<&KeptCertificate> {
        let mut all = self.certificates.iter();
        all.find(|one| one.name.eq_ignore_ascii_case(name))
    }

    /// Errors: the name of the first certificate that this key did not seal.
    pub(crate) fn check_seals(&self, service: &ServiceKey) -> Result<(), &str> {
        let mut all = self.certificates.iter();
        match all.find(|one| !one.is_sealed_by(service)) {
            Some(wrong) => Err(&wrong.name),
            None => Ok(()),
        }
    }

    /// A number that only the owner of the service key can compute for this state.
    fn proof(&self, service: &ServiceKey) -> [u8; 32] {
        let mut parts: Vec<&[u8]> = Vec::new();
        if let Some(master) = &self.master {
            parts.extend([
                b"master".as_slice(),
                master.guid.as_bytes(),
                master.created.as_bytes(),
                master.changed.as_bytes(),
                master.by_service.as_deref().unwrap_or_default(),
            ]);
            parts.extend(master.by_passwords.iter().map(Vec::as_slice));
        }
        for one in &self.certificates {
            parts.extend([
                b"certificate".as_slice(),
                one.name.as_bytes(),
                one.certificate.der(),
                one.kept_by.code().as_bytes(),
                &one.private_key,
                one.backed_up.as_deref().unwrap_or_default().as_bytes(),
                &one.seal,
            ]);
        }
        service.proof(&parts)
    }

    fn check(&self, file: &ServiceFile, service: &ServiceKey) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        self.check_seals(service).map_err(|name| {
            file.wrong(format!(
                "it did not seal the certificate '{name}' as the catalog has it"
            ))
        })?;
        match file.knows(&self.proof(service))? {
            true => Ok(()),
            false => Err(Error::KeysChanged {
                path: file.path().to_owned(),
            }),
        }
    }

    fn read(db: &Connection) -> rusqlite::Result<ServerKeys> {
        let sql = "SELECT key_guid, create_date, modify_date, by_service, by_passwords FROM longshore_master_key";
        let masters = db
            .prepare_cached(sql)?
            .query_map([], master)?
            .collect::<Result<Vec<_>, _>>()?;
        let sql = "SELECT certificate_id, name, certificate, pvt_key_encryption_type, private_key, pvt_key_last_backup_date, \
                   seal FROM longshore_certificate ORDER BY name";
        let certificates = db
            .prepare_cached(sql)?
            .query_map([], certificate)?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(ServerKeys {
            master: masters.into_iter().next(),
            certificates,
        })
    }

    fn write(&self, tx: &Transaction) -> rusqlite::Result<()> {
        tx.execute("DELETE FROM longshore_master_key", [])?;
        if let Some(master) = &self.master {
            tx.execute(
                "INSERT INTO longshore_master_key (key_guid, create_date, modify_date, by_service, by_passwords) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    master.guid,
                    master.created,
                    master.changed,
                    master.by_service,
                    master.by_passwords.concat()
                ],
            )?;
        }
        tx.execute("DELETE FROM longshore_certificate", [])?;
        for one in &self.certificates {
            tx.execute(
                "INSERT INTO longshore_certificate (certificate_id, name, certificate, pvt_key_encryption_type, private_key, \
                 pvt_key_last_backup_date, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    one.id,
                    one.name,
                    one.certificate.der(),
                    one.kept_by.code(),
                    one.private_key,
                    one.backed_up,
                    one.seal
                ],
            )?;
        }
        Ok(())
    }
}

impl Catalog {
    /// The master key and the certificates, as they are stored: for views. Other callers take [`Catalog::trusted_keys`].
    pub fn server_keys(&self) -> Result<ServerKeys, Error> {
        self.read(ServerKeys::read)
    }

    /// The keys, if they are those that were stored last, and the service key, if there is one.
    ///
    /// Errors: [`Error::ServiceKey`], [`Error::KeysChanged`].
    pub fn trusted_keys(
        &self,
        storage: &dyn Storage,
    ) -> Result<(ServerKeys, Option<ServiceKey>), Error> {
        let mut tries = TRIES;
        loop {
            let keys = self.server_keys()?;
            let file = ServiceFile::of(self.path(), storage)?;
            let service = file.read()?;
            let checked = match &service {
                Some(service) => keys.check(&file, service),
                None if keys.is_empty() => Ok(()),
                None => Err(file.wrong("it is missing, and secrets are sealed under it")),
            };
            tries -= 1;
            match checked {
                Ok(()) => return Ok((keys, service)),
                // Another program has changed them between the two readings.
                Err(_) if tries > 0 && self.server_keys()? != keys => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Changes the keys, which must be those that were stored last. The service key is made if nothing needs one yet.
    ///
    /// Errors: those of `change`; [`Error::ServiceKey`], [`Error::KeysChanged`], and those of a change.
    pub fn change_keys<T, E: From<Error>>(
        &self,
        tools: (&dyn Storage, &dyn Clock),
        change: impl FnOnce(&mut ServerKeys, &ServiceKey) -> Result<T, E>,
    ) -> Result<T, E> {
        let (storage, clock) = tools;
        let file = ServiceFile::of(self.path(), storage)?;
        self.changed(&file, clock, |tx, keys| {
            let is_free = keys.is_empty() && !has_secrets(tx).map_err(|e| self.sql(e))?;
            let service = file.read_or_make(is_free, clock)?;
            keys.check(&file, &service)?;
            let answer = change(keys, &service)?;
            Ok((answer, Some(service)))
        })
    }

    /// Removes keys, also where the service key is missing or does not know them.
    ///
    /// Errors: those of `change`, and those of a change.
    pub fn remove_keys<T, E: From<Error>>(
        &self,
        tools: (&dyn Storage, &dyn Clock),
        change: impl FnOnce(&mut ServerKeys) -> Result<T, E>,
    ) -> Result<T, E> {
        let (storage, clock) = tools;
        let file = ServiceFile::of(self.path(), storage)?;
        self.changed(&file, clock, |_, keys| {
            let service = file.read().ok().flatten();
            let is_known = |service: &ServiceKey| keys.check(&file, service).is_ok();
            // A change of a state that is not known makes the rest of it no better.
            let service = service.filter(is_known);
            let answer = change(keys)?;
            Ok((answer, service))
        })
    }

    /// `change` returns the service key if the file must know the new state.
    fn changed<T, E: From<Error>>(
        &self,
        file: &ServiceFile,
        clock: &dyn Clock,
        change: impl FnOnce(&Transaction, &mut ServerKeys) -> Result<(T, Option<ServiceKey>), E>,
    ) -> Result<T, E> {
        let mut settle = None;
        let answer = self.write(|tx| {
            let before = ServerKeys::read(tx)?;
            let mut keys = before.clone();
            let (answer, service) = match change(tx, &mut keys) {
                Ok(changed) => changed,
                Err(error) => return Ok(Err(error)),
            };
            // The order in which they are read.
            let fold = |one: &KeptCertificate| one.name.to_ascii_lowercase();
            keys.certificates.sort_by_key(fold);
            if let Some(service) = service {
                let proofs = [before.proof(&service), keys.proof(&service)];
                if let Err(error) = file.set_known(&[&proofs[0], &proofs[1]], clock) {
                    return Ok(Err(error.into()));
                }
                settle = Some(proofs);
            }
            keys.write(tx)?;
            Ok(Ok(answer))
        })?;
        if let (Ok(_), Some([before, now])) = (&answer, &settle)
            && let Err(error) = file.settle(&[before, now], now, clock)
        {
            // Both states stay known until the next change.
            tracing::warn!(%error, "the state of the keys before this change was not forgotten");
        }
        answer
    }

    fn sql(&self, error: rusqlite::Error) -> Error {
        Error::sql(self.path(), error)
    }
}

/// Whether a credential has a secret.
fn has_secrets(tx: &Transaction) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM longshore_credential WHERE secret IS NOT NULL)";
    tx.query_row(sql, [], |row| row.get(0))
}

fn master(row: &Row) -> rusqlite::Result<MasterKey> {
    let passwords: Vec<u8> = row.get(4)?;
    Ok(MasterKey {
        guid: row.get(0)?,
        created: row.get(1)?,
        changed: row.get(2)?,
        by_service: row.get(3)?,
        by_passwords: passwords
            .chunks(BY_PASSWORD_LEN)
            .map(<[u8]>::to_vec)
            .collect(),
    })
}

fn certificate(row: &Row) -> rusqlite::Result<KeptCertificate> {
    let odd = |column, error: longshore_crypt::Error| {
        let kind = rusqlite::types::Type::Blob;
        rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
    };
    let der: Vec<u8> = row.get(2)?;
    let code: String = row.get(3)?;
    let wrong = longshore_crypt::Error::Certificate {
        what: "the catalog says in an unknown way who keeps its private key",
    };
    Ok(KeptCertificate {
        id: row.get(0)?,
        name: row.get(1)?,
        certificate: Certificate::of_der(&der).map_err(|e| odd(2, e))?,
        kept_by: KeptBy::of_code(&code).ok_or_else(|| odd(3, wrong))?,
        private_key: row.get(4)?,
        backed_up: row.get(5)?,
        seal: row.get(6)?,
    })
}
