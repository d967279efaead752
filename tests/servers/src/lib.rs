//! Private PostgreSQL servers for tests: one cluster each, gone when the test is over.
//!
//! ```no_run
//! # use longshore_test_servers::{installations, Options, Server, Stop};
//! for installation in installations() {
//!     let server = Server::create(&installation, Options::default());
//!     server.start();
//!     assert_eq!(server.psql("select 1"), "1");
//!     server.stop(Stop::Fast);
//! }
//! ```
//!
//! Invariants
//! - A server listens on a Unix socket in its own directory; no two tests can meet.
//! - A server dies with the process that started it, however that process ends.
//! - As root everything of a server runs as an unprivileged user ([`User`]); PostgreSQL refuses root.
//! - Nothing waits for ever: what takes longer than [`PATIENCE`] panics and shows the server's log.

mod installation;
mod server;
mod user;

use std::time::Duration;

pub use installation::{Installation, installations, representatives};
pub use server::{Options, Server, Stop};
pub use user::User;

/// How long a start, a stop or a query may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(90);
