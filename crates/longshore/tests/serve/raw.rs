//! Goal: tests of the server have a client that can send anything, valid or not.
//! Method: packets by hand, according to MS-TDS, without encryption.
//! Not covered: this file has no tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::stage::{PASSWORD, USER};

pub const PRELOGIN: u8 = 0x12;
pub const LOGIN: u8 = 0x10;
pub const BATCH: u8 = 0x01;
pub const RPC: u8 = 0x03;
pub const ATTENTION: u8 = 0x06;
pub const TRANSACTION: u8 = 0x0e;

pub const DONE: u8 = 0xfd;
pub const FAILED: u16 = 0x02;
pub const ACKNOWLEDGED: u16 = 0x20;

pub struct Raw {
    pub socket: TcpStream,
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// LOGIN7 of TDS 7.4.
pub fn login7(user: &str, password: &str, database: &str) -> Vec<u8> {
    let hidden: Vec<u8> = wide(password)
        .iter()
        .map(|b| b.rotate_left(4) ^ 0xa5)
        .collect();
    let fields = [
        wide("desk"),
        wide(user),
        hidden,
        wide("raw"),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        wide(database),
    ];
    let mut body = vec![0; 4];
    body.extend(0x7400_0004_u32.to_le_bytes());
    body.extend(4096_u32.to_le_bytes());
    body.resize(36, 0);
    let mut at = 94;
    for field in &fields {
        body.extend((at as u16).to_le_bytes());
        body.extend((field.len() as u16 / 2).to_le_bytes());
        at += field.len();
    }
    body.resize(94, 0);
    fields.iter().for_each(|f| body.extend(f));
    let len = body.len() as u32;
    body[..4].copy_from_slice(&len.to_le_bytes());
    body
}

pub fn batch_body(text: &str) -> Vec<u8> {
    [vec![4, 0, 0, 0], wide(text)].concat()
}

impl Raw {
    pub fn connect(port: u16) -> Raw {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // A server that is silent for this long is considered hung.
        socket
            .set_read_timeout(Some(Duration::from_secs(100)))
            .unwrap();
        Raw { socket }
    }

    /// A closed connection is noticed when the answer is read.
    pub fn send(&mut self, kind: u8, status: u8, body: &[u8]) {
        let mut pieces = body.chunks(4088).peekable();
        let mut out = Vec::new();
        loop {
            let piece = pieces.next().unwrap_or_default();
            let last = pieces.peek().is_none();
            out.extend([kind, if last { status | 1 } else { status & !3 }]);
            out.extend((piece.len() as u16 + 8).to_be_bytes());
            out.extend([0, 0, 1, 0]);
            out.extend(piece);
            if last {
                break;
            }
        }
        let _gone = self.socket.write_all(&out);
    }

    /// The body of the next message, and of `part` what of it has come; `None`: the server has gone.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let (piece, ends) = self.packet()?;
            body.extend(piece);
            if ends {
                return Some(body);
            }
        }
    }

    pub fn packet(&mut self) -> Option<(Vec<u8>, bool)> {
        let mut header = [0; 8];
        self.read(&mut header)?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut body = vec![0; len - 8];
        self.read(&mut body)?;
        Some((body, header[1] & 1 != 0))
    }

    /// `None`: the server has closed the connection. A silent server has not.
    fn read(&mut self, out: &mut [u8]) -> Option<()> {
        let read = self.socket.read_exact(out);
        let hangs = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!read.as_ref().is_err_and(hangs), "the server hangs");
        read.ok()
    }

    /// Whether the server answered.
    pub fn try_greet(&mut self) -> bool {
        self.send(PRELOGIN, 0, &[1, 0, 6, 0, 1, 0xff, 2]);
        self.message().is_some()
    }

    pub fn greet(&mut self) {
        assert!(self.try_greet());
    }

    pub fn login_as(port: u16, user: &str, password: &str) -> (Raw, Option<Vec<u8>>) {
        Raw::login_to(port, user, password, "")
    }

    pub fn login_to(
        port: u16,
        user: &str,
        password: &str,
        database: &str,
    ) -> (Raw, Option<Vec<u8>>) {
        let mut raw = Raw::connect(port);
        raw.greet();
        raw.send(LOGIN, 0, &login7(user, password, database));
        let answer = raw.message();
        (raw, answer)
    }

    pub fn login(port: u16) -> Raw {
        let (raw, answer) = Raw::login_as(port, USER, PASSWORD);
        assert!(says(&answer.unwrap(), "Changed database context"));
        raw
    }

    pub fn batch(&mut self, text: &str) -> Vec<u8> {
        self.send(BATCH, 0, &batch_body(text));
        self.message().unwrap()
    }
}

/// Whether a text stands in an answer.
pub fn says(answer: &[u8], text: &str) -> bool {
    let text = wide(text);
    answer.windows(text.len()).any(|w| w == text)
}

/// The status of the DONE that ends an answer.
pub fn end_of(answer: &[u8]) -> u16 {
    let done = &answer[answer.len() - 13..];
    assert_eq!(done[0], DONE);
    u16::from_le_bytes([done[1], done[2]])
}
