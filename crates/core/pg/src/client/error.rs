//! Errors in talking to a server.
//!
//! Invariants
//! - No text contains the connection string, which may have a password.
//! - A refusal by the server keeps the server's own words and its SQLSTATE, by which callers decide; the translated
//!   text is only for people.
//! - Every error has a next step ([`Error::hint`]).
//!
//! Leaves to others: what the caller was doing (the rooms above add it), exit codes (`longshore-terminal`), and a
//! server's NOTICE or WARNING, which is no error.

use std::fmt;
use std::io;
use std::path::PathBuf;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options do not describe a connection. Never contains the text itself, which may hold a password.
    #[error("the connection string is not understood: {reason}")]
    Options { reason: String },

    #[error("cannot connect to {address}")]
    Connect { address: String, source: io::Error },

    /// A certificate, key or password file cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },

    #[error("no encrypted connection to {address}: {reason}")]
    Tls { address: String, reason: String },

    #[error("{address}: {reason}")]
    Authentication {
        address: String,
        reason: &'static str,
    },

    /// The server refused a command or the session.
    #[error("the server refused: {0}")]
    Server(Box<ServerError>),

    /// The connection broke.
    #[error("the connection to {address} was lost")]
    Lost { address: String, source: io::Error },

    #[error("{address} did not answer in time")]
    Timeout { address: String },

    /// The server sent a message that is not valid at this point.
    #[error("the server's answer is not understood: {what}")]
    Protocol { what: String },
}

impl Error {
    pub(super) fn protocol(what: String) -> Error {
        Error::Protocol { what }
    }

    pub(super) fn malformed(source: io::Error) -> Error {
        Error::protocol(source.to_string())
    }

    /// The SQLSTATE of a server's error, five characters; `None` for other errors.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Error::Server(refusal) => Some(&refusal.sqlstate),
            _ => None,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Options { .. } => {
                "write postgres://USER@HOST:PORT/DATABASE?host=SOCKETDIR, or key=value pairs as for psql"
            }
            Error::Connect { .. } => {
                "is the server running, and are host (or socket directory) and port right?"
            }
            Error::File { .. } => {
                "check that the file exists, is readable, and is PEM if it must be"
            }
            Error::Tls { .. } => {
                "check sslmode and sslrootcert, and that the server's certificate names this host"
            }
            Error::Authentication { .. } => {
                "check user and password (PGPASSWORD, or the password file), and the server's pg_hba.conf"
            }
            Error::Server(refusal) => refusal.advice(),
            Error::Lost { .. } => "check the server's log: did it stop, or was the session ended?",
            Error::Timeout { .. } => "is the server overloaded, or the network broken?",
            Error::Protocol { .. } => "is this a PostgreSQL server, without a pooler in between?",
        }
    }
}

/// An error message from the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerError {
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// Five characters (PostgreSQL documentation, appendix "PostgreSQL Error Codes").
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl ServerError {
    pub(super) fn parse(mut fields: ErrorFields<'_>) -> Result<ServerError, Error> {
        let mut refusal = ServerError::default();
        while let Some(field) = fields.next().map_err(Error::malformed)? {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'S' if refusal.severity.is_empty() => refusal.severity = value,
                // This field is not translated (since 9.6).
                b'V' => refusal.severity = value,
                b'C' => refusal.sqlstate = value,
                b'M' => refusal.message = value,
                b'D' => refusal.detail = Some(value),
                b'H' => refusal.hint = Some(value),
                _ => {}
            }
        }
        Ok(refusal)
    }

    fn advice(&self) -> &'static str {
        match self.sqlstate.as_str() {
            "28P01" | "28000" => {
                "check user and password (PGPASSWORD, or the password file), and the server's pg_hba.conf"
            }
            "42501" => "grant the role what docs/postgres.md lists, or use a superuser",
            "3D000" => "name a database that exists; any one will do, e.g. postgres",
            "53300" => "the server has no free connection slot; reserve one, or wait",
            "57P01" | "57P02" | "57P03" => "the server is stopping or starting; retry when it runs",
            "40001" => {
                "replay on the standby cancelled it: raise max_standby_streaming_delay, or back up at a quieter time"
            }
            "0A000" => "the server does not support this; check its version and settings",
            _ => "see the server's log",
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)?;
        if let Some(detail) = &self.detail {
            write!(f, "; {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}
