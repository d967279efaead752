//! Rows of the views about what a database has: its procedures, its tables and their columns; and of views about things
//! that a server here never has.
//!
//! Invariants
//! - A database's objects are those that scripts have created in it.
//! - A row has a value, or NULL, for each column that the view declares.
//!
//! Leaves to others: the views' columns (`schema.rs`), and keeping objects (`server/stored.rs`).

use std::sync::Arc;

use super::view::ViewColumns;
use crate::convert::{parse_moment, type_of};
use crate::message::Message;
use crate::server::Server;
use crate::server::objects::{FUNCTIONS, PROCEDURE, StoredObject, TABLE, VIEW};
use crate::syntax::{RoutineParameter, Statement, parse};
use crate::tables::{KeyKind, TableShape};
use crate::value::{Type, Value};

type Rows = Result<Vec<Vec<Value>>, Message>;

/// The number of the schema `dbo`.
pub(super) const DBO: i64 = 1;

/// The schemas of every database.
pub(super) const SCHEMAS: [(i64, &str); 3] = [(DBO, "dbo"), (3, "INFORMATION_SCHEMA"), (4, "sys")];

/// Nothing of this kind exists here.
pub(super) fn nothing(_: &Server, _: &str) -> Rows {
    Ok(Vec::new())
}

pub(super) fn of(server: &Server, database: &str) -> Vec<Arc<StoredObject>> {
    let mut all = server.kept.objects();
    all.retain(|o| o.object.database.eq_ignore_ascii_case(database));
    all
}

pub(super) fn date(text: &str) -> Value {
    parse_moment(text).map_or(Value::Null, |(at, _)| Value::DateTime(at))
}

fn type_words(kind: &str) -> &'static str {
    match kind {
        "P" => "SQL_STORED_PROCEDURE",
        "V" => "VIEW",
        "FN" => "SQL_SCALAR_FUNCTION",
        "IF" => "SQL_INLINE_TABLE_VALUED_FUNCTION",
        "TF" => "SQL_TABLE_VALUED_FUNCTION",
        _ => "USER_TABLE",
    }
}

/// The columns that the views about objects begin with.
fn head(o: &StoredObject) -> Vec<Value> {
    let object = &o.object;
    let no = Value::bit(false);
    vec![
        Value::text(object.name.as_str()),
        Value::Int(object.id),
        Value::Null,
        Value::Int(DBO),
        Value::Int(0),
        Value::text(format!("{:<2}", object.kind)),
        Value::text(type_words(&object.kind)),
        date(&object.created),
        date(&object.changed),
        no.clone(),
        no.clone(),
        no,
    ]
}

fn with(mut row: Vec<Value>, more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    row.extend(more);
    row
}

/// The numbers of a table's keys: more than its columns and constraints.
const KEYS: i64 = 4000;

/// The keys of a table as `sys.objects` has them: a number next to their table's, as they have none of their own.
pub(super) fn key_id(table: i64, place: usize) -> i64 {
    -(table * KEYS + place as i64 + 1) % i64::from(i32::MAX)
}

/// The number of a temporary table, as `OBJECT_ID` and the views about `tempdb` have it.
pub(super) fn temporary_id(id: u32) -> i64 {
    -i64::from(id) - 1
}

/// The rows of tables that no script keeps, in a view about the objects of a database. One without a shape is SQL Server's own.
pub(super) fn of_tables(view: &str, tables: &ViewColumns) -> Vec<Vec<Value>> {
    // `is_ms_shipped` is the tenth column.
    let shipped = |o: &StoredObject, mut row: Vec<Value>| {
        if let Some(place) = row.get_mut(9).filter(|_| o.table.is_none()) {
            *place = Value::bit(true);
        }
        row
    };
    match view {
        "objects" | "all_objects" => {
            let all = tables.iter().map(|(o, _)| o.clone());
            let mut rows = objects_of(all.collect());
            for (o, _) in tables.iter().filter(|(o, _)| o.table.is_none()) {
                let own = rows
                    .iter_mut()
                    .find(|row| row[1] == Value::Int(o.object.id));
                own.into_iter().for_each(|row| row[9] = Value::bit(true));
            }
            rows
        }
        "tables" => tables
            .iter()
            .map(|(o, columns)| shipped(o, table_row(o, columns.len())))
            .collect(),
        "sysobjects" => tables.iter().map(|(o, _)| sysobject(o)).collect(),
        "TABLES" => tables
            .iter()
            .map(|(o, _)| with(full_name(o), [Value::text("BASE TABLE")]))
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn objects(server: &Server, database: &str) -> Rows {
    Ok(objects_of(of(server, database)))
}

fn objects_of(all: Vec<Arc<StoredObject>>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for o in all {
        rows.push(head(&o));
        let Some(shape) = &o.table else {
            continue;
        };
        let keys = shape.keys.iter().enumerate();
        let keys = keys.filter_map(|(i, key)| match key.kind {
            KeyKind::Primary => Some((i, &key.name, "PK", "PRIMARY_KEY_CONSTRAINT")),
            KeyKind::Unique => Some((i, &key.name, "UQ", "UNIQUE_CONSTRAINT")),
            KeyKind::Index => None,
        });
        let foreign = shape.foreign.iter().enumerate();
        let foreign = foreign.map(|(i, key)| {
            let place = shape.keys.len() + i;
            (place, &key.name, "F ", "FOREIGN_KEY_CONSTRAINT")
        });
        let checks = shape.checks.iter().enumerate();
        let checks = checks.map(|(i, check)| {
            let place = shape.keys.len() + shape.foreign.len() + i;
            (place, &check.name, "C ", "CHECK_CONSTRAINT")
        });
        for (place, name, kind, words) in keys.chain(foreign).chain(checks) {
            let mut row = head(&o);
            row[0] = Value::text(name.as_str());
            row[1] = Value::Int(key_id(o.object.id, place));
            row[4] = Value::Int(o.object.id);
            row[5] = Value::text(kind);
            row[6] = Value::text(words);
            rows.push(row);
        }
    }
    rows
}

pub(super) fn procedures(server: &Server, database: &str) -> Rows {
    let all = of(server, database).into_iter();
    let all = all.filter(|o| o.table.is_none() && o.object.kind == "P");
    let row = |o: Arc<StoredObject>| with(head(&o), vec![Value::bit(false); 4]);
    Ok(all.map(row).collect())
}

pub(super) fn tables_of(
    server: &Server,
    database: &str,
) -> Vec<(Arc<StoredObject>, Arc<TableShape>)> {
    let all = of(server, database).into_iter();
    all.filter_map(|o| o.table.clone().map(|table| (o, table)))
        .collect()
}

fn table_row(o: &StoredObject, columns: usize) -> Vec<Value> {
    let more = [
        Value::Int(0),
        Value::Int(columns as i64),
        Value::bit(true),
        Value::Int(0),
        Value::text("NON_TEMPORAL_TABLE"),
        Value::bit(false),
        Value::bit(false),
    ];
    with(head(o), more)
}

pub(super) fn tables(server: &Server, database: &str) -> Rows {
    let all = tables_of(server, database).into_iter();
    let row = |(o, shape): (Arc<StoredObject>, Arc<TableShape>)| table_row(&o, shape.columns.len());
    Ok(all.map(row).collect())
}

/// `system_type_id`, the length in bytes, the precision and the scale of a type, as `sys.columns` has them.
pub(crate) fn facts(kind: Type) -> [i64; 4] {
    let length = |n: Option<u16>, bytes: i64| n.map_or(-1, |n| i64::from(n) * bytes);
    match kind {
        Type::Bit => [104, 1, 1, 0],
        Type::TinyInt => [48, 1, 3, 0],
        Type::SmallInt => [52, 2, 5, 0],
        Type::Int => [56, 4, 10, 0],
        Type::BigInt => [127, 8, 19, 0],
        Type::Numeric { precision, scale } => {
            let bytes = match precision {
                0..=9 => 5,
                10..=19 => 9,
                20..=28 => 13,
                _ => 17,
            };
            [108, bytes, precision.into(), scale.into()]
        }
        Type::Money => [60, 8, 19, 4],
        Type::SmallMoney => [122, 4, 10, 4],
        Type::Float => [62, 8, 53, 0],
        Type::Date => [40, 3, 10, 0],
        Type::Time(scale) => [41, 5, 16, scale.into()],
        Type::SmallDateTime => [58, 4, 16, 0],
        Type::DateTime => [61, 8, 23, 3],
        Type::DateTime2(scale) => [42, 8, 27, scale.into()],
        Type::DateTimeOffset(scale) => [43, 10, 34, scale.into()],
        Type::Char(n) => [175, n.into(), 0, 0],
        Type::NChar(n) => [239, i64::from(n) * 2, 0, 0],
        Type::VarChar(n) => [167, length(n, 1), 0, 0],
        Type::NVarChar(n) => [231, length(n, 2), 0, 0],
        Type::Binary(n) => [173, n.into(), 0, 0],
        Type::VarBinary(n) => [165, length(n, 1), 0, 0],
        Type::UniqueIdentifier => [36, 16, 0, 0],
        Type::SqlVariant => [98, 8016, 0, 0],
    }
}

/// A parameter of a procedure or a function.
pub(super) struct KnownParameter {
    pub name: String,
    pub kind: Type,
    pub output: bool,
}

/// The parameters of a procedure or a function.
pub(super) fn schema_parameters(o: &StoredObject) -> Vec<KnownParameter> {
    if o.table.is_some() {
        return Vec::new();
    }
    let routine = match parse(&o.object.definition) {
        Ok(mut batch) => batch.statements.pop().map(|s| s.statement),
        Err(_) => None,
    };
    let Some(Statement::Routine(routine)) = routine else {
        return Vec::new();
    };
    let known = |parameter: &RoutineParameter| KnownParameter {
        name: parameter.name.clone(),
        kind: type_of(&parameter.kind.name, &parameter.kind.sizes).unwrap_or(Type::SqlVariant),
        output: parameter.output,
    };
    routine.parameters.iter().map(known).collect()
}

/// The parameters of procedures and functions.
pub(super) fn parameters(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for o in of(server, database) {
        for (parameter, number) in schema_parameters(&o).iter().zip(1..) {
            let [type_id, length, precision, scale] = facts(parameter.kind);
            rows.push(vec![
                Value::Int(o.object.id),
                Value::text(parameter.name.as_str()),
                Value::Int(number),
                Value::Int(type_id),
                Value::Int(type_id),
                Value::Int(length),
                Value::Int(precision),
                Value::Int(scale),
                Value::bit(parameter.output),
                // SQL Server knows only the defaults of its own assemblies.
                Value::bit(false),
            ]);
        }
    }
    Ok(rows)
}

/// The number of a foreign key, for `OBJECT_ID`.
pub(super) fn constraint_id(server: &Server, database: &str, name: &str) -> Option<i64> {
    let all = tables_of(server, database);
    all.iter().find_map(|(o, shape)| {
        let keys = shape.keys.iter().map(|k| &k.name);
        let names = keys.chain(shape.foreign.iter().map(|k| &k.name));
        let mut names = names.chain(shape.checks.iter().map(|k| &k.name));
        let place = names.position(|known| known.eq_ignore_ascii_case(name))?;
        Some(key_id(o.object.id, place))
    })
}

pub(super) fn modules(server: &Server, database: &str) -> Rows {
    let all = of(server, database)
        .into_iter()
        .filter(|o| o.table.is_none());
    let row = |o: Arc<StoredObject>| {
        let no = Value::bit(false);
        vec![
            Value::Int(o.object.id),
            Value::text(o.object.definition.as_str()),
            Value::bit(o.object.uses_ansi_nulls),
            Value::bit(o.object.uses_quoted_identifier),
            no.clone(),
            no.clone(),
            no.clone(),
            no.clone(),
            Value::Null,
            no,
        ]
    };
    Ok(all.map(row).collect())
}

fn sysobject(o: &Arc<StoredObject>) -> Vec<Value> {
    let kind = Value::text(format!("{:<2}", o.object.kind));
    vec![
        Value::text(o.object.name.as_str()),
        Value::Int(o.object.id),
        kind.clone(),
        Value::Int(DBO),
        Value::Int(0),
        date(&o.object.created),
        kind,
    ]
}

pub(super) fn sysobjects(server: &Server, database: &str) -> Rows {
    Ok(of(server, database).iter().map(sysobject).collect())
}

pub(super) fn schemas(_: &Server, _: &str) -> Rows {
    let row = |(id, name): (i64, &str)| vec![Value::text(name), Value::Int(id), Value::Int(id)];
    Ok(SCHEMAS.map(row).into())
}

/// The host, as far as scripts ask: which separator its paths have.
pub(super) fn host(_: &Server, _: &str) -> Rows {
    Ok(vec![vec![
        Value::text("Linux"),
        Value::text("Linux"),
        Value::text(""),
        Value::text(""),
        Value::Null,
        Value::Int(0),
    ]])
}

/// One row for each database, none of which is mirrored.
pub(super) fn mirroring(server: &Server, _: &str) -> Rows {
    let count = server.database_names().len() as i64;
    let row = |i: i64| with(vec![Value::Int(i + 5)], vec![Value::Null; 7]);
    Ok((0..count).map(row).collect())
}

pub(super) fn views(server: &Server, database: &str) -> Rows {
    let all = of(server, database).into_iter();
    let all = all.filter(|o| o.object.kind == VIEW);
    Ok(all.map(|o| head(&o)).collect())
}

/// The names that a row of INFORMATION_SCHEMA begins with.
pub(super) fn full_name(o: &StoredObject) -> Vec<Value> {
    let object = &o.object;
    [object.database.as_str(), "dbo", object.name.as_str()]
        .map(Value::text)
        .into()
}

pub(super) fn schema_tables(server: &Server, database: &str) -> Rows {
    let word = |o: &StoredObject| match o.object.kind.as_str() {
        TABLE => Some("BASE TABLE"),
        VIEW => Some("VIEW"),
        _ => None,
    };
    let all = of(server, database).into_iter();
    let row = |o: Arc<StoredObject>| Some(with(full_name(&o), [Value::text(word(&o)?)]));
    Ok(all.filter_map(row).collect())
}

pub(super) fn schema_views(server: &Server, database: &str) -> Rows {
    let all = of(server, database).into_iter();
    let row = |o: Arc<StoredObject>| {
        let definition = Value::text(o.object.definition.as_str());
        with(
            full_name(&o),
            [definition, Value::text("NONE"), Value::text("NO")],
        )
    };
    Ok(all.filter(|o| o.object.kind == VIEW).map(row).collect())
}

pub(super) fn schema_routines(server: &Server, database: &str) -> Rows {
    let all = of(server, database).into_iter();
    let row = |o: Arc<StoredObject>| {
        let word = match o.object.kind.as_str() {
            PROCEDURE => "PROCEDURE",
            kind if FUNCTIONS.contains(&kind) => "FUNCTION",
            _ => return None,
        };
        let more = [
            Value::text(word),
            Value::text(o.object.definition.as_str()),
            date(&o.object.created),
            date(&o.object.changed),
        ];
        Some(with(with(full_name(&o), full_name(&o)), more))
    };
    Ok(all.filter_map(row).collect())
}
