//! Goal: whatever a page holds, its payload gives it back, and every kernel makes the same payload.
//! Method: pages from a seed, damaged or not, with layouts that fit or do not; and pages made by hand at the limits of
//! what is taken apart, where it is also said whether they are.
//! Not covered: damaged payloads (`tests/pages_payloads.rs`).

use longshore_kit::pages::Buffer;
use longshore_kit::random::from_env;
use longshore_kit::{Random, cells};

use super::heap::{Form, HeapRows};
use super::index::{Items, Order};
use super::kernel::Kernel;
use super::page::Head;
use super::{Column, Compressor, Decompressor, Layout, Part, stored_len};
use crate::{Encoded, Level};

mod sqlite;

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL
        .into_iter()
        .filter(|kernel| kernel.is_available())
}

fn layout(attributes: &[(i16, u8)]) -> Layout {
    let column = |(len, align): &(i16, u8)| Column {
        len: *len,
        align: *align,
    };
    Layout::new(attributes.iter().map(column).collect::<Vec<_>>()).unwrap()
}

/// Compresses with every kernel and decodes with every kernel; returns the payload.
fn round_trip(level: Level, plain: &[u8], parts: &[Part<'_>], what: &str) -> Vec<u8> {
    let mut payloads = kernels().map(|kernel| {
        let mut compressor = Compressor::new(level);
        compressor.coder.kernel = kernel;
        let mut out = vec![0xee; stored_len(plain.len())];
        let Encoded { len, .. } = compressor.compress(plain, parts, &mut out);
        out.truncate(len);
        (kernel, out)
    });
    let (first, payload) = payloads.next().unwrap();
    for (kernel, other) in payloads {
        assert!(other == payload, "{what}: {first:?} and {kernel:?} differ");
    }
    for kernel in kernels() {
        let mut decompressor = Decompressor::new();
        decompressor.decoder.kernel = kernel;
        let mut back = vec![0x5a; plain.len()];
        let result = decompressor.decompress(&payload, &mut back);
        assert_eq!(result, Ok(()), "{what}, {kernel:?}");
        assert!(back == plain, "{what}, {kernel:?}: other bytes");
    }
    payload
}

fn buffer_comes_back(seed: u64, most: usize) {
    let mut random = Random(seed);
    let Buffer { bytes, parts } = match seed % 3 {
        0 => cells::buffer(&mut random, most),
        _ => Buffer::new(&mut random, most),
    };
    let layouts: Vec<Option<Layout>> = parts
        .iter()
        .map(|(_, attributes)| attributes.as_deref().map(layout))
        .collect();
    let parts: Vec<Part<'_>> = parts
        .iter()
        .zip(&layouts)
        .map(|((len, _), layout)| Part {
            len: *len,
            layout: layout.as_ref(),
        })
        .collect();
    // At LOW zstd measures times, from 128 KiB on, and chooses by them.
    let level = match most < 128 << 10 {
        true => [Level::Low, Level::Low, Level::Medium, Level::High][seed as usize % 4],
        false => [Level::Medium, Level::High][seed as usize % 2],
    };
    round_trip(level, &bytes, &parts, &format!("seed {seed}"));
}

#[test]
fn pages_of_any_kind_come_back_and_every_kernel_makes_the_same_payload() {
    let rounds = from_env("PAGES_ROUNDS", 600);
    (0..rounds).for_each(|seed| buffer_comes_back(seed, 48 << 10));
    (0..rounds / 50).for_each(|seed| buffer_comes_back(1 << 40 | seed, 1 << 20));
}

/// A tuple with `attributes` and these bytes after its header.
fn tuple(attributes: u16, bitmap: Option<&[u8]>, data: &[u8]) -> Vec<u8> {
    let mut tuple = vec![0; 23];
    tuple[..4].copy_from_slice(&[1, 2, 3, 4]);
    tuple[16] = 1;
    tuple[18..20].copy_from_slice(&attributes.to_le_bytes());
    tuple[20..22].copy_from_slice(&(0x0902 | u16::from(bitmap.is_some())).to_le_bytes());
    tuple.extend(bitmap.unwrap_or_default());
    tuple.resize(tuple.len().next_multiple_of(8), 0);
    tuple[22] = tuple.len() as u8;
    tuple.extend(data);
    tuple
}

/// A page with these tuples or items, one below the other, below `special` bytes.
fn page(size: usize, special: usize, tuples: &[Vec<u8>]) -> Vec<u8> {
    let mut page = vec![0; size];
    let mut upper = size - special;
    for (i, tuple) in tuples.iter().enumerate() {
        upper -= tuple.len().next_multiple_of(8);
        page[upper..upper + tuple.len()].copy_from_slice(tuple);
        let pointer = upper as u32 | 1 << 15 | (tuple.len() as u32) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&pointer.to_le_bytes());
    }
    let places = [24 + 4 * tuples.len(), upper, size - special, size | 4];
    for (at, value) in [12, 14, 16, 18].into_iter().zip(places) {
        page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    page
}

/// How each kernel takes a page of rows apart; it comes back in any case.
fn rows(page: &[u8], attributes: &[(i16, u8)], what: &str) -> Option<Form> {
    let layout = layout(attributes);
    // Twice: what the first page leaves behind must not matter to the second.
    let plain = [page, page].concat();
    let parts = [Part {
        len: plain.len(),
        layout: Some(&layout),
    }];
    round_trip(Level::Low, &plain, &parts, what);
    let head = Head::of(page)?;
    let mut forms = kernels().map(|kernel| {
        let mut rows = HeapRows::default();
        rows.clear(attributes.len());
        rows.split(kernel, page, &head, layout.columns())
    });
    let form = forms.next().unwrap();
    assert!(forms.all(|other| other == form), "{what}");
    form
}

fn items(page: &[u8], what: &str) -> Option<Order> {
    let plain = [page, page].concat();
    let parts = [Part {
        len: plain.len(),
        layout: None,
    }];
    round_trip(Level::Low, &plain, &parts, what);
    Items::default().split(page, &Head::of(page)?)
}

const PLAIN: Form = Form {
    pointers: false,
    gaps: false,
    nulls: false,
};

/// Every kernel writes these bytes, today and later: each of them is explained in docs/format.md.
#[test]
fn a_small_page_becomes_the_bytes_of_the_format() {
    let row = |n: u8| tuple(2, None, &[n, 0, 0, 0, 9, b'a', b'b', n]);
    let plain = page(8192, 0, &[row(1), row(2), row(4)]);
    let layout = layout(&[(4, 4), (-1, 4)]);
    let parts = [Part {
        len: plain.len(),
        layout: Some(&layout),
    }];
    let payload = round_trip(Level::Low, &plain, &parts, "small");
    let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, SMALL);
}

const SMALL: &str = "\
    5c2a4d18d8000000010d01021202020103020002010002010002010002010002010002010002010002010002010002010002\
    01000201000201240201000201a002011f020100020120020104020120020100020100020100020100020302020002030102\
    0302020303020304020300020300020300020300020300020300020300020300020300020300020300020300010300030202\
    0300020302020300020302020309020300020300000000000000000000000000000000000000000200010301020402030002\
    030002030002030302030002030203610203620103010204";

/// A group has all columns of its layout, also where no page of it has rows: a table that was only made longer, for example.
#[test]
fn groups_without_rows_have_all_columns_of_their_layout() {
    let zeros = vec![0; 8192];
    let metapage = page(8192, 16, &[]);
    for plain in [zeros.clone(), metapage.clone(), [zeros, metapage].concat()] {
        let layout = layout(&[(4, 4), (-1, 4), (6, 2)]);
        let parts = [Part {
            len: plain.len(),
            layout: Some(&layout),
        }];
        round_trip(Level::Low, &plain, &parts, "no rows");
    }
}

#[test]
fn bitmaps_that_miss_nothing_are_kept() {
    let tuples = [tuple(2, Some(&[3]), &[7; 8]), tuple(2, None, &[8; 8])];
    let form = Form {
        nulls: true,
        ..PLAIN
    };
    let columns = [(4, 4), (4, 4)];
    assert_eq!(
        rows(&page(8192, 0, &tuples), &columns, "bitmap"),
        Some(form)
    );
    assert_eq!(
        rows(&page(8192, 0, &tuples[..1]), &columns, "alone"),
        Some(form)
    );
}

#[test]
fn values_of_any_width_are_columns_on_pages_without_nulls() {
    for width in (1..=80).chain([200, 1000, 4000]) {
        for align in [1, 2, 4, 8] {
            let tuples = [
                tuple(1, None, &vec![5; width as usize]),
                tuple(1, None, &vec![6; width as usize]),
            ];
            let form = rows(&page(16384, 0, &tuples), &[(width, align)], "width");
            assert_eq!(form, Some(PLAIN), "{width} {align}");
        }
    }
}

#[test]
fn filling_before_a_value_is_zeros_or_the_page_stays_whole() {
    for len in [1, 2, 3, 4, 6, 8, 16, -1] {
        for (before, align) in [(1_usize, 2_usize), (1, 4), (2, 4), (3, 4)]
            .into_iter()
            .chain((1..8).map(|before| (before, 8)))
        {
            let filling = before.next_multiple_of(align) - before;
            let mut data = vec![9; before + filling];
            data[before..].fill(0);
            // For a value with a length: a header of four bytes, and no bytes.
            data.extend([16, 0, 0, 0]);
            if let Ok(len) = usize::try_from(len) {
                data.resize(before + filling + len, 1);
            }
            let columns = [(before as i16, 1), (len, align as u8)];
            let clean = page(8192, 0, &[tuple(2, None, &data)]);
            assert_eq!(rows(&clean, &columns, "clean"), Some(PLAIN), "{columns:?}");
            for i in before..before + filling {
                let mut dirty = data.clone();
                dirty[i] = 2;
                let dirty = page(8192, 0, &[tuple(2, None, &dirty)]);
                assert_eq!(rows(&dirty, &columns, "dirty"), None, "{columns:?} {i}");
            }
        }
    }
}

#[test]
fn headers_that_postgresql_does_not_make_come_back() {
    let columns = [(4, 4), (-1, 4), (1, 1)];
    let data = [1, 2, 3, 4, 7, 65, 66, 9];
    let good = tuple(3, None, &data);
    let with_nulls = tuple(3, Some(&[0b101]), &[1, 2, 3, 4, 9]);
    let nulls = Form {
        nulls: true,
        ..PLAIN
    };
    let apart = |tuple: &[u8]| rows(&page(8192, 0, &[tuple.to_vec()]), &columns, "header");
    assert_eq!(apart(&good), Some(PLAIN));
    assert_eq!(apart(&with_nulls), Some(nulls));
    for (at, byte, good_is, nulls_is) in [
        (16, 0, Some(PLAIN), Some(nulls)),
        (16, 0xff, Some(PLAIN), Some(nulls)),
        (17, 0xff, Some(PLAIN), Some(nulls)),
        (19, 0xf8, Some(PLAIN), Some(nulls)),
        // Every bit of `t_infomask` but the one of the bitmap.
        (20, 0xfe, Some(PLAIN), None),
        (20, 0xff, None, Some(nulls)),
        (21, 0xff, Some(PLAIN), Some(nulls)),
        // No attributes, more than the table has, and fewer.
        (18, 0, None, None),
        (18, 4, None, None),
        (18, 2, None, None),
        (22, 0, None, None),
        (22, 23, None, None),
        (22, 32, None, None),
        (22, 255, None, None),
        // The bitmap's byte, or the filling.
        (23, 1, None, None),
        (23, 0b1000_0101, None, None),
        (23, 0b111, None, None),
    ] {
        for (tuple, expected) in [(&good, good_is), (&with_nulls, nulls_is)] {
            let mut tuple = tuple.clone();
            tuple[at] = byte;
            assert_eq!(apart(&tuple), expected, "byte {at} is {byte}");
        }
    }
    let filled = page(8192, 0, &[tuple(3, None, &data[..7]), good.clone()]);
    let cut = rows(
        &filled,
        &[(4, 4), (-1, 4), (1, 1)],
        "a row without its last value",
    );
    assert_eq!(cut, None);
    let fewer = page(8192, 0, &[tuple(2, None, &data[..7]), good]);
    assert_eq!(rows(&fewer, &columns, "fewer attributes"), Some(PLAIN));
}

#[test]
fn headers_of_values_come_back_canonical_or_not() {
    let toast: Vec<u8> = [1, 18].into_iter().chain([7; 16]).collect();
    let long = |claimed: u32, bits: u32, len: usize| {
        let mut value = (claimed << 2 | bits).to_le_bytes().to_vec();
        value.resize(4 + len, b'x');
        value
    };
    for (value, expected) in [
        (vec![3], true),
        ([&[255][..], &[b'x'; 126]].concat(), true),
        (toast.clone(), true),
        // Other tags, a tag that is cut off, and bytes that look like a pointer to TOAST.
        ([&[1, 1][..], &[7; 16]].concat(), false),
        ([&[1, 3][..], &[7; 16]].concat(), false),
        (vec![1], false),
        (toast[..9].to_vec(), false),
        ([&[17 * 2 + 3][..], &[18; 17]].concat(), true),
        (long(4, 0, 0), true),
        (long(4, 2, 0), true),
        (long(5, 0, 1), true),
        (long(4 + 17, 0, 17), true),
        (long(4 + 17, 2, 17), true),
        (long(4 + 126, 0, 126), true),
        (long(4 + 255, 0, 255), true),
        (long(4 + 256, 2, 256), true),
        (long(4 + 16_383, 0, 16_383), true),
        (long(4 + 16_384, 0, 16_384), false),
        (long(4 + 20_000, 2, 20_000), false),
        (long(3, 0, 0), false),
        (long(0, 0, 0), false),
        (long(0, 2, 0), false),
        (long(4 + 16_384, 0, 0), false),
        (long(1 << 28, 0, 0), false),
        (long((1 << 30) - 1, 2, 40), false),
        (long(6, 0, 1), false),
        (long(5, 0, 2), false),
    ] {
        let what = format!("{:02x?}", &value[..value.len().min(6)]);
        let tuples = [tuple(1, None, &value), tuple(1, None, &value[..1])];
        for columns in [[(-1, 1)], [(-1, 4)], [(-1, 8)]] {
            let alone = page(32768, 0, &tuples[..1]);
            let form = rows(&alone, &columns, &what);
            assert_eq!(form.is_some(), expected, "{what}");
            rows(&page(32768, 0, &tuples), &columns, &what);
        }
    }
    // A list of lengths may not join with the mark of a pointer to TOAST.
    let values = [
        toast,
        vec![3],
        long(4 + 17, 2, 17),
        long(4 + 64 * 256 - 1, 0, 64 * 256 - 1),
    ];
    let tuples = values.map(|value| tuple(1, None, &value));
    let form = rows(&page(32768, 0, &tuples), &[(-1, 4)], "all kinds");
    assert_eq!(form, Some(PLAIN));
}

fn set_pointer(page: &mut [u8], index: usize, offset: usize, state: u32, len: usize) {
    let pointer = offset as u32 | state << 15 | (len as u32) << 17;
    page[24 + 4 * index..28 + 4 * index].copy_from_slice(&pointer.to_le_bytes());
}

#[test]
fn line_pointers_of_any_kind_come_back() {
    let columns = [(4, 4), (-1, 4)];
    let row = |n: u8| tuple(2, None, &[n, 0, 0, 0, 9, b'a', b'b', n]);
    let tuples: Vec<_> = (0..40).map(row).collect();
    let good = page(8192, 0, &tuples);
    assert_eq!(rows(&good, &columns, "good"), Some(PLAIN));
    let kept = Form {
        pointers: true,
        ..PLAIN
    };
    let gaps = Form { gaps: true, ..kept };
    let at = |n: usize| 8192 - 32 * (n + 1);
    let cases: [(&str, usize, u32, usize, Option<Form>); 15] = [
        ("redirected", 6, 2, 0, Some(gaps)),
        ("dead", 0, 3, 0, Some(gaps)),
        ("unused", 0, 0, 0, Some(gaps)),
        ("dead, with bytes", at(5), 3, 32, None),
        ("unused, with bytes", at(5), 0, 32, None),
        ("normal, without bytes", at(5), 1, 0, None),
        ("longer", at(5), 1, 33, None),
        ("shorter", at(5), 1, 31, None),
        ("shorter than a header", at(5), 1, 23, None),
        ("twice", at(4), 1, 32, None),
        ("not aligned", at(5) + 4, 1, 28, None),
        ("in the hole", 200, 1, 32, None),
        ("in the head", 0, 1, 32, None),
        ("beyond the end", 8192 - 8, 1, 32, None),
        ("far away", 0x7ff8, 1, 0x7fff, None),
    ];
    for (what, offset, state, len, expected) in cases {
        let mut page = good.clone();
        set_pointer(&mut page, 5, offset, state, len);
        assert_eq!(rows(&page, &columns, what), expected, "{what}");
    }
    // The first two exchanged, and a row that is gone with its bytes.
    let mut page = good.clone();
    set_pointer(&mut page, 0, at(1), 1, 32);
    set_pointer(&mut page, 1, at(0), 1, 32);
    assert_eq!(rows(&page, &columns, "exchanged"), Some(kept));
    set_pointer(&mut page, 7, 0, 3, 0);
    page[at(7)..at(7) + 32].fill(0);
    assert_eq!(rows(&page, &columns, "gone"), Some(kept));
    page[at(7) + 31] = 1;
    assert_eq!(rows(&page, &columns, "bytes stay"), Some(gaps));
    for index in 0..40 {
        set_pointer(&mut page, index, 0, 0, 0);
    }
    assert_eq!(rows(&page, &columns, "none is left"), None);
}

#[test]
fn heads_at_their_limits_come_back() {
    let columns = [(1, 1)];
    for size in [4096, 8192, 16384, 32768] {
        let longest = size - 24 - 4 - 4;
        let data = vec![3; longest - 24];
        let whole = page(size, 0, &[tuple(1, None, &data)]);
        let one = [((longest - 24) as i16, 1)];
        assert_eq!(rows(&whole, &one, "one row"), Some(PLAIN), "{size}");
        let small = tuple(1, None, &[3]);
        let full = page(size, 0, &vec![small.clone(); (size - 24) / 36]);
        assert_eq!(rows(&full, &columns, "full of rows"), Some(PLAIN), "{size}");
        let good = page(size, 0, &[small.clone(), small]);
        for (at, value) in [12, 14, 16, 18].into_iter().flat_map(|at| {
            [
                0, 1, 4, 23, 24, 26, 28, 36, 4096, 8192, 16384, 32760, 32768, 65528, 65535,
            ]
            .map(|v| (at, v))
        }) {
            let mut page = good.clone();
            page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
            rows(&page, &columns, "head");
            items(&page, "head");
        }
    }
}

#[test]
fn bytes_between_and_after_rows_come_back() {
    let columns = [(1, 1)];
    let rows_of = |n: u8| tuple(1, None, &[n]);
    let mut page = page(8192, 0, &(0..20).map(rows_of).collect::<Vec<_>>());
    page[8191] = 1;
    let form = Form {
        gaps: true,
        ..PLAIN
    };
    assert_eq!(rows(&page, &columns, "after a row"), Some(form));
    // A hole above `pd_upper` before the first row, and one that is old.
    let upper = 8192 - 32 * 20 - 64;
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    let form = Form {
        pointers: true,
        gaps: true,
        nulls: false,
    };
    assert_eq!(rows(&page, &columns, "loose"), Some(form));
    page[upper + 3] = 4;
    assert_eq!(rows(&page, &columns, "loose and old"), Some(form));
    page[200] = 4;
    assert_eq!(rows(&page, &columns, "with an old hole"), Some(form));
}

fn posting(key: &[u8], count: u16, rest: &[u8]) -> Vec<u8> {
    let at = 8 + key.len() as u16;
    let mut item = [0, 0].to_vec();
    item.extend(at.to_le_bytes());
    item.extend((count | 0x2000).to_le_bytes());
    item.extend([0, 0]);
    item.extend(key);
    for i in 0..count {
        item.extend([0, 0, i as u8 / 3, 1, i as u8 * 7, 0]);
    }
    item.extend(rest);
    let info = item.len() as u16 | 0x2000;
    item[6..8].copy_from_slice(&info.to_le_bytes());
    item
}

#[test]
fn lists_of_rows_next_to_gaps_come_back() {
    let lists = [
        posting(&[1; 8], 3, &[1, 2, 3, 4, 5, 6]),
        posting(&[2; 8], 2, &[7, 8, 9, 10]),
        posting(&[3; 8], 4, &[]),
    ];
    let good = page(8192, 16, &lists);
    assert_eq!(items(&good, "lists"), Some(Order::Falling));
    let mut loose = good.clone();
    let upper = 8192 - 16 - lists.iter().map(Vec::len).sum::<usize>() - 16;
    loose[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    loose[upper..upper + 16].copy_from_slice(b"old bytes, not 0");
    assert_eq!(items(&loose, "lists and gaps"), Some(Order::Other));
    // Lists that begin before the key, or end behind the item.
    for (at, value) in [
        (2, 7_u16),
        (2, 8),
        (2, 9),
        (0, 1),
        (2, 0xffff),
        (4, 0x2000),
        (4, 0x2fff),
        (6, 0),
    ] {
        let mut lists = lists.clone();
        lists[1][at..at + 2].copy_from_slice(&value.to_le_bytes());
        items(&page(8192, 16, &lists), "wrong lists");
    }
}

#[test]
fn line_pointers_of_items_of_any_kind_come_back() {
    let item = |n: u8| [vec![0, 0, 1, 0, n, 0, 16, 0], vec![n; 8]].concat();
    let all: Vec<_> = (0..30).map(item).collect();
    let good = page(8192, 16, &all);
    assert_eq!(items(&good, "good"), Some(Order::Falling));
    let at = |n: usize| 8192 - 16 - 16 * (n + 1);
    let mut last = good.clone();
    for index in 0..30 {
        set_pointer(&mut last, index, at((index + 29) % 30), 1, 16);
    }
    assert_eq!(
        items(&last, "the first is the lowest"),
        Some(Order::FirstLast)
    );
    let cases: [(&str, usize, u32, usize, Option<Order>); 11] = [
        ("dead, with bytes", at(5), 3, 16, Some(Order::Other)),
        ("dead", 0, 3, 0, Some(Order::Other)),
        ("redirected", 7, 2, 0, Some(Order::Other)),
        ("shorter", at(5), 1, 13, Some(Order::Other)),
        ("only a head", at(5), 1, 8, Some(Order::Other)),
        ("shorter than a head", at(5), 1, 7, None),
        ("longer", at(5), 1, 17, None),
        ("not aligned", at(5) + 4, 1, 8, None),
        ("in the special space", 8176, 1, 16, None),
        ("in the hole", 200, 1, 16, None),
        ("far away", 0x7ff8, 1, 0x7fff, None),
    ];
    for (what, offset, state, len, expected) in cases {
        for good in [&good, &last] {
            let mut page = good.clone();
            let index = if offset < 8176 && offset > 7 * 1024 {
                (0..30).find(|i| {
                    let at = 24 + 4 * i;
                    let pointer = u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
                    (pointer & 0x7fff) as usize == at_of(5)
                })
            } else {
                Some(5)
            };
            set_pointer(&mut page, index.unwrap(), offset, state, len);
            assert_eq!(items(&page, what), expected, "{what}");
        }
    }
}

/// Where the sixth item of 16 bytes is.
fn at_of(n: usize) -> usize {
    8192 - 16 - 16 * (n + 1)
}

/// Goal: no payload that is made is refused for the length of its streams.
/// Method: the columns whose streams are longest for their plain bytes: empty values, with a longer one here and there.
#[test]
fn wide_tables_of_empty_values_come_back() {
    for columns in [1, 128] {
        let attributes = vec![(-1, 1); columns];
        for rows_each in [1, 200, 2500] {
            let mut tuples = Vec::new();
            for row in 0..rows_each {
                // Too many different ones at first for a list; and then next to none.
                let is_long = row < 45;
                let value = |column: usize| match is_long {
                    true => vec![19, 1, 2, 3, 4, 5, (row / 5) as u8, row as u8, column as u8],
                    false => vec![3],
                };
                tuples.push(tuple(
                    columns as u16,
                    None,
                    &(0..columns).flat_map(value).collect::<Vec<_>>(),
                ));
            }
            let mut plain = Vec::new();
            let mut from = 0;
            while from < tuples.len() {
                let mut free = 8192 - 24;
                let fit = tuples[from..].iter().take_while(|tuple| {
                    let needed = tuple.len().next_multiple_of(8) + 4;
                    let fits = needed <= free;
                    free = if fits { free - needed } else { 0 };
                    fits
                });
                let fit = fit.count();
                plain.extend(page(8192, 0, &tuples[from..from + fit]));
                from += fit;
            }
            let layout = layout(&attributes);
            let parts = [Part {
                len: plain.len(),
                layout: Some(&layout),
            }];
            round_trip(Level::Low, &plain, &parts, "empty values");
            // Each page a part of its own.
            let parts = vec![
                Part {
                    len: 8192,
                    layout: Some(&layout)
                };
                plain.len() / 8192
            ];
            round_trip(Level::Low, &plain, &parts, "empty values, page by page");
        }
    }
}
