//! Goal: requests that drivers make in addition to batches and calls by name are answered; sessions see and end one another.
//! Method: packets by hand (`raw.rs`), to a server of the test's own.

use crate::raw::{BATCH, FAILED, RPC, Raw, TRANSACTION, batch_body, end_of, says};
use crate::stage::Stage;

#[test]
fn the_end_of_a_transaction_begins_the_next_one_where_a_driver_asks() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let mut ask = |what: u8, begins: u8| {
        raw.send(TRANSACTION, 0, &[4, 0, 0, 0, what, 0, 0, begins, 0, 0]);
        let ended = raw.message().unwrap();
        let open = raw.batch("PRINT CONCAT('open: ', @@TRANCOUNT)");
        let open = (0..9).find(|n| says(&open, &format!("open: {n}")));
        (end_of(&ended) & FAILED != 0, open.unwrap())
    };
    assert_eq!(ask(5, 0), (false, 1));
    // Like drivers without autocommit: each end begins the next transaction.
    assert_eq!(ask(7, 1), (false, 1));
    assert_eq!(ask(8, 1), (false, 1));
    assert_eq!(ask(7, 1), (false, 1));
    assert_eq!(ask(7, 0), (false, 0));
    assert_eq!(ask(7, 1), (true, 0), "nothing is to be committed");
}

/// `sp_prepexecrpc`: a handle that goes back, and a text.
fn odbc_call(text: &str) -> Vec<u8> {
    const BY_NUMBER: [u8; 6] = [0xff, 0xff, 14, 0, 0, 0];
    const HANDLE: [u8; 5] = [0, 1, 0x26, 4, 0];
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut body = [&[4, 0, 0, 0], &BY_NUMBER[..], &HANDLE].concat();
    body.extend([0, 0, 0xe7, 0x40, 0x1f, 9, 4, 0xd0, 0, 0x34]);
    body.extend((wide.len() as u16).to_le_bytes());
    body.extend(wide);
    body
}

#[test]
fn a_call_of_odbc_calls_the_procedure() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let mut ask = |text: &str| {
        raw.send(RPC, 0, &odbc_call(text));
        raw.message().unwrap()
    };
    assert!(says(
        &ask("{CALL sp_configure ('media retention')}"),
        "media retention"
    ));
    let refused = ask("{CALL sp_there_is_none}");
    assert!(says(
        &refused,
        "Could not find stored procedure 'sp_there_is_none'."
    ));
    assert!(says(&ask("{CALL"), "Incorrect syntax near"));
}

#[test]
fn a_session_is_seen_by_others_and_ended_by_kill() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut first = Raw::login(server.port);
    let mut second = Raw::login(server.port);
    let own = second.batch("PRINT CONCAT('number ', @@SPID)");
    let number = (51..99).find(|n| says(&own, &format!("number {n}")));
    let number = number.expect("a number of a session");
    let asked = format!(
        "SELECT CONCAT(s.host_name, ' ', s.program_name, ' ', s.status, ' ', c.net_transport, ' ', c.client_net_address) \
         FROM sys.dm_exec_sessions s JOIN sys.dm_exec_connections c ON c.session_id = s.session_id \
         WHERE s.session_id = {number}"
    );
    let seen = first.batch(&asked);
    assert!(says(&seen, "desk raw sleeping TCP 127.0.0.1"));
    // A statement that waits ends, and its session after it.
    second.send(BATCH, 0, &batch_body("WAITFOR DELAY '01:00:00'"));
    let is_running = format!(
        "IF EXISTS (SELECT * FROM sys.dm_exec_sessions WHERE session_id = {number} AND status = 'running') PRINT 'it runs'"
    );
    while !says(&first.batch(&is_running), "it runs") {
        std::thread::yield_now();
    }
    let killed = first.batch(&format!("KILL {number}; PRINT 'killed'"));
    assert!(says(&killed, "killed"));
    let ended = second.message().expect("an answer before the end");
    assert!(says(&ended, "the session is in the kill state"));
    assert!(second.message().is_none(), "the connection is closed");
    // One that waits for its client is closed at once.
    let mut third = Raw::login(server.port);
    let own = third.batch("PRINT CONCAT('number ', @@SPID)");
    let number = (51..99).find(|n| says(&own, &format!("number {n}")));
    let number = number.expect("a number of a session");
    assert!(says(
        &first.batch(&format!("KILL {number}; PRINT 'killed'")),
        "killed"
    ));
    assert!(third.message().is_none(), "the connection is closed");
    let refused = first.batch("KILL 32000; GRANT SELECT ON t TO x; PRINT 'on'");
    assert!(says(
        &refused,
        "Process ID 32000 is not an active process ID."
    ));
    assert!(says(&refused, "GRANT is not part of the language"));
    assert!(says(&refused, "on"));
}
