//! Goal: random backups of servers under load, some of them killed, restore to an intact cluster or say that they are
//! none.
//! Method: seeded rounds on real servers under pgbench and DDL, three of them with clients that keep to a rate if
//! `LONGSHORE_PG_SOAK` does not ask for more, without one; the seed is `LONGSHORE_SEED`.
//! Not covered: rare orders of events, which three rounds do not meet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use longshore_kit::{Server, installations};

use crate::common::{Guarded, Random, from_env, longshore, text, wait};
use crate::copies::NOT_WHOLE;
use crate::live::{PLACES, SUMS, TABLES, load, load_at, place, places_of};
use crate::stage::{Stage, check, succeed};

const ALGORITHMS: &[&str] = &["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"];
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Undisturbed,
    ToolKilled,
    ServerKilled,
}

/// The plan of a round, all of it random.
#[derive(Debug)]
struct Round {
    fate: Fate,
    /// Between the start of the backup and the kill.
    delay_ms: u64,
    stripes: u64,
    options: Vec<String>,
}

impl Round {
    fn of(random: &mut Random) -> Round {
        let fate = match random.below(6) {
            0 => Fate::ToolKilled,
            1 => Fate::ServerKilled,
            _ => Fate::Undisturbed,
        };
        let algorithm = ALGORITHMS[random.below(6) as usize];
        let mut options = ["--quiet", "--algorithm", algorithm]
            .map(str::to_owned)
            .to_vec();
        let mut maybe = |words: &[&str]| {
            if random.below(3) == 0 {
                options.extend(words.iter().map(|word| (*word).to_owned()));
            }
        };
        maybe(&["--remote"]);
        maybe(&["--spread-checkpoint"]);
        maybe(&["--max-transfer-size", "128K"]);
        maybe(&["--buffer-count", "5"]);
        maybe(&["--verify"]);
        maybe(&["--max-rate", "30MB"]);
        Round {
            fate,
            delay_ms: random.below(4000),
            stripes: 1 + random.below(4),
            options,
        }
    }

    fn media(&self, stage: &Stage) -> Vec<PathBuf> {
        let name = |i| stage.path(&format!("soak.{i}.bak"));
        (1..=self.stripes).map(name).collect()
    }

    fn backup(&self, stage: &Stage) -> Command {
        let mut command = longshore(["backup"]);
        command.arg(stage.server.url()).args(&self.options);
        for device in self.media(stage) {
            command.arg("--to").arg(device);
        }
        command
    }
}

/// Goal: whatever the backup's options, whatever the server does meanwhile, and whatever is killed: every set that
/// claims to be a backup restores to an intact cluster.
/// Method: `LONGSHORE_PG_SOAK` rounds from `LONGSHORE_SEED`, each on a random major version under pgbench and DDL,
/// with random options. In a third of them this program or the server is killed at a random moment. A set that
/// verifies must restore; an undisturbed round must leave one.
#[test]
fn random_backups_restore_or_say_that_they_are_none() {
    let installations = installations();
    if installations.is_empty() {
        return;
    }
    let seed = from_env("LONGSHORE_SEED", 21);
    let mut random = Random(seed);
    let mut stages: BTreeMap<u32, Stage> = BTreeMap::new();
    let mut seen: BTreeMap<(Fate, bool), u32> = BTreeMap::new();
    let asked = from_env("LONGSHORE_PG_SOAK", 0);
    let rates = match asked {
        0 => [Some("200"), Some("10")],
        _ => [None; 2],
    };
    for number in 0..if asked == 0 { 3 } else { asked } {
        let installation = &installations[random.below(installations.len() as u64) as usize];
        let stage = stages.entry(installation.major).or_insert_with(|| {
            // A spread checkpoint takes 6 s.
            let conf = [
                ("checkpoint_timeout", "30s"),
                ("checkpoint_completion_target", "0.2"),
            ];
            let stage = Stage::new(installation, &conf);
            let space = place(&stage, "space").display().to_string();
            let sql = format!("create tablespace churn location '{space}'");
            stage.server.psql(&sql);
            let mut init = stage.server.command("pgbench");
            succeed(init.args(["-i", "-q", "-s", "2"]));
            stage
        });
        let round = Round::of(&mut random);
        let what = format!(
            "seed {seed}, round {number}, PostgreSQL {}: {round:?}",
            installation.major
        );
        let is_set = run(stage, &round, rates, &what);
        println!("{what}: {}", if is_set { "restored" } else { "no set" });
        *seen.entry((round.fate, is_set)).or_default() += 1;
        assert!(is_set || round.fate != Fate::Undisturbed, "{what}");
        tidy(stage);
    }
    println!("{seen:?}");
}

/// One round, with these rates of transactions in the bank and of tables. Returns whether there was a set, which then was
/// intact.
fn run(stage: &Stage, round: &Round, rates: [Option<&str>; 2], what: &str) -> bool {
    let server = &stage.server;
    let major = server.installation().major;
    let mut loads = vec![
        load_at(stage, None, 2, rates[0]),
        load_at(stage, Some(("tables.sql", TABLES)), 2, rates[1]),
    ];
    // Over the replication protocol nothing shows which databases cannot be replayed.
    if !round.options.iter().any(|option| option == "--remote") {
        let places = places_of(PLACES, major);
        loads.push(load(stage, Some(("places.sql", &places)), 1));
    }
    let mut backup = round.backup(stage);
    let backup = backup.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Guarded(backup.spawn().unwrap());
    if round.fate != Fate::Undisturbed {
        std::thread::sleep(Duration::from_millis(round.delay_ms));
    }
    match round.fate {
        Fate::Undisturbed => {}
        Fate::ToolKilled => child.0.kill().unwrap(),
        Fate::ServerKilled => server.kill9(),
    }
    let status = wait(&mut child.0, PATIENCE, what);
    let mut said = String::new();
    let stderr = child.0.stderr.as_mut().unwrap();
    std::io::Read::read_to_string(stderr, &mut said).unwrap();
    drop(loads);
    if round.fate == Fate::ServerKilled {
        assert!(
            matches!(status.code(), Some(0 | 3 | 5)),
            "{what}: {status} {said}"
        );
        server.start();
    }
    server.wait_for(
        "select count(*) from pg_stat_activity where application_name in ('pgbench', 'longshore')",
        "0",
    );
    server.wait_for("select count(*) from pg_replication_slots", "0");
    assert!(!server.data_dir().join("backup_label").exists(), "{what}");
    if status.code() == Some(5) {
        assert!(said.contains(NOT_WHOLE), "{what}: {said}");
        return true;
    }
    if status.success() {
        assert_eq!(said, "", "{what}");
    }

    let media = round.media(stage);
    let verified = longshore(["verify"]).args(&media).output().unwrap();
    let is_set = verified.status.success();
    assert!(
        is_set || !status.success(),
        "{what}: {}",
        text(&verified.stderr)
    );
    let target = stage.path("soak");
    let map = format!(
        "{}={}",
        stage.path("space").display(),
        stage.path("soak.space").display()
    );
    let mut restore = longshore(["restore"]);
    restore.args(&media).arg("--to").arg(&target);
    let restored = restore.args(["--tablespace-map", &map]).output().unwrap();
    let said = text(&restored.stderr);
    assert_eq!(restored.status.success(), is_set, "{what}: {said}");
    if is_set {
        let copy = Server::adopt(server.installation(), &target);
        copy.start();
        assert_eq!(copy.psql(SUMS), "t|t|t", "{what}");
        check(&copy, &target);
    } else {
        assert!(!target.join("global/pg_control").exists(), "{what}");
    }
    is_set
}

/// Many rounds need their space.
fn tidy(stage: &Stage) {
    let server = &stage.server;
    let left = "select format('drop database %I', datname) from pg_database where datname ~ '^(first|second)_'
         union all select format('drop table %I', relname) from pg_class
         where relkind = 'r' and relname ~ '^(churn|kept|moved)_'";
    let statements = server.psql(left).replace('\n', ";\n");
    server.psql(&statements);
    for name in ["soak", "soak.space"] {
        let path = stage.path(name);
        if path.exists() {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    for entry in stage.dir.path().read_dir().unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("soak.") && entry.path().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}
