//! `config check`, `completions`, `man`: about the program, not about backups.
//!
//! Invariants
//! - `config check` shows what a configuration means with all defaults filled in, and the origin of a password but
//!   never its value.
//! - Completions and manual pages are made from the table of options, so that they cannot differ from it.
//!
//! Leaves to others: reading the configuration (`config`), and finding out whether things exist (`findings.rs`,
//! `check`).

use clap::CommandFactory;
use longshore_pg::client::without_password;
use longshore_terminal::{files, pages};
use serde::Serialize;

use super::archive::ArchiveLocation;
use super::config_page;
use super::findings;
use super::wal::QUEUE_MAX;
use crate::config::Retention;
use crate::context::Context;
use crate::options::{Cli, Completions, Config, ConfigAction, Man, is_elsewhere, with_studies};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::bytes;
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    path: Option<String>,
    /// The environment variables that took effect.
    variables: Vec<String>,
    databases: Vec<ConfiguredDatabase>,
    targets: Vec<Target>,
    catalog: Option<String>,
    /// Settings that would not work as they are.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct ConfiguredDatabase {
    name: String,
    url: String,
    target: Option<String>,
    retention: Option<String>,
    copies: Vec<String>,
    /// How targets identify its backups, on any machine; `None`: by machine and path, or by WAL.
    identity: Option<String>,
    algorithm: Option<String>,
    level: Option<String>,
    /// The origin of the password, never its value.
    password_from: Option<String>,
    wal: Option<Wal>,
}

/// How a database's WAL is archived, with the defaults filled in.
#[derive(Serialize)]
struct Wal {
    archive: String,
    #[serde(rename = "async")]
    ahead: bool,
    queue_max: u64,
    prefetch: u64,
    slot: Option<String>,
    /// Whether its segments are encrypted.
    encrypted: bool,
}

#[derive(Serialize)]
struct Target {
    name: String,
    directories: Vec<String>,
    buckets: Vec<String>,
    /// Whether backups to it are encrypted.
    encrypted: bool,
    parity: u16,
    tolerate: u16,
    /// The places of detached keys.
    key_places: Vec<String>,
}

/// Loading the configuration has checked its form; this checks the things that it names.
pub fn config(options: &Config, context: &Context) -> Result<Exit, Failure> {
    let ConfigAction::Check = options.action;
    let config = &context.config;
    let databases = config.database.iter().map(|(name, d)| ConfiguredDatabase {
        name: name.clone(),
        url: without_password(&d.url),
        target: config.target_of(name).map(str::to_owned),
        retention: config
            .retention_of(name, config.target_of(name))
            .map(|(name, _)| name.to_owned()),
        copies: config.copies_of(name).to_vec(),
        identity: d.identity.clone(),
        algorithm: d
            .algorithm
            .or(config.defaults.algorithm)
            .map(|a| a.to_string()),
        level: d.level.or(config.defaults.level).map(|l| l.to_string()),
        password_from: match (&d.password_file, &d.password_env) {
            (Some(path), _) => Some(format!("the file {}", path.display())),
            (_, Some(variable)) => Some(format!("the variable {variable}")),
            (None, None) => None,
        },
        wal: d.wal.as_ref().and_then(|wal| {
            Some(Wal {
                archive: archive(context, name)?,
                ahead: wal.ahead,
                queue_max: wal.queue_max.unwrap_or(QUEUE_MAX),
                prefetch: wal.prefetch.unwrap_or(QUEUE_MAX),
                slot: wal.slot.clone(),
                encrypted: wal.encrypt != Some(false)
                    && !config.recipients_of(config.target_of(name)).is_empty(),
            })
        }),
    });
    let targets = config.target.iter().map(|(name, t)| Target {
        name: name.clone(),
        directories: t
            .directories
            .iter()
            .map(|d| d.display().to_string())
            .collect(),
        buckets: match t.places(name) {
            Ok(places) if places.are_buckets() => places.texts(),
            _ => t.buckets.clone(),
        },
        encrypted: !config.recipients_of(Some(name)).is_empty(),
        parity: t.parity,
        tolerate: t.tolerate,
        key_places: t.keys.clone(),
    });
    let answer = Answer {
        action: "config_check",
        path: config.path.as_ref().map(|p| p.display().to_string()),
        variables: config.variables.clone(),
        databases: databases.collect(),
        targets: targets.collect(),
        catalog: context.catalog.as_ref().map(|p| p.display().to_string()),
        problems: findings::of(context),
    };
    let exit = match answer.problems.is_empty() {
        true => Exit::Done,
        false => Exit::No,
    };
    context.output.say(&text(&answer, context));
    context.output.json(exit, answer);
    Ok(exit)
}

/// The destination of a database's WAL; loading the configuration made sure that there is one.
fn archive(context: &Context, database: &str) -> Option<String> {
    let place = ArchiveLocation::of_database(context, database, None).ok()?;
    Some(place.path().display().to_string())
}

/// Describes the configuration in sentences.
fn text(answer: &Answer, context: &Context) -> String {
    let mut text = format!(
        "configuration  {}\n",
        answer.path.as_deref().unwrap_or("none found")
    );
    if !answer.variables.is_empty() {
        text += &format!("environment    {}\n", answer.variables.join(", "));
    }
    text += &format!(
        "catalog        {}\n",
        answer.catalog.as_deref().unwrap_or("none")
    );
    for t in &answer.targets {
        let parity = match t.parity {
            0 => String::new(),
            n => format!(", {n} of them (the last) with parity"),
        };
        let tolerated = match t.tolerate {
            0 => String::new(),
            n => format!(" ({n} may fail meanwhile)"),
        };
        text += &format!(
            "target {}: each backup gets {} stripes{parity}{tolerated}, in {}, {}\n",
            plain(&t.name),
            t.directories.len() + t.buckets.len(),
            plain(&[&t.directories[..], &t.buckets[..]].concat().join(", ")),
            match t.encrypted {
                true => "encrypted",
                false => "not encrypted",
            }
        );
        if !t.key_places.is_empty() {
            text += &format!(
                "  the keys of its backups are in {}\n",
                plain(&t.key_places.join(", "))
            );
        }
    }
    for d in &answer.databases {
        text += &format!("database {}: {}\n", plain(&d.name), plain(&d.url));
        text += &match &d.target {
            Some(target) => format!("  goes to target {target}"),
            None => "  goes to the devices in --to".to_owned(),
        };
        text += &match (&d.algorithm, &d.level) {
            (Some(algorithm), Some(level)) => {
                format!(", compressed by {algorithm}, level {level}\n")
            }
            (Some(algorithm), None) => format!(", compressed by {algorithm}\n"),
            (None, Some(level)) => format!(", compressed at level {level}\n"),
            (None, None) => "\n".to_owned(),
        };
        if let Some(identity) = &d.identity {
            text += &format!("  its name at the target is {}\n", plain(identity));
        }
        if let Some(from) = &d.password_from {
            text += &format!("  its password comes from {}\n", plain(from));
        }
        if let Some(wal) = &d.wal {
            text += &log(wal);
        }
        if !d.copies.is_empty() {
            text += &format!("  copied to {}\n", plain(&d.copies.join(", ")));
        }
        let retention = context.config.retention_of(&d.name, d.target.as_deref());
        text += &match retention {
            None => "  nothing is ever removed: it has no retention\n".to_owned(),
            Some((name, rules)) => format!("  {}: {}\n", plain(name), sentence(rules)),
        };
    }
    for problem in &answer.problems {
        text += &format!("FAIL  {}\n", plain(problem));
    }
    text
}

fn log(wal: &Wal) -> String {
    let mut text = format!(
        "  its WAL is archived in {}, {}; a backup is complete when its WAL is there\n",
        plain(&wal.archive),
        match wal.encrypted {
            true => "encrypted",
            false => "not encrypted",
        }
    );
    if wal.ahead {
        let (push, get) = (bytes(wal.queue_max), bytes(wal.prefetch));
        text += &format!("  pushes work up to {push} ahead, fetches up to {get}\n");
    }
    if let Some(slot) = &wal.slot {
        text += &format!(
            "  `longshore wal receive` reads from slot {}\n",
            plain(slot)
        );
    }
    text
}

fn sentence(rules: Retention) -> String {
    let mut kept = Vec::new();
    if let Some(n) = rules.keep_full {
        kept.push(format!("the newest {n} full backups"));
    }
    if let Some(n) = rules.keep_days {
        kept.push(format!(
            "backups and WAL for any moment of the last {n} days"
        ));
    }
    let wal = match rules.keep_wal {
        Some(n) => format!("; WAL without gaps for the newest {n} of them"),
        None => String::new(),
    };
    format!("an expire keeps {}{wal}", kept.join(", and "))
}

pub fn completions(options: &Completions, context: &Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = with_studies(Cli::command());
    clap_complete::generate(options.shell, &mut command, "longshore", &mut script);
    context.output.raw(&script);
    Ok(Exit::Done)
}

pub fn man(options: &Man, context: &Context) -> Result<Exit, Failure> {
    // The other program writes the pages of its commands.
    pages::write(Cli::command(), &options.dir, &|command| {
        !is_elsewhere(command)
    })?;
    let page = options.dir.join(config_page::NAME);
    files::write(&page, &config_page::page(), &*context.storage)?;
    Ok(Exit::Done)
}
