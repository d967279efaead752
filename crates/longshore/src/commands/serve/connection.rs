//! A connection: greeting, login, then requests one after another.
//!
//! Invariants
//! - This thread reads and keeps time; what a request does runs in a thread of its own (`work.rs`).
//!
//! Leaves to others: running requests (`work.rs`), passwords (`logins.rs`), and encryption (`tls.rs`).

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_tds::{
    Encryption, Greeting, Incoming, Login, Message, PacketKind, PreLogin, Reply, Transaction,
    Version, batch_text, calls,
};
use longshore_tsql::{Claim, FIRST_DATABASE, ReceiverGone, Recorder, Session, message};
use socket2::{SockRef, TcpKeepalive};

use super::door::{ClientSlot, Door};
use super::listener::stays;
use super::strikes::short;
use super::tls::TDS8;
use super::wire::Wire;
use super::work::{Work, Worker, notice};

/// The stack of a connection's own thread, which runs no statement.
pub const STACK_LEN: usize = 256 << 10;
/// The stack of the thread that runs a request: as large as a program's main thread has.
const WORK_STACK_LEN: usize = 8 << 20;
/// Bytes per read.
const READ_LEN: usize = 4096;
/// The limit from a request's first byte to its last, and for a client to take what is sent to it.
const MESSAGE_TIME: Duration = Duration::from_secs(60);
/// Bytes of a request that are not claimed from the shared memory: as much as an idle session may take.
const FREE_LEN: usize = 64 << 10;
/// For a moment a text is held both as received and as UTF-8.
const REQUEST_FACTOR: usize = 2;
/// The first byte of TLS's handshake. No packet of TDS begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes of the first message.
const PRELOGIN_LEN_MAX: usize = 8192;

/// Drivers judge a server's abilities by this version: SQL Server 2022, whose language this is.
const VERSION: (u8, u8, u16) = (16, 0, 1000);
const PROGRAM: &str = "Longshore";
const LANGUAGE: &str = "us_english";

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the client is gone")]
    Gone,
    #[error("the client took too long")]
    TimedOut,
    #[error("the login failed")]
    Refused,
    #[error("the client does not encrypt, but must")]
    Unencrypted,
    #[error(transparent)]
    Protocol(#[from] longshore_tds::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl From<ReceiverGone> for End {
    fn from(_: ReceiverGone) -> End {
        End::Gone
    }
}

struct Connection<'a> {
    door: &'a Arc<Door>,
    socket: Arc<TcpStream>,
    from: SocketAddr,
    wire: Arc<Wire>,
    incoming: Incoming,
    /// For the incoming request.
    claim: Claim,
    cancel: Arc<AtomicBool>,
}

/// Serves a client to its end.
pub fn serve(
    door: &Arc<Door>,
    place: &ClientSlot,
    socket: Arc<TcpStream>,
    from: SocketAddr,
    cancel: Arc<AtomicBool>,
) {
    let met = Connection::new(door, socket, from, cancel).and_then(|mut connection| {
        let greeted = connection.greet(place);
        let ended = greeted.and_then(|worker| connection.requests(worker));
        connection.wire.close();
        ended
    });
    match met {
        Ok(()) | Err(End::Gone) => tracing::debug!(%from, "a client has left"),
        Err(why) => tracing::info!(%from, %why, "a connection was ended"),
    }
}

impl<'a> Connection<'a> {
    fn new(
        door: &'a Arc<Door>,
        socket: Arc<TcpStream>,
        from: SocketAddr,
        cancel: Arc<AtomicBool>,
    ) -> Result<Connection<'a>, End> {
        let prepare = || -> std::io::Result<()> {
            socket.set_nodelay(true)?;
            socket.set_write_timeout(Some(MESSAGE_TIME))?;
            // Detects a vanished client even on an idle connection.
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(60))
                .with_interval(Duration::from_secs(10))
                .with_retries(3);
            SockRef::from(&*socket).set_tcp_keepalive(&keepalive)
        };
        prepare().map_err(|_| End::Gone)?;
        Ok(Connection {
            wire: Arc::new(Wire::new(socket.clone(), door.clock.clone())),
            door,
            socket,
            from,
            incoming: Incoming::new(PRELOGIN_LEN_MAX),
            claim: Claim::default(),
            cancel,
        })
    }

    /// Receives bytes from the socket; waits for them until `until`.
    fn receive(&mut self, until: Duration, bytes: &mut [u8]) -> Result<usize, End> {
        loop {
            let wait = until.saturating_sub(self.door.clock.now());
            if wait.is_zero() {
                return Err(End::TimedOut);
            }
            // The system's timeouts are coarse: a wait that is rounded down to zero would never end.
            let wait = wait.max(Duration::from_millis(1));
            self.socket
                .set_read_timeout(Some(wait))
                .map_err(|_| End::Gone)?;
            match (&*self.socket).read(bytes) {
                Ok(0) => return Err(End::Gone),
                Ok(len) => return Ok(len),
                Err(e) => match e.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(End::TimedOut),
                    _ => return Err(End::Gone),
                },
            }
        }
    }

    /// Reads the bytes that the socket has.
    fn read(&mut self, until: Duration) -> Result<(), End> {
        let mut bytes = [0; READ_LEN];
        let len = self.receive(until, &mut bytes)?;
        Ok(self.wire.decode(&bytes[..len], &mut self.incoming)?)
    }

    fn message_until(&mut self, until: Duration) -> Result<Message, End> {
        loop {
            if let Some(message) = self.incoming.message()? {
                return Ok(message);
            }
            self.read(until)?;
        }
    }

    /// Runs from the first message to the login.
    fn greet(&mut self, place: &ClientSlot) -> Result<Worker, End> {
        let until = self.door.clock.now() + self.door.settings.login_time;
        let is_strict = self.begin(until)?;
        let first = self.message_until(until)?;
        if is_strict && self.wire.protocol().as_deref() != Some(TDS8) {
            return Err(malformed(
                "a connection over TLS that does not name tds/8.0",
            ));
        }
        if first.kind == PacketKind::Login && !is_strict {
            return self.refuse_older(&first.body);
        }
        if first.kind != PacketKind::PreLogin {
            return Err(malformed("a first message other than PRELOGIN"));
        }
        let asked = PreLogin::parse(&first.body)?;
        let agreed = match is_strict {
            // There is no other handshake inside of this one, whatever the client asks for.
            true => Some(Encryption::NotSupported),
            false => agreed(asked.encryption, self.door.settings.encrypt),
        };
        let answer = asked.answer(VERSION, agreed.unwrap_or(Encryption::Required));
        self.wire.say(|reply| reply.pre_login(&answer))?;
        let agreed = agreed.ok_or(End::Unencrypted)?;
        if agreed != Encryption::NotSupported {
            self.shake(until)?;
        }
        self.incoming.set_message_len_max(Login::LEN_MAX);
        let message = self.message_until(until)?;
        if message.kind != PacketKind::Login {
            return Err(malformed("a message before the login"));
        }
        if agreed == Encryption::Off {
            self.wire.end_tls();
        }
        let login = match Login::parse(&message.body) {
            Err(longshore_tds::Error::VersionUnsupported(version))
                if Version::is_older(version) =>
            {
                return self.refuse_older(&message.body);
            }
            // A newer version is told in the log as what it is.
            login => login?,
        };
        if login.version == Version::V8_0 && !is_strict {
            return Err(malformed(
                "TDS 8.0 in a connection that did not begin with TLS",
            ));
        }
        let encrypted = is_strict || !matches!(agreed, Encryption::NotSupported | Encryption::Off);
        self.admit(&login, encrypted, place)
    }

    /// Tells a client of TDS 7.0 or 7.1 in its own form that it is too old; others that begin with a login hear nothing.
    fn refuse_older(&mut self, body: &[u8]) -> Result<Worker, End> {
        let version = match Login::parse(body) {
            Err(longshore_tds::Error::VersionUnsupported(version))
                if Version::is_older(version) =>
            {
                version
            }
            _ => return Err(malformed("a first message other than PRELOGIN")),
        };
        let text = format!(
            "TDS 7.{} is not spoken here; use a driver that speaks TDS 7.2 or later, such as Microsoft's",
            version >> 24 & 0x0f
        );
        let why = message::OWN.with(&[&text]);
        self.wire
            .say(|reply| reply.refuse_older(notice(&why, &self.door.name)))?;
        Err(End::Protocol(longshore_tds::Error::VersionUnsupported(
            version,
        )))
    }

    /// Reads the first bytes. Returns whether they are TLS's: then everything that follows is inside of it, as in TDS 8.0.
    fn begin(&mut self, until: Duration) -> Result<bool, End> {
        let mut bytes = [0; READ_LEN];
        let len = self.receive(until, &mut bytes)?;
        let is_strict = bytes[0] == TLS_HANDSHAKE;
        if is_strict {
            self.wire.start_tls(self.door.strict_tls.clone())?;
        }
        self.wire.decode(&bytes[..len], &mut self.incoming)?;
        Ok(is_strict)
    }

    /// The TLS handshake, whose bytes travel in packets; later bytes do not.
    fn shake(&mut self, until: Duration) -> Result<(), End> {
        // Packets are not encrypted until the handshake is done.
        let mut packets = std::mem::replace(&mut self.incoming, Incoming::new(PRELOGIN_LEN_MAX));
        self.wire.start_tls(self.door.tls.clone())?;
        loop {
            while let Some(packet) = packets.packet()? {
                if packet.kind != PacketKind::PreLogin {
                    return Err(malformed("a packet inside the handshake"));
                }
                if self.wire.shake(&packet.body)? {
                    let rest = packets.take_rest();
                    return Ok(self.wire.decode(&rest, &mut self.incoming)?);
                }
            }
            let mut bytes = [0; READ_LEN];
            let len = self.receive(until, &mut bytes)?;
            packets.push(&bytes[..len]);
        }
    }

    /// Says to the session how its client is connected. KILL ends a connection that waits for its client by closing it.
    fn introduce(&self, session: &Session, login: &Login, encrypted: bool) {
        let local = self.socket.local_addr().ok();
        let socket = self.socket.clone();
        let hang = move || {
            // A socket that is closed already needs nothing more.
            let _closed = socket.shutdown(Shutdown::Both);
        };
        let connection = longshore_tsql::ClientLink {
            client: self.from.ip().to_canonical().to_string(),
            client_port: self.from.port(),
            local: local.map_or_else(String::new, |a| a.ip().to_canonical().to_string()),
            local_port: local.map_or(0, |a| a.port()),
            encrypted,
            packet_len: u32::try_from(Reply::packet_len_for(login.packet_len)).unwrap_or(u32::MAX),
        };
        session.connect(connection, Arc::new(hang));
    }

    /// Checks the login and admits it. `encrypted`: everything after the login is, too.
    fn admit(&mut self, login: &Login, encrypted: bool, place: &ClientSlot) -> Result<Worker, End> {
        let door = self.door;
        if login.integrated || login.federated {
            return self.fail(login, &[message::LOGIN_INTEGRATED.plain()], place);
        }
        let failed = || message::LOGIN_FAILED.with(&[&login.user]);
        let known = door
            .logins
            .check(&*door.storage, &login.user, &login.password, &|| {
                place.is_wanted()
            });
        let Some(user) = known.filter(|_| !login.changes_password) else {
            return self.fail(login, &[failed()], place);
        };
        // Before the client hears of its login: a client that knows it is in must not have to leave for the next one.
        if !place.known(&user, door.settings.login_sessions) {
            let name = short(&user);
            let limit = door.settings.login_sessions;
            self.log(&format!(
                "Login failed for user '{name}': it has {limit} sessions."
            ));
            return self.answer(&[message::LOGIN_FULL.with(&[&limit]), failed()]);
        }
        let who = longshore_tsql::Login {
            user,
            host: login.host.clone(),
            program: login.program.clone(),
        };
        let mut session = Session::with_cancel(door.server.clone(), who, self.cancel.clone());
        self.introduce(&session, login, encrypted);
        if !login.database.is_empty() {
            let using = format!("USE [{}]", login.database.replace(']', "]]"));
            let used = session.run(&using, &mut Recorder::default())?;
            if used.failed() {
                let missing = message::DATABASE_AT_LOGIN.with(&[&login.database]);
                let (name, database) = (short(&login.user), short(&login.database));
                self.log(&format!(
                    "Login of '{name}' failed: no database '{database}'."
                ));
                // A client that knows the password does not wait.
                return self.answer(&[missing, failed()]);
            }
            session.settle();
        }
        self.wire
            .say(|reply| welcome(reply, login, &session, &door.name))?;
        self.incoming
            .set_message_len_max(door.settings.batch_bytes_max);
        let claim = door.memory.claim(0).unwrap_or_default();
        Ok(Worker::new(session, door.name.as_str().into(), claim))
    }

    /// Answers a failed login after a delay. While it waits it takes no place from others.
    fn fail(
        &self,
        login: &Login,
        why: &[longshore_tsql::Message],
        place: &ClientSlot,
    ) -> Result<Worker, End> {
        let door = self.door;
        let name = short(&login.user);
        self.log(&format!("Login failed for user '{name}'."));
        let delay = door.strikes.delay(self.from.ip(), door.clock.now());
        place.refused();
        self.wait(door.clock.now() + delay)?;
        self.answer(why)
    }

    /// Writes a line to the log, unless there were too many.
    fn log(&self, text: &str) {
        if self.door.strikes.add() {
            let ip = self.from.ip();
            self.door.log_logon(&format!("{text} [CLIENT: {ip}]"));
        }
    }

    /// Waits until `until`, unless the client leaves or its place is needed. Bytes from the client are not read
    /// meanwhile.
    fn wait(&self, until: Duration) -> Result<(), End> {
        match stays(&self.socket, &*self.door.clock, until) {
            true => Ok(()),
            false => Err(End::Gone),
        }
    }

    /// Reports why the client is not admitted.
    fn answer(&self, why: &[longshore_tsql::Message]) -> Result<Worker, End> {
        self.wire.say(|reply| {
            why.iter()
                .for_each(|m| reply.notice(notice(m, &self.door.name)));
            reply.done(longshore_tds::DoneToken {
                error: true,
                ..Default::default()
            });
            reply.end();
        })?;
        Err(End::Refused)
    }

    /// Serves one request after another.
    fn requests(&mut self, worker: Worker) -> Result<(), End> {
        let mut running = SessionOwner::Resting(Some(Box::new(worker)));
        let ended = loop {
            let next = self.next_request();
            if let Err(end) = next.and_then(|message| self.take(message, &mut running)) {
                break end;
            }
        };
        // A backup without a client is ended as by a cancel; it leaves nothing half-valid.
        self.cancel.store(true, Ordering::Relaxed);
        // A server that stops still tells its clients.
        if !self.door.guests.is_closing() {
            self.wire.close();
        }
        drop(running.settle());
        Err(ended)
    }

    fn next_request(&mut self) -> Result<Message, End> {
        let clock = self.door.clock.clone();
        let mut begun = None;
        loop {
            if let Some(message) = self.incoming.message()? {
                return Ok(message);
            }
            self.claim_room();
            let until = match self.incoming.has_begun() {
                true => *begun.get_or_insert_with(|| clock.now()) + MESSAGE_TIME,
                false => self.wire.idle_until(self.door.settings.idle_time),
            };
            match self.read(until) {
                // A request was running, or has just ended.
                Err(End::TimedOut)
                    if begun.is_none()
                        && self.wire.idle_until(self.door.settings.idle_time) > clock.now() => {}
                read => read?,
            }
        }
    }

    /// Claims memory for the received part of a request, unless the part is small. A request without room is dropped,
    /// and refused at its end.
    fn claim_room(&mut self) {
        let held = self.incoming.held();
        if held <= FREE_LEN {
            return;
        }
        let bytes = held.saturating_mul(REQUEST_FACTOR);
        let claimed = match self.claim.bytes() {
            0 => self
                .door
                .memory
                .claim(bytes)
                .map(|claim| self.claim = claim),
            _ => self.claim.resize(bytes),
        };
        if claimed.is_err() {
            self.incoming.drop_body();
            self.claim = Claim::default();
        }
    }

    /// Starts a request, or notes an Attention. Never waits for the running request: a thread that waits here hears no
    /// client.
    fn take(&mut self, message: Message, running: &mut SessionOwner) -> Result<(), End> {
        if message.kind != PacketKind::Attention && self.wire.is_running() {
            return Err(malformed("a request before the answer to the one before"));
        }
        let work = match message.kind {
            PacketKind::Attention => return Ok(self.wire.attention(&self.cancel)?),
            _ if message.ignored => Work::Ignored,
            _ if message.dropped => Work::NoRoom,
            PacketKind::SqlBatch => {
                batch_text(&message.body).map_or_else(Work::Refused, Work::Batch)
            }
            PacketKind::Rpc => calls(&message.body).map_or_else(Work::Refused, Work::Calls),
            PacketKind::Transaction => {
                Transaction::parse(&message.body).map_or_else(Work::Refused, Work::Transaction)
            }
            PacketKind::BulkLoad
            | PacketKind::FederatedToken
            | PacketKind::Login
            | PacketKind::Sspi
            | PacketKind::PreLogin => {
                return Err(malformed("a request of a kind that is not served"));
            }
        };
        // The answer has been sent, so its thread is about to end.
        let mut worker = running.settle().ok_or(End::Gone)?;
        self.cancel.store(false, Ordering::Relaxed);
        if self.door.guests.is_closing() {
            return Err(End::Gone);
        }
        self.wire.begin();
        let wire = self.wire.clone();
        let reset = message.reset;
        let claim = std::mem::take(&mut self.claim);
        let spawned = std::thread::Builder::new()
            .name("request".into())
            .stack_size(WORK_STACK_LEN)
            .spawn(move || {
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let goes_on = worker.run(work, reset, &wire);
                    drop(claim);
                    // The reader notices a client that is gone.
                    let _gone = wire.finish();
                    if !goes_on {
                        wire.close();
                    }
                    worker
                }));
                if ran.is_err() {
                    wire.close();
                }
                ran.ok()
            });
        let thread = spawned.map_err(|error| {
            tracing::warn!(from = %self.from, %error, "no thread for a request");
            End::Gone
        })?;
        *running = SessionOwner::Working(thread);
        Ok(())
    }
}

/// The owner of the session.
enum SessionOwner {
    /// `None`: no owner; the thread panicked, or the session was handed on.
    Resting(Option<Box<Worker>>),
    Working(JoinHandle<Option<Box<Worker>>>),
}

impl SessionOwner {
    /// Waits for the running request and returns its session.
    fn settle(&mut self) -> Option<Box<Worker>> {
        match std::mem::replace(self, SessionOwner::Resting(None)) {
            SessionOwner::Resting(worker) => worker,
            SessionOwner::Working(thread) => thread.join().ok().flatten(),
        }
    }
}

fn malformed(what: &'static str) -> End {
    End::Protocol(longshore_tds::Error::Malformed { what })
}

/// The encryption that both sides support; `None`: they cannot agree. `all`: everything must be encrypted.
fn agreed(asked: Encryption, all: bool) -> Option<Encryption> {
    match asked {
        Encryption::NotSupported if all => None,
        Encryption::NotSupported => Some(Encryption::NotSupported),
        Encryption::Off if all => Some(Encryption::Required),
        Encryption::Off => Some(Encryption::Off),
        Encryption::On | Encryption::Required => Some(Encryption::On),
        // It asks for TLS before this message, which it did not begin.
        Encryption::Strict => None,
    }
}

fn welcome(reply: &mut Reply, login: &Login, session: &Session, server: &str) {
    let packet_len = Reply::packet_len_for(login.packet_len);
    reply.set_session(session.id(), login.version);
    let database = session.database();
    reply.database_changed(FIRST_DATABASE, database);
    let context = message::DATABASE_CHANGED.with(&[&database]);
    reply.notice(notice(&context, server));
    reply.collation();
    reply.language(LANGUAGE);
    let language = message::LANGUAGE_CHANGED.with(&[&LANGUAGE]);
    reply.notice(notice(&language, server));
    reply.packet_len(packet_len);
    reply.login_ack(Greeting {
        version: login.version,
        program: PROGRAM,
        program_version: VERSION,
        acknowledge_features: login.has_features,
    });
    reply.end();
    reply.set_packet_len(packet_len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negotiation_never_leaves_more_in_clear_than_the_server_allows() {
        use Encryption::*;
        assert_eq!(agreed(NotSupported, true), None);
        assert_eq!(agreed(Off, true), Some(Required));
        assert_eq!(agreed(On, true), Some(On));
        assert_eq!(agreed(Off, false), Some(Off));
        assert_eq!(agreed(NotSupported, false), Some(NotSupported));
        assert_eq!(agreed(Required, false), Some(On));
        assert_eq!(agreed(Strict, false), None);
        assert_eq!(agreed(Strict, true), None);
    }
}
