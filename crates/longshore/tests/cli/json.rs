//! Goal: `--json` gives one object on standard output, whatever happens, and every object is as `docs/json.md` says.
//! Method: a command line for each action; the kit compares each answer with the page, and every action of the page
//! must be answered here or in a suite that this file names.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::stage::{Ran, Stage};

#[track_caller]
fn object(ran: &Ran) -> Value {
    assert_eq!(ran.out.trim_end().lines().count(), 1, "{}", ran.out);
    let value = longshore_kit::schema::checked(&ran.out);
    assert_eq!(value["exit_code"], ran.code, "{value}");
    value
}

/// Each action that this suite has an answer of, by a command line that ends well. The answers are compared with
/// `docs/json.md`: no member is missing, unknown or of another type.
const LINES: [(&str, &str); 34] = [
    ("key new identity --json", "key_new"),
    ("key recipient identity --json", "key_recipient"),
    (
        "backup app.db --to a.bak --to b.bak --verify --json",
        "backup",
    ),
    ("--json verify a.bak b.bak", "verify"),
    (
        "restore a.bak b.bak --to out --dry-run --json",
        "restore_dry_run",
    ),
    ("restore a.bak b.bak --to out --json", "restore"),
    ("list a.bak b.bak --json", "list"),
    ("list a.bak b.bak --files --json", "files"),
    ("list a.bak --label-only --json", "label"),
    ("history --json", "history"),
    ("history --restores --json", "restores"),
    ("history --runs --json", "runs"),
    ("catalog rebuild a.bak b.bak --json", "catalog_rebuild"),
    ("catalog settings --json", "settings"),
    ("config check --json", "config_check"),
    ("accelerator status --json", "accelerator_status"),
    ("accelerator enable --json", "accelerator_enable"),
    ("accelerator disable --json", "accelerator_disable"),
    ("backup app --json", "backup"),
    ("list --target t --json", "list"),
    ("info --json", "info"),
    ("metrics --json", "metrics"),
    ("check --json", "check"),
    ("verify --all --json", "verify_all"),
    ("drill app --json", "drill"),
    ("expire --json", "expire"),
    ("copy app --to u --json", "copy"),
    ("stop app --json", "stop"),
    ("start app --json", "start"),
    ("wal create --archive wal --json", "wal_create"),
    ("wal needs --archive wal --json", "wal_needs"),
    ("sql --json -Q SELECT(1)", "sql"),
    ("cache create cache --size 20M --json", "cache_create"),
    ("serve --remove-login eve --json", "remove-login"),
];

/// The actions that are answered in other suites, or by other tests of this one.
const ELSEWHERE: [&str; 27] = [
    // Their status depends on the machine.
    "add-login",
    "doctor",
    // tests/cli/parity.rs
    "repair",
    // tests/bucket
    "uploads",
    // tests/wal
    "wal_get",
    "wal_list",
    "wal_owed",
    "wal_push",
    "wal_receive",
    // tests/serve
    "status",
    // tests/cache
    "cache_attach",
    "cache_calibrate",
    "cache_detach",
    "cache_grid",
    "cache_metrics",
    "cache_policy",
    "cache_resize",
    "cache_shadow",
    "cache_simulate",
    "cache_status",
    "cache_trace",
    "cache_verify",
    "cache_why",
    // rewrap.rs and detached.rs have them.
    "key_rewrap",
    "key_shred",
    // lab.rs has both.
    "lab_report",
    "lab_sample",
];

#[test]
fn every_command_answers_with_one_object() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    let config = format!(
        "[target.t]\ndirectories = [\"{0}/t\"]\n[target.u]\ndirectories = [\"{0}/u\"]\n[retention.r]\nkeep_full = 1\n[database.app]\n\
         url = \"sqlite:{0}/app.db\"\ntarget = \"t\"\nretention = \"r\"\n",
        stage.path("").display()
    );
    stage.write("no-config/longshore/longshore.toml", config.as_bytes());
    std::fs::create_dir(stage.path("t")).unwrap();
    std::fs::create_dir(stage.path("u")).unwrap();
    let mut login = stage.command(&["serve", "--add-login", "eve", "--json"]);
    login.env("LONGSHORE_LOGIN_PASSWORD", "a long one for the test");
    let added = object(&Ran::of(&login.output().unwrap()).exits(0));
    assert_eq!(added["action"], "add-login");
    for (line, action) in LINES {
        let ran = stage.line(line).exits(0);
        let value = object(&ran);
        assert_eq!(value["action"], action, "{line}");
        assert_eq!(value["status"], "ok", "{line}");
        assert!(ran.err.is_empty(), "{line}: {}", ran.err);
    }
    // It warns of everything that this machine lacks.
    let doctor = stage.line("doctor --json");
    assert_eq!(object(&doctor)["action"], "doctor");
}

#[test]
fn every_action_of_the_page_is_answered_in_a_suite() {
    let lines = LINES.iter().map(|(_, action)| *action);
    let told: BTreeSet<&str> = lines.chain(ELSEWHERE).collect();
    let page: BTreeSet<&str> = longshore_kit::schema::page().actions().collect();
    assert_eq!(told, page);
}

#[test]
fn warnings_are_in_every_object() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    let password = stage.write("password", b"secret\n");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(password, readable).unwrap();
    stage.write("srv/cluster/PG_VERSION", b"17\n");
    stage.write("srv/cluster/postmaster.pid", b"1\n");
    let warnings = |line: &str, code| object(&stage.line(line).exits(code))["warnings"].clone();
    assert_eq!(
        warnings("verify nowhere.bak --json", 4),
        Value::Array(vec![])
    );
    let told = warnings("backup srv --to a.bak --json", 5);
    assert!(
        told[0]
            .as_str()
            .unwrap()
            .contains("PostgreSQL servers run there"),
        "{told}"
    );
    // Of the program's outer part, and of a run that fails.
    let text = format!(
        "[database.main]\nurl = \"postgres://127.0.0.1:1/x\"\npassword_file = \"{}\"\n",
        stage.path("password").display()
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    let told = warnings("backup main --to b.bak --json", 3);
    assert!(
        told[0].as_str().unwrap().contains("other users can read"),
        "{told}"
    );
}

/// Goal: what is as it should be leaves the exit code alone, and a warning does not.
#[test]
fn a_note_is_no_warning() {
    let stage = Stage::new();
    stage.write("home/file", b"x");
    let _socket = std::os::unix::net::UnixListener::bind(stage.path("home/socket")).unwrap();
    let value = object(&stage.line("backup home --to a.bak --json").exits(0));
    assert_eq!(value["status"], "ok");
    assert_eq!(value["warnings"], Value::Array(vec![]));
    let notes = value["notes"].to_string();
    assert!(notes.contains("sockets, FIFOs or devices"), "{notes}");
    assert_eq!(value["run"]["notes"], value["notes"]);

    stage.write("home/cluster/PG_VERSION", b"17\n");
    stage.write("home/cluster/postmaster.pid", b"1\n");
    let value = object(&stage.line("backup home --to b.bak --json").exits(5));
    assert_eq!(value["status"], "warnings");
    assert_eq!(value["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(value["notes"].as_array().unwrap().len(), 1);
    let said = stage.line("backup home --to c.bak").exits(5).err;
    assert!(said.contains("longshore: warning: 1 PostgreSQL servers run there"));
    assert!(said.contains("longshore: note: 1 sockets, FIFOs or devices"));
    stage.line("verify c.bak").exits(0);
}

#[test]
fn a_backups_object_holds_the_facts_of_the_table_and_the_plan() {
    let stage = Stage::new();
    let source = stage.database("app.db", 2);
    let ran = stage.line("backup app.db --to a.bak -a ZSTD --level 3 --buffer-count 9 --json");
    let value = object(&ran.exits(0));
    let len = std::fs::metadata(source).unwrap().len();
    assert_eq!(value["plain_bytes"], len);
    assert_eq!(value["database"], "app");
    assert_eq!(value["position"], 1);
    assert_eq!(value["verified"], Value::Null);
    assert_eq!(value["totals"]["file_count"], 1);
    let plan = &value["run"]["plan"];
    assert_eq!(plan["algorithm"], "ZSTD");
    assert_eq!(plan["level"], "3");
    assert_eq!(plan["buffer_count"], 9);
    assert_eq!(plan["buffer_bytes"], 1 << 20);
    let stored = value["stored_bytes"].as_u64().unwrap();
    let ratio = value["ratio"].as_f64().unwrap();
    assert!((ratio - len as f64 / stored as f64).abs() < 1e-9);
    let on_disk = std::fs::metadata(stage.path("a.bak")).unwrap().len();
    assert!(
        stored <= on_disk && on_disk < stored + 4096,
        "{stored} {on_disk}"
    );
    let message = value["message"].as_str().unwrap();
    assert!(
        message.starts_with("Backup of app finished: ") && message.ends_with(" on media"),
        "{message}"
    );
}

#[test]
fn errors_carry_number_text_and_hint() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    stage.line("backup app.db --to a.bak --to b.bak").exits(0);
    let ran = stage.line("restore a.bak --to out --json").exits(4);
    let value = object(&ran);
    assert_eq!(value["status"], "error");
    assert_eq!(value["error"]["number"], 3132);
    assert_eq!(value["error"]["code"], "media");
    assert!(
        value["error"]["text"]
            .as_str()
            .unwrap()
            .contains("family 2")
    );
    assert!(value["error"]["hint"].as_str().unwrap().contains("stripe"));

    let value = object(&stage.line("backup nowhere --to x.bak --json").exits(3));
    assert_eq!(value["error"]["number"], 50110);
    assert_eq!(value["error"]["code"], "source");
    assert!(!value["error"]["causes"].as_array().unwrap().is_empty());

    let value = object(&stage.line("restore a.bak --too out --json").exits(2));
    assert!(value["error"]["text"].as_str().unwrap().contains("--too"));
    assert_eq!(value["error"]["code"], "usage");

    stage.write("bad.toml", b"[defaults]\nmax_rate = \"fast\"\n");
    let ran = stage.line("--config bad.toml config check --json").exits(2);
    let error = object(&ran)["error"].clone();
    assert_eq!(
        (&error["code"], &error["number"]),
        (&"usage".into(), &15129.into())
    );
    let text = error["text"].as_str().unwrap();
    assert!(
        text.contains("line 2, column 12: `defaults.max_rate`"),
        "{text}"
    );
}

#[test]
fn damage_anywhere_is_the_same_answer() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    stage.line("backup app.db --to a.bak --to b.bak").exits(0);
    let whole = std::fs::read(stage.path("b.bak")).unwrap();
    // From the container's framing and the label through the blocks to the trailer.
    for at in (0..12).map(|part| part * (whole.len() - 1) / 11) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        stage.write("b.bak", &bytes);
        let value = object(&stage.line("verify a.bak b.bak --json").exits(1));
        assert_eq!(value["status"], "damaged", "byte {at}: {value}");
        assert_eq!(value["valid"], false);
        assert!(value["sets"].is_array());
        let number = value["findings"][0]["number"].as_u64().unwrap();
        assert!(
            [3189, 3241, 3242, 3256].contains(&number),
            "byte {at}: {value}"
        );
        assert!(!value["findings"][0]["hint"].as_str().unwrap().is_empty());
    }
}

#[test]
fn the_files_of_a_set_are_listed_once_each() {
    let stage = Stage::new();
    stage.write("tree/large", &vec![1; 5 << 20]);
    stage.write("tree/small", b"1");
    stage.line("backup tree --to a.bak --to b.bak").exits(0);
    let value = object(&stage.line("list a.bak b.bak --files --json").exits(0));
    let mut files: Vec<_> = value["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap(), f["len"].as_u64().unwrap()))
        .collect();
    files.sort_unstable();
    assert_eq!(files, [("large", 5 << 20), ("small", 1)]);
}
