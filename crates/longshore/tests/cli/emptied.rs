//! Goal: nights of backups of a source that has lost its content leave the backups with content, are told, and count once
//! somebody confirms them.
//! Method: a database of 0 bytes, an emptied tree, and a tree whose root is another directory, as under a mount point; with full and
//! with incremental nights.
//! Not covered: file systems that do not tell when a file was made, where another root with some content is not noticed.

use serde_json::Value;

use crate::repository::configured;
use crate::stage::Stage;

fn kept(stage: &Stage, database: &str) -> Vec<String> {
    stage.names(format!("disk1/{database}"))
}

/// The grades of `check` about an emptied source.
fn warned(stage: &Stage, database: &str) -> Vec<String> {
    let ran = stage.line(&format!("--json check {database}"));
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    let findings = answer["databases"][0]["findings"].as_array().unwrap();
    let of = findings.iter().filter(|f| f["what"] == "emptied");
    of.map(|f| f["grade"].as_str().unwrap().to_owned())
        .collect()
}

/// Two backups with content, three nights without, and what becomes of them. Returns the first two.
fn nights(stage: &Stage, database: &str, empty: impl Fn(&Stage)) -> Vec<String> {
    let backup = format!("backup {database}");
    for _ in 0..2 {
        // Names are in the order of their seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage.line(&backup).exits(0);
    }
    let with = kept(stage, database);
    assert_eq!(warned(stage, database), [] as [&str; 0]);
    empty(stage);
    for _ in 0..3 {
        let told = stage.line(&format!("{backup} --verify")).exits(5);
        let next = format!("longshore restore --database {database} --target nightly --label");
        told.says("has lost its content")
            .says(&next)
            .says(&with[1])
            .says("may_be_empty = true");
        stage.line(&format!("expire {database}")).exits(0);
    }
    let after = kept(stage, database);
    assert!(with.iter().all(|label| after.contains(label)), "{after:?}");
    assert_eq!(after.len(), 5);
    assert_eq!(warned(stage, database), ["bad"]);
    stage
        .line(&format!("expire {database} --dry-run"))
        .exits(0)
        .says(&format!("its source had lost the content of {}", with[1]));
    with
}

#[test]
fn a_database_of_no_bytes_takes_the_place_of_none_that_had_rows_until_that_is_confirmed() {
    let stage = configured();
    let with = nights(&stage, "sales", |stage| {
        std::fs::write(stage.path("app.db"), b"").unwrap();
    });
    stage.line("backup sales --differential").exits(5);
    let file = "no-config/longshore/longshore.toml";
    let text = std::fs::read_to_string(stage.path(file)).unwrap();
    let confirmed = text.replace("[database.docs]", "may_be_empty = true\n[database.docs]");
    stage.write(file, confirmed.as_bytes());
    stage.line("backup sales").exits(0);
    assert_eq!(warned(&stage, "sales"), [] as [&str; 0]);
    stage.line("expire sales").exits(0);
    // Two full ones, and the differential of one of them.
    let left = kept(&stage, "sales");
    assert_eq!(left.len(), 3);
    assert!(!left.iter().any(|label| with.contains(label)), "{left:?}");
}

#[test]
fn a_tree_that_is_empty_or_another_with_little_in_it_counts_when_it_has_content_again() {
    for is_other in [false, true] {
        let stage = configured();
        stage.write("tree/large", &[7; 100_000]);
        nights(&stage, "docs", |stage| {
            std::fs::rename(stage.path("tree"), stage.path("away")).unwrap();
            std::fs::create_dir(stage.path("tree")).unwrap();
            if is_other {
                stage.write("tree/little", &[7; 9000]);
            }
        });
        std::fs::remove_dir_all(stage.path("tree")).unwrap();
        std::fs::rename(stage.path("away"), stage.path("tree")).unwrap();
        for _ in 0..2 {
            // The root came back after another one, which is told, too.
            let told = stage.line("backup docs");
            assert!(!told.err.contains("has lost its content"), "{}", told.err);
        }
        assert_eq!(warned(&stage, "docs"), [] as [&str; 0]);
    }
}

/// Goal: nights of incremental backups are told as full ones are, and what takes the newest backup without a word takes no empty one.
#[test]
fn incremental_nights_of_an_emptied_source_are_told_by_all_that_look_at_the_newest_backup() {
    for (database, little) in [
        ("sales", None),
        ("docs", None),
        ("docs", Some("tree/.keep")),
    ] {
        let stage = configured();
        stage.write("tree/large", &[7; 100_000]);
        let incremental = format!("backup {database} --incremental");
        stage.line(&format!("backup {database}")).exits(0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage.line(&incremental).exits(0);
        let with = kept(&stage, database);
        let metric = |value| {
            let at =
                format!("longshore_newest_emptied{{database=\"{database}\",target=\"nightly\"}}");
            stage
                .line(&format!("metrics {database}"))
                .says(&format!("{at} {value}\n"));
        };
        metric(0);
        match database {
            "sales" => std::fs::write(stage.path("app.db"), b"").unwrap(),
            _ => {
                std::fs::rename(stage.path("tree"), stage.path("away")).unwrap();
                std::fs::create_dir(stage.path("tree")).unwrap();
            }
        }
        if let Some(little) = little {
            stage.write(little, b"here");
        }
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(1100));
            let told = stage.line(&incremental).exits(5);
            told.says("has lost its content").says(&with[1]);
        }
        let newest = kept(&stage, database).pop().unwrap();
        stage.line(&format!("check {database}")).exits(1);
        assert_eq!(warned(&stage, database), ["bad"]);
        metric(1);
        let info = stage.line(&format!("info {database}")).exits(0);
        info.says(&format!("last good backup  {}", with[1]))
            .says(&format!("EMPTIED: {newest}: "));
        let told = format!("the source of {newest} had lost its content");
        let restore = format!("restore --database {database} --to");
        stage
            .line(&format!("{restore} newest"))
            .exits(5)
            .says(&told)
            .says(&format!("longshore {restore} newest --label {}", with[1]));
        stage
            .line(&format!("drill {database}"))
            .exits(5)
            .says(&told)
            .says(&format!("longshore drill {database} --label {}", with[1]));
        let named = stage.line(&format!("{restore} named --label {newest}"));
        named.exits(0);
        stage
            .line(&format!("{restore} filled --label {}", with[1]))
            .exits(0);
        let file = "no-config/longshore/longshore.toml";
        let text = std::fs::read_to_string(stage.path(file)).unwrap();
        let table = format!("[database.{database}]\n");
        let confirmed = text.replace(&table, &format!("{table}may_be_empty = true\n"));
        stage.write(file, confirmed.as_bytes());
        stage.line(&format!("{restore} confirmed")).exits(0);
        metric(0);
    }
}

/// Goal: an image that was made again, of holes alone, is no content, whatever its length.
#[test]
fn holes_are_no_content() {
    let stage = configured();
    stage.write("tree/large", &[7; 100_000]);
    stage.line("backup docs").exits(0);
    let with = kept(&stage, "docs");
    std::fs::rename(stage.path("tree"), stage.path("away")).unwrap();
    std::fs::create_dir(stage.path("tree")).unwrap();
    let image = std::fs::File::create(stage.path("tree/disk.img")).unwrap();
    image.set_len(3 << 30).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage
        .line("backup docs --differential")
        .exits(5)
        .says("has lost its content")
        .says(&with[0]);
    stage.line("check docs").exits(1).says(&with[0]);
    assert_eq!(warned(&stage, "docs"), ["bad"]);
}
