//! One server with a queue in front of it.

use super::Nanos;

/// Serves one request at a time, in order of arrival. Calls must come in order of arrival.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    free_at: Nanos,
}

impl Server {
    /// When a request that arrives at `at` and takes `service` is done.
    pub fn serve(&mut self, at: Nanos, service: Nanos) -> Nanos {
        self.free_at = self.free_at.max(at) + service;
        self.free_at
    }
}
