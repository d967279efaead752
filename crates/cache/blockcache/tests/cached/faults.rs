//! Goal: the cache device may fail in every way; clients see nothing of it. Errors of the backend reach the client.
//! Method: random reads and writes over simulated disks are compared with a model, while errors, lost devices, wrong
//! bits and power cuts are injected.
//! Not covered: clients at work in several threads (`storm.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use longshore_blockcache::Start;
use longshore_io::{Fault, Op, SimDisk};

use crate::{BACKEND, CACHE, LINE, Random, differing, disk, settings, start};

/// Random reads and writes compared with a model, with checkpoints; no request may fail and no read be wrong.
pub fn serves_rightly(
    disk: &SimDisk,
    cached: &longshore_blockcache::CachedBackend,
    seed: u64,
    count: usize,
) {
    let mut model = disk.read_file(BACKEND).unwrap();
    let mut random = Random(seed);
    for _ in 0..count {
        let line = random.below(60) as usize * LINE;
        let len = LINE * (1 + random.below(4) as usize);
        let len = len.min(model.len() - line);
        if random.below(3) == 0 {
            let new = vec![random.below(256) as u8; len];
            cached
                .write(&new, line as u64, random.below(4) == 0)
                .unwrap();
            model[line..line + len].copy_from_slice(&new);
        } else {
            let mut out = vec![0; len];
            cached.read(&mut out, line as u64).unwrap();
            assert_eq!(out, model[line..line + len]);
        }
        if random.below(10) == 0 {
            cached.checkpoint(true).unwrap();
        }
    }
    assert_eq!(disk.read_file(BACKEND).unwrap(), model);
}

fn warmed(seed: u64) -> SimDisk {
    let disk = disk(seed, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    serves_rightly(&disk, &cached, seed, 100);
    cached.stop().unwrap();
    drop(cached);
    disk
}

#[test]
fn no_error_of_the_cache_device_at_any_time_reaches_a_client() {
    for op in [Op::Read, Op::Write, Op::Sync] {
        for seed in 0..12 {
            let disk = warmed(seed);
            let (cached, _) = start(&disk, settings("none")).unwrap();
            let fault = Fault::errno(libc::EIO)
                .on(op)
                .below("/fast")
                .nth(1 + seed * 3);
            disk.inject(if seed % 2 == 0 {
                fault.sometimes()
            } else {
                fault
            });
            serves_rightly(&disk, &cached, seed, 200);
            assert!(
                cached.counters().cache_errors > 0,
                "{op:?}, {seed}: no fault hit"
            );
            drop(cached);
            disk.heal();
            // The device works again, and its content is correct or not believed.
            let (cached, _) = start(&disk, settings("none")).unwrap();
            assert_eq!(
                differing(&cached, &disk),
                Vec::<usize>::new(),
                "{op:?}, {seed}"
            );
        }
    }
}

/// Goal: a single error of the log costs no cache: the log is written again, in place or in the other half. Even if
/// the power fails afterwards, no stale line is believed, although data that a failed sync covered may be lost.
/// Method: one run for each write and each sync of the cache device, including the first ones of every commit, in
/// which that one fails; a crash, and images that it can leave.
#[test]
fn one_error_anywhere_in_the_log_costs_no_cache_and_no_byte() {
    let mut hit = 0;
    for op in [Op::Write, Op::Sync] {
        for nth in 1..40 {
            let disk = warmed(nth);
            let (cached, _) = start(&disk, settings("none")).unwrap();
            disk.inject(
                Fault::errno(libc::EIO)
                    .on(op)
                    .below(CACHE)
                    .nth(nth)
                    .times(1),
            );
            serves_rightly(&disk, &cached, nth, 60);
            hit += u64::from(cached.counters().cache_errors > 0);
            assert_eq!(cached.status().cache, "attached", "{op:?}, {nth}");
            disk.heal();
            serves_rightly(&disk, &cached, nth + 1, 20);
            cached.checkpoint(true).unwrap();
            assert!(cached.status().durable_bytes > 0, "{op:?}, {nth}");
            serves_rightly(&disk, &cached, nth + 2, 10);
            drop(cached);
            for image in disk.images(4) {
                let (cached, how) = start(&image, settings("none")).unwrap();
                assert_eq!(how, Start::AfterCrash, "{op:?}, {nth}");
                assert_eq!(
                    differing(&cached, &image),
                    Vec::<usize>::new(),
                    "{op:?}, {nth}"
                );
                assert_eq!(
                    cached.counters().damaged_reads,
                    0,
                    "{op:?}, {nth}: found by its sum, not by order"
                );
            }
        }
    }
    assert!(hit > 60, "{hit} of 78 faults were hit");
}

/// A sync of the log that fails may lose lines that were filled since the last checkpoint: they are dropped, although
/// the log itself is repeated with success. Durable lines stay.
#[test]
fn a_failed_sync_of_the_log_drops_lines_that_are_not_durable() {
    let disk = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    let block = |n: usize| (n * 4 * LINE) as u64;
    let read = |n: usize| cached.read(&mut [0; 4 * LINE], block(n)).unwrap();
    (0..2).for_each(read);
    cached.checkpoint(true).unwrap();
    read(2);
    let held = |n: usize| cached.held().iter().any(|held| held.start == block(n));
    assert!(held(1) && held(2));
    disk.inject(Fault::errno(libc::EIO).below(CACHE).on(Op::Sync).times(1));
    cached.write(&[1; LINE], 0, false).unwrap();
    assert_eq!(cached.counters().cache_errors, 1);
    assert_eq!(cached.status().cache, "attached");
    assert!(held(1) && !held(2));
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// One half of the log can no longer be written: the log continues in the other, until that is full.
#[test]
fn a_part_of_the_log_that_cannot_be_written_is_left_for_the_other() {
    let disk = warmed(5);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    let superblock = |disk: &SimDisk| {
        longshore_blockcache::format::Superblock::decode(&disk.read_file(CACHE).unwrap()).unwrap()
    };
    let before = superblock(&disk);
    let log_bytes = u64::from(before.geometry.log_pages) * LINE as u64;
    let half = 2 * LINE as u64 + before.generation % 2 * log_bytes;
    disk.inject(
        Fault::errno(libc::EIO)
            .on(Op::Write)
            .below(CACHE)
            .at_bytes(half..half + log_bytes),
    );
    serves_rightly(&disk, &cached, 5, 60);
    let after = superblock(&disk);
    assert_eq!(cached.status().cache, "attached");
    assert_eq!(after.generation % 2, (before.generation + 1) % 2);
    assert!(after.generation > before.generation);
    drop(cached);
    disk.heal();
    for image in disk.images(6) {
        let (cached, how) = start(&image, settings("none")).unwrap();
        assert_eq!(how, Start::AfterCrash);
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

/// The power fails at every step around an error of the log, also while the log moves to its other half.
#[test]
fn a_power_cut_after_an_error_of_the_log_leaves_no_stale_line() {
    let faults = || {
        let sync = Fault::errno(libc::EIO)
            .on(Op::Sync)
            .below(CACHE)
            .nth(3)
            .times(2);
        let write = Fault::errno(libc::EIO)
            .on(Op::Write)
            .below(CACHE)
            .nth(20)
            .times(3);
        [sync, write]
    };
    let run = |disk: &SimDisk| {
        let Ok((cached, _)) = start(disk, settings("none")) else {
            return;
        };
        for fault in faults() {
            disk.inject(fault);
        }
        let mut random = Random(8);
        for _ in 0..40 {
            let offset = random.below(60) * LINE as u64;
            let done = match random.below(4) {
                0 => cached.checkpoint(true),
                1 => cached.read(&mut [0; 2 * LINE], offset),
                _ => cached.write(&[random.below(256) as u8; LINE], offset, false),
            };
            if done.is_err() {
                return;
            }
        }
        assert_eq!(cached.status().cache, "attached");
        assert!(
            cached.counters().cache_errors >= 4,
            "{}",
            cached.counters().cache_errors
        );
    };
    let whole = warmed(8);
    let before = whole.steps();
    run(&whole);
    assert!(whole.steps() > before + 60);
    let mut believed = 0;
    for step in before..whole.steps() {
        let disk = warmed(8).cut_power_at(step);
        run(&disk);
        for image in disk.images(4) {
            let (cached, how) = start(&image, settings("none")).unwrap();
            believed += u32::from(how.is_believed());
            // The superblock of a failed attempt leads to a log that the next attempt overwrites.
            assert!(
                how.is_believed() || how == Start::Damaged,
                "step {step}: {how:?}"
            );
            assert_eq!(
                differing(&cached, &image),
                Vec::<usize>::new(),
                "step {step}"
            );
            assert_eq!(cached.counters().damaged_reads, 0, "step {step}");
        }
    }
    assert!(believed > 200, "{believed}");
}

/// The dangerous case: the device vanishes, writes continue, the power fails, and the device is back with its old
/// table.
#[test]
fn a_cache_device_that_vanished_and_came_back_is_not_believed() {
    for seed in 0..8 {
        let disk = warmed(seed);
        let (cached, how) = start(&disk, settings("none")).unwrap();
        assert_eq!(how, Start::Warm);
        disk.inject(Fault::errno(libc::ENXIO).below("/fast"));
        serves_rightly(&disk, &cached, seed, 60);
        assert_eq!(cached.status().cache, "failed");
        for image in disk.images(4) {
            let (cached, how) = start(&image, settings("none")).unwrap();
            assert_eq!(how, Start::NotVouched);
            assert_eq!(differing(&cached, &image), Vec::<usize>::new());
        }
    }
}

/// Neither the cache nor the guard can be written: then, and only then, a write to lines that a start would believe
/// fails.
#[test]
fn a_write_fails_if_neither_the_cache_nor_its_guard_can_record_it() {
    let disk = warmed(3);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    disk.inject(Fault::errno(libc::EIO).on(Op::Sync).below("/fast"));
    disk.inject(Fault::errno(libc::EROFS).on(Op::Create).below("/slow"));
    disk.inject(Fault::errno(libc::EROFS).on(Op::RemoveFile).below("/slow"));
    let failed =
        (0..60).filter(|line| cached.write(&[5; LINE], line * LINE as u64, false).is_err());
    assert!(failed.count() > 0);
    drop(cached);
    for image in disk.images(4) {
        let (cached, _) = start(&image, settings("none")).unwrap();
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

#[test]
fn wrong_bits_on_the_cache_device_reach_no_client() {
    for seed in 0..10 {
        let disk = warmed(seed);
        let mut bytes = disk.read_file(CACHE).unwrap();
        let mut random = Random(seed);
        let slots_at = bytes.len() - 8 * (16 << 10);
        for _ in 0..40 {
            let at = slots_at + random.below((bytes.len() - slots_at) as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        disk.write_file(CACHE, &bytes).unwrap();
        let (cached, how) = start(&disk, settings("none")).unwrap();
        assert_eq!(how, Start::Warm);
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
        assert!(cached.counters().damaged_reads > 0);
        let status = cached.status();
        assert!(status.retired_slots > 0);
        serves_rightly(&disk, &cached, seed, 100);
        // The rest is still used, unless the device failed too often.
        let (fills, whole) = (cached.counters().fills, status.cache == "attached");
        cached.read(&mut vec![0; 60 * LINE], 0).unwrap();
        assert!(!whole || status.retired_slots > 6 || cached.counters().fills > fills);
    }
}

#[test]
fn verify_finds_what_differs_and_repair_drops_it() {
    for seed in 0..20 {
        differences_are_found_and_dropped(&warmed(seed));
    }
}

fn differences_are_found_and_dropped(disk: &SimDisk) {
    let (cached, _) = start(disk, settings("none")).unwrap();
    let found = cached.verify(false).unwrap();
    assert!(found.compared > 0);
    assert_eq!((found.differing, found.unreadable), (0, 0));
    // Another program writes past the cache, which cannot notice it.
    let mut bytes = disk.read_file(BACKEND).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    disk.write_file(BACKEND, &bytes).unwrap();
    assert!(
        !differing(&cached, disk).is_empty(),
        "it was noticed after all"
    );
    let found = cached.verify(true).unwrap();
    assert!(found.compared >= found.differing && found.differing > 0);
    assert_eq!(differing(&cached, disk), Vec::<usize>::new());
}

/// Goal: a write waits until its block's leaving is durable, however many blocks left at once: else a power cut could bring
/// back what the cache had of it.
/// Method: a repair drops one block more than are remembered without asking which of them are durable, and a client writes to
/// one of them before the repair is durable as a whole.
#[test]
fn a_write_waits_for_the_leaving_of_its_block_among_many() {
    const MANY: usize = 257;
    let disk = disk(1, MANY + 20, 400, LINE as u32);
    let (engine, _) = start(&disk, settings("none")).unwrap();
    let engine = Arc::new(engine);
    differing(&engine, &disk);
    engine.checkpoint(true).unwrap();
    // The first write notes until when this session writes, and makes that durable.
    let write = |line: usize| engine.write(&[1; LINE], (line * LINE) as u64, false);
    write(MANY + 10).unwrap();
    let mut bytes = disk.read_file(BACKEND).unwrap();
    let changed = &mut bytes[LINE..(1 + MANY) * LINE];
    changed.iter_mut().for_each(|byte| *byte ^= 0x55);
    disk.write_file(BACKEND, &bytes).unwrap();
    let slots = engine.status().held_slots;
    let waited = Arc::new(AtomicU64::new(0));
    let (writer, count) = (Arc::clone(&engine), Arc::clone(&waited));
    let at_the_end = Fault::meanwhile(move || {
        let before = writer.counters().clearings;
        let at = (MANY / 2 * LINE) as u64;
        writer.write(&[1; LINE], at, false).unwrap();
        count.store(writer.counters().clearings - before, SeqCst);
    });
    disk.inject(at_the_end.on(Op::Read).below(BACKEND).nth(slots));
    let found = engine.verify(true).unwrap();
    assert_eq!(found.differing, MANY as u64);
    assert_eq!(waited.load(SeqCst), 1);
}

/// Method: while a verification reads from the backend what it has just read from the cache, a client writes to it.
#[test]
fn a_comparison_that_a_write_has_overtaken_finds_nothing() {
    let disk = disk(1, 40, 100, 64 << 10);
    let (engine, _) = start(&disk, settings("none")).unwrap();
    let engine = Arc::new(engine);
    differing(&engine, &disk);
    let writer = Arc::clone(&engine);
    // One line of each slot, whichever is compared first.
    let write = Fault::meanwhile(move || {
        for line in [0, 16, 32] {
            let written = writer.write(&[9; LINE], line * LINE as u64, false);
            written.unwrap();
        }
    });
    disk.inject(write.on(Op::Read).below(BACKEND).times(1));
    let found = engine.verify(true).unwrap();
    assert_eq!((found.differing, found.unreadable), (0, 0));
    assert!(found.overtaken > 0);
    disk.heal();
    assert_eq!(engine.verify(true).unwrap().differing, 0);
    assert_eq!(differing(&engine, &disk), Vec::<usize>::new());
}

#[test]
fn errors_of_the_backend_reach_the_client_and_leave_nothing_wrong() {
    for seed in 0..10 {
        let disk = warmed(seed);
        let (cached, _) = start(&disk, settings("none")).unwrap();
        disk.inject(
            Fault::errno(libc::EIO)
                .below(BACKEND)
                .on(Op::Write)
                .sometimes(),
        );
        disk.inject(
            Fault::errno(libc::EIO)
                .below(BACKEND)
                .on(Op::Read)
                .nth(5)
                .times(9),
        );
        let mut random = Random(seed);
        let mut errors = 0;
        for _ in 0..100 {
            let offset = random.below(60) * LINE as u64;
            errors += match random.below(2) {
                0 => u32::from(
                    cached
                        .write(&[random.below(256) as u8; 2 * LINE], offset, false)
                        .is_err(),
                ),
                _ => u32::from(cached.read(&mut [0; 2 * LINE], offset).is_err()),
            };
        }
        assert!(errors > 0);
        disk.heal();
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    }
}

#[test]
fn a_sync_that_fails_in_a_checkpoint_fails_the_next_flush_once() {
    let disk = warmed(1);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    cached.read(&mut [0; LINE], 0).unwrap();
    cached.write(&[1; LINE], 0, false).unwrap();
    disk.inject(Fault::errno(libc::EIO).below(BACKEND).on(Op::Sync).times(1));
    cached.checkpoint(true).unwrap_err();
    cached.flush().unwrap_err();
    cached.flush().unwrap();
    // The system returns data that the failed sync may have lost, and later syncs succeed without it: nothing is
    // cached or believed from now on.
    cached.read(&mut [0; LINE], 0).unwrap();
    cached.checkpoint(true).unwrap();
    let status = cached.status();
    assert_eq!((status.cache, status.held_bytes), ("failed", 0));
    drop(cached);
    for image in disk.images(8) {
        let (cached, how) = start(&image, settings("none")).unwrap();
        assert_eq!(how, Start::NotVouched);
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

/// Goal: errors of trims and of zeroing reach the client, and are counted as those of reads and writes are.
#[test]
fn errors_of_zeroing_are_counted() {
    let disk = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    disk.inject(Fault::errno(libc::EIO).on(Op::Write).below("/slow"));
    let before = cached.counters().backend_errors;
    for (count, may_trim) in [(1, true), (2, false)] {
        cached.zero(0, LINE as u64, may_trim, false).unwrap_err();
        assert_eq!(cached.counters().backend_errors, before + count);
    }
}
