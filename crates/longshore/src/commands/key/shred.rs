//! `key shred`: destroys backups with detached keys, by removing their key objects.
//!
//! Invariants
//! - Nothing is removed without `--yes`, and nothing but key objects of the named sets, ever.
//! - A backup whose slots are on its media is refused: what is removed would destroy nothing.
//! - A mark is left in each place before the objects go, so that a run that was interrupted is seen, and a set without keys is not taken for
//!   one that lost them.
//! - A set is told as shredded only after all places were read again, and only if something of it was there: a place that has nothing,
//!   where another place of the same target has, is taken for one that is not mounted.
//! - A label means the set that was made under it. Where it lies at the target is no proof: whoever can rename directories could exchange two.
//!   The history of this machine, and the time in the label, must agree with the set; the answer shows the set's own identifier and start.
//!   Things that no command reaches are said each time.
//!
//! Leaves to others: files in the places (`longshore-media`), and where backups are (`repository`).

use std::collections::BTreeSet;

use longshore_catalog::{Catalog, HistoryQuery, RunRow, RunTask};
use longshore_media::{Folder, SetHeader};
use longshore_repository::Label;
use longshore_repository::lease::Holder;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, moment};
use longshore_terminal::text::plain;
use serde::Serialize;
use uuid::Uuid;

use crate::commands::ends::RunLines;
use crate::commands::shelves::Placed;
use crate::context::Context;
use crate::key_places;
use crate::options::KeyShred;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    sets: Vec<ShreddedSet>,
}

#[derive(Serialize)]
struct ShreddedSet {
    set: String,
    /// Its labels at the configured targets.
    label_names: Vec<String>,
    /// Its start by its own header, in microseconds since the Unix epoch.
    start_us: Option<i64>,
    /// Objects that were removed, each counted at each place.
    removed_count: u64,
    fate: ShredFate,
    /// All places that were looked at.
    places: Vec<String>,
    /// Places that still have an object of the set.
    places_left: Vec<String>,
    /// Places that could not be read or changed, with the reason.
    unread: Vec<String>,
    /// Programs that read the backup now, and go on with the key that they have.
    in_use: Vec<String>,
    /// Differential backups that need it.
    needed_by: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ShredFate {
    /// No place has a key of it.
    Shredded,
    /// A place still has one.
    Left,
    /// Not all places could be looked at, or nothing of it was found.
    Unknown,
}

/// A set that was named, and where its stripes are.
#[derive(Default, Clone)]
struct Named {
    set: Uuid,
    headers: Vec<SetHeader>,
    labels: Vec<String>,
    /// Where its stripes are.
    targets: BTreeSet<String>,
    /// Where its stripes are: objects of an earlier `key rewrap` may be there.
    folders: Vec<Folder>,
    in_use: Vec<String>,
    needed_by: Vec<String>,
}

/// The backups at all configured targets, and why some could not be listed.
#[derive(Default)]
struct Found {
    sets: Vec<Named>,
    unread: Vec<String>,
}

pub fn run(options: &KeyShred, context: &Context) -> Result<Exit, Failure> {
    let places = key_places::all(context, &options.key_places)?;
    let found = Found::of(context);
    let named = options.sets.iter().map(|text| found.named(text));
    let named = named.collect::<Result<Vec<Named>, Failure>>()?;
    for (one, text) in named.iter().zip(&options.sets) {
        refuse_attached(one)?;
        refuse_exchanged(one, text, (&found, context))?;
    }
    if !options.yes {
        return Err(unwanted(&named, &places, context));
    }
    let lines = RunLines::of(context, "key_shred", (None, None), &options.sets.join(" "));
    let sets: Vec<ShreddedSet> = named
        .iter()
        .map(|one| shredded(one, (&places, &found.unread), context))
        .collect();
    tell(&sets, context);
    let exit = match sets.iter().any(|one| one.fate != ShredFate::Shredded) {
        true => Exit::Media,
        false => context.output.done(),
    };
    let done = sets.iter().filter(|one| one.fate == ShredFate::Shredded);
    lines.end(
        exit,
        &format!("{} of {} shredded", done.count(), sets.len()),
    );
    let action = "key_shred";
    context.output.json(exit, Answer { action, sets });
    Ok(exit)
}

impl Found {
    fn of(context: &Context) -> Found {
        let mut found = Found::default();
        for placed in Placed::all(context) {
            let (database, target) = (placed.database.clone(), placed.target.clone());
            let listed = placed.shelf(context).and_then(|shelf| Ok(shelf.list()?));
            let listing = match listed {
                Ok(listing) => listing,
                Err(failure) => {
                    let why = format!("{database} at target {target}: {}", failure.text);
                    found.unread.push(why);
                    continue;
                }
            };
            let facts = listing.facts();
            for entry in &listing.sets {
                let Some(complete) = entry.complete() else {
                    continue;
                };
                let set = complete.header.set;
                let needing = facts.iter().filter(|other| other.parent == Some(set));
                let devices = entry.devices.iter().map(|d| d.open(&context.storage));
                let one = Named {
                    set,
                    headers: vec![complete.header.clone()],
                    labels: vec![entry.label.to_string()],
                    targets: [target.clone()].into(),
                    folders: devices.filter_map(|device| device.folder()).collect(),
                    in_use: entry.readers.iter().map(Holder::text).collect(),
                    needed_by: needing.map(|other| other.label.to_string()).collect(),
                };
                found.add(one);
            }
        }
        found
    }

    /// Copies are one set.
    fn add(&mut self, one: Named) {
        let Some(known) = self.sets.iter_mut().find(|known| known.set == one.set) else {
            return self.sets.push(one);
        };
        known.headers.extend(one.headers);
        known.folders.extend(one.folders);
        known.in_use.extend(one.in_use);
        known.targets.extend(one.targets);
        for (all, more) in [
            (&mut known.labels, one.labels),
            (&mut known.needed_by, one.needed_by),
        ] {
            all.extend(more);
            all.sort();
            all.dedup();
        }
    }

    /// A label of another backup of the database from which the set's start is less than so far.
    fn nearer(&self, one: &Named, after_us: i64) -> Option<&str> {
        let start_us = one.start_us()?;
        let others = self.sets.iter().filter(|other| other.set != one.set);
        let mut labels = others
            .filter(|other| other.database() == one.database())
            .flat_map(|other| &other.labels);
        let is_nearer = |label: &&String| {
            let label = label.parse::<Label>();
            label.is_ok_and(|label| (0..after_us).contains(&(start_us - label.begun_us())))
        };
        labels.find(is_nearer).map(String::as_str)
    }

    /// The set that a text names: a label at a target, or an identifier, also of a set that is at no target.
    fn named(&self, text: &str) -> Result<Named, Failure> {
        let is_meant = |one: &&Named| {
            one.labels.iter().any(|label| label == text)
                || Uuid::try_parse(text).is_ok_and(|set| set == one.set)
        };
        let meant: Vec<&Named> = self.sets.iter().filter(is_meant).collect();
        match meant.as_slice() {
            [] => {}
            [one] => return Ok((*one).clone()),
            several => {
                let sets = several.iter().map(|one| one.set.to_string());
                return Err(Failure::usage(
                    format!("{} is the label of several sets", plain(text)),
                    format!(
                        "name one by its identifier: {}",
                        sets.collect::<Vec<_>>().join(", ")
                    ),
                ));
            }
        }
        match Uuid::try_parse(text) {
            Ok(set) => Ok(Named {
                set,
                ..Named::default()
            }),
            Err(_) => Err(Failure::usage(
                format!(
                    "{} is neither the label of a complete backup at a configured target nor the identifier of a set",
                    plain(text)
                ),
                "`longshore list` and `longshore info --json` show both",
            )),
        }
    }
}

/// Errors: the slots of the set are on its media, or it has none at all.
fn refuse_attached(one: &Named) -> Result<(), Failure> {
    let Some(header) = one.headers.iter().find(|header| !header.keys_detached) else {
        return Ok(());
    };
    let why = match header.encrypted {
        true => "its slots are on its media, and nothing there was destroyed",
        false => "it is not encrypted",
    };
    Err(Failure::usage(
        format!("{} cannot be shredded: {why}", one.name()),
        "remove the backup itself; or destroy each identity that opens it (docs/security.md#erasure). Later backups are shredded by their \
         key objects if they are made with --keys-detached",
    ))
}

/// Between the start of a backup, which its label has, and that of its set lies the start of its source's backup, at most.
const START_MAX_US: i64 = 3_600_000_000;

/// Errors: the set that lies under this label was made under another one.
fn refuse_exchanged(
    one: &Named,
    text: &str,
    (found, context): (&Found, &Context),
) -> Result<(), Failure> {
    let (Ok(label), Some(start_us)) = (text.parse::<Label>(), one.start_us()) else {
        return Ok(());
    };
    let after_us = start_us - label.begun_us();
    let why = match made_as(one, context) {
        Some(made) if made == text => return Ok(()),
        Some(made) => format!("the history of this machine says that this set was made as {made}"),
        None if !(0..=START_MAX_US).contains(&after_us) => {
            format!("its header says that it began at {} UTC", moment(start_us))
        }
        None => match found.nearer(one, after_us) {
            None => return Ok(()),
            Some(nearer) => format!("it began at {} UTC, as {nearer} says", moment(start_us)),
        },
    };
    Err(Failure::usage(
        format!(
            "under {} is set {} of {}, which was made under another label: {why}. Somebody may have exchanged directories",
            plain(text),
            one.set,
            one.database()
        ),
        format!(
            "name the set that you mean by its identifier; this one is {}",
            one.set
        ),
    ))
}

/// The label under which a run of this machine made the set; `None`: none did. Backups that the history learnt from media are no witness.
fn made_as(one: &Named, context: &Context) -> Option<String> {
    let path = context.catalog.as_deref();
    let path = path.filter(|path| context.storage.stat(path).is_ok())?;
    let all = HistoryQuery {
        database: None,
        limit: None,
    };
    let runs = Catalog::open(path).ok()?.runs(&all).ok()?;
    let made = |run: &RunRow| run.task == RunTask::Backup.word() && run.set == Some(one.set);
    runs.into_iter().find(made)?.label
}

/// Says what would be destroyed.
fn unwanted(named: &[Named], places: &[Folder], context: &Context) -> Failure {
    let mut text = String::new();
    for one in named {
        text += &one.told();
        let all = one.all(places);
        let has = |place: &&Folder| {
            let listed = place.objects(one.set.as_bytes());
            listed.is_ok_and(|names| !names.is_empty())
        };
        let having: Vec<String> = all.iter().filter(has).map(Folder::name).collect();
        text += &match having.is_empty() {
            true => format!("{}: no key object of it was found\n", one.name()),
            false => format!(
                "{}: its key objects in {} would be removed\n",
                one.name(),
                having.join(", ")
            ),
        };
        for label in &one.needed_by {
            text += &format!("  {label} needs it, and could no longer be restored\n");
        }
    }
    context.output.say(&text);
    Failure::usage(
        "nothing was destroyed: --yes is missing",
        "give --yes if these backups are to be destroyed for ever, wherever copies of them are",
    )
}

impl Named {
    fn name(&self) -> String {
        match self.labels.as_slice() {
            [] => format!("set {}", self.set),
            labels => labels.join(", "),
        }
    }

    fn start_us(&self) -> Option<i64> {
        Some(self.headers.first()?.start_us)
    }

    fn database(&self) -> String {
        let name = self.headers.first().map(|header| plain(&header.database));
        name.unwrap_or_else(|| "a database that nobody knows".to_owned())
    }

    /// A line about the set itself; empty if nothing but its identifier is known.
    fn told(&self) -> String {
        match self.start_us() {
            None => String::new(),
            Some(start_us) => format!(
                "{}: set {} of {}, begun at {} UTC\n",
                self.name(),
                self.set,
                self.database(),
                moment(start_us)
            ),
        }
    }

    /// The places that have nothing of it although another place of the same target has, in words.
    fn unmounted(&self, empty: &[Folder], context: &Context) -> Vec<String> {
        let is_in = |place: &Folder, all: &[Folder]| all.iter().any(|known| known.is(place));
        let mut told = Vec::new();
        for target in &self.targets {
            let texts = key_places::texts_of(context, target);
            let own = key_places::named(context, texts).unwrap_or_default();
            let (lacking, having): (Vec<_>, Vec<_>) =
                own.into_iter().partition(|place| is_in(place, empty));
            if having.is_empty() {
                continue;
            }
            told.extend(lacking.iter().map(|place| {
                format!(
                    "{} has neither a key object nor a mark of it, and {} has: if its disk is not mounted, mount it and run the command \
                     again; if it never had one, leave it out of `keys` for this run",
                    place.name(),
                    having[0].name()
                )
            }));
        }
        told
    }

    /// All places that may have an object of it, each once.
    fn all(&self, places: &[Folder]) -> Vec<Folder> {
        let mut all = places.to_vec();
        for folder in &self.folders {
            if !all.iter().any(|known| known.is(folder)) {
                all.push(folder.clone());
            }
        }
        all
    }
}

/// Removes the key objects of a set, and reads again what is left.
fn shredded(
    one: &Named,
    (places, unlisted): (&[Folder], &[String]),
    context: &Context,
) -> ShreddedSet {
    let set = one.set.as_bytes();
    let all = one.all(places);
    let (mut removed, mut unread) = (0, unlisted.to_vec());
    let empty: Vec<Folder> = all
        .iter()
        .filter(|place| is_empty(place, set))
        .cloned()
        .collect();
    let was_there = empty.len() < all.len();
    unread.extend(one.unmounted(&empty, context));
    if !was_there && !all.is_empty() {
        unread.push(format!(
            "no place has a key object or a mark of set {}: nobody knows whether it has any elsewhere",
            one.set
        ));
    }
    let now_s = context.clock.wall_ns() / 1_000_000_000;
    let text = format!("longshore key shred, {now_s} seconds after 1970\n");
    // An empty one may be the mount point of a disk that is away. A mark there would say later that the keys were destroyed.
    let marked = places
        .iter()
        .filter(|place| was_there && !empty.iter().any(|e| e.is(place)));
    for place in marked {
        if let Err(error) = place.mark_shredded(set, &text) {
            let why = Failure::from(error).text;
            unread.push(format!("{}: no mark could be left: {why}", place.name()));
        }
    }
    for place in &all {
        let names = place.objects(set).unwrap_or_default();
        for name in names {
            // One that stays is found below.
            removed += u64::from(place.remove(&name).unwrap_or(false));
        }
    }
    let mut left = Vec::new();
    for place in &all {
        match place.objects(set) {
            Ok(names) if names.is_empty() => {}
            Ok(_) => left.push(place.name()),
            Err(error) => unread.push(format!("{}: {}", place.name(), Failure::from(error).text)),
        }
    }
    ShreddedSet {
        set: one.set.to_string(),
        label_names: one.labels.clone(),
        start_us: one.start_us(),
        removed_count: removed,
        fate: match (left.is_empty(), unread.is_empty() && !all.is_empty()) {
            (false, _) => ShredFate::Left,
            (true, false) => ShredFate::Unknown,
            (true, true) => ShredFate::Shredded,
        },
        places: all.iter().map(Folder::name).collect(),
        places_left: left,
        unread,
        in_use: one.in_use.clone(),
        needed_by: one.needed_by.clone(),
    }
}

/// Whether a place has neither an object nor the mark of a set. One that cannot be read is not empty: it is told elsewhere.
fn is_empty(place: &Folder, set: &[u8; 16]) -> bool {
    place.objects(set).is_ok_and(|names| names.is_empty())
        && place.shredded(set).is_ok_and(|mark| mark.is_none())
}

/// The outcome for each set, and the things that this program cannot erase.
fn tell(sets: &[ShreddedSet], context: &Context) {
    let mut table = Table::new(&["set", "removed", "result"]);
    for one in sets {
        let name = match one.label_names.is_empty() {
            true => one.set.clone(),
            false => one.label_names.join(", "),
        };
        let result = match one.fate {
            ShredFate::Shredded => "shredded: nothing that is configured opens it".to_owned(),
            ShredFate::Left => format!(
                "NOT SHREDDED: {} still has a key",
                one.places_left.join(", ")
            ),
            ShredFate::Unknown => "NOT KNOWN: not all places could be looked at".to_owned(),
        };
        table.row(vec![name, one.removed_count.to_string(), plain(&result)]);
    }
    context.output.say(&table.to_string());
    for one in sets {
        for why in &one.unread {
            context.output.warn(&plain(why));
        }
        if one.label_names.is_empty() {
            context.output.warn(&format!(
                "{}: no configured target has its stripes, so nobody looked whether slots are on its media",
                one.set
            ));
        }
        if one.fate == ShredFate::Unknown && one.unread.is_empty() {
            context
                .output
                .warn(&format!("{}: no place of keys is named", one.set));
        }
        for user in &one.in_use {
            let text = format!(
                "in use, and goes on with the key that it has: {}",
                plain(user)
            );
            context.output.warn(&text);
        }
        for label in &one.needed_by {
            context
                .output
                .warn(&format!("{label} needs it, and can no longer be restored"));
        }
    }
    context.output.note(
        "not erased, as no command reaches it: versions that a bucket keeps, locked objects, snapshots and copies of the key objects, set \
         keys that the holder of an identity has kept, what was restored before, and what opens the index of these backups in the history \
         of the machine that made them",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of two sets with one label, a name destroys neither.
    #[test]
    fn a_label_of_two_sets_is_refused_with_both_named() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut found = Found::default();
        for (set, label) in [(one, "a"), (other, "a"), (other, "b"), (one, "a")] {
            found.add(Named {
                set,
                labels: vec![label.to_owned()],
                ..Named::default()
            });
        }
        let refused = found.named("a").err().unwrap();
        assert!(refused.text.contains("several sets"), "{}", refused.text);
        for set in [one, other] {
            assert!(refused.hint.contains(&set.to_string()));
            assert_eq!(found.named(&set.to_string()).ok().unwrap().set, set);
        }
        assert_eq!(found.named("b").ok().unwrap().set, other);
        assert!(found.named("c").is_err());
    }
}
