//! Opening a set by the key objects next to it, and making such objects.
//!
//! Invariants
//! - Objects are looked at only where no slot of the set itself opens it, and programs are asked after everything else.
//! - An object counts as made only if readers look at it and try its slots.
//! - A set key from an object is right if the set's commitment and the object's MAC agree, both compared in constant time.
//! - How many objects there are, and what they ask for, is bounded: [`OBJECTS_MAX`] in each place, [`FOUND_MAX`] in all, and [`COSTLY_MAX`] slots of passphrases and of
//!   programs' keys.
//! - An object is made by whoever has the set key alone, and read back by the same code before it is given out.
//!
//! Leaves to others: where objects are, and writing them (`longshore-media`), and their bytes (`object.rs`).

use subtle::ConstantTimeEq;

use crate::age;
use crate::command::set_name;
use crate::error::ObjectsTold;
use crate::keys::{Keys, Slot, SlotKind};
use crate::object::{FOUND_MAX, KeyObject, OBJECTS_MAX};
use crate::recipient::Recipient;
use crate::roots::{KeyContext, Root};
use crate::set::{NewKey, SetKeys};
use crate::{Error, Identities, Identity, Recipients, Secret};

/// The most slots of passphrases, and of programs' keys, that are tried of all objects of a set.
pub const COSTLY_MAX: usize = 8;

/// The key objects of a set, as they were found. Anybody may have put them there.
#[derive(Debug, Default, Clone)]
pub struct FoundObjects {
    pub objects: Vec<Vec<u8>>,
    /// Whether there are more than those.
    pub more: bool,
    /// Why some could not be read.
    pub problem: Option<String>,
    /// The places that were looked at, by their paths or addresses.
    pub places: Vec<String>,
}

impl FoundObjects {
    /// These and those, each once.
    pub(crate) fn and(mut self, others: FoundObjects) -> FoundObjects {
        for object in others.objects {
            if !self.objects.contains(&object) {
                self.objects.push(object);
            }
        }
        self.more |= others.more || self.objects.len() > FOUND_MAX;
        self.objects.truncate(FOUND_MAX);
        self.problem = self.problem.or(others.problem);
        for place in others.places {
            if !self.places.contains(&place) {
                self.places.push(place);
            }
        }
        self
    }
}

/// Finds the key objects of the set with this identifier, at most [`FOUND_MAX`] of them. Called by any thread, only for sets
/// that nothing else opens; it may take a while.
pub type ObjectFinder = dyn Fn(&[u8; 16]) -> FoundObjects + Send + Sync;

/// A set whose key is known, so that it can be wrapped again.
pub struct OpenedSet {
    id: [u8; 16],
    commitment: Root,
    /// Whether a slot of the media withstands a quantum computer.
    has_hybrid: bool,
    secret: Secret,
    keys: SetKeys,
}

impl std::fmt::Debug for OpenedSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenedSet")
    }
}

impl OpenedSet {
    /// The set whose header and Keys records have these bodies.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub(crate) fn open(
        header: &[u8],
        records: &[impl AsRef<[u8]>],
        (identities, finder): (&Identities, Option<&ObjectFinder>),
    ) -> Result<OpenedSet, Error> {
        let id = *header.first_chunk().ok_or(Error::Malformed {
            what: "the header is too short",
        })?;
        let name = set_name(&id);
        let (secret, of_object) = match SetKeys::secret(&name, header, records, identities) {
            Err(refused @ (Error::NoIdentity { .. } | Error::Command { .. })) => match finder {
                Some(finder) => by_objects(refused, (header, records), identities, finder(&id))?,
                None => return Err(refused),
            },
            found => (found?, Vec::new()),
        };
        let stored = Keys::decode(records)?;
        let is_hybrid =
            |slot: &Slot| slot.kind == SlotKind::Age as u16 && age::is_hybrid(&slot.bytes);
        // Where the keys are detached, the object stands for the slots of the media.
        let slots = match stored.slots.is_empty() {
            true => &of_object,
            false => &stored.slots,
        };
        Ok(OpenedSet {
            id,
            commitment: stored.commitment,
            has_hybrid: slots.iter().any(is_hybrid),
            keys: SetKeys::derive(&secret, KeyContext::of(header, records), header),
            secret,
        })
    }

    pub(crate) fn into_keys(self) -> SetKeys {
        self.keys
    }

    /// The set's identifier.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Whether somebody with this set's key made the object, and nobody changed it.
    pub fn proves(&self, object: &KeyObject) -> bool {
        object.is_of(&self.id, &self.commitment) && is_proved(&self.keys, object)
    }

    /// Whether a proved object has a slot for each of the recipients, which opens with the identity of that recipient where `own` has it.
    /// A passphrase is at hand always.
    pub fn covers(&self, object: &KeyObject, recipients: &Recipients, own: &Identities) -> bool {
        let has = |recipient: &Recipient| match recipient.marked() {
            None => self.has_opened(&object.slots, recipient, own) == Some(true),
            Some(text) => {
                let mark = self.keys.mark(&text);
                let all = object.marks.iter().zip(&object.slots);
                let theirs = all.filter(|(found, _)| bool::from(found.ct_eq(&mark)));
                let slots: Vec<Slot> = theirs.map(|(_, slot)| slot.clone()).collect();
                // Where no identity tells more, the mark decides: whoever made it has the set key.
                !slots.is_empty() && self.has_opened(&slots, recipient, own) != Some(false)
            }
        };
        self.proves(object) && recipients.list().iter().all(has)
    }

    /// Whether the recipient's own identity opens one of the slots; `None`: it is not at hand, or its program failed.
    fn has_opened(&self, slots: &[Slot], recipient: &Recipient, own: &Identities) -> Option<bool> {
        let identity = match (recipient, recipient.marked()) {
            (Recipient::Passphrase(p), _) => Identity::Passphrase(p.clone()),
            (_, text) => {
                let mut all = own.list().iter();
                all.find(|one| text.is_some() && one.recipient().marked() == text)?
                    .clone()
            }
        };
        let alone = Identities::new(vec![identity]);
        let opened = alone.open(slots, &set_name(&self.id), |secret| self.is_key(secret));
        opened.ok().map(|secret| secret.is_some())
    }

    fn is_key(&self, secret: &Secret) -> bool {
        bool::from(secret[..].ct_eq(&self.secret[..]))
    }

    /// Whether readers that find these objects next to the set look at this one, and try its slots for the recipients.
    ///
    /// Errors: [`Error::Object`], with why not.
    pub fn check_read(
        &self,
        found: &FoundObjects,
        object: &KeyObject,
        recipients: &Recipients,
    ) -> Result<(), Error> {
        let objects = decoded(found, &self.id, &self.commitment);
        let at = objects.iter().position(|one| one == object);
        let at = at.ok_or(Error::Object {
            what: "readers do not look at it, because too many others are next to the set: remove those, and run the command again",
        })?;
        let is_read = |recipient: &Recipient| {
            let reader = match recipient {
                Recipient::Passphrase(p) => Identity::Passphrase(p.clone()),
                Recipient::Command(key) => Identity::Command(key.clone()),
                _ => return true,
            };
            let reader = Identities::new(vec![reader]);
            let tried = tried(&objects, &reader);
            match recipient {
                Recipient::Command(_) => tried[at].iter().any(|slot| reader.would_ask(slot)),
                _ => {
                    let mut all = objects.iter().zip(&tried);
                    all.any(|(one, slots)| {
                        let is_right = |secret: &Secret| self.is_key(secret) && self.proves(one);
                        reader.open_here(slots, is_right).is_some()
                    })
                }
            }
        };
        match recipients.list().iter().all(is_read) {
            true => Ok(()),
            false => Err(Error::Object {
                what: "readers do not try its slot, because too many others for passphrases or programs are next to the set: remove those, and \
                       run the command again",
            }),
        }
    }

    /// A new object for these recipients.
    ///
    /// Errors: [`Error::Mixed`] if the set is for recipients that withstand a quantum computer, and one of these does not;
    /// [`Error::TooMany`]; those of wrapping.
    pub fn object(&self, recipients: &Recipients, made_us: i64) -> Result<KeyObject, Error> {
        if self.has_hybrid && recipients.list().iter().any(Recipient::is_weak) {
            return Err(Error::Mixed);
        }
        let slots = recipients.for_set(&self.id).wrap(&self.secret)?;
        self.object_of((recipients, slots), made_us)
    }

    /// The object of these recipients, whose slots are given in their order.
    fn object_of(
        &self,
        (recipients, slots): (&Recipients, Vec<Slot>),
        made_us: i64,
    ) -> Result<KeyObject, Error> {
        let mark = |r: &Recipient| r.marked().map_or([0; 16], |text| self.keys.mark(&text));
        let mut object = KeyObject {
            set: self.id,
            commitment: self.commitment,
            made_us,
            marks: recipients.list().iter().map(mark).collect(),
            slots,
            mac: [0; 32],
        };
        object.mac = self.keys.object_mac(&object.covered()?);
        let again = KeyObject::decode(&object.encode()?)?;
        match again == object && self.proves(&again) {
            true => Ok(object),
            false => Err(Error::Object {
                what: "it is not read back as it was written",
            }),
        }
    }

    /// The number of slots of a proved object that these identities open with this set's key.
    pub fn opens(&self, object: &KeyObject, identities: &Identities) -> usize {
        let name = set_name(&self.id);
        let opens = |slot: &&Slot| {
            let one = std::slice::from_ref(*slot);
            matches!(
                identities.open(one, &name, |secret| self.is_key(secret)),
                Ok(Some(_))
            )
        };
        object.slots.iter().filter(opens).count()
    }
}

/// The key object of a new set with detached keys, whose header and Keys records have these bodies; `None`: its slots are in the records.
///
/// Errors: [`Error::TooMany`]; [`Error::Malformed`].
pub fn first_object(
    header: &[u8],
    records: &[impl AsRef<[u8]>],
    (key, made_us): (&NewKey, i64),
) -> Result<Option<KeyObject>, Error> {
    let Some(apart) = key.apart() else {
        return Ok(None);
    };
    let id = *header.first_chunk().ok_or(Error::Malformed {
        what: "the header is too short",
    })?;
    let set = OpenedSet {
        id,
        commitment: Keys::decode(records)?.commitment,
        has_hybrid: false,
        keys: SetKeys::derive(key.secret(), KeyContext::of(header, records), header),
        secret: key.secret().clone(),
    };
    let slots = (&apart.recipients, apart.slots.clone());
    set.object_of(slots, made_us).map(Some)
}

fn is_proved(keys: &SetKeys, object: &KeyObject) -> bool {
    let covered = object.covered();
    covered.is_ok_and(|covered| bool::from(keys.object_mac(&covered).ct_eq(&object.mac)))
}

/// The set key, and all slots of the object that it is from: the first that has it. `refused`: why the set itself was not opened.
fn by_objects(
    refused: Error,
    (header, records): (&[u8], &[impl AsRef<[u8]>]),
    identities: &Identities,
    found: FoundObjects,
) -> Result<(Secret, Vec<Slot>), Error> {
    let commitment = Keys::decode(records)?.commitment;
    let context = KeyContext::of(header, records);
    let set = header.first_chunk().copied().unwrap_or_default();
    let objects = decoded(&found, &set, &commitment);
    let tried = tried(&objects, identities);
    let is_right = |object: &KeyObject, secret: &Secret| {
        let keys = SetKeys::derive(secret, context, header);
        keys.commits_to(&commitment) && is_proved(&keys, object)
    };
    for (object, slots) in objects.iter().zip(&tried) {
        let opened = identities.open_here(slots, |secret| is_right(object, secret));
        if let Some(secret) = opened {
            return Ok((secret, object.slots.clone()));
        }
    }
    let name = set_name(&set);
    let mut failed = None;
    for (object, slots) in objects.iter().zip(&tried) {
        match identities.ask(slots, &name, |secret| is_right(object, secret)) {
            Ok(Some(secret)) => return Ok((secret, object.slots.clone())),
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
    }
    let all: usize = objects.iter().map(|object| object.slots.len()).sum();
    let untried = all - tried.iter().map(Vec::len).sum::<usize>();
    Err(told(
        failed.unwrap_or(refused),
        &found,
        (objects.len(), untried),
    ))
}

/// The objects of the set that readers look at.
fn decoded(found: &FoundObjects, set: &[u8; 16], commitment: &Root) -> Vec<KeyObject> {
    let all = found.objects.iter().take(FOUND_MAX);
    let all = all.filter_map(|bytes| KeyObject::decode(bytes).ok());
    all.filter(|o| o.is_of(set, commitment)).collect()
}

/// The slots of each object that are tried.
fn tried(objects: &[KeyObject], identities: &Identities) -> Vec<Vec<Slot>> {
    let (mut passphrases, mut programs) = (0, 0);
    let mut is_tried = |slot: &&Slot| {
        let count = match SlotKind::from_number(slot.kind) {
            Some(SlotKind::Passphrase) => &mut passphrases,
            Some(SlotKind::Command) if identities.would_ask(slot) => &mut programs,
            _ => return true,
        };
        *count += 1;
        *count <= COSTLY_MAX
    };
    let of_one = |object: &KeyObject| object.slots.iter().filter(&mut is_tried).cloned().collect();
    objects.iter().map(of_one).collect()
}

/// Why nothing opens the set, with what was seen of its objects, and how many of their slots were not tried.
fn told(error: Error, found: &FoundObjects, (count, untried): (usize, usize)) -> Error {
    let Error::NoIdentity {
        identities,
        slots,
        certificate,
        command,
        ..
    } = error
    else {
        return error;
    };
    let places = match found.places.is_empty() {
        true => "nowhere".to_owned(),
        false => found.places.join(", "),
    };
    let mut objects = match (count, identities) {
        // Nothing but an object opens such a set, so it matters where one can be.
        (0, _) if slots == 0 => {
            format!("; key objects of it were looked for in {places}, and none was found")
        }
        (1, 0) if slots == 0 => format!("; there is one key object of it in {places}"),
        (many, 0) if slots == 0 => format!("; there are {many} key objects of it in {places}"),
        (1, _) if slots == 0 => format!("; the key object in {places} is for others"),
        (many, _) if slots == 0 => format!("; the {many} key objects in {places} are for others"),
        (0, _) => String::new(),
        (1, 0) => "; next to it is one key object".to_owned(),
        (many, 0) => format!("; next to it are {many} key objects"),
        (1, _) => "; the key object next to it is for others, too".to_owned(),
        (many, _) => format!("; the {many} key objects next to it are for others, too"),
    };
    let spoilt = found.objects.len().min(FOUND_MAX) - count;
    if spoilt > 0 {
        objects += &format!("; {spoilt} key objects are damaged, or of another set");
    }
    if found.more {
        objects += &format!(
            "; there are more than {OBJECTS_MAX} of these in one place, and the others were not looked at (--key-object FILE names one)"
        );
    }
    if untried > 0 {
        objects += &format!(
            "; {untried} slots of these were not tried (--key-object FILE names an object that is tried first)"
        );
    }
    if let Some(problem) = &found.problem {
        objects += &format!("; not all key objects could be read: {problem}");
    }
    Error::NoIdentity {
        identities,
        slots,
        objects: Box::new(ObjectsTold(objects)),
        certificate,
        command,
    }
}
