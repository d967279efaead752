//! The result types of arithmetic, by T-SQL's rules.
//!
//! Invariants
//! - Precision and scale follow SQL Server's documentation: digits before the point are kept, and the scale is reduced
//!   to six at the least where 38 digits do not suffice.
//! - Every pair of types has a result, and of two types the one with the higher precedence wins, whichever side it is
//!   on.
//!
//! Leaves to others: the calculation (`function.rs`), and conversions (`convert.rs`).

use crate::convert::{MONEY_SCALE, PRECISION_MAX};
use crate::value::Type;

/// Precision and scale of a type among the exact numbers.
fn digits(kind: Type) -> (u8, u8) {
    match kind {
        Type::Bit => (1, 0),
        Type::TinyInt => (3, 0),
        Type::SmallInt => (5, 0),
        Type::Int => (10, 0),
        Type::BigInt => (19, 0),
        Type::SmallMoney => (10, MONEY_SCALE),
        Type::Money => (19, MONEY_SCALE),
        Type::Numeric { precision, scale } => (precision, scale),
        _ => (PRECISION_MAX, 0),
    }
}

/// With too many digits, the scale is reduced, but not below six; digits before the point stay.
fn capped(precision: u16, scale: u16) -> Type {
    let max = u16::from(PRECISION_MAX);
    if precision <= max {
        return Type::numeric(precision as u8, scale as u8);
    }
    let whole = precision - scale;
    let scale = scale.min(max.saturating_sub(whole).max(scale.min(6)));
    Type::numeric(PRECISION_MAX, scale.min(max) as u8)
}

/// The type of `left operator right`, both numbers.
pub fn result(operator: char, left: Type, right: Type) -> Type {
    if left == Type::Float || right == Type::Float {
        return Type::Float;
    }
    let is_numeric = |kind| matches!(kind, Type::Numeric { .. });
    if !is_numeric(left) && !is_numeric(right) {
        return wider(left, right);
    }
    let ((p1, s1), (p2, s2)) = (digits(left), digits(right));
    let (p1, s1, p2, s2) = (u16::from(p1), u16::from(s1), u16::from(p2), u16::from(s2));
    match operator {
        '*' => capped(p1 + p2 + 1, s1 + s2),
        '/' => {
            let scale = (s1 + p2 + 1).max(6);
            capped(p1 - s1 + s2 + scale, scale)
        }
        '%' => capped((p1 - s1).min(p2 - s2) + s1.max(s2), s1.max(s2)),
        _ => capped(s1.max(s2) + (p1 - s1).max(p2 - s2) + 1, s1.max(s2)),
    }
}

fn rank(kind: Type) -> u8 {
    match kind {
        Type::Char(_) => 0,
        Type::VarChar(_) => 1,
        Type::NChar(_) => 2,
        Type::NVarChar(_) => 3,
        Type::Binary(_) => 4,
        Type::VarBinary(_) => 5,
        Type::UniqueIdentifier => 6,
        Type::Bit => 7,
        Type::TinyInt => 8,
        Type::SmallInt => 9,
        Type::Int => 10,
        Type::BigInt => 11,
        Type::SmallMoney => 12,
        Type::Money => 13,
        Type::Numeric { .. } => 14,
        Type::Float => 15,
        Type::Time(_) => 16,
        Type::Date => 17,
        Type::SmallDateTime => 18,
        Type::DateTime => 19,
        Type::DateTime2(_) => 20,
        Type::DateTimeOffset(_) => 21,
        Type::SqlVariant => 22,
    }
}

/// The common type of both in a comparison, a CASE or a UNION: SQL Server's precedence.
pub fn wider(left: Type, right: Type) -> Type {
    let longer = |a: Option<u16>, b: Option<u16>| Some(a?.max(b?));
    match (left, right) {
        (Type::Numeric { .. }, Type::Numeric { .. }) => {
            let ((p1, s1), (p2, s2)) = (digits(left), digits(right));
            let scale = s1.max(s2);
            let whole = (p1 - s1).max(p2 - s2);
            capped(u16::from(whole) + u16::from(scale), scale.into())
        }
        (Type::Numeric { .. }, other) | (other, Type::Numeric { .. }) if other.is_exact() => {
            let (p, s) = digits(other);
            wider(
                Type::numeric(p, s),
                if other == left { right } else { left },
            )
        }
        (Type::Time(a), Type::Time(b)) => Type::Time(a.max(b)),
        (Type::DateTime2(a), Type::DateTime2(b)) => Type::DateTime2(a.max(b)),
        (Type::DateTimeOffset(a), Type::DateTimeOffset(b)) => Type::DateTimeOffset(a.max(b)),
        (Type::NVarChar(a), Type::NVarChar(b)) => Type::NVarChar(longer(a, b)),
        (Type::VarChar(a), Type::VarChar(b)) => Type::VarChar(longer(a, b)),
        (Type::Char(a), Type::Char(b)) => Type::Char(a.max(b)),
        (Type::NChar(a), Type::NChar(b)) => Type::NChar(a.max(b)),
        (a, b) if a.is_text() && b.is_text() => {
            let length = |kind: Type| kind.display_width().map(|n| n as u16);
            let both = longer(length(a), length(b));
            match a.is_national() || b.is_national() {
                true => Type::NVarChar(both),
                false => Type::VarChar(both),
            }
        }
        (a, b) if rank(a) >= rank(b) => a,
        (_, b) => b,
    }
}

/// The type of SUM.
pub fn sum(kind: Type) -> Type {
    match kind {
        Type::Bit | Type::TinyInt | Type::SmallInt => Type::Int,
        Type::Numeric { scale, .. } => Type::numeric(PRECISION_MAX, scale),
        kind => kind,
    }
}

/// The type of AVG.
pub fn average(kind: Type) -> Type {
    match kind {
        Type::Bit | Type::TinyInt | Type::SmallInt => Type::Int,
        Type::Numeric { scale, .. } => Type::numeric(PRECISION_MAX, scale.max(6)),
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_arithmetic_are_those_that_the_manual_computes() {
        let size = Type::numeric(20, 0);
        assert_eq!(result('/', size, size), Type::numeric(38, 18));
        assert_eq!(result('/', Type::Int, Type::Int), Type::Int);
        assert_eq!(
            result('*', Type::numeric(10, 2), Type::numeric(5, 1)),
            Type::numeric(16, 3)
        );
        assert_eq!(
            result('+', Type::numeric(10, 2), Type::Int),
            Type::numeric(13, 2)
        );
        assert_eq!(result('/', Type::numeric(5, 2), Type::Float), Type::Float);
        // Docs: decimal(38,10) times decimal(38,10).
        assert_eq!(
            result('*', Type::numeric(38, 10), Type::numeric(38, 10)),
            Type::numeric(38, 6)
        );
    }

    #[test]
    fn the_wider_type_wins() {
        assert_eq!(wider(Type::Int, Type::DateTime), Type::DateTime);
        assert_eq!(
            wider(Type::nvarchar(3), Type::nvarchar(9)),
            Type::nvarchar(9)
        );
        assert_eq!(
            wider(Type::nvarchar(3), Type::NVarChar(None)),
            Type::NVarChar(None)
        );
        assert_eq!(wider(Type::Int, Type::numeric(5, 2)), Type::numeric(12, 2));
        assert_eq!(
            wider(Type::VarChar(Some(4)), Type::NChar(9)),
            Type::nvarchar(9)
        );
    }

    #[test]
    fn no_pair_of_types_panics() {
        let kinds = [
            Type::Bit,
            Type::BigInt,
            Type::numeric(38, 38),
            Type::numeric(38, 0),
            Type::numeric(1, 1),
            Type::Float,
            Type::Char(8000),
            Type::SqlVariant,
        ];
        for a in kinds {
            for b in kinds {
                for operator in ['+', '-', '*', '/', '%'] {
                    if let Type::Numeric { precision, scale } = result(operator, a, b) {
                        assert!((1..=38).contains(&precision) && scale <= precision);
                    }
                }
                wider(a, b);
            }
        }
    }
}
