//! Keys of a set, as its records and the key objects next to it tell them.
//!
//! Invariants
//! - Key objects are looked for where the stripes are, and read only where nothing else opens a set, or where somebody asks for them.
//!
//! Leaves to others: the records themselves (`member.rs`), files next to stripes (`device/folder.rs`), and opening a set
//! (`longshore-crypt`).

use std::sync::Arc;

use longshore_crypt::{KeyObject, Keyring, Keys, OpenedSet, Root, SignatureState, Thumbprint};
use longshore_io::SumKey;

use super::MediaSet;
use crate::Error;
use crate::device::{BackupDevice, Folder, Named, SeenObject, finder_in, have_all, seen};

impl MediaSet {
    /// From here on, encrypted sets are opened with these identities, also by the key objects next to the stripes. Without it, none is.
    pub fn with_keyring(self, keyring: &Arc<Keyring>) -> MediaSet {
        let keyring = match self.folders.is_empty() {
            true => keyring.clone(),
            false => Arc::new(keyring.with_objects(finder_in(self.folders.clone()))),
        };
        MediaSet { keyring, ..self }
    }

    /// The same, knowing where files next to its stripes are.
    pub(super) fn next_to(mut self, devices: &[Arc<dyn BackupDevice>]) -> MediaSet {
        for folder in devices.iter().filter_map(|device| device.folder()) {
            if !self.folders.iter().any(|known| known.is(&folder)) {
                self.folders.push(folder);
            }
        }
        self
    }

    /// The places of the stripes, where key objects are, each once.
    pub fn folders(&self) -> &[Folder] {
        &self.folders
    }

    /// The key objects next to a set, and whether there are more of its name than anybody looks at. Nothing proves them:
    /// [`OpenedSet::proves`] does.
    ///
    /// Errors: a folder cannot be listed; those of reading.
    pub fn key_objects(&self, position: u32) -> Result<(Vec<SeenObject>, bool), Error> {
        self.key_objects_in(position, &self.folders)
    }

    /// The same of these places, to which the numbers of folders refer.
    ///
    /// Errors: the same.
    pub fn key_objects_in(
        &self,
        position: u32,
        folders: &[Folder],
    ) -> Result<(Vec<SeenObject>, bool), Error> {
        let Some(keys) = self.keys(position)? else {
            return Ok((Vec::new(), false));
        };
        let set = *self.set(position)?.header.set.as_bytes();
        let (names, more, problem) = seen(folders, &set);
        if let Some(problem) = problem {
            return Err(problem);
        }
        let read = |named: Named| {
            let (name, folders, bytes) = (named.name, named.folders, named.bytes);
            let object = bytes.and_then(|b| KeyObject::decode(&b).map_err(|e| e.to_string()));
            let object = object.and_then(|object| match object.is_of(&set, &keys.commitment) {
                true => Ok(object),
                false => Err("it is of another set with this identifier".to_owned()),
            });
            SeenObject {
                name,
                folders,
                object,
            }
        };
        Ok((names.into_iter().map(read).collect(), more))
    }

    /// Writes the key objects next to a set of `from` to each of these places that has not got them whole. `from`: media of the same set,
    /// or these. Returns how many some place lacked, and the objects that could not be taken along, with the reason.
    ///
    /// Errors: a folder cannot be listed or written; those of reading.
    pub fn take_objects(
        &self,
        from: &MediaSet,
        position: u32,
    ) -> Result<(u64, Vec<String>), Error> {
        let (seen, more) = from.key_objects(position)?;
        let (mut written, mut left) = (0, Vec::new());
        for one in seen {
            match one.object.map(|object| object.encode()) {
                Ok(Ok(bytes)) if !have_all(&self.folders, &one.name) => {
                    for folder in &self.folders {
                        folder.write(&one.name, &bytes)?;
                    }
                    written += 1;
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) => left.push(format!("{}: {why}", one.name)),
                Err(why) => left.push(format!("{}: {why}", one.name)),
            }
        }
        if more {
            left.push("more key objects than are looked at".to_owned());
        }
        Ok((written, left))
    }

    /// A set whose key is wrapped again, opened with the identities of the keyring. `None`: it is not encrypted.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn opened(&self, position: u32) -> Result<Option<OpenedSet>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        match part.header.as_ref().is_ok_and(|header| header.encrypted) {
            true => member.opened(part, position, &self.keyring).map(Some),
            false => Ok(None),
        }
    }

    /// The root of the set that an encrypted differential set was compared with, as its records say; zeros if that set is
    /// not encrypted. `None` for a set that is not encrypted itself.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn parent_root(&self, position: u32) -> Result<Option<Root>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        match part.header.as_ref().is_ok_and(|header| header.encrypted) {
            true => Ok(Some(member.parent_root(part, position, &self.keyring)?)),
            false => Ok(None),
        }
    }

    /// Whose a complete set is, as its headers, roots and trailers tell: no block is read for that. A stripe whose signature
    /// a trusted signer made speaks for all, as each stripe names the roots of all.
    ///
    /// Errors: those of reading, of a set without any stripe that can be judged.
    pub fn signature(&self, position: u32) -> Result<SignatureState, Error> {
        let signers = self.keyring.signers();
        let mut found: Option<Result<SignatureState, Error>> = None;
        for member in &self.members {
            let judged = self
                .sealed(member, position)
                .and_then(|(part, seal)| member.signature(part, seal, signers));
            match (&found, &judged) {
                (_, Ok(SignatureState::Trusted(_))) => return judged,
                (None, _) | (Some(Err(_)), Ok(_)) => found = Some(judged),
                _ => {}
            }
        }
        // A media set has at least one member.
        found.unwrap_or(Ok(SignatureState::Unsigned))
    }

    /// How many recipients can open the set, as its records say; 0 if it is not encrypted, or its keys are detached. Errors: those of reading.
    pub fn recipients(&self, position: u32) -> Result<usize, Error> {
        Ok(self.keys(position)?.map_or(0, |keys| keys.slots.len()))
    }

    /// The thumbprint of the first certificate that the set is for, as its records say. Errors: the same.
    pub fn thumbprint(&self, position: u32) -> Result<Option<Thumbprint>, Error> {
        Ok(self.keys(position)?.and_then(|keys| keys.thumbprint()))
    }

    /// The recipients of the set, as its own records say: a word for each slot. Errors: the same.
    pub fn recipient_names(&self, position: u32) -> Result<Vec<String>, Error> {
        let keys = self.keys(position)?;
        let slots = keys.iter().flat_map(|keys| &keys.slots);
        Ok(slots.map(|slot| slot.recipient()).collect())
    }

    fn keys(&self, position: u32) -> Result<Option<Keys>, Error> {
        let part = self.or_lost(self.members[0].part(position), position)?;
        let header = part.header.as_ref().ok().filter(|header| header.encrypted);
        header
            .map(|_| self.members[0].keys(part, position))
            .transpose()
    }

    /// The key of the set's page sums, which an encrypted set hides in its header.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn sum_key(&self, position: u32) -> Result<Option<SumKey>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        let header = part.header.as_ref().ok();
        match header.and_then(|header| Some((header.sum_key?, header.encrypted))) {
            Some((key, true)) => {
                let keys = member.index_keys(part, position, &self.keyring)?;
                Ok(Some(key.masked(keys.sums_mask())))
            }
            key => Ok(key.map(|(key, _)| key)),
        }
    }
}
