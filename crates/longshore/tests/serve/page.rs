//! Goal: the status page shows what `info`, `check`, `history` and `sys.dm_exec_requests` say, each no older than it says,
//! also while a target is away; and nothing that is secret.
//! Method: the real server; its answers are compared with those of the commands, and with `docs/json.md`.
//! Not covered: the drawing (`page_shown.rs`), and requests that no browser sends (`page_hostile.rs`).

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{succeed, text};
use crate::http::{get, page, settled, status};
use crate::raw::{BATCH, Raw, batch_body};
use crate::served::Server;
use crate::stage::Stage;

/// A stage of which both databases have a target.
pub fn targeted() -> Stage {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("backups")).unwrap();
    let path = stage.path("longshore.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    let disk = stage.path("backups").display().to_string();
    let target =
        format!("[target.disk]\ndirectories = [\"{disk}\"]\n[defaults]\ntarget = \"disk\"\n");
    std::fs::write(path, before + &target).unwrap();
    stage
}

pub fn backup(stage: &Stage, database: &str) {
    succeed(&mut stage.command(&["backup", database]));
}

#[test]
fn the_page_says_what_info_check_and_history_say() {
    let stage = targeted();
    backup(&stage, "shop");
    let told = |args: &[&str]| {
        let output = stage.command(args).output().unwrap();
        longshore_kit::schema::checked(&text(&output.stdout))
    };
    let made = told(&["backup", "shop", "--json"]);
    told(&["verify", "--database", "shop", "--json"]);
    let server = page(&stage, &[]);
    let seen = settled(server.port);
    let info = told(&["info", "--json"]);
    let rows = seen["databases"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, own) in rows.iter().zip(info["databases"].as_array().unwrap()) {
        let mut own = own.clone();
        let mut shown = row["info"].clone();
        assert_eq!(
            (&row["database"], &row["target"]),
            (&own["database"], &own["target"])
        );
        // The age grows meanwhile; the connection string is not for everybody.
        for facts in [&mut own, &mut shown] {
            facts["last_good_age_s"].take();
        }
        own["url"].take();
        assert_eq!(shown, own);
        assert_eq!(
            (&row["is_copy"], &row["error"]),
            (&Value::from(false), &Value::Null)
        );
    }
    let check = told(&["check", "--json", "--archive-wait", "0"]);
    let shown = seen["checks"].as_array().unwrap();
    assert_eq!((shown.len(), &seen["exit_code"]), (2, &check["exit_code"]));
    assert_eq!(check["status"], seen["status"]);
    for (row, own) in shown.iter().zip(check["databases"].as_array().unwrap()) {
        assert_eq!(row["check"]["grade"], own["grade"]);
        let count = |checked: &Value| checked["findings"].as_array().unwrap().len();
        assert_eq!(count(&row["check"]), count(own));
    }
    let history = told(&["history", "--json"]);
    assert_eq!(seen["history"]["backups"], history["rows"]);
    assert_eq!(history["rows"][0]["limit"], made["run"]["limit"]);
    // The good backup is shown once; the page has what tells more.
    let shown: Vec<_> = seen["history"]["runs"].as_array().unwrap().iter().collect();
    let runs = told(&["history", "--runs", "--json"]);
    let more = runs["rows"].as_array().unwrap().iter();
    let more: Vec<_> = more.filter(|row| row["task"] != "backup").collect();
    assert_eq!((shown, more.len()), (more.clone(), 1));
    let metrics = get(server.port, "/metrics").body;
    let own = text(
        &stage
            .command(&["info", "--prometheus"])
            .output()
            .unwrap()
            .stdout,
    );
    let kept = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("_age_seconds{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = kept(&metrics);
    for line in kept(&own) {
        assert!(shown.contains(&line), "{line}\n{metrics}");
    }
    for line in [
        "longshore_up{database=\"shop\",target=\"disk\"} 1",
        "longshore_check_up{database=\"stock\"} 1",
        "longshore_check_exit_code{database=\"stock\"} 1",
        "longshore_check_findings{database=\"stock\",grade=\"bad\"} 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    assert!(
        metrics.contains("longshore_check_answer_age_seconds{database=\"stock\"} "),
        "{metrics}"
    );
    let plain = get(server.port, "/status.txt").body;
    assert!(
        plain.contains("FAIL  stock  age  there is no good backup"),
        "{plain}"
    );
    let (code, said) = server.stop();
    assert_eq!(code, Some(130), "{said:?}");
}

#[test]
fn answers_are_asked_for_once_in_the_seconds_that_were_given_and_the_age_of_a_backup_has_its_limit()
{
    let stage = targeted();
    backup(&stage, "shop");
    let server = page(&stage, &["--refresh", "3600", "--max-age", "1"]);
    let first = settled(server.port);
    assert_eq!(
        (&first["refresh_s"], &first["max_age_hours"]),
        (&Value::from(3600), &Value::from(1))
    );
    backup(&stage, "shop");
    let count = |status: &Value| {
        status["databases"][0]["info"]["backups"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(count(&status(server.port)), 1, "the answer is kept");
    drop(server);
    let server = page(&stage, &["--refresh", "1"]);
    assert_eq!(count(&settled(server.port)), 2);
    backup(&stage, "shop");
    let newer = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        count(&status(server.port)) == 3
    });
    assert!(newer, "a new answer after a second");
}

/// A port at which requests are taken and never answered.
fn silent_store() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Goal: a target that is away, or that hangs, keeps no other from being shown and no client waiting; the last answer
/// stays, with its time.
#[test]
fn a_target_that_hangs_or_is_away_keeps_the_page_from_nothing() {
    let stage = targeted();
    let (silent, port) = silent_store();
    configure_far(&stage);
    backup(&stage, "shop");
    let mut command = stage.command(&["serve", "--http", "127.0.0.1:0", "--refresh", "1"]);
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("LONGSHORE_ALLOW_HTTP", "1")
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-store");
    let server = Server::start_page(&mut command);
    let of = |status: &Value, target: &str| {
        let rows = status["databases"].as_array().unwrap();
        let of = |row: &&Value| row["database"] == "shop" && row["target"] == target;
        rows.iter().find(of).unwrap().clone()
    };
    let begun = Instant::now();
    let first = status(server.port);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    let far = of(&first, "far");
    assert!(
        far["answered_us"].is_null() && far["is_copy"] == true,
        "{far}"
    );
    assert!(of(&first, "disk")["info"]["last_good"].is_string());
    assert!(
        get(server.port, "/metrics")
            .body
            .contains("longshore_up{database=\"shop\",target=\"far\"} 0")
    );
    // Now the disk goes, too.
    std::fs::rename(stage.path("backups"), stage.path("away")).unwrap();
    let failed = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let row = of(&status(server.port), "disk");
        (!row["error"].is_null()).then_some(row)
    });
    let failed = failed.expect("an error");
    assert!(
        failed["info"]["last_good"].is_string(),
        "the last answer stays"
    );
    assert!(failed["answered_us"].as_i64().unwrap() > 0);
    std::fs::rename(stage.path("away"), stage.path("backups")).unwrap();
    let mended = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        of(&status(server.port), "disk")["error"].is_null()
    });
    assert!(mended, "the next answer");
    drop(silent);
}

/// A second target for `shop` in a bucket.
fn configure_far(stage: &Stage) {
    let path = stage.path("longshore.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    let before = before.replace("[database.shop]\n", "[database.shop]\ncopies = [\"far\"]\n");
    let far = "[target.far]\nbuckets = [\"s3://nightly/prefix\"]\n";
    std::fs::write(path, before + far).unwrap();
}

/// Goal: what runs is shown: a statement of a client of the same process with its percentage, a backup of another process
/// by what it has written.
#[test]
fn statements_and_backups_that_run_are_shown() {
    let stage = targeted();
    stage.grow();
    let server = stage.server(&["--http", "127.0.0.1:0", "--refresh", "1"]);
    let port = server.page.expect("both doors");
    let mut raw = Raw::login(server.port);
    let slow = "BACKUP DATABASE shop TO DISK = 'slow.bak' WITH STATS = 1, MAX_RATE = 1000000";
    raw.send(BATCH, 0, &batch_body(slow));
    let is_shown = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let seen = status(port);
        let rows = seen["running"].as_array().unwrap();
        let percent = |row: &Value| row["percent"].as_u64().is_some_and(|percent| percent > 0);
        rows.iter()
            .any(|row| row["seen"] == "session" && row["database"] == "shop" && percent(row))
    });
    assert!(is_shown, "{}", status(port));
    let _ended = raw.socket.shutdown(std::net::Shutdown::Both);
    let mut slow = stage.command(&["backup", "shop", "--max-rate", "500K"]);
    let mut slow = slow.stderr(std::process::Stdio::null()).spawn().unwrap();
    let is_shown = |wanted: fn(&Value) -> bool| {
        (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let seen = status(port);
            seen["running"].as_array().unwrap().iter().any(wanted)
        })
    };
    let by_progress = is_shown(|row| {
        let part = row["percent"]
            .as_u64()
            .is_some_and(|percent| percent > 0 && percent < 100);
        row["seen"] == "run" && row["database"] == "shop" && part && row["label"].is_string()
    });
    assert!(by_progress, "{}", status(port));
    let metrics = get(port, "/metrics").body;
    let line = "longshore_running_total_bytes{operation=\"backup\",database=\"shop\"} ";
    assert!(metrics.contains(line), "{metrics}");
    // As a backup of another machine, whose progress nobody here knows.
    let running = stage.path("state/running");
    let by_target = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        for entry in std::fs::read_dir(&running).into_iter().flatten().flatten() {
            let _gone = std::fs::remove_file(entry.path());
        }
        let seen = status(port);
        let rows = seen["running"].as_array().unwrap();
        rows.iter()
            .any(|row| row["seen"] == "target" && row["label"].is_string())
    });
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(by_target, "{}", status(port));
    let ended = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        status(port)["running"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["seen"] != "run")
    });
    assert!(ended, "a run that was killed is not shown");
}

/// Goal: neither a password nor the path of one, nor a connection string, is in any answer.
#[test]
fn no_answer_has_a_secret_or_its_path() {
    let stage = targeted();
    std::fs::write(stage.path("words-of-pass"), "Sesame-words\n").unwrap();
    let config = stage.path("longshore.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    let secret = stage.path("words-of-pass").display().to_string();
    text += &format!(
        "[database.main]\nurl = \"postgres://backup:Sesame-url@127.0.0.1:1/postgres?sslkey=/keys/of-the-server.key\"\n\
         [database.other]\nurl = \"host=127.0.0.1 port=1 user=backup\"\npassword_file = \"{secret}-away\"\n\
         [serve]\nlogins = \"{}\"\n",
        stage.path("state/logins").display()
    );
    std::fs::write(&config, text).unwrap();
    let server = page(&stage, &[]);
    settled(server.port);
    for path in ["/status.json", "/status.txt", "/metrics", "/"] {
        let body = get(server.port, path).body;
        for hidden in [
            "Sesame",
            "words-of-pass",
            "of-the-server.key",
            "state/logins",
            "backup:",
        ] {
            assert!(!body.contains(hidden), "{path} has {hidden}: {body}");
        }
        assert!(
            path == "/" || path == "/metrics" || body.contains("(hidden)"),
            "{body}"
        );
    }
}

/// Goal: the answer does not grow with the number of backups, and says how many are left out.
#[test]
fn of_many_backups_the_newest_are_shown_and_the_rest_is_counted() {
    const MANY: usize = 230;
    let stage = targeted();
    backup(&stage, "shop");
    let shelf = stage.path("backups/shop");
    let label = |i: usize| {
        format!(
            "20200101T{:02}{:02}{:02}Z-full-{i:08x}",
            i / 3600,
            i / 60 % 60,
            i % 60
        )
    };
    for i in 0..MANY {
        // Remains of a backup that never was complete.
        let dir = shelf.join(label(i));
        std::fs::create_dir(&dir).unwrap();
        std::fs::File::create(dir.join("family-1.bak"))
            .unwrap()
            .write_all(b"half")
            .unwrap();
    }
    let server = page(&stage, &[]);
    let seen = settled(server.port);
    let row = &seen["databases"][0];
    let shown = row["info"]["backups"].as_array().unwrap();
    assert_eq!(
        (shown.len(), &row["left_out"]["backup_count"]),
        (200, &Value::from(MANY + 1 - 200))
    );
    assert_eq!(shown.last().unwrap()["label"], row["info"]["last_good"]);
    let metrics = get(server.port, "/metrics").body;
    let line = format!(
        "longshore_backups{{database=\"shop\",target=\"disk\"}} {}",
        MANY + 1
    );
    assert!(metrics.contains(&line), "{metrics}");
    let check = &seen["checks"][0];
    assert!(check["check"]["findings"].as_array().unwrap().len() <= 200);
}
