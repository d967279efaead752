//! The report of a search, and its result as a configuration.
//!
//! Invariants
//! - A prediction is called modelled, and what weakens the result stands in the headline.
//! - Figures that were measured below a ceiling of CPU time are told apart from those without one.
//! - Each heading and each caption says what was measured.
//! - The command line and the configuration say the same.
//!
//! Leaves to others: the search, and the forms of a report (`report/`).

use std::ffi::OsString;
use std::fmt::Write;

use longshore_pipeline::{Limit, OffloadMode};

use super::door::{Cost, CpuCeiling, Objective, TuneSpec};
use super::search::{Choices, Found, SearchStep, StepVerdict};
use crate::platform;
use crate::report::{Axis, Chart, Column, Report, Section, Series, Table, counted};

/// A later backup that takes so many times what is predicted asks for another search.
const AGAIN: f64 = 1.25;
/// Equal measurements that differ more say that the machine is not quiet.
const NOISY: f64 = 0.1;

pub(super) struct Told<'a> {
    pub spec: &'a TuneSpec,
    pub choices: &'a Choices,
    pub found: &'a Found,
    pub ceiling: Option<CpuCeiling>,
    pub source_bytes: Option<u64>,
    /// Of the last backup that reached its end; `None`: all were ended early.
    pub limit: Option<Limit>,
}

impl Told<'_> {
    pub fn report(&self, mut platform: Vec<(String, String)>) -> Report {
        platform.push(("Source".into(), platform::name_of(&self.spec.source)));
        if let Some(bytes) = self.source_bytes {
            platform.push((
                "Size".into(),
                format!("{:.1} MB (10^6)", bytes as f64 / 1e6),
            ));
        }
        platform.push(("Places".into(), self.spec.to.join(", ")));
        Report {
            title: "Settings for this machine".into(),
            summary: self.summary(),
            platform,
            sections: vec![self.result(), self.steps()],
        }
    }

    /// Of the setting, with its ceiling.
    fn cost(&self) -> Cost {
        self.ceiling.map_or(self.found.cost, |ceiling| ceiling.cost)
    }

    fn predicted_s(&self, cost: &Cost) -> Option<f64> {
        Some(cost.pace() * self.source_bytes? as f64)
    }

    fn is_start(&self) -> bool {
        self.found.setting == self.choices.start
    }

    fn summary(&self) -> String {
        let found = self.found;
        let mut said = match self.is_start() {
            true => format!(
                "Keep {}: for {}, nothing that was measured is better by more than {:.0} %, and less may be chance.",
                found.setting,
                self.spec.objective.words(),
                100.0 * found.margin
            ),
            false => format!(
                "For {}, take {}: {}.",
                self.spec.objective.words(),
                found.setting,
                self.gain()
            ),
        };
        if let Some(ceiling) = self.ceiling {
            said.push_str(&self.below(&ceiling));
        }
        if let Some(seconds) = self.predicted_s(&self.cost()) {
            let _ = write!(
                said,
                " Modelled from what was measured: a backup takes about {}, without what begins and ends it.",
                duration(seconds)
            );
        }
        if let (Some(within), Some(most)) = (self.spec.within, self.choices.most_pace)
            && self.cost().pace() > most
        {
            let _ = write!(
                said,
                " **No setting is sure to keep {}**, with a tenth of it left over.",
                duration(within.as_secs_f64())
            );
        }
        if self.spec.objective == Objective::Workload && self.ceiling.is_none() {
            said.push_str(
                " No ceiling of CPU time was found in the time that leaves a backup enough.",
            );
        }
        if found.margin > NOISY {
            let _ = write!(
                said,
                " Equal measurements differed so much that less than {:.0} % may be chance: measure on a quieter machine, or give --time more.",
                100.0 * found.margin
            );
        }
        if found.is_cut {
            said.push_str(" The time was over before everything was tried: give --time more.");
        }
        said
    }

    /// The ceiling, and what it leaves: the other figures were measured without it.
    fn below(&self, ceiling: &CpuCeiling) -> String {
        format!(
            " The ceiling is {:.0} % of the time of the {} that this program may use. Below it, as measured, a backup has {:.2} times \
             the speed of {} without one; what stands before was measured without a ceiling.",
            ceiling.percent,
            counted(longshore_facts::cores(), "CPU"),
            self.found.start.pace() / ceiling.cost.pace().max(f64::MIN_POSITIVE),
            self.choices.start
        )
    }

    /// The result next to where the search began.
    fn gain(&self) -> String {
        let (found, start) = (&self.found.cost, &self.found.start);
        let times = |a: f64, b: f64| a / b.max(f64::MIN_POSITIVE);
        format!(
            "{:.2} times the speed of {}, {:.0} % of its CPU time, {:.0} % of its stored bytes",
            times(start.pace(), found.pace()),
            self.choices.start,
            100.0 * times(found.cpu_pace(), start.cpu_pace()),
            100.0 * times(found.share(), start.share())
        )
    }

    fn result(&self) -> Section {
        let mut prose = vec![format!("On the command line: `{}`", self.command())];
        prose.extend(self.engine());
        prose.push(self.again());
        prose.push("As configuration, of which `--write FILE` makes a new file:".into());
        let configuration = self.configuration();
        let lines = configuration.lines().filter(|line| !line.is_empty());
        Section {
            heading: "What to set, as measured".into(),
            prose,
            table: Some(Table {
                columns: vec![Column::text("longshore.toml")],
                row_values: lines.map(|line| vec![line.into()]).collect(),
            }),
            charts: Vec::new(),
        }
    }

    fn command(&self) -> String {
        let setting = &self.found.setting;
        let mut words: Vec<OsString> = vec!["backup".into()];
        words.extend(self.spec.words.iter().cloned());
        let mut put = |word: &str, value: String| words.extend([word.into(), value.into()]);
        for (place, n) in self.spec.to.iter().cycle().zip(1..=setting.stripes) {
            put("--to", format!("{}/{n}.bak", place.trim_end_matches('/')));
        }
        put("--algorithm", setting.algorithm.to_string());
        put("--level", setting.level.to_string());
        // Server settings may say otherwise.
        put("--offload", word_of(setting.engine).into());
        if let Some(bytes) = setting.buffer_bytes {
            put("--max-transfer-size", format!("{}K", bytes >> 10));
        }
        if let Some(count) = setting.buffer_count {
            put("--buffer-count", count.to_string());
        }
        if let Some(ceiling) = self.ceiling {
            put("--max-cpu", format!("{:.0}", ceiling.percent));
        }
        if self.spec.objective == Objective::Workload {
            words.push("--low-io-priority".into());
        }
        (self.spec.line)(words)
    }

    /// A file that `longshore config check` takes; the databases are for the reader to add.
    pub fn configuration(&self) -> String {
        let setting = &self.found.setting;
        let mut text = String::new();
        let places: Vec<&String> = self.spec.to.iter().cycle().take(setting.stripes).collect();
        let key = match places.iter().all(|place| place.contains("://")) {
            true => "buckets",
            false => "directories",
        };
        let places: Vec<String> = places.iter().map(|place| quoted(place)).collect();
        let _ = writeln!(text, "[target.tuned]\n{key} = [{}]\n", places.join(", "));
        let _ = writeln!(text, "[defaults]\ntarget = \"tuned\"");
        let _ = writeln!(text, "algorithm = \"{}\"", setting.algorithm);
        let _ = writeln!(text, "level = \"{}\"", setting.level);
        if let Some(bytes) = setting.buffer_bytes {
            let _ = writeln!(text, "max_transfer_size = \"{}K\"", bytes >> 10);
        }
        if let Some(count) = setting.buffer_count {
            let _ = writeln!(text, "buffer_count = {count}");
        }
        if let Some(ceiling) = self.ceiling {
            let _ = writeln!(text, "max_cpu = {:.0}", ceiling.percent);
        }
        if self.spec.objective == Objective::Workload {
            text.push_str("low_io_priority = true\n");
        }
        text
    }

    /// The engine has no key of the configuration.
    fn engine(&self) -> Option<String> {
        let word = match self.found.setting.engine {
            OffloadMode::Software | OffloadMode::Auto => return None,
            engine => word_of(engine),
        };
        Some(format!(
            "The file has no key for the accelerator: give backups `--offload {word}`, or set it for all: \
             `longshore accelerator enable --mode {word}`."
        ))
    }

    fn again(&self) -> String {
        let predicted = self.predicted_s(&self.cost());
        let slower = predicted.map_or(String::new(), |seconds| {
            format!(
                ", when a backup takes more than {} (a quarter more than modelled)",
                duration(seconds * AGAIN)
            )
        });
        format!(
            "Run it again after a change of disks, CPUs, accelerator or network{slower}, and when the database has \
             become another kind of data. `longshore history` has the time of each backup."
        )
    }

    fn steps(&self) -> Section {
        let row = |step: &SearchStep| {
            let cost = &step.cost;
            vec![
                step.setting.to_string().into(),
                (1e-6 / cost.pace()).into(),
                (cost.cpu_pace() * 1e9).into(),
                (100.0 * cost.share()).into(),
                (cost.plain_bytes as f64 / 1e6).into(),
                words(step.verdict).into(),
            ]
        };
        let measured = self.found.steps.iter().map(|step| step.cost.plain_bytes);
        let bytes = measured.max().unwrap_or(0) as f64 / 1e6;
        let mut prose = vec![format!(
            "Backups of the source to the places, ended as soon as up to {bytes:.0} MB (10^6) were measured, after those that \
             fill memory, or earlier where one had cost too much. Nothing was encrypted. Bytes in the page cache were read from there. A difference counts from {:.0} % on.",
            100.0 * self.found.margin
        )];
        if let Some(limit) = self.limit {
            prose.push(format!(
                "The source is short, and was backed up whole each time; the last backup's limit was {}. Times below a \
                 second say little.",
                limit.text()
            ));
        }
        if let Some(ceiling) = self.ceiling {
            prose.push(format!(
                "The setting that was taken, with a ceiling of {:.0} % of the CPU time: {:.0} MB/s, {:.2} CPU-s/GB; without it {:.0} \
                 MB/s. The steps in the table had no ceiling.",
                ceiling.percent,
                1e-6 / ceiling.cost.pace(),
                ceiling.cost.cpu_pace() * 1e9,
                1e-6 / self.found.cost.pace()
            ));
        }
        let names = self.found.steps.iter().map(|step| step.setting.to_string());
        let rate = |step: &SearchStep| Some(1e-6 / step.cost.pace());
        Section {
            heading: "Steps, as measured".into(),
            prose,
            table: Some(Table {
                columns: vec![
                    Column::text("Setting"),
                    Column::number("Speed", "MB/s", 0),
                    Column::number("CPU time", "s/GB", 2),
                    Column::number("Stored", "%", 1),
                    Column::number("Measured", "MB", 0),
                    Column::text("Verdict"),
                ],
                row_values: self.found.steps.iter().map(row).collect(),
            }),
            charts: vec![Chart::bars(
                "Speed, measured",
                "Setting, in the order of the steps",
                names.collect(),
                Axis::new("Speed", "MB/s"),
                vec![Series::new(
                    "Speed",
                    self.found.steps.iter().map(rate).collect(),
                )],
            )],
        }
    }
}

fn words(verdict: StepVerdict) -> &'static str {
    match verdict {
        StepVerdict::Start => "where it began",
        StepVerdict::Taken => "better: taken",
        StepVerdict::Simpler => "as good with fewer stripes: taken",
        StepVerdict::NotBetter => "not better",
        StepVerdict::GivenUp => "given up early",
        StepVerdict::InMemory => "not measured: memory held all of it",
        StepVerdict::TooLong => "would take too long (modelled)",
        StepVerdict::OutOfTime => "not measured to its end: the time was over",
        StepVerdict::Again => "measured again",
    }
}

/// The word of `--offload`.
fn word_of(engine: OffloadMode) -> &'static str {
    match engine {
        OffloadMode::Software => "software",
        OffloadMode::Hardware => "hardware",
        OffloadMode::Hybrid => "hybrid",
        OffloadMode::Auto => "auto",
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `48 s`, `12 min`, `3.4 h`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longshore_codec::{Algorithm, Level};
    use longshore_pipeline::SourceSpec;

    use super::super::door::Setting;
    use super::*;

    fn cost(wall_s: f64) -> Cost {
        Cost {
            plain_bytes: 1_000_000_000,
            wall_s,
            cpu_s: 2.0,
            stored_bytes: 300_000_000,
        }
    }

    fn spec() -> TuneSpec {
        TuneSpec {
            source: SourceSpec::Sqlite("/srv/a.db".into()),
            words: vec!["/srv/a.db".into()],
            line: |words| {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join("|")
            },
            to: vec!["/mnt/a".into(), "/mnt/\"b".into()],
            objective: Objective::Workload,
            within: Some(Duration::from_secs(10)),
            algorithms: Vec::new(),
            time: Duration::from_secs(60),
        }
    }

    /// Twice the speed was measured without the ceiling; below it, half of the speed is left.
    fn tells_the_ceiling_apart(told: &Told) {
        let said = told.summary();
        assert!(
            said.contains("The ceiling is 25 % of the time of the "),
            "{said}"
        );
        assert!(
            said.contains(
                "Below it, as measured, a backup has 0.50 times the speed of QAT_DEFLATE LOW, 2 stripes without one; what stands \
                 before was measured without a ceiling."
            ),
            "{said}"
        );
        let steps = told.steps().prose.concat();
        assert!(
            steps.contains("with a ceiling of 25 % of the CPU time: 250 MB/s, 2.00 CPU-s/GB; without it 1000 MB/s."),
            "{steps}"
        );
        let none = Told {
            ceiling: None,
            ..*told
        };
        assert!(none.summary().contains("No ceiling of CPU time was found"));
        assert!(!none.summary().contains("Below it"), "{}", none.summary());
    }

    #[test]
    fn the_result_is_a_command_a_configuration_and_a_prediction() {
        let spec = spec();
        let start = Setting {
            algorithm: Algorithm::QatDeflate,
            level: Level::Low,
            engine: OffloadMode::Software,
            stripes: 2,
            buffer_bytes: None,
            buffer_count: None,
        };
        let choices = Choices {
            objective: spec.objective,
            most_pace: None,
            start,
            codecs: Vec::new(),
            stripes: Vec::new(),
            buffer_bytes: Vec::new(),
            buffers: Vec::new(),
        };
        let found = Found {
            setting: Setting {
                algorithm: Algorithm::Zstd,
                level: Level::Medium,
                engine: OffloadMode::Hybrid,
                stripes: 2,
                buffer_bytes: Some(512 << 10),
                buffer_count: Some(20),
            },
            cost: cost(1.0),
            start: cost(2.0),
            steps: Vec::new(),
            margin: 0.02,
            is_cut: true,
        };
        let told = Told {
            spec: &spec,
            choices: &choices,
            found: &found,
            ceiling: Some(CpuCeiling {
                percent: 25.0,
                cost: cost(4.0),
            }),
            source_bytes: Some(50_000_000_000),
            limit: None,
        };
        assert_eq!(
            told.command(),
            "backup|/srv/a.db|--to|/mnt/a/1.bak|--to|/mnt/\"b/2.bak|--algorithm|ZSTD|--level|MEDIUM|--offload|hybrid|\
             --max-transfer-size|512K|--buffer-count|20|--max-cpu|25|--low-io-priority"
        );
        assert_eq!(
            told.configuration(),
            "[target.tuned]\ndirectories = [\"/mnt/a\", \"/mnt/\\\"b\"]\n\n[defaults]\ntarget = \"tuned\"\n\
             algorithm = \"ZSTD\"\nlevel = \"MEDIUM\"\nmax_transfer_size = \"512K\"\nbuffer_count = 20\nmax_cpu = 25\n\
             low_io_priority = true\n"
        );
        let said = told.summary();
        assert!(
            said.contains("2.00 times the speed of QAT_DEFLATE LOW, 2 stripes"),
            "{said}"
        );
        assert!(
            said.contains("about 3 min") || said.contains("about 200 s"),
            "{said}"
        );
        assert!(said.contains("give --time more"), "{said}");
        tells_the_ceiling_apart(&told);
        assert!(told.again().contains("more than 4 min"), "{}", told.again());
        // The prediction has one word, and everything that was measured the other.
        assert!(
            said.contains("Modelled from what was measured: a backup takes about"),
            "{said}"
        );
        assert!(
            told.again().contains("more than modelled"),
            "{}",
            told.again()
        );
        for section in told.report(Vec::new()).sections {
            let captions = section.charts.iter().map(|chart| &chart.title);
            for text in captions.chain([&section.heading]) {
                assert!(text.contains("measured"), "{text}");
            }
        }
    }
}
