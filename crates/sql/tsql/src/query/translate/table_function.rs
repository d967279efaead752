//! Translates functions that make tables, in FROM and after APPLY.
//!
//! Invariants
//! - Rows of most are made before the query runs: their arguments are literals, variables and what the server knows.
//! - A function that is not known is refused with SQL Server's message.
//!
//! Leaves to others: tables with names (`tables.rs`).

use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, ObjectName, TableAlias};

use super::state::{NamedTable, Translator, not_here, renamed};
use super::tables;
use crate::convert::convert;
use crate::message::{self, Message};
use crate::query::plan::UsedRows;
use crate::query::schema::database_id;
use crate::query::sql::Sql;
use crate::query::system::{file_stats, volumes};
use crate::statement::ground;
use crate::tables::TableRow;
use crate::value::{Column, Type, Value};

/// Columns and rows of a table.
type Made = (Vec<Column>, Vec<TableRow>);

/// Functions of the schema `sys` whose rows are made before the query runs.
const KNOWN: [&str; 6] = [
    "dm_db_log_stats",
    "dm_exec_input_buffer",
    "dm_exec_sql_text",
    FILE_STATS,
    "dm_os_file_exists",
    VOLUME_STATS,
];

const FILE_STATS: &str = "dm_io_virtual_file_stats";
const VOLUME_STATS: &str = "dm_os_volume_stats";

/// Functions of SQL Server that this server does not have, whatever schema they are written with: refused by name.
const ELSEWHERE: &[&str] = &[
    "fn_builtin_permissions",
    "fn_dblog",
    "fn_dump_dblog",
    "fn_get_audit_file",
    "fn_get_sql",
    "fn_hadr_is_primary_replica",
    "fn_helpcollations",
    "fn_listextendedproperty",
    "fn_my_permissions",
    "fn_servershareddrives",
    "fn_trace_geteventinfo",
    "fn_trace_getfilterinfo",
    "fn_trace_getinfo",
    "fn_trace_gettable",
    "fn_varbintohexstr",
    "fn_varbintohexsubstring",
    "fn_virtualfilestats",
    "fn_virtualservernodes",
    "fn_xe_file_target_read_file",
    "openquery",
    "openrowset",
    "opendatasource",
    "openxml",
    "sqlagent_suser_sname",
];

/// Whether SQL Server has a function of this name, in lower case, and this server has not.
pub(super) fn is_elsewhere(lower: &str) -> bool {
    ELSEWHERE.contains(&lower)
}

fn columns(declared: &[(&str, Type)]) -> Vec<Column> {
    declared
        .iter()
        .map(|(name, kind)| Column::new(*name, *kind))
        .collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        value => Some(value.to_string()),
    }
}

impl Translator<'_> {
    pub(super) fn table_function(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        arguments: &[FunctionArg],
    ) -> Result<String, Message> {
        self.context.names_own();
        let parts = tables::parts(name);
        let last = parts.last().cloned().unwrap_or_default();
        if let (true, [FunctionArg::Unnamed(FunctionArgExpr::Expr(handle))]) =
            (last.eq_ignore_ascii_case("dm_exec_sql_text"), arguments)
        {
            return self.request_text(handle, alias);
        }
        let lower = last.to_ascii_lowercase();
        if let Some((columns, rows)) = self.rows_of_columns(&lower, arguments)? {
            return self.packed(last, (columns, Vec::new()), alias, &rows);
        }
        let of_system = parts
            .len()
            .checked_sub(2)
            .is_some_and(|at| parts[at].eq_ignore_ascii_case("sys"));
        if is_elsewhere(&lower) {
            return Err(not_here(&parts.join(".")));
        }
        if of_system && !KNOWN.contains(&lower.as_str()) {
            return Err(not_here(&parts.join(".")));
        }
        let mut values = Vec::new();
        for argument in arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
                return Err(not_here("this kind of argument"));
            };
            values.push(match expr {
                // `NULL` and `DEFAULT` mean all of something.
                Expr::Identifier(word) if word.value.eq_ignore_ascii_case("DEFAULT") => Value::Null,
                expr => self.constant(expr)?,
            });
        }
        let made = self.rows_of_function(&lower, &values)?;
        let Some((columns, rows)) = made else {
            return Err(message::OBJECT_UNKNOWN.with(&[&parts.join(".")]));
        };
        let called = alias.map_or(last, |a| a.name.value.clone());
        let columns = match alias {
            Some(alias) => renamed(columns, &alias.columns)?,
            None => columns,
        };
        let own_alias = self.new_alias();
        self.named_rows(called, own_alias, columns, UsedRows::Made(rows))
    }

    fn rows_of_function(&self, name: &str, values: &[Value]) -> Result<Option<Made>, Message> {
        let server = self.context.server;
        Ok(Some(match (name, values) {
            ("dm_os_file_exists", [path]) => {
                let names = [
                    "file_exists",
                    "file_is_a_directory",
                    "parent_directory_exists",
                ];
                let columns = names.map(|name| Column::new(name, Type::Bit)).into();
                let found = ground::existence(server, &text(path).unwrap_or_default());
                (columns, vec![found.map(Value::bit).into()])
            }
            ("dm_db_log_stats", [_]) => {
                let columns = columns(&[
                    ("database_id", Type::Int),
                    ("recovery_model", Type::nvarchar(60)),
                    ("total_log_size_mb", Type::Float),
                    ("active_log_size_mb", Type::Float),
                    ("log_truncation_holdup_reason", Type::nvarchar(60)),
                    ("log_backup_time", Type::DateTime),
                    ("log_since_last_log_backup_mb", Type::Float),
                ]);
                (columns, Vec::new())
            }
            (FILE_STATS | VOLUME_STATS, [database, file]) => {
                let Some((columns, mut rows)) = self.of_files(name) else {
                    return Ok(None);
                };
                for (at, wanted) in [database, file].into_iter().enumerate() {
                    match convert(wanted, Type::Int)? {
                        Value::Null if name == FILE_STATS => {}
                        wanted => rows.retain(|row| row[at] == wanted),
                    }
                }
                (columns, rows)
            }
            ("dm_exec_sql_text" | "dm_exec_input_buffer", _) => self.texts(),
            _ => return Ok(None),
        }))
    }

    /// The statements that sessions run now, by the handles that `sys.dm_exec_requests` shows.
    fn texts(&self) -> Made {
        let declared = [
            ("dbid", Type::SmallInt),
            ("objectid", Type::Int),
            ("number", Type::SmallInt),
            ("encrypted", Type::Bit),
            ("text", Type::NVarChar(None)),
            ("event_info", Type::NVarChar(None)),
            ("\u{1}handle", Type::VarBinary(Some(64))),
        ];
        let server = self.context.server;
        let activities = server.activities.lock().clone();
        let row = |(id, activity): (u32, crate::server::Activity)| {
            let database = database_id(server, &activity.database);
            let text = Value::text(activity.text.as_str());
            vec![
                database.map_or(Value::Null, Value::Int),
                Value::Null,
                Value::Null,
                Value::bit(false),
                text.clone(),
                text,
                Value::Binary(id.to_be_bytes().into()),
            ]
        };
        (
            columns(&declared),
            activities.into_iter().map(row).collect(),
        )
    }

    /// The text of a request, by a handle that may be a column of a query around this one.
    fn request_text(
        &mut self,
        handle: &Expr,
        alias: Option<&TableAlias>,
    ) -> Result<String, Message> {
        // Tables of this FROM cannot be named inside.
        let own = self.scopes.pop();
        let handle = self.expression(handle);
        self.scopes.extend(own);
        let handle = handle?.sql;
        let (mut columns, rows) = self.texts();
        let at = columns.len() - 1;
        let table = self.use_table(columns.len(), UsedRows::Made(rows));
        let own_alias = self.new_alias();
        let called = alias.map_or("dm_exec_sql_text", |a| a.name.value.as_str());
        columns.truncate(at);
        self.add(NamedTable {
            name: called.to_owned(),
            prefix: format!("{own_alias}."),
            columns,
            view: None,
            is_packed: false,
            labels: Vec::new(),
        })?;
        Ok(format!(
            "(SELECT * FROM {table} WHERE c{at} = {handle}) AS {own_alias}"
        ))
    }

    /// APPLY of the texts of requests, by a handle that is a column.
    pub(super) fn applied_text(
        &mut self,
        word: &str,
        handle: &Expr,
        alias: Option<&TableAlias>,
    ) -> Result<String, Message> {
        let handle = self.expression(handle)?.sql;
        let (columns, rows) = self.texts();
        let at = columns.len() - 1;
        let called = alias.map_or("dm_exec_sql_text", |a| a.name.value.as_str());
        let own_alias = self.new_alias();
        let on = format!("{own_alias}.c{at} = {handle}");
        let rows = UsedRows::Made(rows);
        let right = self.named_rows(called.to_owned(), own_alias, columns, rows)?;
        Ok(format!(" {word} {right} ON {on}"))
    }

    /// Facts about each database's file; the first columns are the numbers of both. `None`: another function.
    fn of_files(&self, name: &str) -> Option<Made> {
        let server = self.context.server;
        let whole = |names: &[&'static str]| -> Vec<(&'static str, Type)> {
            names.iter().map(|name| (*name, Type::BigInt)).collect()
        };
        match name {
            FILE_STATS => {
                let mut declared =
                    vec![("database_id", Type::SmallInt), ("file_id", Type::SmallInt)];
                declared.extend(whole(&[
                    "sample_ms",
                    "num_of_reads",
                    "num_of_bytes_read",
                    "io_stall_read_ms",
                    "num_of_writes",
                    "num_of_bytes_written",
                    "io_stall_write_ms",
                    "io_stall",
                    "size_on_disk_bytes",
                ]));
                declared.push(("file_handle", Type::VarBinary(Some(8))));
                declared.extend(whole(&[
                    "io_stall_queued_read_ms",
                    "io_stall_queued_write_ms",
                ]));
                Some((columns(&declared), file_stats(server)))
            }
            VOLUME_STATS => {
                let declared = [
                    ("database_id", Type::Int),
                    ("file_id", Type::Int),
                    ("volume_mount_point", Type::nvarchar(512)),
                    ("volume_id", Type::nvarchar(512)),
                    ("logical_volume_name", Type::nvarchar(512)),
                    ("file_system_type", Type::nvarchar(512)),
                    ("total_bytes", Type::BigInt),
                    ("available_bytes", Type::BigInt),
                    ("supports_compression", Type::TinyInt),
                    ("supports_alternate_streams", Type::TinyInt),
                    ("supports_sparse_files", Type::TinyInt),
                    ("is_read_only", Type::TinyInt),
                    ("is_compressed", Type::TinyInt),
                ];
                Some((columns(&declared), volumes(server)))
            }
            _ => None,
        }
    }

    /// APPLY of a function of a database's file, by numbers that may be columns. `None`: another function.
    pub(super) fn applied_files(
        &mut self,
        word: &str,
        (name, database, file): (&str, &Expr, &Expr),
        alias: Option<&TableAlias>,
    ) -> Result<Option<String>, Message> {
        let Some((columns, rows)) = self.of_files(name) else {
            return Ok(None);
        };
        let (database, file) = (self.expression(database)?.sql, self.expression(file)?.sql);
        let called = alias.map_or(name, |a| a.name.value.as_str());
        let own_alias = self.new_alias();
        let same = |column: &str, wanted: Sql| match name {
            // NULL: all of them.
            FILE_STATS => {
                format!("{own_alias}.{column} = coalesce({wanted}, {own_alias}.{column})")
            }
            _ => format!("{own_alias}.{column} = {wanted}"),
        };
        let on = format!("{} AND {}", same("c0", database), same("c1", file));
        let rows = UsedRows::Made(rows);
        let right = self.named_rows(called.to_owned(), own_alias, columns, rows)?;
        Ok(Some(format!(" {word} {right} ON {on}")))
    }

    /// Functions that give rows for what a row on their left has. `None`: another function.
    fn rows_of_columns(
        &mut self,
        name: &str,
        arguments: &[FunctionArg],
    ) -> Result<Option<(Vec<Column>, String)>, Message> {
        let mut plain = Vec::new();
        for argument in arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
                return Ok(None);
            };
            plain.push(expr);
        }
        match (name, plain.as_slice()) {
            ("string_split", [whole, between] | [whole, between, _]) => {
                let ordinal = match plain.get(2) {
                    Some(ordinal) => self.constant(ordinal)?,
                    None => Value::Int(0),
                };
                let mut declared = vec![("value", Type::NVarChar(None))];
                if ordinal == Value::Int(1) {
                    declared.push(("ordinal", Type::BigInt));
                }
                let (whole, between) = (self.as_text(whole)?, self.as_text(between)?);
                let ordinal = self.bind(ordinal);
                let rows = Sql::call("ts_split", [whole, between, ordinal]).to_string();
                Ok(Some((columns(&declared), rows)))
            }
            ("generate_series", [first, last, step @ ..]) if step.len() <= 1 => {
                let mut kind = None;
                let mut all = Vec::new();
                for expr in [*first, *last].into_iter().chain(step.iter().copied()) {
                    let typed = self.expression(expr)?;
                    kind = kind.or(typed.kind);
                    if typed.kind.is_some_and(|kind| !kind.is_integer()) {
                        return Err(not_here("GENERATE_SERIES of numbers with a fraction"));
                    }
                    all.push(typed.sql);
                }
                if step.is_empty() {
                    all.push(Sql::null());
                }
                let declared = [("value", kind.unwrap_or(Type::Int))];
                let rows = Sql::call("ts_series", all).to_string();
                Ok(Some((columns(&declared), rows)))
            }
            _ => Ok(None),
        }
    }
}
