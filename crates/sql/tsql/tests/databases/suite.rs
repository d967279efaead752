//! The text of [`Databases`] as a test of any list of configured databases.

use std::collections::BTreeSet;
use std::thread;

use longshore_tsql::Databases;

/// Checks whatever the trait promises; returns the names of the databases that can be used.
///
/// # Panics
/// If a promise is broken.
pub fn keeps_its_contract(databases: &dyn Databases) -> Vec<String> {
    let names = databases.names();
    let different: BTreeSet<&String> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
    let mut usable = Vec::new();
    for name in &names {
        match databases.find(name) {
            Ok(Some(found)) => {
                assert_eq!(&found.name, name);
                usable.push(found.name);
            }
            Ok(None) => panic!("{name} is listed and not there"),
            Err(unusable) => assert!(!unusable.text.is_empty(), "{name}: no reason"),
        }
        for other in [format!("{name} "), format!("{name}x"), name.to_uppercase()] {
            if !different.contains(&other) {
                assert!(matches!(databases.find(&other), Ok(None)), "{other:?}");
            }
        }
    }
    assert!(matches!(databases.find(""), Ok(None)));
    // Each session asks for itself, and hears the same.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(databases.names(), names));
        }
    });
    usable
}
