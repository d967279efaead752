//! Goal: locks that scripts take by name keep other sessions out, and say so with SQL Server's values and messages.
//! Method: two sessions of one server; the expected values are those of Microsoft's pages of sp_getapplock,
//! sp_releaseapplock, APPLOCK_MODE and APPLOCK_TEST.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Stage, login, numbers, rows, run, said, value};
use longshore_tsql::{Recorder, Session};

fn two() -> (Stage, Session, Session) {
    let stage = Stage::new();
    let server = stage.server();
    let sessions = [login(), login()].map(|login| Session::new(server.clone(), login));
    let [first, second] = sessions;
    (stage, first, second)
}

fn three() -> (Stage, Session, Session, Session) {
    let stage = Stage::new();
    let server = stage.server();
    let session = || Session::new(server.clone(), login());
    let (first, second, third) = (session(), session(), session());
    (stage, first, second, third)
}

/// Ends a session's wait where the test fails, which would last for ever else.
struct EndOnPanic(Arc<AtomicBool>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns once a request waits for a lock.
fn until_one_waits(session: &mut Session) {
    let count = "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0";
    let begun = std::time::Instant::now();
    while value(session, count) == "0" {
        assert!(begun.elapsed().as_secs() < 30, "nobody waits");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn get(resource: &str, mode: &str, owner: &str, timeout: i64) -> String {
    format!(
        "DECLARE @rc int EXEC @rc = sp_getapplock @Resource = N'{resource}', @LockMode = '{mode}', \
         @LockOwner = '{owner}', @LockTimeout = {timeout} SELECT @rc"
    )
}

fn release(resource: &str, owner: &str) -> String {
    format!(
        "DECLARE @rc int EXEC @rc = sp_releaseapplock @Resource = N'{resource}', @LockOwner = '{owner}' SELECT @rc"
    )
}

#[test]
fn a_lock_of_a_session_keeps_others_out_until_it_is_released_as_often() {
    let (_stage, mut a, mut b) = two();
    assert_eq!(value(&mut a, &get("job", "Exclusive", "Session", 0)), "0");
    assert_eq!(value(&mut a, &get("job", "exclusive ", "SESSION", -1)), "0");
    assert_eq!(value(&mut b, &get("job", "Shared", "Session", 0)), "-1");
    assert_eq!(value(&mut b, &get("job", "Shared", "Session", 60)), "-1");
    // Names are compared by their code points, and each database has its own.
    assert_eq!(value(&mut b, &get("JOB", "Exclusive", "Session", 0)), "0");
    run(&mut b, "USE shop");
    assert_eq!(value(&mut b, &get("job", "Exclusive", "Session", 0)), "0");
    run(&mut b, "USE master");
    let mode = "SELECT APPLOCK_MODE('public', 'job', 'Session')";
    assert_eq!(value(&mut a, mode), "Exclusive");
    assert_eq!(value(&mut b, mode), "NoLock");
    let test = |mode: &str| format!("SELECT APPLOCK_TEST('public', 'job', '{mode}', 'Session')");
    assert_eq!(value(&mut a, &test("Exclusive")), "1");
    assert_eq!(value(&mut b, &test("IntentShared")), "0");
    let foreign = run(&mut b, &release("job", "Session"));
    assert_eq!(
        said(&foreign),
        [
            "1223 Cannot release the application lock (Database Principal: 'public', Resource: 'job') because it is not currently held."
        ]
    );
    assert_eq!(rows(&foreign), [["-999"]]);
    assert_eq!(value(&mut a, &release("job", "Session")), "0");
    assert_eq!(value(&mut b, &test("Exclusive")), "0");
    assert_eq!(value(&mut a, &release("job", "Session")), "0");
    assert_eq!(value(&mut b, &test("Exclusive")), "1");
    // A session that ends releases what it holds.
    assert_eq!(value(&mut a, &get("job", "Exclusive", "Session", 0)), "0");
    drop(a);
    assert_eq!(value(&mut b, &test("Exclusive")), "1");
}

#[test]
fn a_lock_of_a_transaction_ends_with_it() {
    let (_stage, mut a, mut b) = two();
    let taken = |a: &mut Session| {
        run(a, "BEGIN TRAN");
        value(a, &get("t", "Exclusive", "Transaction", 0))
    };
    let free = "SELECT APPLOCK_TEST('public', 't', 'Exclusive', 'Session')";
    for end in ["COMMIT", "ROLLBACK", "BEGIN TRAN COMMIT COMMIT"] {
        assert_eq!(taken(&mut a), "0");
        assert_eq!(value(&mut b, free), "0", "{end}");
        run(&mut a, end);
        assert_eq!(value(&mut b, free), "1", "{end}");
    }
    // An error under XACT_ABORT rolls back, too; a pool's reset does.
    assert_eq!(taken(&mut a), "0");
    run(&mut a, "SET XACT_ABORT ON EXEC sp_dropdevice 'none'");
    assert_eq!(value(&mut b, free), "1");
    assert_eq!(taken(&mut a), "0");
    a.reset(false);
    assert_eq!(value(&mut b, free), "1");
    // A pool's reset that keeps the transaction keeps its locks, and no others.
    assert_eq!(taken(&mut a), "0");
    assert_eq!(value(&mut a, &get("own", "Exclusive", "Session", 0)), "0");
    a.reset(true);
    assert_eq!(value(&mut b, free), "0");
    assert_eq!(value(&mut b, &get("own", "Exclusive", "Session", 0)), "0");
    run(&mut a, "ROLLBACK");
    assert_eq!(value(&mut b, free), "1");
    // Several modes are held together.
    run(&mut a, "BEGIN TRAN");
    for (mode, held) in [
        ("Shared", "Shared"),
        ("IntentExclusive", "SharedIntentExclusive"),
    ] {
        assert_eq!(value(&mut a, &get("t", mode, "Transaction", 0)), "0");
        let mode = "SELECT APPLOCK_MODE('public', 't', 'Transaction')";
        assert_eq!(value(&mut a, mode), held);
    }
    assert_eq!(value(&mut b, &get("t", "IntentShared", "Session", 0)), "0");
    assert_eq!(value(&mut b, &get("t", "Shared", "Session", 0)), "-1");
}

#[test]
fn a_request_waits_for_the_lock_and_a_circle_has_a_victim() {
    let (_stage, mut a, mut b, mut c) = three();
    let cancel = b.cancel_flag();
    assert_eq!(value(&mut a, &get("w", "Exclusive", "Session", 0)), "0");
    std::thread::scope(|scope| {
        let _end = EndOnPanic(cancel.clone());
        let waits = scope.spawn(|| value(&mut b, &get("w", "Exclusive", "Session", 600_000)));
        until_one_waits(&mut a);
        // A later request of another session does not overtake it.
        let shared = "SELECT APPLOCK_TEST('public', 'w', 'IntentShared', 'Session')";
        assert_eq!(value(&mut c, shared), "0");
        assert_eq!(value(&mut a, &release("w", "Session")), "0");
        assert_eq!(waits.join().unwrap(), "1", "granted after a wait");
    });
    // Each waits for what the other one holds: the one who comes last is told, and nothing is rolled back.
    assert_eq!(value(&mut a, &get("x", "Exclusive", "Session", 0)), "0");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let held = value(&mut b, &get("y", "Exclusive", "Session", 600_000));
            (
                held,
                value(&mut b, &get("x", "Exclusive", "Session", 600_000)),
            )
        });
        run(&mut a, "BEGIN TRAN");
        let status = loop {
            match value(&mut a, &get("y", "Exclusive", "Session", 40)).as_str() {
                "0" => {
                    // The other one has not come so far yet.
                    value(&mut a, &release("y", "Session"));
                }
                "-1" if !waits.is_finished() => {}
                other => break other.to_owned(),
            }
        };
        assert_eq!(value(&mut a, "SELECT @@TRANCOUNT"), "1");
        assert_eq!(value(&mut a, &release("x", "Session")), "0");
        let both = [status, waits.join().unwrap().1];
        let told = [["-3", "1"], ["-1", "-3"]];
        assert!(told.iter().any(|t| both == *t), "{both:?}");
    });
}

#[test]
fn a_session_that_waits_is_shown_with_the_one_that_it_waits_for() {
    let (_stage, mut a, mut b, mut c) = three();
    let cancel = b.cancel_flag();
    let (first, second) = (a.id().to_string(), b.id().to_string());
    for (mode, kind) in [
        ("Shared", "LCK_M_S"),
        ("IntentExclusive", "LCK_M_IX"),
        ("Exclusive", "LCK_M_X"),
    ] {
        assert_eq!(value(&mut a, &get("w", "Exclusive", "Session", 0)), "0");
        std::thread::scope(|scope| {
            let _end = EndOnPanic(cancel.clone());
            let waits = scope.spawn(|| value(&mut b, &get("w", mode, "Session", -1)));
            until_one_waits(&mut c);
            let request = format!(
                "SELECT status, command, wait_type, last_wait_type, blocking_session_id \
                 FROM sys.dm_exec_requests WHERE session_id = {second}"
            );
            let shown = format!("suspended|EXECUTE|{kind}|{kind}|{first}");
            assert_eq!(value(&mut c, &request), shown);
            let waited =
                format!("SELECT wait_time FROM sys.dm_exec_requests WHERE session_id = {second}");
            let before: i64 = value(&mut c, &waited).parse().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(value(&mut c, &waited).parse::<i64>().unwrap() >= before + 5);
            let old = format!(
                "SELECT status, blocked, lastwaittype FROM sysprocesses WHERE spid = {second}"
            );
            assert_eq!(value(&mut c, &old), format!("suspended|{first}|{kind}"));
            let who = rows(&run(&mut c, &format!("EXEC sp_who2 '{second}'")));
            assert_eq!(
                [&who[0][1], who[0][4].trim(), &who[0][6]],
                ["SUSPENDED", &first, "EXECUTE"]
            );
            let who = rows(&run(&mut c, &format!("EXEC sp_who '{second}'")));
            assert_eq!([&who[0][2], who[0][5].trim()], ["suspended", &first]);
            assert_eq!(value(&mut a, &release("w", "Session")), "0");
            assert_eq!(waits.join().unwrap(), "1");
        });
        // Nothing is left of it.
        let rest = "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE session_id <> @@SPID";
        assert_eq!(value(&mut c, rest), "0");
        let who = rows(&run(&mut c, &format!("EXEC sp_who2 '{second}'")));
        assert_eq!([&who[0][1], who[0][4].trim()], ["sleeping", "."]);
        assert_eq!(value(&mut b, &release("w", "Session")), "0");
    }
}

#[test]
fn an_attention_and_kill_end_a_wait_and_its_place_in_the_queue() {
    let (_stage, mut a, mut b, mut c) = three();
    let cancel = b.cancel_flag();
    let number = b.id();
    for is_kill in [false, true] {
        assert_eq!(value(&mut a, &get("w", "Shared", "Session", 0)), "0");
        let ended = std::thread::scope(|scope| {
            let _end = EndOnPanic(cancel.clone());
            let waits = scope.spawn(|| {
                let mut record = Recorder::default();
                let batch = get("w", "Exclusive", "Session", -1) + " PRINT 'on'";
                let outcome = b.run(&batch, &mut record).unwrap();
                assert_eq!(rows(&record), [] as [Vec<String>; 0]);
                assert!(!numbers(&record).contains(&0), "PRINT ran");
                outcome.ended
            });
            until_one_waits(&mut c);
            match is_kill {
                true => {
                    run(&mut c, &format!("KILL {number}"));
                }
                false => cancel.store(true, Ordering::Relaxed),
            }
            waits.join().unwrap()
        });
        assert_eq!(ended, is_kill);
        cancel.store(false, Ordering::Relaxed);
        let waiting = "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0";
        assert_eq!(value(&mut c, waiting), "0");
        // Its request for an exclusive lock is in nobody's way.
        assert_eq!(value(&mut c, &get("w", "Shared", "Session", 0)), "0");
        assert_eq!(value(&mut c, &release("w", "Session")), "0");
        assert_eq!(value(&mut a, &release("w", "Session")), "0");
    }
}

#[test]
fn a_request_without_a_time_waits_as_long_as_set_lock_timeout_says() {
    let (_stage, mut a, mut b, mut c) = three();
    let cancel = b.cancel_flag();
    assert_eq!(value(&mut a, &get("w", "Exclusive", "Session", 0)), "0");
    let usual = "DECLARE @rc int EXEC @rc = sp_getapplock 'w', 'Shared', 'Session' SELECT @rc";
    for time in ["0", "30"] {
        run(&mut b, &format!("SET LOCK_TIMEOUT {time}"));
        assert_eq!(value(&mut b, usual), "-1", "{time}");
    }
    let null = "DECLARE @rc int EXEC @rc = sp_getapplock 'w', 'Shared', 'Session', NULL SELECT @rc";
    assert_eq!(value(&mut b, null), "-1");
    run(&mut b, "SET LOCK_TIMEOUT -1");
    std::thread::scope(|scope| {
        let _end = EndOnPanic(cancel.clone());
        let waits = scope.spawn(|| value(&mut b, usual));
        until_one_waits(&mut c);
        assert_eq!(value(&mut a, &release("w", "Session")), "0");
        assert_eq!(waits.join().unwrap(), "1");
    });
}

#[test]
fn a_lock_is_one_of_a_principal() {
    let (_stage, mut a, mut b) = two();
    let call = |procedure: &str, principal: &str| {
        format!(
            "DECLARE @rc int EXEC @rc = {procedure}, @LockOwner = 'Session', @DbPrincipal = {principal} SELECT @rc"
        )
    };
    let get = |principal: &str| {
        call(
            "sp_getapplock @Resource = 'p', @LockMode = 'Exclusive', @LockTimeout = 0",
            principal,
        )
    };
    let release = |principal: &str| call("sp_releaseapplock @Resource = 'p'", principal);
    assert_eq!(value(&mut a, &get("'dbo'")), "0");
    assert_eq!(value(&mut b, &get("'public'")), "0");
    assert_eq!(value(&mut b, &get("'DBO'")), "-1");
    let mode = |principal: &str| format!("SELECT APPLOCK_MODE('{principal}', 'p', 'Session')");
    assert_eq!(value(&mut a, &mode("dbo")), "Exclusive");
    assert_eq!(value(&mut a, &mode("public")), "NoLock");
    assert_eq!(
        said(&run(&mut b, &release("'dbo'"))),
        [
            "1223 Cannot release the application lock (Database Principal: 'dbo', Resource: 'p') because it is not currently held."
        ]
    );
    assert_eq!(value(&mut a, &release("'dbo'")), "0");
    assert_eq!(value(&mut b, &get("'DBO'")), "0");
    for call in [get("NULL"), release("NULL")] {
        assert_eq!(numbers(&run(&mut a, &call)), [1230], "{call}");
    }
    let null = "SELECT APPLOCK_MODE(NULL, 'p', 'Session')";
    assert_eq!(numbers(&run(&mut a, null)), [1230]);
}

#[test]
fn a_session_holds_a_thousand_names() {
    let (_stage, mut a, mut b) = two();
    let all = "DECLARE @i int = 0, @rc int = 0, @name varchar(9)
        WHILE @i < 1000 AND @rc = 0 BEGIN
            SET @name = CONCAT('n', @i)
            EXEC @rc = sp_getapplock @name, 'Shared', 'Session', 0
            SET @i += 1
        END
        SELECT CONCAT(@i, '|', @rc)";
    assert_eq!(value(&mut a, all), "1000|0");
    let record = run(&mut a, &get("one more", "Shared", "Session", 0));
    assert_eq!(
        said(&record),
        ["50000 this session holds 1000 application locks: release some"]
    );
    assert_eq!(rows(&record), [["-999"]]);
    // A name that it holds counts once, and another session has names of its own.
    assert_eq!(value(&mut a, &get("n7", "Shared", "Session", 0)), "0");
    assert_eq!(value(&mut b, &get("one more", "Shared", "Session", 0)), "0");
    assert_eq!(value(&mut a, &release("n8", "Session")), "0");
    assert_eq!(value(&mut a, &get("one more", "Shared", "Session", 0)), "0");
}

#[test]
fn mistakes_have_sql_server_s_messages_and_minus_999() {
    let (_stage, mut a, _b) = two();
    for (call, expected) in [
        (
            "sp_getapplock 'x', 'Strange', 'Session'",
            "15625 Option 'Strange' not recognized for '@LockMode' parameter.",
        ),
        (
            "sp_getapplock 'x', 'Shared', 'Nobody'",
            "15625 Option 'Nobody' not recognized for '@LockOwner' parameter.",
        ),
        (
            "sp_getapplock 'x', 'Shared'",
            "15626 You attempted to acquire a transactional application lock without an active transaction.",
        ),
        (
            "sp_getapplock 'x', 'Shared', 'Session', -5",
            "1227 An invalid application lock time-out was passed to xp_userlock.",
        ),
        (
            "sp_getapplock NULL, 'Shared', 'Session'",
            "1224 An invalid application lock resource was passed to xp_userlock.",
        ),
        (
            "sp_getapplock 'x', 'Shared', 'Session', 0, 'nobody'",
            "1202 The database-principal 'nobody' does not exist or user is not a member.",
        ),
        (
            "sp_releaseapplock 'x'",
            "3918 The statement or function must be executed in the context of a user transaction.",
        ),
    ] {
        let batch = format!("DECLARE @rc int EXEC @rc = {call} SELECT @rc");
        let record = run(&mut a, &batch);
        assert_eq!(said(&record), [expected], "{call}");
        assert_eq!(rows(&record), [["-999"]], "{call}");
    }
    for (query, number) in [
        ("EXEC sp_getapplock 'x'", 201),
        ("SELECT APPLOCK_MODE('public', 'x', 'Nobody')", 1226),
        (
            "SELECT APPLOCK_TEST('public', 'x', 'Strange', 'Session')",
            1225,
        ),
        ("SELECT APPLOCK_MODE('public', 'x', 'Transaction')", 3918),
        ("SELECT APPLOCK_MODE('nobody', 'x', 'Session')", 1202),
        ("SELECT APPLOCK_MODE('public', 'x')", 174),
    ] {
        assert_eq!(numbers(&run(&mut a, query)), [number], "{query}");
    }
}
