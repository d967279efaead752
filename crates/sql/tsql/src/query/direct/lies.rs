//! Doubles of the nodes that make one kind of node wrong each: with them every promise of the nodes can be seen to turn
//! its suite (`../tests.rs`) red.
//!
//! Invariants
//! - The double that lies in nothing makes the nodes of [`Tree`].
//! - There is a lie for each method of the three traits.
//!
//! Leaves to others: the comparison with the parser's tree (`../tests.rs`).

use sqlparser::ast::{BinaryOperator, CastKind, DataType, Expr, UnaryOperator, Value as Literal};

use super::node::{Calls, Leaves, Operators, Tree};
use super::read::made;

/// Makes the nodes of [`Tree`], but for those of one method.
struct Lying<const LIE: u8>;

const LITERAL: u8 = 1;
const NAMED: u8 = 2;
const NESTED: u8 = 3;
const UNARY: u8 = 4;
const BINARY: u8 = 5;
const NULL_TEST: u8 = 6;
const BETWEEN: u8 = 7;
const IN_LIST: u8 = 8;
const LIKE: u8 = 9;
const CALLED: u8 = 10;
const CASE: u8 = 11;
const CAST: u8 = 12;
const CONVERT: u8 = 13;
const SUBSTRING: u8 = 14;
const TRIM: u8 = 15;
const FLOOR: u8 = 16;

type Read = fn(&str) -> Option<Expr>;

/// The double that lies in nothing.
pub(in crate::query) const HARMLESS: Read = made::<Lying<0>>;

/// Every lie, and a text that shows it.
pub(in crate::query) const LIES: &[(Read, &str)] = &[
    (made::<Lying<LITERAL>>, "1"),
    (made::<Lying<NAMED>>, "@I"),
    (made::<Lying<NESTED>>, "(1)"),
    (made::<Lying<UNARY>>, "-1"),
    (made::<Lying<BINARY>>, "1 - 2"),
    (made::<Lying<NULL_TEST>>, "IIF(1 IS NOT NULL, 1, 2)"),
    (made::<Lying<BETWEEN>>, "IIF(1 BETWEEN 2 AND 3, 1, 2)"),
    (made::<Lying<IN_LIST>>, "IIF(1 IN (2, 3), 1, 2)"),
    (made::<Lying<LIKE>>, "IIF('a' NOT LIKE 'b', 1, 2)"),
    (made::<Lying<CALLED>>, "LEN('a')"),
    (made::<Lying<CASE>>, "CASE WHEN 1 = 2 THEN 3 ELSE 4 END"),
    (made::<Lying<CAST>>, "TRY_CAST(1 AS int)"),
    (made::<Lying<CONVERT>>, "CONVERT(varchar(9), 1, 120)"),
    (made::<Lying<SUBSTRING>>, "SUBSTRING('abc', 1, 2)"),
    (made::<Lying<TRIM>>, "TRIM(' a')"),
    (made::<Lying<FLOOR>>, "FLOOR(1.5)"),
];

impl<const LIE: u8> Leaves for Lying<LIE> {
    type Expr = Expr;

    fn literal(value: impl FnOnce() -> Literal) -> Expr {
        match LIE {
            LITERAL => Tree::literal(|| Literal::Null),
            _ => Tree::literal(value),
        }
    }

    fn named(name: &str) -> Expr {
        match LIE {
            NAMED => Tree::named(&name.to_lowercase()),
            _ => Tree::named(name),
        }
    }
}

impl<const LIE: u8> Operators for Lying<LIE> {
    fn nested(inner: Expr) -> Expr {
        match LIE {
            NESTED => inner,
            _ => Tree::nested(inner),
        }
    }

    fn unary(op: UnaryOperator, expr: Expr) -> Expr {
        match LIE {
            UNARY => expr,
            _ => Tree::unary(op, expr),
        }
    }

    fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
        match LIE {
            BINARY => Tree::binary(right, op, left),
            _ => Tree::binary(left, op, right),
        }
    }

    fn null_test(expr: Expr, negated: bool) -> Expr {
        Tree::null_test(expr, negated && LIE != NULL_TEST)
    }

    fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
        match LIE {
            BETWEEN => Tree::between(expr, negated, high, low),
            _ => Tree::between(expr, negated, low, high),
        }
    }

    fn in_list(expr: Expr, negated: bool, mut list: Vec<Expr>) -> Expr {
        if LIE == IN_LIST {
            list.pop();
        }
        Tree::in_list(expr, negated, list)
    }

    fn like(expr: Expr, negated: bool, pattern: Expr) -> Expr {
        Tree::like(expr, negated && LIE != LIKE, pattern)
    }
}

impl<const LIE: u8> Calls for Lying<LIE> {
    fn called(name: &str, mut arguments: Vec<Expr>) -> Expr {
        if LIE == CALLED {
            arguments.pop();
        }
        Tree::called(name, arguments)
    }

    fn case(operand: Option<Expr>, conditions: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
        let otherwise = otherwise.filter(|_| LIE != CASE);
        Tree::case(operand, conditions, otherwise)
    }

    fn cast(kind: CastKind, expr: Expr, data_type: DataType) -> Expr {
        match LIE {
            CAST => Tree::cast(CastKind::Cast, expr, data_type),
            _ => Tree::cast(kind, expr, data_type),
        }
    }

    fn convert(is_try: bool, data_type: DataType, expr: Expr, mut styles: Vec<Expr>) -> Expr {
        if LIE == CONVERT {
            styles.clear();
        }
        Tree::convert(is_try, data_type, expr, styles)
    }

    fn substring(expr: Expr, from: Expr, length: Expr) -> Expr {
        match LIE {
            SUBSTRING => Tree::substring(expr, length, from),
            _ => Tree::substring(expr, from, length),
        }
    }

    fn trim(expr: Expr) -> Expr {
        match LIE {
            TRIM => expr,
            _ => Tree::trim(expr),
        }
    }

    fn floor(expr: Expr) -> Expr {
        match LIE {
            FLOOR => expr,
            _ => Tree::floor(expr),
        }
    }
}
