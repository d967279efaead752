//! Statements that are refused by name when they are reached, and not before: SQL Server runs what stands around them.
//!
//! Invariants
//! - The text is skipped up to the statement's end, so no part of it is taken for a statement of its own.
//! - A text that is kept shows no literal of a statement about a password or a secret.
//!
//! Leaves to others: which statements are refused (`elsewhere.rs`, `server.rs` and others of this directory), and the refusal
//! (`run.rs`).

use super::{Parser, STATEMENTS, is_any};
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::Statement;
use crate::syntax::lexer::{Token, TokenKind};
use crate::syntax::{may_have_secret, tokens};

/// A place in the text to which the parser can return.
pub(super) struct ParsePoint<'a> {
    at: usize,
    token: Token<'a>,
    next: Token<'a>,
    last: Token<'a>,
    line: u32,
    line_at: usize,
}

/// Objects whose statement takes all of its batch.
const WHOLE: &[&str] = &[
    "DEFAULT",
    "FUNCTION",
    "OR",
    "PROC",
    "PROCEDURE",
    "RULE",
    "SCHEMA",
    "TRIGGER",
    "VIEW",
];

/// Words that begin a statement after any of these do not.
const BEFORE: &[&str] = &["BULK", "FOR", "GOVERNOR", "NO", "ON", "START", "WITH"];

/// Pairs of words, the first of which begins no statement where the other one follows.
const PAIRS: &[(&str, &str)] = &[
    ("ALTER", "COLUMN"),
    ("DROP", "COLUMN"),
    ("DROP", "CONSTRAINT"),
    ("DROP", "CREDENTIAL"),
    ("DROP", "ENCRYPTION"),
    ("DROP", "EVENT"),
    ("DROP", "MEMBER"),
    ("DROP", "PERIOD"),
    ("DROP", "TARGET"),
    ("MERGE", "RANGE"),
    ("SET", "DEFAULT"),
    ("SET", "NULL"),
];

/// The place of a literal that is not shown.
const HIDDEN: &str = "'***'";

impl<'a> Parser<'a> {
    pub(super) fn mark(&self) -> ParsePoint<'a> {
        ParsePoint {
            at: self.lexer.at(),
            token: self.token,
            next: self.next,
            last: self.last,
            line: self.line,
            line_at: self.line_at,
        }
    }

    /// The statement that begins at the mark, which was refused. Errors: the refusal, where the statement's end cannot be told.
    pub(super) fn refused(
        &mut self,
        begun: &ParsePoint<'a>,
        refusal: Message,
        depth: usize,
    ) -> Result<Statement, Message> {
        self.lexer.return_to(begun.at);
        (self.token, self.next, self.last) = (begun.token, begun.next, begun.last);
        (self.line, self.line_at) = (begun.line, begun.line_at);
        // Its clauses begin with words of statements.
        if self.is_word("MERGE") {
            return Err(refusal);
        }
        let from = self.token.at;
        let rest = NOT_HERE.pattern.trim_start_matches("{}");
        let what = refusal.text.strip_suffix(rest).unwrap_or_default();
        let what = what.to_owned();
        self.skip(refusal, depth == 0)?;
        let text = &self.text[from..self.last.at + self.last.raw.len()];
        let hides = may_have_secret(text) || text.to_ascii_lowercase().contains("secret");
        let mut shown: Vec<String> = Vec::new();
        for token in tokens(text)? {
            shown.push(match hides && token.raw.ends_with('\'') {
                true => HIDDEN.to_owned(),
                false => token.raw,
            });
        }
        while shown.last().is_some_and(|last| last == ";") {
            shown.pop();
        }
        let text = shown.join(" ");
        Ok(Statement::Refused { what, text })
    }

    /// Skips a statement. `is_outermost`: no block is around it.
    fn skip(&mut self, refusal: Message, is_outermost: bool) -> Result<(), Message> {
        let (first, second) = (self.token, self.next);
        let is_defining = is_any(&first, &["ALTER", "CREATE"]);
        let whole = is_outermost
            && is_defining
            && is_any(&second, WHOLE)
            && !(first.is_word("ALTER") && second.is_word("SCHEMA"));
        let grants = is_any(&first, &["DENY", "GRANT", "REVOKE"]);
        let mut is_granted = false;
        let (mut depth, mut count, mut selects, mut sets) = (0_usize, 0_usize, 0, 0);
        loop {
            match self.token.kind {
                TokenKind::End => break,
                TokenKind::Strange => return Err(refusal),
                TokenKind::Symbol => match self.token.raw {
                    "(" => depth += 1,
                    ")" if depth == 0 => break,
                    ")" => depth -= 1,
                    ";" if depth == 0 && !whole => break,
                    _ => {}
                },
                TokenKind::Word if depth == 0 && count > 0 && !whole => {
                    is_granted |= is_any(&self.token, &["FROM", "TO"]);
                    let is_new = is_any(&self.token, STATEMENTS) || self.is_label();
                    let continues = (grants && !is_granted)
                        || is_any(&self.last, BEFORE)
                        || self.is_pair()
                        || (first.is_word("DROP") && count == 2 && self.next.is_word("EXISTS"))
                        || self.selects(&first, &mut selects)
                        || self.sets((&first, &second), count, &mut sets);
                    if is_new && !continues {
                        break;
                    }
                }
                _ => {}
            }
            self.advance()?;
            count += 1;
        }
        Ok(())
    }

    fn is_pair(&self) -> bool {
        let is = |(one, other): &(&str, &str)| self.is_word(one) && self.next.is_word(other);
        PAIRS.iter().any(is) || (self.is_word("DROP") && self.next.is("("))
    }

    /// Whether a query, or a call, belongs to a statement: one does, and what is combined with it.
    fn selects(&self, first: &Token, count: &mut usize) -> bool {
        let takes = is_any(first, &["DECLARE", "INSERT", "SET"]);
        let begins = is_any(&self.token, &["EXEC", "EXECUTE", "SELECT"]);
        if !takes || !begins {
            return false;
        }
        *count += usize::from(!self.is_combined());
        *count <= 1
    }

    /// Whether SET belongs to a statement: to UPDATE, to ALTER DATABASE after the name, and before parentheses.
    fn sets(&self, (first, second): (&Token, &Token), at: usize, count: &mut usize) -> bool {
        if !self.is_word("SET") {
            return false;
        }
        *count += 1;
        let of_alter = first.is_word("ALTER")
            && (self.next.is("(")
                || self.last.is_word("CONFIGURATION")
                || (second.is_word("DATABASE") && at <= 3));
        *count <= 1 && (first.is_word("UPDATE") || of_alter)
    }
}
