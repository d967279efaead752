//! Goal: SELECT has T-SQL's values and types over the views.
//! Method: expressions and queries in a session, with the expected values; generated queries must not panic.

mod common;

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::{Column, Type, views};
use proptest::prelude::*;

/// Type and value of an expression.
fn typed(expression: &str) -> (Type, String) {
    let stage = Stage::new();
    let record = run(&mut stage.session(), &format!("SELECT {expression}"));
    let values = rows(&record);
    assert_eq!(values.len(), 1, "{expression}: {:?}", said(&record));
    (record.columns()[0].kind, values[0][0].clone())
}

/// Goal: SOUNDEX and DIFFERENCE have the values of SQL Server's documentation, and no others.
#[test]
fn names_that_sound_alike_have_one_code() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (name, code) in [
        ("Smith", "S530"),
        ("Smythe  ", "S530"),
        ("Green", "G650"),
        ("greene", "G650"),
        ("Blotchet-Halls", "B432"),
        ("Washington", "W252"),
        ("Gutierrez", "G362"),
        ("Jackson", "J250"),
        ("Tymczak", "T522"),
        ("Ashcraft", "A261"),
        ("Pfister", "P236"),
        ("a", "A000"),
    ] {
        let asked = format!("SELECT SOUNDEX('{name}')");
        assert_eq!(value(&mut session, &asked), code, "{name}");
    }
    for (left, right, count) in [
        ("Green", "Greene", "4"),
        ("Blotchet-Halls", "Greene", "0"),
        ("Smithers", "Smythers", "4"),
        ("Anothers", "Brothers", "2"),
    ] {
        let asked = format!("SELECT DIFFERENCE('{left}', N'{right}')");
        assert_eq!(value(&mut session, &asked), count, "{left} {right}");
    }
    for odd in ["''", "'O''Neill'", "'7'", "'Lyle'"] {
        let asked = format!("SELECT SOUNDEX({odd})");
        assert_eq!(numbers(&run(&mut session, &asked)), [50002], "{odd}");
    }
    let of_null = "SELECT COUNT(*) WHERE SOUNDEX(NULL) IS NULL AND DIFFERENCE('a', NULL) IS NULL";
    assert_eq!(value(&mut session, of_null), "1");
}

#[test]
fn expressions_have_t_sqls_types_and_values() {
    // By hand, after the documentation of data types and precedence.
    for (expression, kind, expected) in [
        ("7 / 2", Type::Int, "3"),
        ("7 % 4", Type::Int, "3"),
        ("7 / 2.0", Type::numeric(8, 6), "3.500000"),
        ("2.0 / 3", Type::numeric(7, 6), "0.666666"),
        ("0.3 / 0.1", Type::numeric(7, 6), "3.000000"),
        (
            "CAST(7 AS numeric(20,0)) / CAST(2 AS numeric(20,0))",
            Type::numeric(38, 18),
            "3.500000000000000000",
        ),
        ("CAST(305 AS float) / 100", Type::Float, "3.05"),
        ("1 + 2 * 3", Type::Int, "7"),
        ("'a' + N'b'", Type::nvarchar(2), "ab"),
        (
            "CONVERT(NUMERIC(10, 2), 3.14159)",
            Type::numeric(10, 2),
            "3.14",
        ),
        ("ISNULL(NULL, 'x')", Type::VarChar(Some(1)), "x"),
        ("COALESCE(NULL, 1, 2)", Type::Int, "1"),
        (
            "CASE WHEN 1 = 2 THEN 1 ELSE 2.5 END",
            Type::numeric(11, 1),
            "2.5",
        ),
        (
            "CASE 'A' WHEN 'a' THEN 'same' END",
            Type::VarChar(Some(4)),
            "same",
        ),
        ("DATEDIFF(day, '2026-01-01', '2026-03-01')", Type::Int, "59"),
        (
            "DATEADD(hour, 1, '2026-01-01')",
            Type::DateTime,
            "2026-01-01 01:00:00.000",
        ),
        (
            "CONVERT(varchar(8), CAST('2026-03-01' AS datetime), 112)",
            Type::VarChar(Some(8)),
            "20260301",
        ),
        ("LEFT('backup', 4)", Type::VarChar(Some(8000)), "back"),
        ("LEFT(N'backup', 4)", Type::nvarchar(4000), "back"),
        ("LEN('ab ')", Type::Int, "2"),
        ("IIF(1 < 2, 'yes', 'no')", Type::VarChar(Some(3)), "yes"),
        ("TRY_CAST('x' AS int)", Type::Int, "NULL"),
        ("'5' + 3", Type::Int, "8"),
        ("-5", Type::Int, "-5"),
        ("CAST(1 AS bit)", Type::Bit, "1"),
        ("0x00ff", Type::VarBinary(Some(2)), "0x00FF"),
        ("YEAR('2026-03-01')", Type::Int, "2026"),
        ("NULLIF(1, 1)", Type::Int, "NULL"),
        ("ROUND(2.345, 2)", Type::numeric(4, 3), "2.350"),
        ("FLOOR(2.7)", Type::numeric(2, 0), "2"),
        ("CEILING(2.1)", Type::numeric(2, 0), "3"),
        ("3000000000", Type::numeric(10, 0), "3000000000"),
        (
            "(SELECT MAX(n) FROM (SELECT 1 AS n UNION ALL SELECT 5) AS t)",
            Type::Int,
            "5",
        ),
        ("DB_NAME()", Type::nvarchar(128), "master"),
        ("@@SERVERNAME", Type::nvarchar(300), "HARBOUR"),
        (
            "SERVERPROPERTY('ProductMajorVersion')",
            Type::nvarchar(128),
            "16",
        ),
    ] {
        assert_eq!(
            typed(expression),
            (kind, expected.to_owned()),
            "{expression}"
        );
    }
}

#[test]
fn functions_give_what_their_types_say() {
    let stage = Stage::new();
    let mut session = stage.session();
    // By hand, after the documentation of each function.
    for (expression, expected) in [
        ("ISNULL(CAST(NULL AS varchar(2)), 'abcdef')", "ab"),
        ("ISNULL(CAST(NULL AS int), 1.7)", "1"),
        ("ISNULL(CAST(NULL AS numeric(5,2)), 1)", "1.00"),
        ("STR(2.5)", "         3"),
        ("STR(-2.5, 2)", "-3"),
        ("STR(1234.5678, 10, 2)", "   1234.57"),
        ("STR(1234.56, 6, 2)", "1234.6"),
        ("STR(123, 2)", "**"),
        ("STR(1, -1)", "NULL"),
        ("DATALENGTH(CAST(1 AS tinyint))", "1"),
        ("DATALENGTH(CAST(1 AS bigint))", "8"),
        ("DATALENGTH(CAST(1 AS numeric(20,2)))", "13"),
        ("DATALENGTH(CAST('2026-01-31' AS date))", "3"),
        ("DATALENGTH(CAST('2026-01-31' AS datetime2(3)))", "7"),
        ("DATALENGTH('abc ')", "4"),
        ("DATALENGTH('ä€')", "2"),
        ("DATALENGTH(N'abc')", "6"),
        ("DATALENGTH(LEFT('abc', 2))", "2"),
        ("DATALENGTH(LEFT(N'abc', 2))", "4"),
        ("DATALENGTH('a' + N'b')", "4"),
        ("DATALENGTH(CAST('a' AS nchar(3)))", "6"),
        ("DATALENGTH(0x0102)", "2"),
        ("UPPER('äößéł')", "ÄÖßÉŁ"),
        ("LOWER('ÄÖÉŁ')", "äöéł"),
        ("REPLACE('ÄaÄb', 'ä', '-')", "-a-b"),
        ("CHARINDEX('É', 'café')", "4"),
        ("POWER(2, 10)", "1024"),
        ("POWER(2, 0.5)", "1"),
        ("POWER(2, -1)", "0"),
        ("POWER(2.0, 3)", "8.0"),
        ("POWER(CAST(3 AS bigint), 39)", "4052555153018976267"),
        ("POWER(CAST(2 AS float), 0.5)", "1.4142135623730951"),
        ("'a' + NULL", "NULL"),
        ("1 + NULL", "NULL"),
        ("REPLICATE('ab', 2)", "abab"),
        ("REPLICATE('ab', -1)", "NULL"),
        ("LEN(REPLICATE('abc', 5000))", "8000"),
        ("LEN(REPLICATE(N'abc', 5000))", "4000"),
        ("LEN(REPLICATE(CAST('x' AS varchar(max)), 9000))", "9000"),
        ("STUFF('abc', 1, -1, 'x')", "NULL"),
        ("ASCII(CHAR(228))", "228"),
        ("CHAR(256)", "NULL"),
        ("NCHAR(322)", "ł"),
        ("CONCAT(CAST(1.50 AS numeric(5,2)), 'x')", "1.50x"),
        ("LEN(CAST(1.50 AS numeric(5,2)))", "4"),
        // Each step is rounded to its type.
        ("1 / 3.0 * 3", "0.999999"),
        ("-9223372036854775808", "-9223372036854775808"),
        (
            "FLOOR(CAST(9007199254740993 AS bigint))",
            "9007199254740993",
        ),
        (
            "CAST(9007199254740993 AS numeric(20,0)) + 1",
            "9007199254740994",
        ),
    ] {
        let query = format!("SELECT {expression}");
        assert_eq!(value(&mut session, &query), expected, "{expression}");
    }
}

#[test]
fn binaries_have_the_bytes_of_the_type_they_come_from() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, expected) in [
        ("CAST(255 AS varbinary(4))", "0x000000FF"),
        ("CAST(255 AS varbinary(8))", "0x000000FF"),
        ("CAST(255 AS varbinary(2))", "0x00FF"),
        ("CAST(255 AS binary(8))", "0x00000000000000FF"),
        (
            "CAST(CAST(255 AS bigint) AS varbinary(8))",
            "0x00000000000000FF",
        ),
        ("CAST(CAST(7 AS tinyint) AS varbinary(4))", "0x07"),
        ("CAST(-1 AS binary(4))", "0xFFFFFFFF"),
        ("CAST('abc' AS varbinary(9))", "0x616263"),
        ("CAST('abc' AS binary(4))", "0x61626300"),
        ("CAST(N'ab' AS varbinary(9))", "0x61006200"),
        ("CAST(0x01 AS binary(2))", "0x0100"),
        ("CAST(0x000000FF AS int)", "255"),
        ("CAST(0xFFFF AS smallint)", "-1"),
        ("CAST(0x6162E4 AS varchar(9))", "abä"),
        ("CAST(0x61006200 AS nvarchar(9))", "ab"),
        ("SUBSTRING(0x01020304, 2, 2)", "0x0203"),
    ] {
        let query = format!("SELECT {expression}");
        assert_eq!(value(&mut session, &query), expected, "{expression}");
    }
    let script = "DECLARE @n bigint = 258, @b varbinary(8), @c binary(2) = 258;
                  SET @b = @n; SELECT CONVERT(varchar(99), @b, 2) + ' ' + CONVERT(varchar(99), @c, 2)";
    assert_eq!(value(&mut session, script), "0000000000000102 0102");
}

#[test]
fn money_is_written_in_its_styles() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (expression, expected) in [
        ("CONVERT(varchar, $1234567.891)", "1234567.89"),
        ("CONVERT(varchar, $1234567.891, 0)", "1234567.89"),
        ("CONVERT(varchar, $1234567.891, 1)", "1,234,567.89"),
        ("CONVERT(varchar, $1234567.891, 2)", "1234567.8910"),
        ("CONVERT(varchar, -$123456.785, 1)", "-123,456.79"),
        ("CONVERT(varchar, CAST(0.5 AS smallmoney), 1)", "0.50"),
        ("CONCAT($1.5, '')", "1.50"),
        ("CAST(CAST(1.5 AS numeric(19,4)) AS varchar)", "1.5000"),
        ("$1.5", "1.5000"),
        ("$1 / 3 * 3", "0.9999"),
        ("CAST($1.5 AS int)", "2"),
        ("CAST('-$1,234.5' AS money)", "-1234.5000"),
    ] {
        let query = format!("SELECT {expression}");
        assert_eq!(value(&mut session, &query), expected, "{expression}");
    }
    let script = "DECLARE @m money = 1234.5, @t varchar(20); SET @t = @m; PRINT @m; SELECT @t";
    let record = run(&mut session, script);
    assert_eq!(said(&record), ["0 1234.50"]);
    assert_eq!(rows(&record), [["1234.50"]]);
}

#[test]
fn mistakes_have_sql_servers_numbers() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, number) in [
        ("SELECT 1 / 0", 8134),
        ("SELECT LEFT('a', -1)", 537),
        ("SELECT SUBSTRING('a', 1, -1)", 537),
        ("SELECT RIGHT('a', -1)", 536),
        ("SELECT POWER(2, 31)", 232),
        ("SELECT CONVERT(varchar, $1, 7)", 281),
        ("SELECT CONVERT(varchar(3), $1234, 1)", 234),
        ("SELECT CAST('x' AS money)", 235),
        ("SELECT CAST(922337203685478 AS money) * 10", 8115),
        // Values that would otherwise be rounded silently.
        ("SELECT 12345678901234567890123", 8115),
        (
            "IF 12345678901234567890123 = 12345678901234567890124 PRINT 'same'",
            8115,
        ),
        ("DECLARE @n numeric(25,0) = 12345678901234567890123", 8115),
        (
            "SELECT CAST(9223372036854775807 AS numeric(20,0)) + 2",
            8115,
        ),
        ("SELECT (2147483647 + 1) - 1", 8115),
        (
            "SELECT CAST(9223372036854775807 AS bigint) - (CAST(9223372036854775807 AS bigint) + 1)",
            8115,
        ),
        ("SELECT CAST('x' AS int)", 245),
        ("SELECT CAST('2026-11-23T09:13:24+02:00' AS datetime)", 241),
        (
            "SELECT CAST('2026-11-23 09:13+02:00' AS smalldatetime)",
            241,
        ),
        ("SELECT CAST('2026-11-23T09:13:24+02' AS datetime)", 241),
        ("SELECT CAST('tomorrow' AS datetime)", 241),
        ("SELECT * FROM nowhere", 208),
        ("SELECT nothing FROM sys.databases", 207),
        ("SELECT d.nothing FROM sys.databases d", 207),
        ("SELECT x.name FROM sys.databases d", 4104),
        ("SELECT name FROM sys.databases a, sys.databases b", 209),
        (
            "SELECT a.name FROM sys.databases a JOIN sys.databases a ON 1 = 1",
            1013,
        ),
        ("SELECT NOSUCH(1)", 195),
        ("SELECT LEN()", 174),
        ("SELECT *", 263),
        ("SELECT (SELECT 1, 2)", 116),
        ("SELECT 1 UNION SELECT 1, 2", 205),
        ("SELECT @@nothing", 137),
        ("DECLARE @a int; SELECT @a = 1, 2", 141),
        ("SELECT CONVERT(varchar(10), GETDATE(), 999)", 281),
        ("SELECT GETDATE() * 2", 402),
        ("SELECT CAST(1 AS wares)", 243),
        (
            "SELECT 1 FROM sys.databases CROSS APPLY sys.messages",
            50002,
        ),
        ("SELECT name + 'x' INTO #t FROM sys.databases", 1038),
        ("SELECT FROM", 102),
        ("PRINT 'a' sp_configure", 102),
    ] {
        let record = run(&mut session, query);
        assert_eq!(numbers(&record), [number], "{query}: {:?}", said(&record));
    }
}

#[test]
fn the_ratio_of_compression_is_what_was_stored() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH COMPRESSION (ALGORITHM = ZSTD)",
    );
    let record = run(
        &mut session,
        "SELECT backup_size / compressed_backup_size AS ratio, backup_size, compressed_backup_size FROM msdb..backupset",
    );
    let ratio = Column::new("ratio", Type::numeric(38, 18));
    assert_eq!(record.columns()[0], ratio);
    let row = &rows(&record)[0];
    let number = |i: usize| row[i].parse::<f64>().unwrap();
    assert!(
        (number(0) - number(1) / number(2)).abs() < 1e-12 && number(0) > 1.5,
        "{row:?}"
    );
    let whole = value(
        &mut session,
        "SELECT CONVERT(NUMERIC(10,2), SUM(backup_size) / NULLIF(SUM(compressed_backup_size), 0)) FROM msdb.dbo.backupset",
    );
    assert_eq!(whole, format!("{:.2}", number(0)));
}

#[test]
fn every_view_can_be_read_whole_before_and_after_a_backup() {
    let stage = Stage::new();
    let mut session = stage.session();
    for round in 0..2 {
        for view in views() {
            let place = view.database.map_or(String::new(), |d| format!("{d}."));
            let record = run(
                &mut session,
                &format!("SELECT * FROM {place}{}.{}", view.schema, view.name),
            );
            assert_eq!(numbers(&record), [0u32; 0], "{view:?}: {:?}", said(&record));
            assert_eq!(record.columns().len(), view.columns().len(), "{view:?}");
            for (column, declared) in record.columns().iter().zip(view.columns()) {
                assert_eq!(*column, declared, "{view:?}");
            }
        }
        if round == 0 {
            run(
                &mut session,
                "BACKUP DATABASE shop TO DISK = 'a.bak'; RESTORE DATABASE shop FROM DISK = 'a.bak'",
            );
        }
    }
    assert_eq!(
        value(&mut session, "SELECT COUNT(*) FROM msdb.dbo.restorehistory"),
        "1"
    );
}

#[test]
fn queries_are_combined_as_their_types_compare() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, expected) in [
        ("SELECT 'shop' UNION SELECT 'SHOP '", "1"),
        ("SELECT 'shop' UNION ALL SELECT 'SHOP '", "2"),
        ("SELECT 'shop' EXCEPT SELECT 'Shop'", "0"),
        ("SELECT 'shop' INTERSECT SELECT N'SHOP '", "1"),
        ("SELECT 1 UNION SELECT '1'", "1"),
        (
            "SELECT CAST('2026-01-31' AS datetime) EXCEPT SELECT '20260131'",
            "0",
        ),
        // INTERSECT binds more tightly than the others.
        ("SELECT 1 UNION SELECT 2 INTERSECT SELECT 3", "1"),
    ] {
        let count = format!("SELECT COUNT(*) FROM ({query}) AS t");
        assert_eq!(value(&mut session, &count), expected, "{query}");
    }
    let ordered = "SELECT 'b' AS n UNION SELECT 'C' UNION SELECT 'A' ORDER BY n";
    assert_eq!(rows(&run(&mut session, ordered)), [["A"], ["b"], ["C"]]);
}

#[test]
fn texts_are_compared_without_regard_to_case() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (condition, holds) in [
        ("'a' = 'A'", "1"),
        ("'abc' LIKE 'A%'", "1"),
        ("'b' BETWEEN 'A' AND 'C'", "1"),
        ("'X' IN ('y', 'x')", "1"),
        ("'X' NOT IN ('y', 'x')", "0"),
        ("NULL = NULL", "0"),
        ("NOT EXISTS (SELECT 1 WHERE 1 = 0)", "1"),
        ("5 = '5'", "1"),
        (
            "CAST('2026-01-01' AS datetime) < '2026-01-01 00:00:01'",
            "1",
        ),
    ] {
        let query = format!("SELECT CASE WHEN {condition} THEN 1 ELSE 0 END");
        assert_eq!(value(&mut session, &query), holds, "{condition}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_query_makes_the_server_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("SELECT"), Just("*"), Just(","), Just("FROM"), Just("sys.databases"), Just("AS a"), Just("name"),
                Just("WHERE"), Just("GROUP BY"), Just("ORDER BY"), Just("1"), Just("'x'"), Just("NULL"), Just("("),
                Just(")"), Just("="), Just("+"), Just("/"), Just("0"), Just("-"), Just("CASE WHEN"), Just("THEN"),
                Just("END"), Just("UNION"), Just("JOIN"), Just("ON"), Just("COUNT(*)"), Just("MAX(name)"), Just("TOP 1"),
                Just("CAST(1 AS numeric(38,38))"), Just("GETDATE()"), Just("msdb..backupset"), Just("9e99"), Just("@@SPID"),
                Just("LIKE"), Just("IN"), Just("DISTINCT"), Just("OVER (ORDER BY 1)"), Just("ROW_NUMBER()"),
            ],
            1..14,
        )
    ) {
        let stage = STAGE.get_or_init(Stage::new);
        let mut session = stage.session();
        run(&mut session, &format!("SELECT {}", words.join(" ")));
    }
}

static STAGE: std::sync::OnceLock<Stage> = std::sync::OnceLock::new();

/// The rows of a query, with bars between values.
fn shown(query: &str) -> Vec<String> {
    let record = run(&mut Stage::new().session(), query);
    rows(&record).iter().map(|row| row.join("|")).collect()
}

#[test]
fn total_rows_leave_out_expressions_with_literals() {
    let from = "FROM (VALUES (1, 10), (2, 20)) t(a, v)";
    for (list, by, last) in [
        (
            "a + 1 k, SUM(v) s, GROUPING(a + 1) g",
            "ROLLUP(a + 1)",
            "NULL|30|1",
        ),
        (
            "ISNULL(LEFT(a, 1), 'T') k, SUM(v) s",
            "LEFT(a, 1) WITH ROLLUP",
            "T|30",
        ),
        (
            "CASE WHEN a > 1 THEN 'x' ELSE 'y' END k, SUM(v) s",
            "CUBE(CASE WHEN a > 1 THEN 'x' ELSE 'y' END)",
            "NULL|30",
        ),
        (
            "YEAR(DATEADD(year, a, '2026-01-01')) k, SUM(v) s",
            "ROLLUP(YEAR(DATEADD(year, a, '2026-01-01')))",
            "NULL|30",
        ),
        ("T.A k, SUM(v + t.a) s", "ROLLUP(a)", "NULL|33"),
        (
            "a k, (SELECT COUNT(*) FROM (VALUES (1), (2)) u(b) WHERE u.b = a) n",
            "ROLLUP(a)",
            "NULL|0",
        ),
    ] {
        let found = shown(&format!("SELECT {list} {from} GROUP BY {by}"));
        assert_eq!(
            found.last().map(String::as_str),
            Some(last),
            "{list}: {found:?}"
        );
    }
    // One expression is a part of another.
    let mut found = shown(&format!(
        "SELECT a, a + 1, SUM(v) {from} GROUP BY CUBE(a, a + 1)"
    ));
    found.sort();
    let expected = [
        "1|2|10",
        "1|NULL|10",
        "2|3|20",
        "2|NULL|20",
        "NULL|2|10",
        "NULL|3|20",
        "NULL|NULL|30",
    ];
    assert_eq!(found, expected);
}

#[test]
fn all_and_any_may_be_unknown() {
    for (condition, expected) in [
        ("1 > ALL (SELECT CAST(NULL AS int))", "unknown"),
        ("NOT (1 > ALL (SELECT CAST(NULL AS int)))", "unknown"),
        ("1 > ALL (SELECT n FROM (VALUES (NULL), (1)) t(n))", "false"),
        ("1 > ALL (SELECT 1 WHERE 1 = 2)", "true"),
        ("1 = ANY (SELECT CAST(NULL AS int))", "unknown"),
        ("1 = ANY (SELECT n FROM (VALUES (NULL), (1)) t(n))", "true"),
        ("1 = ANY (SELECT 1 WHERE 1 = 2)", "false"),
    ] {
        let query = format!(
            "SELECT CASE WHEN {condition} THEN 'true' WHEN NOT ({condition}) THEN 'false' ELSE 'unknown' END"
        );
        assert_eq!(shown(&query), [expected], "{condition}");
    }
}

#[test]
fn variance_of_large_values_keeps_their_differences() {
    let from = "FROM (VALUES (1000000001), (1000000002), (1000000003), (NULL)) t(v)";
    let found = shown(&format!(
        "SELECT VAR(v), STDEV(v), VARP(v) * 3, STDEVP(v - v) {from}"
    ));
    assert_eq!(found, ["1|1|2|0"]);
    let twice = "FROM (VALUES (1), (1), (3)) t(v)";
    assert_eq!(shown(&format!("SELECT VAR(DISTINCT v) {twice}")), ["2"]);
    assert_eq!(
        shown("SELECT VAR(v), VARP(v) FROM (VALUES (1)) t(v)"),
        ["NULL|0"]
    );
    let over = run(
        &mut Stage::new().session(),
        &format!("SELECT VAR(v) OVER () {twice}"),
    );
    assert_eq!(numbers(&over), [50002]);
}

#[test]
fn a_numbering_column_stays_in_its_place_behind_a_star() {
    let mut session = Stage::new().session();
    run(
        &mut session,
        "SELECT *, IDENTITY(int, 1, 1) AS id, 5 AS x INTO #k FROM (VALUES (7, 8)) t(a, b)",
    );
    let record = run(&mut session, "SELECT * FROM #k");
    let names: Vec<_> = record.columns().iter().map(|c| c.name.clone()).collect();
    assert_eq!(names, ["a", "b", "id", "x"]);
    assert_eq!(rows(&record), [["7", "8", "1", "5"]]);
    let both = "SELECT *, IDENTITY(int, 1, 1) AS id, t.* INTO #l FROM (VALUES (7)) t(a)";
    assert_eq!(numbers(&run(&mut session, both)), [50002]);
}

#[test]
fn an_objects_name_is_asked_of_a_database() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "CREATE TABLE msdb.dbo.own(a int)");
    let name = |database: &str| {
        format!("SELECT OBJECT_NAME(OBJECT_ID('msdb.dbo.own'), DB_ID('{database}'))")
    };
    assert_eq!(value(&mut session, &name("msdb")), "own");
    assert_eq!(value(&mut session, &name("master")), "NULL");
}

#[test]
fn paths_that_are_not_known_are_refused_by_name() {
    let xml = "DECLARE @x xml = '<r><a><b>1</b><a><b>2</b></a></a><b>3</b></r>';";
    for path in ["../b", "/r/child::b", "/r/parent::node()"] {
        let mut session = Stage::new().session();
        let record = run(&mut session, &format!("{xml} SELECT @x.exist('{path}')"));
        assert_eq!(numbers(&record), [50002], "{path}");
    }
    let row = "SELECT n.value('(/r/b)[1]', 'int') FROM @x.nodes('/r/a') t(n)";
    let record = run(&mut Stage::new().session(), &format!("{xml} {row}"));
    assert_eq!(numbers(&record), [50002]);
    let deep = format!("{xml} SELECT @x.query('//b')");
    assert_eq!(shown(&deep), ["<b>1</b><b>2</b><b>3</b>"]);
}

#[test]
fn a_distinct_select_compares_the_rows_of_all_groupings() {
    let from = "FROM (VALUES (1, 1), (1, 2), (2, 1)) t(a, b)";
    let both = "GROUP BY ROLLUP(a, b)";
    for (select, by, expected) in [
        ("DISTINCT a", "ORDER BY a", vec!["NULL", "1", "2"]),
        ("DISTINCT a", "ORDER BY t.a DESC", vec!["2", "1", "NULL"]),
        ("DISTINCT a x", "ORDER BY x", vec!["NULL", "1", "2"]),
        ("DISTINCT TOP 2 a", "ORDER BY a DESC", vec!["2", "1"]),
        ("DISTINCT ISNULL(a, 9)", "ORDER BY 1", vec!["1", "2", "9"]),
        (
            "a",
            "ORDER BY a, GROUPING(b), b",
            vec!["NULL", "1", "1", "1", "2", "2"],
        ),
    ] {
        let found = shown(&format!("SELECT {select} {from} {both} {by}"));
        assert_eq!(found, expected, "{select} {by}");
    }
    for (order, number) in [("b", 145), ("t.b", 145), ("a + 1", 50002)] {
        let query = format!("SELECT DISTINCT a {from} {both} ORDER BY {order}");
        let record = run(&mut Stage::new().session(), &query);
        assert_eq!(numbers(&record), [number], "{order}");
    }
}

#[test]
fn grouping_is_asked_of_what_is_grouped() {
    let from = "FROM (VALUES (1, 1), (1, 2)) t(a, b)";
    let plain = format!("SELECT a, GROUPING(a), GROUPING_ID(t.a) {from} GROUP BY a");
    assert_eq!(shown(&plain), ["1|0|0"]);
    let unknown = "Argument 2 of the GROUPING_ID function does not match any of the expressions in the GROUP BY clause.";
    for (list, by, number) in [
        ("GROUPING(b)", "GROUP BY a", 8161),
        ("GROUPING(b)", "GROUP BY ROLLUP(a)", 8161),
        ("GROUPING_ID(a, b)", "GROUP BY CUBE(a)", 8161),
        ("GROUPING(a)", "", 8160),
    ] {
        let query = format!("SELECT {list} {from} {by}");
        let record = run(&mut Stage::new().session(), &query);
        assert_eq!(numbers(&record), [number], "{list} {by}");
        if list.contains("_ID") {
            assert!(said(&record).concat().contains(unknown));
        }
    }
}

#[test]
fn offset_and_fetch_take_numbers_of_rows_alone() {
    let page = |skip: &str, count: &str| {
        let fetch = match count {
            "" => String::new(),
            count => format!("FETCH NEXT {count} ROWS ONLY"),
        };
        let rows = "FROM (VALUES (1), (2), (3)) t(a) ORDER BY a";
        let none = "DECLARE @none int, @zero int = 0, @less int = -1";
        format!("{none} SELECT a {rows} OFFSET {skip} ROWS {fetch}")
    };
    assert_eq!(shown(&page("1", "1")), ["2"]);
    assert_eq!(shown(&page("@zero + 2", "")), ["3"]);
    assert_eq!(shown(&page("@zero", "@zero + 2")), ["1", "2"]);
    for (skip, count, number) in [
        ("0", "@zero", 10744),
        ("0", "0", 10744),
        ("0", "@less", 10744),
        ("0", "@none", 1014),
        ("@less", "1", 10742),
        ("@less", "@zero + 1", 10742),
        ("@less", "", 10742),
        ("@none", "", 1014),
    ] {
        let record = run(&mut Stage::new().session(), &page(skip, count));
        assert_eq!(numbers(&record), [number], "{skip} {count}");
    }
}

#[test]
fn texts_are_numbers_and_dates_as_far_as_a_conversion_takes_them() {
    for (texts, expected) in [
        (
            "'--5', '+-5', '-+5', '-$-5', '$', 'd5', '1dd5', '1e5d'",
            "00001000",
        ),
        (
            "'$.5', '-$.5', '$-.5', '1d5', '1D-5', '-.5', '$1,234.50', '1e5'",
            "11111111",
        ),
    ] {
        let all = texts.split(", ");
        let calls: Vec<_> = all.map(|text| format!("ISNUMERIC({text})")).collect();
        let found = shown(&format!("SELECT CONCAT({})", calls.join(", ")));
        assert_eq!(found, [expected], "{texts}");
    }
    let dates = "ISDATE(20270131), ISDATE(2027), ISDATE(20270231), ISDATE(-1), ISDATE('2027')";
    assert_eq!(shown(&format!("SELECT CONCAT({dates})")), ["11001"]);
    let appended =
        "SELECT JSON_MODIFY('[1]', 'append $', 2), JSON_MODIFY('[]', 'append lax $', 'a')";
    assert_eq!(shown(appended), ["[1,2]|[\"a\"]"]);
    let mut session = Stage::new().session();
    let object = run(&mut session, "SELECT JSON_MODIFY('{}', 'append $', 2)");
    assert_eq!(numbers(&object), [50002]);
    let span =
        "SELECT FORMAT(CAST('07:35:10.5' AS time), 'c'), FORMAT(CAST('07:35' AS time), N'hh:mm')";
    assert_eq!(shown(span), ["07:35:10.5000000|NULL"]);
    let place = run(
        &mut session,
        "DECLARE @m nvarchar(99) = FORMATMESSAGE('%d', GETDATE())",
    );
    assert!(
        said(&place).concat().contains("(parameter 2)"),
        "{:?}",
        said(&place)
    );
}

/// Goal: the first rows are as many as TOP says, or the query says why not; SQLite would take other numbers.
#[test]
fn top_takes_whole_numbers_that_are_not_negative() {
    let stage = Stage::new();
    let mut session = stage.session();
    let rows = "FROM (VALUES (1), (2), (3), (4)) AS v(n) ORDER BY n";
    for (top, number) in [
        ("TOP (-1)", 127),
        ("TOP (NULL)", 1060),
        ("TOP (1.5)", 1060),
        ("TOP (-1) WITH TIES", 127),
        ("TOP 200 PERCENT", 1031),
        ("TOP (-1) PERCENT", 1031),
    ] {
        let refused = numbers(&run(&mut session, &format!("SELECT {top} n {rows}")));
        assert_eq!(refused, [number], "{top}");
    }
    for (top, expected) in [
        ("TOP (2)", 2),
        ("TOP 26 PERCENT", 2),
        ("TOP (0)", 0),
        ("TOP (1) WITH TIES", 1),
    ] {
        let record = run(&mut session, &format!("SELECT {top} n {rows}"));
        assert_eq!(record.rows().count(), expected, "{top}");
    }
}

/// Goal: forms of SQL Server 2022, and names of columns as texts.
#[test]
fn forms_of_newer_servers_give_their_rows() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, expected) in [
        ("SELECT STRING_AGG(CAST(value AS varchar(9)), ',') FROM GENERATE_SERIES(1, 10, 4)", "1,5,9"),
        ("SELECT STRING_AGG(CAST(value AS varchar(9)), ',') FROM GENERATE_SERIES(3, 1)", "3,2,1"),
        ("SELECT COUNT(*) FROM GENERATE_SERIES(1, 0, 1)", "0"),
        ("SELECT SUM(s.value) FROM (VALUES (2), (3)) AS v(n) CROSS APPLY GENERATE_SERIES(1, v.n) AS s", "9"),
        (
            "SELECT COUNT(*) FROM (VALUES (1, NULL), (2, 2), (NULL, NULL)) AS v(a, b) WHERE v.a IS NOT DISTINCT FROM v.b",
            "2",
        ),
        ("SELECT COUNT(*) FROM (VALUES (1, NULL), (2, 2), (3, 4)) AS v(a, b) WHERE v.a IS DISTINCT FROM v.b", "2"),
        ("SELECT CONCAT(TRIM('.' FROM '..a.b..'), '|', LTRIM('xxax', 'x'), '|', RTRIM('ayy', 'y'))", "a.b|ax|a"),
        ("SELECT CONCAT(TRIM(LEADING '.' FROM '.a.'), TRIM(TRAILING '.' FROM '.b.'), TRIM(BOTH '.' FROM '.c.'))", "a..bc"),
        (
            "SELECT STRING_AGG(CONCAT(t, r), ' ') FROM (SELECT SUM(n) OVER w AS t, ROW_NUMBER() OVER (w ORDER BY n DESC) AS r
               FROM (VALUES (1, 1), (1, 2), (2, 5)) AS v(g, n) WINDOW w AS (PARTITION BY g)) AS q",
            "31 32 51",
        ),
        ("SELECT (SELECT 'a/@b' = 1, 'x y' = 'z''s', c = 3 FOR JSON PATH)", "[{\"a\\/@b\":1,\"x y\":\"z's\",\"c\":3}]"),
        ("SELECT (SELECT DISTINCT TOP (1) N'n' = n FROM (VALUES (1)) AS v(n) FOR JSON PATH)", "[{\"n\":1}]"),
        ("SELECT CASE WHEN 'a' = 'b' THEN 1 ELSE 2 END", "2"),
        (
            "SELECT STRING_AGG(CONCAT(g, n), ',') WITHIN GROUP (ORDER BY g DESC, n) FROM (VALUES ('a', 2), ('b', 9), ('a', 1)) AS v(g, n)",
            "b9,a1,a2",
        ),
        ("SELECT STRING_AGG([key], ',') FROM OPENJSON('{\"a\":1,\"A\":2}') WHERE [key] = 'A'", "A"),
        ("DECLARE @p nvarchar(9) = '$.a'; SELECT SUM(CAST(value AS int)) FROM OPENJSON('{\"a\":[1,2]}', @p)", "3"),
        ("SELECT COUNT(DISTINCT i) FROM (SELECT NEWID() AS i FROM (VALUES (1), (2), (3)) AS v(n)) AS q", "3"),
        ("SELECT CASE WHEN RAND() >= 0 AND RAND() < 1 THEN 'ok' END", "ok"),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
    for refused in [
        "SELECT RAND(7)",
        "SELECT @@CPU_BUSY",
        "SELECT SUM(n) OVER nowhere FROM (VALUES (1)) AS v(n)",
        "SELECT * FROM GENERATE_SERIES(1, 2, 0)",
        "SELECT * FROM GENERATE_SERIES(1.0, 2.0)",
        "SELECT NULL AS x FOR XML PATH('r'), ELEMENTS XSINIL",
        "WITH XMLNAMESPACES ('u' AS n) SELECT 1 AS [n:x] FOR XML PATH('r')",
        "SELECT 1 AS x FOR XML RAW, XMLSCHEMA",
        "DECLARE @x xml = '<a/>'; SET @x.modify('delete /a')",
    ] {
        assert_eq!(numbers(&run(&mut session, refused)), [50_002], "{refused}");
    }
    let long = run(
        &mut session,
        "SELECT COUNT(*) FROM GENERATE_SERIES(1, 9223372036854775807)",
    );
    assert!(long.messages().any(|m| m.is_error()));
}

/// Goal: an element has no attribute twice.
#[test]
fn attributes_of_xml_are_not_repeated() {
    let stage = Stage::new();
    let mut session = stage.session();
    for twice in [
        "SELECT 1 AS [@a], 2 AS [@a] FOR XML PATH('r')",
        "SELECT 1 AS a, 2 AS a FOR XML RAW",
        "SELECT a, a FROM (VALUES (1)) AS v(a) FOR XML AUTO",
        "SELECT 1 AS [x/@a], 2 AS [x/@a] FOR XML PATH('r')",
    ] {
        assert_eq!(numbers(&run(&mut session, twice)), [6810], "{twice}");
    }
    for (once, expected) in [
        (
            "SELECT (SELECT 1 AS [x/@a], 2 AS y, 3 AS [x/@a] FOR XML PATH('r'))",
            "<r><x a=\"1\"/><y>2</y><x a=\"3\"/></r>",
        ),
        (
            "SELECT (SELECT 1 AS [@a], 2 AS [@b] FOR XML PATH('r'))",
            "<r a=\"1\" b=\"2\"/>",
        ),
    ] {
        assert_eq!(value(&mut session, once), expected, "{once}");
    }
}

/// Goal: numbers of rows can be part of a text that a SELECT builds.
#[test]
fn a_text_is_built_with_the_numbers_of_its_rows() {
    let stage = Stage::new();
    let mut session = stage.session();
    let built = "DECLARE @s varchar(99) = 'FROM '; SELECT @s += CASE WHEN ROW_NUMBER() OVER (ORDER BY n) = 1 THEN '' ELSE ', ' END + n
                 FROM (VALUES ('b'), ('a')) AS v(n); SELECT @s";
    assert_eq!(value(&mut session, built), "FROM a, b");
    for refused in [
        "DECLARE @s varchar(99) = ''; SELECT @s += CAST(ROW_NUMBER() OVER (ORDER BY n) AS varchar(9)) FROM (VALUES (1)) AS v(n) ORDER BY n DESC",
        "DECLARE @n int = 0; SELECT @n += SUM(@n) OVER () FROM (VALUES (1)) AS v(n)",
        "DECLARE @n int = 0; SELECT @n += SUM(n) OVER () FROM (VALUES (1), (2)) AS v(n)",
        "DECLARE @n int = 0; SELECT @n += ROW_NUMBER() OVER (ORDER BY @n) FROM (VALUES (1), (2)) AS v(n)",
    ] {
        assert_eq!(numbers(&run(&mut session, refused)), [50_002], "{refused}");
    }
}

/// Goal: NEWID has one value in each row of the query that it is in, wherever that is named.
#[test]
fn newid_has_one_value_in_a_row() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE TABLE dbo.three (n int)\nINSERT dbo.three VALUES (1), (2), (3)",
    );
    run(&mut session, "USE master");
    run(
        &mut session,
        "CREATE VIEW dbo.named AS SELECT NEWID() AS id, n FROM dbo.three",
    );
    for from in [
        "(SELECT NEWID() AS id, n FROM dbo.three) x",
        "(SELECT id, n FROM (SELECT NEWID() AS id, n FROM dbo.three) y WHERE n > 0) x",
        "(SELECT TOP (3) NEWID() AS id FROM dbo.three) x",
        "dbo.named x",
        "dbo.three t CROSS APPLY (SELECT NEWID() AS id WHERE t.n > 0) x",
    ] {
        let query = format!(
            "SELECT COUNT(*), COUNT(DISTINCT a) FROM (SELECT x.id AS a, x.id AS b FROM {from}) z WHERE a = b"
        );
        assert_eq!(value(&mut session, &query), "3|3", "{from}");
    }
    let common =
        "WITH x AS (SELECT NEWID() AS id FROM dbo.three) SELECT COUNT(*) FROM x WHERE x.id = x.id";
    assert_eq!(value(&mut session, common), "3");
    let merged =
        "DECLARE @t TABLE (id uniqueidentifier, n int); DECLARE @o TABLE (id uniqueidentifier);
                  MERGE @t AS t USING (SELECT NEWID() AS id, n FROM dbo.three) AS s ON t.n = s.n
                  WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n) OUTPUT s.id INTO @o;
                  SELECT COUNT(*) FROM @t t JOIN @o o ON o.id = t.id";
    assert_eq!(value(&mut session, merged), "3");
}

#[test]
fn texts_have_no_more_characters_than_their_types() {
    let stage = Stage::new();
    let mut session = stage.session();
    let declared = "DECLARE @v varchar(8000) = REPLICATE('x', 8000), @n nvarchar(4000) = REPLICATE(N'n', 4000),
                    @m varchar(max) = 'm'; ";
    let large =
        "SELECT LEN(STRING_AGG(CAST(v AS varchar(max)), ',')) FROM (VALUES (@v), (@v)) t(v)";
    for (query, expected) in [
        ("SELECT LEN(@v + 'yy')", "8000"),
        ("SELECT LEN(CONCAT(@v, @v))", "8000"),
        ("SELECT LEN(CONCAT_WS('-', @v, @v))", "8000"),
        ("SELECT LEN(REPLACE(@v, 'x', 'yy'))", "8000"),
        ("SELECT LEN(N'SELECT ' + @n + N' FROM ' + @n)", "4000"),
        ("SELECT LEN(@v + @n)", "4000"),
        ("SELECT LEN(@m + @v + @v)", "16001"),
        ("SELECT LEN(@v + @v + @m)", "8001"),
        ("SELECT LEN('a' + 'b'), LEN(CONCAT('a', 1, NULL))", "2|2"),
        (
            "SELECT @v + 'yy' AS x INTO #z; SELECT LEN(x) FROM #z",
            "8000",
        ),
        (large, "16001"),
        (
            "SELECT STRING_AGG(v, ',') FROM (VALUES ('a'), ('b')) t(v)",
            "a,b",
        ),
    ] {
        let query = format!("{declared}{query}");
        assert_eq!(value(&mut session, &query), expected, "{query}");
    }
    let long = format!("{declared}SELECT STRING_AGG(v, ',') FROM (VALUES (@v), (@v)) t(v)");
    assert_eq!(numbers(&run(&mut session, &long)), [9829]);
    let assigned = format!("{declared}SET @m = @v + 'y'; PRINT LEN(@m)");
    assert_eq!(said(&run(&mut session, &assigned)), ["0 8000"]);
}

#[test]
fn operators_and_roots_refuse_what_sql_server_refuses() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, number) in [
        ("SELECT SQRT(-1)", 3623),
        ("SELECT -'3'", 8117),
        ("SELECT CAST(1 AS bit) + CAST(1 AS bit)", 402),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
    let right =
        "SELECT SQRT(4), CAST(1 AS bit) & CAST(1 AS bit), CAST(1 AS bit) + 1, -CAST('3' AS int)";
    assert_eq!(value(&mut session, right), "2|1|2|-3");
}

#[test]
fn a_recursion_has_several_queries_that_name_it() {
    let stage = Stage::new();
    let mut session = stage.session();
    let query = "WITH C AS (SELECT 1 AS n UNION ALL SELECT n + 2 FROM C WHERE n < 5
                 UNION ALL SELECT n + 10 FROM C WHERE n < 3)
                 SELECT COUNT(*), MIN(n), MAX(n), SUM(n) FROM C";
    // 1, 3 and 5 by twos, and 11 from the first.
    assert_eq!(value(&mut session, query), "4|1|11|20");
    let anchors =
        "WITH C AS (SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT n + 10 FROM C WHERE n < 3)
                   SELECT COUNT(*), SUM(n) FROM C";
    assert_eq!(value(&mut session, anchors), "4|26");
    let endless =
        "WITH C AS (SELECT 1 AS n UNION ALL SELECT n FROM C WHERE n > 1 UNION ALL SELECT n FROM C)
                   SELECT COUNT(*) FROM C";
    assert_eq!(numbers(&run(&mut session, endless)), [530]);
}

#[test]
fn users_without_a_login_are_asked_for_by_their_sid() {
    let stage = Stage::new();
    let mut session = stage.session();
    let orphans = "SELECT p.name FROM sys.database_principals p WHERE p.type = 'S' AND p.sid IS NOT NULL
                   AND p.sid NOT IN (SELECT sid FROM sys.server_principals) AND p.authentication_type_desc = 'INSTANCE'";
    let record = run(&mut session, orphans);
    assert_eq!(numbers(&record), [0; 0], "{:?}", said(&record));
}
