//! Refuses a backup that would wait in vain for its WAL to be archived.
//!
//! Invariants
//! - The refusal comes before any data moves, and names the next step.
//!
//! Leaves to others: whether it would (`pipeline`), and the way to the archive (`check/postgres.rs`).

use std::path::Path;

use longshore_io::Storage;
use longshore_pg::client::Options;
use longshore_pipeline::unarchived;

use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;

/// Errors: nobody archives the server's WAL, so that it never comes to `archive`.
pub fn refuse(storage: &dyn Storage, server: &Options, archive: &Path) -> Result<(), Failure> {
    let Some(why) = unarchived(storage, server, archive) else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Source,
        numbers::WAL_MISSING,
        why,
        "set archive_mode = on, which needs a restart, and archive_command (`longshore wal push %p --database NAME`); or run \
         `longshore wal receive`; or store the WAL in the backup: --with-wal",
    ))
}
