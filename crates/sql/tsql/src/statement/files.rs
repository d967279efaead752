//! Procedures about files: xp_dirtree, xp_fileexist, xp_fixeddrives, xp_delete_file.
//!
//! Invariants
//! - They see and remove only what statements may name. Nothing outside of it is known to exist.
//! - xp_delete_file removes backup media of Longshore's only, and no file of a database, an archive, a set at a target or the
//!   server.
//!
//! Leaves to others: which paths may be named (`ground.rs`, `device.rs`).

use std::path::{Path, PathBuf};

use longshore_io::FileKind;
use longshore_landing::{PathList, directory};
use longshore_media::{DeviceSpec, MediaSet};

use super::arguments::Arguments;
use super::device::named_path;
use super::{ground, media, some_of};
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::server::moment_us;
use crate::session::Session;
use crate::sink::Command;
use crate::value::{Column, Type, Value};

/// The most entries that one call reads.
const ENTRIES_MAX: usize = 100_000;
/// The deepest directory that one call reads.
const DEPTH_MAX: i64 = 64;

fn text(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    }
}

fn whole(value: Option<Value>) -> Result<i64, Message> {
    match convert(&value.unwrap_or(Value::Null), Type::BigInt)? {
        Value::Int(n) => Ok(n),
        _ => Ok(0),
    }
}

/// The entries of a directory, by name: their paths and kinds. A directory that cannot be read is empty, as in SQL Server.
fn entries(session: &Session, directory: &Path) -> Vec<(String, FileKind)> {
    let storage = &session.server.setup.context.storage;
    let Ok(dir) = storage.dir(directory) else {
        return Vec::new();
    };
    let Ok(names) = dir.list() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for name in names.flatten().take(ENTRIES_MAX) {
        if let Ok(stat) = dir.stat(Path::new(&name)) {
            all.push((name.to_string_lossy().into_owned(), stat.kind));
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// The path, the depth (0: all), and whether files are shown, too.
pub(super) fn directory_tree(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [path, depth, files] = arguments.of(["@path", "@depth", "@file"])?;
    let path = named_path(session, &text(path))?;
    let depth = match whole(depth)? {
        0 => DEPTH_MAX,
        depth => depth.clamp(1, DEPTH_MAX),
    };
    let files = whole(files)? != 0;
    let mut columns = vec![
        Column::new("subdirectory", Type::nvarchar(512)),
        Column::new("depth", Type::Int),
    ];
    if files {
        columns.push(Column::new("file", Type::Int));
    }
    out.sink.columns(&columns)?;
    let mut count = 0;
    let mut rest: Vec<(PathBuf, String, i64, FileKind)> = Vec::new();
    let add = |rest: &mut Vec<_>, path: &Path, level: i64| {
        for (name, kind) in entries(session, path).into_iter().rev() {
            rest.push((path.join(&name), name, level, kind));
        }
    };
    add(&mut rest, &path, 1);
    while let Some((path, name, level, kind)) = rest.pop() {
        if session.is_cancelled() {
            return Err(message::ABORTED.plain().into());
        }
        let is_dir = kind == FileKind::Dir;
        if is_dir || (files && kind == FileKind::File) {
            let mut row = vec![Value::Text(name), Value::Int(level)];
            if files {
                row.push(Value::Int((!is_dir).into()));
            }
            out.sink.row(&row)?;
            count += 1;
        }
        if is_dir && level < depth && count < ENTRIES_MAX {
            add(&mut rest, &path, level + 1);
        }
    }
    Ok(out.done(Command::Execute, Some(count as u64))?)
}

/// Whether a file is there: as rows, or in an output.
pub(super) fn file_exists(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [path, _] = arguments.of(["@filename", "@exists"])?;
    let found = ground::existence(&session.server, &text(path));
    if let Some(to) = arguments.passed.get(1).and_then(|a| a.output.clone()) {
        let kind = session.variable(&to)?.kind;
        let exists = convert(&Value::Int(found[0].into()), kind)?;
        session.set_variable(&to, exists)?;
        return Ok(out.done(Command::Execute, None)?);
    }
    let names = [
        "File Exists",
        "File is a Directory",
        "Parent Directory Exists",
    ];
    out.sink
        .columns(&names.map(|name| Column::new(name, Type::TinyInt)))?;
    out.sink.row(&found.map(|is| Value::Int(is.into())))?;
    Ok(out.done(Command::Execute, Some(1))?)
}

/// One drive: that of the backup directory.
pub(super) fn drives(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [] = arguments.of([])?;
    let setup = &session.server.setup;
    let free = setup.context.storage.dir(&setup.backup_directory);
    let free = free.and_then(|dir| dir.free_bytes()).unwrap_or(0) >> 20;
    let columns = [
        Column::new("drive", Type::Char(1)),
        Column::new("MB free", Type::Int),
    ];
    out.sink.columns(&columns)?;
    let free = Value::Int(i64::try_from(free).unwrap_or(i64::MAX).min(i32::MAX.into()));
    out.sink.row(&[Value::text("C"), free])?;
    Ok(out.done(Command::Execute, Some(1))?)
}

/// The kind (0: backups), a directory or a file, the extension, the date before which files go, and whether directories
/// directly below are meant, too.
pub(super) fn delete_files(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [kind, path, extension, before, below] =
        arguments.of(["@type", "@path", "@extension", "@date", "@subfolder"])?;
    if whole(kind)? != 0 {
        // Reports of maintenance plans, of which there are none.
        return Ok(out.done(Command::Execute, None)?);
    }
    let path = named_path(session, &text(path))?;
    let extension = text(extension).trim_start_matches('.').to_lowercase();
    let before = match before {
        None => i64::MAX,
        Some(date) => {
            let date = text(Some(date));
            let moment = moment_us(&date).ok();
            // An unset variable is no date.
            let moment = moment.filter(|_| !date.trim().is_empty());
            moment.ok_or_else(|| message::NOT_A_DATE.plain())?
        }
    };
    let storage = session.server.setup.context.storage.clone();
    let is_file = storage
        .stat(&path)
        .is_ok_and(|stat| stat.kind == FileKind::File);
    let mut found = Vec::new();
    if is_file {
        found.push(path);
    } else {
        let mut directories = vec![path.clone()];
        if whole(below)? != 0 {
            let all = entries(session, &path).into_iter();
            let all = all.filter(|(_, kind)| *kind == FileKind::Dir);
            directories.extend(all.map(|(name, _)| path.join(name)));
        }
        for directory in directories {
            let all = entries(session, &directory).into_iter();
            let all = all.filter(|(_, kind)| *kind == FileKind::File);
            found.extend(all.map(|(name, _)| directory.join(name)));
        }
        let fits = |path: &PathBuf| {
            let own = path.extension().map(|e| e.to_string_lossy().to_lowercase());
            own.unwrap_or_default() == extension
        };
        found.retain(fits);
    }
    let mut kept = PathList::default();
    for path in found {
        if session.is_cancelled() {
            return Err(message::ABORTED.plain().into());
        }
        if delete_one(session, &path, before)? == Fate::Kept {
            kept.add(path);
        }
    }
    if kept.count > 0 {
        let text = format!(
            "{} files are of sets at targets or of WAL archives and stay, since others depend on them: {}; `longshore expire` \
             removes what the configuration no longer keeps",
            kept.count,
            some_of(kept.count, kept.first.iter().map(|path| path.display()))
        );
        out.say(message::WARNING.with(&[&text]))?;
    }
    Ok(out.done(Command::Execute, None)?)
}

/// The fate of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Removed,
    /// It is too new, no backup, or not for statements.
    NotMeant,
    /// It is an old backup, of a target or an archive.
    Kept,
}

/// Removes a file that is old enough and a backup, unless a target or an archive has it; others stay. Errors: it cannot
/// be removed.
fn delete_one(session: &Session, path: &Path, before_us: i64) -> Result<Fate, Message> {
    let server = &session.server;
    let storage = &*server.setup.context.storage;
    let Ok(stat) = storage.stat(path) else {
        return Ok(Fate::NotMeant);
    };
    let is_old = stat.mtime_ns / 1000 < before_us;
    let real = ground::real(storage, path);
    let inside = |plot: &ground::Plot| real.starts_with(&plot.path);
    let is_taken = ground::plots(server, None).iter().any(inside)
        || ground::cluster(storage, &real, false).is_some()
        || !ground::is_reachable(server, path);
    if !is_old || is_taken {
        return Ok(Fate::NotMeant);
    }
    // One stripe of many has a label, too.
    let device = media::open(session, &[DeviceSpec::File(path.into())]);
    let is_backup = device
        .first()
        .is_some_and(|d| MediaSet::label(&**d).is_ok());
    if !is_backup {
        return Ok(Fate::NotMeant);
    }
    // Sets and archives of targets go by retention, which keeps what others need.
    let mut around = real.ancestors().skip(1);
    if around.any(|dir| directory(storage, dir).is_some()) {
        return Ok(Fate::Kept);
    }
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Ok(Fate::NotMeant);
    };
    let removed = storage.dir(parent).and_then(|dir| {
        dir.remove_file(Path::new(name))?;
        dir.sync(Path::new(""))
    });
    removed.map_err(|e| {
        let text = format!("xp_delete_file: cannot remove {}: {e}", path.display());
        message::OWN.with(&[&text])
    })?;
    Ok(Fate::Removed)
}
