//! Goal: tests of the status page have a client that can send anything, valid or not.
//! Method: HTTP by hand over a plain socket; over TLS with curl.
//! Not covered: this file has no tests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::text;
use crate::served::Server;
use crate::stage::Stage;

/// An answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The first line and the headers.
    pub head: String,
    pub body: String,
}

impl Answer {
    fn of(bytes: &[u8]) -> Option<Answer> {
        let (head, body) = text(bytes)
            .split_once("\r\n\r\n")
            .map(|(head, body)| (head.to_owned(), body.to_owned()))?;
        Some(Answer {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head,
            body,
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(())?;
            Some(value.len())
        };
        self.head
            .lines()
            .find_map(|line| value(line).map(|len| &line[line.len() - len..]))
    }
}

/// Sends these bytes and reads to the end; `None`: the server closed the connection without an answer.
pub fn exchange(port: u16, bytes: &[u8]) -> Option<Answer> {
    let mut socket = connect(port);
    let _refused = socket.write_all(bytes);
    read(socket)
}

pub fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(60));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// Reads an answer until the server closes the connection.
pub fn read(mut socket: TcpStream) -> Option<Answer> {
    let mut answer = Vec::new();
    let _reset = socket.read_to_end(&mut answer);
    let _gone = socket.shutdown(Shutdown::Both);
    Answer::of(&answer)
}

/// A request as a browser on this machine sends it.
pub fn get(port: u16, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    exchange(port, request.as_bytes()).expect("an answer")
}

/// The data of the page, which is as its documentation says.
pub fn status(port: u16) -> Value {
    let answer = get(port, "/status.json");
    assert_eq!(answer.status, 200, "{answer:?}");
    longshore_kit::schema::checked(&answer.body)
}

/// The data of the page as soon as all questions have an answer.
pub fn settled(port: u16) -> Value {
    for _ in 0..200 {
        let status = status(port);
        let rows = ["databases", "checks"].into_iter();
        let mut rows = rows.flat_map(|member| status[member].as_array().unwrap());
        if rows.all(|row| !row["answered_us"].is_null() || !row["error"].is_null()) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no answer: {}", status(port));
}

/// The status page alone, on a port that the system chooses.
pub fn page(stage: &Stage, args: &[&str]) -> Server {
    let mut all = vec!["serve", "--http", "127.0.0.1:0"];
    all.extend(args);
    Server::start_page(&mut stage.command(&all))
}

/// What curl gets over TLS from a server with this certificate: the status code and the body.
pub fn curl(certificate: &Path, args: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "60"])
        .args(["--write-out", "\n%{http_code}", "--cacert"])
        .arg(certificate)
        .args(args);
    let output = curl.output().expect("curl");
    let said = text(&output.stdout);
    let (body, code) = said.rsplit_once('\n').unwrap_or(("", &said));
    (code.to_owned(), body.to_owned() + &text(&output.stderr))
}
