//! Goal: look-aheads, as the calls of a server's archiver start them, push and fetch nothing twice, nothing that the
//! archive must not have, and nothing from another archive.
//! Method: simulated disks with hand-made segments; what a look-ahead stored is compared with what the calls then find.
//! Not covered: processes that run at the same time, which the tests of the program start.

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_io::{SimDisk, Storage};
use longshore_wal::{AheadLimits, Error, PgWal, PushResult, WalArchive};

use crate::support::*;

const REACH: AheadLimits = AheadLimits {
    bytes_max: 3 * SEGMENT as u64,
    workers: 2,
};

/// Files that were pushed ahead cost nothing more: the calls for them start no look-ahead, and a look-ahead that runs
/// anyway skips them. A file is pushed again if it was replaced.
#[test]
fn segments_pushed_ahead_are_not_pushed_again() {
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
        pg_wal.has_work_ahead(SEGMENT as u64, &ready, names[own], REACH)
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
    // Two more wait, beyond its limit.
    assert!(!has_work(0));
    assert_eq!(ahead(), 0);

    let done = |i: usize| {
        let out = opened(&disk, names[i]).unwrap();
        assert!(pg_wal.was_pushed(&out, &archive, &*clock()).unwrap(), "{i}");
        let mark = format!("{}.ready", names[i]);
        let dir = longshore_io::Storage::dir(&disk, &status).unwrap();
        dir.remove_file(Path::new(&mark)).unwrap();
    };
    done(0);
    assert!(has_work(1));
    // The call's own file is no work for a look-ahead.
    assert!(!has_work(3));
    // Another file with the name and content of one that was pushed.
    outgoing(&disk, names[2], &segment(1, 3, 3));
    assert_eq!(ahead(), 2, "the third again, and the fourth");
    done(1);
    assert_eq!(ahead(), 1);
    for i in 2..5 {
        done(i);
    }
    assert!(!has_work(4));
}

/// A file in the server's pg_wal that waits to be archived.
fn waits(disk: &SimDisk, number: u64, seed: u64) {
    let name = name(1, number);
    outgoing(disk, name, &segment(1, number, seed));
    let mark = Path::new(WAL).join(format!("archive_status/{name}.ready"));
    disk.write_file(&mark, b"").unwrap();
}

/// Goal: nothing from a server that was set back to older files gets into the archive of its abandoned future, neither
/// where the archive has a segment of that name nor after its end, whatever the timing of the look-ahead's workers.
#[test]
fn a_server_that_was_set_back_pushes_nothing_ahead() {
    for round in 0..20 {
        let disk = disk(round);
        for number in 1..=5 {
            push(&disk, name(1, number), &segment(1, number, number)).unwrap();
        }
        for number in 3..=9 {
            waits(&disk, number, if number == 3 { 3 } else { 100 + number });
        }
        let before = disk.paths();
        let archive = archive(&disk).unwrap();
        let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
        let turn = pg_wal.turn_to_push().unwrap().unwrap();
        let reach = AheadLimits {
            bytes_max: 20 * SEGMENT as u64,
            workers: 6,
        };
        let ahead = pg_wal.push_ahead(&turn, &archive, &form(Algorithm::Lz4), reach, &*clock());
        let error = ahead.unwrap().error;
        let is_refused = matches!(
            error,
            Some(Error::OtherContent { .. } | Error::OtherBranch { .. })
        );
        assert!(is_refused, "{error:?}");
        let is_segment = |path: &std::path::PathBuf| {
            let file = path.file_name().unwrap().to_string_lossy();
            path.starts_with(ARCHIVE) && file.starts_with("0000")
        };
        let of = |paths: Vec<_>| paths.into_iter().filter(is_segment).collect::<Vec<_>>();
        assert_eq!(of(disk.paths()), of(before));
    }
}

/// Goal: a segment that was fetched ahead from one archive is not used as another archive's, which may be of another
/// branch.
#[test]
fn segments_fetched_ahead_are_used_only_for_the_same_archive() {
    let disk = disk(1);
    let other = Path::new("/other");
    mark_at(&disk, other);
    for number in 1..=3 {
        push(&disk, name(1, number), &segment(1, number, number)).unwrap();
        let out = outgoing(&disk, name(1, number), &segment(1, number, 50 + number));
        let other = WalArchive::open(&disk, other).unwrap();
        other.push(&out, &form(Algorithm::Lz4), &*clock()).unwrap();
    }
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let first: longshore_pg::SegmentName = name(1, 1).to_string().parse().unwrap();
    let turn = pg_wal.turn_to_fetch().unwrap().unwrap();
    let archive = archive(&disk).unwrap();
    let fetched = pg_wal.fetch_ahead(&turn, &archive, first, REACH, &*clock());
    assert_eq!(fetched.unwrap().files, 2);
    let other = WalArchive::open(&disk, other).unwrap();
    for (archive, number, seed) in [(&other, 2, 52), (&archive, 3, 3)] {
        let taken = pg_wal.take(archive, name(1, number), "TAKEN", None, &*clock());
        taken.unwrap();
        let bytes = disk.read_file(Path::new(WAL).join("TAKEN")).unwrap();
        assert!(bytes == segment(1, number, seed), "{number}");
    }
}

/// Goal: a note is valid only while the archive has the file: another disk in its place, with the same directory and
/// device numbers, does not have it.
#[test]
fn a_note_does_not_replace_a_segment_that_the_archive_lost() {
    let disk = disk(1);
    for number in 1..=3 {
        waits(&disk, number, number);
    }
    push(&disk, name(1, 1), &segment(1, 1, 1)).unwrap();
    let archive = archive(&disk).unwrap();
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let turn = pg_wal.turn_to_push().unwrap().unwrap();
    let form = form(Algorithm::Lz4);
    let done = pg_wal.push_ahead(&turn, &archive, &form, REACH, &*clock());
    assert_eq!(done.unwrap().files, 3);
    let gone = stored(&disk, name(1, 2));
    disk.dir(gone.parent().unwrap())
        .and_then(|dir| dir.remove_file(Path::new(gone.file_name().unwrap())))
        .unwrap();
    let push = |number| {
        let out = opened(&disk, name(1, number)).unwrap();
        pg_wal.push(&out, &archive, &form, &*clock()).unwrap()
    };
    assert!(matches!(push(2), PushResult::Stored { .. }));
    assert_eq!(push(3), PushResult::Already);
}
