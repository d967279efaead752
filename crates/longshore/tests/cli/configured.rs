//! Goal: databases, targets and defaults from a configuration are used where no option says otherwise, mistakes in it
//! are refused before anything happens, and a password in it is shown nowhere.
//! Method: the real program with SQLite databases and configurations in a scratch directory.
//! Not covered: servers, which `cluster.rs` configures.

use crate::stage::Stage;

fn configured() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 2);
    for dir in ["disk1", "disk2"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\ntarget = \"nightly\"\n\
         [target.nightly]\ndirectories = [\"{}\", \"{}\"]\n\
         [defaults]\nalgorithm = \"ZSTD\"\nlevel = 3\nretain_days = 7\n",
        stage.path("app.db").display(),
        stage.path("disk1").display(),
        stage.path("disk2").display(),
    );
    stage.write("longshore.toml", text.as_bytes());
    stage
}

#[test]
fn locks_are_vouched_for_only_where_there_are_some() {
    let stage = Stage::new();
    stage.write(
        "c.toml",
        b"[database.tree]\nurl = \"files:/srv/tree\"\ntrust_locks = true\n",
    );
    stage
        .line("--config c.toml config check")
        .exits(2)
        .says("[database.tree]: `trust_locks` is for");
    stage.write(
        "c.toml",
        b"[database.app]\nurl = \"sqlite:/srv/app.db\"\ntrust_locks = \"yes\"\n",
    );
    stage
        .line("--config c.toml config check")
        .exits(2)
        .says("line 3");
}

#[test]
fn a_named_database_goes_to_its_target_and_comes_back_from_it() {
    let stage = configured();
    let config = "--config longshore.toml";
    stage
        .line(&format!("{config} config check"))
        .exits(0)
        .says("sales")
        .says("nightly");
    stage
        .line(&format!("{config} backup sales"))
        .exits(0)
        .says("ZSTD");
    let one = stage.names("disk1/sales");
    assert_eq!(one, stage.names("disk2/sales"));
    assert_eq!(one.len(), 1);
    let from = "--target nightly --database sales";
    stage
        .line(&format!("{config} list {from}"))
        .exits(0)
        .says("complete");
    stage.line(&format!("{config} verify {from}")).exits(0);
    stage
        .line(&format!("{config} restore {from} --to out"))
        .exits(0);
    stage.shell("cmp app.db out/app.db").exits(0);

    // An option overrides the default, and a level is not carried to another algorithm.
    let ran = stage
        .line(&format!("{config} backup sales --to x.bak -a LZ4 --json"))
        .exits(0);
    let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(value["run"]["plan"]["algorithm"], "LZ4");
    assert_eq!(value["run"]["plan"]["level"], "LOW");
    // retain_days counts.
    stage
        .line(&format!("{config} backup sales --to x.bak -a LZ4 --init"))
        .exits(4)
        .says("4030");
}

#[test]
fn an_unmounted_directory_is_not_filled_unnoticed() {
    let stage = configured();
    std::fs::remove_dir(stage.path("disk2")).unwrap();
    stage
        .line("--config longshore.toml backup sales")
        .exits(4)
        .says("disk2")
        .says("mounted");
    assert!(!stage.path("disk2").exists());
}

/// Goal: a target of which every directory is an unmounted file system's is not filled; nor is one of copies.
#[test]
fn a_target_that_is_not_mounted_at_all_is_not_filled_unnoticed() {
    let stage = crate::repository::configured();
    let place = "no-config/longshore/longshore.toml";
    let text = std::fs::read_to_string(stage.path(place)).unwrap();
    let text = text.replace("[database.docs]", "copies = [\"away\"]\n[database.docs]")
        + &format!(
            "[target.away]\ndirectories = [\"{}\", \"{}\"]\n",
            stage.path("away").display(),
            stage.path("away2").display()
        );
    stage.write(place, text.as_bytes());
    for dir in ["away", "away2"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    let unmount = |dir: &str| {
        std::fs::rename(stage.path(dir), stage.path(format!("{dir}-disk"))).unwrap();
        std::fs::create_dir(stage.path(dir)).unwrap();
    };
    for dir in ["away2", "away"] {
        unmount(dir);
        stage.line("copy sales").exits(4).says("mounted");
        assert!(stage.names(dir).is_empty());
    }
    unmount("disk1");
    unmount("disk2");
    stage.line("backup sales").exits(4).says("mounted");
    assert!(stage.names("disk1").is_empty());
    // The operator makes the directories: the disks are new.
    for dir in ["disk1/sales", "disk2/sales", "away/sales", "away2/sales"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
}

#[test]
fn a_lost_stripe_of_the_latest_backup_is_said_not_passed_over() {
    let stage = configured();
    let config = "--config longshore.toml";
    stage.line(&format!("{config} backup sales")).exits(0);
    let label = &stage.names("disk2/sales")[0];
    let stripe = format!("disk2/sales/{label}/family-2.bak");
    std::fs::remove_file(stage.path(stripe)).unwrap();
    stage
        .line(&format!(
            "{config} restore --target nightly --database sales --to out"
        ))
        .exits(4)
        .says("3132")
        .says("disk2");
}

#[test]
fn misspelt_keys_are_refused_with_file_and_line_before_anything_happens() {
    let stage = configured();
    stage.write("bad.toml", b"[defaults]\nlevel = 1\nretian_days = 3\n");
    let ran = stage
        .line("--config bad.toml backup app.db --to x.bak")
        .exits(2);
    assert!(ran.err.contains("bad.toml, line 3, column "), "{}", ran.err);
    assert!(ran.err.contains("retian_days"), "{}", ran.err);
    assert!(!stage.path("x.bak").exists());
}

#[test]
fn a_password_has_one_place_a_target_one_kind_and_a_file_a_limit() {
    let stage = Stage::new();
    let refused = |text: &str| {
        stage.write("c.toml", text.as_bytes());
        stage.line("--config c.toml config check").exits(2).err
    };
    let database = "[database.a]\nurl = \"postgres://h\"\n";
    let two = refused(&format!(
        "{database}password_file = \"/p\"\npassword_env = \"P\"\n"
    ));
    assert!(two.contains("exclude each other"), "{two}");
    let both = "directories = [\"/t\"]\nbuckets = [\"s3://nightly/t\"]\n";
    let both = refused(&format!("[target.t]\n{both}"));
    assert!(both.contains("make two targets of them"), "{both}");
    let long = refused(&format!("# {}\n", "x".repeat(1 << 20)));
    assert!(long.contains("cannot read the configuration"), "{long}");
}

/// A configuration that cannot be read is not skipped for the next place, and a variable that a table names for its
/// password may begin as ours do.
#[test]
fn a_configuration_in_a_usual_place_must_be_readable() {
    let stage = configured();
    let check = |name: &str, value: &str| {
        let mut command = stage.command(&["--config", "longshore.toml", "config", "check"]);
        command.env("LONGSHORE_DATABASE_SALES_PASSWORD_ENV", "LONGSHORE_SECRET");
        command.env(name, value).output().unwrap()
    };
    assert_eq!(check("LONGSHORE_SECRET", "x").status.code(), Some(0));
    assert_eq!(check("LONGSHORE_SECRETS", "x").status.code(), Some(2));
    std::fs::create_dir_all(stage.path("no-config/longshore/longshore.toml")).unwrap();
    stage
        .line("config check")
        .exits(2)
        .says("cannot read the configuration");
}

#[test]
fn a_configuration_in_the_working_directory_is_not_read_unasked() {
    let stage = configured();
    stage.line("backup sales --to x.bak").exits(3);
    stage.line("config check").exits(0).says("none found");
}

#[test]
fn server_settings_choose_if_no_option_does() {
    let stage = configured();
    let setting = ["catalog", "settings", "backup compression algorithm", "4"];
    stage.run(&setting).exits(0);
    stage.line("backup app.db --to a.bak").exits(0).says("LZ4");
    stage
        .line("backup app.db --to b.bak -a ZSTD")
        .exits(0)
        .says("ZSTD");
    let setting = ["catalog", "settings", "backup compression algorithm", "5"];
    stage.run(&setting).exits(0);
    stage
        .line("backup app.db --to c.bak")
        .exits(0)
        .says("PAGES");
    stage.line("list c.bak").exits(0).says("PAGES");
    let wrong = ["catalog", "settings", "backup compression algorithm", "9"];
    stage.run(&wrong).exits(2);
    stage
        .run(&["catalog", "settings", "no such setting", "1"])
        .exits(2)
        .says("15123");
}

#[test]
fn a_password_in_a_url_is_shown_nowhere_however_it_is_written() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("t")).unwrap();
    for url in [
        "postgres://me:S3cr3t/x@db:1/postgres",
        " postgres://me:S3cr3t@db:1/postgres",
        "postgresql//me:S3cr3t@db:1/postgres",
        "postgres://me:S3cr3t?x@db:1/postgres",
        "host=127.0.0.1 port=1 pasword=S3cr3t",
        "sslpassword=S3cr3t host=db",
    ] {
        let target = stage.path("t");
        let config = format!(
            "[database.x]\nurl = {url:?}\ntarget = \"t\"\n[target.t]\ndirectories = [{target:?}]\n"
        );
        stage.write("s.toml", config.as_bytes());
        let backup = "BACKUP DATABASE x TO DISK = 'x.bak'";
        for words in [
            &["config", "check"][..],
            &["--json", "config", "check"],
            &["info", "x"],
            &["--json", "info", "x"],
            &["check", "x", "--archive-wait", "0"],
            &["backup", "x"],
            &["--json", "backup", "x"],
            &["sql", "-Q", backup],
        ] {
            let ran = stage.run(&[&["--config", "s.toml"], words].concat());
            let said = format!("{}{}", ran.out, ran.err);
            assert!(!said.contains("S3cr3t"), "{url}: {words:?}: {said}");
        }
        for name in stage.names("") {
            if name != "s.toml" {
                let kept = std::fs::read(stage.path(&name)).unwrap_or_default();
                let kept = String::from_utf8_lossy(&kept).into_owned();
                assert!(!kept.contains("S3cr3t"), "{url}: {name}");
            }
        }
    }
}

/// Goal: the configuration that a run uses is no device of it, whatever it may overwrite.
#[test]
fn the_configuration_in_use_is_no_device() {
    let stage = Stage::new();
    stage.database("app.db", 4);
    let config = format!(
        "[database.app]\nurl = \"sqlite:{}\"\n",
        stage.path("app.db").display()
    );
    stage.write("own.toml", config.as_bytes());
    let sql = |text: &str| stage.run(&["--config", "own.toml", "sql", "-b", "-Q", text]);
    for words in ["FORMAT", "INIT, SKIP", "NOINIT", "FORMAT, INIT, SKIP"] {
        sql(&format!(
            "BACKUP DATABASE app TO DISK = 'own.toml' WITH {words}"
        ))
        .exits(1)
        .says("3201");
    }
    for how in ["", "--append", "--init --skip", "--format"] {
        let line = format!("--config own.toml backup app --to own.toml {how}");
        stage.line(&line).exits(2).says("3201");
    }
    assert_eq!(
        std::fs::read(stage.path("own.toml")).unwrap(),
        config.as_bytes()
    );
    // Another one's file is a device as any other.
    stage.write("other.toml", config.as_bytes());
    sql("BACKUP DATABASE app TO DISK = 'other.toml' WITH FORMAT").exits(0);
}

/// Goal: limits that spare a workload during backups slow no restore and no drill. A first block passes under any limit;
/// what follows it would take a minute and a half.
#[test]
fn configured_limits_hold_for_backups_and_not_for_restores_and_drills() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("t")).unwrap();
    stage.database("app.db", 4);
    let (source, target) = (stage.path("app.db"), stage.path("t"));
    let config = format!(
        "[defaults]\nmax_rate = \"32K\"\n[database.app]\nurl = \"sqlite:{}\"\ntarget = \"t\"\n[target.t]\ndirectories = [{target:?}]\n",
        source.display()
    );
    stage.write("slow.toml", config.as_bytes());
    let began = std::time::Instant::now();
    let run = |line: &str| stage.line(&format!("--config slow.toml {line}"));
    run("backup app --max-rate 10G").exits(0);
    run("restore --database app --to restored").exits(0);
    run("drill app").exits(0);
    let files = "DISK = 'q.bak'";
    let sql = |text: &str| stage.run(&["--config", "slow.toml", "sql", "-b", "-Q", text]);
    sql(&format!(
        "BACKUP DATABASE app TO {files} WITH MAX_RATE = 10000000000"
    ))
    .exits(0);
    sql(&format!(
        "RESTORE DATABASE copy FROM {files} WITH MOVE 'app' TO 'sql.db'"
    ))
    .exits(0);
    assert_eq!(stage.names("restored"), ["app.db"]);
    let took = began.elapsed();
    assert!(took.as_secs() < 60, "{took:?}");
}

#[test]
fn an_empty_name_of_the_history_is_none_at_all() {
    let stage = Stage::new();
    stage.database("app.db", 1);
    let mut backup = stage.command(&["backup", "app.db", "--to", "x.bak"]);
    backup.env("LONGSHORE_CATALOG", "");
    let output = backup.env("XDG_STATE_HOME", stage.path("state")).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
    assert_eq!(stage.names("state"), ["longshore"]);
}
