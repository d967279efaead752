//! Ports for servers that take a number and cannot tell which one they got.
//!
//! Invariants
//! - No two callers of this machine have one port while both processes live: the name of a socket that is held says so.
//! - A port lies below those that the kernel gives to connections, unless it gives all. From there, a connection of any other
//!   program could take it before the server does, and a test that waits for the server could be connected with itself.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

use crate::Random;

/// Servers of the system lie below.
const FIRST: u16 = 10_240;

/// The first of those that the kernel gives to connections, where it does not say.
const KERNELS_FIRST: u16 = 32_768;

/// The names that are held, until the process ends.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that nobody listens at, and that no other caller gets.
///
/// Panics: none is left.
pub fn free_port() -> u16 {
    let below = FIRST..kernels_first();
    let ports = match below.is_empty() {
        true => FIRST..u16::MAX,
        false => below,
    };
    let count = ports.end - ports.start;
    // Processes that begin together do not all look at the same ones.
    let mut random = Random(u64::from(std::process::id()));
    let skip = usize::from(random.below(count));
    let taken = ports.cycle().skip(skip).take(count.into()).find_map(take);
    let (port, name) = taken.expect("a port is free");
    let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    held.push(name);
    port
}

fn take(port: u16) -> Option<(u16, UnixListener)> {
    let name = SocketAddr::from_abstract_name(format!("longshore-test-port-{port}")).ok()?;
    let held = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(("127.0.0.1", port)).ok()?;
    Some((port, held))
}

fn kernels_first() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.unwrap_or(KERNELS_FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_not_while_somebody_listens() {
        let first = free_port();
        assert!(first >= FIRST, "{first}");
        assert!(take(first).is_none(), "it is held");
        let others: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert!(!others.contains(&first), "{others:?}");
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(take(taken.local_addr().unwrap().port()).is_none());
    }
}
