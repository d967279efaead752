//! Settings of the original that the restored server does without, and one that would make it use the original's directory.
//!
//! Invariants
//! - Nothing is changed, and nothing fails: a file that cannot be read names none.
//! - Memory is bounded.
//!
//! Leaves to others: overruling them (`longshore-pg`'s `recovery.rs`), and files outside the data directory, which a restore
//! overrules, too, and does not read.

use std::path::Path;

use longshore_io::Storage;
use longshore_pg::Recovery;
use longshore_pg::recovery::{data_directory, overruled};

use super::names::AUTO_CONF;
use super::subscribed::text;

/// The bytes that are read of a file.
const LEN_MAX: u64 = 1 << 20;

/// The note about the settings that the restore to `data` has overruled; `None`: there is none.
pub fn told_of_overruled(
    storage: &dyn Storage,
    data: &Path,
    recovery: &Recovery,
) -> Option<String> {
    if recovery.standby {
        return None;
    }
    let dir = storage.dir(data).ok()?;
    let files = ["postgresql.conf", AUTO_CONF];
    let texts = files.map(|name| text(&*dir, Path::new(name), LEN_MAX).unwrap_or_default());
    let mut names: Vec<_> = texts.iter().flat_map(|text| overruled(text)).collect();
    names.sort_unstable();
    names.dedup();
    // The restore's own.
    names.retain(|name| recovery.end_command.is_none() || *name != "recovery_end_command");
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "settings of the original that this server does without: {}. `--recovery-settings keep` or `--standby` keeps them",
        names.join(", ")
    ))
}

/// The warning about a setting in the restored configuration with which a server that is started on `data` uses another directory,
/// the original's perhaps; `None`: it has none.
pub fn told_of_data_directory(storage: &dyn Storage, data: &Path) -> Option<String> {
    let dir = storage.dir(data).ok()?;
    let conf = text(&*dir, Path::new("postgresql.conf"), LEN_MAX).ok()?;
    let named = data_directory(&conf)?;
    let real = |path: &Path| storage.canonical(path).unwrap_or_else(|_| path.to_owned());
    let own = real(data);
    // A server takes a relative one from where it is started.
    if Path::new(&named).is_absolute() && real(Path::new(&named)) == own {
        return None;
    }
    let at = own.display();
    Some(format!(
        "postgresql.conf of this cluster sets data_directory = '{named}': a server that is started on {at} uses that directory, the \
         original's perhaps. Remove the line, or start it with pg_ctl -D {at} -o '-c data_directory={at}' start"
    ))
}
