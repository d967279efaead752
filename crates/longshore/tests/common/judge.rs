//! What judges a PostgreSQL server and what was restored: its own tools.

use std::path::Path;
use std::process::{Command, Output};

use longshore_test_servers::{Server, Stop};

use crate::common::text;

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

/// Indexes and heaps are whole, and so are all pages after a clean stop.
pub fn check(server: &Server, data: &Path) {
    succeed(server.command("pg_amcheck").args([
        "--install-missing",
        "--heapallindexed",
        "--parent-check",
        "--all",
    ]));
    server.stop(Stop::Fast);
    // Another major's tool looks for tablespaces by its own name.
    let is_own = server.installation().bin_dir.join("pg_checksums").exists();
    let has_spaces = data.join("pg_tblspc").read_dir().unwrap().next().is_some();
    if is_own || !has_spaces {
        let mut checksums = server.command("pg_checksums");
        succeed(checksums.arg("--check").arg("-D").arg(data));
    }
}

pub fn succeed(command: &mut Command) -> Output {
    end(command, 0)
}

/// Runs to the end; panics when the exit code is another.
pub fn end(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}
