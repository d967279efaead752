//! The status of all databases in three forms: JSON for the page, metrics for Prometheus, a table of plain text.
//!
//! Invariants
//! - All forms show the same answers, each with its age; one that is missing, late or without a newer one shows that it is.
//! - A form is made at most once a second and shared by all clients: neither memory nor work grows with their number.
//! - No form has the path of a password, a key or the logins.
//!
//! Leaves to others: asking (`looks.rs`), when to ask (`answers.rs`), and sending (`mod.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_accelerators::{RunningWork, running_work};
use longshore_tsql::{RunningRequest, Server};
use parking_lot::Mutex;
use serde::Serialize;

use super::answers::{Answers, Known};
use super::looks::{self, CheckFound, Found, LeftOut, Runs, ShelfFound, Subject};
use super::reply::Body;
use crate::commands::check::{CheckDepth, CheckedDatabase, Grade};
use crate::commands::info::DescribedDatabase;
use crate::commands::metrics::{DatabaseMetrics, build_info, escaped, gauge, owed, prometheus, up};
use crate::commands::results::age_text;
use crate::config::Config;
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, moment};
use longshore_terminal::text::plain;

/// The longest that a client waits for answers that are too old.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time for which a form is shown to everybody.
const KEPT: Duration = Duration::from_secs(1);

/// A form of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusForm {
    Json,
    Metrics,
    Text,
}

/// The status of all databases.
pub struct Status {
    context: Arc<Context>,
    subjects: Arc<Vec<Subject>>,
    answers: Answers<Found, Failure>,
    /// The sessions of T-SQL clients, if this process has any.
    sessions: Option<Arc<Server>>,
    /// When the certificate of this process ends, if it has one.
    certificate_ends_us: Option<i64>,
    refresh: Duration,
    max_age: u32,
    /// Paths that are not shown.
    hidden: Vec<String>,
    forms: Mutex<[Option<Made>; 3]>,
}

/// A form, when it was made, and of which answers.
#[derive(Clone)]
struct Made {
    body: Body,
    at: Duration,
    generation: u64,
}

impl Status {
    pub fn new(
        context: Context,
        (sessions, certificate_ends_us): (Option<Arc<Server>>, Option<i64>),
        refresh: Duration,
        max_age: u32,
    ) -> Status {
        let context = Arc::new(context);
        let subjects = Arc::new(looks::subjects(&context));
        let is_shelf = |subject: &&Subject| matches!(subject, Subject::Shelf(_));
        let rows = looks::rows_each(subjects.iter().filter(is_shelf).count());
        let depth = CheckDepth {
            max_age,
            max_verify_age: None,
            max_drill_age: None,
            archive_wait: 0,
            only_looks: true,
        };
        let (asked, about) = (context.clone(), subjects.clone());
        let ask = move |number: usize| looks::ask(&about[number], rows, &depth, &asked);
        Status {
            answers: Answers::new(subjects.len(), refresh, context.clock.clone(), ask),
            hidden: hidden(&context.config),
            context,
            subjects,
            sessions,
            certificate_ends_us,
            refresh,
            max_age,
            forms: Mutex::default(),
        }
    }

    /// The status now, after a wait for newer answers if the last ones are too old.
    pub fn form(&self, form: StatusForm) -> Body {
        self.answers.renew(PATIENCE);
        // Clients wait for the one that makes it.
        let mut forms = self.forms.lock();
        let (known, generation) = self.answers.known();
        let now = self.context.clock.now();
        let place = &mut forms[form as usize];
        if let Some(made) = place
            && made.generation == generation
            && now.saturating_sub(made.at) < KEPT
        {
            return made.body.clone();
        }
        let seen = Seen::of(self, &known);
        let text = match form {
            StatusForm::Json => seen.json(),
            StatusForm::Metrics => seen.metrics(),
            StatusForm::Text => seen.text(),
        };
        let body = Body::from(self.without_hidden(text).into_bytes());
        *place = Some(Made {
            body: body.clone(),
            at: now,
            generation,
        });
        body
    }

    fn without_hidden(&self, text: String) -> String {
        let hide = |text: String, path: &String| match text.contains(path) {
            true => text.replace(path, "(hidden)"),
            false => text,
        };
        self.hidden.iter().fold(text, hide)
    }

    /// Runs and statements that have not ended.
    fn running(&self, shelves: &[ShelfRow]) -> Vec<RunningRow> {
        let requests = self.sessions.iter().flat_map(|s| s.running_requests());
        let runs = running_work(&self.context.machine(), self.context.catalog.as_deref());
        // Those of this process are its sessions'.
        let runs = runs.into_iter().filter(|run| !run.is_own);
        let mut all: Vec<RunningRow> = requests.map(RunningRow::of_request).collect();
        all.extend(runs.map(RunningRow::of_run));
        // A backup that says how far it is need not be shown twice.
        let host = longshore_facts::host_name();
        for written in shelves.iter().flat_map(ShelfRow::written) {
            let is_same =
                |row: &&mut RunningRow| row.label.is_none() && row.writes(&written, &host);
            match all.iter_mut().find(is_same) {
                Some(row) => {
                    row.target = written.target;
                    row.label = written.label;
                }
                None => all.push(written),
            }
        }
        all
    }
}

/// Paths of secrets in the configuration, longest first, as they stand in JSON, too.
fn hidden(config: &Config) -> Vec<String> {
    let passwords = config.database.values();
    let passwords = passwords.filter_map(|database| database.password_file.as_ref());
    let own = [
        &config.serve.key,
        &config.serve.logins,
        &config.encryption.sign,
    ];
    let keys = config.target.values();
    let keys = keys.filter_map(|target| target.credentials_file.as_ref());
    let paths = passwords.chain(keys).chain(own.into_iter().flatten());
    let encryption = &config.encryption;
    let of_targets = config.target.values().filter_map(|t| t.recipients.as_ref());
    let opens = encryption.identities.iter().chain(&encryption.recipients);
    let opens = opens.chain(&encryption.require_recipients);
    let opens = opens.chain(of_targets.flatten());
    let opens = opens.map(|text| text.trim_start_matches("passphrase:"));
    // A recipient is no secret.
    let opens = opens.filter(|text| {
        !["age1", "@", "command:"]
            .iter()
            .any(|word| text.starts_with(word))
    });
    let mut hidden: Vec<String> = paths
        .map(|path| path.display().to_string())
        .chain(opens.map(str::to_owned))
        .flat_map(|path| {
            let json = serde_json::to_string(&path).unwrap_or_default();
            let json = json.trim_matches('"').to_owned();
            [path, json]
        })
        .filter(|path| path.len() > 1)
        .collect();
    hidden.sort_by_key(|path| std::cmp::Reverse(path.len()));
    hidden.dedup();
    hidden
}

/// How an answer was come by.
#[derive(Serialize)]
struct Asked<'a> {
    /// When the answer was found; `None`: there is none yet.
    answered_us: Option<i64>,
    took_s: Option<f64>,
    /// For how long a newer answer is waited for; `None`: none is.
    asked_for_s: Option<u64>,
    /// Why there is no newer answer.
    error: Option<&'a Failure>,
    /// Whether the last try to find one ended in a panic.
    panicked: bool,
}

impl<'a> Asked<'a> {
    fn of(known: &'a Known<Found, Failure>) -> Asked<'a> {
        let answer = known.answer.as_ref();
        Asked {
            answered_us: answer.map(|answer| answer.at_us),
            took_s: answer.map(|answer| answer.took.as_secs_f64()),
            asked_for_s: known.asked_for.map(|time| time.as_secs()),
            error: known.error.as_ref().map(|error| &error.value),
            panicked: known.has_panicked,
        }
    }

    /// Whether the answer is the newest that was asked for, or is only just late.
    fn is_current(&self) -> bool {
        const LATE_S: u64 = 10;
        let is_late = self.asked_for_s.is_some_and(|s| s >= LATE_S);
        self.answered_us.is_some() && self.error.is_none() && !self.panicked && !is_late
    }

    /// Why the answer is not current, for people.
    fn why(&self) -> Option<String> {
        match (self.error, self.asked_for_s, self.answered_us) {
            _ if self.is_current() => None,
            (Some(error), ..) => Some(plain(&error.text)),
            _ if self.panicked => Some("a bug: the question ended in a panic".to_owned()),
            (None, _, None) => Some("no answer yet".to_owned()),
            (None, asked_for_s, Some(_)) => Some(format!(
                "no newer answer for {} s",
                asked_for_s.unwrap_or_default()
            )),
        }
    }

    fn age_s(&self, now_us: i64) -> Option<f64> {
        let age_us = now_us.saturating_sub(self.answered_us?);
        Some(age_us.max(0) as f64 / 1e6)
    }
}

#[derive(Serialize)]
struct ShelfRow<'a> {
    database: &'a str,
    target: &'a str,
    is_copy: bool,
    #[serde(flatten)]
    asked: Asked<'a>,
    info: Option<&'a DescribedDatabase>,
    left_out: Option<&'a LeftOut>,
    #[serde(skip)]
    metrics: Option<&'a DatabaseMetrics>,
}

impl<'a> ShelfRow<'a> {
    /// Backups that are being written there, by any process on any machine.
    fn written(&self) -> Vec<RunningRow> {
        let Some(info) = self.info else {
            return Vec::new();
        };
        let rows = info.backups.iter().filter(|row| row.state == "writing");
        let row = |row: &crate::commands::shelves::Row| RunningRow {
            seen: "target",
            action: "backup".to_owned(),
            database: Some(self.database.to_owned()),
            target: Some(self.target.to_owned()),
            label: Some(row.label.clone()),
            since_us: row.begun_us,
            percent: None,
            done_bytes: Some(row.bytes),
            total_bytes: None,
            detail: row.detail.clone(),
            pid: None,
        };
        rows.map(row).collect()
    }
}

#[derive(Serialize)]
struct CheckRow<'a> {
    database: &'a str,
    #[serde(flatten)]
    asked: Asked<'a>,
    check: Option<&'a CheckedDatabase>,
    left_out_count: usize,
    #[serde(skip)]
    counts: (usize, usize),
}

#[derive(Serialize)]
struct HistoryRows<'a> {
    #[serde(flatten)]
    asked: Asked<'a>,
    #[serde(flatten)]
    runs: &'a Runs,
}

/// A run that has not ended.
#[derive(Debug, Serialize)]
struct RunningRow {
    /// Who knows of it: `session`, `run` or `target`.
    seen: &'static str,
    action: String,
    database: Option<String>,
    target: Option<String>,
    label: Option<String>,
    since_us: i64,
    percent: Option<u8>,
    done_bytes: Option<u64>,
    total_bytes: Option<u64>,
    detail: String,
    /// The process of a run on this machine.
    #[serde(skip)]
    pid: Option<u32>,
}

impl RunningRow {
    /// Whether this run writes a backup that was seen at a target: other hosts, and other processes of this one, may
    /// write backups of the same name at others.
    fn writes(&self, written: &RunningRow, host: &str) -> bool {
        let is_own = self.pid.is_some_and(|pid| {
            let holder = format!(" by process {pid} on host {host}");
            written.detail.ends_with(&holder)
        });
        is_own && self.action == "backup" && self.database == written.database
    }

    fn of_request(request: RunningRequest) -> RunningRow {
        RunningRow {
            seen: "session",
            action: request.command.to_owned(),
            database: Some(request.database),
            target: None,
            label: None,
            since_us: request.since_us,
            percent: request.percent,
            done_bytes: None,
            total_bytes: None,
            detail: format!("T-SQL session {}", request.session),
            pid: None,
        }
    }

    fn of_run(run: RunningWork) -> RunningRow {
        let percent = |total: u64| (run.done_bytes.saturating_mul(100) / total.max(1)).min(100);
        RunningRow {
            seen: "run",
            action: run.action,
            database: Some(run.database),
            target: None,
            label: None,
            since_us: run.since_us,
            percent: run.expected_bytes.map(|total| percent(total) as u8),
            done_bytes: Some(run.done_bytes),
            total_bytes: run.expected_bytes,
            detail: format!("process {}", run.pid),
            pid: Some(run.pid),
        }
    }
}

/// The answers of one moment.
struct Seen<'a> {
    status: &'a Status,
    now_us: i64,
    shelves: Vec<ShelfRow<'a>>,
    checks: Vec<CheckRow<'a>>,
    history: Option<HistoryRows<'a>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    status: &'static str,
    exit_code: u8,
    warnings: [String; 0],
    notes: [String; 0],
    action: &'static str,
    version: &'static str,
    host: String,
    now_us: i64,
    refresh_s: u64,
    max_age_hours: u32,
    databases: &'a [ShelfRow<'a>],
    checks: &'a [CheckRow<'a>],
    running: Vec<RunningRow>,
    history: &'a Option<HistoryRows<'a>>,
}

impl<'a> Seen<'a> {
    fn of(status: &'a Status, known: &'a [Known<Found, Failure>]) -> Seen<'a> {
        static NO_RUNS: Runs = Runs {
            backups: Vec::new(),
            restores: Vec::new(),
            runs: Vec::new(),
        };
        let mut seen = Seen {
            status,
            now_us: status.context.clock.wall_ns() / 1000,
            shelves: Vec::new(),
            checks: Vec::new(),
            history: None,
        };
        for (subject, known) in status.subjects.iter().zip(known) {
            let asked = Asked::of(known);
            let found = known.answer.as_ref().map(|answer| &answer.value);
            match subject {
                Subject::Shelf(placed) => {
                    let found = match found {
                        Some(Found::Shelf(found)) => Some(&**found),
                        _ => None,
                    };
                    seen.shelves.push(ShelfRow {
                        database: &placed.database,
                        target: &placed.target,
                        is_copy: placed.is_copy,
                        asked,
                        info: found.map(|found: &ShelfFound| &found.info),
                        left_out: found.map(|found| &found.left_out),
                        metrics: found.map(|found| &found.metrics),
                    });
                }
                Subject::Check(database) => {
                    let found = match found {
                        Some(Found::Check(found)) => Some(&**found),
                        _ => None,
                    };
                    seen.checks.push(CheckRow {
                        database,
                        asked,
                        check: found.map(|found: &CheckFound| &found.checked),
                        left_out_count: found.map_or(0, |found| found.left_out_count),
                        counts: found.map_or((0, 0), |found| found.counts),
                    });
                }
                Subject::History => {
                    let runs = match found {
                        Some(Found::History(runs)) => runs,
                        _ => &NO_RUNS,
                    };
                    seen.history = Some(HistoryRows { asked, runs });
                }
            }
        }
        seen
    }

    /// The exit code that `check` would end with. A question without an answer is something to look at.
    fn exit(&self) -> Exit {
        let worst = self.checks.iter().filter_map(|row| Some(row.check?.grade));
        let all = self.shelves.iter().map(|row| &row.asked);
        let mut all = all.chain(self.checks.iter().map(|row| &row.asked));
        match worst.max() {
            Some(Grade::Bad) => Exit::No,
            Some(Grade::Look) => Exit::Warnings,
            _ if !all.all(Asked::is_current) => Exit::Warnings,
            _ => Exit::Done,
        }
    }

    fn json(&self) -> String {
        let exit = self.exit();
        let answer = Answer {
            status: match exit {
                Exit::No => "damaged",
                Exit::Done => "ok",
                _ => "warnings",
            },
            exit_code: exit.code(),
            warnings: [],
            notes: [],
            action: "status",
            version: env!("CARGO_PKG_VERSION"),
            host: longshore_facts::host_name(),
            now_us: self.now_us,
            refresh_s: self.status.refresh.as_secs(),
            max_age_hours: self.status.max_age,
            databases: &self.shelves,
            checks: &self.checks,
            running: self.status.running(&self.shelves),
            history: &self.history,
        };
        serde_json::to_string(&answer).unwrap_or_default() + "\n"
    }

    fn metrics(&self) -> String {
        let known: Vec<&DatabaseMetrics> =
            self.shelves.iter().filter_map(|row| row.metrics).collect();
        let mut text = prometheus(&known, self.now_us);
        let places = self.shelves.iter();
        text += &up(places.map(|row| ((row.database, row.target), row.asked.is_current())));
        let ages = self.shelves.iter();
        let ages = ages.filter_map(|row| {
            let (database, target) = (escaped(row.database), escaped(row.target));
            let labels = format!("{{database=\"{database}\",target=\"{target}\"}}");
            Some((labels, row.asked.age_s(self.now_us)?))
        });
        text += &gauge(
            "answer_age_seconds",
            "Age of the answer that these metrics show.",
            ages,
        );
        let of_check = |row: &CheckRow| format!("{{database=\"{}\"}}", escaped(row.database));
        let up = self.checks.iter().map(|row| {
            let value = u8::from(row.asked.is_current());
            (of_check(row), f64::from(value))
        });
        text += &gauge(
            "check_up",
            "Whether longshore check ended when it was last begun.",
            up,
        );
        let ages = self.checks.iter();
        let ages = ages.filter_map(|row| Some((of_check(row), row.asked.age_s(self.now_us)?)));
        text += &gauge(
            "check_answer_age_seconds",
            "Age of the findings that these metrics show.",
            ages,
        );
        let codes = self.checks.iter().filter_map(|row| {
            let exit = match row.check?.grade {
                Grade::Good => Exit::Done,
                Grade::Look => Exit::Warnings,
                Grade::Bad => Exit::No,
            };
            Some((of_check(row), f64::from(exit.code())))
        });
        text += &gauge(
            "check_exit_code",
            "What longshore check would end with: 0 good, 5 a warning, 1 wrong.",
            codes,
        );
        let findings = self.checks.iter().filter(|row| row.check.is_some());
        let findings = findings.flat_map(|row| {
            let database = escaped(row.database);
            let line = |grade: &str, count: usize| {
                let labels = format!("{{database=\"{database}\",grade=\"{grade}\"}}");
                (labels, count as f64)
            };
            [line("look", row.counts.0), line("bad", row.counts.1)]
        });
        text += &gauge(
            "check_findings",
            "Findings of longshore check, by their grade.",
            findings,
        );
        let lists = self.checks.iter();
        text += &owed(lists.filter_map(|row| Some((row.database, row.check?.owed.as_ref()?))));
        let ends = self.status.certificate_ends_us;
        text += &gauge(
            "certificate_end_timestamp_seconds",
            "Unix time when the certificate ends that this server shows.",
            ends.map(|us| (String::new(), us as f64 / 1e6)).into_iter(),
        );
        text + &self.running_metrics() + &build_info()
    }

    /// Runs by what they do and their database; those of one kind are added up.
    fn running_metrics(&self) -> String {
        let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for run in self.status.running(&self.shelves) {
            let (action, database) = (
                escaped(&run.action),
                escaped(run.database.as_deref().unwrap_or("")),
            );
            let kind = format!("{{operation=\"{action}\",database=\"{database}\"}}");
            let (done, total) = kinds.entry(kind).or_default();
            *done += run.done_bytes.unwrap_or(0);
            *total += run.total_bytes.unwrap_or(0);
        }
        let done = kinds
            .iter()
            .map(|(kind, (done, _))| (kind.clone(), *done as f64));
        let total = kinds
            .iter()
            .map(|(kind, (_, total))| (kind.clone(), *total as f64));
        let total = total.filter(|(_, total)| *total > 0.0);
        gauge(
            "running_done_bytes",
            "Bytes that runs have read so far; 0 if not known.",
            done,
        ) + &gauge(
            "running_total_bytes",
            "Bytes that these runs will read.",
            total,
        )
    }

    fn text(&self) -> String {
        let heads = [
            "database",
            "target",
            "last good backup (UTC)",
            "recoverable from (UTC)",
            "answer (UTC)",
        ];
        let mut table = Table::new(&heads);
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for row in &self.shelves {
            let info = row.info;
            let since = info.and_then(|info| info.wal.as_ref()?.recoverable_from_us);
            table.row(vec![
                plain(row.database),
                plain(row.target),
                or(info.and_then(|info| info.last_good_finish_us).map(moment)),
                or(since.map(moment)),
                or(row.asked.answered_us.map(moment)),
            ]);
        }
        let mut text = format!("{} UTC\n{table}", moment(self.now_us));
        for row in &self.shelves {
            let place = plain(&format!("{} at {}", row.database, row.target));
            if let Some(why) = row.asked.why() {
                let mark = match row.asked.error {
                    Some(_) => "FAIL",
                    None => "WARN",
                };
                text += &format!("  {mark}  {place}: {why}\n");
            }
        }
        for row in &self.checks {
            if let Some(why) = row.asked.why() {
                let age = row.asked.age_s(self.now_us).map(|age_s| {
                    format!("; the findings are those of {} ago", age_text(age_s as i64))
                });
                let (database, age) = (plain(row.database), age.unwrap_or_default());
                text += &format!("  WARN  {database}  check: {why}{age}\n");
            }
            let findings = row.check.iter().flat_map(|check| &check.findings);
            for finding in findings.filter(|finding| finding.grade != Grade::Good) {
                let mark = match finding.grade {
                    Grade::Bad => "FAIL",
                    _ => "WARN",
                };
                let (database, found) = (plain(row.database), plain(&finding.text));
                text += &format!("  {mark}  {database}  {}  {found}\n", finding.what);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seen: &'static str, detail: &str, pid: Option<u32>) -> RunningRow {
        RunningRow {
            seen,
            action: "backup".to_owned(),
            database: Some("shop".to_owned()),
            target: None,
            label: None,
            since_us: 0,
            percent: None,
            done_bytes: None,
            total_bytes: None,
            detail: detail.to_owned(),
            pid,
        }
    }

    /// Goal: a run is not shown with the label of another run that backs up a database of the same name.
    #[test]
    fn a_run_writes_what_its_own_process_holds() {
        let run = row("run", "process 11", Some(11));
        let writes = |detail: &str| run.writes(&row("target", detail, None), "db1");
        assert!(writes("being written: backup by process 11 on host db1"));
        for other in [
            "being written: backup by process 12 on host db1",
            "being written: backup by process 11 on host db2",
            "being written: backup by process 111 on host db1",
            "being written: a command that named its stripes as devices",
        ] {
            assert!(!writes(other), "{other}");
        }
    }

    fn asked(answered_us: Option<i64>, asked_for_s: Option<u64>, panicked: bool) -> Asked<'static> {
        Asked {
            answered_us,
            took_s: None,
            asked_for_s,
            error: None,
            panicked,
        }
    }

    #[test]
    fn an_answer_is_current_unless_a_newer_one_is_late_or_was_never_given() {
        assert_eq!(asked(Some(1), None, false).why(), None);
        assert_eq!(asked(Some(1), Some(9), false).why(), None);
        for (asked, why) in [
            (asked(None, None, false), "no answer yet"),
            (asked(None, Some(600), false), "no answer yet"),
            (asked(Some(1), Some(10), false), "no newer answer for 10 s"),
            (asked(Some(1), None, true), "panic"),
            (asked(Some(1), Some(10), true), "panic"),
        ] {
            assert!(!asked.is_current());
            let told = asked.why().unwrap();
            assert!(told.contains(why), "{told}");
        }
        assert_eq!(
            asked(Some(1_000_000), None, false).age_s(3_500_000),
            Some(2.5)
        );
        assert_eq!(asked(Some(2), None, false).age_s(1), Some(0.0));
        assert_eq!(asked(None, None, false).age_s(1), None);
    }
}
