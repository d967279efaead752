//! Goal: BACKUP and RESTORE overwrite neither databases in use nor archives, sets at targets or other media, and say
//! when a size of buffers has no effect.
//! Method: statements to the real server; the answers' texts and the files' bytes afterwards.
//! Not covered: buckets.

use rusqlite::Connection;

use crate::raw::{FAILED, Raw, end_of, says};
use crate::stage::Stage;

fn refused(raw: &mut Raw, batch: &str, text: &str) {
    let answer = raw.batch(batch);
    assert_ne!(end_of(&answer) & FAILED, 0, "{batch}");
    assert!(says(&answer, text), "{batch}");
}

#[test]
fn a_database_in_use_is_not_restored_over() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let done = raw.batch("BACKUP DATABASE shop TO DISK = 'shop.bak'");
    assert_eq!(end_of(&done) & FAILED, 0);
    let user = Connection::open(stage.path("shop.db")).unwrap();
    user.execute("INSERT INTO ware (name) VALUES ('kept')", [])
        .unwrap();
    let exclusive = "Exclusive access could not be obtained because the database is in use.";
    for with in ["", " WITH REPLACE"] {
        let batch = format!("RESTORE DATABASE shop FROM DISK = 'shop.bak'{with}");
        refused(&mut raw, &batch, exclusive);
    }
    let count = "SELECT count(*) FROM ware WHERE name = 'kept'";
    let kept = |db: &Connection| db.query_row(count, [], |r| r.get::<_, i64>(0)).unwrap();
    drop(user);
    assert_eq!(kept(&Connection::open(stage.path("shop.db")).unwrap()), 1);
    let done = raw.batch("RESTORE DATABASE shop FROM DISK = 'shop.bak' WITH REPLACE");
    assert_eq!(end_of(&done) & FAILED, 0);
    assert_eq!(kept(&Connection::open(stage.path("shop.db")).unwrap()), 0);
}

#[test]
fn archives_sets_and_media_are_not_written_onto() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    for name in ["shop.bak", "other.bak"] {
        let done = raw.batch(&format!("BACKUP DATABASE shop TO DISK = '{name}'"));
        assert_eq!(end_of(&done) & FAILED, 0);
    }
    let whole = std::fs::read(stage.path("shop.bak")).unwrap();
    let archive = stage.path("backups/shop/wal");
    std::fs::create_dir_all(&archive).unwrap();
    for name in ["longshore-wal", "000000010000000000000001.zst"] {
        std::fs::write(archive.join(name), name).unwrap();
    }
    let set = "backups/shop/20270131T020000Z-full-1a2b3c4d/family-1.bak";
    std::fs::create_dir_all(stage.path(set).parent().unwrap()).unwrap();
    std::fs::write(stage.path(set), &whole).unwrap();
    std::fs::hard_link(stage.path("shop.bak"), stage.path("alias.bak")).unwrap();
    let in_archive = "backups/shop/wal/000000010000000000000001.zst";
    for device in [
        in_archive,
        "backups/shop/wal/longshore-wal",
        "backups/shop/wal/new.bak",
        set,
    ] {
        for with in ["", " WITH INIT, SKIP", " WITH FORMAT"] {
            let batch = format!("BACKUP DATABASE shop TO DISK = '{device}'{with}");
            refused(&mut raw, &batch, "Cannot open backup device");
        }
    }
    let places = [
        in_archive,
        "backups/shop/wal/longshore-wal",
        "backups/shop/wal/new.db",
        "backups/shop/wal",
        "backups",
        set,
        "shop.bak",
        "alias.bak",
        "other.bak",
    ];
    for place in places {
        let batch = format!(
            "RESTORE DATABASE copy FROM DISK = 'shop.bak' WITH MOVE 'shop.db' TO '{place}', REPLACE"
        );
        refused(
            &mut raw,
            &batch,
            "RESTORE DATABASE is terminating abnormally.",
        );
    }
    assert_eq!(std::fs::read(stage.path("shop.bak")).unwrap(), whole);
    assert_eq!(std::fs::read(stage.path(set)).unwrap(), whole);
    assert_eq!(std::fs::read_dir(&archive).unwrap().count(), 2);
    let verified = raw.batch("RESTORE VERIFYONLY FROM DISK = 'other.bak'");
    assert!(says(&verified, "The backup set on file 1 is valid."));
}

#[test]
fn a_size_of_buffers_that_a_set_does_not_have_is_said_to_have_no_effect() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    raw.batch("BACKUP DATABASE shop TO DISK = 'shop.bak'");
    let none = "MAXTRANSFERSIZE has no effect here";
    for (what, with) in [("DATABASE shop", "REPLACE, "), ("VERIFYONLY", "")] {
        let restore = |size: u32| {
            format!("RESTORE {what} FROM DISK = 'shop.bak' WITH {with}MAXTRANSFERSIZE = {size}")
        };
        assert!(says(&raw.batch(&restore(65536)), none));
        let same = raw.batch(&restore(1 << 20));
        assert!(!says(&same, none) && end_of(&same) & FAILED == 0);
    }
}
