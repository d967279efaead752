//! Application locks as scripts name them: APPLOCK_MODE and APPLOCK_TEST, and the arguments that procedures share with them.
//!
//! Invariants
//! - A name means the same lock to functions and procedures: it is read here alone.
//!
//! Leaves to others: who holds and who waits (`server/locks.rs`), and the procedures (`statement/applock.rs`).

use super::lookup::is_principal;
use super::state::Translator;
use crate::message::{self, Message};
use crate::server::{LockModes, LockName, LockOwner};
use crate::value::{Type, Value};

/// The most characters of a resource's name, of a mode and an owner, and of a user's name.
const RESOURCE_MAX: usize = 255;
const WORD_MAX: usize = 32;
const PRINCIPAL_MAX: usize = 128;

fn cut(value: &Value, most: usize) -> String {
    value.to_string().chars().take(most).collect()
}

/// A word of an option, without the blanks at its end; `None`: NULL.
pub(crate) fn lock_word(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| cut(value, WORD_MAX).trim_end_matches(' ').to_owned())
}

/// Whether it is the transaction that owns a lock; `None`: neither owner.
pub(crate) fn is_of_transaction(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "transaction" => Some(true),
        "session" => Some(false),
        _ => None,
    }
}

/// The user or role of a lock, as it was written.
pub(crate) fn lock_principal(given: Option<&Value>) -> String {
    given.map_or("public".to_owned(), |name| cut(name, PRINCIPAL_MAX))
}

/// The lock that is meant. `by`: who asks, as messages name it. Errors: 1202, 1224, 1230.
pub(crate) fn lock_name(
    by: &str,
    database: &str,
    resource: Option<&Value>,
    principal: Option<&Value>,
) -> Result<LockName, Message> {
    let resource = resource.filter(|r| !r.is_null());
    let resource = resource.ok_or_else(|| message::LOCK_RESOURCE.with(&[&by]))?;
    if principal.is_some_and(Value::is_null) {
        return Err(message::LOCK_PRINCIPAL.with(&[&by]));
    }
    let principal = lock_principal(principal);
    if !is_principal(&principal) {
        return Err(message::PRINCIPAL_UNKNOWN.with(&[&principal]));
    }
    Ok(LockName {
        database: database.to_lowercase(),
        principal: principal.to_lowercase(),
        resource: cut(resource, RESOURCE_MAX),
    })
}

impl Translator<'_> {
    /// APPLOCK_MODE and APPLOCK_TEST. Errors: 174, 1202, 1224, 1225, 1226, 1230, 3918.
    pub(super) fn of_lock(
        &self,
        name: &str,
        arguments: &[Value],
    ) -> Result<Option<(Type, Value)>, Message> {
        let by = name.to_lowercase();
        let (principal, resource, mode, owner) = match (name, arguments) {
            ("APPLOCK_MODE", [principal, resource, owner]) => (principal, resource, None, owner),
            ("APPLOCK_TEST", [principal, resource, mode, owner]) => {
                (principal, resource, Some(mode), owner)
            }
            ("APPLOCK_MODE", _) => return Err(message::ARGUMENT_COUNT.with(&[&by, &3])),
            ("APPLOCK_TEST", _) => return Err(message::ARGUMENT_COUNT.with(&[&by, &4])),
            _ => return Ok(None),
        };
        let context = &self.context;
        let lock = lock_name(&by, context.database, Some(resource), Some(principal))?;
        let is_transaction = lock_word(owner).map_or(Some(true), |word| is_of_transaction(&word));
        let is_transaction = is_transaction.ok_or_else(|| message::LOCK_OWNER.with(&[&by]))?;
        let modes = match mode {
            None => None,
            Some(mode) => {
                let known = lock_word(mode).and_then(|word| LockModes::named(&word));
                Some(known.ok_or_else(|| message::LOCK_MODE.with(&[&by]))?)
            }
        };
        if is_transaction && context.transactions == 0 {
            let mut outside = message::LOCK_OUTSIDE_TRANSACTION.plain();
            outside.state = 2;
            return Err(outside);
        }
        let owner = LockOwner {
            session: context.key,
            number: context.id,
            is_transaction,
        };
        let locks = &context.server.locks;
        Ok(Some(match modes {
            Some(modes) => {
                let is_free = locks.is_free(&lock, owner, modes);
                (Type::SmallInt, Value::Int(is_free.into()))
            }
            None => {
                let held = locks.held(&lock, owner);
                let shown = held.map_or("NoLock", LockModes::name);
                (Type::nvarchar(32), Value::text(shown))
            }
        }))
    }
}
