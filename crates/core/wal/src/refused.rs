//! The last push that an archive refused because the archive holds another branch's WAL. The server writes the refusal
//! to its own log, which is rarely read; a user who inspects the archive must see it, too.
//!
//! One line of text in the archive's file `refused`: the file's name, the host, microseconds since the Unix epoch. It
//! proves nothing and decides nothing, so a missing or damaged line counts as none.

use std::path::Path;

use longshore_facts as facts;
use longshore_io::{Clock, OpenHow, Via};
use longshore_pg::wal::WalName;

use super::WalArchive;
use super::staged::StagedFile;

const NAME: &str = "refused";
const LEN_MAX: usize = 512;

/// A push that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPush {
    pub name: WalName,
    /// The host that tried.
    pub host: String,
    /// Microseconds since the Unix epoch, by that host's clock.
    pub at_us: i64,
}

impl WalArchive {
    /// Records a push that is refused now. A failure to write it is ignored.
    pub(super) fn note_refusal(&self, name: WalName, clock: &dyn Clock) {
        let host: String = facts::host_name().split_whitespace().collect();
        let line = format!("{name} {host} {}\n", clock.wall_ns() / 1000);
        let write = || -> std::io::Result<()> {
            let Some(staged) = StagedFile::begin(self.dir.clone(), NAME)? else {
                return Ok(());
            };
            staged.file.write_all_at(line.as_bytes(), 0, Via::Cache)?;
            staged.publish(Path::new(NAME))
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "a refused push was not noted");
        }
    }

    /// The last push that was refused.
    pub fn refused(&self) -> Option<RefusedPush> {
        let file = self.dir.open(Path::new(NAME), OpenHow::Read).ok()?;
        let mut bytes = [0; LEN_MAX];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache).ok()?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?;
        let mut words = text.strip_suffix('\n')?.split(' ');
        let refused = RefusedPush {
            name: words.next()?.parse().ok()?,
            host: words.next()?.to_owned(),
            at_us: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(refused)
    }
}
