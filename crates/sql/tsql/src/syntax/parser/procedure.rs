//! Parses EXEC, and procedures named without it.
//!
//! Invariants
//! - Nothing is executed or looked up: any name of up to four parts is parsed.
//! - A positional argument after a named one is refused with its number.
//!
//! Leaves to others: which procedures exist and their arguments' meaning (`statement/`), and the text of EXEC (...),
//! which is parsed when it runs.

use super::Parser;
use crate::message::{Message, NOT_HERE, POSITIONAL_AFTER_NAMED};
use crate::syntax::ast::{Argument, Execute, Operand, Statement};
use crate::syntax::lexer::TokenKind;

/// Parts of a procedure's name: server, database, schema, procedure.
const PARTS_MAX: usize = 4;

impl Parser<'_> {
    pub(super) fn execute(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.take("(")? {
            let text = self.fragment(false)?;
            self.expect(")")?;
            if self.is_word("AT") {
                return Err(self.wrong(NOT_HERE.with(&[&"EXECUTE (…) AT another server"])));
            }
            if self.is_word("AS") {
                let what = format!("EXECUTE (…) AS {}", self.next.raw.to_ascii_uppercase());
                return Err(self.wrong(NOT_HERE.with(&[&what])));
            }
            return Ok(Statement::ExecuteText(text));
        }
        if self.is_word("AS") {
            let what = format!("EXECUTE AS {}", self.next.raw.to_ascii_uppercase());
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        let code = match self.token.kind == TokenKind::Variable && self.next.is("=") {
            true => {
                let code = self.variable()?;
                self.expect("=")?;
                Some(code)
            }
            false => None,
        };
        self.procedure(code)
    }

    pub(super) fn procedure(&mut self, code: Option<String>) -> Result<Statement, Message> {
        let (mut name_in, mut procedure) = (None, Vec::new());
        match self.token.kind == TokenKind::Variable {
            true => name_in = Some(self.variable()?),
            false => procedure = self.names(PARTS_MAX)?,
        }
        let mut arguments: Vec<Argument> = Vec::new();
        if self.begins_argument() {
            arguments = self.list(Self::argument)?;
        }
        let named = arguments.iter().position(|a| a.name.is_some());
        let after = |from: usize| arguments[from..].iter().position(|a| a.name.is_none());
        if let Some(i) = named.and_then(|from| after(from).map(|i| from + i)) {
            return Err(self.wrong(POSITIONAL_AFTER_NAMED.with(&[&(i + 1)])));
        }
        if self.is_word("WITH") && self.next.is_word("RECOMPILE") {
            self.advance()?;
            self.advance()?;
        }
        Ok(Statement::Execute(Execute {
            code,
            procedure,
            name_in,
            arguments,
        }))
    }

    /// A name of several parts. Omitted ones, as in `master..sp_configure`, are empty.
    pub(super) fn names(&mut self, most: usize) -> Result<Vec<String>, Message> {
        let mut all = vec![self.identifier()?];
        while self.take(".")? {
            if all.len() == most {
                return Err(self.syntax());
            }
            all.push(match self.is(".") {
                true => String::new(),
                false => self.identifier()?,
            });
        }
        Ok(all)
    }

    fn begins_argument(&self) -> bool {
        match self.token.kind {
            TokenKind::Text
            | TokenKind::Number
            | TokenKind::Variable
            | TokenKind::Bracketed
            | TokenKind::Quoted => true,
            TokenKind::Word => !super::is_any(&self.token, super::STATEMENTS) && !self.is_label(),
            TokenKind::Symbol => self.is("-"),
            TokenKind::Strange | TokenKind::End => false,
        }
    }

    fn argument(&mut self) -> Result<Argument, Message> {
        let name = match self.token.kind == TokenKind::Variable && self.next.is("=") {
            true => {
                let name = self.variable()?;
                self.expect("=")?;
                Some(name)
            }
            false => None,
        };
        let value = match self.take_word("DEFAULT")? {
            true => None,
            false => Some(self.argument_value()?),
        };
        let output = self.take_word("OUTPUT")? || self.take_word("OUT")?;
        Ok(Argument {
            name,
            value,
            output,
        })
    }

    /// A literal or a variable, not an expression; an unquoted word is a text.
    pub(super) fn argument_value(&mut self) -> Result<Operand, Message> {
        let negative = self.take("-")?;
        let token = self.token;
        let sign = if negative { "-" } else { "" };
        let operand = match token.kind {
            TokenKind::Number => {
                let text = format!("{sign}{}", token.raw);
                match text.parse() {
                    Ok(n) => Operand::Integer(n),
                    Err(_) => Operand::Number(text),
                }
            }
            _ if negative => return Err(self.syntax()),
            TokenKind::Text => Operand::Text(token.value()),
            TokenKind::Variable => return Ok(Operand::Variable(self.variable()?)),
            TokenKind::Word if token.is_word("NULL") => Operand::Null,
            TokenKind::Word | TokenKind::Bracketed | TokenKind::Quoted => {
                return Ok(Operand::Text(match token.kind {
                    // ON and OFF are words of the language, and also values for procedures.
                    TokenKind::Word if token.is_word("ON") || token.is_word("OFF") => {
                        self.advance()?.raw.to_owned()
                    }
                    TokenKind::Word if token.is_word("DISK") || token.is_word("FILE") => {
                        self.advance()?.raw.to_owned()
                    }
                    _ => self.identifier()?,
                }));
            }
            TokenKind::Symbol | TokenKind::Strange | TokenKind::End => return Err(self.syntax()),
        };
        self.advance()?;
        Ok(operand)
    }
}
