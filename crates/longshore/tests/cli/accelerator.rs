//! Goal: `accelerator`, `doctor` and backups say what a device does, what it lacks, and how to mend it.
//! Method: the program runs on machines with doubles of a QAT device and its library, which follow a script.
//! Not covered: real devices.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use qatzip::stage as double;
use serde_json::Value;

use crate::stage::{Ran, Stage};

/// A stage on a machine with a QAT device whose library follows a script.
struct Machine(Stage);

impl Machine {
    fn new(script: &str) -> Machine {
        let stage = Stage::new();
        double::machine(&stage.path("sys")).unwrap();
        double::install(&stage.path(""), script).unwrap();
        Machine(stage)
    }

    fn command(&self, line: &str) -> Command {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = self.0.command(&words);
        command
            .env("LONGSHORE_SYSFS", self.0.path("sys"))
            .env("LONGSHORE_QATZIP", self.0.path("libqatzip.so.3"))
            .env("LONGSHORE_CUDA", "off");
        command
    }

    fn line(&self, line: &str) -> Ran {
        Ran::of(&self.command(line).output().unwrap())
    }

    fn answer(&self, line: &str, code: i32) -> Value {
        let ran = self.line(line).exits(code);
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out))
    }

    /// The row of QAT.
    fn qat(&self) -> Value {
        let answer = self.answer("accelerator status --json", 0);
        assert_eq!(answer["action"], "accelerator_status");
        let rows = answer["rows"].as_array().unwrap();
        rows.iter()
            .find(|r| r["accelerator"] == "QAT")
            .unwrap()
            .clone()
    }
}

#[test]
fn a_mode_that_is_chosen_shows_in_the_status_and_counts_for_the_next_backup() {
    let machine = Machine::new("");
    let row = machine.qat();
    assert_eq!(row["mode_reason_desc"], "NONE_HARDWARE_OFFLOAD_NOT_ENABLED");
    assert_eq!(row["accelerator_hardware_detected"], 1);
    assert_eq!(
        machine.answer("accelerator enable --json", 0)["number"],
        17412
    );
    assert_eq!(
        machine.answer("accelerator enable --json", 0)["number"],
        17411
    );
    let row = machine.qat();
    assert_eq!(
        (&row["mode_desc"], &row["mode_reason"]),
        (&"HARDWARE".into(), &14.into()),
        "{row}"
    );
    assert_eq!(
        row["accelerator_library_version"],
        "libqatzip.so.3 (API 2.3)"
    );
    assert_eq!(
        (&row["hardware"], &row["advice"]),
        (&"1 × QAT 4xxx".into(), &"".into())
    );
    machine
        .line("accelerator status")
        .exits(0)
        .says("HARDWARE_MODE_ENTERPRISE_SKU");

    machine.0.write("data/noise", &vec![b'x'; 5 << 20]);
    let engines = |line: &str| machine.answer(line, 0)["run"]["engines"].clone();
    // The run is slow because the engine is tried while the CPU compresses the first blocks; how long that takes
    // depends on the machine.
    let is_used = |rate: &str| {
        let line = format!("backup data --to a.bak --init --max-rate {rate} --json");
        let used = engines(&line);
        let accelerator = &used.as_array().unwrap()[1];
        assert_eq!(accelerator["name"], "qatzip", "{used}");
        accelerator["blocks"].as_u64().unwrap() > 0
    };
    assert!(["3M", "1M", "100K"].into_iter().any(is_used));
    let newest = |name: &str| -> Value {
        let answer = machine.answer("history --json", 0);
        let engines = answer["rows"][0]["engines"].as_array().unwrap().clone();
        let found = engines.iter().find(|e| e["name"] == name);
        found.cloned().unwrap_or_default()
    };
    let kept = newest("qatzip");
    assert_eq!(kept["is_accelerator"], true, "{kept}");
    assert!(kept["blocks"].as_u64().unwrap() > 0, "{kept}");

    machine.answer("accelerator enable --mode hybrid --json", 0);
    assert_eq!(machine.qat()["mode_reason_desc"], "HYBRID_MODE_ENABLED");
    machine.answer("accelerator enable --mode software --json", 0);
    assert_eq!(machine.qat()["mode_reason"], 13);
    assert_eq!(
        machine.answer("accelerator disable --json", 0)["number"],
        17412
    );
    let used = engines("backup data --to b.bak --json");
    assert!(
        !used
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["name"] == "qatzip"),
        "{used}"
    );
    assert_eq!(newest("qatzip"), Value::Null);
    assert_eq!(machine.qat()["mode_reason"], 0);
    machine.line("verify a.bak").exits(0);
}

#[test]
fn a_library_that_cannot_serve_is_named_with_its_code_and_hurts_no_one() {
    for (script, code) in [
        ("init -102", 8),
        ("init 1", 103),
        ("setup -103", 9),
        ("defaults wide", 7),
        ("call 1 flip 4000", 102),
        ("init die", 107),
    ] {
        let machine = Machine::new(script);
        machine.line("accelerator enable").exits(0);
        let row = machine.qat();
        assert_eq!(row["mode_reason"], code, "{script}: {row}");
        assert!(
            row["advice"].as_str().unwrap().len() > 20,
            "{script}: {row}"
        );
    }
    let machine = Machine::new("");
    machine.line("accelerator enable").exits(0);
    std::fs::remove_file(machine.0.path("libqatzip.so.3")).unwrap();
    assert_eq!(
        machine.qat()["mode_reason_desc"],
        "NONE_ACCELERATOR_LIBRARY_NOT_FOUND"
    );
    std::fs::remove_dir_all(machine.0.path("sys")).unwrap();
    let row = machine.qat();
    assert_eq!(
        row["mode_reason_desc"],
        "SOFTWARE_MODE_ACCELERATOR_HARDWARE_NOT_FOUND"
    );
    assert_eq!(row["accelerator_hardware_detected"], 0);
    machine.0.write("data/file", &vec![7; 1 << 20]);
    machine.line("backup data --to a.bak --verify").exits(0);
}

/// A backup in another process, killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Machine {
    fn start(&self, line: &str) -> Running {
        let mut command = self.command(line);
        Running(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// The status of running backups, once `suits` accepts it; polled often, for two minutes at most.
    fn running(&self, suits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        for _ in 0..600 {
            let answer = self.answer("accelerator status --json", 0);
            seen = answer["running"].as_array().unwrap().clone();
            if suits(&seen) {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("never: {seen:?}");
    }
}

#[test]
fn the_status_shows_what_a_backup_in_another_process_does_while_it_runs_and_not_after() {
    // Calls 1 and 2 belong to the self-test. One call in the backup fails; each takes at least 200 ms.
    let machine = Machine::new("latency-us 200000\ncall 6 code -103");
    machine.0.write("data/file", &vec![b'a'; 64 << 20]);
    // The status tests a device only if backups are to use one.
    assert!(machine.running(|_| true).is_empty());
    let backup = machine.start("backup data --to a.bak --offload hardware --max-rate 4M");
    let enough = |runs: &[Value]| {
        let done = |run: &Value| {
            let engine = &run["engines"][0];
            engine["blocks"].as_u64().unwrap_or(0) >= 4
                && engine["recomputed"].as_u64().unwrap_or(0) >= 1
        };
        runs.iter().any(done)
    };
    let runs = machine.running(enough);
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(run["pid"], backup.0.id());
    assert_eq!(run["mode"], "hardware");
    let engine = &run["engines"][0];
    let number = |name: &str| {
        engine[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {engine}"))
    };
    assert_eq!(engine["name"], "qatzip");
    assert_eq!(engine["state"], "ready");
    assert_eq!(number("plain_bytes"), number("blocks") << 20);
    assert!(number("service_us_mean") >= 200_000, "{engine}");
    assert_eq!(engine["faults"], serde_json::json!({ "busy": 1 }));
    assert_eq!((number("recomputed"), number("verify_failures")), (1, 0));
    let share = engine["fallback_share"].as_f64().unwrap();
    let expected = 1.0 / (1 + number("blocks")) as f64;
    assert!((share - expected).abs() < 1e-9, "{share}, not {expected}");
    // At this rate there is one block per quarter of a second, and the device works on each for most of that time.
    let in_flight = |runs: &[Value]| {
        runs.iter()
            .any(|run| run["engines"][0]["in_flight_bytes"].as_u64().unwrap_or(0) > 0)
    };
    machine.running(in_flight);
    machine
        .line("accelerator status")
        .exits(0)
        .says("hardware")
        .says("1 busy");
    let published = std::fs::read_dir(machine.0.path("running"))
        .unwrap()
        .count();
    assert!(published >= 1);

    // A killed backup removes nothing; a later status does not show it, and removes its file.
    drop(backup);
    assert_eq!(machine.running(|_| true), Vec::<Value>::new());
    assert_eq!(
        std::fs::read_dir(machine.0.path("running"))
            .unwrap()
            .count(),
        0
    );
    let said = machine.line("accelerator status").exits(0);
    assert!(!said.out.contains("1 busy"), "{said:?}");
}

#[test]
fn a_backup_that_has_ended_is_no_longer_shown() {
    let machine = Machine::new("");
    machine.0.write("data/file", &vec![b'a'; 4 << 20]);
    machine
        .line("backup data --to a.bak --offload hybrid")
        .exits(0);
    assert!(machine.running(|_| true).is_empty());
    assert_eq!(
        std::fs::read_dir(machine.0.path("running"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn studies_measure_hardware_where_there_is_a_device_and_say_when_there_is_none() {
    let machine = Machine::new("prepared");
    let answer = machine.answer("lab offload --quick --size 8M --work work --json", 0);
    let rows = answer["sections"][0]["table"]["row_values"]
        .as_array()
        .unwrap();
    let names: Vec<_> = rows.iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(names, ["software", "hardware", "hybrid"]);
    let share = |row: usize| rows[row][4].as_f64().unwrap();
    assert!(share(0) == 0.0 && share(1) > 90.0, "{answer}");
    machine.0.write("tree/a", &vec![b'a'; 4 << 20]);
    let line =
        "lab offload --source tree --stripes 2 --rounds 3 --dir out --html o.html --markdown o.md";
    let told = machine.answer(&format!("{line} --json"), 0);
    let section = &told["sections"][0];
    assert_eq!(section["heading"], "Backups to files in 1 directory");
    let prose = section["prose"][0].as_str().unwrap();
    assert!(prose.contains(" 2 stripes,") && prose.contains("medians of 3 rounds"));
    let facts = told["platform"].as_array().unwrap();
    let source = facts.iter().find(|row| row[0] == "Source").unwrap();
    assert_eq!(source[1], "tree, 4.2 MB (10^6)");
    let page = std::fs::read_to_string(machine.0.path("o.html")).unwrap();
    assert!(page.contains("<html") && page.contains("hybrid"));
    let page = std::fs::read_to_string(machine.0.path("o.md")).unwrap();
    assert!(page.contains("| hybrid |"), "{page}");
    // The published study has them, too, where they are.
    let sweep = "lab sweep --quick --size 8M --work work --dir out --json";
    let published = |answer: &Value| -> Vec<Value> {
        let mut sections = answer["sections"].as_array().unwrap().iter();
        let heading = |s: &&Value| s["heading"].as_str().unwrap().contains("published order");
        let found = sections.find(heading).unwrap();
        found["table"]["row_values"].as_array().unwrap().clone()
    };
    let rows_of = |answer: &Value, name: &str| {
        let rows = published(answer);
        rows.iter().filter(|row| row[0] == name).count()
    };
    let answer = machine.answer(sweep, 0);
    // The engine is named with its share if software did part of the work.
    let hardware = |answer: &Value| {
        let rows = published(answer);
        let names = rows.iter().filter_map(|row| row[0].as_str());
        let ours = names.filter(|name| name.starts_with("QAT_DEFLATE"));
        ours.filter(|name| name.ends_with("hardware") && !name.contains("software"))
            .count()
    };
    assert!(hardware(&answer) > 1, "{answer}");
    assert_eq!(
        hardware(&answer),
        rows_of(&answer, "QAT_DEFLATE software"),
        "{answer}"
    );
    // The device and its library are the tests' doubles, and the report says so before its result.
    let summary = answer["summary"].as_str().unwrap();
    assert!(summary.starts_with("Quick run"), "{summary}");
    assert!(summary.contains("LONGSHORE_SYSFS="), "{summary}");
    let headings = answer["sections"].to_string();
    assert!(
        headings.contains("QAT_DEFLATE against MS_XPRESS"),
        "{answer}"
    );
    std::fs::remove_dir_all(machine.0.path("sys")).unwrap();
    let ran = machine.line("lab offload --quick --size 8M --work work");
    assert_eq!(ran.code, 2, "{ran:?}");
    ran.says("no accelerator here");
    let answer = machine.answer(sweep, 0);
    assert_eq!(hardware(&answer), 0);
    assert_eq!(rows_of(&answer, "QAT_DEFLATE hardware: skipped"), 1);
}

impl Machine {
    /// The answer of a run in which the device got blocks, and what the run says of the device. How soon the device is
    /// ready depends on the machine, so slower runs are tried, too; `{n}` in the line is another number each time.
    fn with_device(&self, line: &str) -> (Value, Value) {
        let mut last = Value::Null;
        for (n, rate) in ["1M", "400K", "100K"].into_iter().enumerate() {
            let line = line.replace("{n}", &n.to_string());
            let ran = self.line(&format!("{line} --max-rate {rate} --json"));
            assert!(matches!(ran.code, 0 | 5), "{line}: {ran:?}");
            last = serde_json::from_str(&ran.out).unwrap();
            let device = &last["run"]["engines"][1];
            assert_eq!(device["name"], "qatzip", "{line}: {last}");
            let faults = device["faults"].as_object().is_some_and(|f| !f.is_empty());
            if device["blocks"].as_u64() > Some(0) || faults {
                return (last.clone(), device.clone());
            }
        }
        panic!("{line}: the device was never used: {last}");
    }

    /// So many bytes of lines that differ, and that an engine makes smaller.
    fn lines(&self, mib: usize) {
        let line = |n: usize| format!("{n} lines, and the next number is {}\n", n * 7919 % 10_007);
        let mut lines: Vec<u8> = (0..mib << 15).flat_map(|n| line(n).into_bytes()).collect();
        lines.truncate(mib << 20);
        self.0.write("data/lines", &lines);
    }
}

#[test]
fn a_damaged_result_is_in_the_set_only_if_no_result_is_to_be_decoded() {
    // Calls 1 and 2 belong to the self-test; one bit of each later result's body is wrong.
    let machine = Machine::new("call 3.. flip 4000");
    machine.lines(4);
    for (how, failures, code) in [("none", false, 1), ("full", true, 0)] {
        let line =
            format!("backup data --to {how}{{n}}.bak --offload hardware --verify-engine {how}");
        let (answer, device) = machine.with_device(&line);
        let found = device["verify_failures"].as_u64() > Some(0);
        assert_eq!(found, failures, "{how}: {device}");
        let set = answer["run"]["plan"]["devices"][0].as_str().unwrap();
        machine.line(&format!("verify {set}")).exits(code);
    }
}

#[test]
fn a_call_is_given_up_after_the_seconds_that_were_asked_for() {
    let machine = Machine::new("");
    machine.lines(4);
    // A device restores only what a device has made.
    let (made, _) = machine.with_device("backup data --to set{n}.bak --offload hardware");
    let set = made["run"]["plan"]["devices"][0].as_str().unwrap();
    // Each call takes longer than the first limit, and less than the second.
    let script = machine.0.path("libqatzip.so.3.script");
    std::fs::write(script, "call 3.. delay 2500").unwrap();
    for (seconds, hung) in [(1, true), (600, false)] {
        for line in [
            format!("backup data --to b{seconds}-{{n}}.bak"),
            format!("restore {set} --to r{seconds}-{{n}}"),
        ] {
            let line = format!("{line} --offload hardware --engine-timeout {seconds}");
            let (_, device) = machine.with_device(&line);
            let faults = device["faults"]["hung"].as_u64();
            assert_eq!(faults.is_some(), hung, "{line}: {device}");
        }
    }
}

#[test]
fn an_objective_chooses_the_mode_of_auto_and_is_reported_where_it_chooses_nothing() {
    let machine = Machine::new("");
    machine.lines(1);
    machine.line("backup data --to set.bak").exits(0);
    let engine = |line: &str| {
        let answer = machine.answer(&format!("{line} --json"), 0);
        let engine = answer["run"]["plan"]["engine"].as_str().unwrap().to_owned();
        (engine, answer["notes"].to_string())
    };
    for (n, line) in ["backup data --to b", "restore set.bak --to r"]
        .into_iter()
        .enumerate()
    {
        let with = |name: &str, options: &str| engine(&format!("{line}{n}{name} {options}"));
        let (software, _) = with("s", "--offload software");
        let (cpu, quiet) = with("c", "--offload auto --objective cpu");
        assert_eq!(
            (cpu.as_str(), quiet.contains("--objective")),
            ("qatzip", false)
        );
        let (time, _) = with("t", "--offload auto --objective time");
        assert_eq!(time, format!("qatzip + {software}"));
        let (hybrid, told) = with("h", "--offload hybrid --objective cpu");
        assert_eq!(hybrid, time);
        assert!(told.contains("--objective has no effect"), "{told}");
    }
}

#[test]
fn a_call_that_never_returns_does_not_keep_the_program_from_ending() {
    // Calls 1 and 2 belong to the self-test. A destructor that waits stands in for QATzip's.
    let machine = Machine::new("exit waits\ncall 3.. hang");
    machine.line("accelerator enable").exits(0);
    machine.0.write("data/file", &vec![b'a'; 6 << 20]);
    let ran = machine.line("backup data --to a.bak --verify");
    assert!(matches!(ran.code, 0 | 5), "{ran:?}");
    machine.0.line("verify a.bak").exits(0);
}

#[test]
fn the_doctor_names_what_is_missing_and_how_to_mend_it() {
    let machine = Machine::new("init -102");
    let services = machine
        .0
        .path("sys/bus/pci/devices/0000:6b:00.0/qat/cfg_services");
    std::fs::write(services, "sym;asym\n").unwrap();
    let answer = machine.answer("doctor --json", 5);
    let checkups = answer["checkups"].as_array().unwrap();
    let wanting = checkups.iter().find(|c| {
        c["verdict"] == "wanting" && c["fix"].as_str().unwrap().contains("ServicesEnabled=dc")
    });
    assert!(wanting.is_some(), "{answer}");
    machine
        .line("doctor")
        .exits(5)
        .says("WARN")
        .says("-> set ServicesEnabled=dc");
}
