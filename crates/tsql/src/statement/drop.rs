//! DROP DATABASE: the way out of a restore that is not wanted any more, and out of a name that a restore has made.
//!
//! Invariants
//! - Only a data directory that the restore holds back is removed: no server can have run on it.
//! - Databases of the configuration, and files that were restored whole, are never removed.

use longshore_catalog::RestoreSequence;
use longshore_landing::Held;

use super::device::reach;
use super::sequence::{lock, set};
use crate::flow::{Flow, Out, SYSTEM_DATABASES, Stop};
use crate::message::{self, Message};
use crate::refusal;
use crate::server::Alone;
use crate::session::Session;
use crate::sink::Command;

/// Those that can be dropped are, whatever becomes of the others.
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
    let _alone = Alone::with(server, name)?;
    if let Some(waiting) = server.sequence(name) {
        return abandon(session, waiting, out);
    }
    let missing = || message::DROP_MISSING.with(&[&name]);
    let mut names = server.database_names().into_iter();
    let Some(known) = names.find(|n| n.eq_ignore_ascii_case(name)) else {
        return match if_exists {
            true => Ok(()),
            false => Err(missing().into()),
        };
    };
    if server.is_configured(&known) {
        let why = "it is a database of the configuration: take it out there";
        return Err(vec![missing(), message::DETAIL.with(&[&why])].into());
    }
    let place = server.forget_database(&known)?;
    let stay =
        |place: &std::path::Path| format!("the files of '{known}' stay in {}", place.display());
    match place {
        Some(place) => Ok(out.say(message::DETAIL.with(&[&stay(&place)]))?),
        None => Ok(()),
    }
}

/// A restore that waits: its data directory is emptied where it is known to be nothing else.
fn abandon(session: &Session, waiting: RestoreSequence, out: &mut Out) -> Flow {
    let house = &session.server.setup.house;
    reach(session, &waiting.target, &waiting.target.display())?;
    let _lock = lock(session, &waiting.target)?;
    // Another program may have taken a step before the lock was ours.
    session.server.refresh();
    if session.server.sequence(&waiting.database).as_ref() != Some(&waiting) {
        return Err(message::EXCLUSIVE_ACCESS.plain().into());
    }
    let held = Held::open(&*house.storage, &waiting.target).ok();
    let ours = held.filter(|held| waiting.is_ready && held.is_of(waiting.system, set(&waiting)));
    let name = &waiting.database;
    match ours {
        Some(held) => held.discard().map_err(|e| refusal::of(&e.into()))?,
        // An interrupted step may have left what stood there before.
        None => out.say(files_stay(&waiting))?,
    }
    session.server.end_sequence(name, None)?;
    let text = format!("The restore of database '{name}' was given up.");
    session.server.write_log("Restore", &text);
    Ok(())
}

fn files_stay(waiting: &RestoreSequence) -> Message {
    let text = format!(
        "what stands in {} is not what the last complete step left: it stays",
        waiting.target.display()
    );
    message::DETAIL.with(&[&text])
}
