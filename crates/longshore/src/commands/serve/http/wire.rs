//! A client's connection: bytes in and out, encrypted or not, each with an end to its time.
//!
//! Invariants
//! - No read or write lasts longer than the time that was given for the whole request or the whole answer.
//! - At most one head of a request is in memory; an answer is sent from where it is kept.
//!
//! Leaves to others: what a head says (`request.rs`), and the certificate (`serve/tls.rs`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::Clock;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::request::{self, HEAD_LEN_MAX, HeadRefusal, PageRequest};

/// Bytes that are read and dropped after an answer, so that the client can read it before the connection is reset.
const LINGER_LEN: usize = 64 << 10;
const LINGER_TIME: Duration = Duration::from_secs(1);

/// A socket of which all reads and writes end at a moment.
struct TimedSocket {
    socket: Arc<TcpStream>,
    clock: Arc<dyn Clock>,
    until: Duration,
}

impl TimedSocket {
    /// The rest of the time. The system's timeouts are coarse: one that is rounded down to zero would never end.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_sub(self.clock.now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left.max(Duration::from_millis(1)))),
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        (&*self.socket).read(bytes)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        (&*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stream {
    Plain(TimedSocket),
    Encrypted(Box<StreamOwned<ServerConnection, TimedSocket>>),
}

/// A client's connection.
pub struct PageWire {
    stream: Stream,
}

/// The reason why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum NoRequest {
    /// The client left, took too long, or spoke no HTTP at all: there is nobody to answer.
    #[error(transparent)]
    Gone(#[from] io::Error),
    #[error("the request was refused")]
    Refused(HeadRefusal),
}

impl PageWire {
    /// `until`: the end of the time for the request.
    pub fn new(
        socket: Arc<TcpStream>,
        clock: Arc<dyn Clock>,
        tls: Option<Arc<ServerConfig>>,
        until: Duration,
    ) -> io::Result<PageWire> {
        socket.set_nodelay(true)?;
        let socket = TimedSocket {
            socket,
            clock,
            until,
        };
        let stream = match tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let connection = ServerConnection::new(config).map_err(io::Error::other)?;
                Stream::Encrypted(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        Ok(PageWire { stream })
    }

    fn socket(&mut self) -> &mut TimedSocket {
        match &mut self.stream {
            Stream::Plain(socket) => socket,
            Stream::Encrypted(stream) => &mut stream.sock,
        }
    }

    /// Reads the head of a request.
    pub fn request(&mut self) -> Result<PageRequest, NoRequest> {
        let mut head = vec![0; HEAD_LEN_MAX];
        let mut len = 0;
        loop {
            let read = match &mut self.stream {
                Stream::Plain(socket) => socket.read(&mut head[len..]),
                Stream::Encrypted(stream) => stream.read(&mut head[len..]),
            };
            match read {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(more) => len += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            }
            match request::parse(&head[..len]) {
                Ok(Some(request)) => return Ok(request),
                Ok(None) => {}
                Err(refusal) => return Err(NoRequest::Refused(refusal)),
            }
        }
    }

    /// Sends an answer, until `until` at the latest.
    pub fn answer(&mut self, head: &[u8], body: &[u8], until: Duration) -> io::Result<()> {
        self.socket().until = until;
        match &mut self.stream {
            Stream::Plain(socket) => {
                socket.write_all(head)?;
                socket.write_all(body)
            }
            Stream::Encrypted(stream) => {
                stream.write_all(head)?;
                stream.write_all(body)?;
                stream.conn.send_close_notify();
                stream.flush()
            }
        }
    }

    /// Ends the connection. What the client still sends is read for a moment: a socket that is closed with unread bytes
    /// is reset, and the client could lose the answer.
    pub fn close(&mut self) {
        let socket = self.socket();
        socket.until = socket.clock.now() + LINGER_TIME;
        let _gone = socket.socket.shutdown(Shutdown::Write);
        let mut dropped = 0;
        let mut bytes = [0; 4096];
        while dropped < LINGER_LEN {
            match socket.read(&mut bytes) {
                Ok(len) if len > 0 => dropped += len,
                _ => return,
            }
        }
    }
}
