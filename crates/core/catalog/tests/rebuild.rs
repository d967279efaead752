//! Goal: backups are relearned from media alone, with the same result as when they were recorded.
//! Method: small sets are written by the format's own encoders; the tables of the rebuilt catalog, without row numbers,
//! are compared with those of the catalog that recorded the backups. Media that are unfinished, damaged or missing are
//! tried, too.

mod common;

use std::path::Path;

use common::{begin_set, count, header, open, rows, sqlite, stripes, write_set};
use longshore_catalog::{BackupRecord, Error, HistoryQuery, MediaRecord, Rebuilt};
use longshore_codec::Algorithm;
use longshore_media::{Disposition, MediaSet};

const FILES: [(&str, u32); 3] = [("a.db", 9000), ("dir/b.db", 100), ("empty", 0)];

fn added(n: u32) -> Rebuilt {
    Rebuilt {
        added: n,
        ..Rebuilt::default()
    }
}

/// Every table without row numbers, which depend on the order of recording.
fn content(path: &Path) -> Vec<String> {
    let db = sqlite(path);
    let mut all = Vec::new();
    for table in [
        "backupset",
        "backupmediaset",
        "backupmediafamily",
        "backupfile",
    ] {
        let columns = format!(
            "SELECT group_concat(quote(name), ', ') FROM pragma_table_info('{table}') WHERE name NOT IN ('backup_set_id', 'media_set_id')"
        );
        let columns = rows(&db, &columns).concat().replace('\'', "\"");
        all.extend(rows(
            &db,
            &format!("SELECT '{table}', {columns} FROM {table} ORDER BY 1, 2, 3, 4, 5, 6"),
        ));
    }
    all
}

#[test]
fn a_rebuilt_catalog_equals_the_one_that_recorded_the_backups() {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 3);
    let kept = dir.path().join("kept.db");
    let catalog = open(&kept);
    for position in 1..=3 {
        let mut one = header(u64::from(position));
        one.expires_us = (position == 2).then_some(one.start_us + 86_400_000_000);
        one.time_zone = 8;
        let disposition = match position {
            1 => Disposition::New,
            _ => Disposition::Append,
        };
        let stored = write_set(&devices, disposition, one, &FILES);
        // The records of a backup, read back from its media.
        let media = MediaSet::open(&devices).unwrap();
        let set = media.set(position).unwrap();
        let of = MediaRecord::of(&media, &devices);
        let mut record = BackupRecord::of(of, set.header, &set.trailer.unwrap());
        record.read_files(&media).unwrap();
        assert_eq!(record.stored_bytes, stored);
        assert!(catalog.record_backup(&record).unwrap());
    }

    let rebuilt = dir.path().join("rebuilt.db");
    let catalog = open(&rebuilt);
    // Named in another order, as a shell may expand them.
    let shuffled = [2, 0, 1].map(|i: usize| devices[i].clone());
    assert_eq!(catalog.rebuild(&shuffled).unwrap(), added(3));
    let learned = content(&rebuilt);
    assert_eq!(learned, content(&kept));
    assert_eq!(learned.len(), 3 + 1 + 3 + 9);

    let known = Rebuilt {
        known: 3,
        ..Rebuilt::default()
    };
    assert_eq!(catalog.rebuild(&devices).unwrap(), known);
    assert_eq!(content(&rebuilt), learned);

    let newest = &catalog.history(&HistoryQuery::default()).unwrap()[0];
    assert_eq!(
        (newest.position, newest.file_count, newest.size_bytes),
        (3, 3, 9100)
    );
    let stripe = |i| dir.path().join(format!("s{i}.bak")).display().to_string();
    assert_eq!(newest.devices, [stripe(1), stripe(2), stripe(3)]);
    let sql = "SELECT logical_name, file_size, backup_size, backed_up_page_count FROM backupfile
               WHERE backup_set_id = 3";
    assert_eq!(
        rows(&sqlite(&rebuilt), sql),
        ["a.db|9100|9000|3", "dir/b.db|200|100|1", "empty|100|0|0"]
    );
}

#[test]
fn an_unfinished_set_is_counted_and_gets_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 2);
    write_set(&devices, Disposition::New, header(1), &FILES);
    let whole = std::fs::metadata(dir.path().join("s1.bak")).unwrap().len();
    drop(begin_set(&devices, Disposition::Append, header(2), &FILES));
    let catalog = open(&dir.path().join("catalog.db"));
    // An orderly end removes the unfinished set again; a crash would not.
    assert_eq!(
        std::fs::metadata(dir.path().join("s1.bak")).unwrap().len(),
        whole
    );
    assert_eq!(catalog.rebuild(&devices).unwrap(), added(1));

    write_set(&devices, Disposition::Append, header(2), &FILES);
    let longer = std::fs::File::options()
        .write(true)
        .open(dir.path().join("s2.bak"))
        .unwrap();
    longer
        .set_len(longer.metadata().unwrap().len() - 1)
        .unwrap();
    let expected = Rebuilt {
        known: 1,
        incomplete: 1,
        ..Rebuilt::default()
    };
    assert_eq!(catalog.rebuild(&devices).unwrap(), expected);
    assert_eq!(catalog.history(&HistoryQuery::default()).unwrap().len(), 1);
}

#[test]
fn a_damaged_index_costs_the_files_names_and_not_the_backup() {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 1);
    write_set(&devices, Disposition::New, header(1), &FILES);
    let path = dir.path().join("s1.bak");
    let media = MediaSet::open(&devices).unwrap();
    let trailer = media.set(1).unwrap().trailer.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[trailer.index_offset as usize + trailer.index_len as usize / 2] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    let catalog = open(&dir.path().join("catalog.db"));
    let expected = Rebuilt {
        without_files: 1,
        ..added(1)
    };
    assert_eq!(catalog.rebuild(&devices).unwrap(), expected);
    let row = &catalog.history(&HistoryQuery::default()).unwrap()[0];
    assert_eq!((row.file_count, row.size_bytes), (3, 9100));
    let db = sqlite(catalog.path());
    assert_eq!(count(&db, "SELECT count(*) FROM backupfile"), 0);
}

#[test]
fn a_set_of_more_files_than_history_lists_lists_none_and_counts_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..1001).map(|i| format!("file {i}")).collect();
    let files: Vec<_> = names.iter().map(|n| (n.as_str(), 0)).collect();
    let catalog = open(&dir.path().join("catalog.db"));
    for (n, listed) in [(1001, 0), (1000, 1000)] {
        let devices = stripes(dir.path(), 1);
        let mut one = header(n as u64);
        one.algorithm = Algorithm::Lz4;
        write_set(&devices, Disposition::Format, one, &files[..n]);
        assert_eq!(catalog.rebuild(&devices).unwrap(), added(1));
        assert_eq!(
            catalog.history(&HistoryQuery::default()).unwrap().len() as u64,
            1 + u64::from(n == 1000)
        );
        let sql = format!(
            "SELECT count(*) FROM backupset JOIN backupfile USING (backup_set_id) WHERE longshore_file_count = {n}"
        );
        assert_eq!(count(&sqlite(catalog.path()), &sql), listed);
    }
}

#[test]
fn media_that_cannot_be_read_are_named_with_their_own_message() {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 2);
    let catalog = open(&dir.path().join("catalog.db"));
    let missing = catalog.rebuild(&devices).unwrap_err();
    assert!(
        matches!(
            missing,
            Error::Media(longshore_media::Error::Missing { .. })
        ),
        "{missing}"
    );
    write_set(&devices, Disposition::New, header(1), &FILES);
    let half = catalog.rebuild(&devices[..1]).unwrap_err();
    assert_eq!(half.number(), Some(3132));
}
