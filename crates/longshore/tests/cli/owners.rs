//! Goal: a target belongs to one user: root leaves nothing there that its owner could not use.
//! Method: the real program as root and, by `setpriv`, as a user that no passwd database knows; owners of all files are
//! looked at.
//! Not covered: anything without root; the tests are skipped then.

use std::path::Path;
use std::process::Command;

use crate::common::Ran;
use crate::stage::{BINARY, Stage};

/// A user that no passwd database knows.
const OWNER: u32 = 23_461;

struct Target {
    stage: Stage,
}

impl Target {
    /// A database and a target of two directories, all of them the owner's. `None`: only root can give files away.
    fn new() -> Option<Target> {
        // SAFETY: `geteuid` demands nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root can give files away");
            return None;
        }
        let stage = Stage::beside_servers();
        stage.database("app.db", 1);
        let dir = stage.path(".").canonicalize().unwrap();
        let dir = dir.display();
        stage.write(
            "longshore.toml",
            format!(
                "[database.app]\nurl = \"sqlite:{dir}/app.db\"\ntarget = \"t\"\nretention = \"r\"\n\
                 [database.main]\nurl = \"postgres:///postgres\"\ntarget = \"t\"\n[database.main.wal]\n\
                 [target.t]\ndirectories = [\"{dir}/one\", \"{dir}/two\"]\n[retention.r]\nkeep_full = 1\n"
            )
            .as_bytes(),
        );
        for name in ["one", "two"] {
            std::fs::create_dir(stage.path(name)).unwrap();
        }
        // By another process: a program that this one still has open for writing, or a child of another test, cannot be run.
        let copied = std::process::Command::new("cp")
            .arg(BINARY)
            .arg(stage.path("longshore"))
            .status();
        assert!(copied.unwrap().success());
        let target = Target { stage };
        target.give(&["app.db", "one", "two", "."]);
        Some(target)
    }

    fn give(&self, names: &[&str]) {
        for name in names {
            std::os::unix::fs::chown(self.stage.path(name), Some(OWNER), Some(OWNER)).unwrap();
        }
    }

    fn by_root(&self, line: &str) -> Ran {
        self.stage.line(&format!("--config longshore.toml {line}"))
    }

    fn by_owner(&self, line: &str) -> Ran {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=23461", "--regid=23461", "--clear-groups"]);
        command.arg(self.stage.path("longshore"));
        command.args(["--catalog", "none", "--config", "longshore.toml"]);
        command.args(line.split_whitespace());
        command.current_dir(self.stage.path(".")).env("HOME", "/");
        Ran::of(&command.output().unwrap())
    }

    fn owners(&self, below: &str) -> Vec<u32> {
        fn walk(path: &Path, owners: &mut Vec<u32>) {
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                let stat = std::fs::symlink_metadata(&path).unwrap();
                owners.push(std::os::unix::fs::MetadataExt::uid(&stat));
                if stat.is_dir() {
                    walk(&path, owners);
                }
            }
        }
        let mut owners = Vec::new();
        walk(&self.stage.path(below), &mut owners);
        owners
    }
}

#[test]
fn a_backup_by_root_to_another_users_target_is_refused_and_leaves_nothing() {
    let Some(target) = Target::new() else { return };
    // Before the owner's first backup, and after it.
    target
        .by_root("backup app")
        .exits(4)
        .says("belongs to #23461, who could not read, verify or remove what root leaves there")
        .says("setpriv --reuid=23461 --clear-groups longshore");
    assert!(
        target.owners("one").is_empty(),
        "{:?}",
        target.stage.names("one")
    );
    target.by_owner("backup app --verify").exits(0);
    target
        .by_root("backup app")
        .exits(4)
        .says("belongs to #23461");
    target
        .by_root("expire app")
        .exits(4)
        .says("belongs to #23461");
    for dir in ["one", "two"] {
        assert_eq!(target.stage.names(format!("{dir}/app")).len(), 1);
        assert!(target.owners(dir).iter().all(|owner| *owner == OWNER));
    }
    // Root may read: what it needs for that is gone afterwards.
    let record = target.stage.path("one/app/.longshore-status-verify");
    let before = std::fs::read(&record).unwrap();
    for line in [
        "verify --database app",
        "verify --all --again --database app",
    ] {
        target
            .by_root(line)
            .exits(0)
            .says("belongs to #23461, and only its owner leaves records there");
    }
    assert_eq!(std::fs::read(&record).unwrap(), before);
    target.by_owner("verify --database app").exits(0);
    assert_ne!(std::fs::read(&record).unwrap(), before);
    target.by_root("restore --database app --to back").exits(0);
    assert!(target.owners("one").iter().all(|owner| *owner == OWNER));
    target.by_owner("backup app").exits(0);
    target.by_owner("expire app").exits(0);
    assert_eq!(target.stage.names("one/app").len(), 1);
}

/// A second directory with another owner stops the backup as well, and what was made in the first one goes.
/// Goal: a word that root leaves does not make the owner's backups fail; the owner's own word stays.
#[test]
fn root_leaves_no_word_in_another_users_target_and_takes_the_owners_away() {
    let Some(target) = Target::new() else { return };
    target.by_owner("backup app").exits(0);
    let names = target.stage.all_names("one/app");
    target
        .by_root("stop app --reason maintenance")
        .exits(4)
        .says("belongs to #23461")
        .says("as the owner");
    assert_eq!(target.stage.all_names("one/app"), names);
    target.by_owner("backup app").exits(0);
    target.by_owner("stop app --reason ours").exits(0);
    target.by_root("stop app --reason theirs").exits(4);
    target.by_owner("backup app").exits(4).says(": ours");
    target.by_root("start app").exits(0);
    target.by_owner("backup app").exits(0);
    // One that an earlier version left is no other failure.
    let word = target.stage.path("one/app/.longshore-stopped");
    target
        .stage
        .write("one/app/.longshore-stopped", b"by root\n");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&word, closed).unwrap();
    target
        .by_owner("backup app")
        .exits(4)
        .says("longshore start");
    target.by_owner("start app").exits(0);
    target.by_owner("backup app").exits(0);
}

#[test]
fn every_directory_of_a_target_must_be_the_writers() {
    let Some(target) = Target::new() else { return };
    std::os::unix::fs::chown(target.stage.path("one"), Some(0), Some(0)).unwrap();
    target
        .by_root("backup app")
        .exits(4)
        .says("two belongs to #23461");
    assert!(target.owners("two").is_empty());
    assert!(target.stage.names("one/app").is_empty());
}

/// Where root owns the database's directory, the owner of the directory around it does not matter.
#[test]
fn root_backs_up_below_a_directory_of_its_own_in_anothers_target() {
    let Some(target) = Target::new() else { return };
    for dir in ["one", "two"] {
        std::fs::create_dir(target.stage.path(format!("{dir}/app"))).unwrap();
    }
    target.by_root("backup app --verify").exits(0);
    target.by_root("expire app").exits(0);
}

#[test]
fn root_makes_no_wal_archive_in_another_users_target() {
    let Some(target) = Target::new() else { return };
    target
        .by_root("wal create --database main")
        .exits(4)
        .says("belongs to #23461, who could not write to an archive that root makes there");
    assert!(target.owners("one").is_empty());
    target.by_owner("wal create --database main").exits(0);
    target.by_root("wal create --database main").exits(0);
    assert!(target.owners("one").iter().all(|owner| *owner == OWNER));
}

/// Goal: a segment that root pushed is no file that the server's own pushes trip over from then on.
#[test]
fn root_pushes_no_wal_into_another_users_archive() {
    let Some(target) = Target::new() else { return };
    target.by_owner("wal create --database main").exits(0);
    let names = target.stage.all_names("one/main/wal");
    let segment = "pg_wal/000000010000000000000001";
    target.stage.write(segment, &vec![0; 1 << 20]);
    target
        .by_root(&format!("wal push {segment} --database main"))
        .exits(4)
        .says("one/main/wal belongs to #23461")
        .says("setpriv --reuid=23461 --clear-groups longshore wal push");
    assert_eq!(target.stage.all_names("one/main/wal"), names);
}

/// Goal: a directory that takes no files is told before the next backup fails there, also to root, who may write anywhere.
#[test]
fn a_directory_without_the_right_to_write_is_a_failure_of_check() {
    let Some(target) = Target::new() else { return };
    target.by_owner("backup app").exits(0);
    target.by_owner("check app").exits(0);
    for closed in ["one/app", "two"] {
        let path = target.stage.path(closed);
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode(0o500)).unwrap();
        target
            .by_owner("check app")
            .exits(1)
            .says("may not make files in")
            .says(closed);
        target
            .by_root("check app")
            .exits(1)
            .says("#23461, whose directory");
        std::fs::set_permissions(&path, mode(0o700)).unwrap();
    }
    target.by_owner("check app").exits(0);
}
