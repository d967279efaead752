//! Parses CREATE and ALTER PROCEDURE.
//!
//! Invariants
//! - A procedure is a batch of its own: it begins the batch (111), and all of the rest is its body.
//! - Nothing is executed or looked up.
//! - Options that would change rights or hide the text are refused by name.
//!
//! Leaves to others: keeping procedures and running them (`statement/routine.rs`).

use super::Parser;
use super::change::TABLE_PARTS_MAX;
use crate::message::{Message, NOT_FIRST, NOT_HERE};
use crate::syntax::ast::{Routine, RoutineParameter, RoutineVerb, Statement};
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    /// `CREATE PROCEDURE`, `ALTER PROC`, `CREATE OR ALTER`
    pub(super) fn is_about_routine(&self) -> bool {
        ["PROC", "PROCEDURE", "OR"]
            .iter()
            .any(|word| self.next.is_word(word))
    }

    pub(super) fn routine(&mut self, depth: usize) -> Result<Statement, Message> {
        let begins_batch = depth == 0 && !self.has_statements;
        let begin = self.token;
        let mut verb = match self.take_word("ALTER")? {
            true => RoutineVerb::Alter,
            false => {
                self.expect_word("CREATE")?;
                RoutineVerb::Create
            }
        };
        if verb == RoutineVerb::Create && self.take_word("OR")? {
            self.expect_word("ALTER")?;
            verb = RoutineVerb::CreateOrAlter;
        }
        if !self.is_word("PROC") && !self.is_word("PROCEDURE") {
            let what = format!("CREATE OR ALTER {}", self.token.raw.to_ascii_uppercase());
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        if !begins_batch {
            let wrong = NOT_FIRST.with(&[&"CREATE/ALTER PROCEDURE"]);
            return Err(wrong.at_line(super::line_of(self.text, begin.at)));
        }
        self.advance()?;
        let name = self.names(TABLE_PARTS_MAX)?;
        if self.is(";") {
            return Err(self.wrong(NOT_HERE.with(&[&"a numbered procedure"])));
        }
        let in_parens = self.take("(")?;
        let mut parameters = Vec::new();
        if self.token.kind == TokenKind::Variable {
            parameters = self.list(Self::parameter)?;
        }
        if in_parens {
            self.expect(")")?;
        }
        if self.take_word("WITH")? {
            self.list(Self::routine_option)?;
        }
        if self.is_word("FOR") {
            return Err(self.wrong(NOT_HERE.with(&[&"FOR REPLICATION"])));
        }
        self.expect_word("AS")?;
        let body = self.statements(|p| p.token.kind == TokenKind::End, 1)?;
        let end = |c: char| c == ';' || c.is_whitespace();
        Ok(Statement::Routine(Box::new(Routine {
            verb,
            name,
            parameters,
            body,
            text: self.text.trim_end_matches(end).to_owned(),
        })))
    }

    fn parameter(&mut self) -> Result<RoutineParameter, Message> {
        let name = self.variable()?;
        self.take_word("AS")?;
        let kind = self.type_name()?;
        if self.is_word("VARYING") {
            return Err(self.wrong(NOT_HERE.with(&[&"a cursor as a parameter"])));
        }
        if self.take_word("NOT")? {
            self.expect_word("NULL")?;
        } else if self.is_word("NULL") {
            self.advance()?;
        }
        let default = match self.take("=")? {
            true => Some(self.argument_value()?),
            false => None,
        };
        let output = self.take_word("OUTPUT")? || self.take_word("OUT")?;
        if self.is_word("READONLY") {
            return Err(self.wrong(NOT_HERE.with(&[&"a table as a parameter"])));
        }
        Ok(RoutineParameter {
            name,
            kind,
            default,
            output,
        })
    }

    /// A procedure runs with the rights of its caller, and its text can be read.
    fn routine_option(&mut self) -> Result<(), Message> {
        if self.take_word("RECOMPILE")? {
            return Ok(());
        }
        let word = self.token.raw.to_ascii_uppercase();
        if word == "EXEC" || word == "EXECUTE" {
            self.advance()?;
            self.expect_word("AS")?;
            if self.take_word("CALLER")? {
                return Ok(());
            }
            let whom = self.token.value().chars().take(128).collect::<String>();
            return Err(self.wrong(NOT_HERE.with(&[&format!("WITH EXECUTE AS {whom}")])));
        }
        match self.token.kind {
            TokenKind::Word => Err(self.wrong(NOT_HERE.with(&[&format!("WITH {word}")]))),
            _ => Err(self.syntax()),
        }
    }
}
