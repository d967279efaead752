//! One action through the public interface, timed from outside the pipeline, with figures of the whole machine.
//!
//! Invariants
//! - Time and CPU are read outside the pipeline, around the whole action.
//! - A figure that the machine does not have, such as a temperature, is `None`.
//! - Temperatures are peaks during the action, of the processors and of the drives that a backup is written to.
//!
//! Leaves to others: sensors (`heat.rs`), repeating and medians (`spread.rs`), and showing figures (`report/`).

use anyhow::{Result, bail};
use longshore_facts::{self as facts, Temperatures};
use longshore_pipeline::{
    EngineShare, Limit, NullObserver, Report, Request, Run, RunContext, Sample, mb_per_s, ratio,
    run,
};

use crate::heat::{peak_during, sensors_for};

/// In a backup that counts as hardware, an accelerator compresses at least this share; a lower share is reported and
/// does not count.
pub const IN_HARDWARE: f64 = 0.9;

/// The time and the results of an action.
#[derive(Debug, Clone)]
pub struct Timing {
    pub wall_s: f64,
    /// CPU seconds of this process.
    pub cpu_s: f64,
    /// CPU use of the whole machine, all programs.
    pub system_cpu_percent: Option<f64>,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// The hottest sensor of the processors at its peak; `None` without one, as in virtual machines.
    pub cpu_c: Option<f64>,
    /// The hottest of the drives that the backup was written to, at its peak.
    pub drive_c: Option<f64>,
    /// The most sensors that did not answer one reading: of these no temperature is known.
    pub silent_sensors: usize,
    /// Source bytes that were not in the page cache.
    pub cold_bytes: u64,
    /// Regular files of the source.
    pub file_count: u64,
    pub limit: Limit,
    /// How much each engine compressed.
    pub engines: Vec<EngineShare>,
    /// One for each second of the run; none of a run that was shorter than a moment.
    pub samples: Vec<Sample>,
    /// BUFFERCOUNT and MAXTRANSFERSIZE of the run.
    pub buffers: (usize, usize),
    /// How busy each processor was, in percent, all programs included.
    pub core_percents: Vec<f64>,
}

impl Timing {
    /// MB/sec as SQL Server counts: units of 2^20 bytes, uncompressed.
    pub fn mb_per_s(&self) -> f64 {
        mb_per_s(self.plain_bytes, self.wall_s)
    }

    /// The part of the plain bytes that came from the disk, 0 to 100.
    pub fn cold_percent(&self) -> f64 {
        100.0 * self.cold_bytes as f64 / self.plain_bytes.max(1) as f64
    }

    /// 10^9 uncompressed bytes per second.
    pub fn gb_per_s(&self) -> f64 {
        self.plain_bytes as f64 / 1e9 / self.wall_s.max(1e-9)
    }

    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / (self.plain_bytes.max(1) as f64 / 1e9)
    }

    /// The part of the plain bytes that accelerators compressed, 0 to 1.
    pub fn accelerator_share(&self) -> f64 {
        let of = |is_accelerator: bool| -> u64 {
            let engines = self.engines.iter();
            let engines = engines.filter(|e| e.is_accelerator == is_accelerator);
            engines.map(|e| e.plain_bytes).sum()
        };
        of(true) as f64 / (of(true) + of(false)).max(1) as f64
    }

    /// The share of the plain bytes that each engine compressed; `None`: nothing was compressed.
    pub fn compressed_by(&self) -> Option<String> {
        let all: u64 = self.engines.iter().map(|e| e.plain_bytes).sum();
        let shares = self.engines.iter().filter(|e| e.plain_bytes > 0);
        let shares: Vec<String> = shares
            .map(|e| {
                let percent = 100.0 * e.plain_bytes as f64 / all.max(1) as f64;
                format!("{} {percent:.1} %", e.name)
            })
            .collect();
        (!shares.is_empty()).then(|| shares.join(", "))
    }

    /// The mean of the seconds' latencies of uncached reads; `None`: there were none, or the run was too short.
    pub fn read_latency_us(&self) -> Option<f64> {
        let seconds = self.samples.iter().filter_map(|s| s.read_latency_us);
        let seconds: Vec<f64> = seconds.map(|us| us as f64).collect();
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    pub fn ratio(&self) -> f64 {
        ratio(self.plain_bytes, self.stored_bytes)
    }
}

/// Runs `request` and measures it.
pub fn take(context: &RunContext, request: &Request) -> Result<Timing> {
    let (taken, peak) = peak_during(&sensors_for(request), || take_alone(context, request));
    let Temperatures { cpu_c, drive_c, .. } = peak;
    taken.map(|taken| Timing {
        cpu_c,
        drive_c,
        silent_sensors: peak.cpu_silent + peak.drive_silent,
        ..taken
    })
}

/// Without temperatures.
fn take_alone(context: &RunContext, request: &Request) -> Result<Timing> {
    let machine = facts::cpu_times().ok();
    let cores = facts::core_times().unwrap_or_default();
    let cpu = facts::process_usage()?.cpu();
    let start = context.clock.now();
    let report = run(context, request, &NullObserver)?;
    let wall_s = (context.clock.now() - start).as_secs_f64();
    let cpu_s = (facts::process_usage()?.cpu().saturating_sub(cpu)).as_secs_f64();
    let busy = machine
        .zip(facts::cpu_times().ok())
        .map(|(before, after)| 100.0 * after.busy_share_since(&before));
    let core_percents = facts::core_times().unwrap_or_default();
    let core_percents = core_percents.iter().zip(&cores);
    let core_percents = core_percents.map(|(now, then)| 100.0 * now.busy_share_since(then));
    let (plain_bytes, stored_bytes, file_count, run): (u64, u64, u64, Run) = match report {
        Report::Backup(r) => (r.plain_bytes, r.stored_bytes, r.totals.file_count, r.run),
        Report::Restore(r) => (r.plain_bytes, r.stored_bytes, 0, r.run),
        Report::Verify(_) => bail!("a verification is not measured here"),
    };
    Ok(Timing {
        wall_s,
        cpu_s,
        system_cpu_percent: busy,
        plain_bytes,
        stored_bytes,
        cpu_c: None,
        drive_c: None,
        silent_sensors: 0,
        cold_bytes: run.waits.cold_bytes,
        file_count,
        limit: run.limit,
        engines: run.engines,
        samples: run.samples,
        buffers: (run.plan.buffer_count, run.plan.buffer_bytes),
        core_percents: core_percents.collect(),
    })
}

/// Waits, but no longer than until the study is cancelled.
pub fn pause(context: &RunContext, how_long: std::time::Duration) {
    let end = context.clock.now() + how_long;
    while context.clock.now() < end && !context.cancel.load(std::sync::atomic::Ordering::Relaxed) {
        let rest = end.saturating_sub(context.clock.now());
        context
            .clock
            .sleep(rest.min(std::time::Duration::from_millis(100)));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A backup of 1000 MiB. Its numbers are made up.
    pub fn made_up(wall_s: f64, stored_bytes: u64) -> Timing {
        Timing {
            wall_s,
            cpu_s: 2.0 * wall_s,
            system_cpu_percent: None,
            plain_bytes: 1000 << 20,
            stored_bytes,
            cpu_c: None,
            drive_c: None,
            silent_sensors: 0,
            cold_bytes: 0,
            file_count: 1,
            limit: Limit::Cpu,
            engines: Vec::new(),
            samples: Vec::new(),
            buffers: (0, 0),
            core_percents: Vec::new(),
        }
    }

    /// A backup of which an accelerator compressed so many thousandths.
    pub fn by_hardware(thousandths: u64) -> Timing {
        let share = |name: &str, is_accelerator, plain_bytes| EngineShare {
            name: name.into(),
            is_accelerator,
            plain_bytes,
            ..EngineShare::default()
        };
        Timing {
            engines: vec![
                share("qatzip", true, thousandths),
                share("isa-l", false, 1000 - thousandths),
            ],
            ..made_up(1.0, 100)
        }
    }

    #[test]
    fn shares_of_engines_and_of_the_disk_are_told() {
        let mixed = by_hardware(381);
        let by = mixed.compressed_by();
        assert_eq!(by.as_deref(), Some("qatzip 38.1 %, isa-l 61.9 %"));
        let half = Timing {
            cold_bytes: 500 << 20,
            ..made_up(1.0, 1)
        };
        assert_eq!(half.cold_percent(), 50.0);
    }
}
