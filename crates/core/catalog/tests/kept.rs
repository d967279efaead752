//! Goal: the catalog keeps the state of a T-SQL server: devices, restored databases, waiting restores, and log chains;
//! and forgetting removes only what nothing else needs.
//! Method: a catalog is written, opened again and queried; rows are also counted by plain SQLite.

mod common;

use common::{backup, open};
use std::sync::Arc;

use longshore_catalog::{
    BackupRecord, ChainPlace, Forget, LogChain, RemovalResult, RestoreSequence, RestoredDatabase,
};
use longshore_media::device::DeviceClass;
use longshore_media::{BackupType, LogEnd, LogStart};
use uuid::Uuid;

fn sequence(database: &str) -> RestoreSequence {
    RestoreSequence {
        database: database.into(),
        target: "/srv/a b/it's".into(),
        is_ready: true,
        system: u64::MAX - 1,
        timeline: u32::MAX,
        consistent_lsn: u64::MAX,
        next_lsn: 1 << 63,
        reached_us: -5,
        stop_at_us: Some(7),
        log_count: 3,
        sets: vec![Uuid::from_u128(2), Uuid::from_u128(1)],
        devices: vec!["/b/2.bak".into(), "/b/1.bak".into()],
    }
}

#[test]
fn records_of_the_catalog_outlive_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    assert!(catalog.add_device("Nightly", "/b/nightly.bak").unwrap());
    assert!(!catalog.add_device("NIGHTLY", "/b/other.bak").unwrap());
    let copy = RestoredDatabase {
        name: "copy".into(),
        source_kind: 2,
        path: "/srv/copy.db".into(),
    };
    catalog.keep_database(&copy).unwrap();
    let first = sequence("main");
    catalog.keep_sequence(&first).unwrap();
    catalog.keep_sequence(&sequence("other")).unwrap();
    let later = RestoreSequence {
        is_ready: false,
        stop_at_us: None,
        sets: vec![Uuid::from_u128(9)],
        devices: Vec::new(),
        ..first
    };
    catalog.keep_sequence(&later).unwrap();
    drop(catalog);

    let catalog = open(&path);
    catalog.check().unwrap();
    let devices = catalog.devices().unwrap();
    assert_eq!(devices, [("Nightly".into(), "/b/nightly.bak".into())]);
    assert_eq!(catalog.restored_databases().unwrap(), [copy]);
    assert_eq!(catalog.sequences().unwrap(), [later, sequence("other")]);

    let main = RestoredDatabase {
        name: "main".into(),
        source_kind: 3,
        path: "/srv/main".into(),
    };
    catalog.end_sequence("main", Some(&main)).unwrap();
    assert_eq!(catalog.sequences().unwrap(), [sequence("other")]);
    assert_eq!(catalog.restored_databases().unwrap().len(), 2);
    catalog.forget_database("main").unwrap();
    let left = catalog.restored_databases().unwrap();
    assert!(left.len() == 1 && left[0].name != "main", "{left:?}");
    assert!(catalog.drop_device("nightly").unwrap());
    assert!(!catalog.drop_device("nightly").unwrap());
}

/// A set of a cluster, the n-th that was made.
fn of_cluster(
    n: u64,
    kind: BackupType,
    log: (u64, u32, u64, u64),
    copy_only: bool,
) -> BackupRecord {
    let mut record = backup(n);
    let (system, timeline, first_lsn, last_lsn) = log;
    record.header.source_kind = 3;
    record.header.backup_type = kind;
    record.header.copy_only = copy_only;
    record.header.log = LogStart {
        system,
        timeline,
        first_lsn,
    };
    record.totals.log = LogEnd {
        timeline: timeline + 1,
        last_lsn,
        included: true,
    };
    record
}

#[test]
fn a_log_chain_is_at_its_newest_sets() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(&dir.path().join("catalog.db"));
    // A set without WAL contributes no place.
    catalog.record_backup(&backup(1)).unwrap();
    assert_eq!(catalog.log_chain("app").unwrap(), LogChain::default());
    let system = 7_575_086_021_411_873_849;
    for (n, kind, first, last, copy_only) in [
        (2, BackupType::Database, 100, 150, false),
        (3, BackupType::Log, 100, 200, false),
        (4, BackupType::Database, 250, 260, false),
        (5, BackupType::Differential, 300, 310, false),
        (6, BackupType::Database, 320, 330, true),
        (7, BackupType::Log, 200, 400, true),
    ] {
        let record = of_cluster(n, kind, (system, 4, first, last), copy_only);
        catalog.record_backup(&record).unwrap();
    }
    // A set on NUL cannot be restored.
    for (n, kind) in [(8, BackupType::Database), (9, BackupType::Log)] {
        let mut record = of_cluster(n, kind, (system, 4, 500, 600), false);
        for family in &mut record.media.families {
            (family.uuid, family.device) = (None, "NUL".into());
            family.class = DeviceClass::Nul;
        }
        catalog.record_backup(&record).unwrap();
    }
    let place = |timeline, lsn| ChainPlace {
        system,
        timeline,
        lsn,
        lineage: Vec::new(),
    };
    let expected = LogChain {
        logs: vec![place(5, 200)],
        fulls: vec![place(4, 250)],
        is_set_back: false,
    };
    assert_eq!(catalog.log_chain("app").unwrap(), expected);
    assert_eq!(catalog.log_chain("App").unwrap(), LogChain::default());
    // Every full backup since the last log backup, the oldest first; at least the last one.
    let add = |n, kind, first, last| {
        let record = of_cluster(n, kind, (system, 4, first, last), false);
        catalog.record_backup(&record).unwrap();
        catalog.log_chain("app").unwrap()
    };
    let fulls = add(10, BackupType::Database, 700, 710).fulls;
    assert_eq!(fulls, [place(4, 250), place(4, 700)]);
    let after = add(11, BackupType::Log, 200, 800);
    assert_eq!(
        (after.logs, after.fulls),
        (vec![place(5, 800), place(5, 200)], vec![place(4, 700)])
    );
    assert!(!after.is_set_back);
    // Complete after that log backup, but with an earlier LSN: it belongs to another future.
    let back = add(12, BackupType::Database, 740, 750);
    assert!(back.is_set_back);
    assert_eq!(back.fulls, [place(4, 740)]);
    assert!(!add(13, BackupType::Log, 740, 820).is_set_back);
}

#[test]
fn a_log_chain_begins_with_the_first_full_backup() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(&dir.path().join("catalog.db"));
    for (n, first) in [(1, 100), (2, 200), (3, 300)] {
        let log = (7, 1, first, first + 50);
        let record = of_cluster(n, BackupType::Database, log, false);
        catalog.record_backup(&record).unwrap();
    }
    let chain = catalog.log_chain("app").unwrap();
    let lsns: Vec<_> = chain.fulls.iter().map(|place| place.lsn).collect();
    assert_eq!((chain.logs, lsns), (vec![], vec![100, 200, 300]));
}

#[test]
fn the_limit_that_held_a_run_is_kept_and_unknown_of_a_set_that_was_relearned() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(&dir.path().join("catalog.db"));
    let mut record = backup(1);
    catalog.record_backup(&record).unwrap();
    record = backup(2);
    record.limit = Some("target".into());
    catalog.record_backup(&record).unwrap();
    let rows = catalog.history(&Default::default()).unwrap();
    let limits: Vec<_> = rows.iter().map(|row| row.limit.as_deref()).collect();
    assert_eq!(limits, [Some("target"), None]);
}

#[test]
fn a_catalog_from_before_gets_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    open(&path).record_backup(&backup(1)).unwrap();
    let older = rusqlite::Connection::open(&path).unwrap();
    older
        .execute_batch(
            "DROP TABLE restoresequencedevice; DROP TABLE restoresequenceset; DROP TABLE restoresequence;
             DROP TABLE restoreddatabase; DROP TABLE backupdevice; DROP INDEX backupset_by_media;
             DROP INDEX backupset_by_finish; DROP INDEX backupset_by_type; DROP INDEX restorehistory_by_set;
             DROP INDEX restorehistory_by_time; ALTER TABLE backupset DROP COLUMN longshore_lineage;
             ALTER TABLE backupset DROP COLUMN longshore_limit; DROP TABLE longshore_run;
             DROP TABLE longshore_credential; DROP TABLE longshore_master_key; DROP TABLE longshore_certificate;
             DROP TABLE longshore_index; DROP TABLE longshore_object; DROP TABLE longshore_row;
             PRAGMA user_version = 2",
        )
        .unwrap();
    drop(older);
    let catalog = open(&path);
    catalog.check().unwrap();
    catalog.keep_sequence(&sequence("main")).unwrap();
    assert_eq!(catalog.sequences().unwrap(), [sequence("main")]);
    assert_eq!(catalog.history(&Default::default()).unwrap().len(), 1);
}

/// `(sets, files, restores, media, families)` as counted by plain SQLite.
fn counts(path: &std::path::Path) -> [i64; 5] {
    let db = rusqlite::Connection::open(path).unwrap();
    let count = |table| {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    [
        "backupset",
        "backupfile",
        "restorehistory",
        "backupmediaset",
        "backupmediafamily",
    ]
    .map(count)
}

fn is_consistent(path: &std::path::Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    let mut broken = db.prepare("PRAGMA foreign_key_check").unwrap();
    assert!(!broken.exists([]).unwrap());
}

#[test]
fn a_forgotten_set_is_removed_with_its_rows_and_media_with_their_last_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let mut catalog = open(&path);
    // Sets end two seconds after the n-th minute of the year; 2 and 3 share media.
    for n in 1..=4 {
        let mut record = backup(n);
        record.header.database = ["App", "app", "app", "other"][n as usize - 1].into();
        if n == 3 {
            record.media = backup(2).media;
        }
        catalog.record_backup(&record).unwrap();
        if n % 2 == 0 {
            catalog.record_restore(&common::restore(record)).unwrap();
        }
    }
    assert_eq!(counts(&path), [4, 12, 2, 3, 6]);
    let mut before = |at| {
        catalog
            .forget(Forget::EndedBefore(at), &Arc::default())
            .unwrap()
    };
    let none = RemovalResult::default();
    assert_eq!(before("2026-01-01T00:01:02.000"), none);
    assert_eq!(before("2026-01-01T00:02:02.001").sets, 2);
    // The media of 2 also hold 3.
    assert_eq!(counts(&path), [2, 6, 1, 2, 4]);
    is_consistent(&path);
    let mut of = |name| {
        catalog
            .forget(Forget::Database(name), &Arc::default())
            .unwrap()
    };
    assert_eq!(of("nobody"), none);
    let gone = of("OTHER");
    assert_eq!((gone.sets, gone.restores), (1, 1));
    assert_eq!(of("app").sets, 1);
    assert_eq!(counts(&path), [0; 5]);
    is_consistent(&path);
    catalog.check().unwrap();
    // It can be relearned.
    assert!(catalog.record_backup(&backup(2)).unwrap());
}

#[test]
fn of_two_names_that_differ_in_case_only_the_one_that_was_meant_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(&dir.path().join("catalog.db"));
    for n in 1..=2 {
        let mut record = backup(n);
        record.header.database = ["App", "app"][n as usize - 1].into();
        catalog.record_backup(&record).unwrap();
    }
    let app = Forget::Database("app");
    assert_eq!(catalog.forget(app, &Arc::default()).unwrap().sets, 1);
    let left = catalog.history(&Default::default()).unwrap();
    assert!(left.len() == 1 && left[0].database == "App", "{left:?}");
}

#[test]
fn age_does_not_take_what_later_backups_build_upon() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(&dir.path().join("catalog.db"));
    for (n, kind, first, last, copy_only) in [
        (2, BackupType::Database, 100, 150, false),
        (3, BackupType::Log, 100, 200, false),
        (4, BackupType::Database, 250, 260, false),
        (5, BackupType::Log, 200, 300, false),
        (6, BackupType::Database, 320, 330, true),
    ] {
        let record = of_cluster(n, kind, (7, 4, first, last), copy_only);
        catalog.record_backup(&record).unwrap();
    }
    let mut chain = catalog.log_chain("app").unwrap();
    // Those before the last log set are removed.
    chain.logs.truncate(1);
    let all = Forget::EndedBefore("2030-01-01T00:00:00.000");
    let gone = catalog.forget(all, &Arc::default()).unwrap();
    assert_eq!((gone.sets, gone.kept), (3, 2));
    assert_eq!(catalog.log_chain("app").unwrap(), chain);
    assert_eq!(catalog.forget(all, &Arc::default()).unwrap().sets, 0);
    let app = Forget::Database("app");
    assert_eq!(catalog.forget(app, &Arc::default()).unwrap().sets, 2);
    assert_eq!(catalog.log_chain("app").unwrap(), LogChain::default());
}
