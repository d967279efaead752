//! CREATE, ALTER and DROP TABLE, and indexes.
//!
//! Invariants
//! - A table that outlives the session is made, changed and dropped outside of transactions: nothing would undo it.
//! - A change of a table's columns keeps its rows, or is refused and changes nothing.
//! - Only the schema `dbo` holds tables.
//!
//! Leaves to others: rows (`statement/change.rs`), and keeping tables (`server/stored.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_catalog::{CatalogObject, RowChanges};

use super::change::begun_again;
use super::conditions::{check_conditions, check_of_column, check_shape};
use super::target::{ChangedTable, find};
use super::{computed, foreign};
use crate::convert::convert_in;
use crate::flow::{Flow, Out, SYSTEM_DATABASES};
use crate::message::{self, Message};
use crate::query::{self, View as KnownView};
use crate::server::objects::{
    FUNCTIONS, PROCEDURE, StoredObject, TABLE, VIEW, encoded, table_text,
};
use crate::server::{is_shared, text_of_date};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{
    ColumnSpec, ConstraintKind, Fragment, IndexSpec, ObjectKind, TableChange, TableSpec,
};
use crate::tables::{Change, TableId, TableRow, TableRows, TableShape};
use crate::value::{Type, Value};

/// How often a change of a table reads its rows again because another session was faster.
const TRIES_MAX: usize = 50;

/// The database and the name of an object that is to be made. Errors: 911, 2714, 2760.
pub(super) fn new_name(session: &Session, name: &[String]) -> Result<(String, String), Message> {
    let mut parts = name.iter().rev().map(String::as_str);
    let last = parts.next().unwrap_or_default().trim_end_matches(' ');
    let schema = parts.next().unwrap_or_default();
    let place = parts.next().filter(|place| !place.is_empty());
    if !schema.is_empty() && !schema.eq_ignore_ascii_case("dbo") {
        return Err(message::SCHEMA_UNKNOWN.with(&[&schema]));
    }
    let place = place.unwrap_or(&session.database);
    let names = session.server.database_names();
    let mut known = SYSTEM_DATABASES
        .iter()
        .copied()
        .chain(names.iter().map(String::as_str));
    let found = known.find(|known| known.eq_ignore_ascii_case(place));
    let database = found.ok_or_else(|| message::DATABASE_MISSING.with(&[&place]))?;
    let full = [database.to_owned(), "dbo".to_owned(), last.to_owned()];
    match KnownView::find(&full, database) {
        Some(_) => Err(message::OBJECT_EXISTS.with(&[&last])),
        None => Ok((database.to_owned(), last.to_owned())),
    }
}

/// Errors: 226.
pub(super) fn check_alone(session: &Session, verb: &str) -> Result<(), Message> {
    match session.transactions {
        0 => Ok(()),
        _ => Err(message::NOT_IN_TRANSACTION.with(&[&verb])),
    }
}

/// A new object of now.
pub(super) fn object(
    session: &Session,
    (database, name): (String, String),
    kind: &str,
    definition: String,
) -> CatalogObject {
    let now = text_of_date(session.server.now());
    CatalogObject {
        id: 0,
        database,
        name,
        kind: kind.to_owned(),
        created: now.clone(),
        changed: now,
        definition,
        uses_ansi_nulls: true,
        uses_quoted_identifier: true,
    }
}

pub(crate) fn create(
    session: &mut Session,
    name: &[String],
    spec: &TableSpec,
    out: &mut Out,
) -> Flow {
    make(session, name, spec)?;
    Ok(out.done(Command::Other, None)?)
}

/// Makes a table. Errors: 226, 2714 and those of its columns.
pub(super) fn make(
    session: &mut Session,
    name: &[String],
    spec: &TableSpec,
) -> Result<TableId, Message> {
    let last = name.last().map_or("", String::as_str);
    let spec = &computed::typed(session, spec)?;
    let shape = TableShape::of(spec.clone(), Vec::new(), last)?;
    check_shape(session, &shape)?;
    if last.starts_with('#') {
        if !shape.foreign.is_empty() {
            // SQL Server skips these, too, and says so.
            return Err(message::NOT_HERE.with(&[&"FOREIGN KEY of a temporary table"]));
        }
        if is_shared(last) {
            let place = ("tempdb".to_owned(), last.trim_end_matches(' ').to_owned());
            let definition = table_text(&place.1, spec, &[]);
            let new = object(session, place, TABLE, definition);
            let id = session.server.kept.add_object(new)?;
            session.shared_tables.push(id);
            return Ok(TableId::Stored(id));
        }
        return session.tables.create(last, shape).map(TableId::Temporary);
    }
    check_alone(session, "CREATE TABLE")?;
    let place = new_name(session, name)?;
    for key in &shape.foreign {
        let own = place
            .1
            .eq_ignore_ascii_case(key.table.last().map_or("", String::as_str));
        let parent = session.server.kept.named(&key.table, &place.0);
        if !own && parent.is_none_or(|o| o.table.is_none()) {
            return Err(message::FOREIGN_UNKNOWN.with(&[&key.name, &key.table.join(".")]));
        }
    }
    let definition = table_text(&place.1, spec, &[]);
    let object = object(session, place, TABLE, definition);
    let id = session.server.kept.add_object(object)?;
    Ok(TableId::Stored(id))
}

/// Takes back the table that [`make`] has made, for the statement that made it: not what another session has under its name by now.
///
/// Errors: those of the catalog; another session's open transaction has changed it.
pub(super) fn unmake(session: &mut Session, made: TableId) -> Result<(), Message> {
    match made {
        TableId::Variable(id) | TableId::Temporary(id) => session.tables.drop_temporary(id),
        TableId::Stored(id) => {
            let server = session.server.clone();
            let open = server.open.lock();
            if let Some(object) = server.kept.object_of(id) {
                open.check_free(&object, session.key)?;
                server.kept.drop_object(id)?;
            }
        }
    }
    Ok(())
}

/// Drops every object that can be dropped, even if others cannot.
pub(crate) fn drop_objects(
    session: &mut Session,
    kind: ObjectKind,
    names: &[Vec<String>],
    if_exists: bool,
    out: &mut Out,
) -> Flow {
    let mut refused = Vec::new();
    for name in names {
        match drop_one(session, kind, name) {
            Err(missing) if if_exists && missing.number == message::DROP_MISSING.number => {}
            Err(other) => refused.push(other),
            Ok(()) => {}
        }
    }
    match refused.is_empty() {
        true => Ok(out.done(Command::Other, None)?),
        false => Err(refused.into()),
    }
}

fn drop_one(session: &mut Session, kind: ObjectKind, name: &[String]) -> Result<(), Message> {
    let (word, wanted): (_, &[&str]) = match kind {
        ObjectKind::Table => ("table", &[TABLE]),
        ObjectKind::Procedure => ("procedure", &[PROCEDURE]),
        ObjectKind::Function => ("function", &FUNCTIONS),
        ObjectKind::View => ("view", &[VIEW]),
    };
    let missing = || {
        let mut missing = message::DROP_MISSING.with(&[&word, &name.join(".")]);
        missing.state = 5;
        missing
    };
    let last = name.last().map_or("", String::as_str);
    if last.starts_with('#') && !is_shared(last) && kind == ObjectKind::Table {
        let id = session.tables.temporary(last).ok_or_else(missing)?;
        session.tables.drop_temporary(id);
        return Ok(());
    }
    if kind == ObjectKind::Procedure && session.tables.drop_procedure(last) {
        return Ok(());
    }
    let found = session.server.kept.named(name, &session.database);
    let found = found
        .filter(|o| wanted.contains(&o.object.kind.as_str()))
        .ok_or_else(missing)?;
    if !is_shared(last) {
        check_alone(session, &format!("DROP {}", word.to_uppercase()))?;
    }
    if foreign::is_referenced(&session.server, &found) {
        return Err(message::REFERENCED.with(&[&name.join(".")]));
    }
    let open = session.server.open.lock();
    open.check_free(&found, session.key)?;
    match session.server.kept.drop_object(found.object.id)? {
        true => Ok(()),
        false => Err(missing()),
    }
}

/// The value that rows get for a column that they do not have yet.
type Filler<'a> = Box<dyn Fn(&TableRow) -> Result<TableRow, Message> + 'a>;

/// Gives a table another shape. `fill`: a row of the new shape, from one of the old.
fn reshape(
    session: &mut Session,
    target: &ChangedTable,
    spec: TableSpec,
    indexes: Vec<IndexSpec>,
    fill: &Filler,
) -> Result<(), Message> {
    let name = target
        .full
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_owned();
    let shape = TableShape::of(spec, indexes, &name)?;
    check_shape(session, &shape)?;
    for _ in 0..TRIES_MAX {
        let new = |rows: &TableRows| -> Result<TableRows, Message> {
            let mut change = Change::default();
            for (number, row) in rows.iter() {
                change.put.push((number, fill(row)?));
            }
            computed::fill(session, &shape, &mut change.put)?;
            let mut new = TableRows::of(&shape, BTreeMap::new());
            new.apply(&shape, change, &target.short())?;
            new.last_row = new.last_row.max(rows.last_row);
            new.last_identity = rows.last_identity;
            Ok(new)
        };
        match (&target.object, target.id) {
            (Some(object), _) => {
                let loaded = session.server.kept.rows(object)?;
                let rows = new(&loaded.rows)?;
                let old = target.shape.foreign.len();
                for key in shape.foreign.iter().skip(old) {
                    let all: Vec<TableRow> = rows.iter().map(|(_, row)| row.clone()).collect();
                    foreign::check_rows(&session.server, object, key, &all, "ALTER TABLE")?;
                }
                check_new(session, target, &shape, &rows)?;
                let changes = RowChanges {
                    version: Some(loaded.version),
                    last_identity: rows.last_identity,
                    last_row: rows.last_row,
                    removed: Vec::new(),
                    put: rows.iter().map(|(n, row)| (n, encoded(row))).collect(),
                };
                let changed = CatalogObject {
                    definition: table_text(&object.object.name, &shape.spec, &shape.indexes),
                    changed: text_of_date(session.server.now()),
                    ..object.object.clone()
                };
                // ROLLBACK puts rows back, and these would have another shape.
                let open = session.server.open.lock();
                open.check_free(object, session.key)?;
                if session.server.kept.change_object(changed, Some(&changes))? {
                    return Ok(());
                }
            }
            (None, TableId::Temporary(id) | TableId::Variable(id)) => {
                let rows = match session.tables.get(id) {
                    Some(table) => new(&table.rows)?,
                    None => return Ok(()),
                };
                check_new(session, target, &shape, &rows)?;
                return session.tables.reshape(id, shape, rows);
            }
            (None, TableId::Stored(_)) => return Ok(()),
        }
    }
    let text = "other sessions change the table all the time: try again";
    Err(message::OWN.with(&[&text]))
}

/// Gives a table another shape that its rows have already.
pub(super) fn reshape_as(
    session: &mut Session,
    target: &ChangedTable,
    spec: TableSpec,
    indexes: Vec<IndexSpec>,
) -> Result<(), Message> {
    let fill: Filler = Box::new(|row| Ok(row.clone()));
    reshape(session, target, spec, indexes, &fill)
}

/// A table that outlives the session, to be changed. Errors: 208.
pub(super) fn known_by(session: &Session, found: &StoredObject) -> Result<ChangedTable, Message> {
    let object = &found.object;
    let name = [
        object.database.clone(),
        "dbo".to_owned(),
        object.name.clone(),
    ];
    find(session, &name)
}

/// Checks all rows for the conditions of another shape. Errors: 547.
fn check_new(
    session: &Session,
    target: &ChangedTable,
    shape: &TableShape,
    rows: &TableRows,
) -> Result<(), Message> {
    let reshaped = ChangedTable {
        id: target.id,
        full: target.full.clone(),
        shape: Arc::new(shape.clone()),
        object: None,
        date_order: target.date_order,
        cuts: target.cuts,
    };
    let all: Vec<_> = rows.iter().map(|(n, row)| (n, row.clone())).collect();
    check_conditions(session, &reshaped, &all, "ALTER TABLE")
}

/// The table that ALTER TABLE and CREATE INDEX name. Errors: 226, 4902.
fn altered(session: &Session, name: &[String], verb: &str) -> Result<ChangedTable, Message> {
    let found = find(session, name);
    let target = found.map_err(|refused| match refused.number {
        208 => message::TABLE_UNKNOWN.with(&[&name.join(".")]),
        _ => refused,
    })?;
    // ROLLBACK puts rows back, and these would have another shape.
    check_alone(session, verb)?;
    Ok(target)
}

pub(crate) fn alter(
    session: &mut Session,
    name: &[String],
    change: &TableChange,
    out: &mut Out,
) -> Flow {
    begun_again(session, out, |session, out| {
        alter_once(session, name, change, out)
    })
}

fn alter_once(session: &mut Session, name: &[String], change: &TableChange, out: &mut Out) -> Flow {
    let target = altered(session, name, "ALTER TABLE")?;
    match change {
        TableChange::Add(added) => add(session, &target, added)?,
        TableChange::AlterColumn(column) => alter_column(session, &target, column)?,
        TableChange::DropColumns(names) => drop_columns(session, &target, names)?,
        TableChange::DropConstraints(names) => drop_constraints(session, &target, names)?,
        TableChange::Check { on, name } => {
            let keys = target.shape.keys.iter().map(|k| &k.name);
            let mut known = keys
                .chain(target.shape.foreign.iter().map(|k| &k.name))
                .chain(target.shape.checks.iter().map(|k| &k.name));
            if let Some(name) = name
                && !known.any(|k| k.eq_ignore_ascii_case(name))
            {
                return Err(message::NOT_A_CONSTRAINT.with(&[name]).into());
            }
            if !on {
                return Err(message::NOT_HERE.with(&[&"NOCHECK CONSTRAINT"]).into());
            }
        }
    }
    Ok(out.done(Command::Other, None)?)
}

fn is_default_only(column: &ColumnSpec) -> bool {
    column.kind.name.is_empty() && column.computed.is_none()
}

fn add(session: &mut Session, target: &ChangedTable, added: &TableSpec) -> Result<(), Message> {
    let mut spec = target.shape.spec.clone();
    for column in &added.columns {
        let same = |c: &&mut ColumnSpec| c.name.eq_ignore_ascii_case(&column.name);
        match spec.columns.iter_mut().find(same) {
            Some(known) if is_default_only(column) => known.default = column.default.clone(),
            None if is_default_only(column) => {
                return Err(message::KEY_COLUMN_UNKNOWN.with(&[&column.name]));
            }
            _ => spec.columns.push(ColumnSpec {
                fills: false,
                ..column.clone()
            }),
        }
    }
    for constraint in &added.constraints {
        if let ConstraintKind::Foreign { table, .. } = &constraint.kind
            && session
                .server
                .kept
                .named(table, &session.database)
                .is_none_or(|o| o.table.is_none())
        {
            let name = constraint.name.clone().unwrap_or_default();
            return Err(message::FOREIGN_UNKNOWN.with(&[&name, &table.join(".")]));
        }
        spec.constraints.push(constraint.clone());
    }
    let old = target.shape.columns.len();
    let name = target.full.rsplit('.').next().unwrap_or_default();
    let spec = computed::typed(session, &spec)?;
    let shape = TableShape::of(spec.clone(), target.shape.indexes.clone(), name)?;
    let mut values = Vec::new();
    for column in shape.columns.iter().skip(old) {
        if column.identity.is_some() {
            return Err(message::NOT_HERE.with(&[&"IDENTITY of a column that is added"]));
        }
        let mut all = added.columns.iter();
        let fills = all.any(|c| c.fills && c.name.eq_ignore_ascii_case(&column.name));
        values.push(match &column.default {
            Some(default) if fills || !column.nullable => {
                Filling::of(session, default, column.kind)?
            }
            _ => Filling::Value(Value::Null),
        });
    }
    let refused = shape.columns.iter().skip(old).zip(&values);
    let mut refused =
        refused.filter(|(c, v)| !c.nullable && matches!(v, Filling::Value(Value::Null)));
    let refused = refused
        .next()
        .map(|(column, _)| message::ADD_NOT_NULL.with(&[&column.name, &name]));
    let fill: Filler = Box::new(move |row| match &refused {
        Some(refused) => Err(refused.clone()),
        None => {
            let new = values.iter().map(Filling::value);
            Ok(row.iter().cloned().chain(new).collect())
        }
    });
    reshape(session, target, spec, target.shape.indexes.clone(), &fill)
}

/// The values that rows get in a column that is added.
enum Filling {
    Value(Value),
    /// `NEWID()`: another one for each row.
    Guid,
}

impl Filling {
    /// Errors: 50002 for a default with NEWID in it that is more than that.
    fn of(session: &Session, default: &Fragment, kind: Type) -> Result<Filling, Message> {
        let tokens = crate::syntax::tokens(&default.text)?;
        let is_new = |word: &str| ["NEWID", "NEWSEQUENTIALID"].contains(&word);
        let mut words = tokens.iter().filter(|token| token.is_word);
        if !words.any(|token| is_new(&token.raw.to_ascii_uppercase())) {
            return value(session, default, kind).map(Filling::Value);
        }
        let plain: String = tokens.iter().map(|token| token.raw.as_str()).collect();
        let plain = plain.trim_matches(['(', ')']);
        match kind == Type::UniqueIdentifier && plain.eq_ignore_ascii_case("NEWID") {
            true => Ok(Filling::Guid),
            false => Err(message::NOT_HERE
                .with(&[&format!("the default {default} of a column that is added")])),
        }
    }

    fn value(&self) -> Value {
        match self {
            Filling::Value(value) => value.clone(),
            Filling::Guid => Value::Guid(uuid::Uuid::new_v4()),
        }
    }
}

fn value(session: &Session, default: &Fragment, kind: Type) -> Result<Value, Message> {
    let found = query::scalar(&session.query_context(), default)?;
    session.converted(&found.value, found.kind, kind)
}

fn alter_column(
    session: &mut Session,
    target: &ChangedTable,
    column: &ColumnSpec,
) -> Result<(), Message> {
    let name = target
        .full
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_owned();
    let place = target.shape.place(&column.name);
    let unknown =
        || message::ALTER_COLUMN_UNKNOWN.with(&[&"ALTER TABLE ALTER COLUMN", &column.name, &name]);
    let place = place.ok_or_else(unknown)?;
    if let Some(user) = computed::user_of(session, &target.shape, place) {
        return Err(message::DEPENDS.with(&[&"column", &user, &column.name]));
    }
    if target.shape.columns[place].computed.is_some() {
        return Err(message::NOT_HERE.with(&[&"ALTER COLUMN of a computed column"]));
    }
    let mut spec = target.shape.spec.clone();
    let known = &mut spec.columns[place];
    known.kind = column.kind.clone();
    known.nullable = column.nullable;
    let shape = TableShape::of(spec.clone(), target.shape.indexes.clone(), &name)?;
    let (from, to) = (
        target.shape.columns[place].kind,
        shape.columns[place].clone(),
    );
    let (full, order) = (target.full.clone(), session.told.date_order);
    let fill: Filler = Box::new(move |row| {
        let mut row = row.clone();
        row[place] = convert_in(&row[place], from, to.kind, order)?;
        match row[place].is_null() && !to.nullable {
            true => Err(message::NULL_REFUSED.with(&[&to.name, &full, &"ALTER TABLE"])),
            false => Ok(row),
        }
    });
    reshape(session, target, spec, target.shape.indexes.clone(), &fill)
}

fn drop_columns(
    session: &mut Session,
    target: &ChangedTable,
    names: &[String],
) -> Result<(), Message> {
    let table = target.full.rsplit('.').next().unwrap_or_default();
    let mut places = Vec::new();
    for name in names {
        let unknown =
            || message::ALTER_COLUMN_UNKNOWN.with(&[&"ALTER TABLE DROP COLUMN", name, &table]);
        let place = target.shape.place(name).ok_or_else(unknown)?;
        let keys = target.shape.keys.iter().map(|k| (&k.name, &k.columns));
        let foreign = target.shape.foreign.iter().map(|k| (&k.name, &k.columns));
        let mut users = keys
            .chain(foreign)
            .filter(|(_, columns)| columns.contains(&place));
        if let Some((user, _)) = users.next() {
            return Err(message::DEPENDS.with(&[&"object", user, name]));
        }
        let same = |c: &String| c.eq_ignore_ascii_case(name);
        let mut indexes = target.shape.indexes.iter();
        if let Some(index) = indexes.find(|i| i.columns.iter().any(same)) {
            return Err(message::DEPENDS.with(&[&"index", &index.name, name]));
        }
        if let Some(check) = check_of_column(session, &target.shape, place) {
            return Err(message::DEPENDS.with(&[&"object", &check.name, name]));
        }
        if let Some(user) = computed::user_of(session, &target.shape, place) {
            return Err(message::DEPENDS.with(&[&"column", &user, name]));
        }
        places.push(place);
    }
    let mut spec = target.shape.spec.clone();
    let mut at = 0;
    spec.columns.retain(|_| {
        at += 1;
        !places.contains(&(at - 1))
    });
    let fill: Filler = Box::new(move |row| {
        let kept = row.iter().enumerate().filter(|(i, _)| !places.contains(i));
        Ok(kept.map(|(_, value)| value.clone()).collect())
    });
    reshape(session, target, spec, target.shape.indexes.clone(), &fill)
}

fn drop_constraints(
    session: &mut Session,
    target: &ChangedTable,
    names: &[String],
) -> Result<(), Message> {
    let mut spec = target.shape.spec.clone();
    let mut all: Vec<String> = Vec::new();
    let (mut keys, mut foreign) = (target.shape.keys.iter(), target.shape.foreign.iter());
    let mut checks = target.shape.checks.iter();
    for constraint in &spec.constraints {
        let name = match constraint.kind {
            ConstraintKind::Foreign { .. } => foreign.next().map(|k| k.name.clone()),
            ConstraintKind::Check(_) => checks.next().map(|k| k.name.clone()),
            _ => keys.next().map(|k| k.name.clone()),
        };
        all.push(name.unwrap_or_default());
    }
    for name in names {
        let at = all
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name));
        let at = at.ok_or_else(|| message::NOT_A_CONSTRAINT.with(&[name]))?;
        all.remove(at);
        spec.constraints.remove(at);
    }
    let fill: Filler = Box::new(|row| Ok(row.clone()));
    reshape(session, target, spec, target.shape.indexes.clone(), &fill)
}

pub(crate) fn create_index(session: &mut Session, index: &IndexSpec, out: &mut Out) -> Flow {
    begun_again(session, out, |session, out| {
        create_index_once(session, index, out)
    })
}

fn create_index_once(session: &mut Session, index: &IndexSpec, out: &mut Out) -> Flow {
    let target = altered(session, &index.table, "CREATE INDEX")?;
    let mut indexes = target.shape.indexes.clone();
    if indexes
        .iter()
        .any(|i| i.name.eq_ignore_ascii_case(&index.name))
    {
        let known = message::INDEX_EXISTS.with(&[&index.name, &target.short()]);
        return Err(known.into());
    }
    indexes.push(index.clone());
    let fill: Filler = Box::new(|row| Ok(row.clone()));
    reshape(session, &target, target.shape.spec.clone(), indexes, &fill)?;
    Ok(out.done(Command::Other, None)?)
}

pub(crate) fn drop_index(
    session: &mut Session,
    named: (&str, &[String]),
    if_exists: bool,
    out: &mut Out,
) -> Flow {
    begun_again(session, out, |session, out| {
        drop_index_once(session, named, if_exists, out)
    })
}

fn drop_index_once(
    session: &mut Session,
    (name, table): (&str, &[String]),
    if_exists: bool,
    out: &mut Out,
) -> Flow {
    let target = altered(session, table, "DROP INDEX")?;
    let mut indexes = target.shape.indexes.clone();
    let count = indexes.len();
    indexes.retain(|i| !i.name.eq_ignore_ascii_case(name));
    if indexes.len() == count && !if_exists {
        let shown = format!("{}.{name}", table.join("."));
        return Err(message::DROP_MISSING.with(&[&"index", &shown]).into());
    }
    let fill: Filler = Box::new(|row| Ok(row.clone()));
    reshape(session, &target, target.shape.spec.clone(), indexes, &fill)?;
    Ok(out.done(Command::Other, None)?)
}

/// A procedure or a table that a statement of its own names.
pub(super) fn known(session: &Session, name: &str) -> Option<Arc<StoredObject>> {
    let mut parts = query::name_parts(name)?;
    parts.reverse();
    session.server.kept.named(&parts, &session.database)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::tests::session;
    use crate::syntax::{ColumnSpec, TypeName};

    #[test]
    fn a_table_that_has_the_name_of_one_that_is_taken_back_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(&dir);
        let kind = TypeName {
            name: "int".to_owned(),
            sizes: Vec::new(),
        };
        let spec = TableSpec {
            columns: vec![ColumnSpec {
                name: "a".to_owned(),
                kind,
                nullable: Some(true),
                identity: None,
                default: None,
                computed: None,
                fills: false,
            }],
            ..TableSpec::default()
        };
        let name = ["dbo".to_owned(), "t".to_owned()];
        let made = make(&mut session, &name, &spec).unwrap();
        // As another session may do meanwhile.
        drop_one(&mut session, ObjectKind::Table, &name).unwrap();
        let others = make(&mut session, &name, &spec).unwrap();
        unmake(&mut session, made).unwrap();
        assert_eq!(find(&session, &name).unwrap().id, others);
        unmake(&mut session, others).unwrap();
        assert!(find(&session, &name).is_err());
    }
}
