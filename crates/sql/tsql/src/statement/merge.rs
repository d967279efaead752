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
//!
//! Leaves to others: constraints, transactions and tables of other sessions (`statement/change.rs`).

use std::collections::BTreeMap;

use super::change::{
    Current, GivenRow, RowOutput, change, check_not_computed, check_null, combined, default,
    finish, fitted, numbered, places, run, terminated, value_of, with_defaults,
};
use super::target::{ChangedTable, bracketed, dotted, find};
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::query::{self, QueryPlan, ROW_NUMBER};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Fragment, Merge, MergeAction, MergeClause, MergeRows};
use crate::tables::{Change, TableRow};
use crate::value::Value;
use crate::variables::{Sum, bytes};

pub(crate) fn merge(session: &mut Session, merge: &Merge, out: &mut Out) -> Flow {
    terminated(merge_rows(session, merge, out))
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
}

struct Merging<'a> {
    merge: &'a Merge,
    target: &'a ChangedTable,
    line: u32,
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
    fn rows(
        &self,
        session: &mut Session,
        when: MergeRows,
    ) -> Result<(QueryPlan, Vec<FoundRow>), Message> {
        let clauses = self.clauses(when);
        if clauses.is_empty() {
            return Ok((QueryPlan::default(), Vec::new()));
        }
        let plan = self.plan(session, when)?;
        let has_number = when != MergeRows::OnlySource;
        let mut sum = Sum::default();
        let mut all = Vec::new();
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
            let values: Vec<_> = cells.skip(before).take(own).collect();
            for (_, value) in &values {
                sum.add_bytes(bytes(value) + size_of::<Value>())?;
            }
            all.push(FoundRow {
                number,
                clause,
                values,
            });
            Ok(())
        });
        ran.map_err(Stop::message)?;
        Ok((plan, all))
    }

    /// Changes and removes rows of the target.
    fn change_rows(
        &self,
        session: &mut Session,
        when: MergeRows,
        current: &Current,
        change: &mut Change,
    ) -> Result<(), Message> {
        let clauses = self.clauses(when);
        let (plan, found) = self.rows(session, when)?;
        let mut seen = std::collections::BTreeSet::new();
        for row in found {
            let (Some(number), Some(clause)) = (row.number, clauses.get(row.clause)) else {
                continue;
            };
            if !seen.insert(number) {
                return Err(message::MERGE_TWICE.plain());
            }
            let MergeAction::Update(sets) = &clause.action else {
                change.removed.push(number);
                continue;
            };
            let Some(mut changed) = current.row(session, number) else {
                continue;
            };
            for (set, (at, value)) in sets.iter().zip(row.values) {
                let place = self.target.shape.place(&set.column);
                let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&set.column]))?;
                let column = &self.target.shape.columns[place];
                changed[place] = match &set.value {
                    Some(_) => fitted(&value, plan.columns[at].kind, column, self.target)?,
                    None => default(session, column, self.target)?,
                };
            }
            check_null(self.target, &changed, "MERGE")?;
            change.put.push((number, changed));
        }
        Ok(())
    }

    /// The rows that only the source has.
    fn new_rows(&self, session: &mut Session) -> Result<Vec<GivenRow>, Message> {
        let clauses = self.clauses(MergeRows::OnlySource);
        let (plan, found) = self.rows(session, MergeRows::OnlySource)?;
        let mut all = Vec::new();
        for row in found {
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
            for ((place, (at, value)), text) in places.iter().zip(row.values).zip(values) {
                let column = &self.target.shape.columns[*place];
                // DEFAULT is filled in later.
                if text.is_some() {
                    let kind = plan.columns[at].kind;
                    given.push((*place, fitted(&value, kind, column, self.target)?));
                }
            }
            all.push(given);
        }
        Ok(all)
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

fn merge_rows(session: &mut Session, merge: &Merge, out: &mut Out) -> Flow {
    let target = find(session, &merge.table)?;
    check(session, merge, &target)?;
    let merging = Merging {
        merge,
        target: &target,
        line: out.line,
    };
    merging.check_condition(session)?;
    let mut last = None;
    let mut count = 0;
    let changed = change(session, &target, "MERGE", |session, current| {
        let mut change = Change::default();
        for when in [MergeRows::Matched, MergeRows::OnlyTarget] {
            merging.change_rows(session, when, current, &mut change)?;
        }
        let given = merging.new_rows(session)?;
        let rows = with_defaults(session, &target, given)?;
        let (put, identity, own) = numbered(&target, &rows, current.last(session), "MERGE")?;
        last = own;
        count = (change.put.len() + change.removed.len() + put.len()) as u64;
        change.put.extend(put);
        Ok((change, identity))
    })?;
    if last.is_some() {
        session.place.scope_identity = last;
        session.place.identity = last;
    }
    let mut actions: BTreeMap<i64, &str> = BTreeMap::new();
    for (number, _) in &changed.deleted {
        actions.insert(*number, "DELETE");
    }
    for (number, _) in &changed.inserted {
        let action = actions.entry(*number).or_insert("INSERT");
        if *action == "DELETE" {
            *action = "UPDATE";
        }
    }
    let rows: Vec<(i64, TableRow)> = actions
        .into_iter()
        .map(|(number, action)| (number, vec![Value::text(action), Value::Int(number)]))
        .collect();
    let output = merge.output.as_ref().map(|clause| RowOutput {
        clause,
        actions: Some(rows),
    });
    finish(
        session,
        changed,
        &target,
        output,
        (Command::Other, count),
        out,
    )
}
