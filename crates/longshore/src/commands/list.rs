//! `list`: labels, backup sets and files, from headers and the index alone.
//!
//! Invariants
//! - The facts are those of LABELONLY, HEADERONLY and FILELISTONLY.
//! - File names are streamed, since a set may have millions.
//! - A stripe that cannot be read is named, with what the others show.
//!
//! Leaves to others: checking (`verify`); a set that is listed may still be damaged.

use std::sync::Arc;

use longshore_media::{
    BackupDevice, BackupType, Entry, EntryKind, Item, MediaHeader, MediaSet, SeenObject,
    SetSummary, StripePlace,
};
use longshore_pipeline::{degraded, ratio};
use serde::Serialize;

use super::emptied;
use super::reading;
use super::shelves::{BranchRow, Row};
use crate::context::Context;
use crate::keys::{lenient_keyring, set_keyring};
use crate::options::{List, Media, SetKeyOptions};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{PIECE_BYTES, Table, bytes, moment};
use longshore_terminal::text::plain;

/// The facts of LABELONLY.
#[derive(Serialize)]
struct Label {
    device: String,
    media_name: String,
    media_description: String,
    media_set: String,
    family_count: u16,
    parity_count: u16,
    family: u16,
    family_id: String,
    generation: u32,
    container: String,
    compressed: bool,
    created_us: i64,
    software: String,
}

/// The facts of HEADERONLY.
#[derive(Serialize)]
struct Set {
    position: u32,
    set: String,
    name: String,
    description: String,
    database: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The set that this differential set differs from.
    parent: Option<String>,
    complete: bool,
    damaged: bool,
    /// Parity stands for stripes that are lost or damaged.
    degraded: bool,
    copy_only: bool,
    encrypted: bool,
    /// Whether no slot is on its media.
    keys_detached: bool,
    root: Option<String>,
    /// Whose it is, in one word; `None` if that cannot be told.
    signature: Option<&'static str>,
    signer: Option<String>,
    /// Its recipients, as its records say.
    recipients: Vec<String>,
    key_objects: Vec<NextTo>,
    /// Why there may be others.
    #[serde(skip)]
    not_listed: Option<String>,
    algorithm: String,
    level: String,
    start_us: i64,
    finish_us: Option<i64>,
    expires_us: Option<i64>,
    time_zone_quarters: i16,
    plain_bytes: Option<u64>,
    stored_bytes: Option<u64>,
    entry_count: Option<u64>,
    file_count: Option<u64>,
    buffer_bytes: u32,
    page_bytes: u32,
    machine: String,
    user: String,
    origin: String,
}

/// A key object next to the stripes. No key has proved it.
#[derive(Serialize)]
struct NextTo {
    name: String,
    /// Directories or prefixes that have it.
    places: Vec<String>,
    /// Its recipients, as it says; none if it is not what its name says.
    recipients: Vec<String>,
    made_us: Option<i64>,
    problem: Option<String>,
}

/// One row of FILELISTONLY.
#[derive(Serialize)]
struct Name {
    path: String,
    kind: &'static str,
    len: u64,
    mode: String,
    mtime_ns: i64,
    link: Option<String>,
}

#[derive(Serialize)]
struct Labels {
    action: &'static str,
    labels: Vec<Label>,
}

#[derive(Serialize)]
struct Sets {
    action: &'static str,
    media: Vec<Label>,
    /// Parity stripes that are there, by their devices.
    parity_devices: Vec<String>,
    stored_bytes: Option<u64>,
    sets: Vec<Set>,
}

pub fn run(options: &List, context: &Context) -> Result<Exit, Failure> {
    if options.media.devices.is_empty() && options.media.label.is_none() && !options.files {
        refuse_keys(&options.keys)?;
        return shelves(&options.media, context);
    }
    if !options.files {
        refuse_keys(&options.keys)?;
    }
    let chosen = reading::of(context, &options.media)?;
    let devices: Vec<Arc<dyn BackupDevice>> = chosen
        .devices
        .iter()
        .map(|d| d.open(&context.storage))
        .collect();
    if options.label_only {
        return labels(&devices, context);
    }
    let media = MediaSet::open_any(&devices)?;
    warn_of_absent(&media, context);
    if options.files {
        let media = media.with_keyring(&set_keyring(context, &options.keys)?);
        return files(&media, options.position.unwrap_or(0), context);
    }
    let media = media.with_keyring(&lenient_keyring(context, &options.keys)?);
    let all = media.sets()?;
    // These are not sets: unreadable data at the position of a set.
    for error in media.unreadable()? {
        context.output.warn(&error.to_string());
    }
    if let Some(position) = options.position
        && all.iter().all(|s| s.header.position != position)
    {
        media.set(position)?;
    }
    for warning in degraded(&media) {
        context.output.warn(&warning);
    }
    let sets: Vec<Set> = all
        .iter()
        .filter(|s| options.position.is_none_or(|p| p == s.header.position))
        .map(|summary| set(summary, &media))
        .collect();
    for set in &sets {
        if let Some(why) = &set.not_listed {
            let which = format!("set {}: its key objects are not all shown", set.position);
            context.output.warn(&format!("{which}: {why}"));
        }
    }
    let answer = Sets {
        action: "list",
        media: (0..media.family_count())
            .map(|i| label(media.device(i), media.header(i)))
            .collect(),
        parity_devices: parity_devices(&media),
        stored_bytes: media.stored_bytes()?,
        sets,
    };
    if !context.output.json {
        context.output.say(&sets_text(&answer));
    }
    let exit = context.output.done();
    context.output.json(exit, answer);
    Ok(exit)
}

/// Stripes that are not there may lack a set or have other names: a restore needs them.
fn warn_of_absent(media: &MediaSet, context: &Context) {
    let absent = media.absent().iter().map(|f| format!("family {f}"));
    let absent = absent.collect::<Vec<_>>().join(", ");
    if !absent.is_empty() {
        context.output.warn(&format!(
            "these stripes were not named: {absent}. The list has what the others tell; a restore needs all, and \
             `longshore verify` with all of them shows whether they are there"
        ));
    }
}

/// Without the files nothing is opened: an answer could be taken for one that a key has confirmed.
fn refuse_keys(options: &SetKeyOptions) -> Result<(), Failure> {
    let given = [
        ("--identity", !options.identity.is_empty()),
        ("--key-object", !options.key_object.is_empty()),
        ("--keys", !options.key_places.is_empty()),
        ("--require-encryption", options.require_encryption),
        ("--require-signature", options.require_signature),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else {
        return Ok(());
    };
    Err(Failure::usage(
        format!(
            "{option} needs --files: the list of sets is read without a key, and proves nothing of them"
        ),
        "add --files, or use `longshore verify`, which reads and proves everything",
    ))
}

#[derive(Serialize)]
struct Shelves {
    action: &'static str,
    databases: Vec<TargetListing>,
}

#[derive(Serialize)]
struct TargetListing {
    database: String,
    target: String,
    backups: Vec<Row>,
    branches: Vec<BranchRow>,
    strays: Vec<String>,
}

/// Lists what a target holds.
fn shelves(media: &Media, context: &Context) -> Result<Exit, Failure> {
    let names: Vec<String> = media.database.iter().cloned().collect();
    let mut databases = Vec::new();
    for shelf in super::shelves::shelves(context, &names, media.target.as_deref())? {
        let listing = shelf.list()?;
        let mut backups = super::shelves::rows(&listing, None);
        super::detached::judge(&mut backups, &listing, (&shelf.target.name, context));
        for warning in super::shelves::degraded(&backups) {
            context.output.warn(&warning);
        }
        let name = plain(&shelf.database);
        let text = match backups.is_empty() {
            true => "no backup\n".to_owned(),
            false => super::shelves::table(&backups).to_string(),
        };
        let remarks = super::shelves::remarks(&listing, &backups);
        let head = format!("{name} at target {}\n", shelf.target.name);
        context.output.say(&(head + &text + &remarks));
        let losses = emptied::losses(&shelf, &listing, context);
        let lost: Vec<usize> = losses.into_iter().flat_map(|loss| loss.lost).collect();
        databases.push(TargetListing {
            database: shelf.database.clone(),
            target: shelf.target.name.clone(),
            backups,
            branches: super::shelves::branch_rows(&listing, &lost, context.clock.wall_ns() / 1000),
            strays: listing.strays.clone(),
        });
    }
    let action = "list";
    let exit = context.output.done();
    context.output.json(exit, Shelves { action, databases });
    Ok(exit)
}

fn parity_devices(media: &MediaSet) -> Vec<String> {
    let stripes = media.stripes().into_iter();
    let is_there = |s: &StripePlace| s.is_parity && s.family_uuid.is_some();
    stripes.filter(is_there).map(|s| s.name).collect()
}

fn label(device: &str, header: &MediaHeader) -> Label {
    Label {
        device: device.to_owned(),
        media_name: header.name.clone(),
        media_description: header.description.clone(),
        media_set: header.media_set.to_string(),
        family_count: header.family_count,
        parity_count: header.parity_count,
        family: header.family,
        family_id: header.family_uuid.to_string(),
        generation: header.generation,
        container: format!("{:?}", header.container).to_lowercase(),
        compressed: header.compressed,
        created_us: header.created_us,
        software: header.software.clone(),
    }
}

fn set(summary: &SetSummary, media: &MediaSet) -> Set {
    let (header, trailer) = (&summary.header, summary.trailer.as_ref());
    let degraded = !media.faults().is_empty();
    // A verification tells what is wrong with these records.
    let signature = trailer.and_then(|_| media.signature(header.position).ok());
    let (key_objects, not_listed) = next_to(header.position, media);
    Set {
        position: header.position,
        set: header.set.to_string(),
        name: header.name.clone(),
        description: header.description.clone(),
        database: header.database.clone(),
        kind: match header.backup_type {
            BackupType::Database => "full",
            BackupType::Differential => "diff",
            BackupType::Log => "log",
        },
        parent: header.parent.map(|parent| parent.to_string()),
        complete: trailer.is_some(),
        damaged: trailer.is_some_and(|t| t.damaged),
        degraded,
        copy_only: header.copy_only,
        encrypted: header.encrypted,
        keys_detached: header.keys_detached,
        root: trailer.and_then(|trailer| trailer.root_text()),
        signature: signature.map(|state| state.word()),
        signer: signature.and_then(|state| Some(state.signer()?.to_string())),
        recipients: media.recipient_names(header.position).unwrap_or_default(),
        key_objects,
        not_listed,
        algorithm: header.algorithm.to_string(),
        level: header.level.to_string(),
        start_us: header.start_us,
        finish_us: trailer.map(|t| t.finish_us),
        expires_us: header.expires_us,
        time_zone_quarters: header.time_zone,
        plain_bytes: trailer.map(|t| t.plain_bytes_total),
        stored_bytes: trailer.map(|t| t.stored_bytes_total),
        entry_count: trailer.map(|t| t.entries_total),
        file_count: trailer.map(|t| t.files_total),
        buffer_bytes: header.buffer_bytes,
        page_bytes: header.page_bytes,
        machine: header.machine.clone(),
        user: header.user.clone(),
        origin: header.origin.clone(),
    }
}

/// The key objects of a set, and why there may be others.
fn next_to(position: u32, media: &MediaSet) -> (Vec<NextTo>, Option<String>) {
    let (seen, not_listed) = match media.key_objects(position) {
        Ok((seen, true)) => (seen, Some("there are more than are looked at".to_owned())),
        Ok((seen, false)) => (seen, None),
        Err(why) => (Vec::new(), Some(why.to_string())),
    };
    let shown = |one: SeenObject| {
        let places = one.folders.iter().map(|i| media.folders()[*i].name());
        let (object, problem) = match one.object {
            Ok(object) => (Some(object), None),
            Err(why) => (None, Some(why)),
        };
        let slots = object.iter().flat_map(|object| &object.slots);
        NextTo {
            name: one.name.to_string(),
            places: places.collect(),
            recipients: slots.map(|slot| slot.recipient()).collect(),
            made_us: object.as_ref().map(|object| object.made_us),
            problem,
        }
    };
    (seen.into_iter().map(shown).collect(), not_listed)
}

fn labels(devices: &[Arc<dyn BackupDevice>], context: &Context) -> Result<Exit, Failure> {
    let labels = devices
        .iter()
        .map(|d| Ok(label(&d.name(), &MediaSet::label(&**d)?)))
        .collect::<Result<Vec<_>, longshore_media::Error>>()?;
    let mut table = Table::new(&[
        "device",
        "media set",
        "family",
        "container",
        "created (UTC)",
        "media name",
    ]);
    for l in &labels {
        table.row(vec![
            plain(&l.device),
            l.media_set.clone(),
            match l.family.checked_sub(l.family_count) {
                Some(parity @ 1..) => format!("parity {parity} of {}", l.parity_count),
                _ => format!("{} of {}", l.family, l.family_count),
            },
            l.container.clone(),
            moment(l.created_us),
            plain(&l.media_name),
        ]);
    }
    context.output.say(&table.to_string());
    let action = "label";
    let exit = context.output.done();
    context.output.json(exit, Labels { action, labels });
    Ok(exit)
}

fn sets_text(answer: &Sets) -> String {
    let mut text = String::new();
    if let Some(first) = answer.media.first() {
        text += &format!(
            "media set {}  stripes {}  container {}  created {} UTC  {}\n",
            first.media_set,
            first.family_count,
            first.container,
            moment(first.created_us),
            plain(&first.media_name)
        );
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for member in &answer.media {
        text += &format!("  family {}  {}\n", member.family, plain(&member.device));
    }
    for device in &answer.parity_devices {
        text += &format!("  parity    {}\n", plain(device));
    }
    if answer.sets.is_empty() {
        return text + "no backup set\n";
    }
    let mut table = Table::new(&[
        "position",
        "database",
        "type",
        "finished (UTC)",
        "algorithm",
        "level",
        "files",
        "in",
        "out",
        "ratio",
        "state",
        "name",
    ]);
    for s in &answer.sets {
        let sizes = s.plain_bytes.zip(s.stored_bytes);
        table.row(vec![
            s.position.to_string(),
            plain(&s.database),
            s.kind.to_owned(),
            s.finish_us.map_or("-".to_owned(), moment),
            s.algorithm.clone(),
            s.level.clone(),
            s.file_count.map_or("-".to_owned(), |n| n.to_string()),
            sizes.map_or("-".to_owned(), |(p, _)| bytes(p)),
            sizes.map_or("-".to_owned(), |(_, s)| bytes(s)),
            sizes.map_or("-".to_owned(), |(p, s)| format!("{:.2}", ratio(p, s))),
            match (s.complete, s.encrypted) {
                (false, _) => "INCOMPLETE",
                (true, true) if s.degraded => "encrypted, DEGRADED",
                (true, false) if s.degraded => "DEGRADED",
                (true, true) if s.damaged => "encrypted, marked",
                (true, false) if s.damaged => "marked",
                (true, true) => "encrypted",
                (true, false) => "complete",
            }
            .to_owned(),
            plain(&s.name),
        ]);
    }
    text += &format!("\n{table}");
    for s in answer.sets.iter().filter(|s| s.encrypted) {
        let of = s.recipients.join(", ");
        text += &match s.keys_detached {
            true => format!(
                "set {} is encrypted, and its keys are detached: no slot is on its media\n",
                s.position
            ),
            false => format!("set {} is encrypted for {}\n", s.position, plain(&of)),
        };
        for object in &s.key_objects {
            let of = match &object.problem {
                Some(why) => format!("cannot be used: {why}"),
                None => format!("says that it is for {}", object.recipients.join(", ")),
            };
            text += &format!("  {} {}\n", object.name, plain(&of));
        }
    }
    for s in &answer.sets {
        if let (Some(signer), Some(word)) = (&s.signer, s.signature) {
            text += &format!("set {} is signed by {signer} ({word})\n", s.position);
        }
    }
    text
}

/// Streams the names: a set may hold millions.
fn files(media: &MediaSet, position: u32, context: &Context) -> Result<Exit, Failure> {
    let summary = media.set(position)?;
    let position = summary.header.position;
    let output = context.output;
    if output.json {
        let head = Files {
            action: "files",
            listed_set: set(&summary, media),
        };
        let mut stream = output.json_stream(&head, "files");
        let read = media.items(position, |item| {
            if let Some(entry) = first_mention(&item) {
                // The end of the command reports what was not written.
                let _lost = stream.element(&name(entry));
            }
        });
        match read {
            Ok(()) => stream.end(),
            Err(error) => return Ok(stream.fail(&error.into())),
        }
    } else {
        let mut text = format!(
            "{:>15}  {:<6}  {:<19}  path\n",
            "bytes", "mode", "changed (UTC)"
        );
        media.items(position, |item| {
            if let Some(entry) = first_mention(&item) {
                text += &line(&name(entry));
            }
            if text.len() > PIECE_BYTES {
                output.say(&std::mem::take(&mut text));
            }
        })?;
        output.say(&text);
    }
    Ok(context.output.done())
}

#[derive(Serialize)]
struct Files {
    action: &'static str,
    listed_set: Set,
}

/// Each block that holds part of a file names the file; only the first mention counts.
fn first_mention(item: &Item) -> Option<&Entry> {
    match item {
        Item::Entry(entry) if entry.first => Some(entry),
        _ => None,
    }
}

fn name(entry: &Entry) -> Name {
    let (kind, link) = match &entry.kind {
        EntryKind::File => ("file", None),
        EntryKind::Dir => ("dir", None),
        EntryKind::Symlink { target } => ("symlink", Some(target)),
        EntryKind::HardLink { target } => ("hardlink", Some(target)),
    };
    Name {
        path: entry.path.display().to_string(),
        kind,
        len: entry.len,
        mode: format!("{:04o}", entry.mode),
        mtime_ns: entry.mtime_ns,
        link: link.map(|l| l.display().to_string()),
    }
}

fn line(name: &Name) -> String {
    let size = match name.kind {
        "file" => name.len.to_string(),
        other => other.to_owned(),
    };
    let link = name
        .link
        .as_ref()
        .map_or(String::new(), |l| format!(" -> {}", plain(l)));
    format!(
        "{size:>15}  {:<6}  {:<19}  {}{link}\n",
        name.mode,
        moment(name.mtime_ns / 1000),
        plain(&name.path)
    )
}
