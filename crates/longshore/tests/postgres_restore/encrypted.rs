//! Goal: where backups are encrypted, their WAL is, too: the server's machine reads none of what it archives, backs up
//! all the same, and whoever has an identity recovers to any moment.
//! Method: real servers and the program as the server's user; a control file's secret is that of pg_controldata.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_kit::{Installation, installations};

use crate::common::{BINARY, answer, end, text};
use crate::named::{Main, markers, reached};
use crate::stage::succeed;

/// A database whose target and archive are encrypted for the identity in `id`, all of it the server's user's.
fn main_of(installation: &Installation) -> Main {
    let main = Main::new(installation);
    let config = main.stage.path("longshore.toml");
    let user = main.stage.server.user();
    for dir in ["disk1", "disk2"] {
        user.own(&main.stage.path(dir));
    }
    let made = succeed(line(&main, "key new").arg(main.stage.path("id")));
    let recipient = text(&made.stdout);
    let more = format!("[encryption]\nrecipients = [\"{}\"]\n", recipient.trim());
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + &more).unwrap();
    main
}

/// The program as the server's user, with the configuration.
fn line(main: &Main, line: &str) -> Command {
    let mut command = main.stage.server.user().command(Path::new(BINARY));
    command.args(["--catalog", "none", "--config"]);
    command.arg(main.stage.path("longshore.toml"));
    command.args(line.split_whitespace());
    command
}

fn with_identity(main: &Main, words: &str) -> Command {
    let mut command = line(main, words);
    command.arg("--identity").arg(main.stage.path("id"));
    command
}

fn back_up(main: &Main) {
    // Labels have a resolution of one second.
    std::thread::sleep(std::time::Duration::from_millis(1000));
    succeed(&mut line(main, "backup main"));
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// The last segment that the server has archived.
fn last(main: &Main) -> String {
    let sql = "select split_part(last_archived_wal, '.', 1) from pg_stat_archiver";
    main.stage.server.psql(sql)
}

/// A drill runs from the encrypted archive, where this major has what a drill checks with.
fn drilled(main: &Main) {
    let server = &main.stage.server;
    let bin_dir = &server.installation().bin_dir;
    if bin_dir.join("pg_amcheck").exists() {
        let work = main.stage.path("work");
        std::fs::create_dir(&work).unwrap();
        server.user().own(&work);
        let mut drill = with_identity(main, "drill main");
        drill.arg("--bin-dir").arg(bin_dir).arg("--work").arg(work);
        succeed(&mut drill);
    }
}

/// Goal: a backup without an identity is proved by its last segment, also if the server recycles that before the look at
/// the archive.
/// Method: checkpoints and switches run without a pause while the backup waits for its WAL.
#[test]
fn a_backup_with_public_keys_alone_outlives_its_last_segment() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = main_of(&installation);
    let server = &main.stage.server;
    server.psql("alter system set wal_keep_size = 0");
    server.psql("alter system set min_wal_size = '32MB'");
    server.psql("select pg_reload_conf()");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.psql("insert into marker values (7)");
                server.psql("select pg_switch_wal()");
                server.psql("checkpoint");
            }
        });
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..6 {
                back_up(&main);
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        made.unwrap();
    });
}

#[test]
fn a_server_with_public_keys_alone_archives_what_the_identity_recovers() {
    for installation in installations().iter().rev().take(2) {
        let main = main_of(installation);
        let server = &main.stage.server;
        back_up(&main);
        let one = main.mark(1);
        main.fill_segments();
        back_up(&main);
        main.mark(2);
        main.archived(server);

        // Every segment is a skippable frame to stock tools, and a history would not be one.
        let newest = last(&main);
        let path = main.stage.path("log/main").join(&newest[..16]);
        let path = path.join(format!("{newest}.zst"));
        let shown = Command::new("zstd")
            .arg("-dcq")
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            shown.status.success() && shown.stdout.is_empty(),
            "{path:?}"
        );
        // The server pushes one again, as it does after a crash.
        let own = server.data_dir().join("pg_wal").join(&newest);
        let again = succeed(line(&main, "wal push --database main --json").arg(&own));
        assert_eq!(answer(&again)["already"], true);
        let checked = line(&main, "check main --archive-wait 20")
            .output()
            .unwrap();
        let told = said(&checked);
        assert!(told.contains("arrived, as the server says"), "{told}");

        // Without the identity nothing is read, and nothing is written.
        let data = main.stage.path("closed");
        let mut closed = line(&main, "restore --database main --to");
        let refused = end(closed.arg(&data), 4);
        assert!(said(&refused).contains("--identity"), "{}", said(&refused));
        assert!(!data.exists());
        end(&mut line(&main, "wal list --database main --verify"), 4);
        succeed(&mut line(&main, "wal list --database main"));
        succeed(&mut with_identity(
            &main,
            "wal list --database main --verify",
        ));

        // A history that no server made has no segments: whoever demands encryption is told.
        let now = main.stage.server.psql("select pg_current_wal_lsn()");
        let forged = main.stage.path("00000002.history");
        std::fs::write(&forged, format!("1\t{now}\tno recovery target\n")).unwrap();
        server.user().own(&forged);
        succeed(line(&main, "wal push --database main").arg(&forged));
        let followed = |more: &str| {
            let words = "restore --database main --dry-run --require-encryption";
            let mut restore = with_identity(&main, words);
            restore.arg("--to").arg(main.stage.path("dry"));
            let output = restore.args(more.split_whitespace()).output();
            said(&output.unwrap())
        };
        let told = followed("");
        assert!(told.contains("a history and no segment"), "{told}");
        let told = followed("--target-timeline current");
        assert!(!told.contains("a history and no segment"), "{told}");
        let added = main.stage.path("log/main/00000002.history.zst");
        std::fs::remove_file(added).unwrap();

        for (name, more, expected) in [
            (
                "to a moment",
                &["--target-time", one.time.as_str()][..],
                "0 0 0",
            ),
            ("to the end", &[], "0 0 0 1 2"),
        ] {
            let data = main.stage.path(name);
            let mut restore = with_identity(&main, "restore --database main --json");
            let told = succeed(restore.arg("--to").arg(&data).args(more));
            assert!(answer(&told)["chosen"]["archive"].is_string());
            let restored = main.stage.adopt(&data);
            restored.start();
            let found = reached(&restored);
            match more.is_empty() {
                true => assert_eq!(found, expected),
                // The moment is before the segments that were filled.
                false => assert_eq!(found, "1"),
            }
        }
        assert_eq!(markers(server), "0 0 0 1 2");
        succeed(&mut with_identity(&main, "verify --all --database main"));
        drilled(&main);

        // A server that was set back pushes other bytes under a name that is there.
        let mut bytes = std::fs::read(&own).unwrap();
        bytes[100_000] ^= 1;
        let forged = main.stage.path("data/pg_wal");
        std::fs::create_dir_all(&forged).unwrap();
        std::fs::create_dir_all(main.stage.path("data/global")).unwrap();
        let control = main.stage.path("data/global/pg_control");
        std::fs::copy(server.data_dir().join("global/pg_control"), &control).unwrap();
        let forged = forged.join(&newest);
        std::fs::write(&forged, bytes).unwrap();
        server.user().own(&main.stage.path("data"));
        end(line(&main, "wal push --database main").arg(&forged), 7);
    }
}

/// Goal: segments are compared by a secret that PostgreSQL keeps, wherever its versions keep it.
#[test]
fn the_secret_of_a_cluster_is_the_one_that_pg_controldata_shows() {
    for installation in installations().iter() {
        let main = longshore_kit::Server::create(installation, longshore_kit::Options::default());
        let control = std::fs::read(main.data_dir().join("global/pg_control")).unwrap();
        let secret = longshore_pg::cluster_secret(&control).unwrap();
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = main.command("pg_controldata").arg(main.data_dir()).output();
        let shown = text(&shown.unwrap().stdout);
        assert!(shown.contains(&hex), "{shown}");
    }
}

/// Goal: a backup that a further identity opens, and whose WAL it does not, is no surprise: `key rewrap` says so.
#[test]
fn a_further_identity_is_told_that_it_opens_backups_and_no_wal() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = main_of(&installation);
    back_up(&main);
    let further = main.stage.path("further");
    let made = succeed(line(&main, "key new").arg(&further));
    let mut rewrap = with_identity(&main, "key rewrap --database main");
    rewrap.arg("--encrypt-to").arg(text(&made.stdout).trim());
    let told = rewrap.output().unwrap();
    assert_eq!(told.status.code(), Some(5), "{}", said(&told));
    assert!(said(&told).contains("NOT recovered"), "{}", said(&told));
    // Its contents are opened: the WAL alone is missing.
    let mut list = line(&main, "list --database main --files --identity");
    let listed = succeed(list.arg(&further));
    assert!(said(&listed).contains("PG_VERSION"));
}
