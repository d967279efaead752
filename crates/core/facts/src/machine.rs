//! The machine: processors, memory, kernel, from /proc.
//!
//! Invariants
//! - CPU times are those of the whole machine, other programs included, and only grow; differences of two readings are
//!   what counts.
//! - Guest time counts once: the kernel includes it in user time.
//! - A value that cannot be read is absent or an error, never 0.
//!
//! Leaves to others: what this process used (`process_usage`).

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use super::strange;

/// CPU time of the whole machine since it started, summed over all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time at work: user, system, interrupts.
    pub busy: Duration,
    /// Time without work, or waiting for a disk.
    pub idle: Duration,
    /// Time that the hypervisor gave to other machines.
    pub stolen: Duration,
}

impl CpuTimes {
    /// The share of CPU time at work since `earlier`: 0 to 1. 0 if no time has passed.
    pub fn busy_share_since(&self, earlier: &Self) -> f64 {
        let spent = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        let busy = spent(self.busy, earlier.busy);
        let all = busy + spent(self.idle, earlier.idle) + spent(self.stolen, earlier.stolen);
        if all > 0.0 { busy / all } else { 0.0 }
    }
}

/// CPU time of the whole machine so far, in clock ticks (usually 10 ms).
pub fn cpu_times() -> io::Result<CpuTimes> {
    let text = fs::read_to_string("/proc/stat")?;
    parse_stat(&text, rustix::param::clock_ticks_per_second()).ok_or_else(|| strange("/proc/stat"))
}

/// CPU time of each processor that is online, in their order. As [`cpu_times`], of one processor each.
pub fn core_times() -> io::Result<Vec<CpuTimes>> {
    let text = fs::read_to_string("/proc/stat")?;
    Ok(parse_cores(&text, rustix::param::clock_ticks_per_second()))
}

fn parse_cores(text: &str, ticks_per_s: u64) -> Vec<CpuTimes> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let of_core = |line: &str| {
        let (number, times) = line.split_once(' ')?;
        number.parse::<u32>().ok()?;
        parse_stat(&format!("cpu {times}"), ticks_per_s)
    };
    lines.filter_map(of_core).collect()
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and guest times, which user
/// already includes.
fn parse_stat(text: &str, ticks_per_s: u64) -> Option<CpuTimes> {
    let numbers = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let ticks: Vec<u64> = numbers
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let field = |n: usize| ticks.get(n).copied().unwrap_or(0);
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / ticks_per_s.max(1) as f64);
    (ticks.len() >= 4).then(|| CpuTimes {
        busy: time(field(0) + field(1) + field(2) + field(5) + field(6)),
        idle: time(field(3) + field(4)),
        stolen: time(field(7)),
    })
}

/// The processor's name for itself, such as `Intel(R) Xeon(R) Processor`; `None` if it has none.
pub fn cpu_model() -> Option<String> {
    parse_model(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn parse_model(text: &str) -> Option<String> {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    text.lines()
        .find_map(value)
        .filter(|model| !model.is_empty())
}

/// How many processors this process may use: at least 1. Respects affinity and cgroup quotas.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The machine's memory in bytes.
pub fn memory_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    kib_of(&text, "MemTotal").ok_or_else(|| strange("/proc/meminfo"))
}

/// The bytes of a line such as `MemTotal:  1024 kB`.
pub(super) fn kib_of(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// How long ago the machine was started.
pub fn uptime() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/uptime")?;
    parse_uptime(&text).ok_or_else(|| strange("/proc/uptime"))
}

/// `12345.67 54321.09`: the seconds since the start, and those of idle cores.
fn parse_uptime(text: &str) -> Option<Duration> {
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The kernel's release, such as `6.18.44`.
pub fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// The machine's host name.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_number_of_proc_uptime_is_the_time_since_the_start() {
        let parsed = parse_uptime("12345.67 54321.09\n");
        assert_eq!(parsed, Some(Duration::from_millis(12_345_670)));
        assert_eq!(parse_uptime("-1 2"), None);
        assert_eq!(parse_uptime(""), None);
        assert!(uptime().unwrap() > Duration::ZERO);
    }

    #[test]
    fn the_first_line_of_proc_stat_is_summed_by_meaning() {
        let text = "cpu  100 200 300 4000 500 60 40 700 90 0\ncpu0 1 2 3 4\n";
        let times = parse_stat(text, 100).unwrap();
        assert_eq!(
            times,
            CpuTimes {
                busy: 7 * S,
                idle: 45 * S,
                stolen: 7 * S
            }
        );
        assert_eq!(parse_stat("cpu  1 2 x", 100), None);
        assert_eq!(parse_stat("", 100), None);
        assert!(
            parse_stat("cpu  1 2 3 4", 100).is_some(),
            "an old kernel has four numbers"
        );
    }

    #[test]
    fn each_processor_has_times_of_its_own() {
        let text =
            "cpu  3 0 0 30\ncpu0 1 0 0 10 0 0 0 0 0 0\ncpu12 2 0 0 20\nintr 5\ncpufreq 1 2 3 4\n";
        let busy: Vec<_> = parse_cores(text, 1)
            .iter()
            .map(|t| (t.busy, t.idle))
            .collect();
        assert_eq!(busy, [(S, 10 * S), (2 * S, 20 * S)]);
        assert!(!core_times().unwrap().is_empty());
    }

    #[test]
    fn the_busy_share_is_work_over_all_time() {
        let then = CpuTimes {
            busy: S,
            idle: S,
            stolen: S,
        };
        let now = CpuTimes {
            busy: 2 * S,
            idle: 3 * S,
            stolen: 2 * S,
        };
        assert_eq!(now.busy_share_since(&then), 0.25);
        assert_eq!(then.busy_share_since(&then), 0.0);
    }

    #[test]
    fn the_model_is_the_name_and_not_the_number() {
        let text = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: A: fast one\n";
        assert_eq!(parse_model(text).unwrap(), "A: fast one");
        assert_eq!(parse_model("processor\t: 0\nmodel name\t:\n"), None);
    }

    #[test]
    fn this_machine_is_described() {
        assert!((1 << 20..1 << 50).contains(&memory_bytes().unwrap()));
        assert!(cores() >= 1 && kernel().contains('.'));
        let before = cpu_times().unwrap();
        assert!(before.idle + before.busy > Duration::ZERO);
        assert!((0.0..=1.0).contains(&cpu_times().unwrap().busy_share_since(&before)));
    }
}
