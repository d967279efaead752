//! Procedures that scripts create: CREATE and ALTER PROCEDURE, and running them.
//!
//! Invariants
//! - A procedure runs with the rights of its caller, in its own database, with variables, cursors and tables of its own.
//! - What it runs is what it was when it was called: a procedure that changes or drops itself goes on to its end.
//! - Procedures call each other up to 32 deep (217).
//!
//! Leaves to others: keeping procedures (`server/stored.rs`), arguments of procedures of the server's own
//! (`statement/procedure.rs`), and batches inside of batches (`run.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::{ArgumentValue, Arguments};
use super::function;
use super::table::{check_alone, known, new_name, object};
use super::type_of_parameter;
use crate::flow::{Flow, Out, Variable};
use crate::message::{self, Message};
use crate::server::objects::{PROCEDURE, StoredObject, shown_name};
use crate::server::{is_shared, text_of_date};
use crate::session::{Compiled, Session};
use crate::sink::Command;
use crate::syntax::{Operand, Routine, RoutineVerb, Statement, parse};
use crate::value::{Column, Type, Value};

/// CREATE, ALTER, CREATE OR ALTER. Errors: 166, 208, 226, 2010, 2714, 2760, and those of [`function::check`].
pub(crate) fn create(session: &mut Session, routine: &Routine, out: &mut Out) -> Flow {
    let code = routine.kind.code();
    let word = routine.kind.word();
    if routine.name.len() > 2 {
        let verbs = format!("CREATE/ALTER {word}");
        return Err(message::NO_DATABASE_PREFIX.with(&[&verbs]).into());
    }
    let place = new_name(session, &routine.name)?;
    if !place.1.starts_with('#') {
        check_alone(session, &format!("CREATE {word}"))?;
    }
    if is_shared(&place.1) || place.1.starts_with('#') && code != PROCEDURE {
        return Err(message::NOT_HERE
            .with(&[&"a temporary routine of this kind"])
            .into());
    }
    for (i, parameter) in routine.parameters.iter().enumerate() {
        type_of_parameter(i, parameter)?;
    }
    function::check(session, routine)?;
    if place.1.starts_with('#') {
        return create_temporary(session, routine, place, out);
    }
    let found = session.server.kept.object(&place.0, &place.1);
    match (found, routine.verb) {
        (Some(found), _) if found.object.kind != code => {
            return Err(match routine.verb {
                RoutineVerb::Create => message::OBJECT_EXISTS.with(&[&place.1]),
                _ => message::ALTER_OTHER_KIND.with(&[&place.1]),
            }
            .into());
        }
        (Some(_), RoutineVerb::Create) => {
            return Err(message::OBJECT_EXISTS.with(&[&place.1]).into());
        }
        (None, RoutineVerb::Alter) => {
            let mut unknown = message::OBJECT_UNKNOWN.with(&[&routine.name.join(".")]);
            unknown.state = 6;
            return Err(unknown.into());
        }
        (Some(found), _) => {
            let changed = longshore_catalog::CatalogObject {
                definition: routine.text.clone(),
                changed: text_of_date(session.server.now()),
                ..found.object.clone()
            };
            let is_there = session.server.kept.change_object(changed, None)?;
            if !is_there {
                let unknown = message::OBJECT_UNKNOWN.with(&[&routine.name.join(".")]);
                return Err(unknown.into());
            }
        }
        (None, _) => {
            let new = object(session, place, code, routine.text.clone());
            session.server.kept.add_object(new)?;
        }
    }
    Ok(out.done(Command::Other, None)?)
}

/// A procedure of the session. Errors: 208, 2714.
fn create_temporary(
    session: &mut Session,
    routine: &Routine,
    place: (String, String),
    out: &mut Out,
) -> Flow {
    match (session.tables.procedure(&place.1), routine.verb) {
        (Some(_), RoutineVerb::Create) => {
            return Err(message::OBJECT_EXISTS.with(&[&place.1]).into());
        }
        (None, RoutineVerb::Alter) => {
            return Err(message::OBJECT_UNKNOWN.with(&[&place.1]).into());
        }
        _ => {}
    }
    let new = object(session, place, PROCEDURE, routine.text.clone());
    session.tables.keep_procedure(new)?;
    Ok(out.done(Command::Other, None)?)
}

/// The procedure of this name: in the database that it names or that is in use, and for names that begin with `sp_` also
/// in master.
pub(super) fn find(session: &Session, name: &[String]) -> Option<Arc<StoredObject>> {
    let own = name.last().and_then(|name| session.tables.procedure(name));
    if let Some(own) = own {
        return Some(Arc::new(StoredObject::of(own.clone())));
    }
    let kept = &session.server.kept;
    let is_procedure = |o: &Arc<StoredObject>| o.object.kind == PROCEDURE;
    let own = kept.named(name, &session.database).filter(is_procedure);
    let last = name.last().map_or("", String::as_str);
    let is_of_all = last.get(..3).is_some_and(|p| p.eq_ignore_ascii_case("sp_"));
    own.or_else(|| {
        let found = is_of_all.then(|| kept.named(name, "master")).flatten();
        found.filter(is_procedure)
    })
}

/// Its tree, which the session keeps while the outermost batch runs.
fn compiled(session: &mut Session, found: &StoredObject) -> Result<Arc<Routine>, Message> {
    let object = &found.object;
    if let Some(known) = session.compiled.get(&object.id)
        && known.definition == object.definition
    {
        return Ok(known.routine.clone());
    }
    let claim = session.claim_for(&object.definition)?;
    let batch = parse(&object.definition)?;
    let statement = batch.statements.into_iter().next().map(|s| s.statement);
    let Some(Statement::Routine(routine)) = statement else {
        return Err(message::NO_TEXT.with(&[&object.name]));
    };
    let routine: Arc<Routine> = Arc::from(routine);
    let compiled = Compiled {
        definition: object.definition.clone(),
        routine: routine.clone(),
        _claim: claim,
    };
    session.compiled.insert(object.id, compiled);
    Ok(routine)
}

/// The value of a parameter's default.
fn default_of(session: &Session, default: &Operand, kind: Type) -> Result<Value, Message> {
    let value = match default {
        Operand::Integer(n) => Value::Int(*n),
        Operand::Number(text) | Operand::Text(text) => Value::text(text.as_str()),
        Operand::Variable(name) => return Err(message::NOT_DECLARED.with(&[name])),
        Operand::Null => Value::Null,
    };
    session.read_as(&value, kind)
}

/// A text that a parameter's type does not take. Other refusals stay as they are.
fn of_parameter(refused: Message, (value, from): (&Value, Option<Type>), to: Type) -> Message {
    let is_of_text = matches!(value, Value::Text(_))
        && matches!(refused.number, 241 | 242 | 244 | 245 | 248 | 8114);
    if !is_of_text {
        return refused;
    }
    let from = from.unwrap_or(Type::VarChar(None));
    let mut refused = message::CANNOT_CONVERT.with(&[&from.bare_name(), &to.bare_name()]);
    refused.state = 1;
    refused
}

/// Parameters, and the caller's variables that get their values back.
type Returned = Vec<(String, String)>;

/// The variables of a call, and those of the caller that get values back, with the parameters' names.
///
/// Errors: 201, 8143, 8144, 8145, 8162.
fn bound(
    session: &Session,
    routine: &Routine,
    arguments: &Arguments,
) -> Result<(BTreeMap<String, Variable>, Returned), Message> {
    let name = &arguments.procedure;
    let count = routine.parameters.len();
    let mut given: Vec<Option<&ArgumentValue>> = vec![None; count];
    let mut back = Vec::new();
    for (i, passed) in arguments.passed.iter().enumerate() {
        let at = match &passed.name {
            None if i < count => i,
            None if count == 0 => return Err(message::NO_PARAMETERS.with(&[name])),
            None => return Err(message::TOO_MANY_ARGUMENTS.with(&[name])),
            Some(wanted) => {
                let mut all = routine.parameters.iter();
                let found = all.position(|p| p.name.to_lowercase() == *wanted);
                found.ok_or_else(|| message::NOT_A_PARAMETER.with(&[wanted, name]))?
            }
        };
        let parameter = &routine.parameters[at];
        if given[at].is_some() {
            return Err(message::SUPPLIED_TWICE.with(&[&parameter.name]));
        }
        if let Some(to) = &passed.output {
            if !parameter.output {
                return Err(message::NOT_AN_OUTPUT.with(&[&parameter.name]));
            }
            back.push((parameter.name.to_lowercase(), to.clone()));
        }
        given[at] = Some(passed);
    }
    let mut variables = BTreeMap::new();
    for (i, (parameter, given)) in routine.parameters.iter().zip(given).enumerate() {
        let kind = type_of_parameter(i, parameter)?;
        let passed = given.and_then(|passed| Some((passed.value.as_ref()?, passed.kind)));
        let value = match (passed, &parameter.default) {
            (Some((value, from)), _) => {
                let read = session.read_as(value, kind);
                read.map_err(|refused| of_parameter(refused, (value, from), kind))?
            }
            (None, Some(default)) => default_of(session, default, kind)?,
            (None, None) => return Err(message::PARAMETER_MISSING.with(&[name, &parameter.name])),
        };
        variables.insert(parameter.name.to_lowercase(), Variable { kind, value });
    }
    Ok((variables, back))
}

/// Runs a procedure. Its return status is in the outcome.
pub(super) fn run(
    session: &mut Session,
    found: &Arc<StoredObject>,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let routine = compiled(session, found)?;
    // The procedure has begun, and none of its statements.
    let shown = shown_name(&found.object);
    let in_it = |refused: Message| refused.in_procedure(Some(&shown)).at_line(0);
    let (variables, back) = bound(session, &routine, arguments).map_err(in_it)?;
    let object = &found.object;
    // A procedure of master that all databases see runs in that of its caller.
    let is_of_all = object.database.eq_ignore_ascii_case("master")
        && object
            .name
            .get(..3)
            .is_some_and(|p| p.eq_ignore_ascii_case("sp_"));
    let database = match is_of_all {
        true => session.database.clone(),
        false => object.database.clone(),
    };
    let transactions = session.transactions;
    let (after, status) = session.routine(object, &routine, variables, &database, out)?;
    for (from, to) in back {
        if let Some(variable) = after.get(&from) {
            let kind = session.variable(&to)?.kind;
            let value = session.read_as(&variable.value, kind)?;
            session.set_variable(&to, value)?;
        }
    }
    out.returned = status;
    if session.transactions != transactions {
        let changed = message::COUNT_CHANGED.with(&[&transactions, &session.transactions]);
        return Err(changed.into());
    }
    Ok(())
}

/// The text of a procedure, line by line. Errors: 15009, 15197.
pub(super) fn help_text(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name, _] = arguments.of(["@objname", "@columnname"])?;
    let name = name
        .ok_or_else(|| arguments.missing("@objname"))?
        .to_string();
    let unknown = || message::NO_SUCH_OBJECT.with(&[&name, &session.database]);
    let found = known(session, &name).ok_or_else(unknown)?;
    if found.table.is_some() {
        return Err(message::NO_TEXT.with(&[&name]).into());
    }
    out.sink
        .columns(&[Column::new("Text", Type::nvarchar(255))])?;
    let mut count = 0;
    for line in found.object.definition.split_inclusive('\n') {
        out.sink.row(&[Value::text(line)])?;
        count += 1;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}
