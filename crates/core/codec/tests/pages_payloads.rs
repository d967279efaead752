//! Goal: pages come back from PAGES payloads, real ones and damaged ones, whatever layout is named; and no payload, however
//! damaged, makes the decoder panic, or decode to other bytes than it would alone.
//! Method: pages from seeds and of real servers; one compressor and one decompressor do all of a test, so that what stays in
//! them matters if it can. PAGES_MUTATIONS asks for more damaged payloads than `make test`.
//! Not covered: that kernels agree (`src/pages/tests.rs`), memory (`pages_memory.rs`).

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use longshore_codec::{
    Algorithm, Column, Compressor, Decompressor, Layout, Level, Part, payload_bound,
};
use longshore_kit::pages::{Attributes, Buffer, damage};
use longshore_kit::random::from_env;
use longshore_kit::{Installation, Options, Random, Server, Stop, cells, installations};
use proptest::prelude::*;

fn layout(attributes: &Attributes) -> Layout {
    let column = |(len, align): &(i16, u8)| Column {
        len: *len,
        align: *align,
    };
    Layout::new(attributes.iter().map(column).collect::<Vec<_>>()).unwrap()
}

/// A compressor and a decompressor that remember.
struct Both {
    compressor: Compressor,
    decompressor: Decompressor,
}

impl Both {
    fn new(level: Level) -> Both {
        Both {
            compressor: Compressor::new(Algorithm::Pages, level).unwrap(),
            decompressor: Decompressor::new(),
        }
    }

    fn payload(&mut self, plain: &[u8], parts: &[(usize, Option<Attributes>)]) -> Vec<u8> {
        let layouts: Vec<_> = parts.iter().map(|(_, a)| a.as_ref().map(layout)).collect();
        let lens = parts.iter().map(|(len, _)| *len);
        let parts: Vec<_> = lens
            .zip(&layouts)
            .map(|(len, layout)| Part {
                len,
                layout: layout.as_ref(),
            })
            .collect();
        let mut out = vec![0xee; payload_bound(Algorithm::Pages, plain.len())];
        let encoded = self.compressor.compress_parts(plain, &parts, &mut out);
        out.truncate(encoded.len);
        out
    }

    fn round_trip(&mut self, plain: &[u8], parts: &[(usize, Option<Attributes>)]) -> usize {
        let payload = self.payload(plain, parts);
        let mut back = vec![0x5a; plain.len()];
        let decompressor = &mut self.decompressor;
        let result = decompressor.decompress(Algorithm::Pages, &payload, &mut back);
        assert_eq!(result, Ok(()));
        assert!(back == plain, "other bytes come back");
        payload.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_pages_come_back_with_any_layouts(seed in any::<u64>(), level in 0..3_usize, most in 1..200_000_usize) {
        let mut both = Both::new([Level::Low, Level::Medium, Level::High][level]);
        let mut random = Random(seed);
        let mut buffer = Buffer::new(&mut random, most);
        for _ in 0..3 {
            both.round_trip(&buffer.bytes, &buffer.parts);
            damage(&mut random, &mut buffer.bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_pages_of_sqlite_come_back(seed in any::<u64>(), level in 0..3_usize, most in 1..200_000_usize) {
        let mut both = Both::new([Level::Low, Level::Medium, Level::High][level]);
        let mut random = Random(seed);
        let mut buffer = cells::buffer(&mut random, most);
        for _ in 0..3 {
            both.round_trip(&buffer.bytes, &buffer.parts);
            cells::damage(&mut random, &mut buffer.bytes);
        }
    }
}

/// Layouts by file number of a database, from its catalog.
fn layouts_of(server: &Server) -> Vec<(String, Attributes)> {
    let rows = server.psql(
        "select pg_relation_filepath(c.oid), string_agg(a.attlen || ':' || case a.attalign when 'c' then 1 when 's' then 2 \
         when 'i' then 4 else 8 end, ' ' order by a.attnum) \
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 \
         where c.relkind in ('r', 't', 'm') group by c.oid",
    );
    let attribute = |text: &str| {
        let (len, align) = text.split_once(':').unwrap();
        (len.parse().unwrap(), align.parse().unwrap())
    };
    rows.lines()
        .map(|row| {
            let (path, attributes) = row.split_once('|').unwrap();
            let attributes = attributes.split(' ').map(attribute).collect();
            (path.to_string(), attributes)
        })
        .collect()
}

const TABLES: &str = "
    create table plain (a int, b bigint, c smallint, d boolean, e \"char\", f char(7), g text, h float8, i date, m macaddr, n name);
    insert into plain select g, g * 1000003::bigint, g % 32000, g % 3 = 0, 'x', g::text, md5(g::text), g / 7.0,
      '2020-01-01'::date + g, '08:00:2b:01:02:03', 'n' || g from generate_series(1, 3000) g;
    create table nulls as select g as a, case when g % 3 = 0 then g end as b, case when g % 5 > 0 then md5(g::text) end as c,
      case when g % 7 = 0 then g::numeric / 3 end as d from generate_series(1, 3000) g;
    create table changed (a int, b text, c int);
    insert into changed select g, 'row ' || g, g from generate_series(1, 1000) g;
    alter table changed drop column b;
    alter table changed add column d bigint default 77, add column e text;
    insert into changed select g, g, g, repeat('e', g % 190) from generate_series(1, 1000) g;
    delete from changed where a % 7 = 0;
    create table long (id int primary key, body text, packed text);
    insert into long select g, string_agg(md5((g * 1000 + s)::text), ''), repeat('pack ', 3000)
      from generate_series(1, 20) g, generate_series(1, 200) s group by g;
    create table hot (id int primary key, n int, pad text) with (fillfactor = 70);
    insert into hot select g, g % 9, repeat('p', 50) from generate_series(1, 2000) g;
    create index on hot (n); create index on hot (pad, n);
    update hot set n = n + 1; update hot set n = n + 1 where id % 2 = 0; delete from hot where id % 11 = 0;
    vacuum; checkpoint";

fn real_pages_come_back(installation: &Installation) {
    let server = Server::create(installation, Options::default());
    server.start();
    TABLES
        .split_inclusive(";\n")
        .for_each(|sql| drop(server.psql(sql)));
    let layouts = layouts_of(&server);
    server.stop(Stop::Fast);
    let database = layouts[0].0.rsplit_once('/').unwrap().0;
    let mut both = Both::new(Level::Low);
    let mut random = Random(16);
    let (mut plain_len, mut len, mut apart) = (0, 0, 0);
    for file in std::fs::read_dir(server.data_dir().join(database)).unwrap() {
        let path = file.unwrap().path();
        let mut plain = std::fs::read(&path).unwrap();
        plain.truncate(1 << 20);
        if plain.is_empty() {
            continue;
        }
        let known = layouts.iter().find(|(file, _)| path.ends_with(file));
        let known = known.map(|(_, attributes)| attributes.clone());
        let with = both.round_trip(&plain, &[(plain.len(), known.clone())]);
        let without = both.round_trip(&plain, &[(plain.len(), None)]);
        apart += usize::from(with * 10 < without * 9);
        (plain_len, len) = (plain_len + plain.len(), len + with);
        let (_, other) = &layouts[random.below(layouts.len())];
        both.round_trip(&plain, &[(plain.len(), Some(other.clone()))]);
        for _ in 0..6 {
            let from = random.below(plain.len());
            let end = (from + 1 + random.below(24_000)).min(plain.len());
            let from = if random.one_in(2) {
                from / 8192 * 8192
            } else {
                from
            };
            let mut piece = plain[from..end].to_vec();
            damage(&mut random, &mut piece);
            both.round_trip(&piece, &[(piece.len(), known.clone())]);
        }
    }
    assert!(apart > 5, "layouts help {apart} files only");
    assert!(len * 4 < plain_len, "{plain_len} became {len}");
}

#[test]
fn pages_of_real_servers_come_back_damaged_or_not() {
    installations().iter().for_each(real_pages_come_back);
}

/// Changes a payload behind its frame's head, and lets the head say its length.
fn spoil(random: &mut Random, payload: &mut Vec<u8>) {
    const HEAD: usize = 9;
    for _ in 0..1 + random.below(3) {
        if payload.len() <= HEAD + 1 {
            break;
        }
        // The first bytes are the group's numbers and short streams.
        let most = if random.one_in(2) {
            payload.len()
        } else {
            payload.len().min(HEAD + 80)
        };
        let at = HEAD + random.below(most - HEAD);
        match random.below(9) {
            0 => payload[at] ^= 1 << random.below(8),
            1 => payload[at] = random.next() as u8,
            2 => payload[at] = [0, 1, 2, 3, 4, 5, 6, 7, 0x7f, 0x80, 0xff][random.below(11)],
            3 => payload[at] = payload[at].wrapping_add(1),
            4 => payload[at] = payload[at].wrapping_sub(1),
            5 => drop(payload.remove(at)),
            6 => payload.insert(at, [0, 1, 2, 0x80, 0xff][random.below(5)]),
            7 => {
                let len = 1 + random.below(40.min(payload.len() - at));
                let from = HEAD + random.below(payload.len() - HEAD - len + 1);
                payload.copy_within(from..from + len, at);
            }
            _ => payload.truncate(at),
        }
    }
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
}

#[test]
fn damaged_payloads_are_refused_or_decode_as_if_they_came_first() {
    let mutations = from_env("PAGES_MUTATIONS", 100_000);
    let mut random = Random(from_env("PAGES_SEED", 1));
    let mut both = Both::new(Level::Low);
    let (mut taken, mut done) = (0, 0);
    while done < mutations {
        let most = 1 + random.below(20_000);
        let Buffer { bytes, parts } = match random.one_in(2) {
            true => cells::buffer(&mut random, most),
            false => Buffer::new(&mut random, most),
        };
        let level = [Level::Low, Level::High][random.below(2)];
        both.compressor = Compressor::new(Algorithm::Pages, level).unwrap();
        let payload = both.payload(&bytes, &parts);
        let (mut back, mut alone) = (vec![0; bytes.len()], vec![0; bytes.len()]);
        for i in 0..400 {
            done += 1;
            let mut spoiled = payload.clone();
            spoil(&mut random, &mut spoiled);
            let decompressor = AssertUnwindSafe(&mut both.decompressor);
            let place = AssertUnwindSafe(&mut back);
            let result = catch_unwind(|| {
                let (AssertUnwindSafe(decompressor), AssertUnwindSafe(place)) =
                    (decompressor, place);
                decompressor.decompress(Algorithm::Pages, &spoiled, place)
            });
            let result =
                result.unwrap_or_else(|_| panic!("{:02x?}, {} bytes", spoiled, bytes.len()));
            taken += usize::from(result.is_ok());
            if result.is_ok() || i % 50 == 0 {
                let again = Decompressor::new().decompress(Algorithm::Pages, &spoiled, &mut alone);
                assert_eq!(result, again);
                assert!(result.is_err() || back == alone, "{spoiled:02x?}");
            }
        }
    }
    assert!(taken > 0 && taken < done as usize / 2, "{taken} of {done}");
}

/// A payload of one group of one page of zeros, with a column whose lengths and values are as given.
fn one_column(values: &[u8]) -> Vec<u8> {
    // Pages of 8 KiB, one of them, one column with lengths of its own, aligned to four.
    let mut payload = vec![0x5c, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 1, 13, 1, 1, 2];
    // One form: zeros. Then streams and columns that are empty.
    payload.extend([1, 1, 1]);
    payload.extend([0; 22]);
    payload.extend(values);
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
    payload
}

#[test]
fn columns_without_values_are_taken_in_their_form_only() {
    for (values, is_good) in [
        (&[0, 0, 0][..], true),
        // Planes of no bytes, and of one.
        (&[0, 0, 2, 0], false),
        (&[0, 0, 2, 1, 0], true),
        (&[0, 0, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0], false),
        // Lists with and without values.
        (&[0, 0, 3, 0, 0, 0], true),
        (&[0, 0, 3, 1, 1, 65, 0, 0], true),
        (&[0, 0, 3, 1, 1, 65, 1, 1, 0, 0], false),
        (&[0, 0, 4], false),
        (&[0, 0], false),
    ] {
        let payload = one_column(values);
        let mut back = vec![1; 8192];
        let result = Decompressor::new().decompress(Algorithm::Pages, &payload, &mut back);
        assert_eq!(result.is_ok(), is_good, "{values:?}: {result:?}");
        assert!(!is_good || back == vec![0; 8192]);
    }
}

#[test]
fn groups_of_kinds_that_are_not_known_are_refused_by_name() {
    let known = |kind: u8| kind == 0 || (12..=15).contains(&kind) || (41..=48).contains(&kind);
    for kind in (0..=255).filter(|kind| !known(*kind)) {
        let payload = [0x5c, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, kind, 1, 0];
        let result = Decompressor::new().decompress(Algorithm::Pages, &payload, &mut [0; 512]);
        let error = result.unwrap_err().to_string();
        assert!(error.contains("kind that is not known"), "{kind}: {error}");
    }
}

/// A group of one page of SQLite of 512 bytes, and what follows its number of pages.
fn sqlite_group(bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x5c, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 1, 41, 1];
    payload.extend(bytes);
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
    payload
}

#[test]
fn classes_of_pages_are_taken_within_their_limits_only() {
    // One class of tables with a column, and the page's form: zeros.
    let empty = [0; 12];
    for (start, rest, is_good) in [
        (&[1, 13, 1, 1, 1, 1, 0, 0][..], &empty[..11], true),
        (&[1, 13, 1, 1, 1, 1, 0, 0], &empty, false),
        (&[1, 13, 1, 1, 1, 1, 0, 0], &empty[..10], false),
        (&[1, 10, 1, 1, 1, 1, 0, 0], &empty[..9], true),
        (&[0, 1, 1, 1, 0, 0], &[], true),
        // A type that is not known, too many columns, too many classes.
        (&[1, 5, 1, 1, 1, 1, 0, 0], &empty[..11], false),
        (&[1, 13, 127, 1, 1, 1, 0, 0], &empty[..11], false),
        (&[65, 13, 1, 1, 1, 1, 0, 0], &empty[..11], false),
        // Forms that are not known, and one without a class.
        (&[0, 1, 1, 3, 0, 0], &[], false),
        (&[0, 1, 1, 9, 0, 0], &[], false),
        (&[0, 1, 1, 34, 0, 0], &[], false),
        (&[0, 1, 1, 2, 1, 1, 0, 0], &[], false),
        // A number of a page that has none.
        (&[1, 13, 1, 1, 1, 1, 1, 1, 0, 0], &empty[..11], false),
    ] {
        let payload = sqlite_group(&[start, rest].concat());
        let mut back = vec![1; 512];
        let result = Decompressor::new().decompress(Algorithm::Pages, &payload, &mut back);
        assert_eq!(result.is_ok(), is_good, "{start:?} {rest:?}: {result:?}");
        assert!(!is_good || back == vec![0; 512]);
    }
}
