//! Goal: each likely failure names what failed and where, has the number and the exit code that docs/errors.md gives,
//! and ends in the next step, for people and in JSON.
//! Method: every row of the page's table is caused twice, as text and with `--json`. A row without a cause here, or a
//! cause without a row, fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::stage::{BINARY, Ran, Stage, damage};

/// How a failure is caused, and what its answer contains.
struct Failing {
    what: &'static str,
    /// Words of the command line, separated by `|`.
    line: &'static str,
    /// The words that say which thing failed and where.
    names: &'static [&'static str],
    /// The words of the next step.
    advises: &'static [&'static str],
}

const fn failing(
    what: &'static str,
    line: &'static str,
    names: &'static [&'static str],
    advises: &'static [&'static str],
) -> Failing {
    Failing {
        what,
        line,
        names,
        advises,
    }
}

const FAILURES: [Failing; 23] = [
    failing(
        "a restore meets a damaged stripe",
        "restore|a.bak|damaged.bak|--to|out",
        &["damaged.bak: ", " at byte "],
        &["use another copy of this stripe", "`longshore list`"],
    ),
    failing(
        "a verify meets a damaged stripe",
        "verify|a.bak|damaged.bak",
        &["damaged.bak: ", " at byte "],
        &["use another copy of this stripe", "`longshore list`"],
    ),
    failing(
        "a stripe is not there",
        "restore|a.bak|gone.bak|--to|out",
        &["cannot open backup device gone.bak", "does not exist"],
        &["check the path"],
    ),
    failing(
        "a stripe was not named",
        "restore|a.bak|--to|out",
        &["media set of a.bak", "missing: family 2"],
        &["`longshore list --label-only STRIPE`"],
    ),
    failing(
        "the disk is full during a backup",
        "backup|large|--to|full/x.bak",
        &[
            "cannot write backup device full/x.bak at byte ",
            "No space left",
        ],
        &["free space there", "run the command again"],
    ),
    failing(
        "the disk is too small for a restore",
        "restore|large.bak|--to|full/out",
        &["full/out has ", " bytes free, the restore needs "],
        &["free space there", "restore elsewhere"],
    ),
    failing(
        "a device is a file that is no backup",
        "backup|app.db|--to|plain",
        &["plain already holds data"],
        &["name another file"],
    ),
    failing(
        "a restore would replace a file",
        "restore|large.bak|--to|.",
        &["large already exists"],
        &["--replace"],
    ),
    failing(
        "the source does not exist",
        "backup|nowhere|--to|x.bak",
        &["nowhere", "No such file"],
        &["correct the path", "`longshore config check`"],
    ),
    failing(
        "a key of the configuration is unknown",
        "--config|key.toml|info",
        &["key.toml, line 3, column 1: `retention.month.keep_ful`"],
        &[
            "did you mean `keep_full`?",
            "`longshore config check --config key.toml`",
        ],
    ),
    failing(
        "a value of the configuration is wrong",
        "--config|value.toml|info",
        &["value.toml, line 2, column 11: `defaults.max_cpu`"],
        &[
            "max_cpu = 25",
            "`longshore config check --config value.toml`",
        ],
    ),
    failing(
        "the configuration is not TOML",
        "--config|text.toml|info",
        &["text.toml, line 1, column 10"],
        &["`longshore config check --config text.toml`"],
    ),
    failing(
        "tables of the configuration do not fit together",
        "--config|tables.toml|info",
        &[
            "tables.toml, line 2, column 1: `database.a.target`",
            "there is no [target.t]",
        ],
        &["`longshore config check --config tables.toml`"],
    ),
    failing(
        "the configuration cannot be read",
        "--config|gone.toml|info",
        &["cannot read the configuration gone.toml", "No such file"],
        &["--config", "`longshore config check`"],
    ),
    failing(
        "a target is not configured",
        "--config|good.toml|info|--target|nigthly",
        &["[target.nigthly]", "good.toml"],
        &["(nightly)", "`longshore config check`"],
    ),
    failing(
        "an option is unknown",
        "backup|app.db|--to|x.bak|--targt|t",
        &["'--targt'"],
        &["'--target'", "`longshore backup --help`"],
    ),
    failing(
        "an option lacks its value",
        "backup|app.db|--to",
        &["'--to <DEVICE>'"],
        &["`longshore backup --help`"],
    ),
    failing(
        "the value of an option is invalid",
        "backup|app.db|--to|x.bak|--algorithm|RAR",
        &["'RAR'", "'--algorithm ", "QAT_DEFLATE"],
        &["`longshore backup --help`"],
    ),
    failing(
        "two options exclude each other",
        "backup|app.db|--to|x.bak|--append|--init",
        &["'--append'", "'--init'"],
        &["`longshore backup --help`"],
    ),
    failing(
        "a WAL archive is not there",
        "wal|list|--archive|nowhere",
        &["nowhere/ is not a WAL archive"],
        &["`longshore wal create`"],
    ),
    failing(
        "a statement has a syntax error",
        "sql|-b|-i|bad.sql",
        &["near 'DATABSE'", "bad.sql"],
        &["correct the text at the word", "docs/tsql.md"],
    ),
    failing(
        "a statement names an unknown database",
        "sql|-b|-Q|BACKUP DATABASE nowhere TO DISK = 'x.bak'",
        &["'nowhere'"],
        &["SELECT name FROM sys.databases"],
    ),
    failing(
        "a file of statements cannot be read",
        "sql|-b|-i|gone.sql",
        &["cannot read gone.sql", "No such file"],
        &["correct the path after -i"],
    ),
];

/// The number and the exit code of each row of the page.
fn documented() -> BTreeMap<String, (u64, i32)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    let head = "| what happens | number | exit | the message names | next step |\n";
    let table = page.split(head).nth(1).unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("| "));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (number, exit) = (cells[1].parse().unwrap(), cells[2].parse().unwrap());
        (cells[0].to_owned(), (number, exit))
    })
    .collect()
}

fn staged() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 3);
    stage.line("backup app.db --to a.bak --to b.bak").exits(0);
    std::fs::copy(stage.path("b.bak"), stage.path("damaged.bak")).unwrap();
    damage(&stage.path("damaged.bak"));
    stage.write("large", &longshore_kit::random::noise(7, 3 << 20));
    stage.line("backup large --to large.bak").exits(0);
    std::fs::create_dir(stage.path("full")).unwrap();
    for (name, text) in [
        ("plain", "somebody's notes"),
        ("key.toml", "[retention.month]\n\nkeep_ful = 3\n"),
        ("value.toml", "[defaults]\nmax_cpu = \"many\"\n"),
        ("text.toml", "[defaults\n"),
        (
            "tables.toml",
            "[database.a]\ntarget = \"t\"\nurl = \"files:/x\"\n",
        ),
        (
            "good.toml",
            "[target.nightly]\ndirectories = [\"/mnt/a\"]\n",
        ),
        (
            "bad.sql",
            "PRINT 'begins'\nBACKUP DATABSE x TO DISK = 'y'\n",
        ),
    ] {
        stage.write(name, text.as_bytes());
    }
    stage
}

/// Runs the words; with a small file system at `full` if they name it. `None`: no file system can be mounted here.
fn run(stage: &Stage, words: &[&str]) -> Option<Ran> {
    if !words.iter().any(|word| word.starts_with("full/")) {
        return Some(stage.run(words));
    }
    let mount = "mount -t tmpfs -o size=1m tmpfs full";
    let as_root = |script: &str, words: &[&str]| {
        let mut command: Command = stage.command(words);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("unshare");
        command
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                script,
                BINARY,
            ])
            .args(words)
            .current_dir(stage.path("."))
            .env_remove("LONGSHORE_LOG")
            .envs(environment);
        command.output()
    };
    let can_mount = as_root(mount, &[]).is_ok_and(|output| output.status.success());
    if !can_mount {
        eprintln!("skipped: no file system can be mounted here");
        return None;
    }
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    Some(Ran::of(&as_root(&script, words).unwrap()))
}

/// The failures in an answer: one, or the findings of a verify, or the errors of statements.
fn failures(answer: &Value) -> Vec<Value> {
    let said = answer["said"].as_array().into_iter().flatten();
    let errors = said.filter(|piece| piece["severity"].as_u64() > Some(10));
    let findings = answer["findings"].as_array().into_iter().flatten();
    let error = Some(&answer["error"]).filter(|error| !error.is_null());
    error
        .into_iter()
        .chain(findings)
        .chain(errors)
        .cloned()
        .collect()
}

#[test]
fn each_likely_failure_names_the_place_the_number_and_the_next_step() {
    let stage = staged();
    let documented = documented();
    for Failing {
        what,
        line,
        names,
        advises,
    } in FAILURES
    {
        let (number, exit) = *documented
            .get(what)
            .unwrap_or_else(|| panic!("docs/errors.md has no row {what:?}"));
        let words: Vec<&str> = line.split('|').collect();
        let Some(ran) = run(&stage, &words) else {
            continue;
        };
        let text = ran.exits(exit);
        let both = format!("{}{}", text.out, text.err);
        let is_numbered = [
            format!("longshore: error {number}: "),
            format!("longshore: warning: {number}: "),
            format!("Msg {number}, "),
        ]
        .iter()
        .any(|head| both.contains(head));
        assert!(is_numbered, "{what}: no {number} in:\n{both}");
        let (_, hints) = both
            .split_once("hint: ")
            .unwrap_or_else(|| panic!("{what}: no next step in:\n{both}"));
        for name in names {
            assert!(both.contains(name), "{what}: no {name:?} in:\n{both}");
        }
        for advice in advises {
            assert!(hints.contains(advice), "{what}: no {advice:?} in:\n{hints}");
        }

        let words: Vec<&str> = words.into_iter().chain(["--json"]).collect();
        let ran = run(&stage, &words).unwrap().exits(exit);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        assert_ne!(answer["status"], "ok", "{what}: {answer}");
        assert_eq!(answer["exit_code"], exit, "{what}: {answer}");
        let failures = failures(&answer);
        let first = failures
            .first()
            .unwrap_or_else(|| panic!("{what}: {answer}"));
        assert_eq!(first["number"], number, "{what}: {answer}");
        let hint = first["hint"].as_str().unwrap_or_default();
        for advice in advises {
            assert!(hint.contains(advice), "{what}: no {advice:?} in {hint:?}");
        }
        let shown = first.to_string();
        for name in names {
            assert!(shown.contains(name), "{what}: no {name:?} in {shown}");
        }
    }
    let caused: BTreeSet<&str> = FAILURES.iter().map(|failing| failing.what).collect();
    let rows: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    assert_eq!(rows, caused, "docs/errors.md and the causes here differ");
}

#[test]
fn a_command_line_that_is_not_understood_is_answered_with_the_help_of_its_command() {
    let stage = Stage::new();
    for (line, command) in [
        ("", "longshore"),
        ("unload", "longshore"),
        ("backup", "longshore backup"),
        ("wal", "longshore wal"),
        ("wal list --archiv x", "longshore wal list"),
        ("list a.bak --position 0", "longshore list"),
    ] {
        let err = stage.line(line).exits(2).err;
        let first = err.lines().next().unwrap_or_default();
        assert!(first.starts_with("longshore: error "), "{line}: {err}");
        let last = err.lines().last().unwrap_or_default();
        let step = format!("`{command} --help` explains the options");
        assert!(
            last.starts_with("hint: ") && last.ends_with(&step),
            "{line}: {err}"
        );
    }
}
