//! The date and time types: what they store, how they are parsed, and how they combine.

mod common;
#[path = "sinks/suite.rs"]
mod sink_suite;

use common::{Stage, numbers, run, value};
use longshore_io::{Clock, HostClock};
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
            "CAST('2026-11-22' AS datetime) - 1.0 / 24",
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
        ("CAST(1 AS date)", 8114),
        ("CAST(CAST('13:45' AS time) AS date)", 8114),
        ("CAST(CAST('20261122' AS date) AS time)", 8114),
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
        ("CAST('20261122' AS date) + 1", 402),
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
            "CHARINDEX('a' COLLATE Latin1_General_CS_AS, 'A') = 0",
            50002,
        ),
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
        "RAISERROR ('no', 16, 1)",
        "SHUTDOWN WITH NOWAIT",
        "KILL 55",
        "WAITFOR DELAY '00:00:05'",
        "THROW 50000, 'no', 1",
        "CREATE TABLE t (i int)",
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET i = 1",
        "DELETE FROM t",
        "TRUNCATE TABLE t",
        "MERGE t USING s ON 1 = 1",
        "GRANT ALL TO x",
        "REVOKE ALL FROM x",
        "DENY ALL TO x",
        "CHECKPOINT",
        "GOTO there",
        "OPEN c",
        "CLOSE c",
        "FETCH NEXT FROM c",
        "DEALLOCATE c",
        "SAVE TRANSACTION x",
        "ALTER LOGIN x DISABLE",
        "DROP TABLE t",
        "ALTER DATABASE x SET READ_ONLY",
    ] {
        let word = statement.split(' ').next().unwrap();
        for batch in [
            statement.to_owned(),
            format!("PRINT 'before' {statement}"),
            format!("IF @@ERROR <> 0 {statement}"),
        ] {
            let record = run(&mut session, &batch);
            let said = common::said(&record);
            assert_eq!(numbers(&record), [50002], "{batch}: {said:?}");
            assert!(said[0].contains(word), "{batch}: {said:?}");
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

/// As many statements as a request may have.
#[test]
fn a_batch_of_many_expressions_takes_little_time() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut each_us = |batch: String, times: usize| {
        // Other tests run at the same time: only the thread's own time counts.
        let began = HostClock.thread_cpu();
        let mut count = Count(0);
        session.run(&batch, &mut count).unwrap();
        let each = (HostClock.thread_cpu() - began).as_secs_f64() * 1e6 / times as f64;
        let first: String = batch.chars().take(99).collect();
        println!("{first}: {each:.2} us, {} messages", count.0);
        (each, count.0)
    };
    let said = |statement: &str, times: usize| {
        let declared = "DECLARE @i int = 7, @d datetime = '1900-01-01';\n";
        format!("{declared}{}", format!("{statement};\n").repeat(times))
    };
    let (literal, count) = each_us(said("PRINT 'xxxxxxxxxxx'", 190_000), 190_000);
    // These builds are not optimised.
    assert!(literal < 20.0 && count == 190_000, "{literal}");
    // 500 us when each expression had its own database. In this build the reader of expressions is not optimised, as
    // SQLite is: it takes several times as long as an optimised one.
    for statement in [
        "SET @i = @i + 1",
        "SET @d = DATEADD(day, 1, @d)",
        "IF @i < 0 PRINT 'less'",
        "PRINT 'a' + CAST(@i + 1 AS varchar(9))",
    ] {
        let (each, _) = each_us(said(statement, 20_000), 20_000);
        assert!(each < 150.0, "{statement}: {each}");
    }
    let repeated = "DECLARE @i int = 0; WHILE @i < 20000 SET @i = @i + 1; PRINT @i";
    let (each, count) = each_us(repeated.to_owned(), 20_000);
    assert!(each < 50.0 && count == 1, "{each}");
}

/// One tree serves all expressions of a form: it took five times as long to read each again.
#[test]
fn other_literals_cost_no_more_than_the_same_text() {
    const TIMES: usize = 4000;
    let stage = Stage::new();
    let mut session = stage.session();
    let mut least_us = |statement: &dyn Fn(usize) -> String| {
        let batch: String = (0..TIMES).map(statement).collect();
        let batch = format!("DECLARE @i int = 7;\n{batch}");
        let mut round = || {
            let began = HostClock.thread_cpu();
            let mut count = Count(0);
            session.run(&batch, &mut count).unwrap();
            (HostClock.thread_cpu() - began).as_secs_f64() * 1e6 / TIMES as f64
        };
        (0..5).map(|_| round()).fold(f64::MAX, f64::min)
    };
    for statement in [
        "SET @i = # + @i * 0;",
        "IF @i = # PRINT 'so';",
        "DECLARE @d% int = 1 + #;",
        "PRINT 'x#' + CAST(# AS varchar(10));",
        "WHILE @i > 5# SET @i = 0;",
    ] {
        // Names of variables are no literals.
        let named = |i: usize| statement.replace('%', &i.to_string());
        let same = least_us(&|i| named(i).replace('#', "1"));
        let other = least_us(&|i| named(i).replace('#', &i.to_string()));
        println!("{statement} {same:.2} us, with other literals {other:.2} us");
        assert!(other < 2.0 * same, "{statement}: {same} and {other}");
    }
}

/// Nothing is kept of usual expressions: when each was read twice by the parser of queries and prepared, a text of its own
/// took several times as long as one that came again.
#[test]
fn texts_that_do_not_repeat_cost_no_more_than_the_same_text() {
    const TIMES: usize = 4000;
    let stage = Stage::new();
    let mut session = stage.session();
    let mut least_us = |statement: &dyn Fn(usize) -> String| {
        let batch: String = (0..TIMES).map(statement).collect();
        let batch = format!("DECLARE @i int = 7, @t varchar(9) = 'nine';\n{batch}");
        let mut round = || {
            let began = HostClock.thread_cpu();
            session.run(&batch, &mut Count(0)).unwrap();
            (HostClock.thread_cpu() - began).as_secs_f64() * 1e6 / TIMES as f64
        };
        (0..5).map(|_| round()).fold(f64::MAX, f64::min)
    };
    for statement in [
        "SET @i = abs(@i) + len(isnull(@t, 'abc'));\n",
        "PRINT 'a' + cast(@i + 1 as varchar(9)) + upper(@t);\n",
        "IF @i < 0 or isnull(@t, upper(lower(@t))) = '' SET @i = 0;\n",
        "IF case when @t like 'x%' then len(@t) end in (1, 2) SET @i = 0;\n",
    ] {
        let same = least_us(&|_| statement.to_owned());
        let other = least_us(&|i| in_other_capitals(statement, i));
        println!("{statement} {same:.2} us, in texts of their own {other:.2} us");
        assert!(other < 2.0 * same, "{statement}: {same} and {other}");
    }
}

/// The same statement in a text of its own: the bits of the number make letters capitals.
fn in_other_capitals(text: &str, number: usize) -> String {
    let (mut rest, mut is_quoted) = (number, false);
    let one = |c: char| {
        is_quoted ^= c == '\'';
        if is_quoted || !c.is_ascii_lowercase() {
            return c;
        }
        let is_capital = rest & 1 == 1;
        rest >>= 1;
        match is_capital {
            true => c.to_ascii_uppercase(),
            false => c,
        }
    };
    text.chars().map(one).collect()
}

#[test]
fn a_sink_that_counts_keeps_the_contract_of_all_sinks() {
    let mut count = Count(0);
    let taken = sink_suite::keeps_its_contract(&mut count);
    assert_eq!((taken, count.0), (2 * sink_suite::legal().len(), 12));
}

/// Counts messages.
struct Count(usize);

impl longshore_tsql::Sink for Count {
    fn columns(
        &mut self,
        _: &[longshore_tsql::Column],
    ) -> Result<(), longshore_tsql::ReceiverGone> {
        Ok(())
    }
    fn row(&mut self, _: &[longshore_tsql::Value]) -> Result<(), longshore_tsql::ReceiverGone> {
        Ok(())
    }
    fn message(&mut self, _: &longshore_tsql::Message) -> Result<(), longshore_tsql::ReceiverGone> {
        self.0 += 1;
        Ok(())
    }
    fn done(&mut self, _: longshore_tsql::DoneEvent) -> Result<(), longshore_tsql::ReceiverGone> {
        Ok(())
    }
}
