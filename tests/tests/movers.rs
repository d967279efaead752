//! Goal: docs/moving.md, docs/recipes.md and the Ansible role name only options, keys, variables, metrics and units that
//! exist: readers type them; and docs/results/move.md only tests that exist.
//! Method: the pages, the role and the table of options are read as text; ansible-lint judges the role.
//! Not covered: whether a command takes an option that another command has, and what the role does on a host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_tests::root;

const PAGES: [&str; 3] = [
    "docs/moving.md",
    "docs/recipes.md",
    "contrib/ansible/README.md",
];

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn all(dir: &str) -> String {
    let entries = std::fs::read_dir(root().join(dir)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.is_file())
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// The long options in the code of a table of options: those that are named, and those that are called like their field.
fn options(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for attribute in code.split("#[arg(").skip(1) {
        let (inside, after) = attribute.split_once(")]\n").unwrap_or((attribute, ""));
        let field = after.split("pub ").nth(1).and_then(|f| f.split(':').next());
        let named = inside
            .split("long = \"")
            .nth(1)
            .and_then(|n| n.split('"').next());
        let is_long = inside
            .split([',', '\n'])
            .any(|part| part.trim() == "long" || part.trim().starts_with("long ="));
        if let (true, Some(name)) = (is_long, named.or(field)) {
            found.insert(format!("--{}", name.replace('_', "-")));
        }
    }
    found
}

/// The words of a text that begin with `prefix` and go on with letters of `more`.
fn words<'a>(text: &'a str, prefix: &str, more: impl Fn(char) -> bool + Copy) -> BTreeSet<&'a str> {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let begins = |at: usize| !text[..at].ends_with(inside);
    text.match_indices(prefix)
        .filter(|(at, _)| begins(*at))
        .map(|(at, _)| {
            let rest = &text[at..];
            let len = rest[prefix.len()..].find(|c| !more(c));
            &rest[..len.map_or(rest.len(), |len| prefix.len() + len)]
        })
        .collect()
}

/// The parts of a page that are commands of Longshore: from its name to the end of the line, the code or the command.
fn commands(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let starts = page.match_indices("longshore ");
    let commands = starts.map(|(at, _)| {
        let end = page[at..].find(['\n', '`', '|', '&', ';']);
        let command = &page[at..end.map_or(page.len(), |end| at + end)];
        // Values in quotes may be another program's commands.
        command.split('\'').step_by(2).collect::<String>()
    });
    commands.collect()
}

#[test]
fn every_option_in_a_command_of_these_pages_exists() {
    let code = all("crates/longshore/src/options");
    let mut known = options(&code);
    known.extend(options(&text("crates/core/terminal/src/global.rs")));
    for option in ["--database", "--delta", "--or-full", "--move", "--config"] {
        assert!(known.contains(option), "{option} is not found: {known:?}");
    }
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in PAGES {
        for command in commands(&text(page)) {
            let used = words(&command, "--", |c| c.is_ascii_lowercase() || c == '-');
            for option in used.into_iter().filter(|option| *option != "--") {
                seen += 1;
                if !known.contains(option) {
                    wrong.push(format!("{page}: {option} in {command}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 60, "only {seen} options were found");
}

#[test]
fn every_key_of_a_configuration_in_these_pages_is_described() {
    let keys = text("docs/configuration.md");
    let template = text("contrib/ansible/roles/longshore/templates/longshore.toml.j2");
    let page = text("docs/moving.md");
    let blocks = page.split("\n```toml\n").skip(1);
    let mut lines: Vec<&str> = blocks
        .flat_map(|block| block.split("\n```").next().unwrap().lines())
        .collect();
    lines.extend(template.lines());
    let key = |line: &&str| {
        let (key, _) = line.split_once(" = ")?;
        let is_key = |c: char| c.is_ascii_lowercase() || c == '_';
        key.chars().all(is_key).then(|| key.to_owned())
    };
    let used: Vec<String> = lines.iter().filter_map(key).collect();
    assert!(used.len() > 30, "{used:?}");
    for key in used {
        assert!(keys.contains(&format!("\n| `{key}` |")), "{key}");
    }
}

#[test]
fn every_metric_of_the_recipes_is_one_that_is_printed_and_every_printed_one_is_described() {
    let known = printed();
    for (page, least) in [
        ("docs/recipes.md", 14),
        ("contrib/monitoring/longshore.rules.yml", 6),
        ("contrib/monitoring/longshore-dashboard.json", 10),
    ] {
        let page = text(page);
        let used = words(&page, "longshore_", |c| c.is_ascii_lowercase() || c == '_');
        let metrics: Vec<&str> = used
            .into_iter()
            // A method of Patroni.
            .filter(|name| *name != "longshore_delta")
            .collect();
        assert!(metrics.len() >= least, "{metrics:?}");
        for metric in metrics {
            let name = metric.strip_prefix("longshore_").unwrap();
            assert!(known.contains(name), "{metric}");
        }
    }
    // The page leaves out the part that several metrics of a row have in common.
    let page = text("docs/recipes.md");
    for name in &known {
        let ends = name
            .match_indices('_')
            .map(|(at, _)| format!("`…{}`", &name[at..]));
        let is_described = page.contains(&format!("`longshore_{name}`"))
            || ends.into_iter().any(|end| page.contains(&end));
        assert!(is_described, "{name} is not in docs/recipes.md");
    }
}

/// Metrics without an alert, and why.
const WITHOUT_ALERT: &[(&str, &str)] = &[
    ("last_good_backup_age_seconds", "the time has one"),
    (
        "last_good_backup_duration_seconds",
        "how long is too long differs",
    ),
    (
        "last_good_backup_stored_bytes",
        "how large is too large differs",
    ),
    (
        "stored_bytes",
        "the file system or the store has its own limit",
    ),
    ("wal_stored_bytes", "as stored_bytes"),
    ("drill_seconds", "how long a restore may take differs"),
    (
        "recipients",
        "not every site encrypts; require = true makes check find it",
    ),
    (
        "branch_last_good_backup_timestamp_seconds",
        "several branches have one",
    ),
    (
        "backups_unverified",
        "each new backup is; the time of the last verification has one",
    ),
    (
        "last_failed_backup_timestamp_seconds",
        "failed_runs has one",
    ),
    (
        "last_failed_verify_timestamp_seconds",
        "failed_runs has one",
    ),
    ("last_failed_drill_timestamp_seconds", "failed_runs has one"),
    ("answer_age_seconds", "up has one"),
    ("check_answer_age_seconds", "check_up has one"),
    ("check_findings", "check_exit_code has one"),
    ("running_done_bytes", "work in progress is no fault"),
    ("running_total_bytes", "as running_done_bytes"),
    ("build_info", "always 1"),
];

/// The metrics that `longshore metrics` and the status page print, without their prefix.
fn printed() -> BTreeSet<String> {
    let own = text("crates/longshore/src/commands/metrics.rs");
    let page = text("crates/longshore/src/commands/serve/http/status.rs");
    let (own, page) = (without_tests(&own), without_tests(&page));
    let first = |part: &str| part.split('"').nth(1).map(str::to_owned);
    let table = own.split("const METRICS").nth(1).unwrap();
    let table = table.split("\n];").next().unwrap();
    // Each row begins with the name, on a line of its own or with the rest.
    let rows = table.split("\n    (").skip(1).filter_map(first);
    let calls = [own, page].concat();
    let calls = calls.split("gauge(\n").skip(1).filter_map(first);
    let named = own.split("const ").filter_map(|item| {
        let (name, value) = item.split_once(": &str = ")?;
        ["STATE", "BRANCH"].contains(&name).then(|| first(value))?
    });
    let all: BTreeSet<String> = rows.chain(calls).chain(named).collect();
    let is_name = |name: &String| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    assert!(all.iter().all(is_name) && all.len() > 35, "{all:?}");
    all
}

fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]").next().unwrap()
}

#[test]
fn every_metric_has_an_alert_or_a_reason_to_have_none() {
    let rules = text("contrib/monitoring/longshore.rules.yml");
    let asked: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .collect();
    let asked = asked.join("\n");
    let used = words(&asked, "longshore_", |c| c.is_ascii_lowercase() || c == '_');
    let printed = printed();
    let without: Vec<&str> = WITHOUT_ALERT.iter().map(|(name, _)| *name).collect();
    for name in &printed {
        let has_alert = used.contains(&*format!("longshore_{name}"));
        let is_excused = without.contains(&name.as_str());
        assert!(has_alert || is_excused, "{name} has no alert and no reason");
        assert!(!(has_alert && is_excused), "{name} has an alert");
    }
    for (name, reason) in WITHOUT_ALERT {
        assert!(printed.contains(*name), "{name} is not printed");
        assert!(!reason.is_empty(), "{name}");
    }
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let names: BTreeSet<&str> = alerts.iter().copied().collect();
    assert!(alerts.len() > 20 && names.len() == alerts.len());
}

/// Each panel of the dashboard asks for something, and every metric of the table has a panel.
#[test]
fn the_dashboard_shows_every_metric() {
    let dashboard = text("contrib/monitoring/longshore-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = String::new();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            asked += target["expr"].as_str().unwrap();
        }
    }
    let own = text("crates/longshore/src/commands/metrics.rs");
    let table = own.split("const METRICS").nth(1).unwrap();
    let table = table.split("\n];").next().unwrap();
    let names = words(table, "\"", |c| c.is_ascii_lowercase() || c == '_');
    let names: Vec<&str> = names.iter().map(|name| name.trim_matches('"')).collect();
    // Each time has its age, which the dashboard computes by itself.
    let shown = names
        .iter()
        .filter(|name| !name.is_empty() && !name.ends_with("_age_seconds"));
    for name in shown {
        assert!(
            asked.contains(&format!("longshore_{name}{{")),
            "{name} has no panel"
        );
    }
}

#[test]
fn the_role_has_a_default_for_each_variable_and_enables_timers_that_exist() {
    let role = "contrib/ansible/roles/longshore";
    let defaults = text(&format!("{role}/defaults/main.yml"));
    let code = ["tasks", "templates", "handlers"].map(|dir| all(&format!("{role}/{dir}")));
    let code = code.concat();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let defined: BTreeSet<&str> = defaults
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("longshore_"))
        .collect();
    // Results and names of the tasks themselves.
    let own = ["archive", "mark", "seen", "package", "target", "timers"];
    let own: BTreeSet<String> = own.iter().map(|n| format!("longshore_{n}")).collect();
    let used = words(&code, "longshore_", is_name);
    for name in &used {
        let known =
            defined.contains(name) || own.contains(*name) || *name == "longshore_configuration";
        assert!(known, "{name} has no default");
    }
    for name in &defined {
        assert!(used.contains(name), "{name} is not used");
    }
    assert!(defined.len() > 15, "{defined:?}");
    let timers = defaults.split("longshore_timers: [").nth(1).unwrap();
    for timer in timers.split(']').next().unwrap().split(", ") {
        let unit = format!("contrib/systemd/longshore-{timer}@.timer");
        assert!(root().join(&unit).exists(), "{unit}");
    }
}

/// ansible-lint, where `scripts/setup.sh` puts it or in the path; `None` if it is not installed.
fn ansible_lint() -> Option<PathBuf> {
    let own = root().join(".work/venv/bin/ansible-lint");
    for place in [own, PathBuf::from("ansible-lint")] {
        let asked = Command::new(&place).arg("--version").output();
        if asked.is_ok_and(|output| output.status.success()) {
            return Some(place);
        }
    }
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(!required, "ansible-lint is missing: run scripts/setup.sh");
    eprintln!("skipped: ansible-lint is missing: run scripts/setup.sh");
    None
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, new) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_all(&path, &new),
            false => drop(std::fs::copy(&path, &new).unwrap()),
        }
    }
}

#[test]
fn the_role_passes_the_production_profile_of_ansible_lint() {
    let Some(lint) = ansible_lint() else { return };
    // Outside the work tree, whose git would tell it which files to leave out; it writes next to what it reads, too.
    let dir = tempfile::tempdir().unwrap();
    let role = dir.path().join("ansible");
    copy_all(&root().join("contrib/ansible"), &role);
    let judged = Command::new(lint)
        .args(["--offline", "--nocolor", "--profile", "production", "."])
        .current_dir(&role)
        .env("HOME", dir.path())
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    let said = [judged.stdout, judged.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(judged.status.success(), "{said}");
    assert!(
        said.contains("Passed: 0 failure(s), 0 warning(s)"),
        "{said}"
    );
    let count = said.split("warning(s) in ").nth(1);
    let count = count.and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    assert!(count.is_some_and(|count| count > 8), "{said}");
}

#[test]
fn options_commands_and_words_are_found() {
    let code = "#[arg(long)]\n    pub or_full: bool,\n#[arg(\n    long = \"async\",\n    x)]\n    pub ahead: bool,\n\
                #[arg(value_name = \"A\")]\n    pub not: u8,";
    let found = options(code);
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        ["--async", "--or-full"]
    );
    let page =
        "run `longshore backup main \\\n  --name 'a --b'` or `x && longshore info --json | jq`";
    assert_eq!(
        commands(page),
        ["longshore backup main    --name ", "longshore info --json "]
    );
    let found = words(
        "a longshore_x site_longshore_y longshore_z2",
        "longshore_",
        |c| c.is_ascii_lowercase(),
    );
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["longshore_x", "longshore_z"]
    );
}

/// Every file below `dir` that is Rust, as its path and its text.
fn rust_files(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let code = std::fs::read_to_string(&path).unwrap();
            found.push((path, code));
        }
    }
}

/// Goal: what had kept a DBA away stays mended by tests that exist.
#[test]
fn every_test_that_the_page_of_the_move_names_exists() {
    let page = text("docs/results/move.md");
    let (_, table) = page.split_once("| then | now | test |").unwrap();
    let mut files = Vec::new();
    for dir in ["crates/longshore/tests", "tests/kit/tests"] {
        rust_files(&root().join(dir), &mut files);
    }
    let makefile = text("Makefile");
    let exists = |name: &str| match name.strip_prefix("make ") {
        Some(target) => makefile.contains(&format!("\n{target}: ")),
        None => files.iter().any(|(path, code)| {
            // A program or a module of its own, or one test.
            let has_stem = path.file_stem().is_some_and(|stem| stem == name);
            let is_below = path.parent().is_some_and(|dir| dir.ends_with(name));
            has_stem || is_below || code.contains(&format!("fn {name}("))
        }),
    };
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            assert!(exists(name), "{name}: {row}");
        }
        rows += 1;
    }
    assert_eq!(rows, 15);
}
