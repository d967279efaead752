//! The replies of a server to a command.

use std::str::FromStr;

use bytes::Bytes;

use super::Error;

/// A value in a row, as the server wrote it.
type Value = Option<Bytes>;

/// One part of an answer.
#[derive(Debug)]
pub enum Reply {
    Rows(Rows),
    /// A command without rows has completed; its tag, e.g. `CHECKPOINT`.
    Complete(String),
    /// The server sends data until [`Reply::CopyDone`].
    CopyOut,
    /// The server expects data.
    CopyIn,
    /// Both sides may send data.
    CopyBoth,
    Data(Bytes),
    CopyDone,
}

impl Reply {
    /// The error for a reply that is not valid at this point.
    pub(super) fn unexpected(&self) -> Error {
        let what = match self {
            Reply::Rows(_) => "rows",
            Reply::Complete(_) => "the end of a command",
            Reply::CopyOut | Reply::Data(_) | Reply::CopyDone => "copied data",
            Reply::CopyIn => "a request for data",
            Reply::CopyBoth => "a stream",
        };
        Error::protocol(format!("{what} came unexpectedly"))
    }
}

/// A result: rows of text values.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Rows {
    pub(super) fn new(names: Vec<String>) -> Rows {
        Rows {
            names,
            rows: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, values: Vec<Value>) {
        self.rows.push(values);
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The bytes of a value; `None` for NULL, and if there is no such value.
    pub fn bytes(&self, row: usize, column: usize) -> Option<&[u8]> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// Errors: [`Error::Protocol`] if the value is NULL, missing, or not UTF-8.
    pub fn text(&self, row: usize, column: usize) -> Result<&str, Error> {
        self.bytes(row, column)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .ok_or_else(|| self.unreadable(row, column))
    }

    /// A value parsed as a `T`. Errors: [`Error::Protocol`].
    pub fn value<T: FromStr>(&self, row: usize, column: usize) -> Result<T, Error> {
        let text = self.text(row, column)?;
        text.parse().map_err(|_| self.unreadable(row, column))
    }

    /// A boolean, which the server writes as `t` or `f`, or for a setting as `on` or `off`.
    pub fn is_true(&self, row: usize, column: usize) -> Result<bool, Error> {
        match self.text(row, column)? {
            "t" | "on" => Ok(true),
            "f" | "off" => Ok(false),
            _ => Err(self.unreadable(row, column)),
        }
    }

    fn unreadable(&self, row: usize, column: usize) -> Error {
        let name = self.names.get(column).map_or("?", String::as_str);
        Error::protocol(format!("row {row}: {name} has an unexpected value"))
    }
}
