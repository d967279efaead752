//! INSERT, UPDATE, DELETE, TRUNCATE TABLE and SELECT … INTO.
//!
//! ```text
//! statement ──▶ query of its rows' numbers and new values ──▶ change of rows ──constraints──▶ table
//! ```
//!
//! Invariants
//! - A statement changes all of its rows or none. The rows of its OUTPUT are computed before the change is made.
//! - A table that outlives the session is changed only from the rows that the statement saw: where another session was
//!   faster, the statement reads again. Where that one has changed the table's definition, the statement begins again.
//! - In a transaction what rows were before is kept, and ROLLBACK puts it back; table variables keep their rows.
//!
//! Leaves to others: evaluating expressions (`query`), tables (`tables.rs`), finding them (`statement/target.rs`), the query of
//! OUTPUT (`statement/output.rs`), conditions (`statement/conditions.rs`), and MERGE (`statement/merge.rs`).

use longshore_catalog::RowChanges;

use super::conditions::check_conditions;
use super::output::{Changed, RowOutput, asked};
use super::target::{ChangedTable, find};
use super::top::allowed;
use super::{computed, foreign};
use crate::convert::{convert_from, convert_in};
use crate::flow::{Flow, Out, Stop, Variable};
use crate::memory::Claim;
use crate::message::{self, Message};
use crate::query::{self, QueryPlan, ROW_NUMBER};
use crate::server::objects::encoded;
use crate::session::Session;
use crate::sink::{Command, DoneEvent, ReceiverGone, Sink};
use crate::syntax::{
    Delete, Fragment, Insert, InsertSource, LocatedStatement, OutputClause, SetClause, Top, Update,
};
use crate::tables::{Change, RowBefore, TableColumn, TableId, TableRow, TableRows, row_bytes};
use crate::value::{Column, Type, Value};
use crate::variables::{Sum, bytes};

/// How often a statement reads again because another session was faster.
const TRIES_MAX: usize = 50;

/// A row as a statement gives it: a value for some of the columns.
pub(super) type GivenRow = Vec<(usize, Value)>;

/// A value in a column's type. Errors: 2628 where a text would be cut, and nobody said that it may be.
pub(super) fn fitted(
    value: &Value,
    from: Type,
    column: &TableColumn,
    target: &ChangedTable,
) -> Result<Value, Message> {
    let fits = convert_in(value, from, column.kind, target.date_order)?;
    let is_cut = match (value, &fits) {
        (Value::Text(before), Value::Text(after)) => {
            before.trim_end_matches(' ').chars().count() > after.chars().count()
        }
        (Value::Binary(before), Value::Binary(after)) => before.len() > after.len(),
        _ => false,
    };
    match is_cut && !target.cuts {
        true => Err(message::VALUE_TRUNCATED.with(&[&target.full, &column.name, &fits])),
        false => Ok(fits),
    }
}

/// The places of the columns that an INSERT names; without names all but the one that numbers rows.
///
/// Errors: 207, 264, 544.
pub(super) fn places(
    session: &Session,
    target: &ChangedTable,
    names: &[String],
) -> Result<Vec<usize>, Message> {
    let identity = target.shape.identity().map(|(place, ..)| place);
    let is_given = session.identity_insert.as_deref() == Some(target.full.as_str());
    if names.is_empty() {
        let all = 0..target.shape.columns.len();
        let is_plain = |i: &usize| target.shape.columns[*i].computed.is_none();
        let all = all.filter(is_plain);
        return Ok(all.filter(|i| Some(*i) != identity || is_given).collect());
    }
    let mut places = Vec::new();
    for name in names {
        let place = target.shape.place(name);
        let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[name]))?;
        if places.contains(&place) {
            return Err(message::COLUMN_TWICE.with(&[name]));
        }
        check_not_computed(target, place)?;
        if Some(place) == identity && !is_given {
            return Err(message::IDENTITY_GIVEN.with(&[&target.short()]));
        }
        places.push(place);
    }
    match identity.filter(|_| is_given) {
        Some(place) if !places.contains(&place) => {
            Err(message::IDENTITY_MISSING.with(&[&target.short()]))
        }
        _ => Ok(places),
    }
}

/// Without a list of columns there is no value for the column that numbers rows, whatever IDENTITY_INSERT says. Errors: 8101.
fn check_listed(target: &ChangedTable, has_names: bool, count: usize) -> Result<(), Message> {
    let columns = target.shape.columns.iter();
    let plain = columns.filter(|column| column.computed.is_none()).count();
    match !has_names && target.shape.identity().is_some() && count == plain {
        true => Err(message::IDENTITY_UNLISTED.with(&[&target.short()])),
        false => Ok(()),
    }
}

/// Errors: 271.
pub(super) fn check_not_computed(target: &ChangedTable, place: usize) -> Result<(), Message> {
    let column = &target.shape.columns[place];
    match column.computed {
        Some(_) => Err(message::COMPUTED_CHANGED.with(&[&column.name])),
        None => Ok(()),
    }
}

/// SET IDENTITY_INSERT: for one table of a session at a time. Errors: 8106, 8107.
pub(crate) fn identity_insert(
    session: &mut Session,
    table: &[String],
    on: bool,
    out: &mut Out,
) -> Flow {
    let target = find(session, table)?;
    if target.shape.identity().is_none() {
        return Err(message::NO_IDENTITY.with(&[&target.short()]).into());
    }
    let is_own = session.identity_insert.as_deref() == Some(target.full.as_str());
    match (on, &session.identity_insert) {
        (true, Some(other)) if !is_own => {
            return Err(message::IDENTITY_ELSEWHERE
                .with(&[other, &target.short()])
                .into());
        }
        (true, _) => session.identity_insert = Some(target.full),
        (false, _) if is_own => session.identity_insert = None,
        (false, _) => {}
    }
    Ok(out.done(Command::Other, None)?)
}

/// Rows that are collected before they are inserted; their bytes are bounded.
struct Collected<'a> {
    target: &'a ChangedTable,
    places: &'a [usize],
    rows: Vec<GivenRow>,
    sum: Sum,
}

impl Collected<'_> {
    fn add(&mut self, values: Vec<(Value, Type)>) -> Result<(), Message> {
        let mut row = Vec::with_capacity(values.len());
        for ((value, from), place) in values.iter().zip(self.places) {
            let column = &self.target.shape.columns[*place];
            let value = fitted(value, *from, column, self.target)?;
            self.sum.add_bytes(bytes(&value) + size_of::<Value>())?;
            row.push((*place, value));
        }
        self.rows.push(row);
        Ok(())
    }
}

/// SQL Server says that the statement has ended after a value of a row was refused.
pub(super) fn terminated(done: Flow) -> Flow {
    match done {
        Err(Stop::Failed(mut messages)) => {
            let last = messages.last().map_or(0, |m| m.number);
            if matches!(last, 515 | 547 | 2601 | 2627 | 2628) {
                messages.push(message::TERMINATED.plain());
            }
            Err(Stop::Failed(messages))
        }
        other => other,
    }
}

/// Runs a statement again from its beginning while another session has changed its table's definition since it began: nothing
/// is changed then.
pub(super) fn begun_again(
    session: &mut Session,
    out: &mut Out,
    mut run: impl FnMut(&mut Session, &mut Out) -> Flow,
) -> Flow {
    for _ in 1..TRIES_MAX {
        match run(session, out) {
            Err(Stop::Failed(messages)) if is_about_definition(&messages) => {}
            done => return done,
        }
    }
    run(session, out)
}

/// Behind another message, or before one, the statement has changed something.
fn is_about_definition(messages: &[Message]) -> bool {
    matches!(messages, [only] if only.number == message::DEFINITION_CHANGED.number)
}

pub(crate) fn insert(session: &mut Session, insert: &Insert, out: &mut Out) -> Flow {
    session.begin_implicitly();
    match insert.source {
        // Its statements have effects of their own.
        InsertSource::Execute(_) => terminated(insert_rows(session, insert, out)),
        _ => terminated(begun_again(session, out, |session, out| {
            insert_rows(session, insert, out)
        })),
    }
}

pub(crate) fn update(session: &mut Session, update: &Update, out: &mut Out) -> Flow {
    terminated(begun_again(session, out, |session, out| {
        update_rows(session, update, out)
    }))
}

pub(crate) fn delete(session: &mut Session, delete: &Delete, out: &mut Out) -> Flow {
    terminated(begun_again(session, out, |session, out| {
        delete_rows(session, delete, out)
    }))
}

fn insert_rows(session: &mut Session, insert: &Insert, out: &mut Out) -> Flow {
    let target = find(session, &insert.table)?;
    let places = places(session, &target, &insert.columns)?;
    let output = RowOutput::of(insert.output.as_ref(), Command::Insert, out.line);
    check_output(session, &target, output)?;
    let has_names = !insert.columns.is_empty();
    let mut collected = Collected {
        target: &target,
        places: &places,
        rows: Vec::new(),
        sum: Sum::default(),
    };
    let count = places.len();
    match &insert.source {
        InsertSource::DefaultValues => collected.rows.push(Vec::new()),
        InsertSource::Values(rows) => {
            for row in rows {
                let fewer = |has_names| match has_names {
                    true => message::VALUES_FEWER,
                    false => message::VALUES_NOT_COLUMNS,
                };
                check_listed(&target, has_names, row.len())?;
                match row.len() {
                    n if n < count => return Err(fewer(has_names).plain().into()),
                    n if n > count && has_names => {
                        return Err(message::VALUES_MORE.plain().into());
                    }
                    n if n > count => return Err(message::VALUES_NOT_COLUMNS.plain().into()),
                    _ => {}
                }
                let row = given(session, &target, &places, row)?;
                for (_, value) in &row {
                    collected.sum.add_bytes(bytes(value) + size_of::<Value>())?;
                }
                collected.rows.push(row);
            }
        }
        InsertSource::Query(query) => {
            let query = combined(insert.with.as_ref(), query);
            let plan = query::prepare(&session.query_context(), &query)?;
            if !plan.assigns.is_empty() {
                return Err(message::ASSIGNS_AND_ROWS.plain().into());
            }
            check_listed(&target, has_names, plan.columns.len())?;
            match plan.columns.len() {
                n if n == count => {}
                _ if !has_names => return Err(message::VALUES_NOT_COLUMNS.plain().into()),
                n if n < count => return Err(message::ITEMS_FEWER.plain().into()),
                _ => return Err(message::ITEMS_MORE.plain().into()),
            }
            run(session, &plan, |row| {
                let kinds = plan.columns.iter().map(|c| c.kind);
                collected.add(row.into_iter().zip(kinds).collect())
            })?;
        }
        InsertSource::Execute(executed) => execute_into(session, executed, &mut collected, out)?,
    }
    let mut rows = collected.rows;
    if let Some(top) = &insert.top {
        rows.truncate(allowed(session, top, rows.len())?);
    }
    finish_insert(session, &target, rows, insert.output.as_ref(), out)
}

/// The values of VALUES.
fn given(
    session: &Session,
    target: &ChangedTable,
    places: &[usize],
    row: &[Option<Fragment>],
) -> Result<GivenRow, Message> {
    let mut all = Vec::with_capacity(row.len());
    for (value, place) in row.iter().zip(places) {
        let Some(value) = value else {
            continue;
        };
        let Variable { kind, value } = query::scalar(&session.query_context(), value)?;
        let column = &target.shape.columns[*place];
        all.push((*place, fitted(&value, kind, column, target)?));
    }
    Ok(all)
}

/// A query with the WITH clause before its statement.
pub(super) fn combined(with: Option<&Fragment>, query: &Fragment) -> Fragment {
    match with {
        Some(with) => query.after(&format!("{with} ")),
        None => query.clone(),
    }
}

/// Runs a plan and passes its rows on.
pub(super) fn run(
    session: &mut Session,
    plan: &QueryPlan,
    mut take: impl FnMut(TableRow) -> Result<(), Message>,
) -> Result<u64, Stop> {
    session.begin_implicitly();
    let sqlite = session.query_context().sqlite(plan)?;
    let ran = sqlite.run(plan, &mut |row| Ok(take(row)?));
    session.query_context().give_back(sqlite, plan);
    ran
}

/// Collects the rows of an EXEC, and passes its messages on.
struct Capture<'a, 'b> {
    outer: &'a mut dyn Sink,
    kinds: Vec<Type>,
    collected: &'a mut Collected<'b>,
    refused: Option<Message>,
    /// The statement about media whose rows were refused.
    ended: Option<&'static str>,
}

impl Sink for Capture<'_, '_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        self.kinds = columns.iter().map(|c| c.kind).collect();
        if columns.len() != self.collected.places.len() && self.refused.is_none() {
            self.refused = Some(message::VALUES_NOT_COLUMNS.plain());
        }
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        if self.refused.is_none() {
            let values = row.iter().cloned().zip(self.kinds.iter().copied());
            self.refused = self.collected.add(values.collect()).err();
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.outer.message(message)
    }

    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone> {
        let ended = match done.command {
            Command::RestoreHeaderOnly => "RESTORE HEADERONLY",
            Command::RestoreFileListOnly => "RESTORE FILELIST",
            // The others follow these.
            Command::MediaRows => "RESTORE LABELONLY",
            _ => return Ok(()),
        };
        if self.refused.is_some() {
            self.ended = Some(ended);
        }
        Ok(())
    }
}

fn execute_into(
    session: &mut Session,
    executed: &LocatedStatement,
    collected: &mut Collected,
    out: &mut Out,
) -> Flow {
    let mut capture = Capture {
        outer: &mut *out.sink,
        kinds: Vec::new(),
        collected,
        refused: None,
        ended: None,
    };
    let mut inner = Out {
        sink: &mut capture,
        line: out.line,
        nocount: out.nocount,
        outcome: out.outcome,
        last_error: out.last_error,
        returned: None,
        procedure: out.procedure.clone(),
        notices: out.notices.clone(),
    };
    let ran = session.execute(&executed.statement, &mut inner);
    (out.outcome, out.last_error) = (inner.outcome, inner.last_error);
    ran?;
    let Some(refused) = capture.refused else {
        return Ok(());
    };
    let ended = capture
        .ended
        .map(|what| message::TERMINATING.with(&[&what]));
    let all: Vec<Message> = std::iter::once(refused).chain(ended).collect();
    Err(all.into())
}

/// Gives rows the values that the statement does not, and puts them into the table.
fn finish_insert(
    session: &mut Session,
    target: &ChangedTable,
    given: Vec<GivenRow>,
    output: Option<&OutputClause>,
    out: &mut Out,
) -> Flow {
    let rows = with_defaults(session, target, given)?;
    let count = rows.len() as u64;
    let (mut last, line) = (None, out.line);
    let done = change(session, target, "INSERT", |session, current| {
        let (put, identity, own) = numbered(target, &rows, current.last(session), "INSERT")?;
        last = own;
        let removed = Vec::new();
        Ok(MadeChange {
            change: Change { removed, put },
            identity,
            output: RowOutput::of(output, Command::Insert, line),
        })
    })?;
    if target.shape.identity().is_some() && count > 0 {
        session.place.scope_identity = last;
        session.place.identity = last;
    }
    finish(session, target, done, (Command::Insert, count), out)
}

/// Rows with the values that their statement leaves to the columns' defaults; `None`: a number is given to the row later.
pub(super) fn with_defaults(
    session: &Session,
    target: &ChangedTable,
    given: Vec<GivenRow>,
) -> Result<Vec<Vec<Option<Value>>>, Message> {
    let mut rows = Vec::with_capacity(given.len());
    for given in given {
        let mut row: Vec<Option<Value>> = vec![None; target.shape.columns.len()];
        given
            .into_iter()
            .for_each(|(i, value)| row[i] = Some(value));
        for (i, column) in target.shape.columns.iter().enumerate() {
            if row[i].is_none() && column.identity.is_none() {
                row[i] = Some(default(session, column, target)?);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// New rows with their numbers; the last value of the column that numbers rows, of the table and of these rows.
type Numbered = (Vec<(i64, TableRow)>, Option<i64>, Option<i64>);

/// Gives new rows their numbers. Errors: 515, 8115.
pub(super) fn numbered(
    target: &ChangedTable,
    rows: &[Vec<Option<Value>>],
    (mut number, mut identity): (i64, Option<i64>),
    verb: &str,
) -> Result<Numbered, Message> {
    let mut put = Vec::with_capacity(rows.len());
    let mut own = None;
    for row in rows {
        number += 1;
        let mut full = Vec::with_capacity(row.len());
        for (value, column) in row.iter().zip(&target.shape.columns) {
            let value = match (value, column.identity) {
                (Some(value), identified) => {
                    if let (Some((_, step)), Value::Int(n)) = (identified, value) {
                        identity = match identity {
                            Some(last) if (step > 0) == (last > *n) => Some(last),
                            _ => Some(*n),
                        };
                        own = Some(*n);
                    }
                    value.clone()
                }
                (None, Some((seed, step))) => {
                    let next = match identity {
                        Some(last) => last.checked_add(step),
                        None => Some(seed),
                    };
                    let overflow = || message::OVERFLOW.with(&[&column.kind]);
                    let next = next.ok_or_else(overflow)?;
                    identity = Some(next);
                    own = Some(next);
                    convert_from(&Value::Int(next), Type::BigInt, column.kind)?
                }
                (None, None) => Value::Null,
            };
            full.push(value);
        }
        check_null(target, &full, verb)?;
        put.push((number, full));
    }
    Ok((put, identity, own))
}

pub(super) fn default(
    session: &Session,
    column: &TableColumn,
    target: &ChangedTable,
) -> Result<Value, Message> {
    let Some(default) = &column.default else {
        return Ok(Value::Null);
    };
    let Variable { kind, value } = query::scalar(&session.query_context(), default)?;
    fitted(&value, kind, column, target)
}

/// Errors: 515.
pub(super) fn check_null(target: &ChangedTable, row: &TableRow, verb: &str) -> Result<(), Message> {
    let columns = target.shape.columns.iter().zip(row);
    let mut missing = columns.filter(|(column, value)| !column.nullable && value.is_null());
    match missing.next() {
        Some((column, _)) => Err(message::NULL_REFUSED.with(&[&column.name, &target.full, &verb])),
        None => Ok(()),
    }
}

/// Makes a change that depends on the table's present rows. `make` gets them.
pub(super) fn change<'a>(
    session: &mut Session,
    target: &ChangedTable,
    verb: &str,
    mut make: impl FnMut(&mut Session, &Current) -> Result<MadeChange<'a>, Message>,
) -> Result<Done, Stop> {
    for _ in 0..TRIES_MAX {
        if session.is_cancelled() {
            return Err(message::ABORTED.plain().into());
        }
        let made = match target.id {
            TableId::Stored(_) => change_stored(session, target, verb, &mut make),
            TableId::Variable(id) | TableId::Temporary(id) => {
                change_own(session, target, (id, verb), &mut make).map(Some)
            }
        };
        match made {
            Ok(Some(done)) => return Ok(done),
            // Another program may have changed the table's definition, too.
            Ok(None) => session.server.kept.refresh(),
            Err(refused) => return Err(refused.into()),
        }
    }
    let text = "other sessions change the table all the time: try again";
    Err(message::OWN.with(&[&text]).into())
}

/// The rows of the table that a statement changes.
pub(super) enum Current<'a> {
    Own(u32),
    Stored(&'a TableRows),
}

impl Current<'_> {
    fn of<'a>(&'a self, session: &'a Session) -> Option<&'a TableRows> {
        match self {
            Current::Own(id) => session.tables.get(*id).map(|table| &table.rows),
            Current::Stored(rows) => Some(rows),
        }
    }

    pub fn row(&self, session: &Session, number: i64) -> Option<TableRow> {
        self.of(session)?.get(number).cloned()
    }

    /// The rows of a change as they are now; `None`: there is no such row.
    fn before(&self, session: &Session, change: &Change) -> Vec<RowBefore> {
        let put = change.put.iter().map(|(number, _)| number);
        let numbers = change.removed.iter().chain(put);
        let row = |number: &i64| (*number, self.row(session, *number));
        numbers.map(row).collect()
    }

    /// The number of the last row, and the last value of the column that numbers rows.
    pub fn last(&self, session: &Session) -> (i64, Option<i64>) {
        let rows = self.of(session);
        rows.map_or((0, None), |rows| (rows.last_row, rows.last_identity))
    }
}

/// The change that a statement makes of a table's present rows.
#[derive(Default)]
pub(super) struct MadeChange<'a> {
    pub change: Change,
    /// The last value of the column that numbers rows.
    pub identity: Option<i64>,
    pub output: Option<RowOutput<'a>>,
}

/// A change that was made.
#[derive(Default)]
pub(super) struct Done {
    told: Option<Told>,
    /// Its rows as they were, if there is an OUTPUT: the table that takes its rows may refuse them.
    before: Vec<RowBefore>,
    /// The numbers of those that the open transaction did not know.
    new: Vec<i64>,
    /// The table's version now; `None`: no other session has this table.
    version: Option<i64>,
}

/// The rows of OUTPUT, which are computed before the change is made: one that fails changes nothing.
struct Told {
    columns: Vec<Column>,
    /// The client's; none where a table takes them.
    rows: Vec<TableRow>,
    into: Option<(ChangedTable, Vec<GivenRow>)>,
    /// For these rows, and for those of the change as they were and are.
    _claim: Claim,
}

fn change_own<'a>(
    session: &mut Session,
    target: &ChangedTable,
    (id, verb): (u32, &str),
    make: &mut impl FnMut(&mut Session, &Current) -> Result<MadeChange<'a>, Message>,
) -> Result<Done, Message> {
    let MadeChange {
        mut change,
        identity,
        output,
    } = make(session, &Current::Own(id))?;
    computed::fill(session, &target.shape, &mut change.put)?;
    check_conditions(session, target, &change.put, verb)?;
    let is_kept = session.transactions > 0 && matches!(target.id, TableId::Temporary(_));
    let mut done = Done::default();
    if is_kept || output.is_some() {
        done.before = Current::Own(id).before(session, &change);
    }
    done.told = told(session, target, output, (&done.before, &change.put))?;
    if is_kept {
        done.new = session.tables.remember(target.id, done.before.clone())?;
    }
    if let Err(refused) = session.tables.apply(id, change) {
        session.tables.forget_rows(target.id, &done.new);
        return Err(refused);
    }
    session.tables.number(id, identity);
    Ok(done)
}

/// `None`: another session changed the table meanwhile.
fn change_stored<'a>(
    session: &mut Session,
    target: &ChangedTable,
    verb: &str,
    make: &mut impl FnMut(&mut Session, &Current) -> Result<MadeChange<'a>, Message>,
) -> Result<Option<Done>, Message> {
    let Some(object) = &target.object else {
        return Ok(Some(Done::default()));
    };
    let server = session.server.clone();
    let loaded = server.kept.rows(object)?;
    let _claim = server.setup.memory.claim(loaded.rows.bytes())?;
    let MadeChange {
        mut change,
        identity,
        output,
    } = match make(session, &Current::Stored(&loaded.rows)) {
        Ok(made) => made,
        // It may come from the other definition.
        Err(refused) => return server.kept.check_definition(object).and(Err(refused)),
    };
    computed::fill(session, &target.shape, &mut change.put)?;
    let mut done = Done::default();
    let numbers = identity.is_none() || identity == loaded.rows.last_identity;
    if change.put.is_empty() && change.removed.is_empty() && numbers {
        done.told = told(session, target, output, (&[], &[]))?;
        return Ok(Some(done));
    }
    check_conditions(session, target, &change.put, verb)?;
    foreign::check(&server, object, &loaded.rows, &change, verb)?;
    let put = change.put.clone();
    let removed = change.removed.clone();
    let mut rows = loaded.rows;
    let before = rows.apply(&target.shape, change, &target.short())?;
    done.told = told(session, target, output, (&before, &put))?;
    if session.transactions > 0 {
        done.new = session.tables.remember(target.id, before.clone())?;
    }
    let kept = RowChanges {
        version: Some(loaded.version),
        last_identity: identity,
        last_row: rows.last_row,
        removed,
        put: put.iter().map(|(n, row)| (*n, encoded(row))).collect(),
    };
    let fits = server.kept.check_rows_fit(object.object.id, &kept);
    let is_made = fits.and_then(|()| session.write_rows(object, &before, &kept));
    if !matches!(is_made, Ok(true)) {
        session.tables.forget_rows(target.id, &done.new);
    }
    done.version = Some(loaded.version + 1);
    if done.told.is_some() {
        done.before = before;
    }
    Ok(is_made?.then_some(done))
}

/// The rows that a statement changes, with the values of its expressions, by number.
fn selected(session: &mut Session, plan: &QueryPlan) -> Result<Vec<(i64, TableRow)>, Stop> {
    let mut sum = Sum::default();
    let mut all: Vec<(i64, TableRow)> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    run(session, plan, |mut row| {
        let Value::Int(number) = row.remove(0) else {
            return Ok(());
        };
        // A row that a join finds twice is changed once.
        if known.insert(number) {
            for value in &row {
                sum.add_bytes(bytes(value) + size_of::<Value>())?;
            }
            all.push((number, row));
        }
        Ok(())
    })?;
    Ok(all)
}

/// The query of a statement's rows: their numbers, then the values.
pub(super) struct RowQuery<'a> {
    pub with: Option<&'a Fragment>,
    pub top: Option<&'a Top>,
    pub table: &'a [String],
    pub values: Vec<String>,
    pub rest: Option<&'a Fragment>,
}

impl RowQuery<'_> {
    /// `called`: the target's name in the query.
    fn text(&self, called: &str) -> String {
        let word = |f: &Fragment| f.text.split(' ').next().unwrap_or("").to_ascii_uppercase();
        let rest = self.rest.map_or("", |rest| rest.text.as_str());
        let has_from = self.rest.is_some_and(|rest| word(rest) == "FROM");
        let from = match has_from {
            true => String::new(),
            false => format!("FROM {} ", super::target::dotted(self.table)),
        };
        let with = self.with.map_or(String::new(), |with| format!("{with} "));
        let top = self.top.map_or(String::new(), |top| format!("{top} "));
        let mut items = vec![format!(
            "{}.[{ROW_NUMBER}]",
            super::target::bracketed(called)
        )];
        items.extend(self.values.iter().cloned());
        format!("{with}SELECT {top}{} {from}{rest}", items.join(", "))
    }

    /// The plan, and the table whose rows it names.
    pub(super) fn plan(
        &self,
        session: &Session,
        line: u32,
    ) -> Result<(QueryPlan, ChangedTable), Message> {
        let last = self.table.last().cloned().unwrap_or_default();
        let read = |text: String| {
            let query = Fragment::at_line(text, line);
            let tree = query::read(&session.query_context(), &query)?;
            Ok::<_, Message>((query, tree))
        };
        let (mut query, tree) = read(self.text(&last))?;
        let (called, base) = super::target::base(&tree, self.table);
        if called != last {
            query = read(self.text(&called))?.0;
        }
        let target = find(session, &base)?;
        let mut context = session.query_context();
        context.tracks_rows = true;
        let plan = query::prepare(&context, &query);
        let plan = plan.map_err(|refused| match refused.text.contains(ROW_NUMBER) {
            true => {
                message::NOT_HERE.with(&[&"a change of rows through this common table expression"])
            }
            false => refused,
        })?;
        Ok((plan, target))
    }
}

/// The value of a SET clause as an expression of the query.
pub(super) fn value_of(set: &SetClause) -> String {
    let value = set.value.as_ref().map_or("NULL", |v| v.text.as_str());
    match set.operator.as_str() {
        "" => value.to_owned(),
        operator => {
            let column = super::target::bracketed(&set.column);
            format!("{column} {operator} ( {value} )")
        }
    }
}

fn update_rows(session: &mut Session, update: &Update, out: &mut Out) -> Flow {
    let rows = RowQuery {
        with: update.with.as_ref(),
        top: update.top.as_ref(),
        table: &update.table,
        values: update.sets.iter().map(value_of).collect(),
        rest: update.rest.as_ref(),
    };
    let (_, target) = rows.plan(session, out.line)?;
    let mut places: Vec<Option<usize>> = Vec::new();
    for set in &update.sets {
        if set.column.is_empty() {
            places.push(None);
            continue;
        }
        let place = target.shape.place(&set.column);
        let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&set.column]))?;
        check_not_computed(&target, place)?;
        if target.shape.columns[place].identity.is_some() {
            return Err(message::IDENTITY_UPDATE.with(&[&set.column]).into());
        }
        if places.contains(&Some(place)) {
            return Err(message::COLUMN_TWICE.with(&[&set.column]).into());
        }
        places.push(Some(place));
    }
    let line = out.line;
    let output = || RowOutput::of(update.output.as_ref(), Command::Update, line);
    check_output(session, &target, output())?;
    let mut count = 0;
    let mut last: Vec<(usize, Value, Type)> = Vec::new();
    let done = change(session, &target, "UPDATE", |session, current| {
        // Again for each try: the rows are others then.
        let (plan, _) = rows.plan(session, line)?;
        let found = selected(session, &plan).map_err(Stop::message)?;
        count = found.len() as u64;
        let mut change = Change::default();
        last.clear();
        for (number, values) in found {
            let Some(mut row) = current.row(session, number) else {
                continue;
            };
            for (i, value) in values.into_iter().enumerate() {
                let (set, kind) = (&update.sets[i], plan.columns[i + 1].kind);
                if let Some(place) = places[i] {
                    let column = &target.shape.columns[place];
                    row[place] = match &set.value {
                        Some(_) => fitted(&value, kind, column, &target)?,
                        None => default(session, column, &target)?,
                    };
                }
                if set.variable.is_some() {
                    last.retain(|(known, ..)| *known != i);
                    let value = places[i].map_or(value, |place| row[place].clone());
                    let kind = places[i].map_or(kind, |p| target.shape.columns[p].kind);
                    last.push((i, value, kind));
                }
            }
            check_null(&target, &row, "UPDATE")?;
            change.put.push((number, row));
        }
        Ok(MadeChange {
            change,
            identity: current.last(session).1,
            output: output(),
        })
    })?;
    for (i, value, from) in last {
        if let Some(variable) = &update.sets[i].variable {
            let kind = session.variable(variable)?.kind;
            let value = session.converted(&value, from, kind)?;
            session.set_variable(variable, value)?;
        }
    }
    finish(session, &target, done, (Command::Update, count), out)
}

fn delete_rows(session: &mut Session, delete: &Delete, out: &mut Out) -> Flow {
    let rows = RowQuery {
        with: delete.with.as_ref(),
        top: delete.top.as_ref(),
        table: &delete.table,
        values: Vec::new(),
        rest: delete.rest.as_ref(),
    };
    let (_, target) = rows.plan(session, out.line)?;
    let line = out.line;
    let output = || RowOutput::of(delete.output.as_ref(), Command::Delete, line);
    check_output(session, &target, output())?;
    let mut count = 0;
    let done = change(session, &target, "DELETE", |session, current| {
        let (plan, _) = rows.plan(session, line)?;
        let found = selected(session, &plan).map_err(Stop::message)?;
        count = found.len() as u64;
        let change = Change {
            removed: found.into_iter().map(|(number, _)| number).collect(),
            put: Vec::new(),
        };
        Ok(MadeChange {
            change,
            identity: current.last(session).1,
            output: output(),
        })
    })?;
    finish(session, &target, done, (Command::Delete, count), out)
}

pub(crate) fn truncate(session: &mut Session, name: &[String], out: &mut Out) -> Flow {
    begun_again(session, out, |session, out| {
        truncate_rows(session, name, out)
    })
}

/// Errors: 4701, 4712.
fn truncate_rows(session: &mut Session, name: &[String], out: &mut Out) -> Flow {
    let unknown = || message::TRUNCATE_UNKNOWN.with(&[&name.join(".")]);
    let target = find(session, name).map_err(|_| unknown())?;
    if let Some(object) = &target.object
        && foreign::is_referenced(&session.server, object)
    {
        return Err(message::TRUNCATE_REFERENCED.with(&[&name.join(".")]).into());
    }
    change(session, &target, "TRUNCATE", |session, current| {
        let rows = current.of(session).into_iter().flat_map(TableRows::iter);
        let removed = rows.map(|(number, _)| number).collect();
        let put = Vec::new();
        // The next row is numbered as the first one.
        let identity = target.shape.identity();
        Ok(MadeChange {
            change: Change { removed, put },
            identity: identity.map(|(_, seed, step)| seed.wrapping_sub(step)),
            ..MadeChange::default()
        })
    })?;
    Ok(out.done(Command::Other, None)?)
}

/// The rows of OUTPUT, the count, and the end of the statement. The change is made: a client that leaves while it reads the
/// rows leaves them changed.
pub(super) fn finish(
    session: &mut Session,
    target: &ChangedTable,
    done: Done,
    (command, mut count): (Command, u64),
    out: &mut Out,
) -> Flow {
    let Done {
        told,
        before,
        new,
        version,
    } = done;
    if let Some(told) = told {
        match told.into {
            Some((other, rows)) => {
                if let Err(refused) = quietly_insert(session, &other, rows, out) {
                    return Err(taken_back(
                        session,
                        target,
                        (before, &new, version),
                        refused,
                    ));
                }
            }
            None => {
                out.sink.columns(&told.columns)?;
                for row in &told.rows {
                    if session.is_cancelled() {
                        return Err(message::ABORTED.plain().into());
                    }
                    out.sink.row(row)?;
                }
                count = told.rows.len() as u64;
            }
        }
    }
    session.row_count = count;
    Ok(out.done(command, Some(count))?)
}

/// Takes a change back, because a table refused the rows of its OUTPUT, and adds why where that cannot be done.
fn taken_back(
    session: &mut Session,
    target: &ChangedTable,
    (before, new, version): (Vec<RowBefore>, &[i64], Option<i64>),
    refused: Stop,
) -> Stop {
    let why = match session.put_back(target.id, before, version) {
        Ok(true) => {
            session.forget_rows(target.id, new);
            return refused;
        }
        Ok(false) => {
            let text = format!(
                "another session has changed {} since: the rows of this statement stay changed",
                target.full
            );
            message::OWN.with(&[&text])
        }
        Err(failed) => failed,
    };
    match refused {
        // Behind it no message says that the statement has been terminated, as if nothing had changed.
        Stop::Failed(mut messages) => {
            messages.push(why);
            Stop::Failed(messages)
        }
        other => other,
    }
}

/// The table of OUTPUT INTO, and the places of its columns; `None`: the rows go to the client.
fn output_into(
    session: &Session,
    clause: &OutputClause,
    plan: &QueryPlan,
) -> Result<Option<(ChangedTable, Vec<usize>)>, Message> {
    let Some((into, columns)) = &clause.into else {
        return Ok(None);
    };
    let other = find(session, into)?;
    let places = places(session, &other, columns)?;
    match places.len() == plan.columns.len() {
        true => Ok(Some((other, places))),
        false => Err(message::VALUES_NOT_COLUMNS.plain()),
    }
}

/// Looks whether OUTPUT can be asked, and whether its table takes its columns, before a row is changed.
///
/// Errors: 207, 208, 213 and others of queries.
pub(super) fn check_output(
    session: &Session,
    target: &ChangedTable,
    output: Option<RowOutput>,
) -> Result<(), Message> {
    let Some(output) = output else {
        return Ok(());
    };
    let clause = output.clause;
    let (made, query) = asked(Changed::default(), target, output)?;
    let mut context = session.query_context();
    context.made = &made;
    let plan = query::prepare(&context, &query)?;
    output_into(session, clause, &plan).map(drop)
}

/// The rows of OUTPUT for a change: its rows as they were, and with their new values. Errors: those of the query; too many bytes.
fn told(
    session: &Session,
    target: &ChangedTable,
    output: Option<RowOutput>,
    (before, put): (&[RowBefore], &[(i64, TableRow)]),
) -> Result<Option<Told>, Message> {
    let Some(output) = output else {
        return Ok(None);
    };
    let clause = output.clause;
    let rows = before.iter().filter_map(|(_, row)| row.as_ref());
    let rows = rows.chain(put.iter().map(|(_, row)| row));
    let changed_bytes = rows.map(row_bytes).sum();
    let mut claim = session.server.setup.memory.claim(changed_bytes)?;
    let deleted = before.iter().cloned();
    let changed = Changed {
        deleted: deleted
            .filter_map(|(number, row)| Some((number, row?)))
            .collect(),
        inserted: put.to_vec(),
    };
    let (made, query) = asked(changed, target, output)?;
    let mut context = session.query_context();
    context.made = &made;
    let plan = query::prepare(&context, &query)?;
    let into = output_into(session, clause, &plan)?;
    let sqlite = context.sqlite(&plan)?;
    let mut rows = Vec::new();
    let Some((other, places)) = into else {
        let mut sum = Sum::default();
        let ran = sqlite.run(&plan, &mut |row| {
            sum.add_bytes(row_bytes(&row))?;
            claim.resize(changed_bytes + sum.bytes())?;
            rows.push(row);
            Ok(())
        });
        ran.map_err(Stop::message)?;
        return Ok(Some(Told {
            columns: plan.columns,
            rows,
            into: None,
            _claim: claim,
        }));
    };
    let mut collected = Collected {
        target: &other,
        places: &places,
        rows: Vec::new(),
        sum: Sum::default(),
    };
    let ran = sqlite.run(&plan, &mut |row| {
        let kinds = plan.columns.iter().map(|c| c.kind);
        collected.add(row.into_iter().zip(kinds).collect())?;
        Ok(claim.resize(changed_bytes + collected.sum.bytes())?)
    });
    ran.map_err(Stop::message)?;
    let given = collected.rows;
    Ok(Some(Told {
        columns: plan.columns,
        rows,
        into: Some((other, given)),
        _claim: claim,
    }))
}

/// Puts rows into the table of OUTPUT INTO.
fn quietly_insert(
    session: &mut Session,
    target: &ChangedTable,
    rows: Vec<GivenRow>,
    out: &mut Out,
) -> Flow {
    let mut quiet = Quiet;
    let mut inner = Out {
        sink: &mut quiet,
        line: out.line,
        nocount: true,
        outcome: out.outcome,
        last_error: out.last_error,
        returned: None,
        procedure: out.procedure.clone(),
        notices: out.notices.clone(),
    };
    finish_insert(session, target, rows, None, &mut inner)
}

/// Takes what a part of a statement says about its end.
pub(super) struct Quiet;

impl Sink for Quiet {
    fn columns(&mut self, _: &[Column]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn row(&mut self, _: &[Value]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn message(&mut self, _: &Message) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn done(&mut self, _: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

/// Puts the rows of a SELECT into a table that was just made of its columns.
pub(super) fn fill(
    session: &mut Session,
    (name, made): (&[String], TableId),
    plan: &QueryPlan,
    out: &mut Out,
) -> Flow {
    let target = find(session, name)?;
    // Another session may have put another table in its place.
    if target.id != made {
        return Err(message::object_unknown(&name.join(".")).into());
    }
    // A column that numbers rows gets its values here.
    let identity = target.shape.identity().map(|(place, ..)| place);
    let all = 0..target.shape.columns.len();
    let places: Vec<usize> = all.filter(|i| Some(*i) != identity).collect();
    let mut collected = Collected {
        target: &target,
        places: &places,
        rows: Vec::new(),
        sum: Sum::default(),
    };
    run(session, plan, |row| {
        let kinds = plan.columns.iter().map(|c| c.kind);
        collected.add(row.into_iter().zip(kinds).collect())
    })?;
    let rows = collected.rows;
    finish_insert(session, &target, rows, None, out)
}
