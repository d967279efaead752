//! Results for `--json`: all output, in order.
//!
//! Invariants
//! - Every row stands below the columns that it came with, also if messages came between the two.
//!
//! Leaves to others: results for people (`show.rs`), and the frame of the answer (`terminal`).

use super::advice::hint;
use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Sink, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};

/// One piece of output.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutputPiece {
    Message {
        number: u32,
        severity: u8,
        message_state: u8,
        line: u32,
        text: String,
        /// The file of `-i` that an error comes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<&'static str>,
    },
    Rows {
        columns: Vec<Json>,
        row_values: Vec<Vec<Json>>,
    },
}

/// Collects the output.
#[derive(Debug, Default)]
pub struct Keep {
    pub said: Vec<OutputPiece>,
    pub errors: bool,
    /// The file of `-i` that runs.
    pub file: Option<String>,
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(n) => json!(n),
        Value::Float(n) => json!(n),
        // Texts for numbers that JSON readers could round.
        value => json!(value.to_string()),
    }
}

impl Sink for Keep {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        let column = |c: &Column| json!({"name": c.name, "type": c.kind.to_string()});
        self.said.push(OutputPiece::Rows {
            columns: columns.iter().map(column).collect(),
            row_values: Vec::new(),
        });
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        // Messages may have come since the columns.
        let open = self.said.iter_mut().rev().find_map(|piece| match piece {
            OutputPiece::Rows { row_values, .. } => Some(row_values),
            OutputPiece::Message { .. } => None,
        });
        if let Some(rows) = open {
            rows.push(row.iter().map(json).collect());
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.errors |= message.is_error();
        self.said.push(OutputPiece::Message {
            number: message.number,
            severity: message.severity,
            message_state: message.state,
            line: message.line,
            text: message.text.clone(),
            file: self.file.clone().filter(|_| message.is_error()),
            hint: hint(message.number),
        });
        Ok(())
    }

    fn done(&mut self, _done: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sql::sink_suite::{keeps_its_contract, legal};

    /// Goal: every row is in the answer, below the columns that it came with, whatever messages come in between.
    #[test]
    fn everything_that_was_said_is_in_the_answer() {
        let mut keep = Keep::default();
        assert_eq!(keeps_its_contract(&mut keep), 2 * legal().len());
        assert!(keep.errors);
        let mut results = Vec::new();
        let mut messages = 0;
        for piece in &keep.said {
            match piece {
                OutputPiece::Rows {
                    columns,
                    row_values,
                } => {
                    assert!(row_values.iter().all(|row| row.len() == columns.len()));
                    results.push(row_values.len());
                }
                OutputPiece::Message { .. } => messages += 1,
            }
        }
        assert_eq!(results, [2, 0, 3, 1, 1, 2, 0, 3, 1, 1]);
        assert_eq!(messages, 12);
    }
}
