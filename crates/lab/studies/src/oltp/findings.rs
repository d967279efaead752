//! The findings of backups under load: phases, curves, bars, and what each backup cost.
//!
//! Invariants
//! - Every second belongs to one phase, that of its middle; a quiet phase has no backups and loses nothing.
//! - A phase of hardware of which an accelerator compressed less than [`IN_HARDWARE`] has a row that says so, and no values.
//! - The value of a phase without a transaction is absent, its rate 0.
//!
//! Leaves to others: the run (`mod.rs`), and reading logs (`transactions.rs`).

use super::spec::{LoadKind, OltpSpec};
use super::transactions::{TransactionTimes, Transactions};

use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table,
    counted as in_words,
};
use crate::spread::median;
use crate::timing::{IN_HARDWARE, Timing};

/// The key of the phase that asks for hardware.
pub const HARD: &str = "hard";
/// The key of such a phase that does not count as hardware: it has no values.
const MIXED: &str = "mixed";

/// A phase of the study.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Empty for a quiet one.
    pub key: &'static str,
    pub name: String,
    /// By the wall clock.
    pub from_s: f64,
    pub to_s: f64,
    pub backups: Vec<Timing>,
}

impl Phase {
    pub fn quiet(name: &str) -> Phase {
        Phase::of("", name)
    }

    pub fn of(key: &'static str, name: &str) -> Phase {
        Phase {
            key,
            name: name.into(),
            from_s: 0.0,
            to_s: 0.0,
            backups: Vec::new(),
        }
    }

    /// Which part accelerators compressed, 0 to 1; `None`: the phase did not ask for them.
    fn accelerator_share(&self) -> Option<f64> {
        let shares = self.backups.iter().map(Timing::accelerator_share);
        let all = shares.sum::<f64>() / self.backups.len().max(1) as f64;
        (self.key == HARD).then_some(all)
    }

    fn backup_s(&self) -> Option<f64> {
        median(self.backups.iter().map(|t| t.wall_s))
    }
}

/// The findings of the study.
#[derive(Debug)]
pub struct OltpFound {
    pub report: Report,
    /// By name, what this machine does not have.
    pub missing: Vec<String>,
    values: Vec<(String, f64)>,
    load: String,
}

impl OltpFound {
    /// `PHASE/FIGURE` and its value: `s`, `tps` and `lost`, and `quiet/tps`.
    pub fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
    }

    pub fn conditions(&self) -> Vec<(String, String)> {
        vec![("Load".into(), self.load.clone())]
    }
}

/// A phase with its transactions.
struct Counted<'a> {
    phase: &'a Phase,
    rate: f64,
    times: Option<TransactionTimes>,
    /// Transactions that one backup cost; of a quiet phase none.
    lost: Option<f64>,
}

pub fn found(
    spec: &OltpSpec,
    kind: LoadKind,
    platform: Vec<(String, String)>,
    mut phases: Vec<Phase>,
    all: &Transactions,
    begun_s: f64,
    mut missing: Vec<String>,
) -> OltpFound {
    for phase in &mut phases {
        let Some(share) = phase.accelerator_share().filter(|s| *s < IN_HARDWARE) else {
            continue;
        };
        let percent = 100.0 * share;
        missing.push(format!(
            "{} (the accelerator compressed {percent:.1} %, less than {:.0} %)",
            phase.name,
            100.0 * IN_HARDWARE
        ));
        // Neither a figure nor a reader takes it for hardware.
        phase.key = MIXED;
        phase.name = format!("QAT_DEFLATE, {percent:.1} % in hardware");
    }
    let rate = |phase: &Phase| all.rate(phase.from_s, phase.to_s);
    let quiet = phases.iter().filter(|p| p.key.is_empty()).map(rate);
    let quiet = median(quiet).unwrap_or(0.0);
    let counted: Vec<Counted> = phases
        .iter()
        .map(|phase| Counted {
            phase,
            rate: rate(phase),
            times: all.times(phase.from_s, phase.to_s),
            lost: phase.backup_s().map(|s| (quiet - rate(phase)) * s),
        })
        .collect();
    let mut values = vec![("quiet/tps".to_owned(), quiet)];
    let valued = |c: &&Counted| !c.phase.key.is_empty() && c.phase.key != MIXED;
    for one in counted.iter().filter(valued) {
        let mut put = |figure: &str, value: Option<f64>| {
            let name = format!("{}/{figure}", one.phase.key);
            values.extend(value.map(|value| (name, value)));
        };
        put("s", one.phase.backup_s());
        put("tps", Some(one.rate));
        put("lost", one.lost);
    }
    let load = format!("{}, {} clients", kind.text(), spec.clients);
    let report = Report {
        title: "Backups under load".into(),
        summary: with_missing(summary(&counted, quiet), &missing),
        platform,
        sections: vec![
            in_phases(spec, kind, &counted),
            over_time(&phases, all, begun_s),
        ],
    };
    OltpFound {
        report,
        missing,
        values,
        load,
    }
}

/// A headline does not keep silent about phases that this machine could not have.
fn with_missing(summary: String, missing: &[String]) -> String {
    match missing {
        [] => summary,
        missing => format!("{summary} Not here: {}.", missing.join("; ")),
    }
}

fn summary(counted: &[Counted], quiet: f64) -> String {
    let backups = counted.iter().filter_map(|c| Some((c, c.lost?)));
    let least = backups.min_by(|a, b| a.1.total_cmp(&b.1));
    match least {
        Some((one, lost)) => format!(
            "Without a backup {quiet:.0} transactions per second; the backup with {} costs fewest: {:.0} transactions in {:.2} s.",
            one.phase.name,
            lost.max(0.0),
            one.phase.backup_s().unwrap_or(0.0)
        ),
        None => String::new(),
    }
}

fn in_phases(spec: &OltpSpec, kind: LoadKind, counted: &[Counted]) -> Section {
    let row = |one: &Counted| {
        let backups = &one.phase.backups;
        let of = |value: &dyn Fn(&Timing) -> f64| median(backups.iter().map(value));
        let times = |value: fn(&TransactionTimes) -> f64| one.times.as_ref().map(value);
        vec![
            one.phase.name.as_str().into(),
            (one.phase.to_s - one.phase.from_s).into(),
            one.rate.into(),
            times(|t| t.median_ms).into(),
            times(|t| t.p95_ms).into(),
            times(|t| t.p99_ms).into(),
            (!backups.is_empty()).then_some(backups.len() as f64).into(),
            one.phase.backup_s().into(),
            of(&Timing::mb_per_s).into(),
            of(&|t| t.cpu_s).into(),
            median(backups.iter().filter_map(|t| t.system_cpu_percent)).into(),
            of(&Timing::ratio).into(),
            one.lost.into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Phase"),
            Column::number("Length", "s", 1),
            Column::number("Transactions", "/s", 0),
            Column::number("Median", "ms", 2),
            Column::number("95 %", "ms", 2),
            Column::number("99 %", "ms", 2),
            Column::number("Backups", "", 0),
            Column::number("Each takes", "s", 2),
            Column::number("Throughput", "MB/s", 0),
            Column::number("CPU time", "s", 2),
            Column::number("CPU", "% of system", 1),
            Column::number("Ratio", "", 2),
            Column::number("Lost by one", "transactions", 0),
        ],
        row_values: counted.iter().map(row).collect(),
    };
    let bars = |title: &str, y: Axis, value: &dyn Fn(&Counted) -> Option<f64>| Chart {
        title: title.into(),
        form: ReportFormat::Bar,
        x: Positions {
            label: "Phase".into(),
            unit: String::new(),
            at: At::Names(counted.iter().map(|c| c.phase.name.clone()).collect()),
        },
        y,
        y_right: None,
        series: vec![Series::new(title, counted.iter().map(value).collect())],
    };
    Section {
        heading: "Phases".into(),
        prose: vec![format!(
            "{} with {}, {}; phases in this order, each at least {:.0} s, backups to {} one after another. CPU time is the \
             backup's alone, CPU the whole machine's. Lost: the transactions of the quiet phases without those of this \
             phase, in the time of one backup; below 0 the phase had more. A phase changes the database for the next: the \
             last quiet phase shows how much.",
            kind.text(),
            in_words(spec.clients, "client"),
            match spec.think.as_millis() {
                0 => "no pauses".to_owned(),
                ms => format!("a pause of {ms} ms after each transaction"),
            },
            spec.phase.as_secs_f64(),
            in_words(spec.stripes, "stripe"),
        )],
        table: Some(table),
        charts: vec![
            bars(
                "Transactions per second",
                Axis::new("Transactions", "/s"),
                &|c| Some(c.rate),
            ),
            bars("Length of a backup", Axis::new("Elapsed", "s"), &|c| {
                c.phase.backup_s()
            }),
            bars(
                "Transactions lost by a backup",
                Axis::new("Lost", ""),
                &|c| c.lost,
            ),
        ],
    }
}

/// Transactions and their latency in each second, a colour for each phase.
fn over_time(phases: &[Phase], all: &Transactions, begun_s: f64) -> Section {
    let end_s = phases.last().map_or(begun_s, |p| p.to_s);
    let seconds = ((end_s - begun_s).ceil() as usize).max(1);
    let span = |n: usize| (begun_s + n as f64, (begun_s + n as f64 + 1.0).min(end_s));
    let phase_at = |n: usize| {
        let (from, to) = span(n);
        let middle = f64::midpoint(from, to);
        phases
            .iter()
            .position(|p| p.from_s <= middle && middle < p.to_s)
    };
    let lines = |value: &dyn Fn(f64, f64) -> Option<f64>| -> Vec<Series> {
        let line = |(at, phase): (usize, &Phase)| {
            let values = (0..seconds).map(|n| {
                let (from, to) = span(n);
                (phase_at(n) == Some(at)).then(|| value(from, to)).flatten()
            });
            Series::new(&phase.name, values.collect())
        };
        phases.iter().enumerate().map(line).collect()
    };
    let chart = |title: &str, y: Axis, series| Chart {
        title: title.into(),
        form: ReportFormat::Line,
        x: Positions {
            label: "Time".into(),
            unit: "s".into(),
            at: At::Numbers((0..seconds).map(|n| n as f64 + 0.5).collect()),
        },
        y,
        y_right: None,
        series,
    };
    let row = |n: usize| {
        let (from, to) = span(n);
        let times = all.times(from, to);
        vec![
            (n as f64).into(),
            phase_at(n).map(|at| phases[at].name.clone()).into(),
            all.rate(from, to).into(),
            times.map(|t| t.median_ms).into(),
            times.map(|t| t.p95_ms).into(),
            times.map(|t| t.p99_ms).into(),
        ]
    };
    Section {
        heading: "Each second".into(),
        prose: Vec::new(),
        table: Some(Table {
            columns: vec![
                Column::number("Second", "", 0),
                Column::text("Phase"),
                Column::number("Transactions", "/s", 0),
                Column::number("Median", "ms", 2),
                Column::number("95 %", "ms", 2),
                Column::number("99 %", "ms", 2),
            ],
            row_values: (0..seconds).map(row).collect(),
        }),
        charts: vec![
            chart(
                "Transactions in each second",
                Axis::new("Transactions", "/s"),
                lines(&|from, to| Some(all.rate(from, to))),
            ),
            chart(
                "99 % of the transactions took at most",
                Axis::new("Latency", "ms"),
                lines(&|from, to| all.times(from, to).map(|t| t.p99_ms)),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use longshore_pipeline::{EngineShare, Limit};

    use super::*;

    fn in_hardware(percent: u64) -> Timing {
        let share = |name: &str, is_accelerator, plain_bytes| EngineShare {
            name: name.into(),
            is_accelerator,
            plain_bytes,
            ..EngineShare::default()
        };
        Timing {
            wall_s: 1.0,
            cpu_s: 1.0,
            system_cpu_percent: None,
            plain_bytes: 100,
            stored_bytes: 50,
            cpu_c: None,
            drive_c: None,
            cold_bytes: 0,
            limit: Limit::Source,
            engines: vec![
                share("qatzip", true, percent),
                share("isa-l", false, 100 - percent),
            ],
            samples: Vec::new(),
            buffers: (1, 1),
            core_percents: Vec::new(),
        }
    }

    fn found_with(percents: &[u64]) -> OltpFound {
        let spec = OltpSpec {
            kind: None,
            bytes: 1,
            clients: 1,
            think: Duration::ZERO,
            phase: Duration::from_secs(1),
            work: PathBuf::new(),
            dirs: Vec::new(),
            stripes: 1,
            max_cpu: None,
            quick: true,
            program: PathBuf::new(),
        };
        let mut software = Phase::of("qat", "QAT_DEFLATE software");
        software.backups = vec![in_hardware(0)];
        let mut hardware = Phase::of(HARD, "QAT_DEFLATE hardware");
        hardware.backups = percents.iter().copied().map(in_hardware).collect();
        let phases = vec![Phase::quiet("quiet, before"), software, hardware];
        let all = Transactions::default();
        found(
            &spec,
            LoadKind::Sqlite,
            Vec::new(),
            phases,
            &all,
            0.0,
            Vec::new(),
        )
    }

    #[test]
    fn a_phase_that_software_compressed_does_not_count_as_hardware() {
        let has = |found: &OltpFound, key: &str| {
            found
                .values()
                .any(|(name, _)| name.split('/').next() == Some(key))
        };
        let whole = found_with(&[100, 80]);
        assert!(has(&whole, "hard") && whole.missing.is_empty());
        assert!(whole.report.to_text().contains("QAT_DEFLATE hardware"));
        for (percents, shown) in [(vec![100, 79], "89.5 %"), (vec![0], "0.0 %")] {
            let found = found_with(&percents);
            assert!(has(&found, "qat") && !has(&found, "hard") && !has(&found, MIXED));
            let told = format!(
                "QAT_DEFLATE hardware (the accelerator compressed {shown}, less than 90 %)"
            );
            let headline = &found.report.summary;
            assert!(
                headline.ends_with(&format!(" Not here: {told}.")),
                "{headline}"
            );
            assert_eq!(found.missing, [told]);
            let text = found.report.to_text();
            let table = found.report.sections[0].table.as_ref().unwrap();
            let hardware = crate::report::Cell::from("QAT_DEFLATE hardware");
            assert!(
                table.row_values.iter().all(|row| row[0] != hardware),
                "{text}"
            );
            assert!(
                text.contains(&format!("QAT_DEFLATE, {shown} in hardware")),
                "{text}"
            );
        }
    }
}
