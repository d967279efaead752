//! Goal: a chain of a full, a differential and log sets that statements made and restored returns the right rows.
//! Method: T-SQL statements over real PostgreSQL servers; rows of the restored server are read.

use longshore_kit::{Server, Stop, installations, representatives};

use crate::common::store::Store;
use crate::stage::{Stage, markers};
use longshore_kit::postgres::judge::{check, dump, same};

#[test]
fn a_full_a_differential_and_log_sets_come_back_to_a_moment() {
    for installation in &representatives() {
        let stage = Stage::new(installation);
        let [before_4, before_5] = stage.history();
        // The archive's own segments also have everything: the restored data must come from the sets.
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

        // Every log set, to the end: rows committed after the last one are missing. The names are those of the list.
        let list = stage.done("RESTORE FILELISTONLY FROM DISK = 'full.bak'");
        let files: Vec<&str> = list.lines().filter(|l| l.starts_with("main")).collect();
        let place = stage.path("main").display().to_string();
        assert!(files[0].starts_with(&format!("main|{place}|D|")), "{list}");
        let log = format!("main_log|{place}/pg_wal|L|");
        assert!(files[1].starts_with(&log), "{list}");
        assert_eq!(files.len(), 2, "{list}");
        stage.done(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' \
             WITH MOVE 'main' TO 'HERE/b', MOVE 'main_log' TO 'HERE/b_log', NORECOVERY",
        );
        for (device, file) in [("log1.bak", 1), ("logs.bak", 1), ("logs.bak", 2)] {
            stage.done(&format!(
                "RESTORE LOG copy FROM DISK = '{device}' WITH FILE = {file}, NORECOVERY, \
                 MOVE 'main' TO 'HERE/b', MOVE 'main_log' TO 'HERE/b_log'"
            ));
        }
        stage.done("RESTORE DATABASE copy WITH RECOVERY");
        let server = stage.recovered("b");
        assert_eq!(markers(&server), "1 2 3 4 5");
        stage.server.psql("delete from marker where i = 6");
        same(&dump(&server), &dump(&stage.server));

        // A set that ends before the moment leaves the database unrecovered; the next one contains it.
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

/// Goal: a full and log sets that statements encrypted for a certificate come back on a server that has it.
#[test]
fn a_chain_for_a_certificate_comes_back_to_a_moment() {
    for installation in &representatives() {
        let stage = Stage::new(installation);
        stage.done("CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'a password'");
        stage.done("CREATE CERTIFICATE c WITH SUBJECT = 's'");
        let with = "WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)";
        stage.mark(1);
        stage.done(&format!("BACKUP DATABASE main TO DISK = 'full.bak' {with}"));
        stage.mark(2);
        stage.done(&format!(
            "BACKUP DATABASE main TO DISK = 'diff.bak' {with}, DIFFERENTIAL"
        ));
        stage.mark(3);
        let before_4 = stage.now();
        stage.mark(4);
        stage.done(&format!("BACKUP LOG main TO DISK = 'log.bak' {with}"));
        let kinds = "SELECT COUNT(*) FROM msdb.dbo.backupset WHERE encryptor_type = 'CERTIFICATE'";
        assert_eq!(stage.done(kinds).lines().next().unwrap().trim(), "3");
        std::fs::rename(stage.path("wal"), stage.path("wal-away")).unwrap();
        stage.done(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/a', NORECOVERY",
        );
        stage.done("RESTORE DATABASE copy FROM DISK = 'diff.bak' WITH NORECOVERY");
        stage.done(&format!(
            "RESTORE LOG copy FROM DISK = 'log.bak' WITH STOPAT = '{before_4}', RECOVERY"
        ));
        let server = stage.recovered("a");
        assert_eq!(markers(&server), "1 2 3", "{}", installation.major);
        check(&server, &stage.path("a"));
        stage.done("DROP CERTIFICATE c");
        let (number, said) = stage.refused("RESTORE VERIFYONLY FROM DISK = 'log.bak'");
        assert_eq!(number, 33111, "{said}");
    }
}

/// Goal: a chain whose sets are all objects comes back to a moment, and its history is that of sets in files.
#[test]
fn a_chain_of_objects_comes_back_to_a_moment() {
    let Some(store) = Store::new() else { return };
    for installation in &representatives() {
        let mut stage = Stage::new(installation);
        stage.environment = store.settings();
        let url = |name: &str| format!("URL = 's3://nightly/{}/{name}'", installation.major);
        stage.mark(1);
        stage.done(&format!("BACKUP DATABASE main TO {}", url("full.bak")));
        stage.mark(2);
        stage.done(&format!("BACKUP LOG main TO {}", url("log1.bak")));
        stage.mark(3);
        let before_4 = stage.now();
        stage.mark(4);
        let two = [url("log2a.bak"), url("log2b.bak")].join(", ");
        stage.done(&format!("BACKUP LOG main TO {two}"));
        let count = |what: &str| -> u32 {
            let said = stage.done(&format!("SELECT COUNT(*) FROM msdb.dbo.{what}"));
            said.lines().next().unwrap().trim().parse().unwrap()
        };
        assert_eq!(count("backupmediafamily WHERE media_family_id IS NULL"), 0);
        assert!(count("backupfile") > 0);
        std::fs::rename(stage.path("wal"), stage.path("wal-away")).unwrap();

        let full = url("full.bak");
        let to = "WITH MOVE 'main' TO 'HERE/a', NORECOVERY";
        stage.done(&format!("RESTORE DATABASE copy FROM {full} {to}"));
        // The second log set does not lead on from the full one.
        let (number, said) = stage.refused(&format!("RESTORE LOG copy FROM {two}"));
        assert_eq!(number, 4305, "{said}");
        let log1 = url("log1.bak");
        stage.done(&format!("RESTORE LOG copy FROM {log1} WITH NORECOVERY"));
        let stop = format!("WITH RECOVERY, STOPAT = '{before_4}'");
        stage.done(&format!("RESTORE LOG copy FROM {two} {stop}"));
        let server = stage.recovered("a");
        assert_eq!(markers(&server), "1 2 3", "{}", installation.major);
        check(&server, &stage.path("a"));
    }
}

/// A copy was opened where the log sets ended, and replaced the original, which had continued for a while.
#[test]
fn log_sets_continue_over_a_change_of_timeline_and_only_on_their_own_history() {
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
    // The copy replaces the original, in the archive too.
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

    // A set of the original's abandoned branch.
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

/// Goal: the WAL of a copy that stayed on its origin's timeline is refused, although its numbers fit.
#[test]
fn log_of_a_copied_directory_does_not_lead_on_from_its_origin() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.server.stop(Stop::Fast);
    stage.copied("copy");
    stage.server.start();
    stage.mark(1);
    stage.done("BACKUP DATABASE main TO DISK = 'full.bak'");
    let full = "RESTORE DATABASE r FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/r', NORECOVERY";
    stage.done(full);
    stage.server.stop(Stop::Fast);

    // The copy has an archive of its own.
    std::fs::rename(stage.path("wal"), stage.path("wal-of-origin")).unwrap();
    stage.archive("wal");
    let copy = stage.recovered("copy");
    stage.configure(&copy);
    copy.psql("insert into marker values (2)");
    stage.done("BACKUP DATABASE main TO DISK = 'of-copy.bak'");
    copy.psql("insert into marker values (3)");
    stage.done("BACKUP LOG main TO DISK = 'log-of-copy.bak'");
    let (number, said) =
        stage.refused("RESTORE LOG r FROM DISK = 'log-of-copy.bak' WITH NORECOVERY");
    assert_eq!(number, 4330, "{said}");
    stage.done("RESTORE DATABASE r WITH RECOVERY");
    copy.stop(Stop::Fast);
    assert_eq!(markers(&stage.recovered("r")), "1");
}

/// Goal: of two copies of one data directory that do equal work, so that all their LSNs agree, no log set of one is
/// restored on top of the other's: neither on its full backup nor on its log.
#[test]
fn log_sets_of_copies_that_do_equal_work_are_not_mixed() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.server.stop(Stop::Fast);
    let data = stage.copied("twin-data");
    let archive = stage.archive("wal-twin");
    let twin = Server::adopt(stage.server.installation(), &data);
    let conf = format!(
        "archive_command = '{} wal push %p --archive {}'",
        crate::common::BINARY,
        archive.display()
    );
    twin.append_conf(&conf);
    let table = |name: &str, server: &Server, wal: &str| {
        let wal = stage.path(wal);
        let (url, wal) = (server.url(), wal.display());
        format!("[database.{name}]\nurl = \"{url}\"\n[database.{name}.wal]\narchive = \"{wal}\"\n")
    };
    let config = table("main", &stage.server, "wal") + &table("twin", &twin, "wal-twin");
    std::fs::write(stage.path("longshore.toml"), config).unwrap();
    for (name, server, first) in [("main", &stage.server, 10), ("twin", &twin, 20)] {
        server.start();
        stage.done(&format!("BACKUP DATABASE {name} TO DISK = '{name}.full'"));
        for i in 1..=3 {
            server.psql(&format!("insert into marker values ({})", first + i));
            stage.done(&format!("BACKUP LOG {name} TO DISK = '{name}.log{i}'"));
        }
        server.stop(Stop::Fast);
    }
    let places = |name: &str| {
        let log = format!("RESTORE HEADERONLY FROM DISK = '{name}.log2'");
        let row = stage.done(&log);
        let is_place = |cell: &&str| cell.len() >= 15 && cell.bytes().all(|b| b.is_ascii_digit());
        let cells = row.split('|').map(str::trim).filter(is_place);
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(places("main"), places("twin"), "nothing is shown");
    // Nor does the twin's WAL continue the other's sets, if the history takes them for its own.
    std::fs::write(
        stage.path("longshore.toml"),
        table("main", &twin, "wal-twin"),
    )
    .unwrap();
    twin.start();
    twin.psql("insert into marker values (24)");
    let (_, said) = stage.refused("BACKUP LOG main TO DISK = 'wrong.bak'");
    assert!(!stage.path("wrong.bak").exists(), "{said}");
    twin.stop(Stop::Fast);
    // Nor does the command line accept the twin's archive as the WAL of the set.
    let mut restore = stage.command(&["restore", "main.full", "--to", "mixed", "--wal-archive"]);
    let output = restore.arg(&archive).output().unwrap();
    let said = crate::common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("WAL of another branch"), "{said}");
    assert!(!stage.path("mixed").exists());
    stage.done(
        "RESTORE DATABASE r FROM DISK = 'main.full' WITH MOVE 'main' TO 'HERE/r', NORECOVERY",
    );
    let next = |device: &str| format!("RESTORE LOG r FROM DISK = '{device}' WITH NORECOVERY");
    let (number, said) = stage.refused(&next("twin.log1"));
    assert_eq!(number, 4330, "{said}");
    stage.done(&next("main.log1"));
    let (number, said) = stage.refused(&next("twin.log2"));
    assert_eq!(number, 4330, "{said}");
    stage.done(&next("main.log2"));
    let (number, said) = stage.refused(&next("twin.log3"));
    assert_eq!(number, 4330, "{said}");
    stage.done(&next("main.log3"));
    stage.done("RESTORE DATABASE r WITH RECOVERY");
    assert!(!stage.path("r/longshore_lineage").exists());
    assert_eq!(markers(&stage.recovered("r")), "11 12 13");
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
fn log_sets_describe_themselves() {
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

    // Maintenance solutions back up logs and differences only where these are known.
    let known = stage.done(
        "SELECT COUNT(*) FROM sys.database_recovery_status
         WHERE database_id = DB_ID('main') AND last_log_backup_lsn = (SELECT MAX(last_lsn) FROM msdb.dbo.backupset WHERE type = 'L');
         SELECT COUNT(*) FROM sys.master_files AS f JOIN msdb.dbo.backupset AS s ON s.checkpoint_lsn = f.differential_base_lsn
         WHERE f.database_id = DB_ID('main') AND f.type = 0 AND f.file_id = 1 AND s.type = 'D'",
    );
    let counts = known.lines().filter(|line| *line == "1").count();
    assert_eq!(counts, 2, "{known}");

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

/// Goal: if it is replaced, only the configured server's own directory continues to archive: not a clone of it, and
/// not the one that the server has left.
#[test]
fn a_clone_that_is_replaced_archives_nothing() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.done("BACKUP DATABASE main TO DISK = 'full.bak'");
    stage.server.stop(Stop::Fast);
    let (own, clone) = (stage.server.data_dir().to_owned(), stage.path("clone"));
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&own, &clone])
        .status();
    assert!(copied.unwrap().success());
    let restored = |to: &std::path::Path, recovery: &str| {
        let to = to.display();
        let said = stage.done(&format!(
            "RESTORE DATABASE main FROM DISK = 'full.bak' WITH MOVE 'main' TO '{to}', REPLACE{recovery}"
        ));
        let conf = std::fs::read_to_string(format!("{to}/postgresql.auto.conf")).unwrap();
        (said, conf.contains("archive_mode = 'off'"))
    };
    // The server is down, and its directory is distinguished from a copy of it.
    let (said, is_off) = restored(&clone, "");
    assert!(is_off && said.contains("it archives nothing"), "{said}");
    let (said, is_off) = restored(&own, "");
    assert!(!is_off && !said.contains("it archives nothing"), "{said}");
    let (_, is_off) = restored(&own, ", NORECOVERY");
    assert!(!is_off);
    let said = stage.done("RESTORE DATABASE main WITH RECOVERY");
    assert!(!said.contains("it archives nothing"), "{said}");

    // The configured server answers, so it runs elsewhere.
    let moved = Server::adopt(stage.server.installation(), &clone);
    moved.start();
    stage.configure(&moved);
    let (said, is_off) = restored(&own, "");
    assert!(is_off && said.contains("it archives nothing"), "{said}");
}

/// Goal: after a server has moved, an older set's record of its location is not trusted.
#[test]
fn the_directory_that_a_server_has_left_archives_nothing() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.done("BACKUP DATABASE main TO DISK = 'full.bak'");
    stage.server.stop(Stop::Fast);
    let own = stage.server.data_dir().to_owned();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&own, &stage.path("moved")])
        .status();
    assert!(copied.unwrap().success());
    let moved = Server::adopt(stage.server.installation(), &stage.path("moved"));
    moved.start();
    stage.configure(&moved);
    stage.done("BACKUP DATABASE main TO DISK = 'moved.bak'");
    moved.stop(Stop::Fast);
    let said = stage.done(&format!(
        "RESTORE DATABASE main FROM DISK = 'full.bak' WITH MOVE 'main' TO '{}', REPLACE",
        own.display()
    ));
    assert!(said.contains("it archives nothing"), "{said}");
}
