//! Packets, and the messages they carry (MS-TDS 2.2.3).
//!
//! ```text
//! offset  0     1       2..4            4..6   6       7
//!         kind  status  length (BE)     SPID   number  window
//! ```
//!
//! Invariants
//! - The length counts the header.
//! - A message is packets of one kind; the last has the bit EOM.
//!
//! Leaves to others: the content of messages (`login.rs`, `request.rs`, `rpc.rs`, `reply.rs`).

use crate::error::Error;
use crate::kind::{PACKET_LEN_MAX, PacketKind};

pub const HEADER_LEN: usize = 8;

pub const PACKET_LEN_DEFAULT: usize = 4096;

pub const STATUS_EOM: u8 = 0x01;
/// Valid only together with EOM: the client abandoned the message.
const STATUS_IGNORE: u8 = 0x02;
const STATUS_RESET: u8 = 0x08;
const STATUS_RESET_KEEP_TRANSACTION: u8 = 0x10;

/// The kind of all packets from the server, except in the handshake.
pub const KIND_REPLY: u8 = 0x04;

/// One packet, without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub kind: PacketKind,
    status: u8,
    pub body: Vec<u8>,
}

impl Packet {
    /// Whether it is the last packet of its message.
    pub fn ends(&self) -> bool {
        self.status & STATUS_EOM != 0
    }
}

/// A session reset, because a pool hands its connection to another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    All,
    /// Everything but the open transaction.
    KeepTransaction,
}

impl Reset {
    /// The reset that a first packet's status requests.
    fn of(status: u8) -> Option<Reset> {
        match (
            status & STATUS_RESET,
            status & STATUS_RESET_KEEP_TRANSACTION,
        ) {
            (0, 0) => None,
            (0, _) => Some(Reset::KeepTransaction),
            _ => Some(Reset::All),
        }
    }
}

/// One message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: PacketKind,
    /// The session is reset before the message is processed.
    pub reset: Option<Reset>,
    /// The client abandoned the message: nothing is done, and the answer is a failure.
    pub ignored: bool,
    /// The receiver had no memory for it ([`Incoming::drop_body`]): the body is empty.
    pub dropped: bool,
    pub body: Vec<u8>,
}

/// Assembles packets and messages from bytes as they arrive.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    message: Option<Message>,
    /// Bytes of the message so far, including dropped ones.
    message_len: usize,
    message_len_max: usize,
}

impl Incoming {
    /// `message_len_max`: the most bytes of one message without headers.
    pub fn new(message_len_max: usize) -> Incoming {
        Incoming {
            bytes: Vec::new(),
            message: None,
            message_len: 0,
            message_len_max,
        }
    }

    /// Bytes in memory.
    pub fn held(&self) -> usize {
        self.bytes.len() + self.message.as_ref().map_or(0, |m| m.body.len())
    }

    /// Drops the body of the current message, including later packets: the message can still be told from the next
    /// one, and be answered.
    pub fn drop_body(&mut self) {
        if let Some(message) = &mut self.message {
            message.dropped = true;
            message.body = Vec::new();
        }
    }

    /// Takes effect with the next message.
    pub fn set_message_len_max(&mut self, len: usize) {
        self.message_len_max = len;
    }

    /// Takes bytes that were read. The caller must fetch messages before it pushes more, so that at most one read and
    /// one packet are in memory besides the message being assembled.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a message or a packet has begun and not ended.
    pub fn has_begun(&self) -> bool {
        self.message.is_some() || !self.bytes.is_empty()
    }

    /// Takes the bytes that are not a packet yet; used after a handshake.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The next packet, if it is complete.
    pub fn packet(&mut self) -> Result<Option<Packet>, Error> {
        let Some(header) = self.bytes.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let [kind, status, high, low, ..] = *header;
        let kind = PacketKind::of(kind).ok_or(Error::PacketKind(kind))?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !(HEADER_LEN..=PACKET_LEN_MAX).contains(&len) {
            return Err(Error::PacketLength { len });
        }
        if self.bytes.len() < len {
            return Ok(None);
        }
        let body = self.bytes[HEADER_LEN..len].to_vec();
        match self.bytes.len() == len {
            // An idle connection holds no buffer.
            true => self.bytes = Vec::new(),
            false => drop(self.bytes.drain(..len)),
        }
        Ok(Some(Packet { kind, status, body }))
    }

    /// The next message, if it is complete. After an error the connection must end.
    pub fn message(&mut self) -> Result<Option<Message>, Error> {
        while let Some(packet) = self.packet()? {
            let ends = packet.ends();
            self.message_len += packet.body.len();
            match &mut self.message {
                None => {
                    self.message_len = packet.body.len();
                    self.message = Some(Message {
                        kind: packet.kind,
                        reset: Reset::of(packet.status),
                        ignored: false,
                        dropped: false,
                        body: packet.body,
                    });
                }
                Some(message) if message.kind != packet.kind => {
                    return Err(Error::PacketMixed {
                        expected: message.kind,
                        found: packet.kind,
                    });
                }
                Some(message) if message.dropped => {}
                Some(message) => message.body.extend_from_slice(&packet.body),
            }
            let max = self.message_len_max;
            if self.message_len > max {
                return Err(Error::MessageTooLong { max });
            }
            if ends && let Some(mut message) = self.message.take() {
                message.ignored = packet.status & STATUS_IGNORE != 0;
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}

/// Frames a body as packets of a server, the last with EOM if `ends`. `number` counts on from packet to packet.
pub fn frame(
    out: &mut Vec<u8>,
    body: &[u8],
    packet_len: usize,
    spid: u16,
    number: &mut u8,
    ends: bool,
) {
    let capacity = packet_len - HEADER_LEN;
    let count = body.len().div_ceil(capacity).max(1);
    for i in 0..count {
        let piece = &body[(i * capacity).min(body.len())..((i + 1) * capacity).min(body.len())];
        let status = match ends && i + 1 == count {
            true => STATUS_EOM,
            false => 0,
        };
        let len = (HEADER_LEN + piece.len()) as u16;
        *number = number.wrapping_add(1);
        out.extend_from_slice(&[KIND_REPLY, status]);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&spid.to_be_bytes());
        out.extend_from_slice(&[*number, 0]);
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, status: u8, body: &[u8]) -> Vec<u8> {
        let len = (HEADER_LEN + body.len()) as u16;
        let mut bytes = vec![kind, status];
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0, 1, 0]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_are_the_same_however_their_bytes_arrive() {
        let mut bytes = packet(1, 0x08, b"ab");
        bytes.extend(packet(1, 1, b"c"));
        bytes.extend(packet(6, 1, b""));
        bytes.extend(packet(3, 0x13, b"given up"));
        for step in 1..=bytes.len() {
            let mut incoming = Incoming::new(100);
            let mut all = Vec::new();
            for piece in bytes.chunks(step) {
                incoming.push(piece);
                while let Some(message) = incoming.message().unwrap() {
                    all.push(message);
                }
            }
            assert!(!incoming.has_begun());
            assert_eq!(all.len(), 3, "step {step}");
            assert_eq!(all[0].body, b"abc");
            assert_eq!(all[0].reset, Some(Reset::All));
            assert_eq!(all[2].reset, Some(Reset::KeepTransaction));
            assert_eq!(all[1].kind, PacketKind::Attention);
            assert!(all[2].ignored && !all[0].ignored);
        }
    }

    #[test]
    fn a_message_without_room_is_separated_from_the_next_one_and_keeps_nothing() {
        let mut incoming = Incoming::new(10);
        incoming.push(&packet(1, 0, b"abcd"));
        assert!(incoming.message().unwrap().is_none());
        assert_eq!(incoming.held(), 4);
        incoming.drop_body();
        incoming.push(&packet(1, 0, b"efgh"));
        assert!(incoming.message().unwrap().is_none());
        assert_eq!(incoming.held(), 0);
        incoming.push(&packet(1, 1, b"ij"));
        let message = incoming.message().unwrap().unwrap();
        assert!(message.dropped && message.body.is_empty());
        incoming.push(&packet(1, 1, b"next"));
        let next = incoming.message().unwrap().unwrap();
        assert!(!next.dropped && next.body == b"next");
        // A dropped message has a length limit, too.
        incoming.push(&packet(1, 0, b"abcdefgh"));
        assert!(incoming.message().unwrap().is_none());
        incoming.drop_body();
        incoming.push(&packet(1, 1, b"ijk"));
        assert_eq!(incoming.message(), Err(Error::MessageTooLong { max: 10 }));
    }

    #[test]
    fn an_invalid_message_is_refused_before_it_is_buffered() {
        let refused = |bytes: &[u8]| {
            let mut incoming = Incoming::new(4);
            incoming.push(bytes);
            incoming.message().unwrap_err()
        };
        assert_eq!(refused(&packet(9, 1, b"")), Error::PacketKind(9));
        assert_eq!(
            refused(&[1, 1, 0, 7, 0, 0, 0, 0]),
            Error::PacketLength { len: 7 }
        );
        assert_eq!(
            refused(&[1, 1, 0xff, 0xff, 0, 0, 0, 0]),
            Error::PacketLength { len: 65_535 }
        );
        assert_eq!(
            refused(&packet(1, 0, b"abcde")),
            Error::MessageTooLong { max: 4 }
        );
        let mixed = [packet(1, 0, b"a"), packet(3, 1, b"b")].concat();
        assert!(matches!(refused(&mixed), Error::PacketMixed { .. }));
    }

    #[test]
    fn a_reply_is_cut_into_packets_and_only_its_last_ends_it() {
        let mut out = Vec::new();
        let mut number = 255;
        frame(&mut out, &[7; 1100], 512, 51, &mut number, true);
        assert_eq!(out.len(), 1100 + 3 * HEADER_LEN);
        assert_eq!((out[1], out[6]), (0, 0));
        assert_eq!(&out[512..516], &[4, 0, 2, 0]);
        let last = 1024;
        assert_eq!(out[last + 1], STATUS_EOM);
        assert_eq!(
            usize::from(u16::from_be_bytes([out[last + 2], out[last + 3]])),
            out.len() - last
        );
    }
}
