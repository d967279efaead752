//! Goal: all that SQLite writes comes back from PAGES payloads, which are no larger than those of ZSTD.
//! Method: SQLite makes databases with every page size, churned and vacuumed; their files are cut into buffers as a backup
//! does, or at odd places. One compressor and one decompressor do all of a test.
//! Not covered: pages that SQLite does not write (`pages_payloads.rs`).

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, Part, payload_bound};
use longshore_kit::Random;
use rusqlite::{Connection, params};

const TABLES: &str = "
    create table orders (id integer primary key, customer int, at text, amount real, paid int, note text);
    create index by_customer on orders (customer, at);
    create table reading (sensor int, at int, value real, level real);
    create index by_time on reading (at);
    create table pair (k text primary key, v blob, n) without rowid;
    create table long (id integer primary key, body text);
    create table any (a, b, c, d);
    create table early (id integer primary key, a text);";

/// A database with rows from a seed, some changed and removed again.
fn database(seed: u64, page_size: usize, pragmas: &str, rows: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let sqlite = Connection::open(&path).unwrap();
    sqlite
        .execute_batch(&format!(
            "pragma page_size = {page_size}; {pragmas} pragma journal_mode = off; pragma synchronous = off; {TABLES} begin"
        ))
        .unwrap();
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        sqlite.prepare_cached(sql).unwrap().execute(values).unwrap();
    };
    for i in 0..rows as i64 {
        if i as usize == rows / 2 {
            sqlite
                .execute_batch(
                    "alter table early add column b int; alter table early add column c real",
                )
                .unwrap();
        }
        let customer = random.below(500_u64) as i64;
        let note = ["", "late", "a gift for somebody", "ünïcödé ☃"][random.below(4)];
        let at = format!("2026-{:02}-{:02} 10:{:02}", 1 + i % 12, 1 + i % 28, i % 60);
        let amount = random.below(1_000_000_u64) as f64 / 100.0;
        run(
            "insert into orders values (?, ?, ?, ?, ?, ?)",
            params![None::<i64>, customer, at, amount, i % 2, note],
        );
        let level = f64::from_bits(random.next());
        run(
            "insert into reading values (?, ?, ?, ?)",
            params![
                i % 40,
                1_700_000_000_000 + 60 * i,
                20.0 + (i % 100) as f64 / 10.0,
                level
            ],
        );
        let (key, len) = (format!("k{}", random.below(1_u64 << 40)), random.below(60));
        let wide = random.next() as i64 >> random.below(64);
        run(
            "insert or replace into pair values (?, ?, ?)",
            params![key, random.bytes(len), wide],
        );
        if i % 40 == 0 {
            let len = random.below(3 * page_size.min(20_000));
            run(
                "insert or ignore into long values (?, ?)",
                params![wide, "long text ".repeat(len / 10)],
            );
        }
        let any: [&dyn rusqlite::ToSql; 5] = [&i, &amount, &note, &wide, &None::<i64>];
        let four: [&dyn rusqlite::ToSql; 4] = std::array::from_fn(|_| any[random.below(5)]);
        run("insert into any values (?, ?, ?, ?)", &four);
        run("insert into early (a) values (?)", params![note]);
        if i % 3 == 0 {
            let id = random.below(i as u64 + 1) as i64;
            run(
                "update orders set note = note || '!', paid = 7 where id = ?",
                params![id],
            );
            run("delete from reading where rowid = ?", params![id]);
            run("delete from pair where n = ?", params![wide]);
        }
    }
    sqlite.execute_batch("commit").unwrap();
    if random.one_in(3) {
        sqlite.execute_batch("vacuum").unwrap();
    }
    drop(sqlite);
    std::fs::read(path).unwrap()
}

struct Both {
    compressor: Compressor,
    decompressor: Decompressor,
}

impl Both {
    fn round_trip(&mut self, plain: &[u8]) -> usize {
        let mut out = vec![0; payload_bound(Algorithm::Pages, plain.len())];
        let parts = [Part {
            len: plain.len(),
            layout: None,
        }];
        let len = self.compressor.compress_parts(plain, &parts, &mut out).len;
        let mut back = vec![0x5a; plain.len()];
        let result = self
            .decompressor
            .decompress(Algorithm::Pages, &out[..len], &mut back);
        assert_eq!(result, Ok(()));
        assert!(back == plain, "other bytes come back");
        len
    }
}

fn zstd_len(plain: &[u8]) -> usize {
    let mut out = vec![0; payload_bound(Algorithm::Zstd, plain.len())];
    let mut compressor = Compressor::new(Algorithm::Zstd, Level::Low).unwrap();
    compressor.compress(plain, &mut out).len
}

#[test]
fn databases_of_every_page_size_come_back_no_larger_than_with_zstd() {
    const PRAGMAS: [&str; 5] = [
        "",
        "pragma auto_vacuum = full;",
        "pragma encoding = 'UTF-16le';",
        "pragma legacy_file_format = on;",
        "pragma secure_delete = on; pragma auto_vacuum = incremental;",
    ];
    let mut random = Random(5);
    let mut all = (0, 0);
    for bits in 9..=16 {
        let mut both = Both {
            compressor: Compressor::new(Algorithm::Pages, Level::Low).unwrap(),
            decompressor: Decompressor::new(),
        };
        for (i, pragmas) in PRAGMAS.iter().enumerate() {
            let seed = (bits * 10 + i) as u64;
            let bytes = database(seed, 1 << bits, pragmas, 4000);
            let (mut pages, mut zstd) = (0, 0);
            for buffer in bytes.chunks(1 << 18) {
                pages += both.round_trip(buffer);
                zstd += zstd_len(buffer);
            }
            // Where long texts fill most pages of a buffer, it goes to zstd.
            assert!(
                pages * 50 < zstd * 51,
                "{bits} {pragmas}: {pages}, {zstd} with ZSTD"
            );
            all = (all.0 + pages, all.1 + zstd);
            for _ in 0..20 {
                let from = random.below(bytes.len());
                let end = (from + 1 + random.below(100_000)).min(bytes.len());
                both.round_trip(&bytes[from..end]);
                both.round_trip(&bytes[from >> bits << bits..end]);
            }
        }
    }
    let (pages, zstd) = all;
    assert!(pages < zstd, "{pages}, {zstd} with ZSTD");
}

/// A differential set has the first page of a database, whose header changes, and no page next to it.
#[test]
fn a_first_page_alone_says_nothing_of_the_pages_after_it() {
    let bytes = database(3, 4096, "", 4000);
    let mut both = Both {
        compressor: Compressor::new(Algorithm::Pages, Level::Low).unwrap(),
        decompressor: Decompressor::new(),
    };
    both.round_trip(&bytes[..4096]);
    let rest = &bytes[4096..4096 + (1 << 18)];
    let (pages, zstd) = (both.round_trip(rest), zstd_len(rest));
    assert!(pages * 10 < zstd * 9, "{pages}, {zstd} with ZSTD");
}

/// A header or a checksum of each page is what some extensions keep in its last bytes.
#[test]
fn bytes_that_are_reserved_at_the_end_of_pages_come_back() {
    let bytes = database(1, 4096, "", 2000);
    let mut both = Both {
        compressor: Compressor::new(Algorithm::Pages, Level::Low).unwrap(),
        decompressor: Decompressor::new(),
    };
    // The cells of a page are as if moved up, into the bytes that its free space had.
    let mut random = Random(2);
    let mut moved = bytes.clone();
    for page in moved.chunks_exact_mut(4096).skip(1) {
        let content = usize::from(u16::from_be_bytes([page[5], page[6]]));
        let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
        if !matches!(page[0], 10 | 13) || content < 8 + 2 * cells + 16 {
            continue;
        }
        page.copy_within(content.., content - 16);
        let reserved = random.bytes(16);
        page[4096 - 16..].copy_from_slice(&reserved);
        for at in std::iter::once(5).chain((0..cells).map(|i| 8 + 2 * i)) {
            let place = u16::from_be_bytes([page[at], page[at + 1]]) - 16;
            page[at..at + 2].copy_from_slice(&place.to_be_bytes());
        }
    }
    let (with, without) = (both.round_trip(&moved), both.round_trip(&bytes));
    assert!(
        with < without * 3 / 2,
        "{with} with reserved bytes, {without} without"
    );
}
