//! Names that a restore changes (MOVE).

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Linux's limit on one name, in bytes (NAME_MAX of `limits.h`).
const NAME_MAX: usize = 255;

/// Refuses moves that leave the target or contradict each other. Errors: [`Error::BadMove`].
pub fn check_moves(moves: &[(PathBuf, PathBuf)]) -> Result<(), Error> {
    let safe = |p: &Path| longshore_media::manifest::safe_path(p.as_os_str().as_bytes()).is_ok();
    let (mut sources, mut targets) = (HashSet::new(), HashSet::new());
    for (from, to) in moves {
        let bad = |what| Error::BadMove {
            from: from.clone(),
            to: to.clone(),
            what,
        };
        if !safe(from) || !safe(to) {
            return Err(bad("a path is absolute, empty or contains `.` or `..`"));
        }
        if to.iter().any(|name| name.len() > NAME_MAX) {
            return Err(bad("a name is longer than 255 bytes"));
        }
        if !targets.insert(to) || !sources.insert(from) {
            return Err(bad("a path is named twice"));
        }
    }
    Ok(())
}

/// A path of the set after the moves: the longest moved ancestor decides.
pub fn moved(moves: &[(PathBuf, PathBuf)], path: &Path) -> PathBuf {
    let longest = moves
        .iter()
        .filter(|(from, _)| path.starts_with(from))
        .max_by_key(|(from, _)| from.as_os_str().len());
    match longest.map(|(from, to)| (to, path.strip_prefix(from))) {
        Some((to, Ok(rest))) if !rest.as_os_str().is_empty() => to.join(rest),
        Some((to, _)) => to.clone(),
        None => path.into(),
    }
}
