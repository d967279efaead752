//! DROP DATABASE: abandons a restore that waits for more, and removes a name that a restore has made.
//!
//! Invariants
//! - Only a data directory that a restore still holds is removed: no server can have run on it.
//! - Databases of the configuration, and completely restored files, are never removed.
//!
//! Leaves to others: emptying the directory (`longshore-landing`), and the state of restores (`server/persistent.rs`).

use longshore_catalog::RestoreSequence;
use longshore_landing::HeldCluster;

use super::device::reach;
use super::sequence::{lock, set};
use crate::flow::{Flow, Out, SYSTEM_DATABASES, Stop};
use crate::message::{self, Message};
use crate::refusal;
use crate::server::RestoreLock;
use crate::session::Session;
use crate::sink::Command;

/// Drops every database that can be dropped, even if others cannot.
pub(crate) fn drop_databases(
    session: &Session,
    names: &[String],
    if_exists: bool,
    out: &mut Out,
) -> Flow {
    let mut refused = Vec::new();
    for name in names {
        match one(session, name, if_exists, out) {
            Err(Stop::Failed(messages)) => refused.extend(messages),
            other => other?,
        }
    }
    match refused.is_empty() {
        true => Ok(out.done(Command::Other, None)?),
        false => Err(refused.into()),
    }
}

/// Errors: 3701, 3702, 3708, 3101.
fn one(session: &Session, name: &str, if_exists: bool, out: &mut Out) -> Flow {
    let server = &session.server;
    if SYSTEM_DATABASES
        .iter()
        .any(|s| s.eq_ignore_ascii_case(name))
    {
        return Err(message::DROP_SYSTEM.with(&[&name]).into());
    }
    if session.database.eq_ignore_ascii_case(name) {
        return Err(message::DROP_IN_USE.with(&[&name]).into());
    }
    let _alone = RestoreLock::with(server, name)?;
    if let Some(waiting) = server.kept.sequence(name) {
        return abandon(session, waiting, out);
    }
    let missing = || message::DROP_MISSING.with(&[&"database", &name]);
    let mut names = server.database_names().into_iter();
    let Some(known) = names.find(|n| n.eq_ignore_ascii_case(name)) else {
        return match if_exists {
            true => Ok(()),
            false => Err(missing().into()),
        };
    };
    if server.is_configured(&known) {
        let why = "it is a database of the configuration: remove it there";
        return Err(vec![missing(), message::DETAIL.with(&[&why])].into());
    }
    let place = server.kept.forget_database(&known)?;
    let stay =
        |place: &std::path::Path| format!("the files of '{known}' remain in {}", place.display());
    match place {
        Some(place) => Ok(out.say(message::DETAIL.with(&[&stay(&place)]))?),
        None => Ok(()),
    }
}

/// A restore that waits: its data directory is emptied if it certainly contains nothing else.
fn abandon(session: &Session, waiting: RestoreSequence, out: &mut Out) -> Flow {
    let context = &session.server.setup.context;
    reach(session, &waiting.target, &waiting.target.display())?;
    let _lock = lock(session, &waiting.target)?;
    // Another program may have run a step before we had the lock.
    session.server.kept.refresh();
    if session.server.kept.sequence(&waiting.database).as_ref() != Some(&waiting) {
        return Err(message::EXCLUSIVE_ACCESS.plain().into());
    }
    let held = HeldCluster::open(&*context.storage, &waiting.target).ok();
    let ours = held.filter(|held| waiting.is_ready && held.is_of(waiting.system, set(&waiting)));
    let name = &waiting.database;
    match ours {
        Some(held) => held.discard().map_err(|e| refusal::of(&e.into()))?,
        // An interrupted step may have left the previous content.
        None => out.say(files_stay(&waiting))?,
    }
    session.server.kept.end_sequence(name, None)?;
    let text = format!("The restore of database '{name}' was abandoned.");
    session.server.write_log("Restore", &text);
    Ok(())
}

fn files_stay(waiting: &RestoreSequence) -> Message {
    let text = format!(
        "{} differs from what the last complete step left: it is not removed",
        waiting.target.display()
    );
    message::DETAIL.with(&[&text])
}
