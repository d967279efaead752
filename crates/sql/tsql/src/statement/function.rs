//! Functions and views that scripts create: what may be in one, and running functions.
//!
//! A function runs in a session of its own: it sees neither the variables nor the temporary tables of its caller, and can
//! change nothing but its own variables.
//!
//! Invariants
//! - A function has no effect outside of itself (443, 444, 557), and ends with RETURN (455).
//! - It has the rights of its caller, its cancel flag, and its depth: 32 levels in all (217).
//! - Its memory is claimed from the server's, and its rows are bounded.
//!
//! Leaves to others: calls in queries (`query/translate/own.rs`), and keeping objects (`statement/routine.rs`).

use std::collections::BTreeMap;

use crate::flow::{Out, Outcome, Stop, Variable};
use crate::kinds::TypePlace;
use crate::message::{self, Message};
use crate::query::{self, FunctionCall, NESTING_MAX, packed_rows, stored, typed_value};
use crate::session::Session;
use crate::syntax::{
    CursorOption, Fragment, InsertSource, LocatedStatement, Routine, RoutineKind, Statement, tokens,
};
use crate::tables::TableRow;
use crate::value::{Column, Value};
use crate::variables::{Sum, bytes};

use super::change::Quiet;
use super::{type_of, type_of_parameter};

/// The value that a function returns.
const RETURNED: TypePlace = TypePlace::Variable("", 0);

/// Checks what a function or a view says. Errors: 443, 444, 455, 557; names of a view that are not there, 1033, 4506, 4508, 4511.
pub(super) fn check(session: &Session, routine: &Routine) -> Result<(), Message> {
    match &routine.kind {
        RoutineKind::Procedure => Ok(()),
        RoutineKind::View { columns, query } => {
            let tree = query::read(&session.query_context(), query)?;
            query::check_order(&tree)?;
            let plan = query::plan_of(&session.query_context(), &tree)?;
            check_tables(query, routine)?;
            if !plan.assigns.is_empty() {
                return Err(message::ASSIGNS_AND_ROWS.plain());
            }
            check_columns(&plan.columns, columns, routine)
        }
        RoutineKind::Inline(query) => {
            let mut variables = crate::variables::Variables::default();
            for (i, parameter) in routine.parameters.iter().enumerate() {
                let kind = type_of_parameter(i, parameter)?;
                let value = Value::Null;
                variables.declare(&parameter.name, Variable { kind, value })?;
            }
            let mut context = session.query_context();
            context.variables = &variables;
            let tree = query::read(&context, query)?;
            query::check_order(&tree)?;
            let plan = query::plan_of(&context, &tree)?;
            check_tables(query, routine)?;
            check_columns(&plan.columns, &[], routine)
        }
        RoutineKind::Scalar { returns, .. } => {
            type_of(returns, RETURNED)?;
            body(&routine.body)
        }
        RoutineKind::Rows { .. } => body(&routine.body),
    }
}

/// Errors: 4429 for a view that names itself, 4508 for temporary tables.
fn check_tables(query: &Fragment, routine: &Routine) -> Result<(), Message> {
    let own = routine.name.last().map_or("", String::as_str);
    let all = tokens(&query.text)?;
    let name = |i: usize| {
        let raw = all.get(i)?.raw.trim_start_matches(['[', '"']);
        Some(raw.trim_end_matches([']', '"']))
    };
    // A common table expression may have the view's name.
    let is_common = (0..all.len()).any(|i| {
        let is_named = name(i).is_some_and(|n| n.eq_ignore_ascii_case(own));
        let is_after = name(i + 1).is_some_and(|n| n.eq_ignore_ascii_case("AS"));
        is_named && is_after && name(i + 2) == Some("(")
    });
    for (i, token) in all.iter().enumerate() {
        if name(i).is_some_and(|name| name.starts_with('#')) {
            return Err(message::VIEW_TEMPORARY.plain());
        }
        let is = |word: &str| token.is_word && token.raw.eq_ignore_ascii_case(word);
        if !is("FROM") && !is("JOIN") {
            continue;
        }
        // Another schema or another database has other objects.
        let mut last = i + 1;
        let mut is_here = true;
        while all.get(last + 1).is_some_and(|next| next.raw == ".") {
            is_here = last == i + 1 && name(last).is_some_and(|n| n.eq_ignore_ascii_case("dbo"));
            last += 2;
        }
        if is_here && !is_common && name(last).is_some_and(|n| n.eq_ignore_ascii_case(own)) {
            return Err(message::VIEW_OF_ITSELF.with(&[&own]));
        }
    }
    Ok(())
}

/// Errors: 4502, 4506, 4511, 8158.
fn check_columns(all: &[Column], named: &[String], routine: &Routine) -> Result<(), Message> {
    let name = routine.name.last().map_or("", String::as_str);
    if !named.is_empty() && named.len() < all.len() {
        return Err(message::VIEW_COLUMNS_FEWER.with(&[&name]));
    }
    if named.len() > all.len() {
        return Err(message::VIEW_COLUMNS_MORE.with(&[&name]));
    }
    let mut known = std::collections::BTreeSet::new();
    for (i, column) in all.iter().enumerate() {
        let own = named.get(i).unwrap_or(&column.name);
        if own.is_empty() {
            return Err(message::VIEW_COLUMN_NAMELESS.with(&[&(i + 1)]));
        }
        if !known.insert(own.to_lowercase()) {
            return Err(message::VIEW_COLUMN_TWICE.with(&[own, &name]));
        }
    }
    Ok(())
}

/// Errors: 443, 444, 455, 557.
fn body(all: &[LocatedStatement]) -> Result<(), Message> {
    harmless(all)?;
    let last = all.last().map(|s| &s.statement);
    match last {
        Some(Statement::Return | Statement::ReturnValue(_)) => Ok(()),
        _ => {
            let line = all.last().map_or(1, |s| s.line);
            Err(message::FUNCTION_END.plain().at_line(line))
        }
    }
}

fn harmless(all: &[LocatedStatement]) -> Result<(), Message> {
    all.iter().try_for_each(|s| {
        let checked = effects(&s.statement);
        checked.map_err(|refused| match refused.line {
            0 | 1 => refused.at_line(s.line),
            _ => refused,
        })
    })
}

/// Whether a table is one of the function's own.
fn is_own(table: &[String]) -> bool {
    matches!(table, [name] if name.starts_with('@'))
}

/// Refuses a statement with an effect outside of the function.
fn effects(statement: &Statement) -> Result<(), Message> {
    let side = |what: &str| Err(message::SIDE_EFFECT.with(&[&what]));
    match statement {
        Statement::Declare(_)
        | Statement::DeclareTable { .. }
        | Statement::Assign { .. }
        | Statement::Break
        | Statement::Continue
        | Statement::Return
        | Statement::ReturnValue(_)
        | Statement::Goto(_)
        | Statement::Label(_)
        | Statement::OpenCursor(_)
        | Statement::CloseCursor(_)
        | Statement::DeallocateCursor(_) => Ok(()),
        Statement::Query(query) if selects_into_variables(&query.text) => Ok(()),
        Statement::Query(_) => Err(message::FUNCTION_SELECT.plain()),
        Statement::If {
            then, otherwise, ..
        } => {
            harmless(std::slice::from_ref(then))?;
            otherwise
                .as_ref()
                .map_or(Ok(()), |o| harmless(std::slice::from_ref(o)))
        }
        Statement::While { body, .. } => harmless(std::slice::from_ref(body)),
        Statement::Block(all) => harmless(all),
        Statement::Insert(insert) => match (&insert.source, is_own(&insert.table)) {
            (InsertSource::Execute(_), _) => side("INSERT EXEC"),
            (_, true) if insert.output.is_none() => Ok(()),
            _ => side("INSERT"),
        },
        Statement::Update(update) => match is_own(&update.table) && update.output.is_none() {
            true => Ok(()),
            false => side("UPDATE"),
        },
        Statement::Delete(delete) => match is_own(&delete.table) && delete.output.is_none() {
            true => Ok(()),
            false => side("DELETE"),
        },
        Statement::DeclareCursor(declared) => {
            match declared.cursor.options.contains(&CursorOption::Global) {
                true => side("DECLARE CURSOR"),
                false => Ok(()),
            }
        }
        Statement::SetCursor { .. } => Ok(()),
        Statement::Fetch(fetch) => match fetch.into.is_empty() {
            true => side("FETCH"),
            false => Ok(()),
        },
        Statement::Execute(_) | Statement::ExecuteText(_) => Err(message::FUNCTION_EXECUTE.plain()),
        Statement::Print(_) => side("PRINT"),
        Statement::Raise(_) => side("RAISERROR"),
        Statement::Throw(_) => side("THROW"),
        Statement::Try { .. } => side("BEGIN TRY"),
        Statement::Wait { .. } => side("WAITFOR"),
        Statement::Transaction(_) | Statement::NamedTransaction(..) => side("BEGIN TRANSACTION"),
        other => {
            let text = other.to_string();
            let mut words = text.split_whitespace().map(str::to_ascii_uppercase);
            let first = words.next().unwrap_or_default();
            side(&first)
        }
    }
}

/// Whether a SELECT sets variables: then it gives no rows.
fn selects_into_variables(text: &str) -> bool {
    let Ok(tokens) = crate::syntax::tokens(text) else {
        return false;
    };
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate() {
        match token.raw.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "=" | "+=" | "-=" | "*=" | "/=" | "%=" if depth == 0 => {
                return i > 0 && tokens[i - 1].raw.starts_with('@');
            }
            _ => {}
        }
    }
    false
}

/// Runs a function for a query. Errors: 217, and those of its statements.
pub(crate) fn run(call: &FunctionCall, values: &[Value]) -> Result<Value, Message> {
    if call.level >= NESTING_MAX {
        return Err(message::CALLS_TOO_DEEP.with(&[&NESTING_MAX]));
    }
    let routine = &call.routine;
    // The catalog may have what another program wrote.
    if !matches!(routine.kind, RoutineKind::Inline(_)) {
        body(&routine.body)?;
    }
    let mut variables = BTreeMap::new();
    let mut has_null = false;
    for (i, (parameter, value)) in routine.parameters.iter().zip(values).enumerate() {
        let kind = type_of_parameter(i, parameter)?;
        let value = typed_value(value.clone(), kind)?;
        has_null |= value.is_null();
        variables.insert(parameter.name.to_lowercase(), Variable { kind, value });
    }
    let mut session = Session::for_function(call);
    let mut silent = Quiet;
    let mut out = Out {
        sink: &mut silent,
        line: 1,
        nocount: true,
        outcome: Outcome::default(),
        last_error: 0,
        returned: None,
        procedure: None,
        notices: session.sqlite.notices().clone(),
    };
    let done = match &routine.kind {
        RoutineKind::Scalar { strict: true, .. } if has_null => return Ok(Value::Null),
        RoutineKind::Scalar { returns, .. } => {
            session.function = Some((type_of(returns, RETURNED)?, Value::Null));
            let ran = session.function_body(call, variables, &mut out, |_| Ok(()));
            ran.and_then(|()| {
                let value = session
                    .function
                    .take()
                    .map_or(Value::Null, |(_, value)| value);
                Ok(stored(value)?)
            })
        }
        RoutineKind::Rows { variable, .. } => {
            session.function_body(call, variables, &mut out, |session| {
                let table = session.tables.variable(variable);
                let table = table.and_then(|id| session.tables.get(id));
                let mut made = MadeValue::default();
                for (_, row) in table.iter().flat_map(|t| t.rows.iter()) {
                    made.add(row.clone())?;
                }
                Ok(packed_rows(made.rows))
            })
        }
        RoutineKind::Inline(query) => session.function_body(call, variables, &mut out, |session| {
            let context = session.query_context();
            let (plan, sqlite) = context.planned(|| query::prepare(&context, query))?;
            let mut made = MadeValue::default();
            sqlite.run(&plan, &mut |row| Ok(made.add(row)?))?;
            Ok(packed_rows(made.rows))
        }),
        _ => return Err(message::NO_TEXT.with(&[&call.object.object.name])),
    };
    done.map_err(Stop::message)
}

/// The rows of a function; their bytes are bounded.
#[derive(Default)]
struct MadeValue {
    rows: Vec<TableRow>,
    sum: Sum,
}

impl MadeValue {
    fn add(&mut self, row: TableRow) -> Result<(), Message> {
        let mut kept = Vec::with_capacity(row.len());
        for value in row {
            self.sum.add_bytes(bytes(&value) + size_of::<Value>())?;
            kept.push(stored(value)?);
        }
        self.rows.push(kept);
        Ok(())
    }
}
