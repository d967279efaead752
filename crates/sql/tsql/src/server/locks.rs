//! Application locks: names that scripts lock for a session or for its transaction (`sp_getapplock`).
//!
//! Invariants
//! - Locks of one session never conflict with each other, whichever owner holds them.
//! - Requests that conflict wait in their order; one of a session that holds the lock already waits for its holders only.
//! - A request that would wait for itself, through others, is told so and does not wait.
//! - A number for waiting is given only to a request that waits.
//! - A session holds a bounded number of names.
//!
//! Leaves to others: the procedures and their messages (`statement/applock.rs`), and how long a request waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::SessionKey;

/// The most names that a session holds.
pub(crate) const LOCKS_MAX: usize = 1000;

/// Modes of a lock; one that was asked for in several modes is held in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockModes(u8);

const INTENT_SHARED: u8 = 1;
const INTENT_EXCLUSIVE: u8 = 2;
const SHARED: u8 = 4;
const UPDATE: u8 = 8;
const EXCLUSIVE: u8 = 16;

/// Each mode's bit, name, and those that conflict with it.
const MODES: [(u8, &str, u8); 5] = [
    (INTENT_SHARED, "IntentShared", EXCLUSIVE),
    (
        INTENT_EXCLUSIVE,
        "IntentExclusive",
        SHARED | UPDATE | EXCLUSIVE,
    ),
    (SHARED, "Shared", INTENT_EXCLUSIVE | EXCLUSIVE),
    (UPDATE, "Update", INTENT_EXCLUSIVE | UPDATE | EXCLUSIVE),
    (EXCLUSIVE, "Exclusive", 31),
];

impl LockModes {
    /// The mode of this name, without regard to case; `None`: there is none that may be asked for.
    pub fn named(name: &str) -> Option<LockModes> {
        let mut all = MODES.iter();
        let found = all.find(|(_, known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(bit, ..)| LockModes(*bit))
    }

    /// As APPLOCK_MODE shows them, and as views name a wait for them.
    fn words(self) -> (&'static str, &'static str) {
        let has = |bit| self.0 & bit != 0;
        match () {
            () if has(EXCLUSIVE) => ("Exclusive", "LCK_M_X"),
            () if has(UPDATE) && has(INTENT_EXCLUSIVE) => ("UpdateIntentExclusive", "LCK_M_UIX"),
            () if has(UPDATE) => ("Update", "LCK_M_U"),
            () if has(SHARED) && has(INTENT_EXCLUSIVE) => ("SharedIntentExclusive", "LCK_M_SIX"),
            () if has(SHARED) => ("Shared", "LCK_M_S"),
            () if has(INTENT_EXCLUSIVE) => ("IntentExclusive", "LCK_M_IX"),
            () => ("IntentShared", "LCK_M_IS"),
        }
    }

    /// As APPLOCK_MODE shows them.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    fn conflicts_with(self, other: LockModes) -> bool {
        let mut all = MODES.iter();
        all.any(|(bit, _, conflicts)| self.0 & bit != 0 && other.0 & conflicts != 0)
    }
}

/// What is locked: a text in a database, for one of its users or roles. Texts that differ in case are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockName {
    /// In lower case.
    pub database: String,
    /// In lower case.
    pub principal: String,
    pub resource: String,
}

/// Who holds a lock: a session until it ends or releases it, or its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockOwner {
    pub session: SessionKey,
    /// The session's `@@SPID`, for views.
    pub number: u32,
    pub is_transaction: bool,
}

/// A session that waits for a lock, for views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockWait {
    /// The `@@SPID` of one of the sessions that it waits for.
    pub blocker: u32,
    /// As `sys.dm_exec_requests` names it: `LCK_M_X`.
    pub kind: &'static str,
    /// Milliseconds.
    pub waited: i64,
}

#[derive(Debug)]
struct HeldLock {
    owner: LockOwner,
    modes: LockModes,
    /// How often it was asked for: it is released as often.
    count: u64,
}

#[derive(Debug)]
struct Waiter {
    owner: LockOwner,
    modes: LockModes,
    ticket: u64,
    /// The clock's time at which it began to wait.
    since: Duration,
}

#[derive(Debug, Default)]
struct AppLock {
    held: Vec<HeldLock>,
    /// In the order of their requests.
    waiters: Vec<Waiter>,
}

impl AppLock {
    /// Those who keep a request from being granted. `before`: the ticket of a request that waits already.
    fn blockers(
        &self,
        owner: LockOwner,
        modes: LockModes,
        before: u64,
    ) -> impl Iterator<Item = LockOwner> {
        let own = owner.session;
        let others = self.held.iter().filter(move |h| h.owner.session != own);
        let held = others.filter(move |h| modes.conflicts_with(h.modes));
        let converts = self.held.iter().any(|h| h.owner.session == own);
        let earlier = self.waiters.iter().filter(move |w| {
            let is_other = w.owner.session != own && w.ticket < before;
            !converts && is_other && modes.conflicts_with(w.modes)
        });
        held.map(|h| h.owner).chain(earlier.map(|w| w.owner))
    }

    fn grant(&mut self, owner: LockOwner, modes: LockModes) {
        match self.held.iter_mut().find(|h| h.owner == owner) {
            Some(held) => {
                held.modes = LockModes(held.modes.0 | modes.0);
                held.count = held.count.saturating_add(1);
            }
            None => self.held.push(HeldLock {
                owner,
                modes,
                count: 1,
            }),
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockAnswer {
    Granted,
    /// Another session is in the way, and the request does not wait.
    Taken,
    /// It waits under this number.
    Waits(u64),
    /// Others wait for this session, directly or not, and it would wait for them.
    Deadlock,
    /// The session holds as many names as it may.
    TooMany,
}

#[derive(Default)]
struct LockTable {
    all: BTreeMap<LockName, AppLock>,
    tickets: u64,
}

impl LockTable {
    /// Whether a session that waits for these waits for `session`, too.
    fn leads_to(&self, session: SessionKey, first: Vec<LockOwner>) -> bool {
        let (mut open, mut seen) = (first, Vec::new());
        while let Some(next) = open.pop().map(|owner| owner.session) {
            if next == session {
                return true;
            }
            if seen.contains(&next) {
                continue;
            }
            seen.push(next);
            for lock in self.all.values() {
                for waiter in lock.waiters.iter().filter(|w| w.owner.session == next) {
                    open.extend(lock.blockers(waiter.owner, waiter.modes, waiter.ticket));
                }
            }
        }
        false
    }

    fn forget_if_free(&mut self, name: &LockName) {
        let is_free = |lock: &AppLock| lock.held.is_empty() && lock.waiters.is_empty();
        if self.all.get(name).is_some_and(is_free) {
            self.all.remove(name);
        }
    }
}

/// The locks of a server.
#[derive(Default)]
pub(crate) struct AppLocks {
    table: Mutex<LockTable>,
    /// How many names are locked: most sessions end without a look at them.
    names: AtomicUsize,
}

impl AppLocks {
    fn change<T>(&self, change: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.table.lock();
        let done = change(&mut table);
        self.names.store(table.all.len(), Ordering::Relaxed);
        done
    }

    /// Asks for a lock. `since`: the clock's time, for a request that waits where it cannot be granted.
    pub fn ask(
        &self,
        name: &LockName,
        owner: LockOwner,
        modes: LockModes,
        since: Option<Duration>,
    ) -> LockAnswer {
        self.change(|table| {
            let holds = |lock: &AppLock| lock.held.iter().any(|h| h.owner.session == owner.session);
            let is_new = !table.all.get(name).is_some_and(holds);
            if is_new && table.all.values().filter(|lock| holds(lock)).count() >= LOCKS_MAX {
                return LockAnswer::TooMany;
            }
            let lock = table.all.entry(name.clone()).or_default();
            let blockers: Vec<_> = lock.blockers(owner, modes, u64::MAX).collect();
            if blockers.is_empty() {
                lock.grant(owner, modes);
                return LockAnswer::Granted;
            }
            let Some(since) = since else {
                return LockAnswer::Taken;
            };
            if table.leads_to(owner.session, blockers) {
                return LockAnswer::Deadlock;
            }
            table.tickets += 1;
            let ticket = table.tickets;
            let lock = table.all.entry(name.clone()).or_default();
            lock.waiters.push(Waiter {
                owner,
                modes,
                ticket,
                since,
            });
            LockAnswer::Waits(ticket)
        })
    }

    /// Whether a request that waits is granted now.
    pub fn is_granted(&self, name: &LockName, ticket: u64) -> bool {
        self.change(|table| {
            let Some(lock) = table.all.get_mut(name) else {
                return false;
            };
            let Some(at) = lock.waiters.iter().position(|w| w.ticket == ticket) else {
                return false;
            };
            let (owner, modes) = (lock.waiters[at].owner, lock.waiters[at].modes);
            if lock.blockers(owner, modes, ticket).next().is_some() {
                return false;
            }
            lock.waiters.remove(at);
            lock.grant(owner, modes);
            true
        })
    }

    /// Gives up a request that waits.
    pub fn give_up(&self, name: &LockName, ticket: u64) {
        self.change(|table| {
            if let Some(lock) = table.all.get_mut(name) {
                lock.waiters.retain(|w| w.ticket != ticket);
            }
            table.forget_if_free(name);
        });
    }

    /// Releases a lock once. Returns whether it was held.
    pub fn release(&self, name: &LockName, owner: LockOwner) -> bool {
        self.change(|table| {
            let Some(lock) = table.all.get_mut(name) else {
                return false;
            };
            let Some(held) = lock.held.iter_mut().find(|h| h.owner == owner) else {
                return false;
            };
            held.count -= 1;
            if held.count == 0 {
                lock.held.retain(|h| h.owner != owner);
            }
            table.forget_if_free(name);
            true
        })
    }

    /// The modes in which an owner holds a lock.
    pub fn held(&self, name: &LockName, owner: LockOwner) -> Option<LockModes> {
        let table = self.table.lock();
        let lock = table.all.get(name)?;
        let held = lock.held.iter().find(|h| h.owner == owner);
        held.map(|h| h.modes)
    }

    /// Whether a request would be granted at once.
    pub fn is_free(&self, name: &LockName, owner: LockOwner, modes: LockModes) -> bool {
        let table = self.table.lock();
        let lock = table.all.get(name);
        lock.is_none_or(|lock| lock.blockers(owner, modes, u64::MAX).next().is_none())
    }

    /// The sessions that wait, by their `@@SPID`. `now`: the clock's time.
    pub fn waits(&self, now: Duration) -> BTreeMap<u32, LockWait> {
        let mut waits = BTreeMap::new();
        if self.names.load(Ordering::Relaxed) == 0 {
            return waits;
        }
        let table = self.table.lock();
        for lock in table.all.values() {
            for waiter in &lock.waiters {
                // One that nobody is in the way of has not looked yet.
                let mut blockers = lock.blockers(waiter.owner, waiter.modes, waiter.ticket);
                let Some(blocker) = blockers.next() else {
                    continue;
                };
                let waited = now.saturating_sub(waiter.since).as_millis();
                let wait = LockWait {
                    blocker: blocker.number,
                    kind: waiter.modes.words().1,
                    waited: i64::try_from(waited).unwrap_or(i64::MAX),
                };
                waits.insert(waiter.owner.number, wait);
            }
        }
        waits
    }

    /// A session has no transaction now.
    pub fn end_transaction(&self, session: SessionKey) {
        self.end(|owner| owner.session == session && owner.is_transaction);
    }

    /// A session begins again: its transaction, if it goes on, keeps its locks.
    pub fn end_own(&self, session: SessionKey) {
        self.end(|owner| owner.session == session && !owner.is_transaction);
    }

    /// A session ends.
    pub fn end_session(&self, session: SessionKey) {
        self.end(|owner| owner.session == session);
    }

    fn end(&self, is_gone: impl Fn(&LockOwner) -> bool) {
        if self.names.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.change(|table| {
            table.all.retain(|_, lock| {
                lock.held.retain(|h| !is_gone(&h.owner));
                lock.waiters.retain(|w| !is_gone(&w.owner));
                !lock.held.is_empty() || !lock.waiters.is_empty()
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(resource: &str) -> LockName {
        LockName {
            database: "shop".into(),
            principal: "public".into(),
            resource: resource.into(),
        }
    }

    fn of(session: SessionKey) -> LockOwner {
        LockOwner {
            session,
            number: number(session),
            is_transaction: false,
        }
    }

    fn number(session: SessionKey) -> u32 {
        u32::try_from(session).unwrap() + 50
    }

    fn modes(name: &str) -> LockModes {
        LockModes::named(name).unwrap()
    }

    /// The table of compatible modes in Microsoft's guide to locking.
    #[test]
    fn modes_conflict_as_the_guide_says() {
        let all = [
            "IntentShared",
            "Shared",
            "Update",
            "IntentExclusive",
            "Exclusive",
        ];
        let compatible = ["yyyyn", "yyynn", "yynnn", "ynnyn", "nnnnn"];
        for (one, row) in all.iter().zip(compatible) {
            for (other, expected) in all.iter().zip(row.chars()) {
                let conflicts = modes(one).conflicts_with(modes(other));
                assert_eq!(conflicts, expected == 'n', "{one} and {other}");
            }
        }
        assert!(LockModes::named("Strange").is_none());
    }

    #[test]
    fn a_lock_is_held_in_all_modes_and_released_as_often_as_it_was_asked_for() {
        let locks = AppLocks::default();
        let (a, x) = (name("a"), name("x"));
        let ask = |n: &LockName, owner, mode| locks.ask(n, owner, modes(mode), None);
        assert_eq!(ask(&a, of(1), "Shared"), LockAnswer::Granted);
        assert_eq!(ask(&a, of(1), "IntentExclusive"), LockAnswer::Granted);
        assert_eq!(
            locks.held(&a, of(1)).unwrap().name(),
            "SharedIntentExclusive"
        );
        assert_eq!(ask(&a, of(2), "Shared"), LockAnswer::Taken);
        assert_eq!(ask(&a, of(2), "IntentShared"), LockAnswer::Granted);
        // The transaction of the same session is no other session.
        let transaction = LockOwner {
            session: 1,
            number: number(1),
            is_transaction: true,
        };
        assert_eq!(ask(&x, of(1), "Exclusive"), LockAnswer::Granted);
        assert_eq!(ask(&x, transaction, "Exclusive"), LockAnswer::Granted);
        assert!(!locks.is_free(&x, of(2), modes("IntentShared")));
        assert!(locks.release(&x, of(1)));
        assert!(!locks.release(&x, of(1)));
        assert!(!locks.release(&x, of(2)));
        locks.end_transaction(1);
        assert!(locks.is_free(&x, of(2), modes("Exclusive")));
        assert!(locks.release(&a, of(1)));
        assert!(!locks.is_free(&a, of(2), modes("Exclusive")));
        locks.end_session(1);
        locks.end_session(2);
        assert_eq!(locks.names.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn requests_wait_in_their_order_and_a_circle_is_told() {
        let locks = AppLocks::default();
        let (a, b) = (name("a"), name("b"));
        let since = Duration::from_millis(100);
        let ask = |n: &LockName, session, mode| locks.ask(n, of(session), modes(mode), Some(since));
        assert_eq!(ask(&a, 1, "Shared"), LockAnswer::Granted);
        let LockAnswer::Waits(second) = ask(&a, 2, "Exclusive") else {
            panic!("granted to two");
        };
        // A later request does not overtake one that it conflicts with.
        let LockAnswer::Waits(third) = ask(&a, 3, "Shared") else {
            panic!("overtaken");
        };
        assert!(!locks.is_granted(&a, third));
        let wait = |blocker, kind| LockWait {
            blocker: number(blocker),
            kind,
            waited: 40,
        };
        let both = [
            (number(2), wait(1, "LCK_M_X")),
            (number(3), wait(2, "LCK_M_S")),
        ];
        assert_eq!(locks.waits(Duration::from_millis(140)), both.into());
        assert_eq!(ask(&b, 2, "Exclusive"), LockAnswer::Granted);
        assert_eq!(ask(&b, 1, "Exclusive"), LockAnswer::Deadlock);
        assert!(locks.release(&a, of(1)));
        assert!(locks.is_granted(&a, second));
        assert!(!locks.is_granted(&a, third));
        locks.end_session(2);
        assert!(locks.is_granted(&a, third));
        let LockAnswer::Waits(fourth) = ask(&a, 4, "Exclusive") else {
            panic!("granted to two");
        };
        locks.end_session(3);
        // One that nobody is in the way of waits for nobody.
        assert!(locks.waits(since).is_empty());
        locks.give_up(&a, fourth);
        assert_eq!(locks.names.load(Ordering::Relaxed), 0);
    }
}
