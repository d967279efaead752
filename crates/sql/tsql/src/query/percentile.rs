//! PERCENTILE_CONT and PERCENTILE_DISC as window functions of SQLite.
//!
//! Invariants
//! - NULLs are left out; without values the result is NULL.
//! - The values that the percentiles of a query keep at one time have up to [`VALUES_MAX`] bytes together, which are claimed
//!   from the memory of all sessions before they are used; more are refused.
//! - The values of a partition are sorted once, however many rows it has.
//! - The discrete percentile is one of the values: the first whose share of values up to it reaches the fraction.
//!
//! Leaves to others: which values are sorted, and the result's type (`translate/call.rs`).

use std::cmp::Ordering;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::{Aggregate, Context, FunctionFlags, WindowAggregate};
use rusqlite::types::Value;

use crate::memory::{Claim, Memory};
use crate::message::Message;
use crate::variables::{VALUES_MAX, too_much};

/// The place of the first values.
const FIRST: usize = 64;

/// The bytes of all values that percentiles of one connection keep.
type Held = Arc<Mutex<Claim>>;

/// The values of a partition so far.
#[derive(Debug)]
struct Values {
    all: Vec<Value>,
    /// Those of `all`, in `held`.
    bytes: usize,
    /// A panic leaves a count that is too large at most.
    held: AssertUnwindSafe<Held>,
    is_sorted: bool,
    fraction: f64,
    is_descending: bool,
}

impl Drop for Values {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        let rest = held.bytes().saturating_sub(self.bytes);
        // Shrinking always succeeds.
        let _fits = held.resize(rest);
    }
}

struct Percentile {
    is_discrete: bool,
    held: Held,
    /// The message behind the text that SQLite passes on.
    refusal: Arc<Mutex<Option<Message>>>,
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Integer(n) => *n as f64,
        Value::Real(n) => *n,
        _ => f64::NAN,
    }
}

fn compared(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        _ => number(a).total_cmp(&number(b)),
    }
}

impl Values {
    fn new(held: Held) -> Values {
        Values {
            all: Vec::new(),
            bytes: 0,
            held: AssertUnwindSafe(held),
            is_sorted: false,
            fraction: 0.0,
            is_descending: false,
        }
    }

    /// Errors: more bytes than a session can hold; 701.
    fn push(&mut self, value: Value) -> Result<(), Message> {
        if self.all.len() == self.all.capacity() {
            let more = self.all.len().max(FIRST);
            let bytes = more * size_of::<Value>();
            let mut held = self.held.lock();
            let sum = held.bytes() + bytes;
            if sum > VALUES_MAX {
                return Err(too_much());
            }
            held.resize(sum)?;
            self.bytes += bytes;
            drop(held);
            self.all.reserve_exact(more);
        }
        self.all.push(value);
        self.is_sorted = false;
        Ok(())
    }

    fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        // Values that count as equal are the same, and a stable sort would need more memory.
        self.all.sort_unstable_by(compared);
        if self.is_descending {
            self.all.reverse();
        }
        self.is_sorted = true;
    }

    fn discrete(&self) -> Value {
        let count = self.all.len() as f64;
        let reaches = |at: usize| (at + 1) as f64 / count >= self.fraction;
        let (mut low, mut high) = (0, self.all.len());
        while low < high {
            let middle = low.midpoint(high);
            match reaches(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        self.all.get(low).map_or(Value::Null, Value::clone)
    }

    fn continuous(&self) -> Value {
        let Some(last) = self.all.len().checked_sub(1) else {
            return Value::Null;
        };
        let place = self.fraction * last as f64;
        let (below, above) = (place.floor(), place.ceil());
        let at = |place: f64| number(&self.all[(place as usize).min(last)]);
        if below >= above {
            return Value::Real(at(place));
        }
        Value::Real((above - place) * at(below) + (place - below) * at(above))
    }
}

impl Percentile {
    fn of(&self, values: &mut Values) -> Value {
        values.sort();
        match self.is_discrete {
            true => values.discrete(),
            false => values.continuous(),
        }
    }
}

impl Aggregate<Values, Value> for Percentile {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Values> {
        Ok(Values::new(self.held.clone()))
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Values) -> rusqlite::Result<()> {
        values.fraction = context.get(1)?;
        values.is_descending = context.get(2)?;
        match context.get::<Value>(0)? {
            Value::Null => {}
            value => values.push(value).map_err(|message| {
                let text = message.text.clone();
                *self.refusal.lock() = Some(message);
                rusqlite::Error::UserFunctionError(text.into())
            })?,
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Values>) -> rusqlite::Result<Value> {
        Ok(values.map_or(Value::Null, |mut values| self.of(&mut values)))
    }
}

impl WindowAggregate<Values, Value> for Percentile {
    fn value(&self, values: Option<&mut Values>) -> rusqlite::Result<Value> {
        Ok(values.map_or(Value::Null, |values| self.of(values)))
    }

    /// A window is a whole partition, so no row leaves one; SQLite demands the function.
    fn inverse(&self, context: &mut Context<'_>, values: &mut Values) -> rusqlite::Result<()> {
        let gone: Value = context.get(0)?;
        if let Some(at) = values.all.iter().position(|value| *value == gone) {
            values.all.remove(at);
        }
        Ok(())
    }
}

/// Registers them with a connection. Arguments: the value, the fraction, and whether the greatest value is first.
pub(super) fn register(
    db: &Connection,
    memory: &Memory,
    refusal: &Arc<Mutex<Option<Message>>>,
) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    // A claim of nothing always fits.
    let held: Held = Arc::new(Mutex::new(memory.claim(0).unwrap_or_default()));
    for (name, is_discrete) in [("ts_percentile_cont", false), ("ts_percentile_disc", true)] {
        let percentile = Percentile {
            is_discrete,
            held: held.clone(),
            refusal: refusal.clone(),
        };
        db.create_window_function(name, 3, flags, percentile)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, fraction: f64, values: &[i64]) -> Value {
        let mut kept = Values::new(Held::default());
        kept.all = values.iter().map(|n| Value::Integer(*n)).collect();
        kept.fraction = fraction;
        let percentile = Percentile {
            is_discrete: name == "disc",
            held: Held::default(),
            refusal: Arc::default(),
        };
        percentile.of(&mut kept)
    }

    #[test]
    fn a_fraction_that_a_value_reaches_exactly_is_that_value() {
        let hundred: Vec<i64> = (1..=100).collect();
        for n in 1..=100 {
            let fraction = f64::from(n) / 100.0;
            assert_eq!(of("disc", fraction, &hundred), Value::Integer(n.into()));
        }
        assert_eq!(of("disc", 0.0, &[7, 3]), Value::Integer(3));
        assert_eq!(of("disc", 0.5, &[]), Value::Null);
    }

    #[test]
    fn bytes_are_claimed_before_they_are_used_and_given_back() {
        let memory = Memory::new(VALUES_MAX);
        let held: Held = Arc::new(Mutex::new(memory.claim(0).unwrap()));
        let mut one = Values::new(held.clone());
        let count = 100_000;
        for n in 0..count {
            one.push(Value::Integer(n)).unwrap();
            assert!(memory.held() >= one.all.capacity() * size_of::<Value>());
        }
        // Another one of the same query has what is left.
        let mut other = Values::new(held.clone());
        let refused = (0..).find_map(|n| other.push(Value::Integer(n)).err());
        assert_eq!(refused, Some(too_much()));
        assert!(memory.held() <= VALUES_MAX);
        drop(other);
        drop(one);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_fraction_between_values_is_between_them() {
        for (fraction, expected) in [(0.0, 10.0), (0.5, 25.0), (0.25, 17.5), (1.0, 40.0)] {
            assert_eq!(
                of("cont", fraction, &[40, 20, 10, 30]),
                Value::Real(expected)
            );
        }
        assert_eq!(of("cont", 0.3, &[5]), Value::Real(5.0));
        assert_eq!(of("cont", 0.3, &[]), Value::Null);
    }
}
