//! EXEC: the known procedures, and their arguments.
//!
//! Invariants
//! - Arguments are bound by SQL Server's rules, by position or by name, and converted to the parameter's type.
//! - A procedure that is not known is refused with its message; none is silently accepted.
//!
//! Leaves to others: what a procedure does (`configure.rs`, `device.rs` and other files of `statement`), and parsing
//! the call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longshore_catalog::Forget;

use super::arguments::{ArgumentValue, Arguments, declared_parameters};
use super::device::{device_path, named_path};
use super::{
    applock, catalog, configure, describe, elsewhere, files, ground, rename, reports, routine,
};
use crate::convert::convert;
use crate::flow::{Argument, Flow, Out, SYSTEM_DATABASES, Stop, Variable};
use crate::message::{self, Message};
use crate::query;
use crate::refusal;
use crate::server::objects::StoredObject;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Execute, Statement, parse};
use crate::value::{Column, DateTime, Type, Value};
use crate::variables::Sum;

type Run = fn(&mut Session, &Arguments, &mut Out) -> Flow;

/// Its name, and what it does.
type Procedure = (&'static str, Run);

/// The procedure that runs a batch: its return status is the number of the batch's last error.
const EXECUTE_SQL: &str = "sp_executesql";

/// Each of `catalog.rs`, which knows their names.
const CATALOG: Procedure = ("", catalog::answer);

/// Procedures of the databases `master` and `msdb`, in the schemas `dbo` and `sys`, which every database sees.
const PROCEDURES: &[Procedure] = &[
    ("sp_addumpdevice", sp_addumpdevice),
    ("sp_configure", configure::sp_configure),
    ("sp_delete_backuphistory", sp_delete_backuphistory),
    (
        "sp_delete_database_backuphistory",
        sp_delete_database_backuphistory,
    ),
    ("sp_databases", reports::databases),
    ("sp_describe_first_result_set", describe::first_result_set),
    (
        "sp_describe_undeclared_parameters",
        describe::undeclared_parameters,
    ),
    ("sp_dropdevice", sp_dropdevice),
    (EXECUTE_SQL, sp_executesql),
    ("sp_getapplock", applock::get),
    ("sp_helpdb", reports::help_database),
    ("sp_helpdevice", reports::help_device),
    ("sp_helpfile", reports::help_file),
    ("sp_helptext", routine::help_text),
    ("sp_maintplan_delete_log", reports::purge_nothing),
    ("sp_MSforeachdb", reports::for_each_database),
    ("sp_purge_jobhistory", reports::purge_nothing),
    ("sp_readerrorlog", sp_readerrorlog),
    ("sp_releaseapplock", applock::release),
    ("sp_rename", rename::rename),
    ("sp_spaceused", reports::space_used),
    ("sp_who", reports::who),
    ("sp_who2", reports::who_2),
    ("xp_create_subdir", xp_create_subdir),
    ("xp_delete_file", files::delete_files),
    ("xp_dirtree", files::directory_tree),
    ("xp_fileexist", files::file_exists),
    ("xp_fixeddrives", files::drives),
    ("xp_instance_regread", reports::registry),
    ("xp_logevent", reports::log_event),
    ("xp_readerrorlog", xp_readerrorlog),
    ("xp_regread", reports::registry),
];

/// `place`: the name of the variable that holds an argument.
pub(crate) fn call(
    session: &mut Session,
    procedure: &str,
    arguments: &[Argument],
    place: impl Fn(usize) -> String,
    out: &mut Out,
) -> Flow {
    let unknown = || message::PROCEDURE_UNKNOWN.with(&[&procedure]);
    // FreeTDS writes the parts before the name also where they are empty.
    let procedure = procedure.trim_start_matches('.');
    let refused = |name: &[String]| match elsewhere::is_known(name) {
        true => message::NOT_HERE.with(&[&name.join(".")]),
        false => unknown(),
    };
    let parsed = parse(&format!("EXECUTE {procedure}")).map_err(|_| unknown())?;
    let name = match parsed.statements.as_slice() {
        [located] => match &located.statement {
            Statement::Execute(named) if named.arguments.is_empty() && named.code.is_none() => {
                &named.procedure
            }
            _ => return Err(unknown().into()),
        },
        _ => return Err(unknown().into()),
    };
    let found = find(name);
    let own = match found {
        Some(_) => None,
        None => Some(routine::find(session, name).ok_or_else(|| refused(name))?),
    };
    let passed = arguments
        .iter()
        .enumerate()
        .map(|(i, argument)| ArgumentValue {
            name: argument.name.as_ref().map(|n| n.to_lowercase()),
            value: (!argument.default).then(|| argument.variable.value.clone()),
            kind: Some(argument.variable.kind),
            output: argument.output.then(|| place(i)),
        });
    let arguments = Arguments {
        procedure: name.last().cloned().unwrap_or_default(),
        passed: passed.collect(),
    };
    match (found, own) {
        (Some(procedure), _) => in_database(session, name, |session| {
            perform(session, procedure, &arguments, out)
        }),
        (None, Some(own)) => perform_own(session, &own, &arguments, out),
        (None, None) => Err(unknown().into()),
    }
}

/// Runs a procedure that a script has created.
fn perform_own(
    session: &mut Session,
    own: &Arc<StoredObject>,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    session.error = 0;
    out.procedure(false, |out| routine::run(session, own, arguments, out))
}

/// Runs a procedure; `@@ERROR` after it is that of its last statement.
fn perform(
    session: &mut Session,
    procedure: &Procedure,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let (name, run) = *procedure;
    session.error = 0;
    out.procedure(name == EXECUTE_SQL, |out| run(session, arguments, out))
}

/// The name of the procedure that EXEC names, or that its variable has.
fn name_of(session: &Session, execute: &Execute) -> Result<Vec<String>, Message> {
    let Some(variable) = &execute.name_in else {
        return Ok(execute.procedure.clone());
    };
    let name = text(&session.variable(variable)?.value);
    let parts = query::name_parts(&name);
    let mut parts = parts.ok_or_else(|| message::PROCEDURE_UNKNOWN.with(&[&name]))?;
    parts.reverse();
    Ok(parts)
}

pub(crate) fn execute(session: &mut Session, execute: &Execute, out: &mut Out) -> Flow {
    if let Some(code) = &execute.code {
        session.variable(code)?;
    }
    let name = name_of(session, execute)?;
    let found = find(&name);
    let own = match found {
        Some(_) => None,
        None => routine::find(session, &name),
    };
    if found.is_none() && own.is_none() {
        let unknown = match elsewhere::is_known(&name) {
            true => message::NOT_HERE.with(&[&name.join(".")]),
            false => message::PROCEDURE_UNKNOWN.with(&[&name.join(".")]),
        };
        // SQL Server leaves the variable unchanged, and a script that checks only the variable assumes success.
        let number = i32::try_from(unknown.number).unwrap_or(i32::MAX);
        return fail_with(session, execute, number, unknown.into());
    }
    let mut passed = Vec::with_capacity(execute.arguments.len());
    let mut sum = Sum::default();
    for argument in &execute.arguments {
        let value = argument.value.as_ref();
        let output = match value {
            Some(crate::syntax::Operand::Variable(name)) if argument.output => Some(name.clone()),
            _ => None,
        };
        let kind = match value {
            Some(crate::syntax::Operand::Variable(name)) if !name.starts_with("@@") => {
                Some(session.variable(name)?.kind)
            }
            _ => None,
        };
        let value = value.map(|v| session.value_of(v)).transpose()?;
        value.iter().try_for_each(|v| sum.add(v))?;
        passed.push(ArgumentValue {
            name: argument.name.as_ref().map(|n| n.to_lowercase()),
            value,
            kind,
            output,
        });
    }
    let arguments = Arguments {
        procedure: name.last().cloned().unwrap_or_default(),
        passed,
    };
    session.variables.reserve(sum.bytes())?;
    let flow = match (found, &own) {
        (Some(procedure), _) => in_database(session, &name, |session| {
            perform(session, procedure, &arguments, out)
        }),
        (None, Some(own)) => perform_own(session, own, &arguments, out),
        (None, None) => Ok(()),
    };
    session.variables.give_back(sum.bytes());
    match flow {
        Ok(()) => set_code(session, execute, out.status()),
        Err(stop @ Stop::Failed(_)) => fail_with(session, execute, out.status(), stop),
        Err(stop) => Err(stop),
    }
}

/// Runs a procedure of the server's in the database that its name has: `[shop].sys.sp_executesql`. Errors: 911.
fn in_database(
    session: &mut Session,
    name: &[String],
    run: impl FnOnce(&mut Session) -> Flow,
) -> Flow {
    let place = name.iter().rev().nth(2).filter(|place| !place.is_empty());
    let Some(place) = place else {
        return run(session);
    };
    let names = session.server.database_names();
    let mut known = SYSTEM_DATABASES
        .iter()
        .copied()
        .chain(names.iter().map(String::as_str));
    let database = known.find(|known| known.eq_ignore_ascii_case(place));
    let database = database.ok_or_else(|| message::DATABASE_MISSING.with(&[place]))?;
    let outer = std::mem::replace(&mut session.database, database.to_owned());
    let done = run(session);
    session.database = outer;
    done
}

/// `EXEC @code = procedure`: the variable gets the return status.
fn set_code(session: &mut Session, execute: &Execute, status: i32) -> Flow {
    match &execute.code {
        Some(code) => {
            let kind = session.variable(code)?.kind;
            let status = convert(&Value::Int(status.into()), kind)?;
            Ok(session.set_variable(code, status)?)
        }
        None => Ok(()),
    }
}

/// The same for a failed call. In a TRY block the statement ends without a return status.
fn fail_with(session: &mut Session, execute: &Execute, status: i32, stop: Stop) -> Flow {
    if !session.tries() {
        set_code(session, execute, status)?;
    }
    Err(stop)
}

fn find(name: &[String]) -> Option<&'static Procedure> {
    let (last, before) = name.split_last()?;
    let mut before = before.iter().rev();
    let schema = before.next().map_or("", String::as_str);
    // Every database sees them; which one a name has is checked before they run.
    let _database = before.next();
    let is = |word: &str, known: &[&str]| {
        word.is_empty() || known.iter().any(|k| k.eq_ignore_ascii_case(word))
    };
    if before.next().is_some() || !is(schema, &["dbo", "sys"]) {
        return None;
    }
    let own = PROCEDURES
        .iter()
        .find(|(n, _)| n.eq_ignore_ascii_case(last));
    own.or_else(|| catalog::is_known(last).then_some(&CATALOG))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

fn sp_addumpdevice(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let parameters = [
        "@devtype",
        "@logicalname",
        "@physicalname",
        "@cntrltype",
        "@devstatus",
    ];
    let [kind, logical, physical, _, _] = arguments.of(parameters)?;
    let kind = text(&kind.ok_or_else(|| arguments.missing("@devtype"))?);
    let logical = text(&logical.ok_or_else(|| arguments.missing("@logicalname"))?);
    let physical = text(&physical.ok_or_else(|| arguments.missing("@physicalname"))?);
    if !kind.eq_ignore_ascii_case("disk") {
        return Err(message::INVALID_PARAMETER
            .with(&[&"sp_addumpdevice"])
            .into());
    }
    if logical.is_empty() || logical.chars().nth(crate::syntax::NAME_MAX).is_some() {
        return Err(message::INVALID_PARAMETER
            .with(&[&"sp_addumpdevice"])
            .into());
    }
    let path = device_path(session, &physical)?;
    session.server.kept.add_device(&logical, path)?;
    Ok(out.done(Command::Execute, None)?)
}

/// Removes the history of sets that ended before a moment.
fn sp_delete_backuphistory(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [oldest] = arguments.of(["@oldest_date"])?;
    let oldest = oldest.ok_or_else(|| arguments.missing("@oldest_date"))?;
    let read = session.read_as(&oldest, Type::DateTime);
    match read.map_err(|_| not_a_date(&oldest))? {
        Value::DateTime(oldest) => {
            let oldest = oldest.strftime("%Y-%m-%dT%H:%M:%S.%3f").to_string();
            forget(session, Forget::EndedBefore(&oldest), out)
        }
        // Nothing is older than NULL.
        _ => Ok(out.done(Command::Execute, None)?),
    }
}

fn not_a_date(value: &Value) -> Message {
    let kind = match value {
        Value::Text(_) => "nvarchar",
        Value::Int(_) => "int",
        _ => "sql_variant",
    };
    message::CANNOT_CONVERT.with(&[&kind, &"datetime"])
}

/// Removes a database's history.
fn sp_delete_database_backuphistory(
    session: &mut Session,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let [name] = arguments.of(["@database_name"])?;
    let name = name.ok_or_else(|| arguments.missing("@database_name"))?;
    match name {
        Value::Null => Ok(out.done(Command::Execute, None)?),
        name => forget(session, Forget::Database(&text(&name)), out),
    }
}

/// It cannot be undone, so it is refused in a transaction, which could end in ROLLBACK.
fn forget(session: &mut Session, what: Forget<'_>, out: &mut Out) -> Flow {
    if session.transactions > 0 {
        let text = "the history cannot be changed inside a transaction: the change could not be rolled back";
        return Err(message::OWN.with(&[&text]).into());
    }
    if session.server.known_catalog().is_some() {
        let stop = session.cancel_flag();
        let forgotten = session.server.catalog()?.forget(what, &stop);
        let forgotten = forgotten.map_err(|e| message::OWN.with(&[&e]))?;
        if forgotten.interrupted {
            return Err(message::ABORTED.plain().into());
        }
        let kept = forgotten.kept;
        if kept > 0 {
            let text = format!(
                "the history keeps {kept} older sets: later differential or log backups depend on them"
            );
            out.say(message::DETAIL.with(&[&text]))?;
        }
    }
    Ok(out.done(Command::Execute, None)?)
}

fn sp_dropdevice(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [logical, delete] = arguments.of(["@logicalname", "@delfile"])?;
    let logical = text(&logical.ok_or_else(|| arguments.missing("@logicalname"))?);
    if delete.is_some_and(|d| !d.is_null()) {
        let text = "sp_dropdevice does not remove files here; remove the file yourself";
        return Err(message::OWN.with(&[&text]).into());
    }
    session.server.kept.drop_device(&logical)?;
    Ok(out.done(Command::Execute, None)?)
}

/// The log (0: current, 1: previous), its kind (1: ours, others are empty), two texts that lines must contain.
fn sp_readerrorlog(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [number, kind, first, second] = arguments.of(["@p1", "@p2", "@p3", "@p4"])?;
    read_log(
        session,
        [number, kind, first, second],
        [None, None, None],
        out,
    )
}

/// The same, and then: the first and the last moment, and whether the last lines come first (`desc`).
fn xp_readerrorlog(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let parameters = ["@p1", "@p2", "@p3", "@p4", "@p5", "@p6", "@p7"];
    let [number, kind, first, second, from, to, order] = arguments.of(parameters)?;
    read_log(
        session,
        [number, kind, first, second],
        [from, to, order],
        out,
    )
}

fn read_log(
    session: &mut Session,
    [number, kind, first, second]: [Option<Value>; 4],
    [from, to, order]: [Option<Value>; 3],
    out: &mut Out,
) -> Flow {
    let whole = |value: Option<Value>, usual: i64| -> Result<i64, Message> {
        match convert(&value.unwrap_or(Value::Null), Type::Int)? {
            Value::Int(n) => Ok(n),
            _ => Ok(usual),
        }
    };
    let number = whole(number, 0)?;
    let entries = match whole(kind, 1)? {
        1 => session.server.log.read(number),
        _ => Vec::new(),
    };
    let wanted: Vec<_> = [first, second]
        .into_iter()
        .flatten()
        .map(|value| text(&value).to_lowercase())
        .collect();
    let moment = |value: Option<Value>| -> Result<Option<DateTime>, Message> {
        let value = value.unwrap_or(Value::Null);
        match session.read_as(&value, Type::DateTime)? {
            Value::DateTime(at) => Ok(Some(at)),
            _ => Ok(None),
        }
    };
    let (from, to) = (moment(from)?, moment(to)?);
    let mut entries = entries;
    if order.is_some_and(|o| text(&o).eq_ignore_ascii_case("desc")) {
        entries.reverse();
    }
    out.sink.columns(&[
        Column::new("LogDate", Type::DateTime),
        Column::new("ProcessInfo", Type::nvarchar(50)),
        Column::new("Text", Type::NVarChar(None)),
    ])?;
    let mut rows = 0;
    for entry in entries {
        let line = entry.text.to_lowercase();
        if wanted.iter().all(|w| line.contains(w.as_str())) {
            let date = convert(&Value::text(entry.date), Type::DateTime).unwrap_or(Value::Null);
            if let Value::DateTime(at) = &date
                && (from.is_some_and(|from| *at < from) || to.is_some_and(|to| *at > to))
            {
                continue;
            }
            let row = [date, Value::text(entry.source), Value::text(entry.text)];
            out.sink.row(&row)?;
            rows += 1;
        }
    }
    Ok(out.done(Command::Execute, Some(rows))?)
}

fn xp_create_subdir(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [path] = arguments.of(["@path"])?;
    let path = text(&path.ok_or_else(|| arguments.missing("@path"))?);
    let path = named_path(session, &path)?;
    let storage = &session.server.setup.context.storage;
    let real = ground::real(&**storage, &path);
    let inside = |plot: &ground::Plot| real.starts_with(&plot.path);
    let taken = ground::plots(&session.server, None).iter().any(inside);
    if taken || ground::cluster(&**storage, &real, false).is_some() {
        return Err(message::CANNOT_OPEN
            .with(&[&path.display(), &refusal::IN_USE])
            .into());
    }
    storage.create_dir_all(&path).map_err(|e| {
        let text = format!("xp_create_subdir: cannot create {}: {e}", path.display());
        message::OWN.with(&[&text])
    })?;
    Ok(out.done(Command::Execute, None)?)
}

/// A batch with its own variables, some of which are returned.
fn sp_executesql(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    // SQL Server goes by the place of the first two, whatever they are called.
    let mut passed = arguments.passed.iter();
    let batch = passed.next();
    let batch = batch.ok_or_else(|| arguments.missing("@statement"))?;
    let parameters = passed
        .next()
        .map(|p| text(p.value.as_ref().unwrap_or(&Value::Null)));
    let mut variables = BTreeMap::new();
    let parameters = parameters.unwrap_or_default();
    let declared = declared_parameters(&parameters)?;
    for one in &declared {
        let (kind, value) = (one.kind, Value::Null);
        variables.insert(one.name.clone(), Variable { kind, value });
    }
    let (mut back, mut given) = (Vec::new(), BTreeSet::new());
    for (i, argument) in passed.enumerate() {
        let by_place = || declared.get(i).map(|one| one.name.clone());
        let name = argument.name.clone().or_else(by_place);
        given.extend(name.clone());
        let variable = name.as_ref().and_then(|n| variables.get_mut(n));
        let (Some(name), Some(variable)) = (name, variable) else {
            return Err(message::TOO_MANY_ARGUMENTS.with(&[&"sp_executesql"]).into());
        };
        let value = argument.value.clone().unwrap_or(Value::Null);
        variable.value = session.read_as(&value, variable.kind)?;
        back.extend(argument.output.clone().map(|to| (name, to)));
    }
    let batch = text(batch.value.as_ref().unwrap_or(&Value::Null));
    for one in declared.iter().filter(|one| !given.contains(&one.name)) {
        let Some(default) = &one.default else {
            let query = format!("({parameters}){batch}");
            return Err(message::QUERY_PARAMETER_MISSING
                .with(&[&query, &one.shown])
                .into());
        };
        let value = session.value_as(default, one.kind)?;
        if let Some(variable) = variables.get_mut(&one.name) {
            variable.value = value;
        }
    }
    let after = session.nested(&batch, variables, 2, out)?;
    for (from, to) in back {
        if let Some(variable) = after.get(&from) {
            let kind = session.variable(&to)?.kind;
            let value = session.read_as(&variable.value, kind)?;
            session.set_variable(&to, value)?;
        }
    }
    Ok(())
}
