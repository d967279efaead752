//! State that outlives the program: logical devices, restored databases, restores that wait for more, credentials,
//! procedures and tables.
//!
//! Invariants
//! - The catalog stores it, for every server that uses the catalog; this is a copy. A change is stored before it is in
//!   the copy.
//! - The copy is read again when the catalog's files have changed, at most once for each batch. Without a catalog it
//!   lasts as long as the program.
//! - A catalog that cannot be read is a warning: backups must not depend on this state. No credential counts then, since
//!   it may have been dropped.
//!
//! Leaves to others: the tables (`longshore-catalog`), and whether what a row names still exists (the statements).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_catalog::{Catalog, Error, RestoreSequence, RestoredDatabase};
use longshore_io::{Clock, Storage};
use longshore_pipeline::{RunContext, SourceSpec};
use parking_lot::{Mutex, RwLock};

use super::credentials::{CredentialRow, KeptCredential, put_plain, text_of};
use super::database::Database;
use super::objects::{InMemory, StoredObject, is_volatile};
use crate::message::{self, Message, NO_CATALOG};
use crate::value::DateTime;

const SQLITE: u8 = 2;
const POSTGRES: u8 = 3;

#[derive(Default)]
pub(super) struct Kept {
    /// Logical devices (`sp_addumpdevice`): name to path.
    devices: BTreeMap<String, PathBuf>,
    /// Databases that a restore has made and that are not in the configuration.
    restored: BTreeMap<String, Database>,
    /// The ones of these that are data directories of PostgreSQL clusters.
    clusters: BTreeMap<String, PathBuf>,
    sequences: BTreeMap<String, RestoreSequence>,
    credentials: Vec<KeptCredential>,
    pub(super) objects: Vec<Arc<StoredObject>>,
    pub(super) memory: InMemory,
    /// Lengths and times of the catalog's files when they were read.
    stamp: [Option<(u64, i64)>; 2],
}

impl Kept {
    fn read(&mut self, catalog: &Catalog) -> Result<(), Error> {
        self.devices = catalog.devices()?.into_iter().collect();
        let restored = catalog.restored_databases()?;
        self.clusters = restored
            .iter()
            .filter(|d| d.source_kind == POSTGRES)
            .map(|d| (d.name.clone(), d.path.clone()))
            .collect();
        self.restored = restored
            .iter()
            .map(|d| (d.name.clone(), database(d)))
            .collect();
        let sequences = catalog.sequences()?;
        self.sequences = sequences
            .into_iter()
            .map(|s| (s.database.clone(), s))
            .collect();
        let credentials = catalog.credentials()?;
        self.credentials = credentials.into_iter().map(KeptCredential::of).collect();
        let objects = catalog.objects()?.into_iter();
        let objects = objects.filter(|o| !is_volatile(o));
        let in_memory = self
            .objects
            .iter()
            .filter(|o| is_volatile(&o.object))
            .cloned();
        let in_memory: Vec<_> = in_memory.collect();
        self.objects = objects.map(|o| Arc::new(StoredObject::of(o))).collect();
        self.objects.extend(in_memory);
        Ok(())
    }

    fn put(&mut self, restored: &RestoredDatabase) {
        let name = restored.name.clone();
        self.clusters.remove(&name);
        if restored.source_kind == POSTGRES {
            self.clusters.insert(name.clone(), restored.path.clone());
        }
        self.restored.insert(name, database(restored));
    }
}

fn database(restored: &RestoredDatabase) -> Database {
    let path = restored.path.clone();
    Database {
        name: restored.name.clone(),
        source: match restored.source_kind {
            SQLITE => SourceSpec::Sqlite(path),
            _ => SourceSpec::Files(vec![path]),
        },
        algorithm: None,
        level: None,
        wal: None,
        trust_locks: false,
        server_config: true,
    }
}

/// The state, as the catalog stores it.
pub(crate) struct PersistentState {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    /// The catalog's; `None`: there is none.
    pub(super) path: Option<PathBuf>,
    pub(super) kept: Mutex<Kept>,
    /// A table's definition and its rows change together while nobody reads rows.
    pub(super) definitions: RwLock<()>,
}

impl PersistentState {
    pub(super) fn new(context: &RunContext) -> PersistentState {
        PersistentState {
            storage: context.storage.clone(),
            clock: context.clock.clone(),
            path: context.catalog.clone(),
            kept: Mutex::default(),
            definitions: RwLock::default(),
        }
    }

    /// The catalog's path, if it exists: a query does not create it.
    pub(crate) fn known_catalog(&self) -> Option<&Path> {
        let path = self.path.as_deref();
        path.filter(|p| self.storage.stat(p).is_ok())
    }

    /// The catalog; created if it is missing.
    pub(crate) fn catalog(&self) -> Result<Catalog, Message> {
        let path = self.path.as_deref();
        let path = path.ok_or_else(|| NO_CATALOG.plain())?;
        Catalog::open(path).map_err(|error| {
            tracing::warn!(%error, "the catalog cannot be opened");
            NO_CATALOG.plain()
        })
    }

    /// Checks whether another program has changed the stored state.
    pub(crate) fn refresh(&self) {
        let Some(path) = self.known_catalog() else {
            return;
        };
        let look = |path: &Path| self.storage.stat(path).ok().map(|s| (s.len, s.mtime_ns));
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let stamp = [look(path), look(Path::new(&log))];
        let mut kept = self.kept.lock();
        if kept.stamp == stamp {
            return;
        }
        match Catalog::open(path).and_then(|catalog| kept.read(&catalog)) {
            Ok(()) => kept.stamp = stamp,
            // Backups must not depend on this state.
            Err(error) => {
                kept.credentials.clear();
                kept.stamp = [None, None];
                tracing::warn!(
                    %error,
                    "logical devices and restores were not read, and no credential counts until they can be"
                );
            }
        }
    }

    /// Changes the catalog, if one is configured.
    pub(super) fn change<T>(
        &self,
        usual: T,
        change: impl FnOnce(&Catalog) -> Result<T, Error>,
    ) -> Result<T, Message> {
        if self.path.is_none() {
            return Ok(usual);
        }
        change(&self.catalog()?).map_err(|error| match &error {
            Error::ServiceKey { .. } => {
                let text = format!("{error} (hint: {})", error.hint());
                message::OWN.with(&[&text])
            }
            _ => message::OWN.with(&[&error]),
        })
    }

    /// The database of exactly this name. Errors: the restore that it waits for.
    pub(super) fn restored(&self, name: &str) -> Result<Option<Database>, Box<RestoreSequence>> {
        let kept = self.kept.lock();
        match kept.sequences.get(name) {
            Some(waiting) => Err(Box::new(waiting.clone())),
            None => Ok(kept.restored.get(name).cloned()),
        }
    }

    /// The names of all databases here, also of those that a restore waits for.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let kept = self.kept.lock();
        let known = kept.restored.keys().chain(kept.sequences.keys());
        known.cloned().collect()
    }

    /// The path of a logical device, by its name in any case.
    pub(crate) fn device(&self, name: &str) -> Option<PathBuf> {
        let kept = self.kept.lock();
        let mut devices = kept.devices.iter();
        let found = devices.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, path)| path.clone())
    }

    pub(crate) fn devices(&self) -> Vec<(String, PathBuf)> {
        let kept = self.kept.lock();
        let pair = |(name, path): (&String, &PathBuf)| (name.clone(), path.clone());
        kept.devices.iter().map(pair).collect()
    }

    /// Errors: 15026.
    pub(crate) fn add_device(&self, name: &str, path: PathBuf) -> Result<(), Message> {
        let text = path.display().to_string();
        let is_new = self.device(name).is_none()
            && self.change(true, |catalog| catalog.add_device(name, &text))?;
        if !is_new {
            return Err(message::DEVICE_EXISTS.with(&[&name]));
        }
        self.kept.lock().devices.insert(name.to_owned(), path);
        Ok(())
    }

    /// Errors: 15015.
    pub(crate) fn drop_device(&self, name: &str) -> Result<(), Message> {
        let is_known = self.device(name).is_some();
        if !self.change(is_known, |catalog| catalog.drop_device(name))? {
            return Err(message::DEVICE_NOT_THERE.with(&[&name]));
        }
        let mut kept = self.kept.lock();
        kept.devices
            .retain(|known, _| !known.eq_ignore_ascii_case(name));
        Ok(())
    }

    /// Stores the present location of a database that is not in the configuration.
    pub(crate) fn keep_database(&self, restored: &RestoredDatabase) -> Result<(), Message> {
        self.change((), |catalog| catalog.keep_database(restored))?;
        self.kept.lock().put(restored);
        Ok(())
    }

    /// The restore of this name that waits for more; ignoring case if only one matches.
    pub(crate) fn sequence(&self, name: &str) -> Option<RestoreSequence> {
        let kept = self.kept.lock();
        if let Some(found) = kept.sequences.get(name) {
            return Some(found.clone());
        }
        let same = |s: &&RestoreSequence| s.database.eq_ignore_ascii_case(name);
        let mut alike = kept.sequences.values().filter(same);
        let found = alike.next();
        found.filter(|_| alike.next().is_none()).cloned()
    }

    pub(crate) fn sequences(&self) -> Vec<RestoreSequence> {
        self.kept.lock().sequences.values().cloned().collect()
    }

    pub(crate) fn keep_sequence(&self, sequence: &RestoreSequence) -> Result<(), Message> {
        self.change((), |catalog| catalog.keep_sequence(sequence))?;
        let mut kept = self.kept.lock();
        kept.sequences
            .insert(sequence.database.clone(), sequence.clone());
        Ok(())
    }

    /// `restored`: the location of the database from now on.
    pub(crate) fn end_sequence(
        &self,
        database: &str,
        restored: Option<&RestoredDatabase>,
    ) -> Result<(), Message> {
        self.change((), |catalog| catalog.end_sequence(database, restored))?;
        let mut kept = self.kept.lock();
        kept.sequences.remove(database);
        if let Some(restored) = restored {
            kept.put(restored);
        }
        Ok(())
    }

    /// Forgets a database that is not in the configuration, by its exact name; returns its location.
    pub(crate) fn forget_database(&self, name: &str) -> Result<Option<PathBuf>, Message> {
        self.change((), |catalog| catalog.forget_database(name))?;
        let mut kept = self.kept.lock();
        kept.clusters.remove(name);
        Ok(kept.restored.remove(name).and_then(|d| match d.source {
            SourceSpec::Sqlite(path) => Some(path),
            SourceSpec::Files(paths) => paths.into_iter().next(),
            SourceSpec::Postgres(_) => None,
        }))
    }

    /// The data directory of a restored cluster.
    pub(crate) fn cluster(&self, name: &str) -> Option<PathBuf> {
        self.kept.lock().clusters.get(name).cloned()
    }

    pub(crate) fn credentials(&self) -> Vec<CredentialRow> {
        let kept = self.kept.lock();
        kept.credentials
            .iter()
            .map(|one| one.row().clone())
            .collect()
    }

    /// The identity and the secret of a credential; `None`: it has no secret.
    ///
    /// Errors: 15151; the service key cannot be used.
    pub(crate) fn secret_of(&self, name: &str) -> Result<(String, Option<String>), Message> {
        let kept = self.kept.lock();
        let found = kept.credentials.iter().find(|one| one.is(name)).cloned();
        drop(kept);
        let missing = || message::OBJECT_MISSING.with(&[&"find", &"credential", &name]);
        let found = found.ok_or_else(missing)?;
        let secret = found.secret(self.path.as_deref(), &*self.storage);
        let secret = secret.map_err(|error| {
            let text = format!(
                "the credential '{name}' cannot be opened: {error} (hint: {})",
                error.hint()
            );
            message::OWN.with(&[&text])
        })?;
        Ok((found.row().identity.clone(), secret))
    }

    /// Errors: 15530.
    pub(crate) fn add_credential(
        &self,
        name: &str,
        identity: &str,
        secret: Option<&str>,
        now: DateTime,
    ) -> Result<(), Message> {
        let tools = (&*self.storage, &*self.clock);
        let at = text_of(now);
        let has = |kept: &[KeptCredential]| kept.iter().any(|one| one.is(name));
        let is_new = !has(&self.kept.lock().credentials)
            && self.change(true, |catalog| {
                catalog.add_credential((name, identity), secret, &at, tools)
            })?;
        if !is_new {
            return Err(message::CREDENTIAL_EXISTS.with(&[&name]));
        }
        self.put_credential(name, identity, secret, now)
    }

    /// Errors: 15151.
    pub(crate) fn change_credential(
        &self,
        name: &str,
        identity: &str,
        secret: Option<&str>,
        now: DateTime,
    ) -> Result<(), Message> {
        let tools = (&*self.storage, &*self.clock);
        let at = text_of(now);
        let is_known = self.kept.lock().credentials.iter().any(|one| one.is(name));
        let changed = self.change(is_known, |catalog| {
            catalog.change_credential((name, identity), secret, &at, tools)
        })?;
        if !changed {
            return Err(message::OBJECT_MISSING.with(&[&"alter", &"credential", &name]));
        }
        self.put_credential(name, identity, secret, now)
    }

    /// Errors: 15151.
    pub(crate) fn drop_credential(&self, name: &str) -> Result<(), Message> {
        let is_known = self.kept.lock().credentials.iter().any(|one| one.is(name));
        if !self.change(is_known, |catalog| catalog.drop_credential(name))? {
            return Err(message::OBJECT_MISSING.with(&[&"drop", &"credential", &name]));
        }
        self.kept.lock().credentials.retain(|one| !one.is(name));
        Ok(())
    }

    /// The copy of what the catalog has now, or the credential itself where there is no catalog.
    fn put_credential(
        &self,
        name: &str,
        identity: &str,
        secret: Option<&str>,
        now: DateTime,
    ) -> Result<(), Message> {
        let read = match self.path {
            None => None,
            Some(_) => {
                let read = self.catalog()?.credentials();
                Some(read.map_err(|e| message::OWN.with(&[&e]))?)
            }
        };
        let mut kept = self.kept.lock();
        match read {
            Some(read) => kept.credentials = read.into_iter().map(KeptCredential::of).collect(),
            None => put_plain(&mut kept.credentials, (name, identity), secret, now),
        }
        Ok(())
    }
}
