//! The form in which WAL is stored.
//!
//! A level and an algorithm come from one place: the first that names either of them has both.

use longshore_codec::{Algorithm, Level};
use longshore_wal::StorageForm;

use crate::context::Context;

/// How files are stored: the command's options, then the settings of the database's WAL, of the database, and the
/// defaults.
pub fn form(
    (algorithm, level): (Option<Algorithm>, Option<Level>),
    database: Option<&str>,
    context: &Context,
) -> StorageForm {
    let config = &context.config;
    let known = database.and_then(|name| config.database.get(name));
    let wal = known.and_then(|d| d.wal.as_ref());
    // A level belongs to an algorithm: both come from the first place that names either.
    let places = [
        (algorithm, level),
        wal.map_or((None, None), |w| (w.algorithm, w.level)),
        known.map_or((None, None), |d| (d.algorithm, d.level)),
        (config.defaults.algorithm, config.defaults.level),
    ];
    let level = places.iter().find(|(a, l)| a.is_some() || l.is_some());
    StorageForm {
        algorithm: places
            .iter()
            .find_map(|(algorithm, _)| *algorithm)
            .unwrap_or(Algorithm::QatDeflate),
        level: level.and_then(|(_, level)| *level).unwrap_or(Level::Low),
        verify: false,
    }
}
