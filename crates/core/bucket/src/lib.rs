//! Object stores behind a door of blocking calls: whole objects, ranges of them, and uploads in parts. S3's protocol,
//! Azure's and Google's are spoken.
//!
//! The only room that knows an asynchronous runtime. It has two threads for each process, started when the first bucket
//! is opened ([`runtime`]). Callers hand over a request with an owned buffer and wait for a [`Ticket`].
//!
//! Invariants
//! - An object appears under its name when its upload is completed, and not before; an upload that is dropped is
//!   aborted.
//! - A request that the store may take twice is repeated for 3 minutes, or as long as the settings say, by `object_store` or here (`own.rs`). Its
//!   signature is that of the first one, and stores take none that is older than 15 minutes.
//! - A completion replaces nothing that was not found at the beginning, in a store that heeds conditions.
//! - Only a whole listing is taken for one: an error or a page of a proxy in its place is no empty bucket.
//! - An address that names a server of the configuration means that server or nothing.
//! - After [`as_of`] every bucket is read as it was at that moment, and none is written.
//! - No text of this room has a secret in it: not `Debug`, not an error, not a log line.
//! - Plain http is spoken only where [`ALLOW_HTTP`] says so, and to services on this machine's own links that give it
//!   credentials.
//! - No request goes where an answer sends it: redirects are errors.
//!
//! Leaves to others: which bytes an object has, and how a set of objects becomes one backup.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod address;
mod azure;
mod connection;
mod counted;
mod credentials;
mod environment;
mod error;
mod exchanged;
mod external;
mod flow;
mod generations;
mod google;
mod held;
mod listing;
mod network;
mod objects;
mod own;
mod past;
mod patience;
mod profile;
mod resumed;
mod role;
mod runtime;
mod s3;
mod scheme;
mod server_url;
mod servers;
mod settings;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod then;
mod unfinished;
mod upload;
mod versions;
mod watched;

pub use access::Access;
pub use address::{Address, is_server_name};
pub use counted::{Requests, requests_by_bucket};
pub use environment::ALLOW_HTTP;
pub use error::Error;
pub use objects::{Abilities, Below, Listed};
pub use own::has_address;
pub use past::{as_of, past_ns};
pub use resumed::UploadState;
pub use runtime::Ticket;
pub use scheme::Scheme;
pub use server_url::ServerUrl;
pub use servers::Server;
pub use settings::{CA_FILE, PART_MIB, S3Server, Settings, part_bytes};
pub use store::{Bucket, Created, Ends, Head};
pub use unfinished::{Unfinished, UnfinishedBelow};
pub use upload::{
    Completed, PARTS_MAX, Standing, Upload, UploadEnd, UploadPart, UploadTrace, described,
};

/// The requests that a stripe may have in flight, at least and at most: [`Bucket::parts_in_flight`].
pub use longshore_balance::constants::store::{LEAST as IN_FLIGHT_LEAST, MOST as IN_FLIGHT_MOST};

/// The type of the bodies that are handed over: any owner of bytes becomes one without a copy.
pub use bytes::Bytes;

/// An object's name in its bucket.
pub use object_store::path::Path as Key;
