//! Goal: procedures and tables of T-SQL scripts are kept: a name once, rows by version, an object with its rows or not at all.
//! Method: two catalogs are open on one file, as two programs have it; an older schema is made by hand.

mod common;

use common::{open, rows, sqlite};
use longshore_catalog::{CatalogObject, RowChanges};

fn object(name: &str) -> CatalogObject {
    CatalogObject {
        id: 0,
        database: "master".into(),
        name: name.into(),
        kind: "U".into(),
        created: "2026-03-01T22:15:04.120".into(),
        changed: "2026-03-01T22:15:04.120".into(),
        definition: format!("CREATE TABLE {name} (a int)"),
        uses_ansi_nulls: true,
        uses_quoted_identifier: true,
    }
}

fn changes(version: Option<i64>, put: &[(i64, &str)]) -> RowChanges {
    RowChanges {
        version,
        last_identity: Some(7),
        last_row: put.iter().map(|(row, _)| *row).max().unwrap_or(0),
        removed: Vec::new(),
        put: put
            .iter()
            .map(|(row, text)| (*row, (*text).to_owned()))
            .collect(),
    }
}

#[test]
fn a_name_is_there_once_and_an_object_goes_with_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let (one, other) = (open(&path), open(&path));
    let id = one.add_object(&object("t")).unwrap().unwrap();
    assert_eq!(other.add_object(&object("T")).unwrap(), None);
    let elsewhere = CatalogObject {
        database: "shop".into(),
        ..object("t")
    };
    assert!(other.add_object(&elsewhere).unwrap().unwrap() > id);
    assert!(
        one.change_rows(id, &changes(Some(1), &[(1, "[1]"), (2, "[2]")]))
            .unwrap()
    );
    let stored = other.object_rows(id).unwrap().unwrap();
    assert_eq!(
        (stored.version, stored.last_identity, stored.last_row),
        (2, Some(7), 2)
    );
    assert_eq!(stored.rows, [(1, "[1]".to_owned()), (2, "[2]".to_owned())]);
    assert!(other.object_bytes().unwrap() >= 6);
    assert!(other.drop_object(id).unwrap());
    assert!(!other.drop_object(id).unwrap());
    assert_eq!(one.object_rows(id).unwrap(), None);
    assert_eq!(
        rows(&sqlite(&path), "SELECT count(*) FROM longshore_row"),
        ["0"]
    );
    assert_eq!(one.objects().unwrap().len(), 1);
    one.check().unwrap();
}

#[test]
fn a_change_from_an_older_version_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let (one, other) = (open(&path), open(&path));
    let id = one.add_object(&object("t")).unwrap().unwrap();
    assert!(
        one.change_rows(id, &changes(Some(1), &[(1, "[1]")]))
            .unwrap()
    );
    assert!(
        !other
            .change_rows(id, &changes(Some(1), &[(1, "[9]")]))
            .unwrap()
    );
    assert!(
        other
            .change_rows(id, &changes(None, &[(2, "[2]")]))
            .unwrap()
    );
    let changed = CatalogObject {
        id,
        definition: "CREATE TABLE t (a int, b int)".into(),
        ..object("t")
    };
    assert!(
        !one.change_object(&changed, Some(&changes(Some(2), &[])))
            .unwrap()
    );
    assert!(
        one.change_object(&changed, Some(&changes(Some(3), &[(1, "[1,null]")])))
            .unwrap()
    );
    let stored = other.object_rows(id).unwrap().unwrap();
    assert_eq!(
        stored.rows,
        [(1, "[1,null]".to_owned()), (2, "[2]".to_owned())]
    );
    assert_eq!(other.objects().unwrap()[0].definition, changed.definition);
}

#[test]
fn a_catalog_of_the_schema_before_gets_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    drop(open(&path));
    let older = "DROP TABLE longshore_object; DROP TABLE longshore_row; PRAGMA user_version = 9";
    sqlite(&path).execute_batch(older).unwrap();
    let catalog = open(&path);
    assert_eq!(rows(&sqlite(&path), "PRAGMA user_version"), ["10"]);
    assert_eq!(catalog.add_object(&object("t")).unwrap(), Some(1_000_001));
    catalog.check().unwrap();
}
