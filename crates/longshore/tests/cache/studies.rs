//! `longshore cache simulate`: its output for programs.

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
        (&told["fast"], &told["slow"], &told["seed"]),
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
    let mut command = common::longshore(["cache", "calibrate", "--seconds", "0.01"]);
    command.arg(&disk).arg("--model").arg(&model);
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    match output.status.code() {
        Some(0) => {
            let told = simulate(&["--fast-model", model.to_str().unwrap()]);
            assert_eq!(told["fast"], "calibrated");
        }
        Some(1) => {
            assert!(!model.exists(), "{said}");
            assert!(said.contains('%'), "it says how far it is off: {said}");
        }
        other => panic!("{other:?}: {said}"),
    }
}
