//! MERGE: rows of a table are changed, added and removed by what a source has.
//!
//! ```text
//! matched            SELECT number, clause, values FROM target INNER JOIN source ON …
//! only in the source SELECT clause, values FROM source WHERE NOT EXISTS (SELECT … FROM target WHERE …)
//! only in the target SELECT number, clause, values FROM target WHERE NOT EXISTS (SELECT … FROM source WHERE …)
//! ```
//!
//! Invariants
//! - All of a statement's changes are made, or none.
//! - A row of the target that several rows of the source match is changed by none of them (8672).
//! - TOP counts the rows of all three kinds together, after those without a clause have gone.
//!
//! Leaves to others: constraints, transactions and tables of other sessions (`statement/change.rs`).

use std::collections::BTreeSet;

use super::change::{
    Current, GivenRow, MadeChange, begun_again, change, check_not_computed, check_null,
    check_output, combined, default, finish, fitted, numbered, places, run, terminated, value_of,
    with_defaults,
};
use super::output::{RowOutput, SourceRows};
use super::target::{ChangedTable, bracketed, dotted, find};
use super::top::allowed;
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::query::{self, QueryPlan, ROW_NUMBER};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Fragment, Merge, MergeAction, MergeClause, MergeRows};
use crate::tables::{Change, TableRow};
use crate::value::{Column, Type, Value};
use crate::variables::{Sum, bytes};

pub(crate) fn merge(session: &mut Session, merge: &Merge, out: &mut Out) -> Flow {
    terminated(begun_again(session, out, |session, out| {
        merge_rows(session, merge, out)
    }))
}

/// The number of the first clause whose condition holds, as an expression.
fn chosen(clauses: &[&MergeClause]) -> String {
    let mut text = "CASE".to_owned();
    for (i, clause) in clauses.iter().enumerate() {
        match &clause.condition {
            Some(condition) => text += &format!(" WHEN ( {condition} ) THEN {i}"),
            None => text += &format!(" WHEN 1 = 1 THEN {i}"),
        }
    }
    text + " END"
}

/// The values of all clauses, each evaluated only for rows of its own.
fn values(clauses: &[&MergeClause]) -> Vec<String> {
    let number = chosen(clauses);
    let mut all = Vec::new();
    for (i, clause) in clauses.iter().enumerate() {
        let own: Vec<String> = match &clause.action {
            MergeAction::Update(sets) => sets.iter().map(value_of).collect(),
            MergeAction::Insert { values, .. } => {
                let text = |v: &Option<Fragment>| v.as_ref().map_or("NULL", |v| &v.text).to_owned();
                values.iter().map(text).collect()
            }
            MergeAction::Delete | MergeAction::InsertDefaults => Vec::new(),
        };
        let is_plain = clauses.len() == 1 && clause.condition.is_none();
        all.extend(own.into_iter().map(|value| match is_plain {
            true => format!("( {value} )"),
            false => format!("CASE WHEN {number} = {i} THEN ( {value} ) END"),
        }));
    }
    all
}

/// How many values a clause has in its query.
fn width(clause: &MergeClause) -> usize {
    match &clause.action {
        MergeAction::Update(sets) => sets.len(),
        MergeAction::Insert { values, .. } => values.len(),
        MergeAction::Delete | MergeAction::InsertDefaults => 0,
    }
}

/// A row as a query of MERGE gives it: its number in the target, its clause, and the clause's values.
struct FoundRow {
    number: Option<i64>,
    clause: usize,
    /// With the places of their columns in the plan.
    values: Vec<(usize, Value)>,
    /// The row of the source, where OUTPUT can name it.
    source: TableRow,
}

/// The rows of one kind for which a clause holds.
#[derive(Default)]
struct Found {
    plan: QueryPlan,
    rows: Vec<FoundRow>,
}

/// The rows that a MERGE changes, by their kinds.
struct AllFound {
    matched: Found,
    only_target: Found,
    only_source: Found,
}

impl AllFound {
    fn kinds(&mut self) -> [&mut Found; 3] {
        [
            &mut self.matched,
            &mut self.only_target,
            &mut self.only_source,
        ]
    }
}

struct Merging<'a> {
    merge: &'a Merge,
    target: &'a ChangedTable,
    line: u32,
    /// The name of the source and its columns, where OUTPUT can name them.
    source: Option<(String, Vec<Column>)>,
}

impl Merging<'_> {
    fn clauses(&self, when: MergeRows) -> Vec<&MergeClause> {
        self.merge
            .clauses
            .iter()
            .filter(|c| c.when == when)
            .collect()
    }

    /// The target as FROM has it, and its name there.
    fn target(&self) -> (String, String) {
        let table = dotted(&self.merge.table);
        let called = match &self.merge.alias {
            Some(alias) => bracketed(alias),
            None => match self.merge.table.as_slice() {
                [variable] if variable.starts_with('@') => variable.clone(),
                name => bracketed(name.last().map_or("", String::as_str)),
            },
        };
        let target = match &self.merge.alias {
            Some(_) => format!("{table} AS {called}"),
            None => table,
        };
        (target, called)
    }

    fn query(&self, when: MergeRows) -> String {
        let clauses = self.clauses(when);
        let (target, called) = self.target();
        let number = format!("{called}.[{ROW_NUMBER}]");
        let (source, on) = (&self.merge.source, &self.merge.on);
        let mut items = vec![chosen(&clauses)];
        items.extend(values(&clauses));
        if let (Some((source, _)), true) = (&self.source, when != MergeRows::OnlyTarget) {
            items.push(format!("{}.*", bracketed(source)));
        }
        let items = items.join(", ");
        match when {
            MergeRows::Matched => {
                format!("SELECT {number}, {items} FROM {target} INNER JOIN {source} ON {on}")
            }
            MergeRows::OnlySource => format!(
                "SELECT {items} FROM {source} WHERE NOT EXISTS ( SELECT 1 FROM {target} WHERE {on} )"
            ),
            MergeRows::OnlyTarget => format!(
                "SELECT {number}, {items} FROM {target} WHERE NOT EXISTS ( SELECT 1 FROM {source} WHERE {on} )"
            ),
        }
    }

    /// A name in ON that both tables have is refused: in a subquery it would be that of the inner table. Errors: 209.
    fn check_condition(&self, session: &Session) -> Result<(), Message> {
        let ((target, _), source, on) = (self.target(), &self.merge.source, &self.merge.on);
        let joined = format!("SELECT 1 FROM {target} INNER JOIN {source} ON {on}");
        let joined = Fragment::at_line(joined, self.line);
        let joined = combined(self.merge.with.as_ref(), &joined);
        query::prepare(&session.query_context(), &joined).map(drop)
    }

    fn plan(&self, session: &Session, when: MergeRows) -> Result<QueryPlan, Message> {
        let query = Fragment::at_line(self.query(when), self.line);
        let query = combined(self.merge.with.as_ref(), &query);
        let mut context = session.query_context();
        context.tracks_rows = true;
        query::prepare(&context, &query)
    }

    /// The rows of one kind for which a clause holds.
    fn rows(&self, session: &mut Session, when: MergeRows) -> Result<Found, Message> {
        let clauses = self.clauses(when);
        if clauses.is_empty() {
            return Ok(Found::default());
        }
        let plan = self.plan(session, when)?;
        let has_number = when != MergeRows::OnlySource;
        let width_of_all: usize = clauses.iter().map(|c| width(c)).sum();
        let mut sum = Sum::default();
        let mut rows = Vec::new();
        let ran = run(session, &plan, |row| {
            let mut cells = row.into_iter().enumerate();
            let number = match has_number.then(|| cells.next()).flatten() {
                Some((_, Value::Int(number))) => Some(number),
                _ => None,
            };
            let Some((_, Value::Int(clause))) = cells.next() else {
                return Ok(());
            };
            let clause = usize::try_from(clause).unwrap_or(usize::MAX);
            let before: usize = clauses.iter().take(clause).map(|c| width(c)).sum();
            let own = clauses.get(clause).map_or(0, |c| width(c));
            let of_clauses: Vec<_> = cells.by_ref().take(width_of_all).collect();
            let values: Vec<_> = of_clauses.into_iter().skip(before).take(own).collect();
            let source: TableRow = cells.map(|(_, value)| value).collect();
            let kept = values.iter().map(|(_, value)| value).chain(&source);
            for value in kept {
                sum.add_bytes(bytes(value) + size_of::<Value>())?;
            }
            rows.push(FoundRow {
                number,
                clause,
                values,
                source,
            });
            Ok(())
        });
        ran.map_err(Stop::message)?;
        Ok(Found { plan, rows })
    }

    /// The rows of all kinds, as many of them as TOP allows. Errors: 127, 1031, 1060, 8672.
    fn all_rows(&self, session: &mut Session) -> Result<AllFound, Message> {
        let mut all = AllFound {
            matched: self.rows(session, MergeRows::Matched)?,
            only_target: self.rows(session, MergeRows::OnlyTarget)?,
            only_source: self.rows(session, MergeRows::OnlySource)?,
        };
        if let Some(top) = &self.merge.top {
            let count = all.kinds().iter().map(|found| found.rows.len()).sum();
            let mut left = allowed(session, top, count)?;
            for found in all.kinds() {
                found.rows.truncate(left);
                left -= found.rows.len();
            }
        }
        let mut seen = BTreeSet::new();
        let mut matched = all.matched.rows.iter().filter_map(|row| row.number);
        match matched.all(|number| seen.insert(number)) {
            true => Ok(all),
            false => Err(message::MERGE_TWICE.plain()),
        }
    }

    /// Changes and removes rows of the target.
    fn change_rows(
        &self,
        session: &mut Session,
        (when, found): (MergeRows, &Found),
        current: &Current,
        change: &mut Change,
    ) -> Result<(), Message> {
        let clauses = self.clauses(when);
        for row in &found.rows {
            let (Some(number), Some(clause)) = (row.number, clauses.get(row.clause)) else {
                continue;
            };
            let MergeAction::Update(sets) = &clause.action else {
                change.removed.push(number);
                continue;
            };
            let Some(mut changed) = current.row(session, number) else {
                continue;
            };
            for (set, (at, value)) in sets.iter().zip(&row.values) {
                let place = self.target.shape.place(&set.column);
                let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&set.column]))?;
                let column = &self.target.shape.columns[place];
                changed[place] = match &set.value {
                    Some(_) => fitted(value, found.plan.columns[*at].kind, column, self.target)?,
                    None => default(session, column, self.target)?,
                };
            }
            check_null(self.target, &changed, "MERGE")?;
            change.put.push((number, changed));
        }
        Ok(())
    }

    /// The rows that only the source has.
    fn new_rows(&self, session: &Session, found: &Found) -> Result<Vec<GivenRow>, Message> {
        let clauses = self.clauses(MergeRows::OnlySource);
        let mut all = Vec::new();
        for row in &found.rows {
            let Some(MergeAction::Insert { columns, values }) =
                clauses.get(row.clause).map(|c| &c.action)
            else {
                all.push(GivenRow::new());
                continue;
            };
            let places = places(session, self.target, columns)?;
            if places.len() != values.len() {
                return Err(message::VALUES_NOT_COLUMNS.plain());
            }
            let mut given = GivenRow::new();
            for ((place, (at, value)), text) in places.iter().zip(&row.values).zip(values) {
                let column = &self.target.shape.columns[*place];
                // DEFAULT is filled in later.
                if text.is_some() {
                    let kind = found.plan.columns[*at].kind;
                    given.push((*place, fitted(value, kind, column, self.target)?));
                }
            }
            all.push(given);
        }
        Ok(all)
    }

    /// The rows of the source for OUTPUT. `new`: the numbers of the rows that came from the source alone.
    fn source_rows(&self, all: AllFound, new: &[i64]) -> Option<SourceRows> {
        let mut rows_of_source = self.no_source_rows()?;
        let matched = all.matched.rows.into_iter();
        let matched = matched.filter_map(|row| Some((row.number?, row.source)));
        let came = all.only_source.rows.into_iter().map(|row| row.source);
        let numbered = |(number, mut row): (i64, TableRow)| {
            row.push(Value::Int(number));
            (number, row)
        };
        let rows = matched.chain(new.iter().copied().zip(came));
        rows_of_source.rows = rows.map(numbered).collect();
        Some(rows_of_source)
    }

    /// The source as OUTPUT sees it before any row is changed.
    fn no_source_rows(&self) -> Option<SourceRows> {
        let (name, mut columns) = self.source.clone()?;
        columns.push(Column::new("\u{1}number", Type::BigInt));
        Some(SourceRows {
            name,
            columns,
            rows: Vec::new(),
        })
    }

    /// Errors: those of OUTPUT.
    fn check_output(&self, session: &Session) -> Result<(), Message> {
        check_output(session, self.target, self.output(self.no_source_rows()))
    }

    fn output(&self, source: Option<SourceRows>) -> Option<RowOutput<'_>> {
        let output = RowOutput::of(self.merge.output.as_ref(), Command::Other, self.line)?;
        Some(RowOutput { source, ..output })
    }
}

/// Errors: 207, 264, 10714 and what else a clause may not say.
fn check(session: &Session, merge: &Merge, target: &ChangedTable) -> Result<(), Message> {
    let is_new = |clause: &&MergeClause| clause.when == MergeRows::OnlySource;
    if merge.clauses.iter().filter(is_new).count() > 1 {
        return Err(message::MERGE_INSERTS.with(&[&"INSERT", &"WHEN NOT MATCHED"]));
    }
    for clause in &merge.clauses {
        match &clause.action {
            MergeAction::Update(sets) => {
                let mut known: Vec<usize> = Vec::new();
                for set in sets {
                    if set.variable.is_some() {
                        return Err(message::NOT_HERE.with(&[&"a variable in SET of MERGE"]));
                    }
                    let place = target.shape.place(&set.column);
                    let unknown = || message::COLUMN_UNKNOWN.with(&[&set.column]);
                    let place = place.ok_or_else(unknown)?;
                    check_not_computed(target, place)?;
                    if target.shape.columns[place].identity.is_some() {
                        return Err(message::IDENTITY_UPDATE.with(&[&set.column]));
                    }
                    if known.contains(&place) {
                        return Err(message::COLUMN_TWICE.with(&[&set.column]));
                    }
                    known.push(place);
                }
            }
            MergeAction::Insert { columns, values } => {
                let count = places(session, target, columns)?.len();
                if count != values.len() {
                    return Err(message::VALUES_NOT_COLUMNS.plain());
                }
            }
            MergeAction::Delete | MergeAction::InsertDefaults => {}
        }
    }
    Ok(())
}

/// The name by which the source can be named, and its columns.
fn source(session: &Session, merge: &Merge, line: u32) -> Result<(String, Vec<Column>), Message> {
    let text = format!("SELECT 1 FROM {}", merge.source);
    let read = query::read(&session.query_context(), &Fragment::new(text))?;
    let name = query::first_table(&read).ok_or_else(|| message::SYNTAX.with(&[&merge.source]))?;
    let text = format!("SELECT {}.* FROM {}", bracketed(&name), merge.source);
    let columns = combined(merge.with.as_ref(), &Fragment::at_line(text, line));
    let columns = query::prepare(&session.query_context(), &columns)?.columns;
    Ok((name, columns))
}

fn merge_rows(session: &mut Session, merge: &Merge, out: &mut Out) -> Flow {
    let target = find(session, &merge.table)?;
    check(session, merge, &target)?;
    let output = merge.output.as_ref();
    let source = output.map(|_| source(session, merge, out.line));
    let merging = Merging {
        merge,
        target: &target,
        line: out.line,
        source: source.transpose()?,
    };
    merging.check_condition(session)?;
    merging.check_output(session)?;
    let mut last = None;
    let mut count = 0;
    let done = change(session, &target, "MERGE", |session, current| {
        let mut change = Change::default();
        let found = merging.all_rows(session)?;
        for (when, found) in [
            (MergeRows::Matched, &found.matched),
            (MergeRows::OnlyTarget, &found.only_target),
        ] {
            merging.change_rows(session, (when, found), current, &mut change)?;
        }
        let given = merging.new_rows(session, &found.only_source)?;
        let rows = with_defaults(session, &target, given)?;
        let (put, identity, own) = numbered(&target, &rows, current.last(session), "MERGE")?;
        last = own;
        count = (change.put.len() + change.removed.len() + put.len()) as u64;
        let new: Vec<i64> = put.iter().map(|(number, _)| *number).collect();
        let output = merging.output(merging.source_rows(found, &new));
        change.put.extend(put);
        Ok(MadeChange {
            change,
            identity,
            output,
        })
    })?;
    if last.is_some() {
        session.place.scope_identity = last;
        session.place.identity = last;
    }
    finish(session, &target, done, (Command::Other, count), out)
}
