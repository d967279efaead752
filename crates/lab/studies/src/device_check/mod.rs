//! Does GPU compression work on this machine, and how fast? One run answers everything, because a machine with a GPU
//! may be available for minutes only.
//!
//! The order is by value: facts, correctness, faults, then speeds, the most telling first.
//!
//! Invariants
//! - Time is limited; a dash marks a measurement for which no time was left.
//! - A step that hangs ends the use of the device, but not the report.
//!
//! Leaves to others: the checks themselves (`trust.rs`, `speed.rs`, `backups.rs`), and the time of one step
//! (`guard.rs`).

mod backups;
mod content;
mod guard;
mod speed;
mod trust;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use longshore_accel::nvcomp::{CopyRates, Facts, Nvcomp, Options};
use longshore_accel::{Engine, EngineState, Health};
use longshore_codec::Level;
use longshore_facts as facts;
use longshore_io::Clock;
use longshore_pipeline::{OffloadMode, RunContext};

use crate::platform;
use crate::report::{Cell, Column, Report, Section, Table};
use crate::timing::Timing;
use backups::Yard;
use content::SampleContent;
use guard::{Guard, Step};
use speed::Speed;

const MIB: usize = 1 << 20;

/// An optional behaviour of an engine.
type Habit = fn(&Facts) -> bool;

/// A backup and its restore; returns the findings in words.
type Trip = fn(&Yard, Options) -> Result<String>;

/// The settings of the check.
#[derive(Debug, Clone)]
pub struct DeviceCheckSpec {
    /// Keeps the sample between runs.
    pub work: PathBuf,
    /// The time for all steps together; a step that has begun is finished.
    pub time: Duration,
    /// Little content and few points: shows that everything runs. The numbers mean little.
    pub quick: bool,
    /// The path for a backup made by the GPU, for other tools to judge. Replaced if it exists.
    pub stripe: Option<PathBuf>,
    /// The libraries to use.
    pub options: Options,
}

/// The findings.
#[derive(Debug)]
pub struct DeviceCheck {
    pub report: Report,
    /// A device exists, and every check on it passed.
    pub passed: bool,
}

/// Runs everything. Calls `on_step` with one line for each step.
pub fn device_check(
    context: &RunContext,
    spec: &DeviceCheckSpec,
    on_step: &dyn Fn(&str),
) -> Result<DeviceCheck> {
    let mut options = spec.options.clone();
    if spec.quick {
        options.batch_bytes = 8 * MIB;
    }
    let mut check = Check {
        guard: Guard::new(&context.clock, spec.time),
        clock: Arc::clone(&context.clock),
        quick: spec.quick,
        options: options.clone(),
        on_step,
        checks: Vec::new(),
        passed: true,
    };
    let engine = Arc::new(Nvcomp::open(options));
    let tested = check.self_test(&engine);
    if tested {
        // Before the directory exists, nobody knows its file system.
        let made = context.storage.create_dir_all(&spec.work);
        made.with_context(|| format!("cannot open directory {}", spec.work.display()))?;
    }
    let mut platform = platform::record(context, std::slice::from_ref(&spec.work));
    platform.extend(device_facts(&engine.health(), engine.facts().as_ref()));
    let mut sections = Vec::new();
    if tested {
        let bytes = if spec.quick { 8 * MIB } else { 64 * MIB };
        on_step("building content");
        let contents = content::contents(context, &spec.work, bytes)?;
        check.correctness(&contents);
        check.faults(&engine);
        let yard = check.yard(context, &spec.work, &contents);
        check.round_trips(yard.as_ref());
        check.stripe(yard.as_ref(), spec.stripe.as_deref());
        sections.push(check.copies(&engine));
        sections.push(check.backups(yard.as_ref()));
        sections.push(check.ways(&contents));
        sections.push(check.software(&contents));
        sections.push(check.compression(&contents));
    }
    sections.insert(0, check.checks());
    let summary = match (tested, check.passed) {
        (true, true) => "GPU compression works here; the tables give its throughput.",
        (true, false) => "GPU compression does not fully work here: see the checks.",
        (false, _) => "No GPU compression here: the first check names what is missing.",
    };
    Ok(DeviceCheck {
        passed: tested && check.passed,
        report: Report {
            title: "GPU compression: device check".into(),
            summary: summary.into(),
            platform,
            sections,
        },
    })
}

fn device_facts(health: &Health, facts: Option<&Facts>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut put = |name: &str, value: Option<String>| {
        found.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("GPU", health.hardware.clone());
    put("GPU memory", facts.map(|f| gib(f.memory_bytes)));
    let capability = facts.map(|f| format!("{}.{}", f.capability.0, f.capability.1));
    put("Compute capability", capability);
    put("GPU driver speaks", health.driver_version.clone());
    put("GPU library", health.library_version.clone());
    put(
        "Batch",
        facts.map(|f| format!("{} MiB", f.batch_bytes / MIB)),
    );
    put("Batches in flight", facts.map(|f| f.batches.to_string()));
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    put("Gather kernel in use", facts.map(|f| yes(f.gathers)));
    put(
        "Checksums on the GPU in use",
        facts.map(|f| yes(f.checksums)),
    );
    found
}

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

struct Check<'a> {
    guard: Guard,
    clock: Arc<dyn Clock>,
    quick: bool,
    options: Options,
    on_step: &'a dyn Fn(&str),
    /// The checks and their results.
    checks: Vec<(String, bool, String)>,
    passed: bool,
}

impl Check<'_> {
    /// One line of the table of checks.
    fn judge(&mut self, what: &str, step: Step<String>) -> bool {
        let (good, detail) = match step {
            Step::Done(detail) => (true, detail),
            Step::Not(why) => (false, why),
        };
        self.passed &= good;
        self.checks.push((what.to_owned(), good, detail));
        good
    }

    fn step<T: Send + 'static>(
        &mut self,
        name: &str,
        limit_s: u64,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Step<T> {
        (self.on_step)(name);
        self.guard.step(name, Duration::from_secs(limit_s), work)
    }

    /// The shortest time for one point.
    fn least(&self) -> Duration {
        Duration::from_millis(if self.quick { 1 } else { 500 })
    }

    fn batches_mib(&self) -> &'static [usize] {
        if self.quick { &[8] } else { &[16, 64, 256] }
    }

    fn self_test(&mut self, engine: &Arc<Nvcomp>) -> bool {
        let engine = Arc::clone(engine);
        let step = self.step("self-test", 90, move || {
            let health = engine.self_test();
            ensure!(health.state == EngineState::Ready, "{}", health.reason);
            Ok("passed".to_owned())
        });
        self.judge("self-test", step)
    }

    fn correctness(&mut self, contents: &[SampleContent]) {
        let algorithms: &[i32] = if self.quick {
            &[1, 5]
        } else {
            &[0, 1, 2, 3, 4, 5]
        };
        for &algorithm in algorithms {
            let name = format!("correct with nvCOMP's algorithm {algorithm}");
            let (contents, options) = (contents.to_vec(), self.options_of(algorithm, 8));
            let step = self.step(&name, 60, move || {
                trust::round_trips(&*trust::ready(options)?, &contents)
            });
            self.judge(&name, step);
        }
        let plain = Options {
            gather: false,
            checksums: false,
            ..self.options_of(1, 8)
        };
        let contents = contents.to_vec();
        let name = "correct without gather kernel and checksums";
        let step = self.step(name, 60, move || {
            trust::round_trips(&*trust::ready(plain)?, &contents)
        });
        self.judge(name, step);
        let habits: [(&str, Habit); 2] = [
            ("the gather kernel is used", |facts| facts.gathers),
            ("checksums on the GPU are used", |facts| facts.checksums),
        ];
        for (what, used) in habits {
            let options = self.options_of(1, 8);
            let step = self.step(what, 60, move || {
                let facts = trust::ready(options)?.facts();
                ensure!(
                    facts.as_ref().is_some_and(used),
                    "the self-test passed only without it"
                );
                Ok("yes".to_owned())
            });
            self.judge(what, step);
        }
    }

    fn faults(&mut self, engine: &Arc<Nvcomp>) {
        let (holder, options) = (Arc::clone(engine), self.options.clone());
        let step = self.step("another program takes the GPU's memory", 90, move || {
            trust::starved(&holder, &options)
        });
        self.judge("another program takes the GPU's memory", step);
        let options = self.options.clone();
        let step = self.step("the library was not found", 30, move || {
            trust::unloaded(&options)
        });
        self.judge("the library was not found", step);
    }

    /// Files for whole backups.
    fn yard(
        &mut self,
        context: &RunContext,
        work: &Path,
        contents: &[SampleContent],
    ) -> Option<Arc<Yard>> {
        let files = if self.quick { 3 } else { 64 };
        let pages = contents.first()?.clone();
        let (context, work) = (context.clone(), work.to_owned());
        let step = self.step("files for whole backups", 120, move || {
            Ok(Arc::new(Yard::new(context, &work, pages, files)?))
        });
        match step {
            Step::Done(yard) => Some(yard),
            Step::Not(why) => {
                self.judge("files for whole backups", Step::Not(why));
                None
            }
        }
    }

    fn round_trips(&mut self, yard: Option<&Arc<Yard>>) {
        let trips: [(&str, Trip); 2] = [
            (
                "a backup with the GPU restores without",
                Yard::there_and_back,
            ),
            ("damaged results are detected", Yard::with_a_liar),
        ];
        for (name, trip) in trips {
            let Some(yard) = yard.cloned() else { return };
            let options = self.options.clone();
            let step = self.step(name, 120, move || trip(&yard, options));
            self.judge(name, step);
        }
    }

    fn stripe(&mut self, yard: Option<&Arc<Yard>>, path: Option<&Path>) {
        let (Some(yard), Some(path)) = (yard.cloned(), path) else {
            return;
        };
        let (path, options) = (path.to_owned(), self.options.clone());
        let step = self.step("a stripe for other tools", 60, move || {
            yard.stripe(options, &path)
        });
        self.judge("a stripe for other tools", step);
    }

    fn backups(&mut self, yard: Option<&Arc<Yard>>) -> Section {
        let stripes: &[usize] = if self.quick { &[1] } else { &[1, 4] };
        let batches = self.batches_mib();
        let modes: [(&str, OffloadMode, &[usize]); 3] = [
            ("software", OffloadMode::Software, &[0]),
            ("hardware", OffloadMode::Hardware, batches),
            ("hybrid", OffloadMode::Hybrid, batches),
        ];
        let points = modes.into_iter().flat_map(|(name, mode, batches)| {
            let each = batches
                .iter()
                .flat_map(|batch| stripes.iter().map(move |n| (*batch, *n)));
            each.map(move |(batch, stripes)| (name, mode, batch, stripes))
        });
        let mut rows = Vec::new();
        for (name, mode, batch, stripes) in points {
            let Some(yard) = yard.cloned() else { continue };
            let mut options = self.options.clone();
            options.batch_bytes = batch * MIB;
            let what = format!("backup to NUL, {name}, batches of {batch} MiB, {stripes} stripes");
            let step = self.step(&what, 120, move || yard.to_nul(options, mode, stripes));
            let taken = match step {
                Step::Done(taken) => Some(taken),
                Step::Not(why) => {
                    (self.on_step)(&format!("{what}: {why}"));
                    None
                }
            };
            let cell = |of: fn(&Timing) -> f64| Cell::from(taken.as_ref().map(of));
            let batch = match batch {
                0 => "none".to_owned(),
                batch => format!("{batch} MiB"),
            };
            rows.push(vec![
                Cell::from(name),
                Cell::from(batch.as_str()),
                Cell::Number(stripes as f64),
                cell(Timing::gb_per_s),
                cell(Timing::cpu_s_per_gb),
                cell(Timing::ratio),
                cell(|taken| 100.0 * taken.accelerator_share()),
            ]);
        }
        Section {
            heading: "Whole backups to NUL".into(),
            prose: vec![
                "Database pages from the page cache, QAT_DEFLATE, level LOW. A backup fills batches to half of their greatest \
                 length or more."
                    .into(),
            ],
            table: Some(Table {
                columns: vec![
                    Column::text("mode"),
                    Column::text("batch"),
                    Column::number("stripes", "", 0),
                    Column::number("speed", "GB/s", 2),
                    Column::number("CPU", "s/GB", 2),
                    Column::number("ratio", "", 2),
                    Column::number("by the GPU", "%", 0),
                ],
                row_values: rows,
            }),
            charts: Vec::new(),
        }
    }

    fn options_of(&self, algorithm: i32, batch_mib: usize) -> Options {
        Options {
            algorithm: Some(algorithm),
            batch_bytes: batch_mib * MIB,
            ..self.options.clone()
        }
    }

    fn copies(&mut self, engine: &Arc<Nvcomp>) -> Section {
        let sizes: &[usize] = if self.quick { &[1] } else { &[16, 64, 256] };
        let mut rows = Vec::new();
        for &mib in sizes {
            let engine = Arc::clone(engine);
            let rates: Option<CopyRates> = self
                .step(&format!("copies of {mib} MiB"), 60, move || {
                    engine.copy_rates(mib * MIB, 16).map_err(anyhow::Error::msg)
                })
                .done();
            let gb =
                |rate: fn(&CopyRates) -> f64| Cell::from(rates.as_ref().map(|r| rate(r) / 1e9));
            rows.push(vec![
                Cell::Number(mib as f64),
                gb(|r| r.to_device_bytes_per_s),
                gb(|r| r.from_device_bytes_per_s),
                gb(|r| r.both_bytes_per_s),
            ]);
        }
        Section {
            heading: "Copies between pinned memory and the GPU".into(),
            prose: vec![
                "By the GPU's own clock. The last column is the rate of each direction while both are in use."
                    .into(),
            ],
            table: Some(Table {
                columns: vec![
                    Column::number("copy", "MiB", 0),
                    Column::number("to the GPU", "GB/s", 1),
                    Column::number("from the GPU", "GB/s", 1),
                    Column::number("both ways", "GB/s", 1),
                ],
                row_values: rows,
            }),
            charts: Vec::new(),
        }
    }

    fn compression(&mut self, contents: &[SampleContent]) -> Section {
        // Level LOW on database pages first; then points that a reader may miss.
        let algorithms: &[i32] = if self.quick {
            &[1]
        } else {
            &[1, 0, 2, 3, 4, 5]
        };
        let mut points = Vec::new();
        for &algorithm in algorithms {
            for content in contents {
                for &batch in self.batches_mib() {
                    points.push((algorithm, content.clone(), batch));
                }
            }
        }
        let mut rows = Vec::new();
        for (algorithm, content, batch) in points {
            let options = self.options_of(algorithm, batch);
            let row = [
                Cell::from(content.name),
                Cell::Number(f64::from(algorithm)),
                Cell::Number(batch as f64),
            ];
            let speed = self.measure(
                &format!(
                    "{} with algorithm {algorithm} in batches of {batch} MiB",
                    content.name
                ),
                content,
                options,
                batch,
            );
            rows.push(
                row.into_iter()
                    .chain(device_cells(speed.as_ref()))
                    .collect(),
            );
        }
        Section {
            heading: "Compression on the GPU".into(),
            prose: vec![
                "GB are 10^9 uncompressed bytes. *kernel* is the compression of one batch by the GPU's clock, while others are \
                 compressed at the same time; *copies in* and *out* what the copies alone would allow; *whole way* from a \
                 job's buffer to its framed payload, checksums and copies by the CPU included, with several batches in \
                 flight."
                    .into(),
            ],
            table: Some(Table {
                columns: [
                    vec![
                        Column::text("content"),
                        Column::number("algorithm", "", 0),
                        Column::number("batch", "MiB", 0),
                    ],
                    device_columns(),
                ]
                .concat(),
                row_values: rows,
            }),
            charts: Vec::new(),
        }
    }

    fn measure(
        &mut self,
        name: &str,
        content: SampleContent,
        options: Options,
        batch_mib: usize,
    ) -> Option<Speed> {
        let (least, clock) = (self.least(), Arc::clone(&self.clock));
        let step = self.step(name, 60, move || {
            let engine = trust::ready(options)?;
            speed::of_engine(&*clock, &engine, &content, batch_mib * MIB, least)
        });
        match step {
            Step::Done(speed) => Some(speed),
            Step::Not(why) => {
                (self.on_step)(&format!("{name}: {why}"));
                None
            }
        }
    }

    /// Whether each of the engine's habits pays, on database pages.
    fn ways(&mut self, contents: &[SampleContent]) -> Section {
        let batch = if self.quick { 8 } else { 64 };
        let usual = self.options_of(1, batch);
        let with = |change: fn(&mut Options)| {
            let mut options = usual.clone();
            change(&mut options);
            options
        };
        let ways = [
            ("as a backup does it", usual.clone()),
            ("chunks copied back one by one", with(|o| o.gather = false)),
            ("no checksums on the GPU", with(|o| o.checksums = false)),
            ("1 batch in flight", with(|o| o.batches = 1)),
            ("2 batches in flight", with(|o| o.batches = 2)),
            ("3 batches in flight", with(|o| o.batches = 3)),
            ("8 batches in flight", with(|o| o.batches = 8)),
        ];
        let count = if self.quick { 2 } else { ways.len() };
        let mut rows = Vec::new();
        for (name, options) in ways.into_iter().take(count) {
            let Some(pages) = contents.first() else { break };
            let speed = self.measure(name, pages.clone(), options, batch);
            let cells = device_cells(speed.as_ref());
            rows.push(std::iter::once(Cell::from(name)).chain(cells).collect());
        }
        Section {
            heading: "Effect of the engine's options".into(),
            prose: vec![format!(
                "Database pages, algorithm 1, batches of {batch} MiB."
            )],
            table: Some(Table {
                columns: [vec![Column::text("way")], device_columns()].concat(),
                row_values: rows,
            }),
            charts: Vec::new(),
        }
    }

    fn software(&mut self, contents: &[SampleContent]) -> Section {
        let cores = facts::cores();
        let mut threads: Vec<usize> = [1, 2, 4, 8, 16, 32, 64]
            .into_iter()
            .filter(|&n| n < cores)
            .chain([cores])
            .collect();
        if self.quick {
            threads = vec![cores];
        }
        let mut rows = Vec::new();
        for content in contents {
            for level in [1, 3] {
                for &n in &threads {
                    let (clock, least) = (Arc::clone(&self.clock), self.least());
                    let own = content.clone();
                    let name = format!("{} in software, level {level}, {n} threads", content.name);
                    let step = self.step(&name, 60, move || {
                        speed::of_software(&*clock, &own, Level::Number(level), n, least)
                    });
                    let speed = step.done();
                    let cell = |of: fn(&Speed) -> f64| Cell::from(speed.as_ref().map(of));
                    rows.push(vec![
                        Cell::from(content.name),
                        Cell::Number(f64::from(level)),
                        Cell::Number(n as f64),
                        cell(Speed::gb_per_s),
                        cell(Speed::cpu_s_per_gb),
                        cell(Speed::ratio),
                    ]);
                }
            }
        }
        Section {
            heading: "Software on the same machine".into(),
            prose: vec![format!(
                "QAT_DEFLATE as a backup without a GPU compresses, on up to {cores} cores."
            )],
            table: Some(Table {
                columns: vec![
                    Column::text("content"),
                    Column::number("level", "", 0),
                    Column::number("threads", "", 0),
                    Column::number("whole way", "GB/s", 2),
                    Column::number("CPU", "s/GB", 2),
                    Column::number("ratio", "", 2),
                ],
                row_values: rows,
            }),
            charts: Vec::new(),
        }
    }

    fn checks(&self) -> Section {
        let row = |(what, good, detail): &(String, bool, String)| {
            let word = if *good { "yes" } else { "NO" };
            vec![
                Cell::from(what.as_str()),
                Cell::from(word),
                Cell::from(detail.as_str()),
            ]
        };
        let hung = self.guard.hung();
        Section {
            heading: "Checks".into(),
            prose: hung
                .map(|step| format!("The device hung in: {step}. It was not used again."))
                .into_iter()
                .collect(),
            table: Some(Table {
                columns: ["check", "passed", "what was seen"]
                    .map(Column::text)
                    .into(),
                row_values: self.checks.iter().map(row).collect(),
            }),
            charts: Vec::new(),
        }
    }
}

fn device_columns() -> Vec<Column> {
    vec![
        Column::number("kernel", "GB/s", 2),
        Column::number("copies in", "GB/s", 1),
        Column::number("copies out", "GB/s", 1),
        Column::number("whole way", "GB/s", 2),
        Column::number("CPU", "s/GB", 2),
        Column::number("ratio", "", 2),
        Column::number("left to software", "blocks", 0),
    ]
}

fn device_cells(speed: Option<&Speed>) -> Vec<Cell> {
    let cell = |of: fn(&Speed) -> f64| Cell::from(speed.map(of));
    vec![
        cell(|s| s.stages_gb_per_s()[1]),
        cell(|s| s.stages_gb_per_s()[0]),
        cell(|s| s.stages_gb_per_s()[2]),
        cell(Speed::gb_per_s),
        cell(Speed::cpu_s_per_gb),
        cell(Speed::ratio),
        cell(|s| s.left as f64),
    ]
}
