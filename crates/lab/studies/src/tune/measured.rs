//! This machine: a backup of the source to the places, ended as soon as enough is known.
//!
//! Invariants
//! - All settings are measured up to the same byte: three quarters of what the first measurement reached in its time. What counts
//!   begins when as much was stored as the backup may hold in memory, and not before a quarter: until then its time is that of
//!   memory and not that of the places. A setting whose memory holds all of it is not measured.
//! - A source that ends before is backed up whole, until everything is durable, and all of it counts.
//! - No backup is left: one that is ended early leaves nothing, or its remains are an error that names them, and a whole one is
//!   removed.
//! - A cancelled study ends the measurement, and is an error.
//! - A measurement ends when its time is over, once its bytes move; what begins before them, such as a checkpoint, is waited for.
//!
//! Leaves to others: which settings (`search.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use longshore_facts as facts;
use longshore_io::Clock;
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Error, Limit, Observer, Offload, Plan, Progress, Report, Request,
    RunContext, SourceSpec, left_lines, run,
};
use uuid::Uuid;

use super::door::{Cost, Machine, MachineTrial, Most, Setting, TrialEnd};
use super::time::TimePlan;
use crate::scratch::Scratch;

/// The part of the measured bytes in which buffers fill and uploads begin.
const WARM_UP: f64 = 0.25;
/// Of what the first measurement reached: others are quicker and must reach it, too, before their source ends.
const REACHED: f64 = 0.75;
/// The first measurement goes on until so many times a backup's memory is stored, since it would measure memory else, but not
/// longer than the plan of the time has it.
const MEMORIES: u64 = 3;

/// Where the stripes of measurements go.
pub enum TrialPlaces {
    /// Removed at the end.
    Directories(Scratch),
    /// Addresses below which objects are written.
    Prefixes(Vec<String>),
}

impl TrialPlaces {
    /// New devices for as many stripes.
    fn devices(&self, stripes: usize) -> Result<Vec<DeviceSpec>> {
        match self {
            TrialPlaces::Directories(scratch) => Ok(scratch.stripes(stripes)),
            TrialPlaces::Prefixes(prefixes) => {
                // A store may refuse the name of an object that it keeps as an old version.
                let own = format!("longshore-tune-{}", Uuid::new_v4());
                let prefixes = prefixes.iter().cycle().zip(1..=stripes);
                let device = |(prefix, n): (&String, usize)| {
                    let text = format!("{}/{own}/{n}.bak", prefix.trim_end_matches('/'));
                    let device = DeviceSpec::parse(&text);
                    ensure!(
                        matches!(device, DeviceSpec::Bucket(_)),
                        "{prefix} is no address of an object store"
                    );
                    Ok(device)
                };
                prefixes.map(device).collect()
            }
        }
    }

    /// Removes what a backup left. Errors: what stays, by name.
    fn clear(&self, context: &RunContext, devices: &[DeviceSpec]) -> Result<()> {
        match self {
            TrialPlaces::Directories(scratch) => {
                scratch.clear()?;
                // No measurement pays for the removal of the one before.
                scratch.settle()
            }
            TrialPlaces::Prefixes(_) => {
                // Also after an interrupt: nobody else knows of these objects.
                let cancel = AtomicBool::new(false);
                let mut left = Vec::new();
                for device in devices {
                    if let Err(error) = device.remove_object(&context.storage, &cancel) {
                        left.push(format!("{}: {error}", device.open(&context.storage).name()));
                    }
                }
                ensure!(
                    left.is_empty(),
                    "objects of a measurement are left; remove them by hand: {}",
                    left.join("; ")
                );
                Ok(())
            }
        }
    }
}

/// This machine.
pub struct ThisMachine<'a> {
    context: &'a RunContext,
    source: &'a SourceSpec,
    places: &'a TrialPlaces,
    plan: TimePlan,
    /// When all measurements end, by the machine's clock.
    end: Duration,
    /// Kept for what comes after the search.
    pub reserve: Duration,
    /// The bytes that all settings are measured on; `None`: the whole source.
    bytes: Option<u64>,
    is_first: bool,
    buffers: usize,
    /// The size of the source, roughly.
    pub source_bytes: Option<u64>,
    /// The limit that held in the last backup that reached its end.
    pub limit: Option<Limit>,
    on_step: &'a dyn Fn(&str),
}

impl<'a> ThisMachine<'a> {
    pub fn new(
        context: &'a RunContext,
        source: &'a SourceSpec,
        places: &'a TrialPlaces,
        plan: TimePlan,
        on_step: &'a dyn Fn(&str),
    ) -> ThisMachine<'a> {
        ThisMachine {
            context,
            source,
            places,
            plan,
            end: context.clock.now() + plan.whole,
            reserve: Duration::ZERO,
            bytes: None,
            is_first: true,
            buffers: 1,
            source_bytes: None,
            limit: None,
            on_step,
        }
    }

    /// With a ceiling of CPU time, in percent of the machine, and at most for so many seconds.
    pub fn measure_below(
        &mut self,
        setting: &Setting,
        most: &Most,
        (cpu_percent, limit_s): (Option<f64>, f64),
    ) -> Result<MachineTrial> {
        let begun = self.context.clock.now();
        let until = begun + Duration::try_from_secs_f64(limit_s).unwrap_or_default();
        let devices = self.places.devices(setting.stripes)?;
        let mut request = BackupRequest::new(self.source.clone(), devices.clone());
        request.algorithm = setting.algorithm;
        request.level = setting.level;
        request.offload = Offload {
            mode: setting.engine,
            ..Offload::default()
        };
        request.tuning.buffer_bytes = setting.buffer_bytes;
        request.limits.cpu_percent = cpu_percent;
        request.tuning.buffer_count = setting.buffer_count;
        let ended = self.watched(request, most, until);
        let cleared = self.places.clear(self.context, &devices);
        let took_s = (self.context.clock.now() - begun).as_secs_f64();
        // The first failure is the cause of the second.
        let (cost, end) = ended.and_then(|trial| cleared.map(|()| trial))?;
        Ok(MachineTrial { cost, end, took_s })
    }

    fn watched(
        &mut self,
        request: BackupRequest,
        most: &Most,
        until: Duration,
    ) -> Result<(Cost, TrialEnd)> {
        let first = self.is_first.then_some(self.plan);
        let watch = Watch::new(
            self.context,
            (self.bytes, self.bytes.or(self.source_bytes)),
            most,
            (first, until),
        );
        let whole = self.run(request, &watch)?;
        let mut seen = watch.seen();
        self.buffers = seen.buffers;
        if let Some(whole) = &whole {
            seen.end(self.context.clock.now(), cpu_s(), whole);
            self.limit = Some(whole.limit);
        }
        self.source_bytes = whole
            .map(|whole| whole.plain_bytes)
            .or(seen.expected)
            .or(self.source_bytes);
        let reached = seen.reached().plain_bytes;
        if self.is_first {
            self.is_first = false;
            // A source that ended is measured to its end.
            self.bytes = whole.is_none().then_some((reached as f64 * REACHED) as u64);
        }
        ensure!(
            self.bytes.unwrap_or(reached) > 0,
            "nothing was read of the source in {} s: give --time more, or look with `longshore backup … --to nul: --verbose`",
            self.plan.first_most.as_secs()
        );
        let (cost, is_in_memory) = match self.bytes {
            None => (seen.whole(), false),
            Some(bytes) => seen.cost(bytes.min(reached)),
        };
        let is_short = whole.is_none() && self.bytes.is_none_or(|bytes| reached < bytes);
        let end = match (is_short, is_in_memory) {
            (true, _) if watch.is_out_of_time() => TrialEnd::OutOfTime,
            (true, _) => TrialEnd::GivenUp,
            (false, true) => TrialEnd::InMemory,
            (false, false) => TrialEnd::Measured,
        };
        Ok((cost, end))
    }

    /// `None`: it was ended early, on purpose.
    fn run(&self, request: BackupRequest, watch: &Watch) -> Result<Option<Whole>> {
        let context = RunContext {
            cancel: watch.cancel.clone(),
            ..self.context.clone()
        };
        let is_ours =
            || !self.context.cancel.load(Ordering::Relaxed) && watch.cancel.load(Ordering::Relaxed);
        match run(&context, &Request::Backup(request), watch) {
            Ok(Report::Backup(report)) => Ok(Some(Whole {
                plain_bytes: report.plain_bytes,
                stored_bytes: report.stored_bytes,
                limit: report.run.limit,
            })),
            Ok(_) => Ok(None),
            Err(Error::Cancelled) if is_ours() => Ok(None),
            Err(Error::Left { source, stripes }) if is_ours() => bail!(
                "a measurement that was ended early is left in the store ({source}): {}",
                left_lines(&stripes).join("; ")
            ),
            Err(error) => Err(error.into()),
        }
    }
}

impl Machine for ThisMachine<'_> {
    fn measure(&mut self, setting: &Setting, most: &Most, limit_s: f64) -> Result<MachineTrial> {
        let trial = self.measure_below(setting, most, (None, limit_s))?;
        let megabytes = 1e-6 / trial.cost.pace().max(f64::MIN_POSITIVE);
        let end = match trial.end {
            TrialEnd::Measured => "",
            TrialEnd::GivenUp => ", given up",
            TrialEnd::OutOfTime => ", not measured: the time was over",
            TrialEnd::InMemory => ", not measured: memory held all of it",
        };
        (self.on_step)(&format!(
            "{setting}: {megabytes:.0} MB/s, {:.2} CPU-s/GB, {:.0} % stored{end}",
            trial.cost.cpu_pace() * 1e9,
            100.0 * trial.cost.share()
        ));
        Ok(trial)
    }

    fn buffers(&self) -> usize {
        self.buffers.max(1)
    }

    fn left_s(&self) -> f64 {
        let (end, begun) = (
            self.end.saturating_sub(self.reserve),
            self.context.clock.now(),
        );
        end.as_secs_f64() - begun.as_secs_f64()
    }
}

/// A backup that reached the end of its source.
#[derive(Debug, Clone, Copy)]
struct Whole {
    plain_bytes: u64,
    stored_bytes: u64,
    limit: Limit,
}

/// How far a backup was at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tick {
    at_s: f64,
    cpu_s: f64,
    plain_bytes: u64,
    stored_bytes: u64,
}

/// What was seen of a backup: moments in their order, the first when bytes began to move.
#[derive(Debug, Clone, Default)]
struct Seen {
    ticks: Vec<Tick>,
    expected: Option<u64>,
    buffers: usize,
    /// The most that the backup holds.
    memory_bytes: u64,
}

impl Seen {
    fn reached(&self) -> Tick {
        self.ticks.last().copied().unwrap_or_default()
    }

    fn end(&mut self, now: Duration, cpu_s: f64, whole: &Whole) {
        self.ticks.push(Tick {
            at_s: now.as_secs_f64(),
            cpu_s,
            plain_bytes: whole.plain_bytes,
            stored_bytes: whole.stored_bytes,
        });
    }

    /// The moment at which so many bytes were done, between the two that were seen.
    fn at(&self, plain_bytes: u64) -> Tick {
        let after = self
            .ticks
            .partition_point(|tick| tick.plain_bytes < plain_bytes);
        let (Some(b), Some(a)) = (self.ticks.get(after), self.ticks.get(after.wrapping_sub(1)))
        else {
            return self.ticks.get(after).copied().unwrap_or(self.reached());
        };
        let part = (plain_bytes - a.plain_bytes) as f64 / (b.plain_bytes - a.plain_bytes) as f64;
        let mix = |a: f64, b: f64| a + part * (b - a);
        Tick {
            at_s: mix(a.at_s, b.at_s),
            cpu_s: mix(a.cpu_s, b.cpu_s),
            plain_bytes,
            stored_bytes: mix(a.stored_bytes as f64, b.stored_bytes as f64) as u64,
        }
    }

    /// The byte from where on the cost of those up to `to` counts: a first part is left out, and what memory took up. `None`:
    /// memory holds all that was seen.
    fn from(&self, to: u64) -> Option<u64> {
        let is_full = |tick: &&Tick| tick.stored_bytes >= self.memory_bytes;
        let filled = self.ticks.iter().find(is_full)?.plain_bytes;
        let from = ((to as f64 * WARM_UP) as u64).max(filled);
        (from < to).then_some(from)
    }

    /// The cost of the bytes up to `to`; and whether it is that of memory alone.
    fn cost(&self, to: u64) -> (Cost, bool) {
        let from = self.from(to);
        let cost = between(&self.at(from.unwrap_or(0)), &self.at(to));
        (cost, from.is_none())
    }

    /// Whether what was seen costs more than `most`, of which all up to `to` was to be seen.
    fn is_hopeless(&self, most: &Most, to: u64) -> bool {
        let now = self.reached();
        let exceeds = |from: u64| {
            let cost = between(&self.at(from), &now);
            let bytes = to.saturating_sub(from) as f64;
            cost.wall_s > most.pace * bytes || cost.cpu_s > most.cpu_pace * bytes
        };
        // Memory is no slower than the places.
        exceeds(0) || self.from(to).is_some_and(exceeds)
    }

    /// The cost of everything that was seen.
    fn whole(&self) -> Cost {
        between(
            &self.ticks.first().copied().unwrap_or_default(),
            &self.reached(),
        )
    }
}

fn between(a: &Tick, b: &Tick) -> Cost {
    Cost {
        plain_bytes: b.plain_bytes.saturating_sub(a.plain_bytes),
        wall_s: (b.at_s - a.at_s).max(1e-6),
        cpu_s: (b.cpu_s - a.cpu_s).max(0.0),
        stored_bytes: b.stored_bytes.saturating_sub(a.stored_bytes),
    }
}

fn cpu_s() -> f64 {
    facts::process_usage().map_or(0.0, |usage| usage.cpu().as_secs_f64())
}

/// Watches a backup, and ends it as soon as enough is known.
struct Watch {
    clock: Arc<dyn Clock>,
    /// Of the study.
    outer: Arc<AtomicBool>,
    /// Of this backup.
    cancel: Arc<AtomicBool>,
    bytes: Option<u64>,
    /// The bytes that are measured if it does not end early: those, or all of a short source.
    whole: Option<u64>,
    most: Most,
    /// Of the first measurement.
    first: Option<TimePlan>,
    /// When it ends, by the clock.
    until: Duration,
    is_out_of_time: AtomicBool,
    seen: Mutex<Seen>,
}

impl Watch {
    fn new(
        context: &RunContext,
        (bytes, whole): (Option<u64>, Option<u64>),
        most: &Most,
        (first, until): (Option<TimePlan>, Duration),
    ) -> Watch {
        Watch {
            clock: context.clock.clone(),
            outer: context.cancel.clone(),
            cancel: Arc::new(AtomicBool::new(context.cancel.load(Ordering::Relaxed))),
            bytes,
            whole,
            most: *most,
            first,
            until,
            is_out_of_time: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    fn is_out_of_time(&self) -> bool {
        self.is_out_of_time.load(Ordering::Relaxed)
    }

    fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn tick(&self, progress: &Progress) {
        self.tick_at(self.clock.now().as_secs_f64(), progress);
    }

    /// The same at a moment of the clock.
    fn tick_at(&self, at_s: f64, progress: &Progress) {
        let now = Tick {
            at_s,
            cpu_s: cpu_s(),
            plain_bytes: progress.plain_bytes,
            stored_bytes: progress.stored_bytes,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.expected = progress.expected_bytes.or(seen.expected);
        seen.ticks.push(now);
        let first = seen.ticks.first().copied().unwrap_or(now);
        let wall_s = now.at_s - first.at_s;
        let is_long = self.first.is_some_and(|plan| {
            let is_stored = now.stored_bytes >= seen.memory_bytes.saturating_mul(MEMORIES);
            wall_s >= plan.first_most.as_secs_f64()
                || (wall_s >= plan.each.as_secs_f64() && is_stored)
        });
        let is_out_of_time = now.at_s >= self.until.as_secs_f64();
        let is_enough = is_long
            || self.bytes.is_some_and(|bytes| now.plain_bytes >= bytes)
            || self
                .whole
                .is_some_and(|to| seen.is_hopeless(&self.most, to));
        if is_out_of_time && !is_enough {
            self.is_out_of_time.store(true, Ordering::Relaxed);
        }
        if is_enough || is_out_of_time || self.outer.load(Ordering::Relaxed) {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

impl Observer for Watch {
    fn planned(&self, plan: &Plan) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.buffers = plan.buffer_count;
        seen.memory_bytes = plan.memory_bytes;
        drop(seen);
        self.tick(&Progress::default());
    }

    fn progress(&self, progress: &Progress) {
        self.tick(progress);
    }

    fn warning(&self, _text: &str) {}

    fn note(&self, _text: &str) {}
}

#[cfg(test)]
#[path = "../../../../core/pipeline/tests/observer/suite.rs"]
mod observer_suite;

#[cfg(test)]
mod tests {
    use super::*;

    /// For the first measurement, and for one that ends at a byte.
    #[test]
    fn a_watch_keeps_the_contract_of_all_observers() {
        for bytes in [None, Some(1 << 20)] {
            super::observer_suite::keeps_its_contract(&|| {
                Arc::new(Watch {
                    clock: Arc::new(longshore_io::HostClock),
                    outer: Arc::default(),
                    cancel: Arc::default(),
                    bytes,
                    whole: bytes,
                    most: Most::ANYTHING,
                    first: None,
                    until: Duration::MAX,
                    is_out_of_time: AtomicBool::new(false),
                    seen: Mutex::default(),
                })
            });
        }
    }

    /// The second at which a measurement ends whose place takes `rate` bytes each second, of a backup that holds 1000.
    fn ends_at(rate: u64, first: Option<TimePlan>, until_s: u64) -> (u64, bool) {
        let watch = Watch {
            clock: Arc::new(longshore_io::HostClock),
            outer: Arc::default(),
            cancel: Arc::default(),
            bytes: first.is_none().then_some(10_000),
            whole: None,
            most: Most::ANYTHING,
            first,
            until: Duration::from_secs(until_s),
            is_out_of_time: AtomicBool::new(false),
            seen: Mutex::default(),
        };
        watch.seen.lock().unwrap().memory_bytes = 1000;
        for second in 0..1000 {
            let progress = Progress {
                plain_bytes: rate * second,
                stored_bytes: rate * second,
                ..Progress::default()
            };
            watch.tick_at(second as f64, &progress);
            if watch.cancel.load(Ordering::Relaxed) {
                return (second, watch.is_out_of_time());
            }
        }
        panic!("it did not end");
    }

    #[test]
    fn a_measurement_ends_when_its_time_is_over_however_slow_the_place_is() {
        let plan = TimePlan::of(Duration::from_secs(150));
        // Until memory is stored three times, and never longer than the plan says.
        assert_eq!(ends_at(1000, Some(plan), 75), (6, false));
        assert_eq!(ends_at(250, Some(plan), 75), (12, false));
        assert_eq!(ends_at(1, Some(plan), 75), (25, false));
        // Others end at their byte, or when their time is over.
        assert_eq!(ends_at(1000, None, 75), (10, false));
        assert_eq!(ends_at(1, None, 20), (20, true));
    }

    fn tick(at_s: f64, plain_bytes: u64) -> Tick {
        Tick {
            at_s,
            cpu_s: 2.0 * at_s,
            plain_bytes,
            stored_bytes: plain_bytes / 2,
        }
    }

    #[test]
    fn costs_are_up_to_one_byte_and_leave_the_beginning_out() {
        let seen = Seen {
            // A slow beginning, and then 100 bytes in each second.
            ticks: vec![tick(0.0, 0), tick(3.0, 100), tick(4.0, 200), tick(6.0, 400)],
            ..Seen::default()
        };
        let (cost, is_in_memory) = seen.cost(400);
        assert!(!is_in_memory);
        assert_eq!((cost.plain_bytes, cost.stored_bytes), (300, 150));
        assert!((cost.wall_s - 3.0).abs() < 1e-9 && (cost.cpu_s - 6.0).abs() < 1e-9);
        // Between two moments, and past the last one.
        assert!((seen.at(250).at_s - 4.5).abs() < 1e-9);
        assert_eq!(seen.at(900), tick(6.0, 400));
    }

    #[test]
    fn what_memory_took_up_is_no_speed_of_a_place() {
        let seen = |memory_bytes| Seen {
            // Memory takes 400 bytes in a second, the place 10 stored ones.
            ticks: vec![tick(0.0, 0), tick(1.0, 400), tick(21.0, 800)],
            memory_bytes,
            ..Seen::default()
        };
        let (cost, is_in_memory) = seen(200).cost(800);
        assert!(!is_in_memory);
        assert_eq!(cost.plain_bytes, 400);
        assert!((cost.pace() - 0.05).abs() < 1e-9);
        assert!(seen(5000).cost(800).1, "nothing of the place was seen");
    }

    #[test]
    fn a_measurement_is_hopeless_by_what_counts_and_not_by_how_memory_filled() {
        let seen = |at_s: f64| Seen {
            // Memory takes 400 bytes in 30 seconds, as a slow source gives them, and the rest goes to the place.
            ticks: vec![tick(0.0, 0), tick(30.0, 400), tick(30.0 + at_s, 800)],
            memory_bytes: 200,
            ..Seen::default()
        };
        let most = Most {
            pace: 0.1,
            ..Most::ANYTHING
        };
        // 400 counted bytes may take 40 s, all 800 may take 80.
        assert!(!seen(39.0).is_hopeless(&most, 800));
        assert!(seen(41.0).is_hopeless(&most, 800));
        let slow = Most { pace: 0.03, ..most };
        assert!(
            seen(1.0).is_hopeless(&slow, 800),
            "already before memory was full"
        );
        let cpu = Most {
            cpu_pace: 0.01,
            ..Most::ANYTHING
        };
        assert!(seen(1.0).is_hopeless(&cpu, 800));
    }

    #[test]
    fn a_whole_backup_counts_until_it_is_durable() {
        let mut seen = Seen {
            // The last byte is read long before it is stored.
            ticks: vec![tick(0.0, 0), tick(1.0, 100)],
            ..Seen::default()
        };
        let whole = Whole {
            plain_bytes: 100,
            stored_bytes: 70,
            limit: Limit::Target,
        };
        seen.end(Duration::from_secs(9), 3.0, &whole);
        let cost = seen.whole();
        assert_eq!((cost.plain_bytes, cost.stored_bytes), (100, 70));
        assert!((cost.wall_s - 9.0).abs() < 1e-9);
    }
}
