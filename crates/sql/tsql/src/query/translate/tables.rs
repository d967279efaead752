//! Translates FROM: views, common table expressions, derived tables and joins.
//!
//! Invariants
//! - Tables of a FROM become the innermost scope of names; whoever asks for the scope removes it again. After an error
//!   there is none.
//! - A name that is no table and no view is refused with SQL Server's message, and a kind of table or join that is not known here by
//!   name.
//! - Two tables of one FROM have different names.
//!
//! Leaves to others: the views' columns and rows (`schema.rs`), and expressions in ON (`expression.rs`).

use std::sync::Arc;

use longshore_catalog::CatalogObject;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, TableAlias, TableFactor, TableWithJoins,
};

use super::lookup::DBO;
use super::pivot::Pivot;
use super::state::{NamedTable, ROW_NUMBER, Translator, column_alias, not_here, quoted, renamed};
use crate::message::{self, Message};
use crate::query::objects::{of_tables, temporary_id};
use crate::query::plan::UsedRows;
use crate::query::schema::{RowOrigin, View};
use crate::query::sqlite::table_of;
use crate::query::view::ViewColumns;
use crate::query::views::{number_of, views};
use crate::server::objects::{StoredObject, TABLE, VOLATILE};
use crate::server::{is_shared, text_of_date};
use crate::tables::{SessionTable, TableShape};
use crate::value::{Column, Type};

/// The columns of a session's own table, and its rows.
fn own_rows(id: u32, shape: &Arc<TableShape>) -> (Vec<Column>, UsedRows) {
    (shape.result_columns(), UsedRows::Own(id, shape.clone()))
}

/// The parts of a name; omitted ones (`msdb..backupset`) are empty.
pub fn parts(name: &ObjectName) -> Vec<String> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => ident.value.clone(),
        ObjectNamePart::Function(function) => function.to_string(),
    };
    name.0.iter().map(part).collect()
}

/// SQL Server's system tables of old, which every database shows in `dbo`.
const OLDER: &[&str] = &[
    "syscacheobjects",
    "syscharsets",
    "syscolumns",
    "syscomments",
    "sysconfigures",
    "sysconstraints",
    "syscurconfigs",
    "sysdepends",
    "sysfilegroups",
    "sysforeignkeys",
    "sysfulltextcatalogs",
    "sysindexes",
    "sysindexkeys",
    "syslanguages",
    "syslockinfo",
    "syslogins",
    "sysmembers",
    "sysmessages",
    "sysoledbusers",
    "sysopentapes",
    "sysperfinfo",
    "syspermissions",
    "sysprocesses",
    "sysprotects",
    "sysreferences",
    "sysremotelogins",
    "sysservers",
    "systypes",
    "sysusers",
];

/// Hints of a table, none of which has an effect here.
const HINTS: &[&str] = &[
    "FORCESCAN",
    "FORCESEEK",
    "HOLDLOCK",
    "NOEXPAND",
    "NOLOCK",
    "NOWAIT",
    "PAGLOCK",
    "READCOMMITTED",
    "READCOMMITTEDLOCK",
    "READPAST",
    "READUNCOMMITTED",
    "REPEATABLEREAD",
    "ROWLOCK",
    "SERIALIZABLE",
    "SNAPSHOT",
    "TABLOCK",
    "TABLOCKX",
    "UPDLOCK",
    "XLOCK",
];

/// Whether what stands in parentheses behind a table's name are hints, in the older form without WITH.
fn are_hints(arguments: &[FunctionArg]) -> bool {
    let is_hint = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(word))) => {
            let is = |hint: &&str| word.value.eq_ignore_ascii_case(hint);
            word.quote_style.is_none() && HINTS.iter().any(is)
        }
        _ => false,
    };
    !arguments.is_empty() && arguments.iter().all(is_hint)
}

/// The LSNs that the history does not keep: they are the checkpoint of the full backup before this one, and that of the base of a
/// differential. `None`: another column.
fn chain_lsn(column: &str) -> Option<&'static str> {
    match column {
        "database_backup_lsn" => Some(
            "ifnull((SELECT ifnull(b.checkpoint_lsn, b.longshore_start_us) FROM cat.backupset AS b \
             WHERE b.database_name = own.database_name AND b.family_guid IS own.family_guid AND b.type = 'D' \
             AND b.is_copy_only = 0 AND b.backup_set_id < own.backup_set_id ORDER BY b.backup_set_id DESC LIMIT 1), 0)",
        ),
        "differential_base_lsn" => Some(
            "CASE WHEN own.type = 'I' THEN (SELECT ifnull(b.checkpoint_lsn, b.longshore_start_us) \
             FROM cat.backupset AS b WHERE b.backup_set_uuid = own.differential_base_guid) END",
        ),
        // A database without WAL has a moment in place of an LSN.
        "first_lsn" => Some("ifnull(own.first_lsn, own.longshore_start_us)"),
        "checkpoint_lsn" => Some("ifnull(own.checkpoint_lsn, own.longshore_start_us)"),
        "last_lsn" => Some("ifnull(own.last_lsn, own.longshore_finish_us)"),
        // The set of a cluster does not tell; a backup of its log does.
        "recovery_model" => Some(
            "ifnull(own.recovery_model, CASE WHEN EXISTS (SELECT 1 FROM cat.backupset AS b \
             WHERE b.database_name = own.database_name AND b.family_guid IS own.family_guid AND b.type = 'L') \
             THEN 'FULL' ELSE 'SIMPLE' END)",
        ),
        _ => None,
    }
}

impl Translator<'_> {
    /// The FROM clause; its tables become the innermost scope, which the caller must remove.
    pub(super) fn from(&mut self, from: &[TableWithJoins]) -> Result<String, Message> {
        self.scopes.push(Vec::new());
        let made = self.tables(from);
        if made.is_err() {
            self.scopes.pop();
        }
        made
    }

    fn tables(&mut self, from: &[TableWithJoins]) -> Result<String, Message> {
        let mut all = Vec::new();
        for table in from {
            all.push(self.joined(table)?);
        }
        Ok(match all.is_empty() {
            true => String::new(),
            false => format!(" FROM {}", all.join(" CROSS JOIN ")),
        })
    }

    fn joined(&mut self, table: &TableWithJoins) -> Result<String, Message> {
        self.descend(|t| {
            let mut sql = t.factor(&table.relation)?;
            for join in &table.joins {
                sql += &t.join(join)?;
            }
            Ok(sql)
        })
    }

    fn join(&mut self, join: &Join) -> Result<String, Message> {
        // It is of all that is joined before it, and the syntax tree has it of its own table.
        if let TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } = join.relation {
            return Err(not_here(
                "PIVOT or UNPIVOT of a join: put the join into a derived table",
            ));
        }
        let (word, constraint) = match &join.join_operator {
            JoinOperator::Join(on) | JoinOperator::Inner(on) => ("JOIN", Some(on)),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => ("LEFT JOIN", Some(on)),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => ("RIGHT JOIN", Some(on)),
            JoinOperator::FullOuter(on) => ("FULL JOIN", Some(on)),
            JoinOperator::CrossJoin(_) => ("CROSS JOIN", None),
            JoinOperator::CrossApply | JoinOperator::OuterApply => {
                return self.applied(join);
            }
            _ => return Err(not_here("this kind of join")),
        };
        let right = self.factor(&join.relation)?;
        let on = match constraint {
            None => String::new(),
            Some(JoinConstraint::On(on)) => format!(" ON {}", self.expression(on)?.sql),
            Some(_) => return Err(not_here("a join without ON")),
        };
        Ok(format!(" {word} {right}{on}"))
    }

    pub(super) fn factor(&mut self, factor: &TableFactor) -> Result<String, Message> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: Some(arguments),
                ..
            } if are_hints(&arguments.args) && !self.is_of_rows(name) => {
                self.named(name, alias.as_ref())
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(arguments),
                ..
            } => self.alone(|t| t.function_rows(name, alias.as_ref(), &arguments.args)),
            TableFactor::OpenJsonTable {
                json_expr,
                json_path,
                columns,
                alias,
            } => {
                self.alone(|t| t.open_json(json_expr, json_path.as_ref(), columns, alias.as_ref()))
            }
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source,
                default_on_null: None,
                alias,
            } => self.pivot(&Pivot {
                table,
                aggregates: aggregate_functions,
                column: value_column,
                source: value_source,
                alias: alias.as_ref(),
            }),
            TableFactor::Unpivot {
                table,
                value,
                name,
                columns,
                null_inclusion: None,
                alias,
            } => self.unpivot(table, (value, name), columns, alias.as_ref()),
            TableFactor::Table {
                name,
                alias,
                args: None,
                version: None,
                sample: None,
                ..
            } => self.named(name, alias.as_ref()),
            TableFactor::Derived {
                lateral: false,
                subquery,
                alias: Some(alias),
                ..
            } => {
                // Tables next to it cannot be named inside.
                let own = self.scopes.pop();
                let selected = self.query(subquery);
                self.scopes.extend(own);
                let selected = selected?;
                let table = selected.as_table();
                let labels = selected.column_labels();
                let columns = renamed(selected.columns, &alias.columns)?;
                let own_alias = self.new_alias();
                let sql = format!("({table}) AS {own_alias}");
                self.add(NamedTable {
                    name: alias.name.value.clone(),
                    prefix: format!("{own_alias}."),
                    columns,
                    view: None,
                    is_packed: false,
                    labels,
                })?;
                Ok(sql)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => Ok(format!("({})", self.joined(table_with_joins)?)),
            _ => Err(not_here("this kind of table")),
        }
    }

    fn named(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> Result<String, Message> {
        let parts = parts(name);
        let last = parts.last().cloned().unwrap_or_default();
        let called = alias.map_or(last.clone(), |a| a.name.value.clone());
        let own_alias = self.new_alias();
        let common = match parts.len() {
            1 => self
                .commons
                .iter()
                .rev()
                .find(|c| c.name.eq_ignore_ascii_case(&last))
                .cloned(),
            _ => None,
        };
        if let Some(common) = common {
            if let Some(recursion) = &mut self.recursion
                && recursion.name.eq_ignore_ascii_case(&common.name)
            {
                recursion.prefix = format!("{own_alias}.");
            }
            let sql = format!("{} AS {own_alias}", common.alias);
            self.add(NamedTable {
                name: called,
                prefix: format!("{own_alias}."),
                columns: common.columns,
                view: None,
                is_packed: false,
                labels: common.labels,
            })?;
            return Ok(sql);
        }
        let alias = own_alias;
        if let Some(found) = self.own_table(&parts)? {
            let (columns, rows) = found;
            return self.named_rows(called, alias, columns, rows);
        }
        // A mistake in a view that a script has created is none of this statement.
        let of_script = self.own_view(&parts, &called);
        if let Some(view) = of_script.inspect_err(|_| self.context.names_own())? {
            return Ok(view);
        }
        let own_alias = alias;
        let found = View::find(&parts, &self.database);
        let (view, place) = found.ok_or_else(|| self.unknown(&parts))?;
        self.context.names_own();
        let is_made = !matches!(view.rows, RowOrigin::Catalog | RowOrigin::Made(_));
        if is_made && self.context.compiling.is_some() {
            let none = UsedRows::Made(Vec::new());
            return self.named_rows(called, own_alias, view.columns(), none);
        }
        let more = self.further_tables(&place);
        let views = || {
            let mut all = self.columns_of_views(&place)?;
            all.extend(more.iter().cloned());
            Ok(all)
        };
        if let Some(rows) = view.rows_of(self.context.server, &place, views) {
            let mut rows = rows?;
            if matches!(view.rows, RowOrigin::OfDatabase(_)) {
                rows.extend(of_tables(view.name, &more));
            }
            return self.named_rows(called, own_alias, view.columns(), UsedRows::Made(rows));
        }
        if !self.views.iter().any(|v| std::ptr::eq(*v, view)) {
            self.views.push(view);
        }
        let sql = format!("({}) AS {own_alias}", self.rows_of(view));
        self.add(NamedTable {
            name: called,
            prefix: format!("{own_alias}."),
            columns: view.columns(),
            view: Some(view),
            is_packed: false,
            labels: Vec::new(),
        })?;
        Ok(sql)
    }

    /// Tables that no script keeps: the session's temporary ones, as views about `tempdb` show them, and those of the history in
    /// `msdb`.
    fn further_tables(&self, database: &str) -> ViewColumns {
        let object = |id: i64, name: &str, at: &str| CatalogObject {
            id,
            database: database.to_owned(),
            name: name.to_owned(),
            kind: TABLE.to_owned(),
            created: at.to_owned(),
            changed: at.to_owned(),
            definition: String::new(),
            uses_ansi_nulls: true,
            uses_quoted_identifier: true,
        };
        if database.eq_ignore_ascii_case(VOLATILE) {
            let now = text_of_date(self.context.server.now());
            let shown = |(id, table): (u32, &SessionTable)| {
                let found = StoredObject {
                    object: object(temporary_id(id), &table.name, &now),
                    table: Some(table.shape.clone()),
                };
                let columns = found.columns();
                (Arc::new(found), columns)
            };
            return self.context.tables.all_temporary().map(shown).collect();
        }
        if !database.eq_ignore_ascii_case("msdb") {
            return Vec::new();
        }
        let here = |view: &&View| view.schema == DBO && view.database == Some("msdb");
        let shown = |view: &'static View| {
            let found = StoredObject {
                // Nobody knows when they were made.
                object: object(number_of(view), view.name, "unknown"),
                table: None,
            };
            (Arc::new(found), view.columns())
        };
        views().filter(here).map(shown).collect()
    }

    /// The refusal of a name: of SQL Server's own views by name.
    fn unknown(&self, parts: &[String]) -> Message {
        let mut before = parts.iter().rev().skip(1);
        let schema = before.next().map_or("", String::as_str);
        let database = before.next().filter(|d| !d.is_empty());
        let database = database.map_or(&*self.database, String::as_str);
        let last = parts.last().map_or("", String::as_str).to_ascii_lowercase();
        let is_older = (schema.is_empty() || schema.eq_ignore_ascii_case("dbo"))
            && OLDER.contains(&last.as_str());
        let is_own = ["sys", "INFORMATION_SCHEMA"]
            .iter()
            .any(|own| own.eq_ignore_ascii_case(schema));
        let of_msdb = database.eq_ignore_ascii_case("msdb")
            && ["sys", "log_shipping", "backup", "restore"]
                .iter()
                .any(|begin| last.starts_with(begin));
        match is_own || of_msdb || is_older {
            true => not_here(&parts.join(".")),
            false => message::object_unknown(&parts.join(".")),
        }
    }

    /// A table variable, a temporary table, a table of the statement that asks, or one that outlives the session. Errors:
    /// 1087.
    fn own_table(&self, parts: &[String]) -> Result<Option<(Vec<Column>, UsedRows)>, Message> {
        let context = &self.context;
        let last = parts.last().map_or("", String::as_str);
        if let [name] = parts {
            if let Some(made) = context
                .made
                .iter()
                .find(|m| m.name.eq_ignore_ascii_case(name))
            {
                let rows = made.rows.iter().map(|(_, row)| row.clone());
                return Ok(Some((made.columns.clone(), UsedRows::Made(rows.collect()))));
            }
            if name.starts_with('@') {
                let id = context.tables.variable(name);
                let id = id.ok_or_else(|| message::TABLE_NOT_DECLARED.with(&[name]))?;
                let table = context.tables.get(id);
                return Ok(table.map(|t| own_rows(id, &t.shape)));
            }
        }
        if last.starts_with('#') && !is_shared(last) {
            let id = context.tables.temporary(last);
            let found = id.and_then(|id| Some((id, context.tables.get(id)?)));
            return Ok(found.map(|(id, table)| own_rows(id, &table.shape)));
        }
        let found = context.server.kept.named(parts, &self.database);
        let found = found.filter(|o| o.table.is_some());
        Ok(found.map(|o| (o.columns(), UsedRows::Stored(o))))
    }

    /// Rows that SQLite gets for this query, under a name of the query.
    pub(super) fn named_rows(
        &mut self,
        called: String,
        own_alias: String,
        mut columns: Vec<Column>,
        rows: UsedRows,
    ) -> Result<String, Message> {
        let table = self.use_table(columns.len(), rows);
        let sql = format!("{table} AS {own_alias}");
        columns.push(Column::new(ROW_NUMBER, Type::BigInt));
        self.add(NamedTable {
            name: called,
            prefix: format!("{own_alias}."),
            columns,
            view: None,
            is_packed: false,
            labels: Vec::new(),
        })?;
        Ok(sql)
    }

    /// The view's rows as a SELECT, with columns by position.
    fn rows_of(&self, view: &View) -> String {
        let columns = view.columns();
        let catalog = matches!(view.rows, RowOrigin::Catalog);
        let empty = catalog && self.context.server.known_catalog().is_none();
        let list: Vec<_> = columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let name = quoted(&column.name);
                let of_chain = (view.name == "backupset").then(|| chain_lsn(&column.name));
                let value = match column.kind {
                    _ if empty => "NULL".to_owned(),
                    _ if of_chain.flatten().is_some() => {
                        of_chain.flatten().unwrap_or_default().to_owned()
                    }
                    // The catalog separates date and time as in ISO 8601. msdb has whole seconds, and a datetime no millisecond.
                    Type::DateTime if catalog => {
                        format!("replace(substr({name}, 1, 19), 'T', ' ') || '.000'")
                    }
                    Type::UniqueIdentifier if catalog => format!("upper({name})"),
                    _ => name,
                };
                format!("{value} AS {}", column_alias(i))
            })
            .collect();
        let list = list.join(", ");
        match (empty, catalog) {
            (true, _) => format!("SELECT {list} WHERE 0"),
            (false, true) => format!("SELECT {list} FROM cat.{} AS own", quoted(view.name)),
            (false, false) => format!("SELECT {list} FROM {}", table_of(view)),
        }
    }

    pub(super) fn add(&mut self, table: NamedTable) -> Result<(), Message> {
        let Some(scope) = self.scopes.last_mut() else {
            return Ok(());
        };
        let same = |t: &NamedTable| t.name.eq_ignore_ascii_case(&table.name);
        if scope.iter().any(same) {
            return Err(message::SAME_NAMES.with(&[&table.name, &table.name]));
        }
        scope.push(table);
        Ok(())
    }
}
