//! Goal: statements give their messages, in order, and the media and databases that they promise.
//! Method: a session with a real SQLite database; some tests run another session while a message is sent.

mod common;
#[path = "sinks/suite.rs"]
mod sink_suite;

use common::{Stage, numbers, rows, run, said, value};
use longshore_io::{Host, Storage};
use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Recorder, Session, Sink, Value};

#[test]
fn a_backup_says_its_percents_its_files_and_its_end() {
    let stage = Stage::new();
    let mut session = stage.session();
    let record = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH STATS = 25",
    );
    let lines = said(&record);
    assert_eq!(
        lines[lines.len() - 3],
        "3211 100 percent processed.",
        "{lines:?}"
    );
    assert!(
        lines[lines.len() - 2].starts_with("4035 Processed "),
        "{lines:?}"
    );
    assert!(
        lines[lines.len() - 2].ends_with("pages for database 'shop', file 'shop.db' on file 1.")
    );
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("3014 BACKUP DATABASE successfully processed "),
        "{lines:?}"
    );
    let again = run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    assert!(
        said(&again)[0].ends_with("on file 2."),
        "{:?}",
        said(&again)
    );
    let count = "SELECT COUNT(*) FROM msdb.dbo.backupset WHERE database_name = 'SHOP'";
    assert_eq!(value(&mut session, count), "2");
}

#[test]
fn a_batch_continues_after_a_failed_backup() {
    let stage = Stage::new();
    let mut session = stage.session();
    let batch = "BACKUP DATABASE nowhere TO DISK = 'a.bak';\nBACKUP LOG shop TO DISK = 'a.bak';\nPRINT 'still here'";
    assert_eq!(
        numbers(&run(&mut session, batch)),
        [911, 3013, 4208, 3013, 0]
    );
}

#[test]
fn pages_is_an_algorithm_of_statements_settings_media_and_history() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH COMPRESSION (ALGORITHM = PAGES, LEVEL = HIGH)",
    );
    run(
        &mut session,
        "EXEC sp_configure 'backup compression algorithm', 5; RECONFIGURE; \
         BACKUP DATABASE shop TO DISK = 'b.bak' WITH COMPRESSION",
    );
    for media in ["a.bak", "b.bak"] {
        let header = run(
            &mut session,
            &format!("RESTORE HEADERONLY FROM DISK = '{media}'"),
        );
        let mut columns = header.columns().iter();
        let at = columns.position(|c| c.name == "CompressionAlgorithm");
        assert_eq!(common::rows(&header)[0][at.unwrap()], "PAGES", "{media}");
        run(
            &mut session,
            &format!("RESTORE VERIFYONLY FROM DISK = '{media}'"),
        );
    }
    let counted = "SELECT COUNT(*) FROM msdb.dbo.backupset WHERE compression_algorithm = 'PAGES'";
    assert_eq!(value(&mut session, counted), "2");
}

#[test]
fn media_say_of_themselves_what_was_written() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak', DISK = 'b.bak' WITH COMPRESSION, NAME = 'first'",
    );
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak', DISK = 'b.bak' WITH COPY_ONLY",
    );
    let header = run(
        &mut session,
        "RESTORE HEADERONLY FROM DISK = 'b.bak', DISK = 'a.bak'",
    );
    let at = |name: &str| {
        header
            .columns()
            .iter()
            .position(|c| c.name == name)
            .unwrap()
    };
    let rows = common::rows(&header);
    let cell = |row: usize, name: &str| rows[row][at(name)].clone();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (cell(0, "BackupName"), cell(1, "BackupName")),
        ("first".into(), "NULL".into())
    );
    assert_eq!(
        (cell(0, "Position"), cell(1, "Position")),
        ("1".into(), "2".into())
    );
    assert_eq!(
        (cell(0, "IsCopyOnly"), cell(1, "IsCopyOnly")),
        ("0".into(), "1".into())
    );
    // The statement says nothing about compression: the media decide.
    assert_eq!(cell(1, "CompressionAlgorithm"), "MS_XPRESS");
    assert_eq!(cell(0, "DatabaseName"), "shop");
    let one = run(
        &mut session,
        "RESTORE HEADERONLY FROM DISK = 'a.bak', DISK = 'b.bak' WITH FILE = 2",
    );
    assert_eq!(common::rows(&one).len(), 1);
    let files = run(
        &mut session,
        "RESTORE FILELISTONLY FROM DISK = 'a.bak', DISK = 'b.bak'",
    );
    let rows = common::rows(&files);
    let size = std::fs::metadata(stage.path("shop.db"))
        .unwrap()
        .len()
        .to_string();
    let physical = stage.path("shop.db").display().to_string();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0][..3], ["shop.db", &physical, "D"]);
    assert_eq!(rows[0][4], size);
    let log = format!("{physical}-wal");
    assert_eq!(rows[1][..5], ["shop.db_log", &log, "L", "NULL", "0"]);
    let label = run(&mut session, "RESTORE LABELONLY FROM DISK = 'b.bak'");
    let rows = common::rows(&label);
    assert_eq!((rows[0][2].as_str(), rows[0][3].as_str()), ("2", "2"));
}

/// Goal: the way in which scripts make MOVE from FILELISTONLY leads to a restore, of a file and of a tree.
#[test]
fn a_script_that_moves_what_the_list_names_restores_it() {
    let mut stage = Stage::new();
    std::fs::create_dir(stage.path("tree")).unwrap();
    for i in 0..3 {
        std::fs::write(stage.path(&format!("tree/f{i}")), b"content").unwrap();
    }
    let tree = longshore_pipeline::SourceSpec::Files(vec![stage.path("tree")]);
    stage.more.push(("web", tree));
    std::fs::write(stage.path("alone"), b"content").unwrap();
    let two = longshore_pipeline::SourceSpec::Files(vec![stage.path("tree"), stage.path("alone")]);
    stage.more.push(("two", two));
    // Its name is that of a log, and its file's is not.
    std::fs::copy(stage.path("shop.db"), stage.path("audit")).unwrap();
    let audit = longshore_pipeline::SourceSpec::Sqlite(stage.path("audit"));
    stage.more.push(("audit_log", audit));
    let mut session = stage.session();
    let files =
        "SELECT name FROM sys.master_files WHERE database_id = DB_ID('web') ORDER BY file_id";
    assert_eq!(
        common::rows(&run(&mut session, files)),
        [["web"], ["web_log"]]
    );
    let rest: Vec<_> = (4..=22).map(|i| format!("c{i} nvarchar(60)")).collect();
    for database in ["shop", "web", "two", "audit_log"] {
        let (rest, to) = (rest.join(", "), format!("{database}.again"));
        let script = format!(
            "BACKUP DATABASE {database} TO DISK = '{database}.bak' WITH FORMAT;
             CREATE TABLE #f (LogicalName nvarchar(128), PhysicalName nvarchar(260), Type char(1), {rest});
             INSERT #f EXEC ('RESTORE FILELISTONLY FROM DISK = ''{database}.bak''');
             DECLARE @move nvarchar(max) = N'';
             SELECT @move += N', MOVE ''' + LogicalName + N''' TO ''' + CONVERT(nvarchar(260), SERVERPROPERTY('InstanceDefaultDataPath'))
                 + N'{to}' + IIF(Type = 'L', N'_log', N'') + N'''' FROM #f ORDER BY Type;
             DECLARE @sql nvarchar(max) = N'RESTORE DATABASE {database}_again FROM DISK = ''{database}.bak'' WITH STATS' + @move;
             EXEC sp_executesql @sql;
             DROP TABLE #f"
        );
        let done = run(&mut session, &script);
        assert!(!numbers(&done).contains(&3013), "{:?}", said(&done));
        assert!(stage.path(&to).exists(), "{:?}", said(&done));
    }
    let count = |name: &str| std::fs::read_dir(stage.path(name)).unwrap().count();
    assert_eq!((count("web.again"), count("two.again")), (3, 2));
    let list = run(&mut session, "RESTORE FILELISTONLY FROM DISK = 'two.bak'");
    let place = stage.path("two").display().to_string();
    assert_eq!(common::rows(&list)[0][..2], ["two", &place]);
}

#[test]
fn any_one_stripe_tells_of_all_sets_and_of_their_files() {
    let mut stage = Stage::new();
    std::fs::create_dir(stage.path("tree")).unwrap();
    for i in 0..6 {
        std::fs::write(stage.path(&format!("tree/f{i}")), b"one block has all").unwrap();
    }
    let tree = longshore_pipeline::SourceSpec::Files(vec![stage.path("tree")]);
    stage.more.push(("tree", tree));
    let mut session = stage.session();
    let all = "DISK = '1.bak', DISK = '2.bak', DISK = '3.bak'";
    for (database, with) in [("shop", "FORMAT, NAME = 'one'"), ("tree", "NAME = 'two'")] {
        let done = run(
            &mut session,
            &format!("BACKUP DATABASE {database} TO {all} WITH {with}"),
        );
        assert!(numbers(&done).contains(&3014), "{:?}", said(&done));
    }
    let headers = common::rows(&run(
        &mut session,
        &format!("RESTORE HEADERONLY FROM {all}"),
    ));
    assert_eq!(headers.len(), 2);
    let mut sizes = Vec::new();
    for stripe in ["1.bak", "2.bak", "3.bak"] {
        let of = |session: &mut longshore_tsql::Session, what: &str| {
            run(
                session,
                &format!("RESTORE {what} FROM DISK = '{stripe}' WITH FILE = 2"),
            )
        };
        let header = run(
            &mut session,
            &format!("RESTORE HEADERONLY FROM DISK = '{stripe}'"),
        );
        assert_eq!(common::rows(&header), headers, "{stripe}");
        // The only file of a database is known wherever its blocks are.
        let list = run(
            &mut session,
            &format!("RESTORE FILELISTONLY FROM DISK = '{stripe}'"),
        );
        assert_eq!(numbers(&list), [0u32; 0], "{:?}", said(&list));
        let row = common::rows(&list).remove(0);
        sizes.push((row[0].clone(), row[4].clone(), row[12].clone()));
        let list = of(&mut session, "FILELISTONLY");
        // A tree is one file, of which other stripes have parts.
        let row = common::rows(&list).remove(0);
        assert_eq!(numbers(&list), [0u32; 0], "{:?}", said(&list));
        assert_eq!((row[0].as_str(), row[12].as_str()), ("tree", "NULL"));
        for whole in ["VERIFYONLY", "DATABASE again"] {
            assert_eq!(numbers(&of(&mut session, whole))[0], 3132, "{whole}");
        }
    }
    let size = std::fs::metadata(stage.path("shop.db")).unwrap().len();
    let meant = ("shop.db".to_owned(), size.to_string(), size.to_string());
    assert_eq!(sizes, [meant.clone(), meant.clone(), meant]);
    let whole = format!("RESTORE FILELISTONLY FROM {all} WITH FILE = 2");
    let rows = common::rows(&run(&mut session, &whole));
    let path = stage.path("tree").display().to_string();
    let bytes = (6 * b"one block has all".len()).to_string();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0][..5], ["tree", &path, "D", "PRIMARY", &bytes]);
    assert_eq!(rows[0][12], bytes);
    assert_eq!(rows[1][2], "L");
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'x.bak' WITH FORMAT",
    );
    let mixed = "RESTORE HEADERONLY FROM DISK = '1.bak', DISK = 'x.bak'";
    assert_eq!(numbers(&run(&mut session, mixed))[0], 3258);
    let twice = "RESTORE FILELISTONLY FROM DISK = '1.bak', DISK = '1.bak'";
    assert_eq!(numbers(&run(&mut session, twice))[0], 3227);
}

#[test]
fn mirrors_have_the_same_bytes_and_stand_for_one_another_in_every_statement() {
    let stage = Stage::new();
    let mut session = stage.session();
    let done = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a1.bak', DISK = 'a2.bak' MIRROR TO DISK = 'b1.bak', DISK = 'b2.bak' \
         MIRROR TO DISK = 'c1.bak', DISK = 'c2.bak' WITH FORMAT, NAME = 'three'",
    );
    assert_eq!(numbers(&done).last(), Some(&3014), "{:?}", said(&done));
    let bytes = |name: &str| std::fs::read(stage.path(name)).unwrap();
    for mirror in ["b", "c"] {
        for family in [1, 2] {
            let (one, other) = (format!("a{family}.bak"), format!("{mirror}{family}.bak"));
            assert!(bytes(&one) == bytes(&other), "{other}");
        }
    }
    let families = run(
        &mut session,
        "SELECT f.family_sequence_number, f.mirror, RIGHT(f.physical_device_name, 6), m.mirror_count, m.media_family_count, \
         COUNT(*) OVER (PARTITION BY f.media_family_id) FROM msdb.dbo.backupmediafamily f \
         JOIN msdb.dbo.backupmediaset m ON m.media_set_id = f.media_set_id ORDER BY 2, 1",
    );
    let row = |family: &str, mirror: &str, name: &str| {
        [family, mirror, name, "3", "2", "3"]
            .map(str::to_owned)
            .to_vec()
    };
    let meant: Vec<_> = [("0", "a"), ("1", "b"), ("2", "c")]
        .iter()
        .flat_map(|(n, name)| {
            [
                row("1", n, &format!("{name}1.bak")),
                row("2", n, &format!("{name}2.bak")),
            ]
        })
        .collect();
    assert_eq!(rows(&families), meant);
    let label = run(&mut session, "RESTORE LABELONLY FROM DISK = 'c2.bak'");
    let at = label
        .columns()
        .iter()
        .position(|c| c.name == "Mirror_Count");
    assert_eq!(rows(&label)[0][at.unwrap()], "3");
    for lost in ["a1.bak", "b2.bak", "c2.bak"] {
        std::fs::remove_file(stage.path(lost)).unwrap();
    }
    let mixed = "DISK = 'c1.bak', DISK = 'a2.bak'";
    let header = run(&mut session, &format!("RESTORE HEADERONLY FROM {mixed}"));
    assert_eq!(rows(&header)[0][0], "three");
    let verified = run(&mut session, &format!("RESTORE VERIFYONLY FROM {mixed}"));
    assert_eq!(numbers(&verified), [3262], "{:?}", said(&verified));
    let to = stage.path("again.db");
    let restored = run(
        &mut session,
        &format!(
            "RESTORE DATABASE again FROM {mixed} WITH MOVE 'shop.db' TO '{}'",
            to.display()
        ),
    );
    assert_eq!(
        numbers(&restored).last(),
        Some(&3014),
        "{:?}",
        said(&restored)
    );
    // Two stripes of one family are none of the other.
    let twice = "RESTORE VERIFYONLY FROM DISK = 'b1.bak', DISK = 'c1.bak'";
    assert_eq!(numbers(&run(&mut session, twice))[0], 3227);
}

#[test]
fn a_mirror_that_fails_or_does_not_fit_fails_the_backup_and_leaves_nothing() {
    let stage = Stage::new();
    let mut session = stage.session();
    std::fs::create_dir(stage.path("taken.bak")).unwrap();
    for (mirrors, with, number) in [
        (
            "MIRROR TO DISK = 'b1.bak', DISK = 'taken.bak'",
            "FORMAT",
            3201,
        ),
        (
            "MIRROR TO DISK = 'b1.bak', DISK = 'shop.db'",
            "FORMAT",
            3201,
        ),
        ("MIRROR TO DISK = 'b1.bak', DISK = 'a2.bak'", "FORMAT", 3227),
        ("MIRROR TO DISK = 'b1.bak'", "FORMAT", 3010),
        ("MIRROR TO DISK = 'b1.bak', DISK = 'b2.bak'", "INIT", 50000),
        (
            "MIRROR TO DISK = 'b1.bak', DISK = 'b2.bak'",
            "FORMAT, PARITY = 1",
            50000,
        ),
        (
            "MIRROR TO DISK = 'b1.bak', URL = 's3://x/y'",
            "FORMAT",
            3011,
        ),
    ] {
        let batch = format!(
            "BACKUP DATABASE shop TO DISK = 'a1.bak', DISK = 'a2.bak' {mirrors} WITH {with}"
        );
        let failed = run(&mut session, &batch);
        assert_eq!(numbers(&failed)[0], number, "{batch}: {:?}", said(&failed));
        for name in ["a1.bak", "a2.bak", "b1.bak", "b2.bak"] {
            assert!(!stage.path(name).exists(), "{batch}: {name}");
        }
    }
    let four = (0..5)
        .map(|n| format!("DISK = '{n}.bak'"))
        .collect::<Vec<_>>();
    let batch = format!(
        "BACKUP DATABASE shop TO {} WITH FORMAT",
        four.join(" MIRROR TO ")
    );
    assert_eq!(numbers(&run(&mut session, &batch))[0], 50000);
}

#[test]
fn one_of_several_mirrors_is_not_changed_alone() {
    let stage = Stage::new();
    let mut session = stage.session();
    let format = "BACKUP DATABASE shop TO DISK = 'a.bak' MIRROR TO DISK = 'b.bak' WITH FORMAT";
    run(&mut session, format);
    let before = std::fs::read(stage.path("b.bak")).unwrap();
    for batch in [
        "BACKUP DATABASE shop TO DISK = 'b.bak'",
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT",
    ] {
        let refused = run(&mut session, batch);
        assert_eq!(numbers(&refused), [50000, 3013], "{:?}", said(&refused));
    }
    assert!(before == std::fs::read(stage.path("b.bak")).unwrap());
    let again = run(&mut session, format);
    assert_eq!(numbers(&again).last(), Some(&3014), "{:?}", said(&again));
    // A medium of its own is added to as ever.
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'b.bak' WITH FORMAT",
    );
    let more = run(&mut session, "BACKUP DATABASE shop TO DISK = 'b.bak'");
    assert_eq!(numbers(&more).last(), Some(&3014), "{:?}", said(&more));
}

#[test]
fn a_damaged_stripe_is_not_a_valid_backup() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH COMPRESSION",
    );
    let valid = run(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    assert_eq!(said(&valid), ["3262 The backup set on file 1 is valid."]);
    let mut bytes = std::fs::read(stage.path("a.bak")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(stage.path("a.bak"), bytes).unwrap();
    let damaged = numbers(&run(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'"));
    assert_eq!(damaged[damaged.len() - 2..], [3189, 3013], "{damaged:?}");
    std::fs::write(stage.path("a.bak"), b"").unwrap();
    assert_eq!(
        numbers(&run(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'")),
        [3254, 3013]
    );
}

#[test]
fn a_restore_puts_back_what_was_there_and_refuses_what_is_another_s() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let before = std::fs::read(stage.path("shop.db")).unwrap();
    common::fill(&stage.path("shop.db"), 50);
    let back = run(&mut session, "RESTORE DATABASE shop FROM DISK = 'a.bak'");
    assert_eq!(numbers(&back), [4035, 3014], "{:?}", said(&back));
    assert_eq!(std::fs::read(stage.path("shop.db")).unwrap(), before);
    let other = run(
        &mut session,
        "RESTORE DATABASE other FROM DISK = 'a.bak' WITH MOVE 'shop' TO 'other.db'",
    );
    assert_eq!(numbers(&other), [4035, 3014], "{:?}", said(&other));
    run(&mut session, "BACKUP DATABASE other TO DISK = 'o.bak'");
    let wrong = run(&mut session, "RESTORE DATABASE shop FROM DISK = 'o.bak'");
    assert_eq!(numbers(&wrong), [3154, 3013]);
    let there = run(
        &mut session,
        "RESTORE DATABASE third FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'o.bak'",
    );
    assert_eq!(
        numbers(&there),
        [3201, 3156, 3119, 3013],
        "{:?}",
        said(&there)
    );
    let taken = run(
        &mut session,
        "RESTORE DATABASE third FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop.db' TO 'shop.db'",
    );
    assert_eq!(numbers(&taken), [1834, 3156, 3119, 3013]);
}

#[test]
fn a_client_that_disconnects_or_cancels_leaves_no_backup() {
    use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Sink, Value};
    struct Deaf;
    impl Sink for Deaf {
        fn columns(&mut self, _: &[Column]) -> Result<(), ReceiverGone> {
            Err(ReceiverGone)
        }
        fn row(&mut self, _: &[Value]) -> Result<(), ReceiverGone> {
            Err(ReceiverGone)
        }
        fn message(&mut self, _: &Message) -> Result<(), ReceiverGone> {
            Err(ReceiverGone)
        }
        fn done(&mut self, _: DoneEvent) -> Result<(), ReceiverGone> {
            Err(ReceiverGone)
        }
    }
    assert_eq!(sink_suite::keeps_its_contract(&mut Deaf), 0);
    let stage = Stage::new();
    let mut session = stage.session();
    assert_eq!(
        session.run(
            "PRINT 'a'; BACKUP DATABASE shop TO DISK = 'a.bak'",
            &mut Deaf
        ),
        Err(ReceiverGone)
    );
    assert!(!stage.path("a.bak").exists());
    let mut session = stage.session();
    let cancel = session.cancel_flag();
    cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    let record = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak'; PRINT 'never'",
    );
    assert_eq!(numbers(&record), [3204]);
    assert!(!stage.path("a.bak").exists());
    cancel.store(false, std::sync::atomic::Ordering::Relaxed);
    let again = run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    assert_eq!(numbers(&again).last(), Some(&3014));
}

#[test]
fn every_statement_ends_with_a_done_and_errors_say_so() {
    use longshore_tsql::{Command, SinkEvent};
    let stage = Stage::new();
    let mut session = stage.session();
    let record = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak'; SELECT 1 AS n; BACKUP LOG shop TO DISK = 'x'",
    );
    let dones: Vec<_> = record
        .events
        .iter()
        .filter_map(|e| match e {
            SinkEvent::Done(done) => Some((done.command, done.rows, done.error)),
            _ => None,
        })
        .collect();
    assert_eq!(
        dones,
        [
            (Command::BackupDatabase, None, false),
            (Command::BackupDatabase, None, false),
            (Command::Select, Some(1), false),
            (Command::Other, None, true),
        ]
    );
    let wrong = run(&mut session, "SELECT 1; FOO BAR");
    assert_eq!(numbers(&wrong), [102]);
    assert_eq!(
        wrong.events.len(),
        2,
        "nothing of it ran: {:?}",
        wrong.events
    );
}

#[test]
fn settings_count_after_reconfigure_or_after_a_restart() {
    let stage = Stage::new();
    let mut session = stage.session();
    let pending = "SELECT CAST(value AS int), CAST(value_in_use AS int) FROM sys.configurations WHERE name = ";
    run(
        &mut session,
        "EXEC sp_configure 'backup compression default', 1",
    );
    assert_eq!(
        value(
            &mut session,
            &format!("{pending}'backup compression default'")
        ),
        "1|0"
    );
    run(&mut session, "RECONFIGURE");
    assert_eq!(
        value(
            &mut session,
            &format!("{pending}'backup compression default'")
        ),
        "1|1"
    );
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let algorithm = "SELECT compression_algorithm FROM msdb.dbo.backupset";
    assert_eq!(value(&mut session, algorithm), "MS_XPRESS");
    run(
        &mut session,
        "EXEC sp_configure 'show advanced options', 1; RECONFIGURE; EXEC sp_configure 'hardware offload enabled', 1; RECONFIGURE",
    );
    assert_eq!(
        value(
            &mut session,
            &format!("{pending}'hardware offload enabled'")
        ),
        "1|0"
    );
    let mut after_restart = stage.session();
    assert_eq!(
        value(
            &mut after_restart,
            &format!("{pending}'hardware offload enabled'")
        ),
        "1|1"
    );
}

#[test]
fn a_running_backup_is_seen_by_other_sessions() {
    let stage = Stage::new();
    common::fill(&stage.path("shop.db"), 200_000);
    let server = stage.server();
    let mut other = longshore_tsql::Session::new(server.clone(), common::login());
    let mut session = longshore_tsql::Session::new(server, common::login());
    let worker = std::thread::spawn(move || {
        // Slow enough to be observed.
        run(
            &mut session,
            "BACKUP DATABASE shop TO DISK = 'NUL' WITH MAX_RATE = 8000000, MAXTRANSFERSIZE = 65536",
        )
    });
    let query = "SELECT command, DB_NAME(5), percent_complete, total_elapsed_time, estimated_completion_time \
                 FROM sys.dm_exec_requests WHERE command LIKE 'BACKUP%'";
    let mut seen = Vec::new();
    while !worker.is_finished() {
        let found = common::rows(&run(&mut other, query));
        seen.extend(found);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(numbers(&worker.join().unwrap()).last(), Some(&3014));
    assert!(!seen.is_empty(), "never seen");
    assert!(
        seen.iter()
            .all(|row| row[..2] == ["BACKUP DATABASE", "shop"])
    );
    let percents: Vec<f64> = seen.iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(percents.is_sorted(), "{percents:?}");
    assert!(
        percents.iter().all(|p| (0.0..=100.0).contains(p)),
        "{percents:?}"
    );
    assert!(
        percents.len() < 3 || percents.iter().any(|p| *p > 0.0),
        "{percents:?}"
    );
    for (row, percent) in seen.iter().zip(&percents) {
        let (elapsed_ms, left_ms): (i64, i64) = (row[3].parse().unwrap(), row[4].parse().unwrap());
        let expected = match *percent as i64 {
            0 => 0,
            percent => elapsed_ms * (100 - percent) / percent,
        };
        assert_eq!(left_ms, expected, "{row:?}");
    }
    let gone = run(&mut other, query);
    assert!(common::rows(&gone).is_empty());
}

#[test]
fn transactions_are_counted_and_hold_no_backup() {
    let stage = Stage::new();
    let mut session = stage.session();
    let record = run(
        &mut session,
        "BEGIN TRAN nightly; BEGIN TRANSACTION SELECT @@TRANCOUNT; COMMIT",
    );
    assert_eq!(rows(&record), [["2"]]);
    let held = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'NUL'; RESTORE HEADERONLY FROM DISK = 'a.bak'",
    );
    assert_eq!(numbers(&held), [3021, 3013, 3021, 3013]);
    run(&mut session, "ROLLBACK WORK");
    assert_eq!(value(&mut session, "SELECT @@TRANCOUNT"), "0");
    let nothing = run(&mut session, "COMMIT TRAN; ROLLBACK TRANSACTION x");
    assert_eq!(numbers(&nothing), [3902, 3903]);
    let undeclared = run(&mut session, "PRINT 'never'; ROLLBACK TRANSACTION @name");
    assert_eq!(numbers(&undeclared), [137]);
}

#[test]
fn procedures_are_called_from_outside_a_batch_and_give_their_outputs_back() {
    use longshore_tsql::{Argument, Type, Value, Variable};
    let argument = |name: Option<&str>, kind, value, output| Argument {
        name: name.map(str::to_owned),
        variable: Variable { kind, value },
        default: false,
        output,
    };
    let text = |s: &str| argument(None, Type::NVarChar(None), Value::text(s), false);
    let stage = Stage::new();
    let mut session = stage.session();
    let mut arguments = [
        text("SET @n = @n + 1; SELECT @what AS what"),
        text("@what nvarchar(3), @n int OUTPUT"),
        argument(None, Type::NVarChar(None), Value::text("shops"), false),
        argument(Some("@N"), Type::BigInt, Value::Int(41), true),
    ];
    let mut record = Recorder::default();
    let outcome = session.call("[sys].sp_executesql", &mut arguments, &mut record);
    assert!(!outcome.unwrap().failed(), "{:?}", said(&record));
    assert_eq!(rows(&record), [["sho"]]);
    assert_eq!(arguments[3].variable.value, Value::Int(42));
    for name in [
        "sp_configure; BACKUP DATABASE shop TO DISK = 'x.bak'",
        "sp_configure 'media retention'",
        "no_such",
        "@p = sp_configure",
        "",
    ] {
        let mut record = Recorder::default();
        session.call(name, &mut [], &mut record).unwrap();
        assert_eq!(numbers(&record), [2812], "{name}");
    }
    assert!(!stage.path("x.bak").exists());
}

#[test]
fn a_session_that_is_reset_keeps_only_its_number() {
    let stage = Stage::new();
    let mut session = stage.session();
    let number = value(&mut session, "SELECT @@SPID");
    run(
        &mut session,
        "USE shop; SET NOCOUNT ON; BEGIN TRAN; DBCC TRACEON (3604); SET NOEXEC ON",
    );
    session.reset(false);
    assert_eq!(
        value(&mut session, "SELECT @@SPID, DB_NAME(), @@TRANCOUNT"),
        format!("{number}|master|0")
    );
    run(&mut session, "USE shop");
    session.settle();
    run(&mut session, "USE master; BEGIN TRAN");
    session.reset(true);
    assert_eq!(
        value(&mut session, "SELECT DB_NAME(), @@TRANCOUNT"),
        "shop|1"
    );
}

/// While a message is sent, another session runs a batch.
struct Meanwhile<'a> {
    session: &'a mut Session,
    batch: &'a str,
    /// The last number that the other session received, each time.
    heard: Vec<Option<u32>>,
}

impl Sink for Meanwhile<'_> {
    fn columns(&mut self, _columns: &[Column]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn row(&mut self, _row: &[Value]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn message(&mut self, _message: &Message) -> Result<(), ReceiverGone> {
        let record = run(self.session, self.batch);
        self.heard.push(numbers(&record).first().copied());
        Ok(())
    }

    fn done(&mut self, _done: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

#[test]
fn a_sink_that_runs_another_session_keeps_the_contract_of_all_sinks() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut sink = Meanwhile {
        session: &mut session,
        batch: "SELECT 1",
        heard: Vec::new(),
    };
    let taken = sink_suite::keeps_its_contract(&mut sink);
    assert_eq!(taken, 2 * sink_suite::legal().len());
    assert_eq!(sink.heard, [None; 12]);
}

#[test]
fn two_sessions_do_not_restore_one_database_at_once() {
    let stage = Stage::new();
    let server = stage.server();
    let [mut one, mut two] = [(); 2].map(|()| Session::new(server.clone(), common::login()));
    run(&mut one, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    for directory in ["a", "b", "c"] {
        std::fs::create_dir(stage.path(directory)).unwrap();
    }
    let restore = |name: &str, to: &str| {
        format!(
            "RESTORE DATABASE {name} FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop.db' TO '{to}'"
        )
    };
    let (mine, its) = (restore("new", "a/n.db"), restore("NEW", "b/n.db"));
    for (batch, number) in [
        (its.as_str(), 3101),
        ("RESTORE LOG new FROM DISK = 'a.bak'", 3101),
        ("RESTORE DATABASE new WITH RECOVERY", 3101),
        (&restore("other", "c/n.db"), 4035),
    ] {
        let mut sink = Meanwhile {
            session: &mut two,
            batch,
            heard: Vec::new(),
        };
        one.run(&mine, &mut sink).unwrap();
        // Next to the file's line and the end.
        assert_eq!(sink.heard, [Some(number); 2], "{batch}");
    }
    assert!(!stage.path("b/n.db").exists());
    // It is free again.
    assert_eq!(numbers(&run(&mut two, &its)), [4035, 3014]);
}

#[test]
fn another_program_s_step_of_a_restore_keeps_this_one_away() {
    let stage = Stage::new();
    let held = stage.path("pg/global/pg_control.longshore-held");
    std::fs::create_dir_all(stage.path("pg/global")).unwrap();
    std::fs::write(&held, "").unwrap();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    common::wait_for_more(&stage, "ledger", "pg");
    let global = Host::new().dir(&stage.path("pg/global")).unwrap();
    let name = std::path::Path::new("pg_control.longshore-held");
    let lock = global.open_to_lock(name).unwrap();
    assert!(lock.try_lock().unwrap());
    let steps = [
        "RESTORE DATABASE ledger WITH RECOVERY",
        "RESTORE LOG ledger FROM DISK = 'a.bak'",
        "RESTORE DATABASE ledger FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop.db' TO 'new.db'",
    ];
    for batch in steps {
        let record = run(&mut session, batch);
        assert_eq!(
            numbers(&record),
            [3101, 3013],
            "{batch}: {:?}",
            said(&record)
        );
    }
    drop(lock);
    for batch in steps {
        let record = run(&mut session, batch);
        assert_ne!(
            numbers(&record).first(),
            Some(&3101),
            "{batch}: {:?}",
            said(&record)
        );
    }
}

#[test]
fn statements_around_a_restore_do_not_stop_a_script() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let record = run(
        &mut session,
        "USE master; ALTER DATABASE shop SET SINGLE_USER WITH ROLLBACK IMMEDIATE;
         RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE;
         ALTER DATABASE shop SET MULTI_USER",
    );
    assert_eq!(numbers(&record), [5701, 50005, 4035, 3014, 50005]);
    let missing = run(&mut session, "ALTER DATABASE nowhere SET MULTI_USER");
    assert_eq!(numbers(&missing), [5011, 5069]);
    // A change of the recovery model would decide which backups there can be; the model that it has is no change.
    let other = "ALTER DATABASE shop SET RECOVERY FULL; PRINT 'later'";
    assert_eq!(numbers(&run(&mut session, other)), [50002]);
    let own = "ALTER DATABASE SHOP SET RECOVERY SIMPLE WITH NO_WAIT; PRINT 'later'";
    assert_eq!(said(&run(&mut session, own)), ["0 later"]);
    let own = "USE shop; ALTER DATABASE CURRENT SET RECOVERY simple";
    assert_eq!(numbers(&run(&mut session, own)), [5701]);
    // Nor is a mark in a log that nobody can restore to.
    let marked = "BEGIN TRANSACTION raise WITH MARK N'prices'; COMMIT";
    let refused = said(&run(&mut session, marked)).concat();
    assert!(
        refused.contains("BEGIN TRANSACTION … WITH MARK"),
        "{refused}"
    );
}

/// Goal: the statements of keys, Service Broker, triggers and signatures are refused by their whole name, wherever they
/// are in a batch, when they are reached. Names that look like them stay names.
#[test]
fn keys_service_broker_triggers_and_signatures_are_refused_by_name() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, what) in [
        (
            "BACKUP SERVICE MASTER KEY TO FILE = 'k'",
            "BACKUP SERVICE MASTER KEY",
        ),
        (
            "BACKUP SYMMETRIC KEY k TO FILE = 'k'",
            "BACKUP SYMMETRIC KEY",
        ),
        (
            "RESTORE SERVICE MASTER KEY FROM FILE = 'k' FORCE",
            "RESTORE SERVICE MASTER KEY",
        ),
        (
            "ALTER CERTIFICATE c REMOVE PRIVATE KEY",
            "ALTER CERTIFICATE",
        ),
        ("RESTORE CERTIFICATE c", "RESTORE CERTIFICATE"),
        ("DISABLE TRIGGER t ON DATABASE", "DISABLE TRIGGER"),
        ("ENABLE TRIGGER ALL ON ALL SERVER", "ENABLE TRIGGER"),
        (
            "SEND ON CONVERSATION @h MESSAGE TYPE m (@x)",
            "SEND ON CONVERSATION",
        ),
        ("RECEIVE * FROM q", "RECEIVE"),
        ("RECEIVE TOP (1) message_body FROM q", "RECEIVE"),
        ("RECEIVE conversation_handle FROM q", "RECEIVE"),
        ("GET CONVERSATION GROUP @g FROM q", "GET CONVERSATION GROUP"),
        ("MOVE CONVERSATION @h TO @g", "MOVE CONVERSATION"),
        (
            "BEGIN DIALOG CONVERSATION @h FROM SERVICE s TO SERVICE 't'",
            "BEGIN DIALOG",
        ),
        (
            "BEGIN CONVERSATION TIMER (@h) TIMEOUT = 5",
            "BEGIN CONVERSATION TIMER",
        ),
        ("END CONVERSATION @h", "END CONVERSATION"),
        ("ADD SIGNATURE TO p BY CERTIFICATE c", "ADD SIGNATURE"),
        (
            "ADD COUNTER SIGNATURE TO p BY CERTIFICATE c",
            "ADD COUNTER SIGNATURE",
        ),
        (
            "OPEN SYMMETRIC KEY k DECRYPTION BY CERTIFICATE c",
            "OPEN SYMMETRIC KEY",
        ),
        ("CLOSE SYMMETRIC KEY k", "CLOSE SYMMETRIC KEY"),
        ("CLOSE ALL SYMMETRIC KEYS", "CLOSE ALL SYMMETRIC KEYS"),
    ] {
        for batch in [
            statement.to_owned(),
            format!("IF 1 = 1 BEGIN {statement}; END"),
        ] {
            let said = said(&run(&mut session, &batch));
            let whole =
                format!("50002 {what} is not part of the language that this server understands.");
            assert_eq!(said, [whole], "{batch}");
        }
    }
    for (batch, number) in [
        ("OPEN master", 16916),
        ("CLOSE master", 16916),
        ("enable 'x'", 2812),
        ("receive @a = 1", 2812),
        ("send", 2812),
        ("PRINT 'x' PRINT 'y'", 0),
    ] {
        let record = run(&mut session, batch);
        assert_eq!(numbers(&record)[0], number, "{batch}: {:?}", said(&record));
    }
}

#[test]
fn a_driver_without_autocommit_has_a_transaction_from_its_first_query_on() {
    let stage = Stage::new();
    let mut session = stage.session();
    let open = |session: &mut Session| value(session, "SELECT @@TRANCOUNT");
    run(&mut session, "SET IMPLICIT_TRANSACTIONS ON");
    assert_eq!(open(&mut session), "0");
    // No table, no transaction; nor does a backup begin one.
    let backup = "BACKUP DATABASE shop TO DISK = 'NUL'";
    assert_eq!(numbers(&run(&mut session, backup)).last(), Some(&3014));
    assert_eq!(open(&mut session), "0");
    run(&mut session, "SELECT name FROM sys.databases");
    run(&mut session, "SELECT name FROM sys.databases");
    assert_eq!(open(&mut session), "1");
    assert_eq!(numbers(&run(&mut session, backup)), [3021, 3013]);
    run(&mut session, "IF @@TRANCOUNT > 0 COMMIT TRAN");
    assert_eq!(open(&mut session), "0");
    run(&mut session, "SET IMPLICIT_TRANSACTIONS OFF");
    run(&mut session, "SELECT name FROM sys.databases");
    assert_eq!(open(&mut session), "0");
}

#[test]
fn a_verification_may_say_where_files_would_go() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let mut verify = |moves: &str| {
        let batch = format!("RESTORE VERIFYONLY FROM DISK = 'a.bak' WITH {moves}");
        numbers(&run(&mut session, &batch))
    };
    assert_eq!(verify("MOVE 'shop.db' TO '/nowhere/x.db'"), [3262]);
    assert_eq!(verify("MOVE 'other' TO 'x.db'"), [3234, 3013]);
    assert_eq!(
        verify("MOVE 'shop' TO 'x.db', MOVE 'shop.db' TO 'y.db'"),
        [4353, 3013]
    );
}

#[test]
fn a_device_that_cannot_be_made_and_one_that_is_not_there_differ_in_state() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut state = |batch: &str| {
        let record = run(&mut session, batch);
        let first = record.messages().next().unwrap();
        (first.number, first.state)
    };
    // No directory can be made there.
    let nowhere = "/proc/nowhere/a.bak";
    let backup = format!("BACKUP DATABASE shop TO DISK = '{nowhere}'");
    assert_eq!(state(&backup), (3201, 1));
    let restore = format!("RESTORE HEADERONLY FROM DISK = '{nowhere}'");
    assert_eq!(state(&restore), (3201, 2));
    // Below a directory that is there, BACKUP makes others.
    let below = stage.path("new/deep/a.bak");
    let backup = format!("BACKUP DATABASE shop TO DISK = '{}'", below.display());
    assert!(!numbers(&run(&mut session, &backup)).contains(&3013));
    assert!(below.exists());
}

#[test]
fn history_is_deleted_by_age_and_by_database_and_media_stay() {
    let stage = Stage::new();
    let mut session = stage.session();
    for device in ["a.bak", "b.bak"] {
        run(
            &mut session,
            &format!("BACKUP DATABASE shop TO DISK = '{device}'"),
        );
    }
    let restored = format!(
        "RESTORE DATABASE copy FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO '{}'",
        stage.path("copy.db").display()
    );
    assert!(!numbers(&run(&mut session, &restored)).contains(&3013));
    let counts = |session: &mut Session| {
        [
            "backupset",
            "backupfile",
            "backupmediafamily",
            "restorehistory",
        ]
        .map(|table| value(session, &format!("SELECT COUNT(*) FROM msdb.dbo.{table}")))
        .join(" ")
    };
    assert_eq!(counts(&mut session), "2 2 2 1");
    let said = |session: &mut Session, batch: &str| numbers(&run(session, batch));
    let none: [u32; 0] = [];
    for batch in [
        "EXEC msdb.dbo.sp_delete_backuphistory '2001-01-01'",
        "EXEC msdb..sp_delete_backuphistory @oldest_date = NULL",
        "EXEC sp_delete_database_backuphistory 'nobody'",
    ] {
        assert_eq!(said(&mut session, batch), none, "{batch}");
    }
    assert_eq!(said(&mut session, "EXEC sp_delete_backuphistory"), [201]);
    assert_eq!(
        said(&mut session, "EXEC sp_delete_backuphistory 'long ago'"),
        [8114]
    );
    let wrong = "EXEC sp_delete_backuphistory @before = '2001-01-01'";
    assert_eq!(said(&mut session, wrong), [8145]);
    // Nothing could be rolled back.
    let inside = "BEGIN TRAN; EXEC sp_delete_database_backuphistory 'shop'; ROLLBACK";
    assert_eq!(said(&mut session, inside), [50000]);
    assert_eq!(counts(&mut session), "2 2 2 1");

    let by_age = "DECLARE @d datetime = DATEADD(day, 1, GETDATE()), @r int;
        EXEC @r = msdb.dbo.sp_delete_backuphistory @oldest_date = @d; PRINT @r";
    assert_eq!(said(&mut session, by_age), [0]);
    assert_eq!(counts(&mut session), "0 0 0 0");
    // The history is read from the media again.
    let load = "RESTORE VERIFYONLY FROM DISK = 'b.bak' WITH LOADHISTORY";
    run(&mut session, load);
    assert_eq!(counts(&mut session), "1 1 1 0");
    let by_name = "EXEC msdb.dbo.sp_delete_database_backuphistory @database_name = N'SHOP'";
    assert_eq!(said(&mut session, by_name), none);
    assert_eq!(counts(&mut session), "0 0 0 0");
}

#[test]
fn a_restore_names_a_directory_that_is_there() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let missing = stage.path("nowhere");
    let restore = format!(
        "RESTORE DATABASE copied FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO '{}'",
        missing.join("x.db").display()
    );
    let record = run(&mut session, &restore);
    assert_eq!(
        numbers(&record),
        [5133, 3156, 3119, 3013],
        "{:?}",
        said(&record)
    );
    assert!(!missing.exists());
    std::fs::create_dir(&missing).unwrap();
    let record = run(&mut session, &restore);
    assert_eq!(numbers(&record).last(), Some(&3014), "{:?}", said(&record));
}

#[test]
fn rows_about_media_that_a_table_refuses_end_their_statement() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    run(&mut session, "CREATE TABLE #h (a int)");
    for (word, ended) in [
        ("HEADERONLY", "RESTORE HEADERONLY"),
        ("FILELISTONLY", "RESTORE FILELIST"),
        ("LABELONLY", "RESTORE LABELONLY"),
    ] {
        let batch = format!("INSERT #h EXEC ('RESTORE {word} FROM DISK = ''a.bak''')");
        let lines = said(&run(&mut session, &batch));
        let last = format!("3013 {ended} is terminating abnormally.");
        assert_eq!(lines.last(), Some(&last));
        assert_eq!(lines.len(), 2, "{lines:?}");
        let caught =
            format!("BEGIN TRY {batch} END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH");
        assert_eq!(said(&run(&mut session, &caught)), ["0 3013"]);
    }
}
