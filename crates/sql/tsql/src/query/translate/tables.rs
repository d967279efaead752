//! Translates FROM: views, common table expressions, derived tables and joins.
//!
//! Invariants
//! - Tables of a FROM become the innermost scope of names; whoever asks for the scope removes it again. After an error
//!   there is none.
//! - A name that is no view is refused with SQL Server's message, and a kind of table or join that is not known here by
//!   name.
//! - Two tables of one FROM have different names.
//!
//! Leaves to others: the views' columns and rows (`schema.rs`), and expressions in ON (`expression.rs`).

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, TableAlias, TableFactor,
    TableWithJoins,
};

use super::state::{NamedTable, Translator, column_alias, not_here, quoted, renamed};
use crate::message::{self, Message};
use crate::query::schema::{RowOrigin, View};
use crate::query::sqlite::table_of;
use crate::value::Type;

/// The parts of a name; omitted ones (`msdb..backupset`) are empty.
pub fn parts(name: &ObjectName) -> Vec<String> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => ident.value.clone(),
        ObjectNamePart::Function(function) => function.to_string(),
    };
    name.0.iter().map(part).collect()
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
        let (word, constraint) = match &join.join_operator {
            JoinOperator::Join(on) | JoinOperator::Inner(on) => ("JOIN", Some(on)),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => ("LEFT JOIN", Some(on)),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => ("RIGHT JOIN", Some(on)),
            JoinOperator::FullOuter(on) => ("FULL JOIN", Some(on)),
            JoinOperator::CrossJoin(_) => ("CROSS JOIN", None),
            JoinOperator::CrossApply | JoinOperator::OuterApply => {
                return Err(not_here("APPLY"));
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

    fn factor(&mut self, factor: &TableFactor) -> Result<String, Message> {
        match factor {
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
                let columns = renamed(selected.columns, &alias.columns)?;
                let own_alias = self.new_alias();
                let sql = format!("({}) AS {own_alias}", selected.sql);
                self.add(NamedTable {
                    name: alias.name.value.clone(),
                    prefix: format!("{own_alias}."),
                    columns,
                    view: None,
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
            let sql = format!("{} AS {own_alias}", common.alias);
            self.add(NamedTable {
                name: called,
                prefix: format!("{own_alias}."),
                columns: common.columns,
                view: None,
            })?;
            return Ok(sql);
        }
        let view = View::find(&parts, self.context.database);
        let view = view.ok_or_else(|| message::OBJECT_UNKNOWN.with(&[&parts.join(".")]))?;
        if !self.views.iter().any(|v| std::ptr::eq(*v, view)) {
            self.views.push(view);
        }
        let sql = format!("({}) AS {own_alias}", self.rows_of(view));
        self.add(NamedTable {
            name: called,
            prefix: format!("{own_alias}."),
            columns: view.columns(),
            view: Some(view),
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
                let value = match column.kind {
                    _ if empty => "NULL".to_owned(),
                    // The catalog separates date and time as in ISO 8601.
                    Type::DateTime if catalog => format!("replace({name}, 'T', ' ')"),
                    Type::UniqueIdentifier if catalog => format!("upper({name})"),
                    _ => name,
                };
                format!("{value} AS {}", column_alias(i))
            })
            .collect();
        let list = list.join(", ");
        match (empty, catalog) {
            (true, _) => format!("SELECT {list} WHERE 0"),
            (false, true) => format!("SELECT {list} FROM cat.{}", quoted(view.name)),
            (false, false) => format!("SELECT {list} FROM {}", table_of(view)),
        }
    }

    fn add(&mut self, table: NamedTable) -> Result<(), Message> {
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
