//! The files of a set as FILELISTONLY and MOVE know them: its data and its log.
//!
//! Scripts find the names for MOVE in FILELISTONLY, as the rows of types D and L. A cluster or a tree is restored as a whole,
//! so it is one file here, whatever it holds; `longshore list` lists what it holds.
//!
//! Invariants
//! - FILELISTONLY has two rows, and MOVE takes both of their names. The log goes with the data wherever that goes.
//! - The names are those of `sys.master_files` for the database that was backed up.
//!
//! Leaves to others: reading the media (`media.rs`), and the place that MOVE names (`restore.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_media::{BackupType, DeviceSpec, EntryKind, Item, MediaSet, SetHeader, SetSummary};
use uuid::Uuid;

use super::media;
use super::options::Options;
use super::restoring::FILES;
use crate::flow::{Flow, Out, Stop};
use crate::message::Message;
use crate::refusal;
use crate::session::Session;
use crate::sink::Command;
use crate::value::{Type, Value};

pub(super) const SQLITE: u8 = 2;
pub(super) const POSTGRES: u8 = 3;

const LSN: Type = Type::numeric(25, 0);
const NAME: Type = Type::nvarchar(128);

const FILE_LIST: &[(&str, Type)] = &[
    ("LogicalName", NAME),
    ("PhysicalName", Type::nvarchar(260)),
    ("Type", Type::NChar(1)),
    ("FileGroupName", NAME),
    ("Size", Type::BigInt),
    ("MaxSize", Type::BigInt),
    ("FileId", Type::BigInt),
    ("CreateLSN", LSN),
    ("DropLSN", LSN),
    ("UniqueId", Type::UniqueIdentifier),
    ("ReadOnlyLSN", LSN),
    ("ReadWriteLSN", LSN),
    ("BackupSizeInBytes", Type::BigInt),
    ("SourceBlockSize", Type::Int),
    ("FileGroupId", Type::Int),
    ("LogGroupGUID", Type::UniqueIdentifier),
    ("DifferentialBaseLSN", LSN),
    ("DifferentialBaseGUID", Type::UniqueIdentifier),
    ("IsReadOnly", Type::Bit),
    ("IsPresent", Type::Bit),
    ("TDEThumbprint", Type::VarBinary(Some(20))),
    ("SnapshotUrl", Type::nvarchar(336)),
];

/// MaxSize of a data file without a limit, as in SQL Server.
const MAX_SIZE: i64 = 35_184_372_080_640;

/// The name of the log of the file of this name.
fn log_name(logical: &str) -> String {
    format!("{logical}_log")
}

/// Whether the name is that of the log of this file.
pub(super) fn is_log_of(name: &str, logical: &str) -> bool {
    name.strip_suffix("_log") == Some(logical)
}

/// Up to this many names at the root of a set are checked one by one; with more, the whole target counts.
pub(super) const ROOTS_MAX: usize = 1024;

/// The names at the root of a set, at most [`ROOTS_MAX`] + 1, and whether the last one is a file.
fn roots(media: &MediaSet, position: u32) -> Result<(BTreeSet<PathBuf>, bool), Vec<Message>> {
    let mut roots = BTreeSet::new();
    let mut is_file = false;
    let each = |item: Item| {
        if let Item::Entry(entry) = item
            && let Some(first) = entry.path.iter().next()
            && roots.len() <= ROOTS_MAX
        {
            let first = PathBuf::from(first);
            is_file = entry.kind == EntryKind::File && first == entry.path;
            roots.insert(first);
        }
    };
    media
        .items(position, each)
        .map_err(|e| refusal::media(&e))?;
    Ok((roots, is_file))
}

/// The content of a set, as MOVE sees it.
pub(super) struct Parts {
    pub(super) roots: BTreeSet<PathBuf>,
    /// The only file, if the set has no other.
    pub(super) single: Option<PathBuf>,
    /// The name of the part that is moved as a whole.
    pub(super) logical: String,
}

impl Parts {
    pub(super) fn of(media: &MediaSet, header: &SetHeader) -> Result<Parts, Stop> {
        let (roots, is_file) = roots(media, header.position)?;
        // A directory that holds one file looks like a file, except for its original name.
        let original = Path::new(original(header)).file_name();
        let whole = |root: &PathBuf| original == Some(root.as_os_str());
        let single = match roots.first().filter(|_| roots.len() == 1) {
            Some(root) if header.source_kind == SQLITE => Some(root.clone()),
            Some(root) if header.source_kind == FILES && is_file && whole(root) => {
                Some(root.clone())
            }
            _ => None,
        };
        let logical = single
            .as_ref()
            .map_or(header.database.clone(), |root| root.display().to_string());
        Ok(Parts {
            roots,
            single,
            logical,
        })
    }
}

/// The path from which the backup was made.
fn original(header: &SetHeader) -> &str {
    header.origin.split_once(':').map_or("", |(_, path)| path)
}

/// The place of a set's data: where it was. Of a cluster the media do not have the path of its data directory, and a tree of
/// several roots was in no single place: these have one in the default directory.
pub(super) fn place_of(session: &Session, header: &SetHeader) -> String {
    let original = original(header);
    if header.source_kind != POSTGRES && !original.contains(" /") {
        return original.to_owned();
    }
    let directory = &session.server.setup.backup_directory;
    // A foreign medium's name may be a path.
    let name = Path::new(&header.database).file_name();
    directory
        .join(name.unwrap_or_default())
        .display()
        .to_string()
}

/// One of the two files.
struct File {
    name: String,
    physical: String,
    /// In bytes: of the file, and of its part in the set. `None`: other stripes have parts of them.
    len: Option<u64>,
    data: Option<u64>,
    is_log: bool,
}

/// Both files of a set. Where not all stripes of the media are there, only what headers and trailers say is known of a
/// SQLite database, and of others what these stripes tell.
///
/// Errors: the set's index cannot be read.
fn files_of(session: &Session, media: &MediaSet, set: &SetSummary) -> Result<[File; 2], Stop> {
    let header = &set.header;
    let original = original(header);
    let physical = place_of(session, header);
    // Without all stripes one file may look like all that there is; the database's name is always taken.
    let known = match header.source_kind == FILES && !media.absent().is_empty() {
        true => header.database.clone(),
        false => Parts::of(media, header)?.logical,
    };
    let (name, log) = match (header.source_kind, Path::new(original).file_name()) {
        (SQLITE, Some(name)) => (name.display().to_string(), format!("{original}-wal")),
        (POSTGRES, _) => (known, format!("{physical}/pg_wal")),
        _ => (known, log_name(&physical)),
    };
    let (len, data) = match media.absent().is_empty() {
        true => bytes_of(media, header.position)?,
        // A block on any stripe counts in the trailer, and a whole file is as long as its blocks.
        false if header.source_kind == SQLITE => {
            let plain = set.trailer.as_ref().map(|t| t.plain_bytes_total);
            let is_full = header.backup_type == BackupType::Database;
            (plain.filter(|_| is_full), plain)
        }
        false => (None, None),
    };
    let is_log_set = header.backup_type == BackupType::Log;
    let of = |is_log: bool| match is_log == is_log_set {
        true => (len, data),
        false => (Some(0), Some(0)),
    };
    let file = |name: String, physical: String, is_log: bool| {
        let (len, data) = of(is_log);
        File {
            name,
            physical,
            len,
            data,
            is_log,
        }
    };
    let log_name = log_name(&name);
    Ok([file(name, physical, false), file(log_name, log, true)])
}

/// The bytes of all files of a set, and those of them in the set.
fn bytes_of(media: &MediaSet, position: u32) -> Result<(Option<u64>, Option<u64>), Vec<Message>> {
    let (mut len, mut data) = (0u64, 0u64);
    let each = |item: Item| match item {
        Item::Entry(entry) if entry.first && entry.kind == EntryKind::File => {
            len = len.saturating_add(entry.len);
        }
        Item::Extent(extent) => data = data.saturating_add(extent.len.into()),
        Item::Entry(_) | Item::Mark(_) | Item::Sums(_) => {}
    };
    media
        .items(position, each)
        .map_err(|e| refusal::media(&e))?;
    Ok((Some(len), Some(data)))
}

pub(super) fn file_list_only(
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
    out: &mut Out,
) -> Flow {
    let media = media::described(session, devices, options)?;
    let position = options.position.unwrap_or(1);
    let set = media.set(position).map_err(|e| refusal::media(&e))?;
    let files = files_of(session, &media, &set)?;
    out.sink.columns(&media::columns(FILE_LIST))?;
    for (number, file) in (1..).zip(&files) {
        out.sink.row(&file_row(&set.header, file, number))?;
    }
    let count = files.len() as u64;
    out.done(Command::MediaRows, Some(count))?;
    Ok(out.done(Command::RestoreFileListOnly, None)?)
}

fn file_row(header: &SetHeader, file: &File, number: u64) -> Vec<Value> {
    let (kind, group, group_id) = match file.is_log {
        true => ("L", Value::Null, 0),
        false => ("D", Value::text("PRIMARY"), 1),
    };
    let id = Uuid::from_u128(header.set.as_u128() ^ u128::from(number));
    vec![
        Value::text(file.name.as_str()),
        Value::text(file.physical.as_str()),
        Value::text(kind),
        group,
        file.len.map_or(Value::Null, media::whole),
        Value::Int(MAX_SIZE),
        media::whole(number),
        Value::Null,
        Value::Null,
        Value::Guid(id),
        Value::Null,
        Value::Null,
        file.data.map_or(Value::Null, media::whole),
        Value::Int(512),
        Value::Int(group_id),
        Value::Null,
        Value::Null,
        header.parent.map_or(Value::Null, Value::Guid),
        Value::bit(false),
        Value::bit(true),
        Value::Null,
        Value::Null,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_columns_that_scripts_insert_into() {
        assert_eq!(FILE_LIST.len(), 22);
    }
}
