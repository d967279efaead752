//! Goal: `--as-of` reads a bucket as it was, whatever was removed or replaced since, and changes nothing there.
//! Method: moto and fake-gcs-server, stores in which another program removes and replaces objects; versitygw for a bucket
//! without versions.
//! Not covered: AWS and Google themselves, and stores that list versions in another order.

use std::process::Command;

use serde_json::Value;

use crate::common::store::{Generations, Store};
use crate::common::{longshore, text};
use crate::stage::Stage;

/// A database with a target in a bucket.
struct Past {
    stage: Stage,
    store: Store,
}

impl Past {
    fn new(store: Store) -> Past {
        let stage = Stage::new();
        std::fs::create_dir(stage.path("disk")).unwrap();
        let text = format!(
            "[database.sales]\nurl = \"files:{}\"\ntarget = \"t\"\n[target.t]\n\
             buckets = [\"s3://nightly/b\", \"s3://nightly/b\"]\n[target.d]\ndirectories = [\"{}\"]\n",
            stage.path("data").display(),
            stage.path("disk").display()
        );
        std::fs::create_dir(stage.path("data")).unwrap();
        stage.write("longshore.toml", text.as_bytes());
        Past { stage, store }
    }

    fn run(&self, line: &str, more: &[&str], code: i32) -> (String, String) {
        let mut command: Command = longshore(["--config"]);
        command.arg(self.stage.path("longshore.toml"));
        command.args(line.split_whitespace()).args(more);
        command.current_dir(self.stage.path(""));
        command.env("LONGSHORE_CATALOG", self.stage.path("history.db"));
        let ran = command.envs(self.store.settings()).output().unwrap();
        let (out, err) = (text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(code), "{line}\n{out}{err}");
        (out, err)
    }

    /// A backup of this content, and a moment after it.
    fn backup(&self, content: &str) -> (String, String) {
        self.stage.write("data/one", content.as_bytes());
        self.run("backup sales", &[], 0);
        let label = self.labels(&[]).pop().unwrap();
        (label, moment())
    }

    fn labels(&self, more: &[&str]) -> Vec<String> {
        let (listed, _) = self.run("--json info sales", more, 0);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let backups = listed["databases"][0]["backups"].as_array().unwrap();
        let label = |backup: &Value| backup["label"].as_str().unwrap().to_owned();
        backups.iter().map(label).collect()
    }

    fn content(&self, name: &str, time: &str) -> String {
        self.run(
            &format!("restore --database sales --to {name}"),
            &["--as-of", time],
            0,
        );
        text(&std::fs::read(self.stage.path(format!("{name}/one"))).unwrap())
    }

    fn versions(&self) -> String {
        self.store.send("GET", "?versions", "")
    }
}

/// The time between two objects: stores keep whole seconds.
fn moment() -> String {
    let pause = || std::thread::sleep(std::time::Duration::from_millis(1100));
    pause();
    let now = jiff::Timestamp::now().to_string();
    pause();
    now
}

#[test]
fn what_was_removed_or_replaced_comes_back_as_of_the_time_before() {
    let Some(store) = Store::with_versions() else {
        return;
    };
    let past = Past::new(store);
    let before = moment();
    let (first, after_first) = past.backup("first");
    let (second, after_second) = past.backup("second");
    past.store
        .send("DELETE", &format!("/b/sales/{first}/family-1.bak"), "");
    past.store
        .send("DELETE", &format!("/b/sales/{first}/family-2.bak"), "");
    past.store.send(
        "PUT",
        &format!("/b/sales/{second}/family-1.bak"),
        "encrypted",
    );
    let versions = past.versions();
    past.run("restore --database sales --to now", &[], 4);

    assert_eq!(past.content("one", &after_first), "first");
    assert_eq!(past.content("two", &after_second), "second");
    let by_label = ["--as-of", &after_second, "--label", &first];
    past.run("restore --database sales --to three", &by_label, 0);
    let (_, none) = past.run(
        "restore --database sales --to none",
        &["--as-of", &before],
        4,
    );
    assert!(none.contains("no backup"), "{none}");

    assert_eq!(past.labels(&["--as-of", &after_first]), [first]);
    let (said, _) = past.run("info sales", &["--as-of", &after_second], 0);
    assert!(said.contains(&second), "{said}");
    past.run("verify --database sales", &["--as-of", &after_second], 0);
    let devices = [1, 2].map(|n| format!("s3://nightly/b/sales/{second}/family-{n}.bak"));
    let named = [&devices[0], &devices[1], "--as-of", &after_second].map(|s| s as &str);
    past.run("list", &named, 0);
    past.run("verify", &named, 0);
    std::fs::remove_file(past.stage.path("history.db")).unwrap();
    past.run("catalog rebuild", &named, 0);
    let (history, _) = past.run("history", &[], 0);
    assert!(history.contains("sales"), "{history}");
    // No lease, no mark, no removal: nothing was written.
    assert_eq!(past.versions(), versions);
}

#[test]
fn a_place_that_keeps_no_versions_is_refused() {
    let Some(store) = Store::new() else { return };
    let past = Past::new(store);
    let (_, time) = past.backup("first");
    let as_of = ["--as-of", &time];
    let (_, err) = past.run("restore --database sales --to none", &as_of, 4);
    assert!(err.contains("keeps no versions"), "{err}");
    for line in [
        "restore --database sales --target d --to none",
        "list a.bak",
        "info sales --target d",
        "wal list --archive disk",
    ] {
        let (_, err) = past.run(line, &as_of, 2);
        assert!(err.contains("is no bucket"), "{line}: {err}");
    }
    let (_, err) = past.run("list a.bak", &["--as-of", "2026-01-01 00:00:00"], 2);
    assert!(err.contains("with its zone"), "{err}");
}

/// Puts all files below a directory into the bucket, below this prefix.
fn put_tree(store: &Generations, directory: &std::path::Path, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let key = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            keys.extend(put_tree(store, &entry.path(), &key));
        } else {
            store.put("nightly", &key, &std::fs::read(entry.path()).unwrap());
            keys.push(key);
        }
    }
    keys
}

/// Goal: the same over Google's protocol: generations that another program has replaced and removed are read as of the time
/// before, by name and by a target's listing, and nothing is written.
#[test]
fn generations_of_google_come_back_as_of_the_time_before() {
    let Some(store) = Generations::new() else {
        return;
    };
    let stage = Stage::new();
    std::fs::create_dir(stage.path("data")).unwrap();
    let disks = ["disk1", "disk2"].map(|name| stage.path(name));
    for disk in &disks {
        std::fs::create_dir(disk).unwrap();
    }
    let url = format!("url = \"files:{}\"", stage.path("data").display());
    let disk = disks.each_ref().map(|disk| disk.to_str().unwrap());
    for (name, target, places) in [
        ("longshore.toml", "d", format!("directories = {disk:?}")),
        (
            "google.toml",
            "g",
            "buckets = [\"gs://nightly/b\", \"gs://nightly/b\"]".to_owned(),
        ),
    ] {
        let text = format!(
            "[database.sales]\n{url}\ntarget = \"{target}\"\n[target.{target}]\n{places}\n"
        );
        stage.write(name, text.as_bytes());
    }
    let run = |line: &str, more: &[&str], code: i32| {
        let is_past = more.contains(&"--as-of");
        let config = if is_past {
            "google.toml"
        } else {
            "longshore.toml"
        };
        let mut command: Command = longshore(["--config"]);
        command.arg(stage.path(config));
        command.args(line.split_whitespace()).args(more);
        command.current_dir(stage.path(""));
        command.env("LONGSHORE_CATALOG", stage.path("history.db"));
        let ran = command.envs(store.settings()).output().unwrap();
        let (out, err) = (text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(code), "{line} {more:?}\n{out}{err}");
        out + &err
    };
    let devices = ["gs://nightly/k/1.bak", "gs://nightly/k/2.bak"];
    let backed_up = |content: &str| {
        stage.write("data/one", content.as_bytes());
        let stripes = [1, 2].map(|n| stage.path(format!("{content}-{n}.bak")));
        let [first, second] = stripes.each_ref().map(|path| path.to_str().unwrap());
        run("backup files:data --to", &[first, "--to", second], 0);
        run("backup sales", &[], 0);
        for (n, stripe) in stripes.iter().enumerate() {
            let key = format!("k/{}.bak", n + 1);
            store.put("nightly", &key, &std::fs::read(stripe).unwrap());
        }
        let keys = disks.each_ref().map(|disk| put_tree(&store, disk, "b"));
        (keys.concat(), moment())
    };
    let before = moment();
    let (_, after_first) = backed_up("first");
    let (keys, after_second) = backed_up("second");
    for key in keys
        .iter()
        .map(String::as_str)
        .chain(["k/1.bak", "k/2.bak"])
    {
        store.remove("nightly", key);
    }
    let after_all = moment();
    let kept = store.listed("nightly");

    let content = |name: &str| text(&std::fs::read(stage.path(format!("{name}/one"))).unwrap());
    for (name, time, expected) in [
        ("one", &after_first, "first"),
        ("two", &after_second, "second"),
    ] {
        let more = [devices[0], devices[1], "--to", name, "--as-of", time];
        run("restore", &more, 0);
        assert_eq!(content(name), expected);
        run("verify", &[devices[0], devices[1], "--as-of", time], 0);
        let by_target = format!("restore --database sales --to {name}-t");
        run(&by_target, &["--as-of", time], 0);
        assert_eq!(content(&format!("{name}-t")), expected);
        let listed = run("--json info sales", &["--as-of", time], 0);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let backups = listed["databases"][0]["backups"].as_array().unwrap();
        assert_eq!(backups.len(), if expected == "first" { 1 } else { 2 });
    }
    for time in [&before, &after_all] {
        let more = [devices[0], devices[1], "--to", "none", "--as-of", time];
        run("restore", &more, 4);
        let none = run("restore --database sales --to none", &["--as-of", time], 4);
        assert!(none.contains("no backup"), "{none}");
    }
    // No lease, no mark, no removal: nothing was written.
    assert_eq!(store.listed("nightly"), kept);

    let said = run("list gs://none/1.bak", &["--as-of", &after_all], 4);
    assert!(said.contains("does not exist"), "{said}");
    store.put("plain", "1.bak", b"x");
    let said = run("list gs://plain/1.bak", &["--as-of", &after_all], 4);
    assert!(said.contains("keeps no versions"), "{said}");
}
