//! Goal: `docs/format.md`, "Lineage", and the code say the same.
//! Method: each field has a value that occurs only once; the bytes at each documented offset must be that value, and
//! every row of the table must be checked.

use std::collections::BTreeMap;

use longshore_pg::lineage::{
    Before, Digest, EarlierBackup, Lineage, LineageVerdict, TimelineHistory, Witness,
};
use longshore_pg::{Lsn, Timeline};

const PAGE: &str = include_str!("../../../../docs/format.md");

/// The rows of the table: offset, size, name.
fn rows() -> Vec<[&'static str; 3]> {
    let section = PAGE.split("\n### Table: lineage\n").nth(1).unwrap();
    let lines = section.lines().skip_while(|l| !l.starts_with('|'));
    let rows = lines.take_while(|l| l.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        [cells[0], cells[1], cells[2]]
    })
    .collect()
}

/// A history with two ancestors, given up at 0/1000000 and 0/2000000.
const HISTORY: &[u8] = b"1\t0/1000000\tno recovery target specified\n2\t0/2000000\tbefore 2026\n";

fn lineage() -> Lineage {
    let timeline = |number| Timeline::new(number).unwrap();
    Lineage {
        system: 0x0101_0202_0303_0404,
        timeline: timeline(3),
        line: Some(TimelineHistory::parse(timeline(3), HISTORY).unwrap()),
        reached: Lsn(0x1111),
        checkpoint: Lsn(0x2222),
        next_xid: 0x3333,
        in_recovery: true,
        home: Some(Digest([4; 16])),
        run: Some(Digest([5; 16])),
        witness: Some(Witness {
            timeline: timeline(2),
            start: Lsn(0x6000),
            len_bytes: 0x77,
            page_bytes: 8192,
            digest: Digest([8; 16]),
            before: Some(Before {
                len_bytes: 16 << 20,
                digest: Digest([9; 16]),
            }),
        }),
        known: [
            (10, LineageVerdict::Follows),
            (11, LineageVerdict::Apart),
            (12, LineageVerdict::Seen),
        ]
        .map(|(set, verdict)| EarlierBackup {
            set: [set; 16],
            verdict,
        })
        .to_vec(),
    }
}

#[test]
fn a_lineage_is_laid_out_as_in_its_table() {
    let lineage = lineage();
    let encoded = lineage.encode();
    let line = lineage.line.as_ref().unwrap();
    // A digest over the lines, each preceded by its length, as the page says; here by other means.
    let way = |lines: &[&[u8]]| Digest::of(lines.iter().copied()).0.to_vec();
    let lines: Vec<&[u8]> = HISTORY.trim_ascii().split(|b| *b == b'\n').collect();
    let mut expected: BTreeMap<&str, Vec<u8>> = [
        ("system", 0x0101_0202_0303_0404_u64.to_le_bytes().to_vec()),
        ("timeline", 3u32.to_le_bytes().to_vec()),
        // All but "older ancestors are left out".
        ("flags", 0b11_1101_u32.to_le_bytes().to_vec()),
        ("reached", 0x1111_u64.to_le_bytes().to_vec()),
        ("checkpoint", 0x2222_u64.to_le_bytes().to_vec()),
        ("next_xid", 0x3333_u64.to_le_bytes().to_vec()),
        ("home", vec![4; 16]),
        ("run", vec![5; 16]),
        ("witness_timeline", 2u32.to_le_bytes().to_vec()),
        ("witness_len", 0x77_u32.to_le_bytes().to_vec()),
        ("witness_start", 0x6000_u64.to_le_bytes().to_vec()),
        ("witness_page", 8192_u32.to_le_bytes().to_vec()),
        ("witness", vec![8; 16]),
        ("way", way(&lines)),
        ("ancestors", 2u16.to_le_bytes().to_vec()),
        ("known", 3u16.to_le_bytes().to_vec()),
    ]
    .into();
    let ancestor = |number: u32, end: u64, way: Vec<u8>| {
        let (number, end) = (number.to_le_bytes(), end.to_le_bytes());
        [&number[..], &end[..], &way].concat()
    };
    let known = |set: u8, verdict: u8| [&[set; 16][..], &[verdict]].concat();
    let mut lists: BTreeMap<&str, Vec<Vec<u8>>> = [
        (
            "ancestor",
            vec![
                ancestor(1, 0x100_0000, way(&[])),
                ancestor(2, 0x200_0000, way(&lines[..1])),
            ],
        ),
        ("known", vec![known(10, 1), known(11, 2), known(12, 3)]),
        (
            "before",
            vec![[&(16u32 << 20).to_le_bytes()[..], &[9; 16]].concat()],
        ),
    ]
    .into();
    assert_eq!(line.ancestors().len(), 2);
    let mut at = 0;
    for [offset, size, name] in rows() {
        let is_fixed = size.parse::<usize>().is_ok() && offset.parse::<usize>().is_ok();
        if let Ok(offset) = offset.parse::<usize>() {
            assert_eq!(offset, at, "offset of {name}");
        }
        let size: usize = size.split(' ').next().unwrap().parse().unwrap();
        let values = match is_fixed {
            true => vec![expected.remove(name).unwrap_or_else(|| panic!("{name}"))],
            false => lists.remove(name).unwrap_or_else(|| panic!("{name}")),
        };
        for value in values {
            assert_eq!(value.len(), size, "size of {name}");
            assert_eq!(encoded[at..at + size], value, "{name}");
            at += size;
        }
    }
    assert_eq!(at, encoded.len());
    assert!(
        expected.is_empty() && lists.is_empty(),
        "{expected:?} {lists:?}"
    );
    assert_eq!(Lineage::decode(&encoded), Some(lineage));
}

#[test]
fn a_lineage_with_another_flag_or_length_is_not_known() {
    let encoded = lineage().encode();
    for bit in 6..32 {
        let mut other = encoded.clone();
        other[12 + bit / 8] |= 1 << (bit % 8);
        assert_eq!(Lineage::decode(&other), None, "bit {bit}");
    }
    for len in 0..encoded.len() {
        assert_eq!(Lineage::decode(&encoded[..len]), None, "{len} bytes");
    }
}
