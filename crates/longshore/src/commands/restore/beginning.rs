//! The input of a restore: named devices, or the right backup of a database and the WAL after it.
//!
//! Invariants
//! - With a recovery target, the newest backup before it is chosen, and the archive is proved to have the WAL between
//!   the two, before anything is written.
//! - Backups that were skipped are named with the reason.
//! - A lease keeps the chosen backup until reading ends.
//! - While the target answers, a copy at another target is used only for the very backup that was chosen, by what is left of
//!   it, or for a label that the user gave.
//! - With `--as-of`, no WAL of a directory is replayed: it would lead beyond that time.
//! - A target in the future is refused: a server would stop without opening.
//!
//! Leaves to others: choosing (`longshore-repository`), and proving (`longshore-wal`).

use std::path::PathBuf;
use std::sync::Arc;

use longshore_media::{Address, DeviceSpec, Keyring, MediaSet};
use longshore_pg::recovery::NO_ARCHIVE;
use longshore_pg::{Lsn, SegmentName};
use longshore_pipeline::{ClusterOptions, Recovery, RecoveryTarget, check_tail};
use longshore_repository::chain::{BrokenChain, chain};
use longshore_repository::recover::target_text;
use longshore_repository::{BackupLease, Error, FromCopy, Label, Shelf};
use longshore_wal::LogRange;
use longshore_wal::WalArchive;
use longshore_wal::proof::ProvenLog;
use longshore_wal::{is_at_named_server, is_in_bucket};
use serde::Serialize;

use super::older;
use crate::commands::{devices, emptied, labelled, nearest, past, reading};
use crate::context::Context;
use crate::key_command::is_key_of_command;
use crate::keys;
use crate::options::{Restore, archive_command};
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;
use longshore_terminal::output::{bytes, moment};
use longshore_terminal::text::plain;

pub struct RestorePoint {
    pub devices: Vec<DeviceSpec>,
    /// The stripes of the sets that the backup differs from.
    pub bases: Vec<DeviceSpec>,
    pub cluster: ClusterOptions,
    pub told: Option<ChosenBackup>,
    /// The archive from which the server recovers beyond the backup refuses another branch's WAL.
    pub refused: Option<String>,
    /// The target of a database's backup.
    at: Option<String>,
    /// Held until reading ends, so that no expire removes the backup.
    _lease: Option<BackupLease>,
    _chosen: Option<reading::ReadDevices>,
}

impl RestorePoint {
    /// The target that a database's backup is read from.
    pub fn target(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// The label of the backup that was chosen for a database.
    pub fn label(&self) -> Option<&str> {
        self.told.as_ref().map(ChosenBackup::label)
    }
}

/// The choice made for a database.
#[derive(Debug, Serialize)]
pub struct ChosenBackup {
    label: String,
    /// Newer backups that could not be used.
    passed_over: Vec<SkippedBackup>,
    /// The archive from which the server will fetch its WAL.
    archive: Option<String>,
    /// The end of the archive on the timeline that recovery follows.
    archive_end_lsn: Option<String>,
    timeline: Option<u32>,
    /// What the server will fetch of it, at most: a target may end recovery before.
    archive_wal: Option<ReplayedWal>,
    /// A reason why recovery may not reach its target.
    warning: Option<String>,
}

/// The part of an archive that a recovery reads.
#[derive(Debug, Serialize)]
struct ReplayedWal {
    start_lsn: String,
    first_segment: String,
    last_segment: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct SkippedBackup {
    label: String,
    why: String,
}

/// `keyring`: opens the backup, and the WAL archive if that is encrypted.
pub fn of(
    options: &Restore,
    keyring: &Arc<Keyring>,
    context: &Context,
) -> Result<RestorePoint, Failure> {
    if let Some(option) = options.cluster.contradiction() {
        return Err(Failure::usage(
            format!("--recovery-settings keep and none write no settings, and {option} needs some"),
            format!("leave out {option} or --recovery-settings"),
        )
        .numbered(numbers::OPTIONS_CONFLICT));
    }
    if let Some(recovery) = options.cluster.recovery() {
        refuse_future(&recovery, context)?;
    }
    if let Some(archive) = &options.cluster.wal_archive {
        past::refuse_present(&archive.display().to_string(), is_in_bucket(archive))?;
    }
    let parts = !options.only.is_empty() || !options.moves.is_empty();
    match &options.media.database {
        Some(database) if parts => {
            let found = source(database, None, (Wanted::Parts, keyring), options, context)?;
            devices::remark(&found.lease, context);
            tell_skipped(&found.lease, context);
            tell_condemned(&found.lease, &found.shelf, options, context);
            let label = options.media.label.as_deref();
            emptied::tell_leased(&found.lease, &found.shelf, label, context);
            let stripes = (found.lease.devices.clone(), devices::bases(&found.lease));
            Ok(RestorePoint {
                at: Some(found.shelf.target.name.clone()),
                _lease: Some(found.lease),
                ..of_devices(stripes, keyring, options, context)?
            })
        }
        Some(database) => of_database(database, keyring, options, context),
        None => {
            let chosen = reading::of(context, &options.media)?;
            let stripes = (chosen.devices.clone(), chosen.bases(&options.bases));
            Ok(RestorePoint {
                _chosen: Some(chosen),
                ..of_devices(stripes, keyring, options, context)?
            })
        }
    }
}

/// A restore of stripes, and of those of the sets that they need, whose recovery is as the options say.
fn of_devices(
    (devices, bases): (Vec<DeviceSpec>, Vec<DeviceSpec>),
    keyring: &Arc<Keyring>,
    options: &Restore,
    context: &Context,
) -> Result<RestorePoint, Failure> {
    let mut cluster = options.cluster.lower();
    // The restore itself says why an archive cannot be used.
    let archive = cluster.proof.as_deref();
    let archive = archive.and_then(|path| WalArchive::existing(&*context.storage, path).ok());
    let archive = archive.map(|archive| archive.with_keyring(keyring));
    if let (Some(archive), Some(recovery)) = (&archive, &mut cluster.recovery) {
        let identities = server_identities(archive, options, context)?;
        // The commits there count as archived wherever a restore asks what its target alone has.
        let takes_part = goes_into_part(recovery);
        recovery.restore_command = Some(command_for(archive, &identities, takes_part, context));
        recovery.takes_name = true;
    }
    Ok(RestorePoint {
        devices,
        bases,
        refused: refused(archive.as_ref(), cluster.recovery.as_ref(), context),
        cluster,
        told: None,
        at: None,
        _lease: None,
        _chosen: None,
    })
}

/// The files with which the restored server opens its WAL archive; none if that is not encrypted.
fn server_identities(
    archive: &WalArchive,
    options: &Restore,
    context: &Context,
) -> Result<Vec<PathBuf>, Failure> {
    if !archive.has_seen_sealed() && !archive.is_sealed()? {
        return Ok(Vec::new());
    }
    let files = keys::identity_files(context, &options.keys);
    for file in &files {
        let owner = context.storage.stat(file).ok().map(|stat| stat.uid);
        if owner == Some(0) {
            context.output.warn(&format!(
                "the WAL archive is encrypted, and the server itself fetches its WAL: {} belongs to root, and the server's user cannot \
                 read it. Give that user its own copy, and name it in restore_command",
                file.display()
            ));
        }
    }
    Ok(files)
}

/// The command with which the restored server fetches its WAL. Where the archive's address names a server of the
/// configuration, the command names the configuration: without it the address means nothing, and no other server.
fn command_for(
    archive: &WalArchive,
    identities: &[PathBuf],
    takes_part: bool,
    context: &Context,
) -> String {
    let names_server = is_at_named_server(archive.path());
    let asks_program = identities.iter().any(|file| is_key_of_command(file));
    let config = context.config.path.as_deref();
    let config = config.filter(|_| names_server || asks_program);
    let config = config.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    if let (true, Some(file)) = (asks_program, &config) {
        context.output.note(&format!(
            "the WAL archive is encrypted, and {} names the program that opens it: the restored server's user must be able to read \
             that file and to run the program",
            file.display()
        ));
    }
    if names_server {
        let at = archive.path().display();
        let address = Address::of(&archive.path().to_string_lossy());
        let target = address
            .as_ref()
            .and_then(Address::server)
            .unwrap_or_default();
        let needs_variables = context
            .config
            .server_needs_variables(target, &*context.storage);
        match &config {
            Some(file) if needs_variables => context.output.warn(&format!(
                "{at} is at a server whose keys variables of the environment give (LONGSHORE_TARGET_...). The restored server reads {0} \
                 alone, and would fetch its WAL from another server, or from none: write the keys into [target.{target}] of {0}, then \
                 run `longshore config check --config {0}`",
                file.display()
            )),
            Some(file) => context.output.note(&format!(
                "{at} is at a server that {} names: the restored server's user must be able to read that file, and what it names \
                 for this target",
                file.display()
            )),
            None => context.output.warn(&format!(
                "{at} is at a server that only variables of the environment name: the restored server needs the same variables \
                 (LONGSHORE_TARGET_...) to fetch its WAL"
            )),
        }
    }
    let signers = archive.signers();
    archive_command(
        archive.path(),
        identities,
        config.as_deref(),
        signers,
        takes_part,
    )
}

fn of_database(
    database: &str,
    keyring: &Arc<Keyring>,
    options: &Restore,
    context: &Context,
) -> Result<RestorePoint, Failure> {
    let args = &options.cluster;
    let asked = args.recovery();
    let Source {
        shelf,
        archive,
        lease,
    } = source(
        database,
        asked.as_ref(),
        (Wanted::All, keyring),
        options,
        context,
    )?;
    devices::remark(&lease, context);
    tell_skipped(&lease, context);
    tell_condemned(&lease, &shelf, options, context);
    emptied::tell_leased(&lease, &shelf, named_label(options), context);
    let mut cluster = args.lower();
    let mut proven = None;
    if let Some(log) = lease.facts.log.as_ref().filter(|_| args.writes_settings()) {
        let (recovery, found) = recovery(
            asked,
            log,
            &lease,
            (&shelf, archive.as_ref()),
            options,
            context,
        )?;
        cluster.recovery = recovery;
        // It was proved just now, together with the facts of the other backups.
        cluster.proof = None;
        proven = found;
    }
    let replayed = archive.as_ref().filter(|_| proven.is_some());
    let refused = refused(replayed, cluster.recovery.as_ref(), context);
    let told = told(&lease, archive.as_ref(), proven.as_ref());
    context.output.remark(&told.text(&lease));
    Ok(RestorePoint {
        devices: lease.devices.clone(),
        bases: devices::bases(&lease),
        cluster,
        told: Some(told),
        refused,
        at: Some(shelf.target.name.clone()),
        _lease: Some(lease),
        _chosen: None,
    })
}

/// The backup to restore, and where it lies.
struct Source {
    shelf: Shelf,
    archive: Option<WalArchive>,
    lease: BackupLease,
}

fn tell_skipped(lease: &BackupLease, context: &Context) {
    for passed in &lease.passed {
        let (label, why) = (&passed.label, &passed.why);
        context.output.warn(&format!("{label} is skipped: {why}"));
    }
}

/// The label that was asked for; `None`: the newest backup, whichever that is.
fn named_label(options: &Restore) -> Option<&str> {
    options.media.label.as_deref().filter(|l| *l != "latest")
}

/// Warns of a backup that nobody has named by its label, and that a verification or a drill found not to be good.
fn tell_condemned(lease: &BackupLease, shelf: &Shelf, options: &Restore, context: &Context) {
    let is_named = named_label(options).is_some();
    if is_named || !lease.facts.found_bad {
        return;
    }
    let (label, database) = (&lease.label, &shelf.database);
    let text =
        format!("{label} was found not to be good: `longshore info {database}` says by what");
    let good = shelf.sound_before(Some(label.as_str())).ok().flatten();
    let good = good.map(|good| older::hint(&good));
    let told = [Some(text), good].into_iter().flatten();
    context.output.warn(&told.collect::<Vec<_>>().join("; "));
}

/// Looks at the database's target, and at its copies for a backup that is known and not whole there. While the target answers,
/// no older backup is taken from a copy. While it is away, the newest one of all copies is, and that is said.
fn source(
    database: &str,
    asked: Option<&Recovery>,
    (wanted, keyring): (Wanted, &Arc<Keyring>),
    options: &Restore,
    context: &Context,
) -> Result<Source, Failure> {
    let media = &options.media;
    let target = devices::target_of(context, media.target.as_deref(), database)?;
    let mut own = devices::shelf(context, &target, database)?;
    own.keyring = keyring.clone();
    let search = Search {
        own: &own,
        label: named_label(options),
        asked,
        wanted,
        options,
        context,
    };
    let error = match search.at_target() {
        Ok((archive, lease)) => {
            return Ok(Source {
                shelf: own,
                archive,
                lease,
            });
        }
        Err(error) => error,
    };
    if let Some(source) = search.in_reach(&error) {
        return Ok(source);
    }
    if media.target.is_none()
        && let Some(source) = search.at_nearest(&error).map_err(labelled::of_branch)?
    {
        return Ok(source);
    }
    let copies = match media.target {
        Some(_) => &[],
        None => context.config.copies_of(&own.database),
    };
    for copy in copies.iter().filter(|_| may_have(&error)) {
        if let Some(source) = search.at_copy(copy, &error)? {
            return Ok(source);
        }
    }
    Err(search.failure(error, copies))
}

/// The part of a backup that is restored.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    /// With the WAL after it, where there is an archive.
    All,
    Parts,
}

/// How well a backup at a copy is known to be the one that the target could not give.
enum Likeness {
    Proven,
    /// The user gave its label, and the target has nothing under it to compare.
    ByLabel,
}

/// The search for the backup that a restore asks for.
#[derive(Clone, Copy)]
struct Search<'a> {
    own: &'a Shelf,
    label: Option<&'a str>,
    asked: Option<&'a Recovery>,
    wanted: Wanted,
    options: &'a Restore,
    context: &'a Context,
}

impl Search<'_> {
    fn at_target(self) -> Result<(Option<WalArchive>, BackupLease), Error> {
        let archive = match self.archive(self.own) {
            Ok(archive) => archive,
            // A target that is away has its archive with it, and is named.
            Err(error) => {
                let target = lease(self.own, self.label, self.asked, None).map(drop);
                return Err(target.err().filter(nearest::is_away).unwrap_or(error));
            }
        };
        let lease = lease(self.own, self.label, self.asked, archive.as_ref())?;
        if self.label.is_none() && self.options.media.target.is_none() {
            tell_newer(self.own, &lease, self.context);
        }
        Ok((archive, lease))
    }

    /// The backup that the target did not give for `error`, at a copy; `None` if it is not there or may be another one.
    fn at_copy(self, copy: &str, error: &Error) -> Result<Option<Source>, Failure> {
        let target = devices::target(self.context, copy)?;
        let mut shelf = devices::shelf(self.context, &target, &self.own.database)?;
        shelf.keyring = self.own.keyring.clone();
        let archive = match error {
            Error::NoneBefore { .. } => self.archive(self.own).ok().flatten(),
            _ => None,
        };
        let leased = self.meant(error).into_iter().find_map(|label| {
            let leased = lease(&shelf, Some(&label), self.asked, archive.as_ref());
            leased.ok()
        });
        let Some(lease) = leased else {
            return Ok(None);
        };
        let label = &lease.label;
        let remark = match self.likeness(&lease) {
            Some(Likeness::Proven) => "",
            Some(Likeness::ByLabel) => " (its label alone says that it is the same)",
            None => {
                self.context.output.warn(&format!(
                    "target {copy} has a backup under the label {label}, and nothing shows that it is the same one: it is not used"
                ));
                return Ok(None);
            }
        };
        let label = label.clone();
        let (lease, from_copy) = lease.nearer(self.own);
        let parts: Vec<String> = from_copy.iter().map(FromCopy::text).collect();
        let why = reason(error);
        self.context.output.warn(&format!(
            "{label} is restored from its copy at target {copy}{remark}, which gives {}: {why}",
            parts.join(" and ")
        ));
        let archive = match self.archive(self.own) {
            Ok(Some(archive)) => Some(archive),
            _ => self.archive(&shelf)?,
        };
        Ok(Some(Source {
            shelf,
            archive,
            lease,
        }))
    }

    /// The backup at the target without the places that do not answer. A cluster's archive must answer.
    fn in_reach(self, error: &Error) -> Option<Source> {
        let (shelf, (archive, lease)) =
            nearest::in_reach(self.own, error, self.context, |shelf| {
                let newest = |lease| nearest::newest(lease, self.label);
                let leased = lease(shelf, self.label, self.asked, None);
                if matches!(&leased, Ok(leased) if leased.facts.log.is_none()) {
                    return Ok(leased.map(newest)?.map(|lease| (None, lease)));
                }
                let archive = self.archive(shelf)?;
                let leased = lease(shelf, self.label, self.asked, archive.as_ref());
                Ok(leased.map(newest)?.map(|lease| (archive, lease)))
            })?;
        Some(Source {
            shelf,
            archive,
            lease,
        })
    }

    /// The newest backup that a copy has, while the target is away. The first archive may be elsewhere, and in reach.
    fn at_nearest(self, error: &Error) -> Result<Option<Source>, Error> {
        let own = match nearest::is_away(error) {
            true => self.archive(self.own).ok().flatten(),
            false => None,
        };
        let found = nearest::instead_of(self.own, error, self.context, |shelf| {
            let archive = match &own {
                Some(_) => None,
                None => self.archive(shelf)?,
            };
            let lease = lease(
                shelf,
                self.label,
                self.asked,
                own.as_ref().or(archive.as_ref()),
            )?;
            Ok((lease, archive))
        })?;
        Ok(found.map(|found| Source {
            archive: own.or(found.more),
            shelf: found.shelf,
            lease: found.lease,
        }))
    }

    /// The archive whose WAL is replayed.
    fn archive(self, shelf: &Shelf) -> Result<Option<WalArchive>, Error> {
        match self.wanted {
            Wanted::All => archive_of(shelf, self.options, self.context),
            Wanted::Parts => Ok(None),
        }
    }

    /// The labels of the backups that the target has and could not give for `error`, the best one first.
    fn meant(self, error: &Error) -> Vec<String> {
        match error {
            Error::NotWhole { label, .. } => vec![label.clone()],
            Error::Chain(_) => {
                let meant = self.own.meant(self.label);
                meant.iter().map(ToString::to_string).collect()
            }
            Error::NoneBefore { passed_over, .. } => {
                let lost = self.lost();
                let labels = passed_over.iter().map(|skipped| &skipped.label);
                let lost = labels.filter(|label| lost.contains(label));
                lost.map(ToString::to_string).collect()
            }
            _ => self.label.into_iter().map(str::to_owned).collect(),
        }
    }

    /// The backups of the target that lack stripes, or that need one that does. One that was refused for another reason is
    /// no better at a copy.
    fn lost(self) -> Vec<Label> {
        let facts = self.own.list().map(|listing| listing.facts());
        let facts = facts.unwrap_or_default();
        let is_lost = |i: &usize| match facts[*i].is_whole() {
            true => chain(&facts, *i).is_err_and(|broken| may_be_at_copies(&broken)),
            false => true,
        };
        let lost = (0..facts.len()).filter(is_lost);
        lost.map(|i| facts[i].label.clone()).collect()
    }

    /// Compares a copy's backup with what is left under its label at the target. The label of a set that is whole elsewhere
    /// proves nothing.
    fn likeness(self, lease: &BackupLease) -> Option<Likeness> {
        let media = |devices: &[DeviceSpec]| media_set(devices, self.context);
        let listing = self.own.list().unwrap_or_default();
        let left = listing.sets.iter().find(|set| set.label == lease.label);
        let left = left.and_then(|left| Some((left, media(&left.devices)?)));
        match left {
            Some((left, id)) => {
                let is_like =
                    Some(id) == media(&lease.devices) && lease.is_like(left, &self.context.storage);
                is_like.then_some(Likeness::Proven)
            }
            None if self.label.is_some() => Some(Likeness::ByLabel),
            None => None,
        }
    }

    /// The failure of a search that found nothing, with what helps now.
    fn failure(self, error: Error, copies: &[String]) -> Failure {
        match error {
            Error::NotWhole { .. } | Error::Chain(_) => {
                older::advised(error.into(), self.own, self.label, self.context)
            }
            error if !copies.is_empty() && nearest::is_away(&error) => Failure {
                hint: format!(
                    "if the target does not come back, restore the newest copy: {} (`longshore info {} --target {}` shows what is there)",
                    labelled::with_target(std::env::args_os().skip(1), &copies[0]),
                    self.own.database,
                    copies[0]
                ),
                ..Failure::from(error)
            },
            error => labelled::of_branch(error),
        }
    }
}

/// The text of an error, or of its cause where that has the label.
fn reason(error: &Error) -> String {
    match error {
        Error::Chain(broken) => broken.to_string(),
        error => error.to_string(),
    }
}

/// The media set of stripes, from any whose header is readable.
fn media_set(devices: &[DeviceSpec], context: &Context) -> Option<uuid::Uuid> {
    let label = |device: &DeviceSpec| MediaSet::label(&*device.open(&context.storage)).ok();
    devices
        .iter()
        .find_map(label)
        .map(|header| header.media_set)
}

/// Warns if a copy has a newer backup than the target, which has lost it then: one that lost all stripes looks as if it had
/// never been complete.
fn tell_newer(own: &Shelf, chosen: &BackupLease, context: &Context) {
    for copy in context.config.copies_of(&own.database) {
        let there = devices::target(context, copy)
            .and_then(|target| devices::shelf(context, &target, &own.database))
            .and_then(|shelf| Ok(shelf.list()?));
        let Ok(there) = there else {
            tracing::info!(copy, "it is not known whether a copy has newer backups");
            continue;
        };
        let facts = there.facts();
        let newest = facts.iter().filter(|set| set.is_whole());
        let Some(newest) = newest.max_by_key(|set| set.finish_us) else {
            continue;
        };
        if newest.finish_us > chosen.facts.finish_us && newest.id != chosen.facts.id {
            context.output.warn(&format!(
                "target {copy} has a newer backup, {}, which is not whole at target {}: to restore it, name --target {copy}",
                newest.label, own.target.name
            ));
        }
    }
}

/// Whether a copy may have what the target could not give.
fn may_have(error: &Error) -> bool {
    match error {
        Error::NotWhole { .. } | Error::NoneBefore { .. } => true,
        Error::Chain(broken) => may_be_at_copies(broken),
        error => nearest::is_away(error),
    }
}

/// Whether a copy may have the backup that a chain lacks.
fn may_be_at_copies(broken: &BrokenChain) -> bool {
    matches!(
        broken,
        BrokenChain::ParentMissing { .. } | BrokenChain::ParentBroken { .. }
    )
}

fn archive_of(
    shelf: &Shelf,
    options: &Restore,
    context: &Context,
) -> Result<Option<WalArchive>, Error> {
    let args = &options.cluster;
    let to_its_end = args.target_immediate && shelf.present_wal().is_some();
    match (&args.wal_archive, &args.restore_command) {
        (Some(path), _) => {
            let archive = WalArchive::existing(&*context.storage, path)?;
            Ok(Some(archive.with_keyring(&shelf.keyring)))
        }
        (None, Some(_)) => Ok(None),
        // The backup's own WAL leads there, and none of the archive's is read.
        (None, None) if to_its_end => Ok(None),
        (None, None) => shelf.wal(),
    }
}

fn lease(
    shelf: &Shelf,
    label: Option<&str>,
    asked: Option<&Recovery>,
    archive: Option<&WalArchive>,
) -> Result<BackupLease, Error> {
    match asked {
        Some(recovery) => shelf.lease_for(label, recovery, archive),
        None => shelf.lease(label),
    }
}

/// Warns if the WAL after the backup may be that of another branch than the server that was backed up.
fn refused(
    archive: Option<&WalArchive>,
    recovery: Option<&Recovery>,
    context: &Context,
) -> Option<String> {
    // To its own end, a backup needs only WAL that was compared with its server's.
    let goes_on = |recovery: &&Recovery| recovery.target != Some(RecoveryTarget::Immediate);
    recovery.filter(goes_on)?;
    let archive = archive?;
    let warning = archive.refused_now()?.warning(archive.path());
    context.output.warn(&warning);
    Some(warning)
}

/// How the server recovers, and what its archive was proved to have.
fn recovery(
    asked: Option<Recovery>,
    log: &LogRange,
    lease: &BackupLease,
    (shelf, archive): (&Shelf, Option<&WalArchive>),
    options: &Restore,
    context: &Context,
) -> Result<(Option<Recovery>, Option<ProvenLog>), Failure> {
    let no_log = |recovery: Option<&Recovery>| match shelf.needed_wal_path() {
        Ok(path) => Error::NoLog {
            database: shelf.database.clone(),
            wish: target_text(recovery.and_then(|r| r.target.as_ref())),
            path,
        },
        Err(error) => error,
    };
    let is_of = |archive: &WalArchive| archive.identity().is_some_and(|i| i.system == log.system);
    if let (None, Some(archive)) = (&asked, archive)
        && !is_of(archive)
    {
        let path = archive.path().display();
        context.output.warn(&format!(
            "{path} holds the WAL of another cluster: the restore replays only the backup's own WAL"
        ));
        return Ok((None, None));
    }
    // Without recovery options: to the end of the available WAL.
    match (asked, archive) {
        (asked, Some(archive)) => {
            let mut recovery = asked.unwrap_or_default();
            archive.check_witness(lease.facts.witness())?;
            archive.check_plain(log, lease.facts.finish_us, &recovery)?;
            let proven = archive.prove(log, lease.log_included, &recovery, lease.reach)?;
            let over = (&*options.to, options.replace, &options.cluster.lower());
            let at = (proven.timeline, proven.end);
            if let Some(text) = check_tail(&*context.storage, archive, over, at, &recovery)? {
                context.output.warn(&text);
            }
            if let Some(warning) = proven.warning() {
                context.output.warn(&warning);
            }
            let (rules, signers) = (&shelf.keyring, shelf.keyring.signers());
            if (rules.requires_encryption() || signers.required())
                && log.last().0 != proven.timeline
                && !archive.has_segments_of(proven.timeline)?
            {
                context.output.warn(&format!(
                    "recovery follows timeline {}, of which the archive has a history and no segment: nothing shows that a server made \
                     it. If none did, restore with --target-timeline current",
                    proven.timeline
                ));
            }
            let identities = server_identities(archive, options, context)?;
            let part = received_in_part(archive, &proven, &recovery);
            if let Some(name) = part {
                context.output.note(&format!(
                    "{} has a part of {name}, which a receiver was filling: the recovery goes on into it",
                    archive.path().display()
                ));
            }
            let command = command_for(archive, &identities, part.is_some(), context);
            recovery.restore_command = Some(command);
            recovery.takes_name = true;
            recovery.not_ahead = proven.not_ahead;
            Ok((Some(recovery), Some(proven)))
        }
        (Some(recovery), None) if recovery.restore_command.is_some() || recovery.standby => {
            Ok((Some(recovery), None))
        }
        (Some(mut recovery), None)
            if recovery.target == Some(RecoveryTarget::Immediate) && lease.log_included =>
        {
            recovery.restore_command = Some(NO_ARCHIVE.to_owned());
            Ok((Some(recovery), None))
        }
        (Some(recovery), None) => Err(no_log(Some(&recovery)).into()),
        // There is an archive, but it is not reachable.
        (None, None) if context.config.wal_of(&shelf.database).is_some() => {
            Err(no_log(None).into())
        }
        (None, None) => Ok((None, None)),
    }
}

/// The segment after the archive's end of which a receiver has a part, if the recovery may go so far.
fn received_in_part(
    archive: &WalArchive,
    proven: &ProvenLog,
    recovery: &Recovery,
) -> Option<SegmentName> {
    let found = archive.partial_after(proven.timeline, proven.end);
    found.filter(|_| goes_into_part(recovery))
}

/// Whether a recovery goes on into the segment that a receiver was filling. A standby waits for the whole one.
fn goes_into_part(recovery: &Recovery) -> bool {
    !recovery.standby && recovery.target != Some(RecoveryTarget::Immediate)
}

/// A server cannot recover to a time in the future; it would stop without opening.
fn refuse_future(recovery: &Recovery, context: &Context) -> Result<(), Failure> {
    let now_us = context.clock.wall_ns() / 1000;
    match recovery.target {
        Some(RecoveryTarget::Time(us)) if us > now_us && !recovery.standby => Err(Failure::usage(
            format!(
                "the recovery target {} is in the future",
                target_text(recovery.target.as_ref())
            ),
            "choose a moment in the past, or leave the target out to replay all WAL",
        )),
        _ => Ok(()),
    }
}

fn told(
    lease: &BackupLease,
    archive: Option<&WalArchive>,
    proven: Option<&ProvenLog>,
) -> ChosenBackup {
    let passed = |p: &longshore_repository::recover::SkippedBackup| SkippedBackup {
        label: p.label.to_string(),
        why: p.why.clone(),
    };
    let archive = archive.filter(|_| proven.is_some());
    ChosenBackup {
        label: lease.label.to_string(),
        passed_over: lease.passed.iter().map(passed).collect(),
        archive: archive.map(|a| a.path().display().to_string()),
        archive_end_lsn: proven.map(|p| p.end.to_string()),
        timeline: proven.map(|p| p.timeline.number()),
        archive_wal: archive
            .zip(proven)
            .and_then(|(a, p)| replayed_wal(lease, a, p)),
        warning: proven.and_then(ProvenLog::warning),
    }
}

/// The part of the archive that recovery fetches after the WAL in the set. `None` if the archive ends before.
fn replayed_wal(
    lease: &BackupLease,
    archive: &WalArchive,
    proven: &ProvenLog,
) -> Option<ReplayedWal> {
    let log = lease.facts.log.as_ref()?;
    let (timeline, start) = match lease.log_included {
        true => log.last(),
        false => log.first(),
    };
    let size = archive.identity()?.segment_size;
    let bytes = proven
        .end
        .0
        .checked_sub(start.0)
        .filter(|bytes| *bytes > 0)?;
    let segment = |timeline, lsn| SegmentName::holding(timeline, lsn, size).to_string();
    Some(ReplayedWal {
        start_lsn: start.to_string(),
        first_segment: segment(timeline, start),
        last_segment: segment(proven.timeline, Lsn(proven.end.0 - 1)),
        bytes,
    })
}

impl ChosenBackup {
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The archive from which the server will fetch its WAL.
    pub fn archive(&self) -> Option<&str> {
        self.archive.as_deref()
    }

    /// The line of a dry run about the WAL; `None` without an archive.
    pub fn wal_text(&self) -> Option<String> {
        let archive = plain(self.archive.as_ref()?);
        Some(match &self.archive_wal {
            Some(wal) => format!(
                "WAL: at most {} from {archive}, segments {} to {}\n",
                bytes(wal.bytes),
                wal.first_segment,
                wal.last_segment
            ),
            None => format!("WAL: none of {archive}; what the backup has is enough\n"),
        })
    }

    fn text(&self, lease: &BackupLease) -> String {
        let finished = moment(lease.facts.finish_us);
        let mut text = format!(
            "longshore: backup {}, complete at {finished} UTC\n",
            self.label
        );
        if let (Some(archive), Some(end), Some(timeline)) =
            (&self.archive, &self.archive_end_lsn, self.timeline)
        {
            text += &format!(
                "longshore: WAL from {archive}, which ends at {end} on timeline {timeline}\n"
            );
        }
        text
    }
}
