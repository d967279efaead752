//! Goal: resident memory stays within the bound that the plan prints, and limits on rate and CPU hold, measured from
//! outside.
//! Method: the real program as a child; the system's own account of it (`wait4`). Sizes by the environment:
//! `LONGSHORE_MEGABYTES` (300) of large files, `LONGSHORE_FILES` (20000) small ones. One test at a time: rates are
//! measured.

mod common;
#[path = "../../core/pipeline/tests/common/forge.rs"]
mod forge;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use longshore_io::{Host, Storage};
use longshore_media::{DeviceSpec, EntryKind, Extent, Item, MediaSet};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(1800);

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> impl Drop {
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Writes a file in small pieces: a child's resident set begins with ours.
fn write_file(path: &Path, seed: u64, megabytes: u64) {
    let mut file = File::create(path).unwrap();
    for piece in 0..megabytes {
        file.write_all(&content(seed ^ (piece << 20), 1 << 20))
            .unwrap();
    }
}

fn args(what: &str, devices: &[PathBuf], more: &[&str]) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec![what.into(), "--json".into()];
    args.extend(devices.iter().map(|d| d.clone().into_os_string()));
    args.extend(more.iter().map(Into::into));
    args
}

fn backup_args(source: &Path, devices: &[PathBuf], more: &[&str]) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["backup".into(), "--json".into(), source.into()];
    for device in devices {
        args.extend(["--to".into(), device.into()]);
    }
    args.extend(more.iter().map(Into::into));
    args
}

/// Runs a command and compares the system's account with the printed bound.
fn within_bound(what: &str, args: &[OsString]) -> Value {
    keeps_to_its_bound(what, &mut longshore(args))
}

fn keeps_to_its_bound(what: &str, command: &mut Command) -> Value {
    let used = measure(command, PATIENCE);
    assert_eq!(
        used.code,
        Some(0),
        "{what}: {} {}",
        text(&used.stdout),
        used.stderr
    );
    let answer = used.answer();
    let bound = find(&answer, "memory_bytes")
        .and_then(Value::as_u64)
        .unwrap();
    println!(
        "{what}: {:.1} of {:.1} MiB, {:.1?}, {:.1?} CPU",
        used.resident_bytes as f64 / 1048576.0,
        bound as f64 / 1048576.0,
        used.wall,
        used.cpu
    );
    assert!(
        used.resident_bytes as f64 <= bound as f64 * 1.1,
        "{what}: {} bytes resident, {bound} were promised",
        used.resident_bytes
    );
    answer
}

/// A member of an answer, wherever it is.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => members
            .get(name)
            .or_else(|| members.values().find_map(|v| find(v, name))),
        Value::Array(items) => items.iter().find_map(|v| find(v, name)),
        _ => None,
    }
}

#[test]
fn a_copy_stays_within_the_printed_bound() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["source", "near1", "near2", "near3", "far"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let megabytes = from_env("LONGSHORE_MEGABYTES", 300);
    write_file(&path("source").join("f"), 7, megabytes);
    let at = |name: &str| path(name).display().to_string();
    let config = format!(
        "[database.tree]\nurl = \"files:{}\"\ntarget = \"near\"\ncopies = [\"far\"]\n\
         [target.near]\ndirectories = [\"{}\", \"{}\", \"{}\"]\n[target.far]\ndirectories = [\"{}\"]\n",
        at("source"),
        at("near1"),
        at("near2"),
        at("near3"),
        at("far"),
    );
    std::fs::write(path("longshore.toml"), config).unwrap();
    let run = |line: &str| -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--json".into(), "--config".into()];
        args.push(path("longshore.toml").into());
        args.extend(line.split(' ').map(Into::into));
        args
    };
    within_bound("backup", &run("backup tree --algorithm NONE"));
    let answer = within_bound("copy", &run("copy tree"));
    assert_eq!(answer["databases"][0]["copied"], 1);
}

#[test]
fn large_files_stay_within_the_printed_bound() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let megabytes = from_env("LONGSHORE_MEGABYTES", 300);
    for i in 0..5 {
        write_file(&source.join(format!("f{i}")), i, megabytes / 5);
    }
    for (algorithm, count) in [("QAT_DEFLATE", 4), ("ZSTD", 1)] {
        let devices: Vec<_> = (0..count)
            .map(|i| dir.path().join(format!("{algorithm}.{i}")))
            .collect();
        let what = |act| format!("{act} {megabytes} MB, {algorithm} x{count}");
        let more = ["--algorithm", algorithm];
        within_bound(&what("backup"), &backup_args(&source, &devices, &more));
        within_bound(&what("verify"), &args("verify", &devices, &[]));
        let target = dir.path().join("out");
        let to = ["--to", target.to_str().unwrap()];
        within_bound(&what("restore"), &args("restore", &devices, &to));
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// Goal: parts that are sent and ranges that are read ahead are in the bound, for one stripe and for several.
#[test]
fn objects_stay_within_the_printed_bound() {
    let _alone = alone();
    let Some(store) = common::store::Store::new() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let megabytes = from_env("LONGSHORE_MEGABYTES", 300);
    write_file(&source.join("file"), 1, megabytes);
    for count in [1, 3] {
        let devices: Vec<PathBuf> = (0..count)
            .map(|i| format!("{}/memory/{count}-{i}.bak", store.bucket()).into())
            .collect();
        let within = |act: &str, args: &[OsString]| {
            let mut command = longshore(args);
            command
                .envs(store.settings())
                .env("LONGSHORE_ALLOW_HTTP", "1");
            let (name, secret) = store.secret();
            command.env(name, secret);
            keeps_to_its_bound(
                &format!("{act} {megabytes} MB to {count} objects"),
                &mut command,
            );
        };
        // Content that stays as it is: all of it is sent.
        let more = ["--algorithm", "NONE"];
        within("backup", &backup_args(&source, &devices, &more));
        within("verify", &args("verify", &devices, &[]));
        let target = dir.path().join("out");
        let to = ["--to", target.to_str().unwrap()];
        within("restore", &args("restore", &devices, &to));
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// The library's double keeps nothing of what it compresses; its allocations per call are within the tenth.
#[test]
fn a_backup_through_an_accelerator_stays_within_the_printed_bound() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    write_file(&source.join("file"), 1, 96);
    qatzip::stage::machine(&dir.path().join("sys")).unwrap();
    let library = qatzip::stage::install(dir.path(), "").unwrap();
    for mode in ["hardware", "hybrid"] {
        let device = dir.path().join(mode);
        let more = ["--offload", mode];
        let mut command = longshore(backup_args(&source, &[device], &more));
        command
            .env("LONGSHORE_SYSFS", dir.path().join("sys"))
            .env("LONGSHORE_QATZIP", &library)
            .env("LONGSHORE_CUDA", "off");
        let answer = keeps_to_its_bound(&format!("backup, {mode}"), &mut command);
        let engines = &answer["run"]["engines"];
        assert!(engines[1]["blocks"].as_u64().unwrap() > 0, "{engines}");
    }
}

#[test]
fn many_small_files_stay_within_the_printed_bound() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let files = from_env("LONGSHORE_FILES", 20_000);
    // Half of the files next to each other in the top directory, half of them spread.
    std::fs::create_dir(&source).unwrap();
    for i in 0..files {
        let path = match i % 2 {
            0 => source.join(format!("a file at the top, number {i:08}")),
            _ => {
                let below = source.join(format!("dir {:04}", i / 200));
                if i % 200 == 1 {
                    std::fs::create_dir(&below).unwrap();
                }
                below.join(format!("a file below, number {i:08}"))
            }
        };
        std::fs::write(path, content(i, (i % 700) as usize)).unwrap();
    }
    let devices: Vec<_> = (0..2)
        .map(|i| dir.path().join(format!("{i}.bak")))
        .collect();
    let what = |act| format!("{act} {files} files");
    let report = within_bound(&what("backup"), &backup_args(&source, &devices, &[]));
    assert_eq!(
        find(&report, "file_count").and_then(Value::as_u64),
        Some(files)
    );
    within_bound(&what("verify"), &args("verify", &devices, &[]));
    let target = dir.path().join("out");
    let to = ["--to", target.to_str().unwrap()];
    let report = within_bound(&what("restore"), &args("restore", &devices, &to));
    assert_eq!(
        find(&report, "file_count").and_then(Value::as_u64),
        Some(files)
    );

    // A differential set that takes every byte from its base, except one in each file.
    let newer = dir.path().join("newer.bak");
    forge_differential(&devices, &newer);
    let (base, second) = (devices[0].to_str().unwrap(), devices[1].to_str().unwrap());
    let target = dir.path().join("merged");
    let more = ["--base", base, second, "--to", target.to_str().unwrap()];
    let report = within_bound(
        &what("restore of two sets,"),
        &args("restore", &[newer], &more),
    );
    assert_eq!(
        find(&report, "file_count").and_then(Value::as_u64),
        Some(files)
    );
    let merged = std::fs::read(target.join("dir 0000/a file below, number 00000101"));
    let mut expected = content(101, 101);
    expected[0] = b'!';
    assert_eq!(merged.unwrap(), expected);
}

/// Names everything that the set on `devices` has, and changes the first byte of each file.
fn forge_differential(devices: &[PathBuf], newer: &Path) {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let opened: Vec<_> = devices
        .iter()
        .map(|path| DeviceSpec::File(path.clone()).open(&storage))
        .collect();
    let media = MediaSet::open(&opened).unwrap();
    let header = media.set(0).unwrap().header;
    let mut blocks = vec![forge::Block::default()];
    media
        .items(header.position, |item| {
            let Item::Entry(mut entry) = item else { return };
            if !entry.first {
                return;
            }
            if blocks.last().unwrap().0.len() > 400 {
                blocks.push(forge::Block::default());
            }
            let (items, plain) = blocks.last_mut().unwrap();
            entry.based = entry.kind == EntryKind::File;
            let has_bytes = entry.based && entry.len > 0;
            items.push(Item::Entry(entry));
            if has_bytes {
                items.push(Item::Extent(Extent { offset: 0, len: 1 }));
                plain.push(b'!');
            }
        })
        .unwrap();
    let claims = forge::Claims::new(Some(header.set));
    let to = [DeviceSpec::File(newer.to_owned())];
    forge::write(&storage, &to, &claims, &blocks, |_| 0);
}

#[test]
fn the_limit_on_the_rate_holds() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    write_file(&source.join("file"), 1, 40);
    for act in ["backup", "verify", "restore"] {
        let seconds = |name: &str, limit: &[&str]| {
            let media = [dir.path().join(name)];
            let target = dir.path().join(format!("{name}.out"));
            let to = ["--to", target.to_str().unwrap()];
            let args = match act {
                "backup" => backup_args(&source, &media, limit),
                "verify" => args(act, &media, limit),
                _ => args(act, &media, &[limit, &to].concat()),
            };
            let used = measure(&mut longshore(&args), PATIENCE);
            assert_eq!(used.code, Some(0), "{}", used.stderr);
            (used.wall.as_secs_f64(), used.answer())
        };
        let (free, _) = seconds("free", &[]);
        let (limited, answer) = seconds("limited", &["--max-rate", "20M"]);
        // On a machine that is slower by itself, the rate is not what limits the run.
        if free * 2.0 < limited && limited < 2.5 {
            assert_eq!(find(&answer, "limit"), Some(&Value::from("rate")), "{act}");
        }
        samples_show_the_rate(act, find(&answer, "samples").unwrap());
        // The first buffer is free.
        let rate = (40.0 - 1.0) / limited;
        println!("{act}: {rate:.1} MiB/s of 20; without a limit {free:.1} s");
        assert!(rate <= 20.0 * 1.1, "{act}: {rate} MiB/s");
        // A limit mistaken for a tenth of it would show, unless the machine itself is that slow.
        let slowest = (40.0 - 1.0) / (20.0 * 0.11) + 10.0 * free;
        assert!(limited <= slowest, "{act}: {rate} MiB/s");
    }
}

/// The samples of 40 MiB at 20 MiB/s: one a second, in total not more than 40 MiB.
fn samples_show_the_rate(act: &str, samples: &Value) {
    let number = |sample: &Value, name: &str| sample[name].as_f64().unwrap();
    let mut before = 0.0;
    let mut moved = 0.0;
    for sample in samples.as_array().unwrap() {
        let seconds = number(sample, "at_ms") / 1000.0 - before;
        assert!(seconds > 0.0, "{act}: {samples}");
        before += seconds;
        let rate = number(sample, "read_bytes_per_s");
        // The first buffer is free, and another may have waited long for a busy machine.
        assert!(
            rate * seconds <= 20.0 * 1048576.0 * seconds + 8e6,
            "{act}: {samples}"
        );
        moved += rate * seconds;
        assert!(number(sample, "cpu_percent") <= 100.0, "{act}: {samples}");
    }
    // Times are given in milliseconds.
    assert!(moved > 0.0 && moved <= 41.0 * 1048576.0, "{act}: {samples}");
}

#[test]
fn the_ceiling_on_cpu_time_holds() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    std::fs::create_dir(&large).unwrap();
    std::fs::create_dir(&small).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    for source in [&large, &small] {
        let more = ["--algorithm", "ZSTD", "--level", "12", "--max-cpu", "20"];
        let args = backup_args(source, &[PathBuf::from("nul:")], &more);
        // More of the same until the run is long enough that the start of the program does not count: the speed of the
        // machine must not matter.
        let mut part = 0;
        let used = loop {
            if *source == large {
                write_file(&large.join(part.to_string()), part, 40 << part);
            } else {
                for i in 0..6_000 << part {
                    let name = format!("{part}.{i}");
                    std::fs::write(small.join(name), content(i, 3000)).unwrap();
                }
            }
            let used = measure(&mut longshore(&args), PATIENCE);
            assert_eq!(used.code, Some(0), "{}", used.stderr);
            part += 1;
            if used.wall > Duration::from_secs(1) || part == 8 {
                break used;
            }
        };
        let percent = 100.0 * used.cpu.as_secs_f64() / used.wall.as_secs_f64() / cores;
        println!(
            "{}: {percent:.1} % of 20 over {:.1?}",
            source.display(),
            used.wall
        );
        assert!(
            percent <= 20.0 * 1.15,
            "{percent} % of the machine: {used:?}"
        );
    }
}

/// The number of sets in the long history.
const SETS: usize = 25_000;
/// The program itself takes some 20 MiB; with all rows in memory it took more.
const HISTORY_BOUND: u64 = 30 << 20;

#[test]
fn a_long_history_is_listed_and_checked_a_page_at_a_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (source, media) = (dir.path().join("file"), dir.path().join("a.bak"));
    std::fs::write(&source, b"content").unwrap();
    let catalog = dir.path().join("catalog.db");
    let run = |more: &[&str]| {
        let mut command = longshore(more);
        let used = measure(command.env("LONGSHORE_CATALOG", &catalog), PATIENCE);
        assert_eq!(used.code, Some(0), "{more:?}: {}", used.stderr);
        used
    };
    let (source, media) = (source.to_str().unwrap(), media.to_str().unwrap());
    let out = dir.path().join("out");
    run(&["backup", source, "--to", media]);
    run(&["restore", media, "--to", out.to_str().unwrap()]);
    multiply_history(&catalog);

    let bounded = |what: &[&str]| {
        let used = run(what);
        let resident = used.resident_bytes;
        println!(
            "{what:?}: {:.1} MiB, {:.1?}",
            resident as f64 / 1048576.0,
            used.wall
        );
        assert!(
            resident <= HISTORY_BOUND,
            "{what:?}: {resident} bytes resident"
        );
        used
    };
    for (what, count) in [("history", SETS + 1), ("restores", SETS + 1)] {
        let mut line = vec!["history", "--limit", "0"];
        line.extend((what == "restores").then_some("--restores"));
        let answer = bounded(&line);
        let said = text(&answer.stdout);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), count + 1, "{what}");
        // The widest cell, which is on the last page, is in its column too.
        let column = lines[0].find("database").unwrap();
        let is_set = |line: &&str| line[column - 1..].starts_with(" set ");
        assert_eq!(
            lines[1..].iter().filter(|l| is_set(l)).count(),
            SETS,
            "{what}"
        );

        line.push("--json");
        let answer: Value = bounded(&line).answer();
        assert_eq!(
            (&answer["action"], &answer["status"]),
            (&what.into(), &"ok".into())
        );
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(rows.len(), count);
        // Newest first, each once; many ended in the same microsecond.
        let id = match what {
            "history" => "backup_set_id",
            _ => "restore_history_id",
        };
        let key = |row: &Value| (row["finish_us"].as_i64(), row[id].as_i64());
        assert!(rows.windows(2).all(|w| key(&w[0]) > key(&w[1])), "{what}");
    }
    bounded(&["catalog", "rebuild", media]);
}

/// Adds sets and restores that are older than the existing ones.
fn multiply_history(catalog: &Path) {
    let db = rusqlite::Connection::open(catalog).unwrap();
    let numbers =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {SETS})");
    let guid = "printf('%08x-0000-4000-8000-000000000000', i)";
    db.execute_batch(&format!(
        "BEGIN;
         {numbers} INSERT INTO backupmediaset (media_uuid, media_family_count) SELECT {guid}, 1 FROM n;
         {numbers} INSERT INTO backupmediafamily (media_set_id, family_sequence_number, physical_device_name, mirror)
             SELECT media_set_id, 1, '/backups/' || i || '.bak', 0 FROM n JOIN backupmediaset ON media_uuid = {guid};
         {numbers} INSERT INTO backupset (backup_set_uuid, media_set_id, position, database_name, type, name,
                 backup_start_date, backup_finish_date, backup_size, compressed_backup_size, compression_algorithm,
                 is_copy_only, is_damaged, longshore_start_us, longshore_finish_us, longshore_file_count)
             SELECT {guid}, media_set_id, 1, 'set', 'D', 'backup ' || i, '2020-01-01T00:00:00.000',
                 '2020-01-01T00:00:01.000', 1000000, 1000, 'ZSTD', 0, 0, i / 7, i / 7, 1
             FROM n JOIN backupmediaset ON media_uuid = {guid};
         {numbers} INSERT INTO restorehistory (restore_date, destination_database_name, backup_set_id, restore_type,
                 \"replace\", longshore_start_us, longshore_finish_us, longshore_target, longshore_size)
             SELECT '2020-01-01T00:00:02.000', 'set', backup_set_id, 'D', 0, i / 7, i / 7, '/out/' || i, 1000000
             FROM n JOIN backupset ON backup_set_uuid = {guid};
         COMMIT;"
    ))
    .unwrap();
}
