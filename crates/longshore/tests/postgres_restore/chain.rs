//! Goal: the newest set of a chain comes back as an intact cluster: on every major version, over an old directory, in
//! place, and through kills at any moment.
//! Method: a server changes its files in every way between one full and two incremental backups, which are on separate
//! media sets and on a shared one. PostgreSQL's own tools and servers judge what is restored.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longshore_kit::{Installation, Stop, installations, representatives};

use crate::common::{Random, answer, from_env};
use crate::stage::{Stage, check, dump, refused, same, succeed};

/// A full backup and two that each differ from the previous one, and the server's content at each.
struct Three {
    stage: Stage,
    /// The last two are on one media set.
    full: Vec<PathBuf>,
    newer: Vec<PathBuf>,
    dumps: [String; 3],
    /// The location of the tablespace, if there is one. `--replace` takes no other cluster's location.
    fast: Option<PathBuf>,
}

impl Three {
    fn new(installation: &Installation, with_space: bool) -> Three {
        let stage = Stage::new(installation, &[]);
        let server = &stage.server;
        let fast = with_space.then(|| stage.tablespace("fast"));
        if with_space {
            server.psql("set default_tablespace = fast; create table far (i int)");
        } else {
            server.psql("create table far (i int)");
        }
        server.psql(
            "insert into far select generate_series(1, 5000) i;
             create table shrinks as select i, repeat('x', 100) t from generate_series(1, 9000) i;
             create table gone as select generate_series(1, 3000) i; create database other;
             checkpoint",
        );
        let full = stage.back_up("full", &[]);
        let first = dump(server);
        server.psql(
            "update small set t = t || '!' where i % 700 = 0; drop table gone;
             create table later as select generate_series(1, 4000) i;
             delete from shrinks where i > 3000",
        );
        server.psql("vacuum shrinks");
        let based = |on: &[PathBuf]| -> Vec<String> {
            let base = |path: &PathBuf| ["--base".to_owned(), path.display().to_string()];
            on.iter().flat_map(base).collect()
        };
        let mut more = based(&full);
        more.push("--incremental".into());
        let more: Vec<_> = more.iter().map(String::as_str).collect();
        let newer = stage.back_up("newer", &more);
        let second = dump(server);
        server.psql(
            "update small set t = t || '?' where i % 900 = 0; truncate far;
             insert into far select generate_series(1, 100);
             insert into shrinks select i, 'grown' from generate_series(1, 20000) i;
             drop database other",
        );
        stage.back_up("newer", &["--incremental", "--append"]);
        let third = dump(server);
        Three {
            stage,
            full,
            newer,
            dumps: [first, second, third],
            fast,
        }
    }

    fn restore(&self, target: &Path) -> Command {
        let mut command = self.alone(target);
        command.arg("--base").args(self.full.iter().rev());
        command
    }

    /// A restore that does not know the location of the full set.
    fn alone(&self, target: &Path) -> Command {
        let mut command = self.stage.restore(&self.newer, target);
        if let Some(fast) = &self.fast {
            let map = format!("{}={}", fast.display(), moved(target).display());
            command.arg("--tablespace-map").arg(map);
        }
        command
    }

    /// Starts the restored cluster and compares it with the server's content.
    fn judge(&self, data: &Path, expected: usize) {
        let mut verify = self.stage.server.command("pg_verifybackup");
        succeed(verify.arg("--no-parse-wal").arg(data));
        let server = self.stage.adopt(data);
        server.start();
        let mut found = dump(&server);
        if let Some(fast) = &self.fast {
            found = found.replace(moved(data).to_str().unwrap(), fast.to_str().unwrap());
        }
        same(&found, &self.dumps[expected]);
        check(&server, data);
    }
}

/// Where a restore puts the tablespace.
fn moved(target: &Path) -> PathBuf {
    target.with_extension("space")
}

#[test]
fn the_newest_set_of_a_chain_and_the_one_before_are_restored_completely() {
    for installation in representatives() {
        let three = Three::new(&installation, true);
        let data = three.stage.path("data");
        let said = refused(&mut three.alone(&data));
        assert!(
            said.contains("error 3136") && said.contains("--base"),
            "{said}"
        );
        assert!(!data.join("global").exists());

        let output = succeed(three.restore(&data).arg("--json"));
        let report = answer(&output);
        let chain = report["chain"].as_array().unwrap();
        assert_eq!(chain.len(), 3, "{report}");
        assert_eq!(chain[2]["is_differential"], false);
        three.judge(&data, 2);

        let before = three.stage.path("before");
        succeed(three.restore(&before).args(["--position", "1"]));
        three.judge(&before, 1);
    }
}

#[test]
fn a_directory_becomes_the_newest_of_a_chain_and_little_is_written() {
    for installation in installations().iter().rev().take(2) {
        let three = Three::new(installation, true);
        let data = three.stage.path("data");
        succeed(three.restore(&data).args(["--position", "1"]));
        let server = three.stage.adopt(&data);
        server.start();
        server.psql("update small set t = 'wrong' where i % 600 = 0");
        server.stop(Stop::Fast);
        let output = succeed(three.restore(&data).args(["--delta", "--json"]));
        let report = answer(&output);
        let (rewritten, all) = (
            report["rewritten_bytes"].as_u64().unwrap(),
            report["plain_bytes"].as_u64().unwrap(),
        );
        assert!(0 < rewritten && rewritten < all / 2, "{rewritten} of {all}");
        three.judge(&data, 2);
    }
}

#[test]
fn a_killed_restore_of_a_chain_leaves_nothing_that_starts_half() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let three = Three::new(&installation, false);
    let data = three.stage.path("data");
    let begin = std::time::Instant::now();
    succeed(three.restore(&data).args(["--position", "1"]));
    let whole = begin.elapsed();
    let mut random = Random(from_env("LONGSHORE_SEED", 19));
    let rows = "select count(*) from shrinks";
    let (mut started, mut refused) = (0, 0);
    for round in 0..from_env("LONGSHORE_ROUNDS", 8) {
        let how = if round % 2 == 0 {
            "--replace"
        } else {
            "--delta"
        };
        let mut child = three.restore(&data).arg(how).spawn().unwrap();
        let wait = whole.mul_f64((random.next() % 1200) as f64 / 1000.0);
        std::thread::sleep(wait.max(Duration::from_millis(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        let server = three.stage.adopt(&data);
        match server.try_start() {
            Ok(()) => {
                started += 1;
                // The previous content, or this one.
                let rows = server.psql(rows);
                assert!(rows == "3000" || rows == "23000", "round {round}: {rows}");
                server.stop(Stop::Fast);
            }
            Err(log) => {
                refused += 1;
                let stands = data.join("global/pg_control").exists();
                assert!(!stands, "round {round}: {log}");
            }
        }
        succeed(three.restore(&data).args(["--replace", "--position", "1"]));
    }
    println!("{started} servers started, {refused} did not");
    succeed(three.restore(&data).arg("--replace"));
    three.judge(&data, 2);
}
