//! Goal: answers that scripts decide by are true, or NULL: comparisons with queries, rights, options, sizes, sessions, columns of
//! views that scripts filter by; and what is refused is refused when it is reached, by name.
//! Method: queries and scripts in one or two sessions of a server; what they say is compared with what SQL Server's
//! documentation says, or with the facts that the test made.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Stage, login, numbers, rows, run, said, value};
use longshore_pipeline::SourceSpec;
use longshore_tsql::{ClientLink, Login, Recorder, Session};

/// The rows of a query that succeeds, each as a text with bars.
fn shown(session: &mut Session, query: &str) -> Vec<String> {
    let record = run(session, query);
    assert!(
        record.messages().all(|m| !m.is_error()),
        "{query}: {:?}",
        said(&record)
    );
    rows(&record).into_iter().map(|r| r.join("|")).collect()
}

/// The line of a refusal by name.
fn refused(what: &str) -> String {
    format!("50002 {what} is not part of the language that this server understands.")
}

/// The beginnings of statements on which others may depend: nothing runs after their refusal.
const DECIDES: &[&str] = &[
    "ALTER DATABASE",
    "BEGIN DISTRIBUTED",
    "DECLARE",
    "DELETE",
    "EXECUTE AS",
    "INSERT",
    "SELECT",
    "SETUSER",
    "SET @",
    "UPDATE",
];

#[test]
fn a_value_is_in_a_query_of_another_type_as_in_a_list() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (condition, expected) in [
        ("5 IN (SELECT value FROM STRING_SPLIT('5,6', ','))", "1"),
        ("5 NOT IN (SELECT value FROM STRING_SPLIT('5,6', ','))", "0"),
        ("7 NOT IN (SELECT value FROM STRING_SPLIT('5,6', ','))", "1"),
        ("'6' IN (SELECT database_id FROM sys.databases)", "0"),
        ("'5' IN (SELECT database_id FROM sys.databases)", "1"),
        (
            "CAST('2026-03-01' AS date) IN (SELECT CAST('20260301' AS datetime))",
            "1",
        ),
        (
            "CAST('2026-03-01' AS date) NOT IN (SELECT CAST('20260301' AS datetime))",
            "0",
        ),
        (
            "CAST('2026-03-01' AS date) IN (SELECT CAST('20260301 10:00' AS datetime))",
            "0",
        ),
        (
            "CAST('2026-03-01 10:00 +02:00' AS datetimeoffset) IN (SELECT CAST('2026-03-01 08:00 +00:00' AS datetimeoffset))",
            "1",
        ),
        ("'SHOP' IN (SELECT name FROM sys.databases)", "1"),
        (
            "'SHOP' COLLATE Latin1_General_BIN IN (SELECT name FROM sys.databases)",
            "0",
        ),
        (
            "'SHOP' IN (SELECT name COLLATE Latin1_General_BIN FROM sys.databases)",
            "0",
        ),
        (
            "'shop' IN (SELECT (name COLLATE Latin1_General_BIN) AS n FROM sys.databases)",
            "1",
        ),
        (
            "'SHOP' = ANY (SELECT name COLLATE Latin1_General_BIN FROM sys.databases UNION ALL SELECT 'x')",
            "0",
        ),
        (
            "'SHOP' NOT IN (SELECT name COLLATE Latin1_General_BIN FROM sys.databases)",
            "1",
        ),
        ("5 IN (SELECT NULL)", "0"),
        ("5 NOT IN (SELECT NULL)", "0"),
    ] {
        let query = format!("SELECT CASE WHEN {condition} THEN 1 ELSE 0 END");
        assert_eq!(value(&mut session, &query), expected, "{condition}");
    }
    // A subquery that names a column of the query around it.
    let query = "SELECT name FROM sys.databases d WHERE d.database_id IN \
                 (SELECT value FROM STRING_SPLIT('5,6', ',') WHERE value = d.database_id)";
    assert_eq!(shown(&mut session, query), ["shop"]);
}

#[test]
fn a_culture_other_than_english_is_refused_by_name() {
    let stage = Stage::new();
    let mut session = stage.session();
    for culture in ["'en-US'", "'EN-us'", "NULL"] {
        let query = format!("SELECT FORMAT(1234.5, 'N1', {culture})");
        assert_eq!(value(&mut session, &query), "1,234.5", "{culture}");
    }
    let record = run(&mut session, "SELECT FORMAT(1234.5, 'N1', 'de-DE')");
    assert_eq!(said(&record), [refused("FORMAT with the culture de-DE")]);
    let record = run(
        &mut session,
        "DECLARE @c varchar(9) = 'fr-FR' SELECT FORMAT(GETDATE(), 'd', @c)",
    );
    assert_eq!(said(&record), [refused("FORMAT with the culture fr-FR")]);
}

#[test]
fn rights_users_and_options_are_those_of_the_session() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, expected) in [
        ("SELECT HAS_DBACCESS('nowhere')", "NULL"),
        ("SELECT HAS_DBACCESS('SHOP')", "1"),
        ("SELECT USER_NAME()", "dbo"),
        ("SELECT CURRENT_USER", "dbo"),
        ("SELECT SESSION_USER", "dbo"),
        ("SELECT USER", "dbo"),
        ("SELECT SYSTEM_USER", "ada"),
        ("SELECT SUSER_SNAME()", "ada"),
        ("SELECT IS_SRVROLEMEMBER('sysadmin')", "1"),
        ("SELECT IS_SRVROLEMEMBER('nonsense')", "NULL"),
        ("SELECT IS_MEMBER('DB_OWNER')", "1"),
        ("SELECT IS_MEMBER('db_denydatawriter')", "0"),
        ("SELECT IS_MEMBER('nonsense')", "NULL"),
        // A login that is known, one that is not, and the owner of the databases.
        ("SELECT IS_SRVROLEMEMBER('sysadmin', 'GRACE')", "1"),
        ("SELECT IS_SRVROLEMEMBER('sysadmin', 'ada')", "1"),
        ("SELECT IS_SRVROLEMEMBER('sysadmin', 'sa')", "1"),
        ("SELECT IS_SRVROLEMEMBER('sysadmin', 'nobody')", "NULL"),
        ("SELECT IS_SRVROLEMEMBER('nonsense', 'ada')", "NULL"),
        ("SELECT IS_SRVROLEMEMBER('sysadmin', NULL)", "NULL"),
        (
            "SELECT COUNT(IS_SRVROLEMEMBER('sysadmin', n)) FROM (VALUES ('ada'), ('nobody')) v (n)",
            "1",
        ),
        // A login is no user of a database: each is dbo there.
        ("SELECT IS_ROLEMEMBER('db_owner', 'dbo')", "1"),
        ("SELECT IS_ROLEMEMBER('db_denydatareader', 'DBO')", "0"),
        ("SELECT IS_ROLEMEMBER('db_owner', 'ada')", "NULL"),
        ("SELECT IS_ROLEMEMBER('db_owner', 'guest')", "0"),
        ("SELECT IS_ROLEMEMBER('public', 'guest')", "1"),
        ("SELECT IS_ROLEMEMBER('db_owner', 'db_datareader')", "0"),
        ("SELECT IS_ROLEMEMBER('nonsense', 'dbo')", "NULL"),
        ("SELECT IS_ROLEMEMBER('nonsense')", "NULL"),
        (
            "SELECT HAS_PERMS_BY_NAME('shop', 'DATABASE', 'BACKUP DATABASE', NULL, NULL)",
            "1",
        ),
        ("SELECT @@OPTIONS", "5496"),
        (
            "SET NOCOUNT ON; SET XACT_ABORT ON; SELECT @@OPTIONS & 16896",
            "16896",
        ),
        (
            "SET NOCOUNT OFF; SET XACT_ABORT OFF; SELECT @@OPTIONS",
            "5496",
        ),
        ("SET QUOTED_IDENTIFIER OFF; SELECT @@OPTIONS & 256", "0"),
        ("SET ANSI_NULL_DFLT_OFF ON; SELECT @@OPTIONS & 3072", "2048"),
        ("SELECT @@LOCK_TIMEOUT", "-1"),
        // The first of March 2026 was a Sunday.
        ("SELECT DATEPART(weekday, '20260301')", "1"),
        ("SELECT DATEPART(week, '20260301')", "10"),
        ("SET DATEFIRST 1; SELECT @@DATEFIRST", "1"),
        ("SELECT DATEPART(weekday, '20260301')", "7"),
        ("SELECT DATEPART(week, '20260301')", "9"),
        ("SELECT DATEPART(week, '20260101')", "1"),
        ("SELECT DATEPART(week, '20260105')", "2"),
        ("SELECT DATENAME(weekday, '20260301')", "Sunday"),
        (
            "SELECT CONVERT(char(10), DATETRUNC(week, CAST('20260301' AS date)), 23)",
            "2026-02-23",
        ),
        (
            "SET DATEFIRST 7 SELECT CONVERT(char(10), DATETRUNC(week, CAST('20260303' AS date)), 23)",
            "2026-03-01",
        ),
        (
            "SET DATEFIRST 3 SELECT CONVERT(char(10), DATETRUNC(week, CAST('20260303' AS date)), 23)",
            "2026-02-25",
        ),
        (
            "SELECT CONVERT(char(10), DATETRUNC(iso_week, CAST('20260303' AS date)), 23)",
            "2026-03-02",
        ),
        (
            "DECLARE @d int = 7 SET DATEFIRST @d SELECT @@DATEFIRST",
            "7",
        ),
        ("SET LOCK_TIMEOUT 1800; SELECT @@LOCK_TIMEOUT", "1800"),
        // An option that a procedure sets ends with it.
        ("EXEC('SET LOCK_TIMEOUT 5'); SELECT @@LOCK_TIMEOUT", "1800"),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
    session.reset(false);
    assert_eq!(value(&mut session, "SELECT @@LOCK_TIMEOUT"), "-1");
    assert_eq!(value(&mut session, "SELECT @@OPTIONS"), "5496");
}

#[test]
fn a_size_that_is_not_known_is_null() {
    let mut stage = Stage::new();
    let tree = stage.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("big"), vec![7; 300_000]).unwrap();
    stage.more = vec![("tree", SourceSpec::Files(vec![tree]))];
    let mut session = stage.session();
    let sizes = "SELECT d.name, f.size FROM sys.databases d JOIN sys.master_files f ON f.database_id = d.database_id \
                 WHERE f.type = 0 ORDER BY d.name";
    let pages = std::fs::metadata(stage.path("shop.db")).unwrap().len() / 8192;
    let sizes = shown(&mut session, sizes);
    let size = sizes[0].strip_prefix("shop|").unwrap();
    assert!(size.parse::<u64>().unwrap() >= pages, "{sizes:?}");
    assert_eq!(sizes[1], "tree|NULL");
    let helped = shown(&mut session, "EXEC sp_helpdb");
    let of = |name: &str| helped.iter().find(|row| row.starts_with(name)).unwrap();
    assert!(of("tree").starts_with("tree|NULL|"), "{helped:?}");
    assert!(of("shop").contains(" MB|"), "{helped:?}");
    assert!(
        !helped.iter().any(|row| row.contains(" 0.00 MB")),
        "{helped:?}"
    );
    let used = shown(&mut session, "USE tree; EXEC sp_spaceused");
    assert_eq!(used[0], "tree|NULL|NULL");
    assert_eq!(used[1], "NULL|NULL|NULL|NULL");
}

#[test]
fn files_and_devices_are_helped_with() {
    let stage = Stage::new();
    let mut session = stage.session();
    let of_database = shown(&mut session, "EXEC sp_helpdb 'shop'");
    let [database, file, log] = of_database.as_slice() else {
        panic!("{of_database:?}");
    };
    assert!(database.starts_with("shop|"), "{database}");
    assert!(file.starts_with("shop.db|1|"), "{file}");
    assert!(file.ends_with("|Unlimited|0 KB|data only"), "{file}");
    let own = shown(&mut session, "USE shop; EXEC sp_helpfile");
    assert_eq!(own, [file.as_str(), log.as_str()]);
    assert!(
        log.starts_with("shop.db_log|2|") && log.ends_with("|log only"),
        "{log}"
    );
    assert_eq!(
        shown(&mut session, "EXEC sp_helpfile 'shop.db'"),
        [file.as_str()]
    );
    let record = run(&mut session, "EXEC sp_helpfile 'other'");
    assert_eq!(numbers(&record), [15325]);
    shown(
        &mut session,
        "EXEC sp_addumpdevice 'disk', 'nightly', 'nightly.bak'",
    );
    let devices = shown(&mut session, "EXEC sp_helpdevice");
    assert_eq!(devices.len(), 1);
    assert!(devices[0].starts_with("nightly|"), "{devices:?}");
    let older = shown(
        &mut session,
        "SELECT name, cntrltype FROM master..sysdevices",
    );
    assert_eq!(older, ["nightly|2"]);
    let older = shown(&mut session, "SELECT name, dbid FROM master..sysaltfiles");
    assert_eq!(older, ["shop.db|5"]);
    assert_eq!(
        shown(&mut session, "SELECT fileid, name FROM sysfiles"),
        ["1|shop.db"]
    );
}

#[test]
fn sessions_say_who_they_are_and_what_they_do() {
    let stage = Stage::new();
    let server = stage.server();
    let mut first = Session::new(server.clone(), login());
    let grace = Login {
        user: "grace".into(),
        host: "lab".into(),
        program: "tool".into(),
    };
    let mut second = Session::new(server, grace);
    let connection = ClientLink {
        client: "192.0.2.7".into(),
        client_port: 50_000,
        local: "192.0.2.1".into(),
        local_port: 1433,
        encrypted: true,
        packet_len: 4096,
    };
    second.connect(connection, Arc::new(|| {}));
    shown(
        &mut second,
        "USE shop; BEGIN TRAN; SET LOCK_TIMEOUT 7; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    );
    let asked = "SELECT s.session_id - @@SPID, s.login_name, s.host_name, s.program_name, s.status, DB_NAME(s.database_id), \
                 s.open_transaction_count, s.lock_timeout, s.transaction_isolation_level \
                 FROM sys.dm_exec_sessions s ORDER BY s.session_id";
    assert_eq!(
        shown(&mut first, asked),
        [
            "0|ada|desk|test|running|master|0|-1|2",
            "1|grace|lab|tool|sleeping|shop|1|7|4"
        ]
    );
    let asked = "SELECT c.session_id - @@SPID, c.net_transport, c.client_net_address, c.encrypt_option \
                 FROM sys.dm_exec_connections c ORDER BY c.session_id";
    assert_eq!(
        shown(&mut first, asked),
        ["0|NULL|NULL|NULL", "1|TCP|192.0.2.7|TRUE"]
    );
    // Each began when it did: not when the server began.
    let asked = "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE login_time <= GETDATE() AND last_request_start_time >= login_time";
    assert_eq!(value(&mut first, asked), "2");
    let who = shown(&mut first, "EXEC sp_who");
    assert_eq!(who.len(), 2);
    assert!(
        who[0].ends_with("|runnable|ada|desk|0    |master|EXECUTE|0"),
        "{who:?}"
    );
    assert!(
        who[1].ends_with("|sleeping|grace|lab|0    |shop|AWAITING COMMAND|0"),
        "{who:?}"
    );
    assert_eq!(shown(&mut first, "EXEC sp_who 'grace'").len(), 1);
    assert_eq!(shown(&mut first, "EXEC sp_who2 'active'").len(), 1);
    let record = run(&mut first, "EXEC sp_who 'nobody'");
    assert_eq!(numbers(&record), [15007]);
    let older = shown(
        &mut first,
        "SELECT loginame, status, cmd FROM master..sysprocesses ORDER BY spid",
    );
    assert_eq!(older[1], "grace|sleeping|AWAITING COMMAND");
    drop(second);
    assert_eq!(
        value(&mut first, "SELECT COUNT(*) FROM sys.dm_exec_sessions"),
        "1"
    );
}

#[test]
fn kill_ends_a_session_and_none_of_its_own() {
    let stage = Stage::new();
    let server = stage.server();
    let mut first = Session::new(server.clone(), login());
    let mut second = Session::new(server, login());
    let (own, other) = (first.id(), second.id());
    let kill = |session: &mut Session, batch: String| numbers(&run(session, &batch));
    assert_eq!(kill(&mut first, format!("KILL {own}")), [6104]);
    assert_eq!(kill(&mut first, "KILL 999".into()), [6106]);
    assert_eq!(kill(&mut first, "KILL 1".into()), [6107]);
    for invalid in ["0", "-5", "32768"] {
        assert_eq!(kill(&mut first, format!("KILL {invalid}")), [6101]);
    }
    let unknown = run(&mut first, "KILL 999");
    assert_eq!(unknown.messages().next().unwrap().state, 2);
    assert_eq!(
        kill(&mut first, format!("BEGIN TRAN; KILL {other}; ROLLBACK")),
        [6115]
    );
    assert_eq!(
        kill(&mut first, format!("KILL {other} WITH STATUSONLY")),
        [6120]
    );
    let hung = Arc::new(AtomicBool::new(false));
    let tells = hung.clone();
    let connection = ClientLink {
        client: "192.0.2.7".into(),
        client_port: 1,
        local: "192.0.2.1".into(),
        local_port: 2,
        encrypted: false,
        packet_len: 4096,
    };
    second.connect(
        connection,
        Arc::new(move || tells.store(true, Ordering::Relaxed)),
    );
    assert_eq!(kill(&mut first, format!("KILL {other}")), Vec::<u32>::new());
    assert!(hung.load(Ordering::Relaxed), "its client waits for nothing");
    // Its owner clears the flag of a cancel before the next batch, as a server does; the session ends all the same.
    second.cancel_flag().store(false, Ordering::Relaxed);
    let mut record = Recorder::default();
    let outcome = second.run("PRINT 'still here'", &mut record).unwrap();
    assert!(outcome.ended);
    assert_eq!(numbers(&record), [596]);
}

#[test]
fn a_running_session_ends_its_statement_when_it_is_killed() {
    let stage = Stage::new();
    let server = stage.server();
    let mut first = Session::new(server.clone(), login());
    let mut second = Session::new(server, login());
    let other = second.id();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut record = Recorder::default();
            let outcome = second
                .run("WAITFOR DELAY '01:00:00'; PRINT 'on'", &mut record)
                .unwrap();
            (outcome.ended, numbers(&record))
        });
        let is_running = format!(
            "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE session_id = {other} AND status = 'running'"
        );
        while value(&mut first, &is_running) != "1" {
            std::thread::yield_now();
        }
        assert_eq!(
            numbers(&run(&mut first, &format!("KILL {other}"))),
            Vec::<u32>::new()
        );
        let (ended, said) = waits.join().unwrap();
        assert!(ended);
        assert_eq!(said.last(), Some(&596), "{said:?}");
    });
}

#[test]
fn filters_on_the_properties_of_databases_keep_their_rows() {
    let stage = Stage::new();
    let mut session = stage.session();
    for condition in [
        "is_trustworthy_on = 0",
        "is_db_chaining_on = 0",
        "is_auto_create_stats_on = 0",
        "is_query_store_on = 0",
        "is_read_committed_snapshot_on = 0",
        "is_fulltext_enabled = 0",
        "is_supplemental_logging_enabled = 0",
        "snapshot_isolation_state_desc = 'OFF'",
        "log_reuse_wait_desc = 'NOTHING'",
        "owner_sid = 0x01",
        "SUSER_SNAME(owner_sid) = 'sa'",
        "collation_name = SERVERPROPERTY('Collation')",
        "target_recovery_time_in_seconds = 0",
        "delayed_durability_desc = 'DISABLED'",
    ] {
        let query =
            format!("SELECT COUNT(*) FROM sys.databases WHERE name = 'shop' AND {condition}");
        assert_eq!(value(&mut session, &query), "1", "{condition}");
    }
    let query = "SELECT DATABASEPROPERTY('shop', 'IsOffline'), DATABASEPROPERTY('shop', 'IsTruncLog'), \
                 DATABASEPROPERTY('nowhere', 'IsOffline'), DATABASEPROPERTYEX('shop', 'IsAutoUpdateStatistics')";
    assert_eq!(value(&mut session, query), "0|1|NULL|0");
    for name in ["logmarkhistory", "backupfilegroup", "restorefilegroup"] {
        let query = format!("SELECT COUNT(*) FROM msdb.dbo.{name}");
        assert_eq!(value(&mut session, &query), "0");
    }
}

#[test]
fn functions_of_the_server_take_expressions_and_columns() {
    let stage = Stage::new();
    let mut session = stage.session();
    shown(
        &mut session,
        "USE shop; CREATE TABLE note (id int PRIMARY KEY, text nvarchar(20))",
    );
    shown(&mut session, "CREATE TABLE #kept (a int)");
    for (query, expected) in [
        (
            "DECLARE @b varchar(9) = 'te' SELECT SIGN(OBJECT_ID('no' + @b))",
            "1",
        ),
        (
            "SELECT SIGN(OBJECT_ID(QUOTENAME('dbo') + '.' + QUOTENAME('note'), 'U'))",
            "1",
        ),
        ("SELECT OBJECT_ID('no' + 'thing')", "NULL"),
        (
            "DECLARE @t varchar(9) = '#kept' SELECT CASE WHEN OBJECT_ID('tempdb..' + @t) IS NULL THEN 0 ELSE 1 END",
            "1",
        ),
        ("SELECT COL_LENGTH('no' + 'te', UPPER('text'))", "40"),
        ("SELECT DB_ID('sh' + 'op')", "5"),
        (
            "SELECT SERVERPROPERTY('Product' + 'Version')",
            "16.0.4236.2",
        ),
        (
            "SELECT COUNT(*) FROM sys.tables t WHERE OBJECT_ID('dbo.' + t.name) = t.object_id",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM sys.tables t WHERE OBJECT_ID(DB_NAME() + '..' + t.name, 'U') = t.object_id",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM sys.tables t WHERE OBJECT_ID(t.name, 'P') IS NULL",
            "1",
        ),
        (
            "SELECT COL_LENGTH('dbo.' + t.name, c.name) FROM sys.tables t JOIN sys.columns c ON c.object_id = t.object_id \
             WHERE c.name = 'text'",
            "40",
        ),
        (
            "SELECT COUNT(*) FROM sys.databases WHERE HAS_DBACCESS(name) = 1 AND name = 'shop'",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM sys.databases WHERE sys.fn_hadr_backup_is_preferred_replica(name) = 1 AND name = 'shop'",
            "1",
        ),
        (
            "SELECT SERVERPROPERTY(p) FROM (VALUES ('EngineEdition')) AS v (p)",
            "3",
        ),
        (
            "SELECT SERVERPROPERTY(p) FROM (VALUES ('nonsense')) AS v (p)",
            "NULL",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
    // A variable that the same SELECT sets has another value in each row.
    let query = "DECLARE @n varchar(20) = 'x' SELECT @n = name, @n = CAST(OBJECT_ID(@n) AS varchar(20)) FROM sys.tables \
                 SELECT SIGN(CAST(@n AS int))";
    assert_eq!(value(&mut session, query), "1");
}

#[test]
fn hints_stand_behind_a_name_without_with() {
    let stage = Stage::new();
    let mut session = stage.session();
    for query in [
        "SELECT COUNT(*) FROM sys.databases (NOLOCK) WHERE name = 'shop'",
        "SELECT COUNT(*) FROM sys.databases (NOLOCK) AS d WHERE d.name = 'shop'",
        "SELECT COUNT(*) FROM sys.databases d (NOLOCK) WHERE d.name = 'shop'",
        "SELECT COUNT(*) FROM master.sys.databases WITH (NOLOCK) WHERE name = 'shop'",
        "SELECT COUNT(*) + 1 FROM msdb.dbo.backupset (NOLOCK)",
        "SELECT COUNT(*) + 1 FROM msdb.dbo.backupset (NOLOCK, READUNCOMMITTED) b \
         JOIN msdb.dbo.backupmediafamily (nolock) m ON m.media_set_id = b.media_set_id",
    ] {
        assert_eq!(value(&mut session, query), "1", "{query}");
    }
}

/// Whether the statement is refused when it is reached, with what it is called.
fn is_refused_alone(session: &mut longshore_tsql::Session, statement: &str, what: &str) {
    // The statements around it run, with a blank or a semicolon between them; but not after one on which they may depend.
    let decides = DECIDES.iter().any(|begin| statement.starts_with(begin));
    let decides = decides && !statement.starts_with("UPDATE STATISTICS");
    for between in [" ", "\n", ";\n"] {
        let batch = format!("PRINT 'before'{between}{statement}{between}PRINT 'after'");
        let record = run(session, &batch);
        let mut expected = vec!["0 before".to_owned(), refused(what)];
        if !decides {
            expected.push("0 after".to_owned());
        }
        assert_eq!(said(&record), expected, "{batch}");
    }
    // A branch that is not taken does nothing, and CATCH has what is.
    let branch = format!("IF 1 = 0 BEGIN {statement} END PRINT 'on'");
    assert_eq!(said(&run(session, &branch)), ["0 on"], "{branch}");
    let tries = format!(
        "BEGIN TRY {statement} PRINT 'not here' END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH"
    );
    assert_eq!(said(&run(session, &tries)), ["0 50002"], "{tries}");
}

#[test]
fn a_refused_statement_is_refused_when_it_is_reached() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, what) in [
        ("GRANT SELECT ON dbo.t TO someone", "GRANT"),
        ("DENY INSERT, UPDATE ON dbo.t TO someone", "DENY"),
        ("REVOKE EXECUTE ON p FROM someone", "REVOKE"),
        ("CHECKPOINT", "CHECKPOINT"),
        ("SHUTDOWN WITH NOWAIT", "SHUTDOWN"),
        ("REVERT", "REVERT"),
        (
            "ALTER DATABASE shop SET RECOVERY FULL WITH NO_WAIT",
            "ALTER DATABASE … SET RECOVERY",
        ),
        (
            "ALTER DATABASE shop SET OFFLINE WITH ROLLBACK IMMEDIATE",
            "ALTER DATABASE … SET OFFLINE",
        ),
        (
            "ALTER DATABASE shop SET READ_ONLY",
            "ALTER DATABASE … SET READ_ONLY",
        ),
        (
            "ALTER DATABASE shop MODIFY FILE (NAME = a, SIZE = 5MB)",
            "ALTER DATABASE … MODIFY",
        ),
        (
            "ALTER INDEX ALL ON dbo.t REBUILD WITH (ONLINE = ON)",
            "ALTER INDEX",
        ),
        ("UPDATE STATISTICS dbo.t WITH FULLSCAN", "UPDATE STATISTICS"),
        ("CREATE STATISTICS s ON t (a)", "CREATE STATISTICS"),
        (
            "CREATE LOGIN x WITH PASSWORD = 'verysecret'",
            "CREATE LOGIN",
        ),
        ("ALTER ROLE db_owner DROP MEMBER x", "ALTER ROLE"),
        (
            "ALTER SERVER ROLE sysadmin ADD MEMBER x",
            "ALTER SERVER ROLE",
        ),
        (
            "ALTER SERVER CONFIGURATION SET PROCESS AFFINITY CPU = AUTO",
            "ALTER SERVER CONFIGURATION",
        ),
        (
            "ALTER AUTHORIZATION ON DATABASE::shop TO sa",
            "ALTER AUTHORIZATION",
        ),
        ("DROP USER IF EXISTS x", "DROP USER"),
        ("BEGIN DISTRIBUTED TRAN", "BEGIN DISTRIBUTED TRANSACTION"),
        (
            "EXEC ('SELECT 1') AT other",
            "EXECUTE (…) AT another server",
        ),
        ("EXEC ('SELECT 1') AS USER = 'x'", "EXECUTE (…) AS USER"),
        ("EXECUTE AS LOGIN = 'x' WITH NO REVERT", "EXECUTE AS LOGIN"),
        ("BULK INSERT t FROM 'f' WITH (FIRSTROW = 2)", "BULK"),
        (
            "UPDATE t SET a = 1 WHERE CURRENT OF c",
            "UPDATE … WHERE CURRENT OF",
        ),
        (
            "DELETE FROM t WHERE CURRENT OF c",
            "DELETE … WHERE CURRENT OF",
        ),
        (
            "DECLARE c CURSOR FOR SELECT name FROM sys.databases FOR UPDATE OF name",
            "DECLARE CURSOR … FOR UPDATE",
        ),
        ("DBCC FREESYSTEMCACHE ('ALL')", "DBCC FREESYSTEMCACHE"),
        ("DBCC PAGE ('shop', 1, 0, 3)", "DBCC PAGE"),
        ("DBCC DBINFO WITH TABLERESULTS", "DBCC DBINFO"),
        ("EXEC sp_xml_preparedocument 1", "sp_xml_preparedocument"),
        ("SELECT * FROM master..syslogins", "master..syslogins"),
        ("SELECT * FROM sysindexes", "sysindexes"),
        ("SELECT 1 OPTION (LABEL = 'x')", "OPTION (LABEL = 'X')"),
    ] {
        is_refused_alone(&mut session, statement, what);
    }
    // These take all of their batch.
    for statement in [
        "CREATE TRIGGER x ON t AFTER INSERT AS BEGIN SELECT 1; PRINT 'no' END",
        "CREATE SCHEMA s AUTHORIZATION dbo CREATE TABLE t (a int)",
        "CREATE PROCEDURE p WITH ENCRYPTION AS SELECT 1; PRINT 'no'",
    ] {
        assert_eq!(
            numbers(&run(&mut session, statement)),
            [50002],
            "{statement}"
        );
    }
    // `@@ERROR` is that of the refusal.
    let record = run(&mut session, "CHECKPOINT; PRINT @@ERROR");
    assert_eq!(said(&record)[1], "0 50002");
}

/// Goal: a refusal whose end cannot be told is found once, and not once more for each block around it: the time would double with each.
#[test]
fn a_refusal_deep_in_blocks_takes_no_time_of_its_own() {
    let stage = Stage::new();
    let mut session = stage.session();
    let merge = "MERGE t WITH (FORCESEEK) USING s ON 1 = 1 WHEN MATCHED THEN DELETE;";
    for block in ["BEGIN ", "BEGIN TRY ", "IF 1 = 1 ", "WHILE 1 = 1 "] {
        let batch = format!("{}{merge}", block.repeat(60));
        assert_eq!(numbers(&run(&mut session, &batch)), [50002], "{block}");
    }
}

#[test]
fn nothing_runs_after_a_guard_that_is_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    let backup = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH FORMAT";
    assert!(!numbers(&run(&mut session, backup)).contains(&50002));
    let restore = "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE";
    let guard = "EXISTS (SELECT * FROM master..syslogins)";
    for batch in [
        format!("IF {guard} RETURN {restore}"),
        format!("IF {guard} BEGIN PRINT 'no' RETURN END {restore}"),
        format!("IF 1 = 1 BEGIN IF {guard} RETURN END {restore}"),
        format!("WHILE {guard} BREAK {restore}"),
        format!(
            "DECLARE @n int = (SELECT COUNT(*) FROM master..syslogins) IF @n > 0 RETURN {restore}"
        ),
        format!(
            "DECLARE @n int SET @n = (SELECT COUNT(*) FROM master..syslogins) IF @n > 0 RETURN {restore}"
        ),
        format!(
            "DECLARE @n int SELECT @n = COUNT(*) FROM master..syslogins IF @n > 0 RETURN {restore}"
        ),
        format!(
            "DECLARE @t TABLE (a int) INSERT @t SELECT 1 FROM master..syslogins IF EXISTS (SELECT * FROM @t) RETURN {restore}"
        ),
        format!("SET DATEFORMAT dmm {restore}"),
        format!("SET LANGUAGE Deutsch {restore}"),
        format!("DECLARE @rc int EXEC @rc = sp_help 'x' IF @rc < 0 RETURN {restore}"),
        // A text, and what calls it.
        format!("EXEC ('IF {guard} RETURN') {restore}"),
        format!("EXECUTE AS LOGIN = 'reader' {restore}"),
        format!("BEGIN DISTRIBUTED TRAN {restore}"),
        format!("ALTER DATABASE shop SET READ_ONLY {restore}"),
        format!("IF 1 = 1 ALTER DATABASE shop SET AUTO_CLOSE ON\nELSE {restore}"),
    ] {
        assert_eq!(numbers(&run(&mut session, &batch)), [50002], "{batch}");
    }
    let two = format!("CHECKPOINT\nSETUSER 'reader'\n{restore}");
    assert_eq!(numbers(&run(&mut session, &two)), [50002, 50002]);
    // A statement that is absent decides nothing, nor does the one around it; and CATCH has the refusal.
    for batch in [
        "IF 1 = 1 CHECKPOINT\nPRINT 'on'",
        "IF 1 = 1 BEGIN GRANT SELECT ON t TO x\nEND\nPRINT 'on'",
        "EXEC ('CHECKPOINT')\nPRINT 'on'",
        "UPDATE STATISTICS t WITH FULLSCAN\nPRINT 'on'",
    ] {
        assert_eq!(numbers(&run(&mut session, batch)), [50002, 0], "{batch}");
    }
    let tries = format!(
        "BEGIN TRY IF {guard} RETURN END TRY BEGIN CATCH PRINT 'caught' END CATCH PRINT 'on'"
    );
    assert_eq!(said(&run(&mut session, &tries)), ["0 caught", "0 on"]);
    // The next batch runs.
    assert_eq!(said(&run(&mut session, "PRINT 'next'")), ["0 next"]);
}

#[test]
fn what_follows_a_refused_statement_runs_and_does_not_run_twice() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (batch, expected) in [
        (
            "DECLARE @i int = 0 WHILE @i < 2 BEGIN UPDATE STATISTICS t WITH FULLSCAN\nSET @i += 1 END PRINT @i",
            &[50002, 50002, 0][..],
        ),
        ("CHECKPOINT\nDROP CREDENTIAL nothing", &[50002, 15151]),
        (
            "CREATE QUEUE q WITH STATUS = ON\nEXEC nothing",
            &[50002, 2812],
        ),
        (
            "IF 1 = 0 CREATE QUEUE q WITH STATUS = ON\nELSE PRINT 'other'",
            &[0],
        ),
    ] {
        assert_eq!(numbers(&run(&mut session, batch)), expected, "{batch}");
    }
}

#[test]
fn a_session_s_options_are_seen_in_its_functions_and_by_others_at_once() {
    let stage = Stage::new();
    let mut session = stage.session();
    for made in [
        "CREATE FUNCTION dbo.day1() RETURNS int AS BEGIN RETURN @@DATEFIRST END",
        "CREATE FUNCTION dbo.days() RETURNS @t TABLE (d int) AS BEGIN INSERT @t VALUES (DATEPART(weekday, '20260301')) RETURN END",
        "CREATE FUNCTION dbo.same(@n int) RETURNS @t TABLE (d int) AS BEGIN INSERT @t VALUES (@n) RETURN END",
    ] {
        assert!(
            numbers(&run(&mut session, made)).iter().all(|n| *n == 0),
            "{made}"
        );
    }
    let asked = "SET DATEFIRST 1 SELECT dbo.day1(), d FROM dbo.days()";
    assert_eq!(shown(&mut session, asked), ["1|7"]);
    // An argument with the name of a hint is one.
    let asked = "SELECT x.d FROM (SELECT 5 AS Snapshot) s CROSS APPLY dbo.same(Snapshot) x";
    assert_eq!(shown(&mut session, asked), ["5"]);
    let own = "SELECT date_first, open_transaction_count FROM sys.dm_exec_sessions WHERE session_id = @@SPID";
    let asked = format!("SET DATEFIRST 2 BEGIN TRAN {own} ROLLBACK {own}");
    assert_eq!(shown(&mut session, &asked), ["2|1", "2|0"]);
    let asked = format!("EXEC ('SET DATEFIRST 5') {own}");
    assert_eq!(shown(&mut session, &asked), ["2|0"]);
}

#[test]
fn a_refused_statement_prints_as_it_was_and_without_its_secrets() {
    use longshore_tsql::syntax::parse;
    for batch in [
        "CREATE LOGIN x WITH PASSWORD = 'verysecret', CHECK_POLICY = OFF PRINT 'a'",
        "CREATE LOGIN x WITH PASSWORD = \"verysecret\", CHECK_POLICY = OFF",
        "CREATE LOGIN x WITH PASSWORD = 0x7665727973656372657421 HASHED",
        "CREATE TRIGGER x ON t AFTER INSERT AS SELECT 1;",
        "IF 1 = 1 CHECKPOINT ELSE GRANT ALTER ON SCHEMA::dbo TO x",
        "BEGIN TRY KILL 52 WITH STATUSONLY; KILL 53 END TRY BEGIN CATCH SHUTDOWN END CATCH",
    ] {
        let parsed = parse(batch).unwrap();
        let printed = parsed.to_string();
        assert!(
            !format!("{parsed:?}{printed}").contains("verysecret") && !printed.contains("0x"),
            "{printed}"
        );
        assert_eq!(parse(&printed).unwrap(), parsed, "{printed}");
    }
}

#[test]
fn a_refused_option_tells_its_reason() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, number, reason) in [
        (
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH METADATA_ONLY",
            3032,
            "no snapshot backups",
        ),
        (
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH FILE_SNAPSHOT",
            3032,
            "no snapshot backups",
        ),
        (
            "BACKUP DATABASE shop TO DISK = 'a.bak' MIRROR TO DISK = 'b.bak'",
            50000,
            "needs WITH FORMAT",
        ),
        (
            "BACKUP DATABASE shop FILE = 'x' TO DISK = 'a.bak'",
            3032,
            "backed up whole",
        ),
        (
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH PARTIAL",
            3032,
            "restored whole",
        ),
        (
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH STANDBY = 'u'",
            3032,
            "next log set",
        ),
        (
            "RESTORE DATABASE shop PAGE = '1:57' FROM DISK = 'a.bak'",
            3032,
            "pages are not restored one by one",
        ),
        (
            "RESTORE DATABASE shop FILEGROUP = 'x' FROM DISK = 'a.bak'",
            3032,
            "no filegroups",
        ),
    ] {
        let record = run(&mut session, statement);
        let said = said(&record);
        assert_eq!(
            numbers(&record).first(),
            Some(&number),
            "{statement}: {said:?}"
        );
        assert!(
            said.iter().any(|line| line.contains(reason)),
            "{statement}: {said:?}"
        );
    }
}

#[test]
fn changes_are_limited_by_rowcount_as_by_top() {
    let stage = Stage::new();
    let mut session = stage.session();
    let purge = "CREATE TABLE #log (a int IDENTITY (10, 5), b int); INSERT #log (b) VALUES (1), (2), (3), (4), (5);
         SELECT IDENT_CURRENT('tempdb..#log'), IDENT_SEED('#log'), IDENT_INCR('#log'), IDENT_CURRENT('nothing');
         SET ROWCOUNT 2 DECLARE @rounds int = 0
         WHILE 1 = 1 BEGIN DELETE FROM #log IF @@ROWCOUNT = 0 BREAK SET @rounds += 1 END
         INSERT #log (b) VALUES (6), (7) UPDATE #log SET b = 0
         SET ROWCOUNT 0 SELECT @rounds, COUNT(*), SUM(b) FROM #log";
    assert_eq!(shown(&mut session, purge), ["30|10|5|NULL", "3|2|0"]);
    for refused in [
        "INSERT #log (b) VALUES (1), (2), (3)",
        "INSERT #log (b) SELECT 1",
        "DELETE TOP (1) FROM #log",
    ] {
        let batch = format!("SET ROWCOUNT 2 {refused} SET ROWCOUNT 0");
        assert_eq!(numbers(&run(&mut session, &batch)), [50002], "{refused}");
    }
    assert_eq!(
        value(&mut session, "SELECT CONNECTIONPROPERTY('net_transport')"),
        "NULL"
    );
}

#[test]
fn values_of_two_types_meet_as_in_sql_server_or_are_refused_by_its_numbers() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, expected) in [
        ("SELECT CONVERT(varchar(9), 0x01 + 0x0203, 1)", "0x010203"),
        (
            "DECLARE @b varbinary(10) = 0xAB SELECT CONVERT(varchar(9), @b + 0xCD, 2)",
            "ABCD",
        ),
        (
            "SELECT DATENAME(tz, CAST('2027-01-31T10:00:00-02:30' AS datetimeoffset))",
            "-02:30",
        ),
        ("SELECT FORMAT(37.0 / 38, 'P')", "97.37 %"),
        ("SELECT FORMAT(2.5, 'N0')", "3"),
        (
            "SELECT FORMAT(9007199254740993, 'N0')",
            "9,007,199,254,740,993",
        ),
        ("SELECT FORMAT(1234567, '#,##0.00 MB')", "1,234,567.00 MB"),
        ("SELECT FORMAT(CAST('20260301' AS date), 'M')", "March 1"),
        ("SELECT FORMAT(1, 'z')", "NULL"),
        (
            "SELECT CAST(1 + CAST('20270131' AS datetime) AS date)",
            "2027-02-01",
        ),
        (
            "SELECT CAST(0x0102 AS uniqueidentifier)",
            "00000201-0000-0000-0000-000000000000",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
    for (batch, number) in [
        ("SELECT 'a' ORDER BY 2", 108),
        ("SELECT 'a' ORDER BY 0", 108),
        ("SELECT 'a' UNION SELECT 'b' ORDER BY 2", 108),
        ("SELECT CAST(200 AS tinyint) + CAST(100 AS tinyint)", 8115),
        ("SELECT CAST('70000' AS smallint)", 244),
        ("SELECT CAST('3000000000' AS int)", 248),
        ("SELECT CAST(1e10 AS int)", 232),
        ("SELECT CAST('x' AS bigint)", 8114),
        ("SELECT CAST(NEWID() AS int)", 529),
        ("DECLARE @d date = 5", 206),
        ("DECLARE @x varchar(9000)", 131),
        ("DECLARE @x decimal(5, 9)", 192),
        ("CREATE TABLE #w (a foo)", 2715),
        ("CREATE TABLE #w (a varchar(9000))", 131),
        ("SELECT FORMAT(-1, 'C')", 50002),
        ("SELECT dbo.nosuch(1)", 4121),
    ] {
        let more = format!("{batch}\nPRINT 'goes on'");
        let record = run(&mut session, &more);
        let first = numbers(&record).first().copied();
        assert_eq!(first, Some(number), "{batch}: {:?}", said(&record));
        let goes_on = said(&record).iter().any(|line| line.contains("goes on"));
        // Values, and columns of a new table, decide when a statement runs; names and types before.
        let by_value = [8115, 232, 2715].contains(&number);
        assert_eq!(goes_on, by_value, "{batch}: {:?}", said(&record));
    }
}

#[test]
fn a_column_that_is_added_with_values_fills_the_rows_that_are_there() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE #w (a int); INSERT #w VALUES (1), (2);
         ALTER TABLE #w ADD b int NULL DEFAULT 5 WITH VALUES;
         ALTER TABLE #w ADD c int NULL DEFAULT 6;
         ALTER TABLE #w ADD d uniqueidentifier NOT NULL DEFAULT NEWID();
         ALTER TABLE #w ADD CONSTRAINT six DEFAULT 7 FOR a WITH VALUES;
         INSERT #w (b) VALUES (9)",
    );
    assert_eq!(
        shown(&mut session, "SELECT a, b, c FROM #w ORDER BY b, a"),
        ["1|5|NULL", "2|5|NULL", "7|9|6"]
    );
    assert_eq!(value(&mut session, "SELECT COUNT(DISTINCT d) FROM #w"), "3");
    let refused = run(
        &mut session,
        "CREATE TABLE #v (a int DEFAULT 1 WITH VALUES)",
    );
    assert_eq!(numbers(&refused), [156]);
}

#[test]
fn views_about_tempdb_show_the_sessions_tables_and_decimals_are_decimals() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE #x (a int IDENTITY, b decimal(9, 2)); CREATE TABLE dbo.kept (a decimal(9, 2), b numeric(9, 2))",
    );
    for (query, expected) in [
        (
            "SELECT name, is_identity, TYPE_NAME(system_type_id) FROM tempdb.sys.columns WHERE object_id = OBJECT_ID('tempdb..#x')",
            vec!["a|1|int", "b|0|decimal"],
        ),
        (
            "SELECT name FROM tempdb.sys.tables WHERE name LIKE '#x%'",
            vec!["#x"],
        ),
        (
            "SELECT type FROM tempdb..sysobjects WHERE name LIKE '#x%'",
            vec!["U "],
        ),
        (
            "SELECT COUNT(*) FROM tempdb.sys.objects WHERE object_id = OBJECT_ID('tempdb..#x')",
            vec!["1"],
        ),
        (
            "SELECT COLUMN_NAME, DATA_TYPE FROM tempdb.INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME LIKE '#x%'",
            vec!["a|int", "b|decimal"],
        ),
        (
            "SELECT DATA_TYPE FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'kept'",
            vec!["decimal", "numeric"],
        ),
    ] {
        assert_eq!(shown(&mut session, query), expected, "{query}");
    }
    run(&mut session, "DROP TABLE #x");
    let left = "SELECT COUNT(*) FROM tempdb.sys.tables WHERE name LIKE '#x%'";
    assert_eq!(value(&mut session, left), "0");
}

#[test]
fn transactions_begin_and_end_where_sql_servers_do() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "CREATE TABLE dbo.k (i int)");
    let rows = "SELECT COUNT(*) FROM dbo.k";
    // A failed conversion takes back what the transaction has done.
    let failed = "BEGIN TRAN INSERT dbo.k VALUES (1) DECLARE @x int = 'abc' PRINT 'goes on'";
    assert_eq!(numbers(&run(&mut session, failed)), [245]);
    assert_eq!(value(&mut session, "SELECT @@TRANCOUNT"), "0");
    assert_eq!(value(&mut session, rows), "0");
    // A name that is not found leaves it open.
    let failed = "BEGIN TRAN INSERT dbo.k VALUES (1) SELECT nothing FROM dbo.missing";
    assert_eq!(numbers(&run(&mut session, failed)), [208]);
    assert_eq!(value(&mut session, "SELECT @@TRANCOUNT ROLLBACK"), "1");
    let implicit =
        "SET IMPLICIT_TRANSACTIONS ON INSERT dbo.k VALUES (7) SELECT @@TRANCOUNT ROLLBACK
         SET IMPLICIT_TRANSACTIONS OFF";
    assert_eq!(value(&mut session, implicit), "1");
    let long = run(
        &mut session,
        "DECLARE @v varchar(8000) = REPLICATE('x', 8000) PRINT @v PRINT N'é' + @v",
    );
    let lengths: Vec<usize> = said(&long)
        .iter()
        .map(|line| line.chars().count())
        .collect();
    assert_eq!(lengths, [8002, 4002]);
    let sequence = run(&mut session, "PRINT 'x' SELECT NEXT VALUE FOR dbo.s AS a");
    assert_eq!(
        said(&sequence),
        [String::from("0 x"), refused("NEXT VALUE FOR")]
    );
    assert_eq!(value(&mut session, rows), "0");
}

#[test]
fn a_parameter_of_a_batch_has_its_default_or_is_missing() {
    let stage = Stage::new();
    let mut session = stage.session();
    let with_default = "EXEC sp_executesql N'SELECT @x + @y', N'@x int = 5, @y int = 2', @y = 3";
    assert_eq!(value(&mut session, with_default), "8");
    let missing = run(
        &mut session,
        "EXEC sp_executesql N'SELECT @x AS x', N'@x int'",
    );
    assert_eq!(
        said(&missing),
        [
            "8178 The parameterized query '(@x int)SELECT @x AS x' expects the parameter '@x', which was not supplied."
        ]
    );
}

#[test]
fn moments_and_devices_of_the_history_are_those_that_a_datetime_and_a_script_can_name() {
    let stage = Stage::new();
    let mut session = stage.session();
    let device = stage.path("named.bak").display().to_string();
    run(
        &mut session,
        &format!("EXEC sp_addumpdevice 'disk', 'Named', '{device}'"),
    );
    let named = "SELECT DISTINCT logical_device_name, device_type FROM msdb.dbo.backupmediafamily";
    for _ in 0..6 {
        run(&mut session, "BACKUP DATABASE shop TO Named");
    }
    assert_eq!(shown(&mut session, named), ["Named|102"]);
    // A restore reads the device, and takes its name away from it as little as a look at it does.
    for read in [
        "DATABASE again FROM Named WITH MOVE 'shop' TO 'again.db'",
        "VERIFYONLY FROM Named",
    ] {
        let done = run(&mut session, &format!("RESTORE {read}"));
        assert!(!numbers(&done).contains(&3013), "{:?}", said(&done));
        assert_eq!(shown(&mut session, named), ["Named|102"], "{read}");
    }
    let impossible = "SELECT COUNT(*) FROM msdb.dbo.backupset
         WHERE DATEPART(ms, backup_finish_date) % 10 NOT IN (0, 3, 7)
            OR backup_finish_date <> CAST(CONVERT(varchar(23), backup_finish_date, 121) AS datetime)";
    assert_eq!(value(&mut session, impossible), "0");
    let created = "SELECT COUNT(*) FROM sys.databases AS d
         WHERE d.create_date < (SELECT DATEADD(s, 1, MIN(backup_start_date)) FROM msdb.dbo.backupset WHERE database_name = d.name)";
    assert_eq!(value(&mut session, created), "1");
    // By its path it is no logical device.
    run(
        &mut session,
        &format!("BACKUP DATABASE shop TO DISK = '{device}' WITH INIT"),
    );
    assert_eq!(shown(&mut session, named), ["NULL|2"]);
}

#[test]
fn the_tables_of_the_history_are_known_to_the_views_about_tables() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, expected) in [
        (
            "SELECT COL_LENGTH('msdb.dbo.backupset', 'is_copy_only')",
            "1",
        ),
        ("SELECT COL_LENGTH('msdb.dbo.backupset', 'nothing')", "NULL"),
        (
            "SELECT COUNT(*) FROM msdb.INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'backupset' AND COLUMN_NAME = 'type'",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM msdb.sys.columns WHERE object_id = OBJECT_ID('msdb.dbo.backupset') AND name = 'type'",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM msdb.sys.tables WHERE name = 'backupset' AND is_ms_shipped = 1",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM master.sys.tables WHERE name = 'backupset'",
            "0",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
}
