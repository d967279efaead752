//! A relation of several segment files.

use longshore_test_servers::{Stop, installations};

use crate::common::{answer, from_env};
use crate::stage::{Stage, check, end, paths, succeed};

/// Pages of a segment in all packaged servers: 1 GiB.
const SEGMENT_PAGES: u64 = 131_072;

/// Goal: what lies beyond the first GiB of a relation is backed up, verified by the right block numbers, and comes
/// back; a damaged page there is named by its file and its block in it.
/// Method: `LONGSHORE_PG_LARGE` says how many majors, newest first; each needs 6 GB. Without it, segments of four
/// pages are tried in `crates/source/tests/postgres`.
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
