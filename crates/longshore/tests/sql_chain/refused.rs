//! Goal: refused statements of a chain have SQL Server's numbers, and change nothing.
//! Method: `longshore sql` on real servers; after the refusals the restore that they concerned is completed.
//! Not covered: SQL Server itself is not asked for its numbers.

use longshore_kit::{Server, Stop, installations, representatives};

use crate::stage::{Stage, markers};

#[test]
fn links_that_are_missing_are_named_with_their_places() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    assert_eq!(stage.refused("BACKUP LOG main TO DISK = 'x.bak'").0, 4214);
    assert!(!stage.path("x.bak").exists());
    let [before_4, _] = stage.history();
    let number = |statement: &str| stage.refused(statement).0;

    assert_eq!(number("RESTORE LOG copy FROM DISK = 'log1.bak'"), 3118);
    assert_eq!(number("RESTORE DATABASE copy FROM DISK = 'diff.bak'"), 3118);
    assert_eq!(number("RESTORE LOG main FROM DISK = 'log1.bak'"), 3117);
    assert_eq!(number("RESTORE DATABASE copy WITH RECOVERY"), 3118);
    assert_eq!(number("RESTORE DATABASE main WITH RECOVERY"), 3153);
    assert_eq!(number("RESTORE DATABASE copy FROM DISK = 'log1.bak'"), 3135);
    let full =
        "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/a', NORECOVERY";
    let early = format!("{full}, STOPAT = '2001-01-01'");
    assert_eq!(number(&early), 4338);
    assert!(!stage.path("a").exists());
    stage.done(full);
    assert_eq!(number("RESTORE LOG copy FROM DISK = 'full.bak'"), 3135);
    assert_eq!(number("BACKUP DATABASE copy TO DISK = 'x.bak'"), 927);

    let lsn_of = |device: &str, column: usize| -> String {
        let said = stage.done(&format!("RESTORE HEADERONLY FROM DISK = '{device}'"));
        let row = said.lines().find(|line| line.split('|').count() == 59);
        row.unwrap().split('|').nth(column).unwrap().to_owned()
    };
    let (first, last) = (13, 14);
    let (number_, said) = stage.refused("RESTORE LOG copy FROM DISK = 'logs.bak' WITH NORECOVERY");
    assert_eq!(number_, 4305, "{said}");
    assert!(
        said.contains(&format!("begins at LSN {},", lsn_of("logs.bak", first))),
        "{said}"
    );
    assert!(
        said.contains(&format!("includes LSN {} ", lsn_of("full.bak", last))),
        "{said}"
    );
    stage.done("RESTORE LOG copy FROM DISK = 'log1.bak' WITH NORECOVERY");
    let (number_, said) = stage.refused("RESTORE LOG copy FROM DISK = 'log1.bak' WITH NORECOVERY");
    assert_eq!(number_, 4326, "{said}");
    assert!(
        said.contains(&format!("at LSN {},", lsn_of("log1.bak", last))),
        "{said}"
    );
    assert_eq!(
        number("RESTORE DATABASE copy FROM DISK = 'diff.bak' WITH NORECOVERY"),
        3136
    );
    assert_eq!(
        number("RESTORE LOG copy FROM DISK = 'logs.bak' WITH STOPAT = '2001-01-01'"),
        4335
    );
    assert_eq!(
        number("RESTORE LOG copy FROM DISK = 'logs.bak' WITH MOVE 'main' TO 'HERE/elsewhere'"),
        3156
    );
    assert_eq!(
        number("RESTORE DATABASE copy WITH RECOVERY, STOPAT = '2001-01-01'"),
        3032
    );
    assert_eq!(
        number("RESTORE LOG copy FROM DISK = 'logs.bak' WITH STANDBY = 'undo'"),
        3032
    );
    assert_eq!(
        number("RESTORE LOG copy FROM DISK = 'logs.bak' WITH STOPATMARK = 'm'"),
        3032
    );

    // None of it did harm.
    stage.done(&format!(
        "RESTORE LOG copy FROM DISK = 'logs.bak' WITH STOPAT = '{before_4}'"
    ));
    assert_eq!(markers(&stage.recovered("a")), "1 2 3");
}

#[test]
fn an_interrupted_step_and_another_cluster_are_not_built_upon() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.history();
    let full =
        "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/a', NORECOVERY";
    stage.done(full);
    // The state left by a program that was killed in the middle of the step.
    let catalog = rusqlite::Connection::open(stage.path("state/catalog.db")).unwrap();
    catalog
        .execute("UPDATE restoresequence SET is_ready = 0", [])
        .unwrap();
    let log = "RESTORE LOG copy FROM DISK = 'log1.bak' WITH NORECOVERY";
    assert_eq!(stage.refused(log).0, 4319);
    assert_eq!(stage.refused("RESTORE DATABASE copy WITH RECOVERY").0, 4319);
    // From the beginning, without MOVE and REPLACE: it is the database's own place.
    stage.done("RESTORE DATABASE copy FROM DISK = 'full.bak' WITH NORECOVERY");
    stage.done(log);

    let other = Stage::new(installation);
    other.done("BACKUP DATABASE main TO DISK = 'full.bak'");
    other.done("BACKUP LOG main TO DISK = 'log.bak'");
    std::fs::copy(other.path("log.bak"), stage.path("foreign.bak")).unwrap();
    std::fs::copy(other.path("full.bak"), stage.path("foreign-full.bak")).unwrap();
    let number = |statement: &str| stage.refused(statement).0;
    assert_eq!(
        number("RESTORE LOG copy FROM DISK = 'foreign.bak' WITH NORECOVERY"),
        3154
    );
    assert_eq!(
        number("RESTORE DATABASE copy FROM DISK = 'foreign-full.bak' WITH NORECOVERY"),
        3154
    );
    assert_eq!(
        number("RESTORE DATABASE main FROM DISK = 'foreign-full.bak' WITH MOVE 'main' TO 'HERE/b'"),
        3154
    );

    // A cluster whose log is not archived has none to back up.
    let config = std::fs::read_to_string(stage.path("longshore.toml")).unwrap();
    let without = config.split("[database.main.wal]").next().unwrap();
    std::fs::write(stage.path("longshore.toml"), without).unwrap();
    assert_eq!(number("BACKUP LOG main TO DISK = 'x.bak'"), 4208);
    std::fs::write(stage.path("longshore.toml"), config).unwrap();

    // WAL that the archive lost is not skipped.
    stage.mark(7);
    stage.done("BACKUP LOG main TO DISK = 'log7.bak'");
    stage.done("RESTORE DATABASE copy WITH RECOVERY");
}

/// Two restores of one chain, of which one has the archive: only their histories distinguish their WAL.
#[test]
fn wal_of_another_restore_is_refused() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let stage = Stage::new(installation);
    stage.history();
    stage.server.stop(Stop::Fast);
    for name in ["copy", "same"] {
        stage.done(&format!(
            "RESTORE DATABASE {name} FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/{name}', NORECOVERY;
             RESTORE LOG {name} FROM DISK = 'log1.bak' WITH NORECOVERY;
             RESTORE LOG {name} FROM DISK = 'logs.bak' WITH RECOVERY"
        ));
    }
    let conf = stage.path("copy/postgresql.auto.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replace("archive_mode = 'off'\n", "")).unwrap();
    let copy = stage.recovered("copy");
    stage.configure(&copy);
    for i in 10..20 {
        copy.psql(&format!(
            "insert into marker values ({i}); select pg_switch_wal()"
        ));
    }
    stage.done("BACKUP LOG main TO DISK = 'copy.bak'");
    copy.stop(Stop::Fast);

    // A server that archives nothing is refused before its WAL is looked at.
    let conf = stage.path("same/postgresql.auto.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let archives = "archive_mode = 'on'\narchive_command = 'false'\n";
    std::fs::write(&conf, text.replace("archive_mode = 'off'\n", archives)).unwrap();
    let same = stage.recovered("same");
    stage.configure(&same);
    same.psql("insert into marker values (30)");
    let (_, said) = stage.refused("BACKUP LOG main TO DISK = 'wrong.bak'");
    assert!(said.contains("00000002.history"), "{said}");
    assert!(!stage.path("wrong.bak").exists());
    // A full backup whose log is to be in the archive has the same trouble.
    let url = same.url();
    let args = ["backup", &url, "--to", "wrong.bak", "--wal-wait", "5"];
    let mut backup = stage.command(&args);
    let output = backup
        .arg("--wal-archive")
        .arg(stage.path("wal"))
        .output()
        .unwrap();
    let said = crate::common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("WAL of another branch"), "{said}");
    assert!(!stage.path("wrong.bak").exists());
}

/// Goal: a copy that is restored next to its origin does not replay into the origin's tablespace: the step that would
/// make it startable is refused. Once the origin has dropped the tablespace, the step succeeds.
#[test]
fn wal_that_creates_a_tablespace_in_the_originals_files_is_not_replayed() {
    for installation in &representatives() {
        let stage = Stage::new(installation);
        stage.done("BACKUP DATABASE main TO DISK = 'full.bak'");
        let place = stage.path("space");
        std::fs::create_dir(&place).unwrap();
        stage.server.user().own(&place);
        let sql = format!("create tablespace space location '{}'", place.display());
        stage.server.psql(&sql);
        stage
            .server
            .psql("create table inside tablespace space as select generate_series(1, 1000) i");
        stage.done("BACKUP LOG main TO DISK = 'log1.bak'");
        stage.mark(1);
        stage.done("BACKUP LOG main TO DISK = 'log2.bak'");

        stage.done(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'HERE/a', NORECOVERY",
        );
        stage.done("RESTORE LOG copy FROM DISK = 'log1.bak' WITH NORECOVERY");
        let ends = [
            "RESTORE LOG copy FROM DISK = 'log2.bak' WITH RECOVERY",
            "RESTORE DATABASE copy WITH RECOVERY",
        ];
        for end in ends {
            let (_, said) = stage.refused(end);
            assert!(said.contains("creates the tablespace"), "{end}: {said}");
            assert!(said.contains(&place.display().to_string()), "{said}");
            let state = "SELECT state_desc FROM sys.databases WHERE name = 'copy'";
            assert!(stage.done(state).contains("RESTORING"));
            let copy = Server::adopt(stage.server.installation(), &stage.path("a"));
            assert!(copy.try_start().is_err());
        }

        stage.server.psql("drop table inside");
        stage.server.psql("drop tablespace space");
        stage.done("RESTORE DATABASE copy WITH RECOVERY");
        let copy = stage.recovered("a");
        assert_eq!(copy.psql("select count(*) from inside"), "1000");
        assert_eq!(markers(&copy), "1");
    }
}
