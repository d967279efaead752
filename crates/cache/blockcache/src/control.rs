//! The control socket: a client sends one line of JSON and receives one line.
//!
//! Invariants
//! - A client that can open the socket may do everything; its mode is 0600. A file that is no dead socket is never
//!   replaced.
//! - A client that sends nothing, or too much, is disconnected. No client ends the service.
//! - A few clients are served at once, so that a client that waits for a long answer keeps nobody from reading the
//!   state.
//!
//! Leaves to others: carrying requests out (`cached`), and showing answers (the program's `cache`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use longshore_io::Storage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::open::{Backend, attach};
use crate::{CachedBackend, Error};

/// The longest line that is read.
const LINE_MAX: usize = 64 << 10;
/// How long a client may take to send its line, and to receive the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a client could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Clients served at once; further ones are disconnected.
const CLIENTS_MAX: usize = 8;

/// A request to a cached backend at work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    Prometheus,
    /// The last requests, newest first.
    Why {
        count: usize,
    },
    /// Sets another policy.
    Policy {
        name: String,
    },
    /// Makes the cached data durable now.
    Checkpoint,
    /// Serves from the backend alone from now on.
    Detach,
    /// Attaches an empty cache.
    Attach {
        path: PathBuf,
    },
    Verify {
        repair: bool,
    },
    /// Gives the cache that many bytes of its cache device.
    Resize {
        bytes: u64,
    },
    /// Starts another policy as a shadow; `None` stops the shadow.
    Shadow {
        name: Option<String>,
    },
    /// Starts recording the clients' requests.
    Record,
    /// The requests recorded since the last such call; with `end`, recording stops.
    Recorded {
        number: u64,
        end: bool,
    },
}

/// Executes a request. The answer has `error` and `hint` if it failed.
pub fn answer(
    cached: &CachedBackend,
    storage: &dyn Storage,
    backend: &Backend,
    request: Request,
) -> Value {
    let done = |result: Result<Value, Error>| {
        result.unwrap_or_else(|error| json!({"error": chain(&error), "hint": error.hint()}))
    };
    match request {
        Request::Status => {
            json!({"status": cached.status(), "shadow": cached.shadow(), "counters": cached.counters(),
            "reasons": cached.reasons().into_iter().collect::<std::collections::BTreeMap<_, _>>()})
        }
        Request::Prometheus => {
            json!({"text": cached.status().prometheus(&cached.counters(), &cached.reasons())})
        }
        Request::Why { count } => json!({"lines": cached.why(count)}),
        Request::Policy { name } => done(match name.parse() {
            Ok(choice) => {
                cached.set_policy(choice);
                Ok(json!({"policy": name}))
            }
            Err(_) => Err(Error::Policy { name }),
        }),
        Request::Checkpoint => match cached.checkpoint(true) {
            Ok(()) => json!({"status": cached.status()}),
            Err(error) => {
                json!({"error": error.to_string(), "hint": "the backend failed; see its log"})
            }
        },
        Request::Detach => done(cached.detach().map(|()| json!({}))),
        Request::Attach { path } => done(
            attach(storage, cached, backend, &path, true)
                .map(|start| json!({"start": start, "why": start.why()})),
        ),
        Request::Resize { bytes } => done(
            cached
                .resize(bytes)
                .map(|capacity| json!({"capacity_bytes": capacity})),
        ),
        Request::Shadow { name } => done(match name.as_deref().map(str::parse).transpose() {
            Ok(choice) => cached
                .set_shadow(choice)
                .map(|()| json!({"shadow": cached.shadow()})),
            Err(_) => Err(Error::Policy {
                name: name.unwrap_or_default(),
            }),
        }),
        Request::Record => json!({"number": cached.record()}),
        Request::Recorded { number, end } => done(cached.recorded(number).map(|taken| {
            if end && !taken.more {
                cached.end_recording(number);
            }
            json!({"lines": taken.lines, "requests": taken.requests, "more": taken.more})
        })),
        Request::Verify { repair } => done(cached.verify(repair).map(|found| json!(found))),
    }
}

fn chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Listens at `path`. Replaces a socket that a dead process left there; any other file there is `AddrInUse`.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    remove_dead(path);
    let listener = UnixListener::bind(path)?;
    private(path)?;
    Ok(listener)
}

/// Removes a socket on which nobody listens, and no other file. Only a refused connection proves that: a live socket of
/// another type, or of another user, answers with other errors.
pub fn remove_dead(path: &Path) {
    let socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_dead = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if socket && UnixStream::connect(path).is_err_and(is_dead) {
        // A file that cannot be removed makes `bind` fail with its own error.
        let _in_the_way = std::fs::remove_file(path);
    }
}

fn private(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Serves clients until `ended` is set and [`Waker::wake`] is called, and the clients then connected to their end.
pub fn serve(
    listener: &UnixListener,
    ended: &AtomicBool,
    answer: impl Fn(Request) -> Value + Sync,
) {
    let (answer, clients) = (&answer, &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        while !ended.load(SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                // Possibly out of descriptors; a pause lets other clients end.
                std::thread::sleep(PAUSE);
                continue;
            };
            if clients.fetch_add(1, SeqCst) >= CLIENTS_MAX {
                clients.fetch_sub(1, SeqCst);
                continue;
            }
            let serve = move || {
                // A client that disconnects is no error here.
                let _gone = converse(&stream, answer);
                clients.fetch_sub(1, SeqCst);
            };
            if std::thread::Builder::new()
                .spawn_scoped(scope, serve)
                .is_err()
            {
                // No thread could be started: the client was disconnected when the closure was dropped.
                clients.fetch_sub(1, SeqCst);
            }
        }
    });
}

/// A handle that ends a listener. Its name is not needed, which somebody may have removed or given to another.
pub struct Waker(UnixStream);

impl Waker {
    pub fn of(listener: &UnixListener) -> io::Result<Waker> {
        let same = OwnedFd::from(listener.try_clone()?);
        Ok(Waker(UnixStream::from(same)))
    }

    /// Makes [`serve`] check whether it must end; the listener accepts nobody afterwards.
    pub fn wake(&self) {
        // A socket that is shut down already has woken it.
        let _woken = self.0.shutdown(Shutdown::Both);
    }
}

/// The identity of the file at `path`, for [`remove_own`].
pub fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Removes the file at `path` if it is still the one with that identity.
pub fn remove_own(path: &Path, own: (u64, u64)) {
    if identity(path).is_ok_and(|found| found == own) {
        // A socket that stays is a dead one, which the next start replaces.
        let _stays = std::fs::remove_file(path);
    }
}

fn converse(mut stream: &UnixStream, answer: impl Fn(Request) -> Value) -> io::Result<()> {
    let line = read_line(stream)?;
    if line.is_empty() {
        return Ok(());
    }
    let answer = match serde_json::from_slice(&line) {
        Ok(request) => answer(request),
        Err(error) => {
            json!({"error": format!("invalid request: {error}"), "hint": "use `longshore cache`"})
        }
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{answer}")
}

/// The bytes up to the end of the line, of the client's side, or of its time, in pieces of any size.
fn read_line(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let begun = Instant::now();
    let (mut line, mut part) = (Vec::new(), [0; 4096]);
    while !line.ends_with(b"\n") && line.len() < LINE_MAX {
        let left = PATIENCE.checked_sub(begun.elapsed());
        let left = left.filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut part)? {
            0 => break,
            len => line.extend(&part[..len]),
        }
    }
    Ok(line)
}

/// Sends a request to the cached backend whose socket is at `path`.
pub fn ask(path: &Path, request: &Request) -> io::Result<Value> {
    let stream = UnixStream::connect(path)?;
    let text = serde_json::to_string(request)?;
    writeln!(&stream, "{text}")?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        let live = listen(&path).unwrap();
        // A client that can open it may do everything.
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        drop(listen(&path).unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(listen(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_live_socket_of_another_type_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let live = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(live);
    }

    #[test]
    fn an_invalid_request_is_answered_and_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let listener = listen(&path).unwrap();
        let waker = Waker::of(&listener).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let served =
                scope.spawn(|| serve(&listener, &ended, |request| json!({"asked": request})));
            for line in ["", "\n", "no\n", "{\"do\": \"everything\"}\n"] {
                let stream = UnixStream::connect(&path).unwrap();
                (&stream).write_all(line.as_bytes()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut answer = String::new();
                (&stream).read_to_string(&mut answer).unwrap();
                assert!(
                    line.is_empty() || answer.contains("invalid request"),
                    "{line:?}: {answer}"
                );
            }
            // A silent client keeps nobody waiting.
            let _silent = UnixStream::connect(&path).unwrap();
            let answer = ask(&path, &Request::Why { count: 3 }).unwrap();
            assert_eq!(answer["asked"], json!({"do": "why", "count": 3}));
            ended.store(true, SeqCst);
            waker.wake();
            served.join().unwrap();
        });
    }

    #[test]
    fn a_server_ends_without_its_name_and_leaves_its_successor_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let listener = listen(&path).unwrap();
        let (own, waker) = (identity(&path).unwrap(), Waker::of(&listener).unwrap());
        let moved = dir.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        let successor = listen(&path).unwrap();
        successor.set_nonblocking(true).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (over, is_over) = std::sync::mpsc::channel();
        let flag = Arc::clone(&ended);
        std::thread::spawn(move || {
            serve(&listener, &flag, |request| json!({"asked": request}));
            over.send(()).unwrap();
        });
        ask(&moved, &Request::Status).unwrap();
        ended.store(true, SeqCst);
        waker.wake();
        is_over.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(
            successor.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        remove_own(&path, own);
        assert!(path.exists(), "it is its successor's");
        remove_own(&moved, own);
        assert!(!moved.exists());
    }
}
