//! Translates views and functions that scripts have created.
//!
//! A view is its query, read where it is named. A function of one value is a function of SQLite that runs the statements of
//! its body; one of rows gives them packed.
//!
//! Invariants
//! - A view sees what its database has and nothing of the query around it, and views name each other up to 32 deep (217).
//! - A function gets its arguments in the types of its parameters.
//! - Both run with the rights of the session that asks.
//!
//! Leaves to others: running a function (`statement/function.rs`), and where objects are kept (`server/stored.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, ObjectName, TableAlias};

use super::call::plain_arguments;
use super::state::{NamedTable, SelectPurpose, Translator, TypedSql, not_here};
use super::table_function::is_elsewhere;
use super::tables;
use crate::convert::convert_given;
use crate::dates::DateOrder;
use crate::flow::Variable;
use crate::kinds::{self, TypePlace};
use crate::message::{self, Message};
use crate::query::context::QueryContext;
use crate::query::plan::{FunctionCall, UsedFunction};
use crate::query::reader::QuerySource;
use crate::query::sql::Sql;
use crate::query::view::ViewColumns;
use crate::server::objects::StoredObject;
use crate::syntax::{Operand, Routine, RoutineKind, RoutineParameter, Statement, parse};
use crate::value::{Column, Type, Value};
use crate::variables::Variables;

/// The most nested views and functions, as in SQL Server.
pub(crate) const NESTING_MAX: usize = 32;

/// The most SQL of all views of a query.
const VIEW_BYTES_MAX: usize = 4 << 20;

/// The statement that has created an object. Errors: 15197 for another version's language.
fn routine_of(found: &StoredObject) -> Result<Routine, Message> {
    let mut batch = parse(&found.object.definition)?;
    match batch.statements.pop().map(|s| s.statement) {
        Some(Statement::Routine(routine)) => Ok(*routine),
        _ => Err(message::NO_TEXT.with(&[&found.object.name])),
    }
}

fn kind_of(name: &crate::syntax::TypeName) -> Result<Type, Message> {
    kinds::named(&name.name, &name.sizes, TypePlace::Variable("", 0))
}

/// The value of a parameter that a call leaves to its default.
fn default_of(
    parameter: &RoutineParameter,
    function: &str,
    order: DateOrder,
) -> Result<Value, Message> {
    let kind = kind_of(&parameter.kind)?;
    let value = match &parameter.default {
        Some(Operand::Integer(n)) => Value::Int(*n),
        Some(Operand::Number(text) | Operand::Text(text)) => Value::text(text.as_str()),
        Some(Operand::Variable(name)) => return Err(message::NOT_DECLARED.with(&[name])),
        Some(Operand::Null) => Value::Null,
        None => return Err(message::PARAMETER_MISSING.with(&[&function, &parameter.name])),
    };
    convert_given(&value, kind, order)
}

impl Translator<'_> {
    fn own(&self, parts: &[String]) -> Option<Arc<StoredObject>> {
        self.context.server.kept.named(parts, &self.database)
    }

    pub(super) fn is_own_function(&self, parts: &[String]) -> bool {
        parts.len() > 1 && self.own(parts).is_some_and(|o| o.object.kind == "FN")
    }

    /// A view of this name, as it stands in FROM; `None`: there is none.
    pub(super) fn own_view(
        &mut self,
        parts: &[String],
        called: &str,
    ) -> Result<Option<String>, Message> {
        let Some(found) = self.own(parts).filter(|o| o.object.kind == "V") else {
            return Ok(None);
        };
        let routine = routine_of(&found)?;
        let RoutineKind::View { columns, query } = &routine.kind else {
            return Err(message::NO_TEXT.with(&[&found.object.name]));
        };
        if self.views_open >= NESTING_MAX {
            return Err(message::CALLS_TOO_DEEP.with(&[&NESTING_MAX]));
        }
        let tree = self.context.reader.by_text(QuerySource::Query(query))?;
        let scopes = std::mem::take(&mut self.scopes);
        let commons = std::mem::take(&mut self.commons);
        let stepwise = self.stepwise.take();
        let grouping = self.grouping.take();
        let outer_groupings = std::mem::take(&mut self.outer_groupings);
        let recursion = self.recursion.take();
        let context = self.context;
        self.context.made = &[];
        self.context.tracks_rows = false;
        self.views_open += 1;
        let database = std::mem::replace(
            &mut self.database,
            Cow::Owned(found.object.database.clone()),
        );
        let selected = self.query_for(&tree, SelectPurpose::Rows);
        self.database = database;
        self.views_open -= 1;
        self.context = context;
        self.recursion = recursion;
        self.grouping = grouping;
        self.outer_groupings = outer_groupings;
        self.stepwise = stepwise;
        self.commons = commons;
        self.scopes = scopes;
        let selected = selected?;
        // Views that name others several times grow with every level.
        let table = selected.as_table();
        self.view_bytes += table.len();
        if self.view_bytes > VIEW_BYTES_MAX {
            return Err(message::NO_PLAN.plain());
        }
        let labels = selected.column_labels();
        let mut all = selected.columns;
        for (column, name) in all.iter_mut().zip(columns) {
            column.name = name.clone();
        }
        let own_alias = self.new_alias();
        self.add(NamedTable {
            name: called.to_owned(),
            prefix: format!("{own_alias}."),
            columns: all,
            view: None,
            is_packed: false,
            labels,
        })?;
        Ok(Some(format!("({table}) AS {own_alias}")))
    }

    /// The columns of a database's own views. One whose query has no meaning, since a table of it is gone, has none here.
    ///
    /// Errors: the statement is cancelled.
    pub(super) fn columns_of_views(&self, database: &str) -> Result<ViewColumns, Message> {
        let mut found = Vec::new();
        // A view about columns that a view reads: its rows do not matter while its columns are looked up.
        if self.context.describes {
            return Ok(found);
        }
        let context = QueryContext {
            made: &[],
            tracks_rows: false,
            describes: true,
            ..self.context
        };
        let all = self.context.server.kept.objects();
        let is_view = |o: &Arc<StoredObject>| {
            o.object.kind == "V" && o.object.database.eq_ignore_ascii_case(database)
        };
        for object in all.into_iter().filter(is_view) {
            if self.context.is_cancelled() {
                return Err(message::ABORTED.plain());
            }
            let mut inner = Translator::new(&context, &[]);
            inner.database = Cow::Owned(object.object.database.clone());
            inner.scopes.push(Vec::new());
            let name = &object.object.name;
            let _of_no_meaning = inner.own_view(std::slice::from_ref(name), name);
            let named = inner.scopes.pop().and_then(|mut scope| scope.pop());
            found.extend(named.map(|table| (object, table.columns)));
        }
        Ok(found)
    }

    /// A function of one value. Errors: 195, 4121.
    pub(super) fn own_function(
        &mut self,
        names: &[String],
        function: &Function,
    ) -> Result<TypedSql, Message> {
        let last = names.last().map_or("", String::as_str).to_ascii_lowercase();
        let unknown = || match names {
            _ if is_elsewhere(&last) => not_here(&names.join(".")),
            [only] => message::NOT_RECOGNIZED.with(&[&only, &"built-in function name"]),
            _ => {
                let first = names.first().map_or("", String::as_str);
                message::FUNCTION_UNKNOWN.with(&[&first, &names.join(".")])
            }
        };
        let found = self.own(names).filter(|o| o.object.kind == "FN");
        let found = found.ok_or_else(unknown)?;
        let arguments = plain_arguments(function)?;
        let routine = routine_of(&found)?;
        let RoutineKind::Scalar { returns, .. } = &routine.kind else {
            return Err(unknown());
        };
        let kind = kind_of(returns)?;
        let sql = self.called(found, routine, &arguments)?;
        Ok(TypedSql::of(sql, kind))
    }

    /// The SQL of a call. Errors: 313, 8144.
    fn called(
        &mut self,
        found: Arc<StoredObject>,
        routine: Routine,
        arguments: &[&Expr],
    ) -> Result<String, Message> {
        let name = &found.object.name;
        if arguments.len() < routine.parameters.len() {
            return Err(message::ARGUMENTS_FEWER.with(&[&routine.name.join(".")]));
        }
        if arguments.len() > routine.parameters.len() {
            return Err(message::TOO_MANY_ARGUMENTS.with(&[&routine.name.join(".")]));
        }
        let mut given = Vec::new();
        for (argument, parameter) in arguments.iter().zip(&routine.parameters) {
            let kind = kind_of(&parameter.kind)?;
            let is_default = matches!(argument, Expr::Identifier(word)
                if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("DEFAULT"));
            let sql = match is_default {
                true => {
                    let value = default_of(parameter, name, self.context.date_order)?;
                    self.bind_long(value)?
                }
                false => {
                    let typed = self.expression(argument)?;
                    match typed.kind {
                        Some(_) => self.cast("ts_cast", typed, kind).sql,
                        None => Sql::null(),
                    }
                }
            };
            given.push(sql.to_string());
        }
        let number = self.functions.len();
        let context = &self.context;
        self.functions.push(UsedFunction {
            number,
            call: FunctionCall {
                server: context.server.clone(),
                login: context.login.clone(),
                session: context.id,
                date_first: context.date_first,
                date_order: context.date_order,
                language: context.language,
                level: context.place.level.unsigned_abs() as usize + self.views_open + 1,
                cancel: context.cancel.clone(),
                code: context.function_code,
                object: found,
                routine: Arc::new(routine),
            },
        });
        Ok(format!("uf{number}({})", given.join(", ")))
    }

    /// Whether a script has created a function of rows with this name.
    pub(super) fn is_of_rows(&self, name: &ObjectName) -> bool {
        let found = self.own(&tables::parts(name));
        found.is_some_and(|o| matches!(o.object.kind.as_str(), "IF" | "TF"))
    }

    /// A function of rows, in FROM and after APPLY: one of a script, one of XML, or one of the server's.
    pub(super) fn function_rows(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        arguments: &[FunctionArg],
    ) -> Result<String, Message> {
        let parts = tables::parts(name);
        let mut plain = Vec::new();
        for argument in arguments {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                plain.push(expr);
            }
        }
        if let ([root @ .., method], [path]) = (parts.as_slice(), plain.as_slice())
            && !root.is_empty()
            && method.eq_ignore_ascii_case("nodes")
        {
            let names: Vec<_> = root
                .iter()
                .map(|n| sqlparser::ast::Ident::new(n.as_str()))
                .collect();
            let root = match names.as_slice() {
                [name] => Expr::Identifier(name.clone()),
                _ => Expr::CompoundIdentifier(names),
            };
            let xml = self.expression(&root)?;
            return self.nodes(xml, path, alias);
        }
        let found = self.own(&parts);
        let Some(found) = found.filter(|o| matches!(o.object.kind.as_str(), "IF" | "TF")) else {
            return self.table_function(name, alias, arguments);
        };
        let called = parts.last().cloned().unwrap_or_default();
        let routine = routine_of(&found)?;
        let columns = self.columns_of(&found, &routine)?;
        let rows = self.called(found, routine, &plain)?;
        self.packed(called, (columns, Vec::new()), alias, &rows)
    }

    /// The columns of a function of rows.
    fn columns_of(
        &mut self,
        found: &StoredObject,
        routine: &Routine,
    ) -> Result<Vec<Column>, Message> {
        match &routine.kind {
            RoutineKind::Rows { variable, table } => {
                let shape =
                    crate::tables::TableShape::of(table.clone(), Vec::new(), variable.as_str())?;
                Ok(shape.result_columns())
            }
            RoutineKind::Inline(query) => {
                if self.views_open >= NESTING_MAX {
                    return Err(message::CALLS_TOO_DEEP.with(&[&NESTING_MAX]));
                }
                let tree = self.context.reader.by_text(QuerySource::Query(query))?;
                let mut variables = Variables::default();
                for parameter in &routine.parameters {
                    let kind = kind_of(&parameter.kind)?;
                    let value = Value::Null;
                    variables.declare(&parameter.name, Variable { kind, value })?;
                }
                let context = QueryContext {
                    variables: &variables,
                    made: &[],
                    tracks_rows: false,
                    ..self.context
                };
                let mut inner = Translator::new(&context, &[]);
                inner.database = Cow::Owned(found.object.database.clone());
                inner.views_open = self.views_open + 1;
                inner.depth = self.depth;
                inner.steps = self.steps;
                let selected = inner.query(&tree);
                self.steps = inner.steps;
                Ok(selected?.columns)
            }
            _ => Err(message::NO_TEXT.with(&[&found.object.name])),
        }
    }
}
