//! The report of the study of stripes: by stripe count, as ratios, and as published.
//!
//! Invariants
//! - The table as published has the published order, each backup with the engine that compressed it.
//! - A quantity for which nothing here has a sensor has no column and no chart; one line says so.
//! - The headline begins with what weakens it.
//!
//! Leaves to others: the backups (`backup.rs`, `stripes.rs`), and the ratios (`ratios.rs`).

use longshore_codec::Algorithm;

use super::backup::{HARDWARE, NONE, StripedBackup, StripedKind, StripesSpec, at};
use super::ratios::{Ratios, by_stripes, level};
use crate::limits;
use crate::platform;
use crate::report::{Axis, Cell, Chart, Column, Report, Section, Series, Table, counted};
use crate::spread::{RoundResults, caution, median};
use crate::timing::{IN_HARDWARE, Timing};

/// A line that is so many times as high as all others takes their room.
const FLATTENS: f64 = 2.0;

/// All that was measured.
#[derive(Debug)]
pub struct Swept {
    pub kinds: Vec<StripedKind>,
    pub nul: StripedBackup,
    pub backups: Vec<StripedBackup>,
    /// Sentences about the cache, sensors and cooling.
    pub conditions: Vec<String>,
}

pub fn report(spec: &StripesSpec, mut platform: Vec<(String, String)>, swept: &Swept) -> Report {
    platform.push(("Source".into(), platform::name_of(&spec.source)));
    let bytes = swept.nul.taken.first().map_or(0, |t| t.plain_bytes);
    platform.push((
        "Size".into(),
        format!("{:.1} MB (10^6)", bytes as f64 / 1e6),
    ));
    platform.push(("Rounds".into(), spec.rounds.max(1).to_string()));
    let of_qat = |kind: &&StripedKind| kind.algorithm == Algorithm::QatDeflate;
    let ratios = swept.kinds.iter().filter(of_qat);
    let ratios: Vec<Ratios> = ratios
        .map(|kind| Ratios::of(&spec.stripes, &swept.backups, *kind))
        .collect();
    let mut found: Vec<String> = caution(spec.rounds.max(1)).into_iter().collect();
    found.extend(quickest(swept));
    found.extend(ratios.iter().filter_map(Ratios::summary));
    found.extend(fallen_back(&swept.backups));
    let mut sections = vec![by_count(spec, swept)];
    let compared = ratios.iter().filter(|r| r.summary().is_some());
    sections.extend(compared.map(Ratios::section));
    sections.push(as_published(spec, swept));
    Report {
        title: "Stripes and algorithms".into(),
        summary: found.join(" "),
        platform,
        sections,
    }
}

/// The headline's part about the quickest backup that compresses.
fn quickest(swept: &Swept) -> Option<String> {
    let all = || {
        let counted = |b: &&StripedBackup| b.kind != NONE && b.counted().next().is_some();
        swept.backups.iter().filter(counted)
    };
    // A round in which another engine compressed is none of this kind.
    let elapsed = |b: &StripedBackup| RoundResults::of(b.counted().map(|(_, t)| t.wall_s));
    let timed = all().filter_map(|b| Some((b, elapsed(b)?)));
    let (best, time) = timed.min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let alike = all().filter(|b| {
        let other = elapsed(b).filter(|_| b.taken.len() > 1);
        other.is_some_and(|other| other.min <= time.max)
    });
    // One of them is the best itself.
    let alike = match alike.count().saturating_sub(1) {
        0 => String::new(),
        1 => ", and 1 other is as quick within its range".to_owned(),
        n => format!(", and {n} others are as quick within their ranges"),
    };
    let share = share_of_nul(best, &swept.nul)?;
    Some(format!(
        "The quickest that compressed was {} with {}: {:.2} s, {share:.0} % of the rate to NUL{alike}.",
        best.name(),
        counted(best.stripes, "stripe"),
        time.median,
    ))
}

/// The headline's part about backups that were requested of an accelerator and compressed by other engines.
fn fallen_back(backups: &[StripedBackup]) -> Option<String> {
    let asked = backups.iter().filter(|b| b.kind == HARDWARE);
    let asked: Vec<&Timing> = asked.flat_map(|b| &b.taken).collect();
    let shares = asked.iter().map(|t| t.accelerator_share());
    let others: Vec<f64> = shares
        .filter(|share| *share < IN_HARDWARE)
        .map(|share| 100.0 * share)
        .collect();
    let range = RoundResults::of(others.iter().copied())?.range(1);
    Some(format!(
        "{} of {} backups with hardware do not count as hardware: the accelerator compressed {range} % of them, \
         software the rest.",
        others.len(),
        asked.len()
    ))
}

/// The rate by that of the backup to NUL in the same round, in percent; of the rounds that count.
fn share_of_nul(backup: &StripedBackup, nul: &StripedBackup) -> Option<f64> {
    let share = |(round, one): (usize, &Timing)| {
        Some(100.0 * one.mb_per_s() / nul.taken.get(round)?.mb_per_s().max(1e-9))
    };
    median(backup.counted().filter_map(share))
}

/// The table with a row for each stripe count, and the charts.
fn by_count(spec: &StripesSpec, swept: &Swept) -> Section {
    let mut columns = vec![Column::number("Stripes", "", 0)];
    for kind in &swept.kinds {
        columns.push(Column::number(kind.name, "s", 2));
        columns.push(Column::number(kind.name, "% of NUL", 1));
    }
    let row = |&n: &usize| {
        let mut cells: Vec<Cell> = vec![(n as f64).into()];
        for kind in &swept.kinds {
            let found = at(&swept.backups, *kind, n);
            cells.push(
                found
                    .and_then(|b| median(b.counted().map(|(_, t)| t.wall_s)))
                    .into(),
            );
            cells.push(found.and_then(|b| share_of_nul(b, &swept.nul)).into());
        }
        cells
    };
    Section {
        heading: "By stripe count".into(),
        prose: vec![format!(
            "Elapsed time, and the rate by that of the backup to NUL in the same round, {:.0} MB/s; {}.{}",
            swept.nul.median(Timing::mb_per_s).unwrap_or_default(),
            match spec.rounds.max(1) {
                1 => "there was one".to_owned(),
                n => format!("medians of {n} rounds"),
            },
            match swept.kinds.contains(&HARDWARE) {
                true => " Backups of which an accelerator compressed too little are left out.",
                false => "",
            }
        )],
        table: Some(without_empty(Table {
            columns,
            row_values: spec.stripes.iter().map(row).collect(),
        })),
        charts: charts(spec, swept),
    }
}

/// Leaves out columns in which nothing was measured.
fn without_empty(mut table: Table) -> Table {
    for n in (0..table.columns.len()).rev() {
        if table.row_values.iter().all(|row| row[n] == Cell::Absent) {
            table.columns.remove(n);
            for row in &mut table.row_values {
                row.remove(n);
            }
        }
    }
    table
}

fn row(backup: &StripedBackup, name: &str, nul: &StripedBackup) -> Vec<Cell> {
    let range = backup.elapsed().filter(|_| backup.taken.len() > 1);
    let last = backup.taken.last();
    let stripes = (backup.stripes > 0).then_some(backup.stripes as f64);
    vec![
        name.into(),
        stripes.into(),
        backup.median(|t| t.wall_s).into(),
        range.map(|r| r.range(2)).into(),
        backup.median(Timing::mb_per_s).into(),
        share_of_nul(backup, nul).into(),
        backup.known(|t| t.system_cpu_percent).into(),
        backup.median(|t| t.cpu_s).into(),
        backup.median(|t| t.stored_bytes as f64 / 1e6).into(),
        backup.median(Timing::ratio).into(),
        backup.median(Timing::cold_percent).into(),
        backup.known(|t| t.cpu_c).into(),
        backup.known(|t| t.drive_c).into(),
        limits::of_rounds(backup.taken.iter().map(|t| t.limit)).into(),
        last.and_then(Timing::compressed_by).into(),
    ]
}

fn columns() -> Vec<Column> {
    vec![
        Column::text("Backup"),
        Column::number("Stripes", "", 0),
        Column::number("Elapsed", "s", 2),
        Column::text("min–max"),
        Column::number("Throughput", "MB/s", 1),
        Column::number("Share of NUL", "%", 1),
        Column::number("CPU", "% of system", 1),
        Column::number("CPU time", "s", 2),
        Column::number("Size", "10^6 bytes", 1),
        Column::number("Ratio", "", 3),
        Column::number("From disk", "%", 0),
        Column::number("CPU peak", "°C", 1),
        Column::number("Drive peak", "°C", 1),
        Column::text("Limited by"),
        Column::text("Compressed by"),
    ]
}

/// The table with all backups in the published order.
fn as_published(spec: &StripesSpec, swept: &Swept) -> Section {
    let columns = columns();
    let mut rows = vec![row(&swept.nul, "NONE to NUL", &swept.nul)];
    rows.extend(swept.backups.iter().map(|b| row(b, &b.name(), &swept.nul)));
    let hardware = if swept.kinds.contains(&HARDWARE) {
        format!(
            "{}: software compresses the blocks that the accelerator leaves; the last column shows who compressed which share \
             in the last round. Only backups of which an accelerator compressed {:.0} % or more count as hardware in the \
             headline, the charts and the ratios. One backup to NUL before, in which it was tested, is not counted.",
            HARDWARE.name,
            100.0 * IN_HARDWARE
        )
    } else {
        let mut skipped = vec![Cell::Absent; columns.len()];
        skipped[0] = format!("{}: skipped", HARDWARE.name).into();
        rows.push(skipped);
        format!(
            "{} was skipped ({} backups): no QAT accelerator can be used here.",
            HARDWARE.name,
            spec.stripes.len()
        )
    };
    let rounds = match spec.rounds.max(1) {
        1 => "Each was made once.".to_owned(),
        n => format!("All were made {n} times in this order; the table has medians and ranges."),
    };
    let mut prose = vec![
        format!(
            "The published order: one backup to NUL, which shows how fast the source can be read, then {} stripe counts \
             for each algorithm, spread over {}. {rounds} MAXTRANSFERSIZE is {} bytes; {} s pass between backups. Elapsed \
             time includes making the stripes durable. MB/s is SQL Server's figure: 2^20 bytes of the database per second. \
             CPU is the whole machine's, other programs included; CPU time is this program's.",
            spec.stripes.len(),
            match spec.dirs.len() {
                1 => "1 directory".to_owned(),
                n => format!("{n} directories"),
            },
            spec.buffer_bytes,
            spec.pause.as_secs_f64()
        ),
        swept.conditions.join(" "),
    ];
    prose.push(hardware);
    Section {
        heading: format!("{} backups in the published order", 1 + swept.backups.len()),
        prose,
        table: Some(without_empty(Table {
            columns,
            row_values: rows,
        })),
        charts: Vec::new(),
    }
}

fn charts(spec: &StripesSpec, swept: &Swept) -> Vec<Chart> {
    let of = |value: &dyn Fn(&Timing) -> Option<f64>| -> Vec<Series> {
        let values = |kind| {
            let counts = spec.stripes.iter();
            let one = |&n| {
                median(
                    at(&swept.backups, kind, n)?
                        .counted()
                        .filter_map(|(_, t)| value(t)),
                )
            };
            counts.map(one).collect()
        };
        swept
            .kinds
            .iter()
            .map(|&kind| Series::new(kind.name, values(kind)))
            .collect()
    };
    let mut charts = Vec::new();
    let mut put = |title: &str, axis: Axis, series: Vec<Series>| {
        if series.iter().any(|s| s.values.iter().any(Option::is_some)) {
            charts.push(by_stripes(&spec.stripes, title, axis, series));
        }
    };
    let mut throughput = of(&|t| Some(t.mb_per_s()));
    let drawn = throughput.iter().flat_map(|s| s.values.iter().flatten());
    let highest = drawn.fold(0.0, |a: f64, b| a.max(*b));
    // A line far above would flatten the others; the prose has it.
    if let Some(nul) = swept.nul.median(Timing::mb_per_s)
        && nul <= FLATTENS * highest
    {
        throughput.push(level("NONE to NUL", nul, spec.stripes.len()));
    }
    put("Throughput", Axis::new("Throughput", "MB/s"), throughput);
    let mut whole = Axis::new("CPU", "% of system");
    whole.max = Some(100.0);
    put(
        "CPU of the whole system",
        whole,
        of(&|t| t.system_cpu_percent),
    );
    let size = of(&|t| Some(t.stored_bytes as f64 / 1e6));
    put("Size of the backup", Axis::new("Size", "10^6 bytes"), size);
    let degrees = || Axis::new("Temperature", "°C");
    put("CPU temperature at its peak", degrees(), of(&|t| t.cpu_c));
    put(
        "Target drives' temperature at its peak",
        degrees(),
        of(&|t| t.drive_c),
    );
    charts
}

#[cfg(test)]
mod tests {
    use super::super::backup::tests::mixed;
    use super::super::backup::{MS_XPRESS, SOFTWARE};
    use super::*;
    use crate::timing::tests::made_up;
    use std::time::Duration;

    fn spec(rounds: usize) -> StripesSpec {
        StripesSpec {
            source: longshore_pipeline::SourceSpec::Files(vec!["x".into()]),
            dirs: vec!["a".into()],
            stripes: vec![1, 2],
            buffer_bytes: 4 << 20,
            rounds,
            pause: Duration::ZERO,
            cool_c: None,
        }
    }

    fn backup(kind: StripedKind, stripes: usize, times: &[f64]) -> StripedBackup {
        let taken = times.iter().map(|s| made_up(*s, 100));
        StripedBackup {
            kind,
            stripes,
            taken: taken.collect(),
        }
    }

    /// NONE, MS_XPRESS and QAT_DEFLATE with one and two stripes.
    fn swept(rounds: usize, warm: Option<f64>) -> Swept {
        let times = |s: f64| (0..rounds).map(|n| s + n as f64 / 10.0).collect::<Vec<_>>();
        let kinds = vec![NONE, MS_XPRESS, SOFTWARE];
        let mut backups = Vec::new();
        for (kind, s) in [(NONE, 1.0), (MS_XPRESS, 4.0), (SOFTWARE, 2.0)] {
            backups.push(backup(kind, 1, &times(s)));
            backups.push(backup(kind, 2, &times(s - 0.5)));
        }
        for taken in backups.iter_mut().flat_map(|b| &mut b.taken) {
            taken.cpu_c = warm;
        }
        Swept {
            kinds,
            nul: backup(NONE, 0, &times(0.5)),
            backups,
            conditions: vec!["No sensor.".into()],
        }
    }

    fn names(section: &Section) -> Vec<String> {
        let table = section.table.as_ref().unwrap();
        let shown = |c: &Column| match c.unit.as_str() {
            "" => c.name.clone(),
            unit => format!("{} {unit}", c.name),
        };
        table.columns.iter().map(shown).collect()
    }

    #[test]
    fn few_rounds_and_those_that_are_alike_are_in_the_headline() {
        let once = report(&spec(1), Vec::new(), &swept(1, None)).summary;
        assert!(
            once.starts_with(
                "Only 1 round, so chance may decide. The quickest that compressed was QAT_DEFLATE software with 2 stripes: \
                 1.50 s, 33 % of the rate to NUL. On this machine"
            ),
            "{once}"
        );
        let three = report(&spec(3), Vec::new(), &swept(3, None)).summary;
        assert!(three.starts_with("The quickest"), "{three}");
        // Their ranges, 1.5 to 1.7 s and 2.0 to 2.2 s, do not meet.
        assert!(!three.contains("as quick"), "{three}");
        let mut alike = swept(3, None);
        alike.backups[4] = backup(SOFTWARE, 1, &[1.7, 1.8, 1.9]);
        let told = report(&spec(3), Vec::new(), &alike).summary;
        assert!(
            told.contains("NUL, and 1 other is as quick within its range."),
            "{told}"
        );
    }

    #[test]
    fn there_is_a_table_as_published_and_one_by_stripe_count() {
        let found = report(&spec(3), Vec::new(), &swept(3, None));
        let [by_count, ratios, published] = &found.sections[..] else {
            panic!("{:?}", found.sections.len());
        };
        assert_eq!(names(by_count)[..3], ["Stripes", "NONE s", "NONE % of NUL"]);
        assert_eq!(by_count.table.as_ref().unwrap().row_values.len(), 2);
        assert_eq!(ratios.heading, "QAT_DEFLATE against MS_XPRESS");
        let rows = &published.table.as_ref().unwrap().row_values;
        let order: Vec<&Cell> = rows.iter().map(|row| &row[0]).collect();
        let expected = [
            "NONE to NUL",
            "NONE",
            "NONE",
            "MS_XPRESS",
            "MS_XPRESS",
            "QAT_DEFLATE software",
            "QAT_DEFLATE software",
            "QAT_DEFLATE hardware: skipped",
        ];
        assert_eq!(order, expected.map(Cell::from).iter().collect::<Vec<_>>());
        assert_eq!(rows[1][3], Cell::from("1.00–1.20"));
        // All forms have the range, as they have all of a report.
        assert!(found.to_markdown().contains("1.00–1.20"));
        assert!(found.to_json().unwrap().contains("1.00–1.20"));
    }

    #[test]
    fn without_a_sensor_there_is_no_column_and_no_chart_of_temperatures() {
        let has = |warm| {
            let found = report(&spec(1), Vec::new(), &swept(1, warm));
            let columns = names(&found.sections[2]);
            let charts = &found.sections[0].charts;
            (
                columns.contains(&"CPU peak °C".to_owned()),
                charts.iter().any(|c| c.title.contains("temperature")),
                columns.contains(&"min–max".to_owned()),
            )
        };
        assert_eq!(has(None), (false, false, false));
        assert_eq!(has(Some(51.0)), (true, true, false));
    }

    #[test]
    fn a_rate_to_nul_that_would_flatten_the_others_is_told_and_not_drawn() {
        let drawn = |nul: f64| {
            let mut swept = swept(1, None);
            swept.nul = backup(NONE, 0, &[nul]);
            let found = by_count(&spec(1), &swept);
            let rate = format!("{:.0} MB/s; there was one", 1000.0 / nul);
            assert!(found.prose[0].contains(&rate), "{:?}", found.prose);
            let series = &found.charts[0].series;
            series.iter().any(|s| s.name == "NONE to NUL")
        };
        // The quickest to a file took 0.5 s.
        assert_eq!((drawn(0.3), drawn(0.2)), (true, false));
    }

    /// An accelerator that failed midway, and one that did nothing: the headline does not count them.
    #[test]
    fn a_backup_that_fell_back_is_told_in_the_headline() {
        let backups: Vec<StripedBackup> = [(1, 1000), (2, 962), (4, 381), (8, 0)]
            .map(|(stripes, hardware)| mixed(HARDWARE, stripes, &[hardware]))
            .into();
        let told = fallen_back(&backups).unwrap();
        assert!(told.starts_with("2 of 4 backups with hardware do not count"));
        assert!(told.contains("0.0–38.1 %"), "{told}");
        assert_eq!(fallen_back(&backups[..2]), None);
    }
}
