//! The findings of backups under load: phases, curves, bars, and what each backup cost.
//!
//! Invariants
//! - Every second belongs to one phase, that of its middle; a quiet phase has no backups and loses nothing.
//! - A cost is one only if it is larger than quiet phases differ among themselves, in every round; else the headline calls it
//!   chance. A cost below 0 is shown as it is.
//! - A phase of hardware of which an accelerator compressed less than [`IN_HARDWARE`] has a row that says so, and no values.
//! - The value of a phase without a transaction is absent, its rate 0.
//! - All shares of CPU have one denominator, which the prose states: the time of all processors that are online.
//!
//! Leaves to others: the run (`mod.rs`), and reading logs (`transactions.rs`).

use super::meter::CpuMeter;
use super::phase::{Phase, Taken};
use super::spec::{LoadKind, OltpSpec};
use super::transactions::{TransactionTimes, Transactions};

use crate::report::{
    At, Axis, Best, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table,
    counted as in_words,
};
use crate::spread::{RoundResults, caution, median};
use crate::timing::IN_HARDWARE;

/// The key of a phase that asked for hardware and does not count as such: it has no values.
const MIXED: &str = "mixed";

/// Everything that was seen: phases, transactions, and CPU use.
pub struct ObservedLoad {
    pub phases: Vec<Phase>,
    pub all: Transactions,
    pub cpu: CpuMeter,
    /// The first second, by the wall clock.
    pub begun_s: f64,
}

/// The findings of the study.
#[derive(Debug)]
pub struct OltpFound {
    pub report: Report,
    /// The headline without its cautions.
    pub insight: String,
    /// By name, what this machine does not have.
    pub missing: Vec<String>,
    values: Vec<(usize, String, f64)>,
    load: String,
}

impl OltpFound {
    /// The round, `PHASE/FIGURE` and its value: `s`, `tps` and `lost`, and `quiet/tps`.
    pub fn values(&self) -> impl Iterator<Item = (usize, &str, f64)> {
        let values = self.values.iter();
        values.map(|(round, name, value)| (*round, name.as_str(), *value))
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
    /// Of the whole machine, all programs, during the phase.
    busy_percent: Option<f64>,
    /// That were online meanwhile.
    processors: Option<f64>,
    /// Transactions that one backup cost; of a quiet phase none.
    lost: Option<f64>,
    /// Transactions by which quiet phases differ in as much time as one backup has.
    chance: f64,
}

impl Counted<'_> {
    /// Costs are larger than what chance makes of quiet phases.
    fn is_beyond_chance(&self) -> bool {
        self.lost.is_some_and(|lost| lost > self.chance)
    }

    /// CPU time of its backups, in percent of what all processors had while they lasted.
    fn backup_percent(&self) -> Option<f64> {
        let processors = self.processors?;
        self.phase
            .of_backups(|taken| taken.own_cpu_percent(processors))
    }
}

pub fn found(
    spec: &OltpSpec,
    kind: LoadKind,
    platform: Vec<(String, String)>,
    mut observed: ObservedLoad,
    mut missing: Vec<String>,
) -> OltpFound {
    for phase in &mut observed.phases {
        let Some(share) = phase.accelerator_share().filter(|s| *s < IN_HARDWARE) else {
            continue;
        };
        let percent = 100.0 * share;
        missing.push(format!(
            "{} (the accelerator compressed {percent:.1} %, less than {:.0} %)",
            phase.name(),
            100.0 * IN_HARDWARE
        ));
        // Neither a figure nor a reader takes it for hardware.
        phase.key = MIXED;
        phase.kind = format!("QAT_DEFLATE, {percent:.1} % in hardware");
    }
    let ObservedLoad {
        phases, all, cpu, ..
    } = &observed;
    let rate = |phase: &Phase| all.rate(phase.from_s, phase.to_s);
    let quiet: Vec<f64> = phases.iter().filter(|p| p.is_quiet()).map(rate).collect();
    // The quiet phases before and after the round.
    let quiet_of = |round: usize| median(quiet.iter().skip(round).take(2).copied()).unwrap_or(0.0);
    let apart = RoundResults::of(quiet.iter().copied()).map_or(0.0, |all| all.max - all.min);
    let counted: Vec<Counted> = phases
        .iter()
        .map(|phase| {
            // All of the phase, also while a backup was prepared and removed.
            let each_s = (phase.to_s - phase.from_s) / phase.backups.len().max(1) as f64;
            let is_loaded = !phase.backups.is_empty();
            Counted {
                phase,
                rate: rate(phase),
                times: all.times(phase.from_s, phase.to_s),
                busy_percent: cpu
                    .share(phase.from_s, phase.to_s)
                    .map(|s| s.machine_percent),
                processors: cpu.processors(phase.from_s, phase.to_s),
                lost: is_loaded.then(|| (quiet_of(phase.round) - rate(phase)) * each_s),
                chance: apart * each_s,
            }
        })
        .collect();
    let rounds = spec.rounds.max(1);
    let mut values: Vec<_> = (0..rounds)
        .map(|round| (round, "quiet/tps".to_owned(), quiet_of(round)))
        .collect();
    let valued = |c: &&Counted| !c.phase.is_quiet() && c.phase.key != MIXED;
    for one in counted.iter().filter(valued) {
        let mut put = |figure: &str, value: Option<f64>| {
            let name = format!("{}/{figure}", one.phase.key);
            values.extend(value.map(|value| (one.phase.round, name, value)));
        };
        put("s", one.phase.backup_s());
        put("tps", Some(one.rate));
        put("lost", one.lost);
    }
    let rows = rows(&counted);
    let insight = insight(&rows, &quiet);
    let load = format!("{}, {} clients", spec.load_text(kind), spec.clients);
    let report = Report {
        title: "Backups under load".into(),
        summary: with_missing(with_chance(&insight, rounds), &missing),
        platform,
        sections: vec![
            in_phases(spec, explained(spec, kind, &observed), &rows),
            over_time(&observed),
        ],
    };
    OltpFound {
        report,
        insight,
        missing,
        values,
        load,
    }
}

/// A headline begins with how little a round proves.
fn with_chance(insight: &str, rounds: usize) -> String {
    match caution(rounds) {
        None => insight.to_owned(),
        Some(caution) => format!("{caution} {insight}"),
    }
}

/// A headline does not keep silent about phases that this machine could not have.
fn with_missing(summary: String, missing: &[String]) -> String {
    match missing {
        [] => summary,
        missing => format!("{summary} Not here: {}.", missing.join("; ")),
    }
}

/// The phases of one row: of one kind, one of each round.
struct PhaseRow<'a> {
    name: &'a str,
    all: Vec<&'a Counted<'a>>,
}

impl PhaseRow<'_> {
    /// The results over the rounds.
    fn of(&self, figure: impl Fn(&Counted) -> Option<f64>) -> Option<RoundResults> {
        RoundResults::of(self.all.iter().filter_map(|one| figure(one)))
    }

    fn median(&self, figure: impl Fn(&Counted) -> Option<f64>) -> Option<f64> {
        self.of(figure).map(|results| results.median)
    }

    fn of_backups(&self, figure: impl Fn(&Taken) -> Option<f64>) -> Option<f64> {
        self.median(|one| one.phase.of_backups(&figure))
    }
}

/// The rows in the order of the first round. A quiet phase is one of its own: they show what the rounds changed.
fn rows<'a>(counted: &'a [Counted<'a>]) -> Vec<PhaseRow<'a>> {
    let mut rows: Vec<PhaseRow> = Vec::new();
    for one in counted {
        let same = |row: &&mut PhaseRow| {
            let first = row.all[0].phase;
            !first.is_quiet() && first.key != MIXED && first.key == one.phase.key
        };
        match rows.iter_mut().find(same) {
            Some(row) => row.all.push(one),
            None => rows.push(PhaseRow {
                name: &one.phase.kind,
                all: vec![one],
            }),
        }
    }
    rows
}

/// The least cost, and whether it is one: chance makes quiet phases differ, too.
fn insight(rows: &[PhaseRow], quiet: &[f64]) -> String {
    let Some(quiet) = RoundResults::of(quiet.iter().copied()) else {
        return String::new();
    };
    let lost = |row: &PhaseRow| row.of(|one| one.lost);
    let mut backups: Vec<(&PhaseRow, RoundResults)> = rows
        .iter()
        .filter_map(|row| Some((row, lost(row)?)))
        .collect();
    backups.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let range = match quiet.min < quiet.max {
        true => format!(" ({})", quiet.range(0)),
        false => String::new(),
    };
    let mut told = format!(
        "Without a backup {:.0}{range} transactions per second.",
        quiet.median
    );
    let Some(((least, cost), others)) = backups.split_first() else {
        return told;
    };
    let chance = least.median(|one| Some(one.chance)).unwrap_or(0.0);
    let taken = least.median(|one| one.phase.backup_s()).unwrap_or(0.0);
    told += &format!(
        " The backup with {} costs fewest: {:.0} transactions in {taken:.2} s",
        least.name, cost.median
    );
    if !least.all.iter().all(|one| one.is_beyond_chance()) {
        told += &format!(", within chance: quiet phases differ by {chance:.0} in as much time");
    }
    // Costs of one order in every round, and further apart than chance.
    let is_more = |(row, other): &&(&PhaseRow, RoundResults)| {
        let chance = row
            .median(|one| Some(one.chance))
            .unwrap_or(0.0)
            .max(chance);
        other.min > cost.max && other.median - cost.median > chance
    };
    let alike: Vec<&str> = others
        .iter()
        .filter(|one| !is_more(one))
        .map(|(row, _)| row.name)
        .collect();
    match alike.len() {
        0 => told.push('.'),
        n if n == others.len() => told += "; no other costs more beyond chance.",
        _ => told += &format!("; within chance as few: {}.", alike.join(", ")),
    }
    told
}

fn in_phases(spec: &OltpSpec, prose: Vec<String>, rows: &[PhaseRow]) -> Section {
    let cells = |row: &PhaseRow| {
        let times =
            |value: fn(&TransactionTimes) -> f64| row.median(|one| one.times.as_ref().map(value));
        let count: usize = row.all.iter().map(|one| one.phase.backups.len()).sum();
        let lost = row.of(|one| one.lost);
        let mut cells = vec![
            row.name.into(),
            row.median(|one| Some(one.phase.to_s - one.phase.from_s))
                .into(),
            row.median(|one| Some(one.rate)).into(),
            times(|t| t.median_ms).into(),
            times(|t| t.p95_ms).into(),
            times(|t| t.p99_ms).into(),
            (count > 0).then_some(count as f64).into(),
            row.median(|one| one.phase.backup_s()).into(),
            row.of_backups(|t| Some(t.mb_per_s())).into(),
            row.of_backups(|t| t.cpu_s).into(),
            row.median(|one| one.backup_percent()).into(),
            row.median(|one| one.busy_percent).into(),
            row.of_backups(|t| Some(t.ratio())).into(),
            lost.map(|lost| lost.median).into(),
        ];
        if spec.rounds > 1 {
            cells.push(lost.map(|lost| lost.range(0)).into());
        }
        cells
    };
    let mut table = Table {
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
            Column::number("CPU of the backup", "% of system", 1),
            Column::number("CPU of all", "% of system", 1),
            Column::number("Ratio", "", 2),
            Column::number("Lost by one", "transactions", 0),
        ],
        row_values: rows.iter().map(cells).collect(),
    };
    if spec.rounds > 1 {
        table.columns.push(Column::text("Lost, range"));
    }
    let bars = |title: &str, y: Axis, value: &dyn Fn(&Counted) -> Option<f64>| {
        // A phase without the value has no place: an empty one would look like a bar of no height.
        let known = rows
            .iter()
            .map(|row| (row.name.to_owned(), row.median(value)));
        let (names, heights) = known.filter(|(_, height)| height.is_some()).unzip();
        Chart::bars(title, "Phase", names, y, vec![Series::new(title, heights)])
    };
    Section {
        heading: "Phases".into(),
        prose,
        table: Some(table),
        // Each axis has the name of its column.
        charts: vec![
            bars(
                "Transactions per second",
                Axis::new("Transactions", "/s"),
                &|c| Some(c.rate),
            )
            .sorted(Best::Most),
            bars("Length of a backup", Axis::new("Each takes", "s"), &|c| {
                c.phase.backup_s()
            })
            .sorted(Best::Least),
            bars(
                "Transactions lost by a backup",
                Axis::new("Lost by one", "transactions"),
                &|c| c.lost,
            )
            .sorted(Best::Least),
            // More of it is neither better nor worse, so it keeps the order of the phases.
            bars("CPU of the whole machine", whole("CPU of all"), &|c| {
                c.busy_percent
            }),
            bars(
                "CPU of the backup alone",
                whole("CPU of the backup"),
                &|c| c.backup_percent(),
            )
            .sorted(Best::Least),
        ],
    }
}

/// An axis of the whole machine's CPU time.
fn whole(label: &str) -> Axis {
    Axis {
        max: Some(100.0),
        ..Axis::new(label, "% of system")
    }
}

/// The words above the table of the phases.
fn explained(spec: &OltpSpec, load: LoadKind, observed: &ObservedLoad) -> Vec<String> {
    let mut prose = vec![format!(
        "{} with {}, {}; phases in this order{}, each at least {:.0} s, backups to {} one after another. CPU time is the \
         backup's alone; CPU of all is the whole machine's during the phase, with the load and other programs. Lost: the transactions of the quiet phases without those of this \
         phase, for each of its backups with what is before and after it; below 0 the phase had more. A phase changes the database for the next: the \
         last quiet phase shows how much.",
        spec.load_text(load),
        in_words(spec.clients, "client"),
        match spec.think.as_millis() {
            0 => "no pauses".to_owned(),
            ms => format!("a pause of {ms} ms after each transaction"),
        },
        match spec.rounds {
            0 | 1 => "",
            _ => " in the first round",
        },
        spec.phase.as_secs_f64(),
        in_words(spec.stripes, "stripe"),
    )];
    prose.push(denominator(spec, observed));
    if spec.rounds > 1 {
        prose.push(format!(
            "{} rounds, every other one in the opposite order: medians, and the range of what was lost. Each round is compared \
             with the quiet phases before and after it.",
            spec.rounds
        ));
    }
    if !spec.peers.is_empty() {
        let settings: Vec<&str> = spec.peers.iter().map(|peer| peer.settings()).collect();
        prose.push(format!(
            "Other programs: {}. Ours checks every page, has checksums of each block, and has the WAL that it needs. Their throughput \
             and ratio are of the bytes that our last backup read; they write to the first directory \
             alone, and not in stripes.",
            settings.join(". ")
        ));
    }
    prose
}

/// The words about what a percentage of CPU is of.
fn denominator(spec: &OltpSpec, observed: &ObservedLoad) -> String {
    let ends = observed.phases.first().zip(observed.phases.last());
    let (from_s, to_s) = ends.map_or((0.0, 0.0), |(first, last)| (first.from_s, last.to_s));
    let online = match observed.cpu.processors(from_s, to_s) {
        Some(processors) => format!(
            ", here {}",
            in_words(processors.round() as usize, "processor")
        ),
        None => String::new(),
    };
    let stolen = match observed.cpu.share(from_s, to_s) {
        Some(share) => format!(", here {:.1} % of all", share.stolen_percent),
        None => String::new(),
    };
    let limit = match spec.max_cpu {
        Some(_) => format!(
            " A limit of CPU is a share of the time of those that this program may use, here {}.",
            in_words(longshore_facts::cores(), "processor")
        ),
        None => String::new(),
    };
    format!(
        "CPU in % of system is of the time that all processors of the machine that are online{online}, have in the same seconds: \
         those of the phase for CPU of all, those of its backups for CPU of the backup. Time in which they idle counts, and so does \
         time that a hypervisor gives to other machines{stolen}; neither is work.{limit}"
    )
}

/// Transactions, their latency and CPU use in each second, a colour for each phase.
fn over_time(observed: &ObservedLoad) -> Section {
    let ObservedLoad {
        phases,
        all,
        cpu,
        begun_s,
    } = observed;
    let begun_s = *begun_s;
    let end_s = phases.last().map_or(begun_s, |p| p.to_s);
    let seconds = ((end_s - begun_s).ceil() as usize).max(1);
    let span = |n: usize| (begun_s + n as f64, (begun_s + n as f64 + 1.0).min(end_s));
    let middle = |n: usize| n as f64 + 0.5;
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
            Series::new(&phase.name(), values.collect())
        };
        phases.iter().enumerate().map(line).collect()
    };
    let chart = |title: &str, y: Axis, series| Chart {
        title: title.into(),
        form: ReportFormat::Line,
        x: Positions {
            label: "Time".into(),
            unit: "s".into(),
            at: At::Numbers((0..seconds).map(middle).collect()),
        },
        y,
        y_right: None,
        series,
    };
    let row = |n: usize| {
        let (from, to) = span(n);
        let times = all.times(from, to);
        vec![
            middle(n).into(),
            phase_at(n).map(|at| phases[at].name()).into(),
            all.rate(from, to).into(),
            times.map(|t| t.median_ms).into(),
            times.map(|t| t.p95_ms).into(),
            times.map(|t| t.p99_ms).into(),
            cpu.share(from, to).map(|s| s.own_percent).into(),
            cpu.share(from, to).map(|s| s.machine_percent).into(),
        ]
    };
    let mut busy = chart(
        "CPU of the whole machine in each second",
        whole("CPU of all"),
        lines(&|from, to| cpu.share(from, to).map(|s| s.machine_percent)),
    );
    let own = (0..seconds).map(|n| {
        let (from, to) = span(n);
        cpu.share(from, to).map(|s| s.own_percent)
    });
    let mut own = Series::new("CPU of our backups", own.collect());
    own.dashed = true;
    busy.series.push(own);
    Section {
        heading: "Each second".into(),
        prose: vec![
            "Time is the middle of each second, counted from the beginning of the first phase."
                .into(),
        ],
        table: Some(Table {
            columns: vec![
                Column::number("Time", "s", 1),
                Column::text("Phase"),
                Column::number("Transactions", "/s", 0),
                Column::number("Median", "ms", 2),
                Column::number("95 %", "ms", 2),
                Column::number("99 %", "ms", 2),
                Column::number("CPU of our backups", "% of system", 1),
                Column::number("CPU of all", "% of system", 1),
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
                Axis::new("99 %", "ms"),
                lines(&|from, to| all.times(from, to).map(|t| t.p99_ms)),
            ),
            busy,
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::meter::{CpuMeter, CpuReading};
    use super::super::peers::LoadedPeer;
    use super::super::phase::HARD;
    use super::super::spec::LoadMix;
    use super::*;
    use crate::report::Cell;

    fn in_hardware(percent: u64) -> Taken {
        Taken {
            wall_s: 1.0,
            cpu_s: Some(1.0),
            plain_bytes: 100,
            stored_bytes: 50,
            accelerator_share: percent as f64 / 100.0,
        }
    }

    fn spec() -> OltpSpec {
        OltpSpec {
            kind: None,
            mix: LoadMix::Orders,
            bytes: 1,
            clients: 1,
            think: Duration::ZERO,
            phase: Duration::from_secs(1),
            work: PathBuf::new(),
            dirs: Vec::new(),
            stripes: 1,
            max_cpu: None,
            rounds: 1,
            peers: Vec::new(),
            quick: true,
            program: PathBuf::new(),
        }
    }

    fn found_with(percents: &[u64]) -> OltpFound {
        let spec = spec();
        let mut software = Phase::of("qat", "QAT_DEFLATE software", (0, 1));
        software.backups = vec![in_hardware(0)];
        let mut hardware = Phase::of(HARD, "QAT_DEFLATE hardware", (0, 1));
        hardware.backups = percents.iter().copied().map(in_hardware).collect();
        let phases = vec![Phase::quiet("quiet, before".into(), 0), software, hardware];
        found(
            &spec,
            LoadKind::Sqlite,
            Vec::new(),
            seen(phases, ""),
            Vec::new(),
        )
    }

    /// With one CPU of which half is at work.
    fn seen(phases: Vec<Phase>, log: &str) -> ObservedLoad {
        let reading = |at_s: f64| CpuReading {
            at_s,
            busy_s: at_s / 2.0,
            stolen_s: at_s / 8.0,
            all_s: at_s,
            own_s: at_s / 4.0,
        };
        ObservedLoad {
            phases,
            all: Transactions::read(log),
            cpu: CpuMeter::of(vec![reading(0.0), reading(100.0)]),
            begun_s: 0.0,
        }
    }

    /// So many transactions in each of the seconds.
    fn log_of(counts: &[u32]) -> String {
        let mut log = String::new();
        for (second, count) in counts.iter().enumerate() {
            for n in 0..*count {
                let micros = 100_000 + 800_000 / count * n;
                log += &format!("0 {n} 1000 0 {second} {micros}\n");
            }
        }
        log
    }

    /// Phases of a second each, quiet ones around each round.
    fn in_rounds(keys: &[&'static str], rounds: usize) -> Vec<Phase> {
        let mut phases = Vec::new();
        for round in 0..rounds {
            phases.push(Phase::quiet(format!("quiet {round}"), round));
            phases.extend(keys.iter().map(|key| {
                let mut phase = Phase::of(key, key, (round, rounds));
                phase.backups = vec![in_hardware(0)];
                phase
            }));
        }
        phases.push(Phase::quiet("quiet, after".into(), rounds));
        for (n, phase) in phases.iter_mut().enumerate() {
            (phase.from_s, phase.to_s) = (n as f64, n as f64 + 1.0);
        }
        phases
    }

    fn summary_of(rounds: usize, counts: &[u32]) -> String {
        let spec = OltpSpec { rounds, ..spec() };
        let observed = seen(in_rounds(&["zstd", "lz4"], rounds), &log_of(counts));
        found(&spec, LoadKind::Sqlite, Vec::new(), observed, Vec::new())
            .report
            .summary
    }

    #[test]
    fn a_cost_that_chance_may_have_made_is_called_so_and_one_below_0_is_shown() {
        // 100 and 80 without a backup: a difference of 20 is chance.
        assert_eq!(
            summary_of(1, &[100, 95, 91, 80]),
            "Only 1 round, so chance may decide. Without a backup 90 (80–100) transactions per second. The backup with zstd costs \
             fewest: -5 transactions in 1.00 s, within chance: quiet phases differ by 20 in as much time; no other costs more \
             beyond chance."
        );
        assert_eq!(
            summary_of(1, &[100, 30, 60, 98]),
            "Only 1 round, so chance may decide. Without a backup 99 (98–100) transactions per second. The backup with lz4 costs \
             fewest: 39 transactions in 1.00 s."
        );
        // Three rounds: in one of them the other is the cheaper one.
        assert_eq!(
            summary_of(3, &[100, 30, 60, 100, 50, 48, 100, 20, 60, 100]),
            "Without a backup 100 transactions per second. The backup with lz4 costs fewest: 40 transactions in 1.00 s; no other \
             costs more beyond chance."
        );
    }

    #[test]
    fn each_second_and_each_phase_have_the_cpu_use_of_the_machine() {
        let observed = seen(in_rounds(&["zstd"], 1), &log_of(&[10, 10, 10]));
        let found = found(&spec(), LoadKind::Sqlite, Vec::new(), observed, Vec::new());
        let [phases, seconds] = &found.report.sections[..] else {
            panic!("{:?}", found.report.sections);
        };
        let column = |section: &Section, name: &str| {
            let table = section.table.as_ref().unwrap();
            let at = table.columns.iter().position(|c| c.name == name).unwrap();
            let cells: Vec<Cell> = table.row_values.iter().map(|row| row[at].clone()).collect();
            cells
        };
        assert_eq!(column(phases, "CPU of all"), vec![Cell::from(50.0); 3]);
        assert_eq!(column(seconds, "CPU of all"), vec![Cell::from(50.0); 3]);
        assert_eq!(
            column(seconds, "CPU of our backups"),
            vec![Cell::from(25.0); 3]
        );
        // A quiet phase has no backup whose use there could be. The other one's had a second of the one processor that is
        // online, however many the machine of this test has.
        assert_eq!(
            column(phases, "CPU of the backup"),
            [Cell::Absent, Cell::from(100.0), Cell::Absent]
        );
        let told = phases.prose.concat();
        assert!(
            told.contains("online, here 1 processor, have in the same seconds"),
            "{told}"
        );
        assert!(
            told.contains("gives to other machines, here 12.5 % of all"),
            "{told}"
        );
        let titles = |section: &Section| {
            section
                .charts
                .iter()
                .filter(|c| c.title.starts_with("CPU"))
                .count()
        };
        assert_eq!((titles(phases), titles(seconds)), (2, 1));
        // The tables have all numbers of the charts in their rows and columns.
        let markdown = found.report.to_markdown();
        assert!(!markdown.contains("### "), "{markdown}");
    }

    #[test]
    fn bars_of_phases_say_whether_the_best_is_first_and_it_is() {
        let log = log_of(&[100, 30, 60, 98]);
        let observed = seen(in_rounds(&["zstd", "lz4"], 1), &log);
        let found = found(&spec(), LoadKind::Sqlite, Vec::new(), observed, Vec::new());
        let order = |title: &str| {
            let mut charts = found.report.sections[0].charts.iter();
            let chart = charts.find(|chart| chart.title == title).unwrap();
            let At::Names(names) = &chart.x.at else {
                panic!("{chart:?}");
            };
            (chart.x.label.clone(), names.join(", "))
        };
        let is = |label: &str, names: &str| (label.to_owned(), names.to_owned());
        assert_eq!(
            order("Transactions per second"),
            is("Phase, best first", "quiet 0, quiet, after, lz4, zstd")
        );
        assert_eq!(
            order("Transactions lost by a backup"),
            is("Phase, best first", "lz4, zstd")
        );
        assert_eq!(
            order("CPU of the whole machine"),
            is("Phase", "quiet 0, zstd, lz4, quiet, after")
        );
        assert_eq!(
            order("CPU of the backup alone"),
            is("Phase, best first", "zstd, lz4"),
            "both have as much"
        );
    }

    #[test]
    fn a_phase_that_software_compressed_does_not_count_as_hardware() {
        let has = |found: &OltpFound, key: &str| {
            found
                .values()
                .any(|(_, name, _)| name.split('/').next() == Some(key))
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
            let hardware = Cell::from("QAT_DEFLATE hardware");
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

    #[test]
    fn a_round_is_compared_with_the_quiet_phases_around_it_and_the_table_has_medians() {
        let spec = OltpSpec {
            rounds: 2,
            peers: vec![LoadedPeer::PgBasebackup],
            ..spec()
        };
        let taken = |wall_s, cpu_s| Taken {
            wall_s,
            cpu_s,
            ..in_hardware(0)
        };
        let mut phases = Vec::new();
        let mut put = |mut phase: Phase, seconds: f64, backups: &[Taken]| {
            phase.from_s = phases.last().map_or(0.0, |before: &Phase| before.to_s);
            phase.to_s = phase.from_s + seconds;
            phase.backups = backups.to_vec();
            phases.push(phase);
        };
        let ours = |round| Phase::of("zstd", "ZSTD", (round, 2));
        let peer = |round| Phase::of("pg_basebackup", "pg_basebackup", (round, 2));
        put(Phase::quiet("quiet, before round 1".into(), 0), 1.0, &[]);
        put(ours(0), 1.0, &[taken(2.0, Some(1.0))]);
        put(peer(0), 1.0, &[taken(4.0, None)]);
        put(Phase::quiet("quiet, before round 2".into(), 1), 1.0, &[]);
        put(peer(1), 1.0, &[taken(6.0, None)]);
        put(ours(1), 1.0, &[taken(4.0, Some(3.0))]);
        put(Phase::quiet("quiet, after".into(), 2), 1.0, &[]);
        let log = log_of(&[100, 40, 10, 80, 10, 40, 60]);
        let observed = seen(phases, &log);
        let found = found(&spec, LoadKind::Postgres, Vec::new(), observed, Vec::new());
        let lost = |key: &str| -> Vec<(usize, f64)> {
            let name = format!("{key}/lost");
            let values = found.values().filter(|(_, own, _)| *own == name);
            values.map(|(round, _, value)| (round, value)).collect()
        };
        // 90 and 70 transactions per second are quiet.
        assert_eq!(lost("zstd"), [(0, 50.0), (1, 30.0)]);
        assert_eq!(lost("pg_basebackup"), [(0, 80.0), (1, 60.0)]);
        let table = found.report.sections[0].table.as_ref().unwrap();
        let names: Vec<_> = table.row_values.iter().map(|row| row[0].clone()).collect();
        let expected = [
            "quiet, before round 1",
            "ZSTD",
            "pg_basebackup",
            "quiet, before round 2",
            "quiet, after",
        ];
        assert_eq!(names, expected.map(Cell::from));
        let text = found.report.to_text();
        assert!(text.contains("30–50") && text.contains("60–80"), "{text}");
        assert_eq!(
            (&table.row_values[1][9], &table.row_values[2][9]),
            (&Cell::from(2.0), &Cell::from(None::<f64>))
        );
    }
}
