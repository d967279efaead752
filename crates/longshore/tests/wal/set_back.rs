//! Goal: an archive belongs to one branch of a cluster. A server that is set back by a copy of its files stays on its
//! timeline and writes different WAL under the same names: a backup, a receiver and a recovery must not mix the two.
//! Method: real servers are set back by a copy of their directory and continue with the archive.

use std::path::Path;
use std::process::Output;

use longshore_kit::{Installation, Server, Stop, representatives};

use super::stage::*;

/// The server continued after `copy` was taken, and archived a future that is abandoned: this is the running copy.
struct SetBack {
    archive: String,
    /// It goes on on the same timeline.
    server: Server,
    /// A set of the abandoned future.
    abandoned: String,
    /// It is stopped.
    origin: Server,
}

fn pushing(archive: &str, more: &str) -> String {
    format!("archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}{more}'")
}

fn backup(server: &Server, archive: &str, name: &str) -> (Output, String) {
    let set = beside(server, name);
    let url = server.url();
    let args = [
        "--catalog",
        "none",
        "backup",
        &url,
        "--wal-archive",
        archive,
        "--wal-wait",
        "60",
        "--to",
        &set,
    ];
    (run(server, &args), set)
}

fn set_back(installation: &Installation, more: &str) -> SetBack {
    let origin = server(
        installation,
        &[("archive_mode", "on"), ("wal_keep_size", "200MB")],
    );
    let archive = new_archive(&origin, "archive");
    origin.append_conf(&pushing(&archive, more));
    origin.start();
    work(&origin, 2);
    archived(&origin, &archive);
    origin.stop(Stop::Fast);
    let data = copy(&origin, "set-back");
    origin.start();
    work(&origin, 3);
    let (output, abandoned) = backup(&origin, &archive, "abandoned.bak");
    assert_eq!(code(&output), 0, "{}", text(&output));
    archived(&origin, &archive);
    origin.stop(Stop::Fast);
    let server = Server::adopt(installation, &data);
    server.start();
    SetBack {
        archive,
        server,
        abandoned,
        origin,
    }
}

fn told_of_another_branch(output: &Output) {
    let said = text(output);
    assert_eq!(code(output), 7, "{said}");
    assert!(said.contains("WAL of another branch"), "{said}");
    assert!(
        said.contains("longshore wal create --archive NEW"),
        "{said}"
    );
}

/// Goal: the WAL of the abandoned future does not prove the full backup after a server is set back; with an archive of
/// its own that backup is good.
#[test]
fn a_backup_is_not_proved_by_the_log_of_another_branch() {
    for (installation, more) in representatives()
        .iter()
        .zip([" --async", ""].iter().cycle())
    {
        let major = installation.major;
        let SetBack {
            archive,
            server,
            origin,
            ..
        } = &set_back(installation, more);
        let before = segments(archive);
        server.psql("insert into t (filler) values ('after the set-back')");
        // Refused at its beginning: the archive has this segment already.
        let (output, set) = backup(server, archive, "refused.bak");
        told_of_another_branch(&output);
        assert!(!Path::new(&set).exists(), "PostgreSQL {major}");
        // Long after the archive's end too.
        work(server, 6);
        let (output, set) = backup(server, archive, "later.bak");
        told_of_another_branch(&output);
        assert!(!Path::new(&set).exists(), "PostgreSQL {major}");
        assert_eq!(&segments(archive), &before, "PostgreSQL {major}");

        // As the refusal says.
        let own = new_archive(server, "own");
        server.append_conf(&pushing(&own, more));
        server.psql("select pg_reload_conf()");
        let (output, set) = backup(server, &own, "own.bak");
        assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
        server.psql("insert into t (filler) values ('after the backup')");
        archived(server, &own);
        let data = beside(server, "restored");
        let args = ["--catalog", "none", "restore", &set, "--wal-archive", &own];
        let args = [&args[..], &["--no-archiving", "--to", &data]].concat();
        let output = run(server, &args);
        assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
        let restored = Server::adopt(installation, Path::new(&data));
        restored.start();
        restored.wait_for("select pg_is_in_recovery()", "f");
        let content = "select count(*), sum(id), md5(string_agg(filler, '' order by id)) from t";
        assert_eq!(restored.psql(content), server.psql(content));
        let output = run(server, &["wal", "list", "--verify", "--archive", &own]);
        assert_eq!(code(&output), 0, "{}", text(&output));

        // The other way round: a copy owns the archive.
        work(server, 8);
        archived(server, &own);
        origin.start();
        let (output, set) = backup(origin, &own, "origin.bak");
        told_of_another_branch(&output);
        assert!(!Path::new(&set).exists(), "PostgreSQL {major}");
        let (output, _) = backup(origin, archive, "origin-again.bak");
        assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
    }
}

/// Goal: a receiver that meets a server that was set back refuses for good, whether the server's WAL ends before or
/// after the archive's.
#[test]
fn a_receiver_refuses_a_server_that_was_set_back_for_good() {
    for installation in representatives() {
        let major = installation.major;
        let origin = server(&installation, &[("wal_keep_size", "200MB")]);
        let streamed = new_archive(&origin, "streamed");
        origin.start();
        work(&origin, 1);
        origin.stop(Stop::Fast);
        let data = copy(&origin, "set-back");
        origin.start();
        let received = |server: &Server, archive: &str| {
            let place = server.psql("select pg_current_wal_flush_lsn()");
            let more = ["--once", "--until", &place];
            receive(server, archive, &more).output().unwrap()
        };
        // In the middle of segments and at their ends.
        for _ in 0..3 {
            work(&origin, 1);
            let output = received(&origin, &streamed);
            assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
            origin.psql("insert into t (filler) values ('more')");
            let output = received(&origin, &streamed);
            assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
        }
        origin.stop(Stop::Fast);
        let before = segments(&streamed);
        assert!(before.len() >= 2, "{before:?}");

        let server = Server::adopt(&installation, &data);
        server.start();
        let behind = receive(&server, &streamed, &["--once"]).output().unwrap();
        assert_eq!(code(&behind), 7, "PostgreSQL {major}: {}", text(&behind));
        server.psql("insert into t (filler) values ('another way')");
        let behind = receive(&server, &streamed, &["--once"]).output().unwrap();
        assert_eq!(code(&behind), 7, "PostgreSQL {major}: {}", text(&behind));
        work(&server, 8);
        for _ in 0..2 {
            let output = received(&server, &streamed);
            told_of_another_branch(&output);
            work(&server, 1);
        }
        assert_eq!(segments(&streamed), before, "PostgreSQL {major}");
    }
}

/// Goal: verify and recovery refuse an archive with two mixed branches, before anything is written.
#[test]
fn segments_of_two_branches_do_not_pass_for_one_log() {
    for installation in &representatives() {
        let major = installation.major;
        let stage = set_back(installation, "");
        let (archive, server) = (&stage.archive, &stage.server);
        let output = run(server, &["wal", "list", "--verify", "--archive", archive]);
        assert_eq!(code(&output), 0, "PostgreSQL {major}: {}", text(&output));
        let last = segments(archive).pop().unwrap();
        let own = new_archive(server, "own");
        server.append_conf(&pushing(&own, ""));
        server.psql("select pg_reload_conf()");
        work(server, 8);
        archived(server, &own);
        let later: Vec<String> = segments(&own).into_iter().filter(|n| *n > last).collect();
        assert!(later.len() > 1, "{last} {later:?}");
        for name in &later {
            let to = stored(archive, name);
            std::fs::copy(stored(&own, name), &to).unwrap();
            server.user().own(&to);
        }
        let args = ["wal", "list", "--verify", "--json", "--archive", archive];
        let output = run(server, &args);
        assert_eq!(code(&output), 1, "PostgreSQL {major}: {}", text(&output));
        let answer = longshore_kit::program::answer(&output);
        let broken = &answer["broken"][0];
        assert_eq!(broken["before"], last.as_str(), "{answer}");
        assert_eq!(broken["name"], later[0].as_str(), "{answer}");
        assert_eq!(answer["broken"].as_array().unwrap().len(), 1, "{answer}");

        only_what_continues_is_given(&stage, &last, &later[0]);

        let data = beside(server, "restored");
        let args = [
            "--catalog",
            "none",
            "restore",
            &stage.abandoned,
            "--to",
            &data,
        ];
        let args = [&args[..], &["--wal-archive", archive, "--no-archiving"]].concat();
        let output = run(server, &args);
        assert_eq!(code(&output), 4, "PostgreSQL {major}: {}", text(&output));
        let said = text(&output);
        assert!(said.contains(&last) && said.contains(&later[0]), "{said}");
        assert!(!Path::new(&data).exists());
        // Up to the border it is one log.
        let border: u64 = u64::from_str_radix(&later[0][16..], 16).unwrap() << 20;
        let target = format!("0/{:X}", border - 1000);
        let output = run(server, &[&args[..], &["--target-lsn", &target]].concat());
        let said = text(&output);
        // From 15 on, a note says that this server does not read ahead.
        assert_eq!(code(&output), 0, "PostgreSQL {major}: {said}");
        assert_eq!(said.contains("recovery_prefetch"), major >= 15, "{said}");
    }
}

/// `wal get` compares by itself: no check of a restore came before, as for a server that others set up.
fn only_what_continues_is_given(stage: &SetBack, last: &str, later: &str) {
    let (archive, server) = (&stage.archive, &stage.server);
    let dir = beside(server, "recovering/pg_wal");
    std::fs::create_dir_all(&dir).unwrap();
    server.user().own(Path::new(&dir));
    let to = format!("{dir}/RECOVERYXLOG");
    let get = |name: &str| run(server, &["wal", "get", name, &to, "--archive", archive]);
    let output = get(later);
    assert_eq!(code(&output), 0, "nothing to compare: {}", text(&output));
    let before = Path::new(&dir).join(last);
    std::fs::write(&before, unpacked(archive, last)).unwrap();
    let output = get(later);
    assert_eq!(code(&output), 200, "{}", text(&output));
    let said = text(&output);
    assert!(said.contains(last) && said.contains(later), "{said}");
    // The branch's own segment is what continues its own.
    let parts = segments(archive);
    let earlier = &parts[parts.iter().position(|n| n == last).unwrap() - 1];
    std::fs::remove_file(&before).unwrap();
    std::fs::write(Path::new(&dir).join(earlier), unpacked(archive, earlier)).unwrap();
    let output = get(last);
    assert_eq!(code(&output), 0, "{}", text(&output));
}

/// Goal: `wal get` gives a server no WAL of another cluster, whatever its restore_command says.
#[test]
fn a_server_is_given_no_wal_of_another_cluster() {
    for installation in &representatives() {
        let origin = server(installation, &[("archive_mode", "on")]);
        let archive = new_archive(&origin, "archive");
        origin.append_conf(&pushing(&archive, ""));
        origin.start();
        work(&origin, 1);
        let name = archived(&origin, &archive);
        let other = server(installation, &[]);
        for (to, expected) in [(&origin, 0), (&other, 200)] {
            let to = to.data_dir().join("pg_wal/RECOVERYXLOG");
            let to = to.display().to_string();
            let output = run(&origin, &["wal", "get", &name, &to, "--archive", &archive]);
            assert_eq!(code(&output), expected, "{}", text(&output));
            assert_eq!(Path::new(&to).exists(), expected == 0);
        }
    }
}

/// How many findings about the log say that a push was refused, for a database with a target.
fn told_with_a_target(server: &Server, archive: &str) -> usize {
    let (config, target) = (beside(server, "target.toml"), beside(server, "target"));
    std::fs::create_dir(&target).unwrap();
    let settings = format!(
        "[database.main]\nurl = \"{}\"\ntarget = \"t\"\n[database.main.wal]\narchive = \"{archive}\"\n\
         [target.t]\ndirectories = [\"{target}\"]\n",
        server.url()
    );
    std::fs::write(&config, settings).unwrap();
    let args = ["--config", &config, "--catalog", "none"];
    let output = run(server, &[&args[..], &["check", "main", "--json"]].concat());
    let answer = longshore_kit::program::answer(&output);
    let findings = answer["databases"][0]["findings"].as_array().unwrap();
    let is_it = |finding: &&serde_json::Value| {
        let text = finding["text"].as_str().unwrap();
        finding["what"] == "log" && finding["grade"] == "bad" && text.contains("was refused")
    };
    findings.iter().filter(is_it).count()
}

/// Goal: `check` does not mistake a segment of the same name for the one that it had switched, and reports that pushes
/// fail.
#[test]
fn a_check_finds_a_refused_push() {
    for installation in &representatives() {
        let major = installation.major;
        let stage = set_back(installation, "");
        let (archive, server) = (&stage.archive, &stage.server);
        let config = beside(server, "longshore.toml");
        let settings = format!(
            "[database.main]\nurl = \"{}\"\n[database.main.wal]\narchive = \"{archive}\"\n",
            server.url()
        );
        std::fs::write(&config, settings).unwrap();
        let args = [
            "--config",
            &config,
            "--catalog",
            "none",
            "check",
            "main",
            "--json",
        ];
        let output = run(server, &args);
        assert_eq!(code(&output), 1, "PostgreSQL {major}: {}", text(&output));
        let answer = longshore_kit::program::answer(&output);
        let database = &answer["databases"][0];
        let found = |what: &str| {
            let findings = database["findings"].as_array().unwrap().iter();
            let mut found = findings.filter(|f| f["what"] == what && f["grade"] == "bad");
            let first = found.next().unwrap_or_else(|| panic!("{what}: {answer}"));
            first["text"].as_str().unwrap().to_owned()
        };
        let said = found("archive");
        assert!(said.contains("WAL of another branch"), "{said}");
        assert!(
            said.contains("longshore wal create --archive NEW"),
            "{said}"
        );
        // The archiver tries three times, then again a minute later.
        let fails = "select count(*) from pg_stat_archiver where failed_count > 0";
        server.wait_for(fails, "1");
        assert_eq!(told_with_a_target(server, archive), 1);
        let output = run(server, &args);
        let answer = longshore_kit::program::answer(&output);
        let archiver = &answer["databases"][0]["archiver"];
        assert_eq!(archiver["fails"], true, "PostgreSQL {major}: {answer}");
        assert!(archiver["ready"].as_u64().unwrap() > 0, "{answer}");
        assert!(archiver["last_failed_wal"].is_string(), "{answer}");
        let text = text(&output);
        assert!(text.contains("archive_command fails, last with"), "{text}");
        warned_of_another_branch(&stage);
        // A check of the archive alone sees it.
        assert!(Path::new(archive).join("refused").exists());
        let own = new_archive(server, "own");
        server.append_conf(&pushing(&own, ""));
        server.psql("select pg_reload_conf()");
        archived(server, &own);
        let settings = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, settings.replace(archive, &own)).unwrap();
        // The server's statistics come some moments after what they tell of.
        let over =
            "select count(*) from pg_stat_archiver where last_archived_time > last_failed_time";
        server.wait_for(over, "1");
        let output = run(server, &args);
        // There is no target, which is a finding.
        assert_eq!(
            code(&output),
            5,
            "PostgreSQL {major}: {}",
            super::stage::text(&output)
        );
    }
}

/// All that would go on with the archive's WAL says that the running server's was refused; the backup's own moment needs no
/// more than was compared with its server's.
fn warned_of_another_branch(stage: &SetBack) {
    let (archive, server) = (&stage.archive, &stage.server);
    let lines = |list: &[&str]| {
        let args = [&["--catalog", "none"], list].concat();
        let output = run(server, &args);
        (code(&output), text(&output))
    };
    for verify in [&[][..], &["--verify"]] {
        let list = [&["wal", "list", "--archive", archive], verify].concat();
        let (code, said) = lines(&list);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("two branches of the cluster"), "{said}");
    }
    let restore = |name: &str, more: &[&str]| {
        let to = beside(server, name);
        let base = [
            "restore",
            &stage.abandoned,
            "--to",
            &to,
            "--wal-archive",
            archive,
        ];
        lines(&[&base, more].concat())
    };
    let (code, said) = restore("to-the-end", &["--target-timeline", "latest"]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("two branches of the cluster"), "{said}");
    let (code, said) = restore("to-its-own-end", &["--target-immediate"]);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("two branches"), "{said}");
}
