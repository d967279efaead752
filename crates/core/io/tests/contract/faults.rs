//! Goal: the simulated disk behaves as a test asked when calls fail or are slow, or another process interferes: faults
//! hit the calls that they name and no other.
//! Method: injected faults, one kind in each test; the calls' results and the remaining bytes are compared with the
//! expected ones.
//! Not covered: power cuts (`power.rs`), and whether real disks fail in these ways.

use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use longshore_io::{Dir, Fault, Op, OpenHow, SimDisk, Storage, Via};

use crate::{all, errno, noise, put};

const OLD: &[u8] = &[1; 3000];
const NEW: &[u8] = &[2; 3000];

#[test]
fn a_fault_hits_the_calls_it_names_and_no_other() {
    let disk = SimDisk::new(1);
    disk.inject(
        Fault::errno(libc::EACCES)
            .on(Op::Create)
            .below("/a")
            .nth(2)
            .times(1),
    );
    let dir = disk.dir(Path::new("/")).unwrap();
    dir.create_dir(Path::new("a")).unwrap();
    put(&*dir, "f1", b"");
    put(&*dir, "a/f1", b"");
    put(&*dir, "f2", b"");
    let refused = dir.open(Path::new("a/f2"), OpenHow::CreateNew);
    assert_eq!(errno(refused), Some(libc::EACCES));
    assert!(dir.stat(Path::new("a/f2")).is_err());
    put(&*dir, "a/f2", b"");

    disk.inject(
        Fault::errno(libc::EIO)
            .below("/a")
            .from_step(disk.steps() + 1),
    );
    let file = dir.open(Path::new("a/f1"), OpenHow::ReadWrite).unwrap();
    dir.create_dir(Path::new("b")).unwrap();
    assert_eq!(errno(file.write_at(b"x", 0, Via::Cache)), Some(libc::EIO));
    assert_eq!(errno(dir.stat(Path::new("a"))), Some(libc::EIO));
    dir.stat(Path::new("b")).unwrap();
    disk.heal();
    file.write_at(b"x", 0, Via::Cache).unwrap();
}

#[test]
fn a_bad_sector_is_met_by_who_reads_it_and_not_by_who_reads_up_to_it() {
    let disk = SimDisk::new(1).inject(Fault::errno(libc::EIO).on(Op::Read).at_bytes(1024..1536));
    disk.write_file("/f", &noise(1, 4096)).unwrap();
    let file = disk
        .dir(Path::new("/"))
        .unwrap()
        .open(Path::new("f"), OpenHow::Read)
        .unwrap();
    let mut buf = [0; 4096];
    assert_eq!(file.read_at(&mut buf, 0, Via::Cache).unwrap(), 1024);
    assert_eq!(buf[..1024], noise(1, 4096)[..1024]);
    assert_eq!(
        errno(file.read_at(&mut buf, 1024, Via::Cache)),
        Some(libc::EIO)
    );
    assert_eq!(
        errno(file.read_at(&mut buf, 1535, Via::Cache)),
        Some(libc::EIO)
    );
    assert_eq!(
        errno(file.read_exact_at(&mut buf, 0, Via::Cache)),
        Some(libc::EIO)
    );
    assert_eq!(file.read_at(&mut buf, 1536, Via::Cache).unwrap(), 2560);
}

#[test]
fn a_short_write_goes_in_part_and_writing_all_repeats_it() {
    let disk = SimDisk::new(1).inject(Fault::short_write());
    let dir = disk.dir(Path::new("/")).unwrap();
    let file = dir.open(Path::new("f"), OpenHow::CreateNew).unwrap();
    let bytes = noise(1, 5000);
    for _ in 0..50 {
        assert!((1..5000).contains(&file.write_at(&bytes, 0, Via::Cache).unwrap()));
    }
    assert_eq!(file.write_at(&bytes[..1], 0, Via::Cache).unwrap(), 1);
    file.write_all_at(&bytes, 0, Via::Cache).unwrap();
    assert_eq!(all(&*dir, "f"), bytes);
}

#[test]
fn a_full_disk_takes_what_fits_then_refuses_and_has_room_after_a_removal() {
    let disk = SimDisk::new(1);
    disk.mount("/m").unwrap();
    disk.set_capacity("/m", 3 * 4096).unwrap();
    let dir = disk.dir(Path::new("/m")).unwrap();
    let file = put(&*dir, "f", &[1; 5000]);
    assert_eq!(dir.free_bytes().unwrap(), 4096);
    assert_eq!(errno(file.allocate(0..4 * 4096)), Some(libc::ENOSPC));
    file.allocate(0..3 * 4096).unwrap();
    assert_eq!(
        file.write_at(&[2; 9000], 5000, Via::Cache).unwrap(),
        3 * 4096 - 5000
    );
    assert_eq!(
        errno(file.write_at(&[2; 9000], 3 * 4096, Via::Cache)),
        Some(libc::ENOSPC)
    );
    let refused = file.write_all_at(&[3; 9000], 8000, Via::Cache).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    file.write_all_at(&[4; 4096], 0, Via::Cache).unwrap();
    dir.remove_file(Path::new("f")).unwrap();
    put(&*dir, "g", &[1; 3 * 4096]);
    put(
        &*disk.dir(Path::new("/")).unwrap(),
        "elsewhere",
        &[1; 100_000],
    );
}

#[test]
fn after_a_failed_sync_the_next_one_succeeds_and_the_bytes_may_be_lost() {
    let lost_by_seed = |seed| {
        let disk = SimDisk::new(seed);
        disk.write_file("/f", OLD).unwrap();
        disk.inject(Fault::errno(libc::EIO).on(Op::Sync).times(1));
        let file = disk
            .dir(Path::new("/"))
            .unwrap()
            .open(Path::new("f"), OpenHow::ReadWrite)
            .unwrap();
        file.write_all_at(NEW, 0, Via::Cache).unwrap();
        assert_eq!(errno(file.sync()), Some(libc::EIO));
        file.sync().unwrap();
        assert_eq!(disk.images(9).len(), 1);
        disk.images(9)[0].read_file("/f").unwrap() == OLD
    };
    let lost = (0..20).filter(|seed| lost_by_seed(*seed)).count();
    assert!((1..20).contains(&lost), "lost in {lost} of 20 runs");
}

#[test]
fn a_tree_that_somebody_removes_is_gone_for_names_and_not_for_open_files() {
    let disk = SimDisk::new(1);
    disk.write_file("/m/a/f", OLD).unwrap();
    let dir = disk.dir(Path::new("/m/a")).unwrap();
    let file = dir.open(Path::new("f"), OpenHow::ReadWrite).unwrap();
    disk.remove_tree_at(disk.steps() + 1, "/m");
    file.write_all_at(b"x", 0, Via::Cache).unwrap();
    dir.stat(Path::new("f")).unwrap();
    file.write_all_at(b"y", 0, Via::Cache).unwrap();
    assert_eq!(disk.paths().len(), 0);
    assert_eq!(errno(dir.stat(Path::new("f"))), Some(libc::ENOENT));
    assert_eq!(
        errno(dir.open(Path::new("g"), OpenHow::CreateNew)),
        Some(libc::ENOENT)
    );
    assert_eq!(errno(disk.dir(Path::new("/m"))), Some(libc::ENOENT));
}

#[test]
fn a_slow_disk_really_takes_its_time_and_others_go_on_meanwhile() {
    let disk = SimDisk::new(1).inject(Fault::delay(Duration::from_millis(150)).on(Op::Read));
    disk.write_file("/f", OLD).unwrap();
    let file = disk
        .dir(Path::new("/"))
        .unwrap()
        .open(Path::new("f"), OpenHow::Read)
        .unwrap();
    let read = || file.read_exact_at(&mut [0; 100], 0, Via::Cache).unwrap();
    let start = Instant::now();
    read();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(150), "{took:?}");
    // Each of eight calls ends only when all of them have begun.
    let (inside, all_in) = (Mutex::new(0), Condvar::new());
    let meet = move || {
        let mut inside = inside.lock().unwrap();
        *inside += 1;
        all_in.notify_all();
        let patience = Duration::from_secs(60);
        let met = all_in.wait_timeout_while(inside, patience, |inside| *inside < 8);
        assert!(!met.unwrap().1.timed_out(), "they waited for one another");
    };
    disk.heal().inject(Fault::meanwhile(meet).on(Op::Read));
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(read))));
}

#[test]
fn a_test_sets_cached_ranges_and_whether_holes_are_reported() {
    let disk = SimDisk::new(1);
    disk.write_file("/a/f", b"").unwrap();
    let file = disk
        .dir(Path::new("/a"))
        .unwrap()
        .open(Path::new("f"), OpenHow::ReadWrite)
        .unwrap();
    file.set_len(1 << 20).unwrap();
    assert!(!file.is_cached(0..1));
    disk.set_cached("/", true).set_cached("/b", false);
    assert!(file.is_cached(0..1));
    disk.set_cached("/a", false);
    assert!(!file.is_cached(0..1));
    assert_eq!(file.next_data(0).unwrap(), None);
    disk.set_tells_holes(false);
    assert_eq!(file.next_data(5).unwrap(), Some(5..1 << 20));
}

#[test]
fn a_large_sparse_file_costs_little() {
    let disk = SimDisk::new(1);
    let dir: &dyn Dir = &*disk.dir(Path::new("/")).unwrap();
    let file = put(dir, "f", b"");
    file.set_len(1 << 60).unwrap();
    file.write_all_at(b"end", (1 << 60) - 3, Via::Cache)
        .unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some((1 << 60) - 4096..1 << 60));
    assert_eq!(disk.images(3).len(), 3);
}
