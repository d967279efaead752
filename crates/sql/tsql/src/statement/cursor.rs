//! The statements of cursors: DECLARE, SET, OPEN, FETCH, CLOSE, DEALLOCATE.
//!
//! Invariants
//! - The variables of a cursor's query have the values that they had at the declaration, as in SQL Server.
//! - A FETCH that fails changes neither a variable nor the position.
//!
//! Leaves to others: names, positions and memory (`cursors.rs`), and the query (`query`).

use crate::convert::convert;
use crate::cursors::{Membership, NO_FETCH, Rows};
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{CursorName, CursorOption, CursorQuery, DeclaredCursor, Fetch, FetchRow};
use crate::syntax::{Fragment, Operand, single};
use crate::value::{Type, Value};

pub(crate) fn declare(session: &mut Session, declared: &DeclaredCursor) -> Flow {
    let id = made(session, &declared.cursor)?;
    let local = declared.cursor.options.contains(&CursorOption::Local);
    Ok(session.cursors.name(id, &declared.name, local)?)
}

/// `SET @c = CURSOR … FOR …`
pub(crate) fn set(session: &mut Session, variable: &str, cursor: &CursorQuery) -> Flow {
    let id = made(session, cursor)?;
    session.cursors.point(variable, id);
    Ok(())
}

/// `SET @c = @d` and `SET @c = name`
pub(crate) fn assign(session: &mut Session, variable: &str, value: &Fragment) -> Flow {
    let name = match single(&value.text) {
        Some(Operand::Variable(name)) => CursorName::Variable(name),
        _ => CursorName::Named {
            global: false,
            name: name_in(&value.text)?,
        },
    };
    let id = session.cursors.find(&name)?;
    session.cursors.point(variable, id);
    Ok(())
}

/// The name that is the whole of a text.
fn name_in(text: &str) -> Result<String, Message> {
    let mut lexer = crate::syntax::lexer::Lexer::new(text);
    let token = lexer.token()?;
    match lexer.token()?.kind {
        crate::syntax::lexer::TokenKind::End => Ok(token.value()),
        _ => Err(message::SYNTAX.with(&[&text])),
    }
}

fn made(session: &mut Session, cursor: &CursorQuery) -> Result<u32, Message> {
    use CursorOption::{Dynamic, FastForward, ForwardOnly, Insensitive, Keyset, Scroll, Static};
    let plan = query::prepare(&session.query_context(), &cursor.query)?;
    if !plan.assigns.is_empty() {
        let (what, place) = ("variable assignment", "a cursor declaration");
        return Err(message::NOT_ALLOWED_IN.with(&[&what, &place]));
    }
    let has = |option: CursorOption| cursor.options.contains(&option);
    let scrolls = match cursor.is_iso {
        true => has(Scroll),
        false => has(Scroll) || has(Static) || has(Keyset) || has(Dynamic),
    };
    let forward_only = !scrolls || has(ForwardOnly) || has(FastForward);
    let membership = match has(Dynamic) {
        true => Membership::Dynamic,
        false if has(Static) || has(Insensitive) || has(Keyset) => Membership::Fixed,
        false => Membership::Open,
    };
    let claim = session.server.setup.memory.claim(0)?;
    session
        .cursors
        .make(plan, (forward_only, membership), claim)
}

/// The most rows that a cursor takes under SET ROWCOUNT. Errors: 50002 where SQL Server's plan decides.
fn limit(session: &Session, membership: Membership) -> Result<u64, Message> {
    match (session.row_limit, membership) {
        (0, _) | (_, Membership::Dynamic) => Ok(u64::MAX),
        (limit, Membership::Fixed) => Ok(limit),
        (limit, Membership::Open) => {
            let what = format!(
                "a cursor that is neither STATIC, INSENSITIVE, KEYSET nor DYNAMIC, under SET ROWCOUNT {limit},"
            );
            Err(message::NOT_HERE.with(&[&what]))
        }
    }
}

/// Errors: 16905; those of the query, after which the cursor is closed.
pub(crate) fn open(session: &mut Session, name: &CursorName) -> Flow {
    let id = session.cursors.find(name)?;
    let Some(cursor) = session.cursors.get(id) else {
        return Ok(());
    };
    if cursor.rows.is_some() {
        return Err(message::CURSOR_OPEN.plain().into());
    }
    let membership = cursor.membership;
    let limit = limit(session, membership)?;
    let Some(cursor) = session.cursors.get(id) else {
        return Ok(());
    };
    let plan = std::mem::take(&mut cursor.plan);
    let database = session.database.clone();
    session.enter("OPEN CURSOR", &database);
    if !plan.is_alone() {
        session.begin_implicitly();
    }
    let mut rows = Vec::new();
    let opened = session.query_context().sqlite(&plan);
    let ran = match opened {
        Ok(sqlite) => {
            let ran = sqlite.run_first(limit, &plan, &mut |row| {
                session.cursors.grow(id, &row)?;
                rows.push(row);
                Ok(())
            });
            session.query_context().give_back(sqlite, &plan);
            ran.map(drop)
        }
        Err(refused) if refused.number == message::DEFINITION_CHANGED.number => {
            Err(message::CURSOR_SCHEMA.plain().into())
        }
        Err(refused) => Err(refused.into()),
    };
    session.leave();
    if let Some(cursor) = session.cursors.get(id) {
        cursor.plan = plan;
    }
    match ran {
        Ok(()) => session.cursors.open(id, rows),
        Err(_) => session.cursors.close(id),
    }
    ran
}

/// Errors: 16917.
pub(crate) fn close(session: &mut Session, name: &CursorName) -> Flow {
    let id = session.cursors.find(name)?;
    let is_open = session.cursors.get(id).is_some_and(|c| c.rows.is_some());
    if !is_open {
        return Err(message::CURSOR_CLOSED.plain().into());
    }
    session.cursors.close(id);
    Ok(())
}

pub(crate) fn deallocate(session: &mut Session, name: &CursorName) -> Flow {
    session.cursors.find(name)?;
    session.cursors.release(name);
    Ok(())
}

/// Errors: 16911, 16917, 16924, 16925, and those of conversions to the variables' types.
pub(crate) fn fetch(session: &mut Session, fetch: &Fetch, out: &mut Out) -> Flow {
    let id = session.cursors.find(&fetch.cursor)?;
    let offset = match &fetch.which {
        FetchRow::Absolute(row) | FetchRow::Relative(row) => {
            match convert(&session.value_of(row)?, Type::Int)? {
                Value::Int(n) => n,
                _ => 0,
            }
        }
        _ => 0,
    };
    let Some(cursor) = session.cursors.get(id) else {
        return Ok(());
    };
    let columns = cursor.plan.columns.clone();
    let forbidden = forbidden(
        &fetch.which,
        cursor.forward_only,
        cursor.membership == Membership::Dynamic,
    );
    let Some(rows) = &cursor.rows else {
        let mut closed = message::CURSOR_CLOSED.plain();
        closed.state = 2;
        return Err(closed.into());
    };
    if let Some(forbidden) = forbidden {
        return Err(forbidden.into());
    }
    if !fetch.into.is_empty() && fetch.into.len() != columns.len() {
        return Err(message::CURSOR_INTO.plain().into());
    }
    let at = place(rows, &fetch.which, offset);
    let row = at.checked_sub(1).and_then(|i| rows.all.get(i)).cloned();
    if fetch.into.is_empty() {
        out.sink.columns(&columns)?;
        if let Some(row) = &row {
            out.sink.row(row)?;
        }
        out.done(Command::Select, Some(row.is_some().into()))?;
    } else if let Some(row) = &row {
        let mut values = Vec::with_capacity(row.len());
        for ((name, column), value) in fetch.into.iter().zip(&columns).zip(row) {
            let kind = session.variable(name)?.kind;
            values.push(session.converted(value, column.kind, kind)?);
        }
        for (name, value) in fetch.into.iter().zip(values) {
            session.set_variable(name, value)?;
        }
    }
    if let Some(rows) = session.cursors.get(id).and_then(|c| c.rows.as_mut()) {
        rows.at = at;
    }
    session.cursors.fetch_status = if row.is_some() { 0 } else { NO_FETCH };
    session.row_count = row.is_some().into();
    Ok(())
}

/// The refusal of a row that such a cursor cannot fetch.
fn forbidden(which: &FetchRow, forward_only: bool, dynamic: bool) -> Option<Message> {
    let word = match which {
        FetchRow::Next => return None,
        FetchRow::Absolute(_) if dynamic => {
            return Some(message::CURSOR_DYNAMIC.with(&[&"Absolute"]));
        }
        FetchRow::Prior => "prior",
        FetchRow::First => "first",
        FetchRow::Last => "last",
        FetchRow::Absolute(_) => "absolute",
        FetchRow::Relative(_) => "relative",
    };
    forward_only.then(|| message::CURSOR_FORWARD_ONLY.with(&[&word]))
}

/// The position after a FETCH: 0 is before the first row, one more than there are is after the last.
fn place(rows: &Rows, which: &FetchRow, offset: i64) -> usize {
    let count = i64::try_from(rows.all.len()).unwrap_or(i64::MAX - 1);
    let at = i64::try_from(rows.at).unwrap_or(i64::MAX);
    let to = match which {
        FetchRow::Next => at.saturating_add(1),
        FetchRow::Prior => at - 1,
        FetchRow::First => 1,
        FetchRow::Last => count,
        FetchRow::Absolute(_) if offset < 0 => count.saturating_add(1).saturating_add(offset),
        FetchRow::Absolute(_) => offset,
        FetchRow::Relative(_) => at.saturating_add(offset),
    };
    to.clamp(0, count + 1).unsigned_abs() as usize
}
