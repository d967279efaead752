//! The way to the service manager, as systemd: a datagram to the socket that `NOTIFY_SOCKET` names, by the protocol of
//! sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The longest time that a manager with a full queue holds up a start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells the manager a state, assignments in lines; without a manager nothing is told. One that does not take it costs a
/// warning: the clients are served all the same, and a manager that waits for the state ends the service itself.
pub(crate) fn tell(state: &str) {
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
    let Some(socket) = socket else { return };
    if let Err(error) = send(&socket, state) {
        let socket = socket.display();
        tracing::warn!(%error, "the service manager at {socket} does not take: {state:?}");
    }
}

/// A name that begins with `@` is an abstract one, which no file has.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}
