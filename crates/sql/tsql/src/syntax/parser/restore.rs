//! RESTORE, in all its forms.

use super::Parser;
use crate::message::Message;
use crate::syntax::ast::{Part, Restore, RestoreWhat, Statement};
use crate::syntax::lexer::TokenKind;
use crate::syntax::option::Verb;

impl Parser<'_> {
    pub(super) fn restore(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let what = if self.take_word("DATABASE")? {
            let name = self.name()?;
            let parts = self.restore_parts()?;
            if parts.is_empty() && self.is_word("FROM") && self.next.is_word("DATABASE_SNAPSHOT") {
                self.advance()?;
                self.advance()?;
                self.expect("=")?;
                let snapshot = self.text_operand()?;
                return Ok(Statement::Restore(Box::new(Restore {
                    what: RestoreWhat::Snapshot { name, snapshot },
                    from: Vec::new(),
                    options: Vec::new(),
                })));
            }
            RestoreWhat::Database { name, parts }
        } else if self.take_word("LOG")? || self.take_word("TRANSACTION")? {
            let name = self.name()?;
            let parts = self.restore_parts()?;
            RestoreWhat::Log { name, parts }
        } else {
            let what = [
                ("HEADERONLY", RestoreWhat::HeaderOnly),
                ("FILELISTONLY", RestoreWhat::FileListOnly),
                ("LABELONLY", RestoreWhat::LabelOnly),
                ("VERIFYONLY", RestoreWhat::VerifyOnly),
                ("REWINDONLY", RestoreWhat::RewindOnly),
            ];
            let found = what.into_iter().find(|(word, _)| self.is_word(word));
            let (_, what) = found.ok_or_else(|| self.syntax())?;
            self.advance()?;
            what
        };
        let named = matches!(what, RestoreWhat::Database { .. } | RestoreWhat::Log { .. });
        let from = match self.take_word("FROM")? {
            true => self.devices()?,
            false if named => Vec::new(),
            false => return Err(self.syntax()),
        };
        let options = self.with_options(Verb::Restore)?;
        Ok(Statement::Restore(Box::new(Restore {
            what,
            from,
            options,
        })))
    }

    fn restore_parts(&mut self) -> Result<Vec<Part>, Message> {
        let words = ["FILE", "FILEGROUP", "READ_WRITE_FILEGROUPS", "PAGE"];
        if self.token.kind != TokenKind::Word || !words.iter().any(|w| self.is_word(w)) {
            return Ok(Vec::new());
        }
        self.list(|p| {
            if p.take_word("PAGE")? {
                p.expect("=")?;
                return Ok(Part::Page(p.text_operand()?));
            }
            p.part()
        })
    }
}
