//! A client's session with a database, SQLite or PostgreSQL: SQL text in, words out.
//!
//! Invariants
//! - The same SQL runs in both; only how a transaction begins differs.
//! - A session of SQLite waits for other writers, and claims the file, so that nothing else in this process drops its locks.
//!
//! Leaves to others: which SQL (`workload.rs`, `brokerage.rs`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_io::{ConnectionClaims, Host};
use longshore_pg::client::{Connection as Client, Mode};
use longshore_pipeline::SourceSpec;
use rusqlite::{Connection, types::ValueRef};

/// How long a writer of SQLite waits for others.
const PATIENCE: Duration = Duration::from_secs(30);

pub enum ClientSession {
    Sqlite {
        connection: Box<Connection>,
        /// Released after the connection.
        _claims: ConnectionClaims,
    },
    Postgres(Box<Client>),
}

impl ClientSession {
    pub fn open(source: &SourceSpec) -> Result<ClientSession> {
        match source {
            SourceSpec::Sqlite(path) => ClientSession::sqlite(path),
            SourceSpec::Postgres(options) => {
                let client = Client::open(&Host::new(), options, Mode::Sql)
                    .with_context(|| format!("cannot connect to {}", options.for_people()))?;
                Ok(ClientSession::Postgres(Box::new(client)))
            }
            SourceSpec::Files(_) => {
                anyhow::bail!("a load needs a database, such as sqlite:FILE or postgres://…")
            }
        }
    }

    fn sqlite(path: &Path) -> Result<ClientSession> {
        #[expect(clippy::disallowed_methods, reason = "claimed around the call")]
        let open = || Connection::open(path);
        let (claims, opened) = ConnectionClaims::around(path, open);
        let opened = opened.with_context(|| format!("cannot open {}", path.display()))?;
        opened.busy_timeout(PATIENCE)?;
        Ok(ClientSession::Sqlite {
            connection: Box::new(opened),
            _claims: claims,
        })
    }

    /// Begins a transaction that will write.
    pub fn begin(&mut self) -> Result<()> {
        let begin = match self {
            ClientSession::Sqlite { .. } => "BEGIN IMMEDIATE",
            ClientSession::Postgres(_) => "BEGIN",
        };
        self.run(begin)
    }

    pub fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            ClientSession::Sqlite { connection, .. } => connection.execute_batch(sql)?,
            ClientSession::Postgres(client) => drop(client.query(sql)?),
        }
        Ok(())
    }

    /// The first value of the answer; `None`: there is none, or it is null.
    pub fn word(&mut self, sql: &str) -> Result<Option<String>> {
        match self {
            ClientSession::Sqlite { connection, .. } => {
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query([])?;
                let found = match rows.next()? {
                    Some(row) => shown(row.get_ref(0)?),
                    None => None,
                };
                // A statement that changes rows is only done at its end.
                while rows.next()?.is_some() {}
                Ok(found)
            }
            ClientSession::Postgres(client) => {
                let rows = client.query(sql)?;
                let bytes = rows.bytes(0, 0);
                Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
            }
        }
    }

    /// The first word of the answer as a number.
    pub fn number(&mut self, sql: &str) -> Result<Option<f64>> {
        Ok(self.word(sql)?.and_then(|word| word.parse().ok()))
    }
}

/// A value of SQLite as text.
pub fn shown(value: ValueRef) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(n) => Some(n.to_string()),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Some(String::from_utf8_lossy(text).into_owned())
        }
    }
}
