//! Goal: only sets that can be the base of a differential backup are taken as one, wherever they are.
//! Method: real servers, their copies, and rewound clusters are backed up on bases of each kind.

use longshore_kit::{Server, Stop};

use crate::common::{answer, longshore, text};
use crate::differential::{differential, some, ways};
use crate::stage::{Stage, check, dump, end, same, succeed};
use crate::standby::{caught_up, standby};

fn said(command: &mut std::process::Command, code: i32) -> String {
    let output = end(command, code);
    text(&output.stdout) + &text(&output.stderr)
}

/// Goal: a base must be of the same cluster; neither the branch that the server took since nor the LSN at which the
/// base ends affects the restored content.
#[test]
fn a_base_must_be_of_this_cluster_and_may_be_of_a_copy_of_it() {
    for installation in some() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql("create table t as select g from generate_series(1, 5000) g");
        // A copy that will diverge.
        server.stop(Stop::Fast);
        let copy = stage.path("copy");
        succeed(
            server
                .user()
                .command("cp".as_ref())
                .arg("-a")
                .arg(server.data_dir())
                .arg(&copy),
        );
        server.start();
        server.psql("update t set g = 0");
        succeed(&mut stage.backup("full"));
        let signal = copy.join("standby.signal");
        std::fs::write(&signal, "").unwrap();
        server.user().own(&signal);
        let other = Server::adopt(&installation, &copy);
        other.start();
        other.psql("select pg_promote()");
        let other = Stage::of(other);
        let mut command = other.backup("diff");
        command
            .args(["--differential", "--base"])
            .arg(stage.path("full"));
        succeed(&mut command);
        std::fs::rename(stage.path("full"), other.path("full")).unwrap();
        let restored = other.serve(&other.tree(&["full", "diff"]));
        assert_eq!(restored.psql("select count(*) from t where g = 0"), "0");
        std::fs::rename(other.path("full"), stage.path("full")).unwrap();

        let stranger = Stage::new(&installation, &[]);
        let mut command = stranger.backup("diff");
        command
            .args(["--differential", "--base"])
            .arg(stage.path("full"));
        let text = said(&mut command, 3);
        assert!(text.contains("another cluster"), "{text}");
        let mut command = stranger.backup("diff");
        command.args(["--differential", "--or-full", "--json", "--base"]);
        let report = answer(&succeed(command.arg(stage.path("full"))));
        assert!(differential(&report).is_null());

        let remote = &mut stage.differing("remote", "--differential", "full");
        assert!(said(remote.arg("--remote"), 3).contains("sends its files itself"));
    }
}

/// Goal: a cluster that was restored to an older backup and continued from there gets nothing of the abandoned future
/// from a base of that future, even if the new timeline has the old one's number and is longer.
#[test]
fn a_base_of_an_abandoned_future_brings_nothing_of_it() {
    for installation in some() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql("create table t as select g from generate_series(1, 5000) g");
        succeed(&mut stage.backup("monday"));
        server.psql("update t set g = -g");
        succeed(&mut stage.backup("tuesday"));
        let go_on = |server: &Server| {
            server.psql("update t set g = g + 1; select pg_switch_wal()");
            server.psql("update t set g = g + 1; select pg_switch_wal(); checkpoint");
        };
        let judged = |of: &Stage, base: &std::path::Path, name: &str| {
            let mut command = of.backup(name);
            succeed(command.args(["--differential", "--base"]).arg(base));
            let target = of.path(&format!("{name}.restored"));
            let mut restore = longshore(["restore", "--to"]);
            restore.arg(&target).arg(of.path(name));
            succeed(restore.arg("--base").arg(base));
            let restored = of.serve(&target);
            same(&dump(&restored), &dump(&of.server));
            check(&restored, &target);
        };
        let restored = |name: &str| {
            let target = stage.path(name);
            let mut command = longshore(["restore", "--to"]);
            succeed(command.arg(&target).arg(stage.path("monday")));
            let server = stage.serve(&target);
            go_on(&server);
            Stage::of(server)
        };
        let again = restored("again");
        assert_eq!(
            again
                .server
                .psql("select timeline_id from pg_control_checkpoint()"),
            "2"
        );
        judged(&again, &stage.path("tuesday"), "diff");
        succeed(&mut again.backup("wednesday"));
        judged(&again, &again.path("wednesday"), "thursday");
        // Restored once more from the same backup: its timeline has the same number and the same history.
        let other = restored("once-more");
        go_on(&other.server);
        judged(&other, &again.path("wednesday"), "friday");
    }
}

/// Goal: a primary that was rewound to its promoted standby continues from a base that both had, and from one of its
/// lost future, and gets nothing of that future back.
/// Method: both write to the same pages first; `pg_rewind` replaces the primary's pages by the standby's, whose LSNs
/// may be lower than those that they replace.
#[test]
fn a_rewound_cluster_continues_from_a_base_of_either_future() {
    for installation in some() {
        for conf in ways(&installation) {
            let keep = [("wal_keep_size", "512MB")];
            let stage = Stage::new(&installation, &[conf, &keep].concat());
            let server = &stage.server;
            server.psql(
                "create table t as select g, repeat('x', 100) p from generate_series(1, 10000) g;
                 create index on t (g); create table u as select g from generate_series(1, 10000) g",
            );
            server.psql("vacuum");
            let other = standby(&stage, &installation);
            succeed(&mut stage.backup("full"));
            server.psql("update t set p = 'y' where g % 77 = 0; checkpoint");
            caught_up(server, &other.server);
            other.server.psql("select pg_promote()");
            other.server.psql("checkpoint");
            server.psql("update t set p = 'lost' where g % 3 = 0; truncate u");
            server.psql("vacuum; insert into u select generate_series(1, 50); checkpoint");
            succeed(&mut stage.backup("lost"));
            let won = &other.server;
            won.psql(
                "update t set p = 'won' where g % 500 = 0; insert into u values (0); checkpoint",
            );
            server.stop(Stop::Fast);
            let mut rewind = server.command("pg_rewind");
            rewind.arg("--no-sync").arg("-D").arg(server.data_dir());
            let (host, port) = (won.socket_dir().display(), won.port());
            let source = format!("host={host} port={port} user=postgres dbname=postgres");
            succeed(rewind.arg("--source-server").arg(source));
            won.stop(Stop::Fast);
            let signal = server.data_dir().join("recovery.signal");
            std::fs::write(&signal, "").unwrap();
            server.user().own(&signal);
            let log = won.data_dir().join("pg_wal");
            server.append_conf(&format!("restore_command = 'cp {}/%f %p'", log.display()));
            server.start();
            server.psql("update t set p = 'after' where g % 999 = 0; checkpoint");

            succeed(&mut stage.differing("back", "--incremental", "lost"));
            succeed(&mut stage.differing("inc", "--incremental", "full"));
            for chain in [["full", "inc"], ["lost", "back"]] {
                let target = stage.tree(&chain);
                let copy = stage.serve(&target);
                same(&dump(&copy), &dump(server));
                assert_eq!(copy.psql("select count(*) from t where p = 'lost'"), "0");
                check(&copy, &target);
            }
        }
    }
}

/// Goal: on one media set the right set is the base, and only sets that can be one.
#[test]
fn sets_are_appended_to_the_media_of_their_base() {
    let Some(installation) = some().into_iter().next() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage.server.psql("create table t (i int)");
    let backup = |n: u32, arguments: &[&str]| {
        stage.server.psql(&format!("insert into t values ({n})"));
        let mut command = stage.backup("media");
        command.arg("--to").arg(stage.path("media2"));
        answer(&succeed(
            command.args(["--json", "--append"]).args(arguments),
        ))
    };
    let mut none = stage.backup("media");
    none.args(["--append", "--differential"])
        .arg("--to")
        .arg(stage.path("media2"));
    let text = said(&mut none, 4);
    assert!(text.contains("it does not exist"), "{text}");
    let first = backup(1, &[]);
    let _aside = backup(2, &["--copy-only"]);
    let a = backup(3, &["--differential"]);
    assert_eq!(differential(&a)["parent"], first["set"]);
    let b = backup(4, &["--incremental"]);
    assert_eq!(differential(&b)["parent"], a["set"]);
    let c = backup(5, &["--differential"]);
    assert_eq!(differential(&c)["parent"], first["set"]);
    for over in ["--init", "--format"] {
        let mut command = stage.backup("media");
        command.arg("--to").arg(stage.path("media2"));
        command
            .args([over, "--differential", "--base"])
            .arg(stage.path("media"));
        let text = said(command.arg("--base").arg(stage.path("media2")), 2);
        assert!(text.contains("would be overwritten"), "{text}");
    }
    let media = [stage.path("media"), stage.path("media2")];
    let mut list = longshore(["list", "--json"]);
    let sets = answer(&succeed(list.args(&media)));
    let kinds: Vec<_> = sets["sets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["type"].clone())
        .collect();
    let (d, i) = ("full", "diff");
    assert_eq!(kinds, [d, d, i, i, i]);
    assert_eq!(sets["sets"][3]["parent"], a["set"]);
    for (position, rows) in [(4, "4"), (5, "5")] {
        let target = stage.path(&format!("restored{position}"));
        let mut restore = longshore(["restore", "--position", &position.to_string(), "--to"]);
        succeed(restore.arg(&target).args(&media));
        let restored = stage.serve(&target);
        assert_eq!(restored.psql("select count(*) from t"), rows);
    }
}

/// Goal: at a target, bases are found, protected, and distinguished from sets that cannot be one.
#[test]
fn a_backup_to_a_target_finds_its_base() {
    let Some(installation) = some().into_iter().next() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let server = &stage.server;
    server.psql("create table t as select g, md5(g::text) m from generate_series(1, 20000) g");
    for dir in ["a", "b"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let config = format!(
        "[target.nightly]\ndirectories = [{:?}, {:?}]\n[database.main]\nurl = {:?}\ntarget = \"nightly\"\n",
        stage.path("a"),
        stage.path("b"),
        server.url()
    );
    std::fs::write(stage.path("conf.toml"), config).unwrap();
    let program = |arguments: &[&str]| {
        let mut command = longshore(arguments);
        let catalog = stage.path("catalog.db");
        command
            .arg("--config")
            .arg(stage.path("conf.toml"))
            .arg("--catalog")
            .arg(catalog);
        command
    };
    let backup = |arguments: &[&str]| {
        // For a set that cannot be opened, only the second in its label is known.
        server.psql("select pg_sleep_until(date_trunc('second', clock_timestamp()) + interval '1.01 second')");
        server.psql("update t set m = 'x' where g % 1000 = 1");
        let mut command = program(&["backup", "main", "--json"]);
        answer(&succeed(command.args(arguments)))
    };
    let listing = ["list", "--database", "main", "--json"];
    let list = || answer(&succeed(&mut program(&listing)));
    let text = said(&mut program(&["backup", "main", "--differential"]), 4);
    assert!(
        text.contains("3035") && text.contains("there is no backup"),
        "{text}"
    );
    let full = backup(&["--differential", "--or-full"]);
    assert!(differential(&full).is_null());
    let _aside = backup(&["--copy-only"]);
    let a = backup(&["--differential"]);
    assert_eq!(differential(&a)["parent"], full["set"]);
    let b = backup(&["--incremental"]);
    assert_eq!(differential(&b)["parent"], a["set"]);
    let listed = list();
    let backups = listed["databases"][0]["backups"].as_array().unwrap();
    let kinds: Vec<_> = backups
        .iter()
        .map(|b| b["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["full", "full", "diff", "incr"]);
    let verified = answer(&succeed(&mut program(&["verify", "--all", "--json"])));
    let verified = verified["databases"][0]["backups"].as_array().unwrap();
    let verified: Vec<_> = verified.iter().map(|b| b["type"].clone()).collect();
    assert_eq!(verified, kinds);
    let label = |i: usize| backups[i]["label"].as_str().unwrap().to_owned();
    assert_eq!(
        backups[3]["needed"].to_string(),
        format!("[{:?},{:?}]", label(2), label(0))
    );
    let history = answer(&succeed(&mut program(&["history", "--json"])));
    let types: Vec<_> = history["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["type"].clone())
        .collect();
    assert_eq!(types, ["incr", "diff", "full", "full"], "{history}");

    // Sets that a kept set needs stay, whatever the rule.
    let mut expire = program(&["expire", "main", "--keep-full", "1", "--json"]);
    succeed(&mut expire);
    let target = stage.path("restored");
    let to = target.to_str().unwrap();
    succeed(&mut program(&["restore", "--database", "main", "--to", to]));
    let restored = stage.serve(&target);
    assert_eq!(dump(&restored), dump(server));

    // A set that lost a stripe is no base, and neither is a set that depends on it; the one before is, with a message.
    let stripe = stage
        .path("b")
        .join("main")
        .join(label(2))
        .join("family-2.bak");
    std::fs::remove_file(stripe).unwrap();
    let mut command = program(&["backup", "main", "--incremental"]);
    let text = said(&mut command, 5);
    assert!(text.contains(&format!("{} is MISSING", label(2))), "{text}");
    let listed = list();
    let last = listed["databases"][0]["backups"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(last["needed"][0], label(0).as_str());
    // The newest backup that could be a base is that one, which is differential itself.
    let mut command = program(&["backup", "main", "--differential", "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(differential(&answer(&output))["parent"], full["set"]);
}
