//! Goal: pages of SQLite are taken apart where they are as SQLite writes them, and nowhere else; and what they are made of
//! comes back at its limits.
//! Method: pages made by hand, one thing of each is changed.
//! Not covered: whole buffers and payloads (`tests.rs`, `pages_sqlite.rs`, `pages_payloads.rs`).

use longshore_kit::{Random, cells};

use super::super::cell::{Leaf, Varint, size_bits};
use super::super::column::{Decoded, Room};
use super::super::cursor::{Bytes, Cursor};
use super::super::measures::{RealsRead, Scratch, get_reals, put_reals};
use super::super::out::Out;
use super::super::records::LeafRecords;
use super::super::sqlite::{Cells, CellsRead, PROMISED_MAX};
use super::super::stream::{Coder, Decoder};
use crate::Level;

#[test]
fn varints_come_back_and_longer_ones_are_refused() {
    let bits = (0..64).flat_map(|bit| [(1 << bit) - 1, 1_u64 << bit, (1 << bit) + 1]);
    for value in bits.chain([0, u64::MAX]) {
        let mut bytes = [0; 9];
        let len = Varint::write(value, &mut bytes).unwrap();
        let mut at = 0;
        assert_eq!(Varint::read(&bytes[..len], &mut at), Some(value));
        assert_eq!((at, Varint::len(value)), (len, len));
        assert_eq!(Varint::read(&bytes[..len - 1], &mut 0), None);
        assert_eq!(Varint::write(value, &mut bytes[..len - 1]), None);
    }
    for long in [&[0x80, 0][..], &[0x80, 0x7f], &[0x80; 9]] {
        assert_eq!(Varint::read(long, &mut 0), None, "{long:?}");
    }
}

#[test]
fn the_size_of_pages_is_found_and_other_bytes_have_none() {
    let (mut found, mut noisy) = (0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        for size in [512_usize, 1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            let mut tree = cells::Tree::new(&mut random);
            let bytes: Vec<u8> = (0..9).flat_map(|_| tree.page(&mut random, size)).collect();
            let bits = size_bits(&bytes, 0);
            found += usize::from(bits == Some(size.trailing_zeros() as u8));
        }
        let noise = random.bytes(200_000);
        noisy += usize::from(size_bits(&noise, 12).is_some());
    }
    assert!(noisy < 9, "{noisy} of 200");
    assert!(found > 1000, "{found} of 1600");
    for bytes in [&[][..], &[0; 100_000], &[13; 100_000], &[10; 511]] {
        assert_eq!(size_bits(bytes, 12), None);
    }
}

/// A leaf of a table with these cells, one below the other from `end` on.
fn leaf(size: usize, end: usize, cells: &[&[u8]]) -> Vec<u8> {
    let mut page = vec![0; size];
    let mut content = end;
    for (i, cell) in cells.iter().enumerate() {
        content -= cell.len();
        page[content..content + cell.len()].copy_from_slice(cell);
        page[8 + 2 * i..10 + 2 * i].copy_from_slice(&(content as u16).to_be_bytes());
    }
    page[0] = 13;
    page[3..5].copy_from_slice(&(cells.len() as u16).to_be_bytes());
    page[5..7].copy_from_slice(&(content as u16).to_be_bytes());
    page
}

/// Whether the page is taken apart, and if it is, whether its cells follow each other down from its end.
fn taken(page: &[u8]) -> Option<bool> {
    let found = LeafRecords::default().find(page, &Leaf::of(page)?)?;
    Some(found.is_falling)
}

/// Rowid 5; 300, NULL and "ab".
const CELL: &[u8] = &[8, 5, 4, 2, 0, 17, 1, 44, b'a', b'b'];
const CELL_LEN: u8 = 8;

#[test]
fn a_page_is_taken_apart_only_if_all_its_cells_are_as_sqlite_writes_them() {
    let page = leaf(512, 512, &[CELL, CELL]);
    assert_eq!(taken(&page), Some(true));
    assert_eq!(taken(&leaf(512, 500, &[CELL, CELL])), Some(false));
    for (at, value, is_good) in [
        (0, CELL_LEN + 1, false),
        (0, CELL_LEN - 1, false),
        (0, 0xff, false),
        (1, 0x7f, true),
        (1, 0x80, false),
        (2, 0, false),
        (2, 3, false),
        (2, 0x84, false),
        (3, 10, false),
        (3, 11, false),
        (3, 1, false),
        (4, 8, true),
        (4, 1, false),
        (5, 16, true),
        (5, 19, false),
        (6, 0, true),
    ] {
        let mut changed = page.clone();
        changed[502 + at] = value;
        assert_eq!(taken(&changed).is_some(), is_good, "{at} {value}");
    }
    let with = |at: usize, value: u8| {
        let mut changed = page.clone();
        changed[at] = value;
        taken(&changed)
    };
    // The type, the number of cells, and where they begin.
    assert_eq!(with(0, 5), None);
    assert_eq!(with(4, 0), None);
    assert_eq!(with(3, 1), None);
    assert_eq!(with(6, 0xed), None);
    assert_eq!(with(6, 0xe0), Some(false));
    // Two pointers to one cell, and one into a cell.
    assert_eq!(with(11, 0xf6), None);
    assert_eq!(with(11, 0xed), None);
    // The other order.
    let mut turned = page.clone();
    turned[8..12].copy_from_slice(&[1, 0xec, 1, 0xf6]);
    assert_eq!(taken(&turned), Some(false));
}

#[test]
fn real_numbers_come_back_bit_for_bit() {
    let mut random = Random(3);
    let hundredths = |n: i64| n as f64 / 100.0;
    let mut all: Vec<Vec<f64>> = vec![
        vec![],
        vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            1e300,
        ],
        (-5000..5000).map(hundredths).collect(),
        (0..1000).map(|n| hundredths(n) + 0.1).collect(),
        vec![9_007_199_254_740_993.0, 1e15 + 0.1, -1e22, 0.1 + 0.2],
        (0..500).map(|_| f64::from_bits(random.next())).collect(),
    ];
    all.push([&all[2][..], &all[5][..200], &all[1][..]].concat());
    let (mut coder, mut decoder) = (Coder::new(Level::Low), Decoder::new());
    let (mut room, mut scratch) = (Room::default(), Scratch::default());
    for reals in all {
        let bytes: Vec<u8> = reals.iter().flat_map(|real| real.to_le_bytes()).collect();
        let mut memory = vec![0; 2 * bytes.len() + 100];
        let mut out = Out::new(&mut memory);
        put_reals(&mut coder, &mut room, &mut scratch, &bytes, &mut out);
        let len = out.len();
        let (mut read, mut decoded) = (RealsRead::default(), Decoded::default());
        let mut back = Bytes::default();
        let mut get = |most: usize| {
            let mut cursor = Cursor::new(&memory[..len], 1 << 20, 1 << 20);
            let cursor = &mut cursor;
            get_reals(
                &mut decoder,
                cursor,
                &mut decoded,
                &mut read,
                most,
                &mut back,
            )
            .map(|()| back.to_vec())
        };
        assert_eq!(get(reals.len()), Ok(bytes));
        assert!(reals.is_empty() || get(reals.len() - 1).is_err());
    }
}

/// Goal: what a group is counted for before it is written is no less than what its reader takes off its allowance; and what
/// the writer holds counts as its memory.
#[test]
fn a_reader_has_room_for_every_group_that_was_written() {
    let mut written = 0;
    for seed in 0..120 {
        let mut random = Random(seed);
        let size = 512 << (seed % 8);
        let mut tree = cells::Tree::new(&mut random);
        let bytes: Vec<u8> = (0..40).flat_map(|_| tree.page(&mut random, size)).collect();
        let (mut coder, mut decoder) = (Coder::new(Level::Low), Decoder::new());
        let mut memory = vec![0; 2 * bytes.len() + 1000];
        let mut out = Out::new(&mut memory);
        let mut cells = Cells::default();
        let Some(len @ 1..) = cells.put(&mut coder, &bytes, &mut out) else {
            continue;
        };
        let end = out.len();
        let mut cursor = Cursor::new(&memory[1..end], PROMISED_MAX * len, 1 << 30);
        let (cursor, mut plain) = (&mut cursor, vec![0; len]);
        let got = CellsRead::default().get(memory[0], &mut decoder, cursor, &mut plain);
        assert_eq!(got, Ok(len), "{seed}");
        assert!(plain == bytes[..len], "{seed}");
        // Each page has a class, and its place there.
        assert!(cells.memory() > 40 * size_of::<usize>());
        written += 1;
    }
    assert!(written > 60, "{written}");
}
