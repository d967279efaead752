//! Goal: DBCC CHECKDB has SQLite check a database and says what SQL Server's procedures expect: its messages, an error for
//! damage, and the end of a check that is cancelled. Nothing is written.
//! Method: databases are sound, or damaged byte by byte; SQLite itself says so, too.
//! Not covered: PostgreSQL clusters (`sql_chain`).

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Stage, numbers, run, said, value};
use longshore_pipeline::SourceSpec;
use longshore_tsql::Session;

const SOUND: &str =
    "8989 CHECKDB found 0 allocation errors and 0 consistency errors in database 'shop'.";
const DONE: &str = "2528 DBCC execution completed. If DBCC printed error messages, contact your system administrator.";

fn open(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

/// An index that lacks a row of its table.
fn damage(path: &Path) {
    let db = open(path);
    db.execute_batch(
        "CREATE INDEX by_name ON ware (name);
         PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET sql = 'CREATE INDEX by_name ON ware (name) WHERE id <> 7' WHERE name = 'by_name';
         PRAGMA writable_schema = RESET;",
    )
    .unwrap();
    db.execute_batch(
        "DELETE FROM ware WHERE id = 8; INSERT INTO ware VALUES (7000, 'x', 1);
         PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET sql = 'CREATE INDEX by_name ON ware (price)' WHERE name = 'by_name';
         PRAGMA writable_schema = RESET;",
    )
    .unwrap();
}

#[test]
fn a_sound_database_is_said_to_be_so_in_sql_servers_words() {
    let stage = Stage::new();
    let mut session = stage.session();
    let whole = ["2536 DBCC results for 'shop'.", SOUND, DONE];
    for batch in [
        "DBCC CHECKDB (shop)",
        "DBCC CHECKDB ('shop', NOINDEX) WITH ALL_ERRORMSGS, DATA_PURITY",
        "DBCC CHECKDB (N'SHOP') WITH PHYSICAL_ONLY, MAXDOP = 2, TABLOCK, EXTENDED_LOGICAL_CHECKS",
        "DECLARE @db sysname = 'shop'; DBCC CHECKDB (@db)",
        "DECLARE @id int = DB_ID('shop'); DBCC CHECKDB (@id)",
        "EXEC ('DBCC CHECKDB ([shop])')",
    ] {
        assert_eq!(said(&run(&mut session, batch)), whole, "{batch}");
    }
    let quiet = run(
        &mut session,
        "DBCC CHECKDB (shop) WITH NO_INFOMSGS, ALL_ERRORMSGS",
    );
    assert!(said(&quiet).is_empty());
    run(&mut session, "USE shop");
    for batch in ["DBCC CHECKDB", "DBCC CHECKDB (0)"] {
        assert_eq!(said(&run(&mut session, batch)), whole, "{batch}");
    }
    assert_eq!(
        value(
            &mut session,
            "DBCC CHECKDB WITH NO_INFOMSGS; SELECT @@ERROR"
        ),
        "0"
    );
}

#[test]
fn damage_is_an_error_that_scripts_see_and_nothing_is_written() {
    let stage = Stage::new();
    damage(&stage.path("shop.db"));
    let truth: String = open(&stage.path("shop.db"))
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_ne!(truth, "ok");
    let before = std::fs::read(stage.path("shop.db")).unwrap();
    let mut session = stage.session();
    for batch in [
        "DBCC CHECKDB (shop)",
        "DBCC CHECKDB (shop) WITH NO_INFOMSGS",
    ] {
        let record = run(&mut session, batch);
        let lines = said(&record);
        let errors: Vec<_> = record.messages().filter(|m| m.is_error()).collect();
        assert!(!errors.is_empty(), "{lines:?}");
        assert!(
            errors
                .iter()
                .all(|m| (m.number, m.severity) == (50_000, 16))
        );
        assert!(lines.iter().any(|line| line.ends_with(&truth)), "{lines:?}");
        let count = errors.len();
        let summary = format!(
            "8989 CHECKDB found 0 allocation errors and {count} consistency errors in database 'shop'."
        );
        assert!(lines.contains(&summary), "{lines:?}");
        assert_eq!(lines.contains(&DONE.to_owned()), !batch.contains("NO_INFO"));
        assert_eq!(
            value(&mut session, &format!("{batch}; SELECT @@ERROR")),
            "50000"
        );
    }
    let caught = "BEGIN TRY DBCC CHECKDB (shop) WITH NO_INFOMSGS END TRY BEGIN CATCH SELECT ERROR_NUMBER() END CATCH";
    assert_eq!(value(&mut session, caught), "50000");
    // Pages and rows are sound: the index is not compared with its table.
    let physical = run(&mut session, "DBCC CHECKDB (shop) WITH PHYSICAL_ONLY");
    assert!(
        said(&physical).contains(&SOUND.to_owned()),
        "{:?}",
        said(&physical)
    );
    assert_eq!(std::fs::read(stage.path("shop.db")).unwrap(), before);
    // A page that is no page.
    let mut broken = before;
    broken[4096..8192].fill(0xFF);
    std::fs::write(stage.path("shop.db"), broken).unwrap();
    let record = run(&mut session, "DBCC CHECKDB (shop) WITH PHYSICAL_ONLY");
    assert!(
        record.messages().any(|m| m.is_error()),
        "{:?}",
        said(&record)
    );
}

/// Goal: a database with more damage than can be told is said to have it.
#[test]
fn a_thousand_findings_are_told_and_that_there_may_be_more() {
    let stage = Stage::new();
    let path = stage.path("shop.db");
    common::fill(&path, 2000);
    open(&path)
        .execute_batch(
            "CREATE INDEX by_price ON ware (price) WHERE id < 0;
             PRAGMA writable_schema = ON;
             UPDATE sqlite_master SET sql = 'CREATE INDEX by_price ON ware (price)' WHERE name = 'by_price';",
        )
        .unwrap();
    let record = run(&mut stage.session(), "DBCC CHECKDB (shop)");
    let errors = record.messages().filter(|m| m.is_error()).count();
    assert_eq!(errors, 1000);
    let lines = said(&record);
    for line in [
        "50005 SQLite stopped after 1000 findings: there may be more",
        "8989 CHECKDB found 0 allocation errors and 1000 consistency errors in database 'shop'.",
    ] {
        assert!(lines.contains(&line.to_owned()), "{:?}", &lines[995..]);
    }
}

/// Goal: pages that are lost, and a wrong count of free ones, are allocation errors.
/// Method: the list of free pages in the header is changed byte by byte.
#[test]
fn errors_of_allocation_are_counted_apart() {
    let stage = Stage::new();
    let path = stage.path("shop.db");
    common::fill(&path, 2000);
    let db = open(&path);
    db.execute_batch("DELETE FROM ware WHERE id > 9; PRAGMA journal_mode = DELETE")
        .unwrap();
    let free: i64 = db
        .query_row("PRAGMA freelist_count", [], |row| row.get(0))
        .unwrap();
    assert!(free > 9);
    drop(db);
    let whole = std::fs::read(&path).unwrap();
    for (place, bytes, count) in [(36, &[0_u8, 0, 0, 7][..], 1), (32, &[0; 8][..], free)] {
        let mut broken = whole.clone();
        broken[place..place + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, broken).unwrap();
        let record = run(&mut stage.session(), "DBCC CHECKDB (shop)");
        let summary = format!(
            "8989 CHECKDB found {count} allocation errors and 0 consistency errors in database 'shop'."
        );
        let lines = said(&record);
        assert!(lines.contains(&summary), "{lines:?}");
    }
}

/// Goal: a backup does not wait for a check of the same database.
#[test]
fn a_backup_during_a_check_is_refused() {
    let stage = Stage::new();
    fill_much(&stage);
    let server = stage.server();
    let mut checking = Session::new(server.clone(), common::login());
    let mut session = Session::new(server, common::login());
    let backup = "BACKUP DATABASE shop TO DISK = 'during.bak'";
    // A slow machine may begin the backup too soon or too late.
    for _ in 0..10 {
        let (checked, backed_up) = std::thread::scope(|scope| {
            let check = scope.spawn(|| run(&mut checking, "DBCC CHECKDB (shop)"));
            std::thread::sleep(Duration::from_millis(100));
            let backed_up = numbers(&run(&mut session, backup));
            (check.join().unwrap(), backed_up)
        });
        if backed_up == [3023, 3013] {
            assert!(said(&checked).contains(&SOUND.to_owned()));
            return;
        }
    }
    panic!("no backup met a check");
}

#[test]
fn what_would_write_or_has_no_check_is_refused_by_name() {
    let mut stage = Stage::new();
    let tree = SourceSpec::Files(vec![stage.path("state")]);
    stage.more.push(("tree", tree));
    let mut session = stage.session();
    for (batch, number) in [
        ("DBCC CHECKDB (shop, REPAIR_ALLOW_DATA_LOSS)", 50_002),
        (
            "DBCC CHECKDB (shop, REPAIR_REBUILD) WITH NO_INFOMSGS",
            50_002,
        ),
        ("DBCC CHECKDB (shop) WITH ESTIMATEONLY", 50_002),
        ("DBCC CHECKDB (tree)", 50_002),
        ("DBCC CHECKDB (master)", 50_002),
        ("DBCC CHECKTABLE ('ware')", 50_002),
        ("DBCC CHECKALLOC (shop)", 50_002),
        ("DBCC CHECKCATALOG (shop)", 50_002),
        ("DBCC CHECKDB (nowhere)", 911),
        ("DBCC CHECKDB (77)", 911),
        ("DBCC CHECKDB (shop, sideways)", 2526),
        ("DBCC CHECKDB (shop) WITH NOTHING", 2526),
    ] {
        assert_eq!(numbers(&run(&mut session, batch)), [number], "{batch}");
    }
}

/// Goal: a check of a large database ends soon after a cancel, and says nothing of it.
#[test]
fn a_cancelled_check_ends_at_once() {
    let stage = Stage::new();
    fill_much(&stage);
    check_cancelled(&stage);
}

/// Enough rows that a check of them takes a while.
fn fill_much(stage: &Stage) {
    let db = open(&stage.path("shop.db"));
    db.execute_batch(
        "PRAGMA synchronous = OFF; CREATE TABLE much (n INTEGER, t TEXT);
         WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 500000)
         INSERT INTO much SELECT i * 7919 % 500000, hex(i) FROM c;
         CREATE INDEX a ON much (n, t); CREATE INDEX b ON much (t, n);",
    )
    .unwrap();
}

/// Goal: so does one that waits for a program which keeps the database locked.
#[test]
fn a_cancelled_wait_for_a_lock_ends_at_once() {
    let stage = Stage::new();
    let db = open(&stage.path("shop.db"));
    db.execute_batch("BEGIN EXCLUSIVE").unwrap();
    check_cancelled(&stage);
}

/// The fastest of several counts: a machine with much else to do may be late.
fn check_cancelled(stage: &Stage) {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        fastest = fastest.min(cancelled(stage));
        if fastest < Duration::from_millis(300) {
            return;
        }
    }
    panic!("the check went on for {fastest:?}");
}

/// How long a check went on after its cancel.
fn cancelled(stage: &Stage) -> Duration {
    let mut session = stage.session();
    let cancel = session.cancel_flag();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        cancel.store(true, Ordering::Relaxed);
        Instant::now()
    });
    let record = run(&mut session, "DBCC CHECKDB (shop)");
    let late = stopper.join().unwrap().elapsed();
    assert!(!numbers(&record).contains(&8989), "{:?}", said(&record));
    assert!(record.messages().any(|m| m.is_error()));
    late
}

#[test]
fn findings_are_rows_where_a_table_is_wanted() {
    let stage = Stage::new();
    let mut session = stage.session();
    let wanted = "DBCC CHECKDB (shop) WITH TABLERESULTS, NO_INFOMSGS";
    let sound = run(&mut session, "DBCC CHECKDB (shop) WITH TABLERESULTS");
    assert_eq!(numbers(&sound), [2528]);
    let errors: Vec<String> = common::rows(&sound)
        .iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(errors, ["2536", "8989"]);
    damage(&stage.path("shop.db"));
    let found = run(&mut session, wanted);
    assert!(numbers(&found).is_empty(), "{:?}", said(&found));
    let rows = common::rows(&found);
    assert!(
        rows.len() > 1 && rows.iter().all(|row| row.len() == 23),
        "{rows:?}"
    );
    assert!(rows[0][3].contains("found damage"), "{rows:?}");
    assert_eq!(rows.last().unwrap()[0], "8989");
    let kept = "CREATE TABLE #f (Error int, Level int, State int, MessageText nvarchar(max), RepairLevel nvarchar(99), Status int,
         DbId int, DbFragId int, ObjectId int, IndexId int, PartitionId bigint, AllocUnitId bigint, RidDbId int, RidPruId int,
         [File] int, Page int, Slot int, RefDbId int, RefPruId int, RefFile int, RefPage int, RefSlot int, Allocation int)
         INSERT #f EXEC ('DBCC CHECKDB (shop) WITH TABLERESULTS, NO_INFOMSGS')
         SELECT COUNT(*) FROM #f WHERE Level = 16 AND DbId = DB_ID('shop')";
    assert_ne!(value(&mut session, kept), "0");
}

/// Goal: the time of the last good check is that of the present database, and 1900 where none is known.
#[test]
fn the_last_good_check_is_told() {
    let stage = Stage::new();
    let mut session = stage.session();
    let last = "SELECT DATEDIFF(day, CAST(DATABASEPROPERTYEX('shop', 'LastGoodCheckDbTime') AS datetime), GETDATE())";
    let never = |shown: String| shown.parse::<i64>().unwrap() > 40_000;
    assert!(never(value(&mut session, last)));
    run(&mut session, "DBCC CHECKDB (shop)");
    assert_eq!(value(&mut session, last), "0");
    // Another session finds it in the history.
    assert_eq!(value(&mut stage.session(), last), "0");
    damage(&stage.path("shop.db"));
    run(&mut session, "DBCC CHECKDB (shop)");
    assert_eq!(value(&mut session, last), "0", "the last good one counts");
    // Another file with this name was never checked.
    let other = stage.path("other.db");
    std::fs::copy(stage.path("shop.db"), &other).unwrap();
    std::fs::rename(&other, stage.path("shop.db")).unwrap();
    assert!(never(value(&mut session, last)));
}
