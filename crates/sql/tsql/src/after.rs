//! The state that a statement leaves which has succeeded: `@@ERROR` and `@@ROWCOUNT`.
//!
//! Invariants
//! - A statement of rows, a FETCH and a RAISERROR have set their own; a call keeps that of its last statement inside.
//!
//! Leaves to others: the state after a failure, and a branch that runs (`run`).

use crate::syntax::Statement;

/// Statements that leave `@@ERROR` unchanged: IF, loops, blocks and calls keep the value of the last statement inside,
/// and a declaration without a value does nothing.
pub fn keeps_error(statement: &Statement) -> bool {
    match statement {
        Statement::If { .. }
        | Statement::While { .. }
        | Statement::Block(_)
        | Statement::Try { .. }
        | Statement::Execute(_)
        | Statement::ExecuteText(_)
        | Statement::Label(_)
        // It has set its own.
        | Statement::Raise(_) => true,
        Statement::Declare(all) => all.iter().all(|d| d.value.is_none()),
        Statement::DeclareTable { .. } => true,
        _ => false,
    }
}

/// The `@@ROWCOUNT` after a statement; `None` leaves it as it is.
pub fn rows(statement: &Statement) -> Option<u64> {
    match statement {
        Statement::Assign { .. } | Statement::DeclareCursor(_) => Some(1),
        Statement::Declare(all) => all.iter().any(|d| d.value.is_some()).then_some(1),
        Statement::If { .. }
        | Statement::While { .. }
        | Statement::Block(_)
        | Statement::Try { .. }
        | Statement::Execute(_)
        | Statement::ExecuteText(_)
        | Statement::Label(_)
        | Statement::DeclareTable { .. }
        | Statement::Query(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_)
        | Statement::OpenCursor(_)
        | Statement::Fetch(_) => None,
        _ => Some(0),
    }
}
