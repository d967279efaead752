//! Translates CROSS APPLY and OUTER APPLY, and functions of rows in FROM.
//!
//! ```text
//! FROM d OUTER APPLY (SELECT TOP 1 a, b FROM s WHERE s.k = d.k) AS x
//! FROM d LEFT JOIN json_each((SELECT json_group_array(json_array(ts_pack(a), ts_pack(b))) FROM (…))) AS x ON 1
//! ```
//!
//! SQLite joins a table with what depends on its rows only through `json_each`; [`packed`](crate::query::packed) has the
//! form of such rows.
//!
//! Invariants
//! - An applied table sees the tables on its left, and none on its right.
//!
//! Leaves to others: functions whose rows are known before the query runs (`table_function.rs`).

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinOperator, OpenJsonTableColumn, TableAlias,
    TableFactor, Value as Literal, ValueWithSpan,
};

use super::expression::type_named;
use super::markup::literal;
use super::state::{
    NamedTable, SelectPurpose, Translator, TypedSql, column_alias, not_here, renamed,
};
use super::tables;
use crate::message::{self, Message};
use crate::query::collation::{Label, NamedCollation};
use crate::query::json;
use crate::query::parse::VARIABLE_PATH;
use crate::query::sql::Sql;
use crate::value::{Column, Type, Value};

impl Translator<'_> {
    /// A table of packed rows, as it stands in FROM. `rows`: SQL of the text that has them.
    pub(super) fn packed(
        &mut self,
        called: String,
        (columns, labels): (Vec<Column>, Vec<Label>),
        alias: Option<&TableAlias>,
        rows: &str,
    ) -> Result<String, Message> {
        let own_alias = self.new_alias();
        let columns = match alias {
            Some(alias) => renamed(columns, &alias.columns)?,
            None => columns,
        };
        self.add(NamedTable {
            name: alias.map_or(called, |a| a.name.value.clone()),
            prefix: format!("{own_alias}."),
            columns,
            view: None,
            is_packed: true,
            labels,
        })?;
        Ok(format!("json_each({rows}) AS {own_alias}"))
    }

    pub(super) fn applied(&mut self, join: &Join) -> Result<String, Message> {
        let is_outer = matches!(join.join_operator, JoinOperator::OuterApply);
        let word = if is_outer { "LEFT JOIN" } else { "INNER JOIN" };
        let right = match &join.relation {
            TableFactor::Derived {
                subquery,
                alias: Some(alias),
                ..
            } => {
                let selected = self.query_for(subquery, SelectPurpose::Rows)?;
                let list = (0..selected.columns.len())
                    .map(|i| format!("ts_pack({})", column_alias(i)))
                    .collect::<Vec<_>>()
                    .join(", ");
                let rows = format!(
                    "(SELECT json_group_array(json_array({list})) FROM ({}))",
                    selected.as_table()
                );
                let labels = selected.column_labels();
                self.packed(
                    String::new(),
                    (selected.columns, labels),
                    Some(alias),
                    &rows,
                )?
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(arguments),
                ..
            } => {
                let last = tables::parts(name).pop().unwrap_or_default();
                let mut plain = Vec::new();
                for argument in &arguments.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                        plain.push(expr);
                    }
                }
                let lower = last.to_ascii_lowercase();
                match plain.as_slice() {
                    [handle] if lower == "dm_exec_sql_text" => {
                        return self.applied_text(word, handle, alias.as_ref());
                    }
                    [database, file] => {
                        let called = (lower.as_str(), *database, *file);
                        if let Some(applied) = self.applied_files(word, called, alias.as_ref())? {
                            return Ok(applied);
                        }
                    }
                    _ => {}
                }
                self.function_rows(name, alias.as_ref(), &arguments.args)?
            }
            TableFactor::OpenJsonTable {
                json_expr,
                json_path,
                columns,
                alias,
            } => self.open_json(json_expr, json_path.as_ref(), columns, alias.as_ref())?,
            _ => return Err(not_here("this kind of APPLY")),
        };
        Ok(format!(" {word} {right} ON 1"))
    }

    /// The same in a FROM, where tables next to it cannot be named.
    pub(super) fn alone<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        let own = self.scopes.pop();
        // The result is added to this scope.
        self.scopes.push(Vec::new());
        let done = work(self);
        let made = self.scopes.pop();
        self.scopes.extend(own);
        let done = done?;
        for table in made.into_iter().flatten() {
            self.add(table)?;
        }
        Ok(done)
    }

    /// OPENJSON
    pub(super) fn open_json(
        &mut self,
        text: &Expr,
        path: Option<&ValueWithSpan>,
        columns: &[OpenJsonTableColumn],
        alias: Option<&TableAlias>,
    ) -> Result<String, Message> {
        let text = self.as_text(text)?;
        let path = match path {
            None => self.bind(Value::text("$")),
            Some(path) => {
                let path = Expr::Value(path.clone());
                let variable = literal(&path).and_then(|p| p.strip_prefix(VARIABLE_PATH));
                let variable = variable.map(|name| Expr::Identifier(Ident::new(name)));
                self.as_text(&variable.unwrap_or(path))?
            }
        };
        let mut declared = Vec::new();
        let mut wanted = Vec::new();
        for column in columns {
            let kind = type_named(&column.r#type)?;
            if column.as_json && kind != Type::NVarChar(None) {
                return Err(message::JSON_COLUMN.plain());
            }
            let name = &column.name.value;
            let path = match &column.path {
                Some(path) => path.clone(),
                None => format!("$.\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
            };
            declared.push(Column::new(name.clone(), kind));
            wanted.push((path, kind, column.as_json));
        }
        let has_key = wanted.is_empty();
        let wanted = match has_key {
            true => {
                declared = vec![
                    Column::new("key", Type::NVarChar(Some(4000))),
                    Column::new("value", Type::NVarChar(None)),
                    Column::new("type", Type::TinyInt),
                ];
                Sql::null()
            }
            false => self.bind(Value::Text(json::columns_text(&wanted))),
        };
        let rows = Sql::call("ts_openjson", [text, path, wanted]).to_string();
        let labels = match has_key {
            true => vec![Label::Implicit(NamedCollation::JSON_KEY)],
            false => Vec::new(),
        };
        self.packed("OPENJSON".to_owned(), (declared, labels), alias, &rows)
    }

    /// `x.nodes('/a/b') AS t(c)`
    pub(super) fn nodes(
        &mut self,
        xml: TypedSql,
        path: &Expr,
        alias: Option<&TableAlias>,
    ) -> Result<String, Message> {
        let is_literal = matches!(path, Expr::Value(value)
            if matches!(value.value, Literal::SingleQuotedString(_) | Literal::NationalStringLiteral(_)));
        if !is_literal {
            return Err(message::XML_LITERAL.with(&[&1, &"nodes"]));
        }
        let named = alias.filter(|a| a.columns.len() == 1);
        let alias = named.ok_or_else(|| message::SYNTAX.with(&[&"nodes"]))?;
        let xml = self.text_of(xml);
        let path = self.as_text(path)?;
        let rows = Sql::call("ts_xml_nodes", [xml, path]).to_string();
        let columns = vec![Column::new("", Type::NVarChar(None))];
        self.packed(String::new(), (columns, Vec::new()), Some(alias), &rows)
    }
}
