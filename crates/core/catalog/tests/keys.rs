//! Goal: the keys of statements are those that were stored last, whatever was killed or put back.
//! Method: the catalog and the file of the service key are copied at each state, and put together as a kill would leave them.
//! Not covered: what statements do with keys (`sql/tsql/tests/keys.rs`).

mod common;

use std::path::Path;

use common::open;
use longshore_catalog::{Catalog, Error, MasterKey, service_key_path};
use longshore_io::{Clock, Host, HostClock, Storage};

fn set_master(catalog: &Catalog, guid: &str) {
    let tools = (&Host::new() as &dyn Storage, &HostClock as &dyn Clock);
    let changed = catalog.change_keys::<_, Error>(tools, |keys, _| {
        keys.master = Some(MasterKey {
            guid: guid.to_owned(),
            created: "2026-03-01T22:15:04.120".to_owned(),
            changed: "2026-03-01T22:15:04.120".to_owned(),
            by_service: None,
            by_passwords: vec![vec![7; 108]],
        });
        Ok(())
    });
    changed.unwrap();
}

/// The master key that is trusted.
fn trusted(path: &Path) -> Result<String, Error> {
    let (keys, _) = open(path).trusted_keys(&Host::new())?;
    Ok(keys.master.map_or(String::new(), |master| master.guid))
}

/// Puts a state of the catalog in its place.
fn put(path: &Path, state: &[u8]) {
    for ending in ["-wal", "-shm"] {
        let _missing = std::fs::remove_file(format!("{}{ending}", path.display()));
    }
    std::fs::write(path, state).unwrap();
}

#[test]
fn a_kill_between_the_two_writes_leaves_both_states_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let key = service_key_path(&path);
    let state = |guid: &str| {
        let catalog = open(&path);
        set_master(&catalog, guid);
        drop(catalog);
        let proofs = std::fs::read_to_string(&key).unwrap();
        let copy = dir.path().join(guid);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
            .unwrap();
        (std::fs::read(&copy).unwrap(), proofs)
    };
    let (first, first_file) = state("first");
    let (second, second_file) = state("second");
    assert_eq!(trusted(&path).unwrap(), "second");
    let proof = |file: &str| file.lines().nth(1).unwrap()["keys ".len()..].to_owned();
    assert_eq!(proof(&first_file).len(), 64);
    put(&path, &first);
    let refused = trusted(&path).unwrap_err();
    assert!(matches!(refused, Error::KeysChanged { .. }), "{refused}");
    // Killed after the file knew both, before and after the catalog had the second.
    let line = first_file.lines().next().unwrap();
    let both = format!(
        "{line}\nkeys {} {}\n",
        proof(&first_file),
        proof(&second_file)
    );
    let write = |text: &str| std::fs::write(&key, text).unwrap();
    for (state, guid) in [(&second, "second"), (&first, "first")] {
        write(&both);
        put(&path, state);
        assert_eq!(trusted(&path).unwrap(), guid);
    }
    // The next change forgets the other one.
    set_master(&open(&path), "third");
    assert_eq!(trusted(&path).unwrap(), "third");
    put(&path, &second);
    assert!(trusted(&path).is_err());
    // A line that is none, and a third one.
    for more in ["keys", "proofs x", "keys x\nkeys y"] {
        write(&format!("{line}\n{more}\n"));
        assert!(trusted(&path).is_err(), "{more}");
    }
    // Its owner takes what is there.
    write(&format!("{line}\n"));
    assert_eq!(trusted(&path).unwrap(), "second");
}

#[test]
fn a_credential_and_the_keys_share_the_service_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let tools = (&Host::new() as &dyn Storage, &HostClock as &dyn Clock);
    let catalog = open(&path);
    set_master(&catalog, "first");
    let add = |name: &str| {
        catalog.add_credential(
            (name, "identity"),
            Some("verysecret"),
            "2026-03-01T22:15:04.120",
            tools,
        )
    };
    assert!(add("a").unwrap());
    let key = service_key_path(&path);
    let file = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    assert!(add("b").is_err());
    assert!(catalog.drop_credential("a").unwrap());
    // The master key still needs it.
    assert!(add("b").is_err());
    assert!(!key.exists());
    std::fs::write(&key, &file).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(add("b").unwrap());
    assert_eq!(trusted(&path).unwrap(), "first");
}
