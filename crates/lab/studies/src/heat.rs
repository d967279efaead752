//! Temperatures around backups: their peak during each, and cooling before the next.
//!
//! Invariants
//! - A peak is that of readings once a second, with one at the beginning and one at the end; shorter peaks are missed.
//! - Drives are those that a backup is written to. Without a sensor there is no thread and no temperature.
//! - Waiting ends: at the limit of time, and when the study is cancelled.
//! - A temperature that is not known is not cool: it is waited for, and told.
//!
//! Leaves to others: sensors (`longshore-facts`), and showing temperatures (the studies).

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use longshore_facts::{Sensors, Temperatures, mount_of};
use longshore_pipeline::{DeviceSpec, Request, RunContext};

/// The variable that names another mount point of sysfs.
pub const SYSFS: &str = "LONGSHORE_SYSFS";
/// A drive is asked no more often: each reading is a command to it.
const LOOK: Duration = Duration::from_secs(1);
/// Before a single backup.
pub const COOLING_MAX: Duration = Duration::from_secs(600);

/// Where sysfs is mounted, unless the environment names another place.
pub fn sysfs() -> PathBuf {
    let named = std::env::var_os(SYSFS).filter(|value| !value.is_empty());
    named.map_or_else(|| "/sys".into(), PathBuf::from)
}

/// The sensors of the processors and of the drives below these directories, which exist.
pub fn sensors_of<'a>(dirs: impl Iterator<Item = &'a Path>) -> Sensors {
    let mut mounts: Vec<_> = dirs.filter_map(|dir| mount_of(dir).ok()).collect();
    mounts.dedup();
    Sensors::find(&sysfs(), &mounts)
}

/// The sensors that matter for a run: with a backup, its targets' drives.
pub fn sensors_for(request: &Request) -> Sensors {
    let devices = match request {
        Request::Backup(request) => request.devices.as_slice(),
        _ => &[],
    };
    sensors_of(devices.iter().filter_map(|device| match device {
        DeviceSpec::File(path) => path.parent(),
        _ => None,
    }))
}

/// Does `work`, and reads the sensors meanwhile.
pub fn peak_during<T>(sensors: &Sensors, work: impl FnOnce() -> T) -> (T, Temperatures) {
    match sensors.has_cpu() || sensors.has_drives() {
        true => watched(&|| sensors.read(), LOOK, work),
        false => (work(), Temperatures::default()),
    }
}

/// Does `work`, and reads at both ends and each time that `look` has passed.
fn watched<T>(
    read: &(dyn Fn() -> Temperatures + Sync),
    look: Duration,
    work: impl FnOnce() -> T,
) -> (T, Temperatures) {
    let first = read();
    let (end, ended) = channel::<()>();
    let watch = move || {
        let mut peak = first;
        while ended.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
            peak = peak.peak(read());
        }
        peak
    };
    let (done, peak) = scope(|scope| {
        // Without a thread, the readings at both ends remain.
        let watching = Builder::new().spawn_scoped(scope, watch).ok();
        let done = work();
        drop(end);
        let peak = watching.and_then(|thread| thread.join().ok());
        (done, peak.unwrap_or(first))
    });
    (done, peak.peak(read()))
}

/// Waiting until processors and target drives are at or below a temperature.
#[derive(Debug)]
pub struct Cooling {
    limit_c: f64,
    waits: Vec<Cooled>,
}

/// One wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cooled {
    pub waited: Duration,
    /// At its end.
    pub at: Temperatures,
    pub is_cool: bool,
}

impl Cooled {
    /// For people, if it waited at all.
    pub fn text(&self) -> Option<String> {
        let seconds = self.waited.as_secs();
        let end = if self.is_cool { "" } else { ", and gave up" };
        (seconds > 0).then(|| format!("cooled for {seconds} s to {}{end}", degrees(self.at)))
    }
}

/// The temperatures, and those that are not known.
fn degrees(at: Temperatures) -> String {
    let one = |name: &str, c: Option<f64>, silent: usize| match (c, silent) {
        (None, 0) => None,
        (None, _) => Some(format!("{name} temperature not known")),
        (Some(c), 0) => Some(format!("{name} {c:.1} °C")),
        (Some(c), 1) => Some(format!("{name} {c:.1} °C (1 temperature not known)")),
        (Some(c), n) => Some(format!("{name} {c:.1} °C ({n} temperatures not known)")),
    };
    let both = [
        one("CPU", at.cpu_c, at.cpu_silent),
        one("target drive", at.drive_c, at.drive_silent),
    ];
    both.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Cooling {
    pub fn to(limit_c: f64) -> Cooling {
        Cooling {
            limit_c,
            waits: Vec::new(),
        }
    }

    /// Something is known to be warmer than the limit.
    fn is_warm(&self, at: Temperatures) -> bool {
        let mut known = at.cpu_c.into_iter().chain(at.drive_c);
        known.any(|c| c > self.limit_c)
    }

    /// Waits, with readings once a second, until all temperatures are known and none is above the limit.
    pub fn wait(&mut self, context: &RunContext, read: &dyn Fn() -> Temperatures) -> Cooled {
        let clock = &*context.clock;
        let begun = clock.now();
        let mut has_waited = false;
        let cooled = loop {
            let at = read();
            // Reading is no waiting.
            let waited = match has_waited {
                true => clock.now() - begun,
                false => Duration::ZERO,
            };
            let is_cool = at.are_known() && !self.is_warm(at);
            if is_cool || waited >= COOLING_MAX || context.cancel.load(Ordering::Relaxed) {
                break Cooled {
                    waited,
                    at,
                    is_cool,
                };
            }
            clock.sleep(LOOK);
            has_waited = true;
        };
        self.waits.push(cooled);
        cooled
    }

    /// The sentence for a report.
    pub fn told(&self, sensors: &Sensors) -> String {
        let of = match (sensors.has_cpu(), sensors.has_drives()) {
            (true, true) => "CPU and target drives were",
            (true, false) => "the CPU was (the target drives show no sensor)",
            _ => "the target drives were (the CPU shows no sensor)",
        };
        let waits = self.waits.iter().filter(|w| !w.waited.is_zero());
        let all: Duration = self.waits.iter().map(|w| w.waited).sum();
        let late = |how: &str, is_so: &dyn Fn(Temperatures) -> bool| {
            let late = self.waits.iter().filter(|w| !w.is_cool && is_so(w.at));
            match late.count() {
                0 => String::new(),
                n => format!(
                    " {n} began {how}, because {} s had passed.",
                    COOLING_MAX.as_secs()
                ),
            }
        };
        let warm = late("warmer", &|at| self.is_warm(at));
        let unknown = late("with a temperature not known", &|at| !at.are_known());
        format!(
            "Each backup began when {of} at or below {} °C: {} of {} waited, {} s in all.{warm}{unknown}",
            self.limit_c,
            waits.count(),
            self.waits.len(),
            all.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Clock, Host, SimClock};
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn context(clock: Arc<SimClock>) -> RunContext {
        RunContext {
            keyring: Default::default(),
            storage: Arc::new(Host::new()),
            clock,
            catalog: None,
            accelerators: Vec::new(),
            cancel: Default::default(),
        }
    }

    /// A machine that loses a degree in each second.
    fn cooling_from(clock: &SimClock, cpu_c: f64, drive_c: Option<f64>) -> Temperatures {
        let lost = clock.now().as_secs_f64();
        Temperatures {
            cpu_c: Some(cpu_c - lost),
            drive_c: drive_c.map(|c| c - lost),
            ..Temperatures::default()
        }
    }

    fn sensors(cpu: &str) -> (tempfile::TempDir, Sensors) {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("class/hwmon/hwmon0");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("name"), "coretemp\n").unwrap();
        fs::write(own.join("temp1_input"), cpu).unwrap();
        let found = Sensors::find(root.path(), &[]);
        (root, found)
    }

    #[test]
    fn waiting_ends_when_the_warmer_of_cpu_and_drives_is_cool() {
        let clock = Arc::new(SimClock::new(0));
        let context = context(clock.clone());
        let mut cooling = Cooling::to(50.0);
        let cooled = cooling.wait(&context, &|| cooling_from(&clock, 60.0, Some(75.0)));
        assert_eq!((cooled.waited.as_secs(), cooled.is_cool), (25, true));
        let told = "cooled for 25 s to CPU 35.0 °C, target drive 50.0 °C";
        assert_eq!(cooled.text().as_deref(), Some(told));
        // It is cool already; the reading takes a moment.
        let slowly = || {
            clock.advance(Duration::from_millis(3));
            cooling_from(&clock, 60.0, None)
        };
        let cooled = cooling.wait(&context, &slowly);
        assert_eq!((cooled.waited, cooled.text()), (Duration::ZERO, None));
        let (_root, sensors) = sensors("50000\n");
        assert_eq!(
            cooling.told(&sensors),
            "Each backup began when the CPU was (the target drives show no sensor) at or below 50 °C: 1 of 2 waited, 25 s \
             in all."
        );
    }

    #[test]
    fn a_machine_that_stays_warm_is_waited_for_until_the_time_is_over_and_the_report_says_so() {
        let clock = Arc::new(SimClock::new(0));
        let context = context(clock);
        let mut cooling = Cooling::to(50.0);
        let warm = Temperatures {
            drive_c: Some(50.1),
            ..Temperatures::default()
        };
        let cooled = cooling.wait(&context, &|| warm);
        assert_eq!((cooled.waited, cooled.is_cool), (COOLING_MAX, false));
        assert!(cooled.text().unwrap().ends_with("50.1 °C, and gave up"));
        let (_root, sensors) = sensors("1\n");
        let told = cooling.told(&sensors);
        assert!(
            told.ends_with("1 began warmer, because 600 s had passed."),
            "{told}"
        );
        context.cancel.store(true, Ordering::Relaxed);
        assert_eq!(cooling.wait(&context, &|| warm).waited, Duration::ZERO);
    }

    #[test]
    fn a_temperature_that_is_not_known_is_waited_for_and_never_taken_for_cool() {
        let clock = Arc::new(SimClock::new(0));
        let context = context(clock.clone());
        let mut cooling = Cooling::to(50.0);
        // The drive answers after seven seconds.
        let silent = |drive_c: Option<f64>| Temperatures {
            cpu_c: Some(40.0),
            drive_c,
            drive_silent: usize::from(drive_c.is_none()),
            ..Temperatures::default()
        };
        let sleeping = || silent((clock.now() >= Duration::from_secs(7)).then_some(30.0));
        let cooled = cooling.wait(&context, &sleeping);
        assert_eq!((cooled.waited.as_secs(), cooled.is_cool), (7, true));
        // One that never answers, while all others are cool.
        let cooled = cooling.wait(&context, &|| silent(None));
        assert_eq!((cooled.waited, cooled.is_cool), (COOLING_MAX, false));
        assert_eq!(
            cooled.text().unwrap(),
            "cooled for 600 s to CPU 40.0 °C, target drive temperature not known, and gave up"
        );
        let one_of_two = Temperatures {
            drive_c: Some(35.0),
            ..silent(None)
        };
        assert!(!cooling.wait(&context, &|| one_of_two).is_cool);
        assert_eq!(
            degrees(one_of_two),
            "CPU 40.0 °C, target drive 35.0 °C (1 temperature not known)"
        );
        let (_root, sensors) = sensors("40000\n");
        let told = cooling.told(&sensors);
        assert!(
            told.ends_with("2 began with a temperature not known, because 600 s had passed."),
            "{told}"
        );
        assert!(!told.contains("warmer"), "{told}");
    }

    #[test]
    fn a_peak_between_the_ends_counts() {
        let (is_hot, was_seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let read = || {
            let hot = is_hot.load(Ordering::SeqCst);
            was_seen.fetch_or(hot, Ordering::SeqCst);
            Temperatures {
                cpu_c: Some(if hot { 90.0 } else { 45.0 }),
                ..Temperatures::default()
            }
        };
        let work = || {
            is_hot.store(true, Ordering::SeqCst);
            while !was_seen.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            is_hot.store(false, Ordering::SeqCst);
            7
        };
        let (done, peak) = watched(&read, Duration::from_millis(1), work);
        assert_eq!(done, 7);
        assert_eq!((peak.cpu_c, peak.drive_c), (Some(90.0), None));
    }

    #[test]
    fn without_sensors_there_is_no_temperature_and_with_one_there_is() {
        let none = peak_during(&Sensors::default(), || 1);
        assert_eq!(none, (1, Temperatures::default()));
        let (_root, sensors) = sensors("40500\n");
        assert_eq!(peak_during(&sensors, || 1).1.cpu_c, Some(40.5));
    }
}
