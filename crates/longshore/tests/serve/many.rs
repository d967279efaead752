//! Goal: many clients work at once within the bounds on memory, descriptors and sessions; clients that send half a
//! request or nothing keep no other out.
//! Method: the real server and up to 200 hand-made clients; the kernel's figures of its process.
//! Not covered: clients over a network.

use std::collections::BTreeSet;
use std::io::Write;

use crate::raw::{ACKNOWLEDGED, ATTENTION, BATCH, FAILED, Raw, batch_body, end_of, says};
use crate::stage::Stage;

const SESSIONS: usize = 200;
/// The limit on the resident memory of an idle session.
const IDLE_BYTES_MAX: usize = 64 << 10;

fn resident_bytes(pid: u32) -> usize {
    memory(pid, "VmRSS:")
}

/// The kernel's figure of a process's memory.
fn memory(pid: u32, what: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(what)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        << 10
}

#[test]
fn two_hundred_sessions_work_at_once_and_idle_ones_cost_little() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    // Memory that is kept after the first use does not belong to a session.
    Raw::login(server.port).batch("BACKUP DATABASE stock TO DISK = 'NUL'");
    let before = resident_bytes(server.pid());
    let mut all: Vec<Raw> = (0..SESSIONS).map(|_| Raw::login(server.port)).collect();
    let idle = resident_bytes(server.pid()).saturating_sub(before) / SESSIONS;
    println!("an idle session takes {idle} bytes");
    assert!(idle <= IDLE_BYTES_MAX, "{idle}");
    let numbers: BTreeSet<Vec<u8>> = std::thread::scope(|scope| {
        let running: Vec<_> = all
            .iter_mut()
            .enumerate()
            .map(|(i, raw)| {
                scope.spawn(move || {
                    if i % 20 == 0 {
                        // One at a time of the same database; the others are told.
                        let done = raw.batch("BACKUP DATABASE stock TO DISK = 'NUL'");
                        let processed = says(&done, "BACKUP DATABASE successfully processed");
                        assert!(processed || says(&done, "must be serialized"));
                    }
                    let answer = raw.batch("SELECT @@SPID");
                    assert_eq!(end_of(&answer) & FAILED, 0);
                    answer
                })
            })
            .collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    });
    assert_eq!(numbers.len(), SESSIONS, "each has a number of its own");
    let after = resident_bytes(server.pid()).saturating_sub(before) / SESSIONS;
    println!("after their work {after} bytes");
    // Later requests leave nothing.
    for _ in 0..3 {
        for raw in &mut all {
            assert_eq!(end_of(&raw.batch("SELECT @@SPID")) & FAILED, 0);
        }
    }
    let later = resident_bytes(server.pid()).saturating_sub(before) / SESSIONS;
    println!("after more of it {later} bytes");
    assert!(later < after + IDLE_BYTES_MAX, "{after}, {later}");
}

/// Memory that one session holds is not available to another one; both are told so, and continue.
#[test]
fn sessions_share_a_bound_on_memory() {
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_MEMORY", "3M".into())];
    let server = stage.server(&[]);
    let (mut first, mut second) = (Raw::login(server.port), Raw::login(server.port));
    // A text of 2 MiB, held until the client cancels it.
    let hold = "DECLARE @s nvarchar(max) = 'xxxxxxxx', @i int = 0; \
        WHILE @i < 18 BEGIN SET @s = @s + @s; SET @i = @i + 1 END; \
        PRINT 'there'; WHILE 1 = 1 SET @i = LEN(@s)";
    let no_memory =
        "There is insufficient system memory in resource pool 'default' to run this query.";
    first.send(BATCH, 0, &batch_body(hold));
    assert!(says(&first.packet().unwrap().0, "there"));
    let refused = second.batch(&hold.replace("WHILE 1 = 1", "WHILE 1 = 0"));
    assert!(says(&refused, no_memory));
    assert!(says(&second.batch("PRINT 'on'"), "on"));
    // A request has to be kept, too; one without room is told from the next.
    let long = format!("PRINT 'on' -- {}", "x".repeat(700_000));
    let refused = second.batch(&long);
    assert!(says(&refused, no_memory) && end_of(&refused) & FAILED != 0);
    assert!(says(&second.batch("PRINT 'on'"), "on"));
    first.send(ATTENTION, 0, &[]);
    while end_of(&first.message().unwrap()) & ACKNOWLEDGED == 0 {}
    // The memory is free again.
    let held = second.batch(&hold.replace("WHILE 1 = 1", "WHILE 1 = 0"));
    assert!(says(&held, "there"));
    assert!(says(&first.batch("PRINT 'on'"), "on"));
}

/// Goal: requests that were answered keep nothing of the room that they needed: many in a row get what one gets.
#[test]
fn a_request_that_was_answered_keeps_no_memory() {
    const REQUESTS: usize = 100;
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_MEMORY", "16M".into())];
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    // Each is held as it was received, in UTF-16, and as much again for its text: in all more than there is.
    let long = format!("PRINT 'on' -- {}", "x".repeat(60_000));
    assert!(REQUESTS * 4 * long.len() > 16 << 20);
    for request in 0..REQUESTS {
        let answer = raw.batch(&long);
        assert!(says(&answer, "on"), "request {request}");
        assert_eq!(end_of(&answer) & FAILED, 0, "request {request}");
    }
}

/// The beginning of a request of so many bytes, without its end.
fn begin_request(raw: &mut Raw, len: usize) {
    let piece = [b' ', 0].repeat(2000);
    let packet = [&[BATCH, 0, 0x0f, 0xa8, 0, 0, 1, 0], &piece[..]].concat();
    let all = packet.repeat(len / piece.len());
    raw.socket.write_all(&all).unwrap();
}

/// Goal: what comes of a request for which there is no room is not kept until its end.
#[test]
fn a_request_without_room_is_not_kept_while_it_comes() {
    const CLIENTS: usize = 16;
    const LEN: usize = 3 << 20;
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_MEMORY", "1M".into())];
    let server = stage.server(&[]);
    let mut all: Vec<Raw> = (0..CLIENTS).map(|_| Raw::login(server.port)).collect();
    let before = memory(server.pid(), "VmHWM:");
    for raw in &mut all {
        begin_request(raw, LEN);
    }
    for raw in &mut all {
        let answer = raw.batch("");
        assert!(says(&answer, "insufficient system memory"));
    }
    let more = memory(server.pid(), "VmHWM:") - before;
    assert!(more < CLIENTS * LEN / 3, "{more} bytes");
}

/// Goal: a client that has logged in and then sends half a request does not keep its connection for ever.
#[test]
fn a_request_that_does_not_end_within_a_minute_ends_its_connection() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let (mut slow, mut other) = (Raw::login(server.port), Raw::login(server.port));
    begin_request(&mut slow, 4000);
    assert!(slow.message().is_none(), "the server has ended it");
    assert!(says(&other.batch("PRINT 'on'"), "on"));
}

/// One descriptor for each connection: hundreds of them must not keep backups from opening files.
#[test]
fn a_connection_takes_one_descriptor() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let open = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
        fds.unwrap().count()
    };
    Raw::login(server.port).batch("SELECT 1");
    let before = open();
    let all: Vec<Raw> = (0..20).map(|_| Raw::login(server.port)).collect();
    let after = open();
    // The first client's may still be there, or have gone meanwhile.
    assert!(after <= before + all.len(), "{before} {after}");
}

#[test]
fn silent_connections_keep_no_client_out() {
    const STRANGERS: usize = 64;
    let mut stage = Stage::new();
    // None of them is closed because of that.
    stage.env = vec![("LONGSHORE_SERVE_LOGIN_TIME", "600".into())];
    let server = stage.server(&[]);
    let mut silent: Vec<Raw> = (0..STRANGERS).map(|_| Raw::connect(server.port)).collect();
    // The last of them is there before the next one comes.
    silent[STRANGERS - 1].greet();
    let mut raw = Raw::login(server.port);
    assert_eq!(end_of(&raw.batch("SELECT 1")) & FAILED, 0);
    assert!(silent.remove(0).message().is_none(), "the oldest has gone");
    silent.pop();
    silent.iter_mut().for_each(Raw::greet);
}

#[test]
fn the_server_may_open_as_many_files_as_the_system_allows() {
    let mut stage = Stage::new();
    stage.open_files = Some(200);
    let server = stage.server(&[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|l| l.starts_with("Max open files"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard: {words:?}");
    assert_ne!(words[3], "200");
}

#[test]
fn connections_above_the_limit_are_closed_and_the_others_continue() {
    let mut stage = Stage::new();
    stage.env = vec![
        ("LONGSHORE_SERVE_SESSIONS", "3".into()),
        ("LONGSHORE_SERVE_LOGIN_SESSIONS", "3".into()),
    ];
    let server = stage.server(&[]);
    let mut all: Vec<Raw> = (0..3).map(|_| Raw::login(server.port)).collect();
    assert!(Raw::connect(server.port).message().is_none());
    for raw in &mut all {
        assert_eq!(end_of(&raw.batch("SELECT 1")) & FAILED, 0);
    }
    drop(all.pop());
    // Its place is free as soon as the server has noticed.
    loop {
        if Raw::connect(server.port).try_greet() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
