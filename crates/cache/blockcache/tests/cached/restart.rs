//! Goal: a restart keeps the content that is vouched for, and drops all other content: after a clean stop, a crash, a
//! power cut, and a change of the backend while nothing ran.
//! Method: simulated disks whose images after a stop or a cut are opened again; what the cache then serves is compared
//! with the backend.

use std::path::Path;
use std::sync::Arc;

use longshore_blockcache::format::Superblock;
use longshore_blockcache::{Backend, Error, Start, attach, open};
use longshore_io::{Fault, HostClock, Op, SimDisk, Storage};

use crate::{BACKEND, CACHE, Image, LINE, differing, disk, settings, start};

const LINES: usize = 2000;

/// A warm cache, and how many bytes it holds: everything fits.
fn warm() -> (SimDisk, u64) {
    let disk = disk(1, LINES, 200, 64 << 10);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::Fresh);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    let held = cached.status().held_bytes;
    assert_eq!(held, (LINES * LINE) as u64);
    cached.stop().unwrap();
    drop(cached);
    (disk, held)
}

#[test]
fn nothing_is_written_after_a_stop() {
    let (disk, _) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    cached.stop().unwrap();
    cached.write(&[9; LINE], 0, false).unwrap_err();
    cached.zero(0, LINE as u64, true, false).unwrap_err();
    // A cache that is attached now would not be marked as stopped, and its content is not this backend's for sure.
    let late = attach(&disk, &cached, &crate::backend(), Path::new(CACHE), true);
    assert!(matches!(late, Err(Error::Ending)), "{late:?}");
    drop(cached);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::Warm);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

#[test]
fn a_clean_stop_keeps_everything_and_reads_are_hits() {
    let (disk, held) = warm();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::Warm, held));
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    let counters = cached.counters();
    assert_eq!(counters.hits + 1, counters.reads, "all but the odd end");
}

#[test]
fn a_hit_is_a_read_of_what_is_held_and_counts_once() {
    let disk = disk(1, 64, 40, 64 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    let read = |lines: std::ops::Range<u64>| {
        let mut line = vec![0; LINE];
        for number in lines {
            cached.read(&mut line, number * LINE as u64).unwrap();
        }
        let counters = cached.counters();
        (counters.reads, counters.hits)
    };
    assert_eq!(read(0..5), (5, 0));
    assert_eq!(read(0..5), (10, 5));
    assert_eq!(read(0..5), (15, 10));
    assert_eq!(read(4..7), (18, 11));
    cached.write(&[9; LINE], 0, false).unwrap();
    // A read of which a part is held is none.
    cached.read(&mut [0; 2 * LINE], 6 * LINE as u64).unwrap();
    let counters = cached.counters();
    assert_eq!(
        (counters.reads, counters.hits, counters.part_hits),
        (19, 11, 1)
    );
}

/// Nothing is written to the backend during a start, so a power cut at any point, even repeated, costs nothing.
#[test]
fn a_power_cut_during_a_start_costs_nothing() {
    let small = || {
        let disk = disk(1, 400, 40, 64 << 10);
        let (cached, _) = start(&disk, settings("none")).unwrap();
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
        cached.stop().unwrap();
        drop(cached);
        disk.settle();
        disk
    };
    let whole = small();
    let before = whole.steps();
    drop(start(&whole, settings("none")).unwrap());
    assert!(whole.steps() > before + 8);
    for step in before..whole.steps() {
        let disk = small().cut_power_at(step);
        assert!(start(&disk, settings("none")).is_err());
        for image in disk.images(8) {
            let (cached, how) = start(&image, settings("none")).unwrap();
            let held = cached.status().held_bytes;
            assert_eq!(held, 400 * LINE as u64, "{how:?} at step {step}");
            assert_eq!(differing(&cached, &image), Vec::<usize>::new());
        }
    }
}

/// A start that believes nothing may be cut anywhere, too: nobody believes the old content afterwards.
#[test]
fn a_power_cut_during_a_start_brings_nothing_back_that_is_not_vouched_for() {
    let stale = || {
        let disk = disk(1, 100, 10, 64 << 10);
        let (cached, _) = start(&disk, settings("none")).unwrap();
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
        cached.stop().unwrap();
        drop(cached);
        // Serves without its cache.
        let backend = crate::backend();
        let opened = open(&disk, &backend, None, settings("none"), Arc::new(HostClock));
        opened.unwrap().cached.stop().unwrap();
        disk.settle();
        disk
    };
    let whole = stale();
    let before = whole.steps();
    let (cached, how) = start(&whole, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::NotVouched, 0));
    drop(cached);
    assert!(whole.steps() > before + 8);
    for step in before..whole.steps() {
        let disk = stale().cut_power_at(step);
        assert!(start(&disk, settings("none")).is_err());
        for image in disk.images(8) {
            let (cached, how) = start(&image, settings("none")).unwrap();
            let held = cached.status().held_bytes;
            assert_eq!(held, 0, "{how:?} at step {step}");
        }
    }
}

#[test]
fn a_crash_keeps_nine_tenths_while_a_twentieth_is_being_written() {
    let (disk, held) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    // One line in every sixteenth block: each costs a crash its whole slot.
    for block in (0..LINES / 16).step_by(16) {
        cached
            .write(&[7; LINE], (block * 16 * LINE) as u64, false)
            .unwrap();
        cached.checkpoint(false).unwrap();
    }
    drop(cached);
    for image in disk.images(4) {
        let (cached, how) = start(&image, settings("none")).unwrap();
        assert_eq!(how, Start::AfterCrash);
        let kept = cached.status().held_bytes;
        assert!(kept * 10 >= held * 9, "{kept} of {held}");
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

/// For any pattern of writes, a checkpoint comes before a twentieth of the slots is in doubt.
#[test]
fn a_crash_keeps_nine_tenths_of_what_many_writes_touched() {
    let (disk, held) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    for block in 0..LINES / 16 {
        cached
            .write(&[7; 16 * LINE], (block * 16 * LINE) as u64, false)
            .unwrap();
        cached.checkpoint(false).unwrap();
    }
    drop(cached);
    for image in disk.images(4) {
        let (cached, _) = start(&image, settings("none")).unwrap();
        let kept = cached.status().held_bytes;
        assert!(kept * 10 >= held * 9, "{kept} of {held}");
        assert_eq!(differing(&cached, &image), Vec::<usize>::new());
    }
}

#[test]
fn a_backend_that_somebody_changed_while_nothing_ran_is_noticed() {
    let (disk, _) = warm();
    let mut bytes = disk.read_file(BACKEND).unwrap();
    bytes[5 * LINE] ^= 1;
    disk.write_file(BACKEND, &bytes).unwrap();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(
        (how, cached.status().held_bytes),
        (Start::BackendChanged, 0)
    );
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// A snapshot of the backend's file system, guard included, taken while it was served; then writes, a stop, and the
/// snapshot is put back.
#[test]
fn a_backend_that_was_put_back_to_an_earlier_state_is_noticed() {
    let (disk, _) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    disk.settle();
    let snapshot = disk.images(1).remove(0);
    cached.write(&[9; LINE], 0, true).unwrap();
    cached.stop().unwrap();
    drop(cached);
    let cache = disk.read_file(CACHE).unwrap();
    snapshot.write_file(CACHE, &cache).unwrap();
    let (cached, how) = start(&snapshot, settings("none")).unwrap();
    assert_eq!(how, Start::BackendChanged);
    assert_eq!(differing(&cached, &snapshot), Vec::<usize>::new());
}

/// The mark of a clean stop is taken from times that a power cut cannot revert.
#[test]
fn a_power_cut_after_a_clean_stop_costs_nothing() {
    let (disk, held) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    cached.write(&[9; LINE], 0, false).unwrap();
    cached.stop().unwrap();
    drop(cached);
    for image in disk.images(4) {
        let (cached, how) = start(&image, settings("none")).unwrap();
        assert_eq!((how, cached.status().held_bytes), (Start::Warm, held));
    }
}

#[test]
fn a_backend_of_another_size_is_noticed_after_a_crash_too() {
    let (disk, _) = warm();
    drop(start(&disk, settings("none")).unwrap());
    let mut bytes = disk.read_file(BACKEND).unwrap();
    bytes.truncate(100 * LINE);
    disk.write_file(BACKEND, &bytes).unwrap();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::BackendChanged);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
}

/// Another program changed one byte after a crash, at a time at which this cache may have written: the file's times
/// reveal nothing.
fn changed_after_a_crash(at: usize) -> Start {
    let disk = disk(1, 300, 40, 64 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.write(&[7; LINE], 20 * LINE as u64, true).unwrap();
    cached.checkpoint(true).unwrap();
    drop(cached);
    disk.settle();
    let mut bytes = disk.read_file(BACKEND).unwrap();
    bytes[at] ^= 1;
    disk.write_file(BACKEND, &bytes).unwrap();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(cached.status().held_bytes, 0, "{how:?}");
    assert_eq!(cached.status().start, Some(how));
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    how
}

#[test]
fn a_file_that_somebody_changed_after_a_crash_is_noticed_by_its_content() {
    assert_eq!(changed_after_a_crash(5), Start::ContentChanged);
    assert_eq!(
        changed_after_a_crash(300 * LINE + 699),
        Start::ContentChanged
    );
    // Not in a watched place; everything cached is compared.
    assert_eq!(changed_after_a_crash(150 * LINE + 9), Start::LinesDiffer);
}

/// Goal: one line that another program wrote is found at every start after a crash, though the file's time of change may be
/// this cache's own.
#[test]
fn after_a_crash_every_line_is_compared() {
    for line in [29, 501, 1004, LINES - 8] {
        let (disk, _) = warm();
        let (cached, _) = start(&disk, settings("none")).unwrap();
        cached.write(&[7; LINE], LINE as u64, false).unwrap();
        drop(cached);
        let mut bytes = disk.read_file(BACKEND).unwrap();
        bytes[line * LINE] ^= 1;
        disk.write_file(BACKEND, &bytes).unwrap();
        let how = start(&disk, settings("none")).unwrap().1;
        assert_eq!(how, Start::LinesDiffer, "{line}");
    }
}

/// The lines that are compared at a start whose file shows no change are others each time, and lie all over the cache: a
/// change of a tenth is found at every start, one of a thousandth not at each.
#[test]
fn a_change_of_a_tenth_is_found_by_the_sample() {
    let changed = |lines: &mut dyn Iterator<Item = usize>| {
        let change = |bytes: &mut Vec<u8>| lines.for_each(|line| bytes[line * LINE] ^= 1);
        after_a_stop(change, |_| (), Arc::new(HostClock)).0
    };
    let all = 2..LINES - 1;
    for _ in 0..3 {
        assert_eq!(changed(&mut all.clone().step_by(10)), Start::LinesDiffer);
    }
    for tenth in [2..LINES / 10, LINES / 10 * 9..LINES - 1] {
        assert_eq!(changed(&mut tenth.clone()), Start::LinesDiffer);
    }
    let few = |_| changed(&mut all.clone().step_by(LINES));
    let found: Vec<Start> = (0..12).map(few).collect();
    assert!(
        found.contains(&Start::Warm),
        "a fifth of all lines is compared: {found:?}"
    );
}

/// Goal: a cache that was detached is not believed again, whatever the sample finds.
#[test]
fn a_detached_cache_is_not_trusted_again() {
    let (disk, _) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    cached.detach().unwrap();
    drop(cached);
    assert_eq!(start(&disk, settings("none")).unwrap().1, Start::NotVouched);
}

/// A clock that is behind, so that the recorded end of this session's writes comes soon.
#[derive(Debug)]
struct Behind;

impl longshore_io::Clock for Behind {
    fn now(&self) -> std::time::Duration {
        HostClock.now()
    }

    fn wall_ns(&self) -> i64 {
        HostClock.wall_ns() - 28_500_000_000
    }

    fn thread_cpu(&self) -> std::time::Duration {
        HostClock.thread_cpu()
    }

    fn sleep(&self, how_long: std::time::Duration) {
        HostClock.sleep(how_long);
    }
}

#[test]
fn a_clock_that_is_behind_keeps_the_contract_of_all_clocks() {
    crate::clock_contract::keeps_its_contract(&Behind);
}

/// With a real file and its times; the backend is too large to compare all of it.
#[test]
fn a_file_that_was_written_later_than_this_cache_writes_is_noticed_after_a_crash() {
    for somebody in [false, true] {
        // The cache may write for a second and a half; a round in which that took longer shows nothing.
        while !written_later(somebody) {}
    }
}

/// `false`: the writes took too long.
fn written_later(somebody: bool) -> bool {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, cache) = (dir.path().join("backend"), dir.path().join("cache"));
    std::fs::write(&path, vec![3; 16 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let host = longshore_io::Host::new();
    longshore_blockcache::create(&host, &cache, Some(24 << 20), 64 << 10, false).unwrap();
    let named = Backend {
        path: path.clone(),
        guard: None,
    };
    let serve = || {
        let opened = open(
            &host,
            &named,
            Some(&cache),
            settings("none"),
            Arc::new(Behind),
        );
        let opened = opened.unwrap();
        (opened.cached, opened.cache.unwrap().unwrap())
    };
    let (cached, _) = serve();
    (0..16).for_each(|mib| cached.read(&mut vec![0; 1 << 20], mib << 20).unwrap());
    cached.checkpoint(true).unwrap();
    let begun = std::time::Instant::now();
    cached.write(&[4; LINE], 0, true).unwrap();
    cached.checkpoint(true).unwrap();
    cached.write(&[5; LINE], 9 << 20, true).unwrap();
    let is_in_time = begun.elapsed() < std::time::Duration::from_millis(1300);
    drop(cached);
    if !is_in_time {
        return false;
    }
    std::thread::sleep(std::time::Duration::from_millis(1700));
    if somebody {
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[6; 1], 7 << 20).unwrap();
    }
    let expected = match somebody {
        true => Start::BackendChanged,
        false => Start::AfterCrash,
    };
    assert_eq!(serve().1, expected);
    true
}

/// A cache that the previous version made and stopped cleanly does not know its backend's content.
#[test]
fn a_cache_of_the_version_before_begins_empty() {
    let (disk, _) = warm();
    let mut bytes = disk.read_file(CACHE).unwrap();
    for copy in 0..2 {
        let page = &mut bytes[copy * LINE..][..LINE];
        page[..8].copy_from_slice(b"LSCACHE3");
        let sum = longshore_io::crc32c(&page[..96]);
        page[96..100].copy_from_slice(&sum.to_le_bytes());
        page[100..].fill(0);
    }
    disk.write_file(CACHE, &bytes).unwrap();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::Unproved, 0));
    cached.stop().unwrap();
    drop(cached);
    assert_eq!(start(&disk, settings("none")).unwrap().1, Start::Warm);
}

#[test]
fn a_lost_guard_costs_the_content_and_no_byte() {
    let (disk, _) = warm();
    disk.dir_of("/slow")
        .remove_file(Path::new("backend.longshore-guard"))
        .unwrap();
    not_vouched(&disk);
}

#[test]
fn writes_without_the_cache_make_it_unbelievable() {
    let (disk, _) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    cached.detach().unwrap();
    cached.write(&[9; LINE], 0, true).unwrap();
    drop(cached);
    not_vouched(&disk);
}

/// After a crash, a session serves the backend by this name, without its cache, writes, and crashes; then the old
/// cache must not be believed.
fn served_without(name: &str, asked: Option<&Path>) {
    let (disk, _) = warm();
    drop(start(&disk, settings("none")).unwrap());
    disk.dir_of("/slow")
        .symlink(Path::new("backend"), Path::new("other"))
        .unwrap();
    let named = Backend {
        path: name.into(),
        guard: None,
    };
    let clock = Arc::new(HostClock);
    let opened = open(&disk, &named, asked, settings("none"), clock).unwrap();
    assert!(!matches!(opened.cache, Some(Ok(_))));
    opened.cached.write(&[9; LINE], 0, true).unwrap();
    drop(opened);
    not_vouched(&disk);
}

/// The cache starts empty and serves the backend's content.
fn not_vouched(disk: &SimDisk) {
    let (cached, how) = start(disk, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::NotVouched, 0));
    assert_eq!(differing(&cached, disk), Vec::<usize>::new());
}

#[test]
fn a_session_without_the_cache_makes_it_unbelievable_after_crashes_too() {
    served_without(BACKEND, None);
    served_without(BACKEND, Some(Path::new("/fast/away")));
}

#[test]
fn all_names_of_a_backend_have_one_guard() {
    served_without("/slow/other", None);
}

#[test]
fn a_backend_or_a_cache_is_served_only_once_at_a_time() {
    let (disk, _) = warm();
    let (cached, _) = start(&disk, settings("none")).unwrap();
    assert!(matches!(
        start(&disk, settings("none")),
        Err(Error::InUse { .. })
    ));
    drop(cached);
    start(&disk, settings("none")).unwrap();
}

/// Where a guard may not be, and what may not be taken for one: no byte of these files is changed.
#[test]
fn a_guard_is_nobody_elses_file_and_not_on_the_caches_disk() {
    let (disk, held) = warm();
    let dir = disk.dir_of("/slow");
    disk.create_dir_all(Path::new("/third")).unwrap();
    disk.write_file("/third/notes", &[5; 48]).unwrap();
    dir.symlink(Path::new("nowhere"), Path::new("dangling"))
        .unwrap();
    dir.hard_link(Path::new("backend.longshore-guard"), Path::new("second"))
        .unwrap();
    let files = [BACKEND, CACHE, "/third/notes", Image::GUARD];
    let before = files.map(|path| disk.read_file(path).unwrap());
    let refused = |guard: &str, cache: Option<&str>| {
        let backend = Backend {
            path: BACKEND.into(),
            guard: Some(guard.into()),
        };
        let clock = Arc::new(HostClock);
        let opened = open(
            &disk,
            &backend,
            cache.map(Path::new),
            settings("none"),
            clock,
        );
        assert_eq!(files.map(|path| disk.read_file(path).unwrap()), before);
        opened.map(drop).unwrap_err()
    };
    for cache in [None, Some(CACHE)] {
        for guard in [BACKEND, CACHE, "/third/notes"] {
            assert!(matches!(refused(guard, cache), Error::NotAGuard { .. }));
        }
        for guard in ["/slow/dangling", "/slow/second"] {
            assert!(matches!(refused(guard, cache), Error::GuardNames { .. }));
        }
    }
    let on_cache = refused("/fast/guard", Some(CACHE));
    assert!(
        matches!(on_cache, Error::GuardOnCache { .. }),
        "{on_cache:?}"
    );
    dir.remove_file(Path::new("second")).unwrap();
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!((how, cached.status().held_bytes), (Start::Warm, held));
    // The same for a cache that is attached later.
    cached.stop().unwrap();
    drop(cached);
    let named = Backend {
        path: BACKEND.into(),
        guard: Some("/fast/guard".into()),
    };
    let opened = open(&disk, &named, None, settings("none"), Arc::new(HostClock)).unwrap();
    let refused = attach(&disk, &opened.cached, &named, Path::new(CACHE), true);
    assert!(
        matches!(refused, Err(Error::GuardOnCache { .. })),
        "{refused:?}"
    );
}

/// Goal: a guard on another partition of the cache's disk is refused, unless the backend fails with that disk, too.
#[test]
fn a_guard_on_another_partition_of_the_caches_disk_is_refused() {
    for (of_backend, is_refused) in [("sdb", true), ("sda", false)] {
        let (disk, _) = warm();
        let put = |path: &str, text: &str| {
            let parent = Path::new(path).parent().unwrap();
            disk.create_dir_all(parent).unwrap();
            disk.write_file(path, text.as_bytes()).unwrap();
        };
        let class = disk.create_dir_all(Path::new("/sys/class/block")).unwrap();
        for (whole, part) in [("sda", "sda1"), ("sda", "sda2"), ("sdb", "sdb1")] {
            put(&format!("/sys/devices/{whole}/{part}/partition"), "1\n");
            put(&format!("/dev/{part}"), "");
            let to = format!("/sys/devices/{whole}/{part}");
            class.symlink(Path::new(&to), Path::new(part)).unwrap();
        }
        disk.mount("/third").unwrap();
        let slow = if of_backend == "sda" { "sda1" } else { "sdb1" };
        let mounts = [("/slow", slow), ("/fast", "sda1"), ("/third", "sda2")];
        let line = |(at, part)| format!("1 0 8:1 / {at} rw - ext4 /dev/{part} rw\n");
        put("/proc/self/mountinfo", &mounts.map(line).concat());
        let named = Backend {
            path: BACKEND.into(),
            guard: Some("/third/guard".into()),
        };
        let clock = Arc::new(HostClock);
        let cache = Some(Path::new(CACHE));
        let opened = open(&disk, &named, cache, settings("none"), clock).map(drop);
        let refused = matches!(opened, Err(Error::GuardOnCache { .. }));
        assert_eq!(refused, is_refused, "{of_backend}: {opened:?}");
    }
}

/// A session without the cache is recorded in the guard behind a link, too.
#[test]
fn a_link_to_a_guard_is_its_guard() {
    let (disk, _) = warm();
    let dir = disk.dir_of("/slow");
    dir.symlink(Path::new("backend.longshore-guard"), Path::new("link"))
        .unwrap();
    let named = Backend {
        path: BACKEND.into(),
        guard: Some("/slow/link".into()),
    };
    let opened = open(&disk, &named, None, settings("none"), Arc::new(HostClock)).unwrap();
    opened.cached.stop().unwrap();
    drop(opened);
    not_vouched(&disk);
}

/// A guard that cannot be read cannot be voided either.
#[test]
fn a_guard_that_cannot_be_read_keeps_its_backend_from_being_served() {
    let (disk, _) = warm();
    disk.inject(Fault::errno(libc::EIO).on(Op::Read).below(Image::GUARD));
    let opened = open(
        &disk,
        &crate::backend(),
        None,
        settings("none"),
        Arc::new(HostClock),
    );
    assert!(matches!(opened.map(drop), Err(Error::Io { .. })));
}

/// Goal: another file in the backend's place is noticed after a crash, though it is as long and its times fit.
#[test]
fn another_file_in_the_place_of_the_backend_is_noticed_after_a_crash() {
    for replaced in [false, true] {
        let (disk, _) = warm();
        let (cached, _) = start(&disk, settings("none")).unwrap();
        cached.write(&[7; LINE], LINE as u64, false).unwrap();
        cached.checkpoint(true).unwrap();
        drop(cached);
        let mut bytes = disk.read_file(CACHE).unwrap();
        // The superblock as it is if the new file gets the number of the old one.
        for copy in [0, LINE] {
            let mut known = Superblock::decode(&bytes[copy..]).unwrap();
            known.backend.birth_ns = known.backend.birth_ns.map(|at| at - i64::from(replaced));
            let page = known.encode();
            bytes[copy..][..page.len()].copy_from_slice(&page);
        }
        disk.write_file(CACHE, &bytes).unwrap();
        let expected = match replaced {
            false => Start::AfterCrash,
            true => Start::BackendChanged,
        };
        assert_eq!(start(&disk, settings("none")).unwrap().1, expected);
    }
}

/// A clean stop, and a start that finds the time of change of the stop; `change` is what another program wrote, `known` what
/// the superblock says otherwise.
fn after_a_stop(
    change: impl FnOnce(&mut Vec<u8>),
    known: impl Fn(&mut Superblock),
    clock: Arc<dyn longshore_io::Clock>,
) -> (Start, u64, SimDisk, longshore_blockcache::CachedBackend) {
    let (disk, _) = warm();
    let mut bytes = disk.read_file(CACHE).unwrap();
    let mut truth = disk.read_file(BACKEND).unwrap();
    change(&mut truth);
    disk.write_file(BACKEND, &truth).unwrap();
    let stat = Storage::stat(&disk, Path::new(BACKEND)).unwrap();
    for copy in [0, LINE] {
        let mut superblock = Superblock::decode(&bytes[copy..]).unwrap();
        assert_ne!(superblock.boot, 0);
        superblock.backend.changed_ns = stat.ctime_ns;
        known(&mut superblock);
        let page = superblock.encode();
        bytes[copy..][..page.len()].copy_from_slice(&page);
    }
    disk.write_file(CACHE, &bytes).unwrap();
    let cache = Some(Path::new(CACHE));
    let opened = open(&disk, &crate::backend(), cache, settings("none"), clock).unwrap();
    let held = opened.cached.status().held_bytes;
    (opened.cache.unwrap().unwrap(), held, disk, opened.cached)
}

/// Goal: one line that a time of change did not tell of is found where that time proves nothing: after another boot, on a
/// file system without births, or if it is another one. All lines are compared, not a sample of a fifth.
#[test]
fn where_a_time_of_change_proves_nothing_every_line_is_compared() {
    let whole = (LINES * LINE) as u64;
    let ways: [fn(&mut Superblock); 3] = [
        |known| known.boot ^= 1,
        |known| known.backend.birth_ns = None,
        |known| known.backend.dev ^= 1,
    ];
    for known in ways {
        let (how, held, disk, cached) = after_a_stop(|_| (), known, Arc::new(HostClock));
        assert_eq!((how, held), (Start::Warm, whole));
        assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
        for line in [7, 500, 1003, LINES - 9] {
            let change = |bytes: &mut Vec<u8>| bytes[line * LINE] ^= 1;
            let (how, _, disk, cached) = after_a_stop(change, known, Arc::new(HostClock));
            assert_eq!(how, Start::LinesDiffer, "{line}");
            assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
        }
    }
}

trait DirOf {
    fn dir_of(&self, path: &str) -> Arc<dyn longshore_io::Dir>;
}

impl DirOf for SimDisk {
    fn dir_of(&self, path: &str) -> Arc<dyn longshore_io::Dir> {
        Storage::dir(self, Path::new(path)).unwrap()
    }
}
