//! Parses CREATE, ALTER and DROP CREDENTIAL.
//!
//! Invariants
//! - IDENTITY and SECRET are literals, as in SQL Server: a variable is a syntax error.
//! - The secret leaves this file in a type that no text shows.
//!
//! Leaves to others: hiding a secret in the messages about a batch that has mistakes (`hidden.rs`), and keeping
//! credentials (`statement/credential.rs`).

use super::Parser;
use crate::message::{Message, NOT_HERE, SYNTAX};
use crate::syntax::ast::{
    CredentialChange, CredentialStatement, CredentialText, Hidden, Statement,
};
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    /// Whether the current word begins a statement about a credential.
    pub(super) fn is_about_credential(&self) -> bool {
        self.next.is_word("CREDENTIAL")
    }

    /// `CREATE`, `ALTER` or `DROP`, which is the current word, and the rest.
    pub(super) fn credential(&mut self) -> Result<Statement, Message> {
        let verb = self.token.raw.to_ascii_uppercase();
        self.advance()?;
        self.expect_word("CREDENTIAL")?;
        let name = self.identifier()?;
        let change = match verb.as_str() {
            "DROP" => CredentialChange::Drop,
            "ALTER" => CredentialChange::Alter(self.credential_text(&verb)?),
            _ => CredentialChange::Create(self.credential_text(&verb)?),
        };
        let statement = CredentialStatement { name, change };
        Ok(Statement::Credential(Box::new(statement)))
    }

    fn credential_text(&mut self, verb: &str) -> Result<CredentialText, Message> {
        self.expect_word("WITH")?;
        self.expect_word("IDENTITY")?;
        let empty = self.wrong(SYNTAX.with(&[&"IDENTITY"]));
        self.expect("=")?;
        let identity = self.literal()?;
        if identity.is_empty() {
            return Err(empty);
        }
        let mut secret = None;
        if self.take(",")? {
            self.expect_word("SECRET")?;
            self.expect("=")?;
            secret = Some(Hidden::new(self.literal()?));
        }
        if self.is_word("FOR") && self.next.is_word("CRYPTOGRAPHIC") {
            let what = format!("{verb} CREDENTIAL FOR CRYPTOGRAPHIC PROVIDER");
            return Err(self.wrong(NOT_HERE.with(&[&what])));
        }
        Ok(CredentialText { identity, secret })
    }

    pub(super) fn literal(&mut self) -> Result<String, Message> {
        match self.token.kind {
            TokenKind::Text => Ok(self.advance()?.value()),
            _ => Err(self.syntax()),
        }
    }
}
