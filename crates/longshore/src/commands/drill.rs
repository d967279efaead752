//! `drill`: restores a backup to a scratch directory and proves that the database is sound.

mod log;
mod postgres;
mod scratch;

use std::path::{Path, PathBuf};

use longshore_io::ConnectionClaims;
use longshore_landing::{taken_tablespaces, told_of_taken};
use longshore_media::{EntryKind, Item, MediaSet};
use longshore_pipeline::{
    House, Report, Request, RestoreReport, RestoreRequest, Silent, SourceSpec, run as run_pipeline,
};
use longshore_source::SourceKind;
use serde::Serialize;

use super::backup::wrong_report;
use super::{Context, devices, labelled, limits, reading_tuning};
use crate::failure::{Exit, Failure};
use crate::options::Drill;
use crate::output::bytes;
use crate::progress::Watch;
use crate::text::plain;
use scratch::Scratch;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub what: &'static str,
    pub sound: bool,
    pub text: String,
}

impl Proof {
    pub fn of(what: &'static str, sound: bool, text: impl Into<String>) -> Proof {
        let text = text.into();
        Proof { what, sound, text }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    database: &'a str,
    label: &'a str,
    sound: bool,
    proofs: &'a [Proof],
    elapsed_s: f64,
    restore: &'a RestoreReport,
}

pub fn run(options: &Drill, context: &Context) -> Result<Exit, Failure> {
    let target = devices::target_of(context, options.target.as_deref(), &options.database)?;
    let label = options.label.as_deref().filter(|l| *l != "latest");
    let shelf = devices::shelf(context, &target, &options.database)?;
    let loan = shelf.borrow(label).map_err(labelled::of_branch)?;
    let opened: Vec<_> = loan
        .devices
        .iter()
        .map(|d| d.open(&context.storage))
        .collect();
    let media = MediaSet::open(&opened)?;
    let set = media.set(0)?;
    let header = set.header;
    let clock = context.clock.clone();
    let began = clock.now();
    let scratch = Scratch::new(context, options.work.as_deref())?;
    let data = scratch.path.join("data");
    let house = context.house();
    let mut request = RestoreRequest::new(loan.devices.clone(), data.clone());
    request.bases = devices::bases(&loan);
    if header.source_kind == SourceKind::Postgres as u8 {
        let spaces = scratch.path.join("spaces");
        request.cluster.spaces.map = tablespaces(&media, header.position, &spaces)?;
        request.cluster.log_follows = true;
    }
    request.tuning = reading_tuning(&options.moving, &context.config.defaults);
    request.limits = limits(&options.moving, &context.config.defaults);
    if header.source_kind == SourceKind::Postgres as u8 {
        let version = scratch.path.join("version");
        restore_version(&house, &request, &version)?;
        postgres::look_for_programs(context, &version, options.bin_dir.as_deref())?;
    }
    let watch = Watch::new(context.output, clock.clone());
    let result = run_pipeline(&house, &Request::Restore(request), &watch);
    watch.end();
    let Report::Restore(report) = result? else {
        return Err(wrong_report());
    };
    let mut proofs = vec![Proof::of(
        "restored",
        true,
        format!(
            "{} files, {}, every checksum compared",
            report.totals.files,
            bytes(report.plain_bytes)
        ),
    )];
    if report.damaged {
        let text = "the set is marked: made from files that changed, or from damaged ones";
        proofs.push(Proof::of("clean", false, text));
    }
    match header.source_kind {
        kind if kind == SourceKind::Sqlite as u8 => proofs.push(sqlite(context, &data)),
        kind if kind == SourceKind::Postgres as u8 => {
            let bin_dir = options.bin_dir.as_deref();
            if let Some(trailer) = &set.trailer {
                proofs.extend(log::fetch(context, &shelf, &header, trailer, &data)?);
            }
            let taken = taken_tablespaces(&*context.storage, &data);
            let harmless = taken.is_empty();
            let told = taken.iter().map(told_of_taken);
            proofs.extend(told.map(|text| Proof::of("tablespaces", false, text)));
            let users = superusers(context, &options.database, &header.user);
            let cancel = &house.cancel;
            if harmless {
                postgres::prove(
                    context,
                    &scratch,
                    &data,
                    bin_dir,
                    &users,
                    cancel,
                    &mut proofs,
                )?;
            }
        }
        _ => {}
    }
    let sound = proofs.iter().all(|p| p.sound);
    let elapsed_s = (clock.now() - began).as_secs_f64();
    let exit = match sound {
        true if report.run.history_failed => Exit::Warnings,
        true => Exit::Done,
        false => Exit::No,
    };
    let mut text = String::new();
    for proof in &proofs {
        let mark = if proof.sound { "ok " } else { "BAD" };
        text += &format!("  {mark}  {:<16}  {}\n", proof.what, plain(&proof.text));
    }
    let verdict = match sound {
        true => "is good",
        false => "is NOT GOOD",
    };
    let database = plain(&options.database);
    text += &format!(
        "backup {} of {database} {verdict} ({elapsed_s:.1} s)\n",
        loan.label
    );
    context.output.say(&text);
    context.output.json(
        exit,
        Answer {
            action: "drill",
            database: &options.database,
            label: loan.label.as_str(),
            sound,
            proofs: &proofs,
            elapsed_s,
            restore: &report,
        },
    );
    Ok(exit)
}

/// Restores of a cluster what says its major version: who lacks that version's programs is told before the rest of it is
/// restored. It is no restore for the history.
fn restore_version(house: &House, whole: &RestoreRequest, version: &Path) -> Result<(), Failure> {
    let mut request = RestoreRequest::new(whole.devices.clone(), version.to_owned());
    request.bases = whole.bases.clone();
    request.only = vec![PathBuf::from(postgres::VERSION)];
    let house = House {
        catalog: None,
        ..house.clone()
    };
    run_pipeline(&house, &Request::Restore(request), &Silent)?;
    Ok(())
}

/// A place in the scratch directory for each tablespace of a cluster, by its OID.
fn tablespaces(
    media: &MediaSet,
    position: u32,
    spaces: &Path,
) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut map = Vec::new();
    media.items(position, |item| {
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
    })?;
    Ok(map)
}

/// Opens the one database that a backup of SQLite holds, and lets SQLite look at all of it.
fn sqlite(context: &Context, data: &Path) -> Proof {
    let what = "integrity_check";
    let first = context
        .storage
        .dir(data)
        .and_then(|dir| dir.list()?.next().transpose());
    let Ok(Some(name)) = first else {
        return Proof::of(what, false, "nothing was restored");
    };
    let path = data.join(name);
    #[expect(clippy::disallowed_methods, reason = "its files are claimed")]
    let open = || rusqlite::Connection::open(&path);
    let (claims, opened) = ConnectionClaims::around(&path, open);
    let looked = opened.and_then(|db| {
        db.query_row("PRAGMA integrity_check(10)", [], |row| {
            row.get::<_, String>(0)
        })
    });
    drop(claims);
    match looked {
        Ok(said) => Proof::of(what, said == "ok", said),
        Err(e) => Proof::of(what, false, e.to_string()),
    }
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
