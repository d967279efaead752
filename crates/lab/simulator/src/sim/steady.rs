//! Whether a run has reached its steady state, measured by throughput, window by window.
//!
//! Windows are as long as the policy needs for about forty of its steps, so that a slow climb shows as a difference.
//!
//! Invariants
//! - A run is steady only when three windows in a row are equal within chance, each with each.
//! - The allowed difference follows from the requests' lengths, within 1 to 2 %.
//!
//! Leaves to others: whether the policy steers yet, and what to do with a run that never becomes steady (the
//! simulation).

use longshore_policy::model::Nanos;

/// The number of windows compared.
const WINDOWS: usize = 3;
/// The bounds of the allowed difference of windows, for any amount of chance.
const TOLERANCE: (f64, f64) = (0.01, 0.02);

/// The work done in one window.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    bytes: f64,
    /// The sum of the squares of the requests' lengths: twice its root is the difference that chance may cause.
    squares: f64,
    us: f64,
}

impl Window {
    fn rate(self) -> f64 {
        self.bytes / self.us.max(f64::MIN_POSITIVE)
    }

    fn tolerance(self) -> f64 {
        let chance = 2.0 * self.squares.sqrt() / self.bytes.max(1.0);
        chance.clamp(TOLERANCE.0, TOLERANCE.1)
    }
}

/// Observes a run while it warms up.
#[derive(Debug)]
pub(super) struct WarmupWatch {
    window: Nanos,
    began: Nanos,
    now: Window,
    last: Vec<Window>,
}

impl WarmupWatch {
    /// Windows of 1 ns or more.
    pub(super) fn new(window: Nanos) -> WarmupWatch {
        WarmupWatch {
            window: window.max(1),
            began: 0,
            now: Window::default(),
            last: Vec::new(),
        }
    }

    /// Counts a finished request.
    pub(super) fn ended(&mut self, bytes: u64) {
        self.now.bytes += bytes as f64;
        self.now.squares += (bytes as f64).powi(2);
    }

    /// Whether the run is steady at this moment.
    pub(super) fn is_steady(&mut self, now: Nanos) -> bool {
        if now < self.began + self.window {
            return false;
        }
        let us = (now - self.began) as f64 / 1000.0;
        self.last.push(Window { us, ..self.now });
        if self.last.len() > WINDOWS {
            self.last.remove(0);
        }
        (self.began, self.now) = (now, Window::default());
        let alike = |a: &Window, b: &Window| {
            let tolerance = a.tolerance().max(b.tolerance());
            (a.rate() - b.rate()).abs() <= tolerance * a.rate().max(b.rate())
        };
        let all = |(at, a): (usize, &Window)| self.last[at..].iter().all(|b| alike(a, b));
        self.last.len() == WINDOWS && self.last.iter().enumerate().all(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a run with that many requests in each window counts as steady.
    fn steady_after(requests: impl Fn(u64) -> u64) -> Option<u64> {
        let mut settling = WarmupWatch::new(1000);
        (1..100).find(|n| {
            (0..requests(*n)).for_each(|_| settling.ended(4096));
            settling.is_steady(n * 1000)
        })
    }

    #[test]
    fn a_climb_is_not_steady_before_its_end_and_chance_does_not_keep_a_run_from_it() {
        assert_eq!(steady_after(|_| 40_000), Some(3));
        let climb = |n: u64| 40_000 + 2_000 * n.min(30);
        assert_eq!(steady_after(climb), Some(32));
        // Few requests differ more by chance; a rate that rises and falls is not steady.
        assert_eq!(steady_after(|n| 9_000 + 150 * (n % 2)), Some(3));
        assert_eq!(steady_after(|n| 90_000 + 1_500 * (n % 2)), None);
        assert_eq!(steady_after(|n| 40_000 + 4_000 * (n % 2)), None);
        let mut settling = WarmupWatch::new(1000);
        assert!(!settling.is_steady(999));
    }
}
