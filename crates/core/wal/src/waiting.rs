//! Waits for files that another process writes.

use std::time::Duration;

use longshore_io::Clock;
use longshore_pg::wal::WalName;

use super::Error;

/// How long to wait for a file that another process writes, and the interval between checks.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
pub(super) const WAIT_STEP: Duration = Duration::from_millis(2);

/// Asks until there is an answer, or the time is over.
pub(super) fn wait<T>(
    patience: Duration,
    name: WalName,
    clock: &dyn Clock,
    mut ask: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let start = clock.now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if clock.now().saturating_sub(start) >= patience {
            let waited_s = patience.as_secs();
            return Err(Error::Busy { name, waited_s });
        }
        clock.sleep(WAIT_STEP);
    }
}
