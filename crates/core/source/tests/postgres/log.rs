//! Goal: a backup has all the WAL that it needs, from its start to its end, or fails and names the segment, although
//! the server removes, recycles or cuts segments meanwhile.
//! Method: a data directory and a server made by hand; a hook takes a segment away at each step.
//! Not covered: real servers, which the tests of the program use.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_source::Error;

use crate::cluster::{Cluster, END, PAGE, START, answer, segment, segment_with};
use crate::double::{Double, ready, row, table};
use crate::hooked::{Step, hooked};

const FIRST: &str = "000000010000000000000020";
const MIDDLE: &str = "000000010000000000000025";
const LAST: &str = "00000001000000000000002F";

#[test]
fn every_segment_from_start_to_end_is_there_with_its_mark_and_the_histories() {
    let cluster = Cluster::new();
    cluster.write_log();
    fs::write(cluster.path("pg_wal/00000001000000000000001F"), b"before").unwrap();
    fs::write(cluster.path("pg_wal/000000010000000000000030"), b"after").unwrap();
    fs::write(cluster.path("pg_wal/00000001.history"), b"how it came").unwrap();
    // A standby has the next history file before it reaches that timeline.
    fs::write(cluster.path("pg_wal/00000002.history"), b"to come").unwrap();
    fs::write(cluster.path("pg_wal/summaries/x.summary"), b"x").unwrap();
    let copy = cluster.back_up_with_log(&hooked(|_, _| Ok(()))).unwrap();
    let of_log = |path: &&Path| path.starts_with("pg_wal");
    let mut found: Vec<&Path> = copy
        .files
        .keys()
        .map(|p| p.as_path())
        .filter(of_log)
        .collect();
    for number in 0x20..0x30u64 {
        let name = format!("pg_wal/00000001000000000000{number:04X}");
        assert_eq!(copy.file(&name), Some(&segment(number)));
        let mark = name.replace("pg_wal/", "pg_wal/archive_status/") + ".done";
        assert_eq!(copy.file(&mark), Some(&Vec::new()));
        found.retain(|path| *path != Path::new(&name) && *path != Path::new(&mark));
    }
    assert_eq!(
        copy.file("pg_wal/00000001.history").unwrap(),
        b"how it came"
    );
    let histories = [
        "pg_wal/00000001.history",
        "pg_wal/archive_status/00000001.history.done",
    ];
    assert_eq!(found, histories.map(Path::new));
}

/// Goal: no backup succeeds without the WAL that it needs.
/// Method: one segment is removed, in every way and at every moment that a server could choose.
#[test]
fn a_segment_that_vanishes_ends_the_backup_and_is_named() {
    type Act = fn(&Path);
    let removed: Act = |path| fs::remove_file(path).unwrap();
    let cut: Act = |path| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(4096).unwrap();
    };
    // As a server recycles a segment: the same file, a later name, later content.
    let recycled: Act = |path| {
        fs::rename(path, path.with_file_name("000000010000000000000099")).unwrap();
    };
    let replaced: Act = |path| {
        fs::rename(path, path.with_file_name("000000010000000000000099")).unwrap();
        fs::write(path, vec![0; 1 << 20]).unwrap();
    };
    for (step, acts) in [
        (Step::Stat, &[removed, cut, recycled][..]),
        (Step::Open, &[removed, cut, recycled]),
        (Step::Read(0), &[removed, cut, recycled, replaced]),
    ] {
        for (i, act) in acts.iter().enumerate() {
            for name in [FIRST, MIDDLE, LAST] {
                let cluster = Cluster::new();
                cluster.write_log();
                let (once, act) = (AtomicBool::new(true), *act);
                let storage = hooked(move |at, path| {
                    if at == step && path.ends_with(name) && once.swap(false, Ordering::SeqCst) {
                        act(path);
                    }
                    Ok(())
                });
                match cluster.back_up_with_log(&storage).err() {
                    Some(Error::SegmentMissing { path }) => assert!(path.ends_with(name)),
                    other => panic!("{step:?}, act {i}, {name}: {other:?}"),
                }
            }
        }
    }
}

/// Goal: a standby's last segment always exists with its full length, whatever it contains; its records decide whether
/// the backup's end is in it.
/// Method: the server reports that the backup ends at the end of the WAL. The segment's content ends earlier, in every
/// way that a server or a disk could leave it, or is left over from an earlier use.
#[test]
fn a_last_segment_without_the_backups_end_ends_the_backup_and_is_named() {
    let whole = || segment(0x2f);
    let never_written = || vec![0; 1 << 20];
    let earlier = || segment(0x1f);
    let no_record = || {
        let mut bytes = whole();
        bytes[40..].fill(0);
        bytes
    };
    let damaged = || {
        let mut bytes = whole();
        bytes[44] ^= 1;
        bytes
    };
    // The first page is present; the next is from an earlier use.
    let on_to_the_next = || {
        let mut bytes = whole();
        bytes[40..44].copy_from_slice(&(PAGE as u32).to_le_bytes());
        bytes
    };
    let ends: [&dyn Fn() -> Vec<u8>; 5] = [
        &never_written,
        &earlier,
        &no_record,
        &damaged,
        &on_to_the_next,
    ];
    for (i, bytes) in ends.into_iter().enumerate() {
        let cluster = Cluster::new();
        cluster.write_log();
        fs::write(cluster.path(&format!("pg_wal/{LAST}")), bytes()).unwrap();
        match cluster.back_up_with_log(&hooked(|_, _| Ok(()))).err() {
            Some(Error::SegmentNotWhole { path, .. }) => assert!(path.ends_with(LAST)),
            other => panic!("{i}: {other:?}"),
        }
    }
    // For segments before the last, the first page decides.
    for bytes in [earlier(), never_written()] {
        let cluster = Cluster::new();
        cluster.write_log();
        fs::write(cluster.path(&format!("pg_wal/{MIDDLE}")), bytes).unwrap();
        match cluster.back_up_with_log(&hooked(|_, _| Ok(()))).err() {
            Some(Error::SegmentMissing { path }) => assert!(path.ends_with(MIDDLE)),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: the relation map of a database that was created and removed and is in no list of databases is found however
/// late in the WAL it is written, unless the lists show that there can be none so late.
/// Method: it is in the last but one segment. Databases are being created when the backup begins, or removed at its
/// end; or the WAL had reached that point when they were listed; or none of these.
#[test]
fn a_map_far_after_the_start_is_found() {
    let early = "0/2000100".to_owned();
    let late = format!("0/{END:X}");
    for (made, removed, listed_at, found) in [
        ("t", false, &early, true),
        ("f", true, &early, true),
        ("f", false, &late, true),
        ("f", false, &early, false),
    ] {
        let cluster = Cluster::new();
        let mut before = START - 40;
        for number in START >> 20..END >> 20 {
            let numbers = [7u32, 1663, 0, 0].map(u32::to_le_bytes);
            let map = [(7, 0, numbers.concat())];
            let records = if number == 0x2e { &map[..] } else { &[] };
            let (bytes, last) = segment_with(number, before, records);
            let path = cluster.path(&format!("pg_wal/00000001000000000000{number:04X}"));
            fs::write(path, bytes).unwrap();
            before = last;
        }
        let (data, asked) = (cluster.dir.path().to_owned(), AtomicBool::new(false));
        let listed_at = listed_at.clone();
        let double = Double::new(move |sql| {
            if sql.contains("insert_lsn") && !asked.swap(true, Ordering::SeqCst) {
                return row(&[&listed_at]);
            }
            match sql {
                _ if sql.contains("RowExclusiveLock") => row(&[made]),
                _ if sql.contains("AccessExclusiveLock") && !removed => {
                    [table(&[]), ready()].concat()
                }
                _ => answer(&data, sql),
            }
        });
        let copy = cluster
            .back_up_from(&double, &hooked(|_, _| Ok(())))
            .unwrap();
        let added = copy.order.contains(&"base/7".into());
        assert_eq!(added, found, "{made} {removed}");
    }
}
