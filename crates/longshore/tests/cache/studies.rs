//! Goal: `longshore cache simulate`, `grid` and `calibrate` print what programs can read, and each option changes it.
//! Method: the program runs with and without each option, and the answers are compared.
//! Not covered: whether the simulated numbers are right (`longshore-simulator`).

use std::fs;

use serde_json::Value;

use crate::common::{self, answer, expect, text};

fn simulate(more: &[&str]) -> Value {
    let args = ["cache", "simulate", "--json", "--seconds", "1"];
    answer(&expect(0, [&args, more].concat()))
}

fn number(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {row}"))
}

#[test]
fn a_study_shows_throughput_latencies_hits_and_regret_and_one_seed_is_one_study() {
    let mix = ["--mix", "8x4k:w5+6x512k", "--resident", "95", "--seed", "7"];
    let told = simulate(&mix);
    assert_eq!(
        (&told["fast_model"], &told["slow_model"], &told["seed"]),
        (
            &"optane-905p".into(),
            &"samsung-970pro".into(),
            &Value::from(7)
        )
    );
    let rows = told["policies"].as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["policy"]).collect();
    assert_eq!(names, ["none", "slow", "orthus", "aware"]);
    let rate = |row: &Value| number(row, "throughput_mb_s");
    let better = rate(&rows[0]).max(rate(&rows[1]));
    for row in rows {
        let times = [
            "small_read_p50_us",
            "small_read_p99_us",
            "small_read_p999_us",
        ];
        let times = times.map(|name| number(row, name));
        assert!(times[0] > 0.0 && times.is_sorted(), "{row}");
        let mean = number(row, "small_read_mean_us");
        assert!(mean > times[0] / 4.0 && mean < times[2], "{row}");
        for name in ["bulk_read_mean_us", "write_mean_us"] {
            assert!(number(row, name) > 0.0, "{row}");
        }
        for name in ["hit_ratio", "hit_ratio_bytes", "fast_share"] {
            assert!((0.0..=1.0).contains(&number(row, name)), "{row}");
        }
        assert!(number(row, "fill_ratio") >= 0.0);
        let regret = 1.0 - rate(row) / better;
        assert!((number(row, "regret") - regret).abs() < 1e-9, "{row}");
    }
    assert!(number(&rows[0], "fast_share") > number(&rows[3], "fast_share"));
    assert_eq!(number(&rows[1], "fast_share"), 0.0);
    assert_eq!(simulate(&mix), told);
}

/// The same ten reads and a flush, in the formats of three programs.
#[test]
fn a_recorded_load_is_replayed_from_fio_blkparse_and_our_own_form() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let places: Vec<u64> = (0..10).map(|n| n * n % 7 * 65536).collect();
    let lines = |line: &dyn Fn(usize, u64) -> String| {
        let all = places.iter().enumerate();
        all.map(|(n, at)| line(n, *at)).collect::<String>()
    };
    let own = lines(&|n, at| format!("{},R,{at},4096,5\n", n * 1000));
    let fio = lines(&|n, at| format!("{n} /dev/sdb read {at} 4096\n"));
    let blk = lines(&|n, at| {
        let sector = at / 512;
        format!(
            "  8,16   1 {:8} {:14.9} 697  Q  RA {sector} + 8 [x]\n",
            n + 1,
            n as f64 / 1e3
        )
    });
    let own = own + "10000,F,0,0,5\n";
    let fio = fio + "10 /dev/sdb sync 0 0\n";
    let blk = blk + "  8,16   1       11     0.010000000 697  Q  FN [x]\n";
    let mut studies = Vec::new();
    for (name, content) in [
        ("own", format!("t_us,op,offset,len,host_lat_us\n{own}")),
        (
            "fio",
            format!("fio version 3 iolog\n0 /dev/sdb add\n0 /dev/sdb open\n{fio}"),
        ),
        (
            "blk",
            format!("{blk}CPU1 (sdb):\n Reads Queued:          10,       40KiB\n"),
        ),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let trace = path.to_str().unwrap();
        let args = [
            "cache", "simulate", "--json", "--policy", "none", "--trace", trace,
        ];
        let told = answer(&expect(0, args));
        let row = told["policies"][0].clone();
        assert!(number(&row, "small_read_mean_us") > 0.0);
        assert!(number(&row, "flush_mean_us") > 0.0);
        studies.push(row);
    }
    // Four of the ten reads are the first ones of their places.
    assert!((number(&studies[0], "hit_ratio") - 0.6).abs() < 1e-9);
    assert_eq!(studies[0], studies[1]);
    // Another volume uses other units of the device; the hits are the same.
    for name in ["hit_ratio", "hit_ratio_bytes", "fast_share", "fill_ratio"] {
        assert_eq!(studies[0][name], studies[2][name], "{name}");
    }
}

#[test]
fn an_impossible_simulation_is_refused_with_a_message() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("no-trace");
    fs::write(&path, "what is this\n").unwrap();
    for (more, says) in [
        (&["--policy", "best"][..], "unknown policy \"best\""),
        (&["--pair", "optane-905p/tape"], "unknown profile \"tape\""),
        (&["--mix", "8x3k"], "8x3k"),
        (
            &["--trace", path.to_str().unwrap()],
            "has no known trace format",
        ),
        (&["--fast-model", "/nowhere/model"], "/nowhere/model"),
    ] {
        let refused = expect(2, [&["cache", "simulate"], more].concat());
        let said = text(&refused.stderr);
        assert!(said.contains(says), "{more:?}: {said}");
    }
}

/// Whether a busy machine's disk fits a model is chance; that nothing is written for one that does not fit is not.
#[test]
fn a_model_is_written_where_it_fits_and_nowhere_else() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, model) = (dir.path().join("disk"), dir.path().join("model"));
    let file = fs::File::create(&disk).unwrap();
    file.set_len(128 << 20).unwrap();
    let mut command =
        common::longshore(["cache", "calibrate", "--seconds", "0.01", "--course", "0"]);
    command.arg(&disk).arg("--model").arg(&model);
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    match output.status.code() {
        Some(0) => {
            let told = simulate(&["--fast-model", model.to_str().unwrap()]);
            assert_eq!(told["fast_model"], "calibrated");
        }
        Some(1) => {
            assert!(!model.exists(), "{said}");
            assert!(said.contains('%'), "it says how far it is off: {said}");
        }
        other => panic!("{other:?}: {said}"),
    }
}

/// A model file as `cache calibrate` writes them.
const MODEL: &str = "longshore device model 1\nunits = 8\nchunk_bytes = 4096\nread_us = 900\nfixed_us = 1\n\
                     read_mb_s = 100\ncommand_bytes = 131072\ncommand_us = 0.2\nnear_percent = 100\n";

#[test]
fn a_simulation_takes_the_model_the_sharing_and_the_traces_form_asked_for() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let model = put("slow.model", MODEL.as_bytes());
    let slow = ["--policy", "slow", "--mix", "2x4k"];
    let (usual, modelled) = (
        simulate(&slow),
        simulate(&[&slow[..], &["--slow-model", &model]].concat()),
    );
    assert_eq!(
        (&usual["slow_model"], &modelled["slow_model"]),
        (&"samsung-970pro".into(), &"calibrated".into())
    );
    let mean = |told: &Value| number(&told["policies"][0], "small_read_mean_us");
    assert!(mean(&modelled) > 800.0 && mean(&usual) < 800.0);

    // Clients that read the same hot places wait for one read, or make one each.
    let hot = [
        "--policy",
        "none",
        "--mix",
        "32x64k:z1.2",
        "--resident",
        "20",
    ];
    let shared = |who: &str| {
        let told = simulate(&[&hot[..], &["--sharing", who]].concat());
        told["policies"].clone()
    };
    let own = simulate(&hot)["policies"].clone();
    assert_eq!(own, shared("own"));
    assert_eq!(own, shared("nobody"), "a classic cache shares nothing");
    assert_ne!(own, shared("all"));

    // Numbers of blocks have no first line that shows their form.
    let blocks: Vec<u8> = (0..100_u32).flat_map(|n| (n % 10).to_le_bytes()).collect();
    let trace = put("blocks", &blocks);
    let replay = [
        "cache", "simulate", "--json", "--policy", "none", "--trace", &trace,
    ];
    expect(2, replay);
    let told = answer(&expect(
        0,
        [&replay[..], &["--trace-form", "numbers"]].concat(),
    ));
    assert!(number(&told["policies"][0], "small_read_mean_us") > 0.0);
}

/// The answer of a grid of few cells and one seed.
fn grid(more: &str) -> Value {
    let line = format!("cache grid --json {more}");
    answer(&expect(0, line.split_whitespace()))
}

fn cells(told: &Value) -> Vec<&Value> {
    told["cells"].as_array().unwrap().iter().collect()
}

#[test]
fn the_options_of_a_grid_choose_its_cells() {
    let names = |more: &str| -> Vec<String> {
        let told = grid(&format!("--seeds 1 --policy slow {more}"));
        let name = |cell: &&Value| cell["cell"].as_str().unwrap().to_owned();
        cells(&told).iter().map(name).collect()
    };
    let first = names("--every 5000");
    assert_eq!(first.len(), 1);
    assert!(
        first[0].starts_with("optane-905p/samsung-970pro small x1 "),
        "{first:?}"
    );
    let pure = names("--pure --every 4");
    assert!(pure.len() > 1 && pure.len() < names("--pure --every 2").len());
    for cell in &pure {
        assert!(cell.contains(" 100 % resident 0 % writes"), "{cell}");
    }
    let reversed = names("--pair ec2-local-nvme/ebs-gp3-max --every 5000");
    assert!(reversed[0].starts_with("ec2-local-nvme/ebs-gp3-max small x1 "));
    let core = names("--core --every 5000");
    assert!(core[0].contains(" mixed x8 "), "{core:?}");
    expect(2, ["cache", "grid", "--pair", "tape/tape"]);
}

#[test]
fn the_options_of_a_grid_choose_the_seeds_the_policies_and_what_is_wrong() {
    const ONE: &str = "--every 5000 --seeds 1";
    let ours = |told: &Value| cells(told)[0]["ours"].clone();
    let slow = grid(&format!("{ONE} --policy slow"));
    assert_eq!(cells(&slow)[0]["ours"], cells(&slow)[0]["slow"]);
    let none = grid(&format!("{ONE} --policy none"));
    assert_eq!(cells(&none)[0]["ours"], cells(&none)[0]["classic"]);
    assert_ne!(ours(&none), ours(&slow));

    let seeds = |more: &str| grid(&format!("--every 5000 --policy none {more}"));
    let two = seeds("--seeds 2");
    assert_eq!(two["seeds"], serde_json::json!([1, 2]));
    assert_ne!(ours(&two), ours(&none));
    let other = seeds("--seeds 1 --first-seed 2");
    assert_eq!(other["seeds"], serde_json::json!([2]));
    let rate = |told: &Value| number(&ours(told), "throughput_mb_s");
    assert!((2.0 * rate(&two) - rate(&none) - rate(&other)).abs() < 1e-6);

    // No cache is below the bound here, so the cell runs again; a classic cache is not.
    assert!(cells(&slow)[0]["against_better_again"].is_null());
    let again = grid(&format!("{ONE} --policy slow --again 1"));
    let of = |told: &Value, name: &str| number(cells(told)[0], name);
    assert!(of(&again, "against_better") < 0.97);
    assert!(of(&again, "against_better_again") < 0.97);

    let rivals = |more: &str| {
        let told = grid(&format!("{ONE} --policy none {more}"));
        let cell = cells(&told)[0].clone();
        [
            "classic_that_waits",
            "orthus",
            "orthus_kernel",
            "best_split",
        ]
        .map(|name| !cell[name].is_null())
    };
    assert_eq!(rivals(""), [false; 4]);
    assert_eq!(rivals("--orthus"), [true, true, true, false]);
    assert_eq!(rivals("--rivals"), [true; 4]);

    let core = |more: &str| ours(&grid(&format!("--core {ONE} {more}")));
    let usual = core("");
    let wrong = core("--wrong 60");
    assert_ne!(usual, wrong);
    assert_ne!(wrong, core("--wrong 60 --wrong-signs 5"));
    let refused = expect(2, ["cache", "grid", "--wrong-signs", "5"]);
    assert!(text(&refused.stderr).contains("--wrong"), "{refused:?}");
    let cold = "--pair optane-905p/samsung-970pro --seeds 1 --policy none --every 40";
    let of_all = |more: &str| {
        let told = grid(&format!("{cold} {more}"));
        let ours: Vec<Value> = cells(&told)
            .iter()
            .map(|cell| cell["ours"].clone())
            .collect();
        ours
    };
    assert_ne!(of_all("--sharing all"), of_all("--sharing nobody"));
}

/// Whatever ends the command, nothing of it is left: the scratch file has no name while it is measured.
#[test]
fn a_scratch_file_has_no_name_while_it_is_measured() {
    use std::io::BufRead;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (place, model) = (dir.path().join("place"), dir.path().join("model"));
    fs::create_dir(&place).unwrap();
    let words = ["cache", "calibrate", "--course", "0", "--size", "130M"];
    let mut command = common::longshore(words);
    command.arg(&place).arg("--model").arg(&model);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    let first = said.lines().next().unwrap().unwrap();
    assert!(first.starts_with("reads in 21 sizes"), "{first}");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    assert!(!model.exists());
}

/// Only in a directory is anything written, and nothing of it stays; whether a busy disk fits a model is chance.
#[test]
fn writes_are_measured_in_a_directory_and_leave_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (place, model) = (dir.path().join("place"), dir.path().join("model"));
    fs::create_dir(&place).unwrap();
    let disk = dir.path().join("disk");
    fs::write(&disk, vec![7; 129 << 20]).unwrap();
    let calibrate = |path: &std::path::Path, more: &[&str]| {
        let mut command = common::longshore(["cache", "calibrate", "--json", "--seconds", "0.01"]);
        command.args(more).arg(path).arg("--model").arg(&model);
        command.output().unwrap()
    };
    let ops = |told: &Value| {
        let cells = told["cells"].as_array().unwrap().iter();
        cells
            .map(|cell| cell["op"].as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let whole = calibrate(&place, &["--course", "0", "--size", "130M"]);
    let told = answer(&whole);
    assert!(
        told["written_bytes"].as_u64().unwrap() > 130 << 20,
        "{told}"
    );
    // A refusal has the cells of what does not fit.
    match whole.status.code() {
        Some(0) => {
            assert_eq!(ops(&told), ["read", "write"].map(str::to_owned).into());
            assert!(
                fs::read_to_string(&model)
                    .unwrap()
                    .contains("\nwrite_us = ")
            );
        }
        code => {
            assert_eq!(code, Some(1), "{whole:?}");
            assert_eq!(ops(&told).len(), 1);
        }
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    // A file is only read.
    let told = answer(&calibrate(&disk, &["--course", "0"]));
    assert_eq!(
        (&told["written_bytes"], ops(&told)),
        (&Value::from(0), ["read".to_owned()].into())
    );
    assert!(fs::read(&disk).unwrap().iter().all(|byte| *byte == 7));
    // The model replaces no device.
    let words = ["cache", "calibrate", "--course", "0"];
    let refused = common::longshore(words)
        .arg(&disk)
        .arg("--model")
        .arg(&disk)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::metadata(&disk).unwrap().len(), 129 << 20);
    // Its size must be possible, before anything is asked of the device.
    let refused = calibrate(&place, &["--course", "0", "--size", "9000000G"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let error = answer(&refused)["error"].to_string();
    assert!(error.contains("it has room for"), "{error}");
    let small = calibrate(&place, &["--size", "4K"]);
    assert_eq!(small.status.code(), Some(3), "{small:?}");
    let little = dir.path().join("little");
    fs::write(&little, "x").unwrap();
    assert_eq!(calibrate(&little, &[]).status.code(), Some(3));
    // There is no device below memory.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let refused = calibrate(memory.path(), &["--course", "0", "--size", "130M"]);
    assert!(
        answer(&refused)["error"].to_string().contains("in memory"),
        "{refused:?}"
    );
}

#[test]
fn the_course_of_the_rate_is_looked_at_for_as_long_as_asked() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, model) = (dir.path().join("disk"), dir.path().join("model"));
    fs::File::create(&disk)
        .and_then(|file| file.set_len(129 << 20))
        .unwrap();
    let said = |course: &str| {
        let words = [
            "cache",
            "calibrate",
            "--seconds",
            "0.01",
            "--course",
            course,
        ];
        let output = common::longshore(words)
            .arg(&disk)
            .arg("--model")
            .arg(&model)
            .output();
        text(&output.unwrap().stderr)
    };
    let asked = said("2");
    for unit in ["bytes", "commands"] {
        let line = format!("reads, as many {unit} as the device takes, for 2 s");
        assert!(asked.contains(&line), "{asked}");
    }
    assert!(!said("0").contains("as the device takes"));
    assert!(said("1").contains("seconds from 2"));
}

/// The size in a model is the one that was given, if the model fits at all.
#[test]
fn the_largest_request_of_a_device_is_in_its_model_and_must_be_possible() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, model) = (dir.path().join("disk"), dir.path().join("model"));
    let file = fs::File::create(&disk).unwrap();
    file.set_len(128 << 20).unwrap();
    let calibrate = |largest: &str| {
        let words = [
            "cache",
            "calibrate",
            "--seconds",
            "0.01",
            "--course",
            "0",
            "--json",
            "--largest",
            largest,
        ];
        let mut command = common::longshore(words);
        command.arg(&disk).arg("--model").arg(&model);
        command.output().unwrap()
    };
    let refused = calibrate("5G");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = answer(&refused)["error"]["text"].clone();
    assert!(why.as_str().unwrap().contains("--largest"), "{why}");
    let output = calibrate("64K");
    answer(&output);
    match output.status.code() {
        Some(0) => {
            let written = fs::read_to_string(&model).unwrap();
            assert!(written.contains("command_bytes = 65536\n"), "{written}");
        }
        code => assert_eq!(code, Some(1), "{output:?}"),
    }
}
