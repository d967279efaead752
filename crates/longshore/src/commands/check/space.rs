//! Checks the room that a target's directories have, and whether they take files at all.
//!
//! Invariants
//! - The newest complete full backup is the measure, whatever was made since: the next one of its kind has to fit.
//! - A directory with nearly no free bytes is a failure, also where there is nothing to compare with.
//! - Nothing is written to find out whether files can be made. Root is asked about the owner's rights where another
//!   user's backups are.
//!
//! Leaves to others: buckets, which have no known end (`check.rs`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longshore_facts as facts;
use longshore_repository::{BackupEntry, BackupKind, BackupState, Listing, Shelf};

use super::notes::{Grade, Notes};
use crate::context::Context;
use longshore_terminal::output::bytes;

/// Fewer free bytes than this are none: not even a small backup fits.
const FREE_MIN: u64 = 1 << 20;

/// The owner's rights to make files in a directory.
const OWNER_WRITES: u32 = 0o300;

/// Whether files can be made in a directory of the target at all: a disk with an error becomes read-only.
fn takes_files(dir: &Path) -> Result<(), String> {
    let volume = match facts::volume_of(dir) {
        Ok(volume) => volume,
        Err(e) => return Err(format!("{}: {e}", dir.display())),
    };
    match (volume.is_read_only, volume.free_files) {
        (true, _) => Err(format!("the file system of {} is read-only", dir.display())),
        (false, Some(0)) => Err(format!("{} has room for no more files", dir.display())),
        (false, _) => Ok(()),
    }
}

/// Whether the user whose backups these are may make files in a directory; root may everywhere, so the directory's owner is
/// asked about then.
fn is_writable(dir: &Path) -> Result<(), String> {
    let stat = std::fs::metadata(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (uid, owner) = (facts::own_ids().0, stat.uid());
    if uid == 0 && owner != 0 {
        let name = facts::name_of(owner).unwrap_or_else(|_| format!("#{owner}"));
        return match stat.mode() & OWNER_WRITES == OWNER_WRITES {
            true => Ok(()),
            false => Err(format!(
                "{name}, whose directory {} is, may not make files in it: `chmod u+wx` it",
                dir.display()
            )),
        };
    }
    match facts::may_write(dir) {
        Ok(()) => Ok(()),
        Err(e) => Err(format!(
            "{} may not make files in {} ({e}): give it back to the backups' user, or `chmod u+wx` it",
            facts::user_name(),
            dir.display()
        )),
    }
}

/// The finding on a directory with `free` bytes, to which the newest full backup wrote `each`.
fn judged_space(dir: &Path, free: u64, each: Option<u64>) -> (Grade, String) {
    let text = format!("{} has {} free", dir.display(), bytes(free));
    if free < FREE_MIN {
        return (Grade::Bad, format!("{text}: it is full"));
    }
    match each {
        Some(each) if free < each => {
            let took = format!("{text}, the newest full backup took {}", bytes(each));
            (Grade::Bad, took)
        }
        Some(each) if free < each.saturating_mul(3) => (Grade::Look, text),
        _ => (Grade::Good, text),
    }
}

/// Whether the next full backup fits if it is as large as the newest one, and whether a directory takes files at all.
pub fn look(shelf: &Shelf, listing: &Listing, context: &Context, notes: &mut Notes) {
    // A backup that ran out of space is not complete, and says nothing of what one takes.
    let is_full = |set: &&BackupEntry| set.facts().kind == BackupKind::Full;
    let whole = listing.sets.iter().rev().filter(is_full);
    let expected = whole.filter_map(BackupEntry::complete).next();
    let count = shelf.target.count().max(1) as u64;
    let each = expected.map(|complete| complete.stored_bytes / count);
    for dir in shelf.target.directories() {
        let below = dir.join(&shelf.database);
        let below = Some(below).filter(|below| below.exists());
        let takes = takes_files(dir).and_then(|()| {
            let places = [Some(dir), below.as_ref()];
            places
                .into_iter()
                .flatten()
                .try_for_each(|place| is_writable(place))
        });
        if let Err(why) = takes {
            notes.bad("space", why);
            continue;
        }
        let free = context.storage.dir(dir).and_then(|d| d.free_bytes());
        match free {
            Err(e) => notes.bad("space", format!("{}: {e}", dir.display())),
            Ok(free) => {
                let (grade, text) = judged_space(dir, free, each);
                notes.note("space", grade, text);
            }
        }
    }
    let is_written = |set: &BackupEntry| matches!(set.state, BackupState::Writing { .. });
    if listing.sets.iter().any(is_written) {
        notes.good("backup", "one is being written now");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a disk on which the next backup does not fit is a failure before that backup is, and one on which two more
    /// do not fit is a warning.
    #[test]
    fn a_disk_is_full_for_a_backup_as_large_as_the_newest_full_one() {
        let judged = |free, each| judged_space(Path::new("/bak"), free, each);
        let each = Some(100 * FREE_MIN);
        assert_eq!(judged(0, Some(1)).0, Grade::Bad);
        assert_eq!(judged(0, None).0, Grade::Bad);
        assert_eq!(judged(FREE_MIN - 1, None).0, Grade::Bad);
        assert_eq!(judged(FREE_MIN, None).0, Grade::Good);
        assert_eq!(judged(100 * FREE_MIN - 1, each).0, Grade::Bad);
        assert_eq!(judged(100 * FREE_MIN, each).0, Grade::Look);
        assert_eq!(judged(300 * FREE_MIN - 1, each).0, Grade::Look);
        assert_eq!(judged(300 * FREE_MIN, each).0, Grade::Good);
        assert_eq!(judged(u64::MAX, Some(u64::MAX)).0, Grade::Good);
        let told = judged(99 * FREE_MIN, each).1;
        assert!(told.contains("/bak has 99"), "{told}");
        assert!(told.contains("the newest full backup took 100"), "{told}");
    }
}
