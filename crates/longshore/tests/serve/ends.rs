//! Goal: backups and restores that are cancelled, or lose their client or their server, leave nothing half-valid; a
//! pool's next user finds a fresh session.
//! Method: the real server and a client that sends packets by hand; other sessions and the files show the result.
//! Not covered: kill -9 of the server.

use std::time::{Duration, Instant};

use crate::raw::{
    ACKNOWLEDGED, ATTENTION, BATCH, FAILED, LOGIN, Raw, batch_body, end_of, login7, says,
};
use crate::stage::{PASSWORD, Server, Stage, USER};

const BACKUP: &str = "BACKUP DATABASE shop TO DISK = 'slow.bak' WITH STATS = 1, MAX_RATE = 1000000";
const RESTORE: &str = "RESTORE DATABASE copy FROM DISK = 'good.bak' \
    WITH MOVE 'shop.db' TO 'copy.db', STATS = 1, MAX_RATE = 1000000";

/// A server whose database takes seconds to back up, and a good set of it.
fn staged() -> (Stage, Server) {
    let stage = Stage::new();
    stage.grow();
    let server = stage.server(&[]);
    let good = Raw::login(server.port).batch("BACKUP DATABASE shop TO DISK = 'good.bak'");
    assert_eq!(end_of(&good) & FAILED, 0);
    (stage, server)
}

/// Sends a batch and waits for its first message, while it runs.
fn begin(raw: &mut Raw, batch: &str) {
    raw.send(BATCH, 0, &batch_body(batch));
    let (news, ended) = raw.packet().unwrap();
    assert!(
        says(&news, " percent processed."),
        "news comes while it runs"
    );
    assert!(!ended);
}

/// Waits until another session sees a backup or restore, or no longer sees one.
fn wait_until(is_busy: bool, port: u16) {
    let mut other = Raw::login(port);
    let count = "SET NOCOUNT ON; IF EXISTS (SELECT 1 FROM sys.dm_exec_requests WHERE command LIKE '%DATABASE') PRINT 'busy'";
    while says(&other.batch(count), "busy") != is_busy {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn nothing_half_valid(stage: &Stage) {
    assert!(
        stage.leftovers("slow").is_empty(),
        "{:?}",
        stage.leftovers("slow")
    );
    assert!(
        stage.leftovers("copy").is_empty(),
        "{:?}",
        stage.leftovers("copy")
    );
}

#[test]
fn an_attention_ends_what_runs_and_is_acknowledged() {
    let (stage, server) = staged();
    let mut raw = Raw::login(server.port);
    for batch in [BACKUP, RESTORE] {
        begin(&mut raw, batch);
        raw.send(ATTENTION, 0, &[]);
        let answer = raw.message().unwrap();
        assert!(says(&answer, "The backup or restore was aborted."));
        assert_ne!(end_of(&answer) & FAILED, 0);
        let acknowledged = raw.message().unwrap();
        assert_eq!(acknowledged.len(), 13, "a DONE alone");
        assert_eq!(end_of(&acknowledged), ACKNOWLEDGED);
        nothing_half_valid(&stage);
        // The session continues, and the next request is not cancelled.
        assert!(says(&raw.batch("PRINT 'here'"), "here"));
    }
    // An Attention is acknowledged even if there is nothing to end.
    raw.send(ATTENTION, 0, &[]);
    assert_eq!(end_of(&raw.message().unwrap()), ACKNOWLEDGED);
    let history = raw.batch("SELECT COUNT(*) FROM msdb.dbo.backupset");
    assert_eq!(end_of(&history) & FAILED, 0);
    let verified = raw.batch("RESTORE VERIFYONLY FROM DISK = 'good.bak'");
    assert!(says(&verified, "The backup set on file 1 is valid."));
}

#[test]
fn a_killed_session_ends_its_backup_or_restore_and_leaves_nothing() {
    let (stage, server) = staged();
    let mut other = Raw::login(server.port);
    for batch in [BACKUP, RESTORE] {
        let mut raw = Raw::login(server.port);
        begin(&mut raw, batch);
        let killed = other.batch(
            "DECLARE @kill varchar(20) = 'KILL ' + (SELECT CAST(session_id AS varchar(9)) \
             FROM sys.dm_exec_requests WHERE command LIKE '% DATABASE') EXEC (@kill)",
        );
        assert_eq!(end_of(&killed) & FAILED, 0);
        let answer = raw.message().unwrap();
        assert!(says(&answer, "The backup or restore was aborted."));
        assert!(says(&answer, "the session is in the kill state."));
        assert!(raw.message().is_none(), "the connection is closed");
        wait_until(false, server.port);
        nothing_half_valid(&stage);
    }
    // Only the good set is in the history, and nothing was restored.
    let known = other.batch(
        "PRINT CONCAT((SELECT COUNT(*) FROM msdb.dbo.backupset), ' of ', \
         (SELECT COUNT(*) FROM msdb.dbo.restorehistory))",
    );
    assert!(says(&known, "1 of 0"));
    let again = other.batch("BACKUP DATABASE shop TO DISK = 'slow.bak'");
    assert_eq!(end_of(&again) & FAILED, 0);
}

#[test]
fn a_client_that_leaves_ends_what_ran_for_it() {
    let (stage, server) = staged();
    for batch in [BACKUP, RESTORE] {
        let mut raw = Raw::login(server.port);
        begin(&mut raw, batch);
        drop(raw);
        wait_until(false, server.port);
        nothing_half_valid(&stage);
    }
    // Also one that has nothing to say to it, and so does not find the connection closed.
    let mut raw = Raw::login(server.port);
    let silent = BACKUP.replace("STATS = 1, ", "");
    raw.send(BATCH, 0, &batch_body(&silent));
    wait_until(true, server.port);
    drop(raw);
    wait_until(false, server.port);
    nothing_half_valid(&stage);
}

#[test]
fn a_server_that_is_asked_to_end_ends_what_runs() {
    let (stage, server) = staged();
    let mut raw = Raw::login(server.port);
    begin(&mut raw, BACKUP);
    server.ask();
    // Its client is told.
    let answer = raw.message().unwrap();
    assert!(says(&answer, "The backup or restore was aborted."));
    let (code, _) = server.ended();
    assert_eq!(code, Some(130));
    let log = std::fs::read_to_string(stage.path("state/errorlog")).unwrap();
    assert!(log.contains("Server is terminating."), "{log}");
    nothing_half_valid(&stage);
}

/// Goal: a line of progress is with its client while the batch runs on, and an Attention and the server's end end a wait.
#[test]
fn progress_comes_at_once_and_a_wait_ends_with_an_attention_or_the_server() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let batch = "SELECT 1 AS n; RAISERROR ('step %d of 2', 0, 1, 1) WITH NOWAIT; WAITFOR DELAY '01:00'; PRINT 'late'";
    let step = |raw: &mut Raw| {
        raw.send(BATCH, 0, &batch_body(batch));
        let begun = Instant::now();
        let (news, ended) = raw.packet().unwrap();
        assert!(says(&news, "step 1 of 2"));
        assert!(!ended);
        assert!(begun.elapsed() < Duration::from_secs(10));
    };
    step(&mut raw);
    let asked = Instant::now();
    raw.send(ATTENTION, 0, &[]);
    let answer = raw.message().unwrap();
    assert!(!says(&answer, "late"));
    assert_eq!(end_of(&raw.message().unwrap()), ACKNOWLEDGED);
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert!(says(&raw.batch("PRINT 'here'"), "here"));
    step(&mut raw);
    let asked = Instant::now();
    server.ask();
    assert!(!says(&raw.message().unwrap(), "late"));
    let (code, _) = server.stop();
    assert_eq!(code, Some(130));
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn a_fatal_message_is_the_last_that_a_client_gets() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let answer = raw.batch("RAISERROR ('it is over', 20, 1) WITH LOG; PRINT 'late'");
    assert!(says(&answer, "it is over"));
    assert!(says(&answer, "SQL Server is terminating this process."));
    assert!(!says(&answer, "late"));
    assert!(raw.message().is_none(), "the connection is closed");
    let mut next = Raw::login(server.port);
    assert!(says(&next.batch("PRINT 'here'"), "here"));
}

#[test]
fn a_pool_s_next_user_finds_a_fresh_session() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    raw.batch("USE shop; BEGIN TRAN; SET NOCOUNT ON");
    const RESET: u8 = 0x08;
    let question = "PRINT DB_NAME() + CAST(@@TRANCOUNT AS varchar(9))";
    assert!(says(&raw.batch(question), "shop1"));
    raw.send(BATCH, RESET, &batch_body(question));
    assert!(says(&raw.message().unwrap(), "master0"));
    // Back in the login's database, not in the first one; the transaction is kept if the pool requests it.
    let mut raw = Raw::connect(server.port);
    raw.greet();
    raw.send(LOGIN, 0, &login7(USER, PASSWORD, "shop"));
    assert!(raw.message().is_some());
    const RESET_KEEP_TRANSACTION: u8 = 0x10;
    for (reset, fresh) in [(RESET, "shop0"), (RESET_KEEP_TRANSACTION, "shop1")] {
        raw.batch("USE stock; BEGIN TRAN");
        raw.send(BATCH, reset, &batch_body(question));
        assert!(says(&raw.message().unwrap(), fresh));
    }
}
