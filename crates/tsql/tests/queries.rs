//! SELECT: T-SQL's values and types over the views.

mod common;

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::{Column, Type, VIEWS};
use proptest::prelude::*;

/// Type and value of an expression.
fn typed(expression: &str) -> (Type, String) {
    let stage = Stage::new();
    let record = run(&mut stage.session(), &format!("SELECT {expression}"));
    let values = rows(&record);
    assert_eq!(values.len(), 1, "{expression}: {:?}", said(&record));
    (record.columns()[0].kind, values[0][0].clone())
}

#[test]
fn expressions_have_t_sqls_types_and_values() {
    // By hand, after the documentation of data types and precedence.
    for (expression, kind, expected) in [
        ("7 / 2", Type::Int, "3"),
        ("7 % 4", Type::Int, "3"),
        ("7 / 2.0", Type::numeric(17, 6), "3.500000"),
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
        ("ISNULL(NULL, 'x')", Type::nvarchar(1), "x"),
        ("COALESCE(NULL, 1, 2)", Type::Int, "1"),
        (
            "CASE WHEN 1 = 2 THEN 1 ELSE 2.5 END",
            Type::numeric(11, 1),
            "2.5",
        ),
        (
            "CASE 'A' WHEN 'a' THEN 'same' END",
            Type::nvarchar(4),
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
        ("LEFT('backup', 4)", Type::NVarChar(Some(4000)), "back"),
        ("LEN('ab ')", Type::Int, "2"),
        ("IIF(1 < 2, 'yes', 'no')", Type::nvarchar(3), "yes"),
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
fn mistakes_have_sql_servers_numbers() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, number) in [
        ("SELECT 1 / 0", 8134),
        ("SELECT CAST('x' AS int)", 245),
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
        ("SELECT name INTO #t FROM sys.databases", 50002),
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
        for view in VIEWS {
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
