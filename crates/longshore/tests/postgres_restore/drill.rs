//! Goal: drills of backups whose WAL is in an archive prove it or name what is missing; the archive is unchanged, and
//! nothing is left behind, not even by a killed drill.
//! Method: real servers of the installed major versions, with tablespaces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_kit::{Installation, PATIENCE, Stop, representatives};

use crate::common::{end, read, text};
use crate::named::Main;
use crate::stage::succeed;

/// Small distributions of PostgreSQL leave pg_amcheck out; a drill needs it.
pub fn drillable() -> Vec<Installation> {
    let mut found = representatives();
    found.retain(|i| i.bin_dir.join("pg_amcheck").exists());
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(!found.is_empty() || !required, "run scripts/setup.sh");
    found
}

fn drill(main: &Main) -> Command {
    let mut drill = main.command("drill main");
    drill
        .arg("--bin-dir")
        .arg(&main.stage.server.installation().bin_dir);
    drill.arg("--work").arg(main.stage.path("work"));
    drill
}

fn left(work: &Path) -> usize {
    work.read_dir().unwrap().count()
}

fn staged(installation: &Installation) -> Main {
    let main = Main::new(installation);
    let server = &main.stage.server;
    main.stage.tablespace("s");
    server.psql("create table far tablespace s as select generate_series(1, 3000) i");
    std::fs::create_dir(main.stage.path("work")).unwrap();
    main.back_up();
    main
}

/// Goal: whoever goes on with the WAL of an archive that refused a server's is told that it may be another branch's.
#[test]
fn drills_and_restores_by_name_say_that_the_archive_refused_a_server() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    std::fs::create_dir(main.stage.path("work")).unwrap();
    main.back_up();
    let later = main.mark(1);
    server.psql("select pg_switch_wal()");
    main.archived(server);
    let warning = "two branches of the cluster archive there";
    let said = |command: &mut Command, code: i32| {
        let output = end(command, code);
        text(&output.stdout) + &text(&output.stderr)
    };
    let drilled = |code: i32| said(&mut drill(&main), code);
    assert!(!drilled(0).contains(warning));
    let restored =
        |name: &str, more: &[&str], code: i32| said(&mut main.restore(name, more).1, code);
    assert!(!restored("before", &[], 0).contains(warning));

    // Another server's segment of this name.
    let name = server.psql(&format!("select pg_walfile_name('{}')", later.lsn));
    let mut other = std::fs::read(server.data_dir().join("pg_wal").join(&name)).unwrap();
    other[100_000] ^= 1;
    std::fs::write(main.stage.path(&name), other).unwrap();
    let archive = main.segment(&later.lsn);
    let archive = archive.parent().unwrap().parent().unwrap();
    end(&mut main.push(&main.stage.path(&name), archive), 7);

    let said = drilled(5);
    assert!(said.contains(warning), "{said}");
    let said = restored("after", &[], 5);
    assert!(said.contains(warning), "{said}");
    // The backup's own end needs only WAL that was compared with its server's.
    let said = restored("its own end", &["--target-immediate"], 0);
    assert!(!said.contains(warning), "{said}");
}

/// Goal: a drill proves the archive's WAL by itself, not only by a recovery that may get along without it.
#[test]
fn a_drill_proves_the_wal_of_its_backup_and_names_what_is_missing() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = Main::new(&installation);
    std::fs::create_dir(main.stage.path("work")).unwrap();
    main.back_up();
    // The backup has waited for the segment in which it ended, the newest.
    let info = crate::common::answer(&succeed(&mut main.command("info main --json")));
    let log = &info["databases"][0]["backups"][0]["log"];
    let newest = main.segment(log["last"].as_str().unwrap());
    std::fs::remove_file(&newest).unwrap();
    let newest = newest.file_stem().unwrap().to_str().unwrap();
    let output = end(drill(&main).arg("--json"), 1);
    let answer = longshore_kit::program::answer(&output);
    let proofs = answer["proofs"].as_array().unwrap();
    let log = proofs.iter().find(|proof| proof["what"] == "log").unwrap();
    assert_eq!(log["sound"], false);
    // In the words of the proof: the copy would find it missing in others.
    let text = log["text"].as_str().unwrap();
    assert!(
        text.contains("lacks WAL between") && text.contains(newest),
        "{log}"
    );
    assert_eq!(left(&main.stage.path("work")), 0);
}

/// Goal: WAL after a backup that no server replays fails its drill, and says nothing about the backup: it is neither good nor
/// bad by this.
/// Method: the server runs with `wal_level = minimal` for a while, all within one archived segment.
#[test]
fn a_recovery_that_fails_after_the_backups_end_is_the_later_wals_fault() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = Main::new(&installation);
    std::fs::create_dir(main.stage.path("work")).unwrap();
    main.back_up();
    let server = &main.stage.server;
    main.mark(1);
    for (level, senders, mode) in [("minimal", 0, "off"), ("replica", 10, "on")] {
        server.append_conf(&format!(
            "wal_level = {level}\nmax_wal_senders = {senders}\narchive_mode = {mode}"
        ));
        server.stop(Stop::Fast);
        server.start();
        server.psql("insert into marker values (2)");
    }
    main.fill_segments();
    main.archived(server);
    let answer = longshore_kit::program::answer(&end(drill(&main).arg("--json"), 1));
    let proof = |what: &str| {
        let proofs = answer["proofs"].as_array().unwrap();
        proofs.iter().find(|proof| proof["what"] == what).unwrap()
    };
    assert_eq!(proof("recovered")["sound"], true, "{answer}");
    let later = proof("later WAL");
    assert_eq!(later["sound"], false, "{answer}");
    let told = later["text"].as_str().unwrap();
    assert!(told.contains("replayed to its end, and then"), "{told}");
    assert!(told.contains("wal_level=minimal"), "{told}");
    let said = text(&end(&mut drill(&main), 1).stdout);
    assert!(
        said.contains("was not checked, and WAL after it is NOT GOOD"),
        "{said}"
    );
    let info = longshore_kit::program::answer(&end(&mut main.command("info main --json"), 0));
    let results = &info["databases"][0]["results"];
    assert_eq!(results["last_failed"][0]["task"], "drill", "{info}");
    assert!(
        results["last_drilled"].is_null(),
        "it was not checked: {info}"
    );
    assert_eq!(results["all"].to_string(), "[]", "{info}");
    assert!(info["databases"][0]["last_good"].is_string(), "{info}");
}

/// Goal: a drill replays what was archived after the backup, and a segment there that no recovery crosses fails it without
/// a word against the backup.
#[test]
fn a_drill_replays_the_wal_after_its_backup_and_finds_what_is_broken_there() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = Main::new(&installation);
    std::fs::create_dir(main.stage.path("work")).unwrap();
    main.back_up();
    main.fill_segments();
    let later = main.mark(7);
    main.stage.server.psql("select pg_switch_wal()");
    main.archived(&main.stage.server);
    let drilled = |code: i32| {
        let answer = longshore_kit::program::answer(&end(drill(&main).arg("--json"), code));
        let proofs = answer["proofs"].as_array().unwrap().clone();
        let later = proofs
            .into_iter()
            .find(|proof| proof["what"] == "later WAL");
        (answer, later.unwrap())
    };
    let (answer, proof) = drilled(0);
    assert_eq!(proof["sound"], true, "{answer}");
    let told = proof["text"].as_str().unwrap();
    let count: u64 = told.split(' ').next().unwrap().parse().unwrap();
    assert!(count >= 4, "{told}");
    assert!(told.contains("with the transactions up to "), "{told}");
    let path = main.segment(&later.lsn);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (answer, proof) = drilled(1);
    let told = proof["text"].as_str().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(told.contains(name) && told.contains("is damaged"), "{told}");
    assert_eq!(proof["sound"], false, "{answer}");
    let said = text(&end(&mut drill(&main), 1).stdout);
    assert!(
        said.contains("is good, and WAL after it is NOT GOOD"),
        "{said}"
    );
    let info = longshore_kit::program::answer(&end(&mut main.command("info main --json"), 0));
    let results = &info["databases"][0]["results"];
    assert_eq!(results["last_failed"][0]["task"], "drill", "{info}");
    assert!(
        results["last_drilled"].is_object(),
        "the backup is good: {info}"
    );
}

#[test]
fn a_backup_without_its_log_is_drilled_with_that_of_the_archive_which_stays_as_it_is() {
    for installation in drillable() {
        let main = staged(&installation);
        main.archived(&main.stage.server);
        let (work, archive) = (main.stage.path("work"), main.stage.path("log"));
        // Any other writer to the archive would be seen.
        let before = read(&archive);
        let said = text(&succeed(&mut drill(&main)).stdout);
        for part in [
            "segments from the archive",
            "recovered",
            "pg_amcheck",
            "page checksums",
            "is good",
        ] {
            assert!(
                said.contains(part),
                "{}: {part}: {said}",
                installation.major
            );
        }
        assert!(read(&archive) == before, "the archive was touched");
        assert_eq!(left(&work), 0);
        // Its own tablespace was not touched either.
        assert_eq!(main.stage.server.psql("select count(*) from far"), "3000");

        // A differential one with the full one that it needs.
        succeed(&mut main.command("backup main --differential"));
        let said = text(&succeed(&mut drill(&main)).stdout);
        assert!(
            said.contains("-diff-") && said.contains("is good"),
            "{said}"
        );
        assert_eq!(left(&work), 0);

        let listed = succeed(&mut main.command("info main --json"));
        let info = crate::common::answer(&listed);
        let first = info["databases"][0]["backups"][1]["log"]["first"]
            .as_str()
            .unwrap()
            .to_owned();
        std::fs::remove_file(main.segment(&first)).unwrap();
        let output = drill(&main).output().unwrap();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("FAIL  log") && said.contains("is NOT GOOD"),
            "{said}"
        );
        assert_eq!(left(&work), 0);
    }
}

/// Goal: a drill reports damage in the restored cluster, and still cleans up: a page that was damaged in its origin,
/// and a stripe that was damaged since.
#[test]
fn a_damaged_cluster_is_not_good_and_nothing_is_left_of_it() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = staged(&installation);
    let server = &main.stage.server;
    let work = main.stage.path("work");
    let name = server.psql("select pg_relation_filepath('small')");
    server.stop(Stop::Fast);
    let path = server.data_dir().join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3 * 8192 + 4000] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    server.start();
    std::thread::sleep(Duration::from_millis(1100));
    let output = main.command("backup main").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let judged = || {
        let output = drill(&main).output().unwrap();
        assert_eq!(left(&work), 0, "{}", text(&output.stderr));
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    };
    let (code, said) = judged();
    assert_eq!(code, Some(1), "{said}");
    for part in ["FAIL  page checksums", "FAIL  pg_amcheck", "is NOT GOOD"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let newest = main.labels().into_iter().max().unwrap();
    let stripe = main
        .stage
        .path(&format!("disk1/main/{newest}/family-1.bak"));
    let mut bytes = std::fs::read(&stripe).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&stripe, bytes).unwrap();
    let (code, said) = judged();
    assert_eq!(code, Some(4), "{said}");
}

#[test]
fn a_drill_without_the_servers_programs_says_so_before_it_restores() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = staged(&installation);
    let catalog = main.stage.path("drills.db");
    let empty = main.stage.path("nothing");
    std::fs::create_dir(&empty).unwrap();
    let restores = || {
        let mut history = main.command("history --restores --json");
        let answer = succeed(history.env("LONGSHORE_CATALOG", &catalog));
        crate::common::answer(&answer)["rows"]
            .as_array()
            .map(Vec::len)
    };
    let mut without = main.command("drill main");
    without
        .args(["--bin-dir".as_ref(), empty.as_os_str()])
        .args(["--work".as_ref(), main.stage.path("work").as_os_str()])
        .env("LONGSHORE_CATALOG", &catalog);
    let output = without.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("no programs of PostgreSQL") && said.contains("--bin-dir"),
        "{said}"
    );
    assert_eq!(restores(), Some(0), "it was restored first");
    assert_eq!(left(&main.stage.path("work")), 0);
    // With them one restore is recorded: looking at the version is none.
    succeed(drill(&main).env("LONGSHORE_CATALOG", &catalog));
    assert_eq!(restores(), Some(1));
}

#[test]
fn the_next_drill_removes_files_of_a_killed_one() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = staged(&installation);
    let work = main.stage.path("work");
    // One directory is not a drill's, and one belongs to a drill that is being created.
    std::fs::create_dir(work.join("longshore-drill-notes")).unwrap();
    std::fs::create_dir(work.join("longshore-drill-00000000")).unwrap();
    let mut killed = drill(&main)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let running = || {
        let entries = work.read_dir().unwrap().map(|e| e.unwrap().path());
        entries
            .filter(|p| p.join("data/postmaster.pid").exists())
            .count()
            == 1
    };
    while !running() {
        assert!(
            begin.elapsed() < PATIENCE,
            "the drill's server did not start"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(left(&work), 3);
    // A drill that runs next to it is not touched.
    let working = || -> BTreeSet<PathBuf> {
        let entries = work.read_dir().unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.join("data").exists()).collect()
    };
    let before = working();
    let mut other = drill(&main).stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while working().is_subset(&before) {
        assert!(begin.elapsed() < PATIENCE, "the other drill did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = succeed(&mut drill(&main));
    assert!(other.wait().unwrap().success(), "{}", text(&output.stderr));
    assert_eq!(left(&work), 2, "{}", text(&output.stderr));
}
