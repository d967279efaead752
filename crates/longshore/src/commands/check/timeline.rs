//! Compares a primary's timeline with the one that a restore from its archive follows, and asks whether that restore would be
//! refused because another timeline has newer transactions.
//!
//! Invariants
//! - An encrypted archive without a key is no finding: of the WAL, only names are known then.
//! - A server that does not tell its timeline is a finding.
//!
//! Leaves to others: which of two timelines has newer WAL (`longshore-wal`).

use longshore_pg::client::{Connection, Error};
use longshore_pg::{Recovery, Timeline};
use longshore_repository::{Listing, Shelf};
use longshore_terminal::failure::Failure;
use longshore_wal::{Error as Refusal, WalArchive};

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

/// Whether a restore of the newest good backup that names no timeline would be refused.
pub fn plain(shelf: &Shelf, listing: &Listing, newest: Option<&str>, notes: &mut Notes) {
    let facts = listing.facts();
    let newest = facts.iter().find(|set| newest == Some(set.label.as_str()));
    let newest = newest.and_then(|set| Some((set.log?, set.finish_us)));
    // Other findings tell of an archive that cannot be read.
    let (Some((log, finish_us)), Ok(Some(archive))) = (newest, shelf.wal()) else {
        return;
    };
    if archive
        .identity()
        .is_none_or(|own| own.system != log.system)
    {
        return;
    }
    match archive.check_plain(&log, finish_us, &Recovery::default()) {
        // Without a key of an encrypted archive, the times are not known.
        Err(Refusal::Parted { parting, .. })
            if parting.left_us.is_none() || parting.began_us.is_none() => {}
        Err(refused @ Refusal::Parted { .. }) => {
            let failure = Failure::from(refused);
            notes.bad(
                "timeline",
                format!(
                    "a restore would be refused: {}; {}",
                    failure.text, failure.hint
                ),
            );
        }
        _ => {}
    }
}

fn asked(connection: &mut Connection) -> Result<Option<Timeline>, Error> {
    let rows = connection.query(SQL)?;
    let number = u32::from_str_radix(rows.text(0, 0)?, 16);
    Ok(number.ok().and_then(Timeline::new))
}
