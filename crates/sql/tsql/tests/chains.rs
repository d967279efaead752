//! Goal: restore chains of a cluster keep their state, refuse what does not continue them, and write the server's
//! settings so that only the original's place archives.
//! Method: sets of a cluster that are made of little; a client that leaves at the last moment.
//! Not covered: real clusters (`sql_chain`).

mod common;
#[path = "sinks/suite.rs"]
mod sink_suite;

use std::path::Path;

use common::{Stage, cluster, numbers, run, said, value};
use longshore_pipeline::SourceSpec;
use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Sink, Value};

/// With a configured cluster `main`, a full set and a log set of it.
fn stage() -> Stage {
    let mut stage = Stage::new();
    // The source is never asked: only its name is configured.
    let nowhere = SourceSpec::Files(vec![stage.path("nowhere")]);
    stage.more.push(("main", nowhere));
    cluster::full(&stage.path("full.bak"));
    cluster::log(&stage.path("log.bak"));
    stage
}

fn settings(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("postgresql.auto.conf")).unwrap()
}

const OFF: &str = "\narchive_mode = 'off'\n";

#[test]
fn only_what_is_proved_to_be_the_originals_place_archives() {
    let stage = stage();
    let here = stage.dir.path().display().to_string();
    let done = |statements: &str| {
        let record = run(&mut stage.session(), &statements.replace("HERE", &here));
        let failed = record.messages().any(|m| m.is_error());
        assert!(!failed, "{statements}: {:?}", said(&record));
        said(&record).join("\n")
    };
    let full = "RESTORE DATABASE main FROM DISK = 'full.bak' WITH REPLACE, MOVE 'main' TO";
    let lines = done(&format!("{full} 'HERE/copy'"));
    assert!(lines.contains("it archives nothing"), "{lines}");
    assert!(settings(&stage.path("copy")).contains(OFF));
    // A copy stays a copy under any name.
    done(&format!("{full} 'HERE/copy'"));
    assert!(settings(&stage.path("copy")).contains(OFF));
    let other = full.replace("DATABASE main", "DATABASE other");
    done(&format!("{other} 'HERE/other'"));
    assert!(settings(&stage.path("other")).contains(OFF));

    // The same after each log set, and after the release.
    let log = "RESTORE LOG main FROM DISK = 'log.bak' WITH RECOVERY";
    let lines = done(&format!("{full} 'HERE/steps', NORECOVERY; {log}"));
    assert!(lines.contains("it archives nothing"), "{lines}");
    let text = settings(&stage.path("steps"));
    assert!(
        text.contains(OFF) && text.contains("longshore_log"),
        "{text}"
    );

    // A cluster of this system that archives is there: it may be a copy, since the sets do not name the place.
    let place = stage.path("original");
    std::fs::create_dir_all(place.join("global")).unwrap();
    std::fs::write(place.join("global/pg_control"), cluster::control()).unwrap();
    std::fs::write(place.join("postgresql.auto.conf"), "work_mem = '8MB'\n").unwrap();
    let lines = done(&format!("{full} 'HERE/original', NORECOVERY; {log}"));
    assert!(lines.contains("it archives nothing"), "{lines}");
    let text = settings(&place);
    assert!(
        text.contains("work_mem = '4MB'") && text.contains(OFF),
        "{text}"
    );
    // Under another name it is another database.
    done(&format!("{other} 'HERE/original'"));
    assert!(settings(&place).contains(OFF));
}

/// A client that disconnects when the restore first reports 100 percent or more.
struct Leaver;

impl Sink for Leaver {
    fn columns(&mut self, _: &[Column]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn row(&mut self, _: &[Value]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        match message.text.starts_with("100 percent") {
            true => Err(ReceiverGone),
            false => Ok(()),
        }
    }

    fn done(&mut self, _: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

#[test]
fn a_client_that_may_leave_keeps_the_contract_of_all_sinks() {
    let taken = sink_suite::keeps_its_contract(&mut Leaver);
    assert_eq!(taken, 2 * sink_suite::legal().len());
}

#[test]
fn a_restore_whose_client_left_at_the_last_moment_must_begin_again() {
    let stage = stage();
    let said_to = |statement: &str| numbers(&run(&mut stage.session(), statement));
    let copy = stage.path("copy").display().to_string();
    let full = format!(
        "RESTORE DATABASE main FROM DISK = 'full.bak' WITH NORECOVERY, MOVE 'main' TO '{copy}'"
    );
    let log = "RESTORE LOG main FROM DISK = 'log.bak' WITH NORECOVERY";
    said_to(&full);
    assert_eq!(said_to(log).last(), Some(&3014));
    let again = "RESTORE DATABASE main FROM DISK = 'full.bak' WITH NORECOVERY, STATS = 100";
    let left = stage.session().run(again, &mut Leaver);
    assert!(left.is_err(), "{left:?}");
    for statement in ["RESTORE DATABASE main WITH RECOVERY", log] {
        assert!(said_to(statement).contains(&4319), "{statement}");
    }

    // From the beginning it succeeds; WAL that was lost meanwhile is not skipped.
    said_to(again);
    assert_eq!(said_to(log).last(), Some(&3014));
    let first = stage.path("copy/longshore_log/00000001/pg_wal");
    let away = stage.path("away");
    std::fs::rename(&first, &away).unwrap();
    let numbers = said_to("RESTORE DATABASE main WITH RECOVERY");
    assert!(numbers.contains(&4333), "{numbers:?}");
    assert!(!stage.path("copy/global/pg_control").exists());
    std::fs::rename(&away, &first).unwrap();
    let numbers = said_to("RESTORE DATABASE main WITH RECOVERY");
    assert_eq!(numbers.last(), Some(&3014));
}

#[test]
fn a_set_that_ends_before_the_moment_waits_for_log_whatever_recovery_says() {
    let stage = stage();
    let copy = stage.path("copy").display().to_string();
    let numbers_of = |statement: &str| numbers(&run(&mut stage.session(), statement));
    let full = format!(
        "RESTORE DATABASE main FROM DISK = 'full.bak' WITH STOPAT = '2026-02-01', MOVE 'main' TO '{copy}'"
    );
    let numbers = numbers_of(&full);
    assert!(numbers.contains(&4322), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&3014));
    assert!(!stage.path("copy/global/pg_control").exists());
    let waits = numbers_of("RESTORE LOG main FROM DISK = 'log.bak' WITH STOPAT = '2026-02-01'");
    assert!(waits.contains(&4322), "{waits:?}");
    let end = numbers_of("RESTORE DATABASE main WITH RECOVERY");
    assert_eq!(end.last(), Some(&3014), "{end:?}");
    assert!(stage.path("copy/global/pg_control").exists());
    let kept = "SELECT COUNT(*) FROM msdb.dbo.restorehistory WHERE recovery = 0";
    assert_eq!(value(&mut stage.session(), kept), "2");
}

/// All names below a directory.
fn names_in(directory: &Path) -> Vec<String> {
    let all = std::fs::read_dir(directory).unwrap();
    all.map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_restore_that_waits_can_be_given_up_and_takes_its_files_along() {
    let stage = stage();
    let copy = stage.path("copy");
    let said_to = |statement: &str| numbers(&run(&mut stage.session(), statement));
    let full = format!(
        "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH NORECOVERY, MOVE 'main' TO '{}'",
        copy.display()
    );
    let states = "SELECT COUNT(*) FROM sys.databases WHERE name = 'copy'";
    assert_eq!(said_to(&full).last(), Some(&3014));
    said_to("RESTORE LOG copy FROM DISK = 'log.bak' WITH NORECOVERY");
    // The batch ends, and drops nothing.
    assert_eq!(said_to("USE copy; DROP DATABASE copy"), [927]);
    assert_eq!(said_to("BEGIN TRAN DROP DATABASE copy"), [226]);
    assert!(names_in(&copy).contains(&"longshore_log".to_owned()));
    assert_eq!(said_to("drop database if exists COPY"), [0; 0]);
    assert_eq!(names_in(&copy), [""; 0]);
    assert_eq!(value(&mut stage.session(), states), "0");
    // Its name and its location are free again.
    assert_eq!(said_to("DROP DATABASE copy"), [3701]);
    assert_eq!(said_to("DROP DATABASE IF EXISTS copy"), [0; 0]);
    assert_eq!(said_to(&full).last(), Some(&3014));

    // An interrupted step may have left the previous content.
    let again = "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH NORECOVERY, STATS = 100";
    assert!(stage.session().run(again, &mut Leaver).is_err());
    let before = names_in(&copy);
    assert_eq!(said_to("DROP DATABASE copy"), [50005]);
    assert_eq!(names_in(&copy), before);
    assert_eq!(value(&mut stage.session(), states), "0");
}

#[test]
fn a_drop_removes_only_files_of_a_waiting_restore() {
    let stage = stage();
    let said_to = |statement: &str| numbers(&run(&mut stage.session(), statement));
    let restore = |name: &str, how: &str| {
        let statement = format!(
            "RESTORE DATABASE {name} FROM DISK = 'full.bak' WITH {how}MOVE 'main' TO '{}'",
            stage.path(name).display()
        );
        assert!(said_to(&statement).contains(&3014));
    };
    // A configured one, a system database, an unknown one: the others are dropped.
    restore("copy", "NORECOVERY, ");
    let all = "DROP DATABASE shop, main, tempdb, nowhere, copy";
    assert_eq!(said_to(all), [3701, 50005, 3701, 50005, 3708, 3701]);
    assert_eq!(names_in(&stage.path("copy")), [""; 0]);
    assert!(stage.path("shop.db").exists());

    // A whole one: a server may run on it.
    restore("ready", "");
    let before = names_in(&stage.path("ready"));
    assert_eq!(said_to("DROP DATABASE ready"), [50005]);
    assert_eq!(names_in(&stage.path("ready")), before);
    assert_eq!(said_to("DROP DATABASE ready"), [3701]);

    // Files that another program put in place of the waiting ones.
    restore("other", "NORECOVERY, ");
    std::fs::rename(stage.path("other"), stage.path("away")).unwrap();
    std::fs::create_dir_all(stage.path("other/global")).unwrap();
    std::fs::write(stage.path("other/global/pg_control"), cluster::control()).unwrap();
    assert_eq!(said_to("DROP DATABASE other"), [50005]);
    assert!(stage.path("other/global/pg_control").exists());
}

#[test]
fn files_that_replaced_a_waiting_restore_are_not_continued() {
    let (stage, other) = (stage(), Stage::new());
    cluster::full_from(&stage.path("later.bak"), 120);
    let said_to = |statement: &str| numbers(&run(&mut stage.session(), statement));
    let place = |name: &str| stage.path(name).display().to_string();
    let full = |name: &str| {
        let to = place(name);
        format!(
            "RESTORE DATABASE {name} FROM DISK = 'full.bak' WITH NORECOVERY, MOVE 'main' TO '{to}'"
        )
    };
    let log = |name: &str| format!("RESTORE LOG {name} FROM DISK = 'log.bak' WITH RECOVERY");
    let end = |name: &str| format!("RESTORE DATABASE {name} WITH RECOVERY");
    // Another held set of the same cluster, and a directory on which a server may run.
    for (name, how, refused) in [("one", "NORECOVERY, ", 3154), ("two", "", 3117)] {
        assert_eq!(said_to(&full(name)).last(), Some(&3014));
        let theirs = format!(
            "RESTORE DATABASE theirs FROM DISK = '{}' WITH {how}REPLACE, MOVE 'main' TO '{}'",
            place("later.bak"),
            place(name)
        );
        let record = run(&mut other.session(), &theirs);
        assert_eq!(numbers(&record).last(), Some(&3014), "{:?}", said(&record));
        let before = names_in(&stage.path(name));
        for statement in [log(name), end(name)] {
            let numbers = said_to(&statement);
            assert!(numbers.contains(&refused), "{statement}: {numbers:?}");
        }
        assert_eq!(said_to(&format!("DROP DATABASE {name}")), [50005]);
        assert_eq!(names_in(&stage.path(name)), before);
    }
    // An untouched directory is released, without any message about it.
    said_to(&full("three"));
    assert!(said_to(&log("three")).contains(&3014));
    let mut left = names_in(&stage.path("three/global"));
    left.sort();
    assert_eq!(left, ["pg_control"]);
}

#[test]
fn a_database_in_the_middle_of_a_restore_cannot_be_used() {
    let stage = stage();
    let place = stage.path("waits").display().to_string();
    let mut session = stage.session();
    let begun = format!(
        "RESTORE DATABASE other FROM DISK = 'full.bak' WITH MOVE 'main' TO '{place}', NORECOVERY"
    );
    run(&mut session, &begun);
    let record = run(&mut session, "USE other");
    assert_eq!(numbers(&record), [927], "{:?}", said(&record));
    assert_eq!(value(&mut session, "SELECT DB_NAME()"), "master");
}
