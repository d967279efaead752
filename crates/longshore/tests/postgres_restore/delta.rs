//! Goal: with delta, the directory becomes the backup, only differences are written, and only in the right cluster.
//! Method: real clusters are changed, restored over and compared; some restores are killed or fail midway.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use longshore_kit::{Stop, installations};

use crate::common::{Random, answer, fingerprint, from_env, text};
use crate::stage::{Stage, check, dump, refused, same, succeed};

#[test]
fn a_directory_becomes_the_backup_again_and_little_is_written() {
    for installation in installations().iter().rev().take(2) {
        let stage = Stage::new(installation, &[]);
        let old = stage.tablespace("fast");
        stage
            .server
            .psql("create table far tablespace fast as select generate_series(1, 5000) i");
        let media = stage.back_up("full", &[]);
        let before = dump(&stage.server);
        let new = stage.path("moved");
        let map = format!("{}={}", old.display(), new.display());
        let (data, server) = stage.restored(&media, "data", &["--tablespace-map", &map]);
        server.psql("update small set t = t || '!' where i % 500 = 0");
        server.psql("create table later as select generate_series(1, 9000) i");
        server.psql("drop table empty; truncate far; create database other");
        server.stop(Stop::Fast);
        // A change that neither length nor time shows.
        let victim = data.join("global/pg_filenode.map");
        let mut content = std::fs::read(&victim).unwrap();
        let time = victim.metadata().unwrap().modified().unwrap();
        content[60] ^= 1;
        std::fs::write(&victim, &content).unwrap();
        std::fs::File::options()
            .append(true)
            .open(&victim)
            .unwrap()
            .set_modified(time)
            .unwrap();
        std::fs::write(data.join("standby.signal"), "").unwrap();

        // The links of the directory may be those of its origin, so they are shown and not followed.
        let said = refused(stage.restore(&media, &data).arg("--delta"));
        assert!(said.contains("tablespaces outside"), "{said}");
        assert!(said.contains(&format!("={}", new.display())), "{said}");
        let delta = ["--delta", "--json", "--tablespace-map", &map];
        let unchanged = fingerprint(&data);
        let output = succeed(stage.restore(&media, &data).args(delta).arg("--dry-run"));
        let preview = answer(&output);
        assert!(fingerprint(&data) == unchanged, "a dry run wrote something");
        assert!(preview["replaced_names"].as_u64() > Some(100), "{preview}");
        assert_eq!(preview["tablespaces"][0][1], new.to_str().unwrap());
        let output = succeed(stage.restore(&media, &data).args(delta));
        let report = answer(&output);
        assert_eq!(report["removed_names"], preview["removed_names"]);
        let removed = report["removed"].as_array().unwrap();
        let standby = data.join("standby.signal").display().to_string();
        assert!(removed.iter().any(|path| *path == standby), "{removed:?}");
        assert!(report["removed_names"].as_u64().unwrap() >= removed.len() as u64);
        let (rewritten, all) = (
            report["rewritten_bytes"].as_u64(),
            report["plain_bytes"].as_u64(),
        );
        assert!(
            rewritten > Some(0) && rewritten.unwrap() < all.unwrap() / 2,
            "{rewritten:?} of {all:?}"
        );
        assert!(!data.join(".longshore-restoring").exists());
        assert!(!data.join("standby.signal").exists());
        let again = ["--delta", "--tablespace-map", &map];
        let said = text(&succeed(stage.restore(&media, &data).args(again)).stdout);
        let line = said.lines().find(|line| line.starts_with("Changed "));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        assert!(
            line.contains(", kept ") && line.ends_with(", removed nothing."),
            "{line}"
        );
        succeed(
            stage
                .server
                .command("pg_verifybackup")
                .arg("--no-parse-wal")
                .arg(&data),
        );
        server.start();
        same(
            &dump(&server).replace(new.to_str().unwrap(), old.to_str().unwrap()),
            &before,
        );
        check(&server, &data);
    }
}

#[test]
fn only_the_right_cluster_is_touched() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let other = Stage::new(&installation, &[]);
    let others = other.server.data_dir();
    let said = refused(stage.restore(&media, others).arg("--delta"));
    assert!(said.contains("postmaster.pid"), "{said}");
    other.server.stop(Stop::Fast);
    let said = refused(stage.restore(&media, others).arg("--delta"));
    assert!(said.contains("belongs to system"), "{said}");
    let staging = others.join(".longshore-restoring");
    assert!(!staging.exists(), "something was left in it");
    // Nor does the marker of an interrupted delta make another cluster's directory the right one.
    let system = "select system_identifier from pg_control_system()";
    std::fs::create_dir(&staging).unwrap();
    std::fs::write(staging.join("delta"), stage.server.psql(system)).unwrap();
    let said = refused(stage.restore(&media, others).arg("--delta"));
    assert!(said.contains("belongs to system"), "{said}");
    other.server.start();
    assert_eq!(other.server.psql("select count(*) from small"), "20000");
    let nothing = stage.path("nothing");
    let said = refused(stage.restore(&media, &nothing).arg("--delta"));
    assert!(said.contains("no global/pg_control"), "{said}");
    assert!(said.contains("leave out --delta"), "{said}");
    assert!(!nothing.exists(), "the directory it made is left");
}

/// Goal: a copied data directory keeps its origin's links; a delta over the copy does not touch the tablespace of the
/// running origin.
#[test]
fn the_tablespace_of_a_running_origin_is_not_written_to() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage.tablespace("fast");
    stage
        .server
        .psql("create table far tablespace fast as select generate_series(1, 5000) i");
    let media = stage.back_up("full", &[]);
    let clone = stage.path("clone");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(stage.server.data_dir())
        .arg(&clone)
        .status();
    assert!(copied.unwrap().success());
    std::fs::remove_file(clone.join("postmaster.pid")).unwrap();
    stage
        .server
        .psql("update far set i = -i where i > 4000; checkpoint");
    let said = refused(
        stage
            .restore(&media, &clone)
            .args(["--delta", "--tablespaces-as-stored"]),
    );
    assert!(said.contains("has tablespace"), "{said}");
    assert!(clone.join("global/pg_control").exists(), "it was begun");
    // The content of the files, not of the server's memory.
    stage.server.stop(Stop::Fast);
    stage.server.start();
    let changed = stage.server.psql("select count(*) from far where i < 0");
    assert_eq!(changed, "1000");
}

/// Goal: whichever tablespace's location is refused, neither the data directory nor another tablespace has changed.
/// Method: the last of two tablespaces is declared to be where another cluster's is.
#[test]
fn a_refused_tablespace_leaves_the_cluster_as_it_was() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let olds = ["first", "last"].map(|name| stage.tablespace(name));
    let media = stage.back_up("full", &[]);
    let spaces = ["space1", "space2"].map(|name| stage.path(name));
    let map =
        |i: usize, to: &Path| format!("--tablespace-map={}={}", olds[i].display(), to.display());
    let maps = [map(0, &spaces[0]), map(1, &spaces[1])];
    let (data, server) = stage.restored(&media, "data", &[&maps[0], &maps[1]]);
    server.psql("create table later tablespace first as select generate_series(1, 9000) i");
    server.stop(Stop::Fast);
    let foreign = stage.path("foreign");
    std::fs::create_dir_all(foreign.join("PG_18_202506291/5")).unwrap();

    let roots = [
        data.join("global"),
        data.join("base"),
        spaces[0].join(kept(&spaces[0])),
    ];
    let before = roots.each_ref().map(|root| fingerprint(root));
    let said = refused(
        stage
            .restore(&media, &data)
            .args(["--delta", &maps[0], &map(1, &foreign)]),
    );
    assert!(said.contains("does not have tablespace"), "{said}");
    assert!(
        roots.each_ref().map(|root| fingerprint(root)) == before,
        "something was changed"
    );
    server.start();
    assert_eq!(server.psql("select count(*) from later"), "9000");
}

/// Goal: a cluster whose WAL is on another volume, behind a link, can also be made the backup again, and the files
/// behind the link are not touched.
#[test]
fn a_cluster_with_a_linked_log_is_restored_over() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    for how in ["--delta", "--replace"] {
        let (data, server) = stage.restored(&media, how, &[]);
        server.psql("insert into marker values (1)");
        server.stop(Stop::Fast);
        let (wal, elsewhere) = (data.join("pg_wal"), stage.path(&format!("log{how}")));
        std::fs::rename(&wal, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &wal).unwrap();
        let before = fingerprint(&elsewhere);
        succeed(stage.restore(&media, &data).arg(how));
        assert!(wal.symlink_metadata().unwrap().is_dir(), "{how}");
        assert!(
            fingerprint(&elsewhere) == before,
            "{how}: another place was written to"
        );
        server.start();
        assert_eq!(server.psql("select count(*) from marker"), "0");
        check(&server, &data);
    }
}

/// Goal: a copy of the directory made of hard links keeps its bytes, of the cluster and of a tablespace, and so does
/// the old cluster of `pg_upgrade --link`, which shares relation files with the new one.
#[test]
fn a_delta_writes_through_no_hard_link() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let old = stage.tablespace("fast");
    stage
        .server
        .psql("create table far tablespace fast as select generate_series(1, 5000) i");
    let media = stage.back_up("full", &[]);
    let space = stage.path("space");
    let map = format!("{}={}", old.display(), space.display());
    let (data, server) = stage.restored(&media, "data", &["--tablespace-map", &map]);
    server.psql("update small set t = t || '!'; update far set i = i + 1; checkpoint");
    server.stop(Stop::Fast);
    let content = |of: &Path| -> Vec<_> {
        let all = fingerprint(of).into_iter();
        // The number of links, and the time of the last change of status, are what the restore may move.
        let sum = |what: &str| {
            what.rsplit(' ')
                .next()
                .filter(|last| !last.starts_with('x'))
                .map(str::to_owned)
        };
        all.map(|(path, what)| (path, sum(&what))).collect()
    };
    let copies = [&data, &space].map(|of| {
        let copy = of.with_extension("copy");
        succeed(
            std::process::Command::new("cp")
                .arg("-al")
                .args([of, &copy]),
        );
        copy
    });
    let before = copies.each_ref().map(|copy| content(copy));
    succeed(
        stage
            .restore(&media, &data)
            .args(["--delta", "--tablespace-map", &map]),
    );
    let after = copies.each_ref().map(|copy| content(copy));
    assert!(after == before, "a copy was written to");
    server.start();
    let changed =
        "select (select count(*) from small where t like '%!') + (select max(i) from far)";
    assert_eq!(server.psql(changed), "5000");
    check(&server, &data);
    server.stop(Stop::Fast);
    // The copy is the cluster as it was; its tablespace's link leads to what was restored.
    let link = std::fs::read_dir(copies[0].join("pg_tblspc"))
        .unwrap()
        .next();
    let link = link.unwrap().unwrap().path();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&copies[1], &link).unwrap();
    let copy = stage.adopt(&copies[0]);
    copy.start();
    assert_eq!(copy.psql(changed), "25001");
}

/// The directory that PostgreSQL made in a tablespace.
fn kept(space: &Path) -> OsString {
    let names = std::fs::read_dir(space)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names = names.filter(|name| name.to_string_lossy().starts_with("PG_"));
    names.next().unwrap()
}

#[test]
fn a_killed_delta_does_not_start_and_can_be_repeated() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let (data, server) = stage.restored(&media, "data", &[]);
    let mut random = Random(from_env("LONGSHORE_SEED", 11));
    let mut killed = 0;
    for round in 0..from_env("LONGSHORE_ROUNDS", 6) {
        server.psql("update small set t = t || '!'");
        server.stop(Stop::Fast);
        let begin = std::time::Instant::now();
        let mut child = stage.restore(&media, &data).arg("--delta").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(5 + random.next() % 250));
        child.kill().unwrap();
        child.wait().unwrap();
        let took = begin.elapsed();
        match server.try_start() {
            Ok(()) => {
                let rows = server.psql("select count(*) from small");
                assert_eq!(rows, "20000", "round {round} after {took:?}");
                server.stop(Stop::Fast);
            }
            Err(log) => {
                killed += 1;
                let stands = data.join("global/pg_control").exists();
                assert!(!stands, "round {round}: {log}");
            }
        }
        succeed(stage.restore(&media, &data).arg("--delta"));
        server.start();
        assert_eq!(
            server.psql("select count(*) from small where t like '%!'"),
            "0",
            "round {round}"
        );
    }
    println!("{killed} deltas were killed between");
    check(&server, &data);
}

#[test]
fn a_delta_that_fails_midway_leaves_no_server_that_starts_and_good_media_mend_it() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let (data, server) = stage.restored(&media, "data", &[]);
    server.psql("update small set t = t || '!'");
    server.stop(Stop::Fast);
    let sound = std::fs::read(&media[1]).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    std::fs::write(&media[1], &damaged).unwrap();
    refused(stage.restore(&media, &data).arg("--delta"));
    assert!(!data.join("global/pg_control").exists());
    assert!(server.try_start().is_err());
    std::fs::write(&media[1], &sound).unwrap();
    succeed(stage.restore(&media, &data).arg("--delta"));
    server.start();
    let changed = "select count(*) from small where t like '%!'";
    assert_eq!(server.psql(changed), "0");
    check(&server, &data);
}
