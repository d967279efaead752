//! Parses ALTER and DROP by what they are about, ALTER SERVER CONFIGURATION, ALTER and DROP DATABASE, RECONFIGURE and
//! DBCC.
//!
//! Invariants
//! - Nothing is executed.
//! - ALTER and DROP of an object that this server does not have are refused by name, not as a syntax error.
//!
//! Leaves to others: the meaning of the parsed statements (`statement/`).

use super::Parser;
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::{Dbcc, HardwareOffload, Operand, Statement};
use crate::syntax::lexer::{NEAR_MAX, TokenKind};

const ACCESS: [&str; 3] = ["SINGLE_USER", "RESTRICTED_USER", "MULTI_USER"];
const MODELS: [&str; 3] = ["SIMPLE", "FULL", "BULK_LOGGED"];

impl Parser<'_> {
    pub(super) fn alter(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.take_word("DATABASE")? {
            return self.alter_database();
        }
        if self.take_word("TABLE")? {
            return self.alter_table();
        }
        if !self.is_word("SERVER") {
            let what = self.token.raw.chars().take(NEAR_MAX).collect::<String>();
            return match self.token.kind {
                TokenKind::Word => {
                    Err(self.wrong(NOT_HERE.with(&[&format!("ALTER {}", what.to_uppercase())])))
                }
                _ => Err(self.syntax()),
            };
        }
        self.advance()?;
        for word in ["AUDIT", "ROLE"] {
            if self.is_word(word) {
                return Err(self.wrong(NOT_HERE.with(&[&format!("ALTER SERVER {word}")])));
            }
        }
        self.expect_word("CONFIGURATION")?;
        self.expect_word("SET")?;
        if self.token.kind == TokenKind::Word && !self.is_word("HARDWARE_OFFLOAD") {
            return Err(self.wrong(NOT_HERE.with(&[&"ALTER SERVER CONFIGURATION"])));
        }
        self.expect_word("HARDWARE_OFFLOAD")?;
        self.take("=")?;
        let on = self.take_word("ON")?;
        if !on {
            self.expect_word("OFF")?;
        }
        self.expect("(")?;
        self.expect_word("ACCELERATOR")?;
        self.expect("=")?;
        let accelerator = self.identifier()?.to_ascii_uppercase();
        let mut mode = None;
        if self.take(",")? {
            self.expect_word("MODE")?;
            self.expect("=")?;
            if !["SOFTWARE", "HYBRID"].iter().any(|m| self.is_word(m)) {
                return Err(self.syntax());
            }
            mode = Some(self.identifier()?.to_ascii_uppercase());
        }
        self.expect(")")?;
        Ok(Statement::HardwareOffload(HardwareOffload {
            on,
            accelerator,
            mode,
        }))
    }

    /// Access to a database: scripts change it before and after a restore. No other property of a database is altered
    /// here.
    fn alter_database(&mut self) -> Result<Statement, Message> {
        let line = self.line();
        let named = |what: &str| NOT_HERE.with(&[&what.trim_end()]).at_line(line);
        if self.is_word("SCOPED") || self.is_word("AUDIT") || self.is_word("ENCRYPTION") {
            let what = format!("ALTER DATABASE {}", self.token.raw.to_ascii_uppercase());
            return Err(named(&what));
        }
        let database = self.identifier()?;
        let word = self.token.raw.to_ascii_uppercase();
        if !self.take_word("SET")? {
            let is_word = self.token.kind == TokenKind::Word;
            let word = if is_word { word.as_str() } else { "" };
            return Err(named(&format!("ALTER DATABASE … {word}")));
        }
        if let Some(access) = self.recovery_model()? {
            return Ok(Statement::AlterAccess { database, access });
        }
        if !ACCESS.iter().any(|word| self.is_word(word)) {
            let shown = self.token.raw.chars().take(NEAR_MAX).collect::<String>();
            let what = format!("ALTER DATABASE … SET {}", shown.to_uppercase());
            return Err(named(&what));
        }
        let access = self.identifier()?.to_ascii_uppercase();
        if self.take_word("WITH")? && !self.take_word("NO_WAIT")? {
            self.expect_word("ROLLBACK")?;
            if !self.take_word("IMMEDIATE")? {
                self.expect_word("AFTER")?;
                self.integer()?;
                self.take_word("SECONDS")?;
            }
        }
        Ok(Statement::AlterAccess { database, access })
    }

    /// `RECOVERY SIMPLE`, in capitals; `None`: another setting.
    fn recovery_model(&mut self) -> Result<Option<String>, Message> {
        let found = MODELS.iter().find(|model| self.next.is_word(model));
        let Some(model) = found.filter(|_| self.is_word("RECOVERY")) else {
            return Ok(None);
        };
        self.advance()?;
        self.advance()?;
        if self.take_word("WITH")? {
            self.expect_word("NO_WAIT")?;
        }
        Ok(Some(format!("RECOVERY {model}")))
    }

    pub(super) fn drop(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if let Some(dropped) = self.drop_object()? {
            return Ok(dropped);
        }
        if !self.is_word("DATABASE") && self.token.kind == TokenKind::Word {
            let what = self.token.raw.chars().take(NEAR_MAX).collect::<String>();
            return Err(self.wrong(NOT_HERE.with(&[&format!("DROP {}", what.to_uppercase())])));
        }
        self.expect_word("DATABASE")?;
        let if_exists = self.take_word("IF")?;
        if if_exists {
            self.expect_word("EXISTS")?;
        }
        let names = self.list(Parser::identifier)?;
        Ok(Statement::DropDatabase { if_exists, names })
    }

    /// `KILL 52`, `KILL 52 WITH STATUSONLY`. KILL of a unit of work, or of queries' notifications, is refused by name.
    pub(super) fn kill(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.token.kind == TokenKind::Text {
            return Err(self.wrong(NOT_HERE.with(&[&"KILL of a unit of work"])));
        }
        if self.token.kind == TokenKind::Word {
            let what = format!("KILL {}", self.token.raw.to_ascii_uppercase());
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        let negative = self.take("-")?;
        let number = self.integer()?;
        let session = if negative { -number } else { number };
        let status = self.take_word("WITH")?;
        if status {
            self.expect_word("STATUSONLY")?;
        }
        Ok(Statement::Kill { session, status })
    }

    pub(super) fn reconfigure(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let with_override = self.take_word("WITH")?;
        if with_override {
            self.expect_word("OVERRIDE")?;
        }
        Ok(Statement::Reconfigure { with_override })
    }

    pub(super) fn dbcc(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        let command = self.identifier()?.to_ascii_uppercase();
        let mut arguments = Vec::new();
        if self.take("(")? && !self.take(")")? {
            arguments = self.list(|p| {
                if p.take("-")? {
                    return Ok(Operand::Integer(-p.integer()?));
                }
                match p.token.kind {
                    TokenKind::Text => Ok(Operand::Text(p.advance()?.value())),
                    TokenKind::Word | TokenKind::Bracketed | TokenKind::Quoted => {
                        Ok(Operand::Text(p.identifier()?))
                    }
                    _ => p.integer_operand(),
                }
            })?;
            self.expect(")")?;
        }
        let mut options = Vec::new();
        if self.take_word("WITH")? {
            options = self.list(|p| {
                let name = p.identifier()?.to_ascii_uppercase();
                let value = match p.take("=")? {
                    true => Some(p.integer()?),
                    false => None,
                };
                Ok((name, value))
            })?;
        }
        Ok(Statement::Dbcc(Dbcc {
            command,
            arguments,
            options,
        }))
    }
}
