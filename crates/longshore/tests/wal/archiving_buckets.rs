//! Goal: what a server hands to archive_command with --async is in the bucket, once and unbroken, although pushes and
//! look-aheads are killed at random moments; and the server's calls for segments that were pushed ahead make no request.
//! Method: a real server and real stores, versitygw and Azurite; segments wait before the archiver begins, so that the look-ahead has work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_kit::{Server, representatives};

use super::archiving::kill_pushes;
use super::stage::*;
use crate::common::store::Store;

fn archive(store: &Store) -> String {
    format!("{}/pushed", store.bucket())
}

fn run_there(store: &Store, server: &Server, args: &[&str]) -> std::process::Output {
    let mut command = longshore(server, args);
    command
        .envs(store.settings())
        .args(["--archive", &archive(store)]);
    command.output().unwrap()
}

#[test]
fn an_archiver_into_a_bucket_that_is_killed_over_and_over_loses_nothing() {
    for store in [Store::new(), Store::azure()].into_iter().flatten() {
        killed(&store);
    }
}

fn killed(store: &Store) {
    let archive = archive(store);
    let all = representatives();
    let Some(installation) = all.last() else {
        return;
    };
    let server = server(
        installation,
        &[("archive_mode", "on"), ("archive_command", "false")],
    );
    server.start();
    let created = run_there(store, &server, &["wal", "create"]);
    assert_eq!(code(&created), 0, "{}", text(&created));
    work(&server, 30);
    let settings = store.shell();
    server.psql(&format!(
        "alter system set archive_command = '{settings}{BINARY} wal push %p --archive {archive} --async'"
    ));
    let stop = AtomicBool::new(false);
    let killed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let before = killed.fetch_add(kill_pushes(&archive), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200 + 7 * (before % 60)));
            }
        });
        server.psql("select pg_reload_conf()");
        // On a fast machine few pushes last until they are seen.
        let mut rounds = 0..20;
        while rounds.next().is_some() {
            work(&server, 15);
            if killed.load(Ordering::Relaxed) > 3 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let killed = killed.into_inner();
    assert!(killed > 0);
    server.psql("insert into t (filler) values ('the last of its segment')");
    let last = server.psql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    server.psql("select pg_switch_wal()");
    server.wait_for(READY, "0");
    let listed = run_there(store, &server, &["wal", "list", "--verify", "--json"]);
    assert_eq!(code(&listed), 0, "{killed} killed: {}", text(&listed));
    let facts = longshore_kit::program::answer(&listed);
    assert_eq!(facts["runs"].as_array().unwrap().len(), 1, "{facts}");
    assert_eq!(facts["runs"][0]["last"], last, "{facts}");
    // Every segment was archived once, so the archiver has no failure but its killed calls.
    let archived = "select archived_count >= 45 from pg_stat_archiver";
    assert_eq!(server.psql(archived), "t");
}

/// Goal: with `copy_at_once`, what the server archives to a directory is in a bucket within seconds, unbroken; a bucket that
/// is away stops nothing.
#[test]
fn wal_goes_on_at_once_to_a_copy_in_a_bucket() {
    for store in [Store::new(), Store::azure()].into_iter().flatten() {
        at_once(&store);
    }
}

fn at_once(store: &Store) {
    let all = representatives();
    let Some(installation) = all.last() else {
        return;
    };
    let server = server(installation, &[("archive_mode", "on")]);
    let near = std::path::PathBuf::from(beside(&server, "near"));
    std::fs::create_dir(&near).unwrap();
    server.user().own(&near);
    let config = beside(&server, "longshore.toml");
    let text_of = |bucket: &str| {
        format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"near\"\ncopies = [\"far\"]\n\
             [database.main.wal]\ncopy_at_once = true\n\
             [target.near]\ndirectories = [\"{}\"]\n[target.far]\nbuckets = [\"{bucket}\"]\n",
            server.url(),
            near.display(),
        )
    };
    let bucket = format!("{}/copy", store.bucket());
    std::fs::write(&config, text_of(&bucket)).unwrap();
    let ran = |line: &str| {
        let mut args = vec!["--catalog", "none", "--config", &config];
        args.extend(line.split(' '));
        let program = &mut longshore(&server, &args);
        program.envs(store.settings()).output().unwrap()
    };
    let done = |line: &str, expected: i32| {
        let output = ran(line);
        assert_eq!(code(&output), expected, "{line}: {}", text(&output));
        output
    };
    done("wal create --database main", 0);
    done("wal create --database main --target far", 0);
    let settings = store.shell();
    server.append_conf(&format!(
        "archive_command = '{settings}{BINARY} --config {config} wal push %p --database main'"
    ));
    server.start();
    let archive = format!("{}/main/wal", near.display());
    let has_all = || {
        let here = longshore_kit::program::answer(&done("--json wal list --database main", 0));
        let there = ran("--json wal list --database main --target far");
        // Nothing has reached it yet.
        if text(&there).contains("is still empty") {
            return false;
        }
        assert_eq!(code(&there), 0, "{}", text(&there));
        let there = longshore_kit::program::answer(&there);
        let ends = |facts: &serde_json::Value| {
            let runs = facts["runs"].as_array().unwrap();
            assert!(runs.len() < 2, "a hole: {facts}");
            runs.first()
                .map(|run| (run["first"].clone(), run["last"].clone()))
        };
        ends(&here).is_some() && ends(&here) == ends(&there)
    };
    work(&server, 3);
    archived(&server, &archive);
    wait_until("the bucket has all", &server, has_all);
    // The bucket is away: another one, which does not exist.
    let away = bucket.replace("nightly", "nowhere-at-all");
    std::fs::write(&config, text_of(&away)).unwrap();
    work(&server, 2);
    archived(&server, &archive);
    let failed = "select failed_count from pg_stat_archiver";
    assert_eq!(server.psql(failed), "0");
    wait_until("the server's log tells", &server, || {
        work(&server, 1);
        archived(&server, &archive);
        server.log().contains("target far may lack")
    });
    std::fs::write(&config, text_of(&bucket)).unwrap();
    // A push during the last attempt at the other bucket starts nothing: the next push does.
    wait_until("the bucket catches up", &server, || {
        work(&server, 1);
        archived(&server, &archive);
        has_all()
    });
    done("wal list --database main --target far --verify", 0);
}

/// Goal: an archive in a store that was away gets what it is owed from a copy in another one, which keeps it until then.
/// Method: the bucket of the first one is taken away from the store; `wal needs` shows what the copy keeps.
#[test]
fn an_archive_in_a_store_gets_what_it_is_owed_from_another_store() {
    let (Some(store), Some(installation)) = (Store::new(), representatives().pop()) else {
        return;
    };
    let server = server(&installation, &[("archive_mode", "on")]);
    let at = |name: &str| store.root().join("store").join(name);
    std::fs::create_dir(at("second")).unwrap();
    let config = beside(&server, "longshore.toml");
    let settings = format!(
        "[database.main]\nurl = \"{}\"\ntarget = \"near\"\ncopies = [\"far\"]\n\
         [database.main.wal]\ncopy_at_once = true\nhome_behind = \"64M\"\n\
         [target.near]\nbuckets = [\"s3://nightly/near\"]\n[target.far]\nbuckets = [\"s3://second/far\"]\n",
        server.url(),
    );
    std::fs::write(&config, settings).unwrap();
    let done = |line: &str| {
        let mut args = vec!["--catalog", "none", "--config", &config];
        args.extend(line.split(' '));
        let output = longshore(&server, &args)
            .envs(store.settings())
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{line}: {}", text(&output));
        longshore_kit::program::answer(&output)
    };
    done("--json wal create --database main");
    done("--json wal create --database main --target far");
    let settings = store.shell();
    server.append_conf(&format!(
        "archive_command = '{settings}{BINARY} --config {config} wal push %p --database main'"
    ));
    server.start();
    work(&server, 3);
    server.wait_for(READY, "0");
    let owed = || {
        let list = server.data_dir().join("pg_wal/longshore/owed");
        let list = std::fs::read_to_string(list).unwrap_or_default();
        list.lines().filter(|line| line.starts_with("0000")).count()
    };
    let debts = || {
        let shown = done("--json wal needs --database main --target far");
        let needs = shown["needs"].as_array().unwrap().clone();
        needs
            .iter()
            .filter(|need| need["purpose"] == "debt")
            .count()
    };
    assert_eq!((owed(), debts()), (0, 0));
    std::fs::rename(at("nightly"), at("away")).unwrap();
    wait_until("files are owed", &server, || {
        work(&server, 1);
        owed() >= 3
    });
    assert_eq!(debts(), 1);
    std::fs::rename(at("away"), at("nightly")).unwrap();
    wait_until("the debt is paid", &server, || {
        // The server stays busy: new files go to the store that is back while older ones are brought.
        work(&server, 1);
        owed() == 0 && debts() == 0
    });
    server.wait_for(READY, "0");
    let listed = done("--json wal list --database main --verify");
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
}
