//! The nodes that the reader makes of an expression: those of the parser's tree, or none.
//!
//! Invariants
//! - A node from here equals the one that the parser of queries makes.
//! - [`Nothing`] allocates nothing, and is asked the same questions in the same order, so both readers take the same
//!   texts.
//!
//! Leaves to others: what is read in which order (`read.rs`).

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    UnaryOperator, Value as Literal,
};

/// Makes the nodes of values. Every node is the one that the parser of queries makes of the same text, and no method
/// fails: the reader has refused what is none.
pub(super) trait Leaves {
    type Expr;

    /// A number, a string or NULL. `value` is called only if the node is kept.
    fn literal(value: impl FnOnce() -> Literal) -> Self::Expr;
    /// A variable, or another name, as it was written: with `@`, in the letters of the text.
    fn named(name: &str) -> Self::Expr;
}

/// Makes the nodes of operators. The operands come in the order of the text, and each belongs to one node.
pub(super) trait Operators: Leaves {
    /// Parentheses around `inner`, which stay in the tree.
    fn nested(inner: Self::Expr) -> Self::Expr;
    /// `op` before `expr`: a sign, `~` or NOT.
    fn unary(op: UnaryOperator, expr: Self::Expr) -> Self::Expr;
    /// `op` between two operands. The caller has obeyed precedence: what binds closer is inside.
    fn binary(left: Self::Expr, op: BinaryOperator, right: Self::Expr) -> Self::Expr;
    /// IS NULL, or with `negated` IS NOT NULL.
    fn null_test(expr: Self::Expr, negated: bool) -> Self::Expr;
    /// BETWEEN `low` AND `high`, or with `negated` NOT BETWEEN.
    fn between(expr: Self::Expr, negated: bool, low: Self::Expr, high: Self::Expr) -> Self::Expr;
    /// IN (`list`), or with `negated` NOT IN; the list has one element at least.
    fn in_list(expr: Self::Expr, negated: bool, list: Vec<Self::Expr>) -> Self::Expr;
    /// LIKE `pattern`, or with `negated` NOT LIKE; without ESCAPE.
    fn like(expr: Self::Expr, negated: bool, pattern: Self::Expr) -> Self::Expr;
}

/// Makes the nodes of calls, and of what is written like one.
pub(super) trait Calls: Leaves {
    /// The function `name`, as it was written, with any number of arguments. Whether there is one is judged later.
    fn called(name: &str, arguments: Vec<Self::Expr>) -> Self::Expr;
    /// CASE: with an `operand`, conditions are compared with it. Each condition comes with its result; there is one at
    /// least. `otherwise`: after ELSE.
    fn case(
        operand: Option<Self::Expr>,
        conditions: Vec<(Self::Expr, Self::Expr)>,
        otherwise: Option<Self::Expr>,
    ) -> Self::Expr;
    /// CAST or TRY_CAST, by `kind`.
    fn cast(kind: CastKind, expr: Self::Expr, data_type: DataType) -> Self::Expr;
    /// CONVERT, or TRY_CONVERT. `styles`: what follows the expression; T-SQL has one at most, which is judged later.
    fn convert(
        is_try: bool,
        data_type: DataType,
        expr: Self::Expr,
        styles: Vec<Self::Expr>,
    ) -> Self::Expr;
    /// SUBSTRING with its three arguments.
    fn substring(expr: Self::Expr, from: Self::Expr, length: Self::Expr) -> Self::Expr;
    /// TRIM of one argument, which takes blanks from both ends.
    fn trim(expr: Self::Expr) -> Self::Expr;
    /// FLOOR of one argument.
    fn floor(expr: Self::Expr) -> Self::Expr;
}

/// Makes all nodes.
pub(super) trait Nodes: Operators + Calls {}

impl<N: Operators + Calls> Nodes for N {}

/// The parser's nodes.
pub(super) struct Tree;

/// None.
pub(super) struct Nothing;

impl Leaves for Tree {
    type Expr = Expr;

    fn literal(value: impl FnOnce() -> Literal) -> Expr {
        Expr::Value(value().with_empty_span())
    }

    fn named(name: &str) -> Expr {
        Expr::Identifier(Ident::new(name))
    }
}

impl Operators for Tree {
    fn nested(inner: Expr) -> Expr {
        Expr::Nested(Box::new(inner))
    }

    fn unary(op: UnaryOperator, expr: Expr) -> Expr {
        let expr = Box::new(expr);
        Expr::UnaryOp { op, expr }
    }

    fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
        let (left, right) = (Box::new(left), Box::new(right));
        Expr::BinaryOp { left, op, right }
    }

    fn null_test(expr: Expr, negated: bool) -> Expr {
        match negated {
            true => Expr::IsNotNull(Box::new(expr)),
            false => Expr::IsNull(Box::new(expr)),
        }
    }

    fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
        Expr::Between {
            expr: Box::new(expr),
            negated,
            low: Box::new(low),
            high: Box::new(high),
        }
    }

    fn in_list(expr: Expr, negated: bool, list: Vec<Expr>) -> Expr {
        Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
        }
    }

    fn like(expr: Expr, negated: bool, pattern: Expr) -> Expr {
        Expr::Like {
            negated,
            any: false,
            expr: Box::new(expr),
            pattern: Box::new(pattern),
            escape_char: None,
        }
    }
}

impl Calls for Tree {
    fn called(name: &str, arguments: Vec<Expr>) -> Expr {
        let of = |argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument));
        let args = FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(of).collect(),
            clauses: Vec::new(),
        };
        Expr::Function(Function {
            name: ObjectName::from(vec![Ident::new(name)]),
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::List(args),
            within_group: Vec::new(),
            filter: None,
            null_treatment: None,
            over: None,
        })
    }

    fn case(operand: Option<Expr>, conditions: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
        let when = |(condition, result)| CaseWhen { condition, result };
        Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: operand.map(Box::new),
            conditions: conditions.into_iter().map(when).collect(),
            else_result: otherwise.map(Box::new),
        }
    }

    fn cast(kind: CastKind, expr: Expr, data_type: DataType) -> Expr {
        Expr::Cast {
            kind,
            expr: Box::new(expr),
            data_type,
            format: None,
        }
    }

    fn convert(is_try: bool, data_type: DataType, expr: Expr, styles: Vec<Expr>) -> Expr {
        Expr::Convert {
            is_try,
            expr: Box::new(expr),
            data_type: Some(data_type),
            charset: None,
            target_before_value: true,
            styles,
        }
    }

    fn substring(expr: Expr, from: Expr, length: Expr) -> Expr {
        Expr::Substring {
            expr: Box::new(expr),
            substring_from: Some(Box::new(from)),
            substring_for: Some(Box::new(length)),
            special: true,
            shorthand: false,
        }
    }

    fn trim(expr: Expr) -> Expr {
        Expr::Trim {
            expr: Box::new(expr),
            trim_where: None,
            trim_what: None,
            trim_characters: None,
        }
    }

    fn floor(expr: Expr) -> Expr {
        Expr::Floor {
            expr: Box::new(expr),
            field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
        }
    }
}

impl Leaves for Nothing {
    type Expr = ();

    fn literal(_: impl FnOnce() -> Literal) {}
    fn named(_: &str) {}
}

impl Operators for Nothing {
    fn nested((): ()) {}
    fn unary(_: UnaryOperator, (): ()) {}
    fn binary((): (), _: BinaryOperator, (): ()) {}
    fn null_test((): (), _: bool) {}
    fn between((): (), _: bool, (): (), (): ()) {}
    fn in_list((): (), _: bool, _: Vec<()>) {}
    fn like((): (), _: bool, (): ()) {}
}

impl Calls for Nothing {
    fn called(_: &str, _: Vec<()>) {}
    fn case(_: Option<()>, _: Vec<((), ())>, _: Option<()>) {}
    fn cast(_: CastKind, (): (), _: DataType) {}
    fn convert(_: bool, _: DataType, (): (), _: Vec<()>) {}
    fn substring((): (), (): (), (): ()) {}
    fn trim((): ()) {}
    fn floor((): ()) {}
}
