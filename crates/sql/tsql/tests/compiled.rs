//! Goal: mistakes that SQL Server finds when it compiles a batch keep all of the batch from running, and nothing that is right
//! there is refused.
//! Method: each batch says something before its mistake, and the test looks whether that was said.
//! Not covered: the texts of the messages.

mod common;

use common::{Stage, numbers, run, said};
use longshore_tsql::Session;

/// A session with a table, a temporary table and a view.
fn session(stage: &Stage) -> Session {
    let mut session = stage.session();
    for batch in [
        "CREATE TABLE dbo.t (a int, b varchar(9))",
        "CREATE TABLE #s (a int)",
        "CREATE VIEW dbo.v AS SELECT a FROM dbo.t",
    ] {
        assert_eq!(numbers(&run(&mut session, batch)), [0; 0], "{batch}");
    }
    session
}

#[test]
fn a_mistake_of_names_or_types_keeps_all_of_its_batch_from_running() {
    let stage = Stage::new();
    let mut session = session(&stage);
    for (wrong, number) in [
        ("SELECT a FROM dbo.t UNION SELECT a, b FROM dbo.t", 205),
        ("SELECT nosuch FROM dbo.t", 207),
        ("SELECT nosuch FROM #s", 207),
        ("SELECT nosuch FROM dbo.v", 207),
        ("SELECT nosuch FROM sys.databases", 207),
        ("SELECT nosuch FROM msdb.dbo.backupset", 207),
        ("SELECT a FROM dbo.t, #s", 209),
        ("SELECT x.a FROM dbo.t", 4104),
        ("SELECT LEN(b, 1) FROM dbo.t", 174),
        ("PRINT LEN('a', 1)", 174),
        ("SELECT nosuchfunc(1)", 195),
        ("SET @i = nosuchfunc(1)", 195),
        ("SELECT DATEPART(nosuch, GETDATE())", 155),
        ("PRINT DATEADD(nosuch, 1, GETDATE())", 155),
        ("SELECT name, COUNT(*) FROM sys.databases", 8120),
        ("SELECT SUM(b) FROM dbo.t", 8117),
        ("SELECT CAST(GETDATE() AS date) + a FROM dbo.t", 206),
        ("SELECT GETDATE() * CAST(GETDATE() AS date)", 402),
        ("INSERT dbo.t (nosuch) VALUES (1)", 207),
        ("INSERT dbo.t (a) VALUES (1, 2)", 110),
        ("INSERT dbo.t (a, b) SELECT a FROM dbo.t", 120),
        ("INSERT dbo.t (a) SELECT nosuch FROM #s", 207),
        ("UPDATE dbo.t SET nosuch = 1", 207),
        ("UPDATE dbo.t SET a = nosuch", 207),
        ("UPDATE x SET a = 1 FROM dbo.t AS x WHERE nosuch = 1", 207),
        ("DELETE dbo.t WHERE nosuch = 1", 207),
        (
            "IF EXISTS (SELECT 1 FROM dbo.t WHERE nosuch = 1) PRINT 'x'",
            207,
        ),
        ("DECLARE c CURSOR FOR SELECT nosuch FROM dbo.t", 207),
        ("SELECT nosuch INTO #n FROM dbo.t", 207),
        (
            "BEGIN TRY SELECT nosuch FROM dbo.t END TRY BEGIN CATCH PRINT 'caught' END CATCH",
            207,
        ),
        ("IF 1 = 0 SELECT nosuch FROM dbo.t", 207),
        ("WHILE 1 = 0 SELECT a, COUNT(*) FROM dbo.t", 8120),
        ("ALTER TABLE dbo.t ADD c int; SELECT c FROM dbo.t", 207),
        ("EXEC ('ALTER TABLE #s ADD c int'); SELECT c FROM #s", 207),
        ("USE tempdb; SELECT nosuch FROM master.dbo.t", 207),
    ] {
        for after in ["", "\nPRINT 'after'"] {
            let batch = format!("DECLARE @i int;\nPRINT 'before'\n{wrong}{after}");
            let record = run(&mut session, &batch);
            assert_eq!(numbers(&record), [number], "{batch}: {:?}", said(&record));
            let line = record.messages().next().map(|m| m.line);
            assert_eq!(line, Some(3), "{batch}");
        }
    }
    let record = run(&mut session, "SELECT @@ERROR");
    assert_eq!(common::rows(&record), [["207"]]);
}

#[test]
fn what_is_right_in_sql_server_is_not_refused() {
    let stage = Stage::new();
    for right in [
        // Tables that the batch makes.
        "CREATE TABLE dbo.n (x int); SELECT x FROM dbo.n",
        "CREATE TABLE #n (x int); ALTER TABLE #n ADD y int; SELECT x, y FROM #n",
        "SELECT 1 AS x INTO #n; SELECT x FROM #n",
        "DROP TABLE #s; SELECT 1 AS x INTO #s; SELECT x FROM #s; UPDATE #s SET x = 2; DELETE #s WHERE x = 2",
        "DROP TABLE dbo.t; CREATE TABLE dbo.t (x int); INSERT dbo.t (x) VALUES (1); SELECT x FROM dbo.t",
        "IF OBJECT_ID('tempdb..#n') IS NOT NULL DROP TABLE #n; CREATE TABLE #n (x int); INSERT #n (x) SELECT 1; SELECT x FROM #n",
        "EXEC ('CREATE TABLE dbo.n (x int)'); SELECT x FROM dbo.n",
        "EXEC ('ALTER TABLE dbo.t ADD c int'); EXEC ('SELECT c FROM dbo.t')",
        "EXEC sp_rename 'dbo.t', 'u'; EXEC ('CREATE TABLE dbo.t (x int)'); SELECT x FROM dbo.t",
        // Missing tables are left for later.
        "IF 1 = 0 SELECT nosuch FROM dbo.missing",
        "IF 1 = 0 SELECT nosuch FROM dbo.t, dbo.missing",
        "IF 1 = 0 SELECT nosuch, (SELECT 1 FROM #missing) FROM dbo.t",
        "IF 1 = 0 SELECT nosuch FROM dbo.t CROSS APPLY dbo.missing(t.a)",
        "IF 1 = 0 UPDATE dbo.t SET a = nosuch FROM dbo.t JOIN dbo.missing m ON m.a = t.a",
        "IF 1 = 0 INSERT dbo.missing (nosuch) VALUES (1)",
        "IF 1 = 0 DECLARE c CURSOR FOR SELECT nosuch FROM dbo.missing",
        "IF 1 = 0 PRINT dbo.missing(1)",
        // Names and functions that only another server may know.
        "IF 1 = 0 SELECT nosuch FROM sys.databases",
        "IF 1 = 0 SELECT nosuchfunc(1)",
        "IF 1 = 1 RETURN; SELECT nosuch FROM sys.databases",
        "IF 1 = 0 SELECT CAST(GETDATE() AS date) + 1",
        // Variables without a value yet, and table variables that are declared later.
        "SET @d = 'master'; SELECT DATABASEPROPERTYEX(@d, @p), SERVERPROPERTY(@p), DB_ID(@d), COL_LENGTH(@d, @p)",
        "INSERT @v (x) VALUES (1); SELECT x FROM @v; UPDATE v SET x = 2 FROM @v AS v",
        "SELECT CONVERT(varchar(30), GETDATE(), @style), FORMAT(1, @f), DATEADD(day, @style, GETDATE())",
        // Names of other databases, and of common table expressions.
        "USE tempdb; IF 1 = 0 SELECT x FROM dbo.elsewhere; USE master",
        "IF 1 = 0 USE tempdb; SELECT a FROM dbo.t",
        ";WITH c AS (SELECT a FROM dbo.t) SELECT a FROM c; WITH c (x) AS (SELECT a FROM dbo.t) DELETE FROM c WHERE x = 1",
        "INSERT dbo.t (a) OUTPUT inserted.a INTO #s VALUES (1); UPDATE dbo.t SET a = 2 OUTPUT deleted.a, inserted.a",
        "SELECT IDENTITY(int, 1, 1) AS n, a INTO #n FROM dbo.t; SELECT n, a FROM #n",
        "DECLARE @c CURSOR; SET @c = CURSOR FOR SELECT a FROM dbo.t; OPEN @c; DEALLOCATE @c",
    ] {
        let mut session = session(&stage);
        let batch = format!(
            "DECLARE @i int = 1, @d sysname, @p sysname = 'Edition', @style int = 120, @f varchar(9) = 'N';\n\
             IF @i = 0 DECLARE @v TABLE (x int);\nPRINT 'before'\n{right}"
        );
        let record = run(&mut session, &batch);
        let wrong: Vec<_> = record.messages().filter(|m| m.is_error()).collect();
        assert_eq!(wrong.len(), 0, "{batch}: {:?}", said(&record));
        assert_eq!(said(&record)[0], "0 before", "{batch}");
        run(
            &mut session,
            "DROP TABLE IF EXISTS dbo.t; DROP TABLE IF EXISTS dbo.n; DROP TABLE IF EXISTS dbo.u",
        );
        run(&mut session, "DROP VIEW IF EXISTS dbo.v");
    }
}

#[test]
fn a_mistake_in_a_text_ends_the_text_and_is_caught_around_it() {
    let stage = Stage::new();
    let mut session = session(&stage);
    let text = "PRINT ''in''; SELECT nosuch FROM dbo.t";
    let record = run(&mut session, &format!("EXEC ('{text}'); PRINT 'goes on'"));
    assert_eq!(said(&record)[1], "0 goes on");
    assert_eq!(numbers(&record), [207, 0]);
    let batch =
        format!("BEGIN TRY EXEC ('{text}') END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH");
    assert_eq!(said(&run(&mut session, &batch)), ["0 207"]);
}

#[test]
fn under_an_option_that_runs_nothing_nothing_is_said() {
    let stage = Stage::new();
    let mut session = session(&stage);
    let batch = "SET NOEXEC ON; PRINT 'a'; SELECT nosuch FROM dbo.t; SET NOEXEC OFF";
    assert_eq!(numbers(&run(&mut session, batch)), [0; 0]);
}
