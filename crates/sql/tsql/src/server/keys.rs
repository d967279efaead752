//! The master key and the certificates of this server, as statements use them.
//!
//! Invariants
//! - They are in the catalog alone: without one there are none. Each use reads them, and takes only those that were stored
//!   last (`longshore-catalog`).
//! - A private key is taken for a certificate's only if its public half is the certificate's.
//! - Passwords take turns, so that many sessions take no more memory than one.
//! - A key is in memory only while a statement uses it; the master key also while a session has it open.
//!
//! Leaves to others: the table and what proves it (`longshore-catalog`), and the statements (`statement/key.rs`).

use std::path::PathBuf;
use std::sync::Arc;

use longshore_catalog::{
    Catalog, Error, KeptBy, KeptCertificate, MasterKey, ServerKeys, service_key_path,
};
use longshore_crypt::{KeyId, PrivateKey, ServiceKey};
use longshore_io::{Clock, Storage};
use longshore_pipeline::RunContext;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::credentials::text_of;
use crate::message::{self, Message, NO_CATALOG};
use crate::value::DateTime;

/// The master key, opened.
#[derive(Clone)]
pub(crate) struct OpenMaster {
    guid: String,
    key: Arc<ServiceKey>,
}

impl OpenMaster {
    pub fn new(guid: String, key: ServiceKey) -> OpenMaster {
        OpenMaster {
            guid,
            key: Arc::new(key),
        }
    }

    pub fn guid(&self) -> &str {
        &self.guid
    }

    pub fn key(&self) -> &ServiceKey {
        &self.key
    }

    pub fn is_of(&self, master: &MasterKey) -> bool {
        self.guid == master.guid
    }

    /// A private key as the row of this name keeps it.
    ///
    /// Errors: the system gives no random bytes.
    pub fn seal(
        &self,
        (name, thumbprint): (&str, &str),
        key: &PrivateKey,
    ) -> Result<Vec<u8>, longshore_crypt::Error> {
        self.key
            .seal(&["private key", name, thumbprint], key.pkcs8())
    }

    /// `None`: another key has sealed it, or it is of another certificate.
    pub fn open(&self, row: &KeptCertificate) -> Option<PrivateKey> {
        let context = ["private key", &row.name, &row.thumbprint()];
        let plain = self.key.open(&context, row.private_key()).ok()?;
        let key = PrivateKey::of_pkcs8(&plain).ok()?;
        (key.public() == row.certificate.public()).then_some(key)
    }
}

/// The facts that the service key binds the master key to.
pub(crate) fn master_context(guid: &str) -> [&str; 2] {
    ["master key", guid]
}

/// A failed change of keys.
#[derive(Debug)]
pub(crate) enum KeyError {
    Catalog(Error),
    Refused(Vec<Message>),
}

impl From<Error> for KeyError {
    fn from(error: Error) -> KeyError {
        KeyError::Catalog(error)
    }
}

impl From<Message> for KeyError {
    fn from(message: Message) -> KeyError {
        KeyError::Refused(vec![message])
    }
}

impl From<longshore_crypt::Error> for KeyError {
    fn from(error: longshore_crypt::Error) -> KeyError {
        message::OWN.with(&[&error]).into()
    }
}

/// A moment as the catalog's dates are.
pub(crate) fn text_of_date(at: DateTime) -> String {
    text_of(at)
}

#[derive(Clone)]
pub(crate) struct Keys {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    /// The catalog's; `None`: there is none.
    path: Option<PathBuf>,
    /// Held while a password is tried or set, which takes 256 MiB: sessions take turns.
    turn: Arc<Mutex<()>>,
}

impl Keys {
    pub(super) fn new(context: &RunContext) -> Keys {
        Keys {
            storage: context.storage.clone(),
            clock: context.clock.clone(),
            path: context.catalog.clone(),
            turn: Arc::default(),
        }
    }

    /// Does something with a password, while no other session does.
    pub fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock();
        work()
    }

    /// Errors: 50004.
    fn catalog(&self) -> Result<Catalog, Message> {
        let path = self.path.as_deref().ok_or_else(|| NO_CATALOG.plain())?;
        Catalog::open(path).map_err(|error| {
            tracing::warn!(%error, "the catalog cannot be opened");
            NO_CATALOG.plain()
        })
    }

    /// The rows, as they are stored, for views.
    pub fn rows(&self) -> Result<ServerKeys, Message> {
        let is_there = |path: &PathBuf| self.storage.stat(path).is_ok();
        match self.path.as_ref().is_some_and(is_there) {
            true => self.catalog()?.server_keys().map_err(|e| own(&e)),
            // A query does not create the catalog.
            false => Ok(ServerKeys::default()),
        }
    }

    /// Whether the file of the service key is there.
    pub fn has_service_key(&self) -> bool {
        let path = self.path.as_deref().map(service_key_path);
        path.is_some_and(|path| self.storage.stat(&path).is_ok())
    }

    /// The keys that were stored last, and the service key if there is one.
    pub fn trusted(&self) -> Result<(ServerKeys, Option<ServiceKey>), Message> {
        let is_there = |path: &PathBuf| self.storage.stat(path).is_ok();
        if self.path.as_ref().is_some_and(|path| !is_there(path)) {
            return Ok((ServerKeys::default(), None));
        }
        let read = self.catalog()?.trusted_keys(&*self.storage);
        read.map_err(|e| own(&e))
    }

    /// Changes the keys, all at once.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut ServerKeys, &ServiceKey) -> Result<T, KeyError>,
    ) -> Result<T, Vec<Message>> {
        let tools = (&*self.storage, &*self.clock);
        let catalog = self.catalog().map_err(|message| vec![message])?;
        said(catalog.change_keys(tools, change))
    }

    /// The same for changes that remove something, which need no service key.
    pub fn remove<T>(
        &self,
        change: impl FnOnce(&mut ServerKeys) -> Result<T, KeyError>,
    ) -> Result<T, Vec<Message>> {
        let tools = (&*self.storage, &*self.clock);
        let catalog = self.catalog().map_err(|message| vec![message])?;
        said(catalog.remove_keys(tools, change))
    }

    /// The certificate of this name. Errors: 15151.
    pub fn certificate(&self, name: &str) -> Result<KeptCertificate, Message> {
        let (keys, _) = self.trusted()?;
        let found = keys.certificate(name).cloned();
        found.ok_or_else(|| message::OBJECT_MISSING.with(&[&"find", &"certificate", &name]))
    }

    /// The master key, which the session has opened or the service key opens. Errors: 15581.
    pub fn master(&self, opened: Option<&OpenMaster>) -> Result<OpenMaster, Message> {
        let (keys, service) = self.trusted()?;
        let closed = || message::NO_MASTER_KEY.plain();
        let master = keys.master.as_ref().ok_or_else(closed)?;
        if let Some(opened) = opened.filter(|opened| opened.is_of(master)) {
            return Ok(opened.clone());
        }
        let (sealed, service) = (master.by_service.as_deref(), service.as_ref());
        let opened = sealed.zip(service).and_then(|(sealed, service)| {
            let plain = service.open(&master_context(&master.guid), sealed).ok()?;
            let bytes = <[u8; 32]>::try_from(&plain[..]).ok()?;
            Some(ServiceKey::of_bytes(Zeroizing::new(bytes)))
        });
        let key = opened.ok_or_else(closed)?;
        Ok(OpenMaster::new(master.guid.clone(), key))
    }

    /// The private key of this id, if a certificate here has it under the master key.
    pub fn private_key(&self, id: &KeyId, opened: Option<&OpenMaster>) -> Option<PrivateKey> {
        self.path.as_ref()?;
        let find = || -> Result<Option<PrivateKey>, Message> {
            let (keys, _) = self.trusted()?;
            let mut all = keys.certificates.iter();
            let of_id = |row: &&KeptCertificate| {
                row.certificate.public().id() == *id && row.kept_by() == KeptBy::MasterKey
            };
            match all.find(of_id) {
                Some(row) => Ok(self.master(opened)?.open(row)),
                None => Ok(None),
            }
        };
        find().unwrap_or_else(|why| {
            tracing::warn!(%why, "the certificates were not read");
            None
        })
    }

    /// Why the certificate with this thumbprint opens nothing, if it is here at all.
    pub fn why_closed(&self, thumbprint: &str, opened: Option<&OpenMaster>) -> Option<Message> {
        self.path.as_ref()?;
        let (keys, _) = match self.trusted() {
            Ok(keys) => keys,
            Err(message) => return Some(message),
        };
        let mut all = keys.certificates.iter();
        let row = all.find(|row| row.thumbprint() == thumbprint)?;
        match row.kept_by() {
            KeptBy::MasterKey => self.master(opened).err(),
            KeptBy::Nobody | KeptBy::Password => {
                let certificate = "certificate";
                Some(message::KEY_NOT_AUTOMATIC.with(&[&certificate, &row.name, &certificate]))
            }
        }
    }
}

fn own(error: &Error) -> Message {
    let text = format!("{error} (hint: {})", error.hint());
    message::OWN.with(&[&text])
}

fn said<T>(changed: Result<T, KeyError>) -> Result<T, Vec<Message>> {
    changed.map_err(|error| match error {
        KeyError::Catalog(error) => vec![own(&error)],
        KeyError::Refused(messages) => messages,
    })
}
