//! A relation of several segment files.

use longshore_kit::{Stop, installations};

use crate::common::{answer, from_env};
use crate::stage::{Stage, check, end, paths, succeed};

/// Pages per segment file in all packaged servers: 1 GiB.
const SEGMENT_PAGES: u64 = 131_072;

/// Goal: data beyond the first GiB of a relation is backed up, verified with the right block numbers, and restored; a
/// damaged page there is named by its file and its block in it.
/// Method: `LONGSHORE_PG_LARGE` gives the number of major versions, newest first; each needs 6 GB. Without it,
/// segments of four pages are tried in `crates/core/source/tests/postgres`.
#[test]
fn a_relation_beyond_its_first_segment_comes_back() {
    let majors = from_env("LONGSHORE_PG_LARGE", 0) as usize;
    for installation in installations().into_iter().rev().take(majors) {
        let stage = Stage::new(&installation, &[("max_wal_size", "1GB")]);
        let server = &stage.server;
        // A row for each page.
        let pages = SEGMENT_PAGES + 5000;
        server.psql(&format!(
            "create table big (i int, t text); alter table big alter t set storage plain;
             insert into big select i, repeat(chr(97 + i % 26), 8000) from generate_series(1, {pages}) i;
             checkpoint"
        ));
        let path = server.psql("select pg_relation_filepath('big')");
        succeed(&mut stage.backup("big.bak"));
        assert!(paths(&stage.path("big.bak")).contains(&format!("{path}.1")));
        let (target, copy) = stage.restored("big.bak");
        let found = copy.psql("select count(*), sum(i), sum(ascii(t)) from big");
        let expected = server.psql("select count(*), sum(i), sum(ascii(t)) from big");
        assert_eq!(found, expected);
        check(&copy, &target);
        std::fs::remove_dir_all(&target).unwrap();

        server.stop(Stop::Fast);
        let second = server.data_dir().join(format!("{path}.1"));
        let file = std::fs::OpenOptions::new().write(true).open(&second);
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), b"!", 7 * 8192 + 4000).unwrap();
        server.start();
        let output = end(stage.backup("bad.bak").arg("--json"), 5);
        let warnings = answer(&output)["run"]["warnings"].to_string();
        let named = format!("{}: block 7 is damaged", second.display());
        assert!(warnings.contains(&named), "{warnings}");
    }
}

/// Goal: the same at no cost: whole, as a differential, and with a damaged page in the second file.
/// Method: the first file is one hole, as a crash leaves pages that were never written; the rows follow it.
#[test]
fn a_second_segment_after_a_hole_is_restored() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let server = &stage.server;
    server.psql("create table big (i int, t text); alter table big alter t set storage plain");
    let first = server
        .data_dir()
        .join(server.psql("select pg_relation_filepath('big')"));
    server.stop(Stop::Fast);
    let file = std::fs::OpenOptions::new().write(true).open(&first);
    file.unwrap().set_len(SEGMENT_PAGES * 8192).unwrap();
    server.start();
    let insert = |from: u32, to: u32| {
        server.psql(&format!(
            "insert into big select i, repeat(chr(97 + i % 26), 8000) from generate_series({from}, {to}) i; checkpoint"
        ));
    };
    insert(1, 50);
    let second = first.with_extension("1");
    assert!(second.metadata().unwrap().len() >= 40 * 8192);
    succeed(&mut stage.backup("big.bak"));
    insert(51, 60);
    succeed(&mut stage.differing("diff.bak", "--differential", "big.bak"));
    let target = stage.tree(&["big.bak", "diff.bak"]);
    let copy = stage.serve(&target);
    let sums = "select count(*), sum(i), sum(ascii(t)) from big";
    assert_eq!(copy.psql(sums), server.psql(sums));
    check(&copy, &target);

    server.stop(Stop::Fast);
    let file = std::fs::OpenOptions::new().write(true).open(&second);
    std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), b"!", 7 * 8192 + 4000).unwrap();
    server.start();
    let output = end(stage.backup("bad.bak").arg("--json"), 5);
    let warnings = answer(&output)["run"]["warnings"].to_string();
    let named = format!("{}: block 7 is damaged", second.display());
    assert!(warnings.contains(&named), "{warnings}");
}
