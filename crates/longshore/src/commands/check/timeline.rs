//! Compares a primary's timeline with the one that a restore from its archive follows.
//!
//! Invariants
//! - Only names in the archive are read, so an encrypted archive needs no key.
//! - A server that does not tell its timeline is a finding.
//!
//! Leaves to others: which of two timelines has newer WAL (`longshore-wal`), and refusing a restore
//! (`restore/parting.rs`).

use longshore_pg::Timeline;
use longshore_pg::client::{Connection, Error};
use longshore_wal::WalArchive;

use super::notes::Notes;

/// The first digits of a segment's name, which a primary's promotion changes at once; the control file follows later.
const SQL: &str = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

/// Whether the archive has a later timeline than this primary's.
pub fn look(connection: &mut Connection, archive: &WalArchive, notes: &mut Notes) {
    let what = "timeline";
    let own = match asked(connection) {
        Ok(Some(own)) => own,
        Ok(None) => return notes.look(what, "the server does not tell its timeline"),
        Err(e) => return notes.look(what, e.to_string()),
    };
    // The archive's own findings say why it cannot be listed.
    let Ok(latest) = archive.latest_after(own) else {
        return;
    };
    if latest == own {
        return notes.good(what, format!("{own}, which a restore follows"));
    }
    let path = archive.path().display();
    let file = format!("{:08X}", latest.number());
    notes.bad(
        what,
        format!(
            "this server is on timeline {own}, and {path} has timeline {latest}, which a restore follows: what this server writes \
             is not in it. To restore this server's data, use `longshore restore` with --target-timeline {own}. If timeline {latest} \
             is a restored copy's, stop its archiving and move {file}.history* and the names that begin with {file} out of the archive; \
             if it is the new primary's, stop this server"
        ),
    );
}

fn asked(connection: &mut Connection) -> Result<Option<Timeline>, Error> {
    let rows = connection.query(SQL)?;
    let number = u32::from_str_radix(rows.text(0, 0)?, 16);
    Ok(number.ok().and_then(Timeline::new))
}
