//! Evaluates an expression's tree as SQLite does, where that is simple.
//!
//! T-SQL's rules are in the tree already: its types, its conversions and the functions of ours. SQLite's own operators,
//! over its own five kinds of values, remain.
//!
//! Invariants
//! - No more than some megabytes are held: the reader bounds the values, [`LEN_MAX`] their lengths.
//! - A value from here is the one that SQLite gives. Errors, kinds of values that an operator rarely meets, and values
//!   near a bound have none, and SQLite decides.
//!
//! Leaves to others: the tree (`query/sql.rs`), and the functions (`query/function.rs`).

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicBool};

use super::super::cell::{self, stored};
use super::super::collation::Collation;
use super::super::function;
use super::super::sql::{Node, Parameter, Sql};
use crate::message::Message;
use crate::value::{Type, Value};
use crate::variables::bytes;

/// The longest text or binary that is handled here, in bytes: with longer ones, SQLite is not what takes the time.
const LEN_MAX: usize = 64 << 10;

/// An expression's value in SQLite's form; `None`: SQLite has to evaluate it. It refuses a value that it cannot keep
/// even where the expression does not need it.
pub(super) fn evaluated(
    sql: &Sql,
    parameters: Vec<Parameter>,
    cancel: &AtomicBool,
) -> Option<Value> {
    let one = |parameter| match parameter {
        Parameter::Value(value) => kept(value).map(Parameter::Value),
        Parameter::Type(_) => Some(parameter),
    };
    let bound: Option<Vec<_>> = parameters.into_iter().map(one).collect();
    let bound = bound?;
    let evaluator = Evaluator {
        bound: &bound,
        cancel,
    };
    evaluator.value(sql)
}

struct Evaluator<'a> {
    bound: &'a [Parameter],
    /// Looked at before each call of a function.
    cancel: &'a AtomicBool,
}

impl Evaluator<'_> {
    fn value(&self, sql: &Sql) -> Option<Value> {
        Some(match &sql.node {
            Node::Text(_) => return None,
            Node::Null => Value::Null,
            Node::Bound(number) => self.bound(*number)?.clone().into(),
            Node::Nested(inner) | Node::Collated(inner, _) => self.value(inner)?,
            Node::Call(name, arguments) => self.call(name, arguments)?,
            Node::Unary(word, inner) => unary(word, self.value(inner)?)?,
            Node::Binary(left, word, right) => {
                let collation = collation(right);
                binary(self.value(left)?, word, self.value(right)?, collation)?
            }
            Node::Any(all) => {
                let mut any = Value::bit(false);
                for one in all {
                    any = binary(any, "OR", self.value(one)?, None)?;
                }
                any
            }
            Node::IsNull(inner, is) => Value::bit(self.value(inner)?.is_null() == *is),
            Node::Case(branches, otherwise) => {
                for (condition, chosen) in branches {
                    if self.holds(condition)? {
                        return self.value(chosen);
                    }
                }
                match otherwise {
                    Some(otherwise) => self.value(otherwise)?,
                    None => Value::Null,
                }
            }
        })
    }

    fn bound(&self, number: usize) -> Option<&Parameter> {
        self.bound.get(number.checked_sub(1)?)
    }

    /// The type that a function of ours is given.
    fn kind(&self, sql: &Sql) -> Option<Type> {
        match sql.node {
            Node::Bound(number) => match self.bound(number)? {
                Parameter::Type(kind) => Some(*kind),
                Parameter::Value(_) => None,
            },
            _ => None,
        }
    }

    /// The value that a function of ours makes.
    fn made(&self, run: impl FnOnce() -> Result<Value, Message>) -> Option<Value> {
        match self.cancel.load(atomic::Ordering::Relaxed) {
            true => None,
            false => kept(run().ok()?),
        }
    }

    fn holds(&self, condition: &Sql) -> Option<bool> {
        Some(is_true(&self.value(condition)?)? == Some(true))
    }

    fn call(&self, name: &str, arguments: &[Sql]) -> Option<Value> {
        match (name, arguments) {
            // These evaluate no more than they need.
            ("ifnull" | "coalesce", all) => {
                for argument in all {
                    let found = self.value(argument)?;
                    if !found.is_null() {
                        return Some(found);
                    }
                }
                Some(Value::Null)
            }
            ("iif", [condition, yes, no]) => {
                self.value(if self.holds(condition)? { yes } else { no })
            }
            ("nullif", [first, second]) => {
                let (value, other) = (self.value(first)?, self.value(second)?);
                let equal = binary(value.clone(), "=", other, collation(second))?;
                Some(match equal {
                    Value::Int(1) => Value::Null,
                    _ => value,
                })
            }
            // These get the types themselves instead of their names.
            ("ts_fit", [inner, of]) => {
                let (value, of) = (self.value(inner)?, self.kind(of)?);
                self.made(|| cell::as_kind(&value, of))
            }
            ("ts_cast" | "ts_try_cast", [inner, from, to]) => {
                let value = self.value(inner)?;
                let (from, to) = (self.kind(from)?, self.kind(to)?);
                self.made(|| match (cell::converted(&value, from, to), name) {
                    (Err(_), "ts_try_cast") => Ok(Value::Null),
                    (converted, _) => converted,
                })
            }
            _ => {
                let values: Option<Vec<_>> = arguments.iter().map(|a| self.value(a)).collect();
                let values = values?;
                match function::named(name) {
                    Some(run) => self.made(|| run(&values)),
                    None => of_sqlite(name, &values),
                }
            }
        }
    }
}

/// Functions that SQLite has as T-SQL wants them.
fn of_sqlite(name: &str, arguments: &[Value]) -> Option<Value> {
    match (name, arguments) {
        (_, [Value::Null]) => Some(Value::Null),
        ("abs", [Value::Int(n)]) => n.checked_abs().map(Value::Int),
        ("abs", [Value::Float(n)]) => Some(Value::Float(if *n < 0.0 { -n } else { *n })),
        ("sign", [Value::Int(n)]) => Some(Value::Int(n.signum())),
        ("sign", [Value::Float(n)]) => Some(Value::Int(i64::from(*n > 0.0) - i64::from(*n < 0.0))),
        ("trim", [Value::Text(text)]) => Some(Value::text(text.trim_matches(' '))),
        ("ltrim", [Value::Text(text)]) => Some(Value::text(text.trim_start_matches(' '))),
        ("rtrim", [Value::Text(text)]) => Some(Value::text(text.trim_end_matches(' '))),
        _ => None,
    }
}

/// Whether a value counts as true; `Some(None)`: unknown.
pub(super) fn is_true(value: &Value) -> Option<Option<bool>> {
    match value {
        Value::Null => Some(None),
        Value::Int(n) => Some(Some(*n != 0)),
        Value::Float(n) => Some(Some(*n != 0.0)),
        _ => None,
    }
}

fn of_truth(truth: Option<bool>) -> Value {
    truth.map_or(Value::Null, Value::bit)
}

/// As SQLite keeps it. `None`: it refuses it, or it is too long.
fn kept(value: Value) -> Option<Value> {
    match stored(value).ok()? {
        Value::Float(n) if n.is_nan() => Some(Value::Null),
        value => (bytes(&value) <= LEN_MAX).then_some(value),
    }
}

fn collation(right: &Sql) -> Option<Collation> {
    match &right.node {
        Node::Collated(_, collation) => Some(*collation),
        _ => None,
    }
}

fn unary(word: &str, inner: Value) -> Option<Value> {
    Some(match (word, inner) {
        ("NOT", inner) => of_truth(is_true(&inner)?.map(|truth| !truth)),
        (_, Value::Null) => Value::Null,
        ("-", Value::Int(n)) => Value::Int(n.checked_neg()?),
        // Nothing less nothing has no sign.
        ("-", Value::Float(n)) => Value::Float(0.0 - n),
        ("~", Value::Int(n)) => Value::Int(!n),
        _ => return None,
    })
}

fn binary(left: Value, word: &str, right: Value, collation: Option<Collation>) -> Option<Value> {
    match word {
        "AND" => {
            return Some(of_truth(match (is_true(&left)?, is_true(&right)?) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            }));
        }
        "OR" => {
            return Some(of_truth(match (is_true(&left)?, is_true(&right)?) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            }));
        }
        _ if left.is_null() || right.is_null() => return Some(Value::Null),
        _ => {}
    }
    match (word, &left, &right) {
        ("||", Value::Text(a), Value::Text(b)) => {
            let fits = a.len() + b.len() <= LEN_MAX;
            fits.then(|| Value::Text([a.as_str(), b.as_str()].concat()))
        }
        ("+" | "-" | "*", a, b) => arithmetic(a, word, b),
        ("&", Value::Int(a), Value::Int(b)) => Some(Value::Int(a & b)),
        ("|", Value::Int(a), Value::Int(b)) => Some(Value::Int(a | b)),
        ("=" | "<>" | "<" | ">" | "<=" | ">=", a, b) => {
            let order = compare(a, b, collation)?;
            Some(Value::bit(match word {
                "=" => order.is_eq(),
                "<>" => order.is_ne(),
                "<" => order.is_lt(),
                ">" => order.is_gt(),
                "<=" => order.is_le(),
                _ => order.is_ge(),
            }))
        }
        _ => None,
    }
}

fn arithmetic(left: &Value, word: &str, right: &Value) -> Option<Value> {
    let whole = match (left, right) {
        (Value::Int(a), Value::Int(b)) => match word {
            "+" => a.checked_add(*b),
            "-" => a.checked_sub(*b),
            _ => a.checked_mul(*b),
        },
        _ => None,
    };
    if let Some(whole) = whole {
        return Some(Value::Int(whole));
    }
    let (a, b) = (real(left)?, real(right)?);
    let made = match word {
        "+" => a + b,
        "-" => a - b,
        _ => a * b,
    };
    Some(match made.is_nan() {
        true => Value::Null,
        false => Value::Float(made),
    })
}

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        _ => None,
    }
}

fn compare(left: &Value, right: &Value, collation: Option<Collation>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Float(b)) => Some(whole_to_real(*a, *b)),
        (Value::Float(a), Value::Int(b)) => Some(whole_to_real(*b, *a).reverse()),
        (Value::Text(a), Value::Text(b)) => Some(match collation {
            Some(collation) => collation.compare(a, b),
            None => a.as_bytes().cmp(b.as_bytes()),
        }),
        (Value::Binary(a), Value::Binary(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// All digits of both count.
fn whole_to_real(whole: i64, real: f64) -> Ordering {
    const ABOVE: f64 = 9_223_372_036_854_775_808.0;
    if real >= ABOVE {
        return Ordering::Less;
    }
    if real < -ABOVE {
        return Ordering::Greater;
    }
    let rest = (whole as f64).partial_cmp(&real);
    whole
        .cmp(&(real as i64))
        .then(rest.unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_compared_with_real_ones_by_all_their_digits() {
        use Ordering::{Equal, Greater, Less};
        let big = (1_i64 << 53) + 1;
        for (whole, real, order) in [
            (1, 1.0, Equal),
            (1, 1.5, Less),
            (-1, -1.5, Greater),
            (big, 9_007_199_254_740_992.0, Greater),
            (i64::MAX, 9_223_372_036_854_775_808.0, Less),
            (i64::MIN, -9_223_372_036_854_775_808.0, Equal),
            (0, f64::NEG_INFINITY, Greater),
            (0, f64::INFINITY, Less),
        ] {
            assert_eq!(whole_to_real(whole, real), order, "{whole} and {real}");
        }
    }

    #[test]
    fn what_is_not_known_here_is_left_to_sqlite() {
        let flag = AtomicBool::new(false);
        let value = |sql: &Sql, bound: &[Value]| {
            let bound = bound.iter().cloned().map(Parameter::Value);
            evaluated(sql, bound.collect(), &flag)
        };
        assert_eq!(value(&Sql::from("t0.c1"), &[]), None);
        assert_eq!(value(&Sql::bound(1), &[]), None);
        let zero = Sql::call("ts_divide", [Sql::bound(1), Sql::bound(1)]);
        assert_eq!(value(&zero, &[Value::Int(0)]), None);
        let long = Value::text("x".repeat(LEN_MAX));
        let both = Sql::bound(1).binary("||", Sql::bound(1));
        assert_eq!(value(&both, std::slice::from_ref(&long)), None);
        assert_eq!(
            value(&Sql::bound(1), std::slice::from_ref(&long)),
            Some(long.clone())
        );
        let length = Sql::call("ts_len", [Sql::bound(1)]);
        assert_eq!(
            value(&length, std::slice::from_ref(&long)),
            Some(Value::Int(LEN_MAX as i64))
        );
        flag.store(true, atomic::Ordering::Relaxed);
        assert_eq!(value(&length, &[long]), None);
    }
}
