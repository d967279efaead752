//! Reads usual expressions: literals, variables, operators, CASE, casts, and functions by their names.
//!
//! The tree is the one that the parser of queries makes of the same text; this reader makes it in a tenth of the time,
//! for it tries nothing that other dialects and queries allow. Where it meets anything else it gives up, and the parser
//! reads the text. A batch is read whole before any of it runs: then only the question is whether there is a tree, and
//! none is made.
//!
//! Invariants
//! - A tree from here equals the parser's (`tests.rs` holds it for texts made at random).
//! - Depth and length are bounded, below the parser's own bounds.
//!
//! Leaves to others: the nodes (`node.rs`), types and conversions (`translate.rs`), and the values (`evaluate.rs`).

use std::marker::PhantomData;

use sqlparser::ast::{BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator};
use sqlparser::ast::{CharacterLength, Value as Literal};

use super::super::moment::DatePart;
use super::super::translate::takes;
use super::node::{Nodes, Nothing, Tree};
use crate::syntax::lexer::{Lexer, Token, TokenKind};

/// The most tokens, and the most nested expressions.
const TOKENS_MAX: usize = 200;
const DEPTH_MAX: usize = 24;

// How tightly operators bind, as in the parser.
const OR: u8 = 5;
const AND: u8 = 10;
const NOT: u8 = 15;
const IS: u8 = 17;
const LIKE: u8 = 19;
const COMPARISON: u8 = 20;
const SIGN: u8 = 40;

/// Functions whose arguments are expressions and nothing else.
pub(in crate::query) const FUNCTIONS: &[&str] = &[
    "ABS",
    "ASCII",
    "CEILING",
    "CHAR",
    "CHARINDEX",
    "COALESCE",
    "CONCAT",
    "CURSOR_STATUS",
    "DATALENGTH",
    "DAY",
    "DB_ID",
    "DB_NAME",
    "EOMONTH",
    "ERROR_LINE",
    "ERROR_MESSAGE",
    "ERROR_NUMBER",
    "ERROR_PROCEDURE",
    "ERROR_SEVERITY",
    "ERROR_STATE",
    "GETDATE",
    "GETUTCDATE",
    "HOST_NAME",
    "IIF",
    "ISDATE",
    "ISNULL",
    "ISNUMERIC",
    "LEFT",
    "LEN",
    "LOWER",
    "LTRIM",
    "MONTH",
    "NCHAR",
    "NULLIF",
    "OBJECT_ID",
    "POWER",
    "QUOTENAME",
    "REPLACE",
    "REPLICATE",
    "REVERSE",
    "RIGHT",
    "ROUND",
    "RTRIM",
    "SERVERPROPERTY",
    "SIGN",
    "SPACE",
    "SQRT",
    "STR",
    "STUFF",
    "SUSER_SNAME",
    "SYSDATETIME",
    "UPPER",
    "XACT_STATE",
    "YEAR",
];

/// Functions whose first argument is the name of a part of a date.
pub(in crate::query) const OF_PARTS: &[&str] = &["DATEADD", "DATEDIFF", "DATENAME", "DATEPART"];

/// The tree of an expression; `None`: the parser has to read it.
pub(in crate::query) fn read(text: &str) -> Option<Expr> {
    made::<Tree>(text)
}

/// Whether [`read`] can read it.
pub(super) fn is_readable(text: &str) -> bool {
    made::<Nothing>(text).is_some()
}

pub(super) fn made<N: Nodes>(text: &str) -> Option<N::Expr> {
    let mut lexer = Lexer::new(text);
    let next = lexer.token().ok()?;
    let mut reader = Reader::<N> {
        lexer,
        next,
        tokens: TOKENS_MAX,
        depth: DEPTH_MAX,
        nodes: PhantomData,
    };
    let expr = reader.expression(0)?;
    (reader.next.kind == TokenKind::End).then_some(expr)
}

struct Reader<'a, N> {
    lexer: Lexer<'a>,
    next: Token<'a>,
    /// How many more there may be.
    tokens: usize,
    depth: usize,
    nodes: PhantomData<N>,
}

impl<'a, N: Nodes> Reader<'a, N> {
    fn token(&mut self) -> Option<Token<'a>> {
        self.tokens = self.tokens.checked_sub(1)?;
        let following = self.lexer.token().ok()?;
        Some(std::mem::replace(&mut self.next, following))
    }

    fn take(&mut self, symbol: &str) -> Option<()> {
        self.next.is(symbol).then_some(())?;
        self.token().map(drop)
    }

    fn takes(&mut self, symbol: &str) -> Option<bool> {
        match self.next.is(symbol) {
            true => self.token().map(|_| true),
            false => Some(false),
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.next.is_word(word).then_some(())?;
        self.token().map(drop)
    }

    fn takes_word(&mut self, word: &str) -> Option<bool> {
        match self.next.is_word(word) {
            true => self.token().map(|_| true),
            false => Some(false),
        }
    }

    /// An expression of operators that bind more tightly.
    fn expression(&mut self, least: u8) -> Option<N::Expr> {
        self.depth = self.depth.checked_sub(1)?;
        let mut expr = self.operand()?;
        while let Some(binds) = self.operator() {
            if least >= binds {
                break;
            }
            expr = self.after(expr, binds)?;
        }
        self.depth += 1;
        Some(expr)
    }

    /// How tightly the next token binds, if it is an operator.
    fn operator(&self) -> Option<u8> {
        let next = &self.next;
        match next.kind {
            TokenKind::Symbol => binary(next.raw).map(|(binds, _)| binds),
            TokenKind::Word if next.is_word("AND") => Some(AND),
            TokenKind::Word if next.is_word("OR") => Some(OR),
            TokenKind::Word if next.is_word("IS") => Some(IS),
            TokenKind::Word if next.is_word("LIKE") => Some(LIKE),
            TokenKind::Word if next.is_word("IN") || next.is_word("BETWEEN") => Some(COMPARISON),
            TokenKind::Word if next.is_word("NOT") => {
                let following = self.lexer.clone().token().ok()?;
                match following.is_word("LIKE") {
                    true => Some(LIKE),
                    false if following.is_word("IN") || following.is_word("BETWEEN") => {
                        Some(COMPARISON)
                    }
                    false => None,
                }
            }
            _ => None,
        }
    }

    /// The expression that an operator makes of its left side.
    fn after(&mut self, left: N::Expr, binds: u8) -> Option<N::Expr> {
        let token = self.token()?;
        let op = match token.kind {
            TokenKind::Symbol => binary(token.raw).map(|(_, op)| op),
            _ if token.is_word("AND") => Some(BinaryOperator::And),
            _ if token.is_word("OR") => Some(BinaryOperator::Or),
            _ => None,
        };
        if let Some(op) = op {
            return Some(N::binary(left, op, self.expression(binds)?));
        }
        if token.is_word("IS") {
            let negated = self.takes_word("NOT")?;
            self.word("NULL")?;
            return Some(N::null_test(left, negated));
        }
        let negated = token.is_word("NOT");
        let word = if negated { self.token()? } else { token };
        if word.is_word("BETWEEN") {
            let low = self.expression(COMPARISON)?;
            self.word("AND")?;
            return Some(N::between(left, negated, low, self.expression(COMPARISON)?));
        }
        if word.is_word("IN") {
            self.take("(")?;
            return Some(N::in_list(left, negated, self.list()?));
        }
        Some(N::like(left, negated, self.expression(LIKE)?))
    }

    /// At least one expression, between commas, up to the closing parenthesis.
    fn list(&mut self) -> Option<Vec<N::Expr>> {
        let mut all = vec![self.expression(0)?];
        while self.takes(",")? {
            all.push(self.expression(0)?);
        }
        self.take(")")?;
        Some(all)
    }

    /// An operand: a literal, a variable, a call, or an expression in parentheses, with its sign.
    fn operand(&mut self) -> Option<N::Expr> {
        let token = self.token()?;
        match token.kind {
            TokenKind::Text => Some(N::literal(|| match token.raw.starts_with('\'') {
                true => Literal::SingleQuotedString(token.value()),
                false => Literal::NationalStringLiteral(token.value()),
            })),
            TokenKind::Number => {
                let is_plain =
                    !token.raw.starts_with('$') && !matches!(token.raw.get(..2), Some("0x" | "0X"));
                is_plain.then(|| N::literal(|| Literal::Number(token.raw.to_owned(), false)))
            }
            TokenKind::Variable => Some(N::named(token.raw)),
            TokenKind::Symbol => match token.raw {
                "(" => {
                    let inner = self.expression(0)?;
                    self.take(")")?;
                    Some(N::nested(inner))
                }
                "-" => self.signed(UnaryOperator::Minus, SIGN),
                "+" => self.signed(UnaryOperator::Plus, SIGN),
                _ => None,
            },
            TokenKind::Word => self.after_word(token.raw),
            _ => None,
        }
    }

    fn signed(&mut self, op: UnaryOperator, binds: u8) -> Option<N::Expr> {
        Some(N::unary(op, self.expression(binds)?))
    }

    fn after_word(&mut self, word: &str) -> Option<N::Expr> {
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        if is("NULL") {
            return Some(N::literal(|| Literal::Null));
        }
        if is("NOT") {
            return self.signed(UnaryOperator::Not, NOT);
        }
        if is("CASE") {
            return self.case();
        }
        // Everything else is called.
        self.take("(")?;
        if is("CAST") || is("TRY_CAST") {
            return self.cast(if is("CAST") {
                CastKind::Cast
            } else {
                CastKind::TryCast
            });
        }
        if is("CONVERT") || is("TRY_CONVERT") {
            return self.convert(is("TRY_CONVERT"));
        }
        if is("SUBSTRING") || is("TRIM") || is("FLOOR") {
            return self.special(word);
        }
        let among = |all: &[&str]| all.iter().any(|name| is(name));
        let part = match among(OF_PARTS) {
            true => {
                let part = self.token()?;
                self.take(",")?;
                let is_part = part.kind == TokenKind::Word && DatePart::of(part.raw).is_some();
                Some(is_part.then(|| N::named(part.raw))?)
            }
            false if among(FUNCTIONS) => None,
            false => return None,
        };
        let mut arguments = Vec::from_iter(part);
        match arguments.is_empty() && self.takes(")")? {
            true => {}
            false => arguments.append(&mut self.list()?),
        }
        // A wrong number is found before the batch runs.
        takes(word, arguments.len()).then(|| N::called(word, arguments))
    }

    fn case(&mut self) -> Option<N::Expr> {
        let operand = match self.next.is_word("WHEN") {
            true => None,
            false => Some(self.expression(0)?),
        };
        let mut conditions = Vec::new();
        while self.takes_word("WHEN")? {
            let condition = self.expression(0)?;
            self.word("THEN")?;
            let result = self.expression(0)?;
            conditions.push((condition, result));
        }
        let otherwise = match self.takes_word("ELSE")? {
            true => Some(self.expression(0)?),
            false => None,
        };
        self.word("END")?;
        (!conditions.is_empty()).then(|| N::case(operand, conditions, otherwise))
    }

    fn cast(&mut self, kind: CastKind) -> Option<N::Expr> {
        let expr = self.expression(0)?;
        self.word("AS")?;
        let data_type = self.data_type()?;
        self.take(")")?;
        Some(N::cast(kind, expr, data_type))
    }

    fn convert(&mut self, is_try: bool) -> Option<N::Expr> {
        let data_type = self.data_type()?;
        self.take(",")?;
        let expr = self.expression(0)?;
        let styles = match self.takes(",")? {
            true => self.list()?,
            false => {
                self.take(")")?;
                Vec::new()
            }
        };
        Some(N::convert(is_try, data_type, expr, styles))
    }

    /// Functions that have a place of their own in the parser's tree.
    fn special(&mut self, word: &str) -> Option<N::Expr> {
        let expr = self.expression(0)?;
        let made = if word.eq_ignore_ascii_case("SUBSTRING") {
            self.take(",")?;
            let from = self.expression(0)?;
            self.take(",")?;
            N::substring(expr, from, self.expression(0)?)
        } else if word.eq_ignore_ascii_case("TRIM") {
            N::trim(expr)
        } else {
            N::floor(expr)
        };
        self.take(")")?;
        Some(made)
    }

    fn data_type(&mut self) -> Option<DataType> {
        let name = self.token()?;
        (name.kind == TokenKind::Word).then_some(())?;
        let is = |other: &str| name.raw.eq_ignore_ascii_case(other);
        for (word, kind) in PLAIN_TYPES {
            if is(word) {
                return Some(kind.clone());
            }
        }
        if is("VARCHAR") {
            return Some(DataType::Varchar(self.length()?));
        }
        if is("NVARCHAR") {
            return Some(DataType::Nvarchar(self.length()?));
        }
        if is("CHAR") {
            return Some(DataType::Char(self.length()?));
        }
        if is("DECIMAL") {
            return Some(DataType::Decimal(self.digits()?));
        }
        if is("NUMERIC") {
            return Some(DataType::Numeric(self.digits()?));
        }
        None
    }

    fn number(&mut self) -> Option<u64> {
        let token = self.token()?;
        (token.kind == TokenKind::Number).then(|| token.raw.parse().ok())?
    }

    fn length(&mut self) -> Option<Option<CharacterLength>> {
        if !self.takes("(")? {
            return Some(None);
        }
        let length = match self.takes_word("MAX")? {
            true => CharacterLength::Max,
            false => CharacterLength::IntegerLength {
                length: self.number()?,
                unit: None,
            },
        };
        self.take(")")?;
        Some(Some(length))
    }

    fn digits(&mut self) -> Option<ExactNumberInfo> {
        if !self.takes("(")? {
            return Some(ExactNumberInfo::None);
        }
        let precision = self.number()?;
        let info = match self.takes(",")? {
            true => {
                let scale = i64::try_from(self.number()?).ok()?;
                ExactNumberInfo::PrecisionAndScale(precision, scale)
            }
            false => ExactNumberInfo::Precision(precision),
        };
        self.take(")")?;
        Some(info)
    }
}

/// Types without sizes; the parser reads sizes after them.
const PLAIN_TYPES: &[(&str, DataType)] = &[
    ("BIGINT", DataType::BigInt(None)),
    ("BIT", DataType::Bit(None)),
    ("DATE", DataType::Date),
    ("DATETIME", DataType::Datetime(None)),
    ("FLOAT", DataType::Float(ExactNumberInfo::None)),
    ("INT", DataType::Int(None)),
    ("SMALLINT", DataType::SmallInt(None)),
    ("TINYINT", DataType::TinyInt(None)),
];

/// How tightly a symbol binds, and the operator that it is.
fn binary(symbol: &str) -> Option<(u8, BinaryOperator)> {
    Some(match symbol {
        "=" => (COMPARISON, BinaryOperator::Eq),
        "<>" | "!=" => (COMPARISON, BinaryOperator::NotEq),
        "<" => (COMPARISON, BinaryOperator::Lt),
        ">" => (COMPARISON, BinaryOperator::Gt),
        "<=" => (COMPARISON, BinaryOperator::LtEq),
        ">=" => (COMPARISON, BinaryOperator::GtEq),
        "|" => (21, BinaryOperator::BitwiseOr),
        "^" => (22, BinaryOperator::BitwiseXor),
        "&" => (23, BinaryOperator::BitwiseAnd),
        "+" => (30, BinaryOperator::Plus),
        "-" => (30, BinaryOperator::Minus),
        "*" => (40, BinaryOperator::Multiply),
        "/" => (40, BinaryOperator::Divide),
        "%" => (40, BinaryOperator::Modulo),
        _ => return None,
    })
}
