//! The sessions of a server: their numbers, and what others may know of each.
//!
//! Invariants
//! - A session is here from its login to its end, once; its number is free again then.
//! - The facts of a session are those that it said of itself last. A fact that nobody has said is absent.
//! - KILL asks: a statement that runs ends as by a cancel, and its session after it.
//!
//! Leaves to others: the views (`query/system.rs`), and the session itself (`session.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::flow::{FIRST_DATABASE, Login};
use crate::value::DateTime;

/// Lower numbers are the system's own sessions; higher ones than the last do not fit `@@SPID`'s smallint.
pub(crate) const SESSION_FIRST: u32 = 51;
pub(crate) const SESSION_LAST: u32 = 32_767;

/// How a client is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLink {
    /// The client's address, without its port.
    pub client: String,
    /// The client's port.
    pub client_port: u16,
    /// The server's address, without its port.
    pub local: String,
    /// The server's port.
    pub local_port: u16,
    /// Whether requests and answers are encrypted.
    pub encrypted: bool,
    /// Bytes of a packet.
    pub packet_len: u32,
}

/// The facts that a session says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionState {
    pub database: String,
    pub is_running: bool,
    pub transactions: u32,
    /// `SET LOCK_TIMEOUT`, in milliseconds.
    pub lock_timeout: i64,
    /// As `sys.dm_exec_sessions` counts: 1 READ UNCOMMITTED to 5 SNAPSHOT.
    pub isolation: i64,
    /// `SET DATEFIRST`
    pub date_first: i64,
    /// `SET DATEFORMAT`, such as `mdy`.
    pub date_order: &'static str,
    /// `@@LANGUAGE`
    pub language: &'static str,
}

/// A session, as others see it.
#[derive(Debug, Clone)]
pub(crate) struct SessionFacts {
    pub login: Login,
    pub since: DateTime,
    pub connection: Option<ClientLink>,
    pub state: SessionState,
    /// When its last batch began, and when it ended.
    pub begun: Option<DateTime>,
    pub ended: Option<DateTime>,
    cancel: Arc<AtomicBool>,
    killed: Arc<AtomicBool>,
}

/// Ends the connection of a session that waits for its client.
type Hang = Arc<dyn Fn() + Send + Sync>;

/// All sessions of a server.
#[derive(Clone, Default)]
pub(crate) struct SessionList(Arc<Mutex<Sessions>>);

#[derive(Default)]
struct Sessions {
    /// The number that the next session gets, if it is free.
    next: u32,
    live: BTreeMap<u32, SessionFacts>,
    hangs: BTreeMap<u32, Hang>,
}

impl Sessions {
    /// The next free number; after the last one they start again.
    fn take(&mut self, facts: SessionFacts) -> u32 {
        let next = self.next.max(SESSION_FIRST);
        let free = (next..=SESSION_LAST)
            .chain(SESSION_FIRST..next)
            .find(|n| !self.live.contains_key(n));
        // If there are as many sessions as numbers, two share one: only views show the difference.
        let number = free.unwrap_or(SESSION_FIRST);
        self.live.insert(number, facts);
        self.next = match number {
            SESSION_LAST => SESSION_FIRST,
            number => number + 1,
        };
        number
    }
}

/// A session's number; free again when it is dropped.
pub(crate) struct SessionNumber {
    list: SessionList,
    number: u32,
    killed: Arc<AtomicBool>,
}

impl SessionList {
    /// A number for a new session. `cancel`: ends its statement.
    pub fn take(&self, login: &Login, cancel: &Arc<AtomicBool>, now: DateTime) -> SessionNumber {
        let killed = Arc::new(AtomicBool::new(false));
        let facts = SessionFacts {
            login: login.clone(),
            since: now,
            connection: None,
            state: SessionState {
                database: FIRST_DATABASE.to_owned(),
                lock_timeout: -1,
                isolation: 2,
                date_first: 7,
                date_order: "mdy",
                language: "us_english",
                ..SessionState::default()
            },
            begun: None,
            ended: None,
            cancel: cancel.clone(),
            killed: killed.clone(),
        };
        SessionNumber {
            number: self.0.lock().take(facts),
            list: self.clone(),
            killed,
        }
    }

    /// The sessions that are there.
    pub fn all(&self) -> BTreeMap<u32, SessionFacts> {
        self.0.lock().live.clone()
    }

    /// Ends a session: its statement at once, itself after it. Returns whether it is there.
    pub fn kill(&self, session: u32) -> bool {
        let sessions = self.0.lock();
        let Some(facts) = sessions.live.get(&session) else {
            return false;
        };
        facts.killed.store(true, Ordering::Relaxed);
        facts.cancel.store(true, Ordering::Relaxed);
        let hang = sessions.hangs.get(&session).cloned();
        let rests = !facts.state.is_running;
        drop(sessions);
        if let Some(hang) = hang.filter(|_| rests) {
            hang();
        }
        true
    }
}

impl SessionNumber {
    pub fn get(&self) -> u32 {
        self.number
    }

    /// Whether KILL has ended the session.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Says what the session is now.
    pub fn say(&self, state: SessionState, now: DateTime) {
        if let Some(facts) = self.list.0.lock().live.get_mut(&self.number) {
            match (facts.state.is_running, state.is_running) {
                (false, true) => facts.begun = Some(now),
                (true, false) => facts.ended = Some(now),
                _ => {}
            }
            facts.state = state;
        }
    }

    /// Says how its client is connected, and what ends the connection while the session rests.
    pub fn connect(&self, connection: ClientLink, hang: Hang) {
        let mut sessions = self.list.0.lock();
        if let Some(facts) = sessions.live.get_mut(&self.number) {
            facts.connection = Some(connection);
        }
        sessions.hangs.insert(self.number, hang);
    }
}

impl Drop for SessionNumber {
    fn drop(&mut self) {
        let mut sessions = self.list.0.lock();
        sessions.live.remove(&self.number);
        sessions.hangs.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sessions_begin_again_and_skip_those_in_use() {
        let facts = || SessionFacts {
            login: Login::default(),
            since: DateTime::default(),
            connection: None,
            state: SessionState::default(),
            begun: None,
            ended: None,
            cancel: Arc::default(),
            killed: Arc::default(),
        };
        let mut sessions = Sessions::default();
        assert_eq!((sessions.take(facts()), sessions.take(facts())), (51, 52));
        sessions.live.remove(&52);
        sessions.next = SESSION_LAST;
        assert_eq!(sessions.take(facts()), SESSION_LAST);
        assert_eq!(sessions.take(facts()), 52, "51 is still in use");
    }
}
