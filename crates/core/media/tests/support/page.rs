//! Goal: the tables of `docs/format.md`, and a comparison of encoded bytes with one of them.
//! Method: the page is read as it is; a table is known by its heading.
//! Not covered: this file has no tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

pub const PAGE: &str = include_str!("../../../../../docs/format.md");

pub type Rows = Vec<Vec<&'static str>>;

/// The rows of all tables under `### Table: ` headings, cells trimmed.
pub fn tables() -> BTreeMap<&'static str, Rows> {
    let mut tables = BTreeMap::new();
    for section in PAGE.split("\n### Table: ").skip(1) {
        let (title, rest) = section.split_once('\n').unwrap();
        let rows = rest
            .lines()
            .skip_while(|l| !l.starts_with('|'))
            .take_while(|l| l.starts_with('|'))
            .skip(2)
            .map(|l| l.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        assert!(tables.insert(title, rows).is_none(), "two tables {title:?}");
    }
    tables
}

pub fn table(title: &str) -> Rows {
    let found = tables().remove(title);
    found.unwrap_or_else(|| panic!("no table {title:?}"))
}

/// Whether the page contains these words, wherever its lines break.
pub fn says(words: &str) -> bool {
    let page: Vec<_> = PAGE.split_whitespace().collect();
    page.join(" ").contains(words)
}

/// A number as the page writes it: `15,900`.
pub fn number(text: &str) -> Option<u64> {
    text.replace(',', "").parse().ok()
}

/// The bytes that the page prints between the first two backticks: `4c 53 48 52`.
pub fn bytes(text: &str) -> Vec<u8> {
    let hex = text.split('`').nth(1).unwrap().split(' ');
    hex.map(|b| u8::from_str_radix(b, 16).unwrap()).collect()
}

/// Checks a table of fields against encoded bytes: fixed fields follow each other without a gap, and each has the
/// value in `expected`. Returns the length of the fixed part and the names of the other fields.
pub fn check_fields(
    title: &str,
    encoded: &[u8],
    expected: &[(&str, &[u8])],
) -> (usize, Vec<&'static str>) {
    let mut expected: BTreeMap<&str, &[u8]> = expected.iter().copied().collect();
    let mut end = 0;
    let mut open = Vec::new();
    for row in table(title) {
        let name = row[2];
        let (Some(offset), Some(size)) = (number(row[0]), number(row[1])) else {
            // The first field of variable length begins where the fixed ones end.
            if let (true, Some(offset)) = (open.is_empty(), number(row[0])) {
                assert_eq!(offset, end, "{title}: offset of {name}");
            }
            open.push(name);
            continue;
        };
        assert!(
            open.is_empty(),
            "{title}: {name} stands behind an open field"
        );
        assert_eq!(offset, end, "{title}: offset of {name}");
        end = offset + size;
        let found = &encoded[offset as usize..end as usize];
        if name.starts_with("reserved") {
            assert!(
                found.iter().all(|b| *b == 0),
                "{title}: {name} {found:02x?}"
            );
            continue;
        }
        let wanted = expected.remove(name);
        assert_eq!(Some(found), wanted, "{title}: {name}");
    }
    assert!(expected.is_empty(), "{title}: the page lacks {expected:?}");
    (end as usize, open)
}
