//! Look-aheads, as the calls of a server's archiver start them.

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_repository::wal::{PgWal, Reach, WalArchive};

use crate::support::*;

const REACH: Reach = Reach {
    bytes_max: 3 * SEGMENT as u64,
    workers: 2,
};

/// What was pushed ahead costs nothing more: the calls that come for it start no look-ahead, and one that runs all the same
/// passes it by. Each is pushed again when its file is another one.
#[test]
fn what_was_pushed_ahead_is_no_work_again() {
    let disk = disk(1);
    let names: Vec<_> = (1..=5).map(|number| name(1, number)).collect();
    let status = Path::new(WAL).join("archive_status");
    for (name, number) in names.iter().zip(1..) {
        outgoing(&disk, *name, &segment(1, number, number));
        let mark = status.join(format!("{name}.ready"));
        disk.write_file(&mark, b"").unwrap();
    }
    // The first makes the archive its cluster's.
    push(&disk, names[0], &segment(1, 1, 1)).unwrap();
    let archive: WalArchive = archive(&disk).unwrap();
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let has_work = |own: usize| {
        let ready = pg_wal.ready().unwrap();
        pg_wal.has_work_ahead(&archive, &ready, names[own], REACH)
    };
    let ahead = || {
        let turn = pg_wal.turn_to_push().unwrap().unwrap();
        let form = form(Algorithm::Lz4);
        let done = pg_wal.push_ahead(&turn, &archive, &form, REACH, &*clock());
        let done = done.unwrap();
        assert!(done.error.is_none(), "{done:?}");
        done.files
    };
    assert!(has_work(0));
    assert_eq!(ahead(), 3);
    // Two more wait, beyond its reach.
    assert!(!has_work(0));
    assert_eq!(ahead(), 0);

    let done = |i: usize| {
        let out = opened(&disk, names[i]).unwrap();
        assert!(pg_wal.was_pushed(&out, &archive).unwrap(), "{i}");
        let mark = format!("{}.ready", names[i]);
        let dir = longshore_io::Storage::dir(&disk, &status).unwrap();
        dir.remove_file(Path::new(&mark)).unwrap();
    };
    done(0);
    assert!(has_work(1));
    // The call's own is no work for others.
    assert!(!has_work(3));
    // Another file of the name and the content of one that was pushed.
    outgoing(&disk, names[2], &segment(1, 3, 3));
    assert_eq!(ahead(), 2, "the third again, and the fourth");
    done(1);
    assert_eq!(ahead(), 1);
    for i in 2..5 {
        done(i);
    }
    assert!(!has_work(4));
}
