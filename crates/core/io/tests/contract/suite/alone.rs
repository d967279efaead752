//! Goal: the text of [`FileRead`], [`FileWrite`] and [`FileLock`] as far as one open file can show it, with or without a
//! name: bytes come back as they were written, by every way and at every alignment.
//! Method: promises about an empty file; the model is a vector in memory. `bytes.rs` holds each file system to them, and
//! other rooms include this file alone, for files that no directory has.
//! Not covered: other handles of the same file (`bytes.rs`), and what a power cut leaves (`power.rs`).
//!
//! [`FileRead`]: longshore_io::FileRead
//! [`FileWrite`]: longshore_io::FileWrite
//! [`FileLock`]: longshore_io::FileLock

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;

use longshore_io::{File, Pool, Via, ZeroedSpace};
use longshore_kit::random::noise;

/// The ways on which bytes are read and written.
pub const WAYS: [Via; 3] = [Via::Cache, Via::Direct, Via::DontCache];

/// An open empty file.
pub struct Lone {
    pub file: Arc<dyn File>,
    /// The answer of its syncs; `Unsupported` if nothing in it can be durable.
    pub synced: Result<(), ErrorKind>,
}

pub type Promise = (&'static str, fn(&dyn File));

macro_rules! table {
    ($($promise:ident)*) => {
        &[$((stringify!($promise), $promise)),*]
    };
}

/// Every promise by its name, but for those of syncs.
pub const PROMISES: &[Promise] = table! {
    what_was_written_is_read_by_every_way_at_every_alignment
    reading_is_short_at_the_end_and_empty_beyond_it
    a_file_is_cut_and_extended_with_zeros
    writing_beyond_the_end_leaves_zeros_between
    whatever_is_not_zero_is_told_as_data
    allocating_leaves_the_length_alone
    giving_unwritten_space_back_leaves_what_was_written
    a_zeroed_range_reads_as_zeros_and_nothing_beside_it
    dropping_the_cache_changes_no_byte
    many_threads_write_one_file_at_once
    a_lock_is_given_to_its_holder_again
    offsets_no_file_can_have_are_errors
};

/// Holds each new file to one promise. `make` gets a name that it has not had before.
///
/// # Panics
/// If a file breaks one; the output names it.
pub fn keeps_its_contract(make: &dyn Fn(&str) -> Lone) {
    for (name, promise) in PROMISES {
        println!("{name}");
        promise(&*make(name).file);
    }
    let name = "syncs_answer_as_was_said";
    println!("{name}");
    let Lone { file, synced } = make(name);
    file.write_all_at(b"bytes", 0, Via::Cache).unwrap();
    for answer in [file.sync(), file.sync_with_times()] {
        assert_eq!(answer.map_err(|e| e.kind()), synced);
    }
    assert_eq!(content(&*file), b"bytes");
}

/// All bytes of a file.
pub fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_exact_at(&mut bytes, 0, Via::Cache).unwrap();
    bytes
}

fn put(file: &dyn File, bytes: &[u8]) {
    file.write_all_at(bytes, 0, Via::Cache).unwrap();
}

pub fn what_was_written_is_read_by_every_way_at_every_alignment(file: &dyn File) {
    let pool = Pool::new(2, 5 * 4096).unwrap();
    let (mut out, mut back) = (pool.take().unwrap(), pool.take().unwrap());
    let mut model = noise(9, 40_000);
    put(file, &model);
    let mut seed = 0;
    for via in WAYS {
        for address in [0, 100, 4096] {
            for offset in [0, 100, 4096, 4196, 12_288] {
                for len in [0, 1, 511, 4096, 4097, 8192, 12_000] {
                    seed += 1;
                    out[address..address + len].copy_from_slice(&noise(seed, len));
                    let bytes = &out[address..address + len];
                    file.write_all_at(bytes, offset as u64, via).unwrap();
                    model[offset..offset + len].copy_from_slice(bytes);
                    for via in WAYS {
                        let back = &mut back[address..address + len];
                        back.fill(0xee);
                        file.read_exact_at(back, offset as u64, via).unwrap();
                        assert_eq!(back, bytes, "{via:?} at {address}, {offset}, {len}");
                    }
                }
            }
        }
    }
    assert_eq!(content(file), model);
}

pub fn reading_is_short_at_the_end_and_empty_beyond_it(file: &dyn File) {
    let pool = Pool::new(1, 16_384).unwrap();
    let mut buf = pool.take().unwrap();
    let bytes = noise(3, 10_001);
    put(file, &bytes);
    for via in WAYS {
        assert_eq!(file.read_at(&mut buf, 0, via).unwrap(), 10_001, "{via:?}");
        assert_eq!(buf[..10_001], bytes);
        assert_eq!(file.read_at(&mut buf, 8192, via).unwrap(), 1809, "{via:?}");
        assert_eq!(buf[..1809], bytes[8192..]);
        assert_eq!(
            file.read_full_at(&mut buf, 4096, via).unwrap(),
            5905,
            "{via:?}"
        );
        assert_eq!(buf[..5905], bytes[4096..]);
        for offset in [10_001, 12_288, 1 << 40] {
            assert_eq!(
                file.read_at(&mut buf, offset, via).unwrap(),
                0,
                "{via:?} at {offset}"
            );
        }
        let short = file.read_exact_at(&mut buf, 0, via).unwrap_err();
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    }
}

pub fn a_file_is_cut_and_extended_with_zeros(file: &dyn File) {
    let bytes = noise(4, 9000);
    put(file, &bytes);
    file.set_len(5000).unwrap();
    assert_eq!(content(file), bytes[..5000]);
    file.set_len(9000).unwrap();
    let found = content(file);
    assert_eq!(
        (&found[..5000], &found[5000..]),
        (&bytes[..5000], &[0; 4000][..])
    );
    file.set_len(0).unwrap();
    assert_eq!(file.stat().unwrap().len, 0);
}

pub fn writing_beyond_the_end_leaves_zeros_between(file: &dyn File) {
    put(file, b"head");
    file.write_all_at(b"tail", 100_000, Via::Cache).unwrap();
    let found = content(file);
    assert_eq!(
        (&found[..4], &found[100_000..]),
        (&b"head"[..], &b"tail"[..])
    );
    assert!(found[4..100_000].iter().all(|b| *b == 0));
}

/// A file that cannot tell its holes tells everything as data.
pub fn whatever_is_not_zero_is_told_as_data(file: &dyn File) {
    const MIB: u64 = 1 << 20;
    assert_eq!(file.next_data(0).unwrap(), None);
    file.set_len(16 * MIB).unwrap();
    for at in [3 * MIB, 3 * MIB + 4096, 9 * MIB] {
        file.write_all_at(&[7; 4096], at, Via::Cache).unwrap();
    }
    let (mut at, mut last_end) = (0, 0);
    while let Some(range) = file.next_data(at).unwrap() {
        assert!(
            range.start >= at && range.end > range.start && range.end <= 16 * MIB,
            "{range:?}"
        );
        let mut between = vec![1; (range.start - last_end) as usize];
        file.read_exact_at(&mut between, last_end, Via::Cache)
            .unwrap();
        assert!(
            between.iter().all(|b| *b == 0),
            "data before {range:?} was not told"
        );
        (at, last_end) = (range.end, range.end);
    }
    assert!(last_end > 9 * MIB);
    assert_eq!(
        file.next_data(3 * MIB + 5).unwrap().unwrap().start,
        3 * MIB + 5
    );
    assert_eq!(file.next_data(16 * MIB).unwrap(), None);
    assert_eq!(file.next_data(99 * MIB).unwrap(), None);
}

pub fn allocating_leaves_the_length_alone(file: &dyn File) {
    put(file, b"abc");
    file.allocate(0..1 << 20).unwrap();
    file.allocate(4096..1 << 20).unwrap();
    file.allocate(5..5).unwrap();
    assert_eq!(content(file), b"abc");
}

pub fn giving_unwritten_space_back_leaves_what_was_written(file: &dyn File) {
    const MIB: u64 = 1 << 20;
    file.set_len(4 * MIB + 7).unwrap();
    file.allocate(0..4 * MIB + 7).unwrap();
    for at in [MIB, 4 * MIB] {
        file.write_all_at(&[7; 7], at, Via::Cache).unwrap();
    }
    file.free_unwritten().unwrap();
    let found = content(file);
    assert_eq!(found.len() as u64, 4 * MIB + 7);
    for (at, byte) in found.iter().enumerate() {
        let written = [MIB, 4 * MIB]
            .iter()
            .any(|w| (*w..w + 7).contains(&(at as u64)));
        assert_eq!(*byte, if written { 7 } else { 0 }, "byte {at}");
    }
}

pub fn a_zeroed_range_reads_as_zeros_and_nothing_beside_it(file: &dyn File) {
    let mut model = noise(11, 40_000);
    put(file, &model);
    for (range, space) in [
        (4096..12_288, ZeroedSpace::Freed),
        (20_000..20_001, ZeroedSpace::Freed),
        (30_000..40_000, ZeroedSpace::Freed),
        (5..5, ZeroedSpace::Freed),
        (14_000..18_500, ZeroedSpace::Kept),
        (24_576..28_672, ZeroedSpace::Kept),
        (9..9, ZeroedSpace::Kept),
    ] {
        let is_zero = file.zero(range.clone(), space).unwrap();
        if is_zero {
            model[range.start as usize..range.end as usize].fill(0);
        }
        assert_eq!(content(file), model, "{range:?}: {space:?}, {is_zero}");
    }
}

pub fn dropping_the_cache_changes_no_byte(file: &dyn File) {
    let bytes = noise(12, 40_000);
    put(file, &bytes);
    file.drop_cached();
    assert_eq!(content(file), bytes, "what no sync made durable");
    // A file in memory cannot be synced.
    let _synced = file.sync();
    file.drop_cached();
    assert_eq!(content(file), bytes);
}

pub fn many_threads_write_one_file_at_once(file: &dyn File) {
    thread::scope(|scope| {
        for worker in 0..4u64 {
            scope.spawn(move || {
                for block in (worker..64).step_by(4) {
                    file.write_all_at(&noise(block, 1000), block * 1000, WAYS[block as usize % 3])
                        .unwrap();
                }
            });
        }
    });
    let found = content(file);
    assert_eq!(found.len(), 64 * 1000);
    for (block, bytes) in found.chunks(1000).enumerate() {
        assert_eq!(bytes, noise(block as u64, 1000), "block {block}");
    }
}

pub fn a_lock_is_given_to_its_holder_again(file: &dyn File) {
    assert!(file.try_lock().unwrap() && file.try_lock().unwrap());
}

pub fn offsets_no_file_can_have_are_errors(file: &dyn File) {
    put(file, b"abc");
    for via in WAYS {
        for offset in [u64::MAX, u64::MAX - 4096, 1 << 63, i64::MAX as u64] {
            assert!(
                file.read_at(&mut [0; 4096], offset, via).is_err(),
                "{via:?} {offset}"
            );
            assert!(
                file.write_at(&[0; 4096], offset, via).is_err(),
                "{via:?} {offset}"
            );
        }
    }
    assert!(file.set_len(u64::MAX).is_err() && file.allocate(0..u64::MAX).is_err());
    assert_eq!(content(file), b"abc");
}
