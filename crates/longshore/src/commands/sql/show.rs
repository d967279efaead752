//! Results as sqlcmd prints them: padded columns, a line of dashes, `(1 rows affected)`, errors as `Msg …, Level …`.

use std::io::{self, Write};

use longshore_tsql::{Closed, Column, Done, Message, Sink, Type, Value};

/// How results are to look.
#[derive(Debug, Clone)]
pub struct Style {
    /// -1: no headers; 0: one; else again after so many rows.
    pub headers: i64,
    pub separator: String,
    pub trim: bool,
    pub width: Option<usize>,
    /// 0: errors go to standard error; 1: all messages do.
    pub to_stderr: Option<u8>,
    pub server: String,
}

/// Columns of any length are shown so wide.
const WIDTH_MAX: usize = 256;

/// Prints while the statements run.
pub struct Show<'a> {
    style: &'a Style,
    columns: Vec<Column>,
    /// A result set was begun and has not ended.
    open: bool,
    rows: u64,
}

impl<'a> Show<'a> {
    pub fn new(style: &'a Style) -> Show<'a> {
        Show {
            style,
            columns: Vec::new(),
            open: false,
            rows: 0,
        }
    }

    fn put(&self, text: &str) -> Result<(), Closed> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|_| Closed)
    }

    fn line(&self, cells: impl Iterator<Item = String>) -> Result<(), Closed> {
        let mut line = cells.collect::<Vec<_>>().join(&self.style.separator);
        if let Some(width) = self.style.width
            && let Some((at, _)) = line.char_indices().nth(width)
        {
            line.truncate(at);
        }
        self.put(&(line + "\n"))
    }

    fn width(column: &Column) -> usize {
        let own = column.kind.display_width().unwrap_or(WIDTH_MAX);
        own.max(column.name.chars().count()).clamp(1, WIDTH_MAX)
    }

    fn cell(&self, column: &Column, text: &str) -> String {
        // Control characters of media could move a terminal's cursor.
        let plain = crate::output::plain(text);
        if self.style.trim {
            return plain.trim_end().to_owned();
        }
        let width = Self::width(column);
        let cut: String = plain.chars().take(width).collect();
        match column.kind.is_number() || column.kind == Type::SqlVariant {
            true => format!("{cut:>width$}"),
            false => format!("{cut:<width$}"),
        }
    }

    fn header(&self) -> Result<(), Closed> {
        self.line(self.columns.iter().map(|c| match self.style.trim {
            true => c.name.clone(),
            false => format!("{:<width$.width$}", c.name, width = Self::width(c)),
        }))?;
        self.line(self.columns.iter().map(|c| match self.style.trim {
            true => "-".repeat(c.name.chars().count().max(1)),
            false => "-".repeat(Self::width(c)),
        }))
    }
}

impl Sink for Show<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), Closed> {
        self.columns = columns.to_vec();
        self.open = true;
        self.rows = 0;
        match self.style.headers {
            -1 => Ok(()),
            _ => self.header(),
        }
    }

    fn row(&mut self, row: &[Value]) -> Result<(), Closed> {
        let again = u64::try_from(self.style.headers).unwrap_or(0);
        if again > 0 && self.rows > 0 && self.rows.is_multiple_of(again) {
            self.put("\n")?;
            self.header()?;
        }
        self.rows += 1;
        let cells = self.columns.iter().zip(row);
        self.line(cells.map(|(column, value)| self.cell(column, &value.to_string())))
    }

    fn message(&mut self, message: &Message) -> Result<(), Closed> {
        let text: Vec<_> = message.text.lines().map(crate::output::plain).collect();
        let text = text.join("\n");
        let text = match message.is_error() {
            true => format!(
                "Msg {}, Level {}, State {}, Server {}, Line {}\n{text}\n",
                message.number, message.severity, message.state, self.style.server, message.line
            ),
            false => format!("{text}\n"),
        };
        let aside = match self.style.to_stderr {
            None => false,
            Some(0) => message.is_error(),
            Some(_) => true,
        };
        match aside {
            true => {
                let _gone = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
            false => self.put(&text),
        }
    }

    fn done(&mut self, done: Done) -> Result<(), Closed> {
        let ends = std::mem::take(&mut self.open);
        match done.rows {
            Some(rows) => self.put(&format!("\n({rows} rows affected)\n")),
            None if ends && !done.error => self.put("\n"),
            None => Ok(()),
        }
    }
}
