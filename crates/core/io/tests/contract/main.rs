//! Goal: every implementation keeps the contracts of the door traits: the real file system with and without `openat2`,
//! in sandboxes that refuse newer calls, and the simulated disk. The doubles of other rooms run the `suite`, too.
//! Method: each promise of the `suite` becomes a test of each implementation. Promises of a single implementation have
//! modules of their own. A clock that lies in one thing must break the contract of clocks.

mod claims;
mod clock;
mod faults;
mod host;
mod lies;
mod model;
mod power;
mod sandbox;
#[macro_use]
mod suite;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_io::{Clock, Host, HostClock, SimClock, SimDisk, Storage};
use longshore_kit::random::noise;
use suite::alone::{self, Lone};
use suite::{Place, all, keeps_its_contract, put};

impl Place {
    fn on_the_host(host: Host) -> Self {
        // The umask that the simulated disk assumes; the user who runs the tests may have another.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Place::in_a(temporary, Arc::new(host))
    }

    fn simulated() -> Self {
        let disk = SimDisk::new(1);
        let path = PathBuf::from("/some/place");
        Place {
            dir: disk.create_dir_all(&path).unwrap(),
            storage: Arc::new(disk),
            path,
            _temporary: None,
        }
    }
}

/// Every promise, kept by every implementation.
macro_rules! contract {
    ($($room:ident: $($promise:ident)*;)*) => {
        mod the_host { $($(#[test] fn $promise() {
            crate::suite::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::new()));
        })*)* }
        mod the_host_without_openat2 { $($(#[test] fn $promise() {
            crate::suite::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::without_openat2()));
        })*)* }
        mod the_host_in_a_sandbox { $($(#[test] fn $promise() {
            let keep = || crate::suite::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::new()));
            crate::sandbox::refusing(rustix::io::Errno::PERM, keep);
            crate::sandbox::refusing(rustix::io::Errno::NOSYS, keep);
        })*)* }
        mod the_simulated_disk { $($(#[test] fn $promise() {
            crate::suite::$room::$promise(&crate::Place::simulated());
        })*)* }
    };
}

promises!(contract);

/// As the doubles of other rooms run it.
#[test]
fn a_storage_keeps_all_promises_one_after_another() {
    keeps_its_contract(&Place::simulated);
}

/// As other rooms run it over files that no directory has.
#[test]
fn a_file_keeps_its_promises_without_its_name() {
    for place in [Place::on_the_host(Host::new()), Place::simulated()] {
        alone::keeps_its_contract(&|name| Lone {
            file: put(&*place.dir, name, b""),
            synced: Ok(()),
        });
    }
}

/// The system's number of the error that a call gave.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn the_hosts_clock_and_the_simulated_one_keep_the_contract() {
    clock::keeps_its_contract(&HostClock);
    clock::keeps_its_contract(&SimClock::new(1_700_000_000_000_000_000));
}

/// The host's clock, but for one thing.
#[derive(Debug)]
struct LyingClock {
    lie: ClockLie,
    begun: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ClockLie {
    None,
    StandsStill,
    GoesBack,
    WakesEarly,
    CountsAllThreads,
    DateInMicroseconds,
}

impl Clock for LyingClock {
    fn now(&self) -> Duration {
        match self.lie {
            ClockLie::StandsStill => Duration::ZERO,
            ClockLie::GoesBack => Duration::from_secs(3600) - self.begun.elapsed(),
            _ => HostClock.now(),
        }
    }

    fn wall_ns(&self) -> i64 {
        match self.lie {
            ClockLie::DateInMicroseconds => HostClock.wall_ns() / 1000,
            _ => HostClock.wall_ns(),
        }
    }

    fn thread_cpu(&self) -> Duration {
        match self.lie {
            ClockLie::CountsAllThreads => self.begun.elapsed(),
            _ => HostClock.thread_cpu(),
        }
    }

    fn sleep(&self, how_long: Duration) {
        match self.lie {
            ClockLie::WakesEarly => HostClock.sleep(how_long / 2),
            _ => HostClock.sleep(how_long),
        }
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_clock_breaks_the_contract() {
    for lie in [
        ClockLie::None,
        ClockLie::StandsStill,
        ClockLie::GoesBack,
        ClockLie::WakesEarly,
        ClockLie::CountsAllThreads,
        ClockLie::DateInMicroseconds,
    ] {
        let begun = Instant::now();
        let clock = LyingClock { lie, begun };
        let checked = std::panic::catch_unwind(|| clock::keeps_its_contract(&clock));
        assert_eq!(checked.is_ok(), lie == ClockLie::None, "{lie:?}");
    }
}
