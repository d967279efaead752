//! DBCC CHECKDB: has the database's own engine check it, and reports what it finds.
//!
//! Invariants
//! - Nothing is written to the database: repairs are refused by name (50002).
//! - Damage is an error (severity 16) for each finding, in the engine's words; then 8989 counts them, also under
//!   NO_INFOMSGS.
//! - Memory is bounded: up to [`FINDINGS_MAX`] findings are told.
//!
//! Leaves to others: the check itself (`longshore-pipeline`).

use longshore_pipeline::{CheckDepth, SourceSpec, check_sqlite};

use super::backup::{check_system, database};
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query;
use crate::refusal;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Dbcc;
use crate::value::{Type, Value};

/// The most findings that are told.
const FINDINGS_MAX: u32 = 1000;

/// Options that change nothing here: all findings are told, and no snapshot is made that locks could spare.
const ACCEPTED: [&str; 6] = [
    "ALL_ERRORMSGS",
    "DATA_PURITY",
    "EXTENDED_LOGICAL_CHECKS",
    "MAXDOP",
    "NO_INFOMSGS",
    "TABLOCK",
];

pub(super) fn check_database(session: &mut Session, dbcc: &Dbcc, out: &mut Out) -> Flow {
    let depth = depth(session, dbcc)?;
    let name = database_name(session, dbcc)?;
    check_system(session, &name, "DBCC CHECKDB")?;
    let database = database(session, &name)?;
    let path = match &database.source {
        SourceSpec::Sqlite(path) => path,
        SourceSpec::Postgres(_) => {
            let what = format!(
                "DBCC CHECKDB of a PostgreSQL cluster (longshore drill {} checks its newest backup with pg_amcheck)",
                database.name
            );
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        SourceSpec::Files(_) => {
            let what = "DBCC CHECKDB of a file tree, which has nothing that checks it";
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
    };
    let mut context = session.server.setup.context.clone();
    context.cancel = session.cancel_flag();
    let checked = check_sqlite(&context, path, database.trust_locks, (depth, FINDINGS_MAX));
    let found = checked.map_err(|e| refusal::of(&e))?;
    let quiet = dbcc.options.iter().any(|(o, _)| o == "NO_INFOMSGS");
    let mut said = Vec::new();
    if !quiet {
        said.push(message::DBCC_RESULTS.with(&[&database.name]));
    }
    let is_allocation = |text: &String| text.contains("Freelist") || text.ends_with("never used");
    let allocation = found.iter().filter(|text| is_allocation(text)).count();
    let finding = |text: &String| message::OWN.with(&[&format!("SQLite found damage: {text}")]);
    said.extend(found.iter().map(finding));
    if found.len() >= FINDINGS_MAX as usize {
        let text = format!("SQLite stopped after {FINDINGS_MAX} findings: there may be more");
        said.push(message::DETAIL.with(&[&text]));
    }
    if !quiet || !found.is_empty() {
        let consistency = found.len() - allocation;
        let values: [&dyn std::fmt::Display; 4] =
            [&"CHECKDB", &allocation, &consistency, &database.name];
        said.push(message::CHECK_FOUND.with(&values));
    }
    if !quiet {
        said.push(message::DBCC_DONE.plain());
    }
    if !found.is_empty() {
        return Err(said.into());
    }
    for message in said {
        out.say(message)?;
    }
    Ok(out.done(Command::Other, None)?)
}

/// How much is checked. Errors: 2526, and 50002 for repairs and estimates.
fn depth(session: &Session, dbcc: &Dbcc) -> Result<CheckDepth, Message> {
    let refused = |word: &str| message::NOT_HERE.with(&[&format!("DBCC CHECKDB with {word}")]);
    let mut depth = CheckDepth::Full;
    if dbcc.arguments.len() > 2 {
        return Err(message::DBCC_UNKNOWN.plain());
    }
    if let Some(word) = dbcc.arguments.get(1) {
        let word = session.value_of(word)?.to_string().to_ascii_uppercase();
        match word.as_str() {
            "NOINDEX" => depth = CheckDepth::Physical,
            "REPAIR_ALLOW_DATA_LOSS" | "REPAIR_FAST" | "REPAIR_REBUILD" => {
                return Err(refused(&word));
            }
            _ => return Err(message::DBCC_UNKNOWN.plain()),
        }
    }
    for (option, _) in &dbcc.options {
        match option.as_str() {
            "PHYSICAL_ONLY" => depth = CheckDepth::Physical,
            "ESTIMATEONLY" => return Err(refused(option)),
            known if ACCEPTED.contains(&known) => {}
            _ => return Err(message::DBCC_UNKNOWN.plain()),
        }
    }
    Ok(depth)
}

/// The database that is meant: by name, by number, or that of the session. Errors: 2526.
fn database_name(session: &Session, dbcc: &Dbcc) -> Result<String, Message> {
    let Some(given) = dbcc.arguments.first() else {
        return Ok(session.database.clone());
    };
    let given = session.value_of(given)?;
    let number = match &given {
        Value::Text(name) => return Ok(name.clone()),
        Value::Null => None,
        other => match convert(other, Type::Int)? {
            Value::Int(number) => Some(number),
            _ => None,
        },
    };
    match number {
        Some(0) => Ok(session.database.clone()),
        Some(number) => {
            let name = query::database_of(&session.server, number);
            name.ok_or_else(|| message::DATABASE_MISSING.with(&[&number]))
        }
        None => Err(message::DBCC_UNKNOWN.plain()),
    }
}
