//! BACKUP.

use super::Parser;
use crate::message::Message;
use crate::syntax::ast::{Backup, BackupWhat, Operand, Part, Statement};
use crate::syntax::lexer::TokenKind;
use crate::syntax::option::Verb;

impl Parser<'_> {
    pub(super) fn backup(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let what = if self.take_word("DATABASE")? {
            let name = self.name()?;
            if self.is_word("WITH") {
                self.with_options(Verb::Backup)?;
                return Err(self.syntax());
            }
            let parts = match self.is_word("TO") {
                true => Vec::new(),
                false => self.list(Self::part)?,
            };
            BackupWhat::Database { name, parts }
        } else if self.take_word("LOG")? || self.take_word("TRANSACTION")? {
            let name = self.name()?;
            // Without a device: obsolete statements that truncated the log.
            if self.is_word("WITH") {
                self.with_options(Verb::Backup)?;
                return Err(self.syntax());
            }
            BackupWhat::Log { name }
        } else if self.take_word("GROUP")? {
            BackupWhat::Group(self.list(Self::identifier)?)
        } else if self.take_word("SERVER")? {
            BackupWhat::Server
        } else {
            return Err(self.syntax());
        };
        self.expect_word("TO")?;
        let to = self.devices()?;
        let mut mirrors = Vec::new();
        while self.take_word("MIRROR")? {
            self.expect_word("TO")?;
            mirrors.push(self.devices()?);
        }
        let options = self.with_options(Verb::Backup)?;
        Ok(Statement::Backup(Box::new(Backup {
            what,
            to,
            mirrors,
            options,
        })))
    }

    pub(super) fn part(&mut self) -> Result<Part, Message> {
        if self.take_word("READ_WRITE_FILEGROUPS")? {
            return Ok(Part::ReadWriteFileGroups);
        }
        if self.take_word("FILE")? {
            self.expect("=")?;
            return Ok(Part::File(self.texts()?));
        }
        if self.take_word("FILEGROUP")? {
            self.expect("=")?;
            return Ok(Part::FileGroup(self.texts()?));
        }
        Err(self.syntax())
    }

    /// `'a'` or `('a', 'b')`
    fn texts(&mut self) -> Result<Vec<Operand>, Message> {
        if self.token.kind == TokenKind::Symbol && self.take("(")? {
            let all = self.list(Self::text_operand)?;
            self.expect(")")?;
            return Ok(all);
        }
        Ok(vec![self.text_operand()?])
    }
}
