//! The wire protocol of SQL Server, a server's half: TDS 7.2 to 7.4. No meaning, no sockets, no clock.
//!
//! ```text
//! bytes ──Incoming──▶ packets, messages ──PreLogin, Login, batch_text, Rpc──▶ what a client asks
//! what is answered ──Reply──▶ tokens in packets ──▶ bytes
//! ```
//!
//! Whoever owns a connection pushes the bytes that it read into an [`Incoming`] and writes what a [`Reply`] has ready.
//! A TLS handshake travels inside packets of the kind [`Kind::PreLogin`]; their bodies are for a TLS library.
//!
//! Invariants
//! - No bytes make anything here panic. What a client sends is parsed once, into types that cannot be wrong.
//! - Nothing is allocated by a length that a client claims, only by bytes that are there; a message is refused as soon
//!   as it is longer than its limit.
//! - A reply is whole tokens: a value that does not fit its column is cut to it, and never shifts what follows.
//!
//! Source: MS-TDS revision 39 (Microsoft Open Specifications); sections are named at each part.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cursor;
mod error;
mod kind;
mod login;
mod packet;
mod prelogin;
mod reply;
mod request;
mod rpc;
mod text;
mod value;

pub use error::Error;
pub use kind::{Kind, PACKET_LEN_MAX, PACKET_LEN_MIN};
pub use login::{Login, Version};
pub use packet::{Incoming, Message, PACKET_LEN_DEFAULT, Packet, Reset};
pub use prelogin::{Encryption, PreLogin};
pub use reply::{Done, Greeting, Notice, Reply};
pub use request::{Transaction, batch_text};
pub use rpc::{Call, Parameter, Procedure, calls};
pub use text::Secret;
pub use value::{Column, DateTime, Moment, Type, Value};
