//! Parses RAISERROR, THROW, WAITFOR, GOTO and labels.
//!
//! Invariants
//! - Arguments are literals and variables, as in SQL Server: an expression is a syntax error.
//! - A word before a colon is a label wherever a statement may begin, and it ends what stands before it.
//!
//! Leaves to others: whether labels exist and where THROW may stand (`check.rs`), numbers, severities and texts
//! (`statement/raise.rs`), and times (`statement/wait.rs`).

use super::{Parser, RESERVED, STATEMENTS, is_any};
use crate::message::{INTEGER_RANGE, Message, NOT_HERE, WAIT_TIME_SYNTAX};
use crate::syntax::ast::{Operand, Raise, Statement, Throw};
use crate::syntax::lexer::TokenKind;
use crate::syntax::wait::parse_time;

impl Parser<'_> {
    /// The statement of this word, if it is one of these.
    pub(super) fn raising(&mut self, word: &str) -> Result<Option<Statement>, Message> {
        Ok(Some(match word {
            "RAISERROR" => self.raise()?,
            "THROW" => self.throw()?,
            "WAITFOR" => self.wait()?,
            "GOTO" => {
                self.advance()?;
                if self.token.kind != TokenKind::Word {
                    return Err(self.syntax());
                }
                Statement::Goto(self.identifier()?)
            }
            _ => return Ok(None),
        }))
    }

    /// Whether the current token is a label's name.
    pub(super) fn is_label(&self) -> bool {
        self.next.is(":")
            && self.token.kind == TokenKind::Word
            && !is_any(&self.token, RESERVED)
            && !is_any(&self.token, STATEMENTS)
    }

    pub(super) fn label(&mut self) -> Result<Statement, Message> {
        let name = self.identifier()?;
        self.expect(":")?;
        Ok(Statement::Label(name))
    }

    fn raise(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        self.expect("(")?;
        let message = match self.token.kind {
            TokenKind::Text | TokenKind::Number | TokenKind::Variable => self.argument_operand()?,
            _ if self.is("-") => self.argument_operand()?,
            _ => return Err(self.syntax()),
        };
        self.expect(",")?;
        let severity = self.argument_operand()?;
        self.expect(",")?;
        let state = self.argument_operand()?;
        let mut arguments = Vec::new();
        while self.take(",")? {
            arguments.push(self.argument_operand()?);
        }
        self.expect(")")?;
        let mut raise = Raise {
            message,
            severity,
            state,
            arguments,
            log: false,
            no_wait: false,
            set_error: false,
        };
        if self.take_word("WITH")? {
            loop {
                if self.take_word("LOG")? {
                    raise.log = true;
                } else if self.take_word("NOWAIT")? {
                    raise.no_wait = true;
                } else if self.take_word("SETERROR")? {
                    raise.set_error = true;
                } else {
                    return Err(self.syntax());
                }
                if !self.take(",")? {
                    break;
                }
            }
        }
        Ok(Statement::Raise(Box::new(raise)))
    }

    /// A literal, with a sign if it is a number, a variable or NULL.
    pub(super) fn argument_operand(&mut self) -> Result<Operand, Message> {
        let negative = self.take("-")?;
        let token = self.token;
        let operand = match token.kind {
            TokenKind::Number => {
                let sign = if negative { "-" } else { "" };
                let text = format!("{sign}{}", token.raw);
                text.parse()
                    .map_or_else(|_| Operand::Number(text), Operand::Integer)
            }
            _ if negative => return Err(self.syntax()),
            TokenKind::Text => Operand::Text(token.value()),
            TokenKind::Variable => return Ok(Operand::Variable(self.variable()?)),
            TokenKind::Word if token.is_word("NULL") => Operand::Null,
            _ => return Err(self.syntax()),
        };
        self.advance()?;
        Ok(operand)
    }

    fn throw(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let begins = matches!(
            self.token.kind,
            TokenKind::Number | TokenKind::Variable | TokenKind::Text
        ) || self.is("-");
        if !begins {
            return Ok(Statement::Throw(None));
        }
        let number = self.throw_integer()?;
        self.expect(",")?;
        let message = self.text_operand()?;
        self.expect(",")?;
        let state = self.throw_integer()?;
        Ok(Statement::Throw(Some(Box::new(Throw {
            number,
            message,
            state,
        }))))
    }

    /// An `int` or a variable. Errors: 1080 for a number beyond `int`.
    fn throw_integer(&mut self) -> Result<Operand, Message> {
        if self.token.kind == TokenKind::Text || self.is_word("NULL") {
            return Err(self.syntax());
        }
        let operand = self.argument_operand()?;
        match &operand {
            Operand::Integer(n) if i32::try_from(*n).is_err() => {
                Err(self.wrong(INTEGER_RANGE.with(&[n])))
            }
            Operand::Number(text) => Err(self.wrong(INTEGER_RANGE.with(&[text]))),
            _ => Ok(operand),
        }
    }

    fn wait(&mut self) -> Result<Statement, Message> {
        let refused = self.wrong(NOT_HERE.with(&[&"WAITFOR (RECEIVE)"]));
        self.advance()?;
        if self.is("(") {
            return Err(refused);
        }
        let until = self.take_word("TIME")?;
        if !until {
            self.expect_word("DELAY")?;
        }
        let token = self.token;
        let time = self.text_operand()?;
        if let Operand::Text(text) = &time
            && parse_time(text).is_none()
        {
            let wrong = WAIT_TIME_SYNTAX.with(&[text]);
            return Err(wrong.at_line(super::line_of(self.text, token.at)));
        }
        Ok(Statement::Wait { until, time })
    }
}
