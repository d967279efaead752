//! Goal: what contrib/monitoring has works with a real Prometheus: its configuration, its rules, and the question of
//! every panel of the dashboard, over the metrics of a real server.
//! Method: promtool judges the files and the text; Prometheus scrapes the server by contrib's own configuration, of which
//! only addresses, paths and intervals are changed, once in plain text and once with a certificate and a login.
//! Not covered: Grafana, which draws the answers. Without Prometheus these tests are skipped, and fail if
//! `LONGSHORE_REQUIRE_TOOLS` is set.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longshore_kit::port::free_port;
use serde_json::Value;

use crate::common::{succeed, text};
use crate::http::{exchange, get, page, settled};
use crate::page::{backup, targeted};
use crate::stage::Stage;

/// How often is looked for something that comes soon: for two minutes.
const LOOKS: usize = 1200;
const STEP: Duration = Duration::from_millis(100);

/// Metrics that a SQLite database in a directory, of which nothing failed, does not have.
const ABSENT: [&str; 10] = [
    "longshore_wal_gaps",
    "longshore_wal_segments",
    "longshore_wal_segments_damaged",
    "longshore_wal_stored_bytes",
    "longshore_wal_last_refused_push_timestamp_seconds",
    "longshore_recoverable_from_timestamp_seconds",
    "longshore_last_failed_backup_timestamp_seconds",
    "longshore_last_failed_verify_timestamp_seconds",
    "longshore_last_failed_drill_timestamp_seconds",
    "longshore_uploads_unfinished",
];

fn contrib(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/monitoring/");
    std::fs::read_to_string(format!("{path}{name}")).unwrap()
}

/// A program of Prometheus, from the system or where `scripts/setup.sh` puts it; `None` if it is not installed.
fn tool(name: &str) -> Option<PathBuf> {
    let own = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../.work/tools/prometheus/usr/bin/"
    );
    let places = [PathBuf::from(name), PathBuf::from(format!("{own}{name}"))];
    for place in places {
        let asked = Command::new(&place).arg("--version").output();
        if asked.is_ok_and(|output| output.status.success()) {
            return Some(place);
        }
    }
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(!required, "{name} is missing: run scripts/setup.sh");
    eprintln!("skipped: {name} is missing: run scripts/setup.sh");
    None
}

/// Prometheus with its data in a directory of its own, until it is dropped.
struct Prometheus {
    child: Child,
    port: u16,
    _data: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Prometheus {
    fn start(program: &PathBuf, stage: &Stage) -> Prometheus {
        let log = stage.path("prometheus.log");
        // Somebody else may take the port meanwhile.
        for _ in 0..3 {
            let data = tempfile::tempdir().unwrap();
            let port = free_port();
            let child = Command::new(program)
                .arg("--config.file")
                .arg(stage.path("prometheus.yml"))
                .arg("--storage.tsdb.path")
                .arg(data.path().join("tsdb"))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .stderr(std::fs::File::create(&log).unwrap())
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let mut started = Prometheus {
                child,
                port,
                _data: data,
            };
            if started.is_ready() {
                return started;
            }
        }
        panic!("{}", std::fs::read_to_string(log).unwrap());
    }

    fn is_ready(&mut self) -> bool {
        for _ in 0..LOOKS {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                let request = b"GET /-/ready HTTP/1.0\r\n\r\n";
                if exchange(self.port, request).is_some_and(|answer| answer.status == 200) {
                    return true;
                }
            }
            std::thread::sleep(STEP);
        }
        false
    }

    /// The data of an answer of the interface, which must be a success.
    fn ask(&self, path: &str) -> Value {
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        let answer = exchange(self.port, request.as_bytes()).expect("an answer");
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        assert_eq!(said["status"], "success", "{path}: {answer:?}");
        said["data"].clone()
    }

    /// The rows that an expression gives now.
    fn rows(&self, expression: &str) -> Vec<Value> {
        let path = format!("query?query={}", encoded(expression));
        self.ask(&path)["result"].as_array().unwrap().clone()
    }

    /// The answer to a question as soon as it is what is waited for.
    fn settled(&self, path: &str, is_settled: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..LOOKS {
            let said = self.ask(path);
            if is_settled(&said) {
                return said;
            }
            std::thread::sleep(STEP);
        }
        panic!("{path}: {:#}", self.ask(path));
    }
}

/// A value in an address.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Runs promtool, which must have nothing to say against what it reads.
fn judged(promtool: &PathBuf, args: &[&str], input: &str) {
    let mut child = Command::new(promtool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _refused = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}\n{input}");
    assert!(!said.contains("WARNING"), "{args:?}: {said}");
}

/// contrib's configuration, with the addresses of these servers, and files in this stage.
fn configure(stage: &Stage, plain: u16, encrypted: u16) -> PathBuf {
    std::fs::create_dir(stage.path("rules.d")).unwrap();
    let rules = stage.path("rules.d/longshore.rules.yml");
    std::fs::write(rules, contrib("longshore.rules.yml")).unwrap();
    std::fs::write(stage.path("longshore-password"), "for-metrics-only\n").unwrap();
    std::fs::copy(stage.path("state/serve.crt"), stage.path("longshore.crt")).unwrap();
    let mut changed = contrib("prometheus.yml");
    let home = stage.path("").display().to_string();
    for (from, to) in [
        ("/etc/prometheus/", home),
        ("127.0.0.1:7433", format!("127.0.0.1:{plain}")),
        ("db1.example:7433", format!("localhost:{encrypted}")),
        ("scrape_interval: 1m", "scrape_interval: 1s".to_owned()),
    ] {
        assert!(changed.contains(from), "{from}");
        changed = changed.replace(from, &to);
    }
    changed += "\nglobal:\n  evaluation_interval: 1s\n";
    let path = stage.path("prometheus.yml");
    std::fs::write(&path, changed).unwrap();
    path
}

/// The expressions of all panels, for every database and target.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&contrib("longshore-dashboard.json")).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap().to_owned();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            all.push((title.clone(), expression.to_owned()));
        }
    }
    let annotation = &dashboard["annotations"]["list"][0]["expr"];
    all.push((
        "annotations".into(),
        annotation.as_str().unwrap().to_owned(),
    ));
    for (_, expression) in &mut all {
        *expression = expression
            .replace("$database", ".*")
            .replace("$target", ".*");
        assert!(!expression.contains('$'), "{expression}");
    }
    all
}

#[test]
fn a_real_prometheus_takes_the_configuration_the_rules_and_every_panels_question() {
    let (Some(prometheus), Some(promtool)) = (tool("prometheus"), tool("promtool")) else {
        return;
    };
    let stage = targeted();
    backup(&stage, "shop");
    succeed(&mut stage.command(&["verify", "--database", "shop"]));
    std::fs::create_dir(stage.path("scratch")).unwrap();
    succeed(&mut stage.command(&["drill", "shop", "--work", "scratch"]));
    stage.add_login("prometheus", "for-metrics-only");
    let plain = page(&stage, &["--refresh", "1"]);
    let encrypted = page(&stage, &["--refresh", "1", "--encrypt"]);
    settled(plain.port);
    let config = configure(&stage, plain.port, encrypted.port);
    let config = config.display().to_string();
    let rules = stage.path("rules.d/longshore.rules.yml");
    judged(&promtool, &["check", "config", &config], "");
    let rules = rules.display().to_string();
    judged(&promtool, &["check", "rules", "--lint-fatal", &rules], "");
    let shown = get(plain.port, "/metrics").body;
    judged(&promtool, &["check", "metrics"], &shown);
    let printed = stage.command(&["metrics"]).output().unwrap();
    judged(&promtool, &["check", "metrics"], &text(&printed.stdout));

    let prometheus = Prometheus::start(&prometheus, &stage);
    let is_up = |targets: &Value| {
        let all = targets["activeTargets"].as_array().unwrap();
        all.len() == 2 && all.iter().all(|target| target["health"] == "up")
    };
    prometheus.settled("targets", is_up);
    let each = |answer: &Value| -> Vec<Value> {
        let groups = answer["groups"].as_array().unwrap();
        let rules = groups.iter().flat_map(|g| g["rules"].as_array().unwrap());
        rules.cloned().collect()
    };
    let is_evaluated = |answer: &Value| each(answer).iter().all(|rule| rule["health"] != "unknown");
    let evaluated = each(&prometheus.settled("rules", is_evaluated));
    let written = contrib("longshore.rules.yml").matches("- alert:").count();
    assert!(evaluated.len() == written && written > 10, "{written}");
    for rule in &evaluated {
        assert_eq!(rule["health"], "ok", "{rule:#}");
        assert!(rule["lastError"].is_null(), "{rule:#}");
    }
    // The other database has no backup; this one's are good.
    let is_alarmed = |name: &str, database: &str| {
        let expression = format!("ALERTS{{alertname=\"{name}\",database=\"{database}\"}}");
        !prometheus.rows(&expression).is_empty()
    };
    let alarms = |_: &Value| is_alarmed("LongshoreNoBackup", "stock");
    prometheus.settled("alerts", alarms);
    assert!(!is_alarmed("LongshoreNoBackup", "shop"));
    assert!(!is_alarmed("LongshoreBackupOld", "shop"));

    for (title, expression) in panels() {
        let rows = prometheus.rows(&expression);
        let is_absent = ABSENT
            .iter()
            .any(|name| expression.contains(&format!("{name}{{")));
        let is_change = expression.starts_with("changes(");
        assert_eq!(
            rows.is_empty(),
            is_absent || is_change,
            "{title}: {expression}"
        );
        let of_shop = |row: &Value| row["metric"]["database"] == "shop";
        assert!(
            is_absent || is_change || rows.iter().any(of_shop),
            "{title}"
        );
    }
    // Only one of the two servers has a certificate, and made it itself.
    let ends = prometheus.rows("longshore_certificate_end_timestamp_seconds - time()");
    assert!(ends.len() == 1, "{ends:?}");
    assert_eq!(ends[0]["metric"]["job"], "longshore-remote");
    // The values of the variables, as Grafana asks for them.
    let names = prometheus.ask("label/database/values?match[]=longshore_backups");
    assert_eq!(names, serde_json::json!(["shop", "stock"]));
}
