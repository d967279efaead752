//! Goal: the procedural statements do what SQL Server's documentation says: RAISERROR, THROW, TRY and CATCH, WAITFOR, GOTO.
//! Method: scripts, most of them from the documentation's examples, run in a session; messages and rows are compared.
//! Not covered: cursors (`cursors.rs`), the texts of RAISERROR (`format.rs`), and the network (`serve`).

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::{Message, Recorder, Session};

/// All messages as `number severity state line text`.
fn told(record: &Recorder) -> Vec<String> {
    let one = |m: &Message| {
        format!(
            "{} {} {} {} {}",
            m.number, m.severity, m.state, m.line, m.text
        )
    };
    record.messages().map(one).collect()
}

fn printed(session: &mut Session, script: &str) -> Vec<String> {
    said(&run(session, script))
}

#[test]
fn a_raised_error_is_sent_and_the_batch_goes_on() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, expected) in [
        (
            "RAISERROR (N'This is message %s %d.', 10, 1, N'number', 5); PRINT @@ERROR",
            ["50000 10 1 1 This is message number 5.", "0 0 1 1 0"],
        ),
        (
            "RAISERROR ('stop', 16, 7)\nPRINT @@ERROR",
            ["50000 16 7 1 stop", "0 0 1 2 50000"],
        ),
        // A severity up to 18 ends no batch, nor does one that other errors end a batch with.
        (
            "RAISERROR ('x', 15, 1); PRINT 'on'",
            ["50000 15 1 1 x", "0 0 1 1 on"],
        ),
        (
            "RAISERROR ('x', 18, 1); PRINT 'on'",
            ["50000 18 1 1 x", "0 0 1 1 on"],
        ),
        (
            "RAISERROR ('x', 9, 1) WITH NOWAIT; PRINT @@ERROR",
            ["50000 9 1 1 x", "0 0 1 1 0"],
        ),
        (
            "RAISERROR ('x', 10, 1) WITH NOWAIT, SETERROR; PRINT @@ERROR",
            ["50000 10 1 1 x", "0 0 1 1 50000"],
        ),
        (
            "RAISERROR ('x', -5, -5); PRINT @@ERROR",
            ["50000 0 1 1 x", "0 0 1 1 0"],
        ),
        (
            "RAISERROR ('x', 16, 300); PRINT 1",
            ["50000 16 44 1 x", "0 0 1 1 1"],
        ),
        (
            "DECLARE @m varchar(9), @s int; RAISERROR (@m, @s, @s); PRINT 1",
            ["50000 0 0 1  ", "0 0 1 1 1"],
        ),
        (
            "DECLARE @m nvarchar(90) = 'from %s', @s int = 16; RAISERROR (@m, @s, 1, @@SERVERNAME); PRINT 1",
            ["50000 16 1 1 from HARBOUR", "0 0 1 1 1"],
        ),
        // Of the documentation.
        (
            "RAISERROR (15600,-1,-1, 'mysp_CreateCustomer'); PRINT @@ERROR",
            [
                "15600 15 1 1 An invalid parameter or option was specified for procedure 'mysp_CreateCustomer'.",
                "0 0 1 1 15600",
            ],
        ),
        (
            "RAISERROR (60000, 14, 10); PRINT @@ERROR",
            [
                "18054 16 1 1 Error 60000, severity 14, state 10 was raised, but no message with that error number was found in sys.messages. If error is larger than 50000, make sure the user-defined message is added using sp_addmessage.",
                "0 0 1 1 18054",
            ],
        ),
        (
            "RAISERROR (50000, 16, 1); PRINT 1",
            [
                "2732 16 1 1 Error number 50000 is invalid. The number must be from 13000 through 2147483647 and it cannot be 50000.",
                "0 0 1 1 1",
            ],
        ),
        (
            "RAISERROR ('%d', 16, 1, 'x'); PRINT @@ERROR",
            [
                "2786 16 1 1 The data type of substitution parameter 1 does not match the expected type of the format specification.",
                "0 0 1 1 2786",
            ],
        ),
        (
            "RAISERROR ('x', 19, 1); PRINT 'on'",
            [
                "2754 16 1 1 Error severity levels greater than 18 can only be specified by members of the sysadmin role, using the WITH LOG option.",
                "0 0 1 1 on",
            ],
        ),
    ] {
        assert_eq!(told(&run(&mut session, script)), expected, "{script}");
    }
    let args = vec!["1"; 21].join(", ");
    let many = format!("RAISERROR ('x', 16, 1, {args})");
    assert_eq!(numbers(&run(&mut session, &many)), [2747]);
}

#[test]
fn a_raised_error_is_no_reason_for_xact_abort_and_counts_for_the_outcome() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script =
        "SET XACT_ABORT ON; BEGIN TRAN; RAISERROR ('x', 16, 1); PRINT @@TRANCOUNT; ROLLBACK";
    assert_eq!(printed(&mut session, script), ["50000 x", "0 1"]);
    let mut record = Recorder::default();
    let outcome = session.run("RAISERROR ('x', 17, 1)", &mut record).unwrap();
    assert_eq!(
        (outcome.severity_max, outcome.failed(), outcome.ended),
        (17, true, false)
    );
    let outcome = session.run("RAISERROR ('x', 5, 1)", &mut record).unwrap();
    assert_eq!((outcome.severity_max, outcome.failed()), (5, false));
}

#[test]
fn a_logged_error_is_in_the_log_and_a_fatal_one_ends_the_session() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script = "RAISERROR ('noted %d', 10, 3, 7) WITH LOG";
    assert_eq!(printed(&mut session, script), ["50000 noted 7"]);
    let log = rows(&run(&mut session, "EXEC sp_readerrorlog 0, 1, 'noted 7'"));
    assert_eq!(log.len(), 1);
    assert_eq!(log[0][1], format!("spid{}", session.id()));
    let head = "EXEC sp_readerrorlog 0, 1, 'Error: 50000, Severity: 10, State: 3.'";
    assert_eq!(rows(&run(&mut session, head)).len(), 1);
    // 19 ends the batch and those around it, and is caught.
    let nested = "EXEC ('RAISERROR (''x'', 19, 1) WITH LOG'); PRINT 'never'";
    assert_eq!(printed(&mut session, nested), ["50000 x"]);
    let caught = "BEGIN TRY RAISERROR ('x', 19, 1) WITH LOG END TRY BEGIN CATCH PRINT ERROR_SEVERITY() END CATCH";
    assert_eq!(printed(&mut session, caught), ["0 19"]);
    for severity in [20, 25, 99] {
        let mut record = Recorder::default();
        let script = format!(
            "BEGIN TRAN; BEGIN TRY RAISERROR ('boom %d', {severity}, 3, 7) WITH LOG END TRY BEGIN CATCH PRINT 'never' END CATCH; PRINT 'never'"
        );
        let outcome = session.run(&script, &mut record).unwrap();
        let severity = severity.min(25);
        let id = session.id();
        assert_eq!(
            told(&record),
            [
                format!("50000 {severity} 3 1 boom 7"),
                format!(
                    "2745 16 2 1 Process ID {id} has raised user error 50000, severity {severity}. SQL Server is terminating this process."
                ),
                "596 21 1 1 Cannot continue the execution because the session is in the kill state."
                    .to_owned(),
            ]
        );
        assert!(outcome.ended);
        assert_eq!(value(&mut session, "SELECT @@TRANCOUNT"), "0");
    }
}

const FAILS: &str = "BACKUP DATABASE nowhere TO DISK = 'a.bak'";

#[test]
fn catch_sees_the_last_message_of_an_error_and_throw_raises_all_again() {
    let stage = Stage::new();
    let mut session = stage.session();
    let show = "PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_SEVERITY(), ' ', ERROR_STATE(), ' ', ERROR_LINE(), ' ', ERROR_MESSAGE(), ISNULL(ERROR_PROCEDURE(), ' none'))";
    for (body, expected) in [
        (
            "RAISERROR ('Error raised in TRY block.', 16, 1)",
            "0 50000 16 1 3 Error raised in TRY block. none",
        ),
        (
            FAILS,
            "0 3013 16 1 3 BACKUP DATABASE is terminating abnormally. none",
        ),
        (
            "PRINT 1/0",
            "0 8134 16 1 3 Divide by zero error encountered. none",
        ),
        (
            "THROW 51000, 'The record does not exist.', 9",
            "0 51000 16 9 3 The record does not exist. none",
        ),
        (
            "EXEC ('\n\nRAISERROR (''in'', 11, 2)')",
            "0 50000 11 2 3 in none",
        ),
        (
            "EXEC sp_there_is_none",
            "0 2812 16 62 3 Could not find stored procedure 'sp_there_is_none'. none",
        ),
        (
            "EXEC ('SELECT * FROM nothing')",
            "0 208 16 1 1 Invalid object name 'nothing'. none",
        ),
        (
            "EXEC ('BACKUP DATABASE')",
            "0 102 15 1 1 Incorrect syntax near 'DATABASE'. none",
        ),
    ] {
        let script = format!(
            "BEGIN TRY\nPRINT 'first'\n{body}\nPRINT 'never'\nEND TRY\nBEGIN CATCH\n{show}\nEND CATCH\nPRINT ERROR_NUMBER()"
        );
        assert_eq!(
            printed(&mut session, &script),
            ["0 first", expected, "0 "],
            "{body}"
        );
    }
    let script = format!(
        "BEGIN TRY\n{FAILS}\nEND TRY\nBEGIN CATCH\nPRINT 'In catch block.';\nTHROW\nEND CATCH\nPRINT 'never'"
    );
    assert_eq!(
        told(&run(&mut session, &script)),
        [
            "0 0 1 5 In catch block.",
            "911 16 11 2 Database 'nowhere' does not exist. Make sure that the name is entered correctly.",
            "3013 16 1 2 BACKUP DATABASE is terminating abnormally.",
        ]
    );
}

#[test]
fn blocks_nest_and_information_passes_them() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, expected) in [
        (
            "BEGIN TRY RAISERROR ('info', 10, 1); PRINT 'after' END TRY BEGIN CATCH PRINT 'never' END CATCH",
            vec!["50000 info", "0 after"],
        ),
        (
            "BEGIN TRY
               BEGIN TRY PRINT 1/0 END TRY
               BEGIN CATCH PRINT ERROR_NUMBER(); THROW 50001, 'again', 1 END CATCH
               PRINT 'never'
             END TRY
             BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH",
            vec!["0 8134", "0 again"],
        ),
        // An inner block leaves the outer one's error as it was.
        (
            "BEGIN TRY RAISERROR ('outer', 16, 1) END TRY
             BEGIN CATCH
               BEGIN TRY RAISERROR ('inner', 16, 1) END TRY BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH
               PRINT ERROR_MESSAGE()
             END CATCH",
            vec!["0 inner", "0 outer"],
        ),
        // An error in CATCH goes to the client, and the block goes on.
        (
            "BEGIN TRY PRINT 1/0 END TRY BEGIN CATCH RAISERROR ('mine', 16, 1); PRINT 'on' END CATCH; PRINT 'end'",
            vec!["50000 mine", "0 on", "0 end"],
        ),
        // The documentation's way to raise it again.
        (
            "BEGIN TRY RAISERROR ('Error raised in TRY block.', 16, 1) END TRY
             BEGIN CATCH
               DECLARE @ErrorMessage NVARCHAR(4000), @ErrorSeverity INT, @ErrorState INT;
               SELECT @ErrorMessage = ERROR_MESSAGE(), @ErrorSeverity = ERROR_SEVERITY(), @ErrorState = ERROR_STATE();
               RAISERROR (@ErrorMessage, @ErrorSeverity, @ErrorState);
             END CATCH",
            vec!["50000 Error raised in TRY block."],
        ),
        // A name that is not found is not caught in its own batch, which ends; nor does the batch around it.
        (
            "BEGIN TRY SELECT * FROM nothing END TRY BEGIN CATCH PRINT 'never' END CATCH; PRINT 'never'",
            vec!["208 Invalid object name 'nothing'."],
        ),
        (
            "BEGIN TRY
               EXEC ('BEGIN TRY SELECT * FROM nothing END TRY BEGIN CATCH PRINT ''never'' END CATCH; PRINT ''never''')
             END TRY
             BEGIN CATCH PRINT ERROR_NUMBER() END CATCH",
            vec!["0 208"],
        ),
        (
            "EXEC ('BEGIN TRY SELECT * FROM nothing END TRY BEGIN CATCH PRINT ''never'' END CATCH'); PRINT 'on'",
            vec!["208 Invalid object name 'nothing'.", "0 on"],
        ),
        // Mistakes of the batch itself keep it from running.
        (
            "PRINT 'never'; BEGIN TRY SELEKT END TRY BEGIN CATCH PRINT 'never' END CATCH",
            vec!["102 Incorrect syntax near 'SELEKT'."],
        ),
        (
            "BEGIN TRY PRINT 'in' END TRY BEGIN CATCH END CATCH; PRINT 'on'",
            vec!["0 in", "0 on"],
        ),
    ] {
        assert_eq!(printed(&mut session, script), expected, "{script}");
    }
}

#[test]
fn throw_ends_the_batch_and_those_around_it() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, expected) in [
        (
            "PRINT 'a';\nTHROW 51000, 'The record does not exist.', 1;\nPRINT 'never'",
            vec!["0 0 1 1 a", "51000 16 1 2 The record does not exist."],
        ),
        (
            "EXEC ('THROW 50000, ''x'', 1'); PRINT 'never'",
            vec!["50000 16 1 1 x"],
        ),
        (
            "DECLARE @n varchar(9) = '50002', @m int = 5, @s int = 257; THROW @n, @m, @s",
            vec!["50002 16 1 1 5"],
        ),
        (
            "THROW 50000, '15%% of %d', 0",
            vec!["50000 16 0 1 15% of %d"],
        ),
        (
            "THROW 49999, 'x', -1",
            vec![
                "35100 16 10 1 Error number 49999 in the THROW statement is outside the valid range. Specify an error number in the valid range of 50000 to 2147483647.",
            ],
        ),
        (
            "THROW 50000, 'x', -1; PRINT 'never'",
            vec!["2756 16 1 1 Invalid value -1 for state. State value must not be less than 0."],
        ),
        (
            "THROW 3000000000, 'x', 1",
            vec!["1080 15 1 1 The integer value 3000000000 is out of range."],
        ),
        (
            "THROW 50000, 'a' + 'b', 1",
            vec!["102 15 1 1 Incorrect syntax near '+'."],
        ),
        (
            "THROW NULL, 'x', 1",
            vec!["156 15 1 1 Incorrect syntax near the keyword 'NULL'."],
        ),
        (
            "PRINT 'never'; IF 1 = 0 THROW",
            vec![
                "10704 15 1 1 To rethrow an error, a THROW statement must be used inside a CATCH block. Insert the THROW statement inside a CATCH block, or add error parameters to the THROW statement.",
            ],
        ),
    ] {
        assert_eq!(told(&run(&mut session, script)), expected, "{script}");
    }
    // A session goes on after all of them.
    assert_eq!(value(&mut session, "SELECT 1"), "1");
}

#[test]
fn a_transaction_is_doomed_by_an_error_under_xact_abort() {
    let stage = Stage::new();
    let mut session = stage.session();
    let state = "PRINT CONCAT(XACT_STATE(), ' ', @@TRANCOUNT)";
    for (script, expected) in [
        (
            format!("{state}; BEGIN TRAN; {state}; COMMIT; {state}"),
            vec!["0 0 0", "0 1 1", "0 0 0"],
        ),
        (
            format!(
                "SET XACT_ABORT ON; BEGIN TRY BEGIN TRAN; PRINT 1/0 END TRY
                 BEGIN CATCH {state}; ROLLBACK; {state} END CATCH"
            ),
            vec!["0 -1 1", "0 0 0"],
        ),
        (
            "SET XACT_ABORT ON; BEGIN TRAN; BEGIN TRY PRINT 1/0 END TRY BEGIN CATCH COMMIT; PRINT 'never' END CATCH"
                .to_owned(),
            vec![
                "3930 The current transaction cannot be committed and cannot support operations that write to the log file. Roll back the transaction.",
            ],
        ),
        (
            format!(
                "BEGIN TRAN; BEGIN TRY PRINT 1/0 END TRY BEGIN CATCH PRINT 'caught' END CATCH; PRINT 'on' {state}"
            ),
            vec![
                "0 caught",
                "0 on",
                "0 -1 1",
                "3998 Uncommittable transaction is detected at the end of the batch. The transaction is rolled back.",
            ],
        ),
        (
            format!(
                "{state}; SET XACT_ABORT OFF; BEGIN TRAN; BEGIN TRY PRINT 1/0 END TRY BEGIN CATCH {state} END CATCH; COMMIT"
            ),
            vec!["0 0 0", "0 1 1"],
        ),
        // A failed conversion dooms it in any case.
        (
            format!(
                "BEGIN TRAN; BEGIN TRY PRINT CAST('x' AS int) END TRY BEGIN CATCH {state}; ROLLBACK END CATCH"
            ),
            vec!["0 -1 1"],
        ),
    ] {
        assert_eq!(printed(&mut session, &script), expected, "{script}");
    }
}

#[test]
fn a_wait_lasts_as_long_as_it_says() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut lasts = |script: &str| {
        let begun = Instant::now();
        let said = printed(&mut session, script);
        (said, begun.elapsed())
    };
    for script in [
        "WAITFOR DELAY '00:00:00.3'; PRINT @@ROWCOUNT",
        "DECLARE @t char(12) = '00:00:00.300'; WAITFOR DELAY @t; PRINT 0",
        "DECLARE @t datetime = '1900-01-01 00:00:00.300'; WAITFOR DELAY @t; PRINT 0",
        "DECLARE @t datetime = DATEADD(ms, 400, GETDATE()); WAITFOR TIME @t; PRINT 0",
        "DECLARE @t varchar(12) = CONVERT(varchar(12), DATEADD(ms, 400, GETDATE()), 114); WAITFOR TIME @t; PRINT 0",
    ] {
        let (said, elapsed) = lasts(script);
        assert_eq!(said, ["0 0"], "{script}");
        let expected = Duration::from_millis(250)..Duration::from_secs(5);
        assert!(expected.contains(&elapsed), "{script}: {elapsed:?}");
    }
    for (script, expected) in [
        ("WAITFOR DELAY ''; PRINT 1", "0 1"),
        ("DECLARE @t varchar(9); WAITFOR DELAY @t; PRINT 1", "0 1"),
        ("DECLARE @t int; WAITFOR TIME @t; PRINT 1", "0 1"),
        ("IF 1 = 0 WAITFOR DELAY '10:00'; PRINT 1", "0 1"),
        (
            "PRINT 'never'; WAITFOR DELAY 'not a time'",
            "148 Incorrect time syntax in time string 'not a time' used with WAITFOR.",
        ),
        (
            "WAITFOR DELAY '25:00:00'",
            "148 Incorrect time syntax in time string '25:00:00' used with WAITFOR.",
        ),
        ("WAITFOR DELAY 1", "102 Incorrect syntax near '1'."),
        (
            "WAITFOR (RECEIVE * FROM q)",
            "50002 WAITFOR (RECEIVE) is not part of the language that this server understands.",
        ),
        (
            "DECLARE @t time = '00:00:01'; WAITFOR DELAY @t",
            "9815 Waitfor delay and waitfor time cannot be of type time(7).",
        ),
        (
            "DECLARE @t varchar(9) = 'bogus'; WAITFOR DELAY @t",
            "241 Conversion failed when converting date and/or time from character string.",
        ),
    ] {
        let (said, elapsed) = lasts(script);
        assert_eq!(said, [expected], "{script}");
        assert!(elapsed < Duration::from_secs(3), "{script}: {elapsed:?}");
    }
}

/// Goal: a cancel ends a wait and loops of every kind within 0.3 s, and no TRY block catches it.
#[test]
fn a_cancel_ends_waits_and_loops() {
    let stage = Stage::new();
    for script in [
        "WAITFOR DELAY '23:00'; PRINT 'never'",
        "DECLARE @t int = -1; WAITFOR DELAY @t; PRINT 'never'",
        "BEGIN TRY WAITFOR DELAY '23:00' END TRY BEGIN CATCH PRINT 'never' END CATCH PRINT 'never'",
        "again: GOTO again",
        "again: BEGIN TRY THROW 50000, 'x', 1 END TRY BEGIN CATCH GOTO again END CATCH",
        "WHILE 1 = 1 WAITFOR DELAY '00:00:00'",
        "DECLARE c CURSOR FOR SELECT 1 WHILE 1 = 1 BEGIN OPEN c CLOSE c END",
        "EXEC ('again: GOTO again'); PRINT 'never'",
    ] {
        let mut session = stage.session();
        let cancel = session.cancel_flag();
        let watch = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            cancel.store(true, Ordering::Relaxed);
            Instant::now()
        });
        let record = run(&mut session, script);
        let ended = Instant::now();
        let cancelled = watch.join().unwrap();
        let late = ended.saturating_duration_since(cancelled);
        assert!(late < Duration::from_millis(300), "{script}: {late:?}");
        assert_eq!(numbers(&record).last(), Some(&3204), "{script}");
        assert!(
            !said(&record).iter().any(|s| s.contains("never")),
            "{script}"
        );
        session.cancel_flag().store(false, Ordering::Relaxed);
        assert_eq!(value(&mut session, "SELECT 1"), "1");
    }
}

#[test]
fn goto_goes_to_its_label_and_nowhere_else() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (script, expected) in [
        // Of the documentation.
        (
            "DECLARE @Counter int;
             SET @Counter = 1;
             WHILE @Counter < 10
             BEGIN
                 PRINT @Counter
                 SET @Counter = @Counter + 1
                 IF @Counter = 4 GOTO Branch_One
                 IF @Counter = 5 GOTO Branch_Two
             END
             Branch_One:
                 PRINT 'Jumping To Branch One.'
                 GOTO Branch_Three;
             Branch_Two:
                 PRINT 'Jumping To Branch Two.'
             Branch_Three:
                 PRINT 'Jumping To Branch Three.'",
            vec!["0 1", "0 2", "0 3", "0 Jumping To Branch One.", "0 Jumping To Branch Three."],
        ),
        (
            "DECLARE @i int = 0 again: SET @i += 1 IF @i < 3 GOTO AGAIN PRINT @i",
            vec!["0 3"],
        ),
        // Into a block, a branch and a loop, whose condition counts from then on.
        (
            "GOTO l; BEGIN PRINT 'never'; l: PRINT 'in' END PRINT 'on'",
            vec!["0 in", "0 on"],
        ),
        ("GOTO l; IF 1 = 0 BEGIN l: PRINT 'in' END ELSE PRINT 'never'; PRINT 'on'", vec!["0 in", "0 on"]),
        (
            "DECLARE @i int = 8; GOTO l; WHILE @i < 10 BEGIN PRINT 'head'; l: PRINT @i; SET @i += 1 END",
            vec!["0 8", "0 head", "0 9"],
        ),
        // Out of TRY and of CATCH.
        (
            "BEGIN TRY GOTO out1 END TRY BEGIN CATCH END CATCH PRINT 'never' out1: PRINT ERROR_NUMBER()
             BEGIN TRY PRINT 1/0 END TRY BEGIN CATCH GOTO out2 END CATCH PRINT 'never' out2: PRINT ERROR_NUMBER()",
            vec!["0 ", "0 "],
        ),
        ("BEGIN TRY GOTO l; PRINT 'never'; l: PRINT 'in' END TRY BEGIN CATCH END CATCH", vec!["0 in"]),
        // The usual end of older scripts.
        (
            "BEGIN TRAN; RAISERROR ('x', 16, 1); IF @@ERROR <> 0 GOTO QuitWithRollback; COMMIT; GOTO EndSave
             QuitWithRollback: IF (@@TRANCOUNT > 0) ROLLBACK TRANSACTION
             EndSave: PRINT @@TRANCOUNT",
            vec!["50000 x", "0 0"],
        ),
        // A declaration holds for the batch, also where GOTO passes it.
        ("GOTO l; DECLARE @x int = 5; l: PRINT ISNULL(@x, 7)", vec!["0 7"]),
        // Labels belong to their batch.
        ("l: EXEC ('l: PRINT 1'); PRINT 2", vec!["0 1", "0 2"]),
        (
            "PRINT 'never'; IF 1 = 0 GOTO nowhere",
            vec!["133 A GOTO statement references the label 'nowhere' but the label has not been declared."],
        ),
        (
            "PRINT 'never' l: PRINT 1 L: PRINT 2",
            vec!["132 The label 'L' has already been declared. Label names must be unique within a query batch or stored procedure."],
        ),
        (
            "GOTO l; BEGIN TRY l: PRINT 1 END TRY BEGIN CATCH END CATCH",
            vec!["1026 GOTO cannot be used to jump into a TRY or CATCH scope."],
        ),
        (
            "BEGIN TRY GOTO l END TRY BEGIN CATCH l: PRINT 1 END CATCH",
            vec!["1026 GOTO cannot be used to jump into a TRY or CATCH scope."],
        ),
        ("GOTO 'x'", vec!["102 Incorrect syntax near 'x'."]),
    ] {
        assert_eq!(printed(&mut session, script), expected, "{script}");
    }
}

#[test]
fn return_has_no_value_in_a_batch_and_declarations_hold_in_loops() {
    let stage = Stage::new();
    let mut session = stage.session();
    for script in [
        "PRINT 'never'; IF 1 = 0 RETURN 5",
        "RETURN (1)",
        "RETURN -1",
        "RETURN @@ERROR",
    ] {
        assert_eq!(
            printed(&mut session, script),
            ["178 A RETURN statement with a return value cannot be used in this context."],
            "{script}"
        );
    }
    assert_eq!(printed(&mut session, "PRINT 1; RETURN; PRINT 2"), ["0 1"]);
    for (declared, expected) in [("@q int = 5", "0 18"), ("@q int", "0 6")] {
        let script = format!(
            "DECLARE @i int = 0, @s int = 0; WHILE @i < 3 BEGIN DECLARE {declared}; SET @q = ISNULL(@q, 0) + 1; SET @s += @q; SET @i += 1 END; PRINT @s"
        );
        assert_eq!(printed(&mut session, &script), [expected], "{script}");
    }
}

/// Pieces of scripts that belong together, and some that do not.
const PIECES: &[&str] = &[
    "l: ",
    "m: ",
    "GOTO l ",
    "GOTO m ",
    "IF @i < 5 ",
    "ELSE ",
    "BEGIN ",
    "END ",
    "BEGIN TRY ",
    "END TRY BEGIN CATCH ",
    "END CATCH ",
    "WHILE @i < 9 ",
    "BREAK ",
    "CONTINUE ",
    "SET @i += 1 ",
    "DECLARE @i int = 0 ",
    "DECLARE @c CURSOR ",
    "RAISERROR ('x %d', 16, 1, @i) ",
    "RAISERROR ('%*s', 10, 1, @i, 'a') WITH NOWAIT ",
    "RAISERROR ('x', 20, 1) WITH LOG ",
    "; THROW 50001, 'x', 1 ",
    "; THROW ",
    "WAITFOR DELAY '00:00:00' ",
    "WAITFOR DELAY '01:00' ",
    "DECLARE c CURSOR LOCAL SCROLL FOR SELECT 1 UNION ALL SELECT 2 ",
    "DECLARE c CURSOR FOR SELECT name FROM sys.databases ",
    "SET @c = CURSOR FOR SELECT 1 ",
    "SET @c = c ",
    "OPEN c ",
    "OPEN @c ",
    "FETCH NEXT FROM c INTO @i ",
    "FETCH RELATIVE @i FROM c ",
    "FETCH @c INTO @i ",
    "CLOSE c ",
    "DEALLOCATE c ",
    "DEALLOCATE @c ",
    "EXEC ('GOTO l l: RAISERROR (''y'', 16, 1)') ",
    "EXEC ('FETCH c') ",
    "BEGIN TRAN ",
    "COMMIT ",
    "SET XACT_ABORT ON ",
    "PRINT XACT_STATE() ",
    "PRINT @@FETCH_STATUS ",
    "SELECT * FROM nothing ",
    "RETURN ",
];

/// Goal: whatever these statements are put together to, the session neither panics nor runs on after a cancel, and the
/// parser prints what it takes without loss.
/// Method: random scripts; every one that runs for 50 ms is cancelled.
#[test]
fn random_scripts_end_and_leave_a_session_that_works() {
    use proptest::prelude::*;
    let stage = Stage::new();
    let server = stage.server();
    let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 1..14);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let ran = runner.run(&pieces, |pieces| {
        let script = format!("DECLARE @i int = 0, @c CURSOR {}", pieces.concat());
        if let Ok(batch) = longshore_tsql::syntax::parse(&script) {
            let printed = batch.to_string();
            prop_assert_eq!(&longshore_tsql::syntax::parse(&printed).unwrap(), &batch);
        }
        let script = match script.contains("DECLARE @i int = 0 ") || script.contains("@c CURSOR D")
        {
            true => pieces.concat(),
            false => script,
        };
        let mut session = Session::new(server.clone(), common::login());
        let cancel = session.cancel_flag();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_millis(50)).is_err() {
                cancel.store(true, Ordering::Relaxed);
            }
        });
        let begun = Instant::now();
        run(&mut session, &script);
        let elapsed = begun.elapsed();
        end.send(()).ok();
        watch.join().unwrap();
        prop_assert!(elapsed < Duration::from_millis(350), "{:?}", elapsed);
        session.cancel_flag().store(false, Ordering::Relaxed);
        session.reset(false);
        prop_assert_eq!(value(&mut session, "SELECT 1"), "1");
        Ok(())
    });
    ran.unwrap();
}
