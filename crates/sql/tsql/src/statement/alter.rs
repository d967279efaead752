//! ALTER DATABASE … SET: who may use a database, and its recovery model.
//!
//! Invariants
//! - Nothing is changed: a database belongs to its own server. A setting that it has already is no error, and neither is one
//!   that scripts change around a restore.
//!
//! Leaves to others: whether a restore may replace the database (`restore.rs`).

use crate::flow::{Flow, Out};
use crate::message;
use crate::server::Unusable;
use crate::session::Session;
use crate::sink::Command;

/// Locks nobody out: sessions here hold no database, and other programs use the database's own server. A restore checks itself
/// whether it may continue. Errors: 5011, 5069; 50002 for another recovery model than the database has.
pub(crate) fn alter_database(
    session: &Session,
    (asked, setting): (&str, &str),
    out: &mut Out,
) -> Flow {
    let server = &session.server;
    let asked = match asked.eq_ignore_ascii_case("CURRENT") {
        true => session.database.as_str(),
        false => asked,
    };
    let mut known = server.database_names().into_iter();
    let is_own = asked.eq_ignore_ascii_case(&session.database);
    if !is_own && !known.any(|known| known.eq_ignore_ascii_case(asked)) {
        let missing = message::ALTER_MISSING.with(&[&asked]);
        return Err(vec![missing, message::ALTER_FAILED.plain()].into());
    }
    let Some(model) = setting.strip_prefix("RECOVERY ") else {
        let text = "only the database's own server controls who may use it: nothing was changed";
        out.say(message::DETAIL.with(&[&text]))?;
        return Ok(out.done(Command::Other, None)?);
    };
    // By the rule that all statements find a database by: names may differ in their case alone.
    let found = server.database(asked);
    let unusable = |why: Unusable| {
        vec![
            message::OWN.with(&[&why.text]),
            message::ALTER_FAILED.plain(),
        ]
    };
    let Some(database) = found.map_err(unusable)? else {
        return Err(message::NOT_HERE
            .with(&[&"ALTER DATABASE … SET RECOVERY"])
            .into());
    };
    let own = match database.recovery_is_full() {
        true => "FULL",
        false => "SIMPLE",
    };
    match model == own {
        true => Ok(out.done(Command::Other, None)?),
        false => Err(message::NOT_HERE
            .with(&[&"ALTER DATABASE … SET RECOVERY"])
            .into()),
    }
}
