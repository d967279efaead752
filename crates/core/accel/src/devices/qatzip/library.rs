//! The QATzip library: found, checked and loaded once.
//!
//! Invariants
//! - The library's own defaults are compared with the declarations here before any session is made; a library with
//!   other structures is refused.
//! - A file that other users could have changed is not loaded.
//! - A loaded library is never unloaded: its threads run for the life of the process.
//!
//! Leaves to others: sessions and calls (`session.rs`), and the declarations of its structures (`abi.rs`).

use std::ffi::{OsStr, c_void};
use std::path::Path;

use longshore_io::Distrust;
use longshore_io::loaded::{because, file_of, vetted};

use super::super::door::{Refusal, Trouble};
use super::abi::{self, Params};

/// `libqatzip.so.3`: 1.1.2 to 1.3.1, with one set of structures.
const MAJOR: &str = "3";

/// The entry points used, and the library's description of itself.
#[derive(Debug)]
pub struct Library {
    pub init: abi::Init,
    pub setup: abi::Setup,
    pub compress: abi::Compress,
    pub decompress: abi::Decompress,
    pub teardown: abi::Teardown,
    /// Memory that devices reach without a copy, if both functions exist.
    pub pinned: Option<(abi::Malloc, abi::Free)>,
    pub defaults: Params,
    pub version: String,
}

impl Library {
    /// Loads `name`, a file or a name for the loader's search, and compares its declarations with ours.
    pub fn load(name: &OsStr) -> Result<Library, Refusal> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Refusal::new(
                Trouble::LoadFailed,
                "QATzip is only used on x86-64 Linux",
            ));
        }
        let vetted = vetted(name).map_err(|e| distrusted(name, &e))?;
        // SAFETY: `new` demands a file whose initialisers may run in this process: it is the host's own QATzip, or a
        // file that the operator named for this purpose.
        let library =
            unsafe { libloading::Library::new(&vetted) }.map_err(|e| not_loaded(name, &e))?;
        let missing = |e| {
            let text = format!(
                "{} is not QATzip 1.1 to 1.3: {}",
                name.display(),
                because(&e)
            );
            Refusal::new(Trouble::EntryPointMissing, text)
        };
        // SAFETY: the declared types must be those of the functions. They are those of qatzip.h 1.1 to 1.3; a library with
        // another `QzSessionParamsDeflate_T` is refused by its defaults (`Params::read_by`), before a session is made.
        // `qzSetLogLevel` takes any number.
        let found = unsafe {
            let optional = |name: &std::ffi::CStr| library.get::<*const c_void>(name).is_ok();
            let pinned = match (library.get(c"qzMalloc"), library.get(c"qzFree")) {
                (Ok(malloc), Ok(free)) => Some((*malloc, *free)),
                _ => None,
            };
            if let Ok(set_log_level) = library.get::<abi::SetLogLevel>(c"qzSetLogLevel") {
                // The library's own log would appear in the middle of a backup's output.
                const SILENT: u32 = 0;
                set_log_level(SILENT);
            }
            let init: abi::Init = *library.get(c"qzInit").map_err(missing)?;
            let defaults = *library.get(c"qzGetDefaultsDeflate").map_err(missing)?;
            Library {
                init,
                setup: *library.get(c"qzSetupSessionDeflate").map_err(missing)?,
                compress: *library.get(c"qzCompress").map_err(missing)?,
                decompress: *library.get(c"qzDecompress").map_err(missing)?,
                teardown: *library.get(c"qzTeardownSession").map_err(missing)?,
                pinned,
                version: version(init, optional(c"qzCompress2")),
                defaults: Params::read_by(defaults).ok_or_else(|| foreign(name))?,
            }
        };
        if let Some(major) = found.version.strip_prefix("libqatzip.so.")
            && major.split(['.', ' ']).next() != Some(MAJOR)
        {
            return Err(foreign(name));
        }
        // Its threads run for the life of the process, and code that has run once is never unmapped.
        std::mem::forget(library);
        Ok(found)
    }
}

fn distrusted(name: &OsStr, distrust: &Distrust) -> Refusal {
    if distrust.is_missing() {
        let text = format!("{} was not found; install QATzip", name.display());
        return Refusal::new(Trouble::LibraryNotFound, text);
    }
    let text = format!("cannot load {}: {distrust}", name.display());
    Refusal::new(Trouble::LoadFailed, text)
}

fn not_loaded(name: &OsStr, error: &libloading::Error) -> Refusal {
    let text = because(error);
    // The loader names the missing file: the library itself, or one that it needs.
    let itself = format!("{}: cannot open shared object file", name.display());
    if text.contains(&itself) {
        let text = format!("{} was not found; install QATzip", name.display());
        return Refusal::new(Trouble::LibraryNotFound, text);
    }
    Refusal::new(
        Trouble::LoadFailed,
        format!("cannot load {}: {text}", name.display()),
    )
}

fn foreign(name: &OsStr) -> Refusal {
    let text = format!(
        "{} has other structures or defaults than QATzip 1.1 to 1.3; use a release build of those versions",
        name.display()
    );
    Refusal::new(Trouble::VersionNotCompatible, text)
}

/// QATzip on Linux does not report its version; its file name contains libtool's (`3.2.0` is QATzip 1.3.1), its
/// functions show the API's.
fn version(function: abi::Init, has_compress2: bool) -> String {
    let file = file_of(function as usize);
    let file = file.as_deref().and_then(Path::file_name);
    let file = file.map_or("unknown".into(), |name| name.to_string_lossy());
    let api = if has_compress2 { "2.5" } else { "2.3" };
    format!("{file} (API {api})")
}
