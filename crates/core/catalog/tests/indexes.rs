//! Goal: what opens the index of an encrypted set is kept as long as a backup may differ from the set, no longer, and opens
//! with the service key of its own catalog alone.
//! Method: sets are recorded in chains; rows are read, moved and counted by plain SQLite.
//! Not covered: what the secret opens (`longshore-crypt`), and which sets belong to a chain (the pipeline).

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use common::{backup, new, open, sqlite};
use longshore_catalog::{Catalog, Error, Forget, IndexedSet, service_key_path};
use longshore_crypt::IndexSecret;
use longshore_io::{Clock, Host, HostClock, Storage};
use uuid::Uuid;

fn secret(n: u64) -> IndexSecret {
    let byte = n as u8;
    IndexSecret::of_text([byte; 32], &format!("{byte:02x}").repeat(64)).unwrap()
}

fn set_of(n: u64) -> Uuid {
    backup(n).header.set
}

/// Records the set of this number, and keeps what opens its index.
fn keep(catalog: &Catalog, chain: &str, n: u64, is_full: bool, with: Option<IndexSecret>) {
    catalog.record_backup(&backup(n)).unwrap();
    let set = IndexedSet {
        set: set_of(n),
        chain,
        is_full,
    };
    let tools = (&Host::new() as &dyn Storage, &HostClock as &dyn Clock);
    catalog.keep_index(set, with.as_ref(), tools).unwrap();
}

fn kept(catalog: &Catalog, n: u64) -> Result<Option<IndexSecret>, Error> {
    catalog.index_of(set_of(n), &Host::new())
}

/// Which of these are kept.
fn all(catalog: &Catalog, range: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let is_kept = |n: &u64| kept(catalog, *n).unwrap().is_some();
    range.filter(is_kept).collect()
}

#[test]
fn a_chain_keeps_what_opens_its_last_two_full_backups_and_what_follows_them() {
    let (_dir, path, catalog) = new();
    for (n, is_full) in [(1, true), (2, false), (3, true), (4, false)] {
        keep(&catalog, "a", n, is_full, Some(secret(n)));
    }
    assert_eq!(all(&catalog, 1..=4), [1, 2, 3, 4]);
    // Full backups of another place, of another database or of another source are no part of it.
    for n in 5..=7 {
        keep(&catalog, "b", n, true, Some(secret(n)));
    }
    assert_eq!(all(&catalog, 1..=7), [1, 2, 3, 4, 6, 7]);
    // The order is that in which they were made, whatever clocks say: set 20 is dated later than those after it.
    keep(&catalog, "a", 20, true, Some(secret(20)));
    assert_eq!(all(&catalog, 1..=20), [3, 4, 6, 7, 20]);
    keep(&catalog, "a", 8, false, Some(secret(8)));
    assert_eq!(all(&catalog, 1..=20), [3, 4, 6, 7, 8, 20]);
    // Full backups that have nothing to keep end it, too.
    keep(&catalog, "a", 9, true, None);
    keep(&catalog, "a", 10, true, None);
    assert_eq!(all(&catalog, 1..=20), [6, 7]);
    // Where nothing is kept, they leave nothing.
    let rows = |chain: &str| -> i64 {
        let sql = "SELECT count(*) FROM longshore_index WHERE chain = ?1";
        let count = sqlite(&path).query_row(sql, [chain], |row| row.get(0));
        count.unwrap()
    };
    keep(&catalog, "c", 11, true, None);
    assert_eq!((rows("a"), rows("b"), rows("c")), (2, 2, 0));
    let found = kept(&catalog, 6).unwrap().unwrap();
    assert_eq!(found.root, secret(6).root);
    assert_eq!(*found.text(), *secret(6).text());
}

#[test]
fn it_goes_with_the_row_of_its_set() {
    let (_dir, _, mut catalog) = new();
    keep(&catalog, "a", 1, true, Some(secret(1)));
    let never = Arc::default();
    catalog.forget(Forget::Database("app"), &never).unwrap();
    assert!(kept(&catalog, 1).unwrap().is_none());
}

#[test]
fn it_opens_for_its_own_set_and_with_its_own_key_alone() {
    let (_dir, path, catalog) = new();
    keep(&catalog, "a", 1, true, Some(secret(1)));
    keep(&catalog, "a", 2, false, Some(secret(2)));
    let key = service_key_path(&path);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&key), 0o600);
    let stored = std::fs::read(&path).unwrap();
    let has = |what: &[u8]| stored.windows(what.len()).any(|w| w == what);
    assert!(!has(&[1; 32]) && !has(secret(1).text().as_bytes()));
    // Moved to another set, also with its root.
    let moved = "UPDATE longshore_index SET root = o.root, secret = o.secret FROM (SELECT root, secret FROM longshore_index \
                 WHERE backup_set_uuid = ?2) AS o WHERE backup_set_uuid = ?1";
    let sets = [set_of(1).to_string(), set_of(2).to_string()];
    assert_eq!(sqlite(&path).execute(moved, sets).unwrap(), 1);
    assert!(matches!(kept(&catalog, 1), Err(Error::ServiceKey { .. })));
    assert!(kept(&catalog, 2).unwrap().is_some());
    // Without the key, and with another one.
    let aside = path.with_extension("aside");
    std::fs::rename(&key, &aside).unwrap();
    assert!(matches!(kept(&catalog, 2), Err(Error::ServiceKey { .. })));
    keep(&catalog, "a", 3, false, Some(secret(3)));
    assert!(matches!(kept(&catalog, 2), Err(Error::ServiceKey { .. })));
    assert!(kept(&catalog, 3).unwrap().is_some());
    std::fs::rename(&aside, &key).unwrap();
    assert!(kept(&catalog, 2).unwrap().is_some());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(kept(&catalog, 2), Err(Error::ServiceKey { .. })));
    // A catalog that is opened again has it, too.
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(catalog);
    assert!(kept(&open(&path), 2).unwrap().is_some());
}
