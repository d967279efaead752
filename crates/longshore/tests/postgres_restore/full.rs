//! Goal: a full disk is an ordinary failure. Nothing that a server starts is left half done, no incomplete backup is
//! valid, no segment is lost; with more room everything continues.
//! Method: small file systems in memory, limited by bytes or by the number of files, mounted and enlarged. Needs root.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{PATIENCE, installations};

use crate::common::{answer, text};
use crate::named::{Main, reached};
use crate::stage::{Stage, refused, succeed};

/// A file system of its own; dropping it unmounts it.
struct Volume(PathBuf);

impl Volume {
    /// `None` if mounting is not possible.
    fn new(path: PathBuf, options: &str) -> Option<Volume> {
        std::fs::create_dir_all(&path).unwrap();
        let mounted = mount(&path, &format!("mode=755,{options}"));
        if !mounted {
            eprintln!("skipped: no file system can be mounted here (not root?)");
        }
        mounted.then_some(Volume(path))
    }

    fn change(&self, options: &str) {
        assert!(mount(&self.0, &format!("remount,{options}")));
    }
}

fn mount(path: &Path, options: &str) -> bool {
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", options, "tmpfs"])
        .arg(path);
    mount.output().is_ok_and(|o| o.status.success())
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// No server starts there, and nothing blocks the next attempt.
fn nothing_startable(data: &Path) {
    assert!(!data.join("global/pg_control").exists());
    assert!(!data.join("PG_VERSION").exists());
}

#[test]
fn a_restore_without_room_leaves_nothing_that_starts() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let Some(volume) = Volume::new(stage.path("volume"), "size=6m") else {
        return;
    };
    let data = volume.0.join("data");
    // Known beforehand, also to a dry run.
    for more in [&["--dry-run"][..], &[]] {
        let said = refused(stage.restore(&media, &data).args(more));
        assert!(said.contains("bytes free, the restore needs"), "{said}");
        assert!(said.contains(data.to_str().unwrap()), "{said}");
        nothing_startable(&data);
    }
    // Found only during the restore: there are bytes, but no more files.
    volume.change("size=300m,nr_inodes=200");
    let said = refused(&mut stage.restore(&media, &data));
    assert!(
        said.contains("No space left on device") && said.contains("hint:"),
        "{said}"
    );
    nothing_startable(&data);
    volume.change("nr_inodes=100k");
    succeed(&mut stage.restore(&media, &data));
    let server = stage.adopt(&data);
    server.start();
    assert_eq!(server.psql("select count(*) from small"), "20000");
    drop(server);

    // An old cluster is not given up for a restore that does not fit.
    volume.change("nr_inodes=1500");
    let before = std::fs::read(data.join("global/pg_control")).unwrap();
    let said = refused(stage.restore(&media, &data).arg("--replace"));
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(
        std::fs::read(data.join("global/pg_control")).unwrap(),
        before
    );
    let server = stage.adopt(&data);
    server.start();
    assert_eq!(server.psql("select count(*) from small"), "20000");
}

#[test]
fn a_tablespace_without_room_fails_the_whole_restore() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let old = stage.tablespace("fast");
    stage.server.psql("create table far tablespace fast as select repeat('x', 900) from generate_series(1, 3000) i");
    let media = stage.back_up("full", &[]);
    let Some(volume) = Volume::new(stage.path("volume"), "size=1m") else {
        return;
    };
    let (data, space) = (stage.path("data"), volume.0.join("fast"));
    let restore = || {
        let mut restore = stage.restore(&media, &data);
        restore.arg("--tablespace-map");
        restore.arg(format!("{}={}", old.display(), space.display()));
        restore
    };
    let said = refused(&mut restore());
    assert!(said.contains("bytes free, the restore needs"), "{said}");
    assert!(said.contains(space.to_str().unwrap()), "{said}");
    nothing_startable(&data);
    volume.change("size=50m,nr_inodes=6");
    let said = refused(&mut restore());
    assert!(said.contains("No space left on device"), "{said}");
    nothing_startable(&data);
    volume.change("nr_inodes=1k");
    succeed(&mut restore());
    let server = stage.adopt(&data);
    server.start();
    assert_eq!(server.psql("select count(*) from far"), "3000");
}

#[test]
fn a_delta_that_cannot_fit_leaves_the_cluster_as_it_was() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let small = stage.back_up("small", &[]);
    stage
        .server
        .psql("create table big as select repeat('x', 900) t from generate_series(1, 70000) i");
    let large = stage.back_up("large", &[]);
    let Some(volume) = Volume::new(stage.path("volume"), "size=80m") else {
        return;
    };
    let data = volume.0.join("data");
    succeed(&mut stage.restore(&small, &data));
    let before = crate::common::fingerprint(&data);
    let said = refused(stage.restore(&large, &data).arg("--delta"));
    assert!(said.contains("bytes free, the restore needs"), "{said}");
    assert!(
        crate::common::fingerprint(&data) == before,
        "something was changed"
    );
    // The same push again needs hardly any space, however full the disk is.
    let filler = volume.0.join("filler");
    let file = std::fs::File::create(&filler).unwrap();
    let mut written = 0;
    while (&file).write_all(&[0; 1 << 18]).is_ok() {
        written += 1u64 << 18;
    }
    file.set_len(written - (2 << 20)).unwrap();
    succeed(stage.restore(&small, &data).arg("--delta"));
    std::fs::remove_file(&filler).unwrap();
    volume.change("size=300m");
    succeed(stage.restore(&large, &data).arg("--delta"));
    let server = stage.adopt(&data);
    server.start();
    assert_eq!(server.psql("select count(*) from big"), "70000");
}

#[test]
fn a_full_target_and_a_full_archive_lose_nothing() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    main.back_up();
    // The target: its second directory is full.
    let Some(volume) = Volume::new(main.stage.path("disk2"), "size=300k") else {
        return;
    };
    let failed = || {
        let output = main.command("backup main").output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    // Another file system than that of the newest backup: a disk that is not mounted looks like this, too.
    let said = failed();
    assert!(said.contains("mkdir"), "{said}");
    std::fs::create_dir(volume.0.join("main")).unwrap();
    let said = failed();
    assert!(said.contains("No space left on device"), "{said}");
    volume.change("size=100m");
    let second = main.back_up();

    // The archive, in the middle of a segment.
    drop(volume);
    let Some(volume) = Volume::new(main.stage.path("log/other"), "size=600k") else {
        return;
    };
    server.user().own(&volume.0);
    let config = std::fs::read_to_string(main.stage.path("longshore.toml")).unwrap();
    let config = config.replace("log/main", "log/other/main");
    std::fs::write(main.stage.path("longshore.toml"), config).unwrap();
    std::fs::create_dir(volume.0.join("main")).unwrap();
    succeed(&mut main.command("wal create --database main"));
    server.user().own(&volume.0);
    let fill = "insert into small select i, md5(i::text) || md5((i + 1)::text) from generate_series(100000, 130000) i";
    server.psql(fill);
    let at = main.mark(7);
    server.psql("select pg_switch_wal()");
    let begun = std::time::Instant::now();
    while !server
        .log()
        .contains("free space on this path's file system")
    {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let listed = |more: &str| {
        let output = main
            .command(&format!("wal list --database main --json {more}"))
            .output();
        answer(&output.unwrap())
    };
    assert_eq!(
        listed("--verify")["damaged_segments"],
        serde_json::json!([])
    );
    volume.change("size=100m");
    main.archived(server);
    let told = listed("--verify");
    assert_eq!(
        (&told["gap_count"], &told["damaged_segments"]),
        (&0.into(), &serde_json::json!([]))
    );
    assert_eq!(told["runs"].as_array().unwrap().len(), 1);

    // The archive in another location begins after the older backups: a new backup covers the last marker.
    let said = refused(
        main.restore("early", &["--label", &second, "--target-lsn", &at.lsn])
            .1
            .arg("-q"),
    );
    assert!(said.is_empty() || said.contains("lacks WAL"), "{said}");
    main.back_up();
    let later = main.mark(8);
    main.archived(server);
    let (_, server) = main.restored("later", &["--target-lsn", &later.lsn]);
    assert_eq!(reached(&server), "7 8");
}
