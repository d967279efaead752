//! The language: tokens, statements, and the conversion between text and statements in both directions.
//!
//! ```text
//! text ──lexer──▶ tokens ──parser──▶ Batch ──print──▶ text
//! ```
//!
//! Invariants
//! - A parsed statement is printed as text that parses to the same statement.
//! - No text makes the parser panic, nest deeper than [`DEPTH_MAX`] or allocate more than a small multiple of its
//!   length; a text longer than [`LEN_MAX`] is refused.
//! - Statements and queries are recognised by their tokens only, never by their whole text.
//!
//! Leaves to others: queries and expressions, which are kept as [`Fragment`]s: runs of tokens that [`crate::query`]
//! interprets.

use std::str::FromStr;

use crate::message::Message;

pub mod ast;
mod form;
mod hidden;
pub(crate) mod lexer;
mod option;
mod parser;
mod print;
mod print_data;
mod quotes;
mod set;
mod wait;

pub use ast::*;
pub(crate) use form::{ExpressionForm, Literal, form, marked};
pub use hidden::{may_have_secret, parse};
pub use option::{Applies, Fate, Key, OPTIONS, Shape, Spec, Verb};
pub(crate) use quotes::with_texts;
pub(crate) use set::{Heed, Language, ToldOptions, unheard_of};
pub use set::{SET_OPTIONS, SetFate};
pub(crate) use wait::parse_time;

/// The most nested statements, and the most nested parentheses.
pub const DEPTH_MAX: usize = 64;
/// The most bytes of a batch.
pub const LEN_MAX: usize = 64 << 20;
/// The most characters of a name.
pub const NAME_MAX: usize = 128;

/// The literal or variable of an expression with a single token; `None` for any other expression.
pub(crate) fn single(text: &str) -> Option<Operand> {
    let mut lexer = lexer::Lexer::new(text);
    let token = lexer.token().ok()?;
    (lexer.token().ok()?.kind == lexer::TokenKind::End).then_some(())?;
    Some(match token.kind {
        lexer::TokenKind::Text => Operand::Text(token.value()),
        lexer::TokenKind::Variable => Operand::Variable(token.raw.to_owned()),
        lexer::TokenKind::Number => Operand::Integer(i32::from_str(token.raw).ok()?.into()),
        _ => return None,
    })
}

/// The variables that a text names, each as often as it does, with their offsets.
pub(crate) fn variables<'a>(
    text: &'a str,
    mut each: impl FnMut(&'a str, usize) -> Result<(), Message>,
) -> Result<(), Message> {
    let mut lexer = lexer::Lexer::new(text);
    loop {
        let token = lexer.token()?;
        match token.kind {
            lexer::TokenKind::End => return Ok(()),
            lexer::TokenKind::Variable => each(token.raw, token.at)?,
            _ => {}
        }
    }
}

/// The offset of a text's last token; 0 if it has none.
pub(crate) fn last_token(text: &str) -> usize {
    let mut lexer = lexer::Lexer::new(text);
    let mut last = 0;
    while let Ok(token) = lexer.token()
        && token.kind != lexer::TokenKind::End
    {
        last = token.at;
    }
    last
}

/// A token of a fragment's text.
#[derive(Clone)]
pub(crate) struct FragmentToken {
    pub is_word: bool,
    pub raw: String,
    /// The number of bytes before it.
    pub at: usize,
}

/// The tokens of a text. Words in quotation marks or brackets are no words here.
pub(crate) fn tokens(text: &str) -> Result<Vec<FragmentToken>, Message> {
    let mut lexer = lexer::Lexer::new(text);
    let mut all = Vec::new();
    loop {
        let token = lexer.token()?;
        match token.kind {
            lexer::TokenKind::End => return Ok(all),
            kind => all.push(FragmentToken {
                is_word: kind == lexer::TokenKind::Word,
                raw: token.raw.to_owned(),
                at: token.at,
            }),
        }
    }
}
