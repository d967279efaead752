//! The byte stream to a server: a socket of this machine, TCP, or TCP with TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use socket2::{SockRef, TcpKeepalive};

use super::Error;
use super::options::{Host, Options};

pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(super) fn connect(host: &Host, options: &Options) -> Result<Stream, Error> {
        let refused = |source| Error::Connect {
            address: host.to_string(),
            source,
        };
        match host {
            Host::Socket { dir, port } => UnixStream::connect(dir.join(format!(".s.PGSQL.{port}")))
                .map(Stream::Unix)
                .map_err(refused),
            Host::Tcp {
                name,
                address,
                port,
            } => connect_tcp(address.as_ref().unwrap_or(name), *port, options)
                .map(Stream::Tcp)
                .map_err(refused),
        }
    }

    /// How long a read waits for bytes; `None`: for ever.
    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> Result<(), Error> {
        // A timeout of zero would be refused.
        let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
        match self {
            Stream::Unix(socket) => socket.set_read_timeout(limit),
            Stream::Tcp(socket) => socket.set_read_timeout(limit),
            Stream::Tls(tls) => tls.sock.set_read_timeout(limit),
        }
        .map_err(|e| Error::protocol(format!("cannot set the socket's timeout: {e}")))
    }
}

fn connect_tcp(name: &str, port: u16, options: &Options) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, options.connect_timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                if let Some(keepalive) = options.keepalive {
                    let keepalive = TcpKeepalive::new()
                        .with_time(keepalive.idle)
                        .with_interval(keepalive.interval)
                        .with_retries(keepalive.count);
                    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
                }
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.read(buf),
            Stream::Tcp(socket) => socket.read(buf),
            Stream::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.write(buf),
            Stream::Tcp(socket) => socket.write(buf),
            Stream::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.flush(),
            Stream::Tcp(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}
