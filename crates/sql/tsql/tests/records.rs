//! Goal: the history, the error log and the answers tell what media and trees really have.
//! Method: sets whose headers are damaged, copies of media, trees that differ from their sets; what is recorded is read
//! back with statements.
//! Not covered: histories of real clusters (`sql_chain`).

mod common;

use std::fs;

use common::{Stage, cluster, numbers, rows, run, said, value};
use longshore_pipeline::SourceSpec;

fn done(session: &mut longshore_tsql::Session, batch: &str) -> String {
    let record = run(session, batch);
    let lines = said(&record).join("\n");
    assert!(!record.messages().any(|m| m.is_error()), "{batch}: {lines}");
    lines
}

/// Two sets of which the second must be kept, and its header is damaged.
fn damaged_second(stage: &Stage) -> Vec<u8> {
    let mut session = stage.session();
    let device = stage.path("a.bak");
    done(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NAME = 'first'",
    );
    let begin = fs::read(&device).unwrap().len();
    done(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NAME = 'second', EXPIREDATE = '2099-12-31'",
    );
    let mut bytes = fs::read(&device).unwrap();
    bytes[begin + 60..begin + 68]
        .iter_mut()
        .for_each(|byte| *byte ^= 0xff);
    fs::write(&device, &bytes).unwrap();
    bytes
}

#[test]
fn a_set_with_a_damaged_header_is_shown_and_protects_the_media() {
    let stage = Stage::new();
    let bytes = damaged_second(&stage);
    let mut session = stage.session();
    let list = "RESTORE HEADERONLY FROM DISK = 'a.bak'";
    let shown = |text: &str, session: &mut longshore_tsql::Session| -> Vec<(String, String)> {
        let record = run(session, text);
        let rows = rows(&record).into_iter();
        rows.map(|row| (row[0].clone(), row[5].clone())).collect()
    };
    let pair = |name: &str, position: &str| (name.to_owned(), position.to_owned());
    let second = pair("*** DAMAGED ***", "2");
    assert_eq!(
        shown(list, &mut session),
        [pair("first", "1"), second.clone()]
    );
    let only = format!("{list} WITH FILE = 2");
    assert_eq!(shown(&only, &mut session), [second]);

    let over = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT";
    let refused = run(&mut session, over);
    assert_eq!(numbers(&refused)[0], 4030, "{:?}", said(&refused));
    assert_eq!(numbers(&refused).last(), Some(&3013));
    assert!(said(&refused).join("\n").contains("WITH SKIP"));
    assert_eq!(fs::read(stage.path("a.bak")).unwrap(), bytes);
    done(&mut session, &format!("{over}, SKIP"));
    assert_eq!(shown(list, &mut session).len(), 1);
}

/// Goal: the history goes on naming the original's place, as long as it is there.
#[test]
fn a_look_at_a_copy_does_not_move_the_record_of_the_original() {
    let stage = Stage::new();
    let mut session = stage.session();
    done(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    fs::copy(stage.path("a.bak"), stage.path("usb.bak")).unwrap();
    let places = "SELECT physical_device_name FROM msdb.dbo.backupmediafamily";
    let place = |name: &str| stage.path(name).display().to_string();
    let looks = [
        "RESTORE VERIFYONLY FROM DISK = 'usb.bak' WITH LOADHISTORY",
        "RESTORE DATABASE copy FROM DISK = 'usb.bak' WITH MOVE 'shop.db' TO 'copy.db'",
    ];
    for look in looks {
        done(&mut session, look);
        assert_eq!(value(&mut session, places), place("a.bak"), "{look}");
    }
    // Other media may be there by now.
    done(&mut session, "BACKUP DATABASE shop TO DISK = 'b.bak'");
    fs::rename(stage.path("b.bak"), stage.path("a.bak")).unwrap();
    done(&mut session, looks[0]);
    let first = format!("{places} WHERE media_set_id = 1");
    assert_eq!(value(&mut session, &first), place("usb.bak"));
}

#[test]
fn the_history_tells_who_asked_for_what() {
    let stage = Stage::new();
    let mut session = stage.session();
    for _ in 0..2 {
        done(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    }
    let restore = "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH FILE = 2";
    for (with, replace) in [("", "0"), (", REPLACE", "1")] {
        done(&mut session, &format!("{restore}{with}"));
        let newest = "SELECT TOP 1 user_name, [replace] FROM msdb.dbo.restorehistory ORDER BY restore_history_id DESC";
        assert_eq!(value(&mut session, newest), format!("ada|{replace}"));
    }
    let who = "SELECT DISTINCT user_name FROM msdb.dbo.backupset";
    assert_eq!(value(&mut session, who), "ada");
    let log = run(&mut session, "EXEC sp_readerrorlog 0, 1, 'a.bak'");
    let entries = rows(&log).concat().join("\n");
    assert!(entries.contains("(FILE=1, TYPE=DISK"), "{entries}");
    assert!(entries.contains("(FILE=2, TYPE=DISK"), "{entries}");

    cluster::log(&stage.path("log.bak"));
    done(
        &mut session,
        "RESTORE VERIFYONLY FROM DISK = 'log.bak' WITH LOADHISTORY",
    );
    let kind = "SELECT DISTINCT f.file_type FROM msdb.dbo.backupfile f \
        JOIN msdb.dbo.backupset s ON s.backup_set_id = f.backup_set_id WHERE s.type = 'L'";
    assert_eq!(value(&mut session, kind), "L");
}

/// Goal: a variable that nobody set does not become a date on which the set may go.
#[test]
fn a_date_that_was_never_set_is_none() {
    let stage = Stage::new();
    let mut session = stage.session();
    for batch in [
        "DECLARE @keep datetime; BACKUP DATABASE shop TO DISK = 'a.bak' WITH EXPIREDATE = @keep",
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH EXPIREDATE = ''",
    ] {
        let refused = run(&mut session, batch);
        assert_eq!(numbers(&refused)[0], 3217, "{batch}: {:?}", said(&refused));
        assert!(!stage.path("a.bak").exists());
    }
}

/// Goal: what a tree loses or keeps against expectation is in the answer, not only in a log.
#[test]
fn answers_tell_the_warnings_of_a_run_and_names_that_a_restore_adds_or_leaves() {
    let mut stage = Stage::new();
    let docs = stage.path("docs");
    fs::create_dir_all(docs.join("sub")).unwrap();
    fs::write(docs.join("sub/note"), "old").unwrap();
    fs::write(docs.join("app.db-wal"), "pages").unwrap();
    stage.more = vec![("docs", SourceSpec::Files(vec![docs.clone()]))];
    let mut session = stage.session();
    let lines = done(&mut session, "BACKUP DATABASE docs TO DISK = 'a.bak'");
    assert!(
        lines.contains("SQLite logs show databases in use"),
        "{lines}"
    );
    fs::write(docs.join("top"), "new").unwrap();
    fs::write(docs.join("sub/nested"), "new").unwrap();
    let lines = done(&mut session, "RESTORE DATABASE docs FROM DISK = 'a.bak'");
    let told = |what: &str, path: &str| {
        let line = lines.lines().find(|line| line.contains(what));
        assert!(
            line.is_some_and(|line| line.contains(path)),
            "{what}: {lines}"
        );
    };
    told("went with what was replaced", "docs/sub/nested");
    told("that the set does not have stay", "docs/top");
    assert!(docs.join("top").exists() && !docs.join("sub/nested").exists());
}
