//! Goal: no server on a copy writes into its origin's tablespaces, also if replay would create them there, and a pipe
//! restores a cluster whose tablespaces are named by OID.
//! Method: real servers; tablespaces are made while a backup runs. Restores warn, drills fail, and servers stop at
//! their start until the origin has dropped the tablespaces.
//! Not covered: copies on another machine, where the origin's directories do not exist.

use std::process::{Command, Stdio};

use longshore_kit::representatives;

use crate::common::{Guarded, longshore, text};
use crate::named::{Main, markers, meanwhile};
use crate::stage::{Stage, end, succeed};

/// Goal: no server that a restore or a drill sets up on the origin's machine writes into the origin's files. Replay would
/// do so where a tablespace was made during the backup or after it: it links to the directory that the log names.
/// Method: one is made during a backup that holds its log and during one that does not. When the origin has dropped both,
/// all is as ever.
#[test]
fn a_copy_does_not_replay_into_its_origins_tablespace() {
    for installation in representatives() {
        let main = Main::new(&installation);
        let stage = &main.stage;
        let server = &stage.server;
        let made = |name: &str| {
            stage.tablespace(name);
            server.psql(&format!(
                "create table in_{name} tablespace {name} as select generate_series(1, 1000) g"
            ));
        };
        let own = stage.path("own.bak");
        let mut backup = longshore(["backup", "--algorithm", "LZ4"]);
        backup.arg(server.url()).arg("--to").arg(&own);
        meanwhile(&mut backup, || made("first"));
        meanwhile(&mut main.command("backup main"), || made("second"));
        main.mark(1);
        main.archived(server);

        let restore = |name: &str| {
            let data = stage.path(name);
            let mut command = longshore(["restore", "--no-archiving"]);
            command.arg(&own).arg("--to").arg(&data);
            (data, command)
        };
        let (_, mut restored) = restore("warned");
        let said = text(&end(&mut restored, 5).stderr);
        assert!(said.contains("creates the tablespace"), "{said}");
        let mut cat = Command::new("cat");
        let mut cat = Guarded(cat.arg(&own).stdout(Stdio::piped()).spawn().unwrap());
        let mut piped = longshore(["restore", "-", "--no-archiving", "--to"]);
        piped
            .arg(stage.path("piped"))
            .stdin(cat.0.stdout.take().unwrap());
        let said = text(&end(&mut piped, 5).stderr);
        assert!(said.contains("creates the tablespace"), "{said}");
        let told = stage.path("told");
        let statement = format!(
            "RESTORE DATABASE copy FROM DISK = '{}' WITH MOVE 'postgres' TO '{}'",
            own.display(),
            told.display()
        );
        let said = succeed(main.command("sql -W -Q").arg(&statement)).stdout;
        let said = text(&said);
        assert!(said.contains("creates the tablespace"), "{said}");
        assert!(said.contains("successfully processed"), "{said}");
        let work = stage.path("drill");
        std::fs::create_dir(&work).unwrap();
        let mut drill = main.command("drill main --work");
        drill.arg(&work).arg("--bin-dir");
        drill.arg(&server.installation().bin_dir);
        let output = end(&mut drill, 1);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("FAIL  tablespaces"), "{said}");
        // All that a server would have had to be started for.
        for proof in ["recovered", "amcheck", "stopped", "checksums"] {
            assert!(!said.contains(proof), "{proof}: {said}");
        }
        let left: Vec<_> = std::fs::read_dir(&work).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let first = server.socket_dir().join("first");
        let map = format!("{}={}", first.display(), stage.path("moved").display());
        let (data, mut command) =
            main.restore("stopped", &["--no-archiving", "--tablespace-map", &map]);
        // The drill has condemned it.
        end(&mut command, 5);
        let stopped = stage.adopt(&data);
        let log = stopped.try_start().unwrap_err();
        assert!(log.contains("would write into them"), "{log}");

        for name in ["first", "second"] {
            server.psql(&format!("drop table in_{name}"));
            server.psql(&format!("drop tablespace {name}"));
        }
        let (data, mut restored) = restore("fine");
        succeed(&mut restored);
        let fine = stage.adopt(&data);
        fine.start();
        assert_eq!(fine.psql("select count(*) from in_first"), "1000");
        stopped.start();
        assert_eq!(markers(&stopped), "1");
    }
}

/// Goal: a pipe shows its tablespaces only while it is read, so the operator names them by OID; a set that has others than
/// were named is refused, and nothing is left.
#[test]
fn a_pipe_restores_a_cluster_whose_tablespaces_are_named_by_oid() {
    for installation in &representatives() {
        let stage = Stage::new(installation, &[]);
        let stored = stage.tablespace("fast");
        stage
            .server
            .psql("create table far tablespace fast as select generate_series(1, 5000) i");
        let oid = stage
            .server
            .psql("select oid from pg_tablespace where spcname = 'fast'");
        let set = stage.path("piped.bak");
        let mut backup = longshore(["backup", &*stage.server.url(), "--to"]);
        succeed(backup.arg(&set));
        let piped = |name: &str, map: &[String]| {
            let mut restore = longshore(["restore", "-", "--no-archiving", "--to"]);
            restore.arg(stage.path(name));
            for map in map {
                restore.args(["--tablespace-map", map]);
            }
            restore.stdin(std::fs::File::open(&set).unwrap());
            restore
        };
        let new = stage.path("new-place").display().to_string();
        let said = text(&end(&mut piped("unnamed", &[]), 6).stderr);
        assert!(said.contains(&format!("tablespace {oid}")), "{said}");
        assert!(said.contains("--tablespace-map OID=DIR"), "{said}");
        assert!(!stage.path("unnamed").exists());
        let by_path = format!("{}={new}", stored.display());
        let said = text(&end(&mut piped("by-path", &[by_path]), 6).stderr);
        assert!(said.contains("is no OID"), "{said}");
        let own = format!("{oid}={new}");
        let foreign = format!("99999={}", stage.path("other-place").display());
        let said = text(&end(&mut piped("too-many", &[own.clone(), foreign]), 6).stderr);
        assert!(said.contains("has no tablespace 99999"), "{said}");
        for left in ["too-many", "new-place", "other-place"] {
            assert!(!stage.path(left).exists(), "{left}");
        }

        // Through a link, whether the directory is there before or not.
        let (data, link) = (stage.path("linked"), stage.path("link"));
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let into = format!("{oid}={}", link.join("space").display());
        for _ in 0..2 {
            let said = text(&end(&mut piped("linked", std::slice::from_ref(&into)), 6).stderr);
            assert!(said.contains("overlaps the data directory"), "{said}");
            assert!(!data.join("pg_tblspc").exists());
            std::fs::create_dir_all(&data).unwrap();
        }

        succeed(&mut piped("data", &[own]));
        let link = std::fs::read_link(stage.path("data/pg_tblspc").join(&oid)).unwrap();
        assert_eq!(link, stage.path("new-place"));
        let restored = stage.adopt(&stage.path("data"));
        restored.start();
        restored.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(
            restored.psql("select count(*), sum(i) from far"),
            "5000|12502500"
        );
    }
}
