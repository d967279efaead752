//! Goal: clients that write and read see nothing of a cache device that fails or is overwritten, nor of changed
//! settings.
//! Method: several clients, each with lines of its own, work on simulated disks in threads while deeds disturb the
//! cache; at the end everything is compared, and a power cut leaves nothing stale.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use longshore_blockcache::{CachedBackend, Counters, Error, attach};
use longshore_io::{Fault, File, Op, OpenHow, SimDisk, Storage, Via};

use crate::{CACHE, LINE, Random, backend, differing, disk, settings, start};

const CLIENTS: usize = 3;
const LINES: usize = 96;
const SLOTS: u64 = 8;
const SLOT_BYTES: u32 = 16 << 10;

/// A client with its own lines, neighbours of others' in the same blocks: it reads what it wrote last, and no request
/// fails. It also reads the others' lines.
fn client(cached: &CachedBackend, number: usize, seed: u64, over: &AtomicBool) {
    let mut random = Random(seed * 100 + number as u64);
    let mut written = [None::<u8>; LINES / CLIENTS];
    while !over.load(SeqCst) {
        let mine = random.below(written.len() as u64) as usize;
        let offset = ((mine * CLIENTS + number) * LINE) as u64;
        match random.below(9) {
            0..=2 => {
                let byte = random.below(256) as u8;
                cached
                    .write(&[byte; LINE], offset, random.below(6) == 0)
                    .unwrap();
                written[mine] = Some(byte);
            }
            3 => {
                let mut out = vec![0; LINE * (1 + random.below(12) as usize)];
                let first = random.below(80);
                cached.read(&mut out, first * LINE as u64).unwrap();
            }
            4 if random.below(4) == 0 => cached.flush().unwrap(),
            5 if random.below(8) == 0 => cached.checkpoint(true).unwrap(),
            _ => {
                let mut out = [0; LINE];
                cached.read(&mut out, offset).unwrap();
                if let Some(byte) = written[mine] {
                    assert!(out == [byte; LINE], "line {mine} of client {number}");
                }
            }
        }
    }
}

/// A stage on which clients work while their cache is disturbed.
struct Storm {
    disk: SimDisk,
    cached: CachedBackend,
    over: AtomicBool,
    /// Whether every wanted fill happens: filler threads may never get to it while clients do not rest.
    fills: bool,
}

impl Storm {
    /// Runs `deeds` while clients work, then checks that everything is correct.
    fn rages(policy: &str, seed: u64, fillers: usize, deeds: impl FnOnce(&Storm)) {
        let disk = disk(seed, LINES, SLOTS, SLOT_BYTES);
        let mut settings = settings(policy);
        (settings.fillers, settings.clients) = (fillers, CLIENTS + 1);
        let (cached, _) = start(&disk, settings).unwrap();
        let storm = Storm {
            disk,
            cached,
            over: AtomicBool::new(false),
            fills: fillers == 0,
        };
        thread::scope(|scope| {
            /// Clients end even if the deeds panic.
            struct End<'a>(&'a AtomicBool);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.store(true, SeqCst);
                }
            }
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let storm = &storm;
                    scope.spawn(move || {
                        let _all_end = End(&storm.over);
                        client(&storm.cached, number, seed, &storm.over);
                    })
                })
                .collect();
            let end = End(&storm.over);
            deeds(&storm);
            drop(end);
            let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            assert!(ended.iter().all(Result::is_ok), "a client was served wrong");
        });
        storm.disk.heal();
        assert_eq!(differing(&storm.cached, &storm.disk), Vec::<usize>::new());
        storm.cached.stop().unwrap();
        drop(storm.cached);
        started_right(&storm.disk, "after the end");
    }

    /// Repeats the deed until the clients have noticed it, if they are certain to.
    fn meet(&self, what: &str, deed: impl Fn(), met: impl Fn(&Counters) -> bool) {
        deed();
        match self.fills {
            true => self.until(what, || {
                deed();
                met(&self.cached.counters())
            }),
            false => self.requests(100),
        }
    }

    fn until(&self, what: &str, met: impl Fn() -> bool) {
        let since = Instant::now();
        while !met() {
            let patient = since.elapsed() < Duration::from_secs(300);
            assert!(patient && !self.over.load(SeqCst), "{what}: never met");
            thread::yield_now();
        }
    }

    /// Waits until the clients have done that many requests.
    fn requests(&self, count: u64) {
        let done = |counters: &Counters| counters.reads + counters.writes;
        let before = done(&self.cached.counters());
        self.until("requests", || {
            done(&self.cached.counters()) >= before + count
        });
    }

    /// A power cut now: nothing stale is served from any image it leaves.
    fn survives_a_cut(&self, what: &str) {
        for image in self.disk.images(4) {
            started_right(&image, what);
        }
    }

    fn cache(&self) -> std::sync::Arc<dyn File> {
        let dir = self.disk.dir(Path::new("/fast")).unwrap();
        dir.open(Path::new("cache"), OpenHow::ReadWrite).unwrap()
    }

    /// Replaces the cache by an empty one.
    fn another(&self) {
        if self.cached.status().cache != "detached" {
            self.cached.detach().unwrap();
        }
        // The last requests to the old one may still be in flight.
        while self.disk.heal().write_file(CACHE, &fresh()).is_err() {}
        loop {
            match attach(&self.disk, &self.cached, &backend(), Path::new(CACHE), true) {
                Ok(_) => break,
                Err(Error::InUse { .. }) => thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(self.cached.status().cache, "attached");
    }
}

/// The bytes of a cache that was just made.
fn fresh() -> Vec<u8> {
    disk(0, 1, SLOTS, SLOT_BYTES).read_file(CACHE).unwrap()
}

/// A change of size succeeds, or is refused as too small.
fn fine(resized: Result<u64, Error>) {
    let refused = matches!(
        resized,
        Err(Error::SmallStep { .. } | Error::TooSmall { .. })
    );
    assert!(resized.is_ok() || refused, "{resized:?}");
}

fn started_right(image: &SimDisk, what: &str) {
    match start(image, settings("none")) {
        Ok((cached, how)) => {
            let differs = differing(&cached, image);
            assert_eq!(differs, Vec::<usize>::new(), "{what}, {how:?}");
        }
        // The cache is damaged beyond recognition, and reports it.
        Err(Error::NoCache { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Goal: the cache device may fail in any way at any time; no client sees an error or a wrong byte, nor does a start
/// from what a power cut then leaves.
#[test]
fn clients_see_nothing_of_a_cache_device_that_fails_while_they_work() {
    for (seed, policy, fillers) in [(1, "none", 0), (2, "balance", 0), (3, "none", 2)] {
        Storm::rages(policy, seed, fillers, |storm| {
            let failed = |what: &str, fault: Fault| {
                storm.another();
                storm.requests(150);
                let before = storm.cached.counters().cache_errors;
                storm.disk.inject(fault.below("/fast"));
                storm.meet(what, || (), |now| now.cache_errors > before);
                storm.survives_a_cut(what);
                storm.requests(50);
                storm.survives_a_cut(what);
                storm.disk.heal();
                storm.requests(50);
                storm.survives_a_cut(what);
            };
            let eio = || Fault::errno(libc::EIO);
            failed("one read fails", eio().on(Op::Read).times(1));
            failed("reads fail", eio().on(Op::Read).sometimes());
            failed("one write fails", eio().on(Op::Write).times(1));
            failed("writes fail", eio().on(Op::Write).sometimes());
            failed("a sync fails", eio().on(Op::Sync).times(1));
            failed("the device is gone", Fault::errno(libc::ENXIO));
        });
    }
}

/// The same for a device that lies: other bytes in its slots, or everywhere, or it ends early.
#[test]
fn clients_see_nothing_of_a_cache_device_that_is_overwritten_while_they_work() {
    for (seed, policy, fillers) in [(4, "none", 0), (5, "balance", 0), (6, "none", 2)] {
        Storm::rages(policy, seed, fillers, |storm| {
            let len = fresh().len() as u64;
            let slots = len - SLOTS * u64::from(SLOT_BYTES)..len;
            let mut random = Random(seed);
            for (what, range) in [
                ("its slots are garbage", slots.clone()),
                ("one slot is garbage", slots.start..slots.start + 16384),
                ("all of it is garbage", 0..len),
                ("its table is garbage", 0..slots.start),
            ] {
                storm.another();
                storm.requests(150);
                let garbage: Vec<u8> = range.clone().map(|_| random.below(256) as u8).collect();
                let spoil = || {
                    let cache = storm.cache();
                    cache
                        .write_all_at(&garbage, range.start, Via::Cache)
                        .unwrap();
                };
                let before = storm.cached.counters().damaged_reads;
                match range.end == len {
                    true => storm.meet(what, spoil, |now| now.damaged_reads > before),
                    false => spoil(),
                }
                storm.survives_a_cut(what);
                storm.requests(100);
                storm.survives_a_cut(what);
            }
            storm.another();
            storm.requests(150);
            // Later writes beyond its end extend it again, with zeros in between.
            let seen = |now: &Counters| now.cache_errors + now.damaged_reads;
            let before = seen(&storm.cached.counters());
            let cut = || storm.cache().set_len(slots.start).unwrap();
            storm.meet("it ends early", cut, |now| seen(now) > before);
            storm.requests(100);
            storm.survives_a_cut("it ends early");
        });
    }
}

/// Its owner detaches it, attaches another one, changes its size and its policy, starts a shadow policy, verifies it
/// and makes checkpoints, again and again, in another order each time.
#[test]
fn clients_see_nothing_of_the_changes_that_are_made_while_they_work() {
    for (seed, policy, fillers) in [(7, "none", 0), (8, "aware", 2)] {
        Storm::rages(policy, seed, fillers, |storm| {
            let cached = &storm.cached;
            let mut random = Random(seed);
            let mut done = [0; 8];
            while done.iter().any(|count| *count < 3) {
                let what = random.below(done.len() as u64) as usize;
                done[what] += 1;
                let policies = ["none", "aware", "slow", "balance+s3-fifo", "balance+arc"];
                let another = policies[random.below(5) as usize].parse().unwrap();
                match what {
                    0 => {
                        cached.detach().unwrap();
                        storm.requests(20);
                        storm.survives_a_cut("detached");
                        storm.another();
                    }
                    1 => {
                        let grown = cached.resize((6 + random.below(20)) << 20);
                        fine(grown);
                    }
                    2 => {
                        let cut = cached.resize((2 + random.below(3)) << 20);
                        fine(cut);
                    }
                    3 => cached.set_policy(another),
                    4 => cached.set_shadow(Some(another)).unwrap(),
                    5 => cached.set_shadow(None).unwrap(),
                    6 => assert_eq!(cached.verify(false).unwrap().differing, 0),
                    _ => cached.checkpoint(true).unwrap(),
                }
                storm.requests(30);
                if done.iter().sum::<u32>() % 6 == 0 {
                    storm.survives_a_cut("changed");
                }
                let status = cached.status();
                assert_eq!((status.cache, status.device_faults), ("attached", 0));
            }
            assert_eq!(cached.counters().damaged_reads, 0);
        });
    }
}

/// Shows that the tests above can fail: wrong bytes on the backend are found.
#[test]
fn a_backend_that_lies_is_seen_by_its_clients() {
    let lied = std::panic::catch_unwind(|| {
        Storm::rages("none", 9, 0, |storm| {
            storm.requests(500);
            let dir = storm.disk.dir(Path::new("/slow")).unwrap();
            let file = dir.open(Path::new("backend"), OpenHow::ReadWrite).unwrap();
            while !storm.over.load(SeqCst) {
                for line in 0..LINES {
                    let at = (line * LINE) as u64;
                    file.write_all_at(&[0xa5; LINE], at, Via::Cache).unwrap();
                }
            }
        });
    });
    assert!(lied.is_err());
}
