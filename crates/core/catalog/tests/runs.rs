//! Goal: runs of commands are shown as they were recorded, newest first; they do not grow for ever, go when they are to be
//! forgotten, and reach catalogs of the schema before.
//! Method: records go into a catalog in a temporary directory, and its queries return them; plain SQLite counts and makes
//! older and damaged catalogs.
//! Not covered: which commands record what (`longshore/tests/cli/runs.rs`).

mod common;

use std::sync::Arc;

use common::{NEW_YEAR_US, all, backup, count, new, open, rows, run, sqlite};
use longshore_catalog::{Error, Forget, HistoryQuery, RUNS_MAX, RunOutcome, RunRecord, RunTask};

#[test]
fn a_run_is_shown_as_it_was_recorded() {
    let (_dir, path, catalog) = new();
    let set = backup(1).header.set;
    let failed = RunRecord {
        label: Some("20260101T000000Z-full-00000001".into()),
        set: Some(set),
        outcome: RunOutcome::Failed,
        exit_code: 4,
        number: Some(3201),
        bytes: Some(u64::MAX),
        message: Some("ü".repeat(2000)),
        ..run(1)
    };
    catalog.record_run(&failed).unwrap();
    let unnamed = RunRecord {
        task: RunTask::Verify,
        database: None,
        target: None,
        devices: vec!["/b/a b.bak".into(), "s3://b/c".into()],
        time_zone: 127,
        ..run(2)
    };
    catalog.record_run(&unnamed).unwrap();

    let found = catalog.runs(&all()).unwrap();
    assert_eq!(found.len(), 2);
    let row = &found[1];
    assert_eq!(
        (row.task.as_str(), row.outcome.as_str(), row.exit_code),
        ("drill", "failed", 4)
    );
    assert_eq!(
        (row.database.as_deref(), row.target.as_deref(), row.set),
        (Some("app"), Some("nightly"), Some(set))
    );
    assert_eq!(row.label, failed.label);
    assert_eq!((row.number, row.bytes), (Some(3201), Some(i64::MAX as u64)));
    assert_eq!(row.message.as_deref(), Some("ü".repeat(1000).as_str()));
    assert_eq!(row.start.as_deref(), Some("2026-01-01T01:01:00.000+01:00"));
    assert_eq!(row.finish.as_deref(), Some("2026-01-01T01:01:01.500+01:00"));
    assert_eq!(
        (row.start_us, row.finish_us, row.seconds),
        (failed.start_us, failed.finish_us, 1.5)
    );
    let row = &found[0];
    assert_eq!(row.devices, unnamed.devices);
    assert_eq!(
        (&row.database, &row.target, &row.message),
        (&None, &None, &None)
    );
    assert_eq!((row.number, row.bytes, row.set), (None, None, None));
    assert_eq!(row.finish.as_deref(), Some("2026-01-01T00:02:01.500Z"));
    let local = "SELECT finish_date FROM longshore_run ORDER BY 1";
    assert_eq!(
        rows(&sqlite(&path), local),
        ["2026-01-01T00:02:01.500", "2026-01-01T01:01:01.500"]
    );
    catalog.check().unwrap();
}

#[test]
fn runs_are_newest_first_and_can_be_narrowed() {
    let (_dir, _, catalog) = new();
    for n in [3, 1, 4, 2] {
        let mut one = run(n);
        if n % 2 == 0 {
            one.database = Some("other".into());
        }
        catalog.record_run(&one).unwrap();
    }
    let starts = |query: &HistoryQuery| -> Vec<_> {
        let rows = catalog.runs(query).unwrap();
        rows.into_iter().map(|row| row.start_us).collect()
    };
    let of = |numbers: &[u64]| -> Vec<_> { numbers.iter().map(|n| run(*n).start_us).collect() };
    assert_eq!(starts(&all()), of(&[4, 3, 2, 1]));
    let other = HistoryQuery {
        database: Some("other".into()),
        limit: None,
    };
    assert_eq!(starts(&other), of(&[4, 2]));
    let newest = HistoryQuery {
        limit: Some(1),
        ..other
    };
    assert_eq!(starts(&newest), of(&[4]));
}

#[test]
fn the_oldest_runs_of_a_task_make_room_for_new_ones_and_other_tasks_stay() {
    let (_dir, path, catalog) = new();
    catalog.record_run(&run(1)).unwrap();
    let copies = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {RUNS_MAX})
         INSERT INTO longshore_run (task, start_us, finish_us, time_zone, outcome, exit_code)
         SELECT 'copy', {NEW_YEAR_US} + i, {NEW_YEAR_US} + i, 0, 'ok', 0 FROM n"
    );
    sqlite(&path).execute_batch(&copies).unwrap();
    for n in 2..=4 {
        let copy = RunRecord {
            task: RunTask::Copy,
            ..run(n)
        };
        catalog.record_run(&copy).unwrap();
    }
    let db = sqlite(&path);
    let kept = "SELECT count(*) FROM longshore_run WHERE task = 'copy'";
    assert_eq!(count(&db, kept), u64::from(RUNS_MAX));
    let oldest = "SELECT min(finish_us) FROM longshore_run WHERE task = 'copy'";
    assert_eq!(count(&db, oldest), NEW_YEAR_US as u64 + 4);
    assert_eq!(catalog.runs(&all()).unwrap().len() as u32, RUNS_MAX + 1);
}

#[test]
fn a_catalog_of_the_schema_before_gets_the_table_and_keeps_its_rows() {
    let (_dir, path, catalog) = new();
    catalog.record_backup(&backup(1)).unwrap();
    drop(catalog);
    let older = sqlite(&path);
    older
        .execute_batch(
            "DROP TABLE longshore_run; DROP TABLE longshore_credential; DROP TABLE longshore_index;
             DROP TABLE longshore_master_key; DROP TABLE longshore_certificate;
             DROP TABLE longshore_object; DROP TABLE longshore_row; PRAGMA user_version = 5",
        )
        .unwrap();
    drop(older);
    let catalog = open(&path);
    assert_eq!(rows(&sqlite(&path), "PRAGMA user_version"), ["10"]);
    assert_eq!(catalog.history(&all()).unwrap().len(), 1);
    assert_eq!(catalog.runs(&all()).unwrap(), []);
    catalog.record_run(&run(1)).unwrap();
    assert_eq!(catalog.runs(&all()).unwrap().len(), 1);
    catalog.check().unwrap();
}

/// Runs by their number, as plain SQLite finds them.
fn numbers(path: &std::path::Path) -> Vec<String> {
    let minutes =
        format!("SELECT (start_us - {NEW_YEAR_US}) / 60000000 FROM longshore_run ORDER BY 1");
    rows(&sqlite(path), &minutes)
}

#[test]
fn runs_are_forgotten_by_their_end_or_their_database_whatever_stays_of_the_sets() {
    let (_dir, path, mut catalog) = new();
    for (n, name) in [(1, "App"), (2, "app"), (3, "app"), (4, "Other")] {
        let one = RunRecord {
            database: Some(name.into()),
            // Its local time is two hours behind, which is the time that counts.
            time_zone: -8,
            ..run(n)
        };
        catalog.record_run(&one).unwrap();
    }
    let nameless = RunRecord {
        database: None,
        ..run(9)
    };
    catalog.record_run(&nameless).unwrap();
    // A set of the same time and database, which its own end keeps.
    catalog.record_backup(&backup(100)).unwrap();
    let mut forget = |what| catalog.forget(what, &Arc::default()).unwrap();
    let gone = forget(Forget::EndedBefore("2025-12-31T22:01:01.500"));
    assert_eq!((gone.sets, gone.runs), (0, 0));
    let gone = forget(Forget::EndedBefore("2025-12-31T22:02:00.000"));
    assert_eq!((gone.sets, gone.runs), (0, 1));
    assert_eq!(numbers(&path), ["2", "3", "4", "9"]);
    // Nobody is called so; one differs in case.
    assert_eq!(forget(Forget::Database("other")).runs, 1);
    let gone = forget(Forget::Database("app"));
    assert_eq!((gone.sets, gone.runs), (1, 2));
    assert_eq!(numbers(&path), ["9"]);
    assert_eq!(
        forget(Forget::EndedBefore("2027-01-01T00:00:00.000")).runs,
        1
    );
    catalog.check().unwrap();
}

#[test]
fn a_damaged_run_is_damage_of_the_catalog() {
    let (_dir, path, catalog) = new();
    catalog.record_run(&run(1)).unwrap();
    let spoil = |what: &str| {
        let sql = format!("UPDATE longshore_run SET {what}");
        sqlite(&path).execute_batch(&sql).unwrap();
    };
    catalog.check().unwrap();
    for (spoilt, as_before) in [
        ("finish_us = 'late'", "finish_us = 5"),
        ("backup_set_uuid = 'no uuid'", "backup_set_uuid = NULL"),
        ("exit_code = 1000", "exit_code = 0"),
    ] {
        spoil(spoilt);
        let refused = catalog.check().unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
        spoil(as_before);
        catalog.check().unwrap();
    }
}
