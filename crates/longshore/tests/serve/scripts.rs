//! Goal: a script gets over the protocol what it gets from `longshore sql`.
//! Method: the batches of a script whose answers are all printed; the messages that the server sends are the kept answer, in
//! its order and without more.

use crate::answers::{is_some_percent, mask, scripts};
use crate::raw::Raw;
use crate::stage::Stage;

const RETURN_STATUS: u8 = 0x79;
const ERROR: u8 = 0xaa;
const INFO: u8 = 0xab;
const ENVIRONMENT: u8 = 0xe3;
/// DONE, DONEPROC and DONEINPROC.
const DONES: std::ops::RangeInclusive<u8> = 0xfd..=0xff;

/// The texts of the messages of an answer that has no rows.
fn texts(mut answer: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let [token, rest @ ..] = answer {
        let len = match *token {
            RETURN_STATUS => 4,
            kind if DONES.contains(&kind) => 12,
            ERROR | INFO | ENVIRONMENT => 2 + usize::from(u16::from_le_bytes([rest[0], rest[1]])),
            other => panic!("token {other:#x} in an answer of messages"),
        };
        if matches!(*token, ERROR | INFO) {
            // Length, number, state and class stand before the text.
            let units = usize::from(u16::from_le_bytes([rest[8], rest[9]]));
            let text = rest[10..][..2 * units].chunks_exact(2);
            let text: Vec<u16> = text.map(|u| u16::from_le_bytes([u[0], u[1]])).collect();
            all.push(String::from_utf16(&text).unwrap());
        }
        answer = &rest[len..];
    }
    all
}

#[test]
fn everyday_reports_and_procedures_answer_over_the_protocol_as_well() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut client = Raw::login(server.port);
    let script = std::fs::read_to_string(scripts().join("everyday.sql")).unwrap();
    let kept = std::fs::read_to_string(scripts().join("everyday.out")).unwrap();
    let mut said = Vec::new();
    for batch in script.split("\nGO\n") {
        for text in texts(&client.batch(batch)) {
            said.extend(text.lines().map(mask));
        }
    }
    said.retain(|line| !line.trim().is_empty() && !is_some_percent(line));
    // Heads of errors are the program's own.
    let is_said = |line: &&str| !line.starts_with("Msg ") && !line.trim().is_empty();
    let kept: Vec<&str> = kept.lines().filter(is_said).collect();
    assert_eq!(said, kept);
}
