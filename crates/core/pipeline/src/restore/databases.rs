//! The databases of a cluster that a restore leaves empty.
//!
//! Replay must find their files, so these are made with their lengths, as one hole. `PG_VERSION` stays: a server that
//! looks for a database's directory reads it.
//!
//! Invariants
//! - `postgres`, the templates and everything that initdb made are always restored.
//! - A name is looked up in the list that the set itself holds; a name or an OID that the set does not have is refused
//!   before anything is written.
//! - Memory grows with the number of databases, not with their files.
//!
//! Leaves to others: the list in a set (`longshore-source`), and making the files (`writer.rs`, `landing`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longshore_landing::{ClusterError, DatabaseChoice};
use longshore_media::{BlockStream, Error as MediaError, Item, MediaSet, SetHeader};
use longshore_pg::set_notes::{
    DATABASES, LIST_MAX, NamedDatabase, OWN, database_of, is_own, parse_databases,
};
use longshore_source::SourceKind;
use parking_lot::Mutex;

use super::opened::OpenedMedia;
use super::wanted::wants;
use crate::choice::EngineChoice;
use crate::measure::Counters;
use crate::observer::NullObserver;
use crate::plan::Demand;
use crate::report::EmptiedDatabase;
use crate::request::{Limits, Offload, RestoreRequest, Tuning};
use crate::room::Room;
use crate::unload::{Sink, UnloadJob, unload};
use crate::{Error, RunContext};

/// The file that is restored of every database.
const VERSION: &str = "PG_VERSION";

/// More than any cluster has; a set that names more was not made from one.
const DATABASES_MAX: usize = 100_000;

/// The databases whose files are made empty.
pub struct EmptiedDatabases {
    /// By OID, with the name where it is known.
    databases: BTreeMap<u32, Option<String>>,
}

/// Refuses a set without names in which databases that are always restored cannot be told: a postgres or template1 that
/// was dropped and created again has an OID as those of users have.
fn check_own<'a>(known: impl Iterator<Item = &'a u32>) -> Result<(), ClusterError> {
    match known.filter(|oid| is_own(**oid)).count() < OWN.len() {
        true => Err(ClusterError::DatabasesRemade),
        false => Ok(()),
    }
}

impl EmptiedDatabases {
    /// Those that the request leaves empty in the set that was opened; `None` if it restores all of it.
    pub fn of(
        context: &RunContext,
        request: &RestoreRequest,
        opened: &OpenedMedia,
    ) -> Result<Option<EmptiedDatabases>, Error> {
        let choice = &request.cluster.databases;
        let Some(given) = choice.given() else {
            return Ok(None);
        };
        let Some(summary) = &opened.summary else {
            let what = "a restore of some databases";
            return Err(ClusterError::NeedsIndex { what }.into());
        };
        let header = &summary.header;
        if header.source_kind != SourceKind::Postgres as u8 {
            return Err(ClusterError::NotACluster.into());
        }
        let mut known = BTreeMap::new();
        opened.media.items(header.position, |item| {
            if let Item::Entry(entry) = item
                && let Some(oid) = database_of(&entry.path)
                && known.len() <= DATABASES_MAX
            {
                known.entry(oid).or_insert(None);
            }
        })?;
        if known.len() > DATABASES_MAX {
            let max = DATABASES_MAX;
            return Err(ClusterError::DatabasesMany { max }.into());
        }
        let list = small_file(context, &opened.media, header, Path::new(DATABASES))?;
        let list = list.and_then(|text| parse_databases(&text));
        for database in list.iter().flatten() {
            known.insert(database.oid, Some(database.name.clone()));
        }
        let chosen = choose(given, &known, list.is_some())?;
        let is_kept = |oid: u32, name: &Option<String>| {
            let name = name.clone().unwrap_or_default();
            NamedDatabase { oid, name }.is_own()
        };
        if matches!(choice, DatabaseChoice::Only(_)) && list.is_none() {
            check_own(known.keys())?;
        }
        let databases = match choice {
            DatabaseChoice::Only(_) => known
                .into_iter()
                .filter(|(oid, name)| !chosen.contains(oid) && !is_kept(*oid, name))
                .collect(),
            DatabaseChoice::All | DatabaseChoice::Without(_) => {
                let found = known.into_iter().filter(|(oid, _)| chosen.contains(oid));
                let found: BTreeMap<_, _> = found.collect();
                if let Some((oid, name)) = found.iter().find(|(oid, name)| is_kept(**oid, name)) {
                    let name = name.clone().unwrap_or_else(|| oid.to_string());
                    return Err(ClusterError::DatabaseKept { name }.into());
                }
                found
            }
        };
        Ok(Some(EmptiedDatabases { databases }))
    }

    /// Whether a name of the set is a file that is made empty.
    pub fn empties(&self, path: &Path) -> bool {
        let is_emptied = database_of(path).is_some_and(|oid| self.databases.contains_key(&oid));
        is_emptied && path.file_name().is_some_and(|name| name != VERSION)
    }

    /// Whether anything of a block must be read: names must, also those of empty files.
    pub fn wants(&self, items: &[Item]) -> bool {
        items.iter().any(|item| match item {
            Item::Entry(entry) => entry.first || !self.empties(&entry.path),
            Item::Mark(_) => true,
            Item::Extent(_) | Item::Sums(_) => false,
        })
    }

    pub fn report(&self) -> Vec<EmptiedDatabase> {
        let row = |(oid, name): (&u32, &Option<String>)| EmptiedDatabase {
            oid: *oid,
            name: name.clone(),
        };
        self.databases.iter().map(row).collect()
    }
}

/// The OIDs of what was given, each by its name, else by its OID.
fn choose(
    given: &[String],
    known: &BTreeMap<u32, Option<String>>,
    are_named: bool,
) -> Result<BTreeSet<u32>, ClusterError> {
    let mut chosen = BTreeSet::new();
    for word in given {
        let named = known.iter().filter(|(_, name)| name.as_ref() == Some(word));
        let named: Vec<u32> = named.map(|(oid, _)| *oid).collect();
        let by_oid = word.parse().ok().filter(|oid| known.contains_key(oid));
        match (&named[..], by_oid) {
            ([oid], _) => chosen.insert(*oid),
            ([], Some(oid)) => chosen.insert(oid),
            ([], None) if !are_named && word.parse::<u32>().is_err() => {
                return Err(ClusterError::DatabasesUnnamed { name: word.clone() });
            }
            ([], None) => {
                return Err(ClusterError::NoSuchDatabase {
                    name: word.clone(),
                    known: shown(known),
                });
            }
            // A renamed database may have had the name when the backup began.
            _ => return Err(ClusterError::DatabaseTwice { name: word.clone() }),
        };
    }
    Ok(chosen)
}

/// The databases that may be chosen, for a message.
fn shown(known: &BTreeMap<u32, Option<String>>) -> String {
    const SHOWN_MAX: usize = 16;
    let others = known.iter().filter(|(oid, _)| !is_own(**oid));
    let word = |(oid, name): (&u32, &Option<String>)| match name {
        Some(name) => format!("{name} ({oid})"),
        None => oid.to_string(),
    };
    let mut words: Vec<_> = others.clone().take(SHOWN_MAX).map(word).collect();
    if others.count() > SHOWN_MAX {
        words.push("...".to_owned());
    }
    match words.is_empty() {
        true => "none but those of every cluster".to_owned(),
        false => words.join(", "),
    }
}

/// Takes the bytes of one file.
struct OneFile<'a> {
    path: &'a Path,
    bytes: Mutex<Option<Vec<u8>>>,
}

impl Sink for OneFile<'_> {
    fn wants(&self, _set: usize, items: &[Item]) -> bool {
        wants(items, |path| path == self.path)
    }

    fn writes(&self) -> bool {
        false
    }

    fn block(&self, _set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let mut rest = plain;
        let mut is_it = false;
        for item in items {
            match item {
                Item::Entry(entry) => {
                    is_it = entry.path == self.path;
                    if is_it && entry.len <= LIST_MAX as u64 {
                        let mut bytes = self.bytes.lock();
                        bytes.get_or_insert_with(|| vec![0; entry.len as usize]);
                    }
                }
                Item::Extent(extent) => {
                    let (bytes, later) = rest.split_at(extent.len as usize);
                    rest = later;
                    let at = extent.offset as usize;
                    if let (true, Some(file)) = (is_it, &mut *self.bytes.lock())
                        && let Some(place) = file.get_mut(at..at.saturating_add(bytes.len()))
                    {
                        place.copy_from_slice(bytes);
                    }
                }
                Item::Mark(_) | Item::Sums(_) => {}
            }
        }
        Ok(())
    }

    fn damage(&self, error: MediaError) -> Result<(), Error> {
        Err(error.into())
    }
}

/// The bytes of a file of the set; `None` if the set does not have it. Only the blocks with it are read.
fn small_file(
    context: &RunContext,
    media: &MediaSet,
    header: &SetHeader,
    path: &Path,
) -> Result<Option<Vec<u8>>, Error> {
    let wanted = |items: &[Item]| wants(items, |found| found == path);
    let stream = |i| -> Result<BlockStream, Error> {
        let picked = media.stream_of(i, header.position, &wanted)?;
        picked.map_or_else(|| Ok(media.stream(i, header.position)?), Ok)
    };
    let streams = (0..media.family_count()).map(stream);
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let (tuning, limits) = (Tuning::default(), Limits::default());
    let demand = Demand {
        tuning: &tuning,
        limits: &limits,
        devices: media.family_count(),
        volumes: 1,
        buffer_bytes_of_media: Some(header.buffer_bytes as usize),
        streams: media.family_count(),
        algorithm: header.algorithm,
    };
    let sizes = Room::now().fit(&demand, media.reading_bytes())?;
    let unloading = UnloadJob {
        context,
        sizes: &sizes,
        limits: &limits,
        choice: &EngineChoice::of(context, &Offload::default(), header.algorithm),
        counters: &Counters::default(),
        observer: &NullObserver,
        stored_only: false,
    };
    let file = OneFile {
        path,
        bytes: Mutex::default(),
    };
    unload(&unloading, vec![streams], &file)?;
    Ok(file.bytes.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unload::contract::{content, keeps_its_contract};

    fn known() -> BTreeMap<u32, Option<String>> {
        [
            (5, Some("postgres")),
            (16_384, Some("16385")),
            (16_385, Some("a\"b\nc")),
            (16_386, Some("twice")),
            (16_387, Some("twice")),
            (16_388, None),
        ]
        .into_iter()
        .map(|(oid, name)| (oid, name.map(str::to_owned)))
        .collect()
    }

    fn chosen(word: &str) -> Result<Vec<u32>, String> {
        choose(&[word.to_owned()], &known(), true)
            .map(|chosen| chosen.into_iter().collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_database_is_chosen_by_its_name_and_else_by_its_oid() {
        assert_eq!(chosen("a\"b\nc").unwrap(), [16_385]);
        // The name counts before the number.
        assert_eq!(chosen("16385").unwrap(), [16_384]);
        assert_eq!(chosen("16388").unwrap(), [16_388]);
        assert!(chosen("twice").unwrap_err().contains("twice"));
        assert!(chosen("16389").unwrap_err().contains("twice (16386)"));
        assert!(check_own([1, 4, 5, 16_385].iter()).is_ok());
        assert!(check_own([1, 4, 16_385, 16_390].iter()).is_err());
        let unnamed = choose(&["a".to_owned()], &known(), false).unwrap_err();
        assert!(matches!(unnamed, ClusterError::DatabasesUnnamed { .. }));
    }

    #[test]
    fn files_of_chosen_databases_are_emptied_but_for_their_version() {
        let emptied = EmptiedDatabases {
            databases: BTreeMap::from([(16_385, None)]),
        };
        for path in [
            "base/16385/1259",
            "base/16385/pg_filenode.map",
            "pg_tblspc/1/PG_15_202209061/16385/3_fsm",
        ] {
            assert!(emptied.empties(Path::new(path)), "{path}");
        }
        for path in [
            "base/16385/PG_VERSION",
            "base/16384/1",
            "global/1262",
            "base",
        ] {
            assert!(!emptied.empties(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn one_file_keeps_the_contract_of_sinks_and_is_all_that_is_taken() {
        let file = OneFile {
            path: Path::new("a/1"),
            bytes: Mutex::default(),
        };
        assert_eq!(keeps_its_contract(&file, 0), ["a/1"]);
        assert_eq!(file.bytes.into_inner().unwrap(), content("a/1"));
    }
}
