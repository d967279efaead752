//! Results for `--json`: all output, in order.

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
        state: u8,
        line: u32,
        text: String,
    },
    Rows {
        columns: Vec<Json>,
        rows: Vec<Vec<Json>>,
    },
}

/// Collects the output.
#[derive(Debug, Default)]
pub struct Keep {
    pub said: Vec<OutputPiece>,
    pub errors: bool,
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
            rows: Vec::new(),
        });
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        if let Some(OutputPiece::Rows { rows, .. }) = self.said.last_mut() {
            rows.push(row.iter().map(json).collect());
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.errors |= message.is_error();
        self.said.push(OutputPiece::Message {
            number: message.number,
            severity: message.severity,
            state: message.state,
            line: message.line,
            text: message.text.clone(),
        });
        Ok(())
    }

    fn done(&mut self, _done: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}
