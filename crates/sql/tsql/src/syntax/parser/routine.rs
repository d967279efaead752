//! Parses CREATE and ALTER of procedures, functions and views.
//!
//! Invariants
//! - Each is a batch of its own: it begins the batch (111), and all of the rest is its body.
//! - Nothing is executed or looked up.
//! - Options that would change rights or hide the text are refused by name.
//!
//! Leaves to others: keeping and running them (`statement/routine.rs`, `statement/function.rs`).

use super::Parser;
use super::change::TABLE_PARTS_MAX;
use crate::message::{Message, NOT_FIRST, NOT_HERE};
use crate::syntax::ast::{
    LocatedStatement, Routine, RoutineKind, RoutineParameter, RoutineVerb, Statement,
};
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    /// `CREATE PROCEDURE`, `ALTER FUNCTION`, `CREATE OR ALTER`
    pub(super) fn is_about_routine(&self) -> bool {
        ["PROC", "PROCEDURE", "FUNCTION", "VIEW", "OR"]
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
        let word = self.token.raw.to_ascii_uppercase();
        let what = match word.as_str() {
            "PROC" | "PROCEDURE" => "CREATE/ALTER PROCEDURE",
            "FUNCTION" => "CREATE FUNCTION",
            "VIEW" => "CREATE VIEW",
            other => {
                let what = format!("CREATE OR ALTER {other}");
                return Err(self.wrong(NOT_HERE.with(&[&what])));
            }
        };
        if !begins_batch {
            let wrong = NOT_FIRST.with(&[&what]);
            return Err(wrong.at_line(super::line_of(self.text, begin.at)));
        }
        self.advance()?;
        let name = self.names(TABLE_PARTS_MAX)?;
        let (kind, parameters, body) = match word.as_str() {
            "VIEW" => (self.view()?, Vec::new(), Vec::new()),
            "FUNCTION" => self.function()?,
            _ => self.procedure_body()?,
        };
        let end = |c: char| c == ';' || c.is_whitespace();
        Ok(Statement::Routine(Box::new(Routine {
            verb,
            kind,
            name,
            parameters,
            body,
            text: self.text.trim_end_matches(end).to_owned(),
        })))
    }

    fn procedure_body(
        &mut self,
    ) -> Result<(RoutineKind, Vec<RoutineParameter>, Vec<LocatedStatement>), Message> {
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
        Ok((RoutineKind::Procedure, parameters, body))
    }

    /// The end of the batch, after semicolons.
    fn end_of_batch(&mut self) -> Result<(), Message> {
        while self.take(";")? {}
        match self.token.kind {
            TokenKind::End => Ok(()),
            _ => Err(self.syntax()),
        }
    }

    fn view(&mut self) -> Result<RoutineKind, Message> {
        let columns = match self.is("(") {
            true => self.column_list()?,
            false => Vec::new(),
        };
        if self.take_word("WITH")? {
            self.list(|p| {
                let word = p.token.raw.to_ascii_uppercase();
                match p.take_word("SCHEMABINDING")? || p.take_word("VIEW_METADATA")? {
                    true => Ok(()),
                    false => Err(p.wrong(NOT_HERE.with(&[&format!("WITH {word}")]))),
                }
            })?;
        }
        self.expect_word("AS")?;
        let query = self.fragment(false)?;
        self.end_of_batch()?;
        Ok(RoutineKind::View { columns, query })
    }

    fn function(
        &mut self,
    ) -> Result<(RoutineKind, Vec<RoutineParameter>, Vec<LocatedStatement>), Message> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        if self.token.kind == TokenKind::Variable {
            parameters = self.list(Self::parameter)?;
        }
        self.expect(")")?;
        self.expect_word("RETURNS")?;
        if self.take_word("TABLE")? {
            self.function_options()?;
            self.take_word("AS")?;
            self.expect_word("RETURN")?;
            let query = self.fragment(false)?;
            self.end_of_batch()?;
            return Ok((RoutineKind::Inline(query), parameters, Vec::new()));
        }
        let mut kind = match self.token.kind {
            TokenKind::Variable => {
                let variable = self.variable()?;
                self.expect_word("TABLE")?;
                let table = self.table_spec()?;
                RoutineKind::Rows { variable, table }
            }
            _ => RoutineKind::Scalar {
                returns: self.type_name()?,
                strict: false,
            },
        };
        let is_strict = self.function_options()?;
        if let RoutineKind::Scalar { strict, .. } = &mut kind {
            *strict = is_strict;
        }
        self.take_word("AS")?;
        if !self.is_word("BEGIN") {
            return Err(match self.is_word("EXTERNAL") {
                true => self.wrong(NOT_HERE.with(&[&"EXTERNAL NAME"])),
                false => self.syntax(),
            });
        }
        let block = self.statement(false, 1)?;
        self.end_of_batch()?;
        match block.statement {
            Statement::Block(body) => Ok((kind, parameters, body)),
            _ => Err(self.syntax()),
        }
    }

    /// Whether NULL is returned for a parameter that is NULL.
    fn function_options(&mut self) -> Result<bool, Message> {
        let mut strict = false;
        if !self.take_word("WITH")? {
            return Ok(strict);
        }
        self.list(|p| {
            if p.take_word("SCHEMABINDING")? {
                return Ok(());
            }
            if p.take_word("INLINE")? {
                p.expect("=")?;
                return match p.take_word("ON")? || p.take_word("OFF")? {
                    true => Ok(()),
                    false => Err(p.syntax()),
                };
            }
            if p.is_word("RETURNS") || p.is_word("CALLED") {
                strict = p.take_word("RETURNS")?;
                let words: &[&str] = match strict {
                    true => &["NULL", "ON", "NULL", "INPUT"],
                    false => &["CALLED", "ON", "NULL", "INPUT"],
                };
                return words.iter().try_for_each(|word| p.expect_word(word));
            }
            p.routine_option()
        })?;
        Ok(strict)
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
