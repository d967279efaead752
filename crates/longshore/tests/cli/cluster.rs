//! Goal: a configured PostgreSQL cluster is backed up, checked, drilled and expired by its name, with its archived WAL;
//! a gap in the archive is found.
//! Method: a real server of one major version that has `pg_amcheck`, and the real program in a scratch directory.
//! Not covered: other major versions, which the tests of backups and restores use.

use longshore_kit::{Installation, Options, Server, installations};

use crate::stage::{BINARY, Stage};

/// An installation with pg_amcheck, which small distributions of PostgreSQL omit.
fn installation() -> Option<Installation> {
    let found = installations()
        .into_iter()
        .find(|i| i.bin_dir.join("pg_amcheck").exists());
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(found.is_some() || !required, "run scripts/setup.sh");
    found
}

fn configured(server: &Server) -> Stage {
    let stage = Stage::beside_servers();
    for dir in ["disk1", "disk2", "work"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let text = format!(
        "[database.main]\nurl = \"{}\"\ntarget = \"t\"\nretention = \"one\"\nalgorithm = \"LZ4\"\n\
         [target.t]\ndirectories = [\"{}\", \"{}\"]\n[retention.one]\nkeep_full = 1\n",
        server.url(),
        stage.path("disk1").display(),
        stage.path("disk2").display(),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    stage
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_cluster_is_backed_up_checked_drilled_and_expired_by_its_name() {
    let Some(installation) = installation() else {
        return;
    };
    let server = Server::create(&installation, Options::default());
    server.append_conf("archive_mode = on\narchive_command = 'false'\nwal_level = replica");
    server.start();
    let stage = configured(&server);
    server.psql("create table t as select i, md5(i::text) v from generate_series(1, 30000) i");
    server.psql("create index on t (v)");
    let space = server.data_dir().parent().unwrap().join("space");
    let mut made = server.command_at(std::path::Path::new("/bin/mkdir"));
    assert!(made.arg(&space).status().unwrap().success());
    server.psql(&format!(
        "create tablespace s location '{}'",
        space.display()
    ));
    server.psql("create table u tablespace s as select * from t");

    stage.line("backup main").exits(0);
    let drilled = stage.line("drill main --work work").exits(0);
    for part in [
        "recovered",
        "pg_amcheck",
        "stopped",
        "page checksums",
        "is good",
    ] {
        assert!(drilled.out.contains(part), "{part}: {}", drilled.out);
    }
    assert_eq!(stage.names("work"), Vec::<String>::new());
    stage.line("wal create --database main").exits(0);
    // No archiver is running.
    server.psql("select pg_switch_wal()");
    server.wait_for("select failed_count > 0 from pg_stat_archiver", "t");
    stage
        .line("check main --archive-wait 1")
        .exits(1)
        .says("did not arrive")
        .says("archive_command fails");
    // Without a switch and a wait, the server's own report is still asked for.
    let asked = stage.line("check main --archive-wait 0").exits(1);
    assert!(
        !asked
            .says("archive_command fails")
            .out
            .contains("did not arrive")
    );
    // A backup inside its own source.
    let inside = server.data_dir().join("x.bak");
    stage
        .line(&format!("backup main --to {}", inside.display()))
        .exits(2)
        .says("is the source of this backup");
    assert!(!inside.exists());
    let inside = space.join(format!("PG_{}", installation.major));
    let versioned = std::fs::read_dir(&space)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.to_str().unwrap().starts_with(inside.to_str().unwrap()))
        .unwrap();
    stage
        .line(&format!("backup main --to {}/x.bak", versioned.display()))
        .exits(2)
        .says("is the source of this backup");
    stage
        .line(&format!(
            "backup {} --to x.bak",
            server.data_dir().display()
        ))
        .exits(3)
        .says("a PostgreSQL server runs in");
    // The server's user differs from ours: what it archives goes through a directory that the test empties.
    let config = stage.path("no-config/longshore/longshore.toml");
    let push = |name: &str| {
        let path = server.data_dir().join("pg_wal").join(name);
        let mut command = stage.command(&["--config"]);
        let status = command
            .arg(&config)
            .args(["wal", "push", "--database", "main"])
            .arg(path)
            .status()
            .unwrap();
        assert!(status.success(), "{BINARY} wal push {name}");
    };
    let first = server.psql("select pg_walfile_name(pg_switch_wal())");
    push(&first);
    let arriving = std::thread::scope(|scope| {
        let checking = scope.spawn(|| stage.line("check main --archive-wait 60 --json"));
        let began = std::time::Instant::now();
        // Whichever segment the check switches, it arrives.
        let mut at = first.clone();
        while !checking.is_finished() && began.elapsed().as_secs() < 60 {
            let now = server.psql("select pg_walfile_name(pg_current_wal_lsn() + 1)");
            while next(&at) < now {
                at = next(&at);
                push(&at);
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        checking.join().unwrap()
    });
    assert!(
        arriving.out.contains("arrived"),
        "{} {}",
        arriving.out,
        arriving.err
    );

    stage
        .line("info main")
        .exits(0)
        .says("timeline 1")
        .says("stays");
    stage.line("backup main").exits(0);
    stage.line("expire main").exits(0).says("1 backup (");
    stage.line("drill main --work work").exits(0);
    assert_eq!(stage.names("work"), Vec::<String>::new());
}

#[test]
fn a_check_does_not_wait_if_no_segment_can_arrive() {
    let Some(installation) = installation() else {
        return;
    };
    let server = Server::create(&installation, Options::default());
    server.append_conf("archive_mode = off");
    server.start();
    let stage = configured(&server);
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap() + "[database.main.wal]\n";
    std::fs::write(&config, text).unwrap();
    // If the check waited for this, the test would take an hour.
    let check = || stage.line("check main --archive-wait 3600").exits(1);
    check()
        .says("is not a WAL archive: mount its file system, or create one")
        .says("archive_mode is off, and no receiver is connected");
    stage.line("wal create --database main").exits(0);
    check()
        .says("WARN  log")
        .says("is still empty")
        .says("archive_mode is off, and no receiver is connected");
    stage
        .line("check main --archive-wait 0")
        .exits(1)
        .says("archive_mode is off, and no receiver is connected");
}

#[test]
fn a_gap_in_the_archive_of_a_cluster_without_a_target_is_found() {
    let Some(installation) = installation() else {
        return;
    };
    let server = Server::create(&installation, Options::default());
    // Nothing archives, so the check waits for nothing.
    server.append_conf("archive_mode = off");
    server.start();
    let stage = Stage::beside_servers();
    let (url, archive) = (server.url(), stage.path("archive"));
    let text = format!(
        "[database.main]\nurl = \"{url}\"\n[database.main.wal]\narchive = \"{}\"\n",
        archive.display()
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    stage.line("wal create --database main").exits(0);
    let switched: Vec<String> = (0..3)
        .map(|i| {
            server.psql(&format!(
                "create table t{i} (); select pg_walfile_name(pg_switch_wal())"
            ))
        })
        .map(|told| told.lines().last().unwrap().to_owned())
        .collect();
    let push = |name: &str| {
        let path = server.data_dir().join("pg_wal").join(name);
        let line = format!("wal push --database main {}", path.display());
        stage.line(&line).exits(0);
    };
    push(&switched[0]);
    push(&switched[2]);
    let missing = format!(
        "segments between {} and {} are missing",
        switched[0], switched[2]
    );
    stage.line("check main").exits(1).says(&missing);
    push(&switched[1]);
    let mended = stage.line("check main");
    assert!(!mended.out.contains("are missing"), "{}", mended.out);
}

/// The segment after this one, of 16 MiB.
fn next(name: &str) -> String {
    let number = u64::from_str_radix(&name[8..16], 16).unwrap() * 256
        + u64::from_str_radix(&name[16..], 16).unwrap()
        + 1;
    format!("{}{:08X}{:08X}", &name[..8], number / 256, number % 256)
}
