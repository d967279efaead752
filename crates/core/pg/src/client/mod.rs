//! A connection to a PostgreSQL server: the frontend of protocol 3.0, blocking, without a driver.
//!
//! [`Connection::query`] sends text and returns rows of text, which is all the SQL that a backup needs. COPY and
//! replication use [`Connection::start`] and [`Connection::reply`]: one command, then its replies one by one until the
//! server is ready again. `postgres-protocol` encodes and decodes the messages.
//!
//! Invariants
//! - Text is bytes: the client encoding is SQL_ASCII, so the server converts nothing. A backup label must be stored as
//!   the server returned it.
//! - A message longer than [`MESSAGE_MAX`] or an answer longer than [`ANSWER_MAX`] is refused before it is held in
//!   memory.
//! - No error, log line or `Debug` text contains a password.
//! - A timeout loses nothing: the next call continues where this one stopped.
//!
//! Leaves to others: an open session (`connection.rs`), opening one (`startup.rs`), and the connection string (`options.rs`).
//!
//! Not supported: GSSAPI, channel binding, service files, LDAP look-ups.
//! Source: PostgreSQL 18 documentation, chapter "Frontend/Backend Protocol".

mod connection;
mod error;
mod files;
mod log;
mod options;
mod passfile;
mod reply;
mod shown;
mod startup;
mod stream;
mod text;
mod tls;

use longshore_io::Storage;

pub use connection::{ANSWER_MAX, Connection, MESSAGE_MAX, Mode};
pub use error::{Error, ServerError};
pub use options::{Host, Options, Secret, SslMode};
pub use reply::{Reply, Rows};
pub use shown::without_password;

impl Connection {
    /// Connects and authenticates with the first host that answers. Blocks up to [`Options::connect_timeout`] for
    /// each. `storage` provides the password and certificate files.
    pub fn open(storage: &dyn Storage, options: &Options, mode: Mode) -> Result<Connection, Error> {
        startup::open(storage, options, mode)
    }
}

#[cfg(test)]
mod tests;
