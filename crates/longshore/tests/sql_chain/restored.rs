//! What comes back.

use longshore_test_servers::{Server, Stop, installations, representatives};

use crate::judge::{check, dump, same};
use crate::stage::{Stage, markers};

#[test]
fn a_full_a_differential_and_log_sets_come_back_to_a_moment() {
    for installation in &representatives() {
        let stage = Stage::new(installation);
        let [before_4, before_5] = stage.history();
        // Everything is in the archive's own segments, too: what is restored must come from the sets.
        std::fs::rename(stage.path("wal"), stage.path("wal-away")).unwrap();

        stage.done(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/a', NORECOVERY",
        );
        let half = Server::adopt(stage.server.installation(), &stage.path("a"));
        assert!(half.try_start().is_err(), "a half restored server started");
        let state = "SELECT state_desc FROM sys.databases WHERE name = 'copy'";
        assert!(stage.done(state).contains("RESTORING"));
        stage.done("RESTORE DATABASE copy FROM DISK = 'diff.bak' WITH NORECOVERY");
        let said = stage.done(&format!(
            "RESTORE LOG copy FROM DISK = 'logs.bak' WITH FILE = 1, STOPAT = '{before_4}', RECOVERY"
        ));
        assert!(
            said.contains("RESTORE LOG successfully processed"),
            "{said}"
        );
        assert!(stage.done(state).contains("ONLINE"));
        let server = stage.recovered("a");
        assert_eq!(markers(&server), "1 2 3", "{}", installation.major);
        assert!(!stage.path("a/longshore_log").exists());
        server.psql("insert into marker values (100)");
        check(&server, &stage.path("a"));

        // Every log set, to the end of them: what was committed behind the last is not there.
        stage.done(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/b', NORECOVERY",
        );
        for (device, file) in [("log1.bak", 1), ("logs.bak", 1), ("logs.bak", 2)] {
            stage.done(&format!(
                "RESTORE LOG copy FROM DISK = '{device}' WITH FILE = {file}, NORECOVERY"
            ));
        }
        stage.done("RESTORE DATABASE copy WITH RECOVERY");
        let server = stage.recovered("b");
        assert_eq!(markers(&server), "1 2 3 4 5");
        stage.server.psql("delete from marker where i = 6");
        same(&dump(&server), &dump(&stage.server));

        // A set that ends before the moment leaves the database as it was; the next one has it.
        stage.done("RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/c', NORECOVERY, REPLACE");
        let stop = format!("STOPAT = '{before_5}'");
        let said = stage.done(&format!(
            "RESTORE LOG copy FROM DISK = 'log1.bak' WITH RECOVERY, {stop}"
        ));
        assert!(
            said.contains("before the designated point in time"),
            "{said}"
        );
        assert!(stage.done(state).contains("RESTORING"));
        stage.done(&format!(
            "RESTORE LOG copy FROM DISK = 'logs.bak' WITH RECOVERY, {stop}"
        ));
        stage.done(&format!(
            "RESTORE LOG copy FROM DISK = 'logs.bak' WITH FILE = 2, RECOVERY, {stop}"
        ));
        assert_eq!(markers(&stage.recovered("c")), "1 2 3 4");
    }
}

/// A copy was opened where the log sets ended, and took the original's place; the original had gone on for a while.
#[test]
fn log_goes_on_over_a_change_of_timeline_and_only_on_its_own_way() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.history();
    let full = |name: &str| {
        stage.done(&format!(
            "RESTORE DATABASE {name} FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/{name}', NORECOVERY;
             RESTORE LOG {name} FROM DISK = 'log1.bak' WITH NORECOVERY;
             RESTORE LOG {name} FROM DISK = 'logs.bak' WITH NORECOVERY;
             RESTORE LOG {name} FROM DISK = 'logs.bak' WITH FILE = 2, NORECOVERY"
        ));
    };
    for name in ["copy", "same", "other"] {
        full(name);
    }
    stage.done("BACKUP LOG main TO DISK = 'log6.bak'; RESTORE LOG other FROM DISK = 'log6.bak' WITH NORECOVERY");
    stage.server.stop(Stop::Fast);
    stage.done("RESTORE DATABASE copy WITH RECOVERY");
    // It takes the original's place, in the archive, too.
    let conf = stage.path("copy/postgresql.auto.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let off = "archive_mode = 'off'\n";
    assert!(text.contains(off), "{text}");
    std::fs::write(&conf, text.replace(off, "")).unwrap();
    let copy = stage.recovered("copy");
    copy.psql("insert into marker values (7)");
    stage.configure(&copy);
    stage.done("BACKUP LOG main TO DISK = 'log7.bak'");
    copy.psql("insert into marker values (8)");
    stage.done("BACKUP LOG main TO DISK = 'log8.bak'");

    // Of the original's way, which was left.
    let next = |name: &str, device: &str| {
        format!("RESTORE LOG {name} FROM DISK = '{device}' WITH NORECOVERY")
    };
    let (number, said) = stage.refused(&next("other", "log8.bak"));
    assert_eq!(number, 4330, "{said}");
    stage.done("RESTORE DATABASE other WITH RECOVERY");
    stage.done(&next("same", "log7.bak"));
    stage.done("RESTORE LOG same FROM DISK = 'log8.bak' WITH RECOVERY");
    copy.stop(Stop::Fast);
    std::fs::rename(stage.path("wal"), stage.path("wal-away")).unwrap();
    let other = stage.recovered("other");
    assert_eq!(markers(&other), "1 2 3 4 5 6");
    other.stop(Stop::Fast);
    assert_eq!(markers(&stage.recovered("same")), "1 2 3 4 5 7 8");
}

/// SQL Server's log chain begins with the first full backup, and goes on through every other.
#[test]
fn the_first_log_backup_after_several_full_ones_leads_on_from_each() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    for (i, device) in [(1, "full1.bak"), (2, "full2.bak"), (3, "full3.bak")] {
        stage.done(&format!("BACKUP DATABASE main TO DISK = '{device}'"));
        stage.mark(i);
    }
    stage.done("BACKUP LOG main TO DISK = 'log1.bak'");
    stage.mark(4);
    stage.done("BACKUP DATABASE main TO DISK = 'full4.bak'");
    stage.mark(5);
    stage.done("BACKUP LOG main TO DISK = 'log2.bak'");
    stage.mark(6);
    std::fs::rename(stage.path("wal"), stage.path("wal-away")).unwrap();
    for (full, logs) in [
        ("full1", &["log1", "log2"][..]),
        ("full2", &["log1", "log2"]),
        ("full3", &["log1", "log2"]),
        ("full4", &["log2"]),
    ] {
        stage.done(&format!(
            "RESTORE DATABASE {full} FROM DISK = '{full}.bak' WITH MOVE 'main' TO 'HERE/{full}', NORECOVERY"
        ));
        for log in logs {
            stage.done(&format!(
                "RESTORE LOG {full} FROM DISK = '{log}.bak' WITH NORECOVERY"
            ));
        }
        stage.done(&format!("RESTORE DATABASE {full} WITH RECOVERY"));
        let server = stage.recovered(full);
        assert_eq!(markers(&server), "1 2 3 4 5", "from {full}");
        server.stop(Stop::Fast);
    }
}

#[test]
fn what_log_sets_say_of_themselves() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.history();
    let said = stage.done(
        "RESTORE HEADERONLY FROM DISK = 'logs.bak';
         RESTORE VERIFYONLY FROM DISK = 'logs.bak' WITH FILE = 2;
         SELECT type, recovery_model, first_lsn, last_lsn FROM msdb.dbo.backupset ORDER BY backup_set_id;
         SELECT recovery_model_desc FROM sys.databases WHERE name = 'main'",
    );
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split('|').collect())
        .filter(|cells: &Vec<&str>| cells.len() > 3)
        .collect();
    let headers: Vec<_> = rows.iter().filter(|cells| cells.len() == 59).collect();
    assert_eq!(headers.len(), 2, "{said}");
    for header in &headers {
        assert_eq!((header[2], header[46]), ("2", "FULL"), "{said}");
        assert_eq!(header[49], "Transaction Log");
    }
    // One ends where the next begins.
    assert_eq!(headers[0][14], headers[1][13]);
    let history: Vec<_> = rows.iter().filter(|cells| cells.len() == 4).collect();
    let kinds: Vec<_> = history.iter().map(|cells| cells[0]).collect();
    assert_eq!(kinds, ["D", "L", "I", "L", "L"]);
    let logs: Vec<_> = history.iter().filter(|cells| cells[0] == "L").collect();
    assert!(
        logs.windows(2).all(|pair| pair[0][3] == pair[1][2]),
        "{said}"
    );
    assert!(
        said.contains("The backup set on file 2 is valid."),
        "{said}"
    );
    assert!(said.lines().any(|line| line == "FULL"), "{said}");

    let list = crate::common::longshore(["list", "--files"])
        .arg(stage.path("logs.bak"))
        .output()
        .unwrap();
    let list = crate::common::text(&list.stdout);
    assert!(list.contains("pg_wal/00000001"), "{list}");
    let verified = crate::common::longshore(["verify"])
        .arg(stage.path("logs.bak"))
        .output()
        .unwrap();
    assert!(verified.status.success());
}

#[test]
fn devices_and_restored_databases_outlive_the_program() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.done("EXEC sp_addumpdevice 'disk', 'nightly', 'HERE/nightly.bak'");
    stage.done("BACKUP DATABASE main TO nightly");
    assert!(stage.path("nightly.bak").exists());
    let (number, said) = stage.refused("EXEC sp_addumpdevice 'disk', 'NIGHTLY', 'HERE/other.bak'");
    assert_eq!(number, 15026, "{said}");
    stage.done("RESTORE DATABASE copy FROM nightly WITH MOVE 'main' TO 'HERE/copy'");
    let names = stage.done("SELECT name FROM sys.databases");
    assert!(names.lines().any(|line| line == "copy"), "{names}");
    // Its own place, known by name; not another's.
    stage.done("RESTORE DATABASE copy FROM nightly");
    stage.done("EXEC sp_dropdevice 'Nightly'");
    assert_eq!(stage.refused("BACKUP DATABASE main TO nightly").0, 3206);
}
