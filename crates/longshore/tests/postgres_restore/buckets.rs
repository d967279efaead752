//! Goal: a configured database whose target is in a bucket, WAL archive and all, works as one in directories:
//! PostgreSQL archives to the store, a restore to a point in time gets its WAL from there, and expire, check, verify
//! and drill work on it.
//! Method: a real server, and real stores on this machine: versitygw, and Azurite.
//! Not covered: a store that does not answer, which is shown on a simulated one; AWS and Azure themselves.

use std::process::Command;
use std::time::Duration;

use longshore_kit::{Installation, Server, representatives};

use crate::common::store::Store;
use crate::common::{BINARY, answer, longshore, text};
use crate::named::{archived, markers, reached};
use crate::stage::{Stage, end, succeed};

/// A database `main` with everything in the store.
struct Main {
    store: Store,
    stage: Stage,
}

impl Main {
    fn new(installation: &Installation, store: Store) -> Main {
        let conf = [("archive_mode", "on"), ("archive_command", "false")];
        let stage = Stage::new(installation, &conf);
        let config = format!(
            "[database.main]\nurl = \"{url}\"\ntarget = \"t\"\nretention = \"r\"\n[database.main.wal]\nasync = true\n\
             [target.t]\nbuckets = [\"{0}/backups\", \"{0}/backups\"]\n\
             [retention.r]\nkeep_full = 1\n",
            store.bucket(),
            url = stage.server.url(),
        );
        std::fs::write(stage.path("longshore.toml"), config).unwrap();
        stage.server.user().own(stage.dir.path());
        let main = Main { store, stage };
        succeed(&mut main.command("wal create --database main"));
        let config = main.stage.path("longshore.toml");
        main.stage.server.psql(&format!(
            "alter system set archive_command = '{}{BINARY} --catalog none --config {} wal push %p --database main'; \
             select pg_reload_conf()",
            main.store.shell(),
            config.display()
        ));
        main
    }

    fn command(&self, line: &str) -> Command {
        let mut command = longshore(["--config"]);
        command.arg(self.stage.path("longshore.toml"));
        command.args(line.split_whitespace());
        command.envs(self.store.settings());
        command
    }

    fn server(&self) -> &Server {
        &self.stage.server
    }

    /// Restores to `name` and opens it; the restored server's own command reaches the store.
    fn restored(&self, name: &str, more: &[&str]) -> Server {
        let data = self.stage.path(name);
        let mut restore = self.command("restore --database main --no-archiving --to");
        // An identity of root's is named in a warning: the server's user cannot read it.
        let expected = if more.contains(&"--identity") { 5 } else { 0 };
        end(restore.arg(&data).args(more), expected);
        let conf = data.join("postgresql.auto.conf");
        let settings = std::fs::read_to_string(&conf).unwrap();
        let archive = format!("--archive ''{}/backups/main/wal''", self.store.bucket());
        assert!(settings.contains(&archive), "{settings}");
        let (_, secret) = self.store.secret();
        assert!(
            !settings.contains(secret) || settings.contains("archive_command"),
            "{settings}"
        );
        let line = "restore_command = '";
        let reaching = settings.replace(line, &format!("{line}{}", self.store.shell()));
        // So the server gets its own.
        let [own, servers] = ["id", "id-of-the-server"].map(|name| self.stage.path(name));
        let reaching = reaching.replace(
            &format!("{}''", own.display()),
            &format!("{}''", servers.display()),
        );
        std::fs::write(&conf, reaching).unwrap();
        let server = self.stage.adopt(&data);
        server.start();
        server
    }

    fn runs(&self) -> usize {
        let listed = succeed(&mut self.command("wal list --database main --verify --json"));
        answer(&listed)["runs"].as_array().unwrap().len()
    }
}

/// Runs a test over each kind of store.
fn on_each_store(test: fn(&Main)) {
    let Some(installation) = representatives().pop() else {
        return;
    };
    for store in [Store::new(), Store::azure()].into_iter().flatten() {
        test(&Main::new(&installation, store));
    }
}

#[test]
fn a_target_in_a_bucket_has_its_wal_archive_there_and_recovers_to_a_point_in_time() {
    on_each_store(recovery);
}

fn recovery(main: &Main) {
    let server = main.server();
    succeed(&mut main.command("backup main"));
    server.psql("insert into marker values (1)");
    let time = server.psql("select clock_timestamp() at time zone 'UTC'") + "+00";
    server.psql("select pg_sleep(0.02)");
    server.psql("insert into marker values (2)");
    archived(server);
    assert_eq!(main.runs(), 1);

    let at_time = main.restored("at-time", &["--target-time", &time]);
    assert_eq!(reached(&at_time), "1");
    let at_end = main.restored("at-end", &[]);
    at_end.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&at_end), "1 2");

    // A gap is found before anything is written.
    let name = server.psql("select pg_walfile_name(pg_current_wal_lsn())");
    let name = format!("{}/{name}.wal", &name[..16]);
    server.psql("insert into marker values (3)");
    archived(server);
    archived_more(server);
    let hidden = main.store.hidden(&format!("backups/main/wal/{name}"));
    let mut restore = main.command("restore --database main --to");
    let refused = end(restore.arg(main.stage.path("gap")), 4);
    assert!(
        text(&refused.stderr).contains("lacks WAL"),
        "{}",
        text(&refused.stderr)
    );
    hidden.shown();
}

/// Goal: an encrypted archive in a bucket is written by public keys alone, and read with an identity alone.
#[test]
fn an_encrypted_archive_in_a_bucket_is_read_with_the_identity_alone() {
    on_each_store(encrypted);
}

fn encrypted(main: &Main) {
    let server = main.server();
    let id = main.stage.path("id");
    let made = succeed(main.command("key new").arg(&id));
    let servers = main.stage.path("id-of-the-server");
    std::fs::copy(&id, &servers).unwrap();
    server.user().own(&servers);
    let config = main.stage.path("longshore.toml");
    let recipient = text(&made.stdout);
    let more = format!("[encryption]\nrecipients = [\"{}\"]\n", recipient.trim());
    let old = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, old + &more).unwrap();
    succeed(&mut main.command("backup main"));
    server.psql("insert into marker values (1)");
    let time = server.psql("select clock_timestamp() at time zone 'UTC'") + "+00";
    server.psql("select pg_sleep(0.02)");
    server.psql("insert into marker values (2)");
    archived(server);

    // The server pushes its last segment again, as after a crash: it recognizes it without a key.
    let last = server.psql("select last_archived_wal from pg_stat_archiver");
    let path = server.data_dir().join("pg_wal").join(&last);
    let again = succeed(main.command("wal push --database main --json").arg(&path));
    assert_eq!(answer(&again)["already"], true);
    let with_id = |line: &str| {
        let mut command = main.command(line);
        command.arg("--identity").arg(&id);
        command
    };
    end(&mut main.command("wal list --database main --verify"), 4);
    let listed = answer(&succeed(&mut with_id(
        "wal list --database main --verify --json",
    )));
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(
        listed["damaged_segments"].as_array().unwrap().len(),
        0,
        "{listed}"
    );
    let mut closed = main.command("restore --database main --to");
    let refused = end(closed.arg(main.stage.path("closed")), 4);
    let said = text(&refused.stderr);
    assert!(said.contains("--identity"), "{said}");
    succeed(&mut main.command("check main --archive-wait 20"));

    let identity = ["--identity", id.to_str().unwrap()];
    let at_time = main.restored(
        "at-time",
        &[&identity[..], &["--target-time", &time]].concat(),
    );
    assert_eq!(reached(&at_time), "1");
    let at_end = main.restored("at-end", &identity);
    at_end.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&at_end), "1 2");

    // A gap is found before anything is written.
    let hidden = server.psql("select pg_walfile_name(pg_current_wal_lsn())");
    server.psql("insert into marker values (3)");
    archived(server);
    archived_more(server);
    let key = format!("backups/main/wal/{}/{hidden}.wal", &hidden[..16]);
    let hidden = main.store.hidden(&key);
    let mut restore = main.command("restore --database main --identity");
    restore.arg(&id).arg("--to").arg(main.stage.path("gap"));
    let said = text(&end(&mut restore, 4).stderr);
    assert!(said.contains("lacks WAL"), "{said}");
    hidden.shown();
}

fn archived_more(server: &Server) {
    server.psql("insert into marker values (4)");
    archived(server);
}

#[test]
fn expire_removes_wal_in_a_bucket_and_check_and_drill_work_on_it() {
    on_each_store(expiry);
}

fn expiry(main: &Main) {
    let server = main.server();
    for marker in 1..3 {
        succeed(&mut main.command("backup main"));
        server.psql(&format!("insert into marker values ({marker})"));
        archived(server);
        std::thread::sleep(Duration::from_millis(1000));
    }
    let before = main.segments();
    let said = text(&succeed(&mut main.command("expire main")).stdout);
    let after = main.segments();
    assert!(after < before && after > 0, "{before} {after}: {said}");
    assert_eq!(main.runs(), 1);
    let said = text(&succeed(&mut main.command("check main")).stdout);
    assert!(!said.contains("BAD"), "{said}");
    let bin = &main.server().installation().bin_dir;
    if bin.join("pg_amcheck").exists() {
        let work = main.stage.path("work");
        std::fs::create_dir(&work).unwrap();
        let mut drill = main.command("drill main --bin-dir");
        let said = text(&succeed(drill.arg(bin).arg("--work").arg(&work)).stdout);
        assert!(said.contains("segments from the archive"), "{said}");
        assert!(said.contains("is good"), "{said}");
    }
    let needs = text(&succeed(&mut main.command("wal needs --database main")).stdout);
    assert!(needs.contains("main"), "{needs}");
}

impl Main {
    fn segments(&self) -> u64 {
        let listed = succeed(&mut self.command("wal list --database main --json"));
        let told = answer(&listed);
        let runs = told["runs"].as_array().unwrap();
        runs.iter()
            .map(|run| run["segments"].as_u64().unwrap())
            .sum()
    }
}

#[test]
fn a_cluster_recovers_from_the_versions_of_its_archive_that_somebody_removed() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let Some(store) = Store::with_versions() else {
        return;
    };
    let main = Main::new(&installation, store);
    let server = main.server();
    succeed(&mut main.command("backup main"));
    server.psql("insert into marker values (1)");
    archived(server);
    let pause = || std::thread::sleep(Duration::from_millis(1100));
    pause();
    let time = jiff::Timestamp::now().to_string();
    pause();
    server.psql("insert into marker values (2)");
    archived(server);
    // Somebody with the credentials of the server removes the backup and its WAL.
    for object in main.store.keys("backups/main") {
        main.store.send("DELETE", &format!("/{object}"), "");
    }
    end(&mut main.command("restore --database main --to none"), 4);

    let restored = main.restored("then", &["--as-of", &time]);
    restored.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&restored), "1");
    let as_of = |line: &str, expected| {
        let mut command = main.command(line);
        command.current_dir(main.stage.dir.path());
        end(command.args(["--as-of", &time]), expected)
    };
    let listed = answer(&as_of("--json wal list --database main", 0));
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    end(&mut main.command("wal list --database main"), 4);
    let name = listed["runs"][0]["first"].as_str().unwrap();
    let get = format!("wal get {name} got --database main");
    as_of(&get, 0);
    end(main.command(&get).current_dir(main.stage.dir.path()), 200);
}

/// Goal: backups are read as they were, and WAL of now is not replayed after them.
#[test]
fn an_archive_in_a_directory_is_refused_where_backups_are_read_as_they_were() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let Some(store) = Store::with_versions() else {
        return;
    };
    let main = Main::new(&installation, store);
    let server = main.server();
    // The directory above is root's, as a mount point is.
    let archive = main.stage.path("logs/archive");
    std::fs::create_dir(main.stage.path("logs")).unwrap();
    let config = main.stage.path("longshore.toml");
    let plain = std::fs::read_to_string(&config).unwrap();
    let named = format!("[database.main.wal]\narchive = \"{}\"\n", archive.display());
    std::fs::write(&config, plain.replace("[database.main.wal]\n", &named)).unwrap();
    succeed(&mut main.command("wal create --database main"));
    server.user().own(&archive);
    succeed(&mut main.command("backup main --with-wal"));
    let pause = || std::thread::sleep(Duration::from_millis(1100));
    pause();
    let time = jiff::Timestamp::now().to_string();
    pause();
    server.psql("insert into marker values (1)");
    archived(server);
    let as_of = |line: &str, expected| {
        let mut command = main.command(line);
        command.current_dir(main.stage.dir.path());
        end(command.args(["--as-of", &time]), expected)
    };
    let wal_archive = format!(
        "restore --database main --to none --wal-archive {}",
        archive.display()
    );
    for line in ["restore --database main --to none", &wal_archive] {
        let said = text(&as_of(line, 2).stderr);
        assert!(said.contains("is no bucket"), "{line}: {said}");
    }
    let said = text(&as_of("restore --database main --to none", 2).stderr);
    assert!(said.contains("--target-immediate"), "{said}");
    let shown = as_of("info main", 0);
    let said = text(&shown.stdout);
    assert!(said.contains("is not shown"), "{said}");
    let shown = answer(&as_of("--json info main", 0));
    assert!(shown["databases"][0]["wal"].is_null(), "{shown}");
    let alone = "restore --database main --to alone --no-archiving --target-immediate";
    as_of(&format!("{alone} --target-action promote"), 0);
    let restored = main.stage.adopt(&main.stage.path("alone"));
    restored.start();
    restored.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&restored), "");
}

/// Goal: what a store refuses is neither the end of the WAL nor archived. That a store without an answer is not either is
/// shown on a simulated one, which takes less than three minutes.
#[test]
fn a_store_that_refuses_stops_a_recovery_and_loses_no_segment() {
    on_each_store(refusal);
}

fn refusal(main: &Main) {
    // Another key, in base64.
    let another = "YW5vdGhlcg==";
    let (variable, secret) = main.store.secret();
    let server = main.server();
    server.psql("insert into marker values (1)");
    archived(server);
    let get = |secret: &str, expected: i32| {
        let mut get = main.command("wal get 000000010000000000000099 got --database main");
        get.current_dir(main.stage.dir.path());
        get.env(variable, secret);
        text(&end(&mut get, expected).stderr)
    };
    let said = get(another, 200);
    assert!(said.contains("HTTP 403"), "{said}");
    get(secret, 1);
    // A cache before the store says that there is no segment, and the listing shows it.
    let listed = answer(&succeed(
        &mut main.command("--json wal list --database main"),
    ));
    let last = listed["runs"][0]["last"].as_str().unwrap();
    let through = |name: &str, expected: i32| {
        let mut get = main.command(&format!("wal get {name} got --database main"));
        let cached = format!("{last}.wal");
        get.current_dir(main.stage.dir.path())
            .envs(main.store.settings_past_a_cache_without(&cached));
        text(&end(&mut get, expected).stderr)
    };
    let said = through(last, 200);
    assert!(said.contains("is listed in the archive"), "{said}");
    through("000000010000000000000099", 1);
    through(listed["runs"][0]["first"].as_str().unwrap(), 0);
    let command = server.psql("show archive_command");
    let with = |command: &str| {
        server.psql(&format!("alter system set archive_command = '{command}'"));
        server.psql("select pg_reload_conf()");
    };
    with(&command.replace(secret, another));
    server.psql("insert into marker values (2); select pg_switch_wal()");
    server.wait_for("select failed_count > 0 from pg_stat_archiver", "t");
    with(&command);
    archived(server);
    assert_eq!(main.runs(), 1);
}
