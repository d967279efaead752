//! The findings of `config check` beyond the grammar of the configuration: missing paths, invalid connection strings, a
//! source that would back up its own backups, contradictory retention rules.
//!
//! Invariants
//! - No finding stops another command: a disk may be mounted later, and a command needs only what it names.
//! - Each finding is one sentence that begins with the table it is about.
//! - Nothing is created and no server is asked. Paths are compared with links followed.
//!
//! Leaves to others: the grammar (`config`), showing the findings (`project.rs`), and whether a backup would work
//! (`check`).

use std::path::{Path, PathBuf};

use longshore_pipeline::SourceSpec;

use longshore_wal::is_in_bucket;

use super::{devices, shelves};
use crate::config::{Config, Database};
use crate::context::Context;
use crate::options::KeyOptions;
use crate::{key_command, keys};
use longshore_terminal::failure::Failure;

/// The findings as sentences, each with the table that it is about.
pub fn of(context: &Context) -> Vec<String> {
    let config = &context.config;
    let mut found = Vec::new();
    for (name, target) in &config.target {
        for dir in &target.directories {
            found.extend(missing(context, dir).map(|why| format!("[target.{name}]: {why}")));
        }
        let twice = twice(context, &target.directories);
        found.extend(twice.map(|what| format!("[target.{name}]: {what}")));
    }
    for (name, database) in &config.database {
        let of_one = of_database(context, config, name, database);
        found.extend(
            of_one
                .into_iter()
                .map(|what| format!("[database.{name}]: {what}")),
        );
    }
    for name in config.database.keys() {
        let own = config.target_of(name);
        for copy in config.copies_of(name) {
            let same = own.and_then(|own| same_place(context, own, (copy, name)));
            found.extend(same.map(|what| format!("[database.{name}]: {what}")));
        }
    }
    for (name, retention) in &config.retention {
        if let (Some(full), Some(wal)) = (retention.keep_full, retention.keep_wal)
            // Days may keep more of them.
            && retention.keep_days.is_none()
            && wal > full
        {
            found.push(format!(
                "[retention.{name}]: keep_wal = {wal} is above keep_full = {full}: WAL is kept only for existing backups; \
                 lower keep_wal or raise keep_full"
            ));
        }
    }
    found.extend(of_encryption(context));
    for (name, target) in &config.target {
        let problem = target.server().and_then(|_| {
            let places = target.places(name).ok()?;
            places.settings_problem(&*context.storage)
        });
        found.extend(problem.map(|error| format!("[target.{name}]: {error}")));
    }
    let serve = &config.serve;
    let files = [&serve.certificate, &serve.key];
    let there = files.into_iter().flatten().chain(&serve.directories);
    let there = there.filter_map(|path| missing(context, path));
    let made = serve.logins.iter().chain(&serve.backup_directory);
    let made = made.filter_map(|path| unmakable(context, path));
    found.extend(there.chain(made).map(|why| format!("[serve]: {why}")));
    found
}

/// Files of keys that are missing or that others may read, texts that are no recipients or signers, and targets without any.
fn of_encryption(context: &Context) -> Vec<String> {
    let refused = |table: String, failure: Failure| {
        let causes: String = failure.causes.iter().map(|c| format!(": {c}")).collect();
        format!("[{table}]: {}{causes}", failure.text)
    };
    let mut found = Vec::new();
    if let Err(failure) = keys::keyring(context, &KeyOptions::default()) {
        found.push(refused("encryption".to_owned(), failure));
    }
    let config = &context.config;
    let mut targets = config.target.values();
    // Those of the targets may be all that there are.
    let is_used = !config.encryption.recipients.is_empty()
        || targets.all(|target| target.recipients.is_none());
    if is_used && let Err(failure) = keys::recipients(context, &[], (None, false)) {
        found.push(refused("encryption".to_owned(), failure));
    }
    for command in [
        &config.encryption.wrap_command,
        &config.encryption.unwrap_command,
    ] {
        if let [program, words @ ..] = &command[..]
            && let Err(why) = key_command::check(program, words)
        {
            found.push(format!("[encryption]: {why}"));
        }
    }
    let names_programs =
        !config.encryption.wrap_command.is_empty() || !config.encryption.unwrap_command.is_empty();
    if names_programs && let Err(why) = key_command::check_file(config.path.as_deref()) {
        found.push(format!("[encryption]: {why}"));
    }
    let changeable = key_command::changeable(config);
    found.extend(changeable.map(|text| format!("[encryption]: {text}")));
    let sign = config.encryption.sign.is_some() || config.encryption.require_signature;
    // Its file is read here by whoever makes backups.
    if sign && let Err(failure) = keys::signing_key(context, (None, &KeyOptions::default()), true) {
        found.push(refused("encryption".to_owned(), failure));
    }
    for (name, target) in &config.target {
        if is_used && target.recipients.is_none() {
            continue;
        }
        if let Err(failure) = keys::recipients(context, &[], (Some(name), false)) {
            found.push(refused(format!("target.{name}"), failure));
        }
    }
    found
}

/// Whether WAL is not to be encrypted where everything has to be.
fn wal_is_refused(config: &Config, database: &Database) -> bool {
    let is_off = database
        .wal
        .as_ref()
        .is_some_and(|wal| wal.encrypt == Some(false));
    is_off && (config.encryption.require || !config.encryption.require_recipients.is_empty())
}

fn of_database(context: &Context, config: &Config, name: &str, database: &Database) -> Vec<String> {
    let mut found = Vec::new();
    let secret = database.password_file.as_deref();
    found.extend(secret.and_then(|path| missing(context, path)));
    if let Some(variable) = &database.password_env
        && std::env::var_os(variable).is_none_or(|value| value.is_empty())
    {
        found.push(format!("the variable {variable} is not set"));
    }
    if wal_is_refused(config, database) {
        found.push(
            "`encrypt = false` of its WAL, and [encryption] requires encryption: pushes fail"
                .to_owned(),
        );
    }
    let archive = database.wal.as_ref().and_then(|wal| wal.archive.as_deref());
    found.extend(archive.and_then(|path| unmakable(context, path)));
    let spec = match SourceSpec::parse(&*context.storage, &[database.url.clone().into()]) {
        Ok(spec) => spec,
        Err(e) => {
            found.push(refused(&e));
            return found;
        }
    };
    let sources: Vec<PathBuf> = match spec {
        SourceSpec::Sqlite(path) => vec![path],
        SourceSpec::Files(paths) => paths,
        SourceSpec::Postgres(_) => Vec::new(),
    };
    for source in &sources {
        if let Some(why) = missing(context, source) {
            found.push(why);
            continue;
        }
        // A SQLite database is a single file, so no backup can lie inside it.
        let target = config.target_of(name).and_then(|t| config.target.get(t));
        let kept = target.map_or(&[][..], |t| &t.directories);
        for place in kept.iter().map(PathBuf::as_path).chain(archive) {
            if let Some(what) = together(context, source, place) {
                found.push(what);
            }
        }
    }
    found
}

/// The failure of every command that looks at copies.
fn same_place(context: &Context, own: &str, (copy, database): (&str, &str)) -> Option<String> {
    let own = devices::target(context, own).ok()?;
    let copy = devices::target(context, copy).ok()?;
    let same = shelves::refuse_same(&own, &copy, database, context);
    same.err().map(|failure| failure.text)
}

/// An error with its causes, on one line.
fn refused(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn missing(context: &Context, path: &Path) -> Option<String> {
    let stat = context.storage.stat(path);
    stat.err().map(|e| format!("{}: {e}", path.display()))
}

/// For a path that is created on first use: whether its parent directory is missing.
fn unmakable(context: &Context, path: &Path) -> Option<String> {
    match is_in_bucket(path) {
        true => None,
        false => missing(context, path.parent().unwrap_or(path)),
    }
}

/// Two directories of a target that are the same one: a backup could not give each its stripe.
fn twice(context: &Context, directories: &[PathBuf]) -> Option<String> {
    let mut seen: Vec<((u64, u64), &PathBuf)> = Vec::new();
    for path in directories {
        let Ok(stat) = context.storage.stat(path) else {
            continue;
        };
        let id = (stat.dev, stat.ino);
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == id) {
            let (other, path) = (other.display(), path.display());
            return Some(format!(
                "{other} and {path} are the same directory: remove one of them"
            ));
        }
        seen.push((id, path));
    }
    None
}

/// Whether the source lies in the directory of its backups, or the other way round.
fn together(context: &Context, source: &Path, place: &Path) -> Option<String> {
    let real = |path: &Path| {
        // For a directory that does not exist yet, its future location.
        let there = path.ancestors().find_map(|dir| {
            let real = context.storage.canonical(dir).ok()?;
            Some(match dir == path {
                true => real,
                false => real.join(path.strip_prefix(dir).ok()?),
            })
        });
        there.unwrap_or_else(|| path.to_owned())
    };
    let (source, place) = (real(source), real(place));
    let (inner, outer) = match (place.starts_with(&source), source.starts_with(&place)) {
        (true, _) => ("its backups", "its source"),
        (_, true) => ("its source", "the directory of its backups"),
        (false, false) => return None,
    };
    Some(format!(
        "{inner} would be in {outer} ({} and {}): each backup would hold the earlier ones, or an expire \
         would search the source; give one of them another directory",
        place.display(),
        source.display()
    ))
}
