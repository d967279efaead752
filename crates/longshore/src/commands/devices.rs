//! Resolves the targets and devices that a command uses by the configuration.
//!
//! Invariants
//! - Devices of a target come with a lease, which is held until the command has ended: no expire removes what is read,
//!   and no second backup takes the same name.
//! - The contents of one target never decide what is removed from another.
//!
//! Leaves to others: leases and labels (`repository`), opening stripes (`media`), and what a reading command means
//! (`reading.rs`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_catalog::RunTask;
use longshore_facts as facts;
use longshore_io::Clock;
use longshore_media::{DeviceSpec, SourceIdentity};
use longshore_pg::{Earlier, Relation};
use longshore_pipeline::{Against, SourceSpec};
use longshore_repository::base::{BaseOf, Candidate};
use longshore_repository::branch::{self, Others};
use longshore_repository::chain::SetFacts;
use longshore_repository::emptied::{self, Filled};
use longshore_repository::identity::Origin;
use longshore_repository::{
    BackupEntry, BackupKind, BackupLease, Listing, NewBackup, Shelf, Target,
};
use longshore_source::{ServerBranch, SourceKind};

use super::past;
use super::results::age_text;
use super::unmounted;
use crate::config::Database;
use crate::context::Context;
use crate::keys::lenient_keyring;
use crate::options::KeyOptions;
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;

/// The stripes of all sets that a backup needs in addition to its own.
pub fn bases(lease: &BackupLease) -> Vec<DeviceSpec> {
    let devices = lease.parents.iter().flat_map(|(_, devices)| devices);
    devices.cloned().collect()
}

/// The resources that a backup to a target holds until it ends.
pub struct TargetHold {
    pub begun: Arc<NewBackup>,
    /// The target's name.
    pub target: String,
    /// The set that the backup differs from.
    pub base: Option<BackupLease>,
    /// Backups at the target that the new one's server is compared with.
    pub earlier: Vec<Earlier>,
    /// The identity that separates the source from others of its name.
    pub identity: SourceIdentity,
    /// The backups with which an emptied source is told.
    pub filled: Option<KnownContent>,
    /// Some of the backups are of a server that this one does not descend from.
    pub mixed: bool,
}

/// The content that a source had.
pub struct KnownContent {
    /// The full backup that a new one is compared with.
    pub full: Filled,
    /// The newest backup that has it.
    pub newest: Filled,
}

/// How a target's backups relate to the server that is backed up.
#[derive(Default)]
struct BackupRelation {
    candidates: Vec<Candidate>,
    mixed: bool,
}

/// A target by its name in the configuration.
pub fn target(context: &Context, name: &str) -> Result<Target, Failure> {
    let found = context.config.target.get(name).ok_or_else(|| {
        let known = context.config.target.keys();
        not_configured(context, &format!("target.{name}"), "directories", known)
    })?;
    let places = found.places(name)?;
    past::refuse_present(&format!("target {name}"), places.are_buckets())?;
    Ok(Target {
        name: name.to_owned(),
        places,
    })
}

/// The failure for a table that a command names and that the configuration lacks. `key` is one that the table needs,
/// `known` are the names of its kind.
pub fn not_configured<'a>(
    context: &Context,
    table: &str,
    key: &str,
    known: impl Iterator<Item = &'a String>,
) -> Failure {
    let file = match &context.config.path {
        Some(path) => format!("the configuration {}", path.display()),
        None => "the configuration: no file was found".to_owned(),
    };
    let known: Vec<_> = known.map(String::as_str).collect();
    let instead = match known.as_slice() {
        [] => String::new(),
        _ => format!("name a configured one ({}), or ", known.join(", ")),
    };
    Failure::usage(
        format!("there is no [{table}] in {file}"),
        format!("{instead}write [{table}] with its `{key}`, then run `longshore config check`"),
    )
    .numbered(numbers::NOT_CONFIGURED)
}

/// The named target, else the one configured for the database.
pub fn target_of(
    context: &Context,
    named: Option<&str>,
    database: &str,
) -> Result<Target, Failure> {
    let name = named.or_else(|| context.config.target_of(database));
    match name {
        Some(name) => target(context, name),
        None if !context.config.database.contains_key(database)
            && !context.config.database.is_empty() =>
        {
            let (table, known) = (format!("database.{database}"), context.config.database.keys());
            Err(not_configured(context, &table, "url", known))
        }
        None => Err(Failure::usage(
            format!("no target is configured for {database}"),
            "name one with --target, or as `target` in [database.NAME] or [defaults]; `longshore config check` shows the targets",
        )
        .numbered(numbers::NOT_CONFIGURED)),
    }
}

/// The backups of one database at a target.
pub fn shelf(context: &Context, target: &Target, database: &str) -> Result<Shelf, Failure> {
    let (storage, clock) = (context.storage.clone(), context.clock.clone());
    let mut shelf = Shelf::new(storage, clock, target, database)?;
    shelf.keyring = lenient_keyring(context, &KeyOptions::default())?;
    shelf.archive = named_archive(context, database, Some(&target.name)).map(Into::into);
    Ok(shelf)
}

/// The archive that the database's own settings name. It applies to the database's own target only: the contents of
/// another target must not decide what is removed from it.
pub fn named_archive<'a>(
    context: &'a Context,
    database: &str,
    target: Option<&str>,
) -> Option<&'a Path> {
    let is_own = target.is_none() || target == context.config.target_of(database);
    let wal = context.config.wal_of(database).filter(|_| is_own)?;
    wal.archive.as_deref()
}

/// New devices for a backup to a target; held until the backup ends.
pub fn for_backup(
    context: &Context,
    shelf: &Shelf,
    against: Option<Against>,
    (source, named): (&SourceSpec, Option<&str>),
) -> Result<TargetHold, Failure> {
    let (mut earlier, mut compared) = (Vec::new(), BackupRelation::default());
    let (mut identity, mut filled) = (SourceIdentity::default(), None);
    let table = table_of(context, source, named.unwrap_or(&shelf.database));
    let origin = origin(context, source, table);
    if let Some(origin) = &origin {
        let identified = identify(context, shelf, source, (origin, table));
        (identity, compared.mixed, filled) = identified;
    }
    if let SourceSpec::Postgres(server) = source {
        let listing = shelf.list()?;
        earlier = listing.earlier();
        match longshore_source::identify(&context.storage, server, &earlier) {
            Ok(identified) => {
                compared = compare(context, shelf, (&listing, &earlier), &identified);
            }
            // If this error prevents the backup, the backup itself reports it.
            Err(error) if against.is_none() => {
                tracing::info!(%error, "the server's branch is not known before the backup");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let base_of = match &origin {
        Some(origin) => BaseOf::Plain(origin),
        None => BaseOf::Server(&compared.candidates),
    };
    let lent = against.map(|against| shelf.lease_base(against == Against::LastFull, base_of));
    let lent = lent.transpose()?;
    for newer in lent.iter().flat_map(|lent| &lent.passed_over) {
        let text = format!("a newer backup is not used as the base: {newer}");
        context.output.warn(&text);
    }
    let kind = match against {
        Some(_) => BackupKind::Differential,
        None => BackupKind::Full,
    };
    let begun_us = Clock::wall_ns(&*context.clock) / 1000;
    unmounted::refuse(shelf, RunTask::Backup, context)?;
    Ok(TargetHold {
        begun: Arc::new(shelf.begin(kind, begun_us)?),
        target: shelf.target.name.clone(),
        base: lent.map(|lent| lent.lease),
        earlier,
        identity,
        filled: filled.filter(|_| !context.config.may_be_empty(&shelf.database)),
        mixed: compared.mixed,
    })
}

/// How a target identifies a source of this machine; `None`: a server is identified by its WAL. `table`: the
/// configuration table that the source comes from.
pub fn origin(context: &Context, source: &SourceSpec, table: Option<&str>) -> Option<Origin> {
    let kind = match source {
        SourceSpec::Sqlite(_) => SourceKind::Sqlite,
        SourceSpec::Files(_) => SourceKind::Files,
        SourceSpec::Postgres(_) => return None,
    };
    let place = longshore_pipeline::origin(source);
    let given = given_identity(context, table);
    Some(Origin::here(kind as u8, &facts::host_name(), &place, given))
}

fn given_identity<'a>(context: &'a Context, table: Option<&str>) -> Option<&'a str> {
    let database = context.config.database.get(table?)?;
    database.identity.as_deref()
}

/// The configured database that has this source, under whatever name it is backed up: the named one, or else the only
/// one. A name alone does not identify the source.
fn table_of<'a>(context: &'a Context, source: &SourceSpec, named: &str) -> Option<&'a str> {
    let is_it = |database: &Database| {
        let url = [OsString::from(&database.url)];
        let theirs = SourceSpec::parse(&*context.storage, &url);
        theirs.is_ok_and(|theirs| is_same(&theirs, source))
    };
    let plain = context
        .config
        .database
        .iter()
        .filter(|(_, d)| d.has_no_log());
    let found = plain.filter(|(_, database)| is_it(database));
    let found: Vec<&str> = found.map(|(name, _)| name.as_str()).collect();
    match found.as_slice() {
        [one] => Some(one),
        several => several.iter().copied().find(|name| *name == named),
    }
}

/// Whether two sources have the same paths, however the paths are written.
fn is_same(one: &SourceSpec, other: &SourceSpec) -> bool {
    match (one, other) {
        (SourceSpec::Sqlite(one), SourceSpec::Sqlite(other)) => whole(one) == whole(other),
        (SourceSpec::Files(one), SourceSpec::Files(other)) => roots(one) == roots(other),
        _ => false,
    }
}

fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Sorted, so that the written order does not matter.
fn roots(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    paths.iter().map(|path| whole(path)).collect()
}

/// The identity of a source without WAL, which tells it from others of its name. Backups of such others at the target
/// are reported. Also the backup that shows whether the source has lost its content.
fn identify(
    context: &Context,
    shelf: &Shelf,
    source: &SourceSpec,
    (origin, table): (&Origin, Option<&str>),
) -> (SourceIdentity, bool, Option<KnownContent>) {
    let path = match source {
        SourceSpec::Sqlite(path) => Some(path.clone()),
        SourceSpec::Files(paths) => roots(paths).pop_first(),
        SourceSpec::Postgres(_) => None,
    };
    let birth_ns = path.and_then(|path| context.storage.birth_ns(&path).ok().flatten());
    // A target that cannot be read is in the way of the backup itself, or of none.
    let listing = shelf.list().unwrap_or_else(|error| {
        tracing::info!(%error, "other backups of the name are not known");
        Listing::default()
    });
    let facts = listing.facts();
    let now_us = Clock::wall_ns(&*context.clock) / 1000;
    if let Some(text) = told_of_later(shelf, &facts, origin, now_us) {
        context.output.warn(&text);
    }
    let mut others = branch::others(&facts, origin, birth_ns);
    let identity = SourceIdentity {
        name: given_identity(context, table)
            .unwrap_or_default()
            .to_owned(),
        births_ns: std::mem::take(&mut others.births_ns),
    };
    let told = told_of_others(shelf, &listing, (origin, table), &others);
    for text in &told {
        context.output.warn(text);
    }
    let filled = emptied::filled(&facts, origin, birth_ns, now_us).map(|full| KnownContent {
        newest: shelf.newest_filled(&listing, &full, now_us),
        full,
    });
    (identity, !told.is_empty(), filled)
}

/// The sentence for a source of which the target has a backup that is dated later than now: labels alone order such sources.
fn told_of_later(
    shelf: &Shelf,
    facts: &[SetFacts],
    origin: &Origin,
    now_us: i64,
) -> Option<String> {
    let is_own = |set: &&SetFacts| {
        set.is_whole() && set.log.is_none() && set.identity.origin.is_same(origin)
    };
    let own = facts.iter().filter(is_own);
    let latest = own.max_by_key(|set| set.label.begun_us())?;
    let ahead_us = latest.label.begun_us() - now_us;
    (ahead_us > 0).then(|| {
        format!(
            "{label} at target {target}, a backup of this source, is dated {ahead} later than now: a clock was ahead, or this machine's \
             was set back. The new backup counts as the older of the two: restores and drills without --label take {label}, and an \
             expire removes the new one first. Correct the clock; once it is right, remove {label} by hand and run \
             `longshore backup {database}`",
            label = latest.label,
            target = shelf.target.name,
            ahead = age_text(ahead_us.div_euclid(1_000_000).max(1)),
            database = shelf.database,
        )
    })
}

fn told_of_others(
    shelf: &Shelf,
    listing: &Listing,
    (origin, table): (&Origin, Option<&str>),
    others: &Others,
) -> Vec<String> {
    let (database, target) = (&shelf.database, &shelf.target.name);
    let table = match table {
        Some(name) => format!("[database.{name}]"),
        None => "a [database.NAME] with its url".to_owned(),
    };
    let mut told = Vec::new();
    if others.came_back {
        told.push(format!(
            "another file was backed up as {} since the last backup of this file: two databases share this identity, and are \
             two branches from now on; give each its own `identity` in {table}, another name, or another \
             target",
            origin.name
        ));
    }
    if let Some(newest) = others.newer.last() {
        let set = &listing.sets[*newest];
        let facts = set.facts();
        let other = match facts.log {
            Some(log) => format!("cluster {}", log.system),
            None => facts.identity.origin.name.clone(),
        };
        let begins = match others.has_own {
            true => "",
            false => " This backup begins a new branch.",
        };
        // It would say the same of the other one.
        let moved = match facts.log {
            None if facts.identity.origin.kind == origin.kind && !others.has_own => format!(
                "If it is the same database, moved, write {} into {table} and remove this backup by hand; \
                 otherwise give",
                as_key(&other)
            ),
            _ => "Give".to_owned(),
        };
        told.push(format!(
            "target {target} holds backups of {database} that are of {other}, the newest {}, and not of {}.{begins} A \
             restore will ask which is meant. {moved} one of them another name with --database, or another target",
            set.label, origin.name,
        ));
    }
    told
}

/// As a line of the configuration.
pub fn as_key(identity: &str) -> String {
    let value = toml::Value::String(identity.to_owned());
    format!("`identity = {value}`")
}

/// Reports which of the target's backups the server does not descend from.
fn compare(
    context: &Context,
    shelf: &Shelf,
    (listing, earlier): (&Listing, &[Earlier]),
    identified: &ServerBranch,
) -> BackupRelation {
    let home = identified.lineage.home;
    let mut compared = BackupRelation::default();
    let mut others = Vec::new();
    for (earlier, relation) in earlier.iter().zip(&identified.relations) {
        let is_it = |set: &&BackupEntry| {
            let id = set.complete().map(|c| *c.header.set.as_bytes());
            id == Some(earlier.set)
        };
        let set = listing.sets.iter().find(is_it);
        let theirs = earlier.lineage.home;
        let run = identified.lineage.run;
        let same_run = run.is_some() && earlier.lineage.run == run;
        compared.candidates.push(Candidate {
            set: earlier.set,
            relation: relation.clone(),
            same_run,
            same_home: theirs.is_some() && theirs == home,
        });
        // A server that was recovered to an earlier moment leaves its own future.
        let left = theirs.is_some() && theirs == home;
        if relation.is_refuted() && !left {
            let label = set.map(|set| &set.label);
            others.extend(label.map(|label| format!("{label} ({relation})")));
        }
    }
    // The newest is enough.
    if let Some(newest) = others.last() {
        compared.mixed = true;
        let (database, target) = (&shelf.database, &shelf.target.name);
        context.output.warn(&format!(
            "target {target} holds {} of {database} from a history that this server does not continue, the newest {newest}: \
             another cluster or a copy writes there under the same name; give one of them another target, or another name with \
             --database",
            match others.len() {
                1 => "a backup".to_owned(),
                n => format!("{n} backups"),
            }
        ));
    } else if let Some(text) = begins_branch(shelf, listing, earlier, identified) {
        context.output.warn(&text);
    }
    compared
}

/// The sentence for a server that is at another place than all backups of the target, and whose WAL proves none of them.
/// Retention then counts those apart, unless the server was restored from the newest. Where a place is not known, as over
/// a connection, host name and source decide later, as for all commands.
fn begins_branch(
    shelf: &Shelf,
    listing: &Listing,
    earlier: &[Earlier],
    identified: &ServerBranch,
) -> Option<String> {
    let home = identified.lineage.home?;
    let may_be_here = |earlier: &Earlier| earlier.lineage.home.is_none_or(|theirs| theirs == home);
    let by_log = identified.relations.iter().any(Relation::is_proved_by_log);
    if by_log || earlier.iter().any(may_be_here) {
        return None;
    }
    let (newest, relation) = (earlier.last()?.set, identified.relations.last()?);
    let is_newest = |set: &&BackupEntry| {
        let complete = set.complete();
        complete.is_some_and(|complete| *complete.header.set.as_bytes() == newest)
    };
    let label = &listing.sets.iter().find(is_newest)?.label;
    if relation.is_proved() {
        return Some(format!(
            "this server was restored from {label} and goes on with the backups of {} at target {}: if the server that \
             made them still runs, give one of the two another target, or retention removes the other's backups",
            shelf.database, shelf.target.name
        ));
    }
    Some(format!(
        "this backup begins a branch: the server is at another place than those of the backups of {} at target {}, and \
         nothing shows that it follows the newest, {label} ({relation}). Retention counts them apart; once they are of no use, \
         remove their directories by hand. After a failover, make a backup soon, or set wal_keep_size",
        shelf.database, shelf.target.name
    ))
}

/// Warns if a backup that is being read may be removed meanwhile.
pub fn remark(lease: &BackupLease, context: &Context) {
    if let Some(why) = &lease.unprotected {
        let text = format!("the backup is not protected from an expire while it is read: {why}");
        context.output.remark(&format!("{text}\n"));
    }
}
