//! The report of the bench: measurements next to promises.
//!
//! Invariants
//! - Every promise is a share of another measurement of the same rounds, so that it holds on any machine.
//! - A goal without a measurement is shown as open, never as met.
//!
//! Leaves to others: measuring (the other files of `bench`), and the forms of a report (HTML, Markdown, JSON).

use longshore_codec::Algorithm;

use super::bare::Bare;
use super::findings::Findings;
use super::part::{Part, Price};
use super::rounds::{ALGORITHMS, COMPRESSING, NUL_STRIPES, Round};
use crate::report::{Axis, Best, Cell, Chart, Column, Report, Section, Series, Table, counted};
use crate::spread::{RoundResults, median};
use crate::sweep::Ratios;
use crate::timing::Timing;

/// The promises, as shares of the limit or of another measurement.
const NUL_SHARE: f64 = 0.95;
const NUL_CPU: f64 = 1.05;
const NONE_GB_PER_S: f64 = 12.0;
const DISK_SHARE: f64 = 0.93;
const DISK_CPU: f64 = 1.10;
const COLD_SHARE: f64 = 0.85;
const COLD_CPU: f64 = 1.15;
const RESTORE_SHARE: f64 = 0.85;
const MEMORY_SHARE: f64 = 1.10;
const CEILING_SHARE: f64 = 1.10;

/// Counts goals while rows are made.
#[derive(Default)]
struct Goals {
    met: usize,
    missed: Vec<String>,
}

impl Goals {
    /// The cell for a goal: whether it was met.
    fn judge(&mut self, what: &str, met: Option<bool>) -> Cell {
        match met {
            Some(true) => {
                self.met += 1;
                "met".into()
            }
            Some(false) => {
                self.missed.push(what.to_owned());
                "MISSED".into()
            }
            None => Cell::Absent,
        }
    }
}

pub fn report(platform: Vec<(String, String)>, found: &Findings) -> Report {
    let mut goals = Goals::default();
    let mut sections = vec![
        nul(found, &mut goals),
        disk(found, &mut goals),
        cold(found, &mut goals),
        restore(found, &mut goals),
        memory(found, &mut goals),
        ceilings(found, &mut goals),
        against(found),
        levels(found, &mut goals),
    ];
    if !found.peers.is_empty() {
        sections.push(peers(found));
    }
    sections.insert(0, parts(found));
    let all = goals.met + goals.missed.len();
    let mut summary = format!("{} of {all} goals met.", goals.met);
    if !goals.missed.is_empty() {
        summary += &format!(" Missed: {}.", goals.missed.join("; "));
    }
    Report {
        title: "Longshore against the machine's limits".into(),
        summary,
        platform,
        sections,
    }
}

/// The median over rounds.
fn mid(found: &Findings, value: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
    median(found.rounds.iter().filter_map(value))
}

fn spread(found: &Findings, value: impl Fn(&Round) -> Option<f64>) -> Option<RoundResults> {
    RoundResults::of(found.rounds.iter().filter_map(value))
}

fn range(spread: Option<RoundResults>, decimals: usize) -> Cell {
    spread.map(|s| s.range(decimals)).into()
}

fn percent(share: Option<f64>) -> Cell {
    share.map(|s| 100.0 * s).into()
}

fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

fn limit(found: &Findings, price: impl Fn(&Bare) -> Price) -> Option<f64> {
    mid(found, |r| Some(price(&r.bare).limit_gb_per_s(found.cores)))
}

fn parts(found: &Findings) -> Section {
    let mut rows = Vec::new();
    let mut row = |name: String, speed: &dyn Fn(&Bare) -> Option<Part>, ratio: Option<f64>| {
        let part = spread(found, |r| speed(&r.bare).map(|p| p.gb_per_s()));
        rows.push(vec![
            name.into(),
            part.map(|s| s.median).into(),
            range(part, 2),
            mid(found, |r| speed(&r.bare).map(|p| p.cpu_s_per_gb())).into(),
            ratio.into(),
        ]);
    };
    row("page-cache read".into(), &|b| Some(b.read), None);
    row("CRC-32C in L2".into(), &|b| Some(b.checksum), None);
    row("copy in L2".into(), &|b| Some(b.copy), None);
    row("O_DIRECT write, durable".into(), &|b| Some(b.write), None);
    row(
        "the same, two threads".into(),
        &|b| Some(b.write_twofold),
        None,
    );
    for a in ALGORITHMS {
        let ratio = mid(found, |r| r.bare.codec(a).map(|c| c.ratio()));
        if ratio.is_some() {
            row(
                format!("{a} compress"),
                &|b| b.codec(a).map(|c| c.encode),
                ratio,
            );
            row(
                format!("{a} decompress"),
                &|b| b.codec(a).map(|c| c.decode),
                None,
            );
        }
    }
    Section {
        heading: "The single steps".into(),
        prose: vec![format!(
            "Each part alone on one core, over the same {} and {:.1} MB, in blocks of 1 MiB, at level \
             LOW. The limit of a backup is {} cores ÷ (1/codec + 1/page-cache read + 1/each checksum); there \
             is one checksum of the plain bytes and one of the stored bytes. Medians of {}; bare parts \
             and pipeline alternate within each round. GB is 10^9 bytes.",
            counted(found.files, "file"),
            found.bytes as f64 / 1e6,
            found.cores,
            counted(found.rounds.len(), "round")
        )],
        table: Some(Table {
            columns: vec![
                Column::text("Part"),
                Column::number("Speed", "GB/s", 2),
                Column::text("min–max"),
                Column::number("CPU", "s/GB", 3),
                Column::number("Ratio", "", 3),
            ],
            row_values: rows,
        }),
        charts: Vec::new(),
    }
}

fn of_nul(round: &Round, algorithm: Algorithm, stripes: usize) -> Option<&Timing> {
    let mut all = round.nul.iter();
    let found = all.find(|(a, n, _)| *a == algorithm && *n == stripes);
    found.map(|(_, _, taken)| taken)
}

fn of(all: &[(Algorithm, Timing)], algorithm: Algorithm) -> Option<&Timing> {
    all.iter().find(|(a, _)| *a == algorithm).map(|(_, t)| t)
}

fn nul(found: &Findings, goals: &mut Goals) -> Section {
    let mut rows = Vec::new();
    for a in ALGORITHMS {
        for stripes in NUL_STRIPES {
            let speed = spread(found, |r| of_nul(r, a, stripes).map(Timing::gb_per_s));
            let speed_mid = speed.map(|s| s.median);
            let limit = limit(found, |b| b.backup(a));
            let cpu = mid(found, |r| of_nul(r, a, stripes).map(Timing::cpu_s_per_gb));
            let sum = mid(found, |r| Some(r.bare.backup(a).cpu_s));
            let what = format!("{a} to NUL, {}", counted(stripes, "stripe"));
            let (goal, met) = match a {
                Algorithm::None => (
                    format!("≥ {NONE_GB_PER_S} GB/s"),
                    speed_mid.map(|s| s >= NONE_GB_PER_S),
                ),
                _ => (
                    format!(
                        "≥ {:.0} %, CPU ≤ {:.0} %",
                        100.0 * NUL_SHARE,
                        100.0 * NUL_CPU
                    ),
                    over(speed_mid, limit)
                        .zip(over(cpu, sum))
                        .map(|(share, cpu)| share >= NUL_SHARE && cpu <= NUL_CPU),
                ),
            };
            rows.push(vec![
                a.name().into(),
                (stripes as f64).into(),
                speed_mid.into(),
                range(speed, 2),
                limit.into(),
                percent(over(speed_mid, limit)),
                cpu.into(),
                sum.into(),
                percent(over(cpu, sum)),
                goal.into(),
                goals.judge(&what, met),
            ]);
        }
    }
    let names: Vec<String> = COMPRESSING.iter().map(|a| a.to_string()).collect();
    let of_stripes = |stripes: usize| {
        COMPRESSING
            .iter()
            .map(|&a| mid(found, |r| of_nul(r, a, stripes).map(Timing::gb_per_s)))
            .collect()
    };
    let limits = COMPRESSING.iter().map(|&a| limit(found, |b| b.backup(a)));
    let series = vec![
        Series::new("1 stripe", of_stripes(NUL_STRIPES[0])),
        Series::new("8 stripes", of_stripes(NUL_STRIPES[1])),
        Series::new("limit (modelled)", limits.collect()),
    ];
    let speed = Axis::new("Speed", "GB/s");
    let chart = Chart::bars("To NUL, warm", "Algorithm", names, speed, series);
    Section {
        heading: "To NUL, warm cache".into(),
        prose: vec![
            "The whole pipeline against the limit that is modelled from its measured parts. CPU is this process's user and system time; \
             the sum is what the bare parts used."
                .into(),
        ],
        table: Some(Table {
            columns: vec![
                Column::text("Algorithm"),
                Column::number("Stripes", "", 0),
                Column::number("Speed", "GB/s", 2),
                Column::text("min–max"),
                Column::number("Limit, modelled", "GB/s", 2),
                Column::number("Share", "%", 1),
                Column::number("CPU", "s/GB", 3),
                Column::number("Sum of parts", "s/GB", 3),
                Column::number("CPU share", "%", 1),
                Column::text("Goal"),
                Column::text(""),
            ],
            row_values: rows,
        }),
        charts: vec![chart.sorted(Best::Most)],
    }
}

/// Compares with another measurement: speed and CPU, each with its share.
fn compared(
    name: &str,
    speed: Option<RoundResults>,
    reference: Option<f64>,
    cpu: Option<f64>,
    cpu_reference: Option<f64>,
    goal: String,
    judged: Cell,
) -> Vec<Cell> {
    let mid = speed.map(|s| s.median);
    vec![
        name.into(),
        mid.into(),
        range(speed, 2),
        reference.into(),
        percent(over(mid, reference)),
        cpu.into(),
        cpu_reference.into(),
        percent(over(cpu, cpu_reference)),
        goal.into(),
        judged,
    ]
}

fn compared_columns(first: &str, reference: &str, cpu_reference: &str) -> Vec<Column> {
    vec![
        Column::text(first),
        Column::number("Speed", "GB/s", 2),
        Column::text("min–max"),
        Column::number(reference, "GB/s", 2),
        Column::number("Share", "%", 1),
        Column::number("CPU", "s/GB", 3),
        Column::number(cpu_reference, "s/GB", 3),
        Column::number("CPU share", "%", 1),
        Column::text("Goal"),
        Column::text(""),
    ]
}

/// Whether both shares meet their goals.
fn within(speed: Option<f64>, least: f64, cpu: Option<f64>, most: f64) -> Option<bool> {
    Some(speed? >= least && cpu? <= most)
}

fn disk(found: &Findings, goals: &mut Goals) -> Section {
    let mut rows = Vec::new();
    for a in ALGORITHMS {
        let speed = spread(found, |r| of(&r.disk, a).map(Timing::gb_per_s));
        let to_nul = mid(found, |r| of_nul(r, a, 1).map(Timing::gb_per_s));
        let cpu = mid(found, |r| of(&r.disk, a).map(Timing::cpu_s_per_gb));
        let nul_cpu = mid(found, |r| of_nul(r, a, 1).map(Timing::cpu_s_per_gb));
        let (goal, met) = match a {
            Algorithm::QatDeflate => (
                format!(
                    "≥ {:.0} %, CPU ≤ {:.0} %",
                    100.0 * DISK_SHARE,
                    100.0 * DISK_CPU
                ),
                within(
                    over(speed.map(|s| s.median), to_nul),
                    DISK_SHARE,
                    over(cpu, nul_cpu),
                    DISK_CPU,
                ),
            ),
            _ => (String::new(), None),
        };
        let judged = goals.judge(&format!("{a} to disk"), met);
        rows.push(compared(
            a.name(),
            speed,
            to_nul,
            cpu,
            nul_cpu,
            goal,
            judged,
        ));
    }
    Section {
        heading: "To disk".into(),
        prose: vec![
            "One stripe, warm source, until the stripe is durable; compared with the same backup to NUL. A device that \
             is slower than the compressed stream bounds this, not the program."
                .into(),
        ],
        table: Some(Table {
            columns: compared_columns("Algorithm", "To NUL", "CPU to NUL"),
            row_values: rows,
        }),
        charts: Vec::new(),
    }
}

fn cold(found: &Findings, goals: &mut Goals) -> Section {
    let a = Algorithm::QatDeflate;
    let speed = spread(found, |r| Some(r.cold.taken.gb_per_s()));
    let bound = mid(found, |r| {
        let limit = r.bare.backup(a).limit_gb_per_s(found.cores);
        Some(limit.min(r.cold.read.gb_per_s()))
    });
    let cpu = mid(found, |r| Some(r.cold.taken.cpu_s_per_gb()));
    let warm_cpu = mid(found, |r| of_nul(r, a, 1).map(Timing::cpu_s_per_gb));
    let met = within(
        over(speed.map(|s| s.median), bound),
        COLD_SHARE,
        over(cpu, warm_cpu),
        COLD_CPU,
    );
    let goal = format!(
        "≥ {:.0} %, CPU ≤ {:.0} %",
        100.0 * COLD_SHARE,
        100.0 * COLD_CPU
    );
    let judged = goals.judge("cold", met);
    let share =
        |value: &dyn Fn(&Round) -> f64| mid(found, |r| Some(100.0 * value(r))).unwrap_or(0.0);
    Section {
        heading: "Cold cache".into(),
        prose: vec![format!(
            "{a} to NUL of files that were dropped from the page cache, compared with the smaller of the modelled limit and bare \
             O_DIRECT reading ({:.2} GB/s, the faster of one and several threads); CPU compared with the warm run. \
             Of the source, {:.1} % was cached before and {:.1} % after: the pages that a backup reads in do not stay. \
             {:.0} % of the bytes came past the cache. A bare program that compresses blocks in memory on all \
             cores while others of its threads read the files makes {:.2} GB/s.",
            mid(found, |r| Some(r.cold.read.gb_per_s())).unwrap_or(0.0),
            share(&|r| r.cold.cached_before),
            share(&|r| r.cold.cached_after),
            share(&|r| r.cold.taken.cold_bytes as f64 / r.cold.taken.plain_bytes.max(1) as f64),
            mid(found, |r| Some(r.cold.encode_beside.gb_per_s())).unwrap_or(0.0),
        )],
        table: Some(Table {
            columns: compared_columns("Backup", "Bound", "CPU warm"),
            row_values: vec![compared(
                "cold to NUL",
                speed,
                bound,
                cpu,
                warm_cpu,
                goal,
                judged,
            )],
        }),
        charts: Vec::new(),
    }
}

/// The source of a restored stripe.
#[derive(Clone, Copy, PartialEq)]
enum Stripe {
    Warm,
    Cold,
}

fn restore(found: &Findings, goals: &mut Goals) -> Section {
    let mut rows = Vec::new();
    for stripe in [Stripe::Warm, Stripe::Cold] {
        for a in ALGORITHMS {
            rows.push(restore_row(found, goals, a, stripe));
        }
    }
    Section {
        heading: "Restore to disk".into(),
        prose: vec![format!(
            "From one stripe, until all files are durable under their names. The limit is modelled: cores ÷ (decoding + both \
             checksums + one copy of the stored bytes + the CPU of writing past the cache). The bound is the limit \
             or what the device does bare, whichever is less. Where the stripe is in the page cache, the \
             device writes incompressible bytes, past the cache and durably: {:.2} GB/s here, from one \
             thread or two. Where it is not, the device writes as many bytes while it reads the stripe; that is \
             measured with each stripe, in the same round. At once: a bare program that decodes blocks in memory on \
             all cores while others of its threads write as many bytes, with nothing between them.",
            mid(found, |r| Some(r.bare.write_gb_per_s())).unwrap_or(0.0)
        )],
        table: Some(Table {
            columns: vec![
                Column::text("Algorithm"),
                Column::text("Stripe"),
                Column::number("Speed", "GB/s", 2),
                Column::text("min–max"),
                Column::number("Limit, modelled", "GB/s", 2),
                Column::number("Device", "GB/s", 2),
                Column::number("Bound", "GB/s", 2),
                Column::number("Share", "%", 1),
                Column::number("CPU", "s/GB", 3),
                Column::number("Sum of parts", "s/GB", 3),
                Column::number("At once", "GB/s", 2),
                Column::text("Goal"),
                Column::text(""),
            ],
            row_values: rows,
        }),
        charts: Vec::new(),
    }
}

fn restore_row(found: &Findings, goals: &mut Goals, a: Algorithm, stripe: Stripe) -> Vec<Cell> {
    let taken = |r: &Round| {
        let all = match stripe {
            Stripe::Warm => &r.restore_warm,
            Stripe::Cold => &r.restore,
        };
        of(all, a).cloned()
    };
    let device = |r: &Round| match stripe {
        Stripe::Warm => Some(r.bare.write_gb_per_s()),
        Stripe::Cold => {
            let both = r.both.iter().find(|(of, _)| *of == a);
            both.map(|(_, part)| part.gb_per_s())
        }
    };
    let name = match stripe {
        Stripe::Warm => "cached",
        Stripe::Cold => "not cached",
    };
    let speed = spread(found, |r| taken(r).map(|t| t.gb_per_s()));
    let speed_mid = speed.map(|s| s.median);
    let bound = mid(found, |r| {
        let limit = r.bare.restore(a).limit_gb_per_s(found.cores);
        Some(limit.min(device(r)?))
    });
    let share = over(speed_mid, bound);
    let at_once = match stripe {
        Stripe::Warm => mid(found, |r| {
            let of = r.decode_beside.iter().find(|(of, _)| *of == a);
            of.map(|(_, part)| part.gb_per_s())
        }),
        Stripe::Cold => None,
    };
    let (goal, met) = match a {
        Algorithm::None => (String::new(), None),
        _ => (
            format!("≥ {:.0} % of the bound", 100.0 * RESTORE_SHARE),
            share.map(|s| s >= RESTORE_SHARE),
        ),
    };
    vec![
        a.name().into(),
        name.into(),
        speed_mid.into(),
        range(speed, 2),
        limit(found, |b| b.restore(a)).into(),
        mid(found, device).into(),
        bound.into(),
        percent(share),
        mid(found, |r| taken(r).map(|t| t.cpu_s_per_gb())).into(),
        mid(found, |r| Some(r.bare.restore(a).cpu_s)).into(),
        at_once.into(),
        goal.into(),
        goals.judge(&format!("{a} restore, stripe {name}"), met),
    ]
}

fn memory(found: &Findings, goals: &mut Goals) -> Section {
    let rows = found.peaks.iter().map(|peak| {
        let share = peak.rss_bytes as f64 / peak.bound_bytes.max(1) as f64;
        let what = format!("memory of {}", peak.what);
        vec![
            peak.what.as_str().into(),
            (peak.rss_bytes as f64 / 1e6).into(),
            (peak.bound_bytes as f64 / 1e6).into(),
            percent(Some(share)),
            format!("≤ {:.0} %", 100.0 * MEMORY_SHARE).into(),
            goals.judge(&what, Some(share <= MEMORY_SHARE)),
        ]
    });
    Section {
        heading: "Peak memory".into(),
        prose: vec![
            "The program as its own process: the kernel's peak of resident memory, compared with the bound \
             that the program prints. Unused buffers do not count."
                .into(),
        ],
        table: Some(Table {
            columns: vec![
                Column::text("Run"),
                Column::number("Peak", "10^6 bytes", 1),
                Column::number("Bound", "10^6 bytes", 1),
                Column::number("Share", "%", 1),
                Column::text("Goal"),
                Column::text(""),
            ],
            row_values: rows.collect(),
        }),
        charts: Vec::new(),
    }
}

fn ceilings(found: &Findings, goals: &mut Goals) -> Section {
    let rows = found.ceilings.iter().map(|ceiling| {
        let share = ceiling.found / ceiling.asked;
        vec![
            ceiling.what.as_str().into(),
            ceiling.asked.into(),
            ceiling.found.into(),
            ceiling.unit.into(),
            percent(Some(share)),
            format!("≤ {:.0} %", 100.0 * CEILING_SHARE).into(),
            goals.judge(&ceiling.what, Some(share <= CEILING_SHARE)),
        ]
    });
    Section {
        heading: "Ceilings".into(),
        prose: vec!["Backups to NUL with a ceiling, measured from outside the process.".into()],
        table: Some(Table {
            columns: vec![
                Column::text("Option"),
                Column::number("Asked", "", 1),
                Column::number("Found", "", 1),
                Column::text("Unit"),
                Column::number("Share", "%", 1),
                Column::text("Goal"),
                Column::text(""),
            ],
            row_values: rows.collect(),
        }),
        charts: Vec::new(),
    }
}

fn against(found: &Findings) -> Section {
    Ratios::new(found.against.iter().map(|(n, x, q)| (*n, x, q))).section()
}

fn levels(found: &Findings, goals: &mut Goals) -> Section {
    let xpress = found.levels.first().map(|(_, taken)| taken);
    let better: Vec<&str> = found
        .levels
        .iter()
        .skip(1)
        .filter(|(_, t)| {
            xpress.is_some_and(|x| t.cpu_s < x.cpu_s && t.stored_bytes < x.stored_bytes)
        })
        .map(|(name, _)| name.as_str())
        .collect();
    let judged = goals.judge(
        "a level of DEFLATE that beats MS_XPRESS in both",
        xpress.map(|_| !better.is_empty()),
    );
    let verdict = match (&judged, better.as_slice()) {
        (_, []) => {
            "No level of DEFLATE needs both less CPU and less space than MS_XPRESS.".to_owned()
        }
        (_, some) => format!(
            "Less CPU and less space than MS_XPRESS: {}.",
            some.join(", ")
        ),
    };
    let rows = found.levels.iter().map(|(name, taken)| {
        vec![
            name.as_str().into(),
            taken.gb_per_s().into(),
            taken.cpu_s_per_gb().into(),
            taken.ratio().into(),
        ]
    });
    Section {
        heading: "Levels of DEFLATE and MS_XPRESS".into(),
        prose: vec![format!("To NUL, one run each. {verdict}")],
        table: Some(Table {
            columns: vec![
                Column::text("Algorithm"),
                Column::number("Speed", "GB/s", 2),
                Column::number("CPU", "s/GB", 3),
                Column::number("Ratio", "", 3),
            ],
            row_values: rows.collect(),
        }),
        charts: Vec::new(),
    }
}

fn peers(found: &Findings) -> Section {
    let rows = found.peers.iter().map(|peer| {
        vec![
            peer.command.as_str().into(),
            peer.version.as_str().into(),
            peer.gb_per_s.into(),
            peer.cpu_s_per_gb.into(),
        ]
    });
    Section {
        heading: "Other compressors".into(),
        prose: vec![
            "The same warm files through the compressors installed here, one run each, output thrown away. They \
             write no index, and only zstd and lz4 write checksums."
                .into(),
        ],
        table: Some(Table {
            columns: vec![
                Column::text("Command"),
                Column::text("Version"),
                Column::number("Speed", "GB/s", 2),
                Column::number("CPU", "s/GB", 3),
            ],
            row_values: rows.collect(),
        }),
        charts: Vec::new(),
    }
}
