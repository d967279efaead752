//! Goal: a complete cluster is restored and started at once: it equals its origin, its tablespaces are where they were
//! mapped, and a directory in use is refused.
//! Method: real servers of all installed versions, or some; dumps are compared, and `pg_verifybackup` accepts the
//! directory.
//! Not covered: points in time and archives, which other modules restore.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longshore_kit::{Options, Server, Stop, installations};

use crate::common::{answer, text};
use crate::stage::{Stage, check, dump, judged, refused, same, succeed};

#[test]
fn a_restored_cluster_is_the_backup_and_starts() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        let media = stage.back_up("full", &[]);
        let before = dump(&stage.server);
        let data = stage.path("data");
        succeed(&mut stage.restore(&media, &data));
        verify(&stage, &data);
        let server = stage.adopt(&data);
        server.start();
        same(&dump(&server), &before);
        // The WAL that it writes from here on is its own.
        let timeline = "select timeline_id from pg_control_checkpoint()";
        assert_eq!(
            (server.psql(timeline), stage.server.psql(timeline)),
            ("2".into(), "1".into())
        );
        assert_eq!(server.psql("select count(*) from unlogged"), "0");
        assert!(server.log().contains("consistent recovery state reached"));
        let (found, made) = (
            data.metadata().unwrap(),
            stage.server.data_dir().metadata().unwrap(),
        );
        assert_eq!(
            (found.mode(), found.uid(), found.gid()),
            (made.mode(), made.uid(), made.gid())
        );
        check(&server, &data);
    }
}

/// `pg_verifybackup` accepts the directory, with a manifest of its own major's version.
fn verify(stage: &Stage, data: &Path) {
    let mut verify = stage.server.command("pg_verifybackup");
    // Its WAL reader exists for its own major version only.
    succeed(verify.arg("--no-parse-wal").arg(data));
    let text = std::fs::read_to_string(data.join("backup_manifest")).unwrap();
    let version = match stage.server.installation().major {
        17.. => 2,
        _ => 1,
    };
    assert!(text.contains(&format!("Manifest-Version\": {version},")));
}

#[test]
fn tablespaces_are_restored_where_they_are_mapped() {
    for installation in installations().iter().rev().take(2) {
        let stage = Stage::new(installation, &[]);
        let old = stage.tablespace("fast");
        stage
            .server
            .psql("create table far tablespace fast as select generate_series(1, 5000) i");
        let media = stage.back_up("full", &[]);
        let before = dump(&stage.server);
        let data = stage.path("data");

        let said = refused(&mut stage.restore(&media, &data));
        assert!(
            said.contains("--tablespace-map") && said.contains(old.to_str().unwrap()),
            "{said}"
        );
        let said = refused(stage.restore(&media, &data).arg("--tablespaces-as-stored"));
        assert!(said.contains("already exists"), "{said}");
        // No option overwrites a tablespace, so none is named that would.
        assert!(
            said.contains("--delta") && !said.contains("--replace"),
            "{said}"
        );
        let inside = format!("{}={}", old.display(), data.join("x").display());
        let said = refused(
            stage
                .restore(&media, &data)
                .args(["--tablespace-map", &inside]),
        );
        assert!(said.contains("overlaps the data directory"), "{said}");

        let new = stage.path("moved");
        let map = format!("{}={}", old.display(), new.display());
        let (_, server) = stage.restored(&media, "data", &["--tablespace-map", &map]);
        assert_eq!(server.psql("select count(*) from far"), "5000");
        let place = server
            .psql("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'fast'");
        assert_eq!(place, new.to_str().unwrap());
        let after = dump(&server).replace(new.to_str().unwrap(), old.to_str().unwrap());
        same(&after, &before);
        check(&server, &data);
    }
}

#[test]
fn a_directory_in_use_is_refused_and_an_old_one_replaced_as_a_whole() {
    for installation in installations().iter().rev().take(1) {
        let stage = Stage::new(installation, &[]);
        let media = stage.back_up("full", &[]);
        let (data, server) = stage.restored(&media, "data", &[]);
        server.psql("insert into marker values (1)");
        for more in [&["--replace", "--dry-run"][..], &["--replace"]] {
            let said = refused(stage.restore(&media, &data).args(more));
            assert!(
                said.contains("postmaster.pid")
                    && said.contains(&server.pid().unwrap().as_raw_nonzero().to_string()),
                "{said}"
            );
        }
        assert_eq!(server.psql("select count(*) from marker"), "1");
        server.stop(Stop::Fast);
        std::fs::write(data.join("standby.signal"), "").unwrap();

        let said = refused(&mut stage.restore(&media, &data));
        assert!(said.contains("already exists"), "{said}");
        succeed(stage.restore(&media, &data).arg("--replace"));
        assert!(!data.join("standby.signal").exists());
        assert!(!data.join(".longshore-restoring").exists());
        server.start();
        assert_eq!(server.psql("select count(*) from marker"), "0");
        check(&server, &data);
    }
}

/// Goal: --replace takes nothing away but the set's own cluster, or one in which no server has made anything, whatever --to names by
/// mistake, and its dry run says how much goes.
#[test]
fn replace_removes_the_cluster_of_the_set_and_nothing_else() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let other = Stage::new(&installation, &[]);
    other.server.stop(Stop::Fast);
    let vault = stage.path("vault");
    std::fs::create_dir_all(vault.join("sub")).unwrap();
    std::fs::write(vault.join("notes.txt"), "kept").unwrap();
    // Backups are told before all else.
    let full = stage.path("full-of-backups");
    std::fs::create_dir_all(full.join("base")).unwrap();
    std::fs::copy(&media[0], full.join("monday.bak")).unwrap();
    let theirs = other.server.data_dir();
    for (to, why) in [
        (theirs, "its system identifier is"),
        (&*vault, "is no data directory of PostgreSQL"),
        (&*full, "monday.bak"),
    ] {
        for more in [&["--replace", "--dry-run"][..], &["--replace"]] {
            let said = refused(stage.restore(&media, to).args(more));
            assert!(said.contains(why) && said.contains("hint:"), "{said}");
        }
    }
    assert!(vault.join("notes.txt").exists() && full.join("monday.bak").exists());
    other.server.start();
    assert_eq!(other.server.psql("select count(*) from small"), "20000");

    // A machine that is made again has a new cluster there.
    let empty = Server::create(&installation, Options::default());
    succeed(stage.restore(&media, empty.data_dir()).arg("--replace"));
    let server = stage.adopt(empty.data_dir());
    server.start();
    assert_eq!(server.psql("select count(*) from small"), "20000");

    let (data, server) = stage.restored(&media, "data", &[]);
    server.stop(Stop::Fast);
    std::fs::write(data.join("extra"), [7; 1000]).unwrap();
    let mut dry = stage.restore(&media, &data);
    dry.args(["--replace", "--dry-run", "--json"]);
    let told = answer(&judged(&mut dry));
    let count = told["swept_file_count"].as_u64().unwrap();
    assert!(count > 900, "{told}");
    assert!(told["swept_bytes"].as_u64().unwrap() > 1 << 20, "{told}");
    let said = text(
        &judged(
            stage
                .restore(&media, &data)
                .args(["--replace", "--dry-run"]),
        )
        .stdout,
    );
    assert!(
        said.contains(&format!("files that would go with them: {count}, ")),
        "{said}"
    );
}

#[test]
fn group_access_comes_back() {
    for installation in installations().iter().take(1) {
        let options = longshore_kit::Options {
            group_access: true,
            ..Default::default()
        };
        let stage = Stage::with(installation, options);
        let media = stage.back_up("full", &[]);
        let (data, _server) = stage.restored(&media, "data", &[]);
        assert_eq!(data.metadata().unwrap().mode() & 0o777, 0o750);
        let manifest = data.join("backup_manifest").metadata().unwrap();
        assert_eq!(manifest.mode() & 0o777, 0o640);
    }
}
