//! OUTPUT: the query that it is, over the rows that a statement has changed.
//!
//! ```text
//! inserted, deleted, actions and source rows of MERGE ──▶ tables of one query ──▶ its plan
//! ```
//!
//! Invariants
//! - The query is the same with empty tables, before the statement is run, and with those of its change.
//!
//! Leaves to others: running it, and putting its rows into a table (`statement/change.rs`).

use std::collections::BTreeMap;

use super::target::{ChangedTable, bracketed};
use crate::message::Message;
use crate::query::MadeTable;
use crate::sink::Command;
use crate::syntax::{Fragment, OutputClause};
use crate::tables::TableRow;
use crate::value::{Column, Type, Value};

/// Changed rows, as they were before and as they are now.
#[derive(Default)]
pub(super) struct Changed {
    pub deleted: Vec<(i64, TableRow)>,
    pub inserted: Vec<(i64, TableRow)>,
}

impl Changed {
    /// The deed of MERGE for each of its rows.
    fn actions(&self) -> Vec<(i64, TableRow)> {
        let deleted = self.deleted.iter().map(|(number, _)| (*number, "DELETE"));
        let mut actions: BTreeMap<i64, &str> = deleted.collect();
        for (number, _) in &self.inserted {
            let action = actions.entry(*number).or_insert("INSERT");
            if *action == "DELETE" {
                *action = "UPDATE";
            }
        }
        let row = |(number, action)| (number, vec![Value::text(action), Value::Int(number)]);
        actions.into_iter().map(row).collect()
    }
}

/// The OUTPUT of a statement; that of MERGE with the rows of the source.
pub(super) struct RowOutput<'a> {
    pub clause: &'a OutputClause,
    pub command: Command,
    pub line: u32,
    pub source: Option<SourceRows>,
}

/// The rows of MERGE's source by the numbers of the rows that they changed or became, and the source's name.
pub(super) struct SourceRows {
    pub name: String,
    pub columns: Vec<Column>,
    pub rows: Vec<(i64, TableRow)>,
}

impl SourceRows {
    /// How OUTPUT's query joins them.
    fn joined(&self) -> String {
        let called = bracketed(&self.name);
        format!(
            " LEFT JOIN [\u{1}source] AS {called} ON {called}.[\u{1}number] = [\u{1}merged].[\u{1}number]"
        )
    }

    fn made(self) -> MadeTable {
        MadeTable {
            name: "\u{1}source",
            columns: self.columns,
            rows: self.rows,
        }
    }
}

impl RowOutput<'_> {
    pub fn of(clause: Option<&OutputClause>, command: Command, line: u32) -> Option<RowOutput<'_>> {
        clause.map(|clause| RowOutput {
            clause,
            command,
            line,
            source: None,
        })
    }
}

/// The query of OUTPUT, and the tables that it reads.
pub(super) fn asked(
    changed: Changed,
    target: &ChangedTable,
    output: RowOutput,
) -> Result<(Vec<MadeTable>, Fragment), Message> {
    let table = |name, rows: Vec<(i64, TableRow)>| {
        let mut columns = target.shape.result_columns();
        columns.push(Column::new("\u{1}number", Type::BigInt));
        let numbered = |(number, mut row): (i64, TableRow)| {
            row.push(Value::Int(number));
            (number, row)
        };
        MadeTable {
            name,
            columns,
            rows: rows.into_iter().map(numbered).collect(),
        }
    };
    let actions = match output.source {
        Some(_) => changed.actions(),
        None => Vec::new(),
    };
    let mut from = match output.command {
        _ if output.source.is_some() => {
            "[\u{1}merged] LEFT JOIN inserted ON inserted.[\u{1}number] = [\u{1}merged].[\u{1}number] \
             LEFT JOIN deleted ON deleted.[\u{1}number] = [\u{1}merged].[\u{1}number]"
        }
        Command::Insert => "inserted",
        Command::Delete => "deleted",
        _ => "inserted INNER JOIN deleted ON inserted.[\u{1}number] = deleted.[\u{1}number]",
    }
    .to_owned();
    let merged = MadeTable {
        name: "\u{1}merged",
        columns: vec![
            Column::new("\u{1}action", Type::nvarchar(10)),
            Column::new("\u{1}number", Type::BigInt),
        ],
        rows: actions,
    };
    let mut made = vec![
        table("inserted", changed.inserted),
        table("deleted", changed.deleted),
        merged,
    ];
    if let Some(source) = output.source {
        from += &source.joined();
        made.push(source.made());
    }
    let items = with_action(&output.clause.items)?;
    let text = format!("SELECT {items} FROM {from}");
    Ok((made, Fragment::at_line(text, output.line)))
}

/// The items of OUTPUT with the column of actions in place of `$action`.
fn with_action(items: &Fragment) -> Result<String, Message> {
    if !items.text.contains('$') {
        return Ok(items.text.clone());
    }
    let tokens = crate::syntax::tokens(&items.text)?;
    let mut all = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let is_action = token.is_word && token.raw.eq_ignore_ascii_case("$action");
        let is_named = tokens.get(i + 1).is_some_and(|next| next.raw != ",");
        all.push(match (is_action, is_named) {
            (true, true) => "[\u{1}merged].[\u{1}action]".to_owned(),
            (true, false) => "[\u{1}merged].[\u{1}action] AS [$action]".to_owned(),
            (false, _) => token.raw.clone(),
        });
    }
    Ok(all.join(" "))
}
