//! The last push that an archive refused because the archive holds another branch's WAL. The server writes the refusal
//! to its own log, which is rarely read; a user who inspects the archive must see it, too.
//!
//! One line of text in the archive's file `refused`: the file's name, the host, microseconds since the Unix epoch.
//!
//! Invariants
//! - The note proves nothing and decides nothing: a missing or damaged line counts as none, and a failure to write it
//!   is ignored.
//! - A refusal counts until the archive has taken segments for a day since; without a newer segment it stays.
//!
//! Leaves to others: refusing (`archive.rs`), and showing the warning (the programs).

use std::path::Path;

use longshore_facts as facts;
use longshore_io::Clock;
use longshore_pg::wal::WalName;

use super::WalArchive;
use super::place::{Often, Wanted};

/// The file of the note. A later refusal replaces whatever has this name.
pub const REFUSED_NAME: &str = "refused";
const LEN_MAX: usize = 512;

/// A server whose push is refused tries again every minute. If the archive has taken segments for longer than this since
/// the last refusal, by the hosts' clocks, the refused server archives elsewhere or is gone.
const CURRENT_US: i64 = 24 * 3600 * 1_000_000;

/// A push that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPush {
    pub name: WalName,
    /// The host that tried.
    pub host: String,
    /// Microseconds since the Unix epoch: by that host's clock, or by the clock of the archive's storage if that is later.
    /// A host whose clock is behind must not make its refusals look old.
    pub at_us: i64,
}

impl WalArchive {
    /// Records a push that is refused now. A failure to write it is ignored.
    pub(super) fn note_refusal(&self, name: WalName, clock: &dyn Clock) {
        let host: String = facts::host_name().split_whitespace().collect();
        let line = format!("{name} {host} {}\n", clock.wall_ns() / 1000);
        if let Err(error) = self
            .place
            .write(Path::new(REFUSED_NAME), line.as_bytes(), Often::Again)
        {
            tracing::debug!(%error, "a refused push was not noted");
        }
    }

    /// The last push that was refused.
    pub fn refused(&self) -> Option<RefusedPush> {
        let file = self
            .place
            .open(Path::new(REFUSED_NAME), Wanted::All)
            .ok()??;
        let mut bytes = [0; LEN_MAX];
        let len = file.len().ok()?.min(LEN_MAX as u64) as usize;
        file.read_exact_at(&mut bytes[..len], 0).ok()?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?;
        let mut words = text.strip_suffix('\n')?.split(' ');
        let mut refused = RefusedPush {
            name: words.next()?.parse().ok()?,
            host: words.next()?.to_owned(),
            at_us: words.next()?.parse().ok()?,
        };
        if let Ok(stat) = file.stat() {
            refused.at_us = refused.at_us.max(stat.mtime_ns / 1000);
        }
        words.next().is_none().then_some(refused)
    }

    /// The last push that was refused, unless the archive has taken segments for more than a day since. While there is
    /// one, the archive's WAL may be that of a branch which is not the running server's.
    pub fn refused_now(&self) -> Option<RefusedPush> {
        let refused = self.refused()?;
        let newest = self.newest_us();
        is_current(refused.at_us, newest).then_some(refused)
    }

    /// When the newest of the timelines' last segments was archived; `None` if that is not known.
    fn newest_us(&self) -> Option<i64> {
        let runs = self.runs().ok()?;
        let archived = |name| self.open_file(WalName::Segment(name)).ok();
        let times = runs.iter().filter_map(|run| archived(run.span.last));
        times.map(|file| file.stat().mtime_ns / 1000).max()
    }
}

impl RefusedPush {
    /// The warning for an operator who relies on the archive's WAL.
    pub fn warning(&self, archive: &Path) -> String {
        let (name, host, archive) = (self.name, &self.host, archive.display());
        format!(
            "{archive} refused {name} from {host}: two branches of the cluster archive there, and its WAL is that of the branch \
             that came first, perhaps not the running server's. Give that server an archive of its own \
             (`longshore wal create --archive NEW`), and make a full backup"
        )
    }
}

fn is_current(refused_us: i64, newest_us: Option<i64>) -> bool {
    newest_us.is_none_or(|newest_us| newest_us.saturating_sub(refused_us) <= CURRENT_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_the_archive_went_on_for_a_day() {
        let at = 1_700_000_000_000_000;
        assert!(is_current(at, None));
        assert!(is_current(at, Some(at - 30 * CURRENT_US)));
        assert!(is_current(at, Some(at)));
        assert!(is_current(at, Some(at + CURRENT_US)));
        assert!(!is_current(at, Some(at + CURRENT_US + 1)));
        assert!(!is_current(i64::MIN, Some(i64::MAX)));
    }
}
