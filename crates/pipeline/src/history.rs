//! What goes into the catalog, and where its facts come from.

use std::sync::Arc;

use longshore_media::{BackupDevice, MediaSet, SetHeader, SetTrailer, Totals};

use longshore_source::SourceSpec;

use crate::House;
use crate::request::RestoreRequest;

pub fn machine() -> String {
    String::new()
}
pub fn user() -> String {
    String::new()
}
pub fn time_zone_quarters(_unix_us: i64) -> i16 {
    0
}
pub fn record_backup(
    _h: &House,
    _d: &[Arc<dyn BackupDevice>],
    _s: &SetHeader,
    _t: &Totals,
    _b: u64,
    _f: usize,
) -> Result<(), String> {
    Ok(())
}
pub fn record_restore(
    _h: &House,
    _m: &MediaSet,
    _d: &[Arc<dyn BackupDevice>],
    _s: &SetHeader,
    _t: &SetTrailer,
    _r: &RestoreRequest,
    _now: i64,
) -> Result<(), String> {
    Ok(())
}

/// Where a source is, for people.
pub fn origin(source: &SourceSpec) -> String {
    match source {
        SourceSpec::Sqlite(path) => format!("sqlite:{}", path.display()),
        SourceSpec::Files(paths) => {
            let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
            format!("files:{}", paths.join(" "))
        }
    }
}
