//! Goal: a date of three numbers is read in the order that SET DATEFORMAT or SET LANGUAGE says, wherever a text becomes a date.
//! Method: the expected values are those of Microsoft's pages of SET DATEFORMAT, `date`, `datetime`, `datetime2`, ISDATE and
//! DATEPART.
//! Not covered: two-digit years, which have one cutoff here.

mod common;

use common::{Stage, login, numbers, rows, run, said, value};
use longshore_tsql::Session;

fn session(stage: &Stage, order: &str) -> Session {
    let mut session = stage.session();
    let record = run(&mut session, &format!("SET DATEFORMAT {order}"));
    assert_eq!(said(&record), [] as [&str; 0]);
    session
}

#[test]
fn each_order_has_its_meaning_of_three_numbers() {
    let stage = Stage::new();
    for (order, expected) in [
        ("mdy", "2008-12-10"),
        ("dmy", "2008-10-12"),
        ("ymd", "2012-10-08"),
        ("ydm", "2012-08-10"),
        ("myd", "2010-12-08"),
        ("dym", "2010-08-12"),
    ] {
        let mut session = session(&stage, order);
        let query = "SELECT CONVERT(varchar(10), CAST('12/10/08' AS datetime), 120)";
        assert_eq!(value(&mut session, query), expected, "{order}");
        let date = "SELECT CAST('12-10-08' AS date)";
        match order {
            "ydm" => assert_eq!(numbers(&run(&mut session, date)), [241]),
            _ => assert_eq!(value(&mut session, date), expected, "{order}"),
        }
        for written in [
            "20270203",
            "2027-02-03T00:00:00",
            "3 Feb 2027",
            "Feb 3, 2027",
        ] {
            for kind in ["datetime", "date", "datetime2", "smalldatetime"] {
                let query =
                    format!("SELECT CONVERT(varchar(10), CAST('{written}' AS {kind}), 120)");
                assert_eq!(value(&mut session, &query), "2027-02-03", "{order} {query}");
            }
        }
        let shown = "SELECT date_format FROM sys.dm_exec_sessions WHERE session_id = @@SPID";
        assert_eq!(value(&mut session, shown), order);
    }
    let mut named = stage.session();
    run(
        &mut named,
        "DECLARE @o varchar(3) = 'dmy' SET DATEFORMAT @o",
    );
    assert_eq!(value(&mut named, "SELECT MONTH('31/12/2027')"), "12");
}

/// The examples of SET DATEFORMAT, and the difference between the older types and the newer ones.
#[test]
fn a_date_with_the_year_first_is_read_by_the_older_types_in_the_order_and_by_the_newer_as_iso() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    for (query, expected) in [
        (
            "DECLARE @d datetime2 = '31/12/2008 09:01:01.1234567' SELECT @d",
            "2008-12-31 09:01:01.1234567",
        ),
        (
            "SELECT CONVERT(varchar(19), CAST('2017-07-12' AS datetime), 120)",
            "2017-12-07 00:00:00",
        ),
        (
            "SELECT CONVERT(varchar(19), CAST('2017-07-12 10:30' AS smalldatetime), 120)",
            "2017-12-07 10:30:00",
        ),
        ("SELECT CAST('2017-07-12' AS date)", "2017-07-12"),
        (
            "SELECT CAST('2017-07-12 10:30' AS datetime2(0))",
            "2017-07-12 10:30:00",
        ),
        (
            "SELECT CAST('12/07/2017 10:30 +02:00' AS datetimeoffset(0))",
            "2017-07-12 10:30:00 +02:00",
        ),
        ("SELECT CAST('31/12/2027 10:30' AS time(0))", "10:30:00"),
        // A style of CONVERT has an order of its own.
        (
            "SELECT CONVERT(varchar(10), CONVERT(datetime, '12/07/2017', 101), 120)",
            "2017-12-07",
        ),
        (
            "SELECT CONVERT(varchar(10), CONVERT(datetime, '12/07/2017', 103), 120)",
            "2017-07-12",
        ),
        (
            "SELECT CONVERT(varchar(10), CONVERT(datetime, '2017-07-12', 120), 120)",
            "2017-07-12",
        ),
        (
            "SELECT CONVERT(varchar(10), CONVERT(datetime, '12/07/2017', 0), 120)",
            "2017-07-12",
        ),
        (
            "SELECT CONVERT(varchar(10), CONVERT(datetime, '12/07/2017'), 120)",
            "2017-07-12",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
    for (query, number) in [
        ("DECLARE @d datetime2 = '12/31/2008 09:01:01.1234567'", 241),
        ("SELECT CAST('12/31/2008' AS date)", 241),
        ("SELECT CAST('12/31/2008' AS datetime)", 242),
        ("DECLARE @d datetime = '2017-07-13'", 242),
        ("SELECT CAST('12/31/2008' AS smalldatetime)", 242),
        // Which of them is the day is not documented.
        ("SELECT CAST('2008/02/03' AS date)", 241),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
    let text = "242 The conversion of a varchar data type to a datetime data type resulted in an out-of-range value.";
    assert_eq!(
        said(&run(&mut session, "SELECT CAST('12/31/2008' AS datetime)")),
        [text]
    );
}

#[test]
fn the_order_counts_wherever_a_text_becomes_a_date() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    run(
        &mut session,
        "CREATE TABLE #t (d date, at datetime DEFAULT '13/12/2027', s varchar(20))
         INSERT #t VALUES ('31/12/2027', '30/11/2027', '29/10/2027')
         INSERT #t (d, s) SELECT s, s FROM #t
         UPDATE #t SET d = '28/09/2027' WHERE d = '29/10/2027'",
    );
    let all = "SELECT CONCAT(d, '|', CONVERT(varchar(10), at, 120)) FROM #t ORDER BY d";
    assert_eq!(
        rows(&run(&mut session, all)),
        [["2027-09-28|2027-12-13"], ["2027-12-31|2027-11-30"]]
    );
    for (query, expected) in [
        ("SELECT COUNT(*) FROM #t WHERE d = '31/12/2027'", "1"),
        (
            "SELECT COUNT(*) FROM #t WHERE d IN ('31/12/2027', '30/12/2027')",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM #t WHERE at BETWEEN '29/11/2027' AND '01/12/2027'",
            "1",
        ),
        (
            "SELECT COUNT(*) FROM #t WHERE CAST(s AS date) = '29/10/2027'",
            "2",
        ),
        (
            "SELECT COUNT(*) FROM #t WHERE s = CAST('29/10/2027' AS date)",
            "2",
        ),
        ("SELECT TRY_CAST('12/31/2027' AS date)", "NULL"),
        ("SELECT TRY_CAST('31/12/2027' AS date)", "2027-12-31"),
        ("SELECT TRY_CONVERT(date, '31/12/2027')", "2027-12-31"),
        ("SELECT TRY_CONVERT(datetime, '12/31/2027', 0)", "NULL"),
        (
            "SELECT CONCAT(ISDATE('31/12/2027'), ISDATE('12/31/2027'), ISDATE('2027-13-12'), ISDATE('2027-12-13'))",
            "1010",
        ),
        (
            "SELECT CONCAT(DATEPART(month, '03/02/2027'), DAY('03/02/2027'), YEAR('03/02/2027'))",
            "232027",
        ),
        ("SELECT DATENAME(month, '03/02/2027')", "February"),
        ("SELECT DATEDIFF(day, '03/02/2027', '04/02/2027')", "1"),
        (
            "SELECT CONVERT(varchar(10), DATEADD(day, 1, '03/02/2027'), 120)",
            "2027-02-04",
        ),
        ("SELECT EOMONTH('03/02/2027')", "2027-02-28"),
        (
            "SELECT CONVERT(varchar(10), DATETRUNC(month, '03/02/2027'), 120)",
            "2027-02-01",
        ),
        (
            "SELECT CAST(SWITCHOFFSET('03/02/2027 10:00 +00:00', '+01:00') AS datetimeoffset(0))",
            "2027-02-03 11:00:00 +01:00",
        ),
        (
            "SELECT CASE WHEN CAST('20270203' AS date) < '04/02/2027' THEN 1 ELSE 0 END",
            "1",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
}

#[test]
fn the_order_counts_where_a_text_is_given_to_a_variable() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    run(
        &mut session,
        "CREATE TABLE #t (n int) INSERT #t VALUES (1), (2)",
    );
    for (query, expected) in [
        (
            "DECLARE @d date SET @d = '03/02/2027' SELECT @d",
            "2027-02-03",
        ),
        (
            "DECLARE @d date SELECT @d = '03/02/2027' SELECT @d",
            "2027-02-03",
        ),
        (
            "DECLARE @d date = '20270101' SELECT @d = CASE WHEN @d < '02/01/2027' THEN '03/02/2027' ELSE @d END FROM #t SELECT @d",
            "2027-02-03",
        ),
        (
            "DECLARE @d date EXEC sp_executesql N'SELECT @o = @i', N'@i date, @o date OUTPUT', '03/02/2027', @d OUTPUT SELECT @d",
            "2027-02-03",
        ),
        (
            "DECLARE @d date DECLARE c CURSOR LOCAL FOR SELECT '03/02/2027' OPEN c FETCH c INTO @d SELECT @d",
            "2027-02-03",
        ),
        (
            "DECLARE @d datetime IF '31/12/2027' > CAST('20271230' AS datetime) SET @d = '03/02/2027' SELECT CONVERT(varchar(10), @d, 120)",
            "2027-02-03",
        ),
        (
            "SELECT CONVERT(varchar(10), CAST('20270203' AS datetime) - '02/01/1900', 120)",
            "2027-02-02",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
}

#[test]
fn the_order_counts_in_parameters_bodies_and_columns_that_become_dates() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    run(
        &mut session,
        "CREATE PROCEDURE p @d date = '05/04/2027' AS SELECT CONCAT(@d, '|', CAST('06/05/2027' AS date))",
    );
    run(
        &mut session,
        "CREATE FUNCTION f (@d date) RETURNS varchar(30) AS BEGIN RETURN CONCAT(@d, '|', CAST('06/05/2027' AS date)) END",
    );
    assert_eq!(value(&mut session, "EXEC p"), "2027-04-05|2027-05-06");
    assert_eq!(
        value(&mut session, "EXEC p '04/03/2027'"),
        "2027-03-04|2027-05-06"
    );
    assert_eq!(
        value(&mut session, "SELECT dbo.f('04/03/2027')"),
        "2027-03-04|2027-05-06"
    );
    run(
        &mut session,
        "CREATE TABLE dbo.u (s varchar(20)) INSERT dbo.u VALUES ('03/02/2027') ALTER TABLE dbo.u ALTER COLUMN s date",
    );
    assert_eq!(value(&mut session, "SELECT s FROM dbo.u"), "2027-02-03");
}

#[test]
fn the_order_is_that_of_the_session_until_a_reset_and_of_a_batch_inside_until_its_end() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    let day = "SELECT DAY('03/02/2027')";
    assert_eq!(value(&mut session, day), "3");
    assert_eq!(
        value(
            &mut session,
            "EXEC ('SET DATEFORMAT mdy SELECT DAY(''03/02/2027'')')"
        ),
        "2"
    );
    assert_eq!(value(&mut session, day), "3");
    run(
        &mut session,
        "CREATE PROCEDURE q AS SET DATEFORMAT mdy SELECT DAY('03/02/2027')",
    );
    assert_eq!(value(&mut session, "EXEC q"), "2");
    assert_eq!(value(&mut session, day), "3");
    let mut other = Session::new(stage.server(), login());
    assert_eq!(value(&mut other, day), "2");
    // In one batch each statement is read in the order of its moment.
    let both = "SELECT DAY('03/02/2027') SET DATEFORMAT mdy SELECT DAY('03/02/2027')";
    assert_eq!(rows(&run(&mut session, both)), [["3"], ["2"]]);
    run(&mut session, "SET DATEFORMAT dmy");
    session.reset(false);
    assert_eq!(value(&mut session, day), "2");
}

#[test]
fn a_language_has_an_order_of_dates_and_a_first_day_of_weeks() {
    let stage = Stage::new();
    let mut session = stage.session();
    let facts = "SELECT CONCAT(@@LANGUAGE, '|', @@LANGID, '|', @@DATEFIRST, '|', language, '|', date_format) \
                 FROM sys.dm_exec_sessions WHERE session_id = @@SPID";
    assert_eq!(value(&mut session, facts), "us_english|0|7|us_english|mdy");
    run(&mut session, "SET LANGUAGE British");
    assert_eq!(value(&mut session, facts), "British|23|1|British|dmy");
    assert_eq!(value(&mut session, "SELECT DAY('03/02/2027')"), "3");
    assert_eq!(
        value(&mut session, "SELECT DATENAME(month, '03/02/2027')"),
        "February"
    );
    // SET DATEFORMAT goes before what the language says, until the next one.
    run(&mut session, "SET DATEFORMAT mdy");
    assert_eq!(value(&mut session, "SELECT DAY('03/02/2027')"), "2");
    // Its culture is not en-US.
    let format = "SELECT FORMAT(CAST('20270203' AS date), 'd')";
    assert_eq!(numbers(&run(&mut session, format)), [50002]);
    run(&mut session, "SET LANGUAGE us_english");
    assert_eq!(value(&mut session, facts), "us_english|0|7|us_english|mdy");
    assert_eq!(value(&mut session, format), "2/3/2027");
    assert_eq!(numbers(&run(&mut session, "SET LANGUAGE Deutsch")), [50002]);
    run(&mut session, "SET LANGUAGE British");
    session.reset(false);
    assert_eq!(value(&mut session, facts), "us_english|0|7|us_english|mdy");
}

#[test]
fn a_moment_of_backup_and_of_its_history_is_read_in_the_order() {
    let stage = Stage::new();
    let mut session = session(&stage, "dmy");
    let expires = |session: &mut Session, date: &str| {
        let record = run(
            session,
            &format!("BACKUP DATABASE shop TO DISK = 'e.bak' WITH INIT, SKIP, EXPIREDATE = {date}"),
        );
        numbers(&record)
    };
    assert_eq!(expires(&mut session, "'31/12/2099'"), [4035, 3014]);
    let kept = "SELECT CONVERT(varchar(10), expiration_date, 120) FROM msdb.dbo.backupset";
    assert_eq!(value(&mut session, kept), "2099-12-31");
    assert_eq!(expires(&mut session, "'12/31/2099'").last(), Some(&3013));
    // A variable of a type of dates has said which number is the day.
    run(&mut session, "EXEC sp_delete_backuphistory '31/12/2100'");
    assert_eq!(
        value(&mut session, "SELECT COUNT(*) FROM msdb.dbo.backupset"),
        "0"
    );
    let record = run(
        &mut session,
        "DECLARE @d datetime = '02/01/2099' BACKUP DATABASE shop TO DISK = 'e.bak' WITH INIT, SKIP, EXPIREDATE = @d",
    );
    assert_eq!(numbers(&record), [4035, 3014]);
    assert_eq!(value(&mut session, kept), "2099-01-02");
}

/// Goal: a part that a type has not is an error, not a default; literals have all.
#[test]
fn parts_that_a_type_has_not_are_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    let declared = "DECLARE @d date = '20240101', @t time = '10:00', @at datetime = '20240101 10:00', @two datetime2 = '20240101 10:00';";
    for (expression, expected) in [
        (
            "DATEPART(hour, @d)",
            Err(
                "9810 The datepart hour is not supported by date function datepart for data type date.",
            ),
        ),
        (
            "DATENAME(hh, @d)",
            Err(
                "9810 The datepart hh is not supported by date function datename for data type date.",
            ),
        ),
        (
            "YEAR(@t)",
            Err(
                "9810 The datepart year is not supported by date function datepart for data type time.",
            ),
        ),
        (
            "DATEPART(tz, @at)",
            Err(
                "9810 The datepart tz is not supported by date function datepart for data type datetime.",
            ),
        ),
        ("DATEPART(tz, @two)", Ok("0")),
        ("DATEPART(hour, '2024-01-01')", Ok("0")),
        ("DATEPART(year, '10:00')", Ok("1900")),
        ("DATEPART(hour, @t)", Ok("10")),
        ("MONTH(@d)", Ok("1")),
        (
            "DATEPART(hour, CAST(@at AS date))",
            Err(
                "9810 The datepart hour is not supported by date function datepart for data type date.",
            ),
        ),
    ] {
        let record = run(&mut session, &format!("{declared} SELECT {expression}"));
        match expected {
            Ok(shown) => assert_eq!(rows(&record), [[shown]], "{expression}"),
            Err(text) => assert_eq!(said(&record), [text], "{expression}"),
        }
    }
}
