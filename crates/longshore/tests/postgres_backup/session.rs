//! Goal: a backup fails and leaves nothing if its session, its server or its WAL is lost; it needs only the role that
//! `docs/postgres.md` describes, and tells no password.
//! Method: real servers; sessions are ended and processes killed while a slowed backup runs.
//! Not covered: networks that lose packets.

use std::process::{Command, Stdio};
use std::time::Duration;

use longshore_kit::{Stop, installations, representatives};

use crate::common::{Guarded, text, wait};
use crate::differential::ways;
use crate::stage::{Stage, check, end, succeed};

const PATIENCE: Duration = Duration::from_secs(60);
const SESSIONS: &str = "select count(*) from pg_stat_activity where application_name = 'longshore'";

/// A backup that takes some seconds.
pub fn slow(stage: &Stage, name: &str) -> Command {
    let mut command = stage.backup(name);
    command.args(["--max-rate", "4MB"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn begun(stage: &Stage, command: &mut Command) -> Guarded {
    let child = Guarded(command.spawn().unwrap());
    stage.server.wait_for(SESSIONS, "1");
    stage.server.wait_for(
        "select count(*) from pg_stat_activity where application_name = 'longshore' \
         and state = 'idle' and query like '%_lsn()%'",
        "1",
    );
    child
}

/// To a child that nobody has waited for yet.
pub fn send(child: &Guarded, signal: i32) {
    // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its own.
    assert_eq!(unsafe { libc::kill(child.0.id() as i32, signal) }, 0);
}

pub fn said(mut child: Guarded, code: i32) -> String {
    let status = wait(&mut child.0, PATIENCE, "the backup");
    let mut stderr = String::new();
    std::io::Read::read_to_string(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{stderr}");
    stderr
}

#[test]
fn a_backup_whose_session_or_server_dies_fails_and_leaves_nothing() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let child = begun(&stage, &mut slow(&stage, "ended.bak"));
        server.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'longshore'");
        let stderr = said(child, 3);
        assert!(stderr.contains("session"), "{stderr}");
        let child = begun(&stage, &mut slow(&stage, "killed.bak"));
        server.kill9();
        said(child, 3);
        for name in ["ended.bak", "killed.bak"] {
            assert!(!stage.path(name).exists(), "{name}");
        }
        server.start();
    }
}

#[test]
fn a_killed_backup_leaves_the_server_as_it_was() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let mut child = begun(&stage, &mut slow(&stage, "a.bak"));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        stage.server.wait_for(SESSIONS, "0");
        stage
            .server
            .wait_for("select count(*) from pg_replication_slots", "0");
        let output = crate::common::longshore(["verify".as_ref(), stage.path("a.bak").as_os_str()])
            .output()
            .unwrap();
        assert!(!output.status.success(), "what is left looks valid");
        assert!(!stage.server.data_dir().join("backup_label").exists());
        // A stop in smart mode waits for backups in progress where there are any.
        succeed(&mut stage.backup("b.bak"));
        stage.server.stop(Stop::Fast);
    }
}

const GRANTS: &str = "
    create role keeper login replication;
    grant pg_read_all_settings to keeper;";

fn grant(stage: &Stage, sql: &str) {
    let functions = match stage.server.installation().major {
        14 => "pg_start_backup(text, boolean, boolean), pg_stop_backup(boolean, boolean)",
        _ => "pg_backup_start(text, boolean), pg_backup_stop(boolean)",
    };
    stage.server.psql(&format!(
        "{sql} grant execute on function {functions} to keeper;"
    ));
}

fn as_keeper(stage: &Stage, name: &str) -> Command {
    let url = stage.server.url().replace("//postgres@", "//keeper@");
    let mut command = crate::common::longshore(["backup", url.as_str()]);
    command.args(["--algorithm", "LZ4", "--to"]);
    command.arg(stage.path(name));
    command
}

/// The role of docs/postgres.md is enough, and each of its grants is needed.
#[test]
fn a_role_with_few_rights_is_enough() {
    for installation in installations() {
        let conf = ways(&installation).pop().unwrap();
        let stage = Stage::new(&installation, conf);
        stage.server.psql("create role keeper login");
        let output = end(&mut as_keeper(&stage, "no.bak"), 3);
        assert!(text(&output.stderr).contains("42501"), "{output:?}");
        stage.server.psql("drop role keeper");
        grant(&stage, GRANTS);
        let output = succeed(&mut as_keeper(&stage, "role.bak"));
        let stderr = text(&output.stderr);
        assert!(!stderr.contains("no slot keeps"), "{stderr}");
        // Also for differential backups, with WAL summaries if the server has them, and for backups that the server
        // sends.
        let mut differing = as_keeper(&stage, "diff.bak");
        differing.args(["--differential", "--base"]);
        succeed(differing.arg(stage.path("role.bak")));
        succeed(as_keeper(&stage, "sent.bak").arg("--remote"));
        let (target, restored) = stage.restored("role.bak");
        check(&restored, &target);
        let target = stage.tree(&["role.bak", "diff.bak"]);
        check(&stage.serve(&target), &target);
    }
}

/// Goal: a configured database's password, from a file or a variable, connects to the server and is stored nowhere.
#[test]
fn a_configured_password_is_used_and_not_told() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        grant(&stage, GRANTS);
        let server = &stage.server;
        server.psql("alter role keeper password 'hunter two'");
        server.stop(Stop::Fast);
        let hba = "local all keeper scram-sha-256\nlocal all all trust\n";
        std::fs::write(server.data_dir().join("pg_hba.conf"), hba).unwrap();
        server.start();
        let url = server.url().replace("//postgres@", "//keeper@");
        let file = stage.path("password");
        let configure = |key: &str| {
            let text = format!("[database.main]\nurl = {url:?}\n{key}\n");
            std::fs::write(stage.path("longshore.toml"), text).unwrap();
        };
        let backup = |name: &str| {
            let mut command = crate::common::longshore(["--config"]);
            command.arg(stage.path("longshore.toml"));
            command.env("KEEPERS", "hunter two");
            command.args(["--catalog"]).arg(stage.path("catalog.db"));
            command.args(["--verbose", "backup", "main", "--to"]);
            command.arg(stage.path(name));
            command
        };
        let write = |password: &str, mode: u32| {
            std::fs::write(&file, password).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
        };
        let of_file = format!("password_file = {file:?}");
        let mut told = Vec::new();
        let mut tell = |output: std::process::Output| {
            let said = text(&output.stdout) + &text(&output.stderr);
            told.extend(said.clone().into_bytes());
            said
        };
        write("hunter two\n", 0o600);
        configure(&of_file);
        tell(succeed(&mut backup("file.bak")));
        write("hunter two\n", 0o644);
        let said = tell(end(&mut backup("open.bak"), 5));
        assert!(said.contains("other users can read"), "{said}");
        configure("password_env = \"KEEPERS\"");
        tell(succeed(&mut backup("variable.bak")));
        write("hunter three", 0o600);
        configure(&of_file);
        let said = tell(end(&mut backup("wrong.bak"), 3));
        assert!(said.contains("28P01"), "{said}");
        for name in ["file.bak", "catalog.db"] {
            told.extend(std::fs::read(stage.path(name)).unwrap());
        }
        for word in ["hunter two", "hunter three"] {
            let found = told.windows(word.len()).any(|w| w == word.as_bytes());
            assert!(!found, "{word} was told");
        }
    }
}

/// Goal: a backup without the WAL it needs never succeeds. With a slot the server keeps the WAL; without the right to
/// one, a segment that is recycled meanwhile fails the backup by name.
#[test]
fn a_log_that_is_gone_fails_the_backup_and_a_slot_keeps_it() {
    for installation in representatives() {
        let conf = [
            ("min_wal_size", "2MB"),
            ("max_wal_size", "2MB"),
            ("wal_keep_size", "0"),
            ("wal_recycle", "off"),
        ];
        let stage = Stage::new(&installation, &conf);
        grant(
            &stage,
            "create role keeper login; grant pg_read_all_settings to keeper;",
        );
        stage
            .server
            .psql("create table t as select g, repeat('x', 500) from generate_series(1, 20000) g");
        let age = "do $$ begin for i in 1..6 loop perform pg_switch_wal(); perform txid_current(); \
                   insert into t values (0); end loop; end $$; checkpoint;";
        let age = age.replace(
            "perform txid_current();",
            "insert into t select 0, 'x' from generate_series(1, 9999);",
        );
        for (name, keeps) in [("without.bak", false), ("with.bak", true)] {
            let mut command = match keeps {
                true => stage.backup(name),
                false => as_keeper(&stage, name),
            };
            command.args(["--max-rate", "10MB"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = begun(&stage, &mut command);
            // The backup does not end meanwhile, however long that takes.
            send(&child, libc::SIGSTOP);
            stage.server.psql(&age);
            stage
                .server
                .psql("checkpoint; select pg_switch_wal(); checkpoint;");
            send(&child, libc::SIGCONT);
            let stderr = said(child, if keeps { 0 } else { 3 });
            assert_eq!(stderr.contains("0000000100000000"), !keeps, "{stderr}");
            assert_eq!(stage.path(name).exists(), keeps);
        }
        let (target, restored) = stage.restored("with.bak");
        check(&restored, &target);
    }
}
