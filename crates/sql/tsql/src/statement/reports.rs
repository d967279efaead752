//! Procedures that tell about the server: sp_who, sp_helpdb, sp_helpfile, sp_spaceused, sp_MSforeachdb; and those that purge what there is not.
//!
//! Invariants
//! - Nothing is changed but by the text that sp_MSforeachdb is given.
//!
//! Leaves to others: the facts (`server`).

use std::collections::BTreeMap;

use super::arguments::Arguments;
use super::catalog;
use crate::convert::convert;
use crate::flow::{Flow, Out, SYSTEM_DATABASES};
use crate::message::{self, Message};
use crate::query;
use crate::server::{Activity, SessionFacts};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Fragment;
use crate::value::{Column, Type, Value};

/// The sessions that a report is about.
enum Wanted {
    All,
    /// Those that do not wait for a command.
    Active,
    Session(u32),
    Login(String),
}

impl Wanted {
    fn of(given: Option<Value>) -> Wanted {
        let given = match given {
            None | Some(Value::Null) => return Wanted::All,
            Some(given) => given.to_string(),
        };
        match given.trim().parse() {
            Ok(number) => Wanted::Session(number),
            Err(_) if given.eq_ignore_ascii_case("active") => Wanted::Active,
            Err(_) => Wanted::Login(given),
        }
    }

    /// Those of the sessions that are wanted. Errors: 15007 for a login that has none.
    fn chosen(&self, session: &Session) -> Result<Vec<(u32, SessionFacts)>, Message> {
        let all = session.server.sessions.all().into_iter();
        let is_wanted = |(id, facts): &(u32, SessionFacts)| match self {
            Wanted::All => true,
            Wanted::Active => facts.state.is_running,
            Wanted::Session(number) => id == number,
            Wanted::Login(name) => facts.login.user.eq_ignore_ascii_case(name),
        };
        let chosen: Vec<_> = all.filter(is_wanted).collect();
        match self {
            Wanted::Login(name) if chosen.is_empty() => Err(message::LOGIN_UNKNOWN.with(&[name])),
            _ => Ok(chosen),
        }
    }
}

/// The command that a session runs: of a batch only backups and restores are known, and the batch that asks.
fn command_of(
    session: &Session,
    id: u32,
    facts: &SessionFacts,
    activities: &BTreeMap<u32, Activity>,
) -> Value {
    match activities.get(&id) {
        _ if id == session.id() => Value::text("EXECUTE"),
        Some(activity) => Value::text(activity.command),
        None if facts.state.is_running => Value::Null,
        None => Value::text("AWAITING COMMAND"),
    }
}

/// The sessions: who is there, and what runs.
pub(super) fn who(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [login] = arguments.of(["@loginame"])?;
    let chosen = Wanted::of(login).chosen(session)?;
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
    let waits = session.server.lock_waits();
    let count = chosen.len() as u64;
    for (id, facts) in chosen {
        let blocker = waits.get(&id).map(|wait| wait.blocker);
        let status = match (blocker, facts.state.is_running) {
            (Some(_), _) => "suspended",
            (None, true) => "runnable",
            (None, false) => "sleeping",
        };
        let command = command_of(session, id, &facts, &activities);
        out.sink.row(&[
            Value::Int(id.into()),
            Value::Int(0),
            Value::text(status),
            Value::Text(facts.login.user),
            Value::Text(facts.login.host),
            Value::text(format!("{:<5}", blocker.unwrap_or(0))),
            Value::Text(facts.state.database),
            command,
            Value::Int(0),
        ])?;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}

/// The same with the columns of `sp_who2`; `active` leaves out who waits for a command.
pub(super) fn who_2(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [login] = arguments.of(["@loginame"])?;
    let chosen = Wanted::of(login).chosen(session)?;
    let columns = [
        ("SPID", Type::Char(5)),
        ("Status", Type::nvarchar(30)),
        ("Login", Type::nvarchar(128)),
        ("HostName", Type::nvarchar(128)),
        ("BlkBy", Type::Char(5)),
        ("DBName", Type::nvarchar(128)),
        ("Command", Type::nvarchar(32)),
        ("CPUTime", Type::VarChar(Some(30))),
        ("DiskIO", Type::VarChar(Some(30))),
        ("LastBatch", Type::VarChar(Some(48))),
        ("ProgramName", Type::nvarchar(128)),
        ("SPID", Type::Char(5)),
        ("REQUESTID", Type::Char(5)),
    ];
    out.sink
        .columns(&columns.map(|(name, kind)| Column::new(name, kind)))?;
    let activities = session.server.activities.lock().clone();
    let waits = session.server.lock_waits();
    let count = chosen.len() as u64;
    for (id, facts) in chosen {
        let blocker = waits.get(&id).map(|wait| wait.blocker);
        let status = match (blocker, facts.state.is_running) {
            (Some(_), _) => "SUSPENDED",
            (None, true) => "RUNNABLE",
            (None, false) => "sleeping",
        };
        let command = command_of(session, id, &facts, &activities);
        let begun = facts.begun.unwrap_or(facts.since);
        let begun = begun.strftime("%m/%d %H:%M:%S").to_string();
        let host = match facts.login.host.as_str() {
            "" => "  .",
            host => host,
        };
        let number = Value::text(format!("{id:<5}"));
        out.sink.row(&[
            number.clone(),
            Value::text(status),
            Value::Text(facts.login.user),
            Value::text(host),
            Value::Text(blocker.map_or("  .  ".to_owned(), |blocker| format!("{blocker:<5}"))),
            Value::Text(facts.state.database),
            command,
            Value::Null,
            Value::Null,
            Value::Text(begun),
            Value::Text(facts.login.program),
            number,
            Value::text("0    "),
        ])?;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}

/// The files of a database as procedures show them, from `sys.database_files` or `sys.master_files`.
const FILE_COLUMNS: &str = "name, CAST(file_id AS smallint) AS fileid, physical_name AS filename, \
     CAST(CASE data_space_id WHEN 1 THEN 'PRIMARY' END AS nvarchar(128)) AS filegroup, \
     CAST(CAST(CAST(size AS bigint) * 8 AS varchar(15)) + ' KB' AS nvarchar(18)) AS size, \
     CAST(CASE max_size WHEN -1 THEN 'Unlimited' ELSE CAST(CAST(max_size AS bigint) * 8 AS varchar(15)) + ' KB' END \
     AS nvarchar(18)) AS maxsize, \
     CAST(CAST(CAST(growth AS bigint) * 8 AS varchar(15)) + ' KB' AS nvarchar(18)) AS growth, \
     CAST(CASE type WHEN 1 THEN 'log only' ELSE 'data only' END AS varchar(9)) AS usage";

/// The files of the database in use, or one of them. Errors: 15325.
pub(super) fn help_file(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name] = arguments.of(["@filename"])?;
    let mut text = format!("SELECT {FILE_COLUMNS} FROM sys.database_files");
    if let Some(name) = name.filter(|n| !n.is_null()) {
        let name = name.to_string();
        let filter = format!(" WHERE name = N'{}'", name.replace('\'', "''"));
        let asked = format!("SELECT COUNT(*) FROM sys.database_files{filter}");
        let found = query::scalar(
            &session.query_context(),
            &Fragment::new(format!("({asked})")),
        )?;
        if found.value == Value::Int(0) {
            return Err(message::FILE_UNKNOWN.with(&[&"file", &name]).into());
        }
        text += &filter;
    }
    catalog::show(session, text + " ORDER BY fileid", BTreeMap::new(), out)
}

/// The logical backup devices, or one of them; what there is no fact of is NULL. Errors: 15015.
pub(super) fn help_device(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    /// A device that is a file.
    const DISK: i64 = 2;
    let [name] = arguments.of(["@devname"])?;
    let mut devices = session.server.kept.devices();
    if let Some(name) = name.filter(|n| !n.is_null()) {
        let name = name.to_string();
        devices.retain(|(known, _)| known.eq_ignore_ascii_case(&name));
        if devices.is_empty() {
            return Err(message::DEVICE_NOT_THERE.with(&[&name]).into());
        }
    }
    out.sink.columns(&[
        Column::new("device_name", Type::nvarchar(128)),
        Column::new("physical_name", Type::nvarchar(260)),
        Column::new("description", Type::nvarchar(255)),
        Column::new("status", Type::Int),
        Column::new("cntrltype", Type::SmallInt),
        Column::new("size", Type::Int),
    ])?;
    let count = devices.len() as u64;
    for (name, path) in devices {
        out.sink.row(&[
            Value::Text(name),
            Value::text(path.display().to_string()),
            Value::Null,
            Value::Null,
            Value::Int(DISK),
            Value::Null,
        ])?;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}

/// The databases by name, with their sizes in kilobytes.
pub(super) fn databases(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [] = arguments.of([])?;
    let query = "SELECT d.name AS DATABASE_NAME, CAST((SELECT SUM(CAST(f.size AS bigint)) FROM sys.master_files f \
                 WHERE f.database_id = d.database_id AND f.size IS NOT NULL) * 8 AS int) AS DATABASE_SIZE, \
                 CAST(NULL AS varchar(254)) AS REMARKS FROM sys.databases d ORDER BY d.name";
    let query = Fragment::at_line(query.to_owned(), out.line);
    let plan = query::prepare(&session.query_context(), &query)?;
    let sqlite = session.query_context().sqlite(&plan)?;
    out.sink.columns(&plan.columns)?;
    let count = sqlite.run(&plan, &mut |row| Ok(out.sink.row(&row)?))?;
    Ok(out.done(Command::Execute, Some(count))?)
}

/// A value of SQL Server's registry: only the directory of backups is known. Errors: 50002.
pub(super) fn registry(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let parameters = ["@rootkey", "@key", "@value_name", "@value", "@no_output"];
    let [_, _, name, ..] = arguments.of(parameters)?;
    let name = name
        .ok_or_else(|| arguments.missing("@value_name"))?
        .to_string();
    if !name.eq_ignore_ascii_case("BackupDirectory") {
        let what = format!("the value {name} of the registry");
        return Err(message::NOT_HERE.with(&[&what]).into());
    }
    let directory = session.server.setup.backup_directory.display().to_string();
    let directory = Value::Text(directory);
    let target = arguments
        .passed
        .iter()
        .find_map(|passed| passed.output.clone());
    if let Some(variable) = target {
        let kind = session.variable(&variable)?.kind;
        session.set_variable(&variable, convert(&directory, kind)?)?;
        return Ok(out.done(Command::Execute, None)?);
    }
    out.sink.columns(&[
        Column::new("Value", Type::nvarchar(256)),
        Column::new("Data", Type::nvarchar(4000)),
    ])?;
    out.sink.row(&[Value::Text(name), directory])?;
    Ok(out.done(Command::Execute, Some(1))?)
}

/// The most characters of a message of xp_logevent.
const EVENT_MAX: usize = 2048;

/// Writes a message of a script into the log.
pub(super) fn log_event(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [number, text, severity] = arguments.of(["@error_number", "@message", "@severity"])?;
    let number = number.ok_or_else(|| arguments.missing("@error_number"))?;
    let text = text.ok_or_else(|| arguments.missing("@message"))?;
    let severity = severity.map_or("INFORMATIONAL".to_owned(), |s| s.to_string().to_uppercase());
    let text = text.to_string();
    let text: String = text.chars().take(EVENT_MAX).collect();
    let line = format!("Error: {number}, Severity: {severity}. {text}");
    session
        .server
        .write_log(&format!("spid{}", session.id()), &line);
    Ok(out.done(Command::Execute, None)?)
}

/// The databases, or one of them. Errors: 15010.
pub(super) fn help_database(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name] = arguments.of(["@dbname"])?;
    let query = "SELECT d.name, STR(SUM(CAST(f.size AS bigint)) * 8 / 1024.0, 10, 2) + ' MB' AS db_size, \
                 'sa' AS owner, CAST(d.database_id AS smallint) AS dbid, \
                 CONVERT(nvarchar(11), d.create_date, 100) AS created, \
                 'Status=' + d.state_desc + ', Updateability=READ_WRITE, UserAccess=' + d.user_access_desc + \
                 ', Recovery=' + d.recovery_model_desc AS status, d.compatibility_level \
                 FROM sys.databases d LEFT JOIN sys.master_files f ON f.database_id = d.database_id";
    let name = name.filter(|n| !n.is_null()).map(|n| n.to_string());
    let filter = match &name {
        None => String::new(),
        Some(name) => {
            let mut known = session.server.database_names().into_iter();
            if !known.any(|known| known.eq_ignore_ascii_case(name)) {
                return Err(message::DATABASE_UNKNOWN.with(&[name]).into());
            }
            format!(" WHERE d.name = N'{}'", name.replace('\'', "''"))
        }
    };
    let rest = "GROUP BY d.name, d.database_id, d.create_date, d.state_desc, d.user_access_desc, \
                d.recovery_model_desc, d.compatibility_level ORDER BY d.name";
    let query = format!("{query}{filter} {rest}");
    catalog::show(session, query, BTreeMap::new(), out)?;
    let Some(name) = name else {
        return Ok(());
    };
    let text = format!(
        "SELECT {FILE_COLUMNS} FROM sys.master_files WHERE database_id = DB_ID(N'{}') ORDER BY fileid",
        name.replace('\'', "''")
    );
    catalog::show(session, text, BTreeMap::new(), out)
}

/// The size of the database in use, or of a table of it. NULL is what only the database's own engine knows.
///
/// Errors: 15009, 15143, 15234, 15250; 50002 for other parts of tables than those here.
pub(super) fn space_used(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let parameters = [
        "@objname",
        "@updateusage",
        "@mode",
        "@oneresultset",
        "@include_total_xtp_storage",
    ];
    let given = arguments.of(parameters)?;
    let [object, update, mode, one, _] = given.map(|value| value.filter(|v| !v.is_null()));
    let update = update.map_or_else(String::new, |v| v.to_string().to_lowercase());
    if !["", "true", "false"].contains(&update.as_str()) {
        return Err(message::UPDATE_USAGE.with(&[&update]).into());
    }
    let mode = mode.map_or_else(String::new, |v| v.to_string().to_uppercase());
    if !["", "ALL", "LOCAL_ONLY"].contains(&mode.as_str()) {
        let what = format!("sp_spaceused with @mode = '{mode}'");
        return Err(message::NOT_HERE.with(&[&what]).into());
    }
    let kilobytes =
        |pages: &str| format!("CAST(LTRIM(STR({pages} * 8, 15, 0)) + ' KB' AS varchar(18))");
    let unknown = "CAST(NULL AS varchar(18))";
    if let Some(object) = object {
        let (reserved, none) = (kilobytes("SUM(p.reserved_page_count)"), kilobytes("0"));
        let text = format!(
            "SELECT OBJECT_NAME(p.object_id) AS name, \
             CAST(SUM(CASE WHEN p.index_id < 2 THEN p.row_count END) AS char(20)) AS rows, {reserved} AS reserved, \
             {reserved} AS data, {none} AS index_size, {none} AS unused \
             FROM sys.dm_db_partition_stats p WHERE p.object_id = {} GROUP BY p.object_id",
            table_of(session, &object.to_string())?
        );
        return catalog::show(session, text, BTreeMap::new(), out);
    }
    let pages = "SUM(CAST(size AS bigint))";
    let size = format!(
        "DB_NAME() AS database_name, CAST(LTRIM(STR({pages} * 8 / 1024.0, 15, 2)) + ' MB' AS varchar(18)) AS database_size, \
         {unknown} AS [unallocated space]"
    );
    let parts = format!(
        "{} AS reserved, {unknown} AS data, {unknown} AS index_size, {unknown} AS unused",
        kilobytes(pages)
    );
    let is_one = match one {
        Some(one) => convert(&one, Type::Bit)? == Value::bit(true),
        None => false,
    };
    let sets = match is_one {
        true => vec![format!("{size}, {parts}")],
        false => vec![size, parts],
    };
    for items in sets {
        let text = format!("SELECT {items} FROM sys.database_files");
        catalog::show(session, text, BTreeMap::new(), out)?;
    }
    Ok(())
}

/// The number of a table. Errors: 15009, 15234, 15250.
fn table_of(session: &Session, name: &str) -> Result<i64, Message> {
    let unknown = || message::NO_SUCH_OBJECT.with(&[&name, &session.database]);
    let mut parts = query::name_parts(name).ok_or_else(unknown)?;
    parts.reverse();
    let here = &session.database;
    if let [.., database, _, _] = parts.as_slice()
        && !database.is_empty()
        && !database.eq_ignore_ascii_case(here)
    {
        return Err(message::QUALIFIER_OTHER.plain());
    }
    let found = session
        .server
        .kept
        .named(&parts, here)
        .ok_or_else(unknown)?;
    match found.table {
        Some(_) => Ok(found.object.id),
        None => Err(message::NO_OWN_SPACE.plain()),
    }
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
