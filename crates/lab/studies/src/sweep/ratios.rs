//! QAT_DEFLATE compared with MS_XPRESS, by stripe count.
//!
//! Invariants
//! - A published number stands next to ratios of the same kind only: one for hardware next to hardware.
//! - A sentence says which is quicker only if all rounds are on one side, and that few rounds were made.
//!
//! Leaves to others: the backups (`backup.rs`), and the other sections (`shown.rs`).

use longshore_pipeline::OffloadMode;

use super::backup::{MS_XPRESS, StripedBackup, StripedKind, at, pairs};
use crate::report::{
    At, Axis, Chart, Column, Positions, ReportFormat, Section, Series, Table, counted,
};
use crate::spread::RoundResults;
use crate::timing::Timing;

/// The most that Intel's white paper has for QAT in hardware, on an idle server (S0.F3).
const PUBLISHED_HARDWARE: f64 = 3.27;

/// QAT_DEFLATE compared with MS_XPRESS, by stripe count.
#[derive(Debug)]
pub struct Ratios {
    /// The engine that did QAT_DEFLATE.
    by: &'static str,
    rows: Vec<Ratio>,
}

/// Of all rounds at one stripe count.
#[derive(Debug)]
struct Ratio {
    stripes: usize,
    rounds: usize,
    /// Elapsed time of MS_XPRESS divided by that of QAT_DEFLATE: above 1, QAT_DEFLATE is faster.
    time: RoundResults,
    /// Bytes of MS_XPRESS divided by those of QAT_DEFLATE.
    size: RoundResults,
    cpu: RoundResults,
}

impl Ratio {
    /// `None` without a round.
    fn of(stripes: usize, rounds: &[(&Timing, &Timing)]) -> Option<Ratio> {
        let results = |value: &dyn Fn(&Timing, &Timing) -> f64| {
            RoundResults::of(rounds.iter().map(|(xpress, qat)| value(xpress, qat)))
        };
        Some(Ratio {
            stripes,
            rounds: rounds.len(),
            time: results(&|xpress, qat| xpress.wall_s / qat.wall_s.max(1e-9))?,
            size: results(&|xpress, qat| {
                xpress.stored_bytes as f64 / qat.stored_bytes.max(1) as f64
            })?,
            cpu: results(&|xpress, qat| xpress.cpu_s / qat.cpu_s.max(1e-9))?,
        })
    }

    /// Whether the rounds differ about which of both is quicker.
    fn is_undecided(&self) -> bool {
        self.time.min <= 1.0 && 1.0 <= self.time.max
    }
}

impl Ratios {
    /// Of those rounds in which both count.
    pub fn of(stripes: &[usize], backups: &[StripedBackup], qat: StripedKind) -> Ratios {
        let row = |&n: &usize| {
            let both = pairs(at(backups, MS_XPRESS, n)?, at(backups, qat, n)?);
            Ratio::of(n, &both)
        };
        Ratios {
            by: match qat.mode {
                OffloadMode::Software => "software",
                _ => "hardware",
            },
            rows: stripes.iter().filter_map(row).collect(),
        }
    }

    /// From pairs of backups, one round: stripes, MS_XPRESS, QAT_DEFLATE in software.
    pub fn new<'a>(pairs: impl Iterator<Item = (usize, &'a Timing, &'a Timing)>) -> Ratios {
        Ratios {
            by: "software",
            rows: pairs
                .filter_map(|(stripes, xpress, qat)| Ratio::of(stripes, &[(xpress, qat)]))
                .collect(),
        }
    }

    /// `None`: there is nothing to compare.
    pub fn summary(&self) -> Option<String> {
        let extremes = |value: fn(&Ratio) -> f64| {
            let spread = RoundResults::of(self.rows.iter().map(value));
            spread.map(|s| s.range(2))
        };
        let (time, size) = (extremes(|r| r.time.median)?, extremes(|r| r.size.median)?);
        let undecided = self.rows.iter().filter(|r| r.is_undecided()).count();
        let undecided = match undecided {
            0 => String::new(),
            n => format!(
                " At {n} of {} the rounds differ about which is quicker.",
                counted(self.rows.len(), "stripe count")
            ),
        };
        Some(format!(
            "On this machine and source, MS_XPRESS took {time} times as long as QAT_DEFLATE in {} and {size} times the \
             space, over {}.{undecided}",
            self.by,
            counted(self.rows.len(), "stripe count"),
        ))
    }

    pub fn section(&self) -> Section {
        let has_rounds = self.rows.iter().any(|r| r.rounds > 1);
        let rows = self.rows.iter().map(|r| {
            let mut cells = vec![(r.stripes as f64).into(), r.time.median.into()];
            if has_rounds {
                cells.push(r.time.range(2).into());
            }
            cells.extend([r.cpu.median.into(), r.size.median.into()]);
            cells
        });
        const BOTH: &str = "MS_XPRESS : QAT_DEFLATE";
        let mut columns = vec![
            Column::number("Stripes", "", 0),
            Column::number("Time", BOTH, 2),
        ];
        if has_rounds {
            columns.push(Column::text("min–max"));
        }
        columns.extend([
            Column::number("CPU time", BOTH, 2),
            Column::number("Size", BOTH, 3),
        ]);
        let counts: Vec<usize> = self.rows.iter().map(|r| r.stripes).collect();
        let values = |value: fn(&Ratio) -> f64| self.rows.iter().map(|r| Some(value(r))).collect();
        let mut series = vec![
            Series::new("time", values(|r| r.time.median)),
            Series::new("size", values(|r| r.size.median)),
        ];
        let published = match self.by {
            "hardware" => {
                let name = "time, published for hardware: up to 3.27 ×";
                series.push(level(name, PUBLISHED_HARDWARE, counts.len()));
                "The dashed line is the most that Intel's white paper has for QAT in hardware on an idle server, with \
                 other data (S0.F3)."
            }
            _ => {
                "No factor was published for software: figure S2.C of longshore lab has the two times and sizes that \
                 were."
            }
        };
        Section {
            heading: match self.by {
                "software" => "QAT_DEFLATE against MS_XPRESS".into(),
                by => format!("QAT_DEFLATE in {by} against MS_XPRESS"),
            },
            prose: vec![format!(
                "How many times the time, CPU time and space of QAT_DEFLATE, in {}, MS_XPRESS needs; above 1, QAT_DEFLATE \
                 is better. {published} The MS_XPRESS here is a current implementation of the same format, not a slow one: \
                 a smaller ratio than SQL Server's may mean no more than that.",
                self.by
            )],
            table: Some(Table {
                columns,
                row_values: rows.collect(),
            }),
            charts: vec![by_stripes(
                &counts,
                "MS_XPRESS : QAT_DEFLATE",
                Axis::new("Ratio", BOTH),
                series,
            )],
        }
    }
}

/// A chart with the stripe counts on its horizontal axis.
pub fn by_stripes(stripes: &[usize], title: &str, y: Axis, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        form: ReportFormat::Line,
        x: Positions {
            label: "Stripes".into(),
            unit: String::new(),
            at: At::Numbers(stripes.iter().map(|&n| n as f64).collect()),
        },
        y,
        y_right: None,
        series,
    }
}

/// A line at one height, for comparison.
pub fn level(name: &str, height: f64, count: usize) -> Series {
    Series {
        dashed: true,
        ..Series::new(name, vec![Some(height); count])
    }
}

#[cfg(test)]
mod tests {
    use super::super::backup::tests::mixed;
    use super::super::backup::{HARDWARE, SOFTWARE};
    use super::*;
    use crate::timing::tests::made_up;

    #[test]
    fn a_ratio_above_one_says_that_qat_deflate_is_better() {
        let (xpress, qat) = (made_up(6.0, 300), made_up(2.0, 200));
        let ratios = Ratios::new([(8, &xpress, &qat)].into_iter());
        let row = &ratios.rows[0];
        assert_eq!(
            (
                row.stripes,
                row.time.median,
                row.size.median,
                row.cpu.median
            ),
            (8, 3.0, 1.5, 3.0)
        );
        let summary = ratios.summary().unwrap();
        assert!(summary.contains("took 3.00–3.00 times as long as QAT_DEFLATE"));
        assert!(
            summary.starts_with("On this machine and source"),
            "{summary}"
        );
        assert!(Ratios::new(std::iter::empty()).summary().is_none());
    }

    #[test]
    fn rounds_on_both_sides_decide_nothing_and_the_summary_says_so() {
        let backup = |kind, stripes, times: [f64; 3]| StripedBackup {
            kind,
            stripes,
            taken: times.map(|s| made_up(s, 100)).into(),
        };
        let backups = [
            backup(MS_XPRESS, 1, [2.0, 2.0, 2.2]),
            backup(SOFTWARE, 1, [1.0, 1.0, 1.0]),
            backup(MS_XPRESS, 4, [1.0, 1.1, 1.2]),
            backup(SOFTWARE, 4, [1.1, 1.0, 1.0]),
        ];
        let ratios = Ratios::of(&[1, 4], &backups, SOFTWARE);
        assert_eq!(ratios.rows[0].time.range(2), "2.00–2.20");
        let summary = ratios.summary().unwrap();
        assert!(summary.contains("1.10–2.00 times as long"), "{summary}");
        assert!(
            summary.ends_with("At 1 of 2 stripe counts the rounds differ about which is quicker."),
            "{summary}"
        );
        let table = ratios.section().table.unwrap();
        let names: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["Stripes", "Time", "min–max", "CPU time", "Size"]);
    }

    /// An accelerator that failed midway, and one that did nothing: their backups are not compared.
    #[test]
    fn blocks_that_software_compressed_do_not_count_as_hardware() {
        let mut backups: Vec<StripedBackup> = [(1, 1000), (2, 962), (4, 381), (8, 0)]
            .map(|(stripes, hardware)| mixed(HARDWARE, stripes, &[hardware]))
            .into();
        for stripes in [1, 2, 4, 8] {
            backups.push(mixed(MS_XPRESS, stripes, &[0]));
            backups.push(mixed(SOFTWARE, stripes, &[0]));
        }
        let ratios = Ratios::of(&[1, 2, 4, 8], &backups, HARDWARE);
        let counted: Vec<usize> = ratios.rows.iter().map(|row| row.stripes).collect();
        assert_eq!(counted, [1, 2]);
        assert!(ratios.summary().unwrap().contains("over 2 stripe counts"));
        let none = [mixed(HARDWARE, 1, &[0]), mixed(MS_XPRESS, 1, &[0])];
        assert_eq!(Ratios::of(&[1], &none, HARDWARE).summary(), None);
    }

    /// A number of the white paper's hardware next to software would be a comparison of different things.
    #[test]
    fn published_hardware_stands_next_to_hardware_only() {
        let backups = [
            mixed(MS_XPRESS, 1, &[0]),
            mixed(SOFTWARE, 1, &[0]),
            mixed(HARDWARE, 1, &[1000]),
        ];
        let drawn = |kind| {
            let section = Ratios::of(&[1], &backups, kind).section();
            let text = section.prose.concat();
            let names = section.charts[0].series.iter().map(|s| s.name.clone());
            (text, names.collect::<Vec<_>>().join("; "))
        };
        let (text, names) = drawn(SOFTWARE);
        assert!(
            !text.contains("3.27") && !names.contains("published"),
            "{names} {text}"
        );
        let (text, names) = drawn(HARDWARE);
        assert!(
            names.contains("published for hardware: up to 3.27 ×"),
            "{names}"
        );
        assert!(text.contains("S0.F3"), "{text}");
    }
}
