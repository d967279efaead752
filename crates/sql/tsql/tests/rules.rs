//! Goal: rules that SQL Server's documentation states about rows, groups and values hold here, with its numbers.
//! Not covered: messages' lines and states.

mod common;

use common::{Stage, numbers, rows, run, said};
use longshore_tsql::Session;

fn shown(session: &mut Session, batch: &str) -> Vec<String> {
    let record = run(session, batch);
    let errors = said(&record);
    assert!(errors.is_empty(), "{batch}: {errors:?}");
    rows(&record).iter().map(|row| row.join("|")).collect()
}

fn printed(session: &mut Session, batch: &str) -> Vec<String> {
    let record = run(session, batch);
    record.messages().map(|m| m.text.clone()).collect()
}

#[test]
fn each_kind_of_statement_leaves_its_own_row_count() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE dbo.t (n int); INSERT dbo.t VALUES (1), (2), (3)",
    );
    for (statement, rows) in [
        ("PRINT 'x'", "0"),
        ("SET NOCOUNT ON", "0"),
        ("USE master", "0"),
        ("RAISERROR ('x', 10, 1)", "0"),
        ("BEGIN TRAN; ROLLBACK", "0"),
        ("IF 1 = 0 SELECT 1", "0"),
        ("WHILE 1 = 0 SELECT 1", "0"),
        ("DECLARE @n int", "3"),
        ("DECLARE @n int = 5", "1"),
        ("DECLARE @n int; SET @n = 7", "1"),
        (
            "BEGIN TRY DECLARE @n int END TRY BEGIN CATCH END CATCH",
            "3",
        ),
        ("EXEC ('DECLARE @m int')", "3"),
        ("TRUNCATE TABLE dbo.t", "0"),
    ] {
        run(
            &mut session,
            "DELETE dbo.t; INSERT dbo.t VALUES (1), (2), (3)",
        );
        let batch =
            format!("DECLARE @all int; SELECT @all = n FROM dbo.t; {statement}; PRINT @@ROWCOUNT");
        let last = printed(&mut session, &batch).pop();
        assert_eq!(last.as_deref(), Some(rows), "{statement}");
    }
    let within = "DECLARE @n int; SELECT @n = n FROM (VALUES (1), (2)) v(n); IF @@ROWCOUNT = 2 PRINT @@ROWCOUNT";
    assert_eq!(printed(&mut session, within), ["0"]);
}

#[test]
fn groups_are_ruled_as_documented() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE dbo.t (a int, b int, s varchar(9), d datetime, f bit);
         INSERT dbo.t VALUES (1, 10, 'x', '20270101', 1), (1, 20, 'y', '20270102', 0), (2, 30, 'z', '20270101', 1)",
    );
    for (query, number) in [
        ("SELECT a, b FROM dbo.t GROUP BY a", 8120),
        ("SELECT a, COUNT(*) FROM dbo.t", 8120),
        ("SELECT *, COUNT(*) FROM dbo.t", 8120),
        ("SELECT a, SUM(b) OVER () FROM dbo.t GROUP BY a", 8120),
        (
            "SELECT a, (SELECT MAX(v) FROM (VALUES (1)) x(v) WHERE v = t.b) FROM dbo.t t GROUP BY a",
            8120,
        ),
        ("SELECT a + b FROM dbo.t GROUP BY a", 8120),
        ("SELECT a FROM dbo.t HAVING COUNT(*) > 0", 8120),
        (
            "SELECT a FROM dbo.t GROUP BY ROLLUP (a), b HAVING s = 'x'",
            8121,
        ),
        ("SELECT a FROM dbo.t GROUP BY a HAVING b > 1", 8121),
        ("SELECT a FROM dbo.t GROUP BY a ORDER BY b", 8127),
        ("SELECT COUNT(*) FROM dbo.t ORDER BY a", 8127),
        ("SELECT DISTINCT a FROM dbo.t ORDER BY b", 145),
        ("SELECT COUNT(*) FROM dbo.t GROUP BY 1", 164),
        ("SELECT COUNT(*) FROM dbo.t GROUP BY 'a'", 164),
        ("SELECT a FROM dbo.t GROUP BY COUNT(*)", 144),
        ("SELECT a FROM dbo.t WHERE COUNT(*) > 1", 147),
        ("SELECT a FROM dbo.t WHERE SUM(b) > 1 GROUP BY a", 147),
        ("SELECT SUM(COUNT(*)) FROM dbo.t GROUP BY a", 130),
        ("SELECT SUM((SELECT 1)) FROM dbo.t", 130),
        (
            "SELECT a FROM dbo.t WHERE ROW_NUMBER() OVER (ORDER BY a) = 1",
            4108,
        ),
        (
            "SELECT SUM(ROW_NUMBER() OVER (ORDER BY a)) FROM dbo.t",
            4109,
        ),
        ("SELECT SUM(s) FROM dbo.t", 8117),
        ("SELECT AVG(d) FROM dbo.t", 8117),
        ("SELECT SUM(f) FROM dbo.t", 8117),
        ("SELECT MAX(f) FROM dbo.t", 8117),
        ("SELECT STDEV(s) FROM dbo.t", 8117),
        ("SELECT SUM(NULL) FROM dbo.t", 8117),
        ("SELECT SUM(s) OVER () FROM dbo.t", 8117),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
    let told = said(&run(&mut session, "SELECT a, b FROM dbo.t GROUP BY a"));
    assert_eq!(
        told,
        [
            "8120 Column 't.b' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause."
        ]
    );
    let told = said(&run(&mut session, "SELECT SUM(s) FROM dbo.t"));
    assert_eq!(
        told,
        ["8117 Operand data type varchar is invalid for sum operator."]
    );
}

/// Queries that the rules of groups allow, and their rows.
const RIGHT: &[(&str, &[&str])] = &[
    (
        "SELECT T.A, COUNT(*) FROM dbo.t GROUP BY a ORDER BY COUNT(*) DESC",
        &["1|2", "2|1"],
    ),
    (
        "SELECT a + 1, a * 2 FROM dbo.t GROUP BY a ORDER BY 1",
        &["2|2", "3|4"],
    ),
    (
        "SELECT a % 2 + 1, MAX(b) FROM dbo.t GROUP BY a % 2 ORDER BY a % 2",
        &["1|30", "2|20"],
    ),
    (
        "SELECT YEAR(d) * 100 + MONTH(d), COUNT(*) FROM dbo.t GROUP BY YEAR(d), MONTH(d)",
        &["202701|3"],
    ),
    (
        "SELECT CONVERT(char(10), d, 120) AS x, COUNT(*) FROM dbo.t GROUP BY CONVERT(char(10), d, 120) ORDER BY x",
        &["2027-01-01|2", "2027-01-02|1"],
    ),
    (
        "SELECT DATEDIFF(DAY, d, GETDATE()) - DATEDIFF(DAY, '20270101', GETDATE()), COUNT(*) FROM dbo.t GROUP BY DATEDIFF(DAY, d, GETDATE()) ORDER BY 1",
        &["-1|1", "0|2"],
    ),
    (
        "SELECT CASE WHEN b > 15 THEN 'big' ELSE 'small' END, COUNT(*) FROM dbo.t GROUP BY (CASE WHEN b > 15 THEN 'big' ELSE 'small' END) ORDER BY 1",
        &["big|2", "small|1"],
    ),
    (
        "SELECT a, SUM(SUM(b)) OVER () FROM dbo.t GROUP BY a ORDER BY a",
        &["1|60", "2|60"],
    ),
    (
        "SELECT a, RANK() OVER (ORDER BY SUM(b) DESC) FROM dbo.t GROUP BY a ORDER BY a",
        &["1|1", "2|1"],
    ),
    (
        "SELECT a, (SELECT COUNT(*) FROM dbo.t u WHERE u.a = t.a) FROM dbo.t t GROUP BY a ORDER BY a",
        &["1|2", "2|1"],
    ),
    (
        "SELECT COUNT(*) FROM dbo.t WHERE a IN (SELECT a FROM dbo.t GROUP BY a HAVING COUNT(*) > 1)",
        &["2"],
    ),
    (
        "SELECT COUNT(*) FROM dbo.t WHERE b = (SELECT MAX(b) FROM dbo.t)",
        &["1"],
    ),
    (
        "SELECT a FROM dbo.t x WHERE EXISTS (SELECT * FROM dbo.t y WHERE y.a = x.a GROUP BY y.a HAVING COUNT(*) > 1)",
        &["1", "1"],
    ),
    (
        "SELECT a, COUNT(*) FROM dbo.t GROUP BY ROLLUP (a) ORDER BY GROUPING(a), a",
        &["1|2", "2|1", "NULL|3"],
    ),
    (
        "SELECT DISTINCT t.a FROM dbo.t AS t ORDER BY t.a DESC",
        &["2", "1"],
    ),
    (
        "SELECT DISTINCT UPPER(s) FROM dbo.t ORDER BY UPPER(s)",
        &["X", "Y", "Z"],
    ),
    ("SELECT DISTINCT a AS z FROM dbo.t ORDER BY z", &["1", "2"]),
    (
        "SELECT a FROM dbo.t GROUP BY a HAVING MAX(b) > (SELECT AVG(b) FROM dbo.t) ORDER BY a",
        &["2"],
    ),
    (
        "SELECT q.n FROM (SELECT a, COUNT(*) AS n FROM dbo.t GROUP BY a) q WHERE q.n > 1",
        &["2"],
    ),
    (
        "SELECT SUM(CASE WHEN s = 'y' THEN 1 ELSE 0 END) FROM dbo.t",
        &["1"],
    ),
    (
        "SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b), SUM(b) OVER (PARTITION BY a) FROM dbo.t ORDER BY b",
        &["1|1|30", "1|2|30", "2|1|30"],
    ),
    (
        "SELECT t.a, x.n FROM dbo.t CROSS APPLY (SELECT COUNT(*) AS n FROM dbo.t u WHERE u.a = t.a) x ORDER BY t.b",
        &["1|2", "1|2", "2|1"],
    ),
    (
        "SELECT a, STUFF((SELECT ',' + u.s FROM dbo.t u WHERE u.a = t.a ORDER BY u.b FOR XML PATH('')), 1, 1, '') FROM dbo.t t GROUP BY a ORDER BY a",
        &["1|x,Y", "2|z"],
    ),
    (
        "SELECT a, AVG(b) OVER (PARTITION BY a) FROM dbo.t ORDER BY b",
        &["1|15", "1|15", "2|30"],
    ),
    (
        "SELECT AVG(n) OVER () FROM (VALUES (1), (2)) v(n)",
        &["1", "1"],
    ),
    (
        "SELECT t.b, v.k, v.n FROM dbo.t CROSS APPLY (VALUES ('a', t.a), ('b', t.b)) v(k, n) WHERE t.b > 15 ORDER BY t.b, v.k",
        &["20|a|1", "20|b|20", "30|a|2", "30|b|30"],
    ),
];

/// Goal: what the rules allow is not taken for a mistake.
#[test]
fn groups_that_are_right_are_not_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE dbo.t (a int, b int, s varchar(9), d datetime);
         INSERT dbo.t VALUES (1, 10, 'x', '20270101'), (1, 20, 'Y', '20270102'), (2, 30, 'z', '20270101')",
    );
    for (query, answer) in RIGHT {
        assert_eq!(shown(&mut session, query), *answer, "{query}");
    }
}

#[test]
fn a_datetime_counts_in_three_hundredths_of_a_second() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (given, kept) in [
        ("'2027-01-01T00:00:00.001'", "2027-01-01 00:00:00.000"),
        ("'2027-01-01T00:00:00.002'", "2027-01-01 00:00:00.003"),
        ("'2027-01-01T00:00:00.005'", "2027-01-01 00:00:00.007"),
        ("'2027-01-01T00:00:00.008'", "2027-01-01 00:00:00.007"),
        ("'2027-01-01T23:59:59.999'", "2027-01-02 00:00:00.000"),
        (
            "CAST('2027-01-01T00:00:00.6789' AS datetime2)",
            "2027-01-01 00:00:00.680",
        ),
        (
            "DATEADD(ms, 1, CAST('20270101' AS datetime))",
            "2027-01-01 00:00:00.000",
        ),
        (
            "DATEADD(ms, 2, CAST('20270101' AS datetime))",
            "2027-01-01 00:00:00.003",
        ),
    ] {
        let batch = format!("DECLARE @d datetime = {given}; SELECT CONVERT(varchar(30), @d, 121)");
        assert_eq!(shown(&mut session, &batch), [kept], "{given}");
    }
    let last = shown(&mut session, "SELECT DATEPART(ms, GETDATE()) % 10");
    assert!(["0", "3", "7"].contains(&last[0].as_str()), "{last:?}");
}

#[test]
fn functions_take_what_the_documentation_says() {
    let stage = Stage::new();
    let mut session = stage.session();
    let long = "x".repeat(129);
    let long = format!("QUOTENAME('{long}')");
    for (expression, value) in [
        ("EOMONTH('20240115', 1)", "2024-02-29"),
        ("EOMONTH('20240331', -1)", "2024-02-29"),
        ("EOMONTH(NULL, 1)", "NULL"),
        ("QUOTENAME('a]b', '[]')", "[a]]b]"),
        ("QUOTENAME('a', '()')", "(a)"),
        ("QUOTENAME('a', 'x')", "NULL"),
        (&long, "NULL"),
        ("LEN(QUOTENAME(REPLICATE('x', 128)))", "130"),
        (
            "CONVERT(varchar(40), HASHBYTES('MD5', 'abc'), 2)",
            "900150983CD24FB0D6963F7D28E17F72",
        ),
        (
            "DATE_BUCKET(MINUTE, 15, CAST('2024-05-09 13:04' AS datetime2(0)))",
            "2024-05-09 13:00:00",
        ),
        (
            "DATE_BUCKET(WEEK, 1, CAST('20240509' AS date))",
            "2024-05-06",
        ),
        (
            "DATE_BUCKET(MONTH, 2, CAST('20240415' AS date))",
            "2024-03-01",
        ),
        (
            "DATE_BUCKET(DAY, 2, CAST('20240104' AS date), CAST('20240103' AS date))",
            "2024-01-03",
        ),
        (
            "DATE_BUCKET(DAY, 2, CAST('20240101' AS date), CAST('20240102' AS date))",
            "2023-12-31",
        ),
    ] {
        assert_eq!(
            shown(&mut session, &format!("SELECT {expression}")),
            [value],
            "{expression}"
        );
    }
    assert_eq!(
        numbers(&run(
            &mut session,
            "SELECT DATE_BUCKET(DAY, 0, CAST('20240101' AS date))"
        )),
        [9834]
    );
}

#[test]
fn a_truncated_table_numbers_its_rows_anew() {
    let stage = Stage::new();
    let mut session = stage.session();
    for table in ["dbo.t", "#t"] {
        let batch = format!(
            "CREATE TABLE {table} (id int IDENTITY (5, 2), v int); INSERT {table} (v) VALUES (1), (2); TRUNCATE TABLE {table};
             INSERT {table} (v) VALUES (3); DELETE {table}; INSERT {table} (v) VALUES (4); DELETE {table}; TRUNCATE TABLE {table};
             SELECT IDENT_CURRENT('{table}'); INSERT {table} (v) VALUES (5); SELECT id, v FROM {table}"
        );
        assert_eq!(shown(&mut session, &batch), ["5", "5|5"], "{table}");
        let batch = format!(
            "DBCC CHECKIDENT ('{table}', RESEED, 100) WITH NO_INFOMSGS; INSERT {table} (v) VALUES (6); SELECT MAX(id) FROM {table};
             TRUNCATE TABLE {table}; DBCC CHECKIDENT ('{table}', RESEED, 50) WITH NO_INFOMSGS; INSERT {table} (v) VALUES (7);
             SELECT id FROM {table}"
        );
        assert_eq!(shown(&mut session, &batch), ["102", "50"], "{table}");
    }
    let told = said(&run(&mut session, "DBCC CHECKIDENT ('dbo.t')"));
    assert_eq!(
        told[0],
        "7998 Checking identity information: current identity value '50'."
    );
    run(&mut session, "CREATE TABLE dbo.plain (v int)");
    assert_eq!(
        numbers(&run(&mut session, "DBCC CHECKIDENT ('dbo.plain')")),
        [7997]
    );
}

#[test]
fn small_statements_do_what_scripts_expect() {
    let stage = Stage::new();
    let mut session = stage.session();
    let batch =
        "CREATE TABLE #t (v int); INSERT TOP (2) INTO #t VALUES (1), (2), (3); SELECT @@ROWCOUNT;
         INSERT TOP (50) PERCENT #t SELECT v + 10 FROM #t ORDER BY v; SELECT v FROM #t";
    assert_eq!(shown(&mut session, batch), ["2", "1", "2", "11"]);
    let record = run(&mut session, "DBCC SQLPERF (LOGSPACE) WITH NO_INFOMSGS");
    let all = rows(&record);
    assert!(
        all.iter().any(|row| row[0] == "shop" && row[1] == "NULL"),
        "{all:?}"
    );
    let memory =
        "SELECT SIGN(m.total_physical_memory_kb), i.physical_memory_kb - m.total_physical_memory_kb
         FROM sys.dm_os_sys_memory m CROSS JOIN sys.dm_os_sys_info i";
    assert_eq!(shown(&mut session, memory), ["1|0"]);
    assert_eq!(numbers(&run(&mut session, "DBCC OPENTRAN")), [7969, 2528]);
    run(&mut session, "CREATE PROC dbo.none AS PRINT 1");
    assert_eq!(numbers(&run(&mut session, "EXEC dbo.none 1")), [8146]);
}

#[test]
fn texts_are_sorted_by_class_letter_and_accent() {
    let stage = Stage::new();
    let mut session = stage.session();
    let sorted = "SELECT v FROM (VALUES (N'Zebra'), (N'äpfel'), (N'apfel'), (N'Öl'), (N'ol'), (N'om'), (N'9'), (N'_x'), (N'a b'), (N'ab')) t(v)
         ORDER BY v";
    assert_eq!(
        shown(&mut session, sorted),
        [
            "_x", "9", "a b", "ab", "apfel", "äpfel", "ol", "Öl", "om", "Zebra"
        ]
    );
    let same = "SELECT IIF(N'Ä' = N'ä', 1, 0), IIF(N'ä' = N'a', 1, 0), IIF(N'äz' > N'ab', 1, 0), COUNT(DISTINCT v) FROM (VALUES (N'é'), (N'É'), (N'e')) t(v)";
    assert_eq!(shown(&mut session, same), ["1|0|1|2"]);
}

#[test]
fn operators_of_bits_assign_and_keywords_have_their_own_mistake() {
    let stage = Stage::new();
    let mut session = stage.session();
    let batch = "DECLARE @i int = 3; SET @i |= 8; SET @i &= 10; SET @i ^= 1; CREATE TABLE #t (n int); INSERT #t VALUES (5);
         UPDATE #t SET n |= 2; UPDATE #t SET n &= 6; DECLARE @all int = 0; SELECT @all |= n FROM #t; SELECT @i, @all";
    assert_eq!(shown(&mut session, batch), ["11|6"]);
    assert_eq!(
        said(&run(&mut session, "SELECT FROM sys.databases")),
        ["156 Incorrect syntax near the keyword 'FROM'."]
    );
    assert_eq!(
        said(&run(&mut session, "SELECT name, FROM sys.databases")),
        ["156 Incorrect syntax near the keyword 'FROM'."]
    );
}

/// Method: two full sets of a cluster are put into the history, and the second one becomes a differential of the first.
#[test]
fn the_history_knows_which_backup_a_set_goes_on_from() {
    let stage = Stage::new();
    common::cluster::full_from(&stage.path("first.bak"), 1000);
    common::cluster::full_from(&stage.path("second.bak"), 5000);
    let mut session = stage.session();
    for name in ["first", "second"] {
        let load = format!("RESTORE VERIFYONLY FROM DISK = '{name}.bak' WITH LOADHISTORY");
        let record = run(&mut session, &load);
        assert!(
            record.messages().all(|m| !m.is_error()),
            "{:?}",
            said(&record)
        );
    }
    let lsns = "SELECT type, CAST(checkpoint_lsn AS bigint), CAST(database_backup_lsn AS bigint), CAST(differential_base_lsn AS bigint)
         FROM msdb.dbo.backupset ORDER BY backup_set_id";
    assert_eq!(
        shown(&mut session, lsns),
        ["D|1000|0|NULL", "D|5000|1000|NULL"]
    );
    let catalog = rusqlite::Connection::open(stage.path("state/catalog.db")).unwrap();
    let changed = catalog.execute(
        "UPDATE backupset SET type = 'I', differential_base_guid = (SELECT backup_set_uuid FROM backupset ORDER BY backup_set_id LIMIT 1)
         WHERE checkpoint_lsn = 5000",
        [],
    );
    assert_eq!(changed, Ok(1));
    assert_eq!(
        shown(&mut session, lsns),
        ["D|1000|0|NULL", "I|5000|1000|1000"]
    );
}

#[test]
fn a_temporary_procedure_is_the_sessions_own() {
    let stage = Stage::new();
    let mut session = stage.session();
    assert!(
        numbers(&run(
            &mut session,
            "CREATE PROC #twice @n int, @to int OUTPUT AS SET @to = @n * 2 RETURN 7"
        ))
        .is_empty()
    );
    let call = "DECLARE @x int, @code int; EXEC @code = #twice 21, @x OUTPUT; SELECT @x, @code, SIGN(OBJECT_ID('tempdb..#twice'))";
    assert_eq!(shown(&mut session, call), ["42|7|-1"]);
    assert_eq!(
        numbers(&run(&mut session, "CREATE PROC #twice AS PRINT 1")),
        [2714]
    );
    let fails = "CREATE OR ALTER PROC #twice AS SELECT 1 / 0";
    assert!(numbers(&run(&mut session, fails)).is_empty());
    let caught = "BEGIN TRY EXEC #twice END TRY BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_PROCEDURE() END CATCH";
    assert_eq!(shown(&mut session, caught), ["8134|#twice"]);
    let mut other = stage.session();
    assert_eq!(numbers(&run(&mut other, "EXEC #twice")), [2812]);
    run(
        &mut session,
        "DROP PROC IF EXISTS #twice; DROP PROC IF EXISTS #twice",
    );
    assert_eq!(numbers(&run(&mut session, "EXEC #twice")), [2812]);
    assert_eq!(numbers(&run(&mut session, "DROP PROC #twice")), [3701]);
}
