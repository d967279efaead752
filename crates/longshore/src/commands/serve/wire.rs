//! The sending half of a connection, and what both halves have to agree on: TLS, and whether a request runs.
//!
//! One lock over all of it. The reader takes it to decode what came and to note an Attention, the thread that runs a
//! request to say something; neither keeps it while it waits for the client, but for a send, which has a time limit.
//!
//! Invariants
//! - Answers are whole messages, one for each request, and one more for each Attention, after that of the request it
//!   ended.
//! - After an error of the socket nothing is sent any more, and the reader is woken.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::Clock;
use longshore_tds::{Incoming, Reply};
use longshore_tsql::Closed;
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

    /// Says something; it is sent when packets are full.
    pub fn say(&self, put: impl FnOnce(&mut Reply)) -> Result<(), Closed> {
        let mut inner = self.inner.lock();
        put(&mut inner.reply);
        inner.send(&self.socket)
    }

    /// The same, for the client to see at once.
    pub fn say_now(&self, put: impl FnOnce(&mut Reply)) -> Result<(), Closed> {
        self.say(|reply| {
            put(reply);
            reply.flush();
        })
    }

    /// A request runs from here on.
    pub fn begin(&self) {
        self.inner.lock().state = State::Running { attention: false };
    }

    /// A request's answer has not ended.
    pub fn is_running(&self) -> bool {
        matches!(self.inner.lock().state, State::Running { .. })
    }

    /// Ends the answer to the request that ran.
    pub fn finish(&self) -> Result<(), Closed> {
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

    /// The client wants no more of what runs: it is told when that has ended, or at once if nothing runs.
    pub fn attention(&self, cancel: &AtomicBool) -> Result<(), Closed> {
        // Before the lock, which a send may hold.
        cancel.store(true, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if let State::Running { attention } = &mut inner.state {
            *attention = true;
            return Ok(());
        }
        inner.reply.attention();
        inner.send(&self.socket)
    }

    /// When a client that says nothing has been idle for so long; one whose request runs is not.
    pub fn idle_until(&self, idle_time: Duration) -> Duration {
        match self.inner.lock().state {
            State::Idle { since } => since + idle_time,
            State::Running { .. } => self.clock.now() + idle_time,
        }
    }

    pub fn close(&self) {
        self.inner.lock().close(&self.socket);
    }

    /// Takes bytes of the socket, as they are under the encryption that there is.
    pub fn decode(&self, bytes: &[u8], incoming: &mut Incoming) -> Result<(), rustls::Error> {
        let mut inner = self.inner.lock();
        match &mut inner.tls {
            None => incoming.push(bytes),
            Some(tls) => {
                feed(tls, bytes, |plain| incoming.push(plain))?;
                if tls.wants_write() {
                    // The reader learns of a failure when it reads again.
                    let _gone = inner.send(&self.socket);
                }
            }
        }
        Ok(())
    }

    pub fn start_tls(&self, config: Arc<ServerConfig>) -> Result<(), rustls::Error> {
        self.inner.lock().tls = Some(Box::new(ServerConnection::new(config)?));
        Ok(())
    }

    /// Takes a packet of the handshake and answers it; whether the handshake is done.
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

    /// The login was all that was to be encrypted.
    pub fn end_tls(&self) {
        self.inner.lock().tls = None;
    }
}

/// Gives what is decrypted to `take`.
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
    fn send(&mut self, mut socket: &TcpStream) -> Result<(), Closed> {
        if self.closed {
            return Err(Closed);
        }
        let bytes = std::mem::take(self.reply.ready());
        let sent = match &mut self.tls {
            None => socket.write_all(&bytes),
            Some(tls) => encrypt(tls, &bytes, socket),
        };
        sent.map_err(|_| {
            self.close(socket);
            Closed
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
        // It takes as much as it has room for.
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
