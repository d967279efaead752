//! The state that all connections share, and the places that they take in it. The status page's clients have places of the
//! same kind.
//!
//! Invariants
//! - A client has a place from its connection to the end of its thread, however that ends.
//! - Strangers and clients that failed to log in take no place from clients that logged in: the oldest of them are
//!   closed first.
//! - The clients are reached only by the calls below: nobody else ends one.
//!
//! Leaves to others: taking connections (`mod.rs`), one connection (`connection.rs`), and who may log in (`logins.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_io::{Clock, Storage};
use longshore_tsql::{Memory, Server};
use parking_lot::Mutex;

use super::logins::Logins;
use super::settings::Settings;
use super::strikes::Strikes;

/// The limit of connections that have not logged in, and of those among them that are closed but have not ended.
const STRANGERS_MAX: usize = 64;
/// The limit of connections that wait for the answer to a failed login, in addition to all others.
const REFUSED_MAX: usize = 64;

/// The state that all connections share.
pub struct Door {
    pub server: Arc<Server>,
    /// The memory of all sessions.
    pub memory: Memory,
    /// `@@SERVERNAME`, in messages.
    pub name: String,
    pub clock: Arc<dyn Clock>,
    pub storage: Arc<dyn Storage>,
    pub settings: Settings,
    pub logins: Arc<Logins>,
    pub strikes: Arc<Strikes>,
    /// Of TDS 7.
    pub tls: Arc<rustls::ServerConfig>,
    /// Of TDS 8.0.
    pub strict_tls: Arc<rustls::ServerConfig>,
    pub certificate_ends_us: Option<i64>,
    pub guests: Arc<Guests>,
}

impl Door {
    pub fn log_logon(&self, text: &str) {
        tracing::warn!(text);
        self.server.write_log("Logon", text);
    }

    /// Logs the number of failed logins that have no line yet.
    pub fn sum_up(&self, ends: bool) {
        if let Some(text) = self.strikes.summary(self.clock.now(), ends) {
            self.log_logon(&text);
        }
    }
}

/// The connected clients, with the means to end them.
#[derive(Default)]
pub struct Guests {
    /// Oldest first.
    all: Mutex<BTreeMap<u64, Guest>>,
    next: AtomicU64,
    stopping: AtomicBool,
}

impl Guests {
    /// Whether one more client may connect. If all places are taken, the oldest stranger is closed: otherwise an attacker
    /// could fill the places with silent connections, and a real login does not take long.
    pub fn has_room(&self, sessions: usize) -> bool {
        let mut guests = self.all.lock();
        let count = |standing| guests.values().filter(|g| g.standing == standing).count();
        let (strangers, closed) = (count(ListenerState::Stranger), count(ListenerState::Closed));
        let refused = count(ListenerState::Refused);
        if strangers < STRANGERS_MAX && guests.len() - closed - refused < sessions {
            return true;
        }
        closed < STRANGERS_MAX && close_oldest(&mut guests, &ListenerState::Stranger, 0)
    }

    /// Ends the sessions of all logins except `names`; returns those that had some.
    pub fn end_sessions_except(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let mut ended = BTreeSet::new();
        for guest in self.all.lock().values_mut() {
            if let ListenerState::Known(login) = &guest.standing
                && !names.contains(login)
            {
                ended.insert(login.clone());
                guest.standing = ListenerState::Closed;
                guest.cancel.store(true, Ordering::Relaxed);
                let _gone = guest.socket.shutdown(Shutdown::Both);
            }
        }
        ended
    }

    /// Whether the server ends.
    pub fn is_closing(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The server ends: cancels the running requests as their clients can.
    pub fn close(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for guest in self.all.lock().values() {
            guest.cancel.store(true, Ordering::Relaxed);
            // Its thread wakes up; pending output is still sent.
            let _gone = guest.socket.shutdown(Shutdown::Read);
        }
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
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
pub struct ClientSlot {
    guests: Arc<Guests>,
    number: u64,
}

impl ClientSlot {
    /// The place of a client that just connected: a stranger until it logs in.
    pub fn take(
        guests: &Arc<Guests>,
        socket: Arc<TcpStream>,
        cancel: Arc<AtomicBool>,
    ) -> ClientSlot {
        let number = guests.next.fetch_add(1, Ordering::Relaxed);
        let guest = Guest {
            cancel,
            socket,
            standing: ListenerState::Stranger,
        };
        guests.all.lock().insert(number, guest);
        ClientSlot {
            guests: guests.clone(),
            number,
        }
    }

    /// Marks the guest as logged in; `false`: this login already has as many sessions as it may (`max`).
    pub fn known(&self, login: &str, max: usize) -> bool {
        let standing = ListenerState::Known(login.to_ascii_lowercase());
        let mut guests = self.guests.all.lock();
        let others = guests.values().filter(|g| g.standing == standing).count();
        let has_room = others < max;
        if let Some(guest) = guests.get_mut(&self.number).filter(|_| has_room) {
            guest.standing = standing;
        }
        has_room
    }

    /// Whether the guest was not closed for another.
    pub fn is_wanted(&self) -> bool {
        let guests = self.guests.all.lock();
        let guest = guests.get(&self.number);
        guest.is_some_and(|g| g.standing != ListenerState::Closed)
    }

    /// Marks the guest as refused. If many wait for their answers, the oldest is closed without one.
    pub fn refused(&self) {
        let mut guests = self.guests.all.lock();
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
        self.guests.all.lock().remove(&self.number);
    }
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
