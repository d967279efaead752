//! PERCENTILE_CONT and PERCENTILE_DISC as window functions of SQLite.
//!
//! Invariants
//! - NULLs are left out; without values the result is NULL.
//! - A partition has up to [`VALUES_MAX`] values; more are refused as too much memory.
//! - The values of a partition are sorted once, however many rows it has.
//! - The discrete percentile is one of the values: the first whose share of values up to it reaches the fraction.
//!
//! Leaves to others: which values are sorted, and the result's type (`translate/call.rs`).

use std::cmp::Ordering;

use rusqlite::Connection;
use rusqlite::ffi;
use rusqlite::functions::{Aggregate, Context, FunctionFlags, WindowAggregate};
use rusqlite::types::Value;

/// The most values of a partition, 32 bytes each.
const VALUES_MAX: usize = 1 << 20;

/// The values of a partition so far.
#[derive(Debug, Default)]
struct Values {
    all: Vec<Value>,
    is_sorted: bool,
    fraction: f64,
    is_descending: bool,
}

struct Percentile {
    is_discrete: bool,
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
    fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        self.all.sort_by(compared);
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
        Ok(Values::default())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Values) -> rusqlite::Result<()> {
        values.fraction = context.get(1)?;
        values.is_descending = context.get(2)?;
        match context.get::<Value>(0)? {
            Value::Null => {}
            _ if values.all.len() >= VALUES_MAX => {
                let too_much = ffi::Error::new(ffi::SQLITE_NOMEM);
                return Err(rusqlite::Error::SqliteFailure(too_much, None));
            }
            value => {
                values.all.push(value);
                values.is_sorted = false;
            }
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
pub(super) fn register(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    for (name, is_discrete) in [("ts_percentile_cont", false), ("ts_percentile_disc", true)] {
        db.create_window_function(name, 3, flags, Percentile { is_discrete })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, fraction: f64, values: &[i64]) -> Value {
        let mut values = Values {
            all: values.iter().map(|n| Value::Integer(*n)).collect(),
            fraction,
            ..Values::default()
        };
        let is_discrete = name == "disc";
        Percentile { is_discrete }.of(&mut values)
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
