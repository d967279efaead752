//! Functions about objects whose argument may be a column: DB_NAME, OBJECT_NAME, OBJECT_DEFINITION and their kin.
//!
//! Invariants
//! - What they know is a table of the query, filled before it runs: nothing asks the server during a query.
//!
//! Leaves to others: functions with arguments that are known before (`call.rs`).

use sqlparser::ast::Expr;

use super::state::{Translator, TypedSql};
use crate::flow::SYSTEM_DATABASES;
use crate::message::Message;
use crate::query::collation;
use crate::query::context::QueryContext;
use crate::query::datatypes::SYSTEM_TYPES;
use crate::query::objects::{SCHEMAS, facts};
use crate::query::plan::{UsedRows, UsedTable};
use crate::query::schema::{database_id, database_names};
use crate::query::texts::parts as name_parts;
use crate::server::is_shared;
use crate::server::objects::StoredObject;
use crate::tables::TableRow;
use crate::value::{Type, Value};

const NAME: Type = Type::nvarchar(128);

/// The only schema that holds scripts' objects.
pub(super) const DBO: &str = "dbo";

/// Properties of a database that scripts ask for; NULL for others.
fn database_property(context: &QueryContext, name: &str, property: &str) -> Value {
    let server = context.server;
    let is_system = SYSTEM_DATABASES.contains(&name);
    match property.to_ascii_uppercase().as_str() {
        "STATUS" if server.kept.sequence(name).is_some() => Value::text("RESTORING"),
        "STATUS" => match is_system || matches!(server.database(name), Ok(Some(_))) {
            true => Value::text("ONLINE"),
            false => Value::text("OFFLINE"),
        },
        "RECOVERY" => Value::text(if server.is_logged(name) {
            "FULL"
        } else {
            "SIMPLE"
        }),
        "UPDATEABILITY" => Value::text("READ_WRITE"),
        "USERACCESS" => Value::text("MULTI_USER"),
        "COLLATION" => Value::text(collation::SERVER),
        "ISINSTANDBY" | "ISAUTOCLOSE" | "ISAUTOSHRINK" => Value::Int(0),
        _ => Value::Null,
    }
}

/// Properties of an object that scripts ask for; NULL for others.
fn object_property(o: &StoredObject, property: &str) -> Value {
    let is = |kinds: &[&str]| Value::bit(kinds.contains(&o.object.kind.as_str()));
    match property.to_ascii_uppercase().as_str() {
        "ISPROCEDURE" => is(&["P"]),
        "ISTABLE" => is(&["U"]),
        "ISUSERTABLE" => is(&["U"]),
        "ISVIEW" => is(&["V"]),
        "ISSCALARFUNCTION" => is(&["FN"]),
        "ISINLINEFUNCTION" => is(&["IF"]),
        "ISTABLEFUNCTION" => is(&["IF", "TF"]),
        "ISTRIGGER" | "ISMSSHIPPED" | "ISSYSTEMTABLE" | "ISENCRYPTED" => Value::Int(0),
        _ => Value::Null,
    }
}

impl Translator<'_> {
    /// COL_LENGTH: the bytes of a column, or NULL.
    pub(super) fn column_length(&self, table: &str, column: &str) -> Value {
        let mut parts = name_parts(table).unwrap_or_default();
        parts.reverse();
        let last = parts.last().map_or("", String::as_str);
        let context = &self.context;
        let columns = match last.starts_with('#') && !is_shared(last) {
            true => {
                let id = context.tables.temporary(last);
                id.and_then(|id| context.tables.get(id))
                    .map(|t| t.shape.result_columns())
            }
            false => {
                let found = context.server.kept.named(&parts, &self.database);
                found.map(|o| o.columns())
            }
        };
        let mut all = columns.into_iter().flatten();
        let found = all.find(|c| c.name.eq_ignore_ascii_case(column));
        found.map_or(Value::Null, |c| Value::Int(facts(c.kind)[1]))
    }

    /// A table of this query, and its name in SQLite.
    pub(super) fn use_table(&mut self, columns: usize, rows: UsedRows) -> String {
        let table = UsedTable {
            number: self.tables.len(),
            columns,
            rows,
        };
        let name = table.name();
        self.tables.push(table);
        name
    }

    /// The value next to a key, or NULL.
    fn looked_up(
        &mut self,
        key: &Expr,
        rows: Vec<(Value, Value)>,
        kind: Type,
    ) -> Result<TypedSql, Message> {
        let key = self.expression(key)?;
        let text = if key.kind().is_text() {
            " COLLATE NOCASE"
        } else {
            ""
        };
        let rows: Vec<TableRow> = rows.into_iter().map(|(k, v)| vec![k, v]).collect();
        let table = self.use_table(2, UsedRows::Made(rows));
        let sql = format!("(SELECT c1 FROM {table} WHERE c0 = {}{text})", key.sql);
        Ok(TypedSql::of(sql, kind))
    }

    /// OBJECT_NAME and OBJECT_SCHEMA_NAME of an object in the database of a number.
    fn name_in(&mut self, function: &str, id: &Expr, database: &Expr) -> Result<TypedSql, Message> {
        let server = self.context.server;
        let (id, database) = (self.expression(id)?.sql, self.expression(database)?.sql);
        let rows = server.kept.objects().into_iter().map(|o| {
            let name = match function {
                "OBJECT_NAME" => &o.object.name,
                _ => DBO,
            };
            let of = database_id(server, &o.object.database);
            let of = of.map_or(Value::Null, Value::Int);
            vec![Value::Int(o.object.id), Value::text(name), of]
        });
        let table = self.use_table(3, UsedRows::Made(rows.collect()));
        let sql = format!("(SELECT c1 FROM {table} WHERE c0 = {id} AND c2 = {database})");
        Ok(TypedSql::of(sql, NAME))
    }

    /// `None`: another function.
    pub(super) fn of_object(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<TypedSql>, Message> {
        let context = self.context;
        let int = |n: i64| Value::Int(n);
        let text = |text: &str| Value::text(text);
        let objects = || {
            let all = context.server.kept.objects().into_iter();
            let here = |o: &std::sync::Arc<crate::server::objects::StoredObject>| {
                o.object.database.eq_ignore_ascii_case(context.database)
            };
            all.filter(here).collect::<Vec<_>>()
        };
        let (key, rows, kind) = match (name, arguments) {
            ("DB_NAME", [id]) => {
                let all = database_names(context.server);
                let pair =
                    |name: &String| Some((int(database_id(context.server, name)?), text(name)));
                (id, all.iter().filter_map(pair).collect(), NAME)
            }
            ("DB_ID", [database]) => {
                let all = database_names(context.server);
                let pair =
                    |name: &String| Some((text(name), int(database_id(context.server, name)?)));
                (
                    database,
                    all.iter().filter_map(pair).collect(),
                    Type::SmallInt,
                )
            }
            ("OBJECT_NAME" | "OBJECT_SCHEMA_NAME", [id, database]) => {
                return self.name_in(name, id, database).map(Some);
            }
            ("OBJECT_NAME", [id]) => {
                let all = objects();
                let pairs = all.iter().map(|o| (int(o.object.id), text(&o.object.name)));
                (id, pairs.collect(), NAME)
            }
            ("OBJECT_SCHEMA_NAME", [id]) => {
                let all = objects();
                (
                    id,
                    all.iter().map(|o| (int(o.object.id), text(DBO))).collect(),
                    NAME,
                )
            }
            ("OBJECT_DEFINITION", [id]) => {
                let all = objects();
                let coded = all.iter().filter(|o| o.table.is_none());
                let pairs = coded.map(|o| (int(o.object.id), text(&o.object.definition)));
                (id, pairs.collect(), Type::NVarChar(None))
            }
            ("SCHEMA_NAME", [id]) => {
                let all = SCHEMAS.map(|(id, name)| (int(id), text(name)));
                (id, all.into(), NAME)
            }
            ("SCHEMA_ID", [name]) => {
                let all = SCHEMAS.map(|(id, name)| (text(name), int(id)));
                (name, all.into(), Type::Int)
            }
            ("TYPE_NAME", [id]) => {
                let all = SYSTEM_TYPES.iter().map(|t| (int(t.user), text(t.name)));
                (id, all.collect(), NAME)
            }
            ("TYPE_ID", [name]) => {
                let all = SYSTEM_TYPES.iter().map(|t| (text(t.name), int(t.user)));
                (name, all.collect(), Type::Int)
            }
            ("SUSER_SNAME" | "SUSER_NAME", [sid]) => {
                let all = vec![(Value::Binary(vec![1]), text("sa")), (int(1), text("sa"))];
                (sid, all, NAME)
            }
            ("DATABASEPROPERTYEX", [database, property]) => {
                let property = self.constant(property)?.to_string();
                let all = database_names(context.server);
                let pair =
                    |name: &String| (text(name), database_property(&context, name, &property));
                let kind = match property.to_ascii_uppercase().as_str() {
                    "STATUS" | "RECOVERY" | "UPDATEABILITY" | "USERACCESS" | "COLLATION" => NAME,
                    _ => Type::Int,
                };
                (database, all.iter().map(pair).collect(), kind)
            }
            ("FILEPROPERTY", [name, _]) => (name, Vec::new(), Type::Int),
            ("OBJECTPROPERTY", [id, property]) => {
                let property = self.constant(property)?.to_string();
                let all = objects();
                let pairs = all
                    .iter()
                    .map(|o| (int(o.object.id), object_property(o, &property)));
                (id, pairs.collect(), Type::Int)
            }
            ("USER_NAME", [id]) => (id, vec![(int(1), text(DBO))], NAME),
            _ => return Ok(None),
        };
        self.looked_up(key, rows, kind).map(Some)
    }
}
