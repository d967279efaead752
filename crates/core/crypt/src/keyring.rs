//! The identities of a run, the keys of the sets that they have opened, and whose signatures count.
//!
//! Invariants
//! - A set is opened once in a run, however many stripes it has: a passphrase may take a second each time.
//! - The keys of a set that the run itself wrote are at hand, so it can be verified where no identity is.
//! - A key of an index opens nothing else of its set.
//!
//! Leaves to others: reading identity files (the programs).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::command::WAL;
use crate::further::{ObjectFinder, OpenedSet};
use crate::{
    Error, Identities, Identity, IndexKeys, IndexSecret, KeyContext, KeyFinder, Keys, SetKeys,
    Signers, SigningKey,
};

/// The most sets whose keys are kept: as many as a chain may have, and the set that is written.
const KEPT_MAX: usize = 1_001;

/// Opens sets; shared by all threads of a run.
#[derive(Default)]
pub struct Keyring {
    identities: Arc<Identities>,
    required: bool,
    signers: Arc<Signers>,
    signing: Option<Arc<SigningKey>>,
    /// Finds key objects of sets that nothing else opens.
    objects: Option<Arc<ObjectFinder>>,
    known: Arc<Known>,
}

/// The keys that a run has at hand.
#[derive(Debug, Default)]
struct Known {
    opened: Mutex<VecDeque<Arc<SetKeys>>>,
    /// Sets whose index alone can be read, by their identifiers.
    indexes: Mutex<HashMap<[u8; 16], Arc<IndexKeys>>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({:?})", self.identities)
    }
}

impl Keyring {
    /// `required`: sets that are not encrypted are refused. Anybody who can write to media could else put a set of their own
    /// in the place of an encrypted one.
    pub fn new(identities: Identities, required: bool) -> Keyring {
        Keyring {
            identities: Arc::new(identities),
            required,
            ..Keyring::default()
        }
    }

    /// Whose signatures count.
    pub fn with_signers(self, signers: Arc<Signers>) -> Keyring {
        Keyring { signers, ..self }
    }

    /// The same, without the keys of any set, for a run that signs what it writes with this key.
    pub fn signing_with(&self, signing: Option<Arc<SigningKey>>) -> Keyring {
        Keyring {
            signing,
            ..self.for_one_run()
        }
    }

    /// The same identities, without the keys of any set: for a run of a process that has several.
    pub fn for_one_run(&self) -> Keyring {
        self.with_identities((*self.identities).clone())
    }

    /// Like [`Keyring::for_one_run`], with the keys that `finder` finds.
    pub fn with_finder(&self, finder: Arc<KeyFinder>) -> Keyring {
        self.with_identities((*self.identities).clone().with_finder(finder))
    }

    fn with_identities(&self, identities: Identities) -> Keyring {
        Keyring {
            signing: self.signing.clone(),
            objects: self.objects.clone(),
            ..Keyring::new(identities, self.required).with_signers(self.signers.clone())
        }
    }

    /// The same, with all keys that are at hand in both, which looks for key objects where `finder` and the finder before it look: the
    /// earlier one first.
    pub fn with_objects(&self, finder: Arc<ObjectFinder>) -> Keyring {
        let finder = match self.objects.clone() {
            None => finder,
            Some(first) => Arc::new(move |set: &[u8; 16]| first(set).and(finder(set))),
        };
        Keyring {
            identities: self.identities.clone(),
            required: self.required,
            signers: self.signers.clone(),
            signing: self.signing.clone(),
            objects: Some(finder),
            known: self.known.clone(),
        }
    }

    /// Whether sets that are not encrypted must be refused.
    pub fn requires_encryption(&self) -> bool {
        self.required
    }

    /// Whose signatures count.
    pub fn signers(&self) -> &Arc<Signers> {
        &self.signers
    }

    /// The key with which this run signs what it writes; `None`: it signs nothing.
    pub fn signing_key(&self) -> Option<&Arc<SigningKey>> {
        self.signing.as_ref()
    }

    /// The keys of a set whose header and Keys records have these bodies.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub fn open(&self, header: &[u8], records: &[impl AsRef<[u8]>]) -> Result<Arc<SetKeys>, Error> {
        let context = KeyContext::of(header, records);
        // Held while a set is opened: the threads of its other stripes need the same keys.
        let mut opened = self
            .known
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let commitment = Keys::decode(records)?.commitment;
        // The context leaves the commitment out, and another stripe may have another one.
        let is_same =
            |keys: &&Arc<SetKeys>| *keys.context() == context && keys.commits_to(&commitment);
        if let Some(keys) = opened.iter().find(is_same) {
            return Ok(keys.clone());
        }
        let keys = Arc::new(self.open_again(header, records)?.into_keys());
        keep(&mut opened, &keys);
        Ok(keys)
    }

    /// The set with these bodies, with what its key is wrapped for further recipients with. Nothing is kept of it.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub fn open_again(
        &self,
        header: &[u8],
        records: &[impl AsRef<[u8]>],
    ) -> Result<OpenedSet, Error> {
        let finder = self.objects.as_deref();
        OpenedSet::open(header, records, (&self.identities, finder))
    }

    /// The keys of the index of such a set. What [`Keyring::know_index`] was told of it goes before identities: it opens the very
    /// set, and an identity opens what anybody encrypted for it.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub fn open_index(
        &self,
        header: &[u8],
        records: &[impl AsRef<[u8]>],
    ) -> Result<Arc<IndexKeys>, Error> {
        let indexes = self
            .known
            .indexes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = header.first_chunk().and_then(|set| indexes.get(set));
        match known {
            Some(known) => Ok(known.clone()),
            None => self.open(header, records).map(|keys| keys.index().clone()),
        }
    }

    /// From now on, the index of the set with this identifier can be read, if the set is the one that it was kept of.
    pub fn know_index(&self, set: [u8; 16], secret: &IndexSecret) {
        let mut indexes = self
            .known
            .indexes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        indexes.insert(set, Arc::new(secret.keys()));
    }

    /// Like [`Keyring::open`], for a file of the WAL archive, which is opened once: its keys are not kept.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub fn open_once(&self, header: &[u8], records: &[impl AsRef<[u8]>]) -> Result<SetKeys, Error> {
        SetKeys::open_as(WAL, header, records, &self.identities)
    }

    /// The identities of the run.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Whether there is any identity.
    pub fn has_identities(&self) -> bool {
        !self.identities.list().is_empty()
    }

    /// Whether a program is asked for keys.
    pub fn asks_programs(&self) -> bool {
        let mut identities = self.identities.list().iter();
        identities.any(|identity| matches!(identity, Identity::Command(_)))
    }

    /// Keeps the keys of a set that this run writes.
    pub fn remember(&self, keys: &Arc<SetKeys>) {
        let mut opened = self
            .known
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        keep(&mut opened, keys);
    }
}

fn keep(opened: &mut VecDeque<Arc<SetKeys>>, keys: &Arc<SetKeys>) {
    if opened.len() == KEPT_MAX {
        opened.pop_front();
    }
    opened.push_back(keys.clone());
}
