//! How long a request is repeated.

use std::ops::RangeInclusive;
use std::time::Duration;

use object_store::{BackoffConfig, RetryConfig};

/// How long a request is repeated.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pub retries: usize,
    pub total: Duration,
    pub first_wait: Duration,
    pub longest_wait: Duration,
}

impl Patience {
    /// Below five minutes in all: a request is repeated with its first signature.
    pub const USUAL: Patience = Patience {
        // Time ends it.
        retries: usize::MAX,
        total: Duration::from_secs(180),
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(15),
    };

    /// The seconds that may be set.
    pub const SECONDS: RangeInclusive<u64> = 5..=240;

    /// [`Patience::USUAL`] for so many seconds. `None`: not one of [`Patience::SECONDS`].
    pub fn of(seconds: u64) -> Option<Patience> {
        let total = Duration::from_secs(seconds);
        Patience::SECONDS.contains(&seconds).then_some(Patience {
            total,
            ..Patience::USUAL
        })
    }

    pub fn retries(self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: self.first_wait,
                max_backoff: self.longest_wait,
                // The next wait is a random one up to so many times the last: with 2, they would not grow.
                base: 3.0,
            },
            max_retries: self.retries,
            retry_timeout: self.total,
        }
    }
}
