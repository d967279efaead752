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

/// The first query of a recursion, and the one that names it.
fn recursion(cte: &Cte) -> Option<(&SetExpr, &Select)> {
    let SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left,
        right,
    } = &*cte.query.body
    else {
        return None;
    };
    let SetExpr::Select(select) = &**right else {
        return None;
    };
    let joins = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    let is_own = |factor: &TableFactor| match factor {
        TableFactor::Table { name, .. } => {
            let parts = tables::parts(name);
            parts.len() == 1 && parts[0].eq_ignore_ascii_case(&cte.alias.name.value)
        }
        _ => false,
    };
    joins
        .into_iter()
        .any(is_own)
        .then_some((&**left, &**select))
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
        if let Some((first, select)) = recursion(cte) {
            return self.recursive(cte, first, select, limit(query));
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
        select: &Select,
        limit: i64,
    ) -> Result<String, Message> {
        if cte.query.order_by.is_some() || select.top.is_some() || select.distinct.is_some() {
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
        let outer = self.recursion.replace(Recursion {
            name,
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
        Ok(format!(
            "{alias}({}) AS (SELECT *, 0 FROM ({}) UNION ALL {})",
            names.join(", "),
            anchor.sql,
            rest.sql
        ))
    }
}
