//! `lab`: builds samples, runs studies, and writes their reports in the forms asked for.
//!
//! Invariants
//! - A study without a source gets a sample, which is kept for the next study.
//! - Studies use the pipeline as `backup` does, write no history, and remove the files that they wrote.
//!
//! Leaves to others: the measurements and reports themselves (`longshore-studies`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_accel::nvcomp;
use longshore_codec::{Algorithm, Level};
use longshore_io::{Via, child};
use longshore_pipeline::SourceSpec;
use longshore_policy::model::Profile;
use longshore_studies::bench::{BenchSpec, bench};
use longshore_studies::cache_figures::{FiguresSpec, PairSpec, cache_figures, pair_figures};
use longshore_studies::compare::{ClusterMade, CompareSpec, compare};
use longshore_studies::device_check::{DeviceCheckSpec, device_check};
use longshore_studies::network::{NetworkSpec, network};
use longshore_studies::offload::{OffloadSpec, offload};
use longshore_studies::report::Report;
use longshore_studies::sample::{self, SampleKind, SampleReport, SampleSpec, sample};
use longshore_studies::stock;
use longshore_studies::sweep::{self, BuffersSpec, LayoutsSpec, StripesSpec};
use serde::Serialize;

use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::files::open;
use longshore_terminal::numbers;
use longshore_terminal::output::bytes;
use longshore_terminal::program::MEASURED;

use super::answers::{
    SAMPLE_BYTES, SAMPLE_BYTES_QUICK, answer, context_with_accelerators, failure, run_context,
};
use super::{figures, loads, refusals, simulate};
use crate::context::Context;
use crate::options::{
    Bench, CacheFigures, Compare, ComparedDatabase, DeviceCheck, Lab, Network, OffloadStudy,
    PUBLISHED_PAIR, Sample, SampleOptions, Study, Sweep,
};

const STRIPES_QUICK: [usize; 3] = [1, 4, 16];
const PAUSE: Duration = Duration::from_secs(5);
/// The published study's MAXTRANSFERSIZE.
const STUDY_BUFFER_BYTES: usize = 4 << 20;
const LARGE_BYTES: u64 = 10_000_000_000;
const LARGE_FILES: usize = 1_000_000;
const ROUNDS: usize = 3;
const BENCH_ROUNDS: usize = 5;
/// The most bytes of what a report begins with.
const FIRST_MAX: usize = 4 << 20;
/// The program that a bench measures from outside, and where it is if this one lies in `libexec/longshore`.
const LONGSHORE: &str = "longshore";
const PLACES: [&str; 1] = ["../../bin"];

pub fn run(options: &Lab, context: &Context) -> Result<Exit, Failure> {
    match &options.study {
        Study::Sample(options) => build(options, context),
        Study::Sweep(options) => run_sweep(options, context),
        Study::Compare(options) => run_compare(options, context),
        Study::Network(options) => run_network(options, context),
        Study::Bench(options) => run_bench(options, context),
        Study::DeviceCheck(options) => run_device_check(options, context),
        Study::Offload(options) => run_offload(options, context),
        Study::CacheFigures(options) => run_cache_figures(options, context),
        Study::Figure(options) => figures::one(options, context),
        Study::Figures(options) => figures::all(options, context),
        Study::Oltp(options) => loads::oltp(options, context),
        Study::Load(options) => loads::load(options, context),
    }
}

#[derive(Serialize)]
struct Built<'a> {
    action: &'static str,
    bytes: u64,
    row_count: u64,
    #[serde(flatten)]
    report: &'a SampleReport,
}

fn build(options: &Sample, context: &Context) -> Result<Exit, Failure> {
    let spec = SampleSpec {
        kind: options.kind.into(),
        size_bytes: options.size,
        seed: options.seed,
        files: options.files.into(),
        dirs: options.dir.clone(),
        path: options.file.clone(),
        wal: options.wal,
        replace: options.replace,
    };
    let report = sample(&spec, &teller(context)).map_err(failure)?;
    let output = context.output;
    for file in &report.files {
        let (path, size) = (file.path.display(), bytes(file.bytes));
        output.say(&format!("{path}: {size}, {} rows\n", file.row_count));
    }
    output.json(
        Exit::Done,
        Built {
            action: "lab_sample",
            bytes: report.bytes(),
            row_count: report.row_count(),
            report: &report,
        },
    );
    Ok(Exit::Done)
}

/// Reports the progress of a sample at every tenth.
fn teller(context: &Context) -> impl Fn(sample::Progress) {
    let output = context.output;
    let told = std::cell::Cell::new(0);
    move |progress| {
        let tenth = 10 * progress.bytes_done / progress.bytes_total.max(1);
        if tenth > told.replace(tenth.max(told.get())) {
            let path = progress.path.display();
            let done = bytes(progress.bytes_done);
            output.remark(&format!("{path}: {done} ({})\n", progress.step));
        }
    }
}

fn run_sweep(options: &Sweep, context: &Context) -> Result<Exit, Failure> {
    let quick = options.stocked.quick;
    let algorithm = options.algorithm.unwrap_or(Algorithm::QatDeflate);
    // A sample takes time, so the options are looked at before.
    refusals::sweep(options)?;
    let (_, source) = source(&options.stocked, SampleKind::Stae, context)?;
    let run_context = context_with_accelerators(context);
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let report = if options.buffers {
        let mut spec = BuffersSpec::new(source);
        spec.algorithm = algorithm;
        let dir = options.dir.first().cloned();
        spec.dir = Some(dir.unwrap_or_else(|| options.stocked.place()));
        if quick {
            (spec.counts, spec.rounds) = (vec![None, Some(4), Some(16)], 1);
            spec.bytes = vec![64 << 10, 1 << 20, 4 << 20];
        }
        sweep::buffers(&run_context, &spec, &step)
    } else if options.layouts {
        let mut spec = LayoutsSpec::new(source, options.dir.clone());
        (spec.algorithm, spec.quick) = (algorithm, quick);
        spec.emulated = options.devices.rates();
        if quick {
            (spec.counts, spec.rounds) = (vec![None, Some(2), Some(28)], 1);
            spec.bytes = vec![1 << 20, 4 << 20];
        }
        sweep::layouts(&run_context, &spec, &step)
    } else {
        let pause = options.pause.map(|s| Duration::from_secs(s.into()));
        let spec = StripesSpec {
            source,
            dirs: options.dir.clone(),
            stripes: if quick {
                STRIPES_QUICK.to_vec()
            } else {
                sweep::STRIPES.to_vec()
            },
            buffer_bytes: STUDY_BUFFER_BYTES,
            rounds: options.rounds.into(),
            pause: pause.unwrap_or(if quick { Duration::ZERO } else { PAUSE }),
            cool_c: options.cool.map(f64::from),
        };
        sweep::stripes(&run_context, &spec, &step)
    };
    answer(
        Exit::Done,
        report.map_err(failure)?,
        quick,
        &options.written,
        context,
    )
}

fn run_compare(options: &Compare, context: &Context) -> Result<Exit, Failure> {
    refusals::compare(options)?;
    let stocked = &options.stocked;
    let (mut databases, mut cluster) = (Vec::new(), None);
    if options.database == ComparedDatabase::Postgres {
        cluster = Some(ClusterMade {
            work: stocked.place(),
            bytes: sample_bytes(stocked),
        });
    } else {
        databases.push(source(stocked, SampleKind::Stae, context)?);
        if stocked.source.is_empty() {
            databases.insert(0, source(stocked, SampleKind::Tprocc, context)?);
        }
    }
    let rounds = options.rounds.map(usize::from);
    let spec = CompareSpec {
        databases,
        cluster,
        dirs: options.dir.clone(),
        stripes: options.stripes.into(),
        rounds: rounds.unwrap_or(if stocked.quick { 1 } else { ROUNDS }),
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    // A file that cannot be read is told of before the work.
    let first = options.after.as_deref();
    let first = first.map(|path| told(path, context)).transpose()?;
    let run_context = context_with_accelerators(context);
    let mut report = compare(&run_context, &spec, &step).map_err(failure)?;
    if let Some(first) = first {
        report.begin_with(first);
    }
    answer(Exit::Done, report, stocked.quick, &options.written, context)
}

fn run_network(options: &Network, context: &Context) -> Result<Exit, Failure> {
    refusals::network(options)?;
    let stocked = &options.stocked;
    let (name, source) = source(stocked, SampleKind::Stae, context)?;
    let rounds = options.rounds.map(usize::from);
    let spec = NetworkSpec {
        name,
        source,
        prefixes: options.to.clone(),
        stripes: options.stripes.into(),
        algorithm: options.algorithm,
        level: Level::Low,
        rounds: rounds.unwrap_or(if stocked.quick { 1 } else { ROUNDS }),
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let report = network(&run_context(context), &spec, &step).map_err(failure)?;
    answer(Exit::Done, report, stocked.quick, &options.written, context)
}

/// A report that another program has begun.
fn told(path: &Path, context: &Context) -> Result<Report, Failure> {
    let unusable = |why: String| {
        let what = format!("cannot use {}: {why}", path.display());
        let hint =
            "write one object with title, summary, platform and sections, as `--json` prints them";
        Failure::usage(what, hint).numbered(numbers::FILE_UNUSABLE)
    };
    let read = || {
        let file = open(&*context.storage, path)?;
        let mut bytes = vec![0; FIRST_MAX];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        String::from_utf8(bytes).map_err(std::io::Error::other)
    };
    let text = read().map_err(|e| unusable(e.to_string()))?;
    Report::from_json(&text).map_err(|e| unusable(e.to_string()))
}

fn run_bench(options: &Bench, context: &Context) -> Result<Exit, Failure> {
    refusals::bench(options)?;
    let stocked = &options.stocked;
    let program = measured(std::env::var_os(MEASURED))?;
    let (_, source) = source(stocked, SampleKind::Stae, context)?;
    let large = match options.large {
        true => large_sources(&stocked.place(), context)?,
        false => Vec::new(),
    };
    let rounds = options.rounds.map(usize::from);
    let spec = BenchSpec {
        source,
        dir: options.dir.clone().unwrap_or_else(|| stocked.place()),
        rounds: rounds.unwrap_or(if stocked.quick { 1 } else { BENCH_ROUNDS }),
        stripes: if stocked.quick {
            STRIPES_QUICK.to_vec()
        } else {
            sweep::STRIPES.to_vec()
        },
        large,
        program,
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let report = bench(&run_context(context), &spec, &step).map_err(failure)?;
    answer(Exit::Done, report, stocked.quick, &options.written, context)
}

/// The program that a bench measures: the one that became this program, else the one that is installed with it.
fn measured(caller: Option<OsString>) -> Result<PathBuf, Failure> {
    match caller.filter(|path| !path.is_empty()) {
        Some(path) => child::named(Path::new(&path)).map_err(|e| {
            Failure::usage(
                format!("the program that {MEASURED} names is not measured: {e}"),
                format!("unset {MEASURED}, or run `longshore lab bench`, which sets it to itself"),
            )
            .numbered(numbers::PROGRAM_MISSING)
        }),
        None => child::companion(LONGSHORE, &PLACES).map_err(|e| {
            Failure::usage(
                format!("the program to be measured is not here: {e}"),
                "install longshore next to longshore-lab: `make install`",
            )
            .numbered(numbers::PROGRAM_MISSING)
        }),
    }
}

fn run_device_check(options: &DeviceCheck, context: &Context) -> Result<Exit, Failure> {
    let spec = DeviceCheckSpec {
        work: options.work.clone(),
        time: Duration::from_secs(options.seconds.into()),
        quick: options.quick,
        stripe: options.stripe.clone(),
        options: nvcomp::Options::from_environment(),
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let found = device_check(&run_context(context), &spec, &step).map_err(failure)?;
    let exit = if found.passed { Exit::Done } else { Exit::No };
    answer(exit, found.report, options.quick, &options.written, context)
}

fn run_offload(options: &OffloadStudy, context: &Context) -> Result<Exit, Failure> {
    refusals::offload(options)?;
    let (name, source) = source(&options.stocked, SampleKind::Stae, context)?;
    let rounds = options.rounds.map(usize::from);
    let spec = OffloadSpec {
        name,
        source,
        dirs: options.dir.clone(),
        stripes: options.stripes.into(),
        rounds: rounds.unwrap_or(if options.stocked.quick {
            1
        } else {
            BENCH_ROUNDS
        }),
    };
    let run_context = context_with_accelerators(context);
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let report = offload(&run_context, &spec, &step).map_err(failure)?;
    let quick = options.stocked.quick;
    answer(Exit::Done, report, quick, &options.written, context)
}

fn run_cache_figures(options: &CacheFigures, context: &Context) -> Result<Exit, Failure> {
    let spec = FiguresSpec {
        seed: options.seed,
        quick: options.quick,
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let report = match pair_of(options, context)? {
        Some(pair) => pair_figures(&pair, &spec, &step),
        None => cache_figures(&spec, &step),
    };
    let report = report.map_err(failure)?;
    answer(Exit::Done, report, options.quick, &options.written, context)
}

/// The two devices that are asked for, if any is.
fn pair_of(options: &CacheFigures, context: &Context) -> Result<Option<PairSpec>, Failure> {
    let models = options.models.paths();
    let pair = match (&options.pair, models) {
        (Some(pair), _) => pair.as_str(),
        (None, [None, None]) => return Ok(None),
        (None, _) => PUBLISHED_PAIR,
    };
    let (fast, slow) = simulate::devices(pair, models, context)?;
    let name = |n: usize, profile: &Profile| match models[n].and_then(Path::file_name) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => profile.name.to_owned(),
    };
    let mut names = [name(0, &fast), name(1, &slow)];
    if names[0] == names[1] {
        names = ["fast", "slow"].map(|side| format!("{side} {}", names[0]));
    }
    let [fast_name, slow_name] = names;
    Ok(Some(PairSpec {
        fast_name,
        slow_name,
        fast,
        slow,
    }))
}

/// The two sizes that memory must not depend on: much data, and many names.
fn large_sources(work: &Path, context: &Context) -> Result<Vec<(String, SourceSpec)>, Failure> {
    let storage = &*context.storage;
    let database = stock::sample_in(
        storage,
        work,
        SampleKind::Stae,
        LARGE_BYTES,
        &teller(context),
    );
    let database = SourceSpec::Sqlite(database.map_err(failure)?);
    let tree = stock::tree_in(storage, work, LARGE_FILES).map_err(failure)?;
    Ok(vec![
        ("a database of 10 GB".to_owned(), database),
        (
            "a million small files".to_owned(),
            SourceSpec::Files(vec![tree]),
        ),
    ])
}

/// The size of a sample if no source is given.
fn sample_bytes(stocked: &SampleOptions) -> u64 {
    stocked.size.unwrap_or(match stocked.quick {
        true => SAMPLE_BYTES_QUICK,
        false => SAMPLE_BYTES,
    })
}

/// The source that a study backs up, with a name for it.
fn source(
    stocked: &SampleOptions,
    kind: SampleKind,
    context: &Context,
) -> Result<(String, SourceSpec), Failure> {
    let storage = &*context.storage;
    if !stocked.source.is_empty() {
        let spec = SourceSpec::parse(storage, &stocked.source)?;
        let name = stocked.source[0].to_string_lossy().into_owned();
        return Ok((name, spec));
    }
    let size = sample_bytes(stocked);
    let path = stock::sample_in(storage, &stocked.place(), kind, size, &teller(context));
    Ok((
        kind.name().to_owned(),
        SourceSpec::Sqlite(path.map_err(failure)?),
    ))
}
