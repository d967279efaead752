//! The control socket: one line of JSON asks, one line answers.
//!
//! Whoever may open the socket may do everything; its mode is 0600. A client that says nothing, or too much, is let
//! go: one at a time is served, and none for longer than it needs to send a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use longshore_io::Storage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::open::{Backend, attach};
use crate::{Engine, Error};

/// The longest line that is read.
const LINE_MAX: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be asked of an engine at work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    Prometheus,
    /// The last requests, the newest first.
    Why {
        count: usize,
    },
    /// Another policy from now on.
    Policy {
        name: String,
    },
    /// Makes what is held durable now.
    Checkpoint,
    /// Serves from the backend alone from now on.
    Detach,
    /// Puts an empty cache in front.
    Attach {
        path: PathBuf,
    },
    Verify {
        repair: bool,
    },
}

/// Carries out a request. The answer has `error` and `hint` when it failed.
pub fn answer(
    engine: &Engine,
    storage: &dyn Storage,
    backend: &Backend,
    request: Request,
) -> Value {
    let done = |result: Result<Value, Error>| {
        result.unwrap_or_else(|error| json!({"error": chain(&error), "hint": error.hint()}))
    };
    match request {
        Request::Status => json!({"status": engine.status(), "counters": engine.counters(),
            "reasons": engine.reasons().into_iter().collect::<std::collections::BTreeMap<_, _>>()}),
        Request::Prometheus => {
            json!({"text": engine.status().prometheus(&engine.counters(), &engine.reasons())})
        }
        Request::Why { count } => json!({"lines": engine.why(count)}),
        Request::Policy { name } => done(match name.parse() {
            Ok(choice) => {
                engine.set_policy(choice);
                Ok(json!({"policy": name}))
            }
            Err(_) => Err(Error::Policy { name }),
        }),
        Request::Checkpoint => match engine.checkpoint(true) {
            Ok(()) => json!({"status": engine.status()}),
            Err(error) => {
                json!({"error": error.to_string(), "hint": "the backend failed; look at its log"})
            }
        },
        Request::Detach => done(engine.detach().map(|()| json!({}))),
        Request::Attach { path } => {
            done(attach(storage, engine, backend, &path, true).map(|start| json!({"start": start})))
        }
        Request::Verify { repair } => done(
            engine
                .verify(repair)
                .map(|(compared, differing)| json!({"compared": compared, "differing": differing})),
        ),
    }
}

fn chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Listens at `path`. A socket that a dead process left there is replaced; anything else there is `AddrInUse`.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    remove_dead(path);
    let listener = UnixListener::bind(path)?;
    private(path)?;
    Ok(listener)
}

/// Removes a socket at which nobody listens, and nothing else.
pub fn remove_dead(path: &Path) {
    let socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if socket && UnixStream::connect(path).is_err() {
        // What cannot be removed will be in the way, and binding says so.
        let _in_the_way = std::fs::remove_file(path);
    }
}

fn private(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Serves one client after the other until `ended` is set and somebody [wakes](wake) it.
pub fn serve(
    listener: &UnixListener,
    ended: &AtomicBool,
    mut answer: impl FnMut(Request) -> Value,
) {
    while !ended.load(SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, perhaps; a pause lets others end.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        // A client that goes away is its own concern.
        let _gone = converse(stream, &mut answer);
    }
}

/// Lets [`serve`] see that it shall end.
pub fn wake(path: &Path) {
    let _woken = UnixStream::connect(path);
}

fn converse(stream: UnixStream, answer: &mut impl FnMut(Request) -> Value) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(error) => {
            json!({"error": format!("not a request: {error}"), "hint": "ask with `longshore cache`"})
        }
    };
    writeln!(&stream, "{answer}")
}

/// Asks the engine that listens at `path`.
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
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        let live = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        drop(listen(&path).unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(listen(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn what_is_no_request_is_answered_and_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let listener = listen(&path).unwrap();
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
                    line.is_empty() || answer.contains("not a request"),
                    "{line:?}: {answer}"
                );
            }
            let answer = ask(&path, &Request::Why { count: 3 }).unwrap();
            assert_eq!(answer["asked"], json!({"do": "why", "count": 3}));
            ended.store(true, SeqCst);
            wake(&path);
            served.join().unwrap();
        });
    }
}
