//! Goal: a backup of a SQLite database keeps SQLite's locks while other sessions name that database's files as devices,
//! under any of their names.
//! Method: the real server during a slowed backup; another SQLite connection outside the server tries to take the locks
//! after each statement.
//! Not covered: locks on network file systems.

use std::path::Path;

use rusqlite::Connection;

use crate::raw::{ACKNOWLEDGED, ATTENTION, BATCH, Raw, batch_body, end_of, says};
use crate::stage::Stage;

/// Every statement that opens a device, for each name of the file.
fn statements(name: &str) -> Vec<String> {
    let mut all: Vec<String> = ["HEADERONLY", "LABELONLY", "FILELISTONLY", "VERIFYONLY"]
        .map(|what| format!("RESTORE {what} FROM DISK = '{name}'"))
        .into();
    all.push(format!(
        "RESTORE DATABASE copy FROM DISK = '{name}' WITH MOVE 'shop.db' TO 'copy.db'"
    ));
    all.push(format!("BACKUP DATABASE stock TO DISK = '{name}'"));
    all.push(format!(
        "BACKUP DATABASE stock TO DISK = '{name}' WITH INIT"
    ));
    all.push(format!(
        "BACKUP DATABASE stock TO DISK = '{name}' WITH FORMAT"
    ));
    all
}

/// Whether another process finds the backup's locks on a database with a rollback journal.
fn commit_waits(path: &Path) -> bool {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(std::time::Duration::ZERO).unwrap();
    let done = db.execute_batch("BEGIN IMMEDIATE; CREATE TABLE torn (n); COMMIT");
    match done {
        Ok(()) => false,
        Err(e) => {
            assert_eq!(
                e.sqlite_error_code(),
                Some(rusqlite::ErrorCode::DatabaseBusy),
                "{e}"
            );
            true
        }
    }
}

/// The same with a write-ahead log: the last process to close the database removes its log.
fn log_stays(path: &Path) -> bool {
    let db = Connection::open(path).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS torn (n); INSERT INTO torn VALUES (1)")
        .unwrap();
    drop(db);
    let db = Connection::open(path).unwrap();
    db.busy_timeout(std::time::Duration::ZERO).unwrap();
    let busy: i64 = db
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0))
        .unwrap();
    path.with_file_name("shop.db-wal").exists() && busy == 1
}

fn nothing_drops_the_locks(mode: &str, held: fn(&Path) -> bool) {
    let stage = Stage::new();
    stage.grow();
    let path = stage.path("shop.db");
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "journal_mode", mode)
        .unwrap();
    std::fs::hard_link(&path, stage.path("alias.bak")).unwrap();
    std::os::unix::fs::symlink(&path, stage.path("link.bak")).unwrap();
    let server = stage.server(&[]);
    let mut slow = Raw::login(server.port);
    let backup = "BACKUP DATABASE shop TO DISK = 'slow.bak' WITH STATS = 1, MAX_RATE = 300000";
    slow.send(BATCH, 0, &batch_body(backup));
    assert!(says(&slow.packet().unwrap().0, " percent processed."));
    assert!(held(&path), "{mode}");
    let mut other = Raw::login(server.port);
    let names = [
        "shop.db",
        "alias.bak",
        "link.bak",
        "shop.db-shm",
        "shop.db-wal",
    ];
    for statement in names.iter().flat_map(|name| statements(name)) {
        if statement.contains("shop.db-") && mode == "delete" {
            continue;
        }
        let answer = other.batch(&statement);
        assert!(!says(&answer, "successfully processed"), "{statement}");
        assert!(held(&path), "{mode}: {statement}");
    }
    let in_use = other.batch("RESTORE HEADERONLY FROM DISK = 'alias.bak'");
    assert!(says(&in_use, "being used by another process"));
    slow.send(ATTENTION, 0, &[]);
    while end_of(&slow.message().unwrap()) & ACKNOWLEDGED == 0 {}
    assert!(!held(&path), "{mode}: then the test above could not fail");
}

#[test]
fn no_statement_drops_the_locks_of_a_backup_without_a_log() {
    nothing_drops_the_locks("delete", commit_waits);
}

#[test]
fn no_statement_drops_the_locks_of_a_backup_with_a_log() {
    nothing_drops_the_locks("wal", log_stays);
}
