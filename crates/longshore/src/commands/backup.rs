//! `backup`: options and configuration become one request; the report becomes one table.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_media::{DeviceSpec, Disposition};
use longshore_pipeline::{
    Against, BackupReport, BackupRequest, BaseRequest, DifferentialReport, Report, Request,
    ServerSettings, SourceSpec, VerifyReport, VerifyRequest, WalProof, closing_line, mb_per_s,
    ratio, run as run_pipeline,
};
use longshore_repository::Reliance;
use longshore_repository::target::unfit_name;
use serde::Serialize;

use super::archive::Place;
use super::devices::Held;
use super::offload;
use super::{Context, devices, limits, source, tuning};
use crate::config;
use crate::failure::{Exit, Failure};
use crate::options::Backup;
use crate::output::{Table, bytes, cpu_s_per_gb};
use crate::progress::Watch;

const DAY_US: i64 = 86_400_000_000;

/// The report with what is computed from it.
#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    message: &'a str,
    mb_per_s: f64,
    ratio: f64,
    cpu_s_per_gb: f64,
    /// `None`: not asked for.
    verified: Option<bool>,
    #[serde(flatten)]
    report: &'a BackupReport,
    verification: Option<&'a VerifyReport>,
}

/// SQL Server's number for a differential backup without a base.
const NO_BASE: u32 = 3035;

pub fn run(options: &Backup, context: &Context) -> Result<Exit, Failure> {
    let against = options.differing.against();
    match run_against(options, context, against) {
        Err(failure) if failure.number == Some(NO_BASE) && options.differing.or_full => {
            let why = failure.causes.last().unwrap_or(&failure.text);
            let text = format!("this becomes a full backup: {why}");
            context.output.warn(&text);
            run_against(options, context, None)
        }
        result => result,
    }
}

fn run_against(
    options: &Backup,
    context: &Context,
    against: Option<Against>,
) -> Result<Exit, Failure> {
    // Its place at the target is held until everything is done.
    let (request, held) = request(options, context, against)?;
    let mixed = held.as_ref().is_some_and(|held| held.mixed);
    let house = context.house().equipped(&request.offload);
    if options.verify
        && !request
            .devices
            .iter()
            .all(|d| matches!(d, DeviceSpec::File(_)))
    {
        return Err(Failure::usage(
            "--verify needs devices that can be read back",
            "leave it out for nul: and -",
        ));
    }
    let watch = Watch::new(context.output, context.clock.clone());
    let result = run_pipeline(&house, &Request::Backup(request.clone()), &watch);
    watch.end();
    let Report::Backup(report) = result? else {
        return Err(wrong_report());
    };
    let verification = match options.verify {
        false => None,
        true => {
            let watch = Watch::new(context.output, context.clock.clone());
            let again = Request::Verify(VerifyRequest {
                devices: request.devices.clone(),
                bases: Vec::new(),
                position: Some(report.position),
                tuning: request.tuning,
                limits: request.limits,
            });
            let result = run_pipeline(&house, &again, &watch);
            watch.end();
            let Report::Verify(report) = result? else {
                return Err(wrong_report());
            };
            Some(report)
        }
    };
    let verified = verification.as_ref().map(VerifyReport::is_valid);
    let exit = if verified == Some(false) {
        Exit::No
    } else if report.damaged || report.run.history_failed || mixed {
        Exit::Warnings
    } else {
        Exit::Done
    };
    let message = closing_line("BACKUP DATABASE", report.plain_bytes, report.run.elapsed_s);
    let output = context.output;
    for finding in verification.iter().flat_map(|v| &v.findings) {
        output.warn(&finding.text);
    }
    for changed in &report.changed {
        output.warn(&format!("{} {}", changed.path, changed.what));
    }
    output.say(&format!("{message}\n{}", table(&report, verified)));
    if let Some(differential) = &report.differential {
        output.say(&differing(differential));
    }
    if let Some(engines) = offload::table(&report.run.engines) {
        output.say(&engines.to_string());
    }
    output.json(
        exit,
        Answer {
            action: "backup",
            message: &message,
            mb_per_s: mb_per_s(report.plain_bytes, report.run.elapsed_s),
            ratio: ratio(report.plain_bytes, report.stored_bytes),
            cpu_s_per_gb: cpu_s_per_gb(report.run.cpu_s, report.plain_bytes),
            verified,
            report: &report,
            verification: verification.as_ref(),
        },
    );
    Ok(exit)
}

/// Another kind of report than was asked for.
pub fn wrong_report() -> Failure {
    Failure {
        exit: Exit::Internal,
        number: None,
        text: "internal error: the answer does not fit the request".to_owned(),
        causes: Vec::new(),
        hint: Some("please report this with the command".to_owned()),
    }
}

/// What was stored of what the base has.
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

/// What the options and the configuration mean together.
fn request(
    options: &Backup,
    context: &Context,
    against: Option<Against>,
) -> Result<(BackupRequest, Option<Held>), Failure> {
    let config = &context.config;
    let configured = match options.source.as_slice() {
        [word] => word.to_str().and_then(|w| config.database.get_key_value(w)),
        _ => None,
    };
    let source = match configured {
        Some((name, database)) => source::configured(context, name, database)?,
        None => SourceSpec::parse(&*context.storage, &options.source)
            .map_err(|e| source_failure(e, context, &options.source))?,
    };
    let name = options
        .database
        .clone()
        .or_else(|| configured.map(|(name, _)| name.clone()));
    let usual = configured.and_then(|(name, _)| config.target_of(name));
    let mut shelf_log = None;
    let mut reliance = None;
    let (devices, name, held) = match options.target.as_deref().or(usual) {
        Some(target) if options.to.is_empty() => {
            if options.disposing.disposition() != Disposition::New {
                return Err(Failure::usage(
                    "a backup to a target is always a new media set",
                    "leave out --append, --init and --format, or name devices with --to",
                ));
            }
            let name = name.unwrap_or_else(|| name_of(&source));
            if let Some(what) = unfit_name(&name) {
                return Err(Failure::usage(
                    format!("{name:?} cannot be the name of a database: {what}"),
                    "give another with --database",
                ));
            }
            let shelf = devices::shelf(context, &devices::target(context, target)?, &name)?;
            shelf_log = Some(shelf.wal_path());
            let named = configured.map(|(name, _)| name.as_str());
            let held = devices::for_backup(context, &shelf, against, (&source, named))?;
            reliance = Some(Reliance::new(&shelf, &held.berth.label));
            (held.berth.devices.clone(), Some(name), Some(held))
        }
        None if options.to.is_empty() => {
            return Err(Failure::usage(
                "where should the backup go?",
                "name a device with --to, or a target of the configuration with --target",
            ));
        }
        _ => (options.to.clone(), name, None),
    };
    let base = base(options, against, held.as_ref())?;
    let is_cluster = matches!(source, SourceSpec::Postgres(_));
    let mut request = BackupRequest::new(source, devices);
    request.base = base;
    if let Some(held) = &held {
        request.postgres.earlier = Arc::new(held.earlier.clone());
    }
    request.own = config.path.iter().cloned().collect();
    // A database that has an archive has its log proved there. Media elsewhere than at its target hold their log: what
    // an expire removes from the archive is decided by the backups at the target alone.
    let at_home =
        options.to.is_empty() && options.target.as_deref().is_none_or(|t| Some(t) == usual);
    let proves = (at_home || usual.is_none()) && !options.postgres.with_wal;
    let own_archive = match configured {
        Some((name, d)) if is_cluster && d.wal.is_some() && proves => {
            Some(Place::of_database(context, name, None)?.path())
        }
        _ => None,
    };
    let configured = configured.map(|(_, database)| database);
    let defaults = &config.defaults;
    request.database = name;
    if let Some(held) = &held {
        request.identity = held.identity.clone();
    }
    request.disposition = options.disposing.disposition();
    let settings = settings(context);
    request.algorithm = options
        .algorithm
        .or(configured.and_then(|d| d.algorithm))
        .or(defaults.algorithm)
        .or(settings.algorithm)
        .unwrap_or(request.algorithm);
    request.level = level(options, configured, defaults).unwrap_or(request.level);
    let labels = &options.labels;
    request.name = labels.name.clone().unwrap_or_default();
    request.description = labels.description.clone().unwrap_or_default();
    request.media_name = labels.media_name.clone().unwrap_or_default();
    request.media_description = labels.media_description.clone().unwrap_or_default();
    request.copy_only = labels.copy_only;
    let days = labels
        .retain_days
        .or(defaults.retain_days)
        .or(settings.retain_days)
        .filter(|d| *d > 0);
    let now_us = context.clock.wall_ns() / 1000;
    request.expires_us = labels
        .expires
        .or(days.map(|d| now_us.saturating_add(i64::from(d) * DAY_US)));
    request.on_change = options.reading.on_change.into();
    for volume in &options.reading.volume {
        let Some(name) = volume.1.to_str() else {
            return Err(Failure::usage(
                format!("the volume name {} is not UTF-8", volume.1.display()),
                "write --volume DIR=NAME with a plain name",
            ));
        };
        request.volume_map.push((volume.0.clone(), name.to_owned()));
    }
    request.wal_growth_limit_bytes = options.reading.wal_growth_limit;
    let is_trusted = configured.is_some_and(|d| d.trust_locks);
    request.trust_locks = options.reading.trust_locks || is_trusted;
    let postgres = &options.postgres;
    let archive = postgres.wal_archive.clone().or(own_archive);
    // A backup relies on an archive that an expire of its own target looks at, and leaves word there; any other holds its
    // log.
    let real = |path: &Path| context.storage.canonical(path).ok();
    let is_kept = |archive: &Path| {
        shelf_log
            .as_deref()
            .is_some_and(|own| own == archive || real(own).is_some() && real(own) == real(archive))
    };
    let is_kept = archive.as_deref().is_some_and(is_kept);
    request.postgres.with_wal = postgres.with_wal || !is_kept;
    request.wal_proof = archive.map(|archive| {
        Box::new(WalProof {
            archive,
            patience: Duration::from_secs(postgres.wal_wait),
            reliance: reliance.filter(|_| is_kept),
        })
    });
    request.postgres.spread_checkpoint = postgres.spread_checkpoint;
    request.postgres.remote = postgres.remote;
    request.postgres.fail_on_bad_page = postgres.fail_on_bad_page;
    request.offload = offload::of(&options.offloading, settings.offload);
    request.tuning = tuning(&options.moving, defaults);
    request.limits = limits(&options.moving, defaults);
    Ok((request, held))
}

/// Where the set is that the backup differs from.
fn base(
    options: &Backup,
    against: Option<Against>,
    held: Option<&Held>,
) -> Result<Option<BaseRequest>, Failure> {
    let Some(against) = against else {
        return Ok(None);
    };
    let named = &options.differing.base;
    let loan = held.and_then(|held| held.base.as_ref());
    let devices = match loan {
        Some(_) if !named.is_empty() => {
            return Err(Failure::usage(
                "a differential backup to a target finds its base there",
                "leave out --base, or name the devices to write to with --to",
            ));
        }
        Some(loan) => &loan.devices,
        None if !named.is_empty() => named,
        None if options.disposing.append => &options.to,
        None => {
            return Err(Failure::usage(
                "what should the backup differ from?",
                "name the stripes of its base with --base, or --append to the media that hold it",
            ));
        }
    };
    Ok(Some(BaseRequest {
        against,
        devices: devices.clone(),
    }))
}

/// A level belongs to an algorithm: one that was configured for another algorithm is not taken over.
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

/// The name a source would give itself.
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

/// A word that is neither a path nor a configured name deserves both answers.
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
        failure.hint = Some(match known.as_slice() {
            [] => "it is no path here, and no database is configured; `longshore config check` shows what is read".into(),
            _ => format!(
                "it is no path here, and no configured database; those are: {}",
                known.join(", ")
            ),
        });
    }
    failure
}
