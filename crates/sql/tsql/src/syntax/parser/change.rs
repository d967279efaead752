//! Parses INSERT, UPDATE, DELETE and TRUNCATE TABLE.
//!
//! Invariants
//! - Nothing is executed or looked up.
//! - Queries, expressions and conditions stay text (`fragment`).
//!
//! Leaves to others: the meaning of the statements (`statement/change.rs`).

use super::Parser;
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::*;
use crate::syntax::lexer::TokenKind;

/// Parts of a table's name: database, schema, table.
pub(super) const TABLE_PARTS_MAX: usize = 3;

/// The words after a value of UPDATE.
const AFTER_SET: &[&str] = &["FROM", "OPTION", "OUTPUT", "WHEN", "WHERE"];
/// The words after the items of OUTPUT.
const AFTER_OUTPUT: &[&str] = &[
    "FROM", "INTO", "VALUES", "WHERE", "SELECT", "DEFAULT", "OPTION",
];

impl Parser<'_> {
    /// A statement that begins with WITH.
    pub(super) fn query_or_change(&mut self) -> Result<Statement, Message> {
        let text = self.fragment(false)?;
        let word = self.token.raw.to_ascii_uppercase();
        match (self.token.kind, word.as_str()) {
            _ if !text.text.ends_with(')') => Ok(Statement::Query(text)),
            (TokenKind::Word, "INSERT") => self.insert(Some(text)),
            (TokenKind::Word, "UPDATE") => self.update(Some(text)),
            (TokenKind::Word, "DELETE") => self.delete(Some(text)),
            (TokenKind::Word, "MERGE") => self.merge(Some(text)),
            _ => Ok(Statement::Query(text)),
        }
    }

    /// A table's name, or a table variable.
    pub(super) fn table(&mut self) -> Result<Vec<String>, Message> {
        match self.token.kind {
            TokenKind::Variable => Ok(vec![self.variable()?]),
            _ => self.names(TABLE_PARTS_MAX),
        }
    }

    /// `TOP (n) [PERCENT]`
    pub(super) fn top(&mut self) -> Result<Option<Top>, Message> {
        if !self.take_word("TOP")? {
            return Ok(None);
        }
        let parens = self.take("(")?;
        let count = match parens {
            true => self.fragment(false)?,
            false => Fragment::new(self.integer()?.to_string()),
        };
        if parens {
            self.expect(")")?;
        }
        let percent = self.take_word("PERCENT")?;
        Ok(Some(Top { count, percent }))
    }

    /// `WITH (TABLOCK, HOLDLOCK)`: what a statement changes is locked while it runs.
    pub(super) fn hints(&mut self) -> Result<(), Message> {
        if self.is_word("WITH") && self.next.is("(") {
            self.advance()?;
            self.expect("(")?;
            self.list(|p| {
                let word = p.identifier()?.to_ascii_uppercase();
                match word.as_str() {
                    "HOLDLOCK" | "NOLOCK" | "PAGLOCK" | "READCOMMITTED" | "READPAST"
                    | "READUNCOMMITTED" | "REPEATABLEREAD" | "ROWLOCK" | "SERIALIZABLE"
                    | "TABLOCK" | "TABLOCKX" | "UPDLOCK" | "XLOCK" => Ok(()),
                    word => Err(p.wrong(NOT_HERE.with(&[&format!("the hint {word}")]))),
                }
            })?;
            self.expect(")")?;
        }
        Ok(())
    }

    pub(super) fn column_list(&mut self) -> Result<Vec<String>, Message> {
        self.expect("(")?;
        let all = self.list(|p| p.identifier())?;
        self.expect(")")?;
        Ok(all)
    }

    pub(super) fn output(&mut self) -> Result<Option<OutputClause>, Message> {
        if !self.take_word("OUTPUT")? {
            return Ok(None);
        }
        let items = self.fragment_to(false, AFTER_OUTPUT)?;
        let mut into = None;
        if self.take_word("INTO")? {
            let table = self.table()?;
            let columns = match self.is("(") {
                true => self.column_list()?,
                false => Vec::new(),
            };
            into = Some((table, columns));
        }
        Ok(Some(OutputClause { items, into }))
    }

    pub(super) fn insert(&mut self, with: Option<Fragment>) -> Result<Statement, Message> {
        self.advance()?;
        if self.is_word("BULK") {
            let what = format!("INSERT {}", self.token.raw.to_ascii_uppercase());
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        let top = self.top()?;
        self.take_word("INTO")?;
        let table = self.table()?;
        self.hints()?;
        // A query in parentheses may follow, too.
        let has_columns = self.is("(") && !self.next.is_word("SELECT") && !self.next.is("(");
        let columns = match has_columns {
            true => self.column_list()?,
            false => Vec::new(),
        };
        let output = self.output()?;
        let source = if self.take_word("VALUES")? {
            InsertSource::Values(self.list(Self::row)?)
        } else if self.take_word("DEFAULT")? {
            self.expect_word("VALUES")?;
            InsertSource::DefaultValues
        } else if self.is_word("EXEC") || self.is_word("EXECUTE") {
            let line = self.line();
            let statement = self.execute()?;
            InsertSource::Execute(Box::new(LocatedStatement { line, statement }))
        } else if self.is_word("SELECT") || self.is("(") || self.is_word("WITH") {
            InsertSource::Query(self.fragment(false)?)
        } else {
            return Err(self.syntax());
        };
        Ok(Statement::Insert(Box::new(Insert {
            with,
            top,
            table,
            columns,
            output,
            source,
        })))
    }

    /// The values of one row.
    pub(super) fn row(&mut self) -> Result<Vec<Option<Fragment>>, Message> {
        self.expect("(")?;
        let row = self.list(|p| match p.take_word("DEFAULT")? {
            true => Ok(None),
            false => p.fragment(true).map(Some),
        })?;
        self.expect(")")?;
        Ok(row)
    }

    pub(super) fn update(&mut self, with: Option<Fragment>) -> Result<Statement, Message> {
        self.advance()?;
        if self.is_word("STATISTICS") {
            return Err(self.wrong(NOT_HERE.with(&[&"UPDATE STATISTICS"])));
        }
        let top = self.top()?;
        let table = self.table()?;
        self.hints()?;
        self.expect_word("SET")?;
        let sets = self.list(Self::set_clause)?;
        let output = self.output()?;
        let rest = self.rest("UPDATE")?;
        Ok(Statement::Update(Box::new(Update {
            with,
            top,
            table,
            sets,
            output,
            rest,
        })))
    }

    pub(super) fn set_clause(&mut self) -> Result<SetClause, Message> {
        let variable = match self.token.kind {
            TokenKind::Variable => {
                let variable = self.variable()?;
                self.expect("=")?;
                Some(variable)
            }
            _ => None,
        };
        // `@v = column = value`: a name before another sign of equality.
        let is_name = matches!(
            self.token.kind,
            TokenKind::Word | TokenKind::Bracketed | TokenKind::Quoted
        );
        let mut column = String::new();
        let mut operator = String::new();
        if variable.is_none() || (is_name && self.next.is("=")) {
            column = self.names(TABLE_PARTS_MAX)?.pop().unwrap_or_default();
            if !["=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="]
                .iter()
                .any(|o| self.is(o))
            {
                return Err(self.syntax());
            }
            operator = self.advance()?.raw.trim_end_matches('=').to_owned();
        }
        let value = match self.take_word("DEFAULT")? {
            true => None,
            false => Some(self.fragment_to(true, AFTER_SET)?),
        };
        Ok(SetClause {
            variable,
            column,
            operator,
            value,
        })
    }

    /// `FROM … WHERE …`. Errors: 50002 for the row of a cursor.
    fn rest(&mut self, verb: &str) -> Result<Option<Fragment>, Message> {
        if self.is_word("WHERE") && self.next.is_word("CURRENT") {
            let what = format!("{verb} … WHERE CURRENT OF");
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        match ["FROM", "WHERE", "OPTION"].iter().any(|w| self.is_word(w)) {
            true => self.fragment(false).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn delete(&mut self, with: Option<Fragment>) -> Result<Statement, Message> {
        self.advance()?;
        let top = self.top()?;
        self.take_word("FROM")?;
        let table = self.table()?;
        self.hints()?;
        let output = self.output()?;
        let rest = self.rest("DELETE")?;
        Ok(Statement::Delete(Box::new(Delete {
            with,
            top,
            table,
            output,
            rest,
        })))
    }

    pub(super) fn truncate(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        self.expect_word("TABLE")?;
        Ok(Statement::Truncate(self.names(TABLE_PARTS_MAX)?))
    }
}
