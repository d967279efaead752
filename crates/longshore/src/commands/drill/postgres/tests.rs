//! A drill's server over copies that pg_basebackup made: what a restore leaves, too.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_io::{Host, HostClock};
use longshore_test_servers::{Installation, Options, Server, installations};

use super::*;
use crate::config::Config;
use crate::output::Output as Spoken;

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

/// The majors that have everything a drill needs; small distributions of PostgreSQL leave these programs out.
fn whole_installations() -> Vec<Installation> {
    let has = |i: &Installation| {
        let has = |p: &str| i.bin_dir.join(p).exists();
        has("pg_amcheck") && has("pg_checksums") && has("pg_basebackup") && has("pg_isready")
    };
    let all: Vec<_> = installations().into_iter().filter(has).collect();
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(
        !all.is_empty() || !required,
        "no PostgreSQL has pg_amcheck: run scripts/setup.sh"
    );
    all
}

fn server(installation: &Installation) -> Server {
    let server = Server::create(installation, Options::default());
    server.start();
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
    installation: &Installation,
    scratch: &Scratch,
    data: &Path,
    cancel: &AtomicBool,
) -> Result<Vec<Proof>, Failure> {
    let mut proofs = Vec::new();
    let users = ["no_such_role".to_owned(), "postgres".to_owned()];
    let bin_dir = Some(installation.bin_dir.as_path());
    prove(context, scratch, data, bin_dir, &users, cancel, &mut proofs)?;
    Ok(proofs)
}

#[test]
fn a_sound_cluster_is_proved_and_a_damaged_one_is_not() {
    let never = AtomicBool::new(false);
    for installation in whole_installations() {
        let context = context();
        let server = server(&installation);
        let path = server.psql("select pg_relation_filepath('t')");
        // Settings of its own that must not reach the private server.
        server
            .psql("alter system set archive_command = 'touch /tmp/longshore-drill-archived; true'");
        server.psql("alter system set listen_addresses = '*'");
        // Nor those that would stop a check: in a file that this server does not read again, and of a database.
        server.psql("alter system set synchronous_standby_names = 'nobody'");
        server.psql("alter system set statement_timeout = 1");
        server.psql("alter system set default_transaction_read_only = on");
        server.psql("create database far");
        server.psql("alter database far set session_preload_libraries = 'no_such_library'");
        server.psql("alter database far set default_transaction_read_only = on");
        let (scratch, data) = copy(&context, &server);
        let proofs = prove_it(&context, &installation, &scratch, &data, &never).unwrap();
        assert!(proofs.iter().all(|p| p.sound), "{proofs:?}");
        let seen: Vec<_> = proofs.iter().map(|p| p.what).collect();
        assert_eq!(
            seen,
            ["recovered", "pg_amcheck", "stopped", "page checksums"]
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
        let proofs = prove_it(&context, &installation, &scratch, &data, &never).unwrap();
        let bad: Vec<_> = proofs.iter().filter(|p| !p.sound).map(|p| p.what).collect();
        assert_eq!(bad, ["pg_amcheck", "page checksums"], "{proofs:?}");

        let (scratch, data) = copy(&context, &server);
        for entry in std::fs::read_dir(data.join("pg_wal")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        let proofs = prove_it(&context, &installation, &scratch, &data, &never).unwrap();
        assert_eq!(proofs.len(), 1);
        assert!(!proofs[0].sound, "{proofs:?}");
    }
}

#[test]
fn a_drill_that_is_interrupted_ends_its_server() {
    let Some(installation) = whole_installations().into_iter().next() else {
        return;
    };
    let context = context();
    let server = server(&installation);
    let (scratch, data) = copy(&context, &server);
    let cancelled = AtomicBool::new(true);
    let ended = prove_it(&context, &installation, &scratch, &data, &cancelled);
    assert_eq!(ended.unwrap_err().exit, Exit::Interrupted);
    let pid = std::fs::read_to_string(data.join("postmaster.pid")).ok();
    let pid = pid.and_then(|text| text.lines().next().map(str::to_owned));
    let alive = pid.is_some_and(|pid| Path::new("/proc").join(pid).exists());
    assert!(!alive, "the private server still runs");
}

#[test]
fn a_major_that_is_not_here_is_refused_by_name() {
    let refused = find("3", None).unwrap_err();
    assert!(refused.text.contains("PostgreSQL 3"), "{}", refused.text);
}
