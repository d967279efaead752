//! Results for `--json`: everything that was said, in its order.

use longshore_tsql::{Closed, Column, Done, Message, Sink, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};

/// One thing that was said.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said {
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

/// Keeps what is said.
#[derive(Debug, Default)]
pub struct Keep {
    pub said: Vec<Said>,
    pub errors: bool,
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(n) => json!(n),
        Value::Float(n) => json!(n),
        // Texts where a number of JSON's readers could lose digits.
        value => json!(value.to_string()),
    }
}

impl Sink for Keep {
    fn columns(&mut self, columns: &[Column]) -> Result<(), Closed> {
        let column = |c: &Column| json!({"name": c.name, "type": c.kind.to_string()});
        self.said.push(Said::Rows {
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        });
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), Closed> {
        if let Some(Said::Rows { rows, .. }) = self.said.last_mut() {
            rows.push(row.iter().map(json).collect());
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), Closed> {
        self.errors |= message.is_error();
        self.said.push(Said::Message {
            number: message.number,
            severity: message.severity,
            state: message.state,
            line: message.line,
            text: message.text.clone(),
        });
        Ok(())
    }

    fn done(&mut self, _done: Done) -> Result<(), Closed> {
        Ok(())
    }
}
