//! Failed logins: how long each waits for its answer, and one log line each, up to a limit.
//!
//! Invariants
//! - Anyone can cause failed logins, and the log has limited room. Above [`LINES_MAX`] a minute, failures are only
//!   counted, and one line gives the number, so that an attack cannot push its own traces out of the log.
//! - Each further failure from the same address doubles the wait, up to a bound. Only failures wait: a client that
//!   knows a password is never kept out by one that does not.
//! - Memory is bounded: so many addresses are remembered, and a name in the log is short and on one line.
//!
//! Leaves to others: checking passwords, waiting, and writing the lines (`logins.rs`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;

const LINES_MAX: u32 = 20;
const SPAN: Duration = Duration::from_secs(60);
/// The maximum characters of a name in the log, escaped.
const NAME_LEN_MAX: usize = 100;

/// The delay before the first failure of an address is answered.
const DELAY: Duration = Duration::from_secs(1);
/// The maximum delay: clients that wait 15 s or less for their login still receive the reason.
const DELAY_MAX: Duration = Duration::from_secs(8);
/// An address without a failure for this time starts again with the first delay.
const FORGIVEN: Duration = Duration::from_secs(300);
/// The number of addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;

#[derive(Default)]
pub struct Strikes {
    inner: Mutex<Window>,
    addresses: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Duration,
}

#[derive(Default)]
struct Window {
    begun: Duration,
    count: u32,
}

impl Strikes {
    /// Counts a failure; returns whether it gets its own log line.
    pub fn add(&self) -> bool {
        let mut window = self.inner.lock();
        window.count = window.count.saturating_add(1);
        window.count <= LINES_MAX
    }

    /// The time that this failure waits for its answer.
    pub fn delay(&self, from: IpAddr, now: Duration) -> Duration {
        let mut all = self.addresses.lock();
        if all.len() >= ADDRESSES_MAX {
            all.retain(|_, failures| now.saturating_sub(failures.last) < FORGIVEN);
        }
        if all.len() >= ADDRESSES_MAX {
            let oldest = all.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                all.remove(&oldest);
            }
        }
        let begun = Failures {
            count: 0,
            last: now,
        };
        let failures = all.entry(network(from)).or_insert(begun);
        if now.saturating_sub(failures.last) >= FORGIVEN {
            *failures = begun;
        }
        let doublings = failures.count.min(16);
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        (DELAY * (1 << doublings)).min(DELAY_MAX)
    }

    /// The text on failures without a line, once their minute is over or the server ends. Must be called now and then.
    pub fn summary(&self, now: Duration, ends: bool) -> Option<String> {
        let mut window = self.inner.lock();
        if !ends && now.saturating_sub(window.begun) < SPAN {
            return None;
        }
        let more = window.count.saturating_sub(LINES_MAX);
        *window = Window {
            begun: now,
            count: 0,
        };
        (more > 0).then(|| format!("{more} more logins failed within a minute."))
    }
}

/// For IPv6 the network: the owner of one address in it has all of them.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
        },
    }
}

/// A name that anyone may have sent: on one line, and short.
pub fn short(name: &str) -> String {
    let mut escaped = name.escape_debug();
    let mut short: String = escaped.by_ref().take(NAME_LEN_MAX).collect();
    if escaped.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_longer_each_time_and_others_do_not() {
        let strikes = Strikes::default();
        let at = |s| Duration::from_secs(s);
        let wait = |from: &str, now| strikes.delay(from.parse().unwrap(), at(now)).as_secs();
        let waits: Vec<_> = (0..6).map(|n| wait("10.0.0.1", 100 + n)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 8, 8]);
        assert_eq!(wait("10.0.0.2", 106), 1);
        assert_eq!(wait("::ffff:10.0.0.2", 107), 2, "the same address");
        assert_eq!(wait("2001:db8:1:2::1", 107), 1);
        assert_eq!(wait("2001:db8:1:2:ffff::2", 107), 2, "the same network");
        assert_eq!(wait("2001:db8:1:3::1", 107), 1);
        assert_eq!(wait("10.0.0.1", 105 + 299), 8);
        assert_eq!(wait("10.0.0.1", 404 + 300), 1, "forgiven");
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let strikes = Strikes::default();
        for n in 0..5000_u32 {
            let from = IpAddr::from(n.to_be_bytes());
            strikes.delay(from, Duration::from_secs(u64::from(n) / 100));
        }
        assert_eq!(strikes.addresses.lock().len(), ADDRESSES_MAX);
        // The newest address.
        let newest = IpAddr::from(4999_u32.to_be_bytes());
        assert_eq!(strikes.delay(newest, Duration::from_secs(50)), DELAY * 2);
    }

    #[test]
    fn a_flood_of_failures_has_few_lines_and_one_that_counts_the_rest() {
        let strikes = Strikes::default();
        let lines = |n: u32| (0..n).filter(|_| strikes.add()).count();
        assert_eq!(lines(1000), 20);
        assert_eq!(strikes.summary(Duration::from_secs(59), false), None);
        let said = strikes.summary(Duration::from_secs(60), false).unwrap();
        assert_eq!(said, "980 more logins failed within a minute.");
        assert_eq!(lines(20), 20);
        assert_eq!(strikes.summary(Duration::from_secs(300), false), None);
        assert_eq!(lines(21), 20);
        let said = strikes.summary(Duration::from_secs(301), true).unwrap();
        assert_eq!(said, "1 more logins failed within a minute.");
    }

    #[test]
    fn names_are_short_however_they_are_escaped() {
        assert_eq!(short("a\nb"), "a\\nb");
        let long = short(&"\u{10ffff}".repeat(128));
        assert_eq!(long.chars().count(), 101);
    }
}
