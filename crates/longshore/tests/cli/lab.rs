//! Goal: sample data and studies do through the command line what their options say, and write the reports that were
//! asked for.
//! Method: the real program on a few megabytes; the reports are read as JSON, HTML and Markdown.
//! Not covered: the figures themselves.

use std::fs;

use serde_json::Value;

use crate::stage::Stage;

/// The report of a study that also writes two pages, `pages/s.html` and `pages/s.md`, with `heading` as text.
fn reported(stage: &Stage, line: &str, heading: &str) -> Value {
    let ran = stage.line(&format!("{line} --json")).exits(0);
    let page = |name: &str| fs::read_to_string(stage.path("pages").join(name)).unwrap();
    let (html, markdown) = (page("s.html"), page("s.md"));
    assert!(html.contains("<html") && html.contains(heading), "{html}");
    assert!(markdown.contains(&format!("## {heading}")), "{markdown}");
    fs::remove_dir_all(stage.path("pages")).unwrap();
    serde_json::from_str(&ran.out).unwrap()
}

/// A fact of the report's head.
fn fact<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    let facts = report["platform"].as_array().unwrap();
    facts.iter().find(|row| row[0] == name)?[1].as_str()
}

/// A paragraph of the first section begins so.
fn has_prose(report: &Value, begin: &str) {
    let prose = report["sections"][0]["prose"].as_array().unwrap();
    let begins = |told: &Value| told.as_str().unwrap().starts_with(begin);
    assert!(prose.iter().any(begins), "{prose:?}");
}

/// The first paragraph of a section.
fn prose(report: &Value, section: usize) -> &str {
    report["sections"][section]["prose"][0].as_str().unwrap()
}

#[test]
fn sample_databases_have_the_size_asked_for_and_the_same_bytes_every_time() {
    let stage = Stage::new();
    for kind in ["tprocc", "stae"] {
        let line = format!("lab sample {kind} --size 3M {kind}.db --json");
        let ran = stage.line(&line).exits(0);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        let bytes = value["bytes"].as_u64().unwrap();
        assert!(
            (bytes as f64 / f64::from(3 << 20) - 1.0).abs() < 0.02,
            "{bytes}"
        );
        stage.line(&line).exits(2).says("exists");
        let first = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        stage.line(&format!("{line} --replace")).exits(0);
        let second = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        assert!(first == second);
    }
    stage
        .line("lab sample stae --size 4M --files 2 --dir x --dir y")
        .exits(0);
    assert_eq!(stage.names("x"), ["stae-1.db"]);
    assert_eq!(stage.names("y"), ["stae-2.db"]);
}

/// Goal: the bench measures everything that it promises, about the program itself too.
/// Method: the whole bench over a few megabytes. Whether goals are met does not matter here.
#[test]
fn the_bench_measures_parts_pipeline_memory_and_ceilings() {
    let stage = Stage::new();
    let ran = stage
        .line("lab bench --quick --rounds 2 --size 4M --work kept --dir stripes --html out/bench.html --markdown out/bench.md --json")
        .exits(0);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let rows = |heading: &str| {
        let section = sections.iter().find(|s| s["heading"] == heading);
        let rows =
            &section.unwrap_or_else(|| panic!("{heading} is missing"))["table"]["row_values"];
        rows.as_array().unwrap().clone()
    };
    for (heading, count) in [
        ("The single steps", 13),
        ("To NUL, warm cache", 10),
        ("To disk", 5),
        ("Cold cache", 1),
        ("Restore to disk", 10),
        ("Peak memory", 8),
        ("Ceilings", 2),
        ("QAT_DEFLATE against MS_XPRESS", 3),
        ("Levels of DEFLATE and MS_XPRESS", 6),
    ] {
        let rows = rows(heading);
        assert_eq!(rows.len(), count, "{heading}");
        for row in rows {
            let missing = row.as_array().unwrap()[1].is_null();
            assert!(!missing, "{heading}: {row}");
        }
    }
    // A process of this program has some megabytes resident, and at most what it prints.
    for row in rows("Peak memory") {
        let (peak, bound) = (row[1].as_f64().unwrap(), row[2].as_f64().unwrap());
        assert!(peak > 3.0 && peak < bound, "{row}");
    }
    assert_eq!(stage.names("out"), ["bench.html", "bench.md"]);
    let markdown = std::fs::read_to_string(stage.path("out/bench.md")).unwrap();
    assert!(markdown.contains("## Peak memory"));
    assert_eq!(stage.names("kept").len(), 1, "only the sample is kept");
    assert!(stage.names("stripes").is_empty(), "stripes are removed");
    assert!(markdown.contains("2 rounds"), "{markdown}");
}

#[test]
fn a_study_that_cannot_begin_says_why() {
    let stage = Stage::new();
    stage.line("lab sweep").exits(2).says("--dir");
    stage
        .line("lab sweep --dir d --source no-such.db")
        .exits(3)
        .says("no-such.db");
    stage
        .line("lab bench --quick --source no-such.db")
        .exits(3)
        .says("no-such.db");
    stage.write("file", b"x");
    stage
        .line("lab sweep --dir file --quick --size 3M")
        .exits(6)
        .says("file");
}

#[test]
fn a_sample_has_other_content_with_another_seed_and_another_journal_on_request() {
    let stage = Stage::new();
    let built = |name: &str, more: &str| {
        stage
            .line(&format!("lab sample stae --size 2M {name} {more}"))
            .exits(0);
        fs::read(stage.path(name)).unwrap()
    };
    let usual = built("usual.db", "");
    assert!(usual == built("same.db", "--seed 1"));
    assert!(usual != built("other.db", "--seed 2"));
    // The versions of the file format for writing and reading: 1 is a rollback journal, 2 a write-ahead log.
    assert_eq!(usual[18..20], [1, 1]);
    assert_eq!(built("wal.db", "--wal")[18..20], [2, 2]);
}

#[test]
fn a_comparison_has_the_source_stripes_rounds_and_directories_asked_for() {
    let stage = Stage::new();
    stage.write("tree/a", &vec![b'a'; 2 << 20]);
    let report = reported(
        &stage,
        "lab compare --source tree --stripes 2 --rounds 2 --dir out --html pages/s.html --markdown pages/s.md",
        "tree",
    );
    let advice = prose(&report, 0);
    assert!(advice.starts_with("Take "), "{advice}");
    has_prose(&report, "2 stripes in one directory; medians of 2 rounds,");
    assert_eq!(
        fact(&report, "Database tree"),
        Some("files:tree, 2.1 MB (10^6)")
    );
    assert!(stage.names("out").is_empty(), "stripes are removed");
    let table = &report["sections"][0]["table"];
    assert_eq!(table["row_values"].as_array().unwrap().len(), 10);
    assert!(!report["summary"].as_str().unwrap().contains("Quick run"));

    let report = reported(
        &stage,
        "lab compare --quick --size 3M --work kept --html pages/s.html --markdown pages/s.md",
        "tprocc",
    );
    assert!(report["summary"].as_str().unwrap().contains("Quick run"));
    has_prose(&report, "8 stripes to NUL; one round.");
    let kept = stage.names("kept");
    assert_eq!(kept, ["stae-3145728.db", "tprocc-3145728.db"]);
}

#[test]
fn a_sweep_of_buffers_has_the_algorithm_asked_for_and_one_of_stripes_pauses() {
    let stage = Stage::new();
    stage.write("tree/a", &vec![b'a'; 1 << 20]);
    let report = reported(
        &stage,
        "lab sweep --buffers --algorithm LZ4 --source tree --quick --html pages/s.html --markdown pages/s.md",
        "Buffers",
    );
    let told = prose(&report, 0);
    assert!(told.starts_with("Backups with LZ4;"), "{told}");
    let told = report["summary"].as_str().unwrap();
    assert!(
        told.contains("The fastest backup to NUL with LZ4:"),
        "{told}"
    );
    assert_eq!(fact(&report, "Source"), Some("files:tree"));

    let sweep = "lab sweep --dir out --source tree --quick";
    let began = std::time::Instant::now();
    let line = format!("{sweep} --pause 1 --html pages/s.html --markdown pages/s.md");
    let report = reported(&stage, &line, "10 backups");
    // A pause between any two of the ten backups.
    assert!(began.elapsed().as_secs() >= 9, "{:?}", began.elapsed());
    assert!(prose(&report, 2).contains("1 s pass between backups"));
    // Options of the one sweep are refused with the other.
    stage
        .line("lab sweep --buffers --source tree --quick --pause 1")
        .exits(2)
        .says("--pause");
    stage
        .line(&format!("{sweep} --algorithm LZ4"))
        .exits(2)
        .says("--algorithm");
}

#[test]
fn a_sweep_of_layouts_says_that_its_devices_are_emulated() {
    let stage = Stage::new();
    stage.write("tree/a", &vec![b'a'; 1 << 20]);
    let sweep = "lab sweep --layouts --source tree --quick --dir x --dir y";
    let line = format!(
        "{sweep} --algorithm LZ4 --emulate 50M --emulate-source 100M,0.5ms --html pages/s.html --markdown pages/s.md"
    );
    let caption = "emulated at 50 MB/s, the source at 100 MB/s and 0.5 ms";
    let report = reported(&stage, &line, &format!("Best of each layout ({caption})"));
    let told = report["summary"].as_str().unwrap();
    assert!(
        told.contains(&format!("The devices are not real: {caption}."))
            && told.contains("Best with LZ4: "),
        "{told}"
    );
    for dir in ["x", "y"] {
        assert!(stage.names(dir).is_empty(), "stripes are removed");
    }
    let line = format!("{sweep} --html pages/s.html --markdown pages/s.md");
    let report = reported(
        &stage,
        &line,
        "Best of each layout (2 directories of one drive)",
    );
    assert!(!report.to_string().contains("emulated"), "{report}");
    for (line, option) in [
        (
            "lab sweep --dir x --source tree --quick --emulate 50M",
            "--emulate",
        ),
        ("lab sweep --layouts --source tree --quick", "--dir"),
        (
            "lab sweep --layouts --buffers --dir x --source tree --quick",
            "--buffers",
        ),
        (
            "lab sweep --layouts --dir x --source tree --emulate-source 50M",
            "--emulate",
        ),
        (
            "lab sweep --layouts --dir x --source tree --emulate 50K",
            "1M",
        ),
    ] {
        stage.line(line).exits(2).says(option);
    }
}

/// A model file of a device that reads and writes 4 KiB in about `read_us`.
fn model(read_us: u32) -> String {
    format!(
        "longshore device model 1\nunits = 8\nchunk_bytes = 4096\nread_us = {read_us}\nfixed_us = 1\nread_mb_s = 2000\n\
         command_bytes = 131072\ncommand_us = 0.2\nnear_percent = 95\n"
    )
}

#[test]
fn the_map_of_two_devices_says_which_answers_sooner() {
    let stage = Stage::new();
    stage.write("quick.model", model(5).as_bytes());
    stage.write("slow.model", model(500).as_bytes());
    let map = |more: &str| {
        let ran = stage.line(&format!("lab cache-figures --quick --json {more}"));
        let report: Value = serde_json::from_str(&ran.exits(0).out).unwrap();
        report["sections"].clone()
    };
    let ratio = |sections: &Value, depth: usize, size: usize| {
        let chart = &sections[0]["charts"][0];
        assert_eq!(chart["form"], "map");
        chart["series"][depth]["values"][size].as_f64().unwrap()
    };
    let both = map("--fast-model quick.model --slow-model slow.model --html pair.html");
    assert!(ratio(&both, 0, 0) > 50.0, "{both}");
    let said = both[1]["prose"].to_string();
    assert!(
        said.contains("No writes were measured of quick.model and of slow.model"),
        "{said}"
    );
    // The recorded queries, on these two.
    let queries = &both[2]["table"]["row_values"];
    assert_eq!(queries.as_array().unwrap().len(), 22, "{both}");
    for query in queries.as_array().unwrap() {
        let [quick, slow] = [5, 6].map(|n| query[n].as_f64().unwrap());
        assert!(slow > 5.0 * quick, "{query}");
    }
    let page = fs::read_to_string(stage.path("pair.html")).unwrap();
    assert!(page.contains("<figure class=\"map\">") && page.contains("class=\"number m3\""));
    let turned = map("--fast-model slow.model --slow-model quick.model");
    assert!(ratio(&turned, 0, 0) < 0.02, "{turned}");
    // One model goes with the other device of the pair.
    let mixed = map("--pair optane-905p/sata-ssd --fast-model slow.model");
    assert!(ratio(&mixed, 0, 0) < 1.0, "{mixed}");
    let pair = map("--pair optane-905p/sata-ssd");
    assert!(ratio(&pair, 0, 0) > 1.0, "{pair}");
    stage
        .line("lab cache-figures --quick --pair optane-905p")
        .exits(2)
        .says("is not a pair");
}

#[test]
fn figures_of_a_cache_are_those_of_their_seed() {
    let stage = Stage::new();
    let figures = |seed: u32| {
        let pages = "--html pages/s.html --markdown pages/s.md";
        let line = format!("lab cache-figures --quick --seed {seed} {pages}");
        let report = reported(&stage, &line, "Latency, flash over Optane (modelled)");
        assert!(report["summary"].as_str().unwrap().starts_with("Quick run"));
        report["sections"].clone()
    };
    assert_ne!(figures(1), figures(2));
}
