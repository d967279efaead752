//! Goal: studies measure everything that they announce, leave only the files that they should, and end early when they
//! are cancelled.
//! Method: databases of a few megabytes on the real file system.
//! Not covered: whether the figures are right for a machine; one size and short runs show nothing about that.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_accel::Fault;
use longshore_accel::dispatch::InService;
use longshore_accel::scripted::{Act, Pace, ScriptedEngine};
use longshore_codec::Algorithm;
use longshore_io::{Host, HostClock};
use longshore_pipeline::{RunContext, SourceSpec};
use longshore_studies::compare::{CompareSpec, compare};
use longshore_studies::paced::{DeviceRate, EmulatedVolumes};
use longshore_studies::report::{Cell, Report, ReportFormat, Table};
use longshore_studies::sample::SampleKind;
use longshore_studies::stock::sample_in;
use longshore_studies::sweep::{self, BuffersSpec, LayoutsSpec, StripesSpec};
use tempfile::TempDir;

const BYTES: u64 = 3_000_000;

fn context() -> RunContext {
    RunContext {
        keyring: Default::default(),
        storage: Arc::new(Host::new()),
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

fn source(dir: &Path) -> SourceSpec {
    let path = sample_in(&Host::new(), dir, SampleKind::Stae, BYTES, &|_| {});
    SourceSpec::Sqlite(path.unwrap())
}

fn spec(root: &Path) -> StripesSpec {
    StripesSpec {
        source: source(root),
        dirs: vec![root.join("a"), root.join("b")],
        stripes: vec![1, 3],
        buffer_bytes: 4 << 20,
        rounds: 1,
        pause: Duration::ZERO,
        cool_c: None,
    }
}

fn names(dir: PathBuf) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name()).collect()
}

fn table(report: &Report, section: usize) -> &Table {
    report.sections[section].table.as_ref().unwrap()
}

/// The numbers of one column.
fn column(table: &Table, name: &str) -> Vec<Option<f64>> {
    let n = table.columns.iter().position(|c| c.name == name).unwrap();
    let number = |row: &Vec<Cell>| match row[n] {
        Cell::Number(number) => Some(number),
        _ => None,
    };
    table.row_values.iter().map(number).collect()
}

#[test]
fn the_sweep_has_a_row_for_every_backup_and_leaves_no_files() {
    let root = TempDir::new().unwrap();
    let report = sweep::stripes(&context(), &spec(root.path()), &|_| {}).unwrap();
    let all = table(&report, 2);
    // NUL, three algorithms at two stripe counts, and the hardware, which is missing here.
    assert_eq!(all.row_values.len(), 1 + 3 * 2 + 1);
    assert_eq!(
        column(all, "Stripes"),
        [
            None,
            Some(1.0),
            Some(3.0),
            Some(1.0),
            Some(3.0),
            Some(1.0),
            Some(3.0),
            None
        ]
    );
    let sizes = column(all, "Size");
    let (none, deflate) = (sizes[1].unwrap(), sizes[5].unwrap());
    assert!(none > 2.9 && deflate < none / 2.0, "{none} {deflate}");
    let share = column(all, "Share of NUL")[0].unwrap();
    assert!((share - 100.0).abs() < 1e-9, "{share}");
    assert!(
        report
            .to_text()
            .contains("QAT_DEFLATE hardware was skipped (2 backups)")
    );
    let ratios = column(table(&report, 1), "Size");
    assert_eq!(ratios.len(), 2);
    assert!(ratios.iter().all(|r| *r > Some(0.5)));
    let by_count = table(&report, 0);
    assert_eq!(column(by_count, "Stripes"), [Some(1.0), Some(3.0)]);
    assert_eq!(by_count.columns.len(), 1 + 2 * 3);
    for dir in ["a", "b"] {
        assert_eq!(names(root.path().join(dir)).len(), 0, "{dir}");
    }
    // A single round decides nothing, and the page cache is told of.
    assert!(
        report.summary.starts_with("Only 1 round"),
        "{}",
        report.summary
    );
    assert!(column(all, "From disk").iter().take(7).all(Option::is_some));
    let told = "The source left the page cache before each backup";
    assert!(report.to_markdown().contains(told));
}

#[test]
fn rounds_of_the_sweep_have_a_range_and_each_has_its_backup_to_nul() {
    let root = TempDir::new().unwrap();
    let steps = std::cell::RefCell::new(Vec::new());
    let keep = |line: &str| steps.borrow_mut().push(line.to_owned());
    let mut spec = spec(root.path());
    (spec.stripes, spec.rounds) = (vec![2], 3);
    let report = sweep::stripes(&context(), &spec, &keep).unwrap();
    let steps = steps.into_inner();
    assert_eq!(steps.len(), 3 * (1 + 3));
    let nul: Vec<usize> = (0..steps.len())
        .filter(|n| steps[*n].contains("NONE to NUL"))
        .collect();
    assert_eq!(nul, [0, 4, 8]);
    let all = table(&report, 2);
    let n = all
        .columns
        .iter()
        .position(|c| c.name == "min–max")
        .unwrap();
    for row in &all.row_values[..4] {
        assert!(
            matches!(&row[n], Cell::Text(range) if range.contains('–')),
            "{row:?}"
        );
    }
    assert!(!report.summary.contains("chance"), "{}", report.summary);
}

/// An accelerator made of a clock and a script.
fn scripted(act: Act) -> Arc<InService> {
    let pace = Pace {
        latency: Duration::from_micros(200),
        bytes_per_s: 0,
    };
    let engine = ScriptedEngine::new(
        Arc::new(HostClock),
        Algorithm::QatDeflate,
        pace,
        move |_| act,
    );
    InService::new(Arc::new(engine))
}

/// The texts of one column.
fn texts(table: &Table, name: &str) -> Vec<String> {
    let n = table.columns.iter().position(|c| c.name == name).unwrap();
    let text = |row: &Vec<Cell>| match &row[n] {
        Cell::Text(text) => text.clone(),
        _ => String::new(),
    };
    table.row_values.iter().map(text).collect()
}

/// The share that the last column gives to the scripted accelerator, as printed.
fn share(by: &str) -> Option<&str> {
    by.split(", ")
        .find_map(|part| part.strip_prefix("scripted "))
}

#[test]
fn a_comparison_has_rows_for_each_accelerator_that_say_who_compressed() {
    let root = TempDir::new().unwrap();
    for (act, is_used) in [
        (Act::Well, true),
        (Act::Refuse(Fault::Device { code: -2 }), false),
    ] {
        let mut context = context();
        context.accelerators = vec![scripted(act)];
        let spec = CompareSpec {
            databases: vec![("one".into(), source(root.path()))],
            cluster: None,
            dirs: Vec::new(),
            stripes: 2,
            rounds: 1,
        };
        let report = compare(&context, &spec, &|_| {}).unwrap();
        let all = table(&report, 0);
        let names = texts(all, "Algorithm");
        assert_eq!(names.len(), 12);
        let has_column = all.columns.iter().any(|c| c.name == "Compressed by");
        assert_eq!(has_column, is_used);
        let row = report.platform.iter().find(|row| row.0 == "Accelerator");
        assert_eq!(row.unwrap().1, "scripted: a script");
        if !is_used {
            let asked = ["hardware", "hybrid"];
            let asked = asked.map(|mode| format!("QAT_DEFLATE LOW software, {mode} requested"));
            assert_eq!(names[10..], asked);
            continue;
        }
        let by = texts(all, "Compressed by");
        assert!(by[..10].iter().all(|by| share(by).is_none()), "{by:?}");
        // A busy machine can leave blocks to software; then the name says so.
        let expected = match share(&by[10]).unwrap() {
            "100.0 %" => "QAT_DEFLATE LOW hardware".to_owned(),
            less => format!("QAT_DEFLATE LOW, {less} in hardware"),
        };
        assert_eq!(names[10], expected);
        assert!(names[11].starts_with("QAT_DEFLATE LOW "), "{names:?}");
    }
}

#[test]
fn a_sweep_with_an_accelerator_has_its_backups_and_names_it() {
    let root = TempDir::new().unwrap();
    let mut context = context();
    context.accelerators = vec![scripted(Act::Half(Fault::Short))];
    let report = sweep::stripes(&context, &spec(root.path()), &|_| {}).unwrap();
    let published = table(&report, report.sections.len() - 1);
    let names = texts(published, "Backup");
    assert_eq!(names.len(), 1 + 4 * 2);
    // Software did every second block at least, so no row and no chart calls it hardware.
    for name in &names[7..] {
        assert_ne!(name, "QAT_DEFLATE hardware");
        assert!(name.starts_with("QAT_DEFLATE"), "{name}");
    }
    assert!(
        report
            .summary
            .contains("2 of 2 backups with hardware do not count"),
        "{}",
        report.summary
    );
    assert!(
        !report
            .sections
            .iter()
            .any(|s| s.heading.contains("in hardware against"))
    );
}

#[test]
fn a_cancelled_sweep_ends_with_an_error_and_leaves_no_files() {
    let root = TempDir::new().unwrap();
    let context = context();
    let cancel = context.cancel.clone();
    let steps = std::cell::Cell::new(0);
    let stop_in_the_middle = |_: &str| {
        steps.set(steps.get() + 1);
        cancel.store(steps.get() == 3, Ordering::Relaxed);
    };
    let ended = sweep::stripes(&context, &spec(root.path()), &stop_in_the_middle);
    let error = ended.unwrap_err().downcast::<longshore_pipeline::Error>();
    assert!(matches!(error, Ok(longshore_pipeline::Error::Cancelled)));
    assert_eq!(steps.get(), 3);
    assert_eq!(names(root.path().join("a")).len(), 0);
}

/// The words of one column.
fn words(table: &Table, name: &str) -> Vec<String> {
    let n = table.columns.iter().position(|c| c.name == name).unwrap();
    let text = |row: &Vec<Cell>| match &row[n] {
        Cell::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    table.row_values.iter().map(text).collect()
}

#[test]
fn the_sweep_of_buffers_has_the_default_as_a_point_on_curves_over_buffercount() {
    let root = TempDir::new().unwrap();
    let mut spec = BuffersSpec::new(source(root.path()));
    (spec.counts, spec.rounds) = (vec![None, Some(1), Some(4)], 2);
    spec.bytes = vec![64 << 10, 1 << 20];
    spec.dir = Some(root.path().join("a"));
    let report = sweep::buffers(&context(), &spec, &|_| {}).unwrap();
    let grid = table(&report, 0);
    assert_eq!(grid.row_values.len(), 2 * 2 * 3);
    let (counts, asked) = (column(grid, "BUFFERCOUNT"), words(grid, "Count"));
    assert_eq!(counts[1..3], [1.0, 4.0].map(Some));
    assert_eq!(asked[..3], ["default", "asked", "asked"]);
    let default = counts[0].unwrap();
    assert!(default >= 5.0, "the plan's number: {default}");
    assert!(column(grid, "Throughput").iter().all(|t| *t > Some(0.0)));
    assert!(
        words(grid, "Limited by")
            .iter()
            .all(|l| l.starts_with("the ") || l.starts_with("mixed"))
    );
    let charts = &report.sections[0].charts;
    let titles: Vec<&str> = charts.iter().map(|c| c.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Throughput to NUL",
            "Throughput to one file",
            "CPU time to NUL",
            "CPU time to one file"
        ]
    );
    for chart in charts {
        assert_eq!(chart.x.label, "BUFFERCOUNT");
        let names: Vec<&str> = chart.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            names,
            ["64 KiB", "1 MiB", "64 KiB, default", "1 MiB, default"]
        );
    }
    let targets = words(grid, "Target");
    let sizes = words(grid, "MAXTRANSFERSIZE");
    let curves: Vec<String> = targets
        .iter()
        .zip(&sizes)
        .map(|(target, size)| format!("to {target} with {size}"))
        .collect();
    says_which_limits(&report.sections[0].prose[1], grid, &curves);
    assert_eq!(names(root.path().join("a")).len(), 0);
    knows_storage(&report, &root.path().join("a"));
}

/// The verdict in words is what the table has: `curves` names the curve of each row.
fn says_which_limits(verdict: &str, table: &Table, curves: &[String]) {
    let told = verdict.strip_prefix("Which limit held at which BUFFERCOUNT: ");
    let told = told.unwrap_or_else(|| panic!("{verdict}"));
    let limits = words(table, "Limited by");
    if let Some(limit) = told.strip_prefix("everywhere ") {
        assert!(
            limits.iter().all(|own| format!("{own}.") == limit),
            "{verdict}: {limits:?}"
        );
        return;
    }
    assert!(limits.iter().any(|own| *own != limits[0]), "{verdict}");
    let counts = column(table, "BUFFERCOUNT");
    for curve in curves {
        let own = curves.iter().zip(&counts).zip(&limits);
        let own = own.filter(|((name, _), _)| *name == curve);
        let mut places: Vec<(usize, &String)> = own
            .map(|((_, count), limit)| (count.unwrap() as usize, limit))
            .collect();
        places.sort_by_key(|(count, _)| *count);
        let runs: Vec<String> = places
            .chunk_by(|a, b| a.1 == b.1)
            .map(|run| {
                let (from, to) = (run[0].0, run[run.len() - 1].0);
                let last = if from == to {
                    String::new()
                } else {
                    format!(" to {to}")
                };
                format!("{} at {from}{last}", run[0].1)
            })
            .collect();
        let group = told.trim_end_matches('.').split("; ");
        let mut group = group.filter(|group| {
            let (names, _) = group.split_once(": ").unwrap();
            names.split(" / ").any(|name| name == curve)
        });
        let (_, held) = group.next().expect(verdict).split_once(": ").unwrap();
        assert_eq!(held, runs.join(", "), "{curve}: {verdict}");
    }
}

/// A directory that the study itself made: its file system is in the record.
fn knows_storage(report: &Report, dir: &Path) {
    let name = format!("Storage of {}", dir.display());
    let row = report.platform.iter().find(|row| row.0 == name);
    let told = &row
        .unwrap_or_else(|| panic!("{name}: {:?}", report.platform))
        .1;
    let here = longshore_facts::mount_of(dir).unwrap();
    let expected = format!(
        "{} on {}",
        here.kind.to_string_lossy(),
        here.source.to_string_lossy()
    );
    assert!(told.starts_with(&expected), "{told}: {expected}");
}

fn rates(mib: u64) -> EmulatedVolumes {
    let target = DeviceRate {
        bytes_per_s: NonZeroU64::new(mib << 20).unwrap(),
        latency: Duration::ZERO,
    };
    EmulatedVolumes {
        target,
        source: None,
    }
}

#[test]
fn the_sweep_of_layouts_says_in_every_caption_what_its_volumes_are() {
    let root = TempDir::new().unwrap();
    for (n, (emulated, caption, last)) in [
        (
            None,
            "4 directories of one drive",
            "4 devices, 4 directories of one drive",
        ),
        (
            Some(rates(200)),
            "emulated at 200 MB/s",
            "4 devices, 4 volumes",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let dirs: Vec<PathBuf> = (0..4)
            .map(|of| root.path().join(format!("{n}/{of}")))
            .collect();
        let mut spec = LayoutsSpec::new(source(root.path()), dirs.clone());
        (spec.counts, spec.bytes) = (vec![None, Some(2)], vec![1 << 20]);
        (spec.rounds, spec.quick, spec.emulated) = (1, true, emulated);
        let report = sweep::layouts(&context(), &spec, &|_| {}).unwrap();
        assert!(report.summary.contains(caption), "{}", report.summary);
        assert!(report.title.contains(caption), "{}", report.title);
        for section in &report.sections {
            assert!(section.heading.contains(caption), "{}", section.heading);
            for chart in &section.charts {
                assert!(chart.title.contains(caption), "{}", chart.title);
            }
        }
        let layouts = words(table(&report, 0), "Layout");
        assert_eq!(layouts, ["1 device, 1 volume", "4 devices, 1 volume", last]);
        let all = table(&report, 1);
        assert_eq!(all.row_values.len(), 3 * 2);
        for name in ["Elapsed", "Read", "Written"] {
            assert!(column(all, name).iter().all(|v| *v > Some(0.0)), "{name}");
        }
        // The first of the map is what the others are compared with.
        let map = table(&report, 2);
        assert_eq!(column(map, "default")[0], Some(1.0));
        assert_eq!(report.sections[2].charts[0].form, ReportFormat::Map);
        let curves: Vec<String> = words(all, "Layout")
            .iter()
            .map(|layout| format!("{layout} with 1 MiB"))
            .collect();
        says_which_limits(&report.sections[1].prose[1], all, &curves);
        for dir in &dirs {
            knows_storage(&report, dir);
            assert_eq!(names(dir.clone()).len(), 0);
        }
    }
}

#[test]
fn the_comparison_measures_every_algorithm_on_every_database() {
    let root = TempDir::new().unwrap();
    let database = source(root.path());
    let spec = CompareSpec {
        databases: vec![("one".into(), database.clone()), ("two".into(), database)],
        cluster: None,
        dirs: vec![root.path().join("a")],
        stripes: 2,
        rounds: 1,
    };
    let report = compare(&context(), &spec, &|_| {}).unwrap();
    let of_databases = |name: &str| report.sections.iter().position(|s| s.heading == name);
    let last = report.sections.len() - 1;
    assert_eq!(of_databases("Databases"), Some(last));
    let known = table(&report, last);
    assert_eq!(column(known, "Files"), [Some(1.0), Some(1.0)]);
    assert!(
        column(known, "Rows")
            .iter()
            .all(|rows| *rows > Some(1000.0))
    );
    for name in ["one", "two"] {
        let section = of_databases(name).unwrap();
        let stored = column(table(&report, section), "Stored");
        assert!(stored[0] > Some(2.9) && stored[2] < stored[0], "{stored:?}");
        let ratios = column(table(&report, section), "Ratio");
        assert_eq!(ratios.len(), 10);
        assert!(ratios.iter().all(|r| *r > Some(0.99)));
        // NONE first, then MS_XPRESS, which is the baseline of the others.
        assert!(ratios[0] < Some(1.001) && ratios[2] > Some(2.0));
        let base = column(table(&report, section), "Speed-up")[1].unwrap();
        assert!((base - 1.0).abs() < 1e-9, "{base}");
        // The advice stands first, and a single round weakens it.
        let advice = &report.sections[section].prose[0];
        assert!(
            advice.starts_with("Take ") && advice.contains("So few rounds"),
            "{advice}"
        );
    }
    assert_eq!(report.summary.matches(": take ").count(), 2);
    for chart in &report.sections[of_databases("one").unwrap()].charts[1..] {
        let heights: Vec<f64> = chart.series[0].values.iter().flatten().copied().collect();
        assert_eq!(chart.x.label, "Algorithm, best first", "{chart:?}");
        let high = [
            "Compression ratio",
            "Speed-up over MS_XPRESS of those that compress",
        ];
        let is_best_first = match high.contains(&chart.title.as_str()) {
            true => heights.iter().rev().is_sorted(),
            false => heights.is_sorted(),
        };
        assert!(is_best_first && heights.len() >= 9, "{chart:?}");
    }
    for form in [report.to_text(), report.to_markdown()] {
        assert_eq!(form.matches("Take ").count(), 2, "{form}");
    }
    assert_eq!(names(root.path().join("a")).len(), 0);
}

#[test]
fn a_stocked_sample_is_built_once() {
    let root = TempDir::new().unwrap();
    let built = std::cell::Cell::new(0);
    let count = |_: longshore_studies::sample::Progress| built.set(built.get() + 1);
    let build = || sample_in(&Host::new(), root.path(), SampleKind::Tprocc, BYTES, &count);
    let first = build().unwrap();
    let loaded = built.get();
    assert!(loaded > 0);
    assert_eq!((build().unwrap(), built.get()), (first, loaded));
}
