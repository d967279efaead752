//! The cache gets more of its device, or less, while it serves.

use std::sync::Arc;
use std::thread;

use longshore_blockcache::{Error, Start};
use longshore_io::{Fault, Op};

use crate::faults::serves_rightly;
use crate::{CACHE, LINE, differing, disk, settings, start};

const MIB: u64 = 1 << 20;

#[test]
fn the_content_stays_when_the_cache_grows_and_after_a_restart() {
    let disk = disk(1, 1200, 8, 64 << 10);
    let (engine, _) = start(&disk, settings("none")).unwrap();
    differing(&engine, &disk);
    let before = engine.status();
    assert!(before.held_bytes < 8 * (64 << 10) + 1);
    let capacity = engine.resize(12 * MIB).unwrap();
    assert!(capacity > 8 * MIB && capacity <= 11 * MIB, "{capacity}");
    let after = engine.status();
    assert_eq!(
        (after.capacity_bytes, after.held_bytes),
        (capacity, before.held_bytes)
    );
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
    let held = engine.status().held_bytes;
    assert_eq!(held, 1200 * LINE as u64, "everything has room now");
    engine.stop().unwrap();
    drop(engine);
    let (engine, how) = start(&disk, settings("none")).unwrap();
    assert_eq!((how, engine.status().held_bytes), (Start::Warm, held));
    let status = engine.status();
    assert_eq!((status.capacity_bytes, status.retired_slots), (capacity, 0));
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
}

#[test]
fn a_cache_that_shrinks_gives_its_file_back_and_keeps_what_it_has_room_for() {
    let disk = disk(1, 1200, 100, 64 << 10);
    let (engine, _) = start(&disk, settings("none")).unwrap();
    differing(&engine, &disk);
    let before = disk.read_file(CACHE).unwrap().len() as u64;
    let capacity = engine.resize(before / 2).unwrap();
    assert!(disk.read_file(CACHE).unwrap().len() as u64 <= before / 2);
    let status = engine.status();
    assert!(
        status.held_bytes > capacity * 3 / 4 && status.held_bytes <= capacity,
        "{status:?}"
    );
    assert_eq!(status.retired_slots, 0);
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
    engine.stop().unwrap();
    drop(engine);
    let (engine, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::Warm);
    assert!(engine.status().held_bytes > capacity * 3 / 4);
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
}

/// Up and down, with requests in between, by several threads at once, and with a crash at the end.
#[test]
fn requests_are_right_while_the_size_changes_and_after_a_crash() {
    let disk = disk(1, 64, 8, 16 << 10);
    let mut settings = settings("none");
    settings.fillers = 2;
    let (engine, _) = start(&disk, settings).unwrap();
    let engine = Arc::new(engine);
    let sizes = [6, 4, 16, 5, 32, 4, 9, 64, 4].map(|mib| mib * MIB);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = {
        let (engine, over) = (Arc::clone(&engine), Arc::clone(&over));
        thread::spawn(move || {
            let mut at = 0;
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                engine
                    .read(&mut [0; 4 * LINE], at % 60 * LINE as u64)
                    .unwrap();
                at += 7;
            }
        })
    };
    let resizer = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || sizes.map(|size| engine.resize(size)))
    };
    for seed in 0..20 {
        serves_rightly(&disk, &engine, seed, 30);
    }
    let sizes = resizer.join().unwrap();
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    reader.join().unwrap();
    assert!(
        sizes.iter().filter(|size| size.is_ok()).count() > 5,
        "{sizes:?}"
    );
    serves_rightly(&disk, &engine, 99, 60);
    let status = engine.status();
    assert_eq!((status.cache, status.cache_errors), ("attached", 0));
    assert_eq!(engine.counters().damaged, 0);
    drop(engine);
    for image in disk.images(6) {
        let (engine, how) = start(&image, crate::settings("none")).unwrap();
        assert_eq!(how, Start::AfterCrash);
        assert_eq!(differing(&engine, &image), Vec::<usize>::new());
    }
}

/// The old size or the new one, and nothing stale.
#[test]
fn a_power_cut_at_any_step_of_a_change_of_size_leaves_a_cache_that_is_right() {
    for sizes in [[6, 3], [3, 6]] {
        let lived = || {
            let disk = disk(1, 64, 100, 16 << 10);
            let (engine, _) = start(&disk, settings("none")).unwrap();
            engine.resize(sizes[0] * MIB).unwrap();
            serves_rightly(&disk, &engine, 3, 60);
            disk.settle();
            (disk, engine)
        };
        let (whole, engine) = lived();
        let before = whole.steps();
        engine.resize(sizes[1] * MIB).unwrap();
        serves_rightly(&whole, &engine, 4, 6);
        let after = whole.steps();
        assert!(after > before + 8);
        for step in before..after {
            let (disk, engine) = lived();
            let disk = disk.cut_power_at(step);
            let _cut = engine.resize(sizes[1] * MIB);
            for line in 0..3 {
                let _cut = engine.write(&[9; LINE], line * LINE as u64, false);
            }
            drop(engine);
            for image in disk.images(6) {
                let (engine, how) = start(&image, settings("none")).unwrap();
                assert!(
                    matches!(how, Start::AfterCrash | Start::NotVouched),
                    "{how:?} at {step}"
                );
                assert_eq!(
                    differing(&engine, &image),
                    Vec::<usize>::new(),
                    "{how:?} at {step}"
                );
            }
        }
    }
}

#[test]
fn an_impossible_size_is_refused_and_changes_nothing() {
    let disk = disk(1, 64, 100, 16 << 10);
    let (engine, _) = start(&disk, settings("none")).unwrap();
    differing(&engine, &disk);
    let before = engine.status();
    assert!(matches!(engine.resize(MIB), Err(Error::TooSmall { .. })));
    engine.resize(6 * MIB).unwrap();
    assert!(matches!(
        engine.resize(6 * MIB + 65536),
        Err(Error::SmallStep { .. })
    ));
    disk.inject(Fault::errno(libc::ENOSPC).on(Op::SetLen).below("/fast"));
    let grown = engine.status();
    assert!(matches!(engine.resize(60 * MIB), Err(Error::Io { .. })));
    let after = engine.status();
    assert_eq!(
        (after.cache, after.capacity_bytes),
        ("attached", grown.capacity_bytes)
    );
    assert_eq!(after.held_bytes, before.held_bytes);
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
    engine.detach().unwrap();
    assert!(matches!(engine.resize(6 * MIB), Err(Error::Detached)));
}

/// The device fails in the middle of a resize.
#[test]
fn an_error_of_the_device_during_a_resize_reaches_no_client() {
    for (op, nth) in [(Op::Write, 1), (Op::Write, 3), (Op::Sync, 1), (Op::Sync, 3)] {
        let disk = disk(1, 64, 100, 16 << 10);
        let (engine, _) = start(&disk, settings("none")).unwrap();
        serves_rightly(&disk, &engine, 3, 60);
        disk.inject(Fault::errno(libc::EIO).on(op).below("/fast").nth(nth));
        engine.resize(6 * MIB).unwrap_err();
        serves_rightly(&disk, &engine, 4, 60);
        assert_eq!(engine.status().cache, "failed");
        drop(engine);
        disk.heal();
        let (engine, how) = start(&disk, settings("none")).unwrap();
        assert_eq!(how, Start::NotVouched);
        assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
    }
}
