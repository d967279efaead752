//! Goal: a backup of four stripes of data and two of parity over three servers, two stripes at each, outlives the loss of any server: it is
//! verified and restored from the other two, made whole at a fourth or at the one that is back, and made while one of them dies.
//! Method: versitygw processes, each with a bucket and a port of its own, which are killed and started again.
//! Not covered: a server that answers late or wrongly (`between.rs`), and real providers.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::store::{free_port, tool, wait_for_port};
use crate::common::{Guarded, answer, longshore_in, text};
use crate::{ID, PATIENCE, SECRET, ended};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// The server of each stripe: four of data, then two of parity.
const AT: [usize; 6] = [0, 1, 2, 0, 1, 2];

/// A server that can be killed, and started again over the same files.
struct Gateway {
    root: tempfile::TempDir,
    port: u16,
    process: Option<Guarded>,
}

impl Gateway {
    /// `None` if it is not installed.
    fn new() -> Option<Gateway> {
        let mut gateway = Gateway {
            root: tempfile::tempdir().unwrap(),
            port: free_port(),
            process: None,
        };
        std::fs::create_dir_all(gateway.root.path().join("store/nightly")).unwrap();
        gateway.start()?;
        Some(gateway)
    }

    fn start(&mut self) -> Option<()> {
        let child = Command::new(tool("buckets/versitygw")?)
            .env("ROOT_ACCESS_KEY", ID)
            .env("ROOT_SECRET_KEY", SECRET)
            .args(["--port", &format!("127.0.0.1:{}", self.port), "posix"])
            .arg(self.root.path().join("store"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(Guarded(child));
        wait_for_port(self.port, "versitygw");
        Some(())
    }

    /// Kills it.
    fn stop(&mut self) {
        self.process = None;
    }

    /// The bytes that are in its files, those of parts of uploads included.
    fn bytes(&self) -> u64 {
        fn below(dir: PathBuf) -> u64 {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let of = |entry: std::fs::DirEntry| match entry.metadata() {
                Ok(found) if found.is_dir() => below(entry.path()),
                Ok(found) => found.len(),
                Err(_) => 0,
            };
            entries.map(of).sum()
        }
        below(self.root.path().join("store"))
    }
}

struct Stage {
    dir: tempfile::TempDir,
    gateways: Vec<Gateway>,
}

impl Stage {
    fn new() -> Option<Stage> {
        let gateways = NAMES.iter().map(|_| Gateway::new());
        let stage = Stage {
            dir: tempfile::tempdir().unwrap(),
            gateways: gateways.collect::<Option<Vec<_>>>()?,
        };
        let tables = NAMES.iter().zip(&stage.gateways).map(|(name, gateway)| {
            format!(
                "[target.{name}]\nbuckets = [\"s3://nightly/b\"]\nendpoint = \"http://127.0.0.1:{}\"\nregion = \"us-east-1\"\n\
                 allow_http = true\npatience = 10\n",
                gateway.port
            )
        });
        std::fs::write(stage.path("longshore.toml"), tables.collect::<String>()).unwrap();
        let connection = rusqlite::Connection::open(stage.path("app.db")).unwrap();
        connection
            .execute_batch(
                "create table t(a); with recursive n(i) as (select 1 union all select i + 1 from n where i < 400)
                 insert into t select randomblob(100000) from n;",
            )
            .unwrap();
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let args: Vec<&str> = line.split_whitespace().collect();
        let mut command = longshore_in(self.dir.path(), &args);
        command
            .env("HOME", self.dir.path())
            .env("AWS_ACCESS_KEY_ID", ID)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("LONGSHORE_PART_MIB", "5");
        command
    }

    fn run(&self, expected: i32, line: &str) -> Output {
        ended(expected, &mut self.command(line))
    }

    fn restores(&self, expected: i32, stripes: &str, to: &str) {
        self.run(expected, &format!("restore {stripes} --to {to}"));
        let read = |name: &str| std::fs::read(self.path(name)).unwrap();
        assert!(read(&format!("{to}/app.db")) == read("app.db"), "{to}");
    }
}

/// The addresses of the stripes that are at servers for which `is_wanted`; those of one server can be at another.
fn stripes(name: &str, option: &str, at: impl Fn(usize) -> Option<usize>) -> String {
    let one = |(number, server): (usize, &usize)| {
        let server = NAMES[at(*server)?];
        Some(format!(
            " {option} s3+{server}://nightly/{name}-{number}.bak"
        ))
    };
    AT.iter().enumerate().filter_map(one).collect()
}

#[test]
fn four_and_two_stripes_over_three_servers_outlive_the_loss_of_any_of_them() {
    let Some(mut stage) = Stage::new() else {
        return;
    };
    let made = format!(
        "backup app.db{} --parity 2 --verify",
        stripes("app", "--to", Some)
    );
    stage.run(0, &made);
    let all = stripes("app", "", Some);
    stage.run(0, &format!("verify{all}"));
    for lost in 0..3 {
        stage.gateways[lost].stop();
        let left = stripes("app", "", |server| (server != lost).then_some(server));
        let told = answer(&stage.run(5, &format!("list{left} --json")));
        assert_eq!(told["sets"][0]["degraded"], true, "{told}");
        let verified = stage.run(5, &format!("verify{left}"));
        let said = text(&verified.stdout) + &text(&verified.stderr);
        assert!(
            said.contains("DEGRADED") || said.contains("parity"),
            "{said}"
        );
        stage.restores(5, &left, &format!("without-{lost}"));
        // One stripe more is one too many.
        let fewer = left
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            stage
                .command(&format!("restore {fewer} --to none"))
                .status()
                .unwrap()
                .code(),
            Some(4)
        );
        assert!(!stage.path("none/app.db").exists());
        stage.gateways[lost].start();
    }
    // Whole again at a fourth server, in place of the first one.
    stage.gateways[0].stop();
    let moved = stripes("app", "", |server| {
        Some(if server == 0 { 3 } else { server })
    });
    let repaired = answer(&stage.run(0, &format!("repair{moved} --json")));
    assert!(
        repaired["written_bytes"].as_u64().unwrap() > 10_000_000,
        "{repaired}"
    );
    stage.run(0, &format!("verify{moved}"));
    stage.restores(0, &moved, "at-fourth");
    // The first one is back, and its stripes are the same bytes.
    stage.gateways[0].start();
    stage.run(0, &format!("verify{all}"));
    let stripe = |server: usize| {
        let path = stage.gateways[server].root.path();
        std::fs::read(path.join("store/nightly/app-0.bak")).unwrap()
    };
    assert!(stripe(0) == stripe(3));
    // It is back without them, as after the loss of its disks.
    for number in [0, 3] {
        let name = format!("store/nightly/app-{number}.bak");
        std::fs::remove_file(stage.gateways[0].root.path().join(name)).unwrap();
    }
    stage.run(5, &format!("verify{all}"));
    stage.run(0, &format!("repair{all}"));
    stage.run(0, &format!("verify{all}"));
    stage.restores(0, &all, "back");
}

#[test]
fn a_server_that_dies_during_the_backup_costs_its_two_stripes() {
    let Some(mut stage) = Stage::new() else {
        return;
    };
    let to = stripes("app", "--to", Some);
    let line =
        format!("backup app.db{to} --parity 2 --tolerate 2 --max-rate 4000000 -a NONE --json");
    let mut command = stage.command(&line);
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(move || command.output().unwrap());
        let deadline = Instant::now() + PATIENCE;
        // All servers have parts of it.
        while stage.gateways[..3]
            .iter()
            .any(|gateway| gateway.bytes() < 5_000_000)
        {
            assert!(
                Instant::now() < deadline && !run.is_finished(),
                "the backup has not begun"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        stage.gateways[2].stop();
        run.join().unwrap()
    });
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert_eq!(answer(&output)["degraded"], true, "{said}");
    let left = stripes("app", "", |server| (server != 2).then_some(server));
    stage.run(5, &format!("verify{left}"));
    stage.restores(5, &left, "degraded");
    stage.gateways[2].start();
    let all = stripes("app", "", Some);
    stage.run(0, &format!("repair{all}"));
    stage.run(0, &format!("verify{all}"));
    stage.restores(0, &all, "whole");
}

/// Goal: the same by the database's name: the target goes on without the places that do not answer, as far as parity stands for them.
#[test]
fn a_target_over_three_servers_is_read_by_name_while_one_is_away() {
    let Some(mut stage) = Stage::new() else {
        return;
    };
    let places = AT.map(|server| format!("\"s3+{}://nightly/six\"", NAMES[server]));
    let config = std::fs::read_to_string(stage.path("longshore.toml")).unwrap();
    let config = config.replace("patience = 10", "patience = 5")
        + &format!(
            "[database.app]\nurl = \"sqlite:{}\"\ntarget = \"six\"\n[target.six]\nbuckets = [{}]\nparity = 2\n",
            stage.path("app.db").display(),
            places.join(", ")
        );
    std::fs::write(stage.path("longshore.toml"), config).unwrap();
    let label = answer(&stage.run(0, "backup app --json"))["label"].to_string();
    let label = label.trim_matches('"');
    for (lost, name) in NAMES.iter().enumerate().take(3) {
        stage.gateways[lost].stop();
        stage.restores(5, "--database app", &format!("without-{lost}"));
        // The first of all places has the leases.
        if lost == 0 {
            let told = stage.run(5, "info app");
            let said = text(&told.stdout) + &text(&told.stderr);
            assert!(said.contains(label) && said.contains("DEGRADED"), "{said}");
            assert!(said.contains(&format!("s3+{name}://nightly/six")), "{said}");
            stage.run(5, "verify --database app");
            // Writers and removers need every place.
            stage.run(4, "backup app");
            stage.run(4, "expire app --keep-full 1");
        }
        if lost == 2 {
            stage.gateways[0].stop();
            stage.run(4, "restore --database app --to nothing");
            assert!(!stage.path("nothing").exists());
            stage.gateways[0].start();
        }
        stage.gateways[lost].start();
    }
    stage.run(0, "info app");
    stage.run(0, "verify --database app");
}
