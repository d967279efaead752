//! `wal`: what PostgreSQL's archive_command and restore_command run.
//!
//! Speed of starting matters: the server runs one process for each file.

mod get;
mod list;
mod push;
mod receive;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longshore_repository::wal::{Error, Reach, WalArchive};

use super::{Context, devices};
use crate::failure::{Exit, Failure};
use crate::options::{Ahead, Archive, Wal, WalAction};

pub fn run(options: &Wal, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        WalAction::Push(options) => push::run(options, context),
        WalAction::Get(options) => get::run(options, context),
        WalAction::Receive(options) => receive::run(options, context),
        WalAction::List(options) => list::run(options, context),
    }
}

/// Where an archive is: what must exist, and what a first push makes below it.
struct Place {
    base: PathBuf,
    below: PathBuf,
}

impl Place {
    fn of(archive: &Archive, context: &Context) -> Result<Place, Failure> {
        if let Some(path) = &archive.archive {
            let base = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                // `/`, `..` and the like have nothing above them that could be missing.
                _ if path.file_name().is_none() => path,
                _ => Path::new("."),
            };
            let below = path.file_name().map(PathBuf::from).unwrap_or_default();
            return Ok(Place {
                base: base.to_owned(),
                below,
            });
        }
        // The group of options admits nothing else.
        let database = archive.database.as_deref().unwrap_or_default();
        let own = context.config.target_of(database);
        let Some(target) = archive.target.as_deref().or(own) else {
            return Err(Failure::usage(
                format!("[database.{database}] names no target"),
                "give --target, or --archive with the directory itself",
            ));
        };
        if let Some(what) = longshore_repository::target::bad_name(database) {
            return Err(Failure::usage(
                format!("{database:?} cannot be a directory of a target: {what}"),
                "give the name of a database of the configuration",
            ));
        }
        let directories = &devices::target(context, target)?.directories;
        let base = directories.first().cloned().unwrap_or_default();
        Ok(Place {
            base,
            below: Path::new(database).join("wal"),
        })
    }

    fn existing(&self, context: &Context) -> Result<WalArchive, Error> {
        WalArchive::existing(&*context.storage, &self.base.join(&self.below))
    }

    fn make(&self, context: &Context) -> Result<WalArchive, Error> {
        WalArchive::make(&*context.storage, &self.base, &self.below)
    }
}

fn reach(ahead: &Ahead) -> Reach {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    Reach {
        bytes_max: ahead.queue_max,
        workers: ahead.workers.map_or_else(cpus, |n| n as usize),
    }
}

/// Runs this very command once more in the background, to work ahead. It is on its own: not in the server's process
/// group, and with none of its files open. That it could not be started makes later calls slower, nothing else.
fn start_ahead(context: &Context) {
    use std::os::unix::process::CommandExt;
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(std::env::args_os().skip(1))
            .arg("--only-ahead")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    if let Err(e) = started {
        context.output.warn(&format!("cannot work ahead: {e}"));
    }
}
