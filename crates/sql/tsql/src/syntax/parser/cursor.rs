//! Parses the statements of cursors: DECLARE CURSOR, SET @c = CURSOR, OPEN, FETCH, CLOSE and DEALLOCATE.
//!
//! Invariants
//! - Both forms of a declaration are parsed, SQL-92's and T-SQL's; options of both are not mixed (1049).
//! - Options that exclude each other are refused before anything runs (1048, 1058).
//! - Updates of a cursor's rows are not supported here: they are refused by name.
//!
//! Leaves to others: the query, which stays text (`fragment` in `mod.rs`), and running statements
//! (`statement/cursor.rs`).

use super::{Parser, STATEMENTS, is_any};
use crate::message::{self, Message, NOT_HERE};
use crate::syntax::ast::{
    CursorName, CursorOption, CursorQuery, DeclaredCursor, Fetch, FetchRow, Operand, Statement,
};
use crate::syntax::lexer::TokenKind;

/// The words of T-SQL's options, after CURSOR.
pub(crate) const OPTIONS: &[(&str, CursorOption)] = &[
    ("LOCAL", CursorOption::Local),
    ("GLOBAL", CursorOption::Global),
    ("FORWARD_ONLY", CursorOption::ForwardOnly),
    ("SCROLL", CursorOption::Scroll),
    ("STATIC", CursorOption::Static),
    ("INSENSITIVE", CursorOption::Insensitive),
    ("KEYSET", CursorOption::Keyset),
    ("DYNAMIC", CursorOption::Dynamic),
    ("FAST_FORWARD", CursorOption::FastForward),
    ("READ_ONLY", CursorOption::ReadOnly),
    ("SCROLL_LOCKS", CursorOption::ScrollLocks),
    ("OPTIMISTIC", CursorOption::Optimistic),
    ("TYPE_WARNING", CursorOption::TypeWarning),
];

/// Options of which a cursor has at most one.
const EXCLUSIVE: &[&[CursorOption]] = &[
    &[CursorOption::Local, CursorOption::Global],
    &[CursorOption::ForwardOnly, CursorOption::Scroll],
    &[
        CursorOption::Static,
        CursorOption::Keyset,
        CursorOption::Dynamic,
        CursorOption::FastForward,
    ],
    &[
        CursorOption::ReadOnly,
        CursorOption::ScrollLocks,
        CursorOption::Optimistic,
    ],
    &[CursorOption::Scroll, CursorOption::FastForward],
    &[CursorOption::FastForward, CursorOption::ScrollLocks],
    &[CursorOption::FastForward, CursorOption::Optimistic],
    &[CursorOption::Static, CursorOption::ScrollLocks],
];

pub(crate) fn word_of(option: CursorOption) -> &'static str {
    let found = OPTIONS.iter().find(|(_, known)| *known == option);
    found.map_or("", |(word, _)| word)
}

/// The two options that exclude each other, in the order in which the message names them.
fn conflict(options: &[CursorOption]) -> Option<(CursorOption, CursorOption)> {
    for (i, one) in options.iter().enumerate() {
        for other in options[..i].iter().filter(|other| *other != one) {
            let excludes = |all: &&&[CursorOption]| all.contains(one) && all.contains(other);
            if EXCLUSIVE.iter().find(excludes).is_some() {
                return Some((*one.min(other), *one.max(other)));
            }
        }
    }
    None
}

impl Parser<'_> {
    fn is_name(&self) -> bool {
        match self.token.kind {
            TokenKind::Word => !is_any(&self.token, STATEMENTS),
            kind => matches!(kind, TokenKind::Bracketed | TokenKind::Quoted),
        }
    }

    /// Whether a cursor's name comes after DECLARE.
    pub(super) fn names_cursor(&self) -> bool {
        let after = ["CURSOR", "INSENSITIVE", "SCROLL"];
        self.is_name() && after.iter().any(|word| self.next.is_word(word))
    }

    /// Whether FOR READ ONLY or FOR UPDATE ends a cursor's query here.
    pub(super) fn is_for_cursor(&self) -> bool {
        self.is_word("FOR") && (self.next.is_word("READ") || self.next.is_word("UPDATE"))
    }

    pub(super) fn declare_cursor(&mut self) -> Result<Statement, Message> {
        let name = self.identifier()?;
        let mut options = Vec::new();
        if self.take_word("INSENSITIVE")? {
            options.push(CursorOption::Insensitive);
        }
        if self.take_word("SCROLL")? {
            options.push(CursorOption::Scroll);
        }
        let cursor = self.cursor_query(options)?;
        Ok(Statement::DeclareCursor(Box::new(DeclaredCursor {
            name,
            cursor,
        })))
    }

    pub(super) fn set_cursor(&mut self, variable: String) -> Result<Statement, Message> {
        let cursor = Box::new(self.cursor_query(Vec::new())?);
        Ok(Statement::SetCursor { variable, cursor })
    }

    /// From CURSOR on. `options`: those before it.
    fn cursor_query(&mut self, mut options: Vec<CursorOption>) -> Result<CursorQuery, Message> {
        self.expect_word("CURSOR")?;
        let is_iso = !options.is_empty();
        while self.token.kind == TokenKind::Word && !self.is_word("FOR") {
            let found = OPTIONS.iter().find(|(word, _)| self.is_word(word));
            let Some((_, option)) = found.filter(|(_, o)| *o != CursorOption::Insensitive) else {
                return Err(self.syntax());
            };
            if is_iso {
                return Err(self.wrong(message::CURSOR_MIXED.plain()));
            }
            if !options.contains(option) {
                options.push(*option);
            }
            if let Some((one, other)) = conflict(&options) {
                let named = message::CURSOR_CONFLICT.with(&[&word_of(one), &word_of(other)]);
                return Err(self.wrong(named));
            }
            self.advance()?;
        }
        self.expect_word("FOR")?;
        let begins = self.is_word("SELECT") || self.is_word("WITH") || self.is("(");
        if !begins {
            return Err(self.syntax());
        }
        let query = self.fragment(false)?;
        let mut for_read_only = false;
        if self.is_for_cursor() {
            let refused = self.wrong(NOT_HERE.with(&[&"DECLARE CURSOR … FOR UPDATE"]));
            self.advance()?;
            if !self.take_word("READ")? {
                return Err(refused);
            }
            self.expect_word("ONLY")?;
            if options.contains(&CursorOption::ReadOnly) {
                return Err(self.wrong(message::CURSOR_READ_ONLY_TWICE.plain()));
            }
            for_read_only = true;
        }
        Ok(CursorQuery {
            is_iso,
            options,
            query,
            for_read_only,
        })
    }

    /// The statement of this word, if it is one of cursors.
    pub(super) fn cursor_statement(&mut self, word: &str) -> Result<Option<Statement>, Message> {
        let verb = match word {
            "OPEN" => Statement::OpenCursor,
            "CLOSE" => Statement::CloseCursor,
            "DEALLOCATE" => Statement::DeallocateCursor,
            "FETCH" => return self.fetch().map(Some),
            _ => return Ok(None),
        };
        self.advance()?;
        if self.is_word("MASTER") && self.next.is_word("KEY") && word != "DEALLOCATE" {
            return self.master_key(word).map(Some);
        }
        Ok(Some(verb(self.cursor_name()?)))
    }

    fn cursor_name(&mut self) -> Result<CursorName, Message> {
        if self.token.kind == TokenKind::Variable {
            return Ok(CursorName::Variable(self.variable()?));
        }
        let followed = match self.next.kind {
            TokenKind::Word => !is_any(&self.next, STATEMENTS) && !self.next.is_word("INTO"),
            kind => matches!(kind, TokenKind::Bracketed | TokenKind::Quoted),
        };
        let global = followed && self.take_word("GLOBAL")?;
        let name = self.identifier()?;
        Ok(CursorName::Named { global, name })
    }

    fn fetch(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let mut which = FetchRow::Next;
        let plain = [
            ("NEXT", FetchRow::Next),
            ("PRIOR", FetchRow::Prior),
            ("FIRST", FetchRow::First),
            ("LAST", FetchRow::Last),
        ];
        if self.next.is_word("FROM") {
            let found = plain.into_iter().find(|(word, _)| self.is_word(word));
            let Some((_, found)) = found else {
                return Err(self.syntax());
            };
            self.advance()?;
            self.advance()?;
            which = found;
        } else if self.is_word("ABSOLUTE") || self.is_word("RELATIVE") {
            let absolute = self.is_word("ABSOLUTE");
            self.advance()?;
            let row = self.argument_operand()?;
            let is_row = matches!(row, Operand::Integer(_) | Operand::Variable(_));
            if !is_row {
                return Err(self.syntax());
            }
            which = match absolute {
                true => FetchRow::Absolute(row),
                false => FetchRow::Relative(row),
            };
            self.expect_word("FROM")?;
        } else {
            self.take_word("FROM")?;
        }
        let cursor = self.cursor_name()?;
        let mut into = Vec::new();
        if self.take_word("INTO")? {
            into = self.list(Parser::variable)?;
        }
        Ok(Statement::Fetch(Box::new(Fetch {
            which,
            cursor,
            into,
        })))
    }
}
