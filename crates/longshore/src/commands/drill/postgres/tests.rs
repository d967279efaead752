//! Goal: a drill's server proves a sound cluster, finds a damaged one, and runs none of production's code.
//! Method: drills run over copies made by pg_basebackup, which are what a restore leaves, too, with each installed
//! version.

use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

mod catalogue;

use longshore_io::{Host, HostClock};
use longshore_kit::{Installation, Options, Server, Stop, installations};

use super::*;
use crate::config::Config;
use longshore_terminal::output::Output as Spoken;

fn context() -> Context {
    Context {
        output: Spoken {
            json: false,
            quiet: true,
            verbose: false,
            stdout_taken: false,
        },
        config: Config::default(),
        storage: Arc::new(Host::new()),
        clock: Arc::new(HostClock),
        catalog: None,
    }
}

/// Programs of a major version that a drill and these tests need.
const PROGRAMS: [&str; 8] = [
    "initdb",
    "pg_amcheck",
    "pg_basebackup",
    "pg_checksums",
    "pg_controldata",
    "pg_ctl",
    "pg_isready",
    "postgres",
];

/// The server of a major version with everything a drill needs. Programs that a small distribution of PostgreSQL lacks
/// are taken from the next newer major version.
struct Whole {
    installation: Installation,
    /// Links to the programs.
    bin_dir: tempfile::TempDir,
}

fn whole_installations() -> Vec<Whole> {
    let whole = |installation: Installation| {
        let bin_dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bin_dir.path(), open).unwrap();
        for name in PROGRAMS {
            let program = installation.program(name)?;
            std::os::unix::fs::symlink(program, bin_dir.path().join(name)).unwrap();
        }
        Some(Whole {
            installation,
            bin_dir,
        })
    };
    let all: Vec<_> = installations().into_iter().filter_map(whole).collect();
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(
        !all.is_empty() || !required,
        "no PostgreSQL has pg_amcheck: run scripts/setup.sh"
    );
    all
}

/// A superuser whose settings would prevent a drill.
const ADMIN: &str = "admin";

fn server(installation: &Installation) -> Server {
    let server = Server::create(installation, Options::default());
    server.start();
    server.psql("create role admin superuser login");
    server.psql("create table t (id int primary key, v text)");
    server.psql("insert into t select i, md5(i::text) from generate_series(1, 20000) i");
    server.psql("checkpoint");
    server
}

/// A copy as pg_basebackup makes it, in a scratch directory.
fn copy<'a>(context: &'a Context, server: &Server) -> (Scratch<'a>, PathBuf) {
    let scratch = Scratch::new(context, None).unwrap();
    let data = scratch.path.join("data");
    std::fs::create_dir(&data).unwrap();
    let owner = std::fs::metadata(server.data_dir()).unwrap();
    let (uid, gid) = (owner.uid(), owner.gid());
    std::os::unix::fs::chown(&data, Some(uid), Some(gid)).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&data, closed).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(&scratch.path, open).unwrap();
    let mut command = server.command("pg_basebackup");
    let output = command
        .args([
            "--checkpoint=fast",
            "--wal-method=stream",
            "-U",
            "postgres",
            "-D",
        ])
        .arg(&data)
        .arg("-h")
        .arg(server.socket_dir())
        .args(["-p", &server.port().to_string()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (scratch, data)
}

fn prove_it(
    context: &Context,
    whole: &Whole,
    scratch: &Scratch,
    data: &Path,
    cancel: &AtomicBool,
) -> Result<Vec<Proof>, Failure> {
    let mut proofs = Vec::new();
    let users = ["no_such_role".to_owned(), ADMIN.to_owned()];
    let trial = Trial {
        context,
        scratch,
        data,
        bin_dir: Some(whole.bin_dir.path()),
        users: &users,
        timeline: None,
        has_later: false,
        cancel,
    };
    prove(&trial, &mut proofs)?;
    Ok(proofs)
}

#[test]
fn a_sound_cluster_is_proved_and_a_damaged_one_is_not() {
    let never = AtomicBool::new(false);
    for whole in whole_installations() {
        let context = context();
        let server = server(&whole.installation);
        let path = server.psql("select pg_relation_filepath('t')");
        // The server's own settings, which must not reach the private server.
        server
            .psql("alter system set archive_command = 'touch /tmp/longshore-drill-archived; true'");
        server.psql("alter system set listen_addresses = '*'");
        // Settings that would stop a check: in a file that this server does not read again, and of a database.
        server.psql("alter system set synchronous_standby_names = 'nobody'");
        server.psql("alter system set statement_timeout = 1");
        server.psql("alter system set default_transaction_read_only = on");
        server.psql("create database far");
        server.psql("alter database far set session_preload_libraries = 'no_such_library'");
        server.psql("alter database far set default_transaction_read_only = on");
        let (scratch, data) = copy(&context, &server);
        let proofs = prove_it(&context, &whole, &scratch, &data, &never).unwrap();
        assert!(proofs.iter().all(|p| p.sound), "{proofs:?}");
        let seen: Vec<_> = proofs.iter().map(|p| p.what).collect();
        assert_eq!(
            seen,
            [
                "confinement",
                "recovered",
                "pg_amcheck",
                "stopped",
                "page checksums"
            ]
        );
        assert!(!Path::new("/tmp/longshore-drill-archived").exists());
        let gone = scratch.path.clone();
        drop(scratch);
        assert!(!gone.exists());

        let (scratch, data) = copy(&context, &server);
        let table = std::fs::File::options()
            .write(true)
            .open(data.join(&path))
            .unwrap();
        table.write_all_at(&[0x5a; 512], 8192 * 3 + 4096).unwrap();
        let proofs = prove_it(&context, &whole, &scratch, &data, &never).unwrap();
        let bad: Vec<_> = proofs.iter().filter(|p| !p.sound).map(|p| p.what).collect();
        assert_eq!(bad, ["pg_amcheck", "page checksums"], "{proofs:?}");

        let (scratch, data) = copy(&context, &server);
        for entry in std::fs::read_dir(data.join("pg_wal")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        let proofs = prove_it(&context, &whole, &scratch, &data, &never).unwrap();
        let bad: Vec<_> = proofs.iter().filter(|p| !p.sound).map(|p| p.what).collect();
        assert_eq!(bad, ["recovered"], "{proofs:?}");
    }
}

#[test]
fn a_drill_that_is_interrupted_ends_its_server() {
    let Some(whole) = whole_installations().into_iter().next() else {
        return;
    };
    let context = context();
    let server = server(&whole.installation);
    let (scratch, data) = copy(&context, &server);
    let cancelled = AtomicBool::new(true);
    let ended = prove_it(&context, &whole, &scratch, &data, &cancelled);
    assert_eq!(ended.unwrap_err().exit, Exit::Interrupted);
    let pid = std::fs::read_to_string(data.join("postmaster.pid")).ok();
    let pid = pid.and_then(|text| text.lines().next().map(str::to_owned));
    let alive = pid.is_some_and(|pid| Path::new("/proc").join(pid).exists());
    assert!(!alive, "the private server still runs");
}

/// Goal: trouble of pg_amcheck's own condemns no backup, and neither does the order of another system's collations.
#[test]
fn only_corruption_that_pg_amcheck_reports_is_corruption() {
    let ended = |code: i32, stderr: &str| Output {
        status: ExitStatus::from_raw(code << 8),
        stdout: b"heap table is wrong".to_vec(),
        stderr: stderr.into(),
    };
    let mismatch = "WARNING:  database \"shop\" has a collation version mismatch";
    assert!(is_corruption(&ended(2, "")));
    assert!(!is_corruption(&ended(2, mismatch)));
    assert!(!is_corruption(&ended(1, "connection to server was lost")));
    let killed = Output {
        status: ExitStatus::from_raw(9),
        ..ended(0, "")
    };
    assert!(!is_corruption(&killed));
}

#[test]
fn a_major_that_is_not_here_is_refused_by_name() {
    let refused = find("3", None, None).unwrap_err();
    assert!(refused.text.contains("PostgreSQL 3"), "{}", refused.text);
}

/// Everything in a cluster that runs code, connects, or writes elsewhere leaves a trace in `witness` or at `port`.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn arm(server: &Server, witness: &Path, port: u16) {
    let major = server.installation().major;
    let mark = |what: &str| format!("touch {}/{what}", witness.display());
    server.psql(&format!(
        "create function public.act(what text) returns void language plpgsql as $$ begin \
         execute format('copy (select 1) to program %L', 'cat > {0}/' || what); \
         exception when others then null; end $$",
        witness.display()
    ));
    server.psql(&format!(
        "create function public.call() returns void language plpgsql as $$ begin \
         copy (select 1) to program 'cat > /dev/null; bash -c \"exec 3<>/dev/tcp/127.0.0.1/{port}\"'; \
         exception when others then null; end $$"
    ));
    // The function that a check of the index calls: it is declared immutable.
    server.psql(
        "create function key(i int) returns int immutable language plpgsql as $$ begin \
         perform public.act('index'), public.call(); return i; end $$",
    );
    server.psql("create table keyed as select i from generate_series(1, 3) i");
    server.psql("create index keyed_key on keyed (key(i))");
    server.psql("create index keyed_some on keyed (i) where key(i) > 1");
    let trigger = "create function fired() returns event_trigger language plpgsql as $$ begin \
         execute format('copy (select 1) to program %L', 'cat > W/trigger'); end $$"
        .replace('W', &witness.display().to_string());
    for database in ["postgres", "template1", "far"] {
        if database == "far" {
            server.psql("create database far");
        }
        if server.psql_in(database, "select to_regproc('fired') is null") == "t" {
            server.psql_in(database, &trigger);
        }
        for (name, event) in [("ended", "ddl_command_end"), ("began", "ddl_command_start")] {
            let made = format!("create event trigger {name} on {event} execute function fired()");
            if server.try_psql(database, &made).is_ok() {
                server.psql_in(
                    database,
                    &format!("alter event trigger {name} enable always"),
                );
            }
        }
    }
    if major >= 17 {
        server.psql("create event trigger entered on login execute function fired()");
        server.psql("alter event trigger entered enable always");
    }
    server.psql(&format!(
        "create subscription s connection 'host=127.0.0.1 port={port} dbname=x' publication p \
         with (connect = false, slot_name = 's')"
    ));
    server.psql("alter subscription s enable");
    server.psql("create role nobody_else");
    for setting in [
        "role = nobody_else",
        "session_preload_libraries = 'no_such_library'",
        "search_path = nowhere",
        "default_transaction_read_only = on",
        "statement_timeout = 1",
        "ignore_checksum_failure = on",
        "temp_tablespaces = nowhere",
    ] {
        server.psql(&format!("alter role admin set {setting}"));
        server.psql(&format!("alter role admin in database far set {setting}"));
    }
    let places = witness.display();
    let mut settings = vec![
        format!("archive_cleanup_command = '{}'", mark("cleanup")),
        format!("archive_command = '{}'", mark("archive")),
        "archive_mode = always".to_owned(),
        format!("recovery_end_command = '{}'", mark("recovery-end")),
        format!("restore_command = '{}; false'", mark("restore")),
        format!("ssl_passphrase_command = '{}'", mark("passphrase")),
        "ssl = on".to_owned(),
        "shared_preload_libraries = 'no_such_library'".to_owned(),
        "session_preload_libraries = 'no_such_library'".to_owned(),
        "jit_provider = 'no_such_library'".to_owned(),
        "listen_addresses = '*'".to_owned(),
        format!("unix_socket_directories = '{places}'"),
        format!("primary_conninfo = 'host=127.0.0.1 port={port}'"),
        "max_logical_replication_workers = 4".to_owned(),
        "synchronous_standby_names = 'nobody'".to_owned(),
        "recovery_target_time = '2000-01-01 00:00:00'".to_owned(),
        "recovery_target_action = 'shutdown'".to_owned(),
        "recovery_target_timeline = '99'".to_owned(),
        format!("external_pid_file = '{places}/pid'"),
        "logging_collector = on".to_owned(),
        "log_destination = 'csvlog'".to_owned(),
        format!("log_directory = '{places}'"),
        "autovacuum_naptime = 1".to_owned(),
        "statement_timeout = 1".to_owned(),
        "ignore_checksum_failure = on".to_owned(),
        "no_such_extension.setting = 'x'".to_owned(),
    ];
    if major == 14 {
        settings.push(format!("stats_temp_directory = '{places}'"));
    }
    if major >= 15 {
        settings.push("archive_library = ''".to_owned());
    }
    // Written as ALTER SYSTEM would; ALTER SYSTEM itself refuses libraries that do not exist.
    let path = server.data_dir().join(AUTO_CONF);
    let mut text = std::fs::read_to_string(&path).unwrap();
    for setting in settings {
        text += &format!("{setting}\n");
    }
    std::fs::write(path, text).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Witness: a directory in which nothing may appear, and a listener that nothing may connect to.
#[test]
fn nothing_of_productions_code_runs_in_a_drill() {
    let never = AtomicBool::new(false);
    for whole in whole_installations() {
        let context = context();
        let witness = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(witness.path(), open).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let called = || std::iter::from_fn(|| listener.accept().ok()).count();
        let server = server(&whole.installation);
        // Production's own workers are not under test.
        server.psql("alter system set max_logical_replication_workers = 0");
        server.stop(Stop::Fast);
        server.start();
        arm(&server, witness.path(), port);
        // The traces work: production left them.
        let made = names(witness.path());
        assert!(made.contains(&"index".to_owned()), "{made:?}");
        assert!(made.contains(&"trigger".to_owned()), "{made:?}");
        assert!(called() > 0);
        let (scratch, data) = copy(&context, &server);
        server.stop(Stop::Immediate);
        for name in names(witness.path()) {
            std::fs::remove_file(witness.path().join(name)).unwrap();
        }
        let _before = called();

        let proofs = prove_it(&context, &whole, &scratch, &data, &never).unwrap();
        let major = whole.installation.major;
        assert!(proofs.iter().all(|p| p.sound), "{major}: {proofs:?}");
        assert_eq!(names(witness.path()), [""; 0], "{major}: {proofs:?}");
        assert_eq!(called(), 0, "{major}: {proofs:?}");
        // Confined or skipped: the kernel decides, and the report says which.
        let text = |what: &str| &proofs.iter().find(|p| p.what == what).unwrap().text;
        let is_confined = text("confinement").contains("Landlock, seccomp");
        let left_out = text("pg_amcheck").contains("indexes were not checked");
        assert_eq!(is_confined, !left_out, "{proofs:?}");
    }
}

/// If nothing can be confined, exactly the indexes with functions of their own are skipped.
#[test]
fn indexes_that_call_the_databases_functions_are_distinguished_from_others() {
    let Some(whole) = whole_installations().pop() else {
        return;
    };
    let context = context();
    let server = server(&whole.installation);
    server
        .psql("create function twice(i int) returns int immutable language sql as 'select i * 2'");
    server.psql("create index by_own on t (twice(id))");
    server.psql("create index by_own_some on t (id) where twice(id) > 3");
    server.psql("create index by_built_in on t (lower(v)) where id > 3");
    server.psql("create schema \"a\"\"b\"");
    server.psql("create table \"a\"\"b\".t as select * from t");
    server.psql("create index \"q\"\"r\" on \"a\"\"b\".t (twice(id))");
    let (scratch, data) = copy(&context, &server);
    let bin_dir = Some(whole.bin_dir.path());
    let cluster = Cluster::new(
        &context,
        &scratch,
        &data,
        &whole.installation.major.to_string(),
        bin_dir,
    )
    .unwrap();
    let mut running = cluster.start(&scratch, None).unwrap();
    let never = AtomicBool::new(false);
    assert!(cluster.wait(&mut running, &never).unwrap());
    let users = ["postgres".to_owned()];
    let found = disarm::disarm(&cluster.running(), &users).unwrap();
    assert_eq!(
        found.indexes,
        [
            "\"postgres\".\"a\"\"b\".\"q\"\"r\"",
            "\"postgres\".\"public\".\"by_own\"",
            "\"postgres\".\"public\".\"by_own_some\""
        ]
    );
    let proof = cluster.amcheck(&users, false, &never).unwrap();
    assert!(
        proof.sound && proof.text.contains("3 indexes were not checked"),
        "{proof:?}"
    );
}

/// Witness: a file that a program in a candidate directory writes when it runs.
#[test]
fn a_program_that_another_user_can_change_is_not_asked_for_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let bin = dir.path().join("bin");
    let program = bin.join("postgres");
    std::fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\n(id -u; env) > {}/ran\necho postgres '(PostgreSQL)' 3.1\n",
        dir.path().display()
    );
    std::fs::write(&program, script).unwrap();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let ran = dir.path().join("ran");
    mode(&program, 0o755);
    mode(&bin, 0o777);
    let refused = find("3", Some(&bin), None).unwrap_err();
    assert!(
        refused
            .causes
            .iter()
            .any(|c| c.contains("other users may write")),
        "{refused:?}"
    );
    assert!(!ran.exists());

    mode(&bin, 0o755);
    // SAFETY: `geteuid` demands nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        const OTHER: u32 = 54_321;
        std::os::unix::fs::chown(&program, Some(OTHER), None).unwrap();
        let refused = find("3", Some(&bin), Some((65_534, 65_534))).unwrap_err();
        assert!(
            refused
                .causes
                .iter()
                .any(|c| c.contains("belongs to user 54321")),
            "{refused:?}"
        );
        assert!(!ran.exists());
        // The user that the server runs as may have its own programs; they run as that user.
        find("3", Some(&bin), Some((OTHER, OTHER))).unwrap();
        let said = std::fs::read_to_string(&ran).unwrap();
        assert!(said.starts_with("54321\n"), "{said}");
        assert!(!said.contains("CARGO"), "{said}");
    } else {
        find("3", Some(&bin), None).unwrap();
        let said = std::fs::read_to_string(&ran).unwrap();
        assert!(!said.contains("CARGO"), "{said}");
    }
}

/// Goal: texts of the server of a drill, which quote rows, are read by nobody else.
#[test]
fn the_log_of_a_drills_server_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_file(dir.path()).unwrap();
    assert_eq!(log.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(log_file(dir.path()).unwrap().metadata().unwrap().len(), 0);
}
