//! Goal: the text of [`FamilyRead`] holds for every stripe that is open for reading.
//! Method: one that tells its length is read anywhere, from several threads at once; one that does not is read as a pipe
//! is. `contract.rs` runs both on devices, the crate's own tests on what only it can make; `lies.rs` breaks each promise.
//! Not covered: memory for reading, and what is at hand, which are hints.

use super::{Error, FamilyRead};

/// Checks a stripe that has these bytes, at least 5,000.
pub fn keeps_its_contract(read: &dyn FamilyRead, bytes: &[u8]) {
    match read.len_bytes().unwrap() {
        Some(len) => {
            assert_eq!(len, bytes.len() as u64);
            gives_any_range(read, bytes);
        }
        None => gives_each_byte_once_in_order(read, bytes),
    }
}

/// Any range, full or short at the end, from many threads at once.
fn gives_any_range(read: &dyn FamilyRead, bytes: &[u8]) {
    let len = bytes.len();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for (offset, wanted) in [
                    (0, 1),
                    (thread * 4096, 8192),
                    (thread * 511 + 1, 4097),
                    (len - 1, 10),
                    (len - 5000, 5000),
                    (len, 10),
                    (len + 4096, 10),
                    (3, 0),
                ] {
                    let mut buf = vec![0; wanted];
                    let n = read.read_at(&mut buf, offset as u64).unwrap();
                    let from = &bytes[len.min(offset)..len.min(offset + wanted)];
                    assert!(buf[..n] == *from, "{wanted} bytes at {offset}");
                }
            });
        }
    });
}

/// Full or short at the end; any other offset than the next one is refused, and nothing is lost by that.
fn gives_each_byte_once_in_order(read: &dyn FamilyRead, bytes: &[u8]) {
    let len = bytes.len();
    let mut at = 0;
    for wanted in [10, 0, 4096, 511, len, 10] {
        for wrong in [at + 1, at + 4096, at / 2].iter().filter(|o| **o != at) {
            let refused = read.read_at(&mut [0; 10], *wrong as u64);
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{wrong} instead of {at}: {refused:?}"
            );
        }
        let mut buf = vec![0; wanted];
        let n = read.read_at(&mut buf, at as u64).unwrap();
        assert!(
            buf[..n] == bytes[at..len.min(at + wanted)],
            "{wanted} bytes at {at}"
        );
        at += n;
    }
}
