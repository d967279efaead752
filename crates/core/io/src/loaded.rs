//! Libraries loaded at run time: which may be loaded, which file it was, and why loading failed.
//!
//! Loading runs the library's code with this user's rights.
//!
//! Invariants
//! - A path is passed on only if it is absolute and no other user can change the file or a directory above it; the
//!   loader gets its real path.
//! - A bare name is left to the loader, but refused while `LD_LIBRARY_PATH` names a directory that another user can
//!   change, or could create.
//!
//! Leaves to others: the rule of trust (`trust.rs`); which libraries are wanted, and loading and calling them
//! (`longshore-accel`).

use std::error::Error;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::trust::{Distrust, trusted};

/// Write permission for the group or for others.
const SHARED_WRITE: u32 = 0o022;

/// The name to give to the loader for `name`: the real path of a file that nobody else can change, or a bare name,
/// which the loader looks for in the system's directories. Loading runs code with our rights. So a path must be
/// absolute, and a bare name is refused while `LD_LIBRARY_PATH` includes a directory of another user.
pub fn vetted(name: &OsStr) -> Result<OsString, Distrust> {
    if name.as_bytes().contains(&b'/') {
        return trusted(Path::new(name), &[]).map(PathBuf::into_os_string);
    }
    let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    search_path(&searched)?;
    Ok(name.to_owned())
}

/// Errors: another user can write to a directory of a loader's search path. An empty entry is the working directory.
fn search_path(searched: &OsStr) -> Result<(), Distrust> {
    if searched.is_empty() {
        return Ok(());
    }
    for entry in searched.as_bytes().split(|b| b":;".contains(b)) {
        let dir = Path::new(OsStr::from_bytes(entry));
        match trusted(dir, &[]) {
            Ok(_) => {}
            Err(distrust) if distrust.is_missing() => missing(dir)?,
            Err(distrust) => return Err(distrust),
        }
    }
    Ok(())
}

/// A missing directory must not be one that another user can create.
fn missing(dir: &Path) -> Result<(), Distrust> {
    let there = dir.ancestors().skip(1).find(|dir| dir.exists());
    let real = trusted(there.unwrap_or(Path::new("/")), &[])?;
    let mode = real.metadata().map_or(0, |stat| stat.mode());
    match mode & SHARED_WRITE {
        0 => Ok(()),
        _ => Err(Distrust::Writable {
            path: real,
            mode: mode & 0o7777,
        }),
    }
}

/// The real name of the file that holds the function at this address: it often tells the version.
pub fn file_of(function: usize) -> Option<PathBuf> {
    // SAFETY: `zeroed` demands a type for which zeros are valid: `Dl_info` is plain pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr demands room for one `Dl_info`, which outlives the call; it only looks the address up, whatever it
    // is.
    let found = unsafe { libc::dladdr(function as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `from_ptr` demands a C string that lives: dladdr gave one that lives as long as the library, which nobody
    // here unloads.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
}

/// The loader's error, in one line.
pub fn because(error: &dyn Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_files_that_no_other_user_can_change_are_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libx.so");
        fs::write(&library, "").unwrap();
        fs::set_permissions(&library, fs::Permissions::from_mode(0o755)).unwrap();
        let real = library.canonicalize().unwrap();
        assert_eq!(vetted(library.as_os_str()).unwrap(), real);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = vetted(library.as_os_str()).unwrap_err();
        assert!(matches!(refused, Distrust::Writable { .. }), "{refused}");
        for relative in ["./libx.so", "x/libx.so"] {
            let refused = vetted(OsStr::new(relative)).unwrap_err();
            assert!(matches!(refused, Distrust::Relative { .. }), "{refused}");
        }
    }

    #[test]
    fn a_search_path_with_somebody_elses_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |text: &str| search_path(OsStr::new(text));
        let (own, open) = (dir.path().join("own"), dir.path().join("open"));
        for (place, mode) in [(&own, 0o755), (&open, 0o777)] {
            fs::create_dir(place).unwrap();
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (own, open) = (own.display(), open.display());
        assert!(path("").is_ok());
        assert!(path(&format!("{own}:{own}/none")).is_ok());
        for bad in [
            ":",
            ".",
            &format!("{own}:"),
            &format!("{own};{open}"),
            "/tmp/longshore-nobody-made-this",
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}
