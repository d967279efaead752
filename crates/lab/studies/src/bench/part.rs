//! Time and CPU time of one part of a bare program's work.

use longshore_io::Clock;

/// One part of the work, summed over a pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    pub bytes: u64,
    pub wall_s: f64,
    pub cpu_s: f64,
}

impl Part {
    /// Adds the time of `work`; the caller must add its bytes.
    pub fn time<T>(&mut self, clock: &dyn Clock, work: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (clock.now(), clock.thread_cpu());
        let result = work();
        self.wall_s += (clock.now() - wall).as_secs_f64();
        self.cpu_s += (clock.thread_cpu().saturating_sub(cpu)).as_secs_f64();
        result
    }

    pub fn gb(&self) -> f64 {
        self.bytes.max(1) as f64 / 1e9
    }

    pub fn gb_per_s(&self) -> f64 {
        self.gb() / self.wall_s.max(1e-9)
    }

    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / self.gb()
    }

    /// Wall and CPU seconds per 10^9 bytes.
    pub fn price(&self) -> Price {
        Price {
            wall_s: self.wall_s / self.gb(),
            cpu_s: self.cpu_s_per_gb(),
        }
    }
}

/// Seconds for 10^9 plain bytes, on one core.
#[derive(Debug, Clone, Copy, Default)]
pub struct Price {
    pub wall_s: f64,
    pub cpu_s: f64,
}

impl Price {
    pub fn plus(self, other: Price) -> Price {
        self.plus_times(other, 1.0)
    }

    pub fn plus_times(self, other: Price, times: f64) -> Price {
        Price {
            wall_s: self.wall_s + times * other.wall_s,
            cpu_s: self.cpu_s + times * other.cpu_s,
        }
    }

    /// 10^9 bytes per second that this many cores can reach at this price.
    pub fn limit_gb_per_s(&self, cores: usize) -> f64 {
        cores as f64 / self.wall_s.max(1e-9)
    }
}
