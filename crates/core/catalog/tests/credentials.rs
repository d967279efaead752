//! Goal: credentials outlive the connection, and their secrets open with the service key of their catalog alone.
//! Method: a catalog is written, opened again, changed by plain SQLite, and opened with other keys.
//! Not covered: what a credential is for.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{open, sqlite};
use longshore_catalog::{Catalog, service_key_path};
use longshore_io::{Host, HostClock};

const NOW: &str = "2026-03-01T22:15:04.120";
const LATER: &str = "2026-03-02T22:15:04.120";

fn add(catalog: &Catalog, name: &str, secret: Option<&str>) -> bool {
    let tools = (
        &Host::new() as &dyn longshore_io::Storage,
        &HostClock as &dyn longshore_io::Clock,
    );
    catalog
        .add_credential((name, "identity"), secret, NOW, tools)
        .unwrap()
}

#[test]
fn credentials_outlive_the_connection_and_names_ignore_case() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    assert!(add(&catalog, "First", Some("verysecret")));
    assert!(!add(&catalog, "FIRST", Some("other")));
    assert!(add(&catalog, "second", None));
    let tools = (
        &Host::new() as &dyn longshore_io::Storage,
        &HostClock as &dyn longshore_io::Clock,
    );
    let change =
        |name: &str| catalog.change_credential((name, "another"), Some("newer"), LATER, tools);
    assert!(change("first").unwrap());
    assert!(!change("third").unwrap());
    drop(catalog);
    let catalog = open(&path);
    catalog.check().unwrap();
    let all = catalog.credentials().unwrap();
    let shown: Vec<_> = all
        .iter()
        .map(|c| {
            (
                c.id,
                c.name.as_str(),
                c.identity.as_str(),
                c.created.as_str(),
                c.changed.as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (65_536, "First", "another", NOW, LATER),
            (65_537, "second", "identity", NOW, NOW)
        ]
    );
    let secret = |at: usize| all[at].secret(&path, &Host::new()).unwrap();
    assert_eq!(secret(0).as_deref(), Some("newer"));
    assert_eq!(secret(1), None);
    assert!(all[0].has_secret() && !all[1].has_secret());
    assert!(!format!("{all:?}").contains("newer"));
    assert!(catalog.drop_credential("FIRST").unwrap());
    assert!(!catalog.drop_credential("First").unwrap());
    // A number is not given twice.
    assert!(add(&catalog, "third", None));
    assert_eq!(catalog.credentials().unwrap()[1].id, 65_538);
}

#[test]
fn a_secret_opens_in_its_own_row_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    assert!(add(&catalog, "a", Some("verysecret")));
    assert!(add(&catalog, "b", Some("verysecret")));
    let key = service_key_path(&path);
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(catalog);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(10).any(|part| part == b"verysecret"));
    let secret = |at: usize| {
        let all = open(&path).credentials().unwrap();
        all[at].secret(&path, &Host::new())
    };
    assert_eq!(secret(0).unwrap().as_deref(), Some("verysecret"));
    // Moved to another row, and to another name.
    sqlite(&path)
        .execute_batch(
            "UPDATE longshore_credential SET secret = (SELECT secret FROM longshore_credential WHERE name = 'b') \
             WHERE name = 'a'",
        )
        .unwrap();
    assert!(secret(0).is_err());
    sqlite(&path)
        .execute_batch("UPDATE longshore_credential SET credential_identity = 'x' WHERE name = 'b'")
        .unwrap();
    assert!(secret(1).is_err());
    // A copy of the catalog alone.
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let all = open(&copy).credentials().unwrap();
    let refused = all[0].secret(&copy, &Host::new()).unwrap_err();
    assert!(refused.to_string().contains("it is missing"), "{refused}");
    for (text, why) in [
        ("", "no service key"),
        ("longshore-service-key-1 00", "no service key"),
    ] {
        std::fs::write(&key, text).unwrap();
        let refused = secret(0).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_replaced_key_seals_nothing_while_others_have_the_former_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    assert!(add(&catalog, "a", Some("verysecret")));
    let other = dir.path().join("other.db");
    assert!(add(&open(&other), "a", Some("verysecret")));
    std::fs::copy(service_key_path(&other), service_key_path(&path)).unwrap();
    let tools = (
        &Host::new() as &dyn longshore_io::Storage,
        &HostClock as &dyn longshore_io::Clock,
    );
    let make = || catalog.add_credential(("b", "identity"), Some("verysecret"), NOW, tools);
    let refused = make().unwrap_err();
    assert!(refused.to_string().contains("credential 'a'"), "{refused}");
    assert!(refused.hint().contains("remove the file"));
    assert_eq!(catalog.credentials().unwrap().len(), 1);
    // The only one may be sealed again.
    let again = catalog.change_credential(("A", "identity"), Some("newer"), LATER, tools);
    assert!(again.unwrap() && make().unwrap());
    for one in catalog.credentials().unwrap() {
        assert!(one.secret(&path, &Host::new()).is_ok(), "{}", one.name);
    }
}
