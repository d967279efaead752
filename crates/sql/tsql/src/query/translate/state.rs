//! The state of one translation: typed SQL, tables in scope, bound values. Its steps share it.
//!
//! Invariants
//! - A value of the query is bound here, never written into SQL; a variable is bound once.
//! - Depth and number of the steps are bounded, and every step sees a cancellation.
//!
//! Leaves to others: each construct of the language (the other files of `translate`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{Expr, NamedWindowDefinition, OrderByExpr};

use super::clause::{AggregateRule, Clause, GroupRule};
use super::reach::Reach;
use crate::message::{self, Message};
use crate::query::collation::Label;
use crate::query::context::QueryContext;
use crate::query::plan::{UsedFunction, UsedTable};
use crate::query::schema::View;
use crate::query::sql::{Parameter, Sql};
use crate::syntax;
use crate::value::{Column, DateTime, Type, Value};
use crate::variables::{Sum, lower_case};

/// An expression of a select list under its name.
pub(super) type Item = (String, TypedSql);

/// SQL of an expression, and its type; `None` for a bare NULL.
#[derive(Debug, Clone)]
pub(super) struct TypedSql {
    pub(super) sql: Sql,
    pub(super) kind: Option<Type>,
    /// The collation of its comparisons, and how firmly it has it.
    pub(super) label: Label,
    /// It may have more digits than its type, or another scale.
    pub(super) is_computed: bool,
    /// It is XML or JSON, which goes into other XML or JSON as it is.
    pub(super) markup: Option<Markup>,
}

/// The language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Markup {
    Xml,
    Json,
}

impl TypedSql {
    pub(super) fn of(sql: impl Into<Sql>, kind: Type) -> TypedSql {
        TypedSql::new(sql, Some(kind))
    }

    pub(super) fn new(sql: impl Into<Sql>, kind: Option<Type>) -> TypedSql {
        TypedSql {
            sql: sql.into(),
            kind,
            label: Label::Default,
            is_computed: false,
            markup: None,
        }
    }

    pub(super) fn marked(self, markup: Option<Markup>) -> TypedSql {
        TypedSql { markup, ..self }
    }

    pub(super) fn labelled(self, label: Label) -> TypedSql {
        TypedSql { label, ..self }
    }

    /// Its label where it meets another text: other types have no collation.
    pub(super) fn text_label(&self) -> Label {
        match self.kind().is_text() {
            true => self.label.clone(),
            false => Label::Default,
        }
    }

    /// The collation clause for SQLite when it is compared.
    pub(super) fn collation(&self) -> &'static str {
        match self.kind().is_text() {
            false => "",
            true => self.label.way().clause(),
        }
    }

    /// NULL counts as an int, as in SQL Server.
    pub(super) fn kind(&self) -> Type {
        self.kind.unwrap_or(Type::Int)
    }
}

/// A table that a FROM clause names.
#[derive(Debug, Clone)]
pub(super) struct NamedTable {
    /// Its name in the query.
    pub(super) name: String,
    /// The prefix of its columns in our SQL: `t0.`
    pub(super) prefix: String,
    pub(super) columns: Vec<Column>,
    /// The view that it is.
    pub(super) view: Option<&'static View>,
    /// Its rows are arrays of packed values: one value of SQLite's each (`apply.rs`).
    pub(super) is_packed: bool,
    /// How the texts of its columns are compared; those behind the last one have the server's collation.
    pub(super) labels: Vec<Label>,
}

impl NamedTable {
    /// The SQL of a column.
    pub(super) fn column(&self, i: usize) -> String {
        match self.is_packed {
            true => format!("ts_unpack({}value ->> {i})", self.prefix),
            false => format!("{}{}", self.prefix, column_alias(i)),
        }
    }

    /// A column as an expression.
    pub(super) fn typed(&self, i: usize) -> TypedSql {
        let kind = self.columns[i].kind;
        let label = match kind.is_text() {
            true => self.labels.get(i).cloned().unwrap_or(Label::COLUMN),
            false => Label::Default,
        };
        TypedSql::of(self.column(i), kind).labelled(label)
    }
}

/// A WITH clause's query.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) name: String,
    pub(super) alias: String,
    pub(super) columns: Vec<Column>,
    pub(super) labels: Vec<Label>,
}

pub(super) struct Translator<'a> {
    pub(super) context: QueryContext<'a>,
    /// The database in which names are looked up: that of a view inside of one.
    pub(super) database: Cow<'a, str>,
    /// Those of the text that the query's marks stand for.
    pub(super) literals: &'a [syntax::Literal],
    pub(super) values: Vec<Parameter>,
    /// The bytes of the bound values.
    pub(super) sum: Sum,
    /// The number of each variable among them: it is bound once, however often it occurs.
    pub(super) variables: BTreeMap<String, usize>,
    pub(super) views: Vec<&'static View>,
    /// The tables that it reads.
    pub(super) tables: Vec<UsedTable>,
    /// The common table expression whose own query is being translated.
    pub(super) recursion: Option<Recursion>,
    /// The column that the next SELECT has in addition to its own.
    pub(super) passes: Option<Passed>,
    /// Tables that can be named; those of the innermost SELECT are last.
    pub(super) scopes: Vec<Vec<NamedTable>>,
    pub(super) commons: Vec<Common>,
    pub(super) aliases: usize,
    pub(super) depth: usize,
    pub(super) steps: usize,
    /// Nested queries, including the outermost.
    pub(super) queries: usize,
    pub(super) seen: SelectFindings,
    /// The scopes of the columns that were named since somebody began to look.
    pub(super) reach: Reach,
    pub(super) stepwise: Option<Stepwise>,
    /// The windows that the present SELECT names (`WINDOW w AS (…)`).
    pub(super) windows: Vec<NamedWindowDefinition>,
    /// The present set of GROUP BY ROLLUP or CUBE.
    pub(super) grouping: Option<GroupingSet>,
    /// Those of the queries outside, whose columns a subquery may name.
    pub(super) outer_groupings: Vec<GroupingSet>,
    /// The expressions of all sets, for the next SELECT: whether its own has each.
    pub(super) pending_groups: Vec<(Expr, bool)>,
    /// Functions and views of scripts that are being translated.
    pub(super) views_open: usize,
    /// The SQL of all views of scripts so far.
    pub(super) view_bytes: usize,
    /// The functions of scripts that it calls.
    pub(super) functions: Vec<UsedFunction>,
    /// The SELECTs around what is being translated, behind their FROM.
    pub(super) rules: Vec<GroupRule>,
    pub(super) aggregates: AggregateRule,
    /// Whether the NULLs that an aggregate passes over are those of PIVOT, and not of the rows.
    pub(super) pivots: bool,
    /// That of the innermost SELECT.
    pub(super) clause: Clause,
    /// The moment of the query: SQL Server asks its clock once for each.
    pub(super) moment: Option<(DateTime, i64)>,
}

/// The expressions of GROUP BY in one query of several sets.
#[derive(Debug, Default, Clone)]
pub(super) struct GroupingSet {
    /// Their SQL with its values, and whether this set has each.
    pub all: Vec<(String, bool)>,
    /// Inside of an aggregate or of GROUPING: nothing is NULL there that the rows have.
    pub is_held: bool,
}

/// A common table expression that its own query names.
#[derive(Debug, Clone)]
pub(super) struct Recursion {
    pub(super) name: String,
    /// The prefix of its columns where its query names it; empty before.
    pub(super) prefix: String,
    /// The number of levels.
    pub(super) limit: i64,
}

/// A column that a common table expression has for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// The numbers of its table's rows.
    Rows,
    /// The level of the recursion.
    Level,
}

/// The column with a row's number. No script has reason to write such a name.
pub(crate) const ROW_NUMBER: &str = "\u{1}row";

/// Whether a column is there for the server only.
pub(super) fn is_hidden(column: &Column) -> bool {
    column.name.starts_with('\u{1}')
}

/// Findings in a select list.
#[derive(Debug, Default)]
pub(super) struct SelectFindings {
    /// Variables that it reads, in lower case.
    pub(super) variables: BTreeSet<String>,
    pub(super) aggregate: bool,
    pub(super) window: bool,
}

/// A select list that sets variables and reads them: each row must see the values set by the row before it, and by the
/// items to the left.
#[derive(Debug)]
pub(super) struct Stepwise {
    /// The variables that are set, in lower case, each with whether it was set before the present expression, in this
    /// row or an earlier one.
    pub(super) variables: Vec<(String, bool)>,
    /// The present construct, if such a variable would have one value for all rows in it.
    pub(super) within: Option<&'static str>,
}

/// A SELECT's columns and SQL.
pub(super) struct SelectedColumns {
    pub(super) sql: String,
    pub(super) columns: Vec<Column>,
    pub(super) assigns: Vec<String>,
    /// The variables that it sets row by row.
    pub(super) steps: Vec<String>,
    /// The entries that its WITH clause needs.
    pub(super) with: Vec<String>,
    /// The columns that are XML or JSON; it may be shorter than the columns.
    pub(super) marks: Vec<Option<Markup>>,
    /// How the texts of the columns are compared; it may be shorter than the columns.
    pub(super) labels: Vec<Label>,
}

/// The purpose of a SELECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectPurpose {
    Values,
    /// Only whether it has rows.
    Existence,
    /// All of its rows, together with a row outside.
    Rows,
}

impl SelectedColumns {
    /// Its SQL as a table of another query. SQLite would write an item of it wherever that query names its column, and NEWID
    /// would have another value in each place: a query with OFFSET it leaves as it is.
    pub(super) fn as_table(&self) -> String {
        match self.sql.contains("ts_newid(") {
            true => format!("SELECT * FROM ({}) LIMIT -1 OFFSET 0", self.sql),
            false => self.sql.clone(),
        }
    }

    pub(super) fn new(sql: String, columns: Vec<Column>) -> SelectedColumns {
        SelectedColumns {
            sql,
            columns,
            assigns: Vec::new(),
            steps: Vec::new(),
            with: Vec::new(),
            marks: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub(super) fn label(&self, i: usize) -> Label {
        self.labels.get(i).cloned().unwrap_or_default()
    }

    /// The labels of its columns in a query around it.
    pub(super) fn column_labels(&self) -> Vec<Label> {
        let all = 0..self.columns.len();
        all.map(|i| self.label(i).of_column()).collect()
    }
}

/// The most nested expressions: well below the limit of a thread's stack.
pub(super) const DEPTH_MAX: usize = 200;

/// The most expressions and queries that are translated for one statement, and the longest SQL. A part that occurs
/// once in a query may be needed several times in SQLite's, which multiplies with every level.
pub(super) const STEPS_MAX: usize = 100_000;
pub(super) const SQL_LEN_MAX: usize = 1 << 20;

pub(super) fn not_here(what: &str) -> Message {
    message::NOT_HERE.with(&[&what])
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        context: &QueryContext<'a>,
        literals: &'a [syntax::Literal],
    ) -> Translator<'a> {
        Translator {
            context: *context,
            database: Cow::Borrowed(context.database),
            literals,
            values: Vec::new(),
            sum: Sum::default(),
            variables: BTreeMap::new(),
            views: Vec::new(),
            tables: Vec::new(),
            recursion: None,
            passes: None,
            scopes: Vec::new(),
            commons: Vec::new(),
            aliases: 0,
            depth: 0,
            steps: 0,
            queries: 0,
            seen: SelectFindings::default(),
            reach: Reach::default(),
            stepwise: None,
            windows: Vec::new(),
            grouping: None,
            outer_groupings: Vec::new(),
            pending_groups: Vec::new(),
            views_open: 0,
            view_bytes: 0,
            functions: Vec::new(),
            rules: Vec::new(),
            aggregates: AggregateRule::default(),
            pivots: false,
            clause: Clause::default(),
            moment: None,
        }
    }
}

/// A name, quoted for SQLite.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The alias of a result column in SQLite: names may be empty, or equal.
pub(super) fn column_alias(i: usize) -> String {
    format!("c{i}")
}

impl Translator<'_> {
    /// Local time and, in nanoseconds, the clock's.
    pub(super) fn moment(&mut self) -> (DateTime, i64) {
        let server = self.context.server;
        *self
            .moment
            .get_or_insert_with(|| (server.now(), server.setup.context.clock.wall_ns()))
    }

    pub(super) fn bind(&mut self, value: Value) -> Sql {
        self.parameter(Parameter::Value(value))
    }

    pub(super) fn parameter(&mut self, parameter: Parameter) -> Sql {
        self.values.push(parameter);
        Sql::bound(self.values.len())
    }

    /// Errors: more variables than a query can have.
    pub(super) fn bind_variable(&mut self, name: &str) -> Result<TypedSql, Message> {
        let variable = self.context.variable(name)?;
        let name = lower_case(name);
        if let Some(stepwise) = &self.stepwise
            && let Some(i) = stepwise
                .variables
                .iter()
                .position(|(v, set)| *v == *name && *set)
        {
            return match stepwise.within {
                None => Ok(TypedSql::of(format!("ts_variable({i})"), variable.kind)),
                Some(within) => Err(not_here(&format!(
                    "{within} that reads a variable which the same SELECT sets ({name})"
                ))),
            };
        }
        if !self.seen.variables.contains(name.as_ref()) {
            self.seen.variables.insert(name.clone().into_owned());
        }
        if let Some(number) = self.variables.get(name.as_ref()) {
            return Ok(TypedSql::of(Sql::bound(*number), variable.kind));
        }
        let bound = self.bind_long(variable.value.clone())?;
        self.variables.insert(name.into_owned(), self.values.len());
        Ok(TypedSql::of(bound, variable.kind))
    }

    /// The same as [`Translator::bind`], for values that the query's length does not bound.
    pub(super) fn bind_long(&mut self, value: Value) -> Result<Sql, Message> {
        self.sum.add(&value)?;
        Ok(self.bind(value))
    }

    pub(super) fn new_alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases - 1)
    }

    pub(super) fn descend<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        if self.depth >= DEPTH_MAX {
            return Err(message::NESTED_TOO_DEEPLY.plain());
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(message::NO_PLAN.plain());
        }
        if self.context.is_cancelled() {
            return Err(message::ABORTED.plain());
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Does some work and says of which scopes it named columns.
    pub(super) fn watched<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<(T, Reach), Message> {
        let before = std::mem::take(&mut self.reach);
        let done = work(self);
        let found = std::mem::replace(&mut self.reach, before);
        self.reach = self.reach.with(found);
        Ok((done?, found))
    }
}

pub(super) fn position(columns: &[Column], name: &str) -> Option<usize> {
    columns
        .iter()
        .position(|c| c.name.eq_ignore_ascii_case(name))
}

pub(super) fn renamed(
    mut columns: Vec<Column>,
    names: &[sqlparser::ast::TableAliasColumnDef],
) -> Result<Vec<Column>, Message> {
    if names.is_empty() {
        return Ok(columns);
    }
    if names.len() != columns.iter().filter(|c| !is_hidden(c)).count() {
        return Err(message::UNION_COLUMNS.plain());
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = name.name.value.clone();
    }
    Ok(columns)
}

pub(super) fn folded(item: &TypedSql) -> String {
    format!("{}{}", item.sql, item.collation())
}

pub(super) fn direction(order: &OrderByExpr) -> &'static str {
    match order.options.sort {
        Some(sqlparser::ast::OrderBySort::Desc) => " DESC",
        _ => "",
    }
}
