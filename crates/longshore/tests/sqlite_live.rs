//! Goal: a backup of a SQLite database under continuous writers restores to exactly one committed state, every time.
//! Method: every commit is a function of its number alone and writes that number, so the number found in a copy tells
//! what every one of its rows must be. Writers, a checkpointer and a vacuumer are processes of their own. The number must
//! also lie between those committed before the backup began and after it ended.
//! `LONGSHORE_ROUNDS` (40) is split over the write-ahead log and the rollback journal; a quarter as many rounds kill a
//! writer before each backup.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

const ROWS: u64 = 3000;
const CHANGES: u64 = 12;
const ROLE: &str = "LONGSHORE_TEST_ROLE";
const DATABASE: &str = "LONGSHORE_TEST_DATABASE";

/// What commit `n` does to a row: a new body, or the row's end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    version: i64,
    seed: u64,
    len: usize,
}

fn changes(n: i64) -> impl Iterator<Item = (i64, Option<Row>)> {
    let mut random = Random((n as u64).wrapping_mul(0xABCD_EF12_3456_789B));
    (0..CHANGES).map(move |_| {
        let id = random.below(ROWS) as i64;
        let row = Row {
            version: n,
            seed: random.next(),
            len: random.below(6000) as usize,
        };
        // Rows come and go, so that pages are freed and used again.
        (id, (random.below(5) > 0).then_some(row))
    })
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db.pragma_update(None, "synchronous", "OFF").unwrap();
    db
}

fn last_commit(db: &Connection) -> i64 {
    db.query_row("SELECT n FROM state", [], |r| r.get(0))
        .unwrap()
}

fn commit_next(db: &mut Connection) -> rusqlite::Result<i64> {
    commit_after(db, "")
}

/// The same with all pages changed and most of them written before the end.
fn rewrite_all(db: &mut Connection) -> rusqlite::Result<i64> {
    db.pragma_update(None, "cache_size", 5)?;
    commit_after(db, "UPDATE data SET body = body, version = version")
}

fn commit_after(db: &mut Connection, sql: &str) -> rusqlite::Result<i64> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(sql)?;
    let n: i64 = tx.query_row("SELECT n + 1 FROM state", [], |r| r.get(0))?;
    for (id, row) in changes(n) {
        match row {
            Some(row) => tx.execute(
                "INSERT OR REPLACE INTO data VALUES (?1, ?2, ?3)",
                params![id, row.version, content(row.seed, row.len)],
            )?,
            None => tx.execute("DELETE FROM data WHERE id = ?1", [id])?,
        };
    }
    tx.execute("UPDATE state SET n = ?1", [n])?;
    tx.commit()?;
    Ok(n)
}

/// The other processes are this program again; the environment tells it what to be. Otherwise it does nothing.
#[test]
fn plays_the_part_it_is_given() {
    let (Ok(role), Some(path)) = (std::env::var(ROLE), std::env::var_os(DATABASE)) else {
        return;
    };
    let mut db = open(Path::new(&path));
    loop {
        // The process that started us is gone, so we end too.
        // SAFETY: `getppid` demands nothing and cannot fail.
        if unsafe { libc::getppid() } == 1 {
            return;
        }
        let done = match role.as_str() {
            "writer" => commit_next(&mut db).map(drop),
            "spiller" => rewrite_all(&mut db).map(drop),
            "checkpointer" => db
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .inspect(|()| std::thread::sleep(Duration::from_millis(3))),
            "vacuumer" => {
                std::thread::sleep(Duration::from_millis(700));
                db.execute_batch("VACUUM")
            }
            other => panic!("nobody plays a {other}"),
        };
        match done {
            Err(rusqlite::Error::SqliteFailure(e, _))
                if e.code == rusqlite::ErrorCode::DatabaseBusy
                    || e.code == rusqlite::ErrorCode::DatabaseLocked => {}
            other => other.unwrap(),
        }
    }
}

fn start(role: &str, path: &Path) -> Guarded {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["plays_the_part_it_is_given", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(DATABASE, path)
        .stdout(Stdio::null())
        .spawn();
    Guarded(child.unwrap())
}

/// The rows that the database must hold after each commit; goes forward only.
#[derive(Default)]
struct Model {
    n: i64,
    rows: BTreeMap<i64, Row>,
}

impl Model {
    fn advance_to(&mut self, n: i64) {
        while self.n < n {
            self.n += 1;
            for (id, row) in changes(self.n) {
                match row {
                    Some(row) => self.rows.insert(id, row),
                    None => self.rows.remove(&id),
                };
            }
        }
    }

    /// Compares a copy row for row.
    fn check(&mut self, path: &Path, at: &str) -> i64 {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        let verdict: String = db
            .query_row("PRAGMA integrity_check", [], |r| r.get(0))
            .unwrap();
        assert_eq!(verdict, "ok", "{at}");
        let n = last_commit(&db);
        assert!(
            n >= self.n,
            "{at}: commit {n} after commit {} was seen",
            self.n
        );
        self.advance_to(n);
        let mut expected = self.rows.iter();
        let mut query = db
            .prepare("SELECT id, version, body FROM data ORDER BY id")
            .unwrap();
        let mut rows = query.query([]).unwrap();
        while let Some(found) = rows.next().unwrap() {
            let id: i64 = found.get(0).unwrap();
            let (wanted, row) = expected.next().unwrap_or_else(|| panic!("{at}: row {id}"));
            let version: i64 = found.get(1).unwrap();
            assert_eq!((id, version), (*wanted, row.version), "{at}, commit {n}");
            let body: Vec<u8> = found.get(2).unwrap();
            assert!(
                body == content(row.seed, row.len),
                "{at}, commit {n}, row {id}"
            );
        }
        assert_eq!(expected.next(), None, "{at}, commit {n}: rows are missing");
        n
    }
}

/// A database after its first commits.
fn create(path: &Path, journal_mode: &str, commits: u64) -> Connection {
    let mut db = open(path);
    db.pragma_update(None, "journal_mode", journal_mode)
        .unwrap();
    db.execute_batch(
        "CREATE TABLE data (id INTEGER PRIMARY KEY, version, body);
         CREATE TABLE state (n INTEGER); INSERT INTO state VALUES (0);",
    )
    .unwrap();
    for _ in 0..commits {
        commit_next(&mut db).unwrap();
    }
    db
}

fn rounds(journal_mode: &str, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.db");
    let db = create(&path, journal_mode, 800);
    let mut parts = vec![start("writer", &path), start("writer", &path)];
    parts.push(start("vacuumer", &path));
    if journal_mode == "WAL" {
        parts.push(start("checkpointer", &path));
    }
    let mut random = Random(rounds);
    let mut model = Model::default();
    let (mut last, mut states) = (0, 0);
    for round in 0..rounds {
        let at = format!("{journal_mode}, round {round}");
        let media: Vec<_> = (0..=random.below(3))
            .map(|i| dir.path().join(format!("{round}.{i}.bak")))
            .collect();
        let mut args = vec!["backup".into(), path.clone().into_os_string()];
        for stripe in &media {
            args.extend(["--to".into(), stripe.into()]);
        }
        let algorithm = ["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"];
        let size = ["64K", "256K", "1M"];
        args.extend(
            [
                "--algorithm",
                algorithm[random.below(6) as usize],
                "--max-transfer-size",
                size[random.below(3) as usize],
                "--quiet",
            ]
            .map(Into::into),
        );
        // Most backups last long enough for many commits and several checkpoints.
        if random.below(4) > 0 {
            let rate = format!("{}M", 15 + random.below(60));
            args.extend(["--max-rate".into(), rate.into()]);
        }
        let before = last_commit(&db);
        expect(0, &args);
        let after = last_commit(&db);
        let target = dir.path().join("out");
        let mut args = vec!["restore".into()];
        args.extend(media.iter().map(|m| m.clone().into_os_string()));
        args.extend(["--to".into(), target.clone().into(), "--quiet".into()]);
        expect(0, &args);
        let names: Vec<_> = std::fs::read_dir(&target)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["live.db"], "{at}");
        let n = model.check(&target.join("live.db"), &at);
        assert!(
            (before..=after).contains(&n),
            "{at}: commit {n}, not one of {before} to {after}"
        );
        states += u64::from(n > last);
        last = n;
        std::fs::remove_dir_all(&target).unwrap();
        media.iter().for_each(|m| std::fs::remove_file(m).unwrap());
        for part in &mut parts {
            let status = part.0.try_wait().unwrap();
            assert!(status.is_none(), "{at}: a writer ended: {status:?}");
        }
    }
    // The writers must have written meanwhile, or the test shows nothing.
    assert!(
        states * 10 >= rounds * 9,
        "only {states} states in {rounds} rounds"
    );
    println!("{journal_mode}: {rounds} rounds, {states} states, {last} commits");
}

#[test]
fn copies_of_a_database_with_a_write_ahead_log_are_committed_states() {
    rounds("WAL", from_env("LONGSHORE_ROUNDS", 40).div_ceil(2));
}

#[test]
fn copies_of_a_database_with_a_rollback_journal_are_committed_states() {
    rounds("DELETE", from_env("LONGSHORE_ROUNDS", 40) / 2);
}

#[test]
fn a_copy_of_a_database_whose_writer_was_killed_is_the_state_before() {
    let rounds = from_env("LONGSHORE_ROUNDS", 40).div_ceil(4);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.db");
    create(&path, "DELETE", 400);
    let journal = dir.path().join("live.db-journal");
    let mut random = Random(rounds);
    let mut model = Model::default();
    let mut hot = 0;
    for round in 0..rounds {
        let at = format!("round {round}");
        let spiller = start("spiller", &path);
        // Killed in the middle of a transaction, as far as one can tell from outside.
        let enough = random.below(128 << 10);
        let journal_len = || std::fs::metadata(&journal).map_or(0, |meta| meta.len());
        let deadline = Instant::now() + Duration::from_secs(120);
        while journal_len() <= enough {
            assert!(Instant::now() < deadline, "{at}: nothing is written");
            std::thread::sleep(Duration::from_micros(50));
        }
        drop(spiller);
        let left_behind = std::fs::read(&journal).unwrap_or_default();
        hot += u64::from(left_behind.first().is_some_and(|byte| *byte != 0));
        let media = dir.path().join("a.bak");
        let target = dir.path().join("out");
        expect(
            0,
            [
                "backup".as_ref(),
                path.as_os_str(),
                "--to".as_ref(),
                media.as_os_str(),
            ],
        );
        assert_eq!(
            std::fs::read(&journal).unwrap_or_default(),
            left_behind,
            "{at}"
        );
        expect(
            0,
            [
                "restore".as_ref(),
                media.as_os_str(),
                "--to".as_ref(),
                target.as_os_str(),
            ],
        );
        let n = model.check(&target.join("live.db"), &at);
        // SQLite rolls the journal back now.
        assert_eq!(last_commit(&open(&path)), n, "{at}");
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::remove_file(&media).unwrap();
    }
    println!("killed writers: {rounds} rounds, {hot} with a hot journal");
    assert!(
        hot * 4 >= rounds,
        "only {hot} hot journals in {rounds} rounds"
    );
}
