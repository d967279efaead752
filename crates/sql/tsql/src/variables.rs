//! A batch's variables, and the bound on their memory.
//!
//! Invariants
//! - The total of a session's values is bounded ([`VALUES_MAX`]), including nested batches and the values passed to
//!   them: no login can take the memory that other sessions' backups need.
//! - Names are compared without case.
//! - A value that does not fit changes nothing: the variable keeps its old value.
//!
//! Leaves to others: types and conversion (`convert.rs`), and the bound over all sessions (`memory.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::flow::Variable;
use crate::memory::Claim;
use crate::message::{self, Message};
use crate::value::Value;

/// The longest text, in bytes of UTF-8, or binary. The longest parameter of a request fits in it.
pub const VALUE_MAX: usize = 8 << 20;
/// The most bytes of all values of a session's variables together, of a row, of a function's arguments, of a query's
/// parameters.
pub const VALUES_MAX: usize = 32 << 20;

/// The memory of a value in addition to a few words.
pub fn bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Binary(bytes) => bytes.len(),
        Value::Null
        | Value::Int(_)
        | Value::Decimal(_)
        | Value::Float(_)
        | Value::DateTime(_)
        | Value::Temporal(_)
        | Value::Guid(_) => 0,
    }
}

/// A variable's name as it is known by. Most are written so.
pub fn lower_case(name: &str) -> Cow<'_, str> {
    let is_lower = |b: u8| b.is_ascii() && !b.is_ascii_uppercase();
    match name.bytes().all(is_lower) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.to_lowercase()),
    }
}

/// The message for values beyond the bounds.
pub fn too_much() -> Message {
    let (one, all) = (VALUE_MAX >> 20, VALUES_MAX >> 20);
    message::OWN.with(&[&format!(
        "a value of more than {one} MiB, or values of more than {all} MiB together: more than a session can hold"
    )])
}

/// Adds up the memory of values. Errors: too much.
#[derive(Debug, Default)]
pub struct Sum(usize);

impl Sum {
    pub fn add(&mut self, value: &Value) -> Result<(), Message> {
        self.add_bytes(bytes(value))
    }

    pub fn add_bytes(&mut self, bytes: usize) -> Result<(), Message> {
        self.0 = self.0.saturating_add(bytes);
        match self.0 > VALUES_MAX {
            true => Err(too_much()),
            false => Ok(()),
        }
    }

    pub fn bytes(&self) -> usize {
        self.0
    }
}

/// By their names in lower case.
#[derive(Debug, Default)]
pub struct Variables {
    all: BTreeMap<String, Variable>,
    /// Bytes of these variables.
    own: usize,
    /// Bytes of the variables of the outer batches.
    outside: usize,
    /// Bytes passed to the running procedure.
    lent: usize,
    /// The claim for `own` and `lent`.
    claim: Claim,
}

impl Variables {
    /// `claim`: a claim on the memory of all sessions. Errors: the variables are too large together with `outside`;
    /// 701.
    pub fn new(
        all: BTreeMap<String, Variable>,
        outside: usize,
        mut claim: Claim,
    ) -> Result<Variables, Message> {
        let mut sum = Sum::default();
        all.values().try_for_each(|v| sum.add(&v.value))?;
        let own = sum.bytes();
        sum.add_bytes(outside)?;
        claim.resize(own)?;
        Ok(Variables {
            all,
            own,
            outside,
            lent: 0,
            claim,
        })
    }

    /// Bytes of these variables and of everything around them.
    pub fn bytes(&self) -> usize {
        self.own + self.lent + self.outside
    }

    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.all.get(lower_case(name).as_ref())
    }

    /// Errors: 137 for one that was not declared.
    pub fn declared(&self, name: &str) -> Result<&Variable, Message> {
        let found = self.get(name);
        found.ok_or_else(|| message::NOT_DECLARED.with(&[&name]))
    }

    pub fn names(&self) -> impl Iterator<Item = String> {
        self.all.keys().cloned()
    }

    pub fn declare(&mut self, name: &str, variable: Variable) -> Result<(), Message> {
        let name = name.to_lowercase();
        let before = self.all.get(&name).map_or(0, |v| bytes(&v.value));
        self.exchange(before, bytes(&variable.value))?;
        self.all.insert(name, variable);
        Ok(())
    }

    /// Sets a declared variable; undeclared ones were refused before.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), Message> {
        let name = lower_case(name);
        let Some(before) = self.all.get(name.as_ref()).map(|v| bytes(&v.value)) else {
            return Ok(());
        };
        self.exchange(before, bytes(&value))?;
        if let Some(variable) = self.all.get_mut(name.as_ref()) {
            variable.value = value;
        }
        Ok(())
    }

    fn exchange(&mut self, before: usize, after: usize) -> Result<(), Message> {
        let own = self.own - before + after;
        if own + self.lent + self.outside > VALUES_MAX || after > VALUE_MAX {
            return Err(too_much());
        }
        self.claim.resize(own + self.lent)?;
        self.own = own;
        Ok(())
    }

    /// Counts bytes passed to a procedure while it runs.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Message> {
        self.claim.resize(self.own + self.lent + bytes)?;
        self.lent += bytes;
        Ok(())
    }

    /// The opposite of [`Variables::reserve`].
    pub fn give_back(&mut self, bytes: usize) {
        self.lent -= bytes;
        // Shrinking always succeeds.
        let _fits = self.claim.resize(self.own + self.lent);
    }

    pub fn into_all(self) -> (BTreeMap<String, Variable>, Claim) {
        (self.all, self.claim)
    }
}
