//! Goal: two targets whose backups rely on one archive, as on two hosts, keep each other's WAL; an expire says whose
//! WAL it keeps.
//! Method: a real server, two configurations and targets on this machine.
//! Not covered: two real hosts, and expires at the same moment.

use std::path::Path;
use std::process::Output;

use longshore_kit::{Server, representatives};
use serde_json::Value;

use super::stage::*;

struct Site {
    server: Server,
    archive: String,
}

impl Site {
    /// A server that archives, with a configuration for each of two targets.
    fn new() -> Site {
        let installation = representatives().remove(0);
        let server = server(&installation, &[("archive_mode", "on")]);
        let archive = new_archive(&server, "archive");
        server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
        ));
        server.start();
        work(&server, 1);
        for name in ["one", "two"] {
            let directory = beside(&server, name);
            let made = server
                .command_at(Path::new("/bin/mkdir"))
                .arg(&directory)
                .status();
            assert!(made.unwrap().success());
            let text = format!(
                "[database.main]\nurl = \"{}\"\ntarget = \"nightly\"\n[database.main.wal]\narchive = \"{archive}\"\n\
                 [target.nightly]\ndirectories = [\"{directory}\"]\n",
                server.url()
            );
            std::fs::write(format!("{directory}.toml"), text).unwrap();
        }
        Site { server, archive }
    }

    fn at(&self, target: &str, args: &[&str]) -> Output {
        let config = beside(&self.server, &format!("{target}.toml"));
        let first = ["--catalog", "none", "--config", &config];
        run(&self.server, &[&first[..], args].concat())
    }

    fn answer(&self, target: &str, args: &[&str], expected: i32) -> Value {
        let output = self.at(target, &[args, &["--json"]].concat());
        assert_eq!(code(&output), expected, "{}", text(&output));
        longshore_kit::program::answer(&output)
    }

    fn back_up(&self, target: &str) {
        self.answer(target, &["backup", "main", "--wal-wait", "60"], 0);
        work(&self.server, 3);
        archived(&self.server, &self.archive);
    }

    fn expire(&self, target: &str, expected: i32) -> Value {
        let answer = self.answer(target, &["expire", "main", "--keep-full", "1"], expected);
        answer["databases"][0].clone()
    }
}

/// Goal: backups at two targets that do not know each other, and have the same names, rely on one archive: neither's
/// expire removes the other's WAL, both say whose it is, and the records of a target that is gone can be removed.
#[test]
fn an_expire_keeps_what_the_backups_of_another_target_need() {
    let site = Site::new();
    let (server, archive) = (&site.server, &site.archive);
    site.back_up("two");
    site.back_up("one");
    site.back_up("one");
    let output = site.at("one", &["expire", "main", "--keep-full", "1"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let two = beside(server, "two");
    for part in [
        "older WAL is kept for main at target nightly",
        &two,
        "wal needs --archive",
    ] {
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    }
    let kept = segments(archive);

    // The other's backup is restored, to the end of the WAL.
    let data = beside(server, "restored");
    let restore = [
        "restore",
        "--database",
        "main",
        "--no-archiving",
        "--to",
        &data,
    ];
    let output = site.at("two", &restore);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let restored = Server::adopt(server.installation(), Path::new(&data));
    restored.start();
    restored.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(rows(&restored), rows(server));
    drop(restored);

    // It is gone.
    let needs = site.answer("one", &["wal", "needs", "--archive", archive], 0);
    let needs = needs["needs"].as_array().unwrap().clone();
    assert_eq!(needs.len(), 2);
    let gone = needs
        .iter()
        .find(|n| n["directory"].as_str().unwrap().contains("/two/"))
        .unwrap();
    std::fs::remove_dir_all(&two).unwrap();
    let id = gone["id"].as_str().unwrap();
    let after = site.answer(
        "one",
        &["wal", "needs", "--archive", archive, "--forget", id],
        0,
    );
    assert_eq!(after["needs"].as_array().unwrap().len(), 1);
    let output = site.at(
        "one",
        &["wal", "needs", "--archive", archive, "--forget", id],
    );
    assert_eq!(code(&output), 2, "{}", text(&output));
    let expired = site.expire("one", 0);
    assert!(
        expired["wal_files_removed"].as_u64().unwrap() > 0,
        "{expired}"
    );
    assert!(segments(archive).len() < kept.len());
    assert_eq!(expired["wal_kept_for"], serde_json::json!([]));
}

/// Goal: if a version that left no records used the archive, no WAL is removed until the user declares that all have
/// left theirs.
#[test]
fn an_archive_of_an_earlier_version_keeps_its_log_until_all_have_left_word() {
    let site = Site::new();
    let archive = &site.archive;
    site.back_up("one");
    site.back_up("two");
    site.back_up("one");
    std::fs::remove_dir_all(format!("{archive}/needs")).unwrap();
    let before = segments(archive);
    let expired = site.expire("one", 5);
    let why = expired["wal_kept_because"].as_str().unwrap();
    assert!(why.contains("--complete"), "{why}");
    assert_eq!(segments(archive), before);
    for more in [&[][..], &["--target", "nightly"]] {
        let by_name = [&["wal", "needs", "--database", "main"], more].concat();
        let answer = site.answer("one", &by_name, 5);
        assert_eq!(answer["needs"].as_array().unwrap().len(), 1, "{answer}");
    }
    // The other target has no record yet; it leaves one first, as the message says.
    site.expire("two", 5);
    let all = site.answer(
        "one",
        &["wal", "needs", "--archive", archive, "--complete"],
        0,
    );
    assert_eq!(all["needs"].as_array().unwrap().len(), 2);
    let expired = site.expire("one", 0);
    assert_eq!(
        expired["wal_kept_for"].as_array().unwrap().len(),
        1,
        "{expired}"
    );
}

/// Goal: a backup that cannot leave its record in the archive says so before it reads anything, and what to do.
#[test]
fn a_backup_that_cannot_write_in_its_archive_is_refused_with_the_way_around() {
    let site = Site::new();
    let needs = format!("{}/needs", site.archive);
    let rights = |mode: &str| {
        let mut chmod = site.server.command_at(Path::new("/bin/chmod"));
        assert!(chmod.args([mode, &needs]).status().unwrap().success());
    };
    rights("0500");
    let output = site.at("one", &["backup", "main"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert!(text(&output).contains("--with-wal"), "{}", text(&output));
    let output = site.at("one", &["backup", "main", "--with-wal"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    rights("0700");
    let output = site.at("one", &["backup", "main"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
}
