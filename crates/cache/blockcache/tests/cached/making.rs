//! Making a cache over existing content.

use std::io::ErrorKind;
use std::path::Path;

use longshore_blockcache::{Error, Start, create};
use longshore_io::{Fault, Op, SimDisk};

use crate::CACHE;

const PATH: &str = "/fast/image";
const LEN: usize = 32 << 20;

/// An image whose first bytes are zeros: btrfs keeps 64 KiB free before its superblock, and any file may.
#[test]
fn a_file_with_data_anywhere_is_refused_and_untouched() {
    for at in [8 << 10, 64 << 10, LEN / 2, LEN - 1] {
        let disk = SimDisk::new(1);
        let mut bytes = vec![0; LEN];
        bytes[at] = 1;
        disk.write_file(PATH, &bytes).unwrap();
        for len in [None, Some(16 << 20), Some(64 << 20)] {
            let made = create(&disk, Path::new(PATH), len, 64 << 10, false);
            assert!(matches!(made, Err(Error::NotEmpty { .. })), "byte {at}");
            assert!(disk.read_file(PATH).unwrap() == bytes, "byte {at}");
        }
        create(&disk, Path::new(PATH), Some(16 << 20), 64 << 10, true).unwrap();
    }
}

#[test]
fn an_empty_file_is_extended_and_never_shortened() {
    let disk = SimDisk::new(1);
    for (asked, then) in [
        (None, LEN),
        (Some(16 << 20), LEN),
        (Some(64 << 20), 64 << 20),
    ] {
        disk.write_file(PATH, &vec![0; LEN]).unwrap();
        create(&disk, Path::new(PATH), asked, 64 << 10, false).unwrap();
        assert_eq!(disk.read_file(PATH).unwrap().len(), then);
    }
}

#[test]
fn an_impossible_shape_is_refused_and_leaves_the_file_as_it_was() {
    let disk = SimDisk::new(1);
    let bytes = vec![7; LEN];
    disk.write_file(PATH, &bytes).unwrap();
    for (len, slot_bytes) in [(20 << 20, 48 << 10), (1 << 20, 64 << 10)] {
        create(&disk, Path::new(PATH), Some(len), slot_bytes, true).unwrap_err();
        assert!(disk.read_file(PATH).unwrap() == bytes, "{len} bytes");
    }
}

#[test]
fn a_cache_that_cannot_be_made_leaves_no_file_and_removes_none() {
    let disk = SimDisk::new(1);
    disk.write_file("/fast/other", b"x").unwrap();
    disk.inject(Fault::errno(libc::ENOSPC).on(Op::Allocate));
    let made = create(&disk, Path::new(PATH), Some(16 << 20), 64 << 10, false);
    assert!(
        matches!(made, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::StorageFull)
    );
    assert!(disk.read_file(PATH).is_err());
    disk.write_file(PATH, &[]).unwrap();
    assert!(create(&disk, Path::new(PATH), Some(16 << 20), 64 << 10, false).is_err());
    assert!(disk.read_file(PATH).is_ok(), "it was there before");
}

/// Goal: a cache that is being made again over another one is the new one or none, wherever the power fails: no line of the old
/// table counts with bytes of the new cache.
#[test]
fn a_power_cut_while_a_cache_is_made_over_another_leaves_nothing_stale() {
    let prepare = |seed| {
        let disk = crate::disk(seed, 300, 40, 64 << 10);
        let (cached, _) = crate::start(&disk, crate::settings("none")).unwrap();
        crate::differing(&cached, &disk);
        cached.stop().unwrap();
        disk.settle();
        disk
    };
    let act = |disk: &SimDisk| create(disk, Path::new(CACHE), Some(3 << 20), 16 << 10, true);
    let steps = SimDisk::cut_everywhere(
        6,
        prepare,
        |disk| act(disk).map(drop),
        |image, reported, at| match crate::start(image, crate::settings("none")) {
            Ok((cached, how)) => {
                assert!(how == Start::Fresh || !reported, "{at}: {how:?}");
                let differing = crate::differing(&cached, image);
                assert_eq!(differing, Vec::<usize>::new(), "{at}: {how:?}");
                assert_eq!(cached.counters().damaged_reads, 0, "{at}: {how:?}");
            }
            Err(Error::NoCache { .. }) => assert!(!reported, "{at}"),
            Err(other) => panic!("{at}: {other:?}"),
        },
    );
    assert!(steps > 6, "{steps}");
}
