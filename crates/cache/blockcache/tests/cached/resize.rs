//! Goal: the cache gets more of its device, or less, while it serves: what fits stays cached, and nothing stale is read
//! after restarts, crashes, power cuts and errors of the device during the change.
//! Method: simulated disks with injected faults; everything that is read through the cache is compared with the
//! backend's bytes.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use longshore_blockcache::{Error, Start, create};
use longshore_io::{Fault, Op, Storage};

use crate::faults::serves_rightly;
use crate::{CACHE, LINE, differing, disk, settings, start};

const MIB: u64 = 1 << 20;

#[test]
fn the_content_stays_when_the_cache_grows_and_after_a_restart() {
    let disk = disk(1, 1200, 8, 64 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    differing(&cached, &disk);
    let before = cached.status();
    assert!(before.held_bytes < 8 * (64 << 10) + 1);
    let capacity = cached.resize(12 * MIB).unwrap();
    assert!(capacity > 8 * MIB && capacity <= 11 * MIB, "{capacity}");
    let after = cached.status();
    assert_eq!(
        (after.capacity_bytes, after.held_bytes),
        (capacity, before.held_bytes)
    );
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    let held = cached.status().held_bytes;
    assert_eq!(held, 1200 * LINE as u64, "everything has room now");
    cached.stop().unwrap();
    drop(cached);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::Warm, held));
    let status = cached.status();
    assert_eq!((status.capacity_bytes, status.retired_slots), (capacity, 0));
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

#[test]
fn a_cache_that_shrinks_gives_its_file_back_and_keeps_what_it_has_room_for() {
    let disk = disk(1, 1200, 100, 64 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    differing(&cached, &disk);
    let before = disk.read_file(CACHE).unwrap().len() as u64;
    let capacity = cached.resize(before / 2).unwrap();
    assert!(disk.read_file(CACHE).unwrap().len() as u64 <= before / 2);
    let status = cached.status();
    assert!(
        status.held_bytes > capacity * 3 / 4 && status.held_bytes <= capacity,
        "{status:?}"
    );
    assert_eq!(status.retired_slots, 0);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.stop().unwrap();
    drop(cached);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::Warm);
    assert!(cached.status().held_bytes > capacity * 3 / 4);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// Goal: no fill writes to a slot that was taken away: the file would be long again.
/// Method: the write of a fill begins, and goes on when the change of size is done or has waited for a while.
#[test]
fn a_cache_that_shrinks_waits_for_a_fill_that_is_being_written() {
    const BLOCK: u64 = 64 << 10;
    let disk = disk(1, 1200, 100, BLOCK as u32);
    let mut settings = settings("none");
    settings.fillers = 1;
    let (engine, _) = start(&disk, settings).unwrap();
    let read = |block: u64| engine.read(&mut vec![0; BLOCK as usize], block * BLOCK);
    let has_filled = |count: u64| {
        while engine.counters().fills < count {
            thread::sleep(Duration::from_millis(1));
        }
    };
    // Slots are used in order.
    for block in 0..70 {
        read(block).unwrap();
        has_filled(block + 1);
    }
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let (begin, ended) = (Mutex::new(begin), Mutex::new(ended));
    let wait = Fault::meanwhile(move || {
        begin.lock().unwrap().send(()).unwrap();
        let _or_enough = ended
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_millis(200));
    });
    disk.inject(wait.on(Op::Write).below(CACHE).times(1));
    read(70).unwrap();
    begun.recv().unwrap();
    let len = disk.read_file(CACHE).unwrap().len() as u64 / 2;
    engine.resize(len).unwrap();
    // Nobody waits for this if the change of size has waited.
    let _too_late = end.send(());
    has_filled(71);
    assert!(disk.read_file(CACHE).unwrap().len() as u64 <= len);
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
    assert_eq!(engine.counters().damaged_reads, 0);
}

/// Up and down, with requests in between, by several threads at once, and with a crash at the end.
#[test]
fn requests_are_right_while_the_size_changes_and_after_a_crash() {
    let disk = disk(1, 64, 8, 16 << 10);
    let mut settings = settings("none");
    settings.fillers = 2;
    let (cached, _) = start(&disk, settings).unwrap();
    let cached = Arc::new(cached);
    let sizes = [6, 4, 16, 5, 32, 4, 9, 64, 4].map(|mib| mib * MIB);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = {
        let (cached, over) = (Arc::clone(&cached), Arc::clone(&over));
        thread::spawn(move || {
            let mut at = 0;
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                cached
                    .read(&mut [0; 4 * LINE], at % 60 * LINE as u64)
                    .unwrap();
                at += 7;
            }
        })
    };
    let resizer = {
        let cached = Arc::clone(&cached);
        thread::spawn(move || sizes.map(|size| cached.resize(size)))
    };
    for seed in 0..20 {
        serves_rightly(&disk, &cached, seed, 30);
    }
    let sizes = resizer.join().unwrap();
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    reader.join().unwrap();
    assert!(
        sizes.iter().filter(|size| size.is_ok()).count() > 5,
        "{sizes:?}"
    );
    serves_rightly(&disk, &cached, 99, 60);
    let status = cached.status();
    assert_eq!((status.cache, status.device_faults), ("attached", 0));
    assert_eq!(cached.counters().damaged_reads, 0);
    drop(cached);
    for image in disk.images(6) {
        let (cached, how) = start(&image, crate::settings("none")).unwrap();
        assert_eq!(how, Start::AfterCrash);
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

/// The old size or the new one, and nothing stale.
#[test]
fn a_power_cut_at_any_step_of_a_change_of_size_leaves_a_cache_that_is_right() {
    // The last change puts the new log over slots that are used.
    for sizes in [[6, 3], [3, 6], [8, 6]] {
        let lived = || {
            let disk = disk(1, 1600, 100, 16 << 10);
            let (cached, _) = start(&disk, settings("none")).unwrap();
            cached.resize(sizes[0] * MIB).unwrap();
            serves_rightly(&disk, &cached, 3, 60);
            // The last slots are used, too, and the table on the device names them.
            differing(&cached, &disk);
            cached.checkpoint(true).unwrap();
            disk.settle();
            (disk, cached)
        };
        let (whole, cached) = lived();
        let before = whole.steps();
        cached.resize(sizes[1] * MIB).unwrap();
        serves_rightly(&whole, &cached, 4, 6);
        let after = whole.steps();
        assert!(after > before + 8);
        for step in before..after {
            let (disk, cached) = lived();
            let disk = disk.cut_power_at(step);
            let _cut = cached.resize(sizes[1] * MIB);
            for line in 0..3 {
                let _cut = cached.write(&[9; LINE], line * LINE as u64, false);
            }
            drop(cached);
            for image in disk.images(6) {
                let (cached, how) = start(&image, settings("none")).unwrap();
                assert!(
                    matches!(how, Start::AfterCrash | Start::NotVouched),
                    "{how:?} at {step}"
                );
                assert_eq!(
                    differing(&cached, &image),
                    Vec::<usize>::new(),
                    "{how:?} at {step}"
                );
                assert_eq!(cached.counters().damaged_reads, 0, "{how:?} at {step}");
            }
        }
    }
}

#[test]
fn an_impossible_size_is_refused_and_changes_nothing() {
    let disk = disk(1, 64, 100, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    differing(&cached, &disk);
    let before = cached.status();
    assert!(matches!(cached.resize(MIB), Err(Error::TooSmall { .. })));
    cached.resize(6 * MIB).unwrap();
    assert!(matches!(
        cached.resize(6 * MIB + 65536),
        Err(Error::SmallStep { .. })
    ));
    disk.inject(Fault::errno(libc::ENOSPC).on(Op::SetLen).below("/fast"));
    let grown = cached.status();
    assert!(matches!(cached.resize(60 * MIB), Err(Error::Io { .. })));
    let after = cached.status();
    assert_eq!(
        (after.cache, after.capacity_bytes),
        ("attached", grown.capacity_bytes)
    );
    assert_eq!(after.held_bytes, before.held_bytes);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.detach().unwrap();
    assert!(matches!(cached.resize(6 * MIB), Err(Error::Detached)));
}

/// The device fails in the middle of a resize.
#[test]
fn an_error_of_the_device_during_a_resize_reaches_no_client() {
    for (op, nth) in [(Op::Write, 1), (Op::Write, 3), (Op::Sync, 1), (Op::Sync, 3)] {
        let disk = disk(1, 64, 100, 16 << 10);
        let (cached, _) = start(&disk, settings("none")).unwrap();
        serves_rightly(&disk, &cached, 3, 60);
        disk.inject(Fault::errno(libc::EIO).on(op).below("/fast").nth(nth));
        cached.resize(6 * MIB).unwrap_err();
        serves_rightly(&disk, &cached, 4, 60);
        assert_eq!(cached.status().cache, "failed");
        drop(cached);
        disk.heal();
        let (cached, how) = start(&disk, settings("none")).unwrap();
        assert_eq!(how, Start::NotVouched);
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    }
}

/// Goal: a cache that the file system has no space for is refused, and leaves the file, and so the space, as it was.
#[test]
fn a_cache_that_has_no_space_leaves_the_file_as_long_as_it_was() {
    let disk = disk(1, 64, 100, 16 << 10);
    let len = |path: &str| disk.stat(Path::new(path)).unwrap().len;
    let before = len(CACHE);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    let full = || disk.inject(Fault::errno(libc::ENOSPC).on(Op::Allocate).below("/fast"));
    full();
    cached.resize(6 * MIB).unwrap_err();
    assert_eq!(len(CACHE), before);
    serves_rightly(&disk, &cached, 3, 60);
    let empty = Path::new("/fast/empty");
    disk.write_file(empty, b"").unwrap();
    create(&disk, empty, Some(6 * MIB), 16 << 10, false).unwrap_err();
    assert_eq!(len("/fast/empty"), 0);
    disk.heal();
    cached.resize(6 * MIB).unwrap();
    assert!(len(CACHE) > before);
}
