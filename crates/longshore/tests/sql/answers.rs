//! The scripts that administrators' statements are after, the databases they are about, and what of their answers depends on
//! the moment and the machine.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql/scripts")
}

/// A directory with the databases `shop` and `stock`, and the configuration that names them.
pub fn shop() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, rows) in [("shop", 500), ("stock", 20)] {
        fill(&dir.path().join(format!("{name}.db")), rows);
    }
    let url = |name: &str| format!("url = \"sqlite:{}/{name}.db\"\n", dir.path().display());
    let config = format!(
        "[database.shop]\n{}[database.stock]\n{}",
        url("shop"),
        url("stock")
    );
    std::fs::write(dir.path().join("longshore.toml"), config).unwrap();
    dir
}

fn fill(path: &Path, rows: u64) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE ware (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        .unwrap();
    let tx = db.unchecked_transaction().unwrap();
    for i in 0..rows {
        let name = format!("ware number {i} with a name that compresses");
        tx.execute(
            "INSERT INTO ware (name, price) VALUES (?1, ?2)",
            (name, i as f64 / 7.0),
        )
        .unwrap();
    }
    tx.commit().unwrap();
}

/// How often progress is reported depends on the machine; that it ends at 100 does not.
pub fn is_some_percent(line: &str) -> bool {
    line.ends_with(" percent processed.") && !line.starts_with("100 ")
}

/// Masks times and rates, and the machine's memory and CPUs.
pub fn mask(line: &str) -> String {
    if let Some((head, _)) = line.split_once(" pages in ") {
        return format!("{head} pages in # seconds (# MB/sec).");
    }
    if let Some((head, _)) = line.split_once(" expires on ") {
        return format!("{head} expires on DATE");
    }
    for name in ["Memory limit:", "Number of data file readers:"] {
        if line.starts_with(name) {
            return format!("{name} #");
        }
    }
    let is_date = |word: &str| word.len() == 23 && word.starts_with("20") && word.contains(':');
    let cells: Vec<_> = line
        .split('|')
        .map(|c| if is_date(c) { "DATE" } else { c })
        .collect();
    cells.join("|")
}
