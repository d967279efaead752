//! Parses variables, SET, branches, loops, blocks and transactions.
//!
//! Invariants
//! - Nothing is executed: a statement is parsed whole, or the batch is refused with the line.
//! - An option of SET that SQL Server does not know is refused by name (`syntax/set.rs`).
//!
//! Leaves to others: expressions, which stay text (`fragment` in `mod.rs`), checks of a whole batch (`check.rs`), and
//! running statements (`statement/`).

use super::Parser;
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::{
    Declaration, Fragment, LocatedStatement, Statement, Transaction, TypeName,
};
use crate::syntax::lexer::TokenKind;

/// Whether a text could be written as a word.
fn is_plain(text: &str) -> bool {
    let continues = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) && text.bytes().all(continues)
}

impl Parser<'_> {
    pub(super) fn declare(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.names_cursor() {
            return self.declare_cursor();
        }
        let first = self.variable()?;
        self.take_word("AS")?;
        if self.is_word("TABLE") {
            return self.declare_table(first);
        }
        let mut all = vec![self.declaration_of(first)?];
        while self.take(",")? {
            let variable = self.variable()?;
            self.take_word("AS")?;
            all.push(self.declaration_of(variable)?);
        }
        Ok(Statement::Declare(all))
    }

    fn declaration_of(&mut self, variable: String) -> Result<Declaration, Message> {
        let kind = self.type_name()?;
        let value = match self.take("=")? {
            true => Some(self.fragment(true)?),
            false => None,
        };
        Ok(Declaration {
            variable,
            kind,
            value,
        })
    }

    pub(super) fn type_name(&mut self) -> Result<TypeName, Message> {
        let mut name = self.identifier()?.to_ascii_lowercase();
        // `sys.sysname`, `[dbo].[Flag]`
        if self.take(".")? {
            name = self.identifier()?.to_ascii_lowercase();
        }
        let mut sizes = Vec::new();
        if self.take("(")? {
            sizes = self.list(|p| {
                if p.take_word("MAX")? {
                    return Ok(None);
                }
                let size = u32::try_from(p.integer()?);
                size.map(Some).map_err(|_| p.syntax())
            })?;
            self.expect(")")?;
        }
        Ok(TypeName { name, sizes })
    }

    pub(super) fn set(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.token.kind != TokenKind::Variable {
            return self.set_option();
        }
        let variable = self.variable()?;
        if self.is(".") {
            let what = format!("the method {} of XML in SET", self.next.raw);
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        let operators = ["=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="];
        if !operators.iter().any(|o| self.is(o)) {
            return Err(self.syntax());
        }
        let operator = self.advance()?.raw.trim_end_matches('=').to_owned();
        if operator.is_empty() && self.is_word("CURSOR") {
            return self.set_cursor(variable);
        }
        let value = self.fragment(false)?;
        Ok(Statement::Assign {
            variable,
            operator,
            value,
        })
    }

    /// `SET NOCOUNT, XACT_ABORT ON`, `SET LANGUAGE us_english`, `SET LOCK_TIMEOUT 1000`
    fn set_option(&mut self) -> Result<Statement, Message> {
        if self.take_word("IDENTITY_INSERT")? {
            let table = self.names(super::change::TABLE_PARTS_MAX)?;
            let on = self.take_word("ON")?;
            if !on {
                self.expect_word("OFF")?;
            }
            return Ok(Statement::IdentityInsert { table, on });
        }
        let mut words = Vec::new();
        loop {
            match self.token.kind {
                TokenKind::Word
                    if words.len() < 8 && !super::is_any(&self.token, super::STATEMENTS) =>
                {
                    words.push(self.advance()?.raw.to_ascii_uppercase());
                }
                TokenKind::Symbol
                    if self.is("-") && self.next.kind == TokenKind::Number && !words.is_empty() =>
                {
                    self.advance()?;
                    words.push(format!("-{}", self.advance()?.raw));
                    break;
                }
                TokenKind::Variable if !words.is_empty() => {
                    words.push(self.variable()?);
                    break;
                }
                TokenKind::Text if !words.is_empty() && is_plain(&self.token.value()) => {
                    words.push(self.advance()?.value().to_ascii_uppercase());
                    break;
                }
                TokenKind::Number if !words.is_empty() => {
                    words.push(self.advance()?.raw.to_owned());
                    break;
                }
                _ => break,
            }
            if self.take(",")? {
                continue;
            }
            if matches!(words.last().map(String::as_str), Some("ON" | "OFF")) {
                break;
            }
        }
        match words.len() {
            0 | 1 => Err(self.syntax()),
            _ => {
                crate::syntax::set::check(&words)?;
                Ok(Statement::SetOption(words))
            }
        }
    }

    pub(super) fn begin(&mut self, depth: usize) -> Result<Statement, Message> {
        if self.next.is_word("TRAN") || self.next.is_word("TRANSACTION") {
            return self.transaction(Transaction::Begin);
        }
        self.advance()?;
        if !self.take_word("TRY")? {
            let body = self.block(depth)?;
            return Ok(Statement::Block(body));
        }
        let body = self.block(depth)?;
        self.expect_word("TRY")?;
        while self.take(";")? {}
        self.expect_word("BEGIN")?;
        self.expect_word("CATCH")?;
        let catch = self.catch_block(depth)?;
        self.expect_word("CATCH")?;
        Ok(Statement::Try { body, catch })
    }

    /// The verb, TRAN and the transaction's name, which has no meaning with at most one transaction.
    pub(super) fn transaction(&mut self, what: Transaction) -> Result<Statement, Message> {
        self.advance()?;
        let named = self.take_word("TRAN")? || self.take_word("TRANSACTION")?;
        if !named && what != Transaction::Begin {
            self.take_word("WORK")?;
        }
        let is_name = match self.token.kind {
            TokenKind::Word => !super::is_any(&self.token, super::STATEMENTS) && !self.is_label(),
            kind => matches!(
                kind,
                TokenKind::Bracketed | TokenKind::Quoted | TokenKind::Variable
            ),
        };
        if !named || !is_name {
            return match what {
                Transaction::Save => Err(self.syntax()),
                what => Ok(Statement::Transaction(what)),
            };
        }
        let name = self.name()?;
        if what == Transaction::Begin && self.is_word("WITH") && self.next.is_word("MARK") {
            return Err(NOT_HERE.with(&[&"BEGIN TRANSACTION … WITH MARK"]));
        }
        Ok(match what {
            // SQL Server ignores the name.
            Transaction::Commit => Statement::Transaction(what),
            what => Statement::NamedTransaction(what, name),
        })
    }

    /// At least one statement, then END.
    fn block(&mut self, depth: usize) -> Result<Vec<LocatedStatement>, Message> {
        let all = self.catch_block(depth)?;
        match all.is_empty() {
            true => Err(self.syntax()),
            false => Ok(all),
        }
    }

    fn catch_block(&mut self, depth: usize) -> Result<Vec<LocatedStatement>, Message> {
        let ends = |p: &Self| p.is_word("END") || p.token.kind == TokenKind::End;
        let all = self.statements(ends, depth + 1)?;
        self.expect_word("END")?;
        Ok(all)
    }

    pub(super) fn if_else(&mut self, depth: usize) -> Result<Statement, Message> {
        self.advance()?;
        let condition = self.condition()?;
        let then = Box::new(self.statement(false, depth + 1)?);
        // A semicolon ends the branch, and ELSE may still follow.
        while self.is(";") && (self.next.is(";") || self.next.is_word("ELSE")) {
            self.advance()?;
        }
        let otherwise = match self.take_word("ELSE")? {
            true => Some(Box::new(self.statement(false, depth + 1)?)),
            false => None,
        };
        Ok(Statement::If {
            condition,
            then,
            otherwise,
        })
    }

    /// The condition of IF and of WHILE. The query that follows may begin with WITH, which no condition has outside of parentheses.
    fn condition(&mut self) -> Result<Fragment, Message> {
        self.fragment_to(false, &["WITH"])
    }

    pub(super) fn while_loop(&mut self, depth: usize) -> Result<Statement, Message> {
        self.advance()?;
        let condition = self.condition()?;
        let body = Box::new(self.statement(false, depth + 1)?);
        Ok(Statement::While { condition, body })
    }

    /// RETURN ends a batch. A value is an expression.
    pub(super) fn returning(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let has_value = match self.token.kind {
            TokenKind::Number | TokenKind::Variable | TokenKind::Text => true,
            TokenKind::Symbol => self.is("(") || self.is("-") || self.is("+"),
            TokenKind::Word => !super::is_any(&self.token, super::STATEMENTS) && !self.is_label(),
            _ => false,
        };
        Ok(match has_value {
            true => Statement::ReturnValue(self.fragment(false)?),
            false => Statement::Return,
        })
    }
}
