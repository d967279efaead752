//! Goal: values, statements and nested batches have bounds, options under which nothing runs are kept to, and no option
//! of a session is ignored silently.
//! Method: sessions over a scratch database; the numbers of the messages are compared.
//! Not covered: the server's bounds on sessions and memory (`serve/many.rs`).

mod common;

use common::{Stage, numbers, run, said, value};
use longshore_tsql::Memory;

#[test]
fn nothing_runs_where_a_script_says_so() {
    let stage = Stage::new();
    let mut session = stage.session();
    let backup = "BACKUP DATABASE shop TO DISK = 'a.bak'";
    for option in ["PARSEONLY", "NOEXEC", "FMTONLY"] {
        let guarded = format!("SET {option} ON; {backup}; PRINT 'never'");
        assert_eq!(numbers(&run(&mut session, &guarded)), [0; 0], "{option}");
        // The option stays set.
        assert_eq!(numbers(&run(&mut session, backup)), [0; 0], "{option}");
        let after = format!("SET {option} OFF; PRINT 'again'");
        assert_eq!(numbers(&run(&mut session, &after)), [0], "{option}");
    }
    let whole = format!("{backup}; SET PARSEONLY ON");
    assert_eq!(numbers(&run(&mut session, &whole)), [0; 0]);
    run(&mut session, "SET PARSEONLY OFF");
    for option in ["SHOWPLAN_TEXT", "SHOWPLAN_ALL", "SHOWPLAN_XML"] {
        assert_eq!(
            numbers(&run(&mut session, &format!("SET {option} ON"))),
            [50002]
        );
        assert_eq!(numbers(&run(&mut session, backup)), [0; 0], "{option}");
        run(&mut session, &format!("SET {option} OFF"));
    }
    assert!(!stage.path("a.bak").exists());
    assert_eq!(numbers(&run(&mut session, backup)).last(), Some(&3014));
}

#[test]
fn multiplying_results_are_refused_before_they_have_grown() {
    let mut session = Stage::new().session();
    let mut refused = |query: String| {
        let record = run(&mut session, &query);
        let number = numbers(&record);
        assert!(number == [8623] || number == [191], "{:?}", said(&record));
    };
    refused(format!(
        "SELECT CASE WHEN 1 {} THEN 1 END",
        "IN (1, 2) ".repeat(45)
    ));
    refused(format!(
        "SELECT CASE WHEN 1 {} THEN 1 END",
        "BETWEEN 0 AND 1 ".repeat(45)
    ));
    refused(format!("SELECT 1{}", " ^ 1".repeat(60)));
    refused(format!("SELECT 1{}", " + 1".repeat(60_000)));
    refused(format!("SELECT 1{}", " UNION SELECT 1".repeat(15_000)));
    refused(format!("PRINT 1{}", " + 1".repeat(60_000)));
    let list: Vec<_> = (0..500).map(|n| n.to_string()).collect();
    let long = format!("SELECT CASE WHEN 499 IN ({}) THEN 1 END", list.join(", "));
    assert_eq!(value(&mut session, &long), "1");
    assert_eq!(value(&mut session, "SELECT 5 ^ 3 ^ 1"), "7");
}

#[test]
fn a_statement_has_only_so_many_moves() {
    let mut session = Stage::new().session();
    let moves: Vec<_> = (0..1025).map(|n| format!("MOVE '{n}' TO '{n}'")).collect();
    let batch = format!(
        "RESTORE DATABASE x FROM DISK = 'a' WITH {}",
        moves.join(", ")
    );
    assert_eq!(numbers(&run(&mut session, &batch)), [50000, 3013]);
}

#[test]
fn a_batch_inside_a_batch_ends_alone() {
    let mut session = Stage::new().session();
    let returns = run(&mut session, "EXEC ('PRINT 1; RETURN; PRINT 2'); PRINT 3");
    assert_eq!(said(&returns), ["0 1", "0 3"]);
    let wrong = run(&mut session, "EXEC ('SELECT FROM'); PRINT @@ERROR");
    assert_eq!(numbers(&wrong), [102, 0]);
    assert_eq!(said(&wrong)[1], "0 102");
    let own = run(&mut session, "PRINT 1; RETURN; PRINT 2");
    assert_eq!(said(&own), ["0 1"]);
}

#[test]
fn options_take_negative_numbers_and_dates_have_no_time() {
    let mut session = Stage::new().session();
    assert_eq!(
        numbers(&run(&mut session, "SET LOCK_TIMEOUT -1; PRINT 'on'")),
        [0]
    );
    for query in [
        "SELECT CAST('2027-01-31 12:30' AS date)",
        "SELECT CONVERT(date, '2027-01-31 12:30')",
    ] {
        assert_eq!(value(&mut session, query), "2027-01-31");
    }
    let equal = "SELECT CASE WHEN CAST(GETDATE() AS date) <= GETDATE() THEN 1 ELSE 0 END";
    assert_eq!(value(&mut session, equal), "1");
}

/// `@s` of 8 MiB, the most bytes of a value: each further growth is refused.
const LONG: &str = "DECLARE @s nvarchar(max) = 'xxxxxxxx', @i int = 0; \
    WHILE @i < 20 BEGIN SET @s = @s + @s; SET @i = @i + 1 END; ";

#[test]
fn a_value_has_so_many_bytes_and_no_more() {
    let mut session = Stage::new().session();
    let batch = format!("{LONG} SET @s = @s + @s; PRINT LEN(@s)");
    let record = run(&mut session, &batch);
    assert_eq!(numbers(&record), [50000, 0], "{:?}", said(&record));
    assert_eq!(said(&record)[1], "0 8388608");
    let replaced = run(
        &mut session,
        &format!("{LONG} PRINT LEN(REPLACE(@s, 'x', 'xx'))"),
    );
    assert_eq!(numbers(&replaced), [50000]);
    let added = run(&mut session, &format!("{LONG} PRINT LEN(@s + @s)"));
    assert_eq!(numbers(&added), [50000]);
    let heap: i64 = rusqlite::Connection::open_in_memory()
        .unwrap()
        .query_row("PRAGMA hard_heap_limit", [], |row| row.get(0))
        .unwrap();
    assert_eq!(heap, 512 << 20, "what SQLite takes in all has a bound");
}

#[test]
fn the_values_of_a_batch_and_those_inside_it_share_one_bound() {
    let mut session = Stage::new().session();
    let mut ends = |batch: &str| {
        let record = run(&mut session, &format!("{LONG} {batch}"));
        numbers(&record)
    };
    let four = "DECLARE @a nvarchar(max) = @s, @b nvarchar(max) = @s, @c nvarchar(max) = @s";
    assert_eq!(ends(&format!("{four}; PRINT 1")), [0]);
    assert_eq!(ends(&format!("{four}, @d nvarchar(max) = @s")), [50000]);
    // Bound once, however often it is named.
    let often = ["LEN(@s)"; 8].join(" + ");
    assert_eq!(ends(&format!("PRINT {often}")), [0]);
    assert_eq!(ends("SELECT @s, @s, @s, @s, @s"), [50000]);
    assert_eq!(ends("PRINT LEN(CONCAT(@s, @s, @s, @s, @s))"), [50000]);
    let small = ["@a", "@b", "@c", "@d", "@e"]
        .map(|n| format!("{n} nvarchar(1)"))
        .join(", ");
    let passed = format!("EXEC sp_executesql N'PRINT 1', N'{small}', @s, @s, @s, @s, @s");
    assert_eq!(ends(&passed), [50000]);
    // Passed bytes count while the inner batch runs, even if it uses few of them.
    let some = "N'@a nvarchar(1), @b nvarchar(1), @c nvarchar(20)'";
    let passed = |what: &str| format!("EXEC sp_executesql N'PRINT 1', {some}, {what}");
    assert_eq!(ends(&passed("@s, @s, @i")), [0]);
    assert_eq!(ends(&passed("@s, @s, @s")), [50000]);
    let inner = "EXEC sp_executesql N'PRINT 1', N'@p nvarchar(max)', @s";
    assert_eq!(ends(inner), [0]);
    assert_eq!(ends(&format!("{four}; {inner}")), [50000]);
}

#[test]
fn options_of_a_session_are_honoured_or_refused_and_never_passed_over() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut said = |batch: &str| numbers(&run(&mut session, batch));
    // The options that drivers and tools set first.
    let usual = "SET ANSI_NULLS, ANSI_PADDING, CONCAT_NULL_YIELDS_NULL ON; SET QUOTED_IDENTIFIER OFF;
        SET TEXTSIZE 2147483647 SET DATEFIRST 7 SET DATEFORMAT mdy SET LANGUAGE us_english SET ROWCOUNT 0
        SET LOCK_TIMEOUT -1 SET DEADLOCK_PRIORITY LOW SET STATISTICS IO, TIME OFF
        SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED SET XACT_ABORT OFF; PRINT 'on'";
    assert_eq!(said(usual), [0]);
    for other in [
        "SET DATEFORMAT dmm",
        "SET DATEFIRST 8",
        "SET LANGUAGE Deutsch",
        "SET ANSI_NULLS OFF",
        "SET ANSI_PADDING, CONCAT_NULL_YIELDS_NULL OFF",
    ] {
        // Later values would be read by another rule than the script's.
        assert_eq!(said(&format!("{other}; PRINT 'on'")), [50002], "{other}");
    }
    for unknown in ["SET NONSENSE ON", "SET NOCOUNT, NONSENSE ON"] {
        assert_eq!(said(&format!("PRINT 'never'; {unknown}")), [195]);
    }
    // An error ends its batch, also an error of a nested batch; the next batch runs.
    let failing = "BACKUP DATABASE nowhere TO DISK = 'NUL'";
    assert_eq!(said(&format!("{failing}; PRINT 'on'")), [911, 3013, 0]);
    assert_eq!(said("SET XACT_ABORT ON"), [] as [u32; 0]);
    assert_eq!(said(&format!("{failing}; PRINT 'never'")), [911, 3013]);
    assert_eq!(
        said(&format!(
            "EXEC ('{}'); PRINT 'never'",
            failing.replace('\'', "''")
        )),
        [911, 3013]
    );
    assert_eq!(said("EXEC sp_dropdevice 'none'; PRINT 'never'"), [15015]);
    assert_eq!(
        said(&format!(
            "BEGIN TRY {failing} END TRY BEGIN CATCH PRINT 'caught' END CATCH; PRINT 'on'"
        )),
        [0, 0]
    );
    assert_eq!(
        said(&format!("SET XACT_ABORT OFF; {failing}; PRINT 'on'")),
        [911, 3013, 0]
    );
}

/// The values that percentiles keep are outside of SQLite's memory.
#[test]
fn percentiles_keep_no_more_than_a_session_can_hold_and_claim_it_from_the_memory_of_all() {
    let query = |columns: usize| {
        let one = "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY CAST(value AS int)) OVER ()";
        let all: Vec<_> = (0..columns).map(|i| format!("{one} AS p{i}")).collect();
        let all = all.join(", ");
        format!("SELECT TOP 1 {all} FROM GENERATE_SERIES(1, 40000)")
    };
    let mut stage = Stage::new();
    let mut session = stage.session();
    assert_eq!(value(&mut session, &query(1)), "20000.5");
    // 1.5 MiB for each column.
    let record = run(&mut session, &query(24));
    assert_eq!(numbers(&record), [50000]);
    let told = said(&record);
    assert!(told[0].contains("more than 32 MiB together"), "{told:?}");
    assert_eq!(value(&mut session, &query(2)), "20000.5|20000.5");
    stage.memory = Memory::new(1 << 20);
    let mut session = stage.session();
    assert_eq!(numbers(&run(&mut session, &query(1))), [701]);
    assert_eq!(value(&mut session, "SELECT 1"), "1");
    drop(session);
    assert_eq!(stage.memory.held(), 0);
}
