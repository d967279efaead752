//! Sockets of both doors: listening, and waiting for a client to come or to stay.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use longshore_io::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use longshore_terminal::failure::Failure;

/// The interval at which a listener checks whether to end.
pub const TICK: Duration = Duration::from_millis(200);

/// `option`: the option that names another address.
pub fn listen(address: SocketAddr, option: &str) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|e| {
        let mut failure = Failure::usage(
            format!("cannot listen on {address}"),
            format!("another server may have the port; name another with {option}"),
        );
        failure.causes.push(e.to_string());
        failure
    })
}

/// Waits a moment for a client to connect.
pub fn is_readable(listener: &TcpListener) -> bool {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    // A signal ends the wait early; the flag is checked then.
    poll(&mut polled, Some(&tick)).is_ok_and(|count| count > 0)
}

/// Waits until `until`; `false` as soon as the client leaves, or its connection is ended. Bytes from the client are not
/// read meanwhile.
pub fn stays(socket: &TcpStream, clock: &dyn Clock, until: Duration) -> bool {
    loop {
        let wait = until.saturating_sub(clock.now());
        if wait.is_zero() {
            return true;
        }
        let wait = Timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: wait.subsec_nanos().max(1_000_000).into(),
        };
        let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
        let _interrupted = poll(&mut polled, Some(&wait));
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if polled[0].revents().intersects(gone) {
            return false;
        }
    }
}
