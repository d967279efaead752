//! Goal: realistic scripts work: how they detect a failure, and how they collect values from rows.
//! Method: whole scripts run in a session; what they print and the numbers of their messages are compared.

mod common;

use common::{Stage, numbers, run, said, value};
use longshore_tsql::{Argument, Outcome, Recorder, Session, SinkEvent, Type, Value, Variable};

const FAILS: &str = "BACKUP DATABASE nowhere TO DISK = ''a.bak''";

/// The PRINT output of `script`, and the numbers of all its messages.
fn printed(session: &mut Session, script: &str) -> (Vec<String>, Vec<u32>) {
    let record = run(session, script);
    let printed = record.messages().filter(|m| m.number == 0);
    let printed = printed.map(|m| m.text.clone()).collect();
    (printed, numbers(&record))
}

#[test]
fn a_failure_inside_a_call_is_seen_by_its_caller() {
    let stage = Stage::new();
    let mut session = stage.session();
    let twice = FAILS.replace('\'', "''");
    for (call, expected) in [
        (format!("EXEC @rc = sp_executesql N'{FAILS}'"), "3013 3013"),
        (
            format!("EXEC @rc = sp_executesql N'{FAILS}; PRINT 1'"),
            "3013 0",
        ),
        (
            format!("EXEC @rc = sp_executesql N'{FAILS}; EXEC sp_executesql N''PRINT 1'''"),
            "3013 0",
        ),
        (format!("EXEC ('{FAILS}')"), "7 3013"),
        (format!("EXEC ('EXEC (''{twice}'')')"), "7 3013"),
        (
            format!("EXEC @rc = sp_executesql N'EXEC sp_executesql N''{twice}'''"),
            "3013 3013",
        ),
        (
            "EXEC @rc = sp_executesql N'BACKUP DATABASE'".into(),
            "102 102",
        ),
        (
            "EXEC @rc = sp_executesql N'SELECT nothing FROM sys.databases'".into(),
            "207 207",
        ),
        ("EXEC @rc = sp_executesql N'PRINT 1/0'".into(), "8134 8134"),
        ("EXEC @rc = sp_executesql N'PRINT 1'".into(), "0 0"),
        ("EXEC @rc = sp_executesql N''".into(), "0 0"),
        // An empty text fails at nothing, whatever was before it.
        ("PRINT 1/0; EXEC ('')".into(), "7 0"),
        (
            "EXEC @rc = sp_configure 'no such option', 1".into(),
            "1 15123",
        ),
        ("EXEC @rc = sp_addumpdevice 'disk', 'one'".into(), "1 201"),
        ("EXEC @rc = sp_configure".into(), "0 0"),
        ("EXEC @rc = sp_there_is_none".into(), "2812 2812"),
    ] {
        let script = format!(
            "DECLARE @rc int = 7, @error int; {call}; SET @error = @@ERROR; PRINT CONCAT(@rc, ' ', @error)"
        );
        let (lines, all) = printed(&mut session, &script);
        let last = lines.last().map(String::as_str);
        assert_eq!(last, Some(expected), "{call}: {all:?}");
    }
}

#[test]
fn a_failed_call_is_seen_by_catch_blocks_and_over_the_protocol() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script = format!(
        "DECLARE @rc int = 7;
         BEGIN TRY EXEC @rc = sp_executesql N'{FAILS}'; PRINT 'not here' END TRY
         BEGIN CATCH PRINT CONCAT(@rc, ' ', @@ERROR, ' ', ERROR_NUMBER()) END CATCH"
    );
    let (lines, _) = printed(&mut session, &script);
    assert_eq!(lines, ["7 3013 3013"]);
    let mut call = |batch: &str| -> Outcome {
        let variable = Variable {
            kind: Type::NVarChar(None),
            value: Value::text(batch),
        };
        let mut arguments = [Argument {
            name: None,
            variable,
            default: false,
            output: false,
        }];
        let mut record = Recorder::default();
        let outcome = session.call("sp_executesql", &mut arguments, &mut record);
        let outcome = outcome.unwrap();
        let is_flagged = |event: &SinkEvent| matches!(event, SinkEvent::Done(done) if done.error);
        let flagged = record.events.iter().any(is_flagged);
        assert_eq!([flagged, outcome.failed()], [outcome.status > 0; 2]);
        outcome
    };
    let failed = call("BACKUP DATABASE nowhere TO DISK = 'a.bak'");
    assert_eq!(failed.status, 3013);
    assert_eq!(call("BACKUP DATABASE").status, 102);
    assert_eq!(call("PRINT 'well'").status, 0);
}

#[test]
fn a_declaration_leaves_the_error_of_the_statement_before_it() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script = "BACKUP DATABASE nowhere TO DISK = 'a.bak'
                  DECLARE @a int, @b nvarchar(9)
                  DECLARE @c datetime
                  IF @@ERROR <> 0 PRINT 'failed'
                  BACKUP DATABASE nowhere TO DISK = 'a.bak'
                  DECLARE @d int = 1
                  PRINT @@ERROR";
    assert_eq!(printed(&mut session, script).0, ["failed", "0"]);
}

/// Three rows.
const T: &str = "(SELECT 'b' AS name, 2 AS n UNION ALL SELECT 'c', 30 UNION ALL SELECT 'a', 100) t";

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_select_that_reads_a_variable_it_sets_runs_row_by_row() {
    let stage = Stage::new();
    let mut session = stage.session();
    let joined = format!("w JOIN {} ON w.name = s.name", T.replace(") t", ") s"));
    for (declared, select, expected) in [
        (
            "@x nvarchar(max) = ''",
            "SELECT @x = @x + name FROM T ORDER BY name",
            "abc",
        ),
        (
            "@x nvarchar(max) = ''",
            "SELECT @x = @x + name FROM T ORDER BY n DESC",
            "acb",
        ),
        (
            "@x nvarchar(max) = ''",
            "SELECT @x = @x + name FROM T WHERE n < 50 ORDER BY name",
            "bc",
        ),
        (
            "@x nvarchar(max) = ''",
            "SELECT TOP 2 @x = @x + name FROM T ORDER BY name DESC",
            "cb",
        ),
        (
            "@x nvarchar(99)",
            "SELECT @x = COALESCE(@x + ',', '') + name FROM T ORDER BY name",
            "a,b,c",
        ),
        (
            "@x nvarchar(99)",
            "SELECT @x = ISNULL(@x + ',', '') + QUOTENAME(t.name) FROM T ORDER BY t.name",
            "[a],[b],[c]",
        ),
        (
            "@x varchar(2) = ''",
            "SELECT @x = @x + name FROM T ORDER BY name",
            "ab",
        ),
        ("@x int = 0", "SELECT @x = @x + 1 FROM T", "3"),
        (
            "@x int = 0",
            "SELECT @x = @x + 1 FROM T; SET @x = @@ROWCOUNT",
            "3",
        ),
        (
            "@x int = 0",
            "SELECT @X = @x + n, @x = @X * 2 FROM T ORDER BY n",
            "336",
        ),
        (
            "@n int = 0, @x nvarchar(99) = ''",
            "SELECT @n = @n + 1, @x = @x + CAST(@n AS nvarchar(9)) + name FROM T ORDER BY name",
            "1a2b3c",
        ),
        (
            "@x int = 7",
            "SELECT @x = @x + 1 FROM T WHERE n > 1000",
            "7",
        ),
        (
            "@x nvarchar(99) = ''",
            "SELECT @x += name FROM T ORDER BY name",
            "abc",
        ),
        (
            "@x int = 100",
            "SELECT @x -= n - 1 FROM T WHERE n < 50",
            "70",
        ),
        (
            "@x nvarchar(99) = ''",
            "SELECT @x = CASE WHEN n > 10 THEN @x + name ELSE @x END FROM T ORDER BY name",
            "ac",
        ),
        ("@a int, @x int", "SELECT @a = 1, @x = @a + 1", "2"),
        ("@a int = 5, @x int", "SELECT @x = @a + 1, @a = 1", "6"),
        (
            "@a int, @x int",
            "SELECT @a = COUNT(*), @x = @a * 2 FROM T",
            "6",
        ),
        (
            "@x int = 3",
            "SELECT @x = (SELECT COUNT(*) FROM T WHERE n > @x)",
            "2",
        ),
        ("@x int = 3", "SELECT @x = MIN(n) FROM T WHERE n > @x", "30"),
        (
            "@x nvarchar(9) = 'a'",
            "SELECT TOP (1) @x = name FROM T WHERE name > @x ORDER BY name",
            "b",
        ),
        (
            "@x nvarchar(99) = ''",
            "WITH w AS (SELECT name FROM T) SELECT @x = @x + w.name + s.name FROM JOINED ORDER BY w.name",
            "aabbcc",
        ),
        (
            "@x nvarchar(99) = ''",
            "SELECT @x = @x + name + CAST(ROW_NUMBER() OVER (ORDER BY name) AS varchar(9)) FROM T",
            "a1b2c3",
        ),
    ] {
        let select = select
            .replace("JOINED", &joined)
            .replace("FROM T", &format!("FROM {T}"));
        let script = format!("DECLARE {declared}; {select}; PRINT @x");
        let (lines, all) = printed(&mut session, &script);
        assert_eq!(lines, [expected], "{script}: {all:?}");
    }
}

#[test]
fn a_select_with_one_value_for_all_rows_is_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    for select in [
        "SELECT @n = @n + (SELECT COUNT(*) FROM sys.databases WHERE database_id > @n) FROM sys.databases",
        "SELECT @n = @n + COUNT(*) FROM sys.databases GROUP BY name",
        "SELECT DISTINCT @n = @n + 1 FROM sys.databases",
        "SELECT @n = @n + ROW_NUMBER() OVER (ORDER BY name) FROM sys.databases ORDER BY name DESC",
        "SELECT @n = @n + SUM(database_id) OVER (ORDER BY name) FROM sys.databases",
    ] {
        let script = format!(
            "DECLARE @n int = 7; BEGIN TRY {select} END TRY BEGIN CATCH PRINT CONCAT(@n, ' ', ERROR_NUMBER()) END CATCH"
        );
        let (lines, all) = printed(&mut session, &script);
        let expected = (vec!["7 50002".to_owned()], vec![0]);
        assert_eq!((lines, all), expected, "{select}");
    }
    let inner = run(
        &mut session,
        "DECLARE @n int; SELECT n FROM (SELECT @n = 1) q",
    );
    assert_eq!(numbers(&inner), [141], "{:?}", said(&inner));
}

#[test]
fn a_script_that_gathers_all_databases_backs_all_of_them_up() {
    let mut stage = Stage::new();
    for name in ["one", "two", "three"] {
        let path = stage.path(&format!("{name}.db"));
        common::fill(&path, 10);
        let source = longshore_pipeline::SourceSpec::Sqlite(path);
        stage.more.push((name, source));
    }
    let mut session = stage.session();
    let script = "DECLARE @all nvarchar(max) = N'';
        SELECT @all = @all + N'BACKUP DATABASE ' + QUOTENAME(name) + N' TO DISK = ''' + name + N'.bak'';'
        FROM sys.databases WHERE database_id > 4 ORDER BY name;
        EXEC sp_executesql @all";
    let record = run(&mut session, script);
    assert!(
        !record.messages().any(|m| m.is_error()),
        "{:?}",
        said(&record)
    );
    let count = "SELECT COUNT(DISTINCT database_name) FROM msdb.dbo.backupset";
    assert_eq!(value(&mut session, count), "4");
}

#[test]
fn break_and_continue_outside_a_loop_are_refused_before_anything_runs() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, number) in [
        ("PRINT 1; BREAK", 135),
        ("PRINT 1; IF 1 = 1 CONTINUE", 136),
        ("WHILE 1 = 0 PRINT 0; BEGIN PRINT 1; BREAK END", 135),
        (
            "BEGIN TRY PRINT 1 END TRY BEGIN CATCH CONTINUE END CATCH",
            136,
        ),
    ] {
        let (lines, all) = printed(&mut session, script);
        assert_eq!((lines.len(), all), (0, vec![number]), "{script}");
    }
    // The loop around a call belongs to the caller.
    for (call, number) in [
        ("EXEC ('BREAK')", 135),
        ("EXEC sp_executesql N'PRINT 0; IF 1 = 1 CONTINUE'", 136),
    ] {
        let script = format!(
            "DECLARE @i int = 0; WHILE @i < 2 BEGIN SET @i += 1; {call}; PRINT @i END; PRINT 'end'"
        );
        let (lines, all) = printed(&mut session, &script);
        assert_eq!(lines, ["1", "2", "end"], "{call}");
        assert_eq!(all, [number, 0, number, 0, 0], "{call}");
    }
    let script = "DECLARE @i int = 0; WHILE 1 = 1 BEGIN SET @i += 1; IF @i < 3 CONTINUE; BREAK END; PRINT @i";
    assert_eq!(printed(&mut session, script).0, ["3"]);
}

/// A batch, its mistake as `number, line`, and the token that the message names.
const MISTAKES_OF_QUERIES: &[(&str, (u32, u32), &str)] = &[
    ("SELECT name\nFROMM sys.databases", (102, 2), "'sys'"),
    (
        "PRINT 1\n\nSELECT name\nFROM sys.databases\nWHERE name = = 'a'",
        (102, 5),
        "'='",
    ),
    // Comments and the line ends inside of literals count; one character may have several bytes.
    (
        "SELECT 'ä\n\nö', -- FROM\n/*\n*/ [name] FROM sys.databases\nWHERE ) 'b'",
        (102, 6),
        "')'",
    ),
    // At the end it is the last token that the client wrote.
    (
        "PRINT 1\nSELECT name FROM sys.databases\nWHERE",
        (102, 3),
        "'WHERE'",
    ),
    ("PRINT 'a'\n  +\n\n", (102, 2), "'+'"),
    ("IF 1 = 1 AND\n  1 >\nPRINT 'a'", (102, 2), "'>'"),
    ("IF 1 =\n= 1\nPRINT 'a'", (102, 2), "'='"),
    (
        "BEGIN TRY\nSELECT\n1 1\nEND TRY\nBEGIN CATCH\nPRINT 1\nEND CATCH",
        (102, 3),
        "'1'",
    ),
    // The parser reads another text than the client wrote.
    (
        "DECLARE @a int\nSELECT @a +=\n$1.5 ,\n@a = = 2",
        (102, 4),
        "'='",
    ),
    ("DECLARE @a int = 1\nSET @a +=\n1 1", (102, 3), "'1'"),
    ("SELECT 1,\n2,\n@missing", (137, 3), "\"@missing\""),
    ("PRINT\n\n@missing", (137, 3), "\"@missing\""),
];

#[test]
fn mistakes_in_queries_are_reported_with_the_line_of_their_token() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (batch, expected, near) in MISTAKES_OF_QUERIES {
        let record = run(&mut session, batch);
        let [message] = record.messages().collect::<Vec<_>>()[..] else {
            panic!("{batch}: {:?}", said(&record));
        };
        assert_eq!(
            (message.number, message.line),
            *expected,
            "{batch}: {}",
            message.text
        );
        assert!(message.text.contains(near), "{batch}: {}", message.text);
        // In a text that a statement runs, lines count from that text's first.
        let inner = batch.replace('\'', "''");
        for call in [
            format!("PRINT 1\n\nEXEC ('{inner}')"),
            format!("PRINT 1\n\nEXEC sp_executesql\nN'{inner}'"),
            format!(
                "PRINT 1\nBEGIN TRY\nEXEC ('{inner}')\nEND TRY\nBEGIN CATCH\nPRINT ERROR_LINE()\nEND CATCH"
            ),
        ] {
            let record = run(&mut session, &call);
            let last = record.messages().last().unwrap();
            let line = match last.number {
                0 => last.text.parse().unwrap(),
                _ => last.line,
            };
            assert_eq!(line, expected.1, "{call}: {:?}", said(&record));
        }
    }
}
