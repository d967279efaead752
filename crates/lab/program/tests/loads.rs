//! Goal: loads and backups under load count what they say, and leave nothing.
//! Method: the real program with databases of a few megabytes; SQLite judges what the load committed.
//! Not covered: rates of a real machine; one second shows nothing about them.

mod reported;

use std::fs;

use reported::{rows, run};
use tempfile::TempDir;

/// A directory that the servers' user can enter, with a short name.
fn stage() -> TempDir {
    longshore_kit::place::dir("lab")
}

#[test]
fn a_load_logs_each_transaction_as_pgbench_does() {
    let dir = stage();
    run(&dir, "lab sample tprocc --size 4M --wal app.db", 0);
    let line = "lab load sqlite:app.db --clients 2 --seconds 1 --think 1 --log load.log";
    let report = run(&dir, line, 0);
    let summary = report["summary"].as_str().unwrap();
    let count: usize = summary.split(' ').next().unwrap().parse().unwrap();
    let log = fs::read_to_string(dir.path().join("load.log")).unwrap();
    assert_eq!(log.lines().count(), count, "{summary}");
    assert!(log.lines().all(|line| line.split(' ').count() == 6));
    assert!(summary.contains("; 0 failed"), "{summary}");
    // TPC-C's condition 3.3.2.1 holds for what was committed.
    let database = rusqlite::Connection::open(dir.path().join("app.db")).unwrap();
    let wrong = "SELECT count(*) FROM district WHERE d_next_o_id - 1 <> \
                 (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)";
    let wrong: i64 = database.query_row(wrong, [], |row| row.get(0)).unwrap();
    assert_eq!(wrong, 0);
    // The log is never replaced, and no other tables are taken.
    run(&dir, line, 6);
    rusqlite::Connection::open(dir.path().join("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    run(&dir, "lab load sqlite:other.db --seconds 1", 2);
}

#[test]
fn backups_under_load_count_transactions_in_every_phase() {
    let dir = stage();
    let mut databases = vec!["sqlite"];
    match longshore_kit::installations().is_empty() {
        true => eprintln!("skipped: postgres and pgbench"),
        false => databases.extend(["postgres", "pgbench"]),
    }
    for database in databases {
        let (more, phases_expected) = match database {
            "sqlite" => ("--max-cpu 20 --think 1", 8),
            "postgres" => ("--rounds 2 --peer pg-basebackup --think 1", 7),
            _ => ("", 5),
        };
        let line = format!(
            "lab oltp --database {database} --quick --size 4M --clients 2 --phase 1 --stripes 2 --work w \
             --dir a --html p.html --markdown p.md {more}"
        );
        let report = run(&dir, &line, 0);
        let phases = rows(&report, 0);
        assert_eq!(phases.len(), phases_expected, "{database}: {phases:?}");
        let prose = report["sections"][0]["prose"][0].as_str().unwrap();
        let pauses = match database {
            "pgbench" => "no pauses",
            _ => "a pause of 1 ms after each transaction",
        };
        assert!(prose.contains(pauses), "{database}: {prose}");
        let repeats = prose.contains("in this order in the first round");
        assert_eq!(repeats, database == "postgres", "{prose}");
        for phase in &phases {
            let rate: f64 = phase[2].parse().unwrap();
            assert!(rate > 0.0, "{database}: {phase:?}");
            assert_eq!(
                phase[6] == "null",
                phase[0].starts_with("quiet"),
                "{phase:?}"
            );
        }
        // Each algorithm has a phase with the limit, and the backups' own accounts say that it was kept.
        let held = phases
            .iter()
            .filter(|p| p[0].ends_with(" (CPU at most 20 %)"));
        let held: Vec<f64> = held.map(|p| p[10].parse().unwrap()).collect();
        assert_eq!(held.len(), if database == "sqlite" { 3 } else { 0 });
        assert!(held.iter().all(|percent| *percent < 30.0), "{phases:?}");
        let summary = report["summary"].as_str().unwrap();
        assert!(summary.contains("so chance may decide"), "{summary}");
        // Trials of other programs are before the first second.
        let seconds = rows(&report, 1);
        assert!(
            seconds.iter().all(|second| second[1] != "null"),
            "{database}: {seconds:?}"
        );
        // The CPU use of the machine, and of the backups as a part of it.
        let mut used = seconds.iter().map(|second| &second[7]);
        assert!(used.all(|cpu| cpu != "null"), "{database}: {seconds:?}");
        if database != "postgres" {
            let length = phases.iter().map(|p| p[1].parse::<f64>().unwrap());
            assert_eq!(seconds.len(), length.sum::<f64>().ceil() as usize);
        } else {
            // Both rounds, and a program whose server does the work.
            let peer = phases.iter().find(|p| p[0].starts_with("pg_base"));
            let peer = peer.unwrap();
            assert!(peer[9] == "null" && peer[12].parse::<f64>().unwrap() > 1.0);
            assert!(peer[6].parse::<f64>().unwrap() >= 2.0 && peer[14].contains('–'));
        }
        let told = report["sections"][0]["prose"][1].as_str().unwrap();
        assert!(
            told.contains("of the machine that are online, here "),
            "{told}"
        );
        let parts = report["sections"].as_array().unwrap();
        let machine = parts.iter().position(|s| s["heading"] == "The machine");
        let parts = rows(&report, machine.unwrap());
        for place in ["a", "w"] {
            // The study made the directory, and knows what it is on.
            let storage = format!("Storage of {place}");
            assert!(parts.iter().any(|row| row[0] == storage), "{parts:?}");
            let names = fs::read_dir(dir.path().join(place)).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let left: Vec<_> = names
                .filter(|name| name.contains("longshore-lab"))
                .collect();
            assert!(left.is_empty(), "{database}: {left:?}");
        }
    }
}

#[test]
fn a_pause_that_a_load_does_not_have_is_refused() {
    let dir = stage();
    let line = "lab oltp --database pgbench --quick --think 1 --work w";
    let refused = run(&dir, line, 2);
    assert!(
        refused.to_string().contains("leave out --think"),
        "{refused}"
    );
    assert!(!dir.path().join("w").exists());
}

#[test]
fn warehouses_are_counted_where_there_are_any() {
    let dir = stage();
    for (line, told) in [
        ("--database pgbench --warehouses 2", "no warehouses"),
        ("--load stae --warehouses 2", "no warehouses"),
        ("--database pgbench --load stae", "a load of its own"),
        ("--database pgbench --load tprocc", "leave out --load"),
        ("--warehouses 2 --size 4M", "--size"),
    ] {
        let line = format!("lab oltp --quick {line} --work w");
        let refused = run(&dir, &line, 2);
        assert!(refused.to_string().contains(told), "{refused}");
    }
    assert!(!dir.path().join("w").exists());
}

#[test]
fn trades_are_a_load_too_by_the_tables_of_their_database() {
    let dir = stage();
    run(&dir, "lab sample stae --size 4M --wal trades.db", 0);
    let load = "lab load sqlite:trades.db --clients 2 --seconds 2 --log load.log";
    let summary = run(&dir, load, 0)["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("; 0 failed"), "{summary}");
    let log = fs::read_to_string(dir.path().join("load.log")).unwrap();
    let kinds: std::collections::BTreeSet<_> =
        log.lines().map(|line| line.split(' ').nth(3)).collect();
    assert!(kinds.len() >= 5, "{kinds:?}");
    let mut databases = vec!["sqlite"];
    match longshore_kit::installations().is_empty() {
        true => eprintln!("skipped: postgres"),
        false => databases.push("postgres"),
    }
    for database in databases {
        let line = format!(
            "lab oltp --load stae --database {database} --quick --size 4M --clients 2 --phase 1 --think 1 --work w --dir a"
        );
        let report = run(&dir, &line, 0);
        let phases = rows(&report, 0);
        assert_eq!(phases.len(), 5, "{phases:?}");
        for phase in &phases {
            assert!(
                phase[2].parse::<f64>().unwrap() > 0.0,
                "{database}: {phase:?}"
            );
        }
        let prose = report["sections"][0]["prose"][0].as_str().unwrap();
        assert!(prose.starts_with("STAE-like, "), "{prose}");
    }
}

/// Where they are installed. Elsewhere a double is told what they would be (`peers.rs`).
#[test]
fn other_programs_that_are_installed_back_up_the_same_cluster() {
    if longshore_kit::installations().is_empty() {
        eprintln!("skipped: there is no PostgreSQL");
        return;
    }
    let installed = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    for (peer, program, name) in [
        ("pgbackrest", "pgbackrest", "pgBackRest"),
        ("wal-g", "wal-g", "WAL-G"),
    ] {
        if !installed(program) {
            eprintln!("skipped: {program} is not installed");
            continue;
        }
        let dir = stage();
        let line = format!(
            "lab oltp --database postgres --quick --size 4M --clients 2 --phase 1 --work w --dir a --peer {peer}"
        );
        let phases = rows(&run(&dir, &line, 0), 0);
        let phase = phases.iter().find(|phase| phase[0].starts_with(name));
        let phase = phase.unwrap_or_else(|| panic!("{phases:?}"));
        let number = |n: usize| phase[n].parse::<f64>().unwrap();
        // Backups, CPU time, and a ratio above 1: something was compressed.
        assert!(
            number(6) >= 1.0 && number(9) > 0.0 && number(12) > 1.0,
            "{phase:?}"
        );
    }
}

#[test]
fn other_programs_are_never_left_out_silently() {
    let dir = stage();
    let line =
        "lab oltp --database sqlite --quick --size 4M --phase 1 --work w --peer pg-basebackup";
    let refused = run(&dir, line, 2).to_string();
    assert!(
        refused.contains("--peer has no effect") && refused.contains("use --database postgres"),
        "{refused}"
    );
    // It is said before anything is made.
    assert!(!dir.path().join("w").exists());
}
