//! Goal: what ANSI_WARNINGS, ARITHABORT, ARITHIGNORE and QUOTED_IDENTIFIER say is heeded, as SQL Server's documentation has it; and the
//! history's columns are such that scripts find the rows that they have read.
//! Method: scripts run in a session; messages and rows are compared.

mod common;

use common::{Stage, numbers, rows, run, said, value};

const WARNING: &str = "Warning: Null value is eliminated by an aggregate or other SET operation.";

#[test]
fn an_aggregate_that_passes_over_a_null_says_so_once() {
    let stage = Stage::new();
    let mut session = stage.session();
    let from = "FROM (VALUES (1), (NULL), (NULL)) AS t(v)";
    for warned in [
        format!("SELECT MAX(v), SUM(v), COUNT(v) {from}"),
        format!("SELECT v, MIN(v) OVER () {from}"),
        format!("DECLARE @m int = (SELECT MAX(v) {from}); SELECT @m"),
        format!("DECLARE @m int; SELECT @m = AVG(v) {from}; SELECT @m"),
        format!("IF (SELECT COUNT(DISTINCT v) {from}) = 1 SELECT 1"),
        format!(
            "SELECT a.n, (SELECT MAX(v) {from} WHERE v = a.n OR v IS NULL) FROM (VALUES (1)) AS a(n)"
        ),
    ] {
        let told = run(&mut session, &warned);
        assert_eq!(said(&told), [format!("8153 {WARNING}")], "{warned}");
        assert!(
            told.messages()
                .all(|m| (m.number, m.severity) == (8153, 10))
        );
        let off = format!("SET ANSI_WARNINGS OFF {warned} SET ANSI_WARNINGS ON");
        assert_eq!(said(&run(&mut session, &off)), [""; 0], "{off}");
        assert_eq!(rows(&run(&mut session, &off)), rows(&told));
    }
    for silent in [
        format!("SELECT COUNT(*) {from}"),
        format!("SELECT MAX(v) {from} WHERE v IS NOT NULL"),
        format!("SELECT MAX(ISNULL(v, 0)) {from}"),
        "SELECT p.a, p.b FROM (VALUES ('a', 1), ('b', 2)) AS t(k, v) PIVOT (MAX(v) FOR k IN (a, b)) AS p".to_owned(),
        "EXEC sp_helpdb".to_owned(),
        format!("SELECT MAX(v), 1/0 {from}"),
    ] {
        assert!(!numbers(&run(&mut session, &silent)).contains(&8153), "{silent}");
    }
    // The notices of a statement that failed are not told of the next one.
    assert_eq!(numbers(&run(&mut session, "SELECT 1")), [0; 0]);
}

#[test]
fn arithmetic_that_fails_is_null_while_both_options_are_off() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut told = |set: &str, what: &str| {
        let told = run(&mut session, &format!("{set} SELECT {what} AS n"));
        (numbers(&told), rows(&told).concat())
    };
    let null = || vec!["NULL".to_owned()];
    for (what, number, notice) in [
        ("1/0", 8134, 3607),
        ("1 % 0", 8134, 3607),
        ("1.5 / 0", 8134, 3607),
        ("CAST(300 AS tinyint)", 220, 3606),
    ] {
        let on = "SET ANSI_WARNINGS ON SET ARITHABORT OFF SET ARITHIGNORE OFF";
        assert_eq!(told(on, what).0, [number], "{what}");
        let aborts = "SET ANSI_WARNINGS OFF SET ARITHABORT ON";
        assert_eq!(told(aborts, what).0, [number], "{what}");
        let off = "SET ANSI_WARNINGS OFF SET ARITHABORT OFF";
        assert_eq!(told(off, what), (vec![notice], null()), "{what}");
        let ignored = "SET ARITHIGNORE ON";
        assert_eq!(told(ignored, what), (vec![], null()), "{what}");
    }
}

#[test]
fn a_longer_text_is_cut_where_nobody_wants_to_be_warned() {
    let stage = Stage::new();
    let mut session = stage.session();
    let insert = "INSERT #t VALUES ('toolong')";
    run(&mut session, "CREATE TABLE #t (v varchar(3))");
    assert_eq!(numbers(&run(&mut session, insert)), [2628, 3621]);
    run(&mut session, "SET ANSI_WARNINGS OFF");
    assert_eq!(numbers(&run(&mut session, insert)), [0; 0]);
    assert_eq!(value(&mut session, "SELECT v FROM #t"), "too");
    run(&mut session, "SET ANSI_WARNINGS ON");
    let update = "UPDATE #t SET v = 'longer'";
    assert_eq!(numbers(&run(&mut session, update)), [2628, 3621]);
}

#[test]
fn double_quotation_marks_enclose_what_the_option_says() {
    let stage = Stage::new();
    let mut session = stage.session();
    let print = "PRINT \"it's\"";
    assert_eq!(numbers(&run(&mut session, print)).len(), 1);
    let off = format!("SET QUOTED_IDENTIFIER OFF\n{print}");
    assert_eq!(said(&run(&mut session, &off)), ["0 it's"]);
    // The next batch begins so, and a procedure keeps what it was made with.
    assert_eq!(said(&run(&mut session, print)), ["0 it's"]);
    run(
        &mut session,
        &format!("CREATE PROCEDURE quoting AS {print}"),
    );
    let on = "SET QUOTED_IDENTIFIER ON EXEC quoting";
    assert_eq!(said(&run(&mut session, on)), ["0 it's"]);
    assert_ne!(said(&run(&mut session, print)), ["0 it's"]);
}

#[test]
fn scripts_find_the_rows_of_the_history_that_they_have_read() {
    let stage = Stage::new();
    let mut session = stage.session();
    let made = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT;
        BACKUP DATABASE shop TO DISK = 'a.bak'";
    let told = run(&mut session, made);
    assert_eq!(numbers(&told).last(), Some(&3014), "{:?}", said(&told));
    for column in ["backup_finish_date", "backup_start_date"] {
        let again = format!(
            "DECLARE @d datetime; SELECT TOP 1 @d = {column} FROM msdb.dbo.backupset ORDER BY backup_set_id DESC;
             SELECT COUNT(*) FROM msdb.dbo.backupset WHERE {column} = @d AND backup_set_id = 2"
        );
        assert_eq!(value(&mut session, &again), "1", "{column}");
    }
    // The places of sets grow, also where the database has no WAL.
    let chain = "SELECT COUNT(*) FROM msdb.dbo.backupset f JOIN msdb.dbo.backupset d ON d.database_backup_lsn = f.checkpoint_lsn
        WHERE f.backup_set_id = 1 AND d.backup_set_id = 2 AND f.first_lsn <= f.last_lsn AND f.last_lsn <= d.first_lsn";
    assert_eq!(value(&mut session, chain), "1");
    let base = "SELECT COUNT(*) FROM sys.master_files m JOIN msdb.dbo.backupset f
        ON m.differential_base_lsn = f.checkpoint_lsn AND m.differential_base_time = f.backup_finish_date
        WHERE m.database_id = DB_ID('shop') AND m.type = 0 AND m.file_id = 1 AND f.backup_set_id = 2";
    assert_eq!(value(&mut session, base), "1");
    let model = "SELECT COUNT(*) FROM msdb.dbo.backupset WHERE recovery_model = 'SIMPLE'";
    assert_eq!(value(&mut session, model), "2");
    let status = "SELECT COUNT(*) FROM sys.database_recovery_status
        WHERE database_id = DB_ID('shop') AND last_log_backup_lsn IS NULL";
    assert_eq!(value(&mut session, status), "1");
}

#[test]
fn a_database_is_as_old_as_its_file_and_not_as_this_server() {
    let stage = Stage::new();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut session = stage.session();
    let older = "SELECT COUNT(*) FROM sys.databases, sys.dm_os_sys_info
        WHERE name = 'shop' AND create_date < sqlserver_start_time";
    assert_eq!(value(&mut session, older), "1");
}
