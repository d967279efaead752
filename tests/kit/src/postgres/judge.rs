//! Judges PostgreSQL servers and restored clusters with PostgreSQL's own tools.

use std::path::Path;

use super::{Server, Stop};
use crate::program::{succeed, text};

/// Everything `pg_dumpall` shows, except the rows that a crash may take.
pub fn dump(server: &Server) -> String {
    let mut command = server.command("pg_dumpall");
    command.args(["--no-sync", "--no-unlogged-table-data"]);
    let output = succeed(&mut command);
    // Some versions write a random key into every dump.
    let text = text(&output.stdout);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Panics at the first line in which two dumps differ.
pub fn same(found: &str, expected: &str) {
    for (i, (a, b)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(a, b, "line {i} of the dumps");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// Checks that indexes and heaps are intact, and after a clean stop all pages too.
pub fn check(server: &Server, data: &Path) {
    succeed(server.command("pg_amcheck").args([
        "--install-missing",
        "--heapallindexed",
        "--parent-check",
        "--all",
    ]));
    server.stop(Stop::Fast);
    // Another major version's tool looks for tablespaces under its own directory name.
    let is_own = server.installation().bin_dir.join("pg_checksums").exists();
    let has_spaces = data.join("pg_tblspc").read_dir().unwrap().next().is_some();
    if is_own || !has_spaces {
        let mut checksums = server.command("pg_checksums");
        succeed(checksums.arg("--check").arg("-D").arg(data));
    }
}
