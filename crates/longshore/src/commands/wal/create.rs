//! `wal create`: a directory becomes an archive.

use serde::Serialize;

use super::{Context, Place};
use crate::failure::{Exit, Failure};
use crate::options::WalCreate;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    /// Whose log it holds; `None`: the first segment that comes decides.
    system: Option<String>,
}

pub fn run(options: &WalCreate, context: &Context) -> Result<Exit, Failure> {
    let archive = Place::of(&options.archive, context)?.create(context)?;
    let path = archive.path().display().to_string();
    let system = archive
        .identity()
        .map(|identity| identity.system.to_string());
    context.output.say(&match &system {
        Some(system) => format!("{path} is the WAL archive of system {system}.\n"),
        None => format!("{path} is a WAL archive; its first segment makes it its cluster's.\n"),
    });
    let answer = Answer {
        action: "wal_create",
        archive: path,
        system,
    };
    context.output.json(Exit::Done, answer);
    Ok(Exit::Done)
}
