//! Goal: no set has files of before a restore and files of after it, and none is of a running server.
//! Method: statements of two servers over one tree, the locks of restores as another process holds them, and directories
//! that are put in the place of others while they are read.
//! Not covered: file systems whose locks do not reach every machine.

mod common;

use std::fs;
use std::path::Path;
use std::thread::JoinHandle;

use common::{Stage, cluster, numbers, run, said};
use longshore_io::{Host, Storage};
use longshore_pipeline::SourceSpec;
use longshore_tsql::Recorder;

/// Long enough to be read for more than a second at [`SLOWLY`].
const LARGE_BYTES: usize = 3 << 20;
const SLOWLY: &str = "MAX_RATE = 1500000";

fn stage() -> Stage {
    let mut stage = Stage::new();
    let docs = stage.path("docs");
    fs::create_dir_all(docs.join("sub")).unwrap();
    fs::write(docs.join("large"), vec![7; LARGE_BYTES]).unwrap();
    fs::write(docs.join("note"), "old").unwrap();
    fs::write(docs.join("sub/note"), "old").unwrap();
    stage.more = vec![("docs", SourceSpec::Files(vec![docs]))];
    stage
}

fn is_read(path: &Path) -> bool {
    let dir = Host::new().dir(path);
    dir.and_then(|dir| dir.is_marked_read()).unwrap_or(false)
}

/// A backup that another server runs, and that has begun.
fn begun(stage: &Stage, device: &str) -> JoinHandle<Recorder> {
    let mut session = stage.session();
    let text = format!("BACKUP DATABASE docs TO DISK = '{device}' WITH FORMAT, {SLOWLY}");
    let running = std::thread::spawn(move || run(&mut session, &text));
    while !is_read(&stage.path("docs")) {
        assert!(
            !running.is_finished(),
            "it ended before it had begun to read"
        );
        std::thread::yield_now();
    }
    running
}

fn last(record: &Recorder) -> Option<u32> {
    println!("{:?}", said(record));
    numbers(record).last().copied()
}

#[test]
fn a_tree_that_is_backed_up_is_not_replaced_meanwhile() {
    let stage = stage();
    let mut session = stage.session();
    let made = run(&mut session, "BACKUP DATABASE docs TO DISK = 'old.bak'");
    assert_eq!(last(&made), Some(3014));
    fs::write(stage.path("docs/note"), "new").unwrap();
    let running = begun(&stage, "new.bak");
    let restore = "RESTORE DATABASE docs FROM DISK = 'old.bak'";
    let refused = run(&mut session, restore);
    assert_eq!(numbers(&refused)[0], 3101, "{:?}", said(&refused));
    assert_eq!(last(&refused), Some(3013));
    assert!(!stage.path("docs/.longshore-restoring").exists());
    assert_eq!(last(&running.join().unwrap()), Some(3014));
    assert_eq!(fs::read(stage.path("docs/note")).unwrap(), b"new");
    assert!(!is_read(&stage.path("docs")), "a mark ends with its backup");
    assert_eq!(last(&run(&mut session, restore)), Some(3014));
    assert_eq!(fs::read(stage.path("docs/note")).unwrap(), b"old");
}

#[test]
fn a_tree_into_which_a_restore_runs_is_not_backed_up() {
    let stage = stage();
    let mut session = stage.session();
    for place in ["docs", "docs/sub"] {
        let staging = stage.path(place).join(".longshore-restoring");
        fs::create_dir(&staging).unwrap();
        let lock = fs::File::create(staging.join("lock")).unwrap();
        lock.lock().unwrap();
        let backup = "BACKUP DATABASE docs TO DISK = 'a.bak' WITH FORMAT";
        let refused = run(&mut session, backup);
        assert_eq!(last(&refused), Some(3013), "{place}");
        assert!(numbers(&refused).contains(&3023), "{place}");
        assert!(!stage.path("a.bak").exists(), "{place}");
        // The lock of a restore that was killed has ended.
        drop(lock);
        assert_eq!(last(&run(&mut session, backup)), Some(3014), "{place}");
        fs::remove_dir_all(staging).unwrap();
        fs::remove_file(stage.path("a.bak")).unwrap();
    }
}

#[test]
fn a_tree_that_another_one_has_replaced_ends_its_backup() {
    let stage = stage();
    let running = begun(&stage, "a.bak");
    fs::rename(stage.path("docs"), stage.path("away")).unwrap();
    fs::create_dir(stage.path("docs")).unwrap();
    assert_eq!(last(&running.join().unwrap()), Some(3013));
    assert!(!stage.path("a.bak").exists());
}

/// Goal: the files of a running server never pass for a backup, under whatever name the directory is known.
#[test]
fn the_files_of_a_running_server_are_no_backup() {
    let mut stage = stage();
    cluster::full(&stage.path("full.bak"));
    stage
        .more
        .push(("main", SourceSpec::Files(vec![stage.path("nowhere")])));
    let mut session = stage.session();
    let restore = "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'copy'";
    assert_eq!(last(&run(&mut session, restore)), Some(3014));
    fs::write(stage.path("copy/PG_VERSION"), "17\n").unwrap();
    fs::create_dir(stage.path("docs/data")).unwrap();
    fs::write(stage.path("docs/data/PG_VERSION"), "17\n").unwrap();
    for (database, data) in [("copy", "copy"), ("docs", "docs/data")] {
        let pid = stage.path(data).join("postmaster.pid");
        fs::write(&pid, "1\n").unwrap();
        let backup = format!("BACKUP DATABASE {database} TO DISK = '{database}.bak'");
        let refused = run(&mut session, &backup);
        assert_eq!(last(&refused), Some(3013), "{database}");
        let lines = said(&refused).join("\n");
        assert!(lines.contains("a PostgreSQL server runs in"), "{lines}");
        assert!(lines.contains("postgres://"), "{lines}");
        assert!(!stage.path(&format!("{database}.bak")).exists());
        fs::remove_file(pid).unwrap();
        assert_eq!(last(&run(&mut session, &backup)), Some(3014), "{database}");
    }
}
