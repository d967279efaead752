//! The table that a statement is about.
//!
//! Invariants
//! - A name means what it means in a query: a table variable, a temporary table, or one that outlives the session.
//! - Views, and what the server shows about itself, are never changed (4406 and 208 in SQL Server, 50002 here).
//!
//! Leaves to others: tables themselves (`tables.rs`, `server/objects.rs`).

use std::sync::Arc;

use sqlparser::ast::{Query, Select, SetExpr, TableFactor};

use crate::dates::DateOrder;
use crate::message::{self, Message};
use crate::query::{View, parts};
use crate::server::is_shared;
use crate::server::objects::{StoredObject, VIEW};
use crate::session::Session;
use crate::syntax::Heed;
use crate::tables::{TableId, TableShape};

pub(super) struct ChangedTable {
    pub id: TableId,
    /// With its database and schema, for messages.
    pub full: String,
    pub shape: Arc<TableShape>,
    /// A table that outlives the session.
    pub object: Option<Arc<StoredObject>>,
    /// The order in which texts that become dates are read.
    pub date_order: DateOrder,
    /// Longer texts are cut without an error (ANSI_WARNINGS OFF).
    pub cuts: bool,
}

fn cuts(session: &Session) -> bool {
    Heed::of(session.told.bits) != Heed::Warnings
}

impl ChangedTable {
    /// Without its database, for messages.
    pub fn short(&self) -> String {
        match self.full.split_once('.') {
            Some((_, rest)) => rest.to_owned(),
            None => self.full.clone(),
        }
    }
}

pub(super) fn bracketed(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// A name of several parts in the language.
pub(super) fn dotted(name: &[String]) -> String {
    let part = |part: &String| match part.as_str() {
        "" => String::new(),
        variable if variable.starts_with('@') && name.len() == 1 => variable.to_owned(),
        part => bracketed(part),
    };
    name.iter().map(part).collect::<Vec<_>>().join(".")
}

/// Errors: 208, 1087, views.
pub(super) fn find(session: &Session, name: &[String]) -> Result<ChangedTable, Message> {
    let last = name.last().map_or("", String::as_str);
    let unknown = || message::object_unknown(&name.join("."));
    if name.len() == 1 && last.starts_with('@') {
        let id = session.tables.variable(last);
        let id = id.ok_or_else(|| message::TABLE_NOT_DECLARED.with(&[&last]))?;
        let table = session.tables.get(id).ok_or_else(unknown)?;
        return Ok(ChangedTable {
            id: TableId::Variable(id),
            full: last.to_owned(),
            shape: table.shape.clone(),
            object: None,
            date_order: session.told.date_order,
            cuts: cuts(session),
        });
    }
    if last.starts_with('#') && !is_shared(last) {
        let id = session.tables.temporary(last).ok_or_else(unknown)?;
        let table = session.tables.get(id).ok_or_else(unknown)?;
        return Ok(ChangedTable {
            id: TableId::Temporary(id),
            full: format!("tempdb.dbo.{}", table.name),
            shape: table.shape.clone(),
            object: None,
            date_order: session.told.date_order,
            cuts: cuts(session),
        });
    }
    let found = session.server.kept.named(name, &session.database);
    let Some(object) = found else {
        return Err(match View::find(name, &session.database) {
            Some((view, _)) => {
                let what = format!("a change of {}.{}", view.schema, view.name);
                message::NOT_HERE.with(&[&what])
            }
            None => unknown(),
        });
    };
    if object.object.kind == VIEW {
        let what = format!("a change of rows through the view {}", object.object.name);
        return Err(message::NOT_HERE.with(&[&what]));
    }
    let shape = object.table.clone().ok_or_else(unknown)?;
    Ok(ChangedTable {
        id: TableId::Stored(object.object.id),
        full: format!("{}.dbo.{}", object.object.database, object.object.name),
        shape,
        object: Some(object),
        date_order: session.told.date_order,
        cuts: cuts(session),
    })
}

/// The table factors of a SELECT, with their names in it.
fn factors(select: &Select) -> Vec<(String, Vec<String>)> {
    let joined = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    let named = |factor: &TableFactor| match factor {
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } => {
            let parts = parts(name);
            let last = parts.last().cloned().unwrap_or_default();
            let called = alias.as_ref().map_or(last, |a| a.name.value.clone());
            Some((called, parts))
        }
        _ => None,
    };
    joined.filter_map(named).collect()
}

/// The name under which a query has the table that its statement changes, and that table's own name. A common table
/// expression stands for the first table of its query.
pub(super) fn base(query: &Query, table: &[String]) -> (String, Vec<String>) {
    let last = table.last().cloned().unwrap_or_default();
    let SetExpr::Select(select) = &*query.body else {
        return (last, table.to_vec());
    };
    let all = factors(select);
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let by_alias = all.iter().find(|(called, _)| same(called, &last));
    let by_name = || {
        let is = |parts: &Vec<String>| parts.last().is_some_and(|p| same(p, &last));
        all.iter().find(|(_, parts)| is(parts))
    };
    let Some((called, parts)) = by_alias.or_else(by_name) else {
        return (last, table.to_vec());
    };
    let mut own = parts.clone();
    let commons = query.with.iter().flat_map(|with| &with.cte_tables);
    for cte in commons {
        if own.len() == 1
            && same(&own[0], &cte.alias.name.value)
            && let SetExpr::Select(inner) = &*cte.query.body
            && let Some((_, parts)) = factors(inner).into_iter().next()
        {
            own = parts;
            break;
        }
    }
    (called.clone(), own)
}
