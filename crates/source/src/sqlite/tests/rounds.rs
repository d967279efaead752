//! Goal: a copy is the committed state that the snapshot's own transaction shows, row for row.
//! Method: other processes commit, checkpoint and vacuum without pause; each round copies slowly with
//! four threads, then compares. The sum of all balances is a second witness, a SQLite of another
//! version a third.

use std::time::Duration;

use longshore_io::Via;

use super::stage::*;
use crate::sqlite::snapshot::Hold;

fn rounds(page_bytes: u32, count: usize, checkpoint_mode: &str, vacuums: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), page_bytes, "wal");
    let mut others = vec![
        Other::ready("transfer", &path, &[]),
        Other::ready("transfer", &path, &[]),
        Other::ready("checkpoint", &path, &[checkpoint_mode]),
    ];
    if vacuums {
        others.push(Other::ready("vacuum", &path, &[]));
    }
    let copies = tempfile::tempdir().unwrap();
    let (mut overlaid, mut file_alone_differs) = (0, 0);
    for round in 0..count {
        let source = opened(&path).unwrap();
        assert!(matches!(source.snapshot.hold(), Hold::Log));
        assert_eq!(source.snapshot.page_bytes(), page_bytes);
        let entry = only_entry(&source);
        assert_eq!(entry.len % u64::from(page_bytes), 0);
        let copy = copies.path().join(format!("{round}.db"));
        let via = [Via::Cache, Via::Direct, Via::DontCache][round % 3];
        // Not a multiple of any page size but the smallest, and never aligned for long.
        let pause = Duration::from_millis(2);
        copy_slowly(&entry, &copy, 512 * 77, pause, via).unwrap();

        let mut file_alone = vec![0; entry.len as usize];
        source
            .snapshot
            .db()
            .read_full_at(&mut file_alone, 0, Via::Cache)
            .unwrap();
        file_alone_differs += usize::from(file_alone != std::fs::read(&copy).unwrap());
        overlaid += usize::from(source.snapshot.log().unwrap().1.next_run(0).is_some());

        let (check, shown) = dump_snapshot(&source);
        let (copy_check, copied) = dump_file(&copy);
        assert_eq!(
            (check.as_str(), copy_check.as_str()),
            ("ok", "ok"),
            "round {round}"
        );
        assert!(
            shown == copied,
            "round {round}: the copy has other rows than the snapshot"
        );
        assert_eq!(run("dump", &copy, &[]), "ok 500000", "round {round}");
        finish(source);
    }
    for other in others {
        let said = other.stop();
        assert!(!said.ends_with(" 0"), "a process had nothing to do: {said}");
    }
    assert!(overlaid > 0, "no round needed the log");
    assert!(file_alone_differs > 0, "no round could have failed");
}

#[test]
fn copies_are_snapshots_with_pages_of_512_under_truncating_checkpoints_and_vacuum() {
    rounds(512, 10, "TRUNCATE", true);
}

#[test]
fn copies_are_snapshots_with_pages_of_4096_under_truncating_checkpoints_and_vacuum() {
    rounds(4096, 15, "TRUNCATE", true);
}

#[test]
fn copies_are_snapshots_with_pages_of_65536_under_passive_checkpoints() {
    rounds(65_536, 10, "PASSIVE", false);
}
