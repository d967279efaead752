//! Goal: the client reads each message that a server may send as the protocol says, and refuses all others without
//! buffering what they announce.
//! Method: a scripted server on a socket pair sends bytes that are written here by hand.
//! Not covered: real servers (`tests/server.rs`), passwords and encryption.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;

use super::stream::Stream;
use super::*;

fn connection(server: impl FnOnce(UnixStream) + Send + 'static) -> Connection {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || server(theirs));
    Connection {
        stream: Stream::Unix(ours),
        input: BytesMut::new(),
        output: BytesMut::new(),
        parameters: HashMap::new(),
        address: "test".into(),
        refused: None,
    }
}

/// A message with its length.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn says(bytes: &[u8]) -> Connection {
    let bytes = bytes.to_vec();
    connection(move |mut socket| {
        socket.write_all(&bytes).unwrap();
        // The end of the session, or our close, ends the thread.
        let _ = socket.read_to_end(&mut Vec::new());
    })
}

#[test]
fn rows_come_as_the_server_wrote_them() {
    let description = b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    let answer = [
        message(b'T', description),
        message(b'D', b"\0\x01\0\0\0\x02a\xff"),
        message(b'D', b"\0\x01\xff\xff\xff\xff"),
        message(b'C', b"SELECT 2\0"),
        message(b'Z', b"I"),
    ];
    let mut session = says(&answer.concat());
    let rows = session.query("select").unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.bytes(0, 0), Some(&b"a\xff"[..]));
    assert_eq!(rows.bytes(1, 0), None);
    assert!(rows.text(0, 0).is_err());
}

#[test]
fn a_refusal_leaves_the_session_ready() {
    let answer = [
        message(b'E', b"SERROR\0C42501\0Mnot you\0\0"),
        message(b'Z', b"I"),
        message(b'C', b"OK\0"),
        message(b'Z', b"I"),
    ];
    let mut session = says(&answer.concat());
    let refused = session.query("select").unwrap_err();
    assert_eq!(refused.sqlstate(), Some("42501"));
    assert!(refused.to_string().contains("not you"));
    assert!(session.query("select").unwrap().is_empty());
}

#[test]
fn copying_both_ways_survives_a_time_limit() {
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut session = connection(move |mut socket| {
        socket.write_all(b"W\0\0\0\x07\0\0\0d\0\0").unwrap();
        gone.recv().unwrap();
        socket.write_all(b"\0\x06hid\0").unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    assert!(matches!(session.reply(), Ok(Some(Reply::CopyBoth))));
    let late = session.reply_within(Duration::from_millis(20));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    go.send(()).unwrap();
    match session.reply_within(Duration::from_secs(20)) {
        Ok(Some(Reply::Data(bytes))) => assert_eq!(&bytes[..], b"hi"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_survives_a_time_limit() {
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut session = connection(move |mut socket| {
        let refusal = message(b'E', b"SERROR\0CXX002\0Mbroken\0\0");
        socket.write_all(&refusal).unwrap();
        gone.recv().unwrap();
        socket.write_all(&message(b'Z', b"I")).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let late = session.reply_within(Duration::from_millis(20));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    go.send(()).unwrap();
    let refused = session.reply_within(Duration::from_secs(20)).unwrap_err();
    assert_eq!(refused.sqlstate(), Some("XX002"));
}

#[test]
fn nonsense_messages_are_refused_and_not_buffered() {
    for (bytes, why) in [
        (&b"d\x7f\xff\xff\xff"[..], "announced"),
        (b"D\0\0\0\x06\0\0", "without its description"),
        (b"T\0\0\0\x03", "invalid message length"),
        (b"?\0\0\0\x04", "unknown message tag"),
        (b"S\xff\xff\xff\xff", "invalid message length"),
        (b"R\0\0\0\x08\0\0\0\0", "belongs to no command"),
    ] {
        let refused = says(bytes).reply();
        match refused {
            Err(Error::Protocol { what }) => assert!(what.contains(why), "{what}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}

#[test]
fn a_server_that_disconnects_is_lost_and_not_waited_for() {
    let mut session = connection(drop);
    assert!(matches!(session.reply(), Err(Error::Lost { .. })));
    // An error that the server sends before it closes is the one reported.
    let mut session = connection(|mut socket| {
        let last_word = message(b'E', b"SFATAL\0C57P01\0\0");
        socket.write_all(&last_word).unwrap();
    });
    assert_eq!(session.reply().unwrap_err().sqlstate(), Some("57P01"));
}

#[test]
fn majors_are_read_from_all_kinds_of_versions() {
    let mut session = says(b"");
    for (text, major) in [("15.14 (Debian 15.14-0+deb12u1)", 15), ("18beta1", 18)] {
        session
            .parameters
            .insert("server_version".into(), text.into());
        assert_eq!(session.major().unwrap(), major);
    }
    session.parameters.clear();
    assert!(session.major().is_err());
}
