//! Translates common table expressions, also those that name themselves.
//!
//! Invariants
//! - A recursion has a column of its own that counts its levels, and ends with 530 at the limit: 100, or that of OPTION
//!   (MAXRECURSION n).
//! - Columns that only the server reads are in no list of a query.
//!
//! Leaves to others: the queries inside (`translate.rs`).

use sqlparser::ast::{
    Cte, Expr, Query, Select, SetExpr, SetOperator, SetQuantifier, TableFactor, Value as Literal,
};

use super::state::{Common, Passed, Recursion, Translator, column_alias, not_here, renamed};
use super::tables;
use crate::message::Message;
use crate::query::parse::MAX_RECURSION;
use crate::value::{Column, Type};

/// The limit of a recursion without an OPTION.
const RECURSION_MAX: i64 = 100;

/// The column that counts a recursion's levels.
const LEVEL: &str = "\u{1}level";

/// The first queries of a recursion, and those after them, which name it.
fn recursion(cte: &Cte) -> Option<(&SetExpr, Vec<&Select>)> {
    let mut first = &*cte.query.body;
    let mut own = Vec::new();
    while let SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left,
        right,
    } = first
    {
        match &**right {
            SetExpr::Select(select) if names_itself(cte, select) => own.push(&**select),
            _ => break,
        }
        first = left;
    }
    own.reverse();
    (!own.is_empty()).then_some((first, own))
}

/// Whether a query of a common table expression reads it.
fn names_itself(cte: &Cte, select: &Select) -> bool {
    let mut tables = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    tables.any(|factor| match factor {
        TableFactor::Table { name, .. } => {
            let parts = tables::parts(name);
            parts.len() == 1 && parts[0].eq_ignore_ascii_case(&cte.alias.name.value)
        }
        _ => false,
    })
}

/// The limit that OPTION gives.
fn limit(query: &Query) -> i64 {
    let mut settings = query.settings.iter().flatten();
    let found = settings.find(|s| s.key.value == MAX_RECURSION);
    let given = found.and_then(|s| match &s.value {
        Expr::Value(value) => match &value.value {
            Literal::Number(n, _) => n.parse().ok(),
            _ => None,
        },
        _ => None,
    });
    given.unwrap_or(RECURSION_MAX)
}

impl Translator<'_> {
    /// One entry of a WITH clause of a query, as SQLite has it.
    pub(super) fn common(&mut self, cte: &Cte, query: &Query) -> Result<String, Message> {
        if let Some((first, own)) = recursion(cte) {
            return self.recursive(cte, first, &own, limit(query));
        }
        let is_plain = matches!(&*cte.query.body, SetExpr::Select(_));
        if self.context.tracks_rows && is_plain {
            self.passes = Some(Passed::Rows);
        }
        let selected = self.query(&cte.query);
        self.passes = None;
        let selected = selected?;
        let table = selected.as_table();
        let labels = selected.column_labels();
        let columns = renamed(selected.columns, &cte.alias.columns)?;
        let alias = self.new_alias();
        let names: Vec<_> = (0..columns.len()).map(column_alias).collect();
        let part = format!("{alias}({}) AS ({table})", names.join(", "));
        self.commons.push(Common {
            name: cte.alias.name.value.clone(),
            alias,
            columns,
            labels,
        });
        Ok(part)
    }

    fn recursive(
        &mut self,
        cte: &Cte,
        first: &SetExpr,
        own: &[&Select],
        limit: i64,
    ) -> Result<String, Message> {
        let is_cut = |select: &&Select| select.top.is_some() || select.distinct.is_some();
        if cte.query.order_by.is_some() || own.iter().any(is_cut) {
            return Err(not_here("TOP, DISTINCT or ORDER BY in a recursion"));
        }
        let name = cte.alias.name.value.clone();
        let anchor = self.set(first)?;
        let count = anchor.columns.len();
        let labels = anchor.column_labels();
        let mut columns = renamed(anchor.columns, &cte.alias.columns)?;
        columns.push(Column::new(LEVEL, Type::Int));
        let alias = self.new_alias();
        let names: Vec<_> = (0..=count).map(column_alias).collect();
        self.commons.push(Common {
            name: name.clone(),
            alias: alias.clone(),
            columns,
            labels,
        });
        let mut sql = format!(
            "{alias}({}) AS (SELECT *, 0 FROM ({})",
            names.join(", "),
            anchor.sql
        );
        for select in own {
            let outer = self.recursion.replace(Recursion {
                name: name.clone(),
                prefix: String::new(),
                limit,
            });
            self.passes = Some(Passed::Level);
            let rest = self.plain_select(select);
            self.passes = None;
            self.recursion = outer;
            let rest = rest?;
            if rest.columns.len() != count + 1 {
                return Err(crate::message::UNION_COLUMNS.plain());
            }
            sql += &format!(" UNION ALL {}", rest.sql);
        }
        Ok(sql + ")")
    }
}
