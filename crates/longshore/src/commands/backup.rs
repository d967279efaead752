//! `backup`: lowers options and configuration to one request; prints the report as one table.
//!
//! Invariants
//! - An option overrides the configuration, which overrides the server settings.
//! - A backup to a target holds its place there until it was recorded and verified, so that no expire or second backup
//!   comes between.
//!
//! Leaves to others: which devices a target has (`devices.rs`), and everything that moves bytes (`pipeline`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_catalog::RunTask;
use longshore_media::{DeviceSpec, Disposition};
use longshore_pipeline::{
    Against, BackupReport, BackupRequest, BaseRequest, DifferentialReport, Report, Request,
    RunContext, ServerSettings, SourceSpec, VerifyDepth, VerifyReport, VerifyRequest, WalProof,
    mb_per_s, ratio, run as run_pipeline,
};
use longshore_repository::status::{News, Task};
use longshore_repository::target::unfit_name;
use longshore_repository::{Label, Reliance, Shelf};
use serde::Serialize;

use super::archive::ArchiveLocation;
use super::devices::TargetHold;
use super::ends::{self, RunLines, closing_line, figures, wal_of};
use super::moving::{limits, tuning};
use super::offload;
use super::recording::{self, Recorder};
use super::runs::PendingRun;
use super::{detached, devices, emptied, shelves, source, unarchived};
use crate::config;
use crate::context::Context;
use crate::key_places;
use crate::keys;
use crate::options::Backup;
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::journal::{self, RunFields};
use longshore_terminal::numbers;
use longshore_terminal::output::{Output, Table, bytes, cpu_s_per_gb, moment};
use longshore_terminal::text::plain;

const DAY_US: i64 = 86_400_000_000;

/// The report with the values computed from it.
#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    message: &'a str,
    mb_per_s: f64,
    ratio: f64,
    cpu_s_per_gb: f64,
    #[serde(flatten)]
    kind: &'a Kind,
    /// `None`: verification was not requested.
    verified: Option<bool>,
    #[serde(flatten)]
    report: &'a BackupReport,
    verification: Option<&'a VerifyReport>,
}

/// The kind of a backup, and its label at a target.
#[derive(Serialize)]
struct Kind {
    /// At a target.
    label: Option<String>,
    target: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
}

/// SQL Server's number for a differential backup without a base.
const NO_BASE: u32 = 3035;

pub fn run(options: &Backup, context: &Context) -> Result<Exit, Failure> {
    let wanted = BackupWish::of(options, context);
    let mut run = PendingRun::begin(context, RunTask::Backup);
    run.record.target = wanted.target().map(str::to_owned);
    if run.record.target.is_none() {
        run.on(&options.to);
    }
    let named = || Some(wanted.configured?.0.clone());
    // A failure before the backup has a label is about this, too.
    journal::begin(RunFields {
        task: "backup",
        database: options.database.clone().or_else(named),
        target: wanted.target().map(str::to_owned),
        ..RunFields::default()
    });
    let began_us = run.record.start_us;
    let result = run_or_full(options, &mut run);
    if let Err(failure) = &result {
        run.record.database = wanted.name();
        run.failed(failure);
    }
    if let Some(shelf) = wanted.shelf()
        && let Some(recorder) = Recorder::new(context, &shelf, Task::Backup)
    {
        match &result {
            Err(failure) => recorder.failed_or_told(failure),
            Ok(Exit::No) => {}
            Ok(_) => recorder.since(began_us).mended(),
        }
    }
    result
}

fn run_or_full(options: &Backup, run: &mut PendingRun) -> Result<Exit, Failure> {
    let against = options.differing.against();
    match run_against(options, run, against) {
        Err(failure) if failure.number == NO_BASE && options.differing.or_full => {
            let why = failure.causes.last().unwrap_or(&failure.text);
            let text = format!("this is a full backup: {why}");
            run.context.output.note(&text);
            run_against(options, run, None)
        }
        result => result,
    }
}

fn run_against(
    options: &Backup,
    run: &mut PendingRun,
    against: Option<Against>,
) -> Result<Exit, Failure> {
    let context = run.context;
    // The backup's location at the target is held until everything is done.
    let (request, held) = request(options, context, against)?;
    if let (SourceSpec::Postgres(server), Some(proof)) = (&request.source, &request.wal_proof) {
        unarchived::refuse(&*context.storage, server, &proof.archive)?;
    }
    if options.verify && !request.devices.iter().all(can_be_read) {
        return Err(Failure::usage(
            "--verify needs devices that can be read",
            "leave out --verify for nul: and -",
        ));
    }
    let kind = Kind {
        label: held.as_ref().map(|held| held.begun.label.to_string()),
        target: held.as_ref().map(|held| held.target.clone()),
        kind: match against {
            None => "full",
            Some(Against::LastFull) => "diff",
            Some(Against::Newest) => "incr",
        },
    };
    let name = request.database.clone();
    let name = name.unwrap_or_else(|| name_of(&request.source));
    let lines = RunLines::begin(context.output, kind.head(&name), kind.fields(&name));
    let mut run_context = context.run_context().equipped(&request.offload);
    let encrypts = request.encrypt_to.is_some();
    let sign = keys::signing_key(context, (options.sign.as_deref(), &options.keys), encrypts)?;
    if sign.is_none() && context.config.encryption.sign.is_some() {
        context
            .output
            .note("the backup is not encrypted, and so it is not signed, either");
    }
    let keyring = keys::keyring(context, &options.keys)?;
    let keyring = key_places::with(keyring, key_places::all(context, &options.key_places)?);
    run_context.keyring = Arc::new(keyring.signing_with(sign));
    if !options.keys.identity.is_empty() && request.base.is_none() && !options.verify {
        context.output.note(
            "--identity has no effect here: only a differential backup's base and --verify are read with it",
        );
    }
    let backup = Request::Backup(request.clone());
    let Report::Backup(report) = watched(&backup, &run_context, context)? else {
        return Err(wrong_report());
    };
    if run_context.keyring.asks_programs() {
        // Only the program can tell whether it will unwrap what it wrapped.
        run_context.keyring = Arc::new(run_context.keyring.for_one_run());
    }
    let verification = match options.verify {
        false => None,
        true => Some(read_back(&request, report.position, &run_context, context)?),
    };
    // Others may have taken this backup for dead while it was verified, and removed some of it.
    if let Some(held) = &held {
        held.begun.confirm()?;
    }
    // Another backup could have replaced the set meanwhile: then a sound set says nothing about this one.
    let is_ours = |found: &VerifyReport| found.sets.iter().any(|set| set.set == report.set);
    let verified = verification
        .as_ref()
        .map(|found| found.is_valid() && is_ours(found));
    let mixed = held.as_ref().is_some_and(|held| held.mixed);
    if let Some(text) = held
        .as_ref()
        .and_then(|held| lost_content(held, &request.source, &report))
    {
        context.output.warn(&text);
    }
    let label = held.as_ref().map(|held| held.begun.label.clone());
    // The mark tells the expire of a copy elsewhere that the backup is here, too.
    if let (Some(target), Some(places)) = (&kind.target, &request.key_places) {
        detached::hold(report.set.as_bytes(), places, (target, context));
    }
    // As long as its place is held, the backup counts as being written.
    drop((backup, request, held));
    if let (Some(label), Some(found)) = (&label, &verification) {
        record(options, context, label, found);
    }
    let exit = if verified == Some(false) {
        Exit::No
    } else if report.damaged || report.run.history_failed || mixed {
        Exit::Warnings
    } else {
        context.output.done()
    };
    // Trouble with the history was told already.
    if !report.run.history_failed {
        remember(run, &kind, &report, (exit, verification.as_ref()));
    }
    let verified = (verification.as_ref(), verified);
    show(context.output, exit, &report, &kind, verified);
    lines.end(exit, &kind.done(&report));
    Ok(exit)
}

/// The sentence for a source that had content and has lost it.
fn lost_content(held: &TargetHold, source: &SourceSpec, report: &BackupReport) -> Option<String> {
    let left = match (source, &report.differential) {
        (SourceSpec::Postgres(_), _) => return None,
        (_, None) => report.plain_bytes,
        (_, Some(compared)) => compared.described_bytes,
    };
    let filled = held.filled.as_ref()?;
    let birth_ns = held.identity.births_ns.last().copied();
    let is_lost = filled.full.is_lost_in(left, birth_ns);
    is_lost.then(|| emptied::told(&filled.newest, left, (&report.database, &held.target)))
}

/// Records the run in the history.
fn remember(
    run: &mut PendingRun,
    kind: &Kind,
    report: &BackupReport,
    (exit, found): (Exit, Option<&VerifyReport>),
) {
    run.record.database = Some(report.database.clone());
    run.record.label = kind.label.clone();
    run.record.set = Some(report.set);
    run.record.bytes = Some(report.plain_bytes);
    let finding = found.and_then(|found| found.findings.first());
    run.record.number = finding.and_then(|finding| finding.number);
    run.ended(exit, finding.map(|finding| finding.text.as_str()));
}

/// Records that the new backup was verified; one that is damaged is a failed run, too.
fn record(options: &Backup, context: &Context, label: &Label, found: &VerifyReport) {
    let Some(shelf) = BackupWish::of(options, context).shelf() else {
        return;
    };
    let identities = shelf.identities(std::slice::from_ref(label));
    let identities = identities.unwrap_or_else(|error| {
        tracing::debug!(%error, "the new backup cannot be looked at");
        Vec::new()
    });
    let tasks = [Task::Verify, Task::Backup].map(|task| Recorder::new(context, &shelf, task));
    let [Some(verify), Some(backup)] = tasks else {
        return;
    };
    let failed = recording::damage(found, verify.now(), Some(label.as_str()));
    verify.record(&News {
        // Its base was not read.
        sets: recording::verified(found, &identities, &verify.now()),
        failed: failed.clone(),
        ..News::default()
    });
    if failed.is_some() {
        backup.record(&News {
            failed,
            ..News::default()
        });
    }
}

fn can_be_read(device: &DeviceSpec) -> bool {
    matches!(device, DeviceSpec::File(_) | DeviceSpec::Bucket(_))
}

/// Runs a request with its progress on the terminal.
fn watched(
    request: &Request,
    run_context: &RunContext,
    context: &Context,
) -> Result<Report, Failure> {
    let watch = ProgressView::new(context.output, context.clock.clone());
    let result = run_pipeline(run_context, request, &watch);
    watch.end();
    Ok(result?)
}

/// Verifies the set that a backup wrote at `position`.
fn read_back(
    request: &BackupRequest,
    position: u32,
    run_context: &RunContext,
    context: &Context,
) -> Result<VerifyReport, Failure> {
    let verify = Request::Verify(VerifyRequest {
        devices: request.devices.clone(),
        bases: Vec::new(),
        position: Some(position),
        known: Vec::new(),
        // The run has the key of its own set, and none of those that it needs.
        depth: match request.encrypt_to.is_some() && !run_context.keyring.has_identities() {
            true => VerifyDepth::Alone,
            false => VerifyDepth::Chains,
        },
        tuning: request.tuning,
        limits: request.limits,
    });
    match watched(&verify, run_context, context)? {
        Report::Verify(report) => Ok(report),
        _ => Err(wrong_report()),
    }
}

/// Prints what a backup did: warnings, the table, the answer in JSON.
fn show(
    output: Output,
    exit: Exit,
    report: &BackupReport,
    kind: &Kind,
    (verification, verified): (Option<&VerifyReport>, Option<bool>),
) {
    let what = format!("Backup of {}", plain(&report.database));
    let sizes = (report.plain_bytes, report.stored_bytes);
    let message = closing_line(&what, exit, sizes, report.run.elapsed_s);
    for finding in verification.into_iter().flat_map(|v| &v.findings) {
        output.warn(&finding.text);
    }
    for changed in &report.changed {
        output.warn(&format!("{} {}", changed.path, changed.what));
    }
    output.say(&table(report, verified).to_string());
    output.say(&kind.text(report));
    if let Some(differential) = &report.differential {
        output.say(&differing(differential));
    }
    if let Some(engines) = offload::table(&report.run.engines) {
        output.say(&engines.to_string());
    }
    output.say(&format!("{message}\n"));
    output.json(
        exit,
        Answer {
            action: "backup",
            message: &message,
            mb_per_s: mb_per_s(report.plain_bytes, report.run.elapsed_s),
            ratio: ratio(report.plain_bytes, report.stored_bytes),
            cpu_s_per_gb: cpu_s_per_gb(report.run.cpu_s, report.plain_bytes),
            kind,
            verified,
            report,
            verification,
        },
    );
}

impl Kind {
    /// The backup and its database.
    fn head(&self, database: &str) -> String {
        let kind = match self.kind {
            "diff" => "differential",
            "incr" => "incremental",
            full => full,
        };
        let mut text = format!("{kind} backup");
        if let Some(label) = &self.label {
            text += &format!(" {label}");
        }
        text += &format!(" of {}", plain(database));
        if let Some(target) = &self.target {
            text += &format!(" at target {target}");
        }
        text
    }

    fn fields(&self, database: &str) -> RunFields {
        RunFields {
            task: "backup",
            database: Some(database.to_owned()),
            target: self.target.clone(),
            label: self.label.clone(),
            kind: Some(self.kind),
            ..RunFields::default()
        }
    }

    /// One line: what was backed up, when, and where it is.
    fn text(&self, report: &BackupReport) -> String {
        let head = self.head(&report.database);
        format!("{head}, {}\n", when_and_where(report))
    }

    /// The journal's words for what was done.
    fn done(&self, report: &BackupReport) -> String {
        ends::is_of(&report.database, &report.wal);
        let sizes = (report.plain_bytes, report.stored_bytes);
        let figures = figures(sizes, report.run.elapsed_s);
        format!("{figures}, {}", when_and_where(report))
    }
}

/// The moments of a backup, its WAL and its stripes.
fn when_and_where(report: &BackupReport) -> String {
    let (begin, end) = (moment(report.start_us), moment(report.finish_us));
    let mut text = format!("{begin} to {end} UTC");
    if let Some(wal) = wal_of(&report.wal) {
        text += &format!(", {wal}");
    }
    let devices: Vec<_> = report.run.plan.devices.iter().map(|d| plain(d)).collect();
    text + &format!(", in {}", devices.join(" "))
}

/// A report of a kind other than the requested one.
pub fn wrong_report() -> Failure {
    Failure::new(
        Exit::Internal,
        numbers::INTERNAL,
        "internal error: the answer does not fit the request",
        "report this bug with the command",
    )
}

/// The share that was stored of the files that the base has, too.
fn differing(report: &DifferentialReport) -> String {
    format!(
        "differs from set {}: {} of {} read were stored of {} files that the base has ({})\n",
        report.parent,
        bytes(report.changed_bytes),
        bytes(report.read_bytes),
        report.based_files,
        report.method,
    )
}

fn table(report: &BackupReport, verified: Option<bool>) -> Table {
    let plan = &report.run.plan;
    let mut table = Table::new(&[
        "stripes",
        "algorithm",
        "engine",
        "in",
        "out",
        "ratio",
        "wall",
        "CPU-s/GB",
        "limit",
        "verified",
    ]);
    table.row(vec![
        plan.devices.len().to_string(),
        plan.algorithm.clone(),
        plan.engine.clone(),
        bytes(report.plain_bytes),
        bytes(report.stored_bytes),
        format!("{:.2}", ratio(report.plain_bytes, report.stored_bytes)),
        format!("{:.2} s", report.run.elapsed_s),
        format!("{:.2}", cpu_s_per_gb(report.run.cpu_s, report.plain_bytes)),
        report.run.limit.text().to_owned(),
        match verified {
            None => "not asked",
            Some(true) => "yes",
            Some(false) => "DAMAGED",
        }
        .to_owned(),
    ]);
    table
}

/// Combines the options and the configuration.
fn request(
    options: &Backup,
    context: &Context,
    against: Option<Against>,
) -> Result<(BackupRequest, Option<TargetHold>), Failure> {
    let wanted = BackupWish::of(options, context);
    let source = wanted.source()?;
    let encrypt_to = keys::recipients(
        context,
        &options.encrypt_to,
        (wanted.target(), options.keys.require_encryption),
    )?;
    let to = wanted.destination(&source, against)?;
    let base = base(options, against, to.held.as_ref())?;
    let own_archive = wanted.own_archive(&source)?;
    let settings = settings(context);
    let defaults = &context.config.defaults;
    for option in without_effect(options, &source) {
        context.output.note(&format!(
            "{option} has no effect here: it is for other sources (`longshore backup --help`)"
        ));
    }
    let mut request = BackupRequest::new(source, to.devices);
    request.parity = options.parity.unwrap_or(to.parity);
    let usual = to.tolerate.min(request.parity);
    request.tolerated = options.tolerate.unwrap_or(usual);
    request.base = base;
    let asked = (options.keys_detached, &options.key_places[..]);
    request.key_places =
        key_places::for_backup(context, asked, (wanted.target(), encrypt_to.is_some()))?;
    if let Some(places) = &request.key_places {
        key_places::refuse_near(context, places, &request.devices)?;
    }
    let compares = options.differing.differential || options.differing.incremental;
    // A base may have its keys there.
    if request.key_places.is_none() && !options.key_places.is_empty() && !compares {
        return Err(Failure::usage(
            "--keys names places of detached keys, and the keys of this backup would be on its media",
            "add --keys-detached, or leave --keys out",
        ));
    }
    request.encrypt_to = encrypt_to;
    request.database = to.database;
    request.page_sums = options.differing.page_sums || to.held.is_some();
    request.own = context.config.path.iter().cloned().collect();
    request.disposition = options.disposing.disposition();
    if let Some(held) = &to.held {
        request.postgres.earlier = Arc::new(held.earlier.clone());
        request.identity = held.identity.clone();
        request.place = Some(held.begun.clone());
    }
    wanted.compress(&settings, &mut request);
    wanted.label(&settings, &mut request);
    wanted.read(&mut request)?;
    wanted.keep_log(own_archive, to.log, &mut request);
    let postgres = &options.postgres;
    request.postgres.spread_checkpoint = postgres.spread_checkpoint;
    request.postgres.remote = postgres.remote;
    request.postgres.fail_on_bad_page = postgres.fail_on_bad_page;
    request.postgres.configuration = !postgres.no_server_config && wanted.takes_configuration();
    request.offload = offload::of(&options.offloading, settings.offload, context.output);
    if let Some(how) = options.results.verify_engine {
        request.offload.verify = how.into();
    }
    request.tuning = tuning(&options.moving, defaults);
    request.limits = limits(&options.moving, defaults);
    Ok((request, to.held))
}

/// The options that were given and that mean nothing for such a source.
fn without_effect(options: &Backup, source: &SourceSpec) -> Vec<&'static str> {
    let (reading, postgres) = (&options.reading, &options.postgres);
    let of_sqlite = [
        (reading.wal_growth_limit.is_some(), "--wal-growth-limit"),
        (reading.trust_locks, "--trust-locks"),
    ];
    let of_postgres = [
        (postgres.with_wal, "--with-wal"),
        (postgres.wal_archive.is_some(), "--wal-archive"),
        (postgres.remote, "--remote"),
        (postgres.spread_checkpoint, "--spread-checkpoint"),
        (postgres.fail_on_bad_page, "--fail-on-bad-page"),
        (postgres.no_server_config, "--no-server-config"),
    ];
    let mut given = Vec::new();
    if !matches!(source, SourceSpec::Sqlite(_)) {
        given.extend(of_sqlite);
    }
    if !matches!(source, SourceSpec::Postgres(_)) {
        given.extend(of_postgres);
    }
    let given = given.into_iter().filter(|(is_given, _)| *is_given);
    given.map(|(_, option)| option).collect()
}

/// What is asked for: the options, and what the configuration says of the same database.
struct BackupWish<'a> {
    options: &'a Backup,
    context: &'a Context,
    /// The source, where it is a database of the configuration, by its name there.
    configured: Option<(&'a String, &'a config::Database)>,
}

/// Where a backup goes.
struct Destination {
    devices: Vec<DeviceSpec>,
    /// How many of them are to hold parity, unless an option says otherwise.
    parity: u16,
    /// How many of them may fail, likewise.
    tolerate: u16,
    /// The database's name, where it is not the source's own.
    database: Option<String>,
    /// Its place, where that is at a target.
    held: Option<TargetHold>,
    log: Option<TargetLog>,
}

/// The archive that an expire of the backup's target looks at.
struct TargetLog {
    path: PathBuf,
    /// Leaves word there that the backup relies on it.
    reliance: Reliance,
}

impl<'a> BackupWish<'a> {
    fn of(options: &'a Backup, context: &'a Context) -> BackupWish<'a> {
        let configured = match options.source.as_slice() {
            [word] => word.to_str(),
            _ => None,
        };
        BackupWish {
            options,
            context,
            configured: configured.and_then(|w| context.config.database.get_key_value(w)),
        }
    }

    /// The database's name, as far as it is known before the source is opened.
    fn name(&self) -> Option<String> {
        let configured = self.configured.map(|(name, _)| name.clone());
        let named = self.options.database.clone().or(configured);
        named.or_else(|| Some(name_of(&self.source().ok()?)))
    }

    /// The backups of the database at the target; `None` where devices are named or the target is not known.
    fn shelf(&self) -> Option<Shelf> {
        if !self.options.to.is_empty() {
            return None;
        }
        let target = self.options.target.as_deref().or(self.usual_target())?;
        let name = self.name()?;
        let target = devices::target(self.context, target).ok()?;
        devices::shelf(self.context, &target, &name).ok()
    }

    fn source(&self) -> Result<SourceSpec, Failure> {
        let context = self.context;
        match self.configured {
            Some((name, database)) => source::configured(context, name, database),
            None => SourceSpec::parse(&*context.storage, &self.options.source)
                .map_err(|e| source_failure(e, context, &self.options.source)),
        }
    }

    /// Whether a server's configuration files belong into the backup, unless an option says otherwise.
    fn takes_configuration(&self) -> bool {
        let key = self
            .configured
            .and_then(|(_, database)| database.server_config);
        key.unwrap_or(true)
    }

    /// The target that the configuration names.
    fn usual_target(&self) -> Option<&'a str> {
        self.configured
            .and_then(|(name, _)| self.context.config.target_of(name))
    }

    /// The target to which the backup goes, if it goes to one.
    fn target(&self) -> Option<&'a str> {
        let named = self.options.target.as_deref();
        let target = named.or(self.usual_target());
        target.filter(|_| self.options.to.is_empty())
    }

    fn destination(
        &self,
        source: &SourceSpec,
        against: Option<Against>,
    ) -> Result<Destination, Failure> {
        let options = self.options;
        let configured = self.configured.map(|(name, _)| name);
        let name = options.database.as_ref().or(configured).cloned();
        let target = options.target.as_deref().or(self.usual_target());
        match target {
            Some(target) if options.to.is_empty() => {
                let name = name.unwrap_or_else(|| name_of(source));
                self.at_target(target, name, source, against)
            }
            None if options.to.is_empty() => Err(Failure::usage(
                "no device and no target is given",
                "name a device with --to, or a target of the configuration with --target",
            )),
            _ => Ok(Destination {
                devices: options.to.clone(),
                parity: 0,
                tolerate: 0,
                database: name,
                held: None,
                log: None,
            }),
        }
    }

    /// Takes a place at a target for a backup of the database `name`.
    fn at_target(
        &self,
        target: &str,
        name: String,
        source: &SourceSpec,
        against: Option<Against>,
    ) -> Result<Destination, Failure> {
        if self.options.disposing.disposition() != Disposition::New {
            return Err(Failure::usage(
                "a backup to a target is always a new media set",
                "leave out --append, --init and --format, or name devices with --to",
            ));
        }
        if let Some(what) = unfit_name(&name) {
            return Err(Failure::usage(
                format!("{name:?} cannot be the name of a database: {what}"),
                "give another with --database",
            ));
        }
        let context = self.context;
        let shelf = devices::shelf(context, &devices::target(context, target)?, &name)?;
        shelves::refuse_among_wal(&shelf, context)?;
        let named = self.configured.map(|(name, _)| name.as_str());
        let held = devices::for_backup(context, &shelf, against, (source, named))?;
        let configured = context.config.target.get(target);
        Ok(Destination {
            devices: held.begun.devices.clone(),
            parity: configured.map_or(0, |t| t.parity),
            tolerate: configured.map_or(0, |t| t.tolerate),
            database: Some(name),
            log: shelf.wal_path().map(|path| TargetLog {
                path,
                reliance: Reliance::new(&shelf, &held.begun.label),
            }),
            held: Some(held),
        })
    }

    /// A database that has an archive has its log proved there. Media elsewhere than at its target hold their log: what
    /// an expire removes from the archive is decided by the backups at the target alone.
    fn own_archive(&self, source: &SourceSpec) -> Result<Option<PathBuf>, Failure> {
        let (options, usual) = (self.options, self.usual_target());
        let at_home =
            options.to.is_empty() && options.target.as_deref().is_none_or(|t| Some(t) == usual);
        let proves = (at_home || usual.is_none()) && !options.postgres.with_wal;
        let is_cluster = matches!(source, SourceSpec::Postgres(_));
        match self.configured {
            Some((name, d)) if is_cluster && d.wal.is_some() && proves => Ok(Some(
                ArchiveLocation::of_database(self.context, name, None)?.path(),
            )),
            _ => Ok(None),
        }
    }

    fn compress(&self, settings: &ServerSettings, request: &mut BackupRequest) {
        let configured = self.configured.map(|(_, database)| database);
        let defaults = &self.context.config.defaults;
        request.algorithm = self
            .options
            .algorithm
            .or(configured.and_then(|d| d.algorithm))
            .or(defaults.algorithm)
            .or(settings.algorithm)
            .unwrap_or(request.algorithm);
        request.level = level(self.options, configured, defaults).unwrap_or(request.level);
    }

    fn label(&self, settings: &ServerSettings, request: &mut BackupRequest) {
        let labels = &self.options.labels;
        request.name = labels.name.clone().unwrap_or_default();
        request.description = labels.description.clone().unwrap_or_default();
        request.media_name = labels.media_name.clone().unwrap_or_default();
        request.media_description = labels.media_description.clone().unwrap_or_default();
        request.copy_only = labels.copy_only;
        let days = labels
            .retain_days
            .or(self.context.config.defaults.retain_days)
            .or(settings.retain_days)
            .filter(|d| *d > 0);
        let now_us = self.context.clock.wall_ns() / 1000;
        request.expires_us = labels
            .expires
            .or(days.map(|d| now_us.saturating_add(i64::from(d) * DAY_US)));
    }

    fn read(&self, request: &mut BackupRequest) -> Result<(), Failure> {
        let reading = &self.options.reading;
        request.on_change = reading.on_change.into();
        for volume in &reading.volume {
            let Some(name) = volume.1.to_str() else {
                return Err(Failure::usage(
                    format!("the volume name {} is not UTF-8", volume.1.display()),
                    "write --volume DIR=NAME with a plain name",
                ));
            };
            request.volume_map.push((volume.0.clone(), name.to_owned()));
        }
        request.wal_growth_limit_bytes = reading.wal_growth_limit;
        let is_trusted = self.configured.is_some_and(|(_, d)| d.trust_locks);
        request.trust_locks = reading.trust_locks || is_trusted;
        Ok(())
    }

    /// A backup relies on an archive that an expire of its own target looks at, and leaves word there; any other holds
    /// its log.
    fn keep_log(
        &self,
        own_archive: Option<PathBuf>,
        target_log: Option<TargetLog>,
        request: &mut BackupRequest,
    ) {
        let options = &self.options.postgres;
        let named = options.wal_archive.as_deref().map(Into::into);
        let archive = named.or(own_archive);
        let real = |path: &Path| self.context.storage.canonical(path).ok();
        let is_same = |own: &Path, archive: &Path| {
            own == archive || real(own).is_some() && real(own) == real(archive)
        };
        let kept = target_log.filter(|own| {
            let archive = archive.as_deref();
            archive.is_some_and(|archive| is_same(&own.path, archive))
        });
        request.postgres.with_wal = options.with_wal || kept.is_none();
        request.wal_proof = archive.map(|archive| {
            Box::new(WalProof {
                archive,
                patience: Duration::from_secs(options.wal_wait),
                reliance: kept.map(|own| own.reliance),
            })
        });
    }
}

/// The location of the set that the backup differs from.
fn base(
    options: &Backup,
    against: Option<Against>,
    held: Option<&TargetHold>,
) -> Result<Option<BaseRequest>, Failure> {
    let Some(against) = against else {
        return Ok(None);
    };
    let named = &options.differing.base;
    let lease = held.and_then(|held| held.base.as_ref());
    let devices = match lease {
        Some(_) if !named.is_empty() => {
            return Err(Failure::usage(
                "a differential backup to a target finds its base there",
                "leave out --base, or name the devices to write to with --to",
            ));
        }
        Some(lease) => &lease.devices,
        None if !named.is_empty() => named,
        None if options.disposing.append => &options.to,
        None => {
            return Err(Failure::usage(
                "no base is given for the differential backup",
                "name the stripes of the base with --base, or use --append to add to the media that hold it",
            ));
        }
    };
    Ok(Some(BaseRequest {
        set: None,
        against,
        devices: devices.clone(),
    }))
}

/// A level belongs to an algorithm: a level configured for another algorithm is ignored.
fn level(
    options: &Backup,
    configured: Option<&config::Database>,
    defaults: &config::Defaults,
) -> Option<longshore_codec::Level> {
    if options.level.is_some() || options.algorithm.is_some() {
        return options.level;
    }
    match configured {
        Some(d) if d.level.is_some() || d.algorithm.is_some() => d.level,
        _ => defaults.level,
    }
}

/// A catalog that cannot be read never fails a backup.
pub(super) fn settings(context: &Context) -> ServerSettings {
    let read = ServerSettings::read(&*context.storage, context.catalog.as_deref());
    read.unwrap_or_else(|error| {
        context
            .output
            .warn(&format!("server settings were not read: {error}"));
        ServerSettings::default()
    })
}

/// The name that a source would give itself.
fn name_of(source: &SourceSpec) -> String {
    let path: &Path = match source {
        SourceSpec::Sqlite(path) => path,
        SourceSpec::Files(paths) => paths.first().map_or(Path::new(""), |p| p),
        SourceSpec::Postgres(_) => Path::new(""),
    };
    let name = match source {
        SourceSpec::Sqlite(_) => path.file_stem(),
        SourceSpec::Files(_) => path.file_name(),
        SourceSpec::Postgres(_) => Some(OsStr::new("postgres")),
    };
    name.unwrap_or(OsStr::new("files"))
        .to_string_lossy()
        .into_owned()
}

/// If a word is neither a path nor a configured name, the failure says both.
fn source_failure(
    error: longshore_source::Error,
    context: &Context,
    words: &[std::ffi::OsString],
) -> Failure {
    let is_word = words.len() == 1 && !words[0].as_encoded_bytes().contains(&b'/');
    let is_missing = matches!(&error, longshore_source::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    let mut failure = Failure::from(error);
    if is_word && is_missing {
        let known: Vec<_> = context.config.database.keys().map(String::as_str).collect();
        failure.hint = match known.as_slice() {
            [] => "correct the path, or configure the database: no database is configured; `longshore config check` shows the configuration".into(),
            _ => format!(
                "correct the path, or name a configured database: {}",
                known.join(", ")
            ),
        };
    }
    failure
}
