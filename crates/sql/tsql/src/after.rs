//! The state that a statement leaves: `@@ERROR` and `@@ROWCOUNT` of one that has succeeded, and what the error of one that failed ends.
//!
//! Invariants
//! - A statement of rows, a FETCH and a RAISERROR have set their own; a call keeps that of its last statement inside.
//!
//! - The number of an error alone says what it ends, as SQL Server has it.
//!
//! Leaves to others: ending it, and a branch that runs (`run`).

use crate::message::Message;
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

/// Whether a statement writes to a log: all that change something but rows of table variables.
pub fn is_logged(statement: &Statement) -> bool {
    let is_kept = |table: &[String]| !matches!(table, [name] if name.starts_with('@'));
    match statement {
        Statement::DeclareTable { .. } | Statement::IdentityInsert { .. } => false,
        Statement::Insert(insert) => is_kept(&insert.table),
        Statement::Update(update) => is_kept(&update.table),
        Statement::Delete(delete) => is_kept(&delete.table),
        Statement::Merge(merge) => is_kept(&merge.table),
        _ => true,
    }
}

/// Mistakes of grammar, of names and of types, found when a statement is compiled: SQL Server ends the batch that contains them.
pub fn ends_own_batch(message: &Message) -> bool {
    const TYPES_AND_NAMES: [u32; 23] = [
        116, 130, 205, 206, 207, 208, 209, 213, 264, 402, 447, 451, 457, 468, 529, 1013, 4104,
        4121, 8116, 8117, 8120, 8121, 8127,
    ];
    message.severity == 15 || TYPES_AND_NAMES.contains(&message.number)
}

/// Names that are not found: SQL Server finds them only when a statement runs, and no TRY block of its batch catches that.
pub fn is_unresolved(message: &Message) -> bool {
    matches!(message.number, 107 | 207..=209 | 4104 | 4121)
}

/// Failed conversions, and arguments for a procedure that has no parameters: SQL Server ends every batch.
pub fn ends_all_batches(message: &Message) -> bool {
    matches!(message.number, 241 | 244 | 245 | 248 | 8114 | 8146)
}
