//! Pairs of types between which SQL Server converts nothing.
//!
//! Invariants
//! - The pairs are those of the chart in SQL Server's documentation of CAST and CONVERT.
//!
//! Leaves to others: the conversions that there are (`convert.rs`).

use crate::message::{self, Message};
use crate::value::Type;

/// The types that conversions treat alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Text,
    Number,
    Float,
    OlderMoment,
    Date,
    Time,
    Moment,
    Binary,
    Guid,
    Any,
}

fn family(kind: Type) -> Family {
    match kind {
        kind if kind.is_text() => Family::Text,
        Type::SqlVariant => Family::Any,
        Type::Float => Family::Float,
        kind if kind.is_number() => Family::Number,
        Type::DateTime | Type::SmallDateTime => Family::OlderMoment,
        Type::Date => Family::Date,
        Type::Time(_) => Family::Time,
        Type::DateTime2(_) | Type::DateTimeOffset(_) => Family::Moment,
        Type::UniqueIdentifier => Family::Guid,
        _ => Family::Binary,
    }
}

/// Whether SQL Server converts values of one type to another, by itself or by CAST.
pub(crate) fn can_become(from: Type, to: Type) -> bool {
    use Family::{Any, Binary, Date, Float, Guid, Moment, Number, Text, Time};
    match (family(from), family(to)) {
        (Text | Any, _) | (_, Text | Any) => true,
        (Guid, to) => matches!(to, Binary | Guid),
        (from, Guid) => matches!(from, Binary),
        (Number | Float, Date | Time | Moment) | (Date | Time | Moment, Number | Float) => false,
        (Date, Time) | (Time, Date) | (Binary, Float) => false,
        _ => true,
    }
}

/// Refuses a conversion by CAST or CONVERT that there is not, whatever the value. Errors: 529.
pub(crate) fn check_explicit(from: Type, to: Type) -> Result<(), Message> {
    match can_become(from, to) {
        true => Ok(()),
        false => Err(message::CAST_REFUSED.with(&[&from.bare_name(), &to.bare_name()])),
    }
}

/// The same for one that an operator or an assignment makes. Errors: 206.
pub(crate) fn check_implicit(from: Type, to: Type) -> Result<(), Message> {
    match can_become(from, to) {
        true => Ok(()),
        false => Err(message::TYPE_CLASH.with(&[&from.bare_name(), &to.bare_name()])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_without_a_conversion_are_those_of_sql_server() {
        for (from, to) in [
            (Type::Int, Type::Date),
            (Type::Date, Type::Int),
            (Type::Money, Type::DateTime2(7)),
            (Type::UniqueIdentifier, Type::Int),
            (Type::Bit, Type::UniqueIdentifier),
            (Type::Date, Type::Time(7)),
            (Type::VarBinary(None), Type::Float),
        ] {
            assert!(!can_become(from, to), "{from} to {to}");
        }
        for (from, to) in [
            (Type::Int, Type::DateTime),
            (Type::DateTime, Type::Int),
            (Type::Time(7), Type::DateTime),
            (Type::Binary(16), Type::UniqueIdentifier),
            (Type::nvarchar(9), Type::Date),
            (Type::SqlVariant, Type::Date),
        ] {
            assert!(can_become(from, to), "{from} to {to}");
        }
    }
}
