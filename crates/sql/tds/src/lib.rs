//! The server's half of SQL Server's wire protocol: TDS 7.2 to 7.4, and 8.0. No semantics, no sockets, no clock.
//!
//! ```text
//! bytes ──Incoming──▶ packets, messages ──PreLogin, Login, batch_text, Rpc──▶ what a client asks
//! what is answered ──Reply──▶ tokens in packets ──▶ bytes
//! ```
//!
//! The owner of a connection pushes the bytes that it read into an [`Incoming`] and writes the bytes that a [`Reply`]
//! has ready. A TLS handshake travels inside packets of the kind [`PacketKind::PreLogin`]; their bodies are for a TLS
//! library. TDS 8.0 has TLS around all of its packets, and this room sees only what is inside.
//!
//! Invariants
//! - No bytes make anything here panic. A client's bytes are parsed once, into types that cannot be wrong.
//! - Memory is allocated for bytes that are present, never for a length that a client claims; a message is refused as
//!   soon as it exceeds its limit.
//! - A reply consists of whole tokens: a value that does not fit its column is cut to it, and never shifts the
//!   following bytes.
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
pub use kind::{PACKET_LEN_MAX, PACKET_LEN_MIN, PacketKind};
pub use login::{Login, Version};
pub use packet::{Incoming, Message, PACKET_LEN_DEFAULT, Packet, Reset};
pub use prelogin::{Encryption, PreLogin};
pub use reply::{DoneToken, Greeting, Notice, Reply};
pub use request::{Transaction, batch_text};
pub use rpc::{Call, Parameter, Procedure, calls};
pub use text::Secret;
pub use value::{DateTime, Moment, ResultColumn, Type, Value};
