//! Goal: tests have a server that gives one scripted answer to each command, right or wrong.
//! Method: messages as in the PostgreSQL 18 documentation, "Message Formats", over a Unix socket.
//! Not covered: this file has no tests; authentication and encryption.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The answer to a command: messages, and other bytes that a test needs.
pub type Script = dyn Fn(&str) -> Vec<u8> + Send + Sync;

/// Listens in a separate directory. Its threads end with the connections.
pub struct Double {
    dir: tempfile::TempDir,
}

impl Double {
    pub fn new(script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Double {
        Double::of_version("18.0", script)
    }

    /// One that says to be of this version.
    pub fn of_version(
        version: &'static str,
        script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Double {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let script: Arc<Script> = Arc::new(script);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(socket), script) = (socket, script.clone()) else {
                    return;
                };
                // The client may disconnect at any moment.
                std::thread::spawn(move || drop(serve(socket, version, &*script)));
            }
        });
        Double { dir }
    }

    /// A connection string.
    pub fn address(&self) -> String {
        format!("host={} user=u dbname=d", self.dir.path().display())
    }
}

fn serve(mut socket: UnixStream, version: &str, script: &Script) -> io::Result<()> {
    take(&mut socket)?;
    let mut greeting = message(b'R', &0u32.to_be_bytes());
    let told = format!("server_version\0{version}\0");
    greeting.extend(message(b'S', told.as_bytes()));
    greeting.extend(ready());
    socket.write_all(&greeting)?;
    loop {
        let mut tag = [0];
        socket.read_exact(&mut tag)?;
        let body = take(&mut socket)?;
        match tag[0] {
            b'Q' => {
                let command = body.strip_suffix(b"\0").unwrap_or(&body);
                let command = String::from_utf8_lossy(command);
                socket.write_all(&script(&command))?;
                // A client that waits for more bytes sees the end of the stream.
                if command.starts_with("BASE_BACKUP") {
                    socket.shutdown(Shutdown::Write)?;
                }
            }
            _ => return Ok(()),
        }
    }
}

/// Reads the bytes that follow a length.
fn take(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    socket.read_exact(&mut len)?;
    let mut body = vec![0; u32::from_be_bytes(len) as usize - 4];
    socket.read_exact(&mut body)?;
    Ok(body)
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[tag][..], &len, body].concat()
}

/// The server is ready for the next command.
pub fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// The end of a command without rows.
pub fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

/// A result of rows without the end of its command.
pub fn table(rows: &[&[Option<&[u8]>]]) -> Vec<u8> {
    let columns = rows.first().map_or(1, |row| row.len()) as u16;
    let mut description = columns.to_be_bytes().to_vec();
    for _ in 0..columns {
        description.extend(b"c\0");
        // Table, column, type text, length, modifier, format: not used by the client.
        description.extend([
            0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0,
        ]);
    }
    let mut answer = message(b'T', &description);
    for row in rows {
        let mut body = columns.to_be_bytes().to_vec();
        for value in *row {
            match value {
                None => body.extend((-1i32).to_be_bytes()),
                Some(value) => {
                    body.extend((value.len() as u32).to_be_bytes());
                    body.extend(*value);
                }
            }
        }
        answer.extend(message(b'D', &body));
    }
    answer.extend(done("SELECT"));
    answer
}

/// The whole answer to a query with one row.
pub fn row(values: &[&str]) -> Vec<u8> {
    let values: Vec<_> = values.iter().map(|v| Some(v.as_bytes())).collect();
    [table(&[&values]), ready()].concat()
}

/// An error and the end of the command.
pub fn refusal(sqlstate: &str) -> Vec<u8> {
    let body = format!("SERROR\0C{sqlstate}\0Mno\0\0");
    [message(b'E', body.as_bytes()), ready()].concat()
}

/// The path of a name below a directory.
pub fn below(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}
