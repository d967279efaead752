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
    for (query, answer) in [
        (
            "SELECT T.A, COUNT(*) FROM dbo.t GROUP BY a ORDER BY COUNT(*) DESC",
            &["1|2", "2|1"][..],
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
    ] {
        assert_eq!(shown(&mut session, query), answer, "{query}");
    }
}
