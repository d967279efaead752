//! Goal: for likely mistakes the message names what is wrong and what to do, and nothing is left behind.
//! Method: a table of command lines with the words that their messages must contain; the directory is compared before
//! and after.

use crate::stage::Stage;

/// A command, its exit code, and the words of its message.
type Mistake = (&'static str, i32, &'static [&'static str]);

const MISTAKES: [Mistake; 24] = [
    // A directory in place of a file, and the other way round.
    (
        "backup app.db --to dir",
        4,
        &["3201", "device dir", "is a directory", "name a file in it"],
    ),
    (
        "restore dir --to out",
        4,
        &["3201", "is a directory", "name a file in it"],
    ),
    (
        "restore app.bak --to plain",
        6,
        &["cannot create plain\n", "a file is in the way"],
    ),
    (
        "restore app.bak --to plain/below",
        6,
        &["cannot create plain/below\n", "a file is in the way"],
    ),
    // An object store where only a path works: nothing named `s3:` appears.
    (
        "backup s3://b/k --to x.bak",
        2,
        &["s3://b/k", "only a path works here", "--to"],
    ),
    (
        "restore app.bak --to s3://b/k",
        2,
        &["s3://b/k", "only a path works here"],
    ),
    (
        "restore app.bak --to az://c/k",
        2,
        &["az://c/k", "only a path works here"],
    ),
    (
        "backup app.db --differential --to x.bak",
        2,
        &["no base is given", "--base"],
    ),
    (
        "backup app.db --incremental --to s3://bucket/k",
        2,
        &["no base is given", "--base"],
    ),
    // One stripe twice.
    (
        "backup app.db --to x.bak --to x.bak",
        4,
        &["x.bak is named twice", "a file of its own"],
    ),
    (
        "backup app.db --to app.bak --to app.bak --format",
        4,
        &["3227", "app.bak is named twice"],
    ),
    // The existing file is no backup: no hint recommends overwriting it.
    (
        "backup app.db --to plain",
        4,
        &[
            "plain already holds data that is not a media set",
            "name another file",
        ],
    ),
    (
        "backup app.db --to app.db --format",
        4,
        &["it is the source of this backup", "name another device"],
    ),
    // Another algorithm after an existing set.
    (
        "backup app.db --to app.bak --append -a LZ4",
        4,
        &[
            "3098",
            "formatted for QAT_DEFLATE",
            "MS_XPRESS, LZ4 or PAGES",
        ],
    ),
    // Unknown names.
    (
        "backup shop --to x.bak",
        3,
        &[
            "cannot find shop",
            "correct the path, or configure",
            "no database is configured",
        ],
    ),
    (
        "restore app.bak --to out --move ap.db=b.db",
        2,
        &["3156", "cannot move ap.db to b.db", "list --files"],
    ),
    (
        "restore app.bak --to out --only app.db --move x=b",
        2,
        &["3156", "cannot move x to b"],
    ),
    (
        "backup postgres://127.0.0.1:1/x --to x.bak",
        3,
        &["cannot connect to the PostgreSQL server"],
    ),
    // The files that a server writes are no backup as they are.
    (
        "backup cluster --to x.bak",
        3,
        &["a PostgreSQL server runs in cluster", "postgres:///"],
    ),
    // A backup inside its own source.
    (
        "backup dir --to dir/x.bak",
        2,
        &[
            "device dir/x.bak is in ",
            "is the source of this backup",
            "outside",
        ],
    ),
    ("backup files:. --to x.bak", 2, &["device x.bak is in "]),
    (
        "backup dir app.db --to nowhere/../dir/sub/x.bak",
        4,
        &["cannot open the directory"],
    ),
    (
        "wal create --archive cluster/pg_wal/archive",
        2,
        &["a PostgreSQL data directory", "outside of it"],
    ),
    // By the name that `backup` takes.
    ("verify shop", 4, &["3201", "shop: it does not exist"]),
];

/// The names in the directory, except the history.
fn names(stage: &Stage) -> Vec<String> {
    let mut names = stage.names(".");
    names.retain(|name| !name.starts_with("history.db"));
    names
}

#[test]
fn a_mistake_is_named_with_what_helps_and_leaves_nothing() {
    let stage = Stage::new();
    stage.database("app.db", 3);
    stage.line("backup app.db --to app.bak").exits(0);
    stage.write("plain", b"somebody's notes");
    stage.write("dir/other", b"");
    for name in [
        "PG_VERSION",
        "postmaster.pid",
        "global/pg_control",
        "pg_wal/x",
    ] {
        stage.write(format!("cluster/{name}"), b"17\n");
    }
    let before = names(&stage);
    for (line, exit, says) in MISTAKES {
        let ran = stage.line(line).exits(exit);
        for text in says {
            assert!(
                ran.err.contains(text),
                "{line}: {text:?} is missing:\n{}",
                ran.err
            );
        }
        // The refusal of an option's value says itself what works.
        let is_advised = ran.err.contains("hint: ") || ran.err.contains("`longshore backup --to");
        assert!(is_advised, "{line}:\n{}", ran.err);
        assert_eq!(names(&stage), before, "{line}");
    }
    assert_eq!(
        std::fs::read(stage.path("plain")).unwrap(),
        b"somebody's notes"
    );
}

/// Backed up as files, because that was requested; the source may be a file system snapshot.
#[test]
fn the_files_of_a_server_at_work_are_copied_with_a_warning() {
    let stage = Stage::new();
    stage.write("srv/cluster/PG_VERSION", b"17\n");
    stage.write("srv/cluster/postmaster.pid", b"1\n");
    for source in ["files:srv/cluster", "srv"] {
        stage
            .line(&format!("backup {source} --to x.bak --format"))
            .exits(5)
            .says("1 PostgreSQL servers run there or were killed")
            .says("cluster/postmaster.pid");
    }
    std::fs::remove_file(stage.path("srv/cluster/postmaster.pid")).unwrap();
    let ran = stage
        .line("backup srv/cluster --to x.bak --format")
        .exits(0);
    assert!(!ran.err.contains("server"), "{}", ran.err);
}

#[test]
fn a_databases_name_instead_of_a_device_is_answered_with_the_option() {
    let stage = Stage::new();
    stage.write("tree/file", b"x");
    let text = format!(
        "[database.shop]\nurl = \"files:{}\"\n",
        stage.path("tree").display()
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    for command in ["verify shop", "list shop", "restore shop --to out"] {
        stage
            .line(command)
            .exits(2)
            .says("shop is not a file here, but a configured database")
            .says("--database shop");
    }
    // A file of that name is a device.
    stage.line("backup shop --to shop").exits(0);
    stage.line("verify shop").exits(0);
}

#[test]
fn one_stripe_of_several_is_refused_with_a_hint_to_find_the_others() {
    let stage = Stage::new();
    stage.database("app.db", 3);
    stage.line("backup app.db --to a.bak --to b.bak").exits(0);
    stage
        .line("restore a.bak --to out")
        .exits(4)
        .says("3132")
        .says("missing: family 2")
        .says("longshore list --label-only");
    stage.line("list --label-only a.bak").exits(0);
}

/// A directory that is also visible through a FUSE mount; `None` if this machine cannot make one.
struct Mounted<'a>(&'a std::path::Path);

impl<'a> Mounted<'a> {
    fn of(store: &std::path::Path, at: &'a std::path::Path) -> Option<Mounted<'a>> {
        let mounted = std::process::Command::new("bindfs")
            .args([store, at])
            .output();
        mounted
            .is_ok_and(|out| out.status.success())
            .then_some(Mounted(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _gone = std::process::Command::new("fusermount3")
            .arg("-uz")
            .arg(self.0)
            .status();
    }
}

#[test]
fn a_database_with_several_names_is_backed_up_with_a_word_about_their_logs() {
    let stage = Stage::new();
    let path = stage.database("app.db", 1);
    std::fs::hard_link(&path, stage.path("alias.db")).unwrap();
    stage
        .line("backup app.db --to x.bak")
        .exits(0)
        .says("has 2 names")
        .says("the journal that a killed program left by another name");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mode = "pragma journal_mode = wal";
    connection.query_row(mode, [], |_| Ok(())).unwrap();
    stage
        .line("backup app.db --to y.bak")
        .exits(5)
        .says("has 2 names")
        .says("only in the log of that name");
}

#[test]
fn a_database_whose_locks_may_not_reach_its_writers_is_read_only_when_they_are_vouched_for() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("store")).unwrap();
    std::fs::create_dir(stage.path("mount")).unwrap();
    let writer = rusqlite::Connection::open(stage.path("store/app.db")).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer
        .execute_batch("CREATE TABLE note (text); INSERT INTO note VALUES ('old')")
        .unwrap();
    // If the file system keeps locks, there is nothing to vouch for.
    stage
        .line("backup sqlite:store/app.db --to store.bak --trust-locks")
        .exits(0);
    let (store, mount) = (stage.path("store"), stage.path("mount"));
    let Some(_mounted) = Mounted::of(&store, &mount) else {
        return;
    };
    let refused = stage
        .line("backup sqlite:mount/app.db --to app.bak")
        .exits(3);
    refused.says("FUSE").says("--trust-locks");
    // The program that has the log's memory mapped is still running, and its log exists.
    writer
        .execute("INSERT INTO note VALUES ('new')", [])
        .unwrap();
    let count = writer.query_row("SELECT count(*) FROM note", [], |r| r.get::<_, i64>(0));
    assert_eq!(count.unwrap(), 2);
    drop(writer);
    stage
        .line("backup sqlite:mount/app.db --to app.bak --trust-locks")
        .exits(0);
    // The configuration vouches for the locks, too, for the command line as well as for statements.
    let url = format!("sqlite:{}", stage.path("mount/app.db").display());
    let config = |key: &str| format!("[database.app]\nurl = \"{url}\"\n{key}");
    let statement = |code: i32| {
        let words = [
            "--config",
            "c.toml",
            "sql",
            "-b",
            "-Q",
            "BACKUP DATABASE app TO DISK = 'NUL'",
        ];
        stage.run(&words).exits(code)
    };
    stage.write("c.toml", config("").as_bytes());
    stage.line("--config c.toml backup app --to nul:").exits(3);
    statement(1).says("trust_locks = true");
    stage.write("c.toml", config("trust_locks = true\n").as_bytes());
    stage.line("--config c.toml backup app --to nul:").exits(0);
    statement(0).says("successfully processed");
    stage
        .line("restore app.bak --to mount --replace")
        .exits(6)
        .says("3101")
        .says("--replace-in-use");
    stage
        .line("restore app.bak --to mount --replace --replace-in-use")
        .exits(0);
    stage
        .line("backup mount/app.db --to mount/x.bak --trust-locks")
        .exits(0);
    stage
        .line("backup mount/app.db --to mount/x.bak --append --trust-locks")
        .exits(0);
    let left: Vec<_> = std::fs::read_dir(&store)
        .unwrap()
        .map(|n| n.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|n| !n.to_string_lossy().contains("longshore")),
        "{left:?}"
    );
}
