//! Statements of T-SQL whose first word alone does not name them, and that are not supported here: symmetric keys, Service
//! Broker, triggers, signatures.

use super::Parser;
use crate::message::{Message, NOT_HERE};

/// As the refusal names them. The first two words tell them from everything that is supported.
const PHRASES: &[&str] = &[
    "ADD COUNTER SIGNATURE",
    "ADD SENSITIVITY CLASSIFICATION",
    "ADD SIGNATURE",
    "BACKUP SERVICE MASTER KEY",
    "BACKUP SYMMETRIC KEY",
    "BEGIN CONVERSATION TIMER",
    "BEGIN DIALOG",
    "BEGIN DISTRIBUTED TRANSACTION",
    "CLOSE ALL SYMMETRIC KEYS",
    "CLOSE SYMMETRIC KEY",
    "DISABLE TRIGGER",
    "ENABLE TRIGGER",
    "END CONVERSATION",
    "GET CONVERSATION GROUP",
    "MOVE CONVERSATION",
    "OPEN SYMMETRIC KEY",
    "RECEIVE *",
    "RECEIVE TOP",
    "RESTORE SERVICE MASTER KEY",
    "RESTORE SYMMETRIC KEY",
    "SEND ON CONVERSATION",
];

impl Parser<'_> {
    /// The refusal of such a statement; `None` for all others.
    pub(super) fn elsewhere(&mut self) -> Result<Option<Message>, Message> {
        let is = |phrase: &&&str| {
            let mut words = phrase.split(' ');
            let first = words.next().is_some_and(|word| self.token.is_word(word));
            let second = |word: &str| self.next.is_word(word) || self.next.is(word);
            first && words.next().is_some_and(second)
        };
        let Some(phrase) = PHRASES.iter().find(is) else {
            return Ok(self
                .receives()
                .then(|| self.wrong(NOT_HERE.with(&[&"RECEIVE"]))));
        };
        let name = match phrase.strip_prefix("RECEIVE") {
            Some(_) => "RECEIVE",
            None => phrase,
        };
        Ok(Some(self.wrong(NOT_HERE.with(&[&name]))))
    }

    /// Whether columns of a queue are received: `RECEIVE conversation_handle, message_body FROM q`.
    fn receives(&self) -> bool {
        let queue = ["CAST", "CONVERT"];
        let column = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.starts_with("conversation_") || name.starts_with("message_")
        };
        self.is_word("RECEIVE")
            && (queue.iter().any(|word| self.next.is_word(word)) || column(self.next.raw))
    }
}
