//! Procedures that tell about the server: sp_who, sp_helpdb, sp_MSforeachdb; and those that purge what there is not.
//!
//! Invariants
//! - Nothing is changed but by the text that sp_MSforeachdb is given.
//!
//! Leaves to others: the facts (`server`).

use std::collections::BTreeMap;

use super::arguments::Arguments;
use crate::flow::{FIRST_DATABASE, Flow, Out, SYSTEM_DATABASES};
use crate::message;
use crate::query;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Fragment;
use crate::value::{Column, Type, Value};

/// The sessions: who is there, and what runs.
pub(super) fn who(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [_] = arguments.of(["@loginame"])?;
    let columns = [
        ("spid", Type::SmallInt),
        ("ecid", Type::SmallInt),
        ("status", Type::nvarchar(30)),
        ("loginame", Type::nvarchar(128)),
        ("hostname", Type::nvarchar(128)),
        ("blk", Type::Char(5)),
        ("dbname", Type::nvarchar(128)),
        ("cmd", Type::nvarchar(26)),
        ("request_id", Type::Int),
    ];
    out.sink
        .columns(&columns.map(|(name, kind)| Column::new(name, kind)))?;
    let activities = session.server.activities.lock().clone();
    let ids = session.server.session_numbers();
    let count = ids.len() as u64;
    for id in ids {
        let is_own = id == session.id();
        let activity = activities.get(&id);
        let database = match activity {
            Some(activity) => activity.database.clone(),
            None if is_own => session.database.clone(),
            None => FIRST_DATABASE.to_owned(),
        };
        let own = |text: &str| match is_own {
            true => Value::text(text),
            false => Value::text(""),
        };
        let command = activity.map_or("AWAITING COMMAND", |a| a.command);
        let status = if activity.is_some() || is_own {
            "runnable"
        } else {
            "sleeping"
        };
        out.sink.row(&[
            Value::Int(id.into()),
            Value::Int(0),
            Value::text(status),
            own(&session.login.user),
            own(&session.login.host),
            Value::text("0    "),
            Value::Text(database),
            Value::text(if is_own { "EXECUTE" } else { command }),
            Value::Int(0),
        ])?;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}

/// The databases, or one of them. Errors: 15010.
pub(super) fn help_database(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name] = arguments.of(["@dbname"])?;
    let query = "SELECT d.name, STR(ISNULL(SUM(CAST(f.size AS bigint)), 0) * 8 / 1024.0, 10, 2) + ' MB' AS db_size, \
                 'sa' AS owner, CAST(d.database_id AS smallint) AS dbid, \
                 CONVERT(nvarchar(11), d.create_date, 100) AS created, \
                 'Status=' + d.state_desc + ', Updateability=READ_WRITE, UserAccess=' + d.user_access_desc + \
                 ', Recovery=' + d.recovery_model_desc AS status, d.compatibility_level \
                 FROM sys.databases d LEFT JOIN sys.master_files f ON f.database_id = d.database_id";
    let filter = match name {
        None | Some(Value::Null) => String::new(),
        Some(name) => {
            let name = name.to_string();
            let mut known = session.server.database_names().into_iter();
            if !known.any(|known| known.eq_ignore_ascii_case(&name)) {
                return Err(message::DATABASE_UNKNOWN.with(&[&name]).into());
            }
            format!(" WHERE d.name = N'{}'", name.replace('\'', "''"))
        }
    };
    let rest = "GROUP BY d.name, d.database_id, d.create_date, d.state_desc, d.user_access_desc, \
                d.recovery_model_desc, d.compatibility_level ORDER BY d.name";
    let query = Fragment::at_line(format!("{query}{filter} {rest}"), out.line);
    let plan = query::prepare(&session.query_context(), &query)?;
    let sqlite = session.query_context().sqlite(&plan)?;
    out.sink.columns(&plan.columns)?;
    let count = sqlite.run(&plan, &mut |row| Ok(out.sink.row(&row)?))?;
    Ok(out.done(Command::Execute, Some(count))?)
}

/// Runs a text for each database, with its name in the place of `?`.
pub(super) fn for_each_database(
    session: &mut Session,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let parameters = ["@command1", "@replacechar", "@command2", "@command3"];
    let [first, mark, second, third] = arguments.of(parameters)?;
    let first = first.ok_or_else(|| arguments.missing("@command1"))?;
    let mark = match mark {
        None | Some(Value::Null) => "?".to_owned(),
        Some(mark) => mark.to_string(),
    };
    if mark.is_empty() {
        return Err(message::INVALID_PARAMETER.with(&[&"sp_MSforeachdb"]).into());
    }
    let texts = [Some(first), second, third].into_iter().flatten();
    let texts: Vec<String> = texts
        .filter(|t| !t.is_null())
        .map(|t| t.to_string())
        .collect();
    let names = SYSTEM_DATABASES.iter().map(|name| (*name).to_owned());
    for name in names.chain(session.server.database_names()) {
        for text in &texts {
            if text
                .len()
                .saturating_add(text.matches(&mark).count() * name.len())
                > crate::variables::VALUE_MAX
            {
                return Err(crate::variables::too_much().into());
            }
            session.nested(&text.replace(&mark, &name), BTreeMap::new(), 1, out)?;
        }
    }
    Ok(())
}

/// Jobs and maintenance plans leave no history here.
pub(super) fn purge_nothing(_: &mut Session, _: &Arguments, out: &mut Out) -> Flow {
    Ok(out.done(Command::Execute, None)?)
}
