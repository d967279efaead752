//! Goal: the cluster that a differential or incremental backup restores is the origin, whatever happened since the
//! base.
//! Method: real servers of representative versions, with each way to find changed pages; files are compared byte by
//! byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Server, Stop, installations, representatives};
use serde_json::Value;

use crate::common::{Tree, answer, longshore, read, text};
use crate::stage::{Stage, check, dump, end, succeed};

/// The ways to find changed pages that a major version has.
pub fn ways(installation: &Installation) -> Vec<&'static [(&'static str, &'static str)]> {
    match installation.major {
        17.. => vec![&[], &[("summarize_wal", "on")]],
        _ => vec![&[]],
    }
}

/// Two representative major versions: one without WAL summaries, and one with.
pub fn some() -> Vec<Installation> {
    let all = installations().into_iter();
    all.filter(|i| i.major == 15 || i.major == 17).collect()
}

impl Stage {
    /// A backup to the file `name` that differs from the newest set in the file `base`, not yet run.
    pub fn differing(&self, name: &str, how: &str, base: &str) -> Command {
        let mut command = self.backup(name);
        command.args([how, "--json", "--base"]).arg(self.path(base));
        command
    }

    /// Restores the last of `names`, which needs all earlier ones, into a directory of that name.
    pub fn tree(&self, names: &[&str]) -> PathBuf {
        let (last, bases) = names.split_last().unwrap();
        let target = self.path(&format!("{last}.restored"));
        let mut command = longshore(["restore", "--to"]);
        command.arg(&target).arg(self.path(last));
        for base in bases {
            command.arg("--base").arg(self.path(base));
        }
        succeed(&mut command);
        target
    }

    /// A server on what [`Stage::tree`] restored.
    pub fn serve(&self, target: &Path) -> Server {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(target, mode).unwrap();
        self.server.user().own(target);
        let server = Server::adopt(self.server.installation(), target);
        server.start();
        server
    }

    /// The restored files equal those of the quiet server: since then it has written only the end of the backup.
    pub fn assert_same_files(&self, target: &Path) {
        self.server.psql("checkpoint");
        compare(&relevant(target), &relevant(self.server.data_dir()));
    }
}

/// Relations and the state of transactions: what a backup holds of them.
pub fn relevant(data: &Path) -> Tree {
    let mut tree = Tree::new();
    for dir in ["base", "global", "pg_xact", "pg_multixact", "pg_tblspc"] {
        let all = read(&data.join(dir));
        let init = |path: &Path| {
            path.to_str()
                .unwrap()
                .strip_suffix("_init")
                .map(String::from)
        };
        let unlogged: Vec<String> = all.keys().filter_map(|path| init(path)).collect();
        for (path, bytes) in all {
            let name = path.file_name().unwrap_or_default().to_str().unwrap();
            let relation = path.to_str().unwrap().split(['_', '.']).next().unwrap();
            let is_unlogged = init(&path).is_none() && unlogged.iter().any(|u| u == relation);
            if !name.starts_with("pg_internal.init") && name != "pg_control" && !is_unlogged {
                tree.insert(Path::new(dir).join(path), bytes);
            }
        }
    }
    tree
}

pub fn differential(report: &Value) -> &Value {
    &report["differential"]
}

pub const BEFORE: &str = "
    create table still as select g, md5(g::text) m from generate_series(1, 20000) g;
    create index on still (m);
    create table touched as select g, repeat('x', 300) t from generate_series(1, 20000) g;
    create table shrinks as select g, repeat('x', 300) t from generate_series(1, 20000) g;
    create table grows as select g, repeat('x', 300) t from generate_series(1, 2000) g;
    create table goes (g int);
    create table emptied as select g from generate_series(1, 10000) g;
    create unlogged table u as select g from generate_series(1, 10000) g;
    create table bare as select g from generate_series(1, 5000) g;
    create sequence s; select nextval('s');
    create database other;";

/// Every kind of change to files, on a cluster with `BEFORE`; `n` makes the names unique.
pub fn change(server: &Server, n: u32) {
    server.psql(&format!(
        "update touched set t = 'y{n}' where g % 997 = 0;
         delete from shrinks where g > {};
         insert into grows select g, repeat('z', 300) from generate_series(1, 3000) g;
         drop table if exists goes;
         create table new_{n} as select g, md5(g::text) m from generate_series(1, 3000) g;
         create index on new_{n} (m);
         truncate emptied; insert into emptied select g from generate_series(1, {n} * 100) g;
         alter table u set {};
         select nextval('s') from generate_series(1, 50);
         cluster bare using bare_g;",
        10000 / n,
        if n % 2 == 1 { "logged" } else { "unlogged" },
    ));
    server.psql("vacuum");
    server.psql("insert into shrinks select g, 'back' from generate_series(1, 500) g");
    server.psql_in("other", &format!("create table t_{n} as select {n} as n"));
    settle(server);
}

/// Sets all hint bits, so that later reads change no page.
fn settle(server: &Server) {
    let names = "select datname from pg_database where datallowconn and datname <> 'template1'";
    for database in server.psql(names).lines() {
        server.psql_in(database, "vacuum");
    }
}

/// Goal: full, differential and incremental sets together give the server's files page for page, whichever way changed
/// pages were found, and a server recovers on them.
#[test]
fn sets_of_a_chain_are_the_cluster() {
    for installation in representatives() {
        for conf in ways(&installation) {
            let stage = Stage::new(&installation, conf);
            let server = &stage.server;
            let space = stage.path("space");
            std::fs::create_dir(&space).unwrap();
            server.user().own(&space);
            server.psql(BEFORE);
            server.psql("create index bare_g on bare (g)");
            server.psql(&format!(
                "create tablespace s location '{}'",
                space.display()
            ));
            server
                .psql("create table far tablespace s as select g from generate_series(1, 5000) g");
            let full = answer(&succeed(stage.backup("full").arg("--json")));
            assert!(differential(&full).is_null());
            change(server, 1);
            server.psql("update far set g = 0 where g = 77");
            let first = answer(&succeed(&mut stage.differing(
                "diff",
                "--differential",
                "full",
            )));
            assert_eq!(differential(&first)["parent"], full["set"]);
            let is_summed = !conf.is_empty();
            let method = if is_summed {
                "WAL summaries"
            } else {
                "page sums"
            };
            assert_eq!(differential(&first)["method"], method);
            let bytes = |report: &Value, what: &str| differential(report)[what].as_u64().unwrap();
            assert!(bytes(&first, "based_files") > 100);
            assert!(first["plain_bytes"].as_u64() < full["plain_bytes"].as_u64());
            let (read, changed) = (bytes(&first, "read_bytes"), bytes(&first, "changed_bytes"));
            let whole = full["plain_bytes"].as_u64().unwrap();
            assert!(changed <= read, "{changed} of {read}");
            assert_eq!(read < whole / 2, is_summed, "{read} of {whole}");
            change(server, 2);
            let second = answer(&succeed(&mut stage.differing(
                "inc",
                "--incremental",
                "diff",
            )));
            assert_eq!(differential(&second)["parent"], first["set"]);
            let target = mapped(&stage, &["full", "diff", "inc"]);
            assert_same(&stage, &target);
            let third = answer(&succeed(&mut stage.differing(
                "diff2",
                "--differential",
                "full",
            )));
            assert_eq!(differential(&third)["parent"], full["set"]);
            let target = mapped(&stage, &["full", "diff2"]);
            assert_same(&stage, &target);
            let restored = stage.serve(&target);
            let moved = target.with_extension("space");
            let found = dump(&restored).replace(moved.to_str().unwrap(), space.to_str().unwrap());
            assert_eq!(found, dump(server), "PostgreSQL {}", installation.major);
            check(&restored, &target);
        }
    }
}

/// As [`Stage::tree`], with the tablespace in a separate directory, to which the restored link points.
pub fn mapped(stage: &Stage, names: &[&str]) -> PathBuf {
    let (last, bases) = names.split_last().unwrap();
    let target = stage.path(&format!("{last}.restored"));
    let space = stage.path(&format!("{last}.space"));
    let map = format!("{}={}", stage.path("space").display(), space.display());
    let mut command = longshore(["restore", "--tablespace-map", &map, "--to"]);
    command.arg(&target).arg(stage.path(last));
    for base in bases {
        command.arg("--base").arg(stage.path(base));
    }
    succeed(&mut command);
    stage.server.user().own(&space);
    target
}

/// Compares the files, and those of the tablespace, which are behind a link.
pub fn assert_same(stage: &Stage, target: &Path) {
    stage.server.psql("checkpoint");
    let strip = |tree: Tree| {
        let inside = |(path, bytes): (PathBuf, Vec<u8>)| {
            let is_link = path.starts_with("pg_tblspc");
            (!is_link).then_some((path, bytes))
        };
        tree.into_iter().filter_map(inside).collect::<Tree>()
    };
    compare(
        &strip(relevant(target)),
        &strip(relevant(stage.server.data_dir())),
    );
    let space = target.with_extension("space");
    compare(&read(&space), &read(&stage.path("space")));
}

pub fn compare(found: &Tree, expected: &Tree) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (path, bytes) in expected {
        let page = |bytes: &[u8], i: usize| bytes.chunks(8192).nth(i).map(<[u8]>::to_vec);
        let count = bytes.len().max(found[path].len()).div_ceil(8192);
        let differ = |i: &usize| page(&found[path], *i) != page(bytes, *i);
        let wrong: Vec<usize> = (0..count).filter(differ).collect();
        assert!(wrong.is_empty(), "{}: pages {wrong:?}", path.display());
    }
}

/// Goal: the independent reader, written from docs/format.md alone, gives the same files.
#[test]
fn the_independent_reader_puts_a_chain_together() {
    let Some(installation) = some().into_iter().next() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage.server.psql(BEFORE);
    // The reader's own LZ4 is slow; its inflate is a library's.
    let backup = |name: &str, arguments: &[&str]| {
        let mut command = longshore(["backup", &stage.server.url(), "--to"]);
        succeed(command.arg(stage.path(name)).args(arguments));
    };
    backup("full", &[]);
    stage
        .server
        .psql("update touched set t = 'y' where g % 997 = 0");
    settle(&stage.server);
    let base = stage.path("full");
    backup(
        "diff",
        &["--differential", "--base", base.to_str().unwrap()],
    );
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let restore = |name: &str, arguments: &[&Path]| {
        let mut command = Command::new("python3");
        command.arg(&reader).arg("restore");
        command.arg("--to").arg(stage.path(&format!("{name}.read")));
        command.args(arguments).arg(stage.path(name));
        command
    };
    succeed(&mut restore("full", &[]));
    let alone = restore("diff", &[]).output().unwrap();
    assert_eq!(alone.status.code(), Some(1), "{}", text(&alone.stderr));
    let parent = stage.path("full.read");
    std::fs::remove_dir_all(stage.path("diff.read")).ok();
    succeed(&mut restore("diff", &["--parent".as_ref(), &parent]));
    stage.assert_same_files(&stage.path("diff.read"));
}

/// Goal: differential backups stay correct over crashes, restarts with `wal_level = minimal` and promotions since the
/// base.
#[test]
fn chains_survive_server_events_between_the_sets() {
    for installation in some() {
        for conf in ways(&installation) {
            let stage = Stage::new(&installation, conf);
            let server = &stage.server;
            server.psql(BEFORE);
            succeed(&mut stage.backup("full"));
            server.psql("update touched set t = 'crash' where g % 501 = 0");
            server.kill9();
            server.start();
            server.psql("update touched set t = 'after' where g % 701 = 0");
            settle(server);
            succeed(&mut stage.differing("crashed", "--differential", "full"));
            stage.assert_same_files(&stage.tree(&["full", "crashed"]));

            // A table that is filled in the transaction that creates it is not logged.
            server.stop(Stop::Fast);
            let replica =
                std::fs::read_to_string(server.data_dir().join("postgresql.conf")).unwrap();
            server.append_conf("wal_level = minimal\nmax_wal_senders = 0\nsummarize_wal = off");
            if installation.major < 17 {
                let conf = format!("{replica}\nwal_level = minimal\nmax_wal_senders = 0\n");
                std::fs::write(server.data_dir().join("postgresql.conf"), conf).unwrap();
            }
            server.start();
            server.psql(
                "begin; create table made (p point);
                 insert into made select point(g, g) from generate_series(1, 5000) g;
                 create index on made using gist (p); commit;
                 begin; truncate emptied; insert into emptied select 7 from generate_series(1, 3000); commit;
                 update touched set t = 'minimal' where g % 801 = 0;",
            );
            server.stop(Stop::Fast);
            std::fs::write(server.data_dir().join("postgresql.conf"), replica).unwrap();
            server.start();
            settle(server);
            let report = answer(&succeed(&mut stage.differing(
                "minimal",
                "--differential",
                "full",
            )));
            // It was restarted.
            assert_eq!(differential(&report)["method"], "page sums");
            stage.assert_same_files(&stage.tree(&["full", "minimal"]));

            // Another base, from before the promotion.
            succeed(&mut stage.backup("full2"));
            server.stop(Stop::Fast);
            let signal = server.data_dir().join("standby.signal");
            std::fs::write(&signal, "").unwrap();
            server.user().own(&signal);
            server.start();
            server.psql("select pg_promote()");
            server.psql("update touched set t = 'promoted' where g % 601 = 0");
            settle(server);
            let mut command = stage.differing("promoted", "--differential", "full2");
            let report = answer(&succeed(&mut command));
            // It was restarted.
            assert_eq!(differential(&report)["method"], "page sums");
            let target = stage.tree(&["full2", "promoted"]);
            stage.assert_same_files(&target);
            let restored = stage.serve(&target);
            assert_eq!(dump(&restored), dump(server));
            check(&restored, &target);
        }
    }
}

/// Goal: if the server's WAL summaries are incomplete, nothing is guessed: pages are compared instead, and the report
/// says why.
/// Method: the newest summary at the time of the changes is missing, or has a changed byte, or is truncated.
#[test]
fn summaries_with_a_gap_or_damage_are_not_used() {
    let newer = |installation: &Installation| installation.major >= 17;
    let Some(installation) = installations().into_iter().find(newer) else {
        return;
    };
    let stage = Stage::new(&installation, &[("summarize_wal", "on")]);
    let server = &stage.server;
    server.psql(BEFORE);
    succeed(&mut stage.backup("full"));
    server.psql("update touched set t = 'changed' where g % 997 = 0");
    settle(server);
    let taken = |name: &str| {
        let mut command = stage.differing(name, "--differential", "full");
        let report = answer(&succeed(&mut command));
        let notices = report["run"].to_string();
        (differential(&report)["method"].clone(), notices)
    };
    assert_eq!(taken("whole").0, "WAL summaries");
    // The summary reaches to the LSN at which that backup began, so every later backup needs it.
    let dir = server.data_dir().join("pg_wal/summaries");
    let names = std::fs::read_dir(&dir).unwrap();
    let newest = names.map(|entry| entry.unwrap().path()).max().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let flipped = || {
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        bytes
    };
    for (name, bytes) in [
        ("cut", Some(whole[..whole.len() - 4].to_vec())),
        ("flipped", Some(flipped())),
        ("gone", None),
    ] {
        match bytes {
            Some(bytes) => std::fs::write(&newest, bytes).unwrap(),
            None => std::fs::remove_file(&newest).unwrap(),
        }
        let (method, notices) = taken(name);
        assert_eq!(method, "page sums", "{name}: {notices}");
        assert!(notices.contains("every page is read to find"), "{notices}");
        stage.assert_same_files(&stage.tree(&["full", name]));
    }
}

/// Goal: data that is stored whole in the middle of a chain is the base of later sets, page by page, and the earlier
/// content does not come back.
/// Method: a database is created again with its OID from files of the same names, and a relation is truncated and
/// filled again; then a few pages of both change, and then none.
#[test]
fn a_file_stored_whole_amid_a_chain_is_the_base_of_the_next_set() {
    for installation in some() {
        for conf in ways(&installation) {
            let stage = Stage::new(&installation, conf);
            let server = &stage.server;
            server.psql("create database one oid = 50001");
            let rows = "select g, 'old' as t from generate_series(1, 20000) g";
            server.psql_in("one", &format!("create table t as {rows}"));
            server.psql("create database two template one strategy file_copy");
            server.psql_in("two", "update t set t = 'new'");
            server.psql(&format!("create table cut as {rows}"));
            succeed(&mut stage.backup("full"));
            server.psql("drop database one");
            server.psql("create database one template two oid = 50001 strategy file_copy");
            server.psql("delete from cut");
            server.psql("vacuum cut");
            assert_eq!(server.psql("select pg_relation_size('cut')"), "0");
            server.psql(&format!("insert into cut {rows}"));
            settle(server);
            let changed = |name: &str, base: &str| {
                let mut command = stage.differing(name, "--incremental", base);
                let report = answer(&succeed(&mut command));
                differential(&report)["changed_bytes"].as_u64().unwrap()
            };
            let _whole = changed("whole", "full");
            server.psql_in("one", "update t set t = 'last' where g % 500 = 0");
            server.psql("update cut set t = 'last' where g % 500 = 0");
            settle(server);
            let some = changed("some", "whole");
            let none = changed("none", "some");
            let page = 8192;
            assert!(
                none < some && (80 * page..400 * page).contains(&some),
                "{some}, {none}"
            );
            for chain in [
                &["full", "whole", "some"][..],
                &["full", "whole", "some", "none"],
            ] {
                let target = stage.tree(chain);
                stage.assert_same_files(&target);
                let restored = stage.serve(&target);
                let found = "select string_agg(distinct t, ' ' order by t), count(*) from";
                assert_eq!(
                    restored.psql_in("one", &format!("{found} t")),
                    "last new|20000"
                );
                assert_eq!(restored.psql(&format!("{found} cut")), "last old|20000");
                check(&restored, &target);
            }
        }
    }
}

/// Goal: a database that is moved to a tablespace and back, and tables that are, are restored correctly.
#[test]
fn a_database_moved_away_and_back_comes_back() {
    for installation in some() {
        for conf in ways(&installation) {
            let stage = Stage::new(&installation, conf);
            let server = &stage.server;
            let space = stage.path("space");
            std::fs::create_dir(&space).unwrap();
            server.user().own(&space);
            server.psql(&format!(
                "create tablespace s location '{}'",
                space.display()
            ));
            server.psql("create database moved");
            server.psql_in(
                "moved",
                "create table t as select g from generate_series(1, 5000) g",
            );
            succeed(&mut stage.backup("full"));
            server.psql("alter database moved set tablespace s");
            server.psql_in("moved", "update t set g = 0 where g % 500 = 0");
            server.psql("alter database moved set tablespace pg_default");
            succeed(&mut stage.differing("diff", "--differential", "full"));
            let target = mapped(&stage, &["full", "diff"]);
            assert_same(&stage, &target);
            let restored = stage.serve(&target);
            assert_eq!(
                restored.psql_in("moved", "select count(*) from t where g = 0"),
                "10"
            );
            check(&restored, &target);
        }
    }
}

/// Goal: if hints are not logged, the visibility map and the pages that it describes are of the same moment, also along
/// a chain during which the server begins to log hints, or to write WAL summaries.
/// Method: VACUUM marks all pages visible between the full and the differential set; an incremental one on that
/// follows. Rows deleted after the restore must be missing from an index-only scan, too, which trusts the map.
#[test]
fn a_map_and_its_pages_are_of_one_moment_along_a_chain() {
    for installation in some() {
        let begun: &[&str] = match installation.major {
            17.. => &["summarize_wal"],
            _ => &["", "wal_log_hints"],
        };
        for setting in begun {
            let server = Server::create(
                &installation,
                longshore_kit::Options {
                    wal_segment_mib: 1,
                    checksums: false,
                    ..Default::default()
                },
            );
            server.start();
            let stage = Stage::of(server);
            let server = &stage.server;
            server.psql("create table t as select g from generate_series(1, 10000) g");
            server.psql("create index on t (g)");
            // Hint bits are set now: the coming VACUUM changes nothing else in the pages.
            server.psql("select count(*) from t");
            succeed(&mut stage.backup("full"));
            server.psql("vacuum t");
            if *setting == "wal_log_hints" {
                server.psql("alter system set wal_log_hints = on");
                server.stop(Stop::Fast);
                server.start();
            }
            succeed(&mut stage.differing("diff", "--differential", "full"));
            if *setting == "summarize_wal" {
                server.psql("alter system set summarize_wal = on");
                server.psql("select pg_reload_conf()");
                server.wait_for("show summarize_wal", "on");
            }
            let report = answer(&succeed(&mut stage.differing(
                "inc",
                "--incremental",
                "diff",
            )));
            // Hints are not logged.
            assert_eq!(differential(&report)["method"], "page sums");
            let target = stage.tree(&["full", "diff", "inc"]);
            stage.assert_same_files(&target);
            let restored = stage.serve(&target);
            restored.psql("delete from t where g <= 5000");
            let scan = "set enable_seqscan = off; set enable_bitmapscan = off;";
            let count = "select count(*) from t where g > 0";
            let plan = restored.psql(&format!("{scan} explain {count}"));
            assert!(plan.contains("Index Only Scan"), "{plan}");
            let found = restored.psql(&format!("{scan} {count}"));
            assert!(
                found.ends_with("5000"),
                "PostgreSQL {}, {setting}: {found}",
                installation.major
            );
        }
    }
}

/// Goal: a page whose checksum is wrong is stored and reported, and such a set is no base.
#[test]
fn a_damaged_page_of_a_based_file_is_reported_and_its_set_cannot_be_a_base() {
    let Some(installation) = some().into_iter().next() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage
        .server
        .psql("create table t as select g, repeat('x', 500) from generate_series(1, 5000) g");
    succeed(&mut stage.backup("full"));
    let path = crate::pages::damage(&stage, "t", 7, 4000, b"!");
    let report = answer(&end(
        &mut stage.differing("bad", "--differential", "full"),
        5,
    ));
    assert_eq!(report["damaged"], true);
    let block = format!("{}: block 7 is damaged", path.display());
    assert!(report["run"]["warnings"].to_string().contains(&block));
    let output = end(&mut stage.differing("next", "--incremental", "bad"), 4);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("set 1 is marked as damaged"), "{said}");
}
