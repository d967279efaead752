//! Goal: the codec of PAGES needs the memory that is promised for a worker, and bytes of a payload cost no more than its
//! plain length allows.
//! Method: an allocator counts. Tables come whose values are in other columns each time, and payloads that fill another
//! stream each time.
//! Not covered: what the program needs besides.

use std::sync::Mutex;

use longshore_codec::pages::worker_memory;
use longshore_codec::{
    Algorithm, Column, Compressor, Decompressor, Layout, Level, Part, payload_bound,
};
use longshore_kit::Random;
use longshore_kit::alloc::{self, Counting};
use longshore_kit::pages::Table;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: the counters are the process's.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

#[test]
fn many_tables_cost_what_one_costs() {
    for len in [MIB, 4 * MIB] {
        tables(len);
    }
}

/// Buffers of `len` bytes.
fn tables(len: usize) {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut random = Random(8);
    let mut plain = Vec::with_capacity(len);
    let mut out = vec![0; payload_bound(Algorithm::Pages, len)];
    let mut back = vec![0; len];
    let (mut compressor, mut decompressor) = (None, Decompressor::new());
    alloc::reset();
    let before = alloc::peak();
    for round in 0..14 {
        // All bytes are in one column, another one each time.
        let mut attributes = vec![(1, 1); 1 + 8 * round];
        attributes.push((-1, 4));
        attributes.resize(121, (1, 1));
        let columns = attributes.iter().map(|(len, align)| Column {
            len: *len,
            align: *align,
        });
        let layout = Layout::new(columns.collect::<Vec<_>>()).unwrap();
        let mut table = Table::with(&mut random, attributes);
        plain.clear();
        while plain.len() < len {
            plain.extend(table.page(&mut random, 8192));
        }
        let parts = [Part {
            len,
            layout: Some(&layout),
        }];
        let compressor = compressor
            .get_or_insert_with(|| Compressor::new(Algorithm::Pages, Level::Medium).unwrap());
        let encoded = compressor.compress_parts(&plain, &parts, &mut out);
        let payload = &out[..encoded.len];
        let result = decompressor.decompress(Algorithm::Pages, payload, &mut back);
        assert_eq!(result, Ok(()));
        assert!(back == plain);
    }
    let used = alloc::peak() - before;
    assert!(used < 2 * worker_memory(len), "{} MiB", used / MIB);
}

fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A group of one page of 8 KiB, and 128 columns with lengths of their own; stream `which` promises `len` bytes.
fn promise(which: usize, len: usize) -> Vec<u8> {
    let mut payload = vec![0x5c, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 1, 13, 1];
    number(&mut payload, 128);
    payload.extend([2; 128]);
    // What each stream or column begins with: a column of its own form, a stream within it.
    let columns = [1, 3, 4, 22, 23, 24, 25, 26];
    for at in 0..38 + 3 * 128 {
        let is_column =
            columns.contains(&at) || (27..35).contains(&at) || at >= 38 && (at - 38) % 3 == 2;
        if at != which {
            payload.push(0);
            continue;
        }
        if is_column {
            payload.push(1);
        }
        payload.push(2);
        number(&mut payload, len);
        payload.push(7);
    }
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
    payload
}

/// Streams of a group of SQLite's pages with four classes, and those of its classes' columns.
const SQLITE_STREAMS: usize = 3 + 4 * (5 + 126 * 7);

/// A group of one page of SQLite of 64 KiB, and four classes of 126 columns; stream `which` promises `len` bytes.
fn promise_of_sqlite(which: usize, len: usize) -> Vec<u8> {
    let mut payload = vec![0x5c, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 1, 48, 1, 4];
    payload.extend([13, 126].repeat(4));
    // The bytes before each stream, if it is not empty, and its bytes if it is.
    let class: [(&[u8], &[u8]); 5] = [
        (&[1], &[0]),
        (&[1], &[0]),
        (&[], &[0]),
        (&[], &[0]),
        (&[1], &[0]),
    ];
    let column: [(&[u8], &[u8]); 7] = [
        (&[], &[0]),
        (&[8, 1], &[0]),
        (&[1, 1], &[]),
        (&[4], &[0]),
        (&[], &[0]),
        (&[], &[0]),
        (&[1], &[0]),
    ];
    for at in 0..SQLITE_STREAMS {
        let (before, empty) = match at.checked_sub(3).map(|at| at % (5 + 126 * 7)) {
            None => (&[][..], &[0][..]),
            Some(at @ ..5) => class[at],
            Some(at) => column[(at - 5) % 7],
        };
        if at != which {
            payload.extend(empty);
            continue;
        }
        payload.extend(before);
        payload.push(2);
        number(&mut payload, len);
        payload.push(7);
    }
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
    payload
}

#[test]
fn promises_of_payloads_cost_no_more_than_their_plain_length_allows() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut decompressor = Decompressor::new();
    let mut back = vec![0; 4 * MIB];
    // All that a payload may promise.
    let most = 6 * back.len() + (64 << 10);
    alloc::reset();
    let before = alloc::peak();
    for which in (0..38 + 3 * 128).step_by(5).chain(0..38) {
        for len in [most, most + 1, (1 << 28) - 1, most / 2] {
            let payload = promise(which, len);
            let result = decompressor.decompress(Algorithm::Pages, &payload, &mut back);
            assert!(result.is_err());
        }
    }
    for which in (0..SQLITE_STREAMS).step_by(61).chain(0..30) {
        for len in [most, back.len(), back.len() / 4] {
            let payload = promise_of_sqlite(which, len);
            let result = decompressor.decompress(Algorithm::Pages, &payload, &mut back);
            assert!(result.is_err());
        }
    }
    let used = alloc::peak() - before;
    assert!(used < worker_memory(back.len()) + MIB, "{} MiB", used / MIB);
}
