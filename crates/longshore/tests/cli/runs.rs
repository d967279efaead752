//! Goal: the history remembers runs of every kind, good and failed, with what they were about and why they failed; and
//! trouble with the history changes no run's end.
//! Method: the program runs over a configured database and over devices; `history --runs` is read as text and JSON.
//! Not covered: the table itself (`catalog/tests/runs.rs`), and PostgreSQL.

use serde_json::{Value, json};

use crate::repository::configured;
use crate::stage::{Ran, Stage, damage};

fn rows_of(ran: &Ran) -> Vec<Value> {
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    told["rows"].as_array().unwrap().clone()
}

/// The runs of the history, oldest first.
fn runs(stage: &Stage) -> Vec<Value> {
    let ran = stage.line("history --runs --limit 0 --json").exits(0);
    let mut rows = rows_of(&ran);
    rows.reverse();
    rows
}

/// The last run, as its task, outcome, exit code, target and label.
fn last(stage: &Stage) -> Value {
    let row = runs(stage).pop().unwrap();
    json!([
        row["task"],
        row["outcome"],
        row["exit_code"],
        row["target"],
        row["label"]
    ])
}

fn label(stage: &Stage) -> String {
    stage.names("disk1/sales").pop().unwrap()
}

/// Verifications and drills of `sales`, good and bad, and backups that fail.
#[test]
fn each_run_at_a_target_is_in_the_history_with_its_end() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    assert_eq!(runs(&stage), [Value::Null; 0]);
    stage.line("backup sales").exits(0);
    let label = label(&stage);
    let of_label = |task: &str, outcome: &str, code: u8| {
        assert_eq!(last(&stage), json!([task, outcome, code, "nightly", label]));
    };
    of_label("backup", "ok", 0);
    stage.line("verify --database sales").exits(0);
    of_label("verify", "ok", 0);
    stage.line("drill sales --work work").exits(0);
    of_label("drill", "ok", 0);
    stage.line("restore --database sales --to out").exits(0);
    of_label("restore", "ok", 0);
    stage.line("restore --database sales --to out").exits(6);
    of_label("restore", "failed", 6);
    let stripe = stage.path(format!("disk1/sales/{label}/family-1.bak"));
    let sound = std::fs::read(&stripe).unwrap();
    damage(&stripe);
    stage.line("verify --database sales").exits(1);
    of_label("verify", "damaged", 1);
    stage.line("drill sales --work work").exits(4);
    of_label("drill", "failed", 4);
    stage.line("verify --all --database sales").exits(1);
    of_label("verify", "damaged", 1);
    std::fs::write(&stripe, sound).unwrap();
    stage.line("verify --all --database sales").exits(0);
    let of_all = |task: &str| json!([task, "ok", 0, "nightly", null]);
    assert_eq!(last(&stage), of_all("verify"));
    stage.line("expire sales").exits(0);
    assert_eq!(last(&stage), of_all("expire"));
    std::fs::remove_file(stage.path("app.db")).unwrap();
    stage.line("backup sales").exits(3);
    assert_eq!(
        last(&stage),
        json!(["backup", "failed", 3, "nightly", null])
    );
    let count = runs(&stage).len();
    for (line, code) in [
        ("backup sales --append", 2),
        ("restore --database sales --to dry --dry-run", 0),
        ("expire sales --dry-run", 0),
        ("--catalog none verify --database sales", 0),
    ] {
        stage.line(line).exits(code);
    }
    let all = runs(&stage);
    assert_eq!(all.len(), count, "these are no runs");
    assert!(all.iter().all(|row| row["database"] == "sales"), "{all:?}");
    let failed = all.last().unwrap();
    assert!(failed["number"].as_u64().is_some(), "{failed}");
    assert!(
        failed["message"].as_str().unwrap().contains("app.db"),
        "{failed}"
    );
    let sizes = all
        .iter()
        .filter(|row| row["task"] == "verify" && row["outcome"] == "ok");
    assert!(sizes.clone().count() == 2 && sizes.clone().all(|row| row["bytes"].as_u64() > Some(0)));
    // The backups and restores themselves are where they always were: only those that did their work.
    let backups = rows_of(&stage.line("history --json").exits(0));
    assert_eq!(backups.len(), 1);
    assert_eq!(all[0]["set"], backups[0]["set"]);
}

#[test]
fn devices_that_were_named_are_in_the_history_of_runs_and_what_cannot_be_read_is_too() {
    let stage = Stage::new();
    stage.write("file", b"content");
    stage.line("backup file --to a.bak --name N").exits(0);
    stage.line("verify a.bak").exits(0);
    stage.line("verify nothing.bak").exits(4);
    stage.write("junk.bak", b"no stripe");
    stage.line("verify junk.bak").exits(1);
    stage.line("backup no-such-file --to b.bak").exits(3);
    let all = runs(&stage);
    let told: Vec<_> = all
        .iter()
        .map(|row| json!([row["task"], row["outcome"], row["database"], row["target"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["backup", "ok", "file", null]),
            json!(["verify", "ok", "file", null]),
            json!(["verify", "failed", null, null]),
            json!(["verify", "damaged", null, null]),
            json!(["backup", "failed", null, null]),
        ]
    );
    let device = |name: &str| json!([stage.path(name).canonicalize().unwrap_or(stage.path(name))]);
    assert_eq!(all[1]["devices"], device("a.bak"));
    assert_eq!(all[3]["devices"], device("junk.bak"));
    assert_eq!(
        (&all[0]["set"], &all[1]["bytes"]),
        (&all[1]["set"], &json!(7))
    );
}

#[test]
fn copies_and_repairs_are_in_the_history_of_runs() {
    let stage = configured();
    std::fs::create_dir(stage.path("far")).unwrap();
    let far = stage.path("far").display().to_string();
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let with_far = format!("{text}[target.far]\ndirectories = [\"{far}\"]\n");
    std::fs::write(&config, with_far).unwrap();
    stage.line("backup sales --parity 1").exits(0);
    let label = label(&stage);
    stage.line("copy sales --to far --dry-run").exits(0);
    stage.line("copy sales --to far").exits(0);
    assert_eq!(last(&stage), json!(["copy", "ok", 0, "far", null]));
    assert!(runs(&stage)[1]["bytes"].as_u64() > Some(1 << 10));
    std::fs::remove_file(stage.path(format!("disk1/sales/{label}/family-1.bak"))).unwrap();
    stage.line("repair --database sales --dry-run").exits(5);
    stage.line("repair --database sales").exits(0);
    assert_eq!(last(&stage), json!(["repair", "ok", 0, "nightly", label]));
    // The other target is a file now.
    std::fs::remove_dir_all(&far).unwrap();
    std::fs::write(&far, b"").unwrap();
    let ran = stage.line("copy sales --to far");
    assert!(ran.code == 4 || ran.code == 6, "{ran:?}");
    let failed = runs(&stage).pop().unwrap();
    assert_eq!(
        (&failed["task"], &failed["outcome"], &failed["target"]),
        (&json!("copy"), &json!("failed"), &json!("far"))
    );
}

#[test]
fn runs_are_shown_newest_first_on_80_columns_with_their_limit_and_database() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("verify --database sales").exits(0);
    stage.line("verify --database docs").exits(4);
    let label = label(&stage);
    damage(&stage.path(format!("disk1/sales/{label}/family-1.bak")));
    stage.line("verify --database sales").exits(1);
    let long = "a-name-that-is-far-too-long-for-its-column-of-a-screen";
    stage
        .line(&format!("backup tree --to nul: --database {long}"))
        .exits(0);
    let out = stage.line("history --runs").exits(0).out;
    for line in out.lines() {
        let is_name = line.trim_start().starts_with('/');
        assert!(line.chars().count() <= 80 || is_name, "{line}\n{out}");
    }
    let lines: Vec<_> = out.lines().collect();
    assert!(
        lines[0].starts_with("finished (local)     task     result"),
        "{out}"
    );
    assert!(
        lines[1].contains("  backup   ok ") && lines[2].trim() == long,
        "{out}"
    );
    let second = lines
        .iter()
        .position(|line| line.contains("DAMAGED"))
        .unwrap();
    assert!(lines[second].contains("  verify   DAMAGED") && lines[second].ends_with("  sales"));
    assert_eq!(
        lines[second + 1].trim(),
        format!("{label} at target nightly")
    );
    assert!(lines[second + 2].starts_with(&" ".repeat(21)), "{out}");
    assert!(
        out.contains("  verify   FAILED ") && out.ends_with("target nightly\n"),
        "{out}"
    );

    let newest = rows_of(&stage.line("history --runs --limit 1 --json").exits(0));
    assert_eq!((newest.len(), &newest[0]["database"]), (1, &json!(long)));
    let of_docs = rows_of(&stage.line("history --runs --database docs --json").exits(0));
    assert_eq!(of_docs.len(), 1);
    stage.line("history --runs --restores").exits(2);
}

/// A time as RFC 3339 has it, with its offset, is the moment that the microseconds say.
#[test]
fn times_in_the_history_have_their_zone() {
    let stage = Stage::new();
    stage.write("file", b"content");
    for (zone, offset) in [("Asia/Kathmandu", "+05:45"), ("America/Caracas", "-04:00")] {
        let run = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            Ran::of(&stage.command(&words).env("TZ", zone).output().unwrap()).exits(0)
        };
        run("backup file --to a.bak --init --skip --expires 2099-12-31");
        run("restore a.bak --to out --replace");
        for (line, members) in [
            ("history --json", &["start", "finish", "expires"][..]),
            ("history --restores --json", &["date"]),
            ("history --runs --json", &["start", "finish"]),
        ] {
            let row = &rows_of(&run(line))[0];
            for member in members {
                let text = row[member].as_str().unwrap();
                assert!(text.ends_with(offset), "{line}: {member}: {text}");
                let at: jiff::Timestamp = text.parse().unwrap();
                let us = match *member {
                    "date" => &row["finish_us"],
                    _ => &row[format!("{member}_us")],
                };
                let lost_us = us.as_i64().unwrap() - at.as_microsecond();
                assert!((0..1000).contains(&lost_us), "{line}: {member}: {row}");
            }
        }
    }
}

#[test]
fn types_in_the_history_are_words_and_letters_in_its_tables() {
    let stage = Stage::new();
    stage.write("tree/file", b"content");
    stage.line("backup tree --to a.bak --page-sums").exits(0);
    stage
        .line("backup tree --to b.bak --differential --base a.bak")
        .exits(0);
    stage.line("restore a.bak --to out").exits(0);
    stage.line("restore a.bak --to part --only file").exits(0);
    let types = |line: &str| -> Vec<_> {
        let rows = rows_of(&stage.line(line).exits(0));
        rows.iter().map(|row| row["type"].clone()).collect()
    };
    assert_eq!(types("history --json"), ["diff", "full"]);
    assert_eq!(types("history --restores --json"), ["files", "full"]);
    let out = stage.line("history").exits(0).out;
    assert!(
        out.contains("  diff  ") && out.contains("  full  "),
        "{out}"
    );
    let db = rusqlite::Connection::open(stage.path("history.db")).unwrap();
    let letters =
        "SELECT group_concat(type, '') FROM (SELECT type FROM backupset ORDER BY backup_set_id)";
    let letters: String = db.query_row(letters, [], |row| row.get(0)).unwrap();
    assert_eq!(letters, "DI");
}

#[test]
fn a_history_that_cannot_be_written_changes_no_exit_code() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup sales").exits(0);
    stage.write("history.db", b"something else, and enough of it to be none");
    for line in [
        "verify --database sales",
        "verify --all --database sales",
        "expire sales",
    ] {
        let ran = stage.line(&format!("{line} --json")).exits(0);
        let told: Value = serde_json::from_str(&ran.out).unwrap();
        let note = told["notes"][0].as_str().unwrap();
        assert!(
            note.starts_with("this run is not in the history (3009)"),
            "{told}"
        );
        assert_eq!(told["warnings"], json!([]), "{line}");
    }
    damage(&stage.path(format!("disk1/sales/{}/family-1.bak", label(&stage))));
    stage.line("verify --database sales").exits(1);
    std::fs::remove_file(stage.path("app.db")).unwrap();
    let ran = stage.line("backup sales").exits(3);
    assert!(
        !ran.err.contains("3009"),
        "a failure says why it failed: {}",
        ran.err
    );
}
