//! SQL of an expression as a tree: written out for SQLite, or evaluated without it.
//!
//! Invariants
//! - The length is that of the written text, so it can be bounded before anything is written.
//! - Values are numbers of parameters, never text.
//!
//! Leaves to others: making the tree (`translate`), and evaluating it (`direct`).

use std::fmt;

use super::collation::Collation;
use crate::value::{Type, Value};

/// The value or the type that a number in SQL stands for.
#[derive(Debug, Clone)]
pub(super) enum Parameter {
    Value(Value),
    /// A type, for a function of ours. SQLite has no types, so there it is a name.
    Type(Type),
}

impl From<Parameter> for Value {
    fn from(parameter: Parameter) -> Value {
        match parameter {
            Parameter::Value(value) => value,
            Parameter::Type(kind) => Value::text(kind.to_string()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Sql {
    pub node: Node,
    len: usize,
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    /// What SQLite alone can evaluate: columns, subqueries, aggregates.
    Text(String),
    Null,
    /// The parameter of this number, from 1.
    Bound(usize),
    /// `(expression)`
    Nested(Box<Sql>),
    /// A function's name and arguments.
    Call(&'static str, Vec<Sql>),
    /// `(word expression)`
    Unary(&'static str, Box<Sql>),
    /// `(left word right)`
    Binary(Box<Sql>, &'static str, Box<Sql>),
    /// Whether one of these is true: a row of alternatives, which may be long.
    Any(Vec<Sql>),
    /// `(expression IS NULL)`, or NOT.
    IsNull(Box<Sql>, bool),
    /// The right side of a comparison of texts.
    Collated(Box<Sql>, Collation),
    /// Conditions with their values, and the value of ELSE.
    Case(Vec<(Sql, Sql)>, Option<Box<Sql>>),
}

impl Sql {
    fn new(node: Node) -> Sql {
        let len = match &node {
            Node::Text(text) => text.len(),
            Node::Null => 4,
            Node::Bound(n) => 2 + n.checked_ilog10().unwrap_or(0) as usize,
            Node::Nested(inner) => inner.len + 2,
            Node::Call(name, arguments) => {
                let between = 2 * arguments.len().saturating_sub(1);
                name.len() + 2 + between + arguments.iter().map(Sql::len).sum::<usize>()
            }
            Node::Unary(word, inner) => word.len() + inner.len + 3,
            Node::Binary(left, word, right) => left.len + word.len() + right.len + 4,
            Node::Any(all) => {
                let between = 4 * all.len().saturating_sub(1);
                between + all.iter().map(Sql::len).sum::<usize>()
            }
            Node::IsNull(inner, true) => inner.len + 10,
            Node::IsNull(inner, false) => inner.len + 14,
            Node::Collated(inner, collation) => inner.len + collation.clause().len(),
            Node::Case(branches, otherwise) => {
                let each = branches.iter().map(|(a, b)| a.len + b.len + 12);
                let otherwise = otherwise.as_ref().map_or(0, |o| o.len + 6);
                8 + each.sum::<usize>() + otherwise
            }
        };
        Sql { node, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn null() -> Sql {
        Sql::new(Node::Null)
    }

    pub fn bound(number: usize) -> Sql {
        Sql::new(Node::Bound(number))
    }

    pub fn nested(self) -> Sql {
        Sql::new(Node::Nested(Box::new(self)))
    }

    pub fn call(name: &'static str, arguments: impl Into<Vec<Sql>>) -> Sql {
        Sql::new(Node::Call(name, arguments.into()))
    }

    pub fn unary(word: &'static str, inner: Sql) -> Sql {
        Sql::new(Node::Unary(word, Box::new(inner)))
    }

    pub fn binary(self, word: &'static str, right: Sql) -> Sql {
        Sql::new(Node::Binary(Box::new(self), word, Box::new(right)))
    }

    pub fn any(all: Vec<Sql>) -> Sql {
        Sql::new(Node::Any(all))
    }

    /// `IS NULL`, or `IS NOT NULL`.
    pub fn null_test(self, is: bool) -> Sql {
        Sql::new(Node::IsNull(Box::new(self), is))
    }

    pub fn collated(self, collation: Option<Collation>) -> Sql {
        match collation {
            Some(collation) => Sql::new(Node::Collated(Box::new(self), collation)),
            None => self,
        }
    }

    pub fn case(branches: Vec<(Sql, Sql)>, otherwise: Option<Sql>) -> Sql {
        Sql::new(Node::Case(branches, otherwise.map(Box::new)))
    }

    /// `NOT`, where it is to be.
    pub fn negated_if(self, is: bool) -> Sql {
        match is {
            true => Sql::unary("NOT", self),
            false => self.nested(),
        }
    }
}

impl From<String> for Sql {
    fn from(text: String) -> Sql {
        Sql::new(Node::Text(text))
    }
}

impl From<&str> for Sql {
    fn from(text: &str) -> Sql {
        text.to_owned().into()
    }
}

impl From<&String> for Sql {
    fn from(text: &String) -> Sql {
        text.to_owned().into()
    }
}

impl fmt::Display for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Text(text) => f.write_str(text),
            Node::Null => f.write_str("NULL"),
            Node::Bound(number) => write!(f, "?{number}"),
            Node::Nested(inner) => write!(f, "({inner})"),
            Node::Call(name, arguments) => {
                write!(f, "{name}(")?;
                for (i, argument) in arguments.iter().enumerate() {
                    let between = if i > 0 { ", " } else { "" };
                    write!(f, "{between}{argument}")?;
                }
                f.write_str(")")
            }
            Node::Unary(word, inner) => write!(f, "({word} {inner})"),
            Node::Binary(left, word, right) => write!(f, "({left} {word} {right})"),
            Node::Any(all) => {
                for (i, one) in all.iter().enumerate() {
                    let between = if i > 0 { " OR " } else { "" };
                    write!(f, "{between}{one}")?;
                }
                Ok(())
            }
            Node::IsNull(inner, true) => write!(f, "({inner} IS NULL)"),
            Node::IsNull(inner, false) => write!(f, "({inner} IS NOT NULL)"),
            Node::Collated(inner, collation) => write!(f, "{inner}{}", collation.clause()),
            Node::Case(branches, otherwise) => {
                f.write_str("CASE")?;
                for (condition, value) in branches {
                    write!(f, " WHEN {condition} THEN {value}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                f.write_str(" END")
            }
        }
    }
}
