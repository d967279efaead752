//! Goal: chains of full, differential and incremental backups of a server and of its standby come back completely.
//! Method: random plans under a workload on real servers; dumps of the restored servers are compared
//! with the origin's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Server, User, installations};

use crate::common::{Guarded, Random, from_env, longshore};
use crate::copies::until_whole;
use crate::differential::{some, ways};
use crate::live::{PLACES, SUMS, TABLES, archived, load_at, place, places_of};
use crate::stage::{Stage, check, dump, same, succeed};

const ALGORITHMS: &[&str] = &["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"];
const FULL: &str = "full";
const POINT: &str = "rest";

/// The node from which a backup is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Primary,
    Standby,
}

/// The event before a backup that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    /// The next change of a page is logged as a full page image.
    Checkpoint,
    /// The primary is killed and recovers.
    Crash,
    /// A database is dropped and created again, with its OID if the major version can do that.
    Again,
    Vacuum,
}

/// One set on top of others.
#[derive(Debug)]
struct Link {
    before: Event,
    is_incremental: bool,
    node: Node,
    options: Vec<String>,
}

/// The plan of a round, all of it random.
#[derive(Debug)]
struct Round {
    has_standby: bool,
    links: Vec<Link>,
    /// The link that is restored as it is; the last one is replayed to the LSN at which the origin rests.
    judged: usize,
    /// Whether one more set is taken of the server at rest.
    at_rest: bool,
}

impl Round {
    fn of(random: &mut Random) -> Round {
        let has_standby = random.below(2) == 0;
        let count = 2 + random.below(2) as usize;
        let link = |number: usize, random: &mut Random| {
            let algorithm = ALGORITHMS[random.below(6) as usize];
            let mut options = vec!["--algorithm".to_owned(), algorithm.to_owned()];
            let mut maybe = |words: &[&str]| {
                if random.below(3) == 0 {
                    options.extend(words.iter().map(|word| (*word).to_owned()));
                }
            };
            maybe(&["--spread-checkpoint"]);
            maybe(&["--max-transfer-size", "128K"]);
            maybe(&["--verify"]);
            maybe(&["--max-rate", "20MB"]);
            Link {
                before: match random.below(6) {
                    0 => Event::Checkpoint,
                    1 => Event::Crash,
                    2 => Event::Again,
                    3 => Event::Vacuum,
                    _ => Event::Nothing,
                },
                // There is one of each kind in every chain.
                is_incremental: number == 1 || number > 1 && random.below(3) > 0,
                node: match has_standby && random.below(2) == 0 {
                    true => Node::Standby,
                    false => Node::Primary,
                },
                options,
            }
        };
        let links: Vec<Link> = (0..count).map(|number| link(number, random)).collect();
        Round {
            has_standby,
            links,
            judged: random.below(count as u64) as usize,
            at_rest: random.below(3) == 0,
        }
    }

    /// The media of link `number` and of all that it needs, newest first.
    fn chain(&self, number: usize) -> Vec<String> {
        let mut names = vec![name(number)];
        let mut at = number;
        while at > 0 && self.links[at].is_incremental {
            at -= 1;
            names.push(name(at));
        }
        names.push(FULL.into());
        names
    }
}

fn name(link: usize) -> String {
    format!("link{link}")
}

/// Short enough for a log line.
impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("full")?;
        for link in &self.links {
            let how = if link.is_incremental { "inc" } else { "diff" };
            let at = match link.node {
                Node::Primary => "",
                Node::Standby => "@standby",
            };
            write!(f, " {:?} {how}{at}", link.before)?;
        }
        let rest = if self.at_rest { ", one at rest" } else { "" };
        write!(f, "; judged: {}{rest}", self.judged)
    }
}

/// Goal: a cluster restored from sets of a chain is intact, in a state that existed, although the cluster was written,
/// its relations and databases were created, dropped and moved, and its server was killed while the sets were taken.
/// With more WAL it is exactly what the origin was at that LSN. It makes no difference which sets are the primary's
/// and which the standby's.
/// Method: as for full backups (`live`), on every major version and with both ways to find changed pages.
/// `LONGSHORE_PG_CHAINS` rounds go over the major versions in turn, the first with the seed `LONGSHORE_SEED`, each
/// with the next; without it one round for each way on few major versions.
#[test]
fn chains_taken_under_load_are_restored_completely() {
    let asked = from_env("LONGSHORE_PG_CHAINS", 0);
    let majors = if asked == 0 { some() } else { installations() };
    let of_major = |i: &Installation| ways(i).into_iter().map(|conf| (i.clone(), conf)).collect();
    let rows: Vec<_> = majors.iter().flat_map::<Vec<_>, _>(of_major).collect();
    let count = if asked == 0 { rows.len() as u64 } else { asked };
    if rows.is_empty() {
        return;
    }
    let first = from_env("LONGSHORE_SEED", 4);
    for seed in first..first + count {
        let (installation, conf) = &rows[(seed % rows.len() as u64) as usize];
        let round = Round::of(&mut Random(seed));
        let method = match conf.is_empty() {
            true => "page sums",
            false => "WAL summaries",
        };
        let what = format!(
            "PostgreSQL {}, {method}, seed {seed}: {round}",
            installation.major
        );
        print!("{what}");
        std::io::Write::flush(&mut std::io::stdout()).unwrap();
        run(installation, conf, &round, &what);
        println!(": restored");
    }
}

/// A server, its archive, and in some rounds its standby.
struct Site {
    archive: tempfile::TempDir,
    primary: Stage,
    standby: Option<Server>,
    /// The OID of the tablespace.
    space: String,
}

impl Site {
    fn new(installation: &Installation, conf: &[(&str, &str)]) -> Site {
        let archive = longshore_kit::place::of(User::of_servers(), "lsarch");
        let command = format!("cp %p {}/%f", archive.path().display());
        let own = [
            ("checkpoint_timeout", "30s"),
            // A spread checkpoint takes 6 s.
            ("checkpoint_completion_target", "0.2"),
            ("archive_mode", "on"),
            ("archive_command", &command),
        ];
        let primary = Stage::with_long_segments(installation, &[conf, &own].concat());
        let server = &primary.server;
        let location = place(&primary, "space").display().to_string();
        server.psql(&format!("create tablespace churn location '{location}'"));
        server.psql("create database again");
        server.psql_in(
            "again",
            "create table t as select g, 'old' as t from generate_series(1, 3000) g",
        );
        // The same file numbers, other pages. No session stays connected to it.
        server.psql("create database pattern template again");
        server.psql_in("pattern", "update t set t = 'new'; checkpoint");
        let space = server.psql("select oid from pg_tablespace where spcname = 'churn'");
        succeed(server.command("pgbench").args(["-i", "-q", "-s", "2"]));
        Site {
            archive,
            primary,
            standby: None,
            space,
        }
    }

    /// Made as an operator would: from the restored full backup. So its files have the times that the base records.
    fn add_standby(&mut self) {
        let data = self.primary.path("standby");
        succeed(self.restore(&[FULL.into()], &data).args([
            "--standby",
            "--restore-command",
            &self.fetch(),
        ]));
        let server = Server::adopt(self.primary.server.installation(), &data);
        let host = self.primary.server.socket_dir().display();
        let port = self.primary.server.port();
        server.append_conf(&format!(
            "primary_conninfo = 'host={host} port={port} user=postgres'\narchive_mode = off"
        ));
        server.start();
        self.standby = Some(server);
    }

    fn fetch(&self) -> String {
        format!("cp {}/%f \"%p\"", self.archive.path().display())
    }

    /// Slow enough that few databases remain at the end: each is dumped and checked.
    fn loads(&self) -> Vec<Guarded> {
        let places = places_of(PLACES, self.primary.server.installation().major);
        let begin = |script, clients, rate| load_at(&self.primary, script, clients, Some(rate));
        vec![
            begin(None, 2, "50"),
            begin(Some(("tables.sql", TABLES)), 2, "2"),
            begin(Some(("places.sql", &places)), 1, "0.3"),
        ]
    }

    /// Waits until a client of the bank has committed.
    fn work(&self) {
        let server = &self.primary.server;
        let sql = "select count(*) from pgbench_history";
        let before: u32 = server.psql(sql).parse().unwrap();
        server.wait_for(
            &format!("select count(*) > {} from pgbench_history", before + 20),
            "t",
        );
    }

    fn happen(&self, event: Event, loads: &mut Vec<Guarded>) {
        let server = &self.primary.server;
        match event {
            Event::Nothing => {}
            Event::Checkpoint => drop(server.psql("checkpoint")),
            Event::Vacuum => drop(server.psql("vacuum")),
            Event::Crash => {
                loads.clear();
                server.kill9();
                server.start();
                *loads = self.loads();
            }
            Event::Again => {
                let oid = server.psql("select oid from pg_database where datname = 'again'");
                let how = match server.installation().major {
                    14 => String::new(),
                    _ => format!("oid = {oid} strategy file_copy"),
                };
                server.psql(&format!(
                    "drop database again; create database again template pattern {how}"
                ));
                server.psql_in("again", "update t set t = 'mine' where g % 500 = 0");
            }
        }
    }

    /// Waits until the standby has made a restartpoint of a new checkpoint.
    fn catch_up(&self) {
        let server = &self.primary.server;
        server.psql("checkpoint");
        let end = server.psql("select pg_current_wal_lsn()");
        let standby = self.standby.as_ref().unwrap();
        standby.wait_for(&format!("select pg_last_wal_replay_lsn() >= '{end}'"), "t");
    }

    /// Backs up until no database of the backup was lost to a move.
    fn back_up(&self, media: &str, node: Node, options: &[String]) {
        let server = match node {
            Node::Primary => &self.primary.server,
            Node::Standby => self.standby.as_ref().unwrap(),
        };
        until_whole(|| {
            let _none_the_first_time = std::fs::remove_file(self.primary.path(media));
            if node == Node::Standby {
                self.catch_up();
            }
            let mut command = longshore(["backup", "--quiet"]);
            command.arg(server.url()).args(options);
            command.arg("--to").arg(self.primary.path(media));
            command
        });
    }

    fn take(&self, round: &Round, number: usize, link: &Link) {
        let base = &round.chain(number)[1];
        let how = if link.is_incremental {
            "--incremental"
        } else {
            "--differential"
        };
        let base = [
            "--base".to_owned(),
            self.primary.path(base).display().to_string(),
        ];
        let options = [&[how.to_owned()][..], &base, &link.options].concat();
        self.back_up(&name(number), link.node, &options);
    }

    /// `longshore restore` of sets, newest first, not yet run. The tablespace goes next to the target.
    fn restore(&self, media: &[String], target: &Path) -> Command {
        let map = format!("{}={}.space", self.space, target.display());
        let mut command = longshore(["restore", "--tablespace-map", &map, "--to"]);
        command.arg(target).arg(self.primary.path(&media[0]));
        for base in &media[1..] {
            command.arg("--base").arg(self.primary.path(base));
        }
        command
    }

    /// A server on the restored directory.
    fn restored(&self, media: &[String], more: &[&str]) -> Copy {
        let target = self.primary.path("copy");
        succeed(self.restore(media, &target).args(more));
        let mut verify = self.primary.server.command("pg_verifybackup");
        succeed(verify.arg("--no-parse-wal").arg(&target));
        let server = Server::adopt(self.primary.server.installation(), &target);
        server.append_conf("archive_mode = off");
        server.start();
        Copy { server, target }
    }

    /// The copy's dump, in the wording of its origin.
    fn dump_of(&self, copy: &Copy) -> String {
        let location = self.primary.path("space").display().to_string();
        dump(&copy.server).replace(&format!("{}.space", copy.target.display()), &location)
    }
}

struct Copy {
    server: Server,
    target: PathBuf,
}

impl Copy {
    /// Checks that relations, indexes and pages are intact; then removes the copy.
    fn judge(self) {
        check(&self.server, &self.target);
        std::fs::remove_dir_all(&self.target).unwrap();
        std::fs::remove_dir_all(format!("{}.space", self.target.display())).unwrap();
    }
}

fn run(installation: &Installation, conf: &[(&str, &str)], round: &Round, what: &str) {
    let mut site = Site::new(installation, conf);
    let mut loads = site.loads();
    site.work();
    site.back_up(FULL, Node::Primary, &[]);
    if round.has_standby {
        site.add_standby();
    }
    for (number, link) in round.links.iter().enumerate() {
        site.happen(link.before, &mut loads);
        site.work();
        site.take(round, number, link);
    }
    drop(loads);
    let server = &site.primary.server;
    server.wait_for(
        "select count(*) from pg_stat_activity where application_name = 'pgbench'",
        "0",
    );
    server.psql(&format!("select pg_create_restore_point('{POINT}')"));
    let before = dump(server);
    archived(server);

    let copy = site.restored(&round.chain(round.judged), &[]);
    assert_eq!(copy.server.psql(SUMS), "t|t|t", "{what}");
    copy.judge();

    let last = round.links.len() - 1;
    let fetch = site.fetch();
    let more = ["--restore-command", &fetch, "--target-name", POINT];
    let more = [&more[..], &["--target-action", "promote"]].concat();
    let copy = site.restored(&round.chain(last), &more);
    copy.server.wait_for("select pg_is_in_recovery()", "f");
    same(&site.dump_of(&copy), &before);
    copy.judge();

    if round.at_rest {
        let base = site.primary.path(&name(last)).display().to_string();
        let options = ["--incremental".to_owned(), "--base".into(), base];
        site.back_up(POINT, Node::Primary, &options);
        let chain = [vec![POINT.into()], round.chain(last)].concat();
        let copy = site.restored(&chain, &[]);
        same(&site.dump_of(&copy), &before);
        copy.judge();
    }
}
