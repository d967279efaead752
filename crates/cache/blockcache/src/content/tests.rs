//! Goal: the look at a backend's content tells which changes count as a foreign write and which do not, for backends of
//! any size, also those shorter than a superblock. `content` says why each is looked at.
//! Method: file systems and partition tables, written byte by byte as their on-disk formats say, on a simulated disk;
//! and arbitrary superblocks and tables.
//! Not covered: file systems made by their own tools.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{SimDisk, Storage};
use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

fn looked(bytes: &[u8]) -> Look {
    let disk = SimDisk::new(1);
    disk.write_file("/backend", bytes).unwrap();
    let file: Arc<dyn File> = disk.disk(Path::new("/backend")).unwrap();
    look(&*file, bytes.len() as u64, Via::Cache).unwrap()
}

fn ext(bytes: &mut [u8], at: usize) {
    bytes[at + 1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
}

fn btrfs(bytes: &mut [u8], at: usize) {
    bytes[at + (64 << 10) + 0x40..][..8].copy_from_slice(b"_BHRfS_M");
}

/// An XFS of one group whose log of 1 MiB begins at 1 MiB; its head is at that sector.
fn xfs(bytes: &mut [u8], at: usize, head: usize) {
    let mut put =
        |place: usize, value: &[u8]| bytes[at + place..][..value.len()].copy_from_slice(value);
    put(0, b"XFSB");
    put(4, &4096u32.to_be_bytes());
    put(48, &256u64.to_be_bytes());
    put(84, &1024u32.to_be_bytes());
    put(96, &256u32.to_be_bytes());
    put(124, &[10]);
    for sector in 0..2048 {
        let cycle = if sector < head { 7u32 } else { 6 };
        put(MIB + sector * 512, &cycle.to_be_bytes());
    }
}

/// A table of partitions that begin and end at these MiB.
fn mbr(bytes: &mut [u8], parts: &[(usize, usize, u8)]) {
    for (number, (start, end, kind)) in parts.iter().enumerate() {
        let entry = &mut bytes[446 + 16 * number..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&((start * MIB / 512) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&(((end - start) * MIB / 512) as u32).to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
}

fn gpt(bytes: &mut [u8], parts: &[(usize, usize)]) {
    mbr(bytes, &[]);
    bytes[446 + 4] = 0xee;
    bytes[446 + 8] = 1;
    bytes[446 + 12] = 1;
    bytes[512..520].copy_from_slice(b"EFI PART");
    bytes[512 + 72] = 2;
    bytes[512 + 80] = 128;
    bytes[512 + 84] = 128;
    for (number, (start, end)) in parts.iter().enumerate() {
        let entry = &mut bytes[1024 + 128 * number..][..128];
        entry[0] = 9;
        entry[32..40].copy_from_slice(&((start * MIB / 512) as u64).to_le_bytes());
        entry[40..48].copy_from_slice(&((end * MIB / 512 - 1) as u64).to_le_bytes());
    }
}

#[test]
fn a_backend_shows_its_mounts_only_if_file_systems_that_count_them_fill_it() {
    type Make = fn(&mut [u8]);
    let cases: [(&str, bool, Make); 15] = [
        ("nothing", false, |_| {}),
        ("ext", true, |b| ext(b, 0)),
        ("btrfs", true, |b| btrfs(b, 0)),
        ("XFS", true, |b| xfs(b, 0, 100)),
        ("two at once", false, |b| {
            ext(b, 0);
            btrfs(b, 0);
        }),
        ("LUKS over what was there", false, |b| {
            ext(b, 0);
            b[..6].copy_from_slice(b"LUKS\xba\xbe");
        }),
        ("LVM over what was there", false, |b| {
            ext(b, 0);
            b[512..520].copy_from_slice(b"LABELONE");
        }),
        ("two partitions", true, |b| {
            mbr(b, &[(1, 3, 0x83), (3, 6, 0x83)]);
            ext(b, MIB);
            btrfs(b, 3 * MIB);
        }),
        ("one of two partitions", false, |b| {
            mbr(b, &[(1, 3, 0x83), (3, 6, 0x82)]);
            ext(b, MIB);
        }),
        ("an extended partition", false, |b| {
            mbr(b, &[(1, 3, 0x83), (3, 6, 5)]);
            ext(b, MIB);
        }),
        ("a partition table over a file system", false, |b| {
            mbr(b, &[(1, 3, 0x83)]);
            ext(b, 0);
            ext(b, MIB);
        }),
        ("a boot sector before a file system", true, |b| {
            mbr(b, &[(1, 3, 0x83)]);
            b[446] = 0x33;
            ext(b, 0);
        }),
        ("GPT", true, |b| {
            gpt(b, &[(1, 3), (3, 6)]);
            ext(b, MIB);
            xfs(b, 3 * MIB, 50);
        }),
        ("GPT with one that is nothing", false, |b| {
            gpt(b, &[(1, 3), (3, 6)]);
            ext(b, MIB);
        }),
        ("GPT beyond the end", false, |b| {
            gpt(b, &[(1, 9)]);
            ext(b, MIB);
        }),
    ];
    for (what, tells, make) in cases {
        let mut bytes = vec![0; 7 * MIB];
        make(&mut bytes);
        let before = looked(&bytes);
        assert_eq!(before.content.tells, tells, "{what}");
        assert_eq!(looked(&bytes), before, "{what}");
        // The first and the last line are always watched.
        for at in [77, 7 * MIB - 1] {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_ne!(
                looked(&other).fingerprint,
                before.fingerprint,
                "{what}: {at}"
            );
        }
    }
}

#[test]
fn superblocks_are_watched_at_any_offset_and_other_blocks_are_not() {
    let mut bytes = vec![0; 7 * MIB];
    gpt(&mut bytes, &[(1, 3), (3, 6)]);
    ext(&mut bytes, MIB);
    btrfs(&mut bytes, 3 * MIB);
    let before = looked(&bytes);
    let changed = |at: usize| {
        let mut other = bytes.clone();
        other[at] ^= 1;
        looked(&other).fingerprint != before.fingerprint
    };
    // Mount count and time of ext4, generation of btrfs.
    for at in [
        MIB + 1024 + 0x34,
        MIB + 1024 + 0x2c,
        3 * MIB + (64 << 10) + 0x48,
    ] {
        assert!(changed(at), "{at}");
    }
    assert!(!changed(2 * MIB) && !changed(5 * MIB));
}

#[test]
fn the_head_of_an_xfs_log_counts_at_a_clean_stop_only() {
    let with_head = |head| {
        let mut bytes = vec![0; 4 * MIB];
        xfs(&mut bytes, 0, head);
        looked(&bytes)
    };
    let before = with_head(700);
    for head in [0, 1, 699, 701, 2047, 2048] {
        let after = with_head(head);
        assert_eq!(after.fingerprint, before.fingerprint);
        assert_ne!(
            after.content.fingerprint, before.content.fingerprint,
            "{head}"
        );
    }
    // A log elsewhere cannot be examined.
    let mut bytes = vec![0; 4 * MIB];
    xfs(&mut bytes, 0, 1);
    bytes[48..56].fill(0);
    assert!(!looked(&bytes).content.tells);
    bytes[48..56].fill(0xff);
    assert!(!looked(&bytes).content.tells);
}

#[test]
fn backends_of_any_size_are_looked_at() {
    for len in [0, 1, 511, 4095, 4096, 4097, 8192, 70_000] {
        let bytes = vec![7; len];
        let found = looked(&bytes);
        assert!(!found.content.tells && found.watched.iter().all(|r| r.end <= len as u64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary superblocks and tables: never a panic, and bounded work.
    #[test]
    fn any_bytes_are_looked_at(
        head in proptest::collection::vec(any::<u8>(), 4096),
        kind in 0..4,
    ) {
        let mut bytes = head;
        bytes.resize(2 * MIB, 0);
        match kind {
            0 => bytes[..4].copy_from_slice(b"XFSB"),
            1 => bytes[512..520].copy_from_slice(b"EFI PART"),
            2 => bytes[510..512].copy_from_slice(&[0x55, 0xaa]),
            _ => ext(&mut bytes, 0),
        }
        let found = looked(&bytes);
        prop_assert!(found.watched.iter().all(|r| r.start < r.end && r.end <= 2 * MIB as u64));
    }
}
