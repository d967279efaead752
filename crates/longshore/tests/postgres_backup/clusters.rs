//! Goal: clusters whose tables and indexes have random forms come back from the algorithm PAGES byte by byte.
//! Method: `LONGSHORE_PG_CLUSTERS` rounds, one where it is not set, from `LONGSHORE_SEED` on, over the major versions in turn. Each has a
//! server with random tables at rest; the files of the restore are compared with the server's, and the restored server is checked with
//! PostgreSQL's tools.
//! Not covered: servers under load, which `soak.rs` has, and pages of other sizes than 8 KiB.

use std::fmt::Write;

use longshore_kit::installations;

use crate::common::{Random, expect, from_env, longshore};
use crate::differential::{assert_same, mapped};
use crate::stage::{Stage, check, succeed};

/// Types of columns: the type, a value made of the row's number `g` and its noise `r`, and the kinds of indexes that it can have.
const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("int", "g", &["btree", "hash", "brin"]),
    ("int", "(r % 3)::int", &["btree"]),
    ("int", "(r % 2000000000)::int", &["btree", "hash"]),
    ("bigint", "r", &["btree", "hash"]),
    ("bigint", "g * 1000003::bigint", &["btree", "brin"]),
    ("smallint", "(r % 32000)::smallint", &["btree"]),
    ("boolean", "r % 7 = 0", &["btree"]),
    ("\"char\"", "chr((65 + r % 26)::int)::\"char\"", &["btree"]),
    ("char(7)", "left(md5(r::text), (r % 8)::int)", &["btree"]),
    ("name", "('n' || r % 1000)::name", &["btree"]),
    ("oid", "(r % 100000)::oid", &["btree"]),
    (
        "text",
        "left(md5(r::text), (r % 33)::int)",
        &["btree", "hash"],
    ),
    (
        "text",
        "(array['new', 'paid', 'sent to the customer', ''])[1 + r % 4]",
        &["btree"],
    ),
    ("text", "repeat(md5(r::text), (r % 70)::int)", &["hash"]),
    ("text", "repeat('pack ', (r % 2000)::int)", &[]),
    ("bytea", "decode(md5(r::text), 'hex')", &["btree"]),
    ("float4", "((r % 1000) / 7.0)::float4", &["btree"]),
    ("float8", "r / 3.0::float8", &["btree"]),
    ("numeric", "(r % 1000000) / 100.0", &["btree"]),
    ("numeric(30, 10)", "r / 7.0", &["btree"]),
    (
        "date",
        "date '2020-01-01' + (r % 3000)::int",
        &["btree", "brin"],
    ),
    (
        "timestamptz",
        "timestamptz '2024-05-05' + g * interval '1 second'",
        &["btree", "brin"],
    ),
    ("interval", "(r % 100000) * interval '1 second'", &["btree"]),
    ("uuid", "md5(r::text)::uuid", &["btree", "hash"]),
    (
        "jsonb",
        "jsonb_build_object('n', g, 'name', left(md5(r::text), 8), 'list', array[r % 10, g])",
        &["gin"],
    ),
    (
        "json",
        "('{\"id\": ' || g || ', \"state\": \"open\"}')::json",
        &[],
    ),
    ("text[]", "array['a', (r % 100)::text]", &["gin", "btree"]),
    ("int[]", "array[g, null, (r % 9)::int]", &["gin"]),
    ("point", "point(g, -(r % 100))", &["gist", "spgist"]),
    (
        "inet",
        "inet '10.0.0.1' + (r % 60000)",
        &["btree", "spgist"],
    ),
    ("bit(8)", "(r % 256)::int::bit(8)", &["btree"]),
    (
        "tsvector",
        "to_tsvector('simple', md5(r::text))",
        &["gin", "gist"],
    ),
    (
        "int4range",
        "int4range((r % 100)::int, (100 + r % 100)::int)",
        &["gist", "spgist"],
    ),
    (
        "macaddr",
        "('08:00:2b:01:02:' || lpad(to_hex(r % 256), 2, '0'))::macaddr",
        &["btree"],
    ),
];

/// The statements of one table, in their order.
fn table(name: &str, random: &mut Random) -> Vec<String> {
    let mut pick = |count: u64| random.below(count);
    let columns: Vec<_> = (0..=pick(12))
        .map(|_| COLUMNS[pick(COLUMNS.len() as u64) as usize])
        .collect();
    let nulls: Vec<u64> = columns
        .iter()
        .map(|_| [0, 0, 2, 5, 50][pick(5) as usize])
        .collect();
    let mut create = format!("create table {name} (");
    let mut values = String::new();
    for (i, ((kind, value, _), nulls)) in columns.iter().zip(&nulls).enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(create, "{comma}c{i} {kind}").unwrap();
        match nulls {
            0 => write!(values, "{comma}{value}").unwrap(),
            n => write!(
                values,
                "{comma}case when (r / {}) % {n} > 0 then {value} end",
                i + 3
            )
            .unwrap(),
        }
    }
    let fill = [100, 100, 70, 30][pick(4) as usize];
    let space = if pick(4) == 0 { " tablespace far" } else { "" };
    let mut all = vec![format!("{create}) with (fillfactor = {fill}){space}")];
    let insert = |salt: u64, rows: u64| {
        format!(
            "insert into {name} select {values} from (select g, ('x' || substr(md5(g || '{name} {salt}'), 1, 15))::bit(60)::bigint as r \
             from generate_series(1, {rows}) g) s"
        )
    };
    all.push(insert(0, 1 + pick(12000)));
    for (i, (_, _, methods)) in columns.iter().enumerate() {
        if !methods.is_empty() && pick(2) == 0 {
            let method = methods[pick(methods.len() as u64) as usize];
            all.push(format!("create index on {name} using {method} (c{i})"));
        }
    }
    let mut columns_made = columns.len() as u64;
    for salt in 1..=pick(6) {
        let i = pick(columns.len() as u64);
        match pick(9) {
            0 => all.push(format!(
                "update {name} set c{i} = c{i} where ctid::text like '%{}%'",
                pick(10)
            )),
            1 => all.push(format!(
                "delete from {name} where ctid::text like '%{})'",
                pick(10)
            )),
            2 => all.push(format!("begin; {}; rollback", insert(salt, 1 + pick(2000)))),
            3 => all.push(insert(salt, 1 + pick(2000))),
            4 => {
                all.push(format!(
                    "alter table {name} add column c{columns_made} text default 'added'"
                ));
                columns_made += 1;
            }
            5 => all.push(format!("vacuum full {name}")),
            6 => all.push(format!("vacuum freeze {name}")),
            7 => all.push(format!("reindex table {name}")),
            _ => all.push(format!("vacuum {name}")),
        }
    }
    // Last, as the other statements name columns by their numbers.
    if columns.len() > 1 && pick(3) == 0 {
        all.push(format!(
            "alter table {name} drop column c{}",
            pick(columns.len() as u64)
        ));
        all.push(format!("vacuum {name}"));
    }
    all
}

#[test]
fn random_clusters_come_back_from_columns() {
    let installations = installations();
    if installations.is_empty() {
        return;
    }
    let first = from_env("LONGSHORE_SEED", 6);
    for seed in first..first + from_env("LONGSHORE_PG_CLUSTERS", 1) {
        let installation = &installations[(seed % installations.len() as u64) as usize];
        let random = &mut Random(seed);
        let stage = Stage::new(installation, &[]);
        let server = &stage.server;
        let space = stage.path("space");
        std::fs::create_dir(&space).unwrap();
        server.user().own(&space);
        server.psql(&format!(
            "create tablespace far location '{}'",
            space.display()
        ));
        let count = 2 + random.below(6);
        println!(
            "seed {seed}, PostgreSQL {}: {count} tables",
            installation.major
        );
        for number in 0..count {
            for statement in table(&format!("t{number}"), random) {
                server.psql(&statement);
            }
        }
        // Later reads change no page then.
        server.psql("vacuum");
        let level = ["LOW", "MEDIUM"][random.below(2) as usize];
        let mut backup = longshore([
            "backup",
            "--verify",
            "--algorithm",
            "PAGES",
            "--level",
            level,
        ]);
        backup
            .arg(server.url())
            .arg("--to")
            .arg(stage.path("columns"));
        succeed(&mut backup);
        expect(0, ["verify".as_ref(), stage.path("columns").as_os_str()]);
        let target = mapped(&stage, &["columns"]);
        assert_same(&stage, &target);
        check(&stage.serve(&target), &target);
    }
}
