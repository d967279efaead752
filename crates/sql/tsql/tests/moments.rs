//! Goal: the date and time types store, parse and combine values as SQL Server documents it.
//! Method: queries of constants in a session, with the expected type, text or message number.

mod common;

use common::{Stage, numbers, run, value};
use longshore_tsql::Type;

#[test]
fn moments_have_the_types_that_were_asked_for() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, kind) in [
        ("CAST(GETDATE() AS date)", Type::Date),
        ("CAST(GETDATE() AS time)", Type::Time(7)),
        ("CONVERT(time(3), GETDATE())", Type::Time(3)),
        ("CAST(GETDATE() AS smalldatetime)", Type::SmallDateTime),
        ("GETDATE()", Type::DateTime),
        ("CAST(GETDATE() AS datetime2)", Type::DateTime2(7)),
        ("SYSDATETIME()", Type::DateTime2(7)),
        ("SYSUTCDATETIME()", Type::DateTime2(7)),
        ("SYSDATETIMEOFFSET()", Type::DateTimeOffset(7)),
        (
            "CAST('2026-11-22' AS datetimeoffset(0))",
            Type::DateTimeOffset(0),
        ),
        ("DATEADD(day, 1, CAST(GETDATE() AS date))", Type::Date),
        ("DATEADD(day, 1, SYSDATETIME())", Type::DateTime2(7)),
        ("EOMONTH(GETDATE())", Type::Date),
        ("COALESCE(CAST(NULL AS date), GETDATE())", Type::DateTime),
        (
            "CASE WHEN 1 = 1 THEN CAST('20261122' AS datetime2(2)) ELSE CAST('20261122' AS datetime2(5)) END",
            Type::DateTime2(5),
        ),
        (
            "MAX(CAST(backup_finish_date AS date)) FROM msdb.dbo.backupset",
            Type::Date,
        ),
    ] {
        let record = run(&mut session, &format!("SELECT {expression}"));
        assert_eq!(
            record.columns()[0].kind,
            kind,
            "{expression}: {:?}",
            common::said(&record)
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn moments_are_written_and_compared_as_t_sql_does() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, expected) in [
        (
            "CAST(CAST('2026-11-22 13:45:07.1234567' AS date) AS varchar(30))",
            "2026-11-22",
        ),
        (
            "CONVERT(varchar(10), CAST('2026-11-22 13:45' AS date))",
            "2026-11-22",
        ),
        (
            "CONVERT(char(8), CAST('2026-11-22 13:45' AS date), 112)",
            "20261122",
        ),
        (
            "'shop_' + CONVERT(nvarchar, CAST('20261122' AS date), 23) + '.bak'",
            "shop_2026-11-22.bak",
        ),
        (
            "CAST(CAST('13:45:07.1234567' AS time) AS varchar(30))",
            "13:45:07.1234567",
        ),
        (
            "CAST(CAST('13:45:07.1234567' AS time(0)) AS varchar(30))",
            "13:45:07",
        ),
        (
            "CAST(CAST('13:45:07.9999999' AS time(3)) AS varchar(30))",
            "13:45:08.000",
        ),
        (
            "CAST(CAST('23:59:59.9999999' AS time(0)) AS varchar(30))",
            "00:00:00",
        ),
        (
            "CAST(CAST('2026-12-31 23:59:59.9999999' AS datetime2(0)) AS varchar(30))",
            "2027-01-01 00:00:00",
        ),
        (
            "CAST(CAST('2026-11-22 13:45:07.1234567' AS datetime2) AS varchar(30))",
            "2026-11-22 13:45:07.1234567",
        ),
        (
            "CAST(CAST('2026-11-22 13:45:31' AS smalldatetime) AS varchar(30))",
            "Nov 22 2026  1:46PM",
        ),
        (
            "CAST(CAST('2026-11-22 13:45:07' AS datetime) AS varchar(30))",
            "Nov 22 2026  1:45PM",
        ),
        (
            "CAST(CAST('2026-11-22 13:45:07 +05:30' AS datetimeoffset(0)) AS varchar(40))",
            "2026-11-22 13:45:07 +05:30",
        ),
        (
            "CAST(CAST('2026-11-22 13:45:07 -05:30' AS datetimeoffset(3)) AS datetime2(3))",
            "2026-11-22 13:45:07.000",
        ),
        (
            "CONVERT(varchar(40), CAST('2026-11-22 13:45:07 +02:00' AS datetimeoffset(0)), 127)",
            "2026-11-22T11:45:07Z",
        ),
        (
            "CONVERT(varchar(40), CAST('2026-11-22 13:45:07' AS datetime), 126)",
            "2026-11-22T13:45:07",
        ),
        (
            "CONVERT(varchar(40), CAST('2026-11-22 13:45:07.12' AS datetime), 126)",
            "2026-11-22T13:45:07.120",
        ),
        ("CONVERT(date, '01/02/2026', 103)", "2026-02-01"),
        ("CONVERT(date, '01/02/2026', 101)", "2026-01-02"),
        (
            "CONVERT(datetime, '22.11.2026 13:45', 104)",
            "2026-11-22 13:45:00.000",
        ),
        (
            "CAST(CAST('2026-11-22' AS date) AS datetime)",
            "2026-11-22 00:00:00.000",
        ),
        (
            "CAST(CAST('13:45' AS time) AS datetime)",
            "1900-01-01 13:45:00.000",
        ),
        ("CAST('13:45' AS datetime)", "1900-01-01 13:45:00.000"),
        ("DATEADD(hour, 25, CAST('13:45' AS time(0)))", "14:45:00"),
        (
            "DATEADD(nanosecond, 100, CAST('2026-11-22' AS datetime2))",
            "2026-11-22 00:00:00.0000001",
        ),
        (
            "DATEADD(month, 1, CAST('2026-01-31' AS date))",
            "2026-02-28",
        ),
        (
            "DATEDIFF(day, CAST('2026-11-20' AS date), CAST('2026-11-22 01:00' AS datetime2))",
            "2",
        ),
        (
            "DATEDIFF(hour, CAST('2026-11-22 12:00 +02:00' AS datetimeoffset), CAST('2026-11-22 12:00 +00:00' AS datetimeoffset))",
            "2",
        ),
        (
            "DATEDIFF(microsecond, CAST('2026-11-22 00:00:00.0000010' AS datetime2), CAST('2026-11-22 00:00:00.0000030' AS datetime2))",
            "2",
        ),
        (
            "DATEPART(hour, CAST('2026-11-22 13:45:07 +05:30' AS datetimeoffset))",
            "13",
        ),
        ("DATENAME(month, CAST('2026-11-22' AS date))", "November"),
        (
            "IIF(CAST('2026-11-22 13:00 +02:00' AS datetimeoffset) = CAST('2026-11-22 11:00 +00:00' AS datetimeoffset), 'same', 'other')",
            "same",
        ),
        (
            "IIF(CAST('2026-11-22 13:45' AS date) = '20261122', 'same', 'other')",
            "same",
        ),
        (
            "IIF(CAST('2026-11-22' AS date) < CAST('2026-11-22 00:01' AS datetime), 'before', 'not')",
            "before",
        ),
        (
            "CONCAT(CAST('2026-11-22' AS date), '|', CAST('2026-11-22 13:45' AS datetime))",
            "2026-11-22|Nov 22 2026  1:45PM",
        ),
        (
            "LEFT(CAST('2026-11-22 13:45' AS datetime), 11)",
            "Nov 22 2026",
        ),
        (
            "CAST('2026-11-22' AS datetime) + 1",
            "2026-11-23 00:00:00.000",
        ),
        (
            "CAST('2026-11-22' AS datetime) - 0.5",
            "2026-11-21 12:00:00.000",
        ),
        (
            "CAST('2026-11-22' AS datetime) - 1e0 / 24",
            "2026-11-21 23:00:00.000",
        ),
        (
            "CAST('2026-11-22' AS datetime) + CAST(1.5 AS float)",
            "2026-11-23 12:00:00.000",
        ),
        (
            "CAST('2026-11-22' AS smalldatetime) - 0.25",
            "2026-11-21 18:00:00",
        ),
    ] {
        assert_eq!(
            value(&mut session, &format!("SELECT {expression}")),
            expected,
            "{expression}"
        );
    }
    // A variable keeps the precision of its type.
    let script = "DECLARE @d date = '2026-11-22 13:45', @t time(2) = '13:45:07.128', @o datetimeoffset(0) = '2026-11-22 13:45 -01:00';
                  SELECT CONCAT(@d, ' ', @t, ' ', @o)";
    assert_eq!(
        value(&mut session, script),
        "2026-11-22 13:45:07.13 2026-11-22 13:45:00 -01:00"
    );
}

#[test]
fn conversions_that_a_date_type_does_not_allow_are_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, number) in [
        ("CAST(1 AS date)", 529),
        ("CAST(CAST('13:45' AS time) AS date)", 529),
        ("CAST(CAST('20261122' AS date) AS time)", 529),
        ("CAST('1600-01-01' AS datetime)", 242),
        ("CAST(CAST('1600-01-01' AS date) AS datetime)", 242),
        ("CAST('2100-01-01' AS smalldatetime)", 242),
        ("CAST('nonsense' AS datetime2)", 241),
        // They would lose the offset.
        ("CAST('2026-11-22T12:00:00+02:00' AS datetime)", 241),
        ("CAST('2026-11-22T12:00:00+02:00' AS smalldatetime)", 241),
        ("CONVERT(date, '22/11/2026', 101)", 241),
        ("CONVERT(varchar(30), CAST('20261122' AS date), 108)", 281),
        ("CONVERT(varchar(30), GETDATE(), 999)", 281),
        ("CONVERT(date, '20261122', 999)", 9809),
        ("DATEADD(hour, 1, CAST('20261122' AS date))", 9810),
        ("DATEADD(day, 1, CAST('13:45' AS time))", 9810),
        ("CAST('20261122' AS date) + 1", 206),
        ("1 + CAST('20261122' AS date)", 206),
        ("CAST('20261122' AS date) + CAST('20261122' AS date)", 8117),
    ] {
        let record = run(&mut session, &format!("SELECT {expression}"));
        assert_eq!(
            numbers(&record),
            [number],
            "{expression}: {:?}",
            common::said(&record)
        );
    }
}

#[test]
fn texts_are_compared_by_their_collation_and_without_blanks_at_the_end() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (condition, expected) in [
        ("'a ' = 'a'", true),
        ("'a' = 'A'", true),
        ("'Ä' = 'ä'", true),
        ("' a' = 'a'", false),
        ("CAST('shop' AS char(10)) = 'shop'", true),
        ("'shop ' IN ('stock', 'SHOP')", true),
        ("'a' = 'A' COLLATE Latin1_General_CS_AS", false),
        ("'a ' = 'a' COLLATE Latin1_General_BIN2", true),
        ("'a' COLLATE SQL_Latin1_General_CP1_CI_AS = 'A'", true),
        ("'Abc' LIKE 'a%'", true),
        ("'Abc' LIKE 'a%' COLLATE Latin1_General_CS_AS", false),
        ("'B' < 'a' COLLATE Latin1_General_BIN", true),
        ("'B' < 'a' COLLATE Latin1_General_CS_AS", false),
        ("NULLIF('a ', 'A') IS NULL", true),
        ("CASE 'A ' WHEN 'a' THEN 1 ELSE 0 END = 1", true),
    ] {
        let query = format!("SELECT CASE WHEN {condition} THEN 'true' ELSE 'false' END");
        assert_eq!(
            value(&mut session, &query),
            expected.to_string(),
            "{condition}"
        );
    }
    let rows = "(SELECT 'b' AS n UNION ALL SELECT 'B ' UNION ALL SELECT 'a') t";
    let count = |column: &str| format!("SELECT COUNT(DISTINCT {column}) FROM {rows}");
    assert_eq!(value(&mut session, &count("n")), "2");
    assert_eq!(
        value(&mut session, &count("n COLLATE Latin1_General_CS_AS")),
        "3"
    );
    for (condition, number) in [
        ("'a' = 'A' COLLATE nonsense", 448),
        ("'a' = 'á' COLLATE Latin1_General_CI_AI", 50002),
        (
            "'a' COLLATE Latin1_General_CS_AS = 'A' COLLATE Latin1_General_BIN",
            468,
        ),
        (
            "CHARINDEX('a' COLLATE Latin1_General_CS_AS, 'A' COLLATE Latin1_General_BIN) = 0",
            468,
        ),
        (
            "GREATEST('a' COLLATE Latin1_General_CS_AS, 'A' COLLATE Latin1_General_BIN) = 'a'",
            468,
        ),
        (
            "('a' COLLATE Latin1_General_CS_AS) COLLATE Latin1_General_CS_AS = 'a'",
            445,
        ),
        ("5 COLLATE Latin1_General_CS_AS = 5", 447),
    ] {
        let record = run(&mut session, &format!("IF {condition} PRINT 'yes'"));
        assert_eq!(
            numbers(&record),
            [number],
            "{condition}: {:?}",
            common::said(&record)
        );
    }
}

/// `docs/t-sql/statements/collation-precedence` in Microsoft's documentation: what is explicit wins over what is implicit,
/// an operator has one collation for all of its operands, and what functions make of a text has its collation.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_named_collation_counts_wherever_texts_are_compared() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE #t (id int, n varchar(9)) INSERT #t VALUES (1, 'b'), (2, 'B'), (3, 'a'), (4, 'A ')",
    );
    let cs = "COLLATE Latin1_General_CS_AS";
    let bin = "COLLATE Latin1_General_BIN2";
    let list = "STRING_AGG(id, ',') WITHIN GROUP (ORDER BY id)";
    for (condition, expected) in [
        (format!("n {cs} IN ('A', 'x')"), "4"),
        ("n IN ('A', 'x')".to_owned(), "3,4"),
        (format!("n IN ('A', 'B' {cs})"), "2,4"),
        (format!("n {cs} NOT IN ('A', 'B')"), "1,3"),
        (format!("UPPER(n {cs}) IN ('a', 'B')"), "1,2"),
        (format!("n + '' {cs} = 'B'"), "2"),
        (format!("RTRIM(n {bin}) = 'A'"), "4"),
        (format!("CASE WHEN id > 1 THEN n {cs} END = 'A'"), "4"),
        (format!("COALESCE(n, 'x' {cs}) = 'A'"), "4"),
        (format!("CAST(n {cs} AS nvarchar(9)) = 'A'"), "4"),
        (format!("CONVERT(varchar(9), n {cs}, 0) = 'A'"), "4"),
        (format!("n {bin} BETWEEN 'a' AND 'z'"), "1,3"),
        (format!("n BETWEEN 'a' AND 'z' {bin}"), "1,3"),
        (format!("n {cs} LIKE 'a%'"), "3"),
        (format!("n {cs} IN (SELECT 'A')"), "4"),
        (format!("n IN (SELECT UPPER('a' {cs}))"), "4"),
        (format!("n = (SELECT MAX('B' {cs}))"), "2"),
        (
            format!("n = ANY (SELECT 'B' {cs} UNION ALL SELECT 'x')"),
            "2",
        ),
        (format!("NULLIF(n, 'B' {cs}) IS NULL"), "2"),
        (format!("n {cs} IS NOT DISTINCT FROM 'b'"), "1"),
    ] {
        let query = format!("SELECT {list} FROM #t WHERE {condition}");
        assert_eq!(value(&mut session, &query), expected, "{condition}");
    }
    // Rows of the same texts, in an order and in groups.
    for (query, expected) in [
        (
            format!("SELECT {list} FROM (SELECT TOP 2 id FROM #t ORDER BY n {bin}) x"),
            "2,4",
        ),
        (
            format!("SELECT COUNT(*) FROM (SELECT DISTINCT n {cs} AS n FROM #t) x"),
            "4",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT DISTINCT n FROM #t) x".to_owned(),
            "2",
        ),
        (
            format!("SELECT COUNT(*) FROM (SELECT n FROM #t GROUP BY n {cs}, n) x"),
            "4",
        ),
        (
            format!("SELECT COUNT(*) FROM (SELECT n {cs} AS n FROM #t UNION SELECT 'a') x"),
            "4",
        ),
        (
            format!("SELECT COUNT(*) FROM (SELECT n {cs} AS n FROM #t EXCEPT SELECT 'a') x"),
            "3",
        ),
        (format!("SELECT MIN(n {bin}) FROM #t"), "A "),
        (
            format!(
                "SELECT MAX(r) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY n {cs} ORDER BY id) AS r FROM #t) x"
            ),
            "1",
        ),
        // A column of a derived table, of WITH and of a view keeps the collation that its expression has.
        (
            format!("SELECT {list} FROM (SELECT id, n {cs} AS n FROM #t) x WHERE n = 'A'"),
            "4",
        ),
        (
            format!(
                "WITH x AS (SELECT id, n {cs} AS n FROM #t) SELECT {list} FROM x WHERE n IN ('A', 'b')"
            ),
            "1,4",
        ),
    ] {
        assert_eq!(value(&mut session, &query), expected, "{query}");
    }
    let conflict = |right: &str, left: &str, operation: &str| {
        format!(
            "468 Cannot resolve the collation conflict between \"{right}\" and \"{left}\" in the {operation} operation."
        )
    };
    let (server, cs_name) = ("SQL_Latin1_General_CP1_CI_AS", "Latin1_General_CS_AS");
    for (query, text) in [
        (
            format!("SELECT 1 FROM #t WHERE n {cs} = n {bin}"),
            conflict("Latin1_General_BIN2", cs_name, "equal to"),
        ),
        (
            format!("SELECT 1 FROM #t WHERE n {cs} IN ('a', 'b' COLLATE Latin1_General_100_CS_AS)"),
            conflict("Latin1_General_100_CS_AS", cs_name, "equal to"),
        ),
        (
            format!("SELECT n {cs} FROM #t UNION SELECT n {bin} FROM #t"),
            conflict("Latin1_General_BIN2", cs_name, "UNION"),
        ),
        (
            format!("SELECT 1 FROM #t t JOIN (SELECT n {cs} AS n FROM #t) x ON x.n = t.n"),
            conflict(server, cs_name, "equal to"),
        ),
        (
            format!("SELECT x.n + t.n FROM #t t, (SELECT n {cs} AS n FROM #t) x"),
            format!(
                "457 Implicit conversion of varchar value to varchar cannot be performed because the collation of the value is unresolved due to a collation conflict between \"{server}\" and \"{cs_name}\" in add operator."
            ),
        ),
        (
            format!("SELECT 1, CONCAT(x.n, t.n) FROM #t t, (SELECT n {cs} AS n FROM #t) x"),
            format!(
                "451 Cannot resolve collation conflict between \"{server}\" and \"{cs_name}\" in concat operator occurring in SELECT statement column 2."
            ),
        ),
    ] {
        let record = run(&mut session, &query);
        assert_eq!(common::said(&record), [text], "{query}");
    }
    // The same two sides, one of which names a collation.
    let query =
        format!("SELECT COUNT(*) FROM #t t JOIN (SELECT n {cs} AS n FROM #t) x ON x.n = t.n {cs}");
    assert_eq!(value(&mut session, &query), "4");
    // A table's texts have the server's collation: also one that compares alike would be lost.
    for other in [cs, "COLLATE Latin1_General_CI_AS"] {
        let query = format!("SELECT n {other} AS m INTO #u FROM #t");
        assert_eq!(numbers(&run(&mut session, &query)), [50002], "{query}");
    }
    let own = "SELECT n COLLATE SQL_Latin1_General_CP1_CI_AS AS m, n COLLATE DATABASE_DEFAULT AS d, id INTO #u FROM #t";
    assert_eq!(numbers(&run(&mut session, own)), [] as [u32; 0]);
}

/// Microsoft's page of collation precedence: what an operation makes of several texts has the collation of all of them.
#[test]
fn the_default_of_a_neighbour_and_a_separator_have_a_collation_too() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE #t (id int, n varchar(9)) INSERT #t VALUES (1, 'b'), (2, 'B')",
    );
    let cs = "COLLATE Latin1_General_CS_AS";
    let bin = "COLLATE Latin1_General_BIN2";
    for function in ["LAG", "LEAD"] {
        let count = |value: &str, default: &str| {
            format!(
                "SELECT COUNT(*) FROM (SELECT {function}({value}, 1, {default}) OVER (ORDER BY id) AS p FROM #t) x WHERE p = 'X'"
            )
        };
        assert_eq!(value(&mut session, &count("n", "'x'")), "1", "{function}");
        let named = count("n", &format!("'x' {cs}"));
        assert_eq!(value(&mut session, &named), "0", "{function}");
        let both = count(&format!("n {bin}"), &format!("'x' {cs}"));
        assert_eq!(numbers(&run(&mut session, &both)), [468], "{function}");
    }
    let list = |value: &str, between: &str| {
        format!(
            "SELECT COUNT(*) FROM (SELECT STRING_AGG({value}, {between}) AS l FROM #t) x WHERE l = 'B;B'"
        )
    };
    assert_eq!(value(&mut session, &list("n", "';'")), "1");
    let named = list("n", &format!("';' {cs}"));
    assert_eq!(value(&mut session, &named), "0");
    let both = list(&format!("n {bin}"), &format!("';' {cs}"));
    assert_eq!(numbers(&run(&mut session, &both)), [468]);
}

#[test]
fn functions_that_search_and_compare_do_so_by_the_collation() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (form, plain, in_case, by_code) in [
        ("CHARINDEX('b', 'aBb' {c})", "2", "3", "3"),
        ("CHARINDEX('b' {c}, 'aBb', 2)", "2", "3", "3"),
        ("REPLACE('aBb' {c}, 'b', '-')", "a--", "aB-", "aB-"),
        ("PATINDEX('%b%' {c}, 'aBb')", "2", "3", "3"),
        ("PATINDEX('b%', 'Bb' {c})", "1", "0", "0"),
        ("TRANSLATE('aBb' {c}, 'b', 'x')", "axx", "aBx", "aBx"),
        ("TRIM('x' {c} FROM 'xax')", "a", "a", "a"),
        ("LTRIM('xax', 'x' {c})", "ax", "ax", "ax"),
        ("DIFFERENCE('Smith' {c}, 'smyth')", "4", "4", "4"),
        ("GREATEST('B', 'a' {c})", "B", "B", "a"),
        ("LEAST('B' {c}, 'a')", "a", "a", "B"),
        // Lower case comes before upper case where nothing else differs.
        ("LEAST('A' {c}, 'a')", "A", "a", "A"),
        (
            "CASE WHEN REPLACE('aBb' {c}, 'x', '') = 'abb' THEN 1 ELSE 0 END",
            "1",
            "0",
            "0",
        ),
        (
            "CASE WHEN GREATEST('aBb' {c}, 'a') = 'abb' THEN 1 ELSE 0 END",
            "1",
            "0",
            "0",
        ),
    ] {
        for (collation, expected) in [
            ("", plain),
            ("COLLATE Latin1_General_CI_AS", plain),
            ("COLLATE Latin1_General_CS_AS", in_case),
            ("COLLATE Latin1_General_BIN2", by_code),
        ] {
            let query = format!("SELECT {}", form.replace("{c}", collation));
            assert_eq!(value(&mut session, &query), expected, "{query}");
        }
    }
}

#[test]
fn numbers_and_binaries_become_texts_as_t_sql_says() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, expected) in [
        ("CAST(1000 AS varchar(2))", "*"),
        ("CAST(1000 AS char(3))", "*  "),
        ("CAST(1000 AS varchar(4))", "1000"),
        ("CONVERT(varchar(20), 0x00FF, 1)", "0x00FF"),
        ("CONVERT(varchar(20), 0x00FF, 2)", "00FF"),
        ("CONVERT(varchar(3), 0x4142, 0)", "AB"),
        ("CONVERT(varbinary(4), '0x00ff', 1)", "0x00FF"),
        ("CONVERT(varbinary(4), '00ff', 2)", "0x00FF"),
    ] {
        assert_eq!(
            value(&mut session, &format!("SELECT {expression}")),
            expected,
            "{expression}"
        );
    }
    for (expression, number) in [
        ("CAST(1000 AS nvarchar(2))", 8115),
        ("CAST(12345678901 AS varchar(2))", 8115),
        ("CAST(1234.5 AS varchar(3))", 8115),
        ("CONVERT(varbinary(4), 'xyz', 2)", 8114),
        ("CONVERT(varbinary(4), '00ff', 1)", 8114),
    ] {
        let record = run(&mut session, &format!("SELECT {expression}"));
        assert_eq!(
            numbers(&record),
            [number],
            "{expression}: {:?}",
            common::said(&record)
        );
    }
}

#[test]
fn statements_that_are_not_here_are_named() {
    let stage = Stage::new();
    let mut session = stage.session();
    for statement in [
        "SHUTDOWN WITH NOWAIT",
        "KILL UOW",
        "BULK INSERT t FROM 'f'",
        "GRANT ALL TO x",
        "REVOKE ALL FROM x",
        "DENY ALL TO x",
        "CHECKPOINT",
        "ALTER LOGIN x DISABLE",
        "ALTER DATABASE x SET READ_ONLY",
    ] {
        let word = statement.split(' ').next().unwrap();
        for (batch, expected) in [
            (statement.to_owned(), &[50002][..]),
            (format!("PRINT 'before' {statement}"), &[0, 50002]),
            (format!("IF 1 = 0 {statement}"), &[]),
        ] {
            let record = run(&mut session, &batch);
            let said = common::said(&record);
            assert_eq!(numbers(&record), expected, "{batch}: {said:?}");
            let last = said.last().map_or("", String::as_str);
            assert!(said.is_empty() || last.contains(word), "{batch}: {last}");
        }
    }
    for option in ["TRUNCATE_ONLY", "NO_LOG"] {
        let record = run(&mut session, &format!("BACKUP LOG shop WITH {option}"));
        assert_eq!(
            common::said(&record),
            [format!("155 '{option}' is not a recognized BACKUP option.")]
        );
    }
}
