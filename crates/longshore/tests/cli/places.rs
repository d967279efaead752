//! Goal: a restore replaces what was asked for, and nothing else: not another database by its log, not what is next to a
//! wanted file, not what is mounted below, and not half of it after a kill.
//! Method: the real program; databases are read with SQLite; mounts are made in a mount namespace of their own.
//! Not covered: moments of a power cut (the unit tests of `landing`).

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rusqlite::Connection;

use crate::common::Ran;
use crate::stage::{BINARY, Stage};

/// A user that no passwd database knows.
const USER: u32 = 23_461;

/// A database in WAL mode whose last row is in its log alone, copied as files are: `DIR/app.db` and `DIR/app.db-wal`.
fn copied_with_its_log(stage: &Stage, dir: &str, text: &str) {
    let live = stage.path(format!("{dir}-live.db"));
    let _fresh = std::fs::remove_file(&live);
    let db = Connection::open(&live).unwrap();
    db.pragma_update(None, "journal_mode", "wal").unwrap();
    db.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    db.execute_batch("CREATE TABLE note (text)").unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    db.execute("INSERT INTO note VALUES (?1)", [text]).unwrap();
    std::fs::create_dir_all(stage.path(dir)).unwrap();
    for suffix in ["", "-wal"] {
        let from = stage.path(format!("{dir}-live.db{suffix}"));
        std::fs::copy(from, stage.path(format!("{dir}/app.db{suffix}"))).unwrap();
    }
}

fn notes(path: &Path) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let mut rows = db.prepare("SELECT text FROM note ORDER BY rowid").unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_database_moved_among_files_takes_its_log_along_and_harms_no_other() {
    let stage = Stage::new();
    copied_with_its_log(&stage, "wl", "restored");
    copied_with_its_log(&stage, "live", "foreign");
    // The foreign database is whole, and has no log.
    assert_eq!(notes(&stage.path("live/app.db")), ["foreign"]);
    assert_eq!(stage.names("live"), ["app.db"]);
    stage.line("backup files:wl --to wl.bak").exits(5);
    let restore = "restore wl.bak --to live --move app.db=app-copy.db";
    stage.line(restore).exits(0);
    assert_eq!(
        stage.names("live"),
        ["app-copy.db", "app-copy.db-wal", "app.db"]
    );
    assert_eq!(notes(&stage.path("live/app.db")), ["foreign"]);
    assert_eq!(notes(&stage.path("live/app-copy.db")), ["restored"]);
    // A log that is sent to a foreign database is refused, whatever may be replaced.
    for more in ["", " --replace", " --replace --replace-in-use"] {
        for line in [
            format!("restore wl.bak --to live --only app.db-wal{more}"),
            format!(
                "restore wl.bak --to live --move app.db=x/y --move app.db-wal=app.db-wal{more}"
            ),
        ] {
            for dry in [" --dry-run", ""] {
                let ran = stage.line(&format!("{line}{dry}"));
                ran.exits(6).says("3156").says("would be taken for the log");
            }
        }
    }
    assert_eq!(notes(&stage.path("live/app.db")), ["foreign"]);
}

#[test]
fn a_chosen_database_among_files_comes_with_its_log() {
    let stage = Stage::new();
    copied_with_its_log(&stage, "wl", "in the log");
    stage.write("wl/other", b"other");
    stage.line("backup files:wl --to wl.bak").exits(5);
    stage.line("restore wl.bak --to one --only app.db").exits(0);
    assert_eq!(stage.names("one"), ["app.db", "app.db-wal"]);
    assert_eq!(notes(&stage.path("one/app.db")), ["in the log"]);
}

/// An encrypted database has no signature by which it could be recognised.
#[test]
fn an_old_log_never_stays_beside_a_restored_file() {
    let stage = Stage::new();
    stage.write("tree/vault.db", &[0xA5; 8192]);
    stage.line("backup files:tree --to tree.bak").exits(0);
    for suffix in ["-wal", "-journal"] {
        let log = format!("out/vault.db{suffix}");
        stage.write(&log, b"of another state");
        for dry in [" --dry-run", ""] {
            stage
                .line(&format!("restore tree.bak --to out{dry}"))
                .exits(6)
                .says("3142")
                .says(suffix);
        }
        assert_eq!(stage.names("out"), [format!("vault.db{suffix}")]);
        stage.line("restore tree.bak --to out --replace").exits(0);
        assert_eq!(stage.names("out"), ["vault.db"]);
        std::fs::remove_dir_all(stage.path("out")).unwrap();
    }
}

/// `etc` with three files, of which the set has two, and the set.
fn etc(stage: &Stage) {
    stage.write("tree/etc/one.conf", b"new one");
    stage.write("tree/etc/sub/two.conf", b"new two");
    stage.line("backup files:tree --to tree.bak").exits(0);
    stage.write("dst/etc/one.conf", b"old one");
    stage.write("dst/etc/sub/two.conf", b"old two");
    stage.write("dst/etc/sub/own/x", b"mine");
    stage.write("dst/etc/mine", b"mine");
    let open = std::fs::Permissions::from_mode(0o751);
    std::fs::set_permissions(stage.path("dst/etc"), open).unwrap();
}

#[test]
fn what_is_beside_a_wanted_file_stays() {
    let stage = Stage::new();
    etc(&stage);
    let read = |name: &str| String::from_utf8(std::fs::read(stage.path(name)).unwrap()).unwrap();
    let wanted = "restore tree.bak --to dst --only etc/one.conf";
    stage.line(wanted).exits(6).says("dst/etc/one.conf");
    stage
        .line(&format!("{wanted} --replace --dry-run"))
        .exits(0)
        .says("dst/etc/one.conf")
        .says("would be removed: 0");
    stage.line(&format!("{wanted} --replace")).exits(0);
    assert_eq!(stage.names("dst/etc"), ["mine", "one.conf", "sub"]);
    assert_eq!(read("dst/etc/one.conf"), "new one");
    assert_eq!(read("dst/etc/sub/two.conf"), "old two");
    let mode = std::fs::metadata(stage.path("dst/etc")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o751);
    assert_eq!(stage.all_names("dst"), ["etc"]);
    // A move to a name in a directory that stands there is no reason to replace the directory.
    let moved = "restore tree.bak --to dst --only etc/one.conf --move etc/one.conf=etc/sub/three";
    stage.line(moved).exits(0);
    assert_eq!(stage.names("dst/etc/sub"), ["own", "three", "two.conf"]);
    // A directory that the target does not have is made.
    stage
        .line("restore tree.bak --to dst --only etc/one.conf --move etc=new/deep")
        .exits(0);
    assert_eq!(read("dst/new/deep/one.conf"), "new one");
    // A file or a link in the way is not a directory.
    symlink("etc", stage.path("dst/link")).unwrap();
    for place in ["etc/mine/x", "link/x"] {
        let line =
            format!("restore tree.bak --to dst --only etc/one.conf --move etc/one.conf={place}");
        for more in ["", " --replace", " --replace --dry-run"] {
            stage.line(&format!("{line}{more}")).exits(6);
        }
    }
    assert_eq!(read("dst/etc/mine"), "mine");
}

#[test]
fn names_that_vanish_with_a_replaced_directory_are_told() {
    let stage = Stage::new();
    etc(&stage);
    let line = "restore tree.bak --to dst --replace";
    stage
        .line(&format!("{line} --dry-run"))
        .exits(0)
        .says("would be removed: 2")
        .says("dst/etc/mine")
        .says("dst/etc/sub/own");
    let ran = stage.line(&format!("{line} --json")).exits(0);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["removed_names"], 2, "{answer}");
    assert_eq!(answer["rewritten_bytes"], serde_json::Value::Null);
    stage.write("dst/etc/again", b"mine");
    stage
        .line(line)
        .exits(0)
        .says("removed 1")
        .says("dst/etc/again");
    assert_eq!(stage.names("dst/etc"), ["one.conf", "sub"]);
}

/// Runs a line with `of` mounted on `on`; `None`: this user cannot mount.
fn mounted(stage: &Stage, of: &str, on: &str, line: &str) -> Option<Ran> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let command = stage.command(&words);
    let script = "mount --bind \"$0\" \"$1\" || exit 111; shift; exec \"$@\"";
    let mut inside = std::process::Command::new("unshare");
    inside
        .args(["-m", "sh", "-c", script])
        .arg(stage.path(of))
        .arg(stage.path(on))
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(stage.path("."));
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    let ran = Ran::of(&inside.output().unwrap());
    if ran.code == 111 || ran.err.starts_with("unshare:") {
        eprintln!("left out: this user cannot mount");
        return None;
    }
    Some(ran)
}

/// A bind mount has the device of what is around it.
#[test]
fn what_is_mounted_below_a_replaced_name_is_neither_emptied_nor_displaced() {
    let stage = Stage::new();
    etc(&stage);
    stage.write("precious/file", b"precious");
    stage.write("precious.conf", b"precious");
    for (of, on) in [
        ("precious", "dst/etc/sub"),
        ("precious", "dst/etc"),
        ("precious.conf", "dst/etc/sub/two.conf"),
    ] {
        for more in [" --dry-run", ""] {
            let line = format!("restore tree.bak --to dst --replace{more}");
            let Some(ran) = mounted(&stage, of, on, &line) else {
                return;
            };
            ran.exits(6).says("3156").says("is a mount point").says(on);
        }
    }
    // A place below a mount is another file system's.
    let line = "restore tree.bak --to dst --only etc/one.conf --move etc/one.conf=etc/sub/three";
    let ran = mounted(&stage, "precious", "dst/etc/sub", line).unwrap();
    ran.exits(6).says("is a mount point");
    // A mount next to it is not in the way.
    let line = "restore tree.bak --to dst --replace --only etc/one.conf";
    let ran = mounted(&stage, "precious", "dst/etc/sub", line).unwrap();
    ran.exits(0);
    assert_eq!(stage.names("precious"), ["file"]);
    assert_eq!(
        std::fs::read(stage.path("precious/file")).unwrap(),
        b"precious"
    );
    assert_eq!(
        std::fs::read(stage.path("precious.conf")).unwrap(),
        b"precious"
    );
    assert_eq!(stage.names("dst/etc"), ["mine", "one.conf", "sub"]);
    assert_eq!(stage.all_names("dst"), ["etc"]);
}

#[test]
fn a_link_to_a_database_is_not_replaced() {
    let stage = Stage::new();
    for kind in ["sqlite:place/app.db", "files:place"] {
        let _fresh = std::fs::remove_dir_all(stage.path("place"));
        let _fresh = std::fs::remove_dir_all(stage.path("srv"));
        copied_with_its_log(&stage, "place", "old");
        std::fs::remove_file(stage.path("place/app.db-wal")).unwrap();
        stage
            .line(&format!("backup {kind} --to app.bak --init"))
            .exits(0);
        std::fs::create_dir(stage.path("srv")).unwrap();
        symlink("../place/app.db", stage.path("srv/app.db")).unwrap();
        let line = "restore app.bak --to srv --replace";
        let user = Connection::open(stage.path("srv/app.db")).unwrap();
        user.execute("CREATE TABLE later (text)", []).unwrap();
        stage.line(line).exits(6).says("3101").says("in use");
        user.execute("INSERT INTO later VALUES ('kept')", [])
            .unwrap();
        drop(user);
        for more in [" --dry-run", ""] {
            stage
                .line(&format!("{line}{more}"))
                .exits(6)
                .says("3101")
                .says("is a symbolic link to the database")
                .says("place/app.db");
        }
        let user = Connection::open(stage.path("srv/app.db")).unwrap();
        let kept: String = user
            .query_row("SELECT text FROM later", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, "kept");
        drop(user);
        let line = format!("{line} --replace-in-use");
        stage.line(&format!("{line} --dry-run")).exits(0);
        stage.line(&line).exits(0);
        assert!(!stage.path("srv/app.db").is_symlink());
    }
    // The same link in the set is no loss.
    stage.write("tree/file", b"");
    symlink("../place/app.db", stage.path("tree/app.db")).unwrap();
    stage.line("backup files:tree --to tree.bak").exits(0);
    std::fs::remove_file(stage.path("srv/app.db")).unwrap();
    symlink("../place/app.db", stage.path("srv/app.db")).unwrap();
    stage.line("restore tree.bak --to srv --replace").exits(0);
}

/// What a killed restore leaves when the first of two names has its place: `a` is new, `b` is still the old one.
fn killed(stage: &Stage) {
    stage.write("tree/a", b"new a");
    stage.write("tree/b", b"new b");
    stage.line("backup files:tree --to tree.bak").exits(0);
    stage.write("dst/a", b"new a");
    stage.write("dst/b", b"old b");
    let staging = "dst/.longshore-restoring";
    stage.write(format!("{staging}/lock"), b"");
    stage.write(format!("{staging}/old/a"), b"old a");
    stage.write(format!("{staging}/new/b"), b"new b");
    write_journal(stage, &[("a", "dst/a"), ("b", &format!("{staging}/new/b"))]);
}

/// The journal of a switch to places in `dst`, which are at these names now.
fn write_journal(stage: &Stage, places: &[(&str, &str)]) {
    let mut journal = b"longshore switch 2\n".to_vec();
    for (place, name) in places {
        let found = std::fs::metadata(stage.path(name)).unwrap();
        let mtime_ns = found.mtime() * 1_000_000_000 + found.mtime_nsec();
        let born = found.created().ok();
        let born = born.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let born = born.map_or("-".to_owned(), |at| at.as_nanos().to_string());
        let (ino, len, mode) = (found.ino(), found.len(), found.mode() & 0o7777);
        let (uid, gid) = (found.uid(), found.gid());
        let record = format!("{ino} {born} {len} {mtime_ns} {mode} {uid} {gid} {place}\0");
        journal.extend(record.into_bytes());
    }
    journal.extend(b"end");
    stage.write("dst/.longshore-restoring/moving", &journal);
}

/// Goal: on a real file system, too, the rename of one name of a file is no change of it by another.
#[test]
fn a_killed_replacement_of_a_file_with_two_names_is_put_back_by_the_next_restore() {
    for is_changed in [false, true] {
        let stage = Stage::new();
        stage.write("other/c", b"c");
        stage.line("backup files:other --to other.bak").exits(0);
        let staging = "dst/.longshore-restoring";
        stage.write(format!("{staging}/lock"), b"");
        stage.write(format!("{staging}/old/d/x"), b"old");
        stage.write(format!("{staging}/old/m"), b"old");
        stage.write("dst/d/x", b"new");
        let (one, other) = (
            stage.path("dst/d/x"),
            stage.path(format!("{staging}/new/m")),
        );
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        write_journal(
            &stage,
            &[("d", "dst/d"), ("m", &format!("{staging}/new/m"))],
        );
        // The clock of a file system may tick only every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::fs::rename(&other, stage.path("dst/m")).unwrap();
        if is_changed {
            stage.write("dst/d/x", b"own");
        }
        let ran = stage.line("restore other.bak --to dst");
        let read = |name: &str| std::fs::read_to_string(stage.path(name)).unwrap();
        let (code, found) = if is_changed { (6, "own") } else { (0, "old") };
        ran.exits(code);
        assert_eq!([read("dst/d/x"), read("dst/m")], [found; 2]);
    }
}

#[test]
fn a_killed_replacement_is_put_back_whole_by_the_next_restore() {
    // One that is refused afterwards, one that is complete, and one of other names.
    for (line, code, after) in [
        ("restore tree.bak --to dst", 6, ["old a", "old b"]),
        ("restore tree.bak --to dst --replace", 0, ["new a", "new b"]),
        ("restore other.bak --to dst", 0, ["old a", "old b"]),
    ] {
        let stage = Stage::new();
        killed(&stage);
        stage.write("other/c", b"c");
        stage.line("backup files:other --to other.bak").exits(0);
        stage.line(line).exits(code);
        let read = |name: &str| std::fs::read_to_string(stage.path(name)).unwrap();
        assert_eq!([read("dst/a"), read("dst/b")], after, "{line}");
        assert!(!stage.path("dst/.longshore-restoring").exists(), "{line}");
    }
}

#[test]
fn what_was_changed_after_a_kill_is_not_taken_back() {
    let stage = Stage::new();
    killed(&stage);
    stage.write("dst/a", b"new a, and mine");
    for more in ["", " --replace"] {
        stage
            .line(&format!("restore tree.bak --to dst{more}"))
            .exits(6)
            .says("dst/a was changed or made since")
            .says(".longshore-restoring/old");
    }
    let read = |name: &str| std::fs::read_to_string(stage.path(name)).unwrap();
    assert_eq!(read("dst/a"), "new a, and mine");
    assert_eq!(read("dst/.longshore-restoring/old/a"), "old a");
    // Moved away, as the hint says.
    std::fs::rename(stage.path("dst/a"), stage.path("mine")).unwrap();
    stage.line("restore tree.bak --to dst").exits(6);
    assert_eq!([read("dst/a"), read("dst/b")], ["old a", "old b"]);
    assert!(!stage.path("dst/.longshore-restoring").exists());
}

#[test]
fn a_tree_with_a_restores_own_directory_can_be_restored() {
    let stage = Stage::new();
    stage.write("tree/file", b"file");
    stage.write("tree/.longshore-restoring/old/app.db", b"displaced");
    stage
        .line("backup files:tree --to tree.bak")
        .exits(5)
        .says("directories of a restore that runs or was killed were left out")
        .says("as a killed restore left them");
    // The set is marked.
    stage.line("restore tree.bak --to out").exits(5);
    assert_eq!(stage.all_names("out"), ["file"]);
}

#[test]
fn a_directory_with_a_logs_name_is_no_log() {
    let stage = Stage::new();
    stage.write("tree/app", b"old");
    stage.write("tree/app-journal/kept", b"old");
    stage.line("backup files:tree --to tree.bak").exits(0);
    stage.write("to/app", b"new");
    stage.write("to/app-journal/mine", b"new");
    stage
        .line("restore tree.bak --to to --only app --replace")
        .exits(0);
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert_eq!(read("to/app"), b"old");
    assert_eq!(read("to/app-journal/mine"), b"new");
    // It does not go with a database that is moved, either: what is below it has its old path.
    for dry in [" --dry-run", ""] {
        let line = format!("restore tree.bak --to moved --move app=sub/x{dry}");
        stage.line(&line).exits(0);
    }
    assert_eq!(stage.all_names("moved"), ["app-journal", "sub"]);
    assert_eq!(stage.all_names("moved/app-journal"), ["kept"]);
    assert_eq!(stage.all_names("moved/sub"), ["x"]);
}

/// Goal: a restore by a user who cannot give files away says so, unless they are the user's own.
#[test]
fn owners_and_set_id_bits_that_are_lost_are_told() {
    // SAFETY: `geteuid` demands nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make files of several owners");
        return;
    }
    let stage = Stage::beside_servers();
    let copied = std::process::Command::new("cp")
        .arg(BINARY)
        .arg(stage.path("longshore"))
        .status();
    assert!(copied.unwrap().success());
    let give = |name: &str, mode| {
        let path = stage.path(name);
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    stage.write("tree/own", b"own");
    stage.write("tree/tool", b"tool");
    give("tree/own", 0o644);
    give("tree/tool", 0o4755);
    stage.line("backup files:tree --to own.bak").exits(0);
    stage.write("tree/roots", b"root's");
    let set_id = std::fs::Permissions::from_mode(0o2755);
    std::fs::set_permissions(stage.path("tree/roots"), set_id).unwrap();
    stage.line("backup files:tree --to mixed.bak").exits(0);
    for name in ["own.bak", "mixed.bak"] {
        give(name, 0o644);
    }
    give(".", 0o755);
    let by_user = |line: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=23461", "--regid=23461", "--clear-groups"]);
        command.arg(stage.path("longshore"));
        command.args(["--catalog", "none"]);
        command.args(line.split_whitespace());
        command.current_dir(stage.path(".")).env("HOME", "/");
        Ran::of(&command.output().unwrap())
    };
    by_user("restore own.bak --to own").exits(0);
    let mode = std::fs::metadata(stage.path("own/tool")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o4755);
    by_user("restore mixed.bak --to mixed")
        .exits(0)
        .says("2 names belong to the user who restored")
        .says("roots, 0:0");
    let ran = by_user("restore mixed.bak --to again --json").exits(0);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["attributes_lost"], 0, "{answer}");
    assert!(answer["notes"][0].to_string().contains("root"), "{answer}");
    stage.line("restore mixed.bak --to whole").exits(0);
}
