//! Goal: procedures that scripts create run as SQL Server's documentation says: arguments, outputs, return values, nesting,
//! scope, and names; and they are there after a restart.
//! Method: scripts run in sessions of one server, or of servers that follow each other on one catalog; messages and rows
//! are compared.
//! Not covered: what statements inside do (`procedural.rs`, `tables.rs`), and the network (`serve`).

mod common;

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::Session;

#[test]
fn arguments_are_bound_by_position_and_by_name_and_outputs_come_back() {
    let stage = Stage::new();
    let mut session = stage.session();
    let create = "CREATE PROCEDURE dbo.p @a int, @b varchar(10) = 'none', @c int = NULL OUTPUT AS\n\
                  SET @c = @a * 2; PRINT @b; RETURN @a + 1";
    assert_eq!(said(&run(&mut session, create)), [""; 0]);
    let call = "DECLARE @r int, @o int = 9; EXEC @r = p 3, @c = @o OUTPUT; SELECT @r, @o";
    assert_eq!(value(&mut session, call), "4|6");
    // Without the word OUTPUT the value stays inside.
    let call = "DECLARE @r int, @o int = 9; EXEC @r = [dbo].[P] @c = @o, @a = 1; SELECT @r, @o";
    assert_eq!(value(&mut session, call), "2|9");
    for (call, expected) in [
        (
            "EXEC p",
            "201 Procedure or function 'p' expects parameter '@a', which was not supplied.",
        ),
        (
            "EXEC p DEFAULT",
            "201 Procedure or function 'p' expects parameter '@a', which was not supplied.",
        ),
        (
            "EXEC p 1, 'x', 3, 4",
            "8144 Procedure or function p has too many arguments specified.",
        ),
        (
            "EXEC p @z = 1",
            "8145 @z is not a parameter for procedure p.",
        ),
        (
            "EXEC p 1, @a = 2",
            "8143 Parameter '@a' was supplied multiple times.",
        ),
        (
            "DECLARE @o int; EXEC p @a = @o OUTPUT",
            "8162 The formal parameter \"@a\" was not declared as an OUTPUT parameter, but the actual parameter passed in requested output.",
        ),
        (
            "EXEC p 'x'",
            "8114 Error converting data type varchar to int.",
        ),
        (
            "EXEC nowhere",
            "2812 Could not find stored procedure 'nowhere'.",
        ),
    ] {
        assert_eq!(said(&run(&mut session, call)), [expected], "{call}");
    }
    let by_variable =
        "DECLARE @n nvarchar(99) = N'[master].[dbo].[p]', @r int; EXEC @r = @n 5; SELECT @r";
    assert_eq!(value(&mut session, by_variable), "6");
}

#[test]
fn a_procedure_is_there_after_a_restart_in_its_database_only() {
    let stage = Stage::new();
    let mut first = stage.session();
    run(&mut first, "USE shop");
    run(
        &mut first,
        "CREATE PROC Report AS SELECT DB_NAME(), OBJECT_NAME(@@PROCID), @@NESTLEVEL",
    );
    drop(first);
    let mut session = stage.session();
    assert_eq!(numbers(&run(&mut session, "EXEC report")), [2812]);
    assert_eq!(value(&mut session, "EXEC shop.dbo.REPORT"), "shop|Report|1");
    assert_eq!(value(&mut session, "SELECT DB_NAME()"), "master");
    assert_eq!(
        value(&mut session, "EXEC ('EXEC shop..report')"),
        "shop|Report|2"
    );
    // A name that begins with sp_ is seen by all databases, and runs in that of its caller.
    run(&mut session, "CREATE PROC sp_where AS SELECT DB_NAME()");
    run(&mut session, "USE shop");
    assert_eq!(value(&mut session, "EXEC sp_where"), "shop");
    let views =
        "SELECT COUNT(*) FROM sys.procedures p JOIN sys.sql_modules m ON m.object_id = p.object_id";
    assert_eq!(value(&mut session, views), "1");
    let text = value(
        &mut session,
        "SELECT OBJECT_DEFINITION(OBJECT_ID('dbo.report', 'P'))",
    );
    assert!(text.starts_with("CREATE PROC Report AS"), "{text}");
    assert_eq!(
        value(
            &mut session,
            "SELECT COALESCE(OBJECT_ID('report', 'U'), -1)"
        ),
        "-1"
    );
    assert_eq!(
        numbers(&run(&mut session, "EXEC sp_helptext 'nowhere'")),
        [15009]
    );
    assert_eq!(
        rows(&run(&mut session, "EXEC sp_helptext 'report'")).len(),
        1
    );
}

#[test]
fn creating_altering_and_dropping_follow_what_is_there() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, expected) in [
        ("ALTER PROC p AS SELECT 1", vec![208]),
        ("CREATE PROC p AS SELECT 1", vec![]),
        ("CREATE PROC P AS SELECT 1", vec![2714]),
        ("CREATE PROC [p ] AS SELECT 1", vec![2714]),
        ("CREATE OR ALTER PROCEDURE p AS SELECT 2", vec![]),
        ("ALTER PROCEDURE dbo.p AS SELECT 3", vec![]),
        ("PRINT 1 CREATE PROC q AS SELECT 1", vec![111]),
        ("IF 1 = 1 CREATE PROC q AS SELECT 1", vec![111]),
        ("CREATE PROC other.q AS SELECT 1", vec![2760]),
        ("CREATE PROC master.dbo.q AS SELECT 1", vec![166]),
        ("CREATE PROC q @a int, @A int AS SELECT 1", vec![134]),
        ("CREATE PROC q @a nothing AS SELECT 1", vec![2715]),
        ("CREATE PROC q AS SELECT @b", vec![137]),
        ("CREATE PROC q AS GOTO nowhere", vec![133]),
        // Names of tables are looked up when it runs.
        ("CREATE PROC q AS SELECT * FROM nowhere", vec![]),
        ("EXEC q", vec![208]),
        ("CREATE TABLE p (a int)", vec![2714]),
        ("CREATE TABLE t (a int)", vec![]),
        ("CREATE PROC t AS SELECT 1", vec![2714]),
        ("ALTER PROC t AS SELECT 1", vec![2010]),
        ("DROP TABLE p", vec![3701]),
        ("DROP PROC t", vec![3701]),
        (
            "BEGIN TRAN; EXEC ('CREATE PROC r AS SELECT 1'); ROLLBACK",
            vec![226],
        ),
        ("DROP PROCEDURE IF EXISTS nowhere, p", vec![]),
        ("DROP PROC p", vec![3701]),
        ("CREATE PROC r WITH ENCRYPTION AS SELECT 1", vec![50002]),
        (
            "CREATE PROC r WITH EXECUTE AS OWNER AS SELECT 1",
            vec![50002],
        ),
        (
            "CREATE PROC r WITH RECOMPILE, EXECUTE AS CALLER AS SELECT 1",
            vec![],
        ),
        (
            "CREATE PROC s @t dbo.kind READONLY AS SELECT 1",
            vec![50002],
        ),
        (
            "CREATE TRIGGER t ON dbo.x AFTER INSERT AS PRINT 1",
            vec![50002],
        ),
    ] {
        assert_eq!(numbers(&run(&mut session, script)), expected, "{script}");
    }
}

#[test]
fn calls_nest_up_to_32_deep() {
    let stage = Stage::new();
    let mut session = stage.session();
    let create = "CREATE PROC deep @n int AS IF @n <= 1 SELECT @@NESTLEVEL ELSE BEGIN SET @n -= 1; EXEC deep @n END";
    run(&mut session, create);
    assert_eq!(value(&mut session, "EXEC deep 32"), "32");
    let too_deep = said(&run(&mut session, "EXEC deep 33"));
    assert_eq!(
        too_deep,
        [
            "217 Maximum stored procedure, function, trigger, or view nesting level exceeded (limit 32)."
        ]
    );
    assert_eq!(value(&mut session, "SELECT @@NESTLEVEL"), "0");
    assert_eq!(
        value(&mut session, "EXEC sp_executesql N'SELECT @@NESTLEVEL'"),
        "2"
    );
}

#[test]
fn a_procedure_has_variables_tables_and_options_of_its_own() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE PROC inner_one AS SET NOCOUNT ON; CREATE TABLE #own (a int); INSERT #own VALUES (1); INSERT #outer VALUES (7)",
    );
    run(&mut session, "CREATE TABLE #outer (a int)");
    let record = run(
        &mut session,
        "DECLARE @a int = 1; EXEC inner_one; SELECT a FROM #outer; SELECT OBJECT_ID('tempdb..#own')",
    );
    assert_eq!(rows(&record), [["7"], ["NULL"]]);
    assert_eq!(said(&record), [""; 0]);
    assert_eq!(value(&mut session, "SELECT @@TRANCOUNT"), "0");
    // SET inside ends with it: the count of this INSERT is told.
    let mut record = longshore_tsql::Recorder::default();
    session
        .run("EXEC inner_one; INSERT #outer VALUES (8)", &mut record)
        .unwrap();
    let counts: Vec<u64> = record
        .events
        .iter()
        .filter_map(|event| match event {
            longshore_tsql::SinkEvent::Done(done) => done.rows,
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1]);
    run(&mut session, "CREATE PROC sees AS SELECT @a");
    assert_eq!(
        numbers(&run(&mut session, "DECLARE @a int; EXEC sees")),
        [2812]
    );
}

#[test]
fn errors_in_a_procedure_have_its_name_and_its_lines() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE PROC fails AS\nPRINT 'a'\nRAISERROR ('no', 16, 1)\nPRINT 'b'",
    );
    let record = run(&mut session, "\nEXEC fails");
    let error = record.messages().find(|m| m.number == 50_000).unwrap();
    assert_eq!(
        (error.line, error.procedure.as_deref()),
        (3, Some("dbo.fails"))
    );
    assert_eq!(said(&record), ["0 a", "50000 no", "0 b"]);
    let caught = "BEGIN TRY EXEC fails END TRY BEGIN CATCH SELECT ERROR_PROCEDURE(), ERROR_LINE(), ERROR_MESSAGE() END CATCH";
    let record = run(&mut session, caught);
    assert_eq!(rows(&record), [["dbo.fails", "3", "no"]]);
    let status = "DECLARE @r int; EXEC @r = fails; SELECT @r";
    assert_eq!(rows(&run(&mut session, status)), [["1"]]);
    run(&mut session, "CREATE PROC opens AS BEGIN TRAN");
    let opened = run(&mut session, "EXEC opens; SELECT @@TRANCOUNT; ROLLBACK");
    assert_eq!(
        (numbers(&opened), rows(&opened)),
        (vec![266], vec![vec!["1".to_owned()]])
    );
    run(&mut session, "CREATE PROC nulls AS RETURN NULL");
    let record = run(
        &mut session,
        "DECLARE @r int = 5; EXEC @r = nulls; SELECT @r",
    );
    assert_eq!(
        (numbers(&record), rows(&record)),
        (vec![282], vec![vec!["0".to_owned()]])
    );
}

#[test]
fn a_procedure_that_drops_or_alters_itself_runs_to_its_end() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE PROC gone AS DROP PROC gone; SELECT 'still here'",
    );
    let record = run(&mut session, "EXEC gone; EXEC gone");
    assert_eq!(
        (rows(&record), numbers(&record)),
        (vec![vec!["still here".to_owned()]], vec![2812])
    );
    run(
        &mut session,
        "CREATE PROC other AS EXEC ('ALTER PROC other AS SELECT 2'); SELECT 1",
    );
    assert_eq!(
        rows(&run(&mut session, "EXEC other; EXEC other")),
        [["1"], ["2"]]
    );
}

#[test]
fn sessions_see_each_others_procedures_and_the_last_change_counts() {
    let stage = Stage::new();
    let server = stage.server();
    let session = || longshore_tsql::Session::new(server.clone(), common::login());
    let (mut one, mut other) = (session(), session());
    run(&mut one, "CREATE PROC p AS SELECT 1");
    assert_eq!(value(&mut other, "EXEC p"), "1");
    std::thread::scope(|scope| {
        for n in 0..4 {
            let mut session = session();
            scope.spawn(move || {
                for i in 0..10 {
                    let script = format!("CREATE OR ALTER PROC p AS SELECT {n}{i}");
                    assert_eq!(said(&run(&mut session, &script)), [""; 0]);
                    let found = value(&mut session, "EXEC p");
                    assert!(found.parse::<u32>().unwrap() < 40, "{found}");
                }
            });
        }
    });
    let last = value(&mut one, "EXEC p");
    assert!(last.ends_with('9'), "{last}");
    // Another program on the same catalog.
    assert_eq!(value(&mut stage.session(), "EXEC p"), last);
}

#[test]
fn what_a_client_may_create_is_bounded() {
    let stage = Stage::new();
    let mut session = stage.session();
    let long = format!("CREATE PROC long AS PRINT '{}'", "x".repeat(3 << 20));
    let refused = said(&run(&mut session, &long));
    assert!(
        refused[0].starts_with("50000 a definition has at most 2 MiB"),
        "{refused:?}"
    );
    let many = "DECLARE @i int = 0, @s nvarchar(99); WHILE @i < 1001 BEGIN \
                SET @s = CONCAT(N'CREATE PROC p', @i, N' AS RETURN'); EXEC (@s); SET @i += 1 END";
    let refused = said(&run(&mut session, many));
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].contains("at most 1000 procedures and tables"),
        "{refused:?}"
    );
}

#[test]
fn a_call_that_cannot_begin_says_so_in_the_name_of_its_procedure() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(
        &mut session,
        "CREATE PROCEDURE #p @a int, @d datetime = NULL AS SELECT @a",
    );
    let call = |session: &mut Session, batch: &str| {
        let record = run(session, batch);
        let last = record.messages().last().cloned().unwrap();
        (
            last.number,
            last.state,
            last.procedure,
            last.line,
            last.text,
        )
    };
    let in_p =
        |number, state, text: &str| (number, state, Some("#p".to_owned()), 0, text.to_owned());
    let text = "Error converting data type varchar to int.";
    assert_eq!(call(&mut session, "\nEXEC #p 'x'"), in_p(8114, 1, text));
    let text = "Error converting data type nvarchar to datetime.";
    let batch = "DECLARE @d nvarchar(20) = N'31/31/2024'; EXEC #p 1, @d";
    assert_eq!(call(&mut session, batch), in_p(8114, 1, text));
    let (number, _, procedure, line, _) = call(&mut session, "EXEC #p");
    assert_eq!((number, procedure, line), (201, Some("#p".to_owned()), 0));
    let caught = "BEGIN TRY EXEC #p END TRY BEGIN CATCH PRINT CONCAT(ERROR_PROCEDURE(), ERROR_LINE()) END CATCH";
    assert_eq!(said(&run(&mut session, caught)), ["0 #p0"]);
    // A statement inside has its own line.
    run(&mut session, "CREATE PROCEDURE #q AS\n\nSELECT 1/0");
    let record = run(&mut session, "PRINT ''\n\n\n\nEXEC #q");
    let last = record.messages().last().unwrap();
    assert_eq!((last.number, last.line), (8134, 3));
}
