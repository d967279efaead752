//! Values of arguments that are the same for all rows: a query's functions of the server need them before it runs.
//!
//! Invariants
//! - An expression that names no column is evaluated as a query of its own, with the variables that it names.
//! - A variable that the same SELECT sets is no such value: each row sees another one.
//!
//! Leaves to others: the functions (`call.rs`), and those whose arguments are columns (`lookup.rs`).

use sqlparser::ast::Expr;

use super::state::{Translator, TypedSql, not_here};
use crate::flow::Stop;
use crate::message::Message;
use crate::query::options;
use crate::query::plan::QueryPlan;
use crate::query::sql::{Node, Parameter};
use crate::value::{Column, Type, Value};

/// Functions of the server's with arguments: with those that are the same for all rows they have one value.
const OF_SERVER: &[&str] = &[
    "APPLOCK_MODE",
    "APPLOCK_TEST",
    "COL_LENGTH",
    "CONNECTIONPROPERTY",
    "CURSOR_STATUS",
    "DB_ID",
    "IDENT_CURRENT",
    "IDENT_INCR",
    "IDENT_SEED",
    "OBJECT_ID",
    "SERVERPROPERTY",
];

impl Translator<'_> {
    /// The culture of FORMAT: texts of the only language here. Errors: 50002 for another culture.
    pub(super) fn check_culture(&mut self, culture: &Expr) -> Result<(), Message> {
        let known = self.known_value(culture)?;
        let refused = |what: &str| Err(not_here(&format!("FORMAT with the culture {what}")));
        match known {
            None => refused("of a column"),
            Some(Value::Null) => Ok(()),
            Some(culture) => {
                let culture = culture.to_string();
                match culture.eq_ignore_ascii_case("en-US") {
                    true => Ok(()),
                    false => refused(&culture),
                }
            }
        }
    }

    /// Rights, of which a login has all: nothing is denied here. NULL for a permission that there is not; one that differs from row
    /// to row is taken for one.
    pub(super) fn of_rights(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<TypedSql>, Message> {
        let kind = match (name, arguments.len()) {
            ("HAS_PERMS_BY_NAME", 3..=5) => Type::Int,
            ("FN_HADR_BACKUP_IS_PREFERRED_REPLICA", 1) => Type::Bit,
            _ => return Ok(None),
        };
        for argument in arguments {
            self.expression(argument)?;
        }
        let is_known = match arguments {
            [_, _, permission, ..] => match self.constant(permission) {
                Ok(Value::Text(name)) => options::is_permission(&name),
                _ => true,
            },
            _ => true,
        };
        let right = if is_known { Value::Int(1) } else { Value::Null };
        Ok(Some(TypedSql::of(self.bind(right), kind)))
    }

    /// The values of the arguments of a function of the server's, if it has the same for all rows. `None`: another function,
    /// or an argument that names a column.
    pub(super) fn known_arguments(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<Vec<Value>>, Message> {
        if !(arguments.is_empty() || OF_SERVER.contains(&name)) {
            return Ok(None);
        }
        let mut values = Vec::new();
        for argument in arguments {
            match self.known_value(argument)? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    /// The value of an expression that names no column. `None`: it names one.
    pub(super) fn known_value(&mut self, expr: &Expr) -> Result<Option<Value>, Message> {
        let is_plain = match expr {
            Expr::Value(_) | Expr::Prefixed { .. } => true,
            Expr::Identifier(word) => word.value.starts_with('@'),
            _ => false,
        };
        if is_plain {
            return self.bound_value(expr);
        }
        // A variable that this SELECT sets has another value in each row.
        if self.stepwise.is_some() {
            return Ok(None);
        }
        let mut alone = Translator::new(&self.context, self.literals);
        alone.queries = 1;
        alone.depth = self.depth;
        let typed = match alone.expression(expr) {
            Ok(typed) => typed,
            Err(unbound) if matches!(unbound.number, 207 | 4104) => return Ok(None),
            Err(wrong) => return Err(wrong),
        };
        if let Some(compiling) = self.context.compiling {
            compiling.is_unsure.set(true);
            return Ok(Some(Value::Null));
        }
        let plan = QueryPlan {
            sql: format!("SELECT {}", typed.sql),
            columns: vec![Column::new("", typed.kind())],
            values: alone.values.into_iter().map(Value::from).collect(),
            views: alone.views,
            tables: alone.tables,
            functions: alone.functions,
            ..QueryPlan::default()
        };
        let sqlite = self.context.sqlite(&plan)?;
        let mut found = None;
        let ran = sqlite.run(&plan, &mut |mut row| {
            found = row.pop();
            Ok(())
        });
        self.context.give_back(sqlite, &plan);
        ran.map_err(Stop::message)?;
        Ok(Some(found.unwrap_or(Value::Null)))
    }

    /// An argument whose value is known before the query runs: a literal or a variable.
    pub(super) fn constant(&mut self, expr: &Expr) -> Result<Value, Message> {
        let value = self.bound_value(expr)?;
        value.ok_or_else(|| not_here("a column as this function's argument"))
    }

    /// The value that an expression is bound to. `None`: it is none that is.
    fn bound_value(&mut self, expr: &Expr) -> Result<Option<Value>, Message> {
        let typed = self.expression(expr)?;
        let at = match typed.sql.node {
            Node::Bound(number) => number.checked_sub(1),
            Node::Null => return Ok(Some(Value::Null)),
            _ => None,
        };
        if let (Some(compiling), Expr::Identifier(_)) = (self.context.compiling, expr) {
            compiling.is_unsure.set(true);
        }
        Ok(match at.and_then(|at| self.values.get(at)) {
            Some(Parameter::Value(value)) => Some(value.clone()),
            _ => None,
        })
    }
}
