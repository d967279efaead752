//! DBCC TRACEON, TRACEOFF, TRACESTATUS, SQLPERF and OPENTRAN; the way to CHECKDB and CHECKIDENT.
//!
//! Any number is accepted, as in SQL Server. The ones with an effect: 3213 shows the buffers of backups (`trace.rs`),
//! 3604 sends such lines to the client, 3605 to the log, 3226 keeps successful backups out of the log.
//!
//! Invariants
//! - A command of SQL Server's that is not supported here is refused by name (50002), any other word with 2526.
//!
//! Leaves to others: the effects of trace flags (`trace.rs`, `backup.rs`), CHECKDB (`checkdb.rs`), and CHECKIDENT (`identity.rs`).

use super::checkdb::check_database;
use super::identity::check_identity;
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Dbcc, Operand};
use crate::value::{Column, Type, Value};

/// Among the flags it means: for all sessions.
const EVERYWHERE: i64 = -1;

/// Commands of SQL Server's that are not supported here.
const ELSEWHERE: &[&str] = &[
    "ADDEXTENDEDPROC",
    "CHECKALLOC",
    "CHECKCATALOG",
    "CHECKCONSTRAINTS",
    "CHECKFILEGROUP",
    "CHECKTABLE",
    "CLEANTABLE",
    "CLONEDATABASE",
    "DBINFO",
    "DBREINDEX",
    "DROPCLEANBUFFERS",
    "DROPEXTENDEDPROC",
    "ERRORLOG",
    "FLUSHPROCINDB",
    "FREEPROCCACHE",
    "FREESESSIONCACHE",
    "FREESYSTEMCACHE",
    "HELP",
    "IND",
    "INDEXDEFRAG",
    "INPUTBUFFER",
    "LOG",
    "LOGINFO",
    "MEMORYSTATUS",
    "OUTPUTBUFFER",
    "PAGE",
    "PINTABLE",
    "PROCCACHE",
    "SHOWCONTIG",
    "SHOW_STATISTICS",
    "SHRINKDATABASE",
    "SHRINKFILE",
    "SQLPERF",
    "UNPINTABLE",
    "UPDATEUSAGE",
    "USEROPTIONS",
];

pub(crate) fn dbcc(session: &mut Session, dbcc: &Dbcc, out: &mut Out) -> Flow {
    if dbcc.command == "CHECKDB" {
        return check_database(session, dbcc, out);
    }
    match (dbcc.command.as_str(), dbcc.arguments.as_slice()) {
        ("CHECKIDENT", _) => return check_identity(session, dbcc, out),
        ("SQLPERF", [Operand::Text(what)]) if what.eq_ignore_ascii_case("LOGSPACE") => {
            log_space(session, out)?;
            return finish(dbcc, out);
        }
        // A transaction here holds no log.
        ("OPENTRAN", _) => {
            out.say(message::NO_OPEN_TRANSACTIONS.plain())?;
            return finish(dbcc, out);
        }
        _ => {}
    }
    let flags = dbcc
        .arguments
        .iter()
        .map(
            |operand| match convert(&session.value_of(operand)?, Type::Int)? {
                Value::Int(n) => Ok(n),
                _ => Err(message::DBCC_UNKNOWN.plain()),
            },
        )
        .collect::<Result<Vec<_>, Message>>();
    match dbcc.command.as_str() {
        "TRACEON" => change(session, &flags?, true),
        "TRACEOFF" => change(session, &flags?, false),
        "TRACESTATUS" => show(session, &flags?, out)?,
        known if ELSEWHERE.contains(&known) => {
            return Err(message::NOT_HERE.with(&[&format!("DBCC {known}")]).into());
        }
        _ => return Err(message::DBCC_UNKNOWN.plain().into()),
    }
    finish(dbcc, out)
}

fn finish(dbcc: &Dbcc, out: &mut Out) -> Flow {
    if !dbcc.options.iter().any(|(o, _)| o == "NO_INFOMSGS") {
        out.say(message::DBCC_DONE.plain())?;
    }
    Ok(out.done(Command::Other, None)?)
}

/// The databases. The sizes of their logs only their own engines know.
fn log_space(session: &Session, out: &mut Out) -> Flow {
    let names = session.server.database_names();
    out.sink.columns(&[
        Column::new("Database Name", Type::nvarchar(128)),
        Column::new("Log Size (MB)", Type::Float),
        Column::new("Log Space Used (%)", Type::Float),
        Column::new("Status", Type::Int),
    ])?;
    for name in &names {
        let name = Value::text(name.as_str());
        out.sink
            .row(&[name, Value::Null, Value::Null, Value::Int(0)])?;
    }
    Ok(out.done(Command::Select, Some(names.len() as u64))?)
}

fn change(session: &mut Session, flags: &[i64], on: bool) {
    let everywhere = flags.contains(&EVERYWHERE);
    for flag in flags.iter().filter(|f| **f != EVERYWHERE) {
        let mut shared = session.server.trace_flags.lock();
        let set = match everywhere {
            true => &mut *shared,
            false => &mut session.trace_flags,
        };
        match on {
            true => set.insert(*flag),
            false => set.remove(flag),
        };
    }
}

fn show(session: &Session, asked: &[i64], out: &mut Out) -> Flow {
    let shared = session.server.trace_flags.lock().clone();
    let own = &session.trace_flags;
    let named: Vec<_> = asked
        .iter()
        .filter(|f| **f != EVERYWHERE)
        .copied()
        .collect();
    let flags: Vec<i64> = match named.is_empty() {
        true => own.union(&shared).copied().collect(),
        false => named,
    };
    let columns = ["TraceFlag", "Status", "Global", "Session"];
    let columns: Vec<_> = columns
        .iter()
        .map(|c| Column::new(*c, Type::SmallInt))
        .collect();
    out.sink.columns(&columns)?;
    for flag in &flags {
        let (here, everywhere) = (own.contains(flag), shared.contains(flag));
        out.sink.row(&[
            Value::Int(*flag),
            Value::bit(here || everywhere),
            Value::bit(everywhere),
            Value::bit(here),
        ])?;
    }
    Ok(out.done(Command::Other, Some(flags.len() as u64))?)
}
