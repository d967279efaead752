//! DBCC CHECKDB: has the database's own engine check it, and reports what it finds.
//!
//! Invariants
//! - Nothing is written to the database: repairs are refused by name (50002).
//! - Damage is an error (severity 16) for each finding, in the engine's words; then 8989 counts them, also under
//!   NO_INFOMSGS. Under TABLERESULTS they are rows, and no errors.
//! - Memory is bounded: up to [`FINDINGS_MAX`] findings are told.
//!
//! Leaves to others: the check itself (`longshore-pipeline`).

use longshore_pipeline::{CheckDepth, SourceSpec, check_postgres, check_sqlite};

use super::backup::{check_system, database};
use crate::convert::convert;
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::query;
use crate::refusal;
use crate::server::Database;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Dbcc;
use crate::value::{Column, Type, Value};

/// The most findings that are told.
const FINDINGS_MAX: u32 = 1000;

/// Options that change nothing here: all findings are told, and no snapshot is made that locks could spare.
const ACCEPTED: [&str; 7] = [
    "ALL_ERRORMSGS",
    "DATA_PURITY",
    "EXTENDED_LOGICAL_CHECKS",
    "MAXDOP",
    "NO_INFOMSGS",
    "TABLERESULTS",
    "TABLOCK",
];

/// The columns of TABLERESULTS. Of a finding its text alone is known here.
const RESULTS: [(&str, Type); 23] = [
    ("Error", Type::Int),
    ("Level", Type::Int),
    ("State", Type::Int),
    ("MessageText", Type::NVarChar(None)),
    ("RepairLevel", Type::nvarchar(128)),
    ("Status", Type::Int),
    ("DbId", Type::Int),
    ("DbFragId", Type::Int),
    ("ObjectId", Type::Int),
    ("IndexId", Type::Int),
    ("PartitionId", Type::BigInt),
    ("AllocUnitId", Type::BigInt),
    ("RidDbId", Type::Int),
    ("RidPruId", Type::Int),
    ("File", Type::Int),
    ("Page", Type::Int),
    ("Slot", Type::Int),
    ("RefDbId", Type::Int),
    ("RefPruId", Type::Int),
    ("RefFile", Type::Int),
    ("RefPage", Type::Int),
    ("RefSlot", Type::Int),
    ("Allocation", Type::Int),
];

/// The result of an engine's own check.
struct Checked {
    engine: &'static str,
    findings: Vec<String>,
    /// Indexes of users' own functions, which are not called.
    indexes_left_out: u64,
}

pub(super) fn check_database(session: &mut Session, dbcc: &Dbcc, out: &mut Out) -> Flow {
    let depth = depth(session, dbcc)?;
    let name = database_name(session, dbcc)?;
    check_system(session, &name, "DBCC CHECKDB")?;
    let database = database(session, &name)?;
    let start_us = session.server.now_us();
    let checked = check(session, &database, depth)?;
    let is_sound = checked.findings.is_empty();
    session.server.record_check(&database, start_us, is_sound);
    let (engine, found) = (checked.engine, checked.findings);
    let quiet = dbcc.options.iter().any(|(o, _)| o == "NO_INFOMSGS");
    let mut said = Vec::new();
    if !quiet {
        said.push(message::DBCC_RESULTS.with(&[&database.name]));
    }
    let is_allocation = |text: &String| text.contains("Freelist") || text.ends_with("never used");
    let allocation = match database.source {
        SourceSpec::Sqlite(_) => found.iter().filter(|text| is_allocation(text)).count(),
        _ => 0,
    };
    let finding = |text: &String| message::OWN.with(&[&format!("{engine} found damage: {text}")]);
    said.extend(found.iter().map(finding));
    if found.len() >= FINDINGS_MAX as usize {
        let text = format!("{engine} stopped after {FINDINGS_MAX} findings: there may be more");
        said.push(message::DETAIL.with(&[&text]));
    }
    if let count @ 1.. = checked.indexes_left_out {
        let text = format!(
            "{count} indexes were not checked, since that would call functions of users: longshore drill {} checks a copy",
            database.name
        );
        said.push(message::DETAIL.with(&[&text]));
    }
    if !quiet || !found.is_empty() {
        let consistency = found.len() - allocation;
        let values: [&dyn std::fmt::Display; 4] =
            [&"CHECKDB", &allocation, &consistency, &database.name];
        said.push(message::CHECK_FOUND.with(&values));
    }
    let as_rows = dbcc.options.iter().any(|(o, _)| o == "TABLERESULTS");
    if as_rows {
        show(session, &database, &said, out)?;
        said.clear();
    }
    if !quiet {
        said.push(message::DBCC_DONE.plain());
    }
    if !found.is_empty() && !as_rows {
        return Err(said.into());
    }
    for message in said {
        out.say(message)?;
    }
    Ok(out.done(Command::Other, None)?)
}

/// The answer of the check, a row for each message.
fn show(session: &Session, database: &Database, said: &[Message], out: &mut Out) -> Flow {
    let columns = RESULTS.map(|(name, kind)| Column::new(name, kind));
    out.sink.columns(&columns)?;
    let number = query::database_number(&session.server, &database.name);
    let number = number.map_or(Value::Null, Value::Int);
    for message in said {
        let mut row = vec![Value::Null; columns.len()];
        row[0] = Value::Int(message.number.into());
        row[1] = Value::Int(message.severity.into());
        row[2] = Value::Int(message.state.into());
        row[3] = Value::text(message.text.as_str());
        row[6] = number.clone();
        out.sink.row(&row)?;
    }
    Ok(out.done(Command::Select, Some(said.len() as u64))?)
}

/// Has the database's own engine check it.
fn check(session: &Session, database: &Database, depth: CheckDepth) -> Result<Checked, Stop> {
    let mut context = session.server.setup.context.clone();
    context.cancel = session.cancel_flag();
    let extent = (depth, FINDINGS_MAX);
    match &database.source {
        SourceSpec::Sqlite(path) => {
            let found = check_sqlite(&context, path, database.trust_locks, extent);
            Ok(Checked {
                engine: "SQLite",
                findings: found.map_err(|e| refusal::of(&e))?,
                indexes_left_out: 0,
            })
        }
        SourceSpec::Postgres(server) => {
            let found = check_postgres(&context, server, extent).map_err(|e| refusal::of(&e))?;
            if let [first, rest @ ..] = found.without_extension.as_slice() {
                let more = match rest.len() {
                    0 => String::new(),
                    n => format!(" and {n} others"),
                };
                let what = format!(
                    "DBCC CHECKDB of a cluster whose database {first}{more} lacks the extension amcheck (CREATE EXTENSION \
                     amcheck in each adds it; longshore drill {} checks its newest backup without)",
                    database.name
                );
                return Err(message::NOT_HERE.with(&[&what]).into());
            }
            Ok(Checked {
                engine: "PostgreSQL",
                findings: found.findings,
                indexes_left_out: found.indexes_left_out,
            })
        }
        SourceSpec::Files(_) => {
            let what = "DBCC CHECKDB of a file tree, which has nothing that checks it";
            Err(message::NOT_HERE.with(&[&what]).into())
        }
    }
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
