//! Every view by its name; and the views about views, which need the others.
//!
//! Invariants
//! - A name without a database or a schema means the current database and `dbo`. A name of more parts than three finds
//!   nothing.
//! - A view's number is its place among all views, from 1; `OBJECT_ID` knows the same.
//!
//! Leaves to others: what the views have (`schema.rs`, `metadata.rs`).

use super::view::{Facts, Made, RowOrigin, View, ViewColumns};
use super::{metadata, objects, schema};
use crate::message::Message;
use crate::server::Server;
use crate::value::Value;

type Rows = Result<Vec<Facts>, Message>;

const OBJECTS: &str = "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, \
     type char(2), type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, \
     is_published bit, is_schema_published bit";

const fn of_database(
    name: &'static str,
    rows: fn(&Server, &str) -> Made,
    declared: &'static str,
) -> View {
    View {
        database: None,
        schema: "sys",
        name,
        declared,
        rows: RowOrigin::OfDatabase(rows),
    }
}

/// Views about views, and those that the catalog procedures read.
static VIEWS: &[View] = &[
    of_database("all_objects", all_objects, OBJECTS),
    of_database("system_objects", |_, _| Ok(system_views()), OBJECTS),
    of_database("system_views", |_, _| Ok(system_views()), OBJECTS),
    of_database("all_views", all_views, OBJECTS),
    metadata::of_columns("sys", "all_columns", all_columns, metadata::COLUMNS),
    metadata::of_columns(
        "sys",
        "spt_columns_odbc_view",
        metadata::odbc_columns,
        "TABLE_OWNER nvarchar(128), TABLE_NAME nvarchar(128), COLUMN_NAME nvarchar(128), DATA_TYPE smallint, \
         TYPE_NAME nvarchar(128), PRECISION int, LENGTH int, SCALE smallint, RADIX smallint, SQL_DATA_TYPE smallint, \
         SQL_DATETIME_SUB smallint, CHAR_OCTET_LENGTH int, SS_DATA_TYPE tinyint, NULLABLE smallint, \
         COLUMN_DEF nvarchar(4000), ORDINAL_POSITION int, IS_COMPUTED smallint, IS_IDENTITY smallint",
    ),
    of_database(
        "spt_parameters_odbc_view",
        metadata::odbc_parameters,
        "PROCEDURE_OWNER nvarchar(128), PROCEDURE_NAME nvarchar(128), COLUMN_NAME nvarchar(128), DATA_TYPE smallint, \
         TYPE_NAME nvarchar(128), PRECISION int, LENGTH int, SCALE smallint, RADIX smallint, SQL_DATA_TYPE smallint, \
         SQL_DATETIME_SUB smallint, CHAR_OCTET_LENGTH int, SS_DATA_TYPE tinyint, COLUMN_TYPE smallint, \
         ORDINAL_POSITION int, ROUTINE_TYPE char(2)",
    ),
];

/// Every view.
pub fn views() -> impl Iterator<Item = &'static View> {
    schema::VIEWS.iter().chain(metadata::VIEWS).chain(VIEWS)
}

/// The number of a view.
pub(super) fn number_of(view: &View) -> i64 {
    let place = views().position(|known| std::ptr::eq(known, view));
    place.map_or(0, |i| i as i64 + 1)
}

impl View {
    /// The view of these name parts, `[[database.]schema.]name`, and its database; omitted parts are empty.
    pub fn find(parts: &[String], database: &str) -> Option<(&'static View, String)> {
        let (name, before) = parts.split_last()?;
        let mut before = before.iter().rev().map(String::as_str);
        let schema = before.next().unwrap_or("");
        let place = before.next().filter(|d| !d.is_empty()).unwrap_or(database);
        if before.next().is_some() {
            return None;
        }
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let found = views().find(|view| {
            let here = view.database.is_none_or(|d| same(d, place));
            // A name without a schema means `dbo`.
            let in_schema =
                same(schema, view.schema) || (schema.is_empty() && view.schema == "dbo");
            here && in_schema && same(name, view.name)
        });
        found.map(|view| (view, place.to_owned()))
    }
}

/// SQL Server's own views, which every database shows.
fn system_views() -> Vec<Vec<Value>> {
    let row = |view: &'static View| {
        let schema = match view.schema {
            "sys" => 4,
            "INFORMATION_SCHEMA" => 3,
            _ => return None,
        };
        let (yes, no) = (Value::bit(true), Value::bit(false));
        Some(vec![
            Value::text(view.name),
            Value::Int(number_of(view)),
            Value::Null,
            Value::Int(schema),
            Value::Int(0),
            Value::text("V "),
            Value::text("VIEW"),
            Value::Null,
            Value::Null,
            yes,
            no.clone(),
            no,
        ])
    };
    views()
        .filter(|v| !is_internal(v))
        .filter_map(row)
        .collect()
}

/// Whether it is there for procedures alone.
fn is_internal(view: &View) -> bool {
    view.name.starts_with("spt_")
}

fn all_objects(server: &Server, database: &str) -> Made {
    let mut rows = objects::objects(server, database)?;
    rows.extend(system_views());
    Ok(rows)
}

fn all_views(server: &Server, database: &str) -> Made {
    let mut rows = objects::views(server, database)?;
    rows.extend(system_views());
    Ok(rows)
}

fn all_columns(server: &Server, database: &str, own: &ViewColumns) -> Rows {
    let mut rows = metadata::columns(server, database, own)?;
    for view in views().filter(|v| v.schema != "dbo" && !is_internal(v)) {
        let id = number_of(view);
        for (column, number) in view.columns().into_iter().zip(1..) {
            let mut row = metadata::column_facts(id, number, &column.name, column.kind, true);
            row.extend(metadata::rest_of_column());
            rows.push(row);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;

    #[test]
    fn declarations_are_read_whole() {
        for view in views() {
            let columns = view.columns();
            let commas = view.declared.matches(", ").count();
            assert_eq!(columns.len(), commas + 1, "{view:?}");
            for column in &columns {
                assert_ne!(
                    column.kind,
                    Type::NVarChar(None),
                    "{view:?} {}",
                    column.name
                );
            }
        }
    }

    #[test]
    fn names_find_their_views_from_where_they_are_seen() {
        let find = |name: &str, database: &str| {
            let parts: Vec<_> = name.split('.').map(str::to_owned).collect();
            View::find(&parts, database).map(|(v, _)| v.name)
        };
        assert_eq!(find("msdb.dbo.backupset", "shop"), Some("backupset"));
        assert_eq!(find("MSDB..BackupSet", "shop"), Some("backupset"));
        assert_eq!(find("backupset", "msdb"), Some("backupset"));
        assert_eq!(find("backupset", "master"), None);
        assert_eq!(find("sys.databases", "shop"), Some("databases"));
        assert_eq!(find("master.sys.databases", "shop"), Some("databases"));
        assert_eq!(find("databases", "shop"), None);
        assert_eq!(find("a.b.c.d", "shop"), None);
    }
}
