//! The language: tokens, statements, and both directions between text and statements.
//!
//! ```text
//! text ──lexer──▶ tokens ──parser──▶ Batch ──print──▶ text
//! ```
//!
//! Invariants
//! - What was parsed is printed as text that parses to the same.
//! - No text makes the parser panic, nest deeper than [`DEPTH_MAX`] or allocate more than a small multiple of its
//!   length; a longer text than [`LEN_MAX`] is refused.
//! - Nothing is recognised by the text of a whole statement or query: only by its tokens.
//!
//! Queries and expressions are kept as [`Fragment`]s: runs of tokens whose meaning [`crate::query`] finds.

use std::str::FromStr;

pub mod ast;
mod lexer;
mod option;
mod parser;
mod print;
mod set;

pub use ast::*;
pub use option::{Applies, Fate, Key, OPTIONS, Shape, Spec, Verb};
pub use parser::parse;
pub(crate) use set::unheard_of;
pub use set::{SET_OPTIONS, SetFate};

/// Statements inside statements, and parentheses inside parentheses, at most.
pub const DEPTH_MAX: usize = 64;
/// Bytes of a batch, at most.
pub const LEN_MAX: usize = 64 << 20;
/// Characters of a name, at most.
pub const NAME_MAX: usize = 128;

/// What an expression is that has one token: a literal or a variable. `None`: it has more, or other ones.
pub(crate) fn single(text: &str) -> Option<Operand> {
    let mut lexer = lexer::Lexer::new(text);
    let token = lexer.token().ok()?;
    let operand = match token.kind {
        lexer::Kind::Text => Operand::Text(token.value()),
        lexer::Kind::Variable => Operand::Variable(token.raw.to_owned()),
        lexer::Kind::Number => Operand::Integer(i32::from_str(token.raw).ok()?.into()),
        _ => return None,
    };
    (lexer.token().ok()?.kind == lexer::Kind::End).then_some(operand)
}

/// The tokens of a text: whether each is a bare word, and as it was written.
pub(crate) fn tokens(text: &str) -> Result<Vec<(bool, String)>, crate::message::Message> {
    let mut lexer = lexer::Lexer::new(text);
    let mut all = Vec::new();
    loop {
        let token = lexer.token()?;
        match token.kind {
            lexer::Kind::End => return Ok(all),
            kind => all.push((kind == lexer::Kind::Word, token.raw.to_owned())),
        }
    }
}
