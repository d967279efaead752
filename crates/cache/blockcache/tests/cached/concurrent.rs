//! Goal: with many clients at once, and fills in threads of their own, no read is older than the last write before it,
//! and a failed sync fails every flush that it concerns.
//! Method: threads write numbers into lines of their own and read all lines; single overlaps of reads, fills, writes
//! and syncs are forced one by one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use longshore_blockcache::{CachedBackend, Settings, Start, attach, create};
use longshore_io::{Fault, Op, SimDisk};

use crate::{CACHE, Image, LINE, Random, backend, differing, disk, settings, start};

/// Goal: no read is older than the last write before it, however fills, writes and evictions overlap.
/// Method: each thread owns some lines, all neighbours of others' in the same blocks; it writes numbers into them and
/// reads them back. Others read the same lines meanwhile, and the backend's reads are slow, so that stale fills could
/// happen. At the end everything read through the cache equals the backend.
fn reads_follow_writes(policy: &str, fillers: usize, slow: bool) {
    const CLIENTS: usize = 4;
    let disk = disk(1, 96, 6, 16 << 10);
    let mut settings = settings(policy);
    (settings.fillers, settings.clients) = (fillers, CLIENTS + 2);
    let (cached, _) = start(&disk, settings).unwrap();
    if slow {
        let pause = Fault::delay(Duration::from_micros(300)).sometimes();
        disk.inject(pause.clone().on(Op::Read).below("/slow"));
        disk.inject(pause.on(Op::Write).below("/fast"));
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let cached = &cached;
                scope.spawn(move || {
                    let mut random = Random(client as u64);
                    let mut written = [None::<u8>; 24];
                    for _ in 0..400 {
                        let mine = random.below(24) as usize;
                        let offset = ((mine * CLIENTS + client) * LINE) as u64;
                        if random.below(3) == 0 {
                            let byte = random.below(256) as u8;
                            cached.write(&[byte; LINE], offset, false).unwrap();
                            written[mine] = Some(byte);
                        } else {
                            let mut out = [0; LINE];
                            cached.read(&mut out, offset).unwrap();
                            if let Some(byte) = written[mine] {
                                assert!(out.iter().all(|b| *b == byte), "line {mine} of {client}");
                            }
                        }
                    }
                })
            })
            .collect();
        // Readers of everything, and the thread that makes checkpoints.
        for seed in [10, 11] {
            let (cached, over) = (&cached, &over);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !over.load(SeqCst) {
                    let mut out = vec![0; LINE * (1 + random.below(16) as usize)];
                    cached
                        .read(&mut out, random.below(80) * LINE as u64)
                        .unwrap();
                    if random.below(20) == 0 {
                        cached.checkpoint(true).unwrap();
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, SeqCst);
        assert!(
            ended.iter().all(Result::is_ok),
            "a writer found a wrong byte"
        );
    });
    disk.heal();
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    assert_eq!(cached.counters().damaged_reads, 0);
    cached.stop().unwrap();
    drop(cached);
    let (cached, _) = start(&disk, crate::settings(policy)).unwrap();
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

#[test]
fn reads_follow_writes_with_fills_aside() {
    reads_follow_writes("none", 2, false);
    reads_follow_writes("none", 2, true);
}

#[test]
fn reads_follow_writes_with_fills_in_line() {
    reads_follow_writes("none", 0, true);
}

#[test]
fn reads_follow_writes_under_the_device_aware_policy() {
    reads_follow_writes("aware", 2, true);
    reads_follow_writes("balance", 2, true);
}

/// The race in isolation: a read misses, its backend read is slow, a write begins and ends, then the fill ends.
#[test]
fn a_fill_that_a_write_overtook_is_void() {
    let disk = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    let cached = Arc::new(cached);
    // The bytes are read before the write, as on a slow disk, so the reader has the old ones.
    meanwhile((&disk, &cached), (Op::Write, "/fast"), |cached| {
        cached.write(&[9; LINE], 0, false).unwrap();
    });
    assert_ne!(first_line(&cached), [9; LINE], "the write came first");
    assert_eq!(first_line(&cached), [9; LINE]);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// Readers that miss bytes being read wait for that read, and get their own part of it.
#[test]
fn a_miss_waits_for_another_clients_read_of_the_same_bytes() {
    // Whether they overlap is chance: they try until they have.
    loop {
        let disk = disk(1, 64, 8, 16 << 10);
        let (cached, _) = start(&disk, settings("aware")).unwrap();
        let truth = disk.read_file(backend().path).unwrap();
        let pause = Fault::delay(Duration::from_millis(5)).on(Op::Read);
        disk.inject(pause.below("/slow"));
        thread::scope(|scope| {
            for (first, lines) in [(0, 8), (0, 8), (3, 2)] {
                let (cached, truth) = (&cached, &truth);
                scope.spawn(move || {
                    let mut out = vec![0; lines * LINE];
                    let at = first * LINE;
                    cached.read(&mut out, at as u64).unwrap();
                    assert!(out == truth[at..at + out.len()], "from line {first}");
                });
            }
        });
        if cached.counters().joined == 2 {
            break;
        }
    }
}

/// A read is in flight and may have the old bytes; a write begins and ends; a later read must read for itself.
#[test]
fn a_miss_after_a_write_does_not_wait_for_a_read_begun_before_it() {
    let disk = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("aware")).unwrap();
    let cached = Arc::new(cached);
    let (told, news) = std::sync::mpsc::channel();
    meanwhile((&disk, &cached), (Op::Read, "/slow"), move |cached| {
        let (cached, told) = (Arc::clone(cached), told.clone());
        let (done, over) = std::sync::mpsc::channel::<()>();
        thread::spawn(move || {
            cached.write(&[9; LINE], 0, false).unwrap();
            told.send(first_line(&cached)).unwrap();
            drop(done);
        });
        // A read that wrongly waits for the read blocked here is released in the end.
        let _ended = over.recv_timeout(Duration::from_secs(5));
    });
    cached.read(&mut [0; LINE], 0).unwrap();
    assert!(news.recv().unwrap() == [9; LINE]);
    assert_eq!(cached.counters().joined, 0);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// A cache that holds the first line of a block, so that policies keep what is written there.
fn held() -> (SimDisk, Arc<CachedBackend>) {
    held_by(0)
}

fn held_by(fillers: usize) -> (SimDisk, Arc<CachedBackend>) {
    let disk = disk(1, 64, 8, 16 << 10);
    let settings = Settings {
        fillers,
        ..settings("none")
    };
    let (cached, _) = start(&disk, settings).unwrap();
    cached.read(&mut [0; LINE], 0).unwrap();
    while cached.status().held_bytes < LINE as u64 {
        thread::yield_now();
    }
    assert_eq!(cached.status().held_bytes, LINE as u64);
    (disk, Arc::new(cached))
}

/// During the next call of this kind below `path`, the cache's clients do this first.
fn meanwhile(
    (disk, cached): (&SimDisk, &Arc<CachedBackend>),
    (op, path): (Op, &str),
    deed: impl Fn(&Arc<CachedBackend>) + Send + Sync + 'static,
) {
    let cached = Arc::clone(cached);
    let fault = Fault::meanwhile(move || deed(&cached));
    disk.inject(fault.on(op).below(path).times(1));
}

/// The first line, as a client reads it.
fn first_line(cached: &CachedBackend) -> [u8; LINE] {
    let mut out = [0; LINE];
    cached.read(&mut out, 0).unwrap();
    out
}

/// A write is in flight and its line is not cached; a read correctly sees the old bytes. They are not kept.
#[test]
fn nothing_is_filled_that_a_write_is_about_to_change() {
    let (disk, cached) = held();
    meanwhile((&disk, &cached), (Op::Write, "/slow"), |cached| {
        first_line(cached);
    });
    cached.write(&[9; LINE], 0, false).unwrap();
    assert_eq!(first_line(&cached), [9; LINE]);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// A write is in flight; a read correctly sees the old bytes. A read after the write must read for itself.
#[test]
fn a_miss_after_a_write_does_not_wait_for_a_read_begun_during_it() {
    let disk = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&disk, settings("aware")).unwrap();
    let cached = Arc::new(cached);
    let (begun, reads) = std::sync::mpsc::channel();
    let (written, end) = std::sync::mpsc::channel::<()>();
    let end = std::sync::Mutex::new(end);
    // The first read has its bytes, and keeps them until the last reader was answered.
    meanwhile((&disk, &cached), (Op::Read, "/slow"), move |_| {
        begun.send(()).unwrap();
        let _ended = end.lock().unwrap().recv_timeout(Duration::from_secs(20));
    });
    let reads = std::sync::Mutex::new(reads);
    meanwhile((&disk, &cached), (Op::Write, "/slow"), move |cached| {
        let other = Arc::clone(cached);
        thread::spawn(move || first_line(&other));
        reads.lock().unwrap().recv().unwrap();
    });
    cached.write(&[9; LINE], 0, false).unwrap();
    let (told, news) = std::sync::mpsc::channel();
    let last = Arc::clone(&cached);
    thread::spawn(move || told.send(first_line(&last)).unwrap());
    // A reader that wrongly waits for the first is released in the end.
    let answered = news.recv_timeout(Duration::from_secs(5));
    drop(written);
    assert!(answered.or_else(|_| news.recv()).unwrap() == [9; LINE]);
    assert_eq!(cached.counters().joined, 0);
}

/// Two clients write one line at the same time: the cache ends with the backend's content.
#[test]
fn of_two_writes_of_one_line_the_second_waits_for_the_first() {
    let (disk, cached) = held();
    let (sender, second) = std::sync::mpsc::channel();
    meanwhile((&disk, &cached), (Op::Write, "/slow"), move |cached| {
        let (other, sender) = (Arc::clone(cached), sender.clone());
        let (told, ended) = std::sync::mpsc::channel();
        thread::spawn(move || {
            other.write(&[8; LINE], 0, false).unwrap();
            // The receiver may be gone.
            let _ = told.send(());
            sender.send(()).unwrap();
        });
        // Time for a write that does not wait for the first.
        let _ = ended.recv_timeout(Duration::from_millis(200));
    });
    cached.write(&[9; LINE], 0, false).unwrap();
    second.recv().unwrap();
    assert_eq!(first_line(&cached), [8; LINE]);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// A hit is in flight; a write and its fill happen before the cache device is read. That is not damage.
#[test]
fn a_hit_that_was_overwritten_meanwhile_is_read_again_and_the_slot_kept() {
    let (disk, cached) = held();
    meanwhile((&disk, &cached), (Op::Read, "/fast"), |cached| {
        cached.write(&[9; LINE], 0, false).unwrap();
    });
    assert_eq!(first_line(&cached), [9; LINE]);
    let counters = cached.counters();
    assert_eq!((counters.outdated_reads, counters.damaged_reads), (1, 0));
    assert_eq!(cached.status().retired_slots, 0);
}

/// A sync fails while a write is in flight: the write may be lost with it, so it is not cached.
#[test]
fn bytes_written_around_a_failed_sync_are_not_held() {
    let (disk, cached) = held();
    disk.inject(Fault::errno(libc::EIO).on(Op::Sync).below("/slow").times(1));
    meanwhile((&disk, &cached), (Op::Write, "/slow"), |cached| {
        cached.flush().unwrap_err();
    });
    cached.write(&[9; LINE], 0, false).unwrap();
    assert_eq!(cached.status().held_bytes, 0);
}

/// The same if the guard cannot be written either, so that the cache continues: neither the write nor a fill that was
/// in flight is kept.
#[test]
fn nothing_from_around_a_failed_sync_is_held_by_a_cache_that_cannot_be_given_up() {
    for (under_way, op) in [("/slow", Op::Write), ("/fast", Op::Write)] {
        let (disk, cached) = held();
        let failing = Fault::errno(libc::EIO);
        disk.inject(
            failing
                .clone()
                .on(Op::Create)
                .below(format!("{}.longshore-new", Image::GUARD)),
        );
        disk.inject(failing.clone().on(Op::RemoveFile).below(Image::GUARD));
        disk.inject(failing.on(Op::Sync).below("/slow/backend").times(1));
        meanwhile((&disk, &cached), (op, under_way), |cached| {
            cached.flush().unwrap_err();
        });
        match under_way {
            "/slow" => cached.write(&[9; LINE], 0, false).unwrap(),
            _ => cached.read(&mut [0; LINE], LINE as u64).unwrap(),
        }
        let status = cached.status();
        assert_eq!(
            (status.cache, status.held_bytes),
            ("attached", 0),
            "{under_way}"
        );
    }
}

/// The system reports a failed sync to one caller only; here to the first of two concurrent flushes.
#[test]
fn a_failed_sync_fails_every_flush_in_flight() {
    let (disk, cached) = held();
    let (sender, second) = std::sync::mpsc::channel();
    disk.inject(Fault::errno(libc::EIO).on(Op::Sync).below("/slow").times(1));
    meanwhile((&disk, &cached), (Op::Sync, "/slow"), move |cached| {
        let (other, sender) = (Arc::clone(cached), sender.clone());
        let (told, ended) = std::sync::mpsc::channel();
        let flushes = other.counters().flushes;
        let another = Arc::clone(&other);
        thread::spawn(move || {
            let flushed = another.flush();
            // The receiver may be gone.
            let _ = told.send(());
            sender.send(flushed).unwrap();
        });
        while other.counters().flushes == flushes {
            thread::yield_now();
        }
        // Time for a flush that does not wait for the first.
        let _ = ended.recv_timeout(Duration::from_millis(200));
    });
    cached.write(&[9; LINE], 0, false).unwrap();
    cached.flush().unwrap_err();
    second.recv().unwrap().unwrap_err();
    cached.flush().unwrap();
}

/// A read hangs in the cache device; detaching must not wait for it, nor may others wait for the detaching.
#[test]
fn a_cache_device_that_hangs_can_be_detached() {
    let (disk, cached) = held();
    let (sender, over) = std::sync::mpsc::channel();
    meanwhile((&disk, &cached), (Op::Read, "/fast"), move |cached| {
        let (other, (told, detached)) = (Arc::clone(cached), std::sync::mpsc::channel());
        thread::spawn(move || {
            other.detach().unwrap();
            other.write(&[9; LINE], 0, false).unwrap();
            // The read may have stopped waiting.
            let _ = told.send(other.status().cache);
        });
        // The device answers at last, so that the test ends.
        sender
            .send(detached.recv_timeout(Duration::from_secs(20)))
            .unwrap();
    });
    cached.read(&mut [0; LINE], 0).unwrap();
    assert_eq!(over.recv().unwrap().unwrap(), "detached");
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// Goal: however many requests hang in the cache device, the backend serves others, before and after it is detached.
#[test]
fn requests_that_hang_in_the_cache_device_leave_buffers_to_the_backend() {
    for (op, clients) in [(Op::Read, 300), (Op::Write, 300)] {
        let (disk, cached) = held_by(1);
        let gate = Arc::new(RwLock::new(()));
        let shut = gate.write().unwrap();
        let passes = Arc::clone(&gate);
        let hangs = Fault::meanwhile(move || drop(passes.read()));
        disk.inject(hangs.on(op).below("/fast"));
        let (sender, answered) = std::sync::mpsc::channel();
        let hung: Vec<_> = (0..clients)
            .map(|_| {
                let (cached, sender) = (Arc::clone(&cached), sender.clone());
                thread::spawn(move || {
                    match op {
                        Op::Read => cached.read(&mut [0; LINE], 0).unwrap(),
                        _ => cached.write(&[9; LINE], 0, false).unwrap(),
                    }
                    sender.send(())
                })
            })
            .collect();
        let patience = Duration::from_secs(60);
        // Reads in excess of the turns go to the backend; writes of a line that is cached have to wait.
        for _ in 0..if op == Op::Read { clients - 128 } else { 0 } {
            answered.recv_timeout(patience).expect("others are served");
        }
        while op == Op::Write && cached.counters().writes < clients {
            thread::yield_now();
        }
        let (sender, served) = std::sync::mpsc::channel();
        let client = Arc::clone(&cached);
        thread::spawn(move || {
            // All have come to the device, or wait for a buffer.
            thread::sleep(Duration::from_millis(300));
            client.read(&mut [0; LINE], 5 * LINE as u64).unwrap();
            client.detach().unwrap();
            client.read(&mut [0; LINE], 0).unwrap();
            client.write(&[8; LINE], 7 * LINE as u64, false).unwrap();
            sender.send(()).unwrap();
        });
        let others = served.recv_timeout(patience);
        drop(shut);
        others.expect("the backend serves on");
        for client in hung {
            client.join().unwrap().unwrap();
        }
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    }
}

/// Goal: an attach after that waits for the request that hangs, and no client waits behind the attach.
#[test]
fn an_attach_behind_a_request_that_hangs_stops_nobody() {
    let (disk, cached) = held();
    let other = Path::new("/other");
    create(&disk, other, Some(8 << 20), 16 << 10, false).unwrap();
    let (sender, over) = std::sync::mpsc::channel();
    let (ended, attached) = std::sync::mpsc::channel();
    let again = disk.clone();
    meanwhile((&disk, &cached), (Op::Read, "/fast"), move |cached| {
        cached.detach().unwrap();
        let (behind, again, ended) = (Arc::clone(cached), again.clone(), ended.clone());
        thread::spawn(move || ended.send(attach(&again, &behind, &backend(), other, true)));
        let (client, (told, served)) = (Arc::clone(cached), std::sync::mpsc::channel());
        thread::spawn(move || {
            // The attach waits by now, and again and again.
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(100));
                client.read(&mut [0; LINE], 5 * LINE as u64).unwrap();
            }
            told.send(()).unwrap();
        });
        sender
            .send(served.recv_timeout(Duration::from_secs(60)))
            .unwrap();
    });
    cached.read(&mut [0; LINE], 0).unwrap();
    over.recv().unwrap().expect("clients are served");
    attached.recv().unwrap().unwrap();
    assert_eq!(cached.status().cache, "attached");
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// Status queries, policy changes, attach and detach at the same time do not wait for each other in a circle.
#[test]
fn queries_and_changes_do_not_deadlock() {
    let (disk, cached) = held();
    let over = Arc::new(AtomicBool::new(false));
    let (ended, all) = std::sync::mpsc::channel();
    let work = |deed: Box<dyn Fn(&CachedBackend) + Send>| {
        let (cached, over, ended) = (Arc::clone(&cached), Arc::clone(&over), ended.clone());
        thread::spawn(move || {
            while !over.load(SeqCst) {
                deed(&cached);
            }
            let _ = ended.send(());
        });
    };
    (0..2).for_each(|_| work(Box::new(|cached| drop(cached.status()))));
    for policy in ["none", "balance"] {
        let choice = policy.parse().unwrap();
        work(Box::new(move |cached| cached.set_policy(choice)));
    }
    let again = disk.clone();
    let attached = Arc::clone(&cached);
    thread::spawn(move || {
        for _ in 0..200 {
            attached.detach().unwrap();
            attach(&again, &attached, &backend(), Path::new(CACHE), true).unwrap();
        }
        over.store(true, SeqCst);
        let _ = ended.send(());
    });
    for _ in 0..5 {
        all.recv_timeout(Duration::from_secs(60))
            .expect("nobody waits for ever");
    }
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// A write comes between the two syncs of a checkpoint: its bytes are not certainly on either medium.
#[test]
fn a_checkpoint_does_not_make_later_writes_durable() {
    let (disk, cached) = held();
    meanwhile((&disk, &cached), (Op::Sync, "/fast"), |cached| {
        cached.write(&[9; LINE], 0, false).unwrap();
    });
    cached.checkpoint(true).unwrap();
    disk.heal();
    drop(cached);
    for image in disk.images(16) {
        let (cached, how) = start(&image, settings("none")).unwrap();
        // The sample at the start, which covers everything in so small a cache, must not be what finds it.
        assert_eq!(how, Start::AfterCrash);
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}
