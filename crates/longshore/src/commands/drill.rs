//! `drill`: restores a backup to a scratch directory and proves that the database is sound.
//!
//! Invariants
//! - The copy is always removed, also after a failure. The next drill removes what a killed drill left.
//! - The copy of a server runs without network and without archiving, so that it cannot touch the original.
//!
//! Invariants
//! - The backup is leased until the drill has ended, so no expire removes it meanwhile.
//! - A drill that ends because the backup is damaged leaves a bad result for the very backup that was leased. One that found
//!   the content not to be good leaves it wherever a copy of the backup may lie.
//! - The programs of a cluster's major version are looked for before the whole backup is restored.
//! - A marked set is never called good. No server starts whose tablespaces another server's files occupy.
//!
//! Leaves to others: restoring (`pipeline`), the checks of a cluster (`drill/postgres.rs`), its WAL from the archive
//! (`drill/log.rs`, `drill/later.rs`), the check of a SQLite database
//! (`drill/sqlite.rs`), and the scratch directory (`drill/scratch.rs`).

mod later;
mod log;
mod postgres;
mod proof;
mod scratch;
mod sqlite;

use std::path::{Path, PathBuf};

use longshore_catalog::RunTask;
use longshore_landing::{taken_tablespaces, told_of_taken};
use longshore_media::{EntryKind, Error as MediaError, Item, MediaSet, SetSummary};
use longshore_pipeline::{
    NullObserver, Report, Request, RestoreReport, RestoreRequest, RunContext, SourceSpec,
    run as run_pipeline,
};
use longshore_repository::status::{FailedRun, News, SetResult, Task};
use longshore_repository::{BackupLease, SetIdentity, Shelf};
use longshore_source::SourceKind;
use serde::Serialize;

use super::backup::wrong_report;
use super::ends::{self, RunLines};
use super::moving::{reading_tuning, restore_limits};
use super::recording::Recorder;
use super::runs::PendingRun;
use super::verify::is_answer;
use super::{devices, elsewhere, emptied, nearest};
use crate::context::Context;
use crate::keys::set_keyring;
use crate::options::Drill;
use crate::progress::ProgressView;
use later::LaterLog;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::bytes;
use longshore_terminal::text::plain;
use proof::Proof;
use scratch::Scratch;

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    database: &'a str,
    label: &'a str,
    sound: bool,
    /// Whether the backup got all its proofs.
    #[serde(skip)]
    is_checked: bool,
    proofs: &'a [Proof],
    elapsed_s: f64,
    restore: &'a RestoreReport,
}

pub fn run(options: &Drill, context: &Context) -> Result<Exit, Failure> {
    let named = (Some(&*options.database), options.target.as_deref());
    let lines = RunLines::of(context, "drill", named, "");
    let target = devices::target_of(context, options.target.as_deref(), &options.database)?;
    let label = options.label.as_deref().filter(|l| *l != "latest");
    let mut shelf = devices::shelf(context, &target, &options.database)?;
    // The run itself says why an identity cannot be used.
    if let Ok(keyring) = set_keyring(context, &options.keys) {
        shelf.keyring = keyring;
    }
    let recorder = Recorder::new(context, &shelf, Task::Drill);
    let mut run = PendingRun::begin(context, RunTask::Drill).at(&shelf.database, &target.name);
    run.record.label = label.map(str::to_owned);
    let leased = nearest::lease(shelf.clone(), label, options.target.as_deref(), context);
    let (at, lease) = leased.inspect_err(|failure| {
        run.failed(failure);
        if let Some(recorder) = &recorder {
            recorder.failed(failure, label);
        }
    })?;
    run.record.target = Some(at.target.name.clone());
    // A result belongs to where the backup was read, which is a copy while the target is away.
    let recorder = Recorder::new(context, &at, Task::Drill);
    run.record.label = Some(lease.label.to_string());
    run.record.set = lease.identities.first().map(|identity| identity.set);
    ends::chose(Some(lease.label.as_str()));
    emptied::tell_leased(&lease, &at, label, context);
    let drilled = run_leased(options, (&at, recorder.as_ref()), &lease, (&mut run, lines));
    drilled.map_err(|ended| {
        run.failed(&ended.failure);
        if let Some(recorder) = &recorder {
            ended.record(recorder, &lease, label);
        }
        ended.failure
    })
}

/// Why a drill ended without an answer.
struct Ended {
    failure: Failure,
    /// Whether the backup is damaged.
    is_damage: bool,
}

impl Ended {
    fn by(error: longshore_pipeline::Error) -> Ended {
        Ended {
            is_damage: is_answer(&error)
                || matches!(
                    error,
                    longshore_pipeline::Error::Media(MediaError::TrailerDamaged { .. })
                ),
            failure: error.into(),
        }
    }

    /// A failure that is not the backup's is no matter of its label, unless that was asked for.
    fn record(&self, recorder: &Recorder, lease: &BackupLease, label: Option<&str>) {
        match lease.identities.first().filter(|_| self.is_damage) {
            Some(identity) => recorder.damaged(&self.failure, identity),
            None => recorder.failed(&self.failure, label),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended {
            failure,
            is_damage: false,
        }
    }
}

fn run_leased(
    options: &Drill,
    (shelf, recorder): (&Shelf, Option<&Recorder>),
    lease: &BackupLease,
    (run, lines): (&mut PendingRun, RunLines),
) -> Result<Exit, Ended> {
    let context = run.context;
    let opened: Vec<_> = lease
        .devices
        .iter()
        .map(|d| d.open(&context.storage))
        .collect();
    let mut run_context = context.run_context();
    run_context.keyring = set_keyring(context, &options.keys)?;
    let of_media = |error: MediaError| Ended::by(error.into());
    let media = MediaSet::open(&opened).map_err(of_media)?;
    let media = media.with_keyring(&run_context.keyring);
    let set = media.set(0).map_err(of_media)?;
    let began = context.clock.now();
    let drilled = DrillCandidate {
        options,
        context,
        run_context,
        shelf,
        set,
        scratch: Scratch::new(context, options.work.as_deref())?,
    };
    let restore = drilled.restore(lease, &media)?;
    let (proofs, is_checked) = drilled.prove(&restore)?;
    let answer = Answer {
        action: "drill",
        database: &options.database,
        label: lease.label.as_str(),
        sound: proofs.iter().all(|p| p.sound),
        is_checked,
        proofs: &proofs,
        elapsed_s: (context.clock.now() - began).as_secs_f64(),
        restore: &restore,
    };
    let refused = match drilled.is(SourceKind::Postgres) {
        true => shelf.wal().ok().flatten().and_then(|archive| {
            let refused = archive.refused_now()?;
            Some(refused.warning(archive.path()))
        }),
        false => None,
    };
    if let Some(refused) = &refused {
        context.output.warn(refused);
    }
    drilled.scratch.remove();
    let mut told = None;
    if let (Some(recorder), Some(identity)) = (recorder, lease.identities.first()) {
        let own = context.config.target_of(&options.database);
        let is_copy = own.is_some_and(|own| own != shelf.target.name);
        // A good one is news where another was recorded: here, or at home, from where a copy may not have heard of it.
        let is_news = is_copy || shelf.condemns(identity.set);
        let result = answer.record(recorder, identity);
        told = result.filter(|result| !result.good || is_news);
    }
    let exit = match answer.sound {
        true if restore.run.history_failed || refused.is_some() => Exit::Warnings,
        true => context.output.done(),
        false => Exit::No,
    };
    run.record.bytes = Some(restore.plain_bytes);
    let wrong = answer.wrong();
    // Trouble with the history was told already.
    if !restore.run.history_failed {
        run.ended(exit, wrong.as_deref().or(refused.as_deref()));
    }
    match answer.sound {
        true => context.output.say(&answer.text()),
        false => context.output.findings(&answer.text()),
    }
    lines.end(exit, &answer.summary());
    context.output.json(exit, answer);
    // Last, since a target that hangs must not keep the answer back.
    if let Some(result) = told {
        elsewhere::tell_result(shelf, &result, context);
    }
    Ok(exit)
}

impl Answer<'_> {
    /// The first proof that failed.
    fn wrong(&self) -> Option<String> {
        let unsound = self.proofs.iter().find(|proof| !proof.sound);
        unsound.map(|proof| format!("{}: {}", proof.what, proof.text))
    }

    /// The first proof that failed of those about the backup itself: WAL after it says nothing about it.
    fn backups_wrong(&self) -> Option<String> {
        let mut own = self
            .proofs
            .iter()
            .filter(|proof| proof.what != later::LATER);
        let unsound = own.find(|proof| !proof.sound);
        unsound.map(|proof| format!("{}: {}", proof.what, proof.text))
    }

    /// Of the chain, only the backup that was restored has a result: the others were not tried as they stand. Returns the
    /// result if it says anything about the content, and so about all copies of the backup.
    fn record(&self, recorder: &Recorder, identity: &SetIdentity) -> Option<SetResult> {
        let wrong = self.wrong();
        let by = recorder.now();
        let failed = |text: &str| {
            let told = (Exit::No.code(), numbers::RESTORE_TARGET, text);
            FailedRun::new(by.clone(), Some(self.label), told)
        };
        let backups_wrong = self.backups_wrong();
        let mut result = SetResult::new(identity, &by, backups_wrong.as_deref());
        result.seconds = Some(self.elapsed_s);
        result.content = self.proofs.iter().any(|p| !p.sound && p.of_content);
        // A backup that is neither shown good nor bad keeps the result that it had.
        let is_result = self.is_checked || backups_wrong.is_some();
        let of_content = (is_result && (result.good || result.content)).then(|| result.clone());
        recorder.record(&News {
            sets: Vec::from_iter(is_result.then_some(result)),
            failed: wrong.as_deref().map(failed),
            good: (self.sound).then(|| recorder.good_run(Some(std::slice::from_ref(identity)))),
            ..News::default()
        });
        of_content
    }

    /// The verdict and each proof, on one line.
    fn summary(&self) -> String {
        let mut text = self.verdict();
        for proof in self.proofs {
            let mark = if proof.sound { "ok" } else { "FAIL" };
            text += &format!("; {mark} {}: {}", proof.what, plain(&proof.text));
        }
        text
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for proof in self.proofs {
            let mark = if proof.sound { "ok  " } else { "FAIL" };
            text += &format!("  {mark}  {:<16}  {}\n", proof.what, plain(&proof.text));
        }
        text + &self.verdict() + "\n"
    }

    fn verdict(&self) -> String {
        let verdict = match (self.sound, self.backups_wrong()) {
            (true, _) if !self.is_checked => {
                "has no damage that was found, and was not checked wholly"
            }
            (true, _) => "is good",
            (false, None) if !self.is_checked => {
                "replays to its end and was not checked, and WAL after it is NOT GOOD"
            }
            (false, None) => "is good, and WAL after it is NOT GOOD",
            (false, Some(_)) => "is NOT GOOD",
        };
        let (label, elapsed_s) = (self.label, self.elapsed_s);
        let database = plain(self.database);
        format!("backup {label} of {database} {verdict} ({elapsed_s:.1} s)")
    }
}

/// A backup on trial.
struct DrillCandidate<'a> {
    options: &'a Drill,
    context: &'a Context,
    run_context: RunContext,
    shelf: &'a Shelf,
    set: SetSummary,
    scratch: Scratch<'a>,
}

impl DrillCandidate<'_> {
    fn is(&self, kind: SourceKind) -> bool {
        self.set.header.source_kind == kind as u8
    }

    /// Where the backup is restored to.
    fn data(&self) -> PathBuf {
        self.scratch.path.join("data")
    }

    fn bin_dir(&self) -> Option<&Path> {
        self.options.bin_dir.as_deref()
    }

    /// Restores all of it. Of a cluster, its version's programs are looked for before.
    fn restore(&self, lease: &BackupLease, media: &MediaSet) -> Result<RestoreReport, Ended> {
        let (context, moving) = (self.context, &self.options.moving);
        let mut request = RestoreRequest::new(lease.devices.clone(), self.data());
        request.bases = devices::bases(lease);
        if self.is(SourceKind::Postgres) {
            let spaces = self.scratch.path.join("spaces");
            request.cluster.spaces.map = tablespaces(media, self.set.header.position, &spaces)?;
            request.cluster.log_follows = true;
        }
        request.tuning = reading_tuning(moving, &context.config.defaults);
        request.limits = restore_limits(moving);
        if self.is(SourceKind::Postgres) {
            let version = self.scratch.path.join("version");
            restore_version(&self.run_context, &request, &version)?;
            postgres::look_for_programs(context, &version, self.bin_dir())?;
        }
        if self.is(SourceKind::Sqlite) {
            // A restore that made the directory would tell of its mode, which is nothing to a drill.
            let made = context.storage.create_dir_all(&self.data());
            tracing::debug!(is_made = made.is_ok(), "the directory of the drill");
        }
        let watch = ProgressView::new(context.output, context.clock.clone());
        let result = run_pipeline(&self.run_context, &Request::Restore(request), &watch);
        watch.end();
        match result.map_err(Ended::by)? {
            Report::Restore(report) => Ok(report),
            _ => Err(wrong_report().into()),
        }
    }

    /// All that can be said of what was restored, and whether that is all that a drill looks at.
    fn prove(&self, restored: &RestoreReport) -> Result<(Vec<Proof>, bool), Failure> {
        let (files, size) = (restored.totals.file_count, bytes(restored.plain_bytes));
        let text = format!("{files} files, {size}, every checksum compared");
        let mut proofs = vec![Proof::of("restored", true, text)];
        if restored.damaged {
            let text = "the set is marked: made from files that changed, or from damaged ones";
            proofs.push(Proof::of("clean", false, text));
        }
        if self.is(SourceKind::Sqlite) {
            let (proof, is_checked) = sqlite::prove(self.context, &self.data());
            proofs.push(proof);
            return Ok((proofs, is_checked));
        } else if self.is(SourceKind::Postgres) {
            let is_checked = self.prove_cluster(&mut proofs)?;
            return Ok((proofs, is_checked));
        }
        Ok((proofs, true))
    }

    /// False: recovery failed in WAL after the backup, so the backup itself was not checked.
    fn prove_cluster(&self, proofs: &mut Vec<Proof>) -> Result<bool, Failure> {
        let (context, data, header) = (self.context, self.data(), &self.set.header);
        let mut later = None;
        if let Some(trailer) = &self.set.trailer {
            proofs.extend(log::fetch(context, self.shelf, header, trailer, &data)?);
            if proofs
                .iter()
                .all(|proof| proof.what != log::WHAT || proof.sound)
            {
                later = later::fetch(context, self.shelf, (header, trailer), &data);
            }
        }
        let taken = taken_tablespaces(&*context.storage, &data);
        let told = taken.iter().map(told_of_taken);
        proofs.extend(told.map(|text| Proof::of_place("tablespaces", false, text)));
        let users = superusers(context, &self.options.database, &header.user);
        if taken.is_empty() {
            let trial = postgres::Trial {
                context,
                scratch: &self.scratch,
                data: &data,
                bin_dir: self.bin_dir(),
                users: &users,
                timeline: later.as_ref().map(|later| later.timeline),
                has_later: later.as_ref().is_some_and(LaterLog::has_segments),
                cancel: &self.run_context.cancel,
            };
            let broken_off = postgres::prove(&trial, proofs)?;
            let proof = later.map(|later| later.proof(context, &data, broken_off.as_deref()));
            proofs.extend(proof);
            return Ok(broken_off.is_none());
        }
        Ok(true)
    }
}

/// Restores the file that tells a cluster's major version. If that version's programs are missing, the drill says so
/// before it restores the rest. The history does not record this as a restore.
fn restore_version(
    run_context: &RunContext,
    whole: &RestoreRequest,
    version: &Path,
) -> Result<(), Ended> {
    let mut request = RestoreRequest::new(whole.devices.clone(), version.to_owned());
    request.bases = whole.bases.clone();
    request.only = vec![PathBuf::from(postgres::VERSION)];
    let run_context = RunContext {
        catalog: None,
        ..run_context.clone()
    };
    let request = Request::Restore(request);
    let restored = run_pipeline(&run_context, &request, &NullObserver);
    restored.map(|_| ()).map_err(Ended::by)
}

/// A place in the scratch directory for each tablespace of a cluster, by its OID.
fn tablespaces(
    media: &MediaSet,
    position: u32,
    spaces: &Path,
) -> Result<Vec<(String, PathBuf)>, Ended> {
    let mut map = Vec::new();
    let items = media.items(position, |item| {
        let Item::Entry(entry) = item else { return };
        let oid = entry
            .path
            .strip_prefix("pg_tblspc")
            .ok()
            .and_then(Path::to_str);
        let is_link = matches!(entry.kind, EntryKind::Symlink { .. });
        if let Some(oid) = oid.filter(|o| is_link && o.parse::<u32>().is_ok()) {
            map.push((oid.to_owned(), spaces.join(oid)));
        }
    });
    items.map_err(|error| Ended::by(error.into()))?;
    Ok(map)
}

/// Roles that may be the restored cluster's superuser, likeliest first.
fn superusers(context: &Context, database: &str, who: &str) -> Vec<String> {
    let configured = context.config.database.get(database);
    let configured = configured.and_then(|d| super::source::configured(context, database, d).ok());
    let mut users = Vec::new();
    if let Some(SourceSpec::Postgres(server)) = configured {
        users.push(server.user);
    }
    for user in ["postgres", who] {
        if !user.is_empty() && !users.iter().any(|u| u == user) {
            users.push(user.to_owned());
        }
    }
    users
}
