//! Goal: the history shows what was recorded, up to the limits of its columns.
//! Method: records go into a new catalog in a temporary directory, and its queries return them.
//! Not covered: damaged and locked catalogs (`trouble.rs`).

mod common;

use std::path::Path;

use common::{NEW_YEAR_US, all, backup, count, new, restore, rows, sqlite};
use longshore_catalog::{FamilyRecord, FileList, HistoryQuery, RestoreKind};
use longshore_codec::{Algorithm, Level};
use longshore_media::device::DeviceClass;

#[test]
fn a_recorded_backup_shows_its_facts_and_the_published_arithmetic() {
    let (_dir, path, catalog) = new();
    let mut one = backup(1);
    // The published example: 2,136,466 pages in 39.266 s are 425.078 MB/s, truncated to three decimals.
    one.header.start_us = NEW_YEAR_US + 120_000;
    one.totals.finish_us = NEW_YEAR_US + 39_386_000;
    one.totals.plain_bytes = 2_136_466 * 8192;
    one.stored_bytes = 4_035_936_256;
    one.header.position = 3;
    one.header.time_zone = 23;
    one.header.copy_only = true;
    one.header.expires_us = Some(NEW_YEAR_US + 86_400_000_000);
    one.header.level = Level::Number(9);
    one.totals.damaged = true;
    assert!(catalog.record_backup(&one).unwrap());

    let found = catalog.history(&all()).unwrap();
    assert_eq!(found.len(), 1);
    let row = &found[0];
    assert_eq!((row.set, row.media_set), (one.header.set, one.media.uuid));
    assert_eq!(
        (row.database.as_str(), row.kind.as_str(), row.position),
        ("app", "D", 3)
    );
    // 23 quarters are 5:45 hours, as in Nepal.
    assert_eq!(row.start.as_deref(), Some("2026-01-01T05:45:00.120+05:45"));
    assert_eq!(row.finish.as_deref(), Some("2026-01-01T05:45:39.386+05:45"));
    assert_eq!(
        row.expires.as_deref(),
        Some("2026-01-02T05:45:00.000+05:45")
    );
    assert_eq!(row.expires_us, one.header.expires_us);
    assert_eq!(
        (row.start_us, row.finish_us),
        (one.header.start_us, one.totals.finish_us)
    );
    assert_eq!(
        (row.seconds, (row.mb_per_s * 1000.0).floor()),
        (39.266, 425_078.0)
    );
    assert_eq!(
        (row.size_bytes, row.compressed_bytes),
        (17_501_929_472, 4_035_936_256)
    );
    assert_eq!(format!("{:.3}", row.ratio), "4.337");
    assert_eq!(row.algorithm.as_deref(), Some("QAT_DEFLATE"));
    assert_eq!((row.level.as_deref(), row.file_count), (Some("9"), 3));
    assert!(row.damaged && row.copy_only);
    assert_eq!(row.devices, ["/backups/1-1.bak", "/backups/1-2.bak"]);
    assert_eq!(row.user.as_deref(), Some("ada"));

    // Queries that are in use with msdb.
    let db = sqlite(&path);
    let sql = "SELECT type, is_copy_only, is_damaged, has_backup_checksums, flags, machine_name, description,
                      last_family_number, round(backup_size / compressed_backup_size)
               FROM backupset";
    assert_eq!(rows(&db, sql), ["D|1|1|1|1584|dock||2|4"]);
    let sql = "SELECT file_number, logical_name, file_type, page_size, file_size, backup_size, backed_up_page_count
               FROM backupfile";
    assert_eq!(
        rows(&db, sql),
        [
            "1|a.db|D|4096|10000|9000|3",
            "2|b.db|D|4096|10000|9000|3",
            "3|c/d.db|D|4096|10000|9000|3"
        ]
    );
    let sql = "SELECT media_family_count, name, software_name, is_compressed, is_encrypted FROM backupmediaset";
    assert_eq!(rows(&db, sql), ["2||Longshore 1|1|0"]);
    let sql =
        "SELECT family_sequence_number, media_family_id, physical_device_name, device_type, mirror
               FROM backupmediafamily ORDER BY 1";
    assert_eq!(
        rows(&db, sql),
        [
            "1|00000000-0000-0001-0000-000000000001|/backups/1-1.bak|2|0",
            "2|00000000-0000-0001-0000-000000000002|/backups/1-2.bak|2|0"
        ]
    );
}

#[test]
fn mirrors_have_rows_of_their_own_and_are_no_further_stripes() {
    let (_dir, path, catalog) = new();
    let mut mirrored = backup(1);
    let other = |family: &FamilyRecord| FamilyRecord {
        device: format!("/mirror{}", family.device),
        ..family.clone()
    };
    let of_mirror = mirrored.media.families.iter().map(other).collect();
    mirrored.media.mirrors = vec![of_mirror];
    catalog.record_backup(&mirrored).unwrap();
    let uuid = mirrored.media.uuid;
    assert_eq!(catalog.mirror_count(uuid).unwrap(), 2);
    let row = &catalog.history(&all()).unwrap()[0];
    assert_eq!(row.devices, ["/backups/1-1.bak", "/backups/1-2.bak"]);
    // A later look at the media does not know of mirrors, and takes nothing away.
    catalog.record_backup(&backup(1)).unwrap();
    assert_eq!(catalog.mirror_count(uuid).unwrap(), 2);
    let db = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT mirror, count(*), min(physical_device_name) FROM backupmediafamily GROUP BY 1 ORDER BY 1";
    let meant = ["0|2|/backups/1-1.bak", "1|2|/mirror/backups/1-1.bak"];
    assert_eq!(rows(&db, sql), meant);
    assert_eq!(catalog.mirror_count(backup(2).media.uuid).unwrap(), 1);
}

#[test]
fn an_uncompressed_backup_has_one_number_in_both_sizes_and_no_algorithm() {
    let (_dir, _, catalog) = new();
    let mut plain = backup(1);
    plain.header.algorithm = Algorithm::None;
    plain.media.compressed = false;
    plain.media.families.truncate(1);
    plain.media.families[0].class = DeviceClass::Nul;
    plain.media.families[0].uuid = None;
    plain.stored_bytes = plain.totals.plain_bytes + 400;
    catalog.record_backup(&plain).unwrap();
    let row = &catalog.history(&all()).unwrap()[0];
    assert_eq!((row.size_bytes, row.compressed_bytes), (27_000, 27_000));
    assert_eq!(
        (row.algorithm.as_ref(), row.level.as_ref(), row.ratio),
        (None, None, 1.0)
    );
}

#[test]
fn a_backup_recorded_again_changes_nothing_but_where_its_media_are() {
    let (_dir, path, catalog) = new();
    assert!(catalog.record_backup(&backup(1)).unwrap());
    let mut again = backup(1);
    again.header.name = "another name".into();
    again.media.families[1].device = "/moved/1-2.bak".into();
    again.media.families[1].uuid = None;
    assert!(!catalog.record_backup(&again).unwrap());
    let db = sqlite(&path);
    for (table, expected) in [
        ("backupset", 1),
        ("backupfile", 3),
        ("backupmediaset", 1),
        ("backupmediafamily", 2),
    ] {
        assert_eq!(
            count(&db, &format!("SELECT count(*) FROM {table}")),
            expected,
            "{table}"
        );
    }
    assert_eq!(
        count(&db, "SELECT count(media_family_id) FROM backupmediafamily"),
        2
    );
    let row = &catalog.history(&all()).unwrap()[0];
    assert_eq!(row.name.as_deref(), Some("backup 1"));
    assert_eq!(row.devices, ["/backups/1-1.bak", "/moved/1-2.bak"]);
}

#[test]
fn history_is_newest_first_and_can_be_narrowed() {
    let (_dir, _, catalog) = new();
    for n in [3, 1, 4, 2] {
        let mut one = backup(n);
        if n % 2 == 0 {
            one.header.database = "other".into();
        }
        catalog.record_backup(&one).unwrap();
    }
    let names = |query: &HistoryQuery| -> Vec<_> {
        let rows = catalog.history(query).unwrap();
        rows.into_iter().filter_map(|r| r.name).collect()
    };
    assert_eq!(
        names(&all()),
        ["backup 4", "backup 3", "backup 2", "backup 1"]
    );
    let other = HistoryQuery {
        database: Some("other".into()),
        limit: None,
    };
    assert_eq!(names(&other), ["backup 4", "backup 2"]);
    let newest = HistoryQuery {
        limit: Some(1),
        ..other
    };
    assert_eq!(names(&newest), ["backup 4"]);
    let hostile = HistoryQuery {
        database: Some("' OR 1 = 1 --".into()),
        limit: None,
    };
    assert_eq!(names(&hostile), [""; 0]);
}

#[test]
fn the_newest_full_backup_is_found_without_reading_those_before_it() {
    let (_dir, _, catalog) = new();
    for n in 1..=6 {
        let mut one = backup(n);
        one.header.copy_only = n == 5;
        if n == 4 {
            one.header.backup_type = longshore_media::BackupType::Log;
        }
        if n == 6 {
            one.header.database = "other".into();
        }
        catalog.record_backup(&one).unwrap();
    }
    let looked = std::cell::Cell::new(0);
    let newest = |skipped: &str| {
        looked.set(0);
        let found = catalog.newest_full("app", |row| {
            looked.set(looked.get() + 1);
            row.name.as_deref() != Some(skipped)
        });
        (found.unwrap().and_then(|row| row.name), looked.get())
    };
    assert_eq!(newest(""), (Some("backup 3".into()), 1));
    assert_eq!(newest("backup 3"), (Some("backup 2".into()), 2));
    assert_eq!(catalog.newest_full("nowhere", |_| true).unwrap(), None);
}

#[test]
fn a_restore_of_an_unknown_set_records_the_set_first_and_of_a_known_one_only_itself() {
    let (_dir, path, catalog) = new();
    let mut unlisted = backup(1);
    unlisted.files = FileList::default();
    let first = catalog.record_restore(&restore(unlisted)).unwrap();
    assert_eq!(catalog.history(&all()).unwrap().len(), 1);
    // The backup's own record may come later and includes the files.
    assert!(!catalog.record_backup(&backup(1)).unwrap());
    let mut partial = restore(backup(1));
    partial.finish_us += 60_000_000;
    partial.kind = RestoreKind::Files;
    let second = catalog.record_restore(&partial).unwrap();
    assert!(second > first);
    assert_eq!(catalog.history(&all()).unwrap().len(), 1);

    let found = catalog.restores(&all()).unwrap();
    assert_eq!(
        found
            .iter()
            .map(|r| r.restore_history_id)
            .collect::<Vec<_>>(),
        [second, first]
    );
    let row = &found[1];
    assert_eq!(
        (row.database.as_str(), row.source_database.as_str()),
        ("copy", "app")
    );
    // Finished five seconds after 00:01:00 UTC, one hour ahead of it.
    assert_eq!(row.date.as_deref(), Some("2026-01-01T01:01:05.000+01:00"));
    assert_eq!(
        (row.size_bytes, row.seconds, row.mb_per_s),
        (4 << 20, 2.0, 2.0)
    );
    assert_eq!(
        (row.target.as_str(), row.replace, row.kind.as_str()),
        ("/restored", true, "D")
    );
    assert_eq!(row.paths, ["/restored/c/d.db", "/restored/a.db"]);
    assert_eq!(
        (found[0].kind.as_str(), row.set),
        ("F", backup(1).header.set)
    );
    // If the files are known, rows refer to them by number.
    assert_eq!(found[0].paths, ["/restored/a.db", "/restored/c/d.db"]);
    let sql = format!(
        "SELECT file_number FROM restorefile WHERE restore_history_id = {second} ORDER BY 1"
    );
    assert_eq!(rows(&sqlite(&path), &sql), ["1", "3"]);
    let other = HistoryQuery {
        database: Some("app".into()),
        limit: None,
    };
    assert_eq!(catalog.restores(&other).unwrap(), []);
}

#[test]
fn absurd_numbers_and_dates_are_recorded_up_to_the_limits() {
    let (_dir, path, catalog) = new();
    let mut odd = backup(1);
    odd.header.start_us = i64::MAX;
    odd.totals.finish_us = i64::MIN;
    odd.header.expires_us = Some(i64::MAX);
    odd.header.position = u32::MAX;
    odd.header.time_zone = i16::MIN;
    odd.header.database = "nul \0 and \u{1f6a2}".into();
    odd.totals.plain_bytes = u64::MAX;
    odd.totals.files = u64::MAX;
    odd.stored_bytes = 0;
    odd.files = FileList::default();
    odd.files.add(Path::new("x"), u64::MAX, u64::MAX);
    catalog.record_backup(&odd).unwrap();
    let row = &catalog.history(&all()).unwrap()[0];
    assert_eq!((row.start.as_ref(), row.finish.as_ref()), (None, None));
    assert_eq!((row.size_bytes, row.seconds), (i64::MAX as u64, 0.0));
    assert_eq!((row.ratio, row.position), (1.0, u32::MAX));
    assert_eq!(row.database, odd.header.database);
    assert_eq!(rows(&sqlite(&path), "PRAGMA integrity_check"), ["ok"]);
}

#[test]
fn an_unknown_time_zone_counts_as_utc_and_a_negative_one_is_subtracted() {
    let (_dir, _, catalog) = new();
    for (n, zone, start) in [
        (1, 127, "2026-01-01T00:01:00.000Z"),
        (2, -20, "2025-12-31T19:02:00.000-05:00"),
    ] {
        let mut one = backup(n);
        one.header.time_zone = zone;
        catalog.record_backup(&one).unwrap();
        assert_eq!(
            catalog.history(&all()).unwrap()[0].start.as_deref(),
            Some(start)
        );
    }
}
