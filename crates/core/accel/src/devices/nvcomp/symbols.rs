//! Tables of C functions that are looked up in a library at run time.

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;

use libloading::Library;
use longshore_io::loaded::vetted;

use crate::devices::door::{Refusal, Trouble};

/// Opens a library and never closes it: code that has run once stays mapped.
pub(super) fn open(name: &OsStr) -> Result<&'static Library, Refusal> {
    let vetted = vetted(name).map_err(|distrust| {
        let trouble = match distrust.is_missing() {
            true => Trouble::LibraryNotFound,
            false => Trouble::LoadFailed,
        };
        Refusal::new(
            trouble,
            format!("cannot load {}: {distrust}", name.display()),
        )
    })?;
    // SAFETY: `new` demands a file whose initialisers may run in this process: it is the host's own library, or a file
    // that the operator named for this purpose.
    match unsafe { Library::new(&vetted) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(e) => {
            // The outer error only repeats which function was called.
            let cause = e.source().map_or_else(|| e.to_string(), |c| c.to_string());
            let trouble = match Path::new(name).exists() {
                true => Trouble::LoadFailed,
                false => Trouble::LibraryNotFound,
            };
            let text = format!("cannot load {}: {cause}", name.display());
            Err(Refusal::new(trouble, text))
        }
    }
}

/// Declares a struct of function pointers and how to find them by name.
macro_rules! functions {
    ($(#[$doc:meta])* struct $table:ident { $($field:ident = $symbol:literal ($($arg:ty),* $(,)?) $(-> $ret:ty)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $table {
            $($field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl $table {
            /// Finds all of them; the error names a missing one.
            ///
            /// # Safety
            /// The library's functions must have the declared types.
            unsafe fn find(
                library: &'static libloading::Library,
            ) -> Result<$table, crate::devices::door::Refusal> {
                let missing = |symbol: &str| crate::devices::door::Refusal::new(
                    crate::devices::door::Trouble::EntryPointMissing,
                    format!("it has no function {symbol}"),
                );
                Ok($table {
                    // SAFETY: `get` demands the functions' own types and that no function outlives the library: the
                    // caller vouches for the types, and the library is never closed.
                    $($field: *unsafe { library.get($symbol) }.map_err(|_| missing($symbol))?,)*
                })
            }
        }
    };
}
pub(super) use functions;
