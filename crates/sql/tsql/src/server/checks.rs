//! The last good DBCC CHECKDB of each database, in the history.
//!
//! Invariants
//! - A check is one of the present database only if that was checked: its file or its server's address is as it was, and a
//!   file is no newer than the check.
//! - A history that cannot be written makes no check fail: the error log says so.
//!
//! Leaves to others: the checks (`statement/checkdb.rs`), and whether anything of a history is read (`persistent.rs`).

use longshore_catalog::{RunOutcome, RunRecord, RunTask};
use longshore_pipeline::{SourceSpec, origin, time_zone_quarters};

use super::{Database, Server, local};
use crate::value::DateTime;

/// The exit code of a run that found damage.
const DAMAGED: u8 = 1;

impl Server {
    /// Microseconds since the Unix epoch.
    pub(crate) fn now_us(&self) -> i64 {
        self.setup.context.clock.wall_ns() / 1000
    }

    /// Records a check that began at `start_us` and has ended, with or without findings.
    pub(crate) fn record_check(&self, database: &Database, start_us: i64, is_sound: bool) {
        // Nobody asked for a history.
        if self.setup.context.catalog.is_none() {
            return;
        }
        let finish_us = self.now_us();
        let record = RunRecord {
            task: RunTask::CheckDb,
            database: Some(database.name.clone()),
            target: None,
            label: None,
            set: None,
            devices: vec![origin(&database.source)],
            start_us,
            finish_us,
            time_zone: time_zone_quarters(finish_us),
            outcome: match is_sound {
                true => RunOutcome::Good,
                false => RunOutcome::Damaged,
            },
            exit_code: if is_sound { 0 } else { DAMAGED },
            number: None,
            bytes: None,
            message: None,
        };
        let recorded = self.catalog().map_err(|e| e.text).and_then(|catalog| {
            let kept = catalog.record_run(&record);
            kept.map_err(|e| e.to_string())
        });
        if let Err(error) = recorded {
            let text = format!(
                "DBCC CHECKDB ({}) is not in the history: {error}",
                database.name
            );
            self.write_log("Server", &text);
        }
    }

    /// When the last check without findings ended; `None`: none is known of this database.
    pub(crate) fn last_good_check(&self, database: &str) -> Option<DateTime> {
        self.known_catalog()?;
        let found = self.database(database).ok()??;
        let place = origin(&found.source);
        let last = self.catalog().ok()?.last_good_check(&found.name, &place);
        let finish_us = last.ok()??;
        let is_newer = |path| {
            let birth = self.setup.context.storage.birth_ns(path).ok().flatten();
            birth.is_some_and(|ns| ns.div_euclid(1000) > finish_us)
        };
        let is_other = matches!(&found.source, SourceSpec::Sqlite(path) if is_newer(path));
        (!is_other).then(|| local(finish_us))
    }
}
