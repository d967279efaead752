//! Server settings and when they take effect.

mod common;

use common::open;
use longshore_catalog::{Effect, Error, Setting};

fn values(catalog: &longshore_catalog::Catalog, setting: Setting) -> (i64, i64) {
    let row = catalog.setting(setting).unwrap();
    (row.value, row.value_in_use)
}

#[test]
fn a_setting_counts_after_reconfigure_or_restart_and_outlives_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    let (algorithm, offload) = (
        Setting::BackupCompressionAlgorithm,
        Setting::HardwareOffloadEnabled,
    );
    catalog.reconfigure().unwrap();
    assert_eq!(values(&catalog, algorithm), (0, 0));
    catalog.set_setting(algorithm, 2, Effect::Later).unwrap();
    catalog.set_setting(offload, 1, Effect::Later).unwrap();
    drop(catalog);
    let catalog = open(&path);
    assert_eq!(values(&catalog, algorithm), (2, 0));
    catalog.reconfigure().unwrap();
    assert_eq!(values(&catalog, algorithm), (2, 2));
    assert_eq!(values(&catalog, offload), (1, 0));
    catalog.restart().unwrap();
    assert_eq!(values(&catalog, offload), (1, 1));
    catalog.set_setting(algorithm, 3, Effect::Later).unwrap();
    assert_eq!(values(&catalog, algorithm), (3, 2));
    catalog.set_setting(algorithm, 1, Effect::Now).unwrap();
    assert_eq!(values(&catalog, algorithm), (1, 1));
}

#[test]
fn every_setting_is_found_by_its_name_in_any_case_and_refuses_what_is_out_of_range() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(&dir.path().join("catalog.db"));
    let rows = catalog.settings().unwrap();
    assert!(rows.is_sorted_by_key(|r| r.name));
    assert_eq!(rows.len(), 7);
    for (row, setting) in rows.iter().zip(Setting::ALL) {
        assert_eq!(row.name.to_uppercase().parse::<Setting>().unwrap(), setting);
        for bad in [row.minimum - 1, row.maximum + 1, i64::MAX] {
            let error = catalog.set_setting(setting, bad, Effect::Now).unwrap_err();
            assert_eq!(error.number(), Some(15129));
        }
        catalog
            .set_setting(setting, row.maximum, Effect::Now)
            .unwrap();
    }
    let unknown = "max worker threads".parse::<Setting>().unwrap_err();
    assert!(matches!(unknown, Error::UnknownSetting { .. }));
    assert_eq!(unknown.number(), Some(15123));
}
