//! Private PostgreSQL servers for tests: one cluster each, removed at the end of the test.
//!
//! ```no_run
//! # use longshore_kit::{installations, Options, Server, Stop};
//! for installation in installations() {
//!     let server = Server::create(&installation, Options::default());
//!     server.start();
//!     assert_eq!(server.psql("select 1"), "1");
//!     server.stop(Stop::Fast);
//! }
//! ```
//!
//! Invariants
//! - A server listens on a Unix socket in its own directory, so tests never share one.
//! - A server dies with the process that started it, however that process ends.
//! - As root, everything of a server runs as an unprivileged user ([`User`]); PostgreSQL refuses root.
//! - Nothing waits for ever: a wait longer than [`PATIENCE`] panics and shows the server's log.
//! - No two clusters of a test run have the same system identifier, although they begin as copies of one.

mod installation;
pub mod judge;
mod server;
mod stage;
mod template;
mod user;

use std::time::Duration;

pub use installation::{Installation, installations, representatives};
pub use server::{Options, Server, Stop};
pub use stage::Stage;
pub use user::User;

/// How long a start, a stop or a query may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(300);
