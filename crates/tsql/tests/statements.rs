//! Statements against a real database: what is said, in which order, and what stands on the media afterwards.

mod common;

use common::{Stage, numbers, run, said, value};

#[test]
fn a_backup_says_its_percents_its_files_and_its_end() {
    let stage = Stage::new();
    let mut session = stage.session();
    let record = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH STATS = 25",
    );
    let lines = said(&record);
    assert_eq!(
        lines[lines.len() - 3],
        "3211 100 percent processed.",
        "{lines:?}"
    );
    assert!(
        lines[lines.len() - 2].starts_with("4035 Processed "),
        "{lines:?}"
    );
    assert!(
        lines[lines.len() - 2].ends_with("pages for database 'shop', file 'shop.db' on file 1.")
    );
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("3014 BACKUP DATABASE successfully processed "),
        "{lines:?}"
    );
    let again = run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    assert!(
        said(&again)[0].ends_with("on file 2."),
        "{:?}",
        said(&again)
    );
    let count = "SELECT COUNT(*) FROM msdb.dbo.backupset WHERE database_name = 'SHOP'";
    assert_eq!(value(&mut session, count), "2");
}

#[test]
fn a_batch_goes_on_after_a_failed_backup() {
    let stage = Stage::new();
    let mut session = stage.session();
    let batch = "BACKUP DATABASE nowhere TO DISK = 'a.bak';\nBACKUP LOG shop TO DISK = 'a.bak';\nPRINT 'still here'";
    assert_eq!(
        numbers(&run(&mut session, batch)),
        [911, 3013, 4208, 3013, 0]
    );
}
