//! The sending half of a connection, and the state that both halves share: TLS, and whether a request runs.
//!
//! One lock protects all of it. The reader takes it to decode input and to note an Attention; the thread that runs a
//! request takes it to send. Neither holds it while it waits for the client, except during a send, which has a time
//! limit.
//!
//! Invariants
//! - Answers are whole messages: one for each request, and one more for each Attention, after the answer of the request
//!   that it ended.
//! - After a socket error nothing more is sent, and the reader is woken.
//!
//! Leaves to others: reading and its time limits (`connection.rs`), and tokens and packets (`longshore-tds`).

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::Clock;
use longshore_tds::{Incoming, Reply};
use longshore_tsql::ReceiverGone;
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};

pub struct Wire {
    socket: Arc<TcpStream>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    reply: Reply,
    tls: Option<Box<ServerConnection>>,
    state: State,
    closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle { since: Duration },
    Running { attention: bool },
}

impl Wire {
    pub fn new(socket: Arc<TcpStream>, clock: Arc<dyn Clock>) -> Wire {
        Wire {
            socket,
            inner: Mutex::new(Inner {
                reply: Reply::default(),
                tls: None,
                state: State::Idle { since: clock.now() },
                closed: false,
            }),
            clock,
        }
    }

    /// Adds to the answer; packets are sent when they are full.
    pub fn say(&self, put: impl FnOnce(&mut Reply)) -> Result<(), ReceiverGone> {
        let mut inner = self.inner.lock();
        put(&mut inner.reply);
        inner.send(&self.socket)
    }

    /// The same, but sent at once.
    pub fn say_now(&self, put: impl FnOnce(&mut Reply)) -> Result<(), ReceiverGone> {
        self.say(|reply| {
            put(reply);
            reply.flush();
        })
    }

    /// A request runs from here on.
    pub fn begin(&self) {
        self.inner.lock().state = State::Running { attention: false };
    }

    /// Whether a request's answer has not ended.
    pub fn is_running(&self) -> bool {
        matches!(self.inner.lock().state, State::Running { .. })
    }

    /// Ends the answer to the request that ran.
    pub fn finish(&self) -> Result<(), ReceiverGone> {
        let mut inner = self.inner.lock();
        inner.reply.end();
        if inner.state == (State::Running { attention: true }) {
            inner.reply.attention();
        }
        inner.state = State::Idle {
            since: self.clock.now(),
        };
        inner.send(&self.socket)
    }

    /// The client cancels the running request: the confirmation follows its end, or comes at once if nothing runs.
    pub fn attention(&self, cancel: &AtomicBool) -> Result<(), ReceiverGone> {
        // Set before taking the lock, which a send may hold.
        cancel.store(true, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if let State::Running { attention } = &mut inner.state {
            *attention = true;
            return Ok(());
        }
        inner.reply.attention();
        inner.send(&self.socket)
    }

    /// The time at which a silent client will have been idle for `idle_time`; a client whose request runs is not idle.
    pub fn idle_until(&self, idle_time: Duration) -> Duration {
        match self.inner.lock().state {
            State::Idle { since } => since + idle_time,
            State::Running { .. } => self.clock.now() + idle_time,
        }
    }

    pub fn close(&self) {
        self.inner.lock().close(&self.socket);
    }

    /// Takes bytes from the socket, still encrypted if encryption is on.
    pub fn decode(&self, bytes: &[u8], incoming: &mut Incoming) -> Result<(), rustls::Error> {
        let mut inner = self.inner.lock();
        match &mut inner.tls {
            None => incoming.push(bytes),
            Some(tls) => {
                let fed = feed(tls, bytes, |plain| incoming.push(plain));
                // A client whose bytes are wrong is told so in TLS's words.
                if tls.wants_write() {
                    // The reader learns of a failure at its next read.
                    let _gone = inner.send(&self.socket);
                }
                fed?;
            }
        }
        Ok(())
    }

    pub fn start_tls(&self, config: Arc<ServerConfig>) -> Result<(), rustls::Error> {
        self.inner.lock().tls = Some(Box::new(ServerConnection::new(config)?));
        Ok(())
    }

    /// The protocol that both sides named in TLS's handshake.
    pub fn protocol(&self) -> Option<Vec<u8>> {
        let inner = self.inner.lock();
        let named = inner.tls.as_ref()?.alpn_protocol()?;
        Some(named.to_vec())
    }

    /// Takes a handshake packet and answers it; returns whether the handshake is done.
    pub fn shake(&self, body: &[u8]) -> Result<bool, rustls::Error> {
        let mut inner = self.inner.lock();
        let Inner {
            reply, tls, closed, ..
        } = &mut *inner;
        let Some(tls) = tls else {
            return Ok(true);
        };
        let fed = feed(tls, body, |_| {});
        let mut answer = Vec::new();
        while tls.wants_write() {
            // Writing to memory does not fail.
            let _written = tls.write_tls(&mut answer);
        }
        if !answer.is_empty() {
            reply.handshake(&answer);
            let bytes = std::mem::take(reply.ready());
            *closed |= (&*self.socket).write_all(&bytes).is_err();
        }
        fed?;
        Ok(!tls.is_handshaking())
    }

    /// Ends encryption: only the login was to be encrypted.
    pub fn end_tls(&self) {
        self.inner.lock().tls = None;
    }
}

/// Passes decrypted bytes to `take`.
fn feed(
    tls: &mut ServerConnection,
    bytes: &[u8],
    mut take: impl FnMut(&[u8]),
) -> Result<(), rustls::Error> {
    use std::io::Read;
    let mut rest = bytes;
    while !rest.is_empty() {
        let general = |e: io::Error| rustls::Error::General(e.to_string());
        if tls.read_tls(&mut rest).map_err(general)? == 0 {
            break;
        }
        let state = tls.process_new_packets()?;
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        tls.reader().read_exact(&mut plain).map_err(general)?;
        take(&plain);
    }
    Ok(())
}

impl Inner {
    fn send(&mut self, mut socket: &TcpStream) -> Result<(), ReceiverGone> {
        if self.closed {
            return Err(ReceiverGone);
        }
        let bytes = std::mem::take(self.reply.ready());
        let sent = match &mut self.tls {
            None => socket.write_all(&bytes),
            Some(tls) => encrypt(tls, &bytes, socket),
        };
        sent.map_err(|_| {
            self.close(socket);
            ReceiverGone
        })
    }

    fn close(&mut self, socket: &TcpStream) {
        self.closed = true;
        let _gone = socket.shutdown(Shutdown::Both);
    }
}

fn encrypt(tls: &mut ServerConnection, bytes: &[u8], mut socket: &TcpStream) -> io::Result<()> {
    let mut rest = bytes;
    loop {
        // The writer takes as much as it has room for.
        let taken = tls.writer().write(rest)?;
        rest = &rest[taken..];
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
}
