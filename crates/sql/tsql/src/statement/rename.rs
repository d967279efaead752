//! sp_rename: another name for a table, a procedure, a function, a view, a column or an index.
//!
//! Invariants
//! - A rename keeps the object's number, its rows and the names of its constraints.
//! - A rename that would leave a key, a condition or a computed column without its column changes nothing (15336).
//!
//! Leaves to others: keeping objects (`server/stored.rs`), and giving a table another shape (`table.rs`).

use std::sync::Arc;

use longshore_catalog::CatalogObject;

use super::arguments::Arguments;
use super::computed;
use super::conditions::check_of_column;
use super::foreign;
use super::table::{check_alone, known_by, reshape_as};
use super::target::{ChangedTable, find};
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query;
use crate::server::objects::{StoredObject, table_text};
use crate::server::text_of_date;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{ConstraintKind, TableSpec};
use crate::tables::TableShape;

/// Kinds of SQL Server's that have no objects here.
const ELSEWHERE: [&str; 3] = ["DATABASE", "STATISTICS", "USERDATATYPE"];

/// Errors: 226, 15225, 15248, 15249, 15335, 15336, and 50002.
pub(super) fn rename(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name, new, kind] = arguments.of(["@objname", "@newname", "@objtype"])?;
    let name = name
        .ok_or_else(|| arguments.missing("@objname"))?
        .to_string();
    let new = new
        .ok_or_else(|| arguments.missing("@newname"))?
        .to_string();
    let kind = kind.filter(|kind| !kind.is_null());
    let kind = kind.map(|kind| kind.to_string().trim().to_ascii_uppercase());
    check_alone(session, "sp_rename")?;
    let mut parts = query::name_parts(&name).unwrap_or_default();
    parts.reverse();
    let what = (name.as_str(), kind.as_deref());
    match kind.as_deref() {
        None | Some("OBJECT") => object(session, &parts, &new, what)?,
        Some("COLUMN") => column(session, &parts, &new, what)?,
        Some("INDEX") => index(session, &parts, &new, what)?,
        Some(other) if ELSEWHERE.contains(&other) => {
            return Err(message::NOT_HERE
                .with(&[&format!("sp_rename of a {other}")])
                .into());
        }
        Some(other) => return Err(message::RENAME_KIND.with(&[&other]).into()),
    }
    out.say(message::RENAMED.plain())?;
    Ok(out.done(Command::Execute, None)?)
}

/// The refusal of a name that means nothing.
fn missing(session: &Session, (name, kind): (&str, Option<&str>)) -> Message {
    match kind {
        Some(kind) => message::RENAME_UNKNOWN.with(&[&kind]),
        None => message::RENAME_NOTHING.with(&[&name, &session.database, &"(null)"]),
    }
}

fn taken(new: &str, kind: &str) -> Message {
    message::RENAME_TAKEN.with(&[&new, &kind])
}

fn object(
    session: &mut Session,
    parts: &[String],
    new: &str,
    what: (&str, Option<&str>),
) -> Result<(), Message> {
    let last = parts.last().map_or("", String::as_str);
    if last.starts_with('#') || new.starts_with('#') {
        return Err(message::NOT_HERE.with(&[&"sp_rename of a temporary object"]));
    }
    let found = session.server.kept.named(parts, &session.database);
    let Some(found) = found else {
        return constraint(session, parts, new, what);
    };
    let database = found.object.database.clone();
    let other = session.server.kept.object(&database, new);
    if other.is_some_and(|other| other.object.id != found.object.id) {
        return Err(taken(new, "object"));
    }
    let definition = match &found.table {
        None => found.object.definition.clone(),
        Some(shape) => {
            if foreign::is_referenced(&session.server, &found)
                || shape
                    .foreign
                    .iter()
                    .any(|key| is_own(key.table.last(), last))
            {
                let text = "sp_rename of a table that a foreign key references";
                return Err(message::NOT_HERE.with(&[&text]));
            }
            let mut indexes = shape.indexes.clone();
            for index in &mut indexes {
                index.table = vec![new.to_owned()];
            }
            table_text(new, &with_names(shape), &indexes)
        }
    };
    let changed = CatalogObject {
        name: new.to_owned(),
        definition,
        changed: text_of_date(session.server.now()),
        ..found.object.clone()
    };
    let open = session.server.open.lock();
    open.check_free(&found, session.key)?;
    match session.server.kept.change_object(changed, None)? {
        true => Ok(()),
        false => Err(missing(session, what)),
    }
}

fn is_own(name: Option<&String>, own: &str) -> bool {
    name.is_some_and(|name| name.eq_ignore_ascii_case(own))
}

/// The columns and constraints of a table, each constraint with the name that it has: one that a script has not named would get
/// another one with its table.
fn with_names(shape: &TableShape) -> TableSpec {
    let mut spec = shape.spec.clone();
    let (mut keys, mut foreign) = (shape.keys.iter(), shape.foreign.iter());
    let mut checks = shape.checks.iter();
    for constraint in &mut spec.constraints {
        let name = match constraint.kind {
            ConstraintKind::Foreign { .. } => foreign.next().map(|key| &key.name),
            ConstraintKind::Check(_) => checks.next().map(|check| &check.name),
            _ => keys.next().map(|key| &key.name),
        };
        constraint.name = name.cloned();
    }
    spec
}

/// A constraint is found among all tables of the database.
fn constraint(
    session: &mut Session,
    parts: &[String],
    new: &str,
    what: (&str, Option<&str>),
) -> Result<(), Message> {
    let last = parts.last().map_or("", String::as_str);
    let database = session.database.clone();
    let here = |o: &Arc<StoredObject>| o.object.database.eq_ignore_ascii_case(&database);
    let all = session.server.kept.objects();
    for found in all.into_iter().filter(here) {
        let Some(shape) = &found.table else {
            continue;
        };
        let mut spec = with_names(shape);
        let mut named = spec.constraints.iter_mut();
        if let Some(constraint) = named.find(|c| is_own(c.name.as_ref(), last)) {
            constraint.name = Some(new.to_owned());
            let target = known_by(session, &found)?;
            return reshape_as(session, &target, spec, shape.indexes.clone());
        }
    }
    Err(missing(session, what))
}

/// The table of `table.column` or `schema.table.column`, and the last part. Errors: those of [`missing`].
fn owner<'a>(
    session: &Session,
    parts: &'a [String],
    what: (&str, Option<&str>),
) -> Result<(ChangedTable, &'a str), Message> {
    let unknown = || missing(session, what);
    let (last, table) = parts.split_last().ok_or_else(unknown)?;
    if table.is_empty() {
        return Err(unknown());
    }
    let target = find(session, table).map_err(|_| unknown())?;
    Ok((target, last.as_str()))
}

fn column(
    session: &mut Session,
    parts: &[String],
    new: &str,
    what: (&str, Option<&str>),
) -> Result<(), Message> {
    let (target, old) = owner(session, parts, what)?;
    let shape = target.shape.clone();
    let place = shape.place(old).ok_or_else(|| missing(session, what))?;
    if shape.place(new).is_some_and(|other| other != place) {
        return Err(taken(new, "COLUMN"));
    }
    let is_bound = check_of_column(session, &shape, place).is_some()
        || computed::user_of(session, &shape, place).is_some();
    if is_bound {
        return Err(message::RENAME_BOUND.with(&[&what.0]));
    }
    let referenced = target.object.as_ref();
    if referenced.is_some_and(|o| foreign::is_referenced(&session.server, o))
        || shape.foreign.iter().any(|key| key.columns.contains(&place))
    {
        let text = "sp_rename of a column of a table that foreign keys name";
        return Err(message::NOT_HERE.with(&[&text]));
    }
    let mut spec = with_names(&shape);
    spec.columns[place].name = new.to_owned();
    let renamed = |name: &mut String| {
        if name.eq_ignore_ascii_case(old) {
            new.clone_into(name);
        }
    };
    for constraint in &mut spec.constraints {
        constraint.columns.iter_mut().for_each(renamed);
    }
    let mut indexes = shape.indexes.clone();
    for index in &mut indexes {
        index.columns.iter_mut().for_each(renamed);
    }
    reshape_as(session, &target, spec, indexes)
}

fn index(
    session: &mut Session,
    parts: &[String],
    new: &str,
    what: (&str, Option<&str>),
) -> Result<(), Message> {
    let (target, old) = owner(session, parts, what)?;
    let mut indexes = target.shape.indexes.clone();
    if indexes
        .iter()
        .any(|index| index.name.eq_ignore_ascii_case(new))
    {
        return Err(taken(new, "INDEX"));
    }
    let mut all = indexes.iter_mut();
    let Some(index) = all.find(|index| index.name.eq_ignore_ascii_case(old)) else {
        return Err(missing(session, what));
    };
    new.clone_into(&mut index.name);
    let spec = target.shape.spec.clone();
    reshape_as(session, &target, spec, indexes)
}
