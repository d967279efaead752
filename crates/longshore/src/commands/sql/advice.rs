//! What standard error says of a batch with an error: its file, and the next step.
//!
//! Invariants
//! - Results and messages stay as sqlcmd prints them, because scripts parse them. So the lines come after the batch, to
//!   standard error, and never between rows.
//! - The first error that is shown is the one that is explained.
//!
//! Leaves to others: printing (`sql`), and messages whose own text has the next step (`longshore-tsql`).

use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Sink, Value};

/// Where a batch comes from.
#[derive(Debug, Clone, Copy)]
pub struct BatchOrigin<'a> {
    /// The file of `-i`; `None`: another source.
    pub file: Option<&'a str>,
    /// The line of the file on which the batch begins, from 1.
    pub line: usize,
}

/// Passes everything on, and keeps the first error.
pub struct Advised<'a> {
    pub inner: &'a mut dyn Sink,
    /// Messages below this severity are hidden.
    pub message_level: i8,
    pub error: Option<Message>,
    /// A message had the state that ends a script, as in sqlcmd.
    pub quits: bool,
    /// The first value of the last row of the last result set.
    pub last: Option<Value>,
}

/// `RAISERROR (…, 127)`: sqlcmd ends at once, whatever the severity.
const STATE_QUITS: u8 = 127;

impl Sink for Advised<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        self.last = None;
        self.inner.columns(columns)
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        self.last = row.first().cloned();
        self.inner.row(row)
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.quits |= message.state == STATE_QUITS;
        let is_shown = i16::from(message.severity) >= i16::from(self.message_level);
        if message.is_error() && is_shown && self.error.is_none() {
            self.error = Some(message.clone());
        }
        self.inner.message(message)
    }

    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone> {
        self.inner.done(done)
    }

    fn database_changed(&mut self, from: &str, to: &str) -> Result<(), ReceiverGone> {
        self.inner.database_changed(from, to)
    }
}

/// The lines for standard error; none if neither a file nor a next step is known.
pub fn lines(error: &Message, origin: BatchOrigin) -> String {
    let mut lines = String::new();
    if let Some(file) = origin.file {
        let Message { number, line, .. } = error;
        let batch = match origin.line {
            0 | 1 => String::new(),
            begun => format!(" of the batch that begins on line {begun}"),
        };
        lines += &format!("longshore: {file}: Msg {number}, Line {line}{batch}\n");
    }
    if let Some(hint) = hint(error.number) {
        lines += &format!("hint: {hint}\n");
    }
    lines
}

/// The next step after an error, for those that the message's own text leaves open.
pub fn hint(number: u32) -> Option<&'static str> {
    Some(match number {
        102 => "correct the text at the word that the message names; docs/tsql.md has the grammar",
        155 => "docs/tsql.md lists the options of each statement",
        207 => "correct the name; SELECT TOP 0 * FROM the view shows its columns",
        208 => "correct the name; docs/tsql.md lists the views and tables",
        911 => "correct the name; SELECT name FROM sys.databases shows the names",
        2812 => "correct the name; docs/tsql.md lists the procedures",
        3132 => {
            "name all stripes of the media set; `longshore list DEVICE` shows how many there are"
        }
        3189 => {
            "name the damaged blocks with `longshore verify FILE…`, and restore from another backup set"
        }
        3201 => "check the path, and the rights of this user in its directory",
        3202 => {
            "check the free space and the rights of the device's directory, then run the BACKUP again"
        }
        3256 => "restore another backup set; RESTORE HEADERONLY shows those on the device",
        3287 => "RESTORE HEADERONLY shows the positions that there are",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sql::sink_suite::{keeps_its_contract, legal};

    #[test]
    fn a_sink_that_keeps_an_error_keeps_the_contract_of_all_sinks() {
        struct Count(usize);
        impl Sink for Count {
            fn columns(&mut self, _: &[Column]) -> Result<(), ReceiverGone> {
                Ok(())
            }
            fn row(&mut self, _: &[Value]) -> Result<(), ReceiverGone> {
                Ok(())
            }
            fn message(&mut self, _: &Message) -> Result<(), ReceiverGone> {
                self.0 += 1;
                Ok(())
            }
            fn done(&mut self, _: DoneEvent) -> Result<(), ReceiverGone> {
                Ok(())
            }
        }
        let mut count = Count(0);
        let mut advised = Advised {
            inner: &mut count,
            message_level: 0,
            error: None,
            quits: false,
            last: None,
        };
        assert_eq!(keeps_its_contract(&mut advised), 2 * legal().len());
        advised.row(&[Value::Int(0)]).unwrap();
        assert_eq!(advised.last, Some(Value::Int(0)));
        advised.columns(&[]).unwrap();
        assert_eq!(advised.last, None, "a result set without rows");
        assert_eq!(count.0, 12);
    }

    #[test]
    fn an_error_of_a_file_is_named_with_the_line_of_its_batch() {
        let error = Message {
            number: 102,
            severity: 15,
            state: 1,
            text: "Incorrect syntax near 'x'.".into(),
            line: 3,
            procedure: None,
        };
        let file = Some("q.sql");
        let said = lines(&error, BatchOrigin { file, line: 7 });
        let first = "longshore: q.sql: Msg 102, Line 3 of the batch that begins on line 7\nhint: ";
        assert!(said.starts_with(first), "{said}");
        let said = lines(&error, BatchOrigin { file, line: 1 });
        assert!(said.starts_with("longshore: q.sql: Msg 102, Line 3\nhint: "));
        let said = lines(
            &error,
            BatchOrigin {
                file: None,
                line: 1,
            },
        );
        assert!(said.starts_with("hint: "), "{said}");
    }
}
