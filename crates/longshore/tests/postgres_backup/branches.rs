//! Goal: at one target, several branches of a cluster are kept apart: a copy that continues its origin's nightly job, a
//! disk snapshot that was rolled back, a cluster created again under the same name. System identifier, timeline and
//! name agree; nothing else may be mixed.
//! Method: real servers whose directories are copied, set back and exchanged; rows of a table tell the branches apart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Server, Stop, representatives};
use serde_json::Value;

use crate::common::{longshore, text};
use crate::stage::Stage;

/// A target of one directory, which any server may be backed up to as `main`.
struct Shared {
    stage: Stage,
    config: PathBuf,
}

impl Shared {
    fn new(installation: &Installation, conf: &[(&str, &str)]) -> Shared {
        let stage = Stage::new(installation, conf);
        let disk = stage.path("disk");
        std::fs::create_dir(&disk).unwrap();
        let config = stage.path("longshore.toml");
        let url = stage.server.url();
        let lines = format!(
            "[database.main]\nurl = \"{url}\"\ntarget = \"t\"\n[target.t]\ndirectories = [\"{}\"]\n",
            disk.display()
        );
        std::fs::write(&config, lines).unwrap();
        Shared { stage, config }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = longshore(["--config".as_ref(), self.config.as_os_str()]);
        command.args(words);
        command
    }

    /// Runs to the end; returns the exit code, the answer and the messages.
    fn run(&self, words: &[&str]) -> (i32, Value, String) {
        let output = self.command(words).output().unwrap();
        let said = text(&output.stderr);
        longshore_kit::schema::check_if_answer(&output.stdout);
        let told = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.code().unwrap(), told, said)
    }

    /// Backs a server up as `main`; returns the exit code, the new label and the messages.
    fn back_up(&self, server: &Server, more: &[&str]) -> (i32, Value, String) {
        let url = server.url();
        let words = [
            "backup",
            &url,
            "--database",
            "main",
            "--target",
            "t",
            "--json",
        ];
        let (code, told, said) = self.run(&[&words, more].concat());
        assert!(told["set"].is_string(), "{code} {said} {told}");
        let said = format!("{said}{}", told["warnings"]);
        (code, told, said)
    }

    fn info(&self) -> Value {
        let (code, told, said) = self.run(&["info", "main", "--json"]);
        assert_eq!(code, 0, "{said}");
        told["databases"][0].clone()
    }

    fn labels(&self) -> Vec<String> {
        let rows = self.info()["backups"].as_array().unwrap().clone();
        let label = |row: &Value| row["label"].as_str().unwrap().to_owned();
        rows.iter().map(label).collect()
    }

    /// The label of a set.
    fn label_of(&self, set: &Value) -> String {
        let rows = self.info()["backups"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["set"] == *set).unwrap();
        row["label"].as_str().unwrap().to_owned()
    }

    /// The rows of a restored backup's table that distinguishes the branches.
    fn rows_of(&self, name: &str, more: &[&str]) -> String {
        let to = self.stage.path(name);
        let words = [
            "restore",
            "--database",
            "main",
            "--to",
            to.to_str().unwrap(),
        ];
        let (code, _, said) = self.run(&[&words, more].concat());
        assert_eq!(code, 0, "{said}");
        self.stage.server.user().own(&to);
        let server = Server::adopt(self.stage.server.installation(), &to);
        server.start();
        server.psql("select string_agg(who, ' ' order by n) from told")
    }
}

fn tell(server: &Server, who: &str) {
    server.psql(&format!("insert into told (who) values ('{who}')"));
}

fn prepare(server: &Server) {
    server.psql("create table told (n serial, who text)");
    tell(server, "origin");
}

/// Like `cp -a`: another directory with the same bytes.
fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(done.unwrap().success());
}

/// A copy of the stopped server's directory.
fn clone_of(shared: &Shared, name: &str) -> Server {
    let path = shared.stage.path(name);
    copied(shared.stage.server.data_dir(), &path);
    Server::adopt(shared.stage.server.installation(), &path)
}

/// Opens a restored or copied cluster on a timeline of its own.
fn open_on_a_new_timeline(server: &Server) {
    server.append_conf("restore_command = 'false'\n");
    std::fs::write(server.data_dir().join("recovery.signal"), "").unwrap();
    server.user().own(server.data_dir());
    server.start();
    server.wait_for("select pg_is_in_recovery()", "f");
}

/// Goal: a copy that continues the nightly job of its origin costs the origin neither its base nor its backups, and
/// all commands report it.
fn mixed(shared: &Shared, production: &Server, copy: &Server) {
    let (code, first, _) = shared.back_up(production, &[]);
    assert_eq!(code, 0);
    tell(copy, "copy");
    let (code, theirs, said) = shared.back_up(copy, &[]);
    assert!(code == 0 || code == 5, "{said}");
    tell(production, "production");
    production.psql("checkpoint");

    // The copy's full backup is the newest, and is no base.
    let (_, differential, said) = shared.back_up(production, &["--differential", "--or-full"]);
    assert_eq!(
        differential["differential"]["parent"], first["set"],
        "{said}"
    );
    let (theirs, ours) = (
        shared.label_of(&theirs["set"]),
        shared.label_of(&differential["set"]),
    );
    assert!(said.contains(&theirs), "{said}");
    assert_eq!(
        shared.rows_of("ours", &["--label", &ours]),
        "origin production"
    );

    // No command guesses which branch is meant.
    let to = shared.stage.path("nowhere");
    let restore = [
        "restore",
        "--database",
        "main",
        "--to",
        to.to_str().unwrap(),
    ];
    let (code, _, said) = shared.run(&restore);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains(&theirs) && said.contains(&ours), "{said}");
    assert!(said.contains("--label"), "{said}");
    assert!(!to.exists());
    let (code, _, said) = shared.run(&["drill", "main"]);
    assert_eq!(code, 4, "{said}");
    assert_eq!(
        shared.rows_of("theirs", &["--label", &theirs]),
        "origin copy"
    );

    let branches = shared.info()["branches"].as_array().unwrap().clone();
    assert_eq!(branches.len(), 2, "{branches:?}");
    let (_, checked, _) = shared.run(&["check", "main", "--archive-wait", "0", "--json"]);
    let findings = checked["databases"][0]["findings"].as_array().unwrap();
    let about = findings.iter().find(|f| f["what"] == "branches").unwrap();
    assert_ne!(about["grade"], "good");

    // Neither branch replaces the other.
    tell(copy, "copy again");
    let (_, _, said) = shared.back_up(copy, &[]);
    assert!(said.contains("does not continue"), "{said}");
    let (code, _, said) = shared.run(&["expire", "main", "--keep-full", "1"]);
    assert_eq!(code, 0, "{said}");
    let left = shared.labels();
    assert!(left.contains(&ours), "{left:?}");
    assert_eq!(
        left.len(),
        3,
        "production's chain and the copy's newest: {left:?}"
    );
}

#[test]
fn a_copied_directory_on_the_same_timeline_is_another_branch() {
    for installation in representatives() {
        let shared = Shared::new(&installation, &[]);
        let production = &shared.stage.server;
        prepare(production);
        production.stop(Stop::Fast);
        let copy = clone_of(&shared, "copy");
        production.start();
        copy.start();
        mixed(&shared, production, &copy);
    }
}

#[test]
fn two_restores_of_one_backup_are_two_branches_of_one_number() {
    for installation in representatives() {
        let shared = Shared::new(&installation, &[]);
        prepare(&shared.stage.server);
        let seed = shared.stage.backup("seed").output().unwrap();
        assert!(seed.status.success(), "{}", text(&seed.stderr));
        let restored = |name: &str| {
            let to = shared.stage.path(name);
            let media = shared.stage.path("seed");
            let words = [
                "restore",
                media.to_str().unwrap(),
                "--to",
                to.to_str().unwrap(),
            ];
            let (code, _, said) = shared.run(&words);
            assert_eq!(code, 0, "{said}");
            shared.stage.server.user().own(&to);
            let server = Server::adopt(&installation, &to);
            open_on_a_new_timeline(&server);
            let timeline = "select timeline_id from pg_control_checkpoint()";
            server.psql("checkpoint");
            assert_eq!(server.psql(timeline), "2");
            server
        };
        let (production, copy) = (restored("production"), restored("copy"));
        mixed(&shared, &production, &copy);
    }
}

/// Makes the data directory that the server's address leads to another one, as a name in front of two servers does.
fn exchange(server: &Server, to: &Path, from: &Path) {
    server.stop(Stop::Fast);
    std::fs::rename(server.data_dir(), to).unwrap();
    std::fs::rename(from, server.data_dir()).unwrap();
    server.start();
}

/// Goal: backups over a connection of a server and of its copy at the same address are two branches, whether the copy is
/// behind the server's last backup or past it, and whether the program can read the server's files or not.
#[test]
fn a_copy_that_answers_at_the_same_address_is_another_branch() {
    // Only root can run a program as another user.
    let is_root =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let as_whom: &[bool] = if is_root { &[false, true] } else { &[false] };
    let installations = representatives();
    let both = installations
        .iter()
        .flat_map(|i| as_whom.iter().map(move |whom| (i, *whom)));
    for (installation, is_stranger) in both {
        let shared = Shared::new(installation, &[("wal_keep_size", "256MB")]);
        let server = &shared.stage.server;
        prepare(server);
        server.stop(Stop::Fast);
        let copy = shared.stage.path("copy");
        copied(server.data_dir(), &copy);
        server.start();
        let url = server.url();
        let back_up = || {
            let options = ["--database", "main", "--target", "t", "--json"];
            let mut words = [&["backup", &url][..], &options].concat();
            if !is_stranger {
                words.push("--remote");
            }
            let mut command = shared.command(&words);
            if is_stranger {
                // Of a user who may not read the server's files, Longshore asks the server itself.
                std::os::unix::fs::chown(shared.stage.path("disk"), Some(1), Some(1)).unwrap();
                std::os::unix::process::CommandExt::uid(&mut command, 1);
                std::os::unix::process::CommandExt::gid(&mut command, 1);
                command.args(["--catalog", "none"]);
            }
            let output = command.output().unwrap();
            longshore_kit::schema::check_if_answer(&output.stdout);
            let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let said = format!("{}{}", text(&output.stderr), told["warnings"]);
            assert!(told["set"].is_string(), "{said}");
            (
                output.status.code().unwrap(),
                shared.label_of(&told["set"]),
                said,
            )
        };
        let away = shared.stage.path("away");

        tell(server, "production");
        let (_, first, _) = back_up();
        exchange(server, &away, &copy);
        tell(server, "copy");
        let (code, behind, said) = back_up();
        assert_eq!(code, 5, "{said}");
        assert!(
            said.contains("does not continue") && said.contains(&first),
            "{said}"
        );
        // Its WAL passes the end of what was backed up.
        server
            .psql("create table filler as select repeat('x', 500) from generate_series(1, 60000)");
        let (code, past, said) = back_up();
        assert_eq!(code, 5, "{said}");
        assert!(said.contains(&first), "{said}");
        exchange(server, &copy, &away);
        tell(server, "production again");
        let (_, last, _) = back_up();

        // Root leaves nothing in another user's target.
        if is_stranger {
            let disk = shared.stage.path("disk");
            let owned = Command::new("chown").args(["-R", "0:0"]).arg(disk).status();
            assert!(owned.unwrap().success());
        }
        let info = shared.info();
        let branches: Vec<_> = info["branches"].as_array().unwrap().iter().collect();
        assert_eq!(branches.len(), 2, "{branches:?}");
        assert!(branches.iter().all(|b| b["proved"] == true), "{branches:?}");
        let of = |label: &str| {
            let rows = info["backups"].as_array().unwrap();
            let row = rows.iter().find(|row| row["label"] == label).unwrap();
            row["branch_numbers"].clone()
        };
        assert_eq!((of(&first), of(&behind)), (of(&last), of(&past)));
        assert_ne!(of(&first), of(&behind));
        let to = shared.stage.path("nowhere");
        let words = [
            "restore",
            "--database",
            "main",
            "--to",
            to.to_str().unwrap(),
        ];
        let (code, _, said) = shared.run(&words);
        assert_eq!(code, 4, "{said}");
        let (code, _, said) = shared.run(&["expire", "main", "--keep-full", "1"]);
        assert_eq!(code, 0, "{said}");
        let left: BTreeSet<_> = shared.labels().into_iter().collect();
        assert_eq!(left, BTreeSet::from([past, last.clone()]));
        assert_eq!(
            shared.rows_of("last", &["--label", &last]),
            "origin production production again"
        );
    }
}

/// Goal: a backup of a future that a disk snapshot undid is neither a base nor the latest backup, and it is not lost.
#[test]
fn a_server_that_was_set_back_abandons_its_future() {
    for installation in representatives() {
        let shared = Shared::new(&installation, &[("wal_keep_size", "64MB")]);
        let server = &shared.stage.server;
        prepare(server);
        let (code, before, _) = shared.back_up(server, &[]);
        assert_eq!(code, 0);
        server.stop(Stop::Fast);
        let snapshot = shared.stage.path("snapshot");
        copied(server.data_dir(), &snapshot);
        server.start();
        tell(server, "undone");
        let (code, undone, _) = shared.back_up(server, &[]);
        assert_eq!(code, 0);
        server.stop(Stop::Fast);
        // The directory is the same one, as with a snapshot of its file system.
        for entry in std::fs::read_dir(server.data_dir()).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(&path).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
        }
        copied(&snapshot.join("."), server.data_dir());
        server.start();
        tell(server, "kept");
        // Its WAL passes the end of the undone WAL.
        server.psql(
            "create table filler as select n, repeat('x', 500) from generate_series(1, 9000) n",
        );
        server.psql("checkpoint");
        let words = ["--differential", "--or-full"];
        let (_, next, said) = shared.back_up(server, &words);
        let undone_label = shared.label_of(&undone["set"]);
        assert!(said.contains(&undone_label), "{said}");
        assert_ne!(next["differential"]["parent"], undone["set"], "{said}");
        if next["differential"].is_object() {
            assert_eq!(next["differential"]["parent"], before["set"]);
        }
        // The same server continued elsewhere: that branch is meant.
        assert_eq!(shared.rows_of("latest", &[]), "origin kept");
        assert_eq!(
            shared.rows_of("future", &["--label", &undone_label]),
            "origin undone"
        );
        shared.back_up(server, &[]);
        let (code, _, said) = shared.run(&["expire", "main", "--keep-full", "1"]);
        assert_eq!(code, 0, "{said}");
        let left = shared.labels();
        assert!(left.contains(&undone_label), "{left:?}");
        assert!(!left.contains(&shared_label(&before, &shared)), "{left:?}");
    }
}

/// Of a set that may be gone.
fn shared_label(report: &Value, shared: &Shared) -> String {
    let rows = shared.info()["backups"].as_array().unwrap().clone();
    let row = rows.iter().find(|row| row["set"] == report["set"]);
    row.map_or(String::new(), |row| {
        row["label"].as_str().unwrap().to_owned()
    })
}

/// Goal: the only backup of a cluster survives the backups of one created again under its name.
#[test]
fn a_new_cluster_does_not_take_anothers_place() {
    let installation = &representatives()[0];
    let shared = Shared::new(installation, &[]);
    prepare(&shared.stage.server);
    let (_, old, _) = shared.back_up(&shared.stage.server, &[]);
    let other = Stage::new(installation, &[]);
    prepare(&other.server);
    let (code, new, said) = shared.back_up(&other.server, &[]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("does not continue"), "{said}");
    let (code, _, said) = shared.run(&["expire", "main", "--keep-full", "1"]);
    assert_eq!(code, 0, "{said}");
    for report in [old, new] {
        assert_ne!(shared_label(&report, &shared), "");
    }
    let (code, _, said) = shared.run(&["check", "main", "--archive-wait", "0"]);
    assert_ne!(code, 0, "{said}");
}

/// Goal: the first backup of a server that is elsewhere, and no longer has the WAL that would show what it continues, says
/// that it begins a branch, and the next one says nothing.
#[test]
fn a_server_elsewhere_that_lacks_the_earlier_wal_says_that_a_branch_begins() {
    for installation in representatives() {
        let shared = Shared::new(&installation, &[("wal_keep_size", "0")]);
        let server = &shared.stage.server;
        prepare(server);
        let (code, first, said) = shared.back_up(server, &[]);
        assert_eq!(code, 0, "{said}");
        let label = shared.label_of(&first["set"]);
        server.stop(Stop::Fast);
        let moved = clone_of(&shared, "moved");
        moved.start();
        forget_the_log(&moved);
        let (code, _, said) = shared.back_up(&moved, &["--differential", "--or-full"]);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("begins a branch"), "{said}");
        assert!(said.contains(&label), "{said}");
        assert_eq!(shared.info()["branches"].as_array().unwrap().len(), 2);
        let (code, _, said) = shared.back_up(&moved, &[]);
        assert_eq!(code, 0, "{said}");
    }
}

/// Work after which a server that keeps no WAL has none of before.
fn forget_the_log(server: &Server) {
    for _ in 0..8 {
        tell(server, "more");
        server.psql("select pg_switch_wal()");
        server.psql("checkpoint");
    }
}

/// Goal: a server that was restored goes on with the backups of its target, also when the WAL between them is gone: its
/// own history names the set. Without that remark a branch begins; and an origin that goes on as well is told apart.
#[test]
fn a_restored_server_goes_on_with_the_backups_that_it_comes_from() {
    for installation in representatives() {
        let shared = Shared::new(&installation, &[("wal_keep_size", "0")]);
        let origin = &shared.stage.server;
        prepare(origin);
        let (code, first, said) = shared.back_up(origin, &["--with-wal"]);
        assert_eq!(code, 0, "{said}");
        origin.stop(Stop::Fast);

        let restored = |name: &str| {
            let to = shared.stage.path(name);
            let place = to.to_str().unwrap();
            let words = ["restore", "--database", "main", "--to", place];
            let label = shared.label_of(&first["set"]);
            let (code, _, said) = shared.run(&[&words[..], &["--label", &label]].concat());
            assert_eq!(code, 0, "{said}");
            shared.stage.server.user().own(&to);
            let server = Server::adopt(&installation, &to);
            server.start();
            server.wait_for("select pg_is_in_recovery()", "f");
            forget_the_log(&server);
            server
        };
        let server = restored("restored");
        let history = server.data_dir().join("pg_wal/00000002.history");
        let named = std::fs::read_to_string(&history).unwrap();
        let set = first["set"].as_str().unwrap();
        assert!(
            named.contains(&format!(".{set} goes on from 00000001.history")),
            "{named}"
        );
        let before =
            server.psql("select min(name) from pg_ls_waldir() where name ~ '^[0-9A-F]{24}$'");
        let needed = first["log"]["first"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            before.starts_with("00000002"),
            "{before} {needed}: the WAL of the backup is still there"
        );

        // By the files, as a differential, and over a connection. The first one says what it goes on with.
        let (code, differential, said) = shared.back_up(&server, &["--differential"]);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("was restored from"), "{said}");
        assert_eq!(
            differential["differential"]["parent"], first["set"],
            "{said}"
        );
        let (code, _, said) = shared.back_up(&server, &["--remote"]);
        assert_eq!(code, 0, "{said}");
        let branches = shared.info()["branches"].as_array().unwrap().clone();
        assert_eq!(branches.len(), 1, "{branches:?}");
        assert_eq!(branches[0]["proved"], true, "{branches:?}");
        let (_, checked, _) = shared.run(&["check", "main", "--archive-wait", "0", "--json"]);
        let findings = checked["databases"][0]["findings"].as_array().unwrap();
        let about = findings.iter().find(|f| f["what"] == "branches");
        assert!(about.is_none_or(|f| f["grade"] == "good"), "{findings:?}");

        // When the WAL of newer backups is gone, too, the one that was restored is no base for ever: the directory's own is.
        let (code, own, said) = shared.back_up(&server, &[]);
        assert_eq!(code, 0, "{said}");
        forget_the_log(&server);
        server.stop(Stop::Fast);
        server.start();
        let (_, again, said) = shared.back_up(&server, &["--differential", "--or-full"]);
        assert_eq!(again["type"], "diff", "{said}");
        assert_eq!(again["differential"]["parent"], own["set"], "{said}");
        server.stop(Stop::Fast);

        // The origin goes on, too: it has not left its timeline, so that it does not come from the restored one's backups.
        origin.start();
        tell(origin, "origin");
        let (_, _, said) = shared.back_up(origin, &[]);
        assert!(said.contains("does not continue"), "{said}");
        assert_eq!(shared.info()["branches"].as_array().unwrap().len(), 2);
        origin.stop(Stop::Fast);

        // A history without the set's name proves nothing.
        let nameless = restored("nameless");
        let history = nameless.data_dir().join("pg_wal/00000002.history");
        let text = std::fs::read_to_string(&history).unwrap();
        std::fs::write(&history, text.replace(&format!(".{set}"), "")).unwrap();
        let (code, _, said) = shared.back_up(&nameless, &[]);
        assert_eq!(code, 5, "{said}");
        assert_eq!(shared.info()["branches"].as_array().unwrap().len(), 3);
    }
}

/// Goal: over a connection a server's place is not known; backups without the WAL between them follow one another by host
/// name and source, and none of them says that it begins a branch.
#[test]
fn backups_over_a_connection_without_the_wal_between_them_are_one_branch() {
    let installation = &representatives()[0];
    let shared = Shared::new(installation, &[("wal_keep_size", "0")]);
    let server = &shared.stage.server;
    prepare(server);
    for _ in 0..2 {
        let (code, _, said) = shared.back_up(server, &["--remote"]);
        assert_eq!(code, 0, "{said}");
        forget_the_log(server);
    }
    assert_eq!(shared.info()["branches"].as_array().unwrap().len(), 1);
}

/// Goal: a named base of another branch is reported, and the chain on it still is the server's state.
#[test]
fn a_named_base_of_another_branch_is_reported_and_contributes_nothing() {
    let installation = &representatives()[0];
    let shared = Shared::new(installation, &[]);
    let production = &shared.stage.server;
    prepare(production);
    production.stop(Stop::Fast);
    let copy = clone_of(&shared, "copy");
    production.start();
    copy.start();
    tell(&copy, "copy");
    let url = copy.url();
    let (base, to) = (shared.stage.path("base"), shared.stage.path("diff"));
    let (base, to) = (base.to_str().unwrap(), to.to_str().unwrap());
    let (code, _, said) = shared.run(&["backup", &url, "--to", base]);
    assert_eq!(code, 0, "{said}");
    // Later than the base by its WAL.
    production
        .psql("create table filler as select n, repeat('x', 500) from generate_series(1, 2000) n");
    let url = production.url();
    let words = ["backup", &url, "--to", to, "--differential", "--base", base];
    let (code, _, said) = shared.run(&words);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("of another branch"), "{said}");
    let target = shared.stage.path("restored");
    let words = [
        "restore",
        "--to",
        target.to_str().unwrap(),
        to,
        "--base",
        base,
    ];
    let (code, _, said) = shared.run(&words);
    assert_eq!(code, 0, "{said}");
    let restored = shared.stage.serve(&target);
    let rows = "select count(*) from filler";
    assert_eq!(restored.psql(rows), "2000");
    let told = "select who from told order by n";
    assert_eq!(restored.psql(told), production.psql(told));
}
