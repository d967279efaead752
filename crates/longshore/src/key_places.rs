//! The places of detached keys: directories, and prefixes in buckets, that have the key objects of backups whose media have no slots.
//!
//! Invariants
//! - A place is named by a person, in an option or in the configuration, and never by media.
//! - A set whose keys were destroyed on purpose is told from one that lost them by the mark that `key shred` leaves. Anybody who can write to
//!   the places can forge it, so a shredded set is told each time.
//! - Readers look at all places that are named; a backup writes to those of its own target, or of its options, and to no other.
//!
//! Leaves to others: the files there (`longshore-media`), and what opens (`longshore-crypt`).

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_crypt::{KeyObject, Keyring, ObjectName};
use longshore_media::{DeviceSpec, Folder, finder_in};
use longshore_terminal::failure::Failure;
use longshore_terminal::interrupt;
use serde::Serialize;

use crate::context::Context;

/// The places that these texts name, each once.
///
/// Errors: a text names none.
pub fn named(context: &Context, texts: &[String]) -> Result<Vec<Folder>, Failure> {
    let mut places: Vec<Folder> = Vec::new();
    for text in texts {
        let place = DeviceSpec::parse(text.trim_end_matches('/'))
            .as_folder(&context.storage, &interrupt::cancel_flag())
            .ok_or_else(|| {
                Failure::usage(
                    format!("{text} is no place for key objects"),
                    "name a directory, or a prefix in a bucket as s3://BUCKET/PREFIX",
                )
            })?;
        if !places.iter().any(|known| known.is(&place)) {
            places.push(place);
        }
    }
    Ok(places)
}

/// The places of a target, as they are configured.
pub fn texts_of<'a>(context: &'a Context, target: &str) -> &'a [String] {
    let target = context.config.target.get(target);
    target.map_or(&[], |target| &target.keys)
}

/// These places, and those of all targets of the configuration.
///
/// Errors: those of [`named`].
pub fn all(context: &Context, texts: &[String]) -> Result<Vec<Folder>, Failure> {
    let configured = context.config.target.values();
    let configured = configured.flat_map(|target| target.keys.iter().cloned());
    let texts: Vec<String> = texts.iter().cloned().chain(configured).collect();
    named(context, &texts)
}

/// A keyring that also looks at these places.
pub fn with(keyring: Arc<Keyring>, places: Vec<Folder>) -> Arc<Keyring> {
    match places.is_empty() {
        true => keyring,
        false => Arc::new(keyring.with_objects(finder_in(places))),
    }
}

/// Where the slots of a backup to `target` go in place of its media; `None`: they are on the media. `is_wanted`, `texts`: the options.
///
/// Errors: the keys are to be detached, and there is no place, or no key.
pub fn for_backup(
    context: &Context,
    (is_wanted, texts): (bool, &[String]),
    (target, encrypts): (Option<&str>, bool),
) -> Result<Option<Vec<Folder>>, Failure> {
    let of_target = target.map_or(&[][..], |target| texts_of(context, target));
    if !is_wanted && of_target.is_empty() {
        return Ok(None);
    }
    let texts = match texts {
        [] => of_target,
        texts => texts,
    };
    if texts.is_empty() {
        return Err(Failure::usage(
            "the keys are to be detached, and no place is named for them",
            "name two places with --keys, or `keys` in [target.NAME]: a directory, or a prefix in a bucket",
        ));
    }
    if !encrypts {
        return Err(Failure::usage(
            "the keys are to be detached, and the backup is not encrypted",
            "add `recipients` to [encryption] or to the target, or name one with --encrypt-to",
        ));
    }
    let places = named(context, texts)?;
    if let [alone] = places.as_slice() {
        context.output.note(&format!(
            "the keys of this backup are in one place alone, {}: who removes one small file there destroys the backup. Name a second place",
            alone.name()
        ));
    }
    Ok(Some(places))
}

/// Errors: one of these places of keys lies in a target, or has stripes of this run: who has the media would have the keys.
pub fn refuse_near(
    context: &Context,
    places: &[Folder],
    devices: &[DeviceSpec],
) -> Result<(), Failure> {
    let targets = context.config.target.iter();
    let texts = targets.flat_map(|(name, target)| {
        let places = target.places(name);
        places.map_or_else(|_| Vec::new(), |places| places.texts())
    });
    // A target whose server cannot be asked is no reason to refuse this backup.
    let targets: Vec<Folder> = texts
        .flat_map(|text| named(context, &[text]).unwrap_or_default())
        .collect();
    let devices = devices.iter().map(|spec| spec.open(&context.storage));
    let stripes: Vec<Folder> = devices.filter_map(|device| device.folder()).collect();
    for place in places {
        let has_stripes = |near: &&Folder| near.lies_in(place) && place.lies_in(near);
        let near = targets.iter().find(|target| place.lies_in(target));
        if let Some(near) = near.or_else(|| stripes.iter().find(has_stripes)) {
            return Err(Failure::usage(
                format!(
                    "{} is no place for detached keys: stripes are in {}, and who has them would have the keys",
                    place.name(),
                    near.name()
                ),
                "name a place on another disk, or in another bucket, in `keys` of the target or in --keys",
            ));
        }
    }
    Ok(())
}

/// Where the keys of a set are whose media have no slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// A key object is there.
    Detached,
    /// None is there, and somebody destroyed them on purpose.
    Shredded,
    /// None is there.
    Missing,
    /// A place cannot be read, or none is configured.
    Unknown,
}

impl KeyState {
    /// In words, after the backup's label.
    pub fn text(self) -> &'static str {
        match self {
            KeyState::Detached => "its keys are detached, and there",
            KeyState::Shredded => "shredded: its keys were destroyed, and nobody opens it",
            KeyState::Missing => "its keys are detached, and MISSING: nothing opens it",
            KeyState::Unknown => "its keys are detached, and not all places could be looked at",
        }
    }
}

/// The answer of the places about a set's keys.
pub struct KeyLook {
    pub state: KeyState,
    /// Places that lack an object which another has.
    pub lacking: Vec<String>,
    /// Places that cannot be read, with the reason.
    pub unread: Vec<String>,
    /// Whether a mark says that the keys were destroyed.
    pub is_marked: bool,
}

impl KeyLook {
    /// Looks at these places. `near`: the names of objects next to the stripes.
    pub fn of(set: &[u8; 16], places: &[Folder], near: &[ObjectName]) -> KeyLook {
        let (mut listed, mut unread, mut is_marked) = (Vec::new(), Vec::new(), false);
        for place in places {
            let whole = place.objects(set).map(|names| {
                let is_whole = |name: &ObjectName| {
                    let read = place.read(name).ok().flatten();
                    // Anybody can make a file whose name fits.
                    let is_object = |bytes: &[u8]| {
                        KeyObject::decode(bytes).is_ok_and(|object| object.set == *set)
                    };
                    read.is_some_and(|bytes| name.fits(&bytes) && is_object(&bytes))
                };
                names.into_iter().filter(is_whole).collect::<BTreeSet<_>>()
            });
            match whole {
                Ok(names) => listed.push((place.name(), names)),
                Err(error) => unread.push(format!("{}: {error}", place.name())),
            }
            is_marked |= place.shredded(set).is_ok_and(|mark| mark.is_some());
        }
        let all: BTreeSet<ObjectName> =
            listed.iter().flat_map(|(_, n)| n.iter().cloned()).collect();
        let lacking = listed.iter().filter(|(_, names)| *names != all);
        let is_near = near.iter().any(|name| name.set == *set);
        KeyLook {
            state: match all.is_empty() && !is_near {
                false => KeyState::Detached,
                true if !unread.is_empty() || places.is_empty() => KeyState::Unknown,
                true if is_marked => KeyState::Shredded,
                true => KeyState::Missing,
            },
            lacking: lacking.map(|(place, _)| place.clone()).collect(),
            unread,
            is_marked,
        }
    }
}
