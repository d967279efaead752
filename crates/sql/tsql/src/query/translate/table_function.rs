//! Translates functions that make tables, in FROM and after APPLY.
//!
//! Invariants
//! - Their rows are made before the query runs, so their arguments are literals, variables and what the server knows.
//! - A function that is not known is refused with SQL Server's message.
//!
//! Leaves to others: tables with names (`tables.rs`).

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinOperator, ObjectName, TableAlias, TableFactor,
};

use super::state::{NamedTable, Translator, not_here, renamed};
use super::tables;
use crate::message::{self, Message};
use crate::query::plan::UsedRows;
use crate::query::schema::database_id;
use crate::statement::ground;
use crate::tables::TableRow;
use crate::value::{Column, Type, Value};
use crate::variables::Sum;

/// Columns and rows of a table.
type Made = (Vec<Column>, Vec<TableRow>);

/// The memory of a row with one value, without its text.
const ROW_BYTES: usize = 2 * size_of::<TableRow>() + size_of::<Value>();

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

/// STRING_SPLIT. Errors: a separator of more than one character.
fn split(arguments: &[Value]) -> Result<Made, Message> {
    let has_ordinal = arguments.get(2) == Some(&Value::Int(1));
    let mut declared = vec![("value", Type::NVarChar(None))];
    if has_ordinal {
        declared.push(("ordinal", Type::BigInt));
    }
    let (whole, between) = (text(&arguments[0]), text(&arguments[1]));
    let between = between.unwrap_or_default();
    if between.chars().count() != 1 {
        return Err(message::SEPARATOR.plain());
    }
    let pieces = whole
        .iter()
        .flat_map(|whole| whole.split(&between))
        .zip(1..);
    let mut rows = Vec::new();
    let mut sum = Sum::default();
    for (piece, number) in pieces {
        sum.add_bytes(piece.len() + ROW_BYTES)?;
        let mut row = vec![Value::text(piece)];
        if has_ordinal {
            row.push(Value::Int(number));
        }
        rows.push(row);
    }
    Ok((columns(&declared), rows))
}

impl Translator<'_> {
    pub(super) fn table_function(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        arguments: &[FunctionArg],
    ) -> Result<String, Message> {
        let parts = tables::parts(name);
        let last = parts.last().cloned().unwrap_or_default();
        if let (true, [FunctionArg::Unnamed(FunctionArgExpr::Expr(handle))]) =
            (last.eq_ignore_ascii_case("dm_exec_sql_text"), arguments)
        {
            return self.request_text(handle, alias);
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
        let made = self.rows_of_function(&last.to_ascii_lowercase(), &values)?;
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
            ("string_split", [_, _] | [_, _, _]) => split(values)?,
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
            ("dm_io_virtual_file_stats", [_, _]) => {
                let names = [
                    "sample_ms",
                    "num_of_reads",
                    "num_of_bytes_read",
                    "io_stall_read_ms",
                    "num_of_writes",
                    "num_of_bytes_written",
                    "io_stall_write_ms",
                    "io_stall",
                    "size_on_disk_bytes",
                ];
                let mut columns =
                    columns(&[("database_id", Type::SmallInt), ("file_id", Type::SmallInt)]);
                columns.extend(names.map(|name| Column::new(name, Type::BigInt)));
                (columns, Vec::new())
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
        })?;
        Ok(format!(
            "(SELECT * FROM {table} WHERE c{at} = {handle}) AS {own_alias}"
        ))
    }

    /// CROSS APPLY and OUTER APPLY of a function. That of the texts of requests takes a column; all others take what is
    /// known before.
    pub(super) fn applied(&mut self, join: &Join) -> Result<String, Message> {
        let is_outer = matches!(join.join_operator, JoinOperator::OuterApply);
        let word = if is_outer { "LEFT JOIN" } else { "INNER JOIN" };
        let TableFactor::Table {
            name,
            alias,
            args: Some(arguments),
            ..
        } = &join.relation
        else {
            return Err(not_here("APPLY of a query"));
        };
        let parts = tables::parts(name);
        let last = parts.last().cloned().unwrap_or_default();
        let is_text = last.eq_ignore_ascii_case("dm_exec_sql_text");
        let (true, [FunctionArg::Unnamed(FunctionArgExpr::Expr(handle))]) =
            (is_text, arguments.args.as_slice())
        else {
            let right = self.factor(&join.relation)?;
            return Ok(format!(" {word} {right} ON 1"));
        };
        let handle = self.expression(handle)?.sql;
        let (columns, rows) = self.texts();
        let at = columns.len() - 1;
        let called = alias.as_ref().map_or(last, |a| a.name.value.clone());
        let own_alias = self.new_alias();
        let on = format!("{own_alias}.c{at} = {handle}");
        let right = self.named_rows(called, own_alias, columns, UsedRows::Made(rows))?;
        Ok(format!(" {word} {right} ON {on}"))
    }
}
