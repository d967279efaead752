//! Parses MERGE.
//!
//! Invariants
//! - Nothing is executed or looked up.
//! - The source, conditions and values stay text (`fragment`).
//!
//! Leaves to others: the meaning of the statement (`statement/merge.rs`).

use super::Parser;
use crate::message::Message;
use crate::syntax::ast::*;
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn merge(&mut self, with: Option<Fragment>) -> Result<Statement, Message> {
        self.expect_word("MERGE")?;
        let top = self.top()?;
        self.take_word("INTO")?;
        let table = self.table()?;
        self.hints()?;
        let has_as = self.take_word("AS")?;
        let is_name = match self.token.kind {
            TokenKind::Word => !self.is_word("USING"),
            kind => matches!(kind, TokenKind::Bracketed | TokenKind::Quoted),
        };
        let alias = match has_as || is_name {
            true => Some(self.identifier()?),
            false => None,
        };
        self.expect_word("USING")?;
        let source = self.fragment_to(false, &["ON"])?;
        self.expect_word("ON")?;
        let on = self.fragment_to(false, &["WHEN"])?;
        let mut clauses = Vec::new();
        while self.is_word("WHEN") {
            clauses.push(self.merge_clause()?);
        }
        if clauses.is_empty() {
            return Err(self.syntax());
        }
        let output = self.output()?;
        if self.is_word("OPTION") {
            // Hints about plans.
            self.fragment(false)?;
        }
        Ok(Statement::Merge(Box::new(Merge {
            with,
            top,
            table,
            alias,
            source,
            on,
            clauses,
            output,
        })))
    }

    fn merge_clause(&mut self) -> Result<MergeClause, Message> {
        self.expect_word("WHEN")?;
        let when = match self.take_word("NOT")? {
            false => {
                self.expect_word("MATCHED")?;
                MergeRows::Matched
            }
            true => {
                self.expect_word("MATCHED")?;
                match self.take_word("BY")? && !self.take_word("TARGET")? {
                    true => {
                        self.expect_word("SOURCE")?;
                        MergeRows::OnlyTarget
                    }
                    false => MergeRows::OnlySource,
                }
            }
        };
        let condition = match self.take_word("AND")? {
            true => Some(self.fragment_to(false, &["THEN"])?),
            false => None,
        };
        self.expect_word("THEN")?;
        let action = match when {
            MergeRows::OnlySource => self.merge_insert()?,
            _ if self.take_word("DELETE")? => MergeAction::Delete,
            _ => {
                self.expect_word("UPDATE")?;
                self.expect_word("SET")?;
                MergeAction::Update(self.list(Self::set_clause)?)
            }
        };
        Ok(MergeClause {
            when,
            condition,
            action,
        })
    }

    fn merge_insert(&mut self) -> Result<MergeAction, Message> {
        self.expect_word("INSERT")?;
        let columns = match self.is("(") {
            true => self.column_list()?,
            false => Vec::new(),
        };
        if self.take_word("DEFAULT")? {
            self.expect_word("VALUES")?;
            return Ok(MergeAction::InsertDefaults);
        }
        self.expect_word("VALUES")?;
        let values = self.row()?;
        Ok(MergeAction::Insert { columns, values })
    }
}
