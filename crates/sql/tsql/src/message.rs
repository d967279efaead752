//! Messages: number, severity, state, text, line; and the table of all messages of this server.
//!
//! Invariants
//! - Numbers, severities and patterns are SQL Server's if it has one for the fact (`sys.messages`, SQL Server 2022).
//!   Facts without a number there use [`OWN`]; extensions of ours have 50001 and up, where users' messages begin.
//! - A pattern gets as many values as it has places.
//! - A line counts from 1.
//!
//! Leaves to others: the table (`message/table.rs`), and which error of a room becomes which message (`refusal.rs`).

mod table;

use std::fmt::{self, Display};

pub use table::*;

/// Severities up to this are information, higher ones are errors.
pub const SEVERITY_INFO_MAX: u8 = 10;

/// A message as a client receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub number: u32,
    /// 0 to 25. Information has 10 here, as `sys.messages` lists it; on the wire it has class 0.
    pub severity: u8,
    pub state: u8,
    pub text: String,
    /// The line of the statement in its batch, from 1.
    pub line: u32,
    /// The procedure that the statement is in.
    pub procedure: Option<String>,
}

impl Message {
    pub fn is_error(&self) -> bool {
        self.severity > SEVERITY_INFO_MAX
    }

    /// The class of its INFO or ERROR token.
    pub fn class(&self) -> u8 {
        match self.severity {
            SEVERITY_INFO_MAX => 0,
            severity => severity,
        }
    }

    /// The same message in a procedure, unless it came from another one.
    pub fn in_procedure(mut self, procedure: Option<&str>) -> Message {
        if self.procedure.is_none() {
            self.procedure = procedure.map(str::to_owned);
        }
        self
    }

    pub fn at_line(mut self, line: u32) -> Message {
        self.line = line;
        self
    }
}

impl Display for Message {
    /// In sqlcmd's format, without the server's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_error() {
            let Message {
                number,
                severity,
                state,
                line,
                procedure,
                ..
            } = self;
            write!(f, "Msg {number}, Level {severity}, State {state}")?;
            if let Some(procedure) = procedure {
                write!(f, ", Procedure {procedure}")?;
            }
            writeln!(f, ", Line {line}")?;
        }
        f.write_str(&self.text)
    }
}

/// A message's fixed parts; `{}` stands for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageTemplate {
    pub number: u32,
    pub severity: u8,
    pub state: u8,
    pub pattern: &'static str,
}

impl MessageTemplate {
    /// The message with its values, in the pattern's order.
    pub fn with(&self, values: &[&dyn Display]) -> Message {
        let mut pieces = self.pattern.split("{}");
        let mut text = pieces.next().unwrap_or_default().to_owned();
        debug_assert_eq!(self.pattern.matches("{}").count(), values.len());
        for (piece, value) in pieces.zip(values) {
            text += &value.to_string();
            text += piece;
        }
        Message {
            number: self.number,
            severity: self.severity,
            state: self.state,
            text,
            line: 1,
            procedure: None,
        }
    }

    /// The message of a pattern without values.
    pub fn plain(&self) -> Message {
        self.with(&[])
    }
}

/// 911 of USE; its usual state is that of BACKUP and RESTORE.
pub fn database_missing(name: &str) -> Message {
    let mut missing = DATABASE_MISSING.with(&[&name]);
    missing.state = 1;
    missing
}

/// 208, with the state of SQL Server's: 0 for a temporary table.
pub fn object_unknown(name: &str) -> Message {
    let mut unknown = OBJECT_UNKNOWN.with(&[&name]);
    if name.starts_with('#') {
        unknown.state = 0;
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_the_placeholders_of_the_pattern() {
        let message = DATABASE_MISSING.with(&[&"{}"]);
        assert_eq!((message.number, message.state), (911, 11));
        assert!(message.text.starts_with("Database '{}' does not exist."));
    }

    #[test]
    fn numbers_ascend_and_severities_are_severities() {
        assert!(ALL.is_sorted_by_key(|known| known.number));
        assert!(ALL.iter().all(|known| known.severity <= 25));
        assert!(ALL.len() > 60);
    }
}
