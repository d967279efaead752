//! Goal: a reported success holds whatever happens next, and no fault leaves a file that looks complete and is not.
//! Method: a simulated disk that loses power, space or single calls at every step in turn.

use std::path::Path;
use std::sync::OnceLock;

use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_pg::wal::WalName;
use longshore_wal::{Error, PushResult};

use super::support::*;

/// Archives two segments and a history, one after another; returns how many were reported as stored.
fn run(disk: &SimDisk) -> Result<usize, (usize, Error)> {
    let files = files();
    for (done, (name, bytes)) in files.iter().enumerate() {
        let result = archive(disk).and_then(|archive| {
            let out = opened(disk, *name).map_err(|source| Error::Io {
                action: "open",
                path: Path::new(WAL).into(),
                offset: None,
                source,
            })?;
            archive.push(&out, &form(longshore_codec::Algorithm::Zstd), &*clock())
        });
        if let Err(e) = result {
            return Err((done, e));
        }
        assert_eq!(
            bytes.len(),
            disk.read_file(Path::new(WAL).join(name.to_string()))
                .unwrap()
                .len()
        );
    }
    Ok(files.len())
}

/// Made once: thousands of runs have the same ones.
fn files() -> &'static [(WalName, Vec<u8>)] {
    static MADE: OnceLock<Vec<(WalName, Vec<u8>)>> = OnceLock::new();
    MADE.get_or_init(|| {
        vec![
            (name(1, 3), segment(1, 3, 3)),
            (name(1, 4096), segment(1, 4096, 4)),
            ("00000002.history".parse().unwrap(), b"1\t1/0\tx\n".to_vec()),
        ]
    })
}

fn prepared(seed: u64) -> SimDisk {
    let disk = disk(seed);
    for &(name, ref bytes) in files() {
        disk.write_file(Path::new(WAL).join(name.to_string()), bytes)
            .unwrap();
    }
    disk
}

/// Each file is complete or missing; reported ones exist; and all are archived at the next try.
fn check(disk: &SimDisk, reported: usize, at: &str) {
    for (number, (name, bytes)) in files().iter().enumerate() {
        match fetch(disk, *name) {
            Ok(found) => assert!(&found == bytes, "{at}: {name} has other bytes"),
            Err(Error::Missing { .. }) => assert!(number >= reported, "{at}: {name} is lost"),
            Err(e) => panic!("{at}: {name}: {e}"),
        }
    }
    // Log without a word of whose it is would be anybody's.
    let stored = disk.paths().into_iter().any(|path| {
        let text = path.to_string_lossy();
        text.starts_with("/archive/0000") && text.ends_with(".zst")
    });
    let identity = archive(disk).unwrap().identity();
    assert!(!stored || identity.is_some(), "{at}: whose log is it?");
    assert_eq!(run(disk).unwrap_or_else(|(_, e)| panic!("{at}: {e}")), 3);
    for &(name, ref bytes) in files() {
        assert!(fetch(disk, name).unwrap() == *bytes, "{at}: {name}");
    }
}

/// The same; and of what a writer left whose lock is gone nothing stays.
fn check_all(disk: &SimDisk, reported: usize, at: &str) {
    check(disk, reported, at);
    assert_eq!(leftovers(disk), [] as [&Path; 0], "{at}");
}

#[test]
fn a_power_cut_at_any_step_loses_nothing_that_was_reported() {
    let whole = prepared(1);
    assert_eq!(run(&whole).unwrap(), 3);
    let steps = whole.steps();
    assert!(steps > 20, "{steps} steps");
    for step in 0..=steps {
        let disk = prepared(step);
        disk.cut_power_at(step);
        let reported = run(&disk).unwrap_or_else(|(done, _)| done);
        for (i, image) in disk.images(6).iter().enumerate() {
            check_all(image, reported, &format!("step {step}, image {i}"));
        }
    }
}

#[test]
fn a_power_cut_without_working_locks_loses_nothing_that_was_reported() {
    let prepared = |seed| prepared(seed).set_keeps_locks(false);
    let whole = prepared(1);
    assert_eq!(run(&whole).unwrap(), 3);
    for step in 0..=whole.steps() {
        let disk = prepared(step);
        disk.cut_power_at(step);
        let reported = run(&disk).unwrap_or_else(|(done, _)| done);
        for (i, image) in disk.images(6).iter().enumerate() {
            check(image, reported, &format!("step {step}, image {i}"));
        }
    }
}

/// Goal: the mark of the archive, each directory and each file is durable before success is told. A test of power cuts that
/// passes without a sync would show nothing of it.
#[test]
fn a_forgotten_sync_of_a_directory_is_found() {
    let whole = prepared(1);
    run(&whole).unwrap();
    let is_found = |forgotten: &Fault| {
        (0..=whole.steps()).any(|step| {
            let disk = prepared(step).inject(forgotten.clone()).cut_power_at(step);
            let reported = run(&disk).unwrap_or_else(|(done, _)| done);
            let images = disk.images(6);
            images.iter().any(|image| {
                let check = || check(image, reported, "forgotten");
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
            })
        })
    };
    let syncs = whole.forgetting(0);
    let found: Vec<bool> = syncs.iter().map(|(_, fault)| is_found(fault)).collect();
    // The mark's, and two of each segment. A history lies in the archive's own directory, which is synced twice.
    let expected = [true, true, true, true, true, false, false];
    assert_eq!(found, expected, "{syncs:?}");
}

/// Only the process crashes: the system keeps its writes, and the abandoned file has no owner.
#[test]
fn a_process_killed_at_any_step_is_followed_by_a_clean_retry_and_a_power_cut_then_loses_nothing() {
    let whole = prepared(1);
    run(&whole).unwrap();
    for step in 0..whole.steps() {
        let disk = prepared(step);
        // Every call fails from here on: undone work stays undone, as after a kill.
        disk.inject(Fault::errno(libc_eio()).from_step(step));
        let _killed = run(&disk);
        disk.heal();
        assert_eq!(
            run(&disk).unwrap_or_else(|(_, e)| panic!("step {step}: {e}")),
            3
        );
        // The retry may have found the killed process's file: its success must hold all the same.
        for (i, image) in disk.images(4).iter().enumerate() {
            check_all(image, 3, &format!("step {step}, image {i}"));
        }
    }
}

fn libc_eio() -> i32 {
    5
}

const ENOSPC: i32 = 28;

#[test]
fn any_call_that_fails_once_is_an_error_and_the_next_try_succeeds() {
    for op in [
        Op::Open,
        Op::Read,
        Op::Stat,
        Op::Create,
        Op::Write,
        Op::Sync,
        Op::CreateDir,
        Op::Rename,
        Op::SyncDir,
    ] {
        for passes in 0..12 {
            let disk = prepared(passes);
            disk.inject(Fault::errno(ENOSPC).on(op).nth(passes + 1).times(1));
            let reported = run(&disk).unwrap_or_else(|(done, _)| done);
            disk.heal();
            check_all(&disk, reported, &format!("{op:?} {passes}"));
        }
    }
}

#[test]
fn an_error_in_the_middle_of_a_segment_names_the_byte() {
    let disk = prepared(1);
    let middle = (300 << 10)..(301 << 10);
    let broken = Fault::errno(libc_eio()).on(Op::Read).below(WAL);
    disk.inject(broken.at_bytes(middle));
    let (_, error) = run(&disk).unwrap_err();
    assert!(error.to_string().contains(" at byte "), "{error}");
}

/// Goal: a file that an earlier call left, whose name was not durable yet, is durable when a push says that it is there.
#[test]
fn an_existing_file_is_durable_before_success_is_reported() {
    let disk = disk(1);
    let (before, bytes) = (segment(1, 2, 2), segment(1, 3, 3));
    push(&disk, name(1, 2), &before).unwrap();
    disk.inject(Fault::errno(ENOSPC).on(Op::SyncDir));
    push(&disk, name(1, 3), &bytes).unwrap_err();
    disk.heal();
    // The disk keeps the order of names, so nothing else may be made durable meanwhile.
    let out = opened(&disk, name(1, 3)).unwrap();
    let again = archive(&disk)
        .unwrap()
        .push(&out, &form(Algorithm::QatDeflate), &*clock());
    assert_eq!(again.unwrap(), PushResult::Already);
    for image in disk.images(8) {
        assert!(fetch(&image, name(1, 3)).unwrap() == bytes);
    }
}

#[test]
fn short_writes_are_completed() {
    let disk = prepared(3);
    disk.inject(Fault::short_write());
    assert_eq!(run(&disk).unwrap(), 3);
    check_all(&disk, 3, "short writes");
}

#[test]
fn a_full_disk_is_an_error_that_leaves_nothing_and_room_mends_it() {
    let disk = SimDisk::new(5);
    disk.mount(ARCHIVE).unwrap();
    mark(&disk);
    for &(name, ref bytes) in files() {
        disk.write_file(Path::new(WAL).join(name.to_string()), bytes)
            .unwrap();
    }
    disk.set_capacity(ARCHIVE, 32 << 10).unwrap();
    let (done, error) = run(&disk).unwrap_err();
    assert_eq!(done, 0);
    assert!(
        matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(ENOSPC)),
        "{error}"
    );
    assert!(
        error
            .hint()
            .contains("free space on this path's file system")
    );
    assert_eq!(leftovers(&disk), [] as [&Path; 0]);
    disk.heal();
    check_all(&disk, 0, "after room was made");
}

#[test]
fn a_file_that_somebody_writes_is_waited_for_and_an_abandoned_one_is_not() {
    let disk = prepared(1);
    let (name, bytes) = files()[0].clone();
    // Abandoned: its lock is free.
    disk.write_file(
        Path::new(ARCHIVE).join(format!("0000000100000000/{name}.tmp")),
        b"half",
    )
    .unwrap();
    assert!(matches!(
        push(&disk, name, &bytes),
        Ok(PushResult::Stored { .. })
    ));
    // Locked: the simulated clock makes the wait short.
    use longshore_io::OpenHow;
    let (name, bytes) = files()[1].clone();
    disk.write_file(
        Path::new(ARCHIVE).join(format!("0000000100000001/{name}.tmp")),
        b"half",
    )
    .unwrap();
    let dir = disk
        .dir(&Path::new(ARCHIVE).join("0000000100000001"))
        .unwrap();
    let held = dir
        .open(Path::new(&format!("{name}.tmp")), OpenHow::ReadWrite)
        .unwrap();
    assert!(held.try_lock().unwrap());
    assert!(matches!(push(&disk, name, &bytes), Err(Error::Busy { .. })));
    drop(held);
    assert!(matches!(
        push(&disk, name, &bytes),
        Ok(PushResult::Stored { .. })
    ));
}

/// Where a server would have its segment restored.
const RESTORED: &str = "/restored/pg_wal";

fn fetch_there(disk: &SimDisk) -> Result<(), Error> {
    let (name, _) = files()[0].clone();
    let io = |source| Error::Io {
        action: "open",
        path: RESTORED.into(),
        offset: None,
        source,
    };
    let dir = disk.dir(Path::new(RESTORED)).map_err(io)?;
    let fetched = archive(disk)?.fetch(name, &dir, Path::new(RESTORED), "RECOVERYXLOG", &*clock());
    fetched.map(drop)
}

#[test]
fn a_power_cut_at_any_step_of_fetching_leaves_the_complete_segment_or_none() {
    let prepared = |seed| {
        let disk = prepared(seed);
        run(&disk).unwrap();
        disk.write_file(Path::new(RESTORED).join("archive_status/.keep"), b"")
            .unwrap();
        // An earlier segment already exists, as PostgreSQL leaves it after a failed try.
        disk.write_file(Path::new(RESTORED).join("RECOVERYXLOG.tmp"), b"abandoned")
            .unwrap();
        disk
    };
    let whole = prepared(1);
    let before = whole.steps();
    fetch_there(&whole).unwrap();
    assert!(whole.steps() > before + 4);
    let (_, bytes) = files()[0].clone();
    for step in before..=whole.steps() {
        let disk = prepared(step);
        disk.cut_power_at(step);
        let told = fetch_there(&disk).is_ok();
        for (i, image) in disk.images(6).iter().enumerate() {
            match image.read_file(Path::new(RESTORED).join("RECOVERYXLOG")) {
                Ok(found) => assert!(found == bytes, "step {step}, image {i}: half a segment"),
                Err(_) => assert!(!told, "step {step}, image {i}: lost"),
            }
        }
    }
    // The above does not show what a missing sync would lose.
    let disk = prepared(1);
    disk.inject(Fault::forgotten_sync().on(Op::SyncDir));
    fetch_there(&disk).unwrap();
    let lost = disk.images(6)[0].read_file(Path::new(RESTORED).join("RECOVERYXLOG"));
    assert!(lost.is_err());
}
