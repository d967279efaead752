//! Errors in bytes that a client sent.
//!
//! After such an error the connection is closed: the meaning of the following bytes is unknown. A statement that is
//! wrong is not an error here but a message of T-SQL.

/// The connection cannot continue: the meaning of the following bytes is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:#04x} is not a packet that a client sends")]
    PacketKind(u8),
    #[error("a packet of {len} bytes; this server takes 8 to {max}", max = crate::kind::PACKET_LEN_MAX)]
    PacketLength { len: usize },
    #[error("a packet of type {found:?} inside a message of type {expected:?}")]
    PacketMixed {
        expected: crate::kind::PacketKind,
        found: crate::kind::PacketKind,
    },
    #[error("a message longer than {max} bytes")]
    MessageTooLong { max: usize },
    #[error("{what} ends too early")]
    Truncated { what: &'static str },
    #[error("{what} does not follow the protocol")]
    Malformed { what: &'static str },
    #[error("the type {0:#04x} cannot be sent to this server")]
    TypeUnsupported(u8),
    #[error("protocol version {0:#010x}; this server speaks TDS 7.2 to 7.4")]
    VersionUnsupported(u32),
    #[error("more than {max} parameters")]
    TooManyParameters { max: usize },
}
