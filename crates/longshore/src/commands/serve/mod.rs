//! `serve`: T-SQL for SQL Server's clients, over TCP.
//!
//! ```text
//! listener ──▶ connection (a thread each: reads, keeps time) ──▶ work (a thread while a request runs: writes)
//! ```
//!
//! A connection's thread reads all the time, so it notices an Attention or the end of its client while a backup runs,
//! and its stack stays small. A request runs in a thread of its own, whose stack is freed with it: an idle session
//! costs little.
//!
//! Invariants
//! - Only a client that has logged in with a password runs anything; failures are slow, and logged without secrets.
//! - Nothing is sent to other machines unencrypted, and clients can check the certificate.
//! - A connection's thread never waits for the running request, unless it has cancelled it.
//! - Every wait for a client ends: for its login, for the rest of a message, for it to take its answer, for its next
//!   request.
//!
//! Leaves to others: one connection (`connection.rs`), its requests (`work.rs`), and who may log in (`logins.rs`).

mod connection;
mod convert;
mod logins;
mod odbc;
mod settings;
mod strikes;
mod tls;
mod wire;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_io::{Clock, Storage};
use longshore_tsql::{Memory, Server};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use self::logins::Logins;
use self::settings::Settings;
use self::strikes::Strikes;
use crate::commands::sql::configured;
use crate::context::Context;
use crate::options::Serve;
use longshore_terminal::failure::{Exit, Failure};

/// The state that all connections share.
struct Door {
    server: Arc<Server>,
    /// The memory of all sessions.
    memory: Memory,
    /// `@@SERVERNAME`, in messages.
    name: String,
    clock: Arc<dyn Clock>,
    storage: Arc<dyn Storage>,
    settings: Settings,
    logins: Logins,
    strikes: Strikes,
    tls: Arc<rustls::ServerConfig>,
    /// The connected clients, oldest first, with the means to end them.
    guests: Mutex<BTreeMap<u64, Guest>>,
    next_guest: AtomicU64,
    stopping: AtomicBool,
}

impl Door {
    fn log_logon(&self, text: &str) {
        tracing::warn!(text);
        self.server.write_log("Logon", text);
    }

    /// Logs the number of failed logins that have no line yet.
    fn sum_up(&self, ends: bool) {
        if let Some(text) = self.strikes.summary(self.clock.now(), ends) {
            self.log_logon(&text);
        }
    }
}

struct Guest {
    cancel: Arc<AtomicBool>,
    socket: Arc<TcpStream>,
    standing: ListenerState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ListenerState {
    /// The client has not logged in.
    Stranger,
    /// The client failed to log in and waits for its answer: it takes no place from others.
    Refused,
    /// The client was closed to make room for another; its thread is about to end.
    Closed,
    /// The client has logged in, under this name in lower case.
    Known(String),
}

/// A guest's place among the connected clients. However its thread ends, the place becomes free.
struct ClientSlot {
    door: Arc<Door>,
    number: u64,
}

impl ClientSlot {
    fn take(door: &Arc<Door>, guest: Guest) -> ClientSlot {
        let number = door.next_guest.fetch_add(1, Ordering::Relaxed);
        door.guests.lock().insert(number, guest);
        ClientSlot {
            door: door.clone(),
            number,
        }
    }

    /// Marks the guest as logged in; `false`: this login already has as many sessions as it may.
    fn known(&self, login: &str) -> bool {
        let standing = ListenerState::Known(login.to_ascii_lowercase());
        let mut guests = self.door.guests.lock();
        let others = guests.values().filter(|g| g.standing == standing).count();
        let has_room = others < self.door.settings.login_sessions;
        if let Some(guest) = guests.get_mut(&self.number).filter(|_| has_room) {
            guest.standing = standing;
        }
        has_room
    }

    /// Whether the guest was not closed for another.
    fn is_wanted(&self) -> bool {
        let guests = self.door.guests.lock();
        let guest = guests.get(&self.number);
        guest.is_some_and(|g| g.standing != ListenerState::Closed)
    }

    /// Marks the guest as refused. If many wait for their answers, the oldest is closed without one.
    fn refused(&self) {
        let mut guests = self.door.guests.lock();
        if let Some(guest) = guests.get_mut(&self.number)
            && guest.standing == ListenerState::Stranger
        {
            guest.standing = ListenerState::Refused;
        }
        close_oldest(&mut guests, &ListenerState::Refused, REFUSED_MAX);
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.door.guests.lock().remove(&self.number);
    }
}

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    login: String,
}

/// The interval at which the listener checks whether to end.
const TICK: Duration = Duration::from_millis(200);
/// The time that running statements may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of connections that have not logged in, and of those among them that are closed but have not ended.
const STRANGERS_MAX: usize = 64;
/// The limit of connections that wait for the answer to a failed login, in addition to all others.
const REFUSED_MAX: usize = 64;
/// The interval between two checks of who may log in.
const LOOK: Duration = Duration::from_secs(1);

/// File descriptors per connection: its own, and those that a statement opens.
const DESCRIPTORS_EACH: u64 = 4;
/// File descriptors apart from connections: a backup's files, the catalog, the listener.
const DESCRIPTORS_OWN: u64 = 256;

pub fn run(options: &Serve, context: &Context) -> Result<Exit, Failure> {
    let settings = Settings::of(options, context)?;
    let logins = Logins::new(settings.logins.clone());
    if let Some(name) = &options.add_login {
        let password = logins::ask_password()?;
        logins.add(&*context.storage, &*context.clock, name, &password)?;
        return Ok(answer(context, "add-login", name, "may log in"));
    }
    if let Some(name) = &options.remove_login {
        logins.remove(&*context.storage, &*context.clock, name)?;
        return Ok(answer(context, "remove-login", name, "is gone"));
    }
    if logins.is_empty(&*context.storage)? {
        return Err(Failure::usage(
            format!(
                "no client could log in: {} has no login",
                settings.logins.display()
            ),
            "add one first: longshore serve --add-login NAME",
        ));
    }
    let mut setup =
        configured::setup(&options.database, Some(&settings.backup_directory), context)?;
    setup.directories = Some(settings.directories.clone());
    setup.buckets = Some(settings.buckets.clone());
    setup.reserved.extend(settings.own_files(context));
    let memory = Memory::new(settings.memory);
    setup.memory = memory.clone();
    allow_descriptors(settings.sessions);
    let stop = setup.context.cancel.clone();
    let listener = listen(settings.listen)?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let kept = tls::CertificateFiles::beside(&settings.logins);
    let identity = settings.identity.as_ref();
    let tls = tls::config(&*context.storage, &*context.clock, identity, &kept)?;
    let door = Arc::new(Door {
        name: setup.name.clone(),
        server: Server::start(setup),
        memory,
        clock: context.clock.clone(),
        storage: context.storage.clone(),
        tls: tls.config,
        settings,
        logins,
        strikes: Strikes::default(),
        guests: Mutex::default(),
        next_guest: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
    });
    door.server
        .write_log("Server", &format!("Server is listening on {address}."));
    warn_of_root(&door, context);
    let certificate = &tls.fingerprint;
    let file = tls
        .made
        .map(|path| format!(", for clients to pin in {}", path.display()));
    context.output.remark(&format!(
        "longshore: certificate SHA-256 {certificate}{}\n",
        file.unwrap_or_default()
    ));
    context
        .output
        .remark(&format!("longshore: listening on {address}\n"));
    accept_until(&stop, &listener, &door);
    end(&door);
    Ok(Exit::Interrupted)
}

fn warn_of_root(door: &Door, context: &Context) {
    if rustix::process::geteuid().is_root() {
        context.output.warn(
            "serve runs as root: a client that logs in can reach everything that root can; run it as its own user, as \
             contrib/systemd/longshore-serve.service does (docs/serve.md)",
        );
        door.server
            .write_log("Server", "Warning: the server runs as root.");
    }
}

/// Takes connections until `stop` is set, and meanwhile ends the sessions of removed logins.
fn accept_until(stop: &AtomicBool, listener: &TcpListener, door: &Arc<Door>) {
    let mut removals = Removals {
        looked: door.clock.now(),
    };
    while !stop.load(Ordering::Relaxed) {
        door.sum_up(false);
        removals.look(door);
        if !is_readable(listener) {
            continue;
        }
        match listener.accept() {
            Ok((socket, from)) => welcome(door, socket, from),
            // The socket stays readable, possibly for long: too many files are open, or the client has left.
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                door.clock.sleep(TICK);
            }
        }
    }
}

fn answer(context: &Context, action: &'static str, name: &str, what: &str) -> Exit {
    context.output.say(&format!("{name} {what}\n"));
    let login = name.to_owned();
    context.output.json(Exit::Done, Answer { action, login });
    Exit::Done
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|e| {
        let mut failure = Failure::usage(
            format!("cannot listen on {address}"),
            "another server may have the port; name another with --listen",
        );
        failure.causes.push(e.to_string());
        failure
    })
}

/// Raises the limit on open files as far as the system allows: the usual limit is lower than all sessions need, and
/// then backups fail.
fn allow_descriptors(sessions: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    let allowed = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    // `None`: no limit.
    let needed = sessions as u64 * DESCRIPTORS_EACH + DESCRIPTORS_OWN;
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "too few open files for all sessions: raise LimitNOFILE, or lower sessions"
        );
    }
}

/// Waits a moment for a client to connect.
fn is_readable(listener: &TcpListener) -> bool {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    // A signal ends the wait early; the flag is checked then.
    poll(&mut polled, Some(&tick)).is_ok_and(|count| count > 0)
}

/// Whether one more client may connect. If all places are taken, the oldest stranger is closed: otherwise an attacker
/// could fill the places with silent connections, and a real login does not take long.
fn has_room(guests: &mut BTreeMap<u64, Guest>, sessions: usize) -> bool {
    let count = |standing| guests.values().filter(|g| g.standing == standing).count();
    let (strangers, closed) = (count(ListenerState::Stranger), count(ListenerState::Closed));
    let refused = count(ListenerState::Refused);
    if strangers < STRANGERS_MAX && guests.len() - closed - refused < sessions {
        return true;
    }
    closed < STRANGERS_MAX && close_oldest(guests, &ListenerState::Stranger, 0)
}

/// Closes the oldest guest of this standing if there are more than `max`; returns whether there was one.
fn close_oldest(guests: &mut BTreeMap<u64, Guest>, standing: &ListenerState, max: usize) -> bool {
    let alike = guests.values().filter(|g| g.standing == *standing).count();
    let mut all = guests.values_mut();
    let Some(oldest) = all.find(|g| alike > max && g.standing == *standing) else {
        return false;
    };
    oldest.standing = ListenerState::Closed;
    let _gone = oldest.socket.shutdown(Shutdown::Both);
    true
}

/// Ends the sessions of logins that were removed. An unreadable or missing file ends no session: a file system that is
/// briefly away must not end backups.
struct Removals {
    looked: Duration,
}

impl Removals {
    fn look(&mut self, door: &Door) {
        let now = door.clock.now();
        if now.saturating_sub(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let names = match door.logins.names(&*door.storage) {
            Ok(Some(names)) => names,
            Ok(None) => return,
            Err(failure) => {
                tracing::warn!(text = failure.text, "cannot read the logins");
                return;
            }
        };
        let mut ended = BTreeSet::new();
        for guest in door.guests.lock().values_mut() {
            if let ListenerState::Known(login) = &guest.standing
                && !names.contains(login)
            {
                ended.insert(login.clone());
                guest.standing = ListenerState::Closed;
                guest.cancel.store(true, Ordering::Relaxed);
                let _gone = guest.socket.shutdown(Shutdown::Both);
            }
        }
        for login in ended {
            let login = strikes::short(&login);
            door.log_logon(&format!(
                "The sessions of '{login}' were ended: the login was removed."
            ));
        }
    }
}

fn welcome(door: &Arc<Door>, socket: TcpStream, from: SocketAddr) {
    if !has_room(&mut door.guests.lock(), door.settings.sessions) {
        tracing::warn!(%from, "too many connections: this one was closed");
        return;
    }
    let cancel = Arc::new(AtomicBool::new(false));
    if socket.set_nonblocking(false).is_err() {
        return;
    }
    // One descriptor for the threads that read from it, write to it and end it.
    let socket = Arc::new(socket);
    let guest = Guest {
        cancel: cancel.clone(),
        socket: socket.clone(),
        standing: ListenerState::Stranger,
    };
    let place = ClientSlot::take(door, guest);
    let spawned = std::thread::Builder::new()
        .name("connection".into())
        .stack_size(connection::STACK_LEN)
        .spawn(move || connection::serve(&place, socket, from, cancel));
    if let Err(error) = spawned {
        tracing::warn!(%from, %error, "no thread for a connection: it was closed");
    }
}

/// Ends the running requests as a cancel does, and waits for them.
fn end(door: &Door) {
    door.stopping.store(true, Ordering::Relaxed);
    for guest in door.guests.lock().values() {
        guest.cancel.store(true, Ordering::Relaxed);
        // Its thread wakes up; pending output is still sent.
        let _gone = guest.socket.shutdown(Shutdown::Read);
    }
    let until = door.clock.now() + PATIENCE;
    while !door.guests.lock().is_empty() && door.clock.now() < until {
        door.clock.sleep(Duration::from_millis(20));
    }
    door.sum_up(true);
    door.server.write_log("Server", "Server is terminating.");
}
